from typing import final

@final
class FetchPositions: ...
