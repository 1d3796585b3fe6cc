//! Data that a result's summary lacks, read from its tables: environment, timelines, histograms, probes. Rows are
//! read in batches and thinned while reading, so that a day of intervals needs no more memory than a minute.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use brunt_core::{COUNT_READ_MAX, Histogram, HistogramError, Nanos};
use brunt_lake::{LakeError, read_table};
use brunt_result::summary::{RunSummary, Summary};
use brunt_result::tables::{histograms, intervals, probes, runs};

use super::differences::{self, EnvironmentFact};
use super::profile::{self, Flames};
use super::{distribution, timeline};
use crate::format::sentence_case;
use crate::thin::{Map, Thin};

/// All details of a result. The default is a result without tables.
#[derive(Default)]
pub struct Details {
    /// A sentence that says why data is missing.
    pub missing: Option<String>,
    /// Damaged parts of tables; rows from the damage on were left out.
    pub damaged: Vec<String>,
    /// The environment for readers (host, kernel, processors): name and text.
    pub environment: Vec<(String, String)>,
    /// The environment as recorded, for comparisons.
    pub facts: Vec<EnvironmentFact>,
    /// When the preparation of the first run began and the last run ended, in nanoseconds since 1970.
    pub span_unix_ns: Option<(i64, i64)>,
    /// Merged response times of each point's complete runs, by the point's index.
    pub response: BTreeMap<usize, Histogram>,
    /// The runs shown on the page, by their number over the whole experiment.
    pub runs: BTreeMap<u32, RunDetails>,
    /// Flame graphs of the points with a CPU profile.
    pub flames: Flames,
}

/// Details of one run. Times are in seconds from the start of measuring.
pub struct RunDetails {
    /// Maximum number of points on a timeline.
    places: usize,
    /// Whether the map and the hosts are included, not only the lines.
    whole: bool,
    /// Figures of intervals, in the order of `StoredInterval::figures`.
    pub line: Thin<7>,
    /// The longest interval, in seconds.
    pub interval_s: f64,
    /// Requests counted by time and latency.
    pub map: Map,
    /// Probe values of the hosts during the run.
    pub probes: Vec<ProbeSeries>,
}

/// An interval of a run, as stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoredInterval {
    /// Start.
    pub start_s: f64,
    /// End.
    pub end_s: f64,
    /// Requests completed in it.
    pub completed: u64,
    /// Requests that did not succeed: errors, hanging, skipped.
    pub lost: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// p50, p99, p99.9 and the maximum of the response time, in microseconds.
    pub response_us: [Option<f64>; 4],
}

/// Indices of figures in a line: completed, lost and retried requests per second.
pub(super) const REQUESTS: usize = 0;
pub(super) const LOST: usize = 1;
pub(super) const RETRIED: usize = 2;
/// Index of the first of the response times: p50, p99, p99.9 and maximum.
pub(super) const RESPONSES: usize = 3;

impl StoredInterval {
    /// Completed, lost and retried requests per second, then the response times.
    fn figures(&self) -> [Option<f64>; 7] {
        let rate = |count: u64| Some(count as f64 / (self.end_s - self.start_s).max(1e-9));
        let [p50, p99, p99_9, max] = self.response_us;
        [
            rate(self.completed),
            rate(self.lost),
            rate(self.retries),
            p50,
            p99,
            p99_9,
            max,
        ]
    }
}

/// One probe metric of a host over time.
pub struct ProbeSeries {
    /// The host's name.
    pub host: String,
    /// Probe: `cpu`, `network`.
    pub probe: String,
    /// Instance; empty for all together.
    pub instance: String,
    /// Metric with its unit: `user_share`.
    pub metric: String,
    /// Values over time.
    pub line: Thin<1>,
}

impl RunDetails {
    /// Empty details, with timelines of about this many points.
    pub fn new(places: usize) -> RunDetails {
        let (line, map, probes) = (Thin::new(places), Map::default(), Vec::new());
        RunDetails {
            places,
            whole: true,
            line,
            interval_s: 0.0,
            map,
            probes,
        }
    }

