//! The entries to send: the operands and everything beneath them.

use super::details::{Details, EntryPlace, WantedDetails};
use super::filter::Filter;
use crate::descent::{Descent, Examine, Step, WalkEntry};
use crate::stored::HIDDEN;
use haul_model::{PATH_PARTS_MAX, PathError, RelPath};
use haul_storage::{Dir, FileKind, Follow, Listing, Missing, Name, SourceFile, Stat, Storage};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

/// Maximum number of operands that stay open for looking up names. Additional ones are opened again
/// for each look-up.
const OPEN_ROOTS_MAX: usize = 256;

/// `errno` of a name that does not exist, and of one that no file system stores.
const ENOENT: i32 = 2;
const ENAMETOOLONG: i32 = 36;

/// A walk over the entries to send.
#[derive(Debug)]
pub(crate) struct Tree {
    operands: std::vec::IntoIter<Operand>,
    /// Names at the sink of several operands.
    repeated: HashSet<Vec<u8>>,
    /// True if the contents of a directory are sent beside other operands, so that any names can
    /// meet.
    merges: bool,
    /// Operands that were walked and whose names other operands can have.
    walked: Roots,
    /// The current operand, if names of other operands can meet its names.
    meeting: Option<Operand>,
    filter: Arc<Filter>,
    one_file_system: bool,
    /// True if directories with stored digests are sent.
    has_stored_sums: bool,
    descent: Descent<EntryExaminer>,
    /// Directory that the last operand is in, and its path. Many operands may be in one directory.
    place: Option<(Vec<u8>, Arc<dyn Dir>)>,
    /// Device of the current operand.
    device: u64,
    /// Details that the job needs of each entry; `None` if the metadata is enough.
    wanted: Option<Arc<WantedDetails>>,
    /// Path of the current operand at the sink, if it is a directory and nothing was found beneath
    /// it so far.
    unsent: Option<Vec<u8>>,
    /// Paths at the sink of the directories among the operands beneath which nothing was found.
    sent_nothing: HashSet<Vec<u8>>,
}

/// Starting point of a walk. It is opened only when the walk reaches it, because there may be a
/// million of them.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    /// Path as typed at this host, or a clean path beneath the root.
    path: OsString,
    /// True if the contents of the directory are sent without the directory itself.
    contents_only: bool,
    base: OperandBase,
}

/// Start of the path of an operand.
#[derive(Clone, Debug)]
enum OperandBase {
    /// The storage, as for any path of this host.
    Storage(Arc<dyn Storage>),
    /// A directory that the path must stay beneath, because another host requested it. No link
    /// leads out of it.
    Beneath(Arc<dyn Dir>),
}

/// Operands whose names can be looked up again, by the first part of their paths at the sink, or by
/// the empty string.
#[derive(Debug, Default)]
pub(crate) struct Roots {
    by_prefix: HashMap<Vec<u8>, Vec<Root>>,
    /// The other operands, by their paths at the sink.
    others: HashMap<Vec<u8>, Vec<Other>>,
    /// Number of directories that are open.
    open: usize,
}

/// An operand that is not a directory.
#[derive(Debug)]
struct Other {
    /// Device and inode of its directory.
    place: (u64, u64),
    /// Device and inode.
    identity: (u64, u64),
    kind: FileKind,
}

/// Position in the names of the source in a directory.
#[derive(Default)]
pub(crate) struct NamePosition {
    /// Paths of operands that are still to be named, for the root of the job.
    operands: Vec<Vec<u8>>,
    /// Number of operands whose directory was read.
    root: usize,
    listing: Option<Box<dyn Listing>>,
}

/// A directory that was an operand.
#[derive(Debug)]
enum Root {
    /// Open since the start.
    Open(Arc<dyn Dir>),
    /// Opened again for each look-up, and used only if it is still the same directory.
    Reopen(Operand, (u64, u64)),
}

/// One entry to send.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Path beneath the sink's root.
    pub(crate) path: Vec<u8>,
    /// Path for messages.
    pub(crate) shown: OsString,
    /// The parent directory; for a directory, the directory itself.
    pub(crate) place: Arc<dyn Dir>,
    /// Name in that directory; `None` for a directory.
    pub(crate) name: Option<Name>,
    /// Metadata from when the walk found the entry.
    pub(crate) facts: Stat,
}

