//! Arguments of `brunt-bench verdicts`. The scoring is in `brunt_bench::VerdictsBench`.

use brunt_bench::BenchResult;

use super::output::Terminal;
use super::subject::SubjectArgs;

/// Accuracy of verdicts about faults, on series whose true effects are known
#[derive(clap::Args)]
pub struct VerdictsArgs {
    /// Experiments (of four runs each) per kind of noise and effect; four times as many without an effect
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    experiments: u32,
    /// Seed of the experiments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Use held-out kinds of noise that were not used to choose the methods
    #[arg(long)]
    held_out: bool,
    /// Judge recorded experiments from real machines instead
    #[arg(long, conflicts_with_all = ["experiments", "seed", "held_out"])]
    recorded: bool,
}

impl SubjectArgs for VerdictsArgs {
    const NAME: &'static str = "verdicts";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        ("brunt-bench verdicts", "9,600 series, about two minutes"),
        (
            "brunt-bench verdicts --held-out --seed 7",
            "held-out kinds of noise, and another seed",
        ),
        ("brunt-bench verdicts --recorded", "recorded experiments"),
    ];

    fn run(self, output: &Terminal) -> BenchResult {
        let VerdictsArgs {
            experiments,
            seed,
            held_out,
            recorded,
        } = self;
        if recorded {
            return brunt_bench::judge_recorded(output);
        }
        brunt_bench::VerdictsBench {
            experiments,
            seed,
            held_out,
        }
        .run(output)
    }
}
