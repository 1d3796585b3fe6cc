//! A device's description of itself: INQUIRY data, standard and vital product data (SPC-4, 6.6 and 7.8; SBC-3, 6.6),
//! REPORT LUNS, READ CAPACITY. Built by the device server; the initiator also parses `Capacity` and the standard
//! data.

use super::cdb::{be32, be64};

/// Vital product data pages.
#[allow(missing_docs)] // the standard's own names
pub mod page {
    pub const SUPPORTED: u8 = 0x00;
    pub const UNIT_SERIAL_NUMBER: u8 = 0x80;
    pub const DEVICE_IDENTIFICATION: u8 = 0x83;
    pub const THIRD_PARTY_COPY: u8 = 0x8f;
    pub const BLOCK_LIMITS: u8 = 0xb0;
    pub const BLOCK_DEVICE_CHARACTERISTICS: u8 = 0xb1;
    pub const LOGICAL_BLOCK_PROVISIONING: u8 = 0xb2;
}

/// Claimed version descriptors (SPC-4, table 144): SAM-5, SPC-4, SBC-3 and iSCSI, each without a specific revision.
const VERSIONS: [u16; 4] = [0x00a0, 0x0460, 0x04c0, 0x0960];

/// The standard INQUIRY data of a direct-access device.
#[derive(Clone, Debug)]
pub struct Standard<'a> {
    /// T10 vendor identification, 8 characters.
    pub vendor: &'a str,
    /// Product, 16 characters.
    pub product: &'a str,
    /// Revision, 4 characters.
    pub revision: &'a str,
    /// RMB.
    pub removable: bool,
    /// 3PC.
    pub third_party_copy: bool,
    /// TPGS, bits 1 and 0: who may change the access states of target port groups.
    pub tpgs: u8,
}

/// Appends `text` in ASCII, truncated or padded with spaces to `len` (SPC-4, 4.3.1).
fn push_text(out: &mut Vec<u8>, text: &str, len: usize) {
    let printable = text.bytes().filter(|byte| (0x20..0x7f).contains(byte));
    let end = out.len() + len;
    out.extend(printable.take(len));
    out.resize(end, b' ');
}

/// Standard INQUIRY data, 96 bytes.
pub fn standard(data: &Standard<'_>) -> Vec<u8> {
    // Version 6: SPC-4. HISUP, response format 2. CMDQUE.
    let mut out = vec![
        0x00,
        u8::from(data.removable) << 7,
        0x06,
        0x12,
        91,
        data.tpgs << 4 | u8::from(data.third_party_copy) << 3,
        0x00,
        0x02,
    ];
    push_text(&mut out, data.vendor, 8);
    push_text(&mut out, data.product, 16);
    push_text(&mut out, data.revision, 4);
    out.resize(58, 0);
    for version in VERSIONS {
        out.extend_from_slice(&version.to_be_bytes());
    }
    out.resize(96, 0);
    out
}

/// INQUIRY data for a LUN without a logical unit: qualifier 3, device type 1Fh.
pub fn standard_no_unit() -> Vec<u8> {
    let mut out = standard(&Standard {
        vendor: "BRUNT",
        product: "",
        revision: "",
        removable: false,
        third_party_copy: false,
        tpgs: 0,
    });
    out[0] = 0x7f;
    out
}

/// A VPD page: header and body.
pub fn vpd(code: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![0x00, code];
    out.extend_from_slice(&(body.len() as u16).to_be_bytes());
    out.extend_from_slice(body);
    out
}

/// The names in the device identification page.
#[derive(Clone, Debug)]
pub struct DeviceIdentification<'a> {
    /// T10 vendor identification.
    pub vendor: &'a str,
    /// Vendor-specific identifier: the serial number.
    pub serial: &'a str,
    /// NAA identifier, 8 bytes.
    pub naa: [u8; 8],
    /// UUID, if the unit has one.
    pub uuid: Option<[u8; 16]>,
    /// iSCSI name of the target; empty if none.
    pub target_name: &'a str,
    /// Relative target port identifier and target port group of the port that received the command.
    pub target_port: u16,
    /// Whether the target port group of the port that received the command is reported.
    pub alua: bool,
}

