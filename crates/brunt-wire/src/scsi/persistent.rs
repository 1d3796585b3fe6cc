//! Encoding of persistent reservations (SPC-4, 6.15 and 6.16) and iSCSI TransportIDs (7.6.4.6).

use super::cdb::{be16, be32, be64};
use super::sense::{Sense, key};

/// Reservation types (SPC-4, table 213).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the standard's own names
#[repr(u8)]
pub enum ReservationType {
    WriteExclusive = 1,
    ExclusiveAccess = 3,
    WriteExclusiveRegistrantsOnly = 5,
    ExclusiveAccessRegistrantsOnly = 6,
    WriteExclusiveAllRegistrants = 7,
    ExclusiveAccessAllRegistrants = 8,
}

impl ReservationType {
    /// All six types.
    pub const ALL: [ReservationType; 6] = [
        ReservationType::WriteExclusive,
        ReservationType::ExclusiveAccess,
        ReservationType::WriteExclusiveRegistrantsOnly,
        ReservationType::ExclusiveAccessRegistrantsOnly,
        ReservationType::WriteExclusiveAllRegistrants,
        ReservationType::ExclusiveAccessAllRegistrants,
    ];

    /// Converts from the code; `None` for obsolete and reserved codes.
    pub fn from_code(code: u8) -> Option<ReservationType> {
        ReservationType::ALL
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }

    /// Whether every registrant holds the reservation.
    pub fn all_registrants(self) -> bool {
        self as u8 >= 7
    }

    /// Whether registrants have the same access as the holder.
    pub fn registrants_allowed(self) -> bool {
        self as u8 >= 5
    }

    /// Whether non-registrants may read.
    pub fn reads_allowed(self) -> bool {
        matches!(self as u8, 1 | 5 | 7)
    }
}

/// Service actions of PERSISTENT RESERVE OUT.
#[allow(missing_docs)] // the standard's own names
pub mod out {
    pub const REGISTER: u8 = 0;
    pub const RESERVE: u8 = 1;
    pub const RELEASE: u8 = 2;
    pub const CLEAR: u8 = 3;
    pub const PREEMPT: u8 = 4;
    pub const PREEMPT_AND_ABORT: u8 = 5;
    pub const REGISTER_AND_IGNORE_EXISTING_KEY: u8 = 6;
    pub const REGISTER_AND_MOVE: u8 = 7;
}

/// The TransportID of an iSCSI initiator port; `name` is `iqn…,i,0x<ISID>`.
pub fn transport_id(name: &str) -> Vec<u8> {
    let mut body = name.as_bytes().to_vec();
    // Null-terminated, padded to a multiple of four bytes, at least 20 bytes.
    body.resize((body.len() + 1).next_multiple_of(4).max(20), 0);
    let mut out = vec![0x45, 0];
    out.extend_from_slice(&(body.len() as u16).to_be_bytes());
    out.append(&mut body);
    out
}

/// Maximum length of the name field: an iSCSI name of at most 223 bytes, followed by `,i,0x`, 12 digits, a zero byte
/// and padding.
const TRANSPORT_NAME_BYTES_MAX: usize = 223 + 17 + 4;

/// Parses the first TransportID in `bytes`: the initiator port's name and the TransportID's length.
/// `None` if it doesn't identify an iSCSI initiator port.
pub fn parse_transport_id(bytes: &[u8]) -> Option<(&str, usize)> {
    // Format 01b (port name) of protocol 5.
    if *bytes.first()? != 0x45 {
        return None;
    }
    let length = usize::from(be16(bytes, 2));
    if length < 20 || length % 4 != 0 || length > TRANSPORT_NAME_BYTES_MAX {
        return None;
    }
    let body = bytes.get(4..4 + length)?;
    let end = body.iter().position(|&byte| byte == 0)?;
    let name = std::str::from_utf8(&body[..end]).ok()?;
    name.contains(",i,0x").then_some((name, 4 + length))
}

/// A PERSISTENT RESERVE OUT parameter list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutList {
    /// RESERVATION KEY.
    pub key: u64,
    /// SERVICE ACTION RESERVATION KEY.
    pub service_action_key: u64,
    /// Additional initiator ports to register (SPEC_I_PT), or the port to which the reservation is to be moved.
    pub ports: Vec<String>,
    /// SPEC_I_PT.
    pub spec_i_pt: bool,
    /// ALL_TG_PT.
    pub all_tg_pt: bool,
    /// APTPL: persists through power loss.
    pub aptpl: bool,
    /// UNREG (REGISTER AND MOVE).
    pub unregister: bool,
    /// RELATIVE TARGET PORT IDENTIFIER (REGISTER AND MOVE).
    pub target_port: u16,
}

