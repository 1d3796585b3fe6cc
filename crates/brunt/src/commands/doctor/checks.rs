//! The checks: one function and one line in [`CHECKS`] each. They are pure functions from readings and trials to a
//! diagnosis.

use super::groups;
use super::machine::Machine;
use super::trial::Trials;
use super::{Diagnosis, Fitness};
use Fitness::{Bad, Good, Note};
use brunt_block::ring::engine::KERNEL_MIN;

/// A check; `None` if it doesn't apply to this machine.
pub type Check = fn(&Machine, &Trials) -> Option<Diagnosis>;

/// All checks, in printing order.
#[rustfmt::skip]
pub const CHECKS: &[Check] = &[
    clock,
    stolen,
    wakeups,
    other_load,
    control_groups,
    governor,
    turbo,
    threads_of_a_core,
    mitigations,
    huge_pages,
    swap,
    locked_memory,
    open_files,
    rings,
    namespaces,
    tunnels,
    kernel,
    pressure,
    task_clock,
    linking,
];

/// Reading the clock takes longer than this only if it isn't read in user space.
const CLOCK_NS_MAX: f64 = 200.0;
/// Thresholds for the share of processor time that other virtual machines use.
const STOLEN_NOTE: f64 = 0.005;
const STOLEN_BAD: f64 = 0.05;
/// With wake-up latencies above this, an open loop sends late.
const WAKEUP_NOTE_US: f64 = 1_000.0;
const WAKEUP_BAD_US: f64 = 20_000.0;
/// Threshold for the mean slowdown of the fixed piece of work relative to its best time.
const WORK_NOTE: f64 = 0.10;
/// Memory locked for the registered buffers of eight workers, 8 MiB each.
const LOCKED_BYTES: f64 = 64.0 * 1024.0 * 1024.0;
/// Number of open files and connections that a large experiment needs.
const OPEN_FILES: f64 = 4096.0;

fn clock(machine: &Machine, trials: &Trials) -> Option<Diagnosis> {
    let folder = "/sys/devices/system/clocksource/clocksource0";
    let source = machine.text(&format!("{folder}/current_clocksource"))?;
    let others = machine
        .text(&format!("{folder}/available_clocksource"))
        .unwrap_or_default();
    let fast = matches!(
        source.as_str(),
        "tsc" | "arch_sys_counter" | "kvm-clock" | "hyperv_clocksource_tsc_page"
    );
    let slow = !fast || trials.clock_ns.is_some_and(|nanos| nanos > CLOCK_NS_MAX);
    let diagnosis = Diagnosis::new("clock", if slow { Bad } else { Good }, source.clone());
    let diagnosis = match trials.clock_ns {
        Some(nanos) => diagnosis.costs(format!(
            "{nanos:.0} ns per reading; a run reads the clock twice per batch"
        )),
        None => diagnosis,
    };
    if !slow {
        return Some(diagnosis);
    }
    let better = ["tsc", "arch_sys_counter", "kvm-clock"]
        .into_iter()
        .find(|name| others.split(' ').any(|o| o == *name));
    Some(match better.filter(|better| *better != source) {
        Some(better) => diagnosis.advise(format!(
            "echo {better} | sudo tee {folder}/current_clocksource"
        )),
        None => diagnosis.advise(
            "boot with tsc=reliable if the processor's counter is known to be sound".to_string(),
        ),
    })
}

