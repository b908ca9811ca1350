//! Command lines by topic. Each runs in its own sandboxes.

use super::compare_all;

#[test]
fn files_match_gnu() {
    compare_all(&[
        ("to a name", "install a z; install x y; install suid w; install ro v"),
        ("over a file", "install a b; install a ro; install -v a x"),
        (
            "into a directory",
            "install a d; install a b c d/; install -t e a b; install --target-directory=full a",
        ),
        ("-T", "install -T a z; install -T a d; install -T a b c; install -T a ld"),
        (
            "links",
            "install la z; install dangling y; install loop w; install a la; install b dangling; install c loop",
        ),
        ("hard links", "install a ha; install ha a; install -v t/1 t/h1"),
        (
            "itself",
            "install a a; install -v a ./a; install d/a d; install -b a a; install la a; install a la",
        ),
        ("directories", "install d z; install t a; install d a e; install . z; install t/ z"),
        (
            "missing",
            "install no z; install a no/z; install a b no; install a b c; install -t no a; install -t b a; install a no/",
        ),
        ("special files", "(printf piped > t/p) & install t/p z; wait; install /dev/null y; install a t/p"),
        (
            "same names",
            "install p1/q/f p2/q/f d; install --backup=t p1/q/f p2/q/f e; install -b p1/q/f p2/q/f full; install a a d",
        ),
        ("verbose", "install -v a z; install -v a z; install -v a b d; install -v no a d; install -cv b y"),
        ("slashes", "install a z/; install a/ z; install a d//; install -D a q/r/"),
        (
            "names of all sorts",
            "install 'two words' \"it's\" d; install -v a \"$(printf 'n\\nl')\"; install -- a -x",
        ),
        (
            "standard input by its name",
            "printf piped | install -m 640 /dev/stdin z; install /dev/stdin y < b; install -Dp /dev/stdin q/r < new; install -C /dev/stdin y < b; printf over | install -b /dev/stdin c; install -t d /dev/stdin < x",
        ),
        (
            "output that cannot be written",
            "install -v a z > /dev/full; echo $?; install -dv q/r > /dev/full; echo $?; install a y > /dev/full; echo $?; install -v no z > /dev/full; echo $?",
        ),
        ("holes", "install holes z"),
        ("umask", "umask 077; install a z; install -d q/r; install -D a s/t; install -m +r b y"),
    ]);
}

#[test]
fn owners_and_permissions_match_gnu() {
    compare_all(&[
        (
            "octal",
            "install -m 644 a z; install -m 0 a y; install -m 4711 a x2; install --mode=01777 a w; install -m 07755 a v",
        ),
        (
            "symbolic",
            "install -m u=rwx,go=r a z; install -m +x a y; install -m a+X a w; install -m u+s,g-w a v; install -m = a u; install -m u=rw,g=u,o=g a s",
        ),
        (
            "more of them",
            "install -m u+rw-r a z; install -m g=rwx,u=g-w a y; install -m a=rx,u+w a w; install -m o+t,+t a v; install -m ug=rws a u",
        ),
        (
            "numbers behind operators",
            "install -m =755 a z; install -m +4711 a y; install -m =7,+t a w; install -m u=rwx,-600 a v; install -m u=7 a u; install -m ug+0 a u; install -m +4-2 a u; install -m +8 a u; install -m +10000 a u; install -m +755, a u",
        ),
        (
            "numbers behind operators, directories",
            "for m in =755 =02755 +0 =0 +6000 -6000 -777 +2,g+s; do mkdir q$m; chmod 7777 q$m; install -d -m $m q$m; install -d -m $m r$m/s; done; chmod 777 q*",
        ),
        (
            "no modes",
            "install -m 0x a z; install -m 8 a z; install -m '' a z; install -m u+z a z; install -m rwx a z; install -m 10000 a z; install -m u a z; install -m , a z; install -m u=rg a z",
        ),
        (
            "owners",
            "install -o 1 a z; install -g 2 a y; install -o 1 -g 2 -m 6755 a w; install -o daemon -g adm a v; install --owner=0x10 --group=010 a u",
        ),
        (
            "owners with blanks and signs",
            "install -o +1 a z; install -g ' 2' a y; install -o +0x1 -g \"$(printf '\\t+3')\" a w; install -o '1 ' a v; install -o + a v; install -o '+ 1' a v; install -g ' ' a v; install -o 4294967294 a u",
        ),
        (
            "no owners",
            "install -o nosuch a z; install -g nosuch a z; install -o '' a z; install -o -1 a z; install -o 4294967295 a z; install -o 1:1 a z; install -g 5000000000 a z",
        ),
        ("-p", "install -p a z; install -p x b; install --preserve-timestamps la y; install -pm 600 new w"),
        (
            "directories",
            "install -d -m 700 q/r; install -d -m 2755 s; install -d -m 755 s; install -d -m 00755 s; chmod 6777 d; install -d d; install -d -m 755 d",
        ),
        (
            "directories, symbolic",
            "install -d -m u=rwx,g+s q; install -d -m a+X r; install -d -m g-s q; chmod 2770 d; install -d -m o=rx d; install -d -m = e",
        ),
        (
            "directories, owners",
            "install -d -o 1 -g 2 -m 711 q/r; install -d -o 1 d; install -d -g nosuch s; install -d -o 1 -m 2750 u/v",
        ),
    ]);
}

