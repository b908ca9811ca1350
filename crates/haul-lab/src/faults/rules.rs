//! Fault rules: the operation, the byte range and the file to which a fault applies, and the fault.
//!
//! Each line holds one rule with fields separated by blanks; `#` begins a comment:
//!
//! ```text
//! GLOB          OP     BYTES        ACTION           [after N] [times N]
//! *.dat         read   4096..8192   errno EIO
//! *             write  1048576..    errno ENOSPC
//! dir/a\ b      read   0..          flip 70000.3     times 1
//! *             write  ..           drop
//! *             read   ..           short 100
//! *             copy   ..           short 0
//! *             stat   ..           coarse 2000
//! *             stat   ..           lag
//! *             name   ..           fold
//! *             name   ..           trim
//! *             name   ..           decompose
//! *             stat   ..           empty
//! *             seek   ..           hole
//! *             list   ..           renumber
//! *             extend ..           errno EPERM
//! *             setxattr 1000..     errno ENOSPC
//! *             remove ..           silly
//! ```
//!
//! The glob is matched against the path relative to the root of the file system. `*` matches any
//! bytes including `/`, `?` matches one byte, and `\` makes the next byte literal. BYTES is
//! `FROM..TO`; each bound may be missing. `after N` skips the first N matching operations, and
//! `times N` ends the rule after N faults.

use rustix::io::Errno;
use std::str::FromStr;
use thiserror::Error;

/// Rules in order, each with its remaining counts.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Pattern that is matched against the path, as bytes.
    pub glob: Vec<u8>,
    /// Operation to which the rule applies.
    pub op: Op,
    /// First byte of the range.
    pub from: u64,
    /// First byte after the range.
    pub to: u64,
    /// Action of the rule.
    pub action: Action,
    /// Number of matching operations that still pass before the first fault.
    pub after: u64,
    /// Number of faults that remain.
    pub times: u64,
}

/// An operation that can fail.
///
/// Only [`Op::Read`], [`Op::Write`], [`Op::Copy`], [`Op::Truncate`], [`Op::Extend`] and
/// [`Op::SetXattr`] have bytes. The others match every range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Reading bytes of a file.
    Read,
    /// Writing bytes to a file.
    Write,
    /// fsync and fdatasync.
    Fsync,
    /// Closing a descriptor. Network file systems report lost bytes here.
    Flush,
    /// Opening a file that exists.
    Open,
    /// Creating a file, directory, link or node.
    Create,
    /// Creating a hard link; [`Op::Create`] matches too.
    Link,
    /// Creating a symbolic link; [`Op::Create`] matches too.
    Symlink,
    /// Creating a pipe, socket or device; [`Op::Create`] matches too.
    Node,
    /// Reserving space by fallocate.
    Allocate,
    /// Changing a file's length; its byte is the new end.
    Truncate,
    /// Changing a file's length to a greater one; [`Op::Truncate`] matches too.
    Extend,
    /// Copying inside the file system (copy_file_range); path and bytes are those of the target.
    /// The rules for reading the source and for writing the target apply too.
    Copy,
    /// Seeking data or a hole.
    Seek,
    /// Reading the attributes of a name or an inode.
    Stat,
    /// Resolving a name in its directory, for any later operation.
    Name,
    /// Changing mode, owner or times.
    SetAttr,
    /// Changing the owner; [`Op::SetAttr`] matches too.
    Owner,
    /// Changing the mode; [`Op::SetAttr`] matches too.
    Mode,
    /// Changing times; [`Op::SetAttr`] matches too.
    Times,
    /// Listing a directory.
    List,
    /// Removing a name.
    Remove,
    /// Renaming; the path is the old one.
    Rename,
    /// Reading, setting or removing an extended attribute.
    Xattr,
    /// Setting an extended attribute; its bytes are those of the value. [`Op::Xattr`] matches too.
    SetXattr,
}

