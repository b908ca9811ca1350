#!/usr/bin/env -S python3 -B
"""Measures haul and other tools from one host to another, in turn, in one run, and writes a table. Needs root.

How it is measured, beyond what scripts/bench.py says:
- The two hosts are network namespaces of this machine, joined by `haul-lab link`: without a delay by the kernel (veth, and a token
  bucket where there is a rate), with one by a process that carries the packets. Both hosts share this machine's processors.
- Sources and copies lie in memory (--dir), so that the link and the tools are what is measured; one row is of disks.
- A run's time is that of the command at the near host. Where `haul serve` answers it, processor time and peak memory are of
  both ends: the server lives for one session.
- All tools of a row send the same bytes, which the page cache holds, into a folder that is new. As much free memory as a run will
  take is written to and freed before it, as scripts/bench.py does. Nobody asks for syncs; before a run on a disk all that is dirty is
  written back.
- A tool runs as it was installed, with what its options offer for several connections. What it does beside copying differs, and is
  told in docs/benchmark-network.md: ours encrypts and compares every object, some others do neither.
- A tool that takes more than --patience times as long as ours did is stopped, and its time counts as that: the ratio told is then
  the most it can be. It is not run again in that row.
- What arrives is compared byte by byte in the first round, by count and size in the others.
- FIVER's Equation 1 (t - max(t_transfer, t_checksum)) / max(t_transfer, t_checksum) is told as t / max(...), and in percent beside
  it: 1.010 is 1 % of overhead. t_checksum is the system's own tool on one processor, as in the paper.
- A row's lines are printed and kept in a file as soon as it ends. --scale sends more or less than a row's own amount; each row
  says how much it sends, and what part of the goal's amount that is.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import bench
from bench_link import FAR, START_SECONDS_MAX, Link, Servers
from bench_network_rows import GIB, all_rows
from bench_network_table import Table
from bench_rows import verify_copy

STOPPED_SECONDS_MIN = 12
# Where no time of ours is known yet.
STOPPED_SECONDS_MAX = 240
# How long a command that is stopped has to end, and its traces at the far host have to go.
ENDING_SECONDS = 5


@dataclass
class Run:
    """One command, measured; `far_*` are the server's where it is ours. `wire`: what the bare connection took."""

    seconds: float
    cpu: float
    rss: int
    far_rss: int = 0
    wire: float = 0
    befell: int | None = None
    is_stopped: bool = False


def main():
    options = parse_options()
    rows = bench.choose_rows(all_rows(options.quick, options.scale), options.rows)
    if options.list:
        for row in rows:
            print(f"{row.id:28} {row.title}; {row.way}; {row.data.told()}")
        return 0
    if os.geteuid() != 0:
        sys.exit("bench: network namespaces need root")
    # Who ends this run ends its servers, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    table = Table(options)
    for index, row in enumerate(rows):
        measured = Measured(options, row, table)
        try:
            measured.run()
        finally:
            measured.close()
            forget_data(options, measured.dir, rows[index + 1:])
            table.write()
    table.tell_where()
    return 1 if options.strict and table.has_missed else 0


def parse_options():
    parser = argparse.ArgumentParser(description="The table of the network: haul and other tools in turn.")
    parser.add_argument("-n", "--rounds", type=int, help="rounds of each row, instead of the row's own number")
    parser.add_argument("--rows", help="only these rows, by their names or beginnings, separated by commas")
    parser.add_argument("--list", action="store_true", help="name the rows and do nothing")
    parser.add_argument("--quick", action="store_true", help="small data, to try the script: no figures to quote")
    parser.add_argument("--scale", type=float, default=1, help="times as much data as a row's own (default 1: at most some minutes a row)")
    parser.add_argument("--tools", help="of each row only these tools, by the beginnings of their names")
    parser.add_argument("--patience", type=float, default=3, help="how often our time a tool may take (default 3)")
    parser.add_argument("--dir", type=Path, default=Path("/dev/shm/haul-bench-network"), help="where the data lives: in memory")
    parser.add_argument("--disk-dir", type=Path, default=Path("bench-out/network"), help="the same on a disk")
    parser.add_argument("--out", type=Path, default=Path("bench-out"), help="where the table is written")
    target = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    parser.add_argument("--haul", type=Path, default=target / "release/haul", help="the binary under test")
    parser.add_argument("--lab", type=Path, default=target / "release/haul-lab", help="links, proxies, data sets")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a goal is missed")
    options = parser.parse_args()
    if options.scale <= 0 or (options.rounds is not None and options.rounds < 1):
        parser.error("at least one round, and some data")
    return options


def forget_data(options, place, rows):
    """Removes data in memory that no row needs any more."""
    needed = {data.name for row in rows for data in row.all_data() if not row.on_disk}
    if place != options.dir.resolve():
        return
    for mark in place.glob("*.made"):
        if mark.stem not in needed:
            mark.unlink()
            shutil.rmtree(place / mark.stem, ignore_errors=True)


