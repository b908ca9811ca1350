//! Licence rule: `deny.toml` allows the licence of every dependency.

use serde_json::Value;

/// Returns the licences in the list `allow` of the section `[licenses]` of a `deny.toml`.
///
/// # Errors
/// Returns a message if there is no such list.
pub fn allowed(deny: &str) -> Result<Vec<String>, String> {
    let section = deny.split_once("[licenses]").ok_or("deny.toml has no section [licenses]")?.1;
    let section = section.split("\n[").next().unwrap_or(section);
    let list = section.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']'));
    let list = list.ok_or("the section [licenses] of deny.toml has no list `allow`")?.0;
    Ok(list.split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

/// Returns the packages of `cargo metadata` whose licence expression cannot be satisfied by
/// `allowed` alone.
pub fn refused(metadata: &Value, allowed: &[String]) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter_map(|package| {
            let name = package["name"].as_str().unwrap_or("?");
            match package["license"].as_str() {
                None => Some(format!("{name} states no licence")),
                Some(licence) => match is_met(licence, allowed) {
                    Some(true) => None,
                    Some(false) => Some(format!("{name}: {licence}")),
                    None => Some(format!("{name}: invalid licence expression '{licence}'")),
                },
            }
        })
        .collect()
}

/// Returns true if an SPDX expression can be satisfied (annex D of SPDX 2.3; older packages write
/// `/` for OR). Returns `None` if the text is not such an expression.
fn is_met(expression: &str, allowed: &[String]) -> Option<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, allowed };
    let met = parser.any()?;
    parser.words.is_empty().then_some(met)
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl Parser<'_> {
    fn any(&mut self) -> Option<bool> {
        let mut met = self.all()?;
        while self.accept("OR") {
            met |= self.all()?;
        }
        Some(met)
    }

    fn all(&mut self) -> Option<bool> {
        let mut met = self.one()?;
        while self.accept("AND") {
            met &= self.one()?;
        }
        Some(met)
    }

    fn one(&mut self) -> Option<bool> {
        if self.accept("(") {
            let met = self.any()?;
            return self.accept(")").then_some(met);
        }
        let mut licence = self.name()?.to_owned();
        if self.accept("WITH") {
            licence = format!("{licence} WITH {}", self.name()?);
        }
        Some(self.allowed.contains(&licence))
    }

    fn name(&mut self) -> Option<&str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        (!matches!(*first, "OR" | "AND" | "WITH" | "(" | ")")).then_some(*first)
    }

    fn accept(&mut self, word: &str) -> bool {
        let is_next = self.words.first() == Some(&word);
        if is_next {
            self.words = &self.words[1..];
        }
        is_next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn met(expression: &str) -> Option<bool> {
        is_met(expression, &["MIT", "ISC", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned))
    }

    #[test]
    fn licence_expressions_are_evaluated() {
        for good in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/GPL-2.0",
            "MIT AND (GPL-2.0 OR ISC)",
            "GPL-3.0 AND ISC OR MIT",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert_eq!(met(good), Some(true), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "ISC WITH LLVM-exception", "(MIT OR ISC) AND OpenSSL"] {
            assert_eq!(met(bad), Some(false), "{bad}");
        }
        for none in ["", "MIT OR", "(MIT", "MIT ISC", "AND MIT"] {
            assert_eq!(met(none), None, "{none}");
        }
    }

    #[test]
    fn packages_are_refused_by_name() {
        let data = json!({"packages": [
            {"name": "good", "license": "MIT"},
            {"name": "copyleft", "license": "GPL-3.0-only"},
            {"name": "silent", "license": null},
            {"name": "odd", "license": "MIT OR"},
        ]});
        let refused = refused(&data, &["MIT".to_owned()]);
        assert_eq!(
            refused,
            [
                "copyleft: GPL-3.0-only",
                "silent states no licence",
                "odd: invalid licence expression 'MIT OR'"
            ]
        );
    }

    #[test]
    fn allow_list_is_read_only_from_the_licenses_section() {
        let deny = "[bans]\nallow = [\"x\"]\n[licenses]\nversion = 2\nallow = [\n  \"MIT\", # why\n  \"ISC\",\n]\n[y]\n";
        assert_eq!(allowed(deny), Ok(vec!["MIT".to_owned(), "ISC".to_owned()]));
        assert!(allowed("[licenses]\n[bans]\nallow = [\"MIT\"]").is_err());
        assert!(allowed("allow = [\"MIT\"]").is_err());
    }
}
