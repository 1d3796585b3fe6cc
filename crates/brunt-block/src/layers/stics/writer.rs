//! The thread that writes the log: one record at a time, each with all writes that arrived while the previous one was
//! being written.
//!
//! The rule: a record counts as written only when it and all records before it are completely in the file.

use super::cache::Job;
use super::format::BLOCK;
use super::shared::{Mode, Shared};

enum Work {
    Record(Job),
    /// Makes records before this number stable.
    Sync(u64),
}

/// Runs until the device is closed. With `always`, each record is stable before it counts as written.
pub(super) fn run(shared: &Shared, always: bool) {
    let id = shared.log.superblock().id;
    let mut bytes = Vec::new();
    while let Some(work) = next(shared, &mut bytes) {
        let outcome = match &work {
            Work::Record(job) => {
                let mut header = job.header.clone();
                let data = header.data_bytes() as usize;
                header.data_crc = crc32c::crc32c(&bytes[BLOCK as usize..][..data]);
                bytes[..BLOCK as usize].copy_from_slice(&header.encode(&id));
                let written = shared.log.write(header.place.at, &bytes);
                if always {
                    written.and_then(|()| shared.log.sync())
                } else {
                    written
                }
            }
            Work::Sync(_) => shared.log.sync(),
        };
        if let Err(error) = outcome {
            shared.log_failed(
                if matches!(work, Work::Sync(_)) {
                    "sync"
                } else {
                    "write"
                },
                &error,
            );
            continue;
        }
        let mut state = shared.lock();
        match work {
            // After a failure elsewhere, the destager has taken over, and this record may have reached the device.
            _ if state.mode != Mode::Logging => continue,
            Work::Record(job) => {
                state.cache.wrote(&job);
                state.counts.log_writes += 1;
                if always {
                    state.synced_before = state.cache.written_before();
                    state.counts.log_syncs += 1;
                }
                // The record can now be destaged.
                shared.destage_work.notify_all();
            }
            Work::Sync(before) => {
                state.synced_before = before;
                state.counts.log_syncs += 1;
            }
        }
        shared.announce(&mut state);
    }
}

/// Waits for work; for a record, `bytes` then contains its data but not the header.
fn next(shared: &Shared, bytes: &mut Vec<u8>) -> Option<Work> {
    let mut state = shared.lock();
    loop {
        if state.mode == Mode::Logging {
            let written = state.cache.written_before();
            if state.sync_wanted > state.synced_before && written >= state.sync_wanted {
                return Some(Work::Sync(written));
            }
            if let Some(job) = state.cache.next_job() {
                let (data, all) = (job.header.data_bytes(), job.header.record_bytes());
                bytes.resize(all as usize, 0);
                state
                    .cache
                    .copy_data(&job, &mut bytes[BLOCK as usize..][..data as usize]);
                bytes[(BLOCK + data) as usize..].fill(0);
                return Some(Work::Record(job));
            }
        }
        if shared.is_stopping() {
            return None;
        }
        state = shared
            .write_work
            .wait(state)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
    }
}
