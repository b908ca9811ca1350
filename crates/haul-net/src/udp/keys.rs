//! Sealing of datagrams with an AEAD cipher.

use aws_lc_rs::aead::{
    AES_128_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use haul_udp::{PACKETS_PER_EPOCH, Seal};
use std::fmt;
use zeroize::Zeroizing;

/// Length in bytes of the secret of one direction.
pub(super) const SECRET_BYTES: usize = 32;

/// Maximum number of epochs whose keys are kept.
const EPOCHS_MAX: usize = 3;

/// Length in bytes of an authentication tag of both ciphers.
const TAG_BYTES: usize = 16;

/// Cipher of the datagrams of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cipher {
    Aes128Gcm,
    ChaCha20Poly1305,
}

impl Cipher {
    /// Returns the cipher for a control connection whose cipher has this name: both CPUs are fast
    /// at what TLS negotiated.
    pub(super) fn beside(tls: &str) -> Self {
        if tls.starts_with("AES") { Self::Aes128Gcm } else { Self::ChaCha20Poly1305 }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "AES-128-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        }
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::Aes128Gcm => &AES_128_GCM,
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }
}

/// Keys of one direction. The key of a datagram depends on its number divided by
/// [`PACKETS_PER_EPOCH`]; its nonce is the number, exclusive-or the epoch's initialization vector.
/// `docs/formats/udp.md` has the argument.
pub(super) struct Keys {
    cipher: Cipher,
    secret: Prk,
    /// Keys of at most three epochs: the current one, the one before it for late datagrams, and the
    /// next one.
    epochs: Vec<Epoch>,
}

struct Epoch {
    number: u64,
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
}

impl Keys {
    pub(super) fn new(cipher: Cipher, secret: &[u8; SECRET_BYTES]) -> Self {
        Self {
            cipher,
            secret: Prk::new_less_safe(HKDF_SHA256, secret),
            epochs: Vec::with_capacity(EPOCHS_MAX),
        }
    }

    /// Returns the keys of the datagram `number`.
    fn epoch(&mut self, number: u64) -> &Epoch {
        let wanted = number / PACKETS_PER_EPOCH;
        let at = match self.epochs.iter().position(|epoch| epoch.number == wanted) {
            Some(at) => at,
            None => {
                let epoch = Epoch::derive(self.cipher, &self.secret, wanted);
                // The caller opens a number of at most one epoch above the highest proven one, so
                // the lowest epoch is the one that is needed least.
                self.epochs.push(epoch);
                self.epochs.sort_by_key(|epoch| epoch.number);
                if self.epochs.len() > EPOCHS_MAX {
                    let lowest = if self.epochs[0].number == wanted { 1 } else { 0 };
                    self.epochs.remove(lowest);
                }
                self.epochs.iter().position(|epoch| epoch.number == wanted).expect("it was inserted")
            }
        };
        &self.epochs[at]
    }
}

