//! The table of analyses. An analysis is one file with a type that implements [`Analyse`], and one line here.

use std::collections::BTreeMap;

use brunt_wire::net::{IpAddress, NextHeader};
use serde::{Deserialize, Serialize};

use super::analyse::Analyse;
use super::event::OperationEvent;
use crate::key::FileKey;
use crate::operation::ChecksumRun;

macro_rules! analyses {
    ($($(#[$attribute:meta])* $name:ident: $analysis:ty,)*) => {
        /// The state of all analyses.
        #[derive(Debug, Default, Serialize, Deserialize)]
        pub struct Analyses {
            $($(#[$attribute])* pub $name: $analysis,)*
        }

        /// Names and help of all analyses.
        pub const ANALYSES: [(&str, &str); [$($(#[$attribute])* stringify!($name)),*].len()] =
            [$($(#[$attribute])* (stringify!($name), <$analysis>::HELP)),*];

        impl Analyses {
            #[inline]
            pub fn look(&mut self, events: &[OperationEvent]) {
                $($(#[$attribute])* self.$name.look(events);)*
            }

            #[inline(always)]
            pub fn on_event(&mut self, event: &OperationEvent, place: usize) {
                $($(#[$attribute])* self.$name.on_event(event, place);)*
            }

            #[inline(always)]
            pub fn on_packet(&mut self, time_ns: u64, wire_len: u32) {
                $($(#[$attribute])* self.$name.on_packet(time_ns, wire_len);)*
            }

            #[cold]
            pub fn on_not_understood(&mut self, next: NextHeader, wire_len: u32) {
                $($(#[$attribute])* self.$name.on_not_understood(next, wire_len);)*
            }

            #[inline]
            pub fn on_checksums(&mut self, run: &ChecksumRun<'_>) {
                $($(#[$attribute])* self.$name.on_checksums(run);)*
            }

            #[inline(always)]
            pub fn on_name(&mut self, server: IpAddress, file: FileKey, parent: Option<FileKey>, name: &[u8]) {
                $($(#[$attribute])* self.$name.on_name(server, file, parent, name);)*
            }

            #[inline]
            pub fn settle(&mut self) {
                $($(#[$attribute])* self.$name.settle();)*
            }

            pub fn merge(&mut self, other: Analyses) {
                $($(#[$attribute])* self.$name.merge(other.$name);)*
            }

            pub fn rows(&self) -> BTreeMap<String, serde_json::Value> {
                let mut rows = BTreeMap::new();
                $($(#[$attribute])* if let Some(of) = self.$name.rows() {
                    rows.insert(stringify!($name).to_string(), of);
                })*
                rows
            }
        }
    };
}

analyses! {
    rates: super::rates::Rates,
    mix: super::mix::Mix,
    hot: super::hot::Hot,
    profile: super::profile::Profile,
    errors: super::errors::Errors,
    duplicates: super::duplicates::Duplicates,
    not_understood: super::not_understood::NotUnderstood,
    #[cfg(test)]
    largest: super::largest::Largest,
}