    /// Empty details without the map and the hosts, which take most of the memory.
    pub fn lines(places: usize) -> RunDetails {
        RunDetails {
            whole: false,
            ..RunDetails::new(places)
        }
    }

    /// Adds the next interval.
    pub fn interval(&mut self, interval: &StoredInterval) {
        let lasts = interval.end_s - interval.start_s;
        // The last interval of a run may be too short for a meaningful rate.
        if lasts > self.interval_s * 0.1 {
            self.interval_s = self.interval_s.max(lasts);
            self.line
                .push(interval.start_s, interval.end_s, interval.figures());
        }
    }

    /// Adds the next value of a host's metric.
    pub fn sample(&mut self, of: [&str; 4], start_s: f64, end_s: f64, value: f64) {
        let same = |probe: &&mut ProbeSeries| {
            [&probe.host, &probe.probe, &probe.instance, &probe.metric].map(String::as_str) == of
        };
        let line = match self.probes.iter_mut().find(same) {
            Some(probe) => &mut probe.line,
            None => {
                let [host, probe, instance, metric] = of.map(str::to_string);
                self.probes.push(ProbeSeries {
                    host,
                    probe,
                    instance,
                    metric,
                    line: Thin::new(self.places),
                });
                let last = self.probes.len() - 1;
                &mut self.probes[last].line
            }
        };
        line.push(start_s, end_s, [Some(value)]);
    }
}

impl Details {
    /// Reads the details from a result's folder. Data that can't be read is reported as missing: a page without
    /// timelines is better than none.
    pub fn read(folder: &Path, summary: &Summary) -> Details {
        let chosen = timeline::chosen(summary);
        let places = timeline::places(chosen.len());
        let runs = chosen.iter().map(|one| {
            let details = if one.whole {
                RunDetails::new(places)
            } else {
                RunDetails::lines(places)
            };
            (one.run.order, details)
        });
        let mut details = Details {
            runs: runs.collect(),
            ..Details::default()
        };
        let mut damaged = Vec::new();
        if let Err(error) = details.fill(folder, summary, &mut damaged) {
            details.missing = Some(format!("A table could not be read: {error}."));
        } else if details.runs.values().all(|run| run.line.pushed() == 0) {
            details.missing = Some("The results have no table of intervals.".into());
        }
        details.damaged = damaged.iter().map(LakeError::to_string).collect();
        details
    }

    /// Reads all tables; damaged parts are left out and noted.
    fn fill(
        &mut self,
        folder: &Path,
        summary: &Summary,
        damaged: &mut Vec<LakeError>,
    ) -> Result<(), LakeError> {
        damaged.extend(self.read_environment(folder)?);
        damaged.extend(self.read_span(folder)?);
        let trials: HashMap<i64, i64> = all_runs(summary)
            .map(|(_, run)| (i64::from(run.order), i64::from(run.trial)))
            .collect();
        let (origins, bad) = self.read_intervals(folder, &trials)?;
        damaged.extend(bad);
        damaged.extend(self.read_histograms(folder, summary, &trials, &origins)?);
        damaged.extend(self.read_probes(folder, &origins)?);
        damaged.extend(profile::read(folder, summary, &mut self.flames)?);
        Ok(())
    }

