//! The names of a logical unit in its device identification page (SPC-4, 7.8.6; UUIDs are new in SPC-5).
//!
//! The one rule: a name counts as unique only if its format contains a registered authority and the field for it is
//! filled in. Other names may also belong to a different unit on another machine.

use std::fmt::Write;

/// The names of a logical unit, which are the same over all paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitNames {
    /// Globally unique names, such as `naa.6…`.
    pub unique: Vec<String>,
    /// Names that are unique only within a vendor or machine, such as `naa.3…` or `t10.IET 00010001`.
    pub local: Vec<String>,
}

impl UnitNames {
    /// Parses the names in a page; `page` includes the header. Anything after a truncated or invalid descriptor is
    /// ignored.
    pub fn parse(page: &[u8]) -> UnitNames {
        let mut names = UnitNames::default();
        let mut rest = page.get(4..).unwrap_or_default();
        while let [_, kind, _, length, after @ ..] = rest
            && let Some(value) = after.get(..usize::from(*length))
        {
            rest = &after[usize::from(*length)..];
            names.add(*kind, value);
        }
        names
    }

    fn add(&mut self, kind: u8, value: &[u8]) {
        // ASSOCIATION 0 (the logical unit) and the designator type.
        let (name, is_unique) = match (kind & 0x3f, value.len()) {
            (0x01, 9..) => (format!("t10.{}", text(value)), false),
            (0x02, 8 | 12 | 16) => (format!("eui.{}", hex(value)), is_assigned_eui(value)),
            (0x03, 8 | 16) => (format!("naa.{}", hex(value)), is_registered_naa(value)),
            (0x0a, 18) => (format!("uuid.{}", hex(value)), !is_zero(&value[2..])),
            // The same kinds of names, as strings.
            (0x08, _) => {
                let name = text(value).to_ascii_lowercase();
                let is_unique = match name.split_once('.') {
                    Some(("naa", digits)) => {
                        bytes_of(digits).is_some_and(|b| is_registered_naa(&b))
                    }
                    Some(("eui", digits)) => bytes_of(digits).is_some_and(|b| is_assigned_eui(&b)),
                    _ => false,
                };
                (name, is_unique)
            }
            _ => return,
        };
        let names = match is_unique {
            true => &mut self.unique,
            false if is_zero(value) => return,
            false => &mut self.local,
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
}

/// Whether an NAA name (SPC-4, 7.8.6.6) has an authority: IEEE extended (2), registered (5) or registered extended (6).
/// Type 3 is assigned locally, and some bridges and emulators leave the OUI empty.
fn is_registered_naa(value: &[u8]) -> bool {
    let [first, second, third, fourth, fifth, ..] = *value else {
        return false;
    };
    match (first >> 4, value.len()) {
        // The OUI has 24 bits, after the type and 12 vendor-specific bits.
        (2, 8) => [third, fourth, fifth] != [0; 3],
        // The OUI has 24 bits, after the 4 bits of the type.
        (5, 8) | (6, 16) => [first & 0x0f, second, third] != [0; 3] || fourth >> 4 != 0,
        _ => false,
    }
}

/// Whether an EUI-64 (SPC-4, 7.8.6.5) has an OUI: in the first three bytes or, in the 16-byte format, in those after
/// the 8-byte vendor-specific extension.
fn is_assigned_eui(value: &[u8]) -> bool {
    let at = match value.len() {
        8 | 12 => 0,
        16 => 8,
        _ => return false,
    };
    !is_zero(&value[at..at + 3])
}

fn is_zero(value: &[u8]) -> bool {
    value.iter().all(|byte| *byte == 0)
}

fn hex(value: &[u8]) -> String {
    value.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Parses hexadecimal digits.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [_, _] => u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok(),
            _ => None,
        })
        .collect()
}

