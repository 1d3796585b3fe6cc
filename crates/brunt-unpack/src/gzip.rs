//! gzip files: consecutive members, and the zero padding that tapes and block devices leave after them.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

use crate::UnpackError;

/// A gzip file.
pub(crate) struct Gzip<R> {
    /// `None` only between members and after the last one.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Gzip<R> {
    /// A file with at least one member.
    pub fn new(input: R) -> Gzip<R> {
        Gzip {
            member: Some(GzDecoder::new(input)),
        }
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        while let Some(member) = &mut self.member {
            let read = member.read(into)?;
            if read > 0 {
                return Ok(read);
            }
            let ended = self.member.take().expect("it was just read");
            self.member = next(ended.into_inner())?.map(GzDecoder::new);
        }
        Ok(0)
    }
}

/// The input at the next member, or `None` if there isn't one.
fn next<R: BufRead>(mut input: R) -> io::Result<Option<R>> {
    loop {
        let bytes = input.fill_buf()?;
        match bytes.iter().position(|byte| *byte != 0) {
            _ if bytes.is_empty() => return Ok(None),
            Some(0) if bytes[0] == 0x1f => return Ok(Some(input)),
            Some(_) => return Err(UnpackError::Trailing { packing: "gzip" }.into()),
            None => {
                let zeroes = bytes.len();
                input.consume(zeroes);
            }
        }
    }
}
