"""Clusters of groups keep their promises; deliberate bugs are found."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ledgermq.model.errors import ConfigError
from ledgermq.rules.cluster import cluster_plans, cluster_table, document_desk, topic_rows
from ledgermq.rules.cluster.certificates import Chain
from ledgermq.rules.cluster.cluster_commands import HomeHandedOver
from ledgermq.rules.cluster.cluster_plans import RightsAge
from ledgermq.rules.cluster.cluster_table import ClusterTable
from ledgermq.rules.cluster.document_asker import DocumentAsker
from ledgermq.rules.cluster.numbered_rows import NumberedRows
from ledgermq.rules.cluster.topic_rows import ClusterTopic
from ledgermq.rules.messages import topic_plans
from ledgermq.rules.tables.topics import Permission, Topic
from tests.sim.search import find
from tests.simulator.cluster import model_group
from tests.simulator.cluster.cluster_run import run_cluster_seed

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("LEDGERMQ_SEEDS", "10"))
SEEDS_FOR_A_BUG = 60

Patch = pytest.MonkeyPatch


def tombstones_are_forgotten_at_once(patch: Patch) -> None:
    """Whoever was away when a user was removed keeps the user."""
    forget = NumberedRows.forget

    def hasty(rows: NumberedRows, number: int) -> None:
        forget(rows, rows.at.number)
        rows.floor = 0

    patch.setattr(NumberedRows, "forget", hasty)


def every_base_is_taken_for_a_part(patch: Patch) -> None:
    """Rows that a lost home wrote are taken for rows of the next one."""
    patch.setattr(NumberedRows, "has_passed", lambda rows, point: True)


def documents_need_not_follow(patch: Patch) -> None:
    """A document that arrives twice, or late, takes back what came after it."""
    take = ClusterTable._take

    def careless(table: ClusterTable, signed: bytes) -> None:
        try:
            take(table, signed)
        except ConfigError as error:
            if "does not follow" not in str(error) or table.chain is None:
                raise
            home = table.chain.greatest
            assert home is not None
            document = cluster_table.open_document(signed, home.key)
            table.rows.take(document.rows, document.at)

    patch.setattr(ClusterTable, "_take", careless)


def the_first_home_is_the_home_for_ever(patch: Patch) -> None:
    """Certificates of later homes are not taken."""
    with_chain = Chain.with_chain
    patch.setattr(
        Chain,
        "with_chain",
        lambda chain, offered: chain if chain.rank else with_chain(chain, offered),
    )


def a_handed_over_home_goes_on_writing(patch: Patch) -> None:
    """Whoever was a home once is one."""
    is_home = ClusterTable.is_home.fget
    assert is_home is not None
    were: set[int] = set()

    def clings(table: ClusterTable) -> bool:
        if is_home(table):
            were.add(id(table))
        return id(table) in were

    patch.setattr(ClusterTable, "is_home", property(clings))


def rows_are_handed_over_that_are_not_all(patch: Patch) -> None:
    """The home has written since it certified the next one, and goes by its certificate."""

    def careless(table: ClusterTable, command: HomeHandedOver) -> None:
        table.check_home()
        table._certify(table._own_chain.with_chain(command.chain))

    patch.setattr(ClusterTable, "_hand_over", careless)


def a_home_is_handed_over_to_who_lacks_rows(patch: Patch) -> None:
    """It need only have asked: and nobody can give it what it lacks any more."""
    patch.setattr(cluster_plans, "has_all_rows", lambda table, asked: True)


def followers_say_that_they_know_all(patch: Patch) -> None:
    """Any member of the home says that what it knows of is all."""
    answer = document_desk.DocumentDesk.answer
    patch.setattr(
        document_desk.DocumentDesk,
        "answer",
        lambda desk, asked, *, is_current: answer(desk, asked, is_current=True),
    )


def a_lost_home_asks_nobody(patch: Patch) -> None:
    """It comes back, and goes on as the home that nobody asks any more."""
    question = DocumentAsker.question
    patch.setattr(
        DocumentAsker,
        "question",
        lambda asker, now_ms: None if asker._is_home else question(asker, now_ms),
    )


def the_home_alone_is_asked(patch: Patch) -> None:
    """When it is lost nobody hears of the next one."""

    def address(asker: DocumentAsker) -> str:
        nodes = asker._home_nodes()
        return nodes[asker._turn % len(nodes)] if nodes else ""

    patch.setattr(DocumentAsker, "_address", address)


def rights_are_never_too_old(patch: Patch) -> None:
    """A group that is cut off from its home serves a user for ever who was removed there."""
    patch.setattr(model_group, "rights_age", lambda table, **age: RightsAge(None, None))


def a_leader_counts_from_when_it_began(patch: Patch) -> None:
    """Each election makes old rights young."""
    find_age = model_group.rights_age

    def forgetful(
        table: ClusterTable, *, current_ms: int | None, now_ms: int, max_ms: int
    ) -> RightsAge:
        known_ms = now_ms if current_ms is None else current_ms
        return find_age(table, current_ms=known_ms, now_ms=now_ms, max_ms=max_ms)

    patch.setattr(model_group, "rights_age", forgetful)


def what_is_closed_is_not_read_either(patch: Patch) -> None:
    """Messages that were acknowledged before are out of reach."""
    with_share = topic_plans._with_share

    def shut(*given: Any, **named: Any) -> Topic:
        found = with_share(*given, **named)
        return found if found.is_writable else replace(found, permission=Permission(0))

    patch.setattr(topic_plans, "_with_share", shut)


def own_topics_are_taken_up_unasked(patch: Patch) -> None:
    """A group's own topic gets the queues of the cluster's."""
    with_share = topic_plans._with_share

    def adopting(*given: Any, **named: Any) -> Any:
        topics, cluster, name, row, share = given
        return with_share(topics, cluster, name, row._replace(adopts=True), share, **named)

    patch.setattr(topic_plans, "_with_share", adopting)


def any_group_follows_any_share(patch: Patch) -> None:
    """A topic is served by groups that no home has given it."""

    def of_all(table: ClusterTable, topic: str) -> ClusterTopic | None:
        row = topic_rows.topic_row(table, topic)
        share = next(iter(row.shares.values())) if row is not None else None
        return row and share and row._replace(shares={**row.shares, table.group: share})

    patch.setattr(topic_plans, "topic_row", of_all)


@pytest.mark.long(but=3)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_cluster_keeps_its_promises(seed: int) -> None:
    failure, run = run_cluster_seed(seed)

    assert failure == "", f"again: python -m tests.simulator --cluster --seed {seed} --trace"
    assert run.home.table.at.number > 0


@pytest.mark.long(but=4)
@pytest.mark.parametrize(
    ("bug", "likely"),
    [
        (tombstones_are_forgotten_at_once, 0),
        (every_base_is_taken_for_a_part, 3),
        (documents_need_not_follow, 2),
        (the_first_home_is_the_home_for_ever, 14),
        (a_handed_over_home_goes_on_writing, 0),
        (rows_are_handed_over_that_are_not_all, 2),
        (a_home_is_handed_over_to_who_lacks_rows, 1),
        (followers_say_that_they_know_all, 56),
        (a_lost_home_asks_nobody, 2),
        (the_home_alone_is_asked, 3),
        (rights_are_never_too_old, 0),
        (a_leader_counts_from_when_it_began, 14),
        (what_is_closed_is_not_read_either, 1),
        (own_topics_are_taken_up_unasked, 1),
        (any_group_follows_any_share, 1),
    ],
)
def test_a_deliberate_bug_is_found_within_few_seeds(
    bug: Callable[[Patch], None], likely: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)

    def fails(seed: int) -> str:
        return run_cluster_seed(seed)[0]

    assert find(fails, likely=likely, count=SEEDS_FOR_A_BUG) is not None
