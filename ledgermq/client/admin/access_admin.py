"""Administration of users, rights and quotas."""

from __future__ import annotations

from ledgermq.client.blocking.broker import Broker
from ledgermq.client.core.requests import Result, Steps
from ledgermq.client.core.table_verbs import verb
from ledgermq.verbs import access


class AccessVerbs:
    """What only admins may ask for, and order."""

    users = verb(access.ListUsers)
    set_user = verb(access.SetUser)
    remove_user = verb(access.RemoveUser)
    quotas = verb(access.ListQuotas)
    set_quota = verb(access.SetQuota)
    remove_quota = verb(access.RemoveQuota)


class AccessAdmin(AccessVerbs):
    """The verbs over a broker's connection; one thread at a time may use it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def run(self, steps: Steps[Result]) -> Result:
        """See ``Broker.run``."""
        return self._broker.run(steps)