impl Item {
    /// Returns where the entry is.
    pub(super) fn entry(&self) -> EntryPlace<'_> {
        EntryPlace { dir: &self.place, name: self.name.as_ref(), facts: &self.facts }
    }

    /// Opens the entry, a regular file.
    ///
    /// # Errors
    /// Returns the errors of [`Dir::source`].
    pub(super) fn source(&self) -> io::Result<Arc<dyn SourceFile>> {
        self.entry().source()
    }
}

/// Examination of the entries of an operand.
#[derive(Debug, Default)]
struct EntryExaminer {
    filter: Arc<Filter>,
    wanted: Option<Arc<WantedDetails>>,
    /// Path at the sink that replaces the path of the operand, with a trailing slash unless it is
    /// empty.
    prefix: Vec<u8>,
    /// Number of bytes of the walk's paths that the prefix replaces.
    replaced_len: usize,
}

impl EntryExaminer {
    /// Returns the path at the sink for a path of the walk.
    fn path_of(&self, shown: &OsStr) -> Vec<u8> {
        let beneath = shown.as_bytes().get(self.replaced_len..).unwrap_or_default();
        [&self.prefix[..], beneath].concat()
    }

    fn examine(&self, dir: &Arc<dyn Dir>, name: Option<&Name>) -> io::Result<StatAndDetails> {
        let facts = stat_in(&**dir, name)?;
        let entry = EntryPlace { dir, name, facts: &facts };
        let details = self.wanted.as_ref().and_then(|wanted| wanted.read(entry));
        Ok((facts, details))
    }
}

/// Metadata of an entry, and its details if the walk has read them.
type StatAndDetails = (Stat, Option<io::Result<Details>>);

impl Examine for EntryExaminer {
    type Examined = StatAndDetails;

    const CALLS_STORAGE: bool = true;

    fn wants(&self, above: &[u8], name: &Name, kind: FileKind) -> bool {
        let path = || self.path_of(OsStr::from_bytes(&[above, name.as_bytes()].concat()));
        self.filter.is_empty() || !self.filter.leaves_out(&path(), kind)
    }

    fn entry(&self, dir: &Arc<dyn Dir>, name: &Name, _: FileKind) -> io::Result<StatAndDetails> {
        self.examine(dir, Some(name))
    }

    fn directory(&self, dir: &Arc<dyn Dir>) -> io::Result<StatAndDetails> {
        self.examine(dir, None)
    }

    fn bytes((_, details): &StatAndDetails) -> usize {
        details.as_ref().and_then(|details| details.as_ref().ok()).map_or(0, Details::bytes)
    }
}

/// An entry that an earlier operand sends to the path of another one.
#[derive(Debug)]
pub(crate) enum Earlier {
    /// A directory, with its metadata.
    Directory(Box<Item>),
    /// An entry of another kind.
    Other,
}

/// Result of one step of the walk.
#[derive(Debug)]
pub(crate) enum WalkStep {
    /// An entry that is not a directory, or a mount point that is not entered, with its details if
    /// the walk has read them.
    Item(Item, Option<io::Result<Details>>),
    /// A directory, likewise; its entries follow.
    Enter(Item, Option<io::Result<Details>>),
    /// The end of the directory that was entered last.
    Leave,
    /// A directory with stored digests, which is left out.
    StoredSums(OsString),
    /// An operand that was walked before, by its path for messages.
    Repeated(OsString),
    /// A name whose metadata cannot be read, or a directory that cannot be read (to its end).
    Failed(OsString, io::Error),
}

impl Tree {
    /// Creates a walk over `operands`. Symbolic links are not followed.
    pub(crate) fn new(operands: Vec<Operand>, filter: Filter, one_file_system: bool) -> Tree {
        let mut seen = HashSet::new();
        let repeated = operands.iter().map(Operand::name_at_sink).filter(|base| !seen.insert(*base));
        let repeated = repeated.map(<[u8]>::to_vec).collect();
        let merges = seen.contains(&b""[..]) && operands.len() > 1;
        Tree {
            repeated,
            merges,
            walked: Roots::default(),
            meeting: None,
            operands: operands.into_iter(),
            filter: Arc::new(filter),
            one_file_system,
            has_stored_sums: false,
            descent: Descent::new(EntryExaminer::default()),
            place: None,
            device: 0,
            wanted: None,
            unsent: None,
            sent_nothing: HashSet::new(),
        }
    }

