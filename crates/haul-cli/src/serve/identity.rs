//! Certificate and key of a server in one file (PEM) that no other user may read.

use crate::remote::ticket::write_secret;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use haul_engine::copy::quote;
use haul_engine::sum::reason;
use haul_net::Identity;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use zeroize::Zeroizing;

const CERTIFICATE: &str = "CERTIFICATE";
const KEY: &str = "PRIVATE KEY";

/// Read limit for the file, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Characters per line of PEM (RFC 7468 section 2).
const LINE: usize = 64;

/// Reads the identity in `file`, or creates the file. The error is a message.
pub(super) fn load(file: &Path) -> Result<Identity, String> {
    let failed = |error: io::Error| {
        format!("cannot read the identity in {}: {}", quote(file.as_os_str()), reason(&error))
    };
    match File::open(file) {
        Ok(mut opened) => {
            if opened.metadata().map_err(failed)?.mode() & 0o077 != 0 {
                return Err(format!(
                    "refusing to use the key in {}: other users can read it; run 'chmod 600' on it, or remove it to create a new one",
                    quote(file.as_os_str())
                ));
            }
            let mut text = Zeroizing::new(String::new());
            Read::by_ref(&mut opened).take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
            parse(&text)
                .map_err(|why| format!("cannot use the identity in {}: {why}", quote(file.as_os_str())))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let identity = Identity::generate().map_err(|error| error.to_string())?;
            write_secret(file, to_pem(&identity).as_bytes()).map_err(|error| {
                format!("cannot write the identity to {}: {}", quote(file.as_os_str()), reason(&error))
            })?;
            Ok(identity)
        }
        Err(error) => Err(failed(error)),
    }
}

fn to_pem(identity: &Identity) -> Zeroizing<String> {
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

fn parse(text: &str) -> Result<Identity, String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_identity_is_created_once_and_private() {
        let home = tempfile::tempdir().expect("a folder");
        let file = home.path().join("identity.pem");
        let made = load(&file).expect("made");
        assert_eq!(std::fs::metadata(&file).expect("there").mode() & 0o777, 0o600);
        assert_eq!(load(&file).expect("kept").fingerprint(), made.fingerprint());
        std::fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("set");
        assert!(load(&file).expect_err("open to others").contains("chmod 600"));
    }

    #[test]
    fn a_damaged_identity_is_refused_and_not_replaced() {
        let home = tempfile::tempdir().expect("a folder");
        let file = home.path().join("identity.pem");
        load(&file).expect("made");
        let text = std::fs::read_to_string(&file).expect("read");
        for damaged in [text.replace("CERTIFICATE", "CERT"), text.replacen("M", "!", 1), String::new()] {
            std::fs::write(&file, &damaged).expect("written");
            assert!(load(&file).is_err());
            assert_eq!(std::fs::read_to_string(&file).expect("read"), damaged);
        }
    }
}
