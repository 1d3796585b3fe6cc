//! The keys of a [`Workload`] that makes NFS calls: checked together, and rejected where they have no effect.
//!
//! The rule: a key without effect is an error.

use brunt_core::Size;
use brunt_result::choice::{EngineSetting, RingMode};

use crate::block::workload::Workload;
use crate::load::{WorkloadError, wrong};

impl Workload {
    /// Checks the settings of a load that makes NFS calls, and that it has no conflicting keys.
    ///
    /// # Errors
    /// The error names the first invalid key.
    pub(crate) fn check_nfs(&self) -> Result<(), WorkloadError> {
        let Some(nfs) = &self.nfs else {
            return Ok(());
        };
        nfs.check()?;
        let plain = Workload::default();
        let changed = [
            ("trace", self.trace.is_some()),
            ("read", self.read != plain.read),
            ("trim", self.trim != plain.trim),
            ("write_zeroes", self.write_zeroes != plain.write_zeroes),
            ("fsync", self.flush_every != plain.flush_every),
            ("end_fsync", self.end_fsync != plain.end_fsync),
            ("sequential", self.sequential != plain.sequential),
            ("sequential_per_kind", self.sequential_per_kind),
            ("stride", self.stride.is_some()),
            ("align", self.align.is_some()),
            ("region", self.region != plain.region),
            ("data", self.data != plain.data),
            ("sync", self.sync.is_some()),
            ("verify", self.verify.is_some()),
            ("stop.passes", self.stop.passes.is_some()),
        ];
        if let Some((key, _)) = changed.into_iter().find(|(_, changed)| *changed) {
            wrong(
                key,
                "this key doesn't apply to NFS calls, which `nfs` describes; omit it",
            )?;
        }
        let moves_data = nfs.mix.read + nfs.mix.write > 0.0;
        if self.blocks != plain.blocks && !moves_data {
            wrong(
                "blocks",
                "nfs.mix has neither reads nor writes; omit this key",
            )?;
        }
        if self.stop.bytes.is_some() && !moves_data {
            wrong(
                "stop.bytes",
                "no request transfers data, so this limit would never be reached; use requests or time",
            )?;
        }
        let (block, file) = (self.block_bytes_max(), nfs.file_size.largest());
        if moves_data && block > file {
            let (block, file) = (Size(block), Size(file));
            wrong(
                "blocks",
                format!("{block} is longer than the longest file (nfs.file_size), {file}"),
            )?;
        }
        if self.engine == Some(EngineSetting::Auto) {
            wrong("engine", "with `nfs`, choose io_uring or threads")?;
        }
        match self.ring {
            RingMode::Interrupt | RingMode::Sqpoll => Ok(()),
            RingMode::Auto | RingMode::Poll => {
                wrong("ring", "with `nfs`, choose interrupt or sqpoll")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_reported_by_their_key() {
        let check = |text: &str, key: Option<&str>| {
            let text = format!("stop = {{ time = \"1s\" }}\n{text}");
            let workload: Workload = toml::from_str(&text).unwrap();
            let found = workload.check();
            assert_eq!(
                found.as_ref().err().map(|error| error.key),
                key,
                "{text}: {found:?}"
            );
            let written: Workload = toml::from_str(&toml::to_string(&workload).unwrap()).unwrap();
            assert_eq!(written, workload);
        };
        check("nfs = {}", None);
        check(
            "nfs = { mix = { getattr = 1 } }\nqueue_depth = 32\nworkers = 4",
            None,
        );
        check("nfs = { mix = {} }", Some("nfs.mix"));
        check(
            "nfs = { mix = { getattr = -1, read = 2 } }",
            Some("nfs.mix"),
        );
        check("nfs = { directories = 0 }", Some("nfs.directories"));
        check("nfs = { files = 0 }", Some("nfs.files"));
        check(
            "nfs = { directories = 1000000, files = 1000 }",
            Some("nfs.files"),
        );
        check("nfs = { names = 0 }", Some("nfs.names"));
        check("nfs = { file_size = \"1TiB\" }", Some("nfs.file_size"));
        check("nfs = { file_size = \"1k\" }", Some("blocks"));
        check("nfs = {}\nread = 0.5", Some("read"));
        check("nfs = {}\nverify = {}", Some("verify"));
        check("nfs = {}\nhosts = [\"a\", \"b\"]", None);
        check("nfs = {}\nhosts = [\"a\", \"a\"]", Some("hosts"));
        check(
            "nfs = { file_size = { kind = \"uniform\", min = \"512\", max = \"64k\" } }",
            None,
        );
        check("nfs = { file_size = [{ size = \"1k\" }] }", Some("blocks"));
        check("nfs = { file_size = [] }", Some("nfs.file_size"));
        check("nfs = {}\nengine = \"auto\"", Some("engine"));
        check("nfs = {}\nring = \"poll\"", Some("ring"));
        check(
            "nfs = { mix = { lookup = 1 } }\nblocks = [{ size = \"8k\" }]",
            Some("blocks"),
        );
        check("nfs = {}\narrival = { kind = \"open\", rate = 100 }", None);
        check(
            "nfs = {}\ndistribution = { kind = \"zipf\", theta = 1.1 }",
            None,
        );
        let unknown = "nfs = { mix = { mkfifo = 1 } }\nstop = { time = \"1s\" }";
        assert!(toml::from_str::<Workload>(unknown).is_err());
    }
}
