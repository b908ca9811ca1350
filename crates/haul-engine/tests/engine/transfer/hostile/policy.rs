//! The sink's own policy: special files, links out of the root, system attributes, reserved names
//! and filtered names are refused whatever the source announces.

use super::*;
use haul_engine::transfer::{Rule, SinkPolicy};
use haul_lab::misbehaving_peer::scripts;
use haul_proto::Connect;
use haul_sys::metadata::{Place, list_xattrs};

/// Options that ask for everything, as a hostile source does.
fn everything() -> JobOptions {
    JobOptions { keep: Keep(u32::MAX), ..small_objects() }
}

/// Runs `lies` against a sink with the default policy, once by a source that sends and once by a
/// source that answers a fetch of any names. Passes the sink's directory and the results to
/// `check`.
fn strict(lies: impl Fn(&mut MisbehavingPeer) + Sync, check: impl Fn(&Path, Told)) {
    let pair = Pair::new();
    let strict = Offer { policy: SinkPolicy::default(), ..offer(&pair.sink()) };
    check(&pair.sink(), sent_to(&strict, &everything(), &lies));
    let pair = Pair::new();
    check(&pair.sink(), fetched(&pair, &everything(), &[""], &lies));
}

/// A device `b 8 0` with mode 0666, sent to a server that ran as root, once was created.
#[test]
fn special_files_are_refused_unless_the_receiver_accepts_them() {
    strict(scripts::special_files, |sink, told| {
        told.assert_failures(4);
        assert!(told.failed.iter().all(|line| line.contains("--specials")), "{:?}", told.failed);
        assert!(names_in(sink).is_empty());
    });
    let pair = Pair::new();
    let accepting = SinkPolicy { specials: true, ..SinkPolicy::default() };
    let told = sent_to(&Offer { policy: accepting, ..offer(&pair.sink()) }, &everything(), |liar| {
        assert_eq!(offered(liar, 0, b"pipe", FileKind::Fifo), Ended::Done(Level::Verified));
        liar.part(1);
    });
    told.assert_failures(0);
    assert_eq!(names_in(&pair.sink()), ["pipe"]);
}

#[test]
fn links_to_targets_outside_the_root_are_refused() {
    strict(scripts::outside_links, |sink, told| {
        told.assert_failures(5);
        assert_eq!(names_in(sink), ["d", "g", "i"]);
    });
}

#[test]
fn names_of_own_files_are_refused() {
    strict(scripts::own_names, |sink, told| {
        told.assert_failures(4);
        assert!(names_in(sink).is_empty());
    });
}

/// Regression: the holder of a ticket that only writes replaced a file and its stored digest, and
/// `verify` found it intact.
#[test]
fn stored_digests_are_refused_unless_the_receiver_accepts_them() {
    let check = |sink: &Path, told: Told| {
        told.assert_failures(4);
        assert_eq!(names_in(sink), ["f"]);
        let open = fs::File::open(sink.join("f")).unwrap();
        let found = list_xattrs(Place::file(&open)).unwrap();
        let own: Vec<_> = found.iter().filter(|name| name.to_bytes().starts_with(b"user.")).collect();
        assert!(own.iter().all(|name| name.to_bytes() == b"user.note"), "{own:?}");
    };
    let keep = Keep(u32::MAX).without(Keep::STORED_SUMS);
    let pair = Pair::new();
    let strict = Offer { keep, ..offer(&pair.sink()) };
    check(&pair.sink(), sent_to(&strict, &everything(), scripts::stored_digests));
    let pair = Pair::new();
    let asked = JobOptions { keep, ..everything() };
    check(&pair.sink(), fetched(&pair, &asked, &[""], scripts::stored_digests));
    let pair = Pair::new();
    let accepting = Offer { keep: Keep(u32::MAX), ..offer(&pair.sink()) };
    let told = sent_to(&accepting, &everything(), |liar| {
        assert_eq!(wrote(liar, 0, b".haul/sums/f", b"abc"), Ended::Done(Level::Verified));
        assert_eq!(refused(liar, 1, b".haul/.haul-x", plain(3)), Why::Name);
        liar.part(2);
    });
    told.assert_failures(1);
    assert_eq!(fs::read(pair.sink().join(".haul/sums/f")).unwrap(), b"abc");
}