/// The longest iSCSI name (RFC 7143, 4.2.7.1).
const NAME_BYTES_MAX: usize = 223;

/// Body of the device identification page (SPC-4, 7.8.6; UUIDs are new in SPC-5). The unit's own names come first and
/// take less than 252 bytes, for initiators that read only 256 bytes of the page.
pub fn device_identification(identity: &DeviceIdentification<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut descriptor = |codes: u8, kind: u8, bytes: &[u8]| {
        let length = u8::try_from(bytes.len()).expect("designators are truncated to 255 bytes");
        out.extend_from_slice(&[codes, kind, 0, length]);
        out.extend_from_slice(bytes);
    };
    // The logical unit: T10 vendor ID based (ASCII), NAA (binary), UUID (binary).
    let mut t10 = Vec::new();
    push_text(&mut t10, identity.vendor, 8);
    t10.extend(
        identity
            .serial
            .bytes()
            .filter(|b| (0x20..0x7f).contains(b))
            .take(128),
    );
    descriptor(0x02, 0x01, &t10);
    descriptor(0x01, 0x03, &identity.naa);
    if let Some(uuid) = identity.uuid {
        descriptor(0x01, 0x0a, &uuid_designator(uuid));
    }
    // The target port: its relative identifier and its iSCSI name; the target device: its iSCSI name. PIV with
    // protocol 5 (iSCSI).
    let [high, low] = identity.target_port.to_be_bytes();
    descriptor(0x51, 0x94, &[0, 0, high, low]);
    if identity.alua {
        // The group that consists of this port and has the same number.
        descriptor(0x51, 0x95, &[0, 0, high, low]);
    }
    if !identity.target_name.is_empty() {
        // A designator's length field has one byte, so names are truncated to the longest iSCSI name, 223 bytes.
        let mut name = identity.target_name;
        while name.len() > NAME_BYTES_MAX {
            name = name
                .split_at(name.char_indices().next_back().map_or(0, |(at, _)| at))
                .0;
        }
        descriptor(
            0x53,
            0x98,
            &name_string(&format!("{name},t,{:#06x}", identity.target_port)),
        );
        descriptor(0x53, 0xa8, &name_string(name));
    }
    out
}

/// A UUID as a designator (SPC-5): the UUID type 1h in 4 bits, then 12 reserved bits, then the UUID.
pub fn uuid_designator(uuid: [u8; 16]) -> [u8; 18] {
    let mut designator = [0; 18];
    designator[0] = 0x10;
    designator[2..].copy_from_slice(&uuid);
    designator
}

/// UTF-8, terminated by at least one zero byte, padded to a multiple of four (SPC-4, 7.8.6.11).
fn name_string(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
    bytes
}

/// Body of the block limits page (SBC-3, 6.6.4, with SBC-4's atomic limits). All limits are in blocks.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // the standard's own names
pub struct BlockLimits {
    pub maximum_compare_and_write: u8,
    pub optimal_granularity: u16,
    pub maximum_transfer: u32,
    pub optimal_transfer: u32,
    pub maximum_unmap: u32,
    pub maximum_unmap_descriptors: u32,
    pub optimal_unmap_granularity: u32,
    pub unmap_alignment: Option<u32>,
    pub maximum_write_same: u64,
    pub maximum_atomic: u32,
    pub atomic_alignment: u32,
    pub atomic_granularity: u32,
    pub maximum_atomic_with_boundary: u32,
    pub maximum_atomic_boundary: u32,
    /// WSNZ: WRITE SAME of zero blocks is rejected.
    pub write_same_non_zero: bool,
}

