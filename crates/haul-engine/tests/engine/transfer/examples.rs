//! The programs in `examples/`, run against each other over loopback.

#[allow(dead_code, reason = "its main is for the program")]
#[path = "../../../examples/receive.rs"]
mod receive;
#[allow(dead_code, reason = "its main is for the program")]
#[path = "../../../examples/send.rs"]
mod send;

use super::pair::Pair;
use haul_lab::random_tree::RandomTree;
use haul_lab::snapshot::{Facets, Snapshot};
use std::fs;

#[test]
fn examples_transfer_a_tree() {
    let pair = Pair::new();
    let tree = pair.source().join("tree");
    let plain = RandomTree { fifos: false, hard_modes: false, ..RandomTree::default() };
    RandomTree { entries: 60, file_bytes_max: 1 << 20, ..plain }.build(&tree, 5).unwrap();
    // Several objects on several lanes.
    fs::write(tree.join("large"), vec![7; 21 << 20]).unwrap();
    let (give, take) = std::sync::mpsc::channel();
    let into = pair.sink().into_os_string();
    let receiving = std::thread::spawn(move || {
        receive::receive(into, |ticket| give.send(ticket.to_owned()).unwrap())
            .map_err(|error| error.to_string())
    });
    let sent = send::send(&take.recv().unwrap(), vec![tree.clone().into_os_string()]).unwrap();
    let received = receiving.join().unwrap().unwrap();
    assert!(sent.is_whole() && received.is_whole());
    assert_eq!(sent.summary, received.summary);
    let before = Snapshot::take(&tree).unwrap();
    before.assert_same(&Snapshot::take(&pair.sink().join("tree")).unwrap(), Facets::ARCHIVE);
}

#[test]
fn example_without_a_ticket_returns_an_error() {
    assert!(send::send("no ticket", Vec::new()).is_err());
}
