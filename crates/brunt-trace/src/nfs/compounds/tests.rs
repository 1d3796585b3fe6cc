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
    let steps: Vec<CompoundStep> = (0..)
        .zip(steps)
        .map(|(position, step)| CompoundStep { position, ..step })
        .collect();
    let compound = Compound {
        record: 1,
        start_ns: 1000,
        end_ns: Some(1300),
        client: 4,
        caller: Some(5),
    };
    let of_reply = CompoundAttributes {
        position: steps.len() as u32 - 1,
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

#[test]
fn what_is_no_call_is_counted() {
    let mut calls = CompoundCalls::default();
    compound(&mut calls, vec![step("SEQUENCE", None, None)]);
    let lock = step("LOCK", Some(1), None);
    compound(&mut calls, vec![step("SEQUENCE", None, None), lock]);
    // The server stopped at the second operation.
    let failed = CompoundStep {
        status: Some(70),
        ..step("PUTFH", Some(1), None)
    };
    let unexecuted = CompoundStep {
        status: None,
        ..step("READ", Some(1), None)
    };
    compound(&mut calls, vec![failed, unexecuted]);
    compound(
        &mut calls,
        vec![
            step("PUTFH", Some(90), None),
            step("GETATTR", Some(90), None),
        ],
    );
    assert_eq!(procedures(&calls), [(procedure::GETATTR, Some(90))]);
    assert_eq!(calls.others, BTreeMap::from([(SESSION.to_string(), 2)]));
    let lock = "NFSv4 LOCK: it has no counterpart in NFSv3".to_string();
    assert_eq!(calls.without_counterpart, BTreeMap::from([(lock, 1)]));
}
