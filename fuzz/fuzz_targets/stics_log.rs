//! The blocks of a cache's log, possibly left by another process or a broken disk: each is parsed or rejected, and
//! parsed blocks are encoded to the same bytes.
#![no_main]

use brunt_block::layers::stics::fuzz_format;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzz_format(bytes));
