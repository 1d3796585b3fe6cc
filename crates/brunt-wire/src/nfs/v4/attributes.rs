//! Bitmaps, and the attribute lists that they describe (`fattr4`).
//!
//! A list begins with its length, so an operation can be skipped whatever attributes it contains. To read attributes,
//! all those in the bitmap must be parsed in order. At an unknown attribute, parsing of the list stops and
//! [`Attributes::unparsed`] records it.

use crate::nfs::FileHandle;
use crate::{Cursor, ParseError};

/// Maximum number of words in a bitmap. 87 attributes fill three words, so a bitmap of more than eight is invalid.
const BITMAP_WORDS_MAX: u32 = 8;
/// Maximum length of an attribute list: ACLs make them long, and Linux accepts up to 64 KiB.
const LIST_BYTES_MAX: u32 = 256 << 10;
const ACES_MAX: u32 = 8192;
const STRING_BYTES_MAX: u32 = 4096;
const ELEMENTS_MAX: u32 = 1024;

/// The words of a `bitmap4` that contains these numbers, in wire format, for constants.
///
/// # Panics
/// Panics if a number doesn't fit into the words.
pub const fn bitmap_words<const BYTES: usize>(numbers: &[u32]) -> [u8; BYTES] {
    let mut words = [0; BYTES];
    let mut index = 0;
    while index < numbers.len() {
        let number = numbers[index];
        // Words are big-endian: bit 0 is in the last of their four bytes.
        words[number as usize / 32 * 4 + 3 - number as usize % 32 / 8] |= 1 << (number % 8);
        index += 1;
    }
    words
}

/// `bitmap4`: a set of numbers, as bits of big-endian words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bitmap<'a>(&'a [u8]);

impl<'a> Bitmap<'a> {
    /// Parses a bitmap.
    ///
    /// # Errors
    /// The bitmap is truncated, or longer than any bitmap in use.
    #[inline]
    pub fn read(cur: &mut Cursor<'a>) -> Result<Bitmap<'a>, ParseError> {
        let words = cur.count(BITMAP_WORDS_MAX, "bitmap of more than 8 words")?;
        cur.take(words as usize * 4).map(Bitmap)
    }

    /// A set in wire format, without its length.
    ///
    /// # Panics
    /// Panics if `words` is not whole words, or is longer than any bitmap in use.
    pub const fn of(words: &'a [u8]) -> Bitmap<'a> {
        assert!(words.len().is_multiple_of(4) && words.len() <= 4 * BITMAP_WORDS_MAX as usize);
        Bitmap(words)
    }

    /// The words in wire format, without the length.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Whether `number` is in the set.
    #[inline]
    pub fn has(&self, number: u32) -> bool {
        let word = self
            .0
            .get(number as usize / 32 * 4..)
            .and_then(|rest| rest.first_chunk::<4>());
        word.is_some_and(|word| u32::from_be_bytes(*word) >> (number % 32) & 1 == 1)
    }

    /// The numbers in the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        let words = self.0.as_chunks::<4>().0;
        words.iter().zip(0u32..).flat_map(|(word, index)| {
            let mut left = u32::from_be_bytes(*word);
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.wrapping_sub(1);
                (bit < 32).then_some(index * 32 + bit)
            })
        })
    }
}

/// `nfstime4`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NfsTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nseconds: u32,
}

impl NfsTime {
    #[inline]
    pub(super) fn read(cur: &mut Cursor<'_>) -> Result<NfsTime, ParseError> {
        Ok(NfsTime {
            seconds: cur.u64()? as i64,
            nseconds: cur.u32()?,
        })
    }
}

/// `settime4`: a new value for a time attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's time.
    ServerTime,
    /// This time.
    ClientTime(NfsTime),
}

impl SetTime {
    fn read(cur: &mut Cursor<'_>) -> Result<SetTime, ParseError> {
        Ok(if cur.u32()? == 1 {
            SetTime::ClientTime(NfsTime::read(cur)?)
        } else {
            SetTime::ServerTime
        })
    }
}

/// `fattr4` in wire format: a bitmap of attributes and their values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileAttributes<'a> {
    /// The attributes present.
    pub mask: Bitmap<'a>,
    /// The attribute values, concatenated in wire format.
    pub values: &'a [u8],
}

