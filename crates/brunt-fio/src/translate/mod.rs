//! Converts a job to a target and a workload. Called by [`crate::import()`] for each job.
//!
//! The rule: every difference from the job's behaviour is reported in a remark. A remark is a loss if the difference
//! changes the measurement.

mod extent;
mod pace;
mod pattern;
mod steady;
#[cfg(test)]
mod tests;
mod zones;

use std::collections::HashMap;
use std::time::Duration;

use brunt_load::Workload;
use brunt_load::block::workload::VerifySettings;
use brunt_load::together::JOBS_MAX;
use brunt_result::choice::RingMode;

use crate::engine::{Engine, engine};
use crate::error::{Cause, FioError};
use crate::job::{Job, Setting};
use crate::keys::{Fate, ZONED, canonical, fate, is_off, unknown};
use crate::remark::Remark;
use crate::units;

const SECOND: Duration = Duration::from_secs(1);
/// URL option that fills a new file before the first run; always the last option of its URL.
pub const LAY_OUT: &str = "lay_out=yes";
/// fio's default engine on Linux.
const USUAL_ENGINE: &str = "psync";

/// Whether a job is a block load at all. An unsupported engine is a loss.
///
/// # Errors
/// The engine's name contains a variable that is not set.
pub fn engine_is_here(job: &Job, remarks: &mut Vec<Remark>) -> Result<bool, FioError> {
    let by_key = job.by_key();
    let Some(setting) = by_key.get("ioengine") else {
        return Ok(true);
    };
    is_set(setting)?;
    let name = setting.value.as_str();
    let (here, why) = match engine(name) {
        Engine::Queued | Engine::Synchronous | Engine::Null | Engine::Iscsi | Engine::Nbd => {
            return Ok(true);
        }
        Engine::Near(what) => (
            true,
            format!("engine {name} {what}; here, requests to a file or device go through io_uring"),
        ),
        Engine::Elsewhere(what) => (
            false,
            format!(
                "engine {name} {what}: [{}] is not supported as a load",
                job.name
            ),
        ),
    };
    // A skipped job gets its own remark; an engine that is set globally is reported only once.
    let remark = Remark {
        location: setting.location.clone(),
        key: "ioengine".into(),
        why,
        loss: true,
    };
    if !remarks.contains(&remark) {
        remarks.push(remark);
    }
    Ok(here)
}

/// Adds a remark about a zoned device, which changes the meaning of all other options.
pub fn zoned_device(job: &Job, remarks: &mut Vec<Remark>) {
    if let Some(zoned) = job
        .by_key()
        .get("zonemode")
        .filter(|mode| mode.value == "zbd")
    {
        let (location, key) = (zoned.location.clone(), zoned.key.clone());
        let remark = Remark {
            location,
            key,
            why: ZONED.into(),
            loss: true,
        };
        if !remarks.contains(&remark) {
            remarks.push(remark);
        }
    }
}

/// The URL and the workload of a job; several pairs if its `numjobs` copies differ in file or start offset. Parts
/// without an equivalent are added to `remarks`.
///
/// # Errors
/// An option has a value that cannot be translated, or the size of the job's file is unknown.
pub fn job(job: &Job, remarks: &mut Vec<Remark>) -> Result<Vec<(String, Workload)>, FioError> {
    let mut draft = Draft {
        job,
        settings: HashMap::new(),
        kb_base: 1024,
        remarks,
    };
    draft.settle()?;
    draft.translate()
}

fn is_set(setting: &Setting) -> Result<(), FioError> {
    match &setting.unset {
        Some(name) => Err(Cause::UnknownVariable(name.clone()).at(setting.location.clone())),
        None => Ok(()),
    }
}

struct Draft<'a> {
    job: &'a Job,
    /// The translated keys by canonical name.
    settings: HashMap<&'a str, &'a Setting>,
    kb_base: u64,
    remarks: &'a mut Vec<Remark>,
}

