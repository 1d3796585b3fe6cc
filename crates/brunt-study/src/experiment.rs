//! The experiment file: targets, workloads, sweep, repetitions. Read by `brunt run`, described for
//! editors by `brunt schema`.
//!
//! The rule: a mistake is answered with the file, the line, and what would be right; a key that
//! does not exist is a mistake. Nothing is opened here: what can be said without the devices is
//! said before any of them is touched.

use std::collections::BTreeMap;
use std::time::Duration;

use brunt_core::Size;
use brunt_load::Workload;
use brunt_load::workload::{Arrival, BlockSize};
use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};

use crate::statistics::interleaved;

/// Most runs of an experiment: a sweep of too many axes is a slip of the pen.
pub const RUNS_MAX: usize = 100_000;
/// Most repetitions of a point.
pub const REPETITIONS_MAX: u32 = 1000;
/// Largest experiment file in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// An experiment as written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// What it is called in reports.
    pub name: String,
    /// What it is about, in a sentence or two.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The order of runs and every request follow from it.
    #[serde(default = "one")]
    pub seed: u64,
    /// How often each point is run. Under four a side, comparisons refuse a verdict.
    #[serde(default = "five")]
    pub repetitions: u32,
    /// URLs of devices that may be written although they hold a file system or partition table.
    #[serde(default)]
    pub allow_overwrite: Vec<String>,
    /// What is measured, by a name of your own.
    pub targets: BTreeMap<String, Target>,
    /// What is done to it, by a name of your own. Each workload is run against each target.
    pub workloads: BTreeMap<String, Workload>,
    /// What is varied over all workloads: every combination is a point.
    #[serde(default)]
    pub sweep: Sweep,
}

/// Something to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// A path (file or block device), `null:SIZE`, `memory:SIZE`, `iscsi://host/name/lun`.
    pub url: String,
}

/// The axes. An empty one leaves the workload's own value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sweep {
    /// One block size in place of the workload's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub block_size: Vec<Size>,
    /// Requests outstanding for each worker.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queue_depth: Vec<u32>,
    /// Threads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<u32>,
    /// Share of reads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<f64>,
    /// Share of sequential requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sequential: Vec<f64>,
    /// Requests a second; the workloads have to be open loops.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rate: Vec<f64>,
}

/// One combination: a workload as swept, against a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Names of target and workload, and the value on each axis: `disk oltp queue_depth=8`.
    pub label: String,
    /// The target's name.
    pub target: String,
    /// Its URL.
    pub url: String,
    /// The workload's name.
    pub workload_name: String,
    /// Axis and value.
    pub axes: Vec<(&'static str, String)>,
    /// The workload, swept.
    pub workload: Workload,
}

/// What an experiment comes to.
#[derive(Clone, Debug)]
pub struct Plan {
    /// All combinations.
    pub points: Vec<Point>,
    /// Indexes of points with their repetition, in the order in which they are run.
    pub runs: Vec<(usize, usize)>,
    /// How long it takes at least; runs that stop by requests or bytes in a closed loop count as
    /// nothing.
    pub time_min: Duration,
    /// Whether some runs end only when their requests or bytes are done.
    pub open_ended: bool,
    /// Names and URLs of targets that are written, and whether `allow_overwrite` names them.
    pub written: Vec<(String, String, bool)>,
}

/// A mistake in an experiment file, ready to be shown with its line.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct FileError {
    what: String,
    help: Option<String>,
    source_code: NamedSource<String>,
    span: Option<std::ops::Range<usize>>,
}

impl Diagnostic for FileError {
    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn std::fmt::Display>)
    }
    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.source_code)
    }
    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = self.span.clone()?;
        Some(Box::new(std::iter::once(LabeledSpan::new(Some("here".into()), span.start, span.len()))))
    }
}

