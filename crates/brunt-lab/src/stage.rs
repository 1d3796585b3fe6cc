//! The environment of a lab: the program re-executes itself as the init process of new user, PID, network and mount
//! namespaces. This doesn't need root, but works as root, too.
//!
//! Called by commands that need a lab, before they start any thread, because a multi-threaded program cannot enter a
//! user namespace. The rule: whatever ends either process ends everything. When the inner one dies, the kernel kills
//! everything else in its PID namespace, and the network namespaces disappear with their last process; when the outer
//! one dies, the inner one is killed.

use std::env;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{outside, sys};

/// Marks the inner process; the value lists the file descriptors of the pipe from its parent, of the parent's network
/// and of those to keep, separated by commas.
const MARK: &str = "BRUNT_STAGE";

/// On which side of the new namespaces the caller is.
#[derive(Debug)]
pub enum Entered {
    /// In the namespaces: hosts and links can be created.
    Inside,
    /// The inner process did everything and exited with this status; exit with the same one.
    Done(u8),
    /// The inner process was killed by this signal.
    Killed(i32),
}

/// Why the namespaces could not be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot create the namespaces of a lab: {what} ({source})")]
pub struct StageError {
    what: &'static str,
    source: io::Error,
    advice: String,
}

impl StageError {
    /// Which setting forbids the namespaces, and how to run Brunt instead.
    pub fn advice(&self) -> &str {
        &self.advice
    }
}

/// Re-executes this program in new namespaces, with the same arguments, and waits for it; signals to the outer
/// process are forwarded to the inner one. In the inner process, it returns immediately.
///
/// # Errors
/// The system forbids user namespaces, or the program already has several threads.
pub fn enter() -> Result<Entered, StageError> {
    enter_with(Vec::new()).map(|(entered, _)| entered)
}

/// Like [`enter`], and passes file descriptors to the inner process, in order, such as sockets that listen outside.
/// In the inner process, which doesn't have any descriptors yet, `keep` is empty.
///
/// # Errors
/// See [`enter`].
pub fn enter_with(keep: Vec<OwnedFd>) -> Result<(Entered, Vec<OwnedFd>), StageError> {
    match mark() {
        Some(descriptors) => arrive(&descriptors).map(|kept| (Entered::Inside, kept)),
        None => depart(keep).map(|entered| (entered, Vec::new())),
    }
}

/// Whether this process has root privileges on the machine, not just in its own namespaces. For example, `trusted.*`
/// file attributes and block devices need them.
pub fn is_root_of_machine() -> bool {
    // All users of the kernel are mapped to themselves.
    let users = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let all_users = users.split_whitespace().eq(["0", "0", "4294967295"]);
    let may = rustix::thread::capabilities(None);
    all_users
        && may.is_ok_and(|may| {
            may.effective
                .contains(rustix::thread::CapabilitySet::SYS_ADMIN)
        })
}

/// Whether this is the inner process, before it calls [`enter`] or [`enter_with`].
pub fn is_inner() -> bool {
    mark().is_some()
}

fn mark() -> Option<String> {
    env::var(MARK).ok().filter(|_| std::process::id() == 1)
}

/// Whether this process was started by [`enter_with`] and has not called it yet; it must not start threads before that.
pub fn is_inside() -> bool {
    std::env::var_os(MARK).is_some()
}

/// The inner side: checks that the parent is alive, and mounts its own /proc. `descriptors` lists the pipe from the
/// parent, the parent's network and those to keep, separated by commas.
fn arrive(descriptors: &str) -> Result<Vec<OwnedFd>, StageError> {
    let failed = |what, source| StageError {
        what,
        source,
        advice: String::new(),
    };
    // No other thread has been started yet, so none reads the environment concurrently.
    sys::remove_variable(MARK);
    let broken = |_| failed("invalid marker", io::Error::other(descriptors.to_string()));
    let numbers: Vec<i32> = descriptors
        .split(',')
        .map(str::parse)
        .collect::<Result<_, _>>()
        .map_err(broken)?;
    let gone = |error| failed("the parent's descriptor is missing", error);
    let parent = sys::adopt(*numbers.first().unwrap_or(&-1)).map_err(gone)?;
    let network = sys::adopt(*numbers.get(1).unwrap_or(&-1)).map_err(gone)?;
    outside::keep(network);
    let kept = numbers.iter().skip(2).map(|number| sys::adopt(*number));
    let kept = kept.collect::<Result<Vec<OwnedFd>, _>>().map_err(gone)?;
    // The parent may have died before the inner process was set up to be killed with it.
    let mut polled = [PollFd::new(&parent, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&at_once)).map_err(|error| failed("cannot poll", error.into()))?;
    if polled[0].revents().intersects(PollFlags::HUP) {
        return Err(failed(
            "the parent has exited",
            io::ErrorKind::BrokenPipe.into(),
        ));
    }
    // A /proc with the processes of this namespace. The kernel refuses the mount where a container masks parts of
    // /proc; /proc/self still works then, which is enough here.
    let _ = sys::mount_proc();
    Ok(kept)
}

