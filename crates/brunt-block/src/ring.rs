//! One thread's io_uring: files and sockets of that thread queue here, one system call submits
//! and waits for all of them.
//!
//! Clients ([`crate::Device`]s, [`crate::Stream`]s) `attach` and get a [`Port`]; completions are
//! kept apart by port. Nobody but the thread's own loop calls [`Ring::enter`].
