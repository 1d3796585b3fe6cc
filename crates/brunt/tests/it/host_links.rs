//! Links between other machines: two hosts and an inline bridge between them, each in a network namespace with an
//! agent. Sweeps vary the link like a lab link; probe packets prove each setting, and no setting outlives its run.

use crate::bridge::{hosts, report};
use crate::support::{alone, need};

/// Creates `ssh` programs that start the agents of hosts a, b and wire in their namespaces, and an experiment with
/// these keys for the link, followed by this text.
fn experiment(link: &str, rest: &str) -> String {
    format!(
        r#"
        for host in a b; do
            printf '#!/bin/sh\nfor last; do :; done\nexec nsenter -n -t %s sh -c "$last"\n' $(cat $WORK/$host.pid) >$WORK/ssh-$host
        done
        printf '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n' >$WORK/ssh-wire
        chmod +x $WORK/ssh-*
        cat >$WORK/x.toml <<END
name = "links between machines"
repetitions = 1
host_silence = "60s"
[hosts.a]
ssh = "a"
command = "$WORK/ssh-a"
program = "$BRUNT"
address = "10.9.0.1"
[hosts.b]
ssh = "b"
command = "$WORK/ssh-b"
program = "$BRUNT"
address = "10.9.0.2"
[hosts.wire]
ssh = "wire"
command = "$WORK/ssh-wire"
program = "$BRUNT"
bridge = ["in0", "out0"]
[links.wan]
between = ["a", "b"]
{link}
[targets.store]
serve = "memory:16MiB"
host = "b"
[workloads.read]
read = 1
hosts = ["a"]
stop = {{ time = "2s" }}
[probes]
interval = "0s"
{rest}
END
        ends() {{ # waits until no agent forwards
            for i in $(seq 400); do A ping -c 1 -W 1 10.9.0.2 >/dev/null || return 0; sleep .1; done
            echo it still forwards >&2; exit 1
        }}
        "#
    )
}

