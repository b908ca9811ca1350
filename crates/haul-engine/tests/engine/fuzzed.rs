//! Runs of the fuzz targets on valid, mutated and random input. No decoder may panic, and the
//! targets must stay in step with the code. The fuzzer itself continues from there:
//! docs/fuzzing.md.

use haul_lab::newer;
use haul_lab::random::fuzz;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[allow(unreachable_pub, reason = "a fuzzer takes it from beside the workspace")]
#[path = "../../../../fuzz/targets.rs"]
mod targets;

#[allow(unreachable_pub, reason = "a fuzzer takes it from beside the workspace")]
#[path = "../../../../fuzz/seeds.rs"]
mod seeds;

/// Returns the number of inputs of each kind per target; `HAUL_FUZZ_CASES=N` sets it.
fn cases() -> u64 {
    std::env::var("HAUL_FUZZ_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(600)
}

/// Maximum length of purely random input.
const CHANCE_BYTES_MAX: usize = 400;

/// Runs a target, and panics with the input if the target panics.
fn try_one(name: &str, target: targets::Target, bytes: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| target(bytes))).is_err() {
        panic!("target {name} fails on {bytes:02x?}");
    }
}

/// Returns all targets with their names and valid input.
pub(super) fn targets_with_inputs() -> Vec<(&'static str, targets::Target, Vec<Vec<u8>>)> {
    targets::TARGETS.into_iter().map(|(name, target)| (name, target, inputs_of(name))).collect()
}

fn inputs_of(name: &str) -> Vec<Vec<u8>> {
    let found = seeds::all().into_iter().find(|(target, _)| *target == name);
    found.map(|(_, inputs)| inputs).unwrap_or_default()
}

/// Runs a target on its valid input, on mutations of it, and on random bytes.
fn survives(name: &str) {
    let (_, target) = targets::TARGETS.into_iter().find(|(found, _)| *found == name).expect("a target");
    let inputs = inputs_of(name);
    assert!(!inputs.is_empty(), "{name} has no valid input to begin with");
    inputs.iter().for_each(|input| try_one(name, target, input));
    // A session of the real receiver takes milliseconds.
    let count = if name == "receiver" { cases() / 6 } else { cases() };
    fuzz(count, |random| {
        let input = &inputs[random.index(inputs.len())];
        try_one(name, target, &random.mutate(input));
        let mut bytes = vec![0; random.index(CHANCE_BYTES_MAX)];
        random.fill(&mut bytes);
        try_one(name, target, &bytes);
    });
}

