//! Certificate and key of a server, and the fingerprint by which clients identify them.

use aws_lc_rs::{constant_time, digest};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::fmt;
use zeroize::Zeroizing;

/// Size in bytes of a fingerprint.
pub const FINGERPRINT_BYTES: usize = 32;

/// SHA-256 of a certificate (its DER).
#[derive(Clone, Copy)]
pub struct Fingerprint(pub [u8; FINGERPRINT_BYTES]);

/// Certificate of a server, signed by its own key (ECDSA on P-256). Clients check only its bytes
/// and its key. Names and dates in it have no meaning; the ticket states them instead.
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
    /// Generates a key and its certificate.
    ///
    /// # Errors
    /// Returns [`IdentityError::NotMade`] if the key or the certificate cannot be created.
    pub fn generate() -> Result<Self, IdentityError> {
        let not_made = |error: rcgen::Error| IdentityError::NotMade(error.to_string());
        let key = KeyPair::generate().map_err(not_made)?;
        let mut params = CertificateParams::new(["haul.invalid".to_owned()]).map_err(not_made)?;
        params.distinguished_name = DistinguishedName::new();
        let certificate = params.self_signed(&key).map_err(not_made)?;
        Ok(Self { certificate: certificate.der().clone(), key: Zeroizing::new(key.serialize_der()) })
    }

    /// Restores a stored identity, so that lasting tickets stay valid after the server process
    /// ends.
    ///
    /// # Errors
    /// Returns [`IdentityError::NotAPair`] if the two do not belong together, or are not a
    /// certificate and a key.
    pub fn from_stored(certificate: Vec<u8>, key: Zeroizing<Vec<u8>>) -> Result<Self, IdentityError> {
        let identity = Self { certificate: certificate.into(), key };
        super::server_config(&identity).map_err(|error| IdentityError::NotAPair(error.to_string()))?;
        Ok(identity)
    }

    /// Returns the certificate (DER) for storage. It is public.
    pub fn certificate_der(&self) -> &[u8] {
        &self.certificate
    }

    /// Returns the key (PKCS #8) for storage in a place that no other user can read.
    pub fn key_der(&self) -> &[u8] {
        &self.key
    }

    /// Returns the fingerprint by which clients identify the server.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    pub(super) fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.clone()
    }

    pub(super) fn key(&self) -> PrivateKeyDer<'static> {
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
        let key = Zeroizing::new(made.key_der().to_vec());
        let stored = Identity::from_stored(made.certificate_der().to_vec(), key).expect("the same");
        assert_eq!(stored.fingerprint(), made.fingerprint());
        assert_ne!(Identity::generate().expect("another").fingerprint(), made.fingerprint());
        assert!(!format!("{made:?}").contains("key"));
    }

    #[test]
    fn key_of_another_certificate_is_refused() {
        let (one, two) = (Identity::generate().expect("one"), Identity::generate().expect("two"));
        let key = Zeroizing::new(two.key_der().to_vec());
        let mixed = Identity::from_stored(one.certificate_der().to_vec(), key);
        assert!(matches!(mixed, Err(IdentityError::NotAPair(_))), "{mixed:?}");
        let none = Identity::from_stored(vec![1, 2, 3], Zeroizing::new(vec![4, 5, 6]));
        assert!(matches!(none, Err(IdentityError::NotAPair(_))), "{none:?}");
    }
}
