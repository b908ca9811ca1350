//! Tests of lanes, of session setup and of hostile peers, over real sockets on the loopback
//! interface.

mod hostile;
mod lanes;
mod sessions;
mod world;
