//! Tests with whole jobs.

mod flushes;
mod nbd;
mod steady;

use std::time::Duration;

use brunt_core::{Size, Span};
use brunt_load::Workload;
use brunt_load::block::patterns::{
    HotZones, Normal, OffsetDistribution, Pareto, Shuffled, Uniform, Zipf, Zone,
};
use brunt_load::block::processes::ArrivalProcess;
use brunt_load::block::sizes::{BlockSizes, SizeLaw, UniformSizes};
use brunt_load::block::stride::Stride;
use brunt_load::block::workload::{Arrival, Burst};
use brunt_result::choice::RingMode;
use brunt_study::experiment::{Experiment, TogetherEntry};

use crate::error::{Cause, FioError};
use crate::remark::Remark;
use crate::{Import, import};

fn of(text: &str) -> Result<Import, FioError> {
    translated(text, false)
}

/// The URLs of all targets.
fn urls(import: &Import) -> Vec<String> {
    let targets = import.experiment.targets.values();
    targets.map(|target| target.url.clone()).collect()
}

fn translated(text: &str, lossy: bool) -> Result<Import, FioError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.fio");
    std::fs::write(&path, text).unwrap();
    import(&path, lossy)
}

fn first(experiment: &Experiment) -> Workload {
    let (_, workload) = experiment.workloads.on_targets().next().unwrap();
    workload.clone()
}

/// The first group of concurrent jobs.
fn group(experiment: &Experiment) -> Option<&TogetherEntry> {
    let mut groups = experiment.workloads.groups();
    groups
        .find(|(name, _)| *name == "at-once")
        .map(|(_, group)| group)
}

fn one(settings: &str) -> (String, Workload, Vec<Remark>) {
    let import = of(&format!("[job]\nsize=1m\nfilename=/x/y\n{settings}\n")).unwrap();
    let target = import.experiment.targets.values().next().unwrap();
    (
        target.url.clone(),
        first(&import.experiment),
        import.remarks,
    )
}

/// The common keys are translated.
#[test]
fn common_keys_are_translated() {
    let (url, workload, _) = one("");
    assert_eq!(url, "file:/x/y?direct=no&size=1MiB&create=yes&lay_out=yes");
    assert_eq!(
        (workload.read, workload.sequential, workload.queue_depth),
        (1.0, 1.0, 1)
    );
    assert_eq!(
        (workload.stop.bytes, workload.region.length),
        (Some(Size(1 << 20)), Some(Size(1 << 20)))
    );
    let text = "rw=randrw\nrwmixread=70\nbs=8k\niodepth=32\nioengine=libaio\ndirect=1\nnumjobs=4\noffset=64k\nloops=3";
    let (url, workload, _) = one(text);
    assert_eq!(url, "file:/x/y?size=1088KiB&create=yes&lay_out=yes");
    assert_eq!(
        (
            workload.read,
            workload.sequential,
            workload.queue_depth,
            workload.workers
        ),
        (0.7, 0.0, 32, 4)
    );
    assert_eq!(
        (workload.align_bytes(), workload.region.start),
        (8192, Size(65536))
    );
    assert_eq!(workload.stop.bytes, Some(Size(12 << 20)));
    let (_, workload, _) =
        one("rw=randread\npercentage_random=80\nruntime=2m\ntime_based\nramp_time=5\nba=512");
    assert!((workload.sequential - 0.2).abs() < 1e-9);
    assert_eq!(
        (workload.stop.bytes, workload.stop.time),
        (None, Some(Span(Duration::from_secs(120))))
    );
    assert_eq!(
        workload.ramp_up.map(|ramp| ramp.time),
        Some(Span(Duration::from_secs(5)))
    );
    assert_eq!(workload.align, Some(Size(512)));
    let (_, workload, _) = one("kb_base=1000\nbs=512kib\nio_size=3MiB\nnumber_ios=7");
    let (bytes, requests) = (workload.stop.bytes, workload.stop.requests);
    assert_eq!(
        (workload.block_bytes_max(), bytes, requests),
        (512 << 10, Some(Size(3 << 20)), Some(7))
    );
    let (_, workload, _) = one("verify=crc32c\nrw=write\nthinktime=500\nthinktime_blocks=8");
    assert!(workload.verify.is_some());
    assert_eq!(
        workload.burst,
        Some(Burst {
            requests: 8,
            interval: Span(Duration::from_micros(500))
        })
    );
}

