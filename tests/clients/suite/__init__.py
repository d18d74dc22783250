"""Test suites of Kafka clients, run against a broker. base.py defines what a suite is; every other module is a suite.

They are downloaded from the registries of their languages into build/clients, outside git, when they are first run.
"""
