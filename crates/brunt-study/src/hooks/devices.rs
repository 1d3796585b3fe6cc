//! Samples the figures of device layers (a cache, an array, faults, retries) during each run: a hook that reports
//! them to the hub and adds their means to the run's summary. Devices of this process are read directly; devices of a
//! served target are read over its command channel, wherever it is served. Created by `brunt run`.
//!
//! The rule: a layer that cannot be queried has no figures while its process is frozen or dead, nor for the interval
//! in which the process restarted. This never invalidates a run.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_block::Backend;
use brunt_block::control::PartFigure;
use brunt_core::cost::ResourceUsage;
use brunt_core::{Clock, Nanos};
use brunt_probe::{DEVICE, LOCAL, Means, Schedule};
use brunt_result::Outcome;
use brunt_result::event::{Sample, SampleValue};
use brunt_result::probe::ProbeRecord;
use brunt_result::summary::RunSummary;

use super::{HookError, RunHook};
use crate::control::{Command, ControlError, Controls, Local, Reply};
use crate::experiment::Experiment;
use crate::observe::{Event, Hub, RunInfo};
use crate::role::Role;

/// Samples device layers during each run.
pub struct DeviceProbing {
    interval: Duration,
    watched: Vec<Arc<Watched>>,
    running: Vec<Running>,
    measured: Arc<Mutex<Measured>>,
    /// Results of the last run.
    ends: Vec<End>,
}

/// What is queried: a device as this process opens it, or the process that serves it.
struct Watched {
    host: Arc<str>,
    controls: Arc<dyn Controls>,
    /// The device's LUNs, and the prefix of each LUN's instance names.
    luns: Vec<(u16, String)>,
}

/// A thread that samples one device.
struct Running {
    /// Sends the time from which samples are needed; the thread ends when this is dropped.
    orders: Sender<Nanos>,
    thread: JoinHandle<End>,
}

/// Means of a run's samples.
struct Measured {
    means: Means,
    /// Earlier samples don't count for the means.
    from: Nanos,
}

impl Default for Measured {
    fn default() -> Measured {
        Measured {
            means: Means::default(),
            from: Nanos::MAX,
        }
    }
}

/// A sampling thread's final report.
#[derive(Default)]
struct End {
    samples: u64,
    late: u64,
    missed: u64,
    resets: u64,
    note: Option<String>,
    cpu: Duration,
    elapsed: Duration,
}

/// The figures of all layers at one time, by instance and name.
struct Reading {
    at: Nanos,
    /// Identifies the life of the process that answered.
    life: u32,
    figures: BTreeMap<(Arc<str>, String), PartFigure>,
}

impl DeviceProbing {
    /// Samples the experiment's targets, both those that this process has opened and those that `roles` serve.
    pub fn new(
        experiment: &Experiment,
        targets: &BTreeMap<String, Arc<dyn Backend>>,
        roles: &BTreeMap<String, Arc<dyn Role>>,
    ) -> DeviceProbing {
        let opened = targets.iter().map(|(name, backend)| Watched {
            host: LOCAL.into(),
            controls: Arc::new(Local::new([(0, backend.handles())])),
            luns: vec![(0, name.clone())],
        });
        let served = roles.iter().filter_map(|(name, role)| {
            let kind = experiment.targets.get(name)?.role()?;
            let luns = 0..kind.luns()?.len() as u16;
            Some(Watched {
                host: role.host().as_str().into(),
                controls: Arc::clone(role) as Arc<dyn Controls>,
                luns: luns.map(|lun| (lun, format!("{name}:{lun}"))).collect(),
            })
        });
        let watched = opened.chain(served).map(Arc::new).collect();
        let (running, measured, ends) = Default::default();
        DeviceProbing {
            interval: experiment.probes.interval.0,
            watched,
            running,
            measured,
            ends,
        }
    }

