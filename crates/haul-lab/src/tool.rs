//! Programs of the system that mounts and links are made by.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use thiserror::Error;

/// A program of the system did not do its part.
#[derive(Debug, Error)]
pub enum ToolError {
    /// It could not be started.
    #[error("cannot run {program}: {source}")]
    Start {
        /// Its name.
        program: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It failed.
    #[error("{command} failed: {said}")]
    Failed {
        /// Its command line.
        command: String,
        /// What it wrote to standard error.
        said: String,
    },
}

/// Runs a program to its end.
///
/// # Errors
/// [`ToolError`].
pub(crate) fn run<S: AsRef<OsStr>>(program: &'static str, args: &[S]) -> Result<(), ToolError> {
    let mut command = Command::new(program);
    // mkfs, mount and tc live in /sbin, which a user's path need not hold.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    dirs.extend(["/usr/sbin".into(), "/sbin".into()]);
    if let Ok(path) = std::env::join_paths(dirs) {
        command.env("PATH", path);
    }
    let output = command.args(args).output().map_err(|source| ToolError::Start { program, source })?;
    if output.status.success() {
        return Ok(());
    }
    let words = args.iter().map(|word| format!(" {}", word.as_ref().display()));
    let command = std::iter::once(program.to_owned()).chain(words).collect();
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(ToolError::Failed { command, said })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_says_why() {
        let error = run("ls", &["/no/such/directory/here"]).unwrap_err();
        assert!(error.to_string().starts_with("ls /no/such/directory/here failed: "), "{error}");
        assert!(matches!(run::<&str>("no-such-program", &[]), Err(ToolError::Start { .. })));
    }
}
