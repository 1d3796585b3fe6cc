//! Delay distributions as tables of quantiles: netem's `delay TIME JITTER distribution NAME`, with its files
//! (`/usr/lib/tc/*.dist` of iproute2, or the output of its `maketable` for a measurement), and its three built-in
//! tables computed from formulas.
//!
//! Named in a link's settings, sampled by the rules ([`super::rules`]). The rule: a table value adds `jitter * value /
//! 8192` to the delay, as in netem, and all values are equally likely.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The table value that corresponds to one jitter: NETEM_DIST_SCALE of linux/pkt_sched.h.
pub const SCALE: f64 = 8192.0;
/// Maximum number of values: MAX_DIST of iproute2's tc/q_netem.c, NETEM_DIST_MAX of the kernel.
pub const VALUES_MAX: usize = 16 * 1024;
/// Maximum file size: far more than `VALUES_MAX` numbers need.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Number of values in a table computed from a formula, as in iproute2's tables.
const FORMULA_VALUES: usize = 4096;
/// File name extension of tables.
const FILE_ENDING: &str = ".dist";

/// A delay distribution, by name.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// Normal, with the jitter as the standard deviation.
    Normal,
    /// netem's Pareto: shape 3, shifted to a mean of zero and cut off at four jitters.
    Pareto,
    /// netem's mix: a quarter of the normal, three quarters of the Pareto.
    ParetoNormal,
    /// A table in a file.
    File {
        /// The file's path, as written.
        path: PathBuf,
        /// The file's contents, once [`Distribution::read`] has been called.
        table: Option<Arc<DistributionTable>>,
    },
}

/// Evenly spaced quantiles of a distribution, in units of jitter / 8192.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistributionTable {
    /// Sorted in ascending order.
    values: Vec<i16>,
}

/// Why a table could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum DistributionError {
    /// Neither a known name nor that of a table file.
    #[error(
        "unknown distribution '{0}'; write normal, pareto, paretonormal, or a file name that ends \
         in {FILE_ENDING}"
    )]
    Unknown(String),
    /// The file cannot be read.
    #[error("{path}: {source}; use a file in iproute2's format, such as /usr/lib/tc/experimental.dist", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is larger than any table.
    #[error("{path}: {bytes} bytes are too many for a table of {VALUES_MAX} numbers", path = path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// The file's contents are not a table.
    #[error("{path}: {source}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The position and kind of the mistake.
        source: TableError,
    },
}

/// Why a text is not a valid table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// A word that is not a 16-bit number.
    #[error("line {line}: '{word}' is not a number from -32768 to 32767")]
    NotANumber {
        /// The word's line, counted from 1.
        line: usize,
        /// The word.
        word: String,
    },
    /// More values than netem accepts.
    #[error("more than {VALUES_MAX} numbers")]
    TooMany,
    /// Fewer than two different values.
    #[error("all numbers are equal; a table needs at least two different ones")]
    Constant,
}

impl Distribution {
    /// Reads the table file, if there is one; a relative path is resolved against `folder`.
    ///
    /// # Errors
    /// The file cannot be read or doesn't contain a table.
    pub fn read(&mut self, folder: &Path) -> Result<(), DistributionError> {
        let Distribution::File { path, table } = self else {
            return Ok(());
        };
        let whole = folder.join(path);
        let unreadable = |source| DistributionError::Unreadable {
            path: whole.clone(),
            source,
        };
        let bytes = std::fs::metadata(&whole).map_err(unreadable)?.len();
        if bytes > FILE_BYTES_MAX {
            return Err(DistributionError::TooLong { path: whole, bytes });
        }
        let text = std::fs::read_to_string(&whole).map_err(unreadable)?;
        let read = text.parse().map_err(|source| DistributionError::Malformed {
            path: whole.clone(),
            source,
        });
        *table = Some(Arc::new(read?));
        Ok(())
    }

    /// The table; `None` for a file that has not been read.
    pub fn table(&self) -> Option<Arc<DistributionTable>> {
        static NORMAL: LazyLock<Arc<DistributionTable>> =
            LazyLock::new(|| Arc::new(DistributionTable::by(normal)));
        static PARETO: LazyLock<Arc<DistributionTable>> =
            LazyLock::new(|| Arc::new(DistributionTable::by(pareto)));
        static MIXED: LazyLock<Arc<DistributionTable>> = LazyLock::new(|| {
            Arc::new(DistributionTable::by(|part| {
                0.25 * normal(part) + 0.75 * pareto(part).min(4.0)
            }))
        });
        match self {
            Distribution::Normal => Some(NORMAL.clone()),
            Distribution::Pareto => Some(PARETO.clone()),
            Distribution::ParetoNormal => Some(MIXED.clone()),
            Distribution::File { table, .. } => table.clone(),
        }
    }
}

