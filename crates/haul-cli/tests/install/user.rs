//! Permission errors of an ordinary user.

use super::compare_in;
use crate::twins::Twins;

#[test]
fn missing_permissions_match_gnu() {
    compare_in(
        &[
            ("unreadable source", "chmod 0 a; install a z; install a b d; chmod 644 a"),
            (
                "closed directories",
                "install a closed; install a closed/z; install -d closed/q; install -D a closed/q/r; install -Dt closed/q a",
            ),
            ("over a read-only file", "install -v a ro; install -C a ro"),
            (
                "owners",
                "install -o 1 a z; install -g 1 a y; install -o 65534 -g 65534 a w; install -d -o 1 q; install -d -o 65534 r",
            ),
            ("set-id bits", "install -m 4755 a z; install -m 2755 -g 65534 a y; install -d -m 2775 q"),
            ("backup in a closed directory", "install -b a closed/z"),
            ("another's file", "install /etc/passwd z; install a /etc/passwd; install a /"),
            ("another's directory", "install -d /; install -d /etc; install -d /proc/q"),
        ],
        Twins::of_user,
    );
}
