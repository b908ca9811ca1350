//! Bytes that a signature covers.

use super::SignatureError;
use aws_lc_rs::digest::{Context, SHA256, SHA512};
use ssh_key::HashAlg;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};

/// Start of every section of a waybill, in any version of the format.
const SECTION: &[u8] = b"surehaul-waybill ";

/// Block size for reads, in bytes.
const READ_BYTES: usize = 1 << 20;

/// Digest of a waybill, or of its first sections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bytes {
    algorithm: HashAlg,
    digest: Vec<u8>,
}

impl Bytes {
    /// Hashes a whole file.
    pub(super) fn of(path: &OsStr, algorithm: HashAlg) -> Result<Bytes, SignatureError> {
        let mut context = context(algorithm);
        let mut file = open(path)?;
        loop {
            let part = file.fill_buf().map_err(|source| unread(path, source))?;
            if part.is_empty() {
                return Ok(Bytes::from(algorithm, &context));
            }
            context.update(part);
            let len = part.len();
            file.consume(len);
        }
    }

    fn from(algorithm: HashAlg, context: &Context) -> Bytes {
        Bytes { algorithm, digest: context.clone().finish().as_ref().to_vec() }
    }

    pub(super) fn algorithm(&self) -> HashAlg {
        self.algorithm
    }
}

/// Returns the bytes that a key signs, according to OpenSSH's PROTOCOL.sshsig:
///
/// ```text
///  "SSHSIG"  string namespace  string reserved  string hash algorithm  string H(file)
/// ```
///
/// A string is encoded as its length in four bytes (big-endian), followed by its bytes.
pub(super) fn message(namespace: &str, reserved: &[u8], bytes: &Bytes) -> Vec<u8> {
    let mut message = b"SSHSIG".to_vec();
    for string in [namespace.as_bytes(), reserved, bytes.algorithm.as_str().as_bytes(), &bytes.digest] {
        // Namespace and reserved bytes come from a file of limited size.
        message.extend_from_slice(&(string.len() as u32).to_be_bytes());
        message.extend_from_slice(string);
    }
    message
}

/// Checks if a signature covers the file up to the start of a later section. Returns the number of
/// covered sections and bytes.
pub(super) fn first_sections(
    path: &OsStr,
    algorithm: HashAlg,
    covers: &dyn Fn(&Bytes) -> bool,
) -> Result<Option<(u64, u64)>, SignatureError> {
    let (mut context, mut file) = (context(algorithm), open(path)?);
    let (mut sections, mut at, mut line) = (0, 0, Vec::new());
    let mut starts_line = true;
    loop {
        line.clear();
        // Bound the read: a file may have no line feeds.
        let mut part = file.by_ref().take(READ_BYTES as u64);
        let len = part.read_until(b'\n', &mut line).map_err(|source| unread(path, source))?;
        if len == 0 {
            return Ok(None);
        }
        if starts_line && line.starts_with(SECTION) {
            if sections > 0 && covers(&Bytes::from(algorithm, &context)) {
                return Ok(Some((sections, at)));
            }
            sections += 1;
        }
        context.update(&line);
        at += len as u64;
        starts_line = line.ends_with(b"\n");
    }
}

fn context(algorithm: HashAlg) -> Context {
    // The format allows only these two algorithms.
    Context::new(if algorithm == HashAlg::Sha256 { &SHA256 } else { &SHA512 })
}

fn open(path: &OsStr) -> Result<BufReader<File>, SignatureError> {
    let file = File::open(path).map_err(|source| unread(path, source))?;
    Ok(BufReader::with_capacity(READ_BYTES, file))
}

fn unread(path: &OsStr, source: std::io::Error) -> SignatureError {
    SignatureError::File { action: "read the waybill", path: path.to_owned(), source }
}
