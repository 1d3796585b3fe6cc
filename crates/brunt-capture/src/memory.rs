//! A memory budget for everything that waits for more packets: out-of-order segments, partial messages, fragments.
//! Each pipeline has its own. The one rule: if the budget is exhausted, the requester abandons what it was waiting
//! for, and the ledger counts it.

/// Maximum buffers kept for reuse, so that a busy capture doesn't call the allocator for each buffer.
const SPARES_MAX: usize = 256;
/// A buffer that grew beyond this size is returned to the allocator.
const SPARE_BYTES_MAX: usize = 64 << 10;

/// Bytes in use, their limit, and spare buffers.
#[derive(Debug)]
pub struct Memory {
    used: usize,
    max: usize,
    spares: Vec<Vec<u8>>,
}

impl Memory {
    /// A budget of `max` bytes.
    pub fn new(max: usize) -> Memory {
        Memory {
            used: 0,
            max,
            spares: Vec::new(),
        }
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Appends to a buffer of this budget, if the budget allows it.
    #[must_use]
    pub fn append(&mut self, buffer: &mut Vec<u8>, bytes: &[u8]) -> bool {
        if self.used + bytes.len() > self.max {
            return false;
        }
        if buffer.capacity() == 0
            && let Some(spare) = self.spares.pop()
        {
            *buffer = spare;
        }
        self.used += bytes.len();
        buffer.extend_from_slice(bytes);
        true
    }

    /// Shortens a buffer of this budget.
    pub fn truncate(&mut self, buffer: &mut Vec<u8>, len: usize) {
        self.used -= buffer.len().saturating_sub(len);
        buffer.truncate(len);
    }

    /// Takes a buffer back, for reuse.
    pub fn release(&mut self, mut buffer: Vec<u8>) {
        self.used -= buffer.len();
        if buffer.capacity() > 0
            && buffer.capacity() <= SPARE_BYTES_MAX
            && self.spares.len() < SPARES_MAX
        {
            buffer.clear();
            self.spares.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit holds, and everything taken is returned.
    #[test]
    fn memory_stays_within_its_bound_and_is_returned() {
        let mut memory = Memory::new(10);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        assert!(memory.append(&mut a, &[1; 8]));
        assert!(!memory.append(&mut b, &[1; 3]));
        memory.truncate(&mut a, 5);
        assert!(memory.append(&mut b, &[1; 3]));
        memory.release(a);
        memory.release(b);
        assert_eq!(memory.used(), 0);
    }
}
