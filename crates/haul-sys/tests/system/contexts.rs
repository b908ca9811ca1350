//! Tests of the system's libselinux, as far as possible on any kernel.

use haul_lab::needs::shown_or_skip;
use haul_sys::FileKind;
use haul_sys::selinux::{self, Context, Library, Policy};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Loads the library, which Debian, Fedora and SUSE install.
fn library() -> Option<Library> {
    let library = Library::load().ok();
    shown_or_skip(library.is_some(), "libselinux.so.1").then_some(library).flatten()
}

#[test]
fn selinux_state_matches_the_kernel() {
    let Some(library) = library() else { return };
    let is_mounted = Path::new("/sys/fs/selinux/enforce").exists();
    assert!(is_mounted || !library.is_enabled());
    assert_eq!(selinux::policy().is_some(), is_mounted && library.is_enabled());
    if !library.is_enabled() {
        let context = Context::written(b"no such context");
        library.label_new_files(Some(&context)).expect_err("no kernel takes this");
        library.of_new(&context, FileKind::Regular).expect_err("no kernel answers this");
    }
}

#[test]
fn paths_are_looked_up_in_file_contexts() {
    let Some(library) = library() else { return };
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("file_contexts");
    let list = "/.*\tu:r:any_t:s0\n\
                /srv(/.*)?\tu:r:srv_t:s0\n\
                /srv/[^/]+\\.so -- u:r:lib_t:s0\n\
                /srv/bare <<none>>\n";
    std::fs::write(&path, list).unwrap();
    let library = library.with_list(&CString::new(path.as_os_str().as_bytes()).unwrap());
    library.read_paths().unwrap();
    let found = |path: &str, kind| {
        let found = library.of_path(Path::new(path), kind);
        found.map(|context| context.as_os_str().to_owned()).map_err(|error| error.kind())
    };
    assert_eq!(found("/etc", FileKind::Directory), Ok("u:r:any_t:s0".into()));
    assert_eq!(found("/srv/a", FileKind::Regular), Ok("u:r:srv_t:s0".into()));
    assert_eq!(found("/srv/a.so", FileKind::Regular), Ok("u:r:lib_t:s0".into()));
    assert_eq!(found("/srv/a.so", FileKind::Symlink), Ok("u:r:srv_t:s0".into()));
    assert_eq!(found("/srv/bare", FileKind::Regular), Err(io::ErrorKind::NotFound));
}

#[test]
fn missing_file_contexts_returns_not_found() {
    let Some(library) = library() else { return };
    let library = library.with_list(c"/no/such/list");
    assert_eq!(library.read_paths().unwrap_err().kind(), io::ErrorKind::NotFound);
    library.of_path(Path::new("/etc"), FileKind::Directory).expect_err("there is no list");
}
