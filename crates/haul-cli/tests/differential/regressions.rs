//! Reduced cases that failed before.

use super::case::{Case, Tool};
use super::plant::{access_list, dir, file, hard, link};

#[test]
fn cp_parents_detects_a_copy_into_itself() {
    Case::new(Tool::Cp)
        .has(dir("f"))
        .has(dir("f/f"))
        .has(dir("f/f/f"))
        .runs("-a --parents f/f f")
        .ends_alike();
}

#[test]
fn cp_parents_detects_a_copy_into_itself_in_new_parents() {
    Case::new(Tool::Cp)
        .has(dir("a"))
        .has(dir("a/b"))
        .has(dir("a/b/c"))
        .runs("-r --parents a/b a/b/c")
        .ends_alike();
}

#[test]
fn cp_messages_omit_trailing_slashes_of_the_target() {
    Case::new(Tool::Cp).has(dir("a")).has(dir("a/b")).has(file("a/b/b", b's')).runs("a/b/b a//").ends_alike();
}

#[test]
fn cp_v_omits_trailing_slashes_of_a_new_tree() {
    Case::new(Tool::Cp).has(dir("d")).has(file("d/d", b'k')).runs("-v -s -R d h//").ends_alike();
}

#[test]
fn cp_s_link_belongs_to_the_calling_user() {
    Case::new(Tool::Cp)
        .has(file("a", b'q').owner(65534, 65534))
        .word("-s")
        .word("--preserve")
        .word("a")
        .word("new word")
        .ends_alike();
}

#[test]
fn cp_rs_into_itself_reports_sibling_files() {
    Case::new(Tool::Cp).has(dir("a")).has(file("a/b", b's')).disk().runs("-r -s a a").ends_alike();
}

#[test]
fn mv_reports_a_bad_target_before_conflicting_options() {
    Case::new(Tool::Mv).runs("-t x -n -b x").ends_alike();
}

#[test]
fn mv_reports_an_unknown_backup_type_after_the_first_rename() {
    Case::new(Tool::Mv).has(file("a", b'k')).runs("--backup=bad a b").ends_alike();
}

#[test]
fn mv_reports_conflicting_options_after_a_rename() {
    Case::new(Tool::Mv).has(file("a", b's')).runs("-b -n a b").ends_alike();
}

#[test]
fn mv_messages_omit_trailing_slashes_of_the_target() {
    Case::new(Tool::Mv).has(dir("x")).runs("x x//").ends_alike();
}

#[test]
fn install_prints_warnings_before_usage_errors() {
    Case::new(Tool::Install).runs("--preserve-context").ends_alike();
    Case::new(Tool::Install).runs("-o no-such-user -C --mode=4755 -d a").ends_alike();
}

