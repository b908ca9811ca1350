//! Random command lines: words drawn from the options of a tool and from the entries of the
//! sandbox.

mod cp;
mod install;
mod mv;

use super::case::{Case, Tool};
use super::grow;
use super::plant::{BOX, Plant};
use haul_lab::random::Random;

/// Names that may be free.
const NEW_NAMES: [&[u8]; 7] = [b"new", b"a", b"b", b"x", b"n\xc3\xa9w", b"-n", b"new word"];

/// An option of a tool.
#[derive(Clone, Copy, Debug)]
struct Opt {
    /// The letter, or 0 if there is none.
    letter: u8,
    /// The long name, or an empty string if there is none.
    long: &'static str,
    value: Value,
    /// Relative frequency of the option.
    weight: u64,
}

/// Possible values of an option.
#[derive(Clone, Copy, Debug)]
enum Value {
    No,
    /// One of these, or none.
    Optional(&'static [&'static str]),
    /// One of these.
    Required(&'static [&'static str]),
    /// A directory of the sandbox, or another name.
    Place,
}

/// Returns an option without a value.
const fn flag(letter: u8, long: &'static str, weight: u64) -> Opt {
    Opt { letter, long, value: Value::No, weight }
}

/// Returns an option with a value.
const fn valued(letter: u8, long: &'static str, value: Value, weight: u64) -> Opt {
    Opt { letter, long, value, weight }
}

/// Options of a tool.
#[derive(Clone, Copy, Debug)]
struct Language {
    options: &'static [Opt],
    /// Maximum number of options in a line.
    options_max: usize,
}

/// Returns a random case for a tool.
pub(super) fn draw(tool: Tool, random: &mut Random) -> Case {
    let language = match tool {
        Tool::Cp => &cp::LANGUAGE,
        Tool::Mv => &mv::LANGUAGE,
        Tool::Install => &install::LANGUAGE,
    };
    let plants = grow::draw(random);
    Drawing { random, language, case: Case { plants, ..Case::new(tool) }, up: 0 }.finish()
}

struct Drawing<'a> {
    random: &'a mut Random,
    language: &'static Language,
    case: Case,
    /// Depth of the working directory below the sandbox.
    up: usize,
}

