use super::*;
use proptest::prelude::*;

const ALICE: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINEtQ1F/BdH6zNBkSi3+/n+ly2YscfZP3UPpAEgp47qR alice's key";
const BOB: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINP1zQM6TeNN+dk2RDFdFU0kSll+dfCqQ2c6OlFIQuew";

fn key(text: &str) -> KeyData {
    PublicKey::from_openssh(text).unwrap().key_data().clone()
}

fn admit(list: &str, identity: Option<&str>, now: i64) -> Result<Option<String>, Refusal> {
    Signers::parse(list.as_bytes()).unwrap().admit(&key(ALICE), identity, now)
}

#[test]
fn bare_public_key_is_accepted_without_identity() {
    assert_eq!(admit(&format!("{ALICE}\n"), None, 0), Ok(None));
    let identity = "alice".to_owned();
    assert_eq!(admit(ALICE, Some("alice"), 0), Err(Refusal::Identity { line: 1, identity }));
    assert_eq!(admit(BOB, None, 0), Err(Refusal::NotListed));
    assert_eq!(admit("", None, 0), Err(Refusal::NotListed));
}

#[test]
fn first_line_with_a_matching_identity_pattern_counts() {
    let list = format!("# who\n\nbob@x {BOB}\n\"!carol@x, *@x\" {ALICE}\r\nca,alice@? {ALICE}\n");
    assert_eq!(admit(&list, Some("alice@y"), 0), Ok(Some("alice@y".to_owned())));
    assert_eq!(admit(&list.replace(", *", ",*"), Some("dora@x"), 0), Ok(Some("dora@x".to_owned())));
    for other in ["carol@x", "alice@yy", "", "ALICE@y"] {
        let expected = Refusal::Identity { line: 5, identity: other.to_owned() };
        assert_eq!(admit(&list, Some(other), 0), Err(expected));
    }
}

#[test]
fn key_options_are_enforced() {
    let line = |options: &str| format!("alice {options} {ALICE}");
    let good = Ok(Some("alice".to_owned()));
    assert_eq!(admit(&line("namespaces=\"git,file\""), None, 0), good);
    assert_eq!(admit(&line("Namespaces=\"f*\",valid-before=\"19700102Z\""), None, 0), good);
    assert_eq!(admit(&line("namespaces=\"git\""), None, 0), Err(Refusal::Namespace { line: 1 }));
    assert_eq!(admit(&line("namespaces=\"*,!file\""), None, 0), Err(Refusal::Namespace { line: 1 }));
    assert_eq!(admit(&line("cert-authority"), None, 0), Err(Refusal::Authority));
}

#[test]
fn validity_period_is_bounded_on_both_sides() {
    let line = format!("alice valid-after=\"19700102Z\",valid-before=\"197001020000Z\" {ALICE}");
    assert_eq!(admit(&line, None, 86_399), Err(Refusal::NotYet { line: 1 }));
    assert!(admit(&line, None, 86_400).is_ok());
    assert_eq!(admit(&line, None, 86_401), Err(Refusal::NoLonger { line: 1 }));
}

#[test]
fn dates_without_a_zone_need_agreement_of_all_zones() {
    let after = format!("alice valid-after=\"19700110\" {ALICE}");
    let day = 9 * 86_400;
    assert_eq!(admit(&after, None, day - ZONE_EAST - 1), Err(Refusal::NotYet { line: 1 }));
    assert_eq!(admit(&after, None, day - ZONE_EAST), Err(Refusal::Zone { line: 1 }));
    assert_eq!(admit(&after, None, day + ZONE_WEST - 1), Err(Refusal::Zone { line: 1 }));
    assert!(admit(&after, None, day + ZONE_WEST).is_ok());
    let before = after.replace("after", "before");
    assert!(admit(&before, None, day - ZONE_EAST).is_ok());
    assert_eq!(admit(&before, None, day), Err(Refusal::Zone { line: 1 }));
    assert_eq!(admit(&before, None, day + ZONE_WEST + 1), Err(Refusal::NoLonger { line: 1 }));
}

#[test]
fn malformed_signer_lines_are_refused_by_line_number() {
    for (line, what) in [
        ("alice", "neither a public key"),
        ("alice ssh-ed25519", "neither a public key"),
        ("alice ssh-ed25519 AAAAnonsense", "neither a public key"),
        ("\"alice ssh-ed25519 AAAA", "unterminated quote"),
        (&format!("\"\" {ALICE}"), "no signer names"),
        (&format!("@revoked {ALICE}"), "'@revoked' is a marker"),
        (&format!("@cert-authority alice {ALICE}"), "'@cert-authority' is a marker"),
        (&format!("a frobnicate {ALICE}"), "unknown option 'frobnicate'"),
        (&format!("a namespaces=file {ALICE}"), "unknown option 'namespaces=file'"),
        (&format!("a cert-authority,cert-authority {ALICE}"), "duplicate"),
        (&format!("a valid-after=\"2026\" {ALICE}"), "invalid date '2026'"),
        (&format!("a valid-after=\"20260230\" {ALICE}"), "invalid date '20260230'"),
    ] {
        let fault = Signers::parse(format!("{ALICE}\n{line}\n").as_bytes()).unwrap_err();
        assert_eq!(fault.line, 2, "{line}");
        assert!(fault.what.contains(what), "{line}: {}", fault.what);
    }
    assert_eq!(Signers::parse(b"\xff").unwrap_err().line, 1);
}

/// Slow reference that tries every match of a pattern.
fn matches_slowly(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], _) => text.is_empty(),
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|at| matches_slowly(rest, &text[at..])),
        ([letter, rest @ ..], [first, others @ ..]) => {
            (*letter == b'?' || letter == first) && matches_slowly(rest, others)
        }
        (_, []) => false,
    }
}

proptest! {
    #[test]
    fn pattern_matching_agrees_with_the_slow_reference(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
        let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
        prop_assert_eq!(matches(pattern, text), matches_slowly(pattern, text));
    }

    #[test]
    fn arbitrary_bytes_never_panic_the_parser(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Signers::parse(&bytes);
    }
}
