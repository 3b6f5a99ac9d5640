"""Arguments of a verb of the table, read from a call and checked by what its struct says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ledgermq.broker import call_arguments
from ledgermq.broker.call_arguments import Arguments
from ledgermq.broker.calls import AnsweredVerb, Call, Result
from ledgermq.model.errors import ProtocolError
from ledgermq.verbs.verb import NUMBER_MAX, Argument, Verb, arguments_of

Asked = TypeVar("Asked", bound=Verb[Any])


def answered(
    verb: type[Asked],
    answer: Callable[[Call, Asked], Result | None],
    *,
    whatever_tables: bool = False,
) -> AnsweredVerb:
    """The row of a verb: ``answer`` gets its struct, whose arguments are checked."""

    def read_and_answer(call: Call) -> Result | None:
        return answer(call, read_arguments(verb, call.arguments))

    return AnsweredVerb(verb.NAME, read_and_answer, verb.NEEDS, whatever_tables)


def read_arguments(verb: type[Asked], arguments: Arguments) -> Asked:
    """The struct of a verb with what a call says; arguments that it does not know are not read.

    Raises:
        ProtocolError: one is missing, out of its bounds, or of another type.
        ConfigError: they do not go together.
    """
    given = {
        one.name: _read(one, arguments)
        for one in arguments_of(verb)
        if one.is_needed or arguments.get(one.wire_name) is not None
    }
    return verb(**given)


def _read(argument: Argument, arguments: Arguments) -> object:
    name = argument.wire_name
    if argument.kind is int:
        least, most = argument.bounds or (0, NUMBER_MAX)
        return call_arguments.integer(arguments, name, least, most)
    if argument.kind is bool:
        return call_arguments.flag(arguments, name)
    if argument.kind is dict:
        return call_arguments.fields(arguments, name)
    if argument.kind is list:
        return _read_list(argument, arguments)
    return _read_text(argument, arguments)


def _read_list(argument: Argument, arguments: Arguments) -> object:
    name = argument.wire_name
    if argument.texts is not None:
        return call_arguments.texts(arguments, name, *argument.texts)
    if argument.bounds is not None:
        return call_arguments.offsets(arguments, name, *argument.bounds)
    return call_arguments.queue_ids(arguments, name)


def _read_text(argument: Argument, arguments: Arguments) -> str:
    name = argument.wire_name
    if argument.length is not None:
        return call_arguments.long_text(arguments, name, *argument.length)
    value = call_arguments.text(arguments, name)
    if argument.among and value not in argument.among:
        raise ProtocolError(
            "argument is none of what it may be",
            argument=name, value=value, allowed=" ".join(argument.among),
        )  # fmt: skip
    return value
