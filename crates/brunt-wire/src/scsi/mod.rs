//! SCSI as SPC-4 and SBC-3 write it: CDBs, sense data, the pages a device answers with.
//! Pure bytes; the rules of a logical unit live in `brunt-iscsi`.

pub mod alua;
pub mod cdb;
pub mod copy;
pub mod inquiry;
pub mod mode;
pub mod opcodes;
pub mod persistent;
pub mod sense;
pub mod unmap;
