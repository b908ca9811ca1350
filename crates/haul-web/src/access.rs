//! One-time codes and the sessions that they open. Time is passed in.

use crate::addresses::{Addresses, FileAddress};
use crate::certificate::hex;
use crate::lanes::{Lanes, StreamLane};
use crate::limits::{ANSWERS_MAX, WebLimits};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand;
use haul_net::SessionId;
use haul_net::address::peer_group;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Bytes of a code. Such a number cannot be guessed.
const CODE_BYTES: usize = 16;

/// Bytes of the token of a session.
const TOKEN_BYTES: usize = 32;

/// Maximum number of peers whose wrong codes are counted. Above it, the oldest count is dropped.
const PEERS_MAX: usize = 1024;

/// Codes and sessions of a server.
pub(crate) struct Access {
    limits: WebLimits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Digests of the unused codes, and their expiry.
    codes: Vec<([u8; 32], Instant)>,
    /// Sessions by the digest of their token. A lookup in the table compares digests, so its time
    /// tells nothing about the token.
    sessions: HashMap<[u8; 32], Arc<Session>>,
    /// Wrong codes by peer: their number, and the end of the window.
    failures: HashMap<IpAddr, (usize, Instant)>,
    serial: u64,
}

/// A browser that has signed in.
pub(crate) struct Session {
    /// Number of the session, for logs.
    pub(crate) number: u64,
    /// Digest of the token.
    key: [u8; 32],
    last: Mutex<Instant>,
    /// Address of the last request.
    peer: Mutex<IpAddr>,
    pub(crate) lanes: Lanes,
    /// Addresses of files for downloads by the browser itself.
    pub(crate) addresses: Addresses,
    /// One permit for each piece or listing that waits for its client.
    pub(crate) answers: Arc<Semaphore>,
    /// Bytes that new directories count against the quota of each root.
    spent: Mutex<HashMap<usize, u64>>,
}

/// Reason for refusing a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeError {
    /// The code is unknown, used or expired.
    Wrong,
    /// The peer sent too many wrong codes.
    TooManyWrong,
    /// All sessions are in use. The code stays valid.
    Full,
}

/// Reason for refusing the connection of a lane over WebTransport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneError {
    /// There is no such lane.
    Unknown,
    /// The token is wrong, was used, or has expired.
    Token,
}

/// Failure of the random number generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the random number generator failed")]
pub(crate) struct NoRandomness;

impl Access {
    pub(crate) fn new(limits: WebLimits) -> Access {
        Access { limits, state: Mutex::default() }
    }

    /// Returns a new code. If there are too many unused codes, the oldest becomes invalid.
    pub(crate) fn issue_code(&self, now: Instant) -> Result<String, NoRandomness> {
        let code = hex(&random::<CODE_BYTES>()?);
        let mut state = self.lock();
        state.codes.retain(|(_, expires)| now < *expires);
        if state.codes.len() >= self.limits.codes {
            state.codes.remove(0);
        }
        state.codes.push((sha256(code.as_bytes()), now + self.limits.code_age));
        Ok(code)
    }

    /// Uses a code. Returns the new session and its token.
    pub(crate) fn sign_in(
        &self,
        code: &str,
        peer: IpAddr,
        now: Instant,
    ) -> Result<Result<(Arc<Session>, String), CodeError>, NoRandomness> {
        let token = hex(&random::<TOKEN_BYTES>()?);
        let said = sha256(code.as_bytes());
        let mut state = self.lock();
        // All codes are compared, each in constant time.
        let mut found = None;
        for (at, (known, expires)) in state.codes.iter().enumerate() {
            if verify_slices_are_equal(known, &said).is_ok() && now < *expires {
                found = Some(at);
            }
        }
        // A right code is never refused for wrong ones: others can have the same address.
        let Some(at) = found else {
            let is_limited = state.count_failure(peer_group(peer), now, &self.limits);
            return Ok(Err(if is_limited { CodeError::TooManyWrong } else { CodeError::Wrong }));
        };
        if state.sessions.len() >= self.limits.sessions {
            return Ok(Err(CodeError::Full));
        }
        state.codes.remove(at);
        state.serial += 1;
        let key = sha256(token.as_bytes());
        let session = Arc::new(Session {
            number: state.serial,
            key,
            last: Mutex::new(now),
            peer: Mutex::new(peer),
            lanes: Lanes::new(self.limits),
            addresses: Addresses::default(),
            answers: Arc::new(Semaphore::new(ANSWERS_MAX)),
            spent: Mutex::default(),
        });
        state.sessions.insert(key, Arc::clone(&session));
        Ok(Ok((session, token)))
    }

    /// Returns the session of a token, and extends it.
    pub(crate) fn session(&self, token: &[u8], now: Instant) -> Option<Arc<Session>> {
        let session = self.lock().sessions.get(&sha256(token)).cloned()?;
        self.is_running(&session, now).then(|| {
            session.extend(now);
            session
        })
    }

