//! Layering rule: a crate depends only on crates in lower layers.

use serde_json::Value;

/// Layer of each crate. Crates in a pure layer use no clock, files or sockets.
pub const LAYERS: &[(&str, Layer)] = &[
    ("haul-model", Layer { height: 0, is_pure: true }),
    ("haul-digest", Layer { height: 1, is_pure: true }),
    ("haul-plan", Layer { height: 1, is_pure: true }),
    ("haul-sys", Layer { height: 1, is_pure: false }),
    ("haul-log", Layer { height: 2, is_pure: true }),
    ("haul-proto", Layer { height: 2, is_pure: true }),
    ("haul-udp", Layer { height: 2, is_pure: true }),
    ("haul-storage", Layer { height: 2, is_pure: false }),
    ("haul-browser", Layer { height: 3, is_pure: true }),
    ("haul-net", Layer { height: 3, is_pure: false }),
    ("haul-engine", Layer { height: 4, is_pure: false }),
    ("haul-coreutils", Layer { height: 5, is_pure: false }),
    ("haul-web", Layer { height: 5, is_pure: false }),
    ("haul-cli", Layer { height: 6, is_pure: false }),
    (LAB, Layer { height: 7, is_pure: false }),
];

/// The developers' crate, which others may use only in their tests.
const LAB: &str = "haul-lab";

/// Layer of a crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Number of the layer; 0 is the lowest.
    pub height: u8,
    /// True if crates of the layer use no clock, files or sockets.
    pub is_pure: bool,
}

/// Returns the layer of a crate if the table lists it.
pub fn layer_of(name: &str) -> Option<Layer> {
    LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer)
}

/// Returns the errors of the workspace's crates, given the output of `cargo metadata --no-deps`:
/// crates without a layer or a description, and dependencies that do not lead to a lower layer.
pub fn breaches(metadata: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        if package["description"].as_str().is_none_or(|text| text.trim().is_empty()) {
            found.push(format!("{name} has no description"));
        }
        let Some(layer) = layer_of(name) else {
            found.push(format!("{name} has no floor in the table"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            found.extend(upward(name, layer, dependency));
        }
    }
    found
}

fn upward(name: &str, layer: Layer, dependency: &Value) -> Option<String> {
    let to = dependency["name"].as_str().unwrap_or_default();
    let is_test_only = dependency["kind"] == "dev";
    if to == LAB {
        return (!is_test_only).then(|| format!("{name} depends on {LAB}, which is for tests only"));
    }
    let Some(below) = layer_of(to) else {
        // Only crates of this workspace have layers. A crate that is missing in the table is
        // reported at its own entry.
        return None;
    };
    (below.height >= layer.height)
        .then(|| format!("{name} on floor {} depends on {to} on floor {}", layer.height, below.height))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn workspace(name: &str, to: &str, kind: Value) -> Value {
        json!({"packages": [{"name": name, "description": "x", "dependencies": [{"name": to, "kind": kind}]}]})
    }

    #[test]
    fn downward_dependency_passes() {
        assert_eq!(breaches(&workspace("haul-cli", "haul-engine", Value::Null)), Vec::<String>::new());
        assert_eq!(breaches(&workspace("haul-sys", "serde", Value::Null)), Vec::<String>::new());
    }

    #[test]
    fn upward_and_sideways_dependencies_fail() {
        assert_eq!(
            breaches(&workspace("haul-plan", "haul-storage", Value::Null)),
            ["haul-plan on floor 1 depends on haul-storage on floor 2"]
        );
        assert_eq!(
            breaches(&workspace("haul-plan", "haul-digest", json!("dev"))),
            ["haul-plan on floor 1 depends on haul-digest on floor 1"]
        );
    }

    #[test]
    fn haul_lab_is_only_a_dev_dependency() {
        assert_eq!(breaches(&workspace("haul-engine", LAB, json!("dev"))), Vec::<String>::new());
        for kind in [Value::Null, json!("build")] {
            assert_eq!(
                breaches(&workspace("haul-engine", LAB, kind)),
                ["haul-engine depends on haul-lab, which is for tests only"]
            );
        }
    }

    #[test]
    fn unlisted_crates_and_missing_descriptions_fail() {
        let data = json!({"packages": [
            {"name": "haul-attic", "description": "x", "dependencies": []},
            {"name": "haul-model", "description": null, "dependencies": []},
        ]});
        assert_eq!(
            breaches(&data),
            ["haul-attic has no floor in the table", "haul-model has no description"]
        );
    }
}
