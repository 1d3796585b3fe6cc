//! Why a login failed, in messages that say what to do. Created by `login` and `discovery`; `connect` uses the errors
//! to decide whether to retry. The one rule: whether to retry depends on the error's kind, not its text.

use brunt_wire::Malformed;
use brunt_wire::iscsi::pdu::code;

use crate::chap::ChapError;
use crate::params::NegotiationError;

/// Why a login failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The target rejected the login with this status class and detail.
    #[error("the target refused the login: {words} (status {status:#06x})", words = refusal(*.0), status = .0)]
    Refused(u16),
    /// Authentication failed on our side.
    #[error(transparent)]
    Chap(#[from] ChapError),
    /// The target requires CHAP, but no user is configured.
    #[error("the target requires CHAP; give user and secret: iscsi://user%secret@host/target/lun")]
    CredentialsNeeded,
    /// Mutual authentication is configured, but the target did not authenticate itself.
    #[error("the target did not authenticate itself with CHAP, which the configuration requires")]
    NotMutual,
    /// The target chose an authentication method that we did not offer.
    #[error("the target requires '{0}' authentication; only CHAP is supported")]
    Method(String),
    /// The keys could not be negotiated.
    #[error(transparent)]
    Negotiation(#[from] NegotiationError),
    /// The bytes are not a valid login response.
    #[error("the target's login response is malformed: {0}")]
    Malformed(#[from] Malformed),
    /// A login response that violates the protocol.
    #[error("the target violated the login protocol: {0}")]
    Protocol(&'static str),
}

impl LoginError {
    /// Whether a later retry may help because the problem lies with the target, not with us.
    pub fn is_transient(&self) -> bool {
        // Class 3 is "target error". TOO_MANY_CONNECTIONS and SESSION_DOES_NOT_EXIST go away when the target notices
        // that the old session is gone; NOT_FOUND and AUTHORIZATION_FAILURE go away when the target has fully started:
        // access lists are often configured after the targets.
        matches!(
            self,
            LoginError::Refused(
                0x0300
                    ..=0x03ff
                        | code::login::TOO_MANY_CONNECTIONS
                        | code::login::SESSION_DOES_NOT_EXIST
                        | code::login::CANNOT_INCLUDE_IN_SESSION
                        | code::login::NOT_FOUND
                        | code::login::AUTHORIZATION_FAILURE
                        | code::login::TARGET_REMOVED
            )
        )
    }
}

/// Describes a status (RFC 7143, 11.13.5).
fn refusal(status: u16) -> &'static str {
    use code::login::*;
    match status {
        INITIATOR_ERROR => {
            "it rejected our request, or requires an option that we did not offer \
             (header_digest=crc32c and data_digest=crc32c offer digests)"
        }
        AUTHENTICATION_FAILURE => {
            "authentication failed; the user name or secret is wrong or missing"
        }
        AUTHORIZATION_FAILURE => {
            "this initiator may not use that target; check the target's access list"
        }
        NOT_FOUND => "it has no target with this name; 'brunt io targets URL' lists its targets",
        TARGET_REMOVED => "that target has been removed",
        UNSUPPORTED_VERSION => "it does not support iSCSI version 0",
        TOO_MANY_CONNECTIONS => "the session has too many connections",
        MISSING_PARAMETER => "it did not receive a required parameter",
        CANNOT_INCLUDE_IN_SESSION => "it cannot add the connection to the session",
        SESSION_TYPE_NOT_SUPPORTED => "it does not support this type of session",
        SESSION_DOES_NOT_EXIST => "it has no session that this connection could join",
        INVALID_DURING_LOGIN => "it received a request that is invalid during login",
        TARGET_ERROR => "it has an internal error",
        SERVICE_UNAVAILABLE => "the service is currently unavailable",
        OUT_OF_RESOURCES => "it is out of resources",
        _ if status >> 8 == 1 => "it sent a redirect without an address",
        _ if status >> 8 == 3 => "it had an internal error",
        _ => "it gave no reason",
    }
}
