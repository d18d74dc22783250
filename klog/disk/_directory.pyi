from typing import final

def identity_of(path: str) -> tuple[int, int] | None: ...

@final
class DirectoryPass:
    path: str
    def __new__(cls, path: str) -> DirectoryPass: ...
