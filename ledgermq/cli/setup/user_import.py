"""Import of users: each becomes what its file says, and who stands in no line of it is named."""

from __future__ import annotations

from collections.abc import Mapping

from ledgermq.client.admin.broker_admins import AccessAdmin
from ledgermq.client.blocking.broker import Broker
from ledgermq.model.errors import ConfigError


def take_users(
    broker: Broker, users: Mapping[str, Mapping[str, object]], *, is_trial: bool = False
) -> tuple[str, ...]:
    """Have ``users`` be what their fields say; the names of all others that the node has.

    Those stay as they are: a file may be one of several. With ``is_trial`` nobody is changed.

    Args:
        users: all fields of each (``User.all_fields``), for a node leaves what it is not told as
            it was; without ``publicKeys`` a user keeps its CURVE keys.

    Raises:
        ConfigError: one of them is the cluster's, which its home alone changes; nobody is changed.
        NoPermissionError: this client is no admin there.
    """
    admin = AccessAdmin(broker)
    known = admin.users()
    shared = sorted(row.user for row in known if row.cluster and row.user in users)
    if shared:
        raise ConfigError(
            "users of the file are the cluster's: change them at the home of the cluster, with"
            " ledgermq acl alter --cluster, and leave them out of the file",
            users=" ".join(shared),
        )
    if not is_trial:
        for name, fields in users.items():
            admin.set_user(name, fields, mode="set")
    return tuple(row.user for row in known if row.user not in users)


def left_over_line(names: tuple[str, ...]) -> str:
    """What a command says of those whom ``take_users`` has named."""
    return f"not in it, and as they were: {', '.join(names)} (ledgermq acl remove USER)"
