//! `brunt-bench hosts`: how accurately the clocks of other hosts are estimated, how far apart their workers start, and
//! how much CPU time and memory many agents cost their controller.
//!
//! All hosts are on this machine, so a clock's true offset is the shift that its agent applies.
//!
//! The rule: agents and bare processes take turns, and start at times on a single clock.

mod clocks;
mod many_agents;
mod spread;
mod testbed;

pub use spread::sleep_until;

use brunt_core::Span;
use brunt_core::random::Random;
use brunt_lab::link::Settings;
use serde_json::json;
use std::time::Duration;

use crate::{BenchError, BenchResult, Console};
use testbed::Testbed;

/// Number of hosts in the first two parts.
const HOSTS: usize = 8;
/// Maximum shift of a clock in either direction.
const SHIFT_MAX_NS: f64 = 500e6;

/// Hosts with separate clocks: the accuracy of clock estimates and starts, and the cost of agents
#[derive(Clone, Debug)]
pub struct HostsBench {
    /// Clock estimates per kind of link.
    pub estimates: u32,
    /// Rounds of starts.
    pub rounds: u32,
    /// Numbers of agents, measured one after the other.
    pub agents: Vec<u16>,
    /// Duration of each run with many agents, in seconds.
    pub seconds: u64,
    /// Seed of the clocks' shifts.
    pub seed: u64,
}

/// A kind of link between the controller and a host.
struct LinkKind {
    name: &'static str,
    there: Duration,
    back: Duration,
}

const EVEN: LinkKind = LinkKind {
    name: "0.2 ms each way",
    there: Duration::from_micros(200),
    back: Duration::from_micros(200),
};
const UNEVEN: LinkKind = LinkKind {
    name: "0.3 ms there, 4.3 ms back",
    there: Duration::from_micros(300),
    back: Duration::from_micros(4300),
};
const BARE: LinkKind = LinkKind {
    name: "no delay",
    there: Duration::ZERO,
    back: Duration::ZERO,
};

impl LinkKind {
    fn settings(&self) -> [Settings; 2] {
        [self.there, self.back].map(|delay| Settings {
            delay: Span(delay),
            ..Settings::default()
        })
    }
}

impl HostsBench {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// A prerequisite is missing, or the intervals do not contain the true offset often enough.
    pub fn run(self, output: &dyn Console) -> BenchResult {
        let mut random = Random::new(self.seed);
        let shifts: Vec<i64> = (0..HOSTS)
            .map(|_| ((2.0 * random.unit() - 1.0) * SHIFT_MAX_NS) as i64)
            .collect();
        let mut result = json!({ "seed": self.seed, "shifts_ns": shifts });
        let mut wrong = Vec::new();
        if self.estimates > 0 {
            output.line(
                "clocks, of 16 rounds each    estimates    in bounds   error us p50     \
                p99   middle off us p50     p99",
            );
            let mut rows = Vec::new();
            for link in [BARE, EVEN, UNEVEN] {
                let testbed = Testbed::build(&shifts, &link)?;
                testbed.note_missing_sshd(output);
                rows.push(clocks::measure(
                    &testbed,
                    &link,
                    self.estimates,
                    output,
                    &mut wrong,
                )?);
            }
            result["clocks"] = json!(rows);
        }
        if self.rounds > 0 {
            let testbed = Testbed::build(&shifts, &EVEN)?;
            result["starts"] = spread::measure(&testbed, self.rounds, output)?;
        }
        if !self.agents.is_empty() {
            result["agents"] = many_agents::measure(&self.agents, self.seconds, output)?;
        }
        result["wrong"] = json!(wrong);
        output.object(&result);
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(BenchError::failed(wrong.join("; "))),
        }
    }
}