/// The parsed attributes; `None` for those not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the RFCs' own names
pub struct Attributes<'a> {
    pub kind: Option<u32>,
    pub change: Option<u64>,
    pub size: Option<u64>,
    pub fsid: Option<[u64; 2]>,
    /// Why this directory entry has no attributes.
    pub rdattr_error: Option<u32>,
    pub handle: Option<FileHandle<'a>>,
    pub fileid: Option<u64>,
    pub mode: Option<u32>,
    pub numlinks: Option<u32>,
    pub owner: Option<&'a [u8]>,
    pub owner_group: Option<&'a [u8]>,
    pub rawdev: Option<[u32; 2]>,
    pub space_used: Option<u64>,
    pub time_access: Option<NfsTime>,
    pub time_access_set: Option<SetTime>,
    pub time_metadata: Option<NfsTime>,
    pub time_modify: Option<NfsTime>,
    pub time_modify_set: Option<SetTime>,
    pub mounted_on_fileid: Option<u64>,
    /// The first unknown or damaged attribute; it and all later ones were not parsed.
    pub unparsed: Option<u32>,
}

impl<'a> FileAttributes<'a> {
    /// Parses the bitmap and the length of the list; [`FileAttributes::parse`] parses the values.
    ///
    /// # Errors
    /// The bitmap or the list is truncated or too long.
    #[inline]
    pub fn read(cur: &mut Cursor<'a>) -> Result<FileAttributes<'a>, ParseError> {
        let mask = Bitmap::read(cur)?;
        let values = cur.opaque(LIST_BYTES_MAX, "attribute list longer than 256 KiB")?;
        Ok(FileAttributes { mask, values })
    }

    /// Parses the values.
    pub fn parse(&self) -> Attributes<'a> {
        let mut found = Attributes::default();
        let mut cur = Cursor::new(self.values);
        for number in self.mask.iter() {
            if found.take(number, &mut cur).is_none() {
                found.unparsed = Some(number);
                return found;
            }
        }
        found
    }

    /// Where the value of an attribute begins; `None` if it is not present, or comes after one that is unknown or
    /// damaged. Used for the few attributes that [`Attributes`] doesn't contain.
    pub fn find(&self, wanted: u32) -> Option<Cursor<'a>> {
        let mut cur = Cursor::new(self.values);
        for number in self.mask.iter() {
            if number == wanted {
                return Some(cur);
            }
            Attributes::default().take(number, &mut cur)?;
        }
        None
    }
}

impl<'a> Attributes<'a> {
    /// Parses one attribute; `None` if it is unknown or damaged.
    fn take(&mut self, number: u32, cur: &mut Cursor<'a>) -> Option<()> {
        match number {
            1 => self.kind = Some(cur.u32().ok()?),
            3 => self.change = Some(cur.u64().ok()?),
            4 => self.size = Some(cur.u64().ok()?),
            8 => self.fsid = Some([cur.u64().ok()?, cur.u64().ok()?]),
            11 => self.rdattr_error = Some(cur.u32().ok()?),
            19 => self.handle = Some(super::fields::handle(cur).ok()?),
            20 => self.fileid = Some(cur.u64().ok()?),
            33 => self.mode = Some(cur.u32().ok()?),
            35 => self.numlinks = Some(cur.u32().ok()?),
            36 => self.owner = Some(string(cur).ok()?),
            37 => self.owner_group = Some(string(cur).ok()?),
            41 => self.rawdev = Some([cur.u32().ok()?, cur.u32().ok()?]),
            45 => self.space_used = Some(cur.u64().ok()?),
            47 => self.time_access = Some(NfsTime::read(cur).ok()?),
            48 => self.time_access_set = Some(SetTime::read(cur).ok()?),
            52 => self.time_metadata = Some(NfsTime::read(cur).ok()?),
            53 => self.time_modify = Some(NfsTime::read(cur).ok()?),
            54 => self.time_modify_set = Some(SetTime::read(cur).ok()?),
            55 => self.mounted_on_fileid = Some(cur.u64().ok()?),
            other => skip(other, cur).ok().filter(|known| *known).map(|_| ())?,
        }
        Some(())
    }
}

