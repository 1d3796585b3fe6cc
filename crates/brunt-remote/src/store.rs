//! The interface to an object store, and the interpretation of its metadata about an object's bytes.
//!
//! The rule: a method returns only once the store has answered; the caller decides what to do next. Timeouts and
//! unanswered requests are [`RemoteError::Unreachable`]; the outcome of such a request is unknown.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::address::RemoteAddress;
use crate::error::RemoteError;

/// Returns whether to give up waiting for an answer; called several times a second.
pub type StopWaiting = Arc<dyn Fn() -> bool + Send + Sync>;

/// A store's metadata about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFacts {
    /// Its key.
    pub key: String,
    /// Its size.
    pub bytes: u64,
    /// Its entity tag, without quotes. In S3, this is the MD5 of the bytes, or of the MD5s of the pieces in which they
    /// were sent, unless the object is encrypted with a customer's key.
    pub etag: Option<String>,
    /// When it was sent, according to the store's clock, in milliseconds since 1970.
    pub modified_ms: u64,
}

/// Outcome of sending bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The store now has them.
    Stored,
    /// An object with this name already existed; it was not touched.
    Exists,
}

/// The object store operations that are used here.
pub trait RemoteStore: Send {
    /// Looks up a key. `None` if there is no such object.
    ///
    /// # Errors
    /// The store does not answer or denies the request.
    fn stat(&self, key: &str) -> Result<Option<ObjectFacts>, RemoteError>;

    /// Sends a file of `bytes` bytes, which must not change in the meantime.
    ///
    /// # Errors
    /// The store does not answer or denies the request; the file cannot be read.
    fn send_file(&self, key: &str, path: &Path, bytes: u64) -> Result<Sent, RemoteError>;

    /// Sends a small object.
    ///
    /// # Errors
    /// As for [`RemoteStore::send_file`].
    fn send_bytes(&self, key: &str, bytes: &[u8]) -> Result<Sent, RemoteError>;

    /// Sends a small object, replacing an existing one: for hints, whose information is also in other objects.
    ///
    /// # Errors
    /// As for [`RemoteStore::stat`].
    fn replace_bytes(&self, key: &str, bytes: &[u8]) -> Result<(), RemoteError>;

    /// Deletes an object; a missing one is not an error.
    ///
    /// # Errors
    /// As for [`RemoteStore::stat`].
    fn delete(&self, key: &str) -> Result<(), RemoteError>;

    /// Reads an object from start to end in pieces; `each` returns false to stop early.
    ///
    /// # Errors
    /// The store doesn't answer, denies the request or has no such object; or an error from `each`.
    fn read(
        &self,
        key: &str,
        each: &mut dyn FnMut(&[u8]) -> Result<bool, RemoteError>,
    ) -> Result<(), RemoteError>;

    /// All objects whose keys are below a folder, in key order; at most `count_max`.
    ///
    /// # Errors
    /// As for [`RemoteStore::stat`].
    fn list(&self, folder: &str, count_max: usize) -> Result<Vec<ObjectFacts>, RemoteError>;

    /// Unanswered requests for pieces that the methods above repeated.
    fn retries(&self) -> u64;
}

/// Opens the store of an address, with credentials, endpoint and region from the environment (`AWS_…`).
///
/// # Errors
/// This program was built without support for object stores, or the environment is invalid. The store isn't contacted
/// yet.
pub fn open_store(
    address: &RemoteAddress,
    stop: StopWaiting,
) -> Result<Box<dyn RemoteStore>, RemoteError> {
    #[cfg(feature = "s3")]
    return Ok(Box::new(crate::s3::S3Store::open(address, stop)?));
    #[cfg(not(feature = "s3"))]
    {
        drop(stop);
        Err(RemoteError::NotBuilt {
            address: address.to_string(),
        })
    }
}

/// Maximum number of objects in a lake, whose names are kept in memory: 40 years of hourly parts of 25 tables.
pub(crate) const OBJECTS_MAX: usize = 10_000_000;
/// Files up to this size are sent in one request, larger ones in several.
pub const SINGLE_BYTES_MAX: u64 = 16 << 20;
/// S3's maximum number of pieces per file.
const PIECES_MAX: u64 = 10_000;

/// Size of the pieces in which a file is sent; `None` if it is sent whole. Depends only on the file's size, so that the
/// tag of an object sent long ago can be recomputed.
pub fn piece_bytes(bytes: u64) -> Option<u64> {
    const PIECE: u64 = 8 << 20;
    // Whole MiB, as in other tools.
    let least = bytes.div_ceil(PIECES_MAX).next_multiple_of(1 << 20);
    (bytes > SINGLE_BYTES_MAX).then_some(least.max(PIECE))
}

