"""cleaner: of each key the latest record stays. Takes one log of the log room, gives it back smaller.

compact, CompactionStats     by hand: what Log.compact does; Held, WastedKey are parts of its answer
purge_key, PurgeStats        what Log.purge_key does
read_audit                   what was purged from the logs of a log.dir
clean_round, RoundStats      one round, for whoever decides when
cleanable, dirt, Cleanable, Dirt, compaction_delay      what there is to clean (pure)
cleanable_now                the same of a log
Throttle                     how fast
read_first_dirty, write_first_dirty      cleaner-offset-checkpoint
KeyMap                       key -> latest offset, in memory that is bounded
Overtaken                    the log has changed under a round; nothing is lost
CleaningAborted              the same, where somebody waits for the round to end
SplitFirst                   the same, where a segment had to be split
"""

from klog.cleaner._keymap import KeyMap
from klog.cleaner.audit import read as read_audit
from klog.cleaner.checkpoints import read_first_dirty, write_first_dirty
from klog.cleaner.compaction import CompactionStats, cleanable_now, compact
from klog.cleaner.forecast import Held, WastedKey
from klog.cleaner.overflow import SplitFirst
from klog.cleaner.plan import Cleanable, Dirt, cleanable, compaction_delay, dirt
from klog.cleaner.purge import PurgeStats, purge_key
from klog.cleaner.round import RoundStats, clean_round
from klog.cleaner.throttle import Throttle
from klog.log.retain.cleaning_state import CleaningAborted, Overtaken

__all__ = [
    "Cleanable",
    "CleaningAborted",
    "CompactionStats",
    "Dirt",
    "Held",
    "KeyMap",
    "Overtaken",
    "PurgeStats",
    "RoundStats",
    "SplitFirst",
    "Throttle",
    "WastedKey",
    "clean_round",
    "cleanable",
    "cleanable_now",
    "compact",
    "compaction_delay",
    "dirt",
    "purge_key",
    "read_audit",
    "read_first_dirty",
    "write_first_dirty",
]
