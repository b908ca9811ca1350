#!/usr/bin/env -S python3 -B
"""Measures haul against other tools, in turn, in one run, and writes a table.

How it is measured:
- One round runs every tool of a row once, in an order that turns with each round; a row has at least five rounds.
  The ratio of a row is the median of the ratios of its rounds, so that a slow minute of the machine meets both.
- A copy's destination is new each time. Before a copy is timed, the destination of the one before is removed and
  all dirty pages are written back, so that no tool pays for another's writing. Rows with very many files keep
  their copies until the row is done, and begin only a minute after the last such removal: ext4 without a journal
  does not give out inodes that were freed less than a minute ago, and searching past them would be charged to
  whoever comes next (seen here: ten times the time).
- Warm: the source is read once, unmeasured, before every command. Cold: the page cache, dentries and inodes are
  dropped before every command (needs root).
- With --device-rate the device beneath --dir is limited while a command is measured (by the kernel's block controller):
  rows that are bound by the disk say nothing about it where the disk outruns the processors.
- Before each command as much free memory as it will take for the page cache is written to and freed, so that none
  waits for the host of a virtual machine to give memory back that it had taken.
- Time is that of the whole process by the wall clock; CPU time (user + system) and peak memory are what the
  kernel says of it (wait4). Peak memory can't show less than this script's own, about 15 MiB, because a process
  begins as a copy of it.
- The bound of a job is `haul-lab bound`: the same reads and writes, computing nothing, in several shapes of which the
  fastest counts. Where a copy is read back by hand, it is made durable and dropped from the page cache before that.
- A move begins with a source made anew, which the page cache holds, and ends on another file system; `mv` neither
  compares the copy nor waits until it is on the device, so that it is measured by itself and with `sync -f` behind it.
- What a tool makes is looked at: a copy must have all files and bytes, in a row's first round compared byte by
  byte; digests of ours and the peer's must be the same. A wrong result counts as a miss, however fast.
"""

import argparse
import atexit
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import bench_ssh
from bench_device import Device
from bench_log import log_rows
from bench_rows import GIB, KIB, MIB, Failed, Sizes, all_rows, verify_copy

ROUNDS = 5
DIRTY_MAX_KIB = 32 * 1024
SETTLE_SECONDS_MAX = 120
# RECENTCY_MIN of ext4 (fs/ext4/ialloc.c) is 60 seconds.
FREED_INODES_SECONDS = 65


@dataclass
class Run:
    """One command, measured."""

    seconds: float
    cpu: float
    rss: int
    output: str


def main():
    options = parse_options()
    bench = Bench(options)
    rows = all_rows(options.quick, bench.workers) + log_rows(Sizes(options.quick))
    rows = choose_rows(rows, options.rows)
    if options.list:
        for row in rows:
            print(f"{row.id:20} {row.title}")
        return 0
    bench.prepare()
    lines, missing, missed = [], [], False
    for row in rows:
        for line in bench.run_row(row, missing):
            print(format_line(line), flush=True)
            lines.append(line)
            missed = missed or line["verdict"] not in ["reached", "told"]
    bench.write(lines, missing)
    return 1 if options.strict and missed else 0


def parse_options():
    parser = argparse.ArgumentParser(description="The table of speeds: haul and other tools in turn.")
    parser.add_argument("-n", "--rounds", type=int, default=ROUNDS, help="rounds of each row (default 5)")
    parser.add_argument("--rows", help="only these rows, by their names or beginnings, separated by commas")
    parser.add_argument("--list", action="store_true", help="name the rows and do nothing")
    parser.add_argument("--quick", action="store_true", help="small data, to try the script: no figures to quote")
    parser.add_argument("--dir", type=Path, default=Path("bench-out/data"), help="where the data lives")
    parser.add_argument("--device-rate", type=int, metavar="MIB", help="limit the device beneath --dir to so many MiB/s each way (root)")
    parser.add_argument("--memory-dir", type=Path, default=Path("/dev/shm"),
                        help="a file system in memory, for moves from one file system to another")
    parser.add_argument("--out", type=Path, default=Path("bench-out"), help="where the table is written")
    target = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    parser.add_argument("--haul", type=Path, default=target / "release/haul", help="the binary under test")
    parser.add_argument("--lab", type=Path, default=target / "release/haul-lab", help="the maker of data sets")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a goal is missed")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("at least one round")
    if options.device_rate is not None and options.device_rate < 1:
        parser.error("a device of at least 1 MiB/s")
    return options