impl FileError {
    /// The line, from 1.
    pub fn line(&self) -> usize {
        let start = self.span.as_ref().map_or(0, |span| span.start);
        let text = self.source_code.inner();
        text.as_bytes()[..start.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
    }

    /// `file:line: what`, for terminals and logs without graphics.
    pub fn one_line(&self) -> String {
        format!("{}:{}: {}", self.source_code.name(), self.line(), self.what)
    }

    /// What would be right.
    pub fn help_text(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

/// A file's text beside its name, for messages.
struct Source<'a> {
    name: &'a str,
    text: &'a str,
}

impl Source<'_> {
    /// A mistake at the value that `path` leads to, or as near to it as the file goes.
    fn mistake(&self, path: &[&str], what: String, help: Option<String>) -> Box<FileError> {
        let span = self.find(path);
        self.mistake_at(span, what, help)
    }

    fn mistake_at(
        &self,
        span: Option<std::ops::Range<usize>>,
        what: String,
        help: Option<String>,
    ) -> Box<FileError> {
        let source_code = NamedSource::new(self.name, self.text.to_string()).with_language("toml");
        Box::new(FileError { what, help, source_code, span })
    }

    fn find(&self, path: &[&str]) -> Option<std::ops::Range<usize>> {
        let root = DeTable::parse(self.text).ok()?;
        let (mut table, mut span) = (root.get_ref(), None);
        for step in path {
            let Some((key, value)) = table.iter().find(|(key, _)| key.get_ref() == step) else { break };
            span = Some(key.span());
            match value.get_ref() {
                DeValue::Table(inner) => table = inner,
                _ => {
                    span = Some(value.span());
                    break;
                }
            }
        }
        span
    }
}

impl Experiment {
    /// Reads a file's text and checks everything that can be checked without its devices.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn parse(name: &str, text: &str) -> Result<Experiment, Box<FileError>> {
        let source = Source { name, text };
        if text.len() > FILE_BYTES_MAX {
            return Err(Source { name, text: "" }.mistake(
                &[],
                format!("{} bytes are more than an experiment file has ({FILE_BYTES_MAX})", text.len()),
                None,
            ));
        }
        let experiment: Experiment = toml::from_str(text).map_err(|error| {
            let message = error.message().to_string();
            let help = help_for(&message);
            source.mistake_at(error.span(), message, help)
        })?;
        experiment.check(&source)?;
        Ok(experiment)
    }

    fn check(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        let nothing = |key: &str, example: &str| {
            let help = format!("add one, such as\n{example}");
            Err(source.mistake(&[key], format!("there are no {key}"), Some(help)))
        };
        if self.targets.is_empty() {
            return nothing("targets", "[targets.disk]\nurl = \"memory:1GiB\"");
        }
        if self.workloads.is_empty() {
            return nothing("workloads", "[workloads.random-read]\nstop = { time = \"10s\" }");
        }
        if !(1..=REPETITIONS_MAX).contains(&self.repetitions) {
            let what = format!("{} repetitions; write 1 to {REPETITIONS_MAX}", self.repetitions);
            return Err(source.mistake(&["repetitions"], what, None));
        }
        for url in &self.allow_overwrite {
            if !self.targets.values().any(|target| target.url == *url) {
                let urls: Vec<&str> = self.targets.values().map(|target| target.url.as_str()).collect();
                let what = format!("allow_overwrite names {url}, which is no target of this experiment");
                let help = format!("the targets' URLs are {}", urls.join(", "));
                return Err(source.mistake(&["allow_overwrite"], what, Some(help)));
            }
        }
        for (name, workload) in &self.workloads {
            if let Err(error) = workload.check() {
                let mut path = vec!["workloads", name.as_str()];
                path.extend(error.key.split('.'));
                return Err(source.mistake(&path, format!("{}: {}", error.key, error.what), None));
            }
        }
        self.check_sweep(source)
    }

    fn check_sweep(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        let axes = &self.sweep;
        let lengths = [
            axes.block_size.len(),
            axes.queue_depth.len(),
            axes.workers.len(),
            axes.read.len(),
            axes.sequential.len(),
            axes.rate.len(),
        ];
        let points = lengths.iter().map(|length| (*length).max(1)).fold(1usize, usize::saturating_mul);
        let all = points
            .saturating_mul(self.targets.len() * self.workloads.len())
            .saturating_mul(self.repetitions as usize);
        if all > RUNS_MAX {
            let what = format!("these axes make {all} runs, more than {RUNS_MAX}");
            return Err(source.mistake(&["sweep"], what, Some("leave values out".into())));
        }
        let closed =
            self.workloads.iter().find(|(_, workload)| !matches!(workload.arrival, Arrival::Open { .. }));
        if !axes.rate.is_empty()
            && let Some((name, _)) = closed
        {
            let what = format!("rate is swept, but workload {name} is not an open loop");
            let help = format!("write arrival = {{ kind = \"open\", rate = 1000 }} under [workloads.{name}]");
            return Err(source.mistake(&["sweep", "rate"], what, Some(help)));
        }
        for point in self.points() {
            if let Err(error) = point.workload.check() {
                let axis = point.axes.iter().map(|(axis, _)| *axis).find(|axis| touches(axis, error.key));
                let path = ["sweep", axis.unwrap_or(error.key)];
                return Err(source.mistake(&path, format!("{}: {}", point.label, error), None));
            }
        }
        Ok(())
    }

