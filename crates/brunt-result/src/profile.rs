//! Where the CPU went during a run: user, system and interrupt time of each phase, and what samples of running
//! functions found, by role and by part of the storage path. `brunt-profile` measures it; the terminal and the page
//! show it.
//!
//! The rule: samples count time on a processor only, so waiting appears as idle time of the machine, not as samples.
//! A sample whose function has no name is counted as unnamed; its name is never guessed.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::degradation::PhaseKind;

/// Functions kept for each role and phase of a run.
pub const HOTTEST_MAX: usize = 20;

/// A part of the storage path, as distinguished in performance studies of iSCSI.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum CpuPart {
    /// Copies of data, and clearing of memory.
    Copying,
    /// CRC32C digests and other checksums and hashes.
    Checksums,
    /// TCP, IP, sockets and network devices.
    Network,
    /// iSCSI and SCSI: sessions, PDUs, commands.
    Scsi,
    /// File systems, page cache, block layer and block drivers.
    Storage,
    /// Scheduler, sleeping and waking up: the cost of waiting, not its duration.
    Waiting,
    /// Named functions that belong to no other part of the path.
    Other,
    /// Functions whose name is unknown.
    Unknown,
}

impl CpuPart {
    /// All parts, in the order in which they are shown.
    pub const ALL: [CpuPart; 8] = [
        CpuPart::Copying,
        CpuPart::Checksums,
        CpuPart::Network,
        CpuPart::Scsi,
        CpuPart::Storage,
        CpuPart::Waiting,
        CpuPart::Other,
        CpuPart::Unknown,
    ];

    /// The part's key in `summary.json` and in tables.
    pub fn name(self) -> &'static str {
        match self {
            CpuPart::Copying => "copying",
            CpuPart::Checksums => "checksums",
            CpuPart::Network => "network",
            CpuPart::Scsi => "scsi",
            CpuPart::Storage => "storage",
            CpuPart::Waiting => "waiting",
            CpuPart::Other => "other",
            CpuPart::Unknown => "unknown",
        }
    }

    /// The part's name for display.
    pub fn title(self) -> &'static str {
        match self {
            CpuPart::Copying => "copying",
            CpuPart::Checksums => "checksums",
            CpuPart::Network => "TCP and network",
            CpuPart::Scsi => "iSCSI and SCSI",
            CpuPart::Storage => "file system and block",
            CpuPart::Waiting => "scheduler",
            CpuPart::Other => "other",
            CpuPart::Unknown => "no function name",
        }
    }

    /// The part with this key.
    pub fn named(name: &str) -> Option<CpuPart> {
        CpuPart::ALL.into_iter().find(|part| part.name() == name)
    }
}

/// The CPU profile of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunProfile {
    /// Sampling rate per busy processor, in samples per second.
    pub hz: u32,
    /// Why functions were not sampled, and how to permit sampling; `null` if they were sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// Why kernel functions have no names; `null` if they have names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_unnamed: Option<String>,
    /// Samples that the kernel lost because its buffer was full.
    pub lost: u64,
    /// Samples that were not kept because they exceeded the limits on samples and distinct stacks.
    pub dropped: u64,
    /// CPU seconds used for reading samples and counters during the run; taking the samples costs more in the kernel.
    pub sampler_cpu_s: f64,
    /// Phases before, during and after the faults; without faults, the whole measured time is one phase.
    pub phases: Vec<PhaseProfile>,
    /// All call stacks; stored in the table `profiles`.
    #[serde(skip)]
    pub stacks: Vec<ProfileStack>,
}

/// The CPU profile of a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseProfile {
    /// The phase's position relative to the faults; `null` for a run without faults.
    pub kind: Option<PhaseKind>,
    /// Names of the faults in effect.
    pub faults: Vec<String>,
    /// Start of the phase, in seconds from the start of measuring.
    pub start_s: f64,
    /// Length of the phase, in seconds.
    pub seconds: f64,
    /// CPU time of all processors; `null` if the kernel's counters could not be read.
    pub machine: Option<MachineTimes>,
    /// Roles: worker, targets, services, kernel threads and other programs.
    pub roles: Vec<RoleProfile>,
}

/// CPU time of all processors of the machine, in CPU seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineTimes {
    /// Time in programs.
    pub user_s: f64,
    /// Time in the kernel on behalf of programs and kernel threads.
    pub system_s: f64,
    /// Time in interrupts: hardware interrupts and softirqs, such as those that receive packets.
    pub interrupt_s: f64,
    /// Idle time, including waits for disks.
    pub idle_s: f64,
    /// Time that the hypervisor gave to other guests.
    pub stolen_s: f64,
}

/// The CPU profile of a role during a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoleProfile {
    /// `worker` (the process that runs the experiment), the name of a target or service, `kernel threads` or
    /// `other programs`.
    pub role: String,
    /// CPU seconds in user mode; `null` for kernel threads and other programs, whose times are not counted.
    pub user_s: Option<f64>,
    /// CPU seconds in the kernel; `null` for kernel threads and other programs.
    pub system_s: Option<f64>,
    /// Number of samples.
    pub samples: u64,
    /// Samples whose innermost function has no name.
    pub unnamed: u64,
    /// Samples by part of the storage path; parts without samples are absent.
    pub parts: BTreeMap<CpuPart, u64>,
    /// The functions with the most samples, at most 20.
    pub hottest: Vec<HotFunction>,
}

/// A function that used CPU time itself, not counting the functions that it called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HotFunction {
    /// Name of the function.
    pub function: String,
    /// Number of samples.
    pub samples: u64,
}

