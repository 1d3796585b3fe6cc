//! Does a fio job give the same results in Brunt? Typical job files, run unchanged by fio and by `brunt run`,
//! alternately: rate, mean and p99 of each direction of each job, as ratios of Brunt's to fio's.
//!
//! The rule: both programs read the same file and write the same JSON, so a ratio needs no conversion. With `rate`,
//! Brunt's response times begin when a request is due and fio's when it is sent, so the response times of `backup`
//! differ if requests wait.

use std::path::{Path, PathBuf};
use std::process::Command;

use brunt_result::statistics::interleaved;
use serde_json::{Value, json};

use crate::load::write_file;
use crate::sample::ratio_of_rounds;
use crate::scratch::Scratch;
use crate::{BenchError, BenchResult, Console, fio, program};

/// How much of a file or device the jobs access.
const SIZE_BYTES: u64 = 256 << 20;
/// With fewer requests than this, a percentile isn't worth comparing.
const FEWEST: f64 = 200.0;
/// The deviation from 1 above which a ratio is marked.
const CLOSE: f64 = 0.05;

/// The job files, which take FILE, SIZE, TIME and DEPTH from the environment.
const JOBS: &[(&str, &str)] = &[
    ("oltp", include_str!("oltp.fio")),
    ("boot-storm", include_str!("boot-storm.fio")),
    ("backup", include_str!("backup.fio")),
    ("preconditioning", include_str!("preconditioning.fio")),
    ("latency-target", include_str!("latency-target.fio")),
    ("stonewall", include_str!("stonewall.fio")),
];

/// Typical fio jobs, run by fio and by Brunt: ratios of rate, mean and p99
#[derive(Clone, Debug)]
pub struct FioJobsBench {
    /// Time of each job in seconds
    pub seconds: u32,
    /// Rounds, in each of which both programs run once
    pub rounds: u32,
    /// Folders for a test file, created and removed
    pub dir: Vec<PathBuf>,
    /// Block devices, which are overwritten
    pub device: Vec<PathBuf>,
    /// Queue depths
    pub depth: Vec<u32>,
    /// Run only job files whose name contains this
    pub only: Option<String>,
    /// Path or name of fio
    pub fio: PathBuf,
}

/// Both programs, and where they run.
struct Contest<'a> {
    fio: &'a Path,
    brunt: &'a Path,
    /// The folder for job files and results.
    scratch: &'a Scratch,
}

/// A job's figures for one direction, in one run.
#[derive(Clone, Debug)]
struct DirectionFigures {
    /// Such as `oltp read`.
    name: String,
    per_second: f64,
    mean_nanos: f64,
    p99_nanos: f64,
}

impl FioJobsBench {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// The settings are invalid, a prerequisite is missing, or a run fails.
    pub fn run(self, output: &dyn Console) -> BenchResult {
        if self.dir.is_empty() && self.device.is_empty() {
            return Err(BenchError::usage(
                "give --dir or --device: the jobs need a place to run",
            ));
        }
        let version = fio::version_of(&self.fio)?;
        let scratch = Scratch::new(None, "fio-jobs")?;
        let contest = Contest {
            fio: &self.fio,
            brunt: &program::brunt()?,
            scratch: &scratch,
        };
        let is_wanted = |name: &str| self.only.as_ref().is_none_or(|only| name.contains(only));
        let jobs: Vec<_> = JOBS.iter().filter(|(name, _)| is_wanted(name)).collect();
        if jobs.is_empty() {
            let names: Vec<_> = JOBS.iter().map(|(name, _)| *name).collect();
            return Err(BenchError::usage("no job file's name contains this text")
                .advise(format!("job files are: {}", names.join(", "))));
        }
        let folders = self
            .dir
            .iter()
            .map(|dir| Scratch::new(Some(dir), "fio-jobs"))
            .collect::<Result<Vec<Scratch>, BenchError>>()?;
        let mut places: Vec<(PathBuf, PathBuf)> = Vec::new();
        for (dir, folder) in self.dir.iter().zip(&folders) {
            write_file(&folder.join("file"), SIZE_BYTES)?;
            places.push((dir.clone(), folder.join("file")));
        }
        places.extend(
            self.device
                .iter()
                .map(|device| (device.clone(), device.clone())),
        );
        output.line(format_args!(
            "ratios of Brunt's figures to {version}'s: median [min..max] of {} rounds; ! marks a \
             median that differs from 1 by more than 5 %",
            self.rounds
        ));
        let mut rows = Vec::new();
        for (shown, file) in &places {
            for (name, text) in &jobs {
                for depth in &self.depth {
                    let shown = format!("{}, {name}, depth {depth}", shown.display());
                    let job = contest.job(name, text)?;
                    let environment = self.environment(file, *depth);
                    rows.extend(self.compare(&contest, &job, &environment, &shown, output)?);
                }
            }
        }
        let close = rows.iter().filter(|row| row["is_close"] == true).count();
        output.line(format_args!(
            "{close} of {} rows have all medians within 5 % of 1",
            rows.len()
        ));
        output.object(&json!({ "fio": version, "rounds": self.rounds, "rows": rows }));
        Ok(())
    }

