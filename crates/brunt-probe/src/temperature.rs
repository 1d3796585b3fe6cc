//! Temperatures of CPUs, drives and NICs, as reported by the kernel's sensor drivers
//! (Documentation/hwmon/sysfs-interface.rst).
//!
//! The rule: reading a sensor may query its device, so each is read no more often than every [`READ_EVERY`], whatever
//! the sampling interval. Sensors that send a command to a disk (drivetemp) are not read at all, because that would
//! disturb the measurement.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::figures::{INSTANCES_MAX, Malformed, Sink, Texts};
use super::{Metric, Probe, headline};

/// Minimum time between readings of a sensor: temperatures change slowly, and reading an NVMe drive's takes a
/// command.
pub const READ_EVERY: Duration = Duration::from_secs(10);
/// The folder of the sensors.
pub const FOLDER: &str = "/sys/class/hwmon";
/// For every reading, this driver sends a command to a disk, which may be under test.
const LEFT_ALONE: &str = "drivetemp";

pub struct Temperature;

/// The value of each sensor, in thousandths of a degree.
pub type Reading = Vec<(Arc<str>, i64)>;

impl Probe for Temperature {
    const NAME: &'static str = "temperature";
    const HELP: &'static str = "temperatures of CPUs, drives and NICs, if the machine has sensors";
    const FILES: &'static [&'static str] = &[FOLDER];
    const METRICS: &'static [Metric] = &[headline("celsius", "read at most every 10 s")];
    type Reading = Reading;

    fn parse(texts: &Texts<'_>) -> Result<Reading, Malformed> {
        let line = |line: &str| {
            let (name, value) = line
                .rsplit_once(' ')
                .ok_or_else(|| Malformed::new("no sensor", line))?;
            let value = value
                .parse()
                .map_err(|_| Malformed::new("not a temperature", line))?;
            Ok((name.into(), value))
        };
        texts
            .need(0)?
            .lines()
            .take(INSTANCES_MAX)
            .map(line)
            .collect()
    }

    fn figures(_before: &Reading, now: &Reading, _elapsed: Duration, sink: &mut Sink<'_>) {
        for (sensor, millidegrees) in now {
            sink.put_of(sensor, "celsius", *millidegrees as f64 / 1e3);
        }
    }
}

/// One sensor.
pub struct Sensor {
    name: String,
    file: File,
}

/// Returns all sensors in a folder like [`FOLDER`]; none if it does not exist, as in most virtual machines.
pub fn sensors(folder: &Path) -> Vec<Sensor> {
    let chips = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|chip| chip.path());
    let mut all: Vec<Sensor> = chips.flat_map(|chip| sensors_of(&chip)).collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

fn sensors_of(chip: &Path) -> Vec<Sensor> {
    let text = |name: &str| {
        fs::read_to_string(chip.join(name))
            .ok()
            .map(|text| text.trim().to_string())
    };
    let driver = text("name").unwrap_or_default();
    if driver == LEFT_ALONE {
        return Vec::new();
    }
    // Chips are numbered in the order in which they were discovered; the names of their devices are stable.
    let device = fs::read_link(chip.join("device")).ok();
    let device = device
        .as_deref()
        .and_then(Path::file_name)
        .map(|name| name.to_string_lossy().into_owned());
    let device = device.unwrap_or(driver);
    let files = fs::read_dir(chip).into_iter().flatten().flatten();
    let sensor = |file: fs::DirEntry| {
        let number = file.file_name();
        let number = number
            .to_str()?
            .strip_prefix("temp")?
            .strip_suffix("_input")?;
        let label = text(&format!("temp{number}_label")).filter(|label| !label.is_empty());
        let label = label.unwrap_or_else(|| format!("temp{number}"));
        let name = format!("{device}/{label}")
            .replace(|one: char| one.is_whitespace() || one.is_control(), "_");
        Some(Sensor {
            name,
            file: File::open(file.path()).ok()?,
        })
    };
    files.filter_map(sensor).collect()
}

/// Appends a line for each sensor that responds.
pub fn append(sensors: &[Sensor], text: &mut Vec<u8>) {
    for sensor in sensors {
        let mut value = [0; 32];
        // A sleeping or removed drive does not respond.
        let Ok(count) = sensor.file.read_at(&mut value, 0) else {
            continue;
        };
        let Ok(value) = str::from_utf8(&value[..count]) else {
            continue;
        };
        text.extend_from_slice(format!("{} {}\n", sensor.name, value.trim()).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sensors are named after their device and label; those that would disturb a disk are not read.
    #[test]
    fn sensors_are_found_and_read() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("hwmon0/name", "coretemp\n");
        put("hwmon0/temp1_input", "45000\n");
        put("hwmon0/temp1_label", "Package id 0\n");
        put("hwmon0/temp1_max", "100000\n");
        put("hwmon1/name", "nvme\n");
        put("hwmon1/temp1_input", "-3500\n");
        put("hwmon2/name", "drivetemp\n");
        put("hwmon2/temp1_input", "30000\n");
        std::os::unix::fs::symlink("../../nvme0", folder.path().join("hwmon1/device")).unwrap();
        let mut text = Vec::new();
        append(&sensors(folder.path()), &mut text);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "coretemp/Package_id_0 45000\nnvme0/temp1 -3500\n"
        );
        assert!(sensors(&folder.path().join("none")).is_empty());
    }
}
