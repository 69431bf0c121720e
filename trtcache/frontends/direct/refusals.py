"""Rules for the model's code: what it may not read, since it is not compared."""

from __future__ import annotations

import logging
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch

from trtcache.frontends.direct import ownership
from trtcache.frontends.direct.addresses import (
    BY_ADDRESS,
    FORMATS,
    PERCENT,
    find_formats,
    find_text_type,
    has_plain_values,
    is_template,
    possible_methods,
    value_of,
)
from trtcache.frontends.direct.bytecode import instructions
from trtcache.frontends.direct.classes import CONTAINERS, EXEMPT_NAMES, UNORDERED_SETS
from trtcache.frontends.direct.code import (
    ALL,
    CODE_OF,
    LOOK_UPS,
    METHODS_BY_IDENTITY,
    OF_LOGGERS,
    STATE_OF_LOGGERS,
    UNSEEN,
    joined_names,
)
from trtcache.frontends.direct.errors import UnstableError
from trtcache.frontends.direct.ownership import is_impure
from trtcache.frontends.direct.patches import TORCH_OPERATORS
from trtcache.frontends.direct.surroundings import is_described_getter
from trtcache.frontends.direct.unordered import ITERATE

if TYPE_CHECKING:
    from types import CodeType

    from trtcache.frontends.direct.globals import Globals
    from trtcache.frontends.direct.uses import Uses
    from trtcache.frontends.direct.walk import Walk

_READS_ALL = frozenset(
    {"__dict__", "vars", "__getstate__", "__reduce__", "to_dict", "to_diff_dict", "asdict", "__repr__"}
)
_METHODS_READING_ALL = frozenset({"__eq__", "__iter__", "__repr__", "to_dict", "to_diff_dict", "to_json_string"})
"""Methods of configurations of transformers and diffusers that read all attributes."""

_BUILTINS = frozenset(
    {"range", "enumerate", "len", "int", "float", "round", "str", "isinstance", "issubclass", "getattr"}
)
"""Functions of Python whose results are known where values are formatted; beside sets, ``ITERATE`` are known, too."""

_SETS = frozenset({"setattr", "__setattr__", "__dict__", "vars", "SimpleNamespace"})
"""Names that can set attributes of any name."""

_STATE_OF_SYS = frozenset(dir(sys)) - {
    *("byteorder", "exc_info", "float_info", "hexversion", "implementation", "intern", "maxsize", "maxunicode"),
    *("platform", "version", "version_info", "is_finalizing", "__name__", "__doc__", "flags"),
}
_TAKES_DOTTED_NAMES = frozenset({"attrgetter", "methodcaller"})
ALLOWED_OF_LOGGERS = frozenset(
    ("debug", "info", "warning", "error", "critical", "exception", "log", "warn", "getLogger", "()")
)
ALLOWED_OF_LOGGERS |= {
    "debug_once",
    "info_once",
    "warning_once",
    "warning_advice",
    "NOTSET",
    "DEBUG",
    "INFO",
    "WARNING",
    "ERROR",
}
_WITH_STATE = frozenset(
    (
        *("numpy.random", "random", "locale", "gettext", "calendar", "tracemalloc", "faulthandler", "time", "gc"),
        *("resource", "signal", "multiprocessing", "socket", "platform", "site", "sysconfig", "tempfile", "secrets"),
        "torch.cuda.tunable",
    )
)
"""Modules that depend on the state of the process or the machine, also in attributes that are not functions."""

_DATES = frozenset(("datetime64", "M8", "is_busday", "busday_count", "busday_offset"))
"""NumPy's type of dates, for which the text ``now`` is the time."""

_MAY_CREATE_SETS = frozenset(
    {("transformers.utils.output_capturing", "capture_outputs.<locals>.wrapped_fn.<locals>.wrapper")}
)
"""Library code that creates a set of layer numbers for look-ups only (transformers 5.17)."""

_MAY_READ_SETS = frozenset({("diffusers.models.modeling_utils", "get_parameter_dtype")})
"""Library code that only asks whether any member of such a set is in a name (diffusers 0.42)."""


