//! fio's job file as it stands: sections, their keys with lines, `[global]` applied, `include` read.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Most bytes of a job file, and files that include one another.
const FILE_BYTES_MAX: u64 = 1 << 20;
const INCLUDES_MAX: usize = 16;

/// A key as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Lower case.
    pub key: String,
    /// Empty for a key without one.
    pub value: String,
    /// `file:line`.
    pub place: String,
}

/// A section, with what the global ones before it say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// In brackets.
    pub name: String,
    /// `file:line` of its name.
    pub place: String,
    /// In order; of a key that is there twice only the last.
    pub settings: Vec<Setting>,
}

/// Reads the sections of a job file.
///
/// # Errors
/// `file:line: what is wrong`.
pub fn read(path: &Path) -> Result<Vec<Job>, String> {
    let mut jobs = Jobs { global: Vec::new(), jobs: Vec::new(), in_job: false, files: 0 };
    jobs.file(path)?;
    if jobs.jobs.is_empty() {
        return Err(format!("{}: there is no job in it: a section such as [job]", path.display()));
    }
    Ok(jobs.jobs)
}

struct Jobs {
    global: Vec<Setting>,
    jobs: Vec<Job>,
    /// Settings go to the last job, and to `global` otherwise.
    in_job: bool,
    files: usize,
}

impl Jobs {
    fn file(&mut self, path: &Path) -> Result<(), String> {
        let failed = |what: String| format!("{}: {what}", path.display());
        self.files += 1;
        if self.files > INCLUDES_MAX {
            return Err(failed(format!("more than {INCLUDES_MAX} files include one another")));
        }
        let length = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
        if length > FILE_BYTES_MAX {
            return Err(failed(format!("{length} bytes are more than a job file has ({FILE_BYTES_MAX})")));
        }
        let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| failed("it is no text".into()))?;
        for (index, line) in text.lines().enumerate() {
            self.line(path, index + 1, line.trim())?;
        }
        Ok(())
    }

    fn line(&mut self, path: &Path, number: usize, line: &str) -> Result<(), String> {
        let place = format!("{}:{number}", path.display());
        if line.is_empty() || line.starts_with(['#', ';']) {
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix('[') {
            let name = rest.strip_suffix(']').filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| format!("{place}: a section is written [name]"))?;
            self.in_job = name != "global";
            if self.in_job {
                let settings = self.global.clone();
                self.jobs.push(Job { name: name.to_string(), place, settings });
            }
            return Ok(());
        }
        if let Some(other) = line.strip_prefix("include ") {
            let other = PathBuf::from(other.trim());
            let other = path.parent().map_or(other.clone(), |folder| folder.join(&other));
            return self.file(&other).map_err(|what| format!("{place}: include: {what}"));
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        // A comment may follow behind a space.
        let value = value.split(" #").next().unwrap_or_default().split(" ;").next().unwrap_or_default();
        let value = variables(value.trim()).map_err(|what| format!("{place}: {what}"))?;
        let setting = Setting { key: key.trim().to_ascii_lowercase(), value, place };
        let settings = match self.jobs.last_mut() {
            Some(job) if self.in_job => &mut job.settings,
            _ => &mut self.global,
        };
        settings.retain(|known| known.key != setting.key);
        settings.push(setting);
        Ok(())
    }
}

/// Puts in what `${NAME}` stands for in the environment.
fn variables(value: &str) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) = after.split_once('}').ok_or("'${' without '}'")?;
        text += before;
        text += &std::env::var(name).map_err(|_| format!("the environment has no {name}"))?;
        rest = behind;
    }
    Ok(text + rest)
}

impl Job {
    /// What it says, by key.
    pub fn by_key(&self) -> HashMap<&str, &Setting> {
        self.settings.iter().map(|setting| (setting.key.as_str(), setting)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The goal: global sections apply to the jobs after them, includes are read, and lines are known.
    #[test]
    fn sections() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        file("common.inc", "bs=8k\n");
        let text = "; comment\n[global]\nbs=4k\nDIRECT=1 # why\n[a]\nrw=read\n[global]\nbs=16k\n\n[b]\ninclude common.inc\ntime_based\n";
        let jobs = read(&file("x.fio", text)).unwrap();
        let show = |job: &Job| {
            let settings: Vec<_> = job.settings.iter().map(|s| format!("{}={}", s.key, s.value)).collect();
            format!("{}: {}", job.name, settings.join(" "))
        };
        let shown: Vec<_> = jobs.iter().map(show).collect();
        assert_eq!(shown, ["a: bs=4k direct=1 rw=read", "b: direct=1 bs=8k time_based="]);
        assert!(jobs[0].by_key()["rw"].place.ends_with("x.fio:6"));
        assert!(jobs[1].by_key()["bs"].place.ends_with("common.inc:1"));
        let check = |text: &str, words: &str| {
            let error = read(&file("bad.fio", text)).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        };
        check("[global]\nbs=4k\n", "no job");
        check("[a\n", "bad.fio:1: a section");
        check("[a]\nbs=${NO_SUCH_VARIABLE}\n", "bad.fio:2: the environment");
        check("[a]\ninclude bad.fio\n", "include one another");
        check("[a]\ninclude nowhere.fio\n", "nowhere.fio");
    }
}
