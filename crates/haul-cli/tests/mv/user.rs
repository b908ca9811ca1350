//! Permission errors of an ordinary user.

use super::{SecondFs, compare_in};
use crate::twins::Twins;
use haul_lab::needs::{Need, met_or_skip};

/// Shell code with moves onto files that are not writable, with and without prompts.
const MOVES: &str = "mv a r1; mv -f b r2; mv -i c r3; mv -n x r4; mv -u new r5; mv -b group r6; mv empty r7; mv r8 z; \
    mv suid x-fs/ro; mv r1 r2 full";

#[test]
fn missing_permissions_match_gnu() {
    compare_in(
        &[
            ("out of a closed directory", "mv closed/z z; mv -v closed/z d; mv -f closed/z a"),
            ("into a closed directory", "mv a closed; mv a closed/z; mv -i a closed/z; mv t closed"),
            ("a closed directory itself", "mv closed z; mv z d; mv d/z e"),
            ("an unreadable file", "chmod 0 a; mv a z; mv z b"),
            ("over a read-only file", "mv a ro; echo y | mv -i b ro; echo n | mv -i c ro"),
            ("unsearchable target", "chmod 0 d; mv a d; mv -t d a; mv a d/z; mv a b d; chmod 755 d"),
            ("backup in a closed directory", "mv -b a closed/z; mv -b closed/z a"),
            ("target without read", "chmod 333 d; mv a d; mv -n b d"),
            ("another's file", "mv /etc/passwd z; mv a /etc; mv a /"),
        ],
        Twins::of_user,
    );
}

/// A user at a terminal is asked before a file without write permission is replaced; without a
/// terminal there is no prompt. The echo of the answer comes before or after the prompt.
#[test]
fn a_terminal_user_is_asked_about_unwritable_files() {
    if !met_or_skip(&[Need::Program("script")]) {
        return;
    }
    // The end of file of the terminal (Ctrl-D) answers this prompt and all later ones.
    let moves = [
        ("no", "n\\nn\\nn\\nn\\nn\\nn\\nn\\nn\\nn\\nn\\n", MOVES),
        ("yes", "y\\ny\\ny\\ny\\ny\\ny\\ny\\ny\\ny\\ny\\n", MOVES),
        ("the end", "", "mv a r1 r2 full"),
    ];
    let scripts = moves.map(|(name, answers, moves)| {
        let script = format!(
            "for n in 1 2 3 4 5 6 7 8; do cp -p ro r$n; done; chmod 6444 r7; cp -p r1 r2 full; cp -p ro x-fs/
             printf '{answers}' | SHELL=/bin/sh timeout 60 script -qec '{moves}' /dev/null > said; echo $?
             tr -d '\\r' < said | grep -o 'mv: [^?]*?*'; rm said"
        );
        (name, script)
    });
    let lines = scripts.each_ref().map(|(name, script)| (*name, &**script));
    compare_in(&lines, || Twins::of_user_across(SecondFs::Memory));
}

#[test]
fn missing_permissions_across_file_systems_match_gnu() {
    compare_in(
        &[
            ("out of a closed directory", "mv closed/z x-fs/"),
            ("a closed directory", "mv closed x-fs/; ls x-fs/closed"),
            ("an unreadable file", "chmod 0 a; mv a x-fs/; mv b x-fs/; chmod 644 a"),
            ("an unreadable file in a tree", "chmod 0 t/1; mv t x-fs/; chmod 644 t/1; rm -r x-fs/t"),
            ("a setuid file", "mv suid x ro x-fs/"),
            (
                "into a closed directory",
                "mkdir x-fs/z; chmod 555 x-fs/z; mv a x-fs/z; mv t x-fs/z; mv a x-fs/z/y",
            ),
            (
                "over a file in a closed directory",
                "mkdir x-fs/z; printf o > x-fs/z/a; chmod 555 x-fs/z; mv a x-fs/z",
            ),
            ("target without read", "mkdir x-fs/z; chmod 333 x-fs/z; mv a t x-fs/z"),
        ],
        || Twins::of_user_across(SecondFs::Memory),
    );
}
