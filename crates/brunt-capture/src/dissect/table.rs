//! The table of dissectors and everything derived from it: the protocol of a connection, the protocol-specific part
//! of an operation, the numbers of kinds and protocols. Used by the pipeline and wherever operations are named. The
//! one rule: everything here is derived from the lines of the table; no protocol is named elsewhere in this file.

use super::detail::Detail;
use super::registered::Registered;
use super::{
    Claim, Counter, Datagram, Dissector, Flow, FramingState, Gap, OperationInfo, Out, OwnPart,
    OwnTables, ProtocolInfo,
};
use crate::limits::Limits;
use crate::operation::{FileKey, Operation, Sink};
use crate::trace::common::Common;
use crate::trace::files::Files;
use crate::trace::rows::Registry;

/// A line of the table, for help and tests.
#[derive(Clone, Copy, Debug)]
pub struct DissectorEntry {
    /// The protocol's name.
    pub name: &'static str,
    /// The line of help.
    pub help: &'static str,
    /// The kinds of operations in this protocol.
    pub kinds: &'static [OperationInfo],
    /// The families of messages in this protocol.
    pub protocols: &'static [ProtocolInfo],
    /// The protocol-specific counters.
    pub counters: &'static [Counter],
}

const fn kinds_before(index: usize) -> usize {
    let (mut at, mut sum) = (0, 0);
    while at < index {
        sum += DISSECTORS[at].kinds.len();
        at += 1;
    }
    sum
}

const fn protocols_before(index: usize) -> usize {
    let (mut at, mut sum) = (0, 0);
    while at < index {
        sum += DISSECTORS[at].protocols.len();
        at += 1;
    }
    sum
}

const fn counters_before(index: usize) -> usize {
    let (mut at, mut sum) = (0, 0);
    while at < index {
        sum += DISSECTORS[at].counters.len();
        at += 1;
    }
    sum
}

/// Number of protocol-specific counters.
pub const COUNTER_COUNT: usize = counters_before(DISSECTORS.len());

/// The protocol-specific counters, each with its dissector's name.
pub(crate) const OWN_COUNTERS: [(&str, Counter); COUNTER_COUNT] = {
    let mut counters = [(
        "",
        Counter {
            name: "",
            label: "",
            doc: "",
        },
    ); COUNTER_COUNT];
    let (mut entry, mut at) = (0, 0);
    while entry < DISSECTORS.len() {
        let mut place = 0;
        while place < DISSECTORS[entry].counters.len() {
            counters[at] = (DISSECTORS[entry].name, DISSECTORS[entry].counters[place]);
            (place, at) = (place + 1, at + 1);
        }
        entry += 1;
    }
    counters
};

/// Number of kinds of operations.
pub const KIND_COUNT: usize = kinds_before(DISSECTORS.len());
/// Number of protocols.
pub const PROTOCOL_COUNT: usize = protocols_before(DISSECTORS.len());

/// Each kind, with the index of its dissector.
static KINDS: [(usize, OperationInfo); KIND_COUNT] = {
    let mut kinds = [(0, OperationInfo { name: "", op: None }); KIND_COUNT];
    let (mut entry, mut at) = (0, 0);
    while entry < DISSECTORS.len() {
        let mut place = 0;
        while place < DISSECTORS[entry].kinds.len() {
            kinds[at] = (entry, DISSECTORS[entry].kinds[place]);
            (place, at) = (place + 1, at + 1);
        }
        entry += 1;
    }
    kinds
};

/// The dissector and the kind with this kind number.
#[inline]
pub(crate) fn kind_at(number: usize) -> (&'static DissectorEntry, &'static OperationInfo) {
    let (dissector, kind) = &KINDS[number];
    (&ENTRIES[*dissector], kind)
}

/// [`DISSECTORS`] as a static, so that references to its entries are `'static`.
static ENTRIES: [DissectorEntry; DISSECTORS.len()] = DISSECTORS;

