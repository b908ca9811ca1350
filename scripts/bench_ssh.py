"""An SSH server of the bench's own: on this host only, for this user only, with keys made for the run. It may stand in a network
namespace, and clients in another one."""

import getpass
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

# Where Debian has the server, which is in no user's PATH.
PLACES = ["/usr/sbin/sshd", "/usr/local/sbin/sshd"]
START_SECONDS_MAX = 10


def server_program():
    """The server's path, or None where none is installed."""
    return shutil.which("sshd") or next((place for place in PLACES if Path(place).exists()), None)


class Door:
    """A running server; `options` are the words that ssh and scp need to come in, `host` is where. `there` and `here` are what
    commands begin with that run where the server is, and where its clients are."""

    def __init__(self, host="127.0.0.1", there=(), here=()):
        self.folder = tempfile.TemporaryDirectory(prefix="haul-bench-ssh-")
        home = Path(self.folder.name)
        for name in ["host", "user"]:
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home / name], check=True)
        port = self.port = 2222 if there else free_port()
        self.here = list(here)
        self.key = f"{home}/user"
        settings = [
            f"Port {port}", f"ListenAddress {host}", f"HostKey {home}/host", "StrictModes no",
            f"AuthorizedKeysFile {home}/user.pub", "PasswordAuthentication no", "PidFile none",
            "PermitRootLogin prohibit-password", "Subsystem sftp internal-sftp", "LogLevel ERROR",
        ]
        (home / "settings").write_text("\n".join(settings) + "\n")
        # Started by root, it drops its rights here before anyone has logged in.
        Path("/run/sshd").mkdir(exist_ok=True) if getpass.getuser() == "root" else None
        self.server = subprocess.Popen([*there, server_program(), "-D", "-e", "-f", home / "settings"],
                                       stderr=subprocess.DEVNULL if there else None)
        self.host = host
        self.options = []
        for option in [f"Port={port}", f"IdentityFile={home}/user", "StrictHostKeyChecking=no",
                       "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "BatchMode=yes"]:
            self.options += ["-o", option]
        self.wait_for(port)

    def wait_for(self, port):
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self.knock(port)
                return
            except (OSError, subprocess.CalledProcessError):
                if time.monotonic() > deadline or self.server.poll() is not None:
                    raise
                time.sleep(0.05)

    def knock(self, port):
        """Whether something listens, as a client finds it; raises where nothing does."""
        if not self.here:
            socket.create_connection((self.host, port), timeout=1).close()
            return
        subprocess.run([*self.here, "bash", "-c", f": < /dev/tcp/{self.host}/{port}"], check=True,
                       stderr=subprocess.DEVNULL)

    def shell(self):
        """The command that logs in, as one word for `-e`."""
        return shlex.join(["ssh", *self.options])

    def home(self):
        """A home directory whose SSH settings lead here, for tools that take no options of ssh."""
        home = Path(self.folder.name) / "home"
        settings = home / ".ssh"
        settings.mkdir(parents=True, exist_ok=True)
        words = [f"Host {self.host}", f"User {getpass.getuser()}"]
        words += [option.replace("=", " ", 1) for option in self.options if option != "-o"]
        (settings / "config").write_text("\n".join(words) + "\n")
        shutil.copy(self.key, settings / "id_ed25519")
        return str(home)

    def close(self):
        self.server.terminate()
        self.server.wait()
        self.folder.cleanup()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
