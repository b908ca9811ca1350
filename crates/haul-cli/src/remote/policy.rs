//! Options that let the receiving side accept special files, links out of the destination, system
//! attributes, and stored digests.

use clap::Args;
use haul_engine::transfer::SinkPolicy;
use haul_proto::Keep;
use std::ffi::OsString;

/// Options of the receiver. Without them it refuses these entries, whatever the sender announces.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicyArgs {
    /// Keep setuid and setgid bits at the receiver. Use it only with a host that you trust as much
    /// as the receiver.
    #[arg(long, help_heading = "What the receiver accepts")]
    pub(crate) setuid: bool,
    /// Create pipes, sockets and devices at the receiver; they are refused otherwise.
    #[arg(long, conflicts_with = "no_specials", help_heading = "What the receiver accepts")]
    specials: bool,
    /// Create symbolic links to targets outside the destination directory; they are refused
    /// otherwise.
    #[arg(long, help_heading = "What the receiver accepts")]
    outside_links: bool,
    /// Set extended attributes other than user.* and access control lists, such as security.* and
    /// trusted.*; they are left out otherwise.
    #[arg(long, help_heading = "What the receiver accepts")]
    system_xattrs: bool,
    /// Accept digests stored with files: the directory .haul and the attributes of
    /// 'haul sum --store'; they are left out otherwise. 'haul verify' trusts them.
    #[arg(long, help_heading = "What the receiver accepts")]
    stored_sums: bool,
}

impl PolicyArgs {
    /// Returns the policy of the receiver.
    pub(crate) fn policy(self) -> SinkPolicy {
        let PolicyArgs { specials, outside_links, system_xattrs, .. } = self;
        SinkPolicy { specials, outside_links, system_xattrs }
    }

    /// Returns `keep` without the bits that the receiver does not accept.
    pub(crate) fn limit(self, keep: Keep) -> Keep {
        let keep = if self.setuid { keep } else { keep.without(Keep::SETUID) };
        if self.stored_sums { keep } else { keep.without(Keep::STORED_SUMS) }
    }

    /// Returns the options that are set, as words of a command line.
    pub(crate) fn words(self) -> Vec<&'static str> {
        let all = self.flags();
        all.into_iter().filter(|(_, is_set)| *is_set).map(|(word, _)| word).collect()
    }

    /// Parses words that [`PolicyArgs::words`] returned. Returns `None` for any other word.
    pub(crate) fn from_words(words: &[OsString]) -> Option<PolicyArgs> {
        let mut args = PolicyArgs::default();
        for word in words {
            match word.to_str()? {
                "--setuid" => args.setuid = true,
                "--specials" => args.specials = true,
                "--outside-links" => args.outside_links = true,
                "--system-xattrs" => args.system_xattrs = true,
                "--stored-sums" => args.stored_sums = true,
                _ => return None,
            }
        }
        Some(args)
    }

    fn flags(self) -> [(&'static str, bool); 5] {
        [
            ("--setuid", self.setuid),
            ("--specials", self.specials),
            ("--outside-links", self.outside_links),
            ("--system-xattrs", self.system_xattrs),
            ("--stored-sums", self.stored_sums),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_command_line_are_parsed_back() {
        for bits in 0..32_u8 {
            let is_set = |bit: u8| bits & 1 << bit != 0;
            let args = PolicyArgs {
                setuid: is_set(0),
                specials: is_set(1),
                outside_links: is_set(2),
                system_xattrs: is_set(3),
                stored_sums: is_set(4),
            };
            let words: Vec<OsString> = args.words().into_iter().map(OsString::from).collect();
            assert_eq!(PolicyArgs::from_words(&words), Some(args));
        }
        assert_eq!(PolicyArgs::from_words(&["--all".into()]), None);
    }
}
