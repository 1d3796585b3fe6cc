//! The record that all formats share: a request, and the names of the devices that requests access.
//! Created by [`crate::formats`], used by everything that reads a trace.
//!
//! The rule: sizes are in bytes and times in nanoseconds, whatever units a format uses.

use std::collections::HashMap;
use std::num::NonZeroU64;

use serde::Serialize;

/// Maximum number of devices in a trace; rows for further devices are damaged. Published traces have up to 5,584.
pub const DEVICES_MAX: usize = 1 << 16;
/// Maximum length of a device name in bytes.
const NAME_BYTES_MAX: usize = 256;

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// When it was issued, in nanoseconds on the trace's clock, whose zero depends on the format.
    pub time_ns: u64,
    /// Its device, an index into [`Devices`].
    pub device: u32,
    /// Its operation.
    pub op: TraceOp,
    /// Whether the data must be on stable storage before completion (FUA).
    pub fua: bool,
    /// Its offset in bytes.
    pub offset_bytes: u64,
    /// Its length in bytes; 0 if it has no blocks.
    pub len_bytes: u32,
    /// Its response time in nanoseconds, if the trace contains it.
    pub response_ns: Option<u64>,
    /// Identifies its data, if the trace contains a hash.
    pub content: Option<ContentHash>,
}

/// Identifies the data of a request: equal for equal data. Half of the hash in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentHash(pub NonZeroU64);

impl BlockRequest {
    /// A request without the optional fields.
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

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceOp {
    /// Reads data from the device.
    Read,
    /// Writes data to the device.
    Write,
    /// Writes the device's volatile cache to stable storage.
    Flush,
    /// Releases blocks.
    Unmap,
    /// A command that moves no blocks, such as INQUIRY.
    Other,
}

impl TraceOp {
    /// The operation for a SCSI operation code (SPC-5 and SBC-4, annex D).
    pub fn of_scsi(code: u8) -> TraceOp {
        match code {
            0x08 | 0x28 | 0xa8 | 0x88 => TraceOp::Read,
            0x0a | 0x2a | 0xaa | 0x8a => TraceOp::Write,
            0x35 | 0x91 => TraceOp::Flush,
            0x42 => TraceOp::Unmap,
            _ => TraceOp::Other,
        }
    }

    /// Its name for display.
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

/// The devices of a trace, numbered in order of appearance.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    names: Vec<String>,
    /// Names as in the trace; they need not be UTF-8.
    keys: Vec<Box<[u8]>>,
    known: HashMap<Box<[u8]>, u32>,
    /// Recently looked-up devices, by a hash of their names: the following rows mostly use the same devices.
    recent: Recent,
}

/// Device indexes plus one, by a hash of their names; 0 means none.
#[derive(Clone, Debug)]
struct Recent([u32; RECENT]);

const RECENT: usize = 256;

impl Default for Recent {
    fn default() -> Recent {
        Recent([0; RECENT])
    }
}

/// The slot of a name among the recent ones: neighbouring names differ at their ends.
#[inline]
fn recent_place(name: &[u8]) -> usize {
    let end = &name[name.len().saturating_sub(4)..];
    let word = end
        .iter()
        .fold(name.len() as u32, |word, byte| word << 7 ^ u32::from(*byte));
    (word.wrapping_mul(0x9e37_79b9) >> 24) as usize
}

impl Devices {
    /// The index of the device of this name; `None` if there are too many devices, or the name is invalid.
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

    /// All names, by index.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_numbered_in_order_of_appearance_up_to_the_limit() {
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
