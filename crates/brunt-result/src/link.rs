//! Packet counters of a lab link as plain data: counted by `brunt-lab`, stored in summaries, shown on pages.
//!
//! The rule: intended drops (loss, a full queue) and unintended ones (no buffer, a host's device is full) are counted
//! separately. Unintended drops invalidate a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::void::{Doubt, VoidReason};

/// If packets are delivered later than this on average, in nanoseconds, the link did not behave as described; on an
/// idle machine, they are 15 to 40 us late.
const LATE_NANOS_MAX: u64 = 250_000;
/// A rate-limited line that was stalled for more than this share of its time did not keep its rate.
const LINE_LOST_SHARE_MAX: f64 = 0.01;
/// The machine limited a rate-limited line if the line was sending for less than this share of the time in which no
/// core was idle.
const CROWDED_FULL_SHARE: f64 = 0.95;
/// That is reported only if more than this share of the line's total sending time fell into that time.
const CROWDED_SHARE_MAX: f64 = 0.1;
/// If packets wait longer than this on average to keep their order, in nanoseconds, the mean delay is too long.
const ORDERED_NANOS_MAX: u64 = 100_000;
/// A rate limit of this share of the load lets an overloaded link run without drops, because the limit smooths the
/// bursts.
const RATE_HELD: f64 = 0.75;
/// A rate-limited line can keep this share of its average rate.
const LINE_HELD: f64 = 0.9;
/// A link busy for more than this share of its lifetime was probably the bottleneck of the experiment.
const BUSY_SHARE_MAX: f64 = 0.9;

/// TCP connections tracked per direction of a link; a host has 28 000 ports for them by default.
pub const TCP_CONNECTIONS_MAX: usize = 65_536;

/// Formats a time as in settings: in whole milliseconds, at least 1.
fn millis(nanos: u64) -> String {
    format!("{}ms", (nanos / 1_000_000).max(1))
}

/// What probe packets measured on a link between other machines before a run: evidence that its settings are in
/// effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LinkProof {
    /// The mechanism that applies the settings, such as `bridge of host wire`.
    pub carrier: String,
    /// The settings from the first host to the second, and back; empty for a direction without any.
    pub set: [String; 2],
    /// Shortest round trip before the settings were applied, in microseconds.
    pub clear_round_trip_us: f64,
    /// Shortest round trip with the settings, in microseconds; absent without settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip_us: Option<f64>,
    /// Share of echo requests without a reply, 0 to 1: both directions together; absent if no loss is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Rate at which replies arrived, in bits per second on the wire; absent if no rate is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits_per_second: Option<f64>,
}

