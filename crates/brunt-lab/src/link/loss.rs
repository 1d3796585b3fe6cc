//! Decides which packets are lost: independently, every n-th, with correlation, or in bursts of a line that alternates
//! between good and bad. The models and their names are netem's (tc-netem(8)).
//!
//! Called by the rules ([`super::rules`]) once per packet. The rule: whatever the model, the share that a setting
//! states is the share that is lost in the long run.

use brunt_core::share::{self, Share};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum correlation: beyond it, a state lasts for thousands of packets, which is better expressed as bursts.
pub const CORRELATION_MAX: f64 = 0.99;
/// Number of grid steps in the distribution of correlated draws.
const GRID: usize = 4096;

/// Gilbert-Elliott loss model: the link is in a good or a bad state and changes state with these probabilities at
/// each packet. netem's parameter names (`loss gemodel p r 1-h 1-k`) are accepted, too.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bursts {
    /// Probability of changing from good to bad; netem's p.
    #[serde(alias = "p", deserialize_with = "share::set::to_bad")]
    #[schemars(with = "Share")]
    pub to_bad: f64,
    /// Probability of changing from bad to good; netem's r.
    #[serde(alias = "r", deserialize_with = "share::set::to_good")]
    #[schemars(with = "Share")]
    pub to_good: f64,
    /// Loss in the good state, such as 0.01 or "1%"; netem's 1-k.
    #[serde(default, alias = "1-k", deserialize_with = "share::set::loss_good")]
    #[schemars(with = "Share")]
    pub loss_good: f64,
    /// Loss in the bad state, such as 0.5 or "50%"; netem's 1-h.
    #[serde(
        default = "one",
        alias = "1-h",
        deserialize_with = "share::set::loss_bad"
    )]
    #[schemars(with = "Share")]
    pub loss_bad: f64,
}

fn one() -> f64 {
    1.0
}

impl Bursts {
    /// Share lost in the long run.
    pub fn share(&self) -> f64 {
        let bad = self.to_bad / (self.to_bad + self.to_good);
        bad * self.loss_bad + (1.0 - bad) * self.loss_good
    }

    /// Independent loss events per packet; all losses of a burst count as one. Never greater than the share lost.
    pub fn events(&self) -> f64 {
        let bad = self.to_bad / (self.to_bad + self.to_good);
        // `hits` is the probability that a burst has a loss before it ends.
        let ends = self.to_good * (1.0 - self.loss_bad);
        let hits = if self.loss_bad > 0.0 {
            self.loss_bad / (self.loss_bad + ends)
        } else {
            0.0
        };
        let events = bad * self.to_good * hits + (1.0 - bad) * self.loss_good;
        // A line that never recovers has a single burst that contains everything.
        if self.to_good == 0.0 {
            self.share()
        } else {
            events.min(self.share())
        }
    }
}

/// How packets are lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossModel {
    /// Independently with this probability (Bernoulli).
    Each(f64),
    /// After a loss the next `gap - 1` packets pass, and each following one is lost with probability `share`; with a
    /// share of 1, exactly every `gap`-th packet is lost.
    Gap {
        /// Probability for packets that may be lost.
        share: f64,
        /// The distance between losses, in packets.
        gap: u32,
    },
    /// netem's correlation: a packet's draw is `correlation` times the previous draw plus the remaining weight times a
    /// new one.
    Correlated {
        /// Share lost in the long run.
        share: f64,
        /// 0 to [`CORRELATION_MAX`].
        correlation: f64,
    },
    /// In bursts.
    Bursts(Bursts),
}

impl LossModel {
    /// Share lost in the long run.
    pub fn share(&self) -> f64 {
        match self {
            LossModel::Each(share) | LossModel::Correlated { share, .. } => *share,
            // One cycle: the packets that pass for certain, plus the expected number until a loss.
            LossModel::Gap { share, gap } if *share > 0.0 => {
                1.0 / (f64::from(gap - 1) + 1.0 / share)
            }
            LossModel::Gap { .. } => 0.0,
            LossModel::Bursts(bursts) => bursts.share(),
        }
    }

    /// Independent loss events per packet; never greater than the share.
    pub fn events(&self) -> f64 {
        match self {
            LossModel::Each(share) => *share,
            LossModel::Gap { .. } => self.share(),
            // Consecutive losses are correlated at most as much as their draws are.
            LossModel::Correlated { share, correlation } => share * (1.0 - correlation),
            LossModel::Bursts(bursts) => bursts.events(),
        }
    }
}

