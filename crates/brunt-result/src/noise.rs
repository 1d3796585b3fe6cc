//! How quiet the machine was during a run: late wake-ups of a separate thread, the duration of a fixed piece of work,
//! how long the load's threads waited for a processor, and which programs used the processors instead. `brunt-probe`
//! measures it; the terminal, the page and comparisons use it to explain differences and the costs of faults.
//!
//! The rule: the load itself keeps processors busy, and its threads also wait for each other, so a wait is blamed on
//! the machine only as far as other programs, the hypervisor or a quota used the processors in the meantime.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::statistics::MachineAllowance;
use crate::summary::{PointSummary, RunSummary};
use crate::void::{Doubt, VoidReason};

/// Machine noise above this share is reported.
pub const NOISE_SHOWN: f64 = 0.02;
/// Other programs that use at least this share of a processor are reported, however little they slow the load down.
pub const OTHERS_SHOWN: f64 = 0.1;
/// Speed that varies by more than this from run to run is reported; on an idle virtual machine it varies by 1 to 3 %.
pub const UNEVEN_SHOWN: f64 = 0.05;
/// Only a program that was stopped, suspended or starved can be woken up this late.
pub const STALL: Duration = Duration::from_millis(250);
/// A run throttled for more than this share of its time is doubtful.
const THROTTLED_DOUBTFUL: f64 = 0.01;

/// The state of the machine during one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineNoise {
    /// Share of all processors' time that the hypervisor gave to other guests; `null` if the kernel does not report
    /// it.
    pub stolen_share: Option<f64>,
    /// Mean delay with which a sleeping thread was woken.
    pub wakeup_mean_us: f64,
    /// The longest delay of a wake-up.
    pub wakeup_max_us: f64,
    /// Seconds by which wake-ups of 250 ms and more were late: Brunt itself was stopped, suspended or starved.
    #[serde(default)]
    pub stalled_s: Option<f64>,
    /// Share of their time in which the load's threads, and those of a target that Brunt serves, were ready to run
    /// but waited for a processor; `null` if the kernel does not count it.
    #[serde(default)]
    pub waited_share: Option<f64>,
    /// CPU time that other programs used, as a number of CPUs; not Brunt, its children, the kernel, or a server on this
    /// machine to which Brunt had TCP connections.
    #[serde(default)]
    pub others_cpus: Option<f64>,
    /// The program that used most of the CPU time in `others_cpus`, and how much it used.
    #[serde(default)]
    pub others_most: Option<String>,
    /// Share of the time that Brunt's control group was stopped because its CPU quota was used up.
    #[serde(default)]
    pub throttled_share: Option<f64>,
    /// CPU time that the quota of Brunt's control group allows, as a number of CPUs.
    #[serde(default)]
    pub quota_cpus: Option<f64>,
    /// Processes of Brunt's control group that the kernel killed because memory ran out.
    #[serde(default)]
    pub oom_kills: Option<u64>,
    /// Share of the time that some task of the machine waited for a processor (PSI).
    #[serde(default)]
    pub pressure_share: Option<f64>,
    /// Mean frequency of the processors; `null` if the kernel does not report it.
    #[serde(default)]
    pub frequency_mhz: Option<f64>,
    /// Mean time that a fixed piece of work took.
    pub work_mean_us: f64,
    /// The median duration of the piece of work, which preemption hardly affects: the processors' speed.
    #[serde(default)]
    pub work_median_us: Option<f64>,
    /// The shortest duration of the piece of work.
    pub work_min_us: f64,
    /// Number of measurements of wake-ups and of the piece of work.
    pub samples: u64,
}

impl MachineNoise {
    /// The share of a response time that the machine could explain: waits of the load's threads, as far as others
    /// could have caused them, and stolen time. A waiting thread delays all its requests by the same time, so the
    /// share of the mean response time equals the share of the thread's time.
    pub fn explains(&self) -> f64 {
        let throttled = self.throttled_share.unwrap_or(0.0);
        let others = self.others_cpus.unwrap_or(0.0) + throttled;
        let waited = self.waited_share.unwrap_or(0.0).min(others).max(throttled);
        (waited + self.stolen_share.unwrap_or(0.0)).min(1.0)
    }

