//! Parses a LUN from `--lun` or a file: a device URL, then options after commas. Used when a LUN is opened. The rule:
//! options are removed from the end as long as they are valid options, so that a path may contain commas.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brunt_block::{Backend, OpenError};
use brunt_core::units::parse_size;
use brunt_iscsi::scsi::{FileStore, LogicalUnit, LunOptions, unit_uuid};
use brunt_study::fault::with_fault_layer;

use super::build::Ports;
use crate::cli::Failure;
use crate::devices;

/// A parsed LUN: its URL and the options after the commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LunWords {
    pub url: String,
    thin: bool,
    pub read_only: bool,
    faults: bool,
    removable: bool,
    write_back: bool,
    pub serial: Option<String>,
    pub aptpl: Option<PathBuf>,
    sanitize_bytes_per_second: Option<u64>,
}

pub const LUN_HELP: &str = "LUN options are thin, thick, ro, removable, wb, wt, faults, block=512, \
 block=4096, serial=TEXT, aptpl=FILE, sanitize=SIZE";

/// Removes options from the end as long as they are valid options, so that a path may contain commas.
pub fn parse(text: &str) -> Result<LunWords, Failure> {
    let mut words = LunWords::default();
    let mut rest = text;
    let mut block = None;
    let mut seen: Vec<&str> = Vec::new();
    while let Some((front, word)) = rest.rsplit_once(',') {
        let (key, value) = word
            .split_once('=')
            .map_or((word, None), |(key, value)| (key, Some(value)));
        let group = match (key, value) {
            ("thin" | "thick", None) => {
                words.thin = key == "thin";
                "thin or thick"
            }
            ("wb" | "wt", None) => {
                words.write_back = key == "wb";
                "wb or wt"
            }
            ("ro" | "removable" | "faults", None) => {
                match key {
                    "ro" => words.read_only = true,
                    "removable" => words.removable = true,
                    _ => words.faults = true,
                }
                key
            }
            ("block", Some("512" | "4096")) => {
                block = value;
                key
            }
            ("serial", Some(serial))
                if !serial.is_empty() && serial.len() <= 36 && serial.is_ascii() =>
            {
                words.serial = Some(serial.to_string());
                key
            }
            ("aptpl", Some(path)) if !path.is_empty() => {
                words.aptpl = Some(PathBuf::from(path));
                key
            }
            ("sanitize", Some(size)) if parse_size(size).is_ok_and(|size| size > 0) => {
                words.sanitize_bytes_per_second = parse_size(size).ok();
                key
            }
            // The comma may belong to an existing path, or to the URL's own options, which the URL's parser checks;
            // otherwise it is a mistake.
            _ if Path::new(rest).exists() || rest.contains(['?', '[']) => break,
            _ => {
                return Err(
                    Failure::usage(format!("{text}: unknown option '{word}'")).advise(LUN_HELP)
                );
            }
        };
        if seen.contains(&group) {
            return Err(Failure::usage(format!("{text}: {group} is given twice")).advise(LUN_HELP));
        }
        seen.push(group);
        rest = front;
    }
    words.url = rest.to_string();
    if let Some(block) = block {
        words.url.push(if rest.contains('?') { '&' } else { '?' });
        words.url.push_str("block=");
        words.url.push_str(block);
    }
    Ok(words)
}

/// The kind and options of a memory or null device, and its size in bytes.
fn sized(url: &str) -> Option<(String, u64)> {
    let (kind, rest) = url
        .split_once(':')
        .filter(|(kind, _)| matches!(*kind, "memory" | "null"))?;
    let (size, options) = rest.split_once('?').unwrap_or((rest, ""));
    Some((format!("{kind}?{options}"), parse_size(size).ok()?))
}

/// The size in bytes of the memory or null device that a description names.
pub fn memory_size(text: &str) -> Option<u64> {
    sized(&parse(text).ok()?.url).map(|(_, size)| size)
}

/// Whether two descriptions differ only in the size of a memory or null device, which is then resized instead of
/// replaced.
pub fn differ_in_size(before: &str, after: &str) -> bool {
    let (Ok(old), Ok(new)) = (parse(before), parse(after)) else {
        return false;
    };
    let kind = |words: &LunWords| sized(&words.url).map(|(kind, _)| kind);
    let same_kind = kind(&old).is_some() && kind(&old) == kind(&new);
    let rest = |words: LunWords| LunWords {
        url: String::new(),
        ..words
    };
    same_kind && rest(old) == rest(new)
}

