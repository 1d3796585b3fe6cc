//! The replay keys of a [`Workload`]: collected with their defaults, and rejected where they don't belong.
//!
//! The rule: a key without effect is an error.

use std::time::Duration;

use brunt_core::Span;

use super::settings::ReplaySettings;
use crate::block::workload::{Arrival, Workload};
use crate::load::{WorkloadError, wrong};

impl Workload {
    /// Returns the replay settings, if the workload replays a trace.
    pub fn replay(&self) -> Option<ReplaySettings> {
        let plain = ReplaySettings::of(self.trace.clone()?);
        let duration = |span: Option<Span>| span.map(|span| span.0);
        Some(ReplaySettings {
            format: self.format.clone(),
            reading: self.reading.clone().unwrap_or_default(),
            speed: self.speed.unwrap_or(plain.speed),
            timing: self.timing.unwrap_or_default(),
            map: self.map.unwrap_or_default(),
            from: duration(self.from).unwrap_or(Duration::ZERO),
            length: duration(self.length),
            repeat: self.repeat.unwrap_or(1),
            devices: self.devices.clone(),
            conflicts: self.conflicts.unwrap_or_default(),
            contents: self.contents.unwrap_or_default(),
            spin: duration(self.spin).unwrap_or(plain.spin),
            ..plain
        })
    }

    /// Checks that the replay keys are valid, and that a replay has no conflicting keys.
    ///
    /// # Errors
    /// The error names the first invalid key.
    pub(crate) fn check_replay(&self) -> Result<(), WorkloadError> {
        let Some(settings) = self.replay() else {
            let stated = [
                ("nfs_replay", self.nfs_replay.is_some()),
                ("format", self.format.is_some()),
                ("reading", self.reading.is_some()),
                ("speed", self.speed.is_some()),
                ("timing", self.timing.is_some()),
                ("map", self.map.is_some()),
                ("from", self.from.is_some()),
                ("for", self.length.is_some()),
                ("loop", self.repeat.is_some()),
                ("devices", !self.devices.is_empty()),
                ("conflicts", self.conflicts.is_some()),
                ("contents", self.contents.is_some()),
                ("spin", self.spin.is_some()),
            ];
            return match stated.into_iter().find(|(_, stated)| *stated) {
                Some((key, _)) => wrong(
                    key,
                    "this key applies only to replays, but `trace` is missing",
                ),
                None => Ok(()),
            };
        };
        settings.check()?;
        let plain = Workload::default();
        let changed = [
            ("blocks", self.blocks != plain.blocks),
            ("read", self.read != plain.read),
            ("trim", self.trim != plain.trim),
            ("write_zeroes", self.write_zeroes != plain.write_zeroes),
            ("fsync", self.flush_every != plain.flush_every),
            ("end_fsync", self.end_fsync != plain.end_fsync),
            ("sequential", self.sequential != plain.sequential),
            ("sequential_per_kind", self.sequential_per_kind),
            ("stride", self.stride.is_some()),
            ("distribution", self.distribution != plain.distribution),
            ("align", self.align != plain.align),
            ("region", self.region != plain.region),
            ("arrival", self.arrival != plain.arrival),
            ("burst", self.burst.is_some()),
            ("depth_search", self.depth_search.is_some()),
            ("stop.passes", self.stop.passes.is_some()),
        ];
        if let Some((key, _)) = changed.into_iter().find(|(_, changed)| *changed) {
            wrong(
                key,
                "the trace determines the requests and their times; omit this key",
            )?;
        }
        if self.verify.is_some() && self.workers > 1 {
            wrong(
                "workers",
                "a replay that verifies has a single worker, which knows the expected content of \
                each block",
            )?;
        }
        debug_assert!(matches!(self.arrival, Arrival::Closed {}));
        self.check_nfs_replay()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_would_have_no_effect_are_refused() {
        let check = |text: &str, key: Option<&str>| {
            let workload: Workload = toml::from_str(text).unwrap();
            assert_eq!(workload.check().err().map(|error| error.key), key, "{text}");
            let written: Workload = toml::from_str(&toml::to_string(&workload).unwrap()).unwrap();
            assert_eq!(written, workload);
        };
        check("trace = \"x.vscsi\"", None);
        check(
            "trace = \"x\"\nformat = \"spc\"\nspeed = 15.0\ntiming = \"dependency\"\nmap = \"pack\"\n\
             from = \"1m\"\nfor = \"1h\"\nloop = 3\ndevices = { \"0\" = \"disk\" }\n\
             conflicts = \"hold-back\"\ncontents = \"data\"\nspin = \"0\"\n\
             reading = { strict = true, sort = true, block = \"4k\" }",
            None,
        );
        let columns =
            "trace = \"x\"\nreading = { columns = \"obj-id-col=2, time-unit=us\", op = \"write\" }";
        check(columns, None);
        check("trace = \"x\"\nreading = { event = \"queued\" }", None);
        check(
            "trace = \"x\"\nformat = \"dtb\"\nreading = { event = \"queued\" }",
            Some("reading.event"),
        );
        check(
            "reading = { strict = true }\nstop = { time = \"1s\" }",
            Some("reading"),
        );
        check("speed = 2.0\nstop = { time = \"1s\" }", Some("speed"));
        check("for = \"1s\"\nstop = { time = \"1s\" }", Some("for"));
        check("trace = \"x\"\nread = 0.5", Some("read"));
        check(
            "trace = \"x\"\narrival = { kind = \"open\", rate = 10 }",
            Some("arrival"),
        );
        check("trace = \"x\"\nspeed = -1", Some("speed"));
        check("trace = \"x\"\nverify = {}\nworkers = 2", Some("workers"));
    }
}
