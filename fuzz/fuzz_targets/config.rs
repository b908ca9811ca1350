#![no_main]

// The command is a program and no library: what its configuration may hold is taken as a file.
#[allow(dead_code, reason = "only reading it is tried")]
#[path = "../../crates/haul-cli/src/serve/config/file.rs"]
mod file;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| file::any(data));
