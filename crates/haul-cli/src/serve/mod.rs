//! `haul serve`: opens directories to the holders of tickets.

mod addresses;
mod args;
mod config;
mod copying;
mod counters;
mod gui;
mod identity;
mod lines;
mod logs;
mod resolved;
mod sandboxing;
mod server;
mod storage;
mod user;
mod verification;
mod web;

use crate::console::say;
use crate::interrupt::Interrupt;
use crate::remote::args::ConnectionSettings;
use crate::remote::way::STALL_TIMEOUT;
use crate::remote::{ticket, typed};
use args::Args;
use gui::GuiArgs;
use haul_engine::copy::quote;
use haul_engine::sum::reason;
use haul_net::{
    Address, Grant, Identity, ListenError, ListenSettings, Listener, ListenerEvent, Pacer, SocketSettings,
    Ticket, TicketTable,
};
use haul_sys::{process, stat};
use resolved::{Issue, ResolvedArgs, Share};
use server::{SessionServer, TicketedShare};
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use web::LinkTarget;

pub(super) const NAME: &str = "haul serve";

/// Default port.
const PORT: u16 = 7433;

/// Runs the command with `args`, which do not include the command's name.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    typed::run::<Args>(NAME, args, |args, _| Ok(start(args.resolve()?, args.quiet)?))
}

/// Runs `haul gui` with `args`, which do not include the command's name.
pub(crate) fn run_gui(args: &[OsString]) -> ExitCode {
    typed::run::<GuiArgs>(gui::NAME, args, |args, _| Ok(start(args.resolve()?, args.quiet)?))
}

fn start(resolved: ResolvedArgs, quiet: bool) -> Result<u8, String> {
    process::hide_memory()
        .map_err(|error| format!("cannot protect the secrets in memory: {}", reason(&error)))?;
    if resolved.shares.iter().any(|share| share.issue == Issue::Print) && is_journal(io::stdout()) {
        return Err("cannot print the ticket: standard output is the system journal, which keeps the secret; use --ticket-file or --config"
            .to_owned());
    }
    if resolved.web.as_ref().is_some_and(|web| !matches!(web.link, LinkTarget::File(_)))
        && is_journal(io::stdout())
    {
        return Err("cannot print the link: standard output is the system journal, which keeps the code; use --web-link"
            .to_owned());
    }
    let confines = resolved.sandbox.check()?;
    let interrupt = Interrupt::watch().map_err(|error| format!("cannot watch for signals: {error}"))?;
    let identity = match (&resolved.identity, resolved.plain) {
        (_, true) => None,
        (Some(file), false) => Some(identity::load(file)?),
        (None, false) => Some(Identity::generate().map_err(|error| error.to_string())?),
    };
    // The state directory belongs to the user of the sessions.
    if resolved.sctp && resolved.plain {
        return Err("--transport=sctp needs encryption; omit --plain".to_owned());
    }
    let open_logs =
        || logs::open(&resolved).inspect(|store| store.iter().for_each(|store| logs::clear(store, quiet)));
    let early = if resolved.user.is_none() { open_logs()? } else { None };
    let tickets = Arc::new(TicketTable::default());
    // Done before the server listens, because holders of earlier tickets may already retry.
    let kept =
        resolved.shares.iter().map(|share| kept(share, identity.as_ref())).collect::<Result<Vec<_>, _>>()?;
    kept.iter().flatten().for_each(|ticket| tickets.insert(ticket.clone()));
    let listener =
        listen(&resolved, identity.as_ref(), &tickets, quiet).map_err(|error| error.to_string())?;
    for note in listener.notes() {
        say(NAME, note);
    }
    let page = resolved.web.as_ref().map(|web| web::Prepared::new(web, resolved.udp.as_ref())).transpose()?;
    let addresses = addresses::of_tickets(&resolved.addresses, listener.local_addresses());
    let mut served = Vec::new();
    for (share, kept) in resolved.shares.iter().zip(kept) {
        let ticket = match kept {
            Some(ticket) => ticket,
            None => {
                let ticket = made(share, &addresses, identity.as_ref())?;
                issue(&tickets, &ticket, |ticket| hand_out(share, ticket))?;
                ticket
            }
        };
        served.push(TicketedShare { share: share.clone(), id: ticket.id(), expires: ticket.grant().expires });
    }
    let log_store = match &resolved.user {
        None => early,
        Some(user) => {
            user.enter()?;
            user.check(&resolved.shares, resolved.waybills.as_deref())?;
            open_logs()?
        }
    };
    if !quiet {
        say(NAME, &confines);
        tell(&resolved, listener.local_addresses());
    }
    let page = page.map(|page| (page, logs::place(&resolved), resolved.addresses.clone()));
    let server = SessionServer {
        served,
        tickets,
        buffers: resolved.buffers,
        sandbox: resolved.sandbox,
        lanes: u32::from(resolved.limits.lanes),
        sessions: if resolved.once { 1 } else { resolved.limits.sessions },
        quiet,
        waybills: resolved.waybills,
        log_store,
        log_style: resolved.logs.style,
        look_every: logs::look_every(resolved.logs.limits.age),
        counters: Arc::default(),
    };
    // Dropped before the listener, which ends the lanes of browsers.
    let _page = page
        .map(|(page, state, hosts)| page.start(&server, listener.gateway(), state, &hosts))
        .transpose()?;
    Ok(server.open(&listener, resolved.once, &interrupt))
}

