//! Bags (RFC 8493): manifests, and completeness of the payload.

use super::decoded::DecodedText;
use crate::sum::list::{Piece, read_piece};
use encoding_rs::{Encoding, UTF_8};
use haul_digest::list::{BagRules, Flaw};
use haul_digest::{Algorithm, digest};
use haul_engine::sum::reason;
use haul_storage::{Dir, local};
use haul_sys::beneath::{open_place_beneath, open_root, open_source_beneath};
use haul_sys::dir::{DirReader, read_dir};
use haul_sys::{FileKind, Follow};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A bag, as declared.
#[derive(Debug)]
pub(super) struct Bag {
    root: BagRoot,
    version: (u32, u32),
    /// Encoding of the manifests and of all other tag files except the declaration.
    encoding: &'static Encoding,
    /// True if the declaration starts with a byte order mark, which it must not.
    has_mark: bool,
}

/// Directory of a bag. No link leads out of it.
#[derive(Clone, Debug)]
pub(super) struct BagRoot {
    pub(super) path: PathBuf,
    place: Arc<OwnedFd>,
    pub(super) dir: Arc<dyn Dir>,
}

/// A fault of a bag.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The faulty file, as manifests name it.
    pub(super) name: Option<Vec<u8>>,
    pub(super) text: String,
}

/// File that makes a directory a bag.
const DECLARATION: &str = "bagit.txt";

/// Directory of the payload.
const PAYLOAD: &str = "data";

/// File that lists files to be fetched.
const FETCH: &str = "fetch.txt";

/// File that describes the bag.
const INFO: &str = "bag-info.txt";

/// Read limit for the declaration and `bag-info.txt`, in bytes.
const TAG_FILE_BYTES_MAX: u64 = 1 << 20;

/// Reason why a file reached through a link is refused.
pub(super) const LEADS_OUT: &str = "a symbolic link leads out of the bag";

impl BagRoot {
    pub(super) fn open(path: &Path) -> Result<BagRoot, String> {
        let place = open_root(path.as_os_str()).map_err(|error| reason(&error))?;
        let dir = local::open(path, Follow::Yes).map_err(|error| reason(&error))?;
        Ok(BagRoot { path: path.to_owned(), place: Arc::new(place), dir })
    }

    /// Opens a regular file, without waiting for the writer of a named pipe.
    fn open_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let file = File::from(open_source_beneath(&self.place, name.as_ref()).map_err(or_leads_out)?);
        match file.metadata()? {
            facts if facts.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            facts if facts.is_file() => Ok(file),
            _ => Err(io::Error::other("not a regular file")),
        }
    }

    /// Opens a tag file in this encoding, which is read as UTF-8.
    fn open_tag_file(
        &self,
        name: impl AsRef<OsStr>,
        encoding: &'static Encoding,
    ) -> io::Result<Box<dyn Read + Send>> {
        let file = self.open_file(name)?;
        // Names in UTF-8 may be any bytes, as on Linux.
        Ok(if encoding == UTF_8 { Box::new(file) } else { Box::new(DecodedText::new(file, encoding)) })
    }
}

impl Bag {
    /// Returns the bag in this directory.
    pub(super) fn of(dir: &Path) -> Result<Bag, String> {
        let root = BagRoot::open(dir)?;
        let bytes = read_start(root.open_file(DECLARATION)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!("Is a directory, but not a bag: it has no {DECLARATION}"),
            _ => format!("{DECLARATION}: {}", reason(&error)),
        })?;
        let declaration = String::from_utf8_lossy(&bytes);
        let version = field(&declaration, "BagIt-Version").and_then(|text| {
            let (major, minor) = text.split_once('.')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        });
        let version = version.ok_or_else(|| format!("{DECLARATION}: no line 'BagIt-Version: M.N'"))?;
        let encoding = match field(&declaration, "Tag-File-Character-Encoding") {
            Some(name) => Encoding::for_label(name.as_bytes())
                .ok_or_else(|| format!("{DECLARATION}: unknown character encoding '{name}'"))?,
            None => UTF_8,
        };
        let has_mark = declaration.starts_with('\u{feff}');
        Ok(Bag { root, version, encoding, has_mark })
    }

    /// Opens a tag file, which is read as UTF-8.
    pub(super) fn open(&self, name: impl AsRef<OsStr>) -> io::Result<Box<dyn Read + Send>> {
        self.root.open_tag_file(name, self.encoding)
    }

    /// Returns the bag of a manifest; `None` for a file that is not a manifest of a bag.
    pub(super) fn around(manifest: &Path) -> Result<Option<Bag>, String> {
        let name = manifest.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let is_manifest = name.starts_with("manifest-") || name.starts_with("tagmanifest-");
        let Some(dir) = manifest.parent().filter(|_| is_manifest && name.ends_with(".txt")) else {
            return Ok(None);
        };
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        let is_bag = fs::symlink_metadata(dir.join(DECLARATION)).is_ok();
        is_bag.then(|| Bag::of(dir)).transpose()
    }

    pub(super) fn root(&self) -> &BagRoot {
        &self.root
    }

    /// Returns true if names in manifests write a percent sign as `%25`.
    pub(super) fn encodes_percent(&self) -> bool {
        self.version >= (1, 0)
    }

    /// Returns all manifests, those of tag files first. Fails if the payload has none.
    pub(super) fn manifests(&self) -> Result<Vec<PathBuf>, String> {
        let mut names = Vec::new();
        for entry in read_dir(&self.root.path).map_err(|error| reason(&error))? {
            let name = entry.map_err(|error| reason(&error))?.name_os().to_owned();
            let bytes = name.as_bytes();
            let is_tag = bytes.starts_with(b"tagmanifest-");
            if (is_tag || bytes.starts_with(b"manifest-")) && bytes.ends_with(b".txt") {
                names.push((!is_tag, name));
            }
        }
        names.sort();
        if !names.iter().any(|(is_payload, _)| *is_payload) {
            return Err("the bag has no manifest-ALGORITHM.txt".to_owned());
        }
        Ok(names.into_iter().map(|(_, name)| self.root.path.join(name)).collect())
    }
}

