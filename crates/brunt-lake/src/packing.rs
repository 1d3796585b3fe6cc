//! Packs integers into few bits using Parquet's encodings: blocks of deltas, runs, dictionary indexes. Called by
//! [`crate::encode`] for whole columns. Pure.
//!
//! The rule: unpacking returns exactly the packed values, for every 64-bit value; sums wrap around.

use pulp::Arch;

/// Values per block of deltas; each of its four miniblocks has its own bit width.
const BLOCK: usize = 128;
const PART: usize = 32;
const PARTS: usize = BLOCK / PART;
/// Minimum number of equal consecutive values worth encoding as a run.
const RUN_MIN: usize = 16;

/// Appends a number in groups of seven bits, lowest first (ULEB128).
pub(crate) fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn zigzag(number: i64, out: &mut Vec<u8>) {
    varint((number << 1 ^ number >> 63) as u64, out);
}

/// Number of bits needed for a number.
pub(crate) fn width(number: u64) -> usize {
    (u64::BITS - number.leading_zeros()) as usize
}

/// Minimum and maximum.
pub(crate) fn extremes(values: &[i64]) -> Option<(i64, i64)> {
    let first = *values.first()?;
    if all_same(values) {
        return Some((first, first));
    }
    Some(Arch::new().dispatch(|| {
        values
            .iter()
            .fold((first, first), |(least, greatest), value| {
                (least.min(*value), greatest.max(*value))
            })
    }))
}

/// Whether all values are equal. Compares the ends first, then all values without a branch per value.
pub(crate) fn all_same(values: &[i64]) -> bool {
    let (Some(first), Some(last)) = (values.first(), values.last()) else {
        return true;
    };
    first == last
        && values
            .chunks(1024)
            .all(|some| some.iter().fold(0, |bits, value| bits | (value ^ first)) == 0)
}

/// `DELTA_BINARY_PACKED`: differences between neighbours minus the block's smallest difference, in as many bits as the
/// largest of 32 needs. Costs a nanosecond per value, and almost nothing if all values are equal.
pub(crate) fn deltas(values: &[i64], out: &mut Vec<u8>) {
    varint(BLOCK as u64, out);
    varint(PARTS as u64, out);
    varint(values.len() as u64, out);
    let Some((first, rest)) = values.split_first() else {
        return zigzag(0, out);
    };
    zigzag(*first, out);
    if all_same(values) {
        // Each block has a smallest delta of zero and four widths of zero.
        out.resize(out.len() + rest.len().div_ceil(BLOCK) * (1 + PARTS), 0);
        return;
    }
    Arch::new().dispatch(|| blocks(values, out));
}

/// Appends the blocks of differences. Inlined, so that it is compiled for the processor's features.
#[inline(always)]
fn blocks(values: &[i64], out: &mut Vec<u8>) {
    let (befores, _) = values.as_chunks::<BLOCK>();
    let (blocks, last) = values[1..].as_chunks::<BLOCK>();
    for (block, before) in blocks.iter().zip(befores) {
        let deltas = std::array::from_fn(|index| block[index].wrapping_sub(before[index]));
        put_block(&deltas, out);
    }
    if last.is_empty() {
        return;
    }
    let before = &values[values.len() - 1 - last.len()..];
    let mut deltas = [0; BLOCK];
    let (some, beyond) = deltas.split_at_mut(last.len());
    for (delta, (value, before)) in some.iter_mut().zip(last.iter().zip(before)) {
        *delta = value.wrapping_sub(*before);
    }
    // Pad with the minimum, which takes no bits.
    beyond.fill(least(some));
    put_block(&deltas, out);
}

#[inline(always)]
fn least(deltas: &[i64]) -> i64 {
    deltas
        .iter()
        .fold(i64::MAX, |least, delta| least.min(*delta))
}

#[inline(always)]
fn put_block(deltas: &[i64; BLOCK], out: &mut Vec<u8>) {
    let least = least(deltas);
    let above: [u64; BLOCK] = std::array::from_fn(|index| deltas[index].wrapping_sub(least) as u64);
    zigzag(least, out);
    let (parts, _) = above.as_chunks::<PART>();
    let widths: [usize; PARTS] =
        std::array::from_fn(|part| width(parts[part].iter().fold(0, |bits, value| bits | value)));
    out.extend(widths.map(|width| width as u8));
    for (part, width) in parts.iter().zip(widths) {
        pack(part, width, out);
    }
}

