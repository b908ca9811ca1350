//! Strategies for arbitrary messages, for the property tests.

use haul_digest::{Algorithm, Digest, KeyedDigest};
use haul_model::{ByteRange, Level, Moment, ObjectIndex, ObjectSize};
use haul_proto::limits::{
    DIGESTS_PER_MESSAGE, ENTRIES_PER_MESSAGE, NAMES_PER_LIST, PACKED_BYTES_MAX, PAYLOAD_BYTES_MAX,
    PRINCIPALS_MAX, XATTRS_MAX,
};
use haul_proto::{
    Accept, Answer, BlockDigest, BlockReject, BlockSync, Bye, Close, Compared, Compression, Connect, Delete,
    Encoding, Entries, EntryKind, Fate, Features, FileClose, FileDone, FileId, FileKind, FileNumber,
    JobOptions, Join, Keep, LaneId, LaneTimes, List, ListedEntry, LogRequest, Message, NameRule, Named,
    Names, NewBlock, NewFile, ObjectDigests, Operands, Outcome, PeerText, Principal, Reason, Role, Runs,
    Stated, Summary, Times, Unit, Unread, Update, Verify, WalkEnd, Why, Window, Xattr,
};
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use std::time::Duration;

fn bytes(most: usize) -> impl Strategy<Value = Box<[u8]>> {
    vec(any::<u8>(), 0..most).prop_map(Box::from)
}

fn times() -> impl Strategy<Value = Times> {
    let time = || any::<u64>().prop_map(Duration::from_micros);
    let lane = (any::<u32>(), time(), time()).prop_map(|(lane, sending, receiving)| LaneTimes {
        lane: LaneId(lane),
        sending,
        receiving,
    });
    // An unknown run delay is not sent.
    let run_delay = prop_oneof![Just(Duration::ZERO), time()];
    (time(), time(), time(), time(), run_delay, vec(lane, 0..5)).prop_map(
        |(storage, hashing, packing, crypto, run_delay, lanes)| Times {
            storage,
            hashing,
            packing,
            crypto,
            run_delay,
            lanes,
        },
    )
}

fn moment() -> impl Strategy<Value = Moment> {
    (any::<i64>(), 0u32..1_000_000_000).prop_map(|(sec, nsec)| Moment { sec, nsec })
}

fn level() -> impl Strategy<Value = Level> {
    prop_oneof![Just(Level::Received), Just(Level::Verified), Just(Level::Durable), Just(Level::Reread)]
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    let short = (1usize..64).prop_map(|len| Algorithm::Blake2bOf(haul_digest::Blake2bLen::new(len).unwrap()));
    prop_oneof![8 => proptest::sample::select(Algorithm::ALL), 1 => short]
}

fn digest_by(algorithm: Algorithm) -> impl Strategy<Value = Digest> {
    vec(any::<u8>(), algorithm.digest_len())
        .prop_map(move |bytes| Digest::from_bytes(algorithm, &bytes).unwrap())
}

fn digest() -> impl Strategy<Value = Digest> {
    algorithm().prop_flat_map(digest_by)
}

fn runs() -> impl Strategy<Value = Runs> {
    vec((1u64..1 << 40, 1u64..1 << 20), 0..12).prop_map(|parts| {
        let mut all = Runs::default();
        parts.into_iter().for_each(|(start, len)| all.unite(&Runs::of(start, start + len)));
        all
    })
}

fn reason() -> impl Strategy<Value = Reason> {
    (any::<u16>(), ".{0,40}").prop_map(|(code, text)| Reason::new(Why::of_code(code), &text))
}