/// Payload of a bag: the files of its manifests, and then a walk that finds unlisted files. Keeps
/// 16 bytes for each listed file: the start of the BLAKE3 digest of its name.
pub(super) struct Payload {
    root: BagRoot,
    version: (u32, u32),
    encoding: &'static Encoding,
    /// Faults of the bag that are known before the walk.
    faults: Vec<Fault>,
    /// Rest of `fetch.txt`, and the number of its lines that were read.
    fetch: Option<(BufReader<Box<dyn Read + Send>>, u64)>,
    /// List number and names of each payload manifest; sorted when the walk starts.
    listed: Vec<(u64, Vec<u128>)>,
    /// Directories in progress, outermost first, each with its name as manifests write it.
    levels: Vec<(DirReader, Vec<u8>)>,
    begun: bool,
    ended: bool,
    files: u64,
    bytes: u64,
}

impl Payload {
    /// Returns an empty payload, which is not walked if no payload manifest is among the lists.
    pub(super) fn new(root: BagRoot, bag: &Bag, manifests: Vec<u64>) -> Payload {
        let mut faults = Vec::new();
        if bag.has_mark {
            let text = format!("{DECLARATION} starts with a byte order mark");
            faults.push(Fault { name: None, text });
        }
        let fetch = match bag.open(FETCH) {
            Ok(source) => Some((BufReader::new(source), 0)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                faults.push(Fault { name: None, text: format!("{FETCH}: {}", reason(&error)) });
                None
            }
        };
        let is_over = manifests.is_empty();
        let listed = manifests.into_iter().map(|number| (number, Vec::new())).collect();
        let (version, encoding) = (bag.version, bag.encoding);
        let (levels, files, bytes) = (Vec::new(), 0, 0);
        Payload {
            root,
            version,
            encoding,
            faults,
            fetch,
            listed,
            levels,
            begun: is_over,
            ended: is_over,
            files,
            bytes,
        }
    }

    /// Records that a list names a file.
    pub(super) fn add(&mut self, list: u64, name: &[u8]) {
        if let Some((_, names)) = self.listed.iter_mut().find(|(number, _)| *number == list) {
            names.push(key(name));
        }
    }

    /// Returns the next fault; `None` at the end of the payload.
    pub(super) fn next(&mut self, stop: &AtomicBool) -> Option<Fault> {
        if let Some(fault) = self.faults.pop().or_else(|| self.fetch_fault(stop)) {
            return Some(fault);
        }
        if !std::mem::replace(&mut self.begun, true) {
            self.listed.iter_mut().for_each(|(_, names)| names.sort_unstable());
            let payload = open_place_beneath(&self.root.place, OsStr::new(PAYLOAD), Follow::Yes);
            let name = PAYLOAD.as_bytes().to_vec();
            let entered = match payload {
                Err(error) => Err(unreadable(&name, &or_leads_out(error))),
                Ok(_) => self.enter(name),
            };
            if let Err(fault) = entered {
                return Some(fault);
            }
        }
        while !self.ended && !stop.load(Ordering::Relaxed) {
            let Some((dir, path)) = self.levels.last_mut() else {
                self.ended = true;
                return self.oxum_fault();
            };
            let fault = match dir.next() {
                None => {
                    self.levels.pop();
                    continue;
                }
                Some(Err(error)) => Some(unreadable(path, &error)),
                Some(Ok(entry)) => {
                    let name = [path, b"/".as_slice(), entry.name.as_bytes()].concat();
                    match entry.kind_in(dir.fd()) {
                        Ok(FileKind::Directory) => self.enter(name).err(),
                        _ => self.meet(name),
                    }
                }
            };
            if fault.is_some() {
                return fault;
            }
        }
        None
    }

