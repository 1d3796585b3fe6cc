//! Tests of `steadystate` and `latency_target`.

use brunt_result::steady::SteadyFigure;

use super::*;

/// Jobs that end when their figures are steady, and queue depths limited by a latency goal, are imported.
#[test]
fn steady_state_and_latency_goals_are_translated() {
    let text = "rw=randread\ntime_based\nruntime=300\nss=lat_slope:0.5%\nss_dur=30\nss_ramp=10\nss_interval=2";
    let (_, workload, _) = one(text);
    let steady = workload.stop.steady.unwrap();
    assert_eq!(
        (steady.round.to_string(), steady.after.to_string()),
        ("2s".into(), "10s".into())
    );
    assert_eq!((steady.window, steady.rounds_max), (15, 145));
    assert_eq!(
        (steady.figure, steady.slope, steady.deviation),
        (SteadyFigure::ServiceTime, Some(0.005), None)
    );
    assert_eq!(workload.interval.to_string(), "2s");
    assert_eq!(one("ss=iops:5%").1.stop.steady, None);
    let text = "rw=randread\nioengine=libaio\niodepth=64\nlatency_target=500000\nlatency_window=5000000\nlatency_percentile=99.9\nruntime=60\ntime_based";
    let (_, workload, _) = one(text);
    let search = workload.depth_search.unwrap();
    assert_eq!(
        (workload.queue_depth, search.max, search.percentile),
        (1, 64, Some(99.9))
    );
    let limit = search.limit.map(|limit| limit.to_string());
    assert_eq!(
        (search.time.to_string(), limit.as_deref()),
        ("5s".into(), Some("500ms"))
    );
    assert_eq!(
        workload.stop.time.map(|time| time.to_string()).as_deref(),
        Some("5s")
    );
}
