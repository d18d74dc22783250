"""load: from a partition directory to the state of its log, after a clean stop and after a crash."""