    /// Every combination of target, workload and axes, in the order of the file's names.
    pub fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for (target, Target { url }) in &self.targets {
            for (workload_name, workload) in &self.workloads {
                points.push(Point {
                    label: String::new(),
                    target: target.clone(),
                    url: url.clone(),
                    workload_name: workload_name.clone(),
                    axes: Vec::new(),
                    workload: workload.clone(),
                });
            }
        }
        let axes = &self.sweep;
        vary(&mut points, "block_size", &axes.block_size, |workload, size| {
            workload.blocks = vec![BlockSize { size: *size, weight: 1.0 }];
        });
        vary(&mut points, "queue_depth", &axes.queue_depth, |workload, depth| workload.queue_depth = *depth);
        vary(&mut points, "workers", &axes.workers, |workload, workers| workload.workers = *workers);
        vary(&mut points, "read", &axes.read, |workload, read| workload.read = *read);
        vary(&mut points, "sequential", &axes.sequential, |workload, share| workload.sequential = *share);
        vary(&mut points, "rate", &axes.rate, |workload, new| {
            if let Arrival::Open { rate, .. } = &mut workload.arrival {
                *rate = *new;
            }
        });
        for point in &mut points {
            point.label = format!("{} {}", point.target, point.workload_name);
            for (axis, value) in &point.axes {
                point.label += &format!(" {axis}={value}");
            }
        }
        points
    }

    /// What the experiment comes to.
    pub fn plan(&self) -> Plan {
        let points = self.points();
        let runs = interleaved(points.len(), self.repetitions as usize, self.seed);
        let (mut time_min, mut open_ended) = (Duration::ZERO, false);
        for point in &points {
            let (time, bounded) = time_of(&point.workload);
            time_min += time * self.repetitions;
            open_ended |= !bounded;
        }
        let writes =
            |name: &String| points.iter().any(|point| point.target == *name && point.workload.read < 1.0);
        let written = self.targets.iter().filter(|(name, _)| writes(name)).map(|(name, target)| {
            (name.clone(), target.url.clone(), self.allow_overwrite.contains(&target.url))
        });
        Plan { written: written.collect(), points, runs, time_min, open_ended }
    }

    /// The file's JSON Schema, for editors.
    pub fn schema() -> schemars::Schema {
        schemars::schema_for!(Experiment)
    }
}

/// Whether a mistake about a workload's key comes from a sweep's axis.
fn touches(axis: &str, key: &str) -> bool {
    match axis {
        "block_size" => key == "blocks",
        "rate" => key.starts_with("arrival"),
        axis => key == axis,
    }
}

/// Replaces each point by one for each value of an axis.
fn vary<T: std::fmt::Display>(
    points: &mut Vec<Point>,
    axis: &'static str,
    values: &[T],
    set: impl Fn(&mut Workload, &T),
) {
    if values.is_empty() {
        return;
    }
    let with = |point: &Point, value: &T| {
        let mut point = point.clone();
        set(&mut point.workload, value);
        point.axes.push((axis, value.to_string()));
        point
    };
    *points = points.iter().flat_map(|point| values.iter().map(move |value| with(point, value))).collect();
}

/// How long a run takes as far as the workload says, and whether it says it all.
fn time_of(workload: &Workload) -> (Duration, bool) {
    let ramp = workload.ramp_up.map_or(Duration::ZERO, |ramp| ramp.time.0);
    let stop = &workload.stop;
    let mut ends: Vec<Duration> = stop.time.iter().map(|time| time.0).collect();
    ends.extend(stop.steady.map(|steady| steady.round.0 * steady.rounds_max));
    if let (Arrival::Open { rate, .. }, Some(requests)) = (workload.arrival, stop.requests) {
        ends.extend(Duration::try_from_secs_f64(requests as f64 / rate).ok());
    }
    match ends.into_iter().min() {
        Some(end) if stop.steady.is_some() => {
            (ramp + end.min(stop.steady.map_or(end, |s| s.round.0 * 5)), true)
        }
        Some(end) => (ramp + end, true),
        None => (ramp, false),
    }
}

/// What a parser's message leaves to be said.
fn help_for(message: &str) -> Option<String> {
    if let Some((_, known)) =
        message.strip_prefix("unknown field `").and_then(|rest| rest.split_once("`, expected "))
    {
        let field = message.split('`').nth(1)?;
        let nearest = known.split('`').skip(1).step_by(2).min_by_key(|name| distance(field, name))?;
        return (distance(field, nearest) <= 3).then(|| format!("did you mean {nearest}?"));
    }
    if let Some(field) = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()) {
        return Some(format!("add {field} = …"));
    }
    None
}

