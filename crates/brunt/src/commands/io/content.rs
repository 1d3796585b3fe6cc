//! The data of `brunt io`: what a write contains, what a verification expects, and the files on either side.
//!
//! The rule: content follows from seed and offset alone, so that `verify` with any block size and order
//! knows what has to be there.

use std::fs::File;
use std::io::{self, Read, Write};

use brunt_core::random::Random;

use super::Pattern;
use crate::cli::Failure;

/// Content is made in units of so many bytes: the smallest logical block.
const SECTOR_BYTES: u64 = 512;

/// A block that is not what it should be.
pub struct Wrong {
    pub offset: u64,
    pub expected: [u8; 8],
    pub found: [u8; 8],
    pub zeros: bool,
}

/// The blocks of `found`, read at `offset`, that are not what was written there; calls `tell` with each.
pub fn compare(
    pattern: Pattern,
    seed: u64,
    block_bytes: usize,
    offset: u64,
    found: &[u8],
    mut tell: impl FnMut(Wrong),
) {
    let mut expected = [0; SECTOR_BYTES as usize];
    for (number, found) in found.chunks(block_bytes).enumerate() {
        let block_offset = offset + (number * block_bytes) as u64;
        for (sector, part) in found.chunks(SECTOR_BYTES as usize).enumerate() {
            fill(pattern, seed, block_offset + sector as u64 * SECTOR_BYTES, &mut expected);
            if expected[..part.len()] != *part {
                let byte = expected.iter().zip(part).position(|(a, b)| a != b).unwrap_or(0) & !7;
                let eight = |bytes: &[u8]| bytes[byte..byte + 8].try_into().expect("eight bytes");
                let zeros = found.iter().all(|byte| *byte == 0);
                tell(Wrong { offset: block_offset, expected: eight(&expected), found: eight(part), zeros });
                break;
            }
        }
    }
}

/// The content of `bytes` at `offset`, which is a multiple of the sector.
pub fn fill(pattern: Pattern, seed: u64, offset: u64, bytes: &mut [u8]) {
    match pattern {
        Pattern::Zeros => bytes.fill(0),
        Pattern::Ones => bytes.fill(0xff),
        Pattern::Seeded => {
            for (number, sector) in bytes.chunks_mut(SECTOR_BYTES as usize).enumerate() {
                Random::for_part(seed, offset / SECTOR_BYTES + number as u64).fill(sector);
            }
        }
    }
}

/// A file to write from.
pub fn open_input(path: &str) -> Result<Box<dyn Read>, Failure> {
    if path == "-" {
        return Ok(Box::new(io::stdin()));
    }
    let file = File::open(path).map_err(|error| Failure::usage(format!("{path}: {error}")))?;
    Ok(Box::new(file))
}

/// A file to read into.
pub fn open_sink(path: &str) -> Result<Box<dyn Write>, Failure> {
    if path == "-" {
        return Ok(Box::new(io::stdout()));
    }
    let file = File::create(path).map_err(|error| Failure::usage(format!("{path}: {error}")))?;
    Ok(Box::new(file))
}

/// As much as there is, up to the buffer's length.
pub fn read_full(input: &mut dyn Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut at = 0;
    while at < buf.len() {
        match input.read(&mut buf[at..]) {
            Ok(0) => break,
            Ok(count) => at += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(at)
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Content follows from seed and offset alone, however it is cut.
    #[test]
    fn content_does_not_depend_on_the_block_size() {
        let mut whole = vec![0; 8192];
        fill(Pattern::Seeded, 7, 4096, &mut whole);
        for size in [512, 1024, 4096] {
            for start in (0..8192).step_by(size) {
                let mut part = vec![0; size];
                fill(Pattern::Seeded, 7, 4096 + start as u64, &mut part);
                assert!(part == whole[start..start + size]);
            }
        }
        let mut other = vec![0; 8192];
        fill(Pattern::Seeded, 8, 4096, &mut other);
        assert!(other[..512] != whole[..512] && whole[..512] != whole[512..1024]);
    }
}