/// A loss model and its state.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    model: LossModel,
    /// Correlated draws below this threshold are losses.
    bar: f64,
    /// The previous correlated draw; starts in the middle of the range.
    last: f64,
    /// State of the Gilbert-Elliott model.
    bad: bool,
    /// Packets since the last loss, for the gap.
    passed: u32,
}

impl Loss {
    pub(super) fn new(model: LossModel) -> Loss {
        Loss {
            model,
            bar: bar(&model),
            last: 0.5,
            bad: false,
            passed: 0,
        }
    }

    /// Switches to a new model, keeping the state that both models share.
    pub(super) fn change(&mut self, model: LossModel) {
        if self.model == model {
            return;
        }
        let bad = self.bad
            && matches!(
                (self.model, model),
                (LossModel::Bursts(_), LossModel::Bursts(_))
            );
        *self = Loss {
            bad,
            ..Loss::new(model)
        };
    }

    /// Whether the next packet is lost, given two draws from [0, 1).
    pub(super) fn takes(&mut self, draw: f64, turn: f64) -> bool {
        match self.model {
            LossModel::Each(share) => draw < share,
            LossModel::Gap { share, gap } => {
                let lost = self.passed >= gap - 1 && draw < share;
                self.passed = if lost {
                    0
                } else {
                    self.passed.saturating_add(1)
                };
                lost
            }
            LossModel::Correlated { correlation, .. } => {
                self.last = (1.0 - correlation) * draw + correlation * self.last;
                self.last < self.bar
            }
            LossModel::Bursts(bursts) => {
                let share = if self.bad {
                    bursts.loss_bad
                } else {
                    bursts.loss_good
                };
                self.bad ^= turn
                    < if self.bad {
                        bursts.to_good
                    } else {
                        bursts.to_bad
                    };
                draw < share
            }
        }
    }
}

/// The threshold below which a correlated draw is a loss, so that exactly the stated share is lost. netem compares with
/// the share itself; as sums of draws cluster around the middle, it loses far fewer: almost none at 1 % loss with a
/// correlation of 25 %, which its manual calls bad behaviour.
fn bar(model: &LossModel) -> f64 {
    let LossModel::Correlated { share, correlation } = *model else {
        return 0.0;
    };
    if correlation == 0.0 || share >= 1.0 {
        return share;
    }
    let below = distribution(correlation);
    let above = below.partition_point(|part| *part < share).clamp(1, GRID);
    let (low, high) = (below[above - 1], below[above]);
    let part = if high > low {
        (share - low) / (high - low)
    } else {
        0.0
    };
    ((above - 1) as f64 + part) / GRID as f64
}

/// The distribution function, at `GRID + 1` points from 0 to 1, to which x' = (1 - c) u + c x converges for uniform u:
/// F'(x) = c / (1 - c) * (G(x / c) - G((x - (1 - c)) / c)), where G is the integral of F.
fn distribution(correlation: f64) -> Vec<f64> {
    let step = 1.0 / GRID as f64;
    let mut below: Vec<f64> = (0..=GRID).map(|index| index as f64 * step).collect();
    let mut integral = vec![0.0; GRID + 1];
    // Each iteration adds one more draw to the sum; the remaining draws weigh less than a grid step.
    let turns = (libm::log(step / 8.0) / libm::log(correlation)).ceil() as usize + 1;
    for _ in 0..turns {
        for index in 0..GRID {
            integral[index + 1] =
                integral[index] + f64::midpoint(below[index], below[index + 1]) * step;
        }
        let up_to = |x: f64| -> f64 {
            if x <= 0.0 {
                return 0.0;
            }
            if x >= 1.0 {
                return integral[GRID] + (x - 1.0);
            }
            let place = x * GRID as f64;
            let index = place as usize;
            let rest = (place - index as f64) * step;
            let slope = (below[(index + 1).min(GRID)] - below[index]) / step;
            integral[index] + below[index] * rest + slope * rest * rest / 2.0
        };
        below = (0..=GRID)
            .map(|index| {
                let x = index as f64 * step;
                let sum = up_to(x / correlation) - up_to((x - (1.0 - correlation)) / correlation);
                (sum * correlation / (1.0 - correlation)).clamp(0.0, 1.0)
            })
            .collect();
    }
    below
}

