"""The port of RocketMQ's clients: a part of the broker process, or processes of its own.

Begin with ``dispatcher.py``, which finds the row of a request's code, and ``requests.py``, the
rows; each ``*_codes.py`` answers some codes. The supervisor starts ``broker_with_port.py`` and
``port_process.py``. The bytes are ``remoting``. It may import ``broker``, ``client`` and below: it
stores as a producer at the writer's socket.
"""
