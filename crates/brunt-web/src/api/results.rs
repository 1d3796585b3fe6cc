//! The results that the page lists and searches: subfolders of the results folder that have a summary, whose names
//! are their ids, and results that `brunt run` wrote to the folder in which the server was started or one level
//! below.
//!
//! The rule: an id leads only to a result in these places, never to anything outside of them or inside a result. Only
//! summaries are read and searched, and they contain no secrets.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use brunt_report::html::render;
use brunt_report::{experiment, history};
use brunt_result::history_results::{HistoryResult, name_results, sort_by_time};
use brunt_result::run_log::ResultVersion;
use brunt_result::summary::{self, Summary};
use brunt_result::tables::runs;
use brunt_study::results::make_private;
use serde::Serialize;

/// The file name of an experiment that was started by this server, stored without secrets.
pub const EXPERIMENT_FILE: &str = "experiment.toml";
/// Maximum number of results in a list; the newest are kept.
const LISTED_MAX: usize = 2000;

/// Maximum number of entries that are examined in the folder in which the server was started, because it may be any
/// folder.
const LOOKED_AT_MAX: usize = 20_000;

/// A folder of results.
pub struct ResultsFolder {
    path: PathBuf,
    /// Another folder: results in it and in its subfolders are listed, too.
    around: Option<PathBuf>,
    /// Row and searchable text of each result, read again when its files change.
    known: Mutex<HashMap<String, KnownResult>>,
}

struct KnownResult {
    version: ResultVersion,
    entry: Arc<ResultEntry>,
    /// The text that searches look in, in lower case.
    words: String,
}

/// A row of the list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResultEntry {
    /// The folder's name; for a result one level below the folder in which the server was started, `SUBFOLDER/NAME`.
    pub id: String,
    /// The experiment's name.
    pub name: String,
    /// When the setup of the result's first run began; without tables, when the result's folder was created.
    pub began_unix_ms: u64,
    /// Measured time of all runs.
    pub seconds: f64,
    /// Completed runs.
    pub runs: u32,
    /// Whether all planned runs took place.
    pub complete: bool,
    /// The headline figures.
    pub words: ResultWords,
}

/// The headline figures of a result.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ResultWords {
    /// Number of points that have their own runs.
    pub points: u32,
    /// Smallest and largest mean rate among the points.
    pub requests_per_second: Option<FigureRange>,
    /// Smallest and largest 99th percentile of the response time among the points.
    pub p99_us: Option<FigureRange>,
    /// Requests that did not succeed, over all runs.
    pub failed_requests: u64,
    /// Why the experiment ended early, if it did.
    pub trouble: Option<String>,
}

/// The smallest and the largest value of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FigureRange {
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
}

impl FigureRange {
    fn of(values: impl Iterator<Item = f64>) -> Option<FigureRange> {
        values.fold(None, |range: Option<FigureRange>, value| {
            let range = range.unwrap_or(FigureRange {
                least: value,
                most: value,
            });
            Some(FigureRange {
                least: range.least.min(value),
                most: range.most.max(value),
            })
        })
    }
}

