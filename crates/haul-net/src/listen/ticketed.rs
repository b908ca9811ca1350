//! Simple server setup: a listener with an identity of its own, and one ticket.

use super::{ListenError, ListenSettings, Listener};
use crate::ticket::{Grant, IssueError, Ticket};
use crate::tickets::TicketTable;
use crate::tls::{Identity, IdentityError};
use std::net::SocketAddr;
use std::sync::Arc;
use thiserror::Error;

/// Reason for a failure to create such a listener.
#[derive(Debug, Error)]
pub enum TicketedError {
    /// The certificate could not be created.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The listener could not be started.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The ticket could not be created.
    #[error(transparent)]
    Ticket(#[from] IssueError),
}

impl Listener {
    /// Listens at `addresses`, with encryption, for the holders of one ticket. The ticket allows
    /// `grant` and contains the addresses of the listener. Pass addresses that clients can reach,
    /// not the unspecified address.
    ///
    /// # Errors
    /// Returns a [`TicketedError`] if the certificate, the listener or the ticket cannot be
    /// created.
    pub fn with_ticket(addresses: &[SocketAddr], grant: Grant) -> Result<(Listener, Ticket), TicketedError> {
        let (identity, tickets) = (Identity::generate()?, Arc::new(TicketTable::default()));
        let settings = ListenSettings::default();
        let listener = Listener::start(addresses, Some(&identity), Arc::clone(&tickets), settings, |_| {})?;
        let at = listener.local_addresses().iter().map(|&address| address.into()).collect();
        let ticket = Ticket::issue(grant, at, Some(identity.fingerprint()))?;
        tickets.insert(ticket.clone());
        Ok((listener, ticket))
    }
}
