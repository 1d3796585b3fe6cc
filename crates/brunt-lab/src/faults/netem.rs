//! Applies the kernel's link emulator (netem, tc-netem(8)) to an interface of this machine: outgoing packets are
//! delayed, lost, duplicated or corrupted.
//!
//! The rule: an existing queueing discipline is never replaced. The kernel's counters prove the effect of the
//! discipline that Brunt adds, which is removed even if this program dies.

use std::io;

use brunt_core::Clock;

use crate::guard::{Guard, Undo};
use crate::link::{Settings, SettingsError, netem};
use crate::netlink::{Netlink, QdiscStats};
use crate::{Fault, FaultError, Proof};

/// Adds netem to an interface.
pub struct Netem {
    interface: String,
    settings: Settings,
    held: Option<Held>,
}

struct Held {
    netlink: Netlink,
    index: u32,
    guard: Guard,
}

impl Netem {
    /// Applies a link's settings to this interface.
    pub fn new(interface: &str, settings: Settings) -> Netem {
        Netem {
            interface: interface.to_string(),
            settings,
            held: None,
        }
    }

    /// Checks whether netem supports these settings.
    ///
    /// # Errors
    /// netem doesn't support one of the settings.
    pub fn check(settings: &Settings) -> Result<(), SettingsError> {
        netem::options(settings).map(drop)
    }

    fn refused(&self, what: &str, source: io::Error) -> FaultError {
        let advice = match source.raw_os_error() {
            Some(libc::ENOENT | libc::EOPNOTSUPP) => {
                "this kernel lacks netem: load it (modprobe sch_netem), install the package with the \
                 rest of the kernel's modules, use a host with an inline 'bridge', or use a link in a lab"
                    .to_string()
            }
            Some(libc::EEXIST | libc::EBUSY) => format!(
                "the interface already has a queueing discipline, which brunt does not replace: \
                 remove it (tc qdisc del dev {} root), or name another interface",
                self.interface
            ),
            Some(libc::ENODEV) => "use an interface from 'ip link' on that host".to_string(),
            _ => crate::remedy(&source),
        };
        FaultError::Refused {
            fault: self.describe(),
            what: what.into(),
            source,
            advice,
        }
    }

    fn try_inject(
        &mut self,
        options: &[u8],
        clock: &Clock,
    ) -> Result<Proof, (&'static str, io::Error)> {
        let mut netlink = Netlink::open().map_err(|error| ("cannot query rtnetlink", error))?;
        let index = netlink
            .index_of(&self.interface)
            .map_err(|error| ("unknown interface", error))?;
        let guard = Guard::start(Undo::Qdisc { index })
            .map_err(|error| ("cannot start its guard process", error))?;
        let at = clock.now();
        if let Err(error) = netlink.add_own_qdisc(index, "netem", options) {
            guard.dismiss();
            return Err(("the kernel rejects it", error));
        }
        let held = self.held.insert(Held {
            netlink,
            index,
            guard,
        });
        let stats = held
            .netlink
            .own_qdisc(index)
            .map_err(|error| ("the kernel does not list netem", error))?;
        let seen = clock.now();
        match stats {
            Some(_) => {
                let what = format!("the kernel shows netem at the root of {}", self.interface);
                Ok(Proof {
                    at,
                    seen,
                    what,
                    value: None,
                })
            }
            None => Err((
                "the kernel does not list netem",
                io::ErrorKind::NotFound.into(),
            )),
        }
    }
}

impl Fault for Netem {
    fn describe(&self) -> String {
        format!("netem before {}", self.interface)
    }

    fn inject(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        if self.held.is_some() {
            return Err(FaultError::Misuse {
                fault: self.describe(),
                what: "it is already injected",
            });
        }
        let options = netem::options(&self.settings).map_err(|error| {
            let source = io::Error::from(io::ErrorKind::InvalidInput);
            let (what, advice) = (format!("cannot set {}", error.key), error.what);
            FaultError::Refused {
                fault: self.describe(),
                what,
                source,
                advice,
            }
        })?;
        self.try_inject(&options, clock)
            .map_err(|(what, error)| self.refused(what, error))
    }

    fn remove(&mut self, clock: &Clock) -> Result<Proof, FaultError> {
        let fault = self.describe();
        let Some(mut held) = self.held.take() else {
            return Err(FaultError::Misuse {
                fault,
                what: "it is not injected",
            });
        };
        let stats = held.netlink.own_qdisc(held.index).ok().flatten();
        let Some(QdiscStats { packets, drops }) = stats else {
            let seen = "another program removed or replaced netem during the fault".to_string();
            return Err(FaultError::NotShown { fault, seen });
        };
        let at = clock.now();
        let removed = held.netlink.remove_own_qdisc(held.index);
        removed.map_err(|error| self.refused("the kernel does not remove netem", error))?;
        if let Ok(Some(_)) = held.netlink.own_qdisc(held.index) {
            return Err(FaultError::NotGone {
                fault,
                seen: "the kernel still lists netem".to_string(),
            });
        }
        held.guard.dismiss();
        let seen = format!(
            "{packets} packets left {} through netem, which dropped {drops}",
            self.interface
        );
        if packets + drops == 0 {
            let seen = format!(
                "no packet left through {} during the fault; is that the interface to the other host?",
                self.interface
            );
            return Err(FaultError::NotShown { fault, seen });
        }
        Ok(Proof {
            at,
            seen: clock.now(),
            what: seen,
            value: Some(drops as f64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A nonexistent interface and settings that netem doesn't support are rejected with a remedy.
    #[test]
    fn nonexistent_interfaces_and_unsupported_settings_are_refused() {
        let check = |interface: &str, settings: &str, expected: &str| {
            let settings: Settings = toml::from_str(settings).unwrap();
            let error = Netem::new(interface, settings)
                .inject(&Clock::default())
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("nosuchdevice", "delay = '1ms'", "'ip link'");
        check("lo", "ecn = 0.5", "cannot set ecn");
    }
}
