//! Data-In, Data-Out and their residuals, digests and errors.

use super::*;

/// Read data comes in segments and bursts as negotiated, with the status in the last PDU.
#[test]
fn read_data_comes_in_the_negotiated_segments_and_bursts() {
    let mut bench = Bench::new(|p| p.max_burst_length = 8192);
    let command = bench.command(0x28, READ, 20_000, 20_000, 7);
    let sent = bench.pdu(command, &[], true);
    assert_eq!(sent.len(), 5);
    let mut data = Vec::new();
    for (index, (bhs, bytes)) in sent.iter().enumerate() {
        let pdu = DataInPdu::view(bhs);
        assert_eq!(pdu.data_sn.get(), index as u32);
        assert_eq!(pdu.buffer_offset.get() as usize, data.len());
        // 4096, 4096 | 4096, 4096 | 3616 with status: the F bit ends each burst.
        let last = index == 4;
        assert_eq!(
            pdu.flags & FLAG_FINAL != 0,
            last || index % 2 == 1,
            "{index}"
        );
        assert_eq!(pdu.flags & code::response::STATUS != 0, last);
        data.extend_from_slice(bytes);
        if last {
            assert_eq!(pdu.stat_sn.get(), 10);
        }
    }
    assert_eq!(data, bench.io.medium[7..20_007]);
}

/// Residuals are the difference between available and expected data (RFC 7143, 11.4.5).
#[test]
fn residuals_are_the_difference_between_available_and_expected() {
    let check = |op: u8, flags: u8, expected: u32, len: u32, flag: u8, residual: u32| {
        let mut bench = Bench::new(|_| ());
        let command = bench.command(op, flags, expected, len, 0);
        let data = vec![1; if flags == WRITE { expected as usize } else { 0 }];
        let sent = bench.pdu(command, &data, true);
        let (bhs, _) = sent.last().unwrap();
        let (flags, count) = match bhs.kind() {
            Opcode::DataIn => (bhs.flags, DataInPdu::view(bhs).residual_count.get()),
            _ => (bhs.flags, ScsiResponse::view(bhs).residual_count.get()),
        };
        assert_eq!(
            (flags & 0x06, count),
            (flag, residual),
            "{op:#x} {expected} {len}"
        );
    };
    use code::response::{OVERFLOW, UNDERFLOW};
    check(0x28, READ, 512, 512, 0, 0);
    check(0x28, READ, 1024, 512, UNDERFLOW, 512);
    check(0x28, READ, 512, 1024, OVERFLOW, 512);
    check(0x28, 0x80, 0, 1024, OVERFLOW, 1024);
    check(0x00, READ, 512, 0, UNDERFLOW, 512);
    check(0x2a, WRITE, 512, 512, 0, 0);
    check(0x2a, WRITE, 1024, 512, UNDERFLOW, 512);
    check(0x2a, WRITE, 512, 1024, OVERFLOW, 512);
}

/// Immediate data, unsolicited data and several R2Ts at once transfer the right bytes, both through
/// buffers and directly into the medium.
#[test]
fn all_kinds_of_write_data_transfer_the_right_bytes() {
    for inline in [false, true] {
        let mut bench = Bench::new(|_| ());
        bench.io.inline = inline;
        let data: Vec<u8> = (0..60_000u32).map(|i| (i * 7) as u8).collect();
        let command = bench.command(0x2a, WRITE_MORE, 60_000, 60_000, 100);
        let itt = command.initiator_task_tag.get();
        assert!(bench.pdu(command, &data[..4096], true).is_empty());
        let sent = bench.data_out(itt, RESERVED_TAG, 0, 4096, &data[4096..8192], true);
        let asked: Vec<R2t> = sent.iter().map(|(bhs, _)| *R2t::view(bhs)).collect();
        assert_eq!(asked.len(), 2);
        let mut queue: VecDeque<R2t> = asked.into();
        let mut last = Vec::new();
        let mut count = 0;
        while let Some(r2t) = queue.pop_front() {
            assert_eq!(r2t.r2t_sn.get(), count);
            count += 1;
            let start = r2t.buffer_offset.get();
            let end = start + r2t.desired_data_transfer_length.get();
            let mut at = start;
            let mut sn = 0;
            while at < end {
                let to = (at + 8192).min(end);
                let ttt = r2t.target_transfer_tag.get();
                last = bench.data_out(itt, ttt, sn, at, &data[at as usize..to as usize], to == end);
                queue.extend(
                    last.iter()
                        .filter(|(bhs, _)| bhs.kind() == Opcode::R2t)
                        .map(|(bhs, _)| *R2t::view(bhs)),
                );
                sn += 1;
                at = to;
            }
        }
        assert_eq!(response(&last).status, 0);
        assert_eq!(response(&last).exp_data_sn.get(), 4);
        assert!(bench.io.medium[100..60_100] == data[..], "inline: {inline}");
        assert_eq!(bench.connection.outstanding(), 0);
        assert_eq!(bench.connection.tasks.buffered_bytes(), 0);
    }
}

