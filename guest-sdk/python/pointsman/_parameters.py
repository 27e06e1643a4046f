"""Parameters: read from JSON, held against their rules, and described as a JSON Schema."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

LARGEST = 4294967295
EXPECTED = {
    "number": "a number",
    "integer": "a number",
    "boolean": "true or false",
    "text": "a string",
    "choice": "a string",
}
TYPES = {"number": "number", "integer": "integer", "boolean": "boolean", "text": "string", "choice": "string"}


@dataclass(frozen=True)
class Parameter:
    """One parameter's rules. Without a default it is required."""

    type: str
    description: str | None = None
    default: Any = None
    min: float | None = None
    above: float | None = None
    max: float | None = None
    below: float | None = None
    names: Sequence[str] | None = None


def number(**rules: Any) -> Parameter:
    """A number; `min`, `above`, `max` and `below` bound it."""
    return Parameter("number", **rules)


def integer(**rules: Any) -> Parameter:
    """A whole number from 0 to 4294967295, written without fraction or exponent."""
    return Parameter("integer", **rules)


def boolean(**rules: Any) -> Parameter:
    """True or false."""
    return Parameter("boolean", **rules)


def text(**rules: Any) -> Parameter:
    """A string."""
    return Parameter("text", **rules)


def choice(names: Sequence[str], **rules: Any) -> Parameter:
    """One of these strings."""
    return Parameter("choice", names=names, **rules)


class Problem(Exception):
    """Why parameters are refused."""


class Number(str):
    """A number as it is written."""


class Object(list):
    """The pairs of an object."""


def read(rules: Mapping[str, Parameter], text: str) -> dict[str, Any]:
    """The values of the parameters by name; a Problem that names what is wrong."""
    try:
        pairs = json.loads(text, parse_int=Number, parse_float=Number, object_pairs_hook=Object)
    except ValueError as error:
        raise Problem(f"parameters are not JSON: {error}") from None
    if not isinstance(pairs, Object):
        raise Problem("parameters must be a JSON object")
    given: dict[str, Any] = {}
    for name, value in pairs:
        if name not in rules:
            raise Problem(unknown(name, list(rules)))
        if name in given:
            raise Problem(f"parameter `{name}` comes twice; keep one of the two")
        given[name] = checked(name, rules[name], value)
    for name, rule in rules.items():
        if name not in given and rule.default is None:
            raise Problem(f"missing parameter `{name}`")
        given.setdefault(name, rule.default)
    return given


def unknown(name: str, known: Sequence[str]) -> str:
    if not known:
        return f"unknown parameter `{name}`; this policy takes none"
    return f"unknown parameter `{name}`; use {one_of(known)}"


def one_of(names: Sequence[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return " or ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))


def checked(name: str, rule: Parameter, value: Any) -> Any:
    found = kind(value)
    if found != EXPECTED[rule.type] and not (rule.type == "boolean" and found == "a boolean"):
        raise Problem(f"{name}: expected {EXPECTED[rule.type]}, found {found}")
    read = value
    if rule.type == "number":
        read = float(value)
        if math.isinf(read):
            raise Problem(f"{name}: the number {value} is too large")
    if rule.type == "integer":
        if not re.fullmatch("-?[0-9]+", value) or not 0 <= int(value) <= LARGEST:
            raise Problem(f"{name}: expected a whole number from 0 to {LARGEST}, found {value}")
        read = int(value)
    if rule.type == "choice" and value not in rule.names:
        raise Problem(f"{name}: expected {one_of(rule.names)}, found `{value}`")
    if outside(rule, read):
        raise Problem(f"{name} must be {bounds(rule)}")
    return read


def kind(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {Number: "a number", bool: "a boolean", str: "a string", Object: "an object", list: "a list"}
    # What JSON lacks, such as NaN, Python reads as a float.
    return kinds.get(type(value), "a number that JSON lacks")


def outside(rule: Parameter, value: Any) -> bool:
    return (
        (rule.min is not None and value < rule.min)
        or (rule.above is not None and value <= rule.above)
        or (rule.max is not None and value > rule.max)
        or (rule.below is not None and value >= rule.below)
    )


def bounds(rule: Parameter) -> str:
    if rule.min is not None and rule.max is not None:
        return f"between {shown(rule.min)} and {shown(rule.max)}"
    words = {"at least": rule.min, "above": rule.above, "at most": rule.max, "below": rule.below}
    return " and ".join(f"{word} {shown(bound)}" for word, bound in words.items() if bound is not None)


def shown(number: float) -> str:
    return str(int(number)) if number == int(number) else repr(number)


def schema(rules: Mapping[str, Parameter]) -> str:
    """The JSON Schema of these parameters."""
    properties = {}
    for name, rule in rules.items():
        whole = rule.type == "integer"
        keywords = {
            "description": rule.description,
            "type": TYPES[rule.type],
            "format": "double" if rule.type == "number" else "uint32" if whole else None,
            "enum": rule.names,
            "minimum": 0 if whole and rule.min is None else rule.min,
            "exclusiveMinimum": rule.above,
            "maximum": LARGEST if whole and rule.max is None else rule.max,
            "exclusiveMaximum": rule.below,
            "default": rule.default,
        }
        properties[name] = {keyword: value for keyword, value in keywords.items() if value is not None}
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    required = [name for name, rule in rules.items() if rule.default is None]
    if required:
        whole["required"] = required
    return json.dumps(whole)
