//! Tables `profiles` and `profile_times`: where the CPU went.

use brunt_lake::{Batch, Column, Table};

use crate::event::RunInfo;
use crate::profile::{PhaseProfile, RoleProfile};
use crate::summary::RunSummary;

/// Definition of the table; `doc` describes its rows.
pub const TABLE: Table = Table {
    name: "profiles",
    doc: "One row for each call stack that samples found, for each run, phase and role; empty without `[profile]` \
          ([profiles.md](profiles.md)).",
    columns: &[
        Column::int("run", "The run."),
        Column::int("phase", "The phase's number in the run's profile, from 0."),
        Column::text(
            "phase_kind",
            "`before`, `during`, `between` or `after` the faults; null for a run without faults.",
        )
        .nullable(),
        Column::text(
            "role",
            "`worker`, the name of a target or service, `kernel threads` or `other programs`.",
        ),
        Column::text(
            "part",
            "`copying`, `checksums`, `network`, `scsi`, `storage`, `waiting`, `other` or `unknown`.",
        ),
        Column::text(
            "stack",
            "Functions from the outermost to the innermost, joined by `;`; the first is the program's name.",
        ),
        Column::int("samples", "Number of samples that found this stack."),
    ],
};

/// Definition of the table; `doc` describes its rows.
pub const TIMES: Table = Table {
    name: "profile_times",
    doc: "One row for each phase of a run and role: CPU time from the kernel's counters, and numbers \
     of samples; empty without `[profile]`. The role `machine` is all processors together.",
    columns: &[
        Column::int("run", "The run."),
        Column::int("phase", "The phase's number in the run's profile, from 0."),
        Column::text(
            "phase_kind",
            "`before`, `during`, `between` or `after` the faults; null for a run without faults.",
        )
        .nullable(),
        Column::int("start_ns", "Start of the phase, since measuring began."),
        Column::int("end_ns", "End of the phase."),
        Column::text("role", "As in `profiles`, or `machine`."),
        Column::float("user_ns", "CPU time in user mode; null if not counted.").nullable(),
        Column::float("system_ns", "CPU time in the kernel; null if not counted.").nullable(),
        Column::float(
            "interrupt_ns",
            "CPU time in interrupts and softirqs; only for `machine`.",
        )
        .nullable(),
        Column::float(
            "idle_ns",
            "Idle time, including waits for disks; only for `machine`.",
        )
        .nullable(),
        Column::float(
            "stolen_ns",
            "Time that the hypervisor gave to other guests; only for `machine`.",
        )
        .nullable(),
        Column::int("samples", "Number of samples; null for `machine`.").nullable(),
        Column::int("unnamed", "Samples whose innermost function has no name.").nullable(),
    ],
};

/// Adds the profile of a run.
pub fn append(stacks: &mut Batch, times: &mut Batch, info: &RunInfo, run: &RunSummary) {
    let Some(profile) = &run.profile else {
        return;
    };
    let kind = |phase: usize| {
        let phase = profile.phases.get(phase);
        phase.and_then(|phase| phase.kind).map(|kind| kind.name())
    };
    for one in &profile.stacks {
        stacks
            .row()
            .count(info.order.into())
            .count(one.phase as u64)
            .text_or_null(kind(one.phase))
            .text(&one.role)
            .text(one.part.name())
            .text(&one.stack)
            .count(one.samples)
            .end();
    }
    for (number, phase) in profile.phases.iter().enumerate() {
        append_machine(times, info, number, phase);
        for role in &phase.roles {
            append_role(times, info, (number, phase), role);
        }
    }
}

fn nanos(seconds: f64) -> f64 {
    (seconds * 1e9).round()
}

fn append_machine(rows: &mut Batch, info: &RunInfo, number: usize, phase: &PhaseProfile) {
    let Some(machine) = &phase.machine else {
        return;
    };
    rows.row()
        .count(info.order.into())
        .count(number as u64)
        .text_or_null(phase.kind.map(|kind| kind.name()))
        .int(nanos(phase.start_s) as i64)
        .int(nanos(phase.start_s + phase.seconds) as i64)
        .text("machine")
        .float_or_null(Some(nanos(machine.user_s)))
        .float_or_null(Some(nanos(machine.system_s)))
        .float_or_null(Some(nanos(machine.interrupt_s)))
        .float_or_null(Some(nanos(machine.idle_s)))
        .float_or_null(Some(nanos(machine.stolen_s)))
        .count_or_null(None)
        .count_or_null(None)
        .end();
}

fn append_role(
    rows: &mut Batch,
    info: &RunInfo,
    (number, phase): (usize, &PhaseProfile),
    role: &RoleProfile,
) {
    rows.row()
        .count(info.order.into())
        .count(number as u64)
        .text_or_null(phase.kind.map(|kind| kind.name()))
        .int(nanos(phase.start_s) as i64)
        .int(nanos(phase.start_s + phase.seconds) as i64)
        .text(&role.role)
        .float_or_null(role.user_s.map(nanos))
        .float_or_null(role.system_s.map(nanos))
        .float_or_null(None)
        .float_or_null(None)
        .float_or_null(None)
        .count_or_null(Some(role.samples))
        .count_or_null(Some(role.unnamed))
        .end();
}
