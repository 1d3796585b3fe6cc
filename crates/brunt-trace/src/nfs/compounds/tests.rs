use super::*;

fn step(operation: &str, file: Option<i64>, name: Option<u32>) -> CompoundStep {
    CompoundStep {
        operation: operation.to_string(),
        file,
        name,
        status: Some(0),
        ..CompoundStep::default()
    }
}

fn compound(calls: &mut CompoundCalls, steps: Vec<CompoundStep>) {
    compound_with(calls, Some(0), steps);
}

fn of_client_4(status: Option<u32>) -> Compound {
    Compound {
        record: 1,
        start_ns: 1000,
        end_ns: Some(1300),
        client: 4,
        caller: Some(5),
        status,
    }
}

fn compound_with(calls: &mut CompoundCalls, status: Option<u32>, steps: Vec<CompoundStep>) {
    let steps: Vec<CompoundStep> = (0..)
        .zip(steps)
        .map(|(position, step)| CompoundStep { position, ..step })
        .collect();
    let compound = of_client_4(status);
    let of_reply = CompoundAttributes {
        position: steps.len().saturating_sub(1) as u32,
        file: Some(90),
        file_type: Some(1),
        ..CompoundAttributes::default()
    };
    calls.add(&compound, steps.iter().collect(), &[&of_reply]);
}

fn procedures(calls: &CompoundCalls) -> Vec<(u32, Option<i64>)> {
    let calls = calls.calls.iter();
    calls.map(|call| (call.procedure, call.file)).collect()
}

#[test]
fn operations_of_a_compound_are_calls_one_after_the_other() {
    let mut calls = CompoundCalls::default();
    compound(
        &mut calls,
        vec![
            step("SEQUENCE", None, None),
            step("PUTROOTFH", None, None),
            step("LOOKUP", None, Some(1)),
            step("LOOKUP", None, Some(2)),
            step("GETFH", Some(20), None),
            step("READ", Some(20), None),
            step("GETATTR", Some(20), None),
        ],
    );
    let root = Some(ROOT);
    let between = Some(ROOT + 1);
    assert_eq!(
        procedures(&calls),
        [
            (procedure::LOOKUP, root),
            (procedure::LOOKUP, between),
            (procedure::READ, Some(20))
        ]
    );
    let times = calls.calls.iter().map(|call| (call.start_ns, call.end_ns));
    assert_eq!(
        times.collect::<Vec<_>>(),
        [(1000, Some(1100)), (1100, Some(1200)), (1200, Some(1300))]
    );
    let names = calls
        .names
        .iter()
        .map(|(_, name)| (name.directory, name.leads_to));
    assert_eq!(
        names.collect::<Vec<_>>(),
        [(root, between), (between, Some(20))]
    );
    assert!(
        calls
            .calls
            .iter()
            .all(|call| (call.client, call.caller) == (4, Some(5)))
    );
    assert_eq!(calls.attributes[0].0, calls.calls[2].record);
    assert!(calls.others.is_empty());
}

#[test]
fn files_are_created_by_open_and_removed_as_what_they_are() {
    let mut calls = CompoundCalls::default();
    let in_root = |more: Vec<CompoundStep>| {
        let mut steps = vec![step("PUTFH", Some(7), None)];
        steps.extend(more);
        steps
    };
    let create = CompoundStep {
        argument: Some(3),
        ..step("OPEN", Some(7), Some(1))
    };
    let close = step("CLOSE", Some(21), None);
    compound(
        &mut calls,
        in_root(vec![create, step("GETFH", Some(21), None), close]),
    );
    let directory = CompoundStep {
        argument: Some(2),
        ..step("CREATE", Some(7), Some(2))
    };
    compound(
        &mut calls,
        in_root(vec![directory, step("GETFH", Some(22), None)]),
    );
    let rename = CompoundStep {
        saved_file: Some(7),
        new_name: Some(3),
        ..step("RENAME", Some(7), Some(2))
    };
    compound(
        &mut calls,
        in_root(vec![step("SAVEFH", None, None), rename]),
    );
    for name in [1, 3] {
        compound(
            &mut calls,
            in_root(vec![step("REMOVE", Some(7), Some(name))]),
        );
    }
    compound(&mut calls, in_root(vec![step("OPEN", Some(7), Some(4))]));
    let expected = [
        procedure::CREATE,
        procedure::MKDIR,
        procedure::RENAME,
        procedure::REMOVE,
        procedure::RMDIR,
        procedure::LOOKUP,
    ];
    assert_eq!(
        procedures(&calls),
        expected.map(|procedure| (procedure, Some(7)))
    );
    assert_eq!(calls.sets[0].1.how, Some(1));
    assert_eq!(calls.others, BTreeMap::from([(OPENING.to_string(), 1)]));
}

