#![no_main]

// As for the configuration: the modules that parse a request are included by path.
#[path = "../../crates/haul-web/src/webtransport/huffman.rs"]
mod huffman;
#[allow(dead_code, reason = "only decoding a request is tried")]
#[path = "../../crates/haul-web/src/webtransport/request.rs"]
mod request;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| request::any(data));
