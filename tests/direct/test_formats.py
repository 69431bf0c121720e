"""Which code may format another object than a number or a text, whose text could have an address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from trtcache.frontends.direct.addresses import find_formats, find_methods
from trtcache.frontends.direct.bytecode import instructions
from trtcache.frontends.direct.uses import uses

if TYPE_CHECKING:
    from types import CodeType

ALLOWED = (
    "f'{1}{-1}{1.5}'",
    "f'{len(x)}{len(x) * 2 + 1}'",
    "f'{x:d}{x:.2f}'",
    "f'{int(x)} {round(x, 2)}'",
    "[f'b{i + 1}' for i in range(3)]",
    "{f'{i}': f'{i}{j}' for i in range(2) for j in range(i)}",
    "tuple(f'{i}' for i, _ in enumerate(x))",
    "str(len(x)) + str(round(x))",
    "'%d %5.2f%%' % (x, x)",
    "'%d%s' % (1, len(x))",
    "'{} {}'.format(len(x), 1)",
    "','.join(x)",
    "isinstance(x, str) or isinstance(x, (str, int)) or x == str",
    "x % 2, 7 % y",
    "x.__class__.__name__, type(x) is int, KINDS[type(x)]",
    "print(x)",
    "'100%' and y",
)
REFUSED = (
    "f'{x}'",
    "f'{x.name}'",
    "f'{self}'",
    "f'{x!r:>9}'",
    "f'{x:{y}}'",
    "f'{x=}'",
    "f'{x.k if y else x}'",
    "f'{x if y else x.k}'",
    "f'{x or x.k}'",
    "[f'{i}' for i in x]",
    "[f'{x}' for i in range(3)]",
    "[f'{one}' for i, one in enumerate(x)]",
    "f'{iter(x)}'",
    "str(x)",
    "str(x, 'utf8')",
    "str(object=x)",
    "str(*x)",
    "list(map(str, x))",
    "str(str(x))",
    "f'{str(x)}'",
    "'%s' % x",
    "'%d %s' % (len(x), x)",
    "'%(a)s' % x",
    "b'%a' % x",
    "'{}'.format(x)",
    "'{}'.format(*x)",
    "'{a}'.format(a=x)",
    "repr(x)",
    "hash(x)",
    "x.__str__()",
    "type(x)(y)",
    "x.__class__(y)",
    "print(x, file=y)",
)
ATTRIBUTES = {
    "FORMAT % x, x % y, x.size(0) % (y or 2)": {("%",)},
    "f'{self.name}{CONFIG.name}'": {("name",)},
    "str(self.one.two) + f'{self.three:>3}{self.four:{self.w}}'": {("one", "two"), ("four",), ("w",)},
    "'%d%s' % (len(x), self.name)": {("name",)},
    "'{}'.format(self.name)": {("name",)},
    "f'{x.shape[-1]}{x.dtype}'": {("shape",), ("dtype",)},
}
RAISED = """
def forward(x, y):
    assert x, f"{x} {y}"
    if y:
        raise ValueError("%s" % x + str(y) + "{}".format(x))
"""
COUNTED = """
def forward(x, y):
    for i in range(N):
        x = f"b{i}" + "%s" % (i - 1)
    for k, one in enumerate(y):
        x = f"b{k}"
"""
NOT_COUNTED = """
def forward(x, i):
    for i in range(3):
        pass
    return f"{i}"
"""
SET_LATER = """
def forward(x, y):
    y = [f"{i}" for i in range(3)]
    for i in range(3):
        pass
    i, y = y, i
    return f"{i}"
"""
EXCEPTIONS = {  # what catches an exception, and whether it is read
    "    except ValueError as e:\n        return e.args": True,
    "    except* ValueError as e:\n        print(e)": True,
    "    except ValueError as e:\n        return lambda: e": True,
    "    except ValueError:\n        return sys.exc_info()": True,
    "    except ValueError as e:\n        raise KeyError(e) from e": False,
    "    except (KeyError, ValueError):\n        pass": False,
    "    except:\n        pass": False,
}
ALIAS = """
def forward(x, y):
    text = str
    return text(x)
