//! The part of the storage path that a function belongs to, by the beginning of its name: data, one line per
//! beginning. To assign more functions, add lines.
//!
//! The rule: the first line that matches decides, so no line may begin with an earlier one; a test checks this.

use brunt_result::profile::CpuPart;
use brunt_result::profile::CpuPart::{Checksums, Copying, Network, Other, Scsi, Storage, Waiting};

/// Beginnings of function names, with the part that each belongs to. Entries of `Other` end the search at the entry
/// of an interrupt, so that its time doesn't count for the function that it interrupted.
#[rustfmt::skip]
const PARTS: &[(&str, CpuPart)] = &[
    ("__arch_copy_", Copying),
    ("__clear_user", Copying),
    ("__memcpy", Copying),
    ("__memmove", Copying),
    ("__memset", Copying),
    ("__pi_memcpy", Copying),
    ("_copy_from_", Copying),
    ("_copy_to_", Copying),
    ("clear_page", Copying),
    ("copy_from_", Copying),
    ("copy_page", Copying),
    ("copy_to_", Copying),
    ("copy_user", Copying),
    ("folio_zero_user", Copying),
    ("memcpy", Copying),
    ("memmove", Copying),
    ("memset", Copying),
    ("rep_movs", Copying),
    ("rep_stos", Copying),
    ("simple_copy_to_iter", Copying),
    ("skb_copy_datagram", Copying),

    ("__crc32", Checksums),
    ("__skb_checksum", Checksums),
    ("brunt_wire::iscsi::digest", Checksums),
    ("crc16", Checksums),
    ("crc32", Checksums),
    ("crc64", Checksums),
    ("crc_t10dif", Checksums),
    ("csum_", Checksums),
    ("do_csum", Checksums),
    ("sha1", Checksums),
    ("sha256", Checksums),
    ("skb_checksum", Checksums),
    ("twox_hash", Checksums),
    ("xxh", Checksums),

    ("____sys_recvmsg", Network),
    ("____sys_sendmsg", Network),
    ("___sys_recvmsg", Network),
    ("___sys_sendmsg", Network),
    ("__alloc_skb", Network),
    ("__dev_queue_xmit", Network),
    ("__inet", Network),
    ("__ip_", Network),
    ("__kfree_skb", Network),
    ("__napi", Network),
    ("__net", Network),
    ("__qdisc", Network),
    ("__skb", Network),
    ("__sk_", Network),
    ("__sock", Network),
    ("__sys_recv", Network),
    ("__sys_send", Network),
    ("__tcp", Network),
    ("alloc_skb", Network),
    ("br_", Network),
    ("brunt_block::socket", Network),
    ("brunt_block::stream", Network),
    ("build_skb", Network),
    ("consume_skb", Network),
    ("dev_hard_start_xmit", Network),
    ("eth_", Network),
    ("fib_", Network),
    ("gro_", Network),
    ("import_iovec", Network),
    ("inet_", Network),
    ("io_recv", Network),
    ("io_send", Network),
    ("ip_", Network),
    ("ipv4_", Network),
    ("ipv6_", Network),
    ("kfree_skb", Network),
    ("lock_sock", Network),
    ("loopback_xmit", Network),
    ("napi_", Network),
    ("net_", Network),
    ("netif_", Network),
    ("nf_", Network),
    ("pfifo_fast", Network),
    ("process_backlog", Network),
    ("release_sock", Network),
    ("sch_direct_xmit", Network),
    ("sk_", Network),
    ("skb_", Network),
    ("sock_", Network),
    ("tcp4_", Network),
    ("tcp6_", Network),
    ("tcp_", Network),
    ("udp_", Network),
    ("unix_", Network),
    ("validate_xmit", Network),
    ("veth_", Network),
    ("virtnet_", Network),

    ("brunt_iscsi::", Scsi),
    ("brunt_wire::iscsi", Scsi),
    ("brunt_wire::scsi", Scsi),
    ("iscsi_", Scsi),
    ("iscsit_", Scsi),
    ("scsi_", Scsi),
    ("sd_", Scsi),
    ("target_c", Scsi),
    ("target_s", Scsi),
    ("transport_generic_", Scsi),

    ("__bio", Storage),
    ("__blk", Storage),
    ("__ext4", Storage),
    ("__filemap", Storage),
    ("__folio", Storage),
    ("__io_read", Storage),
    ("__submit_bio", Storage),
    ("bio_", Storage),
    ("blk_", Storage),
    ("blkdev_", Storage),
    ("brunt_block::backends", Storage),
    ("brunt_block::layers", Storage),
    ("brunt_block::sparse", Storage),
    ("btrfs_", Storage),
    ("dm_", Storage),
    ("ext4_", Storage),
    ("filemap_", Storage),
    ("folio_", Storage),
    ("fuse_", Storage),
    ("generic_file_", Storage),
    ("generic_perform_write", Storage),
    ("io_read", Storage),
    ("io_write", Storage),
    ("iomap_", Storage),
    ("jbd2_", Storage),
    ("ksys_pread", Storage),
    ("ksys_pwrite", Storage),
    ("ksys_read", Storage),
    ("ksys_write", Storage),
    ("nfs_", Storage),
    ("nvme_", Storage),
    ("ovl_", Storage),
    ("page_cache_", Storage),
    ("raid", Storage),
    ("shmem_", Storage),
    ("submit_bio", Storage),
    ("vfs_", Storage),
    ("virtblk_", Storage),
    ("writeback_", Storage),
    ("xfs_", Storage),

    ("__futex", Waiting),
    ("__pick_", Waiting),
    ("__pthread_cond", Waiting),
    ("__sched", Waiting),
    ("__switch_to", Waiting),
    ("__wake_up", Waiting),
    ("autoremove_wake", Waiting),
    ("clock_nanosleep", Waiting),
    ("default_wake_function", Waiting),
    ("dequeue_", Waiting),
    ("do_epoll", Waiting),
    ("do_futex", Waiting),
    ("do_nanosleep", Waiting),
    ("do_poll", Waiting),
    ("do_sys_poll", Waiting),
    ("do_wait", Waiting),
    ("enqueue_", Waiting),
    ("ep_", Waiting),
    ("finish_task_switch", Waiting),
    ("futex_", Waiting),
    ("hrtimer_", Waiting),
    ("io_cqring_wait", Waiting),
    ("newidle_balance", Waiting),
    ("pick_", Waiting),
    ("pollwake", Waiting),
    ("psi_", Waiting),
    ("sched_", Waiting),
    ("schedule", Waiting),
    ("select_task_rq", Waiting),
    ("std::thread::park", Waiting),
    ("swake_up", Waiting),
    ("switch_mm", Waiting),
    ("try_to_wake_up", Waiting),
    ("ttwu_", Waiting),
    ("update_curr", Waiting),
    ("wake_up", Waiting),

    ("__do_softirq", Other),
    ("asm_", Other),
    ("common_interrupt", Other),
    ("handle_softirqs", Other),
    ("sysvec_", Other),
];

