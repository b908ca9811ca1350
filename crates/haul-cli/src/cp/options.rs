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
    gnu("copy-contents", "", No, "copy the contents of special files when recursive"),
    letter("d", "same as --no-dereference --preserve=links"),
    gnu("dereference", "L", No, "follow symbolic links in SOURCE"),
    gnu("force", "f", No, "remove a destination that cannot be opened and try again"),
    letter("H", "follow symbolic links named as SOURCE"),
    gnu("interactive", "i", No, "ask before overwriting (overrides an earlier -n)"),
    gnu("link", "l", No, "make hard links instead of copying"),
    gnu("no-clobber", "n", No, "leave existing files alone (overrides an earlier -i)"),
    gnu("no-dereference", "P", No, "copy symbolic links as links"),
    letter("p", "same as --preserve=mode,ownership,timestamps"),
    gnu("no-preserve", "", Required("LIST"), "do not preserve the attributes in LIST"),
    shared::NO_TARGET_DIRECTORY,
    gnu("one-file-system", "x", No, "stay on this file system"),
    gnu("parents", "", No, "create the full path of each SOURCE under DIRECTORY"),
    older("path", "parents"),
    gnu(
        "preserve",
        "",
        Optional("LIST"),
        "preserve mode, ownership and timestamps, or the attributes in LIST: mode, ownership, timestamps, links, context, xattr, all",
    ),
    gnu("recursive", "Rr", No, "copy directories with their contents"),
    gnu("remove-destination", "", No, "remove each existing destination before opening it"),
    gnu("sparse", "", Required("WHEN"), "make holes: auto, always, never"),
    gnu("reflink", "", Optional("WHEN"), "share blocks with the source: auto (default), always, never"),
    shared::STRIP_TRAILING_SLASHES,
    shared::SUFFIX,
    gnu("symbolic-link", "s", No, "make symbolic links instead of copying"),
    gnu("target-directory", "t", Required("DIRECTORY"), "copy all SOURCEs into DIRECTORY"),
    shared::UPDATE,
    shared::VERBOSE,
    gnu("context", "", Optional("CTX"), "give new files the SELinux context CTX; without CTX like -Z"),
    letter("Z", "give copies the SELinux type that the policy sets for their path"),
    later("debug", No, "print how each file is copied; implies -v"),
    later("keep-directory-symlink", No, "follow existing links to directories at the destination"),
    own("threads", Required("N"), "use N worker threads (default: one per processor)"),
    shared::SPLIT_SIZE,
    shared::BUFFER_SIZE,
    own("direct-read", No, "read without the page cache"),
    own("direct-write", No, "write without the page cache"),
    own("fadvise-read", No, "drop the source from the page cache after reading"),
    own("fadvise-write", No, "drop the copy from the page cache after writing"),
    own("double-buffer", No, "hash each file in a second thread while it is copied"),
    own("print-hash", No, "print each file's checksum, computed from the same read"),
    own("hash-type", Required("TYPE"), "use checksum TYPE (default md5; see 'haul sum --help')"),
    own("hash-leaf-size", Required("KIB"), "print hash trees with leaves of KIB KiB (default 1048576)"),
    own("check-tree", No, "print the digests of the leaves of the hash tree"),
    own("print-stats", No, "print size, time and rate of each file, and the total"),
    own("print-src", No, "with checksums and statistics, print the source's name instead of the copy's"),
    own("offset", Required("POS"), "start at byte POS of each source"),
    own("length", Required("LEN"), "copy at most LEN bytes of each source"),
    own("dst-offset", Required("POS"), "start writing at byte POS of each destination"),
    own(
        "read-stdin",
        No,
        "read lines 'SOURCE DEST [START-END,...]' with percent-encoded names from standard input",
    ),
    own("skip-chmod", No, "keep the temporary permissions that files have while they are written"),
    own(
        "verify",
        Optional("HOW"),
        "verify the copy: cached (default) reads it back and compares, reread reads from the device and repairs, \
         stream hashes the data as it is written, hybrid rereads only files larger than free memory, none",
    ),
    own(
        "waybill",
        Required("FILE"),
        "write a receipt with the digests of all copied files, for 'haul verify'",
    ),
    own(
        "leaf",
        Optional("SIZE"),
        "also store digests of leaves of SIZE (default 1K; a power of two) in the waybill, for 'haul verify --locate'",
    ),
    own(
        "waybill-digests",
        Required("LIST"),
        "add the digests in LIST to the waybill, which always has blake3",
    ),
    own(
        "resume",
        No,
        "make the copy resumable by running the same command again; implies --preserve=mode,timestamps",
    ),
    own("restart", No, "delete the job's log and copy from the beginning"),
    own(
        "log-mechanism",
        Required("MECHANISM"),
        "set how files share the object log: file, transaction[:FILES], universal (default)",
    ),
    own(
        "log-encoding",
        Required("ENCODING"),
        "set the encoding of the object log: char, int, enc, binary, bit8 (default), bit64",
    ),
    own(
        "sync",
        Required("WHAT"),
        "sync data before logging it: each object, groups of 1 second or 256 MiB (group, default), or nothing (none)",
    ),
    own(
        "verify-resume",
        Optional("HOW"),
        "compare logged objects again on resume: none, sample (default after an unclean exit), all (without HOW)",
    ),
    own(
        "state-dir",
        Required("DIR"),
        "store jobs in DIR (default: haul in $XDG_STATE_HOME or ~/.local/state)",
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
         Copy SOURCE to DEST, or several SOURCEs into DIRECTORY, using all cores.\n\n"
    );
    text.push_str(&help_lines(OPTIONS));
    text.push_str(
        "\nSizes take the suffixes K, M, G, T (powers of 1024) and KB, MB, ... (powers of 1000).\n\
         Exit status: 0 if everything was copied, 1 if anything failed, 128 + N if signal N interrupted it.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented;
    use crate::getopt::{ParsedArgs, parse, rules};
    use std::ffi::OsString;

    #[test]
    fn options_are_distinct_and_listed_in_help() {
        rules::hold(OPTIONS, &help("cp"));
    }

    #[test]
    fn every_option_is_documented_and_tested() {
        documented::in_document("docs/options/cp.md", documented::typed_of(OPTIONS));
    }

    fn typed(line: &str) -> ParsedArgs {
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
    fn abbreviations_of_gnu_cp_options_keep_their_meaning() {
        assert_eq!(names("--l"), [("link", None)]);
        assert_eq!(names("--pr"), [("preserve", None)]);
        assert_eq!(names("--dou"), [("double-buffer", None)]);
        assert_eq!(names("--pa"), [("parents", None)], "an old name of the same option is not ambiguous");
        assert_eq!(names("--path"), [("parents", None)]);
        assert_eq!(
            names("--d"),
            [("dereference", None)],
            "an older name has precedence over a name of a later release"
        );
        assert_eq!(names("--de"), [("dereference", None)]);
        assert_eq!(names("--deb"), [("debug", None)]);
    }

    #[test]
    fn usage_errors_have_the_messages_of_getopt() {
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