fn with_status(status: Option<u32>, step: CompoundStep) -> CompoundStep {
    CompoundStep { status, ..step }
}

/// NFS4ERR_STALE.
const STALE: Option<u32> = Some(70);

#[test]
fn what_is_no_call_is_counted() {
    let mut calls = CompoundCalls::default();
    let sequence = || step("SEQUENCE", None, None);
    compound(&mut calls, vec![sequence()]);
    let lock = step("LOCK", Some(1), None);
    compound(&mut calls, vec![sequence(), lock]);
    let put = || step("PUTFH", Some(90), None);
    let freed = step("FREE_STATEID", None, None);
    compound(
        &mut calls,
        vec![put(), step("GETATTR", Some(90), None), freed],
    );
    compound(&mut calls, vec![put()]);
    compound(&mut calls, vec![]);
    // The server doesn't know the minor version.
    let access = step("ACCESS", Some(1), None);
    let unexecuted = [put(), access].map(|step| with_status(None, step));
    compound_with(&mut calls, Some(10021), unexecuted.to_vec());
    assert_eq!(procedures(&calls), [(procedure::GETATTR, Some(90))]);
    let others = [(SESSION, 2), (HANDLES, 1), (UNREAD, 1), (UNEXECUTED, 1)];
    assert_eq!(
        calls.others,
        others.map(|(why, count)| (why.to_string(), count)).into()
    );
    // LOCK has no arguments here, as in traces of older versions.
    let lock = "NFSv4 LOCK: arguments not captured".to_string();
    assert_eq!(calls.without_counterpart, BTreeMap::from([(lock, 1)]));
}

/// An owner is identified by its name, then by the stateid of its locks; another client's owner of the same name is a
/// different one.
#[test]
fn operations_on_locks_have_their_owners() {
    let mut calls = CompoundCalls::default();
    let mut lock = |client, operation, owner, state| {
        let lock = StepLock {
            kind: 2,
            length_bytes: 100,
            owner,
            state,
        };
        let step = CompoundStep {
            lock: Some(lock),
            offset_bytes: 8,
            ..step(operation, Some(90), None)
        };
        let compound = Compound {
            client,
            ..of_client_4(Some(0))
        };
        calls.add(&compound, vec![&step], &[]);
        let (record, row) = *calls.locks.last().expect("a lock");
        let call = calls.calls.last().expect("a call");
        assert_eq!((call.record, call.procedure), (record, procedure::NULL));
        assert_eq!((call.file, call.offset_bytes), (Some(90), 8));
        assert_eq!((row.kind, row.length_bytes), (2, 100));
        (row.operation, row.owner)
    };
    assert_eq!(lock(0, "LOCK", Some(5), Some(50)), (12, 0));
    assert_eq!(lock(0, "LOCK", None, Some(50)), (12, 0));
    assert_eq!(lock(0, "LOCK", Some(6), Some(60)), (12, 1));
    assert_eq!(lock(1, "LOCK", Some(5), Some(70)), (12, 2));
    assert_eq!(lock(0, "LOCKT", Some(6), None), (13, 1));
    assert_eq!(lock(0, "LOCKU", None, Some(50)), (14, 0));
    // A LOCKU whose LOCK was not captured, then a known owner with a second stateid.
    assert_eq!(lock(0, "LOCKU", None, Some(80)), (14, 3));
    assert_eq!(lock(0, "LOCK", Some(6), Some(61)), (12, 1));
    assert_eq!(lock(0, "LOCKU", None, Some(61)), (14, 1));
}

