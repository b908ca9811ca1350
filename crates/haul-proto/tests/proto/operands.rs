//! Tests of OPERANDS: lists of paths that are too long for a CONNECT.

use crate::codec::{cases, decoded, encoded, forged};
use haul_proto::limits::{
    OPERANDS_ALL_BYTES_MAX, OPERANDS_ALL_MAX, OPERANDS_BYTES_MAX, OPERANDS_MAX, OPERANDS_PER_MESSAGE,
};
use haul_proto::{Flaw, HEADER_LEN, Message, OperandList, Operands, Why, check_list, limits};
use proptest::collection::vec;
use proptest::prelude::*;

fn path(len: usize) -> Box<[u8]> {
    vec![b'p'; len].into()
}

fn operands(last: bool, paths: Vec<Box<[u8]>>) -> Operands {
    Operands { last, paths }
}

/// Sends a sink's operands in messages and reassembles them. Returns the list and the number of
/// messages.
fn told_and_heard(paths: &[Box<[u8]>]) -> (Vec<Box<[u8]>>, usize) {
    let mut list = OperandList::default();
    let mut messages = 0;
    for operands in Operands::split(paths) {
        let message = Message::Operands(Box::new(operands.clone()));
        assert_eq!(message.check(), Ok(()));
        let bytes = encoded(&message);
        assert!(bytes.len() <= HEADER_LEN + limits::BODY_BYTES_MAX);
        assert_eq!(decoded(&bytes), Ok(Some(message)));
        messages += 1;
        assert_eq!(list.take(operands.clone()), Ok(operands.last), "message {messages}");
    }
    (list.into_paths(), messages)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases().cases.min(60), ..cases() })]

    #[test]
    fn operand_lists_of_any_lengths_round_trip(
        lengths in vec(prop_oneof![0usize..60, Just(0usize), Just(haul_model::PATH_BYTES_MAX)], 0..300),
        repeated in 1usize..60,
    ) {
        let paths: Vec<Box<[u8]>> = lengths.iter().map(|&len| path(len)).collect();
        // Few long paths, and many short ones.
        let short: Vec<_> = paths.iter().filter(|path| path.len() < 100).cloned().collect();
        let repeated: Vec<_> = short.iter().cycle().take(short.len() * repeated).cloned().collect();
        for paths in [paths, repeated] {
            prop_assert_eq!(told_and_heard(&paths).0, paths);
        }
    }
}

#[test]
fn connect_message_limits_operands_by_count_and_bytes() {
    assert!(Operands::fit_connect(&vec![path(3); OPERANDS_MAX]));
    assert!(!Operands::fit_connect(&vec![path(3); OPERANDS_MAX + 1]));
    let longest = path(haul_model::PATH_BYTES_MAX);
    let most = OPERANDS_BYTES_MAX / longest.len();
    assert!(Operands::fit_connect(&vec![longest.clone(); most]));
    assert!(!Operands::fit_connect(&vec![longest; most + 1]));
}

#[test]
fn twenty_thousand_names_take_three_messages() {
    let paths: Vec<Box<[u8]>> =
        (0..20_000).map(|number| format!("a/{number:05}").into_bytes().into()).collect();
    assert_eq!(told_and_heard(&paths), (paths, 3));
}

#[test]
fn excessive_counts_and_lengths_are_refused() {
    let forged = |last: u8, count: u32, rest: &[u8]| {
        let body = [&[last][..], &count.to_le_bytes(), rest].concat();
        decoded(&forged(19, 0, 0, &body))
    };
    let too_long = |what: &'static str, len: u64, most: usize| Flaw::TooLong { what, len, most: most as u64 };
    let most = OPERANDS_PER_MESSAGE;
    for count in [most as u32 + 1, u32::MAX] {
        assert_eq!(forged(1, count, &[]), Err(too_long("operands", count.into(), most)));
    }
    let length = haul_model::PATH_BYTES_MAX as u32 + 1;
    for length in [length, u32::MAX] {
        let flaw = too_long("operand", length.into(), haul_model::PATH_BYTES_MAX);
        assert_eq!(forged(1, 1, &length.to_le_bytes()), Err(flaw));
    }
    assert_eq!(forged(1, 2, &[1, 0, 0, 0, b'a']), Err(Flaw::Short("operand")));
    assert_eq!(forged(2, 0, &[]), Err(Flaw::Value("operands")));
    // A repeated empty message would never end the list.
    assert_eq!(forged(0, 0, &[]), Err(Flaw::Value("operands")));
    assert!(forged(1, 0, &[]).is_ok());
    let longest = path(haul_model::PATH_BYTES_MAX);
    let paths = vec![longest; OPERANDS_BYTES_MAX / haul_model::PATH_BYTES_MAX + 1];
    let message = Message::Operands(Box::new(operands(true, paths)));
    assert!(matches!(message.check(), Err(Flaw::TooLong { what: "operands' bytes", .. })));
    assert!(matches!(decoded(&encoded(&message)), Err(Flaw::TooLong { what: "operands' bytes", .. })));
}

#[test]
fn list_limits_apply_across_messages() {
    for (len, at_once, most) in
        [(0, OPERANDS_PER_MESSAGE, OPERANDS_ALL_MAX), (1 << 15, 16, OPERANDS_ALL_BYTES_MAX >> 15)]
    {
        let mut list = OperandList::default();
        for taken in (at_once..=most).step_by(at_once) {
            assert_eq!(list.take(operands(false, vec![path(len); at_once])), Ok(false), "{taken} of {most}");
        }
        let refused = list.take(operands(true, vec![path(len); 1])).expect_err("one too many");
        assert_eq!(refused.why, Why::TooLarge);
    }
    assert_eq!(check_list(OPERANDS_ALL_MAX, OPERANDS_ALL_BYTES_MAX), Ok(()));
    check_list(OPERANDS_ALL_MAX + 1, 0).expect_err("too many");
    check_list(1, OPERANDS_ALL_BYTES_MAX + 1).expect_err("too long");
}
