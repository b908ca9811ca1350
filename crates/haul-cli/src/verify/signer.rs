//! Required signature of a waybill.

use clap::Args;
use haul_engine::signature::{Proof, SignatureRequirements, check};
use std::ffi::{OsStr, OsString};
use std::time::{SystemTime, UNIX_EPOCH};

/// Options for the signature.
#[derive(Args, Clone, Debug)]
pub(crate) struct SignerArgs {
    /// First verify the waybill's signature against FILE: a file of allowed signers, as ssh-keygen
    /// reads it, or a public key.
    #[arg(long, value_name = "FILE")]
    pub(super) signer: Option<OsString>,
    /// Require a signature of the signer ID in the file of allowed signers [default: any signer].
    #[arg(long, value_name = "ID", requires = "signer")]
    identity: Option<String>,
    /// Read the signature from FILE [default: WAYBILL.sig].
    #[arg(long, value_name = "FILE", requires = "signer")]
    signature: Option<OsString>,
}

impl SignerArgs {
    /// Verifies the signature; returns `None` if no signature is required. The error is a message.
    pub(crate) fn check(&self, waybill: &OsStr) -> Result<Option<Proof>, String> {
        let Some(signers) = self.signer.clone() else { return Ok(None) };
        let demand = SignatureRequirements {
            signers,
            identity: self.identity.clone(),
            signature: self.signature.clone(),
        };
        // A clock before 1970 is outside every signer's validity period.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        check(waybill, &demand, now).map(Some).map_err(|error| format!("{error}; nothing was verified"))
    }
}

/// Describes a proof.
pub(crate) fn told(proof: &Proof) -> String {
    match &proof.signer {
        Some(signer) => format!("signed by {}, {}", signer.escape_default(), proof.key),
        None => format!("signed by {}", proof.key),
    }
}
