//! The user's settings for the replay of a trace: the keys that accompany `trace` in `[workloads.w]`. Read by
//! [`crate::Workload`], used by [`super::ReplayLoad`].
//!
//! The rule: settings that are invalid for any trace are rejected by [`ReplaySettings::check`]; nothing is opened
//! here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use brunt_core::Span;
use brunt_trace::{FORMATS, Format, ReadingError, ReadingKey, TraceReading, format_named};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::load::{WorkloadError, wrong};

/// Default queue depth of a replay.
pub const QUEUE_DEPTH: u32 = 64;
/// Maximum number of rounds of a trace in one run.
const REPEAT_MAX: u32 = 1_000_000;
/// Default time before a due request at which a worker stops sleeping.
pub const SPIN: Duration = Duration::from_micros(200);
/// Maximum of `spin`: a spinning worker occupies its core, so it should sleep for longer waits.
const SPIN_MAX: Duration = Duration::from_millis(100);

/// When requests are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReplayTiming {
    /// At the trace's times, divided by `speed`, regardless of the target.
    #[default]
    Trace,
    /// As fast as possible, with `queue_depth` requests outstanding.
    Depth,
    /// After the requests on which it depended in the trace. With response times in the trace: when all requests that
    /// had completed before it in the trace have completed again and its think time (the time since the last of those
    /// completions) has passed. Without response times: at the trace's distance from the previous request, but not
    /// before the requests that it overlaps or continues have completed.
    Dependency,
}

impl ReplayTiming {
    /// Returns the timing's name in files.
    pub fn name(self) -> &'static str {
        match self {
            ReplayTiming::Trace => "trace",
            ReplayTiming::Depth => "depth",
            ReplayTiming::Dependency => "dependency",
        }
    }
}

/// Where requests go on the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AddressMap {
    /// To the trace's own addresses. A trace that does not fit is rejected before the start.
    #[default]
    AsIs,
    /// To the trace's address modulo the target's size.
    Wrap,
    /// To the trace's address in proportion to the target's size.
    Scale,
    /// Packed together: only the 64 KiB parts that the trace touches, one after the other in the order of their
    /// addresses.
    Pack,
}

impl AddressMap {
    /// Returns the mapping's name in files.
    pub fn name(self) -> &'static str {
        match self {
            AddressMap::AsIs => "as-is",
            AddressMap::Wrap => "wrap",
            AddressMap::Scale => "scale",
            AddressMap::Pack => "pack",
        }
    }

    /// Describes the mapping's effect on locality, for people.
    pub fn effect(self) -> &'static str {
        match self {
            AddressMap::AsIs => "addresses are the trace's",
            AddressMap::Wrap => {
                "addresses are wrapped: distant blocks share an address, so reuse comes earlier \
                and seeks are shorter"
            }
            AddressMap::Scale => {
                "addresses are scaled: neighbours overlap, so reuse comes earlier; seeks keep their proportions"
            }
            AddressMap::Pack => {
                "addresses are packed: each block keeps its own place, so reuse stays the same; seeks are shorter"
            }
        }
    }
}

/// How to handle a request on the same blocks as one in flight, if one of the two changes data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Conflicts {
    /// The later request is sent anyway, and counted.
    #[default]
    LetThrough,
    /// The later request waits for the other one, and all requests after it wait too.
    HoldBack,
    /// The later request is left out.
    Drop,
}

impl Conflicts {
    /// Returns the setting's name in files.
    pub fn name(self) -> &'static str {
        match self {
            Conflicts::LetThrough => "let-through",
            Conflicts::HoldBack => "hold-back",
            Conflicts::Drop => "drop",
        }
    }
}

/// The data of writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReplayContents {
    /// Where the trace has hashes of contents: equal data for equal hashes, different data
    /// otherwise. Other writes, and those of a workload that verifies, follow `data`.
    #[default]
    Trace,
    /// As configured in `data`.
    Data,
}

/// All settings, with defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplaySettings {
    /// Path of the trace.
    pub trace: PathBuf,
    /// The name of the trace's format, if specified.
    pub format: Option<String>,
    /// Other options for reading the trace.
    pub reading: TraceReading,
    /// Speed relative to the trace.
    pub speed: f64,
    /// When requests are due.
    pub timing: ReplayTiming,
    /// Where requests go on the target.
    pub map: AddressMap,
    /// Start of the replayed part, relative to the trace's first request.
    pub from: Duration,
    /// Duration of the replayed part, in the trace's time.
    pub length: Option<Duration>,
    /// Number of rounds.
    pub repeat: u32,
    /// Devices of the trace, with their targets; if empty, all devices go to every target.
    pub devices: BTreeMap<String, String>,
    /// How conflicting requests are handled.
    pub conflicts: Conflicts,
    /// The data of writes.
    pub contents: ReplayContents,
    /// How long before a due request a worker stops sleeping and spins.
    pub spin: Duration,
}

