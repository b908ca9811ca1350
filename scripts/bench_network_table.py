"""The table of the network bench: what was measured of each tool, the ratios, and what of it reaches its goal."""

import json
import os
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path

import bench
from bench_rows import MIB

HEADS = ["row (round trip, rate; data)", "what", "s", "CPU s", "peak MiB", "ratio (each round from .. to)", "goal", "verdict"]
# Bits that a line with faults must have flipped to be one.
FLIPS = 24


class Table:
    """The lines so far. They are printed as they come, and written to a file after each row."""

    def __init__(self, options):
        self.options, self.lines, self.missing = options, [], []
        self.has_missed = False
        self.name = time.strftime("bench-network-%Y%m%d-%H%M%S")
        print_row(HEADS)
        print_row(["---"] * len(HEADS))

    def leave_out(self, why):
        print(f"bench: {why}", file=sys.stderr, flush=True)
        self.missing.append(why)

    def fail(self, row, tool, error):
        """A tool that did not do its work is left out; if it is ours, that is no excuse."""
        self.leave_out(f"{row.id}: {tool.name}: {'WRONG: ' if tool.is_ours else ''}{error}")
        self.has_missed = self.has_missed or tool.is_ours

    def add(self, row, runs, seconds):
        """A row that has ended, after so many seconds."""
        self.show([f"**{row.title}** ({row.way}; {row.data.told()})", f"`{row.id}`, {seconds:.0f} s", "", "", "", "", "", ""])
        head = self.lines[-1]
        for name, measured in runs.items():
            self.show(tool_cells(name, measured))
        for line in row.lines:
            if runs.get(line.ours) and all(runs.get(other) for other in line.others):
                self.judge(line, runs, row)
        if row.rss_max and runs.get("ours"):
            self.judge_memory(row, runs["ours"])
        head["row"], head["seconds"] = row.id, seconds
        head["runs"] = {name: [asdict(run) for run in measured] for name, measured in runs.items()}

    def judge(self, line, runs, row):
        ratios = list(ratios_of(line, runs, row))
        middle = statistics.median(ratios)
        is_least = any(run.is_stopped for run in runs[line.ours])
        is_bound = any(run.is_stopped for other in line.others for run in runs[other])
        verdict = "told" if line.goal is None else "reached" if middle <= line.goal else "missed"
        befell = [run.befell for run in runs[line.ours] if run.befell is not None]
        if befell and min(befell) < FLIPS:
            verdict = f"missed: only {min(befell)} bits were flipped"
        goal = f"<= {line.goal:.2f}" if line.goal else ""
        told = f"{'<= ' if is_bound else '>= ' if is_least else ''}**{middle:.3f}** ({min(ratios):.3f} .. {max(ratios):.3f})"
        if line.by == "link":
            told += f", {'at most ' if is_least else ''}{1 / middle:.3f} of the link"
        if line.is_overhead:
            told += f", {100 * (middle - 1):+.1f} %"
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
        self.lines.append({"text": print_row(cells)})

    def write(self):
        """All that is known so far, in place of what was written before."""
        self.options.out.mkdir(parents=True, exist_ok=True)
        machine = describe(self.options)
        text = ["# haul and other tools from host to host, in turn", ""]
        text += [f"- {key}: {value}" for key, value in machine.items()]
        text += ["", row_of(HEADS), row_of(["---"] * len(HEADS))] + [line["text"] for line in self.lines]
        if self.missing:
            text += ["", "Left out:"] + [f"- {why}" for why in dict.fromkeys(self.missing)]
        text = "\n".join(text) + "\n"
        for name in [f"{self.name}.md", "bench-network.md"]:
            (self.options.out / name).write_text(text)
        plain = json.dumps({"machine": machine, "lines": self.lines, "missing": self.missing}, indent=1)
        (self.options.out / f"{self.name}.json").write_text(plain)

    def tell_where(self):
        print(f"\nbench: written to {self.options.out}/{self.name}.md", flush=True)


def row_of(cells):
    return "| " + " | ".join(cells) + " |"


def print_row(cells):
    text = row_of(cells)
    print(text, flush=True)
    return text


def tool_cells(name, runs):
    if not runs:
        return ["", name, "-", "-", "-", "", "", ""]
    middle = statistics.median(run.seconds for run in runs)
    cpu = statistics.median(run.cpu for run in runs)
    near, far = max(run.rss for run in runs) / MIB, max(run.far_rss for run in runs) / MIB
    sign = ">= " if any(run.is_stopped for run in runs) else ""
    return ["", name, f"{sign}{middle:.3f}", f"{cpu:.2f}", f"{near:.0f}" + (f" / {far:.0f}" if far else ""), "", "", ""]


def ratios_of(line, runs, row):
    """Ours by the greatest of the others, round by round. `wire`: by what the bare connection alone took. `link`: by the time of the
    bytes at the rate of the link."""
    for index, ours in enumerate(runs[line.ours]):
        if line.by == "link":
            yield ours.seconds / (row.data.bytes * 8 / (row.way.mbit * 1e6))
            continue
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
    scale = f"{options.scale:g} times each row's own amount of data, which is told with the row"
    return {**bench.describe_machine(Machine), "scale": scale}
