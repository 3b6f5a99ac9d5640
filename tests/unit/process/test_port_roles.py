"""Which processes serve RocketMQ's clients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ledgermq.daemon.children import START_ORDER, STOP_ORDER, start_order
from ledgermq.ipc.cursor_page import PORTS, Role
from ledgermq.model.config.settings import ListenSection, RemotingSection, Settings, StoreSection
from ledgermq.process.port_roles import port_roles


def settings(processes: int, **listen: str) -> Settings:
    made = Settings(store=StoreSection(path_root_dir=Path("/tmp/store")))
    return replace(
        made, listen=ListenSection(**listen), remoting=RemotingSection(processes=processes)
    )


def test_one_process_is_the_broker_and_more_are_of_a_role_of_their_own() -> None:
    assert port_roles(settings(1, remoting="*:10911")) == ()
    assert port_roles(settings(3, remoting="*:10911")) == (Role.PORT_1, Role.PORT_2, Role.PORT_3)
    assert port_roles(settings(16, name_server="*:9876")) == PORTS


def test_a_node_without_a_port_has_no_process_for_it() -> None:
    assert port_roles(settings(4)) == ()
    assert start_order(settings(4)) == [Role.RAFT, Role.WRITER, Role.DISPATCHER, Role.BROKER]


def test_a_witness_without_bodies_has_the_raft_process_alone() -> None:
    made = settings(3, remoting="*:10911")
    witness = replace(made, node=replace(made.node, witness=True))

    assert start_order(witness) == [Role.RAFT]


def test_port_processes_start_behind_the_broker_and_stop_before_the_writer() -> None:
    wanted = start_order(settings(2, remoting="*:10911"))

    assert wanted[-2:] == [Role.PORT_1, Role.PORT_2]
    assert set(START_ORDER) == set(STOP_ORDER)
    assert STOP_ORDER.index(Role.BROKER) < STOP_ORDER.index(Role.PORT_1)
    assert STOP_ORDER.index(Role.PORT_16) < STOP_ORDER.index(Role.WRITER)
