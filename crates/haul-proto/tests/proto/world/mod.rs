//! Simulated pair of hosts: two engines around the two state machines, lanes that delay, cut, stall
//! and damage, and a simulated clock. Everything comes from one seed.
//!
//! Fault model:
//! - A lane delivers frames in order or is lost, at one end before the other. Frames in flight on a
//!   lost lane are gone or still arrive.
//! - Payload may be damaged; headers and bodies are not, because the codec's tests cover their
//!   checksums.
//! - Either host may stop permanently at any step.
//! - The sink's device loses what was not synced, and may store other bytes than were written.

pub(crate) mod dice;
mod play;
pub(crate) mod sink_side;
mod source_side;
pub(crate) mod tree;

pub(crate) use play::{Report, World};

use dice::Dice;
use haul_model::{Level, ObjectSize};
use haul_proto::{JobOptions, Timing, Unit, Update, Verify, Window, sink, source};

/// Faults, each with probability 1/N per opportunity; 0 means never.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) cut: u64,
    pub(crate) cut_control: bool,
    pub(crate) damage: u64,
    pub(crate) stall: u64,
    pub(crate) crash_sink: u64,
    pub(crate) crash_source: u64,
    pub(crate) ill: u64,
    pub(crate) rot: u64,
    pub(crate) full: u64,
    pub(crate) walk_errors: u64,
}

/// Parameters of one world.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) options: JobOptions,
    pub(crate) window: Window,
    pub(crate) lanes: u32,
    pub(crate) faults: Faults,
    /// True if the sink has processed this job before, and says so.
    pub(crate) resumes: bool,
}

const VERIFICATIONS: [(Verify, Unit); 10] = [
    (Verify::Stream, Unit::Object),
    (Verify::Stream, Unit::Object),
    (Verify::Stream, Unit::Object),
    (Verify::Reread, Unit::Object),
    (Verify::Stream, Unit::File),
    (Verify::Hybrid, Unit::Object),
    (Verify::Sequential, Unit::File),
    (Verify::FilePipeline, Unit::File),
    (Verify::BlockPipeline, Unit::Object),
    (Verify::None, Unit::Object),
];

impl Plan {
    /// Returns a random plan.
    pub(crate) fn any(dice: &mut Dice) -> Plan {
        let (verify, unit) = dice.pick(&VERIFICATIONS);
        let settle = match verify {
            Verify::Reread => Level::Reread,
            Verify::None => dice.pick(&[Level::Received, Level::Durable]),
            _ => dice.pick(&[Level::Received, Level::Verified, Level::Durable]),
        };
        let update = match dice.below(10) {
            0 => Update::SizeTime,
            1 => Update::Digest,
            2 => Update::Object,
            3 => Update::Newer,
            4 => Update::Missing,
            _ => Update::Always,
        };
        let options = JobOptions {
            object: ObjectSize::new(64 << 10).unwrap(),
            verify,
            unit,
            settle,
            update,
            in_order: dice.once_in(3),
            delete: dice.once_in(3),
            dry_run: dice.once_in(20),
            ..JobOptions::default()
        };
        let window = Window {
            files: 1 + dice.below(12) as u32,
            facts: 1 << 20,
            bytes: dice.pick(&[1, 64 << 10, 200 << 10, 1 << 20]),
        };
        let lanes = 1 + dice.below(4) as u32;
        Plan { options, window, lanes, faults: Faults::any(dice, verify), resumes: false }
    }

    fn source(&self) -> source::Settings {
        source::Settings {
            options: self.options.clone(),
            window: self.window,
            timing: Timing::default(),
            retries: 20,
            awaits_answers: self.resumes,
        }
    }

    fn sink(&self) -> sink::Settings {
        sink::Settings {
            options: self.options.clone(),
            window: self.window,
            timing: Timing::default(),
            retries: 20,
            short_blocks: true,
        }
    }
}

impl Faults {
    fn any(dice: &mut Dice, verify: Verify) -> Faults {
        let mut maybe = |one_in: u64, rate: u64| if dice.once_in(one_in) { rate } else { 0 };
        let compares = verify != Verify::None;
        Faults {
            cut: maybe(2, 300),
            cut_control: maybe(8, 1) == 1,
            damage: if compares { maybe(2, 60) } else { 0 },
            stall: maybe(4, 300),
            crash_sink: maybe(6, 400),
            crash_source: maybe(6, 400),
            ill: maybe(4, 6),
            rot: if matches!(verify, Verify::Reread | Verify::Hybrid) { maybe(2, 60) } else { 0 },
            full: maybe(8, 150),
            walk_errors: maybe(6, 1),
        }
    }
}