class Refusals:
    """Rules for the code that one export ran.

    Attributes:
        first: what code does that matters only with some objects -> the first function that does it.
        formatted: attributes whose values code formats -> the first function that does it.
        counting: the number of a comprehension's code -> ``range`` or ``enumerate``, over which it iterates first.
        stores: attributes that code sets.
        words: identifiers in strings of code.
        composes: the first function that looks up attributes by names that are not in its code.
    """

    def __init__(self) -> None:
        """Start without code."""
        self.first: dict[str, str] = {}
        self.formatted: dict[tuple[str, ...], str] = {}
        self.counting: dict[int, str] = {}
        self.stores: set[str] = set()
        self.words: set[str] = set()
        self.composes = ""

    def check(  # noqa: C901  # one case for each kind of use
        self, code: CodeType, use: Uses, space: dict[str, Any], walk: Walk
    ) -> None:
        """Refuse code of the model that reads what is not compared.

        Args:
            code: the code, which is about to run for the first time.
            use: what it uses.
            space: its globals.
            walk: the walk that describes what it reads.

        Raises:
            UnstableError: it reads something else.
        """

        def refuse(why: str) -> None:
            raise UnstableError(why).below(code.co_qualname)

        words = use.names | use.texts
        if unseen := use.names & UNSEEN or (words & UNSEEN if use.names & LOOK_UPS else None):
            refuse(f"it reads {min(unseen)}")
        is_user_code = not ownership.file_is_installed(code.co_filename)
        if is_user_code and (read := words & (CODE_OF | {"__get__"})):
            refuse(f"it reads {min(read)}")
        if is_user_code and use.composes and use.names & _TAKES_DOTTED_NAMES:
            refuse(f"it looks up a path of names ({min(use.names & _TAKES_DOTTED_NAMES)})")
        if use.order and (str(space.get("__name__")), code.co_qualname) not in _MAY_CREATE_SETS:
            refuse(f"it could iterate over a set of strings ({use.order})")
        if (sets := words & UNORDERED_SETS) and (str(space.get("__name__")), code.co_qualname) not in _MAY_READ_SETS:
            refuse(f"it reads {min(sets)}, a set of strings")
        if "sys" in use.names and use.names & _STATE_OF_SYS:
            refuse("it reads the loaded modules or a limit of the interpreter from sys")
        if words & _DATES:
            refuse(f"it could read the clock ({min(words & _DATES)})")
        if levels := words & OF_LOGGERS:
            refuse(f"it reads a logger's state ({min(levels)})")
        known = _BUILTINS | ITERATE - {"OrderedDict"} if use.has_set else _BUILTINS
        if is_user_code and (own := known & use.globals & space.keys()):
            refuse(f"it has another {min(own)} than Python")
        if is_user_code and use.reads_exception:
            refuse("it reads an exception, whose text could have the address of an object")
        self.counting |= {id(one): name for one, name in use.counting}
        formats, formatted = use.formats, use.formatted
        if formats and id(code) in self.counting:
            formats, formatted = find_formats(code, instructions(code), self.counting[id(code)])
        if is_user_code and formats:
            refuse(f"it could read the address of an object ({formats})")
        if is_user_code and use.names & STATE_OF_LOGGERS and walk.loggers:
            refuse("it could read a logger's state")
        if is_user_code and (methods := possible_methods(use.methods, space, walk)):
            if methods != {ALL}:
                refuse(f"it could compare methods of strings or numbers by identity ({min(methods - {ALL})})")
            self.first.setdefault("methods", code.co_qualname)
        if is_user_code:
            self.stores |= use.stores
            self.words |= use.texts
            self.composes = self.composes or (code.co_qualname if use.composes else "")
        for chain in use.chains:
            if is_user_code and _may_show_address(value_of(tuple(name for name in chain if name != "()"), space)):
                refuse(f"it could read the address of an object ({'.'.join(chain)})")
            if _is_unset_memory(chain, space):
                refuse(f"it could read memory that NumPy has not set ({'.'.join(chain)})")
            _refuse_chain(chain, space, is_user_code=is_user_code)
        is_library = str(space.get("__name__")).startswith(("transformers.", "diffusers."))
        if words & EXEMPT_NAMES or (
            code.co_name in _METHODS_READING_ALL if is_library else use.composes or use.names & _READS_ALL
        ):
            self.first.setdefault("exempt", code.co_qualname)
        does = {"merges": use.merges, "changes": use.changes, "views": use.has_view, "subtracts": use.subtracts}
        does |= {"looks": bool(use.names & _READS_ALL), "where": "where" in use.texts, "template": use.has_template}
        does |= {"sets": bool(use.names & _SETS), "raises": use.raises, "catches": use.catches}
        if is_user_code:
            self.formatted = {**dict.fromkeys(formatted, code.co_qualname), **self.formatted}
        for what, is_done in does.items() if is_user_code else ():
            if is_done:
                self.first.setdefault(what, code.co_qualname)

    def check_combinations(self, found: Globals) -> None:
        """Refuse code that matters only together with an object that it can reach.

        Such as code that changes sets, with a set; or that formats an attribute, with an object under its name.

        Args:
            found: the globals that the code reads, with the walk that has described them and the model.

        Raises:
            ValueError: there is such code.
        """
        walk, first, kept = found.walk, self.first, "a function that is kept"
        self._check_texts(found)
        if "merges" in first and walk.has_set:
            raise ValueError(f"{first['merges']} could create a set of strings")
        if "where" in first and "numpy" in walk.visited_modules:
            raise ValueError(f"{first['where']} could read memory that NumPy has not set (where)")
        if "changes" in first and walk.has_mutable_set:
            raise ValueError(f"{first['changes']} could change a set")
        view = first.get("views") or (kept if walk.has_view else "")
        if view and ("subtracts" in first or walk.has_set_operator):
            raise ValueError(f"{view} keeps keys() or items() of a dictionary, of which a set could be created")
        looks = first.get("looks") or (kept if walk.has_look_up else "")
        if looks and walk.has_unordered:
            raise ValueError(f"{looks} could read a set of strings")
        reads = first.get("exempt") or (kept if walk.has_look_up else "")
        if reads and walk.has_exempt:
            raise ValueError(f"{reads} could read an attribute that is not compared")

    def _check_texts(self, found: Globals) -> None:
        """Refuse code that could compare texts with addresses, or methods of equal objects.

        Raises:
            ValueError: there is such code.
        """
        walk, values = found.walk, found.values()
        for names, who in self.formatted.items():
            if names == (PERCENT,):
                may_be_object = "template" in self.first or any(map(is_template, walk.texts))
            else:
                may_be_object = not self.stores.isdisjoint(names) or not has_plain_values(walk, names)
                may_be_object |= "sets" in self.first
            if may_be_object:
                raise ValueError(f"{who} could read the address of an object (a formatted text)")
        if "raises" in self.first and "catches" in self.first:
            why = f"the text of an exception of {self.first['raises']}"
            raise ValueError(f"{self.first['catches']} could read {why}, which could have an address")
        if kept := find_text_type([*walk.all_visited(), *values], [*walk.classes, *values]):
            raise ValueError(f"{kept}, which is kept, could format an object, whose text has its address")
        words = walk.texts | self.words
        if self.composes and (by_address := {*joined_names(BY_ADDRESS | FORMATS, words)}):
            raise ValueError(f"{self.composes} could read the address of an object ({min(by_address)})")
        looks = self.first.get("methods") or ("a function that is kept" if walk.has_look_up else "")
        texts = [(name,) for name in joined_names(METHODS_BY_IDENTITY, words) if looks]
        if methods := possible_methods(texts, {}, walk):
            raise ValueError(f"{looks} could compare methods of strings or numbers ({min(methods)})")