def choose_rows(rows, names):
    if not names:
        return [row for row in rows if not row.by_name]
    chosen = set()
    for name in names.split(","):
        found = {row.id for row in rows if row.id == name}
        found = found or {row.id for row in rows if row.id.startswith(name)}
        if not found:
            sys.exit(f"bench: no row is called {name}; --list names them")
        chosen |= found
    return [row for row in rows if row.id in chosen]


class Bench:
    """The data, the destinations and the measuring."""

    def __init__(self, options):
        self.options = options
        self.workers = len(os.sched_getaffinity(0))
        self.is_root = os.geteuid() == 0
        self.copies = 0
        self.door = None
        self.removed = options.dir / "copies.removed"
        peers = Path("bench-out/peers/bin").resolve()
        self.path = f"{peers}:{os.environ.get('PATH', '')}"
        options.dir = options.dir.resolve()
        self.words = {"{haul}": str(options.dir / "installed" / options.haul.name), "{lab}": str(options.lab.resolve()),
                      "{state}": str(options.dir / "state.tmp"), "{keep}": str(options.dir / "keep.tmp"), "{new}": str(options.dir / "new.tmp")}

    def prepare(self):
        for tool in [self.options.haul, self.options.lab]:
            if not os.access(tool, os.X_OK):
                sys.exit(f"bench: {tool} is not there; cargo build --release makes it")
        self.options.dir.mkdir(parents=True, exist_ok=True)
        self.options.out.mkdir(parents=True, exist_ok=True)
        install(self.options.haul, Path(self.words["{haul}"]))
        try:
            self.device = Device(self.options.dir, self.options.device_rate)
        except Failed as error:
            sys.exit(f"bench: {error}")

    def run_row(self, row, missing):
        """Measures a row; gives its lines of the table."""
        if row.is_cold and not self.is_root:
            missing.append(f"{row.id}: needs root to drop the caches")
            return []
        peers = []
        for peer in row.peers:
            if peer.program in self.words or shutil.which(peer.program, path=self.path):
                peers.append(peer)
            else:
                missing.append(f"{row.id}: {peer.program}, for {peer.name}, is not installed")
        source = self.make(row.data)
        if row.across and not self.memory_suits(row.data):
            missing.append(f"{row.id}: --memory-dir lacks the space, or is no file system of its own")
            return []
        if row.keep_copies:
            self.wait_for_freed_inodes()
        if "{ssh}" in row.ours and not self.opens_door():
            missing.append(f"{row.id}: sshd is not installed")
            return []
        if row.special:
            return self.run_special(row, source, missing)
        if row.prepare:
            self.forget("{keep}")
            self.measure(self.fill_in(row.prepare, source, None))
        tools = [("ours", row.ours)] + [(peer.name, peer.command) for peer in peers]
        runs = {name: [] for name, _ in tools}
        problems = {}
        for index in range(row.rounds or self.options.rounds):
            turn = index % len(tools)
            for name, command in tools[turn:] + tools[:turn]:
                if name in problems:
                    continue
                try:
                    runs[name].append(self.run_once(row, source, command, check=index == 0))
                except Failed as error:
                    problems[name] = str(error)
                    missing.append(f"{row.id}: {name}: {error}")
        self.clear_copies()
        lines = list(lines_of(row, peers, runs, problems, self.share_of(row)))
        self.forget("{keep}")
        self.forget("{new}")
        self.forget_state()
        return lines

    def forget(self, word):
        """Nothing is there any more under one of the names that commands are given."""
        Path(self.words[word]).unlink(missing_ok=True)

    def state(self):
        """Where jobs keep their state."""
        return Path(self.words["{state}"])

    def forget_state(self):
        shutil.rmtree(self.state(), ignore_errors=True)

    def run_special(self, row, source, missing):
        """Measures a row that measures itself; gives its lines of the table."""
        try:
            return row.special(self, row, source)
        except Failed as error:
            missing.append(f"{row.id}: {error}")
            return []
        finally:
            self.clear_copies()
            self.forget_state()

    def share_of(self, row):
        """How large {new} is beside the data, without the paths in it."""
        made = Path(self.words["{new}"])
        if not row.share_max or not made.exists():
            return None
        text = made.read_bytes()
        paths = sum(len(path) for path in re.findall(rb" path=(\S+)", text))
        return (len(text) - paths) / row.data.bytes

    def make(self, data):
        """The path of a data set, made if it is not there: the file itself if it is one."""
        place = self.options.dir / data.name
        mark = self.options.dir / f"{data.name}.made"
        wanted = " ".join(data.make)
        if not mark.exists() or mark.read_text() != wanted:
            shutil.rmtree(place, ignore_errors=True)
            print(f"bench: making {data.name}", file=sys.stderr, flush=True)
            subprocess.run([str(self.options.lab), "make", *data.make, str(place)], check=True,
                           stdout=subprocess.DEVNULL)
            mark.write_text(wanted)
            self.settle()
        return place / "f0000000" if data.is_one_file else place

    def memory_suits(self, data):
        memory = self.options.memory_dir
        if not memory.is_dir() or memory.stat().st_dev == self.options.dir.stat().st_dev:
            return False
        space = os.statvfs(memory)
        return space.f_bavail * space.f_frsize > data.bytes + data.files * 8192

    def run_across(self, row, source, command, check):
        """Moves what is made anew for it; what arrives is held against what it was made from."""
        disk = self.new_copy(row)
        disk.mkdir()
        with tempfile.TemporaryDirectory(dir=self.options.memory_dir) as memory:
            places = [Path(memory), disk] if row.across == "memory-to-disk" else [disk, Path(memory)]
            moved, sink = places[0] / "source", places[1] / "sink"
            subprocess.run(["cp", "-r", str(source), str(moved)], check=True)
            self.settle()
            run = self.measure(self.fill_in(command, moved, sink))
            if moved.exists():
                raise Failed("left its source")
            verify_copy(source, sink, bytewise=check)
        return run

    def run_once(self, row, source, command, check):
        if row.across:
            return self.run_across(row, source, command, check)
        copy = self.new_copy(row) if row.is_copy else None
        if row.into:
            copy.mkdir()
        self.forget("{new}")
        self.forget_state()
        self.bring_in(row, source)
        run = self.measure(self.fill_in(command, source, copy))
        if copy:
            verify_copy(source, copy / source.name if row.into else copy, bytewise=check)
        return run

    def bring_in(self, row, source):
        """Nothing is left to be written, the source is in the page cache or not, and memory is at hand."""
        self.settle()
        if row.is_cold:
            Path("/proc/sys/vm/drop_caches").write_text("3\n")
        else:
            warm(source)
        if not self.options.quick and not row.at_once:
            touch_free_memory(pages_taken(row))

    def opens_door(self):
        """Starts the SSH server that rows of transfers log in by, once."""
        if self.door is None and bench_ssh.server_program():
            self.door = bench_ssh.Door()
            atexit.register(self.door.close)
            self.words |= {"{ssh}": self.door.shell(), "{host}": self.door.host}
        return self.door is not None

    def fill_in(self, command, source, copy):
        """The words of a command; `{src}` of a folder stands for all its files where a tool takes files only."""
        words = []
        places = {**self.words, "{src}": str(source), "{dst}": str(copy), "{home}": str(source.parent)}
        for word in command:
            if word == "{src}" and copy is None and source.is_dir():
                words += sorted(str(path) for path in source.iterdir())
                continue
            if word == "{ssh options}":
                words += self.door.options
                continue
            for name, meant in places.items():
                word = word.replace(name, meant)
            words.append(word)
        return words

    def new_copy(self, row):
        """A destination that was never there before; the one before it goes first, but for very many files."""
        if not row.keep_copies or self.lacks_space(row.data):
            self.clear_copies()
        self.copies += 1
        copies = self.options.dir / "copies"
        copies.mkdir(exist_ok=True)
        return copies / f"{os.getpid()}-{self.copies}"

    def lacks_space(self, data):
        free = os.statvfs(self.options.dir)
        needed = data.bytes + data.files * 8192
        return free.f_bavail * free.f_frsize < 3 * needed or 0 < free.f_favail < 3 * data.files

    def clear_copies(self):
        copies = self.options.dir / "copies"
        if copies.exists():
            shutil.rmtree(copies)
            self.removed.touch()

    def wait_for_freed_inodes(self):
        """The mark of the last removal stays on the disk, for a run that follows at once."""
        if self.removed.exists() and not self.options.quick:
            time.sleep(max(0.0, self.removed.stat().st_mtime + FREED_INODES_SECONDS - time.time()))

    def settle(self):
        """Waits until what was written before is on the device, whoever wrote it."""
        os.sync()
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while unwritten_kib() > DIRTY_MAX_KIB:
            if time.monotonic() > deadline:
                print("bench: pages stay dirty; something else writes on this machine", file=sys.stderr)
                return
            time.sleep(0.2)
            os.sync()

    def measure(self, command):
        out = self.options.out / "output.tmp"
        with open(out, "wb") as stdout, self.device.limited():
            environment = {**os.environ, "PATH": self.path, "LC_ALL": "C"}
            begin = time.monotonic()
            process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=environment)
            said = process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.monotonic() - begin
            process.stderr.close()
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise Failed(f"{' '.join(command[:3])}... ended with {process.returncode}: {first_line(said)}")
        output = out.read_text(errors="replace") if out.stat().st_size < 4 * MIB else ""
        out.unlink()
        return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, output)

    def write(self, lines, missing):
        stamp = time.strftime("%Y%m%d-%H%M%S")
        rate = self.options.device_rate
        machine = {**describe_machine(self), "device": f"limited to {rate} MiB/s each way" if rate else "as fast as it is"}
        text = table(lines, missing, machine)
        for name in [f"bench-{stamp}.md", "bench.md"]:
            (self.options.out / name).write_text(text)
        plain = json.dumps({"machine": machine, "lines": lines, "missing": missing}, indent=1)
        (self.options.out / f"bench-{stamp}.json").write_text(plain)
        print(f"\n{text}\nbench: written to {self.options.out}/bench-{stamp}.md", flush=True)


