//! The waybill of a job in a browser, line by line.

use crate::event::{level_of, moment};
use haul_digest::{Algorithm, Digest};
use haul_log::waybill::{Content, CopyMethod, Entry, Job, Kind, RelPath, Writer};

/// Modes of entries: a browser knows none, and the server creates entries with its own.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// Waybill of a job with one section. Each call returns the lines that it writes.
#[derive(Debug)]
pub struct Receipt {
    writer: Writer<Vec<u8>>,
}

/// One file or directory of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiptEntry<'a> {
    /// Path beneath the directory of the job.
    pub path: &'a [u8],
    /// Size in bytes and BLAKE3 of a file; `None` for a directory.
    pub content: Option<(u64, [u8; 32])>,
    /// Modification time in milliseconds since 1970.
    pub mtime: f64,
    /// Code of the level that the file reached.
    pub level: u32,
}

impl Receipt {
    /// Starts the waybill of a job that started `at` milliseconds since 1970. `root` is the
    /// directory that the paths are relative to, and `run` describes the job for readers.
    ///
    /// # Errors
    /// Returns a message if a line would be too long.
    pub fn new(at: f64, root: &[u8], run: &[u8]) -> Result<Receipt, String> {
        let job = Job {
            run: Job::run_of([run]),
            program: concat!("haul-browser ", env!("CARGO_PKG_VERSION")).into(),
            at: moment(at).sec,
            root: root.into(),
        };
        let writer = Writer::new(Vec::new(), &job).map_err(|error| error.to_string())?;
        Ok(Receipt { writer })
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// Returns a message if the path is not a path beneath a directory, or if the line would be too
    /// long.
    pub fn add(&mut self, entry: &ReceiptEntry<'_>) -> Result<(), String> {
        let path = RelPath::new(entry.path).map_err(|error| error.to_string())?;
        let (kind, mode) = match entry.content {
            None => (Kind::Directory, DIRECTORY_MODE),
            Some((size, digest)) => {
                let digest =
                    Digest::from_bytes(Algorithm::Blake3, &digest).map_err(|error| error.to_string())?;
                let content = Content {
                    size,
                    digests: vec![digest],
                    way: Some(CopyMethod::ReadWrite),
                    level: Some(level_of(entry.level)),
                    objects: None,
                };
                (Kind::File(content), FILE_MODE)
            }
        };
        let entry = Entry { path, kind, mode, mtime: moment(entry.mtime) };
        self.writer.entry(&entry).map_err(|error| error.to_string())
    }

    /// Takes the lines written since the last call. They are UTF-8.
    pub fn take(&mut self) -> String {
        String::from_utf8(std::mem::take(self.writer.output())).unwrap_or_default()
    }

    /// Closes the waybill. Returns the lines that were not taken.
    ///
    /// # Errors
    /// Returns a message if the closing line cannot be written.
    pub fn close(self) -> Result<String, String> {
        let (lines, _) = self.writer.close().map_err(|error| error.to_string())?;
        String::from_utf8(lines).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_log::waybill::{Reader, Record};

    #[test]
    fn a_reader_accepts_the_lines_of_all_calls() {
        let mut receipt = Receipt::new(1.7e12, b"/srv/in", b"upload by a browser").unwrap();
        let mut text = receipt.take();
        let file =
            |path, size| ReceiptEntry { path, content: Some((size, [7; 32])), mtime: 1234.0, level: 3 };
        receipt.add(&file("ä/b c".as_bytes(), 5)).unwrap();
        text += &receipt.take();
        receipt.add(&ReceiptEntry { content: None, ..file("ä".as_bytes(), 0) }).unwrap();
        for path in [&b"../x"[..], b"/x", b"", b"a/./b"] {
            assert!(receipt.add(&file(path, 1)).is_err());
        }
        text += &receipt.close().unwrap();
        let mut entries = Vec::new();
        let mut ends = 0;
        for record in Reader::new(text.as_bytes()) {
            match record.unwrap() {
                Record::Entry(entry) => entries.push(entry),
                Record::End(end) => {
                    assert_eq!((end.entries, end.files, end.bytes), (2, 1, 5));
                    ends += 1;
                }
                Record::Section(section) => assert_eq!(section.job.root, b"/srv/in"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((entries.len(), ends), (2, 1));
        assert_eq!(entries[0].mtime, moment(1234.0));
        assert!(text.contains(" level=durable "));
    }
}
