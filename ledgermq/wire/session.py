"""Session messages as JSON with checked types: HELLO, WELCOME, ROLE, REFUSED, CALL, RESULT."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ledgermq.model.errors import (
    LedgerError,
    OutcomeUnknownError,
    ProtocolError,
    UnexpectedError,
)
from ledgermq.model.limits import CLIENT_NAME_SIZE_MAX, GROUP_SIZE_MAX
from ledgermq.model.names.answer_keys import PAYLOAD
from ledgermq.wire.header import VERSION, VERSION_MIN, Kind, encode_header
from ledgermq.wire.statuses import ERRORS_BY_NUMBER, status_of

BODY_SIZE_MAX = 1024 * 1024
NOT_TOLD = -1
"""Mark in the place of a position that nobody has told."""

_ENCODER = json.JSONEncoder(separators=(",", ":"))
INSTANCE_SIZE_MAX = 64
RETRY_AFTER = "retry_after_ms"
"""Key for how long the client is to wait, in a REFUSED and in the details of its error."""

_OPTIONAL: dict[str, int | str] = {
    "produce": "",
    "store_host": "",
    "term": 0,
    "leader": "",
    "version": VERSION_MIN,
    "delay_levels": 0,
    "position": NOT_TOLD,
}

LEADER = "leader"
FOLLOWER = "follower"
CANDIDATE = "candidate"


class Standing(NamedTuple):
    """What a node is in its group, as it knows it now.

    Attributes:
        role: ``leader``, ``follower`` or ``candidate``.
        leader: id of the node that leads in ``term``; empty when none is known.
    """

    role: str
    term: int
    leader: str

    @property
    def leads(self) -> bool:
        """Whether the node itself takes messages, or gives them."""
        return self.role == LEADER


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """What a node tells a client that said HELLO; ``produce`` only from the broker.

    Fields with a default may be missing. ``version`` is the session's. ``store_host`` is
    ``ip:port`` as in the offset ids of what the node stores; ``[ip]:port`` with IPv6.
    ``delay_levels``: how many there are; only from the writer. ``position``: what is sent in this
    session stands behind it in the log; only from the writer of a leader.
    """

    cluster: str
    broker: str
    node: str
    generation: int
    role: str
    ack: str
    entry_header_size: int
    store_host_size: int
    body_size_max: int
    frame_size_max: int
    frame_records_max: int
    window_bytes: int
    produce: str = ""
    store_host: str = ""
    term: int = 0
    leader: str = ""
    version: int = VERSION_MIN
    delay_levels: int = 0
    position: int = NOT_TOLD

    @property
    def standing(self) -> Standing:
        """What the node was in its group when the session began."""
        return Standing(self.role, self.term, self.leader)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a request was refused, and whether something of it may be stored.

    ``retry_after_ms``: when it is refused again if it comes sooner; 0: that is not known.
    """

    status: str
    number: int
    code: int
    reason: str
    record: int | None
    stored: str
    retriable: bool
    retry_after_ms: int = 0

    def to_error(self) -> LedgerError:
        """The exception that a caller gets."""
        kind = ERRORS_BY_NUMBER.get(self.number, LedgerError)
        error = kind(self.reason)
        error.details["status"] = self.status
        if self.record is not None:
            error.details["record"] = self.record
        if self.retry_after_ms:
            error.details[RETRY_AFTER] = self.retry_after_ms
        return error


LOOKS = "look"
ADMIN = "admin"
ANY_USER = "user"
ACCOUNT = "account"

SPOKEN_SIZE_MAX = 255
ID_MAX = 2**32 - 1


class SpokenFor(NamedTuple):
    """The caller for whom a session speaks that an operator opens for somebody else.

    Attributes:
        kind: ``look`` sees names and numbers, no message, and changes nothing; ``admin`` may do
            what an operator may, but see what the node notes for itself; ``user`` is one of the
            node's users; ``account`` is what an account of this machine would be at the socket.
        name: for people: in the log its acts are told under it.
        user: of kind ``user``, in the table of users.
        uid, gid: of kind ``account``.
    """

    kind: str
    name: str
    user: str = ""
    uid: int = 0
    gid: int = 0


