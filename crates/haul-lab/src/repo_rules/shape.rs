//! Rule: the counts of what makes the code hard to change are at their ceilings.
//!
//! Each [`Bar`] counts something of each crate, in code outside comments, strings and tests. The
//! table of ceilings has a line for each count that is not zero. A count above its ceiling breaks
//! the rule, and so does one below it: the change that lowers a count lowers its ceiling too.

use super::cycles::cycles;
use super::purity;
use super::source::{Token, is_word, tokens_outside_tests};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Table of ceilings, below the root of the repository.
pub const TABLE: &str = "crates/haul-lab/shape.tsv";

/// Maximum number of parameters of a function, with `self`. Each member of a tuple counts.
const PARAMETERS_MAX: usize = 7;

/// Maximum number of files with inherent implementations of one type.
const IMPL_FILES_MAX: usize = 2;

/// Number of definitions from which the name of a type counts as repeated.
const REPEATED_MIN: usize = 3;

/// Crates whose shape is not counted.
const UNCOUNTED: [&str; 1] = ["haul-lab"];

/// Crates that do the work of jobs.
const ENGINE: &[&str] = &["haul-engine", "haul-coreutils"];

/// In place of a crate: the count covers all crates.
const ALL: &str = "all";

/// A count.
#[derive(Clone, Copy, Debug)]
pub struct Bar {
    /// Name in the table.
    pub name: &'static str,
    /// Counted things.
    pub counts: &'static str,
    /// Crates that are counted; empty for all.
    crates: &'static [&'static str],
    find: Find,
}

