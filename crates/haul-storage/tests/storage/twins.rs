//! The local file system and the storage in memory: the same calls have the same results.

use haul_lab::mounts::{FsKind, shared_dir};
use haul_lab::needs::{Need, met_or_skip};
use haul_model::ByteRange;
use haul_storage::memory::MemoryStorage;
use haul_storage::{
    Create, Dir, FileKind, Follow, Metadata, Missing, Name, Node, Offload, Remove, Replace, SinkFile,
    SourceFile, Stat, SyncWhat, Tag, Times, Timespec, local,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

/// Maximum number of bytes that a call writes, clears or adds.
const BYTES_MAX: u64 = 20_000;

/// Both storages: the local one first.
type Both<T> = [T; 2];

/// A call, with numbers that choose its subjects.
#[derive(Clone, Copy, Debug)]
struct Step {
    call: u8,
    /// Open directories, and open files.
    subjects: [u8; 2],
    names: [u8; 2],
    /// Offset and length.
    range: (u64, u64),
    flag: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let subjects = [any::<u8>(), any::<u8>()];
    (0..30_u8, subjects, [0..4_u8, 0..4], (0..BYTES_MAX, 0..BYTES_MAX), any::<bool>())
        .prop_map(|(call, subjects, names, range, flag)| Step { call, subjects, names, range, flag })
}

/// Handles of both storages that are open.
struct World {
    dirs: Vec<Both<Arc<dyn Dir>>>,
    sinks: Vec<Both<Arc<dyn SinkFile>>>,
    sources: Vec<Both<Arc<dyn SourceFile>>>,
    /// Number of temporary files so far: each has a name of its own.
    temporaries: u64,
}

/// Returns an element of a list that is not empty, by any number.
fn pick<T>(list: &[T], number: u8) -> Option<&T> {
    list.get(usize::from(number) % list.len().max(1))
}

fn name(number: u8) -> Name {
    Name::new([b'a' + number]).expect("a name")
}

/// Returns the part of the metadata that does not depend on the storage.
fn visible(stat: &Stat) -> String {
    let (kind, mode) = (stat.kind, stat.mode);
    match kind {
        FileKind::Directory => format!("{kind:?} {mode:o}"),
        _ => format!("{kind:?} {mode:o} {} bytes, {} names", stat.size, stat.nlink),
    }
}

/// Returns a result as text: an error by its kind.
fn shown<T: Debug>(result: io::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        // A link that is not followed may cause either error.
        Err(error) if error.raw_os_error() == Some(40) => format!("{:?}", ErrorKind::NotADirectory),
        // The kernel looks first whether the entry that is to be replaced is above the other one.
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
            format!("{:?}", ErrorKind::IsADirectory)
        }
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// Returns the bytes of a file as runs of equal ones.
fn read_all(file: &dyn SourceFile) -> io::Result<Vec<(u8, usize)>> {
    let mut bytes = vec![0; file.stat()?.size as usize + 1];
    let got = file.read_at(0, &mut bytes)?;
    Ok(bytes[..got].chunk_by(|one, other| one == other).map(|run| (run[0], run.len())).collect())
}

fn entries(dir: &dyn Dir) -> io::Result<Vec<(Vec<u8>, Option<FileKind>)>> {
    let (mut list, mut all) = (dir.list()?, Vec::new());
    while list.next(3, &mut all)? {}
    let mut all: Vec<_> = all.iter().map(|entry| (entry.name.as_bytes().to_vec(), entry.kind)).collect();
    all.sort_by(|one: &(Vec<u8>, _), other| one.0.cmp(&other.0));
    Ok(all)
}

impl World {
    /// Makes the call in both storages. Returns both results.
    fn call(&mut self, step: Step) -> Both<String> {
        let Step { call, subjects, names, range: (at, len), flag } = step;
        let (first, second) = (name(names[0]), name(names[1]));
        let tag = |number| Tag { session: 1, number };
        let replace = if flag { Replace::Yes } else { Replace::No };
        let follow = if flag { Follow::Yes } else { Follow::No };
        let [dirs, others] = subjects.map(|number| pick(&self.dirs, number).expect("a root").clone());
        let in_dir =
            |act: &dyn Fn(&dyn Dir, &dyn Dir) -> String| [0, 1].map(|of| act(&*dirs[of], &*others[of]));
        match call {
            0 => in_dir(&|dir, _| shown(dir.make(&first, &Node::Directory { mode: 0o700 }))),
            1 => in_dir(&|dir, _| shown(dir.make(&first, &Node::Link { target: second.as_bytes() }))),
            2 => in_dir(&|dir, _| {
                shown(dir.make(&first, &Node::Special { kind: FileKind::Fifo, mode: 0o600, rdev: 0 }))
            }),
            3 => in_dir(&|dir, other| shown(dir.link(&first, follow, other, &second))),
            4 | 5 => in_dir(&|dir, other| shown(dir.rename(&first, other, &second, replace))),
            6 => in_dir(&|dir, other| shown(dir.exchange(&first, other, &second))),
            7 => in_dir(&|dir, _| shown(dir.remove(&first, Remove::File))),
            8 => in_dir(&|dir, _| shown(dir.remove(&first, Remove::Directory))),
            9 => in_dir(&|dir, _| shown(dir.stat_at(&first, follow).map(|found| visible(&found)))),
            10 => in_dir(&|dir, _| shown(entries(dir))),
            11 => in_dir(&|dir, _| shown(dir.hold(&first).and_then(|held| held.read_link()))),
            12 => in_dir(&|dir, _| {
                let set = dir.hold(&first).and_then(|held| {
                    held.set_mode(0o700 | len as u32 & 0o77)?;
                    held.stat()
                });
                shown(set.map(|found| visible(&found)))
            }),
            13 | 14 => in_dir(&|dir, _| {
                let held = match dir.hold(&first) {
                    Ok(held) => held,
                    Err(error) => return shown::<()>(Err(error)),
                };
                let set = || held.set_attribute(c"user.a", &len.to_le_bytes()).map(|()| (None, true));
                let remove = || Ok((held.attribute(c"user.a")?, held.remove_attribute(c"user.a")?));
                shown(if call == 13 { set() } else { remove() })
            }),
            15 | 16 => {
                let missing = if call == 15 { Missing::Fail } else { Missing::Create { mode: 0o700 } };
                let opened = [0, 1].map(|of| dirs[of].dir(&first, follow, missing));
                admit(&mut self.dirs, opened)
            }
            17 => {
                let opened = [0, 1].map(|of| dirs[of].source(&first, follow));
                admit(&mut self.sources, opened)
            }
            18..=21 => {
                let create = match call {
                    18 => Create::New { mode: 0o600 },
                    19 => Create::InPlace {
                        missing: if names[1] % 2 == 0 {
                            Missing::Fail
                        } else {
                            Missing::Create { mode: 0o600 }
                        },
                        follow,
                    },
                    20 => {
                        self.temporaries += 1;
                        Create::Temporary(tag(self.temporaries))
                    }
                    _ => Create::Resume(tag(self.temporaries - u64::from(names[1]).min(self.temporaries))),
                };
                let opened = [0, 1].map(|of| dirs[of].sink(&first, create));
                admit(&mut self.sinks, opened)
            }
            22 => self.reader(subjects[0]),
            23 => {
                let Some(sources) = pick(&self.sources, subjects[0]) else { return Default::default() };
                let data = |file: &dyn SourceFile| {
                    (file.changed_since(&haul_storage::Version::of(file.opened())).is_ok(), read_all(file))
                };
                [0, 1].map(|of| {
                    let (is_known, bytes) = data(&*sources[of]);
                    format!("{is_known} {}", shown(bytes))
                })
            }
            _ => self.write(step, at, len, replace),
        }
    }

    fn reader(&mut self, subject: u8) -> Both<String> {
        let Some(sinks) = pick(&self.sinks, subject) else { return Default::default() };
        let opened = [0, 1].map(|of| sinks[of].reader());
        admit(&mut self.sources, opened)
    }

    /// Makes a call of a file that is written.
    fn write(&self, step: Step, at: u64, len: u64, replace: Replace) -> Both<String> {
        let Some(sinks) = pick(&self.sinks, step.subjects[0]) else { return Default::default() };
        let range = ByteRange::between(at, at + len);
        let act = |sink: &dyn SinkFile, of: usize| match step.call {
            24 => shown(sink.write_at(at, &vec![step.names[0] + 1; len as usize])),
            25 => shown(sink.clear(range, &AtomicBool::new(false))),
            26 => shown(sink.set_len(len)),
            27 => {
                let Some(source) = pick(&self.sources, step.subjects[1]) else { return String::new() };
                let size = source[of].stat().map_or(0, |found| found.size);
                let range = ByteRange::between(at.min(size), (at + len).min(size));
                // tmpfs shares no blocks. The bytes of both are the same if both copy.
                shown(sink.offload(&*source[of], range, at, Offload::Copy).map(drop))
            }
            28 => {
                let times = Times { atime: None, mtime: Some(Timespec { sec: at as i64, nsec: 0 }) };
                let finished =
                    sink.finish(len, &Metadata { mode: Some(0o640), times, ..Metadata::default() });
                shown(finished.map_err(io::Error::from).and_then(|()| sink.sync(SyncWhat::All)))
            }
            _ => {
                let ended = if step.flag { sink.commit(replace) } else { sink.abandon() };
                format!("{} {} {}", shown(ended), sink.is_committed(), sink.is_new())
            }
        };
        [0, 1].map(|of| act(&*sinks[of], of) + &shown(sinks[of].stat().map(|found| visible(&found))))
    }

    /// Compares all bytes and names below the roots.
    fn compare(&self) {
        let trees = [0, 1].map(|of| tree(&*self.dirs[0][of], 0));
        assert_eq!(trees[0], trees[1]);
    }
}

/// Adds handles that both storages opened. Returns both results.
fn admit<T: ?Sized>(open: &mut Vec<Both<Arc<T>>>, opened: Both<io::Result<Arc<T>>>) -> Both<String> {
    let texts = opened.each_ref().map(|opened| match opened {
        Ok(_) => "open".to_owned(),
        Err(error) => shown::<()>(Err(error
            .raw_os_error()
            .map_or_else(|| error.kind().into(), io::Error::from_raw_os_error))),
    });
    if let [Ok(local), Ok(memory)] = opened {
        open.push([local, memory]);
    }
    texts
}

/// Describes everything in a directory.
fn tree(dir: &dyn Dir, depth: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for (bytes, kind) in entries(dir).expect("listed") {
        let name = Name::new(bytes).expect("a name");
        let found = dir.stat_at(&name, Follow::No).expect("found");
        let more = match kind {
            Some(FileKind::Regular) => shown(dir.source(&name, Follow::No).and_then(|file| read_all(&*file))),
            _ => String::new(),
        };
        lines.push(format!("{depth} {name} {} {more}", visible(&found)));
        if kind == Some(FileKind::Directory) {
            lines.extend(tree(&*dir.dir(&name, Follow::No, Missing::Fail).expect("opened"), depth + 1));
        }
    }
    lines
}

/// Makes the same random calls in an empty directory and in memory.
fn same_calls_have_the_same_results(place: &str, cases: u32, room: impl Fn() -> TempDir) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let calls = proptest::collection::vec(step(), 1..120);
    let compared = TestRunner::new(config).run(&calls, |steps| {
        let home = room();
        let roots = [local::open(home.path(), Follow::No).expect("opened"), MemoryStorage::new(7).root()];
        let mut world = World { dirs: vec![roots], sinks: Vec::new(), sources: Vec::new(), temporaries: 0 };
        for step in steps {
            let [local, memory] = world.call(step);
            prop_assert_eq!(local, memory, "{:?}: local left, memory right", step);
        }
        world.compare();
        Ok(())
    });
    compared.unwrap_or_else(|failure| panic!("{place}: {failure}"));
}

#[test]
fn same_calls_on_tmpfs_have_the_same_results() {
    if met_or_skip(&[Need::Path("/dev/shm")]) {
        same_calls_have_the_same_results("tmpfs", 300, || {
            tempfile::tempdir_in("/dev/shm").expect("a folder")
        });
    }
}

#[test]
fn same_calls_on_other_file_systems_have_the_same_results() {
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs, FsKind::Overlay] {
        if shared_dir(kind).is_some() {
            same_calls_have_the_same_results(&format!("{kind:?}"), 30, || shared_dir(kind).expect("mounted"));
        }
    }
}
