"""A mirror where operators look: the console, the API and ``top``, there and at its source."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.process.api_client import ApiClient
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.console_client import ConsoleClient
from tests.process.group_nodes import Member
from tests.process.http_client import listens
from tests.process.mirror_site import NAME, TOKEN, Source
from tests.process.node_start import run_command
from tests.process.test_mirror import bodies, marked, send

pytestmark = pytest.mark.slow

MORE = 100
SIZE = 500


class Sites(NamedTuple):
    """A group of one, and a mirror that has more than it has told."""

    source: Source
    member: Member
    mirror: Member

    @property
    def console(self) -> ConsoleClient:
        """That of the mirror."""
        return ConsoleClient(self.mirror.node.runtime / "http.sock", host="localhost")

    @property
    def api(self) -> ApiClient:
        """That of the mirror."""
        return ApiClient(self.mirror.node.runtime / "http.sock")


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    with nodes_made() as make:
        source = Source(make, tmp_path_factory.mktemp("source"), members=1, console=True)
        (member,) = source.group.members
        run_command("mirror", "add", NAME, "--address", member.address)
        send(member.address, bodies("a", 300))
        node = make()
        source.configure_mirror(node)
        text = node.config.read_text()
        node.config.write_text(text.replace("[listen]", '[listen]\nhttp = "unix"'))
        mirror = Member(node, "m0")
        mirror.start()
        source.wait_copied(mirror)
        wait_until(lambda: marked(member.node) > 0, "the mark at the source")
        # Too little for the mirror to tell of it within five minutes.
        send(member.address, bodies("b", MORE, SIZE))
        source.wait_copied(mirror)
        made = Sites(source, member, mirror)
        wait_until(lambda: lacks_nothing(made.api), "the mirror to say so")
        yield made
        assert mirror.node.stop() == 0
        source.group.stop()


def lacks_nothing(api: ApiClient) -> bool:
    own = api.get("/mirrors").document["own"]
    return own is not None and own["state"] == "copies" and not own["lag_bytes"]


def rows(page: ConsoleClient, table: str, **headers: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        page.get(f"/?export=json&table={table}", **headers).text
    )
    return found


@pytest.mark.long
def test_a_mirror_shows_what_it_is_and_lacks_as_its_command_does(sites: Sites) -> None:
    runtime = str(sites.mirror.node.runtime)

    def asked() -> tuple[Any, Any, Any] | None:
        """Page, API and command, once they were asked while nothing more was copied."""
        told = sites.api.get("/mirrors").document
        done = run_command("mirror", "status", "--runtime-dir", runtime, "--json")
        (shown,) = rows(sites.console, "mirror")
        status = json.loads(done.stdout)
        is_still = told["own"]["held"] == status["held"] == shown["held"]
        return (told, status, shown) if is_still else None

    told, status, shown = wait_until(asked, "a moment in which nothing is copied")
    page = sites.console.get("/").text
    (url,) = sites.source.urls

    assert told["is_mirror"] and told["own"].keys() == status.keys()
    for one in (told["own"], status, shown):
        assert (one["source"], one["state"], one["lag_messages"]) == (url, "copies", 0)
    roles = {row["node"]: row["role"] for row in rows(sites.console, "members")}
    assert roles == {"m0": "mirror", "source": "source"}
    assert "This node is read only" in page and "0 messages, 0 B" in page


def test_what_the_leader_alone_answers_a_mirror_refuses_and_says_where_its_source_is(
    sites: Sites,
) -> None:
    page, refused = sites.console.get("/topics"), sites.api.get("/topics")
    (url,) = sites.source.urls

    assert "this node is a mirror" in page.text.lower()
    assert f'href="{url}"' in page.text
    assert refused.status == 421
    assert refused.document["details"] == {"leader": "source", "url": url}


def test_the_source_shows_what_a_mirror_has_told_to_who_may_look(sites: Sites) -> None:
    host, _, port = sites.source.urls[0].removeprefix("https://").partition(":")
    there = ConsoleClient((host, int(port)), tls=True)
    bearer = f"Bearer {TOKEN}"
    unsigned = there.get("/api/v1/mirrors")
    told = json.loads(there.get("/api/v1/mirrors", authorization=bearer).text)
    (shown,) = rows(there, "mirrors", authorization=bearer)
    listed = run_command("mirror", "list", "--address", sites.member.address, "--json")
    committed = sites.member.cursors()["committed"]

    assert unsigned.status == 401
    assert not told["is_mirror"] and told["own"] is None
    (row,) = told["mirrors"]
    (as_listed,) = json.loads(listed.stdout)["mirrors"]
    for name in ("mirror", "position", "at_ms"):
        assert row[name] == as_listed[name] == shown[name]
    assert row["state"] == "heard"
    assert MORE <= row["lag_messages"] == shown["lag_messages"] <= committed["index"]
    assert MORE * SIZE <= row["behind"] == committed["position"] - row["position"]
    assert row["lag_s"] > 0


def test_top_shows_a_mirror_at_both_sites(sites: Sites) -> None:
    both = f"{sites.member.address},{sites.mirror.address}"
    words = ("top", "--once", "--timeout", "30", "--address")
    figures = json.loads(run_command(*words, both, "--json").stdout)
    at_both, alone = run_command(*words, both), run_command(*words, sites.mirror.address)

    nodes = {one["name"]: one for one in figures["nodes"]}
    assert nodes[sites.member.name]["mirror"] is None
    assert nodes["m0"]["role"] == "mirror"
    assert nodes["m0"]["mirror"]["messages"] == 0 and nodes["m0"]["mirror"]["seconds"] >= 1
    (mirror,) = figures["mirrors"]
    assert mirror["mirror"] == NAME and mirror["behind"] >= MORE * SIZE
    assert "MIRROR m0, read only: lacks 0 messages" in at_both.stdout
    assert f"MIRROR at {NAME}: lacks " in at_both.stdout
    assert "groups: a mirror has none" in alone.stdout


def test_nothing_is_said_of_mirrors_where_there_are_none(make_node: Callable[[], Node]) -> None:
    node = make_node()
    node.configure(listen={"http": "unix"})
    Member(node, "n0").start()
    node.wait_ready()
    where = node.runtime / "http.sock"
    wait_until(lambda: listens(where), "the socket")
    told = ApiClient(where).get("/mirrors").document
    page = ConsoleClient(where, host="localhost").get("/").text
    assert node.stop() == 0

    assert told == {"is_mirror": False, "own": None, "mirrors": []}
    assert "irror" not in page.partition("<main")[2]
