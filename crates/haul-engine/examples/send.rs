//! Sends files and trees to who printed a ticket: `send PATH... < TICKET`. Every object is compared
//! where it arrives.

use haul_engine::transfer::{BoxError, Outcome, SendJob, SimpleObserver};
use haul_net::{DialSettings, Dialer, Ticket};
use std::ffi::OsString;

/// Sends `sources` to where the ticket leads, and prints what failed.
pub(crate) fn send(ticket: &str, sources: Vec<OsString>) -> Result<Outcome, BoxError> {
    let dialer = Dialer::new(Ticket::parse(ticket)?, DialSettings::default())?;
    let onlooker = SimpleObserver::default();
    let outcome = haul_engine::transfer::send(&dialer, &SendJob::new(sources), &onlooker.run_context())?;
    for failure in onlooker.failures() {
        eprintln!("{failure}");
    }
    Ok(outcome)
}

fn main() -> Result<(), BoxError> {
    let ticket = std::io::read_to_string(std::io::stdin())?;
    let outcome = send(&ticket, std::env::args_os().skip(1).collect())?;
    println!("{} names, {} bytes", outcome.summary.done, outcome.summary.bytes);
    if outcome.is_whole() { Ok(()) } else { Err("not everything arrived".into()) }
}
