//! The table of analyses. An analysis is one file with a type that implements [`Analyse`], plus one line here.

use brunt_result::capture::AnalysisSection;
use brunt_wire::net::{IpAddress, NextHeader};
use serde::{Deserialize, Serialize};

use super::analyse::Analyse;
use super::event::OperationEvent;
use super::selection::AnalysisSet;
use crate::key::FileKey;
use crate::operation::ChecksumRun;

/// What users see of an analysis.
#[derive(Clone, Copy, Debug)]
pub struct AnalysisInfo {
    /// Its name.
    pub name: &'static str,
    /// The line of help.
    pub help: &'static str,
    /// The SQL query that answers the same question.
    pub sql: Option<&'static str>,
}

macro_rules! analyses {
    ($($(#[$attribute:meta])* $name:ident: $analysis:ty,)*) => {
        /// The places of the analyses in a set.
        #[allow(non_camel_case_types)] // the names of analyses
        #[derive(Clone, Copy)]
        enum Place {
            $($(#[$attribute])* $name,)*
        }

        /// The state of all analyses.
        #[derive(Debug, Default, Serialize, Deserialize)]
        pub struct Analyses {
            /// The analyses that run; the others see nothing and stay empty.
            #[serde(default)]
            pub selected: AnalysisSet,
            $($(#[$attribute])* pub $name: $analysis,)*
        }

        /// All analyses.
        pub const ANALYSES: &[AnalysisInfo] = &[$($(#[$attribute])* AnalysisInfo {
            name: stringify!($name),
            help: <$analysis>::HELP,
            sql: <$analysis>::SQL,
        },)*];

        impl Analyses {
            /// Only `duplicates` reads checksums.
            #[inline]
            pub fn wants_checksums(&self) -> bool {
                self.selected.has_place(Place::duplicates as u32)
            }

            #[inline]
            pub fn prefetch(&mut self, events: &[OperationEvent]) {
                $($(#[$attribute])* if self.selected.has_place(Place::$name as u32) {
                    self.$name.prefetch(events);
                })*
            }

            #[inline(always)]
            pub fn on_event(&mut self, event: &OperationEvent, place: usize) {
                $($(#[$attribute])* if self.selected.has_place(Place::$name as u32) {
                    self.$name.on_event(event, place);
                })*
            }

            #[inline(always)]
            pub fn on_packet(&mut self, time_ns: u64, wire_len: u32) {
                $($(#[$attribute])* if self.selected.has_place(Place::$name as u32) {
                    self.$name.on_packet(time_ns, wire_len);
                })*
            }

            #[cold]
            pub fn on_not_understood(&mut self, next: NextHeader, wire_len: u32) {
                $($(#[$attribute])* if self.selected.has_place(Place::$name as u32) {
                    self.$name.on_not_understood(next, wire_len);
                })*
            }

            #[inline]
            pub fn on_checksums(&mut self, run: &ChecksumRun<'_>) {
                $($(#[$attribute])* if self.selected.has_place(Place::$name as u32) {
                    self.$name.on_checksums(run);
                })*
            }

            #[inline(always)]
            pub fn on_name(&mut self, server: IpAddress, file: FileKey, parent: Option<FileKey>, name: &[u8]) {
                $($(#[$attribute])* if self.selected.has_place(Place::$name as u32) {
                    self.$name.on_name(server, file, parent, name);
                })*
            }

            #[inline]
            pub fn settle(&mut self) {
                $($(#[$attribute])* if self.selected.has_place(Place::$name as u32) {
                    self.$name.settle();
                })*
            }

            pub fn merge(&mut self, other: Analyses) {
                self.selected = self.selected.and(other.selected);
                $($(#[$attribute])* self.$name.merge(other.$name);)*
            }

            pub fn sections(&self) -> Vec<AnalysisSection> {
                let mut sections = Vec::new();
                $($(#[$attribute])* if self.selected.has_place(Place::$name as u32) {
                    sections.extend(self.$name.sections());
                })*
                sections
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
