//! `brunt measure`: measures a device without an experiment file, with fio's option names. Writes the experiment that
//! the options describe and passes it to `run`, so figures, safety checks and results are the same.
//!
//! The rule: nothing is written to a device unless the user passes `--write`.

use std::path::Path;
use std::time::Duration;

use brunt_core::{Size, Span};
use brunt_result::percentile::Percentile;
use brunt_result::require::Requirement;
use brunt_study::experiment::{DefaultsVersion, Experiment};
use clap::ValueEnum;
use clap::builder::ArgPredicate;

use super::Subcommand;
use super::run::{HowToRun, ToRun};
use crate::cli::{Done, Failure, Output};
use crate::devices::url_parser;

/// Measure a device, a file or a LUN, without an experiment file
///
/// The engine, table, report and results are those of 'brunt run'; '--print' shows the experiment instead of running
/// it, to be saved and extended. Several values of --bs, --depth, --workers or --rate, separated by commas, are
/// measured one after another, each combination --reps times.
#[derive(clap::Args)]
pub struct Measure {
    /// What to measure: paths or device URLs ('brunt help devices')
    #[arg(required = true, value_name = "TARGET", value_parser = url_parser())]
    targets: Vec<String>,
    /// Access pattern, named as in fio
    #[arg(long, value_enum, default_value = "randread", value_name = "PATTERN")]
    rw: Pattern,
    /// Percentage of reads with 'rw' and 'randrw'
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    read: Option<u32>,
    /// Block sizes
    #[arg(long, value_delimiter = ',', default_value = "4k", value_name = "SIZE")]
    bs: Vec<Size>,
    /// Queue depths: requests outstanding per worker [default: 1, with --search 64]
    #[arg(
        long,
        visible_alias = "iodepth",
        value_delimiter = ',',
        default_value = "1",
        default_value_if("search", ArgPredicate::IsPresent, SEARCH_DEPTH),
        hide_default_value = true,
        value_name = "N"
    )]
    depth: Vec<u32>,
    /// Worker threads, each with its own queue
    #[arg(
        long,
        visible_alias = "numjobs",
        value_delimiter = ',',
        default_value = "1",
        value_name = "N"
    )]
    workers: Vec<u32>,
    /// Length of each run [default: 10s]; with --search, of each trial [default: 2s]
    #[arg(
        long,
        visible_alias = "runtime",
        default_value = "10s",
        default_value_if("search", ArgPredicate::IsPresent, SEARCH_TIME),
        hide_default_value = true,
        value_name = "DURATION"
    )]
    time: Span,
    /// Time before each run's measurement; requests during it are not recorded
    #[arg(long, visible_alias = "ramp-time", value_name = "DURATION")]
    ramp: Option<Span>,
    /// Number of runs of each point; 'brunt compare' needs four on each side for a verdict
    #[arg(long, default_value_t = 4, value_name = "N")]
    reps: u32,
    /// Percentiles of response times to show and compare [default: 50,99,99.9]
    #[arg(long, value_delimiter = ',', value_name = "PERCENT")]
    percentiles: Vec<Percentile>,
    /// Open loop: requests are due at this rate per second, and response times are measured from when they are due.
    /// With --search: the first rate to try
    #[arg(long, value_delimiter = ',', value_name = "PER_SECOND")]
    rate: Vec<f64>,
    /// Search for the highest rate at which a percentile is below a limit, such as 'p99 below 2ms', using trials of
    /// --time each
    #[arg(long, value_name = "LIMIT", value_parser = SearchLimit::parse)]
    search: Option<SearchLimit>,
    /// With --search: stop when the rate is known to within this fraction [default: 0.02]
    #[arg(long, value_name = "SHARE", requires = "search")]
    tolerance: Option<f64>,
    /// Random offsets are multiples of this [default: the block size]
    #[arg(long, visible_alias = "blockalign", value_name = "SIZE")]
    align: Option<Size>,
    /// Zipf-distributed offsets with this exponent, such as 1.1
    #[arg(long, value_name = "THETA", conflicts_with = "pareto")]
    zipf: Option<f64>,
    /// Self-similar offsets: 0.2 sends 80 % of the requests to 20 % of the blocks
    #[arg(long, value_name = "SKEW")]
    pareto: Option<f64>,
    /// Start of the part of the device to use
    #[arg(long, value_name = "SIZE")]
    offset: Option<Size>,
    /// Length of the part of the device to use [default: to the end of the device]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Flush the device's cache after this many writes by a worker
    #[arg(long, value_name = "N", requires = "write")]
    fsync: Option<u64>,
    /// Complete each write only when it has reached stable storage
    #[arg(long, requires = "write")]
    dsync: bool,
    /// Allow writes, which destroy the data on the targets. Targets with a file system or a partition table are still
    /// rejected
    #[arg(long)]
    write: bool,
    /// With --write: also write to targets with a file system or a partition table
    #[arg(long, requires = "write")]
    overwrite: bool,
    /// Verify data that is read back after writes
    #[arg(long, requires = "write")]
    verify: bool,
    /// Seed from which all requests are derived
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print the experiment file instead of running it
    #[arg(long, conflicts_with_all = ["out", "check", "detach", "metrics", "serve", "dashboard"])]
    print: bool,
    #[command(flatten)]
    how: HowToRun,
}

