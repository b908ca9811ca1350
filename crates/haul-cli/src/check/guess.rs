//! Detection of an ambiguous digest's algorithm. All candidates are computed until one has matched,
//! then only that one. A file is hashed again before it is reported as damaged.

use super::resolve::Trees;
use haul_digest::Algorithm;
use haul_digest::list::{Interpretation, Span, StatedChecksum};
use haul_engine::sum::{
    Counters, Form, Order, Orders, Outcome, Recipe, Settings, SumError, Sums, Task, Work, run,
};
use haul_model::ByteLen;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Maximum number of files of a list that are hashed for all candidates before other files start.
/// If none of them matched, all candidates of each file are computed, but files are hashed in
/// parallel again.
const PROBES_MAX: u32 = 8;

/// Detected algorithms of a list's digests.
#[derive(Debug, Default)]
pub(super) struct DetectedAlgorithms {
    kinds: Vec<Kind>,
}

/// Digests with the same candidates.
#[derive(Debug)]
struct Kind {
    may_be: Vec<Algorithm>,
    is: Option<Algorithm>,
    probes: u32,
}

impl DetectedAlgorithms {
    /// Returns the algorithms to compute for this digest.
    pub(super) fn choose(&mut self, stated: &StatedChecksum) -> Vec<Algorithm> {
        let may_be = algorithms(stated);
        let is = self.kind(&may_be).and_then(|kind| kind.is);
        is.map_or(may_be, |is| vec![is])
    }

    /// Returns true if a file should be hashed first, to detect the algorithm.
    pub(super) fn wants_probe(&mut self, stated: &StatedChecksum) -> bool {
        let kind = self.kind(&algorithms(stated));
        kind.is_some_and(|kind| kind.is.is_none() && kind.probes < PROBES_MAX)
    }

    /// Evaluates a file that was hashed for all candidates.
    pub(super) fn learn(&mut self, stated: &StatedChecksum, sums: &Sums) {
        let holds = stated.meanings.iter().find(|meaning| agrees(meaning, sums));
        if let Some(kind) = self.kind(&algorithms(stated)) {
            kind.probes += 1;
            kind.is = kind.is.or(holds.map(Interpretation::algorithm));
        }
    }

    /// Returns the kind of a digest with several candidates.
    fn kind(&mut self, may_be: &[Algorithm]) -> Option<&mut Kind> {
        if may_be.len() < 2 {
            return None;
        }
        let at = self.kinds.iter().position(|kind| kind.may_be == may_be);
        let at = at.unwrap_or_else(|| {
            self.kinds.push(Kind { may_be: may_be.to_vec(), is: None, probes: 0 });
            self.kinds.len() - 1
        });
        self.kinds.get_mut(at)
    }
}

/// Returns the candidate algorithms of a digest, each once.
pub(super) fn algorithms(stated: &StatedChecksum) -> Vec<Algorithm> {
    let mut all: Vec<Algorithm> = Vec::with_capacity(stated.meanings.len());
    for algorithm in stated.meanings.iter().map(Interpretation::algorithm) {
        if !all.contains(&algorithm) {
            all.push(algorithm);
        }
    }
    all
}

/// Returns true if the file matches the meaning. A meaning whose algorithm was not computed does
/// not match.
pub(crate) fn agrees(meaning: &Interpretation, sums: &Sums) -> bool {
    let of = |digests: &[haul_digest::Digest]| digests.first().map(|digest| digest.algorithm());
    let same = match meaning.digests.as_slice() {
        [one] => sums.digests.contains(one),
        many => sums.subtrees.iter().any(|roots| of(roots) == of(many) && roots == many),
    };
    same && meaning.blocks.is_none_or(|blocks| blocks.fit(sums.range.len()))
}

/// Returns true if a collision can be constructed: such checksums detect only accidents.
fn is_weak(algorithm: Algorithm) -> bool {
    algorithm.is_numeric() || algorithm.name().starts_with("xxh")
}

/// Hashes a file again if the first guess of the algorithm may have been wrong.
pub(super) struct AlgorithmRetry<'a> {
    pub(super) settings: &'a Settings,
    pub(super) trees: &'a Trees,
    /// Detected leaf size of trees, in bytes; shared with the feed.
    pub(super) leaf: Arc<AtomicU64>,
    pub(super) stop: &'a AtomicBool,
}

impl AlgorithmRetry<'_> {
    /// Returns another algorithm by which the file matches the digest. A digest first treated as
    /// strong is never accepted as a weak one of the same length.
    pub(super) fn other_meaning(
        &self,
        task: &Task,
        span: Span,
        stated: &StatedChecksum,
    ) -> Option<Algorithm> {
        let tried = &task.recipe.algorithms;
        let was_strong = tried.iter().all(|&algorithm| !is_weak(algorithm));
        let all = algorithms(stated);
        let others: Vec<Algorithm> = match span {
            Span::Tree(_) => all,
            Span::File => {
                let left =
                    |algorithm: &Algorithm| !(tried.contains(algorithm) || was_strong && is_weak(*algorithm));
                all.into_iter().filter(left).collect()
            }
        };
        if others.is_empty() {
            return None;
        }
        forms(span, self.trees, stated).into_iter().find_map(|form| {
            if form == task.recipe.form && others == *tried {
                return None;
            }
            let recipe = Arc::new(Recipe { algorithms: others.clone(), form });
            let outcome = measure(self.settings, Task { recipe, ..task.clone() }, self.stop);
            let Outcome::Done(sums) = outcome else { return None };
            let found = stated.meanings.iter().find(|meaning| agrees(meaning, &sums))?.algorithm();
            if let Form::Tree { leaf, .. } = form {
                self.leaf.store(leaf.0, Ordering::Relaxed);
            }
            Some(found)
        })
    }
}

