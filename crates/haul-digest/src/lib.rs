//! Floor 1, pure: every checksum behind one registry, their combination, many streams in one register, and hash trees
