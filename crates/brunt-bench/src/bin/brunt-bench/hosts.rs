//! Arguments of `brunt-bench hosts`. The measurement is in `brunt_bench::HostsBench`.

use brunt_bench::BenchResult;

use super::output::Terminal;
use super::subject::SubjectArgs;

/// Hosts with separate clocks: accuracy of clock estimates, spread of starts, cost of agents
///
/// Hosts are network namespaces on this machine, each behind its own link; as root, every second host is reached
/// through Debian's sshd, the rest over TLS. Clocks are shifted by up to half a second, so the true offsets are
/// known. Starts alternate with those of bare processes that sleep until the same time.
#[derive(clap::Args)]
pub struct HostsArgs {
    /// Clock estimates over each kind of link, in total for all hosts; 0 to skip
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    estimates: u32,
    /// Rounds of starts, each of the hosts and of bare processes; 0 to skip
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    rounds: u32,
    /// Numbers of agents for which to measure the controller's cost; 0 to skip
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64], value_parser = clap::value_parser!(u16).range(0..=200))]
    agents: Vec<u16>,
    /// Duration of each run with many agents in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Seed of the clock shifts
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Sleep until this CLOCK_MONOTONIC time and print when this process woke up (the bare process of the
    /// comparison).
    #[arg(long, hide = true, value_name = "NS")]
    sleep_until: Option<u64>,
}

impl SubjectArgs for HostsArgs {
    const NAME: &'static str = "hosts";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt-bench hosts", "everything, in about four minutes"),
        (
            "brunt-bench hosts --rounds 0 --agents 0",
            "only the accuracy of clock estimates",
        ),
        (
            "brunt-bench hosts --estimates 0 --rounds 0 --agents 1,64",
            "only the controller's cost of 64 agents",
        ),
    ];

    fn run(self, output: &Terminal) -> BenchResult {
        if let Some(at) = self.sleep_until {
            output.line(brunt_bench::sleep_until(at)?);
            return Ok(());
        }
        brunt_bench::program_under_test()?; // found or built before the namespaces are entered
        super::stage::enter(output)?;
        let settings = brunt_bench::HostsBench {
            estimates: self.estimates,
            rounds: self.rounds,
            agents: self
                .agents
                .into_iter()
                .filter(|agents| *agents > 0)
                .collect(),
            seconds: self.seconds,
            seed: self.seed,
        };
        settings.run(output)
    }
}
