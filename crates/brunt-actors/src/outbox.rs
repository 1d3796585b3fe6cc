//! Buffers messages that a scheduler's actors have sent but that have not been pushed to the receivers' homes yet.
//!
//! Private to the scheduler's thread: a send is a push to a local buffer, with no lock and no atomic write. The rule:
//! everything here is pushed before its sender can run anywhere else, so messages from one sender to one receiver
//! never overtake each other.

use std::sync::Arc;

use crate::address::{Address, Refused};
use crate::home::HomeState;
use crate::inbox::{CLOSED, FULL, OPEN};
use crate::lane::{LaneMessage, Lanes};
use crate::machine::Inner;
use crate::sync::{AtomicU64, Ordering};

/// Number of messages sent to one actor in the current window.
#[derive(Clone, Copy, Default)]
struct Window {
    number: u32,
    count: u32,
}

/// Messages staged for one home.
#[derive(Default)]
pub(crate) struct Staged {
    pub lanes: Lanes<HomeState>,
    /// The number of the home's take (emptying of `inbound`) that will include the last flush.
    pub ticket: u64,
    /// Incremented each time everything flushed before has been taken in.
    window_number: u32,
}

impl Staged {
    pub fn open_window(&mut self) {
        self.window_number = self.window_number.wrapping_add(1);
    }

    /// Opens the window if nothing is staged or in transit: with no messages to push, nothing else would open it.
    #[cold]
    fn reopen(&mut self, admitted: &AtomicU64) -> bool {
        let opens = self.lanes.count() == 0 && admitted.load(Ordering::Acquire) >= self.ticket;
        if opens {
            self.open_window();
        }
        opens
    }
}

pub(crate) struct Outbox {
    pub system: Arc<Inner>,
    pub homes: Vec<Staged>,
    /// Indexed by an address's `table_index`.
    windows: Vec<Window>,
    /// Messages whose receiver had ended.
    pub undelivered: u64,
    /// Default home of actors spawned by the running actor.
    pub home: u16,
}

impl Outbox {
    pub fn new(system: Arc<Inner>, home: u16) -> Self {
        let homes = system
            .homes
            .iter()
            // Window numbers start at 1, so a zeroed entry of `windows` belongs to no window.
            .map(|_| Staged {
                window_number: 1,
                ..Staged::default()
            })
            .collect();
        Outbox {
            system,
            homes,
            windows: Vec::new(),
            undelivered: 0,
            home,
        }
    }

    /// Stages a message if the gate is open and the window has room.
    #[inline]
    pub fn stage<M: Send + 'static>(
        &mut self,
        to: &Address<M>,
        message: M,
    ) -> Result<(), Refused<M>> {
        match to.shared.gate() {
            OPEN => {}
            FULL => return Err(Refused::Full(message)),
            _ => return Err(Refused::Closed(message)),
        }
        let staged = &mut self.homes[usize::from(to.home)];
        let index = to.table_index as usize;
        if index >= self.windows.len() {
            grow(&mut self.windows, index);
        }
        let window = &mut self.windows[index];
        if window.number != staged.window_number {
            *window = Window {
                number: staged.window_number,
                count: 0,
            };
        }
        if window.count >= to.window {
            if !staged.reopen(&self.system.homes[usize::from(to.home)].admitted) {
                return Err(Refused::Full(message));
            }
            *window = Window {
                number: staged.window_number,
                count: 0,
            };
        }
        window.count += 1;
        debug_assert!(window.count <= to.window, "a sender keeps its window");
        staged.lanes.push(
            to.kind,
            LaneMessage {
                slot: to.slot,
                generation: to.generation,
                message,
            },
        );
        Ok(())
    }

    /// Stages a message beyond the capacity, to break a cycle.
    pub fn stage_granted<M: Send + 'static>(
        &mut self,
        to: &Address<M>,
        message: M,
    ) -> Result<(), Refused<M>> {
        if to.shared.gate() == CLOSED {
            return Err(Refused::Closed(message));
        }
        let envelope = LaneMessage {
            slot: to.slot,
            generation: to.generation,
            message,
        };
        self.homes[usize::from(to.home)]
            .lanes
            .push(to.kind, envelope);
        Ok(())
    }
}

#[cold]
fn grow(windows: &mut Vec<Window>, index: usize) {
    windows.resize((index + 1).next_power_of_two(), Window::default());
}
