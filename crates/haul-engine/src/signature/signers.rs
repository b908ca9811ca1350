//! Accepted signers: a list of allowed signers in the format of `ssh-keygen(1)`, or plain public
//! keys.
//!
//! ```text
//!  # principals           options (each once at most, separated by commas)      key
//! alice@example.org,b*   namespaces="file,git",valid-after="20260101Z"         ssh-ed25519 AAAA...
//! ```

use haul_log::waybill::parse_date;
use ssh_key::PublicKey;
use ssh_key::public::KeyData;
use thiserror::Error;

/// Time zones reach from 12 hours behind UTC to 14 hours ahead of it.
const ZONE_WEST: i64 = 12 * 3600;
const ZONE_EAST: i64 = 14 * 3600;

/// List of signers.
#[derive(Debug)]
pub(super) struct Signers {
    lines: Vec<Signer>,
}

/// Line of a list.
#[derive(Debug)]
struct Signer {
    line: usize,
    /// Name patterns; `None` for a plain public key.
    principals: Option<String>,
    authority: bool,
    namespaces: Option<String>,
    after: Option<When>,
    before: Option<When>,
    key: KeyData,
}

/// Time in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct When {
    /// Seconds since 1970, as if the time were in UTC.
    seconds: i64,
    /// True if the time is marked as UTC. Otherwise the reader's time zone applies, which this
    /// program does not know.
    utc: bool,
}

/// Error in a list of signers.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("line {line}: {what}")]
pub struct SignersFault {
    /// Line number, counted from 1.
    pub line: usize,
    /// Reason for the error.
    pub what: String,
}

/// Reason why a key is not accepted.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// No line has the key.
    #[error("the list of signers does not contain the key")]
    NotListed,
    /// No line has the key, but some lines have authorities that certify keys.
    #[error(
        "the list of signers does not contain the key, and certificates (cert-authority) are not supported; list the key itself"
    )]
    Authority,
    /// The key is listed for other names.
    #[error("line {line} lists the key, but not for '{}'", identity.escape_default())]
    Identity {
        /// Line of the list.
        line: usize,
        /// Required identity.
        identity: String,
    },
    /// The key is listed for other namespaces.
    #[error("line {line} does not allow the namespace '{}' for the key", super::NAMESPACE)]
    Namespace {
        /// Line of the list.
        line: usize,
    },
    /// The key is not valid yet.
    #[error("line {line}: the key is not valid yet (valid-after)")]
    NotYet {
        /// Line of the list.
        line: usize,
    },
    /// The key is no longer valid.
    #[error("line {line}: the key is no longer valid (valid-before)")]
    NoLonger {
        /// Line of the list.
        line: usize,
    },
    /// The validity depends on the time zone.
    #[error(
        "line {line}: the validity of the key depends on the time zone; write the date in UTC, with a Z at the end"
    )]
    Zone {
        /// Line of the list.
        line: usize,
    },
}

impl Signers {
    /// Parses a list.
    pub(super) fn parse(bytes: &[u8]) -> Result<Signers, SignersFault> {
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
            let fault = |what: String| SignersFault { line: number, what };
            let line = std::str::from_utf8(line).map_err(|_| fault("not UTF-8".to_owned()))?.trim();
            if !line.is_empty() && !line.starts_with('#') {
                lines.push(Signer::parse(number, line).map_err(fault)?);
            }
        }
        Ok(Signers { lines })
    }

    /// Returns the number of lines with a key.
    pub(super) fn count(&self) -> usize {
        self.lines.len()
    }

    /// Returns the name of the signer if the list accepts the key for `identity`, or for any
    /// identity if that is `None`. If several lines have the key, one must accept it; otherwise the
    /// reason of the last line is returned.
    pub(super) fn admit(
        &self,
        key: &KeyData,
        identity: Option<&str>,
        now: i64,
    ) -> Result<Option<String>, Refusal> {
        let certified = self.lines.iter().any(|signer| signer.authority);
        let mut refusal = if certified { Refusal::Authority } else { Refusal::NotListed };
        for signer in self.lines.iter().filter(|signer| signer.key == *key && !signer.authority) {
            match signer.admit(identity, now) {
                Ok(()) => {
                    return Ok(identity.map(str::to_owned).or_else(|| signer.principals.clone()));
                }
                Err(why) => refusal = why,
            }
        }
        Err(refusal)
    }
}

impl Signer {
    fn parse(line: usize, text: &str) -> Result<Signer, String> {
        let signer = |principals, key: PublicKey| Signer {
            line,
            principals,
            authority: false,
            namespaces: None,
            after: None,
            before: None,
            key: key.key_data().clone(),
        };
        if let Ok(key) = PublicKey::from_openssh(text) {
            return Ok(signer(None, key));
        }
        let (principals, rest) = word(text).ok_or("unterminated quote")?;
        let principals = principals.replace('"', "");
        if principals.is_empty() {
            return Err("no signer names".to_owned());
        }
        // In a list of known hosts this marker revokes the key; `ssh-keygen` reads it as a name
        // here.
        if principals.starts_with('@') {
            let marker = principals.escape_default();
            return Err(format!(
                "'{marker}' is a marker of known_hosts files; remove keys that are not accepted"
            ));
        }
        if let Ok(key) = PublicKey::from_openssh(rest) {
            return Ok(signer(Some(principals), key));
        }
        let (options, key) = word(rest).ok_or("unterminated quote")?;
        let key = PublicKey::from_openssh(key)
            .map_err(|_| "neither a public key nor 'NAMES [OPTIONS] KEY'".to_owned())?;
        let mut signer = signer(Some(principals), key);
        for option in split(options) {
            signer.option(option)?;
        }
        Ok(signer)
    }

