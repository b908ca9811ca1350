//! Input and output of tickets: files or standard input, never arguments or the environment.

use haul_engine::copy::quote;
use haul_engine::sum::reason;
use haul_net::Ticket;
use haul_storage::{Draft, Durability, Writers, open_parent};
use haul_sys::process;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use zeroize::Zeroizing;

/// Maximum number of bytes read from a file: twice the length of the longest ticket.
const LOOK_BYTES: u64 = 8192;

/// File mode of secrets.
pub(crate) const SECRET_MODE: u32 = 0o600;

/// Reads the ticket in `file`; `-` is standard input. The error is a message that repeats no part
/// of the ticket.
pub(crate) fn read(file: &OsStr) -> Result<Ticket, String> {
    process::hide_memory()
        .map_err(|error| format!("cannot protect the ticket in memory: {}", reason(&error)))?;
    let mut text = Zeroizing::new(String::new());
    if file == OsStr::new("-") {
        if io::stdin().is_terminal() {
            // On a terminal, the ticket is one line.
            let _ = write!(io::stderr(), "ticket: ");
            io::stdin()
                .read_line(&mut text)
                .map_err(|error| format!("cannot read the ticket: {}", reason(&error)))?;
        } else {
            take(&mut io::stdin().lock(), &mut text)
                .map_err(|error| format!("cannot read the ticket: {}", reason(&error)))?;
        }
        return Ticket::parse(&text)
            .map_err(|error| format!("cannot use the ticket from standard input: {error}"));
    }
    let failed = |error: io::Error| format!("cannot read the ticket in {}: {}", quote(file), reason(&error));
    let mut opened = File::open(file).map_err(failed)?;
    let facts = opened.metadata().map_err(failed)?;
    if facts.mode() & 0o077 != 0 && facts.is_file() {
        return Err(format!(
            "refusing to use the ticket in {}: other users can read it; run 'chmod 600' on it",
            quote(file)
        ));
    }
    take(&mut opened, &mut text).map_err(failed)?;
    Ticket::parse(&text).map_err(|error| format!("cannot use the ticket in {}: {error}", quote(file)))
}

fn take(from: &mut dyn Read, text: &mut Zeroizing<String>) -> io::Result<()> {
    from.take(LOOK_BYTES).read_to_string(text).map(drop)
}

/// Writes `ticket` as one line to `file`, which no other user may read. An existing file is
/// replaced atomically.
///
/// # Errors
/// Returns the error of the kernel.
pub(crate) fn write(file: &Path, ticket: &Ticket) -> io::Result<()> {
    let mut line = ticket.to_line();
    line.push('\n');
    write_secret(file, line.as_bytes())
}

/// Writes `bytes` to a new file next to `file` and renames it. The file has mode 0600 from its
/// creation.
///
/// # Errors
/// Returns the error of the kernel.
pub(crate) fn write_secret(file: &Path, bytes: &[u8]) -> io::Result<()> {
    // Do not replace a device under this name.
    if std::fs::symlink_metadata(file).is_ok_and(|facts| !facts.is_file()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "Not a regular file"));
    }
    let (dir, name) = open_parent(file)?;
    let mut draft = Draft::create(&*dir, &name, Writers::Many, SECRET_MODE)?;
    // The umask may exclude this user.
    draft.file().set_mode(SECRET_MODE)?;
    draft.write_all(bytes)?;
    draft.replace(&name, Durability::Data)
}

/// Returns the identity of a server, for any of its tickets: its key, or its addresses.
pub(crate) fn identity_bytes(ticket: &Ticket) -> Vec<u8> {
    match ticket.fingerprint() {
        Some(fingerprint) => format!("{fingerprint:?}").into_bytes(),
        None => format!("{:?}", ticket.addresses()).into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_net::{Grant, Role, Uses};
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    fn ticket() -> Ticket {
        let grant = Grant { role: Role::Both, uses: Uses::Once, expires: None };
        Ticket::issue(grant, vec!["host:1".parse().expect("an address")], None).expect("a ticket")
    }

    #[test]
    fn a_written_ticket_is_private_and_reads_back_equal() {
        let home = tempfile::tempdir().expect("a folder");
        let (file, ticket) = (home.path().join("t"), ticket());
        write(&file, &ticket).expect("written");
        assert_eq!(std::fs::metadata(&file).expect("there").mode() & 0o777, SECRET_MODE);
        assert_eq!(read(file.as_os_str()).expect("read"), ticket);
        assert_eq!(std::fs::read_dir(home.path()).expect("listed").count(), 1);
    }

    #[test]
    fn a_symlink_is_not_replaced_by_a_ticket() {
        let home = tempfile::tempdir().expect("a folder");
        let file = home.path().join("t");
        std::os::unix::fs::symlink("elsewhere", &file).expect("linked");
        let error = write(&file, &ticket()).expect_err("a link");
        assert_eq!(error.to_string(), "Not a regular file");
        assert!(std::fs::symlink_metadata(&file).expect("there").is_symlink());
        assert_eq!(std::fs::read_dir(home.path()).expect("listed").count(), 1);
    }

    #[test]
    fn a_ticket_file_readable_by_others_is_refused_without_its_text() {
        let home = tempfile::tempdir().expect("a folder");
        let file = home.path().join("t");
        write(&file, &ticket()).expect("written");
        std::fs::set_permissions(&file, Permissions::from_mode(0o640)).expect("set");
        assert!(read(file.as_os_str()).expect_err("open to others").contains("chmod 600"));
        std::fs::write(&file, "haul1secretsecret1").expect("written");
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("set");
        let error = read(file.as_os_str()).expect_err("no ticket");
        assert!(!error.contains("secretsecret"), "{error}");
    }
}
