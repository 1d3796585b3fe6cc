//! What goes wrong and when, in words: the grammar that device URLs (`?fault=…`), experiment files
//! and a running target's control channel share.
//!
//! ```text
//! medium-error                              every request fails
//! aborted-command,p=0.5,seed=7              every other one, by a seeded coin
//! medium-error,op=read,lba=1000-1999        reads that touch these blocks
//! hardware-error,every=100,times=3          the 100th, the 200th and the 300th request
//! slow:10ms    slow:x3    hang              late, three times as late, never
//! drop    torn:1    corrupt,op=read         acknowledged and lost, cut off, a bit flipped
//! ```

use std::ops::RangeInclusive;
use std::time::Duration;

use brunt_core::units::{format_duration, parse_duration};

use crate::open::{OpenError, bad_value};
use crate::{DeviceError, Op, Refusal, Request, Said};

/// What a wrong fault is answered with.
pub const FORMS: &str = "a fault is medium-error, hardware-error, recovered-error, aborted-command, busy, \
     reservation-conflict, slow:TIME, slow:xFACTOR, hang, drop, torn:BLOCKS or corrupt, and after it \
     ,p=PROBABILITY ,op=read+write+flush+unmap ,lba=FIRST-LAST ,every=N ,times=N ,seed=N";
/// A request is made slower by this factor at most.
const FACTOR_MAX: f64 = 1e6;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Unrecovered read error, or write error. Nothing is done.
    MediumError,
    /// Internal failure of the device. Nothing is done.
    HardwareError,
    /// Recovered error: the request is done and its data is good all the same.
    RecoveredError,
    /// Aborted command: the data did not come across whole. Nothing is done.
    AbortedCommand,
    /// Busy. Nothing is done.
    Busy,
    /// Somebody else's reservation is in the way. Nothing is done.
    ReservationConflict,
    /// The request reaches the device this much later.
    Slow(Duration),
    /// The request takes so many times as long.
    SlowBy(f64),
    /// The request reaches the device when the fault is taken away, or is given up by `cancel`.
    Hang,
    /// A write is acknowledged and never happens.
    Drop,
    /// Of a write only the first blocks happen; all of it is acknowledged. Writes of so many blocks or
    /// fewer are left alone.
    Torn {
        /// How many happen.
        blocks: u32,
    },
    /// One bit, anywhere, is the other way round: in what a read returns, or in what a write leaves.
    Corrupt,
}

/// Kinds of requests, as a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ops(u8);

impl Ops {
    /// All of them.
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

    /// Whether an operation is one of them.
    #[inline]
    pub fn has(self, op: Op) -> bool {
        self.0 >> op as u8 & 1 != 0
    }
}

/// What goes wrong, and for which requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// What.
    pub kind: Kind,
    /// Of the requests that are meant, this share is hit, by a seeded coin.
    pub probability: f64,
    /// Which operations. `drop` and `torn` are about writes only, `corrupt` about reads and writes.
    pub ops: Ops,
    /// Only requests that touch one of these logical blocks. A flush touches all.
    pub blocks: Option<RangeInclusive<u64>>,
    /// Only each n-th of them, counted over all threads.
    pub every: u64,
    /// Only so often, counted over all threads.
    pub times: Option<u64>,
    /// Of the coin, and of the bit that is flipped. Each open device has a sequence of its own.
    pub seed: u64,
}

impl Fault {
    /// A fault that hits every request it can hit.
    pub fn of(kind: Kind) -> Fault {
        Fault { kind, probability: 1.0, ops: Ops::ALL, blocks: None, every: 1, times: None, seed: 0 }
    }

