//! The blocks of a cache's log, as another process or a broken disk may have left them: each is parsed or refused, and
//! what is parsed is written as it was.
#![no_main]

use brunt_block::layers::stics::fuzz_format;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzz_format(bytes));
