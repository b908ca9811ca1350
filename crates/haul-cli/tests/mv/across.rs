//! Command lines across file systems: the moved files exist at the sink with all their properties,
//! and nowhere else.

use super::{SecondFs, compare_across};

const X: &str = "x-fs";

fn with_sink(lines: &[(&str, &str)], beside: SecondFs) {
    // `X/` in a line is replaced by the path of the other file system.
    let scripts: Vec<(&str, String)> =
        lines.iter().map(|(name, script)| (*name, script.replace("X/", &format!("{X}/")))).collect();
    let lines: Vec<(&str, &str)> = scripts.iter().map(|(name, script)| (*name, script.as_str())).collect();
    compare_across(beside, &lines);
}

const LINES: [(&str, &str); 36] = [
    ("a file", "mv a X/z; mv b X/; mv -v c X/"),
    ("back again", "mv a X/; mv X/a z; mv t X/; mv X/t y"),
    ("a directory", "mv t X/; mv e X/new; mv d/ X/z/"),
    ("-T", "mv -T t X/z; mv -T a X/y; mv -t X/ b c d"),
    ("a closed directory", "mv closed X/"),
    ("links", "mv la dangling loop ld X/"),
    ("a link with a slash", "mv ld/ X/; mv ld/ X/z"),
    ("hard links among operands", "mv a ha X/; mv t/1 t X/"),
    ("hard links in trees", "mkdir q1 q2; printf 1 > q1/f; ln q1/f q2/g; ln q1/f q2/h; mv q1 q2 X/"),
    ("hard links that stay behind", "mv a X/; mv t/1 X/"),
    ("special files", "mv t/p X/"),
    ("set-id bits and modes", "mv suid ro x group X/; chmod 2775 d; chmod 1777 e; mv d e X/"),
    ("umask", "umask 077; mv t a X/"),
    ("holes", "mv holes X/"),
    ("attributes", "setfattr -n user.k -v v a 2>/dev/null; setfattr -n user.d -v w t 2>/dev/null; mv a t X/"),
    ("lists", "setfacl -m u:1:r a 2>/dev/null; setfacl -d -m u:1:rwx t 2>/dev/null; mv a t X/"),
    ("over a file", "printf old > X/b; ln X/b X/other; mv a X/b"),
    ("over a link", "printf old > X/f; ln -s f X/b; mv a X/b; ln -s missing X/l; mv b X/l"),
    ("a directory over an empty one", "mkdir X/t; mv t X/; mkdir X/z; mv -T d X/z"),
    ("a directory over a full one", "mkdir -p X/t/k; mv t X/; mv -T d X/t"),
    ("kinds", "mkdir X/a; printf f > X/t; mv -T a X/a; mv t X/; mv -b t X/; mv -bT b X/a"),
    ("-n", "printf old > X/a; mv -n a X/; mv -n b X/"),
    ("-i", "printf old > X/a; echo n | mv -i a X/; echo y | mv -iv a X/; printf 'y\\nn\\n' | mv -i b c X/"),
    ("-u", "cp -p new X/a; cp -p a X/b; mv -u a X/; mv -uv new X/b; mv -u c X/"),
    ("-b", "printf old > X/a; mv -bv a X/; mv --backup=t b X/a; mkdir X/t; mv -b t X/"),
    ("same names", "mv p1/q/f p2/q/f X/; mv p1/q p2/q X/"),
    ("same names with backups", "mv -b p1/q/f p2/q/f X/; mkdir q; mv --backup=t X/f X/f~ q"),
    ("one twice", "mv a a X/; mv t t X/; mv b ./b X/"),
    ("one beneath another", "mv t t/s X/; mv p1/q/f p1 X/"),
    ("missing", "mv a no b X/; mv a X/no/z; mv no X/"),
    ("verbose", "mv -v a X/; mv -v e X/; printf z > X/b; mv -vb b X/; mv -v la X/"),
    ("a directory, verbose", "rm -r t/s t/none t/l t/ls t/dead t/p t/h1; mv -v t X/"),
    ("dots", "mv d/. X/z; mv d/.. X/"),
    ("-f", "printf old > X/a; chmod 0 X/a; mv -f a X/; mv -Z b X/"),
    (
        "names of all sorts",
        "mkdir m; : > m/'a b'; : > m/-x; : > m/\"$(printf 'n\\nl')\"; mv -v m \"it's\" X/ | sort",
    ),
    ("many files", "mkdir m; for i in $(seq 400); do echo $i > m/$i; done; mv m X/; mv X/m/1* d"),
];

#[test]
fn moves_to_tmpfs_match_gnu() {
    with_sink(&LINES, SecondFs::Memory);
}

#[test]
fn moves_to_another_ext4_match_gnu() {
    with_sink(&LINES, SecondFs::Ext4);
}

/// In earlier versions the copy was reported before it failed, and with the messages of cp.
#[test]
fn moves_to_a_read_only_file_system_match_gnu() {
    let mount = |how: &str| format!("mount -o remount,{how} \"$(readlink -f x-fs)\"");
    let moves =
        "mv -v a X/; mv -v a X/new; mv -v t X/; mv -v a b X/; mv -v la t/p X/; mv -v a X/old; mv -bv a X/old";
    let script = format!("printf old > X/old; {}; {moves}; {}", mount("ro"), mount("rw"));
    with_sink(&[("read-only", &*script)], SecondFs::Memory);
}

#[test]
fn moved_device_nodes_match_gnu() {
    with_sink(
        &[("devices", "mknod n c 1 3; mknod l b 7 200; mv n l X/; mkdir v; mknod v/n c 1 5; mv v X/")],
        SecondFs::Memory,
    );
}
