//! Samples all watched subjects once: opens the files of new ones and closes those of removed ones. Called at an
//! interval, by a [`super::Prober`] or by an agent for its controller.

use std::collections::BTreeMap;

use brunt_core::{Clock, Nanos};
use brunt_result::event::Sample;

use super::by_name::ProcessFinder;
use super::sampler::{Misreadings, Sampler};
use super::watch::Watch;
use super::{Entry, Probes};

/// The samplers of all watched subjects.
pub struct SampleRound {
    watch: Watch,
    chosen: Vec<&'static Entry>,
    version: Option<u64>,
    samplers: BTreeMap<u64, Sampler>,
    finder: ProcessFinder,
    /// Failed readings of removed samplers.
    gone: Misreadings,
    notes: Vec<String>,
}

impl SampleRound {
    /// Samples all subjects on this list, and the processes named in `probes`, under this host's name.
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

    /// Samples each subject and passes the samples to `take`; a subject's first reading doesn't produce a sample.
    pub fn sample(&mut self, clock: &Clock, mut take: impl FnMut(Sample)) {
        let now = clock.now();
        self.update_subjects(now);
        for sampler in self.samplers.values_mut() {
            if let Some(sample) = sampler.sample(clock, now) {
                take(sample);
            }
            let mut notes = sampler.take_notes();
            // Missing files of a process that has ended are not worth a note.
            if !sampler.is_empty() {
                self.notes.append(&mut notes);
            }
        }
    }

    /// Returns the notes since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Returns the final notes.
    pub fn last_notes(&mut self) -> Vec<String> {
        self.notes.append(&mut self.finder.notes());
        self.take_notes()
    }

    /// Returns all failed readings so far.
    pub fn misreadings(&self) -> Misreadings {
        let mut all = self.gone;
        self.samplers
            .values()
            .for_each(|sampler| all.add(sampler.misreadings()));
        all
    }

    fn update_subjects(&mut self, now: Nanos) {
        self.finder.refresh(&self.watch, now);
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
                        .push(format!("{host}: its network cannot be observed: {error}"));
                }
            }
        }
    }
}
