//! The login of a target that listens on a network: generated for one experiment, and known only to its hosts.
//!
//! The rule: the login appears in no result, message or command line.

use std::fmt;
use std::io;

/// The user name, the same in every experiment.
const USER: &str = "brunt";
/// 128 bits: more than the 96 that RFC 7143, 9.2.1 requires.
const SECRET_BYTES: usize = 16;

/// A user name and a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct RoleLogin {
    secret: String,
}

impl RoleLogin {
    /// Generates a login whose secret cannot be guessed.
    ///
    /// # Errors
    /// The kernel provides no random numbers.
    pub fn unguessable() -> io::Result<RoleLogin> {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(RoleLogin {
            secret: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }

    /// The login as an argument of the serving program.
    pub fn as_argument(&self) -> String {
        format!("{USER}:{}", self.secret)
    }

    /// The URL of a device, with this login: `iscsi://user%secret@host/…`.
    pub fn add_to_url(&self, url: &str) -> String {
        url.replacen("://", &format!("://{USER}%{}@", self.secret), 1)
    }
}

impl fmt::Debug for RoleLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_another_and_none_is_shown() {
        let (one, other) = (
            RoleLogin::unguessable().unwrap(),
            RoleLogin::unguessable().unwrap(),
        );
        assert_ne!(one, other);
        assert_eq!(format!("{one:?}"), "***");
        assert_eq!(
            one.add_to_url("iscsi://h:1/t/0"),
            format!("iscsi://brunt%{}@h:1/t/0", one.secret)
        );
        assert_eq!(one.as_argument().len(), "brunt:".len() + 32);
    }
}
