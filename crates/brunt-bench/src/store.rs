//! `brunt-bench store`: the cost of a request through Brunt's device for a store's own library (librbd, libgfapi),
//! compared with fio's engine for the same library, on the same image, measured alternately in the same run.
//!
//! The rule: both programs bypass the library's cache, and each opens the image for its measurement and closes it
//! afterwards, so that neither holds a lock on the image while the other is measured.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brunt_block::open_url_with;
use brunt_result::statistics::{Ratio, interleaved};
use brunt_store::gluster::url::GlusterConfig;
use brunt_store::rbd::url::RbdConfig;
use serde_json::{Value, json};

use super::bare::PayloadDirection;
use super::sample::{extremes, median, ratio_words};
use super::{drive, fio};
use crate::scratch::Scratch;
use crate::{BenchError, BenchResult, Console};

/// RBD images and GlusterFS files through their libraries, compared with fio's engines for them
#[derive(Clone, Debug)]
pub struct StoreBench {
    /// The image: `rbd:` or `gluster:`
    pub url: String,
    /// Rounds; each measures both programs in turn, in random order
    pub rounds: u32,
    /// Duration of each measurement
    pub time: Duration,
    /// Only rows whose name contains this, such as "4k read"
    pub row: Option<String>,
    /// Also measure writes, which destroy the image's contents
    pub overwrite: bool,
}

struct StoreRow {
    name: &'static str,
    direction: PayloadDirection,
    size: usize,
    depth: u32,
}

#[rustfmt::skip]
const STORE_ROWS: &[StoreRow] = &[
    StoreRow { name: "4k write depth 1",   direction: PayloadDirection::Write, size: 4 << 10,  depth: 1 },
    StoreRow { name: "4k write depth 32",  direction: PayloadDirection::Write, size: 4 << 10,  depth: 32 },
    StoreRow { name: "64k write depth 32", direction: PayloadDirection::Write, size: 64 << 10, depth: 32 },
    StoreRow { name: "4k read depth 1",    direction: PayloadDirection::Read,  size: 4 << 10,  depth: 1 },
    StoreRow { name: "4k read depth 32",   direction: PayloadDirection::Read,  size: 4 << 10,  depth: 32 },
    StoreRow { name: "64k read depth 32",  direction: PayloadDirection::Read,  size: 64 << 10, depth: 32 },
];

/// fio on the same image.
struct FioPeer {
    engine: &'static str,
    /// The arguments that select the image and its size.
    arguments: Vec<String>,
    /// The cluster's configuration, with librbd's cache disabled.
    ceph_conf: Option<PathBuf>,
}

impl StoreBench {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// The settings are invalid, the image can't be opened, fio lacks the engine, or a request fails.
    pub fn run(self, output: &dyn Console) -> BenchResult {
        let wanted = |row: &&StoreRow| {
            let named = self
                .row
                .as_ref()
                .is_none_or(|text| row.name.contains(text.as_str()));
            named && (self.overwrite || row.direction == PayloadDirection::Read)
        };
        let rows: Vec<&StoreRow> = STORE_ROWS.iter().filter(wanted).collect();
        if rows.is_empty() {
            let names: Vec<_> = STORE_ROWS.iter().map(|row| row.name).collect();
            return Err(BenchError::usage(
                "no row name contains this text, or the row writes and needs --overwrite",
            )
            .advise(format!("rows are: {}", names.join(", "))));
        }
        let folder = Scratch::new(None, "store")?;
        let mut fio = self.peer(&folder)?;
        if !fio::has_engine(fio.engine) {
            let what = format!("fio has no engine {}", fio.engine);
            return Err(BenchError::failed(what).advise("install it: apt-get install fio"));
        }
        let size_bytes = open_url_with(&self.url, brunt_store::BACKENDS, true)?
            .info()
            .size_bytes;
        fio.arguments.push(format!("--size={size_bytes}"));
        if fio.ceph_conf.is_none() && self.overwrite {
            output.note(
                "fio's engine keeps write-behind on: unless the volume has \
                 performance.strict-o-direct on, fio's writes complete before they reach the bricks",
            );
        }
        if !self.overwrite {
            output.note(
                "without --overwrite, only reads are measured, and reads from areas that were never \
                 written don't reach any data",
            );
        }
        let mut table = Vec::new();
        for row in rows {
            let mut rates = [Vec::new(), Vec::new()];
            for (index, _) in interleaved(2, self.rounds as usize, 1) {
                if output.is_interrupted() {
                    return Err(BenchError::interrupted(
                        "interrupted: the rows printed so far are complete, and the others were not measured",
                    ));
                }
                rates[index].push(if index == 0 {
                    self.ours(row)?
                } else {
                    fio.measure(row, self.time)?
                });
            }
            table.push(report(row, fio.engine, &rates, output));
        }
        output.object(
            &json!({ "rounds": self.rounds, "seconds": self.time.as_secs_f64(), "rows": table }),
        );
        Ok(())
    }

