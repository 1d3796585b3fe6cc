//! Reads the input of `run`, `lab` and `serve`: experiment files, and fio jobs as experiments.

use std::path::Path;

use brunt_study::experiment::{Experiment, FileError};

use crate::cli::{Failure, Output};

/// Imports a fio job as an experiment with its text, and prints notes on what the import changes.
pub(super) fn import_job(job: &Path, output: &Output) -> Result<(Experiment, String), Failure> {
    let import = brunt_fio::import(job, false)?;
    for remark in &import.remarks {
        output.note(format_args!(
            "{}: {}: {}",
            remark.location, remark.key, remark.why
        ));
    }
    Ok((import.experiment, import.text))
}

/// Reads an experiment and its text. The text, with included files merged into it, is saved with the results.
pub(super) fn read(file: &Path) -> Result<(Experiment, String), Failure> {
    read_as(file, file)
}

/// Like [`read`], with `name` as the file's name.
pub(super) fn read_as(file: &Path, name: &Path) -> Result<(Experiment, String), Failure> {
    let path = file.display().to_string();
    let text = brunt_core::input::read_to_string(file)
        .map_err(|error| Failure::usage(format!("{path}: {error}")))?;
    whole(&name.display().to_string(), text).map_err(Failure::from)
}

/// Parses an experiment; returns it with its text, with included files merged into it.
pub(super) fn whole(name: &str, text: String) -> Result<(Experiment, String), Box<FileError>> {
    let experiment = Experiment::parse(name, &text)?;
    let text = if experiment.include.is_some() {
        experiment.written_out()
    } else {
        text
    };
    Ok((experiment, text))
}
