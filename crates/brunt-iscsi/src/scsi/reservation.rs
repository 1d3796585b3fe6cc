//! Persistent reservations of a logical unit (SPC-4, 5.12). A pure state machine: the logical unit passes it service
//! actions and carries out the effects (unit attentions, aborted tasks, saving). The one rule: reservations do not
//! depend on which nexuses are connected.

use brunt_wire::scsi::persistent::{FullStatus, OutList, ReservationType, out};
use brunt_wire::scsi::persistent::{read_full_status, read_keys, read_reservation};
use brunt_wire::scsi::sense::{Sense, key};

use super::attention::Attention;

/// Maximum number of registrations; more are refused (INSUFFICIENT REGISTRATION RESOURCES).
pub const REGISTRATIONS_MAX: usize = 256;

/// An I_T nexus, identified by names that outlive its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPair {
    /// `iqn…,i,0x…`
    pub initiator_port: String,
    /// Relative target port identifier.
    pub target_port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Registration {
    who: PortPair,
    key: u64,
    all_target_ports: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    kind: ReservationType,
    /// The key is meaningless for the all-registrants types.
    holder: PortPair,
}

/// All registrations and the reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    generation: u32,
    aptpl: bool,
    registrations: Vec<Registration>,
    held: Option<Held>,
}

/// Why a service action was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationRefusal {
    /// RESERVATION CONFLICT.
    Conflict,
    /// CHECK CONDITION.
    Check(Sense),
}

/// What the logical unit has to do after a service action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Unit attentions to establish.
    pub attentions: Vec<(PortPair, Attention)>,
    /// Nexuses whose tasks must be aborted (PREEMPT AND ABORT).
    pub aborted: Vec<PortPair>,
    /// Whether the saved text must be replaced or removed.
    pub save: bool,
}

/// What a nexus is allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Whether commands with [`brunt_wire::scsi::opcodes::Access::Read`] are allowed.
    pub read: bool,
    /// Whether commands with `Access::Write` are allowed.
    pub write: bool,
}

const fn bad_list(byte: u16) -> ReservationRefusal {
    ReservationRefusal::Check(
        Sense::new(key::ILLEGAL_REQUEST, 0x26, 0x00).with_field(false, byte, None),
    )
}

const fn bad_cdb(byte: u16) -> ReservationRefusal {
    ReservationRefusal::Check(
        Sense::new(key::ILLEGAL_REQUEST, 0x24, 0x00).with_field(true, byte, None),
    )
}

impl Reservations {
    /// What `who` is currently allowed to do (SPC-4, table 66).
    pub fn allowed(&self, who: &PortPair) -> Allowed {
        let Some(held) = &self.held else {
            return Allowed {
                read: true,
                write: true,
            };
        };
        if self.is_holder(who) || (held.kind.registrants_allowed() && self.find(who).is_some()) {
            return Allowed {
                read: true,
                write: true,
            };
        }
        Allowed {
            read: held.kind.reads_allowed(),
            write: false,
        }
    }

    /// Whether there is a persistent reservation.
    #[cfg(test)]
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Whether there are any registrations.
    pub fn any_registered(&self) -> bool {
        !self.registrations.is_empty()
    }

    /// Whether `who` is registered.
    pub fn is_registered(&self, who: &PortPair) -> bool {
        self.find(who).is_some()
    }

    /// Whether `who` holds the reservation.
    pub fn is_holder(&self, who: &PortPair) -> bool {
        self.held.as_ref().is_some_and(|held| {
            if held.kind.all_registrants() {
                self.find(who).is_some()
            } else {
                held.holder == *who
            }
        })
    }

    /// Whether registrations persist through power loss.
    pub fn aptpl(&self) -> bool {
        self.aptpl
    }

    fn find(&self, who: &PortPair) -> Option<usize> {
        self.registrations.iter().position(|r| r.who == *who)
    }

    /// READ KEYS.
    pub fn keys(&self) -> Vec<u8> {
        read_keys(self.generation, self.registrations.iter().map(|r| r.key))
    }

    /// READ RESERVATION. The key is zero for the all-registrants types.
    pub fn reservation(&self) -> Vec<u8> {
        let held = self
            .held
            .as_ref()
            .map(|held| (self.holder_key(held), held.kind));
        read_reservation(self.generation, held)
    }