/// Block sizes in every notation are translated.
#[test]
fn block_sizes_in_every_notation_are_translated() {
    let check = |settings: &str, expected: &[(u64, f64)]| {
        let blocks = one(settings).1.blocks;
        let found: Vec<_> = blocks
            .list()
            .unwrap()
            .iter()
            .map(|block| (block.size.0, block.weight))
            .collect();
        assert_eq!(found, expected, "{settings}");
    };
    check(
        "bssplit=4k/10:64k/50:32k/40",
        &[(4096, 10.0), (65536, 50.0), (32768, 40.0)],
    );
    check(
        "bssplit=4k/50:64k/:32k/",
        &[(4096, 50.0), (65536, 25.0), (32768, 25.0)],
    );
    check("rw=write\nbs=4k,64k", &[(65536, 1.0)]);
    let range = UniformSizes {
        min: Size(512),
        max: Size(1 << 20),
        step: None,
    };
    let range = BlockSizes::Law(SizeLaw::Uniform(range));
    assert_eq!(one("bsrange=512-1m").1.blocks, range);
}

/// Distributions and rates are translated.
#[test]
fn distributions_and_rates_are_translated() {
    let check = |text: &str, expected| {
        assert_eq!(
            one(&format!("rw=randread\nrandom_distribution={text}"))
                .1
                .distribution,
            expected,
            "{text}"
        );
    };
    check("random", OffsetDistribution::Shuffled(Shuffled {}));
    check(
        "random\nnorandommap",
        OffsetDistribution::Uniform(Uniform {}),
    );
    check(
        "random\nbssplit=4k/50:8k/50",
        OffsetDistribution::Uniform(Uniform {}),
    );
    check("zipf:1.2", OffsetDistribution::Zipf(Zipf { theta: 1.2 }));
    check(
        "pareto:0.2",
        OffsetDistribution::Pareto(Pareto { skew: 0.2 }),
    );
    check(
        "normal:25",
        OffsetDistribution::Normal(Normal {
            mean: 0.5,
            deviation: 0.25,
        }),
    );
    let zones = vec![
        Zone {
            access: 0.6,
            size: 0.1,
        },
        Zone {
            access: 0.4,
            size: 0.9,
        },
    ];
    check(
        "zoned:60/10:40/90",
        OffsetDistribution::HotZones(HotZones { zones }),
    );
    let rate = |settings: &str| match one(settings).1.arrival {
        Arrival::Open { rate, process, .. } => (rate.round(), process),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        rate("rw=randread\nrate_iops=1000\nnumjobs=2"),
        (2000.0, ArrivalProcess::Constant)
    );
    assert_eq!(
        rate("rate_iops=1000\nnumjobs=2"),
        (1000.0, ArrivalProcess::Constant)
    );
    assert_eq!(
        rate("rw=randrw\nrwmixread=80\nrate_iops=800\nrate_process=poisson"),
        (1000.0, ArrivalProcess::Poisson)
    );
    assert_eq!(
        rate("rw=randrw\nrate_iops=800,100"),
        (200.0, ArrivalProcess::Constant)
    );
    assert_eq!(
        rate("rw=randread\nrate=1m\nbs=4k\nnumjobs=2"),
        (512.0, ArrivalProcess::Constant)
    );
    assert_eq!(
        rate("rw=randwrite\nrate=,400k\nbssplit=4k/50:12k/50"),
        (50.0, ArrivalProcess::Constant)
    );
}

