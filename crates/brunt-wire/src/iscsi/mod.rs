//! iSCSI (RFC 7143): PDUs, digests, text keys. Covers only the bytes; login and session logic is in `brunt-iscsi`.
//!
//! A PDU is a 48-byte basic header segment ([`Bhs`]), additional header segments ([`ahs`]), an optional header digest,
//! a data segment padded to four bytes, and an optional data digest. [`Bhs::total_len`] is the total length; the
//! structs of [`pdu`] are views of the 48 bytes.

pub mod ahs;
pub mod digest;
pub mod pdu;
pub mod text;

pub use pdu::{Bhs, Opcode};
