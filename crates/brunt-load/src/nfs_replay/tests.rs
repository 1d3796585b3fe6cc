//! The rules of a replay on made-up traces: which tree they need, and in which order their calls are sent.

use brunt_core::Nanos;
use brunt_nfs::v41::NfsLockOp;
use brunt_trace::nfs::{
    NfsTrace, NfsTraceAttributes, NfsTraceCall, NfsTraceEntry, NfsTraceListing, NfsTraceLock,
    NfsTraceName, NfsTraceSet, NfsTraceSizeBefore, RowsByCall,
};
use brunt_wire::nfs::v3::Procedure;

use super::layout::{Planted, TreeLayout};
use super::namespace::{NONE, Namespace};
use super::plan::{CallDetail, ReplayActions};
use super::schedule::{LateCause, NextAction, Schedule};
use crate::replay::settings::ReplayTiming;

/// The handle of the export's root.
const ROOT: i64 = 1;

/// Builds a trace call by call. Unless stated otherwise, a call takes 10 ns and the next one begins 20 ns later.
#[derive(Default)]
struct Calls {
    calls: Vec<NfsTraceCall>,
    names: Vec<(i64, NfsTraceName)>,
    attributes: Vec<(i64, NfsTraceAttributes)>,
    before: Vec<(i64, NfsTraceSizeBefore)>,
    sets: Vec<(i64, NfsTraceSet)>,
    stable: Vec<(i64, u32)>,
    listings: Vec<(i64, NfsTraceListing)>,
    entries: Vec<(i64, NfsTraceEntry)>,
    locks: Vec<(i64, NfsTraceLock)>,
    texts: Vec<Box<[u8]>>,
}

impl Calls {
    fn text(&mut self, text: &str) -> u32 {
        let known = self
            .texts
            .iter()
            .position(|known| known.as_ref() == text.as_bytes());
        known.unwrap_or_else(|| {
            self.texts.push(text.as_bytes().into());
            self.texts.len() - 1
        }) as u32
    }

    fn call(&mut self, procedure: Procedure, file: i64, status: u32) -> &mut Calls {
        let record = self.calls.len() as i64;
        self.calls.push(NfsTraceCall {
            record,
            start_ns: 1000 + record * 20,
            end_ns: Some(1010 + record * 20),
            client: 0,
            caller: None,
            procedure: procedure as u32,
            status: Some(status),
            file: Some(file),
            offset_bytes: 0,
            asked_bytes: 0,
            moved_bytes: 0,
        });
        self
    }

    fn last(&mut self) -> &mut NfsTraceCall {
        self.calls.last_mut().expect("a call")
    }

    /// Adds a call with a name in a directory.
    fn named(
        &mut self,
        procedure: Procedure,
        (directory, name): (i64, &str),
        status: u32,
        leads_to: Option<i64>,
    ) -> &mut Calls {
        let name = self.text(name);
        self.call(procedure, directory, status);
        let record = self.last().record;
        let named = NfsTraceName {
            position: 0,
            directory: Some(directory),
            name: Some(name),
            leads_to,
            target: None,
        };
        self.names.push((record, named));
        if matches!(procedure, Procedure::Create | Procedure::Mkdir) {
            let set = NfsTraceSet {
                how: Some(1),
                ..NfsTraceSet::default()
            };
            self.sets.push((record, set));
        }
        self
    }

    fn rename(&mut self, from: (i64, &str), to: (i64, &str)) -> &mut Calls {
        let name = self.text(to.1);
        self.named(Procedure::Rename, from, 0, None);
        let named = NfsTraceName {
            position: 1,
            directory: Some(to.0),
            name: Some(name),
            leads_to: None,
            target: None,
        };
        let record = self.last().record;
        self.names.push((record, named));
        self
    }

    fn moving(&mut self, procedure: Procedure, file: i64, offset: u64, bytes: u32) -> &mut Calls {
        self.call(procedure, file, 0);
        let call = self.last();
        (call.offset_bytes, call.asked_bytes, call.moved_bytes) = (offset, bytes, bytes.into());
        let record = call.record;
        if procedure == Procedure::Write {
            self.stable.push((record, 0));
        }
        self
    }