/// The dissector and the protocol with this protocol number.
pub(crate) fn protocol_at(mut number: usize) -> (&'static DissectorEntry, &'static ProtocolInfo) {
    for entry in &ENTRIES {
        match entry.protocols.get(number) {
            Some(protocol) => return (entry, protocol),
            None => number -= entry.protocols.len(),
        }
    }
    unreachable!("the table numbers all protocols")
}

macro_rules! dissectors {
    ($($(#[$attribute:meta])* $variant:ident $field:ident: $dissector:ty,)*) => {
        /// All protocols; among equally strong claims, the first one wins.
        pub const DISSECTORS: [DissectorEntry; [$($(#[$attribute])* stringify!($variant)),*].len()] = [$(
            $(#[$attribute])*
            DissectorEntry {
                name: <$dissector>::NAME,
                help: <$dissector>::HELP,
                kinds: <$dissector>::KINDS,
                protocols: <$dissector>::PROTOCOLS,
                counters: <$dissector>::COUNTERS,
            }
        ),*];

        #[derive(Clone, Copy)]
        enum Index { $($(#[$attribute])* $variant),* }

        $($(#[$attribute])*
        impl Registered for <$dissector as Dissector>::Id {
            const FIRST_KIND: u16 = kinds_before(Index::$variant as usize) as u16;
            const KIND_COUNT: usize = <$dissector>::KINDS.len();
            const FIRST_PROTOCOL: u8 = protocols_before(Index::$variant as usize) as u8;
            const PROTOCOL_COUNT: usize = <$dissector>::PROTOCOLS.len();
            const FIRST_COUNTER: usize = counters_before(Index::$variant as usize);
            const COUNTER_COUNT: usize = <$dissector>::COUNTERS.len();
        })*

        /// A pipeline's state for each protocol.
        #[derive(Debug)]
        pub struct Dissectors {
            $($(#[$attribute])* $field: $dissector,)*
        }

        /// A connection's protocol, and the protocol's state for it.
        #[derive(Debug, Default)]
        #[allow(clippy::large_enum_variant)] // almost all connections belong to a protocol soon
        #[repr(u8)] // every segment reads the tag, and an explicit tag is faster to read than a niche in a field
        pub enum Conversation {
            /// Nothing has been captured yet.
            #[default]
            Undecided,
            /// Claimed by no protocol.
            Unclaimed,
            $($(#[$attribute])*
            #[doc = concat!("A connection of [`", stringify!($dissector), "`].")]
            $variant(<$dissector as Dissector>::Connection),)*
        }

        impl Detail<'_> {
            /// Passes on the names that this operation reveals: the file, its directory, and its name there. A root
            /// has no directory, and its name is a path.
            #[inline]
            pub(crate) fn each_name(
                &self,
                operation: &Operation<'_>,
                tell: &mut impl FnMut(FileKey, Option<FileKey>, &[u8]),
            ) {
                match self {
                    $($(#[$attribute])* Detail::$variant(part) => part.each_name(operation, tell),)*
                }
            }
        }

        /// The protocol-specific tables of all protocols.
        pub(crate) struct ProtocolTables {
            $($(#[$attribute])* $field: <$dissector as Dissector>::Tables,)*
        }

        impl ProtocolTables {
            pub fn register(registry: &mut Registry) -> ProtocolTables {
                ProtocolTables { $($(#[$attribute])* $field: OwnTables::<<$dissector as Dissector>::Id>::register(registry),)* }
            }

            #[inline]
            pub fn record(&mut self, operation: &Operation<'_>, files: &mut Files, common: &mut Common) {
                match operation.detail {
                    $($(#[$attribute])* Detail::$variant(own) => {
                        OwnTables::<<$dissector as Dissector>::Id>::record(&mut self.$field, operation, own, files, common);
                    })*
                }
            }

            pub fn settle(&mut self, common: &mut Common) {
                $($(#[$attribute])* OwnTables::<<$dissector as Dissector>::Id>::settle(&mut self.$field, common);)*
            }

            pub fn forget(&mut self) {
                $($(#[$attribute])* OwnTables::<<$dissector as Dissector>::Id>::forget(&mut self.$field);)*
            }
        }

        impl Dissectors {
            /// Creates all dissectors.
            pub fn new(limits: &Limits) -> Dissectors {
                Dissectors { $($(#[$attribute])* $field: <$dissector>::new(limits),)* }
            }

            /// Processes the next bytes of one direction.
            #[inline(always)]
            pub fn on_bytes<S: Sink>(
                &mut self,
                conversation: &mut Conversation,
                flow: &Flow,
                bytes: &[u8],
                time_ns: u64,
                out: &mut Out<'_, S>,
            ) {
                if let Conversation::Undecided = conversation {
                    *conversation = self.claimed(flow, bytes, Claim::Perhaps);
                }
                match conversation {
                    Conversation::Undecided | Conversation::Unclaimed => {
                        out.ledger.bytes_unclaimed += bytes.len() as u64;
                    }
                    $($(#[$attribute])* Conversation::$variant(connection) => {
                        self.$field.on_bytes(connection, flow, bytes, time_ns, out);
                    })*
                }
            }

            /// The protocol of a connection that begins with these bytes: the strongest claim, if it is at
            /// least `least`.
            #[cold]
            fn claimed(&self, flow: &Flow, bytes: &[u8], least: Claim) -> Conversation {
                let (mut strongest, mut conversation) = (Claim::No, Conversation::Unclaimed);
                $($(#[$attribute])* {
                    let claim = self.$field.claim(flow, bytes);
                    if claim > strongest && claim >= least {
                        strongest = claim;
                        conversation = Conversation::$variant(Default::default());
                    }
                })*
                let _ = strongest;
                conversation
            }

            /// Called when the connection's dissector has abandoned the connection. Another dissector may claim it by
            /// these bytes, and then gets the bytes that follow.
            #[cold]
            pub fn claim_again(&self, conversation: &mut Conversation, flow: &Flow, bytes: &[u8]) {
                match self.claimed(flow, bytes, Claim::Bytes) {
                    Conversation::Unclaimed => {}
                    other if std::mem::discriminant(&other) == std::mem::discriminant(conversation) => {}
                    other => *conversation = other,
                }
            }

            /// Handles missing bytes in one direction.
            #[inline]
            pub fn on_gap<S: Sink>(
                &mut self,
                conversation: &mut Conversation,
                flow: &Flow,
                gap: Gap,
                out: &mut Out<'_, S>,
            ) {
                match conversation {
                    Conversation::Undecided | Conversation::Unclaimed => {}
                    $($(#[$attribute])* Conversation::$variant(connection) => {
                        self.$field.on_gap(connection, flow, gap, out);
                    })*
                }
            }

            /// Ends one direction.
            pub fn on_end<S: Sink>(
                &mut self,
                conversation: &mut Conversation,
                flow: &Flow,
                out: &mut Out<'_, S>,
            ) {
                match conversation {
                    Conversation::Undecided | Conversation::Unclaimed => {}
                    $($(#[$attribute])* Conversation::$variant(connection) => {
                        self.$field.on_end(connection, flow, out);
                    })*
                }
            }

            /// Whether any protocol claims a datagram.
            pub fn claims_datagram(&self, flow: &Flow, bytes: &[u8]) -> bool {
                $($(#[$attribute])* {
                    if self.$field.claims_datagram(flow, bytes) {
                        return true;
                    }
                })*
                false
            }

            /// Processes a claimed datagram; returns whether it was a message.
            pub fn on_datagram<S: Sink>(
                &mut self,
                flow: &Flow,
                datagram: &Datagram<'_>,
                out: &mut Out<'_, S>,
            ) -> bool {
                $($(#[$attribute])* {
                    if self.$field.claims_datagram(flow, datagram.bytes) {
                        return self.$field.on_datagram(flow, datagram, out);
                    }
                })*
                false
            }

            /// Advances the time.
            pub fn expire<S: Sink>(&mut self, now_ns: u64, out: &mut Out<'_, S>) {
                $($(#[$attribute])* self.$field.expire(now_ns, out);)*
            }

            /// Ends the capture.
            pub fn finish<S: Sink>(&mut self, out: &mut Out<'_, S>) {
                $($(#[$attribute])* self.$field.finish(out);)*
            }
        }

        impl Conversation {
            /// The framing state of one direction, according to the connection's dissector.
            #[inline]
            pub fn framing_state(&self, direction: u8) -> FramingState {
                match self {
                    Conversation::Undecided | Conversation::Unclaimed => FramingState::Searching,
                    $($(#[$attribute])* Conversation::$variant(connection) => {
                        <$dissector>::framing_state(connection, direction)
                    })*
                }
            }
        }
    };
}

dissectors! {
    Rpc rpc: super::rpc::Rpc,
    Iscsi iscsi: super::iscsi::Iscsi,
    #[cfg(test)]
    Lines lines: super::lines::Lines,
}

#[cfg(test)]
mod tests {
    use brunt_result::OpKind;

    use super::*;
    use crate::ledger::Ledger;
    use crate::operation::{OperationKind, Protocol};

    #[test]
    fn every_dissector_has_its_own_name_help_kinds_and_protocols() {
        for (index, entry) in DISSECTORS.iter().enumerate() {
            assert!(
                DISSECTORS[..index]
                    .iter()
                    .all(|before| before.name != entry.name)
            );
            assert!(
                !entry.help.is_empty() && !entry.kinds.is_empty() && !entry.protocols.is_empty()
            );
            for (place, kind) in entry.kinds.iter().enumerate() {
                let is_new = entry.kinds[..place]
                    .iter()
                    .all(|before| before.name != kind.name);
                assert!(!kind.name.is_empty() && is_new, "{}", kind.name);
            }
        }
        let kinds = DISSECTORS
            .iter()
            .flat_map(|entry| entry.kinds.iter().map(|kind| (entry.name, kind.name)));
        assert!(
            OperationKind::all()
                .map(|kind| (kind.dissector(), kind.name()))
                .eq(kinds)
        );
        let names: Vec<_> = Protocol::all().map(Protocol::name).collect();
        assert_eq!(names, ["NFSv3", "NFSv4", "MOUNT", "RPC", "SCSI", "LINES"]);
    }

    #[test]
    fn every_counter_has_its_own_name() {
        let names: Vec<_> = Ledger::default().named().map(|(name, _)| name).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name}");
        }
        for (dissector, counter) in OWN_COUNTERS {
            assert!(
                names.contains(&counter.name) && !counter.label.is_empty(),
                "{dissector}"
            );
            assert!(counter.doc.ends_with('.'), "{}", counter.doc);
        }
    }

    /// An operation with different names in captures and workloads is mapped in both directions.
    #[test]
    fn kinds_are_mapped_both_ways() {
        for kind in OperationKind::all() {
            let back = kind
                .op()
                .map(|op| OperationKind::of_op(op).any(|other| other == kind));
            assert_ne!(back, Some(false), "{}", kind.name());
        }
        for op in brunt_result::op::TABLE {
            let kinds: Vec<_> = OperationKind::of_op(op.kind).collect();
            assert!(kinds.iter().all(|kind| kind.op() == Some(op.kind)));
            // NFS has no operation that only truncates: it uses SETATTR.
            let has = !matches!(op.kind, OpKind::Truncate | OpKind::WriteZeroes);
            assert_eq!(
                kinds.iter().any(|kind| kind.dissector() == "rpc"),
                has,
                "{}",
                op.name
            );
        }
        let names = |op| {
            OperationKind::of_op(op)
                .map(OperationKind::name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(OpKind::ReadDirectory), ["READDIR", "READDIRPLUS"]);
        assert_eq!(names(OpKind::Write), ["WRITE", "SCSI WRITE", "put"]);
    }
}
