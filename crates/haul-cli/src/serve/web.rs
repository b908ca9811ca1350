//! `--web`: a page for browsers, beside the lanes of tickets.

use super::NAME;
use super::addresses;
use super::copying::{connect_peer, copy_for_browser, list_peer};
use super::gui::{self, Redirect};
use super::resolved::AdvertisedHost;
use super::server::SessionServer;
use super::storage::{self, StorageTarget};
use super::verification::verify_for_browser;
use crate::console::say;
use crate::remote::ticket::write_secret;
use haul_engine::copy::quote;
use haul_engine::sum::reason;
use haul_engine::transfer::Logs;
use haul_net::address::Host;
use haul_net::{Gateway, UdpSettings};
use haul_web::{
    CertificateSource, GivenCertificate, ListJobs, PeerListing, Peers, WebEvent, WebLimits, WebListener,
    WebRoot, WebServer, WebSettings,
};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Default address: only programs on this host reach it.
pub(super) const ADDRESS: &str = "127.0.0.1:7443";

/// File of the self-signed certificate, in the state directory.
const CERTIFICATE: &str = "web/certificate.pem";

/// Resolved settings of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Web {
    pub(super) address: SocketAddr,
    /// Files of the certificate and of its key; self-signed without them.
    pub(super) certificate: Option<(PathBuf, PathBuf)>,
    pub(super) link: LinkTarget,
    /// File for the token of the counters.
    pub(super) metrics: Option<PathBuf>,
    /// True if browsers see the jobs of the user who starts the server.
    pub(super) shows_jobs: bool,
    /// True if browsers may copy to and from other servers.
    pub(super) has_peers: bool,
}

/// Destination of the link that signs in one browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LinkTarget {
    /// Standard output.
    Print,
    /// This file.
    File(PathBuf),
    /// Standard output, and the desktop's browser if there is a desktop.
    Open,
}

/// The running page. Dropped at the end of the server.
pub(super) struct Page {
    _server: WebServer,
    _redirect: Option<Redirect>,
}

/// Parts of the page that need the rights of the user who starts the server.
pub(super) struct Prepared {
    listener: WebListener,
    given: Option<GivenCertificate>,
    link: LinkTarget,
    metrics: Option<PathBuf>,
    shows_jobs: bool,
    has_peers: bool,
}

impl Prepared {
    /// Binds the address and reads the given certificate. `udp` has the settings of lanes over UDP.
    /// The error is a message.
    pub(super) fn new(web: &Web, udp: Option<&UdpSettings>) -> Result<Prepared, String> {
        check_ports(web.address, udp.and_then(|udp| udp.ports))?;
        let given =
            web.certificate.as_ref().map(|(certificate, key)| GivenCertificate::read(certificate, key));
        let given = given.transpose().map_err(|error| error.to_string())?;
        let listener = WebListener::bind(web.address).map_err(|error| error.to_string())?;
        Ok(Prepared {
            listener,
            given,
            link: web.link.clone(),
            metrics: web.metrics.clone(),
            shows_jobs: web.shows_jobs,
            has_peers: web.has_peers,
        })
    }

    /// Serves the shares of `server` to browsers, and hands out the link. `state` is the state
    /// directory, or the reason why there is none. The error is a message.
    pub(super) fn start(
        self,
        server: &SessionServer,
        gateway: Gateway,
        state: Result<PathBuf, String>,
        named: &[AdvertisedHost],
    ) -> Result<Page, String> {
        let quiet = server.quiet;
        let address = self.listener.address();
        let hosts = hosts(address, named);
        let certificate = match self.given {
            Some(given) => CertificateSource::Given(given),
            None => {
                let file = state.as_ref().map(|state| state.join(CERTIFICATE));
                let file = file
                    .map_err(|why| say(NAME, &format_args!("{why}; the next start has another certificate")));
                // Addresses of IPv6 have no brackets in a certificate.
                let names = hosts.iter().map(|host| host.trim_matches(['[', ']']).to_owned()).collect();
                CertificateSource::SelfSigned { file: file.ok(), names }
            }
        };
        let counters = Arc::clone(&server.counters);
        let roots: Vec<WebRoot> = server.served.iter().map(|served| root(server, served)).collect();
        let targets = storage_targets(&roots);
        let sandbox = server.sandbox;
        let settings = WebSettings {
            roots,
            gateway,
            certificate,
            hosts,
            limits: WebLimits::default(),
            metrics: Box::new(move || [counters.metrics(), storage::metrics(&targets)].concat()),
            jobs: self.shows_jobs.then(|| Arc::new(crate::jobs::all_as_json) as ListJobs),
            verify: Arc::new(verify_for_browser),
            copy: Arc::new(copy_for_browser),
            peers: self.has_peers.then(|| Peers {
                connect: Arc::new(connect_peer),
                list: Arc::new(move |listing: &PeerListing| list_peer(sandbox, listing)),
            }),
            on_event: Box::new(move |event: &WebEvent| {
                if !quiet {
                    say(NAME, event);
                }
            }),
        };
        let (page, note) = WebServer::start(self.listener, settings).map_err(|error| error.to_string())?;
        if let Some(note) = note {
            say(NAME, &format_args!("{note}; the next start has another certificate"));
        }
        if !quiet {
            say(
                NAME,
                &format_args!(
                    "serving browsers on {address}; SHA-256 of the certificate: {}",
                    page.certificate()
                ),
            );
        }
        if let Some(file) = &self.metrics {
            write_line(file, page.metrics_token(), "token")?;
        }
        let link = page.link().map_err(|error| error.to_string())?;
        hand_out(&link, &self.link)?;
        let redirect = (self.link == LinkTarget::Open).then(|| open(&link, state.ok().as_deref(), quiet));
        Ok(Page { _server: page, _redirect: redirect.flatten() })
    }
}

