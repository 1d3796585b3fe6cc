//! Lets programs in a lab use host names: mounts the lab's own /etc/hosts over the system's on each host.
//!
//! Called once all hosts of a lab exist. The rule: nothing is left behind. The file is unlinked as soon as it is
//! mounted, and the mounts disappear with the hosts' namespaces.

use std::fs;
use std::io::{self, Write};
use std::net::Ipv4Addr;

use brunt_core::Clock;
use rustix::mount::mount_bind;

use crate::host::Host;

/// The file that the C library reads names from (hosts(5)).
const HOSTS: &str = "/etc/hosts";

/// Adds the names of these hosts to /etc/hosts as seen on them, before its previous contents.
///
/// # Errors
/// /etc/hosts is missing, or a system call fails.
pub(crate) fn publish<'a>(hosts: impl Iterator<Item = &'a Host> + Clone) -> io::Result<()> {
    let names = hosts.clone().map(|host| (host.name(), host.address()));
    let text = text(names, &fs::read_to_string(HOSTS)?);
    // The init process of every stage has the same PID, but no two create a file in the same nanosecond.
    let path = std::env::temp_dir().join(format!("brunt-hosts-{}", Clock::Monotonic.now().0));
    let mut file = fs::File::create_new(&path)?;
    let mut mount = |host: &Host| host.run(|| Ok(mount_bind(&path, HOSTS)?));
    let mounted = file
        .write_all(text.as_bytes())
        .and_then(|()| hosts.into_iter().try_for_each(&mut mount));
    // The kernel can only mount a file that has a name, but keeps it mounted after it is unlinked.
    fs::remove_file(&path)?;
    mounted
}

/// The hosts, followed by the previous contents.
fn text<'a>(hosts: impl Iterator<Item = (&'a str, Ipv4Addr)>, before: &str) -> String {
    let usual = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let mut text = String::new();
    // Names that are invalid in the file, and `localhost`, which has a meaning for every program, are omitted.
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
    fn host_names_precede_the_previous_contents() {
        let address = Ipv4Addr::new(10, 77, 0, 1);
        let hosts = ["client", "two words", "localhost"].map(|name| (name, address));
        assert_eq!(
            text(hosts.into_iter(), "127.0.0.1 localhost\n"),
            "10.77.0.1\tclient\n127.0.0.1 localhost\n"
        );
    }
}
