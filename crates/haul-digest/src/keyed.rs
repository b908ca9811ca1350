//! Digests that only the two sides of one session can compute: BLAKE3 under a key of the session.

use std::fmt;

/// Context of the key: the program, the date and the purpose.
const CONTEXT: &str = "haul 2026-11-26 digests of one session that decide what is the same";

/// Context of the key of journals.
const JOURNAL_CONTEXT: &str = "haul 2026-11-26 journals that only this user can write";

/// Key of the digests by which the two sides of a session decide that bytes are the same.
///
/// A peer of another session can neither prepare different bytes of the same digest nor recognize
/// bytes by their digest.
#[derive(Clone, Copy)]
pub struct DigestKey([u8; 32]);

impl DigestKey {
    /// Derives the key from the secret of the session.
    pub fn derive(secret: &[u8]) -> DigestKey {
        DigestKey(blake3::derive_key(CONTEXT, secret))
    }

    /// Derives the key that authenticates journals from the secret of a user.
    pub fn of_journals(secret: &[u8; KEYED_DIGEST_BYTES]) -> DigestKey {
        DigestKey(blake3::derive_key(JOURNAL_CONTEXT, secret))
    }

    /// Returns a hasher without input.
    pub fn hasher(&self) -> KeyedHasher {
        KeyedHasher(Box::new(blake3::Hasher::new_keyed(&self.0)))
    }

    /// Returns the digest of these bytes.
    pub fn digest(&self, bytes: &[u8]) -> KeyedDigest {
        let mut hasher = self.hasher();
        hasher.update(bytes);
        hasher.finish()
    }
}

impl fmt::Debug for DigestKey {
    /// Writes no byte of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestKey(..)")
    }
}

/// A stream of bytes under a [`DigestKey`], fed in order.
#[derive(Clone)]
pub struct KeyedHasher(Box<blake3::Hasher>);

impl KeyedHasher {
    /// Feeds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest of all bytes so far.
    pub fn finish(&self) -> KeyedDigest {
        KeyedDigest(self.0.finalize())
    }
}

impl fmt::Debug for KeyedHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedHasher").finish_non_exhaustive()
    }
}

/// Size in bytes of a [`KeyedDigest`].
pub const KEYED_DIGEST_BYTES: usize = 32;

/// A digest under a [`DigestKey`]. The time of a comparison does not depend on the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedDigest(blake3::Hash);

impl KeyedDigest {
    /// Takes a digest that a peer sent.
    pub fn from_bytes(bytes: [u8; KEYED_DIGEST_BYTES]) -> KeyedDigest {
        KeyedDigest(bytes.into())
    }

    /// Returns the bytes of the digest.
    pub fn as_bytes(&self) -> &[u8; KEYED_DIGEST_BYTES] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_depends_on_the_secret_and_on_every_byte() {
        let keys = [b"secret", b"Secret"].map(|secret| DigestKey::derive(secret));
        let of_one = keys[0].digest(b"bytes");
        assert_eq!(of_one.as_bytes(), blake3::keyed_hash(&keys[0].0, b"bytes").as_bytes());
        assert_ne!(of_one, keys[1].digest(b"bytes"));
        assert_ne!(of_one, keys[0].digest(b"bites"));
        assert_eq!(of_one, KeyedDigest::from_bytes(*of_one.as_bytes()));
        let mut parts = keys[0].hasher();
        [&b"by"[..], b"", b"tes"].iter().for_each(|part| parts.update(part));
        assert_eq!(parts.finish(), of_one);
        assert_eq!(format!("{:?}", keys[0]), "DigestKey(..)");
    }
}
