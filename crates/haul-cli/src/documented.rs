//! What every tool's options are held to: a row in `docs/options` that says what an option does and names its tests.

use crate::getopt::Opt;
use clap::CommandFactory;
use haul_lab::house::options;

/// Every option has a row in the document, and every row is of an option and names tests that are there.
#[track_caller]
pub(crate) fn in_document(document: &str, typed: impl IntoIterator<Item = String>) {
    in_sections(document, &[], typed);
}

/// As [`in_document`], by the sections alone whose headings begin so.
#[track_caller]
pub(crate) fn in_sections(document: &str, sections: &[&str], typed: impl IntoIterator<Item = String>) {
    let found = options::breaches_in(document, sections, typed).unwrap();
    assert!(found.is_empty(), "{document}:\n  {}", found.join("\n  "));
}

/// Every way to type an option of a table, with its dashes.
pub(crate) fn typed_of(table: &'static [Opt]) -> impl Iterator<Item = String> {
    table.iter().flat_map(|option| {
        let long = option.long.then(|| format!("--{}", option.name));
        option.shorts.chars().map(|short| format!("-{short}")).chain(long)
    })
}

/// Every way to type an option of a parser, but for those that help leaves out.
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
