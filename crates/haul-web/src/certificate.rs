//! Certificate of the web server: one that the user provides and renews, or a self-signed one that
//! the server renews.

use aws_lc_rs::digest::{SHA256, digest};
use haul_net::{Identity, IdentityError};
use haul_storage::{Durability, Replacement, Writers, replace_path};
use parking_lot::RwLock;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError as Invalid, RootCertStore};
use std::fmt;
use std::fs::{self, DirBuilder, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use zeroize::Zeroizing;

/// Validity of a self-signed certificate. Browsers accept a certificate by its hash for
/// WebTransport only if it is valid for at most 14 days.
const VALIDITY: Duration = Duration::from_secs(13 * 86_400);

/// Time by which the validity starts earlier, for clients whose clock is late.
const EARLIER: Duration = Duration::from_secs(3600);

/// Remaining validity at which a self-signed certificate is renewed.
const RENEW_BEFORE: Duration = Duration::from_secs(2 * 86_400);

/// Time in seconds since the epoch at which each certificate has expired: 1 January 10000.
const NEVER: u64 = 253_402_300_800;

/// Size limit of files with certificates and keys, in bytes.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// First words of the file of a self-signed certificate. The expiry and the names follow.
const HEAD: &str = "# self-signed certificate of haul serve --web, valid until";

/// Certificate of a web server.
pub enum CertificateSource {
    /// A certificate with its chain, and its key.
    Given(GivenCertificate),
    /// A self-signed certificate for these names, kept in a file if there is one.
    SelfSigned {
        /// File of the certificate and its key, created if it is missing.
        file: Option<PathBuf>,
        /// Names and addresses of the server.
        names: Vec<String>,
    },
}

/// A certificate that the user provides. It is read before the server changes its user.
pub struct GivenCertificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    files: GivenFiles,
}

/// Files of a certificate and its key, in PEM.
#[derive(Clone)]
struct GivenFiles {
    certificate: PathBuf,
    key: PathBuf,
    /// False if a file cannot be read again, such as a pipe.
    are_regular: bool,
}

/// Reason for a failure with a certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Reason for the failure.
        source: io::Error,
    },
    /// A file does not contain what it should.
    #[error("cannot use {}: no {expected} in PEM found", .file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// Missing content.
        expected: &'static str,
    },
    /// The key file is readable by other users.
    #[error("refusing to use the key in {}: other users can read it; run 'chmod 600' on it", .0.display())]
    Open(PathBuf),
    /// The certificate and the key cannot be used together.
    #[error("cannot use the certificate: {0}")]
    NotUsable(String),
    /// The key belongs to another certificate.
    #[error("the key in {} does not belong to the certificate; replace both files", .0.display())]
    Mismatch(PathBuf),
    /// A changed certificate cannot be used.
    #[error(
        "cannot renew the certificate from {}: {source}; the earlier one stays in use, and the files are read again",
        .file.display()
    )]
    NotRenewed {
        /// File of the certificate.
        file: PathBuf,
        /// Reason for the failure.
        source: Box<CertificateError>,
    },
    /// The certificate is not valid any more.
    #[error(
        "the certificate expired {0} days ago; renew it, or leave out --web-cert to use a self-signed one"
    )]
    Expired(u64),
    /// The certificate is not valid yet.
    #[error("the certificate is not valid for {0} more days; check the clock of this host")]
    NotYetValid(u64),
    /// A certificate could not be created.
    #[error(transparent)]
    NotMade(#[from] IdentityError),
}

impl GivenCertificate {
    /// Reads a certificate with its chain from `certificate`, and its key from `key`, both in PEM.
    ///
    /// # Errors
    /// Returns a [`CertificateError`] if a file cannot be read, has other contents, or if other
    /// users can read the key.
    pub fn read(certificate: &Path, key: &Path) -> Result<GivenCertificate, CertificateError> {
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        GivenFiles { certificate, key, are_regular: true }.read()
    }
}

