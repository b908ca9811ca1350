use super::*;
use crate::address::Host;
use proptest::prelude::*;

fn sample() -> Ticket {
    Ticket {
        id: TicketId([1, 2, 3, 4, 5, 6, 7, 8]),
        secret: Secret::from_bytes([0x5a; 16]),
        grant: Grant {
            role: Role::Write,
            uses: Uses::Once,
            expires: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000)),
        },
        fingerprint: Some(Fingerprint([0xc3; 32])),
        addresses: vec!["10.0.0.7:7433".parse().expect("an address")],
    }
}

fn addresses() -> impl Strategy<Value = Address> {
    let host = prop_oneof![
        any::<[u8; 4]>().prop_map(|ip| Host::Ip(ip.into())),
        any::<[u8; 16]>().prop_map(|ip| Host::Ip(ip.into())),
        "[a-z][a-z0-9._-]{0,60}".prop_map(Host::Name),
    ];
    (host, any::<u16>()).prop_map(|(host, port)| Address { host, port })
}

fn tickets() -> impl Strategy<Value = Ticket> {
    let role = prop_oneof![Just(Role::Read), Just(Role::Write), Just(Role::Both)];
    let uses = prop_oneof![Just(Uses::Once), Just(Uses::Lasting)];
    let expires = prop::option::of(
        (0..u64::from(u32::MAX)).prop_map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)),
    );
    let grant = (role, uses, expires).prop_map(|(role, uses, expires)| Grant { role, uses, expires });
    (
        any::<[u8; 8]>(),
        any::<[u8; 16]>(),
        grant,
        prop::option::of(any::<[u8; 32]>()),
        prop::collection::vec(addresses(), 1..=8),
    )
        .prop_map(|(id, secret, grant, fingerprint, addresses)| Ticket {
            id: TicketId(id),
            secret: Secret::from_bytes(secret),
            grant,
            fingerprint: fingerprint.map(Fingerprint),
            addresses,
        })
}

#[test]
fn ticket_line_is_short_lowercase_alphanumeric() {
    let line = sample().to_line();
    assert!(line.starts_with("haul1") && line.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()));
    assert!(line.len() < 140, "{} characters", line.len());
}

/// Compares the ticket with the example in docs/formats/session-setup.md.
#[test]
fn sample_ticket_matches_the_documentation() {
    let document = include_str!("../../../../docs/formats/session-setup.md");
    assert!(document.contains(&format!("\n{}\n", *sample().to_line())), "{}", *sample().to_line());
}

#[test]
fn parsing_ignores_line_breaks_and_case() {
    let line = sample().to_line();
    let (head, tail) = line.split_at(40);
    assert_eq!(Ticket::parse(&format!("  {head}\r\n\t{}\n", tail.to_uppercase())), Ok(sample()));
}

#[test]
fn each_malformed_ticket_has_its_own_error() {
    let line = sample().to_line();
    assert_eq!(Ticket::parse("hello"), Err(TicketError::NoTicket));
    assert_eq!(Ticket::parse(""), Err(TicketError::NoTicket));
    assert_eq!(Ticket::parse(&line.replacen("haul1", "haul2", 1)), Err(TicketError::Newer));
    assert_eq!(Ticket::parse(&line[..line.len() - 8]), Err(TicketError::Damaged));
    assert_eq!(Ticket::parse("haul1"), Err(TicketError::Damaged));
    assert_eq!(Ticket::parse("haul1ab!c"), Err(TicketError::Character { at: 8 }));
    assert_eq!(Ticket::parse("haul1é"), Err(TicketError::Character { at: 6 }));
    assert_eq!(Ticket::parse(&"a".repeat(3 * TEXT_MAX)), Err(TicketError::TooLong));
}

#[test]
fn debug_output_of_a_ticket_hides_the_secret() {
    let printed = format!("{:?}", sample());
    assert!(
        printed.contains("Secret(..)") && !printed.contains("5a5a") && !printed.contains("90, 90"),
        "{printed}"
    );
}

#[test]
fn unknown_ticket_contents_are_distinguished_from_damage() {
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes::encode(&sample()).to_vec();
        bytes.truncate(bytes.len() - 4);
        change(&mut bytes);
        let sum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        Ticket::parse(&format!("haul1{}", *base32_encode(&bytes)))
    };
    assert_eq!(with(&|_| ()), Ok(sample()));
    assert_eq!(with(&|bytes| bytes[0] |= 0x80), Err(TicketError::Unknown("a flag")));
    assert_eq!(with(&|bytes| bytes[0] &= !6), Err(TicketError::Unknown("a ticket without rights")));
    assert_eq!(with(&|bytes| bytes.push(0)), Err(TicketError::Unknown("bytes after its end")));
    assert_eq!(with(&|bytes| bytes[66] = 5), Err(TicketError::Unknown("a kind of address")));
    assert_eq!(with(&|bytes| bytes[65] = 9), Err(TicketError::Unknown("its number of addresses")));
    assert_eq!(
        with(&|bytes| bytes[57..65].fill(0xff)),
        Err(TicketError::Unknown("an expiry date out of range"))
    );
}

#[test]
fn ticket_with_zero_or_nine_addresses_is_refused() {
    let grant = sample().grant;
    assert_eq!(Ticket::issue(grant, vec![], None), Err(IssueError::Addresses(0)));
    let nine = vec![sample().addresses[0].clone(); 9];
    assert_eq!(Ticket::issue(grant, nine, None), Err(IssueError::Addresses(9)));
}

proptest! {
    #[test]
    fn tickets_round_trip(ticket in tickets()) {
        let line = ticket.to_line();
        prop_assert!(line.len() <= TEXT_MAX);
        prop_assert_eq!(Ticket::parse(&line), Ok(ticket));
    }

    #[test]
    fn one_changed_character_is_detected(ticket in tickets(), at in any::<prop::sample::Index>(), to in 0_usize..32) {
        let line = ticket.to_line();
        let at = 5 + at.index(line.len() - 5);
        let other = char::from(b"abcdefghijklmnopqrstuvwxyz234567"[to]);
        let mut changed = line.to_string();
        changed.replace_range(at..=at, &other.to_string());
        prop_assert_eq!(Ticket::parse(&changed).is_ok(), changed == *line);
    }

    #[test]
    fn arbitrary_text_is_refused_as_a_ticket(text in "\\PC*") {
        let _ = Ticket::parse(&text);
        let line = format!("haul1{text}");
        prop_assert!(Ticket::parse(&line).is_err());
    }

    #[test]
    fn bytes_with_a_valid_checksum_round_trip_or_are_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..200)
    ) {
        let mut bytes = bytes;
        let sum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        if let Ok(ticket) = bytes::decode(&bytes) {
            prop_assert_eq!(&*bytes::encode(&ticket), &bytes);
        }
    }

    #[test]
    fn base32_round_trips(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let text = base32_encode(&bytes);
        prop_assert_eq!(base32_decode(&text, 1).map(|decoded| decoded.to_vec()), Ok(bytes));
    }
}