def encode_hello(
    request_id: int,
    *,
    client: str,
    library: str,
    instance: str = "",
    group: str = "",
    speaks_for: SpokenFor | None = None,
) -> list[bytes]:
    """The parts of a HELLO.

    Args:
        instance: the same text for all connections of one producer or consumer, one after another.
        group: the subscription group that pulls of this session are for; empty for none.
        speaks_for: whose rights the session has; None: those of who opens it.
    """
    body: dict[str, object] = {
        "client": client,
        "instance": instance,
        "library": library,
        "version": VERSION_MIN,
        "version_max": VERSION,
    }
    if group:
        body["group"] = group
    if speaks_for is not None:
        body["speaks_for"] = speaks_for._asdict()
    return [encode_header(Kind.HELLO, request_id), encode_body(body)]


def decode_hello(body: bytes | memoryview) -> str:
    """The client's name.

    Raises:
        ProtocolError: it has none, or speaks another version.
    """
    fields = decode_body(body)
    version = fields.get("version")
    if not isinstance(version, int) or not VERSION_MIN <= version <= VERSION:
        raise ProtocolError("protocol version not spoken here", version=version, expected=VERSION)
    name = fields.get("client")
    if not isinstance(name, str) or len(name) > CLIENT_NAME_SIZE_MAX:
        raise ProtocolError("client has no name of at most 255 characters", field="client")
    return name


def hello_instance(body: bytes | memoryview) -> str:
    """The instance in a HELLO that ``decode_hello`` has passed; empty when it names none.

    Raises:
        ProtocolError: it is no text of at most 64 characters.
    """
    instance = decode_body(body).get("instance", "")
    if not isinstance(instance, str) or len(instance) > INSTANCE_SIZE_MAX:
        raise ProtocolError(
            "instance is not a short text", field="instance", limit=INSTANCE_SIZE_MAX
        )
    return instance


def hello_group(body: bytes | memoryview) -> str:
    """The group in a HELLO that ``decode_hello`` has passed; empty when it names none.

    Raises:
        ProtocolError: it is no text of at most 255 characters.
    """
    group = decode_body(body).get("group", "")
    if not isinstance(group, str) or len(group) > GROUP_SIZE_MAX:
        raise ProtocolError("group is not a short text", field="group", limit=GROUP_SIZE_MAX)
    return group


def hello_speaks_for(body: bytes | memoryview) -> SpokenFor | None:
    """The caller for whom a HELLO speaks that ``decode_hello`` has passed; None: who has sent it.

    Raises:
        ProtocolError: it does not say whom it means.
    """
    fields = decode_body(body).get("speaks_for")
    if fields is None:
        return None
    if not isinstance(fields, dict):
        raise ProtocolError("field not an object", field="speaks_for")
    spoken = SpokenFor(
        _text(fields, "kind"),
        _text(fields, "name"),
        _text(fields, "user"),
        _integer(fields, "uid"),
        _integer(fields, "gid"),
    )
    if spoken.kind not in (LOOKS, ADMIN, ANY_USER, ACCOUNT):
        raise ProtocolError("kind of a caller not known here", kind=spoken.kind[:64])
    if max(len(spoken.name), len(spoken.user)) > SPOKEN_SIZE_MAX or not spoken.name:
        raise ProtocolError("name of a caller empty or too long", limit=SPOKEN_SIZE_MAX)
    if not (0 <= spoken.uid <= ID_MAX and 0 <= spoken.gid <= ID_MAX):
        raise ProtocolError("no account", uid=spoken.uid, gid=spoken.gid, limit=ID_MAX)
    return spoken


def hello_version(body: bytes | memoryview) -> int:
    """The version of a session that begins with a HELLO that ``decode_hello`` has passed.

    Raises:
        ProtocolError: ``version_max`` is no number, or below ``version``.
    """
    fields = decode_body(body)
    lowest = _integer(fields, "version")
    highest = fields.get("version_max", lowest)
    if not isinstance(highest, int) or highest < lowest:
        raise ProtocolError("versions of a HELLO are no range", version=lowest, version_max=highest)
    return min(VERSION, highest)


def encode_welcome(request_id: int, welcome: Welcome) -> list[bytes]:
    """The parts of a WELCOME."""
    body: dict[str, object] = {
        name: getattr(welcome, name) for name in Welcome.__dataclass_fields__
    }
    return [encode_header(Kind.WELCOME, request_id), encode_body(body)]


def decode_welcome(body: bytes | memoryview) -> Welcome:
    """What a WELCOME says.

    Raises:
        ProtocolError: a field is missing or of another type.
    """
    fields = decode_body(body)
    values: dict[str, int | str] = {}
    for name, field in Welcome.__dataclass_fields__.items():
        expected = int if field.type == "int" else str
        value = fields.get(name, _OPTIONAL.get(name))
        if not isinstance(value, expected) or isinstance(value, bool):
            raise ProtocolError("field of a WELCOME missing or wrong", field=name, value=value)
        values[name] = value
    return Welcome(**values)  # type: ignore[arg-type]