    fn holder_key(&self, held: &Held) -> u64 {
        if held.kind.all_registrants() {
            return 0;
        }
        self.find(&held.holder)
            .map_or(0, |i| self.registrations[i].key)
    }

    /// READ FULL STATUS.
    pub fn full_status(&self) -> Vec<u8> {
        let all = self.registrations.iter().map(|r| FullStatus {
            key: r.key,
            holder: self
                .held
                .as_ref()
                .filter(|_| self.is_holder(&r.who))
                .map(|held| held.kind),
            all_target_ports: r.all_target_ports,
            target_port: r.who.target_port,
            initiator_port: &r.who.initiator_port,
        });
        read_full_status(self.generation, all)
    }

    /// PERSISTENT RESERVE OUT. `scope_type` is byte 2 of the CDB; `target_ports` lists all ports.
    ///
    /// # Errors
    /// The action was refused, and nothing has changed.
    pub fn out(
        &mut self,
        who: &PortPair,
        action: u8,
        scope_type: u8,
        list: &OutList,
        target_ports: &[u16],
    ) -> Result<Effects, ReservationRefusal> {
        let registered = self.find(who);
        if !matches!(
            action,
            out::REGISTER | out::REGISTER_AND_IGNORE_EXISTING_KEY
        ) {
            let own = registered.ok_or(ReservationRefusal::Conflict)?;
            if self.registrations[own].key != list.key {
                return Err(ReservationRefusal::Conflict);
            }
        }
        let kind = || {
            if scope_type >> 4 != 0 {
                return Err(bad_cdb(2));
            }
            ReservationType::from_code(scope_type & 0x0f).ok_or(bad_cdb(2))
        };
        match action {
            out::REGISTER | out::REGISTER_AND_IGNORE_EXISTING_KEY => {
                self.register(who, action, list, target_ports)
            }
            out::RESERVE => self.reserve(who, kind()?),
            out::RELEASE => self.release(who, kind()?),
            out::CLEAR => Ok(self.clear(who)),
            out::PREEMPT | out::PREEMPT_AND_ABORT => {
                // The type matters only if a reservation is preempted.
                let mut effects = self.preempt(who, kind(), list.service_action_key)?;
                if action == out::PREEMPT {
                    effects.aborted.clear();
                }
                Ok(effects)
            }
            out::REGISTER_AND_MOVE => self.register_and_move(who, list, target_ports),
            _ => Err(bad_cdb(1)),
        }
    }

    fn register(
        &mut self,
        who: &PortPair,
        action: u8,
        list: &OutList,
        target_ports: &[u16],
    ) -> Result<Effects, ReservationRefusal> {
        let registered = self.find(who);
        if action == out::REGISTER {
            let own_key = registered.map_or(0, |i| self.registrations[i].key);
            if own_key != list.key {
                return Err(ReservationRefusal::Conflict);
            }
        }
        // SPEC_I_PT is valid only from an unregistered nexus, and not for unregistering.
        if list.spec_i_pt && (registered.is_some() || list.service_action_key == 0) {
            return Err(bad_list(20));
        }
        let was_kept = self.aptpl;
        if list.service_action_key == 0 {
            let mut effects = Effects::default();
            if let Some(own) = registered {
                self.generation = self.generation.wrapping_add(1);
                effects = self.unregister(own);
                effects.save = was_kept || list.aptpl;
            }
            self.aptpl = list.aptpl;
            return Ok(effects);
        }
        let ports: Vec<u16> = if list.all_tg_pt {
            target_ports.to_vec()
        } else {
            vec![who.target_port]
        };
        let mut next = self.registrations.clone();
        let initiators = std::iter::once(&who.initiator_port).chain(&list.ports);
        for initiator_port in initiators {
            for &target_port in &ports {
                let pair = PortPair {
                    initiator_port: initiator_port.clone(),
                    target_port,
                };
                match next.iter_mut().find(|r| r.who == pair) {
                    Some(registration) => {
                        registration.key = list.service_action_key;
                        registration.all_target_ports |= list.all_tg_pt;
                    }
                    None => next.push(Registration {
                        who: pair,
                        key: list.service_action_key,
                        all_target_ports: list.all_tg_pt,
                    }),
                }
            }
        }
        if next.len() > REGISTRATIONS_MAX {
            return Err(ReservationRefusal::Check(Sense::new(
                key::ILLEGAL_REQUEST,
                0x55,
                0x04,
            )));
        }
        self.registrations = next;
        self.generation = self.generation.wrapping_add(1);
        self.aptpl = list.aptpl;
        Ok(Effects {
            save: was_kept || self.aptpl,
            ..Effects::default()
        })
    }

