"""Groups of the connected clients: consumers of a topic, and subscriptions of a group."""

from __future__ import annotations

from ledgermq.gateway.clients.client_table import ClientTable


class ClientGroups:
    """Looks at the table of clients whenever it is asked."""

    def __init__(self, clients: ClientTable) -> None:
        self._clients = clients

    def consuming(self, topic: str) -> list[str]:
        """Groups of which a member subscribes to a topic now."""
        clients = self._clients
        return [name for name in clients.consumer_groups if topic in (self.topics_of(name) or ())]

    def topics_of(self, group: str) -> set[str] | None:
        """Topics that the members of a group subscribe to; None when it has no member."""
        members = self._clients.consumers(group)
        if not members:
            return None
        return {one.topic for member in members for one in member.group.subscriptions}
