//! The I/O engine of points and runs: predicted in a plan, recorded by a study, and mentioned in its notes.
//!
//! The rule: an engine is recorded only if all workers used the same one; hosts that used different engines each
//! record their own.

use std::collections::BTreeMap;

use brunt_core::IoEngine;
use brunt_load::block::engine::{EnginePreview, preview};
use brunt_load::load::{EngineNeed, PreparedLoad};
use brunt_result::choice::{EngineChoice, EngineSetting};
use brunt_result::summary::{PointSummary, RunSummary};

use crate::experiment::{Plan, PlanError, Point};

/// The engine that all of these use; `None` if they differ or one is unknown.
fn common(mut engines: impl Iterator<Item = Option<IoEngine>>) -> Option<IoEngine> {
    let first = engines.next()??;
    engines.all(|engine| engine == Some(first)).then_some(first)
}

/// Records the engine of a run with this preparation, and of its jobs; then the engine of its point and of the jobs'
/// points, which the first run determines. The hosts of the runs have already been recorded.
pub(super) fn record(
    prepared: Option<&PreparedLoad>,
    run: &mut RunSummary,
    jobs: &mut [RunSummary],
    points: &mut [PointSummary],
) {
    let Some(prepared) = prepared else { return };
    let of_jobs = prepared.jobs.iter().map(|job| &job.engine);
    for ((choice, job), point) in of_jobs.zip(jobs.iter_mut()).zip(&mut points[1..]) {
        settle(choice.as_ref(), job, point);
    }
    match jobs {
        [] => settle(prepared.engine.as_ref(), run, &mut points[0]),
        jobs => run.engine = common(jobs.iter().map(|job| job.engine)),
    }
}

fn settle(choice: Option<&EngineChoice>, run: &mut RunSummary, point: &mut PointSummary) {
    // Hosts report their own engines.
    run.engine = match run.hosts.is_empty() {
        true => choice.map(|choice| choice.engine),
        false => common(run.hosts.iter().map(|host| host.engine)),
    };
    if point.engine.is_none() {
        let unmeasured = |engine| EngineChoice::unmeasured(engine, "common to all of its hosts");
        point.engine = choice.cloned().or_else(|| run.engine.map(unmeasured));
    }
}

/// A note on a point's engine, if it is not the default engine, was chosen by measurement, or differs between hosts.
pub(super) fn note(point: &PointSummary) -> Option<String> {
    if let Some(choice) = &point.engine {
        let is_usual = choice.engine == IoEngine::default() && choice.trials.is_empty();
        let said = format!("engine: {}, {}", choice.engine, choice.why);
        return (!is_usual).then_some(said);
    }
    let hosts = point.runs.iter().flat_map(|run| &run.hosts);
    let engines: BTreeMap<&str, IoEngine> = hosts
        .filter_map(|host| Some((host.name.as_str(), host.engine?)))
        .collect();
    let each: Vec<String> = engines
        .iter()
        .map(|(host, engine)| format!("{engine} on {host}"))
        .collect();
    (common(engines.values().copied().map(Some)).is_none() && !each.is_empty())
        .then(|| format!("engine: {}", each.join(", ")))
}

/// The engine setting of a point's workload, if its load uses rings.
fn setting(point: &Point) -> Option<Option<EngineSetting>> {
    match point.load.info().engine {
        EngineNeed::None => None,
        EngineNeed::Usual => Some(None),
        EngineNeed::Stated(setting) => Some(Some(setting)),
    }
}

impl Point {
    /// The predicted engine for the point's requests, as far as this machine knows; `None` for a load that needs no
    /// engine, and for one of several jobs.
    pub fn engine(&self) -> Option<String> {
        let setting = setting(self)?;
        if !self.hosts().is_empty() {
            return Some(match setting {
                None => "as configured on each host".into(),
                Some(EngineSetting::Auto) => {
                    "auto, measured on its hosts before the first run".into()
                }
                Some(stated) => format!("{}, as set in the workload", stated.name()),
            });
        }
        Some(match preview(setting, self.load.info().ring) {
            Ok(EnginePreview::Settled(choice)) => format!("{}, {}", choice.engine, choice.why),
            Ok(EnginePreview::Measured) => "auto, measured before the first run".into(),
            // Another machine may be able to run it.
            Err(error) => format!("not on this machine: {error}"),
        })
    }
}

impl Plan {
    /// Refuses points that need an engine that this machine lacks; other hosts report what they lack.
    ///
    /// # Errors
    /// Returns the first point that cannot run here, and why.
    pub fn check_engines(&self) -> Result<(), PlanError> {
        for point in self.points.iter().filter(|point| point.hosts().is_empty()) {
            if let Some(setting) = setting(point) {
                preview(setting, point.load.info().ring)
                    .map_err(|error| PlanError::new(&point.label, error))?;
            }
        }
        Ok(())
    }
}

/// Each engine in a plan; if there are several, with the points that use it.
pub(super) fn planned(plan: &Plan) -> Vec<String> {
    let mut engines: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for point in &plan.points {
        if let Some(engine) = point.engine() {
            engines.entry(engine).or_default().push(&point.label);
        }
    }
    let is_one = engines.len() == 1;
    engines
        .into_iter()
        .map(|(engine, points)| match is_one {
            true => format!("engine: {engine}"),
            false => format!("engine of {}: {engine}", points.join(", ")),
        })
        .collect()
}
