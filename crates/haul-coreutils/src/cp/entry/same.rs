//! Detection of a source and a sink that are the same file, and of the cases in which the copy is
//! harmless.

use super::task::Task;
use crate::cp::links::NamedIn;
use crate::cp::rules::{Dereference, Make};
use crate::location::Location;
use crate::paths::{last_component, split};
use haul_storage::{FileKind, Follow, Stat};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Effect of the copy on the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SelfCopy {
    /// No effect: the copy continues.
    Apart,
    /// Both are already the same file, as requested: there is nothing to do.
    Done,
    /// The source would be lost.
    Same,
}

impl Task<'_, '_> {
    /// Compares the source with the existing sink. The stat call for `sink` followed links or not,
    /// as the rules for existing sinks require.
    pub(super) fn self_copy(&self, sink: &Stat) -> SelfCopy {
        let one_inode = self.source.identity() == sink.identity();
        if one_inode && self.rules.make == Make::HardLink {
            return SelfCopy::Done;
        }
        if self.dereference == Dereference::Never {
            if is_link(&self.source) && is_link(sink) {
                return self.self_copy_of_links(one_inode);
            }
            return self.self_copy_of_names(&self.source, sink);
        }
        if !one_inode {
            return SelfCopy::Apart;
        }
        let source_name = self.look_at_source_name();
        let sink_name = self.sink_at().stat(Follow::No);
        let (Some(source_name), Ok(sink_name)) = (source_name, sink_name) else { return SelfCopy::Apart };
        if is_link(&source_name) && is_link(&sink_name) && self.rules.remove_destination {
            // Only the link at the sink is removed, not the target of both links.
            return SelfCopy::Apart;
        }
        self.self_copy_of_names(&source_name, &sink_name)
    }

    /// Compares two symbolic links that are copied as links.
    fn self_copy_of_links(&self, one_inode: bool) -> SelfCopy {
        if self.is_one_name() {
            return SelfCopy::Same;
        }
        if one_inode && self.rules.backup.is_none() { SelfCopy::Done } else { SelfCopy::Apart }
    }

    /// Applies the remaining rules, based on stat calls for the two names themselves.
    fn self_copy_of_names(&self, source: &Stat, sink: &Stat) -> SelfCopy {
        let one_inode = source.identity() == sink.identity();
        if self.rules.backup.is_some() {
            // The backup keeps the contents of the sink, unless the rename takes the source away.
            let loses_source = if one_inode {
                self.is_one_name()
            } else {
                self.dereference != Dereference::Never && is_link(source) && !is_link(sink)
            };
            return if loses_source { SelfCopy::Same } else { SelfCopy::Apart };
        }
        if self.rules.remove_destination {
            let another_name = one_inode && sink.nlink > 1 && !self.is_one_name();
            if is_link(sink) || another_name {
                return SelfCopy::Apart;
            }
        }
        if !is_link(source) && !is_link(sink) {
            if !one_inode {
                return SelfCopy::Apart;
            }
            if self.rules.make == Make::HardLink {
                return SelfCopy::Done;
            }
        }
        if self.rules.make == Make::SymbolicLink && is_link(sink) {
            return SelfCopy::Apart;
        }
        if self.dereference != Dereference::Never {
            return SelfCopy::Same;
        }
        self.self_copy_of_targets(source, sink)
    }

    /// Compares the targets if one of the names is a link and links are not followed.
    fn self_copy_of_targets(&self, source: &Stat, sink: &Stat) -> SelfCopy {
        let follow = |location: Location<'_>, seen: &Stat| {
            if is_link(seen) { location.stat(Follow::Yes).ok() } else { Some(*seen) }
        };
        let from = follow(self.entry.source(), source);
        let to = follow(self.sink_at(), sink);
        let (Some(from), Some(to)) = (from, to) else { return SelfCopy::Apart };
        if from.identity() != to.identity() {
            SelfCopy::Apart
        } else if self.rules.make == Make::HardLink {
            if is_link(sink) { SelfCopy::Apart } else { SelfCopy::Done }
        } else {
            SelfCopy::Same
        }
    }

    fn look_at_source_name(&self) -> Option<Stat> {
        self.entry.source().stat(Follow::No).ok()
    }

    /// Returns true if source and sink are the same name in the same directory.
    fn is_one_name(&self) -> bool {
        is_one_name(&self.entry.source(), &self.sink_at())
    }
}

/// Returns true if two locations are the same name in the same directory.
pub(crate) fn is_one_name(a: &Location<'_>, b: &Location<'_>) -> bool {
    last_component(a.name()) == last_component(b.name())
        && named_in(a).is_some_and(|a| named_in(b) == Some(a))
}

/// Returns the directory that contains the last component of a location, and that component.
/// Returns `None` if the directory cannot be stat'ed.
pub(super) fn named_in(location: &Location<'_>) -> Option<NamedIn> {
    let (place, name) = split(location.name().as_bytes());
    let place = location.beside(OsStr::from_bytes(place)).stat(Follow::Yes).ok()?;
    Some((place.identity(), OsStr::from_bytes(name).to_owned()))
}

fn is_link(stat: &Stat) -> bool {
    stat.kind == FileKind::Symlink
}
