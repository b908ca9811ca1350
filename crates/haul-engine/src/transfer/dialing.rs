//! How the side that starts a job gets its lanes.

use haul_net::{Dialer, Lane};

/// Something that the caller can't do.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Opens the lanes of one session.
pub trait Dial: Sync {
    /// Opens lane `number`: 0 first, the further ones when the other side has accepted, each from a thread of its own.
    ///
    /// # Errors
    /// Why it can't be had. Without the first there is no session, without others it goes on.
    fn lane(&self, number: u32) -> Result<Lane, BoxError>;

    /// The session is over: lanes that are being opened are not wanted any more. A session ends when all of them have come or failed,
    /// so that whoever can't end a wait makes the job wait for it.
    fn give_up(&self) {}
}

/// Whoever opens a lane at once, or within a time that a job may wait at its end.
impl<F: Fn(u32) -> Result<Lane, BoxError> + Sync> Dial for F {
    fn lane(&self, number: u32) -> Result<Lane, BoxError> {
        self(number)
    }
}

/// To the server of a ticket.
impl Dial for Dialer {
    fn lane(&self, number: u32) -> Result<Lane, BoxError> {
        Ok(Dialer::lane(self, u16::try_from(number)?)?)
    }

    fn give_up(&self) {
        Dialer::give_up(self);
    }
}
