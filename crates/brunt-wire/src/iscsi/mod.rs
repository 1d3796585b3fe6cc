//! iSCSI (RFC 7143): PDUs, digests, text keys. Bytes only; the rules of logins and sessions are in `brunt-iscsi`.
//!
//! A PDU is a 48-byte basic header segment ([`Bhs`]), additional header segments ([`ahs`]), an
//! optional header digest, a data segment padded to four bytes, and an optional data digest.
//! [`Bhs::total_len`] is the length of all of it; the structs of [`pdu`] are views of the 48 bytes.

pub mod ahs;
pub mod digest;
pub mod pdu;
pub mod text;

pub use pdu::{Bhs, Opcode};
