//! The table of arrival processes: one file and one line here for each. They determine when the requests of an open
//! loop are due; the schedule ([`super::arrival`]) handles bursts and the backlog.

mod constant;
mod kind;
mod poisson;
#[cfg(test)]
mod test_only;

use brunt_core::random::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use constant::Constant;
use kind::Process;
use poisson::Poisson;
#[cfg(test)]
use test_only::Pairs;

pub(crate) use kind::Position;
pub use kind::ProcessInfo;

/// Defines [`ArrivalProcess`] and [`PROCESSES`] from one line for each process. The first is the default.
macro_rules! processes {
    ($first:ident, $($(#[$only:meta])* $process:ident,)*) => {
        /// Distribution of the times between requests of an open loop.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        #[allow(missing_docs)] // each variant is documented by its help
        pub enum ArrivalProcess {
            #[default]
            #[schemars(description = $first::INFO.help)]
            $first,
            $($(#[$only])* #[schemars(description = $process::INFO.help)] $process,)*
        }

        impl ArrivalProcess {
            /// Returns the process's entry in the table.
            pub fn info(self) -> &'static ProcessInfo {
                match self {
                    ArrivalProcess::$first => &$first::INFO,
                    $($(#[$only])* ArrivalProcess::$process => &$process::INFO,)*
                }
            }

            /// Returns the due time of a worker's first request, in nanoseconds since the rate took effect.
            pub(super) fn first(self, position: &Position, random: &mut Random) -> f64 {
                match self {
                    ArrivalProcess::$first => $first::first(position, random),
                    $($(#[$only])* ArrivalProcess::$process => $process::first(position, random),)*
                }
            }

            /// Returns the due time of a worker's request `position.index`, in nanoseconds.
            #[inline(always)] // once per request
            pub(super) fn next(self, position: &Position, random: &mut Random) -> f64 {
                match self {
                    ArrivalProcess::$first => $first::next(position, random),
                    $($(#[$only])* ArrivalProcess::$process => $process::next(position, random),)*
                }
            }
        }

        /// All arrival processes.
        pub static PROCESSES: &[&ProcessInfo] = &[&$first::INFO, $($(#[$only])* &$process::INFO,)*];
    };
}

processes! {
    Poisson,
    Constant,
    #[cfg(test)] Pairs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::arrival::ArrivalSchedule;
    use crate::block::workload::{Arrival, Workload};

    /// Names are unique and read from experiments; every process has its mean rate, never goes back in time, and
    /// draws the same times for the same seed.
    #[test]
    fn every_process_keeps_its_mean_rate() {
        for (index, info) in PROCESSES.iter().enumerate() {
            let name = info.name;
            assert!(PROCESSES[..index].iter().all(|other| other.name != name));
            assert!(!info.help.is_empty() && !info.manner.is_empty(), "{name}");
            let text =
                format!("arrival = {{ kind = \"open\", rate = 1000.0, process = \"{name}\" }}");
            let workload: Workload = toml::from_str(&text).unwrap();
            let Arrival::Open { process, .. } = workload.arrival else {
                panic!("{name} is read as {:?}", workload.arrival)
            };
            assert_eq!(process.info().name, name);
            let written = toml::Value::try_from(process).unwrap();
            assert_eq!(written.as_str(), Some(name));
            let times = |seed| {
                let mut schedule = ArrivalSchedule::new(1000.0, process, None, seed, 0, 1);
                let mut next = || {
                    let due = schedule.due().0;
                    schedule.advance();
                    due
                };
                (0..100_000).map(|_| next()).collect::<Vec<u64>>()
            };
            let all = times(1);
            assert!(all.is_sorted(), "{name}");
            assert_eq!(all, times(1), "{name}");
            let mean = all[99_999] as f64 / 99_999.0;
            assert!((mean / 1e6 - 1.0).abs() < 0.02, "{name}: {mean}");
        }
    }
}
