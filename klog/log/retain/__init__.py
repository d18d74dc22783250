"""retain: which segments go, how they go, and how that and the cleaner stay out of each other's way."""
