//! The name of this machine's clock, which distinguishes one boot of the machine from another.

use brunt_result::event::ClockName;

/// `CLOCK_MONOTONIC` of this machine: its host name and the first digits of the kernel's boot ID. Tests add `shift_ns`
/// to the clock.
pub fn clock_name(shift_ns: i64) -> ClockName {
    let kernel = |file: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{file}")).unwrap_or_default();
        text.trim().chars().take(64).collect::<String>()
    };
    let (host, boot) = (kernel("hostname"), kernel("random/boot_id"));
    let boot = boot.split('-').next().unwrap_or_default();
    let shifted = if shift_ns == 0 {
        String::new()
    } else {
        format!(" shifted by {shift_ns} ns")
    };
    ClockName(format!("monotonic of {host} since {boot}{shifted}").into())
}
