"""Codes of name values, which tools keep at RocketMQ's name servers; here in the log."""

from __future__ import annotations

from collections.abc import Callable

from ledgermq.gateway.code_rights import ADMIN, OPEN
from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.names.registered_brokers import RegisteredBrokers
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked, Code
from ledgermq.model.errors import ProtocolError
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.fastjson import encode_body
from ledgermq.remoting.fields import text
from ledgermq.rules.tables.name_values import CLOSED_BROKERS, ORDER_TOPICS


class NameValueCodes(PortPart):
    """Reads are answered by every node, changes by the one that leads."""

    def __init__(self, context: BrokerContext, registered: RegisteredBrokers) -> None:
        self._registered = registered
        self._settings = context.environment.settings
        self._tables = context.tables
        self._addresses = context.addresses
        self._changes = context.changes
        self.codes = (
            Code(RequestCode.PUT_KV_CONFIG, self._put, ADMIN),
            Code(RequestCode.GET_KV_CONFIG, self._get, OPEN),
            Code(RequestCode.DELETE_KV_CONFIG, self._delete, ADMIN),
            Code(RequestCode.GET_KVLIST_BY_NAMESPACE, self._list, OPEN),
            Code(RequestCode.WIPE_WRITE_PERM_OF_BROKER, self._close_broker, ADMIN),
            Code(RequestCode.ADD_WRITE_PERM_OF_BROKER, self._open_broker, ADMIN),
            Code(RequestCode.UPDATE_NAMESRV_CONFIG, self._refuse_settings, ADMIN),
            Code(RequestCode.GET_NAMESRV_CONFIG, self._show_settings, ADMIN),
        )

    def _put(self, asked: Asked) -> None:
        fields = asked.command.fields
        self._set(asked, _namespace(asked), text(fields, "key"), text(fields, "value"))

    def _delete(self, asked: Asked) -> None:
        self._set(asked, _namespace(asked), text(asked.command.fields, "key"), None)

    def _get(self, asked: Asked) -> Command:
        namespace, key = _namespace(asked), text(asked.command.fields, "key")
        value = self._tables.names.get(namespace, key)
        if value is None and namespace == ORDER_TOPICS:
            value = self._orders().get(key)
        if value is None:
            remark = f"No config item, Namespace: {namespace} Key: {key}"
            return asked.command.reply(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return asked.command.reply(fields={"value": value})

    def _list(self, asked: Asked) -> Command:
        namespace = _namespace(asked)
        values = dict(self._tables.names.of(namespace))
        if namespace == ORDER_TOPICS:
            values = self.orders()
        if not values:
            remark = f"No config item, Namespace: {namespace}"
            return asked.command.reply(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return asked.command.reply(body=encode_body({"table": values}))

    def orders(self) -> dict[str, str]:
        """Where the queues of which topics are for ever, by what was put and the topic table."""
        return {**self._orders(), **self._tables.names.of(ORDER_TOPICS)}

    def _orders(self) -> dict[str, str]:
        """What the topic table itself says of ordered topics."""
        broker = self._addresses.broker
        return {
            topic.name: f"{broker}:{topic.write_queues}"
            for topic in self._tables.topics
            if topic.is_ordered
        }

    def _close_broker(self, asked: Asked) -> Command | None:
        change = self._registered.close_writes
        return self._switch_broker(asked, "closed", change, "wipeTopicCount")

    def _open_broker(self, asked: Asked) -> Command | None:
        return self._switch_broker(asked, None, self._registered.open_writes, "addTopicCount")

    def _switch_broker(
        self,
        asked: Asked,
        value: str | None,
        change: Callable[[str], int | None],
        counted: str,
    ) -> Command | None:
        """Have routes show all topics of a broker as closed for producers, or as they are: this
        group's by the log, another one's as long as it is registered, at this node.
        """
        name = text(asked.command.fields, "brokerName")
        if name == self._addresses.broker:
            topics = sum(one.name != SYSTEM_TOPIC for one in self._tables.topics)
            self._set(asked, CLOSED_BROKERS, name, value, {counted: str(topics)})
            return None
        changed = change(name)
        if changed is None:
            raise ProtocolError(
                "broker is not this one, and none that is registered",
                broker=name[:255],
                this=self._addresses.broker,
            )
        return asked.command.reply(fields={counted: str(changed)})

    def _set(
        self,
        asked: Asked,
        namespace: str,
        key: str,
        value: str | None,
        told: dict[str, str] | None = None,
    ) -> None:
        arguments = {"namespace": namespace, "key": key}
        if value is not None:
            arguments["value"] = value
        self._changes.ask(
            asked, "name_set", arguments, lambda _result: asked.command.reply(fields=told)
        )

    def _refuse_settings(self, asked: Asked) -> Command:
        remark = (
            "does not apply: settings are those of the node's own file: change them there, and"
            " reload (docs/operating/settings.md)"
        )
        return asked.command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)

    def _show_settings(self, asked: Asked) -> Command:
        listen = self._settings.listen
        lines = {
            "clusterTest": "false",
            "listenPort": str((listen.name_server or listen.remoting or "").rpartition(":")[2]),
            "orderMessageEnable": "true",
            "rocketmqHome": str(self._settings.store.path_root_dir),
        }
        content = "".join(f"{key}={value}\n" for key, value in lines.items())
        return asked.command.reply(body=content.encode())


def _namespace(asked: Asked) -> str:
    return text(asked.command.fields, "namespace")
