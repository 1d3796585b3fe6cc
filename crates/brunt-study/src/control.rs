//! Commands that control a device's faults, retries and arrays. Within this process they go through the device's
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
//! `layer` selects one of several layers of a kind (`"layer":"2/fault"`). Every line is answered, in order; a line that
//! is not a valid command is refused with an example of one.

mod presence;

use std::collections::BTreeMap;
use std::{fmt, io};

use brunt_block::backends::array::{ArrayControl, ArrayState, ArrayStatus, MemberState};
use brunt_block::control::{
    self, Arguments, CommandError, Controllable, Fields, Handles, PartFigure, Value,
};
use brunt_block::layers::fault::{DeviceFault, FaultSwitch};
use brunt_block::layers::retry::RetrySwitch;
use brunt_core::Size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

pub use presence::{Absence, ProcessState};

/// Longest line of a message in bytes.
pub const LINE_BYTES_MAX: usize = 4096;

/// A command to a device or target. The LUN is 0 if there is only one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
#[allow(missing_docs)] // the fields are the same everywhere: which LUN, which layer
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
    /// Sends a layer of any kind one of its own commands.
    Own {
        lun: u16,
        layer: String,
        command: String,
        #[serde(default)]
        arguments: BTreeMap<String, Json>,
    },
    /// Asks for the status of all layers of a LUN.
    Status { lun: u16 },
    /// Asks for the figures that probes record for a LUN's layers.
    Figures { lun: u16 },
    /// Makes a target serve another LUN, written as in `--lun`.
    Add { lun: u16, device: String },
    /// Removes a LUN; outstanding commands complete first.
    Remove { lun: u16 },
    /// Grows or shrinks a LUN's medium.
    Resize { lun: u16, size: Size },
    /// Rereads the target's file.
    Reload,
    /// Sets the state of a target port group, or its preference, at one LUN or all; with neither, only queries it.
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

/// The asymmetric access state of a target port group (SPC-4, 5.15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PortState {
    /// Active, the better way.
    #[default]
    Optimized,
    /// Active, but not the better way.
    NonOptimized,
    /// Not used, but could become active.
    Standby,
    /// Cannot be used.
    Unavailable,
    /// Cannot be used, and does not become active by itself.
    Offline,
    /// On its way from one state to another.
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
    /// Groups that initiators should prefer (PREF), at the same LUN.
    #[serde(default)]
    pub preferred: Vec<u16>,
    /// Commands refused so far because of a state, at all LUNs addressed.
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
        /// By name; may be empty.
        fields: BTreeMap<String, Json>,
    },
    /// The status of a LUN.
    Status {
        /// By the layer's name.
        layers: BTreeMap<String, LayerStatus>,
    },
    /// The figures that probes record.
    Figures {
        /// By the layer's name and the figure's; only layers that have figures.
        layers: BTreeMap<String, BTreeMap<String, PartFigure>>,
    },
    /// The command was refused.
    Refused(Refusal),
}

impl Reply {
    /// The reply as a JSON line.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| {
            format!("{{\"answer\":\"refused\",\"reason\":\"unreadable\",\"why\":\"{error}\"}}")
        })
    }
}

/// A command that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{why}")]
pub struct Refusal {
    /// The kind of mistake.
    pub reason: Reason,
    /// The mistake and its correction, as text.
    pub why: String,
}

/// Why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The line is not a command.
    Unreadable,
    /// No such target, or there are several and the command names none.
    NoTarget,
    /// No such LUN.
    NoLun,
    /// The device isn't served by a target, so its LUNs cannot change.
    NoServer,
    /// The LUN, the device or the file is unsuitable.
    BadLun,
    /// The device has no such layer.
    NoLayer,
    /// There are several layers of the kind, and the command names none.
    AmbiguousLayer,
    /// Not a valid fault.
    NoFault,
    /// No fault with this number is armed.
    NotArmed,
    /// The layer's limit of armed faults is reached.
    Full,
    /// The layer cannot do it in its current state.
    WrongState,
    /// The layer has no such command, or one of its arguments is wrong.
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
    /// The command was refused; the text says what would be right.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The process is gone or doesn't answer.
    #[error(transparent)]
    Unreachable(#[from] io::Error),
    /// The reply belongs to another command.
    #[error("a reply to another command: {0:?}")]
    Mismatched(Box<Reply>),
}

