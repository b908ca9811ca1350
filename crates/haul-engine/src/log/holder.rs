//! Holder of a job lock: its record in the lock file.

use haul_sys::process;
use std::fmt;

/// Current or last holder of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// PID of the holder, if the lock file contains one.
    pub pid: Option<u32>,
    /// Host name of the holder.
    pub host: String,
}

impl Holder {
    pub(super) fn current_process() -> Holder {
        Holder { pid: Some(std::process::id()), host: process::host_name() }
    }

    pub(super) fn encode(&self) -> String {
        let pid = self.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
        format!("{pid} {}\n", self.host)
    }

    /// Decodes the contents of a lock file. Returns `None` for an empty file: the holder released
    /// the job cleanly.
    pub(super) fn decode(text: &str) -> Option<Holder> {
        let line = text.strip_suffix('\n').unwrap_or(text);
        let (pid, host) = line.split_once(' ').unwrap_or((line, ""));
        let host = host.chars().filter(|c| c.is_ascii_graphic()).collect();
        (!text.is_empty()).then(|| Holder { pid: pid.parse().ok(), host })
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder { pid: None, .. } => f.write_str("another process"),
            Holder { pid: Some(pid), host } if host.is_empty() => write!(f, "process {pid}"),
            Holder { pid: Some(pid), host } => write!(f, "process {pid} on {host}"),
        }
    }
}

/// Checks for any bytes that they are a holder record, or none, and that an accepted record is the
/// same after it is written and read again.
pub(crate) fn any(bytes: &[u8]) {
    if let Some(holder) = Holder::decode(&String::from_utf8_lossy(bytes)) {
        assert!(!holder.to_string().contains(char::is_control));
        assert_eq!(Holder::decode(&holder.encode()), Some(holder));
    }
}
