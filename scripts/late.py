#!/usr/bin/env python3
"""Runs a command while system calls of it, and of all that it starts, are held back by chance: what only speed keeps in order goes wrong then.

    scripts/late.py [--seed N] [--one-in N] [--most MS] -- COMMAND...

The kernel hands each call to this process before it is carried out (seccomp user notification, seccomp_unotify(2)), which lets it go on at once or
after a while. The seed draws which calls are late and for how long; which call comes first is the machine's. A thread that waits so takes
no signal meanwhile, as one that storage holds. It ends when all that was started has ended. Linux 5.19, x86-64."""

import argparse
import ctypes
import heapq
import os
import platform
import random
import select
import signal
import socket
import struct
import sys
import time

# Calls that touch files, sockets, processes and their ends, by their numbers on x86-64.
LATE = {"read": 0, "write": 1, "poll": 7, "lseek": 8, "ioctl": 16, "pread64": 17, "pwrite64": 18, "readv": 19, "writev": 20, "connect": 42,
        "sendto": 44, "recvfrom": 45, "sendmsg": 46, "recvmsg": 47, "shutdown": 48, "execve": 59, "wait4": 61, "kill": 62, "fcntl": 72,
        "flock": 73, "fsync": 74, "fdatasync": 75, "ftruncate": 77, "fchmod": 91, "fchown": 93, "getdents64": 217, "epoll_wait": 232,
        "tgkill": 234, "waitid": 247, "openat": 257, "mkdirat": 258, "newfstatat": 262, "unlinkat": 263, "linkat": 265, "ppoll": 271,
        "sync_file_range": 277, "utimensat": 280, "accept4": 288, "syncfs": 306, "renameat2": 316, "copy_file_range": 326, "statx": 332,
        "clone3": 435}
SECCOMP, PR_SET_NO_NEW_PRIVS = 317, 38
SET_MODE_FILTER, NEW_LISTENER, WAIT_KILLABLE = 1, 1 << 3, 1 << 5
# Words of a filter: load a field of what is asked, jump where it is equal, give the verdict.
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, NOTIFY = 0x7FFF0000, 0x7FC00000
NUMBER_AT, FIRST_ARGUMENT_AT = 0, 16
# struct seccomp_notif begins with the number of the notice, struct seccomp_notif_resp is that, a value, an error and flags.
NOTICE_BYTES, RECEIVE, SEND, ANSWER, GO_ON = 80, 0xC0502100, 0xC0182101, "=QqiI", 1
# The descriptor by which the listener travels; calls on it are never late, or nobody would be there to let it go.
CHANNEL = 199

libc = ctypes.CDLL(None, use_errno=True)


def main():
    ways = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    ways.add_argument("--seed", type=int, default=1)
    ways.add_argument("--one-in", type=int, default=50, help="one call in so many is late")
    ways.add_argument("--most", type=float, default=20, help="milliseconds that a late call waits at most")
    ways.add_argument("command", nargs="+")
    asked = ways.parse_args()
    if platform.machine() != "x86_64":
        sys.exit("late.py: the numbers of system calls in it are those of x86-64")
    here, there = socket.socketpair()
    child = os.fork()
    if child == 0:
        here.close()
        begin(there, asked.command)
    there.close()
    received = socket.recv_fds(here, 1, 1)[1]
    if received:
        let_go(received[0], random.Random(asked.seed), asked.one_in, asked.most / 1000)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    # As shells tell of a process that a signal ended.
    sys.exit(code if code >= 0 else 128 - code)


def begin(channel, command):
    """In the child: from here on it is watched. Does not return."""
    try:
        # A shell starts what goes on in its background with these ignored, and a program leaves them so.
        for ignored in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_DFL)
        os.dup2(channel.fileno(), CHANNEL)
        listener = listen()
        with socket.socket(fileno=CHANNEL) as way:
            socket.send_fds(way, [b"."], [listener])
        os.close(listener)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"late.py: {command[0]}: {error}\n".encode())
    os._exit(127)


def listen():
    """Puts the filter in force, and gives the descriptor by which calls are heard of."""
    words = [(LOAD, 0, 0, NUMBER_AT)]
    calls = sorted(LATE.values())
    words += [(JUMP_IF_EQUAL, len(calls) - place, 0, call) for place, call in enumerate(calls)]
    words += [(RETURN, 0, 0, ALLOW), (LOAD, 0, 0, FIRST_ARGUMENT_AT), (JUMP_IF_EQUAL, 0, 1, CHANNEL), (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, NOTIFY)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *word) for word in words))
    filled = ctypes.create_string_buffer(struct.pack("@HP", len(words), ctypes.addressof(program)))
    # Without a privilege a filter is only for those who gain none any more.
    if os.geteuid() != 0:
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    listener = libc.syscall(SECCOMP, SET_MODE_FILTER, NEW_LISTENER | WAIT_KILLABLE, filled)
    if listener < 0:
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")
    return listener


def let_go(listener, chance, one_in, most):
    """Lets calls go on, most of them at once, until nobody is left who could make one."""
    late, notice = [], ctypes.create_string_buffer(NOTICE_BYTES)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while True:
        now = time.monotonic()
        while late and late[0][0] <= now:
            answer(listener, heapq.heappop(late)[1])
        heard = poll.poll(1000 * (late[0][0] - now) if late else None)
        if any(events & select.POLLHUP for _, events in heard):
            return
        if not heard:
            continue
        ctypes.memset(notice, 0, NOTICE_BYTES)
        # Who asked may be gone by now.
        if libc.ioctl(listener, ctypes.c_ulong(RECEIVE), notice) != 0:
            continue
        number = struct.unpack_from("=Q", notice)[0]
        if chance.randrange(one_in) == 0:
            heapq.heappush(late, (time.monotonic() + chance.uniform(0, most), number))
        else:
            answer(listener, number)


def answer(listener, number):
    libc.ioctl(listener, ctypes.c_ulong(SEND), ctypes.create_string_buffer(struct.pack(ANSWER, number, 0, 0, GO_ON)))


if __name__ == "__main__":
    main()
