//! Who gets which errors, so that a storm of them can be seen.

use std::collections::HashMap;

use brunt_wire::net::Address;

use super::Event;
use crate::operation::{OperationKind, Protocol};

/// Combinations that are told apart; more are counted together.
const COMBINATIONS_MAX: usize = 8192;

/// A status and whose it is: protocols share most numbers, not all, and not the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Status {
    /// Who says it.
    pub protocol: Protocol,
    /// The number.
    pub status: u32,
}

impl Status {
    /// The standard's name, or the number.
    pub fn name(self) -> String {
        self.protocol.status_name(self.status)
    }
}

/// Errors by operation, status and client.
#[derive(Debug, Default)]
pub struct Errors {
    by_client: HashMap<(OperationKind, Status, Address), u64>,
    not_told_apart: u64,
}

/// The clients that get one error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storm {
    /// What fails.
    pub operation: OperationKind,
    /// What it fails with.
    pub status: Status,
    /// How often.
    pub count: u64,
    /// How many clients.
    pub clients: usize,
    /// The one with the most, and its count.
    pub first: (Address, u64),
}

impl Errors {
    #[cold]
    pub(super) fn on_error(&mut self, event: &Event, status: u32) {
        let status = Status { protocol: event.protocol, status };
        let key = (event.kind, status, event.client);
        if self.by_client.len() < COMBINATIONS_MAX || self.by_client.contains_key(&key) {
            *self.by_client.entry(key).or_default() += 1;
        } else {
            self.not_told_apart += 1;
        }
    }

    pub(super) fn merge(&mut self, other: Errors) {
        self.not_told_apart += other.not_told_apart;
        for (key, count) in other.by_client {
            if self.by_client.len() < COMBINATIONS_MAX || self.by_client.contains_key(&key) {
                *self.by_client.entry(key).or_default() += count;
            } else {
                self.not_told_apart += count;
            }
        }
    }

    /// Errors by operation and status, the most frequent first.
    pub fn storms(&self) -> Vec<Storm> {
        let mut storms: HashMap<(OperationKind, Status), Storm> = HashMap::new();
        for (&(operation, status, client), &count) in &self.by_client {
            let storm = storms.entry((operation, status)).or_insert(Storm {
                operation,
                status,
                count: 0,
                clients: 0,
                first: (client, 0),
            });
            storm.count += count;
            storm.clients += 1;
            if (count, client) > (storm.first.1, storm.first.0) {
                storm.first = (client, count);
            }
        }
        let mut storms: Vec<Storm> = storms.into_values().collect();
        storms.sort_by_key(|s| (std::cmp::Reverse(s.count), s.operation, s.status));
        storms
    }
}
