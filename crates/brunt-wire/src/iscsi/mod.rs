//! iSCSI as RFC 7143 writes it: PDUs, digests, text keys. Pure bytes; the rules of a login or
//! a session live in `brunt-iscsi`.
//!
//! A PDU is a 48-byte basic header segment ([`Bhs`]), additional header segments ([`ahs`]),
//! an optional header digest, a data segment padded to four bytes, an optional data digest.
//! [`Bhs::total_len`] says how long it all is; the structs of [`pdu`] are views of the 48 bytes.

pub mod ahs;
pub mod digest;
pub mod pdu;
pub mod text;

pub use pdu::{Bhs, Opcode};
