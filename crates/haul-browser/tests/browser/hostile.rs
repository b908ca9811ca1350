//! Servers that break the rules: the client reports an error, stays bounded, and asks the page for
//! nothing outside the request.

use crate::client::Client;
use crate::dice::Dice;
use crate::fetched_from::Sender;
use crate::page::Page;
use crate::sent_to::{Receiver, Store};
use crate::upload::{self, OBJECT, files};
use crate::wire::frame;
use haul_browser::Event;
use haul_model::{ByteRange, Level, ObjectIndex};
use haul_proto::limits::HEADER_LEN;
use haul_proto::{
    Accept, Connect, Encoding, FileKind, FileNumber, JobOptions, Message, NewBlock, NewFile, PeerText,
    Reason, Role, Runs, Unread, Update, Why, Window,
};
use proptest::prelude::*;

/// Returns a page whose download the server has accepted.
fn accepted(paths: &[&str]) -> Page {
    let mut page = Page::new(Client::download(OBJECT, paths, vec![]), 1);
    let mut server = Sender::new(&[]);
    server.feed(&page.client.outbox.split_off(0));
    let accept = frame(&Message::Accept(Box::new(accept(server.connect.as_ref().unwrap().options.clone()))));
    give(&mut page, &accept);
    page
}

fn accept(options: JobOptions) -> Accept {
    let connect = Connect::new(Role::Sink, options, PeerText::default());
    connect.answer(Default::default(), Window::default(), 1, [1; 32], PeerText::default()).unwrap()
}

/// Passes in bytes and lets the page do everything.
fn give(page: &mut Page, bytes: &[u8]) {
    page.inbox.extend(bytes);
    while page.step() {}
}

fn broken(page: &Page) -> &str {
    page.ended.as_ref().expect("the session ended").0.as_deref().expect("by an error")
}

fn new_file(number: u64, path: &str, kind: FileKind) -> Message {
    Message::NewFile(Box::new(NewFile { number: FileNumber(number), ..NewFile::new(path.as_bytes(), kind) }))
}

fn regular(size: u64) -> FileKind {
    FileKind::File { size, holes: Runs::default() }
}

#[test]
fn names_outside_the_request_are_refused_and_nothing_is_opened() {
    let mut page = accepted(&["photos"]);
    let bad = ["../x", "/etc/passwd", "photos/../../x", "a//b", "other", "photos/.haul-x", "photos/\0"];
    for (number, name) in bad.iter().enumerate() {
        give(&mut page, &frame(&new_file(number as u64, name, regular(10))));
        give(&mut page, &frame(&new_file(100 + number as u64, name, FileKind::Directory)));
    }
    give(&mut page, &frame(&new_file(200, "photos/link", FileKind::Symlink { target: b"/etc"[..].into() })));
    give(&mut page, &frame(&new_file(201, "photos/huge", regular(1 << 60))));
    let holes = FileKind::File { size: 1 << 20, holes: Runs::of(0, 3) };
    give(&mut page, &frame(&new_file(202, "photos/holes", holes)));
    let latin1 = NewFile { number: FileNumber(203), ..NewFile::new(&b"photos/\xe4"[..], regular(1)) };
    give(&mut page, &frame(&Message::NewFile(Box::new(latin1))));
    assert!(page.stored.is_empty() && page.directories.is_empty() && page.ended.is_none());
    assert_eq!(page.failures.len(), 2 * bad.len() + 4, "{:#?}", page.failures);
    assert_eq!(page.failures[0], "cannot receive ../x: invalid name: it contains '..'");
    assert!(
        page.failures.iter().any(|text| text == "cannot receive other: not allowed: it was not requested")
    );
    assert!(page.failures.iter().any(|text| text.contains("not UTF-8")));

    give(&mut page, &frame(&new_file(300, "photos/a", regular(100_000))));
    give(&mut page, &frame(&new_file(301, "photos/a", regular(100_000))));
    assert_eq!(page.stored.len(), 1);
    assert!(page.failures.last().unwrap().contains("two files of this name"));
}

