"""Become a program to which a listening socket was passed, as systemd passes those of a unit.

Words: number of the descriptor, name of the unit, and the program with its words.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    given, name, *command = sys.argv[1:]
    # The first of sd_listen_fds(3).
    os.dup2(int(given), 3)
    os.environ |= {
        "LISTEN_PID": str(os.getpid()),
        "LISTEN_FDS": "1",
        "LISTEN_FDNAMES": name,
    }
    os.execvp(command[0], command)
