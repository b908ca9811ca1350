//! The WebAssembly modules: the same calls have the same results as in Rust, byte for byte.

use crate::client::{Client, Step};
use crate::dice::Dice;
use crate::fetched_from::Sender;
use crate::page::Page;
use crate::sent_to::{Receiver, Store};
use crate::upload::{OBJECT, files};
use crate::{download, upload};
use haul_browser::hex;
use haul_digest::{Algorithm, digest};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MODULES: [&str; 2] = ["haul.wasm", "haul-simd.wasm"];

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns true if node runs. Otherwise the test is skipped; with `HAUL_REQUIRE_ALL=1` it fails.
fn has_node() -> bool {
    let found = Command::new("node").arg("--version").output();
    let is_there = found.as_ref().is_ok_and(|output| output.status.success());
    let is_required = std::env::var_os("HAUL_REQUIRE_ALL").is_some_and(|value| value == "1");
    assert!(is_there || !is_required, "node is needed: {found:?}");
    if !is_there {
        eprintln!("skipped: needs the program node");
    }
    is_there
}

/// Runs a script under node on a module with this input. Returns its output.
fn node(script: &str, module: &str, input: &str) -> String {
    let mut child = Command::new("node")
        .arg(file("tests/js").join(script))
        .arg(file("wasm").join(module))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input.as_bytes()).expect("node reads its input"));
        child.wait_with_output().expect("node ends")
    });
    assert!(output.status.success(), "{script} {module}");
    String::from_utf8(output.stdout).expect("text")
}

/// Runs the tests of a script, with each of these modules.
fn run_tests(script: &str, modules: &[&str]) {
    if has_node() {
        for module in modules {
            assert_eq!(node(script, module, ""), "ok\n", "{module}");
        }
    }
}

/// Writes a number as JavaScript does.
fn number(value: f64) -> String {
    format!("{value}")
}

fn numbers(values: &[f64]) -> String {
    values.iter().map(|value| number(*value)).collect::<Vec<_>>().join(" ")
}

fn call(step: &Step) -> String {
    format!("{}\t{}\t{}\n", step.call, numbers(&step.numbers), hex(&step.bytes))
}

fn result(step: &Step) -> String {
    let events = step
        .events
        .iter()
        .map(|event| format!("{} {} {}", event.kind, numbers(&event.numbers), hex(event.text.as_bytes())));
    let events: Vec<String> = events.collect();
    let returned =
        if step.call == "offer" || step.call == "input" { step.returned } else { returned(step.call) };
    format!("{}\t{}\t{}\t{}", step.call, number(returned), hex(&step.output), events.join(";"))
}

/// Returns the result of a call that succeeds without a number.
fn returned(call: &str) -> f64 {
    f64::from(u8::from(["upload", "download", "keep"].contains(&call)))
}

/// Checks that both modules repeat a session.
fn assert_repeats(steps: &[Step]) {
    // A `keep` has no time.
    let mut steps = steps.to_vec();
    steps.iter_mut().filter(|step| step.call == "keep").for_each(|step| step.numbers.push(0.0));
    let calls: String = steps.iter().map(call).collect();
    for module in MODULES {
        let printed = node("replay.mjs", module, &calls);
        let mut lines = printed.lines();
        for (number, step) in steps.iter().enumerate() {
            let line = lines.next().expect("a line for each call");
            assert!(line == result(step), "{module}, call {number}:\n{line:.300}\n{:.300}", result(step));
        }
        assert_eq!(lines.next(), None);
    }
}

#[test]
fn modules_send_the_same_frames_in_an_upload() {
    if !has_node() {
        return;
    }
    for seed in 0..3 {
        let mut page = Page::new(Client::upload(OBJECT, "into"), seed).sending(&files(seed));
        page.unreadable = vec!["dir/more".into()];
        let mut server = Receiver::new(Store::default());
        server.flip = Some(seed as usize * 3);
        upload::run(&mut page, &mut server, (seed == 2).then_some(2_000_000));
        if seed == 2 {
            page.client.lane_lost();
        }
        page.client.tick(100_000.0);
        assert!(page.client.steps.len() > 50);
        assert_repeats(&page.client.steps);
    }
}

#[test]
fn modules_send_the_same_frames_in_a_download() {
    if !has_node() {
        return;
    }
    for seed in 0..2 {
        let mut page = Page::new(Client::download(OBJECT, &[""], vec![]), seed);
        let mut server = Sender::new(&files(seed));
        server.flip = Some(5);
        download::run(&mut page, &mut server, Some(2_000_000));
        page.client.lane_lost();
        assert_repeats(&page.client.steps);

        let (stored, kept) = (page.stored.clone(), page.kept());
        assert!(!kept.is_empty());
        let mut page = Page::new(Client::download(OBJECT, &[""], kept), seed);
        page.stored = stored;
        page.unwritable = vec!["many".into()];
        download::run(&mut page, &mut Sender::new(&files(seed)), None);
        page.client.stop();
        assert_repeats(&page.client.steps);
    }
}

#[test]
fn modules_hash_objects_in_any_order() {
    if !has_node() {
        return;
    }
    let bytes = Dice::new(1).bytes(3_000_001);
    let wanted = hex(digest(Algorithm::Blake3, &bytes).as_bytes());
    for module in MODULES {
        let printed = node("hash.mjs", module, &hex(&bytes));
        assert_eq!(
            printed,
            format!("{wanted}\n{wanted}\nincomplete: cannot hash the file: objects are missing\n")
        );
    }
}

#[test]
fn lane_over_http_survives_lost_requests() {
    run_tests("lane.mjs", &MODULES[..1]);
}

#[test]
fn files_are_read_by_streams_where_browsers_have_them() {
    run_tests("reader.mjs", &MODULES[..1]);
}

#[test]
fn jobs_connect_again_when_that_helps() {
    run_tests("reconnect.mjs", &MODULES[..1]);
}

/// An upload and a download in JavaScript, each with its module, whose lanes break once.
#[test]
fn jobs_in_javascript_resume_and_arrive() {
    run_tests("transfer.mjs", &MODULES);
}

#[test]
fn a_download_to_the_browser_loses_no_old_file() {
    run_tests("storage.mjs", &MODULES[..1]);
}

#[test]
fn files_for_the_downloads_of_a_browser_are_verified_and_in_order() {
    run_tests("save.mjs", &MODULES[..1]);
}

#[test]
fn a_download_keeps_files_whose_names_a_folder_folds() {
    if has_node() {
        assert_eq!(node("folder.mjs", MODULES[0], ""), "ok\n");
    }
}

#[test]
fn receipts_are_longer_than_a_string() {
    if has_node() {
        assert_eq!(node("receipt.mjs", MODULES[0], ""), "ok\n");
    }
}

#[test]
fn the_size_of_a_download_is_measured_within_limits() {
    run_tests("measure.mjs", &MODULES[..1]);
}
