//! The shortest way to be found: a listener with an identity of its own, and one ticket.

use super::{ListenError, ListenSettings, Listener};
use crate::book::TicketBook;
use crate::ticket::{Grant, IssueError, Ticket};
use crate::tls::{Identity, IdentityError};
use std::net::SocketAddr;
use std::sync::Arc;
use thiserror::Error;

/// Why there is no such listener.
#[derive(Debug, Error)]
pub enum TicketedError {
    /// No certificate.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// It can't listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// No ticket can be made.
    #[error(transparent)]
    Ticket(#[from] IssueError),
}

impl Listener {
    /// Listens at `addresses`, encrypted, for the holders of one ticket that allows `grant` and names the addresses that are
    /// listened at: name those that clients reach, not "all".
    ///
    /// # Errors
    /// [`TicketedError`].
    pub fn with_ticket(addresses: &[SocketAddr], grant: Grant) -> Result<(Listener, Ticket), TicketedError> {
        let (identity, book) = (Identity::generate()?, Arc::new(TicketBook::default()));
        let settings = ListenSettings::default();
        let listener = Listener::start(addresses, Some(&identity), Arc::clone(&book), settings, |_| {})?;
        let at = listener.local_addresses().iter().map(|&address| address.into()).collect();
        let ticket = Ticket::issue(grant, at, Some(identity.fingerprint()))?;
        book.insert(ticket.clone());
        Ok((listener, ticket))
    }
}
