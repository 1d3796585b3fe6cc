//! Names of NFSv4 status codes (`nfsstat4`).

/// The status of a compound or of one of its operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Status(pub u32);

impl Status {
    /// Success.
    pub const OK: Status = Status(0);
    /// The handle is stale: the file no longer exists.
    pub const STALE: Status = Status(70);
    /// The reply does not fit (GETDEVICEINFO returns the size that would).
    pub const TOOSMALL: Status = Status(10005);
    /// The server cannot do this yet.
    pub const DELAY: Status = Status(10008);
    /// Another owner holds a conflicting lock.
    pub const DENIED: Status = Status(10010);
    /// The lease has expired.
    pub const EXPIRED: Status = Status(10011);
    /// The server has restarted, and clients may only reclaim earlier state.
    pub const GRACE: Status = Status(10013);
    /// Another client uses this name (SETCLIENTID returns which one).
    pub const CLID_INUSE: Status = Status(10017);
    /// The server doesn't support this minor version.
    pub const MINOR_VERS_MISMATCH: Status = Status(10021);
    /// The server doesn't know the client id.
    pub const STALE_CLIENTID: Status = Status(10022);
    /// The stateid is from before a restart.
    pub const STALE_STATEID: Status = Status(10023);
    /// The stateid has a newer sequence number.
    pub const OLD_STATEID: Status = Status(10024);
    /// The server doesn't know the stateid.
    pub const BAD_STATEID: Status = Status(10025);
    /// State can no longer be reclaimed.
    pub const NO_GRACE: Status = Status(10033);
    /// An administrator revoked the state.
    pub const ADMIN_REVOKED: Status = Status(10047);
    /// The server doesn't know the session.
    pub const BADSESSION: Status = Status(10052);
    /// The session doesn't have the slot.
    pub const BADSLOT: Status = Status(10053);
    /// The client has already declared that it reclaims nothing more.
    pub const COMPLETE_ALREADY: Status = Status(10054);
    /// The connection does not belong to the session.
    pub const CONN_NOT_BOUND_TO_SESSION: Status = Status(10055);
    /// No layout is available now (LAYOUTGET returns whether the server will signal availability).
    pub const LAYOUTTRYLATER: Status = Status(10058);
    /// The sequence number is not the next one for its slot.
    pub const SEQ_MISORDERED: Status = Status(10063);
    /// The call was executed, but its reply was not kept.
    pub const RETRY_UNCACHED_REP: Status = Status(10068);
    /// The sequence number belongs to another call.
    pub const SEQ_FALSE_RETRY: Status = Status(10076);
    /// The highest slot exceeds the replier's limit.
    pub const BAD_HIGH_SLOT: Status = Status(10077);
    /// The session is being destroyed.
    pub const DEADSESSION: Status = Status(10078);
    /// The COPY cannot be done as requested (it returns the requirements that can be met).
    pub const OFFLOAD_NO_REQS: Status = Status(10094);

