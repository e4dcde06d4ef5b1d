"""Lies about the papers themselves, told by somebody who cannot hash."""

from __future__ import annotations

import base64
import json

from tests.checker.honest import BODY, Data, make, rows
from tests.checker.lies import spoiled

# --- the papers themselves --------------------------------------------------------------------------------------------


def _events(export: list[Data]) -> list[Data]:
    name = export[1]["operation_id"]
    return [one for one in export if one.get("type") == "event" and one["operation_id"] == name]


def _record(export: list[Data]) -> Data:
    return next(one for one in export if one.get("type") == "record")


def _counted(export: list[Data]) -> bool:
    export[-1]["lines"] = len(export)
    return True


@spoiled("I23")
def rewrote_an_event(export: list[Data], log: list[Data]) -> bool:
    row = _events(export)[-1]
    said = json.loads(base64.b64decode(row["body"]))
    said["data"]["note"] = "nothing happened"
    row["body"] = base64.b64encode(json.dumps(said).encode()).decode()
    return True


@spoiled("I23")
def took_an_event_out(export: list[Data], log: list[Data]) -> bool:
    export.remove(_events(export)[1])
    return _counted(export)


@spoiled("I23")
def put_an_event_in_twice(export: list[Data], log: list[Data]) -> bool:
    row = _events(export)[1]
    export.insert(export.index(row), dict(row))
    return _counted(export)


@spoiled("I23")
def put_events_in_another_order(export: list[Data], log: list[Data]) -> bool:
    place = export.index(_events(export)[0])
    export[place], export[place + 1] = export[place + 1], export[place]
    return export[place].get("type") == export[place + 1].get("type") == "event"


@spoiled("I23")
def moved_an_event_to_another_operation(export: list[Data], log: list[Data]) -> bool:
    row = _events(export)[-1]
    row["operation_id"] = f"{row['operation_id']}_bystander"
    return True


@spoiled("I23")
def changed_a_column(export: list[Data], log: list[Data]) -> bool:
    _events(export)[0]["actor"] = "somebody-else"
    return True


@spoiled("I23")
def cut_the_chain(export: list[Data], log: list[Data]) -> bool:
    _events(export)[1]["prev_hash"] = "11" * 32
    return True


@spoiled("I23")
def emptied_the_history(export: list[Data], log: list[Data]) -> bool:
    del export[1:-1]
    log.clear()
    return _counted(export)


@spoiled("I14")
def cut_the_tail_of_a_history(export: list[Data], log: list[Data]) -> bool:
    export.remove(_events(export)[-1])
    return _counted(export)


@spoiled("I14")
def changed_the_state_of_a_record(export: list[Data], log: list[Data]) -> bool:
    record = _record(export)
    record["state"] = "succeeded" if record["state"] != "succeeded" else "failed"
    return True


@spoiled("I14")
def changed_the_job_of_a_record(export: list[Data], log: list[Data]) -> bool:
    _record(export)["remote_job_id"] = "job_of_somebody_else"
    return True


@spoiled("I14")
def changed_the_version_of_a_record(export: list[Data], log: list[Data]) -> bool:
    _record(export)["version"] += 1
    return True


@spoiled("I14")
def removed_a_record(export: list[Data], log: list[Data]) -> bool:
    export.remove(_record(export))
    return _counted(export)


@spoiled("I14")
def removed_all_events_of_a_record(export: list[Data], log: list[Data]) -> bool:
    gone = _events(export)
    export[:] = [one for one in export if one not in gone]
    return _counted(export)


@spoiled("I2")
def changed_a_stored_request(export: list[Data], log: list[Data]) -> bool:
    _record(export)["request"]["body_sha256"] = BODY[::-1]
    return True


@spoiled("I2")
def gave_two_operations_one_token(export: list[Data], log: list[Data]) -> bool:
    return _shared(export, "token")


@spoiled("I3")
def gave_two_operations_one_job(export: list[Data], log: list[Data]) -> bool:
    return _shared(export, "job")


def _shared(export: list[Data], what: str) -> bool:
    """Write the bystander's history anew, chain and all, with something that is the first one's."""
    name = export[1]["operation_id"]
    tale, other = make(name.removeprefix("op_")), make(f"{name.removeprefix('op_')}_bystander")
    if what == "token":
        other.events[0]["data"]["token"] = tale.token
    elif tale.job is None or other.job is None or "contract_violation" in (tale.state, other.state):
        return False
    else:
        for event in other.events:
            event["remote_job_id"] = tale.job if event["remote_job_id"] is not None else None
            if event["data"].get("job_id") is not None:
                event["data"]["job_id"] = tale.job
    if any(event["kind"] in ("UnfamiliarJobId", "IdentityChanged") for event in (*tale.events, *other.events)):
        return False
    export[1:-1] = [*rows(tale), *rows(other)]
    return _counted(export)


@spoiled("I17")
def left_a_hole_in_the_log(export: list[Data], log: list[Data]) -> bool:
    place = next((one for one, entry in enumerate(log[:-1]) if entry["kind"] == "list"), None)
    if place is None:
        return False
    del log[place]
    return True


@spoiled("I25")
def took_credentials_elsewhere(export: list[Data], log: list[Data]) -> bool:
    entry = next((one for one in log if one["kind"] == "status"), None)
    if entry is None:
        return False
    entry.update(origin="elsewhere", kind="foreign", authorization=True)
    return True
