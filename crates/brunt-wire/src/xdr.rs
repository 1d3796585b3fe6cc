//! Writes XDR (RFC 4506) to the end of a vector: the counterpart of [`crate::Cursor`]. The RPC and NFS encoders use it.
//! The one rule: the cursor reads back the same values.

use zerocopy::{Immutable, IntoBytes};

use crate::FileData;
use crate::cursor::padding;

/// Appends to `out`.
#[derive(Debug)]
pub struct XdrWriter<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> XdrWriter<'a> {
    /// A writer that appends to `out`.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>) -> XdrWriter<'a> {
        XdrWriter { out }
    }

    /// Appends 32 bits, big-endian.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// Appends 64 bits, big-endian.
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// Appends a boolean.
    #[inline]
    pub fn boolean(&mut self, value: bool) {
        self.u32(value.into());
    }

    /// Appends bytes that are already XDR.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Appends a wire struct.
    #[inline]
    pub fn view<T: IntoBytes + Immutable>(&mut self, value: &T) {
        self.raw(value.as_bytes());
    }

    /// Appends an optional value: a boolean, then the value if present.
    #[inline]
    pub fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.boolean(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    /// Appends a variable-length opaque: its length, bytes and padding.
    ///
    /// # Panics
    /// Panics if there are more than 2^32 - 1 bytes.
    #[inline]
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).expect("the length of an opaque fits in 32 bits"));
        self.raw(bytes);
        self.pad(bytes.len());
    }

    /// File data. If the data's bytes are elsewhere, only its length is written: the caller sends the data and the
    /// padding itself.
    ///
    /// # Panics
    /// Panics if only a part of the data's bytes is available.
    #[inline]
    pub fn data(&mut self, data: FileData<'_>) {
        self.u32(data.len);
        if !data.bytes.is_empty() {
            assert_eq!(
                data.bytes.len(),
                data.len as usize,
                "truncated file data cannot be sent"
            );
            self.raw(data.bytes);
            self.pad(data.bytes.len());
        }
    }

    /// Appends the padding after `len` bytes.
    #[inline]
    fn pad(&mut self, len: usize) {
        self.raw(&[0; 3][..padding(len)]);
    }
}
