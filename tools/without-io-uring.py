#!/usr/bin/env python3
"""without-io-uring.py ERRNO|kill PROGRAM [ARGUMENT...]

Runs a program under a seccomp filter that refuses io_uring_setup: with an errno (1: EPERM, as kernel.io_uring_disabled and
Docker's profile do; 38: ENOSYS, as Podman's does), or by killing the process that calls it. Used by tests.
"""

import ctypes
import os
import struct
import sys

IO_URING_SETUP = 425  # the same number on every architecture
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
RET_KILL_PROCESS, RET_ERRNO, RET_ALLOW = 0x80000000, 0x00050000, 0x7FFF0000


class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def main():
    how = sys.argv[1]
    answer = RET_KILL_PROCESS if how == "kill" else RET_ERRNO | int(how)
    # Load the call's number; unless it is io_uring_setup, skip the answer.
    steps = [(0x20, 0, 0, 0), (0x15, 0, 1, IO_URING_SETUP), (0x06, 0, 0, answer), (0x06, 0, 0, RET_ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = Program(len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in [
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
    ]:
        if libc.prctl(*call) != 0:
            sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[2], sys.argv[2:])


main()
