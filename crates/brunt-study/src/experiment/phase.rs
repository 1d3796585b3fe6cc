//! `[[phase]]`: steps of every repetition that run in order, such as filling, preconditioning and measuring.
//!
//! ```toml
//! [[phase]]
//! name = "fill"
//! workloads = ["fill"]
//! once = true                                     # before the first repetition only
//!
//! [[phase]]
//! name = "measure"
//! workloads = ["random-read", "random-write"]     # in random order
//! wait_for = { command = ["./healthy.sh"] }
//! ```
//!
//! The rule: if there are phases, every workload is in exactly one of them; otherwise its place in the order would be
//! a guess.

use brunt_core::Span;
use brunt_load::Workload;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mistake::{FileError, Source};
use super::{Experiment, Plan, Point};
use brunt_result::statistics::interleaved;

/// Maximum number of phases.
const PHASES_MAX: usize = 64;

/// A phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PhaseEntry {
    /// Name in plans and messages; default: the names of its workloads.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Names of the workloads, groups of `together` and file systems that run in it, in random order.
    pub workloads: Vec<String>,
    /// Whether the phase only takes place before the first repetition, as a preparation. Its points have one run
    /// each, and no sweep varies them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub once: bool,
    /// Condition to wait for before the phase begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_for: Option<WaitFor>,
}

/// A condition to wait for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitFor {
    /// Command that exits with 0 once the condition holds. It runs on this machine or, in a lab, on the worker's
    /// host.
    pub command: Vec<String>,
    /// Time from the end of one attempt to the next.
    #[serde(default = "one_second")]
    pub every: Span,
    /// Maximum time to wait; the experiment ends if the condition does not hold by then.
    #[serde(default = "ten_minutes")]
    pub time_max: Span,
}

fn one_second() -> Span {
    Span(std::time::Duration::from_secs(1))
}

fn ten_minutes() -> Span {
    Span(std::time::Duration::from_secs(600))
}

impl PhaseEntry {
    /// The phase's name in plans and messages.
    pub fn label(&self) -> String {
        match self.name.as_str() {
            "" => self.workloads.join(", "),
            name => name.to_string(),
        }
    }
}

impl Experiment {
    /// The phase of a point; `None` without phases.
    pub(super) fn phase_of(&self, point: &Point) -> Option<usize> {
        // The points of an entry, such as a file system, are named after its own loads, so their phase is found by
        // the entry's name.
        let mut own = self.workloads.own();
        let name = match own.any(|(name, _)| *name == point.target) {
            true => &point.target,
            false => &point.workload_name,
        };
        self.phase_with(name)
    }

    /// Whether a workload runs in a phase that takes place only once.
    pub(crate) fn is_preparation(&self, workload: &str) -> bool {
        let phase = self.phase_with(workload);
        phase.is_some_and(|index| self.phase[index].once)
    }

    /// The workloads that a sweep varies.
    pub(super) fn swept_workloads(&self) -> impl Iterator<Item = (&String, &Workload)> {
        let workloads = self.workloads.on_targets();
        workloads.filter(|(name, _)| !self.is_preparation(name))
    }

    fn phase_with(&self, workload: &str) -> Option<usize> {
        let has = |phase: &PhaseEntry| phase.workloads.iter().any(|name| name == workload);
        self.phase.iter().position(has)
    }

    /// Sets the phases of a plan's points, and the order of its runs: every repetition has each point once, in random
    /// order within the point's phase.
    pub(super) fn set_phases(&self, plan: &mut Plan) {
        let phases: Vec<Option<usize>> = plan
            .points
            .iter()
            .map(|point| self.phase_of(point))
            .collect();
        for (point, phase) in plan.points.iter_mut().zip(phases) {
            point.phase = phase;
        }
        plan.phases.clone_from(&self.phase);
        let heads = plan.heads();
        let runs = interleaved(heads.len(), self.repetitions as usize, self.seed);
        for round in runs.chunks(heads.len().max(1)) {
            let repetition = round[0].1;
            let round = round.iter().map(|(head, _)| heads[*head]).collect();
            let round = plan.in_phases(round, repetition).into_iter();
            plan.runs.extend(round.map(|point| (point, repetition)));
        }
    }

