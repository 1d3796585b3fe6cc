//! Checks which news of roles an agent may send to its controller, and when.
//!
//! The rule: a role's messages are valid from its start to its end; the role listens on the requested address, its log
//! stays within its limit, and its texts contain no control characters.

use std::collections::BTreeMap;
use std::net::IpAddr;

use brunt_protocol::{LOG_BYTES_MAX, RoleEnd, RoleNews, RoleOrder};
use serde_json::Value;

use crate::plain::{plain, plain_list, plain_proof};
use crate::session::SessionError;

/// Maximum length of a role's line that is forwarded.
const LINE_BYTES_MAX: usize = 1 << 16;

/// Maximum length of the path of a service's folder: PATH_MAX.
const FOLDER_BYTES_MAX: usize = 4096;

/// The roles of a host.
#[derive(Debug, Default)]
pub(crate) struct RoleRules {
    roles: BTreeMap<u32, RequestedRole>,
}

/// A role that was requested.
#[derive(Debug)]
struct RequestedRole {
    /// The address that the role has to listen on.
    address: IpAddr,
    /// Bytes that may still be added to the role's log.
    log_left: u64,
}

impl RoleRules {
    /// Records an order to a role.
    ///
    /// # Panics
    /// The order starts a role whose number is in use.
    pub fn ask(&mut self, role: u32, order: &RoleOrder) {
        let asked = match order {
            RoleOrder::Start(wish) => RequestedRole {
                address: wish.address,
                log_left: 0,
            },
            RoleOrder::Admit(service) => RequestedRole {
                address: service.address,
                log_left: service.program.limits.log_bytes,
            },
            _ => return,
        };
        assert!(
            self.roles.insert(role, asked).is_none(),
            "each role has its own number"
        );
    }

    /// Checks news of a role.
    ///
    /// # Errors
    /// The role was not requested, listens on another address, or exceeds its log limit.
    pub fn take(&mut self, role: u32, news: RoleNews) -> Result<RoleNews, SessionError> {
        let asked = self
            .roles
            .get_mut(&role)
            .ok_or(SessionError::Unasked("a message about a role"))?;
        match &news {
            RoleNews::Listens { address, .. } if address.ip() != asked.address => {
                return Err(SessionError::Unasked("an address of a role"));
            }
            RoleNews::Admitted { folder } if !is_folder(folder) => {
                return Err(SessionError::Unasked("an invalid folder"));
            }
            RoleNews::Log(part) => {
                let left = asked
                    .log_left
                    .checked_sub(part.len() as u64)
                    .filter(|_| part.len() <= LOG_BYTES_MAX);
                asked.log_left =
                    left.ok_or(SessionError::Unasked("more log output than allowed"))?;
            }
            _ => {}
        }
        if news.is_last() {
            self.roles.remove(&role);
        }
        Ok(match news {
            RoleNews::Refused { kind, what } => RoleNews::Refused {
                kind,
                what: plain(&what),
            },
            RoleNews::Output(line) => RoleNews::Output(plain_line(&line)),
            RoleNews::Away(proof) => RoleNews::Away(plain_proof(proof)),
            RoleNews::Back { proof, pid } => RoleNews::Back {
                proof: plain_proof(proof),
                pid,
            },
            RoleNews::NotDone { kind, what } => RoleNews::NotDone {
                kind,
                what: plain(&what),
            },
            RoleNews::Died(end) => RoleNews::Died(RoleEnd {
                lines: plain_list(&end.lines),
                ..end
            }),
            news @ (RoleNews::Listens { .. }
            | RoleNews::Admitted { .. }
            | RoleNews::Log(_)
            | RoleNews::Lives
            | RoleNews::Stopped) => news,
        })
    }
}

/// Whether the text can be inserted into URLs unchanged: an absolute path without control characters.
fn is_folder(text: &str) -> bool {
    text.starts_with('/') && text.len() <= FOLDER_BYTES_MAX && !text.contains(char::is_control)
}

/// A role's line: JSON with displayable strings, or empty.
fn plain_line(line: &str) -> String {
    let value = (line.len() <= LINE_BYTES_MAX)
        .then(|| serde_json::from_str::<Value>(line).ok())
        .flatten();
    value
        .map(plain_value)
        .map_or_else(String::new, |value| value.to_string())
}

