//! Dialogue of the two sides over ssh before the first lane: one line in each direction, then one
//! command.
//!
//! ```text
//! this side                                   the side that ssh started
//! {"meet":1,"way":"send","paths":[..],..}  ->
//!                       haul-meet {"ready":{"ticket":"haul1..","paths":[..],..}}
//!                       or        {"failure":".."}                                   <-
//! outside   (lanes stand beside ssh)       ->
//! or inside (this pipe becomes the lane)   ->
//! done      (after outside: it is over)    ->
//! ```
//!
//! Lines are JSON and end with a newline. Paths are base64, because names need not be text. Very
//! long lists of paths follow the line instead, each path with a NUL at the end; `listed` in the
//! line holds the number of paths and bytes. Output of the remote login before haul's line, which
//! need not end with a newline, is skipped. If the pipe ends without `done`, ssh or this side has
//! died.

pub(crate) mod line;

use haul_sys::wait;
pub(crate) use line::{
    Direction, EncodedPaths, MARK, MEET, MEET_LISTED, PathListHeader, Reply, Request, UdpRequest, from_words,
    to_words,
};
use rustix::io::{read, retry_on_intr};
use std::cell::Cell;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// Final commands of this side.
pub(crate) const OUTSIDE: &str = "outside";
pub(crate) const INSIDE: &str = "inside";
pub(crate) const DONE: &str = "done";

/// Maximum number of bytes of a line: the maximum number of paths of a job, in base64.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Initial buffer size: fits a ticket and a few paths.
const LINE_BYTES_USUAL: usize = 16 << 10;

/// Maximum number of bytes of a list per read.
const LIST_BLOCK_BYTES: usize = 64 << 10;

/// Maximum number of bytes that a login may print before haul's line.
const NOISE_BYTES_MAX: usize = 64 << 10;

/// Returns the paths of a line: `in_line`, or the list after the line, of which no byte more than
/// announced is read. Returns `None` if the paths do not match the announcement.
///
/// # Errors
/// Returns the error of read(2), `InvalidData` if a job may not name this many paths, and
/// `Interrupted` once `stopping` returns true.
pub(crate) fn receive_paths(
    in_line: &[String],
    listed: Option<PathListHeader>,
    from: impl AsFd,
    stopping: impl Fn() -> bool,
) -> io::Result<Option<Vec<Vec<u8>>>> {
    let Some(listed) = listed else { return Ok(from_words(in_line)) };
    if !listed.is_within_limits() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let bytes = listed.bytes;
    // Paths that were not sent take no memory.
    let (mut all, mut block) = (Vec::new(), vec![0; LIST_BLOCK_BYTES.min(bytes)]);
    while all.len() < bytes {
        if !wait::until_readable(&from, &stopping)? {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let most = block.len().min(bytes - all.len());
        match retry_on_intr(|| read(&from, &mut block[..most]))? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            came => all.extend_from_slice(&block[..came]),
        }
    }
    Ok(listed.paths_in(&all))
}

/// Reads the next byte. Returns `None` at the end of the pipe.
fn read_byte(from: impl AsFd, stopping: impl Fn() -> bool) -> io::Result<Option<u8>> {
    if !wait::until_readable(&from, stopping)? {
        return Err(io::ErrorKind::Interrupted.into());
    }
    let mut byte = [0];
    let count = retry_on_intr(|| read(&from, &mut byte))?;
    Ok((count > 0).then_some(byte[0]))
}

/// Reads the next line byte by byte, because the following bytes belong to another reader. Returns
/// `None` at the end of the pipe.
///
/// # Errors
/// Returns the error of read(2), `InvalidData` for a line that is too long, and `Interrupted` once
/// `stopping` returns true.
pub(crate) fn read_line(
    from: impl AsFd,
    stopping: impl Fn() -> bool,
) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    read_line_after(&[], from, stopping)
}

