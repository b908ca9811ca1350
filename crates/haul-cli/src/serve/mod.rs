//! `haul serve`: opens directories to the holders of tickets.

mod addresses;
mod args;
mod config;
mod hall;
mod identity;
mod logs;
mod meant;

use crate::console::say;
use crate::interrupt::Interrupt;
use crate::remote::args::Link;
use crate::remote::way::STALL;
use crate::remote::{ticket, typed};
use args::Args;
use hall::{Hall, Served};
use haul_engine::copy::quote;
use haul_engine::sum::reason;
use haul_net::{
    Address, DoorEvent, Grant, Identity, ListenError, ListenSettings, Listener, Pacer, Ticket, TicketBook,
};
use meant::{Issue, Meant, Share};
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

pub(super) const NAME: &str = "haul serve";

/// Default port.
const PORT: u16 = 7433;

/// Runs the command with `args`, which do not include the command's name.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    typed::run::<Args>(NAME, args, |args, _| Ok(start(args.resolve()?, args.quiet)?))
}

fn start(meant: Meant, quiet: bool) -> Result<u8, String> {
    let interrupt = Interrupt::watch().map_err(|error| format!("cannot watch for signals: {error}"))?;
    let identity = match (&meant.identity, meant.plain) {
        (_, true) => None,
        (Some(file), false) => Some(identity::load(file)?),
        (None, false) => Some(Identity::generate().map_err(|error| error.to_string())?),
    };
    let room = logs::open(&meant)?;
    if let Some(room) = &room {
        logs::clear(room, quiet);
    }
    let book = Arc::new(TicketBook::default());
    // Done before the server listens, because holders of earlier tickets may already retry.
    let kept =
        meant.shares.iter().map(|share| kept(share, identity.as_ref())).collect::<Result<Vec<_>, _>>()?;
    kept.iter().flatten().for_each(|ticket| book.insert(ticket.clone()));
    let listener = listen(&meant, identity.as_ref(), &book, quiet).map_err(|error| error.to_string())?;
    for note in listener.notes() {
        say(NAME, note);
    }
    let addresses = addresses::of_tickets(&meant.addresses, listener.local_addresses());
    let mut served = Vec::new();
    for (share, kept) in meant.shares.iter().zip(kept) {
        let ticket = match kept {
            Some(ticket) => ticket,
            None => {
                let ticket = made(share, &addresses, identity.as_ref())?;
                issue(&book, &ticket, |ticket| hand_out(share, ticket))?;
                ticket
            }
        };
        served.push(Served { share: share.clone(), id: ticket.id(), expires: ticket.grant().expires });
    }
    if !quiet {
        tell(&meant, listener.local_addresses());
    }
    let hall = Hall {
        served,
        book,
        buffers: meant.buffers,
        lanes: u32::from(meant.limits.lanes),
        quiet,
        waybills: meant.waybills,
        room,
        look_every: logs::look_every(meant.logs.limits.age),
    };
    Ok(hall.open(&listener, meant.once, &interrupt))
}

/// Listens on the given addresses, else on all addresses.
fn listen(
    meant: &Meant,
    identity: Option<&Identity>,
    book: &Arc<TicketBook>,
    quiet: bool,
) -> Result<Listener, ListenError> {
    let link = Link { congestion: meant.congestion.clone(), multipath: meant.multipath, plain: meant.plain };
    let settings = ListenSettings {
        socket: link.socket(),
        limits: meant.limits,
        stall: Some(STALL),
        pacer: meant.rate.map(|rate| Arc::new(Pacer::new(rate))),
    };
    let at = |addresses: &[SocketAddr]| {
        let log = move |event: &DoorEvent| {
            if !quiet {
                say(NAME, event);
            }
        };
        Listener::start(addresses, identity, Arc::clone(book), settings.clone(), log)
    };
    if !meant.listen.is_empty() {
        return at(&meant.listen);
    }
    // If the kernel has no IPv6, only IPv4 is left.
    at(&[SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), PORT)])
        .or_else(|_| at(&[SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT)]))
}

