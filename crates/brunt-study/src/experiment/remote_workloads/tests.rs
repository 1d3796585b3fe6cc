use super::*;
use crate::experiment::{assert_mistake, assert_mistake_at, changed};

const TEXT: &str = r#"
name = "several hosts"
allow_overwrite = ["/dev/sdx"]
[hosts.a]
ssh = "root@a"
[hosts.b]
agent = "b:7420"
identity = "certificates/controller.pem"
[targets.disk]
url = "/dev/sdx"
[workloads.mixed]
read = 0.5
workers = 2
hosts = ["a", "b"]
stop = { time = "1s" }
[workloads.here]
stop = { time = "1s" }
[sweep]
queue_depth = [1, 8]
"#;

/// A workload on several other hosts is one load, with the workers of all of them.
#[test]
fn workloads_of_other_hosts_are_points() {
    let experiment = Experiment::parse("/some/where/x.toml", TEXT).unwrap();
    let HostSettings::AgentHost(b) = &experiment.hosts[&HostName::from("b")] else {
        panic!("an agent")
    };
    assert_eq!(
        b.identity,
        std::path::Path::new("/some/where/certificates/controller.pem")
    );
    let plan = experiment.plan();
    let of = |workload: &'static str| {
        plan.points
            .iter()
            .filter(move |point| point.workload_name == workload)
    };
    assert_eq!((of("mixed").count(), of("here").count()), (2, 2));
    for point in of("mixed") {
        assert_eq!(point.hosts(), ["a", "b"]);
        let info = point.load.info();
        assert!(
            info.workers == 4
                && info.writes
                && point
                    .load
                    .describe()
                    .contains("2 workers on each host, closed loop, on a + b")
        );
    }
    assert!(of("here").all(|point| point.hosts().is_empty()));
    assert!(!plan.is_remote("disk"), "it is opened here too");
    let only = TEXT.replace("[workloads.here]\nstop = { time = \"1s\" }\n", "");
    assert!(
        Experiment::parse("x.toml", &only)
            .unwrap()
            .plan()
            .is_remote("disk")
    );
    assert_eq!(
        Experiment::parse("x.toml", &experiment.written_out()).unwrap(),
        experiment
    );
}

/// Phases on other hosts' file systems are points too.
#[test]
fn file_systems_may_be_on_other_hosts() {
    let text = |hosts: &str| {
        format!(
            "name = \"x\"\n[hosts.a]\nssh = \"a\"\n[hosts.b]\nssh = \"b\"\n[filesystems.home]\n\
                 directory = \"/home\"\nhosts = [{hosts}]\nphases = [\"seeks\", \"rewrite\"]\nseekers = 3\n"
        )
    };
    let plan = Experiment::parse("x.toml", &text("\"a\", \"b\""))
        .unwrap()
        .plan();
    assert_eq!(plan.points.len(), 2);
    for point in &plan.points {
        assert_eq!(point.hosts(), ["a", "b"]);
        assert!(
            point
                .load
                .describe()
                .ends_with("fsync at the end, on a + b"),
            "{}",
            point.load.describe()
        );
    }
    assert_eq!(plan.points[0].load.info().workers, 6);
    let seeks = serde_json::to_value(&plan.points[0]).unwrap();
    assert_eq!(
        (&seeks["phase"], &seeks["kind"]),
        (&"seeks".into(), &"file".into())
    );
    let check = |hosts: &str, said: &str| assert_mistake(&text(hosts), 8, said);
    // Faults of a target on this machine affect other workloads, not the file system on other hosts.
    let local =
        "[targets.disk]\nserve = \"memory:1MiB\"\n[workloads.here]\nstop = { time = \"2s\" }\n";
    let fault = "[[fault]]\ntarget = \"disk\"\nstorage = \"busy\"\n";
    let both = format!("{}{local}{fault}", text("\"a\", \"b\""));
    let parsed =
        Experiment::parse("x.toml", &both).unwrap_or_else(|error| panic!("{}", error.one_line()));
    assert_eq!(parsed.plan().points.len(), 3);
    let hog = format!("{}{local}[[fault]]\ncpu = 0.5\n", text("\"a\", \"b\""));
    assert_mistake_at(&hog, "[[fault]]", "a fault without a host is injected here");
    check("\"a\", \"c\"", "unknown host 'c'");
    check("\"a\", \"a\"", "listed twice");
}

