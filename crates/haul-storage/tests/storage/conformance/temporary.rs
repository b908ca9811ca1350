//! Files under temporary names: created, resumed, committed, abandoned.

use super::tools::*;
use super::{Subject, cases};
use haul_storage::{Create, FileKind, Follow, Metadata, Missing, Replace, Tag};
use std::io::ErrorKind;

cases! {
    temporary_file_has_only_its_temporary_name;
    temporary_file_admits_no_other_user: Modes;
    temporary_file_leaves_the_final_name_alone;
    file_of_a_killed_run_is_replaced;
    link_with_a_temporary_name_is_replaced_and_not_followed: Links;
    directory_with_a_temporary_name_is_an_error;
    temporary_files_of_two_tags_do_not_meet;
    commit_gives_the_final_name;
    commit_replaces_a_file;
    commit_replaces_a_link_itself: Links;
    commit_without_replacement_keeps_the_existing_entry: NoReplace;
    commit_without_replacement_takes_a_free_name: NoReplace;
    commit_does_not_replace_a_directory;
    second_commit_changes_nothing;
    commit_keeps_bytes_and_metadata: Modes;
    commit_works_after_the_directory_moved;
    dropped_file_stays_under_its_temporary_name;
    dropped_file_is_resumed_with_its_bytes;
    abandoned_file_is_gone;
    second_abandonment_changes_nothing;
    abandonment_after_the_commit_keeps_the_file;
    missing_file_is_not_resumed;
    link_is_not_resumed: Links;
    pipe_is_not_resumed: Specials;
    file_with_several_names_is_not_resumed: HardLinks;
    directory_is_not_resumed;
    resumed_file_is_committed;
    resumed_file_keeps_its_metadata: Modes;
    resumed_file_is_abandoned;
    final_name_of_255_bytes_gets_a_temporary_name: AnyNames;
    name_of_a_file_that_is_written_is_listed_with_its_tag;
    locked_temporary_file_stays_locked_after_the_commit: Locks;
}

fn temporary_name() -> String {
    TAG.name().to_string()
}

fn temporary_file_has_only_its_temporary_name(subject: &dyn Subject) {
    let root = subject.root();
    let sink = temporary(&*root, "f");
    assert!(sink.is_new());
    sink.write_at(0, b"bytes").expect("written");
    assert_eq!(listed(&*root), [temporary_name()]);
}

fn temporary_file_admits_no_other_user(subject: &dyn Subject) {
    let root = subject.root();
    let sink = temporary(&*root, "f");
    assert_eq!(sink.stat().expect("found").mode, 0o600);
}

fn temporary_file_leaves_the_final_name_alone(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"old");
    let sink = temporary(&*root, "f");
    sink.write_at(0, b"new bytes").expect("written");
    sink.finish(9, &Metadata::default()).expect("finished");
    assert_eq!(read(&*root, "f"), b"old");
}

fn file_of_a_killed_run_is_replaced(subject: &dyn Subject) {
    let root = subject.root();
    temporary(&*root, "f").write_at(0, b"longer than the new bytes").expect("written");
    let sink = temporary(&*root, "f");
    assert!(sink.is_new());
    assert_eq!(sink.stat().expect("found").size, 0);
    assert_eq!(listed(&*root), [temporary_name()]);
}

fn link_with_a_temporary_name_is_replaced_and_not_followed(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "victim", b"bytes");
    symlink(&*root, &temporary_name(), "victim");
    temporary(&*root, "f").write_at(0, b"new").expect("written");
    assert_eq!(read(&*root, "victim"), b"bytes");
    assert_eq!(stat(&*root, &temporary_name()).kind, FileKind::Regular);
}

fn directory_with_a_temporary_name_is_an_error(subject: &dyn Subject) {
    let root = subject.root();
    mkdir(&*root, &temporary_name());
    fails(root.sink(&n("f"), Create::Temporary(TAG)), ErrorKind::IsADirectory);
    assert_eq!(listed(&*root), [temporary_name()]);
}

fn temporary_files_of_two_tags_do_not_meet(subject: &dyn Subject) {
    let root = subject.root();
    let other = Tag { number: TAG.number + 1, ..TAG };
    let first = temporary(&*root, "f");
    let second = root.sink(&n("f"), Create::Temporary(other)).expect("created");
    first.write_at(0, b"first").expect("written");
    second.write_at(0, b"second").expect("written");
    first.commit(Replace::Yes).expect("committed");
    assert_eq!(read(&*root, "f"), b"first");
    second.commit(Replace::Yes).expect("committed");
    assert_eq!((listed(&*root), read(&*root, "f")), (vec!["f".into()], b"second".to_vec()));
}

