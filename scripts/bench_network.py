#!/usr/bin/env -S python3 -B
"""Measures haul and other tools from one host to another, in turn, in one run, and writes a table. Needs root.

How it is measured, beyond what scripts/bench.py says:
- The two hosts are network namespaces of this machine, joined by `haul-lab link`: without a delay by the kernel (veth, and a token
  bucket where there is a rate), with one by a process that carries the packets. Both hosts share this machine's processors.
- Sources and copies lie in memory (--dir), so that the link and the tools are what is measured; one row is of disks.
- A run's time is that of the command at the near host. Where `haul serve` answers it, processor time and peak memory are of
  both ends: the server lives for one session.
- A tool that takes more than --patience times as long as ours did is stopped, and its time counts as that: the ratio told is then
  the most it can be.
- What arrives is compared byte by byte in the first round, by count and size in the others.
- FIVER's Equation 1 (t - max(t_transfer, t_checksum)) / max(t_transfer, t_checksum) is told as t / max(...): 1.01 is 1 % of overhead.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import bench
from bench_link import FAR, START_SECONDS_MAX, Link, Servers
from bench_network_rows import MIB, all_rows

STOPPED_SECONDS_MIN = 15


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
    rows = bench.choose_rows(all_rows(options.quick), options.rows)
    if options.list:
        for row in rows:
            print(f"{row.id:28} {row.title}; {row.way}")
        return 0
    if os.geteuid() != 0:
        sys.exit("bench: network namespaces need root")
    # Who ends this run ends its servers, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    table = Table(options)
    for row in rows:
        measured = Measured(options, row, table)
        try:
            measured.run()
        finally:
            measured.close()
    table.write()
    return 1 if options.strict and table.has_missed else 0


def parse_options():
    parser = argparse.ArgumentParser(description="The table of the network: haul and other tools in turn.")
    parser.add_argument("-n", "--rounds", type=int, help="rounds of each row, instead of the row's own number")
    parser.add_argument("--rows", help="only these rows, by their names or beginnings, separated by commas")
    parser.add_argument("--list", action="store_true", help="name the rows and do nothing")
    parser.add_argument("--quick", action="store_true", help="small data, to try the script: no figures to quote")
    parser.add_argument("--tools", help="of each row only these tools, by the beginnings of their names")
    parser.add_argument("--patience", type=float, default=3, help="how often our time a tool may take (default 3)")
    parser.add_argument("--dir", type=Path, default=Path("/dev/shm/haul-bench-network"), help="where the data lives: in memory")
    parser.add_argument("--disk-dir", type=Path, default=Path("bench-out/network"), help="the same on a disk")
    parser.add_argument("--out", type=Path, default=Path("bench-out"), help="where the table is written")
    target = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    parser.add_argument("--haul", type=Path, default=target / "release/haul", help="the binary under test")
    parser.add_argument("--lab", type=Path, default=target / "release/haul-lab", help="links, proxies, data sets")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a goal is missed")
    return parser.parse_args()


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
        row = self.row
        tools = [tool for tool in row.tools if self.is_there(tool)]
        runs = {tool.name: [] for tool in tools}
        for index in range(self.options.rounds or row.rounds):
            turn = index % len(tools)
            for tool in tools[turn:] + tools[:turn]:
                if tool.name not in runs:
                    continue
                try:
                    runs[tool.name].append(self.run_once(tool, runs[tools[0].name], check=index == 0))
                except bench.Failed as error:
                    self.table.leave_out(f"{row.id}: {tool.name}: {error}")
                    del runs[tool.name]
        self.table.add(row, runs)

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
        bench.warm(source)
        if self.row.on_disk:
            os.sync()
        far = Far(self, tool, copy)
        try:
            words = {**self.words(source, copy), "{ticket}": str(far.ticket)}
            words |= self.servers.words(tool.server) if tool.server else {}
            command = self.link.near() + fill_in(tool.command, words)
            limit = max(STOPPED_SECONDS_MIN, self.options.patience * ours[0].seconds) if ours else None
            run = self.measure(command, limit)
        finally:
            ended = far.end()
        if run.is_stopped and tool.serve is not None:
            raise bench.Failed(f"took more than {limit:.0f} s")
        if not run.is_stopped and not tool.near_only:
            bench.verify_copy(source, copy / source.name, bytewise=check)
        shutil.rmtree(copy)
        if ended:
            run.cpu, run.far_rss, run.befell = run.cpu + ended.cpu, ended.rss, ended.befell
        return run

    def words(self, source, copy):
        under = copy if source.is_file() else copy / source.name
        lftp = f"put -O {copy} {source}" if source.is_file() else f"mirror -R -P 8 {source} {copy}/{source.name}"
        folder = "" if source.is_file() else "/"
        return {"{src}": str(source), "{src slash}": f"{source}{folder}", "{name}": source.name, "{dst}": str(copy),
                "{under}": str(under), "{under slash}": f"{under}/" if folder else f"{copy}/", "{rel dst}": copy.name,
                "{host}": FAR, "{haul}": self.haul, "{lab}": self.lab, "{lftp}": lftp}

    def measure(self, command, limit):
        out = self.copies / "said"
        environment = {**os.environ, "PATH": self.path, "LC_ALL": "C"}
        with open(out, "wb") as said:
            begin = time.monotonic()
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
                                       env=environment, start_new_session=True)
            alarm = threading.Timer(limit or 3600, os.killpg, (process.pid, signal.SIGTERM))
            alarm.daemon = True
            alarm.start()
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.monotonic() - begin
            alarm.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        is_stopped = limit is not None and seconds >= limit and process.returncode != 0
        said = out.read_bytes()
        if process.returncode and not is_stopped:
            raise bench.Failed(f"{' '.join(command[2:5])}... ended with {process.returncode}: {bench.first_line(said)}")
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


class Table:
    """The lines so far."""

    def __init__(self, options):
        self.options, self.lines, self.missing = options, [], []
        self.has_missed = False

    def leave_out(self, why):
        print(f"bench: {why}", file=sys.stderr, flush=True)
        self.missing.append(why)

    def add(self, row, runs):
        self.show([f"**{row.title}** ({row.way})", "", "", "", "", "", "", ""])
        for name, measured in runs.items():
            self.show(tool_cells(name, measured))
        for line in row.lines:
            if line.ours in runs and all(other in runs for other in line.others):
                self.judge(row, line, runs)
        for name, measured in runs.items():
            if row.rss_max and measured and name == "ours":
                self.judge_memory(row, measured)
        plain = {name: [asdict(run) for run in measured] for name, measured in runs.items()}
        self.lines[-1]["row"], self.lines[-1]["runs"] = row.id, plain

    def judge(self, row, line, runs):
        ratios = list(ratios_of(line, runs))
        middle = statistics.median(ratios)
        is_bound = any(run.is_stopped for other in line.others for run in runs[other])
        verdict = "told" if line.goal is None else "reached" if middle <= line.goal else "missed"
        befell = [run.befell for run in runs[line.ours] if run.befell is not None]
        if befell and min(befell) < 24:
            verdict = f"missed: only {min(befell)} bits were flipped"
        goal = f"<= {line.goal:.2f}" if line.goal else ""
        told = f"{'<= ' if is_bound else ''}**{middle:.3f}** ({min(ratios):.3f} .. {max(ratios):.3f})"
        self.count(verdict)
        self.show(["", line.title, "", "", "", told, goal, verdict])

    def judge_memory(self, row, measured):
        near, far = max(run.rss for run in measured), max(run.far_rss for run in measured)
        verdict = "reached" if max(near, far) <= row.rss_max else "missed"
        self.count(verdict)
        self.show(["", "peak memory, near and far", "", "", f"{near / MIB:.0f} / {far / MIB:.0f}", "",
                   f"<= {row.rss_max // MIB} MiB", verdict])

    def count(self, verdict):
        self.has_missed = self.has_missed or verdict.startswith("missed")

    def show(self, cells):
        text = "| " + " | ".join(cells) + " |"
        self.lines.append({"text": text})
        print(text, flush=True)

    def write(self):
        self.options.out.mkdir(parents=True, exist_ok=True)
        heads = ["row (round trip, rate)", "what", "s", "CPU s", "peak MiB", "ratio (each round from .. to)", "goal", "verdict"]
        machine = describe(self.options)
        text = ["# haul and other tools from host to host, in turn", ""]
        text += [f"- {key}: {value}" for key, value in machine.items()]
        text += ["", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)] + [line["text"] for line in self.lines]
        if self.missing:
            text += ["", "Left out:"] + [f"- {why}" for why in dict.fromkeys(self.missing)]
        stamp = time.strftime("%Y%m%d-%H%M%S")
        text = "\n".join(text) + "\n"
        for name in [f"bench-network-{stamp}.md", "bench-network.md"]:
            (self.options.out / name).write_text(text)
        plain = json.dumps({"machine": machine, "lines": self.lines, "missing": self.missing}, indent=1)
        (self.options.out / f"bench-network-{stamp}.json").write_text(plain)
        print(f"\nbench: written to {self.options.out}/bench-network-{stamp}.md", flush=True)


def tool_cells(name, runs):
    if not runs:
        return ["", name, "-", "-", "-", "", "", ""]
    middle = statistics.median(run.seconds for run in runs)
    cpu = statistics.median(run.cpu for run in runs)
    near, far = max(run.rss for run in runs) / MIB, max(run.far_rss for run in runs) / MIB
    sign = ">= " if any(run.is_stopped for run in runs) else ""
    return ["", name, f"{sign}{middle:.3f}", f"{cpu:.2f}", f"{near:.0f}" + (f" / {far:.0f}" if far else ""), "", "", ""]


def ratios_of(line, runs):
    """Ours by the greatest of the others, round by round. `wire`: by what the bare connection alone took."""
    for index, ours in enumerate(runs[line.ours]):
        others = [runs[name][min(index, len(runs[name]) - 1)] for name in line.others]
        if line.by == "wire":
            yield ours.seconds / max(run.wire for run in others)
        else:
            yield getattr(ours, line.by) / max(getattr(run, line.by) for run in others)


def describe(options):
    class Options:
        dir, rounds, quick = Path("/"), options.rounds or "each row's own", options.quick

    class Machine:
        workers = len(os.sched_getaffinity(0))

    Machine.options = Options
    return bench.describe_machine(Machine)


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
