"""Rows about the object log: what it costs, what it takes, and what going on after a cut costs.

The scale-down of FT-LADS: "big" is 100 files of 64 MiB, "small" 10,000 of 1 MiB. The log makes durable what it tells of, so the copy
without it that it is held against is followed by a sync of the file system it went to.
"""

import errno
import os
import shutil
import statistics
import subprocess
import time
from pathlib import Path

from bench_rows import KIB, MIB, Failed, Peer, Row, verify_copy

MECHANISMS = ["file", "transaction", "universal"]
ENCODINGS = ["char", "int", "enc", "binary", "bit8", "bit64"]
DEFAULT = ("universal", "bit8")

# The goals: time with the log against without; space for the big set; what a cut costs of the whole time.
TIME_GOAL, SPACE_GOAL, RECOVERY_GOAL = 1.005, 16 * KIB, 0.02
CPU_GOAL, MEMORY_GOAL = 1.02, 4 * MIB

SHARES = [20, 40, 60, 80]

# Peers that go on with what an earlier run left, and how. The copy has the tree's own name, as with cp -r to a new name.
PARTIAL = {"rsync --append": ["rsync", "-a", "--append", "{src}/", "{dst}"],
           "rsync --partial": ["rsync", "-a", "--partial", "{src}/", "{dst}"]}
RECOVERY_ROUNDS = 3

# Seconds after a removal: ext4 without a journal passes over inode numbers that were freed up to 35 s ago (RECENTCY_MIN and RECENTCY_DIRTY
# of its ialloc.c), and whoever creates files meanwhile pays for the search.
AGED = 40

# How often each processor is looked at, and where it then copies bytes, as kernels have called it.
SAMPLES_PER_SECOND = 999
COPYING = {"copy_folio_from_iter_atomic", "copy_page_from_iter_atomic", "_copy_from_iter", "_copy_to_iter", "rep_movs_alternative",
           "copy_user_enhanced_fast_string", "clear_page_erms", "clear_page_rep"}

# Styles of logs that are measured between one copy without a log and the next.
STYLES_BETWEEN = 3


def log_rows(sizes):
    """The default way to keep a log always; all ways beside each other only where the row is named."""
    plain = ["{haul}", "cp", "-r", "--preserve=mode,timestamps", "{src}", "{dst}"]
    synced = ["sh", "-c", "\"$0\" cp -r --preserve=mode,timestamps \"$1\" \"$2\" && sync -f \"$2\"", "{haul}", "{src}", "{dst}"]
    peers = [Peer("without a log, and sync -f", synced, TIME_GOAL, needs="sh"), Peer("without a log", plain, None)]
    rows = []
    for name, data, part in [("big", sizes.log_big, sizes.styles_big), ("small", sizes.log_small, sizes.styles_small)]:
        rows.append(Row(f"log-time-{name}", f"copy {data.name} with a log", data, with_log(*DEFAULT), peers, is_copy=True))
        rows.append(Row(f"log-styles-{name}", f"copy {part.name} with a log", part, with_log(*DEFAULT), peers[:1], is_copy=True,
                        special=measure_styles, by_name=True, at_once=True))
        cost = f"processor time of the whole machine, and peak memory, copying {data.name} with a log"
        rows.append(Row(f"log-cost-{name}", cost, data, with_log(*DEFAULT), peers[:1], is_copy=True, special=measure_cost))
    rows.append(Row("log-space", "most bytes of the log on the way", sizes.log_big, with_log(*DEFAULT), [],
                    is_copy=True, special=measure_space))
    rows.append(Row("log-recovery", "what a cut at 20, 40, 60 and 80 % costs", sizes.log_big, with_log(*DEFAULT), [],
                    is_copy=True, special=measure_recovery))
    rows.append(Row("log-peers", "end a copy that was killed at 20, 40, 60 and 80 % of its bytes", sizes.log_big,
                    with_log(*DEFAULT), [], is_copy=True, special=measure_peers))
    return rows


