"""Real nodes for the tests of services that use them: fixtures of pytest, and what these give.

``local_broker.py`` is for other runners, too; ``plugin.py`` alone needs pytest, and makes it
fixtures. Both need the node's distribution.
"""
