"""Tokens of callers, and the names under which a node without tokens may be asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.requests import Request

from ledgermq.model.errors import ConfigError, NoPermissionError
from ledgermq.observer.callers import HttpCaller, check_host
from ledgermq.observer.tokens import Tokens
from ledgermq.wire.session import ADMIN, ANY_USER, LOOKS

TOKEN = "0123456789abcdef0123456789abcdef"


def tokens_of(folder: Path, *lines: str) -> Tokens:
    path = folder / "tokens"
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o600)
    return Tokens.read(path)


def test_a_byte_order_mark_before_the_first_line_is_none_of_it(tmp_path: Path) -> None:
    assert tokens_of(tmp_path, "\ufeff# who asks", f"one {TOKEN}").caller_with(TOKEN)
    named = tokens_of(tmp_path, f"\ufeffone {TOKEN}").caller_with(TOKEN)
    assert named == HttpCaller(LOOKS, "one")


@pytest.mark.parametrize(
    ("word", "caller"),
    [
        ("", HttpCaller(LOOKS, "one")),
        ("look", HttpCaller(LOOKS, "one")),
        ("admin", HttpCaller(ADMIN, "one")),
        ("mirror", HttpCaller(LOOKS, "one", copies=True)),
        ("user:orders", HttpCaller(ANY_USER, "one", "orders")),
        ("user:a:b", HttpCaller(ANY_USER, "one", "a:b")),
    ],
)
def test_a_line_says_what_its_caller_may(tmp_path: Path, word: str, caller: HttpCaller) -> None:
    tokens = tokens_of(tmp_path, "# who asks", f"one {TOKEN} {word}")

    assert tokens.caller_of(f"Bearer {TOKEN}") == caller
    assert tokens.caller_with(TOKEN) == caller
    assert tokens.caller_of(TOKEN) is None
    assert tokens.caller_of(f"Bearer {TOKEN}x") is None


@pytest.mark.parametrize(
    "line",
    [
        f"one {TOKEN} root",
        f"one {TOKEN} user",
        f"one {TOKEN} user:",
        f"one {TOKEN} look:x",
        f"one {TOKEN} mirror:x",
        f"a/b {TOKEN} mirror",
        f"{'x' * 100} {TOKEN} mirror",
        f"one {TOKEN} admin:x",
        f"one {TOKEN} account",
        f"one {TOKEN} look more",
        f"{'x' * 300} {TOKEN}",
        f"one {TOKEN} user:{'x' * 300}",
        "one short",
    ],
)
def test_a_line_that_says_something_else_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError):
        tokens_of(tmp_path, line)


def request_to(host: str) -> Request:
    return Request({"type": "http", "headers": [(b"host", host.encode())]})


@pytest.mark.parametrize(
    "host", ["127.0.0.1:9464", "[::1]:9464", "localhost", "LOCALHOST:1", "[::1]"]
)
def test_an_address_and_localhost_are_names_of_this_machine(host: str) -> None:
    check_host(request_to(host))


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9464", "", "localhost.evil:80", "a"]
)
def test_other_names_are_refused(host: str) -> None:
    with pytest.raises(NoPermissionError):
        check_host(request_to(host))
