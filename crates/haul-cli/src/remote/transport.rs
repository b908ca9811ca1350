//! Options for the transport of the data.

use super::output::Side;
use super::statistics::Recorder;
use super::values;
use clap::Args;
use haul_engine::copy::quote;
use haul_net::{
    CHUNK_FOUND_MAX, CHUNK_MAX, CHUNK_MIN, Chunk, Congestion, PacketCheck, Rate, UDP_BUFFER_MAX,
    UDP_BUFFER_MIN, UdpSettings,
};
use std::ffi::{OsStr, OsString};
use std::time::Duration;

/// Default of `--transport` of a job.
const DEFAULT: &str = "tcp";

/// Round trip below which `--transport=auto` uses TCP: on one host or in one rack several
/// connections of TCP are faster.
const NEAR: Duration = Duration::from_millis(1);

/// Transport options of a job.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TransportArgs {
    /// Carry the data over NAME: tcp; udp, which holds its rate on long, busy and lossy paths;
    /// quic; auto, which uses udp where the remote host and the path permit and is tcp otherwise;
    /// or, with a ticket, sctp.
    #[arg(long, value_name = "NAME", default_value = DEFAULT, help_heading = "Network options")]
    transport: String,
    /// Protect each UDP datagram by CHECK: aead (encrypted and authenticated), crc32c, crc16 or
    /// none. All but aead show the data to anyone on the network path; the remote host needs the
    /// same option [default: aead].
    #[arg(long, value_name = "CHECK", help_heading = "Network options")]
    packet_check: Option<String>,
    /// Put BYTES bytes of data, 200 to 65000, into each UDP datagram that this host sends [default:
    /// as many as pass without fragments].
    #[arg(long, value_name = "BYTES", help_heading = "Network options")]
    chunk_size: Option<String>,
    /// Write rates, losses and delays of the UDP datagrams to FILE, one CSV row per second.
    #[arg(long, value_name = "FILE", help_heading = "Output options")]
    stats_csv: Option<OsString>,
    /// Plot the rate and the losses of the UDP datagrams over time to FILE, an SVG image.
    #[arg(long, value_name = "FILE", help_heading = "Output options")]
    plot: Option<OsString>,
    /// Keep at most SIZE bytes for each UDP connection and direction, 1M to 1G; a long round trip
    /// with losses needs more [default: 64M].
    #[arg(long, value_name = "SIZE", help_heading = "Network options")]
    udp_buffers: Option<String>,
}

impl TransportArgs {
    /// Returns the options with only `--transport=NAME`.
    pub(crate) fn named(name: &str) -> TransportArgs {
        TransportArgs { transport: name.to_owned(), ..TransportArgs::default() }
    }

    /// Returns true for SCTP.
    pub(crate) fn is_sctp(&self) -> bool {
        self.transport == "sctp"
    }

