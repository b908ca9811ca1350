//! The wire and its two machines, tried from outside: any message and any bytes through the codec, and whole sessions
//! in a simulated world whose every failure comes from a seed.

mod any;
mod codec;
mod drawn;
mod hostile;
mod mutations;
mod operands;
mod retries;
mod rules;
mod sessions;
mod world;
