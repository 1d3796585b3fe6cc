//! `brunt target`: serves devices over iSCSI until Ctrl-C or SIGTERM.

use std::io::{BufRead, Read};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brunt_block::socket::SocketOptions;
use brunt_block::{Congestion, open_url};
use brunt_core::units::{format_size, parse_size};
use brunt_iscsi::chap::Credentials;
use brunt_iscsi::params::DigestPolicy;
use brunt_iscsi::scsi::{FileStore, LogicalUnit, LunMap, LunOptions};
use brunt_iscsi::target_node::{Listener, StartError, TargetConfig, TargetServer, TargetStats};
use brunt_study::control::{self, Local};
use serde_json::json;

use super::role::Role;
use crate::cli::{Done, Failure, Output};
use crate::devices;

/// How often the command checks whether it should stop.
const LOOK: Duration = Duration::from_millis(50);
/// How long initiators have to log out at the end.
const GRACE: Duration = Duration::from_secs(2);

/// Serve devices as an iSCSI target
///
/// Prints each portal's address on its own line, then serves until Ctrl-C or SIGTERM. It then asks its initiators
/// to log out, closes all connections and prints its counters.
#[derive(clap::Args)]
pub struct Target {
    /// Device to serve; the first is LUN 0, the next LUN 1 and so on. A device URL (see `brunt help devices`), then options after
    /// commas: thin or thick (provisioning; default thick), ro (read-only), removable, wb or wt (write-back or
    /// write-through cache; default wt), block=512 or block=4096, serial=TEXT, aptpl=FILE (keeps persistent
    /// reservations across restarts), sanitize=SIZE (maximum rate of SANITIZE, per second).
    #[arg(long = "lun", value_name = "URL[,OPTION…]", required = true)]
    luns: Vec<String>,

    /// Address to listen on; port 0 picks a free port. Can be repeated.
    #[arg(long = "portal", value_name = "ADDRESS:PORT", default_value = "127.0.0.1:3260")]
    portals: Vec<String>,

    /// The target's iSCSI name.
    #[arg(long, default_value = "iqn.2026-11.io.brunt:t0")]
    name: String,

    /// Require CHAP: only initiators with this user and secret may log in. USER:SECRET on the command line is visible
    /// in the process list; prefer @FILE (a file that contains USER:SECRET) or env:VARIABLE.
    #[arg(long, value_name = "USER:SECRET|@FILE|env:VARIABLE")]
    chap: Option<String>,

    /// User and secret with which the target authenticates itself to initiators that ask for it (mutual CHAP).
    #[arg(long, value_name = "USER:SECRET|@FILE|env:VARIABLE", requires = "chap")]
    mutual_chap: Option<String>,

    /// Header digest (CRC32C): never, only if the initiator requires it (allow), whenever the initiator supports it
    /// (prefer), or always (require).
    #[arg(long, value_enum, default_value = "allow", value_name = "WHEN")]
    header_digest: Digest,

    /// Data digest (CRC32C); same choices as --header-digest.
    #[arg(long, value_enum, default_value = "allow", value_name = "WHEN")]
    data_digest: Digest,

    /// Maximum number of concurrent sessions.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..))]
    max_sessions: u16,

    /// Socket send buffer of each connection [default: chosen by the kernel].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    send_buffer: Option<u64>,

    /// Socket receive buffer of each connection [default: chosen by the kernel].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    receive_buffer: Option<u64>,

    /// TCP congestion control of each connection, such as cubic; default: chosen by the kernel.
    #[arg(long, value_name = "NAME", value_parser = Congestion::usable)]
    congestion: Option<Congestion>,

    /// Accept commands on standard input while serving: one JSON object per line, answered by one line on standard
    /// output. Commands arm and disarm faults, switch retries on and off, fail and rebuild array members, and read
    /// counters. Example: {"do":"arm","lun":0,"fault":"medium-error,p=0.5"}. The LUN's URL must include the matching
    /// layer, such as memory:1GiB?fault=off.
    #[arg(long)]
    control: bool,

    #[command(flatten)]
    role: Role,
}

/// [`DigestPolicy`] as the command line says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Digest {
    Never,
    Allow,
    Prefer,
    Require,
}

impl Digest {
    fn policy(self) -> DigestPolicy {
        match self {
            Digest::Never => DigestPolicy::Never,
            Digest::Allow => DigestPolicy::Allow,
            Digest::Prefer => DigestPolicy::Prefer,
            Digest::Require => DigestPolicy::Require,
        }
    }
}

