//! The file that `--config` names.

use super::addresses;
use super::meant::{self, Issue, Meant, Share};
use crate::remote::args::buffers;
use crate::remote::values;
use haul_engine::copy::quote;
use haul_net::{Limits, Role, Uses};
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What may stand in it. What is misspelt is an error: a limit that is not heeded would be worse.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Config {
    /// Keeps the certificate and its key; without it tickets would not outlive the process.
    identity: Option<PathBuf>,
    #[serde(default)]
    listen: Vec<SocketAddr>,
    #[serde(default)]
    address: Vec<String>,
    #[serde(default)]
    plain: bool,
    rate: Option<String>,
    cc: Option<String>,
    #[serde(default)]
    mptcp: bool,
    sessions: Option<usize>,
    sessions_per_peer: Option<usize>,
    streams: Option<u16>,
    buffers: Option<String>,
    /// A directory for the waybill of each session.
    waybills: Option<PathBuf>,
    #[serde(default)]
    share: Vec<ShareConfig>,
}

/// One `[[share]]`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ShareConfig {
    root: PathBuf,
    /// The file of its ticket, made if it is missing.
    ticket: PathBuf,
    #[serde(default)]
    access: Access,
    /// Of a ticket that is made.
    expires: Option<String>,
    quota: Option<String>,
    #[serde(default)]
    keep_owner: bool,
    #[serde(default)]
    keep_setuid: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Access {
    Read,
    Write,
    #[default]
    Both,
}

impl Config {
    /// What `file` says. The error is a message.
    pub(super) fn read(file: &Path) -> Result<Config, String> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("cannot read {}: {error}", quote(file.as_os_str())))?;
        Config::parse(&text).map_err(|why| format!("{}: {why}", quote(file.as_os_str())))
    }

    fn parse(text: &str) -> Result<Config, String> {
        toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())
    }

    /// What is to be served. The error is a message.
    pub(super) fn resolve(self) -> Result<Meant, String> {
        if self.share.is_empty() {
            return Err("the configuration names no [[share]]: there is nothing to serve".to_owned());
        }
        if !self.plain && self.identity.is_none() {
            return Err("the configuration names no identity: without one its tickets end with this process"
                .to_owned());
        }
        if self.plain && self.identity.is_some() {
            return Err(
                "plain and identity exclude each other: what is not encrypted has no certificate".to_owned()
            );
        }
        let shares: Vec<Share> = self.share.iter().map(ShareConfig::resolve).collect::<Result<_, _>>()?;
        for (at, share) in shares.iter().enumerate() {
            if shares[..at].iter().any(|other| other.issue == share.issue) {
                return Err(format!("{}: each share has a ticket of its own", share.name));
            }
        }
        let waybills = meant::waybills(self.waybills.as_deref(), &shares)?;
        Ok(Meant {
            waybills,
            shares,
            listen: self.listen,
            addresses: self.address.iter().map(|text| addresses::named(text)).collect::<Result<_, _>>()?,
            identity: self.identity,
            plain: self.plain,
            rate: self.rate.as_deref().map(|text| values::bytes("rate", text)).transpose()?,
            congestion: self.cc,
            multipath: self.mptcp,
            limits: meant::limits(self.sessions, self.sessions_per_peer, self.streams, Limits::default())?,
            buffers: buffers(self.buffers.as_deref())?,
            once: false,
        })
    }
}

impl ShareConfig {
    fn resolve(&self) -> Result<Share, String> {
        meant::check_root(self.root.as_os_str())?;
        let quota = self.quota.as_deref().map(|text| values::bytes("quota", text)).transpose()?;
        let expires = self.expires.as_deref().map(|text| values::end(text, SystemTime::now()));
        Ok(Share {
            name: quote(self.root.as_os_str()).to_string(),
            root: self.root.clone().into_os_string(),
            role: match self.access {
                Access::Read => Role::Read,
                Access::Write => Role::Write,
                Access::Both => Role::Both,
            },
            quota,
            keep: meant::keep(self.keep_owner, self.keep_setuid),
            // A date that is over is an error only where a ticket is to be made by it.
            expires: if self.ticket.exists() { None } else { expires.transpose()? },
            uses: Uses::Lasting,
            issue: Issue::Kept(self.ticket.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(text: &str) -> Result<Meant, String> {
        Config::parse(text)?.resolve()
    }

    #[test]
    fn a_whole_configuration_is_understood() {
        let home = tempfile::tempdir().expect("a folder");
        let root = home.path().display();
        let text = format!(
            "identity = '/var/lib/haul/identity.pem'\nlisten = ['127.0.0.1:0', '[::1]:7433']\naddress = ['dtn.example.org:7000']\n\
             rate = '1G'\nsessions = 8\nsessions-per-peer = 2\nstreams = 16\nbuffers = '64M'\n\
             [[share]]\nroot = '{root}'\nticket = '{root}/a'\naccess = 'write'\nquota = '10G'\nexpires = '30d'\nkeep-owner = true\n\
             [[share]]\nroot = '{root}'\nticket = '{root}/b'\naccess = 'read'\n"
        );
        let meant = meant(&text).expect("understood");
        assert_eq!(meant.shares.len(), 2);
        assert_eq!((meant.shares[0].role, meant.shares[0].quota), (Role::Write, Some(10 << 30)));
        assert_eq!((meant.shares[1].role, meant.shares[1].expires), (Role::Read, None));
        assert!(meant.shares[0].expires.is_some());
        assert_eq!((meant.limits.sessions, meant.limits.sessions_per_peer, meant.limits.lanes), (8, 2, 16));
        assert_eq!((meant.listen.len(), meant.rate, meant.buffers), (2, Some(1 << 30), 64 << 20));
    }

    #[test]
    fn what_is_misspelt_missing_or_contradicting_is_refused() {
        let home = tempfile::tempdir().expect("a folder");
        let root = home.path().display();
        let share = format!("[[share]]\nroot = '{root}'\nticket = '{root}/a'\n");
        for (text, named) in [
            ("sesions = 3\n".to_owned() + &share, "sesions"),
            ("identity = 'i'\n".to_owned(), "no [[share]]"),
            (share.clone(), "no identity"),
            ("plain = true\nidentity = 'i'\n".to_owned() + &share, "exclude"),
            ("plain = true\nsessions = 0\n".to_owned() + &share, "begin at 1"),
            ("plain = true\nlisten = ['here']\n".to_owned() + &share, "listen"),
            ("plain = true\n".to_owned() + &share + &share, "ticket of its own"),
            (format!("plain = true\n[[share]]\nroot = '{root}/no'\nticket = 't'\n"), "/no"),
        ] {
            let error = meant(&text).expect_err(named);
            assert!(error.contains(named), "{named}: {error}");
        }
    }
}
