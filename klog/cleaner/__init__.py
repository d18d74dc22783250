"""Compaction: keeps the latest record of each key. Uses klog.log; a cleaned log is smaller.

compact, CompactionStats     by hand, for Log.compact; Held, WastedKey are parts of CompactionStats
purge_key, PurgeStats        for Log.purge_key
read_audit                   what was purged from the logs of a log.dir
clean_round, RoundStats      one round; the caller decides when
cleanable, dirt, Cleanable, Dirt, compaction_delay      what there is to clean (pure functions)
cleanable_now                the same for a log
plan_cleaning, build, adopt  a cleaning by two processes: CleaningPlan, Built; SplitNeeded
read_first_dirty, write_first_dirty      cleaner-offset-checkpoint
KeyMap                       key -> latest offset, in bounded memory
CleaningAborted              errors.Overtaken, because another caller waits for the round to end
SplitFirst                   errors.Overtaken, because a segment had to be split
"""

from klog.cleaner._keymap import KeyMap
from klog.cleaner.audit import read as read_audit
from klog.cleaner.checkpoints import read_first_dirty, write_first_dirty
from klog.cleaner.compaction import cleanable_now, compact
from klog.cleaner.overflow import SplitFirst
from klog.cleaner.plan import Cleanable, Dirt, cleanable, compaction_delay, dirt
from klog.cleaner.purge import purge_key
from klog.cleaner.round import RoundStats, clean_round
from klog.cleaner.staged import Built, CleaningPlan, SplitNeeded, adopt, build, plan_cleaning
from klog.log.retain.cleaning_stats import CompactionStats, Held, PurgeStats, WastedKey
from klog.log.state.cleaning_state import CleaningAborted

__all__ = [
    "Built",
    "Cleanable",
    "CleaningAborted",
    "CleaningPlan",
    "CompactionStats",
    "Dirt",
    "Held",
    "KeyMap",
    "PurgeStats",
    "RoundStats",
    "SplitFirst",
    "SplitNeeded",
    "WastedKey",
    "adopt",
    "build",
    "clean_round",
    "cleanable",
    "cleanable_now",
    "compact",
    "compaction_delay",
    "dirt",
    "plan_cleaning",
    "purge_key",
    "read_audit",
    "read_first_dirty",
    "write_first_dirty",
]
