//! The Linux initiator, unmodified, in a virtual machine: Debian's kernel and open-iscsi, booted by
//! `tools/kernel-initiator.sh`, log in to our target with CHAP and CRC32C digests and keep a file
//! system on it.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use support::{CHAP, TARGET_NAME, Target, TempDir, need, root, skip};

/// Logs in, once for every test: CHAP, digests, and a session that is kept for two minutes while
/// the target is away, with a ping each second to notice.
const LOGIN: &str = r#"
set -e
session() { iscsiadm -m node -T "$TARGET" -p "$PORTAL" "$@"; }
key() { session -o update -n "$1" -v "$2"; }
iscsid
session -o new >/dev/null
key node.session.auth.authmethod CHAP
key node.session.auth.username "$USER"
key node.session.auth.password "$SECRET"
key 'node.conn[0].iscsi.HeaderDigest' CRC32C
key 'node.conn[0].iscsi.DataDigest' CRC32C
key node.session.timeo.replacement_timeout 120
key 'node.conn[0].timeo.noop_out_interval' 1
key 'node.conn[0].timeo.noop_out_timeout' 2
session --login
for i in $(seq 1200); do [ -b /dev/sda ] && break; sleep .1; done
iscsiadm -m session -P 2 | grep -E 'Digest|Burst|DataSegment'
"#;

/// The tool and all it wants.
fn ready() -> bool {
    for (program, package) in [("qemu-system-x86_64", "qemu-system-x86"), ("cpio", "cpio")] {
        if need(program, package).is_none() {
            return false;
        }
    }
    let ready = Command::new(root().join("tools/kernel-initiator.sh")).arg("--ready").status();
    if !ready.expect("bash").success() {
        skip("a prepared guest (run tools/kernel-initiator.sh --prepare)");
        return false;
    }
    true
}

/// A guest that runs a script; it is gone with this value.
struct Guest {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    seen: String,
}

impl Guest {
    fn boot(folder: &TempDir, target: &Target, script: &str) -> Guest {
        let file = folder.join("script");
        let place = format!(
            "TARGET={TARGET_NAME} PORTAL=10.0.2.2:{} USER={} SECRET={}\n",
            target.address().port(),
            CHAP.0,
            CHAP.1
        );
        std::fs::write(&file, format!("{place}{LOGIN}{script}")).expect("a script");
        let mut child = Command::new(root().join("tools/kernel-initiator.sh"))
            .arg(&file)
            // A guest without help from the processor, on a busy machine, takes ten times its two minutes.
            .env("BRUNT_GUEST_SECONDS", "1500")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Guest { child, lines, seen: String::new() }
    }

    /// Reads on until a line that starts with `word`; what follows it.
    fn wait_for(&mut self, word: &str) -> String {
        for line in self.lines.by_ref() {
            let line = line.expect("text");
            self.seen += &line;
            self.seen.push('\n');
            if let Some(rest) = line.trim_end().strip_prefix(word) {
                return rest.trim().to_string();
            }
        }
        panic!("the guest ended without '{word}': {:?}\n{}", self.child.wait(), self.seen);
    }

    /// Reads to the end; the guest's script has to succeed.
    fn finish(mut self) -> String {
        for line in self.lines.by_ref() {
            self.seen += &line.expect("text");
            self.seen.push('\n');
        }
        let status = self.child.wait().expect("a child of ours");
        assert!(status.success(), "{status}\n{}", self.seen);
        std::mem::take(&mut self.seen)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // The script removes its files and ends its machine on SIGTERM; SIGKILL would leave both.
        let id = rustix::process::Pid::from_child(&self.child);
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

fn secret() -> String {
    format!("{}:{}", CHAP.0, CHAP.1)
}

/// CHAP, digests, a file system made, filled, checked by fsck, and the same checksum
/// after it was mounted again.
#[test]
fn a_file_system_on_a_memory_lun() {
    if !ready() {
        return;
    }
    let folder = TempDir::new("kernel");
    let target = Target::start(&["--lun", "memory:256MiB,thin", "--chap", &secret()]);
    let script = r#"
mkfs.ext4 -q -F -E discard /dev/sda
mount /dev/sda /mnt
dd if=/dev/urandom of=/mnt/file bs=64k count=400 2>/dev/null
echo before $(md5sum </mnt/file)
umount /mnt
mount /dev/sda /mnt
echo after $(md5sum </mnt/file)
rm /mnt/file; umount /mnt
e2fsck -fn /dev/sda >/dev/null
echo clean
session --logout
"#;
    let mut guest = Guest::boot(&folder, &target, script);
    let before = guest.wait_for("before ");
    let after = guest.wait_for("after ");
    assert_eq!(before, after, "the file changed");
    guest.wait_for("clean");
    let seen = guest.finish();
    assert!(seen.contains("HeaderDigest: CRC32C") && seen.contains("DataDigest: CRC32C"), "{seen}");
}

/// The target is killed with SIGKILL while the guest writes, and started again on the same
/// port; the session comes back by itself, the writes go on, and the checksum holds.
#[test]
fn the_session_recovers_from_a_kill() {
    if !ready() {
        return;
    }
    let folder = TempDir::new("kernel");
    let lun = folder.join("lun");
    std::fs::File::create(&lun).expect("a file").set_len(256 << 20).expect("its size");
    let lun = lun.to_str().expect("UTF-8").to_string();
    let target = Target::start(&["--lun", &lun, "--chap", &secret()]);
    let script = r#"
mkfs.ext4 -q -F -E nodiscard /dev/sda
mount /dev/sda /mnt
dd if=/dev/urandom of=/tmp/file bs=64k count=640 2>/dev/null
sum=$(md5sum </tmp/file)
echo writing
for i in 1 2 3 4 5 6; do cp /tmp/file /mnt/file; sync; echo round $i; done
umount /mnt
mount /dev/sda /mnt
[ "$(md5sum </mnt/file)" = "$sum" ]
umount /mnt
e2fsck -fn /dev/sda >/dev/null
echo losses $(dmesg | grep -c 'detected conn error')
echo intact
session --logout
"#;
    let mut guest = Guest::boot(&folder, &target, script);
    guest.wait_for("writing");
    guest.wait_for("round 1");
    let portal = target.address().to_string();
    target.kill();
    let target = Target::start(&["--lun", &lun, "--chap", &secret(), "--portal", &portal]);
    let losses: u32 = guest.wait_for("losses ").parse().expect("a number");
    assert!(losses > 0, "the guest never noticed that the target was gone");
    guest.wait_for("intact");
    guest.finish();
    drop(target);
}