/// A delay is swept, proven in each run, visible in latencies and in the index, and absent from runs without it.
#[test]
fn a_sweep_delays_packets_between_machines() {
    if need("ping", "iputils-ping").is_none() {
        return;
    }
    let _alone = alone(); // it compares latencies
    let script = experiment(
        "bridge = \"wire\"",
        "[sweep]\nlink_delay = [\"0\", \"20ms\"]",
    );
    let Some(text) = hosts(&format!(
        r#"{script}
        sed -i 's/^repetitions = 1/repetitions = 3/' $WORK/x.toml
        "$BRUNT" --json run $WORK/x.toml --out $WORK/results >$WORK/summary 2>$WORK/notes || {{ cat $WORK/notes >&2; exit 1; }}
        ends
        cat $WORK/summary
        "#
    )) else {
        return;
    };
    let summary = report(&text);
    let points = summary["points"].as_array().unwrap();
    assert_eq!(points.len(), 2, "{summary:#}");
    for point in points {
        let is_delayed = point["axes"]["link_delay"] == "20ms";
        let runs = point["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 3, "{point:#}");
        for run in runs {
            let proof = &run["link_proofs"]["wan"];
            let us = |key: &str| proof[key].as_f64();
            assert_eq!(proof["carrier"], "bridge of host wire", "{proof:#}");
            // Runs are in random order, so this shows that the previous run's delay is gone.
            let clear = us("clear_round_trip_us").unwrap();
            assert!(clear < 20_000.0, "{proof:#}");
            let p50 = run["response"]["p50_us"].as_f64().unwrap();
            match is_delayed {
                true => {
                    assert!(us("round_trip_us") >= Some(40_000.0), "{proof:#}");
                    assert!(p50 >= 40_000.0, "{p50}");
                }
                false => {
                    assert!(us("round_trip_us").is_none(), "{proof:#}");
                    assert!(p50 < 20_000.0, "{p50}");
                }
            }
        }
    }
    let impact = &summary["indexes"]["impacts"][0];
    let ratio = impact["per_client"]["interval"]["ratio"].as_f64().unwrap();
    assert!(ratio > 0.0 && ratio < 0.5, "{impact:#}");
}

/// Loss and rate are also proven, and their figures agree with the settings.
#[test]
fn loss_and_rate_are_proven() {
    let _alone = alone(); // it measures a rate
    let script = experiment("bridge = \"wire\"\nloss = \"2%\"\nrate = \"20Mb/s\"", "");
    let script = format!(
        r#"{script}
        for attempt in 1 2 3 4; do
            rm -rf $WORK/results
            "$BRUNT" --json run $WORK/x.toml --out $WORK/results >$WORK/summary 2>$WORK/notes && break
            [ $attempt -lt 4 ] || {{ cat $WORK/notes >&2; exit 1; }}
        done
        cat $WORK/summary
        "#
    );
    // A pause of the machine makes the rate lower and replies too late, so this is repeated; it never makes the rate
    // higher.
    let mut seen = Vec::new();
    for _ in 0..4 {
        let Some(text) = hosts(&script) else { return };
        let summary = report(&text);
        let proof = &summary["points"][0]["runs"][0]["link_proofs"]["wan"];
        assert_eq!(proof["set"][0], "loss 0.02, rate 20Mb/s", "{proof:#}");
        // In both directions together, 3.96 % of 506 requests are lost: 20, with a standard deviation of 4.4.
        let loss = proof["loss"].as_f64().unwrap();
        assert!(loss >= 0.003, "{proof:#}");
        let rate = proof["bits_per_second"].as_f64().unwrap();
        assert!(rate < 25e6, "{proof:#}");
        if loss < 0.077 && rate >= 15e6 {
            return;
        }
        seen.push((loss, rate));
    }
    panic!("never near to the settings: {seen:?}");
}

/// If the controller is killed in the middle of a delayed run, the agents remove everything: the link is down as before
/// the experiment, and no agent is left.
#[test]
fn agents_remove_links_of_a_dead_controller() {
    if need("ping", "iputils-ping").is_none() {
        return;
    }
    let script = experiment("bridge = \"wire\"\ndelay = \"100ms\"", "");
    let Some(text) = hosts(&format!(
        r#"{script}
        sed -i 's/^stop = .*/stop = {{ time = "120s" }}/' $WORK/x.toml
        "$BRUNT" run $WORK/x.toml --out $WORK/results >$WORK/said 2>&1 & RUN=$!
        # Late pings: the delay is in effect.
        for i in $(seq 600); do
            A ping -c 1 -W 1 10.9.0.2 | sed -n 's/.* time=\([0-9]*\).*/\1/p' >$WORK/time
            [ "0$(cat $WORK/time)" -ge 200 ] && break; sleep .1
        done
        [ "0$(cat $WORK/time)" -ge 200 ] || {{ cat $WORK/said >&2; exit 1; }}
        kill -KILL $RUN
        ends
        # Anyone can forward again: neither interface is taken.
        bridge
        pings 10 56 | sed -n 's/.* time=\([0-9.]*\) ms.*/\1/p'
        end
        "#
    )) else {
        return;
    };
    let times: Vec<f64> = text
        .lines()
        .map_while(|line| line.parse::<f64>().ok())
        .collect();
    assert_eq!(times.len(), 10, "{text}");
    // A reply can be late at any time, but with the delay, all of them would take 200 ms.
    assert!(times.iter().any(|time| *time < 100.0), "{times:?}");
}

/// With netem on both hosts, the sweep gives the same results. If the kernel lacks netem, this is reported with
/// advice.
#[test]
fn netem_on_both_hosts_delays_packets_or_says_what_is_missing() {
    let script = experiment(
        "netem = [\"a0\", \"b0\"]",
        "[sweep]\nlink_delay = [\"0\", \"20ms\"]",
    );
    let Some(text) = hosts(&format!(
        r#"{script}
        "$BRUNT" --json run $WORK/x.toml --out $WORK/results >$WORK/summary 2>$WORK/notes || :
        A tc qdisc show dev a0 2>/dev/null | grep netem >&2 && {{ echo netem is left >&2; exit 1; }}
        cat $WORK/notes; cat $WORK/summary
        "#
    )) else {
        return;
    };
    if text.contains("this kernel lacks netem") {
        assert!(
            text.contains("link wan") && text.contains("modprobe sch_netem"),
            "{text}"
        );
        println!("skipped: netem (this kernel lacks it)");
        return;
    }
    let summary = report(&text);
    let delayed = summary["points"].as_array().unwrap().iter();
    let mut delayed = delayed.filter(|point| point["axes"]["link_delay"] == "20ms");
    let proof = &delayed.next().unwrap()["runs"][0]["link_proofs"]["wan"];
    assert!(
        proof["round_trip_us"].as_f64() >= Some(40_000.0),
        "{proof:#}"
    );
}
