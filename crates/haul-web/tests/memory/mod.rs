//! Memory that requests take: live bytes above those before, of server and browser together, at
//! most 64 for each byte of the request, and 16 MiB. It does not grow with a listed directory.
//!
//! The counts are those of the process, so that the test needs a process of its own.

use crate::world::{World, limits};
use haul_net::Role;
use peak_alloc::PeakAlloc;

/// Live bytes allowed for each byte sent, and besides.
const PER_BYTE: usize = 64;
const BESIDES: usize = 16 << 20;

/// Method, path, additional headers and body.
type Request<'a> = (&'a str, String, &'a [(&'a str, &'a str)], Vec<u8>);

#[test]
fn requests_take_memory_in_proportion_to_their_length() {
    let world = World::new(Role::Both, limits());
    world.write("root/dir/file", b"bytes");
    let browser = world.browser();
    let query = |name: &str, len: usize| format!("{name}{}", "%41".repeat(len / 3));
    let names = |len: usize| {
        let names = vec!["\"\\u0041\""; len / 9].join(",");
        format!(r#"{{"root":0,"path":"","names":[{names}],"to_root":0,"to":"dir"}}"#)
    };
    let nested = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
    let range = format!("bytes={}", "0-0,".repeat(7000));
    let requests: [Request<'_>; 10] = [
        ("GET", query("/tree?path=", 3000), &[], Vec::new()),
        ("GET", query("/tree?path=&after=", 20_000), &[], Vec::new()),
        ("GET", "/file?path=dir%2Ffile".into(), &[("range", "bytes=0-18446744073709551615")], Vec::new()),
        ("GET", "/file?path=dir%2Ffile".into(), &[("range", &range)], Vec::new()),
        ("GET", "/session".into(), &[("accept-language", &"x,".repeat(14_000))], Vec::new()),
        ("POST", "/copy".into(), &[("content-type", "application/json")], names(60_000).into()),
        ("POST", "/copy".into(), &[("content-type", "application/json")], names(3_000_000).into()),
        ("POST", "/copy".into(), &[("content-type", "application/json")], nested.into()),
        ("POST", "/verify?path=dir".into(), &[], vec![b'x'; 1 << 20]),
        ("POST", "/verify?path=".into(), &[], [[b'\n'; 64].as_slice(), &[0xff; 9000]].concat()),
    ];
    browser.get("/session");
    for (method, path, headers, body) in &requests {
        PeakAlloc.reset_peak_usage();
        let before = PeakAlloc.current_usage();
        // The server may end the connection of a request that it refuses.
        let status = browser.try_send(method, path, headers, body).map(|answer| answer.status);
        let most = PeakAlloc.peak_usage().saturating_sub(before);
        let sent = path.len() + body.len() + headers.iter().map(|(_, value)| value.len()).sum::<usize>();
        let what = format!("{method} {}... of {sent} bytes, {status:?}", &path[..path.len().min(20)]);
        assert!(most <= PER_BYTE * sent + BESIDES, "{what}: {most} live bytes");
        assert!(status.is_err() || browser.get("/session").status == 200, "{what}");
    }
}

#[test]
fn a_page_of_a_large_directory_takes_no_memory_for_its_other_names() {
    const NAMES: usize = 30_000;
    const NAME_LEN: usize = 200;
    let world = World::new(Role::Read, limits());
    let large = world.path("root/large");
    std::fs::create_dir(&large).expect("made");
    for number in 0..NAMES {
        std::fs::File::create(large.join(format!("{number:0NAME_LEN$}"))).expect("created");
    }
    let browser = world.browser();
    let list = || browser.get("/tree?path=large&max=10").json()["entries"].as_array().map(Vec::len);
    assert_eq!(list(), Some(10));
    PeakAlloc.reset_peak_usage();
    let before = PeakAlloc.current_usage();
    assert_eq!(list(), Some(10));
    let most = PeakAlloc.peak_usage().saturating_sub(before);
    assert!(most < NAMES * NAME_LEN / 4, "{most} live bytes");
}