"""


def _code(source: str) -> CodeType:
    space: dict[str, Any] = {}
    exec(source if "def " in source else f"def forward(self, x, y):\n    return {source}", space)  # noqa: S102  # the cases above
    return space["forward"].__code__  # type: ignore[no-any-return]


def _all_formats(code: CodeType, iterates: str = "") -> tuple[str, frozenset[str]]:
    """Return what code formats, and what its comprehensions do, which are functions of their own in Python 3.11."""
    found, attributes = find_formats(code, instructions(code), iterates)
    counting = {id(one): name for one, name in uses(code).counting}
    for inner in code.co_consts:
        if hasattr(inner, "co_code"):
            more, others = _all_formats(inner, counting.get(id(inner), ""))
            found, attributes = found or more, attributes | others
    return found, attributes


@pytest.mark.parametrize("source", [*ALLOWED, RAISED, COUNTED])
def test_numbers_and_texts_may_be_formatted(source: str) -> None:
    """In the ways that models have in practice."""
    assert _all_formats(_code(source)) == ("", frozenset())


@pytest.mark.parametrize("source", [*REFUSED, NOT_COUNTED, SET_LATER, ALIAS])
def test_no_other_value_may_be_formatted(source: str) -> None:
    """A value that is not known counts as another one."""
    assert _all_formats(_code(source))[0]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("show('%s', x)", True),
        ("x['%5r', 1], y", True),
        ("'%s' % x, LOG.info('%s', x), x.warn('a %s', y)", False),
    ],
)
def test_formats_that_are_passed_on_are_found(source: str, expected: bool) -> None:  # a case
    """Except those of messages of loggers, where nothing reads the text."""
    assert uses(_code(source)).has_template is expected


@pytest.mark.parametrize("source", ATTRIBUTES)
def test_the_names_of_formatted_attributes_are_known(source: str) -> None:
    """Their values are looked at when all objects have been described."""
    assert _all_formats(_code(source)) == ("", ATTRIBUTES[source])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("getattr(x, NAME) == getattr(y, NAME)", [("*",), ("*",)]),
        ("getattr(torch.nn, NAME)(x) + getattr(x, 'b%d' % y)(x) + getattr(x, NAME)(*y)", []),
        ("getattr(x, NAME).weight, getattr(x, 'name')", []),
        ("y(getattr(torch.nn, NAME), 1)", [("torch", "nn", "*")]),
        ("x.upper == K.lower", [("upper",), ("K", "lower")]),
    ],
)
def test_methods_that_are_not_called_are_found(source: str, expected: list[tuple[str, ...]]) -> None:
    """With the names that lead to their objects, since those can be modules."""
    assert list(find_methods(instructions(_code(source)))) == expected


@pytest.mark.parametrize(("handler", "is_read"), EXCEPTIONS.items())
def test_caught_exceptions_are_found(handler: str, is_read: bool) -> None:
    """So are those that are read, since their texts can have addresses."""
    found = uses(_code(f"def forward(x, y):\n    try:\n        y()\n{handler}"))
    assert (found.catches, found.reads_exception, found.raises) == (True, is_read, False)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def forward(x, y):\n    try:\n        y()\n    finally:\n        x()", (False, False, False)),
        ("def forward(x, y):\n    with torch.no_grad():\n        return y(x)", (False, False, False)),
        ("def forward(x, y):\n    with suppress(ValueError):\n        return y(x)", (True, False, False)),
        ("def forward(x, y):\n    if y:\n        raise ValueError(f'{x.shape[0]} {len(y)}')", (False, False, False)),
        (RAISED, (False, False, True)),
    ],
)
def test_raised_texts_are_found(source: str, expected: tuple[bool, ...]) -> None:
    """They matter if something catches the exception."""
    found = uses(_code(source))
    assert (found.catches, found.reads_exception, found.raises) == expected


def test_an_exit_that_reads_its_exception_is_found() -> None:
    """A context manager gets the exception as an argument."""
    space: dict[str, Any] = {}
    exec("def __exit__(self, kind, value, traceback):\n    return value.args", space)  # noqa: S102  # as above
    assert uses(space["__exit__"].__code__).reads_exception
