//! Start of a session: CONNECT, its answer, and JOIN for additional lanes.

use super::log_request::LogRequest;
use super::options::{JobOptions, one_of};
use super::rule::{self, NameRule};
use crate::fields::{Body, Fields, MANDATORY};
use crate::limits::{LANES_MAX, OPERANDS_BYTES_MAX, OPERANDS_MAX};
use crate::{Flaw, LaneId, PeerText, Reason, Why, limits};
use haul_model::PATH_BYTES_MAX;

/// First bytes of CONNECT and JOIN. The first frame of a peer that does not speak the protocol
/// lacks them.
const MAGIC: [u8; 4] = *b"haul";

/// Optional field of CONNECT and ACCEPT, without bytes: [`Connect::resumes`].
const RESUMES: u16 = 1;

/// Optional field of CONNECT: [`Connect::log`].
const LOG: u16 = 2;
/// Field of CONNECT that must be understood: [`Connect::rules`].
const RULES: u16 = 3 | MANDATORY;

/// Size in bytes of the secret that binds additional lanes to a session.
pub const SESSION_TOKEN_BYTES: usize = 32;

/// Role of the sender of a CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The sender provides the files.
    Source,
    /// The sender receives the files.
    Sink,
}

const ROLES: [Role; 2] = [Role::Source, Role::Sink];

/// Features beyond version 1, as a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(pub u64);

impl Features {
    /// The sink sends the paths that it wants in OPERANDS after ACCEPT, and not in CONNECT.
    pub const OPERANDS: Features = Features(1);

    /// The sink transfers nothing: it wants the names in a directory, as ENTRIES. The first operand
    /// is the directory, the second the name behind which the listing starts.
    pub const LISTING: Features = Features(2);

    /// The source sends no block of zeros, and no hole, above [`limits::ZERO_BYTES_MAX`] bytes, and
    /// the sink rejects longer ones. Without the feature such a block ends with its object.
    pub const SHORT_BLOCKS: Features = Features(4);

    /// All features of this program.
    pub const ALL: Features = Features(Features::OPERANDS.0 | Features::LISTING.0 | Features::SHORT_BLOCKS.0);

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }

    /// Returns true if the set contains all of `other`.
    pub fn has(self, other: Features) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Limit on the work in flight that one side allows the other. The smaller limit of both sides
/// applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Files that are announced and not yet answered by FILE_DONE.
    pub files: u32,
    /// Size in bytes of the paths and attributes of those files.
    pub facts: u64,
    /// Size in bytes of the objects that are sent and not yet reported by BLOCK_SYNC. One object
    /// can always be sent.
    pub bytes: u64,
}

impl Window {
    /// Returns the smaller of both limits for each field, but enough for one file.
    pub fn least(self, other: Window) -> Window {
        Window {
            files: self.files.min(other.files).max(1),
            facts: self.facts.min(other.facts).max(limits::BODY_BYTES_MAX as u64),
            bytes: self.bytes.min(other.bytes).max(1),
        }
    }

    fn encode(self, body: &mut Body<'_>) {
        body.u32(self.files);
        body.u64(self.facts);
        body.u64(self.bytes);
    }

    fn decode(fields: &mut Fields<'_>) -> Result<Window, Flaw> {
        Ok(Window {
            files: fields.u32("window")?,
            facts: fields.u64("window")?,
            bytes: fields.u64("window")?,
        })
    }
}

impl Default for Window {
    /// Returns 4,096 files, 16 MiB of metadata and 256 MiB of objects. With a round trip of 100 ms,
    /// this suffices for 40,000 small files or 20 Gbit a second.
    fn default() -> Window {
        Window { files: 4096, facts: 16 << 20, bytes: 256 << 20 }
    }
}

