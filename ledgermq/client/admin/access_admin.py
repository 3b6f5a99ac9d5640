"""Administration of users, rights and quotas."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ledgermq.client.blocking.broker import Broker
from ledgermq.client.core.answers import Fields, rows
from ledgermq.client.core.asked import asked
from ledgermq.client.core.questions import ask
from ledgermq.client.core.requests import Result, Steps
from ledgermq.model.errors import ProtocolError

Mode = Literal["add", "alter", "set"]


class UserRow(NamedTuple):
    """A user as the broker tells of it; rights as ``orders=PUB|SUB``. No secret is ever told."""

    user: str
    admin: bool
    public_keys: tuple[str, ...]
    has_secret_key: bool
    addresses: str
    default_topic: str
    default_group: str
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    cluster: bool = False
    """The home of the cluster says so, and not the group."""


class QuotaRow(NamedTuple):
    """What an owner (``topic:NAME``, ``user:NAME``, ``client:NAME``) may a second; 0: no limit."""

    owner: str
    produce_bytes: int
    produce_messages: int
    consume_bytes: int
    consume_messages: int
    cluster: bool = False
    """The home of the cluster says so, and not the group."""


class AccessVerbs:
    """What only admins may ask for, and order."""

    @asked
    def users(self) -> Steps[list[UserRow]]:
        """All users by name.

        Raises:
            NoPermissionError: this client is no admin there.
        """
        return rows((yield from ask("acl_list")), "users", _user_row)

    @asked
    def set_user(
        self, user: str, fields: Fields, *, mode: Mode, cluster: bool = False
    ) -> Steps[UserRow]:
        """Add a user, or alter those fields of one; in force when this returns.

        Args:
            fields: as in ``plain_acl.yml``, and ``publicKeys``; what is left out stays.
            mode: ``add`` refuses a user that exists, ``alter`` one that does not.
            cluster: for all groups of the cluster, whose home the node's group has to be.

        Raises:
            ConfigError: a field cannot be used, or the user exists, or does not.
            NoPermissionError: this client is no admin there.
        """
        answer = yield from ask(
            "acl_set", user=user, fields=dict(fields), mode=mode, **_of(cluster)
        )
        return _user_row(answer.get("user"))

    @asked
    def remove_user(self, user: str, *, cluster: bool = False) -> Steps[None]:
        """Have no such user any more; its connections are refused everything from now on.

        Raises:
            ConfigError: there is none.
            NoPermissionError: this client is no admin there.
        """
        yield from ask("acl_remove", user=user, **_of(cluster))

    @asked
    def quotas(self) -> Steps[list[QuotaRow]]:
        """All quotas that are no settings, by owner.

        Raises:
            NoPermissionError: this client is no admin there.
        """
        return rows((yield from ask("quota_list")), "quotas", _quota_row)

    @asked
    def set_quota(
        self,
        owner: str,
        *,
        produce_bytes: int | None = None,
        produce_messages: int | None = None,
        consume_bytes: int | None = None,
        consume_messages: int | None = None,
        cluster: bool = False,
    ) -> Steps[QuotaRow]:
        """Give an owner a quota of its own; in force when this returns.

        Args:
            produce_bytes: as the others a second; 0: no limit, None: as it is.

        Raises:
            ConfigError: the owner or a number cannot be one.
            NoPermissionError: this client is no admin there.
        """
        numbers = {
            "produceBytes": produce_bytes,
            "produceMessages": produce_messages,
            "consumeBytes": consume_bytes,
            "consumeMessages": consume_messages,
        }
        given = {key: number for key, number in numbers.items() if number is not None}
        asking = ask("quota_set", owner=owner, fields=given, **_of(cluster))
        return _quota_row((yield from asking))

    @asked
    def remove_quota(self, owner: str, *, cluster: bool = False) -> Steps[None]:
        """Let the settings hold for ``owner`` again.

        Raises:
            ConfigError: it has no quota of its own.
            NoPermissionError: this client is no admin there.
        """
        yield from ask("quota_remove", owner=owner, **_of(cluster))


class AccessAdmin(AccessVerbs):
    """The verbs over a broker's connection; one thread at a time may use it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def run(self, steps: Steps[Result]) -> Result:
        """See ``Broker.run``."""
        return self._broker.run(steps)


def _of(cluster: bool) -> dict[str, bool]:
    return {"cluster": True} if cluster else {}


def _user_row(row: object) -> UserRow:
    if not isinstance(row, dict) or not isinstance(row.get("user"), str):
        raise ProtocolError("row of a user is not an object", row=row)
    return UserRow(
        user=row["user"],
        admin=bool(row.get("admin", False)),
        public_keys=_texts(row, "publicKeys"),
        has_secret_key=bool(row.get("hasSecretKey", False)),
        addresses=str(row.get("whiteRemoteAddress", "")),
        default_topic=str(row.get("defaultTopicPerm", "DENY")),
        default_group=str(row.get("defaultGroupPerm", "DENY")),
        topics=_texts(row, "topicPerms"),
        groups=_texts(row, "groupPerms"),
        cluster=row.get("cluster") is True,
    )


def _quota_row(row: object) -> QuotaRow:
    if not isinstance(row, dict) or not isinstance(row.get("owner"), str):
        raise ProtocolError("row of a quota is not an object", row=row)
    keys = ("produceBytes", "produceMessages", "consumeBytes", "consumeMessages")
    numbers = [row.get(key, 0) for key in keys]
    if not all(isinstance(number, int) for number in numbers):
        raise ProtocolError("quota with something else than numbers", row=row)
    return QuotaRow(row["owner"], *numbers)._replace(cluster=row.get("cluster") is True)


def _texts(row: Fields, name: str) -> tuple[str, ...]:
    value = row.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ProtocolError("field not a list of texts", field=name)
    return tuple(value)
