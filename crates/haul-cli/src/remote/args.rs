//! Options that `haul send` and `haul fetch` share, as typed and resolved.

use super::transport::TransportArgs;
use super::values;
use crate::jobs::log_args::{LogArgs, LogOptions};
use clap::Args;
use haul_digest::{Algebra, Algorithm};
use haul_engine::transfer::Resume;
use haul_log::objects::Style;
use haul_model::{Level, ObjectSize};
use haul_net::socket::SCTP;
use haul_net::{SocketSettings, UdpSettings};
use haul_proto::{Compression, JobOptions, Keep, Unit, Update, Verify};
use std::ffi::OsString;

/// Maximum number of lanes: the limit of a server per session.
const LANES_MAX: u32 = 64;

/// Maximum number of bytes in flight without `--buffers`.
const BUFFERS_DEFAULT: u64 = 256 << 20;

/// Minimum of `--buffers`: one object of the default size in flight and the next one.
const BUFFERS_MIN: u64 = 8 << 20;

/// Options for verification, kept metadata and the network.
#[derive(Args, Clone, Debug)]
pub(crate) struct JobArgs {
    /// Set how received data is verified: stream (both sides hash the data during the transfer),
    /// reread (the receiver also reads it back from the device), hybrid (read back only files
    /// larger than the free memory of the receiver), none. For benchmarks: sequential,
    /// file-pipeline, block-pipeline; these are slower and read everything twice.
    #[arg(long, value_name = "HOW", default_value = "stream", help_heading = "Verification")]
    verify: String,
    /// Set the unit that is compared and resent: object, or file.
    #[arg(long, value_name = "object|file", help_heading = "Verification")]
    granularity: Option<String>,
    /// Compare by the digest algorithm ALGO; 'haul sum --help' lists the algorithms.
    #[arg(
        short = 'a',
        long = "hash",
        value_name = "ALGO",
        default_value = "blake3",
        help_heading = "Verification"
    )]
    hash: String,
    /// Set the object size: a power of two, at least 64K.
    #[arg(long, value_name = "SIZE", help_heading = "Verification")]
    object_size: Option<String>,

    /// Skip files that the receiver already has, by RULE: size-time (same size and time; the
    /// default RULE), newer (skip unless the sender's file is newer), missing (skip every existing
    /// name), digest (same digest of the file), object (send only objects that differ).
    #[arg(long, value_name = "RULE", num_args = 0..=1, require_equals = true, default_missing_value = "size-time",
          help_heading = "File selection")]
    update: Option<String>,
    /// Same as --update=digest.
    #[arg(short = 'c', long, conflicts_with = "update", help_heading = "File selection")]
    checksum: bool,
    /// In the sent directories, delete files of the receiver that the sender does not have. If the
    /// sender cannot read some entry, delete nothing. Delete nothing in a directory in which
    /// nothing is sent.
    #[arg(long, help_heading = "File selection")]
    delete: bool,
    /// Same as --delete, but delete also in a directory in which nothing is sent.
    #[arg(long, help_heading = "File selection")]
    delete_all: bool,
    /// Delete at most N files and directories; if there are more, the exit status is 1.
    #[arg(long, value_name = "N", help_heading = "File selection")]
    max_delete: Option<u64>,
    /// Only print the names that would be sent and deleted.
    #[arg(short = 'n', long, help_heading = "File selection")]
    pub(crate) dry_run: bool,

    /// Write files under their final names immediately, without temporary files; an interrupted
    /// file stays incomplete.
    #[arg(long, help_heading = "Metadata options")]
    inplace: bool,
    /// Keep owners by number, not by name.
    #[arg(long, conflicts_with = "no_owner", help_heading = "Metadata options")]
    numeric_ids: bool,
    /// Do not keep owners and groups.
    #[arg(long, help_heading = "Metadata options")]
    no_owner: bool,
    /// Do not keep permissions.
    #[arg(long, help_heading = "Metadata options")]
    no_mode: bool,
    /// Do not keep times.
    #[arg(long, help_heading = "Metadata options")]
    no_times: bool,
    /// Do not keep extended attributes.
    #[arg(long, help_heading = "Metadata options")]
    no_xattrs: bool,
    /// Do not keep access control lists.
    #[arg(long, help_heading = "Metadata options")]
    no_acls: bool,
    /// Send each name of a hard-linked file as a separate file.
    #[arg(long, help_heading = "Metadata options")]
    no_hard_links: bool,
    /// Skip pipes, sockets and devices.
    #[arg(long, help_heading = "Metadata options")]
    no_specials: bool,

    /// Set the number of data connections [default: 4 to 16, by the round-trip time].
    #[arg(long, value_name = "N", help_heading = "Network options")]
    streams: Option<u32>,
    /// Limit the rate to RATE bytes per second, for example 50M or 1GB.
    #[arg(long, value_name = "RATE", help_heading = "Network options")]
    rate: Option<String>,
    /// Compress the sent data: auto (the default HOW; only while the network is slower than the
    /// compression), zstd, zstd:LEVEL (-7 to 19), or none.
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "auto",
          allow_hyphen_values = true, help_heading = "Network options")]
    compress: Option<String>,
    /// Set the congestion control of the connections: bbr, cubic, or another one that the kernel
    /// has; of QUIC, haul (the default), bbr or cubic.
    #[arg(long, value_name = "NAME", help_heading = "Network options")]
    cc: Option<String>,
    /// Use several network paths concurrently with Multipath TCP, if both hosts support it.
    #[arg(long, help_heading = "Network options")]
    mptcp: bool,
    #[command(flatten)]
    pub(crate) transport: TransportArgs,
    /// Do not encrypt the data: anyone on the network path can read and modify it. The remote host
    /// needs the same option.
    #[arg(long, help_heading = "Network options")]
    plain: bool,
    /// Set the memory for data in flight on each side.
    #[arg(long, value_name = "SIZE", help_heading = "Network options")]
    buffers: Option<String>,

    #[command(flatten)]
    log: LogArgs,

    /// Write a waybill to FILE on this host: each transferred name, with the digests of its objects
    /// and its verification level at the receiver. 'haul verify' checks the files of either side
    /// against it. If FILE exists, append a section.
    #[arg(long, value_name = "FILE", help_heading = "Output options")]
    pub(crate) waybill: Option<OsString>,
    /// Do not print the summary.
    #[arg(short, long, help_heading = "Output options")]
    pub(crate) quiet: bool,
    /// Print the name of each transferred file.
    #[arg(short, long, conflicts_with = "quiet", help_heading = "Output options")]
    pub(crate) verbose: bool,
    /// Print one JSON event per line.
    #[arg(long, help_heading = "Output options")]
    pub(crate) json: bool,
    /// Show a progress bar on a terminal even if lines are printed.
    #[arg(long, help_heading = "Output options")]
    pub(crate) progress: bool,
}

