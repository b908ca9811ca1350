//! Secrets and the names beside them, and the proof that an end knows a secret without showing it.

use aws_lc_rs::{constant_time, hmac, rand};
use std::fmt;
use zeroize::Zeroize;

/// Bytes of a secret: 128 bits of a generator, so that a recorded proof cannot be searched for its key.
pub const SECRET_BYTES: usize = 16;

/// Bytes of a proof: HMAC-SHA-256 (RFC 2104), whole.
pub const PROOF_BYTES: usize = 32;

/// Bytes of what binds a proof to one connection.
pub const BINDING_BYTES: usize = 32;

/// What both ends of a session know. It is never printed, and wiped when dropped.
#[derive(Clone)]
pub struct Secret([u8; SECRET_BYTES]);

/// The public name of a ticket, drawn by itself: nothing of the secret can be learned from it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TicketId(pub [u8; 8]);

/// The name of a session, drawn by the client. Lanes that carry the same name, and prove the same secret, belong
/// together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub [u8; 16]);

/// Who proves: an answer can never be given back as a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prover {
    Client,
    Server,
}

/// What a proof holds for: this connection and no other. Of TLS it is an exporter's value (RFC 8446 section 7.5, as RFC
/// 9266 uses one), which no one between the ends can bring about twice; of a plain connection, both ends' nonces.
#[derive(Clone, Copy)]
pub(crate) struct Binding(pub(crate) [u8; BINDING_BYTES]);

impl Secret {
    /// A new secret from the system's generator.
    ///
    /// # Errors
    /// [`NoRandomness`] where the generator fails.
    pub fn generate() -> Result<Self, NoRandomness> {
        Ok(Self(random()?))
    }

    /// The secret that these bytes are.
    pub fn from_bytes(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes, for who stores or sends a ticket.
    pub fn expose(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// The proof over what was said on one connection.
    pub(crate) fn prove(&self, prover: Prover, binding: &Binding, said: &[&[u8]]) -> [u8; PROOF_BYTES] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let mut context = hmac::Context::with_key(&key);
        context.update(match prover {
            Prover::Client => b"haul lane 1 client\0",
            Prover::Server => b"haul lane 1 server\0",
        });
        context.update(&binding.0);
        for part in said {
            context.update(part);
        }
        let mut proof = [0; PROOF_BYTES];
        proof.copy_from_slice(context.sign().as_ref());
        proof
    }

    /// Whether `proof` is this secret's, in a time that does not tell how much of it is right.
    pub(crate) fn verify(&self, prover: Prover, binding: &Binding, said: &[&[u8]], proof: &[u8]) -> bool {
        constant_time::verify_slices_are_equal(&self.prove(prover, binding, said), proof).is_ok()
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl TicketId {
    /// A new name.
    ///
    /// # Errors
    /// [`NoRandomness`] where the generator fails.
    pub fn generate() -> Result<Self, NoRandomness> {
        Ok(Self(random()?))
    }
}

impl SessionId {
    /// A new name.
    ///
    /// # Errors
    /// [`NoRandomness`] where the generator fails.
    pub fn generate() -> Result<Self, NoRandomness> {
        Ok(Self(random()?))
    }
}

/// The system's generator of random numbers failed: nothing secret can be made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system's generator of random numbers failed; no secret can be made on this machine")]
pub struct NoRandomness;

/// Bytes from the system's generator.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(bytes)
}

fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for TicketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for TicketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TicketId({self})")
    }
}

/// The first four bytes: enough to tell sessions apart in a log, too few to join one.
impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0[..4], f)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self}..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_prover_connection_words_and_secret_only() {
        let secret = Secret::from_bytes([7; SECRET_BYTES]);
        let here = Binding([1; BINDING_BYTES]);
        let proof = secret.prove(Prover::Client, &here, &[b"hello"]);
        assert!(secret.verify(Prover::Client, &here, &[b"hello"], &proof));
        assert!(secret.verify(Prover::Client, &here, &[b"hel", b"lo"], &proof), "parts are one text");
        assert!(!secret.verify(Prover::Server, &here, &[b"hello"], &proof));
        assert!(!secret.verify(Prover::Client, &Binding([2; BINDING_BYTES]), &[b"hello"], &proof));
        assert!(!secret.verify(Prover::Client, &here, &[b"hellO"], &proof));
        assert!(!secret.verify(Prover::Client, &here, &[b"hello"], &proof[..31]));
        assert!(!Secret::from_bytes([8; SECRET_BYTES]).verify(Prover::Client, &here, &[b"hello"], &proof));
    }

    #[test]
    fn secrets_are_not_printed_and_not_alike() {
        let one = Secret::generate().expect("random");
        assert_eq!(format!("{one:?}"), "Secret(..)");
        assert_ne!(one, Secret::generate().expect("random"));
        assert_eq!(one, Secret::from_bytes(*one.expose()));
    }

    #[test]
    fn a_sessions_name_is_printed_in_part() {
        assert_eq!(SessionId([0xab; 16]).to_string(), "abababab");
        assert_eq!(format!("{:?}", TicketId([1; 8])), "TicketId(0101010101010101)");
    }
}
