#!/usr/bin/env python3
"""Builds the workspace's tests, checks them with clippy in the same build, and runs them in groups that do not disturb one another.

    scripts/run_tests.py [--soak MINUTES] [--seed N] [--list] [WORD...]

With WORDs only the tests whose `binary::test` name contains one of them run. docs/testing.md describes the groups.

cargo-nextest is not used: it runs each test in a process of its own, and the tests of the file system group share file systems that take longer
to mount than most tests run."""

import argparse
import collections
import contextlib
import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Test executables whose tests run as threads of one process. The tests of every other executable have a process each.
PURE = {"haul_model", "haul_digest", "haul_plan", "haul_proto", "haul_log", "haul_udp", "haul_browser", "digests", "proto", "udp", "repo_rules"}
FILE_SYSTEM = {
    "haul_coreutils", "coreutils", "haul_engine", "engine", "haul_lab", "haul_net", "haul_storage", "haul_sys", "log", "net", "storage", "system",
}
# Tests of programs that share file systems of every kind, by the beginning of their name.
SHARED_FILE_SYSTEMS = (
    "cli::filesystems::",
    "cli::matrix::",
    "cli::remote::matrix::",
    "cli::repair::generated::",
    "cli::repair::shared::",
    "cli::waybill::copied::",
    "cli::waybill::stored::",
)
# Tests of these executables that need a process each all the same, by the beginning of their name: they release a lock and take it again,
# remove a file and count on its space, or run a copy of their program, and a child that another test forks has the file open until exec.
OWN_PROCESS = (
    "engine::log::",
    "engine::transfer::",
    "haul_engine::transfer::sink::session_lock::",
    "haul_engine::log::",
    "haul_lab::mounts::",
    "storage::local::",
)
# Tests that measure memory, scheduling or time, and those of a browser, which has a dozen processes of its own, by the beginning of their
# name. Each has the machine to itself.
EXCLUSIVE = (
    "cli::faults::memory::",
    "cli::bench::",
    "cli::remote::page::",
    "cli::remote::slow::busy_processors_are_named_as_the_bottleneck",
)

GROUPS = ("pure", "file system", "process", "exclusive")
# Processes at a time, and test threads in each. Tests of processes mostly wait for the programs that they start.
WIDTH = {"pure": (2, 1), "file system": (2, 3), "process": (6, 1), "exclusive": (1, 1)}
# Seconds after which one process is killed with everything that it started.
LIMIT = {"pure": 300, "file system": 600, "process": 120, "exclusive": 300}
# The seed of all property tests in CI. Soak runs draw others.
SEED = 20261121
# More inconclusive attempts than this fail a run.
INCONCLUSIVE_MAX = 5
SLOWEST = 20
# Leaders of the process groups that run.
RUNNING = set()

TEST_LINE = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)(?:, [^<]*)?(?: <([0-9.]+)s>)?$")

INCONCLUSIVE_LINE = re.compile(r"INCONCLUSIVE [^\n]*\n")


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("--soak", type=float, metavar="MINUTES", help="repeat the tests in drawn order, with random seeds, full matrices and late system calls")
    options.add_argument("--seed", type=int, help="seed of the property tests and of the order of a soak run")
    options.add_argument("--list", action="store_true", help="print the tests with their groups and exit")
    options.add_argument("words", nargs="*")
    asked = options.parse_args()
    # A shell that starts this in the background may have these ignored, and children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    tests = [test for test in build() if not asked.words or any(word in test.full for word in asked.words)]
    if not tests:
        sys.exit("run_tests.py: no test's name contains one of these words")
    if asked.list:
        for test in tests:
            print(f"{test.group}: {test.full}")
        return
    remove_leftovers()
    # A short path: addresses of Unix sockets hold 107 bytes.
    home = Path(tempfile.mkdtemp(prefix="haul-tests-", dir="/tmp"))
    home.chmod(0o755)
    try:
        failed = soak(asked, tests, home) if asked.soak else Run(tests, home, asked.seed or int(os.environ.get("PROPTEST_RNG_SEED", SEED))).whole()
    finally:
        # After a signal, some still run.
        for process in list(RUNNING):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
        remove_leftovers(home)
    sys.exit(1 if failed else 0)


