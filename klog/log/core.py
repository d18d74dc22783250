"""What packages above call of logs, besides the methods of Log: LogCore, which they work on instead of a Log, and
functions.

Each name is loaded when it is first used, or by load(). `klog broker` calls load() once it serves clients: it opens no
log before. A program has called it before it opens a directory, because klog.manager and klog.broker call it: in the
first use, a signal handler of the program could interrupt the import, or no file descriptor may be left for it.
"""

from __future__ import annotations

from klog import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from klog.log.closing import abandon, close, disown, end_interrupted_close, mark_for_deletion
    from klog.log.lifecycle import rename_locked
    from klog.log.log import Log, configure
    from klog.log.opening import belong_to, of_a_reader
    from klog.log.read.gauges import last_stable_lag, sampled_reads
    from klog.log.read.isolation import ISOLATIONS
    from klog.log.read.reader import LogReader, in_turn
    from klog.log.retain import retention
    from klog.log.state._log_core import LogCore
    from klog.log.state.cleaning_state import without_cleaning
    from klog.log.write._append import append_group, encoded_whole
    from klog.log.write.flush import flush, is_due
    from klog.log.write.inputs import check_records, is_whole
    from klog.log.write.roll import roll_or_undo_locked
    from klog.log.write.undo import wait_for_sync_locked

__all__ = [
    "ISOLATIONS",
    "Log",
    "LogCore",
    "LogReader",
    "abandon",
    "append_group",
    "belong_to",
    "check_records",
    "close",
    "configure",
    "disown",
    "encoded_whole",
    "end_interrupted_close",
    "flush",
    "in_turn",
    "is_due",
    "is_whole",
    "last_stable_lag",
    "mark_for_deletion",
    "of_a_reader",
    "rename_locked",
    "retention",
    "roll_or_undo_locked",
    "sampled_reads",
    "wait_for_sync_locked",
    "without_cleaning",
]
_PLACES = {
    "ISOLATIONS": "read.isolation",
    "Log": "log",
    "LogCore": "state._log_core",
    "LogReader": "read.reader",
    "abandon": "closing",
    "append_group": "write._append",
    "belong_to": "opening",
    "check_records": "write.inputs",
    "close": "closing",
    "configure": "log",
    "disown": "closing",
    "encoded_whole": "write._append",
    "end_interrupted_close": "closing",
    "flush": "write.flush",
    "in_turn": "read.reader",
    "is_due": "write.flush",
    "is_whole": "write.inputs",
    "last_stable_lag": "read.gauges",
    "mark_for_deletion": "closing",
    "of_a_reader": "opening",
    "rename_locked": "lifecycle",
    "retention": "retain",
    "roll_or_undo_locked": "write.roll",
    "sampled_reads": "read.gauges",
    "wait_for_sync_locked": "write.undo",
    "without_cleaning": "state.cleaning_state",
}

__getattr__ = lazy.attributes(globals(), _PLACES)


def load() -> None:
    """Load all of them now. Any thread."""
    for name in _PLACES:
        __getattr__(name)
