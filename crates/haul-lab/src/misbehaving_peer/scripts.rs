//! Messages of a hostile source: what it says and which answers it expects, for any receiver.

use super::{MisbehavingPeer, block, block_digest, bye, file_close, frame, new_file, plain, read, walked};
use haul_digest::{Algorithm, digest};
use haul_model::{ByteRange, Level, ObjectIndex, ObjectSize};
use haul_proto::{
    Close, Connect, Features, FileKind, FileNumber, Message, NewBlock, NewFile, Outcome, PeerText, Stated,
    Why, Window, Xattr,
};
use std::path::Path;
use std::time::Duration;

/// Time in which a sink sends all messages that need no further message of the source.
const A_WHILE: Duration = Duration::from_millis(300);

/// Returns ACCEPT of a source that answers a fetch with one lane. The session's token is 32 times
/// 7.
///
/// # Panics
/// Panics if CONNECT names no version of this program.
pub fn accepted(asked: &Connect) -> Message {
    let accept = asked.answer(Features::default(), Window::default(), 1, [7; 32], PeerText::new("liar"));
    Message::Accept(Box::new(accept.expect("a common version")))
}

/// Returns NEW_FILE of a name.
pub fn name(number: u64, path: &[u8], kind: FileKind) -> Message {
    Message::NewFile(Box::new(new_file(number, path, kind)))
}

/// A symbolic link to `target`.
pub fn link(target: &Path) -> FileKind {
    FileKind::Symlink { target: target.as_os_str().as_encoded_bytes().into() }
}

/// A further name of the file `first`.
pub fn hard_link(first: &[u8]) -> FileKind {
    FileKind::HardLink { first: first.into() }
}

/// A pipe, a socket, and both kinds of devices.
pub fn special_kinds() -> [FileKind; 4] {
    let (major, minor) = (8, 0);
    let devices = [FileKind::CharDevice { major, minor }, FileKind::BlockDevice { major, minor }];
    let [char_device, block_device] = devices;
    [FileKind::Fifo, FileKind::Socket, char_device, block_device]
}

/// Receives the outcome of a name.
///
/// # Panics
/// Panics if another message arrives.
#[track_caller]
pub fn end_of(peer: &mut MisbehavingPeer, number: u64) -> Outcome {
    match peer.hear() {
        Message::FileDone(done) if done.number == FileNumber(number) => done.outcome,
        other => panic!("{other:?} instead of the end of {number}"),
    }
}

/// Announces a name and receives its outcome.
///
/// # Panics
/// Panics if another message arrives.
#[track_caller]
pub fn offered(peer: &mut MisbehavingPeer, number: u64, path: &[u8], kind: FileKind) -> Outcome {
    peer.say(&name(number, path, kind), &[]);
    end_of(peer, number)
}

/// Announces a name, which must fail, and returns the reason.
///
/// # Panics
/// Panics if the name is accepted.
#[track_caller]
pub fn refused(peer: &mut MisbehavingPeer, number: u64, path: &[u8], kind: FileKind) -> Why {
    match offered(peer, number, path, kind) {
        Outcome::Failed(reason) => reason.why,
        other => panic!("{:?} was {other:?}", path.escape_ascii().to_string()),
    }
}

/// Returns the frames of a small file: NEW_FILE, NEW_BLOCK, BLOCK_DIGEST and FILE_CLOSE.
pub fn file(number: u64, path: &[u8], bytes: &[u8]) -> Vec<(Message, Vec<u8>)> {
    file_by(Algorithm::Blake3, number, path, bytes)
}

/// Returns NEW_BLOCK of the first `len` bytes of an object, uncompressed.
pub fn plain_block(number: u64, index: u64, object: ObjectSize, len: usize) -> Message {
    let start = index * object.bytes();
    let range = ByteRange::between(start, start + len as u64);
    Message::NewBlock(NewBlock {
        object: ObjectIndex(index),
        range,
        payload: len as u32,
        ..block(number, &[])
    })
}

