"""Exit statuses of our programs and processes."""

from __future__ import annotations

EXIT_OK = 0
EXIT_STOPPED = EXIT_OK
EXIT_CONFIG = 1
EXIT_STORAGE = 2
EXIT_BUG = 3
EXIT_REOPEN = 4
"""Another log waits to be put in place (``members/log_replacement.py``), or a damage of this
one was noted (``members/log_trouble.py``). The supervisor stops all processes, and starts them
again."""

EXIT_DESCRIPTORS = 5
"""A process could open no file more: it alone is begun anew, and no disk has failed."""

EXIT_OUTDATED = 78
"""The store needs a newer version: ``EX_CONFIG`` of ``sysexits.h``, which systemd shows by name.
Not 1, for no other settings help. systemd tries neither again."""

EXIT_INTERRUPTED = 130
"""What shells report of a command that SIGINT ended."""