    /// Includes the directories with stored digests if `has_stored_sums`.
    pub(crate) fn with_stored_sums(self, has_stored_sums: bool) -> Tree {
        Tree { has_stored_sums, ..self }
    }

    /// Reads the details that the job needs of each entry.
    pub(super) fn with_details(self, wanted: WantedDetails) -> Tree {
        Tree { wanted: Some(Arc::new(wanted)), ..self }
    }

    /// Returns the entry that an operand walked before sends to a path of the sink. `sends` tells
    /// which kinds of entries are sent.
    pub(crate) fn earlier(&self, path: &[u8], sends: impl Fn(FileKind) -> bool) -> Option<Earlier> {
        self.meeting.as_ref()?;
        let first = path.split(|&byte| byte == b'/').next().unwrap_or_default();
        let found = self.walked.looks(path).find_map(|(root, beneath)| {
            let from = if beneath.len() == path.len() { 0 } else { first.len() + 1 };
            let facts = root.with(|dir| stat_beneath(&**dir, beneath))?.ok()?;
            let is_sent = sends(facts.kind) && !self.filter.leaves_out_beneath(path, from, &[facts.kind]);
            is_sent.then_some((root, beneath, facts))
        });
        match found {
            Some((root, beneath, facts)) if facts.kind == FileKind::Directory => {
                let place = root.with(|dir| self::beneath(dir, beneath, Follow::No))?.ok()?;
                let shown = OsStr::from_bytes(path).to_owned();
                let path = path.to_vec();
                Some(Earlier::Directory(Box::new(Item { path, shown, place, name: None, facts })))
            }
            Some(_) => Some(Earlier::Other),
            None => {
                let others = self.walked.others.get(path)?;
                others.iter().any(|other| sends(other.kind)).then_some(Earlier::Other)
            }
        }
    }

    /// Leaves the directory that was entered last, without a further step about it.
    pub(crate) fn skip(&mut self) {
        self.descent.skip();
    }

    /// Records that an entry at a path of the sink is sent.
    pub(crate) fn sends(&mut self, path: &[u8]) {
        self.unsent.take_if(|operand| path.len() > operand.len());
    }

    /// Returns the paths at the sink of the directories among the operands beneath which nothing
    /// was sent, after the end of the walk.
    pub(crate) fn take_sent_nothing(&mut self) -> HashSet<Vec<u8>> {
        std::mem::take(&mut self.sent_nothing)
    }

    /// Returns the directories of the operands, for later look-ups.
    pub(crate) fn roots(&self) -> Roots {
        Roots::of(self.operands.as_slice())
    }

    /// Returns the filter of the walk.
    pub(crate) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Returns the next result; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<WalkStep> {
        loop {
            let step = if self.descent.is_over() {
                self.sent_nothing.extend(self.unsent.take());
                self.meeting.take().iter().for_each(|operand| self.walked.add(operand));
                let operand = self.operands.next()?;
                let shown = operand.shown();
                self.begin(&operand).unwrap_or_else(|error| Some(WalkStep::Failed(shown, error)))
            } else {
                self.step()
            };
            if step.is_some() {
                return step;
            }
        }
    }

    fn begin(&mut self, operand: &Operand) -> io::Result<Option<WalkStep>> {
        let place = match &self.place {
            Some((path, place)) if path == operand.place_path() => Arc::clone(place),
            _ => operand.place()?,
        };
        self.place = Some((operand.place_path().to_vec(), Arc::clone(&place)));
        let name = operand.name()?;
        let (base, shown) = (operand.name_at_sink().to_vec(), operand.shown());
        let facts = stat_in(&*place, name.as_ref())?;
        if self.merges || self.repeated.contains(&base) {
            if self.walked.has_operand(&base, &*place, &facts) {
                return Ok(Some(WalkStep::Repeated(shown)));
            }
            self.meeting = Some(operand.clone());
        }
        self.device = facts.dev;
        if facts.kind != FileKind::Directory {
            return Ok(Some(WalkStep::Item(Item { path: base, shown, place, name, facts }, None)));
        }
        let own = match &name {
            Some(name) => place.dir(name, Follow::No, Missing::Fail)?,
            None => place,
        };
        let prefix = if base.is_empty() { Vec::new() } else { [&base[..], b"/"].concat() };
        let replaced_len = shown.len() + usize::from(!shown.as_bytes().ends_with(b"/"));
        let (filter, wanted) = (Arc::clone(&self.filter), self.wanted.clone());
        self.descent.set_examiner(EntryExaminer { filter, wanted, prefix, replaced_len });
        self.descent.begin(Arc::clone(&own), &shown)?;
        self.unsent = Some(base.clone());
        if base.is_empty() {
            return Ok(None);
        }
        Ok(Some(WalkStep::Enter(Item { path: base, shown, place: own, name: None, facts }, None)))
    }

