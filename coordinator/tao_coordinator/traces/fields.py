"""Typed look-ups in untrusted JSON values.

`FieldError` names the field; the reader turns it into a skipped row. Durations and token counts
that are absurd (negative, not finite, beyond any real session) are errors, never clipped.
"""

import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, cast

Row = Mapping[str, object]

TOKENS_MAX: Final = 100_000_000
DURATION_S_MAX: Final = 10.0 * 365 * 86_400
INSTANT_S_MAX: Final = 1e10
"""Instants may be Unix times."""
EMPTY: Final[Row] = {}


class FieldError(ValueError):
    """A field is missing or has an unusable value."""


def parse(text: str) -> object:
    """One JSON value.

    Raises:
        FieldError: no JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FieldError(f"no JSON: {str(error)[:80]}") from error


def parse_row(text: str) -> Row:
    """One JSON object.

    Raises:
        FieldError: no JSON object.
    """
    return as_row(parse(text), "line")


def lines_of(text: str) -> Iterator[tuple[str, str]]:
    """Lines that are not blank, with their names for messages."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"line {number}", line


def as_row(value: object, name: str) -> Row:
    """An object.

    Raises:
        FieldError: something else.
    """
    if not isinstance(value, dict):
        raise FieldError(f"{name} is no object")
    return cast("Row", value)


def row(source: Row, name: str) -> Row:
    """A nested object; missing, null or something else: an empty one."""
    value = source.get(name)
    return cast("Row", value) if isinstance(value, dict) else EMPTY


def items(source: Row, name: str) -> list[object]:
    """A list; missing or null is an empty one.

    Raises:
        FieldError: something else.
    """
    value = source.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise FieldError(f"{name} is no list")
    return cast("list[object]", value)


def text(source: Row, name: str, default: str | None = None) -> str:
    """A string.

    Raises:
        FieldError: missing without a default, no string, or half of a surrogate pair in it.
    """
    value = source.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise FieldError(f"{name} is no string")
    if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        raise FieldError(f"{name} has half a character, which no file can hold")
    return value


def flag(source: Row, name: str) -> bool:
    """True only for true."""
    return source.get(name) is True


def number(source: Row, name: str) -> float | None:
    """A finite number; missing or null: `None`.

    Raises:
        FieldError: something else.
    """
    value = source.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FieldError(f"{name} is no number")
    try:
        found = float(value)
    except OverflowError as error:
        raise FieldError(f"{name} is too large") from error
    if not math.isfinite(found):
        raise FieldError(f"{name} is not finite")
    return found


def seconds(source: Row, name: str, *, per_second: float = 1.0) -> float | None:
    """A duration >= 0, or a time on a clock that starts at 0; missing or null: `None`.

    Args:
        source: where to look.
        name: the field.
        per_second: 1000 for fields in milliseconds.

    Raises:
        FieldError: negative, absurd or no number.
    """
    return _time_s(source, name, per_second, DURATION_S_MAX)


def instant_s(source: Row, name: str, *, per_second: float = 1.0) -> float | None:
    """Like `seconds`, but may be a Unix time."""
    return _time_s(source, name, per_second, INSTANT_S_MAX)


def _time_s(source: Row, name: str, per_second: float, longest_s: float) -> float | None:
    found = number(source, name)
    if found is None:
        return None
    found /= per_second
    if not 0.0 <= found <= longest_s:
        raise FieldError(f"{name} is no usable time: {found:g} s")
    return found


def tokens(source: Row, name: str) -> int | None:
    """A token count; missing or null: `None`.

    Raises:
        FieldError: negative, absurd or no number.
    """
    found = number(source, name)
    if found is None:
        return None
    if not 0 <= found <= TOKENS_MAX:
        raise FieldError(f"{name} is no usable token count: {found:g}")
    return int(found)


def timestamp_s(source: Row, name: str) -> float | None:
    """An ISO 8601 time as Unix seconds; missing or null: `None`.

    Raises:
        FieldError: no ISO 8601 time, or none of our age.
    """
    value = source.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise FieldError(f"{name} is no string")
    try:
        found = datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise FieldError(f"{name} is no time: {value[:40]!r}") from error
    if not 0.0 <= found <= INSTANT_S_MAX:
        raise FieldError(f"{name} is no usable time: {value[:40]!r}")
    return found


def block_runs(source: Row) -> tuple[tuple[int, int], ...]:
    """Prefix blocks from `hash_runs` ([first, count] pairs) or `hash_ids` (plain ids).

    Raises:
        FieldError: neither form.
    """
    runs: list[tuple[int, int]] = []
    for item in items(source, "hash_runs"):
        pair = cast("list[object]", item) if isinstance(item, list) else []
        if len(pair) != 2 or not all(type(part) is int for part in pair):
            raise FieldError("hash_runs holds something else than [first, count]")
        first, count = cast("list[int]", pair)
        if count <= 0:
            raise FieldError("hash_runs holds an empty run")
        runs.append((first, count))
    if runs:
        return tuple(runs)
    first, count = 0, 0
    for item in items(source, "hash_ids"):
        if type(item) is not int:
            raise FieldError("hash_ids holds something else than integers")
        if count and item == first + count:
            count += 1
            continue
        if count:
            runs.append((first, count))
        first, count = item, 1
    if count:
        runs.append((first, count))
    return tuple(runs)
