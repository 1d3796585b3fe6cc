//! The interface of an analysis: it consumes events and reports its findings as rows, with their columns and a query
//! that gives the same rows. One file per analysis, called through the table of analyses. The one rule: states of
//! several pipelines, files or hosts can be merged, and the merged state equals that of a single pipeline that saw
//! all the traffic. A state can therefore be stored and sent to another host.

use std::fmt::Debug;

use brunt_result::capture::AnalysisSection;
use brunt_wire::net::{IpAddress, NextHeader};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::event::OperationEvent;
use crate::key::FileKey;
use crate::operation::ChecksumRun;

/// One analysis: sees every event once and keeps a sketch of bounded size.
pub trait Analyse: Default + Debug + Serialize + DeserializeOwned {
    /// The line of help: what the analysis finds out.
    const HELP: &'static str;

    /// An SQL query on the tables of a trace that answers the same question; `brunt sql DIR` runs it under the
    /// analysis's name.
    const SQL: Option<&'static str> = None;

    /// Passes the upcoming events, so that analyses with tables can look up their entries in one batch.
    #[inline]
    fn prefetch(&mut self, _events: &[OperationEvent]) {}

    /// Handles an operation; `_place` is its index among the events passed to [`Analyse::prefetch`].
    #[inline]
    fn on_event(&mut self, _event: &OperationEvent, _place: usize) {}

    /// A packet.
    #[inline]
    fn on_packet(&mut self, _time_ns: u64, _wire_len: u32) {}

    /// Handles a packet whose contents are not understood.
    fn on_not_understood(&mut self, _next: NextHeader, _wire_len: u32) {}

    /// Handles checksums of data.
    #[inline]
    fn on_checksums(&mut self, _run: &ChecksumRun<'_>) {}

    /// Handles the name of a file on `server`, with its directory; `None` for a root, whose name is a path.
    #[inline]
    fn on_name(
        &mut self,
        _server: IpAddress,
        _file: FileKey,
        _parent: Option<FileKey>,
        _name: &[u8],
    ) {
    }

    /// Processes deferred work. Called before [`Analyse::prefetch`], and before the state is read, merged or sent.
    #[inline]
    fn settle(&mut self) {}

    /// Merges the state of another part of the same traffic; both states have been settled.
    fn merge(&mut self, other: Self);

    /// This analysis's part of a report: JSON for programs, tables and figures on the terminal and the page.
    fn sections(&self) -> Vec<AnalysisSection> {
        Vec::new()
    }
}