    /// fio's arguments for the image.
    fn peer(&self, folder: &Scratch) -> Result<FioPeer, BenchError> {
        let cannot = |what: &str| {
            Err(
                BenchError::usage(format!("fio's engine does not support {what}"))
                    .advise("measure an image without it"),
            )
        };
        if let Some(config) = RbdConfig::of_url(&self.url) {
            let config = config?;
            match (&config.namespace, &config.snapshot, config.cache) {
                (Some(_), ..) => return cannot("namespace"),
                (_, Some(_), _) => return cannot("snapshot"),
                (.., true) => return cannot("cache=yes"),
                (None, None, false) => {}
            }
            let conf = config
                .conf
                .unwrap_or_else(|| format!("/etc/ceph/{}.conf", config.cluster).into());
            let without_cache = folder.join("ceph.conf");
            let written = fs::read_to_string(&conf).and_then(|text| {
                fs::write(
                    &without_cache,
                    format!("{text}\n[client]\nrbd_cache = false\n"),
                )
            });
            written.map_err(|error| BenchError::usage(format!("{}: {error}", conf.display())))?;
            let arguments = vec![
                format!("--clientname={}", config.id),
                format!("--pool={}", config.pool),
                format!("--rbdname={}", config.image),
            ];
            return Ok(FioPeer {
                engine: "rbd",
                arguments,
                ceph_conf: Some(without_cache),
            });
        }
        if let Some(config) = GlusterConfig::of_url(&self.url) {
            let config = config?;
            match (config.port, config.cache) {
                (24007, false) => {}
                (24007, true) => return cannot("cache=yes"),
                _ => return cannot("port"),
            }
            let arguments = vec![
                format!("--volume={}", config.volume),
                format!("--brick={}", config.host),
                format!("--filename={}", config.path),
                "--direct=1".to_string(),
            ];
            return Ok(FioPeer {
                engine: "gfapi_async",
                arguments,
                ceph_conf: None,
            });
        }
        Err(BenchError::usage(format!(
            "'{}' is neither an RBD image nor a file on GlusterFS",
            self.url
        ))
        .advise("write rbd:pool/image?conf=PATH or gluster://host/volume/path"))
    }

    fn ours(&self, row: &StoreRow) -> Result<f64, BenchError> {
        let read_only = row.direction == PayloadDirection::Read;
        let backend = open_url_with(&self.url, brunt_store::BACKENDS, read_only)?;
        let sample = drive::measure(&backend, row.direction, row.size, row.depth, self.time);
        Ok(sample
            .map_err(|error: io::Error| {
                BenchError::failed(format!("ours ({}): {error}", row.name))
            })?
            .rate())
    }
}

impl FioPeer {
    fn measure(&self, row: &StoreRow, time: Duration) -> Result<f64, BenchError> {
        let direction = if row.direction == PayloadDirection::Write {
            "write"
        } else {
            "read"
        };
        let mut arguments = vec![
            format!("--ioengine={}", self.engine),
            format!("--rw=rand{direction}"),
            format!("--bs={}", row.size),
            format!("--iodepth={}", row.depth),
            "--norandommap".to_string(),
            "--randrepeat=0".to_string(),
            "--time_based".to_string(),
            format!("--runtime={}ms", time.as_millis()),
        ];
        arguments.extend(self.arguments.iter().cloned());
        let environment: Vec<(&str, &Path)> = self
            .ceph_conf
            .iter()
            .map(|path| ("CEPH_CONF", path.as_path()))
            .collect();
        let answer = fio::run_program(Path::new("fio"), &arguments, &environment)?;
        match answer[direction]["iops"].as_f64() {
            Some(rate) if rate > 0.0 && answer["error"] == 0 => Ok(rate),
            _ => Err(BenchError::failed(format!(
                "fio completed nothing ({}): error {}",
                row.name, answer["error"]
            ))),
        }
    }
}

/// Prints a row and returns it as an object.
fn report(row: &StoreRow, engine: &str, rates: &[Vec<f64>; 2], output: &dyn Console) -> Value {
    let [ours, theirs] = rates;
    output.line(format_args!("{}", row.name));
    for (who, rates) in [
        ("ours".to_string(), ours),
        (format!("fio's {engine} engine"), theirs),
    ] {
        let (least, most) = extremes(rates);
        output.line(format_args!(
            "  {who:<28} {:>9.0} requests/s ({least:.0} to {most:.0})",
            median(rates)
        ));
    }
    let ratio = Ratio::of(theirs, ours, 1);
    if let Some(ratio) = &ratio {
        let reached = if ratio.high >= 1.0 {
            "reached"
        } else {
            "missed"
        };
        output.line(format_args!(
            "  ours is {} of fio's; goal: not slower ({reached})",
            ratio_words(Some(ratio), 2)
        ));
    }
    json!({ "row": row.name, "ours": ours, "fio": theirs, "ratio": ratio })
}
