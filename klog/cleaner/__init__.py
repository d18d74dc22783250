"""cleaner: of each key the latest record stays. Takes one log of the log room, gives it back smaller.

KeyMap       key -> latest offset, in memory that is bounded
"""

from klog.cleaner._keymap import KeyMap

__all__ = ["KeyMap"]
