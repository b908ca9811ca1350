# Daily habits. `just` lists them.

default:
    @just --list

# Everything that CI runs: install what the tests need, then format, the release binary, lints and tests.
test:
    scripts/test.sh

# Lints and tests alone: all of them, or those whose `binary::test` name contains one of the words.
quick *WORDS:
    scripts/run_tests.py {{WORDS}}

# The tests in drawn order for so many minutes, with random seeds, full matrices and late system calls.
soak MINUTES="30" *WORDS:
    scripts/run_tests.py --soak {{MINUTES}} {{WORDS}}

# Format and lint.
lint:
    cargo fmt --all
    cargo clippy --workspace --all-targets -- -D warnings

# Only the rules of the house.
repo-rules:
    cargo test -p haul-lab --test repo_rules

# The table of speeds against other tools; `just bench --quick` tries the script.
bench *ARGS:
    scripts/bench.sh {{ARGS}}

# The table of transfers between two hosts (network namespaces; as root); `just bench-network --quick` tries the script.
bench-network *ARGS:
    scripts/bench.sh network {{ARGS}}

# The corruptions that each checksum misses: docs/undetected-damage.md.
undetected-damage *ARGS:
    cargo run --release --quiet -p haul-lab -- undetected-damage {{ARGS}}

# Licences, advisories and duplicates (needs cargo-deny).
deny:
    cargo deny check