impl GivenFiles {
    fn read(&self) -> Result<GivenCertificate, CertificateError> {
        let content = |file: &Path, expected| CertificateError::Content { file: file.to_owned(), expected };
        let (bytes, facts) = read(&self.certificate)?;
        let chain = CertificateDer::pem_slice_iter(&bytes)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| content(&self.certificate, "certificate"))?;
        if chain.is_empty() {
            return Err(content(&self.certificate, "certificate"));
        }
        let (bytes, of_key) = read(&self.key)?;
        if of_key.mode() & 0o077 != 0 {
            return Err(CertificateError::Open(self.key.clone()));
        }
        let key = PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| content(&self.key, "private key"))?;
        let are_regular = facts.is_file() && of_key.is_file();
        Ok(GivenCertificate { chain, key, files: GivenFiles { are_regular, ..self.clone() } })
    }
}

impl GivenCertificate {
    fn usable(self, now: SystemTime) -> Result<Current, CertificateError> {
        let current = usable(self.chain, self.key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => CertificateError::Mismatch(self.files.key),
            error => CertificateError::NotUsable(error.to_string()),
        })?;
        check_validity(&current.key, now)?;
        Ok(current)
    }
}

/// Returns the contents of a file and its facts.
fn read(file: &Path) -> Result<(Vec<u8>, Metadata), CertificateError> {
    let failed = |source| CertificateError::Read { file: file.to_owned(), source };
    let opened = fs::File::open(file).map_err(failed)?;
    let facts = opened.metadata().map_err(failed)?;
    let mut bytes = Vec::new();
    opened.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok((bytes, facts))
}

/// The current certificate. The TLS handshakes of the server use it.
pub(crate) struct CertificateStore {
    source: Source,
    current: RwLock<Current>,
}

enum Source {
    Given(GivenFiles),
    SelfSigned { file: Option<PathBuf>, names: Vec<String> },
}

#[derive(Clone)]
struct Current {
    key: Arc<CertifiedKey>,
    /// SHA-256 of the certificate (DER).
    sha256: [u8; 32],
    expires: SystemTime,
}

/// A self-signed certificate.
struct Made {
    identity: Identity,
    expires: SystemTime,
}

impl CertificateStore {
    /// Loads or creates the certificate. Also returns the reason if a new one could not be kept.
    pub(crate) fn open(
        source: CertificateSource,
        now: SystemTime,
    ) -> Result<(CertificateStore, Option<String>), CertificateError> {
        match source {
            CertificateSource::Given(given) => {
                let source = Source::Given(given.files.clone());
                Ok((CertificateStore { source, current: RwLock::new(given.usable(now)?) }, None))
            }
            CertificateSource::SelfSigned { file, names } => {
                let kept = file.as_deref().and_then(|file| kept(file, &names, now));
                let (made, note) = match kept {
                    Some(made) => (made, None),
                    None => make_and_keep(file.as_deref(), &names, now)?,
                };
                let current = RwLock::new(made.usable()?);
                Ok((CertificateStore { source: Source::SelfSigned { file, names }, current }, note))
            }
        }
    }

    /// Uses the certificate of the user that is in its files now, or renews a self-signed one that
    /// expires soon. Returns true if the certificate changed, and the reason if a new self-signed
    /// one could not be kept.
    ///
    /// # Errors
    /// Returns the reason if the certificate in the files cannot be used. The earlier one stays.
    pub(crate) fn renew(&self, now: SystemTime) -> Result<(bool, Option<String>), CertificateError> {
        let (renewed, note) = match &self.source {
            Source::Given(files) if !files.are_regular => return Ok((false, None)),
            Source::Given(files) => {
                let read = files.read().and_then(|given| given.usable(now));
                let read = read.map_err(|error| CertificateError::NotRenewed {
                    file: files.certificate.clone(),
                    source: Box::new(error),
                })?;
                if read.key.cert == self.current().key.cert {
                    return Ok((false, None));
                }
                (read, None)
            }
            Source::SelfSigned { file, names } => {
                if now + RENEW_BEFORE < self.current().expires {
                    return Ok((false, None));
                }
                let (made, note) = make_and_keep(file.as_deref(), names, now)?;
                (made.usable()?, note)
            }
        };
        *self.current.write() = renewed;
        Ok((true, note))
    }

