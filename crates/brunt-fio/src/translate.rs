//! A job becomes a target and a workload. Called by [`crate::import()`], job by job.
//!
//! Where the two programs differ by nature, the experiment says what the job did, and a remark says where
//! it does not: fio runs jobs at the same time, measures from the sending of a request, and creates a
//! file of data before it reads one.

use std::collections::HashMap;
use std::time::Duration;

use brunt_core::units::format_size;
use brunt_core::{Size, Span};
use brunt_load::Workload;
use brunt_load::block::workload::{
    Arrival, BlockSize, Burst, Distribution, Process, RampUp, Region, Stop, Verify, Zone,
};

use crate::error::{Cause, FioError};
use crate::import::Remark;
use crate::job::{Job, Setting};
use crate::keys::{Fate, canonical, fate};
use crate::units;

/// Most block sizes that a range becomes.
const RANGE_SIZES_MAX: u64 = 64;
const SECOND: Duration = Duration::from_secs(1);

/// The URL and the workload of a job. What of it has no counterpart is added to `remarks`.
///
/// # Errors
/// An option has a value that cannot be translated, or the job has no end.
pub fn job(job: &Job, remarks: &mut Vec<Remark>) -> Result<(String, Workload), FioError> {
    let mut draft = Draft { job, settings: HashMap::new(), kb_base: 1024, remarks };
    draft.settle()?;
    draft.translate()
}

struct Draft<'a> {
    job: &'a Job,
    /// Keys that are translated, by their usual name.
    settings: HashMap<&'a str, &'a Setting>,
    kb_base: u64,
    remarks: &'a mut Vec<Remark>,
}

