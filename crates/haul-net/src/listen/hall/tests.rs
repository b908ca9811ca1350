use super::*;
use crate::Encryption;
use crate::ticket::{Grant, Ticket, Uses};

const BINDING: Binding = Binding([7; 32]);
const SOON: Duration = Duration::from_secs(120);

struct Client {
    hall: Arc<Hall>,
    sessions: Receiver<Session>,
    book: Arc<TicketBook>,
}

fn hall(limits: Limits) -> Client {
    let book = Arc::new(TicketBook::default());
    let (hall, sessions) = Hall::new(book.clone(), limits);
    Client { hall, sessions, book }
}

fn peer() -> SocketAddr {
    "192.0.2.1:9".parse().expect("an address")
}

impl Client {
    fn ticket(&self, uses: Uses) -> Ticket {
        let grant = Grant { role: Role::Read, uses, expires: None };
        let ticket = Ticket::issue(grant, vec![peer().into()], None).expect("a ticket");
        self.book.insert(ticket.clone());
        ticket
    }

    fn knock(&self, ticket: &Ticket, session: u8) -> Result<Admitted, Verdict> {
        let session = SessionId([session; 16]);
        let hello = Hello { encryption: Encryption::Plain, lane: 0, ticket: ticket.id(), session };
        let bytes = hello.encode(&ticket.secret, &BINDING);
        let judged = self.hall.judge(&hello, &bytes, &BINDING, peer().ip(), SystemTime::now());
        judged.map_err(|refusal| {
            assert!(refusal.secret.is_some(), "its proof was right");
            refusal.verdict
        })
    }

    /// Admits a lane. Returns true if it is the first of its session, and the other end of the
    /// lane.
    fn enter(&self, ticket: &Ticket, session: u8) -> (bool, Lane) {
        let Admitted { seat, role, .. } = self.knock(ticket, session).unwrap_or_else(|v| panic!("{v}"));
        let (near, far) = Lane::pair().expect("a pair");
        let key = seat.key();
        let lane = far.proven(None, None, Some(Box::new(seat)));
        (self.hall.bring(key, 0, lane, role, peer()), near)
    }

    fn refused(&self, ticket: &Ticket, session: u8) -> Verdict {
        self.knock(ticket, session).err().expect("a refusal")
    }
}

#[test]
fn a_session_is_told_about_with_its_first_lane() {
    let client = hall(Limits::default());
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
fn a_client_lost_before_it_was_in_may_come_again() {
    let client = hall(Limits::default());
    let ticket = client.ticket(Uses::Once);
    drop(client.knock(&ticket, 1).unwrap_or_else(|v| panic!("{v}")).seat);
    assert!(!client.book.is_spent(ticket.id()));
    assert!(client.enter(&ticket, 2).0);
    assert_eq!(client.refused(&ticket, 3), Verdict::Spent);
}

#[test]
fn a_session_outlives_its_lanes_and_ends_when_dropped() {
    let client = hall(Limits::default());
    let ticket = client.ticket(Uses::Once);
    let (_, near) = client.enter(&ticket, 1);
    let session = client.sessions.try_recv().expect("reported");
    drop((near, session.next_lane(SOON).expect("the lane")));
    let (first, _near) = client.enter(&ticket, 1);
    assert!(!first, "a lane for one that was lost");
    drop(session);
    assert_eq!(client.refused(&ticket, 1), Verdict::Spent);
    assert!(client.hall.lock().sessions.is_empty());
}

#[test]
fn a_name_is_no_key_to_anothers_session() {
    let client = hall(Limits::default());
    let (one, two) = (client.ticket(Uses::Lasting), client.ticket(Uses::Lasting));
    let (_, _near) = client.enter(&one, 1);
    assert_eq!(client.refused(&two, 1), Verdict::Unproven);
}

#[test]
fn lanes_of_an_earlier_session_of_the_name_don_t_count() {
    let client = hall(Limits { lanes: 1, ..Limits::default() });
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
fn a_closed_hall_refuses_and_tells_who_waits() {
    let client = hall(Limits::default());
    let ticket = client.ticket(Uses::Lasting);
    client.hall.close();
    assert_eq!(client.refused(&ticket, 1), Verdict::Closing);
    assert!(client.sessions.recv().is_err());
}
