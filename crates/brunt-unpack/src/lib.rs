//! Reads a file that may be packed with gzip, zstd or xz as a stream of what is in it. Traces of packets and of block
//! requests are opened with it.
//!
//! The rule: which of them it is, its first bytes say, never its name; several packed files one after another are read
//! as one.
#![forbid(unsafe_code)]

use std::io::{self, BufReader, Cursor, Read};

/// How a file can be packed, for help texts.
pub const PACKINGS: &str = "plain, gzip, zstd or xz";

/// The longest signature at the beginning of a packed file.
const MAGIC_BYTES: u64 = 6;
/// Packed bytes that are read at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// Memory that an xz file may ask for; `xz -9` asks for 64 MiB.
const XZ_MEMORY_KIB_MAX: u32 = 256 << 10;

/// What a file contains: unpacked, where it is packed.
///
/// # Errors
/// Its first bytes cannot be read, or there is no memory to unpack with.
pub fn unpacked(mut input: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let mut magic = Vec::with_capacity(MAGIC_BYTES as usize);
    (&mut input).take(MAGIC_BYTES).read_to_end(&mut magic)?;
    let packed = magic.clone();
    let whole = Cursor::new(magic).chain(input);
    Ok(match packed.as_slice() {
        // RFC 1952, 2.3.1.
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(whole)),
        // RFC 8878, 3.1.1.
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(zstd::Decoder::new(whole)?),
        // The .xz file format, 2.1.1.1.
        [0xfd, b'7', b'z', b'X', b'Z', 0] => {
            let buffered = BufReader::with_capacity(BUFFER_BYTES, whole);
            Box::new(lzma_rust2::XzReader::new_mem_limit(buffered, true, XZ_MEMORY_KIB_MAX))
        }
        _ => Box::new(whole),
    })
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
        let text: Vec<u8> = (0..200_000u32).flat_map(|number| (number / 3).to_le_bytes()).collect();
        assert_eq!(read(text.clone()).unwrap(), text);
        for packed in [gzip(&text), zstd::encode_all(text.as_slice(), 1).unwrap(), xz(&text)] {
            assert!(packed.len() < text.len());
            assert_eq!(read(packed.clone()).unwrap(), text);
            let twice = [packed.clone(), packed].concat();
            assert_eq!(read(twice).unwrap(), [text.clone(), text.clone()].concat());
        }
    }

    #[test]
    fn a_packed_file_that_is_cut_is_an_error() {
        for packed in [gzip(&[7; 5000]), zstd::encode_all(&[7; 5000][..], 1).unwrap(), xz(&[7; 5000])] {
            let cut = packed[..packed.len() - 5].to_vec();
            assert!(read(cut).is_err());
        }
        for short in [&b""[..], b"x", b"\xfd7zXZ"] {
            assert_eq!(read(short.to_vec()).unwrap(), short);
        }
    }
}