    fn option(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, value.strip_prefix('"').and_then(|value| value.strip_suffix('"'))),
            None => (option, None),
        };
        let twice = match (name.to_ascii_lowercase().as_str(), value) {
            ("cert-authority", None) => std::mem::replace(&mut self.authority, true),
            ("namespaces", Some(value)) => self.namespaces.replace(value.to_owned()).is_some(),
            ("valid-after", Some(value)) => self.after.replace(When::parse(value)?).is_some(),
            ("valid-before", Some(value)) => self.before.replace(When::parse(value)?).is_some(),
            _ => return Err(format!("unknown option '{}'", option.escape_default())),
        };
        if twice { Err(format!("duplicate option '{name}'")) } else { Ok(()) }
    }

    fn admit(&self, identity: Option<&str>, now: i64) -> Result<(), Refusal> {
        let line = self.line;
        if let Some(identity) = identity {
            let known = self.principals.as_deref().is_some_and(|patterns| matches_list(patterns, identity));
            if !known {
                return Err(Refusal::Identity { line, identity: identity.to_owned() });
            }
        }
        if self.namespaces.as_deref().is_some_and(|patterns| !matches_list(patterns, super::NAMESPACE)) {
            return Err(Refusal::Namespace { line });
        }
        match self.after.map(|after| after.is_past(now)) {
            Some(Some(false)) => return Err(Refusal::NotYet { line }),
            Some(None) => return Err(Refusal::Zone { line }),
            Some(Some(true)) | None => {}
        }
        match self.before.map(|before| before.is_past(now.saturating_sub(1))) {
            Some(Some(true)) => Err(Refusal::NoLonger { line }),
            Some(None) => Err(Refusal::Zone { line }),
            Some(Some(false)) | None => Ok(()),
        }
    }
}

impl When {
    /// Parses `YYYYMMDD[HHMM[SS]][Z]`.
    fn parse(text: &str) -> Result<When, String> {
        let digits = text.strip_suffix('Z').unwrap_or(text);
        let bad = || format!("invalid date '{}'; the format is YYYYMMDD[HHMM[SS]][Z]", text.escape_default());
        if !matches!(digits.len(), 8 | 12 | 14) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(bad());
        }
        let full = format!("{digits:0<14}");
        let part = |from: usize, to: usize| &full[from..to];
        let (date, time) = ([part(0, 4), part(4, 6), part(6, 8)], [part(8, 10), part(10, 12), part(12, 14)]);
        let seconds = parse_date(&format!("{}T{}Z", date.join("-"), time.join(":"))).ok_or_else(bad)?;
        Ok(When { seconds, utc: digits.len() < text.len() })
    }

    /// Returns true if this time is not after `now`; `None` if that depends on the time zone.
    fn is_past(self, now: i64) -> Option<bool> {
        let (first, last) = if self.utc {
            (self.seconds, self.seconds)
        } else {
            (self.seconds - ZONE_EAST, self.seconds + ZONE_WEST)
        };
        match (now >= last, now < first) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    }
}

/// Splits the text at the first white space outside of quotes; returns `None` if a quote is not
/// closed.
fn word(text: &str) -> Option<(&str, &str)> {
    let mut quoted = false;
    let end = text.find(|letter: char| {
        quoted ^= letter == '"';
        !quoted && letter.is_ascii_whitespace()
    });
    if quoted {
        return None;
    }
    let (word, rest) = text.split_at(end.unwrap_or(text.len()));
    Some((word, rest.trim_start()))
}

/// Splits options at the commas outside of quotes.
fn split(options: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    options.split(move |letter: char| {
        quoted ^= letter == '"';
        !quoted && letter == ','
    })
}

/// Returns true if the text matches one of the comma-separated patterns, and no pattern with the
/// prefix `!`.
fn matches_list(patterns: &str, text: &str) -> bool {
    let mut found = false;
    for pattern in patterns.split(',') {
        match pattern.strip_prefix('!') {
            Some(pattern) if matches(pattern.as_bytes(), text.as_bytes()) => return false,
            Some(_) => {}
            None => found |= matches(pattern.as_bytes(), text.as_bytes()),
        }
    }
    found
}

/// Returns true if the text matches a pattern of `*` and `?`. The time is at most proportional to
/// the product of their lengths.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Position of the last star, and the end of the text that it covers so far.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&letter) if letter == b'?' || letter == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, taken)) = &mut star else { return false };
                *taken += 1;
                (p, t) = (*at + 1, *taken);
            }
        }
    }
    pattern[p..].iter().all(|&letter| letter == b'*')
}

#[cfg(test)]
mod tests;
