"""An object whose schema has keywords that no grammar keeps: "format", "uniqueItems", "multipleOf"."""

import json
from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import AnyUrl, BaseModel, Field

from matrix import CASES


class Report(BaseModel):
    """A report."""

    city: str
    celsius: int = Field(description=CASES.structured.description)
    id: UUID
    seen: datetime
    source: AnyUrl
    note: str | None = None
    codes: set[Annotated[str, Field(pattern="^[A-Z]{3}$")]] = Field(max_length=3)
    wind: float = Field(ge=0, multiple_of=0.5)


_VALUE = vars(CASES.structured.value) | {
    "id": "6f1c7f0e-52a5-4c3b-9d0a-1b2c3d4e5f60",
    "seen": "2026-01-02T03:04:05Z",
    "source": "https://example.org/weather",
    "note": None,
    "codes": ["BRN"],
    "wind": 2.5,
}
# The prompt for which the model writes the object.
PROMPT = "JSON " + json.dumps(_VALUE)


def same(report):
    """Checks a report; returns what the client sees."""
    assert report.model_dump(mode="json") == _VALUE, report
    return {"value": {"city": report.city, "celsius": report.celsius}}