/// Levenshtein's, for names of a few letters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let cost = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn one() -> u64 {
    1
}
fn five() -> u32 {
    5
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
name = "block sizes"
repetitions = 4
allow_overwrite = ["/dev/sdx"]

[targets.disk]
url = "/dev/sdx"
[targets.diskless]
url = "null:1GiB"

[workloads.mixed]
read = 0.7
ramp_up = { time = "1s" }
stop = { time = "10s" }

[sweep]
block_size = ["4k", "64k"]
queue_depth = [1, 8, 32]
"#;

    /// The goal: a sweep is every combination, each repeated, in interleaved order.
    #[test]
    fn sweeps_expand() {
        let experiment = Experiment::parse("good.toml", GOOD).unwrap();
        let plan = experiment.plan();
        assert_eq!((plan.points.len(), plan.runs.len()), (12, 48));
        assert_eq!(plan.points[0].label, "disk mixed block_size=4KiB queue_depth=1");
        assert_eq!(plan.points[11].workload.queue_depth, 32);
        assert_eq!(plan.points[11].workload.blocks[0].size, Size(65536));
        assert_eq!((plan.time_min, plan.open_ended), (Duration::from_secs(48 * 11), false));
        let disk = ("disk".to_string(), "/dev/sdx".to_string(), true);
        let diskless = ("diskless".to_string(), "null:1GiB".to_string(), false);
        assert_eq!(plan.written, [disk, diskless]);
        assert_eq!(plan.runs, experiment.plan().runs);
    }

    /// The goal: every mistake names its line, and says what would be right.
    #[test]
    fn mistakes_have_their_line() {
        let check = |from: &str, to: &str, line: usize, said: &str| {
            assert!(GOOD.contains(from), "{from}");
            let error = Experiment::parse("bad.toml", &GOOD.replacen(from, to, 1)).unwrap_err();
            let all = format!("{} {}", error.one_line(), error.help_text().unwrap_or_default());
            assert!(all.starts_with(&format!("bad.toml:{line}: ")) && all.contains(said), "{to}: {all}");
            let shown = format!("{:?}", miette::Report::new(*error));
            assert!(shown.contains("bad.toml"), "{shown}");
        };
        check("read = 0.7", "raed = 0.7", 12, "did you mean read?");
        check("read = 0.7", "read = 7", 12, "from 0 to 1");
        check("read = 0.7", "read = \"much\"", 12, "expected");
        check("time = \"10s\"", "time = \"10\"", 14, "known are ns, us, ms");
        check("time = \"10s\"", "tiem = \"10s\"", 14, "did you mean time?");
        check("block_size = [\"4k\", \"64k\"]", "block_size = [\"4k\", \"100\"]", 17, "multiple of 512");
        check("queue_depth = [1, 8, 32]", "queue_depth = [1, 0]", 18, "1 to 4096");
        check("queue_depth = [1, 8, 32]", "rate = [100]", 18, "not an open loop");
        check("[\"/dev/sdx\"]", "[\"/dev/sdy\"]", 4, "/dev/sdx, null:1GiB");
        check("repetitions = 4", "repetitions = 0", 3, "1 to 1000");
        check("url = \"null:1GiB\"", "uri = \"null:1GiB\"", 9, "did you mean url?");
        check("name = \"block sizes\"", "", 1, "missing field `name`");
        check("read = 0.7", "read = ", 12, "");
    }

    /// The goal: the examples we ship are right.
    #[test]
    fn examples_parse() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let text = std::fs::read_to_string(&path).unwrap();
                let parsed = Experiment::parse(&path.display().to_string(), &text);
                assert!(parsed.is_ok(), "{}", parsed.unwrap_err().one_line());
                count += 1;
            }
        }
        assert!(count >= 2);
    }

    /// The goal: a sweep that would run for a year is refused.
    #[test]
    fn endless_sweeps_are_refused() {
        let axis = |name: &str| format!("{name} = [{}]\n", vec!["0.5"; 200].join(", "));
        let text = format!("{GOOD}{}{}", axis("read"), axis("sequential"));
        assert!(Experiment::parse("x.toml", &text).unwrap_err().to_string().contains("runs, more than"));
    }

    /// The goal: the schema knows every key, and that there are no others.
    #[test]
    fn schema_is_strict() {
        let schema = serde_json::to_string(&Experiment::schema()).unwrap();
        for key in ["allow_overwrite", "queue_depth", "hot-zones", "skip_after", "dedupable", "rounds_max"] {
            assert!(schema.contains(key), "{key}");
        }
        assert!(schema.contains("\"additionalProperties\":false"));
    }
}
