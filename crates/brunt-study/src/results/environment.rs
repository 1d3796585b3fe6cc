//! The table `environment`: the machine, the program and the targets of a result. Everything is read once, before the
//! first run; values that cannot be read are omitted.

use std::fs::read_to_string;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use brunt_lake::Batch;
use brunt_result::experiment::TargetKind;
use brunt_result::summary::Summary;
use brunt_result::tables::environment::append as tell_row;

use crate::experiment::toml_without_secrets;

/// Adds everything that is known. `text` is the experiment file as its user wrote it.
pub fn append(rows: &mut Batch, summary: &Summary, text: &str) {
    let mut tell = |subject: &str, key: &str, value: &str| tell_row(rows, subject, key, value);
    machine(&mut |key, value| tell("machine", key, value));
    tell("brunt", "version", &summary.brunt);
    let experiment = &summary.experiment;
    tell("experiment", "name", &experiment.name);
    tell("experiment", "seed", &experiment.seed.to_string());
    tell("experiment", "text", &toml_without_secrets(text));
    if let Some(congestion) = &experiment.congestion {
        tell("experiment", "congestion_control", &congestion.algorithm);
        tell(
            "experiment",
            "congestion_control_chosen",
            if congestion.chosen { "yes" } else { "no" },
        );
    }
    for (name, target) in &experiment.targets {
        let subject = format!("target {name}");
        let key = if target.kind == TargetKind::Directory {
            "directory"
        } else {
            "url"
        };
        tell(&subject, key, &target.place);
        let path = target.place.strip_prefix("file:").unwrap_or(&target.place);
        let path = path.split('?').next().unwrap_or_default();
        file(Path::new(path), &mut |key, value| {
            tell(&subject, key, value)
        });
        for fact in &target.facts {
            tell(&subject, "fact", fact);
        }
        let point = summary.points.iter().find(|point| {
            point.target == *name || point.target.split('+').any(|target| target == name)
        });
        for note in point.iter().flat_map(|point| &point.notes) {
            tell(&subject, "note", note);
        }
    }
}

fn machine(tell: &mut dyn FnMut(&str, &str)) {
    let mut file = |key: &str, path: &str| {
        if let Ok(text) = read_to_string(path) {
            tell(key, text.trim());
        }
    };
    file("host", "/proc/sys/kernel/hostname");
    file("kernel", "/proc/version");
    file("kernel_options", "/proc/cmdline");
    file(
        "governor",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    );
    file(
        "turbo_disabled",
        "/sys/devices/system/cpu/intel_pstate/no_turbo",
    );
    file(
        "clock_source",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    );
    file(
        "congestion_controls",
        "/proc/sys/net/ipv4/tcp_available_congestion_control",
    );
    file(
        "transparent_hugepages",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    );
    let of = |path: &str, key: &str| {
        let text = read_to_string(path).ok()?;
        let line = text
            .lines()
            .find(|line| line.split(':').next().map(str::trim) == Some(key))?;
        line.split_once(':')
            .map(|(_, value)| value.trim().to_string())
    };
    if let Some(model) = of("/proc/cpuinfo", "model name") {
        tell("cpu", &model);
    }
    if let Some(memory) = of("/proc/meminfo", "MemTotal") {
        tell("memory", &memory);
    }
    if let Ok(cpus) = std::thread::available_parallelism() {
        tell("cpus", &cpus.to_string());
    }
    tell("architecture", std::env::consts::ARCH);
}

/// The mount that holds a file, and the model and queue of its block device.
fn file(path: &Path, tell: &mut dyn FnMut(&str, &str)) {
    let Ok(path) = path.canonicalize() else {
        return;
    };
    let Ok(metadata) = path.metadata() else {
        return;
    };
    let device = if metadata.rdev() == 0 {
        metadata.dev()
    } else {
        metadata.rdev()
    };
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
    if metadata.rdev() == 0
        && let Ok(mounts) = read_to_string("/proc/self/mountinfo")
        && let Some(mount) = mount_of(&mounts, &path)
    {
        tell("mount_point", mount.point);
        tell("file_system", mount.kind);
        tell("mount_source", mount.source);
        tell(
            "mount_options",
            &format!("{},{}", mount.options, mount.super_options),
        );
    }
    let at = format!("/sys/dev/block/{major}:{minor}");
    if let Some(model) = device_model(Path::new(&at)) {
        tell("device_model", &model);
    }
    for name in [
        "scheduler",
        "rotational",
        "write_cache",
        "nr_requests",
        "logical_block_size",
    ] {
        // A partition has no queue of its own, so its disk's is read.
        let texts =
            ["queue", "../queue"].map(|queue| read_to_string(format!("{at}/{queue}/{name}")));
        if let Some(text) = texts.into_iter().flatten().next() {
            tell(&format!("queue_{name}"), text.trim());
        }
    }
}

