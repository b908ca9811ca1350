//! Handshake of a lane: the client identifies itself, and the server answers with its verdict.
//!
//! ```text
//! without encryption only, client then server:      hello, client:
//!  at  bytes                                         at  bytes
//!   0      8   "HAULPLN1"                             0      4   "HAUL"
//!   8     32   a nonce                                4      1   version, 1
//!                                                     5      1   1 without encryption, 2 for UDP
//! answer, server:                                     6      2   the lane's number in its session
//!  at  bytes                                          8      8   the ticket's public name
//!   0      4   "HAUL"                                16     16   the session's name
//!   4      1   version, 1                            32     32   proof
//!   5      1   verdict
//!   6      2   lanes that this session may have
//!   8     32   proof
//! ```
//!
//! Numbers are little-endian. Every length is fixed: no message of an unauthenticated peer has a
//! length field.
//!
//! The client's proof is HMAC-SHA-256 under the ticket's secret over the connection's binding and
//! the hello up to the proof. The server's proof is over the binding, the hello and the answer up
//! to the proof. The binding is an exporter value of TLS, or SHA-256 over both nonces without TLS.
//! A refusal before the client's proof was verified carries zeros in place of the server's proof.

use crate::Encryption;
use crate::lane::{LaneError, StreamLane};
use crate::secret::{
    BINDING_BYTES, Binding, NoRandomness, PROOF_BYTES, Prover, Secret, SessionId, TicketId, random,
};
use aws_lc_rs::digest;
use std::fmt;

/// Version of this handshake.
const VERSION: u8 = 1;
const MAGIC: [u8; 4] = *b"HAUL";
const PLAIN_MAGIC: [u8; 8] = *b"HAULPLN1";

/// Size in bytes of a hello up to its proof, and with its proof.
const SIGNED_BYTES: usize = 32;
pub(crate) const HELLO_BYTES: usize = SIGNED_BYTES + PROOF_BYTES;

/// Size in bytes of an answer up to its proof, and with its proof.
const VERDICT_BYTES: usize = 8;
pub(crate) const ANSWER_BYTES: usize = VERDICT_BYTES + PROOF_BYTES;

const NONCE_BYTES: usize = 32;
const GREETING_BYTES: usize = PLAIN_MAGIC.len() + NONCE_BYTES;

/// Identification of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) encryption: Encryption,
    /// True if a request for UDP follows.
    pub(crate) udp: bool,
    pub(crate) lane: u16,
    pub(crate) ticket: TicketId,
    pub(crate) session: SessionId,
}

/// Verdict of a server on a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The lane is admitted.
    Welcome,
    /// The ticket is unknown, or its secret is wrong. The answer does not distinguish the two.
    Unproven,
    /// The ticket has expired.
    Expired,
    /// The ticket was for one session, and another session used it.
    Used,
    /// The server has reached its maximum number of sessions.
    Full,
    /// The session has reached its maximum number of lanes.
    TooManyLanes,
    /// The server is shutting down.
    Closing,
    /// The two ends have incompatible versions.
    OtherVersion,
    /// One end requests encryption and the other does not.
    OtherEncryption,
}

const VERDICTS: [Verdict; 9] = [
    Verdict::Welcome,
    Verdict::Unproven,
    Verdict::Expired,
    Verdict::Used,
    Verdict::Full,
    Verdict::TooManyLanes,
    Verdict::Closing,
    Verdict::OtherVersion,
    Verdict::OtherEncryption,
];

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Welcome => "welcome",
            Self::Unproven => "invalid ticket: withdrawn, wrong, or of another server; ask for a new one",
            Self::Expired => "the ticket has expired; ask for a new one",
            Self::Used => "the ticket allowed one session, which has ended or is active; ask for a new one",
            Self::Full => "the server has reached its limit of sessions; try again later",
            Self::TooManyLanes => {
                "the session has reached the server's limit of streams; use fewer --streams"
            }
            Self::Closing => "the server is shutting down",
            Self::OtherVersion => "incompatible versions of haul; install the same version on both hosts",
            Self::OtherEncryption => {
                "one host uses encryption and the other does not; use --plain on both hosts or on neither"
            }
        })
    }
}

/// A hello that cannot be accepted, detected before anything is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadHello {
    #[error("it is not haul")]
    NotHaul,
    #[error("its version is {0}")]
    Version(u8),
    #[error("its encryption is {0}")]
    Encryption(u8),
}