    fn lock(&mut self, op: NfsLockOp, file: i64, owner: u32, status: u32) -> &mut Calls {
        self.call(Procedure::Null, file, status);
        let lock = NfsTraceLock {
            operation: op.number(),
            kind: 2,
            length_bytes: 10,
            owner,
        };
        let record = self.last().record;
        self.locks.push((record, lock));
        self
    }

    /// Adds attributes to the last call's reply.
    fn attributes(&mut self, file: i64, file_type: u32, size_bytes: u64) -> &mut Calls {
        let attributes = NfsTraceAttributes {
            file,
            file_type: Some(file_type),
            mode: Some(0o640),
            uid: Some(7),
            gid: Some(8),
            size_bytes: Some(size_bytes),
        };
        let record = self.last().record;
        self.attributes.push((record, attributes));
        self
    }

    /// Sets when the last call began and ended.
    fn at(&mut self, start_ns: i64, end_ns: Option<i64>) -> &mut Calls {
        let call = self.last();
        (call.start_ns, call.end_ns) = (start_ns, end_ns);
        self
    }

    fn by(&mut self, client: u32) -> &mut Calls {
        self.last().client = client;
        self
    }

    fn trace(&mut self) -> NfsTrace {
        let mut calls = std::mem::take(&mut self.calls);
        calls.sort_by_key(|call| (call.start_ns, call.record));
        NfsTrace {
            calls,
            clients: vec!["a".into(), "b".into()],
            texts: std::mem::take(&mut self.texts),
            roots: vec![ROOT],
            names: RowsByCall::new(std::mem::take(&mut self.names)),
            attributes: RowsByCall::new(std::mem::take(&mut self.attributes)),
            sizes_before: RowsByCall::new(std::mem::take(&mut self.before)),
            sets: RowsByCall::new(std::mem::take(&mut self.sets)),
            stable: RowsByCall::new(std::mem::take(&mut self.stable)),
            listings: RowsByCall::new(std::mem::take(&mut self.listings)),
            entries: RowsByCall::new(std::mem::take(&mut self.entries)),
            locks: RowsByCall::new(std::mem::take(&mut self.locks)),
            ..NfsTrace::default()
        }
    }

    fn layout(&mut self) -> TreeLayout {
        let trace = self.trace();
        TreeLayout::of(&trace, &Namespace::of(&trace))
    }

    fn plan(&mut self) -> ReplayActions {
        let trace = self.trace();
        let namespace = Namespace::of(&trace);
        let layout = TreeLayout::of(&trace, &namespace);
        ReplayActions::of(trace, &namespace, &layout)
    }
}

/// Returns the paths of a tree with their entries: `root/d/`, `root/f 100`, `root/l -> t`; further names as
/// `root/g = root/f`.
fn paths(layout: &TreeLayout) -> Vec<String> {
    let mut places: Vec<String> = Vec::new();
    let place = |places: &[String], parent: u32, name: &[u8]| {
        let name = String::from_utf8_lossy(name);
        match places.get(parent as usize) {
            Some(parent) => format!("{parent}/{name}"),
            None => name.into_owned(),
        }
    };
    for entry in &layout.entries {
        let path = place(&places, entry.parent, &entry.name);
        places.push(path);
    }
    let mut lines: Vec<String> = layout
        .entries
        .iter()
        .zip(&places)
        .map(|(entry, path)| match &entry.what {
            Planted::Directory => format!("{path}/"),
            Planted::File { size_bytes } => format!("{path} {size_bytes}"),
            Planted::Symlink { target } => {
                format!("{path} -> {}", String::from_utf8_lossy(target))
            }
            Planted::Fifo => format!("{path} |"),
        })
        .collect();
    let links = layout.links.iter().map(|link| {
        let path = place(&places, link.parent, &link.name);
        format!("{path} = {}", places[link.entry as usize])
    });
    lines.extend(links);
    lines.sort();
    lines
}

fn check(calls: &mut Calls, expected: &[&str]) -> TreeLayout {
    let layout = calls.layout();
    assert_eq!(paths(&layout), expected);
    layout
}

