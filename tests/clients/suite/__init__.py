"""Test suites of Kafka clients, run against a broker: base.py has what a suite is, one module per suite.

They are downloaded from the registries of their languages into build/clients, outside git, when they are first run.
"""
