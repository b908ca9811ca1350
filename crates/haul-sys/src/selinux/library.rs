//! libselinux, loaded at run time.

use super::{Context, Policy};
use crate::stat::FileKind;
use parking_lot::{Mutex, MutexGuard};
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_ushort, c_void};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// File name of the library, the same on every system for twenty years.
const NAME: &str = "libselinux.so.1";

/// `SELABEL_CTX_FILE`: the list of contexts for paths.
const LIST_OF_PATHS: c_uint = 0;

/// `SELABEL_OPT_PATH`: path of a list to use in place of the policy's own.
const OPTION_PATH: c_int = 3;

/// `struct selinux_opt`.
#[repr(C)]
struct ListOption {
    kind: c_int,
    value: *const c_char,
}

type Text = *const c_char;
type NewText = *mut *mut c_char;
type OpenList = unsafe extern "C" fn(c_uint, *const ListOption, c_uint) -> *mut c_void;
type LookUp = unsafe extern "C" fn(*mut c_void, NewText, Text, c_int) -> c_int;
type ComputeCreate = unsafe extern "C" fn(Text, Text, c_ushort, NewText) -> c_int;

/// Functions of the library, under their names in the library. The "raw" ones use contexts in the
/// form of the kernel.
struct Functions {
    is_selinux_enabled: unsafe extern "C" fn() -> c_int,
    selabel_open: OpenList,
    selabel_lookup_raw: LookUp,
    getcon_raw: unsafe extern "C" fn(NewText) -> c_int,
    security_compute_create_raw: ComputeCreate,
    mode_to_security_class: unsafe extern "C" fn(libc::mode_t) -> c_ushort,
    setfscreatecon_raw: unsafe extern "C" fn(Text) -> c_int,
    selinux_trans_to_raw_context: unsafe extern "C" fn(Text, NewText) -> c_int,
    freecon: unsafe extern "C" fn(*mut c_char),
}

/// libselinux. Once loaded, it stays loaded until the process exits.
pub struct Library {
    functions: Functions,
    /// List of paths, after its first use.
    list: Mutex<Option<List>>,
    /// Path of the list; `None` for the policy's own.
    list_path: Option<CString>,
}

/// List of paths that the library has read.
struct List(*mut c_void);

// SAFETY: the library ties the list to no thread, and only the holder of the lock around the list
// accesses it.
unsafe impl Send for List {}

impl Library {
    /// Loads the library of this system.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no library, or if it lacks one of the functions.
    pub fn load() -> Result<Library, libloading::Error> {
        // SAFETY: the initialization code of libselinux only examines paths. It runs in every tool
        // that is linked with the library.
        let library = unsafe { libloading::Library::new(NAME) }?;
        // SAFETY: <selinux/selinux.h> and <selinux/label.h> have declared these types for these
        // names since 2.1.12 (2012). An incompatible change would change the name of the library.
        let functions = unsafe {
            Functions {
                is_selinux_enabled: *library.get("is_selinux_enabled")?,
                selabel_open: *library.get("selabel_open")?,
                selabel_lookup_raw: *library.get("selabel_lookup_raw")?,
                getcon_raw: *library.get("getcon_raw")?,
                security_compute_create_raw: *library.get("security_compute_create_raw")?,
                mode_to_security_class: *library.get("mode_to_security_class")?,
                setfscreatecon_raw: *library.get("setfscreatecon_raw")?,
                selinux_trans_to_raw_context: *library.get("selinux_trans_to_raw_context")?,
                freecon: *library.get("freecon")?,
            }
        };
        // The functions may be called until the process exits, so the library is never unloaded.
        std::mem::forget(library);
        Ok(Library { functions, list: Mutex::new(None), list_path: None })
    }

    /// Replaces the policy's own list of paths with another one: that of another system, or one
    /// under test.
    #[must_use]
    pub fn with_list(self, path: &CStr) -> Library {
        Library { list: Mutex::new(None), list_path: Some(path.to_owned()), ..self }
    }

    /// Returns true if the kernel labels files by SELinux for this process.
    pub fn is_enabled(&self) -> bool {
        // SAFETY: the function takes no arguments and reads what the library determined when it was
        // loaded.
        (unsafe { (self.functions.is_selinux_enabled)() }) > 0
    }

