//! Checks the axes of `[sweep]` against the rest of the file.
//!
//! The rule: every point is checked, not only every value.

use brunt_core::device_url::is_secret_key;
use brunt_load::block::workload::Arrival;
use brunt_load::replay::settings::ReplayTiming;

use super::lab_check::MTU;
use super::mistake::{FileError, Source};
use super::sweep::{AxisValue, FILE_SIZE_AXIS, touches};
use super::{Experiment, LinkBack, LinkOptions, RUNS_MAX, TogetherEntry};
use crate::fault::FaultEntry;
use crate::plain::moves_text;

/// Number of axes that are a workload's own keys; these axes come first.
const OWN_AXES: usize = 7;

impl Experiment {
    pub(super) fn check_sweep(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        self.check_runs(source)?;
        self.check_file_sizes(source)?;
        self.check_link_axes(source)?;
        self.check_option_axes(source)?;
        self.check_rate_and_speed(source)?;
        for draft in self.drafts(&self.fleet()) {
            if let Err(error) = draft.check() {
                let mut axes = draft.axes.iter().map(|(axis, _)| axis.as_str());
                let axis = axes.find(|axis| touches(axis, error.key));
                let path = ["sweep", axis.unwrap_or(error.key)];
                return Err(source.mistake(&path, format!("{}: {}", draft.label(), error), None));
            }
        }
        Ok(())
    }

