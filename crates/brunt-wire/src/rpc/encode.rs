//! Encodes headers: those that a client sends, and those of server replies.
//!
//! The rule: `parse(encode(x)) == x`.

use super::header::{AUTH_BYTES_MAX, GROUPS_MAX, MACHINE_NAME_BYTES_MAX};
use super::{OpaqueAuth, ReplyStatus, RpcCall, RpcReply, SysCredentials};
use crate::XdrWriter;

impl RpcCall<'_> {
    /// Appends the header to `out`. `body_at` is ignored: the caller appends the arguments.
    ///
    /// # Panics
    /// Panics if credentials or verifier have more than 400 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut out = XdrWriter::new(out);
        for word in [self.xid.0, 0, 2, self.program, self.version, self.procedure] {
            out.u32(word);
        }
        auth(&mut out, &self.credentials);
        auth(&mut out, &self.verifier);
    }
}

impl RpcReply<'_> {
    /// Appends the header to `out`. `body_at` is ignored: the caller appends the results, or the version range after a
    /// mismatch.
    ///
    /// # Panics
    /// Panics if the verifier has more than 400 bytes, or is missing from an accepted reply.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut out = XdrWriter::new(out);
        out.u32(self.xid.0);
        out.u32(1);
        let accepted = match self.status {
            ReplyStatus::RpcMismatch => return [1, 0].into_iter().for_each(|word| out.u32(word)),
            ReplyStatus::AuthError(why) => {
                return [1, 1, why].into_iter().for_each(|word| out.u32(word));
            }
            ReplyStatus::Success => 0,
            ReplyStatus::ProgUnavail => 1,
            ReplyStatus::ProgMismatch => 2,
            ReplyStatus::ProcUnavail => 3,
            ReplyStatus::GarbageArgs => 4,
            ReplyStatus::SystemErr => 5,
        };
        out.u32(0);
        auth(
            &mut out,
            &self.verifier.expect("an accepted reply has a verifier"),
        );
        out.u32(accepted);
    }
}

impl SysCredentials<'_> {
    /// Appends the body of an AUTH_SYS credential to `out`.
    ///
    /// # Panics
    /// Panics if the machine name is longer than [`MACHINE_NAME_BYTES_MAX`], there are more than [`GROUPS_MAX`]
    /// groups, or `groups` is not whole words.
    pub fn encode(&self, stamp: u32, out: &mut Vec<u8>) {
        assert!(
            self.machine_name.len() <= MACHINE_NAME_BYTES_MAX as usize
                && self.groups.len() <= 4 * GROUPS_MAX as usize
                && self.groups.len().is_multiple_of(4)
        );
        let mut out = XdrWriter::new(out);
        out.u32(stamp);
        out.opaque(self.machine_name);
        out.u32(self.uid);
        out.u32(self.gid);
        out.u32(self.groups.len() as u32 / 4);
        out.raw(self.groups);
    }
}

fn auth(out: &mut XdrWriter<'_>, auth: &OpaqueAuth<'_>) {
    assert!(
        auth.body.len() <= AUTH_BYTES_MAX as usize,
        "opaque_auth longer than 400 bytes"
    );
    out.u32(auth.flavor.number());
    out.opaque(auth.body);
}