    fn step(&mut self) -> Option<WalkStep> {
        match self.descent.step() {
            Step::Nothing => None,
            Step::Failed(path, error) => Some(WalkStep::Failed(path, error)),
            Step::Left(path) => {
                // A directory whose contents are sent without it was never entered.
                (!self.descent.examiner().path_of(&path).is_empty()).then_some(WalkStep::Leave)
            }
            Step::Entered(place, shown, examined) => Some(self.entered(place, shown, examined)),
            Step::Entry(WalkEntry { dir: place, name, path: shown, examined: (facts, details), .. }) => {
                let path = self.descent.examiner().path_of(&shown);
                Some(WalkStep::Item(Item { path, shown, place, name: Some(name), facts }, details))
            }
        }
    }

    fn entered(
        &mut self,
        place: Arc<dyn Dir>,
        shown: OsString,
        (facts, details): StatAndDetails,
    ) -> WalkStep {
        let mut path = self.descent.examiner().path_of(&shown);
        path.pop();
        if !self.has_stored_sums && last_part(&path) == HIDDEN.as_bytes() {
            self.descent.skip();
            return WalkStep::StoredSums(shown);
        }
        // What is in the directory would have one component more.
        if !path.is_empty() && path.split(|&byte| byte == b'/').count() >= PATH_PARTS_MAX {
            self.descent.skip();
            return WalkStep::Failed(
                shown,
                io::Error::new(io::ErrorKind::InvalidFilename, PathError::TooDeep),
            );
        }
        let item = Item { path, shown, place, name: None, facts };
        if self.one_file_system && item.facts.dev != self.device {
            self.descent.skip();
            return WalkStep::Item(item, details);
        }
        WalkStep::Enter(item, details)
    }
}

impl Operand {
    /// Creates the operand for a path of this host. With a trailing slash (or for `.`), the
    /// contents of the directory are sent without the directory.
    pub(crate) fn of_host(storage: &Arc<dyn Storage>, path: &OsStr) -> Operand {
        let contents_only = means_contents(path.as_bytes());
        Operand { path: path.to_owned(), contents_only, base: OperandBase::Storage(Arc::clone(storage)) }
    }

    /// Creates the operand for a clean path beneath `root` (empty: the root itself). No link leads
    /// out of the root. With `contents_only`, the contents of the directory are sent without the
    /// directory.
    pub(crate) fn beneath(root: &Arc<dyn Dir>, path: &[u8], contents_only: bool) -> Operand {
        let contents_only = contents_only || path.is_empty();
        let path = OsStr::from_bytes(path).to_owned();
        Operand { path, contents_only, base: OperandBase::Beneath(Arc::clone(root)) }
    }

    /// Checks that the directory of the operand exists.
    ///
    /// # Errors
    /// Same as [`Operand::place`].
    pub(crate) fn check(&self) -> io::Result<()> {
        self.place().map(drop)
    }

    /// Returns the path of the directory that the operand is in, or of the directory itself if only
    /// its contents are sent.
    pub(crate) fn place_path(&self) -> &[u8] {
        let path = self.path.as_bytes();
        if self.contents_only { path } else { &path[..path.len() - last_part(path).len()] }
    }

    /// Opens the parent directory to resolve names in it. Opens the directory itself if only its
    /// contents are sent.
    ///
    /// # Errors
    /// Returns the errors of [`Storage::open`] and [`Dir::beneath`]: `EXDEV` if the path leads out
    /// of the root.
    fn place(&self) -> io::Result<Arc<dyn Dir>> {
        let path = self.place_path();
        match &self.base {
            OperandBase::Storage(storage) => {
                let path = if path.is_empty() { b"." } else { path };
                storage.open(Path::new(OsStr::from_bytes(path)), Follow::Yes)
            }
            OperandBase::Beneath(root) => beneath(root, path.strip_suffix(b"/").unwrap_or(path), Follow::Yes),
        }
    }