impl<'a> Draft<'a> {
    /// Sorts keys by what becomes of them.
    fn settle(&mut self) -> Result<(), FioError> {
        for setting in &self.job.settings {
            let key = canonical(&setting.key);
            match fate(key) {
                Fate::Read => drop(self.settings.insert(key, setting)),
                Fate::Moot => {}
                Fate::Cannot(why) => self.remark(setting, why),
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

    fn remark(&mut self, setting: &Setting, why: impl Into<String>) {
        let remark = Remark { location: setting.location.clone(), key: setting.key.clone(), why: why.into() };
        // A global key is met once for each job.
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    fn note(&mut self, key: &str, why: impl Into<String>) {
        if let Some(setting) = self.settings.get(key).copied() {
            self.remark(setting, why);
        } else {
            let (location, key) = (self.job.location.clone(), format!("[{}]", self.job.name));
            self.remarks.push(Remark { location, key, why: why.into() });
        }
    }

    fn wrong(&self, key: &str, expected: &'static str) -> FioError {
        let setting = self.settings[key];
        let (option, value) = (setting.key.clone(), setting.value.clone());
        Cause::Value { option, value, expected }.at(setting.location.clone())
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.settings.get(key).map(|setting| setting.value.as_str())
    }

    fn number(&self, key: &str) -> Result<Option<u64>, FioError> {
        let Some(text) = self.text(key) else { return Ok(None) };
        text.trim_end_matches('%').parse().map(Some).map_err(|_| self.wrong(key, "a whole number"))
    }

    fn size(&self, key: &str) -> Result<Option<u64>, FioError> {
        let Some(text) = self.text(key) else { return Ok(None) };
        units::size(text, self.kb_base).map(Some).ok_or_else(|| self.wrong(key, "a size such as 4k"))
    }

    fn time(&self, key: &str, bare: Duration) -> Result<Option<Duration>, FioError> {
        let Some(text) = self.text(key) else { return Ok(None) };
        units::time(text, bare).map(Some).ok_or_else(|| self.wrong(key, "a time such as 30s"))
    }

    /// A switch: on without a value.
    fn is_on(&self, key: &str) -> bool {
        self.text(key).is_some_and(|text| text != "0")
    }

    fn translate(&mut self) -> Result<(String, Workload), FioError> {
        let mut workload = Workload::default();
        self.direction(&mut workload)?;
        self.blocks(&mut workload)?;
        self.distribution(&mut workload)?;
        workload.workers = self.number("numjobs")?.unwrap_or(1) as u32;
        workload.queue_depth = self.number("iodepth")?.unwrap_or(1) as u32;
        let engine = self.text("ioengine").unwrap_or("psync");
        if matches!(engine, "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" | "mmap")
            && workload.queue_depth > 1
        {
            workload.queue_depth = 1;
            self.note(
                "iodepth",
                format!("engine {engine} has one request outstanding whatever iodepth says"),
            );
        }
        if let Some(seed) = self.number("randseed")? {
            self.note(
                "randseed",
                format!("write seed = {seed}; the requests are others than fio's all the same"),
            );
        }
        workload.data.compressible = self.number("buffer_compress_percentage")?.unwrap_or(0) as f64 / 100.0;
        workload.data.dedupable = self.number("dedupe_percentage")?.unwrap_or(0) as f64 / 100.0;
        if let Some(method) = self.text("verify").filter(|method| !matches!(*method, "0" | "null")) {
            workload.verify = Some(Verify::default());
            if method != "crc32c" {
                self.note("verify", "blocks carry address, generation and XXH3, not this");
            }
        }
        self.arrival(&mut workload)?;
        let size_bytes = self.extent(&mut workload)?;
        let target = self.target(engine, size_bytes, &workload);
        Ok((target, workload))
    }

    fn direction(&mut self, workload: &mut Workload) -> Result<(), FioError> {
        let written = self.text("rw").unwrap_or("read");
        let (rw, sequencer) = written.split_once(':').unwrap_or((written, ""));
        if !sequencer.is_empty() {
            self.note("rw", format!("':{sequencer}' is left out: each request is drawn by itself"));
        }
        let mix = match (self.number("rwmixread")?, self.number("rwmixwrite")?) {
            (Some(read), _) => read.min(100) as f64 / 100.0,
            (None, Some(write)) => 1.0 - write.min(100) as f64 / 100.0,
            (None, None) => 0.5,
        };
        let (read, random) = match rw {
            "read" => (1.0, false),
            "write" => (0.0, false),
            "randread" => (1.0, true),
            "randwrite" => (0.0, true),
            "rw" | "readwrite" => (mix, false),
            "randrw" => (mix, true),
            _ => {
                return Err(self.wrong(
                    "rw",
                    "read, write, rw, randread, randwrite or randrw; others cannot be translated",
                ));
            }
        };
        workload.read = read;
        workload.sequential = match (random, self.number("percentage_random")?) {
            (false, _) => 1.0,
            (true, None) => 0.0,
            (true, Some(percent)) => 1.0 - percent.min(100) as f64 / 100.0,
        };
        Ok(())
    }

    fn blocks(&mut self, workload: &mut Workload) -> Result<(), FioError> {
        let reads = workload.read > 0.0;
        // "reads,writes,trims"; what is empty is as what stands before.
        let side = |text: &'a str| {
            let mut parts = text.split(',');
            let first = parts.next().unwrap_or_default();
            let second = parts.next().filter(|part| !part.is_empty()).unwrap_or(first);
            (if reads { first } else { second }, first != second && reads && workload.read < 1.0)
        };
        let one = |size| BlockSize { size: Size(size), weight: 1.0 };
        let (key, differs) = if let Some(text) = self.text("bssplit") {
            let (text, differs) = side(text);
            workload.blocks = self.split(text)?;
            ("bssplit", differs)
        } else if let Some(text) = self.text("bsrange") {
            let (text, differs) = side(text);
            let (low, high) = text.split_once('-').unwrap_or((text, text));
            let parse = |text| units::size(text, self.kb_base).filter(|size| *size > 0);
            let (Some(low), Some(high)) = (parse(low), parse(high)) else {
                return Err(self.wrong("bsrange", "two sizes such as 4k-64k"));
            };
            let count = (high / low).max(1);
            // Multiples of the smallest, as fio draws them; some of them when there are many.
            let step = count.div_ceil(RANGE_SIZES_MAX);
            workload.blocks = (1..=count).rev().step_by(step as usize).map(|n| one(n * low)).collect();
            workload.blocks.reverse();
            if step > 1 {
                self.note("bsrange", format!("{} of its {count} sizes are used", workload.blocks.len()));
            }
            ("bsrange", differs)
        } else {
            let (text, differs) = side(self.text("bs").unwrap_or("4k"));
            let size = units::size(text, self.kb_base).filter(|size| *size > 0);
            workload.blocks = vec![one(size.ok_or_else(|| self.wrong("bs", "a size such as 4k"))?)];
            ("bs", differs)
        };
        if differs {
            self.note(key, "reads and writes have the same block sizes here: those of reads are used");
        }
        let smallest = workload.blocks.iter().map(|block| block.size).min().unwrap_or(Size(4096));
        workload.align = match self.size("ba")? {
            Some(align) => Size(align),
            None => smallest,
        };
        if let Some(block) = workload.blocks.iter().find(|block| !block.size.0.is_multiple_of(512)) {
            let cause = Cause::BlockSize { job: self.job.name.clone(), bytes: block.size.0 };
            return Err(cause.at(self.job.location.clone()));
        }
        Ok(())
    }

    /// `4k/10:64k/50:32k/40`; entries without a share divide what is left.
    fn split(&self, text: &str) -> Result<Vec<BlockSize>, FioError> {
        let wrong = || self.wrong("bssplit", "sizes and percents such as 4k/60:64k/40");
        let mut entries = Vec::new();
        for entry in text.split(':') {
            let (size, percent) = entry.split_once('/').unwrap_or((entry, ""));
            let size = units::size(size, self.kb_base).filter(|size| *size > 0).ok_or_else(wrong)?;
            let percent = match percent {
                "" => None,
                text => {
                    Some(text.parse::<f64>().ok().filter(|p| (0.0..=100.0).contains(p)).ok_or_else(wrong)?)
                }
            };
            entries.push((size, percent));
        }
        let given: f64 = entries.iter().filter_map(|(_, percent)| *percent).sum();
        let open = entries.iter().filter(|(_, percent)| percent.is_none()).count();
        let rest = (100.0 - given).max(0.0) / open.max(1) as f64;
        let blocks = entries
            .into_iter()
            .map(|(size, percent)| BlockSize { size: Size(size), weight: percent.unwrap_or(rest) });
        Ok(blocks.filter(|block| block.weight > 0.0).collect())
    }

    fn distribution(&mut self, workload: &mut Workload) -> Result<(), FioError> {
        let Some(text) = self.text("random_distribution") else { return Ok(()) };
        let wrong = |this: &Draft<'_>| {
            this.wrong("random_distribution", "random, zipf:1.1, pareto:0.2, normal:10 or zoned:60/10:40/90")
        };
        let (kind, value) = text.split_once(':').unwrap_or((text, ""));
        let number = || value.split(',').next().and_then(|value| value.parse::<f64>().ok());
        workload.distribution = match kind {
            "random" => Distribution::Uniform {},
            "zipf" => Distribution::Zipf { theta: number().ok_or_else(|| wrong(self))? },
            "pareto" => Distribution::Pareto { skew: number().ok_or_else(|| wrong(self))? },
            // A deviation in percent of the region, around its middle.
            "normal" | "gauss" => {
                let deviation = number().ok_or_else(|| wrong(self))? / 100.0;
                Distribution::Normal { mean: 0.5, deviation }
            }
            "zoned" => {
                let first = value.split(',').next().unwrap_or_default();
                let share = |text: &str| text.parse::<f64>().ok().map(|percent| percent / 100.0);
                let zone = |zone: &str| {
                    let (access, size) = zone.split_once('/')?;
                    Some(Zone { access: share(access)?, size: share(size)? })
                };
                let zones: Option<Vec<Zone>> = first.split(':').map(zone).collect();
                if first != value {
                    self.note(
                        "random_distribution",
                        "reads and writes go to the same zones here: those of reads",
                    );
                }
                Distribution::HotZones { zones: zones.ok_or_else(|| wrong(self))? }
            }
            _ => return Err(wrong(self)),
        };
        Ok(())
    }

    fn arrival(&mut self, workload: &mut Workload) -> Result<(), FioError> {
        let workers = f64::from(workload.workers);
        if let Some(text) = self.text("rate_iops") {
            let mut limits = text.split(',').map(|part| part.parse::<f64>().ok().filter(|rate| *rate > 0.0));
            let reads = limits.next().flatten();
            let writes = limits.next().unwrap_or(reads);
            // Each direction has a limit of its own; the mix is held up by the one that is met first.
            let of_mix =
                |limit: Option<f64>, share: f64| limit.filter(|_| share > 0.0).map(|limit| limit / share);
            let both = [of_mix(reads, workload.read), of_mix(writes, 1.0 - workload.read)];
            let rate = both.into_iter().flatten().reduce(f64::min);
            let rate =
                rate.ok_or_else(|| self.wrong("rate_iops", "requests a second such as 1000"))? * workers;
            let process = match self.text("rate_process") {
                Some("poisson") => Process::Poisson,
                _ => Process::Constant,
            };
            workload.arrival = Arrival::Open { rate, process, skip_after: Span(Duration::from_secs(10)) };
            self.note("rate_iops", "latencies begin when a request is due, not when it is sent as fio's do");
        }
        if let Some(pause) =
            self.time("thinktime", Duration::from_micros(1))?.filter(|pause| !pause.is_zero())
        {
            let requests = self.number("thinktime_blocks")?.unwrap_or(1).max(1);
            workload.burst = Some(Burst { requests, interval: Span(pause) });
        }
        if let Some(time) = self.time("ramp_time", SECOND)?.filter(|time| !time.is_zero()) {
            workload.ramp_up = Some(RampUp { requests: 0, time: Span(time) });
        }
        Ok(())
    }

    /// Region and end; the size of the file in bytes, if it is said.
    fn extent(&mut self, workload: &mut Workload) -> Result<Option<u64>, FioError> {
        let (mut size, mut share) = (None, false);
        if let Some(text) = self.text("size") {
            match text.ends_with('%') {
                true => {
                    share = true;
                    self.note(
                        "size",
                        "a share of the device is not known here: write region = { length = … }",
                    );
                }
                false => size = self.size("size")?,
            }
        }
        let offset = match self.text("offset") {
            Some(text) if text.ends_with('%') => {
                self.note("offset", "a share of the device is not known here: write region = { start = … }");
                0
            }
            _ => self.size("offset")?.unwrap_or(0),
        };
        workload.region = Region { start: Size(offset), length: size.map(Size) };
        let workers = u64::from(workload.workers);
        let loops = self.number("loops")?.unwrap_or(1).max(1);
        let runtime = self.time("runtime", SECOND)?.filter(|time| !time.is_zero());
        let mut stop = Stop { time: runtime.map(Span), ..Stop::default() };
        if let Some(count) = self.number("number_ios")? {
            stop.requests = Some(count * workers);
        }
        if !(self.is_on("time_based") && runtime.is_some()) {
            let bytes = self.size("io_size")?.or(size.map(|size| size.saturating_mul(loops)));
            stop.bytes = bytes.map(|bytes| Size(bytes.saturating_mul(workers)));
        }
        if stop == Stop::default() {
            let cause = Cause::Endless { job: self.job.name.clone(), share };
            return Err(cause.at(self.job.location.clone()));
        }
        workload.stop = stop;
        Ok(size.map(|size| size + offset))
    }

    fn target(&mut self, engine: &str, size: Option<u64>, workload: &Workload) -> String {
        match engine {
            "null" => {
                let size = size.unwrap_or(1 << 30).max(workload.region.start.0 + 4096);
                return format!("null:{}", format_size(size.next_multiple_of(4096)));
            }
            "libiscsi" => {
                let url = self.text("filename").unwrap_or_default().replace("\\:", ":");
                return url;
            }
            "libaio" | "io_uring" | "posixaio" | "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" => {}
            other => self.note(
                "ioengine",
                format!("there is no engine {other} here: files and devices go through io_uring"),
            ),
        }
        let (path, own) = match self.text("filename") {
            Some(names) => {
                // ':' parts several files; "\:" is one.
                let name = names.replace("\\:", "\0");
                let (first, more) =
                    name.split_once(':').map_or((name.as_str(), false), |(first, _)| (first, true));
                if more {
                    self.note("filename", "a target is one file or device: the first one");
                }
                (first.replace('\0', ":"), false)
            }
            None => (format!("{}.0.0", self.job.name), true),
        };
        let path = match self.text("directory") {
            Some(directory) if !path.starts_with('/') => {
                format!("{}/{path}", directory.trim_end_matches('/'))
            }
            _ => path,
        };
        let mut options = Vec::new();
        // "buffered" is the same key the other way round.
        let buffered = self
            .settings
            .get("direct")
            .is_none_or(|setting| (setting.key == "buffered") == (setting.value != "0"));
        if buffered {
            options.push("direct=no".to_string());
        }
        // Also for reads, so that jobs of one file have one target.
        if !self.text("sync").is_some_and(|sync| sync != "0" && sync != "none") {
            options.push("write_back=yes".to_string());
        }
        if path.starts_with("/dev/") {
            let query = if options.is_empty() { String::new() } else { format!("?{}", options.join("&")) };
            return path + &query;
        }
        if let Some(size) = size {
            options.extend([format!("size={}", size.next_multiple_of(4096)), "create=yes".into()]);
            if workload.read > 0.0 {
                let why = "a file that is not there is made with holes, not filled as fio does it: reads of holes cost less";
                self.note(if own { "size" } else { "filename" }, why);
            }
        }
        if own && workload.workers > 1 {
            self.note("numjobs", "its workers share one file; fio makes one for each");
        }
        let query = if options.is_empty() { String::new() } else { format!("?{}", options.join("&")) };
        format!("file:{path}{query}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Import, import};

    fn of(text: &str) -> Result<Import, FioError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.fio");
        std::fs::write(&path, text).unwrap();
        import(&path)
    }

    fn one(settings: &str) -> (String, Workload, Vec<Remark>) {
        let import = of(&format!("[job]\nsize=1m\nfilename=/x/y\n{settings}\n")).unwrap();
        let target = import.experiment.targets.into_values().next().unwrap();
        (target.url, import.experiment.workloads.into_values().next().unwrap(), import.remarks)
    }

    /// The usual keys arrive where they belong.
    #[test]
    fn usual_keys() {
        let (url, workload, _) = one("");
        assert_eq!(url, "file:/x/y?direct=no&write_back=yes&size=1048576&create=yes");
        assert_eq!((workload.read, workload.sequential, workload.queue_depth), (1.0, 1.0, 1));
        assert_eq!((workload.stop.bytes, workload.region.length), (Some(Size(1 << 20)), Some(Size(1 << 20))));
        let text = "rw=randrw\nrwmixread=70\nbs=8k\niodepth=32\nioengine=libaio\ndirect=1\nnumjobs=4\noffset=64k\nloops=3";
        let (url, workload, _) = one(text);
        assert_eq!(url, "file:/x/y?write_back=yes&size=1114112&create=yes");
        assert_eq!(
            (workload.read, workload.sequential, workload.queue_depth, workload.workers),
            (0.7, 0.0, 32, 4)
        );
        assert_eq!((workload.align, workload.region.start), (Size(8192), Size(65536)));
        assert_eq!(workload.stop.bytes, Some(Size(12 << 20)));
        let (_, workload, _) =
            one("rw=randread\npercentage_random=80\nruntime=2m\ntime_based\nramp_time=5\nba=512");
        assert!((workload.sequential - 0.2).abs() < 1e-9);
        assert_eq!((workload.stop.bytes, workload.stop.time), (None, Some(Span(Duration::from_secs(120)))));
        assert_eq!(workload.ramp_up.map(|ramp| ramp.time), Some(Span(Duration::from_secs(5))));
        assert_eq!(workload.align, Size(512));
        let (_, workload, _) = one("kb_base=1000\nbs=512kib\nio_size=3MiB\nnumber_ios=7");
        let (bytes, requests) = (workload.stop.bytes, workload.stop.requests);
        assert_eq!(
            (workload.blocks[0].size, bytes, requests),
            (Size(512 << 10), Some(Size(3 << 20)), Some(7))
        );
        let (_, workload, _) = one("verify=crc32c\nrw=write\nthinktime=500\nthinktime_blocks=8");
        assert!(workload.verify.is_some());
        assert_eq!(workload.burst, Some(Burst { requests: 8, interval: Span(Duration::from_micros(500)) }));
    }

    /// Block sizes of every form are understood.
    #[test]
    fn block_sizes() {
        let check = |settings: &str, expected: &[(u64, f64)]| {
            let blocks = one(settings).1.blocks;
            let found: Vec<_> = blocks.iter().map(|block| (block.size.0, block.weight)).collect();
            assert_eq!(found, expected, "{settings}");
        };
        check("bsrange=4k-16k", &[(4096, 1.0), (8192, 1.0), (12288, 1.0), (16384, 1.0)]);
        check("bssplit=4k/10:64k/50:32k/40", &[(4096, 10.0), (65536, 50.0), (32768, 40.0)]);
        check("bssplit=4k/50:64k/:32k/", &[(4096, 50.0), (65536, 25.0), (32768, 25.0)]);
        check("rw=write\nbs=4k,64k", &[(65536, 1.0)]);
        assert_eq!(one("bsrange=512-1m").1.blocks.len(), 64);
    }

    /// Distributions and rates arrive.
    #[test]
    fn distributions_and_rates() {
        let check = |text: &str, expected| {
            assert_eq!(
                one(&format!("rw=randread\nrandom_distribution={text}")).1.distribution,
                expected,
                "{text}"
            );
        };
        check("random", Distribution::Uniform {});
        check("zipf:1.2", Distribution::Zipf { theta: 1.2 });
        check("pareto:0.2", Distribution::Pareto { skew: 0.2 });
        check("normal:25", Distribution::Normal { mean: 0.5, deviation: 0.25 });
        let zones = vec![Zone { access: 0.6, size: 0.1 }, Zone { access: 0.4, size: 0.9 }];
        check("zoned:60/10:40/90", Distribution::HotZones { zones });
        let rate = |settings: &str| match one(settings).1.arrival {
            Arrival::Open { rate, process, .. } => (rate.round(), process),
            other => panic!("{other:?}"),
        };
        assert_eq!(rate("rate_iops=1000\nnumjobs=2"), (2000.0, Process::Constant));
        assert_eq!(
            rate("rw=randrw\nrwmixread=80\nrate_iops=800\nrate_process=poisson"),
            (1000.0, Process::Poisson)
        );
        assert_eq!(rate("rw=randrw\nrate_iops=800,100"), (200.0, Process::Constant));
    }

    /// What cannot be translated is named with its line and a reason, once.
    #[test]
    fn remarks() {
        let text = "[global]\nstartdelay=5\ngroup_reporting\nnonsense=1\n[a]\nsize=1m\nrw=write:4k\niodepth=8\n[b]\nioengine=splice\nsize=1m\nrw=randwrite\n";
        let import = of(text).unwrap();
        let remark = |key: &str| {
            let all: Vec<_> = import.remarks.iter().filter(|remark| remark.key == key).collect();
            assert_eq!(all.len(), 1, "{key}: {all:?}");
            (all[0].location.line, all[0].why.clone())
        };
        assert_eq!(remark("startdelay").0, Some(2));
        assert!(remark("nonsense").1.contains("not known"));
        assert_eq!(remark("rw").0, Some(7));
        assert!(remark("iodepth").1.contains("one request outstanding"));
        assert!(remark("ioengine").1.contains("splice"));
        assert!(remark("[b]").1.contains("one after the other"));
        assert!(import.remarks.iter().all(|remark| remark.key != "group_reporting"));
        assert!(import.text.contains(":2: startdelay: ") && import.text.starts_with("# From "));
        // Two files of their own: each workload against its own.
        let points: Vec<_> = import.experiment.points().into_iter().map(|point| point.label).collect();
        assert_eq!(points, ["a a", "b b"]);
    }

    /// A mistake names its line and what would be right.
    #[test]
    fn mistakes() {
        let refused = |settings: &str| of(&format!("[job]\n{settings}\n")).unwrap_err();
        let check = |settings: &str, line: usize, words: &str| {
            let error = refused(settings);
            assert!(matches!(error.cause, Cause::Value { .. }), "{settings}: {error:?}");
            assert_eq!(error.location.line, Some(line));
            assert!(error.to_string().contains(words), "{settings}: {error}");
        };
        check("size=1m\nrw=trim", 3, ":3: rw=trim: write read");
        check("size=1z", 2, ":2: size=1z: write a size");
        check("size=1m\nrandom_distribution=zipf", 3, "zipf:1.1");
        check("size=1m\niodepth=many", 3, "a whole number");
        assert!(matches!(refused("rw=read").cause, Cause::Endless { share: false, .. }));
        assert!(matches!(refused("size=50%").cause, Cause::Endless { share: true, .. }));
        assert!(matches!(refused("size=1m\nbs=1000").cause, Cause::BlockSize { bytes: 1000, .. }));
        let refusal = refused("size=1m\nioengine=io_uring\niodepth=100000");
        assert!(matches!(refusal.cause, Cause::Experiment(_)), "{refusal}");
        assert!(refused("rw=read").advice().is_some_and(|advice| advice.contains("runtime")));
    }

    /// Engines lead to their targets.
    #[test]
    fn engines() {
        assert_eq!(one("ioengine=null").0, "null:1MiB");
        let iscsi = "ioengine=libiscsi\nfilename=iscsi\\://host/iqn.x/0";
        assert_eq!(one(iscsi).0, "iscsi://host/iqn.x/0");
        assert_eq!(one("filename=/dev/sdx\ndirect=1").0, "/dev/sdx?write_back=yes");
        assert_eq!(one("filename=/dev/sdx\nbuffered=0\nsync=1").0, "/dev/sdx");
        let own = one("directory=/data\nfilename=a").0;
        assert_eq!(own, "file:/data/a?direct=no&write_back=yes&size=1048576&create=yes");
    }
}
