"""Options of a verb of the table, and the struct that a command line makes of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ledgermq.cli.arguments import takes
from ledgermq.cli.node_verbs import ON_OFF
from ledgermq.verbs.verb import NOTHING, Argument, Key, Verb, arguments_of

Parse = Callable[[str | None], object]
_NO_PARSERS: Mapping[str, Parse] = {}


def add_options(
    parser: argparse.ArgumentParser,
    verb: type[Verb[Any]],
    *,
    only: Collection[str] = (),
    words: Mapping[str, str] = NOTHING,
) -> None:
    """Add an option for each argument that need not be given; all of them, or ``only`` some.

    Args:
        words: how values are called that are no numbers on the command line, by argument.
    """
    for argument in arguments_of(verb):
        for key in argument.keys:
            if key.option:
                _add(
                    parser,
                    f"--{key.option}",
                    key.name,
                    key.kind,
                    may_be_none=True,
                    among=(),
                    text=_typed(key),
                )
        if argument.keys or argument.is_needed or (only and argument.name not in only):
            continue
        name, kind = argument.name, argument.kind
        word = words.get(name, "")
        option = f"--{name.removesuffix('_ms').replace('_', '-')}"
        text = argument.typed.text if argument.typed else _as_help(argument.about)
        if word:
            parser.add_argument(option, metavar=word, dest=name, help=text)
        else:
            _add(
                parser,
                option,
                name,
                kind,
                may_be_none=argument.may_be_none,
                among=argument.among,
                text=text,
            )


def given(
    arguments: argparse.Namespace,
    verb: type[Verb[Any]],
    *,
    parsers: Mapping[str, Parse] = _NO_PARSERS,
) -> dict[str, Any]:
    """What was given of the options of a verb, by the names of its arguments; all that has keys is
    an object of those that were given.

    Args:
        parsers: of values that are no numbers on the command line, by argument.
    """
    found: dict[str, Any] = {}
    for argument in arguments_of(verb):
        if argument.keys:
            values = ((key.name, getattr(arguments, key.name, None)) for key in argument.keys)
            found[argument.name] = {
                name: ON_OFF.get(value, value) for name, value in values if value is not None
            }
        elif hasattr(arguments, argument.name) and not argument.is_needed:
            found[argument.name] = _value(argument, getattr(arguments, argument.name), parsers)
    return found


def _value(argument: Argument, text: Any, parsers: Mapping[str, Parse]) -> Any:
    if argument.name in parsers:
        return parsers[argument.name](text)
    if argument.kind is bool and argument.may_be_none:
        return ON_OFF.get(text)
    return text


def _add(
    parser: argparse.ArgumentParser,
    option: str,
    name: str,
    kind: type,
    *,
    may_be_none: bool,
    among: Collection[str],
    text: str | None,
) -> None:
    if kind is bool and not may_be_none:
        takes(parser, option, text, dest=name)
    elif kind is bool or among:
        choices = tuple(among) or tuple(ON_OFF)
        parser.add_argument(option, choices=choices, dest=name, help=text)
    else:
        takes(parser, f"{option} N", text, dest=name)


def _typed(key: Key) -> str:
    return key.typed or _as_help(key.about)


def _as_help(about: str) -> str:
    """A sentence as help has it: it begins small, but for names."""
    return about if about.startswith("RocketMQ") else about[:1].lower() + about[1:]
