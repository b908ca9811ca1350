//! Cases that failed once, made small.

use super::case::{Case, Tool};
use super::plant::{dir, file, link};

#[test]
fn parents_lead_a_directory_into_itself() {
    Case::new(Tool::Cp)
        .has(dir("f"))
        .has(dir("f/f"))
        .has(dir("f/f/f"))
        .runs("-a --parents f/f f")
        .ends_alike();
}

#[test]
fn parents_that_are_still_to_be_made_lead_a_directory_into_itself() {
    Case::new(Tool::Cp)
        .has(dir("a"))
        .has(dir("a/b"))
        .has(dir("a/b/c"))
        .runs("-r --parents a/b a/b/c")
        .ends_alike();
}

#[test]
fn a_target_loses_the_slashes_behind_it_in_messages() {
    Case::new(Tool::Cp).has(dir("a")).has(dir("a/b")).has(file("a/b/b", b's')).runs("a/b/b a//").ends_alike();
}

#[test]
fn a_tree_that_goes_to_a_name_with_slashes_is_told_of_without_them() {
    Case::new(Tool::Cp).has(dir("d")).has(file("d/d", b'k')).runs("-v -s -R d h//").ends_alike();
}

#[test]
fn a_link_made_by_s_is_its_makers() {
    Case::new(Tool::Cp)
        .has(file("a", b'q').owner(65534, 65534))
        .word("-s")
        .word("--preserve")
        .word("a")
        .word("new word")
        .ends_alike();
}

#[test]
fn what_lies_beside_a_directory_that_goes_into_itself_is_told_of() {
    Case::new(Tool::Cp).has(dir("a")).has(file("a/b", b's')).disk().runs("-r -s a a").ends_alike();
}

#[test]
fn a_bad_target_is_told_before_options_that_contradict_each_other() {
    Case::new(Tool::Mv).runs("-t x -n -b x").ends_alike();
}

#[test]
fn a_kind_of_backup_that_nobody_knows_is_told_after_the_first_try() {
    Case::new(Tool::Mv).has(file("a", b'k')).runs("--backup=bad a b").ends_alike();
}

#[test]
fn a_rename_that_worked_ends_in_the_contradiction() {
    Case::new(Tool::Mv).has(file("a", b's')).runs("-b -n a b").ends_alike();
}

#[test]
fn a_moves_target_loses_the_slashes_behind_it_in_messages() {
    Case::new(Tool::Mv).has(dir("x")).runs("x x//").ends_alike();
}

#[test]
fn warnings_of_install_come_before_its_mistakes() {
    Case::new(Tool::Install).runs("--preserve-context").ends_alike();
    Case::new(Tool::Install).runs("-o no-such-user -C --mode=4755 -d a").ends_alike();
}

#[test]
fn an_installed_files_failures_come_before_that_it_was_just_created() {
    let world = || Case::new(Tool::Install).has(dir("a")).has(file("a/b", b'q'));
    world().runs("a/b a/b a").ends_alike();
    world().has(dir("a/a")).runs("a/b a a a").ends_alike();
    world().runs("c/b c/b a").ends_alike();
}

#[test]
fn directories_are_installed_through_links() {
    let world = || Case::new(Tool::Install).has(dir("b").mode(0o0700)).has(link("a", "b"));
    world().runs("-d a").ends_alike();
    world().runs("-o99999 -d a").ends_alike();
}

#[test]
fn a_directory_that_cannot_be_gone_through_is_told() {
    Case::new(Tool::Install).has(dir("a").mode(0o0777)).user().cwd("a").runs("-d -m= x x/.").ends_alike();
}

#[test]
fn an_installed_files_target_loses_the_slashes_behind_it_in_messages() {
    Case::new(Tool::Install).has(dir("y")).has(file("y/x", b'q')).runs("y/x y//").ends_alike();
}