impl ControlError {
    /// Why the command was refused; `None` if it failed otherwise.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            ControlError::Refused(refusal) => Some(refusal.reason),
            ControlError::Unreachable(_) | ControlError::Mismatched(_) => None,
        }
    }
}

/// The status of a layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum LayerStatus {
    /// A fault layer.
    Fault {
        /// Armed faults, as text.
        armed: Vec<String>,
        /// Requests affected so far.
        injected: u64,
        /// Bad blocks repaired by writes so far.
        #[serde(default)]
        cured: u64,
    },
    /// A retry layer.
    Retry {
        /// Whether retries are on.
        on: bool,
        /// Retries, counting each attempt.
        retries: u64,
        /// Requests that succeeded after a retry.
        overcome: u64,
        /// Failures reported to the caller.
        told: u64,
    },
    /// An array.
    Array {
        /// The state of the array.
        state: ArrayState,
        /// The members, by slot.
        members: Vec<MemberState>,
        /// Spares left.
        spares: usize,
        /// Bytes of a member rebuilt so far, and in total.
        rebuilt_bytes: Option<(u64, u64)>,
        /// Maximum rebuild rate in bytes per second; 0: unlimited.
        rebuild_bytes_per_second: u64,
        /// Completed rebuilds.
        rebuilds: u64,
        /// Bytes of a member that the last rebuild restored, and the seconds that it took.
        last_rebuild: Option<(u64, f64)>,
        /// Requests served without the member that should have served them.
        degraded_requests: u64,
        /// Read errors that were repaired.
        read_errors: u64,
        /// The last problem.
        trouble: Option<String>,
    },
    /// Any other layer that takes commands.
    Other {
        /// Its kind.
        layer: String,
        /// Its status fields, by name.
        fields: BTreeMap<String, Json>,
    },
}

impl LayerStatus {
    fn of(part: &dyn Controllable) -> LayerStatus {
        if let Some(switch) = part.downcast_ref::<FaultSwitch>() {
            let armed = switch
                .armed()
                .iter()
                .map(|armed| armed.fault.to_string())
                .collect();
            LayerStatus::Fault {
                armed,
                injected: switch.injected(),
                cured: switch.cured(),
            }
        } else if let Some(switch) = part.downcast_ref::<RetrySwitch>() {
            LayerStatus::Retry {
                on: switch.is_on(),
                retries: switch.retries(),
                overcome: switch.overcome(),
                told: switch.told(),
            }
        } else if let Some(control) = part.downcast_ref::<ArrayControl>() {
            LayerStatus::of_array(control.status(), control.rate())
        } else {
            LayerStatus::Other {
                layer: part.kind().to_string(),
                fields: to_json(part.status()),
            }
        }
    }

    fn of_array(status: ArrayStatus, rate: u64) -> LayerStatus {
        LayerStatus::Array {
            state: status.state,
            members: status.slots.iter().map(|(_, state)| *state).collect(),
            spares: status.spares.len(),
            rebuilt_bytes: status.rebuilt_bytes,
            rebuild_bytes_per_second: rate,
            rebuilds: status.rebuilds,
            last_rebuild: status
                .last_rebuild
                .map(|(bytes, took)| (bytes, took.as_secs_f64())),
            degraded_requests: status.degraded_requests,
            read_errors: status.read_errors,
            trouble: status.trouble,
        }
    }
}

/// Carries out commands: a device of this process, or the process that serves one.
pub trait Controls: Send + Sync {
    /// Whether the process is running; always, unless a fault freezes or kills it.
    fn state(&self) -> ProcessState {
        ProcessState::default()
    }

    /// Carries out a command. A refusal is a reply, not an error.
    ///
    /// # Errors
    /// The command could not be delivered or was not answered.
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

/// Devices by LUN, and what serves them.
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

/// The devices of this process.
pub struct Local {
    devices: Box<dyn ServedLuns>,
}

impl Local {
    /// Controls LUNs with these handles.
    pub fn new(devices: impl IntoIterator<Item = (u16, Handles)>) -> Local {
        Local::of(devices.into_iter().collect::<BTreeMap<u16, Handles>>())
    }

    /// Controls LUNs that may change.
    pub fn of(devices: impl ServedLuns + 'static) -> Local {
        Local {
            devices: Box::new(devices),
        }
    }

