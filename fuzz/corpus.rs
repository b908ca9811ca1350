//! `corpus FOLDER`: writes valid input of every target to `FOLDER/TARGET/`, as the initial corpus
//! of a fuzzer.

use haul_fuzz::seeds;
use std::fs;
use std::io;
use std::path::PathBuf;

fn main() -> io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| "corpus".into()));
    for (target, inputs) in seeds::all() {
        fs::create_dir_all(folder.join(target))?;
        for (number, input) in inputs.iter().enumerate() {
            fs::write(folder.join(target).join(format!("seed-{number}")), input)?;
        }
    }
    Ok(())
}