class Test(collections.namedtuple("Test", "binary name folder executable")):
    """One test: the name of its executable's target, its name there, the folder it runs in and the executable."""

    @property
    def full(self):
        return f"{self.binary}::{self.name}"

    @property
    def group(self):
        if self.full.startswith(EXCLUSIVE):
            return "exclusive"
        if self.full.startswith(OWN_PROCESS):
            return "process"
        if self.full.startswith(SHARED_FILE_SYSTEMS):
            return "file system"
        return "pure" if self.binary in PURE else "file system" if self.binary in FILE_SYSTEM else "process"


def build():
    """Compiles every test with clippy as the compiler, so that lints and tests share one build, and lists the tests."""
    environment = os.environ | {"RUSTC_WORKSPACE_WRAPPER": "clippy-driver", "CLIPPY_ARGS": "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__"}
    if os.environ.get("CI") == "true":
        environment["CARGO_INCREMENTAL"] = "0"
    command = ["cargo", "test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics", "--quiet"]
    built = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=False)
    if built.returncode != 0:
        sys.exit("run_tests.py: the tests do not build")
    tests = []
    for message in map(json.loads, built.stdout.splitlines()):
        if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            binary, executable, folder = message["target"]["name"].replace("-", "_"), message["executable"], Path(message["manifest_path"]).parent
            listed = subprocess.run([executable, "--list"], cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout
            tests += [Test(binary, line.removesuffix(": test"), folder, executable) for line in listed.splitlines() if line.endswith(": test")]
    return tests


class Run:
    """One run of some tests and what came of each."""

    def __init__(self, tests, home, seed, late=None, limit_factor=1):
        self.tests, self.home, self.seed, self.late, self.limit_factor = tests, home, seed, late, limit_factor
        self.lock = threading.Lock()
        self.took, self.passed, self.failed, self.skipped, self.inconclusive = {}, set(), {}, {}, []
        self.group_time, self.processor, self.used = {}, collections.Counter(), {}

    def whole(self):
        """Runs every group after the other and prints the tables. Returns whether the run failed."""
        for group in GROUPS:
            begin = time.monotonic()
            self.one_group(group)
            self.group_time[group] = time.monotonic() - begin
        return self.report()

    def one_group(self, group):
        tests = [test for test in self.tests if test.group == group]
        if group in ("pure", "file system"):
            together = collections.defaultdict(list)
            for test in tests:
                together[test.executable].append(test)
            batches = list(together.values())
        else:
            batches = [[test] for test in tests]
        # Long batches first: none of them is left alone at the end.
        before = known_times()
        batches.sort(key=lambda batch: -sum(before.get(test.full, 0) for test in batch))
        processes, threads = WIDTH[group]
        queue = collections.deque(batches)

        def work():
            while True:
                with self.lock:
                    if not queue:
                        return
                    batch = queue.popleft()
                self.batch(batch, group, threads)

        workers = [threading.Thread(target=work, daemon=True) for _ in range(min(processes, len(batches)))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def batch(self, batch, group, threads):
        """Runs these tests of one executable in one process, in namespaces of its own."""
        begin = time.monotonic()
        limit = LIMIT[group] * self.limit_factor
        output, how, processor = self.process(batch, threads, limit)
        took = time.monotonic() - begin
        # A test prints these itself, perhaps between its name and its result.
        inconclusive = INCONCLUSIVE_LINE.findall(output)
        states = {}
        for line in INCONCLUSIVE_LINE.sub("", output).splitlines():
            if found := TEST_LINE.match(line.strip()):
                states[found[1]] = (found[2], float(found[3] or 0))
        with self.lock:
            self.processor[group] += processor
            if len(batch) == 1:
                self.used[batch[0]] = processor
            for line in inconclusive:
                self.inconclusive.append(line.rstrip())
                print(self.inconclusive[-1], flush=True)
            for test in batch:
                state, seconds = states.get(test.name, (None, 0))
                self.took[test] = took if len(batch) == 1 else seconds
                if skipped := re.search(rf"^test {re.escape(test.name)} \.\.\. (skipped: .*)$", output, re.M):
                    self.skipped[test] = skipped[1]
                elif state == "ok":
                    self.passed.add(test)
                elif state == "ignored":
                    self.skipped[test] = "ignored"
                elif state == "FAILED":
                    self.fail(test, report_of(output, test.name))
                # Without a line of its own: what ended its process ended it.
                else:
                    self.fail(test, f"its process ended: {how}\n{output[-20_000:]}" if len(batch) == 1 or "in time" in how else f"its process ended: {how}")
            if how not in ("status 0", "status 101") or (how == "status 101" and not any(test in self.failed for test in batch)):
                self.fail(batch[0], f"its process ended: {how}\n{output[-20_000:]}")

    def fail(self, test, text):
        if test not in self.failed:
            self.passed.discard(test)
            self.failed[test] = text
            print(f"FAILED {test.full}", flush=True)

    def process(self, batch, threads, limit):
        first = batch[0]
        listed = [test.name for test in batch]
        command = [first.executable, "-Zunstable-options", "--report-time", f"--test-threads={threads}", "--exact", *listed]
        command = [*self.late, "--", *command] if self.late else command
        # What the threads of one process measure of one another's time is not to be measured: tests that are alone are.
        folder = Path(tempfile.mkdtemp(prefix="t", dir=self.home))
        folder.chmod(0o1777)
        environment = os.environ | {"RUSTC_BOOTSTRAP": "1", "PROPTEST_RNG_SEED": str(self.seed), "TMPDIR": str(folder), "RUST_BACKTRACE": "0"}
        for name in ("XDG_STATE_HOME", "CLIPPY_ARGS"):
            environment.pop(name, None)
        # Output goes to a file, which what the test leaves behind may hold open without holding up this.
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                namespaces() + command, cwd=first.folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
            RUNNING.add(process.pid)
            late = not is_over(process.pid, limit)
            if late:
                how = f"not over in time ({limit:g} s)\n{threads_of(process.pid)}"
                os.killpg(process.pid, signal.SIGKILL)
            _, status, usage = os.wait4(process.pid, 0)
            RUNNING.discard(process.pid)
            process.returncode = os.waitstatus_to_exitcode(status)
            if not late:
                how = f"status {process.returncode}"
            output.seek(0)
            text = output.read().decode(errors="replace")
        remove_tree(folder)
        return text, how, usage.ru_utime + usage.ru_stime

    def report(self):
        """Prints what failed and the tables. Returns whether the run failed."""
        for test, text in self.failed.items():
            print(f"\n==== {test.full} ({test.group}), PROPTEST_RNG_SEED={self.seed}\n{text.rstrip()}")
        for test, why in self.skipped.items():
            print(f"skipped {test.full}: {why}")
        print(f"\nThe slowest {SLOWEST} tests (elapsed time, processor time):")
        for test, seconds in sorted(self.took.items(), key=lambda each: -each[1])[:SLOWEST]:
            used = f"{self.used[test]:.1f} s" if test in self.used else ""
            print(f"{seconds:8.1f} s {used:>9}  {test.group:12} {test.full}")
        for group in GROUPS:
            of_group = [test for test in self.took if test.group == group]
            print(f"{self.group_time.get(group, 0):8.1f} s {self.processor[group]:7.1f} s  {group}: {len(of_group)} tests")
        print(f"{len(self.inconclusive)} inconclusive attempts")
        too_many = len(self.inconclusive) > INCONCLUSIVE_MAX
        if too_many:
            print(f"FAILED: more than {INCONCLUSIVE_MAX} attempts were inconclusive")
        strict = os.environ.get("HAUL_REQUIRE_ALL") == "1" and self.skipped
        if strict:
            print("FAILED: HAUL_REQUIRE_ALL=1 allows no skipped test")
        keep_times({test.full: seconds for test, seconds in self.took.items()})
        print(f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.skipped)} skipped", flush=True)
        return bool(self.failed) or too_many or bool(strict)


def soak(asked, tests, home):
    """Runs tests until the time is over, each by itself, in drawn order: with a random seed, full matrices, and every second time with late system calls."""
    seed = asked.seed if asked.seed is not None else random.randrange(1 << 31)
    print(f"soak run with --seed {seed}")
    os.environ["HAUL_SOAK"] = "1"
    chance, ends, lock = random.Random(seed), time.monotonic() + 60 * asked.soak, threading.Lock()
    order, failed, count = [], [], [0]
    # One call in N is late, by at most so many milliseconds.
    ways = [(5, 3), (10, 5), (20, 40), (50, 20), (100, 60), (300, 200)]

    def work():
        while time.monotonic() < ends:
            with lock:
                if not order:
                    order.extend(chance.sample(tests, len(tests)))
                test, drawn, (one_in, most), is_late = order.pop(), chance.randrange(1 << 31), chance.choice(ways), chance.random() < 0.5
            late = [str(ROOT / "scripts/late.py"), "--seed", str(drawn), "--one-in", str(one_in), "--most", str(most)] if is_late else None
            run = Run([test], home, drawn, late, limit_factor=5)
            run.batch([test], "process", 1)
            with lock:
                count[0] += 1
                for text in run.failed.values():
                    failed.append(test)
                    print(f"==== {test.full}, PROPTEST_RNG_SEED={drawn}{', ' + ' '.join(late[1:]) if late else ''}\n{text.rstrip()}", flush=True)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(2 * (os.cpu_count() or 1))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"{count[0] - len(failed)} passed, {len(failed)} failed")
    return bool(failed)