    /// Fills in the timelines. Returns, for each run, when measuring began after the start of its workers.
    fn read_intervals(
        &mut self,
        folder: &Path,
        trials: &HashMap<i64, i64>,
    ) -> Result<(HashMap<i64, i64>, Vec<LakeError>), LakeError> {
        let mut origins: HashMap<i64, i64> = HashMap::new();
        let damaged = read_table(folder, &intervals::TABLE, |batch| {
            let int = |column: &'static str| batch.ints(column);
            let (runs, trial, start, end) =
                (int("run"), int("trial"), int("start_ns"), int("end_ns"));
            let (completed, retries) = (int("completed"), int("retries"));
            let lost: Vec<&[i64]> = LOSSES.iter().map(|column| int(column)).collect();
            let times = [
                "response_p50_ns",
                "response_p99_ns",
                "response_p99_9_ns",
                "response_max_ns",
            ];
            let known = times.map(int);
            for row in 0..batch.rows() {
                let Some(run) = self.runs.get_mut(&(runs[row] as u32)) else {
                    continue;
                };
                if trials.get(&runs[row]) != Some(&trial[row]) {
                    continue;
                }
                let origin = *origins.entry(runs[row]).or_insert(start[row]);
                let seconds = |at: i64| (at - origin) as f64 / 1e9;
                let mut response_us = [None; 4];
                for (value, (name, column)) in response_us.iter_mut().zip(times.iter().zip(known)) {
                    *value = (!batch.is_null(name, row)).then(|| column[row] as f64 / 1e3);
                }
                run.interval(&StoredInterval {
                    start_s: seconds(start[row]),
                    end_s: seconds(end[row]),
                    completed: completed[row] as u64,
                    lost: lost.iter().map(|column| column[row] as u64).sum(),
                    retries: retries[row] as u64,
                    response_us,
                });
            }
        })?;
        Ok((origins, damaged))
    }

    /// Fills in the maps, and the distributions of the points that the page shows.
    fn read_histograms(
        &mut self,
        folder: &Path,
        summary: &Summary,
        trials: &HashMap<i64, i64>,
        origins: &HashMap<i64, i64>,
    ) -> Result<Vec<LakeError>, LakeError> {
        let complete = all_runs(summary).filter(|(_, run)| run.is_complete());
        let points: HashMap<i64, usize> = complete
            .filter(|(point, _)| *point < distribution::POINTS_MAX)
            .map(|(point, run)| (i64::from(run.order), point))
            .collect();
        let (mut last, mut refused) = (None, None);
        let damaged = read_table(folder, &histograms::TABLE, |batch| {
            let int = |column: &'static str| batch.ints(column);
            let (runs, trial, start, end) =
                (int("run"), int("trial"), int("start_ns"), int("end_ns"));
            let (high, responses) = (int("high_ns"), int("responses"));
            for row in 0..batch.rows() {
                let count = responses[row] as u64;
                if count == 0 || trials.get(&runs[row]) != Some(&trial[row]) {
                    continue;
                }
                let counted = match points.get(&runs[row]) {
                    Some(point) => {
                        let response = self.response.entry(*point).or_default();
                        response.record_bucket(Nanos(high[row] as u64), count)
                    }
                    None if count > COUNT_READ_MAX => Err(HistogramError::TooMany {
                        counted: 0,
                        more: count,
                    }),
                    None => Ok(()),
                };
                if let Err(error) = counted {
                    refused.get_or_insert(error);
                    continue;
                }
                let run = self
                    .runs
                    .get_mut(&(runs[row] as u32))
                    .filter(|run| run.whole);
                if let (Some(run), Some(origin)) = (run, origins.get(&runs[row])) {
                    // The rows of a histogram interval are adjacent, one kind of operation after another.
                    if last.replace((runs[row], start[row])) != Some((runs[row], start[row])) {
                        run.map.stretch(
                            (start[row] - origin) as f64 / 1e9,
                            (end[row] - origin) as f64 / 1e9,
                        );
                    }
                    run.map.count(high[row] as f64 / 1e3, count);
                }
            }
        })?;
        let path = folder.join(histograms::TABLE.name);
        let refused = refused.map(|error| LakeError::Damaged {
            path,
            what: error.to_string(),
        });
        Ok(damaged.into_iter().chain(refused).collect())
    }

    fn read_probes(
        &mut self,
        folder: &Path,
        origins: &HashMap<i64, i64>,
    ) -> Result<Vec<LakeError>, LakeError> {
        read_table(folder, &probes::TABLE, |batch| {
            let (runs, start, end) = (
                batch.ints("run"),
                batch.ints("start_ns"),
                batch.ints("end_ns"),
            );
            let values = batch.floats("value");
            let texts = batch
                .texts("host")
                .zip(batch.texts("probe"))
                .zip(batch.texts("instance").zip(batch.texts("metric")));
            for (row, ((host, probe), (instance, metric))) in texts.enumerate() {
                if !super::hosts::is_shown(probe, metric) {
                    continue;
                }
                let run = self
                    .runs
                    .get_mut(&(runs[row] as u32))
                    .filter(|run| run.whole);
                if let (Some(run), Some(origin)) = (run, origins.get(&runs[row])) {
                    let seconds = |at: i64| (at - origin) as f64 / 1e9;
                    run.sample(
                        [host, probe, instance, metric],
                        seconds(start[row]),
                        seconds(end[row]),
                        values[row],
                    );
                }
            }
        })
    }

