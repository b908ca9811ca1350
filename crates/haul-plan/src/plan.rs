//! From one file to the objects that move it.

use haul_model::{ByteLen, ByteOffset, ByteRange, Geometry, ObjectSize};

/// How the bytes of one file travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// One worker takes the file from end to end: it fits one object, so sharing it would cost more than it gives.
    Whole,
    /// Objects in any order by any worker; every digest asked for combines.
    Objects,
    /// One worker in order, because a digest asked for is serial (MD5, the SHAs, XXH).
    InOrder,
    /// Read until the end comes, because a side is no regular file or tells no length (pipes, devices, /proc).
    Stream,
}

/// What is known of a file before its first byte is read.
#[derive(Clone, Copy, Debug)]
pub struct FileFacts {
    /// Length of the source in bytes, as `fstat` of the open file told.
    pub len: ByteLen,
    /// Whether both ends can be read and written at any offset.
    pub seekable: bool,
}

/// What the job wants of every file.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Size of an object.
    pub object: ObjectSize,
    /// Whether a digest is asked for that only works from the first byte to the last.
    pub serial_digest: bool,
    /// First byte of the source to move.
    pub offset: ByteOffset,
    /// Most bytes to move; `None` for all.
    pub length: Option<ByteLen>,
    /// Where the first byte goes in the sink; `None` for the same offset as in the source.
    pub sink_offset: Option<ByteOffset>,
}

impl Wanted {
    /// Whole files, cut into objects of the usual size, without a serial digest.
    pub const ALL: Wanted = Wanted {
        object: ObjectSize::DEFAULT,
        serial_digest: false,
        offset: ByteOffset(0),
        length: None,
        sink_offset: None,
    };
}

/// The plan for one file: which source bytes move, where to, and in what pieces.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    route: Route,
    source: ByteRange,
    sink_start: ByteOffset,
    geometry: Geometry,
}

impl Plan {
    /// Plans one file. The objects of a partial copy are cut from its own first byte, as mcp does, so that a
    /// hash of the part doesn't depend on what lies before it.
    pub fn new(file: FileFacts, wanted: &Wanted) -> Plan {
        let start = wanted.offset.0.min(file.len.0);
        let left = file.len.0 - start;
        let len = wanted.length.map_or(left, |asked| asked.0.min(left));
        let source = ByteRange::between(start, start + len);
        let geometry = Geometry::new(ByteLen(len), wanted.object);
        let route = match () {
            () if !file.seekable || file.len.0 == 0 => Route::Stream,
            () if geometry.count() <= 1 => Route::Whole,
            () if wanted.serial_digest => Route::InOrder,
            () => Route::Objects,
        };
        Plan { route, source, sink_start: wanted.sink_offset.unwrap_or(wanted.offset), geometry }
    }

    /// How the bytes travel.
    pub fn route(&self) -> Route {
        self.route
    }

    /// The bytes of the source that move; empty for [`Route::Stream`] of a file that tells no length.
    pub fn source(&self) -> ByteRange {
        self.source
    }

    /// The cut of the moving bytes, counted from the first of them.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Where in the source a place of the cut lies.
    pub fn in_source(&self, at: ByteOffset) -> ByteOffset {
        ByteOffset(self.source.start.0 + at.0)
    }

    /// Where in the sink a place of the cut goes. Saturates at 2^64 - 1, which no file system can hold.
    pub fn in_sink(&self, at: ByteOffset) -> ByteOffset {
        ByteOffset(self.sink_start.0.saturating_add(at.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(len: u64) -> FileFacts {
        FileFacts { len: ByteLen(len), seekable: true }
    }

    #[test]
    fn the_route_follows_size_and_digest() {
        let object = ObjectSize::DEFAULT.bytes();
        let serial = Wanted { serial_digest: true, ..Wanted::ALL };
        assert_eq!(Plan::new(file(object), &Wanted::ALL).route(), Route::Whole);
        assert_eq!(Plan::new(file(object + 1), &Wanted::ALL).route(), Route::Objects);
        assert_eq!(Plan::new(file(object + 1), &serial).route(), Route::InOrder);
        assert_eq!(Plan::new(file(0), &Wanted::ALL).route(), Route::Stream);
        let pipe = FileFacts { len: ByteLen(1 << 40), seekable: false };
        assert_eq!(Plan::new(pipe, &Wanted::ALL).route(), Route::Stream);
    }

    proptest! {
        #[test]
        fn a_part_never_leaves_the_file(len in 1u64..1 << 40, offset in 0u64..1 << 41, length in proptest::option::of(0u64..1 << 41), to in proptest::option::of(0u64..1 << 41)) {
            let wanted = Wanted { offset: ByteOffset(offset), length: length.map(ByteLen), sink_offset: to.map(ByteOffset), ..Wanted::ALL };
            let plan = Plan::new(file(len), &wanted);
            prop_assert!(plan.source().end.0 <= len);
            prop_assert_eq!(plan.geometry().len(), plan.source().len());
            prop_assert_eq!(plan.in_sink(ByteOffset(3)).0, to.unwrap_or(offset) + 3);
            prop_assert_eq!(plan.in_source(ByteOffset(plan.source().len())), plan.source().end);
        }
    }
}
