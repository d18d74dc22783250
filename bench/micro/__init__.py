"""pyperf scripts for the small parts: python -m bench.micro.NAME, or `make micro`."""
