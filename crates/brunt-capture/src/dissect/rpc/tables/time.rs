//! NFSv3 times as the tables store them.

use brunt_wire::nfs::v3;

/// Nanoseconds since 1970.
pub fn nanos(time: &v3::NfsTime) -> i64 {
    i64::from(time.seconds.get()) * 1_000_000_000 + i64::from(time.nseconds.get())
}
