//! Choice of the directory that is opened for the client, and of the paths below it.

use haul_engine::copy::quote;
use haul_engine::sum::reason;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A directory, and paths below it. Links on the way to the directory are resolved, so that no link
/// leads a path out of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Root {
    pub(super) directory: PathBuf,
    pub(super) paths: Vec<Vec<u8>>,
}

/// Error of a directory that cannot be opened.
#[derive(Debug, Error)]
pub(super) enum RootError {
    /// The path cannot be inspected.
    #[error("cannot open {path}: {}", reason(source))]
    Unusable {
        /// The requested path, safe to print.
        path: String,
        /// Cause.
        source: io::Error,
    },
    /// The path is not a directory.
    #[error("cannot use {0}: it is not a directory")]
    NotADirectory(String),
}

impl Root {
    /// Returns the destination directory. Creates a missing one in an existing parent directory, so
    /// that the rules for links and the sandbox start at the destination itself. With `dry_run`,
    /// which creates nothing, returns the parent directory and the name instead.
    ///
    /// # Errors
    /// Returns [`RootError`] if the path is no usable directory.
    pub(super) fn to_send_to(typed: &[u8], home: Option<&OsStr>, dry_run: bool) -> Result<Root, RootError> {
        let path = expanded(typed, home);
        let failed = |source| RootError::Unusable { path: quote(path.as_os_str()).to_string(), source };
        match path.metadata() {
            Ok(facts) if facts.is_dir() => {
                let directory = path.canonicalize().map_err(failed)?;
                Ok(Root { directory, paths: vec![Vec::new()] })
            }
            Ok(_) => Err(RootError::NotADirectory(quote(path.as_os_str()).to_string())),
            // A dangling link blocks the name: its target is not created.
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.symlink_metadata().is_err() => {
                let name = path.file_name().ok_or_else(|| failed(error))?.as_bytes().to_vec();
                if dry_run {
                    let directory = above(&path).canonicalize().map_err(failed)?;
                    return Ok(Root { directory, paths: vec![name] });
                }
                match fs::create_dir(&path) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
                    _ => {
                        Ok(Root { directory: path.canonicalize().map_err(failed)?, paths: vec![Vec::new()] })
                    }
                }
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns the lowest common directory of the paths to fetch. A link at the end of a path stays
    /// a link; with a trailing slash, it is followed.
    ///
    /// # Errors
    /// Returns [`RootError`] for the first path that does not exist.
    pub(super) fn to_fetch_from(typed: &[Vec<u8>], home: Option<&OsStr>) -> Result<Root, RootError> {
        let found = typed.iter().map(|path| one_source(&expanded(path, home)));
        let found: Vec<(PathBuf, Vec<u8>)> = found.collect::<Result<_, _>>()?;
        let mut directory = found.first().map_or_else(|| PathBuf::from("/"), |(place, _)| place.clone());
        while !found.iter().all(|(place, _)| place.starts_with(&directory)) {
            directory.pop();
        }
        let beneath = |(place, name): &(PathBuf, Vec<u8>)| {
            let way = place.strip_prefix(&directory).unwrap_or(place).as_os_str().as_bytes();
            let slash: &[u8] = if way.is_empty() { b"" } else { b"/" };
            [way, slash, name].concat()
        };
        let paths = found.iter().map(beneath).collect();
        Ok(Root { directory, paths })
    }
}

/// Returns the resolved parent directory of a source, and its name there. The name ends in a slash
/// or `.` if the contents of a directory were requested.
fn one_source(path: &Path) -> Result<(PathBuf, Vec<u8>), RootError> {
    let failed = |source| RootError::Unusable { path: quote(path.as_os_str()).to_string(), source };
    let bytes = path.as_os_str().as_bytes();
    let last = bytes.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    if matches!(last, b"" | b"." | b"..") {
        let whole = path.canonicalize().map_err(failed)?;
        if !whole.is_dir() {
            return Err(RootError::NotADirectory(quote(path.as_os_str()).to_string()));
        }
        let Some(name) = whole.file_name() else { return Ok((whole, b".".to_vec())) };
        return Ok((above(&whole).to_owned(), [name.as_bytes(), b"/"].concat()));
    }
    path.symlink_metadata().map_err(failed)?;
    Ok((above(path).canonicalize().map_err(failed)?, last.to_vec()))
}

/// Returns the parent directory; `.` for a bare name.
fn above(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Expands `~` to the home directory, because no shell has done so, and an empty path to the
/// login's directory.
pub(super) fn expanded(typed: &[u8], home: Option<&OsStr>) -> PathBuf {
    let rest = match typed {
        b"" => return PathBuf::from("./"),
        b"~" => Some(&b""[..]),
        _ => typed.strip_prefix(b"~/"),
    };
    let path = match (rest, home) {
        (Some(rest), Some(home)) => [home.as_bytes(), b"/", rest].concat(),
        _ => typed.to_vec(),
    };
    PathBuf::from(OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn fixture() -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().expect("a folder");
        let dir = home.path().canonicalize().expect("there");
        fs::create_dir_all(dir.join("a/b/c")).expect("made");
        fs::write(dir.join("a/file"), "x").expect("written");
        symlink(dir.join("a/b"), dir.join("link")).expect("made");
        symlink("nowhere", dir.join("dangling")).expect("made");
        (home, dir)
    }

    fn typed(dir: &Path, path: &str) -> Vec<u8> {
        // `join` would drop slashes.
        format!("{}/{path}", dir.display()).into_bytes()
    }

    fn fetched(dir: &Path, paths: &[&str]) -> (PathBuf, Vec<String>) {
        let paths: Vec<Vec<u8>> = paths.iter().map(|path| typed(dir, path)).collect();
        let root = Root::to_fetch_from(&paths, None).expect("there");
        let paths = root.paths.into_iter().map(|path| String::from_utf8(path).expect("text")).collect();
        (root.directory, paths)
    }

    #[test]
    fn a_missing_destination_needs_an_existing_parent_directory() {
        let (_home, dir) = fixture();
        let root = |path: &str| Root::to_send_to(&typed(&dir, path), None, true);
        let there = Root { directory: dir.join("a/b"), paths: vec![Vec::new()] };
        assert_eq!(root("a/b").expect("there"), there);
        assert_eq!(root("link").expect("followed"), there);
        let missing = Root { directory: dir.join("a"), paths: vec![b"new".to_vec()] };
        assert_eq!(root("a/new").expect("its directory is there"), missing);
        assert_eq!(root("a/new/").expect("its directory is there"), missing);
        assert!(!dir.join("a/new").exists(), "a dry run creates nothing");
        let made = |path: &str| Root::to_send_to(&typed(&dir, path), None, false);
        for (path, name) in
            [("a/new", "a/new"), ("a/new", "a/new"), ("link/n", "a/b/n"), ("a/other/", "a/other")]
        {
            let there = Root { directory: dir.join(name), paths: vec![Vec::new()] };
            assert_eq!(made(path).expect("its parent is there"), there);
        }
        for path in ["a/no/new", "dangling", "a/file/new"] {
            assert!(made(path).is_err() && !dir.join("nowhere").exists(), "{path}");
        }
        assert!(matches!(root("a/file"), Err(RootError::NotADirectory(_))));
        assert!(matches!(root("no/new"), Err(RootError::Unusable { .. })));
        assert!(matches!(root("dangling"), Err(RootError::Unusable { .. })));
    }

    #[test]
    fn a_tilde_is_expanded_to_the_home_directory() {
        let (_home, dir) = fixture();
        for (path, expected) in [("~", "."), ("~/a", "a"), ("~/a/b", "a/b")] {
            let root = Root::to_send_to(path.as_bytes(), Some(dir.as_os_str()), true).expect(path);
            assert_eq!(root.directory, dir.join(expected).canonicalize().expect("there"));
        }
    }

    #[test]
    fn sources_are_relative_to_their_lowest_common_directory() {
        let (_home, dir) = fixture();
        assert_eq!(fetched(&dir, &["a/file"]), (dir.join("a"), vec!["file".into()]));
        assert_eq!(fetched(&dir, &["a/file", "a/b/c"]), (dir.join("a"), vec!["file".into(), "b/c".into()]));
        assert_eq!(fetched(&dir, &["a/b/"]), (dir.join("a"), vec!["b/".into()]));
        assert_eq!(fetched(&dir, &["a/b/."]), (dir.join("a"), vec!["b/".into()]));
        assert_eq!(Root::to_fetch_from(&[b"/".to_vec()], None).expect("there").paths, [b"."]);
    }

    #[test]
    fn links_in_directories_are_followed_and_a_final_link_is_not() {
        let (_home, dir) = fixture();
        assert_eq!(fetched(&dir, &["link/c"]), (dir.join("a/b"), vec!["c".into()]));
        assert_eq!(fetched(&dir, &["link"]), (dir.clone(), vec!["link".into()]));
        assert_eq!(fetched(&dir, &["link/"]), (dir.join("a"), vec!["b/".into()]));
        assert_eq!(fetched(&dir, &["dangling"]), (dir.clone(), vec!["dangling".into()]));
        assert!(Root::to_fetch_from(&[typed(&dir, "a/no")], None).is_err());
        assert!(Root::to_fetch_from(&[typed(&dir, "a/file/")], None).is_err());
    }
}