/// Queue depth during a search; with 1, the response time alone would limit the rate.
const SEARCH_DEPTH: &str = "64";
/// Length of a search's trials; each run consists of about a dozen trials.
const SEARCH_TIME: &str = "2s";

/// The limit below which the highest rate is searched for, in the syntax of `--require`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SearchLimit {
    percentile: Percentile,
    limit: Span,
}

/// Why a search limit is invalid.
#[derive(Debug, thiserror::Error)]
#[error("write a percentile and its limit, for example 'p99 below 2ms'")]
struct SearchLimitError;

impl SearchLimit {
    fn parse(text: &str) -> Result<SearchLimit, SearchLimitError> {
        let required: Requirement = text.parse().map_err(|_| SearchLimitError)?;
        let (percentile, limit_us) = required.percentile_limit_us().ok_or(SearchLimitError)?;
        let limit = Duration::try_from_secs_f64(limit_us / 1e6).map_err(|_| SearchLimitError)?;
        Ok(SearchLimit {
            percentile,
            limit: Span(limit),
        })
    }
}

/// The access pattern, called `rw` in fio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pattern {
    Read,
    Write,
    Randread,
    Randwrite,
    #[value(alias = "readwrite")]
    Rw,
    Randrw,
    Trim,
    Randtrim,
}

impl Pattern {
    fn name(self) -> String {
        let value = self.to_possible_value().expect("all patterns are visible");
        value.get_name().to_string()
    }

    fn is_sequential(self) -> bool {
        matches!(
            self,
            Pattern::Read | Pattern::Write | Pattern::Rw | Pattern::Trim
        )
    }

    fn is_mixed(self) -> bool {
        matches!(self, Pattern::Rw | Pattern::Randrw)
    }

    fn is_trim(self) -> bool {
        matches!(self, Pattern::Trim | Pattern::Randtrim)
    }

    /// Whether the pattern only reads.
    fn is_harmless(self) -> bool {
        matches!(self, Pattern::Read | Pattern::Randread)
    }
}

/// Fraction of reads in mixed patterns, as in fio.
const MIXED_READ_PERCENT: u32 = 50;

impl Subcommand for Measure {
    const NAME: &'static str = "measure";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt measure /dev/nvme0n1 --rw randread --bs 4k --depth 1,4,16,64 --time 30s",
            "random reads at increasing queue depths; nothing is written",
        ),
        (
            "brunt measure 'test.img?size=1GiB&create=yes' --rw randrw --read 70 --write",
            "70 % reads, 30 % writes, in a file that is created",
        ),
        (
            "brunt measure iscsi://127.0.0.1/iqn.2026-11.io.brunt:t0/0 --rate 5000,10000,20000",
            "response times of an iSCSI LUN at three rates",
        ),
        (
            "brunt measure /dev/nvme0n1 --search 'p99 below 2ms'",
            "find the highest rate of random reads with a p99 below 2 ms",
        ),
        (
            "brunt measure /dev/nvme0n1 --depth 1,32 --print > disk.toml",
            "save the experiment, to extend it: 'brunt run disk.toml'",
        ),
    ];

    fn more_help() -> Option<String> {
        Some(super::devices::POINTER.to_string())
    }

    fn run(self, output: &Output) -> Done {
        self.check()?;
        let text = self.text();
        if self.print {
            output.bytes(text.as_bytes());
            output.object(&serde_json::json!({ "text": text }));
            return Ok(());
        }
        let name = format!("{}.toml", self.stem());
        let experiment = Experiment::parse(&name, &text)?;
        let to_run = ToRun {
            experiment,
            text,
            name: Path::new(&name),
            for_server: false,
            notes: Vec::new(),
            turns: None,
        };
        self.how.carry_out(to_run, output)
    }
}