/// Jobs on other hosts and on this machine run at once; this process opens the target only for the jobs that run
/// here.
#[test]
fn jobs_may_be_on_other_hosts() {
    let group = |jobs: [&str; 2]| {
        let job = |name: &str| {
            format!("{{ workload = \"{name}\", target = \"disk\", name = \"{name}-job\" }}")
        };
        let jobs = jobs.map(job).join(", ");
        let text = TEXT.replace(
            "[sweep]",
            &format!("[together.both]\njobs = [{jobs}]\n[sweep]"),
        );
        let text = text.replace(
            "[hosts.b]",
            "[workloads.more]\nhosts = [\"a\"]\nstop = { time = \"1s\" }\n[hosts.b]",
        );
        let text = text.replace("url = \"/dev/sdx\"", "url = \"/dev/sdx\"\nworkloads = []");
        Experiment::parse("x.toml", &text).unwrap().plan()
    };
    let plan = group(["mixed", "here"]);
    let all = &plan.points[0];
    assert_eq!((all.load.info().workers, all.hosts().len()), (5, 0));
    let jobs: Vec<&[String]> = plan
        .jobs_of(0)
        .map(|job| plan.points[job].hosts())
        .collect();
    assert_eq!(jobs, [&["a".to_string(), "b".into()][..], &[]]);
    assert!(!plan.is_remote("disk"));
    assert!(group(["mixed", "more"]).is_remote("disk"));
}

/// All hosts reach targets that other hosts serve, and faults of these targets need no `host`.
#[test]
fn targets_may_be_served_on_other_hosts() {
    let served = "[targets.disk]\nserve = [\"memory:1MiB?fault=off\", \"null:1GiB\"]\nhost = \"b\"";
    let faults = "[[fault]]\ntarget = \"disk\"\nfreeze = true\nat = \"100ms\"\nfor = \"100ms\"\n\
                      [[fault]]\ntarget = \"disk\"\nstorage = \"slow:1ms\"\nat = \"500ms\"\n[sweep]";
    let text = changed(TEXT, "[targets.disk]\nurl = \"/dev/sdx\"", served);
    let text = changed(&text, "allow_overwrite = [\"/dev/sdx\"]\n", "");
    let text = changed(&text, "[sweep]", faults);
    let experiment =
        Experiment::parse("x.toml", &text).unwrap_or_else(|error| panic!("{}", error.one_line()));
    assert_eq!(
        experiment.served_remotely(),
        [("disk".to_string(), HostName::from("b"))]
    );
    assert!(experiment.reached_hosts().contains(&"b".to_string()));
    let machine = "freeze = true\nat = \"100ms\"\nfor = \"100ms\"";
    // A service may be on another host than the target, because the target only selects the runs in which the service
    // fails.
    let service = format!("service = \"store\"\n{machine}");
    let with_service = changed(
        &changed(&text, machine, &service),
        "[sweep]",
        "[services.store]\ncommand = [\"x\"]\n[sweep]",
    );
    let parsed = Experiment::parse("x.toml", &with_service);
    parsed.unwrap_or_else(|error| panic!("{}", error.one_line()));
    let wrong = changed(&text, machine, "cpu = 0.5");
    assert_mistake_at(&wrong, "cpu =", "host b serves it");
    let wrong = changed(
        &text,
        machine,
        "reset = \"b\"\nat = \"100ms\"\nfor = \"100ms\"",
    );
    assert_mistake_at(&wrong, "reset =", "host b serves it");
    let lines = crate::study::describe(&experiment, &experiment.plan());
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("target disk is served on host b")),
        "{lines:?}"
    );
    let nowhere = changed(
        &text,
        "agent = \"b:7420\"",
        "agent = \"b:7420\"\naddress = \"\"",
    );
    assert_mistake_at(&nowhere, "address =", "not a host's address");
}

const LAB: &str = r#"
name = "hosts of a lab"
[lab]
hosts = ["one", "two", "server", "alone"]
[lab.links.first]
between = ["one", "server"]
[lab.links.second]
between = ["two", "server"]
[targets.disk]
serve = "memory:1MiB"
host = "server"
[workloads.mixed]
hosts = ["one", "two"]
stop = { time = "10s" }
"#;

