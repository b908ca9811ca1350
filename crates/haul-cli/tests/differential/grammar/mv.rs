//! Command lines of `mv`.

use super::Value::{Optional, Place, Required};
use super::{Language, Opt, flag, valued};

pub(super) const LANGUAGE: Language = Language { options: &OPTIONS, options_max: 5 };

const CONTROLS: [&str; 13] =
    ["none", "off", "numbered", "t", "existing", "nil", "simple", "never", "bad", "n", "e", "nu", ""];

const OPTIONS: [Opt; 15] = [
    flag(b'f', "force", 10),
    flag(b'i', "interactive", 10),
    flag(b'n', "no-clobber", 8),
    flag(b'u', "update", 10),
    flag(b'v', "verbose", 16),
    flag(b'b', "", 10),
    flag(b'T', "no-target-directory", 10),
    flag(0, "strip-trailing-slashes", 6),
    valued(0, "backup", Optional(&CONTROLS), 10),
    valued(b'S', "suffix", Required(&[".old", "", "/s", "~", ".bak", "-x", ".", "..", "x y"]), 4),
    valued(b't', "target-directory", Place, 8),
    flag(b'Z', "context", 1),
    flag(b'y', "no-such-option", 1),
    flag(0, "help", 1),
    flag(0, "version", 1),
];
