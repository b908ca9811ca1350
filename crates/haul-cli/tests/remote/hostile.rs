//! A hostile source against receivers that are processes of their own ([`receivers`]): one script
//! for each thing that a source must not be able to do. A script runs against each receiver that it
//! concerns. Afterwards a correct transfer succeeds.

mod receivers;
mod states;

use super::stopped::wait_until;
use haul_digest::Algorithm;
use haul_lab::misbehaving_peer::scripts::{self, file, name, offered, refused, wrote};
use haul_lab::misbehaving_peer::{block_digest, new_file, plain};
use haul_model::{ByteRange, Level, ObjectIndex};
use haul_proto::{
    Encoding, FileKind, FileNumber, JobOptions, Message, NewBlock, NewFile, Outcome, Runs, Stated, Update,
    Why, Xattr,
};
use receivers::{Job, Liar, OBJECT, Receiver, World, names_in};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// Content of a file of the receiver.
const SECRET: &[u8] = b"\x00s3cret!";

/// Runs a script with the default job against each receiver. `prepare` fills the root, and `check`
/// gets the world after the session with the number of failed names that it must report.
fn against_all(failures: usize, prepare: impl Fn(&World<'_>), lies: fn(&mut Liar)) -> Vec<World<'static>> {
    let mut worlds = Vec::new();
    for receiver in Receiver::ALL {
        let world = World::new(receiver, Job::default());
        prepare(&world);
        let ended = world.session(lies);
        let status = match receiver {
            Receiver::Serve => None,
            _ => Some(i32::from(failures > 0)),
        };
        assert_eq!(ended.status, status, "{receiver:?}: {}", ended.log);
        if matches!(receiver, Receiver::Serve | Receiver::Fetch) && failures > 0 {
            assert!(ended.log.contains(&format!("{failures} failed")), "{receiver:?}: {}", ended.log);
        }
        world.assert_unharmed();
        worlds.push(world);
    }
    worlds
}

#[test]
fn a_receiver_reveals_no_digest_of_its_bytes() {
    for receiver in Receiver::ALL {
        for (update, rule) in [(Update::Digest, "--update=digest"), (Update::Object, "--update=object")] {
            let algorithm = Algorithm::Crc32c;
            let options = JobOptions { update, algorithm, ..Job::default().options };
            let job = Job { options, fetch: &[rule, "--hash=crc32c"], ..Job::default() };
            let world = World::new(receiver, job);
            fs::write(world.root().join("secret"), SECRET).unwrap();
            let mut said = Vec::new();
            world.session(|liar| {
                said = scripts::all_that_is_said(&mut liar.peer, b"secret", SECRET.len() as u64);
            });
            scripts::assert_nothing_told(&said, SECRET, algorithm);
            assert_eq!(fs::read(world.root().join("secret")).unwrap(), SECRET);
            world.assert_unharmed();
        }
    }
}

/// To delete, a source would get a list of names.
#[test]
fn a_ticket_that_only_writes_deletes_nothing() {
    let options = JobOptions { delete: true, ..Job::default().options };
    let world = World::new(Receiver::Serve, Job { options, ..Job::default() });
    fs::write(world.root().join("secret"), SECRET).unwrap();
    assert_eq!(world.refusal().why, Why::Denied);
    assert_eq!(fs::read(world.root().join("secret")).unwrap(), SECRET);
    world.assert_unharmed();
}

#[test]
fn special_files_are_refused() {
    against_all(4, |_| {}, |liar| scripts::special_files(&mut liar.peer));
}

#[test]
fn links_out_of_the_root_are_refused() {
    for world in against_all(5, |_| {}, |liar| scripts::outside_links(&mut liar.peer)) {
        assert_eq!(names_in(&world.root()), ["d", "g", "honest", "i"], "{:?}", world.receiver);
    }
}

#[test]
fn hard_links_lead_only_to_files_of_the_session() {
    let secret = |world: &World<'_>| fs::write(world.root().join("secret"), SECRET).unwrap();
    for world in against_all(2, secret, |liar| scripts::hard_links(&mut liar.peer)) {
        let links = |name: &str| fs::metadata(world.root().join(name)).unwrap().nlink();
        assert_eq!([links("secret"), links("plain"), links("first")], [1, 1, 2], "{:?}", world.receiver);
    }
}

#[test]
fn names_that_haul_trusts_are_refused() {
    for world in against_all(4, |_| {}, |liar| scripts::own_names(&mut liar.peer)) {
        assert_eq!(names_in(&world.root()), ["honest"], "{:?}", world.receiver);
    }
}

#[test]
fn system_attributes_and_set_id_bits_are_left_out() {
    for world in against_all(0, |_| {}, |liar| scripts::system_attributes(&mut liar.peer)) {
        for name in ["d", "f"] {
            let path = world.root().join(name);
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o7000, 0, "{:?}: {name} has mode {mode:o}", world.receiver);
            let open = fs::File::open(&path).unwrap();
            let found = haul_sys::metadata::list_xattrs(haul_sys::metadata::Place::file(&open)).unwrap();
            let allowed = [&b"user.note"[..], b"security.selinux"];
            assert!(found.iter().all(|name| allowed.contains(&name.to_bytes())), "{found:?}");
        }
    }
}

fn fifo(path: &std::path::Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
}

/// A receiver that opened a pipe for reading or writing would wait for its other end.
#[test]
fn a_planted_pipe_blocks_no_receiver() {
    for receiver in Receiver::ALL {
        for (update, in_place, fetch) in [
            (Update::Always, false, &[][..]),
            (Update::Always, true, &["--inplace"]),
            (Update::Digest, false, &["--update=digest"]),
            (Update::Object, false, &["--update=object"]),
        ] {
            let options = JobOptions { update, in_place, ..Job::default().options };
            let world = World::new(receiver, Job { options, fetch, ..Job::default() });
            fifo(&world.root().join("f"));
            world.session(|liar| {
                // The wait for the answer has a limit.
                let ended = wrote(&mut liar.peer, 0, b"f", b"bytes");
                assert!(matches!(ended, Outcome::Done(_) | Outcome::Failed(_)), "{receiver:?}: {ended:?}");
                liar.peer.part(1);
            });
            let path = world.root().join("f");
            if fs::symlink_metadata(&path).unwrap().file_type().is_file() {
                assert_eq!(fs::read(&path).unwrap(), b"bytes");
            } else {
                fs::remove_file(&path).unwrap();
            }
            world.assert_unharmed();
        }
    }
}

/// Another user of the receiving host learns the temporary name of a job from its first run.
#[test]
fn a_pipe_under_a_temporary_name_blocks_no_receiver() {
    for receiver in Receiver::ALL {
        let world = World::new(receiver, Job { resumes: true, ..Job::default() });
        let bytes = vec![7; 2 * OBJECT];
        let is_temporary = |name: &String| name.starts_with(".haul-") && !name.ends_with("-begun");
        let mut temporary = Vec::new();
        world.session(|liar| {
            let peer = &mut liar.peer;
            peer.say(&name(0, b"f", plain(bytes.len() as u64)), &[]);
            peer.say(&object(0, 0, Encoding::Raw), &bytes[..OBJECT]);
            wait_until("a temporary file", || {
                temporary = names_in(&world.root()).into_iter().filter(is_temporary).collect();
                !temporary.is_empty()
            });
        });
        assert_eq!(temporary.len(), 1);
        let planted = world.root().join(&temporary[0]);
        let _ = fs::remove_file(&planted);
        fifo(&planted);
        world.session(|liar| {
            let ended = wrote(&mut liar.peer, 0, b"f", b"bytes");
            assert!(matches!(ended, Outcome::Done(_) | Outcome::Failed(_)), "{receiver:?}: {ended:?}");
            liar.peer.part(1);
        });
        let _ = fs::remove_file(&planted);
        world.assert_unharmed();
    }
}

/// Returns NEW_BLOCK of a whole object.
fn object(number: u64, index: u64, encoding: Encoding) -> Message {
    let range = ByteRange::between(index * OBJECT as u64, (index + 1) * OBJECT as u64);
    let payload = if encoding == Encoding::Zeros { 0 } else { OBJECT as u32 };
    let (number, object) = (FileNumber(number), ObjectIndex(index));
    Message::NewBlock(NewBlock { number, attempt: 0, object, range, encoding, payload })
}

/// Maximum growth of a receiver in KiB, above its limits for metadata and for incomplete objects.
const GROWTH_MAX: u64 = 160 << 10;

/// Size in bytes of the frames that one write of a flood takes.
const WRITE_BYTES: usize = 1 << 20;

/// Sends the messages that `turn` returns for rising numbers, until the receiver ends the session,
/// or `turns` times. The source reads nothing meanwhile. Checks the memory of the receiver.
fn flood(liar: &mut Liar, turns: u64, turn: impl Fn(u64) -> Vec<Message>) {
    let before = liar.memory();
    // A receiver that waits for the source to read may keep the source waiting.
    liar.peer.writer.set_stall(Some(std::time::Duration::from_secs(5)));
    let mut frames = Vec::new();
    for number in 0..turns {
        turn(number).iter().for_each(|message| message.encode(&mut frames));
        if frames.len() < WRITE_BYTES && number + 1 < turns {
            continue;
        }
        let goes_on = liar.peer.writer.write_all(&frames).is_ok();
        frames.clear();
        let grown = liar.memory().saturating_sub(before);
        assert!(grown < GROWTH_MAX, "{grown} KiB more after {number} turns");
        if !goes_on {
            break;
        }
    }
}

/// Announces names that the receiver refuses, each with an answer.
fn flood_of_answers(liar: &mut Liar) {
    flood(liar, 100_000, |number| vec![name(number, b"../x", FileKind::Directory)]);
}

/// Announces files with the maximum of metadata, and sends none of them.
fn flood_of_metadata(liar: &mut Liar) {
    let value = vec![7; 60 << 10].into_boxed_slice();
    let xattr = |at: u32| Xattr { name: format!("user.{at}").into_bytes().into(), value: value.clone() };
    let xattrs: Vec<Xattr> = (0..12).map(xattr).collect();
    flood(liar, 100, |number| {
        let facts = new_file(number, format!("f{number}").as_bytes(), plain(1));
        vec![Message::NewFile(Box::new(NewFile { xattrs: xattrs.clone(), whole: false, ..facts }))]
    });
}

/// Sends objects that the receiver has, of which each needs a report.
fn flood_of_reports(liar: &mut Liar) {
    let kind = FileKind::File { size: 1 << 46, holes: Runs::of(0, 1 << 30) };
    liar.peer.say(&Message::NewFile(Box::new(NewFile { whole: false, ..new_file(0, b"f", kind) })), &[]);
    let stated = Stated::Digest(haul_digest::digest(Algorithm::Blake3, b"x"));
    flood(liar, 100_000, |number| {
        vec![object(0, 2 * number, Encoding::Zeros), block_digest(0, 2 * number, stated)]
    });
}

#[test]
fn floods_of_a_source_take_limited_memory() {
    let floods: [fn(&mut Liar); 3] = [flood_of_answers, flood_of_metadata, flood_of_reports];
    for receiver in Receiver::ALL {
        for (index, lies) in floods.into_iter().enumerate() {
            let world = World::new(receiver, Job::default());
            world.session(|liar| {
                lies(liar);
                if receiver == Receiver::Serve {
                    world.assert_honest(&format!("meanwhile{index}"));
                }
            });
            world.assert_unharmed();
        }
    }
}

/// Regression: a receiver that writes a waybill kept the digests of a file in a list up to its last
/// object, and the log of a file was built in memory up to its last object.
#[test]
fn the_last_object_of_a_large_file_takes_little_memory() {
    for receiver in Receiver::ALL {
        let job = Job {
            resumes: true,
            fetch: &["--waybill=waybill", "--log-mechanism=file"],
            serve: &["--waybills=waybills"],
            ..Job::default()
        };
        let world = World::new(receiver, job);
        world.session(|liar| {
            let before = liar.memory();
            // As large as ext4 allows, with room to spare.
            let last = (8 << 40) / OBJECT as u64 - 1;
            let (size, bytes) = ((last + 1) * OBJECT as u64, vec![7; OBJECT]);
            let facts = new_file(0, b"f", plain(size));
            liar.peer.say(&Message::NewFile(Box::new(NewFile { whole: false, ..facts })), &[]);
            let stated = Stated::Digest(haul_digest::digest(Algorithm::Blake3, &bytes));
            liar.peer.say(&object(0, last, Encoding::Raw), &bytes);
            liar.peer.say(&block_digest(0, last, stated), &[]);
            liar.peer.say(&name(1, b"../x", FileKind::Directory), &[]);
            // Its answer shows that the receiver has read all of it.
            while !matches!(liar.peer.hear(), Message::FileDone(done) if done.number.0 == 1) {}
            let grown = liar.memory().saturating_sub(before);
            assert!(grown < 32 << 10, "{receiver:?}: {grown} KiB more");
            if receiver == Receiver::Serve {
                world.assert_honest("meanwhile");
            }
        });
        world.assert_unharmed();
    }
}

#[test]
fn open_files_of_a_source_leave_descriptors_to_others() {
    const DESCRIPTORS: u32 = 1024;
    for receiver in Receiver::ALL {
        let world = World::new(receiver, Job { descriptors: Some(DESCRIPTORS), ..Job::default() });
        world.session(|liar| {
            let files = u64::from(liar.window.files).min(u64::from(DESCRIPTORS) * 2);
            let zeros = Stated::Digest(haul_digest::digest(Algorithm::Blake3, &[0; OBJECT]));
            for number in 0..files {
                let path = format!("f{number}");
                let facts = new_file(number, path.as_bytes(), plain(2 * OBJECT as u64));
                liar.peer.say(&Message::NewFile(Box::new(facts)), &[]);
                liar.peer.say(&object(number, 0, Encoding::Zeros), &[]);
                liar.peer.say(&block_digest(number, 0, zeros), &[]);
            }
            liar.peer.say(&name(files, b"../x", FileKind::Directory), &[]);
            // Its answer shows that the receiver has read all of it.
            while !matches!(liar.peer.hear(), Message::FileDone(done) if done.number.0 == files) {}
            let open = liar.descriptors();
            assert!(open < DESCRIPTORS as usize, "{receiver:?}: {open} open files");
            if receiver == Receiver::Serve {
                world.assert_honest("meanwhile");
            }
        });
        world.assert_unharmed();
    }
}

/// The quota counts names: a source cannot fill the inodes of the receiver.
#[test]
fn a_quota_limits_the_number_of_names() {
    let world = World::new(Receiver::Serve, Job { serve: &["--quota=64K"], ..Job::default() });
    let ended = world.session(|liar| {
        let mut made = 0;
        for number in 0..300 {
            match offered(&mut liar.peer, number, format!("d{number}").as_bytes(), FileKind::Directory) {
                Outcome::Done(_) => made += 1,
                Outcome::Failed(reason) => assert_eq!(reason.why, Why::Quota, "{reason}"),
                other => panic!("{other:?}"),
            }
        }
        assert!((50..=128).contains(&made), "{made} directories of 512 bytes each in 64 KiB");
        liar.peer.part(300);
    });
    assert!(ended.log.contains("quota"), "{}", ended.log);
    world.assert_unharmed();
}

/// A server could once send files that the fetch had excluded, and names that it had not requested.
#[test]
fn a_fetch_refuses_names_that_it_excluded_or_did_not_request() {
    let excluding = Job { fetch: &["--exclude=*.key", "--exclude=/private"], ..Job::default() };
    let world = World::new(Receiver::Fetch, excluding);
    fs::write(world.root().join("own.key"), SECRET).unwrap();
    let ended = world.session(|liar| {
        let peer = &mut liar.peer;
        for (number, path) in (0..).zip([&b"x.key"[..], b"d/x.key", b"private/x", b"own.key"]) {
            assert_eq!(refused(peer, number, path, plain(3)), Why::Denied);
        }
        assert_eq!(wrote(peer, 4, b"d/x", b"abc"), Outcome::Done(Level::Verified));
        peer.part(5);
    });
    assert_eq!(ended.status, Some(1), "{}", ended.log);
    assert_eq!(names_in(&world.root()), ["d", "own.key"]);
    assert_eq!(fs::read(world.root().join("own.key")).unwrap(), SECRET);
    world.assert_unharmed();

    let world = World::new(Receiver::Fetch, Job { from: ":deep/data", ..Job::default() });
    fs::write(world.root().join(".profile"), SECRET).unwrap();
    let ended = world.session(|liar| {
        let peer = &mut liar.peer;
        for (number, path) in
            (0..).zip([&b".profile"[..], b"deep/data", b".ssh/authorized_keys", b"database"])
        {
            file(number, path, b"evil").iter().for_each(|(message, payload)| peer.say(message, payload));
            assert!(matches!(scripts::end_of(peer, number), Outcome::Failed(_)));
        }
        assert_eq!(wrote(peer, 4, b"data/f", b"bytes"), Outcome::Done(Level::Verified));
        peer.part(5);
    });
    assert_eq!(ended.status, Some(1), "{}", ended.log);
    assert!(ended.log.contains("not requested"), "{}", ended.log);
    assert_eq!(names_in(&world.root()), [".profile", "data"]);
    assert_eq!(fs::read(world.root().join(".profile")).unwrap(), SECRET);
    world.assert_unharmed();
}
