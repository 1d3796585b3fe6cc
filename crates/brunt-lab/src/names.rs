//! Lets programs in a lab call its hosts by name: an /etc/hosts of the lab's own, over the system's on each host.
//!
//! Called once a lab's hosts stand. The rule: nothing is left behind. The file loses its name as soon as it is mounted,
//! and the mounts go with the hosts' namespaces.

use std::fs;
use std::io::{self, Write};
use std::net::Ipv4Addr;

use brunt_core::Clock;
use rustix::mount::mount_bind;

use crate::host::Host;

/// What the C library reads names from (hosts(5)).
const HOSTS: &str = "/etc/hosts";

/// Has the names of these hosts mean their addresses for all on them that looks in /etc/hosts, before what it said so far.
///
/// # Errors
/// There is no /etc/hosts, or the machine refuses.
pub(crate) fn publish<'a>(hosts: impl Iterator<Item = &'a Host> + Clone) -> io::Result<()> {
    let names = hosts.clone().map(|host| (host.name(), host.address()));
    let text = text(names, &fs::read_to_string(HOSTS)?);
    // Every stage's first process has the same number; no two have the same nanosecond and find no file.
    let path = std::env::temp_dir().join(format!("brunt-hosts-{}", Clock::Monotonic.now().0));
    let mut file = fs::File::create_new(&path)?;
    let mut mount = |host: &Host| host.run(|| Ok(mount_bind(&path, HOSTS)?));
    let mounted = file
        .write_all(text.as_bytes())
        .and_then(|()| hosts.into_iter().try_for_each(&mut mount));
    // The kernel mounts no file without a name, but keeps one that loses it.
    fs::remove_file(&path)?;
    mounted
}

/// The hosts, then what there was.
fn text<'a>(hosts: impl Iterator<Item = (&'a str, Ipv4Addr)>, before: &str) -> String {
    let usual = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let mut text = String::new();
    // A name that cannot stand in the file, or that means something to every program, is not in it.
    for (name, address) in hosts.filter(|(name, _)| name.chars().all(usual) && *name != "localhost")
    {
        text += &format!("{address}\t{name}\n");
    }
    text + before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_first() {
        let address = Ipv4Addr::new(10, 77, 0, 1);
        let hosts = ["client", "two words", "localhost"].map(|name| (name, address));
        assert_eq!(
            text(hosts.into_iter(), "127.0.0.1 localhost\n"),
            "10.77.0.1\tclient\n127.0.0.1 localhost\n"
        );
    }
}
