//! A transfer's record on the side that began it, which `haul jobs` lists. What arrived of its files is the sink's log's to know.

use crate::progress::Standing;
use haul_engine::log::{Call, Hold, Ledger, LogError, identity, prune};
use haul_engine::transfer::Tally;
use haul_log::objects::Identity;
use haul_log::record::Status;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How often it is said how far the job came.
const EVERY: Duration = Duration::from_secs(2);

/// Options, and whether each takes a value in the next word, that say how fast the bytes travel and what is printed: the job is the same without
/// them.
const ASIDE: [(&[u8], bool); 12] = [
    (b"--rate", true),
    (b"--streams", true),
    (b"--buffers", true),
    (b"--cc", true),
    (b"--compress", false),
    (b"--mptcp", false),
    (b"--progress", false),
    (b"--json", false),
    (b"--quiet", false),
    (b"-q", false),
    (b"--verbose", false),
    (b"-v", false),
];

/// The words of this command behind the program's name.
pub(crate) fn words() -> Vec<OsString> {
    std::env::args_os().skip(1).collect()
}

/// The job of a command as it was typed in a directory. Options that change neither which bytes arrive nor where make no other job.
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

/// The record of the command that runs.
pub(crate) struct Entry {
    state: PathBuf,
    hold: Hold,
    ledger: Ledger,
}

impl Entry {
    /// Begins the record of the command as it was typed; `None` while another process is at the same command, whose record it is then.
    ///
    /// # Errors
    /// [`LogError`]: there can be no record.
    pub(crate) fn begin(kind: &'static str, state: &Path) -> Result<Option<Entry>, LogError> {
        let (words, cwd) = (words(), std::env::current_dir().unwrap_or_default());
        let id = job(kind, &words, &cwd);
        let hold = match Hold::take(state, id, false) {
            Err(LogError::Held { .. }) => return Ok(None),
            taken => taken?,
        };
        let (ledger, _) = Ledger::begin(&hold, Call { kind, words, cwd })?;
        Ok(Some(Entry { state: state.to_path_buf(), hold, ledger }))
    }

    /// Runs the job, and writes down meanwhile how far it came.
    pub(crate) fn during<T>(&self, tally: &Tally, job: impl FnOnce() -> T) -> T {
        let (done, over) = channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                while over.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                    // Best effort: an older figure stays, and the end is written down by itself.
                    let _ = self.ledger.progress(Standing::from(tally).into());
                }
            });
            let ended = job();
            drop(done);
            ended
        })
    }

    /// The job ended. Records of jobs that were finished long ago go.
    ///
    /// # Errors
    /// [`LogError::Io`]: the end could not be written down.
    pub(crate) fn end(self, status: Status, exit: u8, tally: &Tally) -> Result<(), LogError> {
        self.ledger.end(status, exit, Standing::from(tally).into())?;
        if status != Status::Finished {
            return self.hold.release();
        }
        self.hold.finish()?;
        prune(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_the_same_however_fast_it_goes_and_whatever_it_prints() {
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
