from typing import final

@final
class DirectoryPass:
    path: str
    def __new__(cls, path: str) -> DirectoryPass: ...
