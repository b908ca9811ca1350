//! Modes, owners, times and attributes.

use super::tools::*;
use super::{Subject, cases};
use haul_storage::attributes::{XattrSide, copy_attributes, copy_permissions, drop_access_list};
use haul_storage::{FileKind, Follow, Inode, Metadata, Part, Times, Timespec};
use haul_sys::metadata::{ACL_ACCESS, ACL_DEFAULT};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::io::ErrorKind;
use std::sync::Arc;

cases! {
    mode_is_set_on_each_kind: Modes, Specials;
    all_bits_of_a_mode_are_set_regardless_of_the_umask: Modes;
    link_has_no_mode: Links;
    owner_is_set_on_each_kind: Owners, Links, Specials;
    owner_that_is_not_given_stays: Owners;
    times_are_set_on_each_kind: Links, Specials;
    times_are_set_in_nanoseconds: Nanoseconds;
    times_far_away_are_set: FarTimes;
    new_entry_belongs_to_the_user: Owners;
    time_that_is_not_given_stays;
    time_of_a_link_is_its_own: Links;
    attribute_is_set_and_replaced: Attributes;
    attributes_are_listed: Attributes;
    missing_attribute_is_none: Attributes;
    attribute_of_an_unknown_class_is_unsupported;
    removed_attribute_is_gone: Attributes;
    attribute_of_any_bytes_is_kept: Attributes;
    attribute_that_is_too_large_fails: Attributes;
    attributes_of_a_directory_are_its_own: Attributes;
    attributes_of_an_entry_are_those_of_its_inode: Attributes;
    attributes_of_an_entry_follow_no_link: Attributes, Links;
    attribute_of_a_user_belongs_to_files_and_directories: Attributes, Links, Specials;
    storage_without_attributes_says_so;
    named_entry_has_the_metadata_of_its_inode: Modes, Attributes;
    named_link_is_not_followed: Links, Owners;
    missing_named_entry_is_not_found;
    selected_attributes_are_copied: Attributes;
    attributes_are_copied_after_a_failure: Attributes, Links;
    access_list_is_copied_with_the_mode_or_removed: AccessLists;
    default_access_list_is_copied_or_removed: AccessLists;
    metadata_is_set_as_a_whole: Modes, Attributes;
    set_user_id_survives_the_owner: Modes, Owners;
    empty_metadata_changes_nothing: StableInodes;
    metadata_stops_at_the_first_part_that_fails: Links;
    attribute_that_fails_is_named;
    metadata_is_seen_by_all_handles: Modes;
    setting_metadata_changes_the_change_time: Modes, StableInodes, Nanoseconds;
}

fn named_entry_has_the_metadata_of_its_inode(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    let (named, held) = (root.named(&n("f")).expect("there"), hold(&*root, "f"));
    named.set_mode(0o640).expect("set");
    named.set_times(Times { atime: time(1, 0), mtime: time(1_000_000_000, 0) }).expect("set");
    named.set_attribute(c"user.a", b"value").expect("set");
    assert_eq!(named.stat().expect("found"), held.stat().expect("found"));
    assert_eq!((held.stat().expect("found").mode, stat(&*root, "f").mtime.sec), (0o640, 1_000_000_000));
    assert!(named.attributes().expect("listed").contains(&c"user.a".to_owned()));
    for inode in [&named, &held] {
        assert_eq!(inode.attribute(c"user.a").expect("read").as_deref(), Some(&b"value"[..]));
        assert_eq!(inode.attribute(c"user.b").expect("read"), None);
    }
    assert!(named.remove_attribute(c"user.a").expect("removed"));
    assert!(!named.remove_attribute(c"user.a").expect("an answer"));
    assert_eq!(held.attribute(c"user.a").expect("read"), None);
    assert_eq!(named.device(), root.device());
    assert_eq!(named.user(), held.user());
}

fn named_link_is_not_followed(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"bytes");
    symlink(&*root, "l", "f");
    let before = stat(&*root, "f");
    let named = root.named(&n("l")).expect("there");
    assert_eq!(named.stat().expect("found").kind, FileKind::Symlink);
    assert_eq!(named.read_link().expect("a link"), b"f");
    named.set_owner(Some(1234), Some(2345)).expect("set");
    named.set_times(Times { atime: None, mtime: time(1_000_000_000, 0) }).expect("set");
    fails(named.set_mode(0o640), ErrorKind::Unsupported);
    let link = stat(&*root, "l");
    assert_eq!((link.uid, link.gid, link.mtime.sec), (1234, 2345, 1_000_000_000));
    let after = stat(&*root, "f");
    assert_eq!((after.uid, after.mtime, after.mode), (before.uid, before.mtime, before.mode));
}

