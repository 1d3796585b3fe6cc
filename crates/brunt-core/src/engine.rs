//! Names of the engines that execute the requests of a ring.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The system calls used for requests.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum IoEngine {
    /// io_uring: one system call submits many requests.
    #[default]
    #[serde(rename = "io_uring")]
    IoUring,
    /// preadv2 and pwritev2, by as many threads as there are requests in flight, and poll for sockets. Needs no
    /// io_uring. At queue depth 1 the worker makes the call itself, without a helper thread, and notices time limits
    /// only when the call returns.
    #[serde(rename = "threads")]
    Threads,
}

impl IoEngine {
    /// All engines.
    pub const ALL: [IoEngine; 2] = [IoEngine::IoUring, IoEngine::Threads];

    /// The engine's name in files and on command lines.
    pub fn name(self) -> &'static str {
        match self {
            IoEngine::IoUring => "io_uring",
            IoEngine::Threads => "threads",
        }
    }

    /// Looks up an engine by name.
    pub fn of_name(name: &str) -> Option<IoEngine> {
        IoEngine::ALL
            .into_iter()
            .find(|engine| engine.name() == name)
    }
}

impl std::fmt::Display for IoEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
