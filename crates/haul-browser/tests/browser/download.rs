//! Downloads from `haul_proto::Source`.

use crate::client::{Client, JOB};
use crate::dice::Dice;
use crate::fetched_from::Sender;
use crate::page::Page;
use crate::upload::{OBJECT, files};
use haul_digest::{Algorithm, digest};
use haul_proto::{End, Features};

/// Runs the session until nothing happens any more, or until the client has received `bytes`.
pub(crate) fn run(page: &mut Page, server: &mut Sender, bytes: Option<usize>) {
    let mut received = 0;
    loop {
        server.feed(&page.client.outbox.split_off(0));
        let rest = bytes.map_or(server.outbox.len(), |bytes| (bytes - received).min(server.outbox.len()));
        page.inbox.extend(server.outbox.drain(..rest));
        received += rest;
        if !page.step() && page.client.outbox.is_empty() {
            return;
        }
    }
}

fn assert_arrived(page: &Page, server: &Sender, files: &[(&str, Vec<u8>)]) {
    assert_eq!(page.ended.as_ref().map(|ended| ended.0.clone()), Some(None), "{:?}", page.failures);
    assert!(matches!(server.end, Some(End::Finished { .. })), "{:?}", server.end);
    for (name, bytes) in files.iter().filter(|(name, _)| !name.ends_with('/')) {
        let stored = &page.stored[*name];
        assert!(stored.bytes == *bytes, "{name}");
        let wanted = haul_browser::hex(digest(Algorithm::Blake3, bytes).as_bytes());
        assert_eq!((stored.kept.is_complete, &stored.digest), (true, &wanted), "{name}");
    }
}

#[test]
fn download_of_any_sizes_arrives_with_its_digests() {
    for seed in 0..8 {
        let mut files = files(seed);
        files.push(("no files/", Vec::new()));
        let mut page = Page::new(Client::download(OBJECT, &[""], vec![]), seed);
        let mut server = Sender::new(&files);
        run(&mut page, &mut server, None);
        assert_arrived(&page, &server, &files);
        assert_eq!(page.directories, ["no files"]);
        assert_eq!(page.stored["many"].kept.objects.len(), 17);
        let connect = server.connect.unwrap();
        assert_eq!((connect.job, connect.resumes), (JOB, false));
    }
}

#[test]
fn flipped_bit_is_rejected_and_fetched_again() {
    let files = files(1);
    for flip in 0..6 {
        let mut page = Page::new(Client::download(OBJECT, &[""], vec![]), flip as u64);
        let mut server = Sender::new(&files);
        server.flip = Some(flip);
        run(&mut page, &mut server, None);
        assert_arrived(&page, &server, &files);
        assert_eq!(page.ended.unwrap().1.again, 1);
    }
}

#[test]
fn object_that_never_arrives_whole_fails_its_file_only() {
    let files = vec![("bad", vec![3; 9000]), ("good", vec![4; 9000])];
    let mut page = Page::new(Client::download(OBJECT, &[""], vec![]), 1);
    let mut server = Sender::new(&files);
    // The first payload is damaged each time: the file is the first of the walk.
    for _ in 0..200 {
        server.flip = Some(server.payloads());
        server.feed(&page.client.outbox.split_off(0));
        page.inbox.extend(server.outbox.drain(..));
        while page.step() {}
    }
    let damaged = page.failures.iter().filter(|text| text.contains("checksum mismatch")).count();
    assert!(damaged >= 1, "{:?}", page.failures);
    assert!(page.stored.values().all(|stored| !stored.kept.is_complete || stored.bytes == vec![4; 9000]));
}

#[test]
fn holes_become_zeros() {
    let mut bytes = vec![0; 500_000];
    bytes[200_000..200_100].fill(7);
    let files = vec![("sparse", bytes)];
    let mut page = Page::new(Client::download(OBJECT, &["sparse"], vec![]), 1);
    let mut server = Sender::new(&files);
    server.has_holes = true;
    server.block = 1000;
    run(&mut page, &mut server, None);
    assert_arrived(&page, &server, &files);
    assert!(server.sent_bytes < 3000);
}

#[test]
fn download_after_a_lost_lane_fetches_only_the_rest() {
    let files = vec![("large", Dice::new(5).bytes(4_000_000)), ("small", vec![1; 900])];
    for cut in [100_000, 1_500_000, 3_900_000, 4_001_000] {
        let mut page = Page::new(Client::download(OBJECT, &["large", "small"], vec![]), cut as u64);
        let mut server = Sender::new(&files);
        run(&mut page, &mut server, Some(cut));
        page.client.lane_lost();
        while page.step() {}
        assert!(page.ended.take().unwrap().0.unwrap().contains("connection lost"));
        let kept = page.kept();
        let had: u64 = kept.iter().map(|(_, kept)| if kept.is_complete { kept.size } else { 0 }).sum();
        let parts: u64 = kept
            .iter()
            .filter(|(_, kept)| !kept.is_complete)
            .map(|(_, kept)| kept.objects.len() as u64 * OBJECT)
            .sum();

        let stored = page.stored;
        let mut page = Page::new(Client::download(OBJECT, &["large", "small"], kept), cut as u64);
        page.stored = stored;
        let mut server = Sender::new(&files);
        run(&mut page, &mut server, None);
        assert_arrived(&page, &server, &files);
        assert!(server.connect.as_ref().unwrap().resumes || had + parts == 0);
        assert_eq!(server.sent_bytes, 4_000_900 - had - parts, "only the rest is sent");
    }
}

#[test]
fn changed_file_of_an_earlier_run_is_fetched_again() {
    let files = vec![("f", vec![5; 200_000])];
    let mut page = Page::new(Client::download(OBJECT, &["f"], vec![]), 1);
    run(&mut page, &mut Sender::new(&files), None);
    let mut kept = page.kept();
    kept[0].1.mtime += 1.0;
    let mut page = Page::new(Client::download(OBJECT, &["f"], kept), 1);
    let mut server = Sender::new(&files);
    run(&mut page, &mut server, None);
    assert_arrived(&page, &server, &files);
    assert_eq!(server.sent_bytes, 200_000);
}

#[test]
fn full_disk_fails_the_file_and_the_others_arrive() {
    let files = files(4);
    let mut page = Page::new(Client::download(OBJECT, &[""], vec![]), 4);
    page.unwritable = vec!["dir/deep/large ä".into()];
    let mut server = Sender::new(&files);
    run(&mut page, &mut server, None);
    let others: Vec<_> = files.iter().filter(|file| file.0 != "dir/deep/large ä").cloned().collect();
    assert_arrived(&page, &server, &others);
    assert_eq!(page.failures, ["cannot receive dir/deep/large ä: input/output error: the disk is full"]);
    assert_eq!(page.ended.unwrap().1.failed, 1);
}

#[test]
fn more_paths_than_connect_holds_follow_in_operands() {
    let names: Vec<String> = (0..300).map(|number| format!("dir/{number}")).collect();
    let paths: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut page = Page::new(Client::download(OBJECT, &paths, vec![]), 4);
    let mut server = Sender::new(&[("7", vec![1; 10])]);
    run(&mut page, &mut server, None);
    assert_arrived(&page, &server, &[("7", vec![1; 10])]);
    let connect = server.connect.unwrap();
    assert!(connect.needs.has(Features::OPERANDS) && connect.operands.is_empty());
    assert_eq!(server.paths.len(), 1);
}
