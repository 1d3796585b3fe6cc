//! Names of the engines that do the requests of a ring.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which system calls requests are made with.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Engine {
    /// io_uring: one system call hands over many requests.
    #[default]
    #[serde(rename = "io_uring")]
    IoUring,
    /// preadv2 and pwritev2, by as many threads as there are requests in flight, and poll for sockets. Needs no io_uring.
    /// At queue depth 1 the worker makes the call itself, with nothing in between, and notices time limits only when it
    /// returns.
    #[serde(rename = "threads")]
    Threads,
}

impl Engine {
    /// All of them.
    pub const ALL: [Engine; 2] = [Engine::IoUring, Engine::Threads];

    /// Its name in files and on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Engine::IoUring => "io_uring",
            Engine::Threads => "threads",
        }
    }

    /// The engine of this name.
    pub fn of_name(name: &str) -> Option<Engine> {
        Engine::ALL.into_iter().find(|engine| engine.name() == name)
    }
}

impl std::fmt::Display for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