fn string<'a>(cur: &mut Cursor<'a>) -> Result<&'a [u8], ParseError> {
    cur.opaque(STRING_BYTES_MAX, "string longer than 4096 bytes")
}

/// Skips an attribute that isn't needed; `false` if it is unknown.
fn skip(number: u32, cur: &mut Cursor<'_>) -> Result<bool, ParseError> {
    match number {
        // supported_attrs, suppattr_exclcreat
        0 | 75 => drop(Bitmap::read(cur)?),
        // Booleans and 32-bit numbers: fh_expire_type, lease_time, aclsupport, maxlink, ...
        2
        | 5..=7
        | 9..=10
        | 13..=18
        | 25..=26
        | 28..=29
        | 34
        | 46
        | 65..=66
        | 76..=77
        | 79
        | 82..=83 => {
            cur.skip(4)?;
        }
        // 64-bit numbers: counts of files and bytes, maxread, maxwrite, quotas, space, retention_hold
        21..=23 | 27 | 30..=31 | 38..=40 | 42..=44 | 73 | 78 => cur.skip(8)?,
        12 => aces(cur)?,
        24 => locations(cur)?,
        32 => drop(string(cur)?),
        // Times: backup, create, delta, directory notification delays, times of delegations
        49..=51 | 56..=57 | 84..=85 => cur.skip(12)?,
        // dacl and sacl: flags before the entries
        58..=59 => {
            cur.skip(4)?;
            aces(cur)?;
        }
        60 => cur.skip(16)?,
        61..=64 | 68 => pnfs(number, cur)?,
        // retention_get, retentevt_get: a duration and at most one time; retention_set, retentevt_set: a boolean and
        // at most one duration
        69 | 71 => {
            cur.skip(8)?;
            let times = cur.count(1, "more than one time")?;
            cur.skip(times as usize * 12)?;
        }
        70 | 72 => {
            cur.skip(4)?;
            let durations = cur.count(1, "more than one duration")?;
            cur.skip(durations as usize * 8)?;
        }
        74 | 81 => cur.skip(8)?,
        80 => {
            cur.skip(8)?;
            cur.opaque(LIST_BYTES_MAX, "label longer than 256 KiB")?;
        }
        86 => {
            for _ in 0..5 {
                Bitmap::read(cur)?;
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Skips a pNFS attribute: fs_status, fs_layout_type, layout_hint, layout_type, mdsthreshold.
fn pnfs(number: u32, cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    match number {
        61 => {
            cur.skip(8)?;
            string(cur)?;
            string(cur)?;
            cur.skip(4 + 12)
        }
        63 => {
            cur.skip(4)?;
            cur.opaque(LIST_BYTES_MAX, "layout hint longer than 256 KiB")
                .map(|_| ())
        }
        68 => {
            for _ in 0..cur.count(ELEMENTS_MAX, "more than 1024 threshold hints")? {
                cur.skip(4)?;
                Bitmap::read(cur)?;
                cur.opaque(LIST_BYTES_MAX, "hint longer than 256 KiB")?;
            }
            Ok(())
        }
        _ => {
            let count = cur.count(ELEMENTS_MAX, "more than 1024 layout types")?;
            cur.skip(count as usize * 4)
        }
    }
}

fn aces(cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    for _ in 0..cur.count(ACES_MAX, "ACL of more than 8192 entries")? {
        ace(cur)?;
    }
    Ok(())
}

/// `nfsace4`: type, flags, mask, who.
pub(super) fn ace(cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    cur.skip(12)?;
    string(cur).map(|_| ())
}

fn strings(cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    for _ in 0..cur.count(ELEMENTS_MAX, "list of more than 1024 strings")? {
        string(cur)?;
    }
    Ok(())
}

/// `fs_locations4`: a path, then a list of locations, each with servers and a path.
fn locations(cur: &mut Cursor<'_>) -> Result<(), ParseError> {
    strings(cur)?;
    for _ in 0..cur.count(ELEMENTS_MAX, "list of more than 1024 locations")? {
        strings(cur)?;
        strings(cur)?;
    }
    Ok(())
}
