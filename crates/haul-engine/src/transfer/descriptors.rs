//! Budget of file descriptors: one for the process, which all of its sessions share.

use haul_sys::process;
use parking_lot::Mutex;

/// Maximum number of descriptors that sessions leave for connections, logs and the process itself.
/// If the limit of the process is low, they leave a quarter of it.
const RESERVE_MAX: u64 = 1024;

/// Number of descriptors of a session besides those of its files: lanes, locks, log and waybill.
const PER_SESSION: u64 = 64;

/// Number of further descriptors of a lane over UDP: its socket, and one that wakes its thread.
const PER_UDP_LANE: u64 = 2;

/// Number of descriptors for each file of the window: the file, the existing file that it is
/// compared with, its directory, and one more attempt; all of that twice, because a source can have
/// twice as many files open as the window.
const PER_FILE: u64 = 8;

/// Minimum number of files in the window of a session, for which descriptors are left to sessions
/// that may start later.
const FILES_MIN: u32 = 4;

/// Number of descriptors of a session with the smallest window.
const SESSION_MIN: u64 = PER_SESSION + PER_FILE * FILES_MIN as u64;

/// Grants of all sessions of this process.
static GRANTED: Mutex<Granted> = Mutex::new(Granted { sessions: 0, descriptors: 0 });

#[derive(Clone, Copy, Debug)]
struct Granted {
    sessions: u64,
    descriptors: u64,
}

/// Descriptors of one session, returned on drop.
#[derive(Debug)]
pub(super) struct DescriptorGrant {
    descriptors: u64,
    /// Maximum number of files in the session's window.
    pub(super) files: u32,
}

impl DescriptorGrant {
    /// Reserves descriptors for up to `files` files of a session, in a process that has at most
    /// `sessions` of them. The session gets at most half of what is left, apart from the minimum of
    /// those that may follow. `udp_lanes` of its lanes may use UDP. Returns `None` if too few are
    /// left. The first session, and each in a process that expects only one, always gets a window.
    pub(super) fn reserve(files: u32, sessions: usize, udp_lanes: u32) -> Option<DescriptorGrant> {
        // If the limit cannot be raised, use the current one.
        let limit = process::raise_open_file_limit().unwrap_or_else(|_| process::open_file_limit());
        let mut granted = GRANTED.lock();
        let for_lanes = PER_UDP_LANE * u64::from(udp_lanes);
        let others = Granted { descriptors: granted.descriptors + for_lanes, ..*granted };
        let mut grant = share(limit, others, files, sessions)?;
        grant.descriptors += for_lanes;
        granted.sessions += 1;
        granted.descriptors += grant.descriptors;
        Some(grant)
    }
}

impl Drop for DescriptorGrant {
    fn drop(&mut self) {
        let mut granted = GRANTED.lock();
        granted.sessions -= 1;
        granted.descriptors -= self.descriptors;
    }
}

/// Returns the share of the next session if `limit` descriptors exist.
fn share(limit: u64, granted: Granted, files: u32, sessions: usize) -> Option<DescriptorGrant> {
    let left = limit.saturating_sub(RESERVE_MAX.min(limit / 4)).saturating_sub(granted.descriptors);
    if sessions <= 1 {
        // A program can have both sides of a session.
        return Some(grant(left / 4 * 3, files));
    }
    let later = (sessions as u64).saturating_sub(granted.sessions + 1);
    let share = left.saturating_sub(later.saturating_mul(SESSION_MIN)) / 2;
    let share = share.max(SESSION_MIN.min(left));
    (share >= SESSION_MIN || granted.sessions == 0).then(|| grant(share, files))
}

/// Returns the grant of at most `share` descriptors and `files` files, at least one.
fn grant(share: u64, files: u32) -> DescriptorGrant {
    let most = share.saturating_sub(PER_SESSION.min(share / 4)) / PER_FILE;
    let files = files.min(u32::try_from(most).unwrap_or(u32::MAX)).max(1);
    let descriptors = (PER_SESSION + PER_FILE * u64::from(files)).min(share);
    DescriptorGrant { descriptors, files }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the files of sessions that start one after another, up to the first that is refused,
    /// and the number of their descriptors.
    fn windows(limit: u64, sessions: usize) -> (Vec<u32>, u64) {
        let (mut files, mut granted) = (Vec::new(), Granted { sessions: 0, descriptors: 0 });
        while files.len() < sessions
            && let Some(grant) = share(limit, granted, 4096, sessions)
        {
            granted.sessions += 1;
            granted.descriptors += grant.descriptors;
            files.push(grant.files);
            std::mem::forget(grant);
        }
        (files, granted.descriptors)
    }

    #[test]
    fn sessions_never_get_more_descriptors_than_the_process_has() {
        for limit in [0, 1, 64, 256, 1024, 4096, 65_536, 524_288, u64::MAX] {
            for sessions in [1, 2, 64, 1000] {
                let (files, granted) = windows(limit, sessions);
                let reserve = RESERVE_MAX.min(limit / 4);
                assert!(granted <= limit - reserve, "{granted} of {limit}");
                assert!(!files.is_empty(), "the first session starts: {limit}");
            }
        }
    }

    #[test]
    fn lanes_over_udp_count_with_their_sockets() {
        let lanes = DescriptorGrant::reserve(1, 64, 64).expect("a window");
        let none = DescriptorGrant::reserve(1, 64, 0).expect("a window");
        assert_eq!(lanes.descriptors - none.descriptors, 128);
    }

    #[test]
    fn all_sessions_start_if_the_limit_permits() {
        let (files, _) = windows(1 << 20, 64);
        assert!(files.len() == 64 && files[..30].iter().all(|&files| files == 4096), "{files:?}");
        let (files, _) = windows(20_000, 64);
        assert!(files.len() == 64 && files[0] == 800 && files[63] >= FILES_MIN, "{files:?}");
    }

    #[test]
    fn low_limit_gives_few_sessions_a_small_window() {
        assert_eq!(windows(1024, 1).0, [64]);
        assert_eq!(windows(1024, 64).0, [9; 8]);
        assert_eq!(windows(256, 64).0, [9; 2]);
    }
}