#[test]
fn directories_match_gnu() {
    compare_all(&[
        ("-d", "install -d z; install -d q/r/s; install -d q/r t e; install -d"),
        (
            "-d verbose",
            "install -dv z; install -dv q/r/s; install -dv q/r/s; install -d -v d/new e/new/er; install -vd ./k/../l",
        ),
        (
            "-d of what is there",
            "install -d a; install -d a/b; install -d ld; install -d la; install -d dangling; install -d loop; install -d dangling/x",
        ),
        ("-d with slashes", "install -dv z/; install -dv q//r//; install -d ''; install -d . d/.."),
        (
            "-d and others",
            "install -d -t d a; install -d -s z; install -dT z y x2; install -d -C z; install -d -D z",
        ),
        (
            "-D",
            "install -D a q/r/s; install -Dv a k/l; install -Dv b k/l; install -D a z; install -D a d; install -Dv a d/e/f",
        ),
        (
            "-D -t",
            "install -D -t q/r a b; install -Dv -t q/r a; install -Dv -t s/ c; install -D -t a b; install -D -t dangling a; install -D -t dangling/x a",
        ),
        (
            "-D fails",
            "install -D a b/c; install -D a b/c/d; install -D a no/../k; install -D no q/r; install -D d q2/r; install -D a b q/no",
        ),
        (
            "-D with modes",
            "install -D -m 600 a q/r/s; umask 027; install -D -m 711 a k/l; install -D -o 1 -g 1 a u/v",
        ),
    ]);
}

#[test]
fn existing_destinations_match_gnu() {
    compare_all(&[
        (
            "-C",
            "install a z; install -Cv a z; install -Cv b z; touch -d 2002-02-02 a; install -Cv a z; install -Cv a z; install -C -m 755 -v a z",
        ),
        (
            "-C of others",
            "install a z; install -C -m 644 -v a z; install -C -o 1 -v a z; install -C -g 1 -v a z; install -C -g 0 -v a z; install -C -m 4755 -v a z; install -C -m 4755 -v a z",
        ),
        (
            "-C and a file of the same name",
            "install -C p1/q/f d; install -Cv p1/q/f p2/q/f d; install -Cv p1/q/f p2/q/f p1/q/f d; install -bCv p2/q/f p1/q/f d",
        ),
        (
            "-C of no files",
            "install -Cv la z; install -Cv la z; install -Cv a la; install -Cv a d; install -Cv a d; install -Cv no z; install -Cv d z",
        ),
        (
            "-C with others",
            "install -Cp a z; install -Cs a z; install -C -s -p a z; install -bCv a z; install -bCv a z; install -bCv b z",
        ),
        (
            "-b",
            "install -b a b; install -bv a b; install -bv c z; install -b a d; install -bv a d; install -b a full",
        ),
        (
            "-b by rules",
            "install --backup=t a b; install --backup=numbered -v c b; install --backup=nil a b; install --backup=off c x; install --backup=simple a x",
        ),
        (
            "suffixes",
            "install -S .o a b; install -bS '' c b; install -S /x a x; SIMPLE_BACKUP_SUFFIX=.k install -b a x; VERSION_CONTROL=t install -b a x",
        ),
        ("backup is source", "install a a~; install -b a~ a; install -b --backup=t a~ a"),
        (
            "strip",
            "install --strip-program=true -s -v a z; install -s --strip-program=true -p a y; install --strip-program=true a w; install -s --strip-program=true -- a -q",
        ),
        (
            "strip fails",
            "install --strip-program=false -s a z; install --strip-program=false -sv a b; ls z b",
        ),
    ]);
}

#[test]
fn usage_errors_match_gnu() {
    compare_all(&[
        ("nothing", "install; install a; install -T a; install -t d; install -D a; install --"),
        ("unknown", "install --x a b; install -y a b; install -r a b; install --mode a"),
        (
            "ambiguous",
            "install --p a b; install --s a b; install --strip a z; install --pre a b; install --co a z; install --d a; install --ver a",
        ),
        (
            "cut short",
            "install --verb a z; install --mod 600 a y; install --own 1 a w; install --gr 1 a v; install --no a u; install --bac a s; install --comp a r; install --dir q",
        ),
        (
            "missing value",
            "install -m; install -o; install -g; install -t; install -S; install --strip-program; install --suffix",
        ),
        ("value not taken", "install --verbose=1 a z; install --directory=x; install --strip=x a z"),
        ("bad backup", "install --backup=x a b; VERSION_CONTROL=x install -b a b"),
        ("-t and others", "install -t d -t e a; install -t d -T a; install -td a b"),
        (
            "context",
            "install -Z a z; install --context a y; install --context=x a w; install --preserve-context a v; install -Z --preserve-context a u",
        ),
        (
            "order of mistakes",
            "install -m 9 -o nosuch a; install -m 9 -o nosuch a z; install -o nosuch no z; install -Cp -m 9 a z",
        ),
        ("posix", "POSIXLY_CORRECT=1 install a z -v; POSIXLY_CORRECT=1 install -v a z"),
        ("letters together", "install -Dvm600 a q/r; install -pvt d a; install -bS.x a b"),
        ("plain C locale", "LC_ALL=C install -v a é; install -v a é"),
    ]);
}
