"""Elected master: which broker of a set with a controller is the master now."""

from __future__ import annotations

from typing import NamedTuple

from ledgermq.model.errors import ConfigError, LedgerError, ProtocolError, UnreachableError
from ledgermq.understudy.master_access import MasterAccess
from ledgermq.understudy.master_questions import MasterQuestions, MasterSettings

GET_REPLICA_INFO = 1_004
GET_METADATA_INFO = 1_005
"""Request codes of RocketMQ's controllers."""

CONTROLLERS_MAX = 16


class Elected(NamedTuple):
    """A broker set, as the settings of each of its brokers say.

    Attributes:
        controllers: host and port of each.
        broker_name: what all brokers of the set are called.
    """

    controllers: tuple[str, ...]
    broker_name: str


def elected_by(told: MasterSettings) -> Elected | None:
    """The set that a broker is of; None: it has no controller."""
    if not told.is_true("enableControllerMode"):
        return None
    addresses = filter(None, map(str.strip, told.text("controllerAddr").split(";")))
    return Elected(tuple(addresses)[:CONTROLLERS_MAX], told.text("brokerName"))


def remoting_of_master(elected: Elected, access: MasterAccess) -> str:
    """Host and port where the master of now serves its clients.

    Raises:
        UnreachableError: there is none, or no controller says so.
    """
    trouble: LedgerError | None = None
    for address in elected.controllers:
        try:
            leader = _told(address, GET_METADATA_INFO, {}, "controllerLeaderAddress", access)
            asked = {"brokerName": elected.broker_name}
            return _told(leader, GET_REPLICA_INFO, asked, "masterAddress", access)
        except (ConfigError, ProtocolError, UnreachableError) as error:
            trouble = error
    raise UnreachableError(
        "no controller says which broker is the master",
        controllers=", ".join(elected.controllers),
        broker=elected.broker_name,
        reason=str(trouble),
    )


def ha_address(told: MasterSettings) -> str:
    """Host and port where a master of RocketMQ 5 waits for slaves, by its settings.

    Raises:
        ProtocolError: they do not say.
    """
    host, port = told.text("brokerIP2").strip(), told.number("haListenPort")
    if not host or not port:
        raise ProtocolError("the master does not tell where its HA port is", host=host)
    return f"{host}:{port}"


def _told(address: str, code: int, fields: dict[str, str], field: str, access: MasterAccess) -> str:
    questions = MasterQuestions(address, access)
    try:
        found = questions.fields_of(code, fields).get(field, "")
    finally:
        questions.close()
    if not found:
        raise ProtocolError("a controller's answer lacks a field", controller=address, field=field)
    return found