fn missing_named_entry_is_not_found(subject: &dyn Subject) {
    let root = subject.root();
    fails(root.named(&n("f")).and_then(|named| named.stat()), ErrorKind::NotFound);
    fails(root.named(&n("f")).and_then(|named| named.set_mode(0o600)), ErrorKind::NotFound);
}

fn selected_attributes_are_copied(subject: &dyn Subject) {
    let root = subject.root();
    for name in ["from", "to"] {
        write(&*root, name, b"");
    }
    let (from, to) = (hold(&*root, "from"), hold(&*root, "to"));
    for name in [c"user.a", c"user.b", c"user.secret"] {
        from.set_attribute(name, name.to_bytes()).expect("set");
    }
    to.set_attribute(c"user.own", b"stays").expect("set");
    let wanted = |name: &CStr| name.to_bytes().starts_with(b"user.") && name != c"user.secret";
    assert!(copy_attributes(&*from, &*to, wanted).expect("listed").is_empty());
    let has = |name| to.attribute(name).expect("read");
    assert_eq!(
        [c"user.a", c"user.b"].map(has),
        [&b"user.a"[..], b"user.b"].map(|value| Some(value.to_vec()))
    );
    assert_eq!((has(c"user.secret"), has(c"user.own")), (None, Some(b"stays".to_vec())));
}

/// A link has no attributes of users: each is refused, and each refusal is reported.
fn attributes_are_copied_after_a_failure(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "from", b"");
    symlink(&*root, "l", "from");
    let from = hold(&*root, "from");
    for name in [c"user.a", c"user.b"] {
        from.set_attribute(name, b"value").expect("set");
    }
    let wanted = |name: &CStr| name.to_bytes().starts_with(b"user.");
    for link in [root.named(&n("l")).expect("there"), hold(&*root, "l")] {
        let failures = copy_attributes(&*from, &*link, wanted).expect("listed");
        let failed: BTreeSet<&CStr> = failures.iter().map(|failure| &*failure.name).collect();
        assert_eq!(failed, BTreeSet::from([c"user.a", c"user.b"]));
        assert!(failures.iter().all(|failure| failure.side == XattrSide::Destination));
    }
}

