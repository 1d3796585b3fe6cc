//! Memory for data in flight: page-aligned, reused, registered with the ring where that helps.
//! A [`Buf`] has one owner at a time: the caller, then the device (or the kernel) from `submit`
//! to the completion, then the caller again. This module owns the unsafe memory behind it.
