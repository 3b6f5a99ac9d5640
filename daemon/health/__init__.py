"""Health: readiness, systemd's watchdog and notices, and what ``status`` tells."""
