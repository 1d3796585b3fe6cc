//! Function names: the kernel's from `/proc/kallsyms`, those of programs from the symbol tables of their files or of
//! separately installed debug files.
//!
//! The rule: an address that no symbol covers has no name. The nearest symbol before it would be a guess, and often a
//! wrong one in a stripped program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{
    Endianness, Object, ObjectSegment, ObjectSymbol, ObjectSymbolTable, ReadCache, SymbolKind,
};

/// Longest name kept, in characters: names of generic functions can be arbitrarily long.
const NAME_CHARS_MAX: usize = 200;
/// Maximum number of symbols read from a file; further functions have no name.
const SYMBOLS_MAX: usize = 4_000_000;

/// The kernel's functions.
#[derive(Default)]
pub struct KernelSymbols {
    /// Addresses and names, sorted.
    functions: Vec<(u64, String)>,
}

impl KernelSymbols {
    /// Reads them. Without permission (`kernel.kptr_restrict`), the kernel hides all addresses.
    pub fn read() -> KernelSymbols {
        KernelSymbols::parse(&fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    fn parse(text: &str) -> KernelSymbols {
        let function = |line: &str| {
            let mut fields = line.split_ascii_whitespace();
            let address = u64::from_str_radix(fields.next()?, 16).ok()?;
            let is_code = matches!(fields.next()?, "T" | "t" | "W" | "w");
            (is_code && address > 0).then_some(())?;
            Some((address, fields.next()?.to_string()))
        };
        let mut functions: Vec<(u64, String)> = text.lines().filter_map(function).collect();
        functions.sort();
        KernelSymbols { functions }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The function at an address. The kernel's list has no sizes, and no code runs in its gaps.
    pub fn name(&self, address: u64) -> Option<&str> {
        let next = self
            .functions
            .partition_point(|(start, _)| *start <= address);
        let (_, name) = self.functions.get(next.checked_sub(1)?)?;
        Some(name)
    }
}

/// A function of a file.
struct FileSymbol {
    address: u64,
    size: u64,
    /// Position in its table.
    index: object::SymbolIndex,
    /// Whether it is a name in the table for dynamic linking.
    is_dynamic: bool,
}

/// The functions at these positions of an ELF file; those without names are absent.
pub fn names_in(path: &Path, offsets: &BTreeSet<u64>) -> BTreeMap<u64, String> {
    let mut names = BTreeMap::new();
    let Some(debug) = add_names(path, offsets, &mut names) else {
        return names;
    };
    let left: BTreeSet<u64> = offsets
        .iter()
        .copied()
        .filter(|at| !names.contains_key(at))
        .collect();
    // Debug files contain no code, but have segments with the same addresses, at other positions in the file.
    if !left.is_empty() && debug.path.exists() {
        let addresses = left
            .iter()
            .filter_map(|at| Some((*at, debug.address(*at)?)));
        let found = File::open(&debug.path).ok().map(ReadCache::new);
        let found = found.as_ref().and_then(|data| ElfFile64::parse(data).ok());
        if let Some(file) = found {
            names.extend(names_at(&file, addresses.collect()));
        }
    }
    names
}

/// Where a file's debug symbols may be, and how positions in the file become addresses.
struct DebugFile {
    path: PathBuf,
    segments: Vec<Segment>,
}

/// A part of the file that is loaded: position, length and address.
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

impl DebugFile {
    fn address(&self, offset: u64) -> Option<u64> {
        address_of(&self.segments, offset)
    }
}

fn address_of(segments: &[Segment], offset: u64) -> Option<u64> {
    let holds = |one: &&Segment| {
        offset
            .checked_sub(one.offset)
            .is_some_and(|at| at < one.size)
    };
    let segment = segments.iter().find(holds)?;
    segment.address.checked_add(offset - segment.offset)
}

/// Adds the names in a file's own tables; `None` if it can't be read.
fn add_names(
    path: &Path,
    offsets: &BTreeSet<u64>,
    names: &mut BTreeMap<u64, String>,
) -> Option<DebugFile> {
    let data = ReadCache::new(File::open(path).ok()?);
    let file: ElfFile64<'_, Endianness, _> = ElfFile64::parse(&data).ok()?;
    let segments = file.segments().map(|segment| {
        let (offset, size) = segment.file_range();
        let address = segment.address();
        Segment {
            offset,
            size,
            address,
        }
    });
    let segments: Vec<Segment> = segments.collect();
    let addresses = offsets
        .iter()
        .filter_map(|at| Some((*at, address_of(&segments, *at)?)));
    names.extend(names_at(&file, addresses.collect()));
    let id = file.build_id().ok().flatten().unwrap_or_default();
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (head, rest) = hex.split_at_checked(2).unwrap_or_default();
    let path = PathBuf::from(format!("/usr/lib/debug/.build-id/{head}/{rest}.debug"));
    Some(DebugFile { path, segments })
}

/// The names at addresses, each with the requested position.
fn names_at<'data, R: object::ReadRef<'data>>(
    file: &ElfFile64<'data, Endianness, R>,
    addresses: Vec<(u64, u64)>,
) -> BTreeMap<u64, String> {
    let functions = |symbols: object::read::elf::ElfSymbolIterator<'data, '_, _, R>, is_dynamic| {
        let functions = symbols.filter(|one| one.kind() == SymbolKind::Text && one.is_definition());
        let function = move |one: object::read::elf::ElfSymbol<'data, '_, _, R>| FileSymbol {
            address: one.address(),
            size: one.size(),
            index: one.index(),
            is_dynamic,
        };
        functions.map(function).collect::<Vec<FileSymbol>>()
    };
    let mut all = functions(file.symbols(), false);
    all.extend(functions(file.dynamic_symbols(), true));
    all.truncate(SYMBOLS_MAX);
    all.sort_by_key(|one| (one.address, one.size));
    let mut names = BTreeMap::new();
    for (asked, address) in addresses {
        let next = all.partition_point(|one| one.address <= address);
        let Some(symbol) = next.checked_sub(1).map(|last| &all[last]) else {
            continue;
        };
        // Functions in assembly often have no size: they extend to the next one.
        if symbol.size > 0 && address - symbol.address >= symbol.size {
            continue;
        }
        let table = match symbol.is_dynamic {
            true => file.dynamic_symbol_table(),
            false => file.symbol_table(),
        };
        let found = table.and_then(|table| table.symbol_by_index(symbol.index).ok());
        if let Some(Ok(name)) = found.map(|one| one.name().map(demangled)) {
            names.insert(asked, name);
        }
    }
    names
}

/// The name as its author wrote it, without the hash that Rust adds.
fn demangled(name: &str) -> String {
    let name = format!("{:#}", rustc_demangle::demangle(name));
    name.chars().take(NAME_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_kernel() {
        let text = "ffffffff81000000 T _stext\nffffffff81000100 t tcp_sendmsg\nffffffff81000200 D jiffies\n\
                    ffffffffc0000000 t nvme_queue_rq\t[nvme]\n";
        let symbols = KernelSymbols::parse(text);
        assert_eq!(symbols.name(0xffff_ffff_8100_00ff), Some("_stext"));
        assert_eq!(symbols.name(0xffff_ffff_8100_0100), Some("tcp_sendmsg"));
        assert_eq!(symbols.name(0xffff_ffff_c000_0001), Some("nvme_queue_rq"));
        assert_eq!(symbols.name(1), None);
        let hidden = KernelSymbols::parse("0000000000000000 T _stext\n0000000000000000 t a\nx\n\n");
        assert!(hidden.is_empty() && hidden.name(7).is_none());
    }

    /// The test program has no name for a position outside its code, and one for this test's own function.
    #[test]
    fn own_functions_have_names() {
        let own = std::env::current_exe().unwrap();
        let data = fs::read(&own).unwrap();
        let file = object::File::parse(&data[..]).unwrap();
        let this = file.symbols().find(|symbol| {
            let name = symbol.name().unwrap_or_default();
            symbol.kind() == SymbolKind::Text && name.contains("own_functions_have_names")
        });
        let address = this.unwrap().address();
        let offset = file.segments().find_map(|segment| {
            let (offset, size) = segment.file_range();
            let within = address.checked_sub(segment.address())?;
            (within < size).then_some(offset + within)
        });
        let offset = offset.unwrap();
        let names = names_in(&own, &[offset, u64::MAX].into());
        assert_eq!(names.len(), 1);
        let name = &names[&offset];
        assert!(
            name.starts_with("brunt_profile::symbols::tests::own_functions_have_names"),
            "{name}"
        );
    }

    #[test]
    fn a_file_that_is_no_program_has_no_names() {
        let folder = tempfile::tempdir().unwrap();
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        for (name, bytes) in [
            ("text", &b"no ELF"[..]),
            ("cut", &own[..200]),
            ("half", &own[..own.len() / 2]),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            assert!(names_in(&path, &[0x100].into()).len() <= 1, "{name}");
        }
        assert!(names_in(&folder.path().join("none"), &[0].into()).is_empty());
    }
}