impl BlockLimits {
    /// Encodes the body.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![
            u8::from(self.write_same_non_zero),
            self.maximum_compare_and_write,
        ];
        out.extend_from_slice(&self.optimal_granularity.to_be_bytes());
        let alignment = self
            .unmap_alignment
            .map_or(0, |alignment| 1 << 31 | alignment);
        for word in [
            self.maximum_transfer,
            self.optimal_transfer,
            0, // maximum prefetch: no limit
            self.maximum_unmap,
            self.maximum_unmap_descriptors,
            self.optimal_unmap_granularity,
            alignment,
        ] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(&self.maximum_write_same.to_be_bytes());
        for word in [
            self.maximum_atomic,
            self.atomic_alignment,
            self.atomic_granularity,
            self.maximum_atomic_with_boundary,
            self.maximum_atomic_boundary,
        ] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        debug_assert_eq!(out.len(), 0x3c);
        out
    }
}

/// Body of the block device characteristics page. If `erases`, SANITIZE can erase, and reads succeed afterwards
/// (WABEREQ and WACEREQ 01b).
pub fn characteristics(rotational: bool, erases: bool) -> Vec<u8> {
    // Medium rotation rate: 1 for a non-rotating medium, otherwise 7200 rpm.
    let rate: u16 = if rotational { 7200 } else { 1 };
    let mut out = rate.to_be_bytes().to_vec();
    out.extend_from_slice(&[0, if erases { 0x50 } else { 0 }]);
    out.resize(0x3c, 0);
    out
}

/// Body of the logical block provisioning page: which commands unmap, whether unmapped blocks read as zeros, and
/// whether the unit is thinly provisioned.
pub fn provisioning(thin: bool) -> Vec<u8> {
    // Thin: LBPU, LBPWS, LBPWS10, LBPRZ 001b and provisioning type 2. Otherwise, all fields are 0 ("full").
    if thin {
        vec![0, 0xe4, 0x02, 0]
    } else {
        vec![0, 0, 0, 0]
    }
}

/// The complete REPORT LUNS data.
pub fn report_luns(luns: impl Iterator<Item = [u8; 8]>) -> Vec<u8> {
    let mut out = vec![0; 8];
    for lun in luns {
        out.extend_from_slice(&lun);
    }
    let length = (out.len() - 8) as u32;
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

/// The result of READ CAPACITY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// LBA of the last block.
    pub last_lba: u64,
    /// Block size in bytes.
    pub block_bytes: u32,
    /// Base-2 logarithm of the number of logical blocks per physical block.
    pub physical_exponent: u8,
    /// LBPME.
    pub thin: bool,
    /// LBPRZ.
    pub unmapped_reads_zeros: bool,
}

impl Capacity {
    /// Encodes READ CAPACITY(10) data: all ones if the last LBA exceeds 32 bits.
    pub fn encode_10(&self) -> [u8; 8] {
        let mut out = [0; 8];
        let last = u32::try_from(self.last_lba).unwrap_or(u32::MAX);
        out[..4].copy_from_slice(&last.to_be_bytes());
        out[4..].copy_from_slice(&self.block_bytes.to_be_bytes());
        out
    }

    /// Encodes READ CAPACITY(16) data.
    pub fn encode_16(&self) -> [u8; 32] {
        let mut out = [0; 32];
        out[..8].copy_from_slice(&self.last_lba.to_be_bytes());
        out[8..12].copy_from_slice(&self.block_bytes.to_be_bytes());
        out[13] = self.physical_exponent & 0x0f;
        out[14] = u8::from(self.thin) << 7 | u8::from(self.unmapped_reads_zeros) << 6;
        out
    }