impl Measure {
    fn check(&self) -> Done {
        let pattern = self.rw.name();
        if !self.rw.is_harmless() && !self.write {
            let targets = self.targets.join(", ");
            return Err(
                Failure::usage(format!("--rw {pattern} destroys data on {targets}"))
                    .advise("add --write if that is intended"),
            );
        }
        if self.read.is_some() && !self.rw.is_mixed() {
            return Err(
                Failure::usage(format!("--read does not apply to --rw {pattern}"))
                    .advise("use --rw randrw or --rw rw"),
            );
        }
        if self.search.is_some() && self.rate.len() > 1 {
            return Err(Failure::usage("--search starts at one rate, not several")
                .advise("name one --rate, or omit --search"));
        }
        if self.align.is_some() && self.rw.is_sequential() {
            return Err(Failure::usage(format!(
                "--align does not apply to --rw {pattern}: its requests follow one another"
            )));
        }
        Ok(())
    }

    /// Base name of the results folder and the experiment file, formed from the first target's name and the pattern.
    fn stem(&self) -> String {
        let target = &self.names()[0];
        format!("{target}-{}", self.rw.name())
    }

    /// A name for each target: the last part of its path, with a number if not unique.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for url in &self.targets {
            let path = url.split('?').next().unwrap_or_default();
            let last = path.trim_end_matches('/').rsplit('/').next();
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_' || c == '-';
            let name: String = last
                .unwrap_or_default()
                .chars()
                .map(|c| if plain(c) { c } else { '-' })
                .collect();
            let name = name.trim_matches(['-', '.']).to_string();
            let name = if name.is_empty() {
                "target".into()
            } else {
                name
            };
            let taken = names.contains(&name);
            names.push(match taken {
                true => format!("{name}-{}", names.len() + 1),
                false => name,
            });
        }
        names
    }

    /// The experiment as a file's text.
    fn text(&self) -> String {
        let (pattern, names) = (self.rw.name(), self.names());
        let name = quoted(&format!("{pattern} on {}", names.join(", ")));
        let mut lines = vec![
            format!("name = {name}"),
            DefaultsVersion::NOW_LINE.to_string(),
            format!("repetitions = {}", self.reps),
        ];
        lines.extend(self.seed.map(|seed| format!("seed = {seed}")));
        if !self.percentiles.is_empty() {
            let each: Vec<String> = self
                .percentiles
                .iter()
                .map(|one| one.percent().to_string())
                .collect();
            lines.push(format!("percentiles = [{}]", each.join(", ")));
        }
        if self.overwrite {
            let urls: Vec<String> = self.targets.iter().map(|url| quoted(url)).collect();
            lines.push(format!("allow_overwrite = [{}]", urls.join(", ")));
        }
        for (name, url) in names.iter().zip(&self.targets) {
            lines.push(format!(
                "\n[targets.{}]\nurl = {}",
                quoted(name),
                quoted(url)
            ));
        }
        lines.push(format!("\n[workloads.{pattern}]"));
        lines.extend(self.workload());
        let sizes: Vec<String> = self.bs.iter().map(|size| format!("\"{size}\"")).collect();
        let axes = [
            ("block_size", sizes),
            (
                "queue_depth",
                self.depth.iter().map(u32::to_string).collect(),
            ),
            ("workers", self.workers.iter().map(u32::to_string).collect()),
            (
                "rate",
                self.rate.iter().map(|rate| format!("{rate:?}")).collect(),
            ),
        ];
        let swept: Vec<_> = axes.iter().filter(|(_, values)| values.len() > 1).collect();
        if !swept.is_empty() {
            lines.push("\n[sweep]".into());
        }
        let axis =
            |(axis, values): &&(&str, Vec<String>)| format!("{axis} = [{}]", values.join(", "));
        lines.extend(swept.iter().map(axis));
        lines.join("\n") + "\n" + &self.how.required.text() + self.how.profile.text()
    }

    /// The keys of the workload.
    fn workload(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let [size] = self.bs[..] {
            lines.push(format!("blocks = [{{ size = \"{size}\" }}]"));
        }
        let read = match self.rw {
            pattern if pattern.is_mixed() => self.read.unwrap_or(MIXED_READ_PERCENT),
            pattern if pattern.is_harmless() => 100,
            _ => 0,
        };
        lines.push(format!("read = {:?}", f64::from(read) / 100.0));
        if self.rw.is_trim() {
            lines.push("trim = 1.0".into());
        }
        if self.rw.is_sequential() {
            lines.push("sequential = 1.0".into());
        }
        lines.extend(self.align.map(|align| format!("align = \"{align}\"")));
        let zipf = |theta| format!("distribution = {{ kind = \"zipf\", theta = {theta:?} }}");
        lines.extend(self.zipf.map(zipf));
        let pareto = |skew| format!("distribution = {{ kind = \"pareto\", skew = {skew:?} }}");
        lines.extend(self.pareto.map(pareto));
        let start = self.offset.unwrap_or(Size(0));
        lines.extend(match (self.offset, self.size) {
            (None, None) => None,
            (_, None) => Some(format!("region = {{ start = \"{start}\" }}")),
            (_, Some(length)) => Some(format!(
                "region = {{ start = \"{start}\", length = \"{length}\" }}"
            )),
        });
        if let [depth] = self.depth[..] {
            lines.push(format!("queue_depth = {depth}"));
        }
        if let [workers] = self.workers[..] {
            lines.push(format!("workers = {workers}"));
        }
        lines.extend(self.arrival());
        lines.extend(self.fsync.map(|writes| format!("fsync = {writes}")));
        if self.dsync {
            lines.push("sync = \"dsync\"".into());
        }
        if self.verify {
            lines.push("verify = {}".into());
        }
        lines.extend(
            self.ramp
                .map(|ramp| format!("ramp_up = {{ time = \"{ramp}\" }}")),
        );
        lines.push(format!("stop = {{ time = \"{}\" }}", self.time));
        lines
    }

    /// The key `arrival`, unless it has its default value.
    fn arrival(&self) -> Option<String> {
        let rate = self.rate.first().map(|rate| format!(", rate = {rate:?}"));
        let Some(SearchLimit { percentile, limit }) = self.search else {
            return Some(format!("arrival = {{ kind = \"open\"{} }}", rate?));
        };
        let tolerance = self
            .tolerance
            .map(|share| format!(", tolerance = {share:?}"));
        Some(format!(
            "arrival = {{ kind = \"search\", percentile = {}, limit = \"{limit}\"{}{} }}",
            percentile.percent(),
            rate.unwrap_or_default(),
            tolerance.unwrap_or_default()
        ))
    }
}