/// Action of a rule on a matching operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The operation fails with this error.
    Errno(Errno),
    /// At most this many bytes are read, written or copied.
    Short(u64),
    /// Bit `bit` of the byte at offset `at` of the file is flipped in transit.
    Flip {
        /// Offset in the file.
        at: u64,
        /// Bit of the byte, 0 to 7.
        bit: u8,
    },
    /// A write, a sync or a change of owner, mode or times reports success and does nothing.
    Drop,
    /// The operation, and all that arrive meanwhile, take this many milliseconds longer.
    Delay(u64),
    /// A read takes this many milliseconds longer. No other operation waits for it.
    Pause(u64),
    /// Times are rounded down to multiples of this many milliseconds. A property, never reported as
    /// a fault.
    Coarse(u64),
    /// Attributes are shown as first read, until the file is opened or changed from this side. A
    /// property.
    Lag,
    /// Names are found regardless of the case of ASCII letters, and keep the spelling of their
    /// creation. A property.
    Fold,
    /// Names are found and created without trailing dots. A property.
    Trim,
    /// Names are stored in Unicode's decomposed form (NFD), and found in any form. A property.
    Decompose,
    /// Regular files are shown with a length of 0 and without allocated space, although reads
    /// return their bytes. A property.
    Empty,
    /// SEEK_DATA reports that the whole file is a hole. The allocated space is shown as it is. A
    /// property.
    Hole,
    /// A file shows another inode number each time its attributes are read ([`Op::Stat`]), or each
    /// time its directory is listed ([`Op::List`]). A property.
    Renumber,
    /// Removing a file that is open renames it to `.nfs` and a number. The file is removed when it
    /// is closed.
    Silly,
}

/// Error of an invalid rule.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("line {line} of the fault rules: {what}")]
pub struct RuleError {
    /// Line number, starting at 1.
    pub line: usize,
    /// Description of the error.
    pub what: String,
}

impl FromStr for Rules {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let mut rules = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let fields = split_fields(line);
            if !fields.is_empty() {
                rules.push(rule(&fields).map_err(|what| RuleError { line: index + 1, what })?);
            }
        }
        Ok(Self { rules })
    }
}

impl Action {
    /// Returns true if the action is a property of the file system and not a fault to report.
    pub(super) fn is_property(self) -> bool {
        matches!(
            self,
            Self::Coarse(_)
                | Self::Lag
                | Self::Fold
                | Self::Trim
                | Self::Decompose
                | Self::Empty
                | Self::Hole
                | Self::Renumber
        )
    }
}

impl Rules {
    /// Returns the actions for an operation on bytes `from..to` of `path`, in the order of the
    /// rules, and updates their counts. An operation without bytes has an empty range.
    pub fn meet(&mut self, op: Op, path: &[u8], from: u64, to: u64) -> Vec<Action> {
        self.rules.iter_mut().filter_map(|rule| rule.meet(op, path, from, to)).collect()
    }
}

impl Rule {
    fn meet(&mut self, op: Op, path: &[u8], from: u64, to: u64) -> Option<Action> {
        // A flip applies to operations that cover its byte, inside the rule's range.
        let (first, end) = match self.action {
            Action::Flip { at, .. } => (self.from.max(at), self.to.min(at + 1)),
            _ => (self.from, self.to),
        };
        let touches = if op.has_bytes() { from < end && first < to.max(from + 1) } else { true };
        if self.op != op || self.times == 0 || !touches || !matches_glob(&self.glob, path) {
            return None;
        }
        if self.after > 0 {
            self.after -= 1;
            return None;
        }
        self.times = self.times.saturating_sub(1);
        Some(self.action)
    }
}

