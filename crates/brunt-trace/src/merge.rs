//! Merges several traces into one, in time order: archives often come as one file per hour or
//! device. Used by [`crate::reader`].
//!
//! The rule: devices of the same name are the same device; of two requests with the same time, the
//! one from the trace listed first comes first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use brunt_core::LeftOutTransfers;

use crate::error::TraceError;
use crate::format::{DamagedRow, EventCounts, Format};
use crate::reader::TraceReader;
use crate::record::{BlockRequest, Devices};
use crate::stream::RequestSource;

/// Requests returned at a time.
const BATCH: usize = 4096;

/// Several traces read as one.
pub(crate) struct MergedTraces {
    traces: Vec<OneTrace>,
    /// The time of each trace's next request, and the trace.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    begun: bool,
}

struct OneTrace {
    reader: TraceReader,
    /// Number of the reader's current requests already returned.
    used: usize,
    /// The merged index of each of its devices.
    numbers: Vec<Option<u32>>,
    /// Number of its unreadable rows already reported.
    damaged: u64,
}

impl OneTrace {
    /// The next request, if any.
    fn peek(&mut self) -> Result<Option<BlockRequest>, TraceError> {
        if self.used == self.reader.requests().len() {
            self.used = 0;
            if self.reader.next_requests()?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(self.reader.requests()[self.used]))
    }

    fn number(&mut self, device: u32, devices: &mut Devices) -> Option<u32> {
        while self.numbers.len() <= device as usize {
            let name = &self.reader.devices().names()[self.numbers.len()];
            self.numbers.push(devices.index_of(name.as_bytes()));
        }
        self.numbers[device as usize]
    }
}

impl MergedTraces {
    /// Merges at least one reader.
    pub fn new(readers: Vec<TraceReader>) -> MergedTraces {
        assert!(!readers.is_empty(), "at least one trace is needed");
        let one = |reader| OneTrace {
            reader,
            used: 0,
            numbers: Vec::new(),
            damaged: 0,
        };
        MergedTraces {
            traces: readers.into_iter().map(one).collect(),
            next: BinaryHeap::new(),
            begun: false,
        }
    }

    fn queue(&mut self, index: usize) -> Result<(), TraceError> {
        if let Some(request) = self.traces[index].peek()? {
            self.next.push(Reverse((request.time_ns, index)));
        }
        Ok(())
    }
}

impl RequestSource for MergedTraces {
    fn read(
        &mut self,
        devices: &mut Devices,
        requests: &mut Vec<BlockRequest>,
        damaged: &mut Vec<DamagedRow>,
    ) -> Result<bool, TraceError> {
        if !std::mem::replace(&mut self.begun, true) {
            for index in 0..self.traces.len() {
                self.queue(index)?;
            }
        }
        while requests.len() < BATCH {
            let Some(Reverse((_, index))) = self.next.pop() else {
                break;
            };
            let trace = &mut self.traces[index];
            let request = trace.peek()?.expect("queued traces have a request");
            trace.used += 1;
            match trace.number(request.device, devices) {
                Some(device) => requests.push(BlockRequest { device, ..request }),
                None => damaged.push(DamagedRow {
                    row: trace.reader.ledger().requests,
                }),
            }
            self.queue(index)?;
        }
        for trace in &mut self.traces {
            let ledger = trace.reader.ledger();
            let row = ledger.damaged_first.unwrap_or_default();
            let more = ledger.damaged - trace.damaged;
            damaged.extend((0..more).map(|_| DamagedRow { row }));
            trace.damaged = ledger.damaged;
        }
        Ok(!self.next.is_empty())
    }

    fn repeated(&self) -> u64 {
        self.traces
            .iter()
            .map(|trace| trace.reader.ledger().repeated)
            .sum()
    }

    fn cut_files(&self) -> u64 {
        let cut = self.traces.iter().map(|trace| trace.reader.ledger());
        cut.map(|ledger| ledger.cut_files).sum()
    }

    fn notes(&self) -> Vec<String> {
        let notes = self.traces.iter().map(|trace| trace.reader.notes());
        notes.flatten().collect()
    }

    fn left_out(&self) -> LeftOutTransfers {
        let mut all = LeftOutTransfers::default();
        for trace in &self.traces {
            all.merge(&trace.reader.ledger().left_out);
        }
        all
    }

    fn formats(&self) -> Vec<&'static Format> {
        self.traces
            .iter()
            .flat_map(|trace| trace.reader.formats())
            .collect()
    }

    fn format(&self) -> &'static Format {
        self.traces[0].reader.format()
    }

    fn events(&self) -> Option<EventCounts> {
        let mut all: Option<EventCounts> = None;
        for counts in self
            .traces
            .iter()
            .filter_map(|trace| trace.reader.ledger().events)
        {
            let sum = all.get_or_insert_default();
            sum.add(counts);
        }
        all
    }

    fn details_dropped(&self) -> u64 {
        self.traces
            .iter()
            .map(|trace| trace.reader.ledger().details_dropped)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(text: &str) -> TraceReader {
        let input = Box::new(std::io::Cursor::new(text.to_string().into_bytes()));
        TraceReader::from_reader("x".into(), input, crate::format_named("spc"), false).unwrap()
    }

    #[test]
    fn traces_are_merged_by_time_and_devices_by_name() {
        let readers = vec![
            open("0,8,512,R,1.0\n1,8,512,R,3.0\nx\n0,8,512,R,5\n"),
            open("1,16,512,W,2\n7,0,512,W,5\n"),
        ];
        let mut merged = MergedTraces::new(readers);
        let (mut devices, mut requests, mut damaged) = (Devices::default(), Vec::new(), Vec::new());
        while merged
            .read(&mut devices, &mut requests, &mut damaged)
            .unwrap()
        {}
        let seconds: Vec<_> = requests
            .iter()
            .map(|r| (r.time_ns / 1_000_000_000, r.device))
            .collect();
        assert_eq!(seconds, [(1, 0), (2, 1), (3, 1), (5, 0), (5, 2)]);
        assert_eq!(
            (devices.names().join(" "), damaged),
            ("0 1 7".into(), vec![DamagedRow { row: 3 }])
        );
    }
}
