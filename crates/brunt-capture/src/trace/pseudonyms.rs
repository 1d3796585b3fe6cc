//! Names, addresses and ids as written to the tables: plain, or as pseudonyms. Called by all table writers.
//! The one rule: all identifying data goes through here.

use brunt_core::byte_text;
use brunt_lake::{Row, Words};
use brunt_wire::net::IpAddress;

use super::Anonymizer;
use crate::checksum::{BLOCK_BYTES, sum};
use crate::hide::Hide;
use crate::key::{FileKey, leads_on};

/// Writes names, addresses and ids to the tables: plain, or as pseudonyms.
#[derive(Clone, Debug)]
pub struct Pseudonyms {
    pub(super) key: Option<Anonymizer>,
    zeros: u64,
}

impl Pseudonyms {
    /// Writes pseudonyms under this key or, without a key, everything unchanged.
    pub fn new(key: Option<Anonymizer>) -> Pseudonyms {
        Pseudonyms {
            key,
            zeros: sum(&[0; BLOCK_BYTES]),
        }
    }

    #[inline]
    pub fn file(&self, file: FileKey) -> i64 {
        self.key.as_ref().map_or(file.0, |key| key.file(file.0)) as i64
    }

    #[inline]
    pub fn number(&self, number: u64) -> i64 {
        self.key.as_ref().map_or(number, |key| key.number(number)) as i64
    }

    #[inline]
    pub fn sum(&self, sum: u64) -> i64 {
        match &self.key {
            Some(key) if sum != self.zeros => key.sum(sum) as i64,
            _ => sum as i64,
        }
    }

    pub fn mac(&self, mac: u64) -> i64 {
        self.key.as_ref().map_or(mac, |key| key.mac(mac)) as i64
    }

    pub fn address(&self, address: IpAddress) -> String {
        self.key
            .as_ref()
            .map_or(address, |key| key.address(address))
            .to_string()
    }

    #[inline]
    pub fn put<'r>(&self, row: Row<'r>, name: Option<&[u8]>) -> Row<'r> {
        match name {
            Some(name) => self.name(name, |name| row.text(name)),
            None => row.null(),
        }
    }

    /// The word that represents a name in a row of words.
    #[inline]
    pub fn word(&self, name: &[u8], words: &mut Words) -> i64 {
        if self.key.is_none() && byte_text::is_plain(name) {
            return words.ascii(name);
        }
        self.name(name, |name| words.text(name))
    }

    #[inline]
    pub fn name<R>(&self, name: &[u8], with: impl FnOnce(&str) -> R) -> R {
        match &self.key {
            // `.` and `..` don't identify anything and stay as they are.
            Some(key) if leads_on(name) && !name.is_empty() => with(&key.name(name)),
            _ => with(&byte_text::from_bytes(name)),
        }
    }
}

/// Makes a report show names, addresses and ids as the tables contain them.
impl Hide for Pseudonyms {
    fn address(&self, address: IpAddress) -> IpAddress {
        self.key
            .as_ref()
            .map_or(address, |key| key.address(address))
    }

    fn file(&self, file: FileKey) -> FileKey {
        FileKey(Pseudonyms::file(self, file) as u64)
    }

    fn name(&self, name: &[u8]) -> Vec<u8> {
        Pseudonyms::name(self, name, |shown| byte_text::to_bytes(shown).into_owned())
    }

    fn sum(&self, sum: u64) -> u64 {
        Pseudonyms::sum(self, sum) as u64
    }
}
