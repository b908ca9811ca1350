//! Random trees: the contents of a sandbox, drawn from a seed.

use super::plant::{self, BOX, Gaps, Plant, USUAL_TIME, access_list};
use haul_lab::random::Random;

/// Names to choose from. Each tree uses a few, so that names occur several times in it.
const NAMES: [&[u8]; 26] = [
    b"a",
    b"b",
    b"c",
    b"d",
    b"e",
    b"f",
    b"g",
    b"h",
    b"x",
    b"y",
    b"z",
    b"two words",
    b"it's",
    b"new\nline",
    b"-dash",
    b"--",
    b"\xc3\xa9",
    b"bad\xff",
    b"back\\slash",
    b"\"q\"",
    b"*",
    b"a~",
    b"b~",
    b"a.~1~",
    b"\x1b[31m",
    b".hidden",
];

/// Names that occur only in wide trees: the shortest one that is not an option, and one that leaves
/// just enough space for a backup suffix. GNU's limit is one byte below the system's.
const ODD_NAMES: [&[u8]; 3] = [b"-", &[b'l'; 250], b" "];

/// A capability in the kernel's format: to bind ports below 1024, effective.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Number of names in a tree.
const NAMES_PER_TREE: usize = 6;

/// Letters for the contents of files: equal contents are common, for comparisons.
const LETTERS: &[u8] = b"pqrs";

const LENGTHS: [u64; 9] = [0, 1, 5, 5, 4095, 4096, 4097, 12_288, 66_000];

const FILE_MODES: [u32; 14] =
    [0, 0o400, 0o444, 0o600, 0o640, 0o755, 0o777, 0o4755, 0o2755, 0o6755, 0o1644, 0o200, 0o664, 0o4644];

const DIR_MODES: [u32; 13] =
    [0, 0o555, 0o500, 0o311, 0o333, 0o700, 0o777, 0o1777, 0o2755, 0o2775, 0o711, 0o666, 0o6711];

const OWNERS: [(u32, u32); 5] = [(1, 1), (0, 1), (1, 0), (65_534, 65_534), (65_534, 1)];

/// Times around the usual one: the same second, one nanosecond apart, years apart, before 1970, in
/// the future.
const TIMES: [(i64, i64); 8] = [
    (USUAL_TIME.0, 0),
    (USUAL_TIME.0, USUAL_TIME.1 - 1),
    (USUAL_TIME.0, USUAL_TIME.1 + 1),
    (USUAL_TIME.0 + 1, USUAL_TIME.1),
    (1_100_000_000, 500_000_000),
    (1_100_000_000, 0),
    (-5_000, 250_000_000),
    (1, 999_999_999),
];

/// A tree while it is drawn.
#[derive(Debug)]
struct Growing<'a> {
    random: &'a mut Random,
    names: Vec<&'static [u8]>,
    plants: Vec<Plant>,
    /// True for larger and deeper trees with unusual names, links and attributes.
    is_wide: bool,
}

/// Draws the contents of a sandbox; some trees are wide.
pub(super) fn draw(random: &mut Random) -> Vec<Plant> {
    let names = (0..NAMES_PER_TREE).map(|_| NAMES[random.index(NAMES.len())]).collect();
    let is_wide = random.chance(25);
    let mut growing = Growing { random, names, plants: Vec::new(), is_wide };
    let mut count = 3 + growing.random.index(9);
    if is_wide {
        count += growing.random.index(12);
        growing.names[0] = ODD_NAMES[growing.random.index(ODD_NAMES.len())];
    }
    let beyond = growing.random.chance(15);
    for _ in 0..count {
        growing.add(beyond);
    }
    growing.plants
}