    /// Checks that each workload that runs is in exactly one phase.
    pub(super) fn check_phases(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        if self.phase.is_empty() {
            return Ok(());
        }
        let at = |index: usize, key: &str, what: String, help: Option<String>| {
            let what = format!("phase {}: {what}", index + 1);
            Err(source.mistake(&["phase", &index.to_string(), key], what, help))
        };
        if self.phase.len() > PHASES_MAX {
            let what = format!("there are more than {PHASES_MAX} phases");
            return at(PHASES_MAX, "workloads", what, None);
        }
        let known: Vec<&String> = self.workloads.names().collect();
        for (index, phase) in self.phase.iter().enumerate() {
            if phase.workloads.is_empty() {
                let what = "it has no workload".to_string();
                return at(index, "workloads", what, None);
            }
            for (place, name) in phase.workloads.iter().enumerate() {
                if !known.contains(&name) {
                    let names: Vec<&str> = known.iter().map(|name| name.as_str()).collect();
                    let help = format!("write one of {}", names.join(", "));
                    return at(
                        index,
                        "workloads",
                        format!("unknown workload '{name}'"),
                        Some(help),
                    );
                }
                let is_repeated = phase.workloads[..place].contains(name);
                if self.phase_with(name) != Some(index) || is_repeated {
                    let what = format!("workload {name} is listed more than once");
                    return at(index, "workloads", what, None);
                }
            }
            if phase
                .wait_for
                .as_ref()
                .is_some_and(|wait| wait.command.is_empty())
            {
                let help = Some("write command = [\"./healthy.sh\"]".to_string());
                return at(index, "wait_for", "the command is empty".to_string(), help);
            }
        }
        let points = self.points();
        let lacks = |point: &&Point| point.part_of.is_none() && self.phase_of(point).is_none();
        match points.iter().find(lacks) {
            Some(point) => {
                let what = format!("workload {} is in no phase", point.workload_name);
                let help = Some("add it to the workloads of a [[phase]]".to_string());
                Err(source.mistake(&["phase"], what, help))
            }
            None => Ok(()),
        }
    }
}

impl Plan {
    /// A round's points, given in random order, sorted by their phases. Preparation only takes place in the first
    /// round.
    pub fn in_phases(&self, mut round: Vec<usize>, repetition: usize) -> Vec<usize> {
        round.retain(|point| repetition == 0 || !self.is_preparation(*point));
        round.sort_by_key(|point| self.points[*point].phase);
        round
    }

    /// Number of these repetitions in which a point runs.
    pub(super) fn rounds_of(&self, point: usize, repetitions: u32) -> u32 {
        match self.is_preparation(point) {
            true => repetitions.min(1),
            false => repetitions,
        }
    }

