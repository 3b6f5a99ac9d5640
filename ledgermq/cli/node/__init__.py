"""Commands about a node and its group: service, status, doctor, demonstrations.

Begin with the module of a command; ``local_node.py`` and ``service_unit.py``
are parts of some.
"""