/// A call stack and how many samples found it.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileStack {
    /// Index of the stack's phase in [`RunProfile::phases`].
    pub phase: usize,
    /// Role that the stack belongs to.
    pub role: String,
    /// Functions from the outermost to the innermost, joined by `;`. The first is the program's name.
    pub stack: String,
    /// The part of the storage path.
    pub part: CpuPart,
    /// Number of samples.
    pub samples: u64,
}

impl MachineTimes {
    /// The counters since `earlier`.
    pub fn since(&self, earlier: &MachineTimes) -> MachineTimes {
        let less = |now: f64, before: f64| (now - before).max(0.0);
        MachineTimes {
            user_s: less(self.user_s, earlier.user_s),
            system_s: less(self.system_s, earlier.system_s),
            interrupt_s: less(self.interrupt_s, earlier.interrupt_s),
            idle_s: less(self.idle_s, earlier.idle_s),
            stolen_s: less(self.stolen_s, earlier.stolen_s),
        }
    }

    fn add(&mut self, other: &MachineTimes) {
        self.user_s += other.user_s;
        self.system_s += other.system_s;
        self.interrupt_s += other.interrupt_s;
        self.idle_s += other.idle_s;
        self.stolen_s += other.stolen_s;
    }
}

impl RoleProfile {
    /// Share of samples in this part; `None` without samples.
    pub fn share(&self, part: CpuPart) -> Option<f64> {
        let samples = self.parts.get(&part).copied().unwrap_or(0);
        (self.samples > 0).then(|| samples as f64 / self.samples as f64)
    }

    /// Sorts functions by samples and keeps the first.
    pub fn keep_hottest(&mut self) {
        let order = |a: &HotFunction, b: &HotFunction| {
            (b.samples, &a.function).cmp(&(a.samples, &b.function))
        };
        self.hottest.sort_by(order);
        self.hottest.truncate(HOTTEST_MAX);
    }

    fn add(&mut self, other: &RoleProfile) {
        let sum = |a: Option<f64>, b: Option<f64>| Some(a? + b?);
        self.user_s = sum(self.user_s, other.user_s);
        self.system_s = sum(self.system_s, other.system_s);
        self.samples += other.samples;
        self.unnamed += other.unnamed;
        for (part, samples) in &other.parts {
            *self.parts.entry(*part).or_default() += samples;
        }
        for hot in &other.hottest {
            let same = |one: &&mut HotFunction| one.function == hot.function;
            match self.hottest.iter_mut().find(same) {
                Some(one) => one.samples += hot.samples,
                None => self.hottest.push(hot.clone()),
            }
        }
        self.keep_hottest();
    }
}

impl PhaseProfile {
    /// Adds another phase of the same kind.
    fn add(&mut self, other: &PhaseProfile) {
        self.seconds += other.seconds;
        self.machine = match (self.machine, &other.machine) {
            (Some(mut sum), Some(more)) => {
                sum.add(more);
                Some(sum)
            }
            _ => None,
        };
        for role in &other.roles {
            match self.roles.iter_mut().find(|one| one.role == role.role) {
                Some(one) => one.add(role),
                None => self.roles.push(role.clone()),
            }
        }
    }

    /// The phase's name for display: `during slow disk`.
    pub fn title(&self) -> String {
        match (self.kind, self.faults.is_empty()) {
            (None, _) => "whole run".into(),
            (Some(kind), true) => kind.name().into(),
            (Some(kind), false) => format!("{} {}", kind.name(), self.faults.join(" and ")),
        }
    }
}

/// The profiles of runs, phase by phase: sums over the runs, and over phases of one run that have the same kind and
/// faults.
pub fn profile_over_runs<'a>(profiles: impl Iterator<Item = &'a RunProfile>) -> Vec<PhaseProfile> {
    let mut sums: Vec<PhaseProfile> = Vec::new();
    for phase in profiles.flat_map(|profile| &profile.phases) {
        let same = |sum: &&mut PhaseProfile| (sum.kind, &sum.faults) == (phase.kind, &phase.faults);
        match sums.iter_mut().find(same) {
            Some(sum) => sum.add(phase),
            None => sums.push(phase.clone()),
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(samples: u64, functions: &[(&str, u64)]) -> PhaseProfile {
        let hot = |(function, samples): &(&str, u64)| HotFunction {
            function: function.to_string(),
            samples: *samples,
        };
        let role = RoleProfile {
            role: "worker".into(),
            user_s: Some(1.0),
            samples,
            parts: [(CpuPart::Copying, samples)].into(),
            hottest: functions.iter().map(hot).collect(),
            ..RoleProfile::default()
        };
        PhaseProfile {
            seconds: 2.0,
            roles: vec![role],
            ..PhaseProfile::default()
        }
    }

    #[test]
    fn part_names_are_their_keys() {
        for part in CpuPart::ALL {
            assert_eq!(CpuPart::named(part.name()), Some(part));
            let key = serde_json::to_string(&part).unwrap();
            assert_eq!(key, format!("\"{}\"", part.name()));
        }
    }

    /// Samples of several runs are added by function and part; a time that is unknown for one run is unknown for the
    /// sum.
    #[test]
    fn runs_add_up() {
        let of = |phase| RunProfile {
            phases: vec![phase],
            ..RunProfile::default()
        };
        let runs = [
            of(phase(10, &[("memcpy", 6), ("crc32c", 4)])),
            of(phase(9, &[("crc32c", 9)])),
        ];
        let sums = profile_over_runs(runs.iter());
        let role = &sums[0].roles[0];
        assert_eq!((sums.len(), sums[0].seconds, role.samples), (1, 4.0, 19));
        assert_eq!((role.user_s, role.system_s), (Some(2.0), None));
        assert_eq!(role.share(CpuPart::Copying), Some(1.0));
        assert_eq!(role.hottest[0].function, "crc32c");
        assert_eq!(role.hottest[0].samples, 13);
    }
}