impl DistributionTable {
    /// Computes a table from a quantile function, in units of the jitter.
    fn by(quantile: impl Fn(f64) -> f64) -> DistributionTable {
        let value = |index: usize| {
            let exact = quantile((index as f64 + 0.5) / FORMULA_VALUES as f64) * SCALE;
            exact
                .round()
                .clamp(f64::from(i16::MIN), f64::from(i16::MAX)) as i16
        };
        DistributionTable {
            values: (0..FORMULA_VALUES).map(value).collect(),
        }
    }

    /// Maps 64 random bits to a value, in units of the jitter.
    #[inline]
    pub fn draw(&self, bits: u64) -> f64 {
        let index = ((u128::from(bits) * self.values.len() as u128) >> 64) as usize;
        f64::from(self.values[index]) / SCALE
    }

    /// The value at this quantile (0 to 1), in units of the jitter.
    pub fn quantile(&self, share: f64) -> f64 {
        let place = (share * self.values.len() as f64) as usize;
        f64::from(self.values[place.min(self.values.len() - 1)]) / SCALE
    }

    /// The mean, in units of the jitter.
    pub fn mean(&self) -> f64 {
        self.values
            .iter()
            .map(|value| f64::from(*value))
            .sum::<f64>()
            / self.values.len() as f64
            / SCALE
    }

    /// The standard deviation, in units of the jitter.
    pub fn deviation(&self) -> f64 {
        let mean = self.mean();
        let square = |value: &i16| (f64::from(*value) / SCALE - mean).powi(2);
        (self.values.iter().map(square).sum::<f64>() / self.values.len() as f64).sqrt()
    }
}

/// iproute2's format: integers separated by white space; lines that start with `#` are comments.
impl FromStr for DistributionTable {
    type Err = TableError;
    fn from_str(text: &str) -> Result<DistributionTable, TableError> {
        let mut values: Vec<i16> = Vec::new();
        for (index, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.starts_with('#'))
        {
            for word in line.split_ascii_whitespace() {
                let mistake = |_| TableError::NotANumber {
                    line: index + 1,
                    word: word.to_string(),
                };
                values.push(word.parse().map_err(mistake)?);
                if values.len() > VALUES_MAX {
                    return Err(TableError::TooMany);
                }
            }
        }
        values.sort_unstable();
        if values.first() == values.last() {
            return Err(TableError::Constant);
        }
        Ok(DistributionTable { values })
    }
}

