"""The records of a classifier, to the component's types and from them."""

from __future__ import annotations

from typing import Any, Sequence

from wit_world.imports import classification

from . import KEEP, Admission, Event, PolicyError, Rejection, Resolution, Worker


def verdict(given: Admission | Rejection | None) -> Any:
    match given:
        case None:
            return None
        case Admission(policy_class, due_ms, cost, target):
            return classification.Verdict_Admit(classification.Admission(policy_class, due_ms, cost, change(target)))
        case Rejection(name, diagnostic, public_message):
            known = classification.ErrorClass.__members__
            error_class = known.get(name.upper().replace("-", "_"))
            if error_class is None:
                names = ", ".join(key.lower().replace("_", "-") for key in known)
                raise PolicyError(f"`{name}` is no class of errors; give one of {names}")
            return classification.Verdict_Reject(classification.Rejection(error_class, public_message, diagnostic))
    raise PolicyError(f"a verdict is {given!r}; answer an Admission, a Rejection or None")


def change(target: Any) -> Any:
    if target is KEEP:
        return classification.TargetChange_Keep()
    return classification.TargetChange_Clear() if target is None else classification.TargetChange_Set(target)


def resolutions(given: Sequence[Resolution]) -> list:
    return [classification.Resolution(one.ticket, verdict(one.verdict)) for one in given]


def event(given: Any) -> Event:
    value = given.value
    match given:
        case classification.Event_Sent():
            return Event("sent", value.ticket, value.worker)
        case classification.Event_Responding():
            return Event("responding", value.ticket, value.worker)
        case classification.Event_Completed():
            return Event("completed", value.ticket, value.worker, value.context_tokens)
        case classification.Event_Aborted():
            return Event("aborted", value.ticket, value.worker, error=value.error)
    return Event("workers", workers=[Worker(one.number, one.rank, one.total_kv_blocks) for one in value])