impl Epoch {
    fn derive(cipher: Cipher, secret: &Prk, number: u64) -> Self {
        let algorithm = cipher.algorithm();
        let mut key = Zeroizing::new(vec![0; algorithm.key_len()]);
        let mut iv = [0; NONCE_LEN];
        expand(secret, b"haul udp 1 key", number, &mut key);
        expand(secret, b"haul udp 1 iv", number, &mut iv);
        let key = UnboundKey::new(algorithm, &key).expect("the key has the length of the algorithm");
        Self { number, key: LessSafeKey::new(key), iv }
    }

    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = self.iv;
        for (byte, part) in nonce[NONCE_LEN - 8..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= part;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Fills `out` by HKDF-Expand (RFC 5869) with the label and the number of the epoch.
fn expand(secret: &Prk, label: &[u8], epoch: u64, out: &mut [u8]) {
    struct Length(usize);
    impl KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let info = [label, &epoch.to_le_bytes()[..]];
    let derived = secret.expand(&info, Length(out.len()));
    derived.and_then(|key| key.fill(out)).expect("HKDF expands to up to 8,160 bytes");
}

impl Seal for Keys {
    fn overhead(&self) -> usize {
        TAG_BYTES
    }

    fn is_authentic(&self) -> bool {
        true
    }

    fn seal(&mut self, number: u64, header: &[u8], body: &mut [u8]) {
        let epoch = self.epoch(number);
        let (plain, tag) = body.split_at_mut(body.len() - TAG_BYTES);
        let sealed = epoch.key.seal_in_place_separate_tag(epoch.nonce(number), Aad::from(header), plain);
        tag.copy_from_slice(sealed.expect("a datagram is shorter than the limit of the cipher").as_ref());
    }

    fn open(&mut self, number: u64, header: &[u8], body: &mut [u8]) -> Option<usize> {
        let epoch = self.epoch(number);
        let opened = epoch.key.open_in_place(epoch.nonce(number), Aad::from(header), body);
        opened.ok().map(|plain| plain.len())
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("cipher", &self.cipher).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CIPHERS: [Cipher; 2] = [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305];

    fn sealed(cipher: Cipher, number: u64, plain: &[u8]) -> Vec<u8> {
        let mut body = [plain, &[0; TAG_BYTES]].concat();
        Keys::new(cipher, &[7; SECRET_BYTES]).seal(number, b"header", &mut body);
        body
    }

    #[test]
    fn sealed_datagram_opens_with_its_number_header_and_secret_only() {
        for cipher in CIPHERS {
            for number in [0, 1, PACKETS_PER_EPOCH - 1, PACKETS_PER_EPOCH, u64::MAX >> 16] {
                let body = sealed(cipher, number, b"payload");
                let open = |number, header: &[u8], secret: u8| {
                    let mut body = body.clone();
                    let len = Keys::new(cipher, &[secret; SECRET_BYTES]).open(number, header, &mut body);
                    len.map(|len| body[..len].to_vec())
                };
                assert_eq!(open(number, b"header", 7).as_deref(), Some(&b"payload"[..]));
                assert_eq!(open(number + 1, b"header", 7), None);
                assert_eq!(open(number ^ PACKETS_PER_EPOCH, b"header", 7), None);
                assert_eq!(open(number, b"Header", 7), None);
                assert_eq!(open(number, b"header", 8), None);
            }
        }
    }

    #[test]
    fn each_flipped_bit_is_detected() {
        for cipher in CIPHERS {
            let body = sealed(cipher, 5, b"abc");
            for at in 0..body.len() * 8 {
                let mut damaged = body.clone();
                damaged[at / 8] ^= 1 << (at % 8);
                let mut keys = Keys::new(cipher, &[7; SECRET_BYTES]);
                assert_eq!(keys.open(5, b"header", &mut damaged), None, "bit {at}");
            }
        }
    }

    #[test]
    fn datagrams_of_two_epochs_open_in_any_order() {
        let mut keys = Keys::new(Cipher::Aes128Gcm, &[7; SECRET_BYTES]);
        for number in
            [0, PACKETS_PER_EPOCH, 1, PACKETS_PER_EPOCH + 1, 2 * PACKETS_PER_EPOCH, PACKETS_PER_EPOCH + 2]
        {
            let mut body = sealed(Cipher::Aes128Gcm, number, b"x");
            assert_eq!(keys.open(number, b"header", &mut body), Some(1), "{number}");
            assert!(keys.epochs.len() <= EPOCHS_MAX);
        }
    }

    /// The vectors of `docs/formats/udp.md`.
    #[test]
    fn vectors_of_the_document_hold() {
        let document = include_str!("../../../../docs/formats/udp.md");
        let mut missing = Vec::new();
        for cipher in CIPHERS {
            for number in [0, 1, PACKETS_PER_EPOCH] {
                let body = sealed(cipher, number, b"payload");
                let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
                missing.push(format!("| {} | {number} | `{hex}` |", cipher.name()));
            }
        }
        missing.retain(|row| !document.contains(row));
        assert!(missing.is_empty(), "{}", missing.join("\n"));
    }
}
