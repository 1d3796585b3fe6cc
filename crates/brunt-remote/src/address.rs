//! The address of a lake in an object store: `s3://bucket/prefix`.

use std::fmt;
use std::str::FromStr;

use crate::error::RemoteError;

/// A folder in an object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// The bucket.
    pub bucket: String,
    /// The prefix of all keys, without leading and trailing slashes; empty for the whole bucket.
    pub prefix: String,
}

impl RemoteAddress {
    /// Whether a location given by the user is an object store rather than a folder.
    pub fn is_remote(text: &str) -> bool {
        text.contains("://")
    }

    /// The key of a file, given its path below the lake, with slashes.
    pub fn key(&self, relative: &str) -> String {
        if self.prefix.is_empty() {
            relative.to_string()
        } else {
            format!("{}/{relative}", self.prefix)
        }
    }

    /// The path below the lake of a key; `None` for keys outside the lake.
    pub fn relative<'a>(&self, key: &'a str) -> Option<&'a str> {
        if self.prefix.is_empty() {
            Some(key)
        } else {
            key.strip_prefix(&self.prefix)?.strip_prefix('/')
        }
    }
}

impl FromStr for RemoteAddress {
    type Err = RemoteError;

    fn from_str(text: &str) -> Result<RemoteAddress, RemoteError> {
        let wrong = |what| RemoteError::Address {
            given: text.to_string(),
            what,
        };
        let (scheme, rest) = text.split_once("://").ok_or(wrong(
            "an address begins with s3://; write s3://BUCKET/PREFIX",
        ))?;
        if scheme != "s3" {
            return Err(wrong(
                "unsupported scheme; use s3://, which other stores with an S3 interface support, \
                 too",
            ));
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(is_name) {
            return Err(wrong(
                "a bucket's name has 3 to 63 letters, digits, dots and hyphens",
            ));
        }
        let prefix = prefix.trim_end_matches('/');
        if !prefix.is_empty() && !is_safe_path(prefix) {
            return Err(wrong(
                "a prefix has no empty segments, no '.' or '..', and no control characters",
            ));
        }
        Ok(RemoteAddress {
            bucket: bucket.to_string(),
            prefix: prefix.to_string(),
        })
    }
}

impl fmt::Display for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if self.prefix.is_empty() {
            Ok(())
        } else {
            write!(f, "/{}", self.prefix)
        }
    }
}

/// Whether a path with slashes stays below its root and means the same as a key and as a file name. Keys are untrusted.
pub(crate) fn is_safe_path(path: &str) -> bool {
    let is_plain = |segment: &str| {
        !matches!(segment, "" | "." | "..")
            && !segment.contains(|c: char| c.is_control() || c == '\\')
    };
    path.len() <= 1024 && path.split('/').all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, bucket, prefix, again) in [
            ("s3://lake", "lake", "", "s3://lake"),
            ("s3://lake/", "lake", "", "s3://lake"),
            (
                "s3://lake/tap-1/monday/",
                "lake",
                "tap-1/monday",
                "s3://lake/tap-1/monday",
            ),
        ] {
            let address: RemoteAddress = text.parse().unwrap();
            assert_eq!(
                (address.bucket.as_str(), address.prefix.as_str()),
                (bucket, prefix)
            );
            assert_eq!(address.to_string(), again);
            let key = address.key("operations/part-000000.parquet");
            assert_eq!(
                address.relative(&key),
                Some("operations/part-000000.parquet")
            );
        }
        for text in [
            "lake",
            "s3:/lake",
            "gs://lake/x",
            "s3://",
            "s3://a/b",
            "s3://lake//x",
            "s3://lake/../x",
        ] {
            let refused = text.parse::<RemoteAddress>();
            assert!(
                matches!(refused, Err(RemoteError::Address { .. })),
                "{text}: {refused:?}"
            );
        }
        let address: RemoteAddress = "s3://lake/tap".parse().unwrap();
        assert_eq!(
            address.relative("tap-2/operations/part-000000.parquet"),
            None
        );
    }

    #[test]
    fn keys_that_leave_the_folder_are_not_safe() {
        for path in [
            "../x",
            "a/../../x",
            "/etc/passwd",
            "a//b",
            "a/./b",
            "a\0b",
            "a\\..\\b",
            "",
        ] {
            assert!(!is_safe_path(path), "{path}");
        }
        assert!(is_safe_path(
            "operations/date=2026-11-25/part-000000.parquet"
        ));
    }
}
