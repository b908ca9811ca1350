//! Context rule from `-Z`, `--context` and the options that keep contexts, for cp, mv and install.

use haul_coreutils::cp::Contexts;
use haul_engine::copy::{cause, quote_word};
use haul_sys::selinux::Policy;
use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::Arc;
use thiserror::Error;

/// Message of cp and mv if the policy has no list of paths for `-Z`.
pub(crate) const IGNORED: &str = "warning: ignoring --context";

/// Message of install in the same case.
pub(crate) const NO_LIST: &str = "warning: security labeling handle failed";

/// Context options as typed.
#[derive(Debug, Default)]
pub(crate) struct ContextArgs {
    /// The kernel's policy; `None` if the kernel labels no files.
    policy: Option<Arc<dyn Policy>>,
    keeps: ContextRule,
    /// `--preserve=context`: a failure to keep the context fails the file, whatever the other
    /// options.
    requires: bool,
    /// `-Z` was given, and the list of paths is available.
    listed: bool,
    /// An option sets contexts, or `--preserve-context` keeps them.
    is_asked: bool,
    /// `--context=CTX`.
    said: Option<OsString>,
}

/// Rule for keeping the contexts of sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ContextRule {
    #[default]
    No,
    /// Keep them unless another context is requested.
    ByDefault,
    Asked,
}

/// Error of context options that cannot be applied.
#[derive(Debug, Error)]
pub(crate) enum ContextError {
    #[error("cannot preserve security context without an SELinux-enabled kernel")]
    NoSelinux,
    #[error("cannot set target context and preserve it")]
    Twice,
    #[error("failed to set default file creation context to {}: {}", quote_word(context), cause(source))]
    Refused { context: OsString, source: io::Error },
}

impl ContextArgs {
    /// Returns the state before any option, for the kernel's policy.
    pub(crate) fn with(policy: Option<Arc<dyn Policy>>) -> ContextArgs {
        ContextArgs { policy, ..ContextArgs::default() }
    }

    /// Handles `-Z`, `--context` and `--context=CTX`. Without SELinux only the last one gives a
    /// warning. `unlisted` is the tool's message if there is no list of paths.
    pub(crate) fn option(&mut self, context: Option<&OsStr>, unlisted: &str, warn: &mut dyn FnMut(&str)) {
        self.is_asked = true;
        match (&self.policy, context) {
            (None, None) => {}
            (None, Some(_)) => warn("warning: ignoring --context; it requires an SELinux-enabled kernel"),
            (Some(_), Some(context)) => self.said = Some(context.to_owned()),
            (Some(policy), None) => match policy.read_paths() {
                Ok(()) => self.listed = true,
                Err(error) => warn(&format!("{unlisted}: {}", cause(&error))),
            },
        }
    }

    /// Keeps the contexts of sources if the kernel has contexts: `-a`, `--preserve=all`, mv.
    pub(crate) fn keep_by_default(&mut self) {
        if self.policy.is_some() && self.keeps == ContextRule::No {
            self.keeps = ContextRule::ByDefault;
        }
    }

    /// Handles `--preserve-context`; returns false if the kernel has no contexts.
    pub(crate) fn keep_if_enabled(&mut self) -> bool {
        self.is_asked = true;
        if self.policy.is_some() {
            self.keeps = ContextRule::Asked;
        }
        self.policy.is_some()
    }

    /// Handles `--preserve=context`.
    pub(crate) fn require(&mut self) {
        self.keeps = ContextRule::Asked;
        self.requires = true;
    }

    /// Handles `--no-preserve=context`.
    pub(crate) fn leave(&mut self) {
        self.leave_by_default();
        self.requires = false;
    }

    /// Handles `--no-preserve=all`.
    pub(crate) fn leave_by_default(&mut self) {
        self.keeps = ContextRule::No;
    }

    /// Returns the kernel's policy if no option is about contexts.
    pub(crate) fn unasked(&self) -> Option<&Arc<dyn Policy>> {
        self.policy.as_ref().filter(|_| !self.is_asked)
    }

