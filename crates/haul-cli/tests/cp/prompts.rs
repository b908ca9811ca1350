//! Existing sinks with all combinations of options that prompt, keep, compare, back up and remove.

use super::{compare_all, ours};

#[test]
fn prompts_and_answers_match_gnu() {
    compare_all(&[
        (
            "orders of -i and -n",
            "cp -in a b; echo y | cp -ni a b; echo n | cp -i a b; echo y | cp -nf a c; cp -n a d/a -f",
        ),
        ("-i and -f", "cp -fi a b </dev/null; echo y | cp -if a b; echo $?"),
        (
            "words",
            "echo yes | cp -i a b; echo Y | cp -i a c; echo ' y' | cp -i a d/a; echo ja | cp -i a new; printf y | cp -i b new",
        ),
        ("no words", "cp -i a b </dev/null; echo $?; cp -i a b c d </dev/null"),
        (
            "-i with links",
            "echo y | cp -il a b; echo n | cp -il a c; echo y | cp -il a ha; echo y | cp -is a b; echo n | cp -is a c",
        ),
        ("-i with -f and links", "echo y | cp -ilf a b; echo y | cp -isf a c"),
        ("-i with backups", "echo y | cp -ib a b; echo n | cp -ib a c; echo y | cp -i --backup=t a b"),
        (
            "-i onto links",
            "echo y | cp -i a dangling; echo y | cp -i a la; echo y | cp -iP la dangling; echo y | cp -iP la b",
        ),
        ("-i onto directories", "echo y | cp -i a full; echo y | cp -ir a full; echo y | cp -ir t a"),
        ("-i onto itself", "echo y | cp -i a a; echo y | cp -i a ha; echo y | cp -i a la"),
        (
            "-i trees",
            "yes | cp -irv t full 2>/dev/null | sort; yes | cp -ir t/. full 2>&1 | tr '?' '\\n' | sort",
        ),
        ("-i and -u", "cp -iu a new </dev/null; echo y | cp -iu new a; echo y | cp -ui new b; cp -ui a new"),
        ("-i and --remove-destination", "echo y | cp -i --remove-destination a ro; ls -l ro | cut -c1-10"),
        ("names in questions", "cp a \"it's\"; echo y | cp -i a \"it's\"; echo y | cp -i a 'two words'"),
    ]);
}

