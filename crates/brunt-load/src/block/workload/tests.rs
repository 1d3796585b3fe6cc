use super::*;
use crate::block::sizes::BlockSize;

fn read(text: &str) -> Result<Workload, String> {
    toml::from_str::<Workload>(text).map_err(|error| error.to_string())
}

/// All parameters of SPEK, 2005, section 2.1, can be expressed.
#[test]
fn all_parameters_of_the_paper_can_be_expressed() {
    let workload = read(
        r#"
        blocks = [{ size = "8k", weight = 10 }, { size = "16k", weight = 20 }, { size = "32k", weight = 30 }]
        read = 0.6
        sequential = 0.25
        align = "4k"
        interval = "0"
        burst = { requests = 100, interval = "10ms" }
        ramp_up = { requests = 1000 }
        stop = { requests = 200000 }
        retry = { count = 3 }
        distribution = { kind = "hot-zones", zones = [{ access = 0.9, size = 0.1 }, { access = 0.1, size = 0.9 }] }
        arrival = { kind = "open", rate = 333, process = "poisson" }
        "#,
    )
    .unwrap();
    assert_eq!(workload.check(), Ok(()));
    assert_eq!(
        workload.blocks.list().unwrap()[2],
        BlockSize {
            size: Size(32768),
            weight: 30.0
        }
    );
    let written = toml::to_string(&workload).unwrap();
    assert_eq!(read(&written).unwrap(), workload);
}

/// Unknown keys are errors in every table.
#[test]
fn unknown_keys_are_errors() {
    for text in [
        "blokcs = 1",
        "stop = { tiem = \"1s\" }",
        "arrival = { kind = \"closed\", rate = 1 }",
    ] {
        assert!(read(text).unwrap_err().contains("unknown field"), "{text}");
    }
}

/// Invalid values are rejected with an error that names the key.
#[test]
fn invalid_values_are_refused_by_key() {
    let check = |text: &str, key| {
        let workload = read(&format!("{text}\n")).unwrap();
        assert_eq!(workload.check().unwrap_err().key, key, "{text}");
    };
    let stop = "stop = { time = \"1s\" }";
    check("", "stop");
    check("stop = { passes = 0 }", "stop");
    check(&format!("{stop}\nread = 1.5"), "read");
    check(&format!("{stop}\nblocks = []"), "blocks");
    check(&format!("{stop}\nblocks = [{{ size = 1000 }}]"), "blocks");
    check(&format!("{stop}\nqueue_depth = 0"), "queue_depth");
    check(&format!("{stop}\ninterval = \"1ms\""), "interval");
    check(
        &format!("{stop}\narrival = {{ kind = \"open\", rate = 0 }}"),
        "arrival.rate",
    );
    check(&format!("{stop}\nread = nan"), "read");
    check(&format!("{stop}\ntrim = 0.1"), "read");
    check(
        &format!("{stop}\nread = 0.5\ntrim = 0.3\nwrite_zeroes = 0.3"),
        "read",
    );
    check(&format!("{stop}\nread = 0.5\ntrim = -0.3"), "trim");
    check(&format!("{stop}\nflush_every = 10"), "fsync");
    check(
        "stop = { bytes = \"1m\" }\nread = 0.0\ntrim = 1.0",
        "stop.bytes",
    );
    check(
        &format!("{stop}\nread = 0.5\ntrim = 0.5\nverify = {{ journal = \"j\" }}"),
        "trim",
    );
    check(
        "stop = { steady = { round = \"1500ms\" } }",
        "stop.steady.round",
    );
    check(
        "interval = \"0\"\nstop = { steady = { round = \"1s\" } }",
        "interval",
    );
    check(
        &format!(
            "{stop}\ndistribution = {{ kind = \"hot-zones\", zones = [{{ access = 1, size = 0.5 }}] }}"
        ),
        "distribution.zones",
    );
}