/// Maximum length of a parameter list, which limits the number of ports in it.
pub const OUT_LIST_BYTES_MAX: u32 = 16 << 10;

/// Parses a parameter list for `action`.
///
/// # Errors
/// Returns the sense data for the response.
pub fn parse_out(action: u8, list: &[u8]) -> Result<OutList, Sense> {
    let length_error = Sense::new(key::ILLEGAL_REQUEST, 0x1a, 0x00);
    let bad_field = |byte: usize| {
        Sense::new(key::ILLEGAL_REQUEST, 0x26, 0x00).with_field(false, byte as u16, None)
    };
    if list.len() < 24 {
        return Err(length_error);
    }
    let mut parsed = OutList {
        key: be64(list, 0),
        service_action_key: be64(list, 8),
        ..OutList::default()
    };
    if action == out::REGISTER_AND_MOVE {
        parsed.unregister = list[17] & 0x02 != 0;
        parsed.aptpl = list[17] & 0x01 != 0;
        parsed.target_port = be16(list, 18);
        if be32(list, 20) as usize != list.len() - 24 || list.len() < 48 {
            return Err(length_error);
        }
        let (name, used) = parse_transport_id(&list[24..]).ok_or_else(|| bad_field(24))?;
        if used != list.len() - 24 {
            return Err(length_error);
        }
        parsed.ports.push(name.to_string());
        return Ok(parsed);
    }
    parsed.spec_i_pt = list[20] & 0x08 != 0;
    parsed.all_tg_pt = list[20] & 0x04 != 0;
    parsed.aptpl = list[20] & 0x01 != 0;
    if !parsed.spec_i_pt {
        return if list.len() == 24 {
            Ok(parsed)
        } else {
            Err(length_error)
        };
    }
    if action != out::REGISTER {
        return Err(bad_field(20));
    }
    if list.len() < 28 || be32(list, 24) as usize != list.len() - 28 {
        return Err(length_error);
    }
    let mut at = 28;
    while at < list.len() {
        let (name, used) = parse_transport_id(&list[at..]).ok_or_else(|| bad_field(at))?;
        parsed.ports.push(name.to_string());
        at += used;
    }
    Ok(parsed)
}

fn counted(generation: u32, body: &[u8]) -> Vec<u8> {
    let mut out = generation.to_be_bytes().to_vec();
    out.extend_from_slice(&(body.len() as u32).to_be_bytes());
    out.extend_from_slice(body);
    out
}

/// The READ KEYS data.
pub fn read_keys(generation: u32, keys: impl Iterator<Item = u64>) -> Vec<u8> {
    counted(
        generation,
        &keys.flat_map(u64::to_be_bytes).collect::<Vec<u8>>(),
    )
}

/// The READ RESERVATION data.
pub fn read_reservation(generation: u32, held: Option<(u64, ReservationType)>) -> Vec<u8> {
    let Some((key, kind)) = held else {
        return counted(generation, &[]);
    };
    let mut body = key.to_be_bytes().to_vec();
    // Scope 0: the logical unit.
    body.extend_from_slice(&[0, 0, 0, 0, 0, kind as u8, 0, 0]);
    counted(generation, &body)
}

/// The REPORT CAPABILITIES data.
pub fn report_capabilities(aptpl_possible: bool, aptpl_active: bool) -> Vec<u8> {
    // SIP_C, ATP_C and PTPL_C, but not CRH; TMV, ALLOW COMMANDS 001b (TEST UNIT READY is always allowed), PTPL_A. The
    // type mask contains all six types.
    vec![
        0,
        8,
        0x0c | u8::from(aptpl_possible),
        0x90 | u8::from(aptpl_active),
        0xea,
        0x01,
        0,
        0,
    ]
}

/// One registration in READ FULL STATUS.
#[derive(Clone, Debug)]
pub struct FullStatus<'a> {
    /// The registrant's reservation key.
    pub key: u64,
    /// The type of the reservation that the registrant holds, if any.
    pub holder: Option<ReservationType>,
    /// ALL_TG_PT.
    pub all_target_ports: bool,
    /// The relative target port identifier.
    pub target_port: u16,
    /// The registered initiator port.
    pub initiator_port: &'a str,
}