/// Refuses a range of UDP ports that has only the port of WebTransport. From other ranges, lanes of
/// tickets take the ports that are free. The error is a message.
fn check_ports(web: SocketAddr, udp: Option<(u16, u16)>) -> Result<(), String> {
    if udp == Some((web.port(), web.port())) {
        return Err(format!(
            "--udp-ports has only port {}, which --web uses; name another port or more ports",
            web.port()
        ));
    }
    Ok(())
}

/// Returns a share for browsers.
fn root(server: &SessionServer, served: &super::TicketedShare) -> WebRoot {
    let share = &served.share;
    // Files need no log, so the directory of the logs stays out of reach.
    let offer = haul_engine::transfer::Offer { logs: Logs::None, ..server.offer(served, share.role) };
    let sandbox = server.sandbox;
    let whole = Path::new(&share.root).canonicalize().ok();
    let last = whole.as_deref().and_then(Path::file_name);
    WebRoot {
        name: last.map_or("/".into(), |last| last.to_string_lossy().into_owned()),
        path: share.root.clone(),
        role: share.role,
        ticket: served.id,
        quota: share.quota,
        expires: served.expires,
        confine: Arc::new(move || sandbox.enter(&offer)),
    }
}

/// Returns the directories of the roots with their names, which a number follows if it is not the
/// first one of this name.
fn storage_targets(roots: &[WebRoot]) -> Vec<StorageTarget> {
    let name = |at: usize| {
        let WebRoot { name, .. } = &roots[at];
        let before = roots[..at].iter().filter(|root| root.name == *name).count();
        if before == 0 { name.clone() } else { format!("{name} ({})", before + 1) }
    };
    (0..roots.len()).map(|at| StorageTarget { name: name(at), path: roots[at].path.clone() }).collect()
}

/// Returns the hosts under which browsers reach the page, as in a URL. A page of another host name
/// that resolves to this address is refused.
fn hosts(address: SocketAddr, named: &[AdvertisedHost]) -> Vec<String> {
    let mut hosts: Vec<String> = Vec::new();
    let mut add = |host: &Host| {
        let host = host.to_string();
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    };
    let is_local = address.ip().is_loopback();
    if !is_local {
        named.iter().for_each(|named| add(&named.host));
    }
    addresses::of_tickets(&[], &[address]).iter().for_each(|address| add(&address.host));
    if is_local {
        named.iter().for_each(|named| add(&named.host));
        if let Ok(name) = Host::parse("localhost") {
            add(&name);
        }
    }
    hosts
}

/// Prints the link or writes it to its file. The error is a message.
fn hand_out(link: &str, target: &LinkTarget) -> Result<(), String> {
    match target {
        LinkTarget::Print | LinkTarget::Open => {
            let mut out = io::stdout().lock();
            let printed = writeln!(out, "{link}").and_then(|()| out.flush());
            printed.map_err(|error| format!("cannot print the link: {error}"))
        }
        LinkTarget::File(file) => write_line(file, link, "link"),
    }
}

/// Opens the link in the desktop's browser. A failure is reported: the link is printed already.
fn open(link: &str, state: Option<&Path>, quiet: bool) -> Option<Redirect> {
    if !gui::has_desktop() {
        if !quiet {
            say(gui::NAME, &"no desktop found; open the link above in a browser");
        }
        return None;
    }
    let opened = state.ok_or_else(|| "no state directory; open the link yourself".to_owned());
    opened.and_then(|state| Redirect::open(link, state)).map_err(|why| say(gui::NAME, &why)).ok()
}

/// Writes `secret` to a file that only this user can read. The error is a message.
fn write_line(file: &Path, secret: &str, what: &str) -> Result<(), String> {
    write_secret(file, format!("{secret}\n").as_bytes()).map_err(|error| {
        format!("cannot write the {what} to {}: {}", quote(file.as_os_str()), reason(&error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_over_udp_need_another_port_than_the_page() {
        let web = "127.0.0.1:7443".parse().expect("an address");
        for usable in [None, Some((7443, 7444)), Some((7000, 7443)), Some((7444, 7444))] {
            assert_eq!(check_ports(web, usable), Ok(()));
        }
        assert!(check_ports(web, Some((7443, 7443))).is_err_and(|why| why.contains("7443")));
    }

    #[test]
    fn the_link_names_the_bound_address_or_the_given_host() {
        let named = [addresses::named("dtn.example.org:7000").expect("a host")];
        let of = |address: &str, named: &[AdvertisedHost]| hosts(address.parse().expect("an address"), named);
        assert_eq!(of("127.0.0.1:7443", &[]), ["127.0.0.1", "localhost"]);
        assert_eq!(of("[::1]:7443", &[]), ["[::1]", "localhost"]);
        assert_eq!(of("127.0.0.1:7443", &named), ["127.0.0.1", "dtn.example.org", "localhost"]);
        assert_eq!(of("192.0.2.7:7443", &named), ["dtn.example.org", "192.0.2.7"]);
    }
}
