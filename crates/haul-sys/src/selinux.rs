//! SELinux as far as a copying program meets it: whether it is there, and which context new files get. The contexts
//! of files themselves are the extended attribute [`CONTEXT`].

use std::ffi::{CStr, OsStr};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The attribute that holds a file's security context.
pub const CONTEXT: &CStr = c"security.selinux";

/// What only a kernel that enforces or permits by SELinux shows, once its file system is mounted where all
/// distributions mount it.
const MARK: &str = "/sys/fs/selinux/enforce";

/// Where a thread says which context the files it makes from now on shall get.
const NEW_FILES: &str = "/proc/thread-self/attr/fscreate";

/// Whether the running kernel labels files by SELinux.
pub fn is_enabled() -> bool {
    Path::new(MARK).exists()
}

/// Gives all files that this thread, and the threads it starts after this, will make the security context `context`.
///
/// # Errors
/// What the kernel says of the context: `EINVAL` where its policy knows no such one, `EACCES` where it forbids it;
/// `ENOENT` where the kernel has no security contexts.
pub fn label_new_files(context: &OsStr) -> io::Result<()> {
    // In one write, with the end that the kernel's own tools put there.
    let mut bytes = context.as_bytes().to_vec();
    bytes.push(0);
    fs::OpenOptions::new()
        .write(true)
        .open(NEW_FILES)
        .and_then(|mut file| io::Write::write_all(&mut file, &bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_that_no_policy_knows_is_refused() {
        let error = label_new_files(OsStr::new("no such context")).expect_err("no policy has this");
        assert!(error.raw_os_error().is_some(), "{error}");
    }
}