    /// Returns the list of paths, and reads it if that has not happened yet.
    fn list(&self) -> io::Result<MutexGuard<'_, Option<List>>> {
        let mut list = self.list.lock();
        if list.is_none() {
            *list = Some(self.open_list()?);
        }
        Ok(list)
    }

    fn open_list(&self) -> io::Result<List> {
        let own = self.list_path.as_ref().map(|path| ListOption { kind: OPTION_PATH, value: path.as_ptr() });
        let (options, count) = own.as_ref().map_or((ptr::null(), 0), |own| (ptr::from_ref(own), 1));
        // SAFETY: `options` points to `count` options, whose text outlives the call; the call keeps
        // neither.
        let list = unsafe { (self.functions.selabel_open)(LIST_OF_PATHS, options, count) };
        if list.is_null() { Err(io::Error::last_os_error()) } else { Ok(List(list)) }
    }

    /// Calls a function that stores a new context through a pointer and returns a negative number
    /// on error.
    fn taken(&self, call: impl FnOnce(NewText) -> c_int) -> io::Result<Context> {
        let mut text = ptr::null_mut();
        if call(&raw mut text) < 0 {
            return Err(io::Error::last_os_error());
        }
        if text.is_null() {
            // No context and no error: processes and files have none while no policy is loaded.
            return Err(io::Error::from_raw_os_error(libc::ENODATA));
        }
        // SAFETY: the call has set `text` to a NUL-terminated string that this process owns until
        // it frees it.
        let context = Context::written(unsafe { CStr::from_ptr(text) }.to_bytes());
        // SAFETY: the string is freed once, by the function that the library provides, and not used
        // afterwards.
        unsafe { (self.functions.freecon)(text) };
        Ok(context)
    }
}

impl Policy for Library {
    fn read_paths(&self) -> io::Result<()> {
        self.list().map(drop)
    }

    fn of_path(&self, path: &Path, kind: FileKind) -> io::Result<Context> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let list = self.list()?;
        let handle = list.as_ref().map_or(ptr::null_mut(), |list| list.0);
        let kind = c_int::try_from(kind_bits(kind)).unwrap_or_default();
        // SAFETY: the list is open, and the lock excludes other users; `path` is NUL-terminated.
        self.taken(|text| unsafe { (self.functions.selabel_lookup_raw)(handle, text, path.as_ptr(), kind) })
    }

    fn of_new(&self, directory: &Context, kind: FileKind) -> io::Result<Context> {
        // SAFETY: the function stores the context of the process through the pointer.
        let own = self.taken(|text| unsafe { (self.functions.getcon_raw)(text) })?;
        // SAFETY: the function takes a number.
        let class = unsafe { (self.functions.mode_to_security_class)(kind_bits(kind)) };
        if class == 0 {
            return Err(io::Error::last_os_error());
        }
        let (own, directory) = (own.as_c_str().as_ptr(), directory.as_c_str().as_ptr());
        // SAFETY: both contexts are NUL-terminated and outlive the call.
        self.taken(|text| unsafe {
            (self.functions.security_compute_create_raw)(own, directory, class, text)
        })
    }

    fn parse_context(&self, typed: &OsStr) -> io::Result<Context> {
        let typed = CString::new(typed.as_bytes())?;
        // SAFETY: `typed` is NUL-terminated and outlives the call.
        self.taken(|text| unsafe { (self.functions.selinux_trans_to_raw_context)(typed.as_ptr(), text) })
    }

    fn label_new_files(&self, context: Option<&Context>) -> io::Result<()> {
        let text = context.map_or(ptr::null(), |context| context.as_c_str().as_ptr());
        // SAFETY: `text` is null, which resets the context, or is NUL-terminated and outlives the
        // call.
        match unsafe { (self.functions.setfscreatecon_raw)(text) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)
    }
}

/// Returns the file-type bits of st_mode.
fn kind_bits(kind: FileKind) -> libc::mode_t {
    match kind {
        FileKind::Regular => libc::S_IFREG,
        FileKind::Directory => libc::S_IFDIR,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::Fifo => libc::S_IFIFO,
        FileKind::Socket => libc::S_IFSOCK,
        FileKind::CharDevice => libc::S_IFCHR,
        FileKind::BlockDevice => libc::S_IFBLK,
        FileKind::Unknown => 0,
    }
}