    /// Removes a registration, and the reservation if it depended on that registration.
    fn unregister(&mut self, index: usize) -> Effects {
        let mut effects = Effects::default();
        let gone = self.registrations.remove(index).who;
        let Some(held) = &self.held else {
            return effects;
        };
        let ends = if held.kind.all_registrants() {
            self.registrations.is_empty()
        } else {
            held.holder == gone
        };
        if ends {
            if held.kind.registrants_allowed() {
                effects.attentions = self.others(&gone, Attention::ReservationsReleased);
            }
            self.held = None;
        }
        effects
    }

    fn others(&self, who: &PortPair, attention: Attention) -> Vec<(PortPair, Attention)> {
        let others = self.registrations.iter().filter(|r| r.who != *who);
        others.map(|r| (r.who.clone(), attention)).collect()
    }

    fn reserve(
        &mut self,
        who: &PortPair,
        kind: ReservationType,
    ) -> Result<Effects, ReservationRefusal> {
        match &self.held {
            Some(held) if held.kind == kind && self.is_holder(who) => Ok(Effects::default()),
            Some(_) => Err(ReservationRefusal::Conflict),
            None => {
                self.held = Some(Held {
                    kind,
                    holder: who.clone(),
                });
                Ok(Effects {
                    save: self.aptpl,
                    ..Effects::default()
                })
            }
        }
    }

    fn release(
        &mut self,
        who: &PortPair,
        kind: ReservationType,
    ) -> Result<Effects, ReservationRefusal> {
        if !self.is_holder(who) {
            return Ok(Effects::default());
        }
        let held = self.held.as_ref().expect("a reservation has a holder");
        if held.kind != kind {
            // INVALID RELEASE OF PERSISTENT RESERVATION
            return Err(ReservationRefusal::Check(Sense::new(
                key::ILLEGAL_REQUEST,
                0x26,
                0x04,
            )));
        }
        let attentions = if kind.registrants_allowed() {
            self.others(who, Attention::ReservationsReleased)
        } else {
            Vec::new()
        };
        self.held = None;
        Ok(Effects {
            attentions,
            save: self.aptpl,
            ..Effects::default()
        })
    }

    fn clear(&mut self, who: &PortPair) -> Effects {
        let attentions = self.others(who, Attention::ReservationsPreempted);
        self.registrations.clear();
        self.held = None;
        self.generation = self.generation.wrapping_add(1);
        Effects {
            attentions,
            save: self.aptpl,
            ..Effects::default()
        }
    }

