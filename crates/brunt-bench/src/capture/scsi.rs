//! iSCSI exchanges for generated captures: a login without digests, then READ (10), WRITE (10) and SYNCHRONIZE CACHE
//! (10) on a single logical unit, as sent by an initiator with immediate data and a target that sends status in its
//! last Data-In. Called by [`super::compose`].
//!
//! The rule: tags are command numbers, so none occurs twice.

use brunt_wire::iscsi::pdu::{
    Bhs, DataIn, LoginRequest, LoginResponse, OPCODE_IMMEDIATE, ScsiCommand, ScsiResponse, U24,
    code, padded,
};
use brunt_wire::scsi::cdb::{self, Cdb};
use zerocopy::IntoBytes;

const BLOCK_BYTES: u64 = 512;
const FINAL: u8 = 0x80;
const SIMPLE: u8 = 1;

/// Appends a header and its data, padded.
fn put(stream: &mut Vec<u8>, header: impl Into<Bhs>, data: &[u8]) {
    let mut bhs: Bhs = header.into();
    bhs.data_segment_length = U24::new(data.len() as u32);
    stream.extend_from_slice(bhs.as_bytes());
    stream.extend_from_slice(data);
    stream.resize(stream.len() + padded(data.len()) - data.len(), 0);
}

/// The login of client `number` and its response: a single exchange, directly into the full feature phase.
pub fn login(number: u8) -> (Vec<u8>, Vec<u8>) {
    let flags = FINAL | 1 << 2 | code::login::STAGE_FULL_FEATURE;
    let (mut request, mut response) = (Vec::new(), Vec::new());
    let text = format!(
        "InitiatorName=iqn.2026-11.io.brunt:client-{number}\0TargetName=iqn.2026-11.io.brunt:made\0\
         SessionType=Normal\0HeaderDigest=None\0DataDigest=None\0ImmediateData=Yes\0InitialR2T=No\0\
         FirstBurstLength=262144\0MaxBurstLength=262144\0MaxRecvDataSegmentLength=262144\0"
    );
    let isid = [0x80, 0, 0, 0, 0, number];
    // Logins are always immediate (RFC 7143, 11.12).
    let opcode = LoginRequest::default().opcode | OPCODE_IMMEDIATE;
    put(
        &mut request,
        LoginRequest {
            opcode,
            flags,
            isid,
            ..LoginRequest::default()
        },
        text.as_bytes(),
    );
    let text =
        b"TargetPortalGroupTag=1\0HeaderDigest=None\0DataDigest=None\0MaxRecvDataSegmentLength=262144\0";
    put(
        &mut response,
        LoginResponse {
            flags,
            isid,
            tsih: 1.into(),
            ..LoginResponse::default()
        },
        text,
    );
    (request, response)
}

fn command(tag: u32, flags: u8, code: u8, offset: u64, len: usize) -> ScsiCommand {
    let mut cdb: Cdb = [0; 16];
    cdb[0] = code;
    cdb[2..6].copy_from_slice(&((offset / BLOCK_BYTES) as u32).to_be_bytes());
    cdb[7..9].copy_from_slice(&((len as u64 / BLOCK_BYTES) as u16).to_be_bytes());
    ScsiCommand {
        flags: FINAL | flags | SIMPLE,
        initiator_task_tag: tag.into(),
        expected_data_transfer_length: (len as u32).into(),
        cmd_sn: tag.into(),
        exp_stat_sn: tag.into(),
        cdb,
        ..ScsiCommand::default()
    }
}

/// A READ and its data, with the status in the same PDU.
pub fn read(tag: u32, offset: u64, data: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut request, mut reply) = (Vec::new(), Vec::with_capacity(data.len() + 48));
    put(
        &mut request,
        command(
            tag,
            code::command::READ,
            cdb::op::READ_10,
            offset,
            data.len(),
        ),
        &[],
    );
    let with_status = DataIn {
        flags: FINAL | code::response::STATUS,
        initiator_task_tag: tag.into(),
        target_transfer_tag: u32::MAX.into(),
        stat_sn: tag.into(),
        exp_cmd_sn: tag.wrapping_add(1).into(),
        max_cmd_sn: tag.wrapping_add(64).into(),
        ..DataIn::default()
    };
    put(&mut reply, with_status, data);
    (request, reply)
}

fn response(tag: u32) -> Vec<u8> {
    let mut reply = Vec::new();
    let response = ScsiResponse {
        flags: FINAL,
        initiator_task_tag: tag.into(),
        stat_sn: tag.into(),
        exp_cmd_sn: tag.wrapping_add(1).into(),
        max_cmd_sn: tag.wrapping_add(64).into(),
        ..ScsiResponse::default()
    };
    put(&mut reply, response, &[]);
    reply
}

/// A WRITE with all of its data, and its status.
pub fn write(tag: u32, offset: u64, data: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut request = Vec::with_capacity(data.len() + 48);
    put(
        &mut request,
        command(
            tag,
            code::command::WRITE,
            cdb::op::WRITE_10,
            offset,
            data.len(),
        ),
        data,
    );
    (request, response(tag))
}

/// A SYNCHRONIZE CACHE for the whole logical unit.
pub fn flush(tag: u32) -> (Vec<u8>, Vec<u8>) {
    let mut request = Vec::new();
    put(
        &mut request,
        command(tag, 0, cdb::op::SYNCHRONIZE_CACHE_10, 0, 0),
        &[],
    );
    (request, response(tag))
}
