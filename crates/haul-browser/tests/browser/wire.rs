//! Frames of the server in the tests.

use haul_proto::limits::HEADER_LEN;
use haul_proto::{Header, Message};

/// Takes the next message and its payload from `bytes`. Returns `None` if they are not complete.
///
/// The client is trusted here: a flaw fails the test.
pub(crate) fn take(bytes: &mut Vec<u8>) -> Option<(Message, Vec<u8>)> {
    let header = Header::decode(bytes.first_chunk::<HEADER_LEN>()?).expect("a valid header");
    let body = HEADER_LEN + header.body_len();
    let all = body + header.payload_len() as usize;
    if bytes.len() < all {
        return None;
    }
    let rest = bytes.split_off(all);
    let frame = std::mem::replace(bytes, rest);
    let message = Message::decode(&header, &frame[HEADER_LEN..body]).expect("a valid frame");
    Some((message.expect("a known kind"), frame[body..].to_vec()))
}

pub(crate) fn frame(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}
