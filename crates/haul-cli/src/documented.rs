//! Check of every tool's options against `docs/options` and `tests/options.tsv`: each option has a
//! row that describes it, and a named test.

use crate::getopt::Opt;
use clap::CommandFactory;
use haul_lab::repo_rules::options;

/// Asserts that every option has a row in the document and an existing test in `tests/options.tsv`,
/// and that every row and every line of that list is about an option.
#[track_caller]
pub(crate) fn in_document(document: &str, typed: impl IntoIterator<Item = String>) {
    in_sections(document, &[], typed);
}

/// Same as [`in_document`], only for the sections whose headings start with one of `sections`.
#[track_caller]
pub(crate) fn in_sections(document: &str, sections: &[&str], typed: impl IntoIterator<Item = String>) {
    let found = options::breaches_in(document, sections, typed).unwrap();
    assert!(found.is_empty(), "{document}:\n  {}", found.join("\n  "));
}

/// Returns every spelling of the options of a table, with dashes.
pub(crate) fn typed_of(table: &'static [Opt]) -> impl Iterator<Item = String> {
    table.iter().flat_map(|option| {
        let long = option.long.then(|| format!("--{}", option.name));
        option.shorts.chars().map(|short| format!("-{short}")).chain(long)
    })
}

/// Returns every spelling of the options of a parser, except those that help hides.
pub(crate) fn typed_by<Args: CommandFactory>() -> Vec<String> {
    let command = Args::command();
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let ways = |argument: &clap::Arg| {
        let shorts = argument.get_short_and_visible_aliases().unwrap_or_default();
        let longs = argument.get_long_and_visible_aliases().unwrap_or_default();
        let shorts = shorts.into_iter().map(|short| format!("-{short}"));
        shorts.chain(longs.into_iter().map(|long| format!("--{long}"))).collect::<Vec<_>>()
    };
    shown.flat_map(ways).collect()
}