/// Same as [`read_line`] for a line whose first bytes are read already.
fn read_line_after(
    start: &[u8],
    from: impl AsFd,
    stopping: impl Fn() -> bool,
) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    // The initial capacity fits a ticket: growing the buffer would leave copies of the secret
    // behind.
    let mut line = Zeroizing::new(Vec::with_capacity(LINE_BYTES_USUAL));
    line.extend_from_slice(start);
    loop {
        match read_byte(&from, &stopping)? {
            None if line.is_empty() => return Ok(None),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(b'\n') => return Ok(Some(line)),
            Some(_) if line.len() == LINE_BYTES_MAX => return Err(io::ErrorKind::InvalidData.into()),
            Some(other) => line.push(other),
        }
    }
}

/// Output of a login that is no answer of haul.
pub(crate) struct LoginOutput<'a> {
    /// Time after the first byte of such output, after which `report` gets the output so far, once.
    /// Before the first byte, ssh may be asking for a password.
    pub(crate) patience: Duration,
    pub(crate) report: &'a dyn Fn(&[u8]),
}

/// Reads the answer of the remote haul and skips the output of its login, which need not end with a
/// newline. Returns `None` if the pipe ended without an answer.
///
/// # Errors
/// Same as [`read_line`]; also `InvalidData` for an invalid answer or too much output before it.
pub(crate) fn read_reply(
    from: impl AsFd,
    stopping: impl Fn() -> bool,
    output: &LoginOutput<'_>,
) -> io::Result<Option<Reply>> {
    let mut noise = Vec::new();
    let mut heard: Option<Instant> = None;
    let is_told = Cell::new(false);
    let start = [MARK.as_bytes(), b"{"].concat();
    while noise.len() < NOISE_BYTES_MAX + start.len() {
        let tell = || {
            if !is_told.replace(true) {
                (output.report)(&noise);
            }
        };
        let byte = read_byte(&from, || {
            if heard.is_some_and(|heard| heard.elapsed() >= output.patience) {
                tell();
            }
            stopping()
        });
        let Some(byte) = byte? else {
            if heard.is_some() {
                tell();
            }
            return Ok(None);
        };
        noise.push(byte);
        if noise.ends_with(&start) {
            let line = match read_line_after(&start, &from, &stopping) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                line => line?,
            };
            let reply = line.and_then(|line| Reply::parse_line(&line)).transpose();
            return reply.map_err(|_| io::ErrorKind::InvalidData.into());
        }
        if heard.is_none() && !start.starts_with(&noise) {
            heard = Some(Instant::now());
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;
    use std::io::Write;

    fn pipe_with(bytes: &[u8]) -> std::io::PipeReader {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(bytes).expect("it fits");
        reader
    }

    const SILENT: LoginOutput<'_> = LoginOutput { patience: Duration::MAX, report: &|_| {} };

    fn reply_in(pipe: impl AsFd) -> io::Result<Option<Reply>> {
        read_reply(pipe, || false, &SILENT)
    }

    #[test]
    fn the_reply_is_found_after_login_output() {
        for noise in [
            &b""[..],
            b"Welcome!\n\xff\xfe\n",
            b"\x1b]0;user@host\x07",
            b"no newline",
            b"haul-meet is ",
            b"haul-meet \n",
        ] {
            let pipe = pipe_with(&[noise, b"haul-meet {\"failure\":\"no such directory\"}\nrest"].concat());
            let reply = reply_in(&pipe).expect("read");
            assert!(matches!(reply, Some(Reply::Failure(why)) if why == "no such directory"));
            let mut rest = [0; 4];
            assert_eq!(read(&pipe, &mut rest), Ok(4), "nothing behind the line was taken");
        }
    }

    /// Regression: the output of a login without a newline hid the answer, and the user saw nothing
    /// of it.
    #[test]
    fn output_of_a_login_is_shown_while_the_reply_is_missing() {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let told = Cell::new(0);
        writer.write_all(b"\x07").expect("it fits");
        let report = |noise: &[u8]| {
            assert_eq!(noise, b"\x07", "what was printed so far");
            told.set(told.get() + 1);
            writer.write_all(b"title haul-meet {\"failure\":\"late\"}\n").expect("it fits");
        };
        let report = std::cell::RefCell::new(report);
        let output = LoginOutput { patience: Duration::ZERO, report: &|noise| report.borrow_mut()(noise) };
        let reply = read_reply(&reader, || false, &output).expect("read");
        assert!(matches!(reply, Some(Reply::Failure(why)) if why == "late"));
        assert_eq!(told.get(), 1);
    }

    #[test]
    fn a_missing_reply_and_a_bad_reply_are_distinguished() {
        assert!(reply_in(pipe_with(b"bash: haul: not found")).expect("read").is_none());
        assert!(reply_in(pipe_with(b"")).expect("read").is_none());
        let bad = reply_in(pipe_with(b"haul-meet {]\n")).err().map(|error| error.kind());
        assert_eq!(bad, Some(io::ErrorKind::InvalidData));
    }

    #[test]
    fn endless_output_before_a_reply_is_refused() {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let writing = std::thread::spawn(move || {
            while writer.write_all(&[b'x'; 99]).is_ok() && writer.write_all(b"\n").is_ok() {}
        });
        assert!(reply_in(&reader).is_err());
        drop(reader);
        writing.join().expect("it ended");
    }

    #[test]
    fn a_stop_request_ends_the_wait_for_a_reply() {
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        let kind = read_reply(&reader, || true, &SILENT).err().map(|error| error.kind());
        assert_eq!(kind, Some(io::ErrorKind::Interrupted));
    }

    proptest! {
        /// Any user who may start haul by ssh can send anything: it is a request, or refused.
        #[test]
        fn any_line_is_parsed_or_refused(
            changes in vec((any::<Index>(), prop_oneof![any::<u8>(), Just(b'"'), Just(b'['), Just(b'9'), Just(b',')]), 0..6),
            cut in any::<Index>(),
            repeated in 0usize..3,
        ) {
            let request = Request {
                meet: MEET,
                way: Direction::Send,
                paths: to_words(&[&b"/data"[..], b"x\xff"]),
                listed: Some(PathListHeader { paths: 3, bytes: 17 }),
                ports: Some((1, 2)),
                lanes: 4,
                buffers: 1 << 30,
                rate: None,
                congestion: Some("bbr".to_owned()),
                multipath: false,
                plain: true,
                udp: Some(UdpRequest { check: "aead".to_owned(), chunk: Some(1400), rate: None, buffers: Some(1 << 20) }),
                waybill: Some("dw==".to_owned()),
                dry_run: true,
            };
            let mut line = serde_json::to_vec(&request).expect("it is written");
            prop_assert_eq!(serde_json::from_slice::<Request>(&line).expect("read again"), request);
            for (at, byte) in &changes {
                let at = at.index(line.len());
                line[at] = *byte;
            }
            let part = line[..cut.index(line.len() + 1)].repeat(repeated);
            for bytes in [line, part] {
                if let Ok(request) = serde_json::from_slice::<Request>(&bytes) {
                    let told = receive_paths(&request.paths, request.listed, pipe_with(b"a\0b\0c\0"), || false);
                    prop_assert!(!matches!(told, Ok(Some(paths)) if paths.len() > bytes.len()));
                    let paths = from_words(&request.paths).into_iter().flatten();
                    prop_assert!(paths.map(|path| path.len()).sum::<usize>() <= bytes.len());
                }
                let mut reply = MARK.as_bytes().to_vec();
                reply.extend(bytes.iter().filter(|&&byte| byte != b'\n'));
                reply.push(b'\n');
                // Returns an answer or an error: never a panic, and never more than was there.
                let _ = reply_in(pipe_with(&reply));
            }
        }
    }

    /// Same check as the fuzzer's, from mutated lines.
    #[test]
    fn mutated_lines_are_parsed_or_refused() {
        let request = "{\"meet\":3,\"way\":\"fetch\",\"paths\":[],\"listed\":{\"paths\":2,\"bytes\":4},\"ports\":[7000,7010],\
                       \"lanes\":4,\"buffers\":1073741824,\"rate\":null,\"congestion\":\"bbr\",\"multipath\":false,\"plain\":true,\
                       \"waybill\":\"dw==\"}";
        let ready = "haul-meet {\"ready\":{\"ticket\":\"haul1\",\"closed\":null,\"address\":\"::1\",\"paths\":[\"YQ==\",\"Yg==\"]}}";
        let failure = "haul-meet {\"failure\":\"no such directory\"}";
        assert!(Request::parse_line(request.as_bytes()).is_some());
        assert!(
            [ready, failure].iter().all(|line| matches!(Reply::parse_line(line.as_bytes()), Some(Ok(_))))
        );
        let mut random = haul_lab::random::Random::from_seed(11);
        for line in [request, ready, failure] {
            let whole = [line.as_bytes(), b"\na\0b\0"].concat();
            line::any(&whole);
            for _ in 0..2000 {
                line::any(&random.mutate(&whole));
            }
        }
    }

    #[test]
    fn many_paths_follow_the_line_and_later_bytes_stay_unread() {
        let paths: Vec<Vec<u8>> =
            (0..20_000).map(|number| format!("d\u{e9}/{number}").into_bytes()).collect();
        let told = EncodedPaths::of(&paths);
        assert!(told.in_line.is_empty());
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let behind = told.behind.clone();
        let writing = std::thread::spawn(move || {
            writer.write_all(&behind).expect("it is read");
            writer.write_all(b"next").expect("it fits");
        });
        let heard = receive_paths(&told.in_line, told.listed, &reader, || false).expect("read");
        assert!(heard.is_some_and(|heard| heard == paths));
        let mut rest = [0; 4];
        assert_eq!(read(&reader, &mut rest), Ok(4), "what follows belongs to someone else");
        writing.join().expect("it ended");
        let few = EncodedPaths::of(&paths[..line::IN_LINE_MAX]);
        assert!(few.listed.is_none() && few.in_line.len() == line::IN_LINE_MAX && few.behind.is_empty());
    }

    #[test]
    fn a_path_list_that_differs_from_its_announcement_is_refused() {
        let told = |paths, bytes, behind: &[u8]| {
            receive_paths(&[], Some(PathListHeader { paths, bytes }), pipe_with(behind), || false)
        };
        assert_eq!(told(2, 4, b"a\0b\0").expect("read"), Some(vec![b"a".to_vec(), b"b".to_vec()]));
        for (paths, bytes, behind) in
            [(1, 4, &b"a\0b\0"[..]), (3, 4, b"a\0b\0"), (2, 3, b"a\0b"), (1, 0, b"")]
        {
            assert_eq!(told(paths, bytes, behind).expect("read"), None, "{paths} in {bytes}");
        }
        let kind = |paths, bytes| told(paths, bytes, b"a\0").err().map(|error| error.kind());
        assert_eq!(kind(1, 9), Some(io::ErrorKind::UnexpectedEof));
        assert_eq!(kind(usize::MAX, 2), Some(io::ErrorKind::InvalidData));
        assert_eq!(kind(1, usize::MAX), Some(io::ErrorKind::InvalidData));
    }

    #[test]
    fn non_utf8_paths_survive_encoding() {
        let paths: [&[u8]; 3] = [b"/data", b"a\xff\nb", b""];
        assert_eq!(from_words(&to_words(&paths)).expect("the same"), paths);
        assert!(from_words(&["*".to_owned()]).is_none());
    }
}
