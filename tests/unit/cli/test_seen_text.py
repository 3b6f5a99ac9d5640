"""Text at a terminal: what can be seen stays, and nothing else comes through."""

from __future__ import annotations

import io
import sys

import pytest

from ledgermq.cli.seen_text import SeenText, all_shown, drawn, show_only_what_is_seen, shown


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


def test_what_is_printed_at_a_terminal_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    show_only_what_is_seen()
    show_only_what_is_seen()
    print("a\x1b[2J\tb\r\u202ec\x9bd", "grüße", flush=True)
    print("as it is\x1b", file=sys.stderr)
    sys.stdout.writelines(["\x07\n"])
    print("\x1b[0m", end="", file=drawn(sys.stdout))

    assert out.getvalue() == "a·[2J\tb··c·d grüße\n·\n\x1b[0m"
    assert err.getvalue() == "as it is\x1b\n"
    assert isinstance(sys.stdout, SeenText) and sys.stdout.drawn is out


def test_texts_are_shown_within_whatever_holds_them() -> None:
    assert all_shown({"\x1b": ["a\x07", 1, None, ("\n",)]}) == {"·": ["a·", 1, None, ("·",)]}
    assert shown("a\nb", keeps="\n") == "a\nb"
