//! Tests of the journal of a repair: written data is read back, and a damaged journal is reported.

use haul_digest::DigestKey;
use haul_log::journal::{
    CHUNK_BYTES_MAX, Chunk, ChunkState, Head, JournalFlaw, Reader, SECTOR_BYTES, Shape, VERSION, Writer,
};
use haul_log::waybill::Moment;
use proptest::prelude::*;

fn key(number: u8) -> DigestKey {
    DigestKey::of_journals(&[number; 32])
}

fn shape(size: u64, sec: i64) -> Shape {
    Shape { size, mtime: Moment { sec, nsec: 5 }, atime: Moment { sec: -1, nsec: 999_999_999 } }
}

fn head(size: u64, new_size: u64) -> Head {
    Head {
        inode: 77,
        birth: Some(Moment { sec: 1_700_000_000, nsec: 1 }),
        name: b"a \xff name".to_vec(),
        mode: 0o4755,
        capability: vec![1, 0, 0, 2],
        before: shape(size, 3),
        after: shape(new_size, 4),
    }
}

/// Returns a journal of the differences between two files, in chunks of `len` bytes.
fn journal(head: &Head, old: &[u8], new: &[u8], len: usize) -> (Vec<u8>, Vec<Chunk>) {
    let mut writer = Writer::new(Vec::new(), head, &key(1)).unwrap();
    let mut chunks = Vec::new();
    for at in (0..old.len().max(new.len())).step_by(len) {
        let part = |bytes: &[u8]| bytes[at.min(bytes.len())..(at + len).min(bytes.len())].to_vec();
        if part(old) != part(new) {
            let chunk = Chunk::new(at as u64, part(old), &part(new));
            writer.chunk(&chunk).unwrap();
            chunks.push(chunk);
        }
    }
    assert_eq!(writer.chunks(), chunks.len() as u64);
    (writer.close().unwrap(), chunks)
}

/// Length of the head of [`small`] in bytes: the fields, four bytes of capabilities, the name, and
/// the MAC.
const HEAD_LEN: usize = 96 + 4 + 8 + 16;

/// Length of a chunk with a sector of old bytes in bytes.
const CHUNK_LEN: usize = 20 + 512 + 4 + 16;

/// Returns a small journal of a growing file.
fn small() -> Vec<u8> {
    let new: Vec<u8> = (0..1500_u32).map(|at| at as u8).collect();
    journal(&head(1100, 1500), &[9; 1100], &new, 512).0
}

fn read(bytes: &[u8]) -> Result<(Head, Vec<Chunk>), JournalFlaw> {
    let reader = Reader::new(bytes, &key(1))?;
    let head = reader.head().clone();
    Ok((head, reader.collect::<Result<_, _>>()?))
}

#[test]
fn every_flipped_bit_and_wrong_length_is_detected() {
    let whole = small();
    assert_eq!(read(&whole).unwrap().1.len(), 3);
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut hurt = whole.clone();
            hurt[at] ^= 1 << bit;
            assert!(read(&hurt).is_err(), "bit {bit} of byte {at}");
        }
        assert!(read(&whole[..at]).is_err(), "truncated at {at}");
    }
    let longer = [&whole[..], b"x"].concat();
    assert!(matches!(read(&longer), Err(JournalFlaw::Damaged(_))));
}

#[test]
fn foreign_and_newer_journals_are_distinguished_from_damage() {
    assert!(matches!(read(b"haulsums"), Err(JournalFlaw::NotOurs)));
    assert!(matches!(read(b"haul"), Err(JournalFlaw::Damaged(0))));
    let mut newer = small();
    newer[8..10].copy_from_slice(&(VERSION + 1).to_le_bytes());
    assert!(matches!(read(&newer), Err(JournalFlaw::Newer(version)) if version == VERSION + 1));
    newer[8..10].copy_from_slice(&1_u16.to_le_bytes());
    assert!(matches!(read(&newer), Err(JournalFlaw::Older(1))));
    let name = vec![b'n'; 1025];
    assert!(Writer::new(Vec::new(), &Head { name, ..head(0, 0) }, &key(1)).is_err());
}