impl Op {
    const NAMES: [(&'static str, Self); 25] = [
        ("read", Self::Read),
        ("write", Self::Write),
        ("fsync", Self::Fsync),
        ("flush", Self::Flush),
        ("open", Self::Open),
        ("create", Self::Create),
        ("link", Self::Link),
        ("symlink", Self::Symlink),
        ("mknod", Self::Node),
        ("allocate", Self::Allocate),
        ("truncate", Self::Truncate),
        ("extend", Self::Extend),
        ("copy", Self::Copy),
        ("seek", Self::Seek),
        ("stat", Self::Stat),
        ("name", Self::Name),
        ("setattr", Self::SetAttr),
        ("chown", Self::Owner),
        ("chmod", Self::Mode),
        ("utimens", Self::Times),
        ("list", Self::List),
        ("remove", Self::Remove),
        ("rename", Self::Rename),
        ("xattr", Self::Xattr),
        ("setxattr", Self::SetXattr),
    ];

    /// Returns the operation of this name, or `None` if there is none.
    pub(super) fn of_name(name: &str) -> Option<Op> {
        Op::NAMES.iter().find(|(known, _)| *known == name).map(|(_, op)| *op)
    }

    fn has_bytes(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Copy | Self::Truncate | Self::Extend | Self::SetXattr)
    }
}

/// Names of the errors that tests of copying use; any other error is given by its number.
const ERRNOS: [(&str, Errno); 22] = [
    ("EPERM", Errno::PERM),
    ("ENOENT", Errno::NOENT),
    ("EINTR", Errno::INTR),
    ("EIO", Errno::IO),
    ("ENXIO", Errno::NXIO),
    ("E2BIG", Errno::TOOBIG),
    ("EAGAIN", Errno::AGAIN),
    ("ENOMEM", Errno::NOMEM),
    ("EACCES", Errno::ACCESS),
    ("EEXIST", Errno::EXIST),
    ("EXDEV", Errno::XDEV),
    ("EINVAL", Errno::INVAL),
    ("EFBIG", Errno::FBIG),
    ("ETXTBSY", Errno::TXTBSY),
    ("ENOSPC", Errno::NOSPC),
    ("EROFS", Errno::ROFS),
    ("ERANGE", Errno::RANGE),
    ("EDQUOT", Errno::DQUOT),
    ("ENOSYS", Errno::NOSYS),
    ("ENOTSUP", Errno::NOTSUP),
    ("ESTALE", Errno::STALE),
    ("ETIMEDOUT", Errno::TIMEDOUT),
];

