//! Resuming an interrupted transfer: the identity of a job, and the log settings that each side
//! requests from the sink.

use crate::log::{ResumeCheck, Settings, SyncPolicy};
use haul_log::objects::Identity;
use haul_proto::{
    Compression, Connect, JobOptions, LogRequest, Message, PeerText, Role, Unit, Verify, Window,
};
use haul_sys::process;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Data with which an interrupted job can resume when the same command runs again.
#[derive(Clone, Debug)]
pub struct Resume {
    /// Identity of the peer and of the request to it: host and paths as typed.
    pub peer: Vec<u8>,
    /// State directory of this side. Holds the log if this side is the sink.
    pub state: PathBuf,
    /// Job of this command's record in `state`, if it has one.
    pub command: Option<Identity>,
    /// Log settings for the sink. Its layout counts only if this side is the sink.
    pub settings: Settings,
    /// Amount of data of an earlier run to compare again. `None` means none after a clean exit, and
    /// a sample otherwise.
    pub recheck: Option<ResumeCheck>,
}

impl Resume {
    /// Returns the job identifier. The same command in the same directory of the same host has the
    /// same identifier. Options that change no byte at the sink do not count.
    pub(super) fn job(&self, role: Role, options: &JobOptions, here: &[OsString]) -> [u8; 16] {
        let options = JobOptions {
            compression: Compression::Off,
            budget: 0,
            delete: false,
            delete_all: false,
            max_delete: u64::MAX,
            dry_run: false,
            ..options.clone()
        };
        let connect = Message::Connect(Box::new(Connect {
            versions: (0, 0),
            window: Window { files: 0, facts: 0, bytes: 0 },
            operands: Vec::new(),
            ..Connect::new(role, options, PeerText::new(""))
        }));
        let mut bytes = Vec::new();
        connect.encode(&mut bytes);
        let mut put = |part: &[u8]| {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        };
        put(process::host_name().as_bytes());
        put(&self.peer);
        for path in here {
            // A trailing slash changes which names a directory gets at the sink.
            let absolute = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
            put(absolute.as_os_str().as_bytes());
            put(path.as_bytes());
        }
        Identity::of(&bytes).0
    }

    /// Returns the log settings to request from the sink, which chooses the layout of its log
    /// itself. A side that writes a waybill needs the digests of everything.
    pub(super) fn log_request(&self, has_receipt: bool) -> LogRequest {
        let sync = match self.settings.sync {
            SyncPolicy::Object => 1,
            SyncPolicy::Group => 2,
            SyncPolicy::None => 3,
        };
        let verify = match self.recheck {
            _ if has_receipt => 3,
            None => 0,
            Some(ResumeCheck::None) => 1,
            Some(ResumeCheck::Sample) => 2,
            Some(ResumeCheck::All) => 3,
        };
        LogRequest { sync, verify, ..LogRequest::default() }
    }
}

/// Interprets the requested log settings. Unknown values select the default. The layout that
/// earlier versions request is ignored.
pub(super) fn from_request(log_request: &LogRequest) -> (SyncPolicy, Option<ResumeCheck>) {
    let sync = match log_request.sync {
        1 => SyncPolicy::Object,
        3 => SyncPolicy::None,
        _ => SyncPolicy::Group,
    };
    let recheck = match log_request.verify {
        1 => Some(ResumeCheck::None),
        2 => Some(ResumeCheck::Sample),
        3 => Some(ResumeCheck::All),
        _ => None,
    };
    (sync, recheck)
}

/// Returns true if a job with these options resumes within files. If a job hashes bytes in order
/// during the transfer, or reads everything twice, an interrupted file starts from the beginning.
pub(super) fn resumes_within_files(options: &JobOptions) -> bool {
    let is_hashed_in_order =
        options.in_order && options.unit == Unit::File && options.verify == Verify::Stream;
    !options.verify.reads_twice() && !is_hashed_in_order
}

/// Returns true if the sink keeps a log of a job with these options. With the log a later run finds
/// at least the leftovers.
pub(super) fn is_logged(options: &JobOptions) -> bool {
    !options.dry_run
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_log::objects::Style;
    use haul_proto::Update;

    fn resume(peer: &str) -> Resume {
        let settings = Settings { style: Style::DEFAULT, sync: SyncPolicy::Group, wait: false };
        Resume { peer: peer.into(), state: PathBuf::from("/s"), command: None, settings, recheck: None }
    }

    #[test]
    fn log_wishes_round_trip_and_unknown_values_use_defaults() {
        for sync in [SyncPolicy::Object, SyncPolicy::Group, SyncPolicy::None] {
            for recheck in [None, Some(ResumeCheck::None), Some(ResumeCheck::Sample), Some(ResumeCheck::All)]
            {
                let settings = Settings { style: Style::DEFAULT, sync, wait: false };
                let request = Resume { settings, recheck, ..resume("") }.log_request(false);
                assert_eq!(from_request(&request), (sync, recheck));
                assert_eq!(
                    (request.mechanism, request.files, request.encoding),
                    (0, 0, 0),
                    "not ours to choose"
                );
            }
        }
        assert_eq!(
            from_request(&resume("").log_request(true)).1,
            Some(ResumeCheck::All),
            "a waybill needs all digests"
        );
        let strange = LogRequest { mechanism: 9, files: 0, encoding: 200, sync: 77, verify: 50 };
        assert_eq!(from_request(&strange), (SyncPolicy::Group, None));
    }

    #[test]
    fn same_command_gives_the_same_job() {
        let (options, here) = (JobOptions::default(), [OsString::from("data")]);
        let job = |options: &JobOptions, here: &[OsString], peer: &str| {
            resume(peer).job(Role::Source, options, here)
        };
        let one = job(&options, &here, "host");
        assert_eq!(job(&options, &here, "host"), one);
        let packed = JobOptions { compression: Compression::Zstd(3), delete: true, ..options.clone() };
        assert_eq!(job(&packed, &here, "host"), one, "no byte at the sink is another");
        let updating = JobOptions { update: Update::Object, ..options.clone() };
        for other in [
            job(&updating, &here, "host"),
            job(&options, &["data/".into()], "host"),
            job(&options, &[], "host"),
            job(&options, &here, "hos"),
            resume("host").job(Role::Sink, &options, &here),
        ] {
            assert_ne!(other, one);
        }
    }
}
