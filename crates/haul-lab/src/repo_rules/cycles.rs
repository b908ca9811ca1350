//! Count: files of a crate that import each other.
//!
//! An edge leads from a file to each file of the same crate that its code names: by a path from
//! `crate`, `self` or `super`, by an import, or by the name of a module below it. Re-exports are
//! followed to the file that they name. A file that only re-exports a name does not depend on it.

use super::source::{CodePath, Token, is_word, paths_from, unfold};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Maximum number of re-exports that are followed.
const REEXPORTS_MAX: u32 = 6;

/// A module path; empty for the root of the crate.
type Module = Vec<String>;

/// Returns the cycles of a crate's files, the largest first, each as the sorted names of modules.
/// `files` are the paths below `src` with their tokens.
pub fn cycles<'t>(files: impl IntoIterator<Item = (&'t Path, &'t [Token])>) -> Vec<Vec<String>> {
    let mut crate_files: BTreeMap<Module, File> = BTreeMap::new();
    for (path, tokens) in files {
        crate_files.entry(module_of(path)).or_default().add(tokens);
    }
    let edges: BTreeMap<&Module, BTreeSet<Module>> =
        crate_files.iter().map(|(module, file)| (module, file.dependencies(module, &crate_files))).collect();
    let mut found = Components::of(&edges);
    let shown = |module: &Module| if module.is_empty() { "lib".to_owned() } else { module.join("/") };
    let mut cycles: Vec<Vec<String>> = found
        .iter_mut()
        .map(|cycle| {
            cycle.sort();
            cycle.iter().map(|module| shown(module)).collect()
        })
        .collect();
    cycles.sort_by_key(|cycle| (std::cmp::Reverse(cycle.len()), cycle.clone()));
    cycles
}

/// Returns the module of a file below `src`.
fn module_of(path: &Path) -> Module {
    let mut module: Module =
        path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

/// Imports and other tokens of a file.
#[derive(Default)]
struct File {
    imports: Vec<CodePath>,
    reexports: Vec<CodePath>,
    body: Vec<Token>,
}

impl File {
    fn add(&mut self, tokens: &[Token]) {
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            // `use<...>` is a bound.
            if token.text != "use" || tokens.get(at + 1).is_some_and(|next| next.text == "<") {
                self.body.push(token.clone());
                at += 1;
                continue;
            }
            let is_public = at > 0 && matches!(tokens[at - 1].text.as_str(), "pub" | ")");
            let found = if is_public { &mut self.reexports } else { &mut self.imports };
            at = unfold(tokens, at + 1, &[], found);
            while tokens.get(at).is_some_and(|token| token.text != ";") {
                at += 1;
            }
        }
    }

    /// Returns the modules that the file of `module` names.
    fn dependencies(&self, module: &Module, files: &BTreeMap<Module, File>) -> BTreeSet<Module> {
        let mut paths = self.imports.clone();
        paths.extend(paths_from(&self.body, &["crate", "self", "super"]));
        let words: BTreeSet<&str> = self.body.iter().map(|token| token.text.as_str()).collect();
        paths.extend(self.reexports.iter().filter(|path| words.contains(path.name())).cloned());
        let mut found: BTreeSet<Module> =
            paths.iter().filter_map(|path| resolve(module, &path.segments, files)).collect();
        let is_path = |at: &&[Token]| at[1].text == "::" && is_word(&at[0].text) && is_word(&at[2].text);
        for at in self.body.windows(3).filter(is_path) {
            let child = [module.as_slice(), &[at[0].text.clone()]].concat();
            if files.contains_key(&child) {
                found.insert(child);
            }
        }
        found.remove(module);
        found
    }
}

impl CodePath {
    /// Returns the name under which an import is known.
    fn name(&self) -> &str {
        self.alias.as_deref().or(self.segments.last().map(String::as_str)).unwrap_or_default()
    }
}

/// Returns the module of the file that a path in `module` leads to; `None` for other crates.
fn resolve(module: &Module, path: &[String], files: &BTreeMap<Module, File>) -> Option<Module> {
    let mut rest = path;
    let mut base = match rest.first()?.as_str() {
        "crate" => Module::new(),
        "self" | "super" => module.clone(),
        child => {
            let child = [module.as_slice(), &[child.to_owned()]].concat();
            return files.contains_key(&child).then(|| target(module.clone(), path, files, 0));
        }
    };
    while let Some(first) = rest.first().filter(|first| matches!(first.as_str(), "crate" | "self" | "super"))
    {
        if first == "super" {
            base.pop();
        }
        rest = &rest[1..];
    }
    let found = target(base, rest, files, 0);
    files.contains_key(&found).then_some(found)
}

