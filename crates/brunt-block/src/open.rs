//! Parses and opens device URLs against the tables of known backends and layers, and reports mistakes. Backends and
//! layers parse their options here; the tables themselves are in [`crate::table`].
//!
//! The rule: an option that nothing consumes is an error, so misspelt options are never ignored.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use brunt_core::device_path::encode_bare;
use brunt_core::device_url::{MASK, is_secret_key, split_options, without_secrets};
use brunt_core::units::{format_duration, parse_duration, parse_size};

use crate::Backend;
pub use crate::open_error::OpenError;

/// Maximum nesting of devices: an array of arrays of mirrors is three levels deep.
pub const NESTING_MAX: u32 = 8;

/// Result of opening a device.
pub type Opened = Result<Arc<dyn Backend>, OpenError>;

/// A kind of backend.
#[derive(Clone, Copy, Debug)]
pub struct BackendEntry {
    /// The URL scheme, without the colon.
    pub name: &'static str,
    /// One-line help.
    pub help: &'static str,
    /// A valid example URL.
    pub example: &'static str,
    /// Option keys, each with one line of help.
    pub options: &'static [(&'static str, &'static str)],
    /// Opens the device from the part of the URL after the colon, consuming the options it knows.
    pub open: fn(&str, &mut UrlOptions) -> Opened,
    /// Returns what is known about the device without opening it or contacting a server; takes the same options.
    pub preview: fn(&str, &mut UrlOptions) -> Result<Option<DevicePreview>, OpenError>,
}

/// What is known about a device before it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicePreview {
    /// The device's size in bytes.
    pub size_bytes: u64,
    /// The smallest logical block size, in bytes, that the device may have.
    pub block_bytes: u32,
    /// Whether writes will be rejected.
    pub read_only: bool,
}

/// Stacks a layer on a backend, configured by the option's value.
pub type Wrap = fn(Arc<dyn Backend>, &str) -> Opened;

/// A kind of layer.
#[derive(Clone, Copy, Debug)]
pub struct LayerEntry {
    /// The URL option that adds this layer.
    pub name: &'static str,
    /// One-line help.
    pub help: &'static str,
    /// A valid example value of the option.
    pub example: &'static str,
    /// Stacks the layer on a backend, configured by the option's value.
    pub wrap: Wrap,
    /// Like `wrap`, on a stand-in for a backend that isn't opened: finds mistakes without opening anything. `None` if
    /// `wrap` itself opens nothing.
    pub preview: Option<Wrap>,
    /// The file that the layer opens for this value, if any. The file needs a [`Permit`], like a `file:` device.
    pub file: Option<fn(&str) -> &str>,
}

/// Decides which devices may be opened on behalf of a client. Called for each device, nested ones included.
pub trait Permit: std::fmt::Debug + Send + Sync {
    /// Checks whether this backend may be opened with this argument (the part of the URL after the colon).
    ///
    /// # Errors
    /// [`OpenError::NotAllowed`] if it may not, or the error that prevented the check.
    fn check(&self, backend: &str, argument: &str) -> Result<(), OpenError>;
}

/// What can be opened: backends, the default backend for plain paths, and layers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    pub backends: Vec<BackendEntry>,
    pub path: Option<BackendEntry>,
    pub layers: &'static [LayerEntry],
    /// Checked before each device is opened; `None` allows everything.
    pub permit: Option<Arc<dyn Permit>>,
}

/// Keys of URL options that create the file that the URL names.
const MAKING: &[&str] = &["create", "temporary"];

/// The `key=value` pairs of a URL. Each consumer takes its keys; a remaining key is an error.
#[derive(Debug, Default)]
pub struct UrlOptions {
    pairs: Vec<(String, String)>,
    /// The tables for opening nested devices.
    tables: Tables,
    read_only: bool,
    /// Whether `read_only=yes` was added automatically, not by the user.
    is_spared: bool,
    /// Number of devices that enclose this one.
    nesting: u32,
}

