//! The address of an agent in the syntax of experiment files: `local`, `ssh:user@host`, `agent:host:port`.

use std::fmt;
use std::str::FromStr;

/// The Unix socket in a service's folder through which a virtual machine's agent is reached.
pub const GUEST_SOCKET: &str = "agent";

/// How to connect to a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostAddress {
    /// This machine, with its own agent: for trials, and as a baseline.
    Local,
    /// A host in the lab that this process runs: an agent is started in that host's network namespace. This address
    /// has no textual form.
    Lab {
        /// The host's name in the experiment.
        name: String,
    },
    /// A virtual machine run by one of the experiment's services: its agent is reached through the socket `agent` in
    /// that service's folder, without any network. This address has no textual form.
    Guest {
        /// The service's name.
        service: String,
    },
    /// An agent that listens on this address with TLS.
    Agent {
        /// A DNS name or an IP address, as in the agent's certificate.
        host: String,
        /// The agent's TCP port.
        port: u16,
    },
    /// A host reached through ssh, which starts and ends the agent.
    Ssh {
        /// In ssh's syntax: `user@host`, or a name from its configuration.
        destination: String,
    },
}

impl HostAddress {
    /// Only the host: a name or an address.
    pub fn host(&self) -> &str {
        match self {
            HostAddress::Local => "localhost",
            HostAddress::Lab { name } => name,
            HostAddress::Guest { service } => service,
            HostAddress::Agent { host, .. } => host,
            HostAddress::Ssh { destination } => {
                // ssh also accepts ssh://user@host:port.
                let url = destination.strip_prefix("ssh://");
                let text = url.unwrap_or(destination);
                let host = text.rsplit_once('@').map_or(text, |(_, host)| host);
                let host = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
                    Some((host, _)) => host,
                    None if url.is_some() => host.split_once(':').map_or(host, |(host, _)| host),
                    None => host,
                };
                host.trim_end_matches('/')
            }
        }
    }
}

/// Why a text is not a valid host address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' names no host: {what}")]
pub struct AddressError {
    /// The text as given.
    pub text: String,
    /// What is wrong with it, and the correct form.
    pub what: &'static str,
}

impl FromStr for HostAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<HostAddress, AddressError> {
        let wrong = |what| AddressError {
            text: text.to_string(),
            what,
        };
        match text.split_once(':') {
            None if text == "local" => Ok(HostAddress::Local),
            Some(("ssh", destination)) => {
                // ssh would take a leading dash as an option, and some options run a command here.
                let is_plain = |one: char| one.is_ascii_graphic();
                if destination.is_empty()
                    || destination.starts_with('-')
                    || !destination.chars().all(is_plain)
                {
                    return Err(wrong("write ssh:user@host, as for ssh itself"));
                }
                Ok(HostAddress::Ssh {
                    destination: destination.to_string(),
                })
            }
            Some(("agent", rest)) => {
                let bare = |host: &str| {
                    host.trim_start_matches('[')
                        .trim_end_matches(']')
                        .to_string()
                };
                let parts = rest
                    .rsplit_once(':')
                    .filter(|(host, _)| !bare(host).is_empty());
                let parts = parts.and_then(|(host, port)| Some((bare(host), port.parse().ok()?)));
                let (host, port) =
                    parts.ok_or_else(|| wrong("write agent:host:port; [::1] for IPv6"))?;
                Ok(HostAddress::Agent { host, port })
            }
            _ => Err(wrong(
                "write ssh:user@host, agent:host:port, or local for this machine",
            )),
        }
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostAddress::Local => f.write_str("local"),
            HostAddress::Lab { name } => write!(f, "lab:{name}"),
            HostAddress::Guest { service } => write!(f, "guest:{service}"),
            HostAddress::Ssh { destination } => write!(f, "ssh:{destination}"),
            HostAddress::Agent { host, port } if host.contains(':') => {
                write!(f, "agent:[{host}]:{port}")
            }
            HostAddress::Agent { host, port } => write!(f, "agent:{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        for text in [
            "local",
            "ssh:root@10.0.0.1",
            "ssh:node7",
            "agent:node7:7420",
            "agent:[fe80::1]:1",
        ] {
            assert_eq!(text.parse::<HostAddress>().unwrap().to_string(), text);
        }
        let hosts = [
            ("ssh:root@10.0.0.1", "10.0.0.1"),
            ("ssh:node7", "node7"),
            ("ssh:ssh://root@node7:2222", "node7"),
            ("ssh:ssh://[fe80::1]:22", "fe80::1"),
            ("ssh:me@fe80::1", "fe80::1"),
            ("agent:[fe80::1]:1", "fe80::1"),
        ];
        for (text, host) in hosts {
            assert_eq!(text.parse::<HostAddress>().unwrap().host(), host);
        }
        for text in ["agent:", "agent:node7", "agent::1", "agent:node7:99999"] {
            let error = text.parse::<HostAddress>().unwrap_err().to_string();
            assert!(error.contains("write agent:host:port"), "{error}");
        }
        for text in [
            "",
            "node7",
            "ssh:",
            "ssh:-oProxyCommand=x",
            "ssh:a b",
            "rsh:x",
            "local:1",
            "lab:client",
            "guest:vm",
        ] {
            let error = text.parse::<HostAddress>().unwrap_err().to_string();
            assert!(error.contains("write ssh:user@host"), "{error}");
        }
    }
}
