//! Selection of the tool that the binary acts as.

use std::ffi::OsStr;
use std::path::Path;

/// Output of `haul --help`.
pub(crate) const HELP: &str = "\
haul moves very large data and proves that it arrived.

Usage: haul COMMAND [OPTION]... [FILE]...

Commands:
  cp      copy files and trees, using all cores (GNU cp options); --verify reads the copy back
  mv      move files and trees (GNU mv options); across file systems, verify the copy before removing the source
  install copy files and set owner and permissions (GNU install options)
  send    files and trees to another host, by ssh or a ticket; every object is compared there
  fetch   files and trees of another host to this one
  list    the names in a directory of another host
  serve   let the holders of tickets send and fetch beneath a directory
  gui     serve a page for browsers on this host, and open it
  sum     print checksums of files, several algorithms from one read; -c checks a list
  check   check files against lists of checksums in any format, which is detected
  verify  re-read data and hold it against a waybill: intact, modified, rotted, missing
  repair  replace damaged bytes, and make missing files, from replicas that verify
  waybill show, check or export a waybill
  jobs    what jobs there are and how far they came; go on with one, or forget it
  bench   how fast this machine computes and reads each checksum, as a table

'haul COMMAND --help' lists a command's options.
Linked under the name cp, mcp, mv, install, md5sum, sha256sum, b3sum, cksum, msum, ... it is that tool.
";

/// Returns true if messages are signed with one of haul's own names (`haul` or `haul COMMAND`), and
/// not with the name of the tool that haul replaces.
pub(crate) fn is_own_name(tool: &str) -> bool {
    tool.starts_with("haul")
}

