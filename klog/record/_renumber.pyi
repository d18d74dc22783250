from _typeshed import WriteableBuffer

def renumber(
    buffer: WriteableBuffer, start: int, base_offset: int, leader_epoch: int, append_time: int = -1, crc: int = 0
) -> tuple[int, int, int]: ...
