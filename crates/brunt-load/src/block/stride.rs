//! Sequential requests that don't simply follow each other: they skip parts of the region, go backwards, or advance
//! separately for each kind of operation. Called by the generator for workloads with a stride.
//!
//! The rule: positions follow from earlier requests, never from a random draw, so that the sequences of other workloads
//! don't change.

use brunt_block::Op;
use brunt_core::Size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::block::generator::Area;
use crate::block::workload::Workload;
use crate::load::{WorkloadError, wrong};

/// Number of kinds of operations.
const KINDS: usize = 5;

/// A step between sequential requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Stride {
    /// With `skip`: contiguous bytes before each step; default: one request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Size>,
    /// Number of bytes to skip after each request or run. Wraps around from the region's end to its
    /// start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip: Option<Size>,
    /// Number of bytes to go back from the end of each request, at least the longest block: twice
    /// the block size reads backwards. Wraps around from the region's start to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back: Option<Size>,
}

impl Stride {
    /// Checks whether the stride is valid for this workload.
    ///
    /// # Errors
    /// The error names the invalid key, and what would be correct.
    pub fn check(&self, workload: &Workload) -> Result<(), WorkloadError> {
        let Stride { run, skip, back } = *self;
        if workload.sequential < 1.0 {
            wrong(
                "stride",
                "a stride applies only between sequential requests; write sequential = 1",
            )?;
        }
        if skip.is_some() == back.is_some() {
            wrong(
                "stride",
                "write either skip or back, such as { skip = \"64KiB\" }",
            )?;
        }
        if run.is_some() && back.is_some() {
            wrong(
                "stride.run",
                "a run is followed by a skip; omit run, or add skip",
            )?;
        }
        let longest = workload.block_bytes_max();
        if let Some(run) = run.filter(|run| run.0 < longest) {
            wrong(
                "stride.run",
                format!("{run} is less than the longest block, {}", Size(longest)),
            )?;
        }
        if let Some(back) = back.filter(|back| back.0 < longest) {
            wrong(
                "stride.back",
                format!("{back} is less than the longest block, {}", Size(longest)),
            )?;
        }
        // Verified blocks start at multiples of the alignment.
        let grain = if workload.verify.is_some() {
            workload.align_bytes()
        } else {
            512
        };
        for (key, size) in [
            ("stride.run", run),
            ("stride.skip", skip),
            ("stride.back", back),
        ] {
            if let Some(size) = size.filter(|size| size.0 == 0 || !size.0.is_multiple_of(grain)) {
                wrong(key, format!("{size} is not a multiple of {grain} bytes"))?;
            }
        }
        Ok(())
    }

    /// Checks whether the stride's sizes are multiples of a device's block size.
    ///
    /// # Errors
    /// The first size that is not a multiple of the block size.
    pub fn check_blocks(&self, block: u64, device: &str) -> Result<(), WorkloadError> {
        let all = [self.run, self.skip, self.back].into_iter().flatten();
        for size in all.filter(|size| !size.0.is_multiple_of(block)) {
            wrong(
                "stride",
                format!("{size} is not a multiple of the {block}-byte blocks of {device}"),
            )?;
        }
        Ok(())
    }

    /// Returns the share of a region that one pass touches; `block_mean` is in bytes.
    pub fn share(&self, block_mean: f64) -> f64 {
        let run = self.run.map_or(block_mean, |run| run.0 as f64);
        let from_start_to_start = match (self.skip, self.back) {
            (Some(skip), _) => run + skip.0 as f64,
            (None, Some(back)) => back.0 as f64 - run,
            (None, None) => run,
        };
        if from_start_to_start > run {
            run / from_start_to_start
        } else {
            1.0
        }
    }
}

/// Generates the offsets of sequential requests.
#[derive(Clone, Debug)]
pub struct Walk {
    start: u64,
    end: u64,
    stride: Option<Stride>,
    per_kind: bool,
    places: [Place; KINDS],
}

/// The position for one kind of operation.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Where the previous request ended.
    next: u64,
    /// Bytes since the last step.
    run: u64,
}

impl Walk {
    /// Creates a walk if the workload needs one.
    pub fn of(workload: &Workload, area: Area) -> Option<Walk> {
        let Workload {
            stride,
            sequential_per_kind: per_kind,
            ..
        } = *workload;
        let (start, end) = (area.start, area.start + area.len);
        let places = [Place {
            next: area.first,
            run: 0,
        }; KINDS];
        (stride.is_some() || per_kind).then_some(Walk {
            start,
            end,
            stride,
            per_kind,
            places,
        })
    }

