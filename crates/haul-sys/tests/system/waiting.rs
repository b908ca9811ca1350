//! Tests of waits that a stop request ends.

use haul_sys::{CWD, FileKind, Follow, open, wait};
use rustix::io::Errno;
use std::cell::Cell;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

fn a_pipe() -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().expect("a folder");
    let path = home.path().join("pipe");
    open::mknod_at(CWD, &path, FileKind::Fifo, 0o600, 0).expect("a named pipe");
    (home, path)
}

/// Returns a stop check that returns true at the third call.
fn after_some_looks() -> impl Fn() -> bool {
    let looks = Cell::new(0);
    move || {
        looks.set(looks.get() + 1);
        looks.get() > 2
    }
}

fn never() -> bool {
    false
}

#[test]
fn pipe_is_readable_with_data_or_at_its_end() {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    assert!(!wait::readable(&reader, Duration::ZERO).expect("poll"));
    assert!(wait::writable(&writer, Duration::ZERO).expect("poll"));
    writer.write_all(b"x").expect("write");
    assert!(wait::readable(&reader, Duration::ZERO).expect("poll"));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(writer);
    assert!(wait::readable(&reader, Duration::ZERO).expect("poll"));
}

#[test]
fn waiting_for_a_pipe_partner_can_be_stopped() {
    let (_home, path) = a_pipe();
    let source = wait::open_pipe_source_at(CWD, &path, Follow::No, after_some_looks()).expect("open");
    assert!(source.is_none());
    let sink = wait::open_pipe_sink_at(CWD, &path, Follow::No, after_some_looks()).expect("open");
    assert!(sink.is_none());
}

#[test]
fn read_from_a_silent_pipe_can_be_stopped() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    assert_eq!(wait::read_stream(&reader, &mut [0; 10], after_some_looks()).expect("read"), None);
    drop(writer);
    assert_eq!(wait::read_stream(&reader, &mut [0; 10], never).expect("read"), Some(0));
}

#[test]
fn write_to_a_full_pipe_can_be_stopped() {
    let (_home, path) = a_pipe();
    let reader: OwnedFd = open::open_source_at(CWD, &path, Follow::No, false).expect("open");
    let sink =
        wait::open_pipe_sink_at(CWD, &path, Follow::No, never).expect("open").expect("a reader is there");
    assert!(!wait::write_stream(&sink, &vec![1; 4 << 20], after_some_looks()).expect("write"));
    drop(reader);
    let error = wait::write_stream(&sink, b"x", never).expect_err("no process reads");
    assert_eq!(Errno::from_io_error(&error), Some(Errno::PIPE));
}

#[test]
fn named_pipe_transfers_all_bytes_in_any_open_order() {
    for writer_waits in [true, false] {
        let (_home, path) = a_pipe();
        let sent: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        let (there, bytes) = (path.clone(), sent.clone());
        let writing = thread::spawn(move || {
            if !writer_waits {
                thread::sleep(Duration::from_millis(60));
            }
            let sink =
                wait::open_pipe_sink_at(CWD, &there, Follow::No, never).expect("open").expect("not stopped");
            assert!(wait::write_stream(&sink, &bytes, never).expect("write"));
        });
        let mut received = vec![0; sent.len() + 10];
        let source =
            wait::open_pipe_source_at(CWD, &path, Follow::No, never).expect("open").expect("not stopped");
        let len = wait::read_stream(&source, &mut received, never).expect("read");
        assert_eq!((len, received[..sent.len()] == sent), (Some(sent.len()), true));
        writing.join().expect("the writer");
    }
}

#[test]
fn writer_that_closes_without_data_ends_the_wait() {
    let (_home, path) = a_pipe();
    let there = path.clone();
    let writing = thread::spawn(move || drop(File::options().write(true).open(there).expect("open")));
    let source =
        wait::open_pipe_source_at(CWD, &path, Follow::No, never).expect("open").expect("not stopped");
    assert_eq!(wait::read_stream(&source, &mut [0; 1], never).expect("read"), Some(0));
    writing.join().expect("the writer");
}

#[test]
fn regular_file_is_read_and_missing_pipe_fails() {
    let home = tempfile::tempdir().expect("a folder");
    let path = home.path().join("file");
    fs::write(&path, b"abc").expect("write");
    let mut file = File::open(&path).expect("open");
    assert_eq!(wait::read_stream(&file, &mut [0; 10], never).expect("read"), Some(3));
    file.read_to_end(&mut Vec::new()).expect("read");
    assert!(wait::open_pipe_source_at(CWD, home.path().join("gone"), Follow::No, never).is_err());
    assert!(wait::open_pipe_sink_at(CWD, home.path().join("gone"), Follow::No, never).is_err());
}
