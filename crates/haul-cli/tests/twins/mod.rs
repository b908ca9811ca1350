//! Two identical directories, and the results of a script in each.

use crate::faults::fixture::copy_haul;
use haul_lab::mounts::{Mounted, SmallFs};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::snapshot::{Entry, Kind, Snapshot};
use std::fmt::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// Initial contents of both directories. All times are in 2001, except that of `new`, which is in
/// 2005.
const SETUP: &str = r#"
umask 022
printf alpha > a; printf bravo > b; printf 'charlie\n' > c; : > empty
printf run > x; chmod 755 x; printf s > suid; chmod 4755 suid; printf ro > ro; chmod 444 ro
printf g > group; chmod 664 group; printf newer > new; printf b1 > 'two words'; printf q > "it's"
mkdir d e full; printf old > d/a; printf old > full/b; mkdir full/a full/t; printf keep > full/t/keep
ln -s a la; ln -s missing dangling; ln -s loop loop; ln -s d ld; ln a ha; ln -s a la2
mkdir -p t/s/u t/none closed; printf 1 > t/1; printf 2 > t/s/2; printf 3 > t/s/u/3; printf z > closed/z
ln -s 1 t/l; ln -s s t/ls; ln t/1 t/h1; ln -s nowhere t/dead; ln t/1 t/s/h1; mkfifo t/p
mkdir -p p1/q; printf one > p1/q/f; mkdir -p p2/q; printf two > p2/q/f; ln -s q/f p1/lf
truncate -s 1M holes; printf data | dd of=holes bs=1 seek=500000 conv=notrunc 2>/dev/null
find . -exec touch -h -d '2001-02-03 04:05:06.123456789Z' {} +
touch -d '2005-06-07 08:09:10.5Z' new
chmod 750 t/s; chmod 555 closed; touch -d '2001-02-03 04:05:06.123456789Z' t/s closed
"#;

/// Seconds since 1970. An entry with a time after 2010 was touched by the script, at a time that
/// differs.
const LATELY: i64 = 1_262_304_000;

/// Replaces the description of a tree that is deeper than a path can express.
const TOO_DEEP: &str = "a tree too deep to be walked";

/// Result of a script.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RunResult {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) tree: String,
}

/// The two sandboxes.
pub(crate) struct Twins {
    root: TempDir,
    as_user: bool,
    beside: SecondFs,
}

/// Target of the link `x-fs` in a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecondFs {
    /// No such link.
    Nothing,
    /// An empty file system in memory.
    Memory,
    /// An empty ext4 file system on a loop device.
    Ext4,
}

/// A file system next to a sandbox.
enum MountedFs {
    Memory(Mounted),
    Ext4(SmallFs),
}

impl MountedFs {
    fn path(&self) -> PathBuf {
        match self {
            MountedFs::Memory(mounted) => mounted.path(),
            MountedFs::Ext4(small) => small.path(),
        }
    }

    fn close(self) {
        match self {
            MountedFs::Memory(mounted) => mounted.close().unwrap(),
            MountedFs::Ext4(small) => small.close().unwrap(),
        }
    }
}

impl Twins {
    pub(crate) fn new() -> Twins {
        let root = tempfile::tempdir().unwrap();
        std::fs::set_permissions(root.path(), PermissionsExt::from_mode(0o755)).unwrap();
        Twins { root, as_user: false, beside: SecondFs::Nothing }
    }

    /// Creates sandboxes in which an ordinary user runs the script, whichever user runs the tests.
    /// Returns `None` if that is impossible.
    pub(crate) fn of_user() -> Option<Twins> {
        if !rustix::process::geteuid().is_root() {
            return Some(Twins::new());
        }
        let has_setpriv = met_or_skip(&[Need::Program("setpriv")]);
        has_setpriv.then(|| Twins { as_user: true, ..Twins::new() })
    }

