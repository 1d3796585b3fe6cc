//! The syntax of faults, shared by device URLs (`?fault=…`), experiment files and a running target's control channel.
//!
//! ```text
//! medium-error                              every request fails
//! aborted-command,p=0.5,seed=7              half of the requests, by a seeded random choice
//! medium-error,op=read,lba=1000-1999+5000   reads that touch these blocks
//! hardware-error,every=100,times=3          the 100th, the 200th and the 300th request
//! sense:3/11/01    errno:ENOSPC             an error of your choice
//! slow:10ms    slow:x3    hang              late, three times as late, never
//! drop    torn:1    corrupt,op=read         acknowledged and lost, cut off, a bit flipped
//! misdirect,p=0.01                          written to the wrong location
//! bad-blocks:1%,seed=3                      unreadable until they are written
//! flaky:5s/2s    flaky:5s/2s/drop           up for 5 s, down for 2 s, repeatedly
//! ```

use brunt_core::Nanos;
use brunt_core::random::Random;
use brunt_core::share;

use super::blocks::BlockRanges;
use super::kind::{FORMS, FaultEffect};
use crate::open::{OpenError, bad_value};
use crate::{DeviceError, Op, RefusalDetail, RefusalKind, Request};

/// A set of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ops(u8);

impl Ops {
    /// All operations.
    pub const ALL: Ops = Ops(0b1_1111);
    const NAMES: [(&'static str, u8); 4] = [
        ("read", 1 << Op::Read as u8),
        ("write", 1 << Op::Write as u8),
        ("flush", 1 << Op::Flush as u8),
        ("unmap", 1 << Op::Unmap as u8 | 1 << Op::WriteZeroes as u8),
    ];

    fn parse(text: &str) -> Option<Ops> {
        let mut set = 0;
        for word in text.split('+') {
            set |= Ops::NAMES.iter().find(|(name, _)| *name == word)?.1;
        }
        Some(Ops(set))
    }

    /// Whether the set contains an operation.
    #[inline]
    pub fn has(self, op: Op) -> bool {
        self.0 >> op as u8 & 1 != 0
    }
}

/// A fault's effect, and the requests it applies to.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFault {
    /// The effect.
    pub kind: FaultEffect,
    /// Probability of a hit for each request that the fault applies to, drawn with the seed.
    pub probability: f64,
    /// The operations affected. `torn` and `misdirect` affect only writes, `drop` also unmapping and zeroing, `corrupt`
    /// reads and writes.
    pub ops: Ops,
    /// Only requests that touch one of these logical blocks. A flush of the whole device touches all of them.
    pub blocks: Option<BlockRanges>,
    /// Only every n-th of these requests, counted over all threads.
    pub every: u64,
    /// Maximum number of hits, counted over all threads.
    pub times: Option<u64>,
    /// Seed for the probability and the flipped bit. Each open device has its own sequence.
    pub seed: u64,
}

impl DeviceFault {
    /// A fault that hits every request that it can apply to.
    pub fn of(kind: FaultEffect) -> DeviceFault {
        DeviceFault {
            kind,
            probability: 1.0,
            ops: Ops::ALL,
            blocks: None,
            every: 1,
            times: None,
            seed: 0,
        }
    }

