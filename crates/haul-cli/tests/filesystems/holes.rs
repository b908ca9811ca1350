//! Holes on each kind of file system: the data that is read and written, and the allocated space. A
//! digest is always that of the dense data.

use super::fixture::{ToolOrigin, Twins, assert_alike, cp, test_dirs};
use haul_lab::mounts::{FsKind, shared_dir};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::random::{Random, soak_seed};
use haul_lab::snapshot::{Facets, Kind, Snapshot};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

/// Maximum difference of the allocated space from GNU's copy, in bytes: file systems allocate space
/// in different steps.
const SLACK: u64 = 128 << 10;

/// Creates the source files. Some have more than one object of 4 MiB.
fn sources(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let mut bytes = vec![0; 3 << 20];
    Random::from_seed(5).fill(&mut bytes);
    let file = |name: &str| File::create(dir.join(name)).unwrap();
    let write = |name: &str, len: u64, places: &[(u64, usize)]| {
        let file = file(name);
        for &(at, count) in places {
            file.write_all_at(&bytes[..count], at).unwrap();
        }
        file.set_len(len).unwrap();
    };
    write("all hole", 6 << 20, &[]);
    write("hole at both ends", 13 << 20, &[(4 << 20, 1 << 20), (8 << 20, 70_000)]);
    write("hole within", 3 << 20, &[(0, 65_536), (2 << 20, 1 << 20)]);
    write("hole at the end", (1 << 20) + 7, &[(0, 70_001)]);
    write("odd borders", 900_001, &[(1, 100), (200_000, 100_003), (899_999, 2)]);
    // The same data, completely written.
    for name in ["all hole", "hole at both ends", "hole within"] {
        let dense = fs::read(dir.join(name)).unwrap();
        fs::write(dir.join(format!("zeros of {name}")), dense).unwrap();
    }
    // Allocated but unwritten space is a hole for a reader.
    let taken = file("taken");
    let flags = rustix::fs::FallocateFlags::empty();
    match rustix::fs::fallocate(&taken, flags, 0, 5 << 20) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
        Err(error) => panic!("{error}"),
    }
    taken.write_all_at(&bytes[..100_000], 1 << 20).unwrap();
    taken.set_len(5 << 20).unwrap();
    fs::write(dir.join("no hole"), &bytes).unwrap();
}

fn allocated_bytes(path: &Path) -> u64 {
    File::open(path).unwrap().sync_all().unwrap();
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn holes_are_kept_created_and_filled_as_in_gnu() {
    let mut wrong = Vec::new();
    for (from, source_room) in test_dirs() {
        let dir = source_room.path().join("src");
        sources(&dir);
        let names: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        for to in FsKind::ALL {
            let Some(sink) = shared_dir(to) else { continue };
            for (number, sparse) in
                ["--sparse=always", "--sparse=auto", "--sparse=never"].into_iter().enumerate()
            {
                // All pairs of source, destination and option are covered; soak runs cover all
                // combinations of the three.
                if soak_seed().is_none() && (from as usize + to as usize) % 3 != number {
                    continue;
                }
                let args = [
                    "-r".as_ref(),
                    "--reflink=never".as_ref(),
                    sparse.as_ref(),
                    dir.as_os_str(),
                    "z".as_ref(),
                ];
                let twins = Twins::run(sink.path(), "z", &args);
                let mut text = twins.differences("z", Facets::CONTENT);
                for name in &names {
                    let [gnu, ours] =
                        twins.folders.each_ref().map(|folder| allocated_bytes(&folder.join("z").join(name)));
                    let fills = sparse == "--sparse=never" && ours + SLACK < gnu;
                    if ours > gnu + SLACK || fills {
                        text += &format!("  {} takes {ours} bytes, gnu's {gnu}\n", name.display());
                    }
                }
                if !text.is_empty() {
                    wrong.push((format!("{sparse} {from:?} to {to:?}"), text));
                }
                twins.remove();
            }
        }
    }
    assert_alike(&wrong);
}

#[test]
fn digests_of_sparse_files_equal_those_of_dense_files() {
    if !met_or_skip(&[Need::Program("md5sum")]) {
        return;
    }
    let md5 = |path: &Path| {
        let output = Command::new("md5sum").arg(path).output().unwrap();
        String::from_utf8(output.stdout).unwrap()[..32].to_owned()
    };
    for (from, room) in test_dirs() {
        let dir = room.path().join("src");
        sources(&dir);
        let mut sources: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        sources.sort();
        for (number, source) in sources.into_iter().enumerate() {
            let expected = md5(&source);
            for (sparse_number, sparse) in
                ["--sparse=always", "--sparse=auto", "--sparse=never"].into_iter().enumerate()
            {
                for (more_number, more) in
                    ["--threads=2", "--verify", "--reflink=never", "--direct-read"].into_iter().enumerate()
                {
                    // Each file has each pair of options on one of four file systems; soak runs use
                    // all file systems.
                    if soak_seed().is_none() && (from as usize + number + sparse_number) % 4 != more_number {
                        continue;
                    }
                    let args = ["--print-hash", "--hash-type=md5", sparse, more].map(Path::new);
                    let run =
                        cp(ToolOrigin::Ours, room.path(), args.into_iter().chain([&*source, Path::new("z")]));
                    let name = format!("{from:?} {} {sparse} {more}", source.display());
                    assert_eq!((run.status, &*run.err, &run.out[..32]), (Some(0), "", &*expected), "{name}");
                    assert_eq!(md5(&room.path().join("z")), expected, "{name}");
                    fs::remove_file(room.path().join("z")).unwrap();
                }
            }
        }
    }
}

/// A sparse file that replaces a longer one has no old data in its holes.
#[test]
fn holes_over_old_bytes_read_as_zeros() {
    for (kind, room) in test_dirs() {
        let dir = room.path().join("src");
        sources(&dir);
        for name in ["all hole", "hole at both ends", "odd borders"] {
            for sparse in ["--sparse=always", "--sparse=auto", "--sparse=never"] {
                fs::write(room.path().join("z"), vec![0xaa; 14 << 20]).unwrap();
                let source = dir.join(name);
                let run =
                    cp(ToolOrigin::Ours, room.path(), [sparse.as_ref(), source.as_os_str(), "z".as_ref()]);
                assert_eq!((run.status, &*run.err), (Some(0), ""), "{kind:?}");
                let [a, b] = [&source, &room.path().join("z")].map(|path| Snapshot::take(path).unwrap());
                a.assert_same(&b, Facets::CONTENT);
            }
        }
        assert!(
            matches!(Snapshot::take(&dir).unwrap().get("all hole").unwrap().kind, Kind::File { len, .. } if len == 6 << 20)
        );
    }
}
