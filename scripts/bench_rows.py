"""The rows of the table: what is done, by whom, on which data, and the goal.

A row's commands are lists of words in which are filled in: {src} and {dst}, {home} (where {src} lies), {haul} and {lab} (the
binaries), {ssh} (one word: what logs in at this host), {ssh options} (its words after `ssh`), {host} (this host as it is named there), {state} (a folder for the state of jobs, new for each command), {keep} (a file that the row's `prepare` makes once, before anything is measured) and {new} (a name where nothing is yet).
`goal` is the most that ours / peer may be; `None` where the ratio is only told. A row with `across` moves: {src} is
then made anew for each command, on another file system than {dst}.
"""

import os
import subprocess
from dataclasses import dataclass, field

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass
class Data:
    """A data set that haul-lab makes: its name, the arguments of `haul-lab make`, and how large it is."""

    name: str
    make: list
    files: int
    bytes: int

    @property
    def is_one_file(self):
        return self.files == 1


@dataclass
class Peer:
    """Another tool. `agree`: its output must name the same digests as ours."""

    name: str
    command: list
    goal: float | None = 1.0
    agree: bool = False
    needs: str = ""

    @property
    def program(self):
        """What must be installed for it."""
        return self.needs or self.command[0]


@dataclass
class Row:
    """One line or more of the table. `peers`: each gives a line of its own; `fastest`: only the fastest one.
    `share_max`: the most that {new} may be of the data, without the paths in it."""

    id: str
    title: str
    data: Data
    ours: list
    peers: list
    is_cold: bool = False
    is_copy: bool = False
    # Every tool of it reads past the page cache and takes no pages of it.
    past_cache: bool = False
    # Runs follow each other so soon that the host does not take back what the one before freed: memory is not brought in.
    at_once: bool = False
    keep_copies: bool = False
    across: str = ""
    fastest: bool = False
    rss_max: int = 0
    rounds: int = 0
    # The source lands in {dst}, a folder that is there, under its own name.
    into: bool = False
    prepare: list = field(default_factory=list)
    share_max: float = 0
    # Only run where it is named.
    by_name: bool = False
    # Measures the row by itself, given the bench, the row and the source; gives lines of the table.
    special: object = None


class Failed(Exception):
    """A command that did not do its work."""


def verify_copy(source, copy, bytewise):
    """A copy that is not one is no speed."""
    if not copy.exists():
        raise Failed("made no copy")
    if measure_tree(source) != measure_tree(copy):
        raise Failed(f"made {measure_tree(copy)} of {measure_tree(source)} (files, bytes)")
    if bytewise and subprocess.run(["diff", "-rq", str(source), str(copy)], stdout=subprocess.DEVNULL).returncode:
        raise Failed("made a copy with other bytes")


def measure_tree(path):
    if path.is_file():
        return 1, path.stat().st_size
    files = total = 0
    for folder, _, names in os.walk(path):
        with os.scandir(folder) as entries:
            total += sum(entry.stat(follow_symlinks=False).st_size for entry in entries if entry.is_file())
        files += len(names)
    return files, total


def uniform(name, files, size):
    return Data(name, ["uniform", "--files", str(files), "--bytes", str(size)], files, files * size)


def small(name, files, dirs, size):
    make = ["small", "--files", str(files), "--dirs", str(dirs), "--bytes", str(size)]
    return Data(name, make, files, files * size)