#[test]
fn a_loss_is_named_with_its_line_and_refuses_the_file() {
    let text = "[global]\nuid=5\ngroup_reporting\nnonsense=1\n[a]\nsize=1m\nrw=trimwrite\niodepth=8\n[b]\nsize=1m\nrw=randwrite\n";
    let refused = of(text).unwrap_err();
    assert_eq!(refused.location.line, Some(2));
    let Cause::Loss { option, more, .. } = &refused.cause else {
        panic!("{refused}")
    };
    let more: Vec<_> = more
        .iter()
        .map(|lost| (lost.location.line, &lost.key[..]))
        .collect();
    assert_eq!(
        (option.as_str(), more),
        ("uid", vec![(Some(4), "nonsense"), (Some(7), "rw")])
    );
    assert!(
        refused
            .to_string()
            .contains(":4: nonsense: it has no equivalent\n"),
        "{refused}"
    );
    assert!(
        refused
            .advice()
            .is_some_and(|advice| advice.contains("--lossy"))
    );
    let import = translated(text, true).unwrap();
    let remark = |key: &str| {
        let all: Vec<_> = import
            .remarks
            .iter()
            .filter(|remark| remark.key == key)
            .collect();
        assert_eq!(all.len(), 1, "{key}: {all:?}");
        (all[0].location.line, all[0].why.clone(), all[0].loss)
    };
    assert_eq!((remark("uid").0, remark("uid").2), (Some(2), true));
    assert!(remark("nonsense").1.contains("no equivalent") && remark("nonsense").2);
    assert_eq!((remark("rw").0, remark("rw").2), (Some(7), true));
    assert!(remark("iodepth").1.contains("one request outstanding") && !remark("iodepth").2);
    assert!(remark("[a]").1.contains("[together.at-once]") && !remark("[a]").2);
    assert!(
        import
            .remarks
            .iter()
            .all(|remark| remark.key != "group_reporting")
    );
    assert!(
        import.text.contains("# LOST: ") && import.text.contains(":2: uid: "),
        "{}",
        import.text
    );
    assert!(import.text.starts_with("# From "));
    // Two jobs with separate files become concurrent workloads, each with its own target.
    let points: Vec<_> = import
        .experiment
        .points()
        .into_iter()
        .map(|point| point.label)
        .collect();
    assert_eq!(points, ["a+b at-once", "a at-once/a", "b at-once/b"]);
}