    /// Returns the file of an address with this token and its session, and extends both.
    pub(crate) fn file(&self, token: &[u8], now: Instant) -> Option<(Arc<Session>, Arc<FileAddress>)> {
        let key = sha256(token);
        let sessions: Vec<_> = self.lock().sessions.values().cloned().collect();
        let mut running = sessions.into_iter().filter(|session| self.is_running(session, now));
        running.find_map(|session| {
            let address = session.addresses.find(&key, now, self.limits.address_idle)?;
            session.extend(now);
            Some((session, address))
        })
    }

    /// Returns true if the last request of a session was from this peer.
    pub(crate) fn has_session_of(&self, peer: IpAddr) -> bool {
        let is_same = |session: &Arc<Session>| peer_group(*lock(&session.peer)) == peer_group(peer);
        self.lock().sessions.values().any(is_same)
    }

    fn is_running(&self, session: &Session, now: Instant) -> bool {
        session.idle_time(now) < self.limits.session_idle
    }

    /// Uses the token of a lane over WebTransport. Returns the lane and its session.
    pub(crate) fn connect_lane(
        &self,
        id: &str,
        token: &str,
        now: Instant,
    ) -> Result<(Arc<Session>, Arc<StreamLane>), LaneError> {
        let sessions: Vec<_> = self.lock().sessions.values().cloned().collect();
        for session in sessions {
            if let Some(connected) = session.lanes.connect(id, token, now) {
                return connected.map(|lane| (session, lane)).ok_or(LaneError::Token);
            }
        }
        Err(LaneError::Unknown)
    }

    /// Ends a session and its lanes.
    pub(crate) fn sign_out(&self, session: &Session) {
        self.lock().sessions.remove(&session.key);
        session.lanes.abort_all();
    }

    /// Returns the number of sessions, and of their lanes over HTTP and over WebTransport.
    pub(crate) fn counts(&self) -> (usize, [usize; 2]) {
        let sessions: Vec<_> = self.lock().sessions.values().cloned().collect();
        let lanes = sessions.iter().map(|session| session.lanes.counts());
        (sessions.len(), lanes.fold([0, 0], |sum, of| [sum[0] + of[0], sum[1] + of[1]]))
    }

    /// Ends the sessions and lanes without requests. Returns the numbers of the ended sessions.
    pub(crate) fn end_idle(&self, now: Instant) -> Vec<u64> {
        let idle = |session: &Session| !self.is_running(session, now);
        let (ended, others): (Vec<_>, Vec<_>) = {
            let mut state = self.lock();
            state.failures.retain(|_, (_, end)| now < *end);
            let ended = state.sessions.extract_if(|_, session| idle(session)).map(|(_, session)| session);
            let ended = ended.collect();
            (ended, state.sessions.values().cloned().collect())
        };
        others.iter().for_each(|session| session.lanes.abort_idle(now));
        ended.iter().for_each(|session| session.lanes.abort_all());
        ended.iter().map(|session| session.number).collect()
    }

    /// Ends all sessions.
    pub(crate) fn end_all(&self) {
        let sessions: Vec<_> = self.lock().sessions.drain().map(|(_, session)| session).collect();
        sessions.iter().for_each(|session| session.lanes.abort_all());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl State {
    /// Counts a wrong code. Returns true if the peer had too many before.
    fn count_failure(&mut self, peer: IpAddr, now: Instant, limits: &WebLimits) -> bool {
        self.failures.retain(|_, (_, end)| now < *end);
        if self.failures.len() >= PEERS_MAX
            && let Some(oldest) = self.failures.iter().min_by_key(|(_, (_, end))| *end).map(|(peer, _)| *peer)
        {
            self.failures.remove(&oldest);
        }
        let (count, end) = self.failures.entry(peer).or_insert((0, now + limits.failure_window));
        let is_limited = *count >= limits.failures;
        if !is_limited {
            *count += 1;
            *end = now + limits.failure_window;
        }
        is_limited
    }
}

impl Session {
    /// Records a request, or bytes of a lane over WebTransport.
    pub(crate) fn extend(&self, now: Instant) {
        *lock(&self.last) = now;
    }

    /// Records the address of a request.
    pub(crate) fn moved_to(&self, peer: IpAddr) {
        *lock(&self.peer) = peer;
    }

    /// Returns the time since then.
    pub(crate) fn idle_time(&self, now: Instant) -> Duration {
        now.saturating_duration_since(*lock(&self.last))
    }

    /// Returns the ID of the transfer session that this browser calls `name`. No other browser can
    /// choose the same ID.
    pub(crate) fn transfer(&self, root: usize, name: &[u8]) -> SessionId {
        let text = [&b"haul web transfer 1"[..], &self.key, &(root as u64).to_le_bytes(), name].concat();
        let mut id = SessionId([0; 16]);
        id.0.copy_from_slice(&sha256(&text)[..16]);
        id
    }

    /// Counts `bytes` against the quota of a root. Returns false if they exceed it.
    pub(crate) fn spend(&self, root: usize, bytes: u64, quota: Option<u64>) -> bool {
        let mut spent = lock(&self.spent);
        let of_root = spent.entry(root).or_default();
        let sum = of_root.saturating_add(bytes);
        if quota.is_some_and(|quota| sum > quota) {
            return false;
        }
        *of_root = sum;
        true
    }
}

/// Returns random bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(bytes)
}

/// Returns the SHA-256 of `bytes`.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

