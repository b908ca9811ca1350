//! `install`'s command lines.

use super::Value::{Optional, Place, Required};
use super::{Language, Opt, flag, valued};

pub(super) const LANGUAGE: Language = Language { options: &OPTIONS, options_max: 5 };

const CONTROLS: [&str; 9] = ["none", "off", "numbered", "t", "existing", "nil", "simple", "never", "bad"];

const MODES: [&str; 14] = [
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
];

/// Stripping asks a program of its own, which need not be there.
const OPTIONS: [Opt; 18] = [
    flag(b'd', "directory", 12),
    flag(b'D', "", 14),
    flag(b'c', "", 2),
    flag(b'C', "compare", 12),
    flag(b'p', "preserve-timestamps", 12),
    flag(b'v', "verbose", 14),
    flag(b'b', "", 8),
    flag(b'T', "no-target-directory", 10),
    valued(b'm', "mode", Required(&MODES), 16),
    valued(b'o', "owner", Required(&["0", "1", "root", "nobody", "no-such-user", "99999"]), 6),
    valued(b'g', "group", Required(&["0", "1", "root", "nogroup", "no-such-group", "99999"]), 6),
    valued(0, "backup", Optional(&CONTROLS), 8),
    valued(b'S', "suffix", Required(&[".old", "", "/s", "~", ".bak", "-x"]), 4),
    valued(b't', "target-directory", Place, 10),
    flag(0, "preserve-context", 1),
    flag(b'Z', "", 1),
    valued(0, "context", Optional(&["system_u:object_r:tmp_t:s0", ""]), 1),
    flag(b'y', "no-such-option", 1),
];
