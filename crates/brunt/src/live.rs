//! `brunt run --serve` and `--dashboard`: the live page of a run, for browsers and for this terminal, from before the
//! targets are opened until the results are written. A run started by `brunt serve` sends the page's frames to that
//! server.
//!
//! The rule: the page's address is printed first, and the number of frames that viewers lost is printed last. However
//! the run ends, the page shows the reason.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use brunt_web::api::RunControl;
use brunt_web::live::{LiveEnding, LivePage, LivePlan};

use crate::cli::{Failure, Output};

/// Default address of the page: a free port, on this machine only.
pub const DEFAULT: &str = "127.0.0.1:0";

/// Parses the value of `--serve`.
///
/// # Errors
/// The text isn't an address; an experiment after `--serve` would be parsed as an address.
pub fn parse_address(text: &str) -> Result<SocketAddr, NotAnAddress> {
    address(text).ok_or(NotAnAddress {
        or: "the experiment before '--serve'",
    })
}

/// Parses the address of `brunt serve`.
///
/// # Errors
/// The text isn't an address.
pub fn parse_only_address(text: &str) -> Result<SocketAddr, NotAnAddress> {
    address(text).ok_or(NotAnAddress {
        or: "just a port for this machine",
    })
}

fn address(text: &str) -> Option<SocketAddr> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address);
    }
    // An address without a port uses a free port; a port without an address uses the loopback address.
    if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Some(SocketAddr::new(address, 0));
    }
    let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>();
    port.map(|port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port))
        .ok()
}

/// The text is not an address.
#[derive(Debug, thiserror::Error)]
#[error("not an address: write 127.0.0.1:8080, or {or}")]
pub struct NotAnAddress {
    or: &'static str,
}

/// A page that is being served; it also receives the terminal's notes.
pub struct Served {
    page: LivePage,
    output: Output,
    on_terminal: bool,
}

/// Viewers of a page besides those that connect to its listener.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown {
    /// Whether `brunt serve`, which started this program, shows the page.
    pub for_server: bool,
    /// The terminal.
    pub on_terminal: bool,
}

/// If there is a listener, serves the page of the run whose results go to `folder`, and prints its address. In a
/// program started by `brunt serve`, sends the page's frames there instead.
///
/// # Errors
/// A thread could not be started, or the other end is gone.
pub fn open(
    shown: Shown,
    listener: Option<TcpListener>,
    folder: &Path,
    output: &Output,
    plan: impl FnOnce() -> LivePlan,
) -> Result<Option<Served>, Failure> {
    let failed = |error: io::Error| Failure::failed(format!("cannot serve the live page: {error}"));
    if shown.for_server {
        // `brunt serve` passes the socket as standard input.
        let socket = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
        let stopped = output.clone();
        let page = LivePage::send(UnixStream::from(socket), plan(), move || {
            stopped.interrupt()
        });
        return page
            .map(|page| Some(Served::of(page, shown, output)))
            .map_err(failed);
    }
    let Some(listener) = listener else {
        let page = shown
            .on_terminal
            .then(|| LivePage::unserved(plan()))
            .transpose()
            .map_err(failed)?;
        return Ok(page.map(|page| Served::of(page, shown, output)));
    };
    let address = listener.local_addr().map_err(Failure::failed)?;
    let id = folder
        .file_name()
        .unwrap_or(folder.as_os_str())
        .to_string_lossy();
    let stopped = output.clone();
    let control = RunControl::new(&id, move || stopped.interrupt()).map_err(failed)?;
    let token = control.token().clone();
    let page = LivePage::start(listener, plan(), control).map_err(failed)?;
    output.note(format_args!(
        "live page at http://{address}/#token={}",
        token.text()
    ));
    warn_if_reachable(address, output);
    Ok(Some(Served::of(page, shown, output)))
}

/// Warns if a page at this address is reachable from other machines.
pub fn warn_if_reachable(address: SocketAddr, output: &Output) {
    if address.ip().is_unspecified() || !address.ip().is_loopback() {
        output.note("anyone who can reach this address can watch; starting and stopping needs the token, which is \
                     sent unencrypted");
    }
}

/// Does the work that a page shows, if there is a page, and then sends the page the outcome.
///
/// # Errors
/// Returns the failure of `work`.
pub fn shown<T>(
    live: Option<Served>,
    work: impl FnOnce(Option<&Served>, &mut LiveEnding) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut ending = LiveEnding::default();
    let result = work(live.as_ref(), &mut ending);
    if let Err(failure) = &result {
        ending.trouble = Some(failure.in_a_line());
    }
    if let Some(live) = live {
        live.close(ending);
    }
    result
}

impl Served {
    /// From now on, also sends the terminal's notes to the page.
    fn of(page: LivePage, shown: Shown, output: &Output) -> Served {
        output.listen(Some(Box::new(page.listener())));
        Served {
            page,
            output: output.clone(),
            on_terminal: shown.on_terminal,
        }
    }

    /// The page.
    pub fn page(&self) -> &LivePage {
        &self.page
    }

    /// The page, if it is also shown on the terminal.
    pub fn on_terminal(&self) -> Option<&LivePage> {
        self.on_terminal.then_some(&self.page)
    }

    /// Sends the outcome to viewers, and prints on this terminal what was lost.
    fn close(self, ending: LiveEnding) {
        self.output.listen(None);
        let losses = self.page.close(ending);
        if losses.frames > 0 {
            let (frames, viewers) = (losses.frames, losses.viewers);
            self.output.note(format_args!(
                "live page: slow viewers lost {frames} frames ({viewers} viewers in total); the results are complete"
            ));
        }
        if losses.events > 0 {
            let events = losses.events;
            self.output.note(format_args!(
                "live page: {events} events not shown because the machine was too busy; the results are complete"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_short_forms() {
        for (text, expected) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("[::1]:80", "[::1]:80"),
            ("8080", "127.0.0.1:8080"),
            (":8080", "127.0.0.1:8080"),
            ("0.0.0.0", "0.0.0.0:0"),
            ("::1", "[::1]:0"),
            (DEFAULT, "127.0.0.1:0"),
        ] {
            assert_eq!(parse_address(text).expect(text).to_string(), expected);
        }
        for text in [
            "",
            "x.toml",
            "127.0.0.1:",
            "127.0.0.1:99999",
            "localhost:80",
            "65536",
        ] {
            let error = parse_address(text).expect_err(text);
            assert!(error.to_string().contains("before '--serve'"), "{text}");
            let error = parse_only_address(text).expect_err(text);
            assert!(error.to_string().contains("just a port"), "{text}");
        }
    }
}