impl<'a> Draft<'a> {
    /// Sorts the keys by how they are imported.
    fn settle(&mut self) -> Result<(), FioError> {
        let rw = self
            .job
            .by_key()
            .get("rw")
            .or(self.job.by_key().get("readwrite"))
            .map(|rw| rw.value.as_str());
        let only_reads = rw.is_none_or(|rw| matches!(rw, "read" | "randread"));
        for setting in &self.job.settings {
            let key = canonical(&setting.key);
            let off = is_off(key, &setting.value);
            match fate(key) {
                Fate::Read => {
                    is_set(setting)?;
                    self.settings.insert(key, setting);
                }
                Fate::Moot => {}
                Fate::Cannot(_) | Fate::CannotWrite(_) | Fate::Differs(_) if off => {}
                Fate::Differs(why) => self.remark(setting, why, false),
                Fate::CannotWrite(_) if only_reads => {}
                Fate::Cannot(why) | Fate::CannotWrite(why) => self.remark(setting, why, true),
                Fate::Unknown => self.remark(setting, unknown(&setting.key), true),
            }
        }
        if let Some(base) = self.number("kb_base")? {
            if base != 1000 && base != 1024 {
                return Err(self.wrong("kb_base", "1000 or 1024"));
            }
            self.kb_base = base;
        }
        Ok(())
    }

