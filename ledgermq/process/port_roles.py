"""Roles that serve RocketMQ's clients: the broker alone, or port processes."""

from __future__ import annotations

from ledgermq.ipc.cursor_page import PORTS, Role
from ledgermq.model.config.settings import Settings


def port_roles(settings: Settings) -> tuple[Role, ...]:
    """The port processes that the settings want; none where the broker serves the port itself."""
    listen, count = settings.listen, settings.remoting.processes
    if count == 1 or (listen.remoting is None and listen.name_server is None):
        return ()
    return PORTS[:count]
