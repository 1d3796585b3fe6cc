//! The calls of a replay in the order of the trace: what each needs, when it is due, and which earlier calls it waits
//! for.
//!
//! A call waits for an earlier one if that had ended in the trace before the call began, and if both refer to the
//! same name, or one of them creates or removes an object that the other uses. An operation on locks waits for
//! earlier operations that changed the locks on the file; one that changes locks also waits for earlier ones that
//! depended on them. Calls that ran at the same time don't wait for each other.
//!
//! The rule: each call of the trace is either in the plan or counted with the reason for leaving it out.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use brunt_nfs::v41::{NfsLockOp, NfsRange};
use brunt_result::OpKind;
use brunt_trace::nfs::{
    NfsTrace, NfsTraceCall, NfsTraceCaller, NfsTraceLock, NfsTraceSet, NfsTraceTime,
};
use brunt_wire::nfs::v3::{FileType, NfsTime, Procedure, Status};

use super::layout::TreeLayout;
use super::namespace::{CallObjects, NONE, Namespace};

/// Maximum number of earlier users of a name or object for which a call that removes it waits; these are the latest
/// users.
const USERS_MAX: usize = 4096;
const NOT_SYNC: u32 = 10002;
/// The rights of ACCESS (RFC 1813, 3.3.4). NFSv4.2 has more, for extended attributes (RFC 8276), which servers reject
/// in other versions.
const RIGHTS: u32 = 0x3f;
const NANOS: i64 = 1_000_000_000;

/// Why a captured call is left out of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum NotReplayable {
    #[error("unknown procedure")]
    UnknownProcedure,
    #[error("arguments not captured")]
    NoArguments,
    #[error("a handle that was stale before the trace")]
    StaleHandle,
    #[error("continues a listing that was not captured")]
    UnknownListing,
    #[error("NFSv4 LOCKU: releases a lock from before the trace")]
    UnknownLock,
}

/// Arguments of specific procedures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallDetail {
    None,
    /// WRITE: `stable_how`, as its number (RFC 1813, 3.3.7).
    Stable(u32),
    /// ACCESS: the requested rights, as a bit mask.
    Access(u32),
    /// The attributes that the call sets: an index into [`ReplayActions::sets`].
    Set(u32),
    /// Maximum bytes of names and cookies, and of the whole reply; `after` is the action whose listing this one
    /// continues.
    Listing {
        dir_bytes_max: u32,
        bytes_max: u32,
        after: u32,
    },
    /// An operation on locks, in place of the procedure.
    Lock {
        op: NfsLockOp,
        range: NfsRange,
        owner: u32,
    },
}

/// The attributes that a call sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ActionSet {
    pub(super) set: NfsTraceSet,
    pub(super) atime: NfsTime,
    pub(super) mtime: NfsTime,
    pub(super) guard: Option<NfsTime>,
    pub(super) kind: Option<FileType>,
}

/// A call to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Action {
    /// When the call began and when its reply arrived, relative to the start of the first call.
    pub(super) start_ns: u64,
    pub(super) end_ns: Option<u64>,
    /// The client, an index into [`NfsTrace::clients`].
    pub(super) client: u32,
    /// The caller, an index into [`ReplayActions::callers`].
    pub(super) caller: Option<u32>,
    /// NULL for an operation on locks ([`Action::lock`]).
    pub(super) procedure: Procedure,
    /// The call's status in the trace, if known.
    pub(super) status: Option<Status>,
    /// Bytes transferred in the trace.
    pub(super) moved_bytes: u64,
    pub(super) objects: CallObjects,
    /// Indexes of the call's texts (names, link targets); [`NONE`] if it has none.
    pub(super) name: u32,
    pub(super) new_name: u32,
    pub(super) offset_bytes: u64,
    pub(super) asked_bytes: u32,
    pub(super) detail: CallDetail,
    /// Start of the actions that it waits for in [`ReplayActions::waits`]; they end where the next action's start.
    waits_at: u32,
    /// Number of its client's calls that had ended before it began.
    pub(super) ended_before: u32,
}

impl Action {
    /// Returns the lock operation that the action performs, if any.
    pub(super) fn lock(&self) -> Option<NfsLockOp> {
        match self.detail {
            CallDetail::Lock { op, .. } => Some(op),
            _ => None,
        }
    }

