//! Tests of the meaning of option lines.

use super::super::options::OPTIONS;
use super::*;
use crate::getopt;
use crate::getopt::context::tests::StandIn;
use haul_coreutils::cp::{Backup, BackupMethod, Contexts};
use haul_engine::copy::HashForm;
use haul_model::ObjectSize;

fn settings(line: &str) -> CopySettings {
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    match resolve(getopt::parse(OPTIONS, &words, false), &Environment::default(), &mut |_| ()).unwrap() {
        Invocation::Copy(resolved) => resolved.settings,
        other => panic!("{other:?}"),
    }
}

fn mistake(line: &str) -> String {
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    let resolved = resolve(getopt::parse(OPTIONS, &words, false), &Environment::default(), &mut |_| ());
    resolved.unwrap_err().to_string()
}

#[test]
fn later_options_override_earlier_ones() {
    assert_eq!(settings("-i -n a no-such").rules.existing, Existing::Keep);
    assert_eq!(settings("-n -i a no-such").rules.existing, Existing::Ask);
    assert_eq!(settings("-a -L a no-such").rules.dereference, Dereference::Always);
    assert!(!settings("-a --no-preserve=mode a no-such").rules.preserve.mode);
    assert!(settings("--no-preserve=mode -a a no-such").rules.preserve.mode);
}

#[test]
fn update_n_i_and_u_select_which_files_are_replaced() {
    let rules = |line: &str| {
        let rules = settings(&format!("{line} a no-such")).rules;
        (rules.existing, rules.update)
    };
    assert_eq!(rules("--update=all"), (Existing::Overwrite, false));
    assert_eq!(rules("-u --update=all"), (Existing::Overwrite, false), "the last one holds");
    assert_eq!(rules("--update=none -u"), (Existing::Overwrite, true));
    assert_eq!(rules("--update=none"), (Existing::Keep, false));
    assert_eq!(rules("--update=none-fail"), (Existing::Refuse, false));
    assert_eq!(rules("--update=o"), (Existing::Overwrite, true));
    assert_eq!(rules("-n --update=all"), (Existing::Keep, false), "-n is stronger");
    assert_eq!(rules("-n --update=none-fail"), (Existing::Keep, false));
    assert_eq!(rules("-i --update"), (Existing::Ask, true));
    assert_eq!(rules("--update=none -i"), (Existing::Keep, false), "there is nothing to ask about");
    assert_eq!(mistake("-b --update=none-fail a b"), mistake("-b --update=none a b"));
    assert_ne!(mistake("-b -n a b"), mistake("-b --update=none a b"));
    assert!(mistake("--update=n a b").starts_with("ambiguous argument"));
}

#[test]
fn the_first_usage_error_on_the_command_line_is_reported() {
    assert!(mistake("--sparse=x -y").starts_with("invalid argument"));
    assert_eq!(mistake("-y --sparse=x"), "invalid option -- 'y'");
}

#[test]
fn contexts_are_preserved_or_set_only_with_selinux() {
    let resolved = |line: &str, selinux: bool| {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let mut warnings = Vec::new();
        let policy = selinux.then(|| Arc::new(StandIn::default()) as Arc<dyn Policy>);
        let environment = Environment { policy, ..Environment::default() };
        let wish = resolve(getopt::parse(OPTIONS, &words, false), &environment, &mut |text| {
            warnings.push(text.to_owned());
        });
        let contexts = match wish {
            Ok(Invocation::Copy(resolved)) => Ok(match resolved.settings.rules.contexts {
                Contexts::Kernels => "the kernel's",
                Contexts::Said => "said",
                Contexts::Sources { is_required: false, .. } => "kept",
                Contexts::Sources { is_required: true, .. } => "required",
                Contexts::Listed(_) => "listed",
            }),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        };
        (contexts, warnings.len())
    };
    assert_eq!(resolved("-a a no-such", false), (Ok("the kernel's"), 0));
    assert_eq!(resolved("-a a no-such", true), (Ok("kept"), 0));
    assert_eq!(resolved("-aZ a no-such", true), (Ok("listed"), 0));
    assert_eq!(resolved("-a --context=u:r:t a no-such", true), (Ok("said"), 0));
    assert_eq!(resolved("-Z --context=x a no-such", false), (Ok("the kernel's"), 1));
    assert_eq!(resolved("--preserve=context a no-such", true), (Ok("required"), 0));
    assert_eq!(resolved("--preserve=context,all a no-such", true), (Ok("required"), 0));
    assert_eq!(resolved("-a --no-preserve=context a no-such", true), (Ok("the kernel's"), 0));
    let refused = |line, selinux| resolved(line, selinux).0.unwrap_err();
    assert_eq!(refused("-Z --preserve=context a b", true), "cannot set target context and preserve it");
    assert!(refused("--preserve=context a b", false).starts_with("cannot preserve security context"));
}

#[test]
fn links_are_followed_unless_the_copy_is_recursive() {
    assert_eq!(settings("a no-such").rules.dereference, Dereference::Always);
    assert_eq!(settings("-r a no-such").rules.dereference, Dereference::Never);
    assert_eq!(settings("-rl a no-such").rules.dereference, Dereference::Always);
}

#[test]
fn hashes_are_plain_unless_a_tree_is_requested() {
    let form = |line: &str| settings(line).moving.digest.unwrap().1;
    let tree = |bytes| HashForm::Tree(ObjectSize::new(bytes).unwrap());
    assert_eq!(form("--print-hash a no-such"), HashForm::Plain);
    assert_eq!(form("--print-hash --split-size=16 a no-such"), tree(16 << 20));
    assert_eq!(form("--print-hash --hash-type=blake3 --split-size=16 a no-such"), HashForm::Plain);
    assert_eq!(form("--print-hash --hash-leaf-size=1024 a no-such"), tree(1 << 20));
    assert_eq!(form("--print-hash --split-size=2048 a no-such"), tree(1 << 30));
}

#[test]
fn backup_options_override_the_environment() {
    let typed =
        |line: &str| getopt::parse(OPTIONS, &line.split(' ').map(OsString::from).collect::<Vec<_>>(), false);
    let said = BackupEnvironment { version_control: Some("numbered".into()), suffix: Some(".old".into()) };
    let environment = Environment { backup: said, ..Environment::default() };
    let rule = |line| match resolve(typed(line), &environment, &mut |_| ()).unwrap() {
        Invocation::Copy(resolved) => resolved.settings.rules.backup,
        other => panic!("{other:?}"),
    };
    let numbered = Backup { method: BackupMethod::Numbered, suffix: ".old".into() };
    assert_eq!(rule("-b a no-such"), Some(numbered));
    let simple = Backup { method: BackupMethod::Simple, suffix: "-s".into() };
    assert_eq!(rule("--backup=si -S -s a no-such"), Some(simple));
    assert_eq!(rule("--backup=off a no-such"), None);
}
