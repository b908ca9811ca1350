//! Options of `cp` and `mcp` in one table for parsing, abbreviations and help.

use crate::getopt::Value::{No, Optional, Required};
use crate::getopt::{Opt, gnu, help_lines, later, letter, older, own, shared};

/// All options, in the order in which cp lists the candidates of an abbreviation. Help leaves out
/// options without a description.
pub(super) const OPTIONS: &[Opt] = &[
    gnu("archive", "a", No, "same as -dR --preserve=all"),
    gnu("attributes-only", "", No, "copy attributes, not data"),
    shared::BACKUP,
    shared::B,
    gnu("copy-contents", "", No, "read special files like regular ones when recursive"),
    letter("d", "same as --no-dereference --preserve=links"),
    gnu("dereference", "L", No, "follow symbolic links in SOURCE"),
    gnu("force", "f", No, "remove a destination that can't be opened and try again"),
    letter("H", "follow symbolic links named as SOURCE"),
    gnu("interactive", "i", No, "ask before overwriting (overrides an earlier -n)"),
    gnu("link", "l", No, "make hard links instead of copying"),
    gnu("no-clobber", "n", No, "leave existing files alone (overrides an earlier -i)"),
    gnu("no-dereference", "P", No, "copy symbolic links as links"),
    letter("p", "same as --preserve=mode,ownership,timestamps"),
    gnu("no-preserve", "", Required("LIST"), "don't keep the attributes in LIST"),
    shared::NO_TARGET_DIRECTORY,
    gnu("one-file-system", "x", No, "stay on this file system"),
    gnu("parents", "", No, "rebuild the source's whole path under DIRECTORY"),
    older("path", "parents"),
    gnu(
        "preserve",
        "",
        Optional("LIST"),
        "keep mode, ownership, timestamps, or what LIST says: mode, ownership, timestamps, links, context, xattr, all",
    ),
    gnu("recursive", "Rr", No, "copy directories with all they hold"),
    gnu("remove-destination", "", No, "remove each existing destination before opening it"),
    gnu("sparse", "", Required("WHEN"), "make holes: auto, always, never"),
    gnu("reflink", "", Optional("WHEN"), "share blocks with the source: auto (default), always, never"),
    shared::STRIP_TRAILING_SLASHES,
    shared::SUFFIX,
    gnu("symbolic-link", "s", No, "make symbolic links instead of copying"),
    gnu("target-directory", "t", Required("DIRECTORY"), "copy all SOURCEs into DIRECTORY"),
    shared::UPDATE,
    shared::VERBOSE,
    gnu("context", "", Optional("CTX"), "give new files the SELinux context CTX; without CTX as -Z"),
    letter("Z", "give copies the SELinux type that the policy has for their path"),
    later("debug", No, "say how each file is copied; implies -v"),
    later("keep-directory-symlink", No, "copy into directories that links at the destination lead to"),
    own("threads", Required("N"), "use N worker threads (default: one a processor)"),
    shared::SPLIT_SIZE,
    shared::BUFFER_SIZE,
    own("direct-read", No, "read past the page cache"),
    own("direct-write", No, "write past the page cache"),
    own("fadvise-read", No, "drop the source from the page cache once read"),
    own("fadvise-write", No, "drop the copy from the page cache once written"),
    own("double-buffer", No, "let reading overlap writing"),
    own("print-hash", No, "print each file's checksum, computed from the same read"),
    own("hash-type", Required("TYPE"), "the kind of checksum (default md5; see 'haul sum --help')"),
    own("hash-leaf-size", Required("KIB"), "print hash trees with leaves of this size (default 1048576)"),
    own("check-tree", No, "print the values of the tree's leaves"),
    own("print-stats", No, "print size, time and rate of each file"),
    own("print-src", No, "print the source's name with checksum and figures, not the copy's"),
    own("offset", Required("POS"), "copy from this byte of each source on"),
    own("length", Required("LEN"), "copy at most this many bytes of each source"),
    own("dst-offset", Required("POS"), "write to this byte of each destination on"),
    own(
        "read-stdin",
        No,
        "read lines 'SOURCE DEST [START-END,...]' from standard input, names percent-encoded",
    ),
    own("skip-chmod", No, "leave files with the permissions they had while being written"),
    own(
        "verify",
        Optional("HOW"),
        "prove the copy: cached (default) reads it back and compares, reread does so from the device and mends, \
         stream hashes what is written, hybrid rereads what is larger than free memory, none",
    ),
    own(
        "waybill",
        Required("FILE"),
        "write a receipt with the digests of all that was copied, for 'haul verify'",
    ),
    own(
        "leaf",
        Optional("SIZE"),
        "keep digests of leaves of SIZE (1K; a power of two) in the waybill as well, for 'haul verify --locate'",
    ),
    own("waybill-digests", Required("LIST"), "further digests for the waybill, which always has blake3"),
    own(
        "resume",
        No,
        "make a job of it: the same command run again goes on where it stopped; implies --preserve=mode,timestamps",
    ),
    own("restart", No, "forget the job: copy as if it had never run"),
    own(
        "log-mechanism",
        Required("MECHANISM"),
        "how files share the object log: file, transaction[:FILES], universal (default)",
    ),
    own(
        "log-encoding",
        Required("ENCODING"),
        "how objects are written in it: char, int, enc, binary, bit8 (default), bit64",
    ),
    own(
        "sync",
        Required("WHAT"),
        "what is made durable before it is logged: each object, groups of a second or 256 MiB (group, default), or none",
    ),
    own(
        "verify-resume",
        Optional("HOW"),
        "compare again what is logged: none, sample (default after an end that was not clean), all (without HOW)",
    ),
    own(
        "state-dir",
        Required("DIR"),
        "keep jobs in DIR (default: haul in $XDG_STATE_HOME or ~/.local/state)",
    ),
    shared::PROGRESS,
    shared::JSON,
    shared::HELP,
    shared::VERSION,
];