fn stolen(machine: &Machine, trials: &Trials) -> Option<Diagnosis> {
    let ticks = machine.text("/proc/stat").and_then(|stat| {
        let line = stat
            .lines()
            .find_map(|line| line.strip_prefix("cpu "))?
            .to_string();
        let ticks: Vec<f64> = line
            .split_ascii_whitespace()
            .map_while(|field| field.parse().ok())
            .collect();
        Some((*ticks.get(7)?, ticks.iter().take(8).sum::<f64>()))
    })?;
    let since_boot = if ticks.1 > 0.0 {
        ticks.0 / ticks.1
    } else {
        0.0
    };
    let now = trials.noise.as_ref().and_then(|noise| noise.stolen_share);
    let share = now.unwrap_or(since_boot);
    let fitness = if share > STOLEN_BAD {
        Bad
    } else if share.max(since_boot) > STOLEN_NOTE {
        Note
    } else {
        Good
    };
    let now = now.map_or(String::new(), |now| format!("{:.1} % now, ", now * 100.0));
    let diagnosis = Diagnosis::new(
        "stolen time",
        fitness,
        format!("{now}{:.1} % since the machine started", since_boot * 100.0),
    );
    Some(match fitness {
        Good => diagnosis,
        _ => diagnosis
            .costs("the hypervisor gives this time to other guests: rates fall and response times grow, unevenly")
            .advise("use a machine with dedicated processors, or run each point more often (repetitions, precision)"),
    })
}

fn wakeups(_: &Machine, trials: &Trials) -> Option<Diagnosis> {
    let noise = trials.noise.as_ref()?;
    let uneven = noise.work_mean_us / noise.work_min_us.max(1e-9) - 1.0;
    let fitness = match noise.wakeup_max_us {
        late if late > WAKEUP_BAD_US => Bad,
        late if late > WAKEUP_NOTE_US || uneven > WORK_NOTE => Note,
        _ => Good,
    };
    let found = format!(
        "a sleeping thread wakes up {:.0} us late on average, {:.0} us at worst; a fixed piece of \
         work takes {:.0} % longer than its best time",
        noise.wakeup_mean_us,
        noise.wakeup_max_us,
        uneven * 100.0
    );
    let diagnosis = Diagnosis::new("evenness", fitness, found);
    Some(match fitness {
        Good => diagnosis,
        _ => diagnosis
            .costs("two measurements may differ by that much because of the machine alone")
            .advise(
                "end other programs, isolate processors (isolcpus=), or repeat runs until the \
             noise averages out (precision = \"5%\")",
            ),
    })
}

fn other_load(machine: &Machine, _: &Trials) -> Option<Diagnosis> {
    let (load, processors) = (machine.number("/proc/loadavg")?, machine.processors());
    let share = load / processors as f64;
    let fitness = if share > 0.8 {
        Bad
    } else if share > 0.2 {
        Note
    } else {
        Good
    };
    let diagnosis = Diagnosis::new(
        "other load",
        fitness,
        format!("{load:.1} tasks compete for {processors} processors (last minute)"),
    );
    Some(match fitness {
        Good => diagnosis,
        _ => diagnosis
            .costs("workers and target share the processors with these tasks")
            .advise("find them with top -o %CPU; wait until the load is below a fifth of the processors"),
    })
}

fn control_groups(machine: &Machine, _: &Trials) -> Option<Diagnosis> {
    let (limits, processors) = (machine.cgroups().limits(), machine.processors());
    let costs = groups::costs(&limits);
    let fitness = match groups::quota_is_low(&limits, processors) {
        true => Bad,
        false if costs.is_empty() => Good,
        false => Note,
    };
    let found = groups::described(&limits, processors);
    let diagnosis = Diagnosis::new("control groups", fitness, found);
    Some(match fitness {
        Good => diagnosis,
        _ => diagnosis.costs(costs.join("; ")).advise(groups::ADVICE),
    })
}

fn governor(machine: &Machine, _: &Trials) -> Option<Diagnosis> {
    let governors = machine.governors();
    let Some(slow) = governors.iter().find(|governor| *governor != "performance") else {
        let found = if governors.is_empty() {
            "the system does not control the frequency (a virtual machine?)"
        } else {
            "performance"
        };
        return Some(Diagnosis::new("governor", Good, found));
    };
    let diagnosis = Diagnosis::new(
        "governor",
        Note,
        format!(
            "{slow} on {} of {} processors",
            governors.iter().filter(|one| one == &slow).count(),
            governors.len()
        ),
    );
    Some(
        diagnosis.costs(
            "the frequency follows the load: short and light runs are slower than long and heavy ones",
        )
        .advise("sudo cpupower frequency-set -g performance"),
    )
}