#[test]
fn install_reports_other_errors_before_just_created_files() {
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
fn install_d_reports_an_unsearchable_directory() {
    Case::new(Tool::Install).has(dir("a").mode(0o0777)).user().cwd("a").runs("-d -m= x x/.").ends_alike();
}

#[test]
fn install_messages_omit_trailing_slashes_of_the_target() {
    Case::new(Tool::Install).has(dir("y")).has(file("y/x", b'q')).runs("y/x y//").ends_alike();
}

#[test]
fn mv_warns_if_a_failed_directory_is_named_again() {
    let world = || Case::new(Tool::Mv).has(dir("a"));
    world().runs("a a a").ends_alike();
    world().runs("a ./a a/ a").ends_alike();
    world().has(dir("b")).runs("a b a a").ends_alike();
}

#[test]
fn mv_names_a_missing_target_as_typed() {
    let world = || Case::new(Tool::Mv).has(file("a", b'q')).has(file("b", b'q'));
    world().runs("--strip-trailing-slashes a b new//").ends_alike();
    world().runs("--strip-trailing-slashes a new/").ends_alike();
    world().has(dir("d")).runs("-v --strip-trailing-slashes d new/").ends_alike();
    world().runs("--strip-trailing-slashes -T a new/").ends_alike();
}

#[test]
fn mv_onto_a_dangling_link_with_trailing_slash_matches_gnu() {
    let world = || Case::new(Tool::Mv).has(link("b", "missing")).has(file("a", b'q')).has(dir("d"));
    world().runs("-b -T a b/").ends_alike();
    world().runs("-T a b/").ends_alike();
    world().runs("-T d b/").ends_alike();
}

#[test]
fn mv_backup_of_a_directory_named_with_slash_is_its_sibling() {
    let world = || Case::new(Tool::Mv).has(dir("y")).has(file("c", b'q'));
    world().runs("-b -T c y/").ends_alike();
    world().runs("--backup=numbered -T c y//").ends_alike();
}

#[test]
fn mv_n_accepts_the_same_file_as_target() {
    Case::new(Tool::Mv).has(dir("a")).runs("-n a/. a").ends_alike();
}

#[test]
fn install_does_not_keep_inherited_acls() {
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

/// In earlier versions a file whose owner could not be set lacked the rights that the list denies
/// its creator.
#[test]
fn install_owner_failure_leaves_the_file_readable_and_writable() {
    let world = || {
        let list = access_list(0o277, 1, 7);
        Case::new(Tool::Install)
            .has(dir("d").mode(0o0777).xattr("system.posix_acl_default", list))
            .has(file("a", b'q'))
    };
    world().user().runs("-o 1 a d/new").ends_alike();
    world().user().runs("-g 0 -m 4755 -p a d").ends_alike();
    world().user().umask(0o777).runs("-o 1 a d/new").ends_alike();
    Case::new(Tool::Install)
        .has(dir("e"))
        .has(file("a", b'q'))
        .user()
        .umask(0o777)
        .runs("-o 1 a e")
        .ends_alike();
}

#[test]
fn install_does_not_create_an_existing_closed_target() {
    let world =
        || Case::new(Tool::Install).has(file("f", b'q')).has(dir("b")).has(dir("b/a").mode(0o0000)).user();
    world().runs("-D f b/a").ends_alike();
    world().runs("-D f -t b/a").ends_alike();
    world().runs("-D f b/a/new").ends_alike();
    world().runs("-D missing b/a").ends_alike();
}

#[test]
fn install_owner_failure_on_a_directory_keeps_its_sticky_bit() {
    Case::new(Tool::Install).user().runs("-d --mode 1777 --group 0 a").ends_alike();
    Case::new(Tool::Install).user().runs("-d -m 4777 -g 0 a").ends_alike();
}

#[test]
fn backups_in_an_unreadable_directory_match_gnu() {
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
fn install_d_clears_the_sticky_bit_and_keeps_set_id_bits() {
    for mode in ["=", "755", "2755", "00755", "u=", "o=", "g=s", "go-rwx", "+t", "u+t"] {
        let world = Case::new(Tool::Install).has(dir("a").mode(0o7777));
        world.word("-d").word("-m").word(mode).word("a").ends_alike();
    }
}

/// Status and messages differ on purpose; nothing else may differ.
#[test]
fn cp_parents_target_can_lead_back_through_a_link() {
    Case::new(Tool::Cp)
        .has(dir("b"))
        .has(link("b/b", "../b"))
        .has(dir("b/a"))
        .runs("--parents --archive --remove-destination b/a b")
        .ends_alike();
}

#[test]
fn install_d_sets_the_mode_through_a_link_to_a_closed_directory() {
    let world = || Case::new(Tool::Install).has(dir("b").mode(0o0666)).has(dir("a")).has(link("a/b", "../b"));
    world().user().runs("--directory a/b").ends_alike();
}

#[test]
fn install_compare_does_not_overwrite_equal_files() {
    Case::new(Tool::Install).has(file("d", b's')).has(dir("a")).runs("-C d d a").ends_alike();
}

#[test]
fn mv_update_compares_times_to_the_nanosecond() {
    Case::new(Tool::Mv)
        .has(file("far/b", b'p'))
        .has(file("a", b'r').time(981_173_106, 0))
        .runs("-u far/b a")
        .ends_alike();
}

#[test]
fn mv_keeps_its_target_directory_if_it_replaces_the_link() {
    let mv = || Case::new(Tool::Mv);
    mv().has(file("b", b'q')).has(link("far/b", ".")).runs("-t far/b b").ends_alike();
    mv().has(dir("g")).has(link("g/a", "../g")).has(file("far/a", b'k')).runs("far/a g/a").ends_alike();
    mv().has(file("far/a", b'k')).has(dir("z")).has(link("z/a", ".")).runs("-tz/a far/a").ends_alike();
    let back = || mv().has(dir("far/c")).has(dir("c")).has(link("c/c", "../c"));
    let back = || back().has(link("far/c/c", "{box}/c/c"));
    back().runs("-t far/c/c// far/c/c").ends_alike();
    back().runs("-b -v -t far/c/c far/c/c").ends_alike();
    // A complete tree, and a later file for the same target.
    let tree = || mv().has(dir("g")).has(link("g/a", "../g")).has(dir("far/a")).has(file("far/a/x", b'k'));
    tree().runs("far/a g/a").ends_alike();
    tree().has(file("far/b", b's')).runs("-v -b far/a far/b g/a").ends_alike();
}

#[test]
fn install_keeps_its_target_directory_if_it_replaces_the_link() {
    let install = || Case::new(Tool::Install).has(dir("g")).has(file("a", b'q'));
    install().has(link("g/a", ".")).runs("a g/a").ends_alike();
    install().has(link("g/a", "../g")).runs("-v -b a g/a").ends_alike();
    install().has(link("g/a", "../g")).has(file("b", b's')).runs("-p -m 2755 a b a g/a").ends_alike();
    install().has(link("g/a", "../g")).runs("-C -S .bak a g/a").ends_alike();
    let star = || Case::new(Tool::Install).has(dir("e")).has(link("e/*", "../e")).has(file("*", b'q'));
    star().runs("--backup * e/*").ends_alike();
    star().runs("--backup=numbered -D -t e/* *").ends_alike();
}

#[test]
fn mv_backup_messages_keep_slashes_within_the_target() {
    let world = || Case::new(Tool::Mv).has(dir("c")).has(file("c/b", b'r')).has(dir("c/a"));
    world().runs("-b -T -v c/b c//a").ends_alike();
    world().has(file("c/a/b", b'k')).runs("--backup=existing -v c/b c//a//b").ends_alike();
}

#[test]
fn mv_does_not_rename_unstripped_names_before_usage_errors() {
    let world = || Case::new(Tool::Mv).has(file("a", b'q')).runs("--strip-trailing-slashes a/ new");
    world().runs("-b -n").ends_alike();
    world().runs("--backup=bad").ends_alike();
    world().runs("--backup=none -n").ends_alike();
}

#[test]
fn mv_across_onto_a_link_with_trailing_slash_matches_gnu() {
    let world = || Case::new(Tool::Mv).has(file("e", b'h')).has(link("far/e", "missing"));
    world().runs("e far/e/").ends_alike();
    world().runs("-f -v -T e far/e//").ends_alike();
}

#[test]
fn mv_across_moves_links_into_an_unreadable_directory() {
    let world = || Case::new(Tool::Mv).has(dir("a").mode(0o0311)).has(link("far/b", "{box}/b")).user();
    world().runs("far/b a/c").ends_alike();
    world().runs("far/b a").ends_alike();
    world().disk().runs("far/b a/c").ends_alike();
}

#[test]
fn mv_across_works_with_umask_777() {
    let world = || Case::new(Tool::Mv).has(dir("far/d")).has(dir("far/d/b")).has(file("far/d/b/b", b'q'));
    let world = || world().umask(0o777).user();
    world().runs("far/d/b/b .").ends_alike();
    world().runs("far/d new").ends_alike();
    world().has(file("b", b'k').bytes(1 << 20)).runs("b far/d").ends_alike();
}

/// The copy belongs to the user who moved the directory.
#[test]
fn mv_across_moves_directories_closed_to_the_new_owner() {
    let closed = |path: &str, mode| dir(path).mode(mode).owner(1, 1);
    let world = |mode| {
        let tree = ["far/d", "far/d/e", "far/d/e/g"].map(|path| closed(path, mode));
        let world = tree.into_iter().fold(Case::new(Tool::Mv), Case::has);
        let world = world.has(file("far/d/f", b'q').owner(1, 1).mode(0o0066)).has(link("far/d/e/l", "f"));
        world.has(file("far/d/e/g/h", b's').owner(1, 1)).user()
    };
    for mode in [0o0077, 0o0477, 0o0277, 0o0677] {
        world(mode).runs("far/d .").ends_alike();
        world(mode).runs("-v far/d new").ends_alike();
    }
    // A part of the tree stays.
    world(0o0077)
        .has(closed("far/d/e/x", 0o0755))
        .has(file("far/d/e/x/y", b'q'))
        .runs("far/d .")
        .ends_alike();
}

#[test]
fn mv_messages_keep_one_trailing_slash_of_a_moved_directory() {
    for words in ["-v far/a// .", "-v far/a/ .", "-v far/a/// new", "-v ./far/a/./ new"] {
        Case::new(Tool::Mv).has(dir("far/a")).has(file("far/a/b", b'q')).runs(words).ends_alike();
    }
    Case::new(Tool::Mv).has(link("g", ".")).has(dir("far/a")).runs("g// far/a").ends_alike();
}

/// The only deliberate difference is the message of `-u` about a repeated name.
#[test]
fn mv_update_compares_a_repeated_name_twice() {
    let world = || Case::new(Tool::Mv).has(file("a", b'r')).has(dir("c")).has(file("c/a", b'k'));
    world().runs("-u a a c").ends_alike();
    world().runs("-u -v ./a a c").ends_alike();
    Case::new(Tool::Mv).has(file("a", b'r')).has(dir("c")).has(dir("c/a")).runs("-u a a c").ends_alike();
}

#[test]
fn install_d_accepts_a_directory_with_matching_owner_and_group() {
    let closed =
        || Case::new(Tool::Install).has(dir("b").mode(0o0666)).has(dir("a")).has(link("a/b", "../b"));
    closed().user().runs("-g nogroup -d a/b").ends_alike();
    closed().user().runs("-o nobody -m 700 -d a/b").ends_alike();
    let owned = || Case::new(Tool::Install).has(dir("a").owner(1, 0)).has(link("b", "a")).user();
    owned().runs("-o 1 -d b").ends_alike();
    owned().runs("-o 1 -m 700 -d b").ends_alike();
    owned().runs("-o 2 -d b").ends_alike();
    Case::new(Tool::Install).has(dir("a").mode(0o0333)).user().runs("-m 755 -d a a/b").ends_alike();
    Case::new(Tool::Install).has(dir("a").mode(0o6755)).runs("-o 1 -m u=rwx -d a").ends_alike();
}

#[test]
fn install_reports_a_link_loop() {
    Case::new(Tool::Install).has(link("a", "a")).runs("-d a/. b").ends_alike();
    Case::new(Tool::Install).has(link("a", "missing")).runs("-d a/b").ends_alike();
    Case::new(Tool::Install).has(link("a", "a")).has(file("f", b'q')).runs("-D f a/b/c").ends_alike();
}

#[test]
fn cp_parents_sets_no_metadata_on_an_uncreated_directory() {
    Case::new(Tool::Cp).has(dir("a").mode(0o0555)).user().runs("--parents -p a/x a").ends_alike();
}

#[test]
fn cp_s_link_to_a_link_belongs_to_the_calling_user() {
    Case::new(Tool::Cp).has(link("a", "b").owner(65534, 65534)).runs("-a -s a x").ends_alike();
}

#[test]
fn cp_retries_a_directory_that_could_not_be_created() {
    Case::new(Tool::Cp).has(dir("b").mode(0o0555)).user().runs("-a b b b").ends_alike();
    let closed = || Case::new(Tool::Cp).has(dir("b").mode(0o0555)).has(dir("d")).user();
    closed().runs("-r d ./d b").ends_alike();
}

#[test]
fn cp_p_over_a_hard_linked_set_id_file_matches_gnu() {
    Case::new(Tool::Cp)
        .has(file("d", b's'))
        .has(file("b", b'q').mode(0o2755))
        .has(hard("a", "b"))
        .runs("-p d a")
        .ends_alike();
}

/// The first directory stays in place. The entry that the second one would have replaced must be
/// unchanged.
#[test]
fn mv_undoes_the_backup_if_a_directory_is_not_moved() {
    let world = || Case::new(Tool::Mv).has(dir("b")).has(link("b/a", "../b"));
    world().runs("-S .old b b/a/ b/a b").ends_alike();
    world().runs("-v -b b b/a/ b").ends_alike();
}

#[test]
fn utimes_failure_on_an_existing_directory_is_the_only_error() {
    let world = || Case::new(Tool::Cp).has(dir("h")).has(dir("h/a").owner(1, 1)).user();
    world().runs("-n --archive h/a h").ends_alike();
    world().has(dir("a")).runs("-a a h").ends_alike();
    world().has(dir("a")).runs("-a --no-preserve=timestamps a h").ends_alike();
}

#[test]
fn cp_parents_keeps_the_mode_of_a_file_in_place_of_a_directory() {
    Case::new(Tool::Cp)
        .has(dir("b"))
        .has(file("b/b", b'r'))
        .runs("--preserve --parents b/b/. b")
        .ends_alike();
}

/// If links are followed, a link and its target are two names of one file.
#[test]
fn cp_update_links_an_old_file_named_twice_through_a_link() {
    let world = || Case::new(Tool::Cp).has(file("a", b'q')).has(link("b", "a"));
    world().runs("--update -l a b .").ends_alike();
    world().runs("-u b a .").ends_alike();
    let stale = || world().has(dir("d")).has(file("d/a", b'r')).has(file("d/b", b's'));
    stale().runs("-u a b d").ends_alike();
    stale().runs("-u -v b a d").ends_alike();
    stale().runs("-ruL --no-preserve=links a b d").ends_alike();
    stale().runs("-ruH a b d").ends_alike();
    stale().runs("-ru a b d").ends_alike();
}

#[test]
fn cp_link_replacing_a_link_of_the_same_owner_keeps_the_owner() {
    let world = || Case::new(Tool::Cp).has(link("a", "x").owner(1, 1)).has(link("b", "y").owner(1, 1));
    world().runs("-a -f --attributes-only -T a b").ends_alike();
    world().runs("-P -u -f --preserve=ownership -T a b").ends_alike();
}

/// Status and messages differ on purpose; nothing else may differ.
#[test]
fn cp_detects_a_repeated_source_through_a_link() {
    let world = || Case::new(Tool::Cp).has(link("a", ".")).has(file("f", b'q')).has(dir("d"));
    world().runs("-a a a/a a").ends_alike();
    world().runs("-a a a/a d").ends_alike();
    world().runs("f a/f d").ends_alike();
}

#[test]
fn install_creates_the_target_directory_only_for_named_files() {
    let world = || Case::new(Tool::Install).has(file("a", b'q'));
    world().runs("-D -t x/y").word("").word("a").ends_alike();
    world().runs("-D -t x/y// a").word("").ends_alike();
    world().runs("-D -t x/. / a").ends_alike();
    world().has(link("l", "n")).runs("-D -t l / a").ends_alike();
    world().runs("-D --target-directory= a").ends_alike();
}

/// The messages differ on purpose; nothing else may differ.
#[test]
fn mv_across_moves_files_if_capabilities_cannot_be_set() {
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    Case::new(Tool::Mv)
        .has(dir("far/a"))
        .has(file("far/a/b", b'r').xattr("security.capability", capability))
        .user()
        .runs("far/a a")
        .ends_alike();
}

#[test]
fn mv_reports_a_failed_move_if_the_backup_hides_the_source() {
    Case::new(Tool::Mv).has(dir("far/a")).runs("-T -b far/a far").ends_alike();
    Case::new(Tool::Mv).has(file("far/a", b'q')).runs("-v -T --backup=numbered far/a far").ends_alike();
}

/// The copied data differs on purpose; the status may not differ.
#[test]
fn cp_s_makes_no_links_to_removed_sources() {
    Case::new(Tool::Cp)
        .has(dir("a"))
        .has(dir("a/b"))
        .has(file("a/b/c", b'r'))
        .has(file("a/c", b'r'))
        .runs("-s -r --remove-destination a/. a/b")
        .ends_alike();
}
