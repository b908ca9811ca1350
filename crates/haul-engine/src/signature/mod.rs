//! Signatures of waybills, as `ssh-keygen -Y sign` and `-Y verify` make and check them.
//!
//! A signature covers all bytes of the waybill. It stands in a file beside it, so that the waybill stays what it is: a
//! text that anybody can read, and to which a later job can append. Keys and forms are OpenSSH's (PROTOCOL.sshsig),
//! read and written by the crate `ssh-key`; the cryptography is aws-lc's.
//!
//! [`signed`] reads the waybill, [`signers`] says whose word counts, [`keys`] signs and verifies.

mod keys;
mod signed;
mod signers;

pub use signers::{Refusal, SignersFault};

use crate::copy::quote;
use crate::sum::reason;
use base64::Engine;
use signed::Bytes;
use signers::Signers;
use ssh_key::{HashAlg, LineEnding, PrivateKey, SshSig};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use thiserror::Error;

/// What the signature is for: OpenSSH's name for signatures of files. One made for another purpose does not count.
pub const NAMESPACE: &str = "file";

/// Bytes of a signature or a private key, far above the largest RSA key's.
const KEY_BYTES_MAX: u64 = 256 << 10;

/// Bytes of a list of signers.
const SIGNERS_BYTES_MAX: u64 = 16 << 20;

/// Whose signature is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// A list of allowed signers as `ssh-keygen` reads it, or a public key.
    pub signers: OsString,
    /// Who must have signed; without it, anyone of the list.
    pub identity: Option<String>,
    /// Where the signature is; without it, beside the waybill ([`beside`]).
    pub signature: Option<OsString>,
}

/// A good signature.
#[derive(Clone, Debug)]
pub struct Proof {
    /// Who signed, as the list of signers has it; of a bare public key, nobody by name.
    pub signer: Option<String>,
    /// The key: its kind and fingerprint.
    pub key: String,
    /// Of the waybill that was signed.
    bytes: Bytes,
}

/// Why there is no signature, or none that counts.
#[derive(Debug, Error)]
pub enum SignatureError {
    /// A file can't be read or written.
    #[error("cannot {action} {}: {}", quote(path), reason(source))]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: OsString,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file is longer than one of its kind can be.
    #[error("{} is longer than {limit} bytes: it is no {what}", quote(path))]
    Long {
        /// The file.
        path: OsString,
        /// What it should be.
        what: &'static str,
        /// In bytes.
        limit: u64,
    },
    /// There is no signature.
    #[error(
        "there is no signature {}; make one: haul waybill sign --key KEY {}, or name it by --signature",
        quote(path),
        quote(waybill)
    )]
    Missing {
        /// Where it was looked for.
        path: OsString,
        /// What should be signed.
        waybill: OsString,
    },
    /// The file holds something else.
    #[error("{} is no SSH signature ({why}); sign anew, or name the right file by --signature", quote(path))]
    NoSignature {
        /// The file.
        path: OsString,
        /// What the reader of signatures says.
        why: String,
    },
    /// The signature was made for another purpose.
    #[error(
        "{}: the signature was made for the namespace '{}', not for '{NAMESPACE}': sign with 'ssh-keygen -Y sign -n {NAMESPACE}'",
        quote(path), found.escape_default()
    )]
    Namespace {
        /// The signature.
        path: OsString,
        /// Its namespace.
        found: String,
    },
    /// The list of signers can't be understood.
    #[error("{}: {fault}", quote(path))]
    Signers {
        /// The list.
        path: OsString,
        /// Where, and what.
        fault: SignersFault,
    },
    /// The key's word does not count.
    #[error("{}: signed by {key}: {refusal} ({})", quote(path), quote(signers))]
    Refused {
        /// The signature.
        path: OsString,
        /// The key that made it.
        key: String,
        /// The list.
        signers: OsString,
        /// Why not.
        refusal: Refusal,
    },
    /// The key, or the way it signed, is of a kind that this program does not verify.
    #[error(
        "{}: {why}; 'ssh-keygen -Y verify -f ALLOWED_SIGNERS -I ID -n {NAMESPACE} -s SIGNATURE < WAYBILL' may verify it",
        quote(path)
    )]
    Unsupported {
        /// The signature.
        path: OsString,
        /// What it is.
        why: String,
    },
    /// Not what was signed.
    #[error(
        "{} is not what was signed: it was changed since, or {} belongs to another; get the waybill that was signed",
        quote(waybill),
        quote(path)
    )]
    Changed {
        /// The waybill.
        waybill: OsString,
        /// The signature.
        path: OsString,
    },
    /// A later job appended to what was signed.
    #[error(
        "{}: a later job appended to it after it was signed: {} covers its first {bytes} bytes (sections: {sections}); \
         sign it anew, or verify what was signed: head -c {bytes}",
        quote(waybill),
        quote(path)
    )]
    Appended {
        /// The waybill.
        waybill: OsString,
        /// The signature.
        path: OsString,
        /// How many sections were signed.
        sections: u64,
        /// How many bytes they have.
        bytes: u64,
    },
    /// The waybill changed after its signature was verified.
    #[error("{} changed while it was used: no verdict of this run counts; run again", quote(.0))]
    Moved(OsString),
    /// The private key can't be used here, but by OpenSSH's own tool.
    #[error(
        "{} {why}; ssh-keygen makes the same signature, and asks for a passphrase or the agent: \
         ssh-keygen -Y sign -n {NAMESPACE} -f {} {}",
        quote(key),
        quote(key),
        quote(waybill)
    )]
    Key {
        /// The file of the key.
        key: OsString,
        /// What stands against it.
        why: String,
        /// What was to be signed.
        waybill: OsString,
    },
    /// A signature stands there already.
    #[error("{} is there already; --replace writes a new one in its place", quote(.0))]
    There(OsString),
}

