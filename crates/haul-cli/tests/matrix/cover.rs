//! Covering arrays of strength two: few rows in which every pair of values of different factors
//! occurs.

use haul_lab::random::Random;
use std::collections::BTreeSet;

/// Rows tried for each one that is taken.
const CANDIDATES: usize = 8;

/// A value of a factor, and one of a factor behind it: factor, value, factor, value.
type Pair = (usize, usize, usize, usize);

/// Rows of one value of each factor, in an order of the seed's own, in which every pair occurs that
/// `may` permits in some row. `sizes` are the numbers of values; `may` is asked about rows in which
/// only some factors have a value, and must permit each part of a row that it permits.
pub(crate) fn rows(
    random: &mut Random,
    sizes: &[usize],
    may: &dyn Fn(&[Option<usize>]) -> bool,
) -> Vec<Vec<usize>> {
    let mut missing = permitted(sizes, may);
    let mut rows = Vec::new();
    while let Some(&first) = missing.iter().nth(random.index(missing.len().max(1))) {
        let candidates = (0..CANDIDATES).filter_map(|_| row(random, sizes, may, &missing, first));
        let best = candidates.max_by_key(|row| missing.iter().filter(|pair| has(row, pair)).count());
        match best {
            Some(row) => {
                missing.retain(|pair| !has(&row, pair));
                rows.push(row);
            }
            // No row holds it.
            None => drop(missing.remove(&first)),
        }
    }
    random.shuffle(&mut rows);
    rows
}

fn permitted(sizes: &[usize], may: &dyn Fn(&[Option<usize>]) -> bool) -> BTreeSet<Pair> {
    let mut pairs = BTreeSet::new();
    for one in 0..sizes.len() {
        for other in one + 1..sizes.len() {
            for (a, b) in (0..sizes[one]).flat_map(|a| (0..sizes[other]).map(move |b| (a, b))) {
                let mut row = vec![None; sizes.len()];
                (row[one], row[other]) = (Some(a), Some(b));
                if may(&row) {
                    pairs.insert((one, a, other, b));
                }
            }
        }
    }
    pairs
}

fn has(row: &[usize], &(one, a, other, b): &Pair) -> bool {
    row[one] == a && row[other] == b
}

/// A row with this pair, in which each further factor takes the value that adds most of the missing
/// pairs; `None` where a factor has none left.
fn row(
    random: &mut Random,
    sizes: &[usize],
    may: &dyn Fn(&[Option<usize>]) -> bool,
    missing: &BTreeSet<Pair>,
    (one, a, other, b): Pair,
) -> Option<Vec<usize>> {
    let mut row = vec![None; sizes.len()];
    (row[one], row[other]) = (Some(a), Some(b));
    let mut rest: Vec<usize> = (0..sizes.len()).filter(|&factor| factor != one && factor != other).collect();
    random.shuffle(&mut rest);
    for factor in rest {
        let mut best = None;
        for value in 0..sizes[factor] {
            row[factor] = Some(value);
            if may(&row) {
                let gain = gain(&row, factor, value, missing);
                let rank = (gain, random.next_u64());
                best = best.max(Some((rank, value)));
            }
        }
        row[factor] = Some(best?.1);
    }
    row.into_iter().collect()
}

/// Missing pairs that this value makes with those that the row has.
fn gain(row: &[Option<usize>], factor: usize, value: usize, missing: &BTreeSet<Pair>) -> usize {
    let pair = |(other, taken): (usize, &Option<usize>)| {
        let taken = (*taken)?;
        Some(if other < factor { (other, taken, factor, value) } else { (factor, value, other, taken) })
    };
    let others = row.iter().enumerate().filter(|(other, _)| *other != factor);
    others.filter_map(pair).filter(|pair| missing.contains(pair)).count()
}

#[test]
fn exactly_the_permitted_pairs_occur() {
    let sizes = [7, 5, 3, 6, 2];
    let is_refused = |row: &[Option<usize>]| {
        row[0] == Some(1) && row[3] == Some(2) || row[1] == Some(4) && row[4].is_some_and(|value| value != 0)
    };
    let may = |row: &[Option<usize>]| !is_refused(row);
    let rows = rows(&mut Random::from_seed(1), &sizes, &may);
    let pairs = permitted(&sizes, &may);
    assert!(pairs.iter().all(|pair| rows.iter().any(|row| has(row, pair))));
    assert!(rows.iter().all(|row| may(&row.iter().copied().map(Some).collect::<Vec<_>>())));
    // 42 are the least, for two factors have seven and six values.
    assert!((42..65).contains(&rows.len()), "{}", rows.len());
}
