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

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use brunt_core::units::{UnitError, parse_size};

use crate::Backend;
use crate::backends::{file, memory, null, tcp};
use crate::layers::{array, delayed, fault, retry};

/// All backends of this crate. Others ([`open_url_with`]) come from the crates above.
pub static BACKENDS: &[BackendEntry] = &[null::ENTRY, memory::ENTRY, file::ENTRY, tcp::ENTRY, array::ENTRY];

/// All layers.
pub static LAYERS: &[LayerEntry] = &[delayed::ENTRY, fault::ENTRY, retry::ENTRY];

/// Most devices within each other: an array of arrays of mirrors is three.
pub const NESTING_MAX: u32 = 8;

/// What opening gives.
pub type Opened = Result<Arc<dyn Backend>, OpenError>;

/// One kind of backend.
#[derive(Clone, Copy, Debug)]
pub struct BackendEntry {
    /// What a URL starts with, up to the colon.
    pub name: &'static str,
    /// One line.
    pub help: &'static str,
    /// A URL that works.
    pub example: &'static str,
    /// Keys and one line of help each.
    pub options: &'static [(&'static str, &'static str)],
    /// Opens it from what stands behind the colon, taking the options that it knows.
    pub open: fn(&str, &mut Options) -> Opened,
}

/// One kind of layer.
#[derive(Clone, Copy, Debug)]
pub struct LayerEntry {
    /// The option that stacks it.
    pub name: &'static str,
    /// One line.
    pub help: &'static str,
    /// A value of the option that works.
    pub example: &'static str,
    /// Puts it on a backend, configured by the option's value.
    pub wrap: fn(Arc<dyn Backend>, &str) -> Opened,
}

/// Why a URL could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No such backend.
    #[error("'{url}': there is no backend '{scheme}'; there are {known}, and plain paths")]
    UnknownBackend {
        /// The whole text.
        url: String,
        /// What stood before the colon.
        scheme: String,
        /// All of them.
        known: String,
    },
    /// An option that neither the backend nor a layer knows.
    #[error("{backend} has no option '{option}'; there are {known}")]
    UnknownOption {
        /// Whose.
        backend: String,
        /// The key.
        option: String,
        /// All of them.
        known: String,
    },
    /// An option that is there twice.
    #[error("option '{0}' is there twice")]
    RepeatedOption(String),
    /// A value that is not what the option takes.
    #[error("{option}={value}: {wanted}")]
    BadValue {
        /// The key.
        option: String,
        /// What was written.
        value: String,
        /// What would be right.
        wanted: String,
    },
    /// Not a size or a time.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// The operating system said no.
    #[error("{what} {}: {source}", path.display())]
    Os {
        /// "cannot open", for example.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A block device that somebody else uses.
    #[error("{} is in use ({by}); read_only=yes reads it all the same, force=yes risks what is on it", path.display())]
    InUse {
        /// Which.
        path: PathBuf,
        /// Who uses it.
        by: String,
    },
    /// It can be opened, but not so: the text, or the file it names, is wrong.
    #[error("{0}")]
    Refused(String),
    /// The text is right, but who would have to serve it does not: no answer, no login, no memory.
    #[error("{0}")]
    Failed(String),
}

/// The `key=value` pairs of a URL; who knows a key takes it, what is left is an error.
#[derive(Debug, Default)]
pub struct Options {
    pairs: Vec<(String, String)>,
    /// With which devices within are opened.
    more: Vec<BackendEntry>,
    read_only: bool,
    /// How many devices this one is within.
    nesting: u32,
}

impl Options {
    /// The pairs of `a=b&c=d`.
    fn parse(text: &str) -> Result<Options, OpenError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| OpenError::BadValue {
                option: pair.to_string(),
                value: String::new(),
                wanted: format!("options are written key=value, as in {pair}=yes"),
            })?;
            let is_layer = LAYERS.iter().any(|layer| layer.name == key);
            if !is_layer && pairs.iter().any(|(known, _)| known == key) {
                return Err(OpenError::RepeatedOption(key.to_string()));
            }
            pairs.push((key.to_string(), value.to_string()));
        }
        Ok(Options { pairs, ..Options::default() })
    }

    /// Opens a device that is part of this one, by its URL.
    ///
    /// # Errors
    /// As [`open_url`]; and more than [`NESTING_MAX`] are within each other.
    pub fn open(&self, url: &str) -> Opened {
        if self.nesting + 1 >= NESTING_MAX {
            return Err(OpenError::Refused(format!("more than {NESTING_MAX} devices within each other")));
        }
        open_within(url, &self.more, self.read_only, self.nesting + 1)
    }

    /// Adds a pair, over one of the same key.
    pub fn set(&mut self, key: &str, value: &str) {
        self.pairs.retain(|(known, _)| known != key);
        self.pairs.push((key.to_string(), value.to_string()));
    }

    /// The value of `key`, once.
    pub fn take(&mut self, key: &str) -> Option<String> {
        let index = self.pairs.iter().position(|(known, _)| known == key)?;
        Some(self.pairs.remove(index).1)
    }

    /// A yes or no.
    ///
    /// # Errors
    /// It is neither.
    pub fn flag(&mut self, key: &str) -> Result<Option<bool>, OpenError> {
        self.take(key)
            .map(|value| match value.as_str() {
                "yes" | "true" | "on" | "1" => Ok(true),
                "no" | "false" | "off" | "0" => Ok(false),
                _ => Err(bad_value(key, &value, "write yes or no")),
            })
            .transpose()
    }

    /// A size in bytes.
    ///
    /// # Errors
    /// It is not a size.
    pub fn size(&mut self, key: &str) -> Result<Option<u64>, OpenError> {
        self.take(key).map(|value| Ok(parse_size(&value)?)).transpose()
    }

    /// The option `block`: a logical block of 512 or 4096 bytes.
    ///
    /// # Errors
    /// It is another size.
    pub fn block(&mut self) -> Result<Option<u32>, OpenError> {
        self.take("block")
            .map(|value| match parse_size(&value) {
                Ok(bytes @ (512 | 4096)) => Ok(bytes as u32),
                _ => Err(bad_value("block", &value, "logical blocks have 512 or 4096 bytes")),
            })
            .transpose()
    }
}