#[test]
fn the_error_names_the_right_option_and_reason() {
    let check = |settings: &str, blamed: &str, words: &str| {
        let refused = of(&format!("[job]\nsize=1m\nfilename=/x/y\n{settings}\n")).unwrap_err();
        let Cause::Loss { option, why, more } = &refused.cause else {
            panic!("{settings}: {refused}")
        };
        assert!(
            more.iter().all(|other| other.why == *why),
            "{settings}: {refused}"
        );
        assert_eq!(option, blamed, "{settings}");
        assert!(why.contains(words), "{settings}: {why}");
    };
    check("rw=randread:8", "rw", "each group of 8 requests");
    check("rw=randrw\nbs=4k,8k", "bs", "same block sizes");
    check(
        "rw=randrw\nbssplit=4k/50:8k/50,8k/100",
        "bssplit",
        "same block sizes",
    );
    check(
        "random_distribution=sequence:2,0,1",
        "random_distribution",
        "not read from a list",
    );
    check("rw=trimwrite", "rw", "trims each block, then writes it");
    check("zonemode=zbd\nzonesize=1m", "zonemode", "write pointers");
    check("offset=8z", "offset", "zonesize is not set");
    check(
        "rw=randread\nzonemode=strided\nzonesize=64k",
        "zonemode",
        "random requests",
    );
    check(
        "zonemode=strided\nzonesize=128k\nzonerange=64k",
        "zonerange",
        "once",
    );
    check("cpus_allowed=0", "cpus_allowed", "not bound");
    check(
        "numa_cpu_nodes=0\nnuma_mem_policy=bind:0",
        "numa_cpu_nodes",
        "not bound",
    );
    check(
        "cmdprio_percentage=20\ncmdprio_class=1",
        "cmdprio_percentage",
        "no I/O priority",
    );
    check(
        "rw=write\nbuffer_pattern=0",
        "buffer_pattern",
        "from a seed",
    );
    check(
        "filename=/dev/null",
        "filename",
        "neither a file nor a block device",
    );
    check("ss=iops:500\nss_dur=10", "ss", "relative to the mean");
    check("ss=iops:5%\nss_dur=10\nnumjobs=2", "ss", "group_reporting");
    check(
        "latency_target=5000\nlatency_window=1000000",
        "latency_target",
        "slowest request alone",
    );
    check("offset=30%", "offset", "percentage");
    check("filesize=1k-1m", "filesize", "one size");
    check("nrfiles=4", "nrfiles", "one file");
    check("rw=read\nverify=md5", "verify", "brunt verify");
    check(
        "rw=write\nbuffer_pattern=0x01",
        "buffer_pattern",
        "from a seed",
    );
    check("prio=7", "prio", "ionice");
    check(
        "filename=/dev/sda\\:x:/dev/sdb",
        "filename",
        "only the first is used",
    );
    check("ioengine=mmap", "ioengine", "page faults");
    check("ioengine=cpuio", "ioengine", "burns processor time");
    check("ioengine=nosuch", "ioengine", "is not supported");
    // Keys that are switched off or irrelevant to reads are no loss.
    for settings in [
        "zonemode=none",
        "prio=0",
        "buffer_pattern=0x01",
        "rw_sequencer=sequential",
        "flow=0",
        "fsync=1",
    ] {
        assert!(
            of(&format!("[job]\nsize=1m\nfilename=/x/y\n{settings}\n")).is_ok(),
            "{settings}"
        );
    }
}

/// Jobs whose engines are not block loads are omitted; jobs with a file or device are imported.
#[test]
fn jobs_without_a_block_engine_are_left_out() {
    let text = "[burn]\nioengine=cpuio\ncpuload=50\n[map]\nioengine=mmap\nsize=1m\nfilename=/x/y\n";
    let refused = of(text).unwrap_err();
    assert!(
        matches!(&refused.cause, Cause::Loss { option, more, .. } if option == "ioengine" && more.len() == 1),
        "each engine has its own reason: {refused}"
    );
    let import = translated(text, true).unwrap();
    assert_eq!(
        import.experiment.workloads.names().collect::<Vec<_>>(),
        ["map"]
    );
    assert_eq!(
        import.remarks.iter().filter(|remark| remark.loss).count(),
        2
    );
    assert!(matches!(
        translated("[burn]\nioengine=exec\n", true)
            .unwrap_err()
            .cause,
        Cause::NothingLeft
    ));
}