/// Answers may come from a file, so that the order of the prompts matters. It is the order of the
/// inodes, which differs between sandboxes: both tools therefore run in one sandbox.
#[test]
fn prompts_come_in_the_order_of_gnu_cp() {
    let run = ours(
        "mkdir -p m/a/b/c m/d m/e/f; for d in m m/a m/a/b m/a/b/c m/d m/e m/e/f; do for n in 3 1 2; do echo $n > $d/$n; done; done
         ln m/1 m/a/h; ln m/1 m/0; cp -a m z; for tool in /usr/bin/cp cp; do
           yes n | $tool -ir m/. z 2>&1 | sed 's,/usr/bin/,,g' | tr '?' '\\n' > said; [ \"$(wc -l < said)\" -gt 20 ] || echo too few
           mv said said$(echo $tool | tr -d /)
         done; diff saidusrbincp saidcp",
    );
    assert_eq!((run.status, run.out.as_str()), (Some(0), ""), "{}", run.err);
}

/// In earlier versions a name that `-u` would have skipped became the name that others were linked
/// to, and `-n` did not keep them.
#[test]
fn no_clobber_with_update_keeps_names_of_hard_links() {
    let names =
        "mkdir s; printf one > s/a; ln s/a s/b; ln s/a s/c; mkdir k; printf old > k/a; printf kept > k/b";
    let lines = ["cp -u -n -aT s k", "cp -n -u -rL s/a s/b s/c k", "cp -anu s/. k", "cp -u -aT s k"]
        .map(|cp| format!("{names}; touch -d 2035-01-01 k/a; {cp}; cat k/*; stat -c %h k/*"));
    compare_all(&lines.each_ref().map(|line| ("-n and -u", &**line)));
}

#[test]
fn no_clobber_and_update_match_gnu() {
    compare_all(&[
        (
            "-n onto anything",
            "cp -n a a; cp -n a ha; cp -n a la; cp -n a dangling; cp -n a loop; cp -n a full",
        ),
        ("-n trees", "cp -nr t full; cp -nrv t full | sort; cp -n t a; cp -nr t a"),
        ("-n links", "cp -nl a b; cp -ns a b; cp -nl a z; cp -ns a y"),
        (
            "-n with others",
            "cp -n --remove-destination a b; cp -nf a ro; cp -nu new a; cp -un a new; cp -nv a b c d | sort",
        ),
        (
            "-u with links",
            "cp -ul new a; cp -us new b; cp -ufl new c; cp -ufs new x; cp -ulv a new; cp -usv a new",
        ),
        ("-u with backups", "cp -ub new a; cp -u --backup=t new b; cp -ub a new"),
        ("-u onto itself", "cp -u a a; cp -u a ha; cp -u a la; cp -u a no/z; cp -u no z"),
        ("-u of links", "cp -uP la la2; cp -uP la dangling; touch -h -d 2030-01-01 la; cp -uP la la2"),
        ("-u onto directories", "cp -ur a full; cp -u a full/a; cp -ud t/1 t/h1 d; cp -ud t/1 t/h1 d"),
        ("--update without a value", "cp --update a new; cp --update new a; cp --upd a b"),
    ]);
}

#[test]
fn backups_of_all_forms_match_gnu() {
    compare_all(&[
        ("forced onto itself", "cp --backup=numbered -f a a; cp --backup=numbered -f a a; cp -bf a ./a; cp -bf la la"),
        ("onto itself", "cp -b a ./a; cp --backup=t -f a ha; cp -bf a la; cp -bf la a"),
        ("of what is no file", "cp -bf dangling dangling; cp -bf t t; cp -bfr t t; cp -bf no no; cp -bf e e"),
        ("in directories", "cp -b -t d a; cp -b -t d a; cp -bv -t full b; cp --backup=t -v a b c d | sort; cp --backup=t -v a b c d | sort"),
        ("counting on", "cp --backup=existing a b; touch b.~7~; cp --backup=existing a b; cp --backup=existing c b"),
        ("what is no number", "touch b.~007~ b.~x~ b.~3~x; cp --backup=existing a b; cp --backup=t a b"),
        ("of a just-created file", "cp -b p1/q/f p2/q/f d; cp -b p1/q/f p2/q/f d; cp --backup=simple p1/q/f p2/q/f e"),
        ("that would be the source", "cp -b a a~; cp -b a~ a; cp -b a b~; cp -b b b~; cp --backup=t a a~; cp --backup=t a~ a"),
        ("of links", "cp -bP la b; cp -bP la la2; cp -b a la; cp -bl a b; cp -bs a c; cp -bl a ha; cp -bsv a b"),
        ("of directories", "cp -b full a; cp -rb full a; cp -rb a full; cp -rbT a full; cp -rbT full a"),
        ("with --remove-destination", "cp -b --remove-destination a b; cp -b --remove-destination a ha; cp -b --remove-destination a la"),
        ("with --parents", "cp --backup=t --parents t/s/2 t/s/2 d; cp --parents -b t/s/2 d; cp --parents -b t/s/2 d"),
        ("words", "cp --backup=s a b; cp --backup=nu a b; cp --backup=ni a b; cp --backup=ne a c; cp --backup=e a c; cp --backup=o a c"),
        (
            "environment",
            "VERSION_CONTROL=none cp -b a b; VERSION_CONTROL=simple cp --backup=t a b; VERSION_CONTROL= cp -b a c
             VERSION_CONTROL=n cp -b a b; VERSION_CONTROL=bogus cp a b; SIMPLE_BACKUP_SUFFIX= cp -b a c
             SIMPLE_BACKUP_SUFFIX=/x cp -b a c; SIMPLE_BACKUP_SUFFIX=.o cp -S .n a c",
        ),
    ]);
}

#[test]
fn remove_destination_matches_gnu() {
    compare_all(&[
        (
            "links",
            "cp --remove-destination la la2; cp --remove-destination -P la la2; cp --remove-destination -P la a",
        ),
        (
            "dead ends",
            "cp --remove-destination a dangling; cp --remove-destination a loop; cp --remove-destination a full",
        ),
        (
            "onto itself",
            "cp --remove-destination -v a z; cp --remove-destination a ./a; cp --remove-destination a ha",
        ),
        (
            "with links made",
            "cp --remove-destination -l a b; cp --remove-destination -s a c; cp --remove-destination -l a ha",
        ),
        (
            "-f",
            "cp -f a no/z; cp -f a b/z; cp -fv a dangling; cp -lf a b; cp -lfv a c; cp -lf a full; cp -sf a d/a",
        ),
    ]);
}