/// The quantile function of the normal distribution, by bisection.
fn normal(part: f64) -> f64 {
    let (mut low, mut high) = (-10.0, 10.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if 0.5 * libm::erfc(-middle / std::f64::consts::SQRT_2) < part {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// A Pareto with shape 3 has a mean of 1.5; scaled as in iproute2's netem/pareto.c.
fn pareto(part: f64) -> f64 {
    (1.0 / libm::cbrt(1.0 - part) - 1.5) * 4.0 / 3.0
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Normal => f.write_str("normal"),
            Distribution::Pareto => f.write_str("pareto"),
            Distribution::ParetoNormal => f.write_str("paretonormal"),
            Distribution::File { path, .. } => write!(f, "{}", path.display()),
        }
    }
}

impl FromStr for Distribution {
    type Err = DistributionError;
    fn from_str(text: &str) -> Result<Distribution, DistributionError> {
        match text {
            "normal" => Ok(Distribution::Normal),
            "pareto" => Ok(Distribution::Pareto),
            "paretonormal" => Ok(Distribution::ParetoNormal),
            file if file.ends_with(FILE_ENDING) => Ok(Distribution::File {
                path: file.into(),
                table: None,
            }),
            other => Err(DistributionError::Unknown(other.to_string())),
        }
    }
}

impl Serialize for Distribution {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Distribution {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Distribution, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Distribution {
    fn schema_name() -> Cow<'static, str> {
        "DelayDistribution".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "normal, pareto or paretonormal (netem's tables), or the path of a .dist file in iproute2's format",
            "type": "string",
            "pattern": "^(normal|pareto|paretonormal|.*\\.dist)$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Result<DistributionTable, TableError> {
        text.parse()
    }

    /// Comments and blank lines are skipped, values are sorted, and mistakes are reported with their line.
    #[test]
    fn files_of_iproute2_are_read() {
        let table = file("# made by maketable\n -8192 0\n\n8192   16384\n").unwrap();
        assert_eq!(table.values, [-8192, 0, 8192, 16384]);
        assert!(
            (table.mean() - 0.5).abs() < 1e-12
                && (table.deviation() - 1.25f64.sqrt()).abs() < 1e-12
        );
        assert_eq!((table.draw(0), table.draw(u64::MAX)), (-1.0, 2.0));
        assert_eq!(
            (
                table.quantile(0.0),
                table.quantile(0.5),
                table.quantile(1.0)
            ),
            (-1.0, 1.0, 2.0)
        );
        let wrong = |line, word: &str| {
            Err(TableError::NotANumber {
                line,
                word: word.into(),
            })
        };
        assert_eq!(file("1 2\n# 3\n4 five"), wrong(3, "five"));
        assert_eq!(file("1 32768"), wrong(1, "32768"));
        assert_eq!(file("# nothing"), Err(TableError::Constant));
        assert_eq!(file("7 7 7"), Err(TableError::Constant));
        assert_eq!(file(&"1 2 ".repeat(VALUES_MAX)), Err(TableError::TooMany));
    }

    /// Names round-trip, and a file has no table before it is read.
    #[test]
    fn names_round_trip_and_files_start_without_a_table() {
        for name in ["normal", "pareto", "paretonormal", "tables/wan.dist"] {
            let read: Distribution = name.parse().unwrap();
            assert_eq!(read.to_string(), name);
            assert_eq!(read.table().is_some(), !name.ends_with(".dist"), "{name}");
        }
        assert!(matches!(
            "experimental".parse::<Distribution>(),
            Err(DistributionError::Unknown(_))
        ));
        let mut absent: Distribution = "no/such.dist".parse().unwrap();
        assert!(matches!(
            absent.read(Path::new("/")),
            Err(DistributionError::Unreadable { .. })
        ));
    }

    /// The formulas have the moments of netem's tables, which are cut off by their 16-bit range.
    #[test]
    fn formulas_have_their_moments() {
        for (distribution, mean, deviation) in [
            (Distribution::Normal, 0.0, 1.0),
            (Distribution::Pareto, -0.033, 0.820),
            (Distribution::ParetoNormal, -0.025, 0.834),
        ] {
            let table = distribution.table().unwrap();
            assert!(
                (table.mean() - mean).abs() < 0.002,
                "{distribution}: {}",
                table.mean()
            );
            assert!(
                (table.deviation() - deviation).abs() < 0.003,
                "{distribution}: {}",
                table.deviation()
            );
        }
    }

    /// If iproute2 is installed, its tables can be read, and the formulas match them up to rounding.
    #[test]
    fn formulas_match_the_tables_of_iproute2() {
        let folders = [
            "/usr/lib/tc",
            "/usr/lib64/tc",
            "/usr/lib/x86_64-linux-gnu/tc",
        ];
        let Some(folder) = folders
            .iter()
            .map(Path::new)
            .find(|folder| folder.join("normal.dist").exists())
        else {
            println!("skipped: needs the tables of iproute2");
            return;
        };
        for ours in [
            Distribution::Normal,
            Distribution::Pareto,
            Distribution::ParetoNormal,
        ] {
            let mut theirs: Distribution = format!("{ours}.dist").parse().unwrap();
            theirs.read(folder).unwrap();
            let (table, theirs) = (ours.table().unwrap(), theirs.table().unwrap());
            // The outermost values of a tail depend on where exactly a quantile is taken.
            for share in (1..100).map(|percent| f64::from(percent) / 100.0) {
                let (own, other) = (table.quantile(share), theirs.quantile(share));
                assert!(
                    (own - other).abs() < 0.01 + 0.01 * other.abs(),
                    "{ours} at {share}: {own}, iproute2 has {other}"
                );
            }
            assert!((table.mean() - theirs.mean()).abs() < 0.002, "{ours}");
            assert!(
                (table.deviation() - theirs.deviation()).abs() < 0.003,
                "{ours}"
            );
        }
        let mut measured: Distribution = "experimental.dist".parse().unwrap();
        measured.read(folder).unwrap();
        assert_eq!(measured.table().unwrap().values.len(), 4096);
    }
}
