//! Lists of CPUs in the kernel's format, as in `/sys/devices/system/cpu/online`.

/// More CPUs than any kernel supports.
pub const CPUS_MAX: usize = 1 << 13;

/// Parses the kernel's list format, such as `0-3,8,10-11`. Skips what it can't parse.
pub fn parse_cpu_list(text: &str) -> Vec<usize> {
    text.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?.min(CPUS_MAX))
        })
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_parsed_and_invalid_entries_skipped() {
        let check = |text: &str, cpus: &[usize]| assert_eq!(parse_cpu_list(text), cpus, "{text:?}");
        check("0", &[0]);
        check("0\n", &[0]);
        check("0-3,8", &[0, 1, 2, 3, 8]);
        check("0-3,8,10-11\n", &[0, 1, 2, 3, 8, 10, 11]);
        check("", &[]);
        check("\n", &[]);
        check("3-1,x,5", &[5]);
    }
}