    /// Whether a point is in a phase that takes place only once.
    fn is_preparation(&self, point: usize) -> bool {
        let phase = self.points[point].phase;
        phase.is_some_and(|phase| self.phases[phase].once)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(keys: &str) -> Result<Experiment, Box<FileError>> {
        let text = format!(
            "name = \"x\"\nrepetitions = 3\n[targets.disk]\nurl = \"memory:1MiB\"\n\
             [workloads.fill]\nread = 0.0\nstop = {{ time = \"1s\" }}\n\
             [workloads.a]\nstop = {{ time = \"1s\" }}\n[workloads.b]\nstop = {{ time = \"1s\" }}\n{keys}\n"
        );
        Experiment::parse("x.toml", &text)
    }

    /// The workloads of the planned runs, each with its repetition.
    fn order(keys: &str) -> Vec<(String, usize)> {
        let experiment = parsed(keys).unwrap_or_else(|error| panic!("{}", error.one_line()));
        let plan = experiment.plan();
        let name = |point: usize| plan.points[point].workload_name.clone();
        let runs = plan.runs.iter();
        runs.map(|(point, repetition)| (name(*point), *repetition))
            .collect()
    }

    #[test]
    fn phases_run_in_order_in_every_repetition() {
        let phases = "[[phase]]\nworkloads = [\"fill\"]\n[[phase]]\nworkloads = [\"b\", \"a\"]\n";
        let runs = order(phases);
        assert_eq!(runs.len(), 9);
        for (repetition, round) in runs.chunks(3).enumerate() {
            assert!(round.iter().all(|run| run.1 == repetition), "{runs:?}");
            assert_eq!(round[0].0, "fill");
        }
        // Phases follow the order of the file, not of names.
        let last = "[[phase]]\nworkloads = [\"b\", \"a\"]\n[[phase]]\nworkloads = [\"fill\"]\n";
        assert!(order(last).chunks(3).all(|round| round[2].0 == "fill"));
        // Within a phase, the order is the same as with the same seed and no phases.
        let free: Vec<_> = order("")
            .into_iter()
            .filter(|run| run.0 != "fill")
            .collect();
        let within: Vec<_> = runs.into_iter().filter(|run| run.0 != "fill").collect();
        assert_eq!(within, free);
    }

    #[test]
    fn preparation_runs_once_and_is_not_swept() {
        let keys = "[[phase]]\nworkloads = [\"fill\"]\nonce = true\n[[phase]]\nworkloads = [\"b\", \"a\"]\n\
                    [sweep]\nqueue_depth = [1, 2]\n";
        let runs = order(keys);
        assert_eq!(runs.len(), 1 + 3 * 4);
        assert_eq!(runs[0], ("fill".to_string(), 0));
        assert!(runs[1..].iter().all(|run| run.0 != "fill"));
        let experiment = parsed(keys).unwrap();
        assert_eq!(experiment.plan().time_min.as_secs(), 13);
    }

    #[test]
    fn phases_are_kept_with_the_results() {
        let keys = "[[phase]]\nworkloads = [\"fill\"]\nonce = true\n[[phase]]\nname = \"measure\"\n\
                    workloads = [\"b\", \"a\"]\nwait_for = { command = [\"true\"], every = \"2s\" }\n";
        let experiment = parsed(keys).unwrap();
        let labels: Vec<String> = experiment.phase.iter().map(PhaseEntry::label).collect();
        assert_eq!(labels, ["fill", "measure"]);
        let again = Experiment::parse("again.toml", &experiment.written_out()).unwrap();
        assert_eq!(again.phase, experiment.phase);
    }

    #[test]
    fn mistakes_name_the_phase() {
        let check = |keys: &str, said: &str| {
            let error = parsed(keys).expect_err(keys);
            let all = format!(
                "{} {}",
                error.one_line(),
                error.help_text().unwrap_or_default()
            );
            assert!(all.contains(said), "{keys}: {all}");
        };
        let all = "[[phase]]\nworkloads = [\"fill\", \"a\", \"b\"]\n";
        check(
            "[[phase]]\nworkloads = [\"fill\"]\n",
            "workload a is in no phase",
        );
        check(
            "[[phase]]\nworkloads = [\"fil\"]\n",
            "unknown workload 'fil' write one of a, b, fill",
        );
        check(
            &format!("{all}[[phase]]\nworkloads = [\"a\"]\n"),
            "phase 2: workload a is listed more than once",
        );
        check(
            "[[phase]]\nworkloads = [\"a\", \"a\"]\n",
            "is listed more than once",
        );
        check("[[phase]]\nworkloads = []\n", "it has no workload");
        check(
            &format!("{all}wait_for = {{ command = [] }}\n"),
            "the command is empty",
        );
        check(&format!("{all}onec = true\n"), "did you mean once?");
    }
}
