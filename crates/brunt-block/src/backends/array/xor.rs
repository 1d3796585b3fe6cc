//! XOR parity for an array's devices and rebuilds.

/// `sum ^= other`, up to the shorter length. Processes eight bytes at a time; the compiler widens this to sixteen or
/// more.
pub(super) fn xor(sum: &mut [u8], other: &[u8]) {
    let mut left = sum.chunks_exact_mut(8);
    let mut right = other.chunks_exact(8);
    for (sum, other) in (&mut left).zip(&mut right) {
        let value = u64::from_ne_bytes((&*sum).try_into().expect("chunks of eight bytes"))
            ^ u64::from_ne_bytes(other.try_into().expect("chunks of eight bytes"));
        sum.copy_from_slice(&value.to_ne_bytes());
    }
    for (sum, other) in left.into_remainder().iter_mut().zip(right.remainder()) {
        *sum ^= other;
    }
}
