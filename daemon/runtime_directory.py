"""Whether the folder of sockets and orders is the node's alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ledgermq.model.errors import ConfigError

WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def check_runtime_directory(path: Path) -> None:
    """See that nobody else can put anything into the runtime directory: orders there cut the log.

    Raises:
        ConfigError: it is another account's, or others can write to it.
    """
    found = path.stat()
    own = os.geteuid()
    if found.st_uid not in (own, 0) or found.st_mode & WRITABLE_BY_OTHERS:
        raise ConfigError(
            "others can write to the runtime directory: give it to the node's account alone",
            path=str(path),
            owner=found.st_uid,
            mode=oct(stat.S_IMODE(found.st_mode)),
            expected_owner=own,
            expected_mode=oct(0o750),
            setting="listen.runtime_dir",
        )
