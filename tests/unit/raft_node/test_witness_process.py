"""The process of a witness without bodies: whom it lets in, and what it answers an operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.members.roster import ToldGroup, encode_group
from ledgermq.model.config.settings import (
    ClusterState,
    ListenSection,
    LogKind,
    NodeSection,
    Settings,
    StoreSection,
)
from ledgermq.model.errors import NotLeaderError, ProtocolError
from ledgermq.model.features import LEVEL, LEVEL_OF_BODILESS
from ledgermq.model.ids import Index, NodeId, Term
from ledgermq.process import control
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.raft.message_codec import encode_message
from ledgermq.raft.messages import Attest
from ledgermq.raft_node.peers.peers import PeerMessage
from ledgermq.raft_node.witness.witness_process import WitnessFile, WitnessWorker
from ledgermq.store.files.store_paths import StorePaths
from tests.simulator.machine.events import Events, NodeClock
from tests.simulator.machine.network import Network, PeersEnd
from tests.simulator.machine.process import SimulatedInbox
from tests.simulator.witness_node import SimWitnessSurroundings

N0, N1, N2, N3 = (NodeId(f"n{number}") for number in range(4))
ADDRESSES = {N0: "10.0.0.1:40911", N1: "10.0.0.2:40911", N2: "10.0.0.3:40911"}
ASK_S = 30.0


class RunningWitness:
    """A worker, and its end of the network."""

    def __init__(self, folder: Path) -> None:
        peers = tuple(f"{node}-{address}" for node, address in ADDRESSES.items())
        settings = Settings(
            node=NodeSection(
                self_id=N2,
                peers=peers,
                initial_cluster_state=ClusterState.EXISTING,
                witness=True,
            ),
            store=StoreSection(path_root_dir=folder / "store", log=LogKind.DLEDGER),
            listen=ListenSection(runtime_dir=folder / "run"),
        )
        self.paths = RuntimePaths(settings.listen.runtime_dir)
        self.paths.directory.mkdir()
        events = Events()
        self.page = CursorPage.create(self.paths.cursors)
        self.page.enter_process(Role.RAFT)
        self.end = PeersEnd(N2, [N0, N1], Network(events, Random(0)), lambda: None)
        self._surroundings = SimWitnessSurroundings(
            settings,
            self.paths,
            self.page,
            SimulatedInbox(-1),
            NodeClock(events, Random(0), rate=1_000),
        )
        self._file = StorePaths.of(settings).witness
        self.worker = WitnessWorker(self._surroundings, WitnessFile(self._file), self.end)

    def start_again(self) -> None:
        """The process ends, and another one goes on with its files, and with ``node.peers``."""
        self.worker.close()
        self.end = PeersEnd(N2, [N0, N1], Network(Events(), Random(0)), lambda: None)
        self.worker = WitnessWorker(self._surroundings, WitnessFile(self._file), self.end)

    def take(self, *parts: bytes, source: NodeId = N0) -> None:
        """A message of a member, and a turn."""
        self.end.take(PeerMessage(source, [memoryview(part) for part in parts]))
        self.worker.turn({}, 0)

    def ask(self, verb: str, **fields: object) -> dict[str, object]:
        """As the command does; the worker turns meanwhile."""
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(
                lambda: dict(control.ask(self.paths.raft_control, verb, timeout_s=ASK_S, **fields))
            )
            while not answer.done():
                self.worker.turn(dict.fromkeys(self.worker.sources(), 1), 0)
            return answer.result()


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[RunningWitness]:
    made = RunningWitness(tmp_path)
    yield made
    made.worker.close()
    made.page.close()


def attest(
    level: int, addresses: Mapping[NodeId, str] = ADDRESSES, *, term: int = 3
) -> tuple[bytes, bytes]:
    return (
        encode_message(Attest(Term(term), Index(7), 1)),
        encode_group(ToldGroup(level, addresses)),
    )


def test_who_knows_no_such_witnesses_is_never_let_in(witness: RunningWitness) -> None:
    assert witness.end.level_needed == LEVEL_OF_BODILESS


def test_the_level_in_force_is_held_against_members_from_then_on(witness: RunningWitness) -> None:
    witness.take(*attest(LEVEL + 1))
    assert witness.end.level_needed == LEVEL + 1

    witness.take(*attest(0))
    assert witness.end.level_needed == LEVEL + 1


def test_what_is_told_of_no_group_makes_nothing_durable(witness: RunningWitness) -> None:
    witness.take(encode_message(Attest(Term(3), Index(7), 1)), b'{"level": 4, "members": {}}')
    assert witness.worker.kept.last.index == -1

    witness.take(*attest(LEVEL_OF_BODILESS))
    assert witness.worker.kept.last.index == 7


def test_members_and_level_that_were_told_are_known_after_a_restart(
    witness: RunningWitness,
) -> None:
    witness.take(*attest(LEVEL + 1, {**ADDRESSES, N3: "10.0.0.4:40911"}))
    # The leader has just been started, too, and knows of no level yet.
    witness.take(*attest(0, {**ADDRESSES, N3: "10.0.0.4:40911"}))

    witness.start_again()

    assert sorted(witness.end.levels) == [N0, N1, N2, N3]
    assert witness.end.level_needed == LEVEL + 1


def test_a_leader_whose_time_is_over_says_nothing_of_who_belongs_to_the_group(
    witness: RunningWitness,
) -> None:
    witness.take(*attest(LEVEL, {**ADDRESSES, N3: "10.0.0.4:40911"}, term=4), source=N1)

    witness.take(*attest(LEVEL, term=3))

    assert N3 in witness.end.levels


def test_an_operator_may_have_it_trust_another_disk(witness: RunningWitness) -> None:
    # In the simulator no disk is known to anybody.
    assert witness.ask("forget", node="n1") == {"forgotten": False}
    with pytest.raises(ProtocolError, match="no such member"):
        witness.ask("forget", node="n7")


def test_it_tells_what_it_knows_and_leaves_the_rest_to_the_leader(witness: RunningWitness) -> None:
    witness.take(*attest(LEVEL_OF_BODILESS))
    told = witness.ask("status")

    assert (told["role"], told["leader"]) == ("witness", "n0")
    assert told["last"] == {"term": 3, "index": 7}
    assert told["levels"] == {"n0": LEVEL, "n1": LEVEL, "n2": LEVEL}
    with pytest.raises(NotLeaderError):
        witness.ask("remove", node="n1")
