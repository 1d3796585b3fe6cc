//! xz files, decompressed as their bytes arrive.

use std::io::{self, BufRead, ErrorKind, Read};

use lzma_rust2::{Action, Status, XzReader, XzStream};

/// Memory limit for decompressing an xz file; `xz -9` needs 64 MiB.
const XZ_MEMORY_KIB_MAX: u32 = 256 << 10;

/// Opens an xz file. The flags of its first block (3.1.2) contain the number of filters.
pub(crate) fn open(input: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let mut packed = crate::buffered(input);
    let flags = packed.fill_buf()?.get(13).copied();
    if flags.is_some_and(|flags| flags & 3 > 1) {
        // More filters than [`Xz`] supports.
        return Ok(Box::new(XzReader::new_mem_limit(
            packed,
            true,
            XZ_MEMORY_KIB_MAX,
        )));
    }
    Ok(Box::new(Xz {
        packed,
        stream: XzStream::new_mem_limit(true, XZ_MEMORY_KIB_MAX),
    }))
}

/// Decompresses incrementally. A reader of whole chunks would lose the last one, up to 2 MiB, of a truncated file.
struct Xz<R> {
    packed: R,
    stream: XzStream,
}

/// Maximum bytes decompressed per call: if a call finds damage, its output is lost.
const XZ_PIECE_BYTES: usize = 16 << 10;

impl<R: BufRead> Read for Xz<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let room = into.len().min(XZ_PIECE_BYTES);
        if room == 0 {
            return Ok(0);
        }
        let into = &mut into[..room];
        loop {
            let packed = self.packed.fill_buf()?;
            let is_all = packed.is_empty();
            // Return what is already decompressed first, even if the file is truncated.
            let mut step = self.stream.process(packed, into, Action::Run)?;
            if is_all && step.bytes_produced == 0 && step.status == Status::Ok {
                let cut = |error| io::Error::new(ErrorKind::UnexpectedEof, error);
                step = self
                    .stream
                    .process(&[], into, Action::Finish)
                    .map_err(cut)?;
            }
            self.packed.consume(step.bytes_consumed);
            let is_stuck = step.bytes_consumed == 0;
            match (step.bytes_produced, step.status) {
                (0, Status::StreamEnd) => return Ok(0),
                (0, Status::Ok) if is_all => return Err(ErrorKind::UnexpectedEof.into()),
                (0, Status::Ok) if is_stuck => return Err(ErrorKind::InvalidData.into()),
                (0, Status::Ok) => {}
                (produced, _) => return Ok(produced),
            }
        }
    }
}
