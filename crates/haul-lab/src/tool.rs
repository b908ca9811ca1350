//! Runner of the system programs that create mounts and links.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use thiserror::Error;

/// Error of running a system program.
#[derive(Debug, Error)]
pub enum ToolError {
    /// The program could not be started.
    #[error("cannot run {program}: {source}")]
    Start {
        /// Name of the program.
        program: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The program failed.
    #[error("{command} failed: {said}")]
    Failed {
        /// Command line.
        command: String,
        /// Standard error output of the program.
        said: String,
    },
}

/// Runs a program and waits for its end.
///
/// # Errors
/// Returns [`ToolError`] if the program cannot be started or fails.
pub(crate) fn run<S: AsRef<OsStr>>(program: &'static str, args: &[S]) -> Result<(), ToolError> {
    let mut command = Command::new(program);
    // mkfs, mount and tc are in /sbin, which a user's PATH may not contain.
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
    fn failing_program_error_gives_the_cause() {
        let error = run("ls", &["/no/such/directory/here"]).unwrap_err();
        assert!(error.to_string().starts_with("ls /no/such/directory/here failed: "), "{error}");
        assert!(matches!(run::<&str>("no-such-program", &[]), Err(ToolError::Start { .. })));
    }
}
