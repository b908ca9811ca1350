//! Command lines within one file system, by topic. Each line runs in its own sandboxes.

use super::compare_all;

#[test]
fn names_match_gnu() {
    compare_all(&[
        ("to a new name", "mv a z"),
        ("over a file", "mv a b"),
        ("into a directory", "mv a d; mv b c d; mv x d/"),
        ("-t and -T", "mv -t d a b; mv --target-directory=e c; mv -T t z; mv -T x new"),
        ("a directory", "mv t z; mv z d; mv d/z/ e"),
        ("slashes", "mv d/ z/; mv e/ zz; mv a zzz/; mv zz// full//"),
        ("a file with a slash", "mv a/ z; mv a b/; mv b/ d; mv no/ z"),
        ("links", "mv la z; mv dangling y; mv loop w; mv ld v"),
        (
            "links with slashes",
            "mv ld/ z; mv la/ z; mv --strip-trailing-slashes -t d ld/ a; mv --str -T la2/ y",
        ),
        ("over links", "mv a la; mv b dangling; mv c loop; mv x ld"),
        ("onto a link to a directory", "mv -T a ld; mv d/a ld"),
        ("itself", "mv a a; mv a ./a; mv d d; mv d d/; mv . z; mv .. z; mv d/. z"),
        ("into itself", "mv d d/z; mv t t/s; mv t/ t/s/u; mv t t/s/../new; mv ld d; mv -T t t/s/z"),
        ("hard links", "mv a ha; mv ha a; mv t/1 t/h1; mv -f a ha; mv -b a ha"),
        ("a link over what it leads to", "mv la a; mv -f la a; mv la ha; mv ld d; mv -T ld d"),
        ("a file over a link to it", "mv a la; mv b la2"),
        ("a directory over an empty one", "mv -T t e; mv -T e d; mkdir full/e d/e; mv d/e full"),
        ("a directory over a full one", "mv t full; mv -T d full; mv d/ full/t/.."),
        ("kinds", "mv t a; mv -T a d; mv a full; mv -T a e; mkdir z; mv d/a z/; mkdir full/b2; mv b full/b2"),
        (
            "missing",
            "mv no z; mv no d; mv a no/z; mv a b no; mv a b c; mv -t no a; mv -t a b; mv '' z; mv a ''",
        ),
        ("several, some missing", "mv a no b d; mv x a2 c full; echo $?"),
        ("same names", "mv p1/q p2/q d; mv p1/q/f p2/q/f d; mv d/a full/b d/a e"),
        (
            "just created",
            "mkdir z y w; printf 1 > z/f; printf 2 > y/f; mv z/f y/f w; mv -f z/f y/f w; mv --backup=t w/f y/f z",
        ),
        ("one twice", "mv a a d; mv b ./b d; mv t t d"),
        ("names of all sorts", "mv 'two words' \"it's\" d; mv \"$(printf 'n\\nl')\" d; mv -- -x d"),
        ("special files", "mv t/p z; mv z d; mv x d/p"),
        ("closed directory", "mv closed z; mv closed/z y"),
    ]);
}

