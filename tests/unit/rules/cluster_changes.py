"""Changes of a broker's state that are about a cluster, and who has signed them."""

from __future__ import annotations

from ledgermq.rules.cluster.certificates import Certificate, certify
from ledgermq.rules.cluster.cluster_commands import ClusterJoined, HomeCertified
from ledgermq.rules.cluster.signatures import SigningKey
from ledgermq.rules.state.broker_state import BrokerState
from ledgermq.rules.state.state_commands import STATE_TAG, StateCommand, encode_command
from ledgermq.rules.tables.table_changes import Change, LevelSet

ROOT, HOME = SigningKey(b"r" * 32), SigningKey(b"h" * 32)
CERTIFIED = certify(ROOT, Certificate("c", 1, True, "a", HOME.public, 0, b"")).signed
HOME_BEGINS: tuple[Change, ...] = (
    LevelSet(3),
    ClusterJoined("c", ROOT.public, "a", ()),
    HomeCertified([CERTIFIED]),
)


def body_of(*changes: Change) -> bytes:
    return encode_command(StateCommand("c", 1, changes))


def applied(state: BrokerState, *changes: Change) -> BrokerState:
    """One command each, behind those that it has."""
    for offset, change in enumerate(changes, state.applied):
        state.apply(offset, STATE_TAG, "", body_of(change))
    return state
