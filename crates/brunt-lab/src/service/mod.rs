//! Services: programs that Brunt did not write, kept by a process of Brunt for as long as an experiment needs them.
//!
//! The keeper (`keeper`) is this program started again. It starts the service's command, keeps what it says in a file
//! (`log`), finds out whether it is ready (`ready`), and adopts every process that the service leaves behind
//! (PR_SET_CHILD_SUBREAPER), so that programs which move to the background are found like any other. Who starts it
//! hears the service's address on standard output when it is ready, and why it came to nothing on standard error.
//!
//! The rule: no process of a service outlives its keeper, and the keeper ends when its standard input does, so also when
//! the program that started it is killed.

mod error;
mod keeper;
mod log;
mod private;
mod ready;

use std::path::{Path, PathBuf};

pub use brunt_protocol::service::{KeeperLimits, ReadyWhen, ServiceProgram};
use serde::{Deserialize, Serialize};

use crate::scratch::FOLDERS_VARIABLE;
pub(crate) use keeper::serve_if_asked;

/// The variable that tells a process that it is a keeper, and with [`KeeperOrder::to_text`] of what.
pub const KEEPER_VARIABLE: &str = "BRUNT_KEEPER";
/// The variable of a service with its working folder.
const FOLDER_VARIABLE: &str = "BRUNT_FOLDER";
/// Variables of a service that its keeper sets: where it is reached, and the port of [`ReadyWhen::port`].
pub const ADDRESS_VARIABLE: &str = "BRUNT_ADDRESS";
/// See [`ADDRESS_VARIABLE`].
pub const PORT_VARIABLE: &str = "BRUNT_PORT";

/// What a keeper keeps, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeeperOrder {
    /// The program. It is started with `BRUNT_FOLDER` and [`FOLDERS_VARIABLE`], whatever its environment says of them.
    pub program: ServiceProgram,
    /// This file says that what has to be done once before was done.
    pub prepared: PathBuf,
    /// Working folder.
    pub folder: PathBuf,
    /// Folders of its host in whose place it has its own; of hosts of a lab only.
    pub private: Vec<PathBuf>,
    /// What it says is added to this file.
    pub log: PathBuf,
}

impl KeeperOrder {
    /// Of a service whose folder has this name in the folder of all services of its machine.
    pub fn of(program: ServiceProgram, folders: &Path, name: &str, log: PathBuf) -> KeeperOrder {
        let folder = folders.join(name);
        let text = |path: &Path| path.display().to_string();
        let own = [
            (FOLDER_VARIABLE, text(&folder)),
            (FOLDERS_VARIABLE, text(folders)),
        ];
        let own = own.map(|(name, value)| (name.to_string(), value));
        let environment = program.environment.into_iter().chain(own).collect();
        // No service has a folder of this name: none begins with a dot.
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

    /// As a keeper reads it in [`KEEPER_VARIABLE`].
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("texts, numbers and tables of them are JSON")
    }
}