    /// Returns the SHA-256 of the certificate as hexadecimal digits.
    pub(crate) fn sha256(&self) -> String {
        hex(&self.current().sha256)
    }

    /// Returns the SHA-256 of a self-signed certificate. Browsers accept such a hash only for a
    /// certificate that is valid for at most two weeks.
    pub(crate) fn pin(&self) -> Option<String> {
        matches!(self.source, Source::SelfSigned { .. }).then(|| self.sha256())
    }

    /// Returns the expiry of the certificate, in seconds since the epoch.
    pub(crate) fn expires(&self) -> u64 {
        seconds(self.current().expires)
    }

    fn current(&self) -> Current {
        self.current.read().clone()
    }
}

impl ResolvesServerCert for CertificateStore {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current().key)
    }
}

impl fmt::Debug for CertificateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CertificateStore({})", self.sha256())
    }
}

impl Made {
    fn new(names: &[String], now: SystemTime) -> Result<Made, CertificateError> {
        let expires = now + VALIDITY - EARLIER;
        let identity = Identity::generate_for(names, "haul serve --web", now - EARLIER..expires)?;
        Ok(Made { identity, expires })
    }

    fn usable(self) -> Result<Current, CertificateError> {
        usable(vec![self.identity.certificate()], self.identity.key())
            .map_err(|error| CertificateError::NotUsable(error.to_string()))
    }

    /// Returns the text of the file.
    fn to_text(&self, names: &[String]) -> Zeroizing<String> {
        let head = format!("{HEAD} {} {}\n", seconds(self.expires), names.join(" "));
        Zeroizing::new(head + &self.identity.to_pem())
    }
}