fn plain_value(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(plain(&text)),
        Value::Array(values) => Value::Array(values.into_iter().map(plain_value).collect()),
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(key, value)| (plain(&key), plain_value(value)))
                .collect(),
        ),
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use brunt_protocol::service::{KeeperLimits, ReadyPurpose, ReadyWhen, ServiceProgram};
    use brunt_protocol::{FailureKind, HostRole, HostService};

    fn start(address: &str) -> RoleOrder {
        RoleOrder::Start(Box::new(HostRole {
            name: "disk".into(),
            serve: serde_json::json!("memory:1MiB"),
            address: address.parse().unwrap(),
            congestion: None,
            login: None,
        }))
    }

    fn admit(log_bytes: u64) -> RoleOrder {
        let within = Duration::from_secs(1);
        let program = ServiceProgram {
            command: vec!["true".into()],
            prepare: None,
            environment: BTreeMap::new(),
            daemon: false,
            ready: ReadyWhen {
                port: None,
                line: None,
                command: None,
                purpose: ReadyPurpose::Start,
                within,
            },
            limits: KeeperLimits {
                memory_bytes: None,
                files: None,
                log_bytes,
            },
            stop_within: within,
        };
        let (name, folder) = ("service store".to_string(), "store".to_string());
        let address = "10.0.0.9".parse().unwrap();
        RoleOrder::Admit(Box::new(HostService {
            name,
            folder,
            address,
            program,
            needs_root: false,
        }))
    }

    /// The controller limits a service's log as well, and requires its folder, which is inserted into URLs, to be a
    /// path.
    #[test]
    fn a_services_log_and_folder_are_checked() {
        let mut rules = RoleRules::default();
        rules.ask(1, &admit(LOG_BYTES_MAX as u64 + 5));
        for odd in [
            "",
            "tmp/store",
            "/tmp/\u{1b}[2J",
            &format!("/{}", "a".repeat(FOLDER_BYTES_MAX)),
        ] {
            let admitted = RoleNews::Admitted {
                folder: odd.to_string(),
            };
            assert!(rules.take(1, admitted).is_err(), "{odd}");
        }
        let admitted = RoleNews::Admitted {
            folder: "/tmp/brunt-1-0/store".into(),
        };
        assert_eq!(rules.take(1, admitted.clone()).unwrap(), admitted);
        rules.ask(1, &RoleOrder::Run(BTreeMap::new()));
        let part = |bytes: usize| RoleNews::Log(vec![7; bytes]);
        assert!(
            rules.take(1, part(LOG_BYTES_MAX + 1)).is_err(),
            "longer than a part"
        );
        assert_eq!(
            rules.take(1, part(LOG_BYTES_MAX)).unwrap(),
            part(LOG_BYTES_MAX)
        );
        assert!(rules.take(1, part(6)).is_err(), "more than its limit");
        assert_eq!(rules.take(1, part(5)).unwrap(), part(5));
        rules.ask(2, &start("10.0.0.9"));
        assert!(rules.take(2, part(1)).is_err(), "a target has no log");
    }

    #[test]
    fn news_of_a_role_is_valid_from_its_start_to_its_end() {
        let mut rules = RoleRules::default();
        assert!(
            rules.take(1, RoleNews::Lives).is_err(),
            "it was not requested"
        );
        rules.ask(1, &start("10.0.0.9"));
        rules.ask(1, &RoleOrder::Look);
        let listens = |address: &str| RoleNews::Listens {
            address: address.parse().unwrap(),
            pid: 7,
        };
        let message = rules
            .take(1, listens("10.0.0.8:3260"))
            .unwrap_err()
            .to_string();
        assert!(message.contains("an address of a role"), "{message}");
        assert_eq!(
            rules.take(1, listens("10.0.0.9:1")).unwrap(),
            listens("10.0.0.9:1")
        );
        let line = "{\"answer\":\"refused\",\"why\":\"a\\u001b[2Jb\"}\n";
        let RoleNews::Output(line) = rules.take(1, RoleNews::Output(line.into())).unwrap() else {
            panic!()
        };
        assert_eq!(line, "{\"answer\":\"refused\",\"why\":\"a[2Jb\"}");
        assert_eq!(
            rules
                .take(1, RoleNews::Output("no JSON\x1b".into()))
                .unwrap(),
            RoleNews::Output("".into())
        );
        rules.take(1, RoleNews::Stopped).unwrap();
        assert!(rules.take(1, RoleNews::Lives).is_err(), "it has ended");
        rules.ask(2, &start("::1"));
        let refused = RoleNews::Refused {
            kind: FailureKind::NotAllowed,
            what: "no\x1b".into(),
        };
        let RoleNews::Refused { what, .. } = rules.take(2, refused).unwrap() else {
            panic!()
        };
        assert_eq!(what, "no");
        assert!(
            rules.take(2, RoleNews::Lives).is_err(),
            "it was never there"
        );
    }
}
