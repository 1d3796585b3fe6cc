//! The kinds of RPC operations: NFSv3 procedures, MOUNT, everything else, and NFSv4 operations. NFSv3 and NFSv4
//! operations with the same name share a kind. The one rule: kinds are never numbered by hand; names are resolved at
//! compile time.

use brunt_result::OpKind;
use brunt_wire::nfs::{v3, v4};

use super::id::RpcId;
use crate::dissect::OperationInfo;
use crate::operation::OperationKind;

const NFS3: usize = v3::Procedure::ALL.len();
/// MOUNT procedures, other programs, NFSv4 callbacks.
const OTHERS: [&str; 3] = ["MOUNT", "other RPC", "CALLBACK"];
const V4_FROM: usize = NFS3 + OTHERS.len();
/// ILLEGAL has a number far above all others, so it is stored in the last place.
const V4_NUMBERS: usize = 77;

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// The NFSv3 procedure with that name, if there is one.
const fn in_nfs3(name: &str) -> Option<usize> {
    let mut at = 0;
    while at < NFS3 {
        if is_same(v3::Procedure::ALL[at].name(), name) {
            return Some(at);
        }
        at += 1;
    }
    None
}

const fn v4_only() -> usize {
    let (mut at, mut count) = (0, 0);
    while at < v4::Op::ALL.len() {
        count += in_nfs3(v4::Op::ALL[at].name()).is_none() as usize;
        at += 1;
    }
    count
}

/// Names of the kinds, by number.
const NAMES: [&str; V4_FROM + v4_only()] = {
    let mut names = [""; V4_FROM + v4_only()];
    let mut at = 0;
    while at < NFS3 {
        names[at] = v3::Procedure::ALL[at].name();
        at += 1;
    }
    while at < V4_FROM {
        names[at] = OTHERS[at - NFS3];
        at += 1;
    }
    let mut op = 0;
    while op < v4::Op::ALL.len() {
        let name = v4::Op::ALL[op].name();
        if in_nfs3(name).is_none() {
            names[at] = name;
            at += 1;
        }
        op += 1;
    }
    names
};

/// The corresponding operations in workloads and results.
const OPS: [OperationInfo; 27] = [
    OperationInfo::of("READ", OpKind::Read),
    OperationInfo::of("READ_PLUS", OpKind::Read),
    OperationInfo::of("WRITE", OpKind::Write),
    OperationInfo::of("COMMIT", OpKind::Flush),
    OperationInfo::of("DEALLOCATE", OpKind::Unmap),
    OperationInfo::of("LOOKUP", OpKind::Lookup),
    OperationInfo::of("CREATE", OpKind::Create),
    OperationInfo::of("REMOVE", OpKind::Remove),
    OperationInfo::of("OPEN", OpKind::Open),
    OperationInfo::of("CLOSE", OpKind::Close),
    OperationInfo::of("GETATTR", OpKind::GetAttributes),
    OperationInfo::of("SETATTR", OpKind::SetAttributes),
    OperationInfo::of("READDIR", OpKind::ReadDirectory),
    OperationInfo::of("READDIRPLUS", OpKind::ReadDirectory),
    OperationInfo::of("RENAME", OpKind::Rename),
    OperationInfo::of("LINK", OpKind::Link),
    OperationInfo::of("SYMLINK", OpKind::SymbolicLink),
    OperationInfo::of("READLINK", OpKind::ReadLink),
    OperationInfo::of("MKDIR", OpKind::MakeDirectory),
    OperationInfo::of("RMDIR", OpKind::RemoveDirectory),
    OperationInfo::of("ACCESS", OpKind::Access),
    OperationInfo::of("FSSTAT", OpKind::FileSystem),
    OperationInfo::of("FSINFO", OpKind::FileSystem),
    OperationInfo::of("PATHCONF", OpKind::FileSystem),
    OperationInfo::of("LOCK", OpKind::Lock),
    OperationInfo::of("LOCKT", OpKind::TestLock),
    OperationInfo::of("LOCKU", OpKind::Unlock),
];

/// All kinds, by number.
pub const KINDS: [OperationInfo; NAMES.len()] = {
    let mut kinds = [OperationInfo { name: "", op: None }; NAMES.len()];
    let mut at = 0;
    while at < NAMES.len() {
        kinds[at].name = NAMES[at];
        at += 1;
    }
    let mut op = 0;
    while op < OPS.len() {
        kinds[numbered(OPS[op].name) as usize].op = OPS[op].op;
        op += 1;
    }
    kinds
};

const fn numbered(name: &str) -> u16 {
    let mut at = 0;
    while !is_same(NAMES[at], name) {
        at += 1;
    }
    at as u16
}

const fn place(op: v4::Op) -> usize {
    let number = op as usize;
    if number < V4_NUMBERS {
        number
    } else {
        V4_NUMBERS - 1
    }
}

/// Kinds of the NFSv4 operations, by operation number.
const V4: [u16; V4_NUMBERS] = {
    let mut kinds = [0; V4_NUMBERS];
    let mut op = 0;
    while op < v4::Op::ALL.len() {
        kinds[place(v4::Op::ALL[op])] = numbered(v4::Op::ALL[op].name());
        op += 1;
    }
    kinds
};

const fn kind(name: &str) -> OperationKind {
    OperationKind::of::<RpcId>(numbered(name))
}

/// GETATTR, of any version.
pub const GETATTR: OperationKind = kind("GETATTR");
/// WRITE, of any version.
pub const WRITE: OperationKind = kind("WRITE");
/// COMMIT, of any version.
pub const COMMIT: OperationKind = kind("COMMIT");
/// The NULL procedure.
pub const NULL: OperationKind = kind("NULL");
/// All MOUNT procedures.
pub const MOUNT: OperationKind = kind("MOUNT");
/// Calls to programs that are not dissected.
pub const OTHER: OperationKind = kind("other RPC");
/// A call from an NFSv4 server to its client.
pub const CALLBACK: OperationKind = kind("CALLBACK");

/// The kind of an NFSv3 procedure.
#[inline]
pub const fn of_v3(procedure: v3::Procedure) -> OperationKind {
    OperationKind::of::<RpcId>(procedure as u16)
}

/// The kind of an NFSv4 operation.
#[inline]
pub const fn of_v4(op: v4::Op) -> OperationKind {
    OperationKind::of::<RpcId>(V4[place(op)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_its_own_name() {
        for procedure in v3::Procedure::ALL {
            assert_eq!(of_v3(procedure).name(), procedure.name());
        }
        for op in v4::Op::ALL {
            assert_eq!(of_v4(*op).name(), op.name());
        }
        assert_eq!(
            (WRITE.name(), CALLBACK.name(), OTHER.name()),
            ("WRITE", "CALLBACK", "other RPC")
        );
        assert_eq!(of_v3(v3::Procedure::Read), of_v4(v4::Op::Read));
    }
}
