//! CPU time of the machine and of the experiment's processes, read several times a second, because the phases of a run
//! are known only afterwards.
//!
//! The rule: a process that ends keeps the time counted at the last reading; later time is lost, at most a tenth of a
//! second.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use brunt_core::readings::{ReadingLog, ReadingsAround};
use brunt_core::{Nanos, ProcessStat};
use brunt_result::profile::MachineTimes;

/// Initial time between two readings.
const PERIOD: Duration = Duration::from_millis(100);
/// Maximum number of readings kept: the ends of phases are off by up to 0.1 % of a long run.
const READINGS_MAX: usize = 1024;

/// Process id and start time.
pub type ProcessIdentity = (u32, u64);

/// User and system time of a process in seconds, since the recording began.
pub type UserSystem = [f64; 2];

/// A reading of all counters.
#[derive(Clone, Debug, Default)]
pub struct CpuCounters {
    /// All processors.
    pub machine: Option<MachineTimes>,
    /// Each process read so far.
    pub processes: BTreeMap<ProcessIdentity, UserSystem>,
}

/// Readings over time.
pub struct CpuTimes {
    ticks_per_second: f64,
    /// When the recording began, in ticks since the machine started.
    begin_ticks: u64,
    log: ReadingLog<CpuCounters>,
    /// The counters of processes that existed before the recording, as they were when first read.
    bases: BTreeMap<ProcessIdentity, UserSystem>,
    now: BTreeMap<ProcessIdentity, UserSystem>,
}

impl CpuTimes {
    /// Starts without readings.
    pub fn new() -> CpuTimes {
        let begin = ProcessStat::of_thread();
        CpuTimes {
            ticks_per_second: rustix::param::clock_ticks_per_second() as f64,
            begin_ticks: begin.map_or(0, |stat| stat.start_ticks),
            log: ReadingLog::new(PERIOD, READINGS_MAX),
            bases: BTreeMap::new(),
            now: BTreeMap::new(),
        }
    }

    /// Whether the next reading is due.
    pub fn is_due(&self, now: Nanos) -> bool {
        let last = self.log.all().last();
        last.is_none_or(|(at, _)| now >= at.after(self.log.period()))
    }

    /// Reads all counters at time `at`.
    pub fn read(&mut self, at: Nanos, pids: impl Iterator<Item = u32>) {
        for pid in pids {
            if let Some(stat) = ProcessStat::read(pid) {
                self.add_process(pid, &stat);
            }
        }
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let machine = machine(&text, self.ticks_per_second);
        self.add(at, machine);
    }

    fn add_process(&mut self, pid: u32, stat: &ProcessStat) {
        let key = (pid, stat.start_ticks);
        let all = [stat.user_ticks, stat.system_ticks];
        let all = all.map(|ticks| ticks as f64 / self.ticks_per_second);
        // Work before the recording does not count.
        let first = match stat.start_ticks < self.begin_ticks {
            true => all,
            false => [0.0; 2],
        };
        let base = self.bases.entry(key).or_insert(first);
        self.now.insert(key, [all[0] - base[0], all[1] - base[1]]);
    }

    fn add(&mut self, at: Nanos, machine: Option<MachineTimes>) {
        let processes = self.now.clone();
        self.log.add(at, CpuCounters { machine, processes });
    }

    /// CPU time between two moments.
    pub fn between(&self, from: Nanos, until: Nanos) -> CpuCounters {
        let (before, after) = (self.at(from), self.at(until));
        let machine = before.machine.zip(after.machine);
        let less = |(key, now): (&ProcessIdentity, &UserSystem)| {
            let before = before.processes.get(key).copied().unwrap_or_default();
            let used = std::array::from_fn(|way| (now[way] - before[way]).max(0.0));
            (*key, used)
        };
        CpuCounters {
            machine: machine.map(|(before, now)| now.since(&before)),
            processes: after.processes.iter().map(less).collect(),
        }
    }

