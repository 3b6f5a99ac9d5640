"""Sessions of clients: sockets, identity and rights, limits, and the standing that they are told.

Begin with ``session_server.py``, HELLO and WELCOME at the sockets of writer and broker, and
``client_rights.py``, who somebody is and may do. The keys are ``keys/``. It may import ``rules``,
``ipc``, ``wire`` and below, and sees no single process.
"""