/// Where a waybill's signature is looked for: `WAYBILL.sig`, as `ssh-keygen -Y sign` names it.
pub fn beside(waybill: &OsStr) -> OsString {
    let mut path = waybill.to_owned();
    path.push(".sig");
    path
}

/// Signs a waybill by the private key of a file; the text of the signature, and the key's kind and fingerprint.
///
/// # Errors
/// [`SignatureError`].
pub fn sign(waybill: &OsStr, key: &OsStr) -> Result<(String, String), SignatureError> {
    let unfit = |why: String| SignatureError::Key { key: key.to_owned(), why, waybill: waybill.to_owned() };
    let text = read(key, "private key", KEY_BYTES_MAX)?;
    let private = PrivateKey::from_openssh(&text).map_err(|_| {
        let is_public = text.starts_with(b"ssh-") || text.starts_with(b"ecdsa-") || text.starts_with(b"sk-");
        unfit(
            if is_public {
                "is a public key"
            } else {
                "is no private key in OpenSSH's form that can be read here"
            }
            .to_owned(),
        )
    })?;
    if private.is_encrypted() {
        return Err(unfit("is encrypted".to_owned()));
    }
    let bytes = Bytes::of(waybill, HashAlg::Sha512)?;
    let message = signed::message(NAMESPACE, &[], &bytes);
    let signature = keys::sign(private.key_data(), &message).map_err(|why| unfit(why.to_string()))?;
    let public = private.public_key().key_data().clone();
    let key = named(&public);
    let text = SshSig::new(public, NAMESPACE, HashAlg::Sha512, signature)
        .and_then(|signature| signature.to_pem(LineEnding::LF))
        .map_err(|error| unfit(format!("makes a signature without a form: {error}")))?;
    Ok((text, key))
}

/// Writes a signature, whole or not at all.
///
/// # Errors
/// [`SignatureError::There`], unless what stands there is to be replaced; [`SignatureError::File`].
pub fn write(path: &OsStr, text: &str, replace: bool) -> Result<(), SignatureError> {
    let failed = |source| SignatureError::File { action: "write", path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Ok(_) if !replace => return Err(SignatureError::There(path.to_owned())),
        // A link or a device is no signature of an earlier run.
        Ok(facts) if !facts.is_file() => {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "Not a regular file")));
        }
        _ => {}
    }
    let mut draft = path.to_owned();
    draft.push(format!(".{}.new", std::process::id()));
    let written = File::create_new(&draft).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)
    });
    if written.is_err() {
        // The failure that is told is the first one.
        let _ = fs::remove_file(&draft);
    }
    written.map_err(failed)?;
    let folder = Path::new(path).parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all()).map_err(failed)
}

/// Whether a waybill has a signature that counts. `now` is in seconds since 1970, for signers whose word counts for
/// some time only.
///
/// # Errors
/// [`SignatureError`].
pub fn check(waybill: &OsStr, demand: &Demand, now: i64) -> Result<Proof, SignatureError> {
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
    /// Whether the waybill is still what was signed, after it was used.
    ///
    /// # Errors
    /// [`SignatureError::Moved`] if not; [`SignatureError::File`].
    pub fn still_holds(&self, waybill: &OsStr) -> Result<(), SignatureError> {
        let now = Bytes::of(waybill, self.bytes.algorithm())?;
        if now == self.bytes { Ok(()) } else { Err(SignatureError::Moved(waybill.to_owned())) }
    }
}

/// How the waybill is not what was signed.
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

/// The signature that a text is. The error is a message.
fn decode(text: &[u8]) -> Result<SshSig, String> {
    let signature = SshSig::from_pem(text).map_err(|error| {
        let why = "it was made with a certificate, and only keys themselves are read";
        if is_by_certificate(text) { why.to_owned() } else { error.to_string() }
    })?;
    // The crate takes lower ones, and the signature does not cover its own version.
    if signature.version() != SshSig::VERSION {
        return Err(format!("its version is {}", signature.version()));
    }
    // Nor does the crate hold all lengths against each other: what it read has one form, and this has to be it.
    let letters = |text: &[u8]| text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let (found, meant): (Vec<u8>, Option<Vec<u8>>) =
        (letters(text), signature.to_pem(LineEnding::LF).ok().map(|text| letters(text.as_bytes())));
    if meant != Some(found) {
        return Err("its parts contradict each other".to_owned());
    }
    Ok(signature)
}

/// Whether an armored text names a key's certificate where the key stands in a signature.
fn is_by_certificate(text: &[u8]) -> bool {
    const CERTIFICATE: &[u8] = b"-cert-v01@openssh.com";
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.starts_with(b"-----"));
    let letters: Vec<u8> = lines.flatten().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let bytes = base64::engine::general_purpose::STANDARD.decode(letters).unwrap_or_default();
    bytes.windows(CERTIFICATE.len()).any(|window| window == CERTIFICATE)
}

/// The key that made a signature, as `ssh-keygen -l` prints it; whose it is and whether it holds is not told.
///
/// # Errors
/// Why the text is no signature.
pub fn look_at(text: &[u8]) -> Result<String, String> {
    decode(text).map(|signature| named(signature.public_key()))
}

/// How many signers a list has, read as [`check`] reads it.
///
/// # Errors
/// [`SignersFault`]: the line that is wrong.
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

/// A key's kind and fingerprint, as `ssh-keygen -l` prints them.
fn named(key: &ssh_key::public::KeyData) -> String {
    format!("{} {}", key.algorithm(), key.fingerprint(HashAlg::Sha256))
}

#[cfg(test)]
mod tests;