# The first process of a process namespace: it reaps orphans, and the test below it is killed by signals as anywhere.
# `ip netns` keeps names in a folder of its own: without one for each test, names with process numbers would collide.
INIT = 'ip link set lo up && mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && "$0" "$@"; exit $?'


def namespaces():
    """The words that run a command in mount, network and process namespaces of its own, which end when this process does. Empty without the right to."""
    if os.geteuid() != 0:
        return []
    unshare = ["unshare", "--mount", "--propagation", "private", "--net", "--pid", "--mount-proc", "--fork", "--kill-child"]
    return ["setpriv", "--pdeathsig", "KILL", *unshare, "sh", "-c", INIT]


def is_over(process, seconds):
    """Waits for the end of a child for so many seconds at most, and leaves it to be waited for."""
    descriptor = os.pidfd_open(process)
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def threads_of(leader):
    """The threads of a process and of all its descendants, a line each: process, thread, state, kernel function, processor time."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
    family = {leader}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    lines = []
    for process in sorted(family):
        for thread in sorted(Path(f"/proc/{process}/task").glob("*")):
            with contextlib.suppress(OSError, IndexError):
                stat = (thread / "stat").read_text().rsplit(")", 1)[1].split()
                where = (thread / "wchan").read_text()
                lines.append(f"  {process} {thread.name} {(thread / 'comm').read_text().strip()!r} {stat[0]} {where} {int(stat[11]) + int(stat[12])} ticks")
    return "\n".join(lines)


def report_of(output, name):
    """What libtest printed of one failed test."""
    found = re.search(rf"^---- {re.escape(name)} stdout ----\n(.*?)(?=^---- \S+ stdout ----|^failures:$)", output, re.M | re.S)
    return found[1] if found else output[-20_000:]


def remove_tree(folder):
    # A test that was killed may leave directories without permissions, and immutable files.
    subprocess.run(["chmod", "-R", "u+rwx", "--", str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(home=None):
    """Removes what killed runs left and no namespace ends: folders, loop devices without a file, control groups. A folder of
    less than three hours may belong to a run that is not over."""
    for folder in [home] if home else Path("/tmp").glob("haul-tests-*"):
        if home is None and time.time() - folder.stat().st_mtime < 3 * 3600:
            continue
        remove_tree(folder)
    if os.geteuid() != 0:
        return
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        listed = subprocess.run(["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"], stdout=subprocess.PIPE, text=True, check=True).stdout
        for line in listed.splitlines():
            if "haul-lab-" in line and "(deleted)" in line:
                subprocess.run(["losetup", "--detach", line.split()[0]], check=False)
    for place in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
        for group in Path(place).glob("haul-test-*"):
            # One that still has processes stays.
            with contextlib.suppress(OSError):
                group.rmdir()


def times_file():
    return ROOT / "target" / "test-times.json"


def known_times():
    with contextlib.suppress(OSError, ValueError):
        return json.loads(times_file().read_text())
    return {}


def keep_times(times):
    with contextlib.suppress(OSError):
        times_file().write_text(json.dumps(known_times() | times))


if __name__ == "__main__":
    main()
