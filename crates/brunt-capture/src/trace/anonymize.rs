//! Pseudonyms for names, addresses and ids: hashes with a secret key. Called by the recorder for all identifying
//! data. The rules: the same key gives the same pseudonyms in every capture; without the key, no pseudonym can be
//! reversed or guessed (SipHash-2-4 is unpredictable without its key).

use std::fs;
use std::hash::Hasher;
use std::io;
use std::path::{Path, PathBuf};

use brunt_wire::net::IpAddress;
use sha2::{Digest, Sha256};
use siphasher::sip::SipHasher24;

/// A shorter key could be found by brute force.
const KEY_BYTES_MIN: usize = 16;
/// No key needs a larger file than this.
const KEY_BYTES_MAX: u64 = 1 << 20;

/// Why an anonymizer cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The key's file cannot be read.
    #[error("{}: cannot read the key: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is too large to be a key.
    #[error("{}: a key of {bytes} bytes is too long; the maximum is {}", .path.display(), KEY_BYTES_MAX)]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// The key is so short that it could be found by brute force.
    #[error(
        "a key of {bytes} bytes is too short; it needs at least {}, for example from `head -c 32 \
         /dev/urandom > FILE`",
        KEY_BYTES_MIN
    )]
    TooShort {
        /// Its length.
        bytes: usize,
    },
}

/// Computes pseudonyms.
#[derive(Clone)]
pub struct Anonymizer {
    hasher: SipHasher24,
}

impl std::fmt::Debug for Anonymizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Anonymizer(key not shown)")
    }
}

/// What kind of data is hashed; included in the hash, so that a name and an address never have the same pseudonym.
#[derive(Clone, Copy)]
enum Domain {
    Address = 1,
    Mac,
    Name,
    Number,
    Handle,
    Sum,
}

impl Anonymizer {
    /// Reads the key from a file: at least 16 unguessable bytes.
    ///
    /// # Errors
    /// The file cannot be read, or is too short or too long for a key.
    pub fn from_file(path: &Path) -> Result<Anonymizer, KeyError> {
        let io = |source| KeyError::Io {
            path: path.into(),
            source,
        };
        let bytes = fs::metadata(path).map_err(io)?.len();
        if bytes > KEY_BYTES_MAX {
            return Err(KeyError::TooLong {
                path: path.into(),
                bytes,
            });
        }
        Anonymizer::new(&brunt_core::input::read(path).map_err(io)?)
    }

    /// An anonymizer with this key.
    ///
    /// # Errors
    /// The key is too short.
    pub fn new(key: &[u8]) -> Result<Anonymizer, KeyError> {
        if key.len() < KEY_BYTES_MIN {
            return Err(KeyError::TooShort { bytes: key.len() });
        }
        let digest = Sha256::digest(key);
        let hasher = SipHasher24::new_with_key(digest.first_chunk().expect("32 bytes"));
        Ok(Anonymizer { hasher })
    }

    fn hash(&self, domain: Domain, bytes: &[u8]) -> u64 {
        let mut hasher = self.hasher;
        hasher.write(&[domain as u8]);
        hasher.write(bytes);
        hasher.finish()
    }

    /// Maps an address into `fd62::/16`, an unassigned range.
    pub fn address(&self, address: IpAddress) -> IpAddress {
        IpAddress(
            0xfd62_u128 << 112 | u128::from(self.hash(Domain::Address, &address.0.to_be_bytes())),
        )
    }

    /// Maps a 48-bit MAC address to a locally administered one.
    pub fn mac(&self, mac: u64) -> u64 {
        (self.hash(Domain::Mac, &mac.to_be_bytes()) & 0x00ff_ffff_ffff) | 0x0200_0000_0000
    }

    /// Maps a name, path or link target to 16 hexadecimal digits.
    pub fn name(&self, name: &[u8]) -> String {
        format!("{:016x}", self.hash(Domain::Name, name))
    }

    /// Maps the number of a user, group, file, file system, cookie or verifier. Zero stays zero, because it means
    /// root, or the start, on every system.
    pub fn number(&self, number: u64) -> u64 {
        if number == 0 {
            0
        } else {
            self.hash(Domain::Number, &number.to_be_bytes()) >> 1
        }
    }

    /// Maps the key of a file handle.
    pub fn file(&self, file: u64) -> u64 {
        self.hash(Domain::Handle, &file.to_be_bytes())
    }

    /// Maps the checksum of a block. The caller leaves the well-known checksum of zero-filled blocks as it is.
    pub fn sum(&self, sum: u64) -> u64 {
        self.hash(Domain::Sum, &sum.to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same key gives the same pseudonyms, a different key gives different ones, and a short key is rejected.
    #[test]
    fn pseudonyms_depend_on_the_key_and_short_keys_are_refused() {
        let make = |key: &[u8]| Anonymizer::new(key).unwrap();
        let (one, two) = (make(b"0123456789abcdef"), make(b"0123456789abcdeg"));
        assert_eq!(
            one.name(b"secret"),
            make(b"0123456789abcdef").name(b"secret")
        );
        assert_ne!(one.name(b"secret"), two.name(b"secret"));
        assert_ne!(one.number(1000), two.number(1000));
        assert_ne!(one.number(1000), one.file(1000));
        assert_eq!((one.number(0), one.mac(5) >> 40), (0, 2));
        assert!(
            one.address(IpAddress::v4([10, 0, 0, 1]))
                .to_string()
                .starts_with("fd62:")
        );
        assert!(i64::try_from(one.number(u64::MAX)).is_ok());
        assert!(matches!(
            Anonymizer::new(b"short"),
            Err(KeyError::TooShort { bytes: 5 })
        ));
    }
}
