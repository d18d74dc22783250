from typing import final

NOT_REGULAR: str

@final
class SettledEnd:
    size: int
    inode: int
    next_offset: int
    leader_epoch: int

def read_heads(directory: str, base_offsets: list[int], drop: bool, table: int = 0) -> list[tuple[int, int, int]]: ...
def settled_end(directory: str, base_offset: int, table: int = 0) -> SettledEnd | None: ...
