//! Signatures of waybills, compatible with `ssh-keygen -Y sign` and `-Y verify`.
//!
//! A signature covers all bytes of the waybill. It is stored in a separate file, so that the
//! waybill stays a readable text to which a later job can append. Keys and formats are those of
//! OpenSSH (PROTOCOL.sshsig). The crate `ssh-key` reads and writes them; aws-lc does the
//! cryptography.
//!
//! [`signed`] reads the waybill, [`signers`] decides which keys are accepted, and [`keys`] signs
//! and verifies.

mod keys;
mod signed;
mod signers;

pub use signers::{Refusal, SignersFault};

use crate::copy::quote;
use crate::sum::reason;
use base64::Engine;
use haul_storage::{Durability, Replacement, Writers, replace_path};
use signed::Bytes;
use signers::Signers;
use ssh_key::{HashAlg, LineEnding, PrivateKey, SshSig};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use thiserror::Error;

/// Namespace of the signature: OpenSSH's name for signatures of files. Signatures with another
/// namespace are rejected.
pub const NAMESPACE: &str = "file";

/// Read limit for a signature or a private key, in bytes; well above the size of the largest RSA
/// key.
const KEY_BYTES_MAX: u64 = 256 << 10;

/// Read limit for a list of signers, in bytes.
const SIGNERS_BYTES_MAX: u64 = 16 << 20;

/// Requirements for a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureRequirements {
    /// List of allowed signers in the format of `ssh-keygen`, or a public key.
    pub signers: OsString,
    /// Required identity of the signer; `None` accepts every signer in the list.
    pub identity: Option<String>,
    /// Path of the signature; `None` means next to the waybill ([`beside`]).
    pub signature: Option<OsString>,
}

/// Valid signature.
#[derive(Clone, Debug)]
pub struct Proof {
    /// Name of the signer in the list of signers; `None` for a plain public key.
    pub signer: Option<String>,
    /// Type and fingerprint of the key.
    pub key: String,
    /// Digest of the signed waybill.
    bytes: Bytes,
}

/// Reason why there is no signature, or no accepted one.
#[derive(Debug, Error)]
pub enum SignatureError {
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {}", quote(path), reason(source))]
    File {
        /// Action that failed.
        action: &'static str,
        /// Path of the file.
        path: OsString,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A file is larger than any file of its kind.
    #[error("cannot use {} as {what}: longer than {limit} bytes", quote(path))]
    Long {
        /// Path of the file.
        path: OsString,
        /// Expected kind of file.
        what: &'static str,
        /// Maximum size, in bytes.
        limit: u64,
    },
    /// There is no signature.
    #[error(
        "cannot find signature {}; create one with 'haul waybill sign --key KEY {}', or use --signature",
        quote(path),
        quote(waybill)
    )]
    Missing {
        /// Path at which the signature was expected.
        path: OsString,
        /// Waybill without a signature.
        waybill: OsString,
    },
    /// The file is not a signature.
    #[error(
        "{} is not an SSH signature ({why}); sign the waybill again, or use another --signature",
        quote(path)
    )]
    NoSignature {
        /// Path of the file.
        path: OsString,
        /// Error of the decoder.
        why: String,
    },
    /// The signature has another namespace.
    #[error(
        "{}: the signature is for namespace '{}', not for '{NAMESPACE}'; sign with 'ssh-keygen -Y sign -n {NAMESPACE}'",
        quote(path), found.escape_default()
    )]
    Namespace {
        /// Path of the signature.
        path: OsString,
        /// Namespace of the signature.
        found: String,
    },
    /// The list of signers is invalid.
    #[error("{}: {fault}", quote(path))]
    Signers {
        /// Path of the list.
        path: OsString,
        /// Line and reason.
        fault: SignersFault,
    },
    /// The list does not accept the key.
    #[error("{}: signed by {key}: {refusal} ({})", quote(path), quote(signers))]
    Refused {
        /// Path of the signature.
        path: OsString,
        /// Key that made the signature.
        key: String,
        /// Path of the list.
        signers: OsString,
        /// Reason for the refusal.
        refusal: Refusal,
    },
    /// The key or its signature algorithm is not supported.
    #[error(
        "{}: {why}; 'ssh-keygen -Y verify -f ALLOWED_SIGNERS -I ID -n {NAMESPACE} -s SIGNATURE < WAYBILL' may verify it",
        quote(path)
    )]
    Unsupported {
        /// Path of the signature.
        path: OsString,
        /// Unsupported type.
        why: String,
    },
    /// The waybill differs from the signed one.
    #[error(
        "{} differs from the signed waybill: modified since, or {} belongs to another waybill; use the signed waybill",
        quote(waybill),
        quote(path)
    )]
    Changed {
        /// Path of the waybill.
        waybill: OsString,
        /// Path of the signature.
        path: OsString,
    },
    /// A later job appended to the signed waybill.
    #[error(
        "{}: a later job appended to the signed waybill: {} covers its first {bytes} bytes (sections: {sections}); \
         sign the waybill again, or verify its signed part: head -c {bytes}",
        quote(waybill),
        quote(path)
    )]
    Appended {
        /// Path of the waybill.
        waybill: OsString,
        /// Path of the signature.
        path: OsString,
        /// Number of signed sections.
        sections: u64,
        /// Number of signed bytes.
        bytes: u64,
    },
    /// The waybill changed after its signature was verified.
    #[error("{} changed during the run, so its verdicts are invalid; run the command again", quote(.0))]
    Moved(OsString),
    /// This program cannot use the private key, but OpenSSH's own tool can.
    #[error(
        "cannot sign with {}: {why}; use ssh-keygen, which supports passphrases and the agent: \
         ssh-keygen -Y sign -n {NAMESPACE} -f {} {}",
        quote(key),
        quote(key),
        quote(waybill)
    )]
    Key {
        /// Path of the key file.
        key: OsString,
        /// Reason why the key is unusable.
        why: String,
        /// Waybill to sign.
        waybill: OsString,
    },
    /// A signature exists already.
    #[error("{} already exists; use --replace to replace the signature", quote(.0))]
    There(OsString),
}