def _is_unset_memory(chain: tuple[str, ...], space: dict[str, Any]) -> bool:
    """Return whether a chain of names leads to a function of NumPy that returns memory as it was."""
    value = space.get(chain[0])
    if value is sys.modules.get("numpy") is not None and len(chain) > 1:
        value = getattr(value, chain[1], None)
    name = getattr(value, "__name__", "") if getattr(value, "__module__", None) == "numpy" else ""
    return name in {"empty", "empty_like"} or (name == "ndarray" and chain[-1] == "()")


def _may_show_address(value: Any) -> bool:
    """Return whether a value is a private function of torch or Python that formats others than numbers and texts."""
    is_private = type(value) is FunctionType and value.__name__[:1] == "_"
    if not is_private or not ownership.file_is_versioned(value.__code__.co_filename):
        return False
    return bool(find_formats(value.__code__, instructions(value.__code__))[0])


def _refuse_chain(chain: tuple[str, ...], space: dict[str, Any], *, is_user_code: bool) -> None:
    """Refuse impure functions that are passed on, and operators whose kernels can be Python code.

    In the user's own files (``is_user_code``), also functions in ``torch._C``, unless their results are compared.

    Raises:
        UnstableError: a chain of names leads to one.
    """
    value: Any = space.get(chain[0])
    for name in chain[1:]:
        if type(value) is ModuleType and value.__name__ in _WITH_STATE:
            raise UnstableError(f"module {value.__name__}, which has a state").below(".".join(chain))
        if type(value) in {torch._ops._Ops, torch._ops._OpNamespace} and name not in {
            *TORCH_OPERATORS,
            "loaded_libraries",
        }:
            if type(value) is torch._ops._Ops:
                raise UnstableError("an operator that is not torch's own").below(".".join(chain))
            return
        if (isinstance(value, logging.Logger) or value is logging) and name not in ALLOWED_OF_LOGGERS:
            raise UnstableError("a logger's state").below(".".join(chain))
        is_of_torch = is_user_code and value is torch._C and not is_described_getter(f"_C.{name}")
        if is_of_torch and type(vars(value).get(name)) is BuiltinFunctionType:
            raise UnstableError("a private function of torch").below(".".join(chain))
        is_private = name[:1] == "_" and type(value) is ModuleType and ownership.is_versioned_module(value.__name__)
        value = vars(value).get(name) if issubclass(type(value), ModuleType) else None
        if is_private and type(value) in CONTAINERS:
            raise UnstableError("a private table of torch or Python").below(".".join(chain))
    if chain[-1] != "()" and type(value) is BuiltinFunctionType and is_impure(value):
        raise UnstableError(f"{value.__qualname__}, a function that depends on the process or the machine")
    home = value.__name__ if type(value) is ModuleType else getattr(value, "__module__", None)
    if type(home) is str and home in _WITH_STATE and not isinstance(value, type):
        raise UnstableError(f"module {home}, which has a state").below(".".join(chain))
