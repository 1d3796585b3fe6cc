//! Mode pages for caching, control and informational exceptions (SPC-4, 7.5; SBC-3, 6.5), and the MODE SENSE and MODE
//! SELECT parameter lists that contain them.

use super::cdb::{be16, be32};
use super::sense::{Sense, key};

/// The settings that MODE SELECT can change; the other values in the pages are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSettings {
    /// WCE: a write may complete before it is on stable storage.
    pub write_cache: bool,
    /// SWP: the application client requested write protection.
    pub software_write_protect: bool,
    /// D_SENSE: sense data is returned in descriptor format.
    pub descriptor_sense: bool,
}

/// The page control field of MODE SENSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageControl {
    /// The current values.
    Current,
    /// A mask of the bits that MODE SELECT may change.
    Changeable,
    /// The values after power on.
    Default,
}

const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const EXCEPTIONS: u8 = 0x1c;
/// The page code that stands for all pages.
pub const ALL_PAGES: u8 = 0x3f;
const PAGES: [u8; 3] = [CACHING, CONTROL, EXCEPTIONS];

fn push_page(out: &mut Vec<u8>, code: u8, settings: &ModeSettings, changeable: bool) {
    let start = out.len();
    let length = if code == CACHING { 0x12 } else { 0x0a };
    out.extend_from_slice(&[code, length]);
    out.resize(start + 2 + usize::from(length), 0);
    let page = &mut out[start..];
    assert!(PAGES.contains(&code), "only supported pages are written");
    match code {
        CACHING => {
            page[2] = if changeable || settings.write_cache {
                0x04
            } else {
                0
            }
        }
        CONTROL => {
            page[2] = if changeable || settings.descriptor_sense {
                0x04
            } else {
                0
            };
            page[4] = if changeable || settings.software_write_protect {
                0x08
            } else {
                0
            };
            if !changeable {
                // Queue algorithm modifier 1: commands may be reordered. GLTSD: there are no log
                // pages.
                page[2] |= 0x02;
                page[3] = 0x10;
            }
        }
        // DEXCPT: no exceptions are reported, because none can be predicted.
        _ => page[2] = if changeable { 0 } else { 0x08 },
    }
}

/// The pages for `code` and `subpage`; `None` if the page doesn't exist.
pub fn pages(
    code: u8,
    subpage: u8,
    settings: &ModeSettings,
    control: PageControl,
) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let changeable = control == PageControl::Changeable;
    match (code, subpage) {
        (ALL_PAGES, 0x00 | 0xff) => {
            for code in PAGES {
                push_page(&mut out, code, settings, changeable);
            }
        }
        (code, 0x00) if PAGES.contains(&code) => push_page(&mut out, code, settings, changeable),
        _ => return None,
    }
    Some(out)
}

/// The form of the block descriptor in MODE SENSE data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// No descriptor, because DBD was set.
    None,
    /// 8 bytes.
    Short,
    /// 16 bytes (LLBAA).
    Long,
}

/// The complete MODE SENSE data. `specific` is the device-specific parameter byte.
pub fn sense_list(
    ten: bool,
    specific: u8,
    descriptor: Descriptor,
    blocks: u64,
    block_bytes: u32,
    pages: &[u8],
) -> Vec<u8> {
    let mut body = Vec::new();
    match descriptor {
        Descriptor::None => {}
        Descriptor::Short => {
            body.extend_from_slice(&u32::try_from(blocks).unwrap_or(u32::MAX).to_be_bytes());
            body.extend_from_slice(&(block_bytes & 0x00ff_ffff).to_be_bytes());
        }
        Descriptor::Long => {
            body.extend_from_slice(&blocks.to_be_bytes());
            body.extend_from_slice(&[0; 4]);
            body.extend_from_slice(&block_bytes.to_be_bytes());
        }
    }
    let descriptor_bytes = body.len() as u8;
    body.extend_from_slice(pages);
    let mut out = if ten {
        let length = (body.len() + 6) as u16;
        let [high, low] = length.to_be_bytes();
        let long = u8::from(descriptor == Descriptor::Long);
        vec![high, low, 0, specific, long, 0, 0, descriptor_bytes]
    } else {
        vec![(body.len() + 3) as u8, 0, specific, descriptor_bytes]
    };
    out.extend_from_slice(&body);
    out
}

const fn list_length_error() -> Sense {
    Sense::new(key::ILLEGAL_REQUEST, 0x1a, 0x00)
}

fn bad_field(byte: usize) -> Sense {
    Sense::new(key::ILLEGAL_REQUEST, 0x26, 0x00).with_field(false, byte as u16, None)
}

/// Parses a MODE SELECT parameter list and returns the new settings.
///
/// # Errors
/// Returns the sense data for the response; in that case, nothing has changed.
pub fn parse_select(
    ten: bool,
    list: &[u8],
    now: &ModeSettings,
    blocks: u64,
    block_bytes: u32,
) -> Result<ModeSettings, Sense> {
    let mut settings = *now;
    if list.is_empty() {
        return Ok(settings);
    }
    let header = if ten { 8 } else { 4 };
    if list.len() < header {
        return Err(list_length_error());
    }
    // In MODE SELECT, the mode data length is reserved, and the device-specific byte is ignored, because its write
    // protect bit cannot be changed; the medium type must be the one that MODE SENSE returned.
    let medium_type_at = if ten { 2 } else { 1 };
    if list[medium_type_at] != 0 {
        return Err(bad_field(medium_type_at));
    }
    let long = ten && list[4] & 1 != 0;
    let descriptor_bytes = if ten {
        usize::from(be16(list, 6))
    } else {
        usize::from(list[3])
    };
    if descriptor_bytes != 0 {
        if descriptor_bytes != if long { 16 } else { 8 } {
            return Err(bad_field(header - 1));
        }
        let Some(descriptor) = list.get(header..header + descriptor_bytes) else {
            return Err(list_length_error());
        };
        check_descriptor(descriptor, long, header, blocks, block_bytes)?;
    }
    let mut at = header + descriptor_bytes;
    while at < list.len() {
        let (code, page) = selected_page(list, at, now)?;
        match code {
            CACHING => settings.write_cache = page[2] & 0x04 != 0,
            CONTROL => {
                settings.descriptor_sense = page[2] & 0x04 != 0;
                settings.software_write_protect = page[4] & 0x08 != 0;
            }
            _ => {}
        }
        at += page.len();
    }
    Ok(settings)
}

