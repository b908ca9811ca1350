//! Command lines of `install`.

use super::Value::{Optional, Place, Required};
use super::{Language, Opt, flag, valued};

pub(super) const LANGUAGE: Language = Language { options: &OPTIONS, options_max: 6 };

const CONTROLS: [&str; 13] =
    ["none", "off", "numbered", "t", "existing", "nil", "simple", "never", "bad", "n", "e", "nu", ""];

const MODES: [&str; 22] = [
    "644",
    "0755",
    "4755",
    "2755",
    "1777",
    "0",
    "u+x",
    "g+s",
    "a=r,u+w",
    "go-rwx",
    "u=rwx,g=u",
    "+X",
    "99",
    "=",
    "7777",
    "u=rws,g=,o=t",
    "ug+s,a-x",
    "-w",
    "10000",
    "u+x,",
    "go=u-w",
    "",
];

/// The option to strip is missing, because it needs a separate program.
const OPTIONS: [Opt; 20] = [
    flag(b'd', "directory", 12),
    flag(b'D', "", 14),
    flag(b'c', "", 2),
    flag(b'C', "compare", 12),
    flag(b'p', "preserve-timestamps", 12),
    flag(b'v', "verbose", 14),
    flag(b'b', "", 8),
    flag(b'T', "no-target-directory", 10),
    valued(b'm', "mode", Required(&MODES), 16),
    valued(
        b'o',
        "owner",
        Required(&["0", "1", "root", "nobody", "no-such-user", "99999", "+1", "", "-1", "4294967295"]),
        6,
    ),
    valued(
        b'g',
        "group",
        Required(&["0", "1", "root", "nogroup", "no-such-group", "99999", "+1", "", "1x", "4294967296"]),
        6,
    ),
    valued(0, "backup", Optional(&CONTROLS), 8),
    valued(b'S', "suffix", Required(&[".old", "", "/s", "~", ".bak", "-x", ".", "..", "x y"]), 4),
    valued(b't', "target-directory", Place, 10),
    flag(0, "preserve-context", 1),
    flag(b'Z', "", 1),
    valued(0, "context", Optional(&["system_u:object_r:tmp_t:s0", ""]), 1),
    flag(b'y', "no-such-option", 1),
    flag(0, "help", 1),
    flag(0, "version", 1),
];