    /// Parses one fault.
    ///
    /// # Errors
    /// The text is not a valid fault; the error states the valid forms.
    pub fn parse(text: &str) -> Result<DeviceFault, OpenError> {
        let wrong = |wanted: &str| bad_value("fault", text, wanted);
        let mut words = text.trim().split(',');
        let kind = FaultEffect::parse(words.next().unwrap_or_default())?;
        let mut fault = DeviceFault::of(kind);
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| wrong(FORMS))?;
            match key {
                "p" => {
                    let share = share::parse(value).filter(|p| (0.0..=1.0).contains(p));
                    fault.probability = share.ok_or_else(|| {
                        wrong(
                            "write p as a probability from 0 to 1 or a percentage, such as 0.01 \
                            or 1%",
                        )
                    })?;
                }
                "op" => {
                    fault.ops = Ops::parse(value).ok_or_else(|| {
                        wrong("write op as read, write, flush, unmap, or several joined by +")
                    })?;
                }
                "lba" => {
                    let blocks = BlockRanges::parse(value);
                    fault.blocks = Some(blocks.ok_or_else(|| {
                        wrong(
                            "write lba as a block, as FIRST-LAST (inclusive), or several joined \
                             by +",
                        )
                    })?);
                }
                "every" | "times" => match (key, value.parse::<u64>()) {
                    (_, Err(_) | Ok(0)) => {
                        return Err(wrong(
                            "write every and times as whole numbers of at least 1",
                        ));
                    }
                    ("every", Ok(count)) => fault.every = count,
                    (_, Ok(count)) => fault.times = Some(count),
                },
                "seed" => {
                    fault.seed = value
                        .parse()
                        .map_err(|_| wrong("write seed as a whole number"))?
                }
                _ => return Err(wrong(FORMS)),
            }
        }
        if matches!(kind, FaultEffect::BadBlocks { .. })
            && (fault.probability < 1.0
                || fault.every > 1
                || fault.times.is_some()
                || fault.ops != Ops::ALL)
        {
            return Err(wrong(
                "bad blocks stay bad until written: bad-blocks takes only lba and seed",
            ));
        }
        let can = fault.possible();
        if !Ops::NAMES
            .iter()
            .any(|(_, bits)| can.0 & fault.ops.0 & bits != 0)
        {
            return Err(wrong(
                "this kind of fault does not apply to these operations",
            ));
        }
        fault.ops = Ops(fault.ops.0 & can.0);
        Ok(fault)
    }

    /// Whether this fault hits every request that `other` could hit. Compares operations only: the result is false for
    /// faults limited to certain blocks.
    pub fn leaves_nothing_to(&self, other: &DeviceFault) -> bool {
        let certain = self.probability >= 1.0 && self.every == 1 && self.times.is_none();
        // Some effects exempt requests; `torn`, for example, exempts short writes.
        let whole = self.blocks.is_none() && !self.kind.leaves_some_alone();
        certain && whole && other.ops.0 & !self.ops.0 == 0
    }

    /// Whether the fault has no effect on any request: it never hits, or slows none down.
    pub fn does_nothing(&self) -> bool {
        let idle = match self.kind {
            FaultEffect::Slow(by) => by.is_zero(),
            FaultEffect::SlowBy(factor) => factor <= 1.0,
            _ => false,
        };
        idle || self.probability <= 0.0
    }

    /// The operations that this effect can apply to.
    fn possible(&self) -> Ops {
        match self.kind {
            FaultEffect::Drop => {
                Ops(1 << Op::Write as u8 | 1 << Op::Unmap as u8 | 1 << Op::WriteZeroes as u8)
            }
            FaultEffect::Torn { .. } => Ops(1 << Op::Write as u8),
            FaultEffect::Corrupt => Ops(1 << Op::Read as u8 | 1 << Op::Write as u8),
            FaultEffect::Misdirect { .. } => Ops(1 << Op::Write as u8),
            FaultEffect::BadBlocks { .. } => {
                Ops(1 << Op::Read as u8 | 1 << Op::Write as u8 | 1 << Op::WriteZeroes as u8)
            }
            FaultEffect::Flaky {
                drops_writes: true, ..
            } => Ops(1 << Op::Write as u8 | 1 << Op::Unmap as u8 | 1 << Op::WriteZeroes as u8),
            _ => Ops::ALL,
        }
    }

    /// Whether the fault applies to the request, before probability and counts.
    #[inline]
    pub(super) fn is_about(&self, request: &Request, block_bytes: u32) -> bool {
        if !self.ops.has(request.op) {
            return false;
        }
        if let FaultEffect::Torn { blocks } = self.kind
            && request.len <= u64::from(blocks) * u64::from(block_bytes)
        {
            return false;
        }
        if request.len == 0 && matches!(request.op, Op::Read | Op::Write) {
            return false;
        }
        let Some(blocks) = &self.blocks else {
            return true;
        };
        if request.len == 0 {
            return request.op == Op::Flush;
        }
        let (first, last) = touched(request, block_bytes);
        blocks.first_in(first, last).is_some()
    }

    /// Whether a block is bad as long as it hasn't been written.
    pub(super) fn is_bad(&self, block: u64) -> bool {
        let FaultEffect::BadBlocks { percent } = self.kind else {
            return false;
        };
        let listed = self
            .blocks
            .as_ref()
            .is_none_or(|blocks| blocks.first_in(block, block).is_some());
        listed && (percent >= 100.0 || Random::for_part(self.seed, block).chance(percent / 100.0))
    }

    /// Whether the fault is active: always, except for a flaky device, whose cycle began at `since`.
    pub(super) fn is_down(&self, since: Nanos, now: Nanos) -> bool {
        let FaultEffect::Flaky { up, down, .. } = self.kind else {
            return true;
        };
        now.since(since).as_nanos() % (up + down).as_nanos() >= up.as_nanos()
    }

    /// The error for a request, if the effect is an error.
    pub(super) fn error(&self, request: &Request, block_bytes: u32) -> Option<DeviceError> {
        let refused = DeviceError::refused;
        let kind = match self.kind {
            FaultEffect::MediumError => RefusalKind::MediumError,
            FaultEffect::RecoveredError => RefusalKind::Recovered,
            FaultEffect::HardwareError => return Some(refused(RefusalKind::HardwareError)),
            FaultEffect::AbortedCommand => return Some(refused(RefusalKind::Aborted)),
            FaultEffect::Busy => return Some(refused(RefusalKind::Busy)),
            FaultEffect::ReservationConflict => return Some(refused(RefusalKind::Conflict)),
            FaultEffect::NotReady => return Some(refused(RefusalKind::NotReady)),
            FaultEffect::UnitAttention => return Some(refused(RefusalKind::Attention)),
            FaultEffect::TaskSetFull => return Some(refused(RefusalKind::QueueFull)),
            FaultEffect::Sense(code) => {
                return Some(DeviceError::Refused {
                    kind: kind_of(code[0]),
                    detail: RefusalDetail::Code(code),
                });
            }
            FaultEffect::Errno(number) => return Some(DeviceError::Os(number)),
            FaultEffect::Flaky {
                drops_writes: false,
                ..
            } => return Some(DeviceError::Os(libc::EIO)),
            _ => return None,
        };
        // The location of the error: the first block of the request that the fault applies to.
        let block = request.offset / u64::from(block_bytes);
        let listed = self
            .blocks
            .as_ref()
            .and_then(|blocks| blocks.first_in(block, u64::MAX));
        let block = listed.unwrap_or(block);
        let has_position = request.len > 0;
        Some(DeviceError::Refused {
            kind,
            detail: if has_position {
                RefusalDetail::Block(block)
            } else {
                RefusalDetail::Nothing
            },
        })
    }
}

