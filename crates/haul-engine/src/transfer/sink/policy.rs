//! Entries and metadata that a sink creates only if its own user asks for them.
//!
//! A peer announces what it likes, so the sink checks each entry against its own policy before it
//! creates anything.

use haul_model::RelPath;
use haul_proto::{FileKind, NewFile, Reason, Why};

/// Prefixes of the extended attributes that every sink accepts: those that any user may set, and
/// access control lists. All other attributes configure the system: `security.*` labels and
/// capabilities, `trusted.*` of root, `system.*` of file systems.
const COMMON_ATTRIBUTES: [&[u8]; 3] = [b"user.", b"system.posix_acl_", b"system.nfs4_acl"];

/// Entries and metadata that a sink accepts beyond files, directories, links within its root and
/// ordinary attributes. The default accepts none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkPolicy {
    /// True to create named pipes, sockets and devices.
    pub specials: bool,
    /// True to create symbolic links whose target is not beneath the root.
    pub outside_links: bool,
    /// True to set extended attributes outside `user.*` and access control lists.
    pub system_xattrs: bool,
}

impl SinkPolicy {
    /// The policy that accepts everything, for peers that are trusted as much as this user.
    pub const ALL: SinkPolicy = SinkPolicy { specials: true, outside_links: true, system_xattrs: true };

    /// Checks that an entry without data may be created at `path`, whose directory is `depth`
    /// levels further below the root than `path` shows.
    ///
    /// # Errors
    /// Returns [`Why::Denied`] and the option that accepts the entry.
    pub(super) fn check(self, facts: &NewFile, path: &RelPath, depth: usize) -> Result<(), Reason> {
        let refusal = match &facts.kind {
            FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice { .. }
            | FileKind::BlockDevice { .. }
                if !self.specials =>
            {
                "special files are accepted only with --specials at the receiver"
            }
            FileKind::Symlink { target } => return self.check_target(target, path, depth),
            _ => return Ok(()),
        };
        Err(Reason::new(Why::Denied, refusal))
    }

    /// Checks that a symbolic link to `target` may be created at `path`, as [`SinkPolicy::check`]
    /// does.
    ///
    /// # Errors
    /// Same as [`SinkPolicy::check`].
    pub(super) fn check_target(self, target: &[u8], path: &RelPath, depth: usize) -> Result<(), Reason> {
        if self.outside_links || !leaves(target, depth + path.parts().count() - 1) {
            return Ok(());
        }
        let refusal = "its target is outside the destination: such links are accepted only with --outside-links at the receiver";
        Err(Reason::new(Why::Denied, refusal))
    }

    /// Returns true if the sink accepts the extended attribute `name`.
    pub(super) fn accepts_attribute(self, name: &[u8]) -> bool {
        self.system_xattrs || COMMON_ATTRIBUTES.iter().any(|prefix| name.starts_with(prefix))
    }
}

/// Returns true if the target of a symbolic link in a directory `depth` levels below the root can
/// be outside the root.
///
/// A leading `..` is exact, because the directory of the link was resolved without links. After a
/// name, `..` leads to the parent of whatever that name links to. Such a target therefore counts as
/// outside.
fn leaves(target: &[u8], depth: usize) -> bool {
    let parts = target.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    let (mut climbs, mut has_name) = (0, false);
    for part in parts {
        match part {
            b".." if has_name => return true,
            b".." => climbs += 1,
            _ => has_name = true,
        }
    }
    target.first() == Some(&b'/') || climbs > depth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_outside_the_root_are_recognized() {
        for (target, depth) in
            [("/etc", 3), ("/", 0), ("..", 0), ("a/..", 0), ("a/../..", 1), ("../../x", 1), (".//../x", 0)]
        {
            assert!(leaves(target.as_bytes(), depth), "{target} at {depth}");
        }
        for (target, depth) in [("x", 0), ("..", 1), ("../../a/b", 2), ("./a//b/", 0), ("..x", 0), ("", 0)] {
            assert!(!leaves(target.as_bytes(), depth), "{target} at {depth}");
        }
    }

    #[test]
    fn ordinary_attributes_are_accepted_and_those_of_the_system_only_if_asked_for() {
        let [strict, open] = [SinkPolicy::default(), SinkPolicy::ALL];
        for name in ["user.note", "system.posix_acl_access", "system.posix_acl_default", "system.nfs4_acl"] {
            assert!(strict.accepts_attribute(name.as_bytes()), "{name}");
        }
        for name in [
            "security.capability",
            "security.selinux",
            "trusted.overlay.opaque",
            "system.sockprotoname",
            "user",
        ] {
            assert!(
                !strict.accepts_attribute(name.as_bytes()) && open.accepts_attribute(name.as_bytes()),
                "{name}"
            );
        }
    }
}