#[test]
fn existing_sinks_match_gnu() {
    compare_all(&[
        ("-n", "mv -n a b; mv -n a z; mv -nv b c d; mv -n no b; mv -n no z; mv -n t full"),
        ("-i no", "mv -i a b; echo n | mv -i a b; mv -i t full"),
        ("-i yes", "echo y | mv -i a b; echo yes | mv -iv c x; echo y | mv -i t e"),
        ("-i several", "printf 'y\\nn\\ny\\n' | mv -iv a b full/b d"),
        ("-i read-only", "echo y | mv -i a ro; printf r > ro2; chmod 4411 ro2; echo n | mv -i b ro2"),
        ("-f -i -n, the last holds", "mv -i -f a b; mv -f -n b c; echo y | mv -n -i b c; mv -in b c"),
        ("read-only, without a prompt", "mv a ro; mv -f b ro"),
        ("-u", "mv -u a new; mv -uv new b; mv -u a c; mv -u x z; mv -u t e; mv -u no z"),
        ("-u and links", "mv -u la dangling; touch -h dangling; mv -uv dangling la"),
        ("-un", "mv -un new b; mv -nu new z"),
        ("-b", "mv -b a b; mv -b x b; mv -bv c b; mv -b new z"),
        ("-b directories", "mv -b t full; mv -bT d full; mv -bvT e d; mv -bT a e"),
        ("-b kinds", "mv -b t a; mv -bvT b t; mv -b x full"),
        ("-b itself", "mv -b a a; mv -b a ha; mv -b la a; mv -b a la; mv -bT d d; mv -b la la2"),
        ("backup is source", "mv a b~; mv -b b~ b; mv -S~ b~ b; mv --backup=t b~ b"),
        (
            "numbered",
            "mv --backup=numbered a b; mv --backup=t c b; mv --backup=existing x b; mv --backup=nil new b",
        ),
        (
            "simple, none, suffix",
            "mv --backup=simple a b; mv --backup=off c b; mv -S .o x b; mv -bS '' new b; mv -S /x ro b",
        ),
        (
            "variables",
            "VERSION_CONTROL=t mv -b a b; SIMPLE_BACKUP_SUFFIX=.bak mv -b c b; VERSION_CONTROL=x mv -b x b",
        ),
        ("backup in a directory", "mv -b a d; mv -bv a d; mv --backup=t b c d; mv -b p1/q/f p2/q/f d"),
        ("unbackup", "mv -bv t/s t; mv -bT t t/s; mkdir -p t/s/t; mv -bvT t t/s/t"),
    ]);
}

#[test]
fn output_matches_gnu() {
    compare_all(&[
        ("-v", "mv -v a z; mv -v t d; mv -v b c d; mv -vT e zz; mv -v la 'two words' \"it's\" d"),
        ("-v over", "mv -v a b; mv -vb c b; mv -vf x ro"),
        (
            "other languages' letters",
            "mv -v a é; mv é z; LC_ALL=C mv é y; LC_ALL=C mv --update=x a b 2>/dev/null",
        ),
        (
            "output that cannot be written",
            "mv -v a z > /dev/full; echo $?; mv b y > /dev/full; echo $?; mv -v c d > /dev/full; echo $?; mv -v no z > /dev/full; echo $?",
        ),
        ("control characters", "mv -v a \"$(printf 'z\\033[31m')\"; mv \"$(printf 'no\\n')\" z"),
    ]);
}

#[test]
fn usage_errors_match_gnu() {
    compare_all(&[
        ("nothing", "mv; mv a; mv -T a; mv -t d; mv -t d -T a; mv -T a b c; mv --"),
        ("unknown", "mv --x a b; mv --x=3 a b; mv -y a b; mv -fy a b; mv -r a b"),
        ("ambiguous", "mv --no a b; mv --s a b; mv --ver a b; mv --n a b; mv --v a b"),
        (
            "cut short",
            "mv --forc a z; mv --verb b y; mv --int c w; mv --no-c b x; mv --no-t x v; mv --b v u; mv --cont u s",
        ),
        ("missing value", "mv -t; mv -S; mv --suffix; mv --target-directory"),
        ("value not taken", "mv --force=3 a b; mv --context=x a b; mv --strip-trailing-slashes= a b"),
        ("bad backup", "mv --backup=x a b; mv --backup=n a b; mv --backup= a z"),
        ("backup and keep", "mv -bn a b; mv -nb a b; mv -S x -n a b; mv --backup=off -n a b; mv -bnf a b"),
        ("-t twice", "mv -t d -t e a; mv -td -te a"),
        ("-Z", "mv -Z a z; mv --context z y"),
        ("posix", "POSIXLY_CORRECT=1 mv a z -v; POSIXLY_CORRECT=1 mv -v a z"),
        ("letters together", "mv -fvt d a; mv -ftd b; mv -bS .x c d"),
        ("options after operands", "mv a -v z; mv b d -b; mv -- c d -n"),
    ]);
}