fn turbo(machine: &Machine, _: &Trials) -> Option<Diagnosis> {
    let off = machine.number("/sys/devices/system/cpu/intel_pstate/no_turbo")? > 0.0;
    Some(match off {
        true => Diagnosis::new("turbo", Good, "off"),
        false => Diagnosis::new("turbo", Note, "on")
            .costs("the frequency falls when the processor gets hot: later runs are slower than earlier ones")
            .advise("echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo, where comparisons matter more than speed"),
    })
}

fn threads_of_a_core(machine: &Machine, _: &Trials) -> Option<Diagnosis> {
    let active = machine.number("/sys/devices/system/cpu/smt/active")? > 0.0;
    Some(match active {
        false => Diagnosis::new("hyper-threading", Good, "off"),
        true => Diagnosis::new("hyper-threading", Note, "on")
            .costs("two workers on one core each reach about 60 % of their usual speed")
            .advise("keep workers and target on separate cores (cores = … in the experiment), or echo off | sudo tee \
                     /sys/devices/system/cpu/smt/control"),
    })
}

fn mitigations(machine: &Machine, trials: &Trials) -> Option<Diagnosis> {
    let all = machine.texts("/sys/devices/system/cpu/vulnerabilities");
    if all.is_empty() {
        return None;
    }
    let active: Vec<&str> = all
        .iter()
        .filter(|(_, text)| text.starts_with("Mitigation"))
        .map(|(name, _)| name.as_str())
        .collect();
    let fitness = if active.is_empty() { Good } else { Note };
    let found = match active.len() {
        0 => "none active".to_string(),
        _ => format!("against {}", active.join(", ")),
    };
    let diagnosis = Diagnosis::new("mitigations", fitness, found);
    let diagnosis = match trials.call_ns {
        Some(nanos) => diagnosis.costs(format!("{nanos:.0} ns for the shortest system call")),
        None => diagnosis,
    };
    Some(match fitness {
        Good => diagnosis,
        _ => diagnosis.advise("compare only machines with the same mitigations; mitigations=off only on machines without \
                          other users"),
    })
}

fn huge_pages(machine: &Machine, trials: &Trials) -> Option<Diagnosis> {
    let text = machine.text("/sys/kernel/mm/transparent_hugepage/enabled")?;
    let chosen = text.split(['[', ']']).nth(1).unwrap_or(&text).to_string();
    let fitness = if chosen == "never" { Note } else { Good };
    let diagnosis = Diagnosis::new("huge pages", fitness, format!("transparent: {chosen}"));
    let diagnosis = match trials.page_ns {
        Some(nanos) => diagnosis.costs(format!(
            "{nanos:.0} ns for the first touch of 4 KiB; memory: targets pay this once per page"
        )),
        None => diagnosis,
    };
    Some(match fitness {
        Good => diagnosis,
        _ => {
            diagnosis.advise("echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled")
        }
    })
}

fn swap(machine: &Machine, _: &Trials) -> Option<Diagnosis> {
    let text = machine.text("/proc/meminfo")?;
    let kib = |key: &str| -> Option<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim_start_matches(':')
            .split_ascii_whitespace()
            .next()?
            .parse()
            .ok()
    };
    let (total, free, available) = (kib("SwapTotal")?, kib("SwapFree")?, kib("MemAvailable")?);
    let used = total - free;
    Some(match used > 0.01 * available {
        true => Diagnosis::new("swap", Note, format!("{:.0} MiB in use", used / 1024.0))
            .costs("reading a page back from swap takes as long as a disk access")
            .advise("sudo swapoff -a && sudo swapon -a, or use less memory for memory: targets"),
        false => Diagnosis::new("swap", Good, "hardly in use"),
    })
}