#[test]
fn damaged_and_overlong_frames_end_the_session() {
    let good = frame(&Message::KeepAlive);
    let mut damaged = good.clone();
    damaged[9] ^= 1;
    let long = |at: usize, len: u32| {
        let mut header = good.clone();
        header[at..at + 4].copy_from_slice(&len.to_le_bytes());
        let crc = crc32fast::hash(&[&header[..2], &header[4..HEADER_LEN]].concat());
        header[2..4].copy_from_slice(&(((crc >> 16) ^ crc) as u16).to_le_bytes());
        header
    };
    let mut bad_body = frame(&new_file(0, "x", regular(5)));
    bad_body[HEADER_LEN + 3] ^= 1;
    for (bytes, text) in [
        (damaged, "damaged frame header"),
        (long(4, (1 << 20) + 1), "body: 1048577 is more than 1048576"),
        (long(8, (16 << 20) + 1), "payload: 16777217 is more than 16777216"),
        (long(8, 3), "invalid payload"),
        (bad_body, "damaged frame body"),
        (b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), "damaged frame header, or not a haul session"),
    ] {
        let mut page = accepted(&[""]);
        give(&mut page, &bytes);
        assert!(broken(&page).contains(text), "{}", broken(&page));
        assert!(broken(&page).ends_with("connect again to resume"));
        give(&mut page, &good);
    }
}

#[test]
fn changed_terms_and_refusals_end_the_session() {
    let asked = JobOptions {
        object: haul_model::ObjectSize::new(OBJECT).unwrap(),
        settle: Level::Durable,
        ..JobOptions::default()
    };
    let mut version = accept(asked.clone());
    version.version = 9;
    let changed = [
        accept(JobOptions { delete: true, ..asked.clone() }),
        accept(JobOptions { update: Update::Missing, ..asked.clone() }),
        accept(JobOptions { compression: haul_proto::Compression::Auto, ..asked.clone() }),
        accept(JobOptions { keep: haul_proto::Keep::SETUID, ..asked }),
        version,
    ];
    for accept in changed {
        let mut page = Page::new(Client::download(OBJECT, &[""], vec![]), 1);
        give(&mut page, &frame(&Message::Accept(Box::new(accept))));
        assert!(broken(&page).starts_with("cannot start the job: the server changed"), "{}", broken(&page));
    }
    let refuse = Message::Refuse(Reason::new(Why::Denied, "<script>\x1b[2J"));
    let mut page = Page::new(Client::download(OBJECT, &[""], vec![]), 1);
    give(&mut page, &frame(&refuse));
    assert_eq!(broken(&page), "the server refuses the job: not allowed: <script>%1B[2J");
    let mut page = Page::new(Client::upload(OBJECT, ""), 1);
    give(&mut page, &frame(&Message::KeepAlive));
    assert_eq!(broken(&page), "cannot start the job: the server sent KEEPALIVE");
}

#[test]
fn compressed_data_ends_the_session() {
    let mut page = accepted(&[""]);
    give(&mut page, &frame(&new_file(0, "a", regular(100_000))));
    let block = NewBlock {
        number: FileNumber(0),
        attempt: 0,
        object: ObjectIndex(0),
        range: ByteRange::between(0, 1000),
        encoding: Encoding::Zstd,
        payload: 10,
    };
    give(&mut page, &[frame(&Message::NewBlock(block)), vec![0; 10]].concat());
    assert!(broken(&page).contains("compressed data without a request"), "{}", broken(&page));
}

#[test]
fn payload_for_a_source_ends_the_session() {
    let mut page = Page::new(Client::upload(OBJECT, ""), 1).sending(&files(1));
    let mut server = Receiver::new(Store::default());
    upload::run(&mut page, &mut server, Some(100_000));
    let block = NewBlock {
        number: FileNumber(0),
        attempt: 0,
        object: ObjectIndex(0),
        range: ByteRange::between(0, 5000),
        encoding: Encoding::Raw,
        payload: 5000,
    };
    give(&mut page, &[frame(&Message::NewBlock(block)), vec![0; 5000]].concat());
    assert!(broken(&page).contains("protocol violation"), "{}", broken(&page));
}

