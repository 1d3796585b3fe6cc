//! The full-feature phase of a target's connection with arbitrary peer data, on a logical unit that responds at once,
//! later, or with an error, depending on the input.
//!
//! Checks that buffers and tasks stay bounded, that StatSN rises by one for each numbered response, that no task is
//! answered twice, and that R2Ts request only data that the command announced.
#![no_main]

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use brunt_block::Buf;
use brunt_iscsi::params::Preferences;
use brunt_iscsi::scsi::{CommandOutcome, DataIn, TransportCommand};
use brunt_iscsi::target_node::connection::{
    CommandBegun, ConnectionContext, ConnectionIo, DataOut, Destination, IsDone, Received,
    TargetConnection,
};
use brunt_iscsi::target_node::session::{CommandWindow, Reach};
use brunt_wire::iscsi::Opcode;
use brunt_wire::iscsi::pdu::{
    BHS_BYTES, Bhs, NopOut, R2t, RESERVED_TAG, ScsiCommand, code, padded,
};
use brunt_wire::scsi::sense::{ScsiStatus, Sense, key};
use libfuzzer_sys::fuzz_target;

/// One write may announce 256 MiB; the fuzzer's memory limit is for finding leaks, so accept less.
const WANT_BYTES_MAX: u32 = 256 << 10;

#[derive(Default)]
struct World {
    /// What the logical unit does with successive commands, repeated cyclically.
    moods: [u8; 16],
    mood_index: usize,
    running: Vec<u64>,
    /// Running commands whose outcome must report an abort.
    aborted: HashSet<u64>,
    /// Whether task management is complete: no aborted command is still running.
    is_managed: Rc<Cell<bool>>,
    wanted: HashMap<u64, u32>,
    expected: HashMap<u32, u32>,
    next_stat_sn: Option<u32>,
}

impl World {
    fn mood(&mut self) -> u8 {
        self.mood_index += 1;
        self.moods[self.mood_index % 16]
    }

    fn outcome(&mut self, tag: u64) -> CommandOutcome {
        let aborted = self.aborted.remove(&tag);
        self.is_managed.set(self.aborted.is_empty());
        let good = !aborted && self.mood() & 1 == 0;
        CommandOutcome {
            tag,
            status: match good {
                true => ScsiStatus::Good,
                false if aborted => ScsiStatus::TaskAborted,
                false => ScsiStatus::CheckCondition,
            },
            sense: (!good && !aborted).then(|| Sense::new(key::ILLEGAL_REQUEST, 0x24, 0)),
            data_in: match self.mood() & 3 {
                0 | 1 if !good => DataIn::None,
                0 => DataIn::None,
                1 => DataIn::Bytes(vec![7; 96]),
                _ if good => DataIn::Buf(Buf::zeroed(4096), 4096),
                _ => DataIn::None,
            },
            data_out_len: self.wanted.remove(&tag).unwrap_or(0),
        }
    }

    fn sent(&mut self, bhs: &Bhs) {
        let stat_sn = NopOut::view(bhs).cmd_sn.get(); // at byte 24, as in every response
        let numbered = match bhs.kind() {
            Opcode::R2t => {
                let r2t = R2t::view(bhs);
                let end = u64::from(r2t.buffer_offset.get())
                    + u64::from(r2t.desired_data_transfer_length.get());
                let expected = self
                    .expected
                    .get(&r2t.initiator_task_tag.get())
                    .copied()
                    .unwrap_or(0);
                assert!(
                    end <= u64::from(expected),
                    "an R2T for more than was announced"
                );
                false
            }
            Opcode::DataIn => bhs.flags & code::response::STATUS != 0,
            Opcode::NopIn => bhs.initiator_task_tag.get() != RESERVED_TAG,
            _ => true,
        };
        if numbered {
            if let Some(next) = self.next_stat_sn {
                assert_eq!(stat_sn, next, "StatSN skips or repeats: {:?}", bhs.kind());
            }
            self.next_stat_sn = Some(stat_sn.wrapping_add(1));
        }
    }
}

impl ConnectionIo for World {
    fn begin(&mut self, _lun: Option<u16>, command: TransportCommand<'_>) -> CommandBegun {
        if command.data_out_len > 0 && self.mood() & 3 != 3 {
            let len = command.data_out_len.min(WANT_BYTES_MAX);
            self.wanted.insert(command.tag, len);
            return CommandBegun::Wants { len, inline: None };
        }
        if self.mood() & 1 == 1 {
            return CommandBegun::Wants {
                len: 0,
                inline: None,
            };
        }
        CommandBegun::Done(self.outcome(command.tag))
    }