/// Packet counters of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LinkCounts {
    /// Wire-size packets received.
    pub packets: u64,
    /// Bytes of these packets, including Ethernet headers.
    pub bytes: u64,
    /// Wire-size packets delivered, including duplicates.
    pub delivered: u64,
    /// Packets dropped on purpose by simulated loss.
    pub lost: u64,
    /// Packets dropped by a partition.
    pub parted: u64,
    /// Packets marked with congestion experienced (CE).
    pub ecn_marked: u64,
    /// Packets selected for marking that were not ECN-capable, so they passed unmarked.
    pub ecn_not_capable: u64,
    /// TCP resets sent by the link.
    pub tcp_resets: u64,
    /// FINs of TCP connections that were delayed.
    pub fins_held: u64,
    /// Packets among `fins_held` that consisted only of a FIN, including repeated ones; those let through are counted
    /// in `fins_released`.
    pub fins_taken: u64,
    /// FINs that were let through after their delay, each as a separate packet.
    pub fins_released: u64,
    /// Packets of TCP connections beyond the number that can be tracked; they passed unimpaired.
    pub tcp_untracked: u64,
    /// The latest time after which injected resets met more connections than can be tracked, in nanoseconds; 0 if
    /// that never happened.
    pub resets_full_nanos: u64,
    /// FINs in `tcp_untracked` that passed at once because more FINs were being delayed than can be tracked.
    pub fins_untracked: u64,
    /// The longest delay of FINs (`slow_close`) under which more FINs were delayed than can be tracked, in
    /// nanoseconds; 0 if that never happened.
    pub fins_full_nanos: u64,
    /// Packets dropped because the queue at the link was full.
    pub queue_full: u64,
    /// Packets delivered with a flipped bit.
    pub corrupted: u64,
    /// Packets delivered twice.
    pub duplicated: u64,
    /// Packets held back so that others overtake them.
    pub held: u64,
    /// Frames received; fewer than packets if segments arrive in trains (segmentation offload).
    pub frames_in: u64,
    /// Frames sent.
    pub frames_out: u64,
    /// Unintended drops: the link's buffers were full.
    pub unmeant_no_buffer: u64,
    /// Unintended drops: the receiving host's device rejected the frame.
    pub unmeant_refused: u64,
    /// Unintended drops: a host's device was full, or its network stack rejected the frame.
    pub unmeant_device: u64,
    /// Sum of the delivery lateness of packets with a due time, in nanoseconds.
    pub late_nanos: u64,
    /// Maximum lateness, in nanoseconds.
    pub late_nanos_max: u64,
    /// Nanoseconds in which a rate-limited line was sending.
    pub line_sent_nanos: u64,
    /// Nanoseconds in which a rate-limited line was stalled although packets waited, because its thread was busy or
    /// had no core.
    pub line_lost_nanos: u64,
    /// Nanoseconds in which the machine had no core to spare: none was idle and packets arrived without a pause, or
    /// processes waited for cores. Counted only for links that limit the rate and do nothing else.
    pub crowded_nanos: u64,
    /// The part of `crowded_nanos` in which the line was sending.
    pub crowded_sent_nanos: u64,
    /// Total nanoseconds by which packets were delayed, in addition to their jitter, to keep their order.
    pub ordered_nanos: u64,
    /// Highest number of frames in flight.
    pub queued_max: u64,
    /// Frames (packets or trains of them) forwarded by the kernel directly, because no impairment was set; not
    /// included in any other counter.
    pub straight_frames: u64,
    /// Bytes of the frames that the kernel forwarded directly.
    pub straight_bytes: u64,
}

impl LinkCounts {
    /// Counts since `earlier`; maxima remain those since the start.
    pub fn since(&self, earlier: &LinkCounts) -> LinkCounts {
        let since = |get: fn(&LinkCounts) -> u64| get(self).saturating_sub(get(earlier));
        // Settings and times recorded because of too many connections are kept only if there were too many since
        // then.
        let fins_untracked = since(|counts| counts.fins_untracked);
        let by_resets = since(|counts| counts.tcp_untracked) > fins_untracked;
        LinkCounts {
            packets: since(|counts| counts.packets),
            bytes: since(|counts| counts.bytes),
            delivered: since(|counts| counts.delivered),
            lost: since(|counts| counts.lost),
            parted: since(|counts| counts.parted),
            ecn_marked: since(|counts| counts.ecn_marked),
            ecn_not_capable: since(|counts| counts.ecn_not_capable),
            tcp_resets: since(|counts| counts.tcp_resets),
            fins_held: since(|counts| counts.fins_held),
            fins_taken: since(|counts| counts.fins_taken),
            fins_released: since(|counts| counts.fins_released),
            tcp_untracked: since(|counts| counts.tcp_untracked),
            resets_full_nanos: if by_resets { self.resets_full_nanos } else { 0 },
            fins_untracked,
            fins_full_nanos: if fins_untracked > 0 {
                self.fins_full_nanos
            } else {
                0
            },
            queue_full: since(|counts| counts.queue_full),
            corrupted: since(|counts| counts.corrupted),
            duplicated: since(|counts| counts.duplicated),
            held: since(|counts| counts.held),
            frames_in: since(|counts| counts.frames_in),
            frames_out: since(|counts| counts.frames_out),
            unmeant_no_buffer: since(|counts| counts.unmeant_no_buffer),
            unmeant_refused: since(|counts| counts.unmeant_refused),
            unmeant_device: since(|counts| counts.unmeant_device),
            late_nanos: since(|counts| counts.late_nanos),
            late_nanos_max: self.late_nanos_max,
            line_sent_nanos: since(|counts| counts.line_sent_nanos),
            line_lost_nanos: since(|counts| counts.line_lost_nanos),
            crowded_nanos: since(|counts| counts.crowded_nanos),
            crowded_sent_nanos: since(|counts| counts.crowded_sent_nanos),
            ordered_nanos: since(|counts| counts.ordered_nanos),
            queued_max: self.queued_max,
            straight_frames: since(|counts| counts.straight_frames),
            straight_bytes: since(|counts| counts.straight_bytes),
        }
    }

