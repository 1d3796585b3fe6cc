//! QEMU's own initiator (libiscsi's session layer) against Brunt's target: `qemu-img` and `qemu-io` with `iscsi://`
//! URLs.

use crate::support;
use std::process::Command;

use crate::support::{CHAP, Target, TempDir, need, succeed};

fn qemu() -> bool {
    // The block driver is a module in a separate package.
    let Some(_) = need("qemu-img", "qemu-utils") else {
        return false;
    };
    let drivers = succeed(Command::new("qemu-img").arg("--help"), 20);
    if !drivers.contains("iscsi") {
        support::skip("the Debian package qemu-block-extra (iscsi in qemu-img's formats)");
        return false;
    }
    true
}

fn qemu_io(url: &str, commands: &[&str]) -> String {
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw"]);
    for text in commands {
        command.args(["-c", text]);
    }
    let out = succeed(command.arg(url), 120);
    // qemu-io prints a pattern mismatch and continues.
    assert!(
        !out.contains("failed") && !out.contains("Pattern verification"),
        "{out}"
    );
    out
}

/// QEMU reads back what it wrote, in sizes from a block to several bursts, with discards and write-zeroes in between;
/// it sees the target's size and provisioning.
#[test]
fn qemu_reads_back_what_it_wrote() {
    if !qemu() {
        return;
    }
    let target = Target::start(&["--lun", "memory:64MiB,thin"]);
    let info = succeed(
        Command::new("qemu-img").args(["info", "-f", "raw", &target.url(0)]),
        60,
    );
    assert!(info.contains("virtual size: 64 MiB"), "{info}");
    qemu_io(
        &target.url(0),
        &[
            "write -P 0x11 0 512",
            "write -P 0x22 512 4k",
            "write -P 0x33 1M 3M",
            "write -P 0x44 63M 1M",
            "read -P 0x11 0 512",
            "read -P 0x22 512 4k",
            "read -P 0x33 1M 3M",
            "read -P 0x44 63M 1M",
            "discard 1M 1M",
            "read -P 0 1M 1M",
            "read -P 0x33 2M 2M",
            "write -z 2M 512k",
            "read -P 0 2M 512k",
            "read -P 0x33 2560k 1536k",
            "flush",
        ],
    );
}

/// 64 requests at once, over CHAP.
#[test]
fn qemu_completes_64_requests_at_once_with_chap() {
    if !qemu() {
        return;
    }
    let secret = format!("{}:{}", CHAP.0, CHAP.1);
    let target = Target::start(&["--lun", "memory:64MiB", "--chap", &secret]);
    for write in [false, true] {
        let mut bench = Command::new("qemu-img");
        bench.args([
            "bench", "-f", "raw", "-c", "20000", "-d", "64", "-s", "4096",
        ]);
        if write {
            bench.args(["-w", "--pattern=0x5a"]);
        }
        succeed(bench.arg(target.url(0)), 120);
    }
    let wrong = format!(
        "iscsi://{}%wrong-secret-1@{}/{}/0",
        CHAP.0,
        target.address(),
        support::TARGET_NAME
    );
    let refused = support::run_within(
        Command::new("qemu-img").args(["info", "-f", "raw", &wrong]),
        60,
    );
    assert!(!refused.status.success(), "a wrong secret was let in");
}

/// An image written to a `file:` LUN is read back byte for byte, even after the target was killed and restarted.
#[test]
fn image_survives_a_restart() {
    if !qemu() {
        return;
    }
    let folder = TempDir::new("qemu");
    let (image, lun, back) = (
        folder.join("image"),
        folder.join("lun"),
        folder.join("back"),
    );
    let mut random = brunt_core::random::Random::new(7);
    let mut bytes = vec![0; 24 << 20];
    random.fill(&mut bytes);
    std::fs::write(&image, &bytes).expect("an image");
    std::fs::File::create(&lun)
        .expect("a file")
        .set_len(32 << 20)
        .expect("its size");
    let target = Target::start(&["--lun", lun.to_str().expect("UTF-8")]);
    let (image, out) = (image.to_str().expect("UTF-8"), target.url(0));
    succeed(
        Command::new("qemu-img").args(["convert", "-n", "-f", "raw", "-O", "raw", image, &out]),
        120,
    );
    target.kill();
    let target = Target::start(&["--lun", lun.to_str().expect("UTF-8")]);
    let back = back.to_str().expect("UTF-8");
    succeed(
        Command::new("qemu-img").args(["convert", "-f", "raw", "-O", "raw", &target.url(0), back]),
        120,
    );
    let read = std::fs::read(back).expect("what came back");
    assert!(
        read[..bytes.len()] == bytes[..],
        "the image came back changed"
    );
}
