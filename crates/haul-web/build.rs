//! Embeds the files beneath `page/`, and the client of `haul-browser` as `/client/`: writes a table
//! of their names, types, tags and bytes, compressed with gzip, for `src/page.rs`.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Content types by the extension of the file.
const TYPES: [(&str, &str); 8] = [
    ("css", "text/css; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("wasm", "application/wasm"),
];

fn main() -> io::Result<()> {
    let home = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let client = home.join("../haul-browser");
    let mut files = Vec::new();
    for (dir, at) in
        [(home.join("page"), ""), (client.join("js"), "client/"), (client.join("wasm"), "client/")]
    {
        println!("cargo::rerun-if-changed={}", dir.display());
        collect(&dir, &dir, at, &mut files)?;
    }
    files.sort();
    let mut table = String::from("[\n");
    for (number, (name, file)) in files.iter().enumerate() {
        let bytes = fs::read(file)?;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&bytes)?;
        let packed = out.join(format!("{number}.gz"));
        fs::write(&packed, encoder.finish()?)?;
        let extension = extension(file);
        let kind = TYPES.iter().find(|(known, _)| *known == extension);
        let kind = kind.unwrap_or_else(|| panic!("{}: no content type for its name", file.display())).1;
        let tag = format!("\"{:016x}\"", hash(&bytes));
        writeln!(
            table,
            "PageFile {{ path: {:?}, kind: {kind:?}, tag: {tag:?}, len: {}, packed: include_bytes!({packed:?}), plain: OnceLock::new() }},",
            format!("/{name}"),
            bytes.len()
        )
        .expect("writing to a string succeeds");
    }
    table.push(']');
    fs::write(out.join("page.in"), table)
}

/// Adds the files beneath `dir`, with their names beneath `top` after `at`. What a browser does not
/// load is left out.
fn collect(dir: &Path, top: &Path, at: &str, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, top, at, files)?;
        } else if path.file_name().is_none_or(|name| name != "MANIFEST") && extension(&path) != "md" {
            let name = path.strip_prefix(top).expect("it is beneath").to_str().expect("names are UTF-8");
            files.push((format!("{at}{name}"), path));
        }
    }
    Ok(())
}

fn extension(file: &Path) -> &str {
    file.extension().and_then(|extension| extension.to_str()).unwrap_or_default()
}

/// Returns the FNV-1a hash: a tag only has to differ from that of the previous build.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