def with_log(mechanism, encoding):
    return ["{haul}", "cp", "-r", "--resume", "--state-dir={state}", f"--log-mechanism={mechanism}",
            f"--log-encoding={encoding}", "{src}", "{dst}"]


def measure_styles(bench, row, source):
    """Every mechanism in every encoding, in time and in processor time of the whole machine. A copy without a log stands at either end of
    each few of them, and their ratios are to the mean of these two; the order turns with each round. What a log costs is less than what a
    disk's own time changes by from one copy to the next: --dir on a file system that lies in memory (a loop device) shows it."""
    styles = [(mechanism, encoding) for mechanism in MECHANISMS for encoding in ENCODINGS]
    ratios = {style: [] for style in styles}
    for index in range(bench.options.rounds):
        turn = index * len(styles) // bench.options.rounds
        order = styles[turn:] + styles[:turn]
        check = index == 0
        before = copy_once(bench, row, source, row.peers[0].command, check)
        for first in range(0, len(order), STYLES_BETWEEN):
            few = order[first:first + STYLES_BETWEEN]
            taken = {style: copy_once(bench, row, source, with_log(*style), check) for style in few}
            after = copy_once(bench, row, source, row.peers[0].command, check)
            for style, run in taken.items():
                ratios[style].append([2 * mine / (one + other) for mine, one, other in zip(run, before, after)])
            before = after
    lines = []
    for (mechanism, encoding), found in ratios.items():
        times, cpus, _ = zip(*found)
        ratio = statistics.median(times)
        told = f"{mechanism}, {encoding}: **{ratio:.3f}** ({min(times):.3f} .. {max(times):.3f}) of {row.peers[0].name}, " \
               f"processor time {statistics.median(cpus):.3f}"
        lines.append(line(row, told, f"{TIME_GOAL}", "reached" if ratio <= TIME_GOAL else "missed"))
    times = [pair[0] for found in ratios.values() for pair in found]
    cpus = [pair[1] for found in ratios.values() for pair in found]
    told = f"all {len(times)}: **{statistics.median(times):.3f}**, processor time {statistics.median(cpus):.3f}"
    return [*lines, line(row, told, f"{TIME_GOAL}", "told")]


def copy_once(bench, row, source, command, check, aged=0):
    """Seconds, processor time of the whole machine, and peak memory of one copy; `check` compares every byte of it. What is removed to make
    room for it is `aged` seconds old when it begins."""
    bench.forget_state()
    copy = bench.new_copy(row)
    time.sleep(aged)
    bench.bring_in(row, source)
    before = busy_seconds()
    run = bench.measure(bench.fill_in(command, source, copy))
    cpu = busy_seconds() - before
    verify_copy(source, copy, bytewise=check)
    return run.seconds, cpu, run.rss


def measure_space(bench, row, source):
    """The most that all files of the log have together at any look; the copy is watched every few milliseconds."""
    bench.forget_state()
    most, looks = 0, 0
    copy = bench.new_copy(row)
    with start(bench, row, source, copy) as process:
        while process.poll() is None:
            most, looks = max(most, log_bytes(bench.state())), looks + 1
            time.sleep(0.005)
    if process.returncode != 0:
        raise Failed(f"ended with {process.returncode}")
    verify_copy(source, copy, bytewise=True)
    verdict = "reached" if most <= SPACE_GOAL else "missed"
    return [line(row, f"{most} bytes in {looks} looks", f"{SPACE_GOAL} bytes", verdict)]


