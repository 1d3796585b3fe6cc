//! The page's actions: check, start and stop experiments, and browse results. `brunt serve` offers all of these
//! actions ([`ServedSite`]); `brunt run --serve` only lets the page stop its one run ([`RunControl`]).
//!
//! The rule: every request that starts, stops or reads something needs the token (`token`), and no body is read before
//! the token is checked. docs/live-page.md has the table of requests.

mod blocking;
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

/// The serving program's actions on an experiment; implemented by the command line.
pub trait ExperimentActions: Send + Sync + 'static {
    /// Checks an experiment's text and returns its mistakes or its plan. Opens no devices.
    fn check(&self, text: &str) -> CheckedText;

    /// Returns the command that runs the experiment in this file and writes its results to `folder`. The command gets
    /// the server's socket as its standard input (`LivePage::send`).
    ///
    /// # Errors
    /// The path of this program's executable is unknown.
    fn command(&self, experiment: &Path, folder: &Path) -> io::Result<Command>;
}

/// The outcome of checking a text.
#[derive(Debug, Default)]
pub struct CheckedText {
    /// Mistakes: only the first one that is found.
    pub errors: Vec<TextMistake>,
    /// Notes for the user before starting the experiment.
    pub notes: Vec<String>,
    /// The experiment; `None` if there is a mistake.
    pub found: Option<CheckedExperiment>,
}

/// An experiment that can be started.
#[derive(Debug)]
pub struct CheckedExperiment {
    /// The parsed experiment.
    pub experiment: Experiment,
    /// The experiment's runs.
    pub plan: Plan,
    /// The experiment's text, with included files inlined.
    pub text: String,
}

/// A mistake in a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TextMistake {
    /// Line of the mistake, from 1; `None` if it has no position.
    pub line: Option<usize>,
    /// Column of the mistake, from 1, in UTF-16 units, as browsers count.
    pub column: Option<usize>,
    /// Line of the end of the mistake.
    pub end_line: Option<usize>,
    /// Column after the end of the mistake.
    pub end_column: Option<usize>,
    /// What is wrong.
    pub message: String,
    /// How to correct it.
    pub advice: Option<String>,
}

/// The site that `brunt serve` serves.
pub struct ServedSite {
    runs: Arc<ServedRuns>,
    viewers: Arc<Viewers>,
    token: ServerToken,
    server: Option<HttpServer>,
}

impl ServedSite {
    /// Serves this listener until dropped. Lists the results in `results` and those in `around` and its subfolders;
    /// experiments can be started if `may_start` is set.
    ///
    /// # Errors
    /// A folder can't be opened, the thread can't be started, or the system can't provide random numbers for the
    /// token.
    pub fn start(
        listener: TcpListener,
        results: &Path,
        around: Option<&Path>,
        may_start: bool,
        workshop: impl ExperimentActions,
    ) -> io::Result<ServedSite> {
        let workshop: Arc<dyn ExperimentActions> = Arc::new(workshop);
        let viewers = Arc::new(Viewers::new(None));
        let runs = Arc::new(ServedRuns::new(Arc::clone(&viewers), Arc::clone(&workshop)));
        let results = ResultsFolder::open(results)?;
        let results = Arc::new(match around {
            Some(around) => results.and_around(around)?,
            None => results,
        });
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

    /// The server's token.
    pub fn token(&self) -> &ServerToken {
        &self.token
    }

    /// The id of the current run.
    pub fn running(&self) -> Option<String> {
        self.runs.running()
    }

    /// Stops the current run, waits for its end and its report, and shuts down.
    pub fn close(mut self) {
        self.runs.close();
        self.viewers.close(std::time::Duration::from_secs(1));
        self.server = None;
    }
}