impl super::Subcommand for Target {
    const NAME: &'static str = "target";
    const EXAMPLES: &'static [(&'static str, &'static str)] = &[
        (
            "brunt target --lun null:1TiB",
            "measure the protocol alone: reads return zeros, writes are discarded",
        ),
        (
            "brunt target --lun memory:1GiB,thin --lun disk.img,wb --portal 127.0.0.1:0",
            "serve two LUNs on a free port, which the first line of output names",
        ),
        (
            "brunt target --lun 'memory:1GiB?fault=medium-error,p=0.01,op=read;name=disk&retry=5' --control",
            "a disk with media errors behind a controller that retries; change both while serving",
        ),
        (
            "brunt target --lun 'array:raid5,[a.img],[b.img],[c.img],spare=[d.img]' --control",
            "an array of files; {\"do\":\"fail\",\"lun\":0,\"member\":1} on standard input fails a member",
        ),
        (
            "brunt target --lun memory:1GiB --chap @secret.txt --portal 0.0.0.0:3260",
            "require CHAP from initiators on the network; secret.txt contains USER:SECRET",
        ),
    ];

    fn more_help() -> Option<String> {
        Some(super::devices::POINTER.to_string())
    }

    fn run(self, output: &Output) -> Done {
        self.role.bind()?;
        if self.control && output.is_json() {
            return Err(Failure::usage(
                "--control and --json cannot be combined: both write to standard output",
            )
            .advise("omit --json: --control answers in JSON anyway"));
        }
        let mut config = TargetConfig {
            portals: portals(&self.portals)?,
            name: self.name.clone(),
            chap: self.chap.as_deref().map(credentials).transpose()?,
            mutual_chap: self.mutual_chap.as_deref().map(credentials).transpose()?,
            sessions_max: usize::from(self.max_sessions),
            sockets: SocketOptions {
                send_buffer_bytes: self.send_buffer.map(|bytes| bytes as usize),
                receive_buffer_bytes: self.receive_buffer.map(|bytes| bytes as usize),
                congestion: self.congestion,
                ..SocketOptions::default()
            },
            listener: {
                let output = output.clone();
                Listener::new(move |event| output.note(event))
            },
            ..TargetConfig::default()
        };
        check_name(&self.name)?;
        check_apart(&self.luns)?;
        config.wishes.header_digest = self.header_digest.policy();
        config.wishes.data_digest = self.data_digest.policy();
        let mut units = Vec::new();
        let mut handles = Vec::new();
        for (lun, text) in self.luns.iter().enumerate() {
            let unit = open(text, lun, &self.name)?;
            for note in unit.backend().info().remarks() {
                output.note(format!("LUN {lun}: {note}"));
            }
            handles.push((lun as u16, unit.backend().handles()));
            units.push((lun as u16, unit));
        }
        let server = TargetServer::start(config, LunMap::new(units)).map_err(|error| match error {
            StartError::Listen { .. } => {
                Failure::failed(error).advise("choose another --portal; port 0 picks a free one")
            }
            StartError::SameSecret => {
                Failure::usage(error).advise("use a different secret for --mutual-chap")
            }
            other => Failure::failed(other),
        })?;
        for portal in server.portals() {
            output.line(portal);
        }
        if output.is_json() {
            // Standard output carries only the one object at the end, so addresses go to standard error.
            for portal in server.portals() {
                output.note(format!("listening on {portal}"));
            }
        }
        if self.control {
            take_orders(Local::new(handles), output)?;
        }
        while !output.is_interrupted() {
            std::thread::sleep(LOOK);
        }
        let addresses: Vec<String> = server.portals().iter().map(ToString::to_string).collect();
        let stats = server.shutdown(GRACE);
        summarize(&stats, &self.name, &addresses, output);
        Ok(())
    }
}

/// Starts a thread that executes commands from standard input until end of file or process exit.
fn take_orders(devices: Local, output: &Output) -> Done {
    let output = output.clone();
    let work = move || {
        let mut input = std::io::stdin().lock();
        let mut line = Vec::new();
        let longest = control::LINE_BYTES_MAX as u64 + 1;
        while let Ok(count) = input.by_ref().take(longest).read_until(b'\n', &mut line) {
            if count == 0 {
                return;
            }
            let text = String::from_utf8_lossy(&line);
            if !text.trim().is_empty() {
                output.line(devices.line(text.trim()));
            }
            line.clear();
        }
    };
    let thread = std::thread::Builder::new().name("control".into()).spawn(work);
    thread.map(drop).map_err(|error| Failure::failed(format!("cannot start a thread for --control: {error}")))
}

