//! `--sandbox`: confinement of sessions to their directories by the kernel.

use clap::ValueEnum;
use haul_engine::sum::reason;
use haul_engine::transfer::Offer;
use haul_sys::sandbox::{self, Sandbox};

/// When sessions are confined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sandboxing {
    /// If the kernel supports it.
    #[default]
    Auto,
    /// Always: without support the server does not start.
    Require,
    /// Never.
    Off,
}

impl Sandboxing {
    /// Returns the line for the log of the server. The error is a message.
    pub(super) fn check(self) -> Result<String, String> {
        match (self, sandbox::version()) {
            (Sandboxing::Off, _) => Ok("the kernel does not confine sessions: --sandbox=off".to_owned()),
            (_, Some(version)) => {
                Ok(format!("the kernel confines each session to its directory (Landlock {version})"))
            }
            (Sandboxing::Auto, None) => {
                Ok("the kernel cannot confine sessions to their directories: it has no usable Landlock".to_owned())
            }
            (Sandboxing::Require, None) => Err(
                "cannot confine sessions: this kernel has no usable Landlock; use Linux 5.19 or later with Landlock enabled, or --sandbox=auto"
                    .to_owned(),
            ),
        }
    }

    /// Confines this thread, and all threads that it starts, to the directories of a session. The
    /// error is a message.
    pub(super) fn enter(self, offer: &Offer) -> Result<(), String> {
        self.confine(|| offer.sandbox())
    }

    /// Same as [`enter`](Self::enter), for a thread that needs no files.
    pub(super) fn enter_without_files(self) -> Result<(), String> {
        self.confine(Sandbox::new)
    }

    fn confine(self, sandbox: impl FnOnce() -> Sandbox) -> Result<(), String> {
        if self == Sandboxing::Off {
            return Ok(());
        }
        let entered = sandbox().enter();
        entered.map(drop).map_err(|error| format!("cannot confine the session: {}", reason(&error)))
    }
}
