//! Properties of files that only root can create: owners, set-id bits, capabilities and devices.
//! Also access control lists.

use super::{compare, compare_all, ours};
use haul_lab::needs::{Need, met_or_skip};

#[test]
fn owners_and_set_id_bits_are_preserved_as_gnu() {
    if !met_or_skip(&[Need::Root]) {
        return;
    }
    compare_all(&[
        (
            "-p",
            "chmod 4755 x; chown 7:8 x; cp -p x z; cp --preserve=mode x y; cp --preserve=ownership x w; cp -a x v; cp x u",
        ),
        (
            "over a file",
            "chmod 6755 x; chown 7:8 x; cp --preserve=ownership,mode x b; cp -p x c; cp x d/a; cp --preserve=mode x new",
        ),
        (
            "without one of them",
            "chmod 6755 x; chown 7:8 x; cp --no-preserve=mode x y; cp -a --no-preserve=ownership x w; cp -a --no-preserve=mode x v",
        ),
        (
            "sink with set-id bits",
            "chown 5:6 b; chmod 4755 b; cp a b; stat -c '%a %u' b; chmod 6755 b; cp -p a b; chmod 6755 b; cp --preserve=timestamps a b; cp --preserve=ownership a b; stat -c '%a %u' b",
        ),
        (
            "directories",
            "chown 5:6 t t/s; chmod 6777 t/s; cp -r t z; cp -rp t y; cp -r --preserve=mode t w; cp -r --preserve=ownership t v",
        ),
        (
            "sticky and inherited",
            "chmod 1777 t; chmod 2755 t/s; cp -r t z; cp -rp t y; cp -a t w; cp -r --preserve=ownership t v; cp -r --preserve=mode t r",
        ),
        (
            "no mode, special bits",
            "chmod 2755 d; cp -r --no-preserve=mode t d; chmod 1777 t; cp -r --no-preserve=mode t z; cp -a --no-preserve=mode t y",
        ),
        (
            "--parents",
            "cp --parents --preserve=ownership t/s/2 d; chown 12:34 t t/s; cp --parents -p t/s/2 e; mkdir d/p1; chmod 700 d/p1; cp --parents -p p1/q/f d",
        ),
        ("links", "chown -h 3:4 la; cp -a la z; cp -P la y; cp -P --preserve=ownership la w; cp -Pp la v"),
    ]);
}

#[test]
fn special_files_are_copied_as_gnu() {
    if !met_or_skip(&[Need::Root]) {
        return;
    }
    compare_all(&[
        (
            "devices with their numbers",
            "mknod c1 c 1 3; mknod b1 b 7 200; chmod 604 c1; chown 3:4 c1; cp -r c1 b1 d; cp -a c1 b1 e; cp -R --preserve=mode c1 z; stat -c '%t %T' d/* e/* z",
        ),
        (
            "devices read",
            "mknod c1 c 1 3; cp c1 z; cp -r --copy-contents c1 y; cp -a c1 b; cp -r c1 c; cp -a a c1",
        ),
        (
            "pipes",
            "mkfifo -m 640 p; cp -r p z; cp -r p z; cp -a p a; cp -r p full; cp -rf p b; cp -rb p c; cp -rn p d/a; cp -ru p new; cp -rv p ha",
        ),
        (
            "copied again: the removed files had their owner",
            "mkfifo p; mknod c1 c 1 3; ln -s t l; chown -h 3:4 p c1 l; cp -a p c1 l d; cp -a p c1 l d; cp -pR p c1 l d; cp -dR --preserve=ownership p c1 l d",
        ),
        ("pipes linked", "mkfifo p; cp -al p z; cp -rs p y; cp -rl p w; cp -ru p z; echo y | cp -ri p b"),
        (
            "modes of pipes",
            "mkfifo -m 600 p; chmod 4777 p; cp -a --no-preserve=mode p w; cp -r --no-preserve=mode p v; cp -a p u; cp -r p s",
        ),
    ]);
    if met_or_skip(&[Need::Program("python3")]) {
        compare(
            "sockets",
            "python3 -c \"import socket;s=socket.socket(socket.AF_UNIX);s.bind('sock')\"; chmod 701 sock
             cp -r sock z; cp -a sock y; cp sock w; cp -r --copy-contents sock v; touch -d 2001-01-01 sock y",
        );
    }
}

#[test]
fn capabilities_are_restored_after_the_change_of_owner() {
    if !met_or_skip(&[Need::Root, Need::Program("setcap")]) {
        return;
    }
    compare(
        "capabilities",
        "setcap cap_net_raw+ep x; cp -a x z; cp -p x y; cp --preserve=xattr x w; chown 9:9 x; setcap cap_net_raw+ep x
         cp -a x v; cp --preserve=all x u; cp x s; cp --preserve=ownership,xattr x b",
    );
    let run = ours(
        "setcap cap_net_raw+ep x; chown 9:9 x; setcap cap_net_raw+ep x; cp -a x z; getfattr -m - z | grep -c security.capability",
    );
    assert_eq!(run.out, "1\n", "{}", run.err);
}

