//! Certificate and key of a server, of its lanes or of its page, and the fingerprint by which
//! clients identify them.

use aws_lc_rs::{constant_time, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::fmt;
use std::ops::Range;
use std::time::SystemTime;
use zeroize::Zeroizing;

/// Size in bytes of a fingerprint.
pub const FINGERPRINT_BYTES: usize = 32;

/// Labels of the certificate and the key in PEM.
const CERTIFICATE: &str = "CERTIFICATE";
const KEY: &str = "PRIVATE KEY";

/// Characters per line of PEM (RFC 7468 section 2).
const LINE: usize = 64;

/// SHA-256 of a certificate (its DER).
#[derive(Clone, Copy)]
pub struct Fingerprint(pub [u8; FINGERPRINT_BYTES]);

/// Certificate of a server, signed by its own key (ECDSA on P-256).
pub struct Identity {
    certificate: CertificateDer<'static>,
    /// Private key (PKCS #8).
    key: Zeroizing<Vec<u8>>,
}

impl Fingerprint {
    /// Returns the fingerprint of a certificate.
    pub(super) fn of(certificate: &[u8]) -> Self {
        let mut bytes = [0; FINGERPRINT_BYTES];
        bytes.copy_from_slice(digest::digest(&digest::SHA256, certificate).as_ref());
        Self(bytes)
    }
}

impl Identity {
    /// Generates a key and its certificate for lanes. Clients check only its bytes and its key.
    /// Names and dates in it have no meaning; the ticket states them instead.
    ///
    /// # Errors
    /// Returns [`IdentityError::NotMade`] if the key or the certificate cannot be created.
    pub fn generate() -> Result<Self, IdentityError> {
        Self::signed(&["haul.invalid".to_owned()], |_| {})
    }

    /// Generates a key and its certificate for clients that check names and dates: valid for the
    /// hosts `names` in the period `valid`, with the subject `subject`.
    ///
    /// # Errors
    /// Returns [`IdentityError::NotMade`] if the key or the certificate cannot be created.
    pub fn generate_for(
        names: &[String],
        subject: impl Into<String>,
        valid: Range<SystemTime>,
    ) -> Result<Self, IdentityError> {
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self::signed(names, |params| {
            params.distinguished_name.push(DnType::CommonName, subject.into());
            params.not_before = epoch + since(valid.start);
            params.not_after = epoch + since(valid.end);
        })
    }

    fn signed(names: &[String], state: impl FnOnce(&mut CertificateParams)) -> Result<Self, IdentityError> {
        let not_made = |error: rcgen::Error| IdentityError::NotMade(error.to_string());
        // The library can be built to detect the CPU only when this function is called.
        aws_lc_rs::init();
        let key = KeyPair::generate().map_err(not_made)?;
        let mut params = CertificateParams::new(names).map_err(not_made)?;
        params.distinguished_name = DistinguishedName::new();
        state(&mut params);
        let certificate = params.self_signed(&key).map_err(not_made)?;
        Ok(Self { certificate: certificate.der().clone(), key: Zeroizing::new(key.serialize_der()) })
    }

    /// Returns the text (PEM) for storage in a place that no other user can read.
    pub fn to_pem(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(4096));
        for (label, bytes) in [(CERTIFICATE, &self.certificate[..]), (KEY, &self.key)] {
            let body = Zeroizing::new(STANDARD.encode(bytes));
            text.push_str(&format!("-----BEGIN {label}-----\n"));
            let mut rest = body.as_str();
            while !rest.is_empty() {
                // Base64 is ASCII.
                let (line, more) = rest.split_at(rest.len().min(LINE));
                text.push_str(line);
                text.push('\n');
                rest = more;
            }
            text.push_str(&format!("-----END {label}-----\n"));
        }
        text
    }

    /// Parses a stored identity, so that lasting tickets stay valid after the server process ends.
    ///
    /// # Errors
    /// Returns [`IdentityError::Missing`] for a text without certificate or key, and
    /// [`IdentityError::NotAPair`] if the two do not belong together.
    pub fn from_pem(text: &str) -> Result<Self, IdentityError> {
        let section = |label: &'static str| {
            let begin = format!("-----BEGIN {label}-----");
            let body = text.split_once(&begin).and_then(|(_, rest)| {
                let (body, _) = rest.split_once(&format!("-----END {label}-----"))?;
                let bare: Zeroizing<String> =
                    Zeroizing::new(body.chars().filter(|c| !c.is_whitespace()).collect());
                STANDARD.decode(bare.as_bytes()).ok().map(Zeroizing::new)
            });
            body.ok_or(IdentityError::Missing(label))
        };
        let identity = Self { certificate: section(CERTIFICATE)?.to_vec().into(), key: section(KEY)? };
        super::server_config(&identity).map_err(|error| IdentityError::NotAPair(error.to_string()))?;
        Ok(identity)
    }

    /// Returns the fingerprint by which clients identify the server.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// Returns the certificate. It is public.
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.clone()
    }

    /// Returns the private key.
    pub fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.to_vec()).into()
    }
}

impl PartialEq for Fingerprint {
    fn eq(&self, other: &Self) -> bool {
        constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl Eq for Fingerprint {}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.fingerprint())
    }
}

/// Error when an identity cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The key or the certificate could not be created.
    #[error("cannot create a certificate: {0}")]
    NotMade(String),
    /// The stored text contains no section with this label.
    #[error("no {0} found; remove the file to create a new identity, and issue new tickets")]
    Missing(&'static str),
    /// The stored data is damaged or belongs to two identities.
    #[error(
        "the stored certificate and key do not match ({0}); remove both to create new ones, and issue new tickets"
    )]
    NotAPair(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_identity_keeps_its_fingerprint() {
        let made = Identity::generate().expect("a certificate");
        let stored = Identity::from_pem(&made.to_pem()).expect("the same");
        assert_eq!(stored.fingerprint(), made.fingerprint());
        assert_ne!(Identity::generate().expect("another").fingerprint(), made.fingerprint());
        assert!(!format!("{made:?}").contains("key"));
    }

    #[test]
    fn key_of_another_certificate_is_refused() {
        let (one, two) = (Identity::generate().expect("one"), Identity::generate().expect("two"));
        let mixed = Identity { certificate: one.certificate(), key: two.key.clone() };
        let mixed = Identity::from_pem(&mixed.to_pem());
        assert!(matches!(mixed, Err(IdentityError::NotAPair(_))), "{mixed:?}");
        let none = Identity { certificate: vec![1, 2, 3].into(), key: Zeroizing::new(vec![4, 5, 6]) };
        let none = Identity::from_pem(&none.to_pem());
        assert!(matches!(none, Err(IdentityError::NotAPair(_))), "{none:?}");
    }

    /// Same check as the fuzzer's, from mutated files.
    #[test]
    fn mutated_identities_are_parsed_or_refused() {
        let text = Identity::generate().expect("made").to_pem();
        haul_lab::random::fuzz(2000, |random| {
            let bytes = random.mutate(text.as_bytes());
            match Identity::from_pem(&String::from_utf8_lossy(&bytes)) {
                Ok(identity) => {
                    let again = Identity::from_pem(&identity.to_pem()).expect("its own text is parsed");
                    assert_eq!(again.fingerprint(), identity.fingerprint());
                }
                Err(why) => assert!(!why.to_string().is_empty()),
            }
        });
    }
}