    /// Returns the settings for UDP and for QUIC with this congestion control, or `None` for TCP.
    /// The error is a message.
    pub(crate) fn resolve(
        &self,
        plain: bool,
        congestion: Option<&str>,
    ) -> Result<Option<UdpSettings>, String> {
        let transport = Transport::parse(&self.transport, true)?;
        let own_datagrams = [
            ("--packet-check", self.packet_check.is_some()),
            ("--chunk-size", self.chunk_size.is_some()),
            ("--udp-buffers", self.udp_buffers.is_some()),
        ];
        let figures = [("--stats-csv", self.stats_csv.is_some()), ("--plot", self.plot.is_some())];
        let set =
            |options: &[(&'static str, bool)]| options.iter().find(|(_, is_set)| *is_set).map(|set| set.0);
        match transport {
            Transport::Sctp if plain => {
                return Err("--transport=sctp needs encryption; omit --plain".to_owned());
            }
            Transport::Sctp if congestion.is_some() => {
                return Err("--cc applies to TCP and QUIC; omit --transport=sctp".to_owned());
            }
            Transport::Tcp | Transport::Sctp => {
                return match set(&own_datagrams).or(set(&figures)) {
                    Some(option) => Err(format!("{option} applies to UDP; add --transport=udp")),
                    None => Ok(None),
                };
            }
            Transport::Quic if plain => {
                return Err("--transport=quic encrypts the data; omit --plain".to_owned());
            }
            Transport::Quic => {
                if let Some(option) = set(&own_datagrams) {
                    return Err(format!("{option} applies to --transport=udp; QUIC has its own datagrams"));
                }
                let quic = congestion.map_or(Ok(Congestion::default()), quic_congestion)?;
                return Ok(Some(UdpSettings { quic: Some(quic), ..UdpSettings::default() }));
            }
            Transport::Udp | Transport::Auto => {}
        }
        let falls_back = transport == Transport::Auto;
        let check = self.packet_check.as_deref().map_or(Ok(PacketCheck::Aead), packet_check)?;
        if plain && check == PacketCheck::Aead {
            if falls_back {
                return Ok(None);
            }
            return Err(
                "--transport=udp encrypts the data; omit --plain, or add --packet-check=crc32c".to_owned()
            );
        }
        let chunk = self.chunk_size.as_deref().map(chunk_size).transpose()?;
        Ok(Some(UdpSettings {
            check,
            buffer_max: udp_buffers(self.udp_buffers.as_deref())?,
            chunk: chunk.map_or(Chunk::Found { max: CHUNK_FOUND_MAX }, Chunk::Fixed),
            falls_back,
            round_trip_min: if falls_back { NEAR } else { Duration::ZERO },
            ..UdpSettings::default()
        }))
    }

    /// Creates the files for the figures of a job over UDP; this host has the role `side`. Returns
    /// `None` for TCP. The error is a message.
    pub(crate) fn recorder(&self, side: Side) -> Result<Option<Recorder>, String> {
        if matches!(Transport::parse(&self.transport, true)?, Transport::Tcp | Transport::Sctp) {
            return Ok(None);
        }
        Recorder::create(self.stats_csv.as_deref(), self.plot.as_deref(), side).map(Some)
    }
}

/// A transport by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// TCP only.
    Tcp,
    /// UDP. A server offers TCP too.
    Udp,
    /// QUIC.
    Quic,
    /// UDP, or TCP where UDP is refused or does not pass.
    Auto,
    /// SCTP in place of TCP.
    Sctp,
}

impl Transport {
    /// Parses a name. A server (`is_job` false) offers QUIC with UDP. The error is a message.
    pub(crate) fn parse(name: &str, is_job: bool) -> Result<Transport, String> {
        match name {
            "tcp" => Ok(Transport::Tcp),
            "udp" => Ok(Transport::Udp),
            "quic" if is_job => Ok(Transport::Quic),
            "auto" if is_job => Ok(Transport::Auto),
            "sctp" => Ok(Transport::Sctp),
            other => {
                let choices = if is_job { "tcp, udp, quic, auto or sctp" } else { "tcp, udp or sctp" };
                Err(format!("--transport: must be {choices}, not {}", quote(OsStr::new(other))))
            }
        }
    }
}

fn quic_congestion(name: &str) -> Result<Congestion, String> {
    let found = Congestion::ALL.into_iter().find(|congestion| congestion.name() == name);
    found.ok_or_else(|| {
        format!("--cc: must be haul, bbr or cubic with --transport=quic, not {}", quote(OsStr::new(name)))
    })
}

/// Parses a packet check.
pub(crate) fn packet_check(text: &str) -> Result<PacketCheck, String> {
    let found = PacketCheck::ALL.into_iter().find(|check| check.name() == text);
    found.ok_or_else(|| {
        format!("--packet-check: must be aead, crc32c, crc16 or none, not {}", quote(OsStr::new(text)))
    })
}

/// Parses `--udp-buffers`. The error is a message.
pub(crate) fn udp_buffers(typed: Option<&str>) -> Result<u64, String> {
    let Some(text) = typed else { return Ok(UdpSettings::default().buffer_max) };
    let bytes = values::bytes("--udp-buffers", text)?;
    let is_possible = (UDP_BUFFER_MIN..=UDP_BUFFER_MAX).contains(&bytes);
    if is_possible { Ok(bytes) } else { Err(format!("--udp-buffers: must be from 1M to 1G, not {text}")) }
}

fn chunk_size(text: &str) -> Result<usize, String> {
    let bytes = values::bytes("--chunk-size", text)?;
    let chunk = usize::try_from(bytes).ok().filter(|bytes| (CHUNK_MIN..=CHUNK_MAX).contains(bytes));
    chunk.ok_or_else(|| format!("--chunk-size: must be from {CHUNK_MIN} to {CHUNK_MAX} bytes, not {text}"))
}

/// Returns the rate of each of `lanes` lanes that together hold `rate` bytes per second, or find
/// their rate.
pub(crate) fn held(rate: Option<u64>, lanes: u32) -> Rate {
    match rate {
        Some(rate) => Rate::Fixed((rate / u64::from(lanes.max(1))).max(1)),
        None => Rate::Found { max: None, start: None },
    }
}