fn options() -> impl Strategy<Value = JobOptions> {
    let verify = prop_oneof![
        Just(Verify::None),
        Just(Verify::Stream),
        Just(Verify::Reread),
        Just(Verify::Hybrid),
        Just(Verify::Sequential),
        Just(Verify::FilePipeline),
        Just(Verify::BlockPipeline)
    ];
    let update = prop_oneof![
        Just(Update::Always),
        Just(Update::SizeTime),
        Just(Update::Digest),
        Just(Update::Object),
        Just(Update::Newer),
        Just(Update::Missing)
    ];
    let unit = prop_oneof![Just(Unit::Object), Just(Unit::File)];
    let compression =
        prop_oneof![Just(Compression::Off), Just(Compression::Auto), any::<i8>().prop_map(Compression::Zstd)];
    let flags = any::<[bool; 5]>();
    let numbers = (16u32..=40, any::<(u64, u64)>(), any::<u32>());
    (numbers, algorithm(), verify, unit, level(), update, compression, flags).prop_map(
        |(
            (shift, (budget, max_delete), keep),
            algorithm,
            verify,
            unit,
            settle,
            update,
            compression,
            flags,
        )| JobOptions {
            object: ObjectSize::new(1 << shift).unwrap(),
            algorithm,
            verify,
            unit,
            settle,
            in_order: flags[0],
            compression,
            keep: Keep(keep),
            update,
            in_place: flags[1],
            delete: flags[2],
            delete_all: flags[4],
            max_delete,
            dry_run: flags[3],
            budget,
        },
    )
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![Just(Fate::Stays), Just(Fate::Gone), Just(Fate::Excluded), Just(Fate::Guarded)]
}

fn window() -> impl Strategy<Value = Window> {
    any::<(u32, u64, u64)>().prop_map(|(files, facts, bytes)| Window { files, facts, bytes })
}

fn number() -> impl Strategy<Value = FileNumber> {
    any::<u64>().prop_map(FileNumber)
}

fn object() -> impl Strategy<Value = ObjectIndex> {
    (0..u64::MAX).prop_map(ObjectIndex)
}

fn kind() -> impl Strategy<Value = FileKind> {
    prop_oneof![
        (0u64..1 << 63, runs()).prop_map(|(size, holes)| FileKind::File { size, holes }),
        Just(FileKind::Directory),
        bytes(50).prop_map(|target| FileKind::Symlink { target }),
        bytes(50).prop_map(|first| FileKind::HardLink { first }),
        Just(FileKind::Fifo),
        Just(FileKind::Socket),
        any::<(u32, u32)>().prop_map(|(major, minor)| FileKind::CharDevice { major, minor }),
        any::<(u32, u32)>().prop_map(|(major, minor)| FileKind::BlockDevice { major, minor }),
    ]
}

fn new_file() -> impl Strategy<Value = NewFile> {
    let xattr = (bytes(20), bytes(90)).prop_map(|(name, value)| Xattr { name, value });
    let principal = (any::<(bool, u32)>(), bytes(9)).prop_map(|((is_group, number), name)| Principal {
        is_group,
        number,
        name,
    });
    let late = (option::of(any::<[u8; 16]>()), vec(principal, 0..PRINCIPALS_MAX.min(4)));
    let names = (bytes(80), bytes(9), bytes(9), vec(xattr, 0..XATTRS_MAX.min(6)), late);
    (number(), any::<[bool; 3]>(), kind(), any::<[u32; 3]>(), (moment(), moment()), names).prop_map(
        |(
            number,
            [whole, again, is_linked],
            kind,
            [mode, uid, gid],
            (mtime, atime),
            (path, user, group, xattrs, (version, principals)),
        )| {
            NewFile {
                number,
                whole,
                again,
                is_linked,
                path,
                kind,
                mode,
                mtime,
                atime,
                uid,
                gid,
                user,
                group,
                xattrs,
                version,
                principals,
            }
        },
    )
}

fn new_block() -> impl Strategy<Value = NewBlock> {
    let encoding =
        prop_oneof![Just(Encoding::Raw), Just(Encoding::Zstd), Just(Encoding::Zeros), Just(Encoding::Hole)];
    (number(), any::<u16>(), object(), 0u64..1 << 62, 1..=PAYLOAD_BYTES_MAX, 1..=PAYLOAD_BYTES_MAX, encoding)
        .prop_map(|(number, attempt, object, start, len, less, encoding)| {
            let payload = match encoding {
                Encoding::Raw => len,
                Encoding::Zstd => less.min(len).min(PACKED_BYTES_MAX),
                _ => 0,
            };
            let len = if encoding == Encoding::Zstd { len.min(PACKED_BYTES_MAX) } else { len };
            let range = ByteRange::between(start, start + u64::from(len));
            NewBlock { number, attempt, object, range, encoding, payload }
        })
}