impl Drawing<'_> {
    fn finish(mut self) -> Case {
        self.surroundings();
        let options = self.options();
        let operands = self.operands(&options);
        self.put_together(options, operands);
        self.variables();
        self.answers();
        self.case
    }

    fn surroundings(&mut self) {
        self.case.as_user = self.random.chance(25);
        self.case.on_disk = self.random.chance(20);
        if self.random.chance(12) {
            self.case.umask = *self.pick(&[0, 0o002, 0o027, 0o077, 0o177, 0o777]);
        }
        // The directory must be accessible to each user.
        let plants = &self.case.plants;
        let closes = |plant: &Plant| plant.mode.is_some() || !plant.xattrs.is_empty();
        let is_closed =
            |path: &[u8]| plants.iter().any(|plant| closes(plant) && path.starts_with(&plant.path));
        let is_open =
            |plant: &&Plant| plant.is_dir() && !plant.path.starts_with(b"far/") && !is_closed(&plant.path);
        let open: Vec<Vec<u8>> = plants.iter().filter(is_open).map(|plant| plant.path.clone()).collect();
        if !open.is_empty() && self.random.chance(8) {
            self.case.cwd = self.pick(&open).clone();
            self.up = self.case.cwd.split(|&byte| byte == b'/').count();
        }
    }

    /// Returns options as words; a word may have the letters of several options.
    fn options(&mut self) -> Vec<Vec<Vec<u8>>> {
        let count = self.random.index(self.language.options_max + 1);
        let mut all: Vec<Vec<Vec<u8>>> = Vec::new();
        for _ in 0..count {
            let option = self.option();
            let words = self.spell(option);
            let is_letter = |words: &[Vec<u8>]| words.len() == 1 && words[0].len() > 1 && words[0][1] != b'-';
            let may_join = is_letter(&words) && matches!(option.value, Value::No);
            match all.last_mut() {
                // Letters are inserted before one that takes a value, never after it.
                Some(last) if may_join && takes_letters(last) && self.random.chance(30) => {
                    last[0].insert(1, words[0][1]);
                }
                _ => all.push(words),
            }
        }
        all
    }

    fn option(&mut self) -> Opt {
        let options = self.language.options;
        let mut at = self.random.below(options.iter().map(|option| option.weight).sum());
        for option in options {
            if at < option.weight {
                return *option;
            }
            at -= option.weight;
        }
        options[0]
    }

    /// Returns one spelling of an option, as one word or two.
    fn spell(&mut self, option: Opt) -> Vec<Vec<u8>> {
        let value: Option<Vec<u8>> = match option.value {
            Value::No => None,
            Value::Optional(values) => {
                self.random.chance(70).then(|| self.pick(values).as_bytes().to_owned())
            }
            Value::Required(values) => Some(self.pick(values).as_bytes().to_owned()),
            Value::Place => Some(self.sink()),
        };
        let by_letter = option.long.is_empty() || (option.letter != 0 && self.random.chance(60));
        let is_optional = matches!(option.value, Value::Optional(_));
        if by_letter {
            let letter = vec![b'-', option.letter];
            return match value {
                Some(value) if is_optional || self.random.chance(50) => vec![[letter, value].concat()],
                Some(value) => vec![letter, value],
                None => vec![letter],
            };
        }
        let mut name = option.long.as_bytes().to_owned();
        if self.random.chance(12) {
            name.truncate(2 + self.random.index(name.len()));
        }
        let name = [b"--", &name[..]].concat();
        match value {
            Some(value) if is_optional || self.random.chance(70) => vec![[name, value].join(&b'=')],
            Some(value) => vec![name, value],
            None => vec![name],
        }
    }

    fn operands(&mut self, options: &[Vec<Vec<u8>>]) -> Vec<Vec<u8>> {
        let begins = |start: &[u8]| options.iter().any(|words| words[0].starts_with(start));
        // The first letter of a group that takes a value is its last: the rest is the value.
        let takes_value = |letter: &&u8| b"tSmog".contains(*letter);
        let in_group = |words: &Vec<Vec<u8>>| {
            takes_letters(words) && words[0][1..].iter().find(takes_value) == Some(&b't')
        };
        let has_target = begins(b"--t") || options.iter().any(in_group);
        let sources = match self.random.below(100) {
            0..2 => 0,
            2..70 => 1,
            70..90 => 2,
            _ => 3,
        };
        let mut operands: Vec<Vec<u8>> = (0..sources).map(|_| self.source()).collect();
        if !has_target && self.random.chance(98) {
            let sink = match operands.last() {
                Some(source) if self.random.chance(8) => self.near(source),
                _ => self.sink(),
            };
            operands.push(sink);
        }
        operands
    }

    /// Returns a destination that is related to the source: the same name, its directory, or a name
    /// in it.
    fn near(&mut self, source: &[u8]) -> Vec<u8> {
        let above = source.iter().rposition(|&byte| byte == b'/').map_or(&b"."[..], |at| &source[..at]);
        let name = source.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        match self.random.below(6) {
            0 => source.to_owned(),
            1 => [b"./", source].concat(),
            2 => above.to_owned(),
            3 => [source, b"/../", name].concat(),
            4 => [source, b"/", name].concat(),
            _ => [source, b"/", *self.pick(&NEW_NAMES)].concat(),
        }
    }

    /// Returns a source, in most cases an existing one.
    fn source(&mut self) -> Vec<u8> {
        let paths = self.paths(|_| true);
        let path = if paths.is_empty() || self.random.chance(5) {
            self.new_name()
        } else {
            self.pick(&paths).clone()
        };
        self.decorate(path)
    }

    /// Returns a destination: an existing one, or a new name.
    fn sink(&mut self) -> Vec<u8> {
        let path = match self.random.below(100) {
            0..30 => self.paths(|_| true),
            30..65 => self.paths(Plant::is_dir),
            _ => Vec::new(),
        };
        let path = match path.len() {
            0 if self.random.chance(10) => b".".to_vec(),
            0 => self.new_name(),
            _ => self.pick(&path).clone(),
        };
        self.decorate(path)
    }

    fn paths(&self, which: impl Fn(&Plant) -> bool) -> Vec<Vec<u8>> {
        self.case.plants.iter().filter(|plant| which(plant)).map(|plant| plant.path.clone()).collect()
    }

    /// Returns a name that may be free, in the sandbox or in one of its directories.
    fn new_name(&mut self) -> Vec<u8> {
        let name = *self.pick(&NEW_NAMES);
        let dirs = self.paths(Plant::is_dir);
        if dirs.is_empty() || self.random.chance(60) {
            return name.to_owned();
        }
        [&self.pick(&dirs)[..], name].join(&b'/')
    }

    /// Returns another spelling of the same path, or of a similar one.
    fn decorate(&mut self, path: Vec<u8>) -> Vec<u8> {
        let path = [b"../".repeat(self.up), path].concat();
        if self.random.chance(6) {
            return self.disguise(&path);
        }
        match self.random.below(100) {
            0..10 => [&path[..], b"/"].concat(),
            10..14 => [&path[..], b"/."].concat(),
            14..20 => [b"./", &path[..]].concat(),
            20..23 => [BOX, b"/", &path[..]].concat(),
            23..25 => [&path[..], b"//"].concat(),
            25 => path.split(|&byte| byte == b'/').collect::<Vec<_>>().join(&b"//"[..]),
            _ => path,
        }
    }

    /// Returns an unusual spelling of a path. Some of these lead elsewhere or nowhere.
    fn disguise(&mut self, path: &[u8]) -> Vec<u8> {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        match self.random.below(9) {
            0 => Vec::new(),
            1 => b"..".to_vec(),
            2 => [path, b"/.."].concat(),
            3 => [path, b"/../", name].concat(),
            4 => [path, b"/./"].concat(),
            5 => [path, b"/.//."].concat(),
            6 => [BOX, b"/../box/", path].concat(),
            7 => [path, b"/", name].concat(),
            _ => [b".//", path].concat(),
        }
    }

    /// Puts options before the operands in most cases, and sometimes between them.
    fn put_together(&mut self, options: Vec<Vec<Vec<u8>>>, operands: Vec<Vec<u8>>) {
        let mut groups = operands.into_iter().map(|operand| vec![operand]).collect::<Vec<_>>();
        if self.random.chance(12) {
            groups.insert(0, vec![b"--".to_vec()]);
        }
        let mixes = self.random.chance(12);
        for (count, words) in options.into_iter().enumerate() {
            let at = if mixes { self.random.index(groups.len() + 1) } else { count };
            groups.insert(at, words);
        }
        self.case.words = groups.concat();
    }

    fn variables(&mut self) {
        const CONTROLS: [&str; 9] =
            ["none", "off", "t", "numbered", "existing", "nil", "simple", "never", "no"];
        let mut set = |name, value: &str| self.case.environment.push((name, value.to_owned()));
        if self.random.chance(10) {
            set("LC_ALL", "C");
        }
        if self.random.chance(6) {
            set("POSIXLY_CORRECT", "1");
        }
        if self.random.chance(8) {
            set("VERSION_CONTROL", CONTROLS[self.random.index(CONTROLS.len())]);
        }
        if self.random.chance(5) {
            set("SIMPLE_BACKUP_SUFFIX", [".o", "", "/x", "~~"][self.random.index(4)]);
        }
    }

    /// Sets the answers. The order of prompts in a tree is undefined, so that all answers are equal
    /// there.
    fn answers(&mut self) {
        self.case.answers = match self.random.below(4) {
            0 => b"y\n".repeat(30),
            1 => b"n\n".repeat(30),
            2 if !self.case.walks() => b"y\nn\nyes\n\nY\nno".to_vec(),
            _ => Vec::new(),
        };
    }

    fn pick<'v, T>(&mut self, values: &'v [T]) -> &'v T {
        &values[self.random.index(values.len())]
    }
}

