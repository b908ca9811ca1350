//! Security context: the label that SELinux gives a file.

use super::CONTEXT;
use crate::metadata::{Place, get_xattr, set_xattr};
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;

/// `user:role:type`, on most systems followed by `:range`, which may contain more colons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context(CString);

impl Context {
    /// Returns the context with this text, unchecked. As usual, a NUL ends the text.
    pub fn written(text: &[u8]) -> Context {
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        Context(CString::new(&text[..end]).unwrap_or_default())
    }

    /// Returns the label of a file; for a symbolic link, that of the link itself.
    ///
    /// # Errors
    ///
    /// Returns `ENODATA` if the file has no label, `EOPNOTSUPP` if its file system does not support
    /// labels, and the other errors of getxattr(2).
    pub fn of(place: Place<'_>) -> io::Result<Context> {
        let none = || io::Error::from_raw_os_error(libc::ENODATA);
        get_xattr(place, CONTEXT)?.map(|text| Context::written(&text)).ok_or_else(none)
    }

    /// Labels a file.
    ///
    /// # Errors
    ///
    /// Returns the errors of setxattr(2).
    pub fn set(&self, place: Place<'_>) -> io::Result<()> {
        set_xattr(place, CONTEXT, self.0.as_bytes_with_nul())
    }

    /// Returns this context with the type of `other`.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if one of the two contexts has no type.
    pub fn with_type_of(&self, other: &Context) -> io::Result<Context> {
        let parts = |context: &Context| -> Option<Vec<Vec<u8>>> {
            let parts: Vec<Vec<u8>> =
                context.0.as_bytes().splitn(4, |&byte| byte == b':').map(<[u8]>::to_vec).collect();
            (parts.len() >= 3).then_some(parts)
        };
        let (Some(mut own), Some(mut others)) = (parts(self), parts(other)) else {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        };
        own[2] = others.swap_remove(2);
        Ok(Context::written(&own.join(&b':')))
    }

    /// Returns the text for a C library.
    pub fn as_c_str(&self) -> &CStr {
        &self.0
    }

    /// Returns the text for messages.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(self.0.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_type_of_takes_only_the_type() {
        let typed = |own: &str, other: &str| {
            let taken = Context::written(own.as_bytes()).with_type_of(&Context::written(other.as_bytes()));
            taken.map(|context| context.as_os_str().to_str().unwrap().to_owned()).ok()
        };
        assert_eq!(typed("u:r:t:s0", "x:y:z").as_deref(), Some("u:r:z:s0"));
        assert_eq!(typed("u:r:t", "x:y:z:s0").as_deref(), Some("u:r:z"));
        assert_eq!(typed("u:r:t:s0-s0:c0.c1023", "x:y:z:s0:c1,c2").as_deref(), Some("u:r:z:s0-s0:c0.c1023"));
        assert_eq!(typed("u:r", "x:y:z"), None);
        assert_eq!(typed("u:r:t", "z"), None);
    }

    #[test]
    fn trailing_nul_is_not_part_of_a_context() {
        assert_eq!(Context::written(b"u:r:t\0"), Context::written(b"u:r:t"));
        assert_eq!(Context::written(b"u:r:t").as_c_str(), c"u:r:t");
    }
}
