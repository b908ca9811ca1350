//! Whose signature a waybill must have.

use clap::Args;
use haul_engine::signature::{Demand, Proof, check};
use std::ffi::{OsStr, OsString};
use std::time::{SystemTime, UNIX_EPOCH};

/// What was typed about a signature.
#[derive(Args, Clone, Debug)]
pub(crate) struct SignerArgs {
    /// First of all, verify the waybill's signature by one of these: a file of allowed signers, as ssh-keygen reads it,
    /// or a public key.
    #[arg(long, value_name = "FILE")]
    pub(super) signer: Option<OsString>,
    /// Who must have signed, by the file of allowed signers; without it anyone there.
    #[arg(long, value_name = "ID", requires = "signer")]
    identity: Option<String>,
    /// Where the signature is; without it WAYBILL.sig.
    #[arg(long, value_name = "FILE", requires = "signer")]
    signature: Option<OsString>,
}

impl SignerArgs {
    /// The proof that was asked for; `None` where none was. The error is a message.
    pub(crate) fn check(&self, waybill: &OsStr) -> Result<Option<Proof>, String> {
        let Some(signers) = self.signer.clone() else { return Ok(None) };
        let demand = Demand { signers, identity: self.identity.clone(), signature: self.signature.clone() };
        // A clock before 1970 is in no signer's time of validity.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        check(waybill, &demand, now).map(Some).map_err(|error| format!("{error}. Nothing was verified"))
    }
}

/// What a proof says.
pub(crate) fn told(proof: &Proof) -> String {
    match &proof.signer {
        Some(signer) => format!("signed by {}, {}", signer.escape_default(), proof.key),
        None => format!("signed by {}", proof.key),
    }
}