/// Returns an access control list in the kernel's format (linux/posix_acl_xattr.h): version 2, then
/// tag, permission and id of each entry, little-endian. The list grants `user` to a second user and
/// limits all others to `mask`.
fn access_list(user: u16, mask: u16) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries: [(u16, u16, u32); 5] =
        [(0x01, 6, NOBODY), (0x02, user, 4_321), (0x04, 4, NOBODY), (0x10, mask, NOBODY), (0x20, 0, NOBODY)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permission, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permission.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

fn access_list_is_copied_with_the_mode_or_removed(subject: &dyn Subject) {
    let root = subject.root();
    for name in ["with", "without", "to"] {
        write(&*root, name, b"");
    }
    let (with, without) = (hold(&*root, "with"), hold(&*root, "without"));
    for to in [hold(&*root, "to"), root.named(&n("to")).expect("there")] {
        with.set_attribute(ACL_ACCESS, &access_list(7, 6)).expect("set");
        copy_permissions(&*with, &*to, FileKind::Regular, 0o4660).expect("copied");
        assert_eq!(to.attribute(ACL_ACCESS).expect("read"), Some(access_list(7, 6)));
        assert_eq!(to.stat().expect("found").mode, 0o4660);
        copy_permissions(&*without, &*to, FileKind::Regular, 0o2751).expect("copied");
        assert_eq!(to.attribute(ACL_ACCESS).expect("read"), None);
        assert_eq!(to.stat().expect("found").mode, 0o2751);
        to.set_attribute(ACL_ACCESS, &access_list(5, 4)).expect("set");
        drop_access_list(&*to).expect("removed");
        drop_access_list(&*to).expect("there is none");
        assert_eq!(to.attribute(ACL_ACCESS).expect("read"), None);
    }
}

fn default_access_list_is_copied_or_removed(subject: &dyn Subject) {
    let root = subject.root();
    let [with, without, to] = ["with", "without", "to"].map(|name| mkdir(&*root, name));
    with.set_attribute(ACL_DEFAULT, &access_list(7, 7)).expect("set");
    copy_permissions(&*with, &*to, FileKind::Directory, 0o750).expect("copied");
    assert_eq!(to.attribute(ACL_DEFAULT).expect("read"), Some(access_list(7, 7)));
    assert_eq!(to.stat().expect("found").mode, 0o750);
    copy_permissions(&*without, &*to, FileKind::Directory, 0o700).expect("copied");
    assert_eq!(to.attribute(ACL_DEFAULT).expect("read"), None);
}

fn all_kinds(subject: &dyn Subject) -> Vec<Arc<dyn Inode>> {
    let root = subject.root();
    write(&*root, "file", b"bytes");
    mkdir(&*root, "dir");
    fifo(&*root, "pipe");
    ["file", "dir", "pipe"].map(|name| hold(&*root, name)).into()
}

fn time(sec: i64, nsec: u32) -> Option<Timespec> {
    Some(Timespec { sec, nsec })
}

fn mode_is_set_on_each_kind(subject: &dyn Subject) {
    for inode in all_kinds(subject) {
        inode.set_mode(0o741).expect("set");
        assert_eq!(inode.stat().expect("found").mode, 0o741);
    }
}

fn all_bits_of_a_mode_are_set_regardless_of_the_umask(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    for mode in [0o777, 0o000, 0o4755, 0o1666, 0o600] {
        hold(&*root, "f").set_mode(mode).expect("set");
        assert_eq!(stat(&*root, "f").mode, mode);
    }
}

fn link_has_no_mode(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    symlink(&*root, "l", "f");
    let before = stat(&*root, "f").mode;
    fails(hold(&*root, "l").set_mode(0o640), ErrorKind::Unsupported);
    assert_eq!(stat(&*root, "f").mode, before);
}

fn owner_is_set_on_each_kind(subject: &dyn Subject) {
    let kinds = all_kinds(subject);
    let root = subject.root();
    symlink(&*root, "link", "file");
    for (number, inode) in (1000..).zip(kinds.into_iter().chain([hold(&*root, "link")])) {
        inode.set_owner(Some(number), Some(number + 100)).expect("set");
        let found = inode.stat().expect("found");
        assert_eq!((found.uid, found.gid), (number, number + 100));
    }
    assert_eq!(stat(&*root, "file").uid, 1000, "the target of the link");
}

fn owner_that_is_not_given_stays(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    let file = hold(&*root, "f");
    file.set_owner(Some(5), Some(6)).expect("set");
    file.set_owner(None, Some(7)).expect("set");
    assert_eq!((stat(&*root, "f").uid, stat(&*root, "f").gid), (5, 7));
    file.set_owner(Some(8), None).expect("set");
    assert_eq!((stat(&*root, "f").uid, stat(&*root, "f").gid), (8, 7));
}

fn new_entry_belongs_to_the_user(subject: &dyn Subject) {
    let user = subject.root().user();
    for inode in all_kinds(subject) {
        assert_eq!((inode.stat().expect("found").uid, inode.user()), (user, user));
    }
}

fn times_are_set_on_each_kind(subject: &dyn Subject) {
    let kinds = all_kinds(subject);
    let root = subject.root();
    symlink(&*root, "link", "file");
    for (number, inode) in (1_000_000_000..).step_by(2).zip(kinds.into_iter().chain([hold(&*root, "link")])) {
        inode.set_times(Times { atime: time(number, 0), mtime: time(number + 10, 0) }).expect("set");
        let found = inode.stat().expect("found");
        assert_eq!((found.atime.sec, found.mtime.sec), (number, number + 10));
    }
}

fn times_are_set_in_nanoseconds(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    let times = Times { atime: time(1_234_567_890, 123_456_789), mtime: time(1_234_567_891, 999_999_999) };
    hold(&*root, "f").set_times(times).expect("set");
    assert_eq!(Times::of(&stat(&*root, "f")), times);
}

fn times_far_away_are_set(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    for sec in [-1_000_000_000, -1, 0, 1 << 32, 10_000_000_000] {
        let times = Times { atime: time(sec, 0), mtime: time(sec, 0) };
        hold(&*root, "f").set_times(times).expect("set");
        assert_eq!(Times::of(&stat(&*root, "f")), times);
    }
}

fn time_that_is_not_given_stays(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    let file = hold(&*root, "f");
    file.set_times(Times { atime: time(1_000_000_000, 0), mtime: time(1_100_000_000, 0) }).expect("set");
    file.set_times(Times { atime: None, mtime: time(1_200_000_000, 0) }).expect("set");
    let found = stat(&*root, "f");
    assert_eq!(found.mtime.sec, 1_200_000_000);
    let atime = found.atime.sec;
    file.set_times(Times { atime: time(1_300_000_000, 0), mtime: None }).expect("set");
    let found = stat(&*root, "f");
    assert_eq!(found.mtime.sec, 1_200_000_000);
    assert!(found.atime.sec > atime, "the access time changed alone");
}

fn time_of_a_link_is_its_own(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    symlink(&*root, "l", "f");
    let before = stat(&*root, "f").mtime;
    hold(&*root, "l").set_times(Times { atime: None, mtime: time(1_000_000_000, 0) }).expect("set");
    assert_eq!(stat(&*root, "f").mtime, before);
    assert_eq!(stat(&*root, "l").mtime.sec, 1_000_000_000);
    assert_eq!(root.stat_at(&n("l"), Follow::Yes).expect("followed").mtime, before);
}

fn attribute_is_set_and_replaced(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    let file = hold(&*root, "f");
    for value in [&b"first"[..], b"the second value", b""] {
        file.set_attribute(c"user.a", value).expect("set");
        assert_eq!(file.attribute(c"user.a").expect("read").as_deref(), Some(value));
    }
}

fn attributes_are_listed(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    let file = hold(&*root, "f");
    let of_user = || {
        let mut names = file.attributes().expect("listed");
        names.retain(|name| name.to_bytes().starts_with(b"user."));
        names.sort();
        names
    };
    assert_eq!(of_user(), [] as [CString; 0]);
    file.set_attribute(c"user.b", b"1").expect("set");
    file.set_attribute(c"user.a", b"2").expect("set");
    assert_eq!(of_user(), [c"user.a".to_owned(), c"user.b".to_owned()]);
}

fn missing_attribute_is_none(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    let file = hold(&*root, "f");
    assert_eq!(file.attribute(c"user.none").expect("read"), None);
    assert!(!file.remove_attribute(c"user.none").expect("none to remove"));
}

fn attribute_of_an_unknown_class_is_unsupported(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    let file = hold(&*root, "f");
    fails(file.set_attribute(c"haul-has-no-such-class.a", b"value"), ErrorKind::Unsupported);
    assert_eq!(file.attribute(c"haul-has-no-such-class.a").expect("read"), None);
}

fn removed_attribute_is_gone(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    let file = hold(&*root, "f");
    file.set_attribute(c"user.a", b"1").expect("set");
    file.set_attribute(c"user.b", b"2").expect("set");
    assert!(file.remove_attribute(c"user.a").expect("removed"));
    assert_eq!(file.attribute(c"user.a").expect("read"), None);
    assert_eq!(file.attribute(c"user.b").expect("read").as_deref(), Some(&b"2"[..]));
}

fn attribute_of_any_bytes_is_kept(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    let file = hold(&*root, "f");
    let value: Vec<u8> = (0..=255).collect();
    file.set_attribute(c"user.\xff\n", &value).expect("set");
    assert_eq!(file.attribute(c"user.\xff\n").expect("read"), Some(value));
}

fn attribute_that_is_too_large_fails(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    let file = hold(&*root, "f");
    let error = file.set_attribute(c"user.a", &vec![1; (64 << 10) + 1]).expect_err("above the limit");
    // ERANGE has no kind of its own.
    let is_expected = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::ArgumentListTooLong)
        || error.raw_os_error() == Some(34);
    assert!(is_expected, "{error}");
    assert_eq!(file.attribute(c"user.a").expect("read"), None);
}

