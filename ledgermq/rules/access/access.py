"""User table: names, keys and rights of users. ``ROOT/ledgermq/access.json``.

    {"users": {NAME: {
        "admin": false, "publicKeys": [Z85, ...], "secretKey": TEXT, "whiteRemoteAddress": TEXT,
        "defaultTopicPerm": PERM, "defaultGroupPerm": PERM,
        "topicPerms": ["TOPIC=PERM", ...], "groupPerms": ["GROUP=PERM", ...]}},
     "clusterUsers": {NAME: {...}}, "clusterUsersTooOld": FLAG}

Names and meaning are those of RocketMQ's ``plain_acl.yml``; PERM is ``DENY``, ``PUB``, ``SUB`` or
``PUB|SUB``. ``publicKeys`` are ours: CURVE keys. A ``secretKey`` can be had back, for whoever
checks RocketMQ's signatures needs the secret itself; a hash would not do. It is sealed where the
group has a key for that (``sealed_secret``). The file is only for the node's user.

``clusterUsers`` are those of the cluster that the group belongs to, from the rows of its home, for
whoever reads the file alone; there are none below feature level 3. Where a name is in both, the
cluster's user is it. When what the group has of them is too old they stand there without rights.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

from ledgermq.model.errors import ConfigError
from ledgermq.model.limits import FORBIDDEN_TOPICS
from ledgermq.model.names.group_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ledgermq.model.names.system_topics import TRACE_TOPIC
from ledgermq.model.rights import Right
from ledgermq.rules.access.remote_address import check_pattern
from ledgermq.rules.access.sealed_secret import SEALED_SIZE_MAX, is_sealed
from ledgermq.rules.tables.documents import Document, read_flag, read_table
from ledgermq.rules.tables.table import Table
from ledgermq.rules.tables.table_changes import UserSet

FILE = "access.json"
USERS_KEY = "users"
CLUSTER_USERS_KEY = "clusterUsers"
TOO_OLD_KEY = "clusterUsersTooOld"
PLAIN_TEXTS = ("secretKey", "whiteRemoteAddress", "defaultTopicPerm", "defaultGroupPerm")
PLAIN_LISTS = ("topicPerms", "groupPerms")
"""Fields of an account as RocketMQ's ``plain_acl.yml`` and tools write it."""

PUBLIC_KEYS = "publicKeys"

NAME_SIZE_MAX = 127
SECRET_SIZE_MIN, SECRET_SIZE_MAX = 7, 255
"""RocketMQ refuses access keys and secrets of six characters."""

PUBLIC_KEYS_MAX = 16
PERMS_MAX = 10_000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]*")
_PUBLIC_KEY = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_RESOURCE = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")


