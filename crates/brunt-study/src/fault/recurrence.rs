//! Intermittent faults: a `[[fault]]` that occurs several times in each run, at listed times, periodically, or at
//! random times with a mean time between failures and a mean time to repair.
//!
//! ```toml
//! at = ["2s", "5s", "9s"]       # listed
//! for = "500ms"
//!
//! at = "2s" # periodic, `times` times or until the run ends period = "3s" for = "500ms"
//!
//! at = "2s"                     # random, not before 2 s
//! mtbf = "5s"
//! mttr = "500ms"
//! ```
//!
//! Times between failures and times to repair are exponentially distributed. MTBF counts from one failure to the next,
//! so the share of time under the fault is MTTR / MTBF (IEC 60050-192).
//!
//! The rule: the times are derived from the experiment's seed alone, so they are the same in all runs, which can
//! therefore be judged together. Nothing drawn at random is shorter than [`SHORTEST`].

use std::time::Duration;

use brunt_core::Span;
use brunt_core::random::Random;

use super::kind::Mistake;

/// Maximum number of occurrences of all faults in an experiment together.
pub const OCCURRENCES_MAX: usize = 256;

/// Minimum duration of an occurrence, and of the pause after it, if they are drawn at random: anything shorter could
/// neither be proven nor measured.
pub const SHORTEST: Duration = Duration::from_millis(100);

/// The times of a fault that occurs several times in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recurrence {
    /// At these times, in ascending order.
    Listed(Vec<Span>),
    /// Every `period`, starting at `at`.
    Periodic {
        /// The first start.
        at: Span,
        /// From one start to the next.
        period: Span,
        /// Number of occurrences; default: as many as fit into the run.
        times: Option<u32>,
    },
    /// At random times, not before `at`.
    Random {
        /// No failure happens before this time.
        at: Span,
        /// Mean time from one failure to the next.
        mtbf: Span,
        /// Mean duration; `None` if all occurrences last equally long.
        mttr: Option<Span>,
        /// Number of occurrences; default: as many as fit into the run.
        times: Option<u32>,
    },
}

/// Which of its fault's occurrences this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// From 1.
    pub number: u32,
    /// Number of the fault's occurrences in a run.
    pub count: u32,
}

/// Start and duration of an occurrence; one without a duration lasts until the end of the run.
pub type OccurrenceTimes = (Span, Option<Span>);

impl Recurrence {
    /// The duration in the file if it is the same for all occurrences; `lasts` is the key `for`.
    pub fn stated_duration(&self, lasts: Option<Span>) -> Option<Span> {
        match self {
            Recurrence::Random { mttr: Some(_), .. } => None,
            _ => lasts,
        }
    }

    /// The occurrences of a fault in a run of length `run`; `lasts` is the key `for`.
    ///
    /// # Errors
    /// Returns the key that makes the occurrences impossible, and what would be correct.
    pub fn occurrences(
        &self,
        lasts: Option<Span>,
        run: Option<Duration>,
        random: &mut Random,
    ) -> Result<Vec<OccurrenceTimes>, Mistake> {
        let found = match self {
            Recurrence::Listed(times) => listed(times, lasts)?,
            Recurrence::Periodic { at, period, times } => {
                periodic(*at, *period, *times, lasts, run)?
            }
            Recurrence::Random {
                at,
                mtbf,
                mttr,
                times,
            } => {
                let durations = Durations::of(*mtbf, *mttr, lasts)?;
                drawn(*at, durations, *times, run, random)?
            }
        };
        if found.len() > OCCURRENCES_MAX {
            let what = format!("it occurs {} times in a run", found.len());
            let help = format!("the maximum is {OCCURRENCES_MAX}");
            return Err(Mistake::new(self.key(), what, help));
        }
        Ok(found)
    }

