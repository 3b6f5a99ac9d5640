"""Verbs about users, their rights, and quotas."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Annotated, ClassVar, Literal, NamedTuple

from ledgermq.verbs.answers import Fields, fields_of
from ledgermq.verbs.needs import ADMIN, CHANGE, read
from ledgermq.verbs.told_rows import Wire, read_row, wire_names
from ledgermq.verbs.verb import DoneVerb, Json, Key, RowsVerb, Told, Verb

Mode = Literal["add", "alter", "set"]


class OfCluster(Verb[Told]):
    """A change that may be for all groups of the cluster, whose home the node's group has to be."""

    _: KW_ONLY
    cluster: bool = False

    def arguments(self) -> Json:
        """What goes over the wire; where it is not for the cluster that does not say so."""
        told = super().arguments()
        if not self.cluster:
            del told["cluster"]
        return told


UserName = Annotated[str, "Name of a user"]
Owner = Annotated[str, "topic:NAME, user:NAME or client:NAME"]


class UserRow(NamedTuple):
    """A user as the broker tells of it; rights as ``orders=PUB|SUB``. No secret is ever told."""

    user: str
    admin: bool = False
    public_keys: Annotated[tuple[str, ...], Wire("publicKeys")] = ()
    has_secret_key: Annotated[bool, Wire("hasSecretKey")] = False
    addresses: Annotated[str, Wire("whiteRemoteAddress")] = ""
    default_topic: Annotated[str, Wire("defaultTopicPerm")] = "DENY"
    default_group: Annotated[str, Wire("defaultGroupPerm")] = "DENY"
    topics: Annotated[tuple[str, ...], Wire("topicPerms")] = ()
    groups: Annotated[tuple[str, ...], Wire("groupPerms")] = ()
    cluster: bool = False
    """The home of the cluster says so, and not the group."""


class QuotaRow(NamedTuple):
    """What an owner (``topic:NAME``, ``user:NAME``, ``client:NAME``) may a second; 0: no limit."""

    owner: str
    produce_bytes: Annotated[int, Wire("produceBytes")] = 0
    produce_messages: Annotated[int, Wire("produceMessages")] = 0
    consume_bytes: Annotated[int, Wire("consumeBytes")] = 0
    consume_messages: Annotated[int, Wire("consumeMessages")] = 0
    cluster: bool = False
    """The home of the cluster says so, and not the group."""


UserFields = Annotated[
    Fields,
    Key("topicPerms", list, "As orders=PUB|SUB, or DENY; in the place of those before"),
    Key("groupPerms", list, "As billing=SUB, or DENY; in the place of those before"),
    Key("defaultTopicPerm", str, "For topics that are not named"),
    Key("defaultGroupPerm", str, "For groups that are not named"),
    Key("publicKeys", list, "CURVE keys (Z85)"),
    Key("whiteRemoteAddress", str, "Known by these addresses alone"),
    Key("admin", bool, "Whether it is an admin"),
    Key("secretKey", str, "Key of RocketMQ's clients; it is never told"),
]


class ListUsers(RowsVerb[UserRow]):
    """All users by name.

    Raises:
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "acl_list"
    NEEDS: ClassVar = read(ADMIN)
    ROWS: ClassVar = "users", UserRow


class SetUser(OfCluster[UserRow]):
    """Add a user, or alter those fields of one; in force when this returns.

    Args:
        fields: as in ``plain_acl.yml``, and ``publicKeys``; what is left out stays.
        mode: ``add`` refuses a user that exists, ``alter`` one that does not.
        cluster: for all groups of the cluster, whose home the node's group has to be.

    Raises:
        ConfigError: a field cannot be used, or the user exists, or does not.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "acl_set"
    NEEDS: ClassVar = CHANGE
    SHAPE: ClassVar = {
        "user": "string", "admin": "boolean", "public_keys": "array", "has_secret_key": "boolean",
        "cluster": "boolean", "addresses": "string", "default_topic": "string",
        "default_group": "string", "topics": "array", "groups": "array",
    }  # fmt: skip

    user: UserName
    fields: UserFields
    _: KW_ONLY
    mode: Mode

    def told(self, answer: Fields) -> UserRow:
        """The user as it is now."""
        return read_row(UserRow, fields_of(answer, "user"))


class RemoveUser(OfCluster[None], DoneVerb):
    """Have no such user any more; its connections are refused everything from now on.

    Raises:
        ConfigError: there is none.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "acl_remove"
    NEEDS: ClassVar = CHANGE
    DONE: ClassVar = "removed", "user"

    user: UserName


class ListQuotas(RowsVerb[QuotaRow]):
    """All quotas that are no settings, by owner.

    Raises:
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "quota_list"
    NEEDS: ClassVar = read(ADMIN)
    ROWS: ClassVar = "quotas", QuotaRow


_A_SECOND = "A second; 0: no limit"
_QUOTA_NAMES = {name: wire for name, wire in wire_names(QuotaRow).items() if name != wire}


class SetQuota(OfCluster[QuotaRow]):
    """Give an owner a quota of its own; in force when this returns.

    Args:
        produce_bytes: as the others a second; 0: no limit, None: as it is.
        ahead: also of a topic that is not there yet; those of a cluster may be anywhere.

    Raises:
        ConfigError: the owner or a number cannot be one.
        TopicUnknownError: there is no such topic; its name may be misspelt.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "quota_set"
    NEEDS: ClassVar = CHANGE
    ROW: ClassVar = QuotaRow

    owner: Owner
    _: KW_ONLY
    produce_bytes: Annotated[int | None, _A_SECOND] = None
    produce_messages: Annotated[int | None, _A_SECOND] = None
    consume_bytes: Annotated[int | None, _A_SECOND] = None
    consume_messages: Annotated[int | None, _A_SECOND] = None
    ahead: Annotated[bool, "Also of a topic that is not there yet"] = False

    def arguments(self) -> Json:
        """The numbers stand in an object of their own."""
        told = super().arguments()
        numbers = {wire: told.pop(name) for name, wire in _QUOTA_NAMES.items() if name in told}
        return {**told, "fields": numbers}


class RemoveQuota(OfCluster[None], DoneVerb):
    """Let the settings hold for ``owner`` again.

    Raises:
        ConfigError: it has no quota of its own.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "quota_remove"
    NEEDS: ClassVar = CHANGE
    DONE: ClassVar = "removed", "owner"

    owner: Owner
