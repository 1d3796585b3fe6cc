//! Writes the calls of a plan, with the target's handles in place of the trace's, and keeps the
//! target's answers.
//!
//! The rule: a call is only written when all of its handles are known.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use brunt_nfs::calls::write_args;
use brunt_nfs::operations::{ENTRIES_BYTES_MAX, NfsAnswer, NfsAsk, NfsNames, NfsPlan};
use brunt_nfs::v41::NfsLock;
use brunt_wire::nfs::FileHandle;
use brunt_wire::nfs::v3::{
    Args, CreateHow, DirOp, FileType, NodeKind, Procedure, ResultBody, SetAttributes, SetTime,
    StableHow, Status,
};
use brunt_wire::rpc::{GROUPS_MAX, MACHINE_NAME_BYTES_MAX, SysCredentials};

use brunt_trace::nfs::{NfsTraceCaller, NfsTraceTime};

use super::namespace::NONE;
use super::plan::{Action, ActionSet, CallDetail, ReplayActions};
use crate::nfs::tree::OwnedHandle;

/// The target's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TargetAnswer {
    pub(super) status: Status,
    pub(super) moved_bytes: u32,
}

/// State of a run, shared by its connections.
#[derive(Debug)]
pub(super) struct ReplayState {
    actions: Arc<ReplayActions>,
    /// The target's handle of each object.
    handles: Vec<OnceCell<OwnedHandle>>,
    /// Cookie and verifier at the end of each directory listing that a later call continues.
    cookies: RefCell<HashMap<u32, (u64, u64)>>,
    followed: HashSet<u32>,
    answers: RefCell<HashMap<u32, TargetAnswer>>,
    /// AUTH_SYS bodies of the callers' credentials; empty if all calls use the credentials of the URL.
    credentials: Vec<Vec<u8>>,
    read_bytes_max: u32,
    write_bytes_max: u32,
}

impl ReplayState {
    pub(super) fn new(
        actions: Arc<ReplayActions>,
        objects: usize,
        known: &[(u32, OwnedHandle)],
        (read_bytes_max, write_bytes_max): (u32, u32),
        as_traced: bool,
    ) -> ReplayState {
        let handles: Vec<OnceCell<OwnedHandle>> = vec![OnceCell::new(); objects];
        for (object, handle) in known {
            let _ = handles[*object as usize].set(*handle);
        }
        let followed = actions
            .actions
            .iter()
            .filter_map(|action| match action.detail {
                CallDetail::Listing { after, .. } if after != NONE => Some(after),
                _ => None,
            });
        let callers = if as_traced { &actions.callers[..] } else { &[] };
        ReplayState {
            handles,
            cookies: RefCell::default(),
            followed: followed.collect(),
            answers: RefCell::default(),
            credentials: callers.iter().map(credentials).collect(),
            read_bytes_max,
            write_bytes_max,
            actions,
        }
    }

