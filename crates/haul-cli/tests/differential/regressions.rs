//! Cases that failed once, made small.

use super::case::{Case, Tool};
use super::plant::{access_list, dir, file, link};

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

#[test]
fn a_directory_that_could_not_be_moved_is_warned_of_when_it_comes_again() {
    let world = || Case::new(Tool::Mv).has(dir("a"));
    world().runs("a a a").ends_alike();
    world().runs("a ./a a/ a").ends_alike();
    world().has(dir("b")).runs("a b a a").ends_alike();
}

#[test]
fn a_missing_target_is_named_as_it_was_typed() {
    let world = || Case::new(Tool::Mv).has(file("a", b'q')).has(file("b", b'q'));
    world().runs("--strip-trailing-slashes a b new//").ends_alike();
    world().runs("--strip-trailing-slashes a new/").ends_alike();
    world().has(dir("d")).runs("-v --strip-trailing-slashes d new/").ends_alike();
    world().runs("--strip-trailing-slashes -T a new/").ends_alike();
}

#[test]
fn a_link_that_leads_nowhere_is_met_with_a_slash_behind_it() {
    let world = || Case::new(Tool::Mv).has(link("b", "missing")).has(file("a", b'q')).has(dir("d"));
    world().runs("-b -T a b/").ends_alike();
    world().runs("-T a b/").ends_alike();
    world().runs("-T d b/").ends_alike();
}

#[test]
fn a_backup_stands_beside_a_directory_that_was_named_with_a_slash() {
    let world = || Case::new(Tool::Mv).has(dir("y")).has(file("c", b'q'));
    world().runs("-b -T c y/").ends_alike();
    world().runs("--backup=numbered -T c y//").ends_alike();
}

#[test]
fn what_is_left_alone_may_be_the_same_file() {
    Case::new(Tool::Mv).has(dir("a")).runs("-n a/. a").ends_alike();
}

#[test]
fn an_installed_file_has_no_access_list_from_above() {
    let world = || {
        let list = access_list(0o750, 1, 7);
        Case::new(Tool::Install)
            .has(dir("d").xattr("system.posix_acl_default", list))
            .has(file("d/b", b'p'))
            .has(file("a", b'q'))
    };
    world().runs("a d/new").ends_alike();
    world().runs("-b -m 640 -p a d/b").ends_alike();
    world().runs("-D a d/x/y/new").ends_alike();
}

#[test]
fn a_target_that_stands_and_is_closed_is_not_made() {
    let world =
        || Case::new(Tool::Install).has(file("f", b'q')).has(dir("b")).has(dir("b/a").mode(0o0000)).user();
    world().runs("-D f b/a").ends_alike();
    world().runs("-D f -t b/a").ends_alike();
    world().runs("-D f b/a/new").ends_alike();
    world().runs("-D missing b/a").ends_alike();
}

#[test]
fn a_directory_whose_owner_cannot_be_set_has_been_made_sticky() {
    Case::new(Tool::Install).user().runs("-d --mode 1777 --group 0 a").ends_alike();
    Case::new(Tool::Install).user().runs("-d -m 4777 -g 0 a").ends_alike();
}

#[test]
fn a_backup_needs_no_look_into_its_directory() {
    let world = || {
        let closed = dir("b").mode(0o0333);
        Case::new(Tool::Mv).has(closed).has(dir("b/x")).has(dir("b/x/a")).has(file("c", b'q')).user()
    };
    world().runs("-T b/x/a b/x -b").ends_alike();
    world().runs("-T c b/x --backup=numbered").ends_alike();
    let copied =
        || Case::new(Tool::Cp).has(dir("b").mode(0o0333)).has(file("b/x", b'p')).has(file("c", b'q'));
    copied().user().runs("-b -T c b/x").ends_alike();
    copied().user().runs("--backup=numbered -T c b/x").ends_alike();
}

#[test]
fn a_standing_directory_loses_its_sticky_bit_and_keeps_its_set_id_bits() {
    for mode in ["=", "755", "2755", "00755", "u=", "o=", "g=s", "go-rwx", "+t", "u+t"] {
        let world = Case::new(Tool::Install).has(dir("a").mode(0o7777));
        world.word("-d").word("-m").word(mode).word("a").ends_alike();
    }
}

/// Status and words differ on purpose; nothing else may.
#[test]
fn a_name_put_together_by_parents_may_lead_back_through_a_link() {
    Case::new(Tool::Cp)
        .has(dir("b"))
        .has(link("b/b", "../b"))
        .has(dir("b/a"))
        .runs("--parents --archive --remove-destination b/a b")
        .ends_alike();
}

#[test]
fn a_link_to_a_closed_directory_lets_its_mode_be_set() {
    let world = || Case::new(Tool::Install).has(dir("b").mode(0o0666)).has(dir("a")).has(link("a/b", "../b"));
    world().user().runs("--directory a/b").ends_alike();
}

#[test]
fn what_stands_installed_already_is_not_overwritten() {
    Case::new(Tool::Install).has(file("d", b's')).has(dir("a")).runs("-C d d a").ends_alike();
}

#[test]
fn a_whole_second_is_older_than_a_part_of_it_on_exact_file_systems() {
    Case::new(Tool::Mv)
        .has(file("far/b", b'p'))
        .has(file("a", b'r').time(981_173_106, 0))
        .runs("-u far/b a")
        .ends_alike();
}