    /// The key to blame for an occurrence after the end of a run.
    pub fn key_of_last(&self) -> &'static str {
        match self {
            Recurrence::Listed(_) => "at",
            Recurrence::Periodic { .. } | Recurrence::Random { .. } => "times",
        }
    }

    /// The key that limits the number of occurrences.
    pub fn key(&self) -> &'static str {
        match self {
            Recurrence::Listed(_) => "at",
            Recurrence::Periodic { .. } => "period",
            Recurrence::Random { .. } => "mtbf",
        }
    }
}

fn listed(times: &[Span], lasts: Option<Span>) -> Result<Vec<OccurrenceTimes>, Mistake> {
    if times.is_empty() {
        return Err(Mistake::new(
            "at",
            "the list is empty",
            "write at = [\"2s\", \"5s\"]",
        ));
    }
    let Some(lasts) = lasts else {
        let help = "write for = \"500ms\"";
        return Err(Mistake::new(
            "at",
            "the fault has several starts but no duration",
            help,
        ));
    };
    for pair in times.windows(2) {
        let end = pair[0].0.saturating_add(lasts.0);
        if pair[1].0 < end {
            let what = format!(
                "the fault starts again at {} before it ends at {}",
                pair[1],
                Span(end)
            );
            let help = "write the starts in ascending order, with gaps between occurrences, \
                        or a shorter for";
            return Err(Mistake::new("at", what, help));
        }
    }
    Ok(times.iter().map(|at| (*at, Some(lasts))).collect())
}

fn periodic(
    at: Span,
    period: Span,
    times: Option<u32>,
    lasts: Option<Span>,
    run: Option<Duration>,
) -> Result<Vec<OccurrenceTimes>, Mistake> {
    let Some(lasts) = lasts else {
        let help = "write for = \"500ms\"";
        return Err(Mistake::new(
            "period",
            "the fault has a period but no duration",
            help,
        ));
    };
    if lasts.0 >= period.0 {
        let what = format!("a duration of {lasts} leaves no pause in a period of {period}");
        return Err(Mistake::new(
            "period",
            what,
            "write a longer period or a shorter for",
        ));
    }
    let start = |number: u32| Some(at.0.saturating_add(period.0.checked_mul(number)?));
    let count = match (times, run) {
        (Some(times), _) => times,
        (None, Some(run)) => (0..=OCCURRENCES_MAX as u32)
            .take_while(|number| start(*number).is_some_and(|start| start + lasts.0 <= run))
            .count() as u32,
        (None, None) => return Err(unknown_length("period")),
    };
    let all = (0..count).map_while(start);
    enough(
        all.map(|start| (Span(start), Some(lasts))).collect(),
        "period",
        run,
    )
}

/// The durations of a random recurrence, which are means.
struct Durations {
    up: Duration,
    down: Duration,
    /// Whether `down` is exact rather than a mean.
    fixed: bool,
}

impl Durations {
    fn of(mtbf: Span, mttr: Option<Span>, lasts: Option<Span>) -> Result<Durations, Mistake> {
        let (down, fixed) = match (mttr, lasts) {
            (Some(mttr), None) => (mttr.0, false),
            (None, Some(lasts)) => (lasts.0, true),
            (Some(_), Some(_)) => {
                let help = "omit for, or mttr if all occurrences last equally long";
                return Err(Mistake::new("mttr", "mttr and for are both set", help));
            }
            (None, None) => {
                let help = "write mttr = \"500ms\" for random durations, or for = \"500ms\"";
                return Err(Mistake::new("mtbf", "it has no duration", help));
            }
        };
        let up = mtbf.0.saturating_sub(down);
        if up < SHORTEST || (!fixed && down < SHORTEST) {
            let what = format!(
                "mtbf {mtbf} leaves less than {} for the fault or for the time between faults",
                Span(SHORTEST)
            );
            let help = "write a longer mtbf, which counts from one failure to the next";
            return Err(Mistake::new("mtbf", what, help));
        }
        Ok(Durations { up, down, fixed })
    }
}