/// Tests the syntax used in fio's own examples, with one job per feature.
#[test]
fn the_syntax_of_fios_examples_is_accepted() {
    let (_, workload, _) =
        one("rw=randread\nbs=$pagesize\nrandom_distribution=zoned:50/5:30/15:20/ ; the rest");
    assert_eq!(workload.block_bytes_max(), 4096);
    let zone = |access, size| Zone { access, size };
    let zones = vec![zone(0.5, 0.05), zone(0.3, 0.15), zone(0.2, 0.8)];
    assert_eq!(
        workload.distribution,
        OffsetDistribution::HotZones(HotZones {
            zones: zones.clone()
        })
    );
    let (_, workload, _) = one("rw=randread\nrandom_distribution=zoned:50/5:30/15:20/:");
    assert_eq!(
        workload.distribution,
        OffsetDistribution::HotZones(HotZones { zones })
    );
    let (_, workload, _) = one("timeout=60;s\nnumjobs=2\t; two\nrw=randread\nbs=(1k*8)");
    assert_eq!((workload.workers, workload.block_bytes_max()), (2, 8192));
    assert_eq!(workload.stop.time, Some(Span(Duration::from_secs(60))));
    let (_, workload, _) = one("rw=write\nbs=,8k");
    assert_eq!(workload.block_bytes_max(), 8192);
    let (_, workload, _) = one("bs=,8k");
    assert_eq!(workload.block_bytes_max(), 4096);
    let (_, workload, _) = one("ioengine=io_uring\nsqthread_poll=1");
    assert_eq!(workload.ring, RingMode::Sqpoll);
    let (_, workload, _) = one("rw=randwrite\nfdatasync=8");
    assert_eq!(workload.flush_every, 8);
    let (_, workload, remarks) = one("rw=write\nverify=md5");
    let journal = workload.verify.and_then(|verify| verify.journal).unwrap();
    assert_eq!(journal.to_str(), Some("job.journals"));
    assert!(
        remarks
            .iter()
            .any(|remark| !remark.loss && remark.why.contains("brunt verify job.journals/run-N"))
    );
    let unset = of("[job]\nsize=1m\nbs=${NO_SUCH_VARIABLE}\n").unwrap_err();
    assert!(
        matches!(&unset.cause, Cause::UnknownVariable(name) if name == "NO_SUCH_VARIABLE"),
        "{unset}"
    );
    assert_eq!(unset.location.line, Some(3));
}

/// Trims become a separate workload, whose size is converted to a number of requests.
#[test]
fn trims_are_counted_in_requests() {
    let (_, workload, _) = one("rw=randtrim\nbs=8k");
    assert_eq!(
        (workload.read, workload.trim, workload.sequential),
        (0.0, 1.0, 0.0)
    );
    assert_eq!(
        (workload.stop.bytes, workload.stop.requests),
        (None, Some(128))
    );
    let (_, workload, _) = one("rw=trim\nbs=4k,8k,16k\nnumber_ios=9");
    assert_eq!(
        (workload.block_bytes_max(), workload.sequential),
        (16384, 1.0)
    );
    assert_eq!(workload.stop.requests, Some(9));
}

/// Without a size, a job covers its whole file or device `loops` times.
#[test]
fn a_job_without_a_size_covers_its_whole_file_or_device() {
    let import = |text: &str| {
        let import = of(text).unwrap();
        let target = import.experiment.targets.values().next().unwrap();
        (target.url.clone(), first(&import.experiment))
    };
    let (url, workload) =
        import("[job]\nfilename=/dev/sdx\nrw=randwrite\ndirect=1\nloops=2\nnumjobs=3\n");
    assert_eq!(url, "/dev/sdx");
    assert_eq!(
        (
            workload.region.length,
            workload.stop.bytes,
            workload.stop.passes
        ),
        (None, None, Some(6))
    );
    let (url, workload) = import("[job]\nfilename=/x/there\nruntime=5\ntime_based\n");
    assert_eq!(
        (url.as_str(), workload.stop.passes),
        ("file:/x/there?direct=no", None)
    );
    let (_, workload) = import("[job]\nfilename=/dev/sdx\nsize=100%\nrw=trim\n");
    assert_eq!((workload.stop.passes, workload.trim), (Some(1), 1.0));
    let (url, workload) =
        import("[job]\nfilename=/x/y\nfilesize=1m\nsize=4m\noffset=256k\nrw=randwrite\n");
    assert_eq!(url, "file:/x/y?direct=no&size=1MiB&create=yes");
    assert_eq!(
        (workload.region.length, workload.stop.bytes),
        (Some(Size(768 << 10)), Some(Size(4 << 20)))
    );
    let (url, workload) = import("[job]\nioengine=null\nsize=1280m\n");
    assert_eq!(
        (url.as_str(), workload.region.length),
        ("null:1280MiB", Some(Size(1_342_177_280)))
    );
    let (url, _) = import("[job]\nioengine=libiscsi\nfilename=iscsi\\://host/iqn.x\\:y/0\n");
    assert_eq!(url, "iscsi://host/iqn.x:y/0");
}