/// Follows a path from a module through its submodules and re-exports.
fn target(mut module: Module, path: &[String], files: &BTreeMap<Module, File>, followed: u32) -> Module {
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        module.push(first.clone());
        if !files.contains_key(&module) {
            module.pop();
            break;
        }
        rest = after;
    }
    let reexport = rest.first().and_then(|name| {
        let reexports = &files.get(&module)?.reexports;
        reexports.iter().find(|path| path.name() == name)
    });
    match reexport {
        Some(reexport) if followed < REEXPORTS_MAX => {
            let from = match reexport.segments.first().map(String::as_str) {
                Some("crate") => (Module::new(), &reexport.segments[1..]),
                Some("self") => (module.clone(), &reexport.segments[1..]),
                Some("super") => {
                    let levels = reexport.segments.iter().take_while(|segment| *segment == "super").count();
                    let above = module.len().saturating_sub(levels);
                    (module[..above].to_vec(), &reexport.segments[levels..])
                }
                _ => (module.clone(), &reexport.segments[..]),
            };
            // A name of another crate is defined nowhere here.
            let leads_on = from.1.len() < reexport.segments.len()
                || files.contains_key(&[module.as_slice(), &reexport.segments[..1]].concat());
            if leads_on { target(from.0, from.1, files, followed + 1) } else { module }
        }
        _ => module,
    }
}

/// Search for strongly connected components (Tarjan 1972).
struct Components<'e> {
    edges: &'e BTreeMap<&'e Module, BTreeSet<Module>>,
    /// Number of each visited module, in the order of the visits.
    numbers: BTreeMap<&'e Module, usize>,
    stack: Vec<&'e Module>,
    found: Vec<Vec<&'e Module>>,
}

impl<'e> Components<'e> {
    /// Returns the components with two modules or more.
    fn of(edges: &'e BTreeMap<&'e Module, BTreeSet<Module>>) -> Vec<Vec<&'e Module>> {
        let mut search = Components { edges, numbers: BTreeMap::new(), stack: Vec::new(), found: Vec::new() };
        for module in edges.keys() {
            if !search.numbers.contains_key(module) {
                search.visit(module);
            }
        }
        search.found
    }

    /// Visits a module; returns the smallest number that it reaches.
    fn visit(&mut self, module: &'e Module) -> usize {
        let number = self.numbers.len();
        let mut low = number;
        self.numbers.insert(module, number);
        self.stack.push(module);
        for next in &self.edges[module] {
            low = match self.numbers.get(next) {
                None => low.min(self.visit(next)),
                Some(number) if self.stack.contains(&next) => low.min(*number),
                Some(_) => low,
            };
        }
        if low == number {
            let from = self.stack.iter().position(|open| *open == module).unwrap_or(0);
            let component = self.stack.split_off(from);
            if component.len() > 1 {
                self.found.push(component);
            }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo_rules::source::tokens_outside_tests;

    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let files: Vec<_> =
            files.iter().map(|(path, text)| (Path::new(*path), tokens_outside_tests(text))).collect();
        cycles(files.iter().map(|(path, tokens)| (*path, tokens.as_slice())))
    }

    #[test]
    fn files_that_import_each_other_are_a_cycle() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "use super::c::{self, C as D}; pub struct B;"),
            ("c.rs", "fn f() { crate::a::g::<u8>(); }"),
        ];
        assert_eq!(found(&files), [["a", "b", "c"]]);
        let broken = [files[0], files[1], files[2], ("c.rs", "fn f() { /* crate::a::g() */ }")];
        assert_eq!(found(&broken), Vec::<Vec<String>>::new());
    }

    #[test]
    fn reexports_are_followed_and_are_no_dependency_themselves() {
        let files = [
            ("lib.rs", "pub mod a;"),
            ("a/mod.rs", "mod x; mod y; pub use x::X; pub(crate) use self::y::Y as Why;"),
            ("a/x.rs", "use super::Why; pub struct X;"),
            ("a/y.rs", "use super::X; pub struct Y;"),
        ];
        assert_eq!(found(&files), [["a/x", "a/y"]]);
        // The code of `a` uses one of the names that it re-exports.
        let user =
            [files[0], ("a/mod.rs", "mod x; pub use x::X; fn f(x: X) {}"), ("a/x.rs", "use super::f;")];
        assert_eq!(found(&user), [["a", "a/x"]]);
        let other = [files[0], ("a/mod.rs", "mod x; pub use std::x::X;"), ("a/x.rs", "use super::X;")];
        assert_eq!(found(&other), Vec::<Vec<String>>::new());
    }

    #[test]
    fn modules_below_a_file_count_by_their_name() {
        let files = [
            ("a/mod.rs", "mod x; fn f() -> impl Sized + use<> { x::g() }"),
            ("a/x.rs", "fn g() { super::f() }"),
        ];
        assert_eq!(found(&files), [["a", "a/x"]]);
        let test = [("a/mod.rs", "mod x; #[cfg(test)] mod tests { fn f() { super::x::g() } }"), files[1]];
        assert_eq!(found(&test), Vec::<Vec<String>>::new());
    }

    #[test]
    fn the_largest_cycle_is_first() {
        let files = [
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::a::A;"),
            ("c.rs", "use crate::{d::D, a::A};"),
            ("d.rs", "use crate::e::E;"),
            ("e.rs", "use crate::c::C;"),
        ];
        assert_eq!(found(&files), [vec!["c", "d", "e"], vec!["a", "b"]]);
    }
}
