"""The broker process: pulls, calls, and the services of the leader's broker.

Begin with ``broker_process.py``, what one turn does, and ``service.py`` and
``broker_services.py``, the list of services that have a turn in it. Then
``pulls/consume_service.py`` and ``pulls/pull_service.py`` for consumers, ``call_service.py`` for
calls, ``state/state_log.py`` for changes that go through the log, and ``deliveries/moves.py`` for
deliveries. The rules are those of ``rules``. It may import ``process`` and below, and no other
process.
"""