/// In NFSv3 the handle is an argument of the call, which fails with the handle's status.
#[test]
fn a_handle_that_fails_fails_the_operation_that_needs_it() {
    let mut calls = CompoundCalls::default();
    let stale = |file| with_status(STALE, step("PUTFH", Some(file), None));
    let later = |name, file| with_status(None, step(name, Some(file), None));
    let statuses = |calls: &CompoundCalls| {
        let calls = calls.calls.iter();
        let rows = calls.map(|call| (call.procedure, call.file, call.status));
        rows.collect::<Vec<_>>()
    };
    compound_with(
        &mut calls,
        STALE,
        vec![stale(1), later("READ", 1), later("GETATTR", 1)],
    );
    compound_with(&mut calls, STALE, vec![stale(2), later("GETATTR", 2)]);
    let rename = CompoundStep {
        saved_file: Some(3),
        name: Some(5),
        new_name: Some(6),
        ..later("RENAME", 4)
    };
    compound_with(
        &mut calls,
        STALE,
        vec![stale(3), later("SAVEFH", 3), later("PUTFH", 4), rename],
    );
    let mut expected = vec![
        (procedure::READ, Some(1), STALE),
        (procedure::GETATTR, Some(2), STALE),
        (procedure::RENAME, Some(3), STALE),
    ];
    assert_eq!(statuses(&calls), expected);
    assert_eq!(calls.names[1].1.directory, Some(4));
    assert!(calls.others.is_empty());
    // An operation without a result whose predecessors succeeded: its result was not captured.
    compound(
        &mut calls,
        vec![step("PUTFH", Some(7), None), later("WRITE", 7)],
    );
    expected.push((procedure::WRITE, Some(7), None));
    // READ succeeded, so the GETATTR that failed becomes a call of its own.
    let failed = with_status(STALE, step("GETATTR", Some(8), None));
    let read = step("READ", Some(8), None);
    compound_with(
        &mut calls,
        STALE,
        vec![step("PUTFH", Some(8), None), read, failed],
    );
    expected.extend([
        (procedure::READ, Some(8), Some(0)),
        (procedure::GETATTR, Some(8), STALE),
    ]);
    assert_eq!(statuses(&calls), expected);
}

/// Regardless of what the server did, each operation becomes a call or is counted, unless it is part of another
/// operation.
#[test]
fn no_operation_is_lost() {
    let all = [
        "ACCESS",
        "ALLOCATE",
        "BACKCHANNEL_CTL",
        "BIND_CONN_TO_SESSION",
        "CLONE",
        "CLOSE",
        "COMMIT",
        "COPY",
        "CREATE",
        "CREATE_SESSION",
        "DEALLOCATE",
        "DELEGPURGE",
        "DELEGRETURN",
        "DESTROY_CLIENTID",
        "DESTROY_SESSION",
        "EXCHANGE_ID",
        "FREE_STATEID",
        "GETATTR",
        "GETDEVICEINFO",
        "GETXATTR",
        "ILLEGAL",
        "LAYOUTGET",
        "LINK",
        "LISTXATTRS",
        "LOCK",
        "LOCKT",
        "LOCKU",
        "LOOKUP",
        "LOOKUPP",
        "NVERIFY",
        "OPEN",
        "OPENATTR",
        "OPEN_CONFIRM",
        "OPEN_DOWNGRADE",
        "READ",
        "READDIR",
        "READLINK",
        "READ_PLUS",
        "RECLAIM_COMPLETE",
        "RELEASE_LOCKOWNER",
        "REMOVE",
        "RENAME",
        "RENEW",
        "SECINFO",
        "SECINFO_NO_NAME",
        "SEEK",
        "SETATTR",
        "SETCLIENTID",
        "SETCLIENTID_CONFIRM",
        "TEST_STATEID",
        "VERIFY",
        "WRITE",
        "UNKNOWN",
        "one of a later version",
    ];
    for operation in all {
        for name in [None, Some(1)] {
            let steps = [
                step("SEQUENCE", None, None),
                step("PUTFH", Some(7), None),
                step(operation, Some(7), name),
                step("GETFH", Some(8), None),
                step("ACCESS", Some(8), None),
            ];
            // `failing` is the first operation that fails; if it is beyond the last one, none fails. Without
            // `is_seen`, the results are missing.
            for failing in 0..=steps.len() {
                for is_seen in [true, false] {
                    let executed = (0..).zip(steps.clone()).map(|(position, step)| {
                        let status = match position {
                            _ if !is_seen || position > failing => None,
                            _ if position == failing => STALE,
                            _ => Some(0),
                        };
                        with_status(status, step)
                    });
                    let mut calls = CompoundCalls::default();
                    let status = (failing < steps.len()).then_some(70).or(Some(0));
                    compound_with(&mut calls, status, executed.collect());
                    let found = calls.calls.len() as u64 + calls.counted();
                    let has_failed = is_seen && matches!(failing, 1 | 2);
                    let is_part = operation == "GETATTR" && !has_failed;
                    let expected = if is_part { 1 } else { 2 };
                    assert_eq!(
                        found, expected,
                        "{operation} {name:?}, {failing} failed, {is_seen}: {calls:?}"
                    );
                }
            }
        }
    }
}
