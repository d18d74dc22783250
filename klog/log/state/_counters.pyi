from typing_extensions import disjoint_base

@disjoint_base
class Counters:
    bytes_in: int
    messages_in: int
    replicated_bytes_in: int
