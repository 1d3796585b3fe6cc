//! A role on another host, started and supervised by that host's agent: for the experiment, its hooks and its faults,
//! it is a role like any other.
//!
//! All hosts first admit their services; each service then starts once the services that it waits for are ready.
//!
//! The rule: everything about the role is learned from its agent, and if the host is lost, so is the role.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brunt_core::Clock;
use brunt_host::{FarRole, FarRoleError, Fleet, RoleDeath};
use brunt_lab::{Fault, FaultError, Proof};
use brunt_protocol::service::ServiceProgram;
use brunt_protocol::{HostFaultFailure, HostRole, HostService, RoleEnd, RoleOutage, Secret};

use super::answer::answer;
use super::login::RoleLogin;
use super::{Launch, Role, RoleError, Serve, serving};
use crate::control::{self, Absence, Controls, ProcessState, Reply};
use crate::host::HostName;

/// A host that runs roles, and its address.
#[derive(Clone, Debug)]
pub struct ServingHost {
    /// The host's name in the experiment.
    pub name: HostName,
    /// The address where the host's roles listen.
    pub address: IpAddr,
    /// The connected agents, including this host's.
    pub fleet: Arc<Fleet>,
}

/// A role that an agent runs. Dropping it makes the agent end it.
struct RemoteRole {
    name: String,
    host: HostName,
    takes_commands: bool,
    login: Option<RoleLogin>,
    /// Whether the role is a service. If one of several services is lost, the others may continue.
    is_service: bool,
    far: FarRole,
    state: Mutex<ProcessState>,
    frozen: Mutex<bool>,
}

/// Starts a role on a host, and waits until it listens.
///
/// # Errors
/// The role does not start; the text includes its output.
pub fn start_remote(
    name: &str,
    serve: &Serve,
    congestion: Option<String>,
    at: &ServingHost,
) -> Result<Arc<dyn Role>, RoleError> {
    let os = |what, source| RoleError::of(name, brunt_host::RoleFailure::Os { what, source });
    let kind = serving(serve);
    let Launch::Process { takes_commands, .. } = kind.launch() else {
        return Err(RoleError::Within {
            name: name.to_string(),
        });
    };
    let login = kind
        .login_option()
        .map(|_| RoleLogin::unguessable())
        .transpose();
    let login = login.map_err(|error| os("be given a login", error))?;
    let wish = HostRole {
        name: name.to_string(),
        serve: serde_json::to_value(serve)
            .map_err(|error| os("be asked for", io::Error::other(error)))?,
        address: at.address,
        congestion,
        login: login.as_ref().map(|login| Secret(login.as_argument())),
    };
    let started = at.fleet.start_role(at.name.as_str(), wish);
    let far = started.map_err(|error| RoleError::remote(name, error))?;
    let (name, host) = (name.to_string(), at.name.clone());
    let (is_service, state, frozen) = Default::default();
    Ok(Arc::new(RemoteRole {
        name,
        host,
        takes_commands,
        login,
        is_service,
        far,
        state,
        frozen,
    }))
}

/// A service that a host is prepared to start. Dropping it withdraws the preparation.
pub struct AdmittedService {
    name: String,
    host: HostName,
    far: FarRole,
}

/// Makes a host prepare to start a service, whose folder on that host gets this name; the service's output goes to
/// `log`.
///
/// # Errors
/// The host doesn't allow the service, or already has its maximum number of roles.
pub fn admit_remote(
    folder: &str,
    program: ServiceProgram,
    needs_root: bool,
    log: &Path,
    at: &ServingHost,
) -> Result<AdmittedService, RoleError> {
    let name = format!("service {folder}");
    let service = HostService {
        name: name.clone(),
        folder: folder.to_string(),
        address: at.address,
        program,
        needs_root,
    };
    let admitted = at.fleet.admit_service(at.name.as_str(), service, log);
    let far = admitted.map_err(|error| RoleError::remote(&name, error))?;
    Ok(AdmittedService {
        name,
        host: at.name.clone(),
        far,
    })
}

impl AdmittedService {
    /// The service's folder on its host.
    pub fn folder(&self) -> &Path {
        self.far
            .folder()
            .expect("an admitted service has its folder")
    }

