//! libselinux, loaded at run time.

use super::{Context, Policy};
use crate::stat::FileKind;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_ushort, c_void};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The name under which it has stood on every system for twenty years.
const NAME: &str = "libselinux.so.1";

/// `SELABEL_CTX_FILE`: the list that has contexts for paths.
const LIST_OF_PATHS: c_uint = 0;

/// `SELABEL_OPT_PATH`: the list is this file, and not the policy's own.
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

/// The library's functions, by the names it has for them. The "raw" ones take and give contexts as the kernel writes them.
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

/// libselinux, once loaded there until the process ends.
pub struct Library {
    functions: Functions,
    /// The list of paths, once it was needed.
    list: Mutex<Option<List>>,
    /// Where it is; `None` for the policy's own.
    list_path: Option<CString>,
}

/// A list of paths that the library has read.
struct List(*mut c_void);

// SAFETY: the library ties the list to no thread, and only whoever holds the lock around it looks into it.
unsafe impl Send for List {}

impl Library {
    /// Loads the library of this system.
    ///
    /// # Errors
    /// There is none, or it lacks one of the functions.
    pub fn load() -> Result<Library, libloading::Error> {
        // SAFETY: what runs as libselinux is loaded does nothing but look at paths: every tool that is linked with it starts so.
        let library = unsafe { libloading::Library::new(NAME) }?;
        // SAFETY: these are the types that <selinux/selinux.h> and <selinux/label.h> have declared for these names since 2.1.12
        // (2012); a change would change the name of the library.
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
        // The functions are called for as long as the process lives.
        std::mem::forget(library);
        Ok(Library { functions, list: Mutex::new(None), list_path: None })
    }

    /// With another list of paths than the policy's own: that of another system, or one that is tried out.
    #[must_use]
    pub fn with_list(self, path: &CStr) -> Library {
        Library { list: Mutex::new(None), list_path: Some(path.to_owned()), ..self }
    }

    /// Whether the kernel labels files by SELinux, for this process.
    pub fn is_enabled(&self) -> bool {
        // SAFETY: takes nothing, and looks at what the library found out when it was loaded.
        (unsafe { (self.functions.is_selinux_enabled)() }) > 0
    }

    /// The list of paths, read by now.
    fn list(&self) -> io::Result<MutexGuard<'_, Option<List>>> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.is_none() {
            *list = Some(self.open_list()?);
        }
        Ok(list)
    }

    fn open_list(&self) -> io::Result<List> {
        let own = self.list_path.as_ref().map(|path| ListOption { kind: OPTION_PATH, value: path.as_ptr() });
        let (options, count) = own.as_ref().map_or((ptr::null(), 0), |own| (ptr::from_ref(own), 1));
        // SAFETY: `options` points to `count` options, whose text lives as long as this; the call keeps neither.
        let list = unsafe { (self.functions.selabel_open)(LIST_OF_PATHS, options, count) };
        if list.is_null() { Err(io::Error::last_os_error()) } else { Ok(List(list)) }
    }

    /// Calls what writes a new context to where it is told, and says by a number below 0 that it could not.
    fn taken(&self, call: impl FnOnce(NewText) -> c_int) -> io::Result<Context> {
        let mut text = ptr::null_mut();
        if call(&raw mut text) < 0 {
            return Err(io::Error::last_os_error());
        }
        if text.is_null() {
            // No context, and no failure: a process or a file has none where the policy is not loaded yet.
            return Err(io::Error::from_raw_os_error(libc::ENODATA));
        }
        // SAFETY: the call has set `text` to a string with a NUL at its end, which is this process's until it is freed.
        let context = Context::written(unsafe { CStr::from_ptr(text) }.to_bytes());
        // SAFETY: it is freed once, by the function that the library has for it, and not looked at any more.
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
        // SAFETY: the list is open, and nobody else looks into it while the lock is held; `path` ends in NUL.
        self.taken(|text| unsafe { (self.functions.selabel_lookup_raw)(handle, text, path.as_ptr(), kind) })
    }

    fn of_new(&self, directory: &Context, kind: FileKind) -> io::Result<Context> {
        // SAFETY: writes the process's context to where it is told.
        let own = self.taken(|text| unsafe { (self.functions.getcon_raw)(text) })?;
        // SAFETY: takes a number.
        let class = unsafe { (self.functions.mode_to_security_class)(kind_bits(kind)) };
        if class == 0 {
            return Err(io::Error::last_os_error());
        }
        let (own, directory) = (own.as_c_str().as_ptr(), directory.as_c_str().as_ptr());
        // SAFETY: both contexts end in NUL, and live as long as the call.
        self.taken(|text| unsafe {
            (self.functions.security_compute_create_raw)(own, directory, class, text)
        })
    }

    fn meant_by(&self, typed: &OsStr) -> io::Result<Context> {
        let typed = CString::new(typed.as_bytes())?;
        // SAFETY: `typed` ends in NUL, and lives as long as the call.
        self.taken(|text| unsafe { (self.functions.selinux_trans_to_raw_context)(typed.as_ptr(), text) })
    }

    fn label_new_files(&self, context: Option<&Context>) -> io::Result<()> {
        let text = context.map_or(ptr::null(), |context| context.as_c_str().as_ptr());
        // SAFETY: `text` is null, which takes back what was said, or ends in NUL and lives as long as the call.
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

/// The bits of st_mode that say what a file is.
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