#[test]
fn flood_of_reports_is_taken_in_bounded_pieces() {
    let mut page = accepted(&[""]);
    let unread = Unread { path: b"x"[..].into(), reason: Why::Io.into() };
    let flood = frame(&Message::Unread(Box::new(unread))).repeat(20_000);
    let mut taken = 0;
    while taken < flood.len() {
        taken += page.client.input(&flood[taken..]);
        assert!(page.client.events.len() <= 4200, "{}", page.client.events.len());
        page.client.events.clear();
    }
    for number in 0..10_000 {
        give(&mut page, &frame(&new_file(number, &format!("f{number}"), regular(1 << 30))));
        if page.ended.is_some() {
            break;
        }
    }
    assert!(broken(&page).contains("more files than the window holds"), "{}", broken(&page));
}

/// While the page does not write, no more than 16 MiB and one input are taken.
#[test]
fn unwritten_bytes_stop_the_input() {
    let mut page = Page::new(Client::download(OBJECT, &[""], vec![]), 1);
    let mut server = Sender::new(&[("large", vec![7; 40 << 20])]);
    server.block = 1 << 16;
    let mut taken = 0;
    let mut held = Vec::new();
    loop {
        server.feed(&page.client.outbox.split_off(0));
        let inbox = std::mem::take(&mut server.outbox);
        let mut rest = &inbox[..];
        while !rest.is_empty() {
            let now = page.client.input(&rest[..rest.len().min(1 << 20)]);
            held.extend(page.client.events.drain(..));
            (taken, rest) = (taken + now, &rest[now..]);
            if now == 0 {
                break;
            }
        }
        if !rest.is_empty() || inbox.is_empty() {
            break;
        }
    }
    let unwritten: usize =
        held.iter().map(|event| if let Event::Write { len, .. } = event { *len } else { 0 }).sum();
    assert!((16 << 20..18 << 20).contains(&unwritten), "{unwritten} of {taken}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A damaged stream ends the session or is repaired, and never writes wrong bytes into a
    /// finished file.
    #[test]
    fn any_damage_of_a_download_is_found(seed in any::<u64>(), damages in 1u64..6) {
        let files = files(seed % 3);
        let mut page = Page::new(Client::download(OBJECT, &[""], vec![]), seed);
        let mut server = Sender::new(&files);
        let mut dice = Dice::new(seed);
        let mut left = damages;
        for _ in 0..100_000 {
            server.feed(&page.client.outbox.split_off(0));
            let len = server.outbox.len();
            if left > 0 && len > 0 && dice.below(3) == 0 {
                let at = dice.below(len as u64) as usize;
                match dice.below(3) {
                    0 => server.outbox[at] ^= 1 << dice.below(8),
                    1 => { server.outbox.remove(at); }
                    _ => server.outbox.insert(at, dice.next() as u8),
                }
                left -= 1;
            }
            page.inbox.extend(server.outbox.drain(..));
            if !page.step() && page.client.outbox.is_empty() {
                break;
            }
        }
        for (name, stored) in &page.stored {
            let wanted = files.iter().find(|file| file.0 == name);
            if stored.kept.is_complete {
                prop_assert!(wanted.is_some_and(|wanted| wanted.1 == stored.bytes), "{}", name);
            }
        }
    }

    /// Random messages of a sink never panic the source, and leave it bounded.
    #[test]
    fn any_damage_of_the_answers_to_an_upload_is_survived(seed in any::<u64>()) {
        let mut page = Page::new(Client::upload(OBJECT, ""), seed).sending(&files(seed % 3));
        let mut server = Receiver::new(Store::default());
        let mut dice = Dice::new(seed);
        upload::run(&mut page, &mut server, Some(dice.below(3_000_000) as usize + 400));
        let mut answers = std::mem::take(&mut server.outbox);
        answers.extend(dice.bytes(64));
        let at = dice.below(answers.len() as u64) as usize;
        answers[at] ^= 1 << dice.below(8);
        give(&mut page, &answers);
        page.client.tick(70_000.0);
        while page.step() {}
        prop_assert!(page.ended.is_some());
    }
}
