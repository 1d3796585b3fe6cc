//! Reasons why a run doesn't count or is doubtful: one line for each reason, with the settings that its message names
//! and how the suggested value is found. Hooks, loads and links include a reason in every such message; the table in
//! `docs/results.md` is generated from these lines.
//!
//! The rule: if a reason has settings, its message names one of them, with a value computed from measurements. If no
//! setting would have helped, `settings` is empty, `value` says why, and the message ends with what to do
//! ([`VoidReason::instead`]).

use std::fmt;

/// The consequence of a reason for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoidWeight {
    /// The run is invalid and the experiment ends; the run's figures are not in the table of runs.
    Void,
    /// The run is recorded as incomplete: no estimate includes it, and the experiment ends.
    Incomplete,
    /// The figures count; the doubt is printed with them.
    Doubtful,
    /// The figures count, but no conclusion is drawn from them.
    NoVerdict,
}

impl VoidWeight {
    /// Name for display.
    pub fn name(self) -> &'static str {
        match self {
            VoidWeight::Void => "invalid",
            VoidWeight::Incomplete => "incomplete",
            VoidWeight::Doubtful => "doubtful",
            VoidWeight::NoVerdict => "no verdict",
        }
    }
}

macro_rules! reasons {
    ($($reason:ident: $weight:ident, $when:literal, [$($setting:literal),*], $value:literal $(, $instead:literal)?;)*) => {
        /// Why a run doesn't count or is doubtful.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum VoidReason {
            $(#[doc = $when] $reason,)*
        }

        impl VoidReason {
            /// All reasons, in the order of the table.
            pub const ALL: &[VoidReason] = &[$(VoidReason::$reason,)*];

            /// The consequence for a run.
            pub fn weight(self) -> VoidWeight {
                match self { $(VoidReason::$reason => VoidWeight::$weight,)* }
            }

            /// When the reason applies.
            pub fn when(self) -> &'static str {
                match self { $(VoidReason::$reason => $when,)* }
            }

            /// The settings, at least one of which the message names; empty if none would have helped.
            pub fn settings(self) -> &'static [&'static str] {
                match self { $(VoidReason::$reason => &[$($setting),*],)* }
            }

            /// How the value is found, or why there is none.
            pub fn value(self) -> &'static str {
                match self { $(VoidReason::$reason => $value,)* }
            }

            /// What to do if no setting would have helped; the end of the message.
            pub fn instead(self) -> Option<&'static str> {
                match self { $(VoidReason::$reason => [$($instead,)? ""].first().copied().filter(|text| !text.is_empty()),)* }
            }
        }
    };
}

