#![no_main]

// The command is a program and no library, so the module that parses its configuration is included
// by path.
#[allow(dead_code, reason = "only reading it is tried")]
#[path = "../../crates/haul-cli/src/serve/config/file.rs"]
mod file;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| file::any(data));
