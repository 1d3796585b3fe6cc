//! Parses and opens device URLs, given the tables of what can be opened, and reports mistakes. Backends and
//! layers take their options from here; [`crate::table`] has the tables.
//!
//! The rule: an option that nothing consumes is an error, so that a misspelt one is never ignored.

use std::sync::Arc;
use std::time::Duration;

use brunt_core::device_url::{MASK, is_secret_key, split_options, without_secrets};
use brunt_core::units::{format_duration, parse_duration, parse_size};

use crate::Backend;
pub use crate::open_error::OpenError;

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
    pub open: fn(&str, &mut UrlOptions) -> Opened,
    /// What can be known of it without opening it or asking anybody; takes the same options.
    pub foresee: fn(&str, &mut UrlOptions) -> Result<Option<Foreseen>, OpenError>,
}

/// What is known of a device before it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreseen {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The smallest logical block in bytes that it may turn out to have.
    pub block_bytes: u32,
    /// Writes will be refused.
    pub read_only: bool,
}

/// Puts a layer on a backend, configured by its option's value.
pub type Wrap = fn(Arc<dyn Backend>, &str) -> Opened;

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
    pub wrap: Wrap,
    /// The same on a stand-in for a backend that is not opened: finds mistakes, and opens nothing. `None` where `wrap`
    /// opens nothing either.
    pub foresee: Option<Wrap>,
    /// The file that it opens for this value, if it opens one: a [`Permit`] is asked for it as for a `file:`.
    pub file: Option<fn(&str) -> &str>,
}

/// Says what may be opened for somebody else. Asked for each device, also for those within others.
pub trait Permit: std::fmt::Debug + Send + Sync {
    /// Whether a device of this backend may be opened, named by what stands behind the colon.
    ///
    /// # Errors
    /// It may not: [`OpenError::NotAllowed`], or what kept it from being found out.
    fn check(&self, backend: &str, argument: &str) -> Result<(), OpenError>;
}

/// What can be opened: backends, the one that a plain path means, and layers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    pub backends: Vec<BackendEntry>,
    pub path: Option<BackendEntry>,
    pub layers: &'static [LayerEntry],
    /// Who is asked first; `None`: everything may be opened.
    pub permit: Option<Arc<dyn Permit>>,
}

/// The `key=value` pairs of a URL; who knows a key takes it, what is left is an error.
#[derive(Debug, Default)]
pub struct UrlOptions {
    pairs: Vec<(String, String)>,
    /// With which devices within are opened.
    tables: Tables,
    read_only: bool,
    /// How many devices this one is within.
    nesting: u32,
}

impl UrlOptions {
    /// The pairs of `a=b&c=d`.
    fn parse(text: &str, layers: &[LayerEntry]) -> Result<UrlOptions, OpenError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(match pairs.last() {
                    // The rest of the secret stays out of the message.
                    Some((key, _)) if is_secret_key(key) => bad_value(
                        key,
                        MASK,
                        "a secret in a URL cannot contain '&'; pass it in the environment",
                    ),
                    _ => bad_value(
                        pair,
                        "",
                        &format!("options are written key=value, as in {pair}=yes"),
                    ),
                });
            };
            let is_layer = layers.iter().any(|layer| layer.name == key);
            if !is_layer && pairs.iter().any(|(known, _)| known == key) {
                return Err(OpenError::RepeatedOption(key.to_string()));
            }
            pairs.push((key.to_string(), value.to_string()));
        }
        Ok(UrlOptions {
            pairs,
            ..UrlOptions::default()
        })
    }

    /// Opens a device that is part of this one, by its URL.
    ///
    /// # Errors
    /// See [`OpenError`]; and more than [`NESTING_MAX`] are within each other.
    pub fn open(&self, url: &str) -> Opened {
        if self.nesting + 1 >= NESTING_MAX {
            return Err(OpenError::Refused(format!(
                "more than {NESTING_MAX} devices within each other"
            )));
        }
        open_within(url, &self.tables, self.read_only, self.nesting + 1)
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
        self.take(key)
            .map(|value| Ok(parse_size(&value)?))
            .transpose()
    }

    /// A number between two others.
    ///
    /// # Errors
    /// It is none, or not between them.
    pub fn number(
        &mut self,
        key: &str,
        default: u64,
        min: u64,
        max: u64,
    ) -> Result<u64, OpenError> {
        let Some(value) = self.take(key) else {
            return Ok(default);
        };
        match value.parse() {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => Err(bad_value(
                key,
                &value,
                &format!("write a number from {min} to {max}"),
            )),
        }
    }

    /// A time from `min` on.
    ///
    /// # Errors
    /// It is none, or shorter.
    pub fn time(
        &mut self,
        key: &str,
        default: Duration,
        min: Duration,
    ) -> Result<Duration, OpenError> {
        let Some(value) = self.take(key) else {
            return Ok(default);
        };
        match parse_duration(&value)? {
            time if time >= min => Ok(time),
            _ => Err(bad_value(
                key,
                &value,
                &format!("write a time of at least {}", format_duration(min)),
            )),
        }
    }

    /// The option `block`: a logical block of 512 or 4096 bytes.
    ///
    /// # Errors
    /// It is another size.
    pub fn block(&mut self) -> Result<Option<u32>, OpenError> {
        self.take("block")
            .map(|value| match parse_size(&value) {
                Ok(bytes @ (512 | 4096)) => Ok(bytes as u32),
                _ => Err(bad_value(
                    "block",
                    &value,
                    "logical blocks have 512 or 4096 bytes",
                )),
            })
            .transpose()
    }
}

