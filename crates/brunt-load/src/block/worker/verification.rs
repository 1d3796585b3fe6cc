//! What a worker that verifies has to remember: made from the workload and the worker's part of the device.

use brunt_core::Size;

use crate::block::generator::Area;
use crate::block::synthetic::WorkerId;
use crate::block::verify::{GRAINS_MAX, HEADER_BYTES, Journal, JournalHead, Ledger};
use crate::block::workload::Workload;
use crate::load::WorkloadError;

/// The ledger of a workload that verifies. `run` tells its blocks from those of another run.
///
/// # Errors
/// The area has too many grains, or the journal cannot be made.
pub(super) fn ledger(
    workload: &Workload,
    area: Area,
    id: WorkerId,
    run: u64,
) -> Result<Option<Ledger>, WorkloadError> {
    let Some(verify) = &workload.verify else { return Ok(None) };
    let error = |what: String| WorkloadError { key: "verify", what };
    // The largest grain that every block is made of and begins at.
    let grain = workload.blocks.iter().fold(area.align, |grain, block| gcd(grain, block.size.0));
    assert!(grain as usize >= HEADER_BYTES, "sizes are multiples of 512");
    let len = area.len / grain * grain;
    if len / grain > GRAINS_MAX {
        let most = Size(GRAINS_MAX * grain);
        return Err(error(format!(
            "{} in grains of {grain} bytes is more than a worker keeps in mind; use a larger align, more workers, or a region of at most {most} for each worker",
            Size(len)
        )));
    }
    let head = JournalHead { run, start: area.start, len, grain, worker: id.worker };
    let journal = match &verify.journal {
        Some(folder) => Some(Journal::create(folder, head).map_err(|failure| error(failure.to_string()))?),
        None => None,
    };
    Ok(Some(Ledger::new(area.start, len, grain, run, journal)))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
