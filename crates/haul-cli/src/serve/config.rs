//! Configuration file of `--config`.

mod file;

pub(super) use file::Config;

use super::addresses;
use super::resolved::{self, Issue, ResolvedArgs, Share};
use super::sandboxing::Sandboxing;
use super::user::SessionUser;
use super::web::{LinkTarget, Web};
use crate::remote::args::buffers;
use crate::remote::values;
use file::{Access, SandboxWhen, ShareConfig};
use haul_engine::copy::quote;
use haul_engine::sum::reason;
use haul_engine::transfer::SinkPolicy;
use haul_log::objects::Style;
use haul_net::{Limits, Role, Uses};
use std::ffi::OsStr;
use std::path::Path;
use std::time::SystemTime;

impl Config {
    /// Reads `file`. The error is a message.
    pub(super) fn read(file: &Path) -> Result<Config, String> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("cannot read {}: {}", quote(file.as_os_str()), reason(&error)))?;
        Config::parse(&text).map_err(|why| format!("cannot parse {}: {why}", quote(file.as_os_str())))
    }

    /// Resolves the configuration. The error is a message.
    pub(super) fn resolve(self) -> Result<ResolvedArgs, String> {
        if self.share.is_empty() {
            return Err("the configuration has no [[share]]; add at least one".to_owned());
        }
        if !self.plain && self.identity.is_none() {
            return Err("the configuration has no identity; add one, because tickets without it are valid only until this process ends"
                .to_owned());
        }
        if self.plain && self.identity.is_some() {
            return Err(
                "plain and identity exclude each other: an unencrypted server has no certificate; remove one of them".to_owned()
            );
        }
        let shares: Vec<Share> = self.share.iter().map(ShareConfig::resolve).collect::<Result<_, _>>()?;
        for (at, share) in shares.iter().enumerate() {
            if shares[..at].iter().any(|other| other.issue == share.issue) {
                return Err(format!(
                    "{}: another share has the same ticket file; name a separate file for each share",
                    share.name
                ));
            }
        }
        let web = self.web()?;
        let style = self.log_style()?;
        let waybills = resolved::waybills(self.waybills.as_deref(), &shares)?;
        let rate = self.rate.as_deref().map(|text| values::bytes("rate", text)).transpose()?;
        let [transport, check, ports, kept] =
            [&self.transport, &self.packet_check, &self.udp_ports, &self.udp_buffers]
                .map(|option| option.as_deref());
        let udp = resolved::udp(transport, check, ports, kept, rate)?;
        Ok(ResolvedArgs {
            buffers: buffers(self.buffers.as_deref(), udp.as_ref())?,
            udp,
            user: self.user.as_deref().map(OsStr::new).map(SessionUser::named).transpose()?,
            sandbox: self.sandbox.map_or(Sandboxing::Auto, |when| match when {
                SandboxWhen::Auto => Sandboxing::Auto,
                SandboxWhen::Require => Sandboxing::Require,
                SandboxWhen::Off => Sandboxing::Off,
            }),
            waybills,
            web,
            shares,
            listen: self.listen,
            addresses: self.address.iter().map(|text| addresses::named(text)).collect::<Result<_, _>>()?,
            identity: self.identity,
            plain: self.plain,
            rate,
            congestion: self.cc,
            multipath: self.mptcp,
            sctp: self.transport.as_deref() == Some("sctp"),
            limits: resolved::limits(self.sessions, self.sessions_per_peer, self.streams, Limits::default())?,
            logs: resolved::logs(
                self.state_dir,
                self.log_quota.as_deref(),
                self.log_jobs,
                self.log_age.as_deref(),
                style,
            )?,
            once: false,
        })
    }
}

impl Config {
    /// Resolves the layout of logs. The error is a message.
    fn log_style(&self) -> Result<Style, String> {
        let Style { mechanism, encoding } = Style::DEFAULT;
        let parsed = self.log_mechanism.as_deref().map_or(Ok(mechanism), str::parse);
        let mechanism = parsed.map_err(|error| format!("log-mechanism: {error}"))?;
        let parsed = self.log_encoding.as_deref().map_or(Ok(encoding), str::parse);
        let encoding = parsed.map_err(|error| format!("log-encoding: {error}"))?;
        Ok(Style { mechanism, encoding })
    }

    /// Resolves the settings of the page for browsers. The error is a message.
    fn web(&self) -> Result<Option<Web>, String> {
        if self.web_cert.is_some() != self.web_key.is_some() {
            return Err("web-cert and web-key need each other; set both, or neither".to_owned());
        }
        let Some(address) = self.web else {
            let is_set = self.web_cert.is_some() || self.web_link.is_some() || self.web_metrics.is_some();
            if is_set || self.web_peers {
                let names = "web-cert, web-key, web-link, web-metrics and web-peers";
                return Err(format!("{names} need web; add it, such as web = '127.0.0.1:7443'"));
            }
            return Ok(None);
        };
        let certificate = self.web_cert.clone().zip(self.web_key.clone());
        Ok(Some(Web {
            address,
            certificate,
            link: self.web_link.clone().map_or(LinkTarget::Print, LinkTarget::File),
            metrics: self.web_metrics.clone(),
            shows_jobs: false,
            has_peers: self.web_peers,
        }))
    }
}

