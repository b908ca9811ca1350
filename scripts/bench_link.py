"""Two hosts on this machine for the network bench: namespaces joined by a link, and the servers that run at its far end."""

import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import bench_ssh

FAR = "10.77.0.2"
START_SECONDS_MAX = 20


@dataclass(frozen=True)
class Way:
    """Properties of a link: milliseconds of a round trip, megabits per second (0: as many as this machine carries), percent of
    packets lost in each direction."""

    round_trip: float = 0
    mbit: int = 0
    loss: float = 0

    def __str__(self):
        rate = f"{self.mbit / 1000:g} Gbit/s" if self.mbit else "no limit"
        return f"{self.round_trip:g} ms, {rate}" + (f", {self.loss:g} % loss" if self.loss else "")


class Link:
    """A link that stands: two network namespaces, made and removed by `haul-lab link`."""

    def __init__(self, lab, way):
        self.name = f"haul-bench-{os.getpid()}"
        command = [lab, "link", self.name, "--round-trip", str(way.round_trip)]
        command += ["--rate", f"{way.mbit}M"] if way.mbit else []
        # Buffers of TCP for long links, so that they are not measured.
        command += ["--loss", f"{way.loss}%", "--tcp-buffers", "64M"] if way.loss else []
        # A signal to this run's group is not for it: it takes its namespaces down when its input ends.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        start_new_session=True)
        self.sides = [line.split()[0] for line in (self.process.stdout.readline() for _ in range(2)) if line.strip()]
        if len(self.sides) != 2:
            raise OSError("haul-lab link made no link")

    def near(self):
        """What a command of the near host begins with."""
        return self.at(0)

    def far(self):
        return self.at(1)

    def at(self, side):
        return ["nsenter", f"--net=/run/netns/{self.sides[side]}"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=START_SECONDS_MAX)


@dataclass
class Servers:
    """What runs at the far host for the tools of a row; started when a tool first needs it, ended with the row."""

    link: Link
    folder: Path
    door: bench_ssh.Door | None = None
    running: dict = field(default_factory=dict)

    def words(self, needed):
        """Starts what is needed, and gives the words that commands are filled in with. None where it is not installed."""
        makers = {"ssh": self.ssh, "rsyncd": self.rsyncd, "xrootd": self.xrootd, "gridftp": self.gridftp,
                  "iperf3": self.iperf3, "uftpd": self.uftpd}
        if needed not in self.running:
            self.running[needed] = makers[needed]()
        return self.running[needed]

    def ssh(self):
        if not bench_ssh.server_program():
            return None
        self.door = bench_ssh.Door(FAR, self.link.far(), self.link.near())
        return {"{ssh}": self.door.shell(), "{ssh options}": self.door.options, "{ssh key}": self.door.key,
                "{ssh port}": str(self.door.port), "{ssh home}": self.door.home(),
                "{ssh -S}": [word for option in self.door.options for word in ["-S", option]]}

    def rsyncd(self):
        if not shutil.which("rsync"):
            return None
        settings = self.folder / "rsyncd.conf"
        settings.write_text(f"use chroot = no\nuid = 0\ngid = 0\n[copies]\npath = {self.folder}\nread only = no\n")
        return self.serve(["rsync", "--daemon", "--no-detach", f"--config={settings}", f"--address={FAR}",
                           "--port=8730", "--log-file=/dev/null"], 8730)

    def xrootd(self):
        program = shutil.which("xrootd")
        if not program:
            return None
        # It refuses root's rights: whoever it becomes must be able to write there.
        home = self.folder / "xrootd"
        home.mkdir(mode=0o777, exist_ok=True)
        home.chmod(0o777)
        settings = home / "settings"
        settings.write_text(f"all.export /\nxrd.port 1094\nall.adminpath {home}\nall.pidpath {home}\nxrootd.async off\n")
        return self.serve([program, "-c", str(settings), "-R", "nobody", "-l", str(home / "log")], 1094)

    def gridftp(self):
        program = shutil.which("globus-gridftp-server")
        if not program:
            return None
        return self.serve([program, "-p", "2811", "-aa", "-anonymous-user", "root", "-data-interface", FAR, "-no-detach",
                           "-allow-root"], 2811)

    def iperf3(self):
        return self.serve(["iperf3", "-s", "-B", FAR], 5201) if shutil.which("iperf3") else None

    def uftpd(self):
        if not shutil.which("uftpd"):
            return None
        command = ["uftpd", "-d", "-D", str(self.folder), "-I", FAR, "-B", "16777216", "-t"]
        self.running["process uftpd"] = subprocess.Popen(self.link.far() + command, stdout=subprocess.DEVNULL,
                                                         stderr=subprocess.DEVNULL)
        sockets = Path(f"/proc/{self.running['process uftpd'].pid}/net/udp")
        deadline = time.monotonic() + START_SECONDS_MAX
        # Its port 1044 in hexadecimal.
        while ":0414 " not in sockets.read_text():
            if time.monotonic() > deadline:
                return None
            time.sleep(0.05)
        return {}

    def serve(self, command, port):
        """Starts a server of the far host and waits until it listens."""
        process = subprocess.Popen(self.link.far() + command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.running[f"process {port}"] = process
        deadline = time.monotonic() + START_SECONDS_MAX
        probe = self.link.near() + ["bash", "-c", f": < /dev/tcp/{FAR}/{port}"]
        while subprocess.run(probe, stderr=subprocess.DEVNULL).returncode:
            if time.monotonic() > deadline or process.poll() is not None:
                return None
            time.sleep(0.1)
        return {}

    def close(self):
        for running in self.running.values():
            if isinstance(running, subprocess.Popen):
                running.terminate()
                try:
                    running.wait(timeout=START_SECONDS_MAX)
                except subprocess.TimeoutExpired:
                    running.kill()
                    running.wait()
        if self.door:
            self.door.close()
