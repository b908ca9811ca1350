//! Extended attributes that a copy of a file must not have.

use std::ffi::CStr;

/// Attributes that no copy has. They are permissions, which are preserved in their own way, and
/// internal data of a file system or the kernel. The list comes from `xattr.conf` of the attr
/// package.
const NOT_COPIED: [&[u8]; 9] = [
    b"system.nfs4_acl",
    b"system.nfs4acl",
    b"system.posix_acl_access",
    b"system.posix_acl_default",
    b"security.evm",
    b"trusted.SGI_ACL_DEFAULT",
    b"trusted.SGI_ACL_FILE",
    b"trusted.SGI_CAP_FILE",
    b"trusted.SGI_MAC_FILE",
];

/// Like [`NOT_COPIED`], for all attributes with these prefixes.
const NOT_COPIED_PREFIXES: [&[u8]; 4] = [b"trusted.SGI_DMI_", b"xfsroot.", b"user.Beagle.", b"afs."];

/// Namespace of Lustre for the layout of a file. A layout that is read holds a generation where a
/// layout that is set holds the first storage target. With a copied one, each new file would start
/// on the first target of the file system, whatever space the others have.
const LUSTRE_NAMESPACE: &[u8] = b"lustre.";

/// Attributes `trusted.NAME` in which Lustre keeps the layout, the identity and the state of each
/// file. On other file systems such a name is an ordinary attribute.
const OF_LUSTRE: [&[u8]; 11] =
    [b"lov", b"lma", b"lmv", b"dmv", b"som", b"link", b"fid", b"version", b"hsm", b"lfsck_bitmap", b"dummy"];

/// Returns true if an extended attribute belongs to the file itself, so that copies must preserve
/// it. `on_lustre` returns true if the file or its copy is on Lustre.
pub fn is_attribute_copied(name: &CStr, on_lustre: impl FnOnce() -> bool) -> bool {
    let name = name.to_bytes();
    !NOT_COPIED.contains(&name)
        && !NOT_COPIED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        && !is_of_lustre(name, on_lustre)
}

/// Returns true for an attribute that Lustre itself maintains.
pub(crate) fn is_of_lustre(name: &[u8], on_lustre: impl FnOnce() -> bool) -> bool {
    let is_own = name.strip_prefix(b"trusted.").is_some_and(|name| OF_LUSTRE.contains(&name));
    name.starts_with(LUSTRE_NAMESPACE) || (is_own && on_lustre())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn layouts_and_identities_of_lustre_are_never_copied() {
        for name in [c"lustre.lov", c"lustre.lov.set", c"lustre.fid"] {
            assert!(!is_attribute_copied(name, || false), "{name:?}");
        }
        for name in OF_LUSTRE {
            let name = CString::new([b"trusted.", name].concat()).unwrap();
            assert!(!is_attribute_copied(&name, || true) && is_attribute_copied(&name, || false), "{name:?}");
        }
        for name in [
            c"user.lov",
            c"user.lustre.lov",
            c"trusted.overlay.opaque",
            c"trusted.lov2",
            c"security.capability",
        ] {
            assert!(is_attribute_copied(name, || true), "{name:?}");
        }
    }
}
