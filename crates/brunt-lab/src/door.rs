//! The way into a lab's host for a process outside: the namespaces are handed over a Unix socket as descriptors, and a
//! command starts in them with its caller's terminal, working folder and signals.
//!
//! Called by `brunt lab exec` and by the lab that it asks. The rule: nothing is found by process number. A descriptor
//! keeps the namespace that it was opened for; when the lab has ended, nothing starts in its namespaces any more.

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
use crate::stage::wait_for;
use crate::sys;

/// Descriptors of a door: user and process namespace of the lab, mount and network namespace of the host.
const DESCRIPTORS: usize = 4;
/// A longer message is refused.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The namespaces of a host, open.
#[derive(Debug)]
pub struct Door {
    user: OwnedFd,
    mount: OwnedFd,
    process: OwnedFd,
    network: OwnedFd,
}

/// Why a command was not run behind a door.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {source}")]
pub struct DoorError {
    what: &'static str,
    /// What the kernel said.
    pub source: io::Error,
    /// Whether the command itself could not be started: it does not exist there, or is no program.
    pub is_command: bool,
}

impl Door {
    /// The one to a host of the lab that this process holds.
    ///
    /// # Errors
    /// There is no /proc, or no descriptor is left.
    pub fn to(host: &Host) -> io::Result<Door> {
        let own =
            |kind: &str| Ok::<_, io::Error>(File::open(format!("/proc/self/ns/{kind}"))?.into());
        let (mount, network) = (host.mounts().try_clone()?, host.descriptor()?);
        Ok(Door {
            user: own("user")?,
            mount,
            process: own("pid")?,
            network,
        })
    }

    /// Runs a command behind it, on these cores if any are named, and waits for its end. This process changes its
    /// namespaces for good, so it has to be one that does nothing else, with a single thread. Signals that other
    /// processes send to it reach the command; the terminal sends its own. The command is killed if this process is,
    /// and if the lab ends.
    ///
    /// # Errors
    /// The kernel refuses, the working folder does not exist there, or the command cannot be started.
    pub fn run(
        self,
        cores: Option<&[usize]>,
        mut command: Command,
    ) -> Result<ExitStatus, DoorError> {
        let failed = |what| {
            move |source: io::Error| DoorError {
                what,
                source,
                is_command: false,
            }
        };
        let folder = std::env::current_dir().map_err(failed("find the working folder"))?;
        let enter = failed("enter the lab's namespaces");
        self.enter().map_err(enter)?;
        std::env::set_current_dir(folder).map_err(failed(
            "enter this working folder in the lab, where nothing is visible that was mounted after 'brunt lab up'",
        ))?;
        if let Some(cores) = cores {
            let mut set = CpuSet::new();
            cores
                .iter()
                .filter(|core| **core < CpuSet::MAX_CPU)
                .for_each(|core| set.set(*core));
            sched_setaffinity(None, &set)
                .map_err(|error| failed("keep to the host's cores")(error.into()))?;
        }
        // The last, so that this process may take the terminal back from a command that took it.
        let signals = sys::Signals::block(&[
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGHUP,
            libc::SIGQUIT,
            libc::SIGCHLD,
            libc::SIGTTOU,
        ])
        .map_err(failed("block signals"))?;
        sys::die_with_parent(&mut command);
        let started = command.spawn();
        let mut child = started.map_err(|source| DoorError {
            what: "start it",
            source,
            is_command: true,
        })?;
        wait_for(&mut child, &signals).map_err(failed("wait for it"))
    }

    /// This thread enters the namespaces; of the process namespace only what it starts from now on.
    fn enter(&self) -> io::Result<()> {
        // The user first: it brings the rights that the others take. Root's labs have none of their own, and the
        // kernel lets nobody enter the one that he is in.
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

/// Sends a line, with a door where there is one.
///
/// # Errors
/// The other side is gone, or the line has a line break in it.
pub fn send(mut socket: &UnixStream, line: &str, door: Option<&Door>) -> io::Result<()> {
    if line.contains('\n') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let bytes = [line.as_bytes(), b"\n"].concat();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = door.map(Door::descriptors);
    if let Some(descriptors) = &descriptors {
        assert!(
            control.push(SendAncillaryMessage::ScmRights(descriptors)),
            "the space is of their size"
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

/// Receives such a line, without its end; `None` for a door if there was none.
///
/// # Errors
/// The other side is gone, takes longer than the socket's time-out, or sends something else.
pub fn receive(socket: &UnixStream) -> io::Result<(String, Option<Door>)> {
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
    let door = match <[OwnedFd; DESCRIPTORS]>::try_from(received) {
        Ok([user, mount, process, network]) => Some(Door {
            user,
            mount,
            process,
            network,
        }),
        Err(none) if none.is_empty() => None,
        Err(_) => return Err(io::ErrorKind::InvalidData.into()),
    };
    Ok((line, door))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Lines of any length arrive whole, and what is no line is an error, not a wait.
    #[test]
    fn lines_arrive_whole() {
        for length in [0, 1, 4095, 4096, 100_000] {
            let (near, far) = UnixStream::pair().unwrap();
            let line = "x".repeat(length);
            std::thread::scope(|scope| {
                scope.spawn(|| send(&near, &line, None).unwrap());
                let (received, door) = receive(&far).unwrap();
                assert!(received == line && door.is_none(), "{length}");
            });
        }
        let (near, far) = UnixStream::pair().unwrap();
        far.set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        (&near).write_all(b"no end").unwrap();
        assert_eq!(receive(&far).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(near);
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
            // More than is taken: the sender is let go when the other side closes.
            scope.spawn(move || drop((&near).write_all(&vec![b'x'; MESSAGE_BYTES_MAX + 100_000])));
            assert_eq!(
                receive(&far).unwrap_err().kind(),
                io::ErrorKind::InvalidData
            );
            drop(far);
        });
    }

    /// Descriptors arrive with the line that they were sent with.
    #[test]
    fn doors_arrive() {
        let own = |kind: &str| OwnedFd::from(File::open(format!("/proc/self/ns/{kind}")).unwrap());
        let door = Door {
            user: own("user"),
            mount: own("mnt"),
            process: own("pid"),
            network: own("net"),
        };
        let (near, far) = UnixStream::pair().unwrap();
        send(&near, "open", Some(&door)).unwrap();
        let (line, arrived) = receive(&far).unwrap();
        let number = |fd: BorrowedFd<'_>| fstat(fd).unwrap().st_ino;
        let arrived = arrived.expect("a door");
        assert_eq!(line, "open");
        assert_eq!(
            arrived.descriptors().map(number),
            door.descriptors().map(number)
        );
    }
}
