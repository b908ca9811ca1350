//! What befalls which byte of a line.

use crate::random::Random;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the client.
    ToServer,
    /// From the server.
    ToClient,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ill {
    /// Both ends see the connection end, as if the other had closed it.
    Cut,
    /// This way ends, as if its sender had finished it; the other one goes on.
    End,
    /// Both ends see a reset.
    Reset,
    /// Nothing passes this way for so long.
    Stall(Duration),
    /// A bit of the byte is another.
    Flip,
}

/// Whose bytes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Those of the connection of this number, from 0 as they come.
    Connection(usize),
    /// Those of all connections together.
    All,
}

/// What happens to the byte that follows so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Whose bytes are counted.
    pub over: Over,
    /// Which way they go.
    pub way: Way,
    /// How many pass before.
    pub at: u64,
    /// What happens.
    pub ill: Ill,
}

/// A text that is no fate.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is not written as CONNECTION:WAY:BYTE:ILL, e.g. 2:up:1000:flip or all:down:5:stall=700ms")]
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

    /// `CONNECTION:WAY:BYTE:ILL`: a number or `all`; `up` to the server or `down`; a number; `cut`, `end`, `reset`, `flip` or
    /// `stall=` and milliseconds as `700ms`.
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

/// So many flipped bits towards the server, spread by a seed over the first `bytes` of all connections, but for a piece at
/// their beginning, where sessions are agreed on.
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