    fn start(&mut self, _lun: Option<u16>, tag: u64, _data: DataOut) -> Option<CommandOutcome> {
        assert!(!self.running.contains(&tag), "started twice");
        if self.mood() & 1 == 0 {
            return Some(self.outcome(tag));
        }
        self.running.push(tag);
        None
    }

    fn abort(&mut self, _lun: Option<u16>, tag: u64) {
        self.wanted.remove(&tag);
        if self.running.contains(&tag) {
            self.aborted.insert(tag);
        }
    }

    fn manage(&mut self, _function: u8, _lun: Option<u16>) -> Vec<IsDone> {
        self.aborted.extend(&self.running);
        self.is_managed.set(self.aborted.is_empty());
        let is_managed = Rc::clone(&self.is_managed);
        vec![Box::new(move || is_managed.get())]
    }

    fn has_lun(&self, lun: u16) -> bool {
        lun < 2
    }

    fn wants_descriptor_sense(&self, lun: Option<u16>) -> bool {
        lun == Some(1)
    }

    fn buffer(&mut self, len: usize) -> Buf {
        assert!(len <= WANT_BYTES_MAX as usize, "a buffer of {len} bytes");
        Buf::zeroed(len)
    }

    fn send(&mut self, bhs: &Bhs, _data: &[u8]) {
        self.sent(bhs);
    }

    fn send_data_in(&mut self, _lun: Option<u16>, _data: DataIn, pdus: &[(Bhs, u32, u32)]) {
        for (bhs, _, _) in pdus {
            self.sent(bhs);
        }
    }

    fn log_out(&mut self, _whole_session: bool) {}

    fn close_others(&mut self, _reach: Reach) {}

    fn close_cid(&mut self, _cid: u16) -> bool {
        false
    }

    fn describe_targets(&self) -> Vec<(String, Vec<String>)> {
        vec![(
            "iqn.2026-11.io.brunt:t0".into(),
            vec!["127.0.0.1:3260,1".into()],
        )]
    }
}

// Sixteen bytes define the logical unit's behaviour, cyclically; the rest is the peer's data.
fuzz_target!(|input: &[u8]| {
    let Some((moods, bytes)) = input.split_first_chunk::<16>() else {
        return;
    };
    let discovery = moods[0] == 0xff;
    let mut world = World {
        moods: *moods,
        ..World::default()
    };
    let mut window = CommandWindow::new(1);
    let params = Preferences::default().values;
    let mut connection = TargetConnection::new(1, 1, 0, discovery, params, 1);
    let mut rest = bytes;
    while let Some(bhs) = Bhs::peek(rest) {
        let at = BHS_BYTES + bhs.ahs_len();
        let Some(ahs) = rest.get(BHS_BYTES..at) else {
            break;
        };
        if bhs.kind() == Opcode::ScsiCommand {
            let command = ScsiCommand::view(bhs);
            world.expected.insert(
                command.initiator_task_tag.get(),
                command.expected_data_transfer_length.get(),
            );
        }
        let Ok(destination) = connection.on_header(
            bhs,
            ahs,
            &mut ConnectionContext {
                window: &mut window,
                io: &mut world,
            },
        ) else {
            break;
        };
        if bhs.data_len() > 0 {
            let Some(data) = rest.get(at..at + bhs.data_len()) else {
                break;
            };
            let digest_ok = world.mood() != 0xff;
            let received = match destination {
                Destination::None => panic!("a data segment that belongs nowhere"),
                Destination::Discard | Destination::Inline { .. } => Received::Elsewhere,
                Destination::Control => Received::Control(data),
                Destination::Buf(mut buf, offset) => {
                    buf[offset..offset + data.len()].copy_from_slice(data);
                    Received::Buf(buf)
                }
            };
            connection.on_data(
                received,
                digest_ok,
                &mut ConnectionContext {
                    window: &mut window,
                    io: &mut world,
                },
            );
        }
        // The logical unit completes some of its running commands.
        if !world.running.is_empty() && world.mood() & 1 == 0 {
            let tag = world.running.remove(0);
            let outcome = world.outcome(tag);
            connection.on_outcome(
                outcome,
                &mut ConnectionContext {
                    window: &mut window,
                    io: &mut world,
                },
            );
            connection.check_task_management(&mut ConnectionContext {
                window: &mut window,
                io: &mut world,
            });
        }
        assert!(connection.outstanding() <= 4096, "tasks are bounded");
        if connection.is_closing() {
            break;
        }
        let Some(next) = rest.get(at + padded(bhs.data_len())..) else {
            break;
        };
        rest = next;
    }
    connection.on_end(&mut ConnectionContext {
        window: &mut window,
        io: &mut world,
    });
});