    /// Returns the name of the action's procedure or operation.
    pub(super) fn name(&self) -> &'static str {
        let lock = self.lock().map(NfsLockOp::name);
        lock.unwrap_or(self.procedure.name())
    }

    /// Returns the kind that the action counts as.
    pub(super) fn kind(&self) -> OpKind {
        match self.lock() {
            Some(NfsLockOp::Lock) => return OpKind::Lock,
            Some(NfsLockOp::Test) => return OpKind::TestLock,
            Some(NfsLockOp::Unlock) => return OpKind::Unlock,
            None => {}
        }
        match self.procedure {
            Procedure::Null | Procedure::Fsstat | Procedure::Fsinfo | Procedure::Pathconf => {
                OpKind::FileSystem
            }
            Procedure::Getattr => OpKind::GetAttributes,
            Procedure::Setattr => OpKind::SetAttributes,
            Procedure::Lookup => OpKind::Lookup,
            Procedure::Access => OpKind::Access,
            Procedure::Readlink => OpKind::ReadLink,
            Procedure::Read => OpKind::Read,
            Procedure::Write => OpKind::Write,
            Procedure::Create | Procedure::Mknod => OpKind::Create,
            Procedure::Mkdir => OpKind::MakeDirectory,
            Procedure::Symlink => OpKind::SymbolicLink,
            Procedure::Remove => OpKind::Remove,
            Procedure::Rmdir => OpKind::RemoveDirectory,
            Procedure::Rename => OpKind::Rename,
            Procedure::Link => OpKind::Link,
            Procedure::Readdir | Procedure::Readdirplus => OpKind::ReadDirectory,
            Procedure::Commit => OpKind::Flush,
        }
    }
}

/// The calls of a replay.
#[derive(Debug, Default)]
pub(super) struct ReplayActions {
    pub(super) actions: Vec<Action>,
    waits: Vec<u32>,
    pub(super) sets: Vec<ActionSet>,
    pub(super) texts: Vec<Box<[u8]>>,
    pub(super) callers: Vec<NfsTraceCaller>,
    pub(super) clients: Vec<String>,
    /// For each client, its actions in the order of their replies.
    pub(super) ends: Vec<Vec<u32>>,
    /// Actions whose status depended on which of two calls the server executed first.
    pub(super) races: HashSet<u32>,
    /// Calls of the trace that are not replayed, by reason.
    pub(super) left_out: BTreeMap<String, u64>,
    /// Calls in `left_out` that clients made on behalf of their users.
    pub(super) not_replayable: u64,
    /// SETATTR calls sent without their guard (the file's ctime), which would not match on another server.
    pub(super) guards_dropped: u64,
}

impl ReplayActions {
    /// Returns the kinds of the replay's calls, in the order of [`OpKind`].
    pub(super) fn kinds(&self) -> Vec<OpKind> {
        let kinds: BTreeSet<OpKind> = self.actions.iter().map(Action::kind).collect();
        kinds.into_iter().collect()
    }

    /// Returns the actions that this action waits for.
    pub(super) fn waits_of(&self, action: u32) -> &[u32] {
        let at = |index: usize| {
            self.actions
                .get(index)
                .map(|action| action.waits_at as usize)
        };
        let start = at(action as usize).unwrap_or(0);
        let end = at(action as usize + 1).unwrap_or(self.waits.len());
        &self.waits[start..end]
    }

    pub(super) fn of(trace: NfsTrace, namespace: &Namespace, layout: &TreeLayout) -> ReplayActions {
        let planted = layout.entries.iter().map(|entry| entry.object);
        let planted: HashSet<u32> = planted.collect();
        let mut planner = ActionPlanner {
            trace: &trace,
            namespace,
            planted: &planted,
            uses: Uses::default(),
            creators: HashMap::new(),
            listings: HashMap::new(),
            locked: HashSet::new(),
            plan: ReplayActions::default(),
        };
        let first_ns = trace.calls.first().map_or(0, |call| call.start_ns);
        for (index, call) in trace.calls.iter().enumerate() {
            if let Err(why) = planner.add(call, namespace.calls[index], first_ns) {
                *planner.plan.left_out.entry(why.to_string()).or_default() += 1;
                planner.plan.not_replayable += 1;
            }
        }
        let mut plan = planner.plan;
        plan.races = planner.uses.races;
        for (what, count) in trace.others {
            *plan.left_out.entry(what).or_default() += count;
        }
        for (what, count) in trace.without_counterpart {
            *plan.left_out.entry(what).or_default() += count;
            plan.not_replayable += count;
        }
        (plan.texts, plan.callers, plan.clients) = (trace.texts, trace.callers, trace.clients);
        plan.count_ends();
        plan
    }

