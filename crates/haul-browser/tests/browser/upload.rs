//! Uploads to `haul_proto::Sink`.

use crate::client::{Client, JOB};
use crate::dice::Dice;
use crate::page::Page;
use crate::sent_to::{Receiver, Store};
use haul_digest::{Algorithm, Blake3File, Digest, digest};
use haul_model::{Level, ObjectIndex, ObjectSize};
use haul_proto::{End, Outcome, Why};
use std::collections::BTreeMap;

pub(crate) const OBJECT: u64 = 64 << 10;

/// Sizes around the limits of objects and blocks.
pub(crate) fn files(seed: u64) -> Vec<(&'static str, Vec<u8>)> {
    let mut dice = Dice::new(seed);
    let sizes = [
        ("empty", 0),
        ("dir/one", 1),
        ("dir/object", 65_536),
        ("dir/more", 65_537),
        ("dir/deep/large ä", 3_000_000),
        ("<b>&.html", 70_000),
        ("many", 1_048_577),
    ];
    sizes.iter().map(|(name, size)| (*name, dice.bytes(*size))).collect()
}

/// Runs the session until nothing happens any more, or until the server has received `bytes`.
pub(crate) fn run(page: &mut Page, server: &mut Receiver, bytes: Option<usize>) {
    let mut sent = 0;
    loop {
        let outbox = std::mem::take(&mut page.client.outbox);
        let rest = bytes.map_or(outbox.len(), |bytes| (bytes - sent).min(outbox.len()));
        server.feed(&outbox[..rest]);
        sent += rest;
        if bytes == Some(sent) {
            return;
        }
        page.inbox.extend(server.outbox.drain(..));
        if !page.step() && page.client.outbox.is_empty() && server.outbox.is_empty() {
            return;
        }
    }
}

fn assert_arrived(page: &Page, server: &Receiver, files: &[(&str, Vec<u8>)]) {
    assert_eq!(page.ended.as_ref().map(|ended| ended.0.clone()), Some(None), "{:?}", page.failures);
    assert!(matches!(server.end, Some(End::Finished { .. })), "{:?}", server.end);
    for (name, bytes) in files.iter().filter(|(name, _)| !name.ends_with('/')) {
        assert!(server.store.files.get(*name) == Some(bytes), "{name}");
    }
}

/// Returns the digest of a file of several objects from the events of its objects.
fn combined(name: &str, size: usize, hashed: &BTreeMap<(String, u64), Digest>) -> Option<Digest> {
    let mut file = Blake3File::new(size as u64, ObjectSize::new(OBJECT).unwrap());
    for ((_, object), digest) in hashed.iter().filter(|((of, _), _)| of == name) {
        assert!(file.add(ObjectIndex(*object), digest));
    }
    file.finish().ok()
}

#[test]
fn upload_of_any_sizes_arrives_with_its_digests() {
    for seed in 0..8 {
        let mut files = files(seed);
        files.push(("no files/", Vec::new()));
        let mut page = Page::new(Client::upload(OBJECT, "into"), seed).sending(&files);
        let mut server = Receiver::new(Store::default());
        run(&mut page, &mut server, None);
        assert_arrived(&page, &server, &files);
        assert_eq!(server.store.directories, ["no files"]);
        for (name, bytes) in files.iter().filter(|(name, _)| !name.ends_with('/')) {
            let (outcome, found) = &page.outcomes[*name];
            assert_eq!(*outcome, Outcome::Done(Level::Durable), "{name}");
            let wanted = haul_browser::hex(digest(Algorithm::Blake3, bytes).as_bytes());
            assert_eq!(found.as_deref().unwrap_or(&wanted), wanted, "{name}");
            assert!(found.is_some() || bytes.is_empty(), "{name}");
            if bytes.len() as u64 > OBJECT {
                let digest = combined(name, bytes.len(), &page.hashed).unwrap();
                assert_eq!(haul_browser::hex(digest.as_bytes()), wanted, "{name}");
            } else {
                assert!(!page.hashed.keys().any(|(of, _)| of == name), "{name}");
            }
        }
        let connect = server.connect.unwrap();
        assert_eq!((connect.job, &connect.operands[0][..]), (JOB, &b"into"[..]));
    }
}

#[test]
fn flipped_bit_is_rejected_and_the_object_sent_again() {
    let files = files(1);
    for flip in 0..6 {
        let mut page = Page::new(Client::upload(OBJECT, ""), flip as u64).sending(&files);
        let mut server = Receiver::new(Store::default());
        server.flip = Some(flip);
        run(&mut page, &mut server, None);
        assert_arrived(&page, &server, &files);
        assert_eq!(page.ended.unwrap().1.again, 1);
    }
}

#[test]
fn upload_after_a_lost_lane_sends_only_the_rest() {
    let files = vec![("large", Dice::new(5).bytes(4_000_000)), ("small", vec![1; 900])];
    let mut seen_part = false;
    for cut in [40_000, 700_000, 2_500_000, 3_900_000] {
        let mut page = Page::new(Client::upload(OBJECT, ""), cut as u64).sending(&files);
        let mut server = Receiver::new(Store::default());
        run(&mut page, &mut server, Some(cut));
        page.client.lane_lost();
        while page.step() {}
        let ended = page.ended.unwrap().0.unwrap();
        assert!(ended.contains("connect again to resume"), "{ended}");
        let mut hashed = page.hashed;

        let store = server.cut();
        let durable = store.parts.get("large").map_or(0, |(_, log)| log.count());
        seen_part |= durable > 10;
        let mut page = Page::new(Client::upload(OBJECT, ""), cut as u64).sending(&files);
        let mut server = Receiver::new(store);
        run(&mut page, &mut server, None);
        assert_arrived(&page, &server, &files);
        assert_eq!(page.resumes, !server.store.parts.is_empty() || durable > 0);
        assert_eq!(page.read_bytes, 4_000_900 - durable * OBJECT, "only the rest is read");
        hashed.extend(page.hashed);
        assert_eq!(combined("large", 4_000_000, &hashed), Some(digest(Algorithm::Blake3, &files[0].1)));
    }
    assert!(seen_part);
}

