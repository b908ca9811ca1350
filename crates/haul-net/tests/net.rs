//! Lanes, meeting and hostile peers, over real sockets on the loopback interface.

mod hostile;
mod lanes;
mod meeting;
mod world;
