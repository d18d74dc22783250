from typing import final

@final
class Listing:
    directory: str
    logs: list[int]
    indexes: list[int]
    time_indexes: list[int]
    txn_indexes: list[int]
    snapshots: list[int]
    unfinished: list[str]
    foreign_logs: list[str]
    def __new__(cls, directory: str) -> Listing: ...
    def orphans(self) -> list[str]: ...