/// Packs 32 values of `width` bits. Neighbours are combined as long as they fit in a word: this vectorizes and leaves a
/// half or a quarter of the sequential steps.
#[inline(always)]
fn pack(values: &[u64; PART], width: usize, out: &mut Vec<u8>) {
    let pairs = || {
        std::array::from_fn::<u64, { PART / 2 }, _>(|i| values[2 * i] | values[2 * i + 1] << width)
    };
    match width {
        0 => {}
        1..=16 => {
            let pairs = pairs();
            let fours: [u64; PART / 4] =
                std::array::from_fn(|i| pairs[2 * i] | pairs[2 * i + 1] << (2 * width));
            words(&fours, 4 * width, out);
        }
        17..=32 => words(&pairs(), 2 * width, out),
        _ => words(values, width, out),
    }
}

/// Packs values of `width` bits, 1 to 64. Together they must fill a multiple of four bytes.
#[inline(always)]
fn words(values: &[u64], width: usize, out: &mut Vec<u8>) {
    let (mut word, mut filled) = (0u64, 0);
    for value in values {
        word |= value << filled;
        let room = 64 - filled;
        if width < room {
            filled += width;
            continue;
        }
        out.extend_from_slice(&word.to_le_bytes());
        word = value.checked_shr(room as u32).unwrap_or(0);
        filled = width - room;
    }
    out.extend_from_slice(&word.to_le_bytes()[..filled / 8]);
}

/// Packs values of `width` bits; the last byte is padded with zeros.
pub(crate) fn bits(values: impl Iterator<Item = u64>, width: usize, out: &mut Vec<u8>) {
    let (mut word, mut filled) = (0u64, 0);
    for value in values {
        word |= value << filled;
        filled += width;
        // A width is at most 32, so no bits are shifted out at the top.
        while filled >= 32 {
            out.extend_from_slice(&(word as u32).to_le_bytes());
            word >>= 32;
            filled -= 32;
        }
    }
    out.extend_from_slice(&word.to_le_bytes()[..filled.div_ceil(8)]);
}