    fn handle(&self, object: u32) -> FileHandle<'_> {
        let handle = self.handles.get(object as usize).and_then(OnceCell::get);
        handle
            .expect("a call is sent when its handles are known")
            .as_handle()
    }

    fn is_known(&self, object: u32) -> bool {
        object == NONE || self.handles[object as usize].get().is_some()
    }

    /// Returns true if the target's handles are known for every object that a call names.
    pub(super) fn can_send(&self, action: &Action) -> bool {
        let has_cookie = match action.detail {
            CallDetail::Listing { after, .. } => {
                after == NONE || self.cookies.borrow().contains_key(&after)
            }
            _ => true,
        };
        has_cookie && self.is_known(action.objects.object) && self.is_known(action.objects.other)
    }

    /// Returns the number of bytes that a call moves, and whether the target's transfer limit made the call shorter
    /// than in the trace.
    pub(super) fn transfer(&self, action: &Action) -> (u32, bool) {
        let (asked, limit) = match action.procedure {
            Procedure::Read => (action.asked_bytes, self.read_bytes_max),
            Procedure::Write => (action.asked_bytes, self.write_bytes_max),
            _ => (0, 0),
        };
        (asked.min(limit), asked > limit)
    }

    /// Returns the answer to a call that was just completed.
    pub(super) fn take_answer(&self, action: u32) -> Option<TargetAnswer> {
        self.answers.borrow_mut().remove(&action)
    }

    fn text(&self, text: u32) -> &[u8] {
        &self.actions.texts[text as usize]
    }

    fn set(&self, action: &Action) -> &ActionSet {
        match action.detail {
            CallDetail::Set(index) => &self.actions.sets[index as usize],
            _ => unreachable!("a call that sets attributes has them"),
        }
    }

    fn list(&self, action: &Action) -> Args<'_> {
        let CallDetail::Listing {
            dir_bytes_max,
            bytes_max,
            after,
        } = action.detail
        else {
            unreachable!("a listing has its limits")
        };
        let cookies = self.cookies.borrow();
        let (cookie, cookie_verifier) = cookies.get(&after).copied().unwrap_or((0, 0));
        let dir = self.handle(action.objects.object);
        let bytes_max = bytes_max.min(ENTRIES_BYTES_MAX);
        match action.procedure {
            Procedure::Readdir => Args::Readdir {
                dir,
                cookie,
                cookie_verifier,
                count: bytes_max,
            },
            _ => Args::Readdirplus {
                dir,
                cookie,
                cookie_verifier,
                dir_count: dir_bytes_max,
                max_count: bytes_max,
            },
        }
    }

    /// A call that creates a name.
    fn create<'a>(&'a self, action: &Action, place: DirOp<'a>) -> Args<'a> {
        let set = self.set(action);
        let attributes = attributes(set);
        match action.procedure {
            Procedure::Create => Args::Create {
                place,
                how: match set.set.how {
                    Some(2) => CreateHow::Exclusive(set.set.verifier),
                    Some(1) => CreateHow::Guarded(attributes),
                    _ => CreateHow::Unchecked(attributes),
                },
            },
            Procedure::Mkdir => Args::Mkdir { place, attributes },
            Procedure::Symlink => Args::Symlink {
                place,
                attributes,
                target: self.text(action.new_name),
            },
            _ => {
                let kind = set.kind.unwrap_or(FileType::Fifo);
                let what = match kind {
                    FileType::BlockDevice | FileType::CharacterDevice => {
                        NodeKind::Device(kind, attributes, set.set.device)
                    }
                    FileType::Socket | FileType::Fifo => NodeKind::Pipe(kind, attributes),
                    other => NodeKind::Other(other),
                };
                Args::Mknod { place, what }
            }
        }
    }

    fn data(&self, action: &Action, count: u32) -> Args<'_> {
        let (file, offset) = (self.handle(action.objects.object), action.offset_bytes);
        if action.procedure == Procedure::Read {
            return Args::Read {
                file,
                offset,
                count,
            };
        }
        let stable = match action.detail {
            CallDetail::Stable(1) => StableHow::DataSync,
            CallDetail::Stable(2) => StableHow::FileSync,
            _ => StableHow::Unstable,
        };
        write_args(file, offset, count, stable)
    }

    fn args(&self, action: &Action, len: u32) -> Args<'_> {
        let handle = |id| self.handle(id);
        let object = action.objects.object;
        let entry = || DirOp {
            dir: handle(object),
            name: self.text(action.name),
        };
        match action.procedure {
            Procedure::Null => Args::Null,
            Procedure::Getattr => Args::Getattr {
                object: handle(object),
            },
            Procedure::Setattr => {
                let set = self.set(action);
                Args::Setattr {
                    object: handle(object),
                    attributes: attributes(set),
                    guard: set.guard.as_ref(),
                }
            }
            Procedure::Lookup => Args::Lookup { what: entry() },
            Procedure::Access => Args::Access {
                object: handle(object),
                access: match action.detail {
                    CallDetail::Access(rights) => rights,
                    _ => unreachable!("ACCESS asks for rights"),
                },
            },
            Procedure::Readlink => Args::Readlink {
                symlink: handle(object),
            },
            Procedure::Read | Procedure::Write => self.data(action, len),
            Procedure::Create | Procedure::Mkdir | Procedure::Symlink | Procedure::Mknod => {
                self.create(action, entry())
            }
            Procedure::Remove => Args::Remove { object: entry() },
            Procedure::Rmdir => Args::Rmdir { object: entry() },
            Procedure::Rename => Args::Rename {
                from: entry(),
                to: DirOp {
                    dir: handle(action.objects.other),
                    name: self.text(action.new_name),
                },
            },
            Procedure::Link => Args::Link {
                file: handle(object),
                link: DirOp {
                    dir: handle(action.objects.other),
                    name: self.text(action.name),
                },
            },
            Procedure::Readdir | Procedure::Readdirplus => self.list(action),
            Procedure::Fsstat => Args::Fsstat {
                root: handle(object),
            },
            Procedure::Fsinfo => Args::Fsinfo {
                root: handle(object),
            },
            Procedure::Pathconf => Args::Pathconf {
                object: handle(object),
            },
            Procedure::Commit => Args::Commit {
                file: handle(object),
                offset: action.offset_bytes,
                count: action.asked_bytes,
            },
        }
    }
}

