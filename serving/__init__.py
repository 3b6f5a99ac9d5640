"""The broker process: answers consumers and administrators, and runs what a broker promises."""
