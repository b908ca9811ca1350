//! Cases that failed once, made small.

use super::case::{Case, Tool};
use super::plant::{dir, file};

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
