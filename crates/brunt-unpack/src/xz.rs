//! xz files, unpacked as their bytes come.

use std::io::{self, BufRead, ErrorKind, Read};

use lzma_rust2::{Action, Status, XzReader, XzStream};

/// Memory that an xz file may ask for; `xz -9` asks for 64 MiB.
const XZ_MEMORY_KIB_MAX: u32 = 256 << 10;

/// Opens one. The flags of its first block (3.1.2) count its filters.
pub(crate) fn open(input: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let mut packed = crate::buffered(input);
    let flags = packed.fill_buf()?.get(13).copied();
    if flags.is_some_and(|flags| flags & 3 > 1) {
        // More filters than the other decoder takes.
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

/// A reader of whole chunks would lose the last one of a file that is cut, up to 2 MiB.
struct Xz<R> {
    packed: R,
    stream: XzStream,
}

/// Bytes unpacked at a time: those before damage in the same piece are lost.
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
            // What is unpacked already comes first, even if the file ends in the middle.
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
