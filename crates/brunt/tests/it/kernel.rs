//! The unmodified Linux initiator in a virtual machine: Debian's kernel and open-iscsi, booted by
//! `tools/kernel-initiator.sh`, log in to Brunt's target with CHAP and CRC32C digests and use a file system on it.

use crate::support::guest::{Guest, ready};
use crate::support::{CHAP, TARGET_NAME, Target, TempDir, busy};

/// Login settings for every test: CHAP, digests, and a session that survives two minutes without the target and
/// detects its absence with a ping every second.
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

/// Boots a guest that logs in to the target and then runs a script.
fn boot(folder: &TempDir, target: &Target, script: &str) -> Guest {
    let place = format!(
        "TARGET={TARGET_NAME} PORTAL=10.0.2.2:{} USER={} SECRET={}\n",
        target.address().port(),
        CHAP.0,
        CHAP.1
    );
    Guest::boot(folder, &format!("{place}{LOGIN}{script}"))
}

fn secret() -> String {
    format!("{}:{}", CHAP.0, CHAP.1)
}

/// With CHAP and digests, a file system is created, filled, and checked by fsck, and has the same checksum after a
/// remount.
#[test]
fn a_file_system_has_the_same_checksum_after_a_remount() {
    let _busy = busy(); // An emulated guest keeps a core busy.
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
    let mut guest = boot(&folder, &target, script);
    let before = guest.wait_for("before ");
    let after = guest.wait_for("after ");
    assert_eq!(before, after, "the file changed");
    guest.wait_for("clean");
    let seen = guest.finish();
    assert!(
        seen.contains("HeaderDigest: CRC32C") && seen.contains("DataDigest: CRC32C"),
        "{seen}"
    );
}

/// The target is killed with SIGKILL while the guest is writing, and restarted on the same port. The session recovers
/// by itself, the writes continue, and the checksum is correct.
#[test]
fn the_session_recovers_from_a_kill() {
    let _busy = busy(); // An emulated guest keeps a core busy.
    if !ready() {
        return;
    }
    let folder = TempDir::new("kernel");
    let lun = folder.join("lun");
    std::fs::File::create(&lun)
        .expect("a file")
        .set_len(256 << 20)
        .expect("its size");
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
    let mut guest = boot(&folder, &target, script);
    guest.wait_for("writing");
    guest.wait_for("round 1");
    let portal = target.address().to_string();
    target.kill();
    let target = Target::start(&["--lun", &lun, "--chap", &secret(), "--portal", &portal]);
    let losses: u32 = guest.wait_for("losses ").parse().expect("a number");
    assert!(
        losses > 0,
        "the guest never noticed that the target was gone"
    );
    guest.wait_for("intact");
    guest.finish();
    drop(target);
}
