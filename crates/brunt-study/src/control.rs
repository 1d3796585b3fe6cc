//! Commands that control a device's faults, retries and arrays. Within this process, commands go through the device's
//! handles; to a served target they are JSON lines on its standard input, each answered by a line on its standard
//! output (`brunt target --control`).
//!
//! ```text
//! {"do":"arm","lun":0,"fault":"medium-error,p=0.5"}     {"answer":"armed","id":1}
//! {"do":"look","lun":0,"id":1}                          {"answer":"counts","seen":812,"injected":403}
//! {"do":"disarm","lun":0,"id":1}                        {"answer":"counts","seen":4101,"injected":2050}
//! {"do":"fail","lun":0,"member":1}                      {"answer":"done"}
//! {"do":"status","lun":0}                               {"answer":"status","layers":{…}}
//! {"do":"figures","lun":0}                              {"answer":"figures","layers":{"fault":{"armed_faults":{"gauge":0.0},…}}}
//! {"do":"rebuild","lun":0}                              {"answer":"refused","reason":"wrong-state","why":"no member has failed"}
//! ```
//!
//! A target accepts further commands: `{"do":"add","lun":3,"device":"memory:1GiB,thin"}`,
//! `{"do":"resize","lun":3,"size":"2GiB"}`, `{"do":"remove","lun":3}`, `{"do":"reload"}` and
//! `{"do":"access","group":1,"state":"standby"}`. If it serves several targets, every command takes `"target":"iqn…"`.
//!
//! `layer` selects one of several layers of the same kind (`"layer":"2/fault"`). Every line is answered, in order; a
//! line that is not a valid command is refused with an example of a valid one.

mod local;
mod message;
mod presence;
mod status;

use std::collections::BTreeMap;
use std::io;

use brunt_block::control::Handles;

pub use local::Local;
pub use message::{AccessAnswer, Command, ControlError, PortState, Reason, Refusal, Reply};
pub use presence::{Absence, ProcessState};
pub use status::LayerStatus;

/// Maximum length of a message's line in bytes.
pub const LINE_BYTES_MAX: usize = 4096;

/// Carries out commands, either on a device of this process or through the process that serves the device.
pub trait Controls: Send + Sync {
    /// Whether the process is running; it always is, unless a fault freezes or kills it.
    fn state(&self) -> ProcessState {
        ProcessState::default()
    }

    /// Carries out a command. A refusal is a reply, not an error.
    ///
    /// # Errors
    /// The command could not be delivered, or was not answered.
    fn ask(&self, command: &Command) -> io::Result<Reply>;

    /// Carries out a command and treats a refusal as an error.
    ///
    /// # Errors
    /// The command could not be delivered, or was refused.
    fn must(&self, command: &Command) -> Result<Reply, ControlError> {
        match self.ask(command)? {
            Reply::Refused(refusal) => Err(refusal.into()),
            reply => Ok(reply),
        }
    }
}

/// Devices by LUN, and the target that serves them.
pub trait ServedLuns: Send + Sync {
    /// The handles of a LUN's layers; `None` if there is no such LUN.
    fn handles(&self, lun: u16) -> Option<Handles>;

    /// The numbers of all LUNs.
    fn luns(&self) -> Vec<u16>;

    /// Carries out a command that changes which LUNs exist, rather than a layer within one.
    ///
    /// # Errors
    /// The devices aren't served by a target, or the change isn't possible.
    fn serve(&self, _command: &Command) -> Result<Reply, Refusal> {
        Err(Reason::NoServer
            .because("this device is not served by a target, so its LUNs cannot change"))
    }
}

impl ServedLuns for BTreeMap<u16, Handles> {
    fn handles(&self, lun: u16) -> Option<Handles> {
        self.get(&lun).cloned()
    }

    fn luns(&self) -> Vec<u16> {
        self.keys().copied().collect()
    }
}
