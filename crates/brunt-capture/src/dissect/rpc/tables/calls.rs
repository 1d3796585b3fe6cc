//! RPC headers: the tables `rpc_calls`, `callers` and `caller_groups`. The one rule: a caller's row is written before
//! the first call that refers to it.

use brunt_lake::{Column, Table};
use brunt_wire::rpc;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::dissect::rpc::exchange::Exchange;
use crate::trace::common::{Common, RECORD};
use crate::trace::rows::{Handle, Registry, Tabled};

/// Headers of calls and replies.
pub const RPC_CALLS: Table = Table {
    name: "rpc_calls",
    doc: "One row for each RPC call with its reply: the RPC headers, in the order of `operations`.",
    columns: &[
        RECORD,
        Column::int("program", "RPC program number: 100003 NFS, 100005 MOUNT."),
        Column::int("version", "Program version."),
        Column::int("procedure", "Procedure number."),
        Column::int(
            "rpc_status",
            "Status of the RPC reply: 0 success, 1 to 5 an `accept_stat`, 6 version mismatch, 7 \
             authentication error; null if no reply was captured.",
        )
        .nullable(),
        Column::int(
            "auth",
            "Flavor of the credentials: 0 none, 1 AUTH_SYS, 6 RPCSEC_GSS.",
        ),
        Column::int("uid", "The caller's user id; null without AUTH_SYS.").nullable(),
        Column::int("gid", "The caller's group id; null without AUTH_SYS.").nullable(),
        Column::int(
            "caller",
            "The caller's AUTH_SYS credentials: `callers.caller`; null without AUTH_SYS.",
        )
        .nullable(),
        Column::int("call_header_bytes", "Length of the call's RPC header."),
        Column::int(
            "reply_header_bytes",
            "Length of the reply's RPC header; null without a reply.",
        )
        .nullable(),
    ],
};

/// Callers.
pub const CALLERS: Table = Table {
    name: "callers",
    doc: "One row for each set of AUTH_SYS credentials, written when a parser first sees it; in long \
     captures, some sets are repeated.",
    columns: &[
        Column::int("caller", "Number of this set of credentials."),
        Column::text(
            "machine_name",
            "Machine name that the caller sent, written as in `names`.",
        ),
        Column::int("uid", "User id."),
        Column::int("gid", "Group id."),
        Column::int(
            "group_count",
            "Number of supplementary groups; the groups are in `caller_groups`.",
        ),
    ],
};

/// Supplementary groups of callers.
pub const CALLER_GROUPS: Table = Table {
    name: "caller_groups",
    doc: "One row for each supplementary group of AUTH_SYS credentials.",
    columns: &[
        Column::int("caller", "The set of credentials: `callers.caller`."),
        Column::int("position", "Position in the list, from 0."),
        Column::int("gid", "Group id."),
    ],
};

/// Maximum credentials remembered as written; when it is reached, all are forgotten and written again.
const CALLERS_MAX: usize = 64 << 10;

struct CallsTable;

impl Tabled for CallsTable {
    const TABLE: &'static Table = &RPC_CALLS;
}

struct CallersTable;

impl Tabled for CallersTable {
    const TABLE: &'static Table = &CALLERS;
    const REFERRED_TO: bool = true;
}

struct GroupsTable;

impl Tabled for GroupsTable {
    const TABLE: &'static Table = &CALLER_GROUPS;
    const REFERRED_TO: bool = true;
}

/// The caller's columns in a row of `rpc_calls`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Caller {
    number: i64,
    uid: i64,
    gid: i64,
}

/// The call and caller tables of a pipeline.
pub struct Calls {
    calls: Handle<CallsTable>,
    callers: Handle<CallersTable>,
    groups: Handle<GroupsTable>,
    /// Callers known to be in the trace, by a hash of their credentials.
    known: HashMap<u64, Option<Caller>, FixedState>,
    next: u64,
}

impl Calls {
    pub fn register(registry: &mut Registry) -> Calls {
        Calls {
            calls: registry.add(),
            callers: registry.add(),
            groups: registry.add(),
            known: HashMap::with_hasher(FixedState::default()),
            next: 0,
        }
    }

    /// Called when the rows written so far may be deleted: forgets all callers, so that they are written again.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    #[inline]
    pub fn record(&mut self, id: i64, exchange: &Exchange<'_>, common: &mut Common) {
        let call = exchange.call;
        let caller = self.caller(&call.credentials, common);
        common
            .rows
            .line(self.calls)
            .int(id)
            .int(call.program.into())
            .int(call.version.into())
            .int(call.procedure.into())
            .int_or_null(exchange.reply.map(|reply| rpc_status(reply.status)))
            .int(call.credentials.flavor.number().into())
            .int_or_null(caller.map(|caller| caller.uid))
            .int_or_null(caller.map(|caller| caller.gid))
            .int_or_null(caller.map(|caller| caller.number))
            .int(call.body_at as i64)
            .int_or_null(exchange.reply.map(|reply| reply.body_at as i64))
            .end();
    }

    /// The caller, if the credentials are AUTH_SYS; writes the caller's row if it is new.
    #[inline]
    fn caller(&mut self, credentials: &rpc::OpaqueAuth<'_>, common: &mut Common) -> Option<Caller> {
        if credentials.flavor != rpc::AuthFlavor::Sys {
            return None;
        }
        // The key leaves out the stamp at the start, which may differ per call. Looking up the hash costs less than
        // parsing the credentials.
        let key = twox_hash::XxHash3_64::oneshot(credentials.body.get(4..).unwrap_or_default());
        match self.known.get(&key) {
            Some(known) => *known,
            None => self.new_caller(key, credentials, common),
        }
    }

    #[cold]
    fn new_caller(
        &mut self,
        key: u64,
        credentials: &rpc::OpaqueAuth<'_>,
        common: &mut Common,
    ) -> Option<Caller> {
        if self.known.len() >= CALLERS_MAX {
            self.known.clear();
        }
        let caller = credentials.sys().map(|sys| {
            let number = common.number(self.next);
            self.next += 1;
            let Common {
                rows,
                hide: pseudonyms,
                ..
            } = &mut *common;
            let hide = |number: u32| pseudonyms.number(number.into());
            let (uid, gid) = (hide(sys.uid), hide(sys.gid));
            let groups = sys.groups.as_chunks::<4>().0;
            let row = rows.row(self.callers).int(number);
            let row = pseudonyms.name(sys.machine_name, |name| row.text(name));
            row.int(uid).int(gid).int(groups.len() as i64).end();
            for (position, group) in (0..).zip(groups) {
                rows.row(self.groups)
                    .int(number)
                    .int(position)
                    .int(hide(u32::from_be_bytes(*group)))
                    .end();
            }
            Caller { number, uid, gid }
        });
        self.known.insert(key, caller);
        caller
    }
}

fn rpc_status(status: rpc::ReplyStatus) -> i64 {
    match status {
        rpc::ReplyStatus::Success => 0,
        rpc::ReplyStatus::ProgUnavail => 1,
        rpc::ReplyStatus::ProgMismatch => 2,
        rpc::ReplyStatus::ProcUnavail => 3,
        rpc::ReplyStatus::GarbageArgs => 4,
        rpc::ReplyStatus::SystemErr => 5,
        rpc::ReplyStatus::RpcMismatch => 6,
        rpc::ReplyStatus::AuthError(_) => 7,
    }
}
