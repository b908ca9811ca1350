//! Planning of one file: its route and its division into objects.

use haul_model::{ByteLen, ByteOffset, ByteRange, Geometry, ObjectSize};

/// Method of moving the bytes of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// One worker moves the complete file. It fits one object, so sharing it would cost more than
    /// it gains.
    Whole,
    /// Any worker moves objects in any order; all requested digests combine.
    Objects,
    /// One worker moves the objects in order, because a requested digest is serial (MD5, the SHAs,
    /// XXH).
    InOrder,
    /// Read until the end, because a side is not a regular file or reports no length (pipes,
    /// devices, /proc).
    Stream,
}

/// Properties of a file that are known before its first byte is read.
#[derive(Clone, Copy, Debug)]
pub struct FileFacts {
    /// Length of the source in bytes, from `fstat` of the open file.
    pub len: ByteLen,
    /// True if both ends can be read and written at any offset.
    pub seekable: bool,
}

/// Requirements of the job for every file.
#[derive(Clone, Copy, Debug)]
pub struct Requirements {
    /// Size of an object.
    pub object: ObjectSize,
    /// True if a requested digest works only from the first byte to the last.
    pub serial_digest: bool,
    /// First byte of the source to move.
    pub offset: ByteOffset,
    /// Maximum number of bytes to move; `None` for all.
    pub length: Option<ByteLen>,
    /// Offset of the first byte in the sink; `None` for the same offset as in the source.
    pub sink_offset: Option<ByteOffset>,
}

impl Requirements {
    /// Complete files, with objects of the default size, without a serial digest.
    pub const ALL: Requirements = Requirements {
        object: ObjectSize::DEFAULT,
        serial_digest: false,
        offset: ByteOffset(0),
        length: None,
        sink_offset: None,
    };
}

/// The plan for one file: the source bytes to move, their destination, and their division into
/// objects.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    route: Route,
    source: ByteRange,
    sink_start: ByteOffset,
    geometry: Geometry,
}

impl Plan {
    /// Plans one file. The objects of a partial copy start at its own first byte, as in mcp. A hash
    /// of the part therefore does not depend on the bytes before it.
    pub fn new(file: FileFacts, wanted: &Requirements) -> Plan {
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

    /// Returns the method of moving the bytes.
    pub fn route(&self) -> Route {
        self.route
    }

    /// Returns the range of the source to move; empty for [`Route::Stream`] of a file that reports
    /// no length.
    pub fn source(&self) -> ByteRange {
        self.source
    }

    /// Returns the division into objects, with offsets relative to the first moved byte.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Converts an offset of the division to an offset in the source.
    pub fn in_source(&self, at: ByteOffset) -> ByteOffset {
        ByteOffset(self.source.start.0 + at.0)
    }

    /// Converts an offset of the division to an offset in the sink. Saturates at 2^64 - 1, which
    /// exceeds every file system.
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
    fn route_depends_on_size_digest_and_seekability() {
        let object = ObjectSize::DEFAULT.bytes();
        let serial = Requirements { serial_digest: true, ..Requirements::ALL };
        assert_eq!(Plan::new(file(object), &Requirements::ALL).route(), Route::Whole);
        assert_eq!(Plan::new(file(object + 1), &Requirements::ALL).route(), Route::Objects);
        assert_eq!(Plan::new(file(object + 1), &serial).route(), Route::InOrder);
        assert_eq!(Plan::new(file(0), &Requirements::ALL).route(), Route::Stream);
        let pipe = FileFacts { len: ByteLen(1 << 40), seekable: false };
        assert_eq!(Plan::new(pipe, &Requirements::ALL).route(), Route::Stream);
    }

    proptest! {
        #[test]
        fn part_stays_within_the_file(len in 1u64..1 << 40, offset in 0u64..1 << 41, length in proptest::option::of(0u64..1 << 41), to in proptest::option::of(0u64..1 << 41)) {
            let wanted = Requirements { offset: ByteOffset(offset), length: length.map(ByteLen), sink_offset: to.map(ByteOffset), ..Requirements::ALL };
            let plan = Plan::new(file(len), &wanted);
            prop_assert!(plan.source().end.0 <= len);
            prop_assert_eq!(plan.geometry().len(), plan.source().len());
            prop_assert_eq!(plan.in_sink(ByteOffset(3)).0, to.unwrap_or(offset) + 3);
            prop_assert_eq!(plan.in_source(ByteOffset(plan.source().len())), plan.source().end);
        }
    }
}
