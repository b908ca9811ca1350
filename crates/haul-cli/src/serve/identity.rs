//! Certificate and key of a server in one file (PEM) that no other user may read.

use crate::remote::ticket::write_secret;
use haul_engine::copy::quote;
use haul_engine::sum::reason;
use haul_net::Identity;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use zeroize::Zeroizing;

/// Read limit for the file, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;

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
            Identity::from_pem(&text)
                .map_err(|why| format!("cannot use the identity in {}: {why}", quote(file.as_os_str())))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let identity = Identity::generate().map_err(|error| error.to_string())?;
            write_secret(file, identity.to_pem().as_bytes()).map_err(|error| {
                format!("cannot write the identity to {}: {}", quote(file.as_os_str()), reason(&error))
            })?;
            Ok(identity)
        }
        Err(error) => Err(failed(error)),
    }
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