impl ReplaySettings {
    /// Creates settings with all defaults.
    pub fn of(trace: PathBuf) -> ReplaySettings {
        ReplaySettings {
            trace,
            format: None,
            reading: TraceReading::default(),
            speed: 1.0,
            timing: ReplayTiming::default(),
            map: AddressMap::default(),
            from: Duration::ZERO,
            length: None,
            repeat: 1,
            devices: BTreeMap::new(),
            conflicts: Conflicts::default(),
            contents: ReplayContents::default(),
            spin: SPIN,
        }
    }

    /// Checks the settings without regard to the trace's contents.
    ///
    /// # Errors
    /// The error names the first invalid key.
    pub fn check(&self) -> Result<(), WorkloadError> {
        if self.trace.as_os_str().is_empty() || self.trace.as_os_str() == "-" {
            wrong(
                "trace",
                "a trace is read several times; write the path of a file",
            )?;
        }
        if let Some(name) = &self.format
            && format_named(name).is_none()
        {
            let known: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
            wrong(
                "format",
                format!(
                    "unknown trace format {name}; the formats are {}",
                    known.join(", ")
                ),
            )?;
        }
        self.reading
            .options(self.stated_format())
            .map_err(wrong_reading)?;
        if !(self.speed > 0.0 && self.speed <= 1e6) {
            wrong(
                "speed",
                format!("{} is out of range (above 0, at most 1000000)", self.speed),
            )?;
        }
        if self.timing == ReplayTiming::Depth && self.speed != 1.0 {
            wrong(
                "speed",
                "with timing = \"depth\" requests do not follow the trace's times; omit speed",
            )?;
        }
        if self.length.is_some_and(|length| length.is_zero()) {
            wrong("for", "nothing would be replayed; write more than 0")?;
        }
        if !(1..=REPEAT_MAX).contains(&self.repeat) {
            wrong(
                "loop",
                format!("{} is outside 1 to {REPEAT_MAX}", self.repeat),
            )?;
        }
        if self.spin > SPIN_MAX {
            wrong(
                "spin",
                format!("{} is over {}", Span(self.spin), Span(SPIN_MAX)),
            )?;
        }
        Ok(())
    }

    /// Returns the format of the trace, if specified.
    pub(super) fn stated_format(&self) -> Option<&'static Format> {
        self.format.as_deref().and_then(format_named)
    }
}

/// Converts a mistake in the reading options to an error that names the workload's key.
pub(super) fn wrong_reading(error: ReadingError) -> WorkloadError {
    WorkloadError {
        key: reading_key(error.key),
        what: error.what,
    }
}

/// Returns the workload's key for a reading option.
pub(super) fn reading_key(key: ReadingKey) -> &'static str {
    match key {
        ReadingKey::Op => "reading.op",
        ReadingKey::Block => "reading.block",
        ReadingKey::Columns => "reading.columns",
        ReadingKey::Jiffies => "reading.jiffies",
        ReadingKey::Event => "reading.event",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_refused_by_key() {
        let check = |change: &dyn Fn(&mut ReplaySettings), key: &str| {
            let mut settings = ReplaySettings::of("x.vscsi".into());
            assert_eq!(settings.check(), Ok(()));
            change(&mut settings);
            assert_eq!(settings.check().unwrap_err().key, key);
        };
        check(&|settings| settings.trace = PathBuf::new(), "trace");
        check(&|settings| settings.format = Some("tape".into()), "format");
        check(
            &|settings| settings.reading.jiffies = Some(0),
            "reading.jiffies",
        );
        let without_effect = |settings: &mut ReplaySettings| {
            (settings.format, settings.reading.block) =
                (Some("msr".into()), Some(brunt_core::Size(4096)));
        };
        check(&without_effect, "reading.block");
        check(&|settings| settings.speed = 0.0, "speed");
        check(&|settings| settings.speed = f64::NAN, "speed");
        check(
            &|settings| (settings.timing, settings.speed) = (ReplayTiming::Depth, 2.0),
            "speed",
        );
        check(&|settings| settings.length = Some(Duration::ZERO), "for");
        check(&|settings| settings.repeat = 0, "loop");
        check(&|settings| settings.spin = Duration::from_secs(1), "spin");
    }
}