    /// The counters at a moment, interpolated between readings.
    fn at(&self, when: Nanos) -> CpuCounters {
        let (before, after, share) = match self.log.around(when) {
            ReadingsAround::Between {
                before,
                after,
                share,
            } => (before, after, share),
            ReadingsAround::Only(only) => return only.clone(),
            ReadingsAround::None => return CpuCounters::default(),
        };
        let between = |from: f64, to: f64| from + (to - from) * share;
        let machine = before.machine.zip(after.machine);
        let process = |(key, to): (&ProcessIdentity, &UserSystem)| {
            let from = before.processes.get(key).copied().unwrap_or_default();
            let mixed = std::array::from_fn(|way| between(from[way], to[way]));
            (*key, mixed)
        };
        CpuCounters {
            machine: machine.map(|(from, to)| MachineTimes {
                user_s: between(from.user_s, to.user_s),
                system_s: between(from.system_s, to.system_s),
                interrupt_s: between(from.interrupt_s, to.interrupt_s),
                idle_s: between(from.idle_s, to.idle_s),
                stolen_s: between(from.stolen_s, to.stolen_s),
            }),
            processes: after.processes.iter().map(process).collect(),
        }
    }
}

/// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
fn machine(text: &str, ticks_per_second: f64) -> Option<MachineTimes> {
    let fields = text.lines().next()?.strip_prefix("cpu ")?;
    let fields = fields.split_ascii_whitespace();
    let fields: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    let &[user, nice, system, idle, iowait, irq, softirq, steal, ..] = &fields[..] else {
        return None;
    };
    let seconds = |ticks: u64| ticks as f64 / ticks_per_second;
    Some(MachineTimes {
        user_s: seconds(user + nice),
        system_s: seconds(system),
        interrupt_s: seconds(irq + softirq),
        idle_s: seconds(idle + iowait),
        stolen_s: seconds(steal),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(start_ticks: u64, user_ticks: u64) -> ProcessStat {
        ProcessStat {
            comm: String::new(),
            state: 'S',
            parent: 1,
            is_kernel_thread: false,
            user_ticks,
            system_ticks: 2 * user_ticks,
            children_ticks: 0,
            threads: 1,
            start_ticks,
            resident_pages: 0,
        }
    }

    fn times() -> CpuTimes {
        CpuTimes {
            ticks_per_second: 100.0,
            begin_ticks: 1_000,
            ..CpuTimes::new()
        }
    }

    fn at(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    #[test]
    fn the_line_of_all_processors() {
        let text = "cpu  100 50 30 700 20 3 7 40 5 6\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        let expected = MachineTimes {
            user_s: 1.5,
            system_s: 0.3,
            interrupt_s: 0.1,
            idle_s: 7.2,
            stolen_s: 0.4,
        };
        assert_eq!(machine(text, 100.0), Some(expected));
        assert_eq!(machine("cpu  1 2 3 4 5 6 7", 100.0), None);
        assert_eq!(machine("", 100.0), None);
    }

    /// An older process counts from its first reading, a new one from its start; a restarted one counts as two, and the
    /// ended one keeps its time.
    #[test]
    fn processes_come_and_go() {
        let mut times = times();
        times.add_process(7, &stat(500, 40_000));
        times.add(at(0), None);
        times.add_process(7, &stat(500, 40_100));
        times.add(at(1_000), None);
        times.add_process(7, &stat(1_200, 300));
        times.add(at(2_000), None);
        let used = |from, until| times.between(at(from), at(until)).processes;
        let whole = used(0, 2_000);
        assert_eq!(whole[&(7, 500)], [1.0, 2.0]);
        assert_eq!(whole[&(7, 1_200)], [3.0, 6.0]);
        assert_eq!(used(500, 1_000)[&(7, 500)], [0.5, 1.0]);
        assert_eq!(used(1_500, 2_000)[&(7, 1_200)], [1.5, 3.0]);
        assert_eq!(used(1_500, 2_000)[&(7, 500)], [0.0, 0.0]);
        assert!(times.between(at(0), at(1)).machine.is_none());
    }

    #[test]
    fn long_recordings_are_read_less_often() {
        let mut times = times();
        let mut now = at(0);
        while now < at(3_600_000) {
            assert!(times.is_due(now));
            let machine = MachineTimes {
                user_s: now.0 as f64 / 1e9,
                ..MachineTimes::default()
            };
            times.add(now, Some(machine));
            now = now.after(times.log.period());
        }
        assert!(times.log.all().len() <= READINGS_MAX);
        let hour = times.between(at(0), at(3_600_000)).machine.unwrap();
        assert!((hour.user_s - 3_600.0).abs() < 10.0, "{hour:?}");
    }
}
