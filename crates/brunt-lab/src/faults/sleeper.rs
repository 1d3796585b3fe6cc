//! For tests of faults: a child process that is killed when the test ends.

use std::process::Child;

pub(crate) struct Sleeper(pub Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