/// The outer side: creates the namespaces, starts the inner process in them, and waits.
fn depart(keep: Vec<OwnedFd>) -> Result<Entered, StageError> {
    let failed = |what| {
        move |source: io::Error| StageError {
            what,
            advice: advice(&source),
            source,
        }
    };
    let (inner, outer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|error| failed("no pipe")(error.into()))?;
    let network = fs::File::open("/proc/self/ns/net");
    let network = OwnedFd::from(network.map_err(failed("cannot open the machine's network"))?);
    for descriptor in [&inner, &network].into_iter().chain(&keep) {
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::empty())
            .map_err(|error| failed("no pipe")(error.into()))?;
    }
    let program = env::current_exe().map_err(failed("cannot find this program's executable"))?;
    let all = libc::CLONE_NEWPID | libc::CLONE_NEWNET | libc::CLONE_NEWNS;
    // Root keeps its user namespace, which permits more: real devices, real-time priorities.
    let privileged = rustix::process::geteuid().is_root() && sys::unshare(all).is_ok();
    if !privileged {
        let (user, group) = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        sys::unshare(all | libc::CLONE_NEWUSER).map_err(failed("unshare failed"))?;
        // An unprivileged process may write gid_map only after it has denied setgroups (user_namespaces(7)).
        let maps = [
            ("/proc/self/setgroups", "deny".to_string()),
            ("/proc/self/uid_map", format!("0 {user} 1")),
            ("/proc/self/gid_map", format!("0 {group} 1")),
        ];
        for (file, text) in maps {
            fs::write(file, text).map_err(failed("cannot map the user of a new user namespace"))?;
        }
    }
    let signals = sys::Signals::block(&AWAITED_SIGNALS).map_err(failed("cannot block signals"))?;
    let mut command = Command::new(program);
    let numbers: Vec<String> = [&inner, &network]
        .into_iter()
        .chain(&keep)
        .map(|descriptor| descriptor.as_raw_fd().to_string())
        .collect();
    command
        .args(env::args_os().skip(1))
        .env(MARK, numbers.join(","));
    sys::die_with_parent(&mut command);
    let mut child = command
        .spawn()
        .map_err(failed("cannot restart this program"))?;
    drop((inner, network, keep));
    let status = wait_for(&mut child, &signals)
        .map_err(failed("cannot wait for the process in the namespaces"))?;
    drop(outer);
    Ok(match status.signal() {
        Some(signal) => Entered::Killed(signal),
        None => Entered::Done(status.code().unwrap_or(1) as u8),
    })
}

/// Signals that are blocked while [`wait_for`] waits: those that it forwards, and SIGCHLD.
pub(crate) const AWAITED_SIGNALS: [libc::c_int; 5] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGCHLD,
];

/// Waits until a process has ended, and forwards signals to it that other processes send to this one; terminal signals
/// reach both anyway.
pub(crate) fn wait_for(child: &mut Child, signals: &sys::Signals) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let (signal, sent) = signals.wait()?;
        if signal != libc::SIGCHLD && sent {
            let pid = rustix::process::Pid::from_child(child);
            if let Some(signal) = rustix::process::Signal::from_named_raw(signal) {
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
    }
}

/// Names this machine's settings that forbid user namespaces or, if none does, the usual remedies.
fn advice(error: &io::Error) -> String {
    if error.raw_os_error() == Some(libc::EINVAL) {
        return "this is a bug in brunt: the program already has threads".to_string();
    }
    let setting = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let forbidding = [
        ("kernel.unprivileged_userns_clone", 0, "1"),
        ("kernel.apparmor_restrict_unprivileged_userns", 1, "0"),
        ("user.max_user_namespaces", 0, "1000"),
        ("user.max_net_namespaces", 0, "1000"),
    ];
    for (name, forbids, allows) in forbidding {
        if setting(name) == Some(forbids) {
            return format!(
                "sysctl {name} is {forbids}: sudo sysctl -w {name}={allows}, or run as root"
            );
        }
    }
    "user namespaces are disabled here: run as root; in a container, docker run --cap-add \
     SYS_ADMIN --cap-add NET_ADMIN --security-opt seccomp=unconfined --device /dev/net/tun"
        .to_string()
}
