//! The 48-byte header of every PDU, with a struct for each opcode (RFC 7143, section 11). A struct *is* its bytes
//! (`zerocopy`): parsing is a cast, encoding is [`zerocopy::IntoBytes`]. A view of 48 bytes never fails; callers
//! validate the fields.

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a basic header segment.
pub const BHS_BYTES: usize = 48;
/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 4;
/// The tag that means "no task" (RFC 7143, 11.2.1.8).
pub const RESERVED_TAG: u32 = 0xffff_ffff;
/// The largest value of the 24-bit data segment length.
pub const DATA_SEGMENT_BYTES_MAX: u32 = 0x00ff_ffff;

/// A 24-bit length, big-endian.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct U24([u8; 3]);

impl U24 {
    /// # Panics
    /// Panics if `value` does not fit in 24 bits, which is a bug in the caller.
    #[inline]
    pub fn new(value: u32) -> U24 {
        assert!(
            value <= DATA_SEGMENT_BYTES_MAX,
            "data segment of {value} bytes does not fit in 24 bits"
        );
        let b = value.to_be_bytes();
        U24([b[1], b[2], b[3]])
    }

    /// The value.
    #[inline]
    pub fn get(self) -> u32 {
        u32::from_be_bytes([0, self.0[0], self.0[1], self.0[2]])
    }
}

/// The kind of a PDU (RFC 7143, 11.2.1.2), without the immediate bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the RFC's own names
pub enum Opcode {
    NopOut,
    ScsiCommand,
    TaskManagementRequest,
    LoginRequest,
    TextRequest,
    DataOut,
    LogoutRequest,
    SnackRequest,
    NopIn,
    ScsiResponse,
    TaskManagementResponse,
    LoginResponse,
    TextResponse,
    DataIn,
    LogoutResponse,
    R2t,
    AsyncMessage,
    Reject,
    /// Reserved or vendor-specific.
    Other(u8),
}

impl Opcode {
    /// The opcode in the low six bits of byte 0.
    pub const fn from_byte(byte: u8) -> Opcode {
        match byte & 0x3f {
            0x00 => Opcode::NopOut,
            0x01 => Opcode::ScsiCommand,
            0x02 => Opcode::TaskManagementRequest,
            0x03 => Opcode::LoginRequest,
            0x04 => Opcode::TextRequest,
            0x05 => Opcode::DataOut,
            0x06 => Opcode::LogoutRequest,
            0x10 => Opcode::SnackRequest,
            0x20 => Opcode::NopIn,
            0x21 => Opcode::ScsiResponse,
            0x22 => Opcode::TaskManagementResponse,
            0x23 => Opcode::LoginResponse,
            0x24 => Opcode::TextResponse,
            0x25 => Opcode::DataIn,
            0x26 => Opcode::LogoutResponse,
            0x31 => Opcode::R2t,
            0x32 => Opcode::AsyncMessage,
            0x3f => Opcode::Reject,
            other => Opcode::Other(other),
        }
    }

    /// The opcode as the low six bits of byte 0.
    pub const fn to_byte(self) -> u8 {
        match self {
            Opcode::NopOut => 0x00,
            Opcode::ScsiCommand => 0x01,
            Opcode::TaskManagementRequest => 0x02,
            Opcode::LoginRequest => 0x03,
            Opcode::TextRequest => 0x04,
            Opcode::DataOut => 0x05,
            Opcode::LogoutRequest => 0x06,
            Opcode::SnackRequest => 0x10,
            Opcode::NopIn => 0x20,
            Opcode::ScsiResponse => 0x21,
            Opcode::TaskManagementResponse => 0x22,
            Opcode::LoginResponse => 0x23,
            Opcode::TextResponse => 0x24,
            Opcode::DataIn => 0x25,
            Opcode::LogoutResponse => 0x26,
            Opcode::R2t => 0x31,
            Opcode::AsyncMessage => 0x32,
            Opcode::Reject => 0x3f,
            Opcode::Other(byte) => byte,
        }
    }
}

