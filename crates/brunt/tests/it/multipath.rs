//! Asymmetric access (ALUA), checked with independent programs: sg3-utils decodes what a target reports about its
//! ports, and Linux's dm-multipath with its ALUA device handler moves a verified load from one path to the other when
//! the ports change state.

use crate::support::controlled::ControlledTarget;
use crate::support::guest::{Guest, ready};
use crate::support::{TARGET_NAME, TempDir, busy};

/// Two sessions, one through each portal: /dev/sda through group 1, /dev/sdb through group 2; a multipath device on
/// both that starts with the first path; and a load on it that writes blocks and compares what it reads back.
const SETUP: &str = r#"
set -e
for module in dm_multipath dm_service_time scsi_dh_alua sg; do modprobe $module; done
iscsid
for portal in $PORTALS; do
  iscsiadm -m node -T "$TARGET" -p "$portal" -o new >/dev/null
  iscsiadm -m node -T "$TARGET" -p "$portal" -o update -n node.session.timeo.replacement_timeout -v 120
  iscsiadm -m node -T "$TARGET" -p "$portal" --login >/dev/null
  for i in $(seq 1200); do ls /sys/class/iscsi_session/*/device/target*/*/block >/dev/null 2>&1 && break; sleep .1; done
  for i in $(seq 1200); do [ "$(ls -d /sys/block/sd* | wc -l)" = "$(ls -d /sys/class/iscsi_session/* | wc -l)" ] && break; sleep .1; done
done
group() { sg_rtpg -d "$1" | sed 's/^/rtpg /'; }
group /dev/sda; group /dev/sdb
dmesg | grep 'alua: port group' | sed 's/^/kernel /'
for disk in sda sdb; do echo "handler $disk $(cat /sys/block/$disk/device/dh_state)"; done
mknod /dev/null-map c 0 0 2>/dev/null || true
table="0 131072 multipath 1 queue_if_no_path 1 alua 2 1"
dmsetup create mp --noudevsync --table "$table service-time 0 1 1 8:0 1 service-time 0 1 1 8:16 1"
dev=$(ls /dev/mapper/mp /dev/dm-0 2>/dev/null | head -1)
for i in 0 1 2 3; do dd if=/dev/urandom of=/pattern.$i bs=64k count=1 2>/dev/null; done
(
  i=0
  while [ ! -e /stop ]; do
    p=/pattern.$((i % 4)); at=$((i * 7 % 1000))
    dd if=$p of=$dev bs=64k count=1 seek=$at oflag=direct conv=notrunc 2>/dev/null || echo "load write-failed $i"
    dd if=$dev of=/back bs=64k count=1 skip=$at iflag=direct 2>/dev/null || echo "load read-failed $i"
    cmp -s $p /back || echo "load differs $i"
    i=$((i + 1)); echo $i >/done.new; mv /done.new /done
  done
) &
load=$!
blocks() { cat /done 2>/dev/null || echo 0; }
# The reads and writes that a disk has done.
requests() { awk '{ print $1 + $5 }' /sys/block/$1/stat; }
# Waits until so many more verified blocks went, all through this disk.
through() {
  for i in $(seq 6000); do
    before=$(requests $1) start=$(blocks)
    while [ $(($(blocks) - start)) -lt 20 ]; do sleep .05; done
    [ $(($(requests $1) - before)) -ge 40 ] && return
  done
  exit 1
}
"#;

/// Phases for both directions: away from the first path and back.
const THERE_AND_BACK: &str = r#"
through sda; echo "phase first"
through sdb; echo "phase second"; dmsetup status mp | sed 's/^/status /'
until sg_rtpg -d /dev/sdb | grep -q offline; do sleep .1; done
group /dev/sdb; echo "phase offline"
# What multipathd does when its checker finds a path good again.
back() { for i in $(seq 6000); do sg_rtpg -d /dev/$1 2>/dev/null | grep -A3 "id : $2" | grep -q 'active/' && break; sleep .1; done
  dmsetup message mp 0 "reinstate_path $3"; dmsetup message mp 0 "switch_group $4"; }
back sda 0x1 8:0 1
through sda; echo "phase third"; dmsetup status mp | sed 's/^/status /'
touch /stop; wait $load
echo "verified $(blocks)"
dmsetup remove --noudevsync mp
"#;

/// Phases for one direction: away from the first path.
const AWAY: &str = r#"
through sda; echo "phase first"
through sdb; echo "phase second"
touch /stop; wait $load
echo "verified $(blocks)"
dmsetup remove --noudevsync mp
"#;

