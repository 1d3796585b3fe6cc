//! The two directions of a link.

use serde::Serialize;

/// The direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Direction {
    /// From the first host named to the second.
    There = 0,
    /// From the second host to the first.
    Back = 1,
}
