#!/usr/bin/env bash
# Installs what the tests need and runs them all: format, lints, tests. Fails if any of them does.
# With CI=true no test may be skipped for want of root, FUSE or loop devices.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install-test-needs.sh
if [ "${CI:-}" = true ]; then
    export HAUL_REQUIRE_ALL=1
fi

status=0
step() {
    echo "== $*"
    "$@" || { echo "== FAILED: $*"; status=1; }
}
# Every step runs, so that one report shows all that is wrong.
step cargo fmt --all --check
step cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
step cargo test --workspace --locked --no-fail-fast
exit "$status"