/// Lab hosts run workloads as remote hosts do, on targets served in the lab; only the named hosts have agents.
#[test]
fn hosts_of_a_lab_run_workloads() {
    let plan = |text: &str| {
        Experiment::parse("x.toml", text)
            .unwrap_or_else(|error| panic!("{}", error.one_line()))
            .plan()
    };
    let experiment = Experiment::parse("x.toml", LAB).unwrap();
    let planned = experiment.plan();
    assert_eq!(planned.points[0].hosts(), ["one", "two"]);
    assert!(planned.is_remote("disk") && planned.fleet.is_some());
    let requesters: Vec<String> = experiment
        .requesters("disk")
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(requesters, ["one", "two"]);
    assert!(
        experiment.probed_hosts().is_empty(),
        "the lab's own prober has them"
    );
    let here = changed(LAB, "hosts = [\"one\", \"two\"]\n", "");
    assert!(plan(&here).fleet.is_none() && plan(&here).points[0].hosts().is_empty());
    plan(&changed(LAB, "[lab]", "host_silence = \"2s\"\n[lab]"));
    // A host that runs no load doesn't have to reach the target.
    plan(&changed(LAB, "[lab]", "[lab]\nworker = \"alone\""));
}

/// Remote hosts and lab hosts take part in one experiment, with links and faults on each side; no route leads from
/// one side to the other.
#[test]
fn other_machines_work_next_to_a_lab() {
    let machines = "workloads = [\"mixed\"]\n[hosts.far]\nssh = \"far\"\n[hosts.store]\nssh = \"store\"\naddress = \"10.0.0.9\"\n\
                    [targets.remote]\nserve = \"memory:1MiB\"\nhost = \"store\"\nworkloads = [\"away\"]\n\
                    [workloads.away]\nhosts = [\"far\"]\nstop = { time = \"10s\" }\n\
                    [links.wan]\nbetween = [\"far\", \"store\"]\nnetem = [\"eth0\", \"eth0\"]\n\
                    [[fault]]\nname = \"busy\"\nhost = \"far\"\ncpu = 0.5\nat = \"1s\"\nfor = \"1s\"\n\
                    [sweep]\nlink_delay = [\"0\", \"10ms\"]\n[workloads.mixed]";
    let text = changed(LAB, "[workloads.mixed]", machines);
    let experiment =
        Experiment::parse("x.toml", &text).unwrap_or_else(|error| panic!("{}", error.one_line()));
    let plan = experiment.plan();
    let delays = |point: &crate::experiment::Point| {
        let delay = |ways: &[brunt_lab::link::Settings; 2]| ways[0].delay.0.as_millis();
        ["first", "second", "wan"].map(|link| delay(&point.links[link]))
    };
    let swept: Vec<_> = plan.points.iter().map(delays).collect();
    assert_eq!(swept, [[0; 3], [10; 3], [0; 3], [10; 3]]);
    assert_eq!(experiment.reached_hosts(), ["far", "store"]);
    let check = |from: &str, to: &str, at: &str, said: &str| {
        assert_mistake_at(&changed(&text, from, to), at, said);
    };
    let into = "serve = \"memory:1MiB\"\nhost = \"server\"\nworkloads = [\"mixed\", \"away\"]";
    check(
        "serve = \"memory:1MiB\"\nhost = \"server\"\nworkloads = [\"mixed\"]",
        into,
        "host = \"server\"",
        "no route from far to server",
    );
    check(
        "hosts = [\"far\"]",
        "hosts = [\"far\", \"one\"]",
        "host = \"store\"",
        "no route from one to store",
    );
    check(
        "hosts = [\"far\"]\n",
        "",
        "host = \"store\"",
        "no route from",
    );
    check(
        "[links.wan]",
        "[links.first]",
        "[links.first]",
        "the lab has a link with this name",
    );
}

