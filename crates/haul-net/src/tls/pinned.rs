//! Verifier for the one certificate that a client accepts.

use super::Fingerprint;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use std::sync::Arc;

/// Accepts only the certificate with one fingerprint, and a handshake signature by its key. The
/// certificate alone is not sufficient, because it is public.
#[derive(Debug)]
pub(super) struct Pinned {
    fingerprint: Fingerprint,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Error when the server presents a certificate other than the one in the ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the certificate's fingerprint is {found}, not {expected}")]
pub(crate) struct WrongFingerprint {
    pub(crate) expected: Fingerprint,
    pub(crate) found: Fingerprint,
}

impl Pinned {
    pub(super) fn new(fingerprint: Fingerprint, provider: &CryptoProvider) -> Self {
        Self { fingerprint, algorithms: provider.signature_verification_algorithms }
    }
}

impl WrongFingerprint {
    /// Returns the fingerprints of a failed handshake, if a wrong fingerprint was the cause.
    pub(crate) fn in_error(error: &Error) -> Option<Self> {
        match error {
            Error::InvalidCertificate(CertificateError::Other(other)) => other.0.downcast_ref().copied(),
            _ => None,
        }
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = Fingerprint::of(end_entity);
        if found == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        let wrong = WrongFingerprint { expected: self.fingerprint, found };
        Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(wrong)))))
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(rustls::PeerIncompatible::ServerDoesNotSupportTls12Or13))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
