//! What the fuzzer's targets do, from valid input of every form and from chance, so that no decoder ever panics and the targets
//! themselves stay true. The fuzzer goes on from there: docs/fuzzing.md.

use haul_lab::random::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[allow(unreachable_pub, reason = "a fuzzer takes it from beside the workspace")]
#[path = "../../../../fuzz/targets.rs"]
mod targets;

#[allow(unreachable_pub, reason = "a fuzzer takes it from beside the workspace")]
#[path = "../../../../fuzz/seeds.rs"]
mod seeds;

/// Inputs of each kind, for each target: `HAUL_FUZZ_CASES=N` asks for more.
fn cases() -> u64 {
    std::env::var("HAUL_FUZZ_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(600)
}

/// The longest input of chance alone.
const CHANCE_BYTES_MAX: usize = 400;

/// Runs a target, and says on which bytes it failed.
fn try_one(name: &str, target: targets::Target, bytes: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| target(bytes))).is_err() {
        panic!("target {name} fails on {bytes:02x?}");
    }
}

fn inputs_of(name: &str) -> Vec<Vec<u8>> {
    let found = seeds::all().into_iter().find(|(target, _)| *target == name);
    found.map(|(_, inputs)| inputs).unwrap_or_default()
}

#[test]
fn every_target_takes_its_valid_input_bent_anyhow() {
    for (name, target) in targets::TARGETS {
        let inputs = inputs_of(name);
        assert!(!inputs.is_empty(), "{name} has no valid input to begin with");
        inputs.iter().for_each(|input| try_one(name, target, input));
        for seed in 0..cases() {
            let mut random = Random::from_seed(seed);
            let input = &inputs[random.index(inputs.len())];
            try_one(name, target, &random.bend(input));
        }
    }
}

#[test]
fn every_target_takes_chance() {
    for (name, target) in targets::TARGETS {
        for seed in 0..cases() {
            let mut random = Random::from_seed(seed);
            let mut bytes = vec![0; random.index(CHANCE_BYTES_MAX)];
            random.fill(&mut bytes);
            try_one(name, target, &bytes);
        }
    }
}

/// A target that refuses even what is valid would try nothing.
#[test]
fn valid_input_is_understood() {
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
    let chunks = haul_log::journal::Reader::new(journal[0].as_slice()).expect("a journal");
    assert_eq!(chunks.collect::<Result<Vec<_>, _>>().expect("whole").len(), 3);
    haul_net::hello::describe(&inputs_of("hello")[0]).expect("a hello");
    let signature = inputs_of("signature");
    haul_engine::signature::look_at(&signature[0]).expect("a signature");
    assert_eq!(haul_engine::signature::count_signers(&signature[1]), Ok(2));
}