    fn remark(&mut self, setting: &Setting, why: impl Into<String>, loss: bool) {
        let (location, key) = (setting.location.clone(), setting.key.clone());
        let remark = Remark {
            location,
            key,
            why: why.into(),
            loss,
        };
        // A global key occurs in every job, but is reported only once.
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// Adds a remark that the experiment achieves the same effect in a different way.
    fn note(&mut self, key: &str, why: impl Into<String>) {
        self.say(key, why.into(), false);
    }

    /// Adds a remark that the experiment differs from the job.
    fn lose(&mut self, key: &str, why: impl Into<String>) {
        self.say(key, why.into(), true);
    }

    fn say(&mut self, key: &str, why: String, loss: bool) {
        if let Some(setting) = self.settings.get(key).copied() {
            self.remark(setting, why, loss);
        } else {
            let (location, key) = (self.job.location.clone(), format!("[{}]", self.job.name));
            let remark = Remark {
                location,
                key,
                why,
                loss,
            };
            if !self.remarks.contains(&remark) {
                self.remarks.push(remark);
            }
        }
    }

    fn wrong(&self, key: &str, expected: &'static str) -> FioError {
        let setting = self.settings[key];
        let (option, value) = (setting.key.clone(), setting.value.clone());
        Cause::Value {
            option,
            value,
            expected,
        }
        .at(setting.location.clone())
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.settings.get(key).map(|setting| setting.value.as_str())
    }

    fn number(&self, key: &str) -> Result<Option<u64>, FioError> {
        let Some(text) = self.text(key) else {
            return Ok(None);
        };
        text.trim_end_matches('%')
            .parse()
            .map(Some)
            .map_err(|_| self.wrong(key, "a whole number"))
    }

    fn size(&self, key: &str) -> Result<Option<u64>, FioError> {
        let Some(text) = self.text(key) else {
            return Ok(None);
        };
        units::size(text, self.kb_base)
            .map(Some)
            .ok_or_else(|| self.wrong(key, "a size such as 4k"))
    }

    fn time(&self, key: &str, bare: Duration) -> Result<Option<Duration>, FioError> {
        let Some(text) = self.text(key) else {
            return Ok(None);
        };
        units::time(text, bare)
            .map(Some)
            .ok_or_else(|| self.wrong(key, "a time such as 30s"))
    }

    /// A boolean option: on if it is given without a value.
    fn is_on(&self, key: &str) -> bool {
        self.text(key).is_some_and(|text| text != "0")
    }

    fn translate(&mut self) -> Result<Vec<(String, Workload)>, FioError> {
        let mut workload = Workload::default();
        self.direction(&mut workload)?;
        self.blocks(&mut workload)?;
        self.distribution(&mut workload)?;
        self.zones(&mut workload)?;
        workload.workers = self.count("numjobs")?;
        workload.queue_depth = self.count("iodepth")?;
        let name = self.text("ioengine").unwrap_or(USUAL_ENGINE);
        let engine = engine(name);
        if engine == Engine::Synchronous && workload.queue_depth > 1 {
            workload.queue_depth = 1;
            self.note(
                "iodepth",
                format!("engine {name} keeps one request outstanding, regardless of iodepth"),
            );
        }
        if name == "io_uring" && self.is_on("sqthread_poll") {
            workload.ring = RingMode::Sqpoll;
        } else if name == "io_uring" && self.is_on("hipri") {
            workload.ring = RingMode::Poll;
        }
        if let Some(seed) = self.number("randseed")? {
            self.note(
                "randseed",
                format!("write seed = {seed}; the sequence of requests still differs from fio's"),
            );
        }
        workload.data.compressible = self.share("buffer_compress_percentage")?.unwrap_or(0.0);
        workload.data.dedupable = self.share("dedupe_percentage")?.unwrap_or(0.0);
        self.verify(&mut workload);
        self.flushes(&mut workload)?;
        let copies = self.copies(engine, &workload);
        if copies > 1 {
            workload.workers = 1;
        }
        self.arrival(&mut workload)?;
        self.steady(&mut workload)?;
        self.promise(&mut workload)?;
        let each = (0..copies).map(|copy| {
            let mut workload = workload.clone();
            let url = self.extent(engine, copy, copies, &mut workload)?;
            Ok((url, workload))
        });
        each.collect()
    }

    /// The number of workloads that reproduce the copies of a job (`numjobs`): one per copy if each copy has its own
    /// file or start offset, or if all copies read or write sequentially from the same offset. Otherwise one, whose
    /// workers stand in for the copies.
    fn copies(&self, engine: Engine, workload: &Workload) -> u32 {
        let own_files =
            self.has_own_file() && matches!(engine, Engine::Queued | Engine::Synchronous);
        let differ = own_files
            || self.is_on("offset_increment")
            // Copies that verify become workers, whose parts don't overlap: other copies must not change data that
            // this copy verifies.
            || (workload.sequential > 0.0 && workload.verify.is_none() && !self.is_on("steadystate"));
        if differ && workload.workers <= JOBS_MAX as u32 {
            workload.workers.max(1)
        } else {
            1
        }
    }

    /// Whether fio creates a file for each copy of the job.
    fn has_own_file(&self) -> bool {
        self.text("filename").is_none_or(str::is_empty)
    }

    /// A number of threads or requests, below 2^32.
    fn count(&self, key: &str) -> Result<u32, FioError> {
        let count = self.number(key)?.unwrap_or(1);
        u32::try_from(count).map_err(|_| self.wrong(key, "a whole number below 4294967296"))
    }

    /// A percentage, converted to a fraction.
    fn share(&self, key: &str) -> Result<Option<f64>, FioError> {
        Ok(self
            .number(key)?
            .map(|percent| percent.min(100) as f64 / 100.0))
    }

    fn verify(&mut self, workload: &mut Workload) {
        let Some(method) = self
            .text("verify")
            .filter(|method| !matches!(*method, "0" | "null"))
        else {
            return;
        };
        if workload.read == 1.0 {
            self.lose(
                "verify",
                "to verify what another job wrote, use that job's journals and brunt verify",
            );
            return;
        }
        if workload.trim > 0.0 {
            self.lose("verify", "trimmed blocks cannot be verified");
            return;
        }
        let mut verify = VerifySettings::default();
        if method != "crc32c" {
            self.note(
                "verify",
                "blocks contain address, generation and XXH3 instead",
            );
        }
        if workload.read == 0.0 && self.text("do_verify") != Some("0") {
            let folder = format!("{}.journals", self.job.name.replace('/', "-"));
            let why = format!(
                "fio then reads everything back; here, run brunt verify {folder}/run-N DEVICE afterwards"
            );
            self.note("verify", why);
            verify.journal = Some(folder.into());
        }
        workload.verify = Some(verify);
    }

    /// Translates `fsync` and `fdatasync` (flush after this many writes) to `flush_every`. `end_fsync` and
    /// `fsync_on_close` are equivalent, because a job closes its file once, at its end.
    fn flushes(&mut self, workload: &mut Workload) -> Result<(), FioError> {
        let on_device = self
            .text("filename")
            .is_some_and(|name| name.starts_with("/dev/"));
        let only_data = "flushes use fdatasync(2), which does not write the file's timestamps";
        for key in ["fdatasync", "fsync"] {
            let every = self.number(key)?.filter(|every| *every > 0);
            if let Some(every) = every.filter(|_| workload.changes_data()) {
                workload.flush_every = every;
                if key == "fsync" && !on_device {
                    self.note(key, only_data);
                }
            }
        }
        for key in ["end_fsync", "fsync_on_close"] {
            if self.is_on(key) && workload.changes_data() {
                workload.end_fsync = true;
                if !on_device {
                    self.note(key, only_data);
                }
                if self.number("loops")?.is_some_and(|loops| loops > 1) {
                    self.note(key, "the device is flushed once, not after each loop");
                }
            }
        }
        Ok(())
    }
}