    fn read_environment(&mut self, folder: &Path) -> Result<Vec<LakeError>, LakeError> {
        let (facts, damaged) = differences::read_environment(folder)?;
        self.environment = told(&facts);
        self.facts = facts;
        Ok(damaged)
    }

    /// Reads when the experiment began and ended.
    fn read_span(&mut self, folder: &Path) -> Result<Vec<LakeError>, LakeError> {
        let mut span: Option<(i64, i64)> = None;
        let damaged = read_table(folder, &runs::TABLE, |batch| {
            let (began, measured) = (batch.ints("began_unix_ns"), batch.ints("measured_ns"));
            for row in 0..batch.rows() {
                let end = began[row].saturating_add(measured[row]);
                let (first, last) = span.unwrap_or((began[row], end));
                span = Some((first.min(began[row]), last.max(end)));
            }
        })?;
        self.span_unix_ns = span;
        Ok(damaged)
    }
}

/// Columns of `intervals` that count requests that did not succeed.
pub(super) const LOSSES: [&str; 9] = [
    "scsi_errors",
    "os_errors",
    "out_of_range",
    "timed_out",
    "gone",
    "unsupported",
    "miscompares",
    "hanging",
    "skipped",
];

/// Every run with the index of its point.
fn all_runs(summary: &Summary) -> impl Iterator<Item = (usize, &RunSummary)> {
    let points = summary.points.iter().enumerate();
    points.flat_map(|(index, point)| point.runs.iter().map(move |run| (index, run)))
}

