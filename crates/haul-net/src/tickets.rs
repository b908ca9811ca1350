//! Table of the valid tickets of a server.

use crate::hello::{HELLO_BYTES, Hello, Verdict};
use crate::secret::{Binding, SECRET_BYTES, Secret, SessionId, TicketId};
use crate::ticket::{Role, Ticket, Uses};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::time::SystemTime;

/// Valid tickets of a server, and the state of one-time tickets. Tickets can be added and removed
/// while the server runs.
#[derive(Debug, Default)]
pub struct TicketTable(Mutex<HashMap<TicketId, Entry>>);

#[derive(Debug)]
struct Entry {
    ticket: Ticket,
    /// Session that a one-time ticket opened.
    used_by: Option<SessionId>,
}

impl TicketTable {
    /// Adds a ticket, which is valid from now on.
    pub fn insert(&self, ticket: Ticket) {
        self.lock().insert(ticket.id(), Entry { ticket, used_by: None });
    }

    /// Removes a ticket. Returns true if the ticket was in the table. Its sessions continue, but
    /// get no more lanes.
    pub fn revoke(&self, id: TicketId) -> bool {
        self.lock().remove(&id).is_some()
    }

    /// Returns true if a one-time ticket has opened its session.
    pub fn is_used(&self, id: TicketId) -> bool {
        self.lock().get(&id).is_some_and(|entry| entry.used_by.is_some())
    }

    /// Returns the role that a ticket grants, or `None` if the ticket is not in the table.
    pub(crate) fn role_of(&self, id: TicketId) -> Option<Role> {
        self.lock().get(&id).map(|entry| entry.ticket.grant.role)
    }

    /// Removes the expired tickets and returns their number.
    pub fn forget_expired(&self, now: SystemTime) -> usize {
        let mut entries = self.lock();
        let before = entries.len();
        entries.retain(|_, entry| entry.ticket.grant.expires.is_none_or(|end| now < end));
        before - entries.len()
    }

    /// Returns the secret and the role of the ticket if the proof of the hello is valid. The check
    /// of an unknown ticket takes as long as that of a wrong secret.
    pub(crate) fn prove(
        &self,
        hello: &Hello,
        bytes: &[u8; HELLO_BYTES],
        binding: &Binding,
    ) -> Option<(Secret, Role)> {
        let known = self.lock().get(&hello.ticket).map(|e| (e.ticket.secret.clone(), e.ticket.grant.role));
        let is_known = known.is_some();
        let (secret, role) = known.unwrap_or((Secret::from_bytes([0; SECRET_BYTES]), Role::Both));
        let is_proven = Hello::is_proven(bytes, &secret, binding);
        (is_known && is_proven).then_some((secret, role))
    }

    /// Uses the ticket to open `session`.
    pub(crate) fn claim(&self, id: TicketId, session: SessionId, now: SystemTime) -> Result<(), Verdict> {
        let mut entries = self.lock();
        // The ticket was removed after its proof was verified.
        let entry = entries.get_mut(&id).ok_or(Verdict::Unproven)?;
        if entry.used_by.is_some() {
            return Err(Verdict::Used);
        }
        if entry.ticket.grant.expires.is_some_and(|end| now >= end) {
            return Err(Verdict::Expired);
        }
        if entry.ticket.grant.uses == Uses::Once {
            entry.used_by = Some(session);
        }
        Ok(())
    }

    /// Reverts [`claim`](Self::claim): the connection was lost before the client knew that it was
    /// admitted.
    pub(crate) fn release(&self, id: TicketId, session: SessionId) {
        if let Some(entry) = self.lock().get_mut(&id)
            && entry.used_by == Some(session)
        {
            entry.used_by = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TicketId, Entry>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Encryption;
    use crate::ticket::Grant;
    use std::time::Duration;

    const ONE: SessionId = SessionId([1; 16]);
    const TWO: SessionId = SessionId([2; 16]);

    fn ticket(uses: Uses, expires: Option<SystemTime>) -> Ticket {
        let grant = Grant { role: Role::Both, uses, expires };
        Ticket::issue(grant, vec!["host:1".parse().expect("an address")], None).expect("a ticket")
    }

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000)
    }

    #[test]
    fn a_one_time_ticket_opens_one_session() {
        let (tickets, ticket) = (TicketTable::default(), ticket(Uses::Once, None));
        tickets.insert(ticket.clone());
        assert!(!tickets.is_used(ticket.id()));
        assert_eq!(tickets.claim(ticket.id(), ONE, now()), Ok(()));
        assert!(tickets.is_used(ticket.id()));
        assert_eq!(tickets.claim(ticket.id(), TWO, now()), Err(Verdict::Used));
        tickets.release(ticket.id(), TWO);
        assert_eq!(
            tickets.claim(ticket.id(), TWO, now()),
            Err(Verdict::Used),
            "only its own session gives it back"
        );
        tickets.release(ticket.id(), ONE);
        assert_eq!(tickets.claim(ticket.id(), TWO, now()), Ok(()));
    }

    #[test]
    fn reusable_ticket_opens_sessions_until_it_expires() {
        let end = now() + Duration::from_secs(10);
        let (tickets, ticket) = (TicketTable::default(), ticket(Uses::Lasting, Some(end)));
        tickets.insert(ticket.clone());
        assert_eq!(tickets.claim(ticket.id(), ONE, now()), Ok(()));
        assert_eq!(tickets.claim(ticket.id(), TWO, end - Duration::from_secs(1)), Ok(()));
        assert_eq!(tickets.claim(ticket.id(), TWO, end), Err(Verdict::Expired));
        assert_eq!(tickets.forget_expired(end - Duration::from_secs(1)), 0);
        assert_eq!(tickets.forget_expired(end), 1);
    }

    #[test]
    fn only_a_known_ticket_with_the_right_secret_is_proven() {
        let (tickets, ticket) = (TicketTable::default(), ticket(Uses::Lasting, None));
        tickets.insert(ticket.clone());
        let binding = Binding([3; 32]);
        let mut hello =
            Hello { encryption: Encryption::Tls, udp: false, lane: 0, ticket: ticket.id(), session: ONE };
        let right = hello.encode(&ticket.secret, &binding);
        assert!(tickets.prove(&hello, &right, &binding).is_some());
        let wrong = hello.encode(&Secret::from_bytes([0; SECRET_BYTES]), &binding);
        assert!(tickets.prove(&hello, &wrong, &binding).is_none());
        // The substitute for the secret of an unknown ticket is never accepted.
        hello.ticket = TicketId([0; 8]);
        let unknown = hello.encode(&Secret::from_bytes([0; SECRET_BYTES]), &binding);
        assert!(tickets.prove(&hello, &unknown, &binding).is_none());
        assert!(tickets.revoke(ticket.id()) && !tickets.revoke(ticket.id()));
        assert!(tickets.prove(&hello, &right, &binding).is_none());
    }
}
