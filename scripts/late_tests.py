#!/usr/bin/env python3
"""Runs each test by itself beneath late.py, and tells which of them fail where any system call may be late: tests that only speed keeps right.

    scripts/late_tests.py [--minutes N] [--beside N] [--seed N] [--out DIR] [WORD...]

The tests are those of the workspace whose `binary::test` holds one of the words. They are drawn in an order that the seed says, each with
a seed, odds and longest wait of its own, until the time is over; those that took long come less often. What fails is printed with the line that runs
it again, and its output kept. A test may meet another process's tests here where cargo would run both in one process; and what was cut off
after --patience made many calls, or hangs: read before you mend."""

import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

LATE = Path(__file__).with_name("late.py")
# One call in so many is late, by so many milliseconds at most.
WAYS = [(5, 3), (10, 5), (20, 40), (50, 20), (100, 60), (300, 200)]
# Seconds for which each round has room: a test that takes more is left out of some.
USUAL = 12


def main():
    ways = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    ways.add_argument("--minutes", type=float, default=10)
    ways.add_argument("--beside", type=int, default=3 * os.cpu_count(), help="tests that run at a time; most of their time they wait")
    ways.add_argument("--seed", type=int, default=1)
    ways.add_argument("--patience", type=float, default=300, help="seconds after which a test is cut off")
    ways.add_argument("--out", type=Path, default=Path("target/late"))
    ways.add_argument("words", nargs="*")
    asked = ways.parse_args()
    tests = [test for test in all_tests() if not asked.words or any(word in f"{test[0].name}::{test[2]}" for word in asked.words)]
    if not tests:
        sys.exit("late_tests.py: no test's name holds one of these words")
    asked.out.mkdir(parents=True, exist_ok=True)
    run = Run(asked, tests)
    threads = [threading.Thread(target=run.work) for _ in range(asked.beside)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{run.done} runs of {len(run.taken)} of {len(tests)} tests, {run.failed} failed")
    sys.exit(1 if run.failed else 0)


def all_tests():
    """Each test: its binary, the folder it expects to run in, its name."""
    build = subprocess.run(["cargo", "test", "--workspace", "--locked", "--no-run", "--message-format=json"], stdout=subprocess.PIPE, check=True)
    for told in map(json.loads, build.stdout.splitlines()):
        if told.get("reason") == "compiler-artifact" and told["profile"]["test"] and told["executable"]:
            binary, folder = Path(told["executable"]), Path(told["manifest_path"]).parent
            listed = subprocess.run([binary, "--list"], cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout
            for line in listed.splitlines():
                if line.endswith(": test"):
                    yield binary, folder, line.removesuffix(": test")


class Run:
    """What is drawn next, and what came of what was drawn."""

    def __init__(self, asked, tests):
        self.asked, self.tests = asked, tests
        self.chance, self.lock, self.ends = random.Random(asked.seed), threading.Lock(), time.monotonic() + 60 * asked.minutes
        self.round, self.taken, self.done, self.failed = [], {}, 0, 0

    def work(self):
        while time.monotonic() < self.ends:
            with self.lock:
                while not self.round:
                    self.round = [test for test in self.tests if self.chance.random() < USUAL / max(USUAL, self.taken.get(test, 0))]
                    self.chance.shuffle(self.round)
                test, seed, (one_in, most) = self.round.pop(), self.chance.randrange(1 << 31), self.chance.choice(WAYS)
            self.one(test, ["--seed", str(seed), "--one-in", str(one_in), "--most", str(most)], seed)

    def one(self, test, late, seed):
        binary, folder, name = test
        command = [str(LATE.resolve()), *late, "--", str(binary), "--exact", name]
        begin = time.monotonic()
        # In a session of its own: what it leaves behind when it is cut off is cut off as well.
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            said, how = process.communicate(timeout=self.asked.patience)[0], process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, how = process.communicate()[0], f"cut off after {self.asked.patience:g} s"
        with self.lock:
            self.taken[test] = time.monotonic() - begin
            self.done += 1
            if how != 0:
                self.failed += 1
                kept = self.asked.out / f"{name.replace('::', '.')}.{seed}"
                kept.write_bytes(said)
                print(f"{name}: {how}; {kept}\n    cd {folder} && {shlex.join(command)}", flush=True)


if __name__ == "__main__":
    main()