    /// Returns the offset of a sequential request of this length.
    pub fn next(&mut self, op: Op, len: u64) -> u64 {
        let Walk {
            start, end, stride, ..
        } = *self;
        let place = self.place(op);
        let due = |stride: &Stride| place.run >= stride.run.map_or(1, |run| run.0);
        let offset = match stride.filter(due) {
            None => Some(place.next),
            Some(Stride {
                skip: Some(skip), ..
            }) => {
                place.run = 0;
                place.next.checked_add(skip.0)
            }
            Some(Stride { back, .. }) => {
                let back = back.map_or(0, |back| back.0);
                let inside = place
                    .next
                    .checked_sub(back)
                    .filter(|offset| *offset >= start);
                // In a region shorter than the step, there is only one position.
                inside.or_else(|| Some(end.saturating_sub(back).max(start)))
            }
        };
        let offset = offset
            .filter(|offset| offset + len <= end)
            .unwrap_or_else(|| {
                place.run = 0;
                start
            });
        *place = Place {
            next: offset + len,
            run: place.run + len,
        };
        offset
    }

    /// Updates the position after a request to a random offset.
    pub fn moved(&mut self, op: Op, end: u64) {
        *self.place(op) = Place { next: end, run: 0 };
    }

    fn place(&mut self, op: Op) -> &mut Place {
        &mut self.places[if self.per_kind { op as usize } else { 0 }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the offsets, in blocks, of 4 KiB requests (reads, then those in `ops`) over 32 KiB starting at 64 KiB.
    fn offsets(text: &str, ops: &[Op]) -> Vec<u64> {
        let workload: Workload = toml::from_str(text).unwrap();
        let area = Area {
            start: 65536,
            len: 32768,
            align: 4096,
            first: 65536,
        };
        let mut walk = Walk::of(&workload, area).expect(text);
        ops.iter()
            .map(|op| (walk.next(*op, 4096) - 65536) / 4096)
            .collect()
    }

    #[test]
    fn steps_go_forward_backward_and_by_kind() {
        let reads = [Op::Read; 10];
        let check =
            |text: &str, expected: &[u64]| assert_eq!(offsets(text, &reads), expected, "{text}");
        check(
            "stride = { skip = \"4k\" }",
            &[0, 2, 4, 6, 0, 2, 4, 6, 0, 2],
        );
        check(
            "stride = { skip = \"12k\" }",
            &[0, 4, 0, 4, 0, 4, 0, 4, 0, 4],
        );
        check(
            "stride = { run = \"8k\", skip = \"8k\" }",
            &[0, 1, 4, 5, 0, 1, 4, 5, 0, 1],
        );
        // Like fio's rw=read:-8k: the last block is never read.
        check(
            "stride = { back = \"8k\" }",
            &[0, 6, 5, 4, 3, 2, 1, 0, 6, 5],
        );
        check(
            "stride = { back = \"4k\" }",
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        );
        check("stride = { back = \"1m\" }", &[0; 10]);
        check("stride = { skip = \"1m\" }", &[0; 10]);
        let mixed = [
            Op::Read,
            Op::Write,
            Op::Read,
            Op::Read,
            Op::Write,
            Op::Unmap,
        ];
        assert_eq!(
            offsets("sequential_per_kind = true", &mixed),
            [0, 0, 1, 2, 1, 0]
        );
        let text = "sequential_per_kind = true\nstride = { skip = \"4k\" }";
        assert_eq!(offsets(text, &mixed), [0, 0, 2, 4, 2, 0]);
    }

    #[test]
    fn a_random_request_moves_its_kind() {
        let workload: Workload = toml::from_str("sequential_per_kind = true").unwrap();
        let area = Area {
            start: 0,
            len: 32768,
            align: 4096,
            first: 0,
        };
        let mut walk = Walk::of(&workload, area).unwrap();
        walk.moved(Op::Write, 16384);
        assert_eq!(
            (walk.next(Op::Read, 4096), walk.next(Op::Write, 4096)),
            (0, 16384)
        );
    }

    #[test]
    fn invalid_strides_are_refused() {
        let check = |text: &str, key: &str| {
            let text = format!("sequential = 1\nstop = {{ requests = 1 }}\n{text}");
            let workload: Workload = toml::from_str(&text).unwrap();
            assert_eq!(workload.check().unwrap_err().key, key, "{text}");
        };
        check("stride = {}", "stride");
        check("stride = { skip = \"4k\", back = \"8k\" }", "stride");
        check("stride = { run = \"4k\", back = \"8k\" }", "stride.run");
        check("stride = { run = \"2k\", skip = \"8k\" }", "stride.run");
        check("stride = { back = \"2k\" }", "stride.back");
        check("stride = { skip = 1000 }", "stride.skip");
        check(
            "verify = {}\nread = 0.0\nalign = \"4k\"\nstride = { skip = \"2k\" }",
            "stride.skip",
        );
        let random: Workload =
            toml::from_str("stop = { requests = 1 }\nstride = { skip = \"4k\" }").unwrap();
        assert_eq!(random.check().unwrap_err().key, "stride");
    }

    #[test]
    fn a_pass_touches_its_share() {
        let share = |text: &str| toml::from_str::<Stride>(text).unwrap().share(4096.0);
        assert_eq!(share("skip = \"12k\""), 0.25);
        assert_eq!(share("run = \"1m\"\nskip = \"3m\""), 0.25);
        assert_eq!(
            (
                share("back = \"8k\""),
                share("back = \"12k\""),
                share("back = \"4k\"")
            ),
            (1.0, 0.5, 1.0)
        );
    }
}