/// Tool that the binary acts as, with the name that signs its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// `cp` and its relatives.
    Copy(&'static str),
    /// `mv`.
    Move(&'static str),
    /// `install`.
    Install(&'static str),
    /// The checksum tools.
    Sum(&'static str),
    /// `haul bench`.
    Bench,
    /// `haul check`.
    Check,
    /// `haul verify`.
    Verify,
    /// `haul repair`.
    Repair,
    /// `haul waybill`.
    Waybill,
    /// `haul send`.
    Send,
    /// `haul fetch`.
    Fetch,
    /// `haul list`.
    List,
    /// `haul serve`.
    Serve,
    /// `haul gui`.
    Gui,
    /// `haul jobs`.
    Jobs,
    /// Command that ssh starts on the remote host for `haul send` and `haul fetch`. Not a command
    /// for users.
    Meet,
}

/// Names of checksum tools that the binary can be called by.
const SUM_NAMES: [&str; 11] = [
    "md5sum",
    "sha1sum",
    "sha224sum",
    "sha256sum",
    "sha384sum",
    "sha512sum",
    "b2sum",
    "b3sum",
    "cksum",
    "sum",
    "msum",
];

/// Names of copying tools that the binary can be called by.
const COPY_NAMES: [&str; 2] = ["cp", "mcp"];

/// Returns the tool that `argv[0]` names; `None` for haul itself and for every unknown name.
pub(crate) fn called_as(argv0: &OsStr) -> Option<Tool> {
    let name = Path::new(argv0).file_name()?.to_str()?;
    match name {
        "mv" => return Some(Tool::Move("mv")),
        "install" => return Some(Tool::Install("install")),
        _ => {}
    }
    let copy = COPY_NAMES.into_iter().find(|known| *known == name).map(Tool::Copy);
    copy.or_else(|| SUM_NAMES.into_iter().find(|known| *known == name).map(Tool::Sum))
}

/// Returns the tool of `haul COMMAND`: haul's own commands, and every name that the binary can be
/// linked under.
pub(crate) fn command(word: &OsStr) -> Option<Tool> {
    match word.to_str()? {
        "cp" => Some(Tool::Copy("haul cp")),
        "mv" => Some(Tool::Move("haul mv")),
        "install" => Some(Tool::Install("haul install")),
        "sum" => Some(Tool::Sum("haul sum")),
        "bench" => Some(Tool::Bench),
        "check" => Some(Tool::Check),
        "verify" => Some(Tool::Verify),
        "repair" => Some(Tool::Repair),
        "waybill" => Some(Tool::Waybill),
        "send" => Some(Tool::Send),
        "fetch" => Some(Tool::Fetch),
        "list" => Some(Tool::List),
        "serve" => Some(Tool::Serve),
        "gui" => Some(Tool::Gui),
        "jobs" => Some(Tool::Jobs),
        "meet" => Some(Tool::Meet),
        _ => called_as(word).filter(|_| !word.as_encoded_bytes().contains(&b'/')),
    }
}

/// Returns ` (did you mean 'sum'?)` for a word with one typing error in a command, else an empty
/// string.
pub(crate) fn suggestion(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let commands = [
        "cp", "mv", "install", "send", "fetch", "list", "serve", "gui", "sum", "check", "verify", "repair",
        "waybill", "jobs", "bench",
    ];
    let near = commands.into_iter().find(|command| is_one_slip_away(command, &word));
    near.map(|command| format!(" (did you mean '{command}'?)")).unwrap_or_default()
}

/// Returns the message with an escape for each control character that could affect a terminal:
/// `\x1b` for ESC. For haul's own messages that quote user input. Newlines stay, because some
/// messages have several lines.
pub(crate) fn without_controls(message: &str) -> String {
    let mut shown = String::with_capacity(message.len());
    for character in message.chars() {
        if character.is_control() && character != '\n' {
            shown.push_str(&format!("\\x{:02x}", u32::from(character)));
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Returns true if one added, dropped or changed letter, or a swap of two neighbours, turns one
/// word into the other.
fn is_one_slip_away(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let same_start = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let same_end =
        a[same_start..].iter().rev().zip(b[same_start..].iter().rev()).take_while(|(x, y)| x == y).count();
    let (left_a, left_b) = (&a[same_start..a.len() - same_end], &b[same_start..b.len() - same_end]);
    match (left_a, left_b) {
        ([x, y], [v, w]) => x == w && y == v,
        _ => left_a.len() <= 1 && left_b.len() <= 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_name_selects_the_tool() {
        assert_eq!(called_as(OsStr::new("/usr/local/bin/md5sum")), Some(Tool::Sum("md5sum")));
        assert_eq!(called_as(OsStr::new("/bin/sum")), Some(Tool::Sum("sum")));
        assert_eq!(called_as(OsStr::new("mcp")), Some(Tool::Copy("mcp")));
        assert_eq!(called_as(OsStr::new("./haul")), None);
        assert_eq!(called_as(OsStr::new("haul-0.1")), None);
    }

    #[test]
    fn subcommands_are_names_and_not_paths() {
        assert_eq!(command(OsStr::new("cp")), Some(Tool::Copy("haul cp")));
        assert_eq!(command(OsStr::new("sum")), Some(Tool::Sum("haul sum")));
        assert_eq!(command(OsStr::new("sha256sum")), Some(Tool::Sum("sha256sum")));
        assert_eq!(command(OsStr::new("/bin/sha256sum")), None);
    }

    #[test]
    fn control_characters_in_messages_are_escaped() {
        assert_eq!(without_controls("\u{1b}[2J\u{9b}ä\t\r"), "\\x1b[2J\\x9bä\\x09\\x0d");
        assert_eq!(without_controls("two lines,\nof the message's own"), "two lines,\nof the message's own");
    }

    #[test]
    fn a_suggestion_needs_exactly_one_typing_error() {
        for slip in ["cpp", "c", "pc", "sumn", "usm", "bnch", "brnch"] {
            assert_ne!(suggestion(OsStr::new(slip)), "", "{slip}");
        }
        for word in ["move", "summary", "benchmark"] {
            assert_eq!(suggestion(OsStr::new(word)), "", "{word}");
        }
    }
}