    /// Carries out a command given as a JSON line and returns the reply as one.
    pub fn line(&self, line: &str) -> String {
        let answer = match serde_json::from_str(line) {
            Ok(command) => self.obey(&command),
            Err(error) => {
                let example = r#"{"do":"status","lun":0}"#;
                let why = format!(
                    "invalid command: {error}; write one JSON object per line, such as {example}"
                );
                Reply::Refused(Reason::Unreadable.because(why))
            }
        };
        answer.to_line()
    }

    fn obey(&self, command: &Command) -> Reply {
        self.carry_out(command).unwrap_or_else(Reply::Refused)
    }

    fn carry_out(&self, command: &Command) -> Result<Reply, Refusal> {
        match command.concerns() {
            None => self.devices.serve(command),
            Some(lun) => in_device(&self.device(lun)?, command),
        }
    }

    fn device(&self, lun: u16) -> Result<Handles, Refusal> {
        self.devices.handles(lun).ok_or_else(|| {
            let luns: Vec<String> = self
                .devices
                .luns()
                .iter()
                .map(ToString::to_string)
                .collect();
            Reason::NoLun.because(format!(
                "unknown LUN {lun}; the LUNs are {}",
                luns.join(", ")
            ))
        })
    }
}

impl Command {
    /// The LUN whose layers carry out the command; `None` for commands to the target.
    fn concerns(&self) -> Option<u16> {
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

/// Carries out a command in the layers of a device.
fn in_device(handles: &Handles, command: &Command) -> Result<Reply, Refusal> {
    Ok(match command {
        Command::Arm { layer, fault, .. } => {
            let fault =
                DeviceFault::parse(fault).map_err(|error| Reason::NoFault.because(error))?;
            let armed = faults(handles, layer)?.arm(fault);
            let armed = armed
                .ok_or_else(|| Reason::Full.because("too many faults are armed at this layer"))?;
            Reply::Armed { id: armed.id }
        }
        Command::Look { layer, id, .. } | Command::Disarm { layer, id, .. } => {
            let switch = faults(handles, layer)?;
            let armed = switch.armed().into_iter().find(|armed| armed.id == *id);
            let armed =
                armed.ok_or_else(|| Reason::NotArmed.because(format!("no fault {id} is armed")))?;
            if matches!(command, Command::Disarm { .. }) {
                switch.disarm(*id);
            }
            Reply::Counts {
                seen: armed.seen(),
                injected: armed.injected(),
            }
        }
        Command::Clear { layer, .. } => {
            faults(handles, layer)?.clear();
            Reply::Done
        }
        Command::Retry { layer, on, .. } => {
            retries(handles, layer)?.set(*on);
            Reply::Done
        }
        Command::Fail { layer, member, .. } => {
            let failed = array(handles, layer)?.fail(*member);
            failed.map_err(|why| Reason::WrongState.because(why))?;
            Reply::Done
        }
        Command::Rebuild { layer, .. } => {
            let begun = array(handles, layer)?.rebuild();
            begun.map_err(|why| Reason::WrongState.because(why))?;
            Reply::Done
        }
        Command::Replace { layer, .. } => {
            array(handles, layer)?.replace();
            Reply::Done
        }
        Command::Rate {
            layer,
            bytes_per_second,
            ..
        } => {
            array(handles, layer)?.set_rate(*bytes_per_second);
            Reply::Done
        }
        Command::Own {
            layer,
            command,
            arguments,
            ..
        } => {
            let part = control::find(handles, layer).ok_or_else(|| {
                let names: Vec<&str> = handles.iter().map(|(name, _)| name.as_str()).collect();
                let why = format!(
                    "unknown layer '{layer}'; the layers are {}",
                    names.join(", ")
                );
                Reason::NoLayer.because(why)
            })?;
            let fields = part.carry_out(command, &from_json(arguments)?)?;
            Reply::Fields {
                fields: to_json(fields),
            }
        }
        Command::Status { .. } => {
            let parts = handles.iter();
            let layers = parts.map(|(name, part)| (name.clone(), LayerStatus::of(part.as_ref())));
            Reply::Status {
                layers: layers.collect(),
            }
        }
        Command::Figures { .. } => figures(handles),
        Command::Add { .. }
        | Command::Remove { .. }
        | Command::Resize { .. }
        | Command::Reload
        | Command::Access { .. } => {
            unreachable!("what concerns the target has no device")
        }
    })
}

/// The figures that probes record, of layers that have any.
fn figures(handles: &Handles) -> Reply {
    let figures = |part: &dyn Controllable| -> BTreeMap<String, PartFigure> {
        part.figures()
            .into_iter()
            .map(|(name, figure)| (name.to_string(), figure))
            .collect()
    };
    let layers = handles
        .iter()
        .map(|(name, part)| (name.clone(), figures(part.as_ref())));
    Reply::Figures {
        layers: layers.filter(|(_, figures)| !figures.is_empty()).collect(),
    }
}

fn faults<'a>(handles: &'a Handles, layer: &Option<String>) -> Result<&'a FaultSwitch, Refusal> {
    the_layer(handles, layer, "fault", "?fault=off")
}

fn retries<'a>(handles: &'a Handles, layer: &Option<String>) -> Result<&'a RetrySwitch, Refusal> {
    the_layer(handles, layer, "retry", "?retry=5,off")
}