/// The READ FULL STATUS data.
pub fn read_full_status<'a>(generation: u32, all: impl Iterator<Item = FullStatus<'a>>) -> Vec<u8> {
    let mut body = Vec::new();
    for status in all {
        body.extend_from_slice(&status.key.to_be_bytes());
        body.extend_from_slice(&[0; 4]);
        body.push(u8::from(status.all_target_ports) << 1 | u8::from(status.holder.is_some()));
        body.push(status.holder.map_or(0, |kind| kind as u8));
        body.extend_from_slice(&[0; 4]);
        body.extend_from_slice(&status.target_port.to_be_bytes());
        let id = transport_id(status.initiator_port);
        body.extend_from_slice(&(id.len() as u32).to_be_bytes());
        body.extend_from_slice(&id);
    }
    counted(generation, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: &str = "iqn.2026-11.io.brunt:host,i,0x00023d000001";

    fn register(ports: &[&str]) -> Vec<u8> {
        let mut list = vec![0; 24];
        list[7] = 1;
        list[15] = 2;
        list[20] = 0x0d;
        let ids: Vec<u8> = ports.iter().flat_map(|port| transport_id(port)).collect();
        list.extend_from_slice(&(ids.len() as u32).to_be_bytes());
        list.extend_from_slice(&ids);
        list
    }

    /// A TransportID of any length survives a round trip.
    #[test]
    fn transport_ids_survive_a_round_trip() {
        for name in ["a,i,0x1", PORT, "iqn.2026-11.io.brunt:h,i,0x00023d00000"] {
            let id = transport_id(name);
            assert_eq!(id.len() % 4, 0);
            assert_eq!(parse_transport_id(&id), Some((name, id.len())));
            for end in 0..id.len() {
                assert_eq!(parse_transport_id(&id[..end]), None);
            }
        }
        assert_eq!(parse_transport_id(&[0x05; 24]), None);
    }

    /// Lists with ports are parsed; a list truncated at any byte is a length error.
    #[test]
    fn out_lists_cut_anywhere_are_length_errors() {
        let list = register(&[PORT, PORT]);
        let parsed = parse_out(out::REGISTER, &list).unwrap();
        assert_eq!(
            (parsed.key, parsed.service_action_key, parsed.ports.len()),
            (1, 2, 2)
        );
        assert!(parsed.all_tg_pt && parsed.aptpl && parsed.spec_i_pt);
        for end in 0..list.len() {
            assert_eq!(
                parse_out(out::REGISTER, &list[..end]).unwrap_err().asc,
                0x1a,
                "cut at {end}"
            );
        }
        assert_eq!(parse_out(out::RESERVE, &list).unwrap_err().asc, 0x26);
        let mut plain = list[..24].to_vec();
        plain[20] = 0;
        assert!(parse_out(out::RESERVE, &plain).unwrap().ports.is_empty());
    }

    #[test]
    fn register_and_move_specifies_one_port() {
        let mut list = vec![0; 24];
        list[17] = 0x03;
        list[19] = 7;
        let id = transport_id(PORT);
        list[23] = id.len() as u8;
        list.extend_from_slice(&id);
        let parsed = parse_out(out::REGISTER_AND_MOVE, &list).unwrap();
        assert_eq!(
            (parsed.ports, parsed.target_port, parsed.unregister),
            (vec![PORT.to_string()], 7, true)
        );
        for end in 0..list.len() {
            assert!(parse_out(out::REGISTER_AND_MOVE, &list[..end]).is_err());
        }
    }

    #[test]
    fn replies_contain_their_own_length() {
        assert_eq!(read_keys(1, [2, 3].into_iter()).len(), 24);
        assert_eq!(read_reservation(1, None), [0, 0, 0, 1, 0, 0, 0, 0]);
        let held = read_reservation(1, Some((5, ReservationType::ExclusiveAccess)));
        assert_eq!((held.len(), held[21]), (24, 3));
        let status = FullStatus {
            key: 1,
            holder: Some(ReservationType::WriteExclusive),
            all_target_ports: false,
            target_port: 1,
            initiator_port: PORT,
        };
        let full = read_full_status(9, [status].into_iter());
        assert_eq!(be32(&full, 4) as usize, full.len() - 8);
        assert_eq!(parse_transport_id(&full[32..]).unwrap().0, PORT);
    }
}