    /// Share of a line's busy time in which it stood still although packets waited.
    pub fn line_lost_share(&self) -> f64 {
        self.line_lost_nanos as f64 / (self.line_sent_nanos + self.line_lost_nanos).max(1) as f64
    }

    /// Reports that the line was not full while no core was idle, if that accounts for a considerable part of the
    /// line's time.
    fn crowded(&self, way: &str, form: SettingForm) -> Option<Doubt> {
        let [crowded, sent, all] = [
            self.crowded_nanos,
            self.crowded_sent_nanos,
            self.line_sent_nanos,
        ]
        .map(|nanos| nanos as f64);
        if sent >= crowded * CROWDED_FULL_SHARE || sent <= all * CROWDED_SHARE_MAX {
            return None;
        }
        let line = self.bytes as f64 * 8e9 / all.max(1.0);
        let what = format!(
            "the line {way} carried {:.0}% of its rate for {:.1} s in which this machine had no core to spare: the machine, \
             not the line, seems to be the limit; use more cores, or write {}",
            sent / crowded * 100.0,
            crowded / 1e9,
            rate_below(line * sent / crowded * LINE_HELD, form)
        );
        Some(Doubt::new(VoidReason::LinkRateLost, what))
    }

    /// Rate of all received traffic over this time, in bits per second; at least 1.
    fn carried(&self, lived_nanos: u64) -> f64 {
        ((self.bytes + self.straight_bytes) as f64 * 8e9 / lived_nanos.max(1) as f64).max(1.0)
    }

    /// Reasons to doubt these counts. `way` names the direction; `why` says what delayed the thread.
    fn trouble(&self, way: &str, why: &str, lived_nanos: u64, form: SettingForm) -> Vec<Doubt> {
        let mut trouble: Vec<Doubt> = self.crowded(way, form).into_iter().collect();
        let mut say = |reason, what| trouble.push(Doubt::new(reason, what));
        if self.unintended() > 0 {
            let carried = self.carried(lived_nanos);
            say(
                VoidReason::LinkDropped,
                format!(
                    "{} packets {way} were lost unintentionally: {} because the link's buffers were \
                     full, {} refused by the host, {} dropped by its device; the link carried {:.3} Mb/s, write \
                     {} for it",
                    self.unintended(),
                    self.unmeant_no_buffer,
                    self.unmeant_refused,
                    self.unmeant_device,
                    carried / 1e6,
                    rate_below(carried * RATE_HELD, form)
                ),
            );
        }
        if self.tcp_untracked > 0 {
            let (untracked, advice) = (self.tcp_untracked, self.fewer_connections(form));
            say(
                VoidReason::LinkUntracked,
                format!(
                    "{untracked} packets {way} passed without impairments: there were more TCP connections than the \
                     {TCP_CONNECTIONS_MAX} that a link can track; {advice}"
                ),
            );
        }
        let lost = self.line_lost_share();
        if lost > LINE_LOST_SHARE_MAX {
            let line = self.bytes as f64 * 8e9 / self.line_sent_nanos.max(1) as f64;
            say(
                VoidReason::LinkRateLost,
                format!(
                    "the line {way} did not keep its rate: for {:.0}% of its time packets waited while it was stalled; \
                     {why}, or write {}",
                    lost * 100.0,
                    rate_below(line * (1.0 - lost) * LINE_HELD, form)
                ),
            );
        }
        let late = self.late_nanos / self.frames_out.max(1);
        if late > LATE_NANOS_MAX {
            say(
                VoidReason::LinkLate,
                format!(
                    "packets {way} arrived {:.2} ms late on average, {:.1} ms at worst; {why}; this \
                     matters less with {} or more",
                    late as f64 / 1e6,
                    self.late_nanos_max as f64 / 1e6,
                    form.text("delay", &format!("{}ms", (late * 10).div_ceil(1_000_000)))
                ),
            );
        }
        let ordered = self.ordered_nanos / self.delivered.max(1);
        if ordered > ORDERED_NANOS_MAX {
            say(
                VoidReason::LinkOrdered,
                format!(
                    "packets {way} were delayed {:.2} ms more than set on average, to keep their order under jitter; \
                     {} keeps the mean",
                    ordered as f64 / 1e6,
                    form.word("keep_order", "false")
                ),
            );
        }
        trouble
    }

