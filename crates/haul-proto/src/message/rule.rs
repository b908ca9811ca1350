//! Rules that select names beneath the paths that a job requests.

use crate::Flaw;
use crate::fields::{Body, Fields};
use crate::limits::{RULES_BYTES_MAX, RULES_MAX};

/// A pattern and its effect on names that match. If several patterns match, the last one decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameRule {
    /// True if matching names are included. Otherwise they and everything beneath them are
    /// excluded.
    pub is_include: bool,
    /// Pattern in the syntax of gitignore. Not validated yet: the code that walks the tree reports
    /// invalid patterns.
    pub pattern: Box<[u8]>,
}

pub(super) fn check(rules: &[NameRule]) -> Result<(), Flaw> {
    let bytes: usize = rules.iter().map(|rule| rule.pattern.len()).sum();
    for (what, len, most) in [("rules", rules.len(), RULES_MAX), ("rules' bytes", bytes, RULES_BYTES_MAX)] {
        if len > most {
            return Err(Flaw::TooLong { what, len: len as u64, most: most as u64 });
        }
    }
    Ok(())
}

pub(super) fn encode(rules: &[NameRule], body: &mut Body<'_>) {
    body.count(rules.len());
    for rule in rules {
        body.u8(u8::from(rule.is_include));
        body.bytes(&rule.pattern);
    }
}

pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Vec<NameRule>, Flaw> {
    let count = fields.count(RULES_MAX, "rules")?;
    let rule = |fields: &mut Fields<'_>| {
        let is_include = match fields.u8("rule")? {
            0 => false,
            1 => true,
            _ => return Err(Flaw::Value("rule")),
        };
        Ok(NameRule { is_include, pattern: fields.bytes(RULES_BYTES_MAX, "rule")? })
    };
    (0..count).map(|_| rule(fields)).collect()
}
