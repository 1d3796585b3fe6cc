//! Attributes data to files and computes its checksums, for data that arrives in pieces and for data within a
//! complete message. Called by [`super::records`] and the programs. The one rule: data with an unknown file or offset
//! is counted but not summed.

use brunt_wire::nfs::FileHandle;

use super::compound::MovedData;
use crate::checksum::{BLOCK_BYTES, BlockSums};
use crate::dissect::Out;
use crate::ledger::Ledger;
use crate::operation::{ChecksumRun, FileKey, Peers, Sink};

/// The operation that arriving data belongs to.
#[derive(Clone, Copy, Debug)]
pub struct DataTarget {
    pub(super) record_id: u64,
    pub(super) file: FileKey,
    pub(super) offset: u64,
    pub(super) write: bool,
}

impl DataTarget {
    pub(super) fn new(
        record_id: u64,
        peers: &Peers,
        moved: &MovedData<'_>,
        write: bool,
    ) -> DataTarget {
        DataTarget {
            write,
            ..DataTarget::at(record_id, peers, moved.file, moved.offset)
        }
    }

    /// The target of data that was read. Without a known file, it gets `FileKey(0)`.
    pub(super) fn at(
        record_id: u64,
        peers: &Peers,
        file: Option<FileHandle<'_>>,
        offset: u64,
    ) -> DataTarget {
        let file = file.map_or(FileKey(0), |file| FileKey::new(peers.server.address, file));
        DataTarget {
            record_id,
            file,
            offset,
            write: false,
        }
    }
}

/// Computes checksums of data that arrived as a whole.
pub fn sum_whole<S: Sink>(
    sums: &mut BlockSums,
    target: &DataTarget,
    bytes: &[u8],
    out: &mut Out<'_, S>,
) {
    out.ledger.data_bytes += bytes.len() as u64;
    if bytes.len() < BLOCK_BYTES || !out.sink.wants_checksums() {
        return;
    }
    let Out { sink, ledger, .. } = out;
    sums.start(target.offset);
    sums.update(bytes, |at, run| emit_run(*sink, ledger, target, at, run));
    sums.finish(|at, run| emit_run(*sink, ledger, target, at, run));
}

/// Passes checksums of blocks to the sink.
#[inline]
pub fn emit_run<S: Sink>(
    sink: &mut S,
    ledger: &mut Ledger,
    target: &DataTarget,
    offset: u64,
    sums: &[u64],
) {
    // The file is unknown, so the blocks can't be attributed.
    if target.file == FileKey(0) {
        return;
    }
    ledger.blocks_summed += sums.len() as u64;
    sink.on_checksums(&ChecksumRun {
        record_id: target.record_id,
        file: target.file,
        write: target.write,
        offset,
        sums,
    });
}