fn object_digests() -> impl Strategy<Value = ObjectDigests> {
    let digest = || any::<[u8; 32]>().prop_map(KeyedDigest::from_bytes);
    let digests = prop_oneof![
        digest().prop_map(|whole| (None, vec![whole])),
        (object(), vec(digest(), 1..DIGESTS_PER_MESSAGE.min(9))).prop_map(|(first, all)| (Some(first), all))
    ];
    (number(), any::<u16>(), digests).prop_map(|(number, attempt, (first, digests))| ObjectDigests {
        number,
        attempt,
        first,
        digests,
    })
}

fn compared() -> impl Strategy<Value = Compared> {
    (number(), any::<u16>(), any::<u64>(), runs()).prop_map(|(number, attempt, end, wanted)| Compared {
        number,
        attempt,
        end: end.max(wanted.end()),
        wanted,
    })
}

fn connect() -> impl Strategy<Value = Connect> {
    let role = prop_oneof![Just(Role::Source), Just(Role::Sink)];
    let numbers = any::<(u16, u16, u64, u64)>();
    let log_request = any::<([u8; 4], u32)>().prop_map(|([mechanism, encoding, sync, verify], files)| {
        LogRequest { mechanism, files, encoding, sync, verify }
    });
    let rules = vec((any::<bool>(), bytes(40)), 0..4);
    let names = (vec(bytes(40), 0..5), rules);
    let late = (option::of(log_request), any::<bool>());
    (numbers, role, any::<[u8; 16]>(), options(), window(), names, ".{0,20}", late).prop_map(
        |(
            (low, high, offers, needs),
            role,
            job,
            options,
            window,
            (operands, rules),
            agent,
            (log, resumes),
        )| Connect {
            versions: (low, high),
            offers: Features(offers),
            needs: Features(needs),
            role,
            job,
            options,
            window,
            operands,
            agent: PeerText::new(&agent),
            log,
            resumes,
            rules: rules.into_iter().map(|(is_include, pattern)| NameRule { is_include, pattern }).collect(),
        },
    )
}

fn entries() -> impl Strategy<Value = Entries> {
    let kind = proptest::sample::select(vec![
        EntryKind::File,
        EntryKind::Directory,
        EntryKind::Symlink,
        EntryKind::Fifo,
        EntryKind::Socket,
        EntryKind::Device,
        EntryKind::Unknown,
    ]);
    // Any bytes of a name, except that it is one component and not reserved.
    let byte = any::<u8>().prop_filter("a byte of a name", |byte| !matches!(byte, 0 | b'/' | b'.'));
    let names = btree_set(vec(byte, 1..20), 0..ENTRIES_PER_MESSAGE.min(9));
    let facts = vec((kind, any::<u64>(), moment(), any::<u32>()), ENTRIES_PER_MESSAGE.min(9));
    (any::<bool>(), names, facts).prop_map(|(last, names, facts)| {
        let entry = |(name, (kind, size, mtime, mode)): (Vec<u8>, _)| ListedEntry {
            name: name.into(),
            kind,
            size,
            mtime,
            mode,
        };
        let entries: Vec<_> = names.into_iter().zip(facts).map(entry).collect();
        Entries { last: last || entries.is_empty(), entries }
    })
}

