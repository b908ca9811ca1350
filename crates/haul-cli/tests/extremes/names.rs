//! Names with any bytes and of any length, in copies and in checksum lists.

use crate::faults::fixture::HAUL;
use haul_lab::random_tree::every_byte_in_names;
use haul_lab::snapshot::{Facets, Snapshot};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// A test directory for scripts, with `haul` under all of its names at the start of the path.
struct Home {
    home: TempDir,
    bin: TempDir,
}

impl Home {
    fn new() -> Home {
        let bin = tempfile::tempdir().unwrap();
        for name in ["haul", "cp", "mv", "install", "md5sum", "b2sum"] {
            std::os::unix::fs::symlink(HAUL, bin.path().join(name)).unwrap();
        }
        Home { home: tempfile::tempdir().unwrap(), bin }
    }

    fn path(&self) -> &Path {
        self.home.path()
    }

    fn run(&self, script: &str) -> Output {
        let path = format!("{}:{}", self.bin.path().display(), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("sh");
        command.args(["-ec", script]).current_dir(self.path()).env("PATH", path).env("LC_ALL", "C");
        command.output().unwrap()
    }

    /// Runs a script that must succeed without standard error, and returns its output.
    #[track_caller]
    fn good(&self, script: &str) -> Vec<u8> {
        let output = self.run(script);
        assert!(output.status.success() && output.stderr.is_empty(), "{script}: {output:?}");
        output.stdout
    }
}

/// Returns names of 255 bytes, the maximum of a file system: letters, bytes that are not UTF-8, a
/// name in another script, blanks, line ends, and a leading dash.
fn longest_names() -> Vec<OsString> {
    let names: [Vec<u8>; 7] = [
        vec![b'n'; 255],
        vec![0xff; 255],
        "\u{4f60}".repeat(85).into_bytes(),
        vec![b' '; 255],
        vec![b'\n'; 255],
        [&b"-"[..], &[b'-'; 254]].concat(),
        [&b"\\"[..], &[b'\r'; 254]].concat(),
    ];
    names.into_iter().map(OsString::from_vec).collect()
}

fn build_longest(root: &Path) {
    fs::create_dir(root).unwrap();
    for (number, name) in longest_names().into_iter().enumerate() {
        fs::write(root.join(&name), format!("file {number}")).unwrap();
        fs::create_dir_all(root.join("below").join(&name)).unwrap();
        fs::write(root.join("below").join(&name).join(&name), format!("deeper {number}")).unwrap();
    }
}

/// Asserts that a tree is copied completely, and that GNU's tool and haul accept each list of it,
/// in each form.
fn goes_round(home: &Home, files: usize) {
    home.good("cp -a tree copy");
    let [tree, copy] = ["tree", "copy"].map(|name| Snapshot::take(&home.path().join(name)).unwrap());
    tree.assert_same(&copy, Facets::ARCHIVE);
    for options in ["", "--tag", "-z", "--tag -z"] {
        let list = home.good(&format!("md5sum {options} tree/* | tee list"));
        // The shell pattern skips only names with a leading dot.
        let gnus = home.good(&format!("/usr/bin/md5sum {options} tree/*"));
        assert!(list == gnus, "md5sum {options} differs from GNU's");
        for tool in ["/usr/bin/md5sum", "md5sum", "haul md5sum"] {
            // A list with NUL as line end cannot be checked.
            if !options.contains("-z") {
                home.good(&format!("{tool} -c --quiet list"));
            }
        }
    }
    home.good(
        "haul sum -a md5 -r tree > list; /usr/bin/md5sum -c --quiet list; haul sum -a md5 -c --quiet list",
    );
    let lines = home.good("haul sum -a md5 -z -r tree");
    assert_eq!(lines.iter().filter(|&&byte| byte == 0).count(), files);
    home.good("cp -r --print-hash tree again > list; /usr/bin/md5sum -c --quiet list");
}

#[test]
fn names_of_every_byte_survive_copies_and_lists() {
    let home = Home::new();
    every_byte_in_names(&home.path().join("tree")).unwrap();
    goes_round(&home, 254);
}

#[test]
fn names_of_255_bytes_survive_copies_and_lists() {
    let home = Home::new();
    build_longest(&home.path().join("flat"));
    home.good("mkdir tree; cd flat; for f in *; do test -d \"$f\" || cp -p -- \"$f\" ../tree; done");
    goes_round(&home, 7);
    home.good("rm -rf tree copy again; mv flat tree; cp -a tree copy");
    let [tree, copy] = ["tree", "copy"].map(|name| Snapshot::take(&home.path().join(name)).unwrap());
    tree.assert_same(&copy, Facets::ARCHIVE);
    home.good(
        "haul sum -a md5 -r tree > list; /usr/bin/md5sum -c --quiet list; haul sum -a md5 -c --quiet list",
    );
    assert_eq!(fs::read(home.path().join("list")).unwrap().iter().filter(|&&byte| byte == b'\n').count(), 14);
}

/// Moves to another file system, moves back under another name, and installs one by one.
#[test]
fn names_of_every_byte_and_255_bytes_are_moved_and_installed() {
    let (home, memory) = (Home::new(), tempfile::tempdir_in("/dev/shm").unwrap());
    every_byte_in_names(&home.path().join("tree")).unwrap();
    build_longest(&home.path().join("tree/longest"));
    let far = memory.path().display();
    home.good("cp -a tree kept");
    home.good(&format!("mv tree {far}/; test ! -e tree; mv -T {far}/tree back; test ! -e {far}/tree"));
    let [kept, back] = ["kept", "back"].map(|name| Snapshot::take(&home.path().join(name)).unwrap());
    kept.assert_same(&back, Facets::ARCHIVE);
    for (from, files) in [("back", 254), ("back/longest", 7)] {
        home.good(&format!(
            "find {from} -maxdepth 1 -type f -print0 | xargs -0 install -D -t into/{from} --
             test $(find into/{from} -type f -print0 | tr -dc '\\0' | wc -c) = {files}
             find {from} -maxdepth 1 -type f -print0 | (cd into; xargs -0 -I {{}} cmp ../{{}} {{}})"
        ));
    }
}

/// A longer name is impossible: haul reports that as GNU does, and the existing file stays. GNU's
/// numbered backup of such a name gets a truncated name without a number, which the next backup
/// cannot distinguish from its own. haul refuses this, too.
#[test]
fn a_backup_of_a_255_byte_name_is_refused_without_loss() {
    let home = Home::new();
    let name = "n".repeat(255);
    let mut said = Vec::new();
    for command in ["cp --backup=simple", "/usr/bin/cp --backup=simple", "cp --backup=numbered"] {
        home.good("rm -rf d; mkdir d; printf new > new");
        fs::write(home.path().join("d").join(&name), "old").unwrap();
        let output = home.run(&format!("exec {command} -T new d/{name}"));
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(fs::read(home.path().join("d").join(&name)).unwrap(), b"old");
        assert_eq!(fs::read_dir(home.path().join("d")).unwrap().count(), 1);
        said.push(String::from_utf8(output.stderr).unwrap().replace("/usr/bin/cp: ", "cp: "));
    }
    assert!(said[0].contains("File name too long"), "{}", said[0]);
    assert_eq!((&said[0], &said[0]), (&said[1], &said[2]));
}

/// A link is replaced through a second name next to it, which must fit as well.
#[test]
fn a_link_with_a_255_byte_name_is_replaced() {
    let home = Home::new();
    let name = "n".repeat(255);
    home.good(&format!(
        "ln -s target new; ln -s other {name}; cp -Pf new {name}; test \"$(readlink {name})\" = target"
    ));
    home.good(&format!(
        "printf x > file; ln file hard; cp -lf file {name}; test file -ef {name}; test $(ls | wc -l) = 4"
    ));
}

/// Regression: JSON permits U+007F to U+009F, and some terminals obey U+009B as the start of a
/// command.
#[test]
fn json_of_every_command_has_no_control_characters() {
    let home = Home::new();
    home.good("mkdir d; printf one > \"$(printf 'd/a\\302\\2332J\\177')\"; mkdir r; cp -a d r/copied");
    for (script, status) in [
        ("haul cp --json -rv --waybill=d.waybill d copied", 0),
        ("haul sum --json -r d", 0),
        ("haul waybill export --format=json d.waybill", 0),
        ("haul verify --json -v d.waybill copied", 0),
        (
            "find copied -type f -exec sh -c 'printf two > \"$1\"' _ {} ';'; haul verify --json d.waybill copied",
            1,
        ),
        ("haul repair --json --modified --keep-damaged old --from r d.waybill copied", 0),
    ] {
        let output = home.run(script);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.code() == Some(status) && text.contains("\\u009b2J\\u007f"),
            "{script}: {text}"
        );
        assert!(!text.contains(|letter: char| letter.is_control() && letter != '\n'), "{script}: {text:?}");
    }
}
