//! Determines a job's file or device, the part of it that is used, and when the job ends.

use brunt_core::device_path::encode_bare;
use brunt_core::{Size, Span};
use brunt_load::Workload;
use brunt_load::block::workload::{Region, StopCondition};

use super::{Draft, LAY_OUT, SECOND};
use crate::engine::Engine;
use crate::error::{Cause, FioError};

/// Files and null devices consist of whole blocks of this size.
const BLOCK_BYTES: u64 = 4096;
/// Special files that fio reads and writes without checking the file type.
const NO_DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

impl Draft<'_> {
    /// Region, end and URL for one of the job's `copies` copies.
    pub(super) fn extent(
        &mut self,
        engine: Engine,
        copy: u32,
        copies: u32,
        workload: &mut Workload,
    ) -> Result<String, FioError> {
        let all = self.size_here("size")?;
        let file = self.file_size()?;
        let step = self.size_here("offset_increment")?.unwrap_or(0);
        let first = self.size_here("offset")?.unwrap_or(0);
        let start_of = |copy: u32| first.saturating_add(step.saturating_mul(u64::from(copy)));
        let start = start_of(copy);
        if workload.workers > 1 && self.is_on("offset_increment") {
            self.lose("offset_increment", "workers share their region");
        }
        // Without a size, fio uses the size of the file or device.
        let length_from = |start: u64| match (all, file) {
            (Some(all), Some(file)) => Some(all.min(file.saturating_sub(start))),
            (all, file) => all.or(file.map(|file| file.saturating_sub(start))),
        };
        let length = length_from(start);
        let is_own = self.has_own_file();
        if length.is_none()
            && (is_own || engine == Engine::Null)
            && !matches!(engine, Engine::Iscsi | Engine::Nbd)
        {
            let cause = Cause::NoSize {
                job: self.job.name.clone(),
            };
            return Err(cause.at(self.job.location.clone()));
        }
        let workers = u64::from(workload.workers);
        // fio creates one file per worker; here, workers use parts of a single file with the same total size.
        let has_files = is_own && matches!(engine, Engine::Queued | Engine::Synchronous);
        let files = if has_files { workers } else { 1 };
        let length = length.map(|length| length.saturating_mul(files));
        self.note_shares(workload, files);
        workload.region = Region {
            start: Size(start),
            length: length.map(Size),
        };
        let stop = self.stop(workload, all.or(length.map(|length| length / files)))?;
        // Once the depth has been found, fio runs for the length of one more trial and ends, regardless of runtime.
        let time = workload
            .depth_search
            .map(|search| search.time)
            .or(stop.time);
        workload.stop = StopCondition {
            steady: workload.stop.steady,
            time,
            ..stop
        };
        // Copies that share a file have a single target, large enough for the copy with the highest offset.
        let last = start_of(if has_files { copy } else { copies - 1 });
        let end = length_from(last).map(|length| last.saturating_add(length.saturating_mul(files)));
        self.url(
            engine,
            copy,
            file.map(|file| file.saturating_mul(files)).max(end),
            workload,
        )
    }

    /// Reports differences from fio in how workers divide the file; `files` is the number of files that fio would
    /// use.
    fn note_shares(&mut self, workload: &Workload, files: u64) {
        if files > 1 {
            self.note(
                "numjobs",
                "its workers share one file, whose size is the total of the files that fio creates, one per worker",
            );
        } else if workload.workers > 1 && workload.sequential > 0.0 {
            self.note(
                "numjobs",
                "each worker covers its own part of the file; in fio, each covers the whole file",
            );
        } else if workload.workers > 1 && workload.verify.is_some() {
            self.note(
                "numjobs",
                "each worker writes and verifies its own part of the file; in fio, each handles the whole file",
            );
        }
    }

    /// A size in bytes; `None` for the whole device. Percentages other than 100 cannot be expressed. A number of
    /// zones is in units of `zonesize`.
    pub(super) fn size_here(&mut self, key: &'static str) -> Result<Option<u64>, FioError> {
        let Some(text) = self.text(key) else {
            return Ok(None);
        };
        if text == "100%" && key == "size" || text == "0%" {
            return Ok(None);
        }
        if text
            .strip_suffix('%')
            .is_some_and(|share| share.parse::<u32>().is_ok())
        {
            self.lose(
                key,
                "a percentage of a device is not supported: write region = { start = …, length = … }",
            );
            return Ok(None);
        }
        let Some(zones) = text
            .strip_suffix('z')
            .and_then(|zones| zones.parse::<u64>().ok())
        else {
            return self.size(key);
        };
        match self.size("zonesize")?.filter(|bytes| *bytes > 0) {
            Some(bytes) => Ok(Some(zones.saturating_mul(bytes))),
            None => {
                let why = "the value is in zones, but zonesize is not set, so fio ignores it; write a size like 256m";
                self.lose(key, why);
                Ok(None)
            }
        }
    }

    /// The size of the job's only file, if it is given.
    fn file_size(&mut self) -> Result<Option<u64>, FioError> {
        let files = self.number("nrfiles")?.unwrap_or(1);
        if files > 1 {
            self.lose("nrfiles", "a target is one file or device");
        }
        match self.text("filesize") {
            Some(text) if text.contains('-') => {
                self.lose("filesize", "a target is one file or device, of one size");
                Ok(None)
            }
            Some(_) if files <= 1 => self.size_here("filesize"),
            Some(_) => Ok(self
                .size_here("filesize")?
                .map(|size| size.saturating_mul(files))),
            None => Ok(None),
        }
    }

    /// The stop condition; `size` is the number of bytes that each worker transfers in total.
    fn stop(&mut self, workload: &Workload, size: Option<u64>) -> Result<StopCondition, FioError> {
        let workers = u64::from(workload.workers);
        let loops = self.number("loops")?.unwrap_or(1).max(1);
        let runtime = self.time("runtime", SECOND)?.filter(|time| !time.is_zero());
        let mut stop = StopCondition {
            time: runtime.map(Span),
            ..StopCondition::default()
        };
        if let Some(count) = self.number("number_ios")? {
            stop.requests = Some(count.saturating_mul(workers));
        }
        if self.is_on("time_based") && runtime.is_some() {
            return Ok(stop);
        }
        let io_size = self.size_here("io_size")?;
        let bytes = io_size.or(size.map(|size| size.saturating_mul(loops)));
        match bytes.map(|bytes| bytes.saturating_mul(workers)) {
            None => {
                let passes = self
                    .passes(workload)
                    .saturating_mul(loops)
                    .saturating_mul(workers);
                stop.passes = u32::try_from(passes).ok();
            }
            // Trims don't transfer bytes, so stop after as many requests as fit into the size.
            Some(bytes) if workload.trim == 1.0 => {
                let block = workload.block_bytes_max();
                let requests = (bytes / block).max(1);
                stop.requests = Some(
                    stop.requests
                        .map_or(requests, |stated| stated.min(requests)),
                );
            }
            Some(bytes) => stop.bytes = Some(Size(bytes)),
        }
        Ok(stop)
    }

    fn url(
        &mut self,
        engine: Engine,
        copy: u32,
        size: Option<u64>,
        workload: &Workload,
    ) -> Result<String, FioError> {
        let size = size.map(|size| size.next_multiple_of(BLOCK_BYTES));
        if engine != Engine::Nbd && self.text("uri").is_some() {
            self.lose("uri", "only engine nbd has this option");
        }
        match engine {
            Engine::Null => return Ok(format!("null:{}", Size(size.unwrap_or(BLOCK_BYTES)))),
            Engine::Iscsi => {
                return Ok(self
                    .text("filename")
                    .unwrap_or_default()
                    .replace("\\:", ":"));
            }
            Engine::Nbd => return self.nbd_uri(workload),
            Engine::Queued | Engine::Synchronous | Engine::Near(_) | Engine::Elsewhere(_) => {}
        }
        let path = self.path(copy);
        if NO_DEVICES.contains(&path.as_str()) {
            self.lose(
                "filename",
                format!("{path} is neither a file nor a block device: write ioengine=null"),
            );
            return Ok(format!("null:{}", Size(size.unwrap_or(BLOCK_BYTES))));
        }
        let is_device = path.starts_with("/dev/");
        let options = self.url_options(size.filter(|_| !is_device), workload);
        let query = if options.is_empty() {
            String::new()
        } else {
            format!("?{}", options.join("&"))
        };
        Ok(if is_device {
            path + &query
        } else {
            format!("file:{}{query}", encode_bare(&path))
        })
    }

    /// The URL options of a file or device. With a size, the target is a file that may have to be created.
    fn url_options(&mut self, size: Option<u64>, workload: &Workload) -> Vec<String> {
        let mut options = Vec::new();
        // `buffered` is the inverse of `direct`.
        let buffered = self
            .settings
            .get("direct")
            .is_none_or(|setting| (setting.key == "buffered") == (setting.value != "0"));
        if buffered {
            options.push("direct=no".to_string());
        }
        // Set for reads too, so that jobs on the same file share a target.
        if self
            .text("sync")
            .is_some_and(|sync| sync != "0" && sync != "none")
        {
            options.push("write_back=no".to_string());
        }
        let may_create = self.text("allow_file_create") != Some("0");
        if let Some(size) = size.filter(|_| may_create) {
            options.extend([format!("size={}", Size(size)), "create=yes".into()]);
            // fio also fills a new file before a job reads it.
            if workload.read > 0.0 {
                options.push(LAY_OUT.into());
            }
        }
        options
    }

    /// The export for engine nbd: its `uri` follows the NBD URI document, as Brunt's device URLs do.
    fn nbd_uri(&mut self, workload: &Workload) -> Result<String, FioError> {
        let Some(uri) = self.text("uri").filter(|uri| !uri.is_empty()) else {
            let cause = Cause::NoUri {
                job: self.job.name.clone(),
            };
            return Err(cause.at(self.job.location.clone()));
        };
        let scheme = uri.split_once("://").map(|(scheme, _)| scheme);
        let query = uri.split_once('?').map_or("", |(_, query)| query);
        match scheme {
            None => return Err(self.wrong("uri", "an NBD URI such as nbd://host/export")),
            Some("nbd" | "nbds" | "nbd+unix" | "nbds+unix") => {}
            Some(_) => self.lose(
                "uri",
                "only nbd, nbds, nbd+unix and nbds+unix exports are supported",
            ),
        }
        if query
            .split('&')
            .any(|option| option.starts_with("tls-psk-file="))
        {
            self.lose(
                "uri",
                "TLS is supported with certificates (tls-certificates=DIR), not with pre-shared keys",
            );
        }
        if workload.workers > 1 {
            self.note(
                "numjobs",
                "each worker has its own connection, as in fio, but only if the server advertises \
                 CAN_MULTI_CONN; multi_conn=yes in the URL skips that check",
            );
        }
        if self
            .text("sync")
            .is_some_and(|sync| sync != "0" && sync != "none")
        {
            self.note(
                "sync",
                "engine nbd ignores this option: its writes never request stable storage (FUA)",
            );
        }
        Ok(uri.to_string())
    }

    fn path(&mut self, copy: u32) -> String {
        let path = match self.text("filename").filter(|names| !names.is_empty()) {
            Some(names) => {
                // ':' separates files; "\:" is a literal colon.
                let name = names.replace("\\:", "\0");
                let (first, more) = name
                    .split_once(':')
                    .map_or((name.as_str(), false), |(first, _)| (first, true));
                if more {
                    self.lose(
                        "filename",
                        "a target is one file or device, so only the first is used",
                    );
                }
                first.replace('\0', ":")
            }
            None => format!("{}.{copy}.0", self.job.name),
        };
        match self.text("directory") {
            Some(directory) if !path.starts_with('/') => {
                format!("{}/{path}", directory.trim_end_matches('/'))
            }
            _ => path,
        }
    }
}