    /// Why the run is doubtful: Brunt was stopped or throttled, or the kernel killed processes because memory ran
    /// out.
    pub fn doubts(&self) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        let mut say = |reason: VoidReason, what: String| {
            let what = format!("{what}; {}", reason.instead().unwrap_or_default());
            doubts.push(Doubt { reason, what });
        };
        if let Some(stalled) = self.stalled_s.filter(|stalled| *stalled > 0.0) {
            let longest = self.wakeup_max_us / 1e6;
            let what = format!(
                "Brunt itself did not run for {stalled:.1} s, up to {longest:.1} s at a time, and requests waited for \
                 it"
            );
            say(VoidReason::Stalled, what);
        }
        if let Some(share) = self
            .throttled_share
            .filter(|share| *share > THROTTLED_DOUBTFUL)
        {
            let quota = self
                .quota_cpus
                .map_or(String::new(), |cpus| format!(" of {cpus:.2} processors"));
            let percent = share * 100.0;
            let what = format!(
                "the CPU quota{quota} of Brunt's control group was used up, and stopped it for {percent:.1}% of the time"
            );
            say(VoidReason::Throttled, what);
        }
        if let Some(kills) = self.oom_kills.filter(|kills| *kills > 0) {
            let what = format!(
                "the kernel killed {kills} processes of Brunt's control group because memory ran out"
            );
            say(VoidReason::OutOfMemory, what);
        }
        doubts
    }

    /// The processors' speed, measured as the time of a fixed piece of work that preemption hardly affects. Old
    /// results lack the median, so their shortest time is used.
    fn speed_us(&self) -> (bool, f64) {
        self.work_median_us
            .map_or((false, self.work_min_us), |median| (true, median))
    }
}

/// The influence of the machine's noise on the figures of a point, as shares.
#[derive(Clone, Debug, PartialEq)]
pub struct NoiseShare {
    /// Share of the response time that the machine could explain, over the point's runs.
    pub explains: f64,
    /// CPU time used by other programs, as a number of CPUs.
    pub others_cpus: Option<f64>,
    /// The program that used most of that time, from the run in which its use was highest.
    pub others_most: Option<String>,
    /// Share of processor time stolen by the hypervisor.
    pub stolen: f64,
    /// Variation of the processors' speed from run to run: deviation over mean.
    pub uneven: f64,
    /// Longest delay of a wake-up, in microseconds.
    pub wakeup_max_us: f64,
    /// Whether a run was stopped for a long time.
    pub stalled: bool,
}