/// Resolved options of a job.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedJobArgs {
    pub(crate) options: JobOptions,
    /// `None`: chosen by the round-trip time.
    pub(crate) lanes: Option<u32>,
    pub(crate) buffers: u64,
    /// Rate limit of the sending side in bytes per second.
    pub(crate) rate: Option<u64>,
    pub(crate) link: ConnectionSettings,
    /// Log options of the sink, or the reason why there is no log.
    log: Result<LogOptions, String>,
}

impl ResolvedJobArgs {
    /// Returns a job without options, whose sending side keeps to `rate`. If interrupted, the job
    /// starts from the beginning.
    pub(crate) fn plain(rate: Option<u64>) -> ResolvedJobArgs {
        ResolvedJobArgs {
            options: JobOptions::default(),
            lanes: None,
            buffers: BUFFERS_DEFAULT,
            rate,
            link: ConnectionSettings::default(),
            log: Err("this job keeps no log".to_owned()),
        }
    }

    /// Sets the layout of the job's log, for the side that receives.
    pub(crate) fn with_log_style(mut self, style: Style) -> ResolvedJobArgs {
        if let Ok(log) = &mut self.log {
            log.settings.style = style;
        }
        self
    }

    /// Returns the resume options of the job. `other` identifies the remote host and the request.
    /// If the job cannot be logged, reports the reason to `tell`; the job then starts from the
    /// beginning after an interruption.
    pub(crate) fn resume(&self, other: &[&[u8]], tell: impl FnOnce(&str)) -> Option<Resume> {
        match &self.log {
            Ok(log) => Some(Resume {
                peer: other.join(&0),
                state: log.state.clone(),
                command: None,
                settings: log.settings,
                recheck: log.recheck,
            }),
            Err(why) => {
                tell(why);
                None
            }
        }
    }
}

