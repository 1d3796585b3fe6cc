//! A load for tests that shows how to add one: this file, and its line in [`crate::LOADS`]. Its workers just sleep;
//! each nap is a request.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use brunt_block::OpenError;
use brunt_block::table::Permit;
use brunt_core::{Clock, Histogram, Nanos};
use brunt_result::{Figures, Interval, OpKind, Outcome, RequestStatus, Stopped};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::collect::{Post, WorkerMessage};
use crate::commands::{CommandLimits, Commands, LoadCommand, LoadCommandError};
use crate::entry::{LoadEntry, written};
use crate::hosted::{HostedLoad, OrderedLoad};
use crate::kind::{LoadForm, LoadKind, NamedLoad, OwnTable};
use crate::load::{
    Finished, Load, LoadError, LoadInfo, LoadTarget, MessageSender, PreparedLoad, RunOrder,
    RunningLoad, WorkloadError, wrong,
};
use crate::record::Recorder;

pub(crate) const LINE: LoadKind = LoadKind {
    name: "nap",
    help: "sleeps",
    example: "naps = 3",
    permit: Some("nap"),
    read: |text, _| {
        let nap: SleepLoad = toml::from_str(text).map_err(Box::new)?;
        Ok(vec![(String::new(), Arc::new(nap))])
    },
    form: LoadForm::Own(OwnTable::of::<SleepLoad>("beds", "")),
};

/// Naps of several workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SleepLoad {
    /// Naps per worker.
    pub naps: u64,
    /// Number of workers.
    #[serde(default = "two")]
    pub workers: u32,
    /// Hosts to sleep on.
    #[serde(default)]
    pub hosts: Vec<String>,
}

impl LoadEntry for SleepLoad {
    fn kind(&self) -> &'static str {
        LINE.name
    }
    fn settings(&self) -> toml::Table {
        written(self)
    }
    fn noun(&self) -> &'static str {
        "bed"
    }
    fn check(&self) -> Result<(), WorkloadError> {
        match self.naps {
            0 => wrong(
                "naps",
                "a bed needs at least one nap; write 1 or more".to_string(),
            ),
            _ => Ok(()),
        }
    }
    fn hosts(&self) -> &[String] {
        &self.hosts
    }
    fn on_hosts(&self, hosts: Vec<String>) -> Arc<dyn LoadEntry> {
        Arc::new(SleepLoad {
            hosts,
            ..self.clone()
        })
    }
    fn place(&self) -> String {
        "bed".to_string()
    }
    fn describe(&self) -> String {
        format!("{} naps per worker", self.naps)
    }
    fn loads(&self) -> Vec<NamedLoad> {
        vec![("nap".to_string(), Arc::new(self.clone()))]
    }
}

fn two() -> u32 {
    2
}

impl Load for SleepLoad {
    fn kind(&self) -> &'static str {
        LINE.name
    }
    fn info(&self) -> LoadInfo {
        LoadInfo {
            kinds: vec![OpKind::Access],
            workers: self.workers,
            ..LoadInfo::default()
        }
    }
    fn describe(&self) -> String {
        format!("{} naps", self.naps)
    }
    fn keys(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![("naps", self.naps.into())]
    }
    fn open(&self, _on: &LoadTarget, _stop: &AtomicBool) -> Result<Vec<String>, LoadError> {
        Ok(vec!["it only sleeps".into()])
    }
    fn prepare(
        &self,
        _on: &LoadTarget,
        _order: &RunOrder,
        inbox: MessageSender,
        _stop: &AtomicBool,
    ) -> Result<(PreparedLoad, Box<dyn RunningLoad>), LoadError> {
        let commands = Arc::new(Commands::new());
        let (mut starts, mut threads) = (Vec::new(), Vec::new());
        for worker in 0..self.workers {
            let (start, started) = sync_channel::<Nanos>(1);
            let (inbox, commands, naps) = (inbox.clone(), Arc::clone(&commands), self.naps);
            starts.push(start);
            threads.push(std::thread::spawn(move || {
                inbox.send(WorkerMessage::Ready);
                let outcome = match started.recv() {
                    Ok(start) => sleep(naps, start, &commands, &mut Post::new(worker, &inbox)),
                    Err(_) => Outcome::interrupted(),
                };
                inbox.send(WorkerMessage::Done(worker, Box::new(Ok(outcome))));
            }));
        }
        let prepared = PreparedLoad::alone(self.workers, 1);
        Ok((
            prepared,
            Box::new(RunningSleep {
                starts,
                commands,
                threads,
            }),
        ))
    }
    fn hosted(self: Arc<Self>) -> Option<Arc<dyn HostedLoad>> {
        Some(self)
    }
}

impl HostedLoad for SleepLoad {
    fn named_hosts(&self) -> &[String] {
        &self.hosts
    }
    fn for_host(&self, _order: &RunOrder) -> OrderedLoad {
        let here = SleepLoad {
            hosts: Vec::new(),
            ..self.clone()
        };
        OrderedLoad {
            text: toml::to_string(&here).expect("naps can be written"),
            kinds: self.info().kinds,
            queue_depth: 1,
            ..OrderedLoad::default()
        }
    }
    fn drives_device(&self) -> bool {
        false
    }
    fn check_allowed(&self, permit: &dyn Permit) -> Result<(), OpenError> {
        permit.check("nap", "")
    }
}

fn sleep(naps: u64, start: Nanos, commands: &Commands, recorder: &mut dyn Recorder) -> Outcome {
    let mut interval = Interval {
        index: 0,
        start,
        end: start,
        figures: Figures::of_kinds(&[OpKind::Access]),
        waiting: Histogram::default(),
    };
    let early = start.0.saturating_sub(Clock::Monotonic.now().0);
    std::thread::sleep(Duration::from_nanos(early));
    for _ in 0..naps {
        if commands.is_stopped() {
            break;
        }
        std::thread::sleep(Duration::from_micros(10));
        interval.figures.at(0).completed += 1;
        interval.figures.at(0).response.record(Nanos(10_000));
        interval.figures.counts.by_status[RequestStatus::Good as usize] += 1;
    }
    interval.end = Clock::Monotonic.now();
    recorder.interval(&interval);
    let stopped = if commands.is_stopped() {
        Stopped::Interrupted
    } else {
        Stopped::Done
    };
    Outcome {
        figures: interval.figures,
        start,
        end: interval.end,
        stopped,
        ..Outcome::interrupted()
    }
}

struct RunningSleep {
    starts: Vec<SyncSender<Nanos>>,
    commands: Arc<Commands>,
    threads: Vec<JoinHandle<()>>,
}

impl RunningLoad for RunningSleep {
    fn start(&mut self, at: Nanos) {
        self.starts
            .drain(..)
            .for_each(|start| start.send(at).expect("a napper waits"));
    }
    fn command(&mut self, command: LoadCommand) -> Result<(), LoadCommandError> {
        CommandLimits::default().check(command)?;
        self.commands.give(command);
        Ok(())
    }
    fn finish(mut self: Box<Self>) -> Finished {
        self.threads
            .drain(..)
            .for_each(|thread| thread.join().expect("a napper does not panic"));
        Finished::default()
    }
}
