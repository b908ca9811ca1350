//! Signing and verification: OpenSSH's formats around aws-lc's Ed25519, ECDSA and RSA.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED,
    ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED, ECDSA_P521_SHA512_FIXED_SIGNING, ED25519,
    EcdsaKeyPair, EcdsaSigningAlgorithm, EcdsaVerificationAlgorithm, Ed25519KeyPair,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA512, RsaPublicKeyComponents, UnparsedPublicKey,
};
use ssh_key::private::KeypairData;
use ssh_key::public::KeyData;
use ssh_key::{Algorithm, EcdsaCurve, HashAlg, Mpint, Signature};
use thiserror::Error;

/// Minimum size of an RSA key, in bytes: 2,048 bits. Smaller keys are too weak.
const RSA_BYTES_MIN: usize = 256;

/// Reason why a key cannot sign or verify here.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(super) enum KeyFault {
    /// The type of the key, or its signature algorithm, is not supported.
    #[error("unsupported key type {0}")]
    Signs(String),
    #[error("unsupported signature type {0}")]
    Verifies(String),
    #[error("RSA key of fewer than 2,048 bits")]
    Weak,
    /// The private and the public part of the key do not match.
    #[error("damaged key")]
    Damaged,
}

/// Signs a message.
pub(super) fn sign(key: &KeypairData, message: &[u8]) -> Result<Signature, KeyFault> {
    match key {
        KeypairData::Ed25519(pair) => {
            let ours =
                Ed25519KeyPair::from_seed_and_public_key(&pair.private.to_bytes(), pair.public.as_ref())
                    .map_err(|_| KeyFault::Damaged)?;
            Signature::new(Algorithm::Ed25519, ours.sign(message).as_ref()).map_err(|_| KeyFault::Damaged)
        }
        // The crate reads only private numbers of full length. With P-521 every second key has one,
        // with the smaller curves all but one in 256.
        KeypairData::Ecdsa(pair) if pair.curve() != EcdsaCurve::NistP521 => {
            let (algorithm, _, _) = ecdsa(pair.curve());
            let (private, public) = (pair.private_key_bytes(), pair.public_key_bytes());
            let ours = EcdsaKeyPair::from_private_key_and_public_key(algorithm, private, public)
                .map_err(|_| KeyFault::Damaged)?;
            let numbers = ours.sign(&SystemRandom::new(), message).map_err(|_| KeyFault::Damaged)?;
            let (r, s) = numbers.as_ref().split_at(numbers.as_ref().len() / 2);
            let mut data = Vec::new();
            for number in [r, s] {
                let number = Mpint::from_positive_bytes(number).map_err(|_| KeyFault::Damaged)?;
                // At most 67 bytes.
                data.extend_from_slice(&(number.as_bytes().len() as u32).to_be_bytes());
                data.extend_from_slice(number.as_bytes());
            }
            Signature::new(Algorithm::Ecdsa { curve: pair.curve() }, data).map_err(|_| KeyFault::Damaged)
        }
        other => {
            Err(KeyFault::Signs(other.algorithm().map_or("unknown".to_owned(), |kind| kind.to_string())))
        }
    }
}

/// Returns true if the key made this signature of the message.
pub(super) fn verify(key: &KeyData, signature: &Signature, message: &[u8]) -> Result<bool, KeyFault> {
    let bytes = signature.as_bytes();
    let unknown = || KeyFault::Verifies(signature.algorithm().to_string());
    match (key, signature.algorithm()) {
        (KeyData::Ed25519(key), Algorithm::Ed25519) => {
            Ok(UnparsedPublicKey::new(&ED25519, key.as_ref()).verify(message, bytes).is_ok())
        }
        (KeyData::Ecdsa(key), Algorithm::Ecdsa { curve }) if key.curve() == curve => {
            let (_, algorithm, len) = ecdsa(curve);
            let Some(numbers) = numbers(bytes, len) else { return Ok(false) };
            Ok(UnparsedPublicKey::new(algorithm, key.as_sec1_bytes()).verify(message, &numbers).is_ok())
        }
        (KeyData::Rsa(key), Algorithm::Rsa { hash: Some(hash) }) => {
            let (n, e) = (key.n.as_positive_bytes(), key.e.as_positive_bytes());
            let (Some(n), Some(e)) = (n, e) else { return Ok(false) };
            if n.len() < RSA_BYTES_MIN {
                return Err(KeyFault::Weak);
            }
            let algorithm = match hash {
                HashAlg::Sha256 => &RSA_PKCS1_2048_8192_SHA256,
                HashAlg::Sha512 => &RSA_PKCS1_2048_8192_SHA512,
                _ => return Err(unknown()),
            };
            Ok(RsaPublicKeyComponents { n, e }.verify(algorithm, message, bytes).is_ok())
        }
        _ => Err(unknown()),
    }
}

/// Returns the algorithms of a curve, and the size of one number in bytes.
fn ecdsa(curve: EcdsaCurve) -> (&'static EcdsaSigningAlgorithm, &'static EcdsaVerificationAlgorithm, usize) {
    match curve {
        EcdsaCurve::NistP256 => (&ECDSA_P256_SHA256_FIXED_SIGNING, &ECDSA_P256_SHA256_FIXED, 32),
        EcdsaCurve::NistP384 => (&ECDSA_P384_SHA384_FIXED_SIGNING, &ECDSA_P384_SHA384_FIXED, 48),
        EcdsaCurve::NistP521 => (&ECDSA_P521_SHA512_FIXED_SIGNING, &ECDSA_P521_SHA512_FIXED, 66),
    }
}

/// Converts the two numbers of an ECDSA signature from OpenSSH's format (two strings of minimal
/// length) to the format of fixed length.
fn numbers(mut bytes: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut numbers = Vec::with_capacity(2 * len);
    for _ in 0..2 {
        let (head, rest) = bytes.split_first_chunk::<4>()?;
        let (number, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*head)).ok()?)?;
        let number = &number[number.iter().take_while(|&&byte| byte == 0).count()..];
        numbers.resize(numbers.len() + len.checked_sub(number.len())?, 0);
        numbers.extend_from_slice(number);
        bytes = rest;
    }
    bytes.is_empty().then_some(numbers)
}