    /// The name in the RFCs, if there is one.
    pub const fn name(self) -> Option<&'static str> {
        match self.0 {
            ..=10048 => self.name_of_nfs40(),
            _ => self.name_of_later(),
        }
    }

    /// RFC 7530, 13. Long because it is a table with one line per status.
    const fn name_of_nfs40(self) -> Option<&'static str> {
        Some(match self.0 {
            0 => "NFS4_OK",
            1 => "NFS4ERR_PERM",
            2 => "NFS4ERR_NOENT",
            5 => "NFS4ERR_IO",
            6 => "NFS4ERR_NXIO",
            13 => "NFS4ERR_ACCESS",
            17 => "NFS4ERR_EXIST",
            18 => "NFS4ERR_XDEV",
            20 => "NFS4ERR_NOTDIR",
            21 => "NFS4ERR_ISDIR",
            22 => "NFS4ERR_INVAL",
            27 => "NFS4ERR_FBIG",
            28 => "NFS4ERR_NOSPC",
            30 => "NFS4ERR_ROFS",
            31 => "NFS4ERR_MLINK",
            63 => "NFS4ERR_NAMETOOLONG",
            66 => "NFS4ERR_NOTEMPTY",
            69 => "NFS4ERR_DQUOT",
            70 => "NFS4ERR_STALE",
            10001 => "NFS4ERR_BADHANDLE",
            10003 => "NFS4ERR_BAD_COOKIE",
            10004 => "NFS4ERR_NOTSUPP",
            10005 => "NFS4ERR_TOOSMALL",
            10006 => "NFS4ERR_SERVERFAULT",
            10007 => "NFS4ERR_BADTYPE",
            10008 => "NFS4ERR_DELAY",
            10009 => "NFS4ERR_SAME",
            10010 => "NFS4ERR_DENIED",
            10011 => "NFS4ERR_EXPIRED",
            10012 => "NFS4ERR_LOCKED",
            10013 => "NFS4ERR_GRACE",
            10014 => "NFS4ERR_FHEXPIRED",
            10015 => "NFS4ERR_SHARE_DENIED",
            10016 => "NFS4ERR_WRONGSEC",
            10017 => "NFS4ERR_CLID_INUSE",
            10018 => "NFS4ERR_RESOURCE",
            10019 => "NFS4ERR_MOVED",
            10020 => "NFS4ERR_NOFILEHANDLE",
            10021 => "NFS4ERR_MINOR_VERS_MISMATCH",
            10022 => "NFS4ERR_STALE_CLIENTID",
            10023 => "NFS4ERR_STALE_STATEID",
            10024 => "NFS4ERR_OLD_STATEID",
            10025 => "NFS4ERR_BAD_STATEID",
            10026 => "NFS4ERR_BAD_SEQID",
            10027 => "NFS4ERR_NOT_SAME",
            10028 => "NFS4ERR_LOCK_RANGE",
            10029 => "NFS4ERR_SYMLINK",
            10030 => "NFS4ERR_RESTOREFH",
            10031 => "NFS4ERR_LEASE_MOVED",
            10032 => "NFS4ERR_ATTRNOTSUPP",
            10033 => "NFS4ERR_NO_GRACE",
            10034 => "NFS4ERR_RECLAIM_BAD",
            10035 => "NFS4ERR_RECLAIM_CONFLICT",
            10036 => "NFS4ERR_BADXDR",
            10037 => "NFS4ERR_LOCKS_HELD",
            10038 => "NFS4ERR_OPENMODE",
            10039 => "NFS4ERR_BADOWNER",
            10040 => "NFS4ERR_BADCHAR",
            10041 => "NFS4ERR_BADNAME",
            10042 => "NFS4ERR_BAD_RANGE",
            10043 => "NFS4ERR_LOCK_NOTSUPP",
            10044 => "NFS4ERR_OP_ILLEGAL",
            10045 => "NFS4ERR_DEADLOCK",
            10046 => "NFS4ERR_FILE_OPEN",
            10047 => "NFS4ERR_ADMIN_REVOKED",
            10048 => "NFS4ERR_CB_PATH_DOWN",
            _ => return None,
        })
    }

    /// RFC 8881, 15.1; RFC 7862, 11.1; RFC 8276, 8.5.
    const fn name_of_later(self) -> Option<&'static str> {
        Some(match self.0 {
            10049 => "NFS4ERR_BADIOMODE",
            10050 => "NFS4ERR_BADLAYOUT",
            10051 => "NFS4ERR_BAD_SESSION_DIGEST",
            10052 => "NFS4ERR_BADSESSION",
            10053 => "NFS4ERR_BADSLOT",
            10054 => "NFS4ERR_COMPLETE_ALREADY",
            10055 => "NFS4ERR_CONN_NOT_BOUND_TO_SESSION",
            10056 => "NFS4ERR_DELEG_ALREADY_WANTED",
            10057 => "NFS4ERR_BACK_CHAN_BUSY",
            10058 => "NFS4ERR_LAYOUTTRYLATER",
            10059 => "NFS4ERR_LAYOUTUNAVAILABLE",
            10060 => "NFS4ERR_NOMATCHING_LAYOUT",
            10061 => "NFS4ERR_RECALLCONFLICT",
            10062 => "NFS4ERR_UNKNOWN_LAYOUTTYPE",
            10063 => "NFS4ERR_SEQ_MISORDERED",
            10064 => "NFS4ERR_SEQUENCE_POS",
            10065 => "NFS4ERR_REQ_TOO_BIG",
            10066 => "NFS4ERR_REP_TOO_BIG",
            10067 => "NFS4ERR_REP_TOO_BIG_TO_CACHE",
            10068 => "NFS4ERR_RETRY_UNCACHED_REP",
            10069 => "NFS4ERR_UNSAFE_COMPOUND",
            10070 => "NFS4ERR_TOO_MANY_OPS",
            10071 => "NFS4ERR_OP_NOT_IN_SESSION",
            10072 => "NFS4ERR_HASH_ALG_UNSUPP",
            10074 => "NFS4ERR_CLIENTID_BUSY",
            10075 => "NFS4ERR_PNFS_IO_HOLE",
            10076 => "NFS4ERR_SEQ_FALSE_RETRY",
            10077 => "NFS4ERR_BAD_HIGH_SLOT",
            10078 => "NFS4ERR_DEADSESSION",
            10079 => "NFS4ERR_ENCR_ALG_UNSUPP",
            10080 => "NFS4ERR_PNFS_NO_LAYOUT",
            10081 => "NFS4ERR_NOT_ONLY_OP",
            10082 => "NFS4ERR_WRONG_CRED",
            10083 => "NFS4ERR_WRONG_TYPE",
            10084 => "NFS4ERR_DIRDELEG_UNAVAIL",
            10085 => "NFS4ERR_REJECT_DELEG",
            10086 => "NFS4ERR_RETURNCONFLICT",
            10087 => "NFS4ERR_DELEG_REVOKED",
            10088 => "NFS4ERR_PARTNER_NOTSUPP",
            10089 => "NFS4ERR_PARTNER_NO_AUTH",
            10090 => "NFS4ERR_UNION_NOTSUPP",
            10091 => "NFS4ERR_OFFLOAD_DENIED",
            10092 => "NFS4ERR_WRONG_LFS",
            10093 => "NFS4ERR_BADLABEL",
            10094 => "NFS4ERR_OFFLOAD_NO_REQS",
            10095 => "NFS4ERR_NOXATTR",
            10096 => "NFS4ERR_XATTR2BIG",
            _ => return None,
        })
    }
}