    fn sign_in(access: &Access, code: &str, peer: IpAddr, now: Instant) -> Result<String, CodeError> {
        access.sign_in(code, peer, now).expect("random numbers").map(|(_, token)| token)
    }

    #[test]
    fn a_code_works_once_and_expires() {
        let (access, now) = (Access::new(WebLimits::default()), Instant::now());
        let code = access.issue_code(now).expect("a code");
        let token = sign_in(&access, &code, PEER, now).expect("valid");
        assert!(access.session(token.as_bytes(), now).is_some());
        assert_eq!(sign_in(&access, &code, PEER, now), Err(CodeError::Wrong));
        let late = access.issue_code(now).expect("a code");
        let age = WebLimits::default().code_age;
        assert_eq!(sign_in(&access, &late, PEER, now + age), Err(CodeError::Wrong));
    }

    #[test]
    fn wrong_codes_of_a_peer_are_told_so_and_do_not_refuse_the_right_one() {
        let (access, now) = (Access::new(WebLimits::default()), Instant::now());
        let code = access.issue_code(now).expect("a code");
        let WebLimits { failures, failure_window, .. } = WebLimits::default();
        for _ in 0..failures {
            assert_eq!(sign_in(&access, "0000", PEER, now), Err(CodeError::Wrong));
        }
        assert_eq!(sign_in(&access, "0000", PEER, now), Err(CodeError::TooManyWrong));
        assert_eq!(sign_in(&access, "0000", OTHER, now), Err(CodeError::Wrong), "another peer");
        assert_eq!(sign_in(&access, "0000", PEER, now + failure_window), Err(CodeError::Wrong));
        sign_in(&access, &code, PEER, now).expect("the right code");
    }

    #[test]
    fn the_number_of_sessions_and_codes_is_limited() {
        let limits = WebLimits { sessions: 2, codes: 3, ..WebLimits::default() };
        let (access, now) = (Access::new(limits), Instant::now());
        let codes: Vec<String> = (0..4).map(|_| access.issue_code(now).expect("a code")).collect();
        assert_eq!(sign_in(&access, &codes[0], PEER, now), Err(CodeError::Wrong), "the oldest is dropped");
        let first = sign_in(&access, &codes[1], PEER, now).expect("valid");
        sign_in(&access, &codes[2], PEER, now).expect("valid");
        assert_eq!(sign_in(&access, &codes[3], PEER, now), Err(CodeError::Full));
        let session = access.session(first.as_bytes(), now).expect("there");
        access.sign_out(&session);
        assert!(access.session(first.as_bytes(), now).is_none());
        sign_in(&access, &codes[3], PEER, now).expect("the code stayed valid");
    }

    #[test]
    fn sessions_without_requests_end() {
        let (access, now) = (Access::new(WebLimits::default()), Instant::now());
        let code = access.issue_code(now).expect("a code");
        let token = sign_in(&access, &code, PEER, now).expect("valid");
        let token = token.as_bytes();
        let half = WebLimits::default().session_idle / 2 + Duration::from_secs(1);
        assert!(access.session(token, now + half).is_some());
        assert!(access.end_idle(now + 2 * half).is_empty(), "the request extended it");
        assert!(access.session(token, now + 4 * half).is_none(), "also before the next look");
        assert_eq!(access.end_idle(now + 4 * half), [1]);
    }

    #[test]
    fn transfers_of_sessions_are_distinct_and_quotas_add_up() {
        let (access, now) = (Access::new(WebLimits::default()), Instant::now());
        let session = |access: &Access| {
            let code = access.issue_code(now).expect("a code");
            let signed_in = access.sign_in(&code, PEER, now).expect("random numbers");
            signed_in.unwrap_or_else(|error| panic!("{error:?}")).0
        };
        let (one, two) = (session(&access), session(&access));
        assert_eq!(one.transfer(0, b"job"), one.transfer(0, b"job"));
        let ids = [
            one.transfer(0, b"job"),
            one.transfer(1, b"job"),
            one.transfer(0, b"j"),
            two.transfer(0, b"job"),
        ];
        assert!((0..4).all(|a| (0..a).all(|b| ids[a] != ids[b])));
        assert!(one.spend(0, 600, Some(1000)) && !one.spend(0, 600, Some(1000)));
        assert!(
            one.spend(1, 600, Some(1000)) && one.spend(0, 400, Some(1000)) && one.spend(2, u64::MAX, None)
        );
    }
}
