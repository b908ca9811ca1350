#![no_main]

// As for the configuration: the module that parses the identity of a server is included by path.
#[allow(dead_code, reason = "only reading it is tried")]
#[path = "../../crates/haul-cli/src/serve/identity/pem.rs"]
mod pem;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| pem::any(data));