/// Names that were looked up existed before; names that calls create did not.
#[test]
fn a_tree_has_what_existed_before_the_trace() {
    let mut calls = Calls::default();
    calls
        .named(Procedure::Lookup, (ROOT, "d"), 0, Some(2))
        .attributes(2, 2, 4096)
        .named(Procedure::Lookup, (2, "f"), 0, Some(3))
        .attributes(3, 1, 100)
        .named(Procedure::Lookup, (2, "none"), 2, None)
        .named(Procedure::Create, (2, "none"), 0, Some(4))
        .attributes(4, 1, 0)
        .moving(Procedure::Write, 4, 0, 512)
        .attributes(4, 1, 512)
        .named(Procedure::Mkdir, (ROOT, "new"), 0, Some(5))
        .named(Procedure::Lookup, (5, "inner"), 2, None);
    let layout = check(&mut calls, &["root/", "root/d/", "root/d/f 100"]);
    assert_eq!((layout.invented_names, layout.only_named), (0, 0));
    assert_eq!(
        (layout.entries[2].mode, layout.entries[2].owner),
        (Some(0o640), Some((7, 8)))
    );
}

/// An export within another one appears there by its name, whichever was mounted first.
#[test]
fn an_export_within_another_one_keeps_its_name() {
    for roots in [[ROOT, 2], [2, ROOT]] {
        let mut calls = Calls::default();
        calls
            .named(Procedure::Lookup, (2, "f"), 0, Some(3))
            .attributes(3, 1, 100)
            .named(Procedure::Lookup, (ROOT, "sub"), 0, Some(2));
        let mut trace = calls.trace();
        trace.roots = roots.to_vec();
        let layout = TreeLayout::of(&trace, &Namespace::of(&trace));
        assert_eq!(paths(&layout), ["root/", "root/sub/", "root/sub/f 100"]);
    }
}

/// An object that is removed or renamed existed, even if its handle is never seen, or only later.
#[test]
fn names_that_are_removed_or_renamed_existed() {
    let mut calls = Calls::default();
    calls
        .named(Procedure::Remove, (ROOT, "gone"), 0, None)
        .named(Procedure::Rmdir, (ROOT, "dir"), 0, None)
        .rename((ROOT, "old"), (ROOT, "new"))
        .named(Procedure::Lookup, (ROOT, "new"), 0, Some(9))
        .attributes(9, 1, 77)
        .named(Procedure::Create, (ROOT, "there"), 17, None)
        .named(Procedure::Rmdir, (ROOT, "full"), 66, None);
    let expected = [
        "root/",
        "root/dir/",
        "root/full/",
        "root/full/invented 0",
        "root/gone 0",
        "root/old 77",
        "root/there 0",
    ];
    let layout = check(&mut calls, &expected);
    assert_eq!(layout.only_named, 4, "all but old");
}

/// Objects whose handles have no known name get an invented one, and directories come with their known contents.
#[test]
fn names_are_invented_for_unknown_handles() {
    let mut calls = Calls::default();
    calls
        .call(Procedure::Getattr, 20, 0)
        .attributes(20, 1, 5)
        .named(Procedure::Lookup, (21, "f"), 0, Some(22))
        .attributes(22, 1, 6)
        .call(Procedure::Getattr, 23, 70);
    let expected = [
        "root/",
        "unknown/",
        "unknown/d1/",
        "unknown/d1/f 6",
        "unknown/f0 5",
    ];
    let layout = check(&mut calls, &expected);
    assert_eq!(layout.invented_names, 2);
    // The object of the stale handle is not created, and its call can't be replayed.
    let mut calls = Calls::default();
    let plan = calls.call(Procedure::Getattr, 23, 70).plan();
    assert!(plan.actions.is_empty());
    assert_eq!(plan.left_out.values().sum::<u64>(), 1);
}

/// A file's length before the trace: from attributes before it changes, or from the end of reads.
#[test]
fn lengths_are_those_before_the_first_change() {
    let mut calls = Calls::default();
    calls
        .named(Procedure::Lookup, (ROOT, "grown"), 0, Some(2))
        .moving(Procedure::Write, 2, 50, 100)
        .attributes(2, 1, 150);
    calls.before.push((
        1,
        NfsTraceSizeBefore {
            file: 2,
            size_bytes: 60,
        },
    ));
    calls
        .named(Procedure::Lookup, (ROOT, "read"), 0, Some(3))
        .moving(Procedure::Read, 3, 1000, 24)
        .moving(Procedure::Read, 3, 0, 24)
        .named(Procedure::Lookup, (ROOT, "inside"), 0, Some(4))
        .moving(Procedure::Write, 4, 0, 10)
        .attributes(4, 1, 999);
    let expected = [
        "root/",
        "root/grown 60",
        "root/inside 999",
        "root/read 1024",
    ];
    let layout = check(&mut calls, &expected);
    assert_eq!(layout.unknown_sizes, 1);
}

