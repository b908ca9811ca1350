//! Command lines, environment variables, and the text of each message.

use super::{compare, compare_all, ours};
use crate::twins::Twins;

#[test]
fn abbreviated_long_options_match_gnu() {
    let names = [
        "a",
        "ar",
        "at",
        "b",
        "ba",
        "c",
        "co",
        "con",
        "copy",
        "d",
        "de",
        "f",
        "i",
        "l",
        "n",
        "no",
        "no-c",
        "no-d",
        "no-p",
        "no-t",
        "o",
        "p",
        "pa",
        "path",
        "par",
        "pr",
        "r",
        "re",
        "rec",
        "ref",
        "rem",
        "s",
        "sp",
        "st",
        "su",
        "sy",
        "t",
        "u",
        "v",
        "ver",
        "verbos",
        "verbosee",
        "VERBOSE",
        "h",
        "",
        "=x",
        "link=x",
        "verbose=x",
    ];
    let lines: Vec<(String, String)> = names
        .iter()
        // The output of help and version differs between the tools. After a failed clone each tool
        // leaves its own results.
        .filter(|name| !["h", "ver", "ref"].contains(name))
        .map(|name| (format!("--{name}"), format!("cp --{name} a d")))
        .collect();
    let lines: Vec<(&str, &str)> = lines.iter().map(|(name, line)| (name.as_str(), line.as_str())).collect();
    compare_all(&lines);
}

#[test]
fn options_take_effect_in_their_order() {
    compare_all(&[
        (
            "mistake after mistake",
            "cp --sparse=x -y a z; cp -y --sparse=x a z; cp -t d -t e -y a; cp -ls -y a z",
        ),
        (
            "help before a mistake",
            "cp --help -y | head -c 6; cp -y --help; cp a --help | head -c 6; cp --version -y | head -c 3",
        ),
        (
            "letters",
            "cp -abc a z; cp -k a z; cp -rS; cp -tx a; cp a -t; cp -v=x a z; cp -W; cp -1; cp -; cp --; cp -- a; cp - -",
        ),
        (
            "values",
            "cp --target-directory= a; cp --target-directory a; cp -t '' a; cp --suffix= a b; cp -bS/ a c; cp -bS.. a c; cp -bS . a b",
        ),
        (
            "operands",
            "cp -T a ''; cp '' d; cp -T; cp -T a; cp a ''; cp -rT -t d a; cp --parents a; cp --parents -T a d",
        ),
        (
            "follow or not",
            "cp -rHL ld y; cp -rLH ld w; cp -rHP ld v; cp -rPH ld u; cp -aH ld s; cp -rLd ld q; cp -rdL ld p; cp -dL la o; cp -Ld la n",
        ),
        (
            "keep or not",
            "cp --preserve=m a z; cp --preserve=a a y; cp --preserve=,mode a z; cp --preserve=mode, a z; cp --preserve=mode=x a z; cp --preserve mode a; cp --no-preserve mode a z",
        ),
        (
            "clone and holes",
            "cp --reflink= a z; cp --reflink=a a z; cp --reflink=auto --sparse=always a z; cp --reflink=never --sparse=always holes y",
        ),
    ]);
}

#[test]
fn environment_variables_match_gnu() {
    compare_all(&[
        (
            "options first",
            "POSIXLY_CORRECT=1 cp -r t z -v; POSIXLY_CORRECT= cp a z -v; POSIXLY_CORRECT=1 cp a d -t e",
        ),
        (
            "through links that lead to nothing",
            "POSIXLY_CORRECT=1 cp a dangling; readlink dangling; cp b dangling",
        ),
        (
            "through links elsewhere",
            "ln -s ../new-one d/l; POSIXLY_CORRECT=1 cp -p x d/l; POSIXLY_CORRECT=1 cp a loop; ln -s no/where l; POSIXLY_CORRECT=1 cp a l",
        ),
    ]);
    let run = ours("cp a dangling; POSIXLY_CORRECT=1 cp --verify a dangling; cat missing");
    assert_eq!(
        (run.out.as_str(), run.err.as_str()),
        ("alpha", "cp: not writing through dangling symlink 'dangling'")
    );
}

#[test]
fn names_in_messages_are_quoted_for_a_shell() {
    let ascii = r#"for n in 'a b' "it's" '"' '$x' '`' 'a\b' '~x' 'x~' '#a' 'a#' '{' '}' '{a}' '!' 'a!b' "it's!" "it's a" 'it'"'"'s$' "'" "''" "\"'" '-' '=' 'a=b' '@' '%' '+' ',' ':' ';' '&' '|' '<' '>' '(' ')' '[' ']' '*' '?' '^' '_'
        do cp "no/$n" z; cp -s "$n" d; done"#;
    let bytes = r#"for n in "$(printf 'a\tb')" "$(printf 'a\nb')" "$(printf '\001')" "$(printf 'x\033y')" "$(printf '\177')" "$(printf '\200')" "$(printf '\303\251')" "$(printf 'a\303')" "$(printf '\342\202\254')" "$(printf '\302\205')" "$(printf '\342\200\250')" "$(printf "it's\nx")" "$(printf "'\n'")" "$(printf "\303\251'")" "$(printf 'a\nb\tc')" "$(printf '\355\240\200')" "$(printf '\364\217\277\277')" "$(printf '\360\237\230\200')" "$(printf '\302\240')" "$(printf '\302\255')" "$(printf '\342\200\213')" "$(printf '\356\200\200')"
        do cp "no/$n" z; cp -s "$n" d; cp --sparse="$n" a z; cp "--backup=$n" a z; cp --preserve="$n" a z; VERSION_CONTROL="$n" cp -b a z; done"#;
    compare("ASCII", ascii);
    compare("UTF-8", bytes);
    compare("C", &format!("export LC_ALL=C; {ascii}; {bytes}"));
}

