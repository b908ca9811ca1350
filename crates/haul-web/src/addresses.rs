//! Addresses of files for downloads by the browser itself, which sends no header of the page. Each
//! has a token for one file of one session. Time is passed in.

use crate::access::{NoRandomness, random, sha256};
use crate::certificate::hex;
use crate::limits::FILE_ADDRESSES_MAX;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a token.
const TOKEN_BYTES: usize = 16;

/// Addresses of a session, by the digest of their token.
#[derive(Default)]
pub(crate) struct Addresses(Mutex<HashMap<[u8; 32], Arc<FileAddress>>>);

/// A file that one address serves. It does not expire while a download has it.
pub(crate) struct FileAddress {
    pub(crate) root: usize,
    pub(crate) path: Vec<u8>,
    last: Mutex<Instant>,
}

impl Addresses {
    /// Returns the token of a new address. If there are too many, the one without a request for the
    /// longest time becomes invalid.
    pub(crate) fn issue(
        &self,
        root: usize,
        path: Vec<u8>,
        now: Instant,
        idle: Duration,
    ) -> Result<String, NoRandomness> {
        let token = hex(&random::<TOKEN_BYTES>()?);
        let mut known = self.lock();
        known.retain(|_, address| !address.is_over(now, idle));
        if known.len() >= FILE_ADDRESSES_MAX
            && let Some(oldest) = known.iter().min_by_key(|(_, address)| address.last()).map(|(key, _)| *key)
        {
            known.remove(&oldest);
        }
        known.insert(sha256(token.as_bytes()), Arc::new(FileAddress { root, path, last: Mutex::new(now) }));
        Ok(token)
    }

    /// Returns the file of the address with this digest of its token, and extends the address.
    pub(crate) fn find(&self, key: &[u8; 32], now: Instant, idle: Duration) -> Option<Arc<FileAddress>> {
        let address = self.lock().get(key).filter(|address| !address.is_over(now, idle)).cloned()?;
        address.extend(now);
        Some(address)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Arc<FileAddress>>> {
        self.0.lock()
    }
}

impl FileAddress {
    /// Records a request, or the end of its download.
    pub(crate) fn extend(&self, now: Instant) {
        *self.last.lock() = now;
    }

    fn last(&self) -> Instant {
        *self.last.lock()
    }

    /// Returns true if no download has the address, and none had it for `idle`. Called with the
    /// lock of the table, which has one reference.
    fn is_over(self: &Arc<Self>, now: Instant, idle: Duration) -> bool {
        Arc::strong_count(self) == 1 && now.saturating_duration_since(self.last()) >= idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(600);

    fn issue(addresses: &Addresses, path: &str, now: Instant) -> [u8; 32] {
        sha256(addresses.issue(1, path.into(), now, IDLE).expect("random numbers").as_bytes())
    }

    #[test]
    fn an_address_serves_its_file_until_it_has_no_request_for_some_time() {
        let (addresses, now) = (Addresses::default(), Instant::now());
        let key = issue(&addresses, "a", now);
        let second = Duration::from_secs(1);
        let file = addresses.find(&key, now + IDLE - second, IDLE).expect("valid");
        assert_eq!((file.root, &file.path[..]), (1, &b"a"[..]));
        assert!(addresses.find(&key, now + 3 * IDLE, IDLE).is_some(), "its download is in progress");
        drop(file);
        assert!(addresses.find(&key, now + 4 * IDLE - second, IDLE).is_some(), "the request extended it");
        assert!(addresses.find(&key, now + 5 * IDLE, IDLE).is_none());
        assert!(addresses.find(&sha256(b""), now, IDLE).is_none());
    }

    #[test]
    fn the_number_of_addresses_is_limited() {
        let (addresses, now) = (Addresses::default(), Instant::now());
        let first = issue(&addresses, "first", now);
        let second = issue(&addresses, "second", now);
        assert!(addresses.find(&first, now + Duration::from_secs(1), IDLE).is_some());
        for _ in 0..FILE_ADDRESSES_MAX - 1 {
            issue(&addresses, "more", now + Duration::from_secs(2));
        }
        assert!(addresses.find(&second, now, IDLE).is_none(), "it had no request for the longest time");
        assert!(addresses.find(&first, now + IDLE, IDLE).is_some());
        issue(&addresses, "last", now + 3 * IDLE);
        assert_eq!(addresses.lock().len(), 1, "expired addresses are dropped");
    }
}