fn drawn(
    at: Span,
    durations: Durations,
    times: Option<u32>,
    run: Option<Duration>,
    random: &mut Random,
) -> Result<Vec<OccurrenceTimes>, Mistake> {
    if times.is_none() && run.is_none() {
        return Err(unknown_length("mtbf"));
    }
    let mut draw = |mean: Duration| {
        let millis = random.exponential(mean.as_secs_f64() * 1e3).round() as u64;
        Duration::from_millis(millis).max(SHORTEST)
    };
    let wanted = times.map_or(OCCURRENCES_MAX + 1, |times| times as usize);
    let (mut found, mut now) = (Vec::new(), at.0);
    while found.len() < wanted.min(OCCURRENCES_MAX + 1) {
        let start = now.saturating_add(draw(durations.up));
        let lasts = match durations.fixed {
            true => durations.down,
            false => draw(durations.down),
        };
        now = start.saturating_add(lasts);
        // If `times` is set, a run that is too short is reported elsewhere.
        if times.is_none() && run.is_some_and(|run| now > run) {
            break;
        }
        found.push((Span(start), Some(Span(lasts))));
    }
    enough(found, "mtbf", run)
}

fn unknown_length(key: &'static str) -> Mistake {
    let what = "the length of runs is unknown, and therefore also the number of occurrences";
    Mistake::new(
        key,
        what,
        "write times = 5, or stop = { time = \"10s\" } in the workload",
    )
}

