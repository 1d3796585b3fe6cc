//! Leaves passwords out of whatever is shown or kept: experiment texts, URLs, summaries.

/// The same with the secret of each `scheme://user%secret@host` replaced: for whatever is shown or kept.
pub fn without_secrets(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (head, tail) = rest.split_at(at + 3);
        clean.push_str(head);
        // What ends a URL in a TOML file.
        let end = tail
            .find(|c: char| c.is_whitespace() || "\"',/".contains(c))
            .unwrap_or(tail.len());
        let authority = &tail[..end];
        match (authority.find('%'), authority.rfind('@')) {
            (Some(percent), Some(at)) if percent < at => {
                clean.push_str(&authority[..=percent]);
                clean.push_str("***");
                clean.push_str(&authority[at..]);
            }
            _ => clean.push_str(authority),
        }
        rest = &tail[end..];
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_left_out() {
        let check = |text: &str, expected: &str| assert_eq!(without_secrets(text), expected);
        check(
            "iscsi://me%secret@host:3260/iqn/0",
            "iscsi://me%***@host:3260/iqn/0",
        );
        check(
            "url = \"iscsi://a%b@c/d/0\" # and iscsi://e%f@g, no more",
            "url = \"iscsi://a%***@c/d/0\" # and iscsi://e%***@g, no more",
        );
        check(
            "iscsi://host/iqn%2a@x/0 50% @ most",
            "iscsi://host/iqn%2a@x/0 50% @ most",
        );
    }
}