/// A server that does not trust its data compares it by digests under the key of the session.
#[test]
fn server_compares_objects_and_whole_files_by_digests_of_the_client() {
    let bytes = Dice::new(8).bytes(1_000_000);
    let mut page = Page::new(Client::upload(OBJECT, ""), 1).sending(&[("large", bytes.clone())]);
    let mut server = Receiver::new(Store::default());
    run(&mut page, &mut server, Some(800_000));
    let mut store = server.cut();
    let part = store.parts.get_mut("large").unwrap();
    part.0[70_000] ^= 1;
    let wrong = part.1.clone();
    assert!(wrong.count() > 5);

    let mut page = Page::new(Client::upload(OBJECT, ""), 2).sending(&[("large", bytes.clone())]);
    let mut server = Receiver::new(store);
    server.compares = true;
    run(&mut page, &mut server, None);
    assert_arrived(&page, &server, &[("large", bytes.clone())]);
    let sent = 1_000_000 - (wrong.count() - 1) * OBJECT;
    assert_eq!(page.read_bytes, wrong.count() * OBJECT + sent, "one object differed");

    for (is_same, outcome) in [(true, Outcome::Same), (false, Outcome::Done(Level::Durable))] {
        let mut store = Store::default();
        let mut here = bytes.clone();
        here[999_999] ^= u8::from(!is_same);
        store.files.insert("large".into(), here);
        store.files.insert("empty".into(), Vec::new());
        let files = [("large", bytes.clone()), ("empty", Vec::new())];
        let mut page = Page::new(Client::upload(OBJECT, ""), 3).sending(&files);
        let mut server = Receiver::new(store);
        server.compares_whole = true;
        run(&mut page, &mut server, None);
        assert_arrived(&page, &server, &files);
        assert_eq!(page.outcomes["large"].0, outcome);
        assert_eq!(page.outcomes["empty"].0, Outcome::Same);
    }
}

#[test]
fn unreadable_and_changing_files_fail_and_the_others_arrive() {
    let files = files(3);
    let mut page = Page::new(Client::upload(OBJECT, ""), 3).sending(&files);
    page.unreadable = vec!["dir/one".into(), "dir/deep/large ä".into()];
    let mut server = Receiver::new(Store::default());
    run(&mut page, &mut server, None);
    let readable: Vec<_> =
        files.iter().filter(|(name, _)| !page.unreadable.contains(&(*name).to_owned())).cloned().collect();
    assert_arrived(&page, &server, &readable);
    for name in &page.unreadable {
        let Outcome::Failed(reason) = &page.outcomes[name].0 else { panic!("{name}") };
        assert_eq!(reason.to_string(), "input/output error: the disk is broken");
        assert!(!server.store.files.contains_key(name));
    }

    let mut page = Page::new(Client::upload(OBJECT, ""), 4).sending(&files);
    page.changes = true;
    let mut server = Receiver::new(Store::default());
    run(&mut page, &mut server, None);
    assert!(server.store.files.is_empty());
    for (outcome, _) in page.outcomes.values() {
        assert!(matches!(outcome, Outcome::Failed(reason) if reason.why == Why::Changed), "{outcome:?}");
    }
}

#[test]
fn names_that_no_server_accepts_fail_in_the_browser() {
    let names = ["../x", "/etc/x", "a//b", ".haul-0-1", "a/./b", ""];
    let mut files: Vec<_> = names.iter().map(|name| (*name, vec![1; 10])).collect();
    files.push(("good", vec![2; 10]));
    let mut page = Page::new(Client::upload(OBJECT, ""), 1).sending(&files);
    let mut server = Receiver::new(Store::default());
    run(&mut page, &mut server, None);
    assert_arrived(&page, &server, &files[6..]);
    assert_eq!((page.failures.len(), server.store.files.len()), (6, 1));
    assert_eq!(page.failures[0], "cannot send ../x: invalid name: it contains '..'");
    assert_eq!(page.ended.unwrap().1.unread, 6);
}

#[test]
fn stopped_upload_tells_the_server() {
    let files = files(2);
    let mut page = Page::new(Client::upload(OBJECT, ""), 2).sending(&files);
    let mut server = Receiver::new(Store::default());
    run(&mut page, &mut server, Some(500_000));
    page.client.outbox.clear();
    page.client.stop();
    server.feed(&page.client.outbox.split_off(0));
    while page.step() {}
    assert_eq!(page.ended.unwrap().0.as_deref(), Some("stopped"));
}

#[test]
fn silent_server_ends_the_session() {
    let mut page = Page::new(Client::upload(OBJECT, ""), 1);
    page.client.tick(31_000.0);
    while page.step() {}
    assert!(page.ended.unwrap().0.unwrap().contains("does not answer"));

    let mut page = Page::new(Client::upload(OBJECT, ""), 1).sending(&[]);
    let mut server = Receiver::new(Store::default());
    server.feed(&page.client.outbox.split_off(0));
    page.inbox.extend(server.outbox.drain(..));
    while !page.inbox.is_empty() {
        page.step();
    }
    page.client.outbox.clear();
    page.client.tick(11_000.0);
    assert!(!page.client.outbox.is_empty(), "the lane is kept alive");
    page.client.tick(50_000.0);
    while page.step() {}
    assert!(page.ended.unwrap().0.unwrap().contains("silent"));
}
