//! Reads a file that may be packed with gzip, zstd or xz as a stream of what is in it. Traces of packets and of block
//! requests are opened with it.
//!
//! The rule: which of them it is, its first bytes say, never its name; several packed files one after another are read
//! as one. Of a file that is cut, all that can be unpacked is read before the error.
#![forbid(unsafe_code)]

use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read};

use lzma_rust2::{Action, Status, XzReader, XzStream};

/// How a file can be packed, for help texts.
pub const PACKINGS: &str = "plain, gzip, zstd or xz";

/// What is looked at of a file: the signature, and in an xz file the flags of its first block (3.1.2), which count its
/// filters.
const BEGINNING_BYTES: u64 = 14;
/// Packed bytes that are read at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// Memory that an xz file may ask for; `xz -9` asks for 64 MiB.
const XZ_MEMORY_KIB_MAX: u32 = 256 << 10;

/// What a file contains: unpacked, where it is packed.
///
/// # Errors
/// Its first bytes cannot be read, or there is no memory to unpack with.
pub fn unpacked(mut input: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let mut magic = Vec::with_capacity(BEGINNING_BYTES as usize);
    (&mut input).take(BEGINNING_BYTES).read_to_end(&mut magic)?;
    let packed = magic.clone();
    let whole = Cursor::new(magic).chain(input);
    Ok(match packed.as_slice() {
        // RFC 1952, 2.3.1.
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(whole)),
        // RFC 8878, 3.1.1.
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(zstd::Decoder::new(whole)?),
        // The .xz file format, 2.1.1.1.
        [0xfd, b'7', b'z', b'X', b'Z', 0, rest @ ..] => {
            let packed = BufReader::with_capacity(BUFFER_BYTES, whole);
            if rest.get(7).is_some_and(|flags| flags & 3 > 1) {
                // More filters than the other decoder takes.
                return Ok(Box::new(XzReader::new_mem_limit(
                    packed,
                    true,
                    XZ_MEMORY_KIB_MAX,
                )));
            }
            Box::new(Xz {
                packed,
                stream: XzStream::new_mem_limit(true, XZ_MEMORY_KIB_MAX),
            })
        }
        _ => Box::new(whole),
    })
}

/// An xz file, unpacked as its bytes come: a reader of whole chunks would lose the last one of a file that is cut, up to
/// 2 MiB.
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn xz(text: &[u8]) -> Vec<u8> {
        let mut encoder =
            lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1)).unwrap();
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn read(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        unpacked(Box::new(Cursor::new(bytes)))?.read_to_end(&mut text)?;
        Ok(text)
    }

    #[test]
    fn packed_or_not_the_content_is_the_same() {
        let text: Vec<u8> = (0..200_000u32)
            .flat_map(|number| (number / 3).to_le_bytes())
            .collect();
        assert_eq!(read(text.clone()).unwrap(), text);
        for packed in [
            gzip(&text),
            zstd::encode_all(text.as_slice(), 1).unwrap(),
            xz(&text),
        ] {
            assert!(packed.len() < text.len());
            assert_eq!(read(packed.clone()).unwrap(), text);
            let twice = [packed.clone(), packed].concat();
            assert_eq!(read(twice).unwrap(), [text.clone(), text.clone()].concat());
        }
    }

    /// Text that does not pack well: many blocks and chunks.
    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8 & 0x3f
        };
        (0..bytes).map(|_| next()).collect()
    }

    /// Of a file that is cut in the middle, nearly half is read, whatever the size of reads; then comes the error.
    #[test]
    fn what_is_before_a_cut_is_read() {
        let text = noise(4 << 20);
        for (packed, least) in [
            (gzip(&text), 0.49),
            // A zstd block has 128 KiB.
            (zstd::encode_all(text.as_slice(), 1).unwrap(), 0.46),
            (xz(&text), 0.49),
        ] {
            for piece in [1 << 10, 1 << 20] {
                let mut reader =
                    unpacked(Box::new(Cursor::new(packed[..packed.len() / 2].to_vec()))).unwrap();
                let (mut read, mut into) = (Vec::new(), vec![0; piece]);
                let error = loop {
                    match reader.read(&mut into) {
                        Ok(0) => panic!("a cut file ends without an error"),
                        Ok(count) => read.extend_from_slice(&into[..count]),
                        Err(error) => break error,
                    }
                };
                assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
                assert!(text.starts_with(&read));
                let share = read.len() as f64 / text.len() as f64;
                assert!(share > least, "{:x?}: {share}", &packed[..4]);
            }
        }
    }

    /// `xz --x86 --delta --lzma2` is read, too.
    #[test]
    fn filters_are_undone() {
        let mut options = lzma_rust2::XzOptions::with_preset(1);
        options.prepend_pre_filter(lzma_rust2::filter::FilterType::Delta, 4);
        options.prepend_pre_filter(lzma_rust2::filter::FilterType::BcjX86, 0);
        let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
        encoder.write_all(&[9; 5000]).unwrap();
        assert_eq!(read(encoder.finish().unwrap()).unwrap(), [9; 5000]);
    }

    #[test]
    fn a_packed_file_that_is_cut_is_an_error() {
        for packed in [
            gzip(&[7; 5000]),
            zstd::encode_all(&[7; 5000][..], 1).unwrap(),
            xz(&[7; 5000]),
        ] {
            let cut = packed[..packed.len() - 5].to_vec();
            assert!(read(cut).is_err());
        }
        for short in [&b""[..], b"x", b"\xfd7zXZ"] {
            assert_eq!(read(short.to_vec()).unwrap(), short);
        }
    }
}
