//! Checks the axes of `[sweep]` against the rest of the file.
//!
//! The rule: every point is checked, not only every value.

use brunt_load::block::workload::Arrival;
use brunt_load::replay::settings::ReplayTiming;

use super::mistake::{FileError, Source};
use super::sweep::touches;
use super::{Experiment, RUNS_MAX};

/// Number of axes that are a workload's own keys; they come first.
const OWN_AXES: usize = 7;

impl Experiment {
    pub(super) fn check_sweep(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        let axes = &self.sweep;
        let lengths = [
            axes.block_size.len(),
            axes.queue_depth.len(),
            axes.workers.len(),
            axes.read.len(),
            axes.sequential.len(),
            axes.rate.len(),
            axes.speed.len(),
            self.groups_of_clients(),
            axes.link_delay.len(),
            axes.link_loss.len(),
            axes.link_rate.len(),
        ];
        let product = |lengths: &[usize]| {
            lengths
                .iter()
                .map(|length| (*length).max(1))
                .fold(1usize, usize::saturating_mul)
        };
        let points = product(&lengths);
        let phases: usize = self
            .filesystems
            .values()
            .map(|load| load.phases.len())
            .sum();
        // Each job has a point, and so has the group.
        let jobs = self
            .together
            .values()
            .map(|group| group.jobs.len() + 1)
            .sum::<usize>();
        let most = self
            .precision_goal()
            .map_or(self.repetitions, |goal| goal.repetitions_max);
        let all = points
            .saturating_mul(self.targets.len() * self.workloads.len() + jobs)
            .saturating_add(phases.saturating_mul(product(&lengths[OWN_AXES..])))
            .saturating_mul(most as usize);
        if all > RUNS_MAX {
            let what = format!("these axes make {all} runs, more than {RUNS_MAX}");
            return Err(source.mistake(&["sweep"], what, Some("leave values out".into())));
        }
        let closed = self
            .swept_workloads()
            .find(|(_, workload)| !matches!(workload.arrival, Arrival::Open { .. }));
        if !axes.rate.is_empty()
            && let Some((name, _)) = closed
        {
            let what = format!("rate is swept, but workload {name} is not an open loop");
            let help = format!(
                "write arrival = {{ kind = \"open\", rate = 1000 }} under [workloads.{name}]"
            );
            return Err(source.mistake(&["sweep", "rate"], what, Some(help)));
        }
        let without = self.swept_workloads().find(|(_, workload)| {
            workload
                .replay()
                .is_none_or(|settings| settings.timing == ReplayTiming::Depth)
        });
        if !axes.speed.is_empty()
            && let Some((name, _)) = without
        {
            let what = format!(
                "speed is swept, but workload {name} does not replay a trace with its original timing"
            );
            let help = format!(
                "write trace = \"requests.vscsi\" under [workloads.{name}], without timing = \"depth\""
            );
            return Err(source.mistake(&["sweep", "speed"], what, Some(help)));
        }
        for draft in self.drafts(&self.fleet()) {
            if let Err(error) = draft.check() {
                let axis = draft
                    .axes
                    .iter()
                    .map(|(axis, _)| *axis)
                    .find(|axis| touches(axis, error.key));
                let path = ["sweep", axis.unwrap_or(error.key)];
                return Err(source.mistake(&path, format!("{}: {}", draft.label(), error), None));
            }
        }
        Ok(())
    }
}