/// Returns the output of `--help`.
pub(super) fn help(tool: &str) -> String {
    let mut text = format!(
        "Usage: {tool} [OPTION]... [-T] SOURCE DEST\n\
         \x20 or:  {tool} [OPTION]... SOURCE... DIRECTORY\n\
         \x20 or:  {tool} [OPTION]... -t DIRECTORY SOURCE...\n\
         Copy SOURCE to DEST, or several SOURCEs into DIRECTORY, by every core.\n\n"
    );
    text.push_str(&help_lines(OPTIONS));
    text.push_str(
        "\nSizes take the suffixes K, M, G, T (powers of 1024) and KB, MB, ... (powers of 1000).\n\
         Exit status: 0 if all was copied, 1 if anything failed, 128 + N if signal N interrupted it.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented;
    use crate::getopt::{Typed, parse, rules};
    use std::ffi::OsString;

    #[test]
    fn options_are_apart_and_told_by_help() {
        rules::hold(OPTIONS, &help("cp"));
    }

    #[test]
    fn every_option_is_documented_and_tested() {
        documented::in_document("docs/options/cp.md", documented::typed_of(OPTIONS));
    }

    fn typed(line: &str) -> Typed {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        parse(OPTIONS, &words, false)
    }

    fn names(line: &str) -> Vec<(&'static str, Option<String>)> {
        let value = |value: OsString| value.into_string().unwrap();
        let typed = typed(line);
        assert_eq!(typed.mistake, None);
        typed.options.into_iter().map(|option| (option.name, option.value.map(value))).collect()
    }

    #[test]
    fn abbreviations_of_cp_keep_their_meaning_beside_options_it_lacks() {
        assert_eq!(names("--l"), [("link", None)]);
        assert_eq!(names("--pr"), [("preserve", None)]);
        assert_eq!(names("--dou"), [("double-buffer", None)]);
        assert_eq!(names("--pa"), [("parents", None)], "an old name of the same option makes no doubt");
        assert_eq!(names("--path"), [("parents", None)]);
        assert_eq!(
            names("--d"),
            [("dereference", None)],
            "a name of a later release gives way to an older one"
        );
        assert_eq!(names("--de"), [("dereference", None)]);
        assert_eq!(names("--deb"), [("debug", None)]);
    }

    #[test]
    fn mistakes_are_named() {
        let message = |line: &str| typed(line).mistake.unwrap().to_string();
        assert_eq!(message("--x=3"), "unrecognized option '--x=3'");
        assert_eq!(
            message("--re"),
            "option '--re' is ambiguous; possibilities: '--recursive' '--remove-destination' '--reflink'"
        );
        assert_eq!(message("-ay"), "invalid option -- 'y'");
        assert_eq!(message("--p"), "option '--p' is ambiguous; possibilities: '--parents' '--preserve'");
        assert_eq!(message("--it's"), "unrecognized option '--it's'");
        assert_eq!(message("--\u{1b}[2J"), r"unrecognized option '--\033[2J'");
        assert_eq!(message("-\u{1b}"), r"invalid option -- '\033'");
        assert_eq!(message("-t"), "option requires an argument -- 't'");
        assert_eq!(message("--suf"), "option '--suffix' requires an argument");
        assert_eq!(message("--recursive=3"), "option '--recursive' doesn't allow an argument");
    }
}
