//! Floor 2: the operating system: files, metadata, sparse ranges, direct I/O, io_uring, cache residency
