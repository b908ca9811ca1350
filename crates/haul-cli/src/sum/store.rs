//! `haul sum --store`: stores the digests with the files.

use super::resolve::Files;
use haul_digest::{Algorithm, Digest, ObjectTable};
use haul_engine::stored::{Form as Stored, HIDDEN, Store, StoreError, StoredFileInfo};
use haul_engine::sum::{Form, Recipe, Sums};
use haul_engine::waybill::Root;
use haul_log::waybill::PathError;
use haul_model::ObjectSize;
use haul_sys::Stat;
use std::ffi::OsStr;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// Store of the digests, and the digests that are also printed.
#[derive(Debug)]
pub(crate) struct StoreRequest {
    form: Stored,
    root: Root,
    /// Requested digests; the store may keep one more.
    shown: Vec<Algorithm>,
    /// True if new digests replace earlier ones of a file of the same size and time.
    pub(super) accepts_changes: bool,
}

/// Digests of a file for the store, saved before other consumers take parts of them.
pub(super) struct SavedDigests {
    facts: Option<Box<Stat>>,
    digests: Vec<Digest>,
    objects: Option<ObjectTable>,
}

/// Error that prevents storing a file's digests.
#[derive(Debug, Error)]
pub(super) enum StoreFailure {
    #[error("no digests were stored: invalid path: {0}")]
    Path(#[from] PathError),
    #[error("no digests were stored: not a regular file")]
    Stream,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StoreRequest {
    /// Resolves the option, and makes the recipe compute the needed digests. `asked` holds the
    /// printed ones.
    pub(super) fn resolve(
        name: &str,
        files: &Files,
        is_part: bool,
        object: ObjectSize,
        asked: &[Algorithm],
        recipe: &mut Recipe,
    ) -> Result<StoreRequest, String> {
        let known = Stored::ALL.iter().find(|(_, known)| *known == name);
        let &(form, _) = known.ok_or_else(|| {
            format!(
                "--store={name}: unknown form; valid forms are xattr, tree, xrootd, eos and waybill (with --waybill FILE)"
            )
        })?;
        if matches!(recipe.form, Form::Tree { .. }) {
            return Err("cannot combine --store with hash trees: it stores plain digests".to_owned());
        }
        if is_part {
            return Err(
                "cannot combine --store with --offset or --length: it stores digests of complete files"
                    .to_owned(),
            );
        }
        let root = match files {
            Files::Given(paths) if paths.iter().any(|path| path == "-") => {
                return Err("cannot combine --store with standard input; name files".to_owned());
            }
            // If one directory is named, the store is located in it, so that `haul verify` of the
            // directory finds it.
            Files::Given(paths) => match paths.as_slice() {
                [one] if Path::new(one).is_dir() => Root::new(one.clone()),
                _ => Root::of_operands(paths).ok_or(
                    "with --store, name all files relative to one directory, or all by absolute paths",
                )?,
            },
            Files::Listed(..) => Root::new(".".into()),
        };
        if let Some(other) = asked.iter().find(|algorithm| !form.takes(**algorithm)) {
            return Err(format!(
                "--store={name} cannot store {other}; use another algorithm with -a, or another form"
            ));
        }
        if form == Stored::Eos && asked.len() > 1 {
            return Err("--store=eos stores one checksum per file; choose one with -a".to_owned());
        }
        if form.keeps_objects() && recipe.form == Form::Plain {
            recipe.algorithms.retain(|&algorithm| algorithm != Algorithm::Blake3);
            recipe.algorithms.insert(0, Algorithm::Blake3);
            recipe.form = Form::Objects { size: object, sample: None };
        }
        Ok(StoreRequest { form, root, shown: asked.to_vec(), accepts_changes: false })
    }

    pub(super) fn open(&self) -> Result<Store, StoreError> {
        Store::open(self.form, &self.root, self.accepts_changes)
    }

    /// Returns true if a file is part of the store itself, which is not hashed.
    pub(super) fn is_own(&self, path: &OsStr) -> bool {
        self.form == Stored::Tree
            && Path::new(path).starts_with(Path::new(self.root.as_os_str()).join(HIDDEN))
    }

    /// Saves the digests for the store, and leaves only the requested digests in `sums`.
    pub(super) fn set_aside(&self, sums: &mut Sums) -> SavedDigests {
        let digests = sums.digests.clone();
        sums.digests.retain(|digest| self.shown.contains(&digest.algorithm()));
        sums.digests.sort_by_key(|digest| self.shown.iter().position(|asked| *asked == digest.algorithm()));
        SavedDigests { facts: sums.facts.clone(), digests, objects: sums.objects.clone() }
    }

    /// Stores the saved digests of a file.
    pub(super) fn keep(&self, store: &Store, path: &OsStr, aside: SavedDigests) -> Result<(), StoreFailure> {
        let facts = aside.facts.ok_or(StoreFailure::Stream)?;
        let rel = self.root.path_of(path)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
        let known =
            StoredFileInfo { facts: &facts, digests: &aside.digests, objects: aside.objects.as_ref(), now };
        Ok(store.put(path, &rel, &known)?)
    }
}
