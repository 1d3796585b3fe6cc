//! Lets an outside process run a command on a lab host. The host's namespaces are passed as file descriptors over a
//! Unix socket, and the command starts in them with the caller's terminal, working folder and signals.
//!
//! Called by `brunt lab exec` and by the lab that answers it. The rule: nothing is looked up by PID. A descriptor keeps
//! referring to the namespace it was opened for; once the lab has ended, nothing can start in its namespaces.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitStatus};

use rustix::fs::fstat;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};

use crate::host::Host;
use crate::stage::{AWAITED_SIGNALS, wait_for};
use crate::sys;

/// File descriptors of a host: the lab's user and PID namespaces, the host's mount and network namespaces.
const DESCRIPTORS: usize = 4;
/// Maximum message length; longer messages are rejected.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The open namespaces of a host.
#[derive(Debug)]
pub struct HostNamespaces {
    user: OwnedFd,
    mount: OwnedFd,
    process: OwnedFd,
    network: OwnedFd,
}

/// Why a command could not be run on a host.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {source}")]
pub struct EnterError {
    what: &'static str,
    /// The kernel's error.
    pub source: io::Error,
    /// Whether the command itself failed to start: it doesn't exist on the host, or isn't executable.
    pub is_command: bool,
}

impl HostNamespaces {
    /// Opens the namespaces of a host in a lab that this process runs.
    ///
    /// # Errors
    /// /proc is missing, or the process is out of file descriptors.
    pub fn to(host: &Host) -> io::Result<HostNamespaces> {
        let own =
            |kind: &str| Ok::<_, io::Error>(File::open(format!("/proc/self/ns/{kind}"))?.into());
        let (mount, network) = (host.mounts().try_clone()?, host.descriptor()?);
        Ok(HostNamespaces {
            user: own("user")?,
            mount,
            process: own("pid")?,
            network,
        })
    }

    /// Runs a command on the host, restricted to `cores` if given, and waits for it to end. This process stays in the
    /// host's namespaces, so it must be single-threaded and do nothing else afterwards. Signals that other processes
    /// send to it are forwarded to the command; terminal signals reach the command directly. The command is killed when
    /// this process or the lab ends.
    ///
    /// # Errors
    /// A system call fails, the working folder doesn't exist on the host, or the command cannot be started.
    pub fn run(
        self,
        cores: Option<&[usize]>,
        mut command: Command,
    ) -> Result<ExitStatus, EnterError> {
        let failed = |what| {
            move |source: io::Error| EnterError {
                what,
                source,
                is_command: false,
            }
        };
        let folder = std::env::current_dir().map_err(failed("determine the working directory"))?;
        let enter = failed("enter the lab's namespaces");
        self.enter().map_err(enter)?;
        std::env::set_current_dir(folder).map_err(failed(
            "change to this working directory in the lab, where nothing mounted after 'brunt lab up' is visible",
        ))?;
        if let Some(cores) = cores {
            let mut set = CpuSet::new();
            cores
                .iter()
                .filter(|core| **core < CpuSet::MAX_CPU)
                .for_each(|core| set.set(*core));
            sched_setaffinity(None, &set)
                .map_err(|error| failed("restrict it to the host's cores")(error.into()))?;
        }
        // Blocking SIGTTOU lets this process take the terminal back from the command.
        let blocked = [&AWAITED_SIGNALS[..], &[libc::SIGTTOU]].concat();
        let signals = sys::Signals::block(&blocked).map_err(failed("block signals"))?;
        sys::die_with_parent(&mut command);
        let started = command.spawn();
        let mut child = started.map_err(|source| EnterError {
            what: "start it",
            source,
            is_command: true,
        })?;
        wait_for(&mut child, &signals).map_err(failed("wait for it"))
    }