reasons! {
    NotReady: Void, "a link, a fault's thread or the prober could not be set up for the run", [],
        "none: the message includes the error of the kernel or device, and a sufficient `ulimit` if that was the limit",
        "correct what the error names (brunt doctor shows what this machine lacks), then run the experiment again";
    RoleDied: Void, "a target or sink of the experiment ended unexpectedly", ["stop", "repetitions", "kill", "serve"],
        "half of the time that the run had lasted, or the number of complete rounds; `kill`: the time \
         of the SIGKILL; `serve`: nine tenths of the available memory, if the kernel killed it because it was \
         out of memory";
    LinksUnread: Void, "the counters of the lab's links could not be read", [],
        "none: the message includes the kernel error",
        "run the experiment again: it gets a new lab each time; if it happens again, dmesg may say why";
    LinkDropped: Void, "a link or its hosts' devices dropped packets unintentionally", ["rate"],
        "three quarters of the rate that the link carried";
    FaultTooLate: Void, "the run ended before a fault was due", ["at", "stop"],
        "`at`: half of the time that the run lasted; `stop`: twice the fault's `at`";
    FaultAfterRun: Void, "the run ended before a fault took effect", ["stop"],
        "twice the time at which the fault took effect";
    FaultTargetAway: Void, "the fault's target was frozen or dead for the fault's whole duration", ["for"],
        "twice the fault's duration";
    FaultUnseen: Void, "a storage fault or TCP reset was injected, but affected no request",
        ["for", "p=", "every=", "lba=", "port", "read", "fsync", "trim", "flaky:", "bad-blocks:", "torn:"],
        "from the run's requests or time: a value with which 12 hits are expected, a fifth of the \
         requests, twice the time";
    FaultUnseenAgain: Void, "a fault ended with its target's process and was not detected after the restart", ["for"],
        "the time that the fault lasted, plus twice the time for which Brunt looked for it without detecting it";
    FaultRefused: Void, "the machine does not allow a fault: too much memory, no such core, or a \
     killed process that does not start again", ["memory", "cores"],
        "`memory`: nine tenths of the free memory, or the limit of locked memory; `cores`: those that \
         the process may use. Otherwise none: the message includes the kernel error and a remedy, such as a \
         sufficient `ulimit`";
    FaultWeak: Void, "a fault was injected, but its effect was too small to prove: a CPU share that was not \
        sustained, an impairment that probe packets cannot distinguish from the link before",
        ["cpu", "memory", "delay", "jitter", "rate", "loss", "corrupt", "duplicate", "reorder", "ecn", "slow_close"],
        "from the proof's measurement: the share that was reached, twice the delay, jitter or share \
         of packets that the link had before, two thirds of the measured rate; none for `freeze`, `kill` and \
         `partition`, whose message says what was observed instead";
    FaultNotGone: Void, "a fault was removed, but its effect can still be detected",
        ["delay", "jitter", "loss", "corrupt", "duplicate", "reorder", "ecn", "rate"],
        "for links: twice the delay, jitter or share of packets that remained, or half of the rate; \
         otherwise none: the message says what remained";
    FaultUnfit: Void, "the component that a fault should affect does not exist, or is not in a state \
     in which it can fail",
        ["member", "layer", "group", "link", "to", "serve"],
        "the good members, or the existing arrays, port groups or links; half of a LUN's size if an array could not \
         be rebuilt in time";
    FaultControl: Void, "a storage fault's layer, or the process that serves it, refused a command", [],
        "none: the message quotes the refusal, which names the accepted values",
        "see what the target wrote to standard error, and what its layers accept (brunt help devices)";
    FaultHostLost: Incomplete, "a host with a fault, a target or service of the experiment, or an inline bridge was \
        lost", [],
        "none: the message says how it was lost",
        "check that host: its agent may have been ended, all its processors may be busy, or its network may be down";
    FaultPanicked: Void, "the thread of a fault panicked", [], "none: this is a defect in Brunt",
        "this is a defect in Brunt: please report it with the experiment file and its seed; without \
         this fault the experiment runs";
    TargetGone: Incomplete, "the target's connection or device was lost permanently", ["stop"],
        "half of the time that the run had lasted";
    LinkUntracked: Doubtful, "a link had more TCP connections than it can track (65,536), and let the excess \
        connections' packets pass",
        ["for", "slow_close"],
        "`for`: nine tenths of the time until resets found too many connections; `slow_close`: \
         shortened in proportion to the excess of held FINs";
    LinkRateLost: Doubtful, "a link's line stalled while packets waited", ["rate"],
        "nine tenths of the line's rate times the share of time in which it was not stalled";
    LinkLate: Doubtful, "a link's thread delivered packets late", ["delay"],
        "ten times the mean lateness";
    LinkOrdered: Doubtful, "packets were delayed beyond their jitter to keep their order", ["keep_order"],
        "`false`";
    LinkBusy: Doubtful, "a link's thread was busy almost all of the time", ["rate"],
        "three quarters of the rate that the link carried";
    LinkQueueFull: Doubtful, "a link's queue was full, and shorter than its bandwidth-delay product", ["queue"],
        "the bandwidth-delay product";
    RecordSlow: Doubtful, "workers waited for results to be written", ["record_requests", "interval", "rate"],
        "`false` if requests are recorded; otherwise twice the interval, or half of the request rate";
    ReplayUntrue: Doubtful, "a replay is degraded, or not a replay",
        ["stop", "for", "conflicts", "speed", "map", "retry"],
        "the time that all requests take at the pace of those sent, the part of the trace that could \
         be read, the speed without the drift, or half of the speed if requests were late; see \
         [replay.md](replay.md)";
    Stalled: Doubtful, "Brunt itself did not run for 250 ms or longer: it was stopped (SIGSTOP), suspended or \
        starved of processors", [],
        "none: the message says how long it did not run",
        "run the experiment again while nothing stops it and nothing else occupies the processors";
    Throttled: Doubtful, "Brunt's control group was throttled by its CPU quota for more than a hundredth of the run",
        [],
        "none: the message names the quota and says how long it stopped the group",
        "raise that quota (cpu.max, in version 1 cpu.cfs_quota_us), or run Brunt outside of that control group";
    OutOfMemory: Doubtful, "the kernel killed a process of Brunt's control group because it was out of memory", [],
        "none: the message says how many were killed",
        "raise the group's memory limit (memory.max, in version 1 memory.limit_in_bytes), or use less memory";
    TooFewRuns: NoVerdict, "a point has fewer than four runs", ["repetitions"], "four";
}

