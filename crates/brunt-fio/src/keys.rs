//! The table of fio's keys: which are translated, which mean nothing here, and why others cannot be.

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// `translate` reads it.
    Read,
    /// It changes nothing here.
    Moot,
    /// An experiment cannot say it; why, and what comes near.
    Cannot(&'static str),
}

/// Another name of a key (fio(1) lists both).
pub fn canonical(key: &str) -> &str {
    match key {
        "readwrite" => "rw",
        "blocksize" => "bs",
        "blocksize_range" => "bsrange",
        "blockalign" => "ba",
        "fileoffset" => "offset",
        "io_limit" => "io_size",
        "buffered" => "direct",
        "numprocs" => "numjobs",
        other => other,
    }
}

/// Keys that are translated.
#[rustfmt::skip]
const READ: &[&str] = &[
    "rw", "bs", "bsrange", "bssplit", "ba", "iodepth",
    "numjobs", "size", "io_size", "offset", "runtime", "time_based",
    "ramp_time", "rwmixread", "rwmixwrite", "percentage_random", "random_distribution", "rate_iops",
    "rate_process", "thinktime", "thinktime_blocks", "filename", "directory", "direct",
    "ioengine", "verify", "loops", "kb_base", "randseed", "sync",
    "buffer_compress_percentage", "dedupe_percentage", "number_ios", "iodepth_batch_complete_min", "description", "allow_file_create",
];

/// Keys that change nothing here.
#[rustfmt::skip]
const MOOT: &[&str] = &[
    "group_reporting", "name", "thread", "stonewall", "wait_for_previous", "fallocate",
    "invalidate", "norandommap", "randrepeat", "refill_buffers", "exitall", "disable_slat",
    "disable_clat", "disable_lat", "lat_percentiles", "clat_percentiles", "percentile_list", "gtod_reduce",
    "clocksource", "eta", "status-interval", "write_bw_log", "write_lat_log", "write_iops_log",
    "log_avg_msec", "registerfiles", "fixedbufs", "hipri", "sqthread_poll", "do_verify",
    "iodepth_batch", "iodepth_batch_submit", "iodepth_low", "unlink", "create_on_open", "overwrite",
    "file_service_type", "unit_base", "significant_figures", "zero_buffers", "verify_fatal", "ioscheduler",
    "prio",
];

/// See [`Fate`].
pub fn fate(key: &str) -> Fate {
    use Fate::Cannot;
    match key {
        _ if READ.contains(&key) => Fate::Read,
        _ if MOOT.contains(&key) => Fate::Moot,
        "startdelay" => Cannot("workloads are measured one after the other, each from its own start"),
        "rate" => Cannot("limit requests instead of bytes: rate_iops, here arrival = { kind = \"open\", … }"),
        "rate_min" | "rate_iops_min" => Cannot("compare results with brunt compare --fail-if"),
        "latency_target" | "latency_window" | "latency_percentile" => {
            Cannot("write arrival = { kind = \"search\", percentile = 99, limit = \"5ms\" }")
        }
        "offset_increment" => Cannot("workers share their region"),
        "nrfiles" | "filesize" | "openfiles" | "file_append" => Cannot("a target is one file or device"),
        "fsync" | "fdatasync" | "sync_file_range" | "end_fsync" | "fsync_on_close" => {
            Cannot("write force_unit_access = true, or [filesystems.x] with fsync")
        }
        "zonesize" | "zonerange" | "zoneskip" | "zonemode" => {
            Cannot("zones are distribution = { kind = \"hot-zones\", … }")
        }
        "read_iolog" | "write_iolog" | "replay_time_scale" => Cannot("traces are replayed by brunt itself"),
        "cpus_allowed" | "cpumask" | "numa_cpu_nodes" | "numa_mem_policy" => {
            Cannot("start brunt with taskset or numactl")
        }
        "rwmixcycle" | "rw_sequencer" => Cannot("each request is drawn by itself"),
        "random_generator" => Cannot("there is one generator, seeded by seed"),
        "verify_pattern" | "buffer_pattern" | "verify_interval" | "verify_offset" | "verify_backlog" => {
            Cannot("verified blocks carry address, generation and checksum of their own")
        }
        "uid" | "gid" | "chroot" | "cgroup" | "nice" => Cannot("start brunt that way"),
        "exec_prerun" | "exec_postrun" => Cannot("run it before or after brunt"),
        "steadystate" | "steadystate_duration" | "ss" | "ss_dur" => {
            Cannot("write stop = { steady = { round = \"10s\" } }")
        }
        "profile" | "cmdprio_percentage" | "flow" | "flow_id" => Cannot("there is nothing like it"),
        _ => Cannot("it is not known here"),
    }
}
