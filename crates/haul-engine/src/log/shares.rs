//! Whose job gives way where many share a room that is full: nobody takes all of it for long.
//!
//! A guest who has less than an equal share of the limit that was reached (the limit by the number of guests who have something there, he among them)
//! gets room from those who have more: the job that nobody was at for longest of the one who has the most goes. Jobs that somebody is at stay.

use super::room::{RoomLimit, RoomLimits};
use haul_log::objects::Identity;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

/// What one job takes.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    /// None for a job that is over: nothing of it counts any more.
    pub(super) bytes: u64,
    /// Sessions that are at it, or wait for it.
    pub(super) sessions: u32,
    /// Whose it is. All jobs of which that is not known are one guest's.
    pub(super) guest: Identity,
    /// When somebody was at it last.
    pub(super) touched: SystemTime,
}

/// What a guest's job is to take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) job: Identity,
    pub(super) guest: Identity,
    pub(super) bytes: u64,
}

/// What becomes of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// There is room.
    Room,
    /// There may be, without this job.
    Without(Identity),
    /// There is none.
    Full(RoomLimit),
}

/// Whether there is room for a wish among these jobs. Those that `stay` are not given up for it.
pub(super) fn answer(
    jobs: &BTreeMap<Identity, Taken>,
    limits: &RoomLimits,
    wish: &Wish,
    stay: &BTreeSet<Identity>,
) -> Answer {
    let counts = |taken: &Taken| taken.bytes > 0;
    let is_new = !jobs.get(&wish.job).is_some_and(counts);
    let others = || jobs.iter().filter(|(id, taken)| **id != wish.job && counts(taken));
    let bytes = others().fold(wish.bytes, |sum, (_, taken)| sum.saturating_add(taken.bytes));
    let (limit, most) = if is_new && others().count() >= limits.jobs {
        (RoomLimit::Jobs(limits.jobs), limits.jobs as u64)
    } else if bytes > limits.bytes {
        (RoomLimit::Bytes(limits.bytes), limits.bytes)
    } else {
        return Answer::Room;
    };
    let weigh = |bytes: u64| if matches!(limit, RoomLimit::Jobs(_)) { 1 } else { bytes };
    let mut held = BTreeMap::from([(wish.guest, 0)]);
    let all = others().map(|(_, taken)| (taken.guest, taken.bytes)).chain([(wish.guest, wish.bytes)]);
    all.for_each(|(guest, bytes)| *held.entry(guest).or_default() += weigh(bytes));
    let share = most / held.len() as u64;
    if held[&wish.guest] > share {
        return Answer::Full(limit);
    }
    let may_go = |(id, taken): &(&Identity, &Taken)| {
        taken.sessions == 0 && held[&taken.guest] > share && !stay.contains(*id)
    };
    let goes = others().filter(may_go).max_by_key(|(_, taken)| (held[&taken.guest], Reverse(taken.touched)));
    goes.map_or(Answer::Full(limit), |(id, _)| Answer::Without(*id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn id(number: u8) -> Identity {
        Identity([number; 16])
    }

    /// Jobs by their numbers: guest, bytes, and how many seconds ago somebody was at it; none where somebody is.
    fn jobs(of: &[(u8, u8, u64, Option<u64>)]) -> BTreeMap<Identity, Taken> {
        let job = |&(job, guest, bytes, ago): &(u8, u8, u64, Option<u64>)| {
            let touched = SystemTime::UNIX_EPOCH + Duration::from_secs(1000 - ago.unwrap_or(0));
            (id(job), Taken { bytes, sessions: u32::from(ago.is_none()), guest: id(guest), touched })
        };
        of.iter().map(job).collect()
    }

    fn asked(
        jobs: &BTreeMap<Identity, Taken>,
        limits: (u64, usize),
        wish: (u8, u8, u64),
        stay: &[u8],
    ) -> Answer {
        let limits = RoomLimits { bytes: limits.0, jobs: limits.1, ..RoomLimits::default() };
        let wish = Wish { job: id(wish.0), guest: id(wish.1), bytes: wish.2 };
        answer(jobs, &limits, &wish, &stay.iter().map(|&number| id(number)).collect())
    }

    #[test]
    fn whoever_has_less_than_his_share_gets_the_oldest_place_of_the_one_who_has_most() {
        let few = |jobs: &BTreeMap<_, _>, wish, stay: &[u8]| asked(jobs, (1 << 30, 6), wish, stay);
        let full = Answer::Full(RoomLimit::Jobs(6));
        // One has four, two has two: with a third guest the share is two.
        let six = [
            (1, 1, 9, Some(10)),
            (2, 1, 9, Some(30)),
            (3, 1, 9, Some(20)),
            (4, 1, 9, None),
            (5, 2, 9, Some(99)),
            (6, 2, 9, Some(98)),
        ];
        let six = jobs(&six);
        assert_eq!(few(&six, (7, 3, 1), &[]), Answer::Without(id(2)));
        assert_eq!(few(&six, (7, 3, 1), &[2]), Answer::Without(id(3)), "what can't be forgotten stays");
        assert_eq!(few(&six, (7, 3, 1), &[1, 2, 3]), full, "who has no more than a share gives nothing up");
        assert_eq!(few(&six, (7, 2, 1), &[]), Answer::Without(id(2)), "of two guests each has three");
        assert_eq!(few(&six, (7, 1, 1), &[]), full, "nobody takes from those who have less");
        assert_eq!(few(&six, (5, 2, 10), &[]), Answer::Room, "a job that is there takes no further place");
        let mut ended = six.clone();
        ended.get_mut(&id(5)).unwrap().bytes = 0;
        assert_eq!(few(&ended, (7, 1, 1), &[]), Answer::Room, "what is over does not count");
    }

    #[test]
    fn shares_of_bytes_are_by_bytes() {
        let three = jobs(&[(1, 1, 50, Some(5)), (2, 1, 10, Some(9)), (3, 2, 30, None)]);
        let full = Answer::Full(RoomLimit::Bytes(100));
        assert_eq!(asked(&three, (100, 9), (3, 2, 40), &[]), Answer::Room);
        assert_eq!(asked(&three, (100, 9), (3, 2, 50), &[]), Answer::Without(id(2)));
        assert_eq!(asked(&three, (100, 9), (3, 2, 51), &[]), full, "more than half");
        assert_eq!(asked(&three, (100, 9), (1, 1, 61), &[]), full);
        assert_eq!(asked(&three, (100, 9), (4, 3, 20), &[]), Answer::Without(id(2)), "thirds");
    }

    #[test]
    fn who_is_alone_may_have_all() {
        let alone = jobs(&[(1, 1, 60, Some(5)), (2, 1, 30, Some(9))]);
        assert_eq!(asked(&alone, (100, 3), (3, 1, 10), &[]), Answer::Room);
        assert_eq!(asked(&alone, (100, 3), (3, 1, 11), &[]), Answer::Full(RoomLimit::Bytes(100)));
        assert_eq!(asked(&alone, (100, 2), (3, 1, 1), &[]), Answer::Full(RoomLimit::Jobs(2)));
    }
}
