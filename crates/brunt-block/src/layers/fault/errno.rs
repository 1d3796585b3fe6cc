//! Errno names, as users write them.

/// The errnos that storage is known to return.
const NAMES: &[(&str, i32)] = &[
    ("EPERM", libc::EPERM),
    ("ENOENT", libc::ENOENT),
    ("EINTR", libc::EINTR),
    ("EIO", libc::EIO),
    ("ENXIO", libc::ENXIO),
    ("EAGAIN", libc::EAGAIN),
    ("ENOMEM", libc::ENOMEM),
    ("EACCES", libc::EACCES),
    ("EBUSY", libc::EBUSY),
    ("ENODEV", libc::ENODEV),
    ("EINVAL", libc::EINVAL),
    ("EFBIG", libc::EFBIG),
    ("ENOSPC", libc::ENOSPC),
    ("EROFS", libc::EROFS),
    ("ENODATA", libc::ENODATA),
    ("ENOLINK", libc::ENOLINK),
    ("EBADMSG", libc::EBADMSG),
    ("EILSEQ", libc::EILSEQ),
    ("EOPNOTSUPP", libc::EOPNOTSUPP),
    ("ENOBUFS", libc::ENOBUFS),
    ("ECONNRESET", libc::ECONNRESET),
    ("ETIMEDOUT", libc::ETIMEDOUT),
    ("ESTALE", libc::ESTALE),
    ("EREMOTEIO", libc::EREMOTEIO),
    ("EDQUOT", libc::EDQUOT),
];
/// The largest errno that the kernel returns.
const ERRNO_MAX: i32 = 4095;

/// Parses an errno given by name or number.
pub(super) fn parse(text: &str) -> Option<i32> {
    let named = NAMES
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, number)| *number);
    named.or_else(|| {
        text.parse()
            .ok()
            .filter(|number| (1..=ERRNO_MAX).contains(number))
    })
}

/// The name of an errno, or its number if it isn't listed here.
pub(super) fn name(number: i32) -> String {
    let named = NAMES.iter().find(|(_, known)| *known == number);
    named.map_or_else(|| number.to_string(), |(name, _)| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errnos_are_parsed_by_name_and_number() {
        assert!(
            NAMES
                .iter()
                .all(|(text, number)| parse(text) == Some(*number) && name(*number) == *text)
        );
        assert_eq!(
            (parse("28"), name(libc::ENOSPC)),
            (Some(libc::ENOSPC), "ENOSPC".to_string())
        );
        assert_eq!(
            (parse("0"), parse("4096"), parse("enospc"), parse("-5")),
            (None, None, None, None)
        );
        assert_eq!(name(4095), "4095");
    }
}