_RIGHTS = {
    "DENY": Right.DENY,
    "PUB": Right.PUB,
    "SUB": Right.SUB,
    "PUB|SUB": Right.PUB | Right.SUB,
    "SUB|PUB": Right.PUB | Right.SUB,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Who may do what.

    Attributes:
        public_keys: CURVE keys (Z85) by which the user is known over tcp.
        secret: for RocketMQ's signatures, sealed or not; empty: the user cannot sign.
        addresses: RocketMQ's ``whiteRemoteAddress``: who comes from there needs no key.
        default_topic, default_group: for what ``topics`` and ``groups`` do not name.
        too_old: the cluster's, and what the group has of its rights is too old: it has none now.
    """

    name: str
    admin: bool = False
    public_keys: tuple[str, ...] = ()
    secret: str = ""
    addresses: str = ""
    default_topic: Right = Right.DENY
    default_group: Right = Right.DENY
    topics: Mapping[str, Right]
    groups: Mapping[str, Right]
    too_old: bool = False

    @classmethod
    def read(cls, name: str, value: object) -> Self:
        """The user that the table has under ``name``.

        Raises:
            ConfigError: the name or a field is not what it should be.
        """
        check_user_name(name)
        if not isinstance(value, Mapping):
            raise ConfigError("user is not a JSON object", file=FILE, user=name)
        fields = {str(key): item for key, item in value.items()}
        secret = _read_text(fields, "secretKey", owner=name)
        addresses = _read_text(fields, "whiteRemoteAddress", owner=name)
        check_pattern(addresses)
        _check_secret(secret, user=name)
        return cls(
            name=name,
            admin=read_flag(fields, "admin", False, file=FILE, owner=name),
            public_keys=_read_keys(fields, owner=name),
            secret=secret,
            addresses=addresses,
            default_topic=_read_default(fields, "defaultTopicPerm", owner=name),
            default_group=_read_default(fields, "defaultGroupPerm", owner=name),
            topics=_read_rights(fields, "topicPerms", owner=name),
            groups=_read_rights(fields, "groupPerms", owner=name),
        )

    def to_fields(self) -> dict[str, object]:
        """The JSON object, without what has its default."""
        fields = self.all_fields()
        return {key: value for key, value in fields.items() if value not in (False, "", [], "DENY")}

    def all_fields(self) -> dict[str, object]:
        """The JSON object with what has its default: it leaves nothing of another one beside it."""
        return {
            "admin": self.admin,
            "defaultGroupPerm": self.default_group.text,
            "defaultTopicPerm": self.default_topic.text,
            "groupPerms": _texts(self.groups),
            PUBLIC_KEYS: list(self.public_keys),
            "secretKey": self.secret,
            "topicPerms": _texts(self.topics),
            "whiteRemoteAddress": self.addresses,
        }

    def may_use_topic(self, topic: str, right: Right) -> bool:
        """Whether the user has ``right`` to a topic; those of retries belong to their group."""
        if topic.startswith(RETRY_PREFIX):
            return self.may_use_group(topic.removeprefix(RETRY_PREFIX))
        if topic.startswith(DEAD_LETTER_PREFIX):
            return self.may_use_group(topic.removeprefix(DEAD_LETTER_PREFIX))
        if topic == TRACE_TOPIC and right is Right.PUB:
            return True
        # What lies in these belongs to other topics: nobody has a right to them by default.
        default = Right.DENY if topic in FORBIDDEN_TOPICS else self.default_topic
        return self._may(self.topics.get(topic, default), right)

    def may_use_group(self, group: str) -> bool:
        """Whether the user may consume as ``group``."""
        return self._may(self.groups.get(group, self.default_group), Right.SUB)

    def _may(self, owned: Right, right: Right) -> bool:
        # As in RocketMQ: what is said explicitly binds an admin, too.
        if self.admin and not self.topics and not self.groups:
            return True
        return bool(owned & right)


class UserTable(Table[UserSet]):
    """All users by name, the group's own and the cluster's.

    Invariants: a public key belongs to one user at most, the cluster's first; ``_users`` has all
    of the cluster's, and the own ones that have another name.
    """

    file = FILE
    takes = (UserSet,)

    def __init__(self) -> None:
        super().__init__()
        self._own: dict[str, User] = {}
        self._of_cluster: dict[str, User] = {}
        self._rows: Mapping[str, object] = {}
        self._too_old = False
        self._users: dict[str, User] = {}
        self._owners: dict[str, str] = {}

    @classmethod
    def read(cls, document: Document) -> Self:
        table = cls()
        for name, fields in read_table(document, USERS_KEY, file=FILE).items():
            table.put(User.read(name, fields))
        shared = read_table(document, CLUSTER_USERS_KEY, file=FILE)
        if shared:
            too_old = read_flag(document, TOO_OLD_KEY, False, file=FILE, owner=FILE)
            table.follow_cluster(shared, too_old=too_old)
        return table

    def to_document(self) -> dict[str, object]:
        told: dict[str, object] = {USERS_KEY: _fields_of(self._own)}
        shared = _fields_of(self._of_cluster)
        if shared:
            told[CLUSTER_USERS_KEY] = shared
            if self._too_old:
                told[TOO_OLD_KEY] = True
        return told

    def __iter__(self) -> Iterator[User]:
        """All users by name."""
        return iter([self._users[name] for name in sorted(self._users)])

    def __len__(self) -> int:
        return len(self._users)

    def get(self, name: str) -> User | None:
        """The user called ``name``."""
        return self._users.get(name)

    def is_of_cluster(self, name: str) -> bool:
        """Whether the home of the cluster says who ``name`` is."""
        return name in self._of_cluster

    def follow_cluster(self, rows: Mapping[str, object], *, too_old: bool) -> bool:
        """Have the cluster's users as the rows of its home say; whether that changes anything.

        One that this version cannot read is there, and has no rights: its own one of that name, or
        an older row, may have had more. So have all when the rows are ``too_old``.
        """
        known = self._rows if too_old == self._too_old else {}
        self._rows, self._too_old = rows, too_old
        fresh: dict[str, User] = {}
        for name, row in rows.items():
            # Most are those of before: one row changes at a time.
            same = self._of_cluster.get(name) if known.get(name) is row else None
            if (found := same or _user_of_row(name, row, too_old=too_old)) is not None:
                fresh[name] = found
        if fresh == self._of_cluster:
            return False
        self._of_cluster = fresh
        self._merge()
        self.revision += 1
        return True

    def owner_of(self, key: str) -> User | None:
        """Whose public key (Z85) ``key`` is."""
        return self._users.get(self._owners.get(key, ""))

    def check(self, user: User) -> None:
        """Refuse a user who would have a key of another one.

        Raises:
            ConfigError: names key and owner.
        """
        for key in user.public_keys:
            owner = self._owners.get(key, user.name)
            if owner != user.name:
                raise ConfigError("public key is another user's", key=key, user=owner)

    def apply(self, change: UserSet, _place: int, _at_ms: int, /) -> None:
        if change.fields is None:
            self.delete(change.name)
        else:
            self.put(User.read(change.name, change.fields))

    def put(self, user: User) -> None:
        """Have ``user`` instead of the group's own one of that name."""
        self.revision += 1
        self._own[user.name] = user
        if user.name not in self._of_cluster:
            self._forget(user.name)
            self._show(user)

    def delete(self, name: str) -> None:
        """Have no own user called ``name``."""
        self.revision += 1
        self._own.pop(name, None)
        if name not in self._of_cluster:
            self._forget(name)

    def replace_with(self, other: UserTable) -> None:
        self._own, self._of_cluster = dict(other._own), dict(other._of_cluster)
        self._rows, self._too_old = other._rows, other._too_old
        self._users, self._owners = dict(other._users), dict(other._owners)
        self.revision += 1

    def _merge(self) -> None:
        self._users, self._owners = {}, {}
        for user in self._of_cluster.values():
            self._show(user)
        for name, user in self._own.items():
            if name not in self._of_cluster:
                self._show(user)

    def _show(self, user: User) -> None:
        self._users[user.name] = user
        for key in user.public_keys:
            self._owners.setdefault(key, user.name)

    def _forget(self, name: str) -> None:
        user = self._users.pop(name, None)
        for key in user.public_keys if user is not None else ():
            if self._owners.get(key) == name:
                del self._owners[key]


def _fields_of(users: Mapping[str, User]) -> dict[str, object]:
    return {name: users[name].to_fields() for name in sorted(users)}


def _user_of_row(name: str, fields: object, *, too_old: bool) -> User | None:
    """The user of a row; None where the name is none that anybody could have."""
    try:
        found = User.read(name, fields)
        return _without_rights(found) if too_old else found
    except ConfigError:
        pass
    try:
        return User.read(name, {})
    except ConfigError:
        return None


def _without_rights(user: User) -> User:
    """It keeps its keys and addresses: nobody else may become who comes with one of them."""
    return replace(
        user,
        admin=False,
        default_topic=Right.DENY,
        default_group=Right.DENY,
        topics={},
        groups={},
        too_old=True,
    )


def _check_secret(secret: str, *, user: str) -> None:
    limit = SEALED_SIZE_MAX if is_sealed(secret) else SECRET_SIZE_MAX
    if secret and not SECRET_SIZE_MIN <= len(secret) <= limit:
        raise ConfigError(
            "secret key of a wrong length",
            user=user,
            size=len(secret),
            minimum=SECRET_SIZE_MIN,
            limit=limit,
        )


def check_user_name(name: str) -> None:
    """Refuse a name that no user can have.

    Raises:
        ConfigError: it is empty, too long, or has a character that is not allowed.
    """
    if len(name) > NAME_SIZE_MAX or _NAME.fullmatch(name) is None:
        raise ConfigError(
            "not a name of a user",
            name=name[:NAME_SIZE_MAX],
            limit=NAME_SIZE_MAX,
            allowed="letters, digits and _ . @ -",
        )


def parse_right(text: str) -> Right:
    """The right that RocketMQ's text stands for.

    Raises:
        ConfigError: it stands for none.
    """
    right = _RIGHTS.get(text.strip().upper())
    if right is None:
        raise ConfigError("not a right", right=text, allowed=" ".join(_RIGHTS))
    return right


def parse_rights(texts: Iterable[str], *, owner: str) -> dict[str, Right]:
    """Rights by topic or group, from texts as ``orders=PUB|SUB``.

    Raises:
        ConfigError: a text is none; names it.
    """
    rights: dict[str, Right] = {}
    for text in texts:
        name, equals, right = text.partition("=")
        name = name.strip()
        if not equals or _RESOURCE.fullmatch(name) is None:
            raise ConfigError("not NAME=RIGHT, as orders=PUB|SUB", owner=owner, found=text)
        rights[name] = parse_right(right)
    return rights


def _texts(rights: Mapping[str, Right]) -> list[str]:
    return [f"{name}={rights[name].text}" for name in sorted(rights)]


def _read_text(fields: Mapping[str, object], key: str, *, owner: str) -> str:
    value = fields.get(key, "")
    if not isinstance(value, str):
        raise ConfigError("not a text", file=FILE, owner=owner, key=key, value=value)
    return value


def _read_default(fields: Mapping[str, object], key: str, *, owner: str) -> Right:
    text = _read_text(fields, key, owner=owner)
    return parse_right(text) if text else Right.DENY


def _read_rights(fields: Mapping[str, object], key: str, *, owner: str) -> dict[str, Right]:
    return parse_rights(_read_list(fields, key, PERMS_MAX, owner=owner), owner=owner)


def _read_keys(fields: Mapping[str, object], *, owner: str) -> tuple[str, ...]:
    keys = _read_list(fields, PUBLIC_KEYS, PUBLIC_KEYS_MAX, owner=owner)
    for key in keys:
        if _PUBLIC_KEY.fullmatch(key) is None:
            raise ConfigError("not a public key: 40 characters of Z85", user=owner, found=key)
    return tuple(dict.fromkeys(keys))


def _read_list(fields: Mapping[str, object], key: str, limit: int, *, owner: str) -> list[str]:
    value = fields.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigError("not a list of texts", file=FILE, owner=owner, key=key)
    if len(value) > limit:
        raise ConfigError("list too long", owner=owner, key=key, size=len(value), limit=limit)
    return [str(item) for item in value]