/// Returns the forms that a digest may have, the most likely first.
fn forms(span: Span, trees: &Trees, stated: &StatedChecksum) -> Vec<Form> {
    if span == Span::File {
        return vec![Form::Plain];
    }
    let many = stated.meanings.iter().any(|meaning| meaning.digests.len() > 1);
    let mut forms: Vec<Form> = trees.leaves.iter().map(|&leaf| tree(leaf, trees, many)).collect();
    if !many {
        forms.push(Form::Plain);
    }
    forms
}

/// Returns the form of a tree over such leaves; with `many`, also the roots of its parts.
pub(super) fn tree(leaf: ByteLen, trees: &Trees, many: bool) -> Form {
    Form::Tree { leaf, subtree: many.then(|| trees.part.unwrap_or(leaf)) }
}

/// Hashes one file with all workers and waits for the result.
pub(crate) fn measure(settings: &Settings, task: Task, stop: &AtomicBool) -> Outcome {
    let mut found = Outcome::Failed(SumError::Stopped);
    run(settings, SingleTask(Some(task)), &Counters::new(), stop, |(), outcome| found = outcome);
    found
}

struct SingleTask(Option<Task>);

impl Orders for SingleTask {
    type Ticket = ();

    fn next(&mut self) -> Option<Order<()>> {
        self.0.take().map(|task| Order { ticket: (), work: Work::Hash(task) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_digest::digest;
    use haul_model::ByteRange;

    fn stated(algorithms: &[Algorithm], of: Algorithm) -> StatedChecksum {
        let bytes = digest(of, b"x").as_bytes().to_vec();
        let meaning = |&algorithm: &Algorithm| {
            Interpretation::of(haul_digest::Digest::from_bytes(algorithm, &bytes).unwrap())
        };
        StatedChecksum { meanings: algorithms.iter().map(meaning).collect() }
    }

    fn sums(algorithms: &[Algorithm]) -> Sums {
        Sums {
            range: ByteRange::between(0, 1),
            partial: false,
            digests: algorithms.iter().map(|&algorithm| digest(algorithm, b"x")).collect(),
            leaves: 1,
            subtrees: Vec::new(),
            objects: None,
            leaf_sums: None,
            facts: None,
        }
    }

    #[test]
    fn the_first_match_settles_the_algorithm_of_a_list() {
        let may_be = [Algorithm::Sha256, Algorithm::Blake3];
        let blake3 = stated(&may_be, Algorithm::Blake3);
        let mut settled = DetectedAlgorithms::default();
        assert_eq!(settled.choose(&blake3), may_be);
        assert!(settled.wants_probe(&blake3));
        settled.learn(&blake3, &sums(&may_be));
        assert_eq!(settled.choose(&blake3), [Algorithm::Blake3]);
        assert!(!settled.wants_probe(&blake3));
        // Another length is detected separately.
        let crc = stated(&[Algorithm::Adler32, Algorithm::Crc32], Algorithm::Crc32);
        assert!(settled.wants_probe(&crc));
        // A digest with one meaning needs no detection.
        let md5 = stated(&[Algorithm::Md5], Algorithm::Md5);
        assert!(!settled.wants_probe(&md5));
        assert_eq!(settled.choose(&md5), [Algorithm::Md5]);
    }

    #[test]
    fn detection_stops_after_the_maximum_number_of_probes() {
        let may_be = [Algorithm::Sha256, Algorithm::Blake3];
        let wrong = stated(&may_be, Algorithm::Sha3_256);
        let mut settled = DetectedAlgorithms::default();
        for _ in 0..PROBES_MAX {
            assert!(settled.wants_probe(&wrong));
            settled.learn(&wrong, &sums(&may_be));
        }
        assert!(!settled.wants_probe(&wrong));
        assert_eq!(settled.choose(&wrong), may_be);
    }

    #[test]
    fn a_strong_digest_is_not_rechecked_as_a_weak_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "x").unwrap();
        let stop = AtomicBool::new(false);
        let settings = Settings { workers: 1, ..Settings::new() };
        let trees = Trees { leaves: vec![ByteLen(4096)], part: None };
        let look = AlgorithmRetry { settings: &settings, trees: &trees, leaf: Arc::default(), stop: &stop };
        let task = |algorithm| Task {
            source: haul_engine::sum::Source::Named(path.clone().into()),
            recipe: Arc::new(Recipe { algorithms: vec![algorithm], form: Form::Plain }),
            offset: haul_model::ByteOffset(0),
            length: None,
        };
        let both = [Algorithm::Md5, Algorithm::Xxh3_128];
        let forged = stated(&both, Algorithm::Xxh3_128);
        assert_eq!(look.other_meaning(&task(Algorithm::Md5), Span::File, &forged), None);
        let md5 = stated(&both, Algorithm::Md5);
        let found = look.other_meaning(&task(Algorithm::Xxh3_128), Span::File, &md5);
        assert_eq!(found, Some(Algorithm::Md5));
    }
}
