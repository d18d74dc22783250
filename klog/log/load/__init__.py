"""Loading: from a partition directory to the state of its log, after a clean shutdown or a crash."""
