#!/usr/bin/env python3
"""Finds what belongs into crates/haul-cli/start-order: functions that a call for one small file runs under each name, and that the linker did
not put in front. Needs valgrind and a release with its symbols (cargo build --release). Prints mangled names, the largest first, with the
bytes of each; a line of the order that covers one is written by hand."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

NAMES = {"cp": "a b", "mv": "a b", "install": "a b"}
SUMS = ["md5sum", "sha1sum", "sha256sum", "sha512sum", "b2sum", "cksum", "sum", "b3sum"]


def main():
    haul = Path(sys.argv[1] if len(sys.argv) > 1 else "target/release/haul").resolve()
    symbols, front = symbols_of(haul), section_of(haul, ".text.start")
    late = {}
    for name, operands in {**NAMES, **dict.fromkeys(SUMS, "a")}.items():
        for function in called(haul, name, operands.split()):
            address, size = symbols.get(function, (None, 0))
            if address is not None and address not in front:
                late.setdefault((size, function), []).append(name)
    for (size, function), names in sorted(late.items(), reverse=True):
        print(f"{size:7} {function}  ({', '.join(names)})")


def called(haul, name, operands):
    """Names of all functions that ran, as callgrind tells them: each is spelled out where it is first met."""
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "a").write_bytes(b"a")
        (Path(place) / name).symlink_to(haul)
        subprocess.run(["valgrind", "--tool=callgrind", "--demangle=no", "--callgrind-out-file=profile", f"./{name}", *operands],
                       cwd=place, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return set(re.findall(r"^c?fn=\(\d+\) ([^\s']+)", (Path(place) / "profile").read_text(), re.MULTILINE))


def symbols_of(haul):
    """Address and size of each symbol."""
    lines = subprocess.run(["nm", "-S", haul], check=True, capture_output=True, text=True).stdout.splitlines()
    fields = [line.split() for line in lines]
    return {words[3]: (int(words[0], 16), int(words[1], 16)) for words in fields if len(words) == 4}


def section_of(haul, name):
    """The addresses of a section."""
    lines = subprocess.run(["readelf", "-SW", haul], check=True, capture_output=True, text=True).stdout.splitlines()
    for line in lines:
        words = line.split("]")[-1].split()
        if words[:1] == [name]:
            return range(int(words[2], 16), int(words[2], 16) + int(words[4], 16))
    sys.exit(f"{haul} has no section {name}: it was not linked by the order")


if __name__ == "__main__":
    main()
