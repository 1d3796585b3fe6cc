//! `brunt doctor`: checks a machine before measurements. Reports what would distort measurements or make them fail,
//! what that costs on this machine, and how to fix it.
//!
//! [`checks`] judges, [`machine`] reads `/proc` and `/sys`, and [`trial`] makes measurements that take a few seconds.
//! The rule: change nothing, and judge only what was observed.

mod checks;
mod groups;
mod machine;
mod trial;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::Subcommand;
use crate::cli::{Done, Failure, Output};
use checks::CHECKS;
use machine::Machine;
use trial::Trials;

/// Check this machine before a measurement: what would distort results, by how much, and how to fix it
///
/// Reads /proc and /sys, measures for about two seconds, and changes nothing. Exit status 0: ready, perhaps with
/// notes; 1: something would distort measurements, or is missing.
#[derive(clap::Args)]
pub struct Doctor {
    /// Check the /proc and /sys below this folder instead, without taking measurements
    #[arg(long, hide = true, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Only try to enter the namespaces of a lab.
    #[arg(long, hide = true)]
    try_namespaces: bool,
}

/// A check's verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fitness {
    /// Suitable for measurements.
    Good,
    /// Worth knowing: some measurements are inaccurate, or slower than they could be.
    Note,
    /// Figures are distorted, or a feature is unavailable.
    Bad,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Diagnosis {
    /// The check's subject.
    pub check: &'static str,
    pub fitness: Fitness,
    /// What the check found.
    pub found: String,
    /// The cost on this machine, measured or documented.
    pub cost: Option<String>,
    /// How to fix it.
    pub advice: Option<String>,
}

impl Fitness {
    fn name(self) -> &'static str {
        match self {
            Fitness::Good => "good",
            Fitness::Note => "note",
            Fitness::Bad => "bad",
        }
    }
}

impl Diagnosis {
    pub fn new(check: &'static str, fitness: Fitness, found: impl Into<String>) -> Diagnosis {
        Diagnosis {
            check,
            fitness,
            found: found.into(),
            cost: None,
            advice: None,
        }
    }

    pub fn costs(self, cost: impl Into<String>) -> Diagnosis {
        Diagnosis {
            cost: Some(cost.into()),
            ..self
        }
    }

    pub fn advise(self, advice: impl Into<String>) -> Diagnosis {
        Diagnosis {
            advice: Some(advice.into()),
            ..self
        }
    }

    fn json(&self) -> Value {
        let Diagnosis {
            check,
            fitness,
            found,
            cost,
            advice,
        } = self;
        json!({ "check": check, "fitness": fitness.name(), "found": found, "cost": cost, "advice": advice })
    }
}

impl Subcommand for Doctor {
    const NAME: &'static str = "doctor";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt doctor", "check this machine before a measurement"),
        (
            "brunt doctor --json",
            "check this machine in a script: exit status 1 if something is bad",
        ),
    ];

    fn run(self, output: &Output) -> Done {
        if self.try_namespaces {
            return crate::lab::on_stage();
        }
        let (machine, trials) = match self.root {
            Some(root) => (Machine::at(&root), Trials::default()),
            None => (Machine::at(Path::new("/")), Trials::make()),
        };
        let found: Vec<Diagnosis> = CHECKS
            .iter()
            .filter_map(|check| check(&machine, &trials))
            .collect();
        let worst = found
            .iter()
            .map(|one| one.fitness)
            .max()
            .unwrap_or(Fitness::Good);
        for Diagnosis {
            check,
            fitness,
            found,
            cost,
            advice,
        } in &found
        {
            let mark = match fitness {
                Fitness::Good => "ok  ",
                Fitness::Note => "note",
                Fitness::Bad => "BAD ",
            };
            output.line(format_args!("{mark} {check}: {found}"));
            cost.iter()
                .for_each(|cost| output.line(format_args!("       here: {cost}")));
            advice
                .iter()
                .for_each(|advice| output.line(format_args!("       do:   {advice}")));
        }
        let checks: Vec<Value> = found.iter().map(Diagnosis::json).collect();
        output.object(&json!({ "fitness": worst.name(), "checks": checks }));
        match worst {
            Fitness::Bad => {
                let bad = found
                    .iter()
                    .filter(|one| one.fitness == Fitness::Bad)
                    .map(|one| one.check);
                let what = format!(
                    "not fit for measurements: {}",
                    bad.collect::<Vec<_>>().join(", ")
                );
                Err(Failure::failed(what))
            }
            _ => Ok(()),
        }
    }
}