/// A trace may list more groups than AUTH_SYS can carry; the rest is left out.
fn credentials(caller: &NfsTraceCaller) -> Vec<u8> {
    let name = &caller.machine_name;
    let groups: Vec<u8> = caller
        .groups
        .iter()
        .take(GROUPS_MAX as usize)
        .flat_map(|gid| gid.to_be_bytes())
        .collect();
    let mut body = Vec::new();
    SysCredentials {
        machine_name: &name[..name.len().min(MACHINE_NAME_BYTES_MAX as usize)],
        uid: caller.uid,
        gid: caller.gid,
        groups: &groups,
    }
    .encode(std::process::id(), &mut body);
    body
}

fn attributes(set: &ActionSet) -> SetAttributes<'_> {
    let time = |how, at| match how {
        NfsTraceTime::Unchanged => SetTime::DontChange,
        NfsTraceTime::Server => SetTime::ServerTime,
        NfsTraceTime::At(_) => SetTime::ClientTime(at),
    };
    SetAttributes {
        mode: set.set.mode,
        uid: set.set.uid,
        gid: set.set.gid,
        size: set.set.size_bytes,
        atime: time(set.set.atime, &set.atime),
        mtime: time(set.set.mtime, &set.mtime),
    }
}

/// Writes the calls of one connection.
#[derive(Clone, Debug)]
pub(super) struct ReplayCalls(pub(super) Rc<ReplayState>);

impl NfsPlan for ReplayCalls {
    fn lock(&self, ask: NfsAsk) -> Option<NfsLock<'_>> {
        let action = &self.0.actions.actions[ask.offset as usize];
        match action.detail {
            CallDetail::Lock { op, range, owner } => Some(NfsLock {
                op,
                file: self.0.handle(action.objects.object),
                range,
                owner,
            }),
            _ => None,
        }
    }

    fn call<'a>(&'a self, ask: NfsAsk, _names: &'a mut NfsNames) -> Args<'a> {
        self.0
            .args(&self.0.actions.actions[ask.offset as usize], ask.len)
    }

    fn credentials(&self, ask: NfsAsk) -> Option<&[u8]> {
        let caller = self.0.actions.actions[ask.offset as usize].caller?;
        self.0.credentials.get(caller as usize).map(Vec::as_slice)
    }

    fn answered(&self, ask: NfsAsk, answer: &NfsAnswer<'_>) -> bool {
        let (state, index) = (&self.0, ask.offset as u32);
        let action = &state.actions.actions[index as usize];
        let handle = match answer.body {
            ResultBody::Lookup { object, .. } => OwnedHandle::of(object.0),
            ResultBody::Created { object, .. } => {
                object.and_then(|object| OwnedHandle::of(object.0))
            }
            _ => None,
        };
        // The parent of the tree's top directory doesn't belong to the replay, so its handle isn't kept.
        let is_dot = action.name != NONE && matches!(state.text(action.name), b"." | b"..");
        if let (Some(handle), result) = (handle, action.objects.result)
            && result != NONE
            && !is_dot
        {
            let _ = state.handles[result as usize].set(handle);
        }
        if let ResultBody::Readdir {
            entries,
            cookie_verifier,
            ..
        } = answer.body
            && state.followed.contains(&index)
        {
            let last = entries.iter().last().map(|entry| entry.cookie);
            let before = match action.detail {
                CallDetail::Listing { after, .. } => state.cookies.borrow().get(&after).copied(),
                _ => None,
            };
            let cookie = last.or(before.map(|(cookie, _)| cookie)).unwrap_or(0);
            let mut cookies = state.cookies.borrow_mut();
            cookies.insert(index, (cookie, cookie_verifier));
        }
        let seen = TargetAnswer {
            status: answer.status,
            moved_bytes: answer.moved,
        };
        state.answers.borrow_mut().insert(index, seen);
        // A call that failed with the same status in the trace counts as a success.
        answer.status == Status::OK || action.status.is_none_or(|status| status == answer.status)
    }
}
