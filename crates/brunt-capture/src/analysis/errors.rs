//! Errors by client and kind, to detect error storms.

use std::collections::HashMap;

use brunt_core::units::counted;
use brunt_result::capture::{AnalysisSection, SectionColumn, SectionUnit};
use brunt_wire::net::IpAddress;
use serde::{Deserialize, Serialize};

use super::analyse::Analyse;
use super::event::OperationEvent;
use crate::key::address;
use crate::operation::{OperationKind, Protocol};

/// Combinations counted individually; further ones are counted together.
const COMBINATIONS_MAX: usize = 8192;

/// Columns of this analysis's section; its SQL query returns as many of them as it can.
const COLUMNS: &[SectionColumn] = &[
    SectionColumn::new("operation", "operation", SectionUnit::Text),
    SectionColumn::new("protocol", "protocol", SectionUnit::Text).page_only(),
    SectionColumn::new("status", "number", SectionUnit::Count).page_only(),
    SectionColumn::new("status_name", "status", SectionUnit::Text),
    SectionColumn::new("errors", "errors", SectionUnit::Count),
    SectionColumn::new("clients", "clients", SectionUnit::Count),
    SectionColumn::new("first_client", "top client", SectionUnit::Text),
    SectionColumn::new("first_client_errors", "its errors", SectionUnit::Count),
];

/// A status with its protocol: most numbers occur in several protocols, with different names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Status {
    /// The status number.
    pub status: u32,
    /// The protocol that defines it.
    pub protocol: Protocol,
}

impl Status {
    /// The name in the standard, or the number if it has none.
    pub fn name(self) -> String {
        self.protocol.status_name(self.status)
    }
}

/// Errors by operation, status and client.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Errors {
    by_client: HashMap<(OperationKind, Status, IpAddress), u64>,
    not_told_apart: u64,
}

/// The serialized form: sorted, so that equal states serialize equally.
#[derive(Serialize, Deserialize)]
struct Stored {
    by_client: Vec<StoredCount>,
    not_told_apart: u64,
}

#[derive(Serialize, Deserialize)]
struct StoredCount {
    kind: OperationKind,
    status: Status,
    #[serde(with = "address")]
    client: IpAddress,
    count: u64,
}

impl From<Errors> for Stored {
    fn from(errors: Errors) -> Stored {
        let counts = errors.by_client.into_iter();
        let mut by_client: Vec<_> = counts
            .map(|((kind, status, client), count)| StoredCount {
                kind,
                status,
                client,
                count,
            })
            .collect();
        by_client.sort_by_key(|stored| (stored.kind, stored.status, stored.client));
        Stored {
            by_client,
            not_told_apart: errors.not_told_apart,
        }
    }
}

impl From<Stored> for Errors {
    fn from(stored: Stored) -> Errors {
        let mut errors = Errors {
            not_told_apart: stored.not_told_apart,
            ..Errors::default()
        };
        stored
            .by_client
            .into_iter()
            .for_each(|one| errors.add((one.kind, one.status, one.client), one.count));
        errors
    }
}

/// A row of this analysis's section.
#[derive(Serialize)]
struct ErrorRow {
    operation: &'static str,
    protocol: &'static str,
    status: u32,
    status_name: String,
    errors: u64,
    clients: usize,
    first_client: String,
    first_client_errors: u64,
}

impl From<Storm> for ErrorRow {
    fn from(storm: Storm) -> ErrorRow {
        let (first_client, first_client_errors) = storm.first;
        ErrorRow {
            operation: storm.operation.name(),
            protocol: storm.status.protocol.name(),
            status: storm.status.status,
            status_name: storm.status.name(),
            errors: storm.count,
            clients: storm.clients,
            first_client: first_client.to_string(),
            first_client_errors,
        }
    }
}

/// One kind of error and the clients that get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storm {
    /// The failing operation.
    pub operation: OperationKind,
    /// Its status.
    pub status: Status,
    /// Number of errors.
    pub count: u64,
    /// Number of clients.
    pub clients: usize,
    /// The client with the most errors, and its count.
    pub first: (IpAddress, u64),
}

impl Analyse for Errors {
    const HELP: &'static str = "which clients get which errors";
    const SQL: Option<&'static str> = Some(include_str!("../../sql/errors.sql"));

    #[inline]
    fn on_event(&mut self, event: &OperationEvent, _: usize) {
        if let Some(status) = event.error {
            self.on_error(event, status);
        }
    }

    fn merge(&mut self, other: Errors) {
        self.not_told_apart += other.not_told_apart;
        other
            .by_client
            .into_iter()
            .for_each(|(key, count)| self.add(key, count));
    }

    fn sections(&self) -> Vec<AnalysisSection> {
        let rows = self.storms().into_iter().map(ErrorRow::from);
        let section = AnalysisSection::table("errors", "Errors", COLUMNS, rows);
        vec![match self.not_told_apart {
            0 => section,
            count => section.note(format!(
                "{} had further combinations of operation, status and client, which are not listed.",
                counted(count as usize, "error")
            )),
        }]
    }
}

impl Errors {
    #[cold]
    fn on_error(&mut self, event: &OperationEvent, status: u32) {
        let status = Status {
            protocol: event.protocol,
            status,
        };
        self.add((event.kind, status, event.client), 1);
    }

    fn add(&mut self, key: (OperationKind, Status, IpAddress), count: u64) {
        if self.by_client.len() < COMBINATIONS_MAX || self.by_client.contains_key(&key) {
            *self.by_client.entry(key).or_default() += count;
        } else {
            self.not_told_apart += count;
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
