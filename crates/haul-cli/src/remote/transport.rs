//! Options for the transport of the data.

use super::values;
use clap::Args;
use haul_engine::copy::quote;
use haul_net::{CHUNK_FOUND_MAX, CHUNK_MAX, CHUNK_MIN, Chunk, Congestion, PacketCheck, Rate, UdpSettings};
use std::ffi::OsStr;

/// Transport options of a job.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TransportArgs {
    /// Carry the data over NAME: tcp; udp, which holds its rate on long, busy and lossy paths;
    /// quic; or, with a ticket, sctp.
    #[arg(long, value_name = "NAME", default_value = "tcp", help_heading = "Network options")]
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
}

impl TransportArgs {
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
        let udp_only = [("--packet-check", &self.packet_check), ("--chunk-size", &self.chunk_size)];
        let unused = udp_only.iter().find(|(_, value)| value.is_some()).map(|(option, _)| option);
        match (self.transport.as_str(), unused) {
            ("sctp", None) if plain => {
                return Err("--transport=sctp needs encryption; omit --plain".to_owned());
            }
            ("sctp", None) if congestion.is_some() => {
                return Err("--cc applies to TCP and QUIC; omit --transport=sctp".to_owned());
            }
            ("tcp" | "sctp", None) => return Ok(None),
            ("tcp" | "sctp", Some(option)) => {
                return Err(format!("{option} applies to UDP; add --transport=udp"));
            }
            ("quic", None) if plain => {
                return Err("--transport=quic encrypts the data; omit --plain".to_owned());
            }
            ("quic", None) => {
                let quic = congestion.map_or(Ok(Congestion::default()), quic_congestion)?;
                return Ok(Some(UdpSettings { quic: Some(quic), ..UdpSettings::default() }));
            }
            ("quic", Some(option)) => {
                return Err(format!("{option} applies to --transport=udp; QUIC has its own datagrams"));
            }
            ("udp", _) => {}
            (other, _) => {
                let other = quote(OsStr::new(other));
                return Err(format!("--transport: must be tcp, udp, quic or sctp, not {other}"));
            }
        }
        let check = self.packet_check.as_deref().map_or(Ok(PacketCheck::Aead), packet_check)?;
        if plain && check == PacketCheck::Aead {
            return Err(
                "--transport=udp encrypts the data; omit --plain, or add --packet-check=crc32c".to_owned()
            );
        }
        let chunk = self.chunk_size.as_deref().map(chunk_size).transpose()?;
        Ok(Some(UdpSettings {
            check,
            chunk: chunk.map_or(Chunk::Found { max: CHUNK_FOUND_MAX }, Chunk::Fixed),
            ..UdpSettings::default()
        }))
    }
}

/// Returns true for the `udp` of a server, which offers UDP and QUIC, and false for `tcp` and
/// `sctp`.
pub(crate) fn uses_udp(name: &str) -> Result<bool, String> {
    match name {
        "tcp" => Ok(false),
        "udp" => Ok(true),
        "sctp" => Ok(false),
        other => Err(format!("--transport: must be tcp, udp or sctp, not {}", quote(OsStr::new(other)))),
    }
}

/// Parses the congestion control of QUIC.
fn quic_congestion(name: &str) -> Result<Congestion, String> {
    let found = Congestion::ALL.into_iter().find(|congestion| congestion.name() == name);
    found.ok_or_else(|| {
        format!("--cc: must be bbr or cubic with --transport=quic, not {}", quote(OsStr::new(name)))
    })
}

/// Parses a packet check.
pub(crate) fn packet_check(text: &str) -> Result<PacketCheck, String> {
    let found = PacketCheck::ALL.into_iter().find(|check| check.name() == text);
    found.ok_or_else(|| {
        format!("--packet-check: must be aead, crc32c, crc16 or none, not {}", quote(OsStr::new(text)))
    })
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
