//! The common record of all formats: a request, and the names of the devices that requests go to. Created by
//! [`crate::formats`], used by everything that reads a trace.
//!
//! The rule: sizes are in bytes and times in nanoseconds, whatever units a format uses.

use std::collections::HashMap;
use std::num::NonZeroU64;

use serde::Serialize;

/// Most devices of a trace; a row for one more is damaged. Published traces have up to 5,584.
pub const DEVICES_MAX: usize = 1 << 16;
/// Longest name of a device in bytes.
const NAME_BYTES_MAX: usize = 256;

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// When it was made, in nanoseconds on the trace's own clock: its zero is the format's.
    pub time_ns: u64,
    /// Its device, an index into [`Devices`].
    pub device: u32,
    /// What it asked for.
    pub op: TraceOp,
    /// Its data has to be on stable storage before it is answered (FUA).
    pub fua: bool,
    /// Where it begins, in bytes.
    pub offset_bytes: u64,
    /// How long it is, in bytes; 0 where it has no blocks.
    pub len_bytes: u32,
    /// How long it took, in nanoseconds, where the trace knows.
    pub response_ns: Option<u64>,
    /// What its data was, where the trace knows.
    pub content: Option<ContentHash>,
}

/// Stands for the data of a request: the same for the same data. Half of the hash that a trace has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentHash(pub NonZeroU64);

impl BlockRequest {
    /// A request of which nothing else is known.
    pub fn new(
        time_ns: u64,
        device: u32,
        op: TraceOp,
        offset_bytes: u64,
        len_bytes: u32,
    ) -> BlockRequest {
        BlockRequest {
            time_ns,
            device,
            op,
            fua: false,
            offset_bytes,
            len_bytes,
            response_ns: None,
            content: None,
        }
    }
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceOp {
    /// Data from the device.
    Read,
    /// Data to the device.
    Write,
    /// Its cache made stable.
    Flush,
    /// Blocks given back.
    Unmap,
    /// A command that moves no blocks, such as INQUIRY.
    Other,
}

impl TraceOp {
    /// What a SCSI operation code asks for (SPC-5 and SBC-4, annex D).
    pub fn of_scsi(code: u8) -> TraceOp {
        match code {
            0x08 | 0x28 | 0xa8 | 0x88 => TraceOp::Read,
            0x0a | 0x2a | 0xaa | 0x8a => TraceOp::Write,
            0x35 | 0x91 => TraceOp::Flush,
            0x42 => TraceOp::Unmap,
            _ => TraceOp::Other,
        }
    }

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            TraceOp::Read => "read",
            TraceOp::Write => "write",
            TraceOp::Flush => "flush",
            TraceOp::Unmap => "unmap",
            TraceOp::Other => "other",
        }
    }
}

/// The devices of a trace, numbered as they appear.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    names: Vec<String>,
    /// As they are in the trace, which need not be UTF-8.
    keys: Vec<Box<[u8]>>,
    known: HashMap<Box<[u8]>, u32>,
    /// The last ones that were asked for, by a hash of their names: mostly those of the next rows too.
    recent: Recent,
}

/// Numbers of devices by a hash of their names, each one more than it is; 0 for none.
#[derive(Clone, Debug)]
struct Recent([u32; RECENT]);

const RECENT: usize = 256;

impl Default for Recent {
    fn default() -> Recent {
        Recent([0; RECENT])
    }
}

/// Where a name is among the recent ones: its end tells it from its neighbours.
#[inline]
fn recent_place(name: &[u8]) -> usize {
    let end = &name[name.len().saturating_sub(4)..];
    let word = end
        .iter()
        .fold(name.len() as u32, |word, byte| word << 7 ^ u32::from(*byte));
    (word.wrapping_mul(0x9e37_79b9) >> 24) as usize
}

impl Devices {
    /// The number of the device of this name; `None` for one too many, or a name that is none.
    #[inline]
    pub fn index_of(&mut self, name: &[u8]) -> Option<u32> {
        let place = recent_place(name);
        if let Some(index) = self.recent.0[place].checked_sub(1)
            && *self.keys[index as usize] == *name
        {
            return Some(index);
        }
        let index = self.look_up(name)?;
        self.recent.0[place] = index + 1;
        Some(index)
    }

    fn look_up(&mut self, name: &[u8]) -> Option<u32> {
        let index = match self.known.get(name) {
            Some(index) => *index,
            None => {
                if self.names.len() == DEVICES_MAX || name.len() > NAME_BYTES_MAX {
                    return None;
                }
                let index = self.names.len() as u32;
                self.names.push(String::from_utf8_lossy(name).into_owned());
                self.keys.push(name.into());
                self.known.insert(name.into(), index);
                index
            }
        };
        Some(index)
    }

    /// All of them, by their numbers.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_numbered_as_they_appear_and_bounded() {
        let mut devices = Devices::default();
        assert_eq!(
            ["a", "b", "a", "a"].map(|name| devices.index_of(name.as_bytes())),
            [0, 1, 0, 0].map(Some)
        );
        assert_eq!(devices.names(), ["a", "b"]);
        assert_eq!(devices.index_of(&[b'x'; 257]), None);
        for number in 2..DEVICES_MAX {
            assert!(devices.index_of(number.to_string().as_bytes()).is_some());
        }
        assert_eq!(
            (devices.index_of(b"one more"), devices.index_of(b"b")),
            (None, Some(1))
        );
    }
}