fn commit_gives_the_final_name(subject: &dyn Subject) {
    let root = subject.root();
    let sink = temporary(&*root, "f");
    sink.write_at(0, b"bytes").expect("written");
    assert!(!sink.is_committed());
    sink.commit(Replace::Yes).expect("committed");
    assert!(sink.is_committed());
    assert_eq!((listed(&*root), read(&*root, "f")), (vec!["f".into()], b"bytes".to_vec()));
}

fn commit_replaces_a_file(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"old");
    let sink = temporary(&*root, "f");
    sink.write_at(0, b"new bytes").expect("written");
    sink.commit(Replace::Yes).expect("committed");
    assert_eq!((listed(&*root), read(&*root, "f")), (vec!["f".into()], b"new bytes".to_vec()));
}

fn commit_replaces_a_link_itself(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "target", b"old");
    symlink(&*root, "f", "target");
    let sink = temporary(&*root, "f");
    sink.write_at(0, b"new").expect("written");
    sink.commit(Replace::Yes).expect("committed");
    assert_eq!((stat(&*root, "f").kind, read(&*root, "target")), (FileKind::Regular, b"old".to_vec()));
}

fn commit_without_replacement_keeps_the_existing_entry(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"old");
    let sink = temporary(&*root, "f");
    sink.write_at(0, b"new").expect("written");
    fails(sink.commit(Replace::No), ErrorKind::AlreadyExists);
    assert!(!sink.is_committed());
    assert_eq!((read(&*root, "f"), read(&*root, &temporary_name())), (b"old".to_vec(), b"new".to_vec()));
    sink.commit(Replace::Yes).expect("committed at last");
    assert_eq!((listed(&*root), read(&*root, "f")), (vec!["f".into()], b"new".to_vec()));
}

fn commit_without_replacement_takes_a_free_name(subject: &dyn Subject) {
    let root = subject.root();
    temporary(&*root, "f").commit(Replace::No).expect("committed");
    assert_eq!(listed(&*root), ["f"]);
}

fn commit_does_not_replace_a_directory(subject: &dyn Subject) {
    let root = subject.root();
    mkdir(&*root, "f");
    let sink = temporary(&*root, "f");
    fails(sink.commit(Replace::Yes), ErrorKind::IsADirectory);
    assert!(!sink.is_committed());
    assert_eq!(listed(&*root), [temporary_name(), "f".into()]);
}

fn second_commit_changes_nothing(subject: &dyn Subject) {
    let root = subject.root();
    let sink = temporary(&*root, "f");
    sink.commit(Replace::Yes).expect("committed");
    sink.commit(Replace::Yes).expect("committed again");
    assert_eq!(listed(&*root), ["f"]);
}

fn commit_keeps_bytes_and_metadata(subject: &dyn Subject) {
    let root = subject.root();
    let sink = temporary(&*root, "f");
    sink.write_at(0, &pattern(10_000)).expect("written");
    sink.finish(10_000, &Metadata { mode: Some(0o444), ..Metadata::default() }).expect("finished");
    let before = sink.stat().expect("found");
    sink.commit(Replace::Yes).expect("committed");
    let found = stat(&*root, "f");
    assert_eq!((found.mode, found.mtime, found.identity()), (0o444, before.mtime, before.identity()));
    assert!(read_all(&*sink.reader().expect("opened")) == pattern(10_000));
}

fn commit_works_after_the_directory_moved(subject: &dyn Subject) {
    let root = subject.root();
    let sink = temporary(&*mkdir(&*root, "d"), "f");
    root.rename(&n("d"), &*root, &n("e"), Replace::Yes).expect("renamed");
    mkdir(&*root, "d");
    sink.commit(Replace::Yes).expect("committed");
    assert_eq!(listed(&*opened_dir(&*root, "e")), ["f"]);
    assert_eq!(listed(&*opened_dir(&*root, "d")), [""; 0]);
}

fn dropped_file_stays_under_its_temporary_name(subject: &dyn Subject) {
    let root = subject.root();
    temporary(&*root, "f").write_at(0, b"bytes").expect("written");
    assert_eq!(listed(&*root), [temporary_name()]);
}

fn dropped_file_is_resumed_with_its_bytes(subject: &dyn Subject) {
    let root = subject.root();
    temporary(&*root, "f").write_at(0, b"bytes").expect("written");
    let sink = root.sink(&n("f"), Create::Resume(TAG)).expect("resumed");
    assert!(!sink.is_new());
    assert_eq!(read_all(&*sink.reader().expect("opened")), b"bytes");
    sink.write_at(5, b" and more").expect("written");
    assert_eq!(read(&*root, &temporary_name()), b"bytes and more");
}