fn locked_memory(machine: &Machine, _: &Trials) -> Option<Diagnosis> {
    let limit = machine.limit("Max locked memory")?;
    Some(match limit < LOCKED_BYTES {
        true => Diagnosis::new(
            "locked memory",
            Note,
            format!("{:.0} KiB may be locked", limit / 1024.0),
        )
        .costs("features that need more locked memory are not available: registered buffers for many workers, memory faults")
        .advise("ulimit -l 65536 or more, or memlock in /etc/security/limits.conf"),
        false => Diagnosis::new(
            "locked memory",
            Good,
            amount(limit, 1024.0 * 1024.0, " MiB"),
        ),
    })
}

fn open_files(machine: &Machine, _: &Trials) -> Option<Diagnosis> {
    let limit = machine.limit("Max open files")?;
    Some(match limit < OPEN_FILES {
        true => Diagnosis::new("open files", Note, format!("{limit:.0}"))
            .costs("beyond that, targets refuse connections and workloads cannot open files")
            .advise("ulimit -n 65536"),
        false => Diagnosis::new("open files", Good, amount(limit, 1.0, "")),
    })
}

fn amount(limit: f64, unit: f64, name: &str) -> String {
    if limit.is_finite() {
        format!("{:.0}{name}", limit / unit)
    } else {
        "unlimited".to_string()
    }
}

fn rings(machine: &Machine, trials: &Trials) -> Option<Diagnosis> {
    let disabled = machine
        .number("/proc/sys/kernel/io_uring_disabled")
        .unwrap_or(0.0)
        > 0.0;
    let refused = trials.ring.clone().flatten();
    if refused.is_none() && (!disabled || trials.ring.is_some()) {
        return Some(Diagnosis::new("io_uring", Good, "allowed"));
    }
    let why = refused.unwrap_or_else(|| "sysctl kernel.io_uring_disabled is not 0".to_string());
    let diagnosis = Diagnosis::new("io_uring", Note, why)
        .costs("requests are sent by threads, with at least one system call each");
    Some(match disabled {
        true => diagnosis.advise("sudo sysctl -w kernel.io_uring_disabled=0"),
        false => diagnosis.advise("in a container, run it with --security-opt seccomp=unconfined"),
    })
}

fn namespaces(machine: &Machine, trials: &Trials) -> Option<Diagnosis> {
    let forbidding = [
        ("kernel.unprivileged_userns_clone", 0.0, "1"),
        ("kernel.apparmor_restrict_unprivileged_userns", 1.0, "0"),
        ("user.max_user_namespaces", 0.0, "1000"),
        ("user.max_net_namespaces", 0.0, "1000"),
    ];
    let forbidden = forbidding.into_iter().find(|(name, forbids, _)| {
        machine.number(&format!("/proc/sys/{}", name.replace('.', "/"))) == Some(*forbids)
    });
    let refused = trials.namespaces.clone().flatten();
    if refused.is_none() && (forbidden.is_none() || trials.namespaces.is_some()) {
        return Some(Diagnosis::new("namespaces", Good, "allowed"));
    }
    let why = refused
        .or(forbidden.map(|(name, ..)| format!("sysctl {name} forbids them")))
        .unwrap_or_default();
    let diagnosis = Diagnosis::new("namespaces", Bad, why)
        .costs("no lab: no links, no hosts, no network faults");
    Some(match forbidden {
        Some((name, _, allows)) => diagnosis.advise(format!("sudo sysctl -w {name}={allows}, or run as root")),
        None => diagnosis.advise(
            "run as root; in a container, with --cap-add SYS_ADMIN --cap-add NET_ADMIN --device /dev/net/tun",
        ),
    })
}

fn tunnels(machine: &Machine, _: &Trials) -> Option<Diagnosis> {
    Some(match machine.exists("/dev/net/tun") {
        true => Diagnosis::new("/dev/net/tun", Good, "there"),
        false => Diagnosis::new("/dev/net/tun", Bad, "missing")
            .costs("no links between lab hosts")
            .advise("sudo modprobe tun; in a container, --device /dev/net/tun"),
    })
}