    /// Reads one fault.
    ///
    /// # Errors
    /// It is none; the error says what would be one.
    pub fn parse(text: &str) -> Result<Fault, OpenError> {
        let wrong = |wanted: &str| bad_value("fault", text, wanted);
        let mut words = text.trim().split(',');
        let first = words.next().unwrap_or_default();
        let (name, argument) = first.split_once(':').map_or((first, None), |(name, rest)| (name, Some(rest)));
        let kind = match (name, argument) {
            ("medium-error", None) => Kind::MediumError,
            ("hardware-error", None) => Kind::HardwareError,
            ("recovered-error", None) => Kind::RecoveredError,
            ("aborted-command", None) => Kind::AbortedCommand,
            ("busy", None) => Kind::Busy,
            ("reservation-conflict", None) => Kind::ReservationConflict,
            ("hang", None) => Kind::Hang,
            ("drop", None) => Kind::Drop,
            ("corrupt", None) => Kind::Corrupt,
            ("torn", None) => Kind::Torn { blocks: 1 },
            ("torn", Some(count)) => match count.parse() {
                Ok(blocks) if blocks > 0 => Kind::Torn { blocks },
                _ => return Err(wrong("torn:N leaves the first N blocks, at least one; drop leaves none")),
            },
            ("slow", Some(by)) if by.starts_with('x') => match by[1..].parse::<f64>() {
                Ok(factor) if (1.0..=FACTOR_MAX).contains(&factor) => Kind::SlowBy(factor),
                _ => return Err(wrong("slow:xN takes N times as long, 1 to 1000000")),
            },
            ("slow", Some(by)) => Kind::Slow(parse_duration(by)?),
            _ => return Err(wrong(FORMS)),
        };
        let mut fault = Fault::of(kind);
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| wrong(FORMS))?;
            match key {
                "p" => {
                    fault.probability = value.parse().unwrap_or(-1.0);
                    if !(0.0..=1.0).contains(&fault.probability) {
                        return Err(wrong("p is a probability, 0 to 1"));
                    }
                }
                "op" => {
                    fault.ops = Ops::parse(value)
                        .ok_or_else(|| wrong("op is read, write, flush, unmap, or several with +"))?;
                }
                "lba" => {
                    let (first, last) = value.split_once('-').unwrap_or((value, value));
                    match (first.parse::<u64>(), last.parse::<u64>()) {
                        (Ok(first), Ok(last)) if first <= last => fault.blocks = Some(first..=last),
                        _ => return Err(wrong("lba is a block, or FIRST-LAST with both of them in")),
                    }
                }
                "every" | "times" => match (key, value.parse::<u64>()) {
                    (_, Err(_) | Ok(0)) => return Err(wrong("every and times are whole numbers from 1 on")),
                    ("every", Ok(count)) => fault.every = count,
                    (_, Ok(count)) => fault.times = Some(count),
                },
                "seed" => fault.seed = value.parse().map_err(|_| wrong("a seed is a whole number"))?,
                _ => return Err(wrong(FORMS)),
            }
        }
        let can = fault.possible();
        if !Ops::NAMES.iter().any(|(_, bits)| can.0 & fault.ops.0 & bits != 0) {
            return Err(wrong("this kind of fault cannot happen to these operations"));
        }
        fault.ops = Ops(fault.ops.0 & can.0);
        Ok(fault)
    }

    /// Whether it hits every request that `other` could hit. Requests are told apart by their operation
    /// only; of two faults of certain blocks nothing is said.
    pub fn leaves_nothing_to(&self, other: &Fault) -> bool {
        let certain = self.probability >= 1.0 && self.every == 1 && self.times.is_none();
        // A short write is left alone by it.
        let whole = self.blocks.is_none() && !matches!(self.kind, Kind::Torn { .. });
        certain && whole && other.ops.0 & !self.ops.0 == 0
    }

    /// Whether no request is any different by it: it never hits, or makes none slower.
    pub fn does_nothing(&self) -> bool {
        let idle = match self.kind {
            Kind::Slow(by) => by.is_zero(),
            Kind::SlowBy(factor) => factor <= 1.0,
            _ => false,
        };
        idle || self.probability <= 0.0
    }

    /// What this kind can happen to.
    fn possible(&self) -> Ops {
        match self.kind {
            Kind::Drop => Ops(1 << Op::Write as u8 | 1 << Op::Unmap as u8 | 1 << Op::WriteZeroes as u8),
            Kind::Torn { .. } => Ops(1 << Op::Write as u8),
            Kind::Corrupt => Ops(1 << Op::Read as u8 | 1 << Op::Write as u8),
            _ => Ops::ALL,
        }
    }

    /// Whether the request is one that the fault is about, before coins and counts.
    #[inline]
    pub(super) fn is_about(&self, request: &Request, block_bytes: u32) -> bool {
        if !self.ops.has(request.op) {
            return false;
        }
        if let Kind::Torn { blocks } = self.kind
            && request.len <= u64::from(blocks) * u64::from(block_bytes)
        {
            return false;
        }
        if request.len == 0 && matches!(request.op, Op::Read | Op::Write) {
            return false;
        }
        let Some(blocks) = &self.blocks else { return true };
        if request.len == 0 {
            return request.op == Op::Flush;
        }
        let block = u64::from(block_bytes);
        let (first, last) = (request.offset / block, request.offset.saturating_add(request.len - 1) / block);
        first <= *blocks.end() && *blocks.start() <= last
    }

    /// The error that a request gets, of the kinds that are errors.
    pub(super) fn error(&self, request: &Request, block_bytes: u32) -> Option<DeviceError> {
        let kind = match self.kind {
            Kind::MediumError => Refusal::MediumError,
            Kind::HardwareError => Refusal::HardwareError,
            Kind::RecoveredError => Refusal::Recovered,
            Kind::AbortedCommand => Refusal::Aborted,
            Kind::Busy => Refusal::Busy,
            Kind::ReservationConflict => Refusal::Conflict,
            Kind::Slow(_) | Kind::SlowBy(_) | Kind::Hang | Kind::Drop | Kind::Torn { .. } | Kind::Corrupt => {
                return None;
            }
        };
        // Where it is wrong: the first block of the request that the fault is about.
        let block = request.offset / u64::from(block_bytes);
        let block = self.blocks.as_ref().map_or(block, |blocks| block.max(*blocks.start()));
        let tells_where = matches!(kind, Refusal::MediumError | Refusal::Recovered) && request.len > 0;
        Some(DeviceError::Refused {
            kind,
            said: if tells_where { Said::Block(block) } else { Said::Nothing },
        })
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            Kind::MediumError => f.write_str("medium-error")?,
            Kind::HardwareError => f.write_str("hardware-error")?,
            Kind::RecoveredError => f.write_str("recovered-error")?,
            Kind::AbortedCommand => f.write_str("aborted-command")?,
            Kind::Busy => f.write_str("busy")?,
            Kind::ReservationConflict => f.write_str("reservation-conflict")?,
            Kind::Slow(by) => write!(f, "slow:{}", format_duration(by))?,
            Kind::SlowBy(factor) => write!(f, "slow:x{factor}")?,
            Kind::Hang => f.write_str("hang")?,
            Kind::Drop => f.write_str("drop")?,
            Kind::Torn { blocks } => write!(f, "torn:{blocks}")?,
            Kind::Corrupt => f.write_str("corrupt")?,
        }
        if self.probability < 1.0 {
            write!(f, ",p={}", self.probability)?;
        }
        if self.ops != self.possible() {
            let names = Ops::NAMES.iter().filter(|(_, bits)| self.ops.0 & bits != 0).map(|(name, _)| *name);
            write!(f, ",op={}", names.collect::<Vec<_>>().join("+"))?;
        }
        if let Some(blocks) = &self.blocks {
            write!(f, ",lba={}-{}", blocks.start(), blocks.end())?;
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

    /// The goal: what is written down is read back as the same fault.
    #[test]
    fn words_and_back() {
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
        ] {
            let fault = Fault::parse(text).unwrap();
            assert_eq!(fault.to_string(), text);
        }
        assert_eq!(Fault::parse("torn").unwrap().kind, Kind::Torn { blocks: 1 });
        assert_eq!(Fault::parse("busy,lba=5").unwrap().blocks, Some(5..=5));
    }

    /// The goal: what cannot be meant is refused.
    #[test]
    fn mistakes() {
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
        ] {
            assert!(Fault::parse(text).is_err(), "'{text}' was taken");
        }
    }
}