/// Returns the default path of a waybill's signature: `WAYBILL.sig`, the name that `ssh-keygen -Y
/// sign` uses.
pub fn beside(waybill: &OsStr) -> OsString {
    let mut path = waybill.to_owned();
    path.push(".sig");
    path
}

/// Signs a waybill with the private key in a file. Returns the text of the signature, and the type
/// and fingerprint of the key.
///
/// # Errors
/// Returns [`SignatureError::Key`] if the key is unusable, and [`SignatureError::File`] or
/// [`SignatureError::Long`] if a file cannot be read.
pub fn sign(waybill: &OsStr, key: &OsStr) -> Result<(String, String), SignatureError> {
    let unfit = |why: String| SignatureError::Key { key: key.to_owned(), why, waybill: waybill.to_owned() };
    let text = read(key, "private key", KEY_BYTES_MAX)?;
    let private = PrivateKey::from_openssh(&text).map_err(|_| {
        let is_public = text.starts_with(b"ssh-") || text.starts_with(b"ecdsa-") || text.starts_with(b"sk-");
        unfit(
            if is_public { "public key" } else { "not a supported private key in OpenSSH format" }.to_owned(),
        )
    })?;
    if private.is_encrypted() {
        return Err(unfit("encrypted key".to_owned()));
    }
    let bytes = Bytes::of(waybill, HashAlg::Sha512)?;
    let message = signed::message(NAMESPACE, &[], &bytes);
    let signature = keys::sign(private.key_data(), &message).map_err(|why| unfit(why.to_string()))?;
    let public = private.public_key().key_data().clone();
    let key = named(&public);
    let text = SshSig::new(public, NAMESPACE, HashAlg::Sha512, signature)
        .and_then(|signature| signature.to_pem(LineEnding::LF))
        .map_err(|error| unfit(format!("cannot encode its signature: {error}")))?;
    Ok((text, key))
}

/// Writes a signature atomically.
///
/// # Errors
/// Returns [`SignatureError::There`] if a file exists and `replace` is false, and
/// [`SignatureError::File`] if the write fails.
pub fn write(path: &OsStr, text: &str, replace: bool) -> Result<(), SignatureError> {
    let failed = |source| SignatureError::File { action: "write", path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Ok(_) if !replace => return Err(SignatureError::There(path.to_owned())),
        // A link or a device is not a signature of an earlier run.
        Ok(facts) if !facts.is_file() => {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "Not a regular file")));
        }
        _ => {}
    }
    let durable = Replacement { writers: Writers::Many, mode: 0o666, durability: Durability::DataAndName };
    replace_path(Path::new(path), durable, |out| out.write_all(text.as_bytes())).map_err(failed)
}

/// Checks that a waybill has an accepted signature. `now` is in seconds since 1970, for signers
/// with a limited period of validity.
///
/// # Errors
/// Returns the [`SignatureError`] that describes why no signature is accepted.
pub fn check(waybill: &OsStr, demand: &SignatureRequirements, now: i64) -> Result<Proof, SignatureError> {
    let path = demand.signature.clone().unwrap_or_else(|| beside(waybill));
    let signature = open(&path, waybill)?;
    if signature.namespace() != NAMESPACE {
        let found = signature.namespace().to_owned();
        return Err(SignatureError::Namespace { path, found });
    }
    let signers = read(&demand.signers, "list of signers", SIGNERS_BYTES_MAX)?;
    let signers = Signers::parse(&signers)
        .map_err(|fault| SignatureError::Signers { path: demand.signers.clone(), fault })?;
    let key = named(signature.public_key());
    let signer = match signers.admit(signature.public_key(), demand.identity.as_deref(), now) {
        Ok(signer) => signer,
        Err(refusal) => {
            return Err(SignatureError::Refused { path, key, signers: demand.signers.clone(), refusal });
        }
    };
    let covers = |bytes: &Bytes| {
        let message = signed::message(signature.namespace(), signature.reserved(), bytes);
        keys::verify(signature.public_key(), signature.signature(), &message)
    };
    let bytes = Bytes::of(waybill, signature.hash_alg())?;
    match covers(&bytes) {
        Ok(true) => Ok(Proof { signer, key, bytes }),
        Ok(false) => Err(changed(waybill, path, signature.hash_alg(), &|bytes| covers(bytes) == Ok(true))),
        Err(why) => Err(SignatureError::Unsupported { path, why: why.to_string() }),
    }
}