    fn count_ends(&mut self) {
        let mut ends: Vec<Vec<u32>> = vec![Vec::new(); self.clients.len()];
        for (index, action) in self.actions.iter().enumerate() {
            if action.end_ns.is_some() {
                ends[action.client as usize].push(index as u32);
            }
        }
        for ends in &mut ends {
            ends.sort_by_key(|index| self.actions[*index as usize].end_ns);
        }
        let mut passed = vec![0; ends.len()];
        for index in 0..self.actions.len() {
            let (client, start) = (
                self.actions[index].client as usize,
                self.actions[index].start_ns,
            );
            let passed: &mut usize = &mut passed[client];
            // Always an earlier call, even if times are wrong: waiting for a later one would never end.
            while let Some(end) = ends[client].get(*passed)
                && self.actions[*end as usize].end_ns <= Some(start)
                && (*end as usize) < index
            {
                *passed += 1;
            }
            self.actions[index].ended_before = *passed as u32;
        }
        self.ends = ends;
    }
}

/// A resource that calls use: an object, or a name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Used {
    Object(u32),
    Name(u32, u32),
    /// The locks on an object.
    Locks(u32),
}

/// An action, and when it ended in the trace.
#[derive(Clone, Copy, Debug)]
struct Ended {
    action: u32,
    end_ns: Option<u64>,
}

/// The action that last created or removed a resource, and the later ones that used it.
#[derive(Debug, Default)]
struct History {
    changed: Option<Ended>,
    users: VecDeque<Ended>,
}

#[derive(Debug, Default)]
struct Uses {
    histories: HashMap<Used, History>,
    /// Actions that ran concurrently with another one that changed a resource they use.
    races: HashSet<u32>,
}

impl Uses {
    /// Records that an action uses a resource, or changes whether it exists. Appends the actions that the action has
    /// to wait for.
    fn add(&mut self, used: Used, changes: bool, me: Ended, start_ns: u64, waits: &mut Vec<u32>) {
        let (histories, races) = (&mut self.histories, &mut self.races);
        let history = histories.entry(used).or_default();
        let mut wait = |other: &Ended| {
            if other.end_ns.is_some_and(|end| end <= start_ns) {
                waits.push(other.action);
            } else if other.action != me.action {
                races.extend([me.action, other.action]);
            }
        };
        history.changed.iter().for_each(&mut wait);
        if changes {
            history.users.iter().for_each(&mut wait);
            history.users.clear();
            history.changed = Some(me);
            return;
        }
        if history.users.len() == USERS_MAX {
            history.users.pop_front();
        }
        history.users.push_back(me);
    }
}

struct ActionPlanner<'a> {
    trace: &'a NfsTrace,
    namespace: &'a Namespace,
    planted: &'a HashSet<u32>,
    uses: Uses,
    /// The action that created an object.
    creators: HashMap<u32, u32>,
    /// The action whose listing of a directory ended with this cookie.
    listings: HashMap<(u32, u64), u32>,
    /// Objects on which an owner has had a lock.
    locked: HashSet<(u32, u32)>,
    plan: ReplayActions,
}

