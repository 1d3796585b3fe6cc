//! The table of fio's keys (3.42): which are translated, which have no effect here, and why others cannot be imported.
//!
//! The rule: a key that is in none of the lists is a loss, and a loss makes the import fail. A key that is switched
//! off (`0`, `none`) is not a loss.

use brunt_core::spelling::did_you_mean;

/// How a key is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Read by `translate`.
    Read,
    /// The key does not affect the measurement.
    Moot,
    /// The experiment achieves the same effect by other means, which the text describes.
    Differs(&'static str),
    /// An experiment cannot express it; the text contains the reason and the closest equivalent.
    Cannot(&'static str),
    /// Like [`Fate::Cannot`], but only for jobs that write.
    CannotWrite(&'static str),
    /// The key is in none of the lists.
    Unknown,
}

/// The canonical name of a key that has aliases (listed in fio(1)).
pub fn canonical(key: &str) -> &str {
    match key {
        "readwrite" => "rw",
        "blocksize" => "bs",
        "blocksize_range" => "bsrange",
        "blocksize_unaligned" => "bs_unaligned",
        "blockalign" => "ba",
        "fileoffset" => "offset",
        "io_limit" => "io_size",
        "buffered" => "direct",
        "numprocs" => "numjobs",
        "timeout" => "runtime",
        "nr_files" => "nrfiles",
        "fill_fs" => "fill_device",
        "ratemin" => "rate_min",
        "ss" => "steadystate",
        "ss_dur" => "steadystate_duration",
        "ss_ramp" => "steadystate_ramp_time",
        "ss_interval" => "steadystate_check_interval",
        other => other,
    }
}

/// Keys that are translated.
#[rustfmt::skip]
const READ: &[&str] = &[
    "rw", "bs", "bsrange", "bssplit", "ba", "iodepth",
    "numjobs", "size", "filesize", "nrfiles", "io_size", "offset",
    "offset_increment", "runtime", "time_based", "ramp_time", "rwmixread", "rwmixwrite",
    "percentage_random", "random_distribution", "rate", "rate_iops", "rate_process", "thinktime",
    "thinktime_blocks", "filename", "directory", "direct", "ioengine", "verify",
    "do_verify", "loops", "kb_base", "randseed", "sync", "fsync",
    "fdatasync", "end_fsync", "fsync_on_close", "buffer_compress_percentage", "dedupe_percentage", "number_ios", "sqthread_poll", "hipri",
    "zonemode", "zonesize", "zonerange", "zoneskip", "steadystate", "steadystate_duration",
    "steadystate_ramp_time", "steadystate_check_interval", "norandommap", "allow_file_create",
    "latency_target", "latency_window", "latency_percentile", "uri",
];

/// Keys that have no effect here: how fio prints, logs and counts, how it allocates files and memory, and how it
/// handles errors (here, each error is counted and the run continues).
#[rustfmt::skip]
const MOOT: &[&str] = &[
    "group_reporting", "new_group", "name", "description", "thread", "threads",
    "stonewall", "wait_for_previous", "wait_for", "startdelay", "exitall", "exit_what", "exitall_on_error",
    "fallocate", "invalidate", "softrandommap", "randrepeat", "allrandrepeat",
    "refill_buffers", "scramble_buffers", "buffer_compress_chunk", "disable_slat", "disable_clat", "disable_lat",
    "disable_bw", "disable_bw_measurement", "slat_percentiles", "clat_percentiles", "lat_percentiles", "percentile_list",
    "block_error_percentiles", "gtod_reduce", "gtod_cpu", "clocksource", "eta", "status-interval",
    "stats", "disk_util", "unified_rw_reporting", "per_job_logs", "write_bw_log", "write_lat_log",
    "write_iops_log", "write_hist_log", "log_avg_msec", "log_hist_msec", "log_hist_coarseness", "log_max_value",
    "log_window_value", "log_offset", "log_prio", "log_issue_time", "log_entries", "log_compression",
    "log_compression_cpus", "log_store_compressed", "log_unix_epoch", "log_alternate_epoch", "log_alternate_epoch_clock_id", "job_start_clock_id",
    "bwavgtime", "iopsavgtime", "unit_base", "significant_figures", "comm", "registerfiles",
    "fixedbufs", "nonvectored", "sqthread_poll_cpu", "userspace_reap", "iodepth_batch", "iodepth_batch_submit",
    "iodepth_batch_complete", "iodepth_batch_complete_min", "iodepth_batch_complete_max", "iodepth_low", "io_submit_mode", "rate_cycle",
    "ratecycle", "rate_ignore_thinktime", "unlink", "unlink_each_loop", "create_on_open", "create_serialize",
    "create_fsync", "allow_mounted_write", "overwrite", "openfiles", "unique_filename",
    "file_service_type", "filetype", "lockfile", "fadvise_hint", "mem", "iomem",
    "iomem_align", "mem_align", "hugepage-size", "lockmem", "continue_on_error", "ignore_error",
    "error_dump", "verify_fatal", "verify_dump", "verify_async", "verify_async_cpus", "verify_write_sequence",
    "verify_header_seed", "verify_state_save", "verify_backlog_batch", "ioscheduler", "cpus_allowed_policy", "numjobs_rand",
];

/// Why zoned devices are not supported.
pub const ZONED: &str =
    "zoned devices are not supported: write pointers are not tracked and zones are not reset";

/// Whether this value switches the key off. For some keys, zero is a valid CPU, memory node or byte pattern.
pub fn is_off(key: &str, value: &str) -> bool {
    match key {
        "cpus_allowed" | "numa_cpu_nodes" | "buffer_pattern" | "verify_pattern" => false,
        "rw_sequencer" => value == "sequential",
        "dedupe_mode" => value == "repeat",
        _ => matches!(value, "0" | "none"),
    }
}

/// Keys that only modify another key, which is itself either translated or lost.
#[rustfmt::skip]
const PARTS: &[&str] = &[
    "cmdprio_class", "cmdprio", "cmdprio_hint", "flow_id", "flow_sleep", "dedupe_global",
    "dedupe_working_set_percentage", "random_sequence_stride", "fdp_pli", "fdp_pli_select", "plids", "plid_select",
    "dp_scheme", "spr_op", "spr_num_regions", "spr_cache_size", "zonecapacity", "max_open_zones",
    "job_max_open_zones", "ignore_zone_limits", "read_beyond_wp", "zone_reset_threshold", "zone_reset_frequency", "write_zone_remainder",
    "pi_act", "pi_chk", "apptag", "apptag_mask",
];

/// Looks up how a key is imported.
pub fn fate(key: &str) -> Fate {
    use Fate::{Cannot, CannotWrite, Differs};
    match key {
        _ if READ.contains(&key) => Fate::Read,
        _ if MOOT.contains(&key) || PARTS.contains(&key) => Fate::Moot,
        "random_generator" => Differs("there is only one random generator, seeded by seed"),
        "filename_format" => Differs("the file of a job without filename is JOB.0.0"),
        "write_iolog" => Differs("write record_requests = true"),
        "serialize_overlap" => Cannot("overlapping requests are not serialized"),
        "rate_min" | "rate_iops_min" => Cannot("compare results with brunt compare --fail-if"),
        "max_latency" => {
            Cannot("no single request ends a run; compare results with brunt compare --fail-if")
        }
        "latency_run" => Cannot("a run has one queue depth, which is determined before the run"),
        "file_append" | "opendir" => Cannot("a target is one file or device"),
        "fill_device" => Cannot("a run ends by requests, bytes or time, not on a full device"),
        "sync_file_range" | "end_syncfs" | "write_barrier" => {
            Cannot("write fsync = 100 or sync = \"dsync\", or use [filesystems.x] with fsync")
        }
        "zonecapacity"
        | "max_open_zones"
        | "job_max_open_zones"
        | "ignore_zone_limits"
        | "read_beyond_wp"
        | "zone_reset_threshold"
        | "zone_reset_frequency"
        | "write_zone_remainder" => Cannot(ZONED),
        "read_iolog" | "replay_time_scale" | "replay_redirect" | "replay_no_stall" => {
            Cannot("a workload is described, not replayed from a log")
        }
        "cpus_allowed" | "cpumask" | "numa_cpu_nodes" | "numa_mem_policy" => {
            Cannot("workers are not bound to processors or memory nodes")
        }
        "nice" => Cannot("start brunt with nice"),
        "prio" | "prioclass" | "priohint" | "cmdprio_percentage" | "cmdprio_bssplit" => Cannot(
            "requests have no I/O priority (to set one for all requests, start brunt with ionice)",
        ),
        "rw_sequencer" => Cannot("each request is drawn independently"),
        "buffer_pattern" | "zero_buffers" => CannotWrite(
            "contents are generated from a seed: write data = { compressible = 0.5, dedupable = 0.1 }",
        ),
        "dedupe_mode" => {
            CannotWrite("duplicates come from 64 common blocks; write data = { dedupable = 0.5 }")
        }
        "verify_pattern" | "verify_interval" | "verify_offset" | "verify_pattern_interval" => {
            Cannot("verified blocks contain their own address, generation and checksum")
        }
        "verify_backlog" => {
            Cannot("fio reads blocks back between writes; here reads are part of the workload")
        }
        "verify_only" | "verify_state_load" | "experimental_verify" => {
            Cannot("brunt verify checks a device against the journals of a run")
        }
        "uid" | "gid" | "chroot" | "cgroup" | "cgroup_weight" | "cgroup_nodelete" => {
            Cannot("start brunt that way")
        }
        "exec_prerun" | "exec_postrun" => Cannot("run it before or after brunt"),
        "thinktime_spin" | "thinktime_iotime" | "thinktime_blocks_type" | "thinkcycles" => {
            Cannot("write burst = { requests = 8, interval = \"1ms\" }")
        }
        "atomic" => Cannot("atomic writes are not supported"),
        "flow" => Cannot("the rate of one job relative to another is not controlled"),
        "fdp" | "dataplacement" => Cannot("writes carry no placement hint"),
        "sprandom" => Cannot("no workload reproduces the invalid blocks of a used SSD"),
        "md_per_io_size" => Cannot(
            "blocks have no metadata; in fio, only engines xnvme and io_uring_cmd have this option",
        ),
        _ => Fate::Unknown,
    }
}

/// Why a key that is not in the table cannot be imported.
pub fn unknown(key: &str) -> String {
    let known = READ.iter().chain(MOOT).copied();
    did_you_mean(key, known).unwrap_or_else(|| "it has no equivalent".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_in_one_list() {
        let all: Vec<&str> = READ.iter().chain(MOOT).chain(PARTS).copied().collect();
        for (index, key) in all.iter().enumerate() {
            assert!(!all[index + 1..].contains(key), "{key} twice");
        }
        assert_eq!(fate(canonical("ss_dur")), fate("steadystate"));
        assert!(is_off("prio", "0") && is_off("zonemode", "none") && !is_off("cpus_allowed", "0"));
        assert_eq!(fate("no_such_key"), Fate::Unknown);
        assert_eq!(unknown("no_such_key"), "it has no equivalent");
        assert_eq!(unknown("iodetph"), "did you mean iodepth?");
    }
}
