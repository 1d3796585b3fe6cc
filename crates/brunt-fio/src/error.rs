//! What is wrong with a job file: where, which option is to blame, and what would be right.

use std::fmt::{Display, Formatter};
use std::io;
use std::path::{Path, PathBuf};

use brunt_study::experiment::FileError;

/// A line of a job file, or the file as a whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The file as it was named on the command line or by `include`.
    pub file: PathBuf,
    /// From 1; `None` for the file as a whole.
    pub line: Option<usize>,
}

impl Location {
    pub(crate) fn file(file: &Path) -> Location {
        Location { file: file.to_path_buf(), line: None }
    }

    pub(crate) fn line(file: &Path, line: usize) -> Location {
        Location { file: file.to_path_buf(), line: Some(line) }
    }
}

impl Display for Location {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", self.file.display())?;
        self.line.map_or(Ok(()), |line| write!(formatter, ":{line}"))
    }
}

/// A job file that cannot become an experiment.
#[derive(Debug, thiserror::Error)]
#[error("{location}: {cause}")]
pub struct FioError {
    /// Where.
    pub location: Location,
    /// What is wrong there.
    #[source]
    pub cause: Cause,
}

/// What is wrong. Match on this, not on the text.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is not UTF-8.
    #[error("it is not a text file")]
    NotText,
    /// It is larger than any job file.
    #[error("its {bytes} bytes are more than a job file may have ({limit})")]
    TooLarge {
        /// Its length.
        bytes: u64,
        /// What is allowed.
        limit: u64,
    },
    /// Files include one another, in a circle perhaps.
    #[error("more than {limit} files include one another")]
    TooManyIncludes {
        /// What is allowed.
        limit: usize,
    },
    /// An included file is wrong.
    #[error("include: {0}")]
    Include(#[source] Box<FioError>),
    /// There are global options at most.
    #[error("there is no job in it: a section such as [job]")]
    NoJob,
    /// A line starts with `[` and is not the name of a section.
    #[error("a section is written [name]")]
    SectionName,
    /// `${` without `}`.
    #[error("'${{' without '}}'")]
    UnclosedVariable,
    /// `${NAME}` is not set.
    #[error("the environment has no {0}")]
    UnknownVariable(String),
    /// An option has a value that cannot be translated.
    #[error("{option}={value}: write {expected}")]
    Value {
        /// The option as it is written.
        option: String,
        /// Its value.
        value: String,
        /// What may stand there.
        expected: &'static str,
    },
    /// Nothing in a job says when it is over.
    #[error("[{job}]: {}", match share { true => "its size is a share of the device", false => "it says neither size nor runtime" })]
    Endless {
        /// The job.
        job: String,
        /// Its size is a percentage of a device that is not known here.
        share: bool,
    },
    /// A block size that no device has.
    #[error("[{job}]: blocks of {bytes} bytes are not a multiple of 512")]
    BlockSize {
        /// The job.
        job: String,
        /// The size.
        bytes: u64,
    },
    /// Every option was understood, but what they come to is refused.
    #[error("the experiment that it describes is refused: {}", .0.one_line())]
    Experiment(#[source] Box<FileError>),
    /// A value that TOML cannot hold.
    #[error("the experiment cannot be written: {0}")]
    Unwritable(#[from] toml::ser::Error),
}

impl Cause {
    pub(crate) fn at(self, location: Location) -> FioError {
        FioError { location, cause: self }
    }
}

impl FioError {
    /// What the user can do about it: a sentence that starts with a verb. What the message says already is
    /// not repeated.
    pub fn advice(&self) -> Option<&str> {
        match &self.cause {
            Cause::Include(inner) => inner.advice(),
            Cause::NotText => Some("name a job file of fio"),
            Cause::TooManyIncludes { .. } => Some("remove the 'include' that leads back to its own file"),
            Cause::UnknownVariable(_) => Some("set it before brunt is started, or write the value"),
            Cause::Endless { .. } => Some("add runtime=30 (seconds), so that the job has an end"),
            Cause::BlockSize { .. } => Some("write a block size such as bs=4k"),
            Cause::Experiment(error) => error.help_text(),
            _ => None,
        }
    }
}