impl Growing<'_> {
    /// Adds an entry, with `beyond` possibly on the other file system.
    fn add(&mut self, beyond: bool) {
        let dirs: Vec<Vec<u8>> =
            self.plants.iter().filter(|plant| plant.is_dir()).map(|plant| plant.path.clone()).collect();
        let mut path = if !dirs.is_empty() && self.random.chance(65) {
            dirs[self.random.index(dirs.len())].clone()
        } else if beyond && self.random.chance(40) {
            b"far".to_vec()
        } else {
            Vec::new()
        };
        let depth = path.split(|&byte| byte == b'/').count();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(self.names[self.random.index(self.names.len())]);
        if self.plants.iter().any(|plant| plant.path == path) {
            return;
        }
        let plant = self.one(path, depth);
        let plant = self.dress(plant);
        self.plants.push(plant);
    }

    fn one(&mut self, path: Vec<u8>, depth: usize) -> Plant {
        let depth_max = if self.is_wide { 7 } else { 4 };
        match self.random.below(100) {
            0..28 if depth < depth_max => plant::dir(path),
            28..44 => {
                let target = self.target(&path);
                plant::link(path, target)
            }
            44..52 => match self.earlier_file() {
                // No file has names on two file systems.
                Some(first) if first.starts_with(b"far/") == path.starts_with(b"far/") => {
                    plant::hard(path, first)
                }
                _ => plant::file(path, b'h'),
            },
            52..54 => plant::fifo(path),
            54 => plant::socket(path),
            55 => plant::null(path),
            56 => plant::block(path),
            _ => self.file(path),
        }
    }

    fn file(&mut self, path: Vec<u8>) -> Plant {
        let letter = LETTERS[self.random.index(LETTERS.len())];
        let file = plant::file(path, letter);
        let len = match self.random.below(100) {
            0..60 => return file,
            60..97 => LENGTHS[self.random.index(LENGTHS.len())],
            _ => 1 << 20,
        };
        let gaps = match self.random.below(10) {
            0 => Gaps::All,
            1 => Gaps::Hole,
            2 => Gaps::Zeros,
            3 => Gaps::Tail,
            _ => Gaps::None,
        };
        file.bytes(len).gaps(gaps)
    }

    fn earlier_file(&mut self) -> Option<Vec<u8>> {
        let is_file = |plant: &&Plant| matches!(plant.kind, plant::Kind::File(_));
        let files: Vec<&Plant> = self.plants.iter().filter(is_file).collect();
        (!files.is_empty()).then(|| files[self.random.index(files.len())].path.clone())
    }

    /// Returns the target of a link at `path`: the name of an entry relative to it or to the
    /// sandbox, a missing name, or itself.
    fn target(&mut self, path: &[u8]) -> Vec<u8> {
        // From the other file system only an absolute name leads back.
        let is_beyond = path.starts_with(b"far/");
        let up = if is_beyond { 0 } else { path.iter().filter(|&&byte| byte == b'/').count() };
        let some = if self.plants.is_empty() { 0 } else { self.random.index(self.plants.len()) };
        let goal = self.plants.get(some).map_or_else(|| b"missing".to_vec(), |plant| plant.path.clone());
        // `..` follows directories only: through links it could leave the sandbox.
        if self.is_wide && self.plants.get(some).is_some_and(Plant::is_dir) && self.random.chance(25) {
            let shapes: [&[u8]; 5] = [b"/", b"/.", b"/..", b"/../.", b"//"];
            let way = if is_beyond { [BOX, b"/"].concat() } else { b"../".repeat(up) };
            return [&way[..], &goal, shapes[self.random.index(shapes.len())]].concat();
        }
        match self.random.below(20) {
            0 => b"missing".to_vec(),
            1 => path.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_owned(),
            2 => b".".to_vec(),
            3 => self.names[self.random.index(self.names.len())].to_owned(),
            4..7 => [BOX, b"/", &goal[..]].concat(),
            _ if is_beyond => [BOX, b"/", &goal[..]].concat(),
            _ => [b"../".repeat(up), goal].concat(),
        }
    }

    /// Sets mode, owner, time and attributes that differ from the usual ones.
    fn dress(&mut self, mut plant: Plant) -> Plant {
        let modes: &[u32] = if plant.is_dir() { &DIR_MODES } else { &FILE_MODES };
        let is_link = matches!(plant.kind, plant::Kind::Link(_));
        if self.random.chance(25) && !is_link {
            plant = plant.mode(modes[self.random.index(modes.len())]);
        }
        if self.random.chance(15) {
            let (user, group) = OWNERS[self.random.index(OWNERS.len())];
            plant = plant.owner(user, group);
        }
        if self.random.chance(40) {
            let (seconds, nanoseconds) = TIMES[self.random.index(TIMES.len())];
            plant = plant.time(seconds, nanoseconds);
        }
        let holds_attributes = matches!(plant.kind, plant::Kind::File(_) | plant::Kind::Dir);
        if holds_attributes && self.random.chance(6) {
            plant = plant.xattr("user.note", b"kept");
        }
        if holds_attributes && self.is_wide && self.random.chance(10) {
            plant = match self.random.index(3) {
                0 if !plant.is_dir() => plant.xattr("security.capability", CAPABILITY),
                1 => plant.xattr("trusted.note", b"root's"),
                _ => plant.xattr("user.other", [0_u8; 300]),
            };
        }
        if holds_attributes && self.random.chance(6) {
            let list = access_list(plant.mode.unwrap_or(0o640), 1, 6);
            plant = plant.xattr("system.posix_acl_access", list);
        }
        if plant.is_dir() && self.random.chance(6) {
            plant = plant.xattr("system.posix_acl_default", access_list(0o750, 1, 7));
        }
        plant
    }
}