/// Declares the structs with derives, `opcode` with the immediate bit, and conversions from and to [`Bhs`].
macro_rules! pdus {
    ($( $(#[$doc:meta])* $name:ident = $opcode:ident { $( $(#[$fdoc:meta])* $field:ident: $type:ty ),* $(,)? } )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
        #[repr(C)]
        #[allow(missing_docs)] // the RFC's own names, explained there
        pub struct $name { $( $(#[$fdoc])* pub $field: $type ),* }

        impl Default for $name {
            /// All zero except the opcode.
            fn default() -> $name {
                let mut pdu = $name::new_zeroed();
                pdu.as_mut_bytes()[0] = Opcode::$opcode.to_byte();
                pdu
            }
        }

        impl $name {
            /// The 48 bytes of a header as this PDU.
            #[inline]
            pub fn view(bhs: &Bhs) -> &$name {
                zerocopy::transmute_ref!(bhs)
            }

            /// The 48 bytes of this PDU as a bare header.
            #[inline]
            pub fn bhs(&self) -> &Bhs {
                zerocopy::transmute_ref!(self)
            }
        }

        impl From<$name> for Bhs {
            fn from(pdu: $name) -> Bhs {
                zerocopy::transmute!(pdu)
            }
        }
    )*};
}

/// The fields that all PDUs share (RFC 7143, 11.2.1).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs)] // the RFC's own names
pub struct Bhs {
    pub opcode: u8,
    pub flags: u8,
    pub specific: [u8; 2],
    /// Length of the additional header segments in four-byte words.
    pub total_ahs_length: u8,
    /// Length of the data segment in bytes, without padding.
    pub data_segment_length: U24,
    pub lun: [u8; 8],
    pub initiator_task_tag: U32,
    pub rest: [u8; 28],
}

/// The final bit of byte 1 in most PDUs: the last PDU of a sequence.
pub const FLAG_FINAL: u8 = 0x80;
/// Byte 0: this command is immediate (RFC 7143, 11.2.1.1).
pub const OPCODE_IMMEDIATE: u8 = 0x40;

impl Bhs {
    /// The header at the start of `bytes`; `None` if there are fewer than 48 bytes.
    #[inline]
    pub fn peek(bytes: &[u8]) -> Option<&Bhs> {
        Bhs::ref_from_prefix(bytes).ok().map(|(bhs, _)| bhs)
    }

    /// The opcode.
    #[inline]
    pub fn kind(&self) -> Opcode {
        Opcode::from_byte(self.opcode)
    }

    /// Whether the immediate bit is set.
    #[inline]
    pub fn is_immediate(&self) -> bool {
        self.opcode & OPCODE_IMMEDIATE != 0
    }

    /// Whether the final bit is set.
    #[inline]
    pub fn is_final(&self) -> bool {
        self.flags & FLAG_FINAL != 0
    }

    /// Length of the additional header segments in bytes.
    #[inline]
    pub fn ahs_len(&self) -> usize {
        usize::from(self.total_ahs_length) * 4
    }

    /// Length of the data segment in bytes, without padding.
    #[inline]
    pub fn data_len(&self) -> usize {
        self.data_segment_length.get() as usize
    }

    /// Offset of the data segment from the start of the PDU: after header, AHS and header digest.
    #[inline]
    pub fn data_offset(&self, header_digest: bool) -> usize {
        BHS_BYTES + self.ahs_len() + if header_digest { DIGEST_BYTES } else { 0 }
    }

    /// Length of the whole PDU on the wire in bytes, including padding and digests. Without data, there is no data
    /// digest (RFC 7143, 11.2.3).
    #[inline]
    pub fn total_len(&self, header_digest: bool, data_digest: bool) -> usize {
        let data = self.data_len();
        self.data_offset(header_digest)
            + padded(data)
            + if data_digest && data > 0 {
                DIGEST_BYTES
            } else {
                0
            }
    }
}

/// `len` rounded up to four bytes.
#[inline]
pub const fn padded(len: usize) -> usize {
    (len + 3) & !3
}

pdus! {
    /// SCSI Command (RFC 7143, 11.3).
    ScsiCommand = ScsiCommand {
        opcode: u8, flags: u8, reserved: [u8; 2], total_ahs_length: u8, data_segment_length: U24,
        lun: [u8; 8], initiator_task_tag: U32, expected_data_transfer_length: U32,
        cmd_sn: U32, exp_stat_sn: U32, cdb: [u8; 16],
    }
    /// SCSI Response (11.4).
    ScsiResponse = ScsiResponse {
        opcode: u8, flags: u8, response: u8, status: u8, total_ahs_length: u8, data_segment_length: U24,
        reserved: [u8; 8], initiator_task_tag: U32, snack_tag: U32,
        stat_sn: U32, exp_cmd_sn: U32, max_cmd_sn: U32, exp_data_sn: U32,
        bidirectional_read_residual_count: U32, residual_count: U32,
    }
    /// Task Management Function Request (11.5).
    TaskManagementRequest = TaskManagementRequest {
        opcode: u8, function: u8, reserved: [u8; 2], total_ahs_length: u8, data_segment_length: U24,
        lun: [u8; 8], initiator_task_tag: U32, referenced_task_tag: U32,
        cmd_sn: U32, exp_stat_sn: U32, ref_cmd_sn: U32, exp_data_sn: U32, reserved2: [u8; 8],
    }
    /// Task Management Function Response (11.6).
    TaskManagementResponse = TaskManagementResponse {
        opcode: u8, flags: u8, response: u8, reserved: u8, total_ahs_length: u8, data_segment_length: U24,
        reserved2: [u8; 8], initiator_task_tag: U32, reserved3: [u8; 4],
        stat_sn: U32, exp_cmd_sn: U32, max_cmd_sn: U32, reserved4: [u8; 12],
    }
    /// SCSI Data-Out (11.7).
    DataOut = DataOut {
        opcode: u8, flags: u8, reserved: [u8; 2], total_ahs_length: u8, data_segment_length: U24,
        lun: [u8; 8], initiator_task_tag: U32, target_transfer_tag: U32,
        reserved2: [u8; 4], exp_stat_sn: U32, reserved3: [u8; 4],
        data_sn: U32, buffer_offset: U32, reserved4: [u8; 4],
    }
    /// SCSI Data-In (11.7).
    DataIn = DataIn {
        opcode: u8, flags: u8, reserved: u8, status: u8, total_ahs_length: u8, data_segment_length: U24,
        lun: [u8; 8], initiator_task_tag: U32, target_transfer_tag: U32,
        stat_sn: U32, exp_cmd_sn: U32, max_cmd_sn: U32,
        data_sn: U32, buffer_offset: U32, residual_count: U32,
    }
    /// Ready To Transfer (11.8).
    R2t = R2t {
        opcode: u8, flags: u8, reserved: [u8; 2], total_ahs_length: u8, data_segment_length: U24,
        lun: [u8; 8], initiator_task_tag: U32, target_transfer_tag: U32,
        stat_sn: U32, exp_cmd_sn: U32, max_cmd_sn: U32,
        r2t_sn: U32, buffer_offset: U32, desired_data_transfer_length: U32,
    }
    /// Asynchronous Message (11.9).
    AsyncMessage = AsyncMessage {
        opcode: u8, flags: u8, reserved: [u8; 2], total_ahs_length: u8, data_segment_length: U24,
        lun: [u8; 8], initiator_task_tag: U32, reserved2: [u8; 4],
        stat_sn: U32, exp_cmd_sn: U32, max_cmd_sn: U32,
        async_event: u8, async_v_code: u8, parameter1: U16, parameter2: U16, parameter3: U16, reserved3: [u8; 4],
    }
    /// Text Request (11.10).
    TextRequest = TextRequest {
        opcode: u8, flags: u8, reserved: [u8; 2], total_ahs_length: u8, data_segment_length: U24,
        lun: [u8; 8], initiator_task_tag: U32, target_transfer_tag: U32,
        cmd_sn: U32, exp_stat_sn: U32, reserved2: [u8; 16],
    }
    /// Text Response (11.11).
    TextResponse = TextResponse {
        opcode: u8, flags: u8, reserved: [u8; 2], total_ahs_length: u8, data_segment_length: U24,
        lun: [u8; 8], initiator_task_tag: U32, target_transfer_tag: U32,
        stat_sn: U32, exp_cmd_sn: U32, max_cmd_sn: U32, reserved2: [u8; 12],
    }
    /// Login Request (11.12).
    LoginRequest = LoginRequest {
        opcode: u8, flags: u8, version_max: u8, version_min: u8, total_ahs_length: u8, data_segment_length: U24,
        isid: [u8; 6], tsih: U16, initiator_task_tag: U32, cid: U16, reserved: [u8; 2],
        cmd_sn: U32, exp_stat_sn: U32, reserved2: [u8; 16],
    }
    /// Login Response (11.13).
    LoginResponse = LoginResponse {
        opcode: u8, flags: u8, version_max: u8, version_active: u8, total_ahs_length: u8, data_segment_length: U24,
        isid: [u8; 6], tsih: U16, initiator_task_tag: U32, reserved: [u8; 4],
        stat_sn: U32, exp_cmd_sn: U32, max_cmd_sn: U32,
        status_class: u8, status_detail: u8, reserved2: [u8; 10],
    }
    /// Logout Request (11.14).
    LogoutRequest = LogoutRequest {
        opcode: u8, reason: u8, reserved: [u8; 2], total_ahs_length: u8, data_segment_length: U24,
        reserved2: [u8; 8], initiator_task_tag: U32, cid: U16, reserved3: [u8; 2],
        cmd_sn: U32, exp_stat_sn: U32, reserved4: [u8; 16],
    }
    /// Logout Response (11.15).
    LogoutResponse = LogoutResponse {
        opcode: u8, flags: u8, response: u8, reserved: u8, total_ahs_length: u8, data_segment_length: U24,
        reserved2: [u8; 8], initiator_task_tag: U32, reserved3: [u8; 4],
        stat_sn: U32, exp_cmd_sn: U32, max_cmd_sn: U32, reserved4: [u8; 4],
        time2wait: U16, time2retain: U16, reserved5: [u8; 4],
    }
    /// SNACK Request (11.16).
    SnackRequest = SnackRequest {
        opcode: u8, kind: u8, reserved: [u8; 2], total_ahs_length: u8, data_segment_length: U24,
        lun: [u8; 8], initiator_task_tag: U32, target_transfer_tag: U32,
        reserved2: [u8; 4], exp_stat_sn: U32, reserved3: [u8; 8], beg_run: U32, run_length: U32,
    }
    /// Reject (11.17). The data segment contains the header of the rejected PDU.
    Reject = Reject {
        opcode: u8, flags: u8, reason: u8, reserved: u8, total_ahs_length: u8, data_segment_length: U24,
        reserved2: [u8; 8], initiator_task_tag: U32, reserved3: [u8; 4],
        stat_sn: U32, exp_cmd_sn: U32, max_cmd_sn: U32, data_sn: U32, reserved4: [u8; 8],
    }
    /// NOP-Out (11.18).
    NopOut = NopOut {
        opcode: u8, flags: u8, reserved: [u8; 2], total_ahs_length: u8, data_segment_length: U24,
        lun: [u8; 8], initiator_task_tag: U32, target_transfer_tag: U32,
        cmd_sn: U32, exp_stat_sn: U32, reserved2: [u8; 16],
    }
    /// NOP-In (11.19).
    NopIn = NopIn {
        opcode: u8, flags: u8, reserved: [u8; 2], total_ahs_length: u8, data_segment_length: U24,
        lun: [u8; 8], initiator_task_tag: U32, target_transfer_tag: U32,
        stat_sn: U32, exp_cmd_sn: U32, max_cmd_sn: U32, reserved2: [u8; 12],
    }
}

/// Bits and codes in the headers, by PDU, with the RFC's names.
#[allow(missing_docs)]
pub mod code {
    /// SCSI Command, byte 1 (11.3.1).
    pub mod command {
        pub const FINAL: u8 = 0x80;
        pub const READ: u8 = 0x40;
        pub const WRITE: u8 = 0x20;
        pub const ATTR_MASK: u8 = 0x07;
        pub const ATTR_UNTAGGED: u8 = 0;
        pub const ATTR_SIMPLE: u8 = 1;
        pub const ATTR_ORDERED: u8 = 2;
        pub const ATTR_HEAD_OF_QUEUE: u8 = 3;
        pub const ATTR_ACA: u8 = 4;
    }
    /// SCSI Response, byte 1 (11.4.1), also for Data-In where the names agree (11.7.3).
    pub mod response {
        pub const BIDI_OVERFLOW: u8 = 0x10;
        pub const BIDI_UNDERFLOW: u8 = 0x08;
        pub const OVERFLOW: u8 = 0x04;
        pub const UNDERFLOW: u8 = 0x02;
        /// Data-In only: the status field is valid.
        pub const STATUS: u8 = 0x01;
        /// Data-In only: acknowledge (error recovery level 1 and up).
        pub const ACKNOWLEDGE: u8 = 0x40;
        pub const COMPLETED_AT_TARGET: u8 = 0x00;
        pub const TARGET_FAILURE: u8 = 0x01;
    }
    /// Task management (11.5.1, 11.6.1).
    pub mod task_management {
        pub const FUNCTION_MASK: u8 = 0x7f;
        pub const ABORT_TASK: u8 = 1;
        pub const ABORT_TASK_SET: u8 = 2;
        pub const CLEAR_ACA: u8 = 3;
        pub const CLEAR_TASK_SET: u8 = 4;
        pub const LOGICAL_UNIT_RESET: u8 = 5;
        pub const TARGET_WARM_RESET: u8 = 6;
        pub const TARGET_COLD_RESET: u8 = 7;
        pub const TASK_REASSIGN: u8 = 8;
        pub const FUNCTION_COMPLETE: u8 = 0;
        pub const TASK_DOES_NOT_EXIST: u8 = 1;
        pub const LUN_DOES_NOT_EXIST: u8 = 2;
        pub const TASK_STILL_ALLEGIANT: u8 = 3;
        pub const REASSIGNMENT_NOT_SUPPORTED: u8 = 4;
        pub const NOT_SUPPORTED: u8 = 5;
        pub const AUTHORIZATION_FAILED: u8 = 6;
        pub const REJECTED: u8 = 255;
    }
    /// Login (11.12, 11.13).
    pub mod login {
        pub const TRANSIT: u8 = 0x80;
        pub const CONTINUE: u8 = 0x40;
        pub const STAGE_SECURITY: u8 = 0;
        pub const STAGE_OPERATIONAL: u8 = 1;
        pub const STAGE_FULL_FEATURE: u8 = 3;
        /// Class and detail in one number, high byte first (11.13.5).
        pub const SUCCESS: u16 = 0x0000;
        pub const TARGET_MOVED_TEMPORARILY: u16 = 0x0101;
        pub const TARGET_MOVED_PERMANENTLY: u16 = 0x0102;
        pub const INITIATOR_ERROR: u16 = 0x0200;
        pub const AUTHENTICATION_FAILURE: u16 = 0x0201;
        pub const AUTHORIZATION_FAILURE: u16 = 0x0202;
        pub const NOT_FOUND: u16 = 0x0203;
        pub const TARGET_REMOVED: u16 = 0x0204;
        pub const UNSUPPORTED_VERSION: u16 = 0x0205;
        pub const TOO_MANY_CONNECTIONS: u16 = 0x0206;
        pub const MISSING_PARAMETER: u16 = 0x0207;
        pub const CANNOT_INCLUDE_IN_SESSION: u16 = 0x0208;
        pub const SESSION_TYPE_NOT_SUPPORTED: u16 = 0x0209;
        pub const SESSION_DOES_NOT_EXIST: u16 = 0x020a;
        pub const INVALID_DURING_LOGIN: u16 = 0x020b;
        pub const TARGET_ERROR: u16 = 0x0300;
        pub const SERVICE_UNAVAILABLE: u16 = 0x0301;
        pub const OUT_OF_RESOURCES: u16 = 0x0302;
    }
    /// Text (11.10, 11.11): byte 1.
    pub mod text {
        pub const CONTINUE: u8 = 0x40;
    }
    /// Logout (11.14.1, 11.15.1).
    pub mod logout {
        pub const REASON_MASK: u8 = 0x7f;
        pub const CLOSE_SESSION: u8 = 0;
        pub const CLOSE_CONNECTION: u8 = 1;
        pub const REMOVE_CONNECTION_FOR_RECOVERY: u8 = 2;
        pub const SUCCESS: u8 = 0;
        pub const CID_NOT_FOUND: u8 = 1;
        pub const RECOVERY_NOT_SUPPORTED: u8 = 2;
        pub const CLEANUP_FAILED: u8 = 3;
    }
    /// Asynchronous events (11.9.1).
    pub mod async_event {
        pub const SCSI: u8 = 0;
        pub const LOGOUT_REQUEST: u8 = 1;
        pub const CONNECTION_DROP: u8 = 2;
        pub const SESSION_DROP: u8 = 3;
        pub const NEGOTIATION_REQUEST: u8 = 4;
        pub const TASKS_TERMINATED: u8 = 5;
    }
    /// Reject reasons (11.17.1).
    pub mod reject {
        pub const DATA_DIGEST_ERROR: u8 = 0x02;
        pub const SNACK_REJECT: u8 = 0x03;
        pub const PROTOCOL_ERROR: u8 = 0x04;
        pub const COMMAND_NOT_SUPPORTED: u8 = 0x05;
        pub const IMMEDIATE_COMMAND_REJECT: u8 = 0x06;
        pub const TASK_IN_PROGRESS: u8 = 0x07;
        pub const INVALID_DATA_ACK: u8 = 0x08;
        pub const INVALID_PDU_FIELD: u8 = 0x09;
        pub const LONG_OPERATION: u8 = 0x0a;
        pub const WAITING_FOR_LOGOUT: u8 = 0x0c;
    }
}

/// Whether sequence number `a` precedes `b`, allowing for wraparound (RFC 1982 with 32 bits).
#[inline]
pub const fn serial_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// A 64-bit LUN field for LUN `lun`: peripheral device addressing up to 255, flat space addressing above (SAM-5,
/// 4.7).
pub fn lun_field(lun: u16) -> [u8; 8] {
    let [high, low] = lun.to_be_bytes();
    let mut field = [0; 8];
    field[0] = if lun > 255 { 0x40 | (high & 0x3f) } else { 0 };
    field[1] = low;
    field
}

/// The LUN in a 64-bit field if it has a single-level form; `None` otherwise, because no such logical unit exists.
pub fn lun_number(field: [u8; 8]) -> Option<u16> {
    if field[2..] != [0; 6] {
        return None;
    }
    match field[0] >> 6 {
        // Peripheral device addressing, but only on bus 0.
        0 if field[0] == 0 => Some(u16::from(field[1])),
        // Flat space addressing.
        1 => Some(u16::from_be_bytes([field[0] & 0x3f, field[1]])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every struct has 48 bytes (otherwise the casts would not compile) and the right opcode.
    #[test]
    fn defaults_carry_their_opcode() {
        let check = |bhs: Bhs, kind| assert_eq!(bhs.kind(), kind);
        check(ScsiCommand::default().into(), Opcode::ScsiCommand);
        check(DataIn::default().into(), Opcode::DataIn);
        check(R2t::default().into(), Opcode::R2t);
        check(Reject::default().into(), Opcode::Reject);
        for byte in 0..64 {
            assert_eq!(Opcode::from_byte(byte).to_byte(), byte);
        }
    }

    /// Lengths include AHS, padding and digests as in RFC 7143, 11.2.
    #[test]
    fn lengths_include_ahs_padding_and_digests() {
        let mut bhs = Bhs::from(DataOut::default());
        assert_eq!(bhs.total_len(true, true), 52);
        bhs.data_segment_length = U24::new(5);
        bhs.total_ahs_length = 2;
        assert_eq!(bhs.total_len(false, false), 48 + 8 + 8);
        assert_eq!(bhs.total_len(true, true), 48 + 8 + 4 + 8 + 4);
    }

    /// LUN fields survive a round trip; fields in unsupported formats are rejected.
    #[test]
    fn lun_fields_survive_a_round_trip() {
        for lun in [0, 1, 255, 256, 16383] {
            assert_eq!(lun_number(lun_field(lun)), Some(lun));
        }
        assert_eq!(lun_number([0xc1, 1, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(lun_number([0, 1, 0, 2, 0, 0, 0, 0]), None);
    }

    /// Sequence numbers compare correctly across the wraparound.
    #[test]
    fn serial_numbers_wrap() {
        assert!(serial_before(u32::MAX, 0));
        assert!(serial_before(1, 2));
        assert!(!serial_before(2, 2));
    }
}
