"""Sessions of consumers: pulls that are answered or held, queries, and answers under way.

Begin with ``consume_service.py``, then ``pull_service.py`` and ``pull_answers.py``.
"""
