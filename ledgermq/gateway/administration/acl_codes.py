"""Codes about users and their rights, as RocketMQ's administrators show and change them.

They are the replicated users of this group: RocketMQ has an account in a file of each broker. No
secret is given out, and no address is let do everything.
"""

from __future__ import annotations

from ledgermq.gateway.code_rights import ADMIN
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked, Code
from ledgermq.gateway.transport.refusals import refusal
from ledgermq.model.errors import ConfigError, LedgerError, NoPermissionError, NotLeaderError
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fastjson import encode_body
from ledgermq.remoting.fields import text
from ledgermq.rules.access.access import PLAIN_LISTS, PLAIN_TEXTS


class AclCodes(PortPart):
    """Looks are answered by every node, changes by the one that leads."""

    def __init__(self, context: BrokerContext) -> None:
        self._tables = context.tables
        self._changes = context.changes
        self._addresses = context.addresses
        self._started_ms = context.environment.page.started_ms
        self.codes = (
            Code(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, self._put, ADMIN),
            Code(RequestCode.DELETE_ACL_CONFIG, self._delete, ADMIN),
            Code(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, self._version, ADMIN),
            Code(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, self._refuse_addresses, ADMIN),
            Code(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, self._all, ADMIN),
        )

    def _put(self, asked: Asked) -> None:
        """Add a user, or change what is given of one, as RocketMQ changes its file.

        There, too, an empty address takes the address back, and who is not said to be an admin is
        none (``PlainPermissionManager.createAclAccessConfigMap``).
        """
        told = asked.command.fields
        name = text(told, "accessKey")
        fields: dict[str, object] = {key: told[key] for key in PLAIN_TEXTS if told.get(key)}
        if "whiteRemoteAddress" in told:
            fields["whiteRemoteAddress"] = told["whiteRemoteAddress"]
        fields["admin"] = told.get("admin", "").lower() == "true"
        for key in PLAIN_LISTS:
            if told.get(key):
                fields[key] = [one.strip() for one in told[key].split(",") if one.strip()]
        self._ask(
            asked,
            "acl_set",
            {"user": name, "mode": "set", "fields": fields},
            ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
        )

    def _delete(self, asked: Asked) -> None:
        """Remove a user; one that is not there is no error, as tools ask each node."""
        name = text(asked.command.fields, "accessKey")
        self._ask(asked, "acl_remove", {"user": name}, ResponseCode.DELETE_ACL_CONFIG_FAILED)

    def _ask(
        self, asked: Asked, verb: str, arguments: dict[str, object], failed: ResponseCode
    ) -> None:
        def refused(error: LedgerError) -> Command | None:
            if isinstance(error, NotLeaderError | NoPermissionError):
                return None
            is_gone = verb == "acl_remove" and isinstance(error, ConfigError)
            if is_gone and self._tables.users.get(str(arguments["user"])) is None:
                return asked.command.reply()
            return asked.command.reply(failed, remark=refusal(asked.command, error).remark)

        self._changes.ask(asked, verb, arguments, refused=refused)

    def _version(self, asked: Asked) -> Command:
        version = {"counter": self._tables.users.revision, "timestamp": self._started_ms}
        told = encode_body(version).decode()
        fields = {
            "version": told,
            "allAclFileVersion": encode_body({"access.json": version}).decode(),
            "brokerName": self._addresses.broker,
            "brokerAddr": self._addresses.own,
            "clusterName": self._addresses.cluster,
        }
        return asked.command.reply(fields=fields)

    def _refuse_addresses(self, asked: Asked) -> Command:
        remark = (
            "does not apply: no address is let do everything here; give a user its addresses"
            " (whiteRemoteAddress)"
        )
        code = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        return asked.command.reply(code, remark=remark)

    def _all(self, asked: Asked) -> Command:
        rows = []
        for user in self._tables.users:
            fields = user.to_fields()
            rows.append(
                {
                    "accessKey": user.name,
                    "admin": user.admin,
                    "defaultGroupPerm": user.default_group.text,
                    "defaultTopicPerm": user.default_topic.text,
                    "groupPerms": fields.get("groupPerms", []),
                    "topicPerms": fields.get("topicPerms", []),
                    "whiteRemoteAddress": user.addresses,
                }
            )
        body = {"globalWhiteAddrs": [], "plainAccessConfigs": rows}
        return asked.command.reply(body=encode_body(body))
