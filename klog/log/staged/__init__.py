"""Staged writes: tasks write batches beside the logs, one commit appends the batches of all of them, or none.

StagedWriter        a task's encoder of records to files; StagedFile is what it reports of each
Manifest, Part      the commit point: which files become which offsets; readers and the next start go by it
roll_forward        applies a manifest's part to one log, as often as it takes
writers             which job a staging directory belongs to, and whether that still runs
"""
