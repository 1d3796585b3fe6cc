//! Rewords a parser's messages for authors of experiment files: they mention keys and values instead of the program's
//! fields, variants and types. Called by [`super::mistake`] and for command-line options.
//!
//! The rule: an unrecognized message is passed on unchanged. Messages are only reworded; no decision depends on them.

use brunt_core::spelling::did_you_mean;

/// Keys that have another name in fio: fio's name, our key, and what to write.
const FIO: &[(&str, &str, &str)] = &[
    ("blockalign", "align", "align = \"4k\""),
    ("blocksize", "blocks", "blocks = [{ size = \"4k\" }]"),
    ("block_size", "blocks", "blocks = [{ size = \"4k\" }]"),
    ("bs", "blocks", "blocks = [{ size = \"4k\" }]"),
    ("filename", "url", "url = \"/dev/nvme0n1\""),
    ("io_size", "stop", "stop = { bytes = \"1GiB\" }"),
    ("iodepth", "queue_depth", "queue_depth = 16"),
    ("loops", "repetitions", "repetitions = 4"),
    ("number_ios", "stop", "stop = { requests = 1000 }"),
    ("numjobs", "workers", "workers = 4"),
    ("offset", "region", "region = { start = \"1GiB\" }"),
    ("percentage_random", "sequential", "sequential = 0.3"),
    ("ramp_time", "ramp_up", "ramp_up = { time = \"2s\" }"),
    ("randseed", "seed", "seed = 1"),
    (
        "random_distribution",
        "distribution",
        "distribution = { kind = \"zipf\", theta = 1.1 }",
    ),
    (
        "rate_iops",
        "arrival",
        "arrival = { kind = \"open\", rate = 1000 }",
    ),
    (
        "readwrite",
        "read",
        "read = 1 for reads, 0 for writes, 0.7 for a mix; sequential = 1 for sequential ones",
    ),
    ("runtime", "stop", "stop = { time = \"30s\" }"),
    (
        "rw",
        "read",
        "read = 1 for reads, 0 for writes, 0.7 for a mix; sequential = 1 for sequential ones",
    ),
    ("rwmixread", "read", "read = 0.7"),
    ("rwmixwrite", "read", "read = 0.3"),
    ("size", "region", "region = { length = \"1GiB\" }"),
];

/// Maximum number of keys or values to list if none of them resembles what was written.
const LISTED_MAX: usize = 12;

/// Splits a message of `serde` or `toml` into the mistake and what would be correct.
pub(crate) fn reworded(message: &str) -> (String, Option<String>) {
    if let Some(rest) = message.strip_prefix("unknown field `") {
        let (field, known) = split_known(rest);
        return unknown_key(field, &known);
    }
    if let Some(rest) = message.strip_prefix("unknown variant `") {
        let (value, known) = split_known(rest);
        return unknown_value(value, &known);
    }
    if let Some(rest) = message.strip_prefix("missing field `") {
        let field = rest.split('`').next().unwrap_or(rest);
        return (
            format!("key '{field}' is missing"),
            Some(format!("add {field} = …")),
        );
    }
    for begin in ["invalid type: ", "invalid value: "] {
        let parts = message
            .strip_prefix(begin)
            .and_then(|rest| rest.rsplit_once(", expected "));
        if let Some((found, expected)) = parts {
            let text = format!(
                "expected {}, found {}",
                wanted(expected),
                what_was_found(found)
            );
            return (text, None);
        }
    }
    if message.starts_with("data did not match any variant of untagged enum") {
        return ("this key doesn't take this type of value".into(), None);
    }
    (message.to_string(), None)
}

/// The message about an unknown key, and what would be correct.
pub(super) fn unknown_key(key: &str, known: &[&str]) -> (String, Option<String>) {
    (format!("unknown key '{key}'"), help(key, known, "key"))
}

/// The message about an unknown value, and what would be correct.
pub(super) fn unknown_value(value: &str, known: &[&str]) -> (String, Option<String>) {
    (
        format!("unknown value '{value}'"),
        help(value, known, "value"),
    )
}

/// The name before the next backtick, and the quoted names after it.
fn split_known(rest: &str) -> (&str, Vec<&str>) {
    let (name, known) = rest.split_once('`').unwrap_or((rest, ""));
    (name, known.split('`').skip(1).step_by(2).collect())
}