/// Vendor and model of the block device at `at` in sysfs, or of the disk that contains it as a partition; for a loop
/// device, its backing file. `None` if the kernel reports none, as for virtio disks, which have no model.
fn device_model(at: &Path) -> Option<String> {
    let read = |path: String| {
        let text = read_to_string(at.join(path)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_string())
    };
    ["", "../"].into_iter().find_map(|disk| {
        if let Some(backing) = read(format!("{disk}loop/backing_file")) {
            return Some(format!("loop device on {backing}"));
        }
        let model = read(format!("{disk}device/model"))?;
        match read(format!("{disk}device/vendor")) {
            Some(vendor) if !model.starts_with(&vendor) => Some(format!("{vendor} {model}")),
            _ => Some(model),
        }
    })
}

struct Mount<'a> {
    point: &'a str,
    options: &'a str,
    kind: &'a str,
    source: &'a str,
    super_options: &'a str,
}

/// The last mount of the longest mount point above `path` (proc_pid_mountinfo(5)).
fn mount_of<'a>(mounts: &'a str, path: &Path) -> Option<Mount<'a>> {
    let parse = |line: &'a str| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(4);
        let (point, options) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let (kind, source, super_options) = (after.next()?, after.next()?, after.next()?);
        path.starts_with(point).then_some(Mount {
            point,
            options,
            kind,
            source,
            super_options,
        })
    };
    mounts
        .lines()
        .filter_map(parse)
        .max_by_key(|mount| mount.point.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file's mount is the innermost one and, of several at one mount point, the last.
    #[test]
    fn the_innermost_mount() {
        let mounts = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n\
                      30 22 0:26 / /data rw - xfs /dev/sdb rw,noquota\n\
                      31 30 0:27 / /data ro,nosuid shared:2 master:1 - tmpfs none rw,size=1g\n";
        let check = |path: &str, kind: &str, options: &str| {
            let mount = mount_of(mounts, Path::new(path)).unwrap();
            assert_eq!((mount.kind, mount.options), (kind, options), "{path}");
        };
        check("/data/file", "tmpfs", "ro,nosuid");
        check("/database", "ext4", "rw,relatime");
        assert_eq!(
            mount_of(mounts, Path::new("/data/x"))
                .unwrap()
                .super_options,
            "rw,size=1g"
        );
        assert!(mount_of("nonsense", Path::new("/")).is_none());
    }

    /// Disks have their model, with the vendor if that adds something, partitions have their disk's model, and loop
    /// devices their file.
    #[test]
    fn the_model_of_a_device() {
        let sys = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = sys.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("devices/sda/device/vendor", "SEAGATE \n");
        write("devices/sda/device/model", "ST1200MM0088    \n");
        write("devices/sda/sda1/partition", "1\n");
        write("devices/sdb/device/vendor", "QEMU    \n");
        write("devices/sdb/device/model", "QEMU HARDDISK   \n");
        write("devices/nvme0n1/device/model", "KXG60ZNV512G\n");
        write("devices/loop0/loop/backing_file", "/srv/disk.img\n");
        write("devices/loop0/loop0p1/partition", "1\n");
        write("devices/vda/device/vendor", "0x1af4\n");
        write("devices/sdc/device/model", "   \n");
        let check = |device: &str, expected: Option<&str>| {
            // As in sysfs, the path by device number is a link.
            let at = sys.path().join("at");
            let _ = std::fs::remove_file(&at);
            std::os::unix::fs::symlink(sys.path().join("devices").join(device), &at).unwrap();
            assert_eq!(device_model(&at).as_deref(), expected, "{device}");
        };
        check("sda", Some("SEAGATE ST1200MM0088"));
        check("sda/sda1", Some("SEAGATE ST1200MM0088"));
        check("sdb", Some("QEMU HARDDISK"));
        check("nvme0n1", Some("KXG60ZNV512G"));
        check("loop0", Some("loop device on /srv/disk.img"));
        check("loop0/loop0p1", Some("loop device on /srv/disk.img"));
        check("vda", None);
        check("sdc", None);
        check("none", None);
    }

    /// On a real machine, the kernel and a file's file system are known.
    #[test]
    fn a_real_machine_reports_its_kernel_and_file_system() {
        let mut told = Vec::new();
        machine(&mut |key, value| told.push((key.to_string(), value.to_string())));
        assert!(
            told.iter()
                .any(|(key, value)| key == "kernel" && value.starts_with("Linux")),
            "{told:?}"
        );
        let mut told = Vec::new();
        file(&std::env::current_exe().unwrap(), &mut |key, value| {
            told.push(format!("{key}={value}"))
        });
        assert!(
            told.iter().any(|line| line.starts_with("file_system=")),
            "{told:?}"
        );
    }
}
