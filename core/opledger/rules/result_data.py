"""A stored result as JSON data, as events and records hold it, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opledger.rules.model import ItemSummary, StoredFile, StoredResult


def result_to_data(result: StoredResult) -> dict[str, Any]:
    """Return a stored result as JSON data."""
    items = result.items
    files = [
        {
            "name": file.name,
            "location": file.location,
            "size": file.size,
            "sha256": file.sha256,
            "content_type": file.content_type,
        }
        for file in result.also
    ]
    return {
        "location": result.location,
        "size": result.size,
        "sha256": result.sha256,
        "content_type": result.content_type,
        "validated": result.validated,
        "problems": list(result.problems),
        "items": None
        if items is None
        else {
            "total": items.total,
            "succeeded": items.succeeded,
            "failed": items.failed,
            "failed_refs": list(items.failed_refs),
        },
        **({"also": files} if files else {}),
    }


def result_from_data(data: Mapping[str, Any]) -> StoredResult:
    """Rebuild what `result_to_data` wrote."""
    items = data["items"]
    return StoredResult(
        location=data["location"],
        size=data["size"],
        sha256=data["sha256"],
        content_type=data["content_type"],
        validated=data["validated"],
        problems=tuple(data["problems"]),
        items=None
        if items is None
        else ItemSummary(items["total"], items["succeeded"], items["failed"], tuple(items["failed_refs"])),
        also=tuple(StoredFile(**file) for file in data.get("also", ())),
    )
