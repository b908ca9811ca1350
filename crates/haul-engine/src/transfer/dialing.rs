//! Lanes of the side that starts a job.

use haul_net::{Dialer, Lane};

/// Error of a lane that the caller cannot open.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Opens the lanes of one session.
pub trait Dial: Sync {
    /// Opens lane `number`: 0 first, and the others after the peer has accepted, each from its own
    /// thread.
    ///
    /// # Errors
    /// Returns the reason why the lane cannot be opened. Without the first lane there is no
    /// session. Without others the session continues.
    fn lane(&self, number: u32) -> Result<Box<dyn Lane>, BoxError>;

    /// Cancels lanes that are being opened, because the session is over. A session ends only when
    /// all of them have opened or failed. A dialer that cannot cancel a wait therefore delays the
    /// end of the job.
    fn give_up(&self) {}
}

/// A function that opens a lane immediately, or so soon that it delays the end of the job only
/// slightly.
impl<F, L> Dial for F
where
    F: Fn(u32) -> Result<L, BoxError> + Sync,
    L: Into<Box<dyn Lane>>,
{
    fn lane(&self, number: u32) -> Result<Box<dyn Lane>, BoxError> {
        self(number).map(L::into)
    }
}

/// Dials the server of a ticket.
impl Dial for Dialer {
    fn lane(&self, number: u32) -> Result<Box<dyn Lane>, BoxError> {
        Ok(Dialer::lane(self, u16::try_from(number)?)?.into())
    }

    fn give_up(&self) {
        Dialer::give_up(self);
    }
}
