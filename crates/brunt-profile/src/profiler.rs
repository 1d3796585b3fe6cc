//! The thread that reads samples and counters while a run is measured.
//!
//! The rule: profiling must not become a load itself. It wakes up twenty times a second, and reads only the processes
//! of the experiment and those with samples; its own CPU time is part of the result.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_core::{Clock, ProcessStat, ResourceUsage};

use crate::error::{ProfileError, Unavailable};
use crate::processes::SampledProcesses;
use crate::recording::Recording;
use crate::samples::{CpuSamples, Rings};
use crate::settings::ProfileSettings;
use crate::times::{CpuTimes, ProcessIdentity};

/// Time between two checks of the buffers.
const TICK: Duration = Duration::from_millis(50);
/// The experiment's processes are looked up only once per this many readings: finding those of services takes longer.
const SUBJECTS_EVERY: usize = 5;

/// A process of the experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfiledProcess {
    /// Name of its role.
    pub role: String,
    /// Its id.
    pub pid: u32,
}

/// Records until it is stopped.
pub struct Profiler {
    stop: Sender<()>,
    thread: JoinHandle<Recording>,
}

/// Why functions can't be sampled here; `None` if they can.
///
/// # Errors
/// Sampling fails for an unexpected reason.
pub fn availability(settings: ProfileSettings) -> Result<Option<Unavailable>, ProfileError> {
    open(settings).map(Result::err)
}

fn open(settings: ProfileSettings) -> Result<Result<Rings, Unavailable>, ProfileError> {
    match Rings::open(settings.hz) {
        Ok(rings) => Ok(Ok(rings)),
        Err(ProfileError::Unavailable(why)) => Ok(Err(why)),
        Err(error) => Err(error),
    }
}

impl Profiler {
    /// Starts recording. `subjects` finds the experiment's processes, which may change; several processes may have the
    /// same role. Where the kernel forbids samples, only CPU times are recorded.
    ///
    /// # Errors
    /// Sampling fails for an unexpected reason.
    pub fn start(
        settings: ProfileSettings,
        subjects: impl Fn() -> Vec<ProfiledProcess> + Send + 'static,
    ) -> Result<Profiler, ProfileError> {
        let rings = open(settings)?;
        let (stop, stopped) = channel::<()>();
        let record = move || {
            let mut recorder = Recorder::new(settings.hz, rings);
            recorder.read(&subjects);
            while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                recorder.drain();
                if recorder.times.is_due(Clock::Monotonic.now()) {
                    recorder.read(&subjects);
                }
            }
            recorder.finish(&subjects)
        };
        let thread = std::thread::Builder::new().name("profile".into());
        let thread = thread.spawn(record).map_err(ProfileError::Thread)?;
        Ok(Profiler { stop, thread })
    }

    /// Stops recording.
    pub fn stop(self) -> Recording {
        drop(self.stop);
        let recording = self.thread.join();
        recording.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// The state of the thread.
struct Recorder {
    hz: u32,
    rings: Result<Rings, Unavailable>,
    samples: CpuSamples,
    processes: SampledProcesses,
    times: CpuTimes,
    readings: usize,
    subjects: Vec<ProfiledProcess>,
    roles: BTreeMap<ProcessIdentity, String>,
}

impl Recorder {
    fn new(hz: u32, rings: Result<Rings, Unavailable>) -> Recorder {
        let (samples, processes, readings, subjects, roles) = Default::default();
        Recorder {
            hz,
            rings,
            samples,
            processes,
            times: CpuTimes::new(),
            readings,
            subjects,
            roles,
        }
    }

    fn drain(&mut self) {
        if let Ok(rings) = &mut self.rings {
            rings.drain(&mut self.samples, &mut self.processes);
        }
    }

    fn read(&mut self, subjects: &impl Fn() -> Vec<ProfiledProcess>) {
        if self.readings.is_multiple_of(SUBJECTS_EVERY) {
            self.subjects = subjects();
            for ProfiledProcess { role, pid } in &self.subjects {
                if let Some(stat) = ProcessStat::read(*pid) {
                    self.roles.insert((*pid, stat.start_ticks), role.clone());
                }
            }
        }
        self.readings += 1;
        let now = Clock::Monotonic.now();
        let pids = self.subjects.iter().map(|subject| subject.pid);
        self.times.read(now, pids);
    }

    fn finish(mut self, subjects: &impl Fn() -> Vec<ProfiledProcess>) -> Recording {
        self.drain();
        self.readings = 0;
        self.read(subjects);
        let (lost, dropped) = (self.samples.lost, self.samples.dropped);
        let (stacks, taken) = self.samples.into_parts();
        let usage = ResourceUsage::of_thread();
        Recording {
            hz: self.hz,
            unavailable: self.rings.err().map(|why| why.to_string()),
            stacks,
            taken,
            lost,
            dropped,
            processes: self.processes.finish(),
            roles: self.roles,
            times: self.times,
            cpu: usage.user + usage.system,
        }
    }
}
