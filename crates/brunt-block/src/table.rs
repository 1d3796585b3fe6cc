//! The tables of backends and layers, and the device URLs that users write. A new backend or layer takes one file with
//! its entry, plus one line here.
//!
//! ```text
//! null:1GiB                                 a backend and its argument
//! memory:64MiB?block=4096                   with an option
//! /dev/nvme0n1    file:disk.img             a path is a file or block device
//! file:disk.img?size=1GiB&create=yes&delay=const:100us
//! array:raid1,[memory:1GiB?fault=off],[memory:1GiB]?retry=3      nested devices, in brackets
//! ```
//!
//! Options follow the last `?` as `key=value`, joined by `&`. An option that names a layer stacks it on the backend;
//! the first layer is closest to the backend, and layers can be repeated. Errors say what would be correct.

use std::sync::Arc;

use brunt_core::device_url::without_secrets;

use crate::backends::{array, file, join, memory, null, tcp};
use crate::layers::{delayed, fault, retry, stics};
use crate::open::{self, Parsed, Tables};
pub use crate::open::{
    BackendEntry, DevicePreview, LayerEntry, NESTING_MAX, OpenError, Opened, Permit, UrlOptions,
};
use crate::{Backend, DeviceInfo};

/// All backends of this crate. Higher-level crates add others through [`open_url_with`].
pub static BACKENDS: &[BackendEntry] = &[
    null::ENTRY,
    memory::ENTRY,
    file::ENTRY,
    tcp::ENTRY,
    array::ENTRY,
    join::ENTRY,
];

/// All layers.
pub static LAYERS: &[LayerEntry] = &[
    delayed::ENTRY,
    fault::ENTRY,
    retry::ENTRY,
    stics::ENTRY,
    #[cfg(test)]
    crate::layers::budget::ENTRY,
];

/// Lists all backends and layers for a command's help; `more` as for [`open_url_with`].
pub fn help(more: &[BackendEntry]) -> String {
    let mut text = String::from("Devices (append options as ?key=value, separated by &):");
    let mut listed: &[(&str, &str)] = &[];
    for entry in BACKENDS.iter().chain(more) {
        text += &format!("\n  {}\n      {}", entry.example, entry.help);
        // Backends with the same options are adjacent; only the first lists them.
        let options = if std::ptr::eq(entry.options, listed) {
            &[]
        } else {
            entry.options
        };
        listed = entry.options;
        for (key, help) in options {
            text += &format!("\n      {key}: {help}");
        }
    }
    text += "\nLayers (options of any device; may be repeated; the first one is closest to the \
        device):";
    for layer in LAYERS {
        text += &format!(
            "\n  ?{}={}\n      {}",
            layer.name, layer.example, layer.help
        );
    }
    text
}

/// Opens the device given by a URL.
///
/// # Errors
/// See [`OpenError`].
pub fn open_url(text: &str) -> Opened {
    open_url_with(text, &[], false)
}

/// Opens the device given by a URL, with additional backends from other crates (an initiator, for example). With
/// `read_only` the device is opened for reading only, which is allowed even for a mounted disk.
///
/// # Errors
/// See [`OpenError`].
pub fn open_url_with(text: &str, more: &[BackendEntry], read_only: bool) -> Opened {
    open::open_within(text, &tables(more), read_only, 0)
}

/// Like [`open_url_with`], on behalf of a client: `permit` must allow every device opened, including nested ones.
///
/// # Errors
/// See [`OpenError`].
pub fn open_url_permitted(
    text: &str,
    more: &[BackendEntry],
    read_only: bool,
    permit: Arc<dyn Permit>,
) -> Opened {
    open::open_within(
        text,
        &Tables {
            permit: Some(permit),
            ..tables(more)
        },
        read_only,
        0,
    )
}

