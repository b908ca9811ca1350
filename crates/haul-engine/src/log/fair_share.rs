//! Fair-share eviction for the shared log store of a server.
//!
//! The equal share of a client is the limit divided by the number of clients that have a job,
//! including the requesting one. When a limit is reached, a client that stays within its equal
//! share may evict a job of a client above it. The victim is the least recently used idle job of
//! the client that uses most. A job with an active session is never evicted.

use super::log_store::{LogStoreLimit, LogStoreLimits};
use haul_log::objects::Identity;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

/// Log space used by one job.
#[derive(Clone, Debug)]
pub(super) struct JobUsage {
    /// Size in bytes; 0 for a finished job, which no longer counts.
    pub(super) bytes: u64,
    /// Number of sessions that run the job or wait for it.
    pub(super) sessions: u32,
    /// Client that owns the job. All jobs without a known owner belong to one client.
    pub(super) client: Identity,
    /// Time of the last use.
    pub(super) touched: SystemTime,
}

/// Request for log space.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpaceRequest {
    pub(super) job: Identity,
    pub(super) client: Identity,
    pub(super) bytes: u64,
}

/// Answer to a request for log space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Granted.
    LogStore,
    /// May be granted after the eviction of this job.
    Without(Identity),
    /// Refused because of this limit.
    Full(LogStoreLimit),
}

/// Decides a request for log space, given the usage of all jobs. Never evicts a job in `stay`.
pub(super) fn answer(
    jobs: &BTreeMap<Identity, JobUsage>,
    limits: &LogStoreLimits,
    request: &SpaceRequest,
    stay: &BTreeSet<Identity>,
) -> Answer {
    let counts = |usage: &JobUsage| usage.bytes > 0;
    let is_new = !jobs.get(&request.job).is_some_and(counts);
    let others = || jobs.iter().filter(|(id, usage)| **id != request.job && counts(usage));
    let bytes = others().fold(request.bytes, |sum, (_, usage)| sum.saturating_add(usage.bytes));
    let (limit, most) = if is_new && others().count() >= limits.jobs {
        (LogStoreLimit::Jobs(limits.jobs), limits.jobs as u64)
    } else if bytes > limits.bytes {
        (LogStoreLimit::Bytes(limits.bytes), limits.bytes)
    } else {
        return Answer::LogStore;
    };
    let weigh = |bytes: u64| if matches!(limit, LogStoreLimit::Jobs(_)) { 1 } else { bytes };
    let mut held = BTreeMap::from([(request.client, 0)]);
    let all = others().map(|(_, usage)| (usage.client, usage.bytes)).chain([(request.client, request.bytes)]);
    all.for_each(|(client, bytes)| *held.entry(client).or_default() += weigh(bytes));
    let share = most / held.len() as u64;
    if held[&request.client] > share {
        return Answer::Full(limit);
    }
    let may_go = |(id, usage): &(&Identity, &JobUsage)| {
        usage.sessions == 0 && held[&usage.client] > share && !stay.contains(*id)
    };
    let goes = others().filter(may_go).max_by_key(|(_, usage)| (held[&usage.client], Reverse(usage.touched)));
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
    fn jobs(of: &[(u8, u8, u64, Option<u64>)]) -> BTreeMap<Identity, JobUsage> {
        let job = |&(job, client, bytes, ago): &(u8, u8, u64, Option<u64>)| {
            let touched = SystemTime::UNIX_EPOCH + Duration::from_secs(1000 - ago.unwrap_or(0));
            (id(job), JobUsage { bytes, sessions: u32::from(ago.is_none()), client: id(client), touched })
        };
        of.iter().map(job).collect()
    }

    fn asked(
        jobs: &BTreeMap<Identity, JobUsage>,
        limits: (u64, usize),
        request: (u8, u8, u64),
        stay: &[u8],
    ) -> Answer {
        let limits = LogStoreLimits { bytes: limits.0, jobs: limits.1, ..LogStoreLimits::default() };
        let request = SpaceRequest { job: id(request.0), client: id(request.1), bytes: request.2 };
        answer(jobs, &limits, &request, &stay.iter().map(|&number| id(number)).collect())
    }

    #[test]
    fn client_below_its_share_evicts_the_oldest_job_of_the_largest_client() {
        let few = |jobs: &BTreeMap<_, _>, request, stay: &[u8]| asked(jobs, (1 << 30, 6), request, stay);
        let full = Answer::Full(LogStoreLimit::Jobs(6));
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
        assert_eq!(few(&six, (5, 2, 10), &[]), Answer::LogStore, "an existing job needs no additional space");
        let mut ended = six.clone();
        ended.get_mut(&id(5)).unwrap().bytes = 0;
        assert_eq!(few(&ended, (7, 1, 1), &[]), Answer::LogStore, "a finished job does not count");
    }

    #[test]
    fn shares_of_a_byte_limit_are_counted_in_bytes() {
        let three = jobs(&[(1, 1, 50, Some(5)), (2, 1, 10, Some(9)), (3, 2, 30, None)]);
        let full = Answer::Full(LogStoreLimit::Bytes(100));
        assert_eq!(asked(&three, (100, 9), (3, 2, 40), &[]), Answer::LogStore);
        assert_eq!(asked(&three, (100, 9), (3, 2, 50), &[]), Answer::Without(id(2)));
        assert_eq!(asked(&three, (100, 9), (3, 2, 51), &[]), full, "more than half");
        assert_eq!(asked(&three, (100, 9), (1, 1, 61), &[]), full);
        assert_eq!(asked(&three, (100, 9), (4, 3, 20), &[]), Answer::Without(id(2)), "thirds");
    }

    #[test]
    fn single_client_may_use_the_entire_limit() {
        let alone = jobs(&[(1, 1, 60, Some(5)), (2, 1, 30, Some(9))]);
        assert_eq!(asked(&alone, (100, 3), (3, 1, 10), &[]), Answer::LogStore);
        assert_eq!(asked(&alone, (100, 3), (3, 1, 11), &[]), Answer::Full(LogStoreLimit::Bytes(100)));
        assert_eq!(asked(&alone, (100, 2), (3, 1, 1), &[]), Answer::Full(LogStoreLimit::Jobs(2)));
    }
}