fn summarize(stats: &TargetStats, name: &str, portals: &[String], output: &Output) {
    let c = &stats.counters;
    output.line(format_args!(
        "{} sessions, {} commands, {} read, {} written; {} digest errors, {} rejected PDUs, {} refused and {} dropped logins, {} broken connections",
        stats.sessions,
        c.commands,
        format_size(c.data_in_bytes),
        format_size(c.data_out_bytes),
        c.digest_errors,
        c.rejects,
        stats.logins_refused,
        stats.logins_dropped,
        stats.connections_broken,
    ));
    output.object(&json!({
        "name": name,
        "portals": portals,
        "sessions": stats.sessions,
        "connections": stats.connections,
        "commands": c.commands,
        "data_in_bytes": c.data_in_bytes,
        "data_out_bytes": c.data_out_bytes,
        "digest_errors": c.digest_errors,
        "rejected_pdus": c.rejects,
        "ignored_commands": c.ignored,
        "refused_logins": stats.logins_refused,
        "dropped_logins": stats.logins_dropped,
        "broken_connections": stats.connections_broken,
        "system_calls": stats.system_calls,
    }));
}

/// The addresses that `--portal` names.
pub(super) fn portals(texts: &[String]) -> Result<Vec<SocketAddr>, Failure> {
    let mut portals = Vec::new();
    for text in texts {
        let wrong = |what: String| {
            Failure::usage(format!("--portal {text}: {what}"))
                .advise("write ADDRESS:PORT, such as 127.0.0.1:3260 or [::1]:0")
        };
        // An address alone means the port that IANA gave iSCSI.
        if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
            portals.push(SocketAddr::new(ip, 3260));
            continue;
        }
        let found = text.to_socket_addrs().map_err(|error| wrong(error.to_string()))?.next();
        portals.push(found.ok_or_else(|| wrong("no such host".to_string()))?);
    }
    Ok(portals)
}

/// RFC 7143, 4.2.7: one of three types, at most 223 bytes, of ASCII what RFC 3722 leaves: lower-case letters,
/// digits, and `-.:`. An initiator that folds the case would look for another name than an upper-case one.
fn check_name(name: &str) -> Done {
    let clean =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b':');
    let hex = |text: &str, lens: &[usize]| {
        lens.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let dated = |text: &str| {
        let (date, authority) = text.split_once('.').unwrap_or((text, ""));
        let digits = |text: &str, len| text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
        let date = date.split_once('-').is_some_and(|(year, month)| digits(year, 4) && digits(month, 2));
        date && !authority.is_empty() && authority.bytes().all(clean)
    };
    let is_name = match name.split_once('.') {
        Some(("iqn", rest)) => dated(rest),
        Some(("eui", rest)) => hex(rest, &[16]),
        Some(("naa", rest)) => hex(rest, &[16, 32]),
        _ => false,
    };
    if is_name && name.len() <= 223 {
        return Ok(());
    }
    Err(Failure::usage(format!("--name {name} is not an iSCSI name"))
        .advise("write iqn.YEAR-MONTH.reversed.domain:anything, such as iqn.2026-11.io.brunt:t0"))
}

/// Parses `USER:SECRET`, `@FILE` or `env:VARIABLE`. Errors never include the secret.
fn credentials(text: &str) -> Result<Credentials, Failure> {
    let (found, place) = if let Some(path) = text.strip_prefix('@') {
        let content = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("cannot read the CHAP secret from {path}: {error}")))?;
        (content.trim_end_matches(['\n', '\r']).to_string(), format!("the file {path}"))
    } else if let Some(variable) = text.strip_prefix("env:") {
        let content = std::env::var(variable)
            .map_err(|error| Failure::usage(format!("environment variable {variable}: {error}")))?;
        (content, format!("the environment variable {variable}"))
    } else {
        (text.to_string(), "the command line".to_string())
    };
    match found.split_once(':') {
        Some((user, secret)) if !user.is_empty() && !secret.is_empty() => Ok(Credentials::new(user, secret)),
        _ => Err(Failure::usage(format!("CHAP credentials from {place} are not of the form USER:SECRET"))
            .advise("write the user name, a colon and the secret")),
    }
}