impl ResultsFolder {
    /// Creates the folder if it does not exist.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn open(path: &Path) -> io::Result<ResultsFolder> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        match make_private(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        Ok(ResultsFolder {
            path: path.canonicalize()?,
            around: None,
            known: Mutex::default(),
        })
    }

    /// Also lists the results in another folder and in its subfolders, one level below. If names collide, the result
    /// in the results folder is listed.
    ///
    /// # Errors
    /// The other folder does not exist.
    pub fn and_around(self, folder: &Path) -> io::Result<ResultsFolder> {
        let around = Some(folder.canonicalize()?);
        Ok(ResultsFolder { around, ..self })
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The results that contain all of these words, newest first.
    ///
    /// # Errors
    /// The folder cannot be read. Unreadable results are left out, because they may be partial copies.
    pub fn list(&self, search: &str) -> io::Result<Vec<ResultEntry>> {
        let search = search.to_lowercase();
        let wanted: Vec<&str> = search.split_whitespace().collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        let mut seen = HashMap::new();
        for id in self.ids()? {
            let Some(result) = self.read(&id, known.remove(&id)) else {
                continue;
            };
            if wanted.iter().all(|word| result.words.contains(word)) {
                found.push(ResultEntry::clone(&result.entry));
            }
            seen.insert(id, result);
        }
        *known = seen;
        found.sort_by(|a, b| (b.began_unix_ms, &b.id).cmp(&(a.began_unix_ms, &a.id)));
        found.truncate(LISTED_MAX);
        Ok(found)
    }

    /// The ids that may lead to results, without duplicates.
    fn ids(&self) -> io::Result<BTreeSet<String>> {
        let mut ids = BTreeSet::new();
        for entry in std::fs::read_dir(&self.path)? {
            ids.extend(entry?.file_name().into_string());
        }
        let Some(around) = &self.around else {
            return Ok(ids);
        };
        let mut left = LOOKED_AT_MAX;
        let mut names_in = |folder: &Path| -> Vec<String> {
            // Subfolders of the other folder may be unreadable or disappear.
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let names = entries
                .take(left)
                .filter_map(|entry| entry.file_name().into_string().ok());
            let names: Vec<String> = names.collect();
            left -= names.len();
            names
        };
        for name in names_in(around) {
            let folder = around.join(&name);
            let is_own = || {
                folder
                    .canonicalize()
                    .is_ok_and(|folder| folder == self.path)
            };
            if name.starts_with('.') || !folder.is_dir() || is_own() {
                continue;
            }
            if !is_result(&folder) {
                let below = names_in(&folder).into_iter();
                ids.extend(below.map(|below| format!("{name}/{below}")));
            }
            ids.insert(name);
        }
        Ok(ids)
    }

    /// A result's row: the cached one, unless it has new runs.
    fn read(&self, id: &str, known: Option<KnownResult>) -> Option<KnownResult> {
        let folder = self.find(id)?;
        let version = ResultVersion::of(&folder).ok()?;
        if let Some(known) = known.filter(|known| known.version == version) {
            return Some(known);
        }
        let summary = Summary::read(&folder).ok()?;
        let entry = Arc::new(entry(id, &folder, &summary));
        Some(KnownResult {
            version,
            entry,
            words: searched(id, &summary),
        })
    }

    /// The folder of the result with this id, if it exists.
    pub fn find(&self, id: &str) -> Option<PathBuf> {
        let is_name = |name: &str| {
            let mut parts = Path::new(name).components();
            let is_one = matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name);
            is_one && !name.starts_with('.')
        };
        let found = match id.split_once('/') {
            None if is_name(id) => {
                let around = self.around.iter().map(|around| around.join(id));
                let mut folders = std::iter::once(self.path.join(id)).chain(around);
                folders.find(|folder| is_result(folder))?
            }
            Some((above, name)) if is_name(above) && is_name(name) => {
                let above = self.around.as_ref()?.join(above);
                // A file inside a result is part of it, not another result.
                (!is_result(&above)).then(|| above.join(name))?
            }
            _ => return None,
        };
        is_result(&found).then_some(found)
    }

    /// The text of a result's experiment, without secrets: as originally written if it was started by this server.
    pub fn experiment(&self, id: &str) -> Option<String> {
        let folder = self.find(id)?;
        std::fs::read_to_string(folder.join(EXPERIMENT_FILE))
            .ok()
            .or_else(|| {
                Summary::read(&folder)
                    .ok()
                    .map(|summary| summary.experiment.toml)
            })
    }

    /// A result's report: the final one, or one based on the data so far.
    pub fn report(&self, id: &str) -> Option<String> {
        let folder = self.find(id)?;
        let summary = experiment::read(&folder).ok()?;
        // A page written by an older version shows the verdicts of earlier methods.
        if summary.complete
            && summary.judged_note().is_none()
            && let Ok(text) = std::fs::read_to_string(folder.join(experiment::FILE_NAME))
        {
            return Some(text);
        }
        Some(experiment::text(&summary, &folder))
    }

    /// The page that compares the first of these results with each of the others.
    pub fn comparison(&self, ids: &[String]) -> Option<String> {
        let folders: Option<Vec<PathBuf>> = ids.iter().map(|id| self.find(id)).collect();
        let folders = folders?;
        let folders: Vec<&Path> = folders.iter().map(PathBuf::as_path).collect();
        let results = experiment::read_to_compare(&folders, &[]).ok()?;
        let read = folders.iter().zip(&results);
        let details: Vec<experiment::Details> = read
            .map(|(folder, summary)| experiment::Details::read(folder, summary))
            .collect();
        let each = ids.iter().zip(&results).zip(&details);
        let each: Vec<experiment::ComparedResult<'_>> = each
            .map(|((name, summary), details)| experiment::ComparedResult {
                name,
                summary,
                details,
            })
            .collect();
        (each.len() >= 2).then(|| render(&experiment::comparison(&each)))
    }

    /// The history page of these results, oldest first; `None` if none of them exists any more.
    pub fn history(&self, ids: &[String]) -> Option<String> {
        let (mut results, mut skipped) = (Vec::new(), Vec::new());
        for id in ids {
            // Some results may have been changed or removed since the list was made.
            match self.find(id).map(HistoryResult::read) {
                Some(Ok(result)) => results.push(result),
                Some(Err(error)) => skipped.push(error.to_string()),
                None => skipped.push(format!("{id} has been removed")),
            }
        }
        if results.is_empty() {
            return None;
        }
        sort_by_time(&mut results);
        name_results(&mut results);
        let summaries: Vec<&Summary> = results.iter().map(|result| &result.summary).collect();
        let series = brunt_result::history::history(&summaries, 0.0);
        let names: Vec<String> = results.iter().map(|result| result.name.clone()).collect();
        Some(render(&history::history(&names, &series, &skipped)))
    }

    /// Creates a folder named after the experiment and returns its id and path.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn begin(&self, name: &str) -> io::Result<(String, PathBuf)> {
        let slug = slug(name);
        for number in 1..=u32::MAX {
            let id = if number == 1 {
                slug.clone()
            } else {
                format!("{slug}-{number}")
            };
            // Don't reuse the id of a result elsewhere, because that result could no longer be found.
            if self.find(&id).is_some() {
                continue;
            }
            let folder = self.path.join(&id);
            match make_private(&folder) {
                Ok(()) => return Ok((id, folder)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

/// Whether a folder contains a result.
fn is_result(folder: &Path) -> bool {
    folder.join(summary::FILE_NAME).is_file()
}

/// Converts a name to lower-case letters, digits and hyphens.
fn slug(name: &str) -> String {
    let simple = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            ' '
        }
    };
    let text: String = name.chars().map(simple).collect();
    let slug: String = text
        .split_whitespace()
        .collect::<Vec<_>>()
        .join("-")
        .chars()
        .take(60)
        .collect();
    if slug.is_empty() {
        "experiment".into()
    } else {
        slug
    }
}

fn entry(id: &str, folder: &Path, summary: &Summary) -> ResultEntry {
    let heads = || {
        summary
            .points
            .iter()
            .filter(|point| point.part_of.is_none())
    };
    let runs = || heads().flat_map(|point| &point.runs);
    let rates = heads().filter_map(|point| point.requests_per_second.map(|rate| rate.mean));
    let p99s = heads().filter_map(|point| point.response_p99_us.map(|p99| p99.mean));
    ResultEntry {
        id: id.into(),
        name: summary.experiment.name.clone(),
        began_unix_ms: began_unix_ms(folder),
        seconds: runs().map(|run| run.measured_s).sum(),
        runs: runs().count() as u32,
        complete: summary.complete,
        words: ResultWords {
            points: heads().count() as u32,
            requests_per_second: FigureRange::of(rates),
            p99_us: FigureRange::of(p99s),
            failed_requests: runs().flat_map(|run| run.losses.values()).sum(),
            trouble: summary.trouble.clone(),
        },
    }
}

/// The searchable text of a result: names, targets, and the experiment's text.
fn searched(id: &str, summary: &Summary) -> String {
    let experiment = &summary.experiment;
    let places = experiment
        .targets
        .iter()
        .flat_map(|(name, target)| [name.as_str(), &target.place]);
    let words = [
        id,
        &experiment.name,
        &experiment.description,
        &experiment.toml,
    ];
    words
        .into_iter()
        .chain(places)
        .collect::<Vec<_>>()
        .join("\n")
        .to_lowercase()
}

/// When the setup of a result's first run began.
fn began_unix_ms(folder: &Path) -> u64 {
    let created = || {
        let about = std::fs::metadata(folder).ok()?;
        about.created().or_else(|_| about.modified()).ok()
    };
    let began = runs::first_began(folder).or_else(created);
    let since = began.and_then(|began| began.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use brunt_result::experiment::{ExperimentSummary, TargetSummary};

    use super::*;

    fn write(folder: &Path, id: &str, name: &str, place: &str) {
        std::fs::create_dir_all(folder.join(id)).expect("a folder");
        let target = TargetSummary {
            place: place.into(),
            ..TargetSummary::default()
        };
        let summary = Summary {
            format: summary::FORMAT,
            brunt: "0".into(),
            complete: true,
            trouble: None,
            experiment: ExperimentSummary {
                name: name.into(),
                targets: [("disk".to_string(), target)].into(),
                toml: "# slow path".into(),
                ..ExperimentSummary::default()
            },
            points: Vec::new(),
            indexes: None,
            requirements: Vec::new(),
            interleaved: None,
            waits: Vec::new(),
            label: None,
        };
        let text = serde_json::to_string(&summary).expect("JSON");
        std::fs::write(folder.join(id).join(summary::FILE_NAME), text).expect("room");
    }

    #[test]
    fn a_search_finds_words_in_any_part_of_a_result() {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), "one", "Über die Ferne", "iscsi://array/x/0");
        write(folder.path(), "two", "a queue", "/dev/nvme0n1");
        std::fs::create_dir(folder.path().join("none")).expect("a folder");
        std::fs::write(folder.path().join("file"), "").expect("a file");
        let results = ResultsFolder::open(folder.path()).expect("it is there");
        let check = |search: &str, expected: &[&str]| {
            let mut found: Vec<String> = results
                .list(search)
                .expect("it is read")
                .into_iter()
                .map(|entry| entry.id)
                .collect();
            found.sort();
            assert_eq!(found, expected, "{search}");
        };
        check("", &["one", "two"]);
        check("über ISCSI", &["one"]);
        check("NVMe queue", &["two"]);
        check("slow disk", &["one", "two"]);
        check("slow nothing", &[]);
        // Changed results are reread, and removed ones are no longer listed.
        write(
            folder.path(),
            "two",
            "a longer queue than before",
            "/dev/sda",
        );
        std::fs::remove_dir_all(folder.path().join("one")).expect("it is there");
        check("", &["two"]);
        check("longer sda", &["two"]);
        assert_eq!(results.experiment("two").as_deref(), Some("# slow path"));
        assert!(
            results
                .report("two")
                .is_some_and(|page| page.contains("a longer queue"))
        );
        let of = |ids: &[&str]| -> Vec<String> { ids.iter().map(ToString::to_string).collect() };
        assert!(
            results.comparison(&of(&["two", "two", "two"])).is_some()
                && results.comparison(&of(&["two", "two", "one"])).is_none()
                && results.comparison(&of(&["two"])).is_none()
        );
        // A history contains those of the requested results that still exist.
        let page = results.history(&of(&["one", "two"])).expect("one exists");
        assert!(page.contains("one has been removed"), "{page}");
        assert_eq!(results.history(&of(&["one"])), None);
    }

    /// An id can't name a folder outside the results, a subfolder of a result, or a file in it.
    #[test]
    fn an_id_names_only_a_result_in_the_folder() {
        let outer = tempfile::tempdir().expect("a folder");
        write(outer.path(), "secret", "x", "y");
        let inner = outer.path().join("results");
        write(&inner, "own", "x", "y");
        write(&inner, "own/deeper", "x", "y");
        write(&inner, ".hidden", "x", "y");
        let results = ResultsFolder::open(&inner).expect("it is there");
        assert!(results.find("own").is_some());
        let absolute = outer.path().join("secret").display().to_string();
        for id in [
            "../secret",
            "..",
            ".",
            "",
            "own/..",
            "own/deeper",
            "own/",
            "./own",
            "/",
            &absolute,
            ".hidden",
            "own\0",
        ] {
            assert_eq!(results.find(id), None, "{id:?}");
            assert!(
                results.report(id).is_none() && results.experiment(id).is_none(),
                "{id:?}"
            );
        }
    }

    /// Results in the folder in which the server was started and one level below are listed, each once, newest first.
    #[test]
    fn results_around_the_folder_are_found() {
        let start = tempfile::tempdir().expect("a folder");
        let own = start.path().join("results");
        write(&own, "own", "x", "y");
        write(&own, "both", "of the results folder", "y");
        write(start.path(), "both", "beside it", "y");
        write(start.path(), "quick.results", "x", "y");
        write(start.path(), "quick.results/part", "x", "y");
        write(start.path(), ".hidden/result", "x", "y");
        write(&start.path().join("disks"), "slow.results", "x", "y");
        write(&start.path().join("disks"), "deeper/result", "x", "y");
        let found =
            |results: &ResultsFolder| -> Vec<ResultEntry> { results.list("").expect("it is read") };
        let ids = |results: &ResultsFolder| {
            let mut ids: Vec<String> = found(results).into_iter().map(|entry| entry.id).collect();
            ids.sort();
            ids
        };
        let alone = ResultsFolder::open(&own).expect("it is there");
        assert_eq!(ids(&alone), ["both", "own"]);
        assert_eq!(alone.find("disks/slow.results"), None);
        let results = alone.and_around(start.path()).expect("it is there");
        assert_eq!(
            ids(&results),
            ["both", "disks/slow.results", "own", "quick.results"]
        );
        let rows = found(&results);
        assert!(rows.is_sorted_by(|a, b| a.began_unix_ms >= b.began_unix_ms));
        let both = rows.iter().find(|entry| entry.id == "both");
        assert_eq!(
            both.map(|entry| entry.name.as_str()),
            Some("of the results folder")
        );
        assert!(results.report("disks/slow.results").is_some());
        for id in [
            "quick.results/part",
            ".hidden/result",
            "disks/deeper/result",
            "disks/../own",
            "disks//slow.results",
            "disks/",
            "/disks/slow.results",
            "../own",
            "disks",
        ] {
            assert_eq!(results.find(id), None, "{id}");
        }
        // New results never reuse a name.
        let (id, _) = results.begin("both").expect("room");
        assert_eq!(id, "both-2");
    }

    #[test]
    fn folders_are_named_after_experiments() {
        for (name, expected) in [
            ("two seconds far away", "two-seconds-far-away"),
            ("../../etc", "etc"),
            ("ÄÖ 8 KiB / QD=32", "8-kib-qd-32"),
            ("", "experiment"),
            ("…", "experiment"),
        ] {
            assert_eq!(slug(name), expected);
        }
        let folder = tempfile::tempdir().expect("a folder");
        let results = ResultsFolder::open(folder.path()).expect("it is there");
        let ids: Vec<String> = (0..3)
            .map(|_| results.begin("a b").expect("room").0)
            .collect();
        assert_eq!(ids, ["a-b", "a-b-2", "a-b-3"]);
    }
}