/// Describes a recorded hello in readable form. The bytes alone do not show if their proof is
/// valid.
///
/// # Errors
/// Returns the reason if the bytes are not a hello.
pub fn describe(bytes: &[u8]) -> Result<String, String> {
    let bytes: &[u8; HELLO_BYTES] = bytes
        .try_into()
        .map_err(|_| format!("a hello has {HELLO_BYTES} bytes, and these are {}", bytes.len()))?;
    let Hello { encryption, udp, lane, ticket, session } =
        Hello::decode(bytes).map_err(|error| error.to_string())?;
    let transport = if udp { "UDP" } else { "TCP" };
    Ok(format!("lane {lane} of session {session} by ticket {ticket}, {encryption:?}, {transport}"))
}

impl Hello {
    /// Encodes the hello, with the proof by `secret` for the connection of `binding`.
    pub(crate) fn encode(&self, secret: &Secret, binding: &Binding) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = u8::from(self.encryption == Encryption::Plain) | u8::from(self.udp) << 1;
        bytes[6..8].copy_from_slice(&self.lane.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.ticket.0);
        bytes[16..32].copy_from_slice(&self.session.0);
        let proof = secret.prove(Prover::Client, binding, &[&bytes[..SIGNED_BYTES]]);
        bytes[SIGNED_BYTES..].copy_from_slice(&proof);
        bytes
    }

    /// Decodes the bytes without checking their proof.
    pub(crate) fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, BadHello> {
        let array = |from: usize| bytes[from..].first_chunk().copied();
        let array16 = |from: usize| bytes[from..].first_chunk().copied();
        if bytes[..4] != MAGIC {
            return Err(BadHello::NotHaul);
        }
        if bytes[4] != VERSION {
            return Err(BadHello::Version(bytes[4]));
        }
        let (encryption, udp) = match bytes[5] {
            flags @ (0 | 2) => (Encryption::Tls, flags == 2),
            flags @ (1 | 3) => (Encryption::Plain, flags == 3),
            other => return Err(BadHello::Encryption(other)),
        };
        Ok(Self {
            encryption,
            udp,
            lane: u16::from_le_bytes([bytes[6], bytes[7]]),
            ticket: TicketId(array(8).unwrap_or_default()),
            session: SessionId(array16(16).unwrap_or_default()),
        })
    }

    /// Returns true if the proof in `bytes` is that of `secret` for this connection.
    pub(crate) fn is_proven(bytes: &[u8; HELLO_BYTES], secret: &Secret, binding: &Binding) -> bool {
        let (said, proof) = bytes.split_at(SIGNED_BYTES);
        secret.verify(Prover::Client, binding, &[said], proof)
    }
}

/// Encodes an answer to the hello `hello`. With a secret the answer has a proof.
pub(crate) fn encode_answer(
    verdict: Verdict,
    lanes_max: u16,
    hello: &[u8; HELLO_BYTES],
    proof: Option<(&Secret, &Binding)>,
) -> [u8; ANSWER_BYTES] {
    let mut bytes = [0; ANSWER_BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4] = VERSION;
    bytes[5] = verdict as u8;
    bytes[6..8].copy_from_slice(&lanes_max.to_le_bytes());
    if let Some((secret, binding)) = proof {
        let proof = secret.prove(Prover::Server, binding, &[hello, &bytes[..VERDICT_BYTES]]);
        bytes[VERDICT_BYTES..].copy_from_slice(&proof);
    }
    bytes
}

/// Decodes an answer: the verdict, and the maximum number of lanes.
pub(crate) fn decode_answer(
    bytes: &[u8; ANSWER_BYTES],
    hello: &[u8; HELLO_BYTES],
    secret: &Secret,
    binding: &Binding,
) -> Result<(Verdict, u16), BadAnswer> {
    let (verdict, lanes_max) = read_answer(bytes)?;
    let (judged, proof) = bytes.split_at(VERDICT_BYTES);
    // A refusal needs no proof: at worst an attacker keeps the client out, which it can do anyway.
    if verdict == Verdict::Welcome && !secret.verify(Prover::Server, binding, &[hello, judged], proof) {
        return Err(BadAnswer::Unproven);
    }
    Ok((verdict, lanes_max))
}

