//! The waybill, stored digests, the journal of a repair, the object log: any facts come back, any damage is found, nothing hostile is let in.

mod damage;
mod facts;
mod hostile;
mod journal;
mod objects;
mod stored;
mod vectors;

use haul_log::waybill::{Job, ReadError, Reader, Record, Tail, Writer};

/// Writes sections; what a reader must bring back of them stands beside the bytes.
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

/// All records, of a waybill that must be whole.
fn read(bytes: &[u8]) -> Vec<Record> {
    Reader::new(bytes).collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{error}"))
}

/// The lines at which something is wrong, with what it is.
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
