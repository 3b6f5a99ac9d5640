"""The process that reads sealed pieces: starts what does (``cold_worker.py``), which it imports."""

from __future__ import annotations

from ledgermq.ipc.loop import StopFlag
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError


def run(settings: Settings, stop: StopFlag) -> int:
    """Read pieces until told to stop; the exit status.

    Raises:
        ConfigError: ``cold.place`` is no place of pieces, ``cold.cache_dir`` cannot be used, or the
            libraries are not installed.
        StaleGenerationError: the supervisor has made no page, or another version has.
    """
    # The supervisor imports this module before it forks. Threads of Arrow's would not survive that,
    # and every process would carry the library.
    try:
        from ledgermq.cold.cold_worker import serve
    except ModuleNotFoundError as error:
        raise ConfigError(
            "cold reads need libraries that are not installed: pip install 'ledgermq[spark]'",
            missing=error.name,
            setting="cold.place",
        ) from error
    return serve(settings, stop)
