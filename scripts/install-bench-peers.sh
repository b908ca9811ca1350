#!/usr/bin/env bash
# Installs the tools that scripts/bench.sh measures against: some by apt (as root or by sudo), the others built
# by cargo into bench-out/peers. Rows whose peer is missing are left out of the table and named below it.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
    b3sum libarchive-zip-perl openssl rsync xrootd-client xxhash
    # What scripts/bench_network.py measures against, and the servers of those tools.
    globus-gass-copy-progs globus-gridftp-server-progs iperf3 iproute2 lftp openssh-client openssh-server rclone uftp
    xrootd-server
)
missing=()
for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ "${#missing[@]}" -gt 0 ]; then
    as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

# Versions are fixed, so that a table can be made again. docs/benchmark-network.md says which tools can't be had this way.
failed=()
for peer in xcp@0.24.9 cpz@3.2.1 fcp@0.2.2 sendme@0.37.1; do
    name=${peer%@*}
    if [ ! -x "bench-out/peers/bin/$name" ]; then
        nice cargo install --locked --jobs "${PEER_JOBS:-1}" --root bench-out/peers "$peer" || failed+=("$peer")
    fi
done
if [ "${#failed[@]}" -gt 0 ]; then
    echo "install-bench-peers: could not build ${failed[*]}" >&2
    exit 1
fi
