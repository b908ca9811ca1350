//! Command lines of `cp`.

use super::Value::{Optional, Place, Required};
use super::{Language, Opt, flag, valued};

pub(super) const LANGUAGE: Language = Language { options: &OPTIONS, options_max: 7 };

const KEPT: [&str; 18] = [
    "mode",
    "timestamps",
    "ownership",
    "links",
    "xattr",
    "all",
    "context",
    "mode,timestamps",
    "own",
    "links,mode",
    "mode,bad",
    "",
    "own,time",
    "xattr,links,mode",
    "ownership,context",
    "m",
    ",mode",
    "links,",
];

const CONTROLS: [&str; 14] =
    ["none", "off", "numbered", "t", "existing", "nil", "simple", "never", "bad", "n", "e", "nu", "si", ""];

/// Options that change the copy are more frequent than refused ones.
const OPTIONS: [Opt; 36] = [
    flag(b'r', "recursive", 22),
    flag(b'R', "recursive", 8),
    flag(b'a', "archive", 16),
    flag(b'p', "", 10),
    flag(b'd', "", 8),
    flag(b'L', "dereference", 6),
    flag(b'P', "no-dereference", 7),
    flag(b'H', "", 5),
    flag(b'f', "force", 9),
    flag(b'i', "interactive", 6),
    flag(b'n', "no-clobber", 5),
    flag(b'u', "update", 8),
    flag(b'v', "verbose", 14),
    flag(b'x', "one-file-system", 3),
    flag(b'l', "link", 6),
    flag(b's', "symbolic-link", 5),
    flag(b'b', "", 8),
    flag(b'T', "no-target-directory", 8),
    flag(0, "attributes-only", 4),
    flag(0, "copy-contents", 2),
    flag(0, "parents", 6),
    flag(0, "path", 2),
    flag(0, "remove-destination", 7),
    flag(0, "strip-trailing-slashes", 5),
    flag(b'Z', "", 1),
    valued(0, "context", Optional(&["system_u:object_r:tmp_t:s0", ""]), 1),
    flag(b'y', "no-such-option", 1),
    flag(0, "help", 1),
    flag(0, "version", 1),
    valued(0, "preserve", Optional(&KEPT), 12),
    valued(0, "no-preserve", Required(&KEPT), 5),
    valued(0, "backup", Optional(&CONTROLS), 8),
    valued(b'S', "suffix", Required(&[".old", "", "/s", "~", ".bak", "-x", ".", "..", "x y"]), 3),
    valued(b't', "target-directory", Place, 6),
    valued(0, "sparse", Required(&["always", "never", "auto", "al", "a", "ne", "", "bad"]), 5),
    valued(0, "reflink", Optional(&["auto", "never", "always", "n", "au", "alw", "bad", ""]), 3),
];
