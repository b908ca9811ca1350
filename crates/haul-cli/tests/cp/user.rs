//! Permission errors of an ordinary user.

use crate::twins::Twins;

fn compare_all(lines: &[(&str, &str)]) {
    let mut wrong = Vec::new();
    for (name, script) in lines {
        let Some(twins) = Twins::of_user() else { return };
        if let Some(difference) = twins.difference(script) {
            wrong.push(format!("{name}: {script}\n{difference}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ\n{}", wrong.len(), lines.len(), wrong.join("\n"));
}

#[test]
fn missing_permissions_match_gnu() {
    compare_all(&[
        ("unreadable source", "chmod 0 a; cp a z; cp a b c d"),
        ("unreadable source in a tree", "chmod 0 t/1; cp -r t z"),
        ("unreadable directory", "chmod 0 t/s; cp -r t z; cp -a t y"),
        ("unsearchable directory", "chmod 444 t/s; cp -r t z"),
        ("directory without read", "chmod 311 t/s; cp -r t z"),
        ("read-only sink", "cp a ro; cp -f b ro; cp -fv c ro"),
        ("read-only sink asked", "echo y | cp -i a ro; echo y | cp -if a ro"),
        ("--remove-destination", "cp --remove-destination a ro"),
        ("read-only directory as target", "cp a closed; cp -r t closed; cp a closed/z; cp -f a closed/z"),
        ("read-only directory as source", "cp -r closed z; cp -a closed y; cp -rp closed w"),
        ("read-only tree twice", "cp -a closed z; cp -a closed/. z"),
        ("setuid", "cp -p suid z; cp -a suid y"),
        ("read-only file kept", "cp -p ro z; cp -a ro y; cp --preserve=xattr ro w"),
        ("owner of another", "cp -p /etc/passwd z; cp --preserve=ownership /etc/passwd y"),
        ("device", "cp -r /dev/null z; cp -a /dev/null z"),
        ("link to another's file", "cp -l /etc/passwd z 2>/dev/null; echo $?; cp -a --parents t/s d"),
        (
            "xattr",
            "setfattr -n user.k -v v ro 2>/dev/null; setfattr -n user.k -v v a 2>/dev/null; chmod 444 a; cp -a a z",
        ),
        ("backup in a read-only directory", "cp -b a closed/z"),
        ("target without read", "chmod 333 d; cp a d"),
        ("merge into a directory without read", "mkdir d/t; chmod 333 d/t; cp -r t d"),
        ("parents through a closed one", "cp --parents closed/z d; cp -p --parents closed/z e"),
    ]);
}

#[test]
fn all_ranges_of_a_read_only_file_are_copied() {
    let Some(twins) = Twins::of_user() else { return };
    let run = twins.ours(
        "printf 'ro z 0-1,1-2\\n' | mcp -p --read-stdin; cat z; cmp ro z; [ \"$(stat -c '%a %y' ro)\" = \"$(stat -c '%a %y' z)\" ] || echo differs",
    );
    assert_eq!((run.status, run.out.as_str(), run.err.as_str()), (Some(0), "ro", ""));
}
