//! Access control lists as Linux stores them in extended attributes: users and groups that they
//! contain by number (linux/posix_acl_xattr.h).
//!
//! ```text
//! u32 2 | of each entry: u16 tag | u16 permissions | u32 number of a user or a group, where the
//! tag says that there is one
//! ```

/// Prefix of the attribute names.
const PREFIX: &[u8] = b"system.posix_acl_";

/// Version number before the entries.
const VERSION: [u8; 4] = [2, 0, 0, 0];

/// Size of an entry, and offset of the number in it, in bytes.
const ENTRY: usize = 8;
const NUMBER: usize = 4;

/// Tags of entries for a named user or group.
const USER: [u8; 2] = [2, 0];
const GROUP: [u8; 2] = [8, 0];

/// Name of the attribute with an access control list of NFSv4 (RFC 8881, section 6). On a mounted
/// file system of NFS it names users and groups by text.
const NFS4_ACL: &[u8] = b"system.nfs4_acl";

/// Returns true if an attribute with this name is an access control list of Linux.
pub(super) fn is_acl(name: &[u8]) -> bool {
    name.starts_with(PREFIX)
}

/// Returns true if an attribute with this name is an access control list of NFSv4. A later change
/// of the mode would change it.
pub(super) fn is_nfs4_acl(name: &[u8]) -> bool {
    name == NFS4_ACL
}

/// Returns the users and groups in a list: true for a group, and the number. Returns none if the
/// value is not a valid list.
pub(super) fn named(list: &[u8]) -> impl Iterator<Item = (bool, u32)> {
    let entries = list.strip_prefix(&VERSION).unwrap_or_default();
    entries.chunks_exact(ENTRY).filter_map(principal)
}

/// Returns the same list with the numbers that `renumber` returns for each user and group in it.
pub(super) fn map_ids(list: &[u8], mut renumber: impl FnMut(bool, u32) -> u32) -> Vec<u8> {
    let mut list = list.to_vec();
    let entries = if list.starts_with(&VERSION) { &mut list[VERSION.len()..] } else { &mut [] };
    for entry in entries.chunks_exact_mut(ENTRY) {
        if let Some((is_group, number)) = principal(entry) {
            entry[NUMBER..].copy_from_slice(&renumber(is_group, number).to_le_bytes());
        }
    }
    list
}

fn principal(entry: &[u8]) -> Option<(bool, u32)> {
    let (tag, number): (&[u8; 2], &[u8; 4]) = (entry.first_chunk()?, entry.last_chunk()?);
    (*tag == USER || *tag == GROUP).then(|| (*tag == GROUP, u32::from_le_bytes(*number)))
}

/// Checks for any bytes that they are a list, or stay as they are, and that other numbers change
/// nothing else.
pub(crate) fn any_acl(list: &[u8]) {
    let found: Vec<(bool, u32)> = named(list).collect();
    assert!(found.len() <= list.len() / ENTRY);
    assert_eq!(map_ids(list, |_, number| number), list);
    let turned = map_ids(list, |_, number| !number);
    assert_eq!(turned.len(), list.len());
    assert!(named(&turned).eq(found.iter().map(|&(is_group, number)| (is_group, !number))));
    assert_eq!(map_ids(&turned, |_, number| !number), list);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a list of these entries.
    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let bytes = |&(tag, permissions, number): &(u16, u16, u32)| {
            [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &number.to_le_bytes()].concat()
        };
        [&VERSION[..], &entries.iter().flat_map(bytes).collect::<Vec<u8>>()].concat()
    }

    /// The owner, a user, the owning group, a group, the mask, and all others.
    fn usual(user: u32, group: u32) -> Vec<u8> {
        const NOBODY: u32 = u32::MAX;
        list(&[(1, 6, NOBODY), (2, 4, user), (4, 4, NOBODY), (8, 5, group), (16, 7, NOBODY), (32, 0, NOBODY)])
    }

    #[test]
    fn acl_user_and_group_ids_are_renumbered() {
        let before = usual(7, 8);
        assert_eq!(named(&before).collect::<Vec<_>>(), [(false, 7), (true, 8)]);
        let after = map_ids(&before, |is_group, number| number + if is_group { 100 } else { 1000 });
        assert_eq!(after, usual(1007, 108));
        assert!(is_acl(b"system.posix_acl_default") && !is_acl(b"user.posix_acl_default"));
    }

    #[test]
    fn malformed_acl_has_no_ids_and_stays_unchanged() {
        let whole = usual(7, 8);
        let mut newer = whole.clone();
        newer[0] = 3;
        for strange in [newer, Vec::new(), whole[..3].to_vec(), vec![9; 300]] {
            assert_eq!(named(&strange).count(), 0);
            assert_eq!(map_ids(&strange, |_, _| 5), strange);
        }
        for cut in 0..whole.len() {
            assert_eq!(map_ids(&whole[..cut], |_, number| number), whole[..cut]);
        }
    }
}