    /// A setting that would have kept the number of connections in a direction low enough.
    fn fewer_connections(&self, form: SettingForm) -> String {
        if self.fins_untracked == 0 {
            let nanos = self.resets_full_nanos / 10 * 9;
            return format!(
                "with for = \"{}\" the reset would have ended before that",
                millis(nanos)
            );
        }
        let most = TCP_CONNECTIONS_MAX as f64;
        let share = most / (most + self.fins_untracked as f64) * LINE_HELD;
        let nanos = (self.fins_full_nanos as f64 * share) as u64;
        format!(
            "write {}, with which fewer connections are held at a time",
            form.text("slow_close", &millis(nanos))
        )
    }

    /// Packets lost although no setting asked for it.
    pub fn unintended(&self) -> u64 {
        self.unmeant_no_buffer + self.unmeant_refused + self.unmeant_device
    }
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Packets that a bridge received and saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CaptureCounts {
    /// Packets written.
    pub packets: u64,
    /// Packets that could not be saved, because the disk was full or too slow.
    pub lost: u64,
}

/// Counters of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkReport {
    /// Direction from the first host to the second.
    pub there: LinkCounts,
    /// Direction from the second host to the first.
    pub back: LinkCounts,
    /// Share of time that the link's thread was busy.
    pub busy: f64,
    /// The time in which `busy` was counted, in nanoseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lived_nanos: u64,
    /// Set if the kernel did not allow the link's thread a raised priority.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub usual_priority: bool,
    /// Packets that a bridge captured in both directions, if configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captured: Option<CaptureCounts>,
}

impl LinkReport {
    /// Counts since `earlier`.
    pub fn since(&self, earlier: &LinkReport) -> LinkReport {
        LinkReport {
            there: self.there.since(&earlier.there),
            back: self.back.since(&earlier.back),
            busy: self.busy_since(earlier),
            lived_nanos: self.lived_nanos.saturating_sub(earlier.lived_nanos),
            usual_priority: self.usual_priority,
            captured: self.captured.map(|captured| {
                let before = earlier.captured.unwrap_or_default();
                CaptureCounts {
                    packets: captured.packets.saturating_sub(before.packets),
                    lost: captured.lost.saturating_sub(before.lost),
                }
            }),
        }
    }

    fn busy_since(&self, earlier: &LinkReport) -> f64 {
        let nanos = |report: &LinkReport| report.busy * report.lived_nanos as f64;
        match self.lived_nanos.saturating_sub(earlier.lived_nanos) {
            0 => self.busy,
            lived => (nanos(self) - nanos(earlier)).max(0.0) / lived as f64,
        }
    }