/// Describes the environment for readers, the most important facts first.
fn told(known: &[EnvironmentFact]) -> Vec<(String, String)> {
    let machine = |key: &str| {
        let found = known
            .iter()
            .find(|fact| fact.subject == "machine" && fact.key == key);
        found.map(|fact| fact.value.as_str())
    };
    let mut told: Vec<(String, String)> = Vec::new();
    let mut tell =
        |word: &str, text: Option<String>| told.extend(text.map(|text| (word.to_string(), text)));
    tell("Host", machine("host").map(str::to_string));
    let cpus = machine("cpus").map_or(String::new(), |cpus| format!("{cpus} × "));
    let cpu = machine("cpu").or(machine("architecture"));
    let governor =
        machine("governor").map_or(String::new(), |governor| format!(", governor {governor}"));
    tell(
        "Processors",
        cpu.map(|cpu| format!("{cpus}{cpu}{governor}")),
    );
    let kilobytes = |text: &str| text.strip_suffix(" kB")?.trim().parse::<f64>().ok();
    tell(
        "Memory",
        machine("memory")
            .and_then(kilobytes)
            .map(|kb| crate::format::Unit::Bytes.show(kb * 1024.0)),
    );
    // The text is like "Linux version 6.1.0-13-amd64 (builder and compiler)".
    let kernel = |text: &str| {
        text.split(" (")
            .next()
            .unwrap_or(text)
            .replace(" version", "")
    };
    tell("Kernel", machine("kernel").map(kernel));
    for EnvironmentFact {
        subject,
        key,
        value,
    } in known
    {
        let named = matches!(
            key.as_str(),
            "host" | "cpu" | "cpus" | "architecture" | "governor" | "memory" | "kernel"
        );
        let elsewhere = matches!(key.as_str(), "url" | "note" | "fact")
            || subject == "experiment"
            || subject == "brunt";
        if (subject == "machine" && named) || elsewhere {
            continue;
        }
        let word = key.replace('_', " ");
        let of = if subject == "machine" {
            word
        } else {
            format!("{subject}, {word}")
        };
        told.push((sentence_case(&of), value.clone()));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_lake::{TableWriter, WriterOptions};
    use brunt_result::experiment::ExperimentSummary;
    use brunt_result::summary::{FORMAT, PointSummary};
    use brunt_result::{Outcome, Stopped, tables};

    /// Buckets with impossible counts are left out and reported, whether or not the run's distribution is shown; the
    /// rest of the table is read.
    #[test]
    fn impossible_buckets_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer =
            TableWriter::create(folder.path(), &histograms::TABLE, WriterOptions::default())
                .unwrap();
        let mut put = |run: u64, high: u64, responses: i64| {
            let times = writer
                .rows()
                .row()
                .count(run)
                .count(0)
                .count(0)
                .count(1_000_000_000);
            times
                .text("read")
                .count(high)
                .count(high)
                .int(responses)
                .count(0)
                .end();
        };
        for run in [0, 1] {
            put(run, 1000, 7);
            put(run, 2000, i64::MAX);
            put(run, 2000, -1);
            put(run, 3000, 5);
        }
        writer.finish().unwrap();
        let outcome = Outcome {
            stopped: Stopped::Done,
            ..Outcome::interrupted()
        };
        let shown = PointSummary {
            runs: vec![RunSummary::of(&outcome, 0, 0, 1, None)],
            ..Default::default()
        };
        let summary = Summary {
            format: FORMAT,
            brunt: String::new(),
            complete: true,
            trouble: None,
            experiment: ExperimentSummary::default(),
            points: vec![shown],
            indexes: None,
            requirements: Vec::new(),
            interleaved: None,
            waits: Vec::new(),
            label: None,
        };
        let (zeros, runs) = (
            HashMap::from([(0, 0), (1, 0)]),
            [0, 1].map(|run| (run, RunDetails::new(8))),
        );
        let mut details = Details {
            runs: runs.into(),
            ..Details::default()
        };
        let damaged = details
            .read_histograms(folder.path(), &summary, &zeros, &zeros)
            .unwrap();
        let said: Vec<String> = damaged.iter().map(LakeError::to_string).collect();
        assert!(
            matches!(&said[..], [one] if one.contains("histograms") && one.contains("the maximum is")),
            "{said:?}"
        );
        assert_eq!(details.response[&0].count(), 12);
        let of_map = |run: u32| {
            let heat = details.runs[&run].map.heat().expect("a map");
            heat.cells.chunks(3).map(|cell| cell[2]).sum::<u64>()
        };
        assert_eq!([0, 1].map(of_map), [12u64, 12]);
    }

    /// The loss columns here are exactly the table's.
    #[test]
    fn losses_are_the_tables() {
        let named: Vec<&str> = tables::intervals::TABLE
            .columns
            .iter()
            .map(|column| column.name)
            .collect();
        let from = named.iter().position(|name| *name == LOSSES[0]).unwrap();
        assert_eq!(named[from..from + LOSSES.len()], LOSSES);
        assert_eq!(named[from + LOSSES.len()], "in_flight", "no loss");
    }

    /// Describes a machine for readers.
    #[test]
    fn machines_in_words() {
        let row = |subject: &str, key: &str, value: &str| EnvironmentFact {
            subject: subject.into(),
            key: key.into(),
            value: value.into(),
        };
        let told = told(&[
            row(
                "machine",
                "kernel",
                "Linux version 6.1.0-13-amd64 (debian) #1 SMP",
            ),
            row("machine", "cpu", "Example 9000"),
            row("machine", "cpus", "2"),
            row("machine", "memory", "8140124 kB"),
            row("experiment", "text", "name = 1"),
            row("target disk", "mount_options", "rw"),
        ]);
        let line = |word: &str, text: &str| (word.to_string(), text.to_string());
        let expected = [
            line("Processors", "2 × Example 9000"),
            line("Memory", "7.76 GiB"),
            line("Kernel", "Linux 6.1.0-13-amd64"),
            line("Target disk, mount options", "rw"),
        ];
        assert_eq!(told, expected);
    }
}
