from typing_extensions import Buffer

def renumber(
    buffer: Buffer, start: int, base_offset: int, leader_epoch: int, append_time: int = -1
) -> tuple[int, int]: ...