/// CONNECT: request of the side that started the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Lowest and highest version that the sender speaks.
    pub versions: (u16, u16),
    /// Features that the sender supports in addition.
    pub offers: Features,
    /// Features that the peer must support.
    pub needs: Features,
    /// Role of the sender.
    pub role: Role,
    /// Identifier of the job, by which both sides find the state of an earlier run.
    pub job: [u8; 16],
    /// Options of the job.
    pub options: JobOptions,
    /// Limit on the work in flight that the sender allows the peer.
    pub window: Window,
    /// Paths at the peer: the directory that a source sends to, or the paths that a sink wants.
    pub operands: Vec<Box<[u8]>>,
    /// Program and version, for logs.
    pub agent: PeerText,
    /// Only from a source: requested settings of the object log that the sink keeps.
    pub log: Option<LogRequest>,
    /// Only from a sink: true if it ran this job before and may have some of the files. The source
    /// then asks for each file.
    pub resumes: bool,
    /// Only from a sink: rules, in order, that select names beneath the paths that it wants.
    pub rules: Vec<NameRule>,
}

/// ACCEPT: positive answer, with the terms of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accept {
    /// Version that both sides speak from now on.
    pub version: u16,
    /// Features that both sides have.
    pub features: Features,
    /// Effective options. The answering side may have lowered the budget or dropped metadata that
    /// it cannot keep.
    pub options: JobOptions,
    /// Limit on the work in flight that the answering side allows the peer.
    pub window: Window,
    /// Maximum number of lanes, including the first.
    pub lanes: u32,
    /// Secret that additional lanes present. Only this session knows it.
    pub token: [u8; SESSION_TOKEN_BYTES],
    /// Program and version, for logs.
    pub agent: PeerText,
    /// Only from a sink: same as [`Connect::resumes`].
    pub resumes: bool,
}

/// JOIN: an additional lane of an open session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// Token of the session.
    pub token: [u8; SESSION_TOKEN_BYTES],
    /// Number of the lane, never used before in the session.
    pub lane: LaneId,
}

impl Connect {
    /// Creates the request of a job for the root directory, with the usual window and without
    /// features, rules and log.
    pub fn new(role: Role, options: JobOptions, agent: PeerText) -> Connect {
        Connect {
            versions: (limits::VERSION, limits::VERSION),
            offers: Features::default(),
            needs: Features::default(),
            role,
            job: [0; 16],
            options,
            window: Window::default(),
            operands: vec![Box::default()],
            agent,
            log: None,
            resumes: false,
            rules: Vec::new(),
        }
    }

    /// Builds the answer of the answering side: the version, the features and the options. The
    /// caller decides if the peer is allowed to do what it requests.
    ///
    /// # Errors
    /// Returns the reason for a REFUSE: no common version, a missing feature, or contradictory
    /// options.
    pub fn answer(
        &self,
        can: Features,
        window: Window,
        lanes: u32,
        token: [u8; SESSION_TOKEN_BYTES],
        agent: PeerText,
    ) -> Result<Accept, Reason> {
        let (lowest, highest) = self.versions;
        if lowest > limits::VERSION || highest < limits::VERSION {
            let text = format!("the peer supports {lowest} to {highest}, this side {}", limits::VERSION);
            return Err(Reason::new(Why::Version, &text));
        }
        let missing = self.needs.0 & !can.0;
        if missing != 0 {
            return Err(Reason::new(Why::Feature, &format!("features {missing:#x}")));
        }
        if let Some(sentence) = self.options.contradiction() {
            return Err(Reason::new(Why::Unsupported, sentence));
        }
        Ok(Accept {
            version: limits::VERSION,
            features: Features(self.offers.0 & can.0),
            options: self.options.clone(),
            window,
            lanes: lanes.clamp(1, LANES_MAX),
            token,
            agent,
            resumes: false,
        })
    }