    fn preempt(
        &mut self,
        who: &PortPair,
        kind: Result<ReservationType, ReservationRefusal>,
        victim_key: u64,
    ) -> Result<Effects, ReservationRefusal> {
        let mut effects = Effects {
            save: self.aptpl,
            ..Effects::default()
        };
        // Determine which registrations to remove, and whether `who` takes over the reservation.
        let takes_over = match &self.held {
            None => false,
            Some(held) if held.kind.all_registrants() => victim_key == 0,
            Some(held) => victim_key == self.holder_key(held),
        };
        if victim_key == 0 && !takes_over {
            return Err(bad_list(8));
        }
        let everybody = takes_over && victim_key == 0;
        let matches = |r: &Registration| everybody || r.key == victim_key;
        if !takes_over && !self.registrations.iter().any(matches) {
            return Err(ReservationRefusal::Conflict);
        }
        let kind = if takes_over { Some(kind?) } else { None };
        let gone: Vec<PortPair> = self
            .registrations
            .iter()
            .filter(|r| r.who != *who && matches(r))
            .map(|r| r.who.clone())
            .collect();
        self.registrations.retain(|r| !gone.contains(&r.who));
        for pair in &gone {
            effects
                .attentions
                .push((pair.clone(), Attention::RegistrationsPreempted));
        }
        effects.aborted = gone;
        if let Some(kind) = kind {
            let before = self.held.replace(Held {
                kind,
                holder: who.clone(),
            });
            // The remaining registrants are notified that the reservation they relied on has changed.
            if before.is_some_and(|held| held.kind != kind && held.kind.registrants_allowed()) {
                effects
                    .attentions
                    .extend(self.others(who, Attention::ReservationsReleased));
            }
        } else if let Some(held) = &self.held {
            // An all-registrants reservation ends with its last registrant, but `who` is still registered.
            debug_assert!(held.kind.all_registrants() || self.find(&held.holder).is_some());
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(effects)
    }

    fn register_and_move(
        &mut self,
        who: &PortPair,
        list: &OutList,
        target_ports: &[u16],
    ) -> Result<Effects, ReservationRefusal> {
        let Some(held) = &self.held else {
            return Err(ReservationRefusal::Conflict);
        };
        if held.kind.all_registrants() || held.holder != *who {
            return Err(ReservationRefusal::Conflict);
        }
        let kind = held.kind;
        if list.service_action_key == 0 {
            return Err(bad_list(8));
        }
        if !target_ports.contains(&list.target_port) {
            return Err(bad_list(18));
        }
        let Some(name) = list.ports.first() else {
            return Err(bad_list(24));
        };
        let destination = PortPair {
            initiator_port: name.clone(),
            target_port: list.target_port,
        };
        if destination == *who {
            return Err(bad_list(24));
        }
        let was_kept = self.aptpl;
        match self.find(&destination) {
            Some(i) => self.registrations[i].key = list.service_action_key,
            None if self.registrations.len() >= REGISTRATIONS_MAX => {
                return Err(ReservationRefusal::Check(Sense::new(
                    key::ILLEGAL_REQUEST,
                    0x55,
                    0x04,
                )));
            }
            None => self.registrations.push(Registration {
                who: destination.clone(),
                key: list.service_action_key,
                all_target_ports: false,
            }),
        }
        self.held = Some(Held {
            kind,
            holder: destination,
        });
        if list.unregister {
            self.registrations.retain(|r| r.who != *who);
        }
        self.aptpl = list.aptpl;
        self.generation = self.generation.wrapping_add(1);
        Ok(Effects {
            save: was_kept || self.aptpl,
            ..Effects::default()
        })
    }

    /// Text for the store; empty if nothing has to persist through power loss.
    pub fn to_text(&self) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        if !self.aptpl || self.registrations.is_empty() {
            return text;
        }
        text.push_str(TEXT_HEADER);
        let _ = writeln!(text, "\ngeneration {}", self.generation);
        for r in &self.registrations {
            let _ = writeln!(
                text,
                "key {:#018x} {} {} {}",
                r.key, r.who.target_port, r.all_target_ports, r.who.initiator_port
            );
        }
        if let Some(held) = &self.held {
            let who = &held.holder;
            let _ = writeln!(
                text,
                "held {} {} {}",
                held.kind as u8, who.target_port, who.initiator_port
            );
        }
        text
    }

    /// Parses the text from [`Reservations::to_text`].
    ///
    /// # Errors
    /// The line with this number, counted from 1, is invalid.
    pub fn from_text(text: &str) -> Result<Reservations, usize> {
        let mut read = Reservations::default();
        if text.is_empty() {
            return Ok(read);
        }
        read.aptpl = true;
        for (index, line) in text.lines().enumerate() {
            let line_number = index + 1;
            let words: Vec<&str> = line.splitn(5, ' ').collect();
            let parsed = match words[..] {
                _ if index == 0 => (line == TEXT_HEADER).then_some(()),
                ["generation", number] => {
                    number.parse().ok().map(|number| read.generation = number)
                }
                ["key", value, port, all, name] => (|| {
                    let key = u64::from_str_radix(value.strip_prefix("0x")?, 16).ok()?;
                    let who = PortPair {
                        initiator_port: name.to_string(),
                        target_port: port.parse().ok()?,
                    };
                    let all_target_ports = all.parse().ok()?;
                    read.registrations.push(Registration {
                        who,
                        key,
                        all_target_ports,
                    });
                    (read.registrations.len() <= REGISTRATIONS_MAX).then_some(())
                })(),
                ["held", kind, port, name] => (|| {
                    let kind = ReservationType::from_code(kind.parse().ok()?)?;
                    let holder = PortPair {
                        initiator_port: name.to_string(),
                        target_port: port.parse().ok()?,
                    };
                    read.held = Some(Held { kind, holder });
                    Some(())
                })(),
                _ => None,
            };
            parsed.ok_or(line_number)?;
        }
        Ok(read)
    }
}

const TEXT_HEADER: &str = "brunt persistent reservations 1";

#[cfg(test)]
mod tests;