/// Checks a URL without opening its device or contacting a server: reports mistakes in its text, and returns the
/// device's size if it is known. Unknown properties have their most favourable values.
///
/// # Errors
/// See [`OpenError`].
pub fn preview_url_with(
    text: &str,
    more: &[BackendEntry],
) -> Result<Option<DeviceInfo>, OpenError> {
    let Parsed {
        entry,
        argument,
        mut options,
        layers,
    } = open::parse(text, &tables(more), false, 0)?;
    let Some(known) = (entry.preview)(&argument, &mut options)? else {
        return Ok(None);
    };
    // Layers check only sizes and block sizes, so a null device with these shows whether they fit.
    let mut stand_in: Arc<dyn Backend> =
        Arc::new(null::NullBackend::new(known.size_bytes, known.block_bytes));
    for (layer, value) in layers {
        stand_in = layer.preview.unwrap_or(layer.wrap)(stand_in, &value)?;
    }
    let (name, info) = (without_secrets(text.trim()), stand_in.info().clone());
    Ok(Some(DeviceInfo {
        name,
        read_only: info.read_only || known.read_only,
        ..info
    }))
}

fn tables(more: &[BackendEntry]) -> Tables {
    let backends = BACKENDS.iter().chain(more).copied().collect();
    Tables {
        backends,
        path: Some(file::ENTRY),
        layers: LAYERS,
        permit: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Allows memory and arrays only.
    #[derive(Debug)]
    struct MemoryOnly;
    impl Permit for MemoryOnly {
        fn check(&self, backend: &str, argument: &str) -> Result<(), OpenError> {
            match backend {
                "memory" | "array" => Ok(()),
                _ => Err(OpenError::NotAllowed {
                    device: format!("{backend}:{argument}"),
                    allowed: "memory:".into(),
                }),
            }
        }
    }

    /// A nested device needs permission like any other, in any notation.
    #[test]
    fn devices_without_permission_are_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("made");
        let made = format!("{}?size=1MiB&create=yes", file.display());
        let open = |url: &str| open_url_permitted(url, &[], false, Arc::new(MemoryOnly));
        assert!(open("memory:1MiB?fault=off").is_ok());
        assert!(open("array:raid1,[memory:1MiB],[memory:1MiB]").is_ok());
        for url in [
            "null:1MiB".to_string(),
            made.clone(),
            format!("file:{made}"),
            format!("array:raid1,[memory:1MiB],[{made}]"),
            format!("array:raid0,[array:raid1,[memory:1MiB],[{made}]],[memory:1MiB]"),
        ] {
            assert!(
                matches!(open(&url), Err(OpenError::NotAllowed { .. })),
                "{url}"
            );
        }
        assert!(
            !file.exists(),
            "a file that may not be opened is not created either"
        );
        let url = format!("memory:1MiB?stics={}", file.display());
        let error = open_url_permitted(&url, &[], false, Arc::new(MemoryOnly))
            .err()
            .expect("refused");
        assert!(
            matches!(error, OpenError::NotAllowed { .. }) && !file.exists(),
            "a layer's file: {error}"
        );
    }

    /// Every example in the help works.
    #[test]
    fn tables_are_whole() {
        let folder = tempfile::tempdir().unwrap();
        let sink = tcp::start_sink(crate::sink::SinkConfig::default()).unwrap();
        let mut names = HashSet::new();
        for entry in BACKENDS {
            assert!(names.insert(entry.name), "{} appears twice", entry.name);
            assert!(!entry.help.is_empty() && !entry.help.contains('\n'));
            assert!(
                entry
                    .options
                    .iter()
                    .all(|(key, help)| !key.is_empty() && !help.is_empty())
            );
            assert!(entry.example.starts_with(entry.name));
            let example = entry
                .example
                .replace("/tmp", folder.path().to_str().unwrap());
            let example = example.replace("127.0.0.1:5260", &sink.address().to_string());
            let foreseen = preview_url_with(&example, &[]).unwrap();
            let backend = open_url(&example).unwrap();
            assert!(backend.info().size_bytes > 0 && !backend.info().name.is_empty());
            let same = |info: DeviceInfo| {
                assert_eq!(info.size_bytes, backend.info().size_bytes, "{example}")
            };
            foreseen.into_iter().for_each(same);
            for (key, _) in entry.options {
                assert!(
                    LAYERS.iter().all(|layer| layer.name != *key),
                    "{key} is an option and a layer"
                );
            }
        }
        for layer in LAYERS {
            assert!(names.insert(layer.name), "{} appears twice", layer.name);
            assert!(!layer.help.is_empty() && !layer.help.contains('\n'));
            let example = layer
                .example
                .replace("/tmp", folder.path().to_str().unwrap());
            let url = format!("null:1MiB?{}={example}", layer.name);
            preview_url_with(&url, &[])
                .unwrap()
                .expect("its size is in its URL");
            assert!(
                layer
                    .file
                    .is_none_or(|file| !std::path::Path::new(file(&example)).exists()),
                "{url}"
            );
            let backend = open_url(&url).unwrap();
            assert!(
                matches!(backend.inline(), crate::Inline::No),
                "data must not pass {} by",
                layer.name
            );
        }
    }

    #[test]
    fn help_lists_all_backends_and_layers() {
        let text = help(&[]);
        for name in BACKENDS
            .iter()
            .map(|entry| entry.name)
            .chain(LAYERS.iter().map(|layer| layer.name))
        {
            assert!(
                text.contains(&format!("  {name}:")) || text.contains(&format!("  ?{name}=")),
                "{name}"
            );
        }
        assert!(text.contains("spare=[URL]") && text.contains("reservation-conflict"));
    }

    #[test]
    fn errors_come_with_a_correction() {
        let check = |url: &str, words: &str| {
            let error = open_url(url)
                .err()
                .unwrap_or_else(|| panic!("{url} opened"))
                .to_string();
            assert!(
                error.contains(words),
                "{url}: '{error}' does not say '{words}'"
            );
        };
        check("nul:1GiB", "use null, memory, file, tcp");
        check("http://host/disk", "unknown backend 'http'");
        check("null:", "names no device");
        check("", "names no device");
        check("null:1Q", "use ");
        check("null:100", "less than one block");
        check("null:1GiB?block=1000", "512 or 4096");
        check(
            "null:1GiB?direct=no",
            "null has no option 'direct'; its options are block",
        );
        check("null:1GiB?block=512&block=4096", "twice");
        check("memory:1GiB?block=512&x", "key=value");
        check("/nowhere/at/all", "cannot open /nowhere/at/all");
        check("file:/tmp/x?direct=maybe", "yes or no");
        check("/dev/null", "neither a file nor a block device");
    }

    #[test]
    fn sizes_and_mistakes_are_known_without_opening() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        let file = path.display();
        let size = |url: &str| {
            preview_url_with(url, &[])
                .unwrap()
                .map(|info| info.size_bytes)
        };
        assert_eq!(size("null:1280MiB?retry=3"), Some(1_342_177_280));
        assert_eq!(size("memory:1000000"), Some(999_936));
        assert_eq!(
            size(&format!("file:{file}?size=8MiB&create=yes")),
            Some(8 << 20)
        );
        assert!(!path.exists(), "nothing is made");
        std::fs::write(&path, vec![0; 5000]).unwrap();
        assert_eq!(size(&format!("{file}")), Some(4608));
        assert_eq!(size("array:raid1,[memory:1GiB],[memory:1GiB]"), None);
        let read_only = preview_url_with(&format!("file:{file}?read_only=yes"), &[])
            .unwrap()
            .unwrap();
        assert!(read_only.read_only);
        for url in [
            "nul:1GiB",
            "null:1GiB?direct=no",
            "null:1GiB?delay=maybe",
            "null:1MiB?fault=nonsense",
            "null:7",
        ] {
            assert!(preview_url_with(url, &[]).is_err(), "{url}");
        }
        let missing = preview_url_with("/nowhere/at/all", &[]).unwrap_err();
        assert!(matches!(missing, OpenError::Os { .. }), "{missing}");
    }

    /// Options take effect: blocks and sizes are as requested.
    #[test]
    fn options_take_effect() {
        let info = |url| open_url(url).unwrap().info().clone();
        assert_eq!(info("null:1MiB").block_bytes, 512);
        let memory = info("memory:1MiB?block=4096");
        assert_eq!((memory.block_bytes, memory.size_bytes), (4096, 1 << 20));
    }
}
