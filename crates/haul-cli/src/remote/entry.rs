//! A transfer's record on the side that began it, which `haul jobs` lists. What arrived of its files is the sink's log's to know.

use crate::progress::Standing;
use haul_engine::log::{Call, Hold, Ledger, LogError, identity, prune};
use haul_engine::transfer::Tally;
use haul_log::record::Status;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How often it is said how far the job came.
const EVERY: Duration = Duration::from_secs(2);

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
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        let cwd = std::env::current_dir().unwrap_or_default();
        let id = identity(kind, &cwd, words.iter().map(|word| word.as_bytes()));
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
