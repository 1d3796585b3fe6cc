//! SCSI (SPC-4 and SBC-3): CDBs, sense data, and the pages that a device returns. Covers only the bytes; the behavior
//! of logical units is in `brunt-iscsi`.

pub mod alua;
pub mod cdb;
pub mod copy;
pub mod inquiry;
pub mod mode;
pub mod opcodes;
pub mod persistent;
pub mod sense;
pub mod unit_names;
pub mod unmap;