/// The printable ASCII characters, with single spaces between words.
fn text(value: &[u8]) -> String {
    let printable = |byte: &u8| match byte {
        0x20..0x7f => char::from(*byte),
        _ => ' ',
    };
    let text: String = value.iter().map(printable).collect();
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// The serial number in a unit serial number page that includes its header; `None` if it is blank. A serial number
/// that is longer than the data read is truncated.
pub fn serial(page: &[u8]) -> Option<String> {
    let [_, _, high, low, rest @ ..] = page else {
        return None;
    };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    let serial = text(&rest[..length.min(rest.len())]);
    (!serial.is_empty()).then_some(serial)
}

/// Describes a unit without a unique name, for comparison with other units and for display; `None` if nothing
/// identifies it. Units with equal descriptions may be the same unit, or two units on machines that use the same
/// names.
pub fn likeness(
    vendor: &str,
    product: &str,
    serial: Option<&str>,
    names: &UnitNames,
    size_bytes: u64,
) -> Option<String> {
    if !names.unique.is_empty() || serial.is_none() && names.local.is_empty() {
        return None;
    }
    let mut words = format!("{} {}", vendor.trim(), product.trim());
    if let Some(serial) = serial {
        let _ = write!(words, ", serial number {serial}");
    }
    for name in &names.local {
        let _ = write!(words, ", {name}");
    }
    let _ = write!(words, ", {size_bytes} bytes");
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(page: &[u8], unique: &[&str], local: &[&str]) {
        let names = UnitNames::parse(page);
        assert_eq!((names.unique, names.local), (owned(unique), owned(local)));
    }

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn page(descriptors: &[(u8, u8, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (codes, kind, value) in descriptors {
            body.extend([*codes, *kind, 0, value.len() as u8]);
            body.extend_from_slice(value);
        }
        super::super::inquiry::vpd(0x83, &body)
    }

    fn bytes(digits: &str) -> Vec<u8> {
        bytes_of(&digits.replace(' ', "")).unwrap()
    }

    /// Linux LIO: a registered extended NAA name with the OUI 001405, a T10 name, and port names.
    #[test]
    fn an_lio_unit_has_a_unique_and_a_local_name() {
        let page = page(&[
            (0x01, 0x03, &bytes("60014054a5b6c7d8e9f0a1b2c3d4e5f6")),
            (
                0x02,
                0x01,
                b"LIO-ORG disk:4a5b6c7d-8e9f-40a1-b2c3-d4e5f6071829\0",
            ),
            (0x51, 0x94, &[0, 0, 0, 1]),
            (0x51, 0x95, &[0, 0, 0, 0]),
            (
                0x53,
                0x98,
                b"iqn.2003-01.org.linux-iscsi.host.x8664:sn.1,t,0x0001\0\0\0\0",
            ),
        ]);
        let t10 = "t10.LIO-ORG disk:4a5b6c7d-8e9f-40a1-b2c3-d4e5f6071829";
        check(&page, &["naa.60014054a5b6c7d8e9f0a1b2c3d4e5f6"], &[t10]);
    }

    /// tgt: its names for a given LUN are the same on every machine.
    #[test]
    fn a_tgt_unit_has_only_local_names() {
        let page = bytes(
            "0083003402010024 4945542020202020 3030303130303031 0000000000000000 \
             0000000000000000 00000000 01030008 3000000100000001",
        );
        check(&page, &[], &["t10.IET 00010001", "naa.3000000100000001"]);
    }

    /// A SATA disk behind libata: its ATA serial number, a T10 name, and a registered NAA name.
    #[test]
    fn a_sata_disk_has_a_unique_and_a_local_name() {
        let serial = b"     WD-WCC4N0123456";
        let t10 = [
            &b"ATA     "[..],
            b"WDC WD40EFRX-68WT0N0                    ",
            serial,
        ]
        .concat();
        let page = page(&[
            (0x02, 0x00, serial),
            (0x02, 0x01, &t10),
            (0x01, 0x03, &bytes("50014ee2b5f0a1c3")),
        ]);
        let t10 = "t10.ATA WDC WD40EFRX-68WT0N0 WD-WCC4N0123456";
        check(&page, &["naa.50014ee2b5f0a1c3"], &[t10]);
    }

    #[test]
    fn names_without_an_authority_are_not_unique() {
        for (kind, value, name) in [
            (0x03, "5000000000000001", "naa.5000000000000001"),
            (0x03, "2123000000000001", "naa.2123000000000001"),
            (0x03, "3001405000000001", "naa.3001405000000001"),
            (0x02, "0000000000000001", "eui.0000000000000001"),
        ] {
            check(&page(&[(1, kind, &bytes(value))]), &[], &[name]);
        }
        for (kind, value, name) in [
            (0x03, "2123001405000001", "naa.2123001405000001"),
            (0x02, "0025385b71b0a1c3", "eui.0025385b71b0a1c3"),
            (
                0x0a,
                "1000000102030405060708090a0b0c0d0e0f",
                "uuid.1000000102030405060708090a0b0c0d0e0f",
            ),
        ] {
            check(&page(&[(1, kind, &bytes(value))]), &[name], &[]);
        }
        check(&page(&[(1, 0x02, &[0; 8]), (1, 0x0a, &[0; 18])]), &[], &[]);
        // The same name, as a string.
        let both = page(&[
            (1, 0x03, &bytes("50014ee2b5f0a1c3")),
            (3, 0x08, b"naa.50014EE2B5F0A1C3\0\0\0\0"),
            (3, 0x08, b"iqn.2026-11.io.brunt:t0,L,0x0\0"),
        ]);
        let iqn = "iqn.2026-11.io.brunt:t0,l,0x0";
        check(&both, &["naa.50014ee2b5f0a1c3"], &[iqn]);
    }

    /// Names of ports and targets don't belong to the unit, and a page may be truncated at any byte.
    #[test]
    fn truncated_pages_keep_their_first_names() {
        let whole = page(&[
            (1, 0x03, &bytes("50014ee2b5f0a1c3")),
            (0x61, 0x93, &bytes("50014ee2b5f0a1c4")),
            (1, 0x02, &bytes("0025385b71b0a1c3")),
        ]);
        for length in 0..=whole.len() {
            let names = UnitNames::parse(&whole[..length]);
            let expected = usize::from(length >= 16) + usize::from(length >= whole.len());
            assert_eq!(names.unique.len(), expected, "{length}");
            assert!(names.local.is_empty());
        }
    }

    #[test]
    fn serial_numbers_are_trimmed_and_blank_ones_absent() {
        let page = |body: &[u8]| super::super::inquiry::vpd(0x80, body);
        assert_eq!(serial(&page(b"  beaf11\0")).as_deref(), Some("beaf11"));
        assert_eq!(serial(&page(b"beaf11")[..7]).as_deref(), Some("bea"));
        for blank in [&page(b"    ")[..], &page(b""), b"\0\x80", b""] {
            assert_eq!(serial(blank), None);
        }
    }

    #[test]
    fn a_unit_with_a_unique_name_needs_no_likeness() {
        let local = UnitNames {
            local: vec!["t10.IET 00010001".into()],
            ..UnitNames::default()
        };
        let unique = UnitNames {
            unique: vec!["naa.50014ee2b5f0a1c3".into()],
            ..local.clone()
        };
        let of = |serial, names| likeness("IET ", "VIRTUAL-DISK", serial, names, 512);
        assert_eq!(
            of(Some("beaf11"), &local).as_deref(),
            Some("IET VIRTUAL-DISK, serial number beaf11, t10.IET 00010001, 512 bytes")
        );
        assert_eq!(of(Some("beaf11"), &unique), None);
        let none = UnitNames::default();
        assert_eq!(of(None, &none), None);
        assert!(of(None, &local).is_some());
    }
}