/// Describes a recorded answer in readable form. The bytes alone do not show if their proof is
/// valid.
///
/// # Errors
/// Returns the reason if the bytes are not an answer.
pub fn describe_answer(bytes: &[u8]) -> Result<String, String> {
    let bytes: &[u8; ANSWER_BYTES] = bytes
        .try_into()
        .map_err(|_| format!("an answer has {ANSWER_BYTES} bytes, and these are {}", bytes.len()))?;
    let (verdict, lanes_max) = read_answer(bytes).map_err(|error| error.to_string())?;
    Ok(format!("{verdict}; {lanes_max} lanes at most"))
}

/// Reads the fields of an answer without its proof.
fn read_answer(bytes: &[u8; ANSWER_BYTES]) -> Result<(Verdict, u16), BadAnswer> {
    if bytes[..4] != MAGIC {
        return Err(BadAnswer::NotHaul);
    }
    if bytes[4] != VERSION {
        return Ok((Verdict::OtherVersion, 0));
    }
    let verdict = VERDICTS.get(usize::from(bytes[5])).copied().ok_or(BadAnswer::Unknown(bytes[5]))?;
    Ok((verdict, u16::from_le_bytes([bytes[6], bytes[7]])))
}

/// An answer that cannot be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    /// The bytes do not start like an answer.
    #[error("the answer is not from haul")]
    NotHaul,
    /// The verdict is of another version.
    #[error("unknown answer of the server ({0}); update haul on this host")]
    Unknown(u8),
    /// The peer admits the lane but does not know the secret.
    #[error(
        "the server accepted the connection but does not know the secret of the ticket: it did not issue this ticket"
    )]
    Unproven,
}

/// Exchanges nonces on an unencrypted lane, and returns the binding of the two. The client sends
/// first, so that a server that expects TLS detects the mismatch immediately.
pub(crate) fn exchange_nonces(lane: &mut StreamLane, as_client: bool) -> Result<Binding, GreetingError> {
    let mine: [u8; NONCE_BYTES] = random()?;
    let mut greeting = [0; GREETING_BYTES];
    greeting[..PLAIN_MAGIC.len()].copy_from_slice(&PLAIN_MAGIC);
    greeting[PLAIN_MAGIC.len()..].copy_from_slice(&mine);
    let mut theirs = [0; GREETING_BYTES];
    if as_client {
        lane.write_all(&greeting)?;
        read_greeting(lane, &mut theirs)?;
        Ok(nonces_binding(&mine, &theirs[PLAIN_MAGIC.len()..]))
    } else {
        read_greeting(lane, &mut theirs)?;
        lane.write_all(&greeting)?;
        Ok(nonces_binding(&theirs[PLAIN_MAGIC.len()..], &mine))
    }
}

/// Reads the magic by itself first: a peer that speaks TLS may send less than a complete greeting,
/// and then wait.
fn read_greeting(lane: &mut StreamLane, greeting: &mut [u8; GREETING_BYTES]) -> Result<(), GreetingError> {
    let (magic, nonce) = greeting.split_at_mut(PLAIN_MAGIC.len());
    lane.read_exact(magic)?;
    if *magic != PLAIN_MAGIC {
        return Err(GreetingError::NotPlain);
    }
    Ok(lane.read_exact(nonce)?)
}

fn nonces_binding(client: &[u8], server: &[u8]) -> Binding {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(b"haul plain lane 1\0");
    context.update(client);
    context.update(server);
    let mut binding = [0; BINDING_BYTES];
    binding.copy_from_slice(context.finish().as_ref());
    Binding(binding)
}