/// Settings of the connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectionSettings {
    pub(crate) congestion: Option<String>,
    pub(crate) multipath: bool,
    pub(crate) plain: bool,
    /// Connect by SCTP in place of TCP.
    pub(crate) sctp: bool,
    /// Settings of UDP or QUIC without the rate; `None` for TCP.
    pub(crate) udp: Option<UdpSettings>,
}

impl JobArgs {
    /// Resolves the options. The error is a message.
    pub(crate) fn resolve(&self) -> Result<ResolvedJobArgs, String> {
        let verify = one_of("--verify", &VERIFY, &self.verify)?;
        let by_file = matches!(verify, Verify::Sequential | Verify::FilePipeline);
        let unit = match &self.granularity {
            Some(word) => one_of("--granularity", &UNITS, word)?,
            None => {
                if by_file {
                    Unit::File
                } else {
                    Unit::Object
                }
            }
        };
        let algorithm = Algorithm::parse(self.hash.trim()).map_err(|error| format!("--hash: {error}"))?;
        let options = JobOptions {
            object: self.object()?,
            algorithm,
            verify,
            unit,
            settle: match verify {
                Verify::None => Level::Received,
                Verify::Reread => Level::Reread,
                _ => Level::Verified,
            },
            in_order: unit == Unit::File
                && algorithm.algebra() == Algebra::Serial
                && verify == Verify::Stream,
            compression: self.compress.as_deref().map_or(Ok(Compression::Off), values::compression)?,
            keep: self.keep(),
            update: match &self.update {
                _ if self.checksum => Update::Digest,
                None => Update::Always,
                Some(word) => one_of("--update", &UPDATES, word)?,
            },
            in_place: self.inplace,
            delete: self.delete || self.delete_all,
            delete_all: self.delete_all,
            max_delete: self.max_delete.unwrap_or(u64::MAX),
            dry_run: self.dry_run,
            budget: 0,
        };
        if matches!(options.verify, Verify::Reread | Verify::Hybrid) && options.unit == Unit::File {
            return Err(
                "--verify=reread and --verify=hybrid compare objects; omit --granularity=file".to_owned()
            );
        }
        if let Some(sentence) = options.contradiction() {
            return Err(format!("conflicting options: {sentence}"));
        }
        let rate = self.rate.as_deref().map(|text| values::rate("--rate", text)).transpose()?;
        let udp = self.transport.resolve(self.plain, self.cc.as_deref())?;
        let is_quic = udp.as_ref().is_some_and(|udp| udp.quic.is_some());
        Ok(ResolvedJobArgs {
            options,
            lanes: self.lanes()?,
            buffers: buffers(self.buffers.as_deref(), udp.as_ref())?,
            rate,
            link: ConnectionSettings {
                congestion: self.cc.clone().filter(|_| !is_quic),
                multipath: self.mptcp,
                plain: self.plain,
                sctp: self.transport.is_sctp(),
                udp,
            },
            log: self.log.resolve().map_err(|error| error.to_string()),
        })
    }