#[test]
fn system_attributes_and_set_id_bits_are_left_out() {
    let pair = Pair::new();
    let keep = Keep(!Keep::SETUID.0);
    let strict = Offer { policy: SinkPolicy::default(), keep, ..offer(&pair.sink()) };
    sent_to(&strict, &everything(), scripts::system_attributes).assert_failures(0);
    for name in ["d", "f"] {
        let path = pair.sink().join(name);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o755, "{name}");
        let open = fs::File::open(&path).unwrap();
        let found = list_xattrs(Place::file(&open)).unwrap();
        let is_known = |name: &std::ffi::CString| name.to_bytes() != b"security.selinux";
        let found: Vec<_> = found.into_iter().filter(is_known).collect();
        assert!(found.iter().all(|name| name.to_bytes() == b"user.note"), "{found:?}");
    }
}

/// A server could once send files that the fetch had excluded, and have them deleted
/// (CVE-2022-29154 is the same defect of rsync).
#[test]
fn a_fetch_refuses_names_that_its_own_filter_excludes() {
    let pair = Pair::new();
    fs::create_dir_all(pair.sink().join("kept")).unwrap();
    for name in ["own.key", "kept/own.key", "extra"] {
        fs::write(pair.sink().join(name), name).unwrap();
    }
    let options = JobOptions { delete: true, ..small_objects() };
    let rules = vec![Rule::Exclude("*.key".into()), Rule::Exclude("/private".into())];
    let job = FetchJob { options, rules, ..FetchJob::new(vec![b"".to_vec()], pair.sink().into()) };
    let told = fetched_by(job, |liar| {
        for (number, path) in (0..).zip([&b"x.key"[..], b"d/x.key", b"private/x", b"own.key"]) {
            assert_eq!(refused(liar, number, path, plain(3)), Why::Denied);
        }
        assert_eq!(refused(liar, 4, b"private", FileKind::Directory), Why::Denied);
        assert_eq!(wrote(liar, 5, b"d/x", b"abc"), Ended::Done(Level::Verified));
        liar.say(&walked(6, true), &[]);
        let mut listed = Vec::new();
        loop {
            match liar.hear() {
                Message::List(list) => {
                    listed.extend(list.names.iter().map(|name| String::from_utf8_lossy(name).into_owned()));
                    let fates = vec![Fate::Gone; list.names.len()];
                    liar.say(&Message::Delete(Box::new(Delete { batch: list.batch, fates })), &[]);
                }
                Message::Names(names) => liar.say(&no_names(names.batch), &[]),
                Message::Bye(_) => break,
                other => panic!("{other:?}"),
            }
        }
        listed.sort();
        assert_eq!(listed, ["d", "extra", "kept", "x"], "the source learns no filtered name");
        liar.say(&bye(), &[]);
        liar.writer.finish().expect("the other end listens");
    });
    let outcome = told.ended.as_ref().expect("a session");
    assert_eq!(outcome.summary.failed, 5, "{:?}", told.failed);
    for name in ["own.key", "kept/own.key"] {
        assert_eq!(fs::read_to_string(pair.sink().join(name)).unwrap(), name, "it stays as it was");
    }
    assert!(!pair.sink().join("extra").exists());
}

/// Once, a source could link any file beneath the root to a second name.
#[test]
fn hard_links_lead_only_to_files_of_the_session() {
    let pair = Pair::new();
    fs::write(pair.sink().join("secret"), "secret").unwrap();
    let told = sent(&pair, &small_objects(), scripts::hard_links);
    told.assert_failures(2);
    assert_eq!(names_in(&pair.sink()), ["first", "plain", "second", "secret"]);
    let links = |name: &str| fs::metadata(pair.sink().join(name)).unwrap().nlink();
    assert_eq!([links("secret"), links("plain"), links("first")], [1, 1, 2]);
}

