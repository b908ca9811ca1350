#!/usr/bin/env bash
# Runs the tests of haul-digest with builds of the blake3 crate that lack its fastest code, as on other processors. With --all each
# level is switched off after the other; without, only AVX-512 and then everything.
set -euo pipefail
cd "$(dirname "$0")/.."

levels=(no_avx512 no_avx2 no_sse41 no_sse2)
off=""
for level in "${levels[@]}"; do
    off="$off blake3/$level"
    case "${1:-} $level" in
        "--all "* | " no_avx512" | " no_sse2") cargo test --locked --quiet -p haul-digest --features "$off" --test digests ;;
    esac
done
