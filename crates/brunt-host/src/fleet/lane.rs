//! Numbers the connections to a host if an experiment has several.

/// One of several connections to a host: each concurrent job has its own, and there is only one run at a time on each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane(pub u32);
