//! `array:…`: several devices combined with redundancy: RAID 0, 1 and 5 with hot spares. A member fails because of I/O
//! errors (perhaps from a fault layer) or by command; the array continues degraded and rebuilds onto a spare while
//! serving requests (SPEK, 2005, section 3.3.3, Figure 13).
//!
//! ```text
//! array:raid5,chunk=64k,[memory:1GiB],[memory:1GiB],[memory:1GiB],spare=[memory:1GiB]
//! array:raid1,rebuild_rate=50MB,rebuild_depth=16,[disk0.img?fault=off;name=d0],[disk1.img?fault=off;name=d1]
//! ```
//!
//! Members are device URLs in brackets, so they can nest. How member errors are handled:
//! - A failed read is served from the other members and counted; a member's 17th read error fails it.
//! - A failed write fails the member at once, since it is no longer consistent.
//! - If a request is cancelled while it writes, a member that did not complete it fails.
//!
//! RAID 0 fails with its first failed member. If another member fails while one is missing, RAID 1 continues as long
//! as one member is left, and rebuilds from that member. RAID 5 then fails; it serves only requests for which the
//! remaining members suffice, and a rebuild stops. A mirror whose last complete member fails during a rebuild serves
//! only the data rebuilt by then. A failed spare is removed, and the rebuild restarts on the next one.
//!
//! The rule: parity and data change under their stripe's lock, so there is no write hole within a run. Members store no
//! array metadata: a new process considers all of them consistent.

mod device;
mod drive;
mod layout;
mod rebuild;
mod state;
mod xor;

use std::sync::Arc;
use std::thread::JoinHandle;

use brunt_core::device_url::split_options;
use brunt_core::units::{format_size, parse_size};

pub use layout::Level;
pub use state::{
    ArrayControl, ArrayError, ArrayState, ArrayStatus, MemberState, REBUILD_DEPTH,
    REBUILD_DEPTH_MAX,
};

use crate::control::{Controllable, Handles};
use crate::open::{BackendEntry, NESTING_MAX, OpenError, Opened, UrlOptions, bad_value};
use crate::{Backend, Device, DeviceInfo, Ring};
use layout::Layout;

const FORMS: &str = "write array:raid5,chunk=64k,[MEMBER],[MEMBER],[MEMBER],spare=[MEMBER] with device URLs in the \
     brackets; raid0, raid1 or raid5; and rebuild_rate=BYTES-PER-SECOND (0: no limit), rebuild_depth=STRIPES (1 to 256), \
     auto=no, name=NAME";
const CHUNK_BYTES: u64 = 64 << 10;
const CHUNK_BYTES_MAX: u64 = 4 << 20;
/// The default of Linux md (dev.raid.speed_limit_max).
const REBUILD_BYTES_PER_SECOND: u64 = 200_000_000;

/// The table entry.
pub const ENTRY: BackendEntry = BackendEntry {
    name: "array",
    help: "RAID over other devices: raid0, raid1 or raid5; separated by commas, chunk=64k, \
           rebuild_rate=BYTES-PER-SECOND, rebuild_depth=STRIPES, auto=no and name=NAME; then members as [URL] and spares \
           as spare=[URL]",
    example: "array:raid5,chunk=64k,[memory:1MiB],[memory:1MiB],[memory:1MiB],spare=[memory:1MiB]",
    options: &[],
    open,
    // The properties are not known without opening the members.
    preview: |_, _| Ok(None),
};

/// The shape of an array in a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayShape {
    /// Its level.
    pub level: Level,
    /// Number of members, not counting spares.
    pub members: usize,
}

/// Lists the arrays in a device URL under the names that [`Backend::handles`] gives them, without opening anything.
/// Used for early checks of array commands. Invalid words are skipped; opening reports them.
pub fn named_in(url: &str) -> Vec<(String, ArrayShape)> {
    let mut found = Vec::new();
    find_named(url, "", NESTING_MAX - 1, &mut found);
    found
}

fn find_named(url: &str, within: &str, nesting_left: u32, found: &mut Vec<(String, ArrayShape)>) {
    let (place, _) = split_options(url.trim());
    let Some(mut words) = place
        .strip_prefix("array:")
        .and_then(split)
        .map(Vec::into_iter)
    else {
        return;
    };
    let Some(level) = words.next().and_then(Level::parse) else {
        return;
    };
    let (mut members, mut spares, mut name) = (Vec::new(), Vec::new(), "array");
    for word in words {
        match word.split_once('=') {
            _ if in_brackets(word).is_some() => members.extend(in_brackets(word)),
            Some(("spare", spare)) => spares.extend(in_brackets(spare)),
            Some(("name", word)) => name = word,
            _ => {}
        }
    }
    found.push((
        format!("{within}{name}"),
        ArrayShape {
            level,
            members: members.len(),
        },
    ));
    if let Some(nesting_left) = nesting_left.checked_sub(1) {
        for (index, device) in members.into_iter().chain(spares).enumerate() {
            find_named(device, &format!("{within}{index}/"), nesting_left, found);
        }
    }
}