impl ShareConfig {
    fn resolve(&self) -> Result<Share, String> {
        resolved::check_root(self.root.as_os_str())?;
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
            keep: resolved::keep(self.keep_owner, self.keep_setuid, self.stored_sums),
            policy: SinkPolicy {
                specials: self.specials,
                outside_links: self.outside_links,
                system_xattrs: self.system_xattrs,
            },
            // A past date is an error only if it is needed for a new ticket.
            expires: if self.ticket.exists() { None } else { expires.transpose()? },
            uses: Uses::Lasting,
            issue: Issue::Kept(self.ticket.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::resolved::Logs;
    use haul_log::objects::{Encoding, Mechanism};

    fn resolved(text: &str) -> Result<ResolvedArgs, String> {
        Config::parse(text)?.resolve()
    }

    #[test]
    fn a_complete_configuration_is_parsed() {
        let home = tempfile::tempdir().expect("a folder");
        let root = home.path().display();
        let text = format!(
            "identity = '/var/lib/haul/identity.pem'\nlisten = ['127.0.0.1:0', '[::1]:7433']\naddress = ['dtn.example.org:7000']\n\
             rate = '1G'\nsessions = 8\nsessions-per-peer = 2\nstreams = 16\nbuffers = '64M'\n\
             web = '[::1]:7443'\nstate-dir = '/var/lib/haul/state'\nlog-quota = '8M'\nlog-jobs = 20\nlog-age = '2d'\n\
             log-mechanism = 'file'\nlog-encoding = 'enc'\n\
             [[share]]\nroot = '{root}'\nticket = '{root}/a'\naccess = 'write'\nquota = '10G'\nexpires = '30d'\nkeep-owner = true\n\
             [[share]]\nroot = '{root}'\nticket = '{root}/b'\naccess = 'read'\n"
        );
        let resolved = resolved(&text).expect("understood");
        assert_eq!(resolved.shares.len(), 2);
        assert_eq!((resolved.shares[0].role, resolved.shares[0].quota), (Role::Write, Some(10 << 30)));
        assert_eq!((resolved.shares[1].role, resolved.shares[1].expires), (Role::Read, None));
        assert!(resolved.shares[0].expires.is_some());
        assert_eq!(
            (resolved.limits.sessions, resolved.limits.sessions_per_peer, resolved.limits.lanes),
            (8, 2, 16)
        );
        assert!(resolved.web.is_some_and(|web| web.address.port() == 7443 && web.certificate.is_none()));
        let Logs { state, limits, style } = &resolved.logs;
        assert_eq!(*style, Style { mechanism: Mechanism::File, encoding: Encoding::Enc });
        assert_eq!(state.as_deref(), Some(Path::new("/var/lib/haul/state")));
        assert_eq!((limits.bytes, limits.jobs, limits.age.as_secs()), (8 << 20, 20, 2 * 86_400));
        assert_eq!((resolved.listen.len(), resolved.rate, resolved.buffers), (2, Some(1 << 30), 64 << 20));
    }

    /// Same check as the fuzzer's, from mutated configurations.
    #[test]
    fn mutated_configurations_are_parsed_or_refused() {
        let text = "identity = '/i'\nlisten = ['127.0.0.1:0', '[::1]:7433']\nrate = '1G'\nsessions = 8\nstreams = 16\n\
                    [[share]]\nroot = '/'\nticket = '/a'\naccess = 'write'\nexpires = '30d'\nkeep-owner = true\n";
        assert!(Config::parse(text).is_ok());
        let mut random = haul_lab::random::Random::from_seed(7);
        for _ in 0..2000 {
            file::any(&random.mutate(text.as_bytes()));
        }
    }

    #[test]
    fn misspelt_missing_or_conflicting_settings_are_refused() {
        let home = tempfile::tempdir().expect("a folder");
        let root = home.path().display();
        let share = format!("[[share]]\nroot = '{root}'\nticket = '{root}/a'\n");
        for (text, named) in [
            ("sesions = 3\n".to_owned() + &share, "sesions"),
            ("identity = 'i'\n".to_owned(), "no [[share]]"),
            (share.clone(), "no identity"),
            ("plain = true\nidentity = 'i'\n".to_owned() + &share, "exclude"),
            ("plain = true\nsessions = 0\n".to_owned() + &share, "must be at least 1"),
            ("plain = true\nlog-age = '14'\n".to_owned() + &share, "log-age"),
            ("plain = true\nlog-encoding = 'bit16'\n".to_owned() + &share, "log-encoding"),
            ("plain = true\nlisten = ['here']\n".to_owned() + &share, "listen"),
            ("plain = true\nweb-link = 'l'\n".to_owned() + &share, "need web"),
            ("plain = true\nweb-metrics = 'm'\n".to_owned() + &share, "need web"),
            ("plain = true\nweb-key = 'k'\n".to_owned() + &share, "need each other"),
            ("plain = true\n".to_owned() + &share + &share, "has the same ticket file"),
            (format!("plain = true\n[[share]]\nroot = '{root}/no'\nticket = 't'\n"), "/no"),
        ] {
            let error = resolved(&text).expect_err(named);
            assert!(error.contains(named), "{named}: {error}");
        }
    }
}
