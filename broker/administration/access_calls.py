"""Calls about users, their rights, and quotas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ledgermq.broker.call_arguments import Arguments, fields, text
from ledgermq.broker.calls import ADMIN, CHANGE, Call, Result, Verb, Verbs
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import StateRequest
from ledgermq.broker.state.writer_notice import WriterNotice
from ledgermq.model.errors import ConfigError, ProtocolError
from ledgermq.rules.access import access
from ledgermq.rules.access.access import User
from ledgermq.rules.tables.quotas import Quota, check_owner
from ledgermq.rules.tables.table_changes import Change, QuotaSet, UserSet

SECRET = "secretKey"  # noqa: S105 - a field's name
MODES = ("add", "alter", "set")

USERS_MAX = 100_000
QUOTAS_MAX = 100_000


class AccessCalls:
    """Changes go through the log, and are in force on the leader when they are answered."""

    def __init__(self, tables: BrokerTables, log: StateLog, notice: WriterNotice) -> None:
        self._tables = tables
        self._log = log
        self._notice = notice
        self.verbs: Verbs = (
            Verb("acl_list", self._users, ADMIN),
            Verb("acl_set", self._set_user, CHANGE),
            Verb("acl_remove", self._remove_user, CHANGE),
            Verb("quota_list", self._quotas, ADMIN),
            Verb("quota_set", self._set_quota, CHANGE),
            Verb("quota_remove", self._remove_quota, CHANGE),
        )

    def _users(self, _call: Call) -> Result:
        self._log.check()
        return {"users": [_shown(user) for user in self._tables.users]}

    def _set_user(self, call: Call) -> Result | None:
        """Add a user, alter one (only the fields that are given), or do what of both is right."""
        name, mode = text(call.arguments, "user"), text(call.arguments, "mode")
        wanted = fields(call.arguments, "fields")
        if mode not in MODES:
            raise ProtocolError("unknown mode", mode=mode, allowed=" ".join(MODES))
        users = self._tables.users

        def plan() -> Sequence[Change]:
            known = users.get(name)
            if mode == "add" and known is not None:
                same = User.read(name, wanted)
                if replace(same, secret=self._sealed(name, wanted, same.secret)) == known:
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
            user = replace(user, secret=self._sealed(name, wanted, user.secret))
            return [] if user == known else [UserSet(name, user.to_fields())]

        def shown() -> Result:
            user = users.get(name)
            return {"user": None if user is None else _shown(user)}

        return self._submit(call, f"user {name}", plan, shown)

    def _sealed(self, name: str, wanted: Arguments, secret: str) -> str:
        """How a user's secret is to stand in the log: also one that was there before."""
        secrets = self._tables.secrets
        if not (SECRET in wanted and secret):
            return secrets.renewed(name, secret)
        return secrets.sealed(name, secret)

    def _remove_user(self, call: Call) -> Result | None:
        name = text(call.arguments, "user")

        def plan() -> Sequence[Change]:
            if self._tables.users.get(name) is None:
                raise ConfigError("user does not exist", user=name)
            return [UserSet(name, None)]

        return self._submit(call, f"user {name}", plan, lambda: {"user": name})

    def _quotas(self, _call: Call) -> Result:
        self._log.check()
        return {
            "quotas": [
                {"owner": owner, **quota.to_fields()} for owner, quota in self._tables.quotas
            ]
        }

    def _set_quota(self, call: Call) -> Result | None:
        owner = text(call.arguments, "owner")
        wanted = fields(call.arguments, "fields")
        quotas = self._tables.quotas
        check_owner(owner)

        def plan() -> Sequence[Change]:
            known = quotas.get(owner)
            if known is None and len(quotas) >= QUOTAS_MAX:
                raise ConfigError("too many quotas", quotas=len(quotas), limit=QUOTAS_MAX)
            before = {} if known is None else known.to_fields()
            quota = Quota.read(owner, {**before, **wanted})
            return [] if quota == known else [QuotaSet(owner, quota.to_fields())]

        def shown() -> Result:
            quota = quotas.get(owner)
            return {"owner": owner, **({} if quota is None else quota.to_fields())}

        return self._submit(call, f"quota {owner}", plan, shown)

    def _remove_quota(self, call: Call) -> Result | None:
        owner = text(call.arguments, "owner")

        def plan() -> Sequence[Change]:
            if self._tables.quotas.get(owner) is None:
                raise ConfigError("owner has no quota of its own", owner=owner)
            return [QuotaSet(owner, None)]

        return self._submit(call, f"quota {owner}", plan, lambda: {"owner": owner})

    def _submit(
        self,
        call: Call,
        what: str,
        plan: Callable[[], Sequence[Change]],
        result: Callable[[], Result],
    ) -> Result | None:
        self._log.check_leads()
        plan()  # refuses at once what cannot be made

        def answer() -> Result | None:
            self._notice.expect(what)
            return self._notice.answer(call.caller, what, result, call.now_ms)

        # Two users must not get one key with one command.
        request = StateRequest(call.caller, plan, frozenset({access.FILE}), answer)
        self._log.submit(request, call.now_ms)
        return None


def _shown(user: User) -> dict[str, object]:
    """The user for those who ask: a secret is never given out."""
    shown: dict[str, object] = {"user": user.name, **user.to_fields()}
    if shown.pop(SECRET, ""):
        shown["hasSecretKey"] = True
    return shown