    /// Returns the name in that directory, or `None` if only its contents are sent.
    fn name(&self) -> io::Result<Option<Name>> {
        if self.contents_only {
            return Ok(None);
        }
        let name = self.name_at_sink();
        match Name::new(name) {
            None if name.is_empty() => Err(io::Error::from_raw_os_error(ENOENT)),
            None => Err(io::Error::from_raw_os_error(ENAMETOOLONG)),
            name => Ok(name),
        }
    }

    /// Returns the path at the sink; empty if only the contents are sent.
    fn name_at_sink(&self) -> &[u8] {
        if self.contents_only { b"" } else { last_part(self.path.as_bytes()) }
    }

    /// Returns the path for messages.
    fn shown(&self) -> OsString {
        if self.path.is_empty() { OsString::from(".") } else { self.path.clone() }
    }

    /// Returns the identity of an operand that is not a directory.
    fn other(&self) -> io::Result<Other> {
        let place = self.place()?;
        let facts = stat_in(&*place, self.name()?.as_ref())?;
        Ok(Other { place: place.stat()?.identity(), identity: facts.identity(), kind: facts.kind })
    }

    /// Opens the operand as a directory in which names can be looked up again. Returns `None` if it
    /// is not a directory.
    fn directory(&self) -> Option<Arc<dyn Dir>> {
        let place = self.place().ok()?;
        match self.name().ok()? {
            Some(name) => place.dir(&name, Follow::No, Missing::Fail).ok(),
            None => Some(place),
        }
    }
}

impl Roots {
    fn of(operands: &[Operand]) -> Roots {
        let mut roots = Roots::default();
        operands.iter().for_each(|operand| roots.add(operand));
        roots
    }

    fn add(&mut self, operand: &Operand) {
        let Some(dir) = operand.directory() else {
            let others = self.others.entry(operand.name_at_sink().to_vec()).or_default();
            others.extend(operand.other().ok());
            return;
        };
        let root = if self.open < OPEN_ROOTS_MAX {
            self.open += 1;
            Root::Open(dir)
        } else {
            let Ok(facts) = dir.stat() else { return };
            Root::Reopen(operand.clone(), (facts.dev, facts.ino))
        };
        self.by_prefix.entry(operand.name_at_sink().to_vec()).or_default().push(root);
    }

    /// Returns true if one of the operands is the entry `facts` in `place`, with the path `base` at
    /// the sink.
    fn has_operand(&self, base: &[u8], place: &dyn Dir, facts: &Stat) -> bool {
        if facts.kind == FileKind::Directory {
            let roots = self.by_prefix.get(base).into_iter().flatten();
            let mut identities = roots.filter_map(|root| root.with(|dir| dir.stat())?.ok());
            return identities.any(|known| known.identity() == facts.identity());
        }
        let Ok(place) = place.stat() else { return false };
        let same = |other: &Other| [other.place, other.identity] == [place.identity(), facts.identity()];
        self.others.get(base).into_iter().flatten().any(same)
    }

    /// Returns the number of first bytes of a path to which no name rule applies: the name of an
    /// operand. Returns `None` if the path is not beneath a directory among the operands.
    pub(crate) fn unfiltered_len(&self, path: &[u8]) -> Option<usize> {
        let first = path.split(|&byte| byte == b'/').next().unwrap_or_default();
        if self.others.contains_key(first) {
            return None;
        }
        let has = |prefix: &[u8]| self.by_prefix.contains_key(prefix);
        if has(b"") { Some(0) } else { has(first).then_some(first.len() + 1) }
    }

    /// Returns the position before the names in a directory; `directory` is empty for the root of
    /// the job.
    pub(crate) fn before_names(&self, directory: &[u8]) -> NamePosition {
        let operands = self.by_prefix.keys().chain(self.others.keys()).filter(|name| !name.is_empty());
        let operands = if directory.is_empty() { operands.cloned().collect() } else { Vec::new() };
        NamePosition { operands, ..NamePosition::default() }
    }

