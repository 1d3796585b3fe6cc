//! The commands, their replies, and why commands fail.

use std::collections::BTreeMap;
use std::{fmt, io};

use brunt_block::control::{CommandError, PartFigure};
use brunt_core::Size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::status::LayerStatus;

/// A command to a device or target. The LUN is 0 if there is only one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
#[allow(missing_docs)] // the fields are the same in all variants: which LUN, which layer
pub enum Command {
    /// Arms a fault, written as in the `fault=` option.
    Arm {
        lun: u16,
        #[serde(default)]
        layer: Option<String>,
        fault: String,
    },
    /// Disarms a fault.
    Disarm {
        lun: u16,
        #[serde(default)]
        layer: Option<String>,
        id: u64,
    },
    /// Asks for a fault's counts.
    Look {
        lun: u16,
        #[serde(default)]
        layer: Option<String>,
        id: u64,
    },
    /// Disarms all faults of a layer.
    Clear {
        lun: u16,
        #[serde(default)]
        layer: Option<String>,
    },
    /// Switches retries on or off.
    Retry {
        lun: u16,
        #[serde(default)]
        layer: Option<String>,
        on: bool,
    },
    /// Fails a member of an array.
    Fail {
        lun: u16,
        #[serde(default)]
        layer: Option<String>,
        member: usize,
    },
    /// Starts to rebuild onto a spare.
    Rebuild {
        lun: u16,
        #[serde(default)]
        layer: Option<String>,
    },
    /// Replaces failed members with new devices, which become spares.
    Replace {
        lun: u16,
        #[serde(default)]
        layer: Option<String>,
    },
    /// Sets the maximum rebuild rate of an array; 0: unlimited.
    Rate {
        lun: u16,
        #[serde(default)]
        layer: Option<String>,
        bytes_per_second: u64,
    },
    /// Sends a layer a command that is specific to its kind.
    Own {
        lun: u16,
        layer: String,
        command: String,
        #[serde(default)]
        arguments: BTreeMap<String, Json>,
    },
    /// Asks for the status of all layers of a LUN.
    Status { lun: u16 },
    /// Asks for the figures of a LUN's layers, for probes to record.
    Figures { lun: u16 },
    /// Makes a target serve another LUN, written as in `--lun`.
    Add { lun: u16, device: String },
    /// Removes a LUN; outstanding commands complete first.
    Remove { lun: u16 },
    /// Grows or shrinks a LUN's medium.
    Resize { lun: u16, size: Size },
    /// Rereads the target's file.
    Reload,
    /// Sets the state of a target port group, or whether it is preferred, at one LUN or all; with neither, only
    /// queries the states.
    Access {
        #[serde(default)]
        group: Option<u16>,
        #[serde(default)]
        state: Option<PortState>,
        #[serde(default)]
        preferred: Option<bool>,
        #[serde(default)]
        lun: Option<u16>,
    },
}

impl Command {
    /// The LUN whose layers carry out the command; `None` for commands to the target.
    pub(super) fn concerns(&self) -> Option<u16> {
        match self {
            Command::Arm { lun, .. }
            | Command::Disarm { lun, .. }
            | Command::Look { lun, .. }
            | Command::Clear { lun, .. }
            | Command::Retry { lun, .. }
            | Command::Fail { lun, .. }
            | Command::Rebuild { lun, .. }
            | Command::Replace { lun, .. }
            | Command::Rate { lun, .. }
            | Command::Own { lun, .. }
            | Command::Status { lun }
            | Command::Figures { lun } => Some(*lun),
            Command::Add { .. }
            | Command::Remove { .. }
            | Command::Resize { .. }
            | Command::Reload
            | Command::Access { .. } => None,
        }
    }
}

/// The asymmetric access state of a target port group (SPC-4, 5.15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PortState {
    /// Active/optimized: the preferred path.
    #[default]
    Optimized,
    /// Active/non-optimized: usable, but not the preferred path.
    NonOptimized,
    /// Not used for I/O, but could become active.
    Standby,
    /// Cannot be used.
    Unavailable,
    /// Cannot be used, and does not become active by itself.
    Offline,
    /// Changing from one state to another.
    Transitioning,
}