impl NoiseShare {
    /// The noise of a point's complete runs; `None` if none was measured.
    pub fn of(point: &PointSummary) -> Option<NoiseShare> {
        let noises: Vec<&MachineNoise> = noises(point).collect();
        if noises.is_empty() {
            return None;
        }
        let mean = |get: &dyn Fn(&MachineNoise) -> Option<f64>| {
            let figures: Vec<f64> = noises.iter().filter_map(|noise| get(noise)).collect();
            (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
        };
        let most = noises.iter().max_by(|a, b| {
            a.others_cpus
                .unwrap_or(0.0)
                .total_cmp(&b.others_cpus.unwrap_or(0.0))
        });
        let longest = noises.iter().map(|noise| noise.wakeup_max_us);
        Some(NoiseShare {
            explains: mean(&|noise| Some(noise.explains()))?,
            others_cpus: mean(&|noise| noise.others_cpus),
            others_most: most.and_then(|noise| noise.others_most.clone()),
            stolen: mean(&|noise| noise.stolen_share).unwrap_or(0.0),
            uneven: unevenness(&noises),
            wakeup_max_us: longest.fold(0.0, f64::max),
            stalled: noises
                .iter()
                .any(|noise| noise.stalled_s.unwrap_or(0.0) > 0.0),
        })
    }

    /// Whether the noise should be reported: a share, the variation of speed or the use by other programs reaches its
    /// threshold, or a run was stopped. A program that uses a fifth of a processor is reported.
    pub fn is_shown(&self) -> bool {
        self.explains >= NOISE_SHOWN
            || self.uneven >= UNEVEN_SHOWN
            || self.stalled
            || self.others_cpus.is_some_and(|cpus| cpus >= OTHERS_SHOWN)
    }

    /// Largest change, as a share, that the machine alone may have caused.
    pub fn explains(&self) -> f64 {
        self.explains + self.uneven
    }

    /// Describes the noise in a sentence, if it should be reported.
    pub fn describe(&self) -> Option<String> {
        let mut parts = Vec::new();
        if let Some(cpus) = self.others_cpus.filter(|cpus| *cpus >= OTHERS_SHOWN) {
            let most = self.others_most.as_ref();
            let most = most.map_or(String::new(), |most| format!(" ({most})"));
            parts.push(format!("others used {cpus:.2} processors{most}"));
        }
        if self.stolen >= NOISE_SHOWN / 2.0 {
            parts.push(format!("{:.1}% stolen", self.stolen * 100.0));
        }
        if self.uneven >= UNEVEN_SHOWN {
            parts.push(format!("speed uneven by {:.1}%", self.uneven * 100.0));
        }
        parts.push(format!(
            "woken up to {:.1} ms late",
            self.wakeup_max_us / 1e3
        ));
        self.is_shown().then(|| {
            let percent = self.explains() * 100.0;
            format!(
                "may explain {percent:.1}% of response times: {}",
                parts.join(", ")
            )
        })
    }
}

/// Variation of the processors' speed from run to run.
fn unevenness(noises: &[&MachineNoise]) -> f64 {
    let speeds: Vec<(bool, f64)> = noises.iter().map(|noise| noise.speed_us()).collect();
    let count = speeds.len() as f64;
    let mean = speeds.iter().map(|(_, us)| us).sum::<f64>() / count;
    let is_one_kind = speeds.iter().all(|(kind, _)| *kind == speeds[0].0);
    if speeds.len() < 2 || mean <= 0.0 || !is_one_kind {
        return 0.0;
    }
    // The deviation is estimated by the median absolute deviation, so that one run on a slow processor
    // does not dominate.
    let mut sorted: Vec<f64> = speeds.iter().map(|(_, us)| *us).collect();
    let middle = median(&mut sorted);
    let mut distances: Vec<f64> = sorted.iter().map(|us| (us - middle).abs()).collect();
    1.4826 * median(&mut distances) / middle
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let count = values.len();
    f64::midpoint(values[(count - 1) / 2], values[count / 2])
}

/// How much slower the machine was for one of two points than for the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineDifference {
    /// Logarithm of the factor by which the machine made response times longer for the second point; negative if
    /// shorter. Covers waits of the load's threads, stolen time and the processors' speed.
    pub log_slower: f64,
    /// Additional CPU time used by other programs for the second point, as a number of CPUs; `None` for old results.
    pub others_cpus: Option<f64>,
    /// How much later the latest wake-up was for the second point, in microseconds: means over runs.
    pub wakeup_max_us: f64,
    /// Whether runs of exactly one of the points were stopped or throttled.
    pub disturbed: bool,
}

/// Kind of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FigureKind {
    /// A rate of requests.
    Rate,
    /// A mean response time.
    Mean,
    /// A high percentile, with its value in microseconds in the first set.
    Tail(f64),
}

/// A measured difference between machines can explain at most this multiple of itself; it is above 1, because waits
/// also leave caches cold, which is not measured.
const MEASURED_TWICE: f64 = 1.5;
/// Increase in the logarithm of response times per processor used by other programs: they share caches, memory and
/// cores, which no measured wait shows.
const OTHERS_COST: f64 = 0.15;
/// Standard deviation between two sessions of the same experiment on the same machine that no measurement explains,
/// in logarithms (docs/results.md).
pub const SESSION: f64 = 0.02;