    /// Returns the context rule. Sets a given context in the kernel now, for all later files of
    /// this process.
    ///
    /// # Errors
    /// [`ContextError`]
    pub(crate) fn rule(self) -> Result<Contexts, ContextError> {
        let sets = self.listed || self.said.is_some();
        if sets && self.keeps == ContextRule::Asked {
            return Err(ContextError::Twice);
        }
        let Some(policy) = self.policy else {
            return if self.requires { Err(ContextError::NoSelinux) } else { Ok(Contexts::Kernels) };
        };
        if let Some(context) = &self.said {
            policy
                .parse_context(context)
                .and_then(|meant| policy.label_new_files(Some(&meant)))
                .map_err(|source| ContextError::Refused { context: context.clone(), source })?;
        }
        Ok(match self.keeps {
            _ if self.listed => Contexts::Listed(policy),
            _ if sets => Contexts::Said,
            ContextRule::No => Contexts::Kernels,
            ContextRule::ByDefault | ContextRule::Asked => {
                Contexts::Sources { policy, is_required: self.requires }
            }
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use haul_sys::FileKind;
    use haul_sys::selinux::Context;
    use parking_lot::Mutex;
    use std::path::Path;

    /// A policy that records the contexts of new files, and rejects contexts that start with `no`.
    #[derive(Debug, Default)]
    pub(crate) struct StandIn {
        pub(crate) has_no_list: bool,
        pub(crate) told: Mutex<Vec<Option<Context>>>,
    }

    impl Policy for StandIn {
        fn read_paths(&self) -> io::Result<()> {
            if self.has_no_list { Err(io::Error::from_raw_os_error(2)) } else { Ok(()) }
        }

        fn of_path(&self, _: &Path, _: FileKind) -> io::Result<Context> {
            Ok(Context::written(b"u:r:listed_t"))
        }

        fn of_new(&self, directory: &Context, _: FileKind) -> io::Result<Context> {
            Ok(directory.clone())
        }

        fn parse_context(&self, typed: &OsStr) -> io::Result<Context> {
            Ok(Context::written(typed.as_encoded_bytes()))
        }

        fn label_new_files(&self, context: Option<&Context>) -> io::Result<()> {
            self.told.lock().push(context.cloned());
            let is_known = context.is_none_or(|context| !context.as_c_str().to_bytes().starts_with(b"no"));
            if is_known { Ok(()) } else { Err(io::Error::from_raw_os_error(22)) }
        }
    }

    fn rule_of(asked: impl FnOnce(&mut ContextArgs, &mut dyn FnMut(&str))) -> (String, Vec<String>, usize) {
        let policy = Arc::new(StandIn::default());
        let mut typed = ContextArgs::with(Some(Arc::<StandIn>::clone(&policy)));
        let mut warnings = Vec::new();
        asked(&mut typed, &mut |text| warnings.push(text.to_owned()));
        let rule = match typed.rule() {
            Ok(Contexts::Kernels) => "the kernel's".to_owned(),
            Ok(Contexts::Said) => "said".to_owned(),
            Ok(Contexts::Sources { is_required, .. }) => format!("kept {is_required}"),
            Ok(Contexts::Listed(_)) => "listed".to_owned(),
            Err(error) => error.to_string(),
        };
        let told = policy.told.lock().len();
        (rule, warnings, told)
    }

    #[test]
    fn a_requested_context_overrides_preservation_by_default() {
        let rule = |asked: fn(&mut ContextArgs)| rule_of(|typed, _| asked(typed)).0;
        let given = |typed: &mut ContextArgs, context: Option<&str>| {
            typed.option(context.map(OsStr::new), IGNORED, &mut |_| ());
        };
        assert_eq!(rule(|_| ()), "the kernel's");
        assert_eq!(rule(ContextArgs::keep_by_default), "kept false");
        assert_eq!(rule(ContextArgs::require), "kept true");
        let listed = rule_of(|typed, warn| {
            typed.keep_by_default();
            typed.option(None, IGNORED, warn);
            typed.keep_by_default();
        });
        assert_eq!(listed, ("listed".into(), vec![], 0));
        let said = rule_of(|typed, _| {
            typed.keep_by_default();
            given(typed, Some("u:r:t"));
        });
        assert_eq!(said, ("said".into(), vec![], 1));
        let twice = rule_of(|typed, _| {
            given(typed, Some("u:r:t"));
            typed.require();
        });
        assert_eq!(twice, ("cannot set target context and preserve it".into(), vec![], 0));
        let (refused, ..) = rule_of(|typed, _| given(typed, Some("no such")));
        assert!(refused.starts_with("failed to set default file creation context to "), "{refused}");
        assert!(refused.ends_with(": Invalid argument"), "{refused}");
    }

    #[test]
    fn no_preserve_context_cancels_earlier_preservation() {
        let rule = |asked: fn(&mut ContextArgs)| rule_of(|typed, _| asked(typed)).0;
        let left = |typed: &mut ContextArgs| {
            typed.require();
            typed.leave();
        };
        assert_eq!(rule(left), "the kernel's");
        let kept_again = |typed: &mut ContextArgs| {
            typed.require();
            typed.keep_by_default();
        };
        assert_eq!(rule(kept_again), "kept true");
        let all_left = |typed: &mut ContextArgs| {
            typed.require();
            typed.leave_by_default();
        };
        assert_eq!(rule(all_left), "the kernel's");
    }

    #[test]
    fn without_file_contexts_z_is_ignored_with_a_warning() {
        let policy = Arc::new(StandIn { has_no_list: true, ..StandIn::default() });
        let mut typed = ContextArgs::with(Some(policy));
        typed.keep_by_default();
        let mut warnings = Vec::new();
        typed.option(None, IGNORED, &mut |text| warnings.push(text.to_owned()));
        assert_eq!(warnings, ["warning: ignoring --context: No such file or directory"]);
        assert!(matches!(typed.rule(), Ok(Contexts::Sources { is_required: false, .. })));
    }

    #[test]
    fn without_selinux_only_required_preservation_is_refused() {
        let mut typed = ContextArgs::default();
        let mut warnings = 0;
        typed.option(None, IGNORED, &mut |_| warnings += 1);
        assert_eq!(warnings, 0);
        typed.option(Some(OsStr::new("x")), IGNORED, &mut |_| warnings += 1);
        assert_eq!(warnings, 1);
        typed.keep_by_default();
        assert!(!typed.keep_if_enabled());
        assert!(typed.unasked().is_none());
        assert!(matches!(typed.rule(), Ok(Contexts::Kernels)));
        let mut typed = ContextArgs::default();
        typed.require();
        assert!(matches!(typed.rule(), Err(ContextError::NoSelinux)));
    }
}