fn abandoned_file_is_gone(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"old");
    let sink = temporary(&*root, "f");
    sink.write_at(0, b"new").expect("written");
    sink.abandon().expect("abandoned");
    assert_eq!((listed(&*root), read(&*root, "f")), (vec!["f".into()], b"old".to_vec()));
}

fn second_abandonment_changes_nothing(subject: &dyn Subject) {
    let root = subject.root();
    let sink = temporary(&*root, "f");
    sink.abandon().expect("abandoned");
    sink.abandon().expect("abandoned again");
    assert_eq!(listed(&*root), [""; 0]);
}

fn abandonment_after_the_commit_keeps_the_file(subject: &dyn Subject) {
    let root = subject.root();
    let sink = temporary(&*root, "f");
    sink.commit(Replace::Yes).expect("committed");
    sink.abandon().expect("nothing to abandon");
    assert_eq!(listed(&*root), ["f"]);
}

fn missing_file_is_not_resumed(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    fails(root.sink(&n("f"), Create::Resume(TAG)), ErrorKind::NotFound);
    assert_eq!(listed(&*root), ["f"]);
}

fn link_is_not_resumed(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "victim", b"bytes");
    symlink(&*root, &temporary_name(), "victim");
    fails(root.sink(&n("f"), Create::Resume(TAG)), ErrorKind::NotFound);
    assert_eq!((listed(&*root), read(&*root, "victim")), (vec!["victim".into()], b"bytes".to_vec()));
}

fn pipe_is_not_resumed(subject: &dyn Subject) {
    let root = subject.root();
    fifo(&*root, &temporary_name());
    fails(root.sink(&n("f"), Create::Resume(TAG)), ErrorKind::NotFound);
    assert_eq!(listed(&*root), [""; 0]);
}

fn file_with_several_names_is_not_resumed(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "victim", b"bytes");
    root.link(&n("victim"), Follow::No, &*root, &TAG.name()).expect("linked");
    fails(root.sink(&n("f"), Create::Resume(TAG)), ErrorKind::NotFound);
    assert_eq!((listed(&*root), read(&*root, "victim")), (vec!["victim".into()], b"bytes".to_vec()));
}

fn directory_is_not_resumed(subject: &dyn Subject) {
    let root = subject.root();
    mkdir(&*root, &temporary_name());
    fails(root.sink(&n("f"), Create::Resume(TAG)), ErrorKind::IsADirectory);
    assert_eq!(listed(&*root), [temporary_name()]);
}

fn resumed_file_is_committed(subject: &dyn Subject) {
    let root = subject.root();
    temporary(&*root, "f").write_at(0, b"bytes").expect("written");
    let sink = root.sink(&n("f"), Create::Resume(TAG)).expect("resumed");
    sink.commit(Replace::Yes).expect("committed");
    assert_eq!((listed(&*root), read(&*root, "f")), (vec!["f".into()], b"bytes".to_vec()));
}

fn resumed_file_keeps_its_metadata(subject: &dyn Subject) {
    let root = subject.root();
    temporary(&*root, "f").set_mode(0o644).expect("set");
    let sink = root.sink(&n("f"), Create::Resume(TAG)).expect("resumed");
    assert_eq!(sink.stat().expect("found").mode, 0o644);
}

fn resumed_file_is_abandoned(subject: &dyn Subject) {
    let root = subject.root();
    drop(temporary(&*root, "f"));
    root.sink(&n("f"), Create::Resume(TAG)).expect("resumed").abandon().expect("abandoned");
    assert_eq!(listed(&*root), [""; 0]);
}

fn final_name_of_255_bytes_gets_a_temporary_name(subject: &dyn Subject) {
    let root = subject.root();
    let name = "n".repeat(255);
    temporary(&*root, &name).commit(Replace::Yes).expect("committed");
    assert_eq!(listed(&*root), [name]);
}

fn name_of_a_file_that_is_written_is_listed_with_its_tag(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"old");
    let sink = temporary(&*root, "f");
    let tags: Vec<Tag> = list(&*root, 10).iter().filter_map(|entry| Tag::of(&entry.name)).collect();
    assert_eq!(tags, [TAG]);
    sink.abandon().expect("abandoned");
}

fn locked_temporary_file_stays_locked_after_the_commit(subject: &dyn Subject) {
    let root = subject.root();
    let sink = temporary(&*root, "f");
    sink.lock().expect("locked");
    sink.commit(Replace::Yes).expect("committed");
    let other =
        root.sink(&n("f"), Create::InPlace { missing: Missing::Fail, follow: Follow::No }).expect("opened");
    fails(other.lock(), ErrorKind::ResourceBusy);
}
