use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use brunt_core::Clock;

use super::*;
use crate::control::Absence;
use crate::experiment::Experiment;
use crate::host::{HostName, Launcher, LocalLauncher};

/// Names are unique, help is present, and each example creates exactly one role of its kind.
#[test]
fn each_line_is_whole() {
    for (index, entry) in ROLES.iter().enumerate() {
        let info = entry.info;
        assert!(
            ROLES[index + 1..]
                .iter()
                .all(|other| other.info.name != info.name),
            "{}",
            info.name
        );
        assert!(!info.help.is_empty(), "{}", info.name);
        let text = format!(
            "name = \"x\"\n[workloads.w]\nstop = {{ time = \"1s\" }}\n{}\n",
            info.example
        );
        let experiment = Experiment::parse("x.toml", &text)
            .unwrap_or_else(|error| panic!("{}", error.one_line()));
        let roles = experiment.roles();
        let of_kind: Vec<_> = roles
            .iter()
            .filter(|role| role.role.info().name == info.name)
            .collect();
        let [role] = of_kind.as_slice() else {
            panic!("{}: {roles:?}", info.name)
        };
        assert_eq!(role.host, HostName::local());
        let at = "127.0.0.1:9".parse().unwrap();
        let is_process = matches!(role.role.launch(), Launch::Process { .. });
        assert_eq!(
            role.role.url(at, 0).is_some(),
            is_process,
            "{}: only processes serve",
            info.name
        );
    }
}

/// This machine, except that every program is a shell.
#[derive(Default)]
struct Shell(LocalLauncher);

impl Launcher for Shell {
    fn host(&self) -> &HostName {
        self.0.host()
    }
    fn address(&self) -> IpAddr {
        self.0.address()
    }
    fn program(&self) -> io::Result<PathBuf> {
        Ok("/bin/sh".into())
    }
    fn place(&self, command: &mut Command) -> io::Result<()> {
        self.0.place(command)
    }
}

/// A role of a new kind is started, read, frozen, killed, restarted and stopped like any other.
#[test]
fn a_role_of_a_new_kind() {
    let kind = serving(&Serve::One("test-only".into()));
    let role = start("it", kind.as_ref(), Vec::new(), Arc::new(Shell::default())).unwrap();
    assert_eq!(
        (role.name(), role.host().as_str(), role.address().port()),
        ("it", "local", 9)
    );
    role.check().unwrap();
    let freeze = &mut Arc::clone(&role).outage(Absence::Frozen);
    freeze.inject(&Clock::Monotonic).unwrap();
    freeze.remove(&Clock::Monotonic).unwrap();
    let (before, kill) = (role.pid(), &mut Arc::clone(&role).outage(Absence::Dead));
    kill.inject(&Clock::Monotonic).unwrap();
    kill.remove(&Clock::Monotonic).unwrap();
    assert_ne!(role.pid(), before);
    role.check().unwrap();
    let refused = role
        .ask(&crate::control::Command::Status { lun: 0 })
        .unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    role.stop().unwrap();
    assert_eq!(role.log(), ["it begins"]);
    let within = start(
        "worker",
        &worker::WorkerRole,
        Vec::new(),
        Arc::new(Shell::default()),
    );
    assert!(matches!(within, Err(RoleError::Within { .. })));
}
