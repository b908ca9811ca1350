#!/usr/bin/env bash
# The table of speeds: other tools and haul in turn, in one run. `scripts/bench.sh --help` lists the options;
# scripts/install-bench-peers.sh installs the other tools. Builds haul first unless --haul names one.
set -euo pipefail
cd "$(dirname "$0")/.."

crates=(-p haul-lab -p haul-cli)
for argument in "$@"; do
    case $argument in
        --haul|--haul=*) crates=(-p haul-lab) ;;
        --lab|--lab=*|-h|--help) crates=() ;;
    esac
done
if [ "${#crates[@]}" -gt 0 ]; then
    cargo build --release --locked "${crates[@]}"
fi
exec python3 -B scripts/bench.py "$@"
