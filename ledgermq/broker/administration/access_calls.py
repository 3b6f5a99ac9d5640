"""Calls about users, their rights, and quotas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ledgermq.broker.call_arguments import Arguments, fields
from ledgermq.broker.calls import Call, Result, Verbs
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import submit_call
from ledgermq.broker.state.writer_notice import WriterNotice
from ledgermq.broker.verb_arguments import answered
from ledgermq.model.errors import ConfigError, TopicUnknownError
from ledgermq.rules.access import access
from ledgermq.rules.access.access import User
from ledgermq.rules.cluster.cluster_plans import plan_row
from ledgermq.rules.cluster.cluster_table import QUOTA_KIND, USER_KIND
from ledgermq.rules.cluster.numbered_rows import RowKey
from ledgermq.rules.state import cluster_copy
from ledgermq.rules.tables.quotas import Quota, check_owner
from ledgermq.rules.tables.table_changes import Change, QuotaSet, UserSet
from ledgermq.verbs import access as verbs

SECRET = "secretKey"  # noqa: S105 - a field's name

_TOUCHES_ACCESS = frozenset({access.FILE, cluster_copy.FILE})

USERS_MAX = 100_000
QUOTAS_MAX = 100_000


class AccessCalls:
    """Changes go through the log, and are in force on the leader when they are answered."""

    def __init__(self, tables: BrokerTables, log: StateLog, notice: WriterNotice) -> None:
        self._tables = tables
        self._log = log
        self._notice = notice
        self.verbs: Verbs = (
            answered(verbs.ListUsers, self._users),
            answered(verbs.SetUser, self._set_user),
            answered(verbs.RemoveUser, self._remove_user),
            answered(verbs.ListQuotas, self._quotas),
            answered(verbs.SetQuota, self._set_quota),
            answered(verbs.RemoveQuota, self._remove_quota),
        )

    def _users(self, _call: Call, _asked: verbs.ListUsers) -> Result:
        self._log.check_newest()
        users = self._tables.users
        return {
            "users": [{**_shown(user), **_marked(users.is_of_cluster(user.name))} for user in users]
        }

    def _set_user(self, call: Call, asked: verbs.SetUser) -> Result | None:
        """Add a user, alter one (only the fields that are given), or do what of both is right."""
        name, mode, wanted, of_cluster = asked.user, asked.mode, asked.fields, asked.cluster
        users = self._tables.users

        def plan() -> Sequence[Change]:
            self._check_owner("user", name, users.is_of_cluster(name), of_cluster)
            known = users.get(name) if users.is_of_cluster(name) == of_cluster else None
            if mode == "add" and known is not None:
                same = User.read(name, wanted)
                secret = self._sealed(name, wanted, same.secret, of_cluster)
                if replace(same, secret=secret) == known:
                    # Asked again, because nobody knew what had become of it.
                    return []
                raise ConfigError("user exists already: alter it, or remove it first", user=name)
            if mode == "alter" and known is None:
                raise ConfigError("user does not exist: add it first", user=name)
            if known is None and len(users) >= USERS_MAX:
                raise ConfigError("too many users", users=len(users), limit=USERS_MAX)
            before = {} if known is None else known.to_fields()
            user = User.read(name, {**before, **wanted})
            users.check(user)
            user = replace(user, secret=self._sealed(name, wanted, user.secret, of_cluster))
            if of_cluster:
                return self._row(USER_KIND, name, user.to_fields())
            return [] if user == known else [UserSet(name, user.to_fields())]

        def shown() -> Result:
            user = users.get(name)
            return {"user": None if user is None else _shown(user)}

        return self._submit(call, f"user {name}", plan, shown)

    def _row(self, kind: str, name: str, value: Mapping[str, object] | None) -> Sequence[Change]:
        return plan_row(self._tables.cluster.table, RowKey(kind, name), value)

    def _check_owner(self, what: str, name: str, is_of_cluster: bool, wants_cluster: bool) -> None:
        """What is the cluster's changes at its home, and an own row beside it would not count."""
        if wants_cluster:
            self._tables.cluster.table.check_home()
        elif is_of_cluster:
            raise ConfigError(
                f"{what} is the cluster's: change it at the home of the cluster, with --cluster",
                name=name,
            )

    def _sealed(self, name: str, wanted: Arguments, secret: str, of_cluster: bool) -> str:
        """How a user's secret is to stand in the log: also one that was there before."""
        secrets = self._tables.secrets
        if not (SECRET in wanted and secret):
            return secrets.renewed(name, secret, of_cluster=of_cluster)
        return secrets.sealed(name, secret, of_cluster=of_cluster)

    def _remove_user(self, call: Call, asked: verbs.RemoveUser) -> Result | None:
        name, of_cluster = asked.user, asked.cluster
        users = self._tables.users

        def plan() -> Sequence[Change]:
            self._check_owner("user", name, users.is_of_cluster(name), of_cluster)
            if users.get(name) is None or users.is_of_cluster(name) != of_cluster:
                raise ConfigError("user does not exist", user=name)
            return self._row(USER_KIND, name, None) if of_cluster else [UserSet(name, None)]

        return self._submit(call, f"user {name}", plan, lambda: {"user": name})

    def _quotas(self, _call: Call, _asked: verbs.ListQuotas) -> Result:
        self._log.check_newest()
        quotas = self._tables.quotas
        return {"quotas": [self._quota_row(owner, quota) for owner, quota in quotas]}

    def _quota_row(self, owner: str, quota: Quota) -> dict[str, object]:
        marked = _marked(self._tables.quotas.is_of_cluster(owner))
        return {"owner": owner, **quota.to_fields(), **marked}

    def _set_quota(self, call: Call, asked: verbs.SetQuota) -> Result | None:
        owner, of_cluster = asked.owner, asked.cluster
        # ``Quota`` checks them, those of files and of the cluster's rows, too.
        wanted = fields(call.arguments, "fields")
        quotas = self._tables.quotas
        check_owner(owner)

        def plan() -> Sequence[Change]:
            self._check_owner("quota", owner, quotas.is_of_cluster(owner), of_cluster)
            known = quotas.get(owner) if quotas.is_of_cluster(owner) == of_cluster else None
            if known is None and not of_cluster and not asked.ahead:
                self._check_topic(owner)
            if known is None and len(quotas) >= QUOTAS_MAX:
                raise ConfigError("too many quotas", quotas=len(quotas), limit=QUOTAS_MAX)
            before = {} if known is None else known.to_fields()
            quota = Quota.read(owner, {**before, **wanted})
            if of_cluster:
                return self._row(QUOTA_KIND, owner, quota.to_fields())
            return [] if quota == known else [QuotaSet(owner, quota.to_fields())]

        def shown() -> Result:
            quota = quotas.get(owner)
            return {"owner": owner} if quota is None else self._quota_row(owner, quota)

        return self._submit(call, f"quota {owner}", plan, shown)

    def _check_topic(self, owner: str) -> None:
        """Refuse an owner that is a topic which is not there.

        Raises:
            TopicUnknownError: see above.
        """
        kind, _, name = owner.partition(":")
        if kind == "topic" and self._tables.topics.get(name) is None:
            raise TopicUnknownError(
                "topic does not exist; with ahead it gets a quota before", topic=name
            )

    def _remove_quota(self, call: Call, asked: verbs.RemoveQuota) -> Result | None:
        owner, of_cluster = asked.owner, asked.cluster
        quotas = self._tables.quotas

        def plan() -> Sequence[Change]:
            self._check_owner("quota", owner, quotas.is_of_cluster(owner), of_cluster)
            if quotas.get(owner) is None or quotas.is_of_cluster(owner) != of_cluster:
                raise ConfigError("owner has no quota of its own", owner=owner)
            return self._row(QUOTA_KIND, owner, None) if of_cluster else [QuotaSet(owner, None)]

        return self._submit(call, f"quota {owner}", plan, lambda: {"owner": owner})

    def _submit(
        self,
        call: Call,
        what: str,
        plan: Callable[[], Sequence[Change]],
        result: Callable[[], Result],
    ) -> Result | None:
        # Two users must not get one key with one command, nor two rows of a cluster one number.
        return submit_call(
            self._log,
            call,
            plan,
            _TOUCHES_ACCESS,
            lambda: self._notice.answer_changed(call, what, result),
            tries=True,
        )


def _shown(user: User) -> dict[str, object]:
    """The user for those who ask: a secret is never given out."""
    shown: dict[str, object] = {"user": user.name, **user.to_fields()}
    if shown.pop(SECRET, ""):
        shown["hasSecretKey"] = True
    return shown


def _marked(is_of_cluster: bool) -> dict[str, object]:
    return {"cluster": True} if is_of_cluster else {}
