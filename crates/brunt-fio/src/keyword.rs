//! Substitutions in values: `${NAME}` from the environment, and fio's `$pagesize`, `$mb_memory` and `$ncpus`,
//! which allow arithmetic (fio(1), "Job file format").
//!
//! The rule: as in fio, only a value that contains one of these three is evaluated.

use std::path::Path;

use crate::error::Cause;

/// Maximum nesting of parentheses.
const NESTING_MAX: usize = 32;

/// Returns the value after substitution, and the first environment variable in it that is not set.
///
/// # Errors
/// A `${` is not closed, or an expression cannot be evaluated.
pub fn replace(value: &str) -> Result<(String, Option<String>), Cause> {
    let mut text = String::new();
    let mut unset = None;
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) = after.split_once('}').ok_or(Cause::UnclosedVariable)?;
        text += before;
        match std::env::var(name) {
            Ok(value) => text += &value,
            Err(_) => unset = unset.or_else(|| Some(name.to_string())),
        }
        rest = behind;
    }
    text += rest;
    let mut computed = false;
    for (word, number) in [
        ("$pagesize", page_bytes as fn() -> u64),
        ("$mb_memory", memory_mb),
        ("$ncpus", processors),
    ] {
        if text.contains(word) {
            computed = true;
            text = text.replace(word, &number().to_string());
        }
    }
    if computed && text.contains(['+', '-', '*', '/']) {
        text = evaluate(&text)
            .ok_or_else(|| Cause::Expression(value.to_string()))?
            .to_string();
    }
    Ok((text, unset))
}

/// Evaluates integers, `+ - * /` and parentheses, as bc does: division truncates.
fn evaluate(text: &str) -> Option<i128> {
    let plain: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let (value, rest) = sum(plain.as_bytes(), 0)?;
    rest.is_empty().then_some(value)
}

type Parsed<'a> = Option<(i128, &'a [u8])>;

fn sum(text: &[u8], depth: usize) -> Parsed<'_> {
    let (mut value, mut rest) = product(text, depth)?;
    while let [sign @ (b'+' | b'-'), behind @ ..] = rest {
        let (other, behind) = product(behind, depth)?;
        value = if *sign == b'+' {
            value.checked_add(other)?
        } else {
            value.checked_sub(other)?
        };
        rest = behind;
    }
    Some((value, rest))
}

fn product(text: &[u8], depth: usize) -> Parsed<'_> {
    let (mut value, mut rest) = factor(text, depth)?;
    while let [sign @ (b'*' | b'/'), behind @ ..] = rest {
        let (other, behind) = factor(behind, depth)?;
        value = if *sign == b'*' {
            value.checked_mul(other)?
        } else {
            value.checked_div(other)?
        };
        rest = behind;
    }
    Some((value, rest))
}

fn factor(text: &[u8], depth: usize) -> Parsed<'_> {
    if let [b'(', inner @ ..] = text {
        let (value, rest) = if depth < NESTING_MAX {
            sum(inner, depth + 1)?
        } else {
            None?
        };
        return Some((value, rest.strip_prefix(b")")?));
    }
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = std::str::from_utf8(&text[..digits]).ok()?.parse().ok()?;
    Some((number, &text[digits..]))
}

/// The page size, from the kernel's auxiliary vector: pairs of words; AT_PAGESZ is 6 (getauxval(3)).
fn page_bytes() -> u64 {
    let vector = std::fs::read("/proc/self/auxv").unwrap_or_default();
    let mut words = vector
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
    while let (Some(kind), Some(value)) = (words.next(), words.next()) {
        if kind == 6 {
            return value;
        }
    }
    4096
}

fn memory_mb() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .unwrap_or(0)
        / 1024
}

/// The number of configured CPUs, including offline ones.
fn processors() -> u64 {
    let is_processor = |name: &str| {
        name.strip_prefix("cpu")
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let folder = std::fs::read_dir(Path::new("/sys/devices/system/cpu"))
        .into_iter()
        .flatten()
        .flatten();
    folder
        .filter(|entry| entry.file_name().to_str().is_some_and(is_processor))
        .count()
        .max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_computed_as_bc_does() {
        let check = |text: &str, expected| assert_eq!(evaluate(text), expected, "{text}");
        check("5*1024*1024*8/8", Some(5 << 20));
        check("2+3*4", Some(14));
        check("(2+3)*4", Some(20));
        check("7/2", Some(3));
        check("7 - 2 - 1", Some(4));
        check("7/0", None);
        check("2*", None);
        check("(2", None);
        check("", None);
        check(&"(".repeat(100_000), None);
        check("9999999999999999999999999999999999999999", None);
    }

    #[test]
    fn only_values_with_keywords_are_evaluated() {
        let check =
            |text: &str, expected: &str| assert_eq!(replace(text).unwrap().0, expected, "{text}");
        let (page, cpus) = (page_bytes(), processors());
        assert!(page.is_power_of_two() && page >= 4096 && cpus >= 1 && memory_mb() > 0);
        check("$pagesize", &page.to_string());
        check("8*1024*$pagesize", &(8192 * page).to_string());
        check("$ncpus", &cpus.to_string());
        check("zoned:50/5:30/15:20/", "zoned:50/5:30/15:20/");
        check("4096*2", "4096*2");
        assert_eq!(
            replace("a${NO_SUCH_VARIABLE}b").unwrap(),
            ("ab".into(), Some("NO_SUCH_VARIABLE".into()))
        );
        assert!(matches!(replace("$ncpus*many"), Err(Cause::Expression(_))));
        assert!(matches!(replace("${X"), Err(Cause::UnclosedVariable)));
    }
}