/// A file as it was when read: its size, and the tags that S3 would give to its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Its size.
    pub bytes: u64,
    /// MD5 of the whole file in hexadecimal.
    pub md5: String,
    /// The tag if the file is sent in several pieces of [`piece_bytes`].
    pub pieces_tag: Option<String>,
}

/// What a store's metadata proves about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectMatch {
    /// Its tag is the MD5 of these bytes.
    Same,
    /// Its size or its MD5 differs.
    Different,
    /// Its tag is of another kind, so only reading the bytes can tell.
    Unknown,
}

impl Fingerprint {
    /// Reads all bytes of `from`.
    ///
    /// # Errors
    /// Reading from `from` fails.
    pub fn read(mut from: impl io::Read, bytes_expected: u64) -> io::Result<Fingerprint> {
        use md5::{Digest, Md5};
        let piece_bytes = piece_bytes(bytes_expected);
        let (mut whole, mut of_pieces, mut pieces) = (Md5::new(), Md5::new(), 0_u64);
        let (mut piece, mut left) = (Md5::new(), piece_bytes.unwrap_or(u64::MAX));
        let mut buffer = vec![0; 256 << 10];
        let mut bytes = 0;
        loop {
            let room = (buffer.len() as u64).min(left) as usize;
            let count = match from.read(&mut buffer[..room]) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            whole.update(&buffer[..count]);
            if piece_bytes.is_some() {
                piece.update(&buffer[..count]);
                left -= count as u64;
            }
            bytes += count as u64;
            if left == 0 || (count == 0 && left < piece_bytes.unwrap_or(u64::MAX)) {
                of_pieces.update(std::mem::take(&mut piece).finalize());
                pieces += 1;
                left = piece_bytes.unwrap_or(u64::MAX);
            }
            if count == 0 {
                break;
            }
        }
        let hex = |bytes: &[u8]| {
            bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        Ok(Fingerprint {
            bytes,
            md5: hex(&whole.finalize()),
            pieces_tag: piece_bytes.map(|_| format!("{}-{pieces}", hex(&of_pieces.finalize()))),
        })
    }

    /// Compares the file with a store's metadata.
    pub fn likeness(&self, facts: &ObjectFacts) -> ObjectMatch {
        if facts.bytes != self.bytes {
            return ObjectMatch::Different;
        }
        let Some(etag) = facts.etag.as_deref() else {
            return ObjectMatch::Unknown;
        };
        if etag == self.md5 || Some(etag) == self.pieces_tag.as_deref() {
            ObjectMatch::Same
        } else {
            // If the object was encrypted with a customer's key or sent in other pieces, its tag proves nothing.
            ObjectMatch::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tags are as documented by S3; the expected values are from `md5sum`, and from `md5sum` over the sums of the
    /// pieces.
    #[test]
    fn fingerprints_match_s3s_entity_tags() {
        let small = Fingerprint::read(&b"brunt\n"[..], 6).unwrap();
        assert_eq!((small.bytes, small.pieces_tag.as_deref()), (6, None));
        assert_eq!(small.md5, "c42207a6b61c35bfa03ec3360ddc71c2");
        let zeros = vec![0; 17 << 20];
        let large = Fingerprint::read(&zeros[..], zeros.len() as u64).unwrap();
        assert_eq!(
            large.pieces_tag.as_deref(),
            Some("e6000a567fdaa0162ceedec6b60fcd68-3")
        );
    }

    #[test]
    fn a_tag_of_another_kind_proves_nothing() {
        let print = Fingerprint::read(&b"brunt\n"[..], 6).unwrap();
        let facts = |bytes, etag: Option<&str>| ObjectFacts {
            key: "k".into(),
            bytes,
            etag: etag.map(str::to_string),
            modified_ms: 0,
        };
        assert_eq!(
            print.likeness(&facts(6, Some(&print.md5))),
            ObjectMatch::Same
        );
        assert_eq!(
            print.likeness(&facts(7, Some(&print.md5))),
            ObjectMatch::Different
        );
        assert_eq!(
            print.likeness(&facts(6, Some("0123-2"))),
            ObjectMatch::Unknown
        );
        assert_eq!(print.likeness(&facts(6, None)), ObjectMatch::Unknown);
    }

    #[test]
    fn pieces_stay_within_s3s_limits() {
        assert_eq!(piece_bytes(SINGLE_BYTES_MAX), None);
        assert_eq!(piece_bytes(SINGLE_BYTES_MAX + 1), Some(8 << 20));
        let large = 5 << 40;
        assert!(large / piece_bytes(large).unwrap() <= PIECES_MAX);
    }
}