    pub(super) fn check(&self) -> Result<(), Flaw> {
        let bytes = self.operands.iter().map(|operand| operand.len()).sum::<usize>();
        let longest = self.operands.iter().map(|operand| operand.len()).max().unwrap_or(0);
        at_most("operands", self.operands.len(), OPERANDS_MAX)?;
        at_most("operands' bytes", bytes, OPERANDS_BYTES_MAX)?;
        at_most("operand", longest, PATH_BYTES_MAX)?;
        rule::check(&self.rules)
    }

    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.id(&MAGIC);
        body.u16(self.versions.0);
        body.u16(self.versions.1);
        body.u64(self.offers.0);
        body.u64(self.needs.0);
        body.id(&self.job);
        body.u8(u8::from(self.role == Role::Sink));
        self.options.encode(body);
        self.window.encode(body);
        self.agent.encode(body);
        body.count(self.operands.len());
        for operand in &self.operands {
            body.bytes(operand);
        }
        if let Some(log_request) = &self.log {
            body.optional(LOG, |body| log_request.encode(body));
        }
        encode_resumes(self.resumes, body);
        if !self.rules.is_empty() {
            body.optional(RULES, |body| rule::encode(&self.rules, body));
        }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Connect, Flaw> {
        magic(fields)?;
        let versions = (fields.u16("versions")?, fields.u16("versions")?);
        let offers = Features(fields.u64("features")?);
        let needs = Features(fields.u64("features")?);
        let job = fields.id("job")?;
        let role = one_of(&ROLES, fields.u8("role")?, "role")?;
        let options = JobOptions::decode(fields)?;
        let window = Window::decode(fields)?;
        let agent = PeerText::decode(fields, "agent")?;
        let count = fields.count(OPERANDS_MAX, "operands")?;
        let operands =
            (0..count).map(|_| fields.bytes(PATH_BYTES_MAX, "operand")).collect::<Result<Vec<_>, _>>()?;
        let (mut log, mut resumes, mut rules) = (None, false, Vec::new());
        fields.tail(|tag, field| {
            match tag {
                LOG => log = Some(LogRequest::decode(field)?),
                RESUMES => resumes = true,
                RULES => rules = rule::decode(field)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let connect = Connect {
            versions,
            offers,
            needs,
            role,
            job,
            options,
            window,
            operands,
            agent,
            log,
            resumes,
            rules,
        };
        connect.check()?;
        Ok(connect)
    }
}

impl Accept {
    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.u16(self.version);
        body.u64(self.features.0);
        body.u32(self.lanes);
        body.id(&self.token);
        self.options.encode(body);
        self.window.encode(body);
        self.agent.encode(body);
        encode_resumes(self.resumes, body);
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Accept, Flaw> {
        let version = fields.u16("version")?;
        let features = Features(fields.u64("features")?);
        let lanes = fields.u32("lanes")?;
        let token = fields.id("token")?;
        let options = JobOptions::decode(fields)?;
        let window = Window::decode(fields)?;
        let agent = PeerText::decode(fields, "agent")?;
        if lanes == 0 || lanes > LANES_MAX {
            return Err(Flaw::Value("lanes"));
        }
        let mut resumes = false;
        fields.tail(|tag, _| {
            resumes |= tag == RESUMES;
            Ok(tag == RESUMES)
        })?;
        Ok(Accept { version, features, options, window, lanes, token, agent, resumes })
    }
}

impl Join {
    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.id(&MAGIC);
        body.u32(self.lane.0);
        body.id(&self.token);
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Join, Flaw> {
        magic(fields)?;
        let lane = LaneId(fields.u32("lane")?);
        Ok(Join { lane, token: fields.id("token")? })
    }
}

fn encode_resumes(resumes: bool, body: &mut Body<'_>) {
    if resumes {
        body.optional(RESUMES, |_| {});
    }
}

fn magic(fields: &mut Fields<'_>) -> Result<(), Flaw> {
    if fields.id("magic")? == MAGIC { Ok(()) } else { Err(Flaw::Value("magic")) }
}

pub(super) fn at_most(what: &'static str, len: usize, most: usize) -> Result<(), Flaw> {
    if len > most { Err(Flaw::TooLong { what, len: len as u64, most: most as u64 }) } else { Ok(()) }
}
