//! Puts the unwinder into the binary. A shared one, libgcc_s, is found, mapped and relocated at each start and asks the
//! processor for its kind, which takes a virtual machine's exit each time: an eighth of what a call for a small file
//! takes.

use std::env;
use std::path::Path;
use std::process::Command;

/// The unwinder as a static library. The licence of GCC's libraries lets any program have it.
const UNWINDER: &str = "libgcc_eh.a";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    let target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let is_shared = !target("FEATURE").split(',').any(|feature| feature == "crt-static");
    if target("OS") == "linux" && target("ENV") == "gnu" && is_shared && linker_has(UNWINDER) {
        println!("cargo:rustc-link-lib=static:-bundle=gcc_eh");
    }
}

/// Whether the compiler that links finds a library. One that can't say so is left with what Rust asks for.
fn linker_has(library: &str) -> bool {
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let answer = Command::new(linker).arg(format!("-print-file-name={library}")).output();
    // What is not found comes back as it was asked for.
    answer.is_ok_and(|answer| {
        let found = String::from_utf8_lossy(&answer.stdout);
        answer.status.success() && Path::new(found.trim()).is_absolute()
    })
}