fn open(text: &str, options: &mut UrlOptions) -> Opened {
    let wrong = |what: &str| bad_value("array", text, what);
    let mut words = split(text).ok_or_else(|| wrong("missing ']'"))?.into_iter();
    let level = words
        .next()
        .and_then(Level::parse)
        .ok_or_else(|| wrong(FORMS))?;
    let (mut members, mut spares) = (Vec::new(), Vec::new());
    let (mut chunk_bytes, mut rate, mut automatic, mut name) =
        (CHUNK_BYTES, REBUILD_BYTES_PER_SECOND, true, "array");
    let mut depth = REBUILD_DEPTH;
    for word in words {
        if let Some(member) = in_brackets(word) {
            members.push(options.open(member)?);
        } else if let Some(spare) = word.strip_prefix("spare=").and_then(in_brackets) {
            spares.push(options.open(spare)?);
        } else {
            match word.split_once('=') {
                Some(("chunk", size)) => chunk_bytes = parse_size(size)?,
                // `rebuild` is accepted as an alias of `rebuild_rate`.
                Some(("rebuild_rate" | "rebuild", size)) => rate = parse_size(size)?,
                Some(("rebuild_depth", stripes)) => match stripes.parse() {
                    Ok(stripes) if (1..=REBUILD_DEPTH_MAX).contains(&stripes) => depth = stripes,
                    _ => {
                        return Err(wrong(
                            "write rebuild_depth as a number of stripes from 1 to 256",
                        ));
                    }
                },
                Some(("auto", "yes")) => automatic = true,
                Some(("auto", "no")) => automatic = false,
                Some(("name", word)) if !word.is_empty() && !word.contains('/') => name = word,
                _ => return Err(wrong(FORMS)),
            }
        }
    }
    let array = ArrayBackend::new(level, chunk_bytes, members, spares, rate, automatic, name)?;
    array.control.set_rebuild_depth(depth);
    Ok(Arc::new(array))
}

pub(super) fn in_brackets(word: &str) -> Option<&str> {
    word.strip_prefix('[')?.strip_suffix(']')
}