/// A target with two portals in separate port groups, and a guest with a load on both that has reached its first
/// phase; `None` if that isn't possible here.
fn start(
    folder: &TempDir,
    alua: &str,
    second: &str,
    phases: &str,
) -> Option<(ControlledTarget, Guest)> {
    if !ready() {
        return None;
    }
    let portals = [
        "127.0.0.1:0,group=1,preferred".to_string(),
        format!("127.0.0.1:0,group=2,state={second}"),
    ];
    let target = ControlledTarget::start(
        &[
            "--name",
            TARGET_NAME,
            "--lun",
            "memory:64MiB",
            "--alua",
            alua,
            "--portal",
            &portals[0],
            "--portal",
            &portals[1],
        ],
        2,
    );
    let places: Vec<String> = target
        .portals
        .iter()
        .map(|portal| format!("10.0.2.2:{}", portal.port()))
        .collect();
    let place = format!("TARGET={TARGET_NAME} PORTALS='{}'\n", places.join(" "));
    let mut guest = Guest::boot(folder, &format!("{place}{SETUP}{phases}"));
    guest.wait_for("phase first");
    Some((target, guest))
}

/// Asserts that the load had no failures and no mismatches.
fn finish(guest: Guest) {
    let seen = guest.finish();
    assert!(!seen.contains("load "), "{seen}");
    let verified = seen
        .lines()
        .find_map(|line| line.trim().strip_prefix("verified "))
        .expect("a count");
    println!("{verified} blocks were written, read back and compared");
    assert!(verified.parse::<u64>().expect("a number") >= 40, "{seen}");
}

/// Linux switches to the remaining path when a port group becomes unavailable or standby, and back when it is active
/// again. Meanwhile, a verified load loses no block.
#[test]
fn linux_fails_over_and_back() {
    let _busy = busy(); // An emulated guest keeps a core busy.
    let folder = TempDir::new("multipath");
    let Some((mut target, mut guest)) = start(&folder, "implicit", "non-optimized", THERE_AND_BACK)
    else {
        return;
    };
    let seen = guest.seen().to_string();
    for part in [
        "rtpg   target port group id : 0x1",
        "rtpg   target port group id : 0x2",
        "target port group asymmetric access state : 0x00 (active/optimized)",
        "target port group asymmetric access state : 0x01 (active/non optimized)",
        "id : 0x1 , Pref=1",
        "id : 0x2 , Pref=0",
        "T_SUP : 1, O_SUP : 1, LBD_SUP : 0, U_SUP : 1, S_SUP : 1, AN_SUP : 1, AO_SUP : 1",
        "port group 01 state A preferred supports TOlUSNA",
        "port group 02 state N non-preferred supports TOlUSNA",
        "handler sda alua",
        "handler sdb alua",
    ] {
        assert!(seen.contains(part), "{part}\n{seen}");
    }
    let mut set = |group: u16, state: &str| {
        let answer = target.ask(&format!(
            r#"{{"do":"access","group":{group},"state":"{state}"}}"#
        ));
        assert!(answer.starts_with(r#"{"answer":"access""#), "{answer}");
        answer
    };
    set(1, "unavailable");
    guest.wait_for("phase second");
    set(1, "offline");
    guest.wait_for("phase offline");
    assert!(
        guest
            .seen()
            .contains("asymmetric access state : 0x0e (offline)"),
        "{}",
        guest.seen()
    );
    set(1, "transitioning");
    set(1, "optimized");
    guest.wait_for("phase third");
    let answer = set(2, "standby");
    assert!(
        !answer.contains(r#""refused":0"#),
        "commands were refused on the way: {answer}"
    );
    finish(guest);
}

/// If initiators may change states, Linux activates the standby port (SET TARGET PORT GROUPS) when the other one is
/// unusable.
#[test]
fn linux_activates_a_standby_port() {
    let _busy = busy(); // An emulated guest keeps a core busy.
    let folder = TempDir::new("multipath");
    let Some((mut target, mut guest)) = start(&folder, "both", "standby", AWAY) else {
        return;
    };
    let answer = target.ask(r#"{"do":"access","group":1,"state":"unavailable"}"#);
    assert!(
        answer.contains(r#""groups":{"1":"unavailable","2":"standby"}"#),
        "{answer}"
    );
    guest.wait_for("phase second");
    let answer = target.ask(r#"{"do":"access"}"#);
    assert!(
        answer.contains(r#""groups":{"1":"unavailable","2":"optimized"}"#),
        "{answer}"
    );
    finish(guest);
}
