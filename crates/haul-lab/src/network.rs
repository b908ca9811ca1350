//! Commands for network tests: emulated links, fault proxies and the parts of a transfer.

use crate::link::{self, LinkArgs};
use clap::Subcommand;
use haul_digest::Algorithm;
use haul_lab::fault_proxy::{self, FaultProxy, InjectedFault};
use haul_lab::parts::{Encryption, PartTime, Parts};
use haul_model::parse_size;
use serde_json::json;
use std::error::Error;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Subcommand)]
pub(crate) enum Network {
    /// Join two new network namespaces, NAME-a (near) and NAME-b (far), by a link with faults.
    #[command(after_help = link::HELP)]
    Link(Box<LinkArgs>),
    /// Forward connections and inject faults until standard input ends; then print the number of
    /// faults.
    Proxy {
        /// Address to listen on; port 0 selects a free port.
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        /// Address of the server.
        #[arg(long)]
        to: SocketAddr,
        /// CONNECTION:WAY:BYTE:ILL, for example 2:up:1000:flip, all:down:5000:cut,
        /// 0:up:70:stall=700ms.
        #[arg(long)]
        fate: Vec<InjectedFault>,
        /// Number of additional bit flips, spread over --bytes towards the server.
        #[arg(long, default_value_t = 0, requires = "bytes")]
        flips: u64,
        /// Expected number of bytes towards the server.
        #[arg(long, value_parser = size)]
        bytes: Option<u64>,
        /// Seed of the positions of --flips.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Measure each part of a transfer from SOURCE to SINK alone; print JSON.
    Parts {
        /// Source file.
        source: PathBuf,
        /// Copy of the source file.
        sink: PathBuf,
        /// Digest algorithm.
        #[arg(long, default_value = "blake3")]
        hash: String,
        /// Use a connection without TLS.
        #[arg(long)]
        plain: bool,
    },
}

pub(crate) fn size(text: &str) -> Result<u64, haul_model::SizeError> {
    parse_size(text, 1)
}

/// Parses a number with an optional decimal suffix K, M or G, as in rates.
pub(crate) fn decimal(text: &str) -> Result<u64, String> {
    let (number, factor) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 1_000),
        Some((at, 'M')) => (&text[..at], 1_000_000),
        Some((at, 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let found = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    found
        .filter(|rate| *rate > 0)
        .ok_or_else(|| "invalid number of bits; use for example 100M or 1G".to_owned())
}

pub(crate) fn run(command: Network, out: &mut impl Write) -> Result<ExitCode, Box<dyn Error>> {
    match command {
        Network::Link(args) => return args.run(io::stdin().lock(), out),
        Network::Proxy { listen, to, mut fate, flips, bytes, seed } => {
            fate.extend(fault_proxy::flips(flips, bytes.unwrap_or(0), seed));
            let fault_proxy = FaultProxy::between(TcpListener::bind(listen)?, to, fate)?;
            writeln!(out, "{}", fault_proxy.address())?;
            out.flush()?;
            wait_for_the_end()?;
            writeln!(out, "{} befell", fault_proxy.injected())?;
        }
        Network::Parts { source, sink, hash, plain } => {
            let encryption = if plain { Encryption::Plain } else { Encryption::Tls };
            let parts = Parts::measure(&source, &sink, Algorithm::parse(&hash)?, encryption)?;
            let shown = |took: PartTime| json!({"wall": took.wall.as_secs_f64(), "cpu": took.processor.as_secs_f64()});
            let Parts { bytes, wire, hash, files } = parts;
            let printed = json!({
                "bytes": bytes, "wire": shown(wire), "hash": shown(hash), "files": shown(files),
                "cpu": parts.processor().as_secs_f64(),
            });
            writeln!(out, "{printed}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for the end of standard input. The parent holds the other end, which closes when the
/// parent exits for any reason.
fn wait_for_the_end() -> io::Result<()> {
    io::copy(&mut io::stdin().lock(), &mut io::sink()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_use_decimal_suffixes() {
        assert_eq!(decimal("1G"), Ok(1_000_000_000));
        assert_eq!(decimal("250M"), Ok(250_000_000));
        assert_eq!(decimal("77"), Ok(77));
        for wrong in ["", "G", "0", "-1", "1X", "99999999999G"] {
            assert!(decimal(wrong).is_err(), "{wrong}");
        }
    }
}
