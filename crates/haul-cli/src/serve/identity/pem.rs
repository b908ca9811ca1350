//! Text of an identity (PEM). This module uses nothing else of the program, so that a fuzzer can
//! include it alone.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use haul_net::Identity;
use zeroize::Zeroizing;

const CERTIFICATE: &str = "CERTIFICATE";
const KEY: &str = "PRIVATE KEY";

/// Characters per line of PEM (RFC 7468 section 2).
const LINE: usize = 64;

/// Returns the text of the file.
pub(crate) fn to_pem(identity: &Identity) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(4096));
    for (label, bytes) in [(CERTIFICATE, identity.certificate_der()), (KEY, identity.key_der())] {
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

/// Parses the text of the file. The error is a message.
pub(crate) fn parse(text: &str) -> Result<Identity, String> {
    let section = |label: &str| {
        let begin = format!("-----BEGIN {label}-----");
        let (_, rest) = text.split_once(&begin)?;
        let (body, _) = rest.split_once(&format!("-----END {label}-----"))?;
        let bare: Zeroizing<String> = Zeroizing::new(body.chars().filter(|c| !c.is_whitespace()).collect());
        STANDARD.decode(bare.as_bytes()).ok().map(Zeroizing::new)
    };
    let none = |label: &str| {
        format!("no {label} found; remove the file to create a new identity, and issue new tickets")
    };
    let certificate = section(CERTIFICATE).ok_or_else(|| none(CERTIFICATE))?;
    let key = section(KEY).ok_or_else(|| none(KEY))?;
    Identity::from_stored(certificate.to_vec(), key).map_err(|error| error.to_string())
}

/// Checks for any bytes that they are an identity, or refused with a reason, and that an accepted
/// identity is the same after it is written and read again.
#[cfg_attr(not(test), allow(dead_code, reason = "for the tests here and the fuzzer beside the workspace"))]
pub(crate) fn any(bytes: &[u8]) {
    match parse(&String::from_utf8_lossy(bytes)) {
        Ok(identity) => {
            let again = parse(&to_pem(&identity)).expect("its own text is understood");
            assert_eq!(again.fingerprint(), identity.fingerprint());
        }
        Err(why) => assert!(!why.is_empty()),
    }
}