@dataclass
class Sizes:
    """How large the data is: as the goals say, or small enough to try the script in a minute."""

    quick: bool
    large: Data = field(init=False)
    medium: Data = field(init=False)
    many: Data = field(init=False)
    few_small: Data = field(init=False)
    log_big: Data = field(init=False)
    log_small: Data = field(init=False)
    styles_big: Data = field(init=False)
    styles_small: Data = field(init=False)
    moved: Data = field(init=False)
    tiny: Data = field(init=False)
    streams: Data = field(init=False)
    one: Data = field(init=False)
    million: Data = field(init=False)
    little: Data = field(init=False)
    huge: Data = field(init=False)

    def __post_init__(self):
        q = self.quick
        self.large = uniform("quick-large", 1, 96 * MIB) if q else uniform("large-4G", 1, 4 * GIB)
        self.huge = uniform("quick-huge", 1, 512 * MIB) if q else uniform("large-8G", 1, 8 * GIB)
        self.medium = uniform("quick-64x1M", 64, MIB) if q else uniform("64x64M", 64, 64 * MIB)
        self.many = small("quick-2000x4K", 2000, 20, 4 * KIB) if q else small("100000x4K", 100_000, 1000, 4 * KIB)
        self.streams = uniform("quick-64x256K", 64, 256 * KIB) if q else uniform("64x16M", 64, 16 * MIB)
        self.one = uniform("quick-one", 1, 16 * MIB) if q else uniform("one-1G", 1, GIB)
        self.million = small("quick-5000x0", 5000, 50, 0) if q else small("1000000x0", 1_000_000, 1000, 0)
        self.little = uniform("quick-little", 1, 4 * MIB) if q else uniform("little-64M", 1, 64 * MIB)
        self.moved = small("quick-500x4K", 500, 5, 4 * KIB) if q else small("20000x4K", 20_000, 200, 4 * KIB)
        self.log_big = uniform("quick-10x16M", 10, 16 * MIB) if q else uniform("100x64M", 100, 64 * MIB)
        self.log_small = uniform("quick-100x1M", 100, MIB) if q else uniform("10000x1M", 10_000, MIB)
        # A part of these two, that can stand in memory four times over.
        self.styles_big = uniform("quick-10x16M", 10, 16 * MIB) if q else uniform("40x64M", 40, 64 * MIB)
        self.styles_small = uniform("quick-100x1M", 100, MIB) if q else uniform("2500x1M", 2500, MIB)
        self.tiny = uniform("tiny", 1, 1)
        self.few_small = small("quick-500x0", 500, 50, 0) if q else small("10000x0", 10_000, 100, 0)


def all_rows(quick, workers):
    """Every row, in the order of the goals."""
    sizes = Sizes(quick)
    rows = copy_rows(sizes)
    rows += move_rows(sizes)
    rows += start_rows(sizes, 50 if quick else 500)
    rows += blake3_rows(sizes)
    rows += serial_digest_rows(sizes)
    rows += combining_digest_rows(sizes, workers)
    rows += memory_rows(sizes)
    rows += reread_rows(sizes, workers)
    rows += stream_rows(sizes)
    rows += verify_rows(sizes, workers)
    rows += waybill_rows(sizes)
    rows += send_rows(sizes)
    return rows


def copy_rows(sizes):
    haul_cp, cp = ["{haul}", "cp", "{src}", "{dst}"], ["cp", "{src}", "{dst}"]
    hashed = ["{haul}", "cp", "--print-hash", "--hash-type=blake3", "{src}", "{dst}"]
    haul_cp_r, cp_r = ["{haul}", "cp", "-r", "{src}", "{dst}"], ["cp", "-r", "{src}", "{dst}"]
    rows = []
    for is_cold, state, goal in [(False, "warm", 0.80), (True, "cold", 1.00)]:
        cold = {"is_cold": is_cold, "is_copy": True}
        rows.append(
            Row(f"cp-large-{state}", f"copy one large file, {state}", sizes.large, haul_cp,
                [Peer("cp", cp, goal)], **cold))
        rows.append(
            Row(f"cp-hash-{state}", f"copy it with --print-hash (BLAKE3), {state}", sizes.large, hashed,
                [Peer("cp", cp, 1.00)], **cold))
    for is_cold, state in [(False, "warm"), (True, "cold")]:
        rows.append(
            Row(f"cp-64-{state}", f"copy 64 files, {state}", sizes.medium, haul_cp_r,
                [Peer("cp -r", cp_r, 0.85)], is_cold=is_cold, is_copy=True))
    peers = [
        Peer("cp -r", cp_r, 0.60),
        Peer("xcp", ["xcp", "-r", "--no-progress", "{src}", "{dst}"]),
        Peer("cpz", ["cpz", "{src}", "{dst}"]),
        Peer("fcp", ["fcp", "{src}", "{dst}"]),
    ]
    many = {"is_copy": True, "keep_copies": True}
    rows.append(Row("cp-small", "copy many small files", sizes.many, haul_cp_r, peers, **many))
    rows.append(
        Row("cp-small-archive", "the same with all properties", sizes.many,
            ["{haul}", "cp", "-a", "{src}", "{dst}"],
            [Peer("rsync -a", ["rsync", "-a", "{src}/", "{dst}"])], **many))
    return rows


