//! Reads what `run`, `lab` and `serve` carry out: experiment files, and fio jobs as experiments.

use std::path::Path;

use brunt_study::experiment::{Experiment, FileError};

use crate::cli::{Failure, Output};

/// A fio job as an experiment, and its text; what the import changes is noted.
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

/// An experiment and its text: what is kept with the results, whole where it includes other files.
pub(super) fn read(file: &Path) -> Result<(Experiment, String), Failure> {
    read_as(file, file)
}

/// The same, of a text that counts as that of the file `name`.
pub(super) fn read_as(file: &Path, name: &Path) -> Result<(Experiment, String), Failure> {
    let path = file.display().to_string();
    let text = brunt_core::input::read_to_string(file)
        .map_err(|error| Failure::usage(format!("{path}: {error}")))?;
    whole(&name.display().to_string(), text).map_err(Failure::from)
}

/// An experiment of this text, and its text, whole where it includes other files.
pub(super) fn whole(name: &str, text: String) -> Result<(Experiment, String), Box<FileError>> {
    let experiment = Experiment::parse(name, &text)?;
    let text = if experiment.include.is_some() {
        experiment.written_out()
    } else {
        text
    };
    Ok((experiment, text))
}
