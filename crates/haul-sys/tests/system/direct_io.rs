//! Tests of direct I/O, of its probe, and of a tail shorter than a block.

use crate::{noise, opened, places};
use haul_lab::mounts::FsKind;
use haul_sys::buffer::AlignedBuffer;
use haul_sys::direct::{self, Alignment};
use haul_sys::open::{create_new_at, open_source_at};
use haul_sys::stat::stat_fd;
use haul_sys::{Follow, transfer};
use std::fs;

fn filled(bytes: &[u8], room: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::new(room).expect("memory");
    buffer[..bytes.len()].copy_from_slice(bytes);
    buffer
}

#[test]
fn files_of_any_length_round_trip_with_direct_io() {
    for place in places() {
        let dir = opened(place.path());
        for len in [0, 1, 511, 512, 4095, 4096, 4097, 3 * 4096 + 123, 5 * 4096] {
            let name = format!("{len} bytes");
            let dst = create_new_at(&dir, name.as_str(), 0o600).expect("made");
            let Some(alignment) = direct::probe_write(&dst).expect("probed") else {
                assert!(!direct::is_direct(&dst).expect("asked"));
                place.lacks("direct writes", &[FsKind::Tmpfs]);
                continue;
            };
            assert!(direct::is_direct(&dst).expect("asked"), "a probe that works leaves the flag");
            assert_eq!(stat_fd(&dst).expect("found").size, 0, "a probe leaves no bytes");
            let bytes = noise(len, len as u64 + 1);
            let buffer = filled(&bytes, 32 << 10);
            direct::write_all_at(&dst, 0, &buffer[..len], alignment).expect("written");
            assert!(direct::is_direct(&dst).expect("asked"), "the tail puts the flag back");
            assert_eq!(fs::read(place.path().join(&name)).expect("read"), bytes, "no padding past the end");

            let src = open_source_at(&dir, name.as_str(), Follow::No, false).expect("opens");
            let Some(alignment) = direct::probe_read(&src).expect("probed") else {
                place.lacks("direct reads", &[FsKind::Tmpfs]);
                continue;
            };
            let mut back = AlignedBuffer::new(32 << 10).expect("memory");
            assert_eq!(direct::read_at(&src, 0, &mut back, alignment).expect("read"), len);
            assert_eq!(&back[..len], bytes);
            let step = alignment.offset as usize;
            if len > step {
                let read =
                    direct::read_at(&src, step as u64, &mut back[..4 * step], alignment).expect("read");
                assert_eq!(&back[..read], &bytes[step..len.min(5 * step)]);
            }
        }
    }
}

#[test]
fn probe_write_refuses_a_file_with_data() {
    for place in places() {
        let dir = opened(place.path());
        let file = create_new_at(&dir, c"file", 0o600).expect("made");
        transfer::write_all_at(&file, 0, b"precious").expect("written");
        let error = direct::probe_write(&file).expect_err("not empty");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert_eq!(fs::read(place.path().join("file")).expect("read"), b"precious");
    }
}

#[test]
fn file_without_direct_io_support_is_unchanged() {
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    assert!(!direct::is_direct(&reader).expect("asked"));
    let status = fs::File::open("/proc/self/status").expect("opens");
    assert_eq!(direct::probe_read(&status).expect("an answer"), None);
    assert!(!direct::is_direct(&status).expect("asked"));
}

#[test]
fn whole_blocks_rounds_down_to_the_alignment() {
    let alignment = Alignment { memory: 512, offset: 512 };
    let whole = [0, 511, 512, 513, 1_024, u64::MAX].map(|len| alignment.whole_blocks(len));
    assert_eq!(whole, [0, 0, 512, 512, 1_024, u64::MAX - 511]);
}
