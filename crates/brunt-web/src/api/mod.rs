//! What the page can do: check, start and stop experiments, and look through results. `brunt serve` has all of it
//! ([`ServedSite`]), `brunt run --serve` the stop of its one run ([`RunControl`]).
//!
//! The rule: whatever starts, stops or reads something needs the token (`token`), and nobody's body is read before it was
//! shown. docs/live-page.md has the table of requests.

mod beside;
mod body;
mod examples;
mod links;
mod plan;
mod results;
mod routes;
mod runs;
mod token;

use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use brunt_study::experiment::{Experiment, Plan};
use serde::Serialize;

pub use self::plan::{
    PlanSketch, SketchedFault, SketchedHost, SketchedLink, SketchedTarget, SketchedWorkload,
    TimeEstimate,
};
use self::results::ResultsFolder;
pub use self::routes::RunControl;
use self::routes::ServedState;
use self::runs::ServedRuns;
pub use self::runs::{OUTPUT_FILE, PROGRESS_FILE};
pub use self::token::ServerToken;
use crate::http::HttpServer;
use crate::live::site::site;
use crate::live::viewers::Viewers;

/// What the program that serves can do with an experiment: given by the command line.
pub trait Workshop: Send + Sync + 'static {
    /// What is wrong with an experiment's text, or what it comes to. Opens no device.
    fn check(&self, text: &str) -> CheckedText;

    /// The command that runs the experiment in this file, whose results go to `folder`. It gets the server's socket as its
    /// standard input (`LivePage::send`).
    ///
    /// # Errors
    /// This program is not to be found.
    fn command(&self, experiment: &Path, folder: &Path) -> io::Result<Command>;
}

/// What is known of a text.
#[derive(Debug, Default)]
pub struct CheckedText {
    /// What is wrong: the first of it.
    pub errors: Vec<TextMistake>,
    /// What whoever starts it should know.
    pub notes: Vec<String>,
    /// The experiment; `None` where something is wrong.
    pub found: Option<CheckedExperiment>,
}

/// An experiment that can be started.
#[derive(Debug)]
pub struct CheckedExperiment {
    /// What was read.
    pub experiment: Experiment,
    /// Its runs.
    pub plan: Plan,
    /// Its text, whole where it includes files.
    pub text: String,
}

/// A mistake in a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TextMistake {
    /// Its line, from 1; `None` of one that has no place.
    pub line: Option<usize>,
    /// Its column, from 1, in units of UTF-16, as browsers count.
    pub column: Option<usize>,
    /// The line of its end.
    pub end_line: Option<usize>,
    /// The column behind its end.
    pub end_column: Option<usize>,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub advice: Option<String>,
}

/// What is served by `brunt serve`.
pub struct ServedSite {
    runs: Arc<ServedRuns>,
    viewers: Arc<Viewers>,
    token: ServerToken,
    server: Option<HttpServer>,
}

impl ServedSite {
    /// Serves on this listener until it is dropped. Results are those of `results`; experiments can be started where
    /// `may_start`.
    ///
    /// # Errors
    /// There is no folder, no thread or no random number to be had.
    pub fn start(
        listener: TcpListener,
        results: &Path,
        may_start: bool,
        workshop: impl Workshop,
    ) -> io::Result<ServedSite> {
        let workshop: Arc<dyn Workshop> = Arc::new(workshop);
        let viewers = Arc::new(Viewers::new(None));
        let runs = Arc::new(ServedRuns::new(Arc::clone(&viewers), Arc::clone(&workshop)));
        let results = Arc::new(ResultsFolder::open(results)?);
        let token = ServerToken::make()?;
        let state = ServedState::new(workshop, Arc::clone(&runs), results, may_start);
        let routes = state.routes(token.clone());
        let server = HttpServer::start(listener, "live page", site(Arc::clone(&viewers), routes))?;
        Ok(ServedSite {
            runs,
            viewers,
            token,
            server: Some(server),
        })
    }

    /// Its token.
    pub fn token(&self) -> &ServerToken {
        &self.token
    }

    /// The id of the run under way.
    pub fn running(&self) -> Option<String> {
        self.runs.running()
    }

    /// Stops the run under way, waits for its end and its report, and goes away.
    pub fn close(mut self) {
        self.runs.close();
        self.viewers.close(std::time::Duration::from_secs(1));
        self.server = None;
    }
}
