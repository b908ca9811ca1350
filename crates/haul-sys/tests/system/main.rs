//! The floor of the operating system, tried on the file systems at hand: the one that holds temporary
//! files, and the one in memory. What a machine cannot show is skipped, and says so.

mod buffers;
mod caching;
mod copying;
mod direct_io;
mod holes;
mod names;
mod permissions;
mod ring;
mod running;
mod waiting;

use std::fs::File;
use std::path::Path;
use tempfile::TempDir;

/// A fresh folder on each file system at hand.
fn places() -> Vec<TempDir> {
    let mut places = vec![tempfile::tempdir().expect("a temporary folder")];
    let memory = Path::new("/dev/shm");
    match tempfile::tempdir_in(memory) {
        Ok(place) => places.push(place),
        Err(error) => skipped(&format!("nothing in {}: {error}", memory.display())),
    }
    places
}

/// Says that a test could not look at something here.
fn skipped(why: &str) {
    eprintln!("skipped: {why}");
}

/// A folder, opened to resolve names in it.
fn opened(folder: &Path) -> File {
    File::open(folder).expect("the folder opens")
}

/// Bytes without a pattern that a mistaken offset could hit upon again.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// The number that the kernel gave with an error.
fn errno(error: &std::io::Error) -> Option<rustix::io::Errno> {
    rustix::io::Errno::from_io_error(error)
}