/// A file with two names is created once.
#[test]
fn a_file_with_two_names_has_a_link() {
    let mut calls = Calls::default();
    calls
        .named(Procedure::Lookup, (ROOT, "a"), 0, Some(2))
        .attributes(2, 1, 1)
        .named(Procedure::Lookup, (ROOT, "b"), 0, Some(2));
    check(&mut calls, &["root/", "root/a 1", "root/b = root/a"]);
}

/// Replies of calls that ran at the same time may come in the wrong order.
#[test]
fn overlapping_replies_are_no_contradictions() {
    let mut calls = Calls::default();
    // The file is seen before the reply of the CREATE that makes it.
    calls
        .named(Procedure::Create, (ROOT, "f"), 0, Some(2))
        .at(1000, Some(1100))
        .named(Procedure::Lookup, (ROOT, "f"), 0, Some(2))
        .at(1050, Some(1060))
        .attributes(2, 1, 0)
        // The file is still seen after the reply of the REMOVE.
        .named(Procedure::Remove, (ROOT, "f"), 0, None)
        .at(1200, Some(1210))
        .named(Procedure::Lookup, (ROOT, "f"), 0, Some(2))
        .at(1195, Some(1220));
    let trace = calls.trace();
    let namespace = Namespace::of(&trace);
    assert_eq!(namespace.contradictions, 0);
    assert_eq!(paths(&TreeLayout::of(&trace, &namespace)), ["root/"]);
    // Without an overlap, the two replies contradict each other, so a call between them is missing.
    let mut calls = Calls::default();
    calls.named(Procedure::Lookup, (ROOT, "f"), 2, None).named(
        Procedure::Lookup,
        (ROOT, "f"),
        0,
        Some(2),
    );
    assert_eq!(Namespace::of(&calls.trace()).contradictions, 1);
}

/// A name that is removed twice was created in between by a call that is missing: it existed once.
#[test]
fn a_name_that_is_removed_twice_existed_once() {
    let mut calls = Calls::default();
    calls
        .named(Procedure::Lookup, (ROOT, "x"), 0, Some(2))
        .attributes(2, 1, 100)
        .named(Procedure::Remove, (ROOT, "x"), 0, None)
        .named(Procedure::Remove, (ROOT, "x"), 0, None);
    let trace = calls.trace();
    let namespace = Namespace::of(&trace);
    assert_eq!(namespace.contradictions, 1);
    let layout = TreeLayout::of(&trace, &namespace);
    assert_eq!(paths(&layout), ["root/", "root/x 100"]);
}

/// Entries of listings existed, unless a call creates them before.
#[test]
fn listings_name_what_exists() {
    let mut calls = Calls::default();
    calls.named(Procedure::Create, (ROOT, "made"), 0, Some(2));
    calls.call(Procedure::Readdirplus, ROOT, 0);
    let names = [
        (".", Some(ROOT)),
        ("made", Some(2)),
        ("kept", Some(3)),
        ("bare", None),
    ];
    for (entry, (name, file)) in (0..).zip(names) {
        let name = calls.text(name);
        let row = NfsTraceEntry {
            entry,
            name,
            cookie: u64::from(entry) + 1,
            file,
        };
        calls.entries.push((1, row));
    }
    let listing = |cookie| NfsTraceListing {
        cookie,
        dir_bytes_max: 1000,
        bytes_max: 4000,
    };
    calls.listings.push((1, listing(0)));
    for cookie in [4, 99] {
        calls.call(Procedure::Readdirplus, ROOT, 0);
        let record = calls.last().record;
        calls.listings.push((record, listing(cookie)));
    }
    let trace = calls.trace();
    let namespace = Namespace::of(&trace);
    let layout = TreeLayout::of(&trace, &namespace);
    assert_eq!(paths(&layout), ["root/", "root/bare 0", "root/kept 0"]);
    // A continued listing waits for its first part; one that continues from an unknown cookie is left out.
    let plan = ReplayActions::of(trace, &namespace, &layout);
    assert_eq!((plan.actions.len(), plan.left_out.len()), (3, 1));
    assert!(plan.waits_of(2).contains(&1));
}

