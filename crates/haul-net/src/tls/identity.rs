//! A server's certificate and key, and the fingerprint that clients know them by.

use aws_lc_rs::{constant_time, digest};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::fmt;
use zeroize::Zeroizing;

/// Bytes of a fingerprint.
pub const FINGERPRINT_BYTES: usize = 32;

/// SHA-256 of a certificate (its DER).
#[derive(Clone, Copy)]
pub struct Fingerprint(pub [u8; FINGERPRINT_BYTES]);

/// A server's certificate, signed by its own key (ECDSA on P-256). Nothing in it is looked at but its bytes and its key:
/// names and dates say nothing, the ticket does.
pub struct Identity {
    certificate: CertificateDer<'static>,
    /// PKCS #8.
    key: Zeroizing<Vec<u8>>,
}

impl Fingerprint {
    /// The fingerprint of a certificate.
    pub(super) fn of(certificate: &[u8]) -> Self {
        let mut bytes = [0; FINGERPRINT_BYTES];
        bytes.copy_from_slice(digest::digest(&digest::SHA256, certificate).as_ref());
        Self(bytes)
    }
}

impl Identity {
    /// A new key and its certificate.
    ///
    /// # Errors
    /// [`IdentityError::NotMade`].
    pub fn generate() -> Result<Self, IdentityError> {
        let not_made = |error: rcgen::Error| IdentityError::NotMade(error.to_string());
        let key = KeyPair::generate().map_err(not_made)?;
        let mut params = CertificateParams::new(["haul.invalid".to_owned()]).map_err(not_made)?;
        params.distinguished_name = DistinguishedName::new();
        let certificate = params.self_signed(&key).map_err(not_made)?;
        Ok(Self { certificate: certificate.der().clone(), key: Zeroizing::new(key.serialize_der()) })
    }

    /// The identity that was stored as these two, so that lasting tickets outlive the server's process.
    ///
    /// # Errors
    /// [`IdentityError::NotAPair`] where they do not belong together or are none.
    pub fn from_stored(certificate: Vec<u8>, key: Zeroizing<Vec<u8>>) -> Result<Self, IdentityError> {
        let identity = Self { certificate: certificate.into(), key };
        super::server_config(&identity).map_err(|error| IdentityError::NotAPair(error.to_string()))?;
        Ok(identity)
    }

    /// The certificate (DER), to be stored. It is public.
    pub fn certificate_der(&self) -> &[u8] {
        &self.certificate
    }

    /// The key (PKCS #8), to be stored where nobody else reads it.
    pub fn key_der(&self) -> &[u8] {
        &self.key
    }

    /// What clients know it by.
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

/// Why there is no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The key or the certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    NotMade(String),
    /// What was stored is damaged or of two identities.
    #[error(
        "the stored certificate and key do not belong together ({0}); remove both to have new ones made, and issue new tickets"
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
    fn a_strangers_key_is_refused() {
        let (one, two) = (Identity::generate().expect("one"), Identity::generate().expect("two"));
        let key = Zeroizing::new(two.key_der().to_vec());
        let mixed = Identity::from_stored(one.certificate_der().to_vec(), key);
        assert!(matches!(mixed, Err(IdentityError::NotAPair(_))), "{mixed:?}");
        let none = Identity::from_stored(vec![1, 2, 3], Zeroizing::new(vec![4, 5, 6]));
        assert!(matches!(none, Err(IdentityError::NotAPair(_))), "{none:?}");
    }
}