def encode_role(standing: Standing, position: int = NOT_TOLD) -> list[bytes]:
    """The parts of a ROLE, which answers no question.

    Args:
        position: see ``Welcome``.
    """
    body = {**standing._asdict(), "position": position}
    return [encode_header(Kind.ROLE, 0), encode_body(body)]


def decode_role(body: bytes | memoryview) -> Standing:
    """What a ROLE says.

    Raises:
        ProtocolError: a field is missing or of another type.
    """
    fields = decode_body(body)
    return Standing(_text(fields, "role"), _integer(fields, "term"), _text(fields, "leader"))


def role_position(body: bytes | memoryview) -> int:
    """The position in a ROLE that ``decode_role`` has passed; see ``Welcome``.

    Raises:
        ProtocolError: it is no number.
    """
    return _integer({"position": NOT_TOLD, **decode_body(body)}, "position")


_UNKNOWN = (OutcomeUnknownError, UnexpectedError)


def encode_refused(
    request_id: int,
    error: LedgerError,
    *,
    record: int | None = None,
    status: str | None = None,
) -> list[bytes]:
    """The parts of a REFUSED that tells of ``error``.

    Args:
        record: number of the record in the frame that the error is about.
        status: a name of our own that says more than that of the error's class.
    """
    named = status_of(error)
    body: dict[str, object] = {
        "status": status or named.name,
        "number": error.number,
        "code": named.code,
        "reason": str(error),
        "record": record,
        "stored": "unknown" if isinstance(error, _UNKNOWN) else "no",
        "retriable": error.retriable,
    }
    if RETRY_AFTER in error.details:
        body[RETRY_AFTER] = error.details[RETRY_AFTER]
    return [encode_header(Kind.REFUSED, request_id), encode_body(body)]


def decode_refused(body: bytes | memoryview) -> Refusal:
    """What a REFUSED says.

    Raises:
        ProtocolError: a field is missing or of another type.
    """
    fields = decode_body(body)
    record = fields.get("record")
    retry_after_ms = fields.get(RETRY_AFTER, 0)
    return Refusal(
        status=_text(fields, "status"),
        number=_integer(fields, "number"),
        code=_integer(fields, "code"),
        reason=_text(fields, "reason"),
        record=record if isinstance(record, int) else None,
        stored=_text(fields, "stored"),
        retriable=bool(fields.get("retriable")),
        retry_after_ms=retry_after_ms if isinstance(retry_after_ms, int) else 0,
    )


def encode_call(request_id: int, verb: str, **arguments: object) -> list[bytes]:
    """The parts of a CALL."""
    return [encode_header(Kind.CALL, request_id), encode_body({"verb": verb, **arguments})]


def decode_call(body: bytes | memoryview) -> tuple[str, dict[str, object]]:
    """The verb of a CALL, and its arguments by name.

    Raises:
        ProtocolError: it is no JSON object, or names no verb.
    """
    fields = decode_body(body)
    verb = _text(fields, "verb")
    del fields["verb"]
    return verb, fields


def encode_result(request_id: int, result: Mapping[str, object]) -> list[bytes]:
    """The parts of a RESULT; bytes of a ``PAYLOAD`` are the third one."""
    payload = result.get(PAYLOAD)
    if not isinstance(payload, bytes):
        return [encode_header(Kind.RESULT, request_id), encode_body(result)]
    told = {name: value for name, value in result.items() if name != PAYLOAD}
    return [encode_header(Kind.RESULT, request_id), encode_body(told), payload]


def encode_body(fields: Mapping[str, object]) -> bytes:
    """A JSON object."""
    # Escaped to ASCII: a name with a lone surrogate could not be written as UTF-8.
    return _ENCODER.encode(fields).encode()


def decode_body(body: bytes | memoryview) -> dict[str, object]:
    """The JSON object in ``body``.

    Raises:
        ProtocolError: it is too large, or none.
    """
    if len(body) > BODY_SIZE_MAX:
        raise ProtocolError("body too large", size=len(body), limit=BODY_SIZE_MAX)
    try:
        value = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise ProtocolError("body is not JSON", reason=str(error)) from error
    if not isinstance(value, dict):
        raise ProtocolError("body is not a JSON object", found=type(value).__name__)
    return value


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise ProtocolError("field missing or not a text", field=name, value=value)
    return value


def _integer(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ProtocolError("field missing or not an integer", field=name, value=value)
    return value
