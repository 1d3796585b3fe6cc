//! The interface of an analysis: it consumes events and reports its findings. Each analysis is one file,
//! called through the table of all. The one rule: states of several pipelines, files or hosts can be merged,
//! and the merged state equals that of a single pipeline; so a state can be sent and stored.

use std::fmt::Debug;

use brunt_wire::net::{IpAddress, NextHeader};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::event::OperationEvent;
use crate::key::FileKey;
use crate::operation::ChecksumRun;

/// One analysis: looks at everything once and keeps a sketch of bounded size.
pub trait Analyse: Default + Debug + Serialize + DeserializeOwned {
    /// What it finds out, in a line.
    const HELP: &'static str;

    /// These come next: whoever keeps tables may look their entries up at once.
    #[inline]
    fn look(&mut self, _events: &[OperationEvent]) {}

    /// An operation, with its place among those that [`Analyse::look`] was shown.
    #[inline]
    fn on_event(&mut self, _event: &OperationEvent, _place: usize) {}

    /// A packet.
    #[inline]
    fn on_packet(&mut self, _time_ns: u64, _wire_len: u32) {}

    /// It carries something that is not understood.
    fn on_not_understood(&mut self, _next: NextHeader, _wire_len: u32) {}

    /// Sums of data.
    #[inline]
    fn on_checksums(&mut self, _run: &ChecksumRun<'_>) {}

    /// A name of a file of `server`: the directory it is in, none for roots, whose name is a path.
    #[inline]
    fn on_name(
        &mut self,
        _server: IpAddress,
        _file: FileKey,
        _parent: Option<FileKey>,
        _name: &[u8],
    ) {
    }

    /// Works off what was put by, before events are looked at, and before the state is read, merged or sent.
    #[inline]
    fn settle(&mut self) {}

    /// Takes in what another one saw of the same traffic; both have settled.
    fn merge(&mut self, other: Self);

    /// What it adds to a report, under its name, where the report has no place of its own for it.
    fn rows(&self) -> Option<serde_json::Value> {
        None
    }
}