    fn object(&self) -> Result<ObjectSize, String> {
        let Some(text) = &self.object_size else { return Ok(ObjectSize::DEFAULT) };
        let bytes = values::bytes("--object-size", text)?;
        ObjectSize::new(bytes).map_err(|error| format!("--object-size: {error}"))
    }

    fn lanes(&self) -> Result<Option<u32>, String> {
        match self.streams {
            None => Ok(None),
            Some(lanes) if (1..=LANES_MAX).contains(&lanes) => Ok(Some(lanes)),
            Some(_) => Err(format!("--streams: must be from 1 to {LANES_MAX}")),
        }
    }

    fn keep(&self) -> Keep {
        let parts = [
            // The receiver decides which stored digests it accepts.
            (true, Keep::LINKS.with(Keep::HOLES).with(Keep::STORED_SUMS)),
            (!self.no_mode, Keep::MODE.with(Keep::SETUID)),
            (!self.no_times, Keep::TIMES),
            (!self.no_owner, Keep::OWNER),
            (self.numeric_ids, Keep::NUMERIC),
            (!self.no_xattrs, Keep::XATTRS),
            (!self.no_acls, Keep::ACLS),
            (!self.no_hard_links, Keep::HARD_LINKS),
            (!self.no_specials, Keep::SPECIALS),
        ];
        parts.into_iter().filter(|(kept, _)| *kept).fold(Keep::default(), |all, (_, part)| all.with(part))
    }
}

impl ConnectionSettings {
    /// Returns the settings of each socket.
    pub(crate) fn socket(&self) -> SocketSettings {
        SocketSettings {
            congestion: self.congestion.clone(),
            multipath: self.multipath,
            sctp: self.sctp.then_some(SCTP),
            ..SocketSettings::default()
        }
    }
}

/// Parses `--buffers`, the maximum number of bytes in flight. Without it, large buffers of UDP
/// lanes raise the default: an object stays in flight longer than its datagrams. The error is a
/// message.
pub(crate) fn buffers(typed: Option<&str>, udp: Option<&UdpSettings>) -> Result<u64, String> {
    let Some(text) = typed else {
        let kept = udp.map_or(0, |udp| udp.buffer_max);
        return Ok(BUFFERS_DEFAULT.max(2 * kept));
    };
    let bytes = values::bytes("--buffers", text)?;
    if bytes < BUFFERS_MIN { Err("--buffers: must be at least 8M".to_owned()) } else { Ok(bytes) }
}

const VERIFY: [(&str, Verify); 7] = [
    ("none", Verify::None),
    ("stream", Verify::Stream),
    ("reread", Verify::Reread),
    ("hybrid", Verify::Hybrid),
    ("sequential", Verify::Sequential),
    ("file-pipeline", Verify::FilePipeline),
    ("block-pipeline", Verify::BlockPipeline),
];

const UNITS: [(&str, Unit); 2] = [("object", Unit::Object), ("file", Unit::File)];

const UPDATES: [(&str, Update); 5] = [
    ("size-time", Update::SizeTime),
    ("newer", Update::Newer),
    ("missing", Update::Missing),
    ("digest", Update::Digest),
    ("object", Update::Object),
];

