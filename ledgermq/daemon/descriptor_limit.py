"""Limit of open files at a start: raised as far as it may be, and told where connections suffer."""

from __future__ import annotations

import logging
import resource

from ledgermq.model.config.settings import Settings
from ledgermq.store.files.descriptor_cache import connections_allowed, raise_descriptor_limit

logger = logging.getLogger(__name__)


def raise_and_tell(settings: Settings) -> None:
    """Have the node's processes open as many files as they may; warn where settings want more."""
    raise_descriptor_limit()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = settings.limits
    most, share = connections_allowed(limits.connections_max, limits.connections_per_address)
    bounded = {
        "limits.connections_max": (limits.connections_max, most),
        "limits.connections_per_address": (limits.connections_per_address, share),
    }
    if settings.listen.remoting is not None:
        wanted = settings.remoting.connections_max
        bounded["remoting.connections_max"] = wanted, connections_allowed(wanted)[0]
    if settings.listen.http is not None:
        wanted = settings.http.connections_max
        bounded["http.connections_max"] = wanted, connections_allowed(wanted)[0]
    fewer = [
        f"{name}={allowed} instead of {wanted}"
        for name, (wanted, allowed) in bounded.items()
        if allowed < wanted
    ]
    if fewer:
        logger.warning(
            "each process may open %d files (ulimit -n, LimitNOFILE=), so fewer connections are"
            " taken than the settings say: %s",
            soft,
            ", ".join(fewer),
        )
