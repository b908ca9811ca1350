//! Sessions of the browser's client against the opposite machine of `haul-proto` in memory, in
//! Rust and as WebAssembly.

mod client;
mod dice;
mod download;
mod fetched_from;
mod hostile;
mod page;
mod sent_to;
mod upload;
mod wasm;
mod wire;