/// Unsolicited data that isn't allowed or exceeds the limit fails the command with the sense data of RFC 7143,
/// 11.4.7.2, but only after the initiator has finished its sequence.
#[test]
fn invalid_unsolicited_data_fails_the_command() {
    let check = |change: fn(&mut Params), flags: u8, immediate: usize, sense: Sense| {
        let mut bench = Bench::new(change);
        let command = bench.command(0x2a, flags, 16_384, 16_384, 0);
        let itt = command.initiator_task_tag.get();
        let mut sent = bench.pdu(command, &vec![1; immediate], true);
        if flags == WRITE_MORE {
            assert!(sent.is_empty(), "the sequence is not over");
            sent = bench.data_out(itt, RESERVED_TAG, 0, immediate as u32, &[1; 512], true);
        }
        assert_eq!(sense_of(&sent), Some(sense));
        assert_eq!(bench.connection.outstanding(), 0);
    };
    check(
        |p| p.immediate_data = false,
        WRITE,
        512,
        UNEXPECTED_UNSOLICITED,
    );
    check(
        |p| p.initial_r2t = true,
        WRITE_MORE,
        512,
        UNEXPECTED_UNSOLICITED,
    );
    check(
        |p| p.first_burst_length = 1024,
        WRITE,
        2048,
        INCORRECT_AMOUNT,
    );
    check(
        |p| p.first_burst_length = 1024,
        WRITE_MORE,
        1000,
        INCORRECT_AMOUNT,
    );
}

/// Gaps, repeats and missing data in a solicited sequence fail the command at the end of the sequence; data for unknown
/// tasks is rejected; none of it reaches the medium.
#[test]
fn invalid_solicited_data_fails_the_command() {
    let check = |sn: u32, offset: u32, len: usize, sense: Sense| {
        let mut bench = Bench::new(|p| p.initial_r2t = true);
        let before = bench.io.medium.clone();
        let command = bench.command(0x2a, WRITE, 8192, 8192, 0);
        let itt = command.initiator_task_tag.get();
        let sent = bench.pdu(command, &[], true);
        let ttt = R2t::view(&sent[0].0).target_transfer_tag.get();
        let sent = bench.data_out(itt, ttt, sn, offset, &vec![9; len], true);
        assert_eq!(sense_of(&sent), Some(sense), "{sn} {offset} {len}");
        assert!(bench.io.medium == before);
        assert_eq!(bench.connection.outstanding(), 0);
    };
    check(27, 0, 8192, CRC_ERROR);
    check(u32::MAX, 0, 8192, CRC_ERROR);
    check(0, 512, 4096, CRC_ERROR);
    check(0, u32::MAX, 4096, CRC_ERROR);
    check(0, 0, 4096, INCORRECT_AMOUNT);
    let mut bench = Bench::new(|_| ());
    let sent = bench.data_out(77, 5, 0, 0, &[1; 64], true);
    assert_eq!(
        Reject::view(&sent[0].0).reason,
        code::reject::INVALID_PDU_FIELD
    );
    assert_eq!(sent[0].1.len(), BHS_BYTES);
}

/// Data with a wrong digest is rejected and ends its command with CHECK CONDITION.
#[test]
fn a_wrong_data_digest_is_rejected_and_ends_the_command() {
    let mut bench = Bench::new(|_| ());
    let command = bench.command(0x2a, WRITE, 512, 512, 0);
    let sent = bench.pdu(command, &[3; 512], false);
    assert_eq!(
        Reject::view(&sent[0].0).reason,
        code::reject::DATA_DIGEST_ERROR
    );
    assert_eq!(sense_of(&sent), Some(CRC_ERROR));
    assert_eq!(bench.connection.counters().digest_errors, 1);
    assert_eq!(bench.io.medium[0..2], [0, 1]);
}

/// Buffers are bounded: the data of a one-gigabyte write is requested piece by piece.
#[test]
fn buffers_are_bounded() {
    let mut bench = Bench::new(|p| p.initial_r2t = true);
    let mut asked = 0;
    for _ in 0..100 {
        let command = bench.command(0x2a, WRITE, 16 << 20, 16 << 20, 0);
        asked += usize::from(!bench.pdu(command, &[], true).is_empty());
    }
    assert_eq!(asked, BUFFERED_BYTES_MAX / (16 << 20));
    assert!(bench.connection.tasks.buffered_bytes() <= BUFFERED_BYTES_MAX);
    let Bench {
        connection,
        window,
        io,
        ..
    } = &mut bench;
    connection.on_end(&mut ConnectionContext { window, io });
    assert_eq!(
        (
            bench.connection.outstanding(),
            bench.connection.tasks.buffered_bytes()
        ),
        (0, 0)
    );
}
