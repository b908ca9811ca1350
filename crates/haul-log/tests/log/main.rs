//! Tests of the waybill, stored digests, the journal of a repair and the object log: facts are read
//! back, damage is found, and hostile input is rejected.

mod damage;
mod facts;
mod hostile;
mod journal;
mod objects;
mod stored;
mod vectors;

use haul_log::waybill::{Job, ReadError, Reader, Record, Tail, Writer};

/// Writes sections. Returns the bytes and the records that a reader must return.
fn write(sections: &[(Job, Vec<Record>)]) -> (Vec<u8>, Vec<Record>) {
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    for (number, (job, records)) in (1..).zip(sections) {
        let tail = (number > 1).then(|| Tail::of(&bytes).unwrap());
        let mut writer = match &tail {
            None => Writer::new(&mut bytes, job).unwrap(),
            Some(tail) => Writer::append(&mut bytes, job, tail).unwrap(),
        };
        let after = tail.map(|tail| tail.digest);
        expected.push(Record::Section(haul_log::waybill::Section { number, after, job: job.clone() }));
        for record in records {
            match record {
                Record::Entry(entry) => writer.entry(entry).unwrap(),
                Record::Object(object) => writer.object(object).unwrap(),
                Record::Leaves(run) => writer.leaves(run).unwrap(),
                Record::Proven(proven) => writer.proven(proven).unwrap(),
                Record::Section(_) | Record::End(_) => panic!("the writer makes those itself"),
            }
        }
        expected.extend(records.iter().cloned());
        expected.push(Record::End(writer.close().unwrap().1));
    }
    (bytes, expected)
}

/// Returns all records of a waybill without flaws.
fn read(bytes: &[u8]) -> Vec<Record> {
    Reader::new(bytes).collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the lines with flaws, each with the flaw.
fn flaws(bytes: &[u8]) -> Vec<(u64, String)> {
    let mut reader = Reader::new(bytes);
    let mut found = Vec::new();
    while let Some(record) = reader.next() {
        match record {
            Ok(_) => {}
            Err(ReadError::Flaw(flaw)) => found.push((flaw.line, flaw.kind.to_string())),
            Err(ReadError::Refused(refusal)) => found.push((reader.line(), refusal.to_string())),
            Err(ReadError::Io(error)) => panic!("memory is read: {error}"),
        }
    }
    found
}