/// Returns true if letters of other options may be inserted before the letter of an option.
fn takes_letters(words: &[Vec<u8>]) -> bool {
    words[0].len() > 1 && words[0][1] != b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases(tool: Tool, seed: u64) -> Vec<Case> {
        (0..2000).map(|number| draw(tool, &mut Random::for_part(seed, number))).collect()
    }

    #[test]
    fn equal_seeds_generate_equal_cases() {
        assert_eq!(cases(Tool::Cp, 1)[..50], cases(Tool::Cp, 1)[..50]);
        assert_ne!(cases(Tool::Cp, 1)[..50], cases(Tool::Cp, 2)[..50]);
    }

    #[test]
    fn every_option_is_generated_in_short_and_long_form() {
        for (tool, language) in
            [(Tool::Cp, &cp::LANGUAGE), (Tool::Mv, &mv::LANGUAGE), (Tool::Install, &install::LANGUAGE)]
        {
            each_is_drawn(&cases(tool, 3), language);
        }
    }

    fn each_is_drawn(cases: &[Case], language: &Language) {
        for option in language.options {
            let long = format!("--{}", option.long);
            let by_name =
                cases.iter().any(|case| case.words.iter().any(|word| word.starts_with(long.as_bytes())));
            assert!(option.long.is_empty() || by_name, "{option:?}");
            let letter = [b'-', option.letter];
            let by_letter = cases.iter().any(|case| case.words.iter().any(|word| word.starts_with(&letter)));
            assert!(option.letter == 0 || by_letter, "{option:?}");
        }
    }

    #[test]
    fn generated_environments_vary() {
        let cases = cases(Tool::Cp, 4);
        let share = |test: fn(&Case) -> bool| cases.iter().filter(|case| test(case)).count();
        assert!((300..700).contains(&share(|case| case.as_user)));
        assert!((50..400).contains(&share(|case| case.umask != super::super::case::USUAL_UMASK)));
        assert!((50..800).contains(&share(|case| !case.environment.is_empty())));
        assert!(share(|case| !case.cwd.is_empty()) > 30);
        assert!(share(|case| case.plants.iter().any(|plant| plant.path.starts_with(b"far/"))) > 50);
    }
}