/// A service's virtual machine works alongside lab hosts and is not part of the lab's network.
#[test]
fn guests_run_loads() {
    let services = "[services.vm]\nhost = \"one\"\ncommand = [\"qemu\"]\n[services.vm-2]\nhost = \"two\"\ncommand = [\"qemu\"]\n\
             [hosts.guest]\nguest = \"vm\"\n[hosts.other]\nguest = \"vm-2\"\n";
    let files = "[filesystems.home]\ndirectory = \"/mnt\"\nhosts = [\"guest\", \"other\"]\nphases = [\"rewrite\"]\n";
    let text = format!("{LAB}{services}{files}");
    let experiment =
        Experiment::parse("x.toml", &text).unwrap_or_else(|error| panic!("{}", error.one_line()));
    let plan = experiment.plan();
    let point = plan
        .points
        .iter()
        .find(|point| point.target == "home")
        .unwrap();
    assert_eq!(point.hosts(), ["guest", "other"]);
    assert!(experiment.probed_hosts().is_empty() && experiment.reached_hosts().is_empty());
    let lines = crate::study::describe(&experiment, &plan);
    assert!(
        lines.contains(&"host guest is a guest: service vm runs it".to_string()),
        "{lines:?}"
    );
    assert_eq!(
        Experiment::parse("x.toml", &experiment.written_out()).unwrap(),
        experiment
    );
    let check = |from: &str, to: &str, at: &str, said: &str| {
        assert_mistake_at(&changed(&text, from, to), at, said);
    };
    check(
        "guest = \"vm\"",
        "guest = \"vw\"",
        "guest = \"vw",
        "unknown service 'vw'",
    );
    assert_mistake(
        &changed(&text, "guest = \"vm-2\"", "guest = \"vm\""),
        24,
        "guests of the same service",
    );
    check(
        "between = [\"two\"",
        "between = [\"other\"",
        "between = [\"other",
        "other is not one of them",
    );
    check(
        "hosts = [\"one\", \"two\"]",
        "hosts = [\"guest\"]",
        "host = \"server\"",
        "no route from guest",
    );
    let jobs = "[together.both]\njobs = [{ workload = \"mixed\", target = \"disk\" }, { workload = \"more\", target = \"disk\" }]\n\
             [workloads.more]\nstop = { time = \"1s\" }\n[targets.disk]";
    let own = changed(
        &text,
        "serve = \"memory:1MiB\"\nhost = \"server\"",
        "url = \"/dev/vdd\"",
    );
    let own = changed(&own, "hosts = [\"one\", \"two\"]", "hosts = [\"guest\"]");
    assert_mistake_at(
        &changed(&own, "[targets.disk]", jobs),
        "jobs",
        "host guest is a guest, which can run only one load at a time",
    );
}

#[test]
fn mistakes_of_hosts_of_a_lab() {
    let check = |from: &str, to: &str, at: &str, said: &str| {
        assert_mistake_at(&changed(LAB, from, to), at, said);
    };
    let named = "hosts = [\"one\", \"two\"]";
    check(
        named,
        "hosts = [\"one\", \"three\"]",
        "hosts = [\"one\", \"three",
        "unknown host 'three'",
    );
    check(
        named,
        "hosts = [\"local\"]",
        "hosts = [\"local",
        "name hosts of the lab",
    );
    check(
        named,
        "hosts = [\"one\", \"alone\"]",
        "host =",
        "no route from alone to server",
    );
    let probed = "[probes]\nhosts = [\"one\"]\n[lab]\n";
    check(
        "[lab]\n",
        probed,
        "hosts = [\"one\"]",
        "the network of each host is recorded",
    );
    let idle = changed(LAB, &format!("{named}\n"), "");
    let text = changed(&idle, "[lab]\n", "host_silence = \"2s\"\n[lab]\n");
    assert_mistake_at(&text, "host_silence", "without other hosts");
}

