//! Controls parts of a device stack while requests run: faults, retries, array members. An experiment's fault schedule
//! and a target's control channel find the parts of a device by name, read their status and send them commands.
//!
//! A controllable part implements [`Controllable`] and adds itself in [`crate::Backend::handles`]; no other
//! code lists it. Code that knows the concrete type behind a handle can downcast to it (`downcast_ref`).
//!
//! The rule: a command never waits for requests. Devices pick up its changes with their next batch.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Handles with their names, outermost first: `fault`, `retry`, and `2/fault` for a layer of an array's member 2.
pub type Handles = Vec<(String, Arc<dyn Controllable>)>;

/// The fields of an answer or a status, by name. Fields that don't apply are omitted.
pub type Fields = Vec<(&'static str, Value)>;

/// A metric of a part that changes over time, recorded as a time series: its current value, or its total since the
/// device was opened.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartFigure {
    /// The current value.
    Gauge(f64),
    /// A running total, recorded as a rate.
    Counter(u64),
    /// A ratio of two running totals: the first is the subset, the second the whole.
    Share(u64, u64),
}

/// Metrics by the names under which probes record them, such as `dirty_bytes` or, for a counter, `waits_per_s`. Metrics
/// that don't apply are omitted.
pub type PartFigures = Vec<(&'static str, PartFigure)>;

/// A part of a device that can be controlled while requests run.
pub trait Controllable: Any + fmt::Debug + Send + Sync {
    /// The kind of part, as used in tables: `fault`, `retry`, `array`.
    fn kind(&self) -> &'static str;

    /// The commands that the part accepts.
    fn commands(&self) -> &'static [CommandEntry];

    /// Executes one of [`Controllable::commands`], with exactly that command's arguments. Callers should use
    /// [`dyn Controllable::carry_out`], which ensures this.
    ///
    /// # Errors
    /// An argument is invalid, or the part cannot execute the command now.
    fn command(&self, name: &str, arguments: &Arguments) -> Result<Fields, CommandError>;

    /// The part's current state.
    fn status(&self) -> Fields;

    /// The metrics that probes record. The probes' table (`DEVICE` in `brunt-probe`) explains each name.
    fn figures(&self) -> PartFigures {
        Vec::new()
    }
}

impl dyn Controllable {
    /// Downcasts the handle to `T`.
    pub fn downcast_ref<T: Controllable>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }

    /// Downcasts a shared handle to `T`.
    pub fn downcast<T: Controllable>(self: Arc<Self>) -> Option<Arc<T>> {
        let any: Arc<dyn Any + Send + Sync> = self;
        any.downcast().ok()
    }

    /// Checks a command's arguments and executes it.
    ///
    /// # Errors
    /// The command doesn't exist, an argument is missing, unknown or invalid, or the part cannot execute the command
    /// now.
    pub fn carry_out(&self, name: &str, arguments: &Arguments) -> Result<Fields, CommandError> {
        let entry = self.commands().iter().find(|entry| entry.name == name);
        let entry = entry.ok_or_else(|| CommandError::Unknown {
            kind: self.kind(),
            command: name.to_string(),
            known: list(self.commands().iter().map(|entry| entry.name)),
        })?;
        let unknown =
            |(key, _): &&(String, Value)| entry.arguments.iter().all(|(known, _)| known != key);
        let missing = |(key, _): &&(&'static str, &'static str)| arguments.get(key).is_none();
        let argument = match (
            arguments.0.iter().find(unknown),
            entry.arguments.iter().find(missing),
        ) {
            (None, None) => return self.command(name, arguments),
            (Some((key, _)), _) => key.clone(),
            (None, Some((key, _))) => key.to_string(),
        };
        let takes = list(entry.arguments.iter().map(|(key, _)| *key));
        Err(CommandError::Argument {
            argument,
            wanted: format!("'{name}' takes {takes}"),
        })
    }
}

fn list(names: impl Iterator<Item = &'static str>) -> String {
    let names: Vec<_> = names.collect();
    if names.is_empty() {
        "none".to_string()
    } else {
        names.join(", ")
    }
}

/// A command that a part accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandEntry {
    /// Its name.
    pub name: &'static str,
    /// One-line help.
    pub help: &'static str,
    /// The command's arguments, all required, each with one line of help.
    pub arguments: &'static [(&'static str, &'static str)],
}

/// A value of an argument or a status.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// True or false.
    Flag(bool),
    /// A whole number; the field's name says what it counts.
    Count(u64),
    /// Any other number.
    Number(f64),
    /// Text.
    Text(String),
    /// A list of values.
    List(Vec<Value>),
}

impl Value {
    /// A list of texts.
    pub fn texts(words: impl IntoIterator<Item = impl Into<String>>) -> Value {
        Value::List(
            words
                .into_iter()
                .map(|word| Value::Text(word.into()))
                .collect(),
        )
    }
}

/// The arguments of a command.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arguments(pub Vec<(String, Value)>);