impl MachineDifference {
    /// The difference between the runs of two points; `None` if either has no measurements.
    pub fn between(a: &PointSummary, b: &PointSummary) -> Option<MachineDifference> {
        let [first, second] = [a, b].map(|point| noises(point).collect::<Vec<_>>());
        if first.is_empty() || second.is_empty() {
            return None;
        }
        let mean = |noises: &[&MachineNoise], get: fn(&MachineNoise) -> Option<f64>| {
            let figures: Vec<f64> = noises.iter().filter_map(|noise| get(noise)).collect();
            (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
        };
        let taken = |noises: &[&MachineNoise]| {
            let shares = noises.iter().map(|noise| noise.explains());
            (shares.sum::<f64>() / noises.len() as f64).min(TAKEN_MAX)
        };
        let log_taken = (1.0 - taken(&first)).ln() - (1.0 - taken(&second)).ln();
        let speed = |noises: &[&MachineNoise], kind: bool| {
            let mut speeds: Vec<f64> = noises
                .iter()
                .map(|noise| noise.speed_us())
                .filter(|(median, us)| *median == kind && *us > 0.0)
                .map(|(_, us)| us)
                .collect();
            (!speeds.is_empty()).then(|| median(&mut speeds))
        };
        let log_speed = [true, false]
            .into_iter()
            .find_map(|kind| Some((speed(&second, kind)? / speed(&first, kind)?).ln()));
        let others = |noises: &[&MachineNoise]| mean(noises, |noise| noise.others_cpus);
        let wakeup = |noises: &[&MachineNoise]| {
            mean(noises, |noise| Some(noise.wakeup_max_us)).unwrap_or_default()
        };
        let doubtful =
            |noises: &[&MachineNoise]| noises.iter().any(|noise| !noise.doubts().is_empty());
        Some(MachineDifference {
            log_slower: log_taken + log_speed.unwrap_or(0.0),
            others_cpus: others(&second).zip(others(&first)).map(|(b, a)| b - a),
            wakeup_max_us: wakeup(&second) - wakeup(&first),
            disturbed: doubtful(&first) != doubtful(&second),
        })
    }

    /// How much the difference between the machines may have changed a figure derived from response times.
    pub fn allowance(&self, of: FigureKind) -> MachineAllowance {
        let others = self.others_cpus.unwrap_or(0.0);
        let (slower, busier) = (self.log_slower * MEASURED_TWICE, others * OTHERS_COST);
        let mut longer = slower.max(0.0) + busier.max(0.0);
        let mut shorter = (-slower).max(0.0) + (-busier).max(0.0);
        if let FigureKind::Tail(us) = of
            && (self.log_slower.abs() >= NOISE_SHOWN || others.abs() >= OTHERS_SHOWN)
        {
            // Waits affect the tail, not all requests evenly.
            let late = (1.0 + self.wakeup_max_us.abs() / us.max(1e-3)).ln();
            match self.wakeup_max_us > 0.0 {
                true => longer += late,
                false => shorter += late,
            }
        }
        let (up, down) = match of {
            FigureKind::Rate => (shorter, longer),
            FigureKind::Mean | FigureKind::Tail(_) => (longer, shorter),
        };
        MachineAllowance {
            session: SESSION,
            up,
            down,
            disturbed: self.disturbed,
        }
    }

    /// Share by which the machine was slower for the second point; negative if faster.
    pub fn slower(&self) -> f64 {
        1.0 - (-self.log_slower).exp()
    }
}

/// Upper limit of the share of time taken by the machine: a share of 1 would explain any change.
const TAKEN_MAX: f64 = 0.95;

fn noises(point: &PointSummary) -> impl Iterator<Item = &MachineNoise> {
    point
        .runs
        .iter()
        .filter(|run| run.is_complete())
        .filter_map(|run: &RunSummary| run.noise.as_ref())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::OpKind;
    use crate::summary::tests::{op, point, run};

    /// The noise of a quiet machine.
    pub(crate) fn quiet() -> MachineNoise {
        MachineNoise {
            stolen_share: Some(0.0),
            wakeup_mean_us: 60.0,
            wakeup_max_us: 900.0,
            stalled_s: Some(0.0),
            waited_share: Some(0.005),
            others_cpus: Some(0.02),
            throttled_share: Some(0.0),
            work_mean_us: 20.0,
            work_median_us: Some(20.0),
            work_min_us: 19.0,
            samples: 40,
            ..MachineNoise::default()
        }
    }

    /// A point of runs with these measurements.
    pub(crate) fn of(noises: &[MachineNoise]) -> PointSummary {
        let one = |noise: &MachineNoise| RunSummary {
            noise: Some(noise.clone()),
            ..run(vec![op(OpKind::Read, 100, 10.0)])
        };
        point("disk w", noises.iter().map(one).collect())
    }

    fn share(noise: MachineNoise) -> NoiseShare {
        NoiseShare::of(&of(&[noise.clone(), noise.clone(), noise.clone(), noise])).unwrap()
    }

    #[test]
    fn a_quiet_machine_is_not_mentioned() {
        let share = share(quiet());
        assert!(
            share.describe().is_none() && share.explains() < NOISE_SHOWN,
            "{share:?}"
        );
        // One preempted sample of the work and one late wake-up don't count as noise; neither do the load's threads
        // waiting for each other.
        let preempted = MachineNoise {
            work_mean_us: 900.0,
            wakeup_max_us: 30_000.0,
            ..quiet()
        };
        assert!(super::tests::share(preempted).describe().is_none());
        let crowded = MachineNoise {
            waited_share: Some(0.6),
            ..quiet()
        };
        assert!(super::tests::share(crowded).explains() <= 0.03);
        let unknown = point("disk w", vec![run(vec![op(OpKind::Read, 1, 1.0)])]);
        assert_eq!(NoiseShare::of(&unknown), None);
    }

    /// A program that uses a fifth of a processor is mentioned even if the load hardly waited; the load's
    /// waits are reported.
    #[test]
    fn other_programs_are_mentioned() {
        let hog = MachineNoise {
            others_cpus: Some(0.2),
            others_most: Some("hog 0.20".into()),
            ..quiet()
        };
        let said = share(hog.clone()).describe().unwrap();
        assert!(
            said.contains("others used 0.20 processors (hog 0.20)"),
            "{said}"
        );
        let waiting = MachineNoise {
            waited_share: Some(0.15),
            ..hog
        };
        assert!((share(waiting.clone()).explains() - 0.15).abs() < 1e-9);
        let stolen = MachineNoise {
            stolen_share: Some(0.1),
            ..waiting
        };
        let said = share(stolen).describe().unwrap();
        assert!(
            said.starts_with("may explain 25.0% of response times")
                && said.contains("10.0% stolen"),
            "{said}"
        );
    }

    #[test]
    fn stopped_and_throttled_runs_are_doubtful() {
        let reasons = |noise: MachineNoise| -> Vec<VoidReason> {
            noise
                .doubts()
                .iter()
                .map(|doubt| {
                    assert!(doubt.reason.is_named_in(&doubt.what), "{}", doubt.what);
                    doubt.reason
                })
                .collect()
        };
        assert!(reasons(quiet()).is_empty());
        let stopped = MachineNoise {
            stalled_s: Some(3.0),
            wakeup_max_us: 3e6,
            ..quiet()
        };
        assert_eq!(reasons(stopped), [VoidReason::Stalled]);
        let throttled = MachineNoise {
            throttled_share: Some(0.8),
            quota_cpus: Some(0.2),
            oom_kills: Some(1),
            ..quiet()
        };
        assert!(throttled.explains() >= 0.8);
        assert_eq!(
            reasons(throttled),
            [VoidReason::Throttled, VoidReason::OutOfMemory]
        );
    }

    /// Old results without the load's waits can be read, and are judged by the fields they have.
    #[test]
    fn old_results_are_judged_by_what_they_have() {
        let text = r#"{"stolen_share":0.1,"wakeup_mean_us":60.0,"wakeup_max_us":900.0,"work_mean_us":80.0,"work_min_us":20.0,"samples":40}"#;
        let old: MachineNoise = serde_json::from_str(text).unwrap();
        assert!((old.explains() - 0.1).abs() < 1e-9 && old.doubts().is_empty());
        assert_eq!(
            share(old.clone()).uneven,
            0.0,
            "the mean of the work is ignored"
        );
        let difference = MachineDifference::between(&of(&[old]), &of(&[quiet()])).unwrap();
        assert_eq!(difference.others_cpus, None);
    }

    #[test]
    fn different_machines_are_distinguished() {
        let four = |noise: MachineNoise| of(&[noise.clone(), noise.clone(), noise.clone(), noise]);
        let slow = MachineNoise {
            work_median_us: Some(25.0),
            ..quiet()
        };
        let busy = MachineNoise {
            waited_share: Some(0.2),
            others_cpus: Some(1.5),
            ..quiet()
        };
        let between = |a: &MachineNoise, b: &MachineNoise| {
            MachineDifference::between(&four(a.clone()), &four(b.clone())).unwrap()
        };
        assert_eq!(between(&quiet(), &quiet()).log_slower, 0.0);
        assert!((between(&quiet(), &slow).slower() - 0.2).abs() < 1e-9);
        assert!((between(&slow, &quiet()).slower() + 0.25).abs() < 1e-9);
        let difference = between(&quiet(), &busy);
        assert!((0.19..0.2).contains(&difference.slower()), "{difference:?}");
        assert!((difference.others_cpus.unwrap() - 1.48).abs() < 1e-9 && !difference.disturbed);
        let stopped = MachineNoise {
            stalled_s: Some(3.0),
            ..quiet()
        };
        assert!(between(&quiet(), &stopped).disturbed && !between(&stopped, &stopped).disturbed);
        assert_eq!(MachineDifference::between(&four(quiet()), &of(&[])), None);
    }
}