    fn start(
        &self,
        watched: &Arc<Watched>,
        first: Reading,
        hub: &Arc<Hub>,
    ) -> Result<Running, HookError> {
        let (hub, measured) = (Arc::clone(hub), Arc::clone(&self.measured));
        let take = move |sample: Sample| {
            let mut measured = measured.lock().unwrap_or_else(PoisonError::into_inner);
            let from = measured.from;
            measured.means.add(&sample, from);
            drop(measured);
            hub.tell(&Event::Sample(Arc::new(sample)));
        };
        let (orders, due) = mpsc::channel();
        let (watched, interval) = (Arc::clone(watched), self.interval);
        let thread = std::thread::Builder::new().name("device probe".into());
        let thread = thread.spawn(move || sample(&watched, interval, first, &due, take));
        let thread = thread
            .map_err(|error| HookError::not_ready_here("cannot start the probe thread", error))?;
        Ok(Running { orders, thread })
    }
}

impl RunHook for DeviceProbing {
    fn begin(&mut self, _run: &RunInfo, hub: &Arc<Hub>) -> Result<(), HookError> {
        self.ends.clear();
        self.measured = Arc::default();
        for watched in &self.watched {
            // A device that doesn't answer is detected elsewhere.
            let Ok(first) = watched.read() else { continue };
            if !first.figures.is_empty() {
                let running = self.start(watched, first, hub)?;
                self.running.push(running);
            }
        }
        Ok(())
    }

    fn starts(&mut self, start: Nanos, ramp_up: Duration) {
        let first = start.after(ramp_up);
        self.measured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .from = first;
        for running in &self.running {
            // If a thread has ended early, its note says so.
            let _ = running.orders.send(first);
        }
    }