impl Arguments {
    /// The value of an argument.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0
            .iter()
            .find(|(known, _)| known == key)
            .map(|(_, value)| value)
    }

    /// The value of a whole-number argument.
    ///
    /// # Errors
    /// The argument is missing, or not a whole number.
    pub fn count(&self, key: &str) -> Result<u64, CommandError> {
        match self.get(key) {
            Some(Value::Count(count)) => Ok(*count),
            _ => Err(CommandError::argument(key, "a whole number")),
        }
    }

    /// The value of a boolean argument.
    ///
    /// # Errors
    /// The argument is missing, or not a boolean.
    pub fn flag(&self, key: &str) -> Result<bool, CommandError> {
        match self.get(key) {
            Some(Value::Flag(flag)) => Ok(*flag),
            _ => Err(CommandError::argument(key, "true or false")),
        }
    }

    /// The value of a text argument.
    ///
    /// # Errors
    /// The argument is missing, or not text.
    pub fn text(&self, key: &str) -> Result<&str, CommandError> {
        match self.get(key) {
            Some(Value::Text(text)) => Ok(text),
            _ => Err(CommandError::argument(key, "text")),
        }
    }
}

/// Why a command was not executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The part has no such command.
    #[error("a {kind} layer has no command '{command}'; its commands are {known}")]
    Unknown {
        /// The kind of part.
        kind: &'static str,
        /// The requested command.
        command: String,
        /// All of its commands.
        known: String,
    },
    /// An argument is missing, unknown or invalid.
    #[error("{argument}: {wanted}")]
    Argument {
        /// Its name.
        argument: String,
        /// What would be valid.
        wanted: String,
    },
    /// The object that the command refers to doesn't exist.
    #[error("{0}")]
    NotThere(String),
    /// The command cannot be executed in the part's current state.
    #[error("{0}")]
    NotNow(String),
}

impl CommandError {
    /// The error for a missing or invalid argument.
    pub fn argument(argument: &str, wanted: &str) -> CommandError {
        CommandError::Argument {
            argument: argument.to_string(),
            wanted: wanted.to_string(),
        }
    }
}

/// Finds a layer by its full name, or by the part after the last `/` if that is unambiguous.
pub fn find<'a, T>(layers: &'a [(String, T)], name: &str) -> Option<&'a T> {
    if let Some((_, layer)) = layers.iter().find(|(known, _)| known == name) {
        return Some(layer);
    }
    let mut ending = layers
        .iter()
        .filter(|(known, _)| known.rsplit('/').next() == Some(name));
    match (ending.next(), ending.next()) {
        (Some((_, layer)), None) => Some(layer),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open_url;

    fn arguments(pairs: &[(&str, Value)]) -> Arguments {
        Arguments(
            pairs
                .iter()
                .map(|(key, value)| (key.to_string(), value.clone()))
                .collect(),
        )
    }

    #[test]
    fn a_command_is_checked_before_the_part_sees_it() {
        let backend = open_url("null:1MiB?retry=3").unwrap();
        let handles = backend.handles();
        let retry = find(&handles, "retry").unwrap();
        let refusal = |name: &str, given: &[(&str, Value)]| {
            retry
                .carry_out(name, &arguments(given))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refusal("fail", &[]),
            "a retry layer has no command 'fail'; its commands are retry"
        );
        assert_eq!(refusal("retry", &[]), "on: 'retry' takes on");
        let given = [("on", Value::Flag(true)), ("off", Value::Flag(true))];
        assert_eq!(refusal("retry", &given), "off: 'retry' takes on");
        assert_eq!(
            refusal("retry", &[("on", Value::Count(1))]),
            "on: true or false"
        );
        retry
            .carry_out("retry", &arguments(&[("on", Value::Flag(false))]))
            .unwrap();
        assert_eq!(retry.status()[0], ("on", Value::Flag(false)));
    }

    /// Every part of a stack lists its commands with help, and accepts every command that it lists.
    #[test]
    fn parts_accept_every_command_they_list() {
        let member = "[memory:1MiB?fault=off]";
        let backend =
            open_url(&format!("array:raid1,{member},{member}?fault=off&retry=2")).unwrap();
        let handles = backend.handles();
        let kinds: Vec<_> = handles
            .iter()
            .map(|(name, part)| (name.as_str(), part.kind()))
            .collect();
        let fault = "fault";
        let expected = [
            ("retry", "retry"),
            (fault, fault),
            ("array", "array"),
            ("0/fault", fault),
            ("1/fault", fault),
        ];
        assert_eq!(kinds, expected);
        for (_, part) in &handles {
            assert!(!part.status().is_empty());
            for entry in part.commands() {
                assert!(!entry.help.is_empty() && !entry.help.contains('\n'));
                assert!(
                    entry
                        .arguments
                        .iter()
                        .all(|(name, help)| !name.is_empty() && !help.is_empty())
                );
                // A listed command must never be answered with `Unknown`.
                let given: Vec<_> = entry
                    .arguments
                    .iter()
                    .map(|(name, _)| (*name, Value::List(Vec::new())))
                    .collect();
                let answer = part.carry_out(entry.name, &arguments(&given));
                assert!(
                    !matches!(answer, Err(CommandError::Unknown { .. })),
                    "{answer:?}"
                );
            }
        }
    }
}
