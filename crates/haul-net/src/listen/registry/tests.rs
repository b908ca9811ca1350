use super::*;
use crate::Encryption;
use crate::ticket::{Grant, Ticket, Uses};

const BINDING: Binding = Binding([7; 32]);
const SOON: Duration = Duration::from_secs(120);

struct Client {
    registry: Arc<SessionRegistry>,
    sessions: Receiver<Session>,
    tickets: Arc<TicketTable>,
}

fn registry(limits: Limits) -> Client {
    let tickets = Arc::new(TicketTable::default());
    let (registry, sessions) = SessionRegistry::new(tickets.clone(), limits);
    Client { registry, sessions, tickets }
}

fn peer() -> SocketAddr {
    "192.0.2.1:9".parse().expect("an address")
}

impl Client {
    fn ticket(&self, uses: Uses) -> Ticket {
        let grant = Grant { role: Role::Read, uses, expires: None };
        let ticket = Ticket::issue(grant, vec![peer().into()], None).expect("a ticket");
        self.tickets.insert(ticket.clone());
        ticket
    }

    fn knock(&self, ticket: &Ticket, session: u8) -> Result<Admitted, Verdict> {
        let session = SessionId([session; 16]);
        let hello =
            Hello { encryption: Encryption::Plain, udp: false, lane: 0, ticket: ticket.id(), session };
        let bytes = hello.encode(&ticket.secret, &BINDING);
        let judged = self.registry.check_hello(&hello, &bytes, &BINDING, peer().ip(), SystemTime::now());
        judged.map_err(|refusal| {
            assert!(refusal.secret.is_some(), "its proof was right");
            refusal.verdict
        })
    }

    /// Admits a lane. Returns true if it is the first of its session, and the other end of the
    /// lane.
    fn enter(&self, ticket: &Ticket, session: u8) -> (bool, StreamLane) {
        let Admitted { slot, role, .. } = self.knock(ticket, session).unwrap_or_else(|v| panic!("{v}"));
        let (near, far) = StreamLane::pair();
        let key = slot.key();
        let lane = far.authenticated(None, None, Some(Box::new(slot)));
        (self.registry.deliver(key, 0, lane, role, peer()), near)
    }

    fn refused(&self, ticket: &Ticket, session: u8) -> Verdict {
        self.knock(ticket, session).err().expect("a refusal")
    }
}

#[test]
fn session_is_announced_once_with_its_first_lane() {
    let client = registry(Limits::default());
    let ticket = client.ticket(Uses::Lasting);
    let (first, _near) = client.enter(&ticket, 1);
    let (again, _near) = client.enter(&ticket, 1);
    assert!(first && !again);
    let session = client.sessions.try_recv().expect("reported");
    assert_eq!((session.id(), session.role(), session.peer()), (SessionId([1; 16]), Role::Read, peer()));
    assert!(session.next_lane(SOON).is_some() && session.next_lane(SOON).is_some());
    assert!(client.sessions.try_recv().is_err(), "once");
}

#[test]
fn client_lost_before_admission_may_retry() {
    let client = registry(Limits::default());
    let ticket = client.ticket(Uses::Once);
    drop(client.knock(&ticket, 1).unwrap_or_else(|v| panic!("{v}")).slot);
    assert!(!client.tickets.is_used(ticket.id()));
    assert!(client.enter(&ticket, 2).0);
    assert_eq!(client.refused(&ticket, 3), Verdict::Used);
}

#[test]
fn a_session_outlives_its_lanes_and_ends_when_dropped() {
    let client = registry(Limits::default());
    let ticket = client.ticket(Uses::Once);
    let (_, near) = client.enter(&ticket, 1);
    let session = client.sessions.try_recv().expect("reported");
    drop((near, session.next_lane(SOON).expect("the lane")));
    let (first, _near) = client.enter(&ticket, 1);
    assert!(!first, "a lane for one that was lost");
    drop(session);
    assert_eq!(client.refused(&ticket, 1), Verdict::Used);
    assert!(client.registry.lock().sessions.is_empty());
}

#[test]
fn session_id_with_another_ticket_is_refused() {
    let client = registry(Limits::default());
    let (one, two) = (client.ticket(Uses::Lasting), client.ticket(Uses::Lasting));
    let (_, _near) = client.enter(&one, 1);
    assert_eq!(client.refused(&two, 1), Verdict::Unproven);
}

#[test]
fn lanes_of_an_earlier_session_with_the_id_do_not_count() {
    let client = registry(Limits { lanes: 1, ..Limits::default() });
    let ticket = client.ticket(Uses::Lasting);
    let (_, _near) = client.enter(&ticket, 1);
    let earlier = client.sessions.try_recv().expect("reported");
    let (_, old_lane) = earlier.next_lane(SOON).expect("its lane");
    drop(earlier);
    let (first, _near) = client.enter(&ticket, 1);
    assert!(first);
    drop(old_lane);
    assert_eq!(client.refused(&ticket, 1), Verdict::TooManyLanes);
}

#[test]
fn closed_registry_refuses_clients_and_ends_the_wait() {
    let client = registry(Limits::default());
    let ticket = client.ticket(Uses::Lasting);
    client.registry.close();
    assert_eq!(client.refused(&ticket, 1), Verdict::Closing);
    assert!(client.sessions.recv().is_err());
}

#[test]
fn the_buffer_of_a_lane_is_returned_with_its_slot() {
    let client = registry(Limits::default());
    let ticket = client.ticket(Uses::Lasting);
    let slot = || client.knock(&ticket, 3).unwrap_or_else(|verdict| panic!("{verdict}")).slot;
    let _first = slot();
    let max = 64 << 20;
    for _ in 0..3 {
        let mut slots: Vec<LaneSlot> = (0..40).map(|_| slot()).collect();
        let granted: Vec<u64> = slots.iter_mut().map(|slot| slot.reserve_buffer(max, max)).collect();
        assert_eq!((granted[0], granted[39]), (max, BUFFER_MIN));
    }
}