#[cfg(test)]
mod tests {
    use brunt_core::random::Random;

    use super::*;

    fn lost(model: LossModel, count: usize) -> Vec<bool> {
        let mut random = Random::new(11);
        let mut loss = Loss::new(model);
        (0..count)
            .map(|_| loss.takes(random.unit(), random.unit()))
            .collect()
    }

    fn share(lost: &[bool]) -> f64 {
        lost.iter().filter(|lost| **lost).count() as f64 / lost.len() as f64
    }

    /// With a share of 1 exactly every n-th packet is lost; with less, no two losses are closer than the gap.
    #[test]
    fn losses_are_at_least_a_gap_apart() {
        let every = lost(LossModel::Gap { share: 1.0, gap: 5 }, 1000);
        assert!(
            every
                .iter()
                .enumerate()
                .all(|(index, lost)| *lost == (index % 5 == 4))
        );
        let model = LossModel::Gap {
            share: 0.25,
            gap: 5,
        };
        let some = lost(model, 400_000);
        let places: Vec<usize> = (0..some.len()).filter(|index| some[*index]).collect();
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 5));
        // A cycle of 4, plus 4 more on average: one loss in 8.
        assert!((model.share() - 1.0 / 8.0).abs() < 1e-12);
        assert!((share(&some) * 8.0 - 1.0).abs() < 0.02, "{}", share(&some));
        assert_eq!(LossModel::Gap { share: 0.0, gap: 5 }.share(), 0.0);
    }

    /// Correlated losses match the stated share, and follow each other more often than independent ones.
    #[test]
    fn correlation_keeps_the_share() {
        for (stated, correlation) in [
            (0.01, 0.25),
            (0.05, 0.5),
            (0.2, 0.9),
            (0.5, 0.5),
            (0.001, 0.1),
        ] {
            let lost = lost(
                LossModel::Correlated {
                    share: stated,
                    correlation,
                },
                1_000_000,
            );
            let seen = share(&lost);
            let rows = lost.windows(2).filter(|pair| pair[0] && pair[1]).count() as f64;
            let after_a_loss = rows / (seen * lost.len() as f64);
            // Runs of losses increase the variance of the number of losses: at a correlation of 0.9, by a factor of
            // about four.
            assert!(
                (seen / stated - 1.0).abs() < 0.15,
                "{stated} {correlation}: {seen}"
            );
            assert!(
                after_a_loss > stated * 1.1,
                "{stated} {correlation}: {after_a_loss}"
            );
            // Losses that don't follow another loss are at least as frequent as they would be among the stated number
            // of independent losses.
            let begins = seen * (1.0 - after_a_loss) / (1.0 - stated);
            let promised = LossModel::Correlated {
                share: stated,
                correlation,
            }
            .events();
            assert!(
                begins >= promised * 0.9,
                "{stated} {correlation}: {begins} of {promised}"
            );
        }
    }

    /// Without correlation each packet is an independent coin toss; with a share of 1 everything is lost.
    #[test]
    fn no_correlation_is_a_coin_toss_and_a_share_of_one_loses_all() {
        assert_eq!(
            bar(&LossModel::Correlated {
                share: 0.3,
                correlation: 0.0
            }),
            0.3
        );
        let all = lost(
            LossModel::Correlated {
                share: 1.0,
                correlation: 0.9,
            },
            1000,
        );
        assert!(all.iter().all(|lost| *lost));
        let strongest = LossModel::Correlated {
            share: 0.1,
            correlation: CORRELATION_MAX,
        };
        assert!((0.0..0.5).contains(&bar(&strongest)), "{}", bar(&strongest));
    }

    /// netem's parameter names for the Gilbert-Elliott model are accepted.
    #[test]
    fn netem_names_of_burst_parameters_are_accepted() {
        let ours: Bursts =
            toml::from_str("to_bad = 0.01\nto_good = 0.25\nloss_bad = 0.8\nloss_good = 0.001")
                .unwrap();
        let netem: Bursts = toml::from_str("p = 0.01\nr = 0.25\n1-h = 0.8\n1-k = 0.001").unwrap();
        assert_eq!(ours, netem);
    }
}
