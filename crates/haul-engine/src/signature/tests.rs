//! Tests with signatures that `ssh-keygen -Y sign -n file` of OpenSSH 9.2 created.

use super::*;

/// The signed text; tests append a later section to it.
const SIGNED: &str = "surehaul-waybill 1\nend 1\n";

/// Public keys, each with its signature of [`SIGNED`].
const VECTORS: [(&str, &str); 3] = [
    (
        "ssh-ed25519 \
         AAAAC3NzaC1lZDI1NTE5AAAAIE+efomhh3nk3qU7RnVjAEiXEZpjzV2AKlly5+anDwxH",
        "-----BEGIN SSH SIGNATURE-----
U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAgT55+iaGHeeTepTtGdWMASJcRmm
PNXYAqWXLn5qcPDEcAAAAEZmlsZQAAAAAAAAAGc2hhNTEyAAAAUwAAAAtzc2gtZWQyNTUx
OQAAAECfl2u//Mr+Q5pdnHv4Jc6+q6IwZMGf2QPyEA7qUj8zJwq77nF6Orf6r9JEbmCwc2
V9BWLPClGqRQERwDge8OsL
-----END SSH SIGNATURE-----
",
    ),
    (
        "ecdsa-sha2-nistp256 \
         AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBLB4Z52zu85a0QHCR6wp1eevm/KPf6Pc/z9c/V\
         2kcADUweeiNMKlnAcsu+fjbhimt2U8qY1JAoqlDS4zge6nEB4=",
        "-----BEGIN SSH SIGNATURE-----
U1NIU0lHAAAAAQAAAGgAAAATZWNkc2Etc2hhMi1uaXN0cDI1NgAAAAhuaXN0cDI1NgAAAE
EEsHhnnbO7zlrRAcJHrCnV56+b8o9/o9z/P1z9XaRwANTB56I0wqWcByy75+NuGKa3ZTyp
jUkCiqUNLjOB7qcQHgAAAARmaWxlAAAAAAAAAAZzaGE1MTIAAABjAAAAE2VjZHNhLXNoYT
ItbmlzdHAyNTYAAABIAAAAIGHMExRUg4dKbCDeCMWF7EyeIz5Ks91oimsN3f+UPf0JAAAA
IDNPiGPm4ZQv5HSyOpXD435Hnx0uq4x1qnNdDqYCoXqA
-----END SSH SIGNATURE-----
",
    ),
    (
        "ssh-rsa \
         AAAAB3NzaC1yc2EAAAADAQABAAABAQCFgFW5mxnNFGrYO848WBfadWbSIr+AGKPIdu9iwCF6NQ2bzXmmmwfN6tLDH2\
         7uPS8b4Ga4EQ6KiUl0aZpBSxADw6POGVdZDJAhelP9gjrbjjgLH0GQnbf90LPsRZDVFge/lRPUeestgj4XR9kglhOx\
         y6wPXxFpvzAQGCwMK4v2gqaLfjl/Nb/6gLeSJ35l+RP4hV8vpLaNHNlJlXO8S7o4D/mhqPG28/DjQk82COtfHtsvjf\
         lw6xPPoFLA+MNXpm5SN9OS1cr3eNMq1Dufp7BPwQGwP/SdHxDohnRIte6M+tfbtdUvscXQv7r6+FpXZgGwtD+9Dxhp\
         YJxi9m6k/adD",
        "-----BEGIN SSH SIGNATURE-----
U1NIU0lHAAAAAQAAARcAAAAHc3NoLXJzYQAAAAMBAAEAAAEBAIWAVbmbGc0Uatg7zjxYF9
p1ZtIiv4AYo8h272LAIXo1DZvNeaabB83q0sMfbu49LxvgZrgRDoqJSXRpmkFLEAPDo84Z
V1kMkCF6U/2COtuOOAsfQZCdt/3Qs+xFkNUWB7+VE9R56y2CPhdH2SCWE7HLrA9fEWm/MB
AYLAwri/aCpot+OX81v/qAt5InfmX5E/iFXy+kto0c2UmVc7xLujgP+aGo8bbz8ONCTzYI
618e2y+N+XDrE8+gUsD4w1emblI305LVyvd40yrUO5+nsE/BAbA/9J0fEOiGdEi17oz619
u11S+xxdC/uvr4WldmAbC0P70PGGlgnGL2bqT9p0MAAAAEZmlsZQAAAAAAAAAGc2hhNTEy
AAABFAAAAAxyc2Etc2hhMi01MTIAAAEAHVx7q8OyLryBhoo48xDPqRytUcqstf3oFebWhO
MWleyxQe+u/MaI301xhjeH6O6OsbexfLNEX0BfU5m9zqiU0e8r1cV/8T++TGoWrOaeCqZd
ZeFQP2MXbKXdGxm9qmIM7zmx8C+qaozKPshjtuZYa1ujpao827jt/JN4OC4/Fyg7RKyiTH
mY19HM+b1eOQK6nFkRhBb28FcCkHbHKha9FjHSLeHe8O3cxiRne+4Hyzgvy6zoFVw0Pd0s
iYnCe5AzptVQVtXtqWmz3xLVv/XJDGhpBkFpW9pTHqMW5EsxnIhnYVNGsbKVO+bH4YkZkr
8CQmUR/OicjqIboD9xiQ/XNw==
-----END SSH SIGNATURE-----
",
    ),
];

