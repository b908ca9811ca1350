"""A device that is slower than it is, so that what is bound by the disk can be measured where the disk outruns the processors.

The kernel's block controller limits it (blkio of the first version of control groups, at its root: written pages are
charged there, whoever wrote them). Only reads and writes while a command is measured are limited.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path

from bench_rows import MIB, Failed

CONTROLLER = Path("/sys/fs/cgroup/blkio")
LIMITS = ["blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"]


class Device:
    """The device that a directory lies on, limited to so many MiB/s each way; without a number it is as fast as it is."""

    def __init__(self, directory, rate):
        self.rate = rate and rate * MIB
        if self.rate:
            self.number = whole_device(directory)
            # What an earlier run left that was killed goes, and whoever ends this one leaves the device as it was.
            self.set(0)
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    @contextlib.contextmanager
    def limited(self):
        """Limited for as long as this lasts, however it ends."""
        if not self.rate:
            yield
            return
        self.set(self.rate)
        try:
            yield
        finally:
            self.set(0)

    def set(self, rate):
        """Bytes a second, each way; 0 for no limit."""
        for name in LIMITS:
            try:
                (CONTROLLER / name).write_text(f"{self.number} {rate}\n")
            except OSError as error:
                raise Failed(f"the device can't be limited by {CONTROLLER / name}: {error.strerror}") from error


def whole_device(directory):
    """`major:minor` of the disk that a directory lies on, a partition's too."""
    number = os.stat(directory).st_dev
    place = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    if not place.exists():
        raise Failed(f"{directory} is not on a block device, which --device-rate needs")
    disk = place.parent if (place / "partition").exists() else place
    return (disk / "dev").read_text().strip()
