//! What can be opened by name: the table of backends and the table of layers, and the device URLs
//! that people write. A new backend or layer is one file with its entry, and one line here.
//!
//! ```text
//! null:1GiB                                 a backend and its argument
//! memory:64MiB?block=4096                   with an option
//! /dev/nvme0n1    file:disk.img             a path is a file or block device
//! file:disk.img?size=1GiB&create=yes&delay=const:100us
//! array:raid1,[memory:1GiB?fault=off],[memory:1GiB]?retry=3      devices within, in brackets
//! ```
//!
//! Options follow the last `?` as `key=value` joined by `&`. Options that name a layer stack it on
//! the backend, the first nearest to it, and may be there several times. What is wrong is answered with what would be right.

use crate::backends::{array, file, memory, null, tcp};
use crate::layers::{delayed, fault, retry};
use crate::open::Tables;
pub use crate::open::{BackendEntry, LayerEntry, NESTING_MAX, OpenError, Opened, Options};

/// All backends of this crate. Others ([`open_url_with`]) come from the crates above.
pub static BACKENDS: &[BackendEntry] = &[null::ENTRY, memory::ENTRY, file::ENTRY, tcp::ENTRY, array::ENTRY];

/// All layers.
pub static LAYERS: &[LayerEntry] = &[
    delayed::ENTRY,
    fault::ENTRY,
    retry::ENTRY,
    #[cfg(test)]
    crate::layers::budget::ENTRY,
];

/// All that can be opened and stacked, for a command's help; `more` as for [`open_url_with`].
pub fn help(more: &[BackendEntry]) -> String {
    let mut text = String::from("Devices (options behind ? as key=value, joined by &):");
    for entry in BACKENDS.iter().chain(more) {
        text += &format!("\n  {}\n      {}", entry.example, entry.help);
        for (key, help) in entry.options {
            text += &format!("\n      {key}: {help}");
        }
    }
    text +=
        "\nLayers, options of any device; the first is nearest to it, and they may be there several times:";
    for layer in LAYERS {
        text += &format!("\n  ?{}={}\n      {}", layer.name, layer.example, layer.help);
    }
    text
}

/// Opens what a URL names.
///
/// # Errors
/// See [`OpenError`].
pub fn open_url(text: &str) -> Opened {
    open_url_with(text, &[], false)
}

/// Opens what a URL names, with backends that other crates add (an initiator), and read-only when
/// the caller has nothing to write: a mounted disk may be read then.
///
/// # Errors
/// See [`OpenError`].
pub fn open_url_with(text: &str, more: &[BackendEntry], read_only: bool) -> Opened {
    let backends = BACKENDS.iter().chain(more).copied().collect();
    let tables = Tables { backends, path: Some(file::ENTRY), layers: LAYERS };
    crate::open::open_within(text, &tables, read_only, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Every line of the help can be used.
    #[test]
    fn tables_are_whole() {
        let folder = tempfile::tempdir().unwrap();
        let sink = tcp::Sink::start(tcp::SinkConfig::default()).unwrap();
        let mut names = HashSet::new();
        for entry in BACKENDS {
            assert!(names.insert(entry.name), "{} is there twice", entry.name);
            assert!(!entry.help.is_empty() && !entry.help.contains('\n'));
            assert!(entry.options.iter().all(|(key, help)| !key.is_empty() && !help.is_empty()));
            assert!(entry.example.starts_with(entry.name));
            let example = entry.example.replace("/tmp", folder.path().to_str().unwrap());
            let example = example.replace("127.0.0.1:5260", &sink.address().to_string());
            let backend = open_url(&example).unwrap();
            assert!(backend.info().size_bytes > 0 && !backend.info().name.is_empty());
            for (key, _) in entry.options {
                assert!(LAYERS.iter().all(|layer| layer.name != *key), "{key} is an option and a layer");
            }
        }
        for layer in LAYERS {
            assert!(names.insert(layer.name), "{} is there twice", layer.name);
            assert!(!layer.help.is_empty() && !layer.help.contains('\n'));
            let backend = open_url(&format!("null:1MiB?{}={}", layer.name, layer.example)).unwrap();
            assert!(matches!(backend.inline(), crate::Inline::No), "data must not pass {} by", layer.name);
        }
    }

    /// The help leaves nothing out.
    #[test]
    fn help_is_whole() {
        let text = help(&[]);
        for name in BACKENDS.iter().map(|entry| entry.name).chain(LAYERS.iter().map(|layer| layer.name)) {
            assert!(text.contains(&format!("  {name}:")) || text.contains(&format!("  ?{name}=")), "{name}");
        }
        assert!(text.contains("spare=[URL]") && text.contains("reservation-conflict"));
    }

    /// A mistake is answered with what would be right.
    #[test]
    fn mistakes() {
        let check = |url: &str, words: &str| {
            let error = open_url(url).err().unwrap_or_else(|| panic!("{url} opened")).to_string();
            assert!(error.contains(words), "{url}: '{error}' does not say '{words}'");
        };
        check("nul:1GiB", "there are null, memory, file, tcp");
        check("http://host/disk", "no backend 'http'");
        check("null:", "names nothing");
        check("", "names nothing");
        check("null:1Q", "known are");
        check("null:100", "less than one block");
        check("null:1GiB?block=1000", "512 or 4096");
        check("null:1GiB?direct=no", "null has no option 'direct'; there are block");
        check("null:1GiB?block=512&block=4096", "twice");
        check("memory:1GiB?block=512&x", "key=value");
        check("/nowhere/at/all", "cannot open /nowhere/at/all");
        check("file:/tmp/x?direct=maybe", "yes or no");
        check("/dev/null", "neither a file nor a block device");
    }

    /// Blocks and sizes are what was asked for.
    #[test]
    fn options_arrive() {
        let info = |url| open_url(url).unwrap().info().clone();
        assert_eq!(info("null:1MiB").block_bytes, 512);
        let memory = info("memory:1MiB?block=4096");
        assert_eq!((memory.block_bytes, memory.size_bytes), (4096, 1 << 20));
    }
}
