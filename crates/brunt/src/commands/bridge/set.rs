//! `brunt bridge set`: changes a running bridge while packets are in flight. Also contains the bridge's code for
//! answering such requests.
//!
//! The rule: a bridge forwards whether or not it can be reached.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, SystemTime};

use brunt_core::{Clock, Nanos};
use brunt_lab::enter;
use brunt_lab::link::{Settings, WireBridge};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::link_changes::{
    LinkChangeLog, LinkChangeRequest, LinkChanged, UnchangedSettings,
};
use super::super::registry::{Registry, State, usual_name};
use crate::cli::{Done, Failure, Output};

/// How long a bridge may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a client may take to send its request.
const REQUEST_TIME: Duration = Duration::from_millis(500);

/// Change a running bridge
///
/// The settings are those of --set: delay, jitter, loss, rate, corrupt and others (docs/experiments.md); settings
/// that are not given stay as they are. The change applies to packets that arrive after it. The bridge's report lists
/// all changes with their times, and a pcapng capture has each change as a comment on the next packet. Must run as
/// the user who started the bridge.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  # 50 ms each way, and 1 % packet loss\n  brunt bridge set delay=50ms \
     loss=1%\n\n  # with several bridges: only packets that arrive at eth1\n  brunt bridge set eth0-eth1 \
     rate=10Mb/s --from eth1\n\n  # return to the initial settings\n  brunt bridge set --restore"
)]
pub struct BridgeSetArgs {
    /// Name of the bridge (IN-OUT, or that given with --name) if several are running, then settings
    #[arg(value_names = ["BRIDGE", "KEY=VALUE"], num_args = 0..)]
    words: Vec<String>,
    /// Only packets that arrive at this interface [default: both directions]
    #[arg(long, value_name = "INTERFACE")]
    from: Option<String>,
    /// Return to the settings with which the bridge was started
    #[arg(long)]
    restore: bool,
}

/// A bridge's answer to a [`LinkChangeRequest`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BridgeAnswer {
    /// The change was made.
    Changed(LinkChanged),
    /// The change was not made.
    Refused {
        /// The reason.
        what: String,
    },
}

/// Why a bridge was not changed.
#[derive(Debug, thiserror::Error)]
enum BridgeUnchanged {
    #[error("'{from}' is not one of the bridge's interfaces, {one} and {other}")]
    OtherInterface {
        from: String,
        one: String,
        other: String,
    },
    #[error(transparent)]
    Settings(#[from] UnchangedSettings),
    #[error("the bridge's thread has ended, or does not respond: {0}")]
    Thread(#[from] io::Error),
}

/// Asks a bridge to change its settings.
pub fn run(args: BridgeSetArgs, output: &Output) -> Done {
    let (names, request) = LinkChangeRequest::parse(args.words, args.from, args.restore)?;
    let bridge = match names.as_slice() {
        [bridge] => Some(bridge.as_str()),
        [] => None,
        _ => {
            let what = "name at most one bridge, and settings such as delay=50ms";
            return Err(Failure::usage(what).advise("see 'brunt bridge set --help'"));
        }
    };
    let registry = Registry::bridges()?;
    let State { name, .. } = registry.find(bridge)?;
    let request = LinkChangeRequest {
        link: name.clone(),
        ..request
    };
    let answer = registry
        .ask(&name, &request, PATIENCE)
        .map_err(|error| Failure::failed(format!("bridge {name} does not answer: {error}")))?;
    match answer.0 {
        BridgeAnswer::Changed(change) => {
            output.line(change.described());
            output.object(&json!({ "bridge": name, "changed": change }));
            Ok(())
        }
        BridgeAnswer::Refused { what } => Err(Failure::usage(format!("bridge {name}: {what}"))),
    }
}

/// The socket at which a bridge can be reached, and the changes so far. Dropping it removes the socket's files.
pub struct BridgeControl {
    registry: Registry,
    name: String,
    listener: UnixListener,
    interfaces: [String; 2],
    at_start: [Settings; 2],
    current: [Settings; 2],
    log: LinkChangeLog,
}

impl BridgeControl {
    /// Reserves a name: the given one, or that of the interfaces, with a number appended if it is taken.
    ///
    /// # Errors
    /// The given name is in use or invalid, or the registry cannot be written.
    pub fn open(
        name: Option<&str>,
        interfaces: &[String; 2],
        settings: &[Settings; 2],
    ) -> Result<BridgeControl, Failure> {
        let registry = Registry::bridges()?;
        let (name, listener) = match name {
            Some(name) => (name.to_string(), registry.reserve(name)?),
            None => registry.reserve_any(&usual_name(&interfaces.join("-")))?,
        };
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let control = BridgeControl {
            registry,
            name,
            listener,
            interfaces: interfaces.clone(),
            at_start: settings.clone(),
            current: settings.clone(),
            log: LinkChangeLog::default(),
        };
        control.registry.write(&State {
            name: control.name.clone(),
            file: None,
            pid: rustix::process::getpid().as_raw_pid(),
            since_s: since.unwrap_or_default().as_secs(),
        })?;
        let failed = |error| Failure::failed(format!("the bridge's socket: {error}"));
        control.listener.set_nonblocking(true).map_err(failed)?;
        Ok(control)
    }

    /// The bridge's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The changes so far.
    pub fn log(&self) -> &LinkChangeLog {
        &self.log
    }

    /// Answers the requests that arrived since the last call; calls `note` with each change and when it took effect,
    /// in time since 1970.
    pub fn answer(&mut self, bridge: &WireBridge, mut note: impl FnMut(&LinkChanged, Duration)) {
        while let Ok((socket, _)) = self.listener.accept() {
            // Ignore a client that disconnected or sends nothing.
            let Ok(request) = hear(&socket) else { continue };
            let answer = match self.change(&request, bridge) {
                Ok(change) => {
                    note(&change, Duration::from_secs_f64(change.at_s));
                    self.log.push(change.clone());
                    BridgeAnswer::Changed(change)
                }
                Err(error) => BridgeAnswer::Refused {
                    what: error.to_string(),
                },
            };
            if let Ok(line) = serde_json::to_string(&answer) {
                let _ = enter::send(&socket, &line, None);
            }
        }
    }

    fn change(
        &mut self,
        request: &LinkChangeRequest,
        bridge: &WireBridge,
    ) -> Result<LinkChanged, BridgeUnchanged> {
        let [one, other] = &self.interfaces;
        let directions = match request.from.as_ref() {
            None => [true, true],
            Some(from) if from == one => [true, false],
            Some(from) if from == other => [false, true],
            Some(from) => {
                let [from, one, other] = [from, one, other].map(String::clone);
                return Err(BridgeUnchanged::OtherInterface { from, one, other });
            }
        };
        let wanted = request.wanted(&self.current, &self.at_start, directions)?;
        let at = bridge.change(wanted.clone())?;
        self.current = wanted;
        Ok(request.made(time_of_day(at)))
    }
}

impl Drop for BridgeControl {
    fn drop(&mut self) {
        self.registry.remove(&self.name);
    }
}

/// Converts a recent time of the monotonic clock to the time of day.
fn time_of_day(at: Nanos) -> SystemTime {
    SystemTime::now() - Clock::Monotonic.now().since(at)
}

fn hear(socket: &UnixStream) -> io::Result<LinkChangeRequest> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(REQUEST_TIME))?;
    socket.set_write_timeout(Some(REQUEST_TIME))?;
    let (line, _) = enter::receive(socket)?;
    Ok(serde_json::from_str(&line)?)
}