fn attributes_of_a_directory_are_its_own(subject: &dyn Subject) {
    let root = subject.root();
    let dir = mkdir(&*root, "d");
    write(&*dir, "f", b"");
    dir.set_attribute(c"user.a", b"value").expect("set");
    assert_eq!(hold(&*root, "d").attribute(c"user.a").expect("read").as_deref(), Some(&b"value"[..]));
    assert_eq!(hold(&*dir, "f").attribute(c"user.a").expect("read"), None);
}

fn attributes_of_an_entry_are_those_of_its_inode(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    mkdir(&*root, "d");
    for name in ["f", "d"] {
        hold(&*root, name).set_attribute(c"user.a", b"value").expect("set");
        assert!(root.attributes_at(&n(name)).expect("listed").contains(&c"user.a".to_owned()));
        let value = root.attribute_at(&n(name), c"user.a").expect("read");
        assert_eq!(value.as_deref(), Some(&b"value"[..]));
        assert_eq!(root.attribute_at(&n(name), c"user.none").expect("read"), None);
    }
    fails(root.attributes_at(&n("none")), ErrorKind::NotFound);
    fails(root.attribute_at(&n("none"), c"user.a"), ErrorKind::NotFound);
}

fn attributes_of_an_entry_follow_no_link(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    hold(&*root, "f").set_attribute(c"user.a", b"value").expect("set");
    symlink(&*root, "l", "f");
    assert!(!root.attributes_at(&n("l")).expect("listed").contains(&c"user.a".to_owned()));
    assert_eq!(root.attribute_at(&n("l"), c"user.a").expect("read"), None);
}