    /// Moves this thread into the namespaces. Entering the PID namespace only affects children started from now on.
    fn enter(&self) -> io::Result<()> {
        // The user namespace goes first: it grants the privileges that the others need. A lab started by root has no
        // separate user namespace, and the kernel doesn't let a process enter the one it is already in.
        let here = fstat(File::open("/proc/self/ns/user")?)?;
        let there = fstat(&self.user)?;
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino) {
            move_into_link_name_space(self.user.as_fd(), Some(LinkNameSpaceType::User))?;
        }
        move_into_link_name_space(self.process.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
        move_into_link_name_space(self.network.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(move_into_link_name_space(
            self.mount.as_fd(),
            Some(LinkNameSpaceType::Mount),
        )?)
    }

    fn descriptors(&self) -> [BorrowedFd<'_>; DESCRIPTORS] {
        [
            self.user.as_fd(),
            self.mount.as_fd(),
            self.process.as_fd(),
            self.network.as_fd(),
        ]
    }
}

/// Sends a line, with namespaces if given.
///
/// # Errors
/// The peer is gone, or the line contains a line break.
pub fn send(
    mut socket: &UnixStream,
    line: &str,
    namespaces: Option<&HostNamespaces>,
) -> io::Result<()> {
    if line.contains('\n') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let bytes = [line.as_bytes(), b"\n"].concat();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = namespaces.map(HostNamespaces::descriptors);
    if let Some(descriptors) = &descriptors {
        assert!(
            control.push(SendAncillaryMessage::ScmRights(descriptors)),
            "the control buffer has room for the descriptors"
        );
    }
    let sent = sendmsg(
        socket,
        &[IoSlice::new(&bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    socket.write_all(&bytes[sent..])
}

/// Receives a line sent by [`send`], without its line break, and the namespaces sent with it, if any.
///
/// # Errors
/// The peer is gone, is slower than the socket's timeout, or sends something else.
pub fn receive(socket: &UnixStream) -> io::Result<(String, Option<HostNamespaces>)> {
    let (mut line, mut received) = (Vec::new(), Vec::new());
    while line.last() != Some(&b'\n') {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let message = recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                received.extend(descriptors);
            }
        }
        if message.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.extend_from_slice(&bytes[..message.bytes]);
        let cut = message.flags.contains(ReturnFlags::CTRUNC) || received.len() > DESCRIPTORS;
        if line.len() > MESSAGE_BYTES_MAX || cut {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    line.pop();
    let line = String::from_utf8(line).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    let namespaces = match <[OwnedFd; DESCRIPTORS]>::try_from(received) {
        Ok([user, mount, process, network]) => Some(HostNamespaces {
            user,
            mount,
            process,
            network,
        }),
        Err(none) if none.is_empty() => None,
        Err(_) => return Err(io::ErrorKind::InvalidData.into()),
    };
    Ok((line, namespaces))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Lines of any length arrive complete; invalid input is an error and doesn't block.
    #[test]
    fn lines_of_any_length_arrive_complete() {
        for length in [0, 1, 4095, 4096, 100_000] {
            let (near, far) = UnixStream::pair().unwrap();
            let line = "x".repeat(length);
            std::thread::scope(|scope| {
                scope.spawn(|| send(&near, &line, None).unwrap());
                let (received, namespaces) = receive(&far).unwrap();
                assert!(received == line && namespaces.is_none(), "{length}");
            });
        }
        let (near, far) = UnixStream::pair().unwrap();
        far.set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        (&near).write_all(b"no end").unwrap();
        assert_eq!(receive(&far).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(near);
        // Processes that other tests start have a copy of `near` until they execute their program, so the end of the
        // stream may arrive late.
        far.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(
            receive(&far).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
        let (near, far) = UnixStream::pair().unwrap();
        assert_eq!(
            send(&near, "a\nb", None).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        std::thread::scope(|scope| {
            // Over the limit: the sender is released when the other side closes.
            scope.spawn(move || drop((&near).write_all(&vec![b'x'; MESSAGE_BYTES_MAX + 100_000])));
            assert_eq!(
                receive(&far).unwrap_err().kind(),
                io::ErrorKind::InvalidData
            );
            drop(far);
        });
    }

    /// Namespaces arrive with the line they were sent with.
    #[test]
    fn namespaces_arrive_with_their_line() {
        let own = |kind: &str| OwnedFd::from(File::open(format!("/proc/self/ns/{kind}")).unwrap());
        let namespaces = HostNamespaces {
            user: own("user"),
            mount: own("mnt"),
            process: own("pid"),
            network: own("net"),
        };
        let (near, far) = UnixStream::pair().unwrap();
        send(&near, "open", Some(&namespaces)).unwrap();
        let (line, arrived) = receive(&far).unwrap();
        let number = |fd: BorrowedFd<'_>| fstat(fd).unwrap().st_ino;
        let arrived = arrived.expect("namespaces");
        assert_eq!(line, "open");
        assert_eq!(
            arrived.descriptors().map(number),
            namespaces.descriptors().map(number)
        );
    }
}
