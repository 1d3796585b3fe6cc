//! The table of fio's engines, and which of them an experiment can reproduce. Checked before a job's other options,
//! because their meaning depends on the engine.
//!
//! The rule: an engine is imported only if Brunt can send its requests to the same place in the same way.

/// How jobs that use an engine are imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Requests to a file or device, several at a time; reproduced with io_uring.
    Queued,
    /// Requests to a file or device, one at a time.
    Synchronous,
    /// Requests that don't reach any storage.
    Null,
    /// Requests to a LUN.
    Iscsi,
    /// Requests to an NBD export, given by `uri`.
    Nbd,
    /// Accesses a file or device in a way that Brunt doesn't support; the text says how.
    Near(&'static str),
    /// Not a block load; the text describes what it does.
    Elsewhere(&'static str),
}

/// The engine with this name.
pub fn engine(name: &str) -> Engine {
    use Engine::{Elsewhere, Iscsi, Nbd, Near, Null, Queued, Synchronous};
    match name {
        "libaio" | "io_uring" | "posixaio" | "solarisaio" | "windowsaio" => Queued,
        "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" => Synchronous,
        "null" | "cpp_null" => Null,
        "libiscsi" => Iscsi,
        "nbd" => Nbd,
        "mmap" => Near("copies to and from mapped memory, so that page faults cause the requests"),
        "splice" => Near("moves data through pipes and the page cache"),
        "sg" | "bsg" => Near("sends SCSI commands through a generic device"),
        "io_uring_cmd" => Near("sends NVMe or SCSI commands past the block layer"),
        "libzbc" => Near("sends zoned block commands"),
        "libblkio" => Near("drives a device through libblkio"),
        "xnvme" => Near("drives a device through xNVMe"),
        "libpmem" | "dev-dax" | "pmemblk" => Near("copies into mapped persistent memory"),
        "mtd" => Near("writes and erases raw flash"),
        "libcufile" | "libhipfile" => Near("moves data between files and the memory of a GPU"),
        "ime_psync" | "ime_psyncv" | "ime_aio" => Near("uses the DDN IME interface"),
        "rados" => Elsewhere("reads and writes objects in a Ceph pool"),
        "rbd" => Elsewhere("reads and writes an image in a Ceph pool"),
        "nfs" => Elsewhere("reads and writes files on an NFS server"),
        "gfapi" | "gfapi_async" => Elsewhere("reads and writes files on a Gluster volume"),
        "libhdfs" => Elsewhere("reads and writes files in HDFS"),
        "dfs" => Elsewhere("reads and writes files in DAOS"),
        "http" => Elsewhere("reads and writes objects over HTTP"),
        "net" | "netsplice" => {
            Elsewhere("sends data over a network; see targets with serve = \"tcp\"")
        }
        "rdma" => Elsewhere("sends data over RDMA"),
        "cpuio" => Elsewhere("burns processor time; see the fault cpu = 0.5"),
        "exec" => Elsewhere("runs a program"),
        "page_fault" => Elsewhere("touches memory"),
        "falloc" | "ftruncate" => {
            Elsewhere("allocates and truncates files without transferring data")
        }
        "e4defrag" => Elsewhere("moves extents between files"),
        "filecreate" | "filestat" | "filedelete" | "dircreate" | "dirstat" | "dirdelete" => {
            Elsewhere("performs metadata operations only; see [filesystems.x] and its phases")
        }
        _ => Elsewhere("is not supported"),
    }
}
