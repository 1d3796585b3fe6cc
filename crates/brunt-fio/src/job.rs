//! Parses fio's job files: sections and their keys with line numbers, with `[global]` applied and `include` resolved.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::error::{Cause, FioError, Location};
use crate::keyword;

/// Maximum size of a job file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of files that include one another.
const INCLUDES_MAX: usize = 16;

/// A key as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key in lower case.
    pub key: String,
    /// The value; empty for a key without one.
    pub value: String,
    /// Where the key is written.
    pub location: Location,
    /// The first variable in the value that is not set in the environment.
    pub unset: Option<String>,
}

/// A section, including the settings of the global sections before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The name in brackets.
    pub name: String,
    /// Where the name is written.
    pub location: Location,
    /// The settings in file order; if a key is repeated, only the last one.
    pub settings: Vec<Setting>,
}

/// Reads the sections of a job file.
///
/// # Errors
/// The file, or one that it includes, cannot be read or is not a job file.
pub fn read(path: &Path) -> Result<Vec<Job>, FioError> {
    let mut jobs = Jobs {
        global: Vec::new(),
        jobs: Vec::new(),
        in_job: false,
        files: 0,
    };
    jobs.file(path)?;
    if jobs.jobs.is_empty() {
        return Err(Cause::NoJob.at(Location::file(path)));
    }
    Ok(jobs.jobs)
}

struct Jobs {
    global: Vec<Setting>,
    jobs: Vec<Job>,
    /// Whether settings apply to the last job or to `global`.
    in_job: bool,
    files: usize,
}

impl Jobs {
    fn file(&mut self, path: &Path) -> Result<(), FioError> {
        let text = self
            .text(path)
            .map_err(|cause| cause.at(Location::file(path)))?;
        for (index, line) in text.lines().enumerate() {
            let location = Location::line(path, index + 1);
            self.line(&location, line.trim())
                .map_err(|cause| cause.at(location))?;
        }
        Ok(())
    }

    fn text(&mut self, path: &Path) -> Result<String, Cause> {
        self.files += 1;
        if self.files > INCLUDES_MAX {
            return Err(Cause::TooManyIncludes {
                limit: INCLUDES_MAX,
            });
        }
        let bytes = std::fs::metadata(path)?.len();
        if bytes > FILE_BYTES_MAX {
            return Err(Cause::TooLarge {
                bytes,
                limit: FILE_BYTES_MAX,
            });
        }
        String::from_utf8(brunt_core::input::read(path)?).map_err(|_| Cause::NotText)
    }

    fn line(&mut self, location: &Location, line: &str) -> Result<(), Cause> {
        // As in fio, a comment can start anywhere in a line.
        let line = line.split([';', '#']).next().unwrap_or_default().trim();
        if line.is_empty() {
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix('[') {
            let name = rest
                .strip_suffix(']')
                .filter(|name| !name.is_empty())
                .ok_or(Cause::SectionName)?;
            self.in_job = !name.starts_with("global");
            if self.in_job {
                let settings = self.global.clone();
                self.jobs.push(Job {
                    name: name.to_string(),
                    location: location.clone(),
                    settings,
                });
            }
            return Ok(());
        }
        if let Some(other) = line.strip_prefix("include ") {
            let other = PathBuf::from(other.trim());
            let other = location
                .file
                .parent()
                .map_or(other.clone(), |folder| folder.join(&other));
            return self
                .file(&other)
                .map_err(|error| Cause::Include(Box::new(error)));
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let (value, unset) = keyword::replace(value.trim())?;
        let key = key.trim().to_ascii_lowercase();
        let setting = Setting {
            key,
            value,
            location: location.clone(),
            unset,
        };
        let settings = match self.jobs.last_mut() {
            Some(job) if self.in_job => &mut job.settings,
            _ => &mut self.global,
        };
        settings.retain(|known| known.key != setting.key);
        settings.push(setting);
        Ok(())
    }
}

impl Job {
    /// The section's settings by key.
    pub fn by_key(&self) -> HashMap<&str, &Setting> {
        self.settings
            .iter()
            .map(|setting| (setting.key.as_str(), setting))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that global sections apply to the jobs after them, that includes are resolved, and that line numbers
    /// are kept.
    #[test]
    fn global_sections_apply_to_the_jobs_after_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        file("common.inc", "bs=8k\n");
        let text = "; comment\n[global]; all\nbs=4k;c\nDIRECT=1\t# why\n[a] # it\nrw=read\n[global]\nbs=16k\n\n[b]\ninclude common.inc\ntime_based\n";
        let jobs = read(&file("x.fio", text)).unwrap();
        let show = |job: &Job| {
            let settings: Vec<_> = job
                .settings
                .iter()
                .map(|s| format!("{}={}", s.key, s.value))
                .collect();
            format!("{}: {}", job.name, settings.join(" "))
        };
        let shown: Vec<_> = jobs.iter().map(show).collect();
        assert_eq!(
            shown,
            ["a: bs=4k direct=1 rw=read", "b: direct=1 bs=8k time_based="]
        );
        let location = |index: usize, key: &str| jobs[index].by_key()[key].location.clone();
        assert_eq!(
            location(0, "rw"),
            Location::line(&folder.path().join("x.fio"), 6)
        );
        assert_eq!(
            location(1, "bs"),
            Location::line(&folder.path().join("common.inc"), 1)
        );
    }

    /// Checks that an error names its file and line, even in an included file.
    #[test]
    fn an_error_names_its_file_and_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.fio");
        let check = |text: &str, words: &str, kind: fn(&Cause) -> bool| {
            std::fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err();
            assert!(
                kind(&error.cause) && error.to_string().contains(words),
                "{text}: {error}"
            );
        };
        check("[global]\nbs=4k\n", "bad.fio: contains no job", |cause| {
            matches!(cause, Cause::NoJob)
        });
        check("[a\n", "bad.fio:1: a section", |cause| {
            matches!(cause, Cause::SectionName)
        });
        check("[a]\nbs=${X\n", "'${' without a matching '}'", |cause| {
            matches!(cause, Cause::UnclosedVariable)
        });
        let expression = "[a]\nnumjobs=2*$ncpus*\n";
        check(
            expression,
            "bad.fio:2: cannot evaluate 2*$ncpus*",
            |cause| matches!(cause, Cause::Expression(_)),
        );
        let circle = "[a]\ninclude bad.fio\n";
        check(circle, "include one another", |cause| {
            matches!(cause, Cause::Include(_))
        });
        let nowhere = "[a]\ninclude nowhere.fio\n";
        check(nowhere, "nowhere.fio", |cause| match cause {
            Cause::Include(inner) => matches!(inner.cause, Cause::Io(_)),
            _ => false,
        });
    }
}