fn one_of<T: Copy>(option: &str, all: &[(&str, T)], word: &str) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        format!("{option}: must be one of {}, not '{}'", names.join(", "), word.escape_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        job: JobArgs,
    }

    fn resolved(words: &[&str]) -> Result<ResolvedJobArgs, String> {
        let words = ["haul"].iter().chain(words);
        Typed::try_parse_from(words).map_err(|error| error.to_string())?.job.resolve()
    }

    #[test]
    fn defaults_preserve_all_metadata_and_verify_the_stream() {
        let resolved = resolved(&[]).expect("nothing is wrong");
        let JobOptions { verify, unit, settle, update, keep, in_order, .. } = resolved.options;
        assert_eq!((verify, unit, settle), (Verify::Stream, Unit::Object, Level::Verified));
        assert_eq!((update, in_order), (Update::Always, false));
        assert!(keep.has(Keep::OWNER.with(Keep::XATTRS).with(Keep::HARD_LINKS).with(Keep::SETUID)));
        assert!(!keep.has(Keep::NUMERIC));
        assert_eq!(resolved.link, ConnectionSettings::default());
    }

    /// Regression: over 1 second and 5 % loss, objects in flight limited the rate to a third of the
    /// link, although the buffers of UDP sufficed.
    #[test]
    fn large_udp_buffers_raise_the_default_of_objects_in_flight() {
        let buffers = |words: &[&str]| resolved(words).expect("nothing is wrong").buffers;
        assert_eq!(buffers(&["--transport=udp"]), 256 << 20);
        assert_eq!(buffers(&["--transport=udp", "--udp-buffers=600M"]), 1200 << 20);
        assert_eq!(buffers(&["--transport=udp", "--udp-buffers=600M", "--buffers=16M"]), 16 << 20);
    }

    #[test]
    fn each_verify_method_settles_at_its_level() {
        for (word, level, unit) in [
            ("none", Level::Received, Unit::Object),
            ("reread", Level::Reread, Unit::Object),
            ("hybrid", Level::Verified, Unit::Object),
            ("sequential", Level::Verified, Unit::File),
            ("file-pipeline", Level::Verified, Unit::File),
            ("block-pipeline", Level::Verified, Unit::Object),
        ] {
            let options = resolved(&["--verify", word]).expect(word).options;
            assert_eq!((options.settle, options.unit), (level, unit), "{word}");
        }
        assert!(resolved(&["--verify=sequential", "--granularity=object"]).is_err());
        assert!(resolved(&["--verify=block-pipeline", "--granularity=file"]).is_err());
        assert!(resolved(&["--verify=reread", "--granularity=file"]).is_err());
        assert!(resolved(&["--verify=hybrid", "--granularity=file"]).is_err());
        assert!(resolved(&["--verify=some"]).expect_err("unknown").contains("one of none, stream"));
    }

    #[test]
    fn a_serial_digest_of_whole_files_requires_object_order() {
        let in_order = |words: &[&str]| resolved(words).expect("fine").options.in_order;
        assert!(in_order(&["--hash=md5", "--granularity=file"]));
        assert!(!in_order(&["--hash=md5"]));
        assert!(!in_order(&["--hash=blake3", "--granularity=file"]));
    }

    #[test]
    fn no_options_disable_preservation() {
        let keep = resolved(&["--no-owner", "--no-mode", "--no-specials"]).expect("fine").options.keep;
        for gone in [Keep::OWNER, Keep::MODE, Keep::SETUID, Keep::SPECIALS] {
            assert!(!keep.has(gone));
        }
        assert!(keep.has(Keep::TIMES));
        assert!(resolved(&["--numeric-ids"]).expect("fine").options.keep.has(Keep::NUMERIC));
        assert!(resolved(&["--numeric-ids", "--no-owner"]).is_err());
    }

    #[test]
    fn values_out_of_range_are_refused_by_option_name() {
        for (words, named) in [
            ("--streams=0", "--streams"),
            ("--streams=65", "--streams"),
            ("--buffers=1K", "--buffers"),
            ("--rate=0", "--rate"),
            ("--object-size=3M", "--object-size"),
            ("--update=all", "--update"),
            ("--compress=zstd:20", "--compress"),
            ("--compress=gzip", "--compress"),
            ("--hash=nosuch", "--hash"),
        ] {
            let error = resolved(&[words]).expect_err(words);
            assert!(error.contains(named), "{words}: {error}");
        }
        assert_eq!(resolved(&["--checksum"]).expect("fine").options.update, Update::Digest);
        assert_eq!(resolved(&["--compress"]).expect("fine").options.compression, Compression::Auto);
        assert_eq!(resolved(&["--update"]).expect("fine").options.update, Update::SizeTime);
    }
}
