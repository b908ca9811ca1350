//! Rule: every function in the link order (`haul-cli/start-order`) exists.

use std::path::{Path, PathBuf};

/// Returns the lines of an order that name a function of this workspace which no file of its crate
/// defines.
#[must_use]
pub fn missing_functions(order: &str, texts: &[(PathBuf, String)]) -> Vec<String> {
    let is_gone =
        |line: &&str| named(line).is_some_and(|(folder, function)| !exists(&folder, function, texts));
    order.lines().map(str::trim).filter(is_gone).map(str::to_owned).collect()
}

/// Returns the folder of a path's crate and the function; `None` for a path outside this workspace.
fn named(path: &str) -> Option<(PathBuf, &str)> {
    let (name, rest) =
        path.split_once("::").filter(|(name, _)| *name == "haul" || name.starts_with("haul_"))?;
    let folder = if name == "haul" { "haul-cli".to_owned() } else { name.replace('_', "-") };
    let function =
        rest.rsplit("::").find(|part| *part != "*").filter(|part| part.starts_with(char::is_lowercase))?;
    Some((Path::new("crates").join(folder).join("src"), function))
}

fn exists(folder: &Path, function: &str, texts: &[(PathBuf, String)]) -> bool {
    let begins = [format!("fn {function}("), format!("fn {function}<")];
    let source = texts.iter().filter(|(path, _)| path.starts_with(folder));
    source.into_iter().any(|(_, text)| begins.iter().any(|begin| text.contains(begin)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_functions_are_reported() {
        let texts = [
            (PathBuf::from("crates/haul-cli/src/sum/mod.rs"), "fn run(\nfn print<'a>(".to_owned()),
            (PathBuf::from("crates/haul-sys/src/open.rs"), "fn close(".to_owned()),
        ];
        let order = "# haul::words\nhaul::sum::run\nhaul::sum::print::*\nhaul::sum::Typed::*\nhaul::sum::close\nhaul_sys::open::close\n\
                     haul_sys::open::run\nstd::env::args\nmain\n";
        assert_eq!(missing_functions(order, &texts), ["haul::sum::close", "haul_sys::open::run"]);
    }
}
