//! Controls an array by name: its commands and status. [`super::state`] implements them.

use super::state::{ArrayControl, ArrayError, MemberState};
use crate::control::{
    Arguments, CommandEntry, CommandError, Controllable, Fields, PartFigure, PartFigures, Value,
};

impl From<ArrayError> for CommandError {
    fn from(error: ArrayError) -> CommandError {
        match error {
            ArrayError::NoMember { .. } => CommandError::NotThere(error.to_string()),
            _ => CommandError::NotNow(error.to_string()),
        }
    }
}

impl Controllable for ArrayControl {
    fn kind(&self) -> &'static str {
        "array"
    }

    fn commands(&self) -> &'static [CommandEntry] {
        &[
            CommandEntry {
                name: "fail",
                help: "marks a member as failed",
                arguments: &[("member", "its index, from 0")],
            },
            CommandEntry {
                name: "rebuild",
                help: "starts a rebuild onto a spare",
                arguments: &[],
            },
            CommandEntry {
                name: "replace",
                help: "replaces failed members with new devices, which become spares",
                arguments: &[],
            },
            CommandEntry {
                name: "rate",
                help: "limits the rebuild rate",
                arguments: &[("bytes_per_second", "0: no limit")],
            },
        ]
    }

    fn command(&self, name: &str, arguments: &Arguments) -> Result<Fields, CommandError> {
        match name {
            "fail" => {
                self.fail(usize::try_from(arguments.count("member")?).unwrap_or(usize::MAX))?
            }
            "rebuild" => self.rebuild()?,
            "replace" => return Ok(vec![("spares", Value::Count(self.replace() as u64))]),
            _ => self.set_rate(arguments.count("bytes_per_second")?),
        }
        Ok(Vec::new())
    }

    fn status(&self) -> Fields {
        let status = ArrayControl::status(self);
        let mut fields = vec![
            ("level", Value::Text(status.level.to_string())),
            ("state", Value::Text(status.state.to_string())),
            (
                "members",
                Value::texts(status.slots.into_iter().map(|(_, state)| state.to_string())),
            ),
            ("spares", Value::Count(status.spares.len() as u64)),
            ("rebuild_bytes_per_second", Value::Count(self.rate())),
            ("rebuilds", Value::Count(status.rebuilds)),
            ("degraded_requests", Value::Count(status.degraded_requests)),
            ("read_errors", Value::Count(status.read_errors)),
        ];
        if let Some((rebuilt, all)) = status.rebuilt_bytes {
            fields.extend([
                ("rebuilt_bytes", Value::Count(rebuilt)),
                ("rebuild_bytes", Value::Count(all)),
            ]);
        }
        if let Some((bytes, took)) = status.last_rebuild {
            fields.push(("last_rebuild_bytes", Value::Count(bytes)));
            fields.push(("last_rebuild_seconds", Value::Number(took.as_secs_f64())));
        }
        fields.extend(
            status
                .trouble
                .map(|trouble| ("trouble", Value::Text(trouble))),
        );
        fields
    }

    fn figures(&self) -> PartFigures {
        let status = ArrayControl::status(self);
        let missing = status
            .slots
            .iter()
            .filter(|(_, state)| *state != MemberState::Good)
            .count();
        let mut figures = vec![
            ("missing_members", PartFigure::Gauge(missing as f64)),
            (
                "degraded_requests_per_s",
                PartFigure::Counter(status.degraded_requests),
            ),
            ("read_errors_per_s", PartFigure::Counter(status.read_errors)),
        ];
        if let Some((rebuilt, all)) = status.rebuilt_bytes {
            figures.push((
                "rebuilt_share",
                PartFigure::Gauge(rebuilt as f64 / all.max(1) as f64),
            ));
        }
        figures
    }
}