fn kernel(machine: &Machine, _: &Trials) -> Option<Diagnosis> {
    let version = machine.kernel()?;
    let features = [
        (
            (5, 11),
            "waiting for completions with a timeout needs a separate request",
        ),
        (
            KERNEL_MIN,
            "rings interrupt workers for completions (no deferred task work)",
        ),
    ];
    let missing: Vec<&str> = features
        .iter()
        .filter(|(since, _)| version < *since)
        .map(|(_, what)| *what)
        .collect();
    let found = format!("{}.{}", version.0, version.1);
    Some(match missing.is_empty() {
        true => Diagnosis::new("kernel", Good, found),
        false => Diagnosis::new("kernel", Note, found)
            .costs(missing.join("; "))
            .advise(format!(
                "use Linux {}.{} or newer",
                KERNEL_MIN.0, KERNEL_MIN.1
            )),
    })
}

fn pressure(machine: &Machine, _: &Trials) -> Option<Diagnosis> {
    Some(match machine.exists("/proc/pressure/cpu") {
        true => Diagnosis::new("pressure", Good, "reported by the kernel"),
        false => Diagnosis::new("pressure", Note, "not reported by the kernel")
            .costs(
                "the probe 'pressure' has no figures: time spent waiting for processors, memory and devices is not \
                 recorded",
            )
            .advise("boot with psi=1, or a kernel with CONFIG_PSI"),
    })
}

fn task_clock(machine: &Machine, _: &Trials) -> Option<Diagnosis> {
    Some(match machine.exists("/proc/self/schedstat") {
        true => Diagnosis::new("schedstat", Good, "reported by the kernel"),
        false => Diagnosis::new("schedstat", Note, "not reported by the kernel")
            .costs("the processor time of processes is only known to a hundredth of a second")
            .advise("use a kernel with CONFIG_SCHED_INFO"),
    })
}

/// The host name services (nsswitch.conf(5)) that a static program can use, because they are built into the C
/// library.
const BUILT_IN: [&str; 2] = ["files", "dns"];