/// For faults that depend on where requests come from, every host that sends some counts; a fault of a device that
/// only agents open is refused.
#[test]
fn faults_can_accompany_hosts_of_a_lab() {
    let check = |fault: &str, said: Option<&str>| {
        let text = format!("{LAB}[[fault]]\n{fault}");
        match (Experiment::parse("x.toml", &text), said) {
            (Ok(_), None) => {}
            (Err(error), Some(said)) => {
                let all = format!(
                    "{} {}",
                    error.one_line(),
                    error.help_text().unwrap_or_default()
                );
                assert!(all.contains(said), "{fault}: {all}");
            }
            (result, said) => panic!("{fault}: {said:?} {:?}", result.err()),
        }
    };
    let timed = "at = \"1s\"\nfor = \"1s\"";
    check("target = \"disk\"\nstorage = \"busy\"", None);
    check(&format!("target = \"disk\"\nfreeze = true\n{timed}"), None);
    check("link = \"first\"\nset = { loss = 0.1 }", None);
    check(&format!("partition = [\"two\", \"server\"]\n{timed}"), None);
    check(
        "partition = [\"two\", \"server\"]",
        Some("separates target disk from two for the whole run"),
    );
    check("partition = [\"alone\", \"server\"]", Some("no route"));
    check(
        &format!("target = \"disk\"\nreset = \"two\"\n{timed}"),
        None,
    );
    check(
        &format!("target = \"disk\"\nreset = \"server\"\nto = \"two\"\n{timed}"),
        None,
    );
    let several = "connections of disk come from one, two, but the fault resets connections of only one of them";
    check(
        &format!("target = \"disk\"\nreset = \"server\"\n{timed}"),
        Some(several),
    );
    check(
        &format!("target = \"disk\"\nreset = \"alone\"\n{timed}"),
        Some("between one, two and server"),
    );
    let apart = format!("partition = [\"two\", \"server\"]\n{timed}");
    let text = format!(
        "{LAB}[[fault]]\n{apart}\n[[fault]]\ntarget = \"disk\"\nstorage = \"busy\"\n{timed}"
    );
    let experiment = Experiment::parse("x.toml", &text).unwrap();
    let met = crate::fault::overlaps(&experiment.fault, &experiment);
    assert!(
        format!("{met:?}").contains("during the partition, busy affects no request from two"),
        "{met:?}"
    );
    let own = LAB.replace(
        "serve = \"memory:1MiB\"\nhost = \"server\"",
        "url = \"memory:1MiB\"",
    );
    let text = format!("{own}[[fault]]\ntarget = \"disk\"\nstorage = \"busy\"\n");
    assert_mistake_at(&text, "target =", "host one opens target disk itself");
}

#[test]
fn mistakes_have_their_line() {
    let check = |from: &str, to: &str, at: &str, said: &str| {
        assert_mistake_at(&changed(TEXT, from, to), at, said);
    };
    check(
        "hosts = [\"a\", \"b\"]",
        "hosts = [\"a\", \"c\"]",
        "hosts =",
        "unknown host 'c'",
    );
    check(
        "hosts = [\"a\", \"b\"]",
        "hosts = [\"local\"]",
        "hosts =",
        "is not a remote host",
    );
    let ssh = "ssh = \"root@a\"\n";
    let bridge = |more: &str| format!("{ssh}bridge = [\"eth0\", \"eth1\"]\n{more}\n");
    check(
        ssh,
        &bridge("capture = \"wire.pcapng\""),
        "capture =",
        "write an absolute path",
    );
    let alone = format!("{ssh}capture = \"/var/tmp/wire.pcapng\"\n");
    check(
        ssh,
        &alone,
        "capture =",
        "has no bridge whose packets could be saved",
    );
    check(
        "hosts = [\"a\", \"b\"]",
        "hosts = [\"a\", \"a\"]",
        "hosts =",
        "is listed twice",
    );
    check(
        "workers = 2",
        "workers = 200",
        "hosts =",
        "400 workers on all hosts",
    );
    check(
        "ssh = \"root@a\"",
        "ssh = \"-oProxyCommand=x\"",
        "ssh =",
        "user@host",
    );
    check(
        "ssh = \"root@a\"",
        "ssh = \"a\"\nprogram = \"x; reboot\"",
        "program",
        "a plain path",
    );
    check(
        "ssh = \"root@a\"",
        "ssh = \"a\"\ncommand = \" \"",
        "command",
        "is empty",
    );
    check(
        "ssh = \"root@a\"",
        "ssh = \"a\"\nagent = \"a:1\"",
        "agent",
        "unknown",
    );
    check(
        "agent = \"b:7420\"",
        "agent = \"b\"",
        "agent =",
        "write host:port",
    );
    check(
        "identity = \"certificates/controller.pem\"",
        "",
        "[hosts.b]",
        "identity",
    );
    check(
        "url = \"/dev/sdx\"",
        "url = \"/dev/sdx\"\n[targets.s]\nserve = \"memory:1MiB\"",
        "serve",
        "loopback",
    );
    check(
        "[hosts.a]",
        "on_host_failure = \"stop\"\n[hosts.a]",
        "on_host_failure",
        "continue",
    );
    check(
        "[hosts.a]",
        "host_silence = \"1ms\"\n[hosts.a]",
        "host_silence",
        "500ms to 1h",
    );
    let fault = "[[fault]]\nname = \"x\"\ncpu = 1\n[sweep]";
    check(
        "[sweep]",
        fault,
        "[[fault]]",
        "a fault without a host is injected here",
    );
}