/// Suggests our key for a name of fio's, or the most similar known name, or all known names if they are few.
fn help(written: &str, known: &[&str], what: &str) -> Option<String> {
    let by_fio = FIO
        .iter()
        .find(|(name, key, _)| *name == written && known.contains(key));
    if let Some((_, _, example)) = by_fio {
        return Some(format!("write {example}"));
    }
    let all = || format!("possible {what}s: {}", known.join(", "));
    did_you_mean(written, known.iter().copied()).or((known.len() <= LISTED_MAX).then(all))
}

fn wanted(expected: &str) -> String {
    let first = expected.split(' ').next().unwrap_or(expected);
    match first {
        "u8" => "a whole number from 0 to 255".into(),
        "u16" => "a whole number from 0 to 65535".into(),
        "u32" => "a whole number from 0 to 4294967295".into(),
        "u64" | "usize" => "a whole number, 0 or more".into(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".into(),
        "f32" | "f64" => "a number".into(),
        "bool" => "true or false".into(),
        "str" | "borrowed" | "string" if expected != "string or table" => "a text in quotes".into(),
        "struct" | "map" | "internally" | "adjacently" => "a table".into(),
        "sequence" | "tuple" => "a list".into(),
        _ => match expected {
            nonzero if nonzero.starts_with("a nonzero ") => "a whole number, 1 or more".into(),
            "a boolean" => "true or false".into(),
            "a string" => "a text in quotes".into(),
            "a sequence" => "a list".into(),
            "a map" => "a table".into(),
            "variant identifier" => "a name in quotes".into(),
            other => other.to_string(),
        },
    }
}

fn what_was_found(found: &str) -> String {
    match found {
        "map" => "a table".into(),
        "sequence" => "a list".into(),
        _ => match found.split_once(' ') {
            Some(("string", text)) => format!("the text {text}"),
            Some(("integer" | "boolean", value)) => value.trim_matches('`').to_string(),
            Some(("floating", rest)) => rest
                .trim_start_matches("point ")
                .trim_matches('`')
                .to_string(),
            _ => found.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Sample {
        queue_depth: u32,
        read: Option<f64>,
        stop: Option<Vec<String>>,
        ring: Option<Mode>,
        arrival: Option<Tagged>,
        journal: Option<bool>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Mode {
        Interrupt,
        Sqpoll,
    }

    #[derive(Debug, Deserialize)]
    #[serde(tag = "kind", rename_all = "kebab-case")]
    #[allow(dead_code)]
    enum Tagged {
        Open { rate: f64 },
    }

    fn check(line: &str, what: &str, help: Option<&str>) {
        let text = match line.starts_with("queue_depth") {
            true => line.to_string(),
            false => format!("queue_depth = 1\n{line}"),
        };
        let error = toml::from_str::<Sample>(&text).expect_err(line);
        let (said, advice) = reworded(error.message());
        assert_eq!((said.as_str(), advice.as_deref()), (what, help), "{line}");
    }

    #[test]
    fn messages_use_no_internal_terms() {
        check(
            "queue_depth = \"x\"",
            "expected a whole number from 0 to 4294967295, found the text \"x\"",
            None,
        );
        check(
            "queue_depth = -5",
            "expected a whole number from 0 to 4294967295, found -5",
            None,
        );
        check("read = true", "expected a number, found true", None);
        check(
            "stop = \"5s\"",
            "expected a list, found the text \"5s\"",
            None,
        );
        check("journal = 1.5", "expected true or false, found 1.5", None);
        check(
            "arrival = \"open\"",
            "expected a table, found the text \"open\"",
            None,
        );
        check(
            "arrival = { kind = \"open\" }",
            "key 'rate' is missing",
            Some("add rate = …"),
        );
        check(
            "ring = \"squpoll\"",
            "unknown value 'squpoll'",
            Some("did you mean sqpoll?"),
        );
        check(
            "ring = \"busy\"",
            "unknown value 'busy'",
            Some("possible values: interrupt, sqpoll"),
        );
        check(
            "jurnal = true",
            "unknown key 'jurnal'",
            Some("did you mean journal?"),
        );
    }

    /// A key's name in fio leads to our key, if the table has that key.
    #[test]
    fn fios_names_are_translated() {
        check(
            "iodepth = 4",
            "unknown key 'iodepth'",
            Some("write queue_depth = 16"),
        );
        check(
            "runtime = 30",
            "unknown key 'runtime'",
            Some("write stop = { time = \"30s\" }"),
        );
        // The table has no such key.
        check(
            "numjobs = 30",
            "unknown key 'numjobs'",
            Some("possible keys: queue_depth, read, stop, ring, arrival, journal"),
        );
    }
}