pub(crate) fn bad_value(option: &str, value: &str, wanted: &str) -> OpenError {
    OpenError::BadValue {
        option: option.to_string(),
        value: value.to_string(),
        wanted: wanted.to_string(),
    }
}

/// Reads `host[:port]` or `[v6][:port]`. The port is not 0. The zone of a link-local address, `%25eth0` in a URL (RFC 6874), is
/// given back as the system has it: `%eth0`.
pub fn host_and_port(text: &str, default_port: u16) -> Option<(String, u16)> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(text) => text.split_once(']')?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match rest.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|port| *port > 0)?,
        None if rest.is_empty() => default_port,
        None => return None,
    };
    let host = match text.starts_with('[') {
        true => host.replacen("%25", "%", 1),
        false => host.to_string(),
    };
    (!host.is_empty()).then_some((host, port))
}

/// A URL taken apart: whose it is, and what it says to it and to the layers on it.
pub(crate) struct Parsed<'a> {
    pub entry: BackendEntry,
    pub argument: &'a str,
    pub options: UrlOptions,
    pub layers: Vec<(&'static LayerEntry, String)>,
}

/// Takes a URL apart.
///
/// # Errors
/// Its text is wrong.
pub(crate) fn parse<'a>(
    text: &'a str,
    tables: &Tables,
    read_only: bool,
    nesting: u32,
) -> Result<Parsed<'a>, OpenError> {
    let text = text.trim();
    let (place, options) = split_options(text);
    let mut options = UrlOptions::parse(options, tables.layers)?;
    (options.tables, options.read_only, options.nesting) = (tables.clone(), read_only, nesting);
    let mut layers = Vec::new();
    for pair in std::mem::take(&mut options.pairs) {
        match tables.layers.iter().find(|layer| layer.name == pair.0) {
            Some(layer) => layers.push((layer, pair.1)),
            None => options.pairs.push(pair),
        }
    }

    let (argument, entry) = entry_of(text, place, tables)?;
    if argument.is_empty() {
        return Err(OpenError::Refused(format!(
            "'{}' names nothing; write for example {}",
            without_secrets(text),
            entry.example
        )));
    }
    // A file that is to be made is written, whatever is done to it afterwards.
    let made = options.pairs.iter().any(|(key, _)| key == "create");
    if read_only && !made && entry.options.iter().any(|(key, _)| *key == "read_only") {
        options.set("read_only", "yes");
    }
    refuse_unknown(entry, &options, tables)?;
    Ok(Parsed {
        entry,
        argument,
        options,
        layers,
    })
}

/// Opens what a URL names, `nesting` devices deep in others.
///
/// # Errors
/// See [`OpenError`].
pub(crate) fn open_within(text: &str, tables: &Tables, read_only: bool, nesting: u32) -> Opened {
    let Parsed {
        entry,
        argument,
        mut options,
        layers,
    } = parse(text, tables, read_only, nesting)?;
    if let Some(permit) = &tables.permit {
        permit.check(entry.name, argument)?;
        for (layer, value) in &layers {
            if let Some(file) = layer.file {
                permit.check("file", file(value))?;
            }
        }
    }
    let mut backend = (entry.open)(argument, &mut options)?;
    assert!(
        options.pairs.is_empty(),
        "{} lists an option that it does not take: {options:?}",
        entry.name
    );
    for (layer, value) in layers {
        backend = (layer.wrap)(backend, &value)?;
    }
    Ok(backend)
}

/// The backend that a URL's place is for, and its argument.
fn entry_of<'a>(
    text: &str,
    place: &'a str,
    tables: &Tables,
) -> Result<(&'a str, BackendEntry), OpenError> {
    let path = tables.path.expect("the table says what a plain path is");
    let Some((scheme, argument)) = place
        .split_once(':')
        .filter(|(scheme, _)| !scheme.contains('/'))
    else {
        return Ok((place, path));
    };
    match tables.backends.iter().find(|entry| entry.name == scheme) {
        Some(entry) => Ok((argument, *entry)),
        // A file of that very name, colon and all.
        None if std::path::Path::new(place).exists() => Ok((place, path)),
        None => Err(OpenError::UnknownBackend {
            url: without_secrets(text),
            scheme: scheme.to_string(),
            known: tables
                .backends
                .iter()
                .map(|entry| entry.name)
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}

fn refuse_unknown(
    entry: BackendEntry,
    options: &UrlOptions,
    tables: &Tables,
) -> Result<(), OpenError> {
    let is_unknown = |key: &str| entry.options.iter().all(|(known, _)| *known != key);
    let Some((option, _)) = options.pairs.iter().find(|(key, _)| is_unknown(key)) else {
        return Ok(());
    };
    let own = entry.options.iter().map(|(key, _)| *key);
    let known: Vec<_> = own
        .chain(tables.layers.iter().map(|layer| layer.name))
        .collect();
    Err(OpenError::UnknownOption {
        backend: entry.name.to_string(),
        option: option.clone(),
        known: if known.is_empty() {
            "none".to_string()
        } else {
            known.join(", ")
        },
    })
}