    fn end(&mut self, _complete: bool) -> Result<(), HookError> {
        // Stop all threads before waiting for any.
        let threads: Vec<_> = self
            .running
            .drain(..)
            .map(|running| running.thread)
            .collect();
        for thread in threads {
            match thread.join() {
                Ok(end) => self.ends.push(end),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    }

    fn sum_up(&mut self, run: &mut RunSummary, _outcome: &Outcome) {
        let ends = std::mem::take(&mut self.ends);
        if ends.is_empty() {
            return;
        }
        let interval_s = self.interval.as_secs_f64();
        let record = run.probes.get_or_insert_with(|| ProbeRecord {
            interval_s,
            ..ProbeRecord::default()
        });
        let measured = std::mem::take(&mut self.measured);
        let means = measured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .means
            .by_host();
        for (host, figures) in means {
            record.hosts.entry(host).or_default().extend(figures);
        }
        for end in ends {
            (record.late, record.missed) = (record.late + end.late, record.missed + end.missed);
            record.resets += end.resets;
            record.notes.extend(end.note);
            record.cpu_us_per_sample += end.cpu.as_secs_f64() * 1e6 / end.samples.max(1) as f64;
            record.cpu_share += end.cpu.as_secs_f64() / end.elapsed.as_secs_f64().max(1e-9);
        }
    }
}

impl Drop for DeviceProbing {
    fn drop(&mut self) {
        let _ = self.end(false);
    }
}

impl Watched {
    fn read(&self) -> Result<Reading, ControlError> {
        let life = self.controls.state().life;
        let mut figures = BTreeMap::new();
        for (lun, name) in &self.luns {
            match self.controls.must(&Command::Figures { lun: *lun })? {
                Reply::Figures { layers } => {
                    for (layer, of_layer) in layers {
                        let instance: Arc<str> = format!("{name}/{layer}").into();
                        let of_layer = of_layer.into_iter();
                        figures.extend(
                            of_layer
                                .map(|(metric, figure)| ((Arc::clone(&instance), metric), figure)),
                        );
                    }
                }
                reply => return Err(ControlError::Mismatched(Box::new(reply))),
            }
        }
        Ok(Reading {
            at: Clock::Monotonic.now(),
            life,
            figures,
        })
    }

    /// Whether the process is frozen or dead.
    fn is_away(&self) -> bool {
        self.controls.state().away.is_some()
    }
}

/// Samples at this interval until the sender of `orders` is dropped.
fn sample(
    watched: &Watched,
    interval: Duration,
    first: Reading,
    orders: &Receiver<Nanos>,
    mut take: impl FnMut(Sample),
) -> End {
    let begin = first.at;
    let cost = ResourceUsage::of_thread();
    let mut schedule = Schedule::new(begin.after(interval), interval);
    let (mut end, mut before) = (End::default(), Some(first));
    loop {
        let left = schedule.due().since(Clock::Monotonic.now());
        let over = match orders.recv_timeout(left) {
            Ok(first) => {
                schedule.begin_again(first);
                continue;
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => true,
        };
        if !over {
            schedule.taken(Clock::Monotonic.now());
        }
        let now = if watched.is_away() {
            Ok(None)
        } else {
            watched.read().map(Some)
        };
        let now = now.unwrap_or_else(|error| {
            end.note.get_or_insert_with(|| {
                format!(
                    "{}: no figures for {}: {error}",
                    watched.host, watched.luns[0].1
                )
            });
            None
        });
        if let (Some(before), Some(now)) = (&before, &now) {
            let values = between(before, now, &mut end.resets);
            if !values.is_empty() {
                take(Sample {
                    host: Arc::clone(&watched.host),
                    start: before.at,
                    end: now.at,
                    values,
                });
            }
        }
        end.samples += 1;
        before = now;
        if over {
            break;
        }
    }
    (end.late, end.missed) = (schedule.late, schedule.missed);
    end.cpu = ResourceUsage::of_thread().since(cost).cpu();
    end.elapsed = Clock::Monotonic.now().since(begin);
    end
}

/// The figures for the time between two readings. A counter that went backwards gives no figure, and is counted as a
/// reset. If the process restarted in between, this applies to all counters, even those that didn't go backwards.
fn between(before: &Reading, now: &Reading, resets: &mut u64) -> Vec<SampleValue> {
    let seconds = now.at.since(before.at).as_secs_f64();
    let mut values = Vec::new();
    for (key, figure) in &now.figures {
        let (instance, name) = key;
        // Another version of this program may report figures that this one doesn't know.
        let Some(metric) = brunt_probe::metric(DEVICE.name, name) else {
            continue;
        };
        let earlier = before.figures.get(key).filter(|_| before.life == now.life);
        let value = match (earlier, figure) {
            (_, PartFigure::Gauge(value)) => Some(*value),
            (Some(PartFigure::Counter(before)), PartFigure::Counter(now)) => {
                match now.checked_sub(*before) {
                    Some(count) => Some(count as f64 / seconds),
                    None => {
                        *resets += 1;
                        None
                    }
                }
            }
            (Some(PartFigure::Share(part, whole)), PartFigure::Share(new_part, new_whole)) => {
                match (new_part.checked_sub(*part), new_whole.checked_sub(*whole)) {
                    (Some(_), Some(0)) => None,
                    (Some(part), Some(whole)) => Some(part as f64 / whole as f64),
                    _ => {
                        *resets += 1;
                        None
                    }
                }
            }
            (None, _) if before.life != now.life => {
                *resets += 1;
                None
            }
            _ => None,
        };
        if let Some(value) = value.filter(|value| value.is_finite()) {
            let (probe, metric) = (DEVICE.name.into(), metric.name.into());
            values.push(SampleValue {
                probe,
                instance: Arc::clone(instance),
                metric,
                value,
            });
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_block::open_url;

    fn reading(at: u64, life: u32, figures: &[(&str, PartFigure)]) -> Reading {
        let figures = figures
            .iter()
            .map(|(name, figure)| (("t/x".into(), name.to_string()), *figure));
        Reading {
            at: Nanos(at * 1_000_000_000),
            life,
            figures: figures.collect(),
        }
    }

    /// Rates and shares cover the time between two readings. There are none if a counter went backwards, a share's
    /// denominator is zero, or the process restarted.
    #[test]
    fn figures_are_of_the_time_between() {
        use PartFigure::{Counter, Gauge, Share};
        let check =
            |before: &[(&str, PartFigure)], now: &[(&str, PartFigure)], life, expected: &str| {
                let mut resets = 0;
                let values = between(&reading(1, 0, before), &reading(3, life, now), &mut resets);
                let said: Vec<_> = values
                    .iter()
                    .map(|one| format!("{} {}", one.metric, one.value))
                    .collect();
                assert_eq!(
                    format!("{} resets {resets}", said.join(" ")).trim(),
                    expected
                );
            };
        let dirty = ("dirty_bytes", Gauge(7.0));
        check(&[], &[dirty], 0, "dirty_bytes 7 resets 0");
        let waits = |count| ("waits_per_s", Counter(count));
        check(
            &[waits(5)],
            &[waits(9), dirty],
            0,
            "dirty_bytes 7 waits_per_s 2 resets 0",
        );
        check(&[waits(5)], &[waits(4)], 0, "resets 1");
        check(&[waits(1 << 40)], &[waits(3)], 0, "resets 1");
        check(&[waits(5)], &[waits(9)], 1, "resets 1");
        let hits = |part, whole| ("hit_share", Share(part, whole));
        check(&[hits(1, 2)], &[hits(4, 6)], 0, "hit_share 0.75 resets 0");
        check(&[hits(1, 2)], &[hits(1, 2)], 0, "resets 0");
        check(&[hits(4, 6)], &[hits(0, 1)], 0, "resets 1");
        check(&[], &[("unheard_of", Gauge(1.0))], 0, "resets 0");
    }

    /// The table lists every layer and figure that devices report.
    #[test]
    fn the_table_is_that_of_the_parts() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let member = "[memory:1MiB]";
        let url = format!(
            "array:raid1,{member},{member},rebuild=64KiB,spare=[memory:1MiB]?fault=off&retry=2&stics={},size=1MiB",
            log.display()
        );
        let backend = open_url(&url).unwrap();
        let handles = backend.handles();
        let local = Local::new([(0, backend.handles())]);
        local
            .ask(&Command::Fail {
                lun: 0,
                layer: None,
                member: 1,
            })
            .unwrap();
        let mut said = std::collections::BTreeSet::new();
        for (name, part) in &handles {
            assert!(!part.figures().is_empty(), "{name} has no figures");
            for (figure, _) in part.figures() {
                let metric = brunt_probe::metric(DEVICE.name, figure);
                let metric =
                    metric.unwrap_or_else(|| panic!("{name}: {figure} is not in the table"));
                assert!(
                    metric.help.starts_with(part.kind()),
                    "{figure}: {}",
                    metric.help
                );
                said.insert(figure);
            }
        }
        let listed: std::collections::BTreeSet<&str> =
            DEVICE.metrics.iter().map(|one| one.name).collect();
        assert_eq!(said, listed);
    }

    /// A device is sampled while it works, until the channel closes.
    #[test]
    fn a_device_is_sampled() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!(
            "memory:1MiB?stics={},size=1MiB",
            folder.path().join("log").display()
        );
        let handles = open_url(&url).unwrap().handles();
        let watched = Watched {
            host: LOCAL.into(),
            controls: Arc::new(Local::new([(0, handles)])),
            luns: vec![(0, "disk".to_string())],
        };
        let (orders, due) = mpsc::channel();
        let mut samples = Vec::new();
        std::thread::scope(|scope| {
            let first = watched.read().unwrap();
            let (watched, samples) = (&watched, &mut samples);
            let take = |sample| samples.push(sample);
            let thread =
                scope.spawn(move || sample(watched, Duration::from_millis(10), first, &due, take));
            std::thread::sleep(Duration::from_millis(35));
            drop(orders);
            let end = thread.join().unwrap();
            assert!(end.samples >= 1 && end.resets == 0 && end.note.is_none());
        });
        let last = samples.last().expect("the last sample is taken at the end");
        let room = last
            .values
            .iter()
            .find(|one| one.metric == "log_room_bytes")
            .unwrap();
        assert_eq!(
            (&*room.instance, room.value),
            ("disk/stics", f64::from(1 << 20))
        );
        assert!(samples.windows(2).all(|two| two[0].end == two[1].start));
    }
}
