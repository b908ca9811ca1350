//! When a job began, so that what it finished is known again by its times.

use super::{LogError, SyncPolicy, folder};
use haul_model::Moment;
use haul_sys::process;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The file in a job's folder.
const NAME: &str = "begun";

/// Far above what is written.
const BYTES_MAX: u64 = 64 << 10;

/// Runs that are told apart: the first, and the last ones.
const RUNS_MAX: usize = 64;

/// The runs of a job that is not at its end, each with the time that the sink's file system had when it began: what was born, or changed,
/// there later may be the job's.
///
/// ```text
///  BOOT SECONDS NANOSECONDS SYNC      a line for each run
/// ```
///
/// Of runs that sync it is not made durable: without it finished files are only sent again. Of a run that syncs nothing it is, before anything is
/// logged: it alone says that objects may be logged that a loss of power took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    runs: Vec<Run>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    /// The machine's life ([`process::boot_id`]), or `-`.
    boot: String,
    at: Moment,
    sync: SyncPolicy,
}

impl Begun {
    /// What is known of the job whose folder this is; nothing of one that has not begun, or whose file is damaged.
    ///
    /// # Errors
    /// [`LogError::Io`]: the file can't be read.
    pub fn read(home: &Path) -> Result<Begun, LogError> {
        let path = home.join(NAME);
        let mut options = File::options();
        let file = match options.read(true).custom_flags(haul_sys::open::NO_FOLLOW).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Begun::default()),
            opened => opened.map_err(LogError::io("read when the job began in", &path))?,
        };
        let mut text = Vec::new();
        let got = file.take(BYTES_MAX).read_to_end(&mut text);
        got.map_err(LogError::io("read when the job began in", &path))?;
        Ok(String::from_utf8(text).ok().and_then(|text| Begun::decode(&text)).unwrap_or_default())
    }

    /// Writes down that the job runs again, from `at` on.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn run(&mut self, home: &Path, at: Moment, sync: SyncPolicy) -> Result<(), LogError> {
        if self.runs.len() >= RUNS_MAX {
            self.runs.remove(1);
        }
        self.runs.push(Run { boot: this_boot(), at, sync });
        folder::make(home)?;
        let (path, draft) = (home.join(NAME), home.join("begun.new"));
        let failed = || LogError::io("write when the job began into", &path);
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(haul_sys::open::NO_FOLLOW);
        let written = || {
            let mut file = options.open(&draft)?;
            file.write_all(self.encode().as_bytes())?;
            let outlasts = self.runs.iter().any(|run| !run.sync.syncs());
            if outlasts {
                file.sync_data()?;
            }
            fs::rename(&draft, &path)?;
            if outlasts { File::open(home)?.sync_all() } else { Ok(()) }
        };
        written().map_err(failed())
    }

    /// The job is at its end.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn remove(home: &Path) -> Result<(), LogError> {
        let path = home.join(NAME);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.map_err(LogError::io("remove", &path)),
        }
    }

    /// Whether there was a run.
    pub fn is_some(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Whether what was born or changed at this time may be the job's.
    pub fn covers(&self, at: Moment) -> bool {
        self.runs.first().is_some_and(|run| run.at <= at)
    }

    /// Whether what was born or changed at this time came while the machine has run without a break: then it is there whether it was
    /// made durable or not.
    pub fn covers_in_this_life(&self, at: Moment) -> bool {
        let boot = this_boot();
        let first = self.runs.iter().find(|run| run.boot == boot && boot != UNKNOWN);
        first.is_some_and(|run| run.at <= at)
    }

    /// Whether objects may have been logged that a loss of power took: a run in another life of the machine made nothing durable.
    pub fn may_have_lost(&self) -> bool {
        let boot = this_boot();
        self.runs.iter().any(|run| run.sync == SyncPolicy::None && (run.boot != boot || boot == UNKNOWN))
    }

    fn encode(&self) -> String {
        let line = |run: &Run| format!("{} {} {} {}\n", run.boot, run.at.sec, run.at.nsec, run.sync);
        self.runs.iter().map(line).collect()
    }

    fn decode(text: &str) -> Option<Begun> {
        let runs = text.lines().map(|line| {
            let mut words = line.split(' ');
            let boot = words.next()?.to_owned();
            let at = Moment { sec: words.next()?.parse().ok()?, nsec: words.next()?.parse().ok()? };
            let sync = words.next()?.parse().ok()?;
            (words.next().is_none() && at.nsec < 1_000_000_000).then_some(Run { boot, at, sync })
        });
        Some(Begun { runs: runs.collect::<Option<_>>()? }).filter(|_| text.ends_with('\n'))
    }
}

/// A machine that does not say which of its lives this is.
const UNKNOWN: &str = "-";

fn this_boot() -> String {
    let boot = process::boot_id();
    if boot.is_empty() || boot.contains(char::is_whitespace) { UNKNOWN.to_owned() } else { boot }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sec: i64) -> Moment {
        Moment { sec, nsec: 7 }
    }

    #[test]
    fn runs_are_found_again_until_the_end() {
        let home = tempfile::tempdir().unwrap();
        let mut begun = Begun::read(home.path()).unwrap();
        assert!(!begun.is_some() && !begun.covers(at(i64::MAX)));
        for second in 0..100 {
            begun.run(home.path(), at(second), SyncPolicy::Group).unwrap();
        }
        assert_eq!(Begun::read(home.path()).unwrap(), begun);
        assert!(begun.covers(at(0)) && !begun.covers(at(-1)), "the first run stays known");
        assert!(begun.covers_in_this_life(at(50)) && !begun.may_have_lost());
        Begun::remove(home.path()).unwrap();
        assert!(!Begun::read(home.path()).unwrap().is_some());
    }

    #[test]
    fn another_life_of_the_machine_is_told_apart() {
        let text = "another-life 10 7 none\n";
        let mut begun = Begun::decode(text).unwrap();
        assert!(begun.covers(at(10)) && !begun.covers_in_this_life(at(10)) && begun.may_have_lost());
        begun.runs.push(Run { boot: this_boot(), at: at(20), sync: SyncPolicy::None });
        assert!(begun.covers_in_this_life(at(20)) && !begun.covers_in_this_life(at(19)));
        begun.runs.remove(0);
        assert!(!begun.may_have_lost());
    }

    #[test]
    fn what_is_cut_or_bent_is_not_taken() {
        let text = "life 10 7 group\nlife 12 7 none\n";
        assert!(Begun::decode(text).is_some());
        for damaged in
            [&text[..text.len() - 1], "life x 7 group\n", "life 1 7\n", "life 1 1000000000 group\n"]
        {
            assert_eq!(Begun::decode(damaged), None, "{damaged:?}");
        }
        for cut in 1..text.len() {
            let read = Begun::decode(&text[..cut]);
            assert!(read.is_none() || &text[..cut] == "life 10 7 group\n", "{cut}");
        }
    }
}
