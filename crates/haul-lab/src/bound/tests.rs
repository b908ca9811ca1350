//! Tests that a bound moves all of the bytes.

use super::{BoundConfig, BoundError, read, reread};
use haul_model::ObjectSize;
use std::fs;
use std::path::Path;

fn configs() -> Vec<BoundConfig> {
    let object = ObjectSize::new(64 << 10).unwrap();
    [false, true]
        .into_iter()
        .flat_map(|direct| {
            [(1, 64 << 10, 0), (3, 16 << 10, 2), (2, 4096, 100)].map(|(threads, block, ahead)| BoundConfig {
                direct,
                threads,
                block,
                object,
                ahead,
            })
        })
        .collect()
}

/// Returns true if this file system has no direct I/O at all, so that a bound may refuse it.
fn may_refuse(file: &Path, config: &BoundConfig, error: &BoundError) -> bool {
    let asked = haul_sys::direct::probe_read(fs::File::open(file).unwrap()).unwrap();
    config.direct && asked.is_none() && matches!(error, BoundError::NoDirect(_))
}

#[test]
fn every_byte_is_read_written_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    for len in [0, 1, 4096, 65_536, 65_537, 1_000_003] {
        let source = dir.path().join(format!("source-{len}"));
        let bytes: Vec<u8> = (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        fs::write(&source, &bytes).unwrap();
        for (number, config) in configs().iter().enumerate() {
            let sink = dir.path().join(format!("sink-{len}-{number}"));
            match reread(&source, &sink, config) {
                Ok(moved) => {
                    assert_eq!(moved, len as u64, "{config:?}");
                    assert!(fs::read(&sink).unwrap() == bytes, "{config:?}: other bytes of {len}");
                    assert_eq!(read(&source, config).unwrap(), len as u64, "{config:?}");
                }
                Err(error) => assert!(may_refuse(&source, config, &error), "{config:?}: {error}"),
            }
        }
    }
}

#[test]
fn existing_sink_is_not_overwritten_and_missing_source_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (source, sink) = (dir.path().join("source"), dir.path().join("sink"));
    fs::write(&sink, b"mine").unwrap();
    let config = configs()[0];
    let told = |error: BoundError| error.to_string();
    let said = told(read(&source, &config).unwrap_err());
    assert!(said.starts_with("cannot open ") && said.contains("source: "), "{said}");
    fs::write(&source, b"new").unwrap();
    let said = told(reread(&source, &sink, &config).unwrap_err());
    assert!(said.starts_with("cannot create ") && said.contains("sink: "), "{said}");
    assert_eq!(fs::read(&sink).unwrap(), b"mine");
}
