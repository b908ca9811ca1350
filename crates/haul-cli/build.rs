//! What a start of the binary takes is decided when it is linked.
//!
//! The unwinder is put into it. A shared one, libgcc_s, is found, mapped and relocated at each
//! start and asks the processor for its kind, which takes a virtual machine's exit each time: an
//! eighth of what a call for a small file takes. And what every start runs lies side by side
//! (`start-order`), or it would map a window of the program for nearly each function: a tenth.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The unwinder as a static library. The licence of GCC's libraries lets any program have it.
const UNWINDER: &str = "libgcc_eh.a";

/// Paths of functions, the first to run first.
const ORDER: &str = "start-order";

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={ORDER}");
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    let target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if target("OS") != "linux" || target("ENV") != "gnu" {
        return Ok(());
    }
    let is_shared = !target("FEATURE").split(',').any(|feature| feature == "crt-static");
    if is_shared && linker_has(UNWINDER) {
        println!("cargo:rustc-link-lib=static:-bundle=gcc_eh");
    }
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if is_release && is_usual_linker() {
        let script = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("start.ld");
        fs::write(&script, linker_script(&fs::read_to_string(ORDER)?))?;
        println!("cargo:rustc-link-arg-bins=-T");
        println!("cargo:rustc-link-arg-bins={}", script.display());
    }
    Ok(())
}

/// Returns true if the compiler that links finds a library. For a compiler that cannot answer, the
/// default of Rust stays.
fn linker_has(library: &str) -> bool {
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let answer = Command::new(linker).arg(format!("-print-file-name={library}")).output();
    // The compiler prints the name of an unknown library unchanged.
    answer.is_ok_and(|answer| {
        let found = String::from_utf8_lossy(&answer.stdout);
        answer.status.success() && Path::new(found.trim()).is_absolute()
    })
}

/// Returns true if the user has chosen no linker. The default linkers, GNU's and LLVM's, accept
/// scripts; others refuse to link with one.
fn is_usual_linker() -> bool {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    env::var_os("RUSTC_LINKER").is_none()
        && !["fuse-ld", "linker"].iter().any(|chosen| flags.contains(chosen))
}

/// Puts the sections of the functions in front of all others; each function has its own.
fn linker_script(order: &str) -> String {
    let paths = order.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let sections: String = paths.map(|path| format!("*({})\n", sections_of(path))).collect();
    format!("SECTIONS {{ .text.start : {{\n{sections}}} }}\nINSERT BEFORE .text;\n")
}

/// A function's sections, as either of Rust's manglings or C has its name; both put an identifier's
/// length before it. What is held to run seldom is in a section of another prefix.
fn sections_of(path: &str) -> String {
    if !path.contains("::") {
        return format!(".text*.{path}");
    }
    let mangled = |part: &str| if part == "*" { "*".into() } else { format!("{}{part}", part.len()) };
    let name: String = path.split("::").map(mangled).collect();
    format!(".text*._ZN{name}17h* .text*._R*{name}*")
}