fn session() -> impl Strategy<Value = Message> {
    let accept = (any::<(u16, u64)>(), options(), window(), 1u32..=256, any::<([u8; 32], bool)>(), ".{0,20}")
        .prop_map(|((version, features), options, window, lanes, (token, resumes), agent)| Accept {
            version,
            features: Features(features),
            options,
            window,
            lanes,
            token,
            agent: PeerText::new(&agent),
            resumes,
        });
    let summary = any::<[u64; 10]>().prop_map(
        |[done, same, would, failed, unread, deleted, undeleted, over_limit, bytes, again]| Summary {
            done,
            same,
            would,
            failed,
            unread,
            deleted,
            undeleted,
            over_limit,
            bytes,
            again,
        },
    );
    let list = (any::<u32>(), bytes(60), vec(bytes(20), 0..NAMES_PER_LIST.min(9)));
    prop_oneof![
        connect().prop_map(|connect| Message::Connect(Box::new(connect))),
        accept.prop_map(|accept| Message::Accept(Box::new(accept))),
        reason().prop_map(Message::Refuse),
        any::<(u32, [u8; 32])>().prop_map(|(lane, token)| Message::Join(Join { token, lane: LaneId(lane) })),
        any::<(u64, u64, u64, bool)>().prop_map(|(files, errors, unread, delete)| Message::WalkEnd(
            WalkEnd { files, errors, unread, delete }
        )),
        list.prop_map(|(batch, directory, names)| Message::List(Box::new(List { batch, directory, names }))),
        (any::<u32>(), vec(fate(), 0..9))
            .prop_map(|(batch, fates)| Message::Delete(Box::new(Delete { batch, fates }))),
        (any::<u32>(), bytes(60), any::<u64>())
            .prop_map(|(batch, directory, from)| Message::Names(Box::new(Names { batch, directory, from }))),
        (any::<(u32, bool, bool)>(), vec(bytes(20), 1..9)).prop_map(|((batch, certain, last), names)| {
            Message::Named(Box::new(Named { batch, certain, last, names }))
        }),
        (option::of(reason()), summary, option::of(times()))
            .prop_map(|(reason, summary, times)| Message::Bye(Box::new(Bye { reason, summary, times }))),
        (bytes(300), reason()).prop_map(|(path, reason)| Message::Unread(Box::new(Unread { path, reason }))),
        Just(Message::KeepAlive),
        (any::<bool>(), vec(bytes(60), 1..9))
            .prop_map(|(last, paths)| Message::Operands(Box::new(Operands { last, paths }))),
        Just(Message::Operands(Box::new(Operands { last: true, paths: Vec::new() }))),
        entries().prop_map(|entries| Message::Entries(Box::new(entries))),
    ]
}

fn of_a_file() -> impl Strategy<Value = Message> {
    let answer = prop_oneof![
        runs().prop_map(|have| Answer::Take { have }),
        (runs(), any::<u64>()).prop_map(|(have, end)| Answer::Differing { have, end }),
        Just(Answer::UnlessDigest)
    ];
    let close = prop_oneof![
        (any::<u64>(), moment(), option::of(digest())).prop_map(|(size, mtime, root)| Close::Read {
            size,
            mtime,
            root
        }),
        reason().prop_map(Close::Failed)
    ];
    let outcome = prop_oneof![
        level().prop_map(Outcome::Done),
        Just(Outcome::Same),
        Just(Outcome::DryRun),
        reason().prop_map(Outcome::Failed)
    ];
    prop_oneof![
        new_file().prop_map(|file| Message::NewFile(Box::new(file))),
        (number(), any::<u16>(), answer).prop_map(|(number, attempt, answer)| Message::FileId(Box::new(
            FileId { number, attempt, answer }
        ))),
        (number(), any::<u16>(), close).prop_map(|(number, attempt, close)| Message::FileClose(Box::new(
            FileClose { number, attempt, close }
        ))),
        (number(), outcome)
            .prop_map(|(number, outcome)| Message::FileDone(Box::new(FileDone { number, outcome }))),
    ]
}

fn of_an_object() -> impl Strategy<Value = Message> {
    let stated = prop_oneof![
        Just(Stated::Nothing),
        digest().prop_map(Stated::Digest),
        Just(Stated::Later),
        Just(Stated::Abandoned)
    ];
    prop_oneof![
        new_block().prop_map(Message::NewBlock),
        (number(), any::<u16>(), object(), stated).prop_map(|(number, attempt, object, stated)| {
            Message::BlockDigest(Box::new(BlockDigest { number, attempt, object, stated }))
        }),
        (number(), any::<u16>(), level(), runs()).prop_map(|(number, attempt, level, objects)| {
            Message::BlockSync(Box::new(BlockSync { number, attempt, level, objects }))
        }),
        (number(), any::<u16>(), option::of(object()), reason()).prop_map(
            |(number, attempt, object, reason)| {
                Message::BlockReject(BlockReject { number, attempt, object, reason })
            }
        ),
        object_digests().prop_map(|digests| Message::ObjectDigests(Box::new(digests))),
        compared().prop_map(|compared| Message::Compared(Box::new(compared))),
    ]
}

/// Returns a strategy for messages of any kind with any valid values.
pub(crate) fn message() -> impl Strategy<Value = Message> {
    prop_oneof![session(), of_a_file(), of_an_object()]
}