    /// Reasons to doubt the figures of this link; empty if there are none.
    pub fn trouble(&self) -> Vec<Doubt> {
        self.trouble_in(SettingForm::File)
    }

    /// Reasons to doubt the figures of this link, with settings written in this form.
    pub fn trouble_in(&self, form: SettingForm) -> Vec<Doubt> {
        let mut trouble = Vec::new();
        let why = match self.usual_priority {
            true => {
                "other work used its core (as root, or with ulimit -e 40, its thread gets priority)"
            }
            false => "other work used its core",
        };
        for (counts, way) in [(&self.there, "there"), (&self.back, "back")] {
            trouble.extend(counts.trouble(way, why, self.lived_nanos, form));
        }
        if self.busy > BUSY_SHARE_MAX {
            let carried = self
                .there
                .carried(self.lived_nanos)
                .max(self.back.carried(self.lived_nanos));
            let what = format!(
                "the emulation of the link was busy for {:.0}% of the time: it, not what it emulates, may be the \
                 bottleneck; write {}",
                self.busy * 100.0,
                rate_below(carried * RATE_HELD, form)
            );
            trouble.push(Doubt::new(VoidReason::LinkBusy, what));
        }
        trouble
    }
}

/// The setting that limits the rate to this many bits per second.
fn rate_below(bits: f64, form: SettingForm) -> String {
    format!(
        "{} or less",
        form.text("rate", &format!("{}kb/s", (bits / 1e3).max(1.0) as u64))
    )
}

/// How a setting of a link is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingForm {
    /// In an experiment file: `rate = "1Mb/s"`.
    File,
    /// As a command-line option: `--set rate=1Mb/s`.
    Option,
}

impl SettingForm {
    /// A setting whose value is text.
    fn text(self, key: &str, value: &str) -> String {
        match self {
            SettingForm::File => format!("{key} = \"{value}\""),
            SettingForm::Option => self.word(key, value),
        }
    }