fn attribute_of_a_user_belongs_to_files_and_directories(subject: &dyn Subject) {
    let root = subject.root();
    symlink(&*root, "l", "target");
    fifo(&*root, "p");
    for name in ["l", "p"] {
        let held = hold(&*root, name);
        fails(held.set_attribute(c"user.a", b"value"), ErrorKind::PermissionDenied);
        assert_eq!(held.attribute(c"user.a").expect("none"), None);
    }
}

fn storage_without_attributes_says_so(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    let file = hold(&*root, "f");
    if !subject.lacks().contains(&super::Feature::Attributes) {
        file.set_attribute(c"user.a", b"value").expect("set");
        return;
    }
    fails(file.set_attribute(c"user.a", b"value"), ErrorKind::Unsupported);
    assert_eq!(file.attribute(c"user.a").expect("none"), None);
    assert!(!file.remove_attribute(c"user.a").expect("none"));
    file.attributes().expect("none");
}

fn metadata_is_set_as_a_whole(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    let attributes = [(c"user.a".to_owned(), b"1".to_vec()), (c"user.b".to_owned(), b"2".to_vec())];
    let metadata = Metadata {
        attributes: Cow::Borrowed(&attributes),
        mode: Some(0o640),
        times: Times { atime: time(1_000_000_000, 0), mtime: time(1_000_000_002, 0) },
        ..Metadata::default()
    };
    let file = hold(&*root, "f");
    file.set_metadata(&metadata).expect("set");
    let found = stat(&*root, "f");
    assert_eq!((found.mode, Times::of(&found)), (0o640, metadata.times));
    for (name, value) in &attributes {
        assert_eq!(file.attribute(name).expect("read").as_ref(), Some(value));
    }
}

fn set_user_id_survives_the_owner(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    let metadata = Metadata { user: Some(12), group: Some(34), mode: Some(0o6755), ..Metadata::default() };
    hold(&*root, "f").set_metadata(&metadata).expect("set");
    let found = stat(&*root, "f");
    assert_eq!((found.uid, found.gid, found.mode), (12, 34, 0o6755));
}

fn empty_metadata_changes_nothing(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    let before = stat(&*root, "f");
    hold(&*root, "f").set_metadata(&Metadata::default()).expect("nothing to set");
    assert_eq!(stat(&*root, "f"), before);
}

fn metadata_stops_at_the_first_part_that_fails(subject: &dyn Subject) {
    let root = subject.root();
    symlink(&*root, "l", "none");
    let before = stat(&*root, "l").mtime;
    let times = Times { atime: None, mtime: time(1_000_000_000, 0) };
    let metadata = Metadata { mode: Some(0o600), times, ..Metadata::default() };
    let unset = hold(&*root, "l").set_metadata(&metadata).expect_err("a link has no mode");
    assert_eq!((unset.part, unset.error.kind()), (Part::Mode, ErrorKind::Unsupported));
    assert_eq!(stat(&*root, "l").mtime, before, "the times come after the mode");
}

fn attribute_that_fails_is_named(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    let name = c"haul-has-no-such-class.a".to_owned();
    let attributes = [(name.clone(), b"value".to_vec())];
    let metadata = Metadata { attributes: Cow::Borrowed(&attributes), ..Metadata::default() };
    let unset = hold(&*root, "f").set_metadata(&metadata).expect_err("unsupported");
    assert_eq!((unset.part, unset.error.kind()), (Part::Attribute(name), ErrorKind::Unsupported));
}

fn metadata_is_seen_by_all_handles(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    let (held, source, sink) = (hold(&*root, "f"), open(&*root, "f"), in_place(&*root, "f"));
    sink.set_mode(0o640).expect("set");
    for found in [held.stat(), source.stat(), sink.stat()] {
        let found = found.expect("found");
        assert_eq!((found.kind, found.mode), (FileKind::Regular, 0o640));
    }
    assert_eq!(source.opened().mode, 0o600, "as it was opened");
}

fn setting_metadata_changes_the_change_time(subject: &dyn Subject) {
    let root = subject.root();
    write(&*root, "f", b"");
    let times = Times { atime: time(1_000_000_000, 0), mtime: time(1_000_000_000, 0) };
    let file = hold(&*root, "f");
    file.set_times(times).expect("set");
    let after = stat(&*root, "f");
    assert!(after.ctime > after.mtime, "no call sets the change time to a value of its choice");
}
