//! Orders to count the bytes of other hosts' interfaces, as given by the experiment. The readings are in
//! `counting.rs`.

use brunt_core::Nanos;

use super::counting::AwaitedCount;
use super::host_thread::HostThreadOrder;
use super::{Fleet, FleetError, Lane};

impl Fleet {
    /// Reads the byte counters of a host's interfaces until [`Fleet::uncount`].
    ///
    /// # Errors
    /// The host is unknown or was never connected.
    pub fn count(&self, host: &str, interfaces: &[String]) -> Result<(), FleetError> {
        let order = HostThreadOrder::Count(interfaces.to_vec());
        self.tell(host, Lane::default(), order)
    }

    /// Forgets earlier readings, except for the last; the next one is due at `first` on our clock.
    ///
    /// # Errors
    /// The host is unknown or was never connected.
    pub fn count_from(&self, host: &str, first: Nanos) -> Result<(), FleetError> {
        self.tell(host, Lane::default(), HostThreadOrder::CountFrom(first))
    }

    /// Ends the readings, and requests them.
    ///
    /// # Errors
    /// The host is unknown or was never connected.
    pub fn uncount(&self, host: &str) -> Result<AwaitedCount, FleetError> {
        let (answer, awaited) = AwaitedCount::new();
        self.tell(host, Lane::default(), HostThreadOrder::Uncount(answer))?;
        Ok(awaited)
    }
}