    /// Returns the next fault of `fetch.txt`. The files that it lists may be missing.
    fn fetch_fault(&mut self, stop: &AtomicBool) -> Option<Fault> {
        let (reader, line) = self.fetch.as_mut()?;
        let rules = BagRules { encodes_percent: self.version >= (1, 0), foreign: None };
        let mut text = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            *line += 1;
            let flaw = match read_piece(reader, b'\n', &mut text) {
                Ok(Piece::Whole | Piece::Unended) if text.iter().all(u8::is_ascii_whitespace) => continue,
                Ok(Piece::Whole | Piece::Unended) => rules.fetched(&text).err(),
                Ok(Piece::TooLong) => Some(Flaw::TooLong),
                Ok(Piece::End) => break,
                Err(error) => {
                    self.fetch = None;
                    return Some(Fault { name: None, text: format!("{FETCH}: {}", reason(&error)) });
                }
            };
            match flaw {
                None => {}
                Some(Flaw::Damaged) => {
                    let text = format!("{FETCH}: {line}: not of the form URL LENGTH PATH");
                    return Some(Fault { name: None, text });
                }
                Some(flaw) => return Some(Fault { name: None, text: format!("{FETCH}: {line}: {flaw}") }),
            }
        }
        self.fetch = None;
        None
    }

    fn enter(&mut self, name: Vec<u8>) -> Result<(), Fault> {
        let dir = read_dir(self.root.path.join(OsStr::from_bytes(&name)));
        let dir = dir.map_err(|error| unreadable(&name, &error))?;
        self.levels.push((dir, name));
        Ok(())
    }

    /// Counts a file of the payload and finds it in the manifests. Since version 1.0 each manifest
    /// must list it; before, one was enough.
    fn meet(&mut self, name: Vec<u8>) -> Option<Fault> {
        self.files += 1;
        if let Ok(facts) = fs::metadata(self.root.path.join(OsStr::from_bytes(&name))) {
            self.bytes += facts.len();
        }
        let key = key(&name);
        let missing = self.listed.iter().filter(|(_, names)| names.binary_search(&key).is_err()).count();
        let enough = if self.version >= (1, 0) { missing == 0 } else { missing < self.listed.len() };
        let text = match missing == self.listed.len() {
            true => "not listed in the manifest",
            false => "not listed in every manifest",
        };
        (!enough).then(|| Fault { name: Some(name), text: text.to_owned() })
    }

    /// Compares the totals with the `Payload-Oxum` of `bag-info.txt`: bytes, a dot, files.
    fn oxum_fault(&self) -> Option<Fault> {
        let info = match read_start(self.root.open_tag_file(INFO, self.encoding)) {
            Ok(info) => info,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => return Some(Fault { name: None, text: format!("{INFO}: {}", reason(&error)) }),
        };
        let info = String::from_utf8_lossy(&info);
        let (stated, found) = (field(&info, "Payload-Oxum")?, format!("{}.{}", self.bytes, self.files));
        let text = format!("the payload is {found} (bytes.files), but {INFO} says {stated}");
        (stated != found).then_some(Fault { name: None, text })
    }

    /// Describes the payload, if it was walked.
    pub(super) fn remark(&self) -> String {
        if self.listed.is_empty() {
            return String::new();
        }
        let (major, minor) = self.version;
        let files = if self.files == 1 { "file" } else { "files" };
        format!("BagIt {major}.{minor}, payload of {} {files}, {} bytes", self.files, self.bytes)
    }
}

fn unreadable(name: &[u8], error: &io::Error) -> Fault {
    Fault { name: Some(name.to_vec()), text: reason(error) }
}

fn key(name: &[u8]) -> u128 {
    let mut plain = name;
    while let Some(rest) = plain.strip_prefix(b"./") {
        plain = rest;
    }
    let digest = digest(Algorithm::Blake3, plain);
    digest.as_bytes().iter().take(16).fold(0, |key, &byte| key << 8 | u128::from(byte))
}

fn read_start(source: io::Result<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source?.take(TAG_FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Names the cause of `EXDEV`, the error of a link that leads out of the bag.
fn or_leads_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::CrossesDevices { io::Error::other(LEADS_OUT) } else { error }
}

/// Returns the value of a line `NAME: VALUE`.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let value = |line: &'t str| line.strip_prefix(name)?.trim_start().strip_prefix(':').map(str::trim);
    text.trim_start_matches('\u{feff}').lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bag_declaration_is_parsed() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Bag::of(dir.path()).unwrap_err().contains("not a bag"));
        fs::write(
            dir.path().join(DECLARATION),
            "BagIt-Version: 1.0\r\nTag-File-Character-Encoding: UTF-8\r\n",
        )
        .unwrap();
        assert!(Bag::of(dir.path()).unwrap().encodes_percent());
        assert!(Bag::of(dir.path()).unwrap().manifests().is_err());
        fs::write(dir.path().join(DECLARATION), "BagIt-Version : 0.97\n").unwrap();
        assert!(!Bag::of(dir.path()).unwrap().encodes_percent());
        fs::write(dir.path().join(DECLARATION), "hello\n").unwrap();
        assert!(Bag::of(dir.path()).is_err());
        assert!(Bag::around(Path::new("elsewhere/manifest-md5.txt")).unwrap().is_none());
    }

    #[test]
    fn leading_dot_slash_does_not_change_the_key() {
        assert_eq!(key(b"./data/x"), key(b"data/x"));
        assert_ne!(key(b"data/x"), key(b"data/y"));
    }
}
