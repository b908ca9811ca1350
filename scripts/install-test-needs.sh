#!/usr/bin/env bash
# Installs what the tests need beyond a Rust toolchain and a C compiler. Debian and Ubuntu; as root or by sudo.
# Does nothing, quickly, when all is there.
set -euo pipefail

# package: what for
packages=(
    acl         # setfacl, getfacl: access control lists in tests of metadata
    attr        # setfattr, getfattr: extended attributes
    btrfs-progs # mkfs.btrfs, and subvolumes
    chromium    # runs the page of haul serve --web
    coreutils   # the peers: cp, md5sum and their relatives
    diffutils   # diff, cmp
    e2fsprogs   # mkfs.ext4 for file systems that fill up, filefrag to see which extents are shared
    firefox-esr # runs the page as well
    fuse3       # mounts of the fault injector without root
    git         # lists the repository's files for the rules of the house
    hashdeep    # hashdeep, md5deep: lists for haul check
    iproute2    # ip, tc: links between network namespaces
    libcap2-bin # setcap: capabilities of files that are copied
    mount       # mount, umount
    nodejs      # runs the WebAssembly modules of haul-browser
    npm         # installs the packages below
    openssh-client # ssh-keygen, the peer of signatures of waybills
    openssl     # a private CA for tests of the page
    rhash       # SFV and other lists for haul check
    strace      # which system calls a job makes, and a kill at one of them
    util-linux  # losetup, script, setpriv, prlimit
    xfsprogs    # mkfs.xfs
    xrootd-client # xrdadler32, xrdcrc32c, xrdcp: lists for haul check
    xxhash      # xxhsum, the peer of XXH
)

# Packages of npm for the tests of the page, as name@version: a driver of the browser, and rules of accessibility.
page_packages=(playwright-core@1.65.1 axe-core@4.14.1)
# crates/haul-web/tests/page/needs.mjs looks there.
page_tools=${HAUL_PAGE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/haul/page-tools}

install_page_tools() {
    if [ "$(cat "$page_tools/installed" 2>/dev/null)" = "${page_packages[*]}" ]; then
        return
    fi
    echo "install-test-needs: installing ${page_packages[*]} in $page_tools"
    mkdir -p "$page_tools"
    npm install --prefix "$page_tools" --no-save --ignore-scripts --no-audit --no-fund --silent "${page_packages[@]}"
    echo "${page_packages[*]}" >"$page_tools/installed"
}

# The peer of BLAKE3, which Debian has only in older releases. It is installed beside cargo, where it is found first.
install_b3sum() {
    if [ "$(b3sum --version 2>/dev/null)" != "b3sum 1.8.6" ]; then
        echo "install-test-needs: installing b3sum 1.8.6"
        cargo install --quiet --locked --version 1.8.6 --root "$(dirname "$(dirname "$(command -v cargo)")")" b3sum
    fi
}

is_installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing=()
for package in "${packages[@]}"; do
    # npm can come with nodejs from another source.
    [ "$package" = npm ] && command -v npm >/dev/null && continue
    is_installed "$package" || missing+=("$package")
done
if [ "${#missing[@]}" -eq 0 ]; then
    install_page_tools
    install_b3sum
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
install_page_tools
install_b3sum
