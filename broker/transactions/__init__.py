"""Transactions: half messages, their ends, and the questions about those without one."""
