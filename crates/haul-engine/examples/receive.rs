//! Takes what one sender sends into a directory, over loopback: `receive DIR` prints a ticket,
//! `send PATH... < TICKET` uses it.

use haul_engine::transfer::{BoxError, Offer, Outcome, SimpleObserver, answer};
use haul_net::{Grant, Listener, Role, Uses};
use std::ffi::OsString;
use std::time::Duration;

/// Waits for one session and takes it into `into`; `tell` gets the ticket.
pub(crate) fn receive(into: OsString, tell: impl FnOnce(&str)) -> Result<Outcome, BoxError> {
    let grant = Grant { role: Role::Write, uses: Uses::Once, expires: None };
    let (listener, ticket) = Listener::with_ticket(&["127.0.0.1:0".parse()?], grant)?;
    tell(&ticket.to_line());
    let session = listener.next_session().ok_or("the listener was stopped")?;
    let (_, first) = session.next_lane(Duration::from_secs(10)).ok_or("the sender is gone")?;
    let mut more = || session.try_next_lane().map(|(_, lane)| lane.into());
    Ok(answer(first.into(), &mut more, &Offer::writable(into), &SimpleObserver::default().run_context())?)
}

fn main() -> Result<(), BoxError> {
    let into = std::env::args_os().nth(1).ok_or("say which directory to receive into")?;
    let outcome = receive(into, |ticket| println!("{ticket}"))?;
    println!("{} names, {} bytes", outcome.summary.done, outcome.summary.bytes);
    if outcome.is_whole() { Ok(()) } else { Err("not everything arrived".into()) }
}
