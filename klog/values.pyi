from dataclasses import Field as Field
from dataclasses import asdict as asdict
from dataclasses import dataclass as dataclass
from dataclasses import field as field
from dataclasses import fields as fields
from dataclasses import replace as replace
from typing import Any
from typing import NamedTuple as NamedTuple

def fields_of(kind: type) -> tuple[Field[Any], ...]: ...
