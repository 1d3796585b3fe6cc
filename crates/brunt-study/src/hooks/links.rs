//! The links of a lab during a run: configured before it, counted after it.
//!
//! The rule: each run starts with the links as its point defines them, and with a fresh random sequence; unintended
//! packet loss invalidates the run.

use std::collections::BTreeMap;
use std::sync::Arc;

use brunt_lab::LabError;
use brunt_lab::link::Settings;
use brunt_result::Outcome;
use brunt_result::link::{LinkCounts, LinkReport};
use brunt_result::void::{VoidReason, joined};

use super::{HookError, RunHook};
use crate::lab::{BuiltLab, link_seed};
use crate::observe::{Hub, RunInfo};
use brunt_result::summary::RunSummary;

/// Configures the links for each run; `points` has the links' settings at each point of the experiment, and `mtus`
/// their MTUs.
pub(super) fn links(
    lab: &BuiltLab,
    points: Vec<BTreeMap<String, [Settings; 2]>>,
    mtus: Vec<BTreeMap<String, u32>>,
) -> Box<dyn RunHook> {
    let (before, seen) = Default::default();
    Box::new(Links {
        lab: lab.clone(),
        points,
        mtus,
        point: 0,
        before,
        seen,
    })
}

/// The hook.
struct Links {
    lab: BuiltLab,
    /// The settings of all links at each point.
    points: Vec<BTreeMap<String, [Settings; 2]>>,
    /// The MTUs of all links at each point.
    mtus: Vec<BTreeMap<String, u32>>,
    /// The current run's point.
    point: usize,
    before: BTreeMap<String, LinkReport>,
    seen: BTreeMap<String, LinkReport>,
}

impl Links {
    fn reports(&self) -> Result<BTreeMap<String, LinkReport>, LabError> {
        Ok(self.lab.lab().reports()?.into_iter().collect())
    }
}

/// A warning about a direction whose queue was full and too short for its line rate.
pub(crate) fn queue_doubt(name: &str, way: &Settings, counts: &LinkCounts) -> Option<String> {
    let warning = way.queue_warning().filter(|_| counts.queue_full > 0)?;
    let (full, of) = (counts.queue_full, counts.packets);
    Some(format!(
        "link {name}: {full} of {of} packets arrived at a full queue: {warning}"
    ))
}

impl RunHook for Links {
    fn begin(&mut self, run: &RunInfo, _hub: &Arc<Hub>) -> Result<(), HookError> {
        self.point = run.point as usize;
        let mut lab = self.lab.lab();
        for (number, (name, settings)) in self.points[self.point].iter().enumerate() {
            let seed = link_seed(run.seed, number);
            let restarted = lab.restart(name, settings.clone(), seed);
            restarted.map_err(|error| HookError::not_ready(format!("link {name}"), error))?;
        }
        for (name, mtu) in &self.mtus[self.point] {
            let set = lab.set_mtu(name, *mtu);
            set.map_err(|error| HookError::not_ready(format!("link {name}"), error))?;
        }
        drop(lab);
        self.before = self
            .reports()
            .map_err(|error| HookError::not_ready("the lab's links", error))?;
        Ok(())
    }

    fn end(&mut self, _complete: bool) -> Result<(), HookError> {
        let unread =
            |error| HookError::new(VoidReason::LinksUnread, "the lab's links").because(error);
        self.seen = self.reports().map_err(unread)?;
        for (name, report) in &mut self.seen {
            *report = report.since(&self.before.get(name).copied().unwrap_or_default());
            let unintended = report.there.unintended() + report.back.unintended();
            if unintended > 0 {
                let what = format!("link {name}: {}", joined(&report.trouble()));
                return Err(HookError::new(VoidReason::LinkDropped, what));
            }
        }
        Ok(())
    }

    fn sum_up(&mut self, run: &mut RunSummary, _outcome: &Outcome) {
        for (name, report) in &self.seen {
            run.doubts.extend(
                report
                    .trouble()
                    .iter()
                    .map(|trouble| format!("link {name}: {trouble}")),
            );
            let settings = self.points[self.point].get(name);
            for (way, counts) in settings
                .into_iter()
                .flatten()
                .zip([&report.there, &report.back])
            {
                run.doubts.extend(queue_doubt(name, way, counts));
            }
        }
        run.links = std::mem::take(&mut self.seen);
    }
}
