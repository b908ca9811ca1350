//! Digests in base64, as S3 and `cksum --base64` write them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Encodes bytes, with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes a text; `None` if it is not base64 with padding.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}
