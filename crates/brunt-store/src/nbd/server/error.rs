//! Maps a device's errors to NBD: one of eight error numbers, and a text for users.

use brunt_block::{DeviceError, RefusalKind};
use brunt_wire::nbd::errno;

use crate::nbd::device_errors;

/// The error number to answer with.
pub(super) fn number(error: &DeviceError) -> u32 {
    /// Errnos for a file that cannot grow: no space, quota exceeded, file size limit.
    const FULL: [i32; 3] = [28, 122, 27]; // ENOSPC, EDQUOT, EFBIG
    const FORBIDDEN: [i32; 3] = [1, 13, 30]; // EPERM, EACCES, EROFS
    if let Some(number) =
        device_errors::number_of(error).filter(|number| errno::name(*number).is_some())
    {
        return match number {
            // The server behind this one may be shutting down, but this one isn't.
            errno::SHUTDOWN => errno::IO,
            // Errors about flags that our client set, not the remote client (DF, FAST_ZERO).
            errno::OVERFLOW | errno::NOTSUP => errno::INVAL,
            number => number,
        };
    }
    match error {
        DeviceError::Os(code) if FULL.contains(code) => errno::NOSPC,
        DeviceError::Os(code) if FORBIDDEN.contains(code) => errno::PERM,
        DeviceError::Os(libc::ENOMEM) => errno::NOMEM,
        DeviceError::Os(libc::EINVAL | libc::EOPNOTSUPP) => errno::INVAL,
        DeviceError::Os(_) | DeviceError::TimedOut | DeviceError::Gone => errno::IO,
        DeviceError::OutOfRange | DeviceError::Unsupported => errno::INVAL,
        DeviceError::Refused { kind, .. } => match kind {
            RefusalKind::Protected => errno::PERM,
            RefusalKind::BadRequest => errno::INVAL,
            _ => errno::IO,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_maps_to_an_nbd_error_number() {
        let check =
            |error: DeviceError, expected: u32| assert_eq!(number(&error), expected, "{error:?}");
        check(DeviceError::Os(28), errno::NOSPC);
        check(DeviceError::Os(30), errno::PERM);
        check(DeviceError::Os(5), errno::IO);
        check(DeviceError::Os(12), errno::NOMEM);
        check(DeviceError::Os(22), errno::INVAL);
        check(device_errors::from_number(errno::NOTSUP), errno::INVAL);
        check(device_errors::from_number(errno::OVERFLOW), errno::INVAL);
        check(DeviceError::Gone, errno::IO);
        check(DeviceError::OutOfRange, errno::INVAL);
        check(DeviceError::refused(RefusalKind::Protected), errno::PERM);
        check(DeviceError::refused(RefusalKind::MediumError), errno::IO);
        check(device_errors::from_number(errno::NOSPC), errno::NOSPC);
        check(device_errors::from_number(errno::SHUTDOWN), errno::IO);
        check(device_errors::from_number(7777), errno::INVAL);
    }
}