/// Opens a LUN.
///
/// # Errors
/// The device can't be opened, or can't provide what the options require.
pub fn open(
    text: &str,
    words: &LunWords,
    lun: u16,
    target_name: &str,
    ports: &Ports,
) -> Result<Arc<LogicalUnit>, Failure> {
    let words = words.clone();
    let failed = |error: OpenError| devices::open_failure(&error, format!("{text}: {error}"));
    let mut backend = devices::open_lun(&words.url).map_err(failed)?;
    if words.faults {
        backend = with_fault_layer(backend);
    }
    words
        .aptpl
        .iter()
        .try_for_each(|path| devices::check_file(path))
        .map_err(failed)?;
    let options = LunOptions {
        thin: words.thin,
        read_only: words.read_only || backend.info().read_only,
        removable: words.removable,
        write_cache: words.write_back,
        serial: words.serial.unwrap_or_else(|| serial_of(target_name, lun)),
        uuid: Some(uuid_of(backend.as_ref())),
        target_name: target_name.to_string(),
        target_ports: ports.groups(),
        alua: ports.alua,
        store: words.aptpl.map(|path| Arc::new(FileStore::new(path)) as _),
        sanitize_bytes_per_second: words.sanitize_bytes_per_second,
        ..LunOptions::default()
    };
    LogicalUnit::new(backend, options).map_err(|error| Failure::usage(format!("{text}: {error}")))
}

/// The UUID of the LUN's data: unlike serial numbers, it distinguishes LUNs of different targets that have the same
/// name.
fn uuid_of(backend: &dyn Backend) -> [u8; 16] {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    unit_uuid(&backend.storage(), boot_id.as_deref().map(str::trim))
}

/// A serial number that survives a restart, so that initiators recognize the disk. FNV-1a.
fn serial_of(target_name: &str, lun: u16) -> String {
    let hash = target_name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{:010x}{lun:04x}", hash >> 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options are removed from the end in any order, and nothing else is removed.
    #[test]
    fn options_are_taken_off_the_end_in_any_order() {
        let check = |text, expected: LunWords| assert_eq!(parse(text).unwrap(), expected, "{text}");
        let plain = |url: &str| LunWords {
            url: url.into(),
            ..LunWords::default()
        };
        check("memory:1GiB", plain("memory:1GiB"));
        check(
            "memory:1GiB,thin,wb,serial=a",
            LunWords {
                thin: true,
                write_back: true,
                serial: Some("a".into()),
                ..plain("memory:1GiB")
            },
        );
        check("null:1GiB,block=4096", plain("null:1GiB?block=4096"));
        check(
            "file:x?size=1M,ro,block=512",
            LunWords {
                read_only: true,
                ..plain("file:x?size=1M&block=512")
            },
        );
        check(
            "x,sanitize=8MiB",
            LunWords {
                sanitize_bytes_per_second: Some(8 << 20),
                ..plain("x")
            },
        );
        check(
            "memory:1M?fault=busy,p=0.5&delay=exp:1ms,servers=4",
            plain("memory:1M?fault=busy,p=0.5&delay=exp:1ms,servers=4"),
        );
        check(
            "array:raid0,[null:1M],[null:1M],ro",
            LunWords {
                read_only: true,
                ..plain("array:raid0,[null:1M],[null:1M]")
            },
        );
        check(
            "array:raid0,[null:1M],[null:1M],faults",
            LunWords {
                faults: true,
                ..plain("array:raid0,[null:1M],[null:1M]")
            },
        );
        check(
            "x,aptpl=/a/b",
            LunWords {
                aptpl: Some("/a/b".into()),
                ..plain("x")
            },
        );
    }

    /// A memory disk of a different size is still the same disk.
    #[test]
    fn a_memory_disk_of_another_size_is_the_same_disk() {
        let check = |before, after, same| {
            assert_eq!(differ_in_size(before, after), same, "{before} {after}")
        };
        check("memory:1MiB,thin", "memory:2MiB,thin", true);
        check("null:1MiB?fault=off", "null:4K?fault=off", true);
        check("null:1MiB?fault=off", "null:4K", false);
        check("memory:1MiB,thin", "memory:2MiB", false);
        check("memory:1MiB", "null:1MiB", false);
        check("disk.img", "disk.img,ro", false);
        check("disk.img", "other.img", false);
        assert_eq!(memory_size("memory:2MiB?fault=off,thin"), Some(2 << 20));
        assert_eq!(memory_size("disk.img"), None);
    }

    /// Mistakes in options are reported.
    #[test]
    fn wrong_lun_options_are_refused() {
        for text in [
            "memory:1GiB,fast",
            "null:1M,block=520",
            "null:1M,thin,thick",
            "null:1M,serial=",
            "null:1M,sanitize=0",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