/// Listens on the given addresses, else on all addresses.
fn listen(
    resolved: &ResolvedArgs,
    identity: Option<&Identity>,
    tickets: &Arc<TicketTable>,
    quiet: bool,
) -> Result<Listener, ListenError> {
    let link = ConnectionSettings {
        congestion: resolved.congestion.clone(),
        multipath: resolved.multipath,
        plain: resolved.plain,
        sctp: resolved.sctp,
        udp: None,
    };
    let settings = ListenSettings {
        socket: SocketSettings { pace: resolved.rate, ..link.socket() },
        limits: resolved.limits,
        stall: Some(STALL_TIMEOUT),
        pacer: resolved.rate.map(|rate| Arc::new(Pacer::new(rate))),
        udp: resolved.udp.clone(),
    };
    let at = |addresses: &[SocketAddr]| {
        let log = move |event: &ListenerEvent| {
            if !quiet {
                say(NAME, event);
            }
        };
        Listener::start(addresses, identity, Arc::clone(tickets), settings.clone(), log)
    };
    if !resolved.listen.is_empty() {
        return at(&resolved.listen);
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
    tickets: &TicketTable,
    ticket: &Ticket,
    hand_out: impl FnOnce(&Ticket) -> Result<(), String>,
) -> Result<(), String> {
    tickets.insert(ticket.clone());
    hand_out(ticket)
}

/// Returns true if `stream` leads to the journal of systemd, as systemd tells services (variable
/// `JOURNAL_STREAM` of systemd.exec(5)).
fn is_journal(stream: impl AsFd) -> bool {
    let told = std::env::var("JOURNAL_STREAM").ok();
    let told = told.as_deref().and_then(|told| told.split_once(':'));
    let number = |text: &str| text.parse::<u64>().ok();
    let told = told.and_then(|(device, inode)| Some((number(device)?, number(inode)?)));
    told.is_some_and(|told| stat::stat_fd(stream).is_ok_and(|facts| facts.identity() == told))
}

/// Prints the ticket or writes it to its file. The error is a message.
fn hand_out(share: &Share, ticket: &Ticket) -> Result<(), String> {
    match &share.issue {
        Issue::Withheld => Ok(()),
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

fn tell(resolved: &ResolvedArgs, listening: &[SocketAddr]) {
    if resolved.shares.iter().all(|share| share.issue == Issue::Withheld) {
        return;
    }
    let at: Vec<String> = listening.iter().map(ToString::to_string).collect();
    say(NAME, &format_args!("listening on {}", at.join(", ")));
    for share in &resolved.shares {
        let may = match (share.role.may_read(), share.role.may_write()) {
            (true, true) => "fetch and send",
            (true, false) => "fetch",
            _ => "send",
        };
        let place = match &share.issue {
            Issue::Withheld => continue,
            Issue::Print => "the ticket above".to_owned(),
            Issue::New(file) | Issue::Kept(file) => format!("the ticket in {}", quote(file.as_os_str())),
        };
        say(NAME, &format_args!("{}: {place} allows {may}; keep it secret", share.name));
    }
    if resolved.plain {
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
    fn a_ticket_is_registered_before_it_is_printed() {
        let tickets = TicketTable::default();
        let grant = Grant { role: Role::Both, uses: Uses::Once, expires: None };
        let ticket = Ticket::issue(grant, vec!["host:1".parse().unwrap()], None).unwrap();
        let is_known = |ticket: &Ticket| tickets.revoke(ticket.id()).then_some(()).ok_or_else(String::new);
        assert_eq!(issue(&tickets, &ticket, is_known), Ok(()));
    }
}
