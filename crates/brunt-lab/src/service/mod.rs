//! Services: programs that aren't part of Brunt, kept running by a Brunt process for as long as an experiment needs
//! them.
//!
//! The keeper (`keeper`) is a second instance of this program. It starts the service's command, stores its output in
//! a file (`log`), checks whether it is ready (`ready`), and adopts every process that the service leaves behind
//! (PR_SET_CHILD_SUBREAPER), so that programs that move to the background are found like any other. The keeper prints
//! the service's address to standard output when it is ready, and errors to standard error.
//!
//! The rule: no process of a service outlives its keeper, and the keeper ends when its standard input is closed, so it
//! also ends when the program that started it is killed.

mod error;
mod keeper;
mod log;
mod private;
mod ready;

use std::path::{Path, PathBuf};

pub use brunt_protocol::service::{KeeperLimits, ReadyPurpose, ReadyWhen, ServiceProgram};
use serde::{Deserialize, Serialize};

use crate::scratch::FOLDERS_VARIABLE;
pub(crate) use keeper::serve_if_asked;

/// The environment variable that makes a process a keeper; its value is from [`KeeperOrder::to_text`].
pub const KEEPER_VARIABLE: &str = "BRUNT_KEEPER";
/// The environment variable that tells a service its working folder.
const FOLDER_VARIABLE: &str = "BRUNT_FOLDER";
/// Environment variables that the keeper sets for a service: its address, and the port of [`ReadyWhen::port`].
pub const ADDRESS_VARIABLE: &str = "BRUNT_ADDRESS";
/// See [`ADDRESS_VARIABLE`].
pub const PORT_VARIABLE: &str = "BRUNT_PORT";

/// The configuration of a keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeeperOrder {
    /// The program. `BRUNT_FOLDER` and [`FOLDERS_VARIABLE`] are added to its environment and override its own values.
    pub program: ServiceProgram,
    /// The file that exists once the prepare command has succeeded.
    pub prepared: PathBuf,
    /// Working folder.
    pub folder: PathBuf,
    /// Host folders that are replaced by the service's own; only on lab hosts.
    pub private: Vec<PathBuf>,
    /// The service's output is appended to this file.
    pub log: PathBuf,
}

impl KeeperOrder {
    /// The order for a service whose folder has this name inside the folder of all services on its machine.
    pub fn of(program: ServiceProgram, folders: &Path, name: &str, log: PathBuf) -> KeeperOrder {
        let folder = folders.join(name);
        let text = |path: &Path| path.display().to_string();
        let own = [
            (FOLDER_VARIABLE, text(&folder)),
            (FOLDERS_VARIABLE, text(folders)),
        ];
        let own = own.map(|(name, value)| (name.to_string(), value));
        let environment = program.environment.into_iter().chain(own).collect();
        // No service's folder has this name: theirs don't start with a dot.
        let prepared = folders.join(format!(".{name}.prepared"));
        let program = ServiceProgram {
            environment,
            ..program
        };
        KeeperOrder {
            program,
            prepared,
            folder,
            private: Vec::new(),
            log,
        }
    }

    /// Encodes the order for [`KEEPER_VARIABLE`].
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("strings, numbers and tables can be encoded as JSON")
    }
}
