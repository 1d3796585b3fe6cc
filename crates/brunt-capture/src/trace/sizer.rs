//! The profile for sizing tools, from a stored trace: `brunt trace fit DIR`. The one rule: the analysis `profile`
//! defines transfers, their order and the working set, so that all commands report the same figures.

use std::collections::BTreeMap;
use std::path::Path;

use brunt_core::{SizerCounts, SizerProfile, SizerTransfers, TransferOutcome};

use super::replay::{Known, OPERATIONS, ReplayError, Source, TIMES, events, flows};
use crate::analysis::{Analyse, OperationEvent, Profile};

const SECOND_NS: u64 = 1_000_000_000;

/// Reads the profile; `None` if `stop` ended it early. Damaged parts are left out, as in a report.
///
/// # Errors
/// The folder contains no trace, or one that cannot be read.
pub fn sizer(
    folder: &Path,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Option<SizerProfile>, ReplayError> {
    let mut source = Source::open(folder)?;
    let Some(first_ns) = first_transfer(&mut source)? else {
        return Ok(Some(SizerCounts::default().profile()));
    };
    let flows = flows(&mut source)?;
    let operations = source.runs(&OPERATIONS, "completion_id")?;
    let known = Known::all();
    let (mut all, mut last_ns) = (Profile::default(), first_ns);
    // Transfers by second since the first one: 16 bytes for each second that has any.
    let mut seconds: BTreeMap<u64, u64> = BTreeMap::new();
    // As in a report: each pipeline is analysed alone, then the results are merged.
    for pipeline in source.pipelines()? {
        let (mut profile, mut reader) = (Profile::default(), operations.of_pipeline(pipeline));
        while let Some(batch) = reader.next_batch()? {
            for (place, (_, _, event)) in events(batch, &known, &flows).enumerate() {
                profile.on_event(&event, place);
                if event.transfer().is_some() {
                    let OperationEvent { time_ns, .. } = event;
                    last_ns = last_ns.max(time_ns);
                    let second = time_ns.saturating_sub(first_ns) / SECOND_NS;
                    *seconds.entry(second).or_default() += 1;
                }
            }
            if stop() {
                return Ok(None);
            }
        }
        all.merge(profile);
    }
    let figures = all.figures();
    let [reads, writes] = figures.transfers.each_ref().map(|of| SizerTransfers {
        count: of.operations,
        sequential: of.sequential,
        bytes: of.bytes,
    });
    let counts = SizerCounts {
        reads,
        writes,
        span_ns: last_ns - first_ns,
        peak_per_s: seconds.into_values().max().unwrap_or(0),
        random_read_working_set_bytes: figures.random_read_working_set_bytes(),
    };
    Ok(Some(counts.profile()))
}

/// When the first transfer was requested. Operations are in completion order, so the first row may be a later request.
fn first_transfer(source: &mut Source) -> Result<Option<u64>, ReplayError> {
    let mut first: Option<u64> = None;
    source.read(&TIMES, |batch| {
        let statuses = batch.ints("status");
        for (row, time) in batch.ints("request_first").iter().enumerate() {
            let is_null = |column| batch.is_null(column, row);
            let status = (!is_null("status")).then(|| statuses[row] as u32);
            let outcome = TransferOutcome::of(status, !is_null("latency_ns"));
            if outcome.is_transfer() && !is_null("direction") {
                let time = *time as u64;
                first = Some(first.map_or(time, |first| first.min(time)));
            }
        }
    })?;
    Ok(first)
}