fn array<'a>(handles: &'a Handles, layer: &Option<String>) -> Result<&'a ArrayControl, Refusal> {
    the_layer(handles, layer, "array", "array:raid1,[…],[…]")
}

/// The layer with this name, or the only one of its kind.
fn the_layer<'a, T: Controllable>(
    handles: &'a Handles,
    name: &Option<String>,
    kind: &str,
    example: &str,
) -> Result<&'a T, Refusal> {
    let known: Vec<(&str, &T)> = handles
        .iter()
        .filter_map(|(name, part)| Some((name.as_str(), part.downcast_ref()?)))
        .collect();
    let names = || {
        known
            .iter()
            .map(|(name, _)| *name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    match (name, known.as_slice()) {
        (_, []) => {
            let why =
                format!("this device has no {kind} layer; add one to its URL, such as {example}");
            Err(Reason::NoLayer.because(why))
        }
        (None, [(_, one)]) => Ok(one),
        (None, _) => {
            let why = format!(
                "there are several {kind} layers; name one: layer = {}",
                names()
            );
            Err(Reason::AmbiguousLayer.because(why))
        }
        (Some(name), _) => control::find(handles, name)
            .and_then(|part| part.downcast_ref())
            .ok_or_else(|| {
                let why = format!("unknown {kind} layer '{name}'; the layers are {}", names());
                Reason::NoLayer.because(why)
            }),
    }
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

fn to_json(fields: Fields) -> BTreeMap<String, Json> {
    fn value(one: Value) -> Json {
        match one {
            Value::Flag(flag) => flag.into(),
            Value::Count(count) => count.into(),
            Value::Number(number) => number.into(),
            Value::Text(text) => text.into(),
            Value::List(values) => values.into_iter().map(value).collect(),
        }
    }
    fields
        .into_iter()
        .map(|(name, one)| (name.to_string(), value(one)))
        .collect()
}

fn from_json(arguments: &BTreeMap<String, Json>) -> Result<Arguments, Refusal> {
    let value = |key: &String, json: &Json| match json {
        Json::Bool(flag) => Ok(Value::Flag(*flag)),
        Json::String(text) => Ok(Value::Text(text.clone())),
        Json::Number(number) => Ok(number.as_u64().map_or(
            Value::Number(number.as_f64().unwrap_or(f64::NAN)),
            Value::Count,
        )),
        _ => {
            let why = format!("{key}: expected a number, a string, true or false");
            Err(Reason::BadCommand.because(why))
        }
    };
    let pairs = arguments
        .iter()
        .map(|(key, json)| Ok((key.clone(), value(key, json)?)));
    Ok(Arguments(pairs.collect::<Result<_, Refusal>>()?))
}

impl Controls for Local {
    fn ask(&self, command: &Command) -> io::Result<Reply> {
        Ok(self.obey(command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_block::open_url;

    fn local(url: &str) -> Local {
        Local::new([(0, open_url(url).unwrap().handles())])
    }

    /// A script's conversation, verbatim.
    #[test]
    fn lines() {
        let member = "[memory:1MiB?fault=off]";
        let url = format!(
            "array:raid1,rebuild=0,{member},{member},spare=[memory:1MiB]?retry=3,off&fault=off"
        );
        let local = local(&url);
        let check = |line: &str, answer: &str| assert_eq!(local.line(line), answer, "{line}");
        check(
            r#"{"do":"arm","lun":0,"layer":"fault","fault":"busy,p=0.5"}"#,
            r#"{"answer":"armed","id":1}"#,
        );
        check(
            r#"{"do":"look","lun":0,"layer":"fault","id":1}"#,
            r#"{"answer":"counts","seen":0,"injected":0}"#,
        );
        check(
            r#"{"do":"disarm","lun":0,"layer":"fault","id":1}"#,
            r#"{"answer":"counts","seen":0,"injected":0}"#,
        );
        check(
            r#"{"do":"retry","lun":0,"on":true}"#,
            r#"{"answer":"done"}"#,
        );
        check(
            r#"{"do":"rate","lun":0,"bytes_per_second":1000}"#,
            r#"{"answer":"done"}"#,
        );
        check(
            r#"{"do":"rebuild","lun":0}"#,
            r#"{"answer":"refused","reason":"wrong-state","why":"no member has failed"}"#,
        );
        check(
            r#"{"do":"fail","lun":0,"member":1}"#,
            r#"{"answer":"done"}"#,
        );
        let status: Reply =
            serde_json::from_str(&local.line(r#"{"do":"status","lun":0}"#)).unwrap();
        let Reply::Status { layers } = status else {
            panic!("{status:?}")
        };
        assert_eq!(
            layers.keys().collect::<Vec<_>>(),
            ["0/fault", "1/fault", "array", "fault", "retry"]
        );
        assert!(matches!(
            &layers["retry"],
            LayerStatus::Retry { on: true, .. }
        ));
        assert!(
            matches!(&layers["array"], LayerStatus::Array { state, .. } if *state == ArrayState::Rebuilding)
        );
    }

    /// Replies survive serialization and parsing.
    #[test]
    fn answers_are_read() {
        let groups = BTreeMap::from([("1".to_string(), PortState::NonOptimized)]);
        for reply in [
            Reply::Access(AccessAnswer {
                groups,
                preferred: vec![1],
                refused: 1,
                told: 2,
            }),
            Reply::Done,
        ] {
            assert_eq!(
                serde_json::from_str::<Reply>(&reply.to_line()).unwrap(),
                reply
            );
        }
    }

    /// Messages carry a layer's own commands without knowing them.
    #[test]
    fn commands_of_any_layer() {
        let local = local("null:1MiB?fault=off&retry=3,off");
        let check = |line: &str, answer: &str| assert_eq!(local.line(line), answer, "{line}");
        check(
            r#"{"do":"own","lun":0,"layer":"fault","command":"arm","arguments":{"fault":"busy"}}"#,
            r#"{"answer":"fields","fields":{"id":1}}"#,
        );
        check(
            r#"{"do":"own","lun":0,"layer":"retry","command":"retry","arguments":{"on":1}}"#,
            r#"{"answer":"refused","reason":"bad-command","why":"on: true or false"}"#,
        );
        check(
            r#"{"do":"own","lun":0,"layer":"cache","command":"drop"}"#,
            r#"{"answer":"refused","reason":"no-layer","why":"unknown layer 'cache'; the layers are retry, fault"}"#,
        );
    }

    /// Mistakes are refused, with what would be right.
    #[test]
    fn mistakes_are_refused_with_what_would_be_right() {
        let check = |url: &str, line: &str, said: &str| {
            let answer = local(url).line(line);
            assert!(
                answer.starts_with(r#"{"answer":"refused""#) && answer.contains(said),
                "{line}: {answer}"
            );
        };
        let arm = r#"{"do":"arm","lun":0,"fault":"busy"}"#;
        check("null:1MiB", arm, "?fault=off");
        check(
            "null:1MiB?fault=off;name=a&fault=off;name=b",
            arm,
            "layer = b, a",
        );
        check(
            "null:1MiB?fault=off",
            r#"{"do":"arm","lun":1,"fault":"busy"}"#,
            "the LUNs are 0",
        );
        check(
            "null:1MiB?fault=off",
            r#"{"do":"arm","lun":0,"fault":"bussy"}"#,
            "medium-error",
        );
        check(
            "null:1MiB?fault=off",
            r#"{"do":"arm","lun":0,"layer":"x","fault":"busy"}"#,
            "the layers are fault",
        );
        check(
            "null:1MiB?fault=off",
            r#"{"do":"disarm","lun":0,"id":3}"#,
            "no fault 3 is armed",
        );
        check(
            "null:1MiB",
            r#"{"do":"fail","lun":0,"member":1}"#,
            "array:raid1",
        );
        check(
            "null:1MiB",
            r#"{"do":"explode","lun":0}"#,
            "invalid command",
        );
        check("null:1MiB", "hello", "invalid command");
        check(
            "null:1MiB",
            r#"{"do":"status","lun":0,"loud":true}"#,
            "invalid command",
        );
    }
}
