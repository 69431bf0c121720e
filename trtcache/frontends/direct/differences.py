"""Says in words where two descriptions differ: ``attribute encoder.layer.3.dropout.p: 0.1 -> 0.2``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SHOWN = 60
_MOST = 3


def in_words(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return the first differences between the parts of two direct keys; empty where there are none."""
    found: list[str] = []
    for name in sorted({*before, *after}, key=["surroundings", "inputs", "dynamic_shapes", "layers", "model"].index):
        found += _label_parts(name, before.get(name), after.get(name))
    more = f", and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return "; ".join(found[:_MOST]) + more


def between(label: str, before: Any, after: Any) -> str:
    """Return the first differences of two descriptions of one thing."""
    found = [f"{label}{path}: {_format(one)} -> {_format(other)}" for path, one, other in _differences(before, after)]
    return "; ".join(found[:_MOST])


def _label_parts(name: str, before: Any, after: Any) -> list[str]:
    said = []
    for path, one, other in _differences(before, after):
        steps = path.strip(".").split(".", 1)
        label = f"attribute {path.strip('.').replace('..', '.')}" if name == "model" else f"{name} {'.'.join(steps)}"
        said.append(f"{label}: {_format(one)} -> {_format(other)}")
    return said


def _differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the paths at which two descriptions differ, and what each has there."""
    if before == after and str(before) == str(after):
        return
    if isinstance(before, list) and isinstance(after, list) and before[:1] == after[:1] == ["same"]:
        return  # places of what was met before move with any other difference
    if str(before)[:7] == str(after)[:7] == "memory ":
        return
    if isinstance(before, dict) and isinstance(after, dict) and "float" not in before:
        for name in dict.fromkeys((*before, *after)):
            yield from _differences(before.get(name), after.get(name), f"{path}.{name}")
    elif isinstance(before, list) and isinstance(after, list):
        yield from _lists(before, after, path)
    else:
        yield path, before, after


def _lists(before: list[Any], after: list[Any], path: str) -> Iterator[tuple[str, Any, Any]]:
    if before and all(_is_pair(one) for one in (*before, *after)):
        yield from _differences(dict(_name_part(before)), dict(_name_part(after)), path)
    elif len(before) == len(after) and before and (before[0] == after[0] or type(before[0]) is type(after[0]) is list):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            step = "" if isinstance(one, list) and before[:1] in (["object"], ["dict"]) else f"[{place}]"
            yield from _differences(one, other, f"{path}{step}")
    else:
        yield path, before, after


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)


def _name_part(pairs: list[Any]) -> Iterator[tuple[str, Any]]:
    yield from pairs


def _format(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"float"}:
        return repr(float.fromhex(value["float"]))
    if isinstance(value, list) and value[:1] == ["function"]:
        return f"function {value[2]}" if len(value) > 2 else "a function"
    text = "nothing" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