/// Writes a waybill, a signature and a list of signers to disk, and returns the result of the
/// check.
fn checked(waybill: &str, signature: &str, signers: &str) -> Result<Proof, SignatureError> {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.into_os_string()
    };
    let (waybill, signers) = (at("w", waybill), at("signers", signers));
    at("w.sig", signature);
    check(&waybill, &SignatureRequirements { signers, identity: None, signature: None }, 0)
}

#[test]
fn known_signatures_are_valid_and_cover_every_byte() {
    for (key, signature) in VECTORS {
        let proof = checked(SIGNED, signature, key).unwrap();
        assert_eq!(proof.signer, None);
        assert!(proof.key.contains(" SHA256:"), "{}", proof.key);
        for at in 0..SIGNED.len() {
            let mut other = SIGNED.as_bytes().to_vec();
            other[at] ^= 1;
            let found = checked(std::str::from_utf8(&other).unwrap(), signature, key);
            assert!(matches!(found, Err(SignatureError::Changed { .. })), "{at}: {found:?}");
        }
        let found = checked(&SIGNED[1..], signature, key);
        assert!(matches!(found, Err(SignatureError::Changed { .. })), "{found:?}");
    }
}

#[test]
fn changed_or_truncated_signatures_are_refused() {
    for (key, signature) in VECTORS {
        let body = signature.find('\n').unwrap() + 1..signature.rfind("\n-").unwrap();
        for at in body {
            let letter = signature.as_bytes()[at];
            let other = if letter == b'A' { "B" } else { "A" };
            let changed = format!("{}{other}{}", &signature[..at], &signature[at + 1..]);
            assert!(checked(SIGNED, &changed, key).is_err(), "{key}: {at}");
        }
        for at in 0..signature.trim_end().len() {
            assert!(checked(SIGNED, &signature[..at], key).is_err(), "{key}: cut at {at}");
        }
    }
}

#[test]
fn appended_sections_are_distinguished_from_changes() {
    for (key, signature) in VECTORS {
        let longer = format!("{SIGNED}surehaul-waybill 2\nend 2\nsurehaul-waybill 3\n");
        match checked(&longer, signature, key) {
            Err(SignatureError::Appended { sections: 1, bytes, .. }) => {
                assert_eq!(bytes, SIGNED.len() as u64);
            }
            other => panic!("{other:?}"),
        }
        let found = checked(&format!("{SIGNED} "), signature, key);
        assert!(matches!(found, Err(SignatureError::Changed { .. })), "{found:?}");
    }
}

#[test]
fn signature_is_valid_for_its_own_key_only() {
    for (one, (_, signature)) in VECTORS.iter().enumerate() {
        for (other, (key, _)) in VECTORS.iter().enumerate() {
            let found = checked(SIGNED, signature, key);
            match found {
                Ok(_) => assert_eq!(one, other),
                Err(SignatureError::Refused { refusal: Refusal::NotListed, .. }) => assert_ne!(one, other),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn waybill_changed_after_the_check_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).into_os_string();
    let (key, signature) = VECTORS[0];
    for (name, text) in [("w", SIGNED), ("w.sig", signature), ("signers", key)] {
        fs::write(at(name), text).unwrap();
    }
    let demand = SignatureRequirements { signers: at("signers"), identity: None, signature: None };
    let proof = check(&at("w"), &demand, 0).unwrap();
    proof.still_holds(&at("w")).unwrap();
    fs::write(at("w"), "surehaul-waybill 1\nend 2\n").unwrap();
    assert!(matches!(proof.still_holds(&at("w")), Err(SignatureError::Moved(_))));
}