    /// Creates sandboxes with another file system each, behind the link `x-fs`. Returns `None` if
    /// none can be mounted.
    pub(crate) fn across(beside: SecondFs) -> Option<Twins> {
        let needs: &[Need] =
            if beside == SecondFs::Ext4 { &[Need::Loop, Need::Program("mkfs.ext4")] } else { &[Need::Mount] };
        met_or_skip(needs).then(|| Twins { beside, ..Twins::new() })
    }

    /// Does the same as [`Twins::across`] for an ordinary user.
    pub(crate) fn of_user_across(beside: SecondFs) -> Option<Twins> {
        let mounts = Twins::across(beside)?;
        Some(Twins { beside: mounts.beside, ..Twins::of_user()? })
    }

    /// Runs a script with haul's tools.
    pub(crate) fn ours(&self, script: &str) -> RunResult {
        self.run("ours", bin(env!("CARGO_BIN_EXE_haul").as_ref()), script)
    }

    /// Runs a script with GNU's tools.
    fn gnus(&self, script: &str) -> RunResult {
        self.run("gnus", bin(Path::new("/usr/bin/cp")), script)
    }

    /// Does the same as [`Twins::ours`] for trees that are too deep to read. Returns status and
    /// both outputs.
    pub(crate) fn ours_unseen(&self, script: &str) -> (Option<i32>, String, String) {
        let folder = self.root.path().join("deep");
        std::fs::create_dir(&folder).unwrap();
        let output = self.shell(&folder, &bin(env!("CARGO_BIN_EXE_haul").as_ref()), script);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let seen = (output.status.code(), text(&output.stdout), text(&output.stderr));
        self.shell(&folder, Path::new("/bin"), "rm -rf n z");
        seen
    }

    /// Returns the difference between the two tools, if there is any.
    pub(crate) fn difference(&self, script: &str) -> Option<String> {
        let (mut gnus, mut ours) = (self.gnus(script), self.ours(script));
        if gnus.tree == TOO_DEEP {
            return (ours.tree == TOO_DEEP).then_some(ours.tree);
        }
        if crate::cp::differences::stopped_early(&gnus.err) {
            for run in [&mut gnus, &mut ours] {
                run.tree.clear();
                run.out.clear();
                run.err = crate::cp::differences::without_repeats(&run.err);
            }
        }
        let mut text = String::new();
        for (what, gnu, our) in [
            ("status", &format!("{:?}", gnus.status), &format!("{:?}", ours.status)),
            ("stdout", &gnus.out, &ours.out),
            ("stderr", &gnus.err, &ours.err),
            ("tree", &gnus.tree, &ours.tree),
        ] {
            if gnu != our {
                let _ = writeln!(text, "  {what}:");
                let missing = |mark, from: &str, other: &str| -> String {
                    let lines = from.lines().filter(|line| !other.lines().any(|o| o == *line));
                    lines.map(|line| format!("    {mark} {line}\n")).collect()
                };
                text.push_str(&missing("gnu ", gnu, our));
                text.push_str(&missing("ours", our, gnu));
                if gnu.lines().count() != our.lines().count() {
                    let _ =
                        writeln!(text, "    {} lines, {} lines", gnu.lines().count(), our.lines().count());
                }
            }
        }
        (!text.is_empty()).then_some(text)
    }

    fn run(&self, name: &str, bin: PathBuf, script: &str) -> RunResult {
        let folder = self.root.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        let shell = |script: &str| self.shell(&folder, &bin, script);
        if self.as_user {
            std::os::unix::fs::chown(&folder, Some(65534), Some(65534)).unwrap();
        }
        let other = self.mount(&folder);
        let setup = shell(SETUP);
        assert!(setup.status.success(), "{}", String::from_utf8_lossy(&setup.stderr));
        let output = shell(script);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut tree = describe(&folder);
        open_all(&folder);
        if let Some(other) = other {
            tree.push_str(
                &describe(&other.path()).lines().map(|line| format!("x/{line}\n")).collect::<String>(),
            );
            open_all(&other.path());
            other.close();
        }
        RunResult {
            status: output.status.code(),
            out: text(&output.stdout),
            err: sorted(&text(&output.stderr)),
            tree,
        }
    }
}