impl UrlOptions {
    /// Parses `a=b&c=d`.
    fn parse(text: &str, layers: &[LayerEntry]) -> Result<UrlOptions, OpenError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(match pairs.last() {
                    // Keep the remainder of the secret out of the message.
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

    /// Opens a device nested in this one, given its URL.
    ///
    /// # Errors
    /// The device cannot be opened, or more than [`NESTING_MAX`] devices are nested.
    pub fn open(&self, url: &str) -> Opened {
        if self.nesting + 1 >= NESTING_MAX {
            return Err(OpenError::Refused(format!(
                "devices are nested more than {NESTING_MAX} deep"
            )));
        }
        open_within(url, &self.tables, self.read_only, self.nesting + 1)
    }

    /// Whether `read_only=yes` was added because nothing will be written to the device.
    pub fn is_spared(&self) -> bool {
        self.is_spared
    }

    /// Sets a key, replacing an existing pair with the same key.
    pub fn set(&mut self, key: &str, value: &str) {
        self.pairs.retain(|(known, _)| known != key);
        self.pairs.push((key.to_string(), value.to_string()));
    }

    /// Removes `key` and returns its value.
    pub fn take(&mut self, key: &str) -> Option<String> {
        let index = self.pairs.iter().position(|(known, _)| known == key)?;
        Some(self.pairs.remove(index).1)
    }

    /// Takes a yes-or-no option.
    ///
    /// # Errors
    /// The value is neither yes nor no.
    pub fn flag(&mut self, key: &str) -> Result<Option<bool>, OpenError> {
        self.take(key)
            .map(|value| yes_or_no(&value).ok_or_else(|| bad_value(key, &value, "write yes or no")))
            .transpose()
    }

    /// Takes a size in bytes.
    ///
    /// # Errors
    /// The value is not a valid size.
    pub fn size(&mut self, key: &str) -> Result<Option<u64>, OpenError> {
        self.take(key)
            .map(|value| Ok(parse_size(&value)?))
            .transpose()
    }

    /// Takes a number from `min` to `max`.
    ///
    /// # Errors
    /// The value is not a number, or is out of range.
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

    /// Takes a duration of at least `min`.
    ///
    /// # Errors
    /// The value is not a valid duration or is too short.
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

    /// Takes the option `block`: a logical block size of 512 or 4096 bytes.
    ///
    /// # Errors
    /// The value is neither 512 nor 4096.
    pub fn block(&mut self) -> Result<Option<u32>, OpenError> {
        self.take("block")
            .map(|value| match parse_size(&value) {
                Ok(bytes @ (512 | 4096)) => Ok(bytes as u32),
                _ => Err(bad_value("block", &value, "write 512 or 4096")),
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

/// Parses `host[:port]` or `[v6][:port]`; port 0 is rejected. The zone of a link-local address, `%25eth0` in a URL (RFC
/// 6874), is returned in the system's notation: `%eth0`.
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

/// A parsed URL: its backend, the backend's argument and options, and the layers.
pub(crate) struct Parsed<'a> {
    pub entry: BackendEntry,
    /// For a file, in the encoding of a `file:` URL, whether or not the URL has a scheme.
    pub argument: Cow<'a, str>,
    pub options: UrlOptions,
    pub layers: Vec<(&'static LayerEntry, String)>,
}

/// The value of a flag; `None` if it is not one.
fn yes_or_no(value: &str) -> Option<bool> {
    match value {
        "yes" | "true" | "on" | "1" => Some(true),
        "no" | "false" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// Parses a URL without opening anything.
///
/// # Errors
/// The URL is malformed.
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
            "'{}' names no device; write for example {}",
            without_secrets(text),
            entry.example
        )));
    }
    // A file to be created must be writable, even if it is only read afterwards.
    let makes = |(key, value): &(String, String)| {
        MAKING.contains(&key.as_str()) && yes_or_no(value) != Some(false)
    };
    let made = options.pairs.iter().any(makes);
    if read_only && !made && entry.options.iter().any(|(key, _)| *key == "read_only") {
        options.is_spared = !options.flag("read_only")?.unwrap_or(false);
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

/// Opens the device given by a URL; `nesting` devices enclose it.
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
        permit.check(entry.name, &argument)?;
        for (layer, value) in &layers {
            if let Some(file) = layer.file {
                permit.check("file", &encode_bare(file(value)))?;
            }
        }
    }
    let mut backend = (entry.open)(&argument, &mut options)?;
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

/// Finds the backend for the place in a URL, and the argument to pass to it.
fn entry_of<'a>(
    text: &str,
    place: &'a str,
    tables: &Tables,
) -> Result<(Cow<'a, str>, BackendEntry), OpenError> {
    let path = tables.path.expect("the table has an entry for plain paths");
    let Some((scheme, argument)) = place
        .split_once(':')
        .filter(|(scheme, _)| !scheme.contains('/'))
    else {
        return Ok((encode_bare(place), path));
    };
    match tables.backends.iter().find(|entry| entry.name == scheme) {
        Some(entry) => Ok((argument.into(), *entry)),
        // A file whose name contains the colon.
        None if std::path::Path::new(place).exists() => Ok((encode_bare(place), path)),
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