/// What stands behind the commas of `--lun`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LunWords {
    url: String,
    thin: bool,
    read_only: bool,
    removable: bool,
    write_back: bool,
    serial: Option<String>,
    aptpl: Option<PathBuf>,
    sanitize_bytes_per_second: Option<u64>,
}

const LUN_HELP: &str = "options of --lun are thin, thick, ro, removable, wb, wt, block=512, block=4096, \
    serial=TEXT, aptpl=FILE, sanitize=SIZE";

/// The device URL of a LUN as `--lun` takes it.
///
/// # Errors
/// Its options are wrong.
pub(super) fn lun_url(text: &str) -> Result<String, Failure> {
    Ok(parse_lun(text)?.url)
}

/// Takes options off the end as long as they are ones, so that a path may hold commas.
fn parse_lun(text: &str) -> Result<LunWords, Failure> {
    let mut words = LunWords::default();
    let mut rest = text;
    let mut block = None;
    let mut seen: Vec<&str> = Vec::new();
    while let Some((front, word)) = rest.rsplit_once(',') {
        let (key, value) = word.split_once('=').map_or((word, None), |(key, value)| (key, Some(value)));
        let group = match (key, value) {
            ("thin" | "thick", None) => {
                words.thin = key == "thin";
                "thin or thick"
            }
            ("wb" | "wt", None) => {
                words.write_back = key == "wb";
                "wb or wt"
            }
            ("ro", None) => {
                words.read_only = true;
                key
            }
            ("removable", None) => {
                words.removable = true;
                key
            }
            ("block", Some("512" | "4096")) => {
                block = value;
                key
            }
            ("serial", Some(serial)) if !serial.is_empty() && serial.len() <= 36 && serial.is_ascii() => {
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
            // A comma in a path, if there is such a file, or among a URL's own options, which the URL's
            // reader judges; a mistake otherwise.
            _ if Path::new(rest).exists() || rest.contains(['?', '[']) => break,
            _ => {
                return Err(Failure::usage(format!("--lun {text}: unknown option '{word}'")).advise(LUN_HELP));
            }
        };
        if seen.contains(&group) {
            return Err(Failure::usage(format!("--lun {text}: {group} is given twice")).advise(LUN_HELP));
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

/// LUNs must not share what tells them apart or what they keep: an initiator takes two disks of one serial
/// number for two paths to one disk, and two LUNs over one file do not know of each other's reservations
/// and atomic commands.
fn check_apart(luns: &[String]) -> Done {
    let mut seen: Vec<(usize, LunWords, Option<PathBuf>)> = Vec::new();
    for (lun, text) in luns.iter().enumerate() {
        let words = parse_lun(text)?;
        let place = words.url.split('?').next().unwrap_or_default();
        let place = place.strip_prefix("file:").unwrap_or(place);
        let medium = std::fs::canonicalize(place).ok();
        if let Some(path) = &words.aptpl {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            if !folder.unwrap_or(Path::new(".")).is_dir() || path.is_dir() {
                return Err(Failure::usage(format!(
                    "--lun {text}: aptpl={} cannot be a file",
                    path.display()
                ))
                .advise("name a file, which need not exist, in a folder that does"));
            }
        }
        for (other, before, other_medium) in &seen {
            let what = if medium.is_some() && medium == *other_medium {
                if words.read_only && before.read_only {
                    continue;
                }
                "the same file or device"
            } else if words.serial.is_some() && words.serial == before.serial {
                "the same serial"
            } else if words.aptpl.is_some() && words.aptpl == before.aptpl {
                "the same aptpl file"
            } else {
                continue;
            };
            return Err(Failure::usage(format!("--lun {text}: LUN {other} has {what}"))
                .advise("give each LUN its own; only read-only LUNs (ro) may share a file or device"));
        }
        seen.push((lun, words, medium));
    }
    Ok(())
}

fn open(text: &str, lun: usize, target_name: &str) -> Result<Arc<LogicalUnit>, Failure> {
    let words = parse_lun(text)?;
    let backend = open_url(&words.url)
        .map_err(|error| devices::open_failure(&error, format!("--lun {text}: {error}")))?;
    let options = LunOptions {
        thin: words.thin,
        read_only: words.read_only || backend.info().read_only,
        removable: words.removable,
        write_cache: words.write_back,
        serial: words.serial.unwrap_or_else(|| serial_of(target_name, lun)),
        target_name: target_name.to_string(),
        store: words.aptpl.map(|path| Arc::new(FileStore::new(path)) as _),
        sanitize_bytes_per_second: words.sanitize_bytes_per_second,
        ..LunOptions::default()
    };
    LogicalUnit::new(backend, options).map_err(|error| Failure::usage(format!("--lun {text}: {error}")))
}

/// The same for the same target and LUN after a restart: initiators know a disk again by it. FNV-1a.
fn serial_of(target_name: &str, lun: usize) -> String {
    let hash = target_name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{:010x}{lun:04x}", hash >> 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options come off the end, in any order, and nothing else does.
    #[test]
    fn lun_options() {
        let check = |text, expected: LunWords| assert_eq!(parse_lun(text).unwrap(), expected, "{text}");
        let plain = |url: &str| LunWords { url: url.into(), ..LunWords::default() };
        check("memory:1GiB", plain("memory:1GiB"));
        check(
            "memory:1GiB,thin,wb,serial=a",
            LunWords { thin: true, write_back: true, serial: Some("a".into()), ..plain("memory:1GiB") },
        );
        check("null:1GiB,block=4096", plain("null:1GiB?block=4096"));
        check(
            "file:x?size=1M,ro,block=512",
            LunWords { read_only: true, ..plain("file:x?size=1M&block=512") },
        );
        check("x,sanitize=8MiB", LunWords { sanitize_bytes_per_second: Some(8 << 20), ..plain("x") });
        check(
            "memory:1M?fault=busy,p=0.5&delay=exp:1ms,servers=4",
            plain("memory:1M?fault=busy,p=0.5&delay=exp:1ms,servers=4"),
        );
        check(
            "array:raid0,[null:1M],[null:1M],ro",
            LunWords { read_only: true, ..plain("array:raid0,[null:1M],[null:1M]") },
        );
        check("x,aptpl=/a/b", LunWords { aptpl: Some("/a/b".into()), ..plain("x") });
    }

    /// Mistakes are named.
    #[test]
    fn wrong_lun_options() {
        for text in [
            "memory:1GiB,fast",
            "null:1M,block=520",
            "null:1M,thin,thick",
            "null:1M,serial=",
            "null:1M,sanitize=0",
        ] {
            assert!(parse_lun(text).is_err(), "{text}");
        }
        assert!(credentials("nocolon").is_err());
        assert!(credentials("@/nonexistent/secret").is_err());
        assert!(portals(&["nowhere".into()]).is_err());
        assert_eq!(portals(&["[::1]:0".into()]).unwrap()[0].port(), 0);
        assert_eq!(portals(&["::1".into()]).unwrap()[0].port(), 3260);
    }

    /// LUNs that would be taken for one another, or spoil each other's data, are refused.
    #[test]
    fn luns_are_apart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk.img");
        std::fs::write(&file, [0; 512]).unwrap();
        let path = file.display();
        let check = |luns: &[&str], apart: bool| {
            let luns: Vec<String> = luns.iter().map(|lun| lun.replace("FILE", &path.to_string())).collect();
            assert_eq!(check_apart(&luns).is_ok(), apart, "{luns:?}");
        };
        check(&["memory:1M", "memory:1M", "null:1M,serial=a", "FILE"], true);
        check(&["null:1M,serial=a", "memory:1M", "memory:1M,serial=a"], false);
        check(&["FILE", "file:FILE?direct=no"], false);
        check(&["FILE,ro", "FILE"], false);
        check(&["FILE,ro", "FILE,ro"], true);
        check(&["null:1M,aptpl=FILE.pr", "null:1M"], true);
        check(&["null:1M,aptpl=FILE.pr", "null:1M,aptpl=FILE.pr"], false);
        check(&["null:1M,aptpl=/nonexistent/folder/pr"], false);
    }

    /// A name that initiators could not use is refused before anybody tries.
    #[test]
    fn names() {
        for name in
            ["iqn.2026-11.io.brunt:t0", "iqn.1992-08.com.x", "eui.02004567A425678D", "naa.52004567ba64678d"]
        {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let long = format!("iqn.2026-11.io:{}", "a".repeat(223));
        for name in
            ["t0", "iqn.", "iqn.brunt", "iqn.2026-11.", "iqn.2026-11.io.brunt:T0", "iqn.26-11.io", &long]
        {
            assert!(check_name(name).is_err(), "{name}");
        }
        for name in
            ["iqn.2026-11.io.brunt:a b", "iqn.2026-11.io.brunt:a,1", "eui.1234", "naa.", "IQN.2026-11.io"]
        {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