    /// A setting whose value is a number or a switch.
    fn word(self, key: &str, value: &str) -> String {
        match self {
            SettingForm::File => format!("{key} = {value}"),
            SettingForm::Option => format!("--set {key}={value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link that deviates from its description is reported along with a remedy.
    #[test]
    fn trouble_is_reported() {
        let check = |counts: LinkCounts, usual_priority: bool, said: Option<&str>| {
            let report = LinkReport {
                there: counts,
                usual_priority,
                ..LinkReport::default()
            };
            let doubts = report.trouble();
            let trouble = crate::void::joined(&doubts);
            assert_eq!(doubts.is_empty(), said.is_none(), "{trouble}");
            assert!(trouble.contains(said.unwrap_or_default()), "{trouble}");
            assert!(
                doubts
                    .iter()
                    .all(|doubt| doubt.reason.is_named_in(&doubt.what)),
                "{trouble}"
            );
        };
        let late = |nanos: u64| LinkCounts {
            frames_out: 10,
            late_nanos: nanos * 10,
            ..LinkCounts::default()
        };
        check(late(100_000), true, None);
        check(late(900_000), true, Some("arrived 0.90 ms late on average"));
        check(late(900_000), true, Some("ulimit -e 40"));
        check(late(900_000), false, Some("other work used its core"));
        let line = |lost: u64| LinkCounts {
            line_sent_nanos: 900,
            line_lost_nanos: lost,
            ..LinkCounts::default()
        };
        check(line(5), false, None);
        check(
            line(100),
            false,
            Some("did not keep its rate: for 10% of its time"),
        );
        let crowded = |millis: u64, sent: u64| LinkCounts {
            line_sent_nanos: 2_000_000_000,
            crowded_nanos: millis * 1_000_000,
            crowded_sent_nanos: sent * 1_000_000,
            ..LinkCounts::default()
        };
        check(crowded(200, 100), false, None);
        check(crowded(3_000, 2_990), false, None);
        check(
            crowded(3_000, 1_500),
            false,
            Some("carried 50% of its rate for 3.0 s"),
        );
        let ordered = |nanos: u64| LinkCounts {
            delivered: 10,
            ordered_nanos: nanos * 10,
            ..LinkCounts::default()
        };
        check(ordered(50_000), false, None);
        check(
            ordered(3_300_000),
            false,
            Some("delayed 3.30 ms more than set"),
        );
        check(late(900_000), false, Some("delay = \"9ms\""));
        // 9 kB in 900 ns of sending are 80 Gb/s; a tenth of the time was lost.
        let line = LinkCounts {
            bytes: 9_000,
            ..line(100)
        };
        check(line, false, Some("write rate = \"64800000kb/s\" or less"));
    }

    /// A message that a command prints at its end names the command's options.
    #[test]
    fn options_are_named_where_there_is_no_file() {
        let there = LinkCounts {
            bytes: 100_000_000,
            unmeant_device: 3,
            frames_out: 10,
            delivered: 10,
            late_nanos: 9_000_000,
            ordered_nanos: 33_000_000,
            ..LinkCounts::default()
        };
        let report = LinkReport {
            there,
            lived_nanos: 1_000_000_000,
            busy: 0.95,
            ..LinkReport::default()
        };
        let said = crate::void::joined(&report.trouble_in(SettingForm::Option));
        for option in [
            "--set rate=600000kb/s or less",
            "--set delay=9ms",
            "--set keep_order=false",
        ] {
            assert!(said.contains(option), "{option}: {said}");
        }
        assert!(!said.contains(" = "), "{said}");
    }

    /// Unintended drops are reported with a rate that would have avoided them.
    #[test]
    fn drops_name_a_rate() {
        let there = LinkCounts {
            bytes: 100_000_000,
            unmeant_device: 3,
            ..LinkCounts::default()
        };
        let report = LinkReport {
            there,
            lived_nanos: 1_000_000_000,
            busy: 0.95,
            ..LinkReport::default()
        };
        let [dropped, busy] = report.trouble().try_into().unwrap();
        assert_eq!(
            (dropped.reason, busy.reason),
            (VoidReason::LinkDropped, VoidReason::LinkBusy)
        );
        assert!(
            dropped
                .what
                .ends_with("carried 800.000 Mb/s, write rate = \"600000kb/s\" or less for it"),
            "{dropped}"
        );
        assert!(
            busy.what.ends_with("write rate = \"600000kb/s\" or less"),
            "{busy}"
        );
    }

    /// Too many connections in an earlier run are not reported for a later run with few enough.
    #[test]
    fn connections_that_were_too_many_before() {
        let before = LinkCounts {
            tcp_untracked: 9,
            fins_untracked: 5,
            fins_full_nanos: 2_000_000_000,
            resets_full_nanos: 1_000_000,
            ..LinkCounts::default()
        };
        let full = |later: LinkCounts| {
            let run = later.since(&before);
            (run.fins_full_nanos, run.resets_full_nanos)
        };
        assert_eq!(
            full(LinkCounts {
                packets: 100,
                ..before
            }),
            (0, 0)
        );
        assert_eq!(
            full(LinkCounts {
                tcp_untracked: 10,
                fins_untracked: 6,
                ..before
            }),
            (2_000_000_000, 0)
        );
        assert_eq!(
            full(LinkCounts {
                tcp_untracked: 10,
                ..before
            }),
            (0, 1_000_000)
        );
    }

    /// A link's busy share refers to the run, not to the link's whole lifetime.
    #[test]
    fn busy_in_the_run() {
        let of = |busy, lived_nanos| LinkReport {
            busy,
            lived_nanos,
            ..LinkReport::default()
        };
        let run = of(0.5, 2_000).since(&of(0.1, 1_000));
        assert!(
            (run.busy - 0.9).abs() < 1e-9 && run.lived_nanos == 1_000,
            "{run:?}"
        );
        assert_eq!(of(0.5, 1_000).since(&of(0.5, 1_000)).busy, 0.5);
    }
}
