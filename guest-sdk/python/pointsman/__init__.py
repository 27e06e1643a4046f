"""Routing policies for Pointsman, in Python.

A policy is a subclass of `Policy`: its docstring is its description, its methods are its stages, and its instance is the
state of one guest, which lives from call to call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Literal, Mapping, Sequence

from ._parameters import Parameter, boolean, choice, integer, number, text

__all__ = [
    "Admission", "Candidates", "ClassifyRequest", "Event", "Parameter", "Policy", "PolicyError", "Progress",
    "Rejection", "Request", "Resolution", "Setup", "Worker", "boolean", "choice", "integer", "log", "number", "reads",
    "text",
]


class PolicyError(Exception):
    """An error whose message is for the operator, as it stands; any other is shown with its type and its place."""


@dataclass(frozen=True)
class Setup:
    """What a guest knows from its start."""

    model: str
    routing_group: str
    role: Literal["aggregated", "prefill", "decode", "encode"]
    #: Tokens per KV block.
    block_size: int
    #: The seed of this guest's randomness.
    seed: int
    #: The router's settings, which a policy may take as defaults, such as `overlap_score_credit`.
    router: Mapping[str, float | bool]


class Policy:
    """A policy. It overrides `filter`, `score`, `pick` or `classify`, each decorated with what it `reads`."""

    name: str
    #: By semantic versioning.
    version: str
    #: The parameters by name, such as `{"weight": number(default=0.5, min=0)}`.
    parameters: Mapping[str, Parameter] = {}
    #: Whether the host narrows the candidates to the affinity target while that is eligible.
    exclusive_affinity: bool = False
    #: How often `on_tick` is called, in milliseconds, at least 10.
    tick_ms: int | None = None

    def __init__(self, parameters: Mapping[str, Any], setup: Setup) -> None:
        """Makes the state of one guest."""
        self.given = parameters

    def on_event(self, event: Event, now_ms: float) -> Sequence[Resolution]:
        """Hears of what happened to classified requests, and may resolve deferred ones."""
        return ()

    def on_tick(self, now_ms: float, progress: Sequence[Progress]) -> Sequence[Resolution]:
        """Called every `tick_ms` with the live requests whose tokens grew; may resolve deferred ones."""
        return ()


def reads(
    *, facts: Sequence[str] = (), texts: Sequence[str] = (), signals: Sequence[str] = (), workers: bool = False
) -> Callable[[Callable], Callable]:
    """Says what a stage reads, by the names of docs/contract.md. It gets that and nothing else."""

    def mark(stage: Callable) -> Callable:
        stage.reads = {"facts": list(facts), "texts": list(texts), "signals": list(signals), "workers": workers}
        return stage

    return mark


class Request:
    """What a stage reads of the request; valid during the call."""

    def __init__(self, stage: str, reads: Mapping[str, Any]) -> None:
        self._stage = stage
        self._facts = {name: place for place, name in enumerate(reads["facts"])}
        self._texts = {name: place for place, name in enumerate(reads["texts"])}
        self._signals = {name: place for place, name in enumerate(reads["signals"])}

    def fact(self, name: str) -> float:
        """A fact that the stage reads; NaN where it is missing."""
        return self._numbers[self._place("facts", self._facts, name)]

    def text(self, name: str) -> str | None:
        """A text that the stage reads; None where it is missing."""
        return self._given_texts[self._place("texts", self._texts, name)]

    def _place(self, kind: str, places: Mapping[str, int], name: str) -> int:
        try:
            return places[name]
        except KeyError:
            raise PolicyError(f"{self._stage} does not read `{name}`; name it under its {kind}") from None


class Candidates(Request):
    """The request and the candidate workers; valid during the call."""

    #: How many candidates there are, at least 1.
    rows: int
    #: A number for each row that stands for its worker while that lives; None unless the stage reads it.
    workers: list[int] | None

    def _of(self, rows, numbers, workers, texts):
        self.rows, self._numbers, self.workers, self._given_texts = rows, numbers, workers, texts
        return self

    def signal(self, name: str) -> list[float]:
        """A signal of each row, NaN where it is missing. The list shares its numbers with the one that came in."""
        start = len(self._facts) + self._place("signals", self._signals, name) * self.rows
        return self._numbers[start : start + self.rows]


class ClassifyRequest(Request):
    """A request to be classified."""

    #: The request's number; tickets count up.
    ticket: int

    def _of(self, ticket, numbers, texts):
        self.ticket, self._numbers, self._given_texts = ticket, numbers, texts
        return self


#: Leaves the soft affinity target as it is.
KEEP = object()


@dataclass(frozen=True)
class Admission:
    """Lets a request into the queue. What is None leaves the host's own value."""

    policy_class: str | None = None
    #: When the request must have left the queue, on the clock of `request.now-ms`.
    due_ms: float | None = None
    #: What the queue charges, above 0.
    scheduling_cost_tokens: int | None = None
    #: The soft affinity target: left as it is unless given, None for none, or a worker's number.
    target: Any = KEEP


@dataclass(frozen=True)
class Rejection:
    """Ends a request."""

    #: The kind of error that the client sees, such as `rate-limited`.
    error_class: str
    #: For the operator's log.
    diagnostic: str
    #: For the client.
    public_message: str | None = None


@dataclass(frozen=True)
class Resolution:
    """The end of a deferral."""

    ticket: int
    verdict: Admission | Rejection


@dataclass(frozen=True)
class Worker:
    """One registered data-parallel rank."""

    number: int
    rank: int
    total_kv_blocks: int | None


@dataclass(frozen=True)
class Event:
    """What happened to a classified request, or to the workers."""

    kind: Literal["sent", "responding", "completed", "aborted", "workers"]
    ticket: int | None = None
    worker: int | None = None
    context_tokens: int | None = None
    error: str | None = None
    workers: Sequence[Worker] = ()

    @property
    def ended(self) -> int | None:
        """The ticket, where this is its last event."""
        return self.ticket if self.kind in ("completed", "aborted") else None


@dataclass(frozen=True)
class Progress:
    """The prompt and generated tokens of a live request."""

    ticket: int
    context_tokens: int


def log(message: str, level: Literal["error", "warn", "info", "debug", "trace"] = "info") -> None:
    """Writes to the policy's bounded log."""
    from ._component import host_log

    host_log(level, message)
