"""A policy as the exports of its component. `pointsman policy build` writes the module that calls this."""

from __future__ import annotations

import inspect
import traceback
from types import ModuleType
from typing import Any, Callable, Iterable, Sequence

from componentize_py_types import Err
from wit_world.imports import log as host
from wit_world.imports import types

from . import Candidates, ClassifyRequest, Policy, PolicyError, Progress, Setup, _parameters

STAGES = ("filter", "score", "pick", "classify")
NOTHING = {"facts": [], "texts": [], "signals": [], "workers": False}


def host_log(level: str, message: str) -> None:
    host.log(host.Level[level.upper()], message)


def component(module: ModuleType, stages: Sequence[str]) -> dict[str, type]:
    """The classes that the component exports: those of the policy in this module, which has these stages."""
    policy = found(module)
    for stage in STAGES:
        defined = callable(getattr(policy, stage, None))
        if stage in stages and not defined:
            raise TypeError(f"pointsman.yaml names the stage `{stage}`, and {policy.__name__} has no method `{stage}`")
        if defined and stage not in stages:
            raise TypeError(f"{policy.__name__} has the stage `{stage}`; name it under stages in pointsman.yaml")
    for field in ("name", "version"):
        if not isinstance(getattr(policy, field, None), str):
            raise TypeError(f"{policy.__name__}.{field} must be a string")
    return exports(policy, stages)


def found(module: ModuleType) -> type[Policy]:
    policies = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Policy) and value.__module__ == module.__name__
    ]
    if len(policies) != 1:
        names = ", ".join(policy.__name__ for policy in policies) or "none"
        raise TypeError(f"{module.__name__}.py must define one subclass of pointsman.Policy; it defines {names}")
    return policies[0]


def exports(policy: type[Policy], stages: Sequence[str]) -> dict[str, type]:
    # The guest's one instance, made by `configure`.
    guest: list[Policy] = []

    class Exported:
        def describe(self) -> types.Manifest:
            description = " ".join((inspect.getdoc(policy) or "").split())
            return types.Manifest(
                name=policy.name,
                version=policy.version,
                description=description,
                parameters_schema=_parameters.schema(policy.parameters),
            )

        def configure(self, partition: Any, router: Any, parameters: str) -> types.Inputs:
            def configured() -> types.Inputs:
                try:
                    given = _parameters.read(policy.parameters, parameters)
                except _parameters.Problem as problem:
                    raise PolicyError(str(problem)) from None
                setup = Setup(
                    model=partition.model,
                    routing_group=partition.routing_group,
                    role=partition.role.name.lower(),
                    block_size=partition.block_size,
                    seed=partition.seed,
                    router=vars(router),
                )
                guest.append(policy(given, setup))
                return inputs(policy)

            return call("configure", configured)

    def worker(stage: str, checked: Callable[[Any], Any]) -> Callable[..., Any]:
        candidates = Candidates(stage, reads(policy, stage))

        def run(self, rows, numbers, workers, texts):
            return call(stage, lambda: checked(getattr(guest[0], stage)(candidates._of(rows, numbers, workers, texts))))

        return run

    def row(answer: Any) -> int:
        if type(answer) is int and answer >= 0:
            return answer
        raise PolicyError(f"pick answered {answer!r}; answer the number of a row")

    workers = {
        "filter": ("WorkerFilter", "keep", lambda kept: every("filter", kept, bool)),
        "score": ("WorkerScorer", "score", lambda costs: every("score", costs, float)),
        "pick": ("WorkerPicker", "pick", row),
    }
    exported: dict[str, type] = {"Policy": Exported}
    for stage in stages:
        if stage == "classify":
            exported |= classifier(policy, guest)
        else:
            name, function, checked = workers[stage]
            exported[name] = type(name, (), {function: worker(stage, checked)})
    return exported


def classifier(policy: type[Policy], guest: list[Policy]) -> dict[str, type]:
    from . import _classifier as records

    request = ClassifyRequest("classify", reads(policy, "classify"))

    class RequestClassifier:
        def classify(self, ticket, numbers, texts):
            return call("classify", lambda: records.verdict(guest[0].classify(request._of(ticket, numbers, texts))))

        def on_event(self, event, now_ms):
            return call("on_event", lambda: records.resolutions(guest[0].on_event(records.event(event), now_ms)))

        def on_tick(self, now_ms, progress):
            grown = [Progress(one.ticket, one.context_tokens) for one in progress]
            return call("on_tick", lambda: records.resolutions(guest[0].on_tick(now_ms, grown)))

    return {"RequestClassifier": RequestClassifier}


def call(stage: str, run: Callable[[], Any]) -> Any:
    try:
        return run()
    except PolicyError as error:
        raise Err(str(error)) from None
    except Exception as error:
        raise Err(sentence(stage, error)) from None


def sentence(stage: str, error: Exception) -> str:
    """An error with its type and the author's line that it came from."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "pointsman/" not in frame.filename]
    place = f" at {frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno}" if frames else ""
    return f"{stage}: {type(error).__name__}: {error}{place}"


def reads(policy: type[Policy], stage: str) -> dict[str, Any]:
    return getattr(getattr(policy, stage, None), "reads", NOTHING)


def inputs(policy: type[Policy]) -> types.Inputs:
    def of(stage: str) -> types.Reads | None:
        return types.Reads(**reads(policy, stage)) if callable(getattr(policy, stage, None)) else None

    return types.Inputs(
        filter=of("filter"),
        score=of("score"),
        pick=of("pick"),
        exclusive_affinity=policy.exclusive_affinity,
        classify=of("classify"),
        tick_ms=policy.tick_ms,
    )


def every(stage: str, answers: Any, kind: type) -> list:
    words = "True or False" if kind is bool else "a number"
    if not isinstance(answers, Iterable):
        raise PolicyError(f"{stage} answered {answers!r}; answer a list of one value a row")
    answers = answers if type(answers) is list else list(answers)
    for row, answer in enumerate(answers):
        if type(answer) is not kind:
            if kind is float and type(answer) is int:
                answers[row] = float(answer)
            else:
                raise PolicyError(f"{stage} answered {answer!r} for row {row}; answer {words} for each row")
    return answers
