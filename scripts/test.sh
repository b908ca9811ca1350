#!/usr/bin/env bash
# Installs what the tests need and runs everything that CI runs: format, lints and tests in one build, and the release binary. Fails if any of them does.
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
    local begin=$SECONDS
    "$@" || { echo "== FAILED: $*"; status=1; }
    echo "== $((SECONDS - begin)) s"
}
# Every step runs, so that one report shows all that is wrong. The tests are last: their closing line is the run's.
step cargo fmt --all --check
step cargo build --release --locked --quiet
step scripts/smoke_test.sh
if [ "${CI:-}" = true ]; then
    # Downloads the compiler for WebAssembly.
    step scripts/build-wasm.sh --check
fi
step scripts/test_blake3.sh
step scripts/run_tests.py
exit "$status"
