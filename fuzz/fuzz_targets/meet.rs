#![no_main]

// As with the configuration: what the two ends of ssh say to each other is taken as a file.
#[allow(dead_code, reason = "only reading it is tried")]
#[path = "../../crates/haul-cli/src/remote/words/line.rs"]
mod line;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| line::any(data));