/// Quotes a string for TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_string()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_load::block::processes::ArrivalProcess;
    use brunt_load::block::workload::Arrival;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        measure: Measure,
    }

    fn of(line: &str) -> Measure {
        let words = std::iter::once("measure").chain(line.split_whitespace());
        Program::parse_from(words).measure
    }

    fn experiment(line: &str) -> Experiment {
        let measure = of(line);
        measure.check().unwrap();
        Experiment::parse("measure.toml", &measure.text())
            .unwrap_or_else(|error| panic!("{line}: {}\n{}", error.one_line(), measure.text()))
    }

    #[test]
    fn requirements_are_part_of_the_experiment() {
        let words = [
            "measure",
            "d.img",
            "--require",
            "p99 below 2ms",
            "--require",
            "iops above 5",
        ];
        let measure = Program::parse_from(words).measure;
        let experiment = Experiment::parse("measure.toml", &measure.text()).unwrap();
        let told: Vec<String> = experiment.require.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["p99 below 2ms", "iops above 5"]);
    }

    #[test]
    fn percentiles_become_the_key() {
        let of = |options: &str| {
            let chosen = experiment(&format!("d.img {options}"));
            let names = chosen.chosen_percentiles().iter().map(ToString::to_string);
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("--percentiles 50,95,99.9"), "p50 p95 p99.9");
        assert_eq!(of("--percentiles p99.99"), "p99.99");
        assert_eq!(of(""), "");
        let words = ["measure", "d.img", "--percentiles", "100"];
        assert!(Program::try_parse_from(words).is_err());
    }

    #[test]
    fn a_search_becomes_the_arrival_that_it_describes() {
        let words = |more: &[&'static str]| [&["measure", "d.img"], more].concat();
        let arrival = |more: &[&'static str]| {
            let measure = Program::parse_from(words(more)).measure;
            measure.check().unwrap();
            let experiment = Experiment::parse("measure.toml", &measure.text()).unwrap();
            let workload = &experiment.workloads["randread"];
            (workload.arrival, workload.queue_depth)
        };
        let expected = |rate, tolerance| Arrival::Search {
            percentile: 99.9,
            limit: Span(Duration::from_micros(1500)),
            rate,
            tolerance,
            process: ArrivalProcess::default(),
        };
        let limit = ["--search", "p99.9 below 1.5ms"];
        assert_eq!(arrival(&limit), (expected(1000.0, 0.02), 64));
        let time = |words: Vec<&str>| Program::parse_from(words).measure.time;
        assert_eq!(time(words(&limit)), Span(Duration::from_secs(2)));
        assert_eq!(time(words(&[])), Span(Duration::from_secs(10)));
        let more = ["--rate", "50", "--tolerance", "0.1", "--depth", "8"];
        assert_eq!(
            arrival(&[&limit[..], &more].concat()),
            (expected(50.0, 0.1), 8)
        );
        let rates = [&limit[..], &["--rate", "1,2"]].concat();
        let measure = Program::parse_from(words(&rates)).measure;
        assert!(measure.check().is_err());
        for text in [
            "p99 above 2ms",
            "mean below 2ms",
            "iops above 5",
            "read p99 below 2ms",
            "p99",
        ] {
            let error = Program::try_parse_from(words(&["--search", text])).err();
            let error = error.expect(text).to_string();
            assert!(error.contains("'p99 below 2ms'"), "{error}");
        }
        assert!(Program::try_parse_from(words(&["--tolerance", "0.1"])).is_err());
    }

    #[test]
    fn options_become_the_experiment_they_describe() {
        let read = experiment("/dev/nvme0n1 --rw randread --bs 4k --depth 1,4,16,64 --time 30s");
        let workload = &read.workloads["randread"];
        assert_eq!(read.targets["nvme0n1"].url, "/dev/nvme0n1");
        assert_eq!((workload.read, workload.sequential), (1.0, 0.0));
        assert_eq!(workload.stop.time.unwrap().0.as_secs(), 30);
        assert_eq!(read.sweep.queue_depth, [1, 4, 16, 64]);
        assert_eq!(read.plan().runs.len(), 16);
        assert_eq!(read.changed_defaults(), [""; 0]);
        assert!(read.require.is_empty());
        let mixed = experiment(
            "/a/x.img iscsi://host/iqn.a:b/0 --rw randrw --read 70 --write --zipf 1.1 --align 64k --offset 1MiB --size 1GiB \
             --fsync 32 --dsync --rate 100,200.5 --ramp 1s --workers 2 --bs 4k,64k --seed 7 --reps 5 --overwrite",
        );
        let workload = &mixed.workloads["randrw"];
        assert_eq!(
            (workload.read, workload.flush_every, workload.workers),
            (0.7, 32, 2)
        );
        assert!(workload.writes_are_stable());
        assert_eq!(
            mixed.allow_overwrite,
            ["/a/x.img", "iscsi://host/iqn.a:b/0"]
        );
        assert_eq!(
            (mixed.seed, mixed.repetitions, mixed.targets.len()),
            (7, 5, 2)
        );
        let trim = experiment("null:1GiB --rw trim --write");
        assert_eq!(trim.workloads["trim"].trim, 1.0);
    }

    #[test]
    fn nothing_is_written_unless_allowed() {
        for rw in ["write", "randwrite", "rw", "randrw", "trim", "randtrim"] {
            let failure = of(&format!("null:1GiB --rw {rw}")).check().unwrap_err();
            assert!(failure.advice().unwrap().contains("--write"), "{rw}");
            assert!(of(&format!("null:1GiB --rw {rw} --write")).check().is_ok());
        }
    }

    #[test]
    fn targets_of_the_same_name_get_numbers() {
        let measure = of("/a/disk.img /b/disk.img null:1GiB memory:1MiB?delay=1ms /");
        assert_eq!(
            measure.names(),
            [
                "disk.img",
                "disk.img-2",
                "null-1GiB",
                "memory-1MiB",
                "target"
            ]
        );
        experiment("/a/disk.img /b/disk.img /");
    }
}
