//! What can go wrong with a request, and the words for it. [`super::spec`] adds for which requests.

use std::time::Duration;

use brunt_core::units::{format_duration, parse_duration};

use super::errno;
use crate::open::{OpenError, bad_value};

/// What a wrong fault is answered with.
pub const FORMS: &str = "a fault is medium-error, hardware-error, recovered-error, aborted-command, busy, \
     reservation-conflict, not-ready, unit-attention, task-set-full, sense:KEY/ASC/ASCQ, errno:NAME, slow:TIME, \
     slow:xFACTOR, hang, drop, torn:BLOCKS, corrupt, misdirect, misdirect:BLOCKS, bad-blocks, bad-blocks:SHARE%, \
     flaky:UP/DOWN or flaky:UP/DOWN/drop, and after it ,p=PROBABILITY ,op=read+write+flush+unmap \
     ,lba=FIRST-LAST+… ,every=N ,times=N ,seed=N";
/// A request is made slower by this factor at most.
const FACTOR_MAX: f64 = 1e6;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultEffect {
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
    /// Not ready. Nothing is done.
    NotReady,
    /// Unit attention, as after a reset: the first request of each open device (of each session, at a
    /// target) gets it. Nothing is done.
    UnitAttention,
    /// No room for another request. Nothing is done.
    TaskSetFull,
    /// These three numbers: sense key, additional sense code and its qualifier. Nothing is done, but for the
    /// key of a recovered error.
    Sense([u8; 3]),
    /// This errno. Nothing is done.
    Errno(i32),
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
    /// A write is acknowledged and lands in another place: so many blocks further on, starting over at the
    /// end, or anywhere. The place that was meant keeps what it had.
    Misdirect {
        /// How many blocks; `None`: anywhere.
        blocks: Option<u64>,
    },
    /// Reads that touch a bad block are medium errors until the block is written (as dm-dust does).
    BadBlocks {
        /// How many in a hundred blocks are bad, by the seed; of those that `lba` lists, if it does.
        percent: f64,
    },
    /// Up for a time, then down for a time, over and over, from the first request on (as dm-flakey does).
    Flaky {
        /// Requests are served.
        up: Duration,
        /// They are not.
        down: Duration,
        /// While down, writes are acknowledged and lost, and reads served; otherwise all fail with EIO.
        drops_writes: bool,
    },
}

/// Kinds that are written with a word alone.
const PLAIN: &[(&str, FaultEffect)] = &[
    ("medium-error", FaultEffect::MediumError),
    ("hardware-error", FaultEffect::HardwareError),
    ("recovered-error", FaultEffect::RecoveredError),
    ("aborted-command", FaultEffect::AbortedCommand),
    ("busy", FaultEffect::Busy),
    ("reservation-conflict", FaultEffect::ReservationConflict),
    ("not-ready", FaultEffect::NotReady),
    ("unit-attention", FaultEffect::UnitAttention),
    ("task-set-full", FaultEffect::TaskSetFull),
    ("hang", FaultEffect::Hang),
    ("drop", FaultEffect::Drop),
    ("corrupt", FaultEffect::Corrupt),
    ("torn", FaultEffect::Torn { blocks: 1 }),
    ("misdirect", FaultEffect::Misdirect { blocks: None }),
    ("bad-blocks", FaultEffect::BadBlocks { percent: 100.0 }),
];

