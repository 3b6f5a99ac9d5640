"""Rules of messages on their way: holds, pulls, retries, timers, transactions, rates."""
