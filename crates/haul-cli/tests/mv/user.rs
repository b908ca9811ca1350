//! What an ordinary user meets: no permission.

use super::{Beside, compare_in};
use crate::twins::Twins;

#[test]
fn without_permission() {
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

#[test]
fn without_permission_across_file_systems() {
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
        || Twins::of_user_across(Beside::Memory),
    );
}