impl VoidReason {
    /// Whether a message names a setting for this reason with a value or, if there is no setting, says what to do.
    /// For tests of messages only: no code decides by the text of messages.
    pub fn is_named_in(self, message: &str) -> bool {
        let value = |after: &str| {
            after
                .trim_start_matches([' ', '=', '{', '"'])
                .starts_with(|c: char| !c.is_whitespace())
        };
        self.instead()
            .is_some_and(|instead| message.contains(instead))
            || self.settings().iter().any(|setting| {
                let mut places = message.match_indices(setting);
                places.any(|(at, _)| {
                    let after = &message[at + setting.len()..];
                    (setting.ends_with(['=', ':']) || after.starts_with(" = ")) && value(after)
                })
            })
    }
}

/// A message that casts doubt on a run, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The reason.
    pub reason: VoidReason,
    /// What happened, and which setting and value would have avoided it.
    pub what: String,
}

impl Doubt {
    /// A doubt with this message.
    pub fn new(reason: VoidReason, what: impl Into<String>) -> Doubt {
        Doubt {
            reason,
            what: what.into(),
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// All messages in one line.
pub fn joined(doubts: &[Doubt]) -> String {
    doubts
        .iter()
        .map(|doubt| doubt.what.as_str())
        .collect::<Vec<_>>()
        .join("; ")
}

/// The table of all reasons, for `docs/results.md`.
pub fn markdown() -> String {
    let mut text = String::from(
        "| when | the run is | settings that the message names | the value in the message, or its other content |\n\
         |---|---|---|---|\n",
    );
    for reason in VoidReason::ALL {
        let settings: Vec<String> = reason
            .settings()
            .iter()
            .map(|setting| format!("`{}`", setting.trim_end_matches(['=', ':'])))
            .collect();
        let settings = if settings.is_empty() {
            "none".to_string()
        } else {
            settings.join(", ")
        };
        let (when, weight, value) = (reason.when(), reason.weight().name(), reason.value());
        let instead = reason
            .instead()
            .map_or(String::new(), |instead| format!("; \"{instead}\""));
        text += &format!("| {when} | {weight} | {settings} | {value}{instead} |\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_needs_a_value() {
        let check = |reason: VoidReason, message: &str, named| {
            assert_eq!(reason.is_named_in(message), named, "{message}");
        };
        check(
            VoidReason::LinkDropped,
            "write rate = \"10Mb/s\" or less",
            true,
        );
        check(VoidReason::LinkDropped, "set a lower rate", false);
        check(VoidReason::LinkDropped, "write rate = ", false);
        check(VoidReason::FaultUnseen, "write p=0.1", true);
        check(VoidReason::FaultTooLate, "(stop = { time = \"1s\" })", true);
        check(VoidReason::NotReady, "the kernel refused", false);
        check(
            VoidReason::NotReady,
            &format!("no; {}", VoidReason::NotReady.instead().unwrap()),
            true,
        );
    }

    /// Each line of the table is complete, and no two lines are the same.
    #[test]
    fn the_table_is_whole() {
        for (index, reason) in VoidReason::ALL.iter().enumerate() {
            assert!(
                VoidReason::ALL[index + 1..]
                    .iter()
                    .all(|other| other.when() != reason.when()),
                "{reason:?}"
            );
            assert_eq!(
                reason.settings().is_empty(),
                reason.value().starts_with("none: "),
                "{reason:?}"
            );
            assert_eq!(
                reason.settings().is_empty(),
                reason.instead().is_some(),
                "{reason:?}"
            );
            assert!(
                !reason.when().contains('|') && !reason.value().contains('|'),
                "{reason:?}"
            );
        }
        assert_eq!(markdown().lines().count(), 2 + VoidReason::ALL.len());
    }
}