    /// Returns the next names in a directory, `max` unless they end before: those that `is_wanted`
    /// accepts.
    ///
    /// # Errors
    /// Returns an error if a directory of the source cannot be read, or may have been replaced, or
    /// if an operand was removed.
    pub(crate) fn names(
        &self,
        directory: &[u8],
        at: &mut NamePosition,
        max: usize,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> io::Result<Vec<Box<[u8]>>> {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        while names.len() < max {
            if let Some(operand) = at.operands.pop() {
                names.push(operand.into());
            } else if let Some(listing) = &mut at.listing {
                let mut entries = Vec::new();
                let more = listing.next(max - names.len(), &mut entries)?;
                let found = entries.iter().map(|entry| entry.name.as_bytes());
                names.extend(found.filter(|name| is_wanted(name)).map(Box::from));
                if !more {
                    at.listing = None;
                }
            } else {
                let Some((root, path)) = self.looks(directory).nth(at.root) else { break };
                at.root += 1;
                at.listing = root.list(path)?;
            }
        }
        // An operand that was removed since the walk has no names, but does not lack those that
        // were sent.
        let is_last = names.len() < max;
        if is_last && !self.looks(directory).all(|(root, _)| root.is_there()) {
            return Err(io::ErrorKind::StaleNetworkFileHandle.into());
        }
        Ok(names)
    }

    /// Returns the directories in which a path is looked up, each with the rest of the path.
    fn looks<'r>(&'r self, path: &'r [u8]) -> impl Iterator<Item = (&'r Root, &'r [u8])> {
        let first = path.split(|&byte| byte == b'/').next().unwrap_or_default();
        let beneath = path.get(first.len() + 1..).unwrap_or_default();
        let of = |prefix: &[u8]| self.by_prefix.get(prefix).into_iter().flatten();
        let named = (!first.is_empty()).then(|| of(first).map(move |root| (root, beneath)));
        of(b"").map(move |root| (root, path)).chain(named.into_iter().flatten())
    }

    /// Returns true if no operand has a path of the job any more. At least one of them must give a
    /// certain answer, and none may have the path.
    pub(crate) fn are_without(&self, path: &[u8]) -> bool {
        let mut is_clear = false;
        for has in self.looks(path).filter_map(|(root, path)| root.has(path)) {
            if has {
                return false;
            }
            is_clear = true;
        }
        is_clear
    }
}

impl Root {
    /// Returns true if this directory has a path beneath it; `None` if that is uncertain.
    fn has(&self, path: &[u8]) -> Option<bool> {
        if path.is_empty() {
            return Some(true);
        }
        self.with(|dir| has(&**dir, path))?
    }

    /// Starts to list the directory at a path beneath this one; `None` if it does not exist.
    ///
    /// # Errors
    /// Returns an error if that is uncertain, or the directory cannot be read.
    fn list(&self, path: &[u8]) -> io::Result<Option<Box<dyn Listing>>> {
        let list = |dir: &Arc<dyn Dir>| beneath(dir, path, Follow::No)?.list();
        match self.with(list).unwrap_or_else(|| Err(io::ErrorKind::StaleNetworkFileHandle.into())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            listing => listing.map(Some),
        }
    }

    /// Returns true if this directory has not been removed.
    fn is_there(&self) -> bool {
        self.with(|dir| dir.stat()).and_then(io::Result::ok).is_some_and(|facts| facts.nlink > 0)
    }

    /// Returns the result of `look` in this directory; `None` if it was replaced.
    fn with<R>(&self, look: impl FnOnce(&Arc<dyn Dir>) -> R) -> Option<R> {
        match self {
            Root::Open(dir) => Some(look(dir)),
            Root::Reopen(operand, identity) => {
                let dir = operand.directory()?;
                let facts = dir.stat().ok()?;
                ((facts.dev, facts.ino) == *identity).then(|| look(&dir))
            }
        }
    }
}

/// Returns true if `dir` has `path` beneath it, or `None` if the answer is uncertain. No directory
/// of `path` may be a symbolic link, because the entry at the link's target is another one.
fn has(dir: &dyn Dir, path: &[u8]) -> Option<bool> {
    match stat_beneath(dir, path) {
        Ok(_) => Some(true),
        // The storage may have closed `dir`, and another directory may have its place now.
        Err(error) if error.kind() == io::ErrorKind::NotFound => dir.stat().is_ok().then_some(false),
        Err(_) => None,
    }
}

/// Returns the metadata of the entry at a path beneath `dir`; an empty path means `dir` itself.
fn stat_beneath(dir: &dyn Dir, path: &[u8]) -> io::Result<Stat> {
    let name = last_part(path);
    let above = path[..path.len() - name.len()].strip_suffix(b"/").unwrap_or_default();
    let name = Name::new(name);
    if above.is_empty() {
        return stat_in(dir, name.as_ref());
    }
    let above = RelPath::new(above).map_err(io::Error::other)?;
    stat_in(&*dir.beneath(&above, Follow::No)?, name.as_ref())
}

