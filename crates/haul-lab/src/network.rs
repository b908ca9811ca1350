//! The commands about networks: links, bad lines, and the parts of a transfer.

use clap::Subcommand;
use haul_digest::Algorithm;
use haul_lab::line::{self, Fate, Line};
use haul_lab::link::{End, Link, Way};
use haul_lab::parts::{Encryption, Parts, Took};
use haul_model::parse_size;
use serde_json::json;
use std::error::Error;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Subcommand)]
pub(crate) enum Network {
    /// Join two new network namespaces, NAME-a and NAME-b, by a link, until standard input ends.
    Link {
        /// What the namespaces are called by.
        name: String,
        /// The time of a round trip; with one, this process carries the packets.
        #[arg(long, value_name = "MILLISECONDS", default_value_t = 0.0)]
        round_trip: f64,
        /// Bits a second each way, as 1G; without it as many as this machine carries.
        #[arg(long, value_parser = decimal)]
        rate: Option<u64>,
        /// Bytes that wait at the link's beginning at most.
        #[arg(long, value_parser = size, default_value = "16M")]
        queue: u64,
    },
    /// Pass connections on and do what is asked to bytes on the way, until standard input ends; tell how much was done.
    Proxy {
        /// Where clients come; port 0 takes a free one.
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        /// Where they are passed on to.
        #[arg(long)]
        to: SocketAddr,
        /// CONNECTION:WAY:BYTE:ILL, as 2:up:1000:flip, all:down:5000:cut, 0:up:70:stall=700ms.
        #[arg(long)]
        fate: Vec<Fate>,
        /// And so many flipped bits, spread over --bytes towards the server.
        #[arg(long, default_value_t = 0, requires = "bytes")]
        flips: u64,
        /// Bytes that will pass.
        #[arg(long, value_parser = size)]
        bytes: Option<u64>,
        /// What the places of --flips depend on.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Measure what sending SOURCE to SINK is made of, each part alone: JSON.
    Parts {
        /// A file.
        source: PathBuf,
        /// Its copy.
        sink: PathBuf,
        /// The digest.
        #[arg(long, default_value = "blake3")]
        hash: String,
        /// The connection without TLS.
        #[arg(long)]
        plain: bool,
    },
}

fn size(text: &str) -> Result<u64, haul_model::SizeError> {
    parse_size(text, 1)
}

/// A number with K, M or G for thousands, as rates are told in.
fn decimal(text: &str) -> Result<u64, String> {
    let (number, factor) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 1_000),
        Some((at, 'M')) => (&text[..at], 1_000_000),
        Some((at, 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let found = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    found.filter(|rate| *rate > 0).ok_or_else(|| "not a number of bits, as 100M or 1G".to_owned())
}

pub(crate) fn run(command: Network, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    match command {
        Network::Link { name, round_trip, rate, queue } => {
            let delay = Duration::try_from_secs_f64(round_trip / 2000.0)?;
            let link = Link::make(&name, Way { delay, rate, queue })?;
            for end in [End::Near, End::Far] {
                writeln!(out, "{} {}", link.namespace(end), end.address())?;
            }
            out.flush()?;
            wait_for_the_end()?;
            link.close()?;
        }
        Network::Proxy { listen, to, mut fate, flips, bytes, seed } => {
            fate.extend(line::flips(flips, bytes.unwrap_or(0), seed));
            let line = Line::between(TcpListener::bind(listen)?, to, fate)?;
            writeln!(out, "{}", line.address())?;
            out.flush()?;
            wait_for_the_end()?;
            writeln!(out, "{} befell", line.befallen())?;
        }
        Network::Parts { source, sink, hash, plain } => {
            let encryption = if plain { Encryption::Plain } else { Encryption::Tls };
            let parts = Parts::measure(&source, &sink, Algorithm::parse(&hash)?, encryption)?;
            let shown =
                |took: Took| json!({"wall": took.wall.as_secs_f64(), "cpu": took.processor.as_secs_f64()});
            let Parts { bytes, wire, hash, files } = parts;
            let told = json!({
                "bytes": bytes, "wire": shown(wire), "hash": shown(hash), "files": shown(files),
                "cpu": parts.processor().as_secs_f64(),
            });
            writeln!(out, "{told}")?;
        }
    }
    Ok(())
}

/// Whoever started this holds the other end, and lets it go on leaving, however it leaves.
fn wait_for_the_end() -> io::Result<()> {
    io::copy(&mut io::stdin().lock(), &mut io::sink()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_decimal() {
        assert_eq!(decimal("1G"), Ok(1_000_000_000));
        assert_eq!(decimal("250M"), Ok(250_000_000));
        assert_eq!(decimal("77"), Ok(77));
        for wrong in ["", "G", "0", "-1", "1X", "99999999999G"] {
            assert!(decimal(wrong).is_err(), "{wrong}");
        }
    }
}