/// Jobs that wait for one another become phases of one experiment.
#[test]
fn sequential_jobs_become_phases_in_their_order() {
    let import =
        of("[global]\nsize=1m\nfilename=/x/y\n[a]\nrw=write\n[b]\nstonewall\n[c]\nwait_for=b\nrw=trim\n")
            .unwrap();
    assert_eq!(import.experiment.workloads.names().count(), 3);
    let phases = import.experiment.phase.iter();
    let phases: Vec<&str> = phases.map(|phase| phase.workloads[0].as_str()).collect();
    assert_eq!(phases, ["a", "b", "c"]);
    assert!(import.remarks.iter().all(|remark| remark.key == "filename"));
}

/// Concurrent jobs become one point with one part per job. The parts start when fio would start the jobs, and end
/// with the first one if `exitall` is set.
#[test]
fn concurrent_jobs_become_one_point() {
    let text = "[global]\nsize=1m\nfilename=/x/y\nruntime=9\ntime_based\nexitall\n\
                [a]\nramp_time=500ms\n[b]\nrw=randwrite\nstartdelay=1250ms\n[c]\nstonewall\n";
    let import = of(text).unwrap();
    let points: Vec<_> = import
        .experiment
        .points()
        .into_iter()
        .map(|point| point.label)
        .collect();
    assert_eq!(points, ["a c", "a at-once", "a at-once/a", "a at-once/b"]);
    let group = group(&import.experiment).unwrap();
    assert!(group.exit_all);
    assert_eq!(
        group.jobs[1].start_delay,
        Some(Span(Duration::from_millis(1250)))
    );
    // Measuring begins for b 750 ms after a, so the interval must divide 750 ms.
    assert_eq!(
        import.experiment.workloads["b"].interval,
        Span(Duration::from_millis(250))
    );
    let odd = of("[global]\nsize=1m\n[a]\n[b]\nstartdelay=1001ms\n").unwrap();
    assert_eq!(odd.experiment.workloads["a"].interval, Span(Duration::ZERO));
    let refused = of("[global]\nsize=1m\n[a]\n[b]\nstartdelay=soon\n").unwrap_err();
    assert!(matches!(refused.cause, Cause::Value { .. }), "{refused}");
}