/// Search of a [`Bar`].
#[derive(Clone, Copy, Debug)]
enum Find {
    /// Lines of a file.
    Places(fn(&Code<'_>) -> Vec<usize>),
    /// Files with at least one such line.
    Files(fn(&Code<'_>) -> Vec<usize>),
    /// Findings of a crate.
    Crate(fn(&[&Code<'_>]) -> Vec<String>),
    /// Findings of all crates together.
    All(fn(&[&Code<'_>]) -> Vec<String>),
}

/// All counts, in the order of the table.
pub const BARS: [Bar; 17] = [
    bar("cycles", "groups of files that import each other", &[], Find::Crate(all_cycles)),
    bar("cycle-files", "files of the largest such group", &[], Find::Crate(largest_cycle)),
    bar("names-sys", "files that name `haul_sys`", ENGINE, Find::Files(|code| code.words(&["haul_sys"]))),
    bar(
        "reads-content",
        "files that read file content",
        &["haul-engine", "haul-coreutils", "haul-cli"],
        Find::Files(content_reads),
    ),
    bar("range-loops", "loops over a range of bytes", ENGINE, Find::Places(range_loops)),
    bar("block-sizes", "constants of block sizes", ENGINE, Find::Places(block_sizes)),
    bar("syncs", "files that sync", ENGINE, Find::Files(|code| code.words(&SYNCS))),
    bar(
        "fs-rename",
        "files that call `fs::rename`",
        &[],
        Find::Files(|code| code.sequences(&["fs", "::", "rename", "("])),
    ),
    bar(
        "into-inner",
        "uses of `PoisonError::into_inner`",
        &[],
        Find::Places(|code| code.sequences(&["PoisonError", "::", "into_inner"])),
    ),
    bar("job-parameters", "functions that take `&Job`", &[], Find::Places(job_parameters)),
    bar("tuple-parameters", "parameters that are tuples", &[], Find::Places(tuple_parameters)),
    bar(
        "long-parameters",
        "functions with more than seven parameters; members of tuples count",
        &[],
        Find::Places(long_parameters),
    ),
    bar("split-impls", "types whose own `impl` is in more than two files", &[], Find::Crate(split_impls)),
    bar("repeated-types", "names that three types or more have", &[], Find::All(repeated_types)),
    bar("observers", "traits of observers", &[], Find::Places(observers)),
    bar("writes-json", "files that write JSON", &["haul-cli"], Find::Files(json_writers)),
    bar("locks", "locks and atomics", ENGINE, Find::Places(locks)),
];

/// Words that sync.
const SYNCS: [&str; 7] =
    ["sync_data", "syncfs", "sync_fs", "sync_range", "sync_all", "sync_names", "sync_filesystem"];

const fn bar(name: &'static str, counts: &'static str, crates: &'static [&'static str], find: Find) -> Bar {
    Bar { name, counts, crates, find }
}

/// Code of a source file.
#[derive(Clone, Debug)]
pub struct Source {
    /// Name of the crate.
    pub package: String,
    /// Path below `src` of the crate.
    pub path: PathBuf,
    /// Tokens outside tests.
    pub tokens: Vec<Token>,
}

/// Reads the code of all crates in `root`, in the order of their paths.
///
/// # Errors
/// Returns an error if a file or directory cannot be read.
pub fn sources(root: &Path) -> io::Result<Vec<Source>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join("crates"))? {
        let folder = entry?.path();
        let package = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for (path, text) in purity::sources(&folder)? {
            let path = path.strip_prefix(folder.join("src")).map(Path::to_owned).unwrap_or(path);
            found.push(Source { package: package.clone(), path, tokens: tokens_outside_tests(&text) });
        }
    }
    found.sort_by(|one, other| (&one.package, &one.path).cmp(&(&other.package, &other.path)));
    Ok(found)
}

/// Findings of each bar and crate, by the index of the bar; a crate without findings is missing.
pub type Counts = BTreeMap<(usize, String), Vec<String>>;

/// Counts all bars.
pub fn counts(sources: &[Source]) -> Counts {
    let counted = sources.iter().filter(|source| !UNCOUNTED.contains(&source.package.as_str()));
    let files: Vec<Code<'_>> = counted.map(Code::of).collect();
    let mut crates: BTreeMap<&str, Vec<&Code<'_>>> = BTreeMap::new();
    for file in &files {
        crates.entry(&file.source.package).or_default().push(file);
    }
    let mut counts = Counts::new();
    for (index, bar) in BARS.iter().enumerate() {
        let mut add = |package: &str, found: Vec<String>| {
            if !found.is_empty() {
                counts.insert((index, package.to_owned()), found);
            }
        };
        if let Find::All(find) = bar.find {
            add(ALL, find(&files.iter().collect::<Vec<_>>()));
            continue;
        }
        for (package, files) in &crates {
            if bar.crates.is_empty() || bar.crates.contains(package) {
                add(package, bar.find.of_crate(files));
            }
        }
    }
    counts
}

impl Find {
    fn of_crate(self, files: &[&Code<'_>]) -> Vec<String> {
        let place = |file: &Code<'_>, line: usize| format!("{}:{line}", file.source.path.display());
        match self {
            Find::Crate(find) | Find::All(find) => find(files),
            Find::Places(find) => {
                let places = |file: &&Code<'_>| -> Vec<String> {
                    find(file).into_iter().map(|line| place(file, line)).collect()
                };
                files.iter().flat_map(places).collect()
            }
            Find::Files(find) => {
                files.iter().filter_map(|file| Some(place(file, *find(file).first()?))).collect()
            }
        }
    }
}

/// Returns the number of lines with code of each crate, haul-lab included.
pub fn lines(sources: &[Source]) -> BTreeMap<&str, usize> {
    let mut lines = BTreeMap::new();
    for source in sources {
        let distinct: BTreeSet<usize> = source.tokens.iter().map(|token| token.line).collect();
        *lines.entry(source.package.as_str()).or_default() += distinct.len();
    }
    lines
}

/// Ceiling of each bar and crate, by the index of the bar; a missing one is zero.
type Ceilings = BTreeMap<(usize, String), usize>;

/// Reads the table of ceilings: lines of bar, crate and ceiling, with tabs between them.
fn ceilings(table: &str) -> Result<Ceilings, String> {
    let mut found = Ceilings::new();
    let lines = table.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    for (index, line) in lines {
        let parsed = || {
            let [name, package, ceiling] = line.split('\t').collect::<Vec<_>>()[..] else { return None };
            let bar = BARS.iter().position(|bar| bar.name == name)?;
            Some(((bar, package.to_owned()), ceiling.parse::<usize>().ok().filter(|ceiling| *ceiling > 0)?))
        };
        let (key, ceiling) =
            parsed().ok_or_else(|| format!("line {} is not BAR, CRATE, CEILING", index + 1))?;
        if found.insert(key, ceiling).is_some() {
            return Err(format!("line {} repeats a bar of a crate", index + 1));
        }
    }
    Ok(found)
}

/// Compares the counts with the table. Returns a message for each count that is not at its ceiling.
pub fn breaches(table: &str, counts: &Counts) -> Vec<String> {
    let ceilings = match ceilings(table) {
        Ok(ceilings) => ceilings,
        Err(flaw) => return vec![flaw],
    };
    let keys: BTreeSet<&(usize, String)> = ceilings.keys().chain(counts.keys()).collect();
    let mut found = Vec::new();
    for key in keys {
        let ceiling = ceilings.get(key).copied().unwrap_or(0);
        let places = counts.get(key).map_or(&[][..], Vec::as_slice);
        let (bar, package, count) = (&BARS[key.0], &key.1, places.len());
        let said = format!("{} of {package}: {count} {}, the ceiling is {ceiling}", bar.name, bar.counts);
        if count > ceiling {
            found.push(format!("{said}; they are in: {}", by_file(places)));
        } else if count < ceiling {
            found.push(format!("{said}; lower it by `haul-lab shape --write`"));
        }
    }
    found
}

/// Joins places, with the lines of one file behind its name.
fn by_file(places: &[String]) -> String {
    let mut files: Vec<(&str, Vec<&str>)> = Vec::new();
    for place in places {
        let (file, line) = place.split_once(':').unwrap_or((place, ""));
        match files.last_mut() {
            Some((last, lines)) if *last == file => lines.push(line),
            _ => files.push((file, vec![line])),
        }
    }
    let shown = |(file, lines): &(&str, Vec<&str>)| match lines[..] {
        [""] => (*file).to_owned(),
        _ => format!("{file}:{}", lines.join(",")),
    };
    files.iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// Returns the table with the counts as ceilings.
///
/// # Errors
/// Returns the ceilings that would rise, unless `raises` is true.
pub fn rewritten(table: &str, counts: &Counts, raises: bool) -> Result<String, Vec<String>> {
    let before = if raises { Ceilings::new() } else { ceilings(table).map_err(|flaw| vec![flaw])? };
    let mut text =
        "# Ceilings of the counts that `haul-lab shape` describes: bar, crate, ceiling.\n".to_owned();
    let mut risen = Vec::new();
    for ((index, package), places) in counts {
        let (name, count) = (BARS[*index].name, places.len());
        let ceiling = before.get(&(*index, package.clone())).copied().unwrap_or(0);
        if !raises && count > ceiling {
            risen.push(format!("{name} of {package}: from {ceiling} to {count}: {}", by_file(places)));
        }
        text += &format!("{name}\t{package}\t{count}\n");
    }
    if risen.is_empty() { Ok(text) } else { Err(risen) }
}

/// Code of a file, with the places of each token.
struct Code<'s> {
    source: &'s Source,
    tokens: &'s [Token],
    places: HashMap<&'s str, Vec<usize>>,
}

impl<'s> Code<'s> {
    fn of(source: &'s Source) -> Code<'s> {
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, token) in source.tokens.iter().enumerate() {
            places.entry(&token.text).or_default().push(at);
        }
        Code { source, tokens: &source.tokens, places }
    }

    /// Returns the places of a token.
    fn places(&self, text: &str) -> &[usize] {
        self.places.get(text).map_or(&[], Vec::as_slice)
    }

    /// Returns the text of a token; an empty one after the last.
    fn text(&self, at: usize) -> &'s str {
        self.tokens.get(at).map_or("", |token| token.text.as_str())
    }

    /// Returns the lines of these words.
    fn words(&self, words: &[&str]) -> Vec<usize> {
        let mut found: Vec<usize> = words.iter().flat_map(|word| self.places(word)).copied().collect();
        found.sort_unstable();
        found.into_iter().map(|at| self.tokens[at].line).collect()
    }

    /// Returns the lines on which these tokens follow each other.
    fn sequences(&self, wanted: &[&str]) -> Vec<usize> {
        let Some((first, rest)) = wanted.split_first() else { return Vec::new() };
        let follows =
            |at: &usize| rest.iter().enumerate().all(|(next, text)| self.text(at + 1 + next) == *text);
        self.places(first).iter().filter(|at| follows(at)).map(|at| self.tokens[*at].line).collect()
    }
}

fn cycles_of(files: &[&Code<'_>]) -> Vec<Vec<String>> {
    cycles(files.iter().map(|file| (file.source.path.as_path(), file.tokens)))
}

fn all_cycles(files: &[&Code<'_>]) -> Vec<String> {
    cycles_of(files).into_iter().map(|cycle| format!("({})", cycle.join(" "))).collect()
}

fn largest_cycle(files: &[&Code<'_>]) -> Vec<String> {
    cycles_of(files).into_iter().next().unwrap_or_default()
}

fn content_reads(code: &Code<'_>) -> Vec<usize> {
    let mut found = code.sequences(&["opened", ".", "read_at"]);
    for module in ["transfer", "direct", "wait"] {
        for function in ["read_at", "read_stream"] {
            found.extend(code.sequences(&[module, "::", function]));
        }
    }
    found.sort_unstable();
    found
}

fn range_loops(code: &Code<'_>) -> Vec<usize> {
    let mut found = code.sequences(&["while", "rest", ".", "start", "<"]);
    for word in ["at", "bytes", "from", "done"] {
        found.extend(code.sequences(&["while", word, "<"]));
    }
    found.sort_unstable();
    found
}

fn block_sizes(code: &Code<'_>) -> Vec<usize> {
    let names = ["BLOCK_BYTES", "DIRECT_BLOCK_BYTES", "LANE_BLOCK_BYTES"];
    names.iter().flat_map(|name| code.sequences(&["const", name])).collect()
}

fn observers(code: &Code<'_>) -> Vec<usize> {
    let is_observer = |at: &&usize| {
        let name = code.text(**at + 1);
        **at > 0 && code.text(**at - 1) == "pub" && (name.ends_with("Observer") || name.ends_with("Report"))
    };
    code.places("trait").iter().filter(is_observer).map(|at| code.tokens[*at].line).collect()
}

fn json_writers(code: &Code<'_>) -> Vec<usize> {
    let mut found = code.words(&["serde_json", "Serialize"]);
    found.extend(code.sequences(&["json", "::"]));
    found
}

/// Returns the lines of fields, parameters and statics that are a lock or an atomic.
fn locks(code: &Code<'_>) -> Vec<usize> {
    let is_lock = |text: &str| {
        matches!(text, "Mutex" | "RwLock" | "Condvar" | "OnceLock") || text.starts_with("Atomic")
    };
    let is_typed = |at: &&usize| {
        let shared = if code.text(**at + 1) == "Arc" && code.text(**at + 2) == "<" { 2 } else { 0 };
        is_lock(code.text(**at + 1 + shared))
    };
    code.places(":").iter().filter(is_typed).map(|at| code.tokens[*at].line).collect()
}

/// Returns the lines of the functions with a parameter `job: &Job`.
fn job_parameters(code: &Code<'_>) -> Vec<usize> {
    let is_job = |parameter: &&[Token]| {
        let text: Vec<&str> = parameter.iter().take(4).map(|token| token.text.as_str()).collect();
        text == ["job", ":", "&", "Job"]
    };
    let takes_job = |function: &Function<'_>| function.parameters.iter().any(is_job);
    functions(code).iter().filter(|function| takes_job(function)).map(|function| function.line).collect()
}

/// Returns the lines of the parameters that are tuples or references of tuples.
fn tuple_parameters(code: &Code<'_>) -> Vec<usize> {
    let parameters = functions(code).into_iter().flat_map(|function| function.parameters);
    parameters
        .filter(|parameter| members(parameter) > 1)
        .filter_map(|parameter| Some(parameter.first()?.line))
        .collect()
}

fn long_parameters(code: &Code<'_>) -> Vec<usize> {
    let is_long = |function: &Function<'_>| {
        let count: usize = function.parameters.iter().map(|parameter| members(parameter)).sum();
        count > PARAMETERS_MAX
    };
    functions(code).iter().filter(|function| is_long(function)).map(|function| function.line).collect()
}

/// A function with its parameters.
struct Function<'t> {
    line: usize,
    parameters: Vec<&'t [Token]>,
}

/// Returns the functions and methods, also those of traits.
fn functions<'s>(code: &Code<'s>) -> Vec<Function<'s>> {
    let mut found = Vec::new();
    for &at in code.places("fn") {
        let Some(rest) = code.tokens.get(at + 2..).filter(|_| is_word(code.text(at + 1))) else { continue };
        let list = match rest.first() {
            Some(open) if open.text == "<" => &rest[1 + items(&rest[1..]).1..],
            _ => rest,
        };
        if list.first().is_some_and(|token| token.text == "(") {
            let line = code.tokens[at].line;
            found.push(Function { line, parameters: items(&list[1..]).0 });
        }
    }
    found
}

/// Splits the tokens after an opening bracket at the commas; returns the items and the index after
/// the closing bracket.
fn items(tokens: &[Token]) -> (Vec<&[Token]>, usize) {
    let (mut depth, mut start, mut items) = (0, 0, Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        let is_arrow = token.text == ">" && at > 0 && tokens[at - 1].text == "-";
        match token.text.as_str() {
            "(" | "[" | "{" | "<" => depth += 1,
            ">" if is_arrow => {}
            ")" | "]" | "}" | ">" if depth > 0 => depth -= 1,
            "," if depth > 0 => {}
            end @ ("," | ")" | "]" | "}" | ">") => {
                if start < at {
                    items.push(&tokens[start..at]);
                }
                if end != "," {
                    return (items, at + 1);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    (items, tokens.len())
}

/// Returns the number of values of a parameter, given with its pattern.
fn members(parameter: &[Token]) -> usize {
    let mut depth = 0_i32;
    let colon = parameter.iter().position(|token| {
        depth += i32::from(matches!(token.text.as_str(), "(" | "[" | "{"));
        depth -= i32::from(matches!(token.text.as_str(), ")" | "]" | "}"));
        depth == 0 && token.text == ":"
    });
    colon.map_or(1, |colon| values(&parameter[colon + 1..]))
}

/// Returns the number of values of a type: those of a tuple, or one.
fn values(mut tokens: &[Token]) -> usize {
    loop {
        tokens = match tokens {
            [mark, _, rest @ ..] if mark.text == "'" => rest,
            [word, rest @ ..] if matches!(word.text.as_str(), "&" | "mut") => rest,
            _ => break,
        };
    }
    match tokens {
        [open, inner @ ..] if open.text == "(" => {
            let (members, end) = items(inner);
            // Brackets around one type are no tuple.
            if end < inner.len() || members.is_empty() { 1 } else { members.into_iter().map(values).sum() }
        }
        _ => 1,
    }
}

/// Returns the types of a crate with inherent implementations in more than [`IMPL_FILES_MAX`]
/// files.
fn split_impls(files: &[&Code<'_>]) -> Vec<String> {
    let mut definitions: BTreeMap<&str, Vec<&Path>> = BTreeMap::new();
    let mut implementations: BTreeMap<&str, Vec<&Path>> = BTreeMap::new();
    for file in files {
        for name in file.defined_types() {
            definitions.entry(name).or_default().push(&file.source.path);
        }
        for name in file.implemented_types() {
            implementations.entry(name).or_default().push(&file.source.path);
        }
    }
    let mut owners: BTreeMap<(&str, &Path), Vec<&Path>> = BTreeMap::new();
    for (name, paths) in implementations {
        for path in paths {
            let defined = definitions.get(name).map_or(&[][..], Vec::as_slice);
            let shared = |other: &Path| other.iter().zip(path.iter()).take_while(|(a, b)| a == b).count();
            // Several types may have this name. A file implements its own one, or the nearest.
            let nearest = defined.iter().copied().max_by_key(|other| (*other == path, shared(other)));
            owners.entry((name, nearest.unwrap_or(path))).or_default().push(path);
        }
    }
    let is_split = |files: &Vec<&Path>| files.len() > IMPL_FILES_MAX;
    let shown = |((name, owner), files): ((&str, &Path), Vec<&Path>)| {
        let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        format!("{name} of {} ({})", owner.display(), files.join(" "))
    };
    owners.into_iter().filter(|(_, files)| is_split(files)).map(shown).collect()
}

impl<'s> Code<'s> {
    /// Returns the names of types with an own `impl` block, each once.
    fn implemented_types(&self) -> BTreeSet<&'s str> {
        let begins_item =
            |at: usize| at == 0 || matches!(self.text(at - 1), "}" | ";" | "]" | "{" | "unsafe");
        let skipped =
            |at: usize| if self.text(at) == "<" { at + 1 + items(&self.tokens[at + 1..]).1 } else { at };
        let implemented = |at: usize| {
            let name = skipped(at + 1);
            matches!(self.text(skipped(name + 1)), "{" | "where").then(|| self.text(name))
        };
        let items = self.places("impl").iter().copied().filter(|at| begins_item(*at));
        items.filter_map(implemented).collect()
    }

    /// Returns the names of the structs, enums and traits that the file defines.
    fn defined_types(&self) -> impl Iterator<Item = &'s str> {
        let places = ["struct", "enum", "trait"].into_iter().flat_map(|word| self.places(word));
        let names = places.map(|at| self.text(at + 1));
        names.filter(|name| name.starts_with(|first: char| first.is_ascii_uppercase()))
    }
}

fn repeated_types(files: &[&Code<'_>]) -> Vec<String> {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for name in files.iter().flat_map(|file| file.defined_types()) {
        *names.entry(name).or_default() += 1;
    }
    let repeated = names.into_iter().filter(|(_, count)| *count >= REPEATED_MIN);
    repeated.map(|(name, count)| format!("{name} ({count})")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(package: &str, path: &str, text: &str) -> Source {
        Source { package: package.to_owned(), path: path.into(), tokens: tokens_outside_tests(text) }
    }

    /// Returns the findings of a bar in one file of haul-engine.
    fn found(name: &str, text: &str) -> Vec<String> {
        let index = BARS.iter().position(|bar| bar.name == name).expect("a bar");
        let counts = counts(&[source("haul-engine", "f.rs", text)]);
        counts.get(&(index, "haul-engine".to_owned())).cloned().unwrap_or_default()
    }

    #[test]
    fn names_of_bars_differ() {
        let names: BTreeSet<&str> = BARS.iter().map(|bar| bar.name).collect();
        assert_eq!(names.len(), BARS.len());
    }

    #[test]
    fn each_text_bar_counts_code_and_no_comments_strings_or_tests() {
        for (name, code, count) in [
            ("names-sys", "use haul_sys::a; use haul_sys::b;", 1),
            ("reads-content", "fn f() { direct::read_at(x); opened.read_at(y) }", 1),
            ("range-loops", "fn f() { while at < n {} while rest.start < n {} while let x = y {} }", 2),
            ("block-sizes", "const BLOCK_BYTES: u64 = 1; const DIRECT_BLOCK_BYTES: u64 = 1;", 2),
            ("syncs", "fn f() { file.sync_data(); cache::sync_all(f) }", 1),
            ("fs-rename", "fn f() { std::fs::rename(a, b); fs::rename(a, b) }", 1),
            ("into-inner", "fn f() { x.unwrap_or_else(PoisonError::into_inner) }", 1),
            ("job-parameters", "fn f(job: &Job<'_>) {} fn g(job: &Job, x: u8) {} fn h(job: Job) {}", 2),
            ("observers", "pub trait SumObserver {} pub trait Report: Sync {} trait Observer {}", 2),
            ("locks", "struct S { a: Mutex<u8>, b: Arc<AtomicU64>, c: Vec<Mutex<u8>> }", 2),
        ] {
            assert_eq!(found(name, code).len(), count, "{name}");
            let hidden =
                format!("// {code}\nconst S: &str = r#\"{code}\"#; #[cfg(test)] mod tests {{ {code} }}");
            assert_eq!(found(name, &hidden), Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn tuple_parameters_count_each_member() {
        let code = "fn f((a, b): (u8, u8), c: &'a mut (u8, (u8, u8))) {}\n\
                    fn g<F: Fn((u8, u8)) -> u8, const N: usize>(f: F, x: (u8), y: (), z: [(u8, u8); 2]) {}\n\
                    fn h(&self, pair: (Vec<u8>, &dyn Fn(u8, u8) -> u8)) -> (u8, u8) { let x: (u8, u8); }";
        assert_eq!(found("tuple-parameters", code), ["f.rs:1", "f.rs:1", "f.rs:3"]);
        let seven = "trait T { fn f(&self, a: (u8, u8, u8), b: u8, c: (u8, u8)); }";
        assert_eq!(found("long-parameters", seven), Vec::<String>::new());
        let eight = "\ntrait T { fn f(&self, a: (u8, u8, u8), b: u8, c: (u8, (u8, u8)),); }";
        assert_eq!(found("long-parameters", eight), ["f.rs:2"]);
    }

    #[test]
    fn split_impls_count_files_of_one_type() {
        let one = "pub struct A<T>(T); impl<T: Fn(u8) -> u8> A<T> where T: X {} impl Drop for A<u8> {}";
        let other = "impl A<u8> { fn f() -> impl Sized {} }";
        let own = "struct A; impl A {}";
        let files = |texts: &[(&str, &str)]| -> Vec<Source> {
            texts.iter().map(|(path, text)| source("haul-engine", path, text)).collect()
        };
        let split = |files: &[Source]| {
            let files: Vec<Code<'_>> = files.iter().map(Code::of).collect();
            split_impls(&files.iter().collect::<Vec<_>>())
        };
        let mut all = files(&[("a/x.rs", one), ("a/y.rs", other), ("b.rs", own)]);
        assert_eq!(split(&all), Vec::<String>::new());
        all.extend(files(&[("a/z.rs", other)]));
        assert_eq!(split(&all), ["A of a/x.rs (a/x.rs a/y.rs a/z.rs)"]);
    }

    #[test]
    fn repeated_types_are_counted_over_all_crates() {
        let job = "struct Job; enum Other {}";
        let sources = [
            source("haul-a", "f.rs", job),
            source("haul-b", "f.rs", job),
            source("haul-c", "f.rs", "trait Job {}"),
        ];
        let index = BARS.iter().position(|bar| bar.name == "repeated-types").expect("a bar");
        assert_eq!(counts(&sources).get(&(index, ALL.to_owned())), Some(&vec!["Job (3)".to_owned()]));
    }

    #[test]
    fn developers_crate_is_not_counted_and_lines_are_those_with_code() {
        let text = "fn f() {\n    // no code\n\n    x.lock().unwrap_or_else(PoisonError::into_inner);\n}\n";
        let sources = [source("haul-lab", "f.rs", text)];
        assert!(counts(&sources).is_empty());
        assert_eq!(lines(&sources), BTreeMap::from([("haul-lab", 3)]));
    }

    /// Counts of a crate with this number of uses of `PoisonError::into_inner`.
    fn uses(count: usize) -> Counts {
        let text = "fn f() { PoisonError::into_inner }\n".repeat(count);
        counts(&[source("haul-new", "a.rs", &text)])
    }

    #[test]
    fn count_above_or_below_its_ceiling_is_a_breach() {
        let table = "# comment\ninto-inner\thaul-new\t2\n";
        assert_eq!(breaches(table, &uses(2)), Vec::<String>::new());
        assert_eq!(
            breaches(table, &uses(3)),
            [
                "into-inner of haul-new: 3 uses of `PoisonError::into_inner`, the ceiling is 2; they are in: a.rs:1,2,3"
            ]
        );
        for count in [0, 1] {
            let said = breaches(table, &uses(count));
            assert!(said.len() == 1 && said[0].ends_with("lower it by `haul-lab shape --write`"), "{said:?}");
        }
        // A new crate has no ceiling until it states one.
        assert!(breaches("", &uses(1))[0].contains("the ceiling is 0; they are in: a.rs:1"));
    }

    #[test]
    fn damaged_table_is_a_breach() {
        for table in [
            "x\thaul-new\t2",
            "into-inner\thaul-new",
            "into-inner\thaul-new\t0",
            "into-inner\ta\t1\ninto-inner\ta\t1",
        ] {
            assert!(breaches(table, &uses(0))[0].starts_with("line "), "{table:?}");
        }
    }

    #[test]
    fn ceilings_fall_freely_and_rise_only_on_demand() {
        let table = |count: usize| rewritten("", &uses(count), true).expect("a table");
        assert_eq!(breaches(&table(2), &uses(2)), Vec::<String>::new());
        assert_eq!(rewritten(&table(2), &uses(1), false), Ok(table(1)));
        assert_eq!(rewritten(&table(2), &uses(0), false), Ok(table(0)));
        assert_eq!(
            rewritten(&table(2), &uses(3), false),
            Err(vec!["into-inner of haul-new: from 2 to 3: a.rs:1,2,3".to_owned()])
        );
        assert_eq!(rewritten(&table(2), &uses(3), true), Ok(table(3)));
    }
}
