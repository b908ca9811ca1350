//! Security contexts of a kernel with SELinux, on a kernel without SELinux.
//!
//! GNU's tools and haul load `libselinux.so.1`. Here both get a [replacement](stand_in.c). It
//! reports SELinux as enabled, has a short list of paths, and labels the files that GNU's tools
//! create as a kernel would. `cp`, `mv` and `install` run in a mount namespace in which
//! `/sys/fs/selinux` exists. The tests compare the resulting trees, with every attribute.
//!
//! The tests do not prove that a kernel labels haul's files by the context set before. The calls
//! that set it are recorded and checked. haul also checks the files that it created, and labels
//! those with another context.

use crate::twins::{RunResult, SecondFs, Twins};
use haul_lab::needs::{Need, met_or_skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;

/// Labels of the files in the sandbox. `n` has no label, and `s` one that no policy contains.
const LABELS: &str = "
label() { setfattr -h -n security.selinux -v \"$1\" \"$2\"; }
mkdir web; printf n > n; printf s > s; mkfifo p
for name in . b c d d/a e full p1 x web $(find t); do label u:r:old_t:s0 $name; done
label u:r:a_t:s0:c1,c2 a; label u:r:nosuch_t:s0 s; label u:r:two_t:s0 t/s/2; label u:r:link_t:s0 t/l; label u:r:link_t:s0 la; label u:r:p_t:s0 p
";

/// Returns the replacement library if this machine can run these tests; the first call builds it.
fn stand_in() -> Option<&'static Path> {
    let needs = [
        Need::Root,
        Need::Mount,
        Need::Program("unshare"),
        Need::Program("cc"),
        Need::Program("setfattr"),
        Need::Path("/sys/fs"),
    ];
    met_or_skip(&needs).then(|| {
        static FOLDER: OnceLock<TempDir> = OnceLock::new();
        FOLDER.get_or_init(build).path()
    })
}

fn build() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "contexts"].iter().collect();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-w", "-Wl,-soname,libselinux.so.1", "-o"])
        .arg(folder.path().join("libselinux.so.1"))
        .arg(source.join("stand_in.c"))
        .arg(format!("-Wl,--version-script={}", source.join("stand_in.map").display()))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    folder
}

/// Returns a script that runs as if the kernel had SELinux.
fn labelled(library: &Path, script: &str) -> String {
    let tools: String = ["cp", "mv", "install"]
        .iter()
        .map(|tool| format!("{tool}() {{ LD_LIBRARY_PATH={} command {tool} \"$@\"; }}\n", library.display()))
        .collect();
    format!(
        "unshare -m sh <<'END'\n\
         mount -t tmpfs none /sys/fs && mkdir /sys/fs/selinux && : > /sys/fs/selinux/enforce || exit 99\n\
         {LABELS}{tools}{script}\nEND"
    )
}

/// Runs each script with both tools, and panics with all differences.
fn compare_all(lines: &[&str]) {
    compare_beside(lines, || Some(Twins::new()));
}

