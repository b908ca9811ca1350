//! Location of the state directory.

use super::LogError;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Returns the state directory: the requested one (`--state-dir`), else `haul` in `$XDG_STATE_HOME`
/// or in `.local/state` of the home directory. A relative path in a variable is ignored, as the XDG
/// base directory specification (0.8) requires.
///
/// # Errors
/// [`LogError::Homeless`] if none of them is set.
pub fn state_dir(
    asked: Option<&Path>,
    xdg_state_home: Option<&OsStr>,
    home: Option<&OsStr>,
) -> Result<PathBuf, LogError> {
    let absolute = |path: &OsStr| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let of_home = || home.and_then(absolute).map(|home| home.join(".local/state"));
    let own = || xdg_state_home.and_then(absolute).or_else(of_home).map(|state| state.join("haul"));
    asked.map(Path::to_path_buf).or_else(own).ok_or(LogError::Homeless)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_directory_is_the_option_then_xdg_then_home() {
        let at = |asked: Option<&str>, xdg: Option<&str>, home: Option<&str>| {
            state_dir(asked.map(Path::new), xdg.map(OsStr::new), home.map(OsStr::new)).ok()
        };
        assert_eq!(at(Some("here"), Some("/x"), Some("/h")), Some("here".into()));
        assert_eq!(at(None, Some("/x"), Some("/h")), Some("/x/haul".into()));
        assert_eq!(at(None, Some("relative"), Some("/h")), Some("/h/.local/state/haul".into()));
        assert_eq!(at(None, Some(""), Some("/h")), Some("/h/.local/state/haul".into()));
        assert_eq!(at(None, None, None), None);
    }
}