impl PortState {
    /// Whether medium access commands are refused.
    pub fn refuses(self) -> bool {
        !matches!(self, PortState::Optimized | PortState::NonOptimized)
    }
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PortState::Optimized => "optimized",
            PortState::NonOptimized => "non-optimized",
            PortState::Standby => "standby",
            PortState::Unavailable => "unavailable",
            PortState::Offline => "offline",
            PortState::Transitioning => "transitioning",
        })
    }
}

/// The answer to [`Command::Access`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessAnswer {
    /// The state of each target port group by its number, at the first LUN addressed.
    pub groups: BTreeMap<String, PortState>,
    /// Groups that initiators should prefer (PREF), at the first LUN addressed.
    #[serde(default)]
    pub preferred: Vec<u16>,
    /// Commands refused so far because of a group's state, at all LUNs addressed.
    pub refused: u64,
    /// Number of times an initiator was notified of a change at a LUN.
    pub told: u64,
}

/// The reply to a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Reply {
    /// A fault was armed.
    Armed {
        /// The fault's number, for `disarm` and `look`.
        id: u64,
    },
    /// A fault's counts.
    Counts {
        /// Requests that matched the fault.
        seen: u64,
        /// Requests that the fault affected.
        injected: u64,
    },
    /// The command succeeded.
    Done,
    /// The state of target port groups.
    Access(AccessAnswer),
    /// A layer's answer to one of its own commands.
    Fields {
        /// The answer's fields by name; may be empty.
        fields: BTreeMap<String, Json>,
    },
    /// The status of a LUN.
    Status {
        /// The layers' statuses by layer name.
        layers: BTreeMap<String, LayerStatus>,
    },
    /// The figures for probes to record.
    Figures {
        /// The figures by layer name and figure name; layers without figures are left out.
        layers: BTreeMap<String, BTreeMap<String, PartFigure>>,
    },
    /// The command was refused.
    Refused(Refusal),
}

impl Reply {
    /// Returns the reply as a JSON line.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| {
            format!("{{\"answer\":\"refused\",\"reason\":\"unreadable\",\"why\":\"{error}\"}}")
        })
    }
}

/// The refusal of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{why}")]
pub struct Refusal {
    /// The kind of mistake.
    pub reason: Reason,
    /// The mistake, and what would be correct.
    pub why: String,
}

impl From<CommandError> for Refusal {
    fn from(error: CommandError) -> Refusal {
        let reason = match error {
            CommandError::NotNow(_) => Reason::WrongState,
            _ => Reason::BadCommand,
        };
        reason.because(error)
    }
}

/// Why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The line is not a command.
    Unreadable,
    /// No such target, or there are several targets and the command names none.
    NoTarget,
    /// No such LUN.
    NoLun,
    /// The device isn't served by a target, so its LUNs cannot change.
    NoServer,
    /// The LUN, the device or the file is unsuitable.
    BadLun,
    /// The device has no such layer.
    NoLayer,
    /// There are several layers of this kind, and the command selects none.
    AmbiguousLayer,
    /// The fault isn't valid.
    NoFault,
    /// No fault with this number is armed.
    NotArmed,
    /// The layer's limit of armed faults is reached.
    Full,
    /// The layer cannot carry out the command in its current state.
    WrongState,
    /// The layer has no such command, or one of the command's arguments is wrong.
    BadCommand,
}

impl Reason {
    /// A refusal for this reason.
    pub fn because(self, why: impl ToString) -> Refusal {
        Refusal {
            reason: self,
            why: why.to_string(),
        }
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The command was refused; the text says what would be correct.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The process is gone or doesn't answer.
    #[error(transparent)]
    Unreachable(#[from] io::Error),
    /// The reply doesn't match the command.
    #[error("the reply doesn't match the command: {0:?}")]
    Mismatched(Box<Reply>),
}

impl ControlError {
    /// The reason if the command was refused; `None` if it failed otherwise.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            ControlError::Refused(refusal) => Some(refusal.reason),
            ControlError::Unreachable(_) | ControlError::Mismatched(_) => None,
        }
    }
}
