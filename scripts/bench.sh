#!/usr/bin/env bash
# The table of speeds: other tools and haul in turn, in one run. `scripts/bench.sh --help` lists the options; `scripts/bench.sh
# network` makes the other table, from one host to another (`scripts/bench.sh network --help`; needs root).
# scripts/install-bench-peers.sh installs the other tools. Builds haul first unless --haul names one.
set -euo pipefail
cd "$(dirname "$0")/.."

table=scripts/bench.py
if [ "${1:-}" = network ]; then
    table=scripts/bench_network.py
    shift
fi
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
exec python3 -B "$table" "$@"