def measure_cost(bench, row, source):
    """With a log, and without one, in turn. What writes dirty pages to the device is one time the process that asks for a sync of a file, another
    time a thread of the kernel, so that only what the whole machine did can be compared; nothing else may run on it.

    A guest's time of copying bytes is its host's as well, which gives it memory while the bytes are stored: from one copy to the next it doubles,
    and hides all else. So where perf can tell it apart, the goal is for the rest."""
    commands = {"ours": row.ours, "theirs": row.peers[0].command}
    runs = {tool: [] for tool in commands}
    samples = bench.options.out / "samples.tmp" if shutil.which("perf") else None
    recorded = ["perf", "record", "-q", "-a", "-F", str(SAMPLES_PER_SECOND), "-e", "cpu-clock", "-o", str(samples), "--"] if samples else []
    for index in range(bench.options.rounds):
        for tool in list(commands)[:: 1 if index % 2 else -1]:
            _, cpu, rss = copy_once(bench, row, source, recorded + commands[tool], index == 0, AGED)
            rest = besides_copying(samples) if samples else cpu
            if samples:
                # The memory of the tool alone, and not of perf.
                _, _, rss = copy_once(bench, row, source, commands[tool], check=False)
            runs[tool].append((cpu, rest, rss))
    if samples:
        samples.unlink()
    told = ["in all", "but for the copying of bytes"] if samples else ["in all"]
    lines = []
    for place, what in enumerate(told):
        ours, theirs = [statistics.median(run[place] for run in runs[tool]) for tool in commands]
        ratios = [mine[place] / other[place] for mine, other in zip(runs["ours"], runs["theirs"])]
        ratio = statistics.median(ratios)
        verdict = "told" if what != told[-1] else "reached" if ratio <= CPU_GOAL else "missed"
        found = f"{what} {ours:.2f} s against {theirs:.2f} s, {ratio:.3f} ({min(ratios):.3f} .. {max(ratios):.3f})"
        lines.append(line(row, found, f"{CPU_GOAL:.2f}", verdict))
    more = max(run[-1] for run in runs["ours"]) - max(run[-1] for run in runs["theirs"])
    return [*lines, line(row, f"{more / MIB:+.1f} MiB", f"{MEMORY_GOAL // MIB} MiB", "reached" if more <= MEMORY_GOAL else "missed")]