macro_rules! targets_survive {
    ($($name:ident),*) => {
        /// Each target on valid, mutated and random input.
        mod target {
            $(#[test] fn $name() { super::survives(stringify!($name)); })*
        }

        #[test]
        fn every_target_has_a_test() {
            let tested = [$(stringify!($name)),*];
            assert_eq!(targets::TARGETS.map(|(name, _)| name), tested);
        }
    };
}

targets_survive!(
    wire,
    sink,
    receiver,
    source,
    names,
    hello,
    answer,
    address,
    ticket,
    identity,
    waybill,
    object_log,
    record,
    journal,
    list,
    stored,
    signature,
    packed,
    rules,
    acl,
    history,
    job_target,
    holder,
    resume,
    datagram,
    association
);

/// Mutations reach few states that valid input does not.
#[test]
fn valid_input_reaches_every_state_of_the_sink() {
    use targets::sink_target::{State, states_of};
    let inputs = inputs_of("sink");
    let reached: std::collections::BTreeSet<State> =
        inputs.iter().flat_map(|input| states_of(input)).collect();
    let missing: Vec<State> = State::ALL.into_iter().filter(|state| !reached.contains(state)).collect();
    assert!(missing.is_empty(), "no input reaches {missing:?}");
}

/// A target that rejects even valid input would test nothing.
#[test]
fn valid_input_is_accepted() {
    let [wire, ticket, stored] = ["wire", "ticket", "stored"].map(inputs_of);
    for bytes in &wire {
        let header = bytes.first_chunk().map(haul_proto::Header::decode).expect("longer than a header");
        assert!(header.is_ok(), "{header:?}");
    }
    for bytes in &ticket {
        haul_net::Ticket::parse(std::str::from_utf8(bytes).expect("a text")).expect("a ticket");
    }
    haul_log::stored::Stored::decode(&stored[0]).expect("a stored value");
    let [waybill, journal] = ["waybill", "journal"].map(inputs_of);
    assert!(haul_log::waybill::Reader::new(waybill[0].as_slice()).all(|record| record.is_ok()));
    let chunks =
        haul_log::journal::Reader::new(journal[0].as_slice(), &targets::journal_key()).expect("a journal");
    assert_eq!(chunks.collect::<Result<Vec<_>, _>>().expect("whole").len(), 3);
    haul_net::hello::describe(&inputs_of("hello")[0]).expect("a hello");
    for bytes in inputs_of("packed") {
        let (len, frame) = bytes.split_first_chunk().expect("a length");
        let mut unpacker = haul_engine::transfer::Unpacker::default();
        unpacker.room(frame.len()).copy_from_slice(frame);
        let mut block = vec![0; usize::from(u16::from_le_bytes(*len))];
        unpacker.unpack(&mut block).expect("a frame of this length");
    }
    let signature = inputs_of("signature");
    haul_engine::signature::key_fingerprint(&signature[0]).expect("a signature");
    assert_eq!(haul_engine::signature::count_signers(&signature[1]), Ok(2));
}

/// The receiver creates each kind of entry that it may create, and links.
#[test]
fn valid_input_of_the_receiver_leaves_entries() {
    use std::os::unix::fs::MetadataExt;
    let (mut names, mut is_linked, mut is_symlink) = (std::collections::BTreeSet::new(), false, false);
    for input in inputs_of("receiver") {
        let home = tempfile::tempdir().expect("a temporary directory");
        targets::receiver_target::receive(home.path(), &input);
        let root = home.path().join("root");
        for name in ["a", "d/x", "own", "pipe", "planted"] {
            let Ok(facts) = std::fs::symlink_metadata(root.join(name)) else { continue };
            names.insert((name, facts.is_file(), facts.is_dir()));
            is_linked |= facts.is_file() && facts.nlink() > 1;
            is_symlink |= facts.is_symlink() && name == "a";
        }
    }
    let expected = [("a", true, false), ("a", false, true), ("d/x", true, false), ("d/x", false, true)];
    assert!(expected.iter().all(|entry| names.contains(entry)), "{names:?}");
    // Files of the receiver were replaced.
    assert!(names.contains(&("pipe", true, false)) && names.contains(&("planted", true, false)), "{names:?}");
    assert!(is_linked && is_symlink, "hard links: {is_linked}, symbolic links: {is_symlink}");
}

/// The wire's valid input contains every kind of message, because mutations reach no other kinds.
#[test]
fn valid_wire_input_contains_every_message_kind() {
    let mut kinds = std::collections::BTreeSet::new();
    for bytes in inputs_of("wire") {
        let mut rest = &bytes[..];
        while let Some((head, after)) = rest.split_first_chunk() {
            let header = haul_proto::Header::decode(head).expect("a header");
            let (body, after) = after.split_at(header.body_len());
            let message = haul_proto::Message::decode(&header, body).expect("understood").expect("known");
            kinds.insert(message.name());
            rest = after;
        }
    }
    let text = std::fs::read_to_string(in_repository("docs/formats/wire.md")).expect("the format");
    // Rows of the table of messages: the number of a kind, then its name.
    let drawn = text.lines().filter_map(|line| {
        let mut columns = line.strip_prefix("| ")?.split(" | ");
        columns.next()?.parse::<u8>().ok().and(columns.next())
    });
    let drawn: std::collections::BTreeSet<&str> =
        drawn.filter(|name| !name.contains(char::is_lowercase)).collect();
    assert_eq!(kinds, drawn);
    assert_eq!(kinds.len(), 24);
}

fn in_repository(path: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Decoders of external bytes or text in the pure crates and in haul-net, and the calls in the
/// targets.
const DECODERS: [(&str, &str); 28] = [
    ("haul-proto/src/frame.rs: decode", "Header::decode("),
    ("haul-proto/src/frame.rs: decode", "Message::decode("),
    ("haul-proto/src/names.rs: check_name", "check_name("),
    ("haul-proto/src/names.rs: check_received", "check_received("),
    ("haul-proto/src/names.rs: check_accepted", "check_accepted("),
    ("haul-udp/src/packet.rs: decode", "packet::Header::decode("),
    ("haul-net/src/address.rs: parse", "Host::parse("),
    ("haul-net/src/address.rs: from_str", ".parse::<Address>()"),
    ("haul-net/src/hello.rs: describe", "hello::describe("),
    ("haul-net/src/udp/upgrade.rs: describe_upgrade", "haul_net::describe_upgrade("),
    ("haul-net/src/udp/fallback.rs: describe_departure", "haul_net::describe_departure("),
    ("haul-net/src/hello.rs: describe_answer", "hello::describe_answer("),
    ("haul-net/src/ticket.rs: parse", "Ticket::parse("),
    ("haul-net/src/ticket.rs: from_str", "Ticket::parse("),
    ("haul-net/src/tls/identity.rs: from_pem", "Identity::from_pem("),
    ("haul-log/src/waybill/time.rs: parse_date", "waybill::parse_date("),
    ("haul-log/src/waybill/tail.rs: may_append", "waybill::may_append("),
    ("haul-log/src/waybill/tail.rs: of", "Tail::of("),
    ("haul-log/src/objects/facts.rs: from_hex", "Identity::from_hex("),
    ("haul-log/src/objects/replay.rs: newer", "objects::newer("),
    ("haul-log/src/objects/replay.rs: replay", "objects::replay("),
    ("haul-log/src/objects/style.rs: from_str", ".parse::<Mechanism>()"),
    ("haul-log/src/objects/style.rs: from_str", ".parse::<objects::Encoding>()"),
    ("haul-log/src/record/mod.rs: decode", "JobRecord::decode("),
    ("haul-log/src/record/mod.rs: from_str", "JobRecord::decode("),
    ("haul-log/src/stored/eos.rs: decode", "eos::decode("),
    ("haul-log/src/stored/value.rs: decode", "Stored::decode("),
    ("haul-log/src/stored/xrootd.rs: decode", "XrootdValue::decode("),
];

/// Returns the public functions that decode bytes or text and can fail.
fn decoders_of(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let begins = ["pub fn ", "    fn from_str"];
    let mut found = Vec::new();
    for (at, _) in begins.iter().flat_map(|begin| text.match_indices(begin)) {
        let head: String = text[at..].split('{').next().unwrap_or_default().split_whitespace().collect();
        let head = head.strip_prefix("pub").unwrap_or(&head);
        let Some((inputs, output)) = head.split_once(")->") else { continue };
        let takes =
            ["&[u8]", "&str", ":&[u8;", "BTreeMap<String,Vec<u8>>"].iter().any(|form| inputs.contains(form));
        let may_refuse = ["Result<", "Option<", "Replay"].iter().any(|form| output.starts_with(form));
        if takes && may_refuse && !inputs.contains("&mutself") {
            let name = inputs.trim_start_matches("fn").split(['(', '<']).next().unwrap_or_default();
            found.push(name.to_owned());
        }
    }
    found
}

fn sources(dir: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[test]
fn every_decoder_has_a_target() {
    let crates = in_repository("crates");
    let mut found = std::collections::BTreeSet::new();
    for name in ["haul-proto", "haul-udp", "haul-net", "haul-log"] {
        let mut files = Vec::new();
        sources(&crates.join(name).join("src"), &mut files);
        for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "rs")) {
            let shown = file.strip_prefix(&crates).expect("beneath").display();
            let text = std::fs::read_to_string(file).expect("a text");
            found.extend(decoders_of(&text).into_iter().map(|decoder| format!("{shown}: {decoder}")));
        }
    }
    let listed = DECODERS.iter().map(|(decoder, _)| (*decoder).to_owned()).collect();
    assert_eq!(found, listed, "what is found, and what is listed with its target");
    let targets = std::fs::read_to_string(in_repository("fuzz/targets.rs")).expect("the targets");
    for (decoder, call) in DECODERS {
        assert!(targets.contains(call), "no target calls {decoder}");
    }
}

#[test]
fn every_target_is_built_and_documented() {
    let [manifest, document] = ["fuzz/Cargo.toml", "docs/fuzzing.md"]
        .map(|path| std::fs::read_to_string(in_repository(path)).expect(path));
    for (name, _) in targets::TARGETS {
        assert!(
            manifest.contains(&format!("name = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"")),
            "{name}"
        );
        assert!(in_repository(&format!("fuzz/fuzz_targets/{name}.rs")).exists(), "{name}");
        assert!(document.contains(&format!("`{name}`")), "{name}");
    }
}