/// Checks the page at `at` and returns its code and bytes; its unchangeable bits must have the values that MODE SENSE
/// returns.
fn selected_page<'a>(
    list: &'a [u8],
    at: usize,
    now: &ModeSettings,
) -> Result<(u8, &'a [u8]), Sense> {
    let page = &list[at..];
    // PS is reserved in MODE SELECT, and no page has subpages.
    let code = page[0] & 0x3f;
    if page[0] & 0x40 != 0 || !PAGES.contains(&code) {
        return Err(bad_field(at));
    }
    let (mut current, mut changeable) = (Vec::new(), Vec::new());
    push_page(&mut current, code, now, false);
    push_page(&mut changeable, code, now, true);
    if page.len() < 2 {
        return Err(list_length_error());
    }
    if page[1] != current[1] {
        return Err(bad_field(at + 1));
    }
    let Some(page) = page.get(..current.len()) else {
        return Err(list_length_error());
    };
    for i in 2..page.len() {
        if (page[i] ^ current[i]) & !changeable[i] != 0 {
            return Err(bad_field(at + i));
        }
    }
    Ok((code, page))
}

/// Checks that the block descriptor at `at` matches the medium, which cannot be reformatted.
fn check_descriptor(
    descriptor: &[u8],
    long: bool,
    at: usize,
    blocks: u64,
    block_bytes: u32,
) -> Result<(), Sense> {
    let (count, size, all_ones) = if long {
        (
            super::cdb::be64(descriptor, 0),
            be32(descriptor, 12),
            u64::MAX,
        )
    } else {
        (
            u64::from(be32(descriptor, 0)),
            be32(descriptor, 4) & 0x00ff_ffff,
            u64::from(u32::MAX),
        )
    };
    // The number of blocks must not change; zero or all ones mean "unchanged". The block length must be the current
    // one.
    if count != 0 && count != all_ones && count != blocks {
        return Err(bad_field(at));
    }
    if size != block_bytes {
        return Err(bad_field(at + if long { 12 } else { 5 }));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: ModeSettings = ModeSettings {
        write_cache: false,
        software_write_protect: false,
        descriptor_sense: false,
    };

    fn list(ten: bool, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let pages = pages(ALL_PAGES, 0, &NOW, PageControl::Current).unwrap();
        let mut list = sense_list(ten, 0x10, Descriptor::Short, 1000, 512, &pages);
        change(&mut list);
        list
    }

    /// MODE SELECT accepts what MODE SENSE returns, and changeable bits take effect.
    #[test]
    fn mode_sense_data_is_accepted_by_mode_select() {
        for ten in [false, true] {
            let at = if ten { 16 } else { 12 };
            assert_eq!(
                parse_select(ten, &list(ten, |_| ()), &NOW, 1000, 512),
                Ok(NOW)
            );
            let changed = list(ten, |l| {
                l[at + 2] |= 0x04;
                l[at + 20 + 4] |= 0x08;
                l[at + 20 + 2] |= 0x04;
            });
            let every = ModeSettings {
                write_cache: true,
                software_write_protect: true,
                descriptor_sense: true,
            };
            assert_eq!(parse_select(ten, &changed, &NOW, 1000, 512), Ok(every));
            // GLTSD and the block length are not changeable, and page 3F cannot be selected.
            for (byte, flip) in [(at + 22, 0x02), (at - 1, 0x01), (at, 0x37), (at + 1, 1)] {
                let wrong = list(ten, |l| l[byte] ^= flip);
                let sense = parse_select(ten, &wrong, &NOW, 1000, 512).unwrap_err();
                assert_eq!(
                    (sense.key, sense.asc),
                    (key::ILLEGAL_REQUEST, 0x26),
                    "byte {byte}"
                );
            }
        }
    }

    /// A list truncated at any byte is a length error or ends after complete pages, and never causes a panic.
    #[test]
    fn a_list_cut_anywhere_never_panics() {
        for ten in [false, true] {
            let list = list(ten, |_| ());
            for end in 0..list.len() {
                if let Err(sense) = parse_select(ten, &list[..end], &NOW, 1000, 512) {
                    assert_eq!((sense.asc, sense.ascq), (0x1a, 0), "cut at {end}");
                }
            }
        }
    }

    /// The changeable bits are those that MODE SELECT accepts; unknown pages are rejected.
    #[test]
    fn changeable_bits_are_those_that_mode_select_accepts() {
        let changeable = pages(CACHING, 0, &NOW, PageControl::Changeable).unwrap();
        assert_eq!((changeable.len(), changeable[2]), (20, 0x04));
        assert_eq!(pages(0x01, 0, &NOW, PageControl::Current), None);
        assert_eq!(pages(CACHING, 1, &NOW, PageControl::Current), None);
        assert_eq!(
            pages(ALL_PAGES, 0xff, &NOW, PageControl::Default)
                .unwrap()
                .len(),
            20 + 12 + 12
        );
    }
}
