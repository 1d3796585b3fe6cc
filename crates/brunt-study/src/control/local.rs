//! Carries out commands on the devices of this process, through handles of their layers.

use std::collections::BTreeMap;
use std::io;

use brunt_block::backends::array::ArrayControl;
use brunt_block::control::{self, Arguments, Controllable, Handles, PartFigure, Value};
use brunt_block::layers::fault::{DeviceFault, FaultSwitch};
use brunt_block::layers::retry::RetrySwitch;
use serde_json::Value as Json;

use super::message::{Command, Reason, Refusal, Reply};
use super::status::{LayerStatus, to_json};
use super::{Controls, ServedLuns};

/// Commands for the devices of this process.
pub struct Local {
    devices: Box<dyn ServedLuns>,
}

impl Local {
    /// Controls LUNs that have these handles.
    pub fn new(devices: impl IntoIterator<Item = (u16, Handles)>) -> Local {
        Local::of(devices.into_iter().collect::<BTreeMap<u16, Handles>>())
    }

    /// Controls a set of LUNs that may change.
    pub fn of(devices: impl ServedLuns + 'static) -> Local {
        Local {
            devices: Box::new(devices),
        }
    }

    /// Carries out a command given as a JSON line and returns the reply as a JSON line.
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

/// Carries out a command on the layers of a device.
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
            let disarms = matches!(command, Command::Disarm { .. });
            counts(faults(handles, layer)?, *id, disarms)?
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
        } => Reply::Fields {
            fields: own_command(handles, layer, command, arguments)?,
        },
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
            unreachable!("commands to the target name no device")
        }
    })
}

/// The counts of an armed fault; disarms the fault if requested.
fn counts(switch: &FaultSwitch, id: u64, disarms: bool) -> Result<Reply, Refusal> {
    let armed = switch.armed().into_iter().find(|armed| armed.id == id);
    let armed = armed.ok_or_else(|| Reason::NotArmed.because(format!("no fault {id} is armed")))?;
    if disarms {
        switch.disarm(id);
    }
    Ok(Reply::Counts {
        seen: armed.seen(),
        injected: armed.injected(),
    })
}

/// Carries out a layer's own command.
fn own_command(
    handles: &Handles,
    layer: &str,
    command: &str,
    arguments: &BTreeMap<String, Json>,
) -> Result<BTreeMap<String, Json>, Refusal> {
    let part = control::find(handles, layer).ok_or_else(|| {
        let names: Vec<&str> = handles.iter().map(|(name, _)| name.as_str()).collect();
        let why = format!(
            "unknown layer '{layer}'; the layers are {}",
            names.join(", ")
        );
        Reason::NoLayer.because(why)
    })?;
    Ok(to_json(part.carry_out(command, &from_json(arguments)?)?))
}

/// The figures for probes to record, from layers that have any.
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
                "there are several {kind} layers; select one: layer = {}",
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
    use brunt_block::backends::array::ArrayState;
    use brunt_block::open_url;

    use super::super::{AccessAnswer, LayerStatus, PortState};
    use super::*;

    fn local(url: &str) -> Local {
        Local::new([(0, open_url(url).unwrap().handles())])
    }

    /// A script's commands and replies, verbatim.
    #[test]
    fn a_script_gets_these_replies() {
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

    /// Replies can be serialized and parsed without loss.
    #[test]
    fn replies_survive_serialization() {
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

    /// Messages carry a layer's own commands without any code for them here.
    #[test]
    fn a_layers_own_commands_need_no_code_here() {
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

    /// Mistaken commands are refused, and the reply says what would be correct.
    #[test]
    fn mistakes_are_refused_with_what_would_be_right() {
        let check = |url: &str, line: &str, words: &str| {
            let answer = local(url).line(line);
            assert!(
                answer.starts_with(r#"{"answer":"refused""#) && answer.contains(words),
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
