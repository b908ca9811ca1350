//! TLS 1.3 for lanes: one certificate per server, which the client identifies by its fingerprint.
//! There are no names, no certificate authorities, no session tickets and no early data.

mod channel;
mod identity;
mod pinned;

pub(crate) use channel::{Channel, Inlet, handshake};
pub use identity::{FINGERPRINT_BYTES, Fingerprint, Identity, IdentityError};
pub(crate) use pinned::WrongFingerprint;

use crate::secret::{BINDING_BYTES, Binding};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::{CipherSuite, ClientConfig, Connection, ServerConfig, SupportedCipherSuite};
use std::sync::Arc;

/// Protocol name for ALPN (RFC 7301): a connection meant for another protocol ends in the
/// handshake.
const PROTOCOL: &[u8] = b"haul/1";

/// Name of the protocol of lanes over QUIC.
const QUIC_PROTOCOL: &[u8] = b"haul-quic/1";

/// Label of the exporter value to which a proof is bound (RFC 8446 section 7.5).
const EXPORTER: &[u8] = b"EXPORTER-haul-lane-1";

/// Returns the TLS configuration of a client for the server with this certificate.
pub(crate) fn client_config(fingerprint: Fingerprint) -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = provider(has_fast_aes());
    let verifier = Arc::new(pinned::Pinned::new(fingerprint, &provider));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(Arc::new(config))
}

/// Returns the TLS configuration of a server with this certificate.
pub(crate) fn server_config(identity: &Identity) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(provider(has_fast_aes()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate()], identity.key())?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // A client that only sends would close with unread session tickets. This resets the connection
    // and loses the last bytes that the client sent.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    // The preference of the client applies, unless this end lacks instructions for AES.
    config.ignore_client_order = !has_fast_aes();
    Ok(Arc::new(config))
}

/// Returns the TLS configuration of a web server whose certificate `resolver` chooses: TLS 1.3,
/// with HTTP/2 and HTTP/1.1 by ALPN. Browsers are the clients, so no fingerprint is compared. Each
/// connection makes a whole handshake: a resumed one would have the certificate of an earlier time.
///
/// # Errors
/// Returns the error of the TLS library.
pub fn https_config(resolver: Arc<dyn ResolvesServerCert>) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(provider(has_fast_aes()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ignore_client_order = !has_fast_aes();
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Returns the configuration of the handshake of QUIC of a client with `config` for TCP.
pub(crate) fn quic_client_config(config: &ClientConfig) -> ClientConfig {
    let mut config = config.clone();
    config.alpn_protocols = vec![QUIC_PROTOCOL.to_vec()];
    config
}

/// Returns the configuration of the handshake of QUIC of a server with `config` for TCP.
pub(crate) fn quic_server_config(config: &ServerConfig) -> ServerConfig {
    let mut config = config.clone();
    config.alpn_protocols = vec![QUIC_PROTOCOL.to_vec()];
    config
}

/// Returns the value that binds proofs to this connection.
pub(crate) fn binding(connection: &Connection) -> Result<Binding, rustls::Error> {
    connection.export_keying_material([0; BINDING_BYTES], EXPORTER, None).map(Binding)
}

/// Returns true if the peer negotiated the protocol of haul; ALPN is optional in TLS.
pub(crate) fn is_haul(connection: &Connection) -> bool {
    connection.alpn_protocol() == Some(PROTOCOL)
}

/// Returns the cryptography provider.
///
/// AES-128-GCM comes first if the CPU has instructions for AES, where it is the fastest: 12.8
/// Gbit/s on one core, compared with 10.4 for AES-256-GCM and 3.6 for ChaCha20-Poly1305. Without
/// them ChaCha20-Poly1305 comes first. The hybrid key exchange comes first, so that a later quantum
/// computer cannot decrypt recorded traffic.
fn provider(fast_aes: bool) -> Arc<CryptoProvider> {
    // The library can be built to detect the CPU only when this function is called.
    ::aws_lc_rs::init();
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites = cipher_suites(fast_aes);
    provider.kx_groups = vec![aws_lc_rs::kx_group::X25519MLKEM768, aws_lc_rs::kx_group::X25519];
    Arc::new(provider)
}

fn cipher_suites(fast_aes: bool) -> Vec<SupportedCipherSuite> {
    use aws_lc_rs::cipher_suite::{
        TLS13_AES_128_GCM_SHA256 as AES_128, TLS13_AES_256_GCM_SHA384 as AES_256,
        TLS13_CHACHA20_POLY1305_SHA256 as CHACHA,
    };
    if fast_aes { vec![AES_128, AES_256, CHACHA] } else { vec![CHACHA, AES_128, AES_256] }
}

/// Returns true if this CPU has instructions for AES and for the multiplication of GCM.
fn has_fast_aes() -> bool {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    return std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// Returns the name of the cipher suite for reports.
pub(crate) fn cipher_name(connection: &Connection) -> &'static str {
    match connection.negotiated_cipher_suite().map(|suite| suite.suite()) {
        Some(CipherSuite::TLS13_AES_128_GCM_SHA256) => "AES-128-GCM",
        Some(CipherSuite::TLS13_AES_256_GCM_SHA384) => "AES-256-GCM",
        Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256) => "ChaCha20-Poly1305",
        _ => "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferred_cipher_depends_on_cpu_support() {
        let first = |fast| cipher_suites(fast)[0].suite();
        assert_eq!(first(true), CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert_eq!(first(false), CipherSuite::TLS13_CHACHA20_POLY1305_SHA256);
        assert_eq!(cipher_suites(true).len(), cipher_suites(false).len());
    }

    #[test]
    fn servers_send_no_session_tickets() {
        let identity = Identity::generate().expect("a certificate");
        let config = server_config(&identity).expect("a configuration");
        assert_eq!(config.send_tls13_tickets, 0);
        assert_eq!(config.max_early_data_size, 0);
    }
}
