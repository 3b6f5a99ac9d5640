"""The verdict on a node's health: each state with its reason, and what to do about it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.daemon.health.verdict import (
    _SEE,
    HealthTrouble,
    Signs,
    judge,
    within_ms,
)
from ledgermq.ipc.cursor_page import Grant, PublishedRole
from ledgermq.ipc.page_slots import Proof, SpaceState
from ledgermq.model.config.settings import RaftSection, Settings, SupervisionSection
from ledgermq.model.features import LEVEL
from ledgermq.model.ids import NodeId, Term
from ledgermq.sessions.leadership.takeover import Takeover

ROOT = Path(__file__).parents[3]
LIMIT_MS = 5_000
NOW_NS = 100_000_000_000

LEADER = Signs(
    is_stopping=False,
    was_ready=True,
    waits_for="",
    down=(),
    starting=(),
    hanging=(),
    grant=Grant(Term(7), True, PublishedRole.LEADER, NodeId("n0")),
    stage=Takeover.SERVICES_GRANTED,
    proof=Proof(NOW_NS - 100_000_000, False, False),
    not_durable_ms=0,
    not_committed_ms=0,
    space=SpaceState.ROOMY,
    level_needed=0,
    tables_held_up=False,
    now_ns=NOW_NS,
)
FOLLOWER = replace(
    LEADER,
    grant=Grant(Term(7), False, PublishedRole.FOLLOWER, NodeId("n1")),
    stage=Takeover.NONE,
)
OLD = Proof(NOW_NS - (LIMIT_MS + 1) * 1_000_000, False, False)


def test_a_leader_that_has_taken_over_is_ready_and_leads() -> None:
    health = judge(LEADER, LIMIT_MS)

    assert (health["state"], health["ready"], health["leads"]) == ("ready", True, True)
    assert (health["role"], health["term"], health["leader"]) == ("leader", 7, "n0")
    assert health["majority_age_ms"] == 100
    assert health["reasons"] == []
    assert health["why_not_leading"] == ""


def test_a_follower_is_ready_and_says_whom_it_follows() -> None:
    health = judge(FOLLOWER, LIMIT_MS)

    assert (health["state"], health["leads"]) == ("ready", False)
    assert health["why_not_leading"] == "it follows n1"


def test_a_leader_that_takes_over_does_not_lead_yet() -> None:
    health = judge(replace(LEADER, stage=Takeover.COMMITTED), LIMIT_MS)

    assert (health["ready"], health["leads"]) == (True, False)
    assert health["why_not_leading"] == "it leads, and is taking over: no-op committed"


def test_in_an_election_it_is_ready_as_long_as_the_proof_is_young() -> None:
    nobody = replace(FOLLOWER, grant=Grant(Term(8), False, PublishedRole.CANDIDATE))

    assert judge(nobody, LIMIT_MS)["ready"]
    assert judge(nobody, LIMIT_MS)["why_not_leading"] == "nobody is known to lead"
    assert not judge(replace(nobody, proof=OLD), LIMIT_MS)["ready"]


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"down": ("broker",)}, "process_down", "broker is down, and to be started again"),
        (
            {"starting": ("raft", "writer")},
            "process_starts",
            "raft and writer are being started again",
        ),
        ({"hanging": ("writer",)}, "process_hangs", "writer is giving no sign of life"),
        ({"proof": OLD}, "no_majority", "no majority was heard of for 5000 ms"),
        (
            {"proof": Proof(0, False, False)},
            "no_majority",
            "no majority was heard of since this start",
        ),
        (
            {"not_durable_ms": 5_001},
            "not_durable",
            "what was written is not durable after 5000 ms",
        ),
        (
            {"not_committed_ms": 5_001},
            "not_committed",
            "what was written is not committed after 5000 ms",
        ),
        (
            {"proof": Proof(NOW_NS, True, False)},
            "disk_sick",
            "the disk is sick: syncs hang, or the writer does",
        ),
        ({"space": SpaceState.FULL}, "disk_full", "disk full, producers are refused"),
        ({"space": SpaceState.ABOVE}, "disk_full", "disk full, producers are refused"),
        (
            {"level_needed": LEVEL + 1, "tables_held_up": True},
            "held_up",
            r"the log needs feature level \d+, which version .+ knows",
        ),
        (
            {"tables_held_up": True},
            "damaged",
            "a damaged place of the log holds the broker's tables up",
        ),
        (
            {"proof": Proof(NOW_NS, False, True)},
            "damaged",
            "the log lost entries to damage, and does not hold them again",
        ),
    ],
)
def test_a_node_that_does_not_serve_says_why(
    changes: dict[str, object], code: str, text: str
) -> None:
    for signs in (LEADER, FOLLOWER):
        health = judge(replace(signs, **changes), LIMIT_MS)  # type: ignore[arg-type]
        (reason,) = health["reasons"]

        assert (health["state"], health["ready"], health["leads"]) == ("not ready", False, False)
        assert reason["code"] == code
        assert re.fullmatch(text, reason["text"])
        assert health["why_not_leading"] == reason["text"]


def test_at_the_limit_it_is_still_ready() -> None:
    proof = Proof(NOW_NS - LIMIT_MS * 1_000_000, False, False)
    signs = replace(LEADER, proof=proof, not_durable_ms=LIMIT_MS, not_committed_ms=LIMIT_MS)

    assert judge(signs, LIMIT_MS)["ready"]


def test_all_that_is_wrong_is_told_the_causes_first() -> None:
    signs = replace(LEADER, down=("writer",), proof=OLD, not_committed_ms=9_000)
    codes = [reason["code"] for reason in judge(signs, LIMIT_MS)["reasons"]]

    assert codes == ["process_down", "no_majority", "not_committed"]


@pytest.mark.parametrize(
    ("changes", "state", "text"),
    [
        (
            {"was_ready": False, "waits_for": "a leader"},
            "starting",
            "starting, waiting for a leader",
        ),
        ({"was_ready": False}, "starting", "starting"),
        ({"is_stopping": True, "waits_for": "raft"}, "stopping", "stopping, waiting for raft"),
    ],
)
def test_who_starts_or_stops_is_not_ready_whatever_else_is_so(
    changes: dict[str, object], state: str, text: str
) -> None:
    health = judge(replace(LEADER, proof=OLD, **changes), LIMIT_MS)  # type: ignore[arg-type]

    assert (health["state"], health["ready"], health["leads"]) == (state, False, False)
    assert [(one["code"], one["text"]) for one in health["reasons"]] == [(state, text)]


def test_elections_that_take_long_are_given_their_time() -> None:
    settings = replace(
        Settings(),
        supervision=SupervisionSection(ready_within_ms=1_000),
        raft=RaftSection(election_timeout_min_ms=2_000, election_timeout_max_ms=4_000),
    )

    assert within_ms(Settings()) == LIMIT_MS
    assert within_ms(settings) == 8_000


def test_every_reason_names_a_headline_that_is_there() -> None:
    assert set(_SEE) == set(HealthTrouble)
    for see in _SEE.values():
        page, _, anchor = see.partition("#")
        headlines = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.M)
        anchors = [re.sub(r"[^a-z0-9 -]", "", line.lower()).replace(" ", "-") for line in headlines]
        assert not anchor or anchor in anchors, see
