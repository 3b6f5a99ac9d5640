"""The observer process: starts what answers HTTP (``service.py``), which it alone imports."""

from __future__ import annotations

from ledgermq.ipc.loop import StopFlag
from ledgermq.model.config.settings import Settings


def run(settings: Settings, stop: StopFlag) -> int:
    """Run the observer until it is told to stop; the exit status.

    Raises:
        ConfigError: ``listen.http`` cannot be listened at, or a file of ``[http]`` cannot be used.
        StaleGenerationError: the supervisor has made no page, or another version has.
    """
    # The supervisor imports this module before it forks, and every process would carry the rest.
    from ledgermq.observer.service import serve

    return serve(settings, stop)