/// Splits a line at unescaped blanks and stops at a field that begins with `#`. Backslashes remain,
/// because the glob interprets them.
fn split_fields(line: &str) -> Vec<String> {
    let mut fields = Vec::new();
    let mut field = String::new();
    let mut escaped = false;
    for c in line.chars().chain([' ']) {
        if c.is_whitespace() && !escaped {
            if field.starts_with('#') {
                return fields;
            }
            if !field.is_empty() {
                fields.push(std::mem::take(&mut field));
            }
        } else {
            field.push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    fields
}

fn rule(fields: &[String]) -> Result<Rule, String> {
    let [glob, op, bytes, action, rest @ ..] = fields else {
        return Err("a rule has the form GLOB OP BYTES ACTION".into());
    };
    let op = Op::of_name(op).ok_or_else(|| format!("unknown operation {op}"))?;
    let (from, to) = range(bytes)?;
    let mut rest = rest.iter();
    let mut argument = |what: &str| rest.next().ok_or_else(|| format!("{what} needs a value"));
    let action = match action.as_str() {
        "errno" => Action::Errno(errno(argument(action)?)?),
        "short" => Action::Short(number(argument(action)?)?),
        "flip" => flip(argument(action)?)?,
        "drop" => Action::Drop,
        "delay" => Action::Delay(number(argument(action)?)?),
        "pause" => Action::Pause(number(argument(action)?)?),
        "coarse" => match number(argument(action)?)? {
            0 => return Err("coarse needs a number above 0".into()),
            ms => Action::Coarse(ms),
        },
        "lag" => Action::Lag,
        "fold" => Action::Fold,
        "trim" => Action::Trim,
        "decompose" => Action::Decompose,
        "empty" => Action::Empty,
        "hole" => Action::Hole,
        "renumber" => Action::Renumber,
        "silly" => Action::Silly,
        _ => return Err(format!("unknown action {action}")),
    };
    if !fits(op, action) {
        return Err(format!("{op:?} does not support {}", fields[3]));
    }
    let mut rule = Rule { glob: glob.clone().into_bytes(), op, from, to, action, after: 0, times: u64::MAX };
    while let Some(word) = rest.next() {
        let count = number(rest.next().ok_or_else(|| format!("{word} needs a number"))?)?;
        match word.as_str() {
            "after" => rule.after = count,
            "times" => rule.times = count,
            _ => return Err(format!("unknown word '{word}'; valid words are after, times")),
        }
    }
    Ok(rule)
}

fn fits(op: Op, action: Action) -> bool {
    match action {
        Action::Errno(_) | Action::Delay(_) => true,
        Action::Pause(_) => op == Op::Read,
        Action::Short(_) => matches!(op, Op::Read | Op::Write | Op::Copy),
        Action::Flip { .. } => matches!(op, Op::Read | Op::Write),
        Action::Coarse(_) | Action::Lag | Action::Empty => op == Op::Stat,
        Action::Fold | Action::Trim | Action::Decompose => op == Op::Name,
        Action::Hole => op == Op::Seek,
        Action::Renumber => matches!(op, Op::Stat | Op::List),
        Action::Silly => op == Op::Remove,
        Action::Drop => {
            matches!(op, Op::Write | Op::Fsync | Op::SetAttr | Op::Owner | Op::Mode | Op::Times)
        }
    }
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let (from, to) = text.split_once("..").ok_or_else(|| format!("'{text}' is not FROM..TO"))?;
    let from = if from.is_empty() { 0 } else { number(from)? };
    let to = if to.is_empty() { u64::MAX } else { number(to)? };
    if from < to { Ok((from, to)) } else { Err(format!("empty range '{text}'")) }
}

fn flip(text: &str) -> Result<Action, String> {
    let (at, bit) = text.split_once('.').unwrap_or((text, "0"));
    match (number(at)?, number(bit)?) {
        (u64::MAX, _) => Err(format!("invalid byte number {at}")),
        (at, bit @ 0..8) => Ok(Action::Flip { at, bit: u8::try_from(bit).unwrap_or(7) }),
        _ => Err(format!("invalid bit number {bit}")),
    }
}

fn errno(text: &str) -> Result<Errno, String> {
    if let Some((_, errno)) = ERRNOS.iter().find(|(name, _)| *name == text) {
        return Ok(*errno);
    }
    match text.parse() {
        Ok(number @ 1..4096) => Ok(Errno::from_raw_os_error(number)),
        _ => Err(format!("unknown error {text}")),
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("'{text}' is not a whole number"))
}

/// Returns true if the glob matches all of `path`. Remembers only the last star, so the time is
/// linear for one star and never exponential.
fn matches_glob(glob: &[u8], path: &[u8]) -> bool {
    let (mut g, mut p) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while p < path.len() {
        let (literal, width) = match glob.get(g) {
            Some(b'\\') => (glob.get(g + 1), 2),
            other => (other, 1),
        };
        if width == 1 && literal == Some(&b'*') {
            star = Some((g + 1, p));
            g += 1;
        } else if literal == Some(&path[p]) || (width == 1 && literal == Some(&b'?')) {
            g += width;
            p += 1;
        } else if let Some((after, from)) = star {
            star = Some((after, from + 1));
            (g, p) = (after, from + 1);
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Rules {
        text.parse().unwrap()
    }

    fn error(text: &str) -> String {
        text.parse::<Rules>().unwrap_err().to_string()
    }

    #[test]
    fn globs_match_complete_paths() {
        let yes: [(&str, &str); 9] = [
            ("*", ""),
            ("*", "a/b"),
            ("a", "a"),
            ("*.dat", "d/x.dat"),
            ("a*b*c", "a1b2b3c"),
            ("?", "x"),
            (r"\*", "*"),
            (r"a\ b", "a b"),
            ("**", "x"),
        ];
        let no: [(&str, &str); 7] =
            [("a", "ab"), ("b", "ab"), ("?", ""), ("?", "ab"), (r"\*", "a"), ("*.dat", "x.dat2"), ("", "a")];
        for (glob, path) in yes {
            assert!(matches_glob(glob.as_bytes(), path.as_bytes()), "{glob} {path}");
        }
        for (glob, path) in no {
            assert!(!matches_glob(glob.as_bytes(), path.as_bytes()), "{glob} {path}");
        }
    }

    #[test]
    fn rules_match_overlapping_ranges() {
        let mut rules = rules("f read 100..200 errno EIO");
        let mut hit = |from, to| !rules.meet(Op::Read, b"f", from, to).is_empty();
        assert!(!hit(0, 100) && !hit(200, 300));
        assert!(hit(0, 101) && hit(199, 300) && hit(150, 160) && hit(0, 1000));
    }

    #[test]
    fn rules_match_by_operation_and_path() {
        let mut rules = rules("f fsync .. errno 5\n# nothing\n\ng fsync .. drop # says it is done");
        assert_eq!(rules.meet(Op::Fsync, b"f", 0, 0), [Action::Errno(Errno::IO)]);
        assert_eq!(rules.meet(Op::Fsync, b"g", 0, 0), [Action::Drop]);
        assert_eq!(rules.meet(Op::Read, b"f", 0, 9), []);
        assert_eq!(rules.meet(Op::Fsync, b"h", 0, 0), []);
    }

    #[test]
    fn flip_applies_only_to_its_byte() {
        let mut rules = rules("* write .. flip 70000.3 times 1");
        assert_eq!(rules.meet(Op::Write, b"f", 0, 70_000), []);
        assert_eq!(rules.meet(Op::Write, b"f", 70_000, 70_001), [Action::Flip { at: 70_000, bit: 3 }]);
        assert_eq!(rules.meet(Op::Write, b"f", 70_000, 70_001), [], "once only");
    }

    #[test]
    fn after_and_times_limit_the_matches() {
        let mut rules = rules("* write .. errno ENOSPC after 2 times 2");
        let met: Vec<bool> = (0..6).map(|_| !rules.meet(Op::Write, b"f", 0, 1).is_empty()).collect();
        assert_eq!(met, [false, false, true, true, false, false]);
    }

    #[test]
    fn several_rules_apply_in_order() {
        let mut rules = rules("* read .. delay 0\nf read .. short 10");
        assert_eq!(rules.meet(Op::Read, b"f", 0, 100), [Action::Delay(0), Action::Short(10)]);
    }

    #[test]
    fn malformed_rules_are_reported() {
        assert_eq!(error("\nf read"), "line 2 of the fault rules: a rule has the form GLOB OP BYTES ACTION");
        assert!(error("f fly .. drop").contains("unknown operation fly"));
        assert!(error("f read 1-2 errno EIO").contains("'1-2' is not FROM..TO"));
        assert!(error("f read 5..5 errno EIO").contains("empty range"));
        assert!(error("f read .. explode").contains("unknown action explode"));
        assert!(error("f read .. errno EWHAT").contains("unknown error EWHAT"));
        assert!(error("f read .. errno").contains("errno needs a value"));
        assert!(error("f read .. flip 1.8").contains("invalid bit number 8"));
        assert!(error("f read .. drop").contains("Read does not support drop"));
        assert!(error("f read .. coarse 5").contains("Read does not support coarse"));
        assert!(error("f stat .. coarse 0").contains("needs a number above 0"));
        assert!(error("f copy .. silly").contains("Copy does not support silly"));
        assert!(error("f open .. lag").contains("Open does not support lag"));
        assert!(error("f stat .. fold").contains("Stat does not support fold"));
        assert!(error("f open .. trim").contains("Open does not support trim"));
        assert!(error("f stat .. hole").contains("Stat does not support hole"));
        assert!(error("f open .. renumber").contains("Open does not support renumber"));
        assert!(error("f read .. short 1 times").contains("times needs a number"));
        assert!(error("f read .. short 1 maybe 2").contains("valid words are after, times"));
    }

    #[test]
    fn error_names_and_numbers_parse_equally() {
        for (name, expected) in ERRNOS {
            let text = expected.raw_os_error().to_string();
            assert_eq!(errno(name), Ok(expected));
            assert_eq!(errno(&text), Ok(expected));
        }
    }
}
