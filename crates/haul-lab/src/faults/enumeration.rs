//! Enumeration of faults: in each run of a job, one call of one kind of operation fails.

use super::{FaultFs, FaultFsError};
use crate::random::{Random, soak_seed};
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::{env, fs};

/// A call that fails, and its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NthFault {
    /// Kind of operation, by its name in the fault rules.
    pub op: &'static str,
    /// Action, as in the fault rules.
    pub action: &'static str,
    /// Number of calls of this kind that pass before.
    pub after: u64,
}

impl Display for NthFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NthFault { op, action, after } = self;
        write!(f, "* {op} .. {action} after {after} times 1")
    }
}

/// A directory of which one call can fail.
pub trait FailingStorage {
    /// Returns the directory in which the code under test works.
    fn view(&self) -> &Path;

    /// Returns the same directory without faults.
    fn store(&self) -> &Path;

    /// Runs `run` without a fault. Returns the number of calls of each of these kinds.
    fn count(&self, ops: &[&'static str], run: &mut dyn FnMut()) -> Vec<u64>;

    /// Runs `run` with a fault. Returns true if the call was made, and failed.
    fn fail(&self, fault: NthFault, run: &mut dyn FnMut()) -> bool;
}

/// Kinds of operations that fail, with their actions.
const KINDS: [(&str, &[&str]); 19] = [
    ("read", &["errno EIO", "errno ESTALE", "errno EINTR", "short 1"]),
    ("write", &["errno EIO", "errno ENOSPC", "errno EDQUOT", "errno ESTALE", "errno EINTR", "short 1"]),
    ("fsync", &["errno EIO", "errno ENOSPC", "errno EDQUOT", "errno ESTALE", "errno EINTR"]),
    ("flush", &["errno EIO", "errno ENOSPC", "errno EDQUOT", "errno ESTALE"]),
    ("open", &["errno EIO", "errno ESTALE", "errno EINTR"]),
    ("create", &["errno EIO", "errno ENOSPC", "errno EDQUOT", "errno EINTR"]),
    ("allocate", &["errno EIO", "errno ENOSPC", "errno EDQUOT", "errno EINTR", "errno ENOTSUP"]),
    ("truncate", &["errno EIO", "errno ENOSPC", "errno EDQUOT", "errno EINTR"]),
    ("copy", &["errno EIO", "errno ENOSPC", "errno EDQUOT", "errno EINTR", "short 0", "short 1"]),
    ("seek", &["errno EIO", "errno EINTR"]),
    ("stat", &["errno EIO", "errno ESTALE"]),
    ("chown", &["errno EIO", "errno EDQUOT", "errno ESTALE"]),
    ("chmod", &["errno EIO", "errno ESTALE"]),
    ("utimens", &["errno EIO", "errno ESTALE"]),
    ("list", &["errno EIO", "errno ESTALE"]),
    ("remove", &["errno EIO", "errno ESTALE"]),
    ("rename", &["errno EIO", "errno ENOSPC", "errno EDQUOT", "errno ESTALE", "errno EINTR"]),
    ("xattr", &["errno EIO", "errno ENOSPC", "errno EDQUOT"]),
    ("link", &["errno EIO", "errno ENOSPC", "errno EDQUOT"]),
];

/// Number of calls beyond those of a run without a fault that are enumerated: a fault can cause
/// more calls.
const MORE: u64 = 2;

/// Returns the faults of a job, `most` of them: all of its calls, with each error.
/// `HAUL_FAULT_CASES` replaces `most`. A soak run draws other faults each time.
pub fn faults(storage: &dyn FailingStorage, most: usize, run: &mut dyn FnMut()) -> Vec<NthFault> {
    let ops = KINDS.map(|(op, _)| op);
    let counts = storage.count(&ops, run);
    let mut all = Vec::new();
    for ((op, actions), count) in KINDS.into_iter().zip(counts) {
        let calls = if count == 0 { 0 } else { count + MORE };
        all.extend(
            (0..calls).flat_map(|after| actions.iter().map(move |action| NthFault { op, action, after })),
        );
    }
    Random::from_seed(soak_seed().unwrap_or(0)).shuffle(&mut all);
    let asked = env::var("HAUL_FAULT_CASES").ok().and_then(|text| text.parse().ok());
    all.truncate(asked.unwrap_or(most));
    all
}

/// A directory behind a fault file system.
#[derive(Debug)]
pub struct FuseStorage {
    faults: FaultFs,
    store: PathBuf,
    view: PathBuf,
}

impl FuseStorage {
    /// Mounts a view with faults on the empty directory `view`. The directory `store` is created
    /// beside it.
    ///
    /// # Errors
    /// Same as [`FaultFs::mount`].
    ///
    /// # Panics
    /// Panics if `store` cannot be created.
    pub fn mount(view: &Path) -> Result<FuseStorage, FaultFsError> {
        let store = view.with_file_name("store");
        fs::create_dir(&store).expect("a new directory");
        let faults = FaultFs::mount(&store, view, "".parse()?)?;
        Ok(FuseStorage { faults, store, view: view.to_owned() })
    }

    /// Returns the fault file system.
    pub fn faults(&self) -> &FaultFs {
        &self.faults
    }

    /// Unmounts the view.
    pub fn close(self) {
        self.faults.close();
    }

    /// Runs `run` with these rules. Returns the kinds of the operations to which they applied.
    fn apply(&self, rules: &str, run: &mut dyn FnMut()) -> Vec<super::Op> {
        let before = self.faults.fired().len();
        self.faults.set_rules(rules.parse().expect("rules of this module"));
        run();
        self.faults.set_rules("".parse().expect("no rules"));
        self.faults.fired().split_off(before).into_iter().map(|fired| fired.op).collect()
    }
}

impl FailingStorage for FuseStorage {
    fn view(&self) -> &Path {
        &self.view
    }

    fn store(&self) -> &Path {
        &self.store
    }

    fn count(&self, ops: &[&'static str], run: &mut dyn FnMut()) -> Vec<u64> {
        let rules: Vec<String> = ops.iter().map(|op| format!("* {op} .. delay 0")).collect();
        let met = self.apply(&rules.join("\n"), run);
        let named = |name: &str| super::Op::of_name(name).expect("an operation of the rules");
        ops.iter().map(|op| met.iter().filter(|met| **met == named(op)).count() as u64).collect()
    }

    fn fail(&self, fault: NthFault, run: &mut dyn FnMut()) -> bool {
        !self.apply(&fault.to_string(), run).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::needs::{Need, met_or_skip};

    #[test]
    fn each_call_fails_once() {
        if !met_or_skip(&[Need::Fuse]) {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let view = home.path().join("view");
        fs::create_dir(&view).unwrap();
        let storage = FuseStorage::mount(&view).unwrap();
        let mut results = Vec::new();
        let mut run = || {
            let done = (0..3).all(|number| fs::write(view.join(number.to_string()), "bytes").is_ok());
            results.push(done);
        };
        let all = faults(&storage, usize::MAX, &mut run);
        let writes =
            |after: &u64| all.contains(&NthFault { op: "write", action: "errno EIO", after: *after });
        assert_eq!((0..10).filter(writes).count() as u64, 3 + MORE);
        let fired: Vec<bool> = (0..5)
            .map(|after| storage.fail(NthFault { op: "write", action: "errno EIO", after }, &mut run))
            .collect();
        assert_eq!(fired, [true, true, true, false, false]);
        assert_eq!(results, [true, false, false, false, true, true]);
        storage.close();
    }
}
