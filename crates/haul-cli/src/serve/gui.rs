//! `haul gui`: serves the page for browsers on this host only, and opens it in the desktop's
//! browser.

use super::logs;
use super::resolved::{self, Issue, ResolvedArgs, Share};
use super::sandboxing::Sandboxing;
use super::web::{self, LinkTarget, Web};
use crate::console::say;
use crate::remote::args::buffers;
use crate::remote::ticket::write_secret;
use clap::Parser;
use haul_engine::copy::quote;
use haul_engine::sum::reason;
use haul_engine::transfer::SinkPolicy;
use haul_log::objects::Style;
use haul_net::{Limits, Role, Uses};
use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

pub(crate) const NAME: &str = "haul gui";

/// Program that opens a file or a link in the desktop's browser (freedesktop.org, xdg-utils).
const OPENER: &str = "xdg-open";

/// Serve directories to a browser on this host, and open the page in it.
///
/// Only programs on this host reach the page. The link on standard output signs in one browser,
/// within 15 minutes. Without a desktop, open it from your own computer: forward the port with
/// 'ssh -L PORT:127.0.0.1:PORT HOST', and open the link there.
///
/// Exit status: 0 stopped; 2 the page could not start.
#[derive(Debug, Parser)]
#[command(name = NAME, disable_version_flag = true)]
pub(super) struct GuiArgs {
    /// Directories to serve; nothing outside them is read or written.
    #[arg(value_name = "DIR", default_value = ".")]
    dirs: Vec<OsString>,
    /// Allow the browser only to read.
    #[arg(long)]
    read_only: bool,
    /// Do not open a browser; only print the link.
    #[arg(long)]
    no_browser: bool,
    /// Listen on PORT of 127.0.0.1; 0 selects a free port [default: 7443, or a free one].
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Keep the logs of interrupted jobs in DIR (default: haul in $XDG_STATE_HOME or in
    /// ~/.local/state, or in $XDG_RUNTIME_DIR if those are served); DIR must be outside the served
    /// directories.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Let the kernel confine each session to the served directories (Landlock): auto if it can,
    /// require to refuse to start otherwise, or off.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Sandboxing::Auto, hide_possible_values = true)]
    sandbox: Sandboxing,
    /// Do not print the requests and the results of sessions.
    #[arg(short, long)]
    pub(super) quiet: bool,
}

impl GuiArgs {
    /// Resolves the options. The error is a message.
    pub(super) fn resolve(&self) -> Result<ResolvedArgs, String> {
        let shares = self.dirs.iter().map(|dir| self.share(dir)).collect::<Result<Vec<_>, _>>()?;
        let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let usual: SocketAddr = web::ADDRESS.parse().map_err(|_| "internal error: default address")?;
        let is_free = || TcpListener::bind(usual).is_ok();
        let web = Web {
            address: self.port.map_or_else(|| if is_free() { usual } else { address(0) }, address),
            certificate: None,
            link: if self.no_browser { LinkTarget::Print } else { LinkTarget::Open },
            metrics: None,
            shows_jobs: true,
            has_peers: true,
        };
        let mut resolved = ResolvedArgs {
            udp: None,
            user: None,
            sandbox: self.sandbox,
            waybills: None,
            web: Some(web),
            shares,
            // Sessions of browsers need no other address.
            listen: vec![address(0)],
            addresses: Vec::new(),
            identity: None,
            plain: false,
            rate: None,
            congestion: None,
            multipath: false,
            sctp: false,
            limits: resolved::limits(None, None, None, Limits::default())?,
            buffers: buffers(None, None)?,
            logs: resolved::logs(self.state_dir.clone(), None, None, None, Style::DEFAULT)?,
            once: false,
        };
        if self.state_dir.is_none() && logs::place(&resolved).is_err() {
            // Usually the home directory is served, which has the state directory in it.
            resolved.logs.state = std::env::var_os("XDG_RUNTIME_DIR").map(|dir| Path::new(&dir).join("haul"));
            if logs::place(&resolved).is_err() {
                resolved.logs.state = None;
            }
        }
        Ok(resolved)
    }

    fn share(&self, dir: &OsString) -> Result<Share, String> {
        resolved::check_root(dir)?;
        // The page shows this name: `.` says nothing.
        let root = fs::canonicalize(dir)
            .map_err(|error| format!("cannot serve {}: {}", quote(dir), reason(&error)))?
            .into_os_string();
        Ok(Share {
            name: quote(&root).to_string(),
            root,
            role: if self.read_only { Role::Read } else { Role::Both },
            quota: None,
            keep: resolved::keep(false, false, false),
            policy: SinkPolicy::default(),
            expires: None,
            uses: Uses::Lasting,
            issue: Issue::Withheld,
        })
    }
}

/// File that leads the browser to the link. The code of the link must not be in the arguments of a
/// process, which every user of this host can read.
pub(super) struct Redirect(PathBuf);

impl Redirect {
    /// Writes the file, and opens it in the desktop's browser if there is a desktop. The error is a
    /// message.
    pub(super) fn open(link: &str, state: &Path) -> Result<Redirect, String> {
        let file = state.join(format!("web/open-{}.html", std::process::id()));
        let failed = |error| format!("cannot write {}: {}", quote(file.as_os_str()), reason(&error));
        if let Some(dir) = file.parent() {
            fs::create_dir_all(dir).map_err(failed)?;
        }
        let page = format!(
            "<!doctype html>\n<meta charset=\"utf-8\">\n<title>haul</title>\n\
             <meta http-equiv=\"refresh\" content=\"0; url={link}\">\n<a href=\"{link}\">Open haul</a>\n"
        );
        write_secret(&file, page.as_bytes()).map_err(failed)?;
        let redirect = Redirect(file);
        redirect.start()?;
        Ok(redirect)
    }

    /// Starts the program that opens the file, and reports its failure from another thread.
    fn start(&self) -> Result<(), String> {
        let mut command = Command::new(OPENER);
        command.arg(&self.0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut opener = command
            .spawn()
            .map_err(|error| format!("cannot start {OPENER}: {}; open the link yourself", reason(&error)))?;
        let wait = move || {
            if !opener.wait().is_ok_and(|status| status.success()) {
                say(NAME, &format_args!("{OPENER} found no browser; open the link yourself"));
            }
        };
        // Without the thread, only the message of a failure is missing.
        let _ = thread::Builder::new().name("haul-open".into()).spawn(wait);
        Ok(())
    }
}

impl Drop for Redirect {
    fn drop(&mut self) {
        // The code in it is used or expired by then.
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns true if this process has a desktop that can show a browser.
pub(super) fn has_desktop() -> bool {
    ["WAYLAND_DISPLAY", "DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented;

    #[test]
    fn every_option_is_documented_and_tested() {
        documented::in_document("docs/options/gui.md", documented::typed_by::<GuiArgs>());
    }
}
