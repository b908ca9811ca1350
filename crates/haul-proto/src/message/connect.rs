//! How a session begins: CONNECT, its answer, and JOIN for further lanes.

use super::options::{JobOptions, one_of};
use super::rule::{self, NameRule};
use super::wish::LogWish;
use crate::fields::{Body, Fields, MANDATORY};
use crate::limits::{LANES_MAX, OPERANDS_BYTES_MAX, OPERANDS_MAX};
use crate::{Flaw, LaneId, PeerText, Reason, Why, limits};
use haul_model::PATH_BYTES_MAX;

/// The first bytes of CONNECT and JOIN, so that a stranger is known by its first frame.
const MAGIC: [u8; 4] = *b"haul";

/// Optional field of CONNECT and ACCEPT, without bytes: [`Connect::resumes`].
const RESUMES: u16 = 1;

/// Optional field of CONNECT: [`Connect::log`].
const LOG: u16 = 2;
/// Field of CONNECT that must be understood: [`Connect::rules`].
const RULES: u16 = 3 | MANDATORY;

/// Bytes of the secret that binds further lanes to a session.
pub const SESSION_TOKEN_BYTES: usize = 32;

/// Which part the sender of a CONNECT plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It has the files.
    Source,
    /// It wants them.
    Sink,
}

const ROLES: [Role; 2] = [Role::Source, Role::Sink];

/// Abilities beyond version 1, a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(pub u64);

impl Features {
    /// What a sink wants comes in OPERANDS behind ACCEPT, and not in CONNECT.
    pub const OPERANDS: Features = Features(1);

    /// All that this program can do.
    pub const ALL: Features = Features::OPERANDS;

    /// Whether all of `other` are among these.
    pub fn has(self, other: Features) -> bool {
        self.0 & other.0 == other.0
    }
}

/// How much a side lets the other have under way. The smaller of both sides' counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Files announced and not yet answered by FILE_DONE.
    pub files: u32,
    /// Bytes of paths and attributes of those files.
    pub facts: u64,
    /// Bytes of objects sent and not yet told of by BLOCK_SYNC. At least one object always goes.
    pub bytes: u64,
}

impl Window {
    /// The smaller of two in every way, but enough for one file.
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
    /// 4,096 files, 16 MiB of facts, 256 MiB of objects: a round trip of 100 ms at 40,000 small files or 20 Gbit a second.
    fn default() -> Window {
        Window { files: 4096, facts: 16 << 20, bytes: 256 << 20 }
    }
}

/// CONNECT: what the side that started the job wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// The lowest and the highest version it speaks.
    pub versions: (u16, u16),
    /// What it can do beyond that.
    pub offers: Features,
    /// What the other side must be able to do.
    pub needs: Features,
    /// Its part.
    pub role: Role,
    /// The job's name, by which both sides find what an earlier run left.
    pub job: [u8; 16],
    /// The job's options.
    pub options: JobOptions,
    /// What it lets the other side have under way.
    pub window: Window,
    /// What the job names at the other side: the directory that a source sends to; the paths that a sink wants.
    pub operands: Vec<Box<[u8]>>,
    /// Program and version, for logs.
    pub agent: PeerText,
    /// Of a source: how the sink is to keep its object log.
    pub log: Option<LogWish>,
    /// Of a sink: it was at this job before and may have some of the files. The source asks for each.
    pub resumes: bool,
    /// Of a sink: which names beneath what it wants are taken, in their order.
    pub rules: Vec<NameRule>,
}

/// ACCEPT: go on, on these terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accept {
    /// The version that is spoken from here on.
    pub version: u16,
    /// The abilities that both sides have.
    pub features: Features,
    /// The options as they hold; the side that answers may have lowered the budget or dropped what it can't keep.
    pub options: JobOptions,
    /// What the answering side lets the other have under way.
    pub window: Window,
    /// Lanes it takes at most, the first one counted.
    pub lanes: u32,
    /// What further lanes show. Only this session knows it.
    pub token: [u8; SESSION_TOKEN_BYTES],
    /// Program and version, for logs.
    pub agent: PeerText,
    /// Of a sink: as [`Connect::resumes`].
    pub resumes: bool,
}

/// JOIN: a further lane of a session that stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// The session's token.
    pub token: [u8; SESSION_TOKEN_BYTES],
    /// The lane's number, never used before in the session.
    pub lane: LaneId,
}

impl Connect {
    /// What the answering side makes of it: the version, the abilities, and the options, unless there is a reason
    /// against them. Whether the peer may do what it asks is for the caller to judge.
    ///
    /// # Errors
    /// The reason for a REFUSE.
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
            let text = format!("asked for {lowest} to {highest}, this side speaks {}", limits::VERSION);
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
        if let Some(wish) = &self.log {
            body.optional(LOG, |body| wish.encode(body));
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
                LOG => log = Some(LogWish::decode(field)?),
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