/// An existing file that the update rule keeps, whatever its contents, is not of this session.
#[test]
fn hard_links_to_kept_files_are_refused() {
    let pair = Pair::new();
    fs::write(pair.sink().join("secret"), "secret").unwrap();
    let options = JobOptions { update: Update::Missing, ..small_objects() };
    let told = sent(&pair, &options, |liar| {
        let facts = NewFile { is_linked: true, ..new_file(0, b"secret", plain(5)) };
        liar.say(&Message::NewFile(Box::new(facts)), &[]);
        assert_eq!(end_of(liar, 0), Ended::Same);
        assert_eq!(refused(liar, 1, b"own", hard_link(b"secret")), Why::Denied);
        liar.part(2);
    });
    told.assert_failures(1);
    assert_eq!(names_in(&pair.sink()), ["secret"]);
}

/// A symbolic link deep in the tree may lead up to the root. Once, a hard link to it at the root
/// led out of the root.
#[test]
fn hard_links_move_no_symbolic_link_out_of_the_root() {
    let lies = |liar: &mut MisbehavingPeer| {
        let facts = new_file(0, b"d/e/deep", link(Path::new("../../x")));
        liar.say(&Message::NewFile(Box::new(NewFile { is_linked: true, ..facts })), &[]);
        assert_eq!(end_of(liar, 0), Ended::Done(Level::Verified));
        assert_eq!(refused(liar, 1, b"out", hard_link(b"d/e/deep")), Why::Denied);
        assert_eq!(offered(liar, 2, b"d/f/in", hard_link(b"d/e/deep")), Ended::Done(Level::Verified));
        liar.part(3);
    };
    strict(lies, |sink, told| {
        told.assert_failures(1);
        assert_eq!(names_in(sink), ["d"]);
    });
}

/// A source can overwrite an existing file in place, all but a few bytes, and guess these: each
/// comparison tells if the guess is right.
#[test]
fn files_in_place_are_not_compared_for_a_ticket_that_may_not_read() {
    for update in [Update::Object, Update::Digest] {
        for may_list in [false, true] {
            let pair = Pair::new();
            fs::write(pair.sink().join("secret"), [7; 100]).unwrap();
            let options = JobOptions { in_place: true, update, ..small_objects() };
            let offer = Offer { may_read: may_list, may_list, ..offer(&pair.sink()) };
            sent_to(&offer, &options, |liar| {
                let facts = NewFile { whole: false, ..new_file(0, b"secret", plain(100)) };
                liar.say(&Message::NewFile(Box::new(facts)), &[]);
                let Message::FileId(id) = liar.hear() else { panic!("FILE_ID comes") };
                assert_eq!(matches!(id.answer, Answer::Take { .. }), !may_list, "{update:?}: {id:?}");
            });
        }
    }
}

#[test]
fn a_destination_with_a_name_of_own_files_is_refused() {
    let pair = Pair::new();
    let (ours, theirs) = StreamLane::pair();
    let (offer, ears) = (offer(&pair.sink()), Ears::default());
    let ended = std::thread::scope(|scope| {
        let ears = &ears;
        let answering = scope.spawn(move || {
            let (stop, tally) = (AtomicBool::new(false), Tally::default());
            let run_context = RunContext { stop: &stop, tally: &tally, report: ears, receipt: None };
            answer(theirs.into(), &mut || None, &offer, &run_context)
        });
        let mut peer = MisbehavingPeer::at(ours);
        let operands = vec![b"a/.haul-fetched-0"[..].into()];
        peer.say(&Message::Connect(Box::new(Connect { operands, ..connect(&small_objects()) })), &[]);
        assert!(matches!(peer.hear(), Message::Refuse(reason) if reason.why == Why::Name));
        answering.join().unwrap()
    });
    assert!(ended.is_err() && names_in(&pair.sink()).is_empty());
}