impl ActionPlanner<'_> {
    /// Adds a call of the trace to the plan.
    ///
    /// # Errors
    /// The call is not replayed; the error is the reason.
    fn add(
        &mut self,
        call: &NfsTraceCall,
        objects: CallObjects,
        first_ns: i64,
    ) -> Result<(), NotReplayable> {
        let since = |at: i64| at.saturating_sub(first_ns).max(0) as u64;
        let procedure =
            Procedure::from_number(call.procedure).ok_or(NotReplayable::UnknownProcedure)?;
        let lock = self.trace.locks.first(call.record);
        if procedure != Procedure::Null || lock.is_some() {
            self.check_objects(procedure, objects)?;
        }
        let [name, new_name] = self.names(procedure, call)?;
        let detail = self.detail(procedure, call, objects)?;
        let me = self.plan.actions.len() as u32;
        let action = Action {
            start_ns: since(call.start_ns),
            end_ns: call.end_ns.map(since),
            client: call.client,
            caller: call.caller,
            procedure,
            // NULL has no object.
            status: match (procedure, call.end_ns) {
                (Procedure::Null, Some(_)) if lock.is_none() => Some(Status::OK),
                _ => call.status.map(Status),
            },
            moved_bytes: call.moved_bytes,
            objects,
            name,
            new_name,
            offset_bytes: call.offset_bytes,
            asked_bytes: call.asked_bytes,
            detail,
            waits_at: self.plan.waits.len() as u32,
            ended_before: 0,
        };
        self.wait(me, &action);
        if let Some(last) = self.trace.entries.of(call.record).last() {
            self.listings.insert((objects.object, last.cookie), me);
        }
        self.plan.actions.push(action);
        Ok(())
    }

    /// Checks that the replay can obtain the handles that a call needs.
    fn check_objects(
        &self,
        procedure: Procedure,
        objects: CallObjects,
    ) -> Result<(), NotReplayable> {
        let needs_second = matches!(procedure, Procedure::Rename | Procedure::Link);
        let needed = match needs_second {
            true => [objects.object, objects.other],
            false => [objects.object, objects.object],
        };
        for id in needed {
            if id == NONE {
                return Err(NotReplayable::NoArguments);
            }
            let is_created = self.namespace.objects[id as usize].is_created;
            if !is_created && !self.planted.contains(&id) {
                return Err(NotReplayable::StaleHandle);
            }
        }
        Ok(())
    }

    fn names(&self, procedure: Procedure, call: &NfsTraceCall) -> Result<[u32; 2], NotReplayable> {
        let count = match procedure {
            Procedure::Rename => 2,
            Procedure::Lookup
            | Procedure::Create
            | Procedure::Mkdir
            | Procedure::Symlink
            | Procedure::Mknod
            | Procedure::Remove
            | Procedure::Rmdir
            | Procedure::Link => 1,
            _ => 0,
        };
        let mut names = [NONE; 2];
        for (position, name) in names.iter_mut().take(count).enumerate() {
            let mut rows = self.trace.names.of(call.record);
            let row = rows.find(|row| row.position == position as u32);
            *name = row
                .and_then(|row| row.name)
                .ok_or(NotReplayable::NoArguments)?;
        }
        if procedure == Procedure::Symlink {
            let row = self.trace.names.first(call.record);
            names[1] = row
                .and_then(|row| row.target)
                .ok_or(NotReplayable::NoArguments)?;
        }
        Ok(names)
    }

    fn detail(
        &mut self,
        procedure: Procedure,
        call: &NfsTraceCall,
        objects: CallObjects,
    ) -> Result<CallDetail, NotReplayable> {
        let missing = NotReplayable::NoArguments;
        let record = call.record;
        Ok(match procedure {
            Procedure::Write => {
                CallDetail::Stable(*self.trace.stable.first(record).ok_or(missing)?)
            }
            Procedure::Access => {
                let rights = self.trace.accesses.first(record).ok_or(missing)?;
                CallDetail::Access(rights & RIGHTS)
            }
            Procedure::Readdir | Procedure::Readdirplus => {
                let listing = self.trace.listings.first(record).ok_or(missing)?;
                let after = match listing.cookie {
                    0 => NONE,
                    cookie => *self
                        .listings
                        .get(&(objects.object, cookie))
                        .ok_or(NotReplayable::UnknownListing)?,
                };
                CallDetail::Listing {
                    dir_bytes_max: listing.dir_bytes_max,
                    bytes_max: listing.bytes_max,
                    after,
                }
            }
            Procedure::Setattr
            | Procedure::Create
            | Procedure::Mkdir
            | Procedure::Symlink
            | Procedure::Mknod => {
                let set = *self.trace.sets.first(record).ok_or(missing)?;
                let mut args = action_set(set);
                // A guard is useful only if the call failed because of it.
                if args.guard.is_some() && call.status != Some(NOT_SYNC) {
                    args.guard = None;
                    self.plan.guards_dropped += 1;
                }
                self.plan.sets.push(args);
                CallDetail::Set(self.plan.sets.len() as u32 - 1)
            }
            _ => match self.trace.locks.first(record) {
                Some(lock) => self.lock(lock, call, objects)?,
                None => CallDetail::None,
            },
        })
    }

    fn lock(
        &mut self,
        lock: &NfsTraceLock,
        call: &NfsTraceCall,
        objects: CallObjects,
    ) -> Result<CallDetail, NotReplayable> {
        let op = NfsLockOp::from_number(lock.operation).ok_or(NotReplayable::UnknownProcedure)?;
        let holder = (objects.object, lock.owner);
        match op {
            NfsLockOp::Lock if matches!(call.status, Some(0) | None) => {
                self.locked.insert(holder);
            }
            NfsLockOp::Unlock if !self.locked.contains(&holder) => {
                return Err(NotReplayable::UnknownLock);
            }
            _ => {}
        }
        Ok(CallDetail::Lock {
            op,
            range: NfsRange {
                kind: lock.kind,
                offset: call.offset_bytes,
                length: lock.length_bytes,
            },
            owner: lock.owner,
        })
    }

    fn wait(&mut self, me: u32, action: &Action) {
        let Action {
            objects,
            procedure,
            start_ns,
            ..
        } = *action;
        let (is_ok, mine) = (
            action.status == Some(Status::OK),
            Ended {
                action: me,
                end_ns: action.end_ns,
            },
        );
        let (uses, mut waits) = (&mut self.uses, Vec::new());
        let mut add = |used, changes| uses.add(used, changes, mine, start_ns, &mut waits);
        for id in [objects.object, objects.other] {
            if id != NONE {
                add(Used::Object(id), false);
            }
        }
        let creates = matches!(
            procedure,
            Procedure::Create | Procedure::Mkdir | Procedure::Symlink | Procedure::Mknod
        );
        let changes_name = creates
            || matches!(
                procedure,
                Procedure::Remove | Procedure::Rmdir | Procedure::Rename | Procedure::Link
            );
        if action.name != NONE {
            let directory = match procedure {
                Procedure::Link => objects.other,
                _ => objects.object,
            };
            add(Used::Name(directory, action.name), changes_name && is_ok);
        }
        if procedure == Procedure::Rename {
            add(Used::Name(objects.other, action.new_name), is_ok);
        }
        if let Some(op) = action.lock() {
            let changes = is_ok && op != NfsLockOp::Test;
            add(Used::Locks(objects.object), changes);
        }
        if objects.result != NONE {
            add(Used::Object(objects.result), creates);
        }
        if objects.victim != NONE {
            add(Used::Object(objects.victim), true);
        }
        if creates && objects.result != NONE {
            self.creators.entry(objects.result).or_insert(me);
        }
        // The server's handle is known only after the call that created the object, whatever result the trace records
        // for that call.
        let objects = [objects.object, objects.other];
        waits.extend(objects.iter().filter_map(|id| self.creators.get(id)));
        if let CallDetail::Listing { after, .. } = action.detail
            && after != NONE
        {
            waits.push(after);
        }
        waits.sort_unstable();
        waits.dedup();
        // Whatever the trace's handles and times are, an action never waits for itself, because it would wait
        // forever.
        waits.retain(|earlier| *earlier < me);
        self.plan.waits.extend(waits);
    }
}

fn nfs_time(at_ns: i64) -> NfsTime {
    NfsTime {
        // Times before 1970 and after 2106 cannot be represented.
        seconds: (at_ns.div_euclid(NANOS).clamp(0, u32::MAX.into()) as u32).into(),
        nseconds: (at_ns.rem_euclid(NANOS) as u32).into(),
    }
}

fn action_set(set: NfsTraceSet) -> ActionSet {
    let time = |time| match time {
        NfsTraceTime::At(at) => nfs_time(at),
        _ => NfsTime::default(),
    };
    ActionSet {
        atime: time(set.atime),
        mtime: time(set.mtime),
        guard: set.guard_ctime.map(nfs_time),
        kind: set.kind.map(FileType::from_number),
        set,
    }
}