class Measured:
    """A row under way: its link, its servers, its data."""

    def __init__(self, options, row, table):
        self.options, self.row, self.table = options, row, table
        self.dir = (options.disk_dir if row.on_disk else options.dir).resolve()
        self.copies = self.dir / "copies"
        self.copies.mkdir(parents=True, exist_ok=True)
        self.lab, self.haul = str(options.lab.resolve()), str(options.haul.resolve())
        self.path = f"{Path('bench-out/peers/bin').resolve()}:{os.environ.get('PATH', '')}:/usr/sbin"
        self.link = Link(self.lab, row.way)
        self.servers = Servers(self.link, self.copies)
        self.count = 0

    def close(self):
        self.servers.close()
        self.link.close()
        shutil.rmtree(self.copies, ignore_errors=True)

    def run(self):
        row, begin = self.row, time.monotonic()
        if self.lacks_space():
            self.table.leave_out(f"{row.id}: there is no room for its data and a copy in {self.dir}; try a smaller --scale")
            return
        tools = [tool for tool in row.tools if self.is_there(tool)]
        runs = {tool.name: [] for tool in tools}
        for index in range((self.options.rounds or row.rounds) if tools else 0):
            turn = index % len(tools)
            for tool in tools[turn:] + tools[:turn]:
                # Who was stopped would be again.
                if tool.name not in runs or any(run.is_stopped for run in runs[tool.name]):
                    continue
                try:
                    runs[tool.name].append(self.run_once(tool, runs.get(tools[0].name), check=index == 0))
                except (bench.Failed, subprocess.SubprocessError) as error:
                    self.table.fail(row, tool, error)
                    del runs[tool.name]
        self.table.add(row, runs, time.monotonic() - begin)

    def lacks_space(self):
        place = os.statvfs(self.dir)
        space = place.f_bavail * place.f_frsize
        if not self.row.on_disk:
            fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
            space = min(space, int(fields["MemAvailable"].split()[0]) * 1024)
        needed = sum(data.bytes + data.files * 8192 for data in self.row.all_data())
        return space < 2 * needed + GIB // 2

    def is_there(self, tool):
        wanted = self.options.tools
        if wanted and not any(tool.name.startswith(name) for name in wanted.split(",")):
            return False
        program = tool.program
        if program not in ["{haul}", "{lab}"] and not shutil.which(program, path=self.path):
            self.table.leave_out(f"{self.row.id}: {tool.name}: {program} is not installed")
            return False
        if tool.server and self.servers.words(tool.server) is None:
            self.table.leave_out(f"{self.row.id}: {tool.name}: its server is not installed, or did not start")
            return False
        return True

    def run_once(self, tool, ours, check):
        source = self.make(tool.data or self.row.data)
        self.count += 1
        copy = self.copies / f"{os.getpid()}-{self.count}"
        copy.mkdir(mode=0o777)
        copy.chmod(0o777)
        try:
            return self.run_into(tool, source, copy, ours, check)
        finally:
            remove(copy)

    def run_into(self, tool, source, copy, ours, check):
        data = tool.data or self.row.data
        if self.row.on_disk:
            os.sync()
            Path("/proc/sys/vm/drop_caches").write_text("3\n")
        else:
            bench.warm(source)
        if not self.options.quick and not tool.near_only:
            bench.touch_free_memory((data.bytes + data.files * 8192) * 3 // 2 + GIB // 4)
        far = Far(self, tool, copy)
        try:
            words = {**self.words(source, copy), "{ticket}": str(far.ticket)}
            words |= self.servers.words(tool.server) if tool.server else {}
            command = fill_in(tool.command, words)
            if self.row.on_disk:
                # What is still in memory is not there yet.
                command = ["sh", "-c", "\"$@\" && sync -f \"$0\"", str(copy), *command]
            command = self.link.near() + command
            limit = max(STOPPED_SECONDS_MIN, self.options.patience * ours[0].seconds) if ours else STOPPED_SECONDS_MAX
            run = self.measure(command, limit)
        finally:
            ended = far.end()
        if run.is_stopped and ((tool.is_ours and not tool.may_be_stopped) or not ours):
            raise bench.Failed(f"took more than {limit:.0f} s")
        if not run.is_stopped and not tool.near_only:
            verify_copy(source, copy / source.name, bytewise=check)
        if ended:
            run.cpu, run.far_rss, run.befell = run.cpu + ended.cpu, ended.rss, ended.befell
        return run

    def words(self, source, copy):
        under = copy if source.is_file() else copy / source.name
        lftp = f"put -O {copy} {source}" if source.is_file() else f"mirror -R -P 8 {source} {copy}/{source.name}"
        folder = "" if source.is_file() else "/"
        return {"{src}": str(source), "{src slash}": f"{source}{folder}", "{name}": source.name, "{dst}": str(copy),
                "{under}": str(under), "{under slash}": f"{under}/" if folder else f"{copy}/", "{rel dst}": copy.name,
                "{host}": FAR, "{haul}": self.haul, "{lab}": self.lab, "{lftp}": lftp, "{work}": str(self.copies),
                "{at far}": self.link.far(),
                **{f"{{path {name}}}": shutil.which(name, path=self.path) or name for name in ["qcp", "sy"]}}

    def measure(self, command, limit):
        out = self.copies / "said"
        environment = {**os.environ, "PATH": self.path, "LC_ALL": "C", "XDG_STATE_HOME": str(self.copies / "state")}
        with open(out, "wb") as said:
            begin = time.monotonic()
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
                                       env=environment, start_new_session=True)
            alarms = [threading.Timer(limit + more, end_group, (process.pid, by))
                      for more, by in [(0, signal.SIGTERM), (ENDING_SECONDS, signal.SIGKILL)]]
            for alarm in alarms:
                alarm.daemon = True
                alarm.start()
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.monotonic() - begin
            for alarm in alarms:
                alarm.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        is_stopped = seconds >= limit and process.returncode != 0
        if is_stopped:
            # What it started, here and at the far host, must not burden the next one.
            end_group(process.pid, signal.SIGKILL)
            time.sleep(1)
        said = out.read_bytes()
        if process.returncode and not is_stopped:
            raise bench.Failed(f"{Path(command[2]).name} ended with {process.returncode}: {bench.first_line(said)}")
        run = Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, is_stopped=is_stopped)
        if said.startswith(b"{"):
            parts = json.loads(said)
            run.cpu, run.wire = parts["cpu"], parts["wire"]["wall"]
        return run

    def make(self, data):
        """The path of a data set, made if it is not there: the file itself if it is one."""
        place = self.dir / data.name
        mark = self.dir / f"{data.name}.made"
        wanted = " ".join(data.make)
        if not mark.exists() or mark.read_text() != wanted:
            shutil.rmtree(place, ignore_errors=True)
            print(f"bench: making {data.name}", file=sys.stderr, flush=True)
            subprocess.run([self.lab, "make", *data.make, str(place)], check=True, stdout=subprocess.DEVNULL)
            mark.write_text(wanted)
        return place / "f0000000" if data.is_one_file else place


