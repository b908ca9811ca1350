//! Network faults and the bytes at which they occur.

use crate::random::Random;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// Direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From client to server.
    ToServer,
    /// From server to client.
    ToClient,
}

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ill {
    /// Both ends see the end of the connection, as if the peer had closed it.
    Cut,
    /// This direction ends, as if its sender had shut it down; the other direction continues.
    End,
    /// Both ends see a connection reset.
    Reset,
    /// No byte passes in this direction for this time.
    Stall(Duration),
    /// One bit of the byte is flipped.
    Flip,
}

/// Connections whose bytes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The connection with this number, counted from 0 in the order of arrival.
    Connection(usize),
    /// All connections together.
    All,
}

/// A fault at the byte that follows a given number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Connections whose bytes count.
    pub over: Over,
    /// Direction of the bytes.
    pub way: Way,
    /// Number of bytes that pass before the fault.
    pub at: u64,
    /// Kind of the fault.
    pub ill: Ill,
}

/// Error of parsing a fault.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "invalid fault '{0}'; the format is CONNECTION:WAY:BYTE:ILL, for example 2:up:1000:flip or all:down:5:stall=700ms"
)]
pub struct FateError(String);

impl Way {
    pub(super) fn index(self) -> usize {
        match self {
            Way::ToServer => 0,
            Way::ToClient => 1,
        }
    }
}

impl FromStr for Fate {
    type Err = FateError;

    /// Parses `CONNECTION:WAY:BYTE:ILL`. CONNECTION is a number or `all`; WAY is `up` (to the
    /// server) or `down`; BYTE is a number. ILL is `cut`, `end`, `reset`, `flip`, or `stall=` with
    /// milliseconds as in `700ms`.
    fn from_str(text: &str) -> Result<Fate, FateError> {
        let fate = || {
            let mut parts = text.split(':');
            let mut next = || parts.next();
            let over = match next()? {
                "all" => Over::All,
                number => Over::Connection(number.parse().ok()?),
            };
            let way = match next()? {
                "up" => Way::ToServer,
                "down" => Way::ToClient,
                _ => return None,
            };
            let at = next()?.parse().ok()?;
            let ill = match next()? {
                "cut" => Ill::Cut,
                "end" => Ill::End,
                "reset" => Ill::Reset,
                "flip" => Ill::Flip,
                other => {
                    let millis = other.strip_prefix("stall=")?.strip_suffix("ms")?;
                    Ill::Stall(Duration::from_millis(millis.parse().ok()?))
                }
            };
            next().is_none().then_some(Fate { over, way, at, ill })
        };
        fate().ok_or_else(|| FateError(text.escape_debug().collect()))
    }
}

/// Returns `count` bit flips towards the server. A seed spreads them over the first `bytes` bytes
/// of all connections, except for a part at the beginning, where sessions are negotiated.
pub fn flips(count: u64, bytes: u64, seed: u64) -> Vec<Fate> {
    let begin = bytes / 64;
    let part = (bytes - begin) / count.max(1);
    let mut random = Random::from_seed(seed);
    let mut place = |index| begin + index * part + random.below(part.max(1));
    let fate = |at| Fate { over: Over::All, way: Way::ToServer, at, ill: Ill::Flip };
    (0..count).map(|index| fate(place(index))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fates_are_read_as_they_are_written() {
        let fate = |over, way, at, ill| Ok(Fate { over, way, at, ill });
        assert_eq!("2:up:1000:flip".parse(), fate(Over::Connection(2), Way::ToServer, 1000, Ill::Flip));
        let stall = Ill::Stall(Duration::from_millis(700));
        assert_eq!("all:down:5:stall=700ms".parse(), fate(Over::All, Way::ToClient, 5, stall));
        for wrong in
            ["", "1:up:2", "1:up:2:flip:", "x:up:2:cut", "1:left:2:cut", "1:up:-2:cut", "1:up:2:stall=7"]
        {
            assert!(wrong.parse::<Fate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn flips_lie_apart_within_the_bytes() {
        let fates = flips(24, 1 << 30, 1);
        assert_eq!(fates.len(), 24);
        assert!(fates.windows(2).all(|pair| pair[0].at < pair[1].at));
        assert!(fates[0].at >= (1 << 30) / 64 && fates[23].at < 1 << 30);
        assert_eq!(fates, flips(24, 1 << 30, 1));
        assert_ne!(fates, flips(24, 1 << 30, 2));
    }
}
