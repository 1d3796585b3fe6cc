//! Goes through all reasons for which a run doesn't count: for each, the code that reports it in a run produces a
//! message here, which must name a setting and a value. A new reason doesn't compile without a message.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use Shown::{Elsewhere, Here, Without};
use brunt_core::{Clock, Nanos, Span};
use brunt_host::RoleDeath;
use brunt_lab::Fault as _;
use brunt_lab::faults::MemoryHog;
use brunt_lab::link::Settings;
use brunt_result::link::{LinkCounts, LinkReport};
use brunt_result::noise::MachineNoise;
use brunt_result::void::{VoidReason, joined};

use crate::fault::DriverError;
use crate::hooks::HookError;
use crate::hooks::faults::Absent;
use crate::hooks::links::queue_doubt;
use crate::role::death::advice;
use crate::study::{few_runs, target_gone};

/// A report's text about a link that has these counts.
fn link(there: LinkCounts) -> String {
    joined(
        &LinkReport {
            there,
            lived_nanos: 1_000_000_000,
            ..LinkReport::default()
        }
        .trouble(),
    )
}

fn counts() -> LinkCounts {
    LinkCounts {
        bytes: 1_000_000,
        frames_out: 1000,
        delivered: 1000,
        line_sent_nanos: 1000,
        ..LinkCounts::default()
    }
}