pub(crate) fn bad_value(option: &str, value: &str, wanted: &str) -> OpenError {
    OpenError::BadValue { option: option.to_string(), value: value.to_string(), wanted: wanted.to_string() }
}

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
    open_within(text, more, read_only, 0)
}

/// What stands before a URL's options, and they.
pub(crate) fn split_options(text: &str) -> (&str, &str) {
    // Options of a device in brackets are its own.
    let outside = if text.ends_with(']') { None } else { Some(text.rfind(']').map_or(0, |at| at + 1)) };
    match outside.and_then(|from| Some(from + text[from..].rfind('?')?)) {
        // A path may have a question mark of its own; options have an equals sign.
        Some(at) if text[at..].contains('=') => (&text[..at], &text[at + 1..]),
        _ => (text, ""),
    }
}

fn open_within(text: &str, more: &[BackendEntry], read_only: bool, nesting: u32) -> Opened {
    let text = text.trim();
    let (place, options) = split_options(text);
    let mut options = Options::parse(options)?;
    (options.more, options.read_only, options.nesting) = (more.to_vec(), read_only, nesting);
    let mut layers = Vec::new();
    for pair in std::mem::take(&mut options.pairs) {
        match LAYERS.iter().find(|layer| layer.name == pair.0) {
            Some(layer) => layers.push((layer, pair.1)),
            None => options.pairs.push(pair),
        }
    }

    let all = || BACKENDS.iter().chain(more);
    let (entry, argument) = match place.split_once(':') {
        Some((scheme, argument)) if !scheme.contains('/') => {
            match all().find(|entry| entry.name == scheme) {
                Some(entry) => (entry, argument),
                // A file of that very name, colon and all.
                None if std::path::Path::new(place).exists() => (&file::ENTRY, place),
                None => {
                    return Err(OpenError::UnknownBackend {
                        url: text.to_string(),
                        scheme: scheme.to_string(),
                        known: all().map(|entry| entry.name).collect::<Vec<_>>().join(", "),
                    });
                }
            }
        }
        _ => (&file::ENTRY, place),
    };
    if argument.is_empty() {
        return Err(OpenError::Refused(format!(
            "'{text}' names nothing; write for example {}",
            entry.example
        )));
    }
    // A file that is to be made is written, whatever is done to it afterwards.
    let made = options.pairs.iter().any(|(key, _)| key == "create");
    if read_only && !made && entry.options.iter().any(|(key, _)| *key == "read_only") {
        options.set("read_only", "yes");
    }
    if let Some((option, _)) =
        options.pairs.iter().find(|(key, _)| entry.options.iter().all(|(known, _)| known != key))
    {
        let own = entry.options.iter().map(|(key, _)| *key);
        let known: Vec<_> = own.chain(LAYERS.iter().map(|layer| layer.name)).collect();
        return Err(OpenError::UnknownOption {
            backend: entry.name.to_string(),
            option: option.clone(),
            known: if known.is_empty() { "none".to_string() } else { known.join(", ") },
        });
    }
    let mut backend = (entry.open)(argument, &mut options)?;
    assert!(options.pairs.is_empty(), "{} lists an option that it does not take: {options:?}", entry.name);
    for (layer, value) in layers {
        backend = (layer.wrap)(backend, &value)?;
    }
    Ok(backend)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// The goal: whoever reads `--help` can use every line of it.
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

    /// The goal: the help leaves nothing out.
    #[test]
    fn help_is_whole() {
        let text = help(&[]);
        for name in BACKENDS.iter().map(|entry| entry.name).chain(LAYERS.iter().map(|layer| layer.name)) {
            assert!(text.contains(&format!("  {name}:")) || text.contains(&format!("  ?{name}=")), "{name}");
        }
        assert!(text.contains("spare=[URL]") && text.contains("reservation-conflict"));
    }

    /// The goal: a mistake is answered with what would be right.
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

    /// The goal: blocks and sizes are what was asked for.
    #[test]
    fn options_arrive() {
        let info = |url| open_url(url).unwrap().info().clone();
        assert_eq!(info("null:1MiB").block_bytes, 512);
        let memory = info("memory:1MiB?block=4096");
        assert_eq!((memory.block_bytes, memory.size_bytes), (4096, 1 << 20));
    }
}
