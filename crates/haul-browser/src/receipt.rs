//! The waybill of a job in a browser, line by line.

use crate::event::{level_of, moment};
use haul_digest::{Algorithm, Blake3File, Digest};
use haul_log::waybill::{Content, CopyMethod, Entry, Job, Kind, ObjectDigests, Objects, RelPath, Writer};
use haul_model::{ObjectIndex, ObjectSize};

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
    /// Contents of a file; `None` for a directory.
    pub content: Option<ReceiptContent>,
    /// Modification time in milliseconds since 1970.
    pub mtime: f64,
    /// Code of the level that the file reached.
    pub level: u32,
}

/// Contents of a file of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiptContent {
    /// Size in bytes.
    pub size: u64,
    /// BLAKE3 of the file, if it is known.
    pub digest: Option<[u8; 32]>,
    /// Size of an object, and the chaining values of all objects in order, if they are known.
    pub objects: Option<(ObjectSize, Vec<[u8; 32]>)>,
}

impl ReceiptContent {
    /// Returns the BLAKE3 of the file, and true if its objects have it too.
    fn digest(&self) -> Option<(Digest, bool)> {
        let known = self.digest.map(digest_of);
        let combined = self.objects.as_ref().and_then(|(object, values)| {
            let mut file = Blake3File::new(self.size, *object);
            let mut indices = (0..).map(ObjectIndex).zip(values);
            let are_inside = indices.all(|(index, value)| file.add_bytes(index, *value));
            let digest = file.finish().ok();
            digest.filter(|digest| are_inside && known.unwrap_or(*digest) == *digest)
        });
        Some((combined.or(known)?, combined.is_some()))
    }
}

fn digest_of(bytes: [u8; 32]) -> Digest {
    Digest::from_bytes(Algorithm::Blake3, &bytes).expect("a digest of BLAKE3 has 32 bytes")
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
    /// Returns a message if the path is not a path beneath a directory, if no digest of the file is
    /// known, or if the line would be too long.
    pub fn add(&mut self, entry: ReceiptEntry<'_>) -> Result<(), String> {
        let path = RelPath::new(entry.path).map_err(|error| error.to_string())?;
        let mut values = Vec::new();
        let (kind, mode) = match entry.content {
            None => (Kind::Directory, DIRECTORY_MODE),
            Some(content) => {
                let (digest, has_objects) = content.digest().ok_or("the digest of the file is unknown")?;
                let size = content.size;
                // The digest of a file of one object is that of its object.
                let known = content.objects.filter(|(_, values)| has_objects && values.len() > 1);
                let objects = known.map(|(size, found)| {
                    values = found;
                    Objects { size, algorithms: vec![Algorithm::Blake3], leaf: None }
                });
                let content = Content {
                    size,
                    digests: vec![digest],
                    way: Some(CopyMethod::ReadWrite),
                    level: Some(level_of(entry.level)),
                    objects,
                };
                (Kind::File(content), FILE_MODE)
            }
        };
        let entry = Entry { path, kind, mode, mtime: moment(entry.mtime) };
        self.writer.entry(&entry).map_err(|error| error.to_string())?;
        for (index, digest) in (0..).map(ObjectIndex).zip(values) {
            let object = ObjectDigests { index, digests: vec![digest_of(digest)] };
            self.writer.object(&object).map_err(|error| error.to_string())?;
        }
        Ok(())
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
        let file = |path, size| {
            let content = ReceiptContent { size, digest: Some([7; 32]), objects: None };
            ReceiptEntry { path, content: Some(content), mtime: 1234.0, level: 3 }
        };
        receipt.add(file("ä/b c".as_bytes(), 5)).unwrap();
        text += &receipt.take();
        receipt.add(ReceiptEntry { content: None, ..file("ä".as_bytes(), 0) }).unwrap();
        for path in [&b"../x"[..], b"/x", b"", b"a/./b"] {
            assert!(receipt.add(file(path, 1)).is_err());
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

    /// Adds a file of 150,000 bytes in objects of 64 KiB. Returns the lines of the entry.
    fn entry_lines(digest: Option<[u8; 32]>, objects: Option<Vec<[u8; 32]>>) -> Result<String, String> {
        let mut receipt = Receipt::new(0.0, b"", b"").unwrap();
        receipt.take();
        let objects = objects.map(|values| (ObjectSize::new(64 << 10).unwrap(), values));
        let content = Some(ReceiptContent { size: 150_000, digest, objects });
        receipt.add(ReceiptEntry { path: b"f", content, mtime: 0.0, level: 3 })?;
        Ok(receipt.take())
    }

    #[test]
    fn objects_of_a_file_give_its_digest() {
        let bytes: Vec<u8> = (0..150_000u32).map(|at| (at * 31 % 251) as u8).collect();
        let file = Blake3File::new(150_000, ObjectSize::new(64 << 10).unwrap());
        let value_of = |(index, object): (u64, &[u8])| {
            let mut hasher = file.hasher(ObjectIndex(index)).unwrap();
            hasher.update(object);
            <[u8; 32]>::try_from(hasher.finish().as_bytes()).unwrap()
        };
        let objects: Vec<[u8; 32]> = (0..).zip(bytes.chunks(64 << 10)).map(value_of).collect();
        let digest = haul_digest::digest(Algorithm::Blake3, &bytes);
        let known = <[u8; 32]>::try_from(digest.as_bytes()).unwrap();

        let lines = entry_lines(None, Some(objects.clone())).unwrap();
        assert_eq!(lines.lines().count(), 4, "{lines}");
        assert!(lines.contains(&format!("object=65536 of=blake3 blake3={digest}")), "{lines}");
        assert_eq!(entry_lines(Some(known), Some(objects.clone())).unwrap(), lines);
        let mut text = Receipt::new(0.0, b"", b"").unwrap().take();
        text += &lines;
        assert!(Reader::new(text.as_bytes()).take(5).all(|record| record.is_ok()));

        // The digest of the file is from one session, objects can be from several.
        let without = entry_lines(Some(known), None).unwrap();
        assert_eq!(without.lines().count(), 1);
        for wrong in [vec![[1; 32]; 3], objects[..2].to_vec(), [&objects[..], &objects[..1]].concat()] {
            assert_eq!(entry_lines(Some(known), Some(wrong)).unwrap(), without);
        }
        for unknown in [None, Some(objects[..2].to_vec())] {
            assert!(entry_lines(None, unknown).is_err());
        }
    }
}