fn enough(
    found: Vec<OccurrenceTimes>,
    key: &'static str,
    run: Option<Duration>,
) -> Result<Vec<OccurrenceTimes>, Mistake> {
    if !found.is_empty() {
        return Ok(found);
    }
    let what = match run {
        Some(run) => format!("the fault does not occur in a run of {}", Span(run)),
        None => "it does not occur".to_string(),
    };
    let help = "write an earlier at, shorter times between faults, or another seed";
    Err(Mistake::new(key, what, help))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Span {
        Span(Duration::from_millis(millis))
    }

    fn found(
        recurrence: &Recurrence,
        lasts: Option<u64>,
        run: Option<u64>,
        seed: u64,
    ) -> Result<Vec<(u64, u64)>, Mistake> {
        let run = run.map(Duration::from_millis);
        let times = recurrence.occurrences(lasts.map(ms), run, &mut Random::new(seed))?;
        let millis = |span: Span| span.0.as_millis() as u64;
        let both = |(at, lasts): OccurrenceTimes| (millis(at), millis(lasts.unwrap()));
        Ok(times.into_iter().map(both).collect())
    }

    #[test]
    fn periodic_faults_occur_while_the_run_has_room() {
        let every = |times| Recurrence::Periodic {
            at: ms(2000),
            period: ms(3000),
            times,
        };
        let check = |times, lasts, run, expected: &[u64]| {
            let starts: Vec<u64> = found(&every(times), Some(lasts), run, 1)
                .unwrap()
                .iter()
                .map(|(at, _)| *at)
                .collect();
            assert_eq!(starts, expected);
        };
        check(None, 500, Some(8500), &[2000, 5000, 8000]);
        check(None, 501, Some(8500), &[2000, 5000]);
        check(Some(2), 500, Some(60_000), &[2000, 5000]);
        check(Some(2), 500, None, &[2000, 5000]);
    }

    /// The means and shares of a long series are as requested, and the standard deviation equals the mean, as in an
    /// exponential distribution.
    #[test]
    fn random_faults_have_their_mean_times() {
        let random = Recurrence::Random {
            at: ms(0),
            mtbf: ms(50_000),
            mttr: Some(ms(10_000)),
            times: Some(200),
        };
        let (mut between, mut repair) = (Vec::new(), Vec::new());
        for seed in 0..50 {
            let all = found(&random, None, None, seed).unwrap();
            assert_eq!(all, found(&random, None, None, seed).unwrap());
            assert_eq!(all.len(), 200);
            between.extend(all.windows(2).map(|pair| (pair[1].0 - pair[0].0) as f64));
            repair.extend(all.iter().map(|(_, lasts)| *lasts as f64));
            for pair in all.windows(2) {
                assert!(pair[1].0 >= pair[0].0 + pair[0].1 + 100);
            }
        }
        let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
        let (mtbf, mttr) = (mean(&between), mean(&repair));
        let spread = mean(
            &repair
                .iter()
                .map(|one| (one - mttr).powi(2))
                .collect::<Vec<_>>(),
        );
        assert!((mtbf / 50_000.0 - 1.0).abs() < 0.02, "{mtbf}");
        assert!((mttr / 10_000.0 - 1.0).abs() < 0.03, "{mttr}");
        assert!((spread.sqrt() / mttr - 1.0).abs() < 0.05, "{spread}");
    }

    #[test]
    fn random_faults_stay_within_the_run() {
        let random = |mttr| Recurrence::Random {
            at: ms(2000),
            mtbf: ms(1000),
            mttr,
            times: None,
        };
        for seed in 0..100 {
            for (mttr, lasts) in [(Some(ms(300)), None), (None, Some(300))] {
                let Ok(all) = found(&random(mttr), lasts, Some(10_000), seed) else {
                    panic!("seed {seed}: none");
                };
                assert!(all[0].0 >= 2100 && all.iter().all(|(at, lasts)| at + lasts <= 10_000));
                assert!(all.iter().all(|one| one.1 >= 100));
                assert!(lasts.is_none() || all.iter().all(|one| one.1 == 300));
            }
        }
    }

    #[test]
    fn impossible_recurrences_name_their_key() {
        let check = |recurrence: Recurrence, lasts, run, key: &str, words: &str| {
            let mistake = found(&recurrence, lasts, run, 1).unwrap_err();
            assert_eq!(mistake.key, key, "{mistake}");
            assert!(mistake.to_string().contains(words), "{mistake}");
        };
        let listed = |times: &[u64]| Recurrence::Listed(times.iter().map(|at| ms(*at)).collect());
        check(listed(&[]), Some(500), None, "at", "the list is empty");
        check(listed(&[1000, 2000]), None, None, "at", "no duration");
        check(
            listed(&[1000, 1400]),
            Some(500),
            None,
            "at",
            "before it ends at 1.5s",
        );
        check(listed(&[2000, 1000]), Some(500), None, "at", "ascending");
        let every = |period, times| Recurrence::Periodic {
            at: ms(1000),
            period: ms(period),
            times,
        };
        check(
            every(500, None),
            Some(500),
            Some(9000),
            "period",
            "no pause",
        );
        check(every(500, None), None, Some(9000), "period", "no duration");
        check(
            every(500, None),
            Some(100),
            None,
            "period",
            "write times = 5",
        );
        check(
            every(500, None),
            Some(100),
            Some(1000),
            "period",
            "does not occur in a run of 1s",
        );
        check(
            every(500, Some(0)),
            Some(100),
            Some(9000),
            "period",
            "does not occur",
        );
        check(
            every(10, None),
            Some(1),
            Some(90_000),
            "period",
            "the maximum is 256",
        );
        let random = |mtbf, mttr| Recurrence::Random {
            at: ms(1000),
            mtbf: ms(mtbf),
            mttr,
            times: None,
        };
        check(random(1000, None), None, Some(9000), "mtbf", "no duration");
        check(
            random(1000, Some(ms(500))),
            Some(500),
            Some(9000),
            "mttr",
            "both set",
        );
        check(
            random(1000, Some(ms(950))),
            None,
            Some(9000),
            "mtbf",
            "longer mtbf",
        );
        check(
            random(1000, Some(ms(500))),
            None,
            None,
            "mtbf",
            "write times = 5",
        );
        check(
            random(400, Some(ms(200))),
            None,
            Some(3_600_000),
            "mtbf",
            "maximum",
        );
    }
}
