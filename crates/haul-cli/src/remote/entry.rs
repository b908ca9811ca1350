//! Record of a transfer on the side that started it, for `haul jobs`. The log of the sink says
//! which data arrived.

use crate::progress::ProgressSnapshot;
use haul_engine::log::{CommandLine, LockedJob, LogError, RecordWriter, identity, prune};
use haul_engine::transfer::Tally;
use haul_log::objects::Identity;
use haul_log::record::Status;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Interval between two records of the progress.
const RECORD_INTERVAL: Duration = Duration::from_secs(2);

/// Options that affect only the speed and the output, and whether each takes a value in the next
/// argument. They do not change the identity of the job.
const ASIDE: [(&[u8], bool); 18] = [
    (b"--forget", false),
    (b"--rate", true),
    (b"--streams", true),
    (b"--buffers", true),
    (b"--cc", true),
    (b"--compress", false),
    (b"--mptcp", false),
    (b"--transport", true),
    (b"--packet-check", true),
    (b"--chunk-size", true),
    (b"--stats-csv", true),
    (b"--plot", true),
    (b"--progress", false),
    (b"--json", false),
    (b"--quiet", false),
    (b"-q", false),
    (b"--verbose", false),
    (b"-v", false),
];

/// Returns the arguments of this command without the program's name.
pub(crate) fn words() -> Vec<OsString> {
    std::env::args_os().skip(1).collect()
}

/// Returns the identity of a job: a command line and its working directory. Options that change
/// neither the bytes that arrive nor their destination make no other job.
pub(crate) fn job(kind: &str, words: &[OsString], cwd: &Path) -> Identity {
    let mut telling = Vec::new();
    let mut words = words.iter().map(|word| word.as_bytes());
    while let Some(word) = words.next() {
        if word == b"--" {
            telling.push(word);
            telling.extend(words);
            break;
        }
        let name = word.split(|&byte| byte == b'=').next().unwrap_or_default();
        match ASIDE.iter().find(|(aside, _)| *aside == name) {
            Some((_, true)) if name.len() == word.len() => _ = words.next(),
            Some(_) => {}
            None => telling.push(word),
        }
    }
    identity(kind, cwd, telling)
}

/// Record of the running command.
pub(crate) struct Entry {
    state: PathBuf,
    locked_job: LockedJob,
    record_writer: RecordWriter,
}

impl Entry {
    /// Starts the record of this command line. Returns `None` while another process runs the same
    /// command, which then owns the record.
    ///
    /// # Errors
    /// Returns [`LogError`] if there can be no record.
    pub(crate) fn begin(kind: &'static str, state: &Path) -> Result<Option<Entry>, LogError> {
        let (words, cwd) = (words(), std::env::current_dir().unwrap_or_default());
        let id = job(kind, &words, &cwd);
        let locked_job = match LockedJob::take(state, id, false) {
            Err(LogError::Held { .. }) => return Ok(None),
            taken => taken?,
        };
        let (record_writer, _) = RecordWriter::begin(&locked_job, CommandLine { kind, words, cwd })?;
        Ok(Some(Entry { state: state.to_path_buf(), locked_job, record_writer }))
    }

    /// Runs the job and records its progress meanwhile.
    pub(crate) fn during<T>(&self, tally: &Tally, job: impl FnOnce() -> T) -> T {
        let (done, over) = channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                while over.recv_timeout(RECORD_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    // An error is ignored: the older figure stays, and the end is recorded
                    // separately.
                    let _ = self.record_writer.progress(ProgressSnapshot::from(tally).into());
                }
            });
            let ended = job();
            drop(done);
            ended
        })
    }

    /// Records the end of the job. Deletes old records of finished jobs.
    ///
    /// # Errors
    /// Returns [`LogError::Io`] if the end cannot be recorded.
    pub(crate) fn end(self, status: Status, exit: u8, tally: &Tally) -> Result<(), LogError> {
        self.record_writer.end(status, exit, ProgressSnapshot::from(tally).into())?;
        if status != Status::Finished {
            return self.locked_job.release();
        }
        self.locked_job.finish()?;
        prune(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_and_output_options_do_not_change_the_job_id() {
        let of = |words: &str| {
            let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            job("send", &words, Path::new("/d"))
        };
        let plain = of("send a host:b");
        for same in [
            "send --rate 5M a host:b",
            "send --rate=5M a --streams 4 host:b --progress",
            "send -q --compress=zstd:3 --json a host:b",
        ] {
            assert_eq!(of(same), plain, "{same}");
        }
        for other in
            ["send --rates a host:b", "send a host:c", "send -- --json a host:b", "send --delete a host:b"]
        {
            assert_ne!(of(other), plain, "{other}");
        }
    }
}
