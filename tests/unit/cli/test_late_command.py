"""Commands whose work is in a module that is imported when they run."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from ledgermq.cli.arguments import LateCommand
from ledgermq.cli.main import whole_parser
from tests import left_out

WITHOUT_SPARK = left_out.without_spark(needs_java=False)
"""Some commands are of what reads for Spark."""


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


@pytest.mark.skipif(bool(WITHOUT_SPARK), reason=WITHOUT_SPARK)
def test_the_function_of_every_late_command_is_there() -> None:
    functions = [parser.get_default("func") for parser in parsers(whole_parser())]
    late = [one for one in functions if isinstance(one, LateCommand)]

    assert len(late) > 20
    assert [one for one in late if not callable(one.find())] == []


@pytest.mark.parametrize(
    "missing", [LateCommand("store.store_sizes", "nothing"), LateCommand("nothing", "run")]
)
def test_a_late_command_that_is_not_there_is_told_when_it_is_looked_for(
    missing: LateCommand,
) -> None:
    with pytest.raises((AttributeError, ModuleNotFoundError), match="nothing"):
        missing.find()