    /// Parses READ CAPACITY(16) data; `None` if it is too short.
    pub fn parse_16(bytes: &[u8]) -> Option<Capacity> {
        if bytes.len() < 12 {
            return None;
        }
        let flags = bytes.get(14).copied().unwrap_or(0);
        Some(Capacity {
            last_lba: be64(bytes, 0),
            block_bytes: be32(bytes, 8),
            physical_exponent: bytes.get(13).copied().unwrap_or(0) & 0x0f,
            thin: flags & 0x80 != 0,
            unmapped_reads_zeros: flags & 0x40 != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields are at the standard's offsets, and lengths are correct.
    #[test]
    fn fields_are_at_the_standards_offsets() {
        let data = standard(&Standard {
            vendor: "BRUNT",
            product: "memory\nlun with a name that is too long",
            revision: "1",
            removable: true,
            third_party_copy: true,
            tpgs: 0,
        });
        assert_eq!(
            (data.len(), usize::from(data[4]) + 5, data[1], data[5]),
            (96, 96, 0x80, 0x08)
        );
        assert_eq!(&data[8..36], b"BRUNT   memorylun with a1   ");
        assert_eq!(&data[58..62], &[0x00, 0xa0, 0x04, 0x60]);
        assert_eq!(standard_no_unit()[0], 0x7f);
        assert_eq!(BlockLimits::default().encode().len(), 0x3c);
        assert_eq!(
            vpd(0xb2, &provisioning(true)),
            [0, 0xb2, 0, 4, 0, 0xe4, 2, 0]
        );
        let limits = BlockLimits {
            maximum_transfer: 7,
            maximum_write_same: 9,
            maximum_atomic: 5,
            ..Default::default()
        };
        let page = vpd(0xb0, &limits.encode());
        assert_eq!(
            (be32(&page, 8), be64(&page, 36), be32(&page, 44)),
            (7, 9, 5)
        );
    }

    /// The designators fill the page exactly, and each has a length that is allowed for its type.
    #[test]
    fn designators_fill_the_page() {
        let body = device_identification(&DeviceIdentification {
            vendor: "BRUNT",
            serial: "0001",
            naa: [0x30, 0, 0, 0, 0, 0, 0, 1],
            uuid: Some([7; 16]),
            target_name: "iqn.2026-11.io.brunt:t0",
            target_port: 1,
            alua: false,
        });
        let (mut at, mut kinds) = (0, Vec::new());
        while at < body.len() {
            let length = match body[at + 1] & 0x3f {
                0x03 => 8,
                0x0a => 18,
                0x14 => 4,
                _ => body[at + 3],
            };
            assert_eq!(body[at + 3], length);
            kinds.push(body[at + 1] & 0x3f);
            at += 4 + usize::from(body[at + 3]);
        }
        assert_eq!(
            (at, kinds),
            (body.len(), vec![0x01, 0x03, 0x0a, 0x14, 0x18, 0x28])
        );
    }

    #[test]
    fn designators_of_long_names_keep_their_lengths() {
        for target_name in [
            "n".repeat(1000),
            "ü".repeat(223),
            "n".to_string() + &"ü".repeat(223),
        ] {
            let body = device_identification(&DeviceIdentification {
                vendor: "BRUNT",
                serial: &"s".repeat(1000),
                naa: [0x30, 0, 0, 0, 0, 0, 0, 1],
                uuid: Some([7; 16]),
                target_name: &target_name,
                target_port: 1,
                alua: false,
            });
            let (mut at, mut count) = (0, 0);
            while at < body.len() {
                at += 4 + usize::from(body[at + 3]);
                count += 1;
            }
            assert_eq!((at, count), (body.len(), 6), "{target_name}");
            let page = vpd(0x83, &body);
            assert_eq!(
                usize::from(u16::from_be_bytes([page[2], page[3]])),
                body.len()
            );
        }
    }

    /// A capacity survives a round trip, and short data is rejected.
    #[test]
    fn a_capacity_survives_a_round_trip() {
        let capacity = Capacity {
            last_lba: 1 << 40,
            block_bytes: 4096,
            physical_exponent: 3,
            thin: true,
            unmapped_reads_zeros: true,
        };
        let bytes = capacity.encode_16();
        assert_eq!(Capacity::parse_16(&bytes), Some(capacity));
        assert_eq!(capacity.encode_10()[..4], [0xff; 4]);
        for end in 0..bytes.len() {
            assert_eq!(Capacity::parse_16(&bytes[..end]).is_some(), end >= 12);
        }
        assert_eq!(report_luns([[0; 8], [1; 8]].into_iter())[3], 16);
    }
}