/// Returns the frames of a small file in a job with this digest.
pub fn file_by(algorithm: Algorithm, number: u64, path: &[u8], bytes: &[u8]) -> Vec<(Message, Vec<u8>)> {
    let len = bytes.len() as u64;
    let stated = Stated::Digest(digest(algorithm, bytes));
    vec![
        (name(number, path, plain(len)), Vec::new()),
        (Message::NewBlock(block(number, bytes)), bytes.to_vec()),
        (block_digest(number, 0, stated), Vec::new()),
        (file_close(number, read(len)), Vec::new()),
    ]
}

/// Sends a small file and receives its outcome.
///
/// # Panics
/// Panics if another message arrives.
#[track_caller]
pub fn wrote(peer: &mut MisbehavingPeer, number: u64, path: &[u8], bytes: &[u8]) -> Outcome {
    file(number, path, bytes).iter().for_each(|(message, payload)| peer.say(message, payload));
    end_of(peer, number)
}

/// Announces an existing file of the receiver with its size, fails it, and ends the session.
/// Returns all bytes that the receiver sent.
///
/// # Panics
/// Panics if the session ends otherwise.
pub fn all_that_is_said(liar: &mut MisbehavingPeer, path: &[u8], size: u64) -> Vec<u8> {
    let facts = NewFile { whole: false, ..new_file(0, path, plain(size)) };
    liar.say(&Message::NewFile(Box::new(facts)), &[]);
    let mut said = frame(&liar.hear());
    std::thread::sleep(A_WHILE);
    liar.say(&file_close(0, Close::Failed(Why::Io.into())), &[]);
    liar.say(&walked(1, false), &[]);
    loop {
        let message = liar.hear();
        said.extend(frame(&message));
        if matches!(message, Message::Bye(_)) {
            break;
        }
    }
    liar.say(&bye(), &[]);
    liar.writer.finish().expect("the other end listens");
    said
}

/// Asserts that none of the messages `said` contains the bytes `secret`, or their digest in either
/// byte order.
///
/// # Panics
/// Panics if a message contains them.
#[track_caller]
pub fn assert_nothing_told(said: &[u8], secret: &[u8], algorithm: Algorithm) {
    let told = digest(algorithm, secret);
    let backwards: Vec<u8> = told.as_bytes().iter().rev().copied().collect();
    for secret in [secret, told.as_bytes(), &backwards] {
        let is_told = said.windows(secret.len()).any(|window| window == secret);
        assert!(!is_told, "{algorithm:?}: the receiver reveals {secret:x?}");
    }
}

/// Announces special files, which must fail: 4 names.
///
/// # Panics
/// Panics if one is accepted.
pub fn special_files(liar: &mut MisbehavingPeer) {
    for (number, kind) in (0..).zip(special_kinds()) {
        assert_eq!(refused(liar, number, b"special", kind), Why::Denied);
    }
    liar.part(4);
}

/// Announces 5 symbolic links out of the root, which must fail, and 3 within it: `g`, `d/h`, `i`.
///
/// # Panics
/// Panics if the receiver decides otherwise.
pub fn outside_links(liar: &mut MisbehavingPeer) {
    let outside: [(&[u8], &str); 5] =
        [(b"a", "/etc"), (b"b", ".."), (b"d/c", "../../x"), (b"e", "d/../../x"), (b"f", "d/..")];
    let mut number = 0;
    for (path, target) in outside {
        assert_eq!(refused(liar, number, path, link(Path::new(target))), Why::Denied, "{target}");
        number += 1;
    }
    for (path, target) in [(&b"g"[..], "d/x"), (b"d/h", "../g"), (b"i", "missing")] {
        let ended = offered(liar, number, path, link(Path::new(target)));
        assert_eq!(ended, Outcome::Done(Level::Verified), "{target}");
        number += 1;
    }
    liar.part(number);
}

