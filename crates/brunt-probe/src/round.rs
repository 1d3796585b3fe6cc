//! Samples everybody who is watched, once: opens files of those who come, and closes those of who goes. Called at an
//! interval, by a [`super::Prober`] or by an agent for its controller.

use std::collections::BTreeMap;

use brunt_core::{Clock, Nanos};
use brunt_result::event::Sample;

use super::by_name::ProcessFinder;
use super::sampler::{Misreadings, Sampler};
use super::watch::Watch;
use super::{Entry, Probes};

/// Samplers of everybody on a list.
pub struct SampleRound {
    watch: Watch,
    chosen: Vec<&'static Entry>,
    version: Option<u64>,
    samplers: BTreeMap<u64, Sampler>,
    finder: ProcessFinder,
    /// Of samplers that are gone.
    gone: Misreadings,
    notes: Vec<String>,
}

impl SampleRound {
    /// Of everybody on this list, and of the processes that `probes` names, under this host's name.
    pub fn new(probes: &Probes, watch: &Watch, host: &str) -> SampleRound {
        SampleRound {
            watch: watch.clone(),
            chosen: probes.chosen(),
            version: None,
            samplers: BTreeMap::new(),
            finder: ProcessFinder::new(host, &probes.processes),
            gone: Misreadings::default(),
            notes: Vec::new(),
        }
    }

    /// Takes a sample of everybody, which is told to `take`; the first time nobody has any figures yet.
    pub fn sample(&mut self, clock: &Clock, mut take: impl FnMut(Sample)) {
        let now = clock.now();
        self.look_who_is_there(now);
        for sampler in self.samplers.values_mut() {
            if let Some(sample) = sampler.sample(clock, now) {
                take(sample);
            }
            let mut notes = sampler.take_notes();
            // A process that ended is no trouble of the probes.
            if !sampler.is_empty() {
                self.notes.append(&mut notes);
            }
        }
    }

    /// What there was to say since the last time.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// What there is to say at the end.
    pub fn last_notes(&mut self) -> Vec<String> {
        self.notes.append(&mut self.finder.notes());
        self.take_notes()
    }

    /// What went wrong so far.
    pub fn misreadings(&self) -> Misreadings {
        let mut all = self.gone;
        self.samplers
            .values()
            .for_each(|sampler| all.add(sampler.misreadings()));
        all
    }

    fn look_who_is_there(&mut self, now: Nanos) {
        self.finder.look(&self.watch, now);
        let Some((version, subjects)) = self.watch.changed(self.version) else {
            return;
        };
        self.version = Some(version);
        let gone = &mut self.gone;
        self.samplers.retain(|id, sampler| {
            let stays = subjects.iter().any(|(other, _)| other == id);
            if !stays {
                gone.add(sampler.misreadings());
            }
            stays
        });
        for (id, subject) in &subjects {
            if self.samplers.contains_key(id) {
                continue;
            }
            match Sampler::open(subject, &self.chosen) {
                Ok(sampler) => {
                    self.samplers.insert(*id, sampler);
                }
                Err(error) => {
                    let host = subject.host();
                    self.notes
                        .push(format!("{host}: its network cannot be watched: {error}"));
                }
            }
        }
    }
}