/// Evidence that a reason's message names a setting with a value.
enum Shown {
    /// This message names one.
    Here(String),
    /// No setting would help: this message says what to do instead; the second string explains why.
    Without(String, &'static str),
    /// The messages in the named test name one.
    Elsewhere(&'static str),
}

/// The message about a run that is invalid for this reason.
fn void(reason: VoidReason) -> String {
    HookError::new(reason, "the link")
        .because(io::Error::from(io::ErrorKind::NotFound))
        .to_string()
}

/// The message of a fault driver's error.
fn driver(error: DriverError) -> Shown {
    Here(
        HookError::new(error.reason(), "fault 'x'")
            .because(error)
            .to_string(),
    )
}

fn shown(reason: VoidReason) -> Shown {
    let (seen, lasted) = (String::new(), Duration::from_secs(2));
    match reason {
        VoidReason::NotReady => Without(
            void(reason),
            "it is the machine that says no; limits come with `ulimit`",
        ),
        VoidReason::RoleDied => {
            let death = RoleDeath {
                status: ExitStatus::default(),
                at: Some(Nanos(9)),
                starved: None,
            };
            Here(advice(&death, Some(Nanos(1)), 0).expect("advice"))
        }
        VoidReason::LinksUnread => Without(
            void(reason),
            "the lab's own devices were read, which nobody can set",
        ),
        VoidReason::LinkDropped => Here(link(LinkCounts {
            unmeant_device: 1,
            ..counts()
        })),
        VoidReason::FaultTooLate => Here(
            Absent::TooLate {
                lasted,
                begin: lasted,
            }
            .to_string(),
        ),
        VoidReason::FaultAfterRun => Here(Absent::AfterRun { there: lasted }.to_string()),
        VoidReason::FaultTargetAway => Here(Absent::TargetAway { lasts: lasted }.to_string()),
        VoidReason::FaultUnseen => {
            Elsewhere("kinds::storage: advice_names_a_setting_and_a_value, and tests::words")
        }
        VoidReason::FaultUnseenAgain => driver(DriverError::NotShownAgain {
            lasts: Span(lasted),
            seen,
        }),
        VoidReason::FaultRefused => {
            let refused = MemoryHog::new(1 << 60)
                .inject(&Clock::Monotonic)
                .expect_err("it is an exbibyte");
            driver(refused.into())
        }
        VoidReason::FaultWeak | VoidReason::FaultNotGone => {
            Elsewhere("brunt-lab: faults::link::signs and faults::cpu")
        }
        VoidReason::FaultUnfit => driver(DriverError::unfit(
            "no member 3",
            "write member = 0, which is good",
        )),
        VoidReason::FaultControl => Without(
            void(reason),
            "a layer's answer says itself what would be correct",
        ),
        VoidReason::FaultHostLost => {
            Without(void(reason), "a host is lost for reasons that no file has")
        }
        VoidReason::FaultPanicked => Without(void(reason), "a defect of Brunt"),
        VoidReason::TargetGone => Here(target_gone("x", "gone", lasted)),
        VoidReason::LinkUntracked => Here(link(LinkCounts {
            tcp_untracked: 1,
            resets_full_nanos: 1_000_000_000,
            ..counts()
        })),
        VoidReason::LinkRateLost => Here(link(LinkCounts {
            line_lost_nanos: 1000,
            ..counts()
        })),
        VoidReason::LinkLate => Here(link(LinkCounts {
            late_nanos: 1_000_000_000,
            ..counts()
        })),
        VoidReason::LinkOrdered => Here(link(LinkCounts {
            ordered_nanos: 1_000_000_000,
            ..counts()
        })),
        VoidReason::LinkBusy => {
            let report = LinkReport {
                there: counts(),
                busy: 1.0,
                lived_nanos: 1,
                ..LinkReport::default()
            };
            Here(joined(&report.trouble()))
        }
        VoidReason::LinkQueueFull => {
            let text = "rate = '1Gb/s'\ndelay = '20ms'\nqueue = '1MiB'";
            let settings: Settings = toml::from_str(text).expect("settings");
            let counts = LinkCounts {
                queue_full: 1,
                ..counts()
            };
            Here(queue_doubt("wan", &settings, &counts).expect("a doubt"))
        }
        VoidReason::RecordSlow => {
            Elsewhere("study::recording: only_settings_that_would_help_are_named")
        }
        VoidReason::ReplayUntrue => Elsewhere("brunt-load: replay::tests"),
        VoidReason::Stalled | VoidReason::Throttled | VoidReason::OutOfMemory => {
            let noise = MachineNoise {
                stalled_s: Some(3.0),
                wakeup_max_us: 3e6,
                throttled_share: Some(0.8),
                oom_kills: Some(1),
                ..MachineNoise::default()
            };
            let doubts = noise.doubts();
            let doubt = doubts.iter().find(|doubt| doubt.reason == reason);
            Without(
                doubt.expect("a doubt").what.clone(),
                "it is the machine that stopped Brunt, which no experiment file sets",
            )
        }
        VoidReason::TooFewRuns => Here(few_runs(1, true).expect("a message")),
    }
}

#[test]
fn every_reason_names_a_setting_and_a_value() {
    let (mut said, mut without) = (0, Vec::new());
    for reason in VoidReason::ALL {
        let message = match shown(*reason) {
            Here(message) => message,
            Without(message, why) => {
                assert!(
                    !why.is_empty() && reason.settings().is_empty(),
                    "{reason:?}: {message}"
                );
                assert!(reason.is_named_in(&message), "{reason:?}: {message}");
                without.push(*reason);
                continue;
            }
            Elsewhere(test) => {
                assert!(
                    !test.is_empty() && !reason.settings().is_empty(),
                    "{reason:?}"
                );
                continue;
            }
        };
        said += 1;
        assert!(
            !reason.settings().is_empty() && reason.is_named_in(&message),
            "{reason:?}: {message}"
        );
        assert!(
            message.chars().any(|c| c.is_ascii_digit()) || message.contains("= false"),
            "{reason:?}: {message}"
        );
    }
    // Before you add to this list, state above why no setting would help.
    let nothing_to_set = [
        VoidReason::NotReady,
        VoidReason::LinksUnread,
        VoidReason::FaultControl,
        VoidReason::FaultHostLost,
        VoidReason::FaultPanicked,
        VoidReason::Stalled,
        VoidReason::Throttled,
        VoidReason::OutOfMemory,
    ];
    assert_eq!(without, nothing_to_set);
    assert_eq!(said, VoidReason::ALL.len() - 8 - 5);
}

/// A shorter delay holds back fewer FINs, in proportion to the excess.
#[test]
fn a_shorter_delay_holds_fewer_connections() {
    let said = link(LinkCounts {
        tcp_untracked: 65_536,
        fins_untracked: 65_536,
        fins_full_nanos: 1_000_000_000,
        ..counts()
    });
    assert!(
        said.contains("slow_close = \"450ms\"") && VoidReason::LinkUntracked.is_named_in(&said),
        "{said}"
    );
}