/// Copies with separate files, offsets or regions become separate workloads; other copies become the workers of one
/// workload.
#[test]
fn copies_with_their_own_files_become_workloads() {
    let import = |text: &str| {
        let import = of(&format!("[global]\nsize=1m\nbs=64k\n{text}")).unwrap();
        let urls = urls(&import);
        let starts: Vec<u64> = import
            .experiment
            .workloads
            .on_targets()
            .map(|(_, workload)| workload.region.start.0 >> 20)
            .collect();
        let workers: u32 = import
            .experiment
            .workloads
            .on_targets()
            .map(|(_, workload)| workload.workers)
            .sum();
        let jobs = group(&import.experiment).map_or(Vec::new(), |group| group.jobs.clone());
        let names: Vec<String> = jobs
            .iter()
            .map(|job| format!("{}@{}", job.name(), job.target))
            .collect();
        (urls.join(" "), starts, workers, names.join(" "))
    };
    let one = |job: &str| format!("file:{job}?direct=no&size=1MiB&create=yes");
    let own = import("[job]\nnumjobs=2\nrw=write\n");
    assert_eq!(own.0, [one("job.0.0"), one("job.1.0")].join(" "));
    assert_eq!(
        (own.1, own.2, own.3.as_str()),
        (vec![0], 1, "job-1@job job-2@job-2")
    );
    let same = import("[job]\nfilename=/x/y\nnumjobs=2\n");
    assert_eq!(
        (same.1, same.2, same.3.as_str()),
        (vec![0], 1, "job-1@job job-2@job")
    );
    // The first job that names a file decides whether it is filled.
    let written = import("[one]\nfilename=/x/y\nrw=write\n[two]\nfilename=/x/y\nrw=read\n");
    assert_eq!(
        (written.0, written.3.as_str()),
        (one("/x/y"), "one@one two@one")
    );
    let read = import("[one]\nfilename=/x/y\nrw=read\n[two]\nfilename=/x/y\nrw=write\n");
    assert_eq!(read.0, one("/x/y") + "&lay_out=yes");
    assert_eq!(read.3, "one@one two@one");
    let apart = import(
        "[job]\nfilename=/dev/sdx\nrw=randread\nnumjobs=3\noffset=1m\noffset_increment=2m\n",
    );
    assert_eq!(
        (apart.0.as_str(), apart.1),
        ("/dev/sdx?direct=no", vec![1, 3, 5])
    );
    assert_eq!(
        (apart.2, apart.3.as_str()),
        (3, "job-1@job job-2@job job-3@job")
    );
    // A file becomes a single target, large enough for the last copy, regardless of filesize.
    let increment = "rw=write\nnumjobs=2\noffset_increment=1m\n";
    for filesize in ["", "filesize=2m\n"] {
        let regions = import(&format!("[job]\nfilename=/x/y\n{increment}{filesize}"));
        assert_eq!(
            (regions.0, regions.1),
            (one("/x/y").replace("1MiB", "2MiB"), vec![0, 1])
        );
        assert_eq!(regions.3, "job-1@job job-2@job");
    }
    let own = import(&format!("[job]\n{increment}"));
    assert_eq!(
        own.0,
        [one("job.0.0"), one("job.1.0").replace("1MiB", "2MiB")].join(" ")
    );
    let workers = import("[job]\nfilename=/x/y\nrw=randread\nnumjobs=3\n");
    assert_eq!((workers.1, workers.2, workers.3.as_str()), (vec![0], 3, ""));
    let two = import("[a]\nfilename=/x/y\nnumjobs=2\n[b]\nfilename=/x/z\nrw=randwrite\n");
    assert_eq!(two.3, "a-1@a a-2@a b@b");
    let refused = of("[global]\nsize=1m\nexitall\n[a]\nnumjobs=2\n[b]\nnew_group\n").unwrap_err();
    assert!(
        matches!(&refused.cause, Cause::Loss { option, .. } if option == "exitall"),
        "{refused}"
    );
}

/// Gaps between sequential requests become strides; the last argument is the number of KiB transferred for a size of
/// 1 MiB.
#[test]
fn gaps_between_requests_become_strides() {
    let check =
        |settings: &str, run: Option<u64>, skip: Option<u64>, back: Option<u64>, kib: u64| {
            let (_, workload, _) = one(settings);
            let stride = Stride {
                run: run.map(Size),
                skip: skip.map(Size),
                back: back.map(Size),
            };
            assert_eq!(
                (workload.stride, workload.stop.bytes),
                (Some(stride), Some(Size(kib << 10))),
                "{settings}"
            );
        };
    check("rw=read:-8k", None, None, Some(8192), 1024);
    check("rw=write:112k\nbs=16k", None, Some(112 << 10), None, 1024);
    // Skipped parts don't count toward the size: fio issues requests for all of it.
    let zones = "zonemode=strided\nzonesize=128k";
    check(
        &format!("{zones}\nzoneskip=256k"),
        Some(128 << 10),
        Some(256 << 10),
        None,
        1024,
    );
    check(
        &format!("{zones}\nzonerange=256k"),
        Some(128 << 10),
        Some(128 << 10),
        None,
        1024,
    );
    check(
        &format!("{zones}\nzoneskip=2z"),
        Some(128 << 10),
        Some(256 << 10),
        None,
        1024,
    );
    let (_, plain, _) = one(zones);
    assert_eq!(plain.stride, None);
    let (_, mixed, _) = one("rw=rw");
    assert!(mixed.sequential_per_kind && !plain.sequential_per_kind);
    let import = of("[job]\nfilename=/dev/sdx\nbs=16k\nrw=write:112k\n").unwrap();
    assert_eq!(import.experiment.workloads["job"].stop.passes, Some(8));
    let zones = "[job]\nfilename=/dev/sdx\nzonemode=strided\nzonesize=256m\nzoneskip=2g\n";
    assert_eq!(
        of(zones).unwrap().experiment.workloads["job"].stop.passes,
        Some(9)
    );
    let text = "[job]\nfilename=/dev/sdx\nsize=2z\noffset=3z\nzonemode=strided\nzonesize=1m\n";
    let import = of(text).unwrap();
    let region = import.experiment.workloads["job"].region;
    assert_eq!(
        (region.start, region.length),
        (Size(3 << 20), Some(Size(2 << 20)))
    );
}