fn compare_beside(lines: &[&str], twins: impl Fn() -> Option<Twins>) {
    let Some(library) = stand_in() else { return };
    let mut wrong = Vec::new();
    for line in lines {
        let Some(twins) = twins() else { return };
        if let Some(difference) = twins.difference(&labelled(library, line)) {
            wrong.push(format!("{line}\n{difference}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ\n{}", wrong.len(), lines.len(), wrong.join("\n"));
}

fn ours(library: &Path, script: &str) -> RunResult {
    Twins::new().ours(&labelled(library, script))
}

/// Returns the label of a name after a script.
fn label_after(library: &Path, script: &str, name: &str) -> String {
    let look = format!("{script}; getfattr -h --only-values -n security.selinux {name} | tr -d '\\0'");
    let run = ours(library, &look);
    assert_eq!((run.status, run.err.as_str()), (Some(0), ""), "{script}");
    run.out
}

#[test]
fn cp_preserves_contexts_as_gnu_does() {
    compare_all(&[
        "cp -a a z; cp --preserve=context a y; cp --preserve=all a w; cp a v; cp --preserve=xattr a u; cp -p a q",
        "cp -a t z; cp -r --preserve=context t y; cp -r --preserve=context t/s z2; cp -a la p e",
        "cp -a a b; cp --preserve=context a c; cp -a t/s/2 d/a; cp --preserve=context b x; cp a e/b",
        "cp -a --no-preserve=context a z; cp --preserve=all --no-preserve=context a y; cp --preserve=context --no-preserve=all a w",
        "mkdir z; cp -a t/. z; cp -r --preserve=context t/. z; cp -a t d; cp -a t d",
        "cp --parents --preserve=context t/s/2 d; cp --parents -a t/s/u/3 d; cp --parents -a t/s/2 e",
        "cp -a --attributes-only a z; cp --attributes-only --preserve=context a b; cp --attributes-only -a n y",
    ]);
}

#[test]
fn cp_reports_unpreserved_contexts_as_gnu_does() {
    compare_all(&[
        "cp -a n z; cp --preserve=all n y; cp --preserve=context n w; cp --preserve=context n b",
        "cp -a s z; cp --preserve=all s y; cp --preserve=context s w; cp -a s b; cp --preserve=context s c",
        "cp -r --preserve=context t/s n s d",
        "cp --preserve=context,all n z; cp -a --preserve=context s y",
        "cp --context=u:r:nosuch_t:s0 a z; cp -Z --preserve=context a z; cp --context=u:r:t --preserve=context a z",
    ]);
}

#[test]
fn cp_sets_policy_contexts_as_gnu_does() {
    compare_all(&[
        "cp -Z a z; cp -Z a web/z; cp --context a web/y; cp -rZ t web; cp -rZ t/. web/s",
        "cp -Z a b; cp -aZ a c; cp -Z b web; cp -Z c web/b; cp -Z n b",
        "mkdir bare broken; label u:r:old_t:s0 bare; label u:r:old_t:s0 broken; cp -Z a bare/z; cp -Z a broken/z; cp -aZ t bare",
        "cp -Z a n; cp -Z s b; cp -aZ la p web; mkdir none; cp -Z a none; cp -Z a none/a",
        "cp --parents -Z t/s/2 web; cp --parents -aZ t/s/u/3 web",
        "export STAND_IN_WITHOUT_LIST=1; cp -Z a z; cp -aZ a y; cp --context a w",
    ]);
}

/// In earlier versions `-a` copied the context with the other attributes, although `-Z` requested
/// another one.
#[test]
fn cp_a_with_z_does_not_copy_the_source_context() {
    compare_all(&[
        "setfattr -n user.k -v v a; cp -aZ a web/z; cp -aZ a z; cp -Z --preserve=xattr a y; cp -Z --preserve=all a web/y",
        "mkdir bare; cp -aZ a bare/z; cp -Z --preserve=xattr a bare/y; cp -aZ t bare/t; cp -aZ a b; cp -aZ a n",
    ]);
    let Some(library) = stand_in() else { return };
    assert_eq!(label_after(library, "cp -aZ a web/z", "web/z"), "user_u:object_r:web_t:s0");
    let run = ours(library, "mkdir bare; cp -aZ a bare/z; getfattr -m security.selinux bare/z");
    assert_eq!((run.status, run.out.as_str(), run.err.as_str()), (Some(0), "", ""));
    // GNU ignores `--context=CTX` in this case: it copies the context of the source over the
    // requested one.
    let run = ours(library, "cp -a --context=u:r:said_t:s0 a z; getfattr -m security.selinux z");
    assert_eq!((run.status, run.out.as_str(), run.err.as_str()), (Some(0), "", ""));
}

#[test]
fn a_followed_link_gives_the_context_of_its_target() {
    let Some(library) = stand_in() else { return };
    // GNU uses the context of the link.
    assert_eq!(label_after(library, "cp --preserve=context la z", "z"), "u:r:a_t:s0:c1,c2");
    assert_eq!(label_after(library, "cp -rL --preserve=context ld z", "z"), "u:r:old_t:s0");
}

#[test]
fn mv_labels_as_gnu_does() {
    compare_all(&[
        "mv a z; mv t web; mv b c d",
        "rm t/p; mv -Z a web; mv -Z t web/q; mv -Z b c; mv --context x d; mv -Z s web",
        "export STAND_IN_WITHOUT_LIST=1; mv -Z a z",
    ]);
    let across = [
        "label u:r:other_t:s0 x-fs/.; mv a la t x-fs; mv n x-fs; mv p x-fs/p",
        "label u:r:other_t:s0 x-fs/.; mv -Z a la x-fs; mv -Z t x-fs; mkdir x-fs/web; mv -Z b x-fs/web",
        "cp -a a x-fs; mv -Z c x-fs/a; mv -Z x-fs/a b; mv d x-fs; mv s x-fs",
    ];
    compare_beside(&across, || Twins::across(SecondFs::Memory));
}

/// GNU follows a link that it labels, and reports a missing context without a cause.
#[test]
fn mv_z_labels_a_renamed_link_and_not_its_target() {
    let Some(library) = stand_in() else { return };
    assert_eq!(label_after(library, "mv -Z a d; mv -Z la web", "web/la"), "u:r:web_t:s0");
    assert_eq!(label_after(library, "mv -Z a web; mv -Z la d", "web/a"), "u:r:web_t:s0:c1,c2");
    let run = ours(library, "mkdir broken web/bare; mv -Z n web; mv -Z b web/bare; mv -Z c broken");
    let reported = "mv: failed to set the security context of 'broken/c': Input/output error";
    assert_eq!((run.status, run.err.as_str()), (Some(0), reported));
}

/// The next file gets no part of this context; with GNU it gets the context of the previous file.
#[test]
fn a_failed_context_is_not_applied_to_the_next_file() {
    let Some(library) = stand_in() else { return };
    let run = ours(library, "cp -a a n d; getfattr -m security.selinux d/n");
    assert_eq!((run.status, run.out.as_str(), run.err.as_str()), (Some(0), "", ""));
}

/// GNU opens the file that it labels, and blocks at a pipe until a process writes to it.
#[test]
fn mv_z_labels_a_pipe_without_opening_it() {
    let Some(library) = stand_in() else { return };
    assert_eq!(label_after(library, "mv -Z p web", "web/p"), "u:r:web_t:s0");
    assert_eq!(label_after(library, "label u:r:p_t:s0 t/p; mv -Z t web", "web/t/p"), "u:r:web_t:s0");
}

#[test]
fn install_labels_as_gnu_does() {
    compare_all(&[
        "install a z; install a $PWD/web/z; install n y; install a b d; install -D a $PWD/web/n/z",
        "mkdir -p q/bare q/broken; install a q/bare/z; install a q/broken/z; install b c $PWD/web",
        "install -Z a web/z; install -Z a b web; install --context a z; install -Z a bare; install -DZ a web/p/q/z",
        "install -dZ web/p/q web; install -dZ p1/r; install -d k/l; install -dZ d/.; install -dZ web/b//",
        "mkdir broken; install -dZ broken/p; install -Z a broken/z",
        "install --preserve-context a z; install --preserve-context n y; install --preserve-context s w; install -p --preserve-context a b",
        "install --preserve-context a z; install -C --preserve-context -v a z; label u:r:t:s0 z; install -C --preserve-context -v a z",
        "install -Z --preserve-context a z; install --context=u:r:t --preserve-context a z; install --context=u:r:nosuch_t:s0 a z",
        "export STAND_IN_WITHOUT_LIST=1; install a z; install a b d; install -Z a y; install -d k",
    ]);
    let Some(library) = stand_in() else { return };
    // GNU looks up `web/z` as typed, although the list has absolute paths.
    assert_eq!(label_after(library, "install a web/z", "web/z"), "system_u:object_r:web_t:s0");
}

/// The same lines without the replacement: without SELinux a context is an attribute, and the
/// options either report that or print nothing.
#[test]
fn without_selinux_mv_and_install_treat_contexts_as_attributes() {
    if !met_or_skip(&[Need::Root, Need::Program("setfattr")]) {
        return;
    }
    let lines = [
        "mv a x-fs; mv -Z b x-fs; mv --context x x-fs; mv -Z t x-fs; mv -Z c z",
        "install a z; install -Z a y; install --context a w; install --preserve-context a v; install -C --preserve-context a v",
        "install -dZ q/r; install -d --context=x k; install -d --preserve-context l; install -DZ a web/p/z",
        "cp -aZ a z; cp -a --context=x a y; cp --preserve=xattr -Z a w; cp -Z a b",
    ];
    for line in lines {
        let Some(twins) = Twins::across(SecondFs::Memory) else { return };
        let difference = twins.difference(&format!("{LABELS}{line}"));
        assert_eq!(difference, None, "{line}");
    }
}

/// Contexts set in the kernel, in order: no file is created before its context is set. The test
/// uses one worker, because two workers take operands in any order.
#[test]
fn the_context_is_set_before_a_file_is_created() {
    let Some(library) = stand_in() else { return };
    let reported = |script: &str| {
        let run = ours(library, &format!("export STAND_IN_LOG=$PWD/log; {script}; cat log; rm log"));
        assert_eq!(run.status, Some(0), "{script}: {}", run.err);
        run.out
    };
    assert_eq!(reported("cp --preserve=context a z"), "u:r:a_t:s0:c1,c2\n-\n");
    assert_eq!(reported("mkdir z2; cp --threads=1 -a a b z2"), "u:r:a_t:s0:c1,c2\nu:r:old_t:s0\n-\n");
    assert_eq!(reported("cp -Z a web/z"), "user_u:object_r:web_t:s0\n-\n");
    assert_eq!(reported("cp --context=u:r:said_t:s0 a z"), "u:r:said_t:s0\n");
    assert_eq!(reported("install --context=u:r:said_t:s0 a z"), "u:r:said_t:s0\n");
    // The context is set for an existing name as well, because haul has not checked yet if the name
    // exists.
    assert_eq!(reported("install -dZ web/p"), "user_u:object_r:web_t:s0\nuser_u:object_r:web_t:s0\n");
    // A file without a context does not get that of the previous file.
    assert_eq!(reported("cp --threads=1 -a a n d"), "u:r:a_t:s0:c1,c2\n-\n-\n");
}