/// `RLE`: runs of equal values, and other values in groups of eight; each value has `width` bits (at most 32).
pub(crate) fn runs<T: Copy + PartialEq>(
    values: &[T],
    width: usize,
    number: impl Fn(T) -> u64,
    out: &mut Vec<u8>,
) {
    let literals = |values: &[T], out: &mut Vec<u8>| {
        if !values.is_empty() {
            let groups = values.len().div_ceil(8);
            varint((groups as u64) << 1 | 1, out);
            let start = out.len();
            bits(values.iter().map(|value| number(*value)), width, out);
            out.resize(start + groups * width, 0);
        }
    };
    let (mut at, mut unwritten) = (0, 0);
    while let Some(&value) = values.get(at) {
        let run = values[at..]
            .iter()
            .position(|other| *other != value)
            .unwrap_or(values.len() - at);
        if run < RUN_MIN {
            // Groups start at multiples of eight from the end of the last run.
            at += 8;
            continue;
        }
        literals(&values[unwritten..at], out);
        varint((run as u64) << 1, out);
        out.extend_from_slice(&number(value).to_le_bytes()[..width.div_ceil(8)]);
        at += run;
        unwritten = at;
    }
    literals(&values[unwritten..], out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_varint(bytes: &mut &[u8]) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return number;
            }
        }
    }

    fn read_zigzag(bytes: &mut &[u8]) -> i64 {
        let number = read_varint(bytes);
        (number >> 1) as i64 ^ -((number & 1) as i64)
    }

    fn bit(bytes: &[u8], at: usize) -> u64 {
        u64::from(bytes[at / 8] >> (at % 8) & 1)
    }

    fn value(bytes: &[u8], index: usize, width: usize) -> u64 {
        (0..width).map(|b| bit(bytes, index * width + b) << b).sum()
    }

    /// Decodes bit by bit, as the format specifies.
    fn read_deltas(mut bytes: &[u8]) -> Vec<i64> {
        let bytes = &mut bytes;
        assert_eq!((read_varint(bytes), read_varint(bytes)), (128, 4));
        let count = read_varint(bytes) as usize;
        let mut all = vec![read_zigzag(bytes)];
        while all.len() < count {
            let least = read_zigzag(bytes);
            let (widths, rest) = bytes.split_at(4);
            *bytes = rest;
            for width in widths.iter().map(|width| usize::from(*width)) {
                for index in 0..32 {
                    let delta = value(bytes, index, width).wrapping_add(least as u64);
                    if all.len() < count {
                        all.push(all.last().unwrap().wrapping_add(delta as i64));
                    }
                }
                *bytes = &bytes[width * 4..];
            }
        }
        assert!(bytes.is_empty());
        all.truncate(count);
        all
    }

    /// Every width and the limits of the range decode correctly, in full and partial blocks.
    #[test]
    fn every_width_and_the_range_limits_decode_correctly() {
        let check = |values: &[i64]| {
            let mut out = Vec::new();
            deltas(values, &mut out);
            assert_eq!(read_deltas(&out), values);
        };
        for values in [&[][..], &[7], &[i64::MIN, i64::MAX, 0, -1], &[5; 300]] {
            check(values);
        }
        let mut random = brunt_core::random::Random::new(11);
        for width in 0..=64u32 {
            for count in [2, 33, 129, 400] {
                let mask = u64::MAX.checked_shr(64 - width).unwrap_or(0);
                let values: Vec<i64> = (0..count)
                    .map(|_| (random.next_u64() & mask) as i64)
                    .collect();
                check(&values);
                let sums = values.iter().scan(-3i64, |sum, value| {
                    *sum = sum.wrapping_add(*value);
                    Some(*sum)
                });
                check(&sums.collect::<Vec<_>>());
            }
        }
    }

    /// Minimum, maximum and equality, at every position and length.
    #[test]
    fn extremes_are_found() {
        let mut random = brunt_core::random::Random::new(13);
        assert_eq!((extremes(&[]), all_same(&[])), (None, true));
        for count in 1..70 {
            let mut values: Vec<i64> = (0..count).map(|_| random.next_u64() as i64).collect();
            for _ in 0..4 {
                let expected = (*values.iter().min().unwrap(), *values.iter().max().unwrap());
                assert_eq!(
                    (extremes(&values), all_same(&values)),
                    (Some(expected), expected.0 == expected.1)
                );
                values.rotate_left(count / 3);
            }
            values.fill(i64::MIN);
            assert_eq!(
                (extremes(&values), all_same(&values)),
                (Some((i64::MIN, i64::MIN)), true)
            );
        }
        let mut values = vec![7; 5000];
        values[2500] = 8;
        assert_eq!(
            (extremes(&values), all_same(&values)),
            (Some((7, 8)), false)
        );
    }

    /// Runs and the values between them decode correctly, for each width.
    #[test]
    fn runs_and_the_values_between_them_decode_correctly() {
        let mut random = brunt_core::random::Random::new(12);
        for width in 0..=32usize {
            for count in [0usize, 1, 7, 8, 9, 40, 1000] {
                let mut values = Vec::new();
                while values.len() < count {
                    let run = if random.chance(0.3) {
                        random.next_u64() % 70
                    } else {
                        1
                    };
                    let value = random.next_u64() & ((1 << width) - 1);
                    values.extend(std::iter::repeat_n(value as u32, run as usize));
                }
                values.truncate(count);
                let mut out = Vec::new();
                runs(&values, width, u64::from, &mut out);
                let (mut bytes, mut back) = (&out[..], Vec::new());
                while !bytes.is_empty() {
                    let head = read_varint(&mut bytes);
                    let len = (head >> 1) as usize;
                    if head & 1 == 1 {
                        back.extend((0..len * 8).map(|index| value(bytes, index, width) as u32));
                        bytes = &bytes[len * width..];
                    } else {
                        let value = value(bytes, 0, width.next_multiple_of(8)) as u32;
                        back.extend(std::iter::repeat_n(value, len));
                        bytes = &bytes[width.div_ceil(8)..];
                    }
                }
                assert!(back.len() >= count && back.len() < count + 8);
                assert_eq!(back[..count], values);
            }
        }
    }
}