/// Calls wait for those that created, removed or used the same name or object, if these had ended.
#[test]
fn calls_wait_for_what_they_depend_on() {
    let mut calls = Calls::default();
    let plan = calls
        .named(Procedure::Create, (ROOT, "f"), 0, Some(2)) // 0
        .moving(Procedure::Write, 2, 0, 10) // 1
        .named(Procedure::Lookup, (ROOT, "g"), 2, None) // 2
        .named(Procedure::Remove, (ROOT, "f"), 0, None) // 3
        .named(Procedure::Create, (ROOT, "f"), 0, Some(3)) // 4
        .rename((ROOT, "f"), (ROOT, "g")) // 5
        .plan();
    let waits: Vec<&[u32]> = (0..6).map(|action| plan.waits_of(action)).collect();
    let expected: [&[u32]; 6] = [&[], &[0], &[], &[0, 1], &[3], &[2, 4]];
    assert_eq!(waits, expected);
    assert_eq!(
        plan.actions[3].objects.victim,
        plan.actions[1].objects.object
    );
    assert_eq!(plan.actions[0].objects.other, NONE);

    // A call that began before another one ended doesn't wait for it.
    let mut calls = Calls::default();
    let plan = calls
        .named(Procedure::Create, (ROOT, "f"), 0, Some(2))
        .at(1000, Some(1100))
        .named(Procedure::Lookup, (ROOT, "f"), 2, None)
        .at(1050, Some(1060))
        .plan();
    assert!(plan.waits_of(1).is_empty());
    assert_eq!(
        plan.races.len(),
        2,
        "it decided the status which came first"
    );
}

/// Rights that only NFSv4.2 has are not requested.
#[test]
fn rights_of_extended_attributes_are_not_requested() {
    let mut trace = Calls::default().call(Procedure::Access, ROOT, 0).trace();
    trace.accesses = RowsByCall::new(vec![(0, 0x1ed)]);
    let namespace = Namespace::of(&trace);
    let layout = TreeLayout::of(&trace, &namespace);
    let plan = ReplayActions::of(trace, &namespace, &layout);
    assert_eq!(plan.actions[0].detail, CallDetail::Access(0x2d));
}

/// A directory is removed after all of its files, not only after the last few.
#[test]
fn a_directory_is_removed_after_its_files() {
    let mut calls = Calls::default();
    calls.named(Procedure::Mkdir, (ROOT, "d"), 0, Some(2));
    let names: Vec<String> = (0..100).map(|file| format!("f{file}")).collect();
    for (name, file) in names.iter().zip(3..) {
        calls.named(Procedure::Create, (2, name), 0, Some(file));
    }
    for name in &names {
        calls.named(Procedure::Remove, (2, name), 0, None);
    }
    let plan = calls.named(Procedure::Rmdir, (ROOT, "d"), 0, None).plan();
    let removals: Vec<u32> = (101..201).collect();
    let waits = plan.waits_of(201);
    assert!(removals.iter().all(|one| waits.contains(one)), "{waits:?}");
}

/// Locks of a file are granted, denied and released in the order of the trace. Locks taken before the trace can't be
/// released.
#[test]
fn locks_keep_their_order() {
    let (lock, test, unlock) = (NfsLockOp::Lock, NfsLockOp::Test, NfsLockOp::Unlock);
    let mut calls = Calls::default();
    let plan = calls
        .lock(lock, 2, 0, 0) // 0
        .lock(lock, 2, 1, 10010) // 1
        .lock(test, 2, 1, 10010) // 2
        .lock(lock, 3, 1, 0) // 3, another file
        .lock(unlock, 2, 1, 0)
        .lock(unlock, 2, 0, 0) // 4
        .lock(lock, 2, 1, 0) // 5
        .plan();
    let waits: Vec<&[u32]> = (0..6).map(|action| plan.waits_of(action)).collect();
    let expected: [&[u32]; 6] = [&[], &[0], &[0], &[], &[0, 1, 2], &[4]];
    assert_eq!(waits, expected);
    let names: Vec<&str> = plan.actions.iter().map(|action| action.name()).collect();
    let expected = ["LOCK", "LOCK", "LOCKT", "LOCK", "LOCKU", "LOCK"];
    assert_eq!(names, expected);
    assert_eq!(plan.left_out.values().sum::<u64>(), 1);
    assert_eq!(plan.not_replayable, 1);
}