/// Creates a ticket of a share. The error is a message.
fn made(share: &Share, addresses: &[Address], identity: Option<&Identity>) -> Result<Ticket, String> {
    let grant = Grant { role: share.role, uses: share.uses, expires: share.expires };
    Ticket::issue(grant, addresses.to_vec(), identity.map(Identity::fingerprint)).map_err(|error| {
        format!("cannot create a ticket: {error}; specify the address of this host with --address")
    })
}

/// Registers a ticket before handing it out, because its reader may connect immediately.
fn issue(
    book: &TicketBook,
    ticket: &Ticket,
    hand_out: impl FnOnce(&Ticket) -> Result<(), String>,
) -> Result<(), String> {
    book.insert(ticket.clone());
    hand_out(ticket)
}

/// Prints the ticket or writes it to its file. The error is a message.
fn hand_out(share: &Share, ticket: &Ticket) -> Result<(), String> {
    match &share.issue {
        Issue::Print => {
            let mut out = io::stdout().lock();
            let printed = writeln!(out, "{}", *ticket.to_line()).and_then(|()| out.flush());
            printed.map_err(|error| format!("cannot print the ticket: {error}"))
        }
        Issue::New(file) | Issue::Kept(file) => ticket::write(file, ticket).map_err(|error| {
            format!("cannot write the ticket to {}: {}", quote(file.as_os_str()), reason(&error))
        }),
    }
}

/// Returns the ticket of an earlier run, if there is one. Its rights must match the configuration.
/// The error is a message.
fn kept(share: &Share, identity: Option<&Identity>) -> Result<Option<Ticket>, String> {
    let Issue::Kept(file) = &share.issue else { return Ok(None) };
    if !file.exists() {
        return Ok(None);
    }
    let ticket = ticket::read(file.as_os_str())?;
    let hint = format!("remove {} to create a new ticket, and hand it out", quote(file.as_os_str()));
    if ticket.fingerprint() != identity.map(Identity::fingerprint) {
        return Err(format!("{}: the ticket belongs to another server identity; {hint}", share.name));
    }
    if ticket.grant().role != share.role || ticket.grant().uses != share.uses {
        return Err(format!("{}: the ticket grants other rights than the configuration; {hint}", share.name));
    }
    Ok(Some(ticket))
}

fn tell(meant: &Meant, listening: &[SocketAddr]) {
    let at: Vec<String> = listening.iter().map(ToString::to_string).collect();
    say(NAME, &format_args!("listening on {}", at.join(", ")));
    for share in &meant.shares {
        let may = match (share.role.may_read(), share.role.may_write()) {
            (true, true) => "fetch and send",
            (true, false) => "fetch",
            _ => "send",
        };
        let place = match &share.issue {
            Issue::Print => "the ticket above".to_owned(),
            Issue::New(file) | Issue::Kept(file) => format!("the ticket in {}", quote(file.as_os_str())),
        };
        say(NAME, &format_args!("{}: {place} allows {may}; keep it secret", share.name));
    }
    if meant.plain {
        say(NAME, &"warning: encryption is off; anyone on the network path can read and modify the data");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_net::{Role, Uses};

    /// Regression: the ticket was printed before it was registered, so that an immediate client was
    /// refused.
    #[test]
    fn a_ticket_is_honoured_before_anybody_has_it() {
        let book = TicketBook::default();
        let grant = Grant { role: Role::Both, uses: Uses::Once, expires: None };
        let ticket = Ticket::issue(grant, vec!["host:1".parse().unwrap()], None).unwrap();
        let is_known = |ticket: &Ticket| book.withdraw(ticket.id()).then_some(()).ok_or_else(String::new);
        assert_eq!(issue(&book, &ticket, is_known), Ok(()));
    }
}