def besides_copying(samples):
    """Seconds that processors were busy with anything but copying bytes from and to the page cache."""
    told = subprocess.run(["perf", "script", "-i", samples, "-F", "comm,ip,sym"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    busy = [words for words in map(str.split, told.stdout.splitlines()) if words and words[0] != "swapper"]
    return sum(words[-1] not in COPYING for words in busy) / SAMPLES_PER_SECOND


def busy_seconds():
    """Processor time that the machine spent on anything, without what its host took."""
    user, nice, system, _, _, irq, softirq = map(int, Path("/proc/stat").read_text().split(maxsplit=8)[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def log_bytes(state):
    total = 0
    for path in state.glob("jobs/*/log/*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            # It went between two looks.
            pass
    return total


def measure_recovery(bench, row, source):
    """Equation 1 of FT-LADS: the time before the cut and the time after it, less the time of a copy that is not cut, as a share of
    that. The copy is killed when a share of the bytes stands at the sink. A whole copy stands at either end of each round, and the
    round's cuts, in an order that turns, are held against the mean of these two."""
    costs, wholes = {share: [] for share in SHARES}, [run_whole(bench, row, source)]
    for index in range(max(RECOVERY_ROUNDS, bench.options.rounds)):
        turn = index % len(SHARES)
        taken = {share: run_cut(bench, row, source, share, check=index == 0) for share in SHARES[turn:] + SHARES[:turn]}
        wholes.append(run_whole(bench, row, source))
        whole = statistics.mean(wholes[-2:])
        for share, seconds in taken.items():
            costs[share].append((seconds - whole) / whole)
    lines = []
    for share, found in costs.items():
        cost = statistics.median(found)
        verdict = "reached" if cost <= RECOVERY_GOAL else "missed"
        told = f"{100 * cost:.1f} % ({100 * min(found):.1f} .. {100 * max(found):.1f}) of {statistics.median(wholes):.1f} s at {share} %"
        lines.append(line(row, told, f"{100 * RECOVERY_GOAL:.0f} %", verdict))
    return lines


def run_cut(bench, row, source, share, check):
    """The time of a copy that is killed at a share of its bytes, and of the run that ends it."""
    bench.forget_state()
    copy = bench.new_copy(row)
    bench.bring_in(row, source)
    before = run_until_there(bench, bench.fill_in(row.ours, source, copy), copy, row.data.bytes * share / 100)
    seconds = before + timed(bench, row, source, copy)
    verify_copy(source, copy, bytewise=check)
    return seconds


def measure_peers(bench, row, source):
    """Each tool is killed when the same share of the bytes stands at the sink, and run again to its end: the time of both runs. A copy by
    --resume ends when all is durable, so the peers' last run is followed by a sync of the file system they write to."""
    if shutil.which("rsync") is None:
        raise Failed("rsync is not installed")
    lines = []
    for share in SHARES:
        taken = {tool: [] for tool in ["haul", *PARTIAL]}
        for index in range(min(RECOVERY_ROUNDS, bench.options.rounds)):
            for tool, times in taken.items():
                bench.forget_state()
                copy = bench.new_copy(row)
                bench.settle()
                command = bench.fill_in(PARTIAL.get(tool, row.ours), source, copy)
                before = run_until_there(bench, command, copy, row.data.bytes * share / 100)
                times.append(before + end_durably(bench, command, copy))
                # What a peer that was killed leaves beside its files is its own.
                if tool == "haul":
                    verify_copy(source, copy, bytewise=index == 0)
        ours = taken.pop("haul")
        for tool, times in taken.items():
            ratio = statistics.median(mine / theirs for mine, theirs in zip(ours, times))
            told = f"{statistics.median(ours):.1f} s against {tool} {statistics.median(times):.1f} s, {ratio:.2f}, at {share} %"
            lines.append(line(row, told, "1.00", "reached" if ratio <= 1 else "missed"))
    return lines


def run_until_there(bench, command, copy, wanted):
    """Kills a copy as soon as so many bytes stand at its sink; the time it had."""
    begin = time.monotonic()
    with bench.device.limited(), subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and bytes_there(copy) < wanted:
            time.sleep(0.01)
        if process.poll() is not None:
            raise Failed("it was over before it could be killed")
        process.kill()
    # What it forked (rsync is three processes) ends when its pipes do.
    time.sleep(0.2)
    return time.monotonic() - begin - 0.2


def end_durably(bench, command, copy):
    begin = time.monotonic()
    with bench.device.limited():
        ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if ended.returncode != 0:
            raise Failed(f"ended with {ended.returncode}: {ended.stderr.strip()}")
        subprocess.run(["sync", "-f", str(copy)], check=True)
    return time.monotonic() - begin


def bytes_there(copy):
    """Bytes of data in the files beneath a directory, wherever in them they lie. Space that is only reserved does not count."""
    total = 0
    for path in copy.glob("**/*"):
        try:
            if path.is_file() and not path.is_symlink():
                total += data_in(path)
        except FileNotFoundError:
            # It got its last name between two looks.
            pass
    return total


def data_in(path):
    total = end = 0
    with open(path, "rb") as file:
        while True:
            try:
                start = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return total
                raise
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            total += end - start


def run_whole(bench, row, source):
    bench.forget_state()
    copy = bench.new_copy(row)
    bench.bring_in(row, source)
    return timed(bench, row, source, copy)


def timed(bench, row, source, copy):
    begin = time.monotonic()
    with bench.device.limited(), start(bench, row, source, copy) as process:
        status = process.wait()
    if status != 0:
        raise Failed(f"ended with {status}")
    return time.monotonic() - begin


def start(bench, row, source, copy):
    command = bench.fill_in(row.ours, source, copy)
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def line(row, told, goal, verdict):
    """A line of the table that says what it found in words."""
    return {"row": row.id, "work": row.title, "files": row.data.files, "bytes": row.data.bytes,
            "peer": f"{told}; goal {goal}", "goal": None, "rss_max": 0, "verdict": verdict, "ratios": [], "ratio": None,
            "ours": [], "theirs": []}