impl Twins {
    /// Mounts the other file system of a sandbox, and links it there.
    fn mount(&self, folder: &Path) -> Option<MountedFs> {
        let other = match self.beside {
            SecondFs::Nothing => return None,
            SecondFs::Memory => MountedFs::Memory(Mounted::tmpfs(64).unwrap()),
            SecondFs::Ext4 => MountedFs::Ext4(SmallFs::new(16).unwrap()),
        };
        if let MountedFs::Ext4(small) = &other {
            std::fs::remove_dir(small.path().join("lost+found")).unwrap();
        }
        let home = other.path().parent().map(Path::to_owned).unwrap();
        std::fs::set_permissions(home, PermissionsExt::from_mode(0o755)).unwrap();
        if self.as_user {
            std::os::unix::fs::chown(other.path(), Some(65534), Some(65534)).unwrap();
        }
        symlink(other.path(), folder.join("x-fs")).unwrap();
        Some(other)
    }

    /// Runs a script in a directory, with `bin` at the start of the path.
    fn shell(&self, folder: &Path, bin: &Path, script: &str) -> Output {
        let mut command = if self.as_user {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script]);
            command
        } else {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        for name in ["VERSION_CONTROL", "SIMPLE_BACKUP_SUFFIX", "POSIXLY_CORRECT", "LANGUAGE"] {
            command.env_remove(name);
        }
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        command.current_dir(folder).env("LC_ALL", "C.UTF-8").env("PATH", path);
        command.stdin(Stdio::null()).output().unwrap()
    }
}

/// Returns a directory with the names of the tools.
fn bin(target: &Path) -> PathBuf {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        // A copy, because the build directory may be inaccessible to the user of some tests.
        let ours = folder.path().join("ours");
        let gnus = folder.path().join("gnus");
        std::fs::create_dir(&ours).unwrap();
        std::fs::create_dir(&gnus).unwrap();
        copy_haul(&ours.join("haul"));
        symlink("haul", ours.join("mcp")).unwrap();
        for tool in ["cp", "mv", "install"] {
            symlink("haul", ours.join(tool)).unwrap();
            symlink(Path::new("/usr/bin").join(tool), gnus.join(tool)).unwrap();
        }
        folder
    });
    folder.path().join(if target == Path::new("/usr/bin/cp") { "gnus" } else { "ours" })
}

/// Workers finish in any order.
fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// Returns one line for each entry, with everything that a copy may keep. All times of this run are
/// equal.
fn describe(folder: &Path) -> String {
    let snapshot = match Snapshot::take(folder) {
        Ok(snapshot) => snapshot,
        // See the difference about followed links.
        Err(error) if error.is_too_deep() => return TOO_DEEP.to_owned(),
        Err(error) => panic!("{error}"),
    };
    let mut text = String::new();
    for (path, entry) in snapshot.entries() {
        let time = if entry.mtime.0 > LATELY { "now".to_owned() } else { format!("{:?}", entry.mtime) };
        // The sandbox itself, and directories that only the run touched, are not compared.
        let _ = writeln!(
            text,
            "{} {} {:04o} {:?} {time} {:?} {:?}",
            path.display(),
            kind(entry),
            if matches!(entry.kind, Kind::Link(_)) { 0 } else { entry.mode },
            entry.owner,
            entry.same_as,
            entry.xattrs
        );
    }
    text
}

fn kind(entry: &Entry) -> String {
    match &entry.kind {
        Kind::File { len, digest, .. } => format!("file of {len} bytes, {digest:x}"),
        // Each sandbox has its own other file system.
        Kind::Link(target) if target.to_string_lossy().contains("/haul-lab-") => "Link beside".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Makes a directory removable whose user removed permissions from parts of it.
fn open_all(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let _ = std::fs::set_permissions(entry.path(), PermissionsExt::from_mode(0o755));
            open_all(&entry.path());
        }
    }
}
