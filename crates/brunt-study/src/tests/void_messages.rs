//! Walks all reasons for which a run does not count: each has a message here, made by the code that makes it in a run, and
//! the message names a setting with a value. A new reason does not compile before it has one.

use std::process::ExitStatus;
use std::time::Duration;

use brunt_core::{Nanos, Span};
use brunt_lab::link::Settings;
use brunt_result::link::{LinkCounts, LinkReport};
use brunt_result::void::{VoidReason, VoidWeight, joined};

use crate::fault::{Absent, DriverError};
use crate::lab::queue_doubt;
use crate::role::Death;
use crate::study::{few_runs, target_gone};

/// What a report says of a link with these counts.
fn link(there: LinkCounts) -> String {
    joined(&LinkReport { there, lived_nanos: 1_000_000_000, ..LinkReport::default() }.trouble())
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

/// The message of a reason; `None` where no setting would have helped, or where the crate that makes it tests it.
fn message(reason: VoidReason) -> Option<String> {
    let (seen, lasted) = (String::new(), Duration::from_secs(2));
    match reason {
        VoidReason::RoleDied => {
            let death = Death { status: ExitStatus::default(), at: Some(Nanos(9)), starved: None };
            death.advice(Some(Nanos(1)), 0)
        }
        VoidReason::LinkDropped => Some(link(LinkCounts { unmeant_device: 1, ..counts() })),
        VoidReason::FaultTooLate => Some(Absent::TooLate { lasted, begin: lasted }.to_string()),
        VoidReason::FaultAfterRun => Some(Absent::AfterRun { there: lasted }.to_string()),
        VoidReason::FaultTargetAway => Some(Absent::TargetAway { lasts: lasted }.to_string()),
        VoidReason::FaultUnseenAgain => {
            Some(DriverError::NotShownAgain { lasts: Span(lasted), seen }.to_string())
        }
        VoidReason::TargetGone => Some(target_gone("x", "gone", lasted)),
        VoidReason::LinkRateLost => Some(link(LinkCounts { line_lost_nanos: 1000, ..counts() })),
        VoidReason::LinkLate => Some(link(LinkCounts { late_nanos: 1_000_000_000, ..counts() })),
        VoidReason::LinkOrdered => Some(link(LinkCounts { ordered_nanos: 1_000_000_000, ..counts() })),
        VoidReason::LinkBusy => {
            let report = LinkReport { there: counts(), busy: 1.0, lived_nanos: 1, ..LinkReport::default() };
            Some(joined(&report.trouble()))
        }
        VoidReason::LinkQueueFull => {
            let text = "rate = '1Gb/s'\ndelay = '20ms'\nqueue = '1MiB'";
            let settings: Settings = toml::from_str(text).expect("settings");
            queue_doubt("wan", &settings, &LinkCounts { queue_full: 1, ..counts() })
        }
        VoidReason::TooFewRuns => few_runs(1, true),
        // Storage and reset faults have a table of their own advice; `fault/tests` holds real runs to it.
        VoidReason::FaultUnseen
        // In `brunt-lab`: the cpu hog's and the links' tests.
        | VoidReason::FaultWeak
        | VoidReason::FaultNotGone
        // In `brunt-result` and `brunt-load`.
        | VoidReason::RecordSlow
        | VoidReason::ReplayUntrue
        // Without a setting.
        | VoidReason::NotReady
        | VoidReason::LinksUnread
        | VoidReason::LinkUntracked
        | VoidReason::FaultRefused
        | VoidReason::FaultUnfit
        | VoidReason::FaultControl
        | VoidReason::FaultPanicked => None,
    }
}

#[test]
fn every_reason_names_a_setting_and_a_value() {
    let mut said = 0;
    for reason in VoidReason::ALL {
        let Some(message) = message(*reason) else { continue };
        said += 1;
        assert!(reason.is_named_in(&message), "{reason:?}: {message}");
        assert!(
            message.chars().any(|c| c.is_ascii_digit()) || message.contains("= false"),
            "{reason:?}: {message}"
        );
    }
    let void = VoidReason::ALL.iter().filter(|reason| reason.weight() == VoidWeight::Void).count();
    assert!(said >= 12 && void >= 14, "{said} {void}");
}