fn linking(machine: &Machine, trials: &Trials) -> Option<Diagnosis> {
    if !trials.is_static {
        return None;
    }
    let text = machine.text("/etc/nsswitch.conf").unwrap_or_default();
    let hosts = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("hosts:"))
        .unwrap_or_default();
    let words = hosts
        .split_ascii_whitespace()
        .filter(|word| !word.starts_with('[') && !word.ends_with(']'));
    let others: Vec<String> = words
        .filter(|word| !BUILT_IN.contains(word))
        .map(|word| format!("libnss_{word}.so.2"))
        .collect();
    let found = "static: this program cannot load shared libraries".to_string();
    Some(match others.is_empty() {
        true => Diagnosis::new("linking", Good, found),
        false => Diagnosis::new("linking", Note, found)
            .costs(format!(
                "host names that only {} can resolve (/etc/nsswitch.conf) are not found",
                others.join(", ")
            ))
            .advise("write addresses, or install the .deb"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use brunt_result::noise::MachineNoise;

    /// A machine without any problems.
    const FIT: &[(&str, &str)] = &[
        (
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
            "tsc",
        ),
        (
            "sys/devices/system/clocksource/clocksource0/available_clocksource",
            "tsc hpet acpi_pm",
        ),
        (
            "proc/stat",
            "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 50 0 50 400 0 0 0 0\ncpu1 50 0 50 400 0 0 0 0",
        ),
        ("proc/loadavg", "0.10 0.20 0.30 1/100 1234"),
        (
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "performance",
        ),
        ("sys/devices/system/cpu/intel_pstate/no_turbo", "1"),
        ("sys/devices/system/cpu/smt/active", "0"),
        (
            "sys/devices/system/cpu/vulnerabilities/meltdown",
            "Not affected",
        ),
        (
            "sys/kernel/mm/transparent_hugepage/enabled",
            "always [madvise] never",
        ),
        (
            "proc/meminfo",
            "MemTotal: 16000000 kB\nMemAvailable:   12000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB",
        ),
        (
            "proc/self/limits",
            "Max locked memory         unlimited            unlimited            bytes\nMax open files            65536                65536                files",
        ),
        ("proc/self/schedstat", "1 2 3"),
        ("proc/pressure/cpu", ""),
        ("proc/sys/kernel/osrelease", "6.8.0-45-generic"),
        ("dev/net/tun", ""),
    ];

    fn check_all(changed: &[(&str, Option<&str>)], trials: &Trials) -> Vec<Diagnosis> {
        let root = tempfile::tempdir().unwrap();
        let mut files: Vec<(&str, &str)> = FIT.to_vec();
        for (path, text) in changed {
            files.retain(|(known, _)| known != path);
            files.extend(text.map(|text| (*path, text)));
        }
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let machine = Machine::at(root.path());
        CHECKS
            .iter()
            .filter_map(|check| check(&machine, trials))
            .collect()
    }

    #[test]
    fn a_fit_machine_passes_every_check() {
        let found = check_all(&[], &Trials::default());
        assert!(found.iter().all(|one| one.fitness == Good), "{found:#?}");
        assert!(found.len() >= 15, "{}", found.len());
    }

    /// Each problem is found by its check, which gives advice, while no other check reports anything.
    #[test]
    fn each_problem_is_found_with_advice() {
        let check = |path: &str, text: Option<&str>, name: &str, fitness: Fitness, advice: &str| {
            let found = check_all(&[(path, text)], &Trials::default());
            let bad: Vec<&Diagnosis> = found.iter().filter(|one| one.fitness != Good).collect();
            assert_eq!(bad.len(), 1, "{path}: {bad:#?}");
            assert_eq!((bad[0].check, bad[0].fitness), (name, fitness), "{path}");
            assert!(
                bad[0].cost.is_some() || ["clock", "mitigations", "huge pages"].contains(&name),
                "{:?}",
                bad[0]
            );
            assert!(
                bad[0].advice.as_deref().unwrap().contains(advice),
                "{:?}",
                bad[0]
            );
        };
        let cpu = "sys/devices/system/cpu";
        let source = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        check(source, Some("hpet"), "clock", Bad, "echo tsc");
        check(
            "proc/stat",
            Some("cpu  10 0 10 60 0 0 0 20\ncpu0 1 1\ncpu1 1 1"),
            "stolen time",
            Bad,
            "repetitions",
        );
        check(
            "proc/stat",
            Some("cpu  10 0 10 78 0 0 0 2\ncpu0 1 1\ncpu1 1 1"),
            "stolen time",
            Note,
            "repetitions",
        );
        check(
            "proc/loadavg",
            Some("7.50 1 1 1/1 1"),
            "other load",
            Bad,
            "top",
        );
        check(
            &format!("{cpu}/cpu0/cpufreq/scaling_governor"),
            Some("powersave"),
            "governor",
            Note,
            "-g performance",
        );
        check(
            &format!("{cpu}/intel_pstate/no_turbo"),
            Some("0"),
            "turbo",
            Note,
            "no_turbo",
        );
        check(
            &format!("{cpu}/smt/active"),
            Some("1"),
            "hyper-threading",
            Note,
            "cores",
        );
        check(
            &format!("{cpu}/vulnerabilities/meltdown"),
            Some("Mitigation: PTI"),
            "mitigations",
            Note,
            "same mitigations",
        );
        check(
            "sys/kernel/mm/transparent_hugepage/enabled",
            Some("always madvise [never]"),
            "huge pages",
            Note,
            "madvise",
        );
        let swapped = "MemAvailable: 1000000 kB\nSwapTotal: 900000 kB\nSwapFree: 100000 kB";
        check("proc/meminfo", Some(swapped), "swap", Note, "swapoff");
        let limits = "Max locked memory  65536  65536 bytes\nMax open files  65536 65536 files";
        check(
            "proc/self/limits",
            Some(limits),
            "locked memory",
            Note,
            "ulimit -l",
        );
        let limits =
            "Max locked memory  unlimited  unlimited bytes\nMax open files  1024 4096 files";
        check(
            "proc/self/limits",
            Some(limits),
            "open files",
            Note,
            "ulimit -n",
        );
        check(
            "proc/sys/kernel/io_uring_disabled",
            Some("2"),
            "io_uring",
            Note,
            "io_uring_disabled=0",
        );
        check(
            "proc/sys/user/max_user_namespaces",
            Some("0"),
            "namespaces",
            Bad,
            "max_user_namespaces=1000",
        );
        check(
            "proc/sys/kernel/osrelease",
            Some("5.10.0-1-amd64"),
            "kernel",
            Note,
            "6.1",
        );
        check("dev/net/tun", None, "/dev/net/tun", Bad, "modprobe");
        let quota = [
            ("proc/self/cgroup", Some("0::/q")),
            (
                "proc/self/mountinfo",
                Some("41 31 0:38 / /cg rw - cgroup2 cgroup2 rw"),
            ),
            ("cg/q/cpu.max", Some("20000 100000")),
            ("cg/q/memory.max", Some("300000000")),
            ("cg/q/memory.current", Some("100000000")),
        ];
        let found = check_all(&quota, &Trials::default());
        let found = found
            .iter()
            .find(|one| one.check == "control groups")
            .unwrap();
        assert_eq!(found.fitness, Bad);
        assert!(
            found.found.contains("0.20 of 2 processors")
                && found.advice.as_deref().unwrap().contains("cpu.max"),
            "{found:#?}"
        );
        check("proc/pressure/cpu", None, "pressure", Note, "psi=1");
        check("proc/self/schedstat", None, "schedstat", Note, "SCHED_INFO");
    }

    /// Trials take precedence over settings, and measured values are reported.
    #[test]
    fn trials_take_precedence_over_settings() {
        let noise = MachineNoise {
            stolen_share: Some(0.2),
            wakeup_mean_us: 300.0,
            wakeup_max_us: 45_000.0,
            work_mean_us: 30.0,
            work_min_us: 20.0,
            samples: 30,
            ..MachineNoise::default()
        };
        let trials = Trials {
            clock_ns: Some(900.0),
            call_ns: Some(400.0),
            page_ns: Some(250.0),
            noise: Some(noise),
            ring: Some(Some("Operation not permitted".into())),
            namespaces: Some(None),
            is_static: false,
        };
        let found = check_all(&[("proc/sys/user/max_net_namespaces", Some("0"))], &trials);
        let of = |name: &str| found.iter().find(|one| one.check == name).unwrap();
        assert_eq!(
            (
                of("clock").fitness,
                of("stolen time").fitness,
                of("evenness").fitness
            ),
            (Bad, Bad, Bad)
        );
        assert_eq!(
            (of("io_uring").fitness, of("namespaces").fitness),
            (Note, Good)
        );
        assert!(
            of("io_uring").found.contains("not permitted") && of("evenness").found.contains("50 %"),
            "{found:#?}"
        );
        assert!(
            of("mitigations")
                .cost
                .as_deref()
                .unwrap()
                .contains("400 ns")
        );
    }

    /// A static program reports the names of the libraries that it cannot open.
    #[test]
    fn a_static_program_names_what_it_cannot_open() {
        let check = |hosts: &str, costs: Option<&str>| {
            let trials = Trials {
                is_static: true,
                ..Trials::default()
            };
            let found = check_all(&[("etc/nsswitch.conf", Some(hosts))], &trials);
            let linking = found
                .iter()
                .find(|one| one.check == "linking")
                .expect("a static program");
            assert_eq!(
                linking
                    .cost
                    .as_deref()
                    .map(|diagnosis| diagnosis.contains(costs.unwrap_or("?"))),
                costs.map(|_| true),
                "{linking:?}"
            );
        };
        check("passwd: files sss\nhosts: files dns\n", None);
        check("", None);
        check(
            "hosts: files mdns4_minimal [NOTFOUND=return] dns myhostname",
            Some("libnss_mdns4_minimal.so.2, libnss_myhostname.so.2"),
        );
        assert!(
            check_all(&[], &Trials::default())
                .iter()
                .all(|one| one.check != "linking")
        );
    }
}