/// Unknown options are printed as by GNU, except for bytes that would steer a terminal: haul prints
/// these as numbers. A name from a list of files that is parsed as an option therefore cannot
/// rewrite the screen.
#[test]
fn control_characters_in_unknown_options_are_escaped() {
    compare("plain", "cp \"--it's\" a z; cp '--a\"b' a z; cp --é a z");
    let run = ours("cp \"$(printf -- '--x\\033[2Jy')\" a z; cp \"$(printf -- '-\\033')\" a z");
    assert!(run.err.contains("cp: unrecognized option '--x\\033[2Jy'"), "{}", run.err);
    assert!(run.err.contains("cp: invalid option -- '\\033'"), "{}", run.err);
}

#[test]
fn write_errors_match_gnu() {
    compare_all(&[
        (
            "full",
            "cp a /dev/full; cp -v a z > /dev/full; echo $?; cp --help > /dev/full; echo $?; cp --version > /dev/full; echo $?",
        ),
        ("closed standard error", "cp no z 2>&-; echo $?; cp a z 2>&-; echo $?; cp a y <&-; echo $?"),
        (
            "closed standard input",
            "cp -v a z >&-; echo $?; mv -v z y >&-; echo $?; install -v a x >&- <&-; echo $?; cp a w >&-; echo $?",
        ),
        (
            "names too long",
            "cp a \"$(head -c 300 /dev/zero | tr '\\0' n)\" 2>&1 | tail -c 30; cp a \"$(head -c 255 /dev/zero | tr '\\0' n)\"",
        ),
        (
            "targets",
            "cp a b c; cp a b a; cp a b loop; cp -t loop a; cp -t dangling a; cp -t a/ b; cp a loop/; cp a b loop/x; cp a b no/x",
        ),
        (
            "kinds",
            "cp t z; cp t a d; cp t t d; cp -r t a b; cp -r t z/; cp -r a y/; cp ld w; cp . z; cp .. z; cp -r . .; cp a/b z; cp no/a z",
        ),
        ("twice", "cp -r p1 ./p1 e; cp a ha e; cp -d a ha a d; cp la a d; cp -P la la d; cp -d la a la d"),
        // The data that GNU copies before it stops depends on inode numbers, and so do the dangling
        // links.
        ("into itself", "cp -r t t; rm -rf t/t t/dead; cp -rT t t; cp -rl t t/x; rm -rf t"),
        // Earlier versions printed one message for each directory that the copy had created.
        ("into itself once", "mkdir m n; cp -rl m n n; rm -r n; mkdir n; cp -r m t n n; rm -r n"),
    ]);
}

/// In earlier versions an unreadable answer counted as no and not as a failure, and so did a
/// message that could not be written.
#[test]
fn unreadable_answers_and_unwritable_messages_fail() {
    compare_all(&[
        (
            "no answers",
            "cp -i a b <&-; echo $?; mv -i a b <&- >&-; echo $?; cp -i a b < d; echo $?; mv -i a z <&-; echo $?",
        ),
        (
            "no messages",
            "cp -i a b 2>&-; echo $?; echo y | cp -i a b 2>&-; echo $?; echo y | mv -i a b 2>&- >&-; echo $?",
        ),
        (
            "full",
            "cp -i a b 2>/dev/full </dev/null; echo $?; cp -r t t z 2>/dev/full; echo $?; cp a z 2>/dev/full; echo $?",
        ),
    ]);
}

/// In earlier versions a working directory without search permission was refused as a target before
/// the names in it were.
#[test]
fn an_unsearchable_working_directory_is_accepted_as_target() {
    let mut wrong = Vec::new();
    for words in [
        "FROM/passwd .",
        "FROM/passwd FROM/group .",
        "-t . FROM/passwd",
        "FROM/passwd .//.",
        "-t ./ FROM/group",
    ] {
        let tools = [("cp", "/etc"), ("mv", "/nowhere"), ("install", "/etc")]
            .map(|(tool, from)| format!("{tool} {}; echo $?; ", words.replace("FROM", from)));
        let script = format!("(cd d; chmod 600 .; {}); chmod 700 d", tools.concat());
        let Some(twins) = Twins::of_user() else { return };
        wrong.extend(twins.difference(&script));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
