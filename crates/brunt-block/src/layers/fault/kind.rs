//! The effects of faults, and their syntax. [`super::spec`] adds the selection of requests.

use std::time::Duration;

use brunt_core::units::{format_duration, parse_duration};

use super::errno;
use crate::open::{OpenError, bad_value};

/// The message for an invalid fault.
pub const FORMS: &str = "write a fault as medium-error, hardware-error, recovered-error, \
    aborted-command, busy, reservation-conflict, not-ready, unit-attention, task-set-full, \
    sense:KEY/ASC/ASCQ, errno:NAME, slow:TIME, slow:xFACTOR, hang, drop, torn:BLOCKS, corrupt, \
    misdirect, misdirect:BLOCKS, bad-blocks, bad-blocks:SHARE%, flaky:UP/DOWN or \
    flaky:UP/DOWN/drop, optionally followed by ,p=PROBABILITY ,op=read+write+flush+unmap \
    ,lba=FIRST-LAST+… ,every=N ,times=N ,seed=N";
/// Maximum slowdown factor.
const FACTOR_MAX: f64 = 1e6;

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultEffect {
    /// Unrecovered read or write error. The request is not executed.
    MediumError,
    /// Internal failure of the device. The request is not executed.
    HardwareError,
    /// Recovered error: the request succeeds and its data is valid.
    RecoveredError,
    /// Aborted command: the data was not transferred completely. The request is not executed.
    AbortedCommand,
    /// Busy. The request is not executed.
    Busy,
    /// Another initiator's reservation conflicts. The request is not executed.
    ReservationConflict,
    /// Not ready. The request is not executed.
    NotReady,
    /// Unit attention, as after a reset, on the first request of each open device (of each session, at a target). The
    /// request is not executed.
    UnitAttention,
    /// The queue is full. The request is not executed.
    TaskSetFull,
    /// The error with this sense key, additional sense code and qualifier. The request is not executed, unless the
    /// key is that of a recovered error.
    Sense([u8; 3]),
    /// This errno. The request is not executed.
    Errno(i32),
    /// The request reaches the device after this delay.
    Slow(Duration),
    /// The request takes this many times as long.
    SlowBy(f64),
    /// The request hangs. It reaches the device when the fault is removed, unless it has been cancelled by then.
    Hang,
    /// A write is acknowledged but never executed.
    Drop,
    /// Only the first blocks of a write are written, but all of it is acknowledged. Writes of at most this many blocks
    /// are not affected.
    Torn {
        /// Number of blocks written.
        blocks: u32,
    },
    /// One random bit is flipped: in the data that a read returns, or in the data that a write stores.
    Corrupt,
    /// A write is acknowledged but lands elsewhere: `blocks` blocks further on, wrapping around at the end, or at a
    /// random location. The intended location keeps its old data.
    Misdirect {
        /// Distance in blocks; `None`: random.
        blocks: Option<u64>,
    },
    /// Reads that touch a bad block fail with medium errors until the block is written (like dm-dust).
    BadBlocks {
        /// Percentage of bad blocks, chosen by the seed, among the blocks listed by `lba` if given.
        percent: f64,
    },
    /// Alternately up and down, starting with the first request (like dm-flakey).
    Flaky {
        /// How long requests are served.
        up: Duration,
        /// How long requests are not served.
        down: Duration,
        /// While down, writes are acknowledged and lost, and reads are served; otherwise all requests fail with EIO.
        drops_writes: bool,
    },
}

/// Effects without an argument.
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
    /// Parses `WORD` or `WORD:ARGUMENT`.
    pub(super) fn parse(text: &str) -> Result<FaultEffect, OpenError> {
        let wrong = |wanted: &str| bad_value("fault", text, wanted);
        let Some((name, argument)) = text.split_once(':') else {
            let found = PLAIN.iter().find(|(name, _)| *name == text);
            return found.map(|(_, kind)| *kind).ok_or_else(|| wrong(FORMS));
        };
        match name {
            "torn" => match argument.parse() {
                Ok(blocks) if blocks > 0 => Ok(FaultEffect::Torn { blocks }),
                _ => Err(wrong(
                    "write torn:N with N of at least 1, the number of blocks written; \
                    drop writes none",
                )),
            },
            "slow" => match argument.strip_prefix('x') {
                Some(factor) => match factor.parse::<f64>() {
                    Ok(factor) if (1.0..=FACTOR_MAX).contains(&factor) => {
                        Ok(FaultEffect::SlowBy(factor))
                    }
                    _ => Err(wrong(
                        "write slow:xN with N from 1 to 1000000, the factor by which \
                        requests take longer",
                    )),
                },
                None => Ok(FaultEffect::Slow(parse_duration(argument)?)),
            },
            "sense" => sense(argument).map(FaultEffect::Sense).ok_or_else(|| {
                wrong(
                    "write sense:KEY/ASC/ASCQ with three hexadecimal numbers, such as \
                    sense:3/11/00; the key is at most f",
                )
            }),
            "errno" => errno::parse(argument)
                .map(FaultEffect::Errno)
                .ok_or_else(|| {
                    wrong(
                        "write errno:NAME with a name such as EIO or ENOSPC, or a \
                    number from 1 to 4095",
                    )
                }),
            "misdirect" => match argument.parse() {
                Ok(blocks) if blocks > 0 => Ok(FaultEffect::Misdirect {
                    blocks: Some(blocks),
                }),
                _ => Err(wrong(
                    "write misdirect:N with N of at least 1, the distance in blocks; \
                    misdirect picks any block",
                )),
            },
            "bad-blocks" => {
                let percent = argument
                    .strip_suffix('%')
                    .and_then(|share| share.parse::<f64>().ok());
                let percent = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0);
                let wanted = "write bad-blocks:SHARE% with a share above 0 and up to 100";
                Ok(FaultEffect::BadBlocks {
                    percent: percent.ok_or_else(|| wrong(wanted))?,
                })
            }
            "flaky" => FaultEffect::parse_flaky(argument)?.ok_or_else(|| {
                wrong(
                    "write flaky:UP/DOWN with two times above 0; append /drop to \
                    lose writes only",
                )
            }),
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
    /// Whether the effect itself exempts some of the requests that the fault applies to.
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
                f.write_str(
                    found
                        .map(|(name, _)| *name)
                        .expect("all other kinds have a plain name"),
                )
            }
        }
    }
}
