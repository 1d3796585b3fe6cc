//! The interface of an analysis: it consumes events and reports its findings as rows, with their columns and a query
//! that gives the same rows. Each analysis is one file and is called through the table of analyses. The one rule:
//! states of several pipelines, files or hosts can be merged, and the merged state equals that of a single pipeline; so
//! a state can be sent and stored.

use std::fmt::Debug;

use brunt_result::capture::AnalysisSection;
use brunt_wire::net::{IpAddress, NextHeader};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::event::OperationEvent;
use crate::key::FileKey;
use crate::operation::ChecksumRun;

/// One analysis: sees everything once and keeps a sketch of bounded size.
pub trait Analyse: Default + Debug + Serialize + DeserializeOwned {
    /// One line of help: what it finds out.
    const HELP: &'static str;

    /// The same question in SQL, on the tables of a trace: `brunt sql DIR` runs it under the analysis's name.
    const SQL: Option<&'static str> = None;

    /// Announces the next events, so that analyses with tables can look up their entries in one go.
    #[inline]
    fn prefetch(&mut self, _events: &[OperationEvent]) {}

    /// An operation, with its index among the events passed to [`Analyse::prefetch`].
    #[inline]
    fn on_event(&mut self, _event: &OperationEvent, _place: usize) {}

    /// A packet.
    #[inline]
    fn on_packet(&mut self, _time_ns: u64, _wire_len: u32) {}

    /// The packet carries something that is not understood.
    fn on_not_understood(&mut self, _next: NextHeader, _wire_len: u32) {}

    /// Checksums of data.
    #[inline]
    fn on_checksums(&mut self, _run: &ChecksumRun<'_>) {}

    /// A name of a file of `server`, with its directory; `None` for roots, whose name is a path.
    #[inline]
    fn on_name(
        &mut self,
        _server: IpAddress,
        _file: FileKey,
        _parent: Option<FileKey>,
        _name: &[u8],
    ) {
    }

    /// Processes deferred work. Called before events are announced, and before the state is read, merged or sent.
    #[inline]
    fn settle(&mut self) {}

    /// Merges another state of the same traffic; both have settled.
    fn merge(&mut self, other: Self);

    /// The analysis's part of a report, which programs read as JSON, and the terminal and the page show.
    fn sections(&self) -> Vec<AnalysisSection> {
        Vec::new()
    }
}