    /// Refuses a sweep with too many runs.
    fn check_runs(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
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
            axes.link
                .values()
                .map(|values| values.len().max(1))
                .fold(1, usize::saturating_mul),
        ];
        let product = |lengths: &[usize]| {
            lengths
                .iter()
                .map(|length| (*length).max(1))
                .fold(1usize, usize::saturating_mul)
        };
        let points = product(&lengths);
        let phases: usize = self
            .workloads
            .own()
            .map(|(_, entry)| entry.loads().len() * self.sized(entry).len())
            .sum();
        let on_target = |target: &String| {
            let options = axes.options_of(target);
            options.saturating_mul(self.workloads.on_targets().count())
        };
        let alone = self.targets.keys().map(on_target);
        // Each job is a point, and so is the group.
        let of_group = |group: &TogetherEntry| {
            let options = group.targets().into_iter();
            let options = options.map(|target| axes.options_of(&target));
            options.fold(group.jobs.len() + 1, usize::saturating_mul)
        };
        let jobs = self.workloads.groups().map(|(_, group)| of_group(group));
        let loads = alone.chain(jobs).fold(0, usize::saturating_add);
        let most = self
            .precision_goal()
            .map_or(self.repetitions, |goal| goal.repetitions_max);
        let all = points
            .saturating_mul(loads)
            .saturating_add(phases.saturating_mul(product(&lengths[OWN_AXES..])))
            .saturating_mul(most as usize);
        if all > RUNS_MAX {
            let what = format!("these axes make {all} runs, more than {RUNS_MAX}");
            return Err(source.mistake(&["sweep"], what, Some("remove values from axes".into())));
        }
        Ok(())
    }

    /// Checks that all workloads have a rate or speed to vary if these are swept.
    fn check_rate_and_speed(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        let axes = &self.sweep;
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
        Ok(())
    }

    /// Checks that there are file systems whose files can have these sizes.
    fn check_file_sizes(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        let Some(first) = self.sweep.file_size.first() else {
            return Ok(());
        };
        if self
            .workloads
            .own()
            .all(|(_, entry)| entry.with_file_size(*first).is_none())
        {
            let what = "file_size is swept, but there is no file system".to_string();
            let help = "add [filesystems.NAME] with a directory".to_string();
            return Err(source.mistake(&["sweep", FILE_SIZE_AXIS], what, Some(help)));
        }
        for (index, size) in self.sweep.file_size.iter().enumerate() {
            for (name, entry) in self.workloads.own() {
                let sized = entry.with_file_size(*size);
                if let Some(Err(error)) = sized.map(|entry| entry.check()) {
                    let index = index.to_string();
                    let path = ["sweep", FILE_SIZE_AXIS, index.as_str()];
                    let what = format!("{name} with {size}: {}: {}", error.key, error.what);
                    return Err(source.mistake(&path, what, None));
                }
            }
        }
        Ok(())
    }

    /// Checks the swept keys of links, and each of their values by itself.
    fn check_link_axes(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        for (key, values) in &self.sweep.link {
            let path = ["sweep", "link", key.as_str()];
            if ["delay", "loss", "rate"].contains(&key.as_str()) {
                let what = format!("{key} of links has its own axis");
                let help = format!("write link_{key} = [ … ] under [sweep]");
                return Err(source.mistake(&path, what, Some(help)));
            }
            let known = ["mtu", "preset"].iter().chain(LinkBack::KEYS);
            if !known.clone().any(|known| known == key) {
                let what = format!("links have no key {key} that can be swept");
                let known: Vec<&str> = known.copied().collect();
                let help = format!("the keys are {}", known.join(", "));
                return Err(source.mistake(&path, what, Some(help)));
            }
            for (index, value) in values.iter().enumerate() {
                if let Some(what) = wrong_link_value(key, value) {
                    let index = index.to_string();
                    let path = ["sweep", "link", key.as_str(), index.as_str()];
                    return Err(source.mistake(&path, what, None));
                }
            }
        }
        Ok(())
    }

    /// Checks that the targets exist whose options are swept. Only the code that opens a target knows whether its URL
    /// accepts these options.
    fn check_option_axes(&self, source: &Source<'_>) -> Result<(), Box<FileError>> {
        for (name, options) in &self.sweep.options {
            let path = ["sweep", "options", name.as_str()];
            let Some(target) = self.targets.get(name) else {
                let what =
                    format!("the sweep varies options of target {name}, which does not exist");
                let known: Vec<&str> = self.targets.keys().map(String::as_str).collect();
                let help = format!("the targets are {}", known.join(", "));
                return Err(source.mistake(&path, what, Some(help)));
            };
            let on_device = |fault: &FaultEntry| {
                fault.common.target == *name && fault.kind.as_kind().wants_fault_layer()
            };
            if target.serve.is_none() && self.fault.iter().any(on_device) {
                let what = format!(
                    "options of target {name} are swept, so it is opened several times, but a fault \
                     affects only one device"
                );
                let help = "have the experiment serve the target (serve = …), or remove the fault";
                return Err(source.mistake(&path, what, Some(help.to_string())));
            }
            for (option, values) in options {
                let path = ["sweep", "options", name.as_str(), option.as_str()];
                if is_secret_key(option) {
                    let what =
                        format!("{option} is a secret, but results show the values of an axis");
                    return Err(source.mistake(&path, what, Some("write it in the url".into())));
                }
                let is_no_value = |value: &&AxisValue| {
                    value
                        .to_string()
                        .contains(|letter: char| letter == '&' || moves_text(letter))
                };
                if let Some(value) = values.iter().find(is_no_value) {
                    let what = format!(
                        "{option}: {:?} is not a valid option value",
                        value.to_string()
                    );
                    return Err(source.mistake(&path, what, None));
                }
            }
        }
        Ok(())
    }
}

/// Why a key of a link can't have this value, regardless of the link's other keys.
fn wrong_link_value(key: &str, value: &AxisValue) -> Option<String> {
    let text = value.to_string();
    match key {
        "mtu" if value.mtu().is_none() => Some(format!(
            "an MTU of {text}; write {} to {}",
            MTU.start(),
            MTU.end()
        )),
        "mtu" => None,
        // Under [lab.links], paths are relative to the file that contains them; here they would not be.
        "distribution" if text.contains('/') && !text.starts_with('/') => Some(format!(
            "{text}: write a relative path under [lab.links], or an absolute one"
        )),
        _ => LinkOptions::set_on(&format!("{key}={text}"), &mut Default::default())
            .err()
            .map(|error| error.to_string()),
    }
}
