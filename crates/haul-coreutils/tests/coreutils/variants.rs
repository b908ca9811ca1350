//! Methods of moving bytes: all that a user can request, as a list and as a random strategy.

use haul_digest::{Algorithm, Digest, digest, tree};
use haul_engine::copy::{HashForm, Moving, SparseRule, Verify, Workers};
use haul_model::ObjectSize;
use proptest::prelude::*;
use proptest::{option, sample};

pub(crate) const K: u64 = 1024;

pub(crate) fn object(bytes: u64) -> ObjectSize {
    ObjectSize::new(bytes).unwrap()
}

/// Returns two workers and objects of 64 KiB, and no other option.
pub(crate) fn plain() -> Moving {
    Moving { object: object(64 * K), ..Moving::with(Workers::exactly(2)) }
}

/// Returns each method once, and combinations that share a code path in the engine; objects of 64
/// KiB.
pub(crate) fn each() -> Vec<(String, Moving)> {
    let base = [
        ("plain", plain()),
        ("one worker", Moving { workers: Workers::exactly(1), ..plain() }),
        ("five workers", Moving { workers: Workers::exactly(5), ..plain() }),
        ("small blocks", Moving { block: Some(4096), ..plain() }),
        ("odd blocks", Moving { block: Some(5000), ..plain() }),
        ("blocks larger than objects", Moving { block: Some(1 << 20), ..plain() }),
        ("direct read", Moving { direct_read: true, ..plain() }),
        ("direct write", Moving { direct_write: true, ..plain() }),
        ("direct both", Moving { direct_read: true, direct_write: true, ..plain() }),
        ("fadvise", Moving { fadvise_read: true, fadvise_write: true, ..plain() }),
        ("double buffer", Moving { double_buffer: Some(true), ..plain() }),
        ("no double buffer", Moving { double_buffer: Some(false), ..plain() }),
        (
            "double buffer, direct",
            Moving { double_buffer: Some(true), direct_read: true, direct_write: true, ..plain() },
        ),
    ];
    let blake3 = Some((Algorithm::Blake3, HashForm::Plain));
    let md5 = Some((Algorithm::Md5, HashForm::Plain));
    let looks = [
        (None, Verify::No),
        (None, Verify::ReadBack),
        (blake3, Verify::No),
        (blake3, Verify::ReadBack),
        (md5, Verify::No),
        (None, Verify::Stream),
        (None, Verify::Reread),
        (md5, Verify::Hybrid),
    ];
    let others = [
        (Algorithm::Crc32c, HashForm::Plain),
        (Algorithm::Sha256, HashForm::Tree(object(64 * K))),
        (Algorithm::Adler32, HashForm::Leaves(object(128 * K))),
    ];
    let mut all = Vec::new();
    for (number, (name, moving)) in base.into_iter().enumerate() {
        let rare = others.iter().take(if number < 3 { others.len() } else { 0 });
        for (digest, verify) in looks.into_iter().chain(rare.map(|&digest| (Some(digest), Verify::No))) {
            let name = format!("{name}, {digest:?}, {verify:?}");
            all.push((name, Moving { digest, verify, ..moving.clone() }));
        }
    }
    all
}

/// Returns a strategy for any method: 1 to 5 workers, objects of 64 KiB to 1 MiB.
pub(crate) fn any_moving() -> impl Strategy<Value = Moving> {
    let sizes = (1_usize..=5, 16_u32..=20, option::of(sample::select(vec![1, 4096, 5000, 65_536, 1 << 20])));
    // A sync for each object is slow, so it is rare.
    let flags = (any::<[bool; 3]>(), prop::bool::weighted(0.1), option::of(any::<bool>()));
    let verify = prop_oneof![
        4 => Just(Verify::No),
        4 => Just(Verify::ReadBack),
        1 => Just(Verify::Stream),
        1 => Just(Verify::Reread),
        1 => Just(Verify::Hybrid),
    ];
    (sizes, flags, any_digest(), verify).prop_map(
        |((workers, shift, block), (flags, syncs, double_buffer), digest, verify)| {
            let [direct_read, direct_write, fadvise_read] = flags;
            Moving {
                workers: Workers::exactly(workers),
                object: object(1 << shift),
                block,
                direct_read,
                direct_write,
                fadvise_read,
                fadvise_write: syncs,
                double_buffer,
                digest,
                verify,
                ..Moving::with(Workers::exactly(1))
            }
        },
    )
}

/// Returns a strategy for no digest, or any algorithm in any form.
fn any_digest() -> impl Strategy<Value = Option<(Algorithm, HashForm)>> {
    let form = prop_oneof![
        2 => Just(HashForm::Plain),
        1 => (16_u32..=19).prop_map(|shift| HashForm::Tree(object(1 << shift))),
        1 => (16_u32..=19).prop_map(|shift| HashForm::Leaves(object(1 << shift))),
    ];
    option::weighted(0.75, (sample::select(Algorithm::ALL), form))
}

pub(crate) fn any_sparse_rule() -> impl Strategy<Value = SparseRule> {
    prop_oneof![Just(SparseRule::Auto), Just(SparseRule::Always), Just(SparseRule::Never)]
}

/// Returns the expected digests of these bytes, computed at once, and true if the digest is that of
/// a tree.
pub(crate) fn expected(bytes: &[u8], algorithm: Algorithm, form: HashForm) -> (Vec<Digest>, bool) {
    let (HashForm::Tree(leaf) | HashForm::Leaves(leaf)) = form else {
        return (vec![digest(algorithm, bytes)], false);
    };
    let is_tree = bytes.len() as u64 > leaf.bytes();
    let size = usize::try_from(leaf.bytes()).unwrap();
    let leaves: Vec<Digest> = bytes.chunks(size).map(|chunk| digest(algorithm, chunk)).collect();
    let digests = match form {
        HashForm::Leaves(_) if !leaves.is_empty() => leaves,
        _ => vec![tree::root_of(algorithm, &leaves)],
    };
    (digests, is_tree)
}
