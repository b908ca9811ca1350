//! Fair-share eviction for the shared log store of a server.
//!
//! The equal share of a client is the limit divided by the number of clients that have a job,
//! including the requesting one. When a limit is reached, a client that stays within its equal
//! share may evict a job of a client above it. The victim is the least recently used idle job of
//! the client that uses most. A job with an active session is never evicted.

use super::room::{RoomLimit, RoomLimits};
use haul_log::objects::Identity;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

/// Log space used by one job.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    /// Size in bytes; 0 for a finished job, which no longer counts.
    pub(super) bytes: u64,
    /// Number of sessions that run the job or wait for it.
    pub(super) sessions: u32,
    /// Client that owns the job. All jobs without a known owner belong to one client.
    pub(super) guest: Identity,
    /// Time of the last use.
    pub(super) touched: SystemTime,
}

/// Request for log space.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) job: Identity,
    pub(super) guest: Identity,
    pub(super) bytes: u64,
}

/// Answer to a request for log space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Granted.
    Room,
    /// May be granted after the eviction of this job.
    Without(Identity),
    /// Refused because of this limit.
    Full(RoomLimit),
}

/// Decides a request for log space, given the usage of all jobs. Never evicts a job in `stay`.
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

    /// Creates jobs from their number, client, bytes and idle time in seconds; `None` for an active
    /// job.
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
        // One client has four jobs, another has two; with a third client the share is two.
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
        assert_eq!(few(&six, (7, 3, 1), &[2]), Answer::Without(id(3)), "a job in use is not evicted");
        assert_eq!(few(&six, (7, 3, 1), &[1, 2, 3]), full, "a client within its share keeps its jobs");
        assert_eq!(few(&six, (7, 2, 1), &[]), Answer::Without(id(2)), "of two clients each has three");
        assert_eq!(few(&six, (7, 1, 1), &[]), full, "no client evicts jobs of a client with less");
        assert_eq!(few(&six, (5, 2, 10), &[]), Answer::Room, "an existing job needs no additional space");
        let mut ended = six.clone();
        ended.get_mut(&id(5)).unwrap().bytes = 0;
        assert_eq!(few(&ended, (7, 1, 1), &[]), Answer::Room, "a finished job does not count");
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
