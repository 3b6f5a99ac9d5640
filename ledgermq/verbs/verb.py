"""Base of all verbs: a struct of arguments, which clients write and the broker reads.

    class DeleteTopic(DoneVerb):
        '''Delete a topic, and what groups have consumed of it.'''

        NAME: ClassVar = "topic_delete"
        NEEDS: ClassVar = CHANGE
        DONE: ClassVar = "deleted", "topic"

        topic: TopicName

A field's annotation says its type, its ``Bounds`` and, as a text, what it is about. From the struct
come the broker's checks (``broker/verb_arguments.py``), the methods of ``Admin`` and ``AsyncAdmin``
with their exact types, the fields of the HTTP API with its document, and options of the command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache, partial
from types import MappingProxyType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from ledgermq.model.errors import MessageIllegalError
from ledgermq.verbs.answers import Fields, Row, rows
from ledgermq.verbs.needs import VerbNeeds
from ledgermq.verbs.told_rows import read_annotation, read_row, shape_of

Told = TypeVar("Told")
NUMBER_MAX = 2**63 - 1
Json = dict[str, object]
PLAIN_KINDS = (str, int, bool)
NOTHING: Mapping[str, str] = MappingProxyType({})


class Bounds(NamedTuple):
    """Least and most of a number."""

    least: int
    most: int


class Length(NamedTuple):
    """Least and most letters of a text; 1 to 255 where nothing is said."""

    least: int
    most: int


class Texts(NamedTuple):
    """What a list of texts is of, how many there may be, and how long each."""

    what: str
    count_max: int
    size_max: int


class Key(NamedTuple):
    """A key of an argument that is an object.

    Attributes:
        name: as the broker and the HTTP API have it.
        kind: ``bool``, ``int``, ``str`` or ``list`` (of texts).
        about: what it is, as a sentence.
        option: of the command line, without ``--``; empty: it has none.
        typed: what the command line says of it, where it is written otherwise there.
    """

    name: str
    kind: type
    about: str
    option: str = ""
    typed: str = ""


class Typed(NamedTuple):
    """What the command line says of an argument, where that is not what it is about."""

    text: str | None


TopicName = Annotated[str, "Name of a topic"]
GroupName = Annotated[str, "Name of a group"]


@dataclass_transform(eq_default=False)
class Verb(Generic[Told]):
    """One question or order to a broker, with its arguments; each is a dataclass.

    Attributes:
        NAME: by which it is called.
        NEEDS: the right that whoever asks has to have.
        WIRE_NAMES: of arguments that are called otherwise on the wire.
        ROW: the named tuple that the answer is.
        SHAPE: of an answer that is something else.
    """

    NAME: ClassVar[str]
    NEEDS: ClassVar[VerbNeeds]
    WIRE_NAMES: ClassVar[Mapping[str, str]] = NOTHING
    ROW: ClassVar[Callable[..., Any] | None] = None
    SHAPE: ClassVar[Mapping[str, str]] = NOTHING

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(eq=False, repr=False)(cls)

    @classmethod
    def shape(cls) -> Mapping[str, str]:
        """Names of what ``document`` has, and their types in JSON Schema; with ``?`` behind it may
        be null. There may be more.
        """
        return cls.SHAPE if cls.ROW is None else shape_of(cls.ROW)

    def arguments(self) -> dict[str, object]:
        """What goes over the wire; what was left out does not."""
        wire = self.WIRE_NAMES
        return {wire.get(name, name): one for name, one in vars(self).items() if one is not None}

    def told(self, answer: Fields) -> Told:
        """The broker's answer with its types.

        Raises:
            ProtocolError: the broker answered with something else.
        """
        assert self.ROW is not None, self.NAME
        row: Told = read_row(self.ROW, answer)
        return row

    def document(self, told: Told) -> Json:
        """The answer as ``--json`` and the HTTP API tell it."""
        shown: Json = as_json(told)
        return shown


class RowsVerb(Verb[list[Row]]):
    """A question whose answer is a list of rows.

    Attributes:
        ROWS: its name, in the answer as in a document, and the named tuple of each row.
    """

    ROWS: ClassVar[tuple[str, Callable[..., Any]]]

    def told(self, answer: Fields) -> list[Row]:
        return read_rows(self.ROWS, answer)

    def document(self, told: list[Row]) -> Json:
        return {self.ROWS[0]: as_json(told)}


class PageVerb(Verb[tuple[list[Row], bool]]):
    """A question for a page of a list, whose rows are as those of ``RowsVerb``."""

    ROWS: ClassVar[tuple[str, Callable[..., Any]]]

    def told(self, answer: Fields) -> tuple[list[Row], bool]:
        """The rows, and whether there are more."""
        return read_rows(self.ROWS, answer), answer.get("more") is True


class DoneVerb(Verb[None]):
    """An order of which nothing is told but that it was carried out.

    Attributes:
        DONE: the word for that in a document, and the argument that it tells.
    """

    DONE: ClassVar[tuple[str, str]]

    @classmethod
    def shape(cls) -> Mapping[str, str]:
        return {cls.DONE[0]: "string"}

    def told(self, answer: Fields) -> None: ...

    def document(self, told: None) -> Json:
        return {self.DONE[0]: getattr(self, self.DONE[1])}


class Argument(NamedTuple):
    """An argument as it was declared.

    Attributes:
        kind: ``str``, ``int``, ``bool``, ``dict``, or ``list`` (of texts where ``texts`` says so,
            of offsets where there are ``bounds``, else of numbers of queues).
        is_needed: it has no default.
        may_be_none: None stands for what was left out.
        among: the texts that it may be; empty: any.
        keys: those of an object; empty: any.
    """

    name: str
    wire_name: str
    kind: type
    is_needed: bool
    may_be_none: bool
    about: str
    bounds: Bounds | None
    length: Length | None
    texts: Texts | None
    among: tuple[str, ...]
    keys: tuple[Key, ...]
    typed: Typed | None


def arguments_of(verb: type[Verb[Any]]) -> tuple[Argument, ...]:
    """The arguments of a verb, those first that may be given without their names."""
    return _arguments_of(cast("type", verb))


def check_arguments(verb: Verb[Any]) -> None:
    """Refuse what no broker takes, before one is asked.

    Raises:
        MessageIllegalError: an argument is of another type, or none of what it may be.
    """
    for argument in arguments_of(type(verb)):
        value = getattr(verb, argument.name)
        if value is None and argument.may_be_none:
            continue
        if argument.among and value not in argument.among:
            raise MessageIllegalError(
                "argument is none of what it may be",
                argument=argument.name,
                value=value,
                allowed=argument.among,
            )
        if argument.kind in PLAIN_KINDS:
            check_kind(argument.name, value, argument.kind)
        if argument.kind is int:
            least, most = argument.bounds or (0, NUMBER_MAX)
            if not least <= value <= most:
                raise MessageIllegalError(
                    f"{argument.name} out of range", value=value, minimum=least, limit=most
                )


def check_kind(argument: str, value: object, kind: type) -> None:
    """Refuse a value that is not of one of ``PLAIN_KINDS``; a bool is no number.

    Raises:
        MessageIllegalError: it is of another type.
    """
    if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
        raise MessageIllegalError(
            "argument is of another type", argument=argument, value=value, expected=kind.__name__
        )


@cache
def _arguments_of(verb: type) -> tuple[Argument, ...]:
    hints = get_type_hints(verb, include_extras=True)
    names: Mapping[str, str] = verb.WIRE_NAMES  # type: ignore[attr-defined]
    return tuple(
        _argument(one.name, names.get(one.name, one.name), hints[one.name], _is_needed(one))
        for one in sorted(fields(verb), key=lambda one: bool(one.kw_only))
        if one.init
    )


def _is_needed(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _argument(name: str, wire_name: str, hint: object, is_needed: bool) -> Argument:
    declared, may_be_none, notes = read_annotation(hint)
    among = get_args(declared) if get_origin(declared) is Literal else ()
    kind: Any = str if among else (get_origin(declared) or declared)
    if kind not in (str, int, bool):
        kind = dict if issubclass(kind, Mapping) else list
    return Argument(
        name,
        wire_name,
        kind,
        is_needed,
        may_be_none,
        # What a verb says of it counts more than what its type says.
        next((one for one in reversed(notes) if isinstance(one, str)), ""),
        _note(Bounds, notes),
        _note(Length, notes),
        _note(Texts, notes),
        among,
        tuple(one for one in notes if isinstance(one, Key)),
        _note(Typed, notes),
    )


def _note(kind: type[Row], notes: tuple[object, ...]) -> Row | None:
    return next((one for one in notes if isinstance(one, kind)), None)


def read_rows(declared: tuple[str, Callable[..., Row]], answer: Fields) -> list[Row]:
    """The rows of an answer that have this name, and are of this type.

    Raises:
        ProtocolError: the broker answered with something else.
    """
    name, row = declared
    return rows(answer, name, partial(read_row, row))


def as_json(told: object) -> Any:
    """Named tuples as objects of their fields, also within one another; all else as it is."""
    if isinstance(told, tuple):
        names = getattr(told, "_fields", None)
        if names is None:
            return [as_json(one) for one in told]
        return {name: as_json(one) for name, one in zip(names, told, strict=True)}
    if isinstance(told, list):
        return [as_json(one) for one in told]
    return told