fn usable(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Current, rustls::Error> {
    aws_lc_rs::init();
    let key = CertifiedKey::new(chain, any_supported_type(&key)?);
    key.keys_match()?;
    let first = key.end_entity_cert()?;
    let mut sha256 = [0; 32];
    sha256.copy_from_slice(digest(&SHA256, first).as_ref());
    let expires = match verify_dates(&key, NEVER) {
        Err(rustls::Error::InvalidCertificate(Invalid::ExpiredContext { not_after, .. })) => {
            not_after.as_secs()
        }
        _ => NEVER,
    };
    let expires = SystemTime::UNIX_EPOCH + Duration::from_secs(expires);
    Ok(Current { key: Arc::new(key), sha256, expires })
}

/// Compares the dates of the certificate with `time`, in seconds since the epoch. Each certificate
/// fails, and an error of the dates comes before that of the missing root.
fn verify_dates(key: &CertifiedKey, time: u64) -> Result<(), rustls::Error> {
    verify_server_cert_signed_by_trust_anchor(
        &ParsedCertificate::try_from(key.end_entity_cert()?)?,
        &RootCertStore::empty(),
        &[],
        UnixTime::since_unix_epoch(Duration::from_secs(time)),
        default_provider().signature_verification_algorithms.all,
    )
}

/// Fails if the certificate has expired, or is not valid yet.
fn check_validity(key: &CertifiedKey, now: SystemTime) -> Result<(), CertificateError> {
    let days = |from: u64, to: u64| to.saturating_sub(from) / 86_400;
    match verify_dates(key, seconds(now)) {
        Err(rustls::Error::InvalidCertificate(Invalid::ExpiredContext { not_after, .. })) => {
            Err(CertificateError::Expired(days(not_after.as_secs(), seconds(now))))
        }
        Err(rustls::Error::InvalidCertificate(Invalid::NotValidYetContext { not_before, .. })) => {
            Err(CertificateError::NotYetValid(days(seconds(now), not_before.as_secs())))
        }
        _ => Ok(()),
    }
}

/// Returns the certificate in `file` if it is private, for these names, and does not expire soon.
/// Any other file is replaced, because it is this program's own.
fn kept(file: &Path, names: &[String], now: SystemTime) -> Option<Made> {
    let (bytes, facts) = read(file).ok()?;
    let text = std::str::from_utf8(&bytes).ok()?;
    let mut words = text.lines().next()?.strip_prefix(HEAD)?.split_ascii_whitespace();
    let expires = SystemTime::UNIX_EPOCH + Duration::from_secs(words.next()?.parse().ok()?);
    let is_current = now + RENEW_BEFORE < expires && expires <= now + VALIDITY;
    if facts.mode() & 0o077 != 0 || !is_current || !words.eq(names.iter().map(String::as_str)) {
        return None;
    }
    Some(Made { identity: Identity::from_pem(text).ok()?, expires })
}

fn make_and_keep(
    file: Option<&Path>,
    names: &[String],
    now: SystemTime,
) -> Result<(Made, Option<String>), CertificateError> {
    let made = Made::new(names, now)?;
    let kept = file.map_or(Ok(()), |file| {
        keep(file, made.to_text(names).as_bytes())
            .map_err(|error| format!("cannot keep the certificate in {}: {error}", file.display()))
    });
    Ok((made, kept.err()))
}

/// Replaces `file` by a file that only its owner can read. Creates its directory.
fn keep(file: &Path, text: &[u8]) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    // A file that a power failure destroys is made again.
    let private = Replacement::private(Writers::Many, Durability::None);
    replace_path(file, private, |out| out.write_all(text))
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Returns the hexadecimal digits of `bytes`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn open(file: &Path, names: &[&str], now: SystemTime) -> CertificateStore {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let source = CertificateSource::SelfSigned { file: Some(file.to_owned()), names };
        let (store, note) = CertificateStore::open(source, now).expect("a certificate");
        assert_eq!(note, None);
        store
    }

    #[test]
    fn a_self_signed_certificate_is_kept_until_it_expires_soon() {
        let home = tempfile::tempdir().expect("a folder");
        let file = home.path().join("web/certificate.pem");
        let made = open(&file, &["localhost"], now());
        assert_eq!(fs::metadata(&file).expect("kept").mode() & 0o777, 0o600);
        let later = now() + VALIDITY - RENEW_BEFORE - 2 * EARLIER;
        assert_eq!(open(&file, &["localhost"], later).sha256(), made.sha256());
        assert!(!made.renew(later).expect("valid").0);
        let late = later + 2 * EARLIER;
        assert!(made.renew(late).expect("renewed").0);
        let renewed = made.sha256();
        assert_eq!(open(&file, &["localhost"], late).sha256(), renewed, "the new one is kept");
        assert!(!made.renew(late).expect("valid").0);
        // Other names need another certificate.
        assert_ne!(open(&file, &["localhost", "host"], late).sha256(), renewed);
    }

    #[test]
    fn a_certificate_that_others_can_read_or_change_is_replaced() {
        let home = tempfile::tempdir().expect("a folder");
        let file = home.path().join("certificate.pem");
        let made = open(&file, &["localhost"], now()).sha256();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("set");
        let second = open(&file, &["localhost"], now()).sha256();
        assert_ne!(made, second);
        let text = fs::read_to_string(&file).expect("read");
        for damaged in [text.replace("PRIVATE", "PUBLIC"), text.replace("until 1", "until 9"), String::new()]
        {
            fs::write(&file, damaged).expect("written");
            assert_ne!(open(&file, &["localhost"], now()).sha256(), second);
        }
    }

    #[test]
    fn validity_is_at_most_thirteen_days() {
        let made = Made::new(&["127.0.0.1".to_owned()], now()).expect("made");
        assert_eq!(made.expires + EARLIER, now() + VALIDITY);
        let expires = made.expires;
        // Two UTCTime values (tag 23, 13 characters) are the validity of an X.509 certificate.
        let certificate = made.identity.certificate();
        let times: Vec<&[u8]> =
            certificate.windows(15).filter(|at| at[..2] == [23, 13] && at[14] == b'Z').collect();
        let said = |at: usize| std::str::from_utf8(&times[at][2..]).expect("ASCII");
        assert_eq!((said(0), said(1)), ("270115070000Z", "270128070000Z"));
        assert_eq!(made.usable().expect("usable").expires, expires);
    }

    #[test]
    fn a_given_certificate_needs_its_own_private_key_and_the_right_time() {
        let home = tempfile::tempdir().expect("a folder");
        let (one, two) = (home.path().join("one.pem"), home.path().join("two.pem"));
        for file in [&one, &two] {
            open(file, &["localhost"], now());
        }
        let usable = |certificate: &Path, key: &Path| {
            let given = GivenCertificate::read(certificate, key)?;
            CertificateStore::open(CertificateSource::Given(given), now()).map(|(store, _)| store)
        };
        let store = usable(&one, &one).expect("a pair");
        for (time, text) in [
            (now() + VALIDITY + 2 * Duration::from_secs(86_400), "expired 2 days ago; renew it"),
            (now() - 3 * Duration::from_secs(86_400), "not valid for 2 more days; check the clock"),
        ] {
            let given = GivenCertificate::read(&one, &one).expect("a pair");
            let refused = CertificateStore::open(CertificateSource::Given(given), time).expect_err("dates");
            assert!(refused.to_string().contains(text), "{refused}");
        }
        let expired = store.renew(now() + VALIDITY).expect_err("expired").to_string();
        assert!(expired.contains("one.pem: the certificate expired 0 days ago; renew it"), "{expired}");
        assert!(matches!(usable(&one, &two), Err(CertificateError::Mismatch(_))));
        fs::set_permissions(&one, Permissions::from_mode(0o640)).expect("set");
        assert!(matches!(usable(&one, &one), Err(CertificateError::Open(_))));
        let empty = home.path().join("empty");
        fs::write(&empty, "").expect("written");
        assert!(matches!(usable(&empty, &two), Err(CertificateError::Content { .. })));
        let absent = usable(&home.path().join("absent"), &two).expect_err("absent").to_string();
        assert!(absent.contains("absent") && absent.contains("No such file"), "{absent}");
    }

    #[test]
    fn a_given_certificate_is_replaced_only_by_a_usable_pair() {
        let home = tempfile::tempdir().expect("a folder");
        let pem = |name: &str| {
            let made = home.path().join(name);
            open(&made, &["localhost"], now());
            fs::read(made).expect("read")
        };
        let (old, new) = (pem("old"), pem("new"));
        let (certificate, key) = (home.path().join("certificate"), home.path().join("key"));
        let put = |file: &Path, text: &[u8]| {
            let _ = fs::remove_file(file);
            keep(file, text).expect("written");
        };
        put(&certificate, &old);
        put(&key, &old);
        let given = GivenCertificate::read(&certificate, &key).expect("a pair");
        let store = CertificateStore::open(CertificateSource::Given(given), now()).expect("usable").0;
        let first = store.sha256();
        assert!(!store.renew(now()).expect("unchanged").0);
        // A renewer replaces the files one after the other.
        put(&certificate, &new);
        let refused = |words: &str| {
            let why = store.renew(now()).expect_err("refused").to_string();
            assert!(why.contains("certificate: ") && why.contains(words), "{why}");
            assert_eq!(store.sha256(), first);
        };
        refused("key does not belong to the certificate; replace both files");
        put(&certificate, b"");
        refused("no certificate in PEM found");
        fs::remove_file(&certificate).expect("removed");
        refused("No such file");
        put(&certificate, &new);
        put(&key, &new);
        fs::set_permissions(&key, Permissions::from_mode(0o644)).expect("set");
        refused("chmod 600");
        fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("set");
        assert!(store.renew(now()).expect("renewed").0);
        assert_ne!(store.sha256(), first);
        assert!(!store.renew(now()).expect("unchanged").0);
        assert_eq!(store.pin(), None);
    }
}