    /// Starts the service with these additional variables, and waits until it is ready or `interrupted` is set.
    ///
    /// # Errors
    /// The service does not start, or the start was interrupted; the text includes its output.
    pub fn run(
        self,
        more: BTreeMap<String, String>,
        interrupted: &AtomicBool,
    ) -> Result<Arc<dyn Role>, RoleError> {
        let AdmittedService {
            name,
            host,
            mut far,
        } = self;
        far.run(more, interrupted)
            .map_err(|error| RoleError::remote(&name, error))?;
        let (takes_commands, login, is_service) = (false, None, true);
        let (state, frozen) = Default::default();
        Ok(Arc::new(RemoteRole {
            name,
            host,
            takes_commands,
            login,
            is_service,
            far,
            state,
            frozen,
        }))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RemoteRole {
    fn failed(&self, error: FarRoleError) -> RoleError {
        RoleError::remote(&self.name, error)
    }

    fn interrupt(&self, by: Absence) -> Result<Proof, FarRoleError> {
        let outage = match by {
            Absence::Frozen => RoleOutage::Freeze,
            Absence::Dead => RoleOutage::Kill,
        };
        let seen = self.far.interrupt(outage)?;
        *lock(&self.frozen) = by == Absence::Frozen;
        Ok(seen)
    }

    /// Puts the role back into service. If the role was killed, it begins a new life.
    fn put_back(&self, by: Absence) -> Result<Proof, FarRoleError> {
        let seen = self.far.put_back()?;
        *lock(&self.frozen) = false;
        if by == Absence::Dead {
            lock(&self.state).begin_new_life(Clock::Monotonic.now());
        }
        Ok(seen)
    }
}

impl RoleError {
    /// A role on another host is gone, or not in the expected state.
    fn remote(name: &str, error: FarRoleError) -> RoleError {
        let name = name.to_string();
        match error {
            FarRoleError::Died { end, .. } => {
                let RoleEnd {
                    status,
                    at,
                    starved,
                    lines,
                } = *end;
                let death = RoleDeath {
                    status: ExitStatus::from_raw(status),
                    at,
                    starved,
                };
                RoleError::Died { name, death, lines }
            }
            FarRoleError::Lost(_) | FarRoleError::Slow { .. } => {
                RoleError::HostLost { name, error }
            }
            FarRoleError::Refused { .. }
            | FarRoleError::NotDone { .. }
            | FarRoleError::Log { .. }
            | FarRoleError::Unwanted { .. } => RoleError::Far { name, error },
        }
    }
}

impl Role for RemoteRole {
    fn name(&self) -> &str {
        &self.name
    }

    fn host(&self) -> &HostName {
        &self.host
    }

    fn address(&self) -> SocketAddr {
        self.far.address()
    }

    fn login(&self) -> Option<&RoleLogin> {
        self.login.as_ref()
    }

    fn is_here(&self) -> bool {
        false
    }

    fn pid(&self) -> u32 {
        self.far.pid()
    }

    /// The role's output is reported when it exits.
    fn log(&self) -> Vec<String> {
        Vec::new()
    }

    fn outage(self: Arc<Self>, by: Absence) -> Box<dyn Fault> {
        Box::new(FarOutage {
            role: self,
            by,
            there: false,
        })
    }

    fn mark_away(&self, away: Absence) -> bool {
        lock(&self.state).mark_away(away, Clock::Monotonic.now())
    }

    fn comes_back(&self) {
        lock(&self.state).mark_running();
    }

    fn check(&self) -> Result<(), RoleError> {
        self.far.check().map_err(|error| self.failed(error))
    }

    fn freeze(&self) -> Result<(), RoleError> {
        self.interrupt(Absence::Frozen)
            .map(drop)
            .map_err(|error| self.failed(error))
    }

    fn thaw(&self) -> Result<(), RoleError> {
        self.put_back(Absence::Frozen)
            .map(drop)
            .map_err(|error| self.failed(error))
    }

    fn is_frozen(&self) -> bool {
        *lock(&self.frozen)
    }

    fn kill(&self) {
        // An error means that the role is already gone.
        let _ = self.interrupt(Absence::Dead);
    }

    fn restart(&self) -> Result<(), RoleError> {
        self.put_back(Absence::Dead)
            .map(drop)
            .map_err(|error| self.failed(error))
    }

    fn pin(&self, _cores: &[usize]) -> io::Result<()> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("it uses the cores of host {}", self.host),
        ))
    }

    fn cores(&self) -> io::Result<Vec<usize>> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("it uses the cores of host {}", self.host),
        ))
    }

    fn loss(&self) -> Option<String> {
        self.far.lost().filter(|_| self.is_service)
    }

    fn stop(&self) -> Result<(), RoleError> {
        if self.loss().is_some() {
            // Runs report the loss of the host, whose agent ends the role itself.
            return Ok(());
        }
        let died = self.check();
        let stopped = self.far.stop().map_err(|error| self.failed(error));
        died.and(stopped)
    }
}