def install(program, place):
    """Copies the program as an installation does, and has it read from the disk again, as the peers were since the machine began. What a linker
    leaves in the page cache are single pages, which are mapped one by one: a start took a seventh longer for it."""
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    shutil.copy(program, place)
    with place.open("rb") as installed:
        os.fsync(installed.fileno())
        os.posix_fadvise(installed.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def pages_taken(row):
    """Bytes of page cache that a run takes anew, half as much again, and a little more."""
    times = 0 if row.past_cache else int(row.is_cold) + int(row.is_copy)
    return times * (row.data.bytes + row.data.files * 8192) * 3 // 2 + (GIB // 4 if times else 0)


def touch_free_memory(wanted):
    """Writes to memory that is free, and frees it: the host of a virtual machine takes free memory back, and whoever
    is the first to use it then waits for the host. Without this the same copy of 4 GiB took from 0.6 to 6 s.
    A process of its own does it, because peak memory is handed down to the commands that this one starts."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    wanted = min(wanted, int(fields["MemFree"].split()[0]) * KIB - GIB)
    if wanted > 0:
        subprocess.run([sys.executable, "-c", f"b'\\1' * int({wanted})"], check=True)


def warm(source):
    if source.is_file():
        subprocess.run(["cat", str(source)], check=True, stdout=subprocess.DEVNULL)
        return
    find = subprocess.Popen(["find", str(source), "-type", "f", "-print0"], stdout=subprocess.PIPE)
    subprocess.run(["xargs", "-0", "cat"], stdin=find.stdout, check=True, stdout=subprocess.DEVNULL)
    find.stdout.close()
    if find.wait() != 0:
        raise Failed("the source can't be read")


def unwritten_kib():
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return sum(int(fields[name].split()[0]) for name in ["Dirty", "Writeback"])


def first_line(said):
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[0] if lines else "no message"


def lines_of(row, peers, runs, problems, share):
    """The lines of the table for one row."""
    ours = runs["ours"]
    if "ours" in problems:
        yield line_of(row, "-", None, ours, [], f"WRONG: {problems['ours']}")
        return
    if row.share_max:
        yield share_line(row, ours, share)
        return
    if not peers:
        yield memory_line(row, ours)
        return
    peers = [peer for peer in peers if peer.name not in problems]
    if row.fastest and peers:
        peers = [min(peers, key=lambda peer: median_seconds(runs[peer.name]))]
    for peer in peers:
        theirs = runs[peer.name]
        ratio = statistics.median(a.seconds / b.seconds for a, b in zip(ours, theirs))
        verdict = "told" if peer.goal is None else "reached" if ratio <= peer.goal else "missed"
        if row.rss_max and max(run.rss for run in ours) > row.rss_max:
            verdict = f"missed: memory above {row.rss_max // MIB} MiB"
        if peer.agree and not same_digests(ours[0].output, theirs[0].output):
            verdict = "WRONG: other digests than the peer's"
        yield line_of(row, peer.name, peer.goal, ours, theirs, verdict)


def share_line(row, ours, share):
    verdict = "reached" if share is not None and share <= row.share_max else "missed"
    said = f"1/{1 / share:.0f} of the data" if share else "nothing"
    line = line_of(row, said, None, ours, [], verdict)
    return {**line, "share": share, "share_max": row.share_max}


def memory_line(row, ours):
    peak = max(run.rss for run in ours)
    return line_of(row, "-", None, ours, [], "reached" if peak <= row.rss_max else "missed")


def line_of(row, peer, goal, ours, theirs, verdict):
    ratios = [a.seconds / b.seconds for a, b in zip(ours, theirs)]
    return {
        "row": row.id, "work": row.title, "files": row.data.files, "bytes": row.data.bytes, "peer": peer,
        "goal": goal, "rss_max": row.rss_max, "verdict": verdict, "ratios": ratios,
        "ratio": statistics.median(ratios) if ratios else None,
        "ours": [measured(run) for run in ours], "theirs": [measured(run) for run in theirs],
    }


def measured(run):
    return {key: value for key, value in asdict(run).items() if key != "output"}


def median_seconds(runs):
    return statistics.median(run.seconds for run in runs)


def same_digests(ours, theirs):
    """Whether both outputs name the same digests; leading zeros and letter case don't count."""
    return digests(ours) == digests(theirs) != []


def digests(output):
    """The digests that an output names: `HEX  file`, or `NAME (file) = HEX`."""
    form = re.compile(r"\\?(?:XXH3_)?([0-9a-fA-F]+)\b|.* = ([0-9a-fA-F]+)$")
    words = (form.match(line) for line in output.splitlines())
    return sorted((word[1] or word[2]).lower().lstrip("0") for word in words if word)


def table(lines, missing, machine):
    heads = ["work", "peer", "haul s", "peer s", "ratio (each pair from .. to)", "goal", "verdict",
             "CPU s", "peak MiB"]
    text = ["# haul and other tools in turn", ""]
    text += [f"- {key}: {value}" for key, value in machine.items()]
    text += ["", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    text += [format_line(line) for line in lines]
    if missing:
        text += ["", "Left out:"] + [f"- {line}" for line in missing]
    return "\n".join(text) + "\n"


def format_line(line):
    def middle(runs, key, show):
        return show(statistics.median(run[key] for run in runs)) if runs else "-"

    def both(key, show):
        ours, theirs = middle(line["ours"], key, show), middle(line["theirs"], key, show)
        return ours if theirs == "-" else f"{ours} / {theirs}"

    ratios = line["ratios"]
    ratio = f"**{line['ratio']:.2f}** ({min(ratios):.2f} .. {max(ratios):.2f})" if ratios else "-"
    goals = [f"<= {line['goal']:.2f}"] if line["goal"] else []
    goals += [f"< {line['rss_max'] // MIB} MiB"] if line["rss_max"] else []
    goals += [f"<= 1/{1 / line['share_max']:.0f}"] if line.get("share_max") else []
    seconds, mib = "{:.3f}".format, lambda value: f"{value / MIB:.0f}"
    work = f"{line['work']} ({line['files']} x {human(line['bytes'] // max(line['files'], 1))})"
    cells = [work, line["peer"], middle(line["ours"], "seconds", seconds),
             middle(line["theirs"], "seconds", seconds), ratio, ", ".join(goals), line["verdict"],
             both("cpu", "{:.2f}".format), both("rss", mib)]
    return "| " + " | ".join(cells) + " |"


def human(count):
    for unit in ["B", "KiB", "MiB", "GiB"]:
        if count < 1024 or unit == "GiB":
            return f"{count} {unit}"
        count //= 1024
    return f"{count} GiB"


def describe_machine(bench):
    cpu = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    memory = int(Path("/proc/meminfo").read_text().split()[1]) // (1 << 20)
    where = subprocess.run(["df", "--output=fstype", str(bench.options.dir)], capture_output=True, text=True)
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True)
    return {
        "machine": f"{cpu}, {bench.workers} cores, {memory} GiB, Linux {platform.release()}, "
                   f"{where.stdout.split()[-1] if where.stdout else '?'}",
        "commit": commit.stdout.strip() or "?",
        "when": time.strftime("%Y-%m-%d %H:%M"),
        "load before the end": "{:.2f}".format(os.getloadavg()[0]),
        "rounds": f"{bench.options.rounds}" + (", quick: small data, no figures to quote" if bench.options.quick else ""),
    }


if __name__ == "__main__":
    sys.exit(main())