/// Every user who may write to the directory of a file can put any bytes there as its journal.
#[test]
fn forged_and_spliced_records_are_refused() {
    let whole = small();
    let other = |key: &DigestKey| Reader::new(&whole[..], key).err();
    assert!(other(&key(1)).is_none());
    assert!(matches!(other(&key(2)), Some(JournalFlaw::Damaged(0))));
    // Two journals of one user that differ in the name of the file only.
    let renamed = Head { name: b"b \xff name".to_vec(), ..head(1100, 1500) };
    let new: Vec<u8> = (0..1500_u32).map(|at| at as u8).collect();
    let second = journal(&renamed, &[9; 1100], &new, 512).0;
    assert_eq!((read(&second).unwrap().1, second.len()), (read(&whole).unwrap().1, whole.len()));
    let ends = [HEAD_LEN, HEAD_LEN + CHUNK_LEN, HEAD_LEN + 2 * CHUNK_LEN];
    for end in ends {
        let spliced = [&whole[..end], &second[end..]].concat();
        let flaw = read(&spliced).unwrap_err();
        assert!(matches!(flaw, JournalFlaw::Damaged(at) if at == end as u64), "{end}: {flaw}");
    }
    // Records that are left out, repeated or exchanged.
    let [one, two] = [&whole[ends[0]..ends[1]], &whole[ends[1]..ends[2]]];
    let (head, rest) = (&whole[..ends[0]], &whole[ends[2]..]);
    for parts in
        [&[head, one, rest][..], &[head, two, rest], &[head, two, one, rest], &[head, one, one, two, rest]]
    {
        assert!(matches!(read(&parts.concat()), Err(JournalFlaw::Damaged(_))));
    }
}

#[test]
fn chunks_that_contradict_the_file_are_refused() {
    let chunk = |at, old: usize, new: &[u8]| Chunk::new(at, vec![1; old], new);
    let refused = |head: &Head, chunks: &[Chunk]| {
        let mut writer = Writer::new(Vec::new(), head, &key(1)).unwrap();
        chunks.iter().for_each(|chunk| writer.chunk(chunk).unwrap());
        matches!(read(&writer.close().unwrap()), Err(JournalFlaw::Contradictory(_)))
    };
    let head = head(1000, 1000);
    assert!(!refused(&head, &[chunk(0, 10, &[2; 10]), chunk(990, 10, &[2; 10])]));
    assert!(refused(&head, &[chunk(0, 10, &[2; 9])]), "new bytes are missing");
    assert!(refused(&head, &[chunk(995, 10, &[2; 10])]), "past the end");
    assert!(refused(&head, &[chunk(u64::MAX - 5, 10, &[2; 10])]), "past everything");
}

#[test]
fn file_state_is_determined_per_sector() {
    let (old, new) = (vec![1; 1300], vec![2; 1300]);
    let chunk = Chunk::new(0, old.clone(), &new);
    let mixed = [&new[..512], &old[512..]].concat();
    assert_eq!(chunk.state(&old), ChunkState::Old);
    assert_eq!(chunk.state(&new), ChunkState::New);
    assert_eq!(chunk.state(&mixed), ChunkState::Mixed);
    for at in [0, 600, 1299] {
        let mut foreign = mixed.clone();
        foreign[at] = 3;
        assert_eq!(chunk.state(&foreign), ChunkState::Foreign);
    }
    // Half a sector of each is neither old nor new.
    let torn = [&new[..100], &old[100..]].concat();
    assert_eq!(chunk.state(&torn), ChunkState::Foreign);
    // Growing: behind the old end there are zeros, or nothing yet.
    let grows = Chunk::new(0, old[..700].to_vec(), &new);
    assert_eq!(grows.state(&old[..700]), ChunkState::Old);
    assert_eq!(grows.state(&[&old[..700], &[0; 600]].concat()), ChunkState::Old);
    assert_eq!(grows.state(&[&old[..700], &[0; 324], &new[1024..]].concat()), ChunkState::Mixed);
    // Shrinking: the truncated part counts as new.
    let shrinks = Chunk::new(0, old.clone(), &[]);
    assert_eq!((shrinks.state(&old), shrinks.state(&[])), (ChunkState::Old, ChunkState::New));
    assert!(chunk.is_new(&new) && !chunk.is_new(&new[1..]) && !chunk.is_new(&mixed));
}

proptest! {
    #[test]
    fn journals_round_trip(
        old in prop::collection::vec(0_u8..2, 0..5000),
        new in prop::collection::vec(0_u8..2, 0..5000),
        sectors in 1_usize..8,
        birth in any::<bool>(),
        name in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut head = head(old.len() as u64, new.len() as u64);
        head.birth = head.birth.filter(|_| birth);
        head.name = name;
        let (bytes, chunks) = journal(&head, &old, &new, sectors * SECTOR_BYTES);
        prop_assert_eq!(read(&bytes).unwrap(), (head, chunks));
    }

    #[test]
    fn arbitrary_bytes_are_refused_as_a_journal(bytes in prop::collection::vec(any::<u8>(), 0..600), cut in any::<prop::sample::Index>()) {
        let mut seeded = small();
        seeded.truncate(cut.index(seeded.len()));
        seeded.extend(&bytes);
        prop_assert!(read(&seeded).is_err());
        prop_assert!(read(&bytes).is_err());
    }
}

const _: () = assert!(CHUNK_BYTES_MAX >= 8 * SECTOR_BYTES);
