//! Tests of `fsync`, `fdatasync`, `end_fsync` and `fsync_on_close`.

use super::*;

/// On a file system, fio's fsync does more than a flush.
#[test]
fn an_fsync_of_a_file_is_remarked_on() {
    let remarked = |settings: &str| {
        let (_, workload, remarks) = one(&format!("rw=write\ndirect=1\n{settings}"));
        assert_eq!(workload.flush_every, 1);
        remarks
            .iter()
            .any(|remark| remark.key == "fsync" && !remark.loss)
    };
    assert!(remarked("fsync=1"));
    assert!(!remarked("fdatasync=1"));
    assert!(!remarked("fsync=1\nfilename=/dev/sdx"));
}

#[test]
fn a_flush_at_the_end_is_imported_if_there_are_writes() {
    for key in ["end_fsync", "fsync_on_close"] {
        let ends = |settings: &str| {
            let (_, workload, remarks) = one(&format!("{settings}\n{key}=1"));
            assert!(remarks.iter().all(|remark| !remark.loss), "{remarks:?}");
            let remarked = remarks.iter().filter(|remark| remark.key == key).count();
            (workload.end_fsync, workload.flush_every, remarked)
        };
        assert_eq!(ends("rw=write\nfilename=/dev/sdx"), (true, 0, 0));
        assert_eq!(ends("rw=randrw\ndirect=1"), (true, 0, 1));
        assert_eq!(ends("rw=write\ndirect=1\nloops=2"), (true, 0, 2));
        assert_eq!(ends("rw=randread"), (false, 0, 0));
    }
}
