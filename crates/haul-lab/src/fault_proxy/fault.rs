//! Network faults and the bytes at which they occur.

use crate::random::Random;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// Direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From client to server.
    ToServer,
    /// From server to client.
    ToClient,
}

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
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
pub enum Scope {
    /// The connection with this number, counted from 0 in the order of arrival.
    Connection(usize),
    /// All connections together.
    All,
}

/// A fault at the byte that follows a given number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InjectedFault {
    /// Connections whose bytes count.
    pub scope: Scope,
    /// Direction of the bytes.
    pub direction: Direction,
    /// Number of bytes that pass before the fault.
    pub at: u64,
    /// Kind of the fault.
    pub kind: FaultKind,
}

/// Error of parsing a fault.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "invalid fault '{0}'; the format is CONNECTION:WAY:BYTE:ILL, for example 2:up:1000:flip or all:down:5:stall=700ms"
)]
pub struct FaultError(String);

impl Direction {
    pub(super) fn index(self) -> usize {
        match self {
            Direction::ToServer => 0,
            Direction::ToClient => 1,
        }
    }
}

impl FromStr for InjectedFault {
    type Err = FaultError;

    /// Parses `CONNECTION:WAY:BYTE:ILL`. CONNECTION is a number or `all`; WAY is `up` (to the
    /// server) or `down`; BYTE is a number. ILL is `cut`, `end`, `reset`, `flip`, or `stall=` with
    /// milliseconds as in `700ms`.
    fn from_str(text: &str) -> Result<InjectedFault, FaultError> {
        let fault = || {
            let mut parts = text.split(':');
            let mut next = || parts.next();
            let scope = match next()? {
                "all" => Scope::All,
                number => Scope::Connection(number.parse().ok()?),
            };
            let direction = match next()? {
                "up" => Direction::ToServer,
                "down" => Direction::ToClient,
                _ => return None,
            };
            let at = next()?.parse().ok()?;
            let kind = match next()? {
                "cut" => FaultKind::Cut,
                "end" => FaultKind::End,
                "reset" => FaultKind::Reset,
                "flip" => FaultKind::Flip,
                other => {
                    let millis = other.strip_prefix("stall=")?.strip_suffix("ms")?;
                    FaultKind::Stall(Duration::from_millis(millis.parse().ok()?))
                }
            };
            next().is_none().then_some(InjectedFault { scope, direction, at, kind })
        };
        fault().ok_or_else(|| FaultError(text.escape_debug().collect()))
    }
}

/// Returns `count` bit flips towards the server. A seed spreads them over the first `bytes` bytes
/// of all connections, except for a part at the beginning, where sessions are negotiated.
pub fn flips(count: u64, bytes: u64, seed: u64) -> Vec<InjectedFault> {
    let begin = bytes / 64;
    let part = (bytes - begin) / count.max(1);
    let mut random = Random::from_seed(seed);
    let mut place = |index| begin + index * part + random.below(part.max(1));
    let fault =
        |at| InjectedFault { scope: Scope::All, direction: Direction::ToServer, at, kind: FaultKind::Flip };
    (0..count).map(|index| fault(place(index))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_specifications_are_parsed() {
        let fault = |scope, direction, at, kind| Ok(InjectedFault { scope, direction, at, kind });
        assert_eq!(
            "2:up:1000:flip".parse(),
            fault(Scope::Connection(2), Direction::ToServer, 1000, FaultKind::Flip)
        );
        let stall = FaultKind::Stall(Duration::from_millis(700));
        assert_eq!("all:down:5:stall=700ms".parse(), fault(Scope::All, Direction::ToClient, 5, stall));
        for wrong in
            ["", "1:up:2", "1:up:2:flip:", "x:up:2:cut", "1:left:2:cut", "1:up:-2:cut", "1:up:2:stall=7"]
        {
            assert!(wrong.parse::<InjectedFault>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn flips_are_distinct_in_range_and_repeatable() {
        let faults = flips(24, 1 << 30, 1);
        assert_eq!(faults.len(), 24);
        assert!(faults.windows(2).all(|pair| pair[0].at < pair[1].at));
        assert!(faults[0].at >= (1 << 30) / 64 && faults[23].at < 1 << 30);
        assert_eq!(faults, flips(24, 1 << 30, 1));
        assert_ne!(faults, flips(24, 1 << 30, 2));
    }
}
