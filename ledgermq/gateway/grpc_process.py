"""The process of RocketMQ 5's gRPC clients: starts what answers them, which it alone imports."""

from __future__ import annotations

from ledgermq.ipc.loop import StopFlag
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError


def run(settings: Settings, stop: StopFlag) -> int:
    """Serve gRPC clients until told to stop; the exit status.

    Raises:
        ConfigError: ``listen.grpc`` cannot be listened at, a file of ``[grpc]`` cannot be used, or
            the libraries are not installed.
        StaleGenerationError: the supervisor has made no page, or another version has.
    """
    # The supervisor imports this module before it forks. Threads of gRPC's would not survive that,
    # and every process would carry the library.
    try:
        from ledgermq.gateway.rpc.service import serve
    except ModuleNotFoundError as error:
        raise ConfigError(
            "gRPC clients need libraries that are not installed: pip install 'ledgermq[grpc]'",
            missing=error.name,
            setting="listen.grpc",
        ) from error
    return serve(settings, stop)
