#!/usr/bin/env bash
# Installs what the tests need beyond a Rust toolchain and a C compiler. Debian and Ubuntu; as root or by sudo.
# Does nothing, quickly, when all is there.
set -euo pipefail

# package: what for
packages=(
    acl         # setfacl, getfacl: access control lists in tests of metadata
    attr        # setfattr, getfattr: extended attributes
    b3sum       # the peer of BLAKE3
    btrfs-progs # mkfs.btrfs, and subvolumes
    coreutils   # the peers: cp, md5sum and their relatives
    diffutils   # diff, cmp
    e2fsprogs   # mkfs.ext4 for file systems that fill up, filefrag to see which extents are shared
    fuse3       # mounts of the fault injector without root
    git         # lists the repository's files for the rules of the house
    hashdeep    # hashdeep, md5deep: lists for haul check
    iproute2    # ip, tc: links between network namespaces
    libcap2-bin # setcap: capabilities of files that are copied
    mount       # mount, umount
    nodejs      # runs the WebAssembly modules of haul-browser
    openssh-client # ssh-keygen, the peer of signatures of waybills
    rhash       # SFV and other lists for haul check
    strace      # which system calls a job makes, and a kill at one of them
    util-linux  # losetup, script, setpriv, prlimit
    xfsprogs    # mkfs.xfs
    xrootd-client # xrdadler32, xrdcrc32c, xrdcp: lists for haul check
    xxhash      # xxhsum, the peer of XXH
)

is_installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing=()
for package in "${packages[@]}"; do
    is_installed "$package" || missing+=("$package")
done
if [ "${#missing[@]}" -eq 0 ]; then
    exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "install-test-needs: ${missing[*]} missing, and neither root nor sudo to install them" >&2
        exit 1
    fi
    as_root=(sudo)
fi
echo "install-test-needs: installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
