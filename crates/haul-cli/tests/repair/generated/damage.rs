//! Damage to a tree: decay, accidents and changes by a user.

use haul_lab::random::Random;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Damages the tree once. Returns the change, for messages; `None` if the drawn one finds nothing
/// to change. `pristine` is a perfect copy outside of the tree, as links of the tree's root reach
/// it.
pub(super) fn hurt(random: &mut Random, tree: &Path, pristine: &Path) -> Option<String> {
    let all = names(tree);
    let files: Vec<&PathBuf> = all.iter().filter(|path| facts(&tree.join(path)).is_file()).collect();
    let any = |random: &mut Random| all.get(random.index(all.len().max(1)));
    let file = |random: &mut Random| files.get(random.index(files.len().max(1))).copied();
    let (what, path) = match random.below(100) {
        0..50 => {
            let path = file(random)?;
            (change(random, &tree.join(path)).unwrap(), path)
        }
        50..56 => {
            let (path, other) = (file(random)?, file(random)?);
            swap(&tree.join(path), &tree.join(other)).unwrap();
            (format!("swapped with {other:?}"), path)
        }
        56..70 => {
            let path = any(random)?;
            remove(&tree.join(path)).unwrap();
            ("removed".to_owned(), path)
        }
        70..82 => {
            let path = any(random)?;
            let target = any(random)?;
            (replace(random, tree, path, target, pristine).unwrap(), path)
        }
        82..88 => {
            let path = file(random)?;
            part(random, &tree.join(path)).unwrap();
            ("made a file of its own".to_owned(), path)
        }
        88..94 => {
            let (path, other) = (file(random)?, file(random)?);
            if path != other {
                fs::remove_file(tree.join(path)).unwrap();
                fs::hard_link(tree.join(other), tree.join(path)).unwrap();
            }
            (format!("linked to {other:?}"), path)
        }
        94..97 => {
            let path = file(random)?;
            set_time(&tree.join(path), moment(random)).unwrap();
            ("touched".to_owned(), path)
        }
        _ => {
            let path = any(random)?;
            let beside = tree.join(path).with_file_name(format!("extra{}", random.below(1000)));
            fs::write(beside, "extra").unwrap();
            ("an extraneous file beside it".to_owned(), path)
        }
    };
    Some(format!("{path:?}: {what}"))
}

/// The names beneath a tree in their order, without its root.
fn names(tree: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(tree.join(&dir)).unwrap() {
            let path = dir.join(entry.unwrap().file_name());
            if facts(&tree.join(&path)).is_dir() {
                open.push(path.clone());
            }
            all.push(path);
        }
    }
    all.sort();
    all
}

fn facts(path: &Path) -> fs::Metadata {
    fs::symlink_metadata(path).unwrap()
}

fn moment(random: &mut Random) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(random.below(1 << 31), 7)
}

fn set_time(path: &Path, time: SystemTime) -> io::Result<()> {
    File::options().write(true).open(path)?.set_modified(time)
}

/// Other bytes; mostly under the old modification time, as decay leaves them.
fn change(random: &mut Random, path: &Path) -> io::Result<String> {
    let before = facts(path);
    let len = before.len();
    let file = File::options().read(true).write(true).open(path)?;
    let start = random.below(len.max(1));
    let most = [1, 5000, 200_000][random.index(3)];
    let end = (start + 1 + random.below(most)).min(len);
    let mut bytes = vec![0; (end - start.min(end)) as usize];
    let mut what = match random.below(10) {
        0..4 if len > 0 => {
            file.read_exact_at(&mut bytes[..1], start)?;
            file.write_all_at(&[bytes[0] ^ 1 << random.below(8)], start)?;
            format!("a bit of byte {start}")
        }
        4..6 if len > 0 => {
            file.write_all_at(&bytes, start)?;
            format!("{start}-{end} zeroed")
        }
        6 if len > 0 => {
            random.fill(&mut bytes);
            file.write_all_at(&bytes, start)?;
            format!("{start}-{end} random")
        }
        // A hole in place of data.
        7 if len > 0 => {
            file.set_len(start)?;
            file.set_len(len)?;
            format!("{start}-{len} a hole")
        }
        8 => {
            file.set_len(start)?;
            format!("truncated to {start}")
        }
        _ => {
            file.write_all_at(&vec![7; 1 + random.index(70_000)], len)?;
            "longer".to_owned()
        }
    };
    if random.chance(75) {
        file.set_modified(before.modified()?)?;
    } else {
        what.push_str(", at a later time");
        file.set_modified(moment(random))?;
    }
    Ok(what)
}

fn swap(one: &Path, other: &Path) -> io::Result<()> {
    let aside = one.with_file_name("aside");
    fs::rename(one, &aside)?;
    if one != other {
        fs::rename(other, one)?;
    }
    fs::rename(&aside, other)
}

fn remove(path: &Path) -> io::Result<()> {
    if facts(path).is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// Something of another kind under the name.
fn replace(
    random: &mut Random,
    tree: &Path,
    path: &Path,
    target: &Path,
    pristine: &Path,
) -> io::Result<String> {
    let place = tree.join(path);
    let was_file = facts(&place).is_file();
    let up: PathBuf = path.components().skip(1).map(|_| "..").collect();
    // The target may be the link itself or a directory above it.
    let (what, target) = match random.below(5) {
        0 => ("a link to", up.join(target)),
        1 => ("a link out to", up.join(pristine).join(path)),
        2 => ("a link to", PathBuf::from("nowhere")),
        3 => {
            remove(&place)?;
            fs::create_dir(&place)?;
            return Ok("a directory".to_owned());
        }
        _ => {
            if was_file {
                return part(random, &place).map(|()| "a file of its own".to_owned());
            }
            remove(&place)?;
            fs::write(&place, "a file")?;
            return Ok("a file".to_owned());
        }
    };
    remove(&place)?;
    symlink(&target, &place)?;
    Ok(format!("{what} {target:?}"))
}

/// A file of the same bytes, alone under its name.
fn part(random: &mut Random, path: &Path) -> io::Result<()> {
    let before = facts(path);
    let aside = path.with_file_name("aside");
    fs::write(&aside, fs::read(path)?)?;
    fs::set_permissions(&aside, before.permissions())?;
    if before.nlink() > 1 || random.chance(75) {
        set_time(&aside, before.modified()?)?;
    }
    fs::rename(&aside, path)
}