/// The part that a stack of function names belongs to, innermost first, all of them in the kernel or all in a
/// program. The innermost function in the table decides, so that functions called by TCP (a lock, an allocation)
/// count for TCP.
pub fn part_of<'a>(functions: impl IntoIterator<Item = &'a str>) -> CpuPart {
    let known = functions.into_iter().find_map(|name| {
        let name = bare(name);
        let line = PARTS.iter().find(|(begin, _)| name.starts_with(begin));
        line.map(|(_, part)| *part)
    });
    known.unwrap_or(Other)
}

/// The type name of a method: `<&mut a::B as c::D>::e` begins with `a::B`.
fn bare(name: &str) -> &str {
    let name = name.trim_start_matches(['<', '&', '*', '(', '[']);
    let name = name.strip_prefix("mut ").unwrap_or(name);
    name.strip_prefix("dyn ").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_belong_to_parts() {
        #[track_caller]
        fn check(stack: &[&str], expected: CpuPart) {
            assert_eq!(part_of(stack.iter().copied()), expected, "{stack:?}");
        }
        check(
            &["rep_movs_alternative", "_copy_to_iter", "tcp_recvmsg"],
            Copying,
        );
        check(&["__memmove_avx_unaligned_erms"], Copying);
        check(
            &["crc32c::hw_x86_64::crc_u64", "brunt_wire::iscsi::pdu::x"],
            Checksums,
        );
        check(&["_raw_spin_lock", "kmem_cache_free", "tcp_ack"], Network);
        check(&["<brunt_iscsi::scsi::Lun as core::fmt::Debug>::fmt"], Scsi);
        check(
            &["<&mut brunt_block::layers::delay::D as brunt_block::Device>::poll"],
            Storage,
        );
        check(
            &[
                "_raw_spin_unlock_irqrestore",
                "try_to_wake_up",
                "sock_def_readable",
            ],
            Waiting,
        );
        check(
            &["finish_task_switch.isra.0", "__schedule", "schedule"],
            Waiting,
        );
        check(
            &[
                "update_process_times",
                "asm_sysvec_apic_timer_interrupt",
                "tcp_ack",
            ],
            Other,
        );
        check(&["net_rx_action", "handle_softirqs", "ext4_x"], Network);
        check(&["do_syscall_64", "entry_SYSCALL_64_after_hwframe"], Other);
        check(&[], Other);
    }

    /// Every line can match a name that no earlier line matches.
    #[test]
    fn no_line_hides_another() {
        let hidden = |lines: &[(&str, CpuPart)]| {
            let pairs = lines.iter().enumerate().filter_map(|(place, (name, _))| {
                let earlier = &lines[..place];
                let hides = earlier
                    .iter()
                    .find(|(begin, _)| bare(name).starts_with(begin));
                hides.map(|(begin, _)| format!("{begin} hides {name}"))
            });
            pairs.collect::<Vec<String>>()
        };
        assert_eq!(hidden(PARTS), [""; 0]);
        assert_eq!(
            hidden(&[("tcp_", Network), ("tcp_ack", Other)]),
            ["tcp_ hides tcp_ack"].map(|_| "tcp_ hides tcp_ack")
        );
        for part in CpuPart::ALL {
            let used = PARTS.iter().any(|(_, one)| *one == part);
            assert_eq!(used, part != CpuPart::Unknown, "{part:?}");
        }
    }
}