/// Returns the metadata of an entry of `dir`, or of `dir` itself.
fn stat_in(dir: &dyn Dir, name: Option<&Name>) -> io::Result<Stat> {
    match name {
        Some(name) => dir.stat_at(name, Follow::No),
        None => dir.stat(),
    }
}

/// Opens the directory at a path beneath `dir`; an empty path means `dir` itself.
fn beneath(dir: &Arc<dyn Dir>, path: &[u8], links: Follow) -> io::Result<Arc<dyn Dir>> {
    if path.is_empty() {
        return Ok(Arc::clone(dir));
    }
    dir.beneath(&RelPath::new(path).map_err(io::Error::other)?, links)
}

/// Returns the directory that the paths of these sources are relative to, as typed. If there are
/// several, returns all of them.
pub(crate) fn directories(sources: &[OsString]) -> OsString {
    let (mut found, mut seen): (Vec<&[u8]>, HashSet<&[u8]>) = Default::default();
    for source in sources {
        let path = source.as_bytes();
        let dir = if means_contents(path) { path } else { &path[..path.len() - last_part(path).len()] };
        let dir = match dir {
            b"" => &b"."[..],
            b"/" => dir,
            _ => dir.strip_suffix(b"/").unwrap_or(dir),
        };
        if seen.insert(dir) {
            found.push(dir);
        }
    }
    OsString::from_vec(found.join(&b", "[..]))
}

/// Returns true if an operand means the contents of a directory: `dir/`, `.`, `dir/.`, `/`,
/// and `..`, which provides no name.
fn means_contents(operand: &[u8]) -> bool {
    operand.ends_with(b"/") || matches!(last_part(operand), b"." | b"..")
}

fn last_part(operand: &[u8]) -> &[u8] {
    operand.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_storage::local::LocalStorage;
    use haul_storage::memory::{Call, MemoryStorage};
    use std::fs;

    /// Regression: an operand that was removed during the job had no names any more, so the sink
    /// deleted all that it had received.
    #[test]
    fn the_names_of_a_removed_operand_are_uncertain() {
        let home = tempfile::tempdir().unwrap();
        for (contents_only, base) in [(false, "d"), (true, "")] {
            let path = home.path().join("d");
            fs::create_dir_all(path.join("sub")).unwrap();
            let storage = OperandBase::Storage(Arc::new(LocalStorage));
            let operand = Operand { path: path.clone().into(), contents_only, base: storage };
            let roots = Roots::of(&[operand]);
            let names = |beneath: &str| {
                let directory = format!("{base}{beneath}");
                let directory = directory.strip_prefix('/').unwrap_or(&directory).as_bytes();
                roots.names(directory, &mut roots.before_names(directory), 10, |_| true)
            };
            assert_eq!(names("").unwrap(), [Box::from(&b"sub"[..])]);
            assert!(names("/none").unwrap().is_empty());
            fs::remove_dir_all(&path).unwrap();
            assert!(names("").is_err() && names("/sub").is_err(), "{base}");
        }
    }

    /// Regression: an excluded directory was opened and read, and an error of it was reported.
    #[test]
    fn an_excluded_directory_is_not_read() {
        let storage = MemoryStorage::new(1);
        let make = |dir: &Arc<dyn Dir>, name: &str| {
            dir.dir(&Name::new(name).unwrap(), Follow::No, Missing::Create { mode: 0o700 }).unwrap()
        };
        for path in ["kept", "out"] {
            make(&make(&storage.root(), path), "beneath");
        }
        let pattern = b"out".as_slice().into();
        let filter = Filter::from_wire(&[haul_proto::NameRule { is_include: false, pattern }]).unwrap();
        let operand = Operand::beneath(&storage.root(), b"", true);
        let before = storage.count(Call::OpenDir);
        let mut tree = Tree::new(vec![operand], filter, false);
        let mut entered = Vec::new();
        while let Some(step) = tree.next() {
            match step {
                WalkStep::Enter(item, _) => entered.push(String::from_utf8(item.path).unwrap()),
                WalkStep::Leave => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(entered, ["kept", "kept/beneath"]);
        assert_eq!(storage.count(Call::OpenDir) - before, 2);
    }
}