/// For any handles and times of the trace, no call waits for itself: it would never be sent.
#[test]
fn no_call_waits_for_itself() {
    let mut calls = Calls::default();
    let plan = calls
        .named(Procedure::Mkdir, (ROOT, "d"), 0, Some(ROOT))
        .rename((ROOT, "d"), (ROOT, "d"))
        .at(2000, Some(2000))
        .plan();
    for action in 0..plan.actions.len() as u32 {
        let waits = plan.waits_of(action);
        assert!(waits.iter().all(|earlier| *earlier < action), "{waits:?}");
    }
}

fn sends(next: NextAction) -> (u32, u64, LateCause) {
    match next {
        NextAction::Send { action, due, cause } => (action, due.0, cause),
        other => panic!("{other:?}"),
    }
}

/// With the trace's timing, calls are due at their times, and a client's calls stay in order.
#[test]
fn calls_are_due_at_their_times() {
    let mut calls = Calls::default();
    let plan = calls
        .named(Procedure::Create, (ROOT, "f"), 0, Some(2))
        .moving(Procedure::Read, 2, 0, 10)
        .call(Procedure::Getattr, ROOT, 0)
        .by(1)
        .call(Procedure::Getattr, ROOT, 0)
        .plan();
    let mut schedule = Schedule::new(&plan, ReplayTiming::Trace, 2.0);
    schedule.start(Nanos(5000));
    assert_eq!(
        sends(schedule.next(Nanos(5000))),
        (0, 5000, LateCause::Worker)
    );
    // The second call waits for the first; the other client continues.
    assert_eq!(schedule.next(Nanos(5005)), NextAction::At(Nanos(5020)));
    // Two calls end at the same time: all calls that are due by then had to wait.
    schedule.note_late(Nanos(5030), true);
    schedule.note_late(Nanos(5030), false);
    assert_eq!(
        sends(schedule.next(Nanos(5031))),
        (2, 5020, LateCause::Depth)
    );
    assert_eq!(schedule.next(Nanos(5032)), NextAction::AfterCompletion);
    schedule.ended(0, Nanos(5033));
    assert_eq!(
        sends(schedule.next(Nanos(5033))),
        (1, 5010, LateCause::Dependency)
    );
    assert_eq!(
        sends(schedule.next(Nanos(5034))),
        (3, 5030, LateCause::Depth)
    );
    assert_eq!(
        (schedule.next(Nanos(5035)), schedule.left()),
        (NextAction::End, 0)
    );
}

/// By dependency, a call keeps its time interval from the end of the calls before it.
#[test]
fn calls_follow_those_that_ended_before() {
    let mut calls = Calls::default();
    let plan = calls
        .call(Procedure::Getattr, ROOT, 0)
        .at(1000, Some(1100))
        .call(Procedure::Getattr, ROOT, 0)
        .at(1010, Some(1020))
        .call(Procedure::Getattr, ROOT, 0)
        .at(1050, Some(1300))
        .call(Procedure::Getattr, ROOT, 0)
        .at(1160, None)
        .plan();
    let mut schedule = Schedule::new(&plan, ReplayTiming::Dependency, 1.0);
    schedule.start(Nanos(0));
    assert_eq!(sends(schedule.next(Nanos(0))).0, 0);
    assert_eq!(sends(schedule.next(Nanos(10))), (1, 10, LateCause::Worker));
    assert_eq!(schedule.next(Nanos(900)), NextAction::AfterCompletion);
    schedule.ended(1, Nanos(1000));
    // 30 ns after the end of the second.
    assert_eq!(schedule.next(Nanos(1001)), NextAction::At(Nanos(1030)));
    assert_eq!(
        sends(schedule.next(Nanos(1030))),
        (2, 1030, LateCause::Worker)
    );
    assert_eq!(schedule.next(Nanos(2000)), NextAction::AfterCompletion);
    schedule.ended(0, Nanos(2000));
    assert_eq!(schedule.next(Nanos(2000)), NextAction::At(Nanos(2060)));
    assert_eq!(schedule.left(), 1);

    // As fast as possible, only dependencies count.
    let mut schedule = Schedule::new(&plan, ReplayTiming::Depth, 1.0);
    for action in 0..4 {
        assert_eq!(sends(schedule.next(Nanos(0))).0, action);
    }
}