def move_rows(sizes):
    """Moves across file systems. `mv` neither compares nor waits for the device; with `sync -f` it waits at least."""
    synced = ["sh", "-c", "mv \"$0\" \"$1\" && sync -f \"$1\"", "{src}", "{dst}"]
    peers = [Peer("mv", ["mv", "{src}", "{dst}"], 0.90), Peer("mv; sync -f", synced, 0.90)]
    return [
        Row(f"mv-{name}-{across}", f"move {title}, {across.replace('-', ' ')}", data,
            ["{haul}", "mv", "{src}", "{dst}"], peers, is_copy=True, keep_copies=name == "small", across=across)
        for name, title, data in [("large", "one large file", sizes.one), ("small", "many small files", sizes.moved)]
        for across in ["memory-to-disk", "disk-to-memory"]
    ]


# Runs a tool, called by its name, very often on a file of one byte. Moves go to and fro.
OFTEN = """
place=$(mktemp -d) && trap 'rm -r "$place"' EXIT && cd "$place" && printf a > a || exit
ln -s "$(command -v "$0")" "$1" && tool=./$1 && left=$2 || exit
while [ "$left" -gt 0 ]; do
    case $1 in
        mv) if [ -e a ]; then "$tool" a b; else "$tool" b a; fi ;;
        cp | install) "$tool" a b ;;
        *) "$tool" a > /dev/null ;;
    esac || exit
    left=$((left - 1))
done
"""


def start_rows(sizes, times):
    """What it takes to begin and end: a script may call a tool a hundred thousand times."""
    return [
        Row(f"start-{name}", f"{times} calls of {name}", sizes.tiny, ["sh", "-c", OFTEN, "{haul}", name, str(times)],
            [Peer(name, ["sh", "-c", OFTEN, name, name, str(times)], 1.50)])
        for name in ["cp", "mv", "install", "md5sum", "sha1sum", "sha256sum", "b2sum", "cksum", "sum", "b3sum"]
    ]


def blake3_rows(sizes):
    return [
        Row(f"sum-blake3-{state}", f"blake3 of one large file, {state}", sizes.large,
            ["{haul}", "sum", "-a", "blake3", "{src}"], [Peer("b3sum", ["b3sum", "{src}"], 1.00, agree=True)],
            is_cold=is_cold, rss_max=64 * MIB)
        for is_cold, state in [(False, "warm"), (True, "cold")]
    ]


def serial_digest_rows(sizes):
    rows = []
    for name in ["md5", "sha1", "sha256"]:
        ours = ["{haul}", "sum", "-a", name, "{src}"]
        coreutils = Peer(f"{name}sum", [f"{name}sum", "{src}"], 1.00, agree=True)
        openssl = Peer("openssl", ["openssl", "dgst", f"-{name}", "-r", "{src}"], 1.00, agree=True)
        rows.append(
            Row(f"{name}-one", f"{name} of one file", sizes.one, ours, [coreutils, openssl], fastest=True))
    for name, goal in [("md5", 0.15), ("sha1", 0.25), ("sha256", 0.25)]:
        ours = ["{haul}", "sum", "-a", name, "{src}"]
        tree = ["{haul}", "sum", "-a", name, "--tree=4M", "{src}"]
        peer = [f"{name}sum", "{src}"]
        rows.append(
            Row(f"{name}-64", f"{name} of 64 files", sizes.streams, ours,
                [Peer(f"{name}sum", peer, goal, agree=True)]))
        rows.append(
            Row(f"{name}-tree", f"{name}, tree form, of one file", sizes.one, tree,
                [Peer(f"{name}sum", peer, goal)]))
    return rows


# xrdadler32 keeps its value in an extended attribute and would answer the second time without reading.
NO_CACHED_ADLER32 = ["sh", "-c", "setfattr -x user.XrdCks.adler32 \"$0\" 2>/dev/null; exec xrdadler32 \"$0\"", "{src}"]