impl FaultEffect {
    /// Reads `WORD` or `WORD:ARGUMENT`.
    pub(super) fn parse(text: &str) -> Result<FaultEffect, OpenError> {
        let wrong = |wanted: &str| bad_value("fault", text, wanted);
        let Some((name, argument)) = text.split_once(':') else {
            let found = PLAIN.iter().find(|(name, _)| *name == text);
            return found.map(|(_, kind)| *kind).ok_or_else(|| wrong(FORMS));
        };
        match name {
            "torn" => match argument.parse() {
                Ok(blocks) if blocks > 0 => Ok(FaultEffect::Torn { blocks }),
                _ => Err(wrong("torn:N leaves the first N blocks, at least one; drop leaves none")),
            },
            "slow" => match argument.strip_prefix('x') {
                Some(factor) => match factor.parse::<f64>() {
                    Ok(factor) if (1.0..=FACTOR_MAX).contains(&factor) => Ok(FaultEffect::SlowBy(factor)),
                    _ => Err(wrong("slow:xN takes N times as long, 1 to 1000000")),
                },
                None => Ok(FaultEffect::Slow(parse_duration(argument)?)),
            },
            "sense" => sense(argument).map(FaultEffect::Sense).ok_or_else(|| {
                wrong("sense:KEY/ASC/ASCQ has three hexadecimal numbers, such as sense:3/11/00, the key up to f")
            }),
            "errno" => errno::parse(argument)
                .map(FaultEffect::Errno)
                .ok_or_else(|| wrong("errno:NAME is a name such as EIO or ENOSPC, or a number from 1 to 4095")),
            "misdirect" => match argument.parse() {
                Ok(blocks) if blocks > 0 => Ok(FaultEffect::Misdirect { blocks: Some(blocks) }),
                _ => Err(wrong("misdirect:N lands N blocks further on, at least one; misdirect anywhere")),
            },
            "bad-blocks" => {
                let percent = argument.strip_suffix('%').and_then(|share| share.parse::<f64>().ok());
                let percent = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0);
                let wanted = "bad-blocks:SHARE% has a share over 0 and up to 100";
                Ok(FaultEffect::BadBlocks { percent: percent.ok_or_else(|| wrong(wanted))? })
            }
            "flaky" => FaultEffect::parse_flaky(argument)?
                .ok_or_else(|| wrong("flaky:UP/DOWN has two times over 0, and /drop after them to lose writes only")),
            _ => Err(wrong(FORMS)),
        }
    }

    fn parse_flaky(argument: &str) -> Result<Option<FaultEffect>, OpenError> {
        let words: Vec<&str> = argument.split('/').collect();
        let ([up, down], drops_writes) = match words.as_slice() {
            [up, down] => ([up, down], false),
            [up, down, "drop"] => ([up, down], true),
            _ => return Ok(None),
        };
        let (up, down) = (parse_duration(up)?, parse_duration(down)?);
        Ok(
            (!up.is_zero() && !down.is_zero()).then_some(FaultEffect::Flaky {
                up,
                down,
                drops_writes,
            }),
        )
    }
}

fn sense(text: &str) -> Option<[u8; 3]> {
    let mut numbers = text
        .split('/')
        .map(|word| u8::from_str_radix(word, 16).ok());
    let [key, code, qualifier] = [numbers.next()??, numbers.next()??, numbers.next()??];
    (numbers.next().is_none() && key <= 0xf).then_some([key, code, qualifier])
}

impl FaultEffect {
    /// Whether it leaves some requests alone that it is about, for its own reason.
    pub(super) fn leaves_some_alone(self) -> bool {
        matches!(
            self,
            FaultEffect::Torn { .. }
                | FaultEffect::UnitAttention
                | FaultEffect::Misdirect { .. }
                | FaultEffect::BadBlocks { .. }
                | FaultEffect::Flaky { .. }
        )
    }
}

impl std::fmt::Display for FaultEffect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FaultEffect::Torn { blocks } => write!(f, "torn:{blocks}"),
            FaultEffect::Slow(by) => write!(f, "slow:{}", format_duration(*by)),
            FaultEffect::SlowBy(factor) => write!(f, "slow:x{factor}"),
            FaultEffect::Sense([key, code, qualifier]) => {
                write!(f, "sense:{key:x}/{code:02x}/{qualifier:02x}")
            }
            FaultEffect::Errno(number) => write!(f, "errno:{}", errno::name(*number)),
            FaultEffect::Misdirect {
                blocks: Some(blocks),
            } => write!(f, "misdirect:{blocks}"),
            FaultEffect::BadBlocks { percent } if *percent < 100.0 => {
                write!(f, "bad-blocks:{percent}%")
            }
            FaultEffect::Flaky {
                up,
                down,
                drops_writes,
            } => {
                let drop = if *drops_writes { "/drop" } else { "" };
                write!(
                    f,
                    "flaky:{}/{}{drop}",
                    format_duration(*up),
                    format_duration(*down)
                )
            }
            plain => {
                let found = PLAIN.iter().find(|(_, kind)| kind == plain);
                f.write_str(found.map(|(name, _)| *name).expect("the others are plain"))
            }
        }
    }
}
