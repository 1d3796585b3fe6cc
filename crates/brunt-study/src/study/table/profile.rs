//! Where the CPU time went, as shown on a terminal below a point's rows.
//!
//! The rule: shares are shares of samples, which count time on a processor. What could not be sampled or named is
//! reported.

use brunt_result::profile::{
    CpuPart, MachineTimes, PhaseProfile, RoleProfile, RunProfile, profile_over_runs,
};
use brunt_result::summary::PointSummary;

/// Maximum number of functions shown for each role.
const HOTTEST_SHOWN: usize = 3;
/// Smallest share at which a part is shown.
const SHARE_SHOWN: f64 = 0.005;
/// Width of a role's name.
const NAME: usize = 16;

/// The lines to print, over all complete runs; empty without a profile.
pub(super) fn lines(point: &PointSummary) -> Vec<String> {
    let complete = || {
        let runs = point.runs.iter().filter(|run| run.is_complete());
        runs.filter_map(|run| run.profile.as_deref())
    };
    let phases = profile_over_runs(complete());
    let mut lines: Vec<String> = phases.iter().flat_map(of_phase).collect();
    lines.extend(notes(complete()));
    lines
}

fn of_phase(phase: &PhaseProfile) -> Vec<String> {
    let machine = phase.machine.map_or(String::new(), |times| {
        format!(": {}", shares_of_machine(&times))
    });
    let mut lines = vec![format!("  CPU, {}{machine}", phase.title())];
    lines.extend(phase.roles.iter().flat_map(|role| of_role(phase, role)));
    lines
}

/// Formats the machine's CPU time as shares.
fn shares_of_machine(times: &MachineTimes) -> String {
    let MachineTimes {
        user_s,
        system_s,
        interrupt_s,
        idle_s,
        stolen_s,
    } = *times;
    let all = (user_s + system_s + interrupt_s + idle_s + stolen_s).max(f64::MIN_POSITIVE);
    let percent = |seconds: f64| seconds / all * 100.0;
    format!(
        "{:.0}% user, {:.0}% system, {:.0}% interrupts, {:.0}% idle",
        percent(user_s),
        percent(system_s),
        percent(interrupt_s),
        percent(idle_s)
    )
}

fn of_role(phase: &PhaseProfile, role: &RoleProfile) -> Vec<String> {
    let cpus = |seconds: f64| seconds / phase.seconds.max(f64::MIN_POSITIVE);
    let times = role.user_s.zip(role.system_s);
    let mut parts: Vec<String> = Vec::new();
    parts.extend(
        times.map(|(user, system)| {
            format!("{:.2} CPUs user, {:.2} system", cpus(user), cpus(system))
        }),
    );
    let share = |part: CpuPart| Some((part, role.share(part)?));
    let mut shares: Vec<(CpuPart, f64)> = CpuPart::ALL.into_iter().filter_map(share).collect();
    shares.retain(|(_, share)| *share >= SHARE_SHOWN);
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let shares: Vec<String> = shares
        .iter()
        .map(|(part, share)| format!("{} {:.0}%", part.title(), share * 100.0))
        .collect();
    if !shares.is_empty() {
        parts.push(format!("{} of {} samples", shares.join(", "), role.samples));
    }
    let mut lines = vec![format!("    {:NAME$} {}", role.role, parts.join("; "))];
    let hot: Vec<String> = role
        .hottest
        .iter()
        .take(HOTTEST_SHOWN)
        .map(|one| {
            format!(
                "{} {:.0}%",
                one.function,
                one.samples as f64 / role.samples as f64 * 100.0
            )
        })
        .collect();
    if !hot.is_empty() && role.user_s.is_some() {
        lines.push(format!("    {:NAME$} hottest: {}", "", hot.join(", ")));
    }
    lines
}

/// What could not be sampled or named, without repetition.
fn notes<'a>(profiles: impl Iterator<Item = &'a RunProfile>) -> Vec<String> {
    let (mut said, mut lost, mut dropped) = (Vec::new(), 0, 0);
    for profile in profiles {
        lost += profile.lost;
        dropped += profile.dropped;
        said.extend(profile.unavailable.iter().chain(&profile.kernel_unnamed));
    }
    said.sort_unstable();
    said.dedup();
    let mut lines: Vec<String> = said.iter().map(|why| format!("  CPU: {why}")).collect();
    if lost + dropped > 0 {
        lines.push(format!(
            "  CPU: {lost} samples lost by the kernel, {dropped} not kept"
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use brunt_result::profile::HotFunction;

    use super::*;

    #[test]
    fn a_phase_in_lines() {
        let role = RoleProfile {
            role: "target t".into(),
            user_s: Some(1.0),
            system_s: Some(3.0),
            samples: 200,
            unnamed: 0,
            parts: [(CpuPart::Network, 150), (CpuPart::Checksums, 50)].into(),
            hottest: vec![HotFunction {
                function: "tcp_ack".into(),
                samples: 100,
            }],
        };
        let phase = PhaseProfile {
            seconds: 4.0,
            machine: Some(MachineTimes {
                user_s: 1.0,
                system_s: 2.0,
                interrupt_s: 1.0,
                idle_s: 4.0,
                stolen_s: 0.0,
            }),
            roles: vec![role],
            ..PhaseProfile::default()
        };
        let expected = [
            "  CPU, whole run: 12% user, 25% system, 12% interrupts, 50% idle",
            "    target t         0.25 CPUs user, 0.75 system; TCP and network 75%, checksums 25% of 200 samples",
            "                     hottest: tcp_ack 50%",
        ];
        assert_eq!(of_phase(&phase), expected);
    }

    #[test]
    fn what_is_missing_is_reported_once() {
        let profile = RunProfile {
            unavailable: Some("not permitted".into()),
            lost: 2,
            ..RunProfile::default()
        };
        let expected = [
            "  CPU: not permitted",
            "  CPU: 4 samples lost by the kernel, 0 not kept",
        ];
        assert_eq!(notes([&profile, &profile].into_iter()), expected);
    }
}