    /// The environment variables that the job files use.
    fn environment(&self, file: &Path, depth: u32) -> [(&'static str, String); 4] {
        [
            ("FILE", file.display().to_string()),
            ("SIZE", SIZE_BYTES.to_string()),
            ("TIME", format!("{}s", self.seconds)),
            ("DEPTH", depth.to_string()),
        ]
    }

    /// Runs one job file with both programs in turn; returns a row for each of its jobs and directions.
    fn compare(
        &self,
        contest: &Contest,
        job: &Path,
        environment: &[(&'static str, String)],
        shown: &str,
        output: &dyn Console,
    ) -> Result<Vec<Value>, BenchError> {
        let mut runs: [Vec<Vec<DirectionFigures>>; 2] = [Vec::new(), Vec::new()];
        for (side, _) in interleaved(2, self.rounds as usize, 1) {
            if output.is_interrupted() {
                return Err(BenchError::interrupted("interrupted"));
            }
            let mut command = match side {
                0 => contest.ours(job)?,
                _ => contest.theirs(job),
            };
            let answer = fio::answer_of(command.envs(environment.iter().cloned()))?;
            runs[side].push(figures(&answer));
        }
        let [ours, theirs] = runs;
        Ok(print(output, shown, &ours, &theirs))
    }
}

impl Contest<'_> {
    /// Writes a job file.
    fn job(&self, name: &str, text: &str) -> Result<PathBuf, BenchError> {
        let job = self.scratch.join(&format!("{name}.fio"));
        std::fs::write(&job, text)
            .map_err(|error| BenchError::failed(format!("{}: {error}", job.display())))?;
        Ok(job)
    }

    fn ours(&self, job: &Path) -> Result<Command, BenchError> {
        let results = self.scratch.join("results");
        if results.exists() {
            std::fs::remove_dir_all(&results)
                .map_err(|error| BenchError::failed(format!("{}: {error}", results.display())))?;
        }
        let mut command = Command::new(self.brunt);
        command
            .arg("run")
            .arg(job)
            .args(["--reps", "1", "--output-format", "fio-json", "--out"])
            .arg(results);
        Ok(command)
    }

    fn theirs(&self, job: &Path) -> Command {
        let mut command = Command::new(self.fio);
        command.arg("--output-format=json").arg(job);
        command
    }
}

/// The figures of each job and direction with enough requests. Brunt names a job `TARGET JOB`.
fn figures(answer: &Value) -> Vec<DirectionFigures> {
    let mut found = Vec::new();
    for job in answer["jobs"].as_array().into_iter().flatten() {
        let name = job["jobname"].as_str().unwrap_or_default();
        let name = name.rsplit(' ').next().unwrap_or_default();
        for direction in ["read", "write"] {
            let part = &job[direction];
            let number = |value: &Value| value.as_f64().unwrap_or(0.0);
            if number(&part["total_ios"]) < FEWEST {
                continue;
            }
            found.push(DirectionFigures {
                name: format!("{name} {direction}"),
                per_second: number(&part["iops"]),
                mean_nanos: number(&part["clat_ns"]["mean"]),
                p99_nanos: number(&part["clat_ns"]["percentile"]["99.000000"]),
            });
        }
    }
    found
}

/// Picks a figure.
type GetFigure = fn(&DirectionFigures) -> f64;

const FIGURES: [(&str, GetFigure); 3] = [
    ("rate", |figures| figures.per_second),
    ("mean", |figures| figures.mean_nanos),
    ("p99", |figures| figures.p99_nanos),
];

/// Prints a line for each job and direction that appears in all runs of both programs.
fn print(
    output: &dyn Console,
    shown: &str,
    ours: &[Vec<DirectionFigures>],
    theirs: &[Vec<DirectionFigures>],
) -> Vec<Value> {
    let mut rows = Vec::new();
    for one in ours.first().into_iter().flatten() {
        let of = |runs: &[Vec<DirectionFigures>]| -> Option<Vec<DirectionFigures>> {
            let named = |run: &Vec<DirectionFigures>| {
                run.iter().find(|figures| figures.name == one.name).cloned()
            };
            runs.iter().map(named).collect()
        };
        let (Some(ours), Some(theirs)) = (of(ours), of(theirs)) else {
            continue;
        };
        let mut words = Vec::new();
        let mut row = json!({ "job": shown, "of": one.name, "is_close": true });
        for (figure, get) in FIGURES {
            let values = |runs: &[DirectionFigures]| runs.iter().map(get).collect::<Vec<f64>>();
            let (ours, theirs) = (values(&ours), values(&theirs));
            let Some((ratio, (low, high))) = ratio_of_rounds(&ours, &theirs) else {
                continue;
            };
            let is_close = (ratio - 1.0).abs() <= CLOSE;
            let mark = if is_close { "" } else { " !" };
            words.push(format!("{figure} {ratio:.2} [{low:.2}..{high:.2}]{mark}"));
            row["is_close"] = json!(row["is_close"] == true && is_close);
            row[figure] = json!({ "brunt": ours, "fio": theirs, "ratio": ratio });
        }
        output.line(format_args!("{shown}: {}: {}", one.name, words.join(", ")));
        rows.push(row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_jobs_name_and_only_directions_with_enough_requests() {
        let part = |count: u32| {
            json!({ "total_ios": count, "iops": 10.0,
                "clat_ns": { "mean": 5.0, "percentile": { "99.000000": 7 } } })
        };
        let answer = json!({ "jobs": [
            { "jobname": "file oltp", "read": part(1_000), "write": part(3) },
            { "jobname": "oltp", "read": part(0), "write": part(200) },
        ] });
        let found = figures(&answer);
        let names: Vec<&str> = found.iter().map(|figures| figures.name.as_str()).collect();
        assert_eq!(names, ["oltp read", "oltp write"]);
        assert_eq!((found[0].mean_nanos, found[0].p99_nanos), (5.0, 7.0));
    }
}