impl Controls for RemoteRole {
    fn state(&self) -> ProcessState {
        *lock(&self.state)
    }

    fn ask(&self, order: &control::Command) -> io::Result<Reply> {
        let _one = self.far.talk();
        answer(self, self.takes_commands, order, &mut &self.far)
    }
}

/// Takes a role on another host out of service, and puts it back.
struct FarOutage {
    role: Arc<RemoteRole>,
    by: Absence,
    there: bool,
}

impl FarOutage {
    fn fault_error(&self, what: &'static str, error: FarRoleError) -> FaultError {
        let fault = self.describe();
        match error {
            FarRoleError::NotDone {
                kind: HostFaultFailure::NotShown,
                what,
                ..
            } => FaultError::NotShown { fault, seen: what },
            FarRoleError::NotDone {
                kind: HostFaultFailure::NotGone,
                what,
                ..
            } => FaultError::NotGone { fault, seen: what },
            error => FaultError::Refused {
                fault,
                what: what.to_string(),
                source: io::Error::other(error),
                advice: format!("check its output, and host {}", self.role.host),
            },
        }
    }
}

impl Fault for FarOutage {
    fn describe(&self) -> String {
        let what = if self.by == Absence::Frozen {
            "freeze"
        } else {
            "kill"
        };
        format!("{what} of {} on host {}", self.role.name, self.role.host)
    }

    fn inject(&mut self, _clock: &Clock) -> Result<Proof, FaultError> {
        let seen = self.role.interrupt(self.by);
        let seen =
            seen.map_err(|error| self.fault_error("cannot take it out of service", error))?;
        self.there = true;
        Ok(seen)
    }

    fn remove(&mut self, _clock: &Clock) -> Result<Proof, FaultError> {
        if !std::mem::take(&mut self.there) {
            return Err(FaultError::Misuse {
                fault: self.describe(),
                what: "it was not injected",
            });
        }
        self.role
            .put_back(self.by)
            .map_err(|error| self.fault_error("cannot put it back into service", error))
    }
}

impl Drop for FarOutage {
    fn drop(&mut self) {
        // Whoever needs a killed role restarts it, as for roles on this machine.
        if self.there && self.by == Absence::Frozen {
            let _ = self.role.put_back(self.by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_core::Nanos;
    use brunt_result::void::VoidReason;

    /// The error of a role on another host determines why the run is invalid.
    #[test]
    fn remote_failures_have_their_reason() {
        let host = || "far".to_string();
        let check = |error: FarRoleError, reason: VoidReason, words: &str| {
            let error = RoleError::remote("disk", error);
            assert_eq!(error.reason(), reason, "{error}");
            assert!(
                error.to_string().starts_with("disk") && error.to_string().contains(words),
                "{error}"
            );
        };
        let end = RoleEnd {
            status: 9,
            at: Some(Nanos(1)),
            starved: None,
            lines: vec!["bye".into()],
        };
        check(
            FarRoleError::Died {
                host: host(),
                end: Box::new(end),
            },
            VoidReason::RoleDied,
            "bye",
        );
        check(
            FarRoleError::Lost("host far: gone".into()),
            VoidReason::FaultHostLost,
            "host far: gone",
        );
        let (kind, what) = (HostFaultFailure::Refused, "no".to_string());
        check(
            FarRoleError::NotDone {
                host: host(),
                kind,
                what,
            },
            VoidReason::NotReady,
            "host far: no",
        );
    }
}