impl Proof {
    /// Checks that the waybill still has the signed contents after its use.
    ///
    /// # Errors
    /// Returns [`SignatureError::Moved`] if the waybill changed, and [`SignatureError::File`] if it
    /// cannot be read.
    pub fn still_holds(&self, waybill: &OsStr) -> Result<(), SignatureError> {
        let now = Bytes::of(waybill, self.bytes.algorithm())?;
        if now == self.bytes { Ok(()) } else { Err(SignatureError::Moved(waybill.to_owned())) }
    }
}

/// Returns the error for a waybill that differs from the signed one.
fn changed(
    waybill: &OsStr,
    path: OsString,
    algorithm: HashAlg,
    covers: &dyn Fn(&Bytes) -> bool,
) -> SignatureError {
    let waybill = waybill.to_owned();
    match signed::first_sections(&waybill, algorithm, covers) {
        Ok(Some((sections, bytes))) => SignatureError::Appended { waybill, path, sections, bytes },
        Ok(None) => SignatureError::Changed { waybill, path },
        Err(error) => error,
    }
}

fn open(path: &OsStr, waybill: &OsStr) -> Result<SshSig, SignatureError> {
    let text = read(path, "signature", KEY_BYTES_MAX).map_err(|error| match error {
        SignatureError::File { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            SignatureError::Missing { path: path.to_owned(), waybill: waybill.to_owned() }
        }
        other => other,
    })?;
    decode(&text).map_err(|why| SignatureError::NoSignature { path: path.to_owned(), why })
}

/// Decodes a signature. The error is a message for the user.
fn decode(text: &[u8]) -> Result<SshSig, String> {
    let signature = SshSig::from_pem(text).map_err(|error| {
        let why = "made with a certificate; only plain keys are supported";
        if is_by_certificate(text) { why.to_owned() } else { error.to_string() }
    })?;
    // The crate accepts lower versions, and the signature does not cover its own version.
    if signature.version() != SshSig::VERSION {
        return Err(format!("unsupported version {}", signature.version()));
    }
    // The crate does not check all lengths for consistency. A valid signature has exactly one
    // encoding, so compare the input with it.
    let letters = |text: &[u8]| text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let (found, meant): (Vec<u8>, Option<Vec<u8>>) =
        (letters(text), signature.to_pem(LineEnding::LF).ok().map(|text| letters(text.as_bytes())));
    if meant != Some(found) {
        return Err("inconsistent parts".to_owned());
    }
    Ok(signature)
}

/// Returns true if an armored signature contains a certificate instead of a key.
fn is_by_certificate(text: &[u8]) -> bool {
    const CERTIFICATE: &[u8] = b"-cert-v01@openssh.com";
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.starts_with(b"-----"));
    let letters: Vec<u8> = lines.flatten().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let bytes = base64::engine::general_purpose::STANDARD.decode(letters).unwrap_or_default();
    bytes.windows(CERTIFICATE.len()).any(|window| window == CERTIFICATE)
}

/// Returns the type and fingerprint of the key that made a signature; the fingerprint is in the
/// format of `ssh-keygen -l`. Checks neither the owner of the key nor the signature.
///
/// # Errors
/// Returns the reason why the text is not a signature.
pub fn key_fingerprint(text: &[u8]) -> Result<String, String> {
    decode(text).map(|signature| named(signature.public_key()))
}

/// Returns the number of signers in a list, which is read like in [`check`].
///
/// # Errors
/// Returns a [`SignersFault`] with the invalid line.
pub fn count_signers(list: &[u8]) -> Result<usize, SignersFault> {
    Signers::parse(list).map(|signers| signers.count())
}

fn read(path: &OsStr, what: &'static str, limit: u64) -> Result<Vec<u8>, SignatureError> {
    let failed = |source| SignatureError::File { action: "read", path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > limit {
        return Err(SignatureError::Long { path: path.to_owned(), what, limit });
    }
    Ok(bytes)
}

/// Returns the type and fingerprint of a key; the fingerprint is in the format of `ssh-keygen -l`.
fn named(key: &ssh_key::public::KeyData) -> String {
    format!("{} {}", key.algorithm(), key.fingerprint(HashAlg::Sha256))
}

#[cfg(test)]
mod tests;