/// Splits text at commas outside brackets; `None` if brackets do not match.
pub(super) fn split(text: &str) -> Option<Vec<&str>> {
    let (mut words, mut depth, mut start) = (Vec::new(), 0usize, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                words.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    words.push(&text[start..]);
    (depth == 0).then_some(words)
}

/// The properties of an array with these members and spares.
fn info_of(layout: &Layout, infos: &[&DeviceInfo]) -> DeviceInfo {
    let (level, slots) = (layout.level, layout.slots);
    let mut notes = Vec::new();
    let mut facts = vec![format!(
        "{} of {slots} members, chunks of {}, {} spares",
        level.name(),
        format_size(layout.chunk_bytes),
        infos.len() - slots
    )];
    for (index, info) in infos.iter().enumerate() {
        let of = |remark: &String| format!("member {index}: {remark}");
        facts.extend(info.facts.iter().map(of));
        notes.extend(info.notes.iter().map(of));
    }
    let names: Vec<&str> = infos[..slots]
        .iter()
        .map(|info| info.name.as_str())
        .collect();
    let block_bytes = infos[0].block_bytes;
    DeviceInfo {
        name: format!("array:{} of {}", level.name(), names.join(", ")),
        block_bytes,
        size_bytes: layout.size_bytes(),
        physical_block_bytes: infos
            .iter()
            .map(|info| info.physical_block_bytes)
            .max()
            .unwrap_or(block_bytes),
        buffer_align: infos
            .iter()
            .map(|info| info.buffer_align)
            .max()
            .unwrap_or(1),
        transfer_bytes_max: super::TRANSFER_BYTES_MAX,
        read_only: infos.iter().any(|info| info.read_only),
        volatile_cache: infos.iter().any(|info| info.volatile_cache),
        unmap: level != Level::Raid5 && infos.iter().all(|info| info.unmap),
        facts,
        notes,
    }
}

/// RAID 0, 1 or 5 over several devices.
pub struct ArrayBackend {
    members: Vec<Arc<dyn Backend>>,
    layout: Layout,
    info: DeviceInfo,
    name: String,
    control: Arc<ArrayControl>,
    rebuilder: Option<JoinHandle<()>>,
}

impl ArrayBackend {
    /// Creates an array of `members`, all of them consistent, and `spares`. `rate` limits the rebuild in bytes per
    /// second (0: no limit); `automatic` starts a rebuild as soon as a member fails.
    ///
    /// # Errors
    /// There are too few members, they are incompatible, or the chunk size is not a power of two between one block and
    /// 4 MiB.
    pub fn new(
        level: Level,
        chunk_bytes: u64,
        members: Vec<Arc<dyn Backend>>,
        spares: Vec<Arc<dyn Backend>>,
        rate: u64,
        automatic: bool,
        name: &str,
    ) -> Result<ArrayBackend, OpenError> {
        let slots = members.len();
        let all: Vec<Arc<dyn Backend>> = members.into_iter().chain(spares).collect();
        let infos: Vec<&DeviceInfo> = all.iter().map(|member| member.info()).collect();
        let layout = layout_of(level, chunk_bytes, slots, &infos)?;
        let names: Vec<String> = infos.iter().map(|info| info.name.clone()).collect();
        let info = info_of(&layout, &infos);
        let control = ArrayControl::new(layout, names, rate, automatic);
        let rebuilder = {
            let (control, members) = (Arc::clone(&control), all.clone());
            let thread = std::thread::Builder::new().name("rebuild".to_string());
            thread
                .spawn(move || rebuild::run(&control, layout, &members))
                .map_err(|error| {
                    OpenError::Failed(
                        format!("array: cannot start the rebuild thread: {error}").into(),
                    )
                })?
        };
        Ok(ArrayBackend {
            members: all,
            layout,
            info,
            name: name.to_string(),
            control,
            rebuilder: Some(rebuilder),
        })
    }

    /// Controls the array while requests run.
    pub fn control(&self) -> &Arc<ArrayControl> {
        &self.control
    }
}

/// Checks that these members and spares fit together, and lays out an array with `slots` members.
fn layout_of(
    level: Level,
    chunk_bytes: u64,
    slots: usize,
    infos: &[&DeviceInfo],
) -> Result<Layout, OpenError> {
    let refused = |what: String| Err(OpenError::Refused(format!("array: {what}")));
    if slots < level.members_min() {
        return refused(format!(
            "{} needs at least {} members in brackets",
            level.name(),
            level.members_min()
        ));
    }
    if infos.len() > state::DEVICES_MAX {
        return refused(format!(
            "{} members and spares; the maximum is {}",
            infos.len(),
            state::DEVICES_MAX
        ));
    }
    let block_bytes = infos[0].block_bytes;
    if let Some(other) = infos.iter().find(|info| info.block_bytes != block_bytes) {
        return refused(format!(
            "{} has blocks of {} bytes, {} has blocks of {block_bytes}; set the same size for \
             all with block=",
            other.name, other.block_bytes, infos[0].name
        ));
    }
    if let Some(read_only) = infos
        .iter()
        .find(|info| info.read_only && level != Level::Raid0)
    {
        return refused(format!("{} is read-only", read_only.name));
    }
    if !chunk_bytes.is_power_of_two()
        || !(u64::from(block_bytes)..=CHUNK_BYTES_MAX).contains(&chunk_bytes)
    {
        return refused("write chunk as a power of two, from the block size to 4MiB".to_string());
    }
    let sizes = infos.iter().map(|info| info.size_bytes / chunk_bytes);
    let stripes = sizes.min().unwrap_or(0);
    if stripes == 0 {
        return refused("the smallest member is smaller than a chunk".to_string());
    }
    Ok(Layout {
        level,
        slots,
        chunk_bytes,
        stripes,
    })
}

impl Backend for ArrayBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn open(&self, ring: &Ring, depth: u32) -> Result<Box<dyn Device>, OpenError> {
        let device = device::ArrayDevice::open(
            &self.members,
            &self.control,
            self.layout,
            &self.info,
            ring,
            depth,
        )?;
        Ok(Box::new(device))
    }

    fn storage(&self) -> Vec<crate::StorageId> {
        self.members
            .iter()
            .flat_map(|member| member.storage())
            .collect()
    }

    fn handles(&self) -> Handles {
        let own: Arc<dyn Controllable> = Arc::<ArrayControl>::clone(&self.control);
        let mut handles = vec![(self.name.clone(), own)];
        for (index, member) in self.members.iter().enumerate() {
            handles.extend(
                member
                    .handles()
                    .into_iter()
                    .map(|(name, handle)| (format!("{index}/{name}"), handle)),
            );
        }
        handles
    }
}

impl Drop for ArrayBackend {
    fn drop(&mut self) {
        self.control.close();
        if let Some(thread) = self.rebuilder.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
