#![no_main]

// As for the configuration: the module that parses the messages of the two ends of ssh is included
// by path.
#[allow(dead_code, reason = "only reading it is tried")]
#[path = "../../crates/haul-cli/src/remote/words/line.rs"]
mod line;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| line::any(data));