/// The kind of refusal for a sense key (SPC-4, table 54).
fn kind_of(key: u8) -> RefusalKind {
    match key {
        0x1 => RefusalKind::Recovered,
        0x2 => RefusalKind::NotReady,
        0x3 => RefusalKind::MediumError,
        0x4 => RefusalKind::HardwareError,
        0x5 => RefusalKind::BadRequest,
        0x6 => RefusalKind::Attention,
        0x7 => RefusalKind::Protected,
        0xb => RefusalKind::Aborted,
        0xe => RefusalKind::Miscompare,
        _ => RefusalKind::Other,
    }
}

/// The first and last block that a request touches; its length must not be zero.
pub(super) fn touched(request: &Request, block_bytes: u32) -> (u64, u64) {
    let block = u64::from(block_bytes);
    (
        request.offset / block,
        request.offset.saturating_add(request.len - 1) / block,
    )
}

impl std::fmt::Display for DeviceFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.kind)?;
        if self.probability < 1.0 {
            write!(f, ",p={}", self.probability)?;
        }
        if self.ops != self.possible() {
            let names = Ops::NAMES
                .iter()
                .filter(|(_, bits)| self.ops.0 & bits != 0)
                .map(|(name, _)| *name);
            write!(f, ",op={}", names.collect::<Vec<_>>().join("+"))?;
        }
        if let Some(blocks) = &self.blocks {
            write!(f, ",lba={blocks}")?;
        }
        if self.every > 1 {
            write!(f, ",every={}", self.every)?;
        }
        if let Some(times) = self.times {
            write!(f, ",times={times}")?;
        }
        if self.seed != 0 {
            write!(f, ",seed={}", self.seed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fault formatted as text parses back to the same fault.
    #[test]
    fn formatted_faults_parse_back() {
        for text in [
            "medium-error",
            "aborted-command,p=0.5,seed=7",
            "medium-error,op=read,lba=1000-1999",
            "hardware-error,every=100,times=3",
            "recovered-error,op=read+write",
            "slow:10ms",
            "slow:x3",
            "hang,op=flush",
            "drop",
            "torn:2",
            "corrupt,op=read",
            "busy,op=unmap",
            "reservation-conflict",
            "not-ready",
            "unit-attention,op=read",
            "task-set-full,times=2",
            "sense:3/11/0a,p=0.5",
            "errno:ENOSPC,op=write",
            "errno:4000",
            "misdirect,seed=4",
            "misdirect:8",
            "bad-blocks,lba=5+20-29",
            "bad-blocks:0.5%,seed=9",
            "flaky:5s/2s",
            "flaky:500ms/20ms/drop,op=write",
        ] {
            let fault = DeviceFault::parse(text).unwrap();
            assert_eq!(fault.to_string(), text);
        }
        assert_eq!(
            DeviceFault::parse("torn").unwrap().kind,
            FaultEffect::Torn { blocks: 1 }
        );
        assert_eq!(
            DeviceFault::parse("busy,lba=5").unwrap().blocks,
            BlockRanges::parse("5")
        );
    }

    #[test]
    fn invalid_values_are_rejected() {
        for text in [
            "",
            "medium",
            "medium-error:1",
            "slow",
            "slow:10",
            "slow:x0.5",
            "slow:xNaN",
            "torn:0",
            "busy,p=2",
            "busy,p=NaN",
            "busy,p",
            "busy,op=reed",
            "busy,lba=9-3",
            "busy,lba=a",
            "busy,every=0",
            "busy,times=0",
            "busy,often=1",
            "drop,op=read",
            "torn,op=flush",
            "corrupt,op=unmap",
            "sense:3/11",
            "sense:10/11/00",
            "sense:3/111/00",
            "errno:EWHAT",
            "errno:0",
            "misdirect:0",
            "misdirect,op=read",
            "bad-blocks:0%",
            "bad-blocks:101%",
            "bad-blocks:5",
            "bad-blocks,p=0.5",
            "bad-blocks,op=read",
            "flaky:5s",
            "flaky:0s/1s",
            "flaky:1s/1s/lose",
            "flaky:1s/1s/drop,op=read",
            "not-ready:1",
        ] {
            assert!(DeviceFault::parse(text).is_err(), "'{text}' was taken");
        }
    }
}