/// With `exitall`, a job ends exactly those jobs that it would end in fio.
#[test]
fn a_job_ends_exactly_those_that_it_ends_in_fio() {
    let text = "[global]\nfilename=/x/y\nsize=1m\nexitall\n[a]\nexit_what=stonewall\n[b]\nnew_group\nrw=randread\n";
    let import = of(text).unwrap();
    let group = group(&import.experiment).unwrap();
    let ends: Vec<bool> = group.jobs.iter().map(|job| job.ends_run).collect();
    assert_eq!((group.exit_all, ends), (false, vec![true, false]));
}

/// An error names the line and the valid values.
#[test]
fn an_error_names_the_line_and_valid_values() {
    let refused = |settings: &str| of(&format!("[job]\n{settings}\n")).unwrap_err();
    let check = |settings: &str, line: usize, words: &str| {
        let error = refused(settings);
        assert!(
            matches!(error.cause, Cause::Value { .. }),
            "{settings}: {error:?}"
        );
        assert_eq!(error.location.line, Some(line));
        assert!(error.to_string().contains(words), "{settings}: {error}");
    };
    check("size=1m\nrw=sideways", 3, ":3: rw=sideways: write read");
    check("size=1q", 2, ":2: size=1q: write a size");
    check("size=1m\nrandom_distribution=zipf", 3, "zipf:1.1");
    check("size=1m\nrandom_distribution=zoned:/5", 3, "zoned:60/10");
    check("size=1m\niodepth=many", 3, "a whole number");
    check("size=1m\nzonesize=64k", 3, "zonemode=strided");
    check("size=1m\nnumjobs=99999999999", 3, "below 4294967296");
    assert!(matches!(refused("rw=read").cause, Cause::NoSize { .. }));
    assert!(matches!(
        refused("ioengine=null\nruntime=5").cause,
        Cause::NoSize { .. }
    ));
    assert!(matches!(
        refused("size=1m\nbs=1000").cause,
        Cause::BlockSize { bytes: 1000, .. }
    ));
    let refusal = refused("size=1m\nioengine=io_uring\niodepth=100000");
    assert!(matches!(refusal.cause, Cause::Experiment(_)), "{refusal}");
    assert!(
        refused("rw=read")
            .advice()
            .is_some_and(|advice| advice.contains("size"))
    );
}

/// Each engine produces the right target.
#[test]
fn each_engine_gives_the_right_target() {
    assert_eq!(one("ioengine=null").0, "null:1MiB");
    let iscsi = "ioengine=libiscsi\nfilename=iscsi\\://host/iqn.x/0";
    assert_eq!(one(iscsi).0, "iscsi://host/iqn.x/0");
    assert_eq!(one("filename=/dev/sdx\ndirect=1").0, "/dev/sdx");
    assert_eq!(
        one("filename=/dev/sdx\nbuffered=0\nsync=1").0,
        "/dev/sdx?write_back=no"
    );
    let own = one("directory=/data\nfilename=a").0;
    assert_eq!(
        own,
        "file:/data/a?direct=no&size=1MiB&create=yes&lay_out=yes"
    );
}