def combining_digest_rows(sizes, workers):
    tools = {
        "crc32": Peer("crc32", ["crc32", "{src}"], 1.00, agree=True),
        "crc32c": Peer("xrdcrc32c", ["xrdcrc32c", "{src}"], 1.00, agree=True),
        "crc64nvme": None,
        "adler32": Peer("xrdadler32", NO_CACHED_ADLER32, 1.00, agree=True),
        "xxh3": Peer("xxhsum -H3", ["xxhsum", "-H3", "{src}"], 1.00, agree=True),
    }
    reading = Peer("reading alone", reading_alone(sizes.large.bytes, workers), 1.15)
    names = {"xxh3": "xxh3-64"}
    return [
        Row(f"{name}", f"{name} of one large file", sizes.large,
            ["{haul}", "sum", "-a", names.get(name, name), "{src}"], [reading] + ([tool] if tool else []))
        for name, tool in tools.items()
    ]


def reading_alone(size, workers):
    """Reads the file and nothing else: as many `dd` at once as there are workers, each its own part."""
    block = 256 * KIB
    blocks = -(-size // block)
    part = -(-blocks // workers)
    parts = [
        f"dd if=\"$0\" of=/dev/null bs={block} skip={first} count={min(part, blocks - first)} status=none"
        for first in range(0, blocks, part)
    ]
    return ["sh", "-c", " & ".join(parts) + " & wait", "{src}"]


def memory_rows(sizes):
    """Peak memory: of a tree with very many files and of a large file, beside a tree and a file that are little."""
    copy_tree, copy_file = ["{haul}", "cp", "-r", "{src}", "{dst}"], ["{haul}", "cp", "{src}", "{dst}"]
    limit = {"is_copy": True, "rss_max": 128 * MIB, "rounds": 1, "keep_copies": True}
    return [
        Row("memory-few", "peak memory, tree of few files", sizes.few_small, copy_tree, [], **limit),
        Row("memory-many", "peak memory, tree of very many files", sizes.million, copy_tree, [], **limit),
        Row("memory-little", "peak memory, little file", sizes.little, copy_file, [], **limit),
        Row("memory-large", "peak memory, large file", sizes.large, copy_file, [], **limit),
    ]


# Makes a file durable and drops it from the page cache, so that what reads it next asks the device.
DROP = "dd of=\"$1\" oflag=nocache conv=notrunc,fdatasync count=0 status=none"


def reread_rows(sizes, workers):
    """Copies that are read back from the device: beside the same reads and writes without a digest, and beside what
    one does by hand."""
    ours = ["{haul}", "cp", "--verify=reread", "{src}", "{dst}"]
    bounds = [
        Peer("the bound: " + title, ["{lab}", "bound", *way, "reread", "{src}", "{dst}"], 1.10)
        for title, way in [
            ("page cache", ["--threads", str(workers), "--ahead", str(2 * workers)]),
            ("direct, 4 threads", ["--direct", "--threads", "4", "--block", "4M"]),
            ("direct, 8 threads", ["--direct", "--threads", "8", "--block", "1M"]),
        ]
    ]

    def by_hand(name, words, goal, needs="sh"):
        return Peer(name, ["sh", "-ec", words, "{src}", "{dst}"], goal, needs=needs)

    cold = {"is_cold": True, "is_copy": True}
    title = "copy and read back from the device, cold"
    return [
        Row("reread-bound", title, sizes.huge, ours, bounds, fastest=True, **cold),
        Row("reread-cmp", title, sizes.huge, ours,
            [by_hand("cp; sync; cmp uncached", f"cp \"$0\" \"$1\"; sync \"$1\"; {DROP}; cmp \"$0\" \"$1\"", 0.75)],
            **cold),
        Row("reread-b3sum", title, sizes.huge, ours,
            [by_hand("cp; b3sum; b3sum uncached",
                     f"cp \"$0\" \"$1\"; b3sum --no-names \"$0\" > \"$1.sum\"; {DROP}; "
                     "b3sum --no-names \"$1\" | cmp - \"$1.sum\"; rm \"$1.sum\"", 1.00, "b3sum")],
            **cold),
        Row("reread-rsync", title, sizes.huge, ours,
            [by_hand("rsync -a; rsync -ac", "rsync -a \"$0\" \"$1\"; rsync -ac \"$0\" \"$1\"", 1.00, "rsync")],
            **cold),
    ]


def stream_rows(sizes):
    """Hashing what is copied, on its way."""
    plain = Peer("haul cp", ["{haul}", "cp", "{src}", "{dst}"], 1.03)
    return [
        Row(f"stream-{state}", f"copy with --verify=stream, {state}", sizes.large,
            ["{haul}", "cp", "--verify=stream", "{src}", "{dst}"], [plain], is_cold=is_cold, is_copy=True)
        for is_cold, state in [(False, "warm"), (True, "cold")]
    ]


def verify_rows(sizes, workers):
    """Reading everything again, beside reading it in turn past the page cache: 0.95 of that speed at least."""
    goal = 1 / 0.95
    reading = [
        Peer(f"dd direct, {block}", ["dd", "if={src}", "of=/dev/null", "iflag=direct", f"bs={block}", "status=none"], goal)
        for block in ["1M", "4M", "16M"]
    ]
    reading += [
        Peer(f"reading, {threads} threads",
             ["{lab}", "bound", "--direct", "--threads", str(threads), "--block", "4M", "read", "{src}"], goal)
        for threads in [1, workers, 2 * workers]
    ]
    return [
        Row("verify-cold", "verify by a waybill, cold", sizes.huge, ["{haul}", "verify", "-q", "{keep}", "{home}"], reading,
            is_cold=True, past_cache=True, fastest=True, prepare=["{haul}", "sum", "-a", "blake3", "--waybill", "{keep}", "{src}"]),
    ]


def waybill_rows(sizes):
    """Waybills of three digests beside those of one, and how large one is."""

    def sum_by(digests):
        return ["{haul}", "sum", "-a", digests, "--waybill", "{new}", "{src}"]

    def copy_by(*more):
        return ["{haul}", "cp", "--waybill", "{new}", *more, "{src}", "{dst}"]

    three, one = "blake3,crc64nvme,adler32", "with blake3 alone"
    rows = [
        Row(f"waybill-sum-{state}", f"waybill of three digests, {state}", sizes.large, sum_by(three),
            [Peer(one, sum_by("blake3"), goal)], is_cold=is_cold)
        for is_cold, state, goal in [(True, "cold", 1.05), (False, "warm", None)]
    ]
    rows += [
        Row(f"waybill-copy-{state}", f"copy with a waybill of three digests, {state}", sizes.large,
            copy_by("--waybill-digests=crc64nvme,adler32"), [Peer(one, copy_by(), goal)], is_cold=is_cold, is_copy=True)
        for is_cold, state, goal in [(True, "cold", 1.05), (False, "warm", None)]
    ]
    rows.append(Row("waybill-size", "size of a waybill without the paths", sizes.huge, sum_by("blake3"), [],
                    rounds=1, share_max=1 / 65536))
    return rows


def send_rows(sizes):
    """Host to host over ssh, both on this machine: the tools share its processors."""
    def send(*options):
        return ["{haul}", "send", "-q", "-e", "{ssh}", "--remote-haul", "{haul}", *options, "{src}", "{host}:{dst}"]

    others = [
        Peer("rsync -a", ["rsync", "-a", "-e", "{ssh}", "{src}", "{host}:{dst}/"]),
        Peer("scp -rp", ["scp", "-rpq", "{ssh options}", "{src}", "{host}:{dst}/"]),
    ]
    into = {"is_copy": True, "into": True}
    rows = [
        Row("send-large", "send one large file over ssh", sizes.large, send(), others, **into),
        Row("send-64", "send 64 files", sizes.medium, send(), others, **into),
        Row("send-small", "send many small files", sizes.many, send(), others, keep_copies=True, rounds=3, **into),
        Row("send-tls", "send one large file with TLS and BLAKE3", sizes.large, send(),
            [Peer("--plain --verify=none", send("--plain", "--verify=none"), None)], **into),
    ]
    for algorithm in ["blake3", "md5", "sha1", "sha256"]:
        unchecked = [Peer("--verify=none", send("--verify=none"), 1.03)]
        rows.append(Row(f"send-verify-{algorithm}", f"send 64 files, compared by {algorithm}", sizes.medium,
                        send("-a", algorithm), unchecked, **into))
    return rows