/// Announces names that haul gives to its own files, which must fail: 4 names.
///
/// # Panics
/// Panics if one is accepted.
pub fn own_names(liar: &mut MisbehavingPeer) {
    for (number, path) in (0..).zip([&b".haul-0-1"[..], b"d/.HAUL-begun", b".haul-d/x"]) {
        assert_eq!(refused(liar, number, path, plain(3)), Why::Name);
    }
    assert_eq!(refused(liar, 3, b"x", hard_link(b".haul-0-1")), Why::Name);
    liar.part(4);
}

/// Announces digests stored with files, which must fail: 4 names. Then sends a file `f` with such
/// digests in its attributes, which must arrive.
///
/// # Panics
/// Panics if the receiver decides otherwise.
pub fn stored_digests(liar: &mut MisbehavingPeer) {
    for (number, path) in (0..).zip([&b".haul/sums/f"[..], b"d/.Haul/sums/f", b".HAUL"]) {
        assert_eq!(refused(liar, number, path, plain(3)), Why::Name);
    }
    assert_eq!(refused(liar, 3, b"x", hard_link(b".haul/sums/f")), Why::Name);
    let xattr = |name: &str| Xattr { name: name.as_bytes().into(), value: b"value".as_slice().into() };
    let xattrs = ["user.note", "user.surehaul.sums", "user.XrdCks.adler32", "user.eos.checksum"].map(xattr);
    let more = xattr("user.eos.checksumtype");
    let xattrs = xattrs.into_iter().chain([more]).collect();
    let facts = NewFile { mode: 0o644, xattrs, ..new_file(4, b"f", plain(3)) };
    liar.say(&Message::NewFile(Box::new(facts)), &[]);
    file(4, b"f", b"abc")[1..].iter().for_each(|(message, payload)| liar.say(message, payload));
    assert_eq!(end_of(liar, 4), Outcome::Done(Level::Verified));
    liar.part(5);
}

/// Sends a directory `d` and a file `f` with set-ID bits and system attributes. Both must arrive.
///
/// # Panics
/// Panics if one of them fails.
pub fn system_attributes(liar: &mut MisbehavingPeer) {
    let xattr = |name: &str| Xattr { name: name.as_bytes().into(), value: b"value".as_slice().into() };
    let xattrs = vec![xattr("user.note"), xattr("trusted.note"), xattr("security.note")];
    for (number, path) in (0..).zip([&b"d"[..], b"f"]) {
        let kind = if number == 0 { FileKind::Directory } else { plain(3) };
        let facts = NewFile { mode: 0o6755, xattrs: xattrs.clone(), ..new_file(number, path, kind) };
        liar.say(&Message::NewFile(Box::new(facts)), &[]);
        if number == 1 {
            file(number, path, b"abc")[1..].iter().for_each(|(message, payload)| liar.say(message, payload));
        }
        assert_eq!(end_of(liar, number), Outcome::Done(Level::Verified));
    }
    liar.part(2);
}

/// Links to the receiver's own file `secret` and to a file that is not announced as linked, which
/// must fail, and to a file that is: 5 names, of which 2 fail.
///
/// # Panics
/// Panics if the receiver decides otherwise.
pub fn hard_links(liar: &mut MisbehavingPeer) {
    let done = Outcome::Done(Level::Verified);
    assert_eq!(refused(liar, 0, b"own", hard_link(b"secret")), Why::Denied);
    // A file without the announcement that other names follow.
    assert_eq!(wrote(liar, 1, b"plain", b"bytes"), done);
    assert_eq!(refused(liar, 2, b"own", hard_link(b"plain")), Why::Denied);
    let facts = NewFile { is_linked: true, ..new_file(3, b"first", plain(5)) };
    liar.say(&Message::NewFile(Box::new(facts)), &[]);
    file(3, b"first", b"bytes")[1..].iter().for_each(|(message, payload)| liar.say(message, payload));
    assert_eq!(end_of(liar, 3), done);
    assert_eq!(offered(liar, 4, b"second", hard_link(b"first")), done);
    liar.part(5);
}
