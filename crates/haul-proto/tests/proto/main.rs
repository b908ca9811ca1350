//! Tests of the wire format and its two state machines: arbitrary messages and bytes through the
//! codec, and whole sessions in a simulated world whose failures all come from a seed.

mod any;
mod bounds;
mod codec;
mod comparing;
mod document;
mod hostile;
mod mutations;
mod operands;
mod retries;
mod rules;
mod sessions;
mod world;
