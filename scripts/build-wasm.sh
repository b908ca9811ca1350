#!/usr/bin/env bash
# Builds the modules of crates/haul-browser for browsers: with and without SIMD.
#
#   scripts/build-wasm.sh           builds into crates/haul-browser/wasm and writes MANIFEST there
#   scripts/build-wasm.sh --check   builds elsewhere and fails if a committed module differs
#
# The modules are committed, so that `cargo build` needs none of this. The build is reproducible: it depends on the
# sources, Cargo.lock and the versions of compiler and linker, which MANIFEST names, and not on paths.
#
# Needs no root. Debian's compiler for WebAssembly (rustc-web, with the sources of the standard library) is unpacked
# into $HAUL_WASM_TOOLCHAIN (default: target/wasm-toolchain); 137 MB are downloaded once. cargo and rust-lld come from
# the ordinary toolchain.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
output=$root/crates/haul-browser/wasm
toolchain=$(readlink -m "${HAUL_WASM_TOOLCHAIN:-${CARGO_TARGET_DIR:-target}/wasm-toolchain}")
library=$toolchain/unpacked/usr/lib/rustlib/src/rust/library
linker=$(rustc --print sysroot)/lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld

fail() {
    echo "build-wasm: $*" >&2
    exit 1
}

# Prints the first dependency of package $1 whose name matches $2. Names of these packages contain versions.
dependency() {
    apt-cache depends "$1" | sed -n "s/.*Depends: \($2\)\$/\1/p" | head -n 1
}

unpack_toolchain() {
    local packages standard llvm
    packages=$(mktemp -d)
    chmod 755 "$packages"
    standard=$(dependency libstd-rust-web-dev 'libstd-rust-web-[0-9].*')
    [ -n "$standard" ] || fail "the package rustc-web is not known; run apt-get update"
    llvm=$(dependency "$standard" 'libllvm[0-9]*')
    (cd "$packages" && apt-get download -qq rustc-web rust-web-src libstd-rust-web-dev "$standard" "$llvm")
    rm -rf "$toolchain/unpacked"
    mkdir -p "$toolchain/unpacked"
    local package
    for package in "$packages"/rustc-web_* "$packages"/libstd-rust-web-* "$packages"/libllvm*; do
        dpkg-deb -x "$package" "$toolchain/unpacked"
    done
    # The package of the sources has 340 MB. Only the standard library is needed.
    dpkg-deb --fsys-tarfile "$packages"/rust-web-src_*.deb |
        tar -x -C "$toolchain/unpacked" --wildcards './usr/src/rustc-*/library/*'
    mkdir -p "$(dirname "$library")"
    ln -sfn "$(echo "$toolchain"/unpacked/usr/src/rustc-*/library)" "$library"
    rm -rf "$packages"
    local usr=$toolchain/unpacked/usr
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$usr/lib/x86_64-linux-gnu" "$usr/bin/rustc" \
        >"$toolchain/rustc.new"
    chmod +x "$toolchain/rustc.new"
    # Last, because its presence means that everything is unpacked.
    mv "$toolchain/rustc.new" "$toolchain/rustc"
}

[ -x "$toolchain/rustc" ] || unpack_toolchain

# Builds module $1 into directory $2, with the flags $3 and the cargo arguments after it.
build() {
    local name=$1 to=$2 flags=$3
    shift 3
    local target=wasm32-unknown-unknown
    local remap="--remap-path-prefix=$(readlink -f "$library")=/rust/library --remap-path-prefix=$library=/rust/library"
    remap+=" --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src=/registry --remap-path-prefix=$root=/haul"
    # A panic is a trap: its message would take a quarter of the module.
    flags+=" -Zunstable-options -Cpanic=immediate-abort -Zlocation-detail=none -Zfmt-debug=none"
    RUSTC=$toolchain/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$toolchain/$name \
        CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=$linker \
        CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="$flags $remap" \
        cargo rustc --quiet --profile wasm -p haul-browser --lib --crate-type cdylib --target $target --locked \
        -Zbuild-std=std,panic_abort -Zbuild-std-features=optimize_for_size "$@"
    mkdir -p "$to"
    cp "$toolchain/$name/$target/wasm/haul_browser.wasm" "$to/$name.wasm"
}

# Writes the versions on which the bytes of the modules depend.
versions() {
    echo "compiler $("$toolchain/rustc" --version)"
    echo "linker $("$linker" -flavor wasm --version)"
}

build_both() {
    build haul "$1" ""
    build haul-simd "$1" "-C target-feature=+simd128" --features simd
    { versions && cd "$1" && sha256sum haul.wasm haul-simd.wasm; } >"$1/MANIFEST"
}

case "${1:-}" in
--check)
    if [ "$(head -n 2 "$output/MANIFEST")" != "$(versions)" ]; then
        echo "build-wasm: not compared: other versions built the committed modules than"
        versions
        exit 0
    fi
    fresh=$(mktemp -d)
    trap 'rm -rf "$fresh"' EXIT
    build_both "$fresh"
    diff "$output/MANIFEST" "$fresh/MANIFEST" || fail "the committed modules are not built from these sources; run scripts/build-wasm.sh"
    ;;
"")
    build_both "$output"
    cat "$output/MANIFEST"
    ;;
*)
    fail "unknown argument $1"
    ;;
esac