class Far:
    """What answers one run at the far host: `haul serve` for one session, and a bad line before it."""

    def __init__(self, measured, tool, copy):
        self.ticket = measured.copies / f"{copy.name}.ticket"
        self.server = self.proxy = self.befell = None
        if tool.serve is None:
            return
        there = measured.link.far()
        words = ["serve", "--root", str(copy), "--once", "-q", "--ticket-file", str(self.ticket), *tool.serve]
        at = f"{FAR}:7433"
        if tool.flips is not None:
            data = tool.data or measured.row.data
            self.proxy = subprocess.Popen(
                [*there, measured.lab, "proxy", "--listen", at, "--to", "127.0.0.1:7434", "--flips", str(tool.flips), "--bytes",
                 str(data.bytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.proxy.stdout.readline()
            words += ["--address", at]
            at = "127.0.0.1:7434"
        self.server = subprocess.Popen([*there, measured.haul, *words, "--listen", at], stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS_MAX
        while not (self.ticket.exists() and self.ticket.stat().st_size):
            if time.monotonic() > deadline or self.server.poll() is not None:
                raise bench.Failed("haul serve did not start")
            time.sleep(0.01)

    def end(self):
        """Ends what still runs, and gives what the server took."""
        ended = None
        if self.server:
            alarm = threading.Timer(START_SECONDS_MAX, self.server.terminate)
            alarm.daemon = True
            alarm.start()
            _, status, usage = os.wait4(self.server.pid, 0)
            alarm.cancel()
            self.server.returncode = os.waitstatus_to_exitcode(status)
            ended = Run(0, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)
        if self.proxy:
            self.proxy.stdin.close()
            said = self.proxy.stdout.read().split()
            self.proxy.wait()
            ended.befell = int(said[0]) if said else 0
        return ended


def end_group(leader, by):
    try:
        os.killpg(leader, by)
    except ProcessLookupError:
        pass


def remove(folder):
    """What a stopped tool left at the far host may write on for a moment."""
    deadline = time.monotonic() + ENDING_SECONDS
    while True:
        try:
            shutil.rmtree(folder)
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def fill_in(command, words):
    filled = []
    for word in command:
        if isinstance(words.get(word), list):
            filled += words[word]
            continue
        for _ in range(2):
            for name, meant in words.items():
                word = word.replace(name, meant) if isinstance(meant, str) else word
        filled.append(word)
    return filled


if __name__ == "__main__":
    sys.exit(main())