#[test]
fn attributes_are_preserved_on_every_kind_of_file() {
    if !met_or_skip(&[Need::Root, Need::Program("setfattr")]) {
        return;
    }
    compare_all(&[
        (
            "all namespaces",
            "setfattr -n user.k -v v a; setfattr -n trusted.t -v w a; cp -a a z; cp -p a y; cp --preserve=xattr a b; cp -a --no-preserve=xattr a c",
        ),
        ("that the sink has", "setfattr -n user.k -v v b; cp -a a b; cp --preserve=xattr a b; cp a b"),
        (
            "links, pipes, directories",
            "setfattr -n user.k -v v t/s; setfattr -h -n trusted.l -v x la; mkfifo p; setfattr -n trusted.p -v x p; cp -a t/s z; cp -a la y; cp -a p w; touch -d 2001-01-01 p w",
        ),
        (
            "attributes only",
            "setfattr -n user.k -v v a; cp --attributes-only --preserve=xattr a b; cp -a --attributes-only a z",
        ),
    ]);
}

#[test]
fn access_control_lists_are_preserved_as_gnu() {
    if !met_or_skip(&[Need::Root, Need::Program("setfacl")]) {
        return;
    }
    compare_all(&[
        (
            "of files",
            "setfacl -m u:7:rw a; cp a z; cp -p a y; cp -a a w; cp --preserve=mode a b; cp -p c a; cp --no-preserve=mode y v",
        ),
        (
            "inherited",
            "setfacl -d -m u:7:rwx,o::- d; cp a d; cp -r t d; cp -p x d; mkdir d/q; cp -a p1/. d/q",
        ),
        (
            "inherited and refused",
            "setfacl -d -m u:7:rwx,o::- d; cp --no-preserve=mode x d/w; cp -r --no-preserve=mode p2 d; cp -a --no-preserve=mode p1 d",
        ),
        (
            "of directories",
            "setfacl -m u:7:rwx t/s; setfacl -d -m g:8:rx t/s; cp -r t z; cp -rp t y; cp -a t w; cp -a p1/. t/s",
        ),
        (
            "inherited and the umask",
            "umask 027; setfacl -d -m u:7:rwx d; cp x d; cp -r t d; cp -p x d/y; cp --preserve=ownership x d/v",
        ),
    ]);
}

/// Without SELinux the attribute is the only thing to compare: its copy is what SELinux would read.
#[test]
fn contexts_are_attributes_without_selinux() {
    if !met_or_skip(&[Need::Root, Need::Program("setfattr")]) {
        return;
    }
    compare_all(&[
        (
            "kept as one",
            "setfattr -n security.selinux -v u:r:t a; cp -a a z; cp --preserve=xattr a y; cp --preserve=all a w; cp a v; cp -aZ a u; cp -a --context=x a s; cp -Z a r",
        ),
        (
            "requested",
            "cp --preserve=context a z; cp -a --preserve=context a z; cp --preserve=context,all a y; cp --no-preserve=context a w",
        ),
        (
            "given",
            "cp --context=x --preserve=context a z; cp --context=x -Z a y; cp --context a w; cp -Z t v; cp --context= a u",
        ),
    ]);
}

#[test]
fn times_are_preserved_to_the_nanosecond() {
    compare_all(&[
        (
            "before 1970 and far ahead",
            "touch -d '1969-12-31 23:59:58.5Z' a; cp -p a z; touch -d '2200-01-01 00:00:00.000000001Z' b; cp -p b y; touch -h -d '2001-01-01 01:01:01.123456789' la; cp -a la w",
        ),
        (
            "of directories",
            "touch -d 1999-01-01 p1 p1/q; cp -a p1 z; cp -rp p1 y; cp -r p1 w; cp -r --preserve=timestamps p1 v; cp -p --no-preserve=timestamps a u",
        ),
    ]);
}

#[test]
fn umasks_apply_as_in_gnu() {
    compare_all(&[
        ("777", "umask 777; cp a z; cp -p a y; cp --preserve=xattr a x1"),
        ("000", "umask 000; cp x z; cp -r t y; cp --preserve=ownership x w; cp -r --preserve=ownership t v"),
        (
            "077",
            "umask 077; cp x z; cp -r t y; cp --preserve=ownership x w; cp -r --preserve=ownership t v; cp --no-preserve=mode x u; cp -a x s",
        ),
        (
            "over files",
            "touch z; chmod 600 z; cp -a x z; chmod 777 z; cp x z; cp --preserve=mode ro z; cp suid z; cp -p suid z; cp a z",
        ),
    ]);
}

#[test]
fn other_file_systems_are_not_entered() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    // Both tools run in one sandbox, with the copies outside the source. The file system is
    // unmounted in any case.
    let run = ours(
        "mkdir src src/m out; echo x > src/f; mount -t tmpfs none src/m || exit 7; echo y > src/m/g; mkdir src/m/sub
         for tool in /usr/bin/cp cp; do
           $tool -rx src out/one$(echo $tool | tr -d /); $tool -ax src/m out/two$(echo $tool | tr -d /)
         done
         umount src/m; cd out; find oneusrbincp | sort | sed s/usrbin// > a; find onecp | sort | diff a -
         find twousrbincp | sort | sed s/usrbin// > a; find twocp | sort | diff a -; ls twocp onecp/m",
    );
    assert_eq!(
        (run.status, run.out.as_str(), run.err.as_str()),
        (Some(0), "onecp/m:\n\ntwocp:\ng\nsub\n", "")
    );
}