/// Error when two ends without encryption cannot establish a lane.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GreetingError {
    #[error("the peer does not use haul without encryption")]
    NotPlain,
    #[error(transparent)]
    Lane(#[from] LaneError),
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn secret() -> Secret {
        Secret::from_bytes([9; 16])
    }

    fn hellos() -> impl Strategy<Value = Hello> {
        (any::<[bool; 2]>(), any::<u16>(), any::<[u8; 8]>(), any::<[u8; 16]>()).prop_map(
            |([plain, udp], lane, ticket, session)| Hello {
                encryption: if plain { Encryption::Plain } else { Encryption::Tls },
                udp,
                lane,
                ticket: TicketId(ticket),
                session: SessionId(session),
            },
        )
    }

    #[test]
    fn verdict_numbers_match_the_table() {
        for (number, verdict) in VERDICTS.iter().enumerate() {
            assert_eq!(*verdict as usize, number);
        }
    }

    #[test]
    fn binding_depends_on_both_nonces_and_their_order() {
        let binding = |client: u8, server: u8| nonces_binding(&[client; 32], &[server; 32]).0;
        assert_ne!(binding(1, 2), binding(2, 1));
        assert_ne!(binding(1, 2), binding(1, 3));
    }

    /// Sends `bytes` to a server as the start of a client without encryption, followed by the end
    /// of the lane.
    fn greeted(bytes: &[u8]) -> Result<Binding, GreetingError> {
        let (mut server, mut client) = StreamLane::pair();
        client.write_all(bytes).expect("it fits the socket's buffer");
        client.finish().expect("nothing waits");
        exchange_nonces(&mut server, false)
    }

    #[test]
    fn truncated_greeting_is_refused() {
        let whole = [&PLAIN_MAGIC[..], &[7; NONCE_BYTES]].concat();
        for len in 0..GREETING_BYTES {
            assert!(matches!(greeted(&whole[..len]), Err(GreetingError::Lane(_))), "{len}");
        }
        assert!(greeted(&whole).is_ok());
    }

    proptest! {
        #[test]
        fn bytes_other_than_a_greeting_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if !bytes.starts_with(&PLAIN_MAGIC) {
                let is_short = bytes.len() < PLAIN_MAGIC.len();
                match greeted(&bytes) {
                    Err(GreetingError::NotPlain) => prop_assert!(!is_short),
                    Err(GreetingError::Lane(_)) => prop_assert!(is_short),
                    other => prop_assert!(false, "{:?}", other.map(|binding| binding.0)),
                }
            }
        }

        #[test]
        fn hello_round_trips_and_is_valid_on_its_connection_only(hello in hellos(), binding: [u8; 32], other: [u8; 32]) {
            let bytes = hello.encode(&secret(), &Binding(binding));
            prop_assert_eq!(Hello::decode(&bytes), Ok(hello));
            prop_assert!(Hello::is_proven(&bytes, &secret(), &Binding(binding)));
            prop_assert_eq!(Hello::is_proven(&bytes, &secret(), &Binding(other)), binding == other);
        }

        #[test]
        fn flipped_bit_invalidates_the_proof(hello in hellos(), at in 0..HELLO_BYTES * 8) {
            let binding = Binding([4; 32]);
            let mut bytes = hello.encode(&secret(), &binding);
            bytes[at / 8] ^= 1 << (at % 8);
            prop_assert!(!Hello::is_proven(&bytes, &secret(), &binding));
        }

        #[test]
        fn arbitrary_bytes_are_never_a_proven_hello(bytes in prop::collection::vec(any::<u8>(), HELLO_BYTES)) {
            let mut bytes: [u8; HELLO_BYTES] = bytes.try_into().expect("of that length");
            prop_assert!(!Hello::is_proven(&bytes, &secret(), &Binding([0; 32])));
            let _ = Hello::decode(&bytes);
            bytes[..5].copy_from_slice(b"HAUL\x01");
            bytes[5] &= 3;
            prop_assert!(Hello::decode(&bytes).is_ok());
        }

        #[test]
        fn welcome_needs_a_proof_and_refusals_do_not(hello in hellos(), at in 0..VERDICTS.len(), lanes: u16) {
            let (binding, verdict) = (Binding([4; 32]), VERDICTS[at]);
            let said = hello.encode(&secret(), &binding);
            let proved = encode_answer(verdict, lanes, &said, Some((&secret(), &binding)));
            prop_assert_eq!(decode_answer(&proved, &said, &secret(), &binding), Ok((verdict, lanes)));
            let bare = encode_answer(verdict, lanes, &said, None);
            let expected = if verdict == Verdict::Welcome { Err(BadAnswer::Unproven) } else { Ok((verdict, lanes)) };
            prop_assert_eq!(decode_answer(&bare, &said, &secret(), &binding), expected);
        }

        #[test]
        fn welcome_without_the_secret_is_unproven(bytes in prop::collection::vec(any::<u8>(), ANSWER_BYTES), hello in hellos()) {
            let binding = Binding([4; 32]);
            let said = hello.encode(&secret(), &binding);
            let mut bytes: [u8; ANSWER_BYTES] = bytes.try_into().expect("of that length");
            bytes[..6].copy_from_slice(b"HAUL\x01\x00");
            let answer = decode_answer(&bytes, &said, &secret(), &binding);
            prop_assert_eq!(answer, Err(BadAnswer::Unproven));
        }
    }
}
