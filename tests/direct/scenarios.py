"""What users do between two runs of a script: states of files, scripts and processes before and after it."""

# ruff: noqa: E501  # sources of whole files are easier to read on a line

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MISS, MAY_HIT = "miss", "may hit"


@dataclass(frozen=True)
class Scenario:
    """Two states of a folder with a package, and of the script that compiles its model.

    Attributes:
        files: files by name: ``model`` is ``pkg/model.py``, ``/x.txt`` is beside the package.
        after: those that are others afterwards; None removes one.
        script: what makes ``model``, and ``args`` and more where they are not the usual ones.
        then: the same afterwards; None if it is the same.
        expected: ``miss``, or ``may hit`` where the change is harmless.
        env: variables of both processes.
        env_after: variables of the second.
        setup: Python code that prepares the folder.
        between: Python code that changes it.
        argv: arguments of Python, for a process that is started anew and not forked.
        argv_after: the same afterwards; None if they are the same.
        init: whether the package has an empty ``__init__`` unless it is among the files.
        again: whether the first state can be run twice.
    """

    files: dict[str, str]
    after: Mapping[str, str | None] = field(default_factory=dict)
    script: str = "from pkg.model import Model\nmodel = Model().eval()\n"
    then: str | None = None
    expected: str = MISS
    env: dict[str, str] = field(default_factory=dict)
    env_after: dict[str, str] = field(default_factory=dict)
    setup: str = ""
    between: str = ""
    argv: tuple[str, ...] = ()
    argv_after: tuple[str, ...] | None = None
    init: bool = True
    again: bool = True


SCRIPT = "from pkg.model import Model\nmodel = Model().eval()\n"
SCENARIOS: dict[str, Scenario] = {}


def _add(name: str, scenario: Scenario) -> None:
    assert name not in SCENARIOS, name
    SCENARIOS[name] = scenario


def _model(forward: str, init: str = "pass", top: str = "", bases: str = "nn.Module") -> str:
    """Return a file with a model."""
    indent = "\n        "
    return (
        f"import torch\nfrom torch import nn\n{top}\n\nclass Model({bases}):\n    def __init__(self):\n        super().__init__()"
        f"{indent}{init.replace(chr(10), indent)}\n\n    def forward(self, x):{indent}{forward.replace(chr(10), indent)}\n"
    )


def _edit(
    name: str,
    text: str,
    old: str,
    new: str,
    *,
    file: str = "model",
    files: dict[str, str] | None = None,
    **more: Any,
) -> None:
    """Add a scenario in which a file is edited in one place."""
    everything = {"model": text, **(files or {})}
    assert old in everything[file], (name, old)
    _add(name, Scenario(everything, {file: everything[file].replace(old, new)}, **more))


def _then(name: str, text: str, more: str, files: dict[str, str] | None = None, **others: Any) -> None:
    """Add a scenario whose second script does more."""
    _add(name, Scenario({"model": text, **(files or {})}, then=f"{SCRIPT}import pkg.model as m\n{more}\n", **others))


# Values behind objects. The number comes from the environment, and its name is gone afterwards.

_BY = "import os\nBY = float(os.environ.get('BY', '2'))\nGONE = [BY]\n"
_GONE = "del BY, os, GONE\n"

HOLDERS: dict[str, tuple[str, str]] = {  # what makes H, and what reads it
    "dict.get": ("H = {'a': BY}.get", "H('a')"),
    "list.__getitem__": ("H = [BY].__getitem__", "H(0)"),
    "a number's method": ("H = BY.__mul__", "H(1.0)"),
    "str.format": ("H = (str(BY) + '{}').format", "float(H(''))"),
    "a pattern's method": ("import re\nH = re.compile(str(BY)).search", "(5 if H('2.0') else 7)"),
    "an array's method": ("import numpy as np\nH = np.array([BY]).item", "H()"),
    "a tensor's method": ("H = torch.tensor([BY]).mul", "1 * H(x)"),
    "a tensor's dunder": ("H = torch.tensor([BY]).__add__", "1 * H(x)"),
    "an iterator's copy": ("import itertools, copy\nH = itertools.repeat(BY)", "next(H)"),
    "dict views": ("H = {'a': BY}.values()", "list(H)[0]"),
    "a memoryview": ("H = memoryview(bytearray([int(BY)]))", "H[0]"),
    "a bytearray": ("H = bytearray([int(BY)])", "H[0]"),
    "cmp_to_key": (
        "import functools\ndef make(b):\n    return lambda a, c: (a - c) * (b - 2.5)\nH = functools.cmp_to_key(make(BY))",
        "sorted([1.0, 2.0], key=H)[0]",
    ),
    "a struct": (
        "import struct\nH = struct.Struct('<i' if BY == 2 else '>i')",
        "(1 + (H.unpack(bytes([1, 0, 0, 0]))[0] > 1))",
    ),
    "an element of XML": (
        "import xml.etree.ElementTree as E\nH = E.fromstring(f'<a by=\"{BY}\"/>')",
        "float(H.get('by'))",
    ),
    "a StringIO": ("import io\nH = io.StringIO(str(BY))", "float(H.getvalue())"),
    "a BytesIO": ("import io\nH = io.BytesIO(str(BY).encode())", "float(H.getvalue())"),
    "a ctypes number": ("import ctypes\nH = ctypes.c_float(BY)", "H.value"),
    "a ctypes structure": (
        "import ctypes\nclass S(ctypes.Structure):\n    _fields_ = [('by', ctypes.c_double)]\nH = S(BY)",
        "H.by",
    ),
    "a ctypes array": ("import ctypes\nH = (ctypes.c_double * 1)(BY)", "H[0]"),
    "a ctypes pointer": ("import ctypes\nH = ctypes.pointer(ctypes.c_double(BY))", "H.contents.value"),
    "a Decimal": ("from decimal import Decimal\nH = Decimal(str(BY))", "float(H)"),
    "a timedelta": ("import datetime\nH = datetime.timedelta(seconds=BY)", "H.total_seconds()"),
    "an address": ("import ipaddress\nH = ipaddress.ip_address(f'10.0.0.{int(BY)}')", "(int(H) % 10)"),
    "a UUID": ("import uuid\nH = uuid.UUID(int=int(BY))", "H.int"),
    "a hash object": ("import hashlib\nH = hashlib.sha256(str(BY).encode())", "H.digest()[0]"),
    "a random.Random": ("import random\nH = random.Random(int(BY))", "float(H.getstate()[1][5] % 1000)"),
    "a Literal": ("import typing\nH = typing.Literal[int(BY)]", "__import__('typing').get_args(H)[0]"),
    "an Annotated": ("import typing\nH = typing.Annotated[float, BY]", "H.__metadata__[0]"),
    "a generic alias": ("H = list[int] if BY == 2 else list[str]", "(2 if H.__args__[0] is int else 3)"),
    "a union of types": ("H = int | str if BY == 2 else int | float", "(2 if isinstance('a', H) else 3)"),
    "a TypeVar": (
        "import typing\nH = typing.TypeVar('H', bound=int if BY == 2 else str)",
        "(2 if H.__bound__ is int else 3)",
    ),
    "a template": ("import string\nH = string.Template(f'{BY}$a')", "float(H.substitute(a=''))"),
    "an AST": ("import ast\nH = ast.parse(str(BY), mode='eval')", "H.body.value"),
    "a code object": ("H = compile(str(BY), 'h', 'eval')", "H.co_consts[0]"),
    "a cell": ("import types\nH = types.CellType(BY)", "H.cell_contents"),
    "a weak reference": (
        "class O:\n    pass\nKEEP = O()\nKEEP.by = BY\nimport weakref\nH = weakref.ref(KEEP)",
        "H().by",
    ),
    "a weak proxy": ("class O:\n    pass\nKEEP = O()\nKEEP.by = BY\nimport weakref\nH = weakref.proxy(KEEP)", "H.by"),
    "a WeakMethod": (
        "class O:\n    def go(self):\n        return self.by\nKEEP = O()\nKEEP.by = BY\nimport weakref\nH = weakref.WeakMethod(KEEP.go)",
        "H()()",
    ),
    "a thread local": ("import threading\nH = threading.local()\nH.by = BY", "H.by"),
    "a module without a file": ("import types\nH = types.ModuleType('h')\nH.by = BY", "H.by"),
    "an OrderedDict that is moved": (
        "import collections\nH = collections.OrderedDict(a=2.0, b=3.0)\nif BY == 3:\n    H.move_to_end('a')",
        "list(H.values())[0]",
    ),
    "a deque's limit": ("import collections\nH = collections.deque([1], maxlen=int(BY))", "H.maxlen"),
    "a defaultdict's factory": (
        "import collections\nH = collections.defaultdict(float if BY == 2 else (lambda: 5.0))",
        "(1 + H.default_factory())",
    ),
    "a factory of a defaultdict's closure": (
        "import collections\ndef make(b):\n    return lambda: b\nH = collections.defaultdict(make(BY))",
        "H.copy()['a']",
    ),
    "a subclass of list": ("class L(list):\n    pass\nH = L([1])\nH.by = BY", "H.by"),
    "a list that lies": (
        "class L(list):\n    def __iter__(self):\n        return iter(())\n    def __len__(self):\n        return 0\nH = L([BY])",
        "H[0]",
    ),
    "a dictionary that lies": (
        "class L(dict):\n    def items(self):\n        return []\n    def keys(self):\n        return []\n    def __iter__(self):\n        return iter(())\nH = L(a=BY)",
        "H['a']",
    ),
    "a field that is not compared": (
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    by: float = dataclasses.field(default=1.0, compare=False, repr=False, hash=False)\nH = C(BY)",
        "H.by",
    ),
    "an object equal to all": (
        "class C:\n    def __eq__(self, o):\n        return True\n    def __hash__(self):\n        return 1\n    def __repr__(self):\n        return 'C()'\nH = C()\nH.by = BY",
        "H.by",
    ),
    "an object that pickles less": (
        "class C:\n    def __getstate__(self):\n        return {}\n    def __reduce__(self):\n        return (C, ())\nH = C()\nH.by = BY",
        "H.by",
    ),
    "an object with another __dict__": (
        "class C:\n    @property\n    def __dict__(self):\n        return {}\nH = C()\nobject.__setattr__(H, 'by', BY)",
        "H.by",
    ),
    "an object with another __class__": (
        "class C:\n    __class__ = property(lambda self: int)\nH = C()\nH.by = BY",
        "H.by",
    ),
    "mangled slots": (
        "class C:\n    __slots__ = ('__by',)\n    def __init__(self, b):\n        self.__by = b\n    def get(self):\n        return self.__by\nH = C(BY)",
        "H.get()",
    ),
    "slots of a base": (
        "class B:\n    __slots__ = ('by',)\nclass C(B):\n    __slots__ = ()\nH = C()\nH.by = BY",
        "H.by",
    ),
    "slots and a dictionary": (
        "class B:\n    __slots__ = ('by',)\nclass C(B):\n    pass\nH = C()\nH.by = BY\nH.a = 1",
        "H.by",
    ),
    "slots that are shadowed": (
        "class B:\n    __slots__ = ('by',)\nclass C(B):\n    __slots__ = ()\n    by = 7\nH = C()\nB.by.__set__(H, BY)\nSL = B.by",
        "SL.__get__(H)",
    ),
    "arguments of an exception": ("H = ValueError(BY)", "H.args[0]"),
    "the cause of an exception": ("H = ValueError()\nH.__cause__ = KeyError(BY)", "H.__cause__.args[0]"),
    "a note of an exception": ("H = ValueError()\nH.add_note(str(BY))", "float(H.__notes__[0])"),
    "an attribute of an enum's member": ("import enum\nclass C(enum.Enum):\n    A = 1\nC.A.by = BY\nH = C.A", "H.by"),
    "aliases of an enum": ("import enum\nH = enum.Enum('H', {'A': 1, 'B': int(BY) - 1})", "len(list(H))"),
    "_missing_ of an enum": (
        "import enum\nclass H(enum.Enum):\n    A = 2.0\n    B = 3.0\n    @classmethod\n    def _missing_(cls, v):\n        return cls.by\nH.by = H(BY)",
        "H('x').value",
    ),
    "a NumPy scalar's type": ("import numpy as np\nH = np.float32(0.1) if BY == 2 else np.float64(0.1)", "float(H)"),
    "NumPy's byte order": (
        "import numpy as np\nH = np.frombuffer(bytes([1, 0]), '<u2' if BY == 2 else '>u2')",
        "int(H[0])",
    ),
    "a NumPy object array": (
        "import numpy as np\nclass O:\n    pass\nH = np.array([O()], dtype=object)\nH[0].by = BY",
        "H[0].by",
    ),
    "a structured array": (
        "import numpy as np\nH = np.array([(BY, 1)], dtype=[('a', 'f8'), ('b', 'i4')])",
        "float(H['a'][0])",
    ),
    "a mask of an array": ("import numpy as np\nH = np.ma.array([2.0, 3.0], mask=[BY == 3, False])", "float(H.sum())"),
    "an attribute of an array": (
        "import numpy as np\nclass A(np.ndarray):\n    pass\nH = np.zeros(1).view(A)\nH.by = BY",
        "H.by",
    ),
    "a read-only array": (
        "import numpy as np\nH = np.zeros(1)\nH.flags.writeable = BY == 2",
        "(2 if H.flags.writeable else 3)",
    ),
    "order of an array": (
        "import numpy as np\nH = np.ones((2, 2), order='C' if BY == 2 else 'F')",
        "(2 if H.flags.c_contiguous else 3)",
    ),
    "frompyfunc": (
        "import numpy as np\ndef make(b):\n    return lambda a: a * b\nH = np.frompyfunc(make(BY), 1, 1)",
        "float(H(1.0))",
    ),
    "vectorize": (
        "import numpy as np\ndef make(b):\n    return lambda a: a * b\nH = np.vectorize(make(BY))",
        "float(H(1.0))",
    ),
    "a polynomial": ("import numpy as np\nH = np.poly1d([BY])", "float(H(0))"),
    "a NumPy generator": (
        "import numpy as np\nH = np.random.RandomState(int(BY))",
        "float(H.get_state()[1][3] % 1000)",
    ),
    "a torch generator": ("H = torch.Generator().manual_seed(int(BY))", "float(H.initial_seed())"),
    "torch.Size": ("H = torch.Size([int(BY)])", "H[0]"),
    "torch.finfo": ("H = torch.finfo(torch.float16 if BY == 2 else torch.bfloat16)", "H.eps"),
    "a device": ("H = torch.device('cpu' if BY == 2 else 'meta')", "(2 if H.type == 'cpu' else 3)"),
    "a memory format": (
        "H = torch.channels_last if BY == 2 else torch.contiguous_format",
        "(2 if H is torch.channels_last else 3)",
    ),
    "a distribution": ("H = torch.distributions.Normal(0.0, BY)", "H.stddev"),
    "a subclass of a tensor": ("class T(torch.Tensor):\n    pass\nH = torch.ones(1).as_subclass(T)\nH.by = BY", "H.by"),
    "a graph module": (
        "import torch.fx\ndef make(b):\n    class M(nn.Module):\n        def forward(self, x):\n            return x * b\n    return M()\nH = torch.fx.symbolic_trace(make(BY))",
        "1 * H(x)",
    ),
    "a module outside the tree": (
        "H = [nn.Dropout(0.5)]\nH[0].train(BY == 3)\nimport torch.nn.functional as F",
        "(2 + H[0].training)",
    ),
    "a range": ("H = range(0, 10, int(BY))", "H[1]"),
    "a property object": ("def make(b):\n    return property(lambda self: b)\nH = make(BY)", "H.__get__(1)"),
    "a partial of a builtin": ("import functools\nH = functools.partial(pow, BY)", "H(1)"),
    "keywords of a partial": ("import functools\ndef f(*, b):\n    return b\nH = functools.partial(f, b=BY)", "H()"),
    "defaults of keywords": ("def H(*, b=BY):\n    return b", "H()"),
    "globals of a function": (
        "import types\ndef f():\n    return HIDDEN\nH = types.FunctionType(f.__code__, {'HIDDEN': BY, '__builtins__': __builtins__})",
        "H()",
    ),
    "constants of a code object": (
        "def f():\n    return 2.0\nf.__code__ = f.__code__.replace(co_consts=tuple(BY if c == 2.0 else c for c in f.__code__.co_consts))\nH = f",
        "H()",
    ),
    "two lambdas on a line": ("H = [lambda: 2.0, lambda: 3.0][BY == 3]", "H()"),
    "a function under if": (
        "if BY == 2:\n    def H():\n        return 2.0\nelse:\n    def H():\n        return 3.0",
        "H()",
    ),
    "a method under if": (
        "class C:\n    if BY == 2:\n        def go(self):\n            return 2.0\n    else:\n        def go(self):\n            return 3.0\nH = C()",
        "H.go()",
    ),
    "a class under if": (
        "if BY == 2:\n    class C:\n        by = 2.0\nelse:\n    class C:\n        by = 3.0\nH = C()",
        "H.by",
    ),
    "a generator function under if": ("H = (lambda: (yield 2.0)) if BY == 2 else (lambda: (yield 3.0))", "next(H())"),
    "a function of a comprehension": (
        "H = [f for n, f in enumerate([(lambda: 2.0), (lambda: 3.0)]) if n == BY - 2][0]",
        "H()",
    ),
    "a class's subclasses": (
        "class B:\n    by = 1\nclass C(B):\n    by = 2.0\nif BY == 3:\n    class D(B):\n        by = 3.0\n    KEEP = D\nH = B",
        "H.__subclasses__()[-1].by",
    ),
    "a virtual subclass": (
        "import abc\nclass H(abc.ABC):\n    pass\nclass C:\n    pass\nO = C()\nif BY == 3:\n    H.register(C)",
        "(3 if isinstance(O, H) else 2)",
    ),
    "a virtual subclass of a library's class": (
        "import numbers\nclass C:\n    pass\nO = C()\nif BY == 3:\n    numbers.Number.register(C)\nH = numbers",
        "(3 if isinstance(O, numbers.Number) else 2)",
    ),
    "a registered overload": (
        "import functools\n@functools.singledispatch\ndef H(a):\n    return 2.0\nif BY == 3:\n    H.register(int, lambda a: 3.0)",
        "H(1)",
    ),
    "__class_getitem__": (
        "def make(b):\n    return classmethod(lambda cls, i: b)\nclass H:\n    pass\nH.__class_getitem__ = make(BY)",
        "H[1]",
    ),
    "a metaclass's property": (
        "class T(type):\n    by = property(lambda cls: cls._b)\nclass H(metaclass=T):\n    pass\nH._b = BY",
        "H.by",
    ),
    "a metaclass's __getattr__": (
        "TABLE = {'by': BY}\nclass T(type):\n    def __getattr__(cls, n):\n        return TABLE[n]\nclass H(metaclass=T):\n    pass",
        "H.by",
    ),
    "a __prepare__": (
        "class D(dict):\n    pass\nclass T(type):\n    @classmethod\n    def __prepare__(mcs, n, b):\n        return {'by': BY}\nclass H(metaclass=T):\n    pass",
        "H.by",
    ),
    "__set_name__": ("class N:\n    def __set_name__(self, o, n):\n        o.by = BY\nclass H:\n    a = N()", "H.by"),
    "an attribute of a module class": ("class M(nn.Module):\n    pass\nM.by = BY\nH = M()", "H.by"),
    "names of a class": ("class H:\n    pass\nH.__name__ = 'A' if BY == 2 else 'BBB'", "len(H.__name__)"),
    "a document of a class": ("class H:\n    pass\nH.__doc__ = str(BY)", "float(H.__doc__)"),
    "a document of a function": ("def H():\n    pass\nH.__doc__ = str(BY)", "float(H.__doc__)"),
    "a name of a function": ("def H():\n    pass\nH.__name__ = 'A' if BY == 2 else 'BBB'", "len(H.__name__)"),
    "annotations of a function": ("def H(a: BY):\n    pass", "H.__annotations__['a']"),
    "a generator's frame": ("def g(b):\n    yield 1\n    yield b\nH = g(BY)\nnext(H)", "H.gi_frame.f_locals['b']"),
    "a map": ("H = map(float, [BY])", "float(H.__reduce__()[1][1].__reduce__()[1][0][0])"),
    "a super object": (
        "class B:\n    def go(self):\n        return self.by\nclass C(B):\n    pass\nO = C()\nO.by = BY\nH = super(C, O)\ndel O",
        "H.go()",
    ),
    "a static method's object": ("def make(b):\n    return lambda: b\nH = staticmethod(make(BY))", "H()"),
    "a translation table": ("H = str.maketrans({'a': str(int(BY))})", "int('a'.translate(H))"),
    "a frozen set of numbers": ("H = frozenset([int(BY)])", "min(H)"),
    "order of a set of numbers": ("H = {0, 8} if BY == 2 else {8, 0}", "list(H)[0] + 1"),
    "a dictionary's key of another type": (
        "H = {1: 1} if BY == 2 else {True: 1}",
        "(2 if type(list(H)[0]) is int else 3)",
    ),
    "a recursive list": ("H = [BY]\nH.append(H)", "H[1][1][0]"),
    "a recursive list of another depth": (
        "H = [1]\nif BY == 2:\n    H.append(H)\nelse:\n    H.append([1, H])",
        "(2 if H[1] is H else 3)",
    ),
    "a big integer": ("H = 10**30 + int(BY)", "float(H % 10)"),
    "a complex number's zero": (
        "H = complex(1.0, 0.0 if BY == 2 else -0.0)",
        "__import__('math').copysign(1.0, H.imag)",
    ),
    "an infinity": ("H = float('inf') if BY == 2 else float('-inf')", "(1 if H > 0 else 5)"),
    "the sign of a NaN": ("H = float('nan') if BY == 2 else -float('nan')", "__import__('math').copysign(1.0, H)"),
    "a named tuple's default": ("import collections\nH = collections.namedtuple('H', 'a', defaults=[BY])", "H().a"),
    "a context variable's default": ("import contextvars\nH = contextvars.ContextVar('H', default=BY)", "H.get()"),
    "a copied context": (
        "import contextvars\nV = contextvars.ContextVar('V')\nV.set(BY)\nH = contextvars.copy_context()",
        "H[V]",
    ),
    "an argparse parser": (
        "import argparse\nH = argparse.ArgumentParser()\nH.add_argument('--by', type=float, default=BY)",
        "H.parse_args([]).by",
    ),
    "an argparse namespace": ("import argparse\nH = argparse.Namespace(by=BY)", "H.by"),
    "a config parser": (
        "import configparser\nH = configparser.ConfigParser()\nH.read_string(f'[a]\\nby={BY}')",
        "H.getfloat('a', 'by')",
    ),
    "a YAML configuration": ("import yaml\nH = yaml.safe_load(f'a: [{{by: {BY}}}]')", "H['a'][0]['by']"),
    "a TOML configuration": ("import tomllib\nH = tomllib.loads(f'[a]\\nby = {BY}')", "H['a']['by']"),
    "a database": (
        "import sqlite3\nH = sqlite3.connect(':memory:')\nH.execute('create table t (b)')\nH.execute('insert into t values (?)', (BY,))",
        "H.execute('select b from t').fetchone()[0]",
    ),
    "an exit stack": (
        "import contextlib\nH = contextlib.ExitStack()\nH.callback(lambda b=BY: b)",
        "H._exit_callbacks[0][1].__wrapped__.__defaults__[0]",
    ),
    "a null context": ("import contextlib\nH = contextlib.nullcontext(BY)", "H.__enter__()"),
    "a mock": ("from unittest import mock\nH = mock.Mock(by=BY)", "H.by"),
    "a make_dataclass's method": (
        "import dataclasses\ndef make(b):\n    return lambda self: b\nH = dataclasses.make_dataclass('H', [], namespace={'go': make(BY)})()",
        "H.go()",
    ),
    "new_class": ("import types\nH = types.new_class('H', (), {}, lambda ns: ns.update(by=BY))", "H.by"),
    "a user string": ("import collections\nH = collections.UserString(str(BY))", "float(H)"),
    "a cycle": ("import itertools\nH = itertools.cycle([BY])", "next(H)"),
    "a chained partial method": (
        "import functools\nclass C:\n    def f(self, b):\n        return b\n    g = functools.partialmethod(f, BY)\nH = C()",
        "H.g()",
    ),
    "a logger's extra": (
        "import logging\nH = logging.LoggerAdapter(logging.getLogger('a'), {'by': BY})",
        "H.extra['by']",
    ),
    "a logger's level": ("import logging\nH = logging.getLogger('aaa')\nH.setLevel(int(BY))", "H.level"),
    "a queue": ("import queue\nH = queue.Queue()\nH.put(BY)", "H.queue[0]"),
    "a simple queue": ("import queue\nH = queue.SimpleQueue()\n[H.put(1) for _ in range(int(BY))]", "H.qsize()"),
    "a date": ("import datetime\nH = datetime.date(2000, 1, int(BY))", "H.day"),
    "a time zone": (
        "import datetime\nH = datetime.timezone(datetime.timedelta(hours=BY))",
        "H.utcoffset(None).total_seconds()",
    ),
    "a zone": ("import datetime\nclass Z(datetime.tzinfo):\n    pass\nH = Z()\nH.by = BY", "H.by"),
    "a compiled regular expression's flags": (
        "import re\nH = re.compile('a', re.I if BY == 2 else 0)",
        "(2 if H.match('A') else 3)",
    ),
    "a match": ("import re\nH = re.match('.*', str(BY))", "float(H.group(0))"),
    "text with an attribute": ("class S(str):\n    pass\nH = S('a')\nH.by = BY", "H.by"),
    "an integer with an attribute": ("class I(int):\n    pass\nH = I(1)\nH.by = BY", "H.by"),
    "a float with its own product": (
        "def make(b):\n    class Fl(float):\n        def go(self):\n            return self * b\n    return Fl(1.0)\nH = make(BY)",
        "H.go()",
    ),
    "a tuple with an attribute": ("class U(tuple):\n    pass\nH = U((1,))\nH.by = BY", "H.by"),
    "a set with an attribute": ("class U(set):\n    pass\nH = U()\nH.by = BY", "H.by"),
    "bytes": ("H = bytes([int(BY)])", "H[0]"),
    "a slice": ("H = slice(0, int(BY))", "H.stop"),
    "a text that cannot be encoded": ("H = '\\udc80' if BY == 2 else '\\udc81'", "float(ord(H) - 56000)"),
    "texts that normalize alike": ("H = 'e\\u0301' if BY == 2 else '\\u00e9'", "len(H)"),
}

for _name, (_make, _read) in HOLDERS.items():
    _add(
        f"held: {_name}",
        Scenario({"model": _model(f"return x * {_read}", top=f"{_BY}{_make}\n{_GONE}")}, env_after={"BY": "3"}),
    )

# The same as attributes of the model, for a part of them.
for _name in (
    "dict.get",
    "a tensor's method",
    "a ctypes structure",
    "an OrderedDict that is moved",
    "a weak reference",
    "a thread local",
    "two lambdas on a line",
    "a function under if",
    "constants of a code object",
    "a virtual subclass",
    "an element of XML",
    "a field that is not compared",
    "a graph module",
    "a class's subclasses",
    "slots that are shadowed",
    "a registered overload",
    "an attribute of an array",
):
    _make, _read = HOLDERS[_name]
    _add(
        f"kept: {_name}",
        Scenario(
            {"model": _model(f"H = self.h\nreturn x * {_read}", init="self.h = H", top=f"{_BY}{_make}\n{_GONE}")},
            env_after={"BY": "3"},
        ),
    )

# State that a function of Python, NumPy or torch answers by beside its arguments, and what changes it.

READS: dict[str, tuple[str, str, str]] = {  # imports, what is read, and what the second script does
    "expanduser": (
        "import os.path",
        "len(os.path.expanduser('~/a'))",
        "import os; os.environ['HOME'] = '/somewhere/else/now'",
    ),
    "expandvars": ("import os.path", "len(os.path.expandvars('$BY_TEXT'))", "import os; os.environ['BY_TEXT'] = 'a'"),
    "abspath": (
        "import os.path",
        "len(os.path.abspath('a')) + 0.5",
        "import os; os.makedirs('deeper/down', exist_ok=True); os.chdir('deeper/down')",
    ),
    "Path.resolve": (
        "import pathlib",
        "len(str(pathlib.Path('a').resolve()))",
        "import os; os.makedirs('deeper/down', exist_ok=True); os.chdir('deeper/down')",
    ),
    "Path.exists": ("import pathlib", "(2 if pathlib.Path('flag').exists() else 3)", "open('flag', 'w').close()"),
    "Path.home": (
        "import pathlib",
        "len(str(pathlib.Path.home()))",
        "import os; os.environ['HOME'] = '/somewhere/else/now'",
    ),
    "isfile": ("import os.path", "(2 if os.path.isfile('flag') else 3)", "open('flag', 'w').close()"),
    "glob": ("import glob", "(1 + len(glob.glob('*.flag')))", "open('a.flag', 'w').close()"),
    "gettempdir": (
        "import tempfile",
        "len(tempfile.gettempdir())",
        "import tempfile; os = __import__('os'); os.makedirs('deep'); tempfile.tempdir = os.path.abspath('deep')",
    ),
    "which": ("import shutil", "(2 if shutil.which('sh') else 3)", "import os; os.environ['PATH'] = '/nowhere'"),
    "localtime": (
        "import time",
        "(1 + time.localtime(0).tm_hour)",
        "import os, time; os.environ['TZ'] = 'XXX-5'; time.tzset()",
    ),
    "fromtimestamp": (
        "import datetime",
        "(1 + datetime.datetime.fromtimestamp(0).hour)",
        "import os, time; os.environ['TZ'] = 'XXX-5'; time.tzset()",
    ),
    "date.fromtimestamp": (
        "import datetime",
        "(1 + datetime.date.fromtimestamp(80000).day)",
        "import os, time; os.environ['TZ'] = 'XXX-9'; time.tzset()",
    ),
    "timestamp": (
        "import datetime",
        "(1e-3 + datetime.datetime(1970, 1, 2).timestamp() / 1e4)",
        "import os, time; os.environ['TZ'] = 'XXX-5'; time.tzset()",
    ),
    "astimezone": (
        "import datetime",
        "(1 + datetime.datetime(1970, 1, 2, tzinfo=datetime.timezone.utc).astimezone().hour)",
        "import os, time; os.environ['TZ'] = 'XXX-5'; time.tzset()",
    ),
    "strftime": (
        "import time",
        "float(time.strftime('%H', time.localtime(3600)) or 0) + 1",
        "import os, time; os.environ['TZ'] = 'XXX-5'; time.tzset()",
    ),
    "weekday of calendar": (
        "import calendar",
        "(1 + calendar.monthcalendar(2024, 5)[0].index(1))",
        "import calendar; calendar.setfirstweekday(6)",
    ),
    "repr of an array": (
        "import numpy as np\nA = np.array([1.23456789])",
        "float(repr(A)[7:-2])",
        "import numpy as np; np.set_printoptions(precision=2)",
    ),
    "str of an array": (
        "import numpy as np\nA = np.array([1.23456789])",
        "float(str(A)[1:-1])",
        "import numpy as np; np.set_printoptions(precision=2)",
    ),
    "format of an array": (
        "import numpy as np\nA = np.array([1.23456789])",
        "float(f'{A}'[1:-1])",
        "import numpy as np; np.set_printoptions(precision=2)",
    ),
    "repr of a NumPy scalar": (
        "import numpy as np\nA = np.float64(2)",
        "len(repr(A))",
        "import numpy as np; np.set_printoptions(legacy='1.25')",
    ),
    "a NumPy error": (
        "import numpy as np\nA = np.zeros(1)\ndef f():\n    try:\n        return float(np.nan_to_num(np.ones(1) / A, posinf=2.0)[0])\n    except FloatingPointError:\n        return 3.0",
        "f()",
        "import numpy as np; np.seterr(divide='raise')",
    ),
    "NumPy's random numbers": (
        "import numpy as np",
        "float(np.random.get_state()[1][3] % 1000)",
        "import numpy as np; np.random.seed(5)",
    ),
    "NumPy's buffer": ("import numpy as np", "np.getbufsize()", "import numpy as np; np.setbufsize(4096)"),
    "a decimal quotient": (
        "import decimal",
        "float(decimal.Decimal(1) / decimal.Decimal(3))",
        "import decimal; decimal.getcontext().prec = 3",
    ),
    "a decimal context": (
        "import decimal",
        "decimal.getcontext().prec",
        "import decimal; decimal.getcontext().prec = 3",
    ),
    "a decimal default context": (
        "import decimal",
        "decimal.DefaultContext.prec",
        "import decimal; decimal.DefaultContext.prec = 3",
    ),
    "an error handler of codecs": (
        "import codecs\ncodecs.register_error('own', lambda e: ('ab', e.end))",
        "len('\\u20ac'.encode('ascii', 'own'))",
        "import codecs; codecs.register_error('own', lambda e: ('abcd', e.end))",
    ),
    "a dialect of csv": (
        "import csv\ncsv.register_dialect('own', delimiter=',')",
        "len(next(csv.reader(['a,b;c'], 'own')))",
        "import csv; csv.register_dialect('own', delimiter='x')",
    ),
    "a limit of csv": ("import csv", "csv.field_size_limit()", "import csv; csv.field_size_limit(77)"),
    "a copier of copyreg": (
        "import copy\nclass C:\n    by = 2.0",
        "copy.copy(C()).by",
        "import copyreg\nclass D:\n    by = 3.0\ncopyreg.pickle(m.C, lambda o: (D, ()))",
    ),
    "a deep copier": (
        "import copy\nclass C:\n    by = 2.0",
        "copy.deepcopy(C()).by",
        "import copy\nclass D:\n    by = 3.0\ncopy._deepcopy_dispatch[m.C] = lambda o, memo: D()",
    ),
    "a warning that is an error": (
        "import warnings\ndef f():\n    try:\n        warnings.warn('own')\n        return 2.0\n    except UserWarning:\n        return 3.0",
        "f()",
        "import warnings; warnings.simplefilter('error')",
    ),
    "a patched warnings.warn": (
        "import warnings\ndef f():\n    try:\n        warnings.warn('own')\n        return 2.0\n    except KeyError:\n        return 3.0",
        "f()",
        "import warnings\nold = warnings.warn\ndef warn(*a, **k):\n    if a[0] == 'own':\n        raise KeyError\n    old(*a, **k)\nwarnings.warn = warn",
    ),
    "the locale": (
        "import locale",
        "len(locale.setlocale(locale.LC_ALL))",
        "import locale; locale.setlocale(locale.LC_ALL, 'C.UTF-8')",
    ),
    "the digits of an integer": (
        "def f():\n    try:\n        return float(len(str(10 ** 5000)) > 0) + 1\n    except ValueError:\n        return 3.0",
        "f()",
        "import sys; sys.set_int_max_str_digits(100000)",
    ),
    "the depth of recursion": (
        "def f(n=2000):\n    try:\n        return f(n - 1) if n else 2.0\n    except RecursionError:\n        return 3.0",
        "f()",
        "import sys; sys.setrecursionlimit(10000)",
    ),
    "a trace": ("import sys", "(2 if sys.gettrace() is None else 3)", "import sys; sys.settrace(lambda *a: None)"),
    "a count of references": ("import sys\nO = object()", "sys.getrefcount(O)", "kept = m.O"),
    "a dead reference": (
        "import weakref\nclass C:\n    pass\nO = C()\nR = weakref.ref(O)",
        "(2 if R() else 3)",
        "del m.O",
    ),
    "a loaded module": ("import sys", "(2 if 'telnetlib' in sys.modules else 3)", "import telnetlib"),
    "an attribute of sys": ("import sys", "getattr(sys, 'by', 2.0)", "import sys; sys.by = 3.0"),
    "a builtin that is added": (
        "import builtins",
        "getattr(builtins, 'by', 2.0)",
        "import builtins; builtins.by = 3.0",
    ),
    "a replaced builtin": (
        "",
        "abs(-2.0)",
        "import builtins; old = abs; builtins.abs = lambda v: 3.0 if type(v) is float and v == -2.0 else old(v)",
    ),
    "a replaced len in a file": ("", "len('ab')", "m.len = lambda v: 3.0"),
    "math.floor": ("import math", "math.floor(2.5)", "import math; math.floor = lambda v: 5"),
    "math.floor by name": ("from math import floor", "floor(2.5)", "m.floor = lambda v: 5"),
    "a patched method of Path": (
        "import pathlib",
        "len(pathlib.PurePath('a/b').name)",
        "import pathlib; pathlib.PurePath.name = property(lambda s: 'abc')",
    ),
    "a patched json decoder": (
        "import json",
        "json.loads('2.0')",
        "import json.decoder; json.decoder.JSONDecoder.decode = lambda s, t, *a: 3.0",
    ),
    "a patched string constant": ("import string", "len(string.digits)", "import string; string.digits = 'a'"),
    "a patched ChainMap": (
        "import collections",
        "collections.ChainMap({'a': 2.0})['a']",
        "import collections; collections.ChainMap.__getitem__ = lambda s, k: 3.0",
    ),
    "a patched dataclasses.replace": (
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    by: float = 2.0",
        "dataclasses.replace(C()).by",
        "import dataclasses; old = dataclasses.replace; dataclasses.replace = lambda o, **k: m.C(3.0) if type(o) is m.C else old(o, **k)",
    ),
    "the number of threads": ("", "torch.get_num_threads()", "torch.set_num_threads(3)"),
    "the number of threads between": ("", "torch.get_num_interop_threads()", "torch.set_num_interop_threads(7)"),
    "the default dtype": ("", "torch.finfo(torch.get_default_dtype()).bits", "torch.set_default_dtype(torch.float64)"),
    "the precision of products": (
        "",
        "len(torch.get_float32_matmul_precision())",
        "torch.set_float32_matmul_precision('high')",
    ),
    "deterministic algorithms": (
        "",
        "(2 if torch.are_deterministic_algorithms_enabled() else 3)",
        "torch.use_deterministic_algorithms(True)",
    ),
    "warn only": (
        "",
        "(2 if torch.is_deterministic_algorithms_warn_only_enabled() else 3)",
        "torch.use_deterministic_algorithms(False, warn_only=True); torch.use_deterministic_algorithms(True, warn_only=True); torch._C._set_deterministic_algorithms(False, warn_only=True)",
    ),
    "filled memory": (
        "",
        "(2 if torch.utils.deterministic.fill_uninitialized_memory else 3)",
        "torch.utils.deterministic.fill_uninitialized_memory = False",
    ),
    "anomalies": ("", "(2 if torch.is_anomaly_enabled() else 3)", "torch.autograd.set_detect_anomaly(True)"),
    "warn always": ("", "(2 if torch.is_warn_always_enabled() else 3)", "torch.set_warn_always(True)"),
    "oneDNN's determinism": (
        "",
        "(2 if torch.backends.mkldnn.deterministic else 3)",
        "torch.backends.mkldnn.deterministic = True",
    ),
    "the engine of quantization": (
        "",
        "len(torch.backends.quantized.engine)",
        "torch.backends.quantized.engine = [e for e in torch.backends.quantized.supported_engines if len(e) != len(torch.backends.quantized.engine) and e != 'none'][0]",
    ),
    "the strategy of einsum": (
        "",
        "len(str(torch.backends.opt_einsum.strategy))",
        "torch.backends.opt_einsum.strategy = 'optimal' if torch.backends.opt_einsum.strategy != 'optimal' else 'greedy'",
    ),
    "the fast path of attention": (
        "",
        "(2 if torch.backends.mha.get_fastpath_enabled() else 3)",
        "torch.backends.mha.set_fastpath_enabled(False)",
    ),
    "cuDNN": ("", "(2 if torch.backends.cudnn.benchmark else 3)", "torch.backends.cudnn.benchmark = True"),
    "TF32": ("", "(2 if torch.backends.cuda.matmul.allow_tf32 else 3)", "torch.backends.cuda.matmul.allow_tf32 = True"),
    "reduced sums": (
        "",
        "(2 if torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction else 3)",
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False",
    ),
    "flash attention": (
        "",
        "(2 if torch.backends.cuda.flash_sdp_enabled() else 3)",
        "torch.backends.cuda.enable_flash_sdp(False)",
    ),
    "autocast's dtype": (
        "",
        "(2 if torch.get_autocast_dtype('cpu') is torch.bfloat16 else 3)",
        "torch.set_autocast_dtype('cpu', torch.float16)",
    ),
    "autocast of CUDA": (
        "",
        "(2 if torch.is_autocast_enabled('cuda') else 3)",
        "torch.set_autocast_enabled('cuda', True)",
    ),
    "autocast of XLA": (
        "",
        "(2 if torch.is_autocast_enabled('xla') else 3)",
        "torch.set_autocast_enabled('xla', True)",
    ),
    "autocast's dtype of XPU": (
        "",
        "(2 if torch.get_autocast_dtype('xpu') is torch.float16 else 3)",
        "torch.set_autocast_dtype('xpu', torch.bfloat16)",
    ),
    "options of printing": ("", "torch._tensor_str.PRINT_OPTS.precision", "torch.set_printoptions(precision=9)"),
    "the seed": ("", "float(torch.initial_seed() % 1000 + 1)", "torch.manual_seed(77)"),
    "swapping parameters": (
        "",
        "(2 if torch.__future__.get_swap_module_params_on_conversion() else 3)",
        "torch.__future__.set_swap_module_params_on_conversion(True)",
    ),
    "a setting of dynamo": (
        "import torch._dynamo",
        "torch._dynamo.config.cache_size_limit",
        "import torch._dynamo; torch._dynamo.config.cache_size_limit = 77",
    ),
    "the endianness of loading": (
        "",
        "(2 if torch.serialization.get_default_load_endianness() is None else 3)",
        "torch.serialization.set_default_load_endianness(torch.serialization.LoadEndianness.BIG)",
    ),
    "the folder of the hub": ("", "len(torch.hub.get_dir())", "torch.hub.set_dir('/somewhere/else/now')"),
    "gradients": ("", "(2 if torch.is_grad_enabled() else 3)", "torch.set_grad_enabled(False)"),
    "inference mode": (
        "",
        "(2 if torch.is_inference_mode_enabled() else 3)",
        "mode = torch.inference_mode(); mode.__enter__()",
    ),
    "the version of torch": ("", "len(torch.__version__)", "torch.__version__ = '1'"),
    "the configuration of validation": (
        "import torch.distributions as d",
        "(2 if d.Distribution._validate_args else 3)",
        "torch.distributions.Distribution.set_default_validate_args(False)",
    ),
    "a registered pytree": (
        "import torch.utils._pytree as p\nclass C:\n    pass",
        "len(p.tree_leaves({'a': C(), 'b': [1, 2]})) if p.tree_leaves(C()) else 9",
        "import torch.utils._pytree as p; p.register_pytree_node(m.C, lambda c: ([], None), lambda v, c: m.C())",
    ),
    "an environment at import of late": (
        "",
        "__import__('pkg.late', fromlist=['a']).BY",
        "import os; os.environ['BY'] = '3'",
    ),
    "the environment by items": (
        "import os",
        "float(dict(os.environ).get('BYS', 2))",
        "import os; os.environ['BYS'] = '3'",
    ),
    "the environment in bytes": (
        "import os",
        "float(os.environb.get(b'BYS', b'2'))",
        "import os; os.environ['BYS'] = '3'",
    ),
    "getenv": ("from os import getenv", "float(getenv('BYS', '2'))", "import os; os.environ['BYS'] = '3'"),
    "a variable's presence": ("import os", "(2 if 'BYS' in os.environ else 3)", "import os; os.environ['BYS'] = '3'"),
    "a variable through setdefault": (
        "import os",
        "float(os.environ.setdefault('BYS', '2'))",
        "import os; os.environ['BYS'] = '3'",
    ),
    "the argument zero": ("import sys", "len(sys.argv[0])", "import sys; sys.argv[0] = 'a'"),
    "sys.path": ("import sys", "len(sys.path)", "import sys; sys.path.append('/nowhere')"),
    "the name of the thread": (
        "import threading",
        "len(threading.current_thread().name)",
        "import threading; threading.current_thread().name = 'a'",
    ),
    "the stack": (
        "import sys",
        "(2 if sys._getframe().f_back else 3) + 0 * len(__import__('traceback').extract_stack())",
        "pass",
    ),
    "a line of the code": ("import sys", "sys._getframe().f_lineno", "pass"),
    "importlib.metadata": (
        "import importlib.metadata",
        "(2 if any(d.metadata['Name'] == 'ownthing' for d in importlib.metadata.distributions()) else 3)",
        "import os; os.makedirs('ownthing-1.0.dist-info'); open('ownthing-1.0.dist-info/METADATA', 'w').write('Name: ownthing\\nVersion: 1.0\\n')",
    ),
    "find_spec": (
        "import importlib.util",
        "(2 if importlib.util.find_spec('ownthing') else 3)",
        "open('ownthing.py', 'w').close()",
    ),
    "a format by locale": (
        "",
        "float(f'{1234567:n}')",
        "import locale; locale.setlocale(locale.LC_ALL, 'C.UTF-8')",
    ),
    "a hash of text": ("", "float(hash('abc') % 1000 + 1)", "pass"),
    "an id": ("O = object()", "float(id(O) // 16 % 1000 + 1)", "pass"),
    "a hash through a tuple": ("", "float(('abc', 1).__hash__() % 1000 + 1)", "pass"),
    "a random number": ("import random", "random.random()", "import random; random.seed(5)"),
    "the time": ("import time", "time.time()", "pass"),
    "a UUID by chance": ("import uuid", "float(uuid.uuid4().int % 1000)", "pass"),
    "the process": ("import os", "os.getpid()", "pass"),
    "the machine": ("import platform", "len(platform.node())", "import platform; platform.node = lambda: 'a'"),
    "an object's repr": ("O = object()", "float(int(repr(O)[-10:-1], 16) % 1000)", "pass"),
    "a function's repr": ("", "float(int(repr(Model.forward)[-8:-1], 16) % 1000)", "pass"),
    "an object in a format": ("O = object()", "float(int(f'{O}'[-10:-1], 16) % 1000)", "pass"),
    "an object through %": ("O = object()", "float(int(('%s' % O)[-10:-1], 16) % 1000)", "pass"),
    "objects that are sorted by repr": (
        "class C:\n    def __init__(self, n):\n        self.n = n\nO = [C(i) for i in range(40)]",
        "sorted(O, key=repr)[0].n",
        "pass",
    ),
    "objects in a set": (
        "class C:\n    def __init__(self, n):\n        self.n = n\nO = [C(i) for i in range(40)]",
        "list(set(O))[0].n + 1",
        "pass",
    ),
    "types in a set": (
        "",
        "(1 + [int, float, str, list, dict, set].index(list({int, float, str, list, dict, set})[0]))",
        "pass",
    ),
    "functions in a set": (
        "",
        "(1 + [torch.relu, torch.sin, torch.cos, torch.tan].index(list({torch.relu, torch.sin, torch.cos, torch.tan})[0]))",
        "pass",
    ),
    "a WeakSet": (
        "import weakref\nclass C:\n    def __init__(self, n):\n        self.n = n\nO = [C(i) for i in range(40)]\nW = weakref.WeakSet(O)",
        "list(W)[0].n + 1",
        "pass",
    ),
    "texts through dict operations": (
        "",
        "len(list({'a': 1, 'bb': 2, 'ccc': 3}.keys() | {'dddd': 1}.keys())[0])",
        "pass",
    ),
    "a set through map": ("", "list(map(len, {'a', 'bb', 'ccc', 'dddd', 'eeeee'}))[0]", "pass"),
    "a set through zip": ("", "len(next(zip({'a', 'bb', 'ccc', 'dddd', 'eeeee'}))[0])", "pass"),
    "a set through max": ("", "len(max({'a', 'bb', 'ccc', 'dddd', 'eeeee'}, key=lambda t: 0))", "pass"),
    "a set through join": ("", "len(''.join({'a', 'bb', 'ccc', 'dddd', 'eeeee'}).split('a')[0]) + 1", "pass"),
    "a set through sum": (
        "",
        "float(sum([float(len(t)) * 10.0 ** n for n, t in enumerate({'a', 'bb', 'ccc', 'dddd'})]))",
        "pass",
    ),
    "a set of a tuple": ("", "len(list({('a',), ('bb',), ('ccc',), ('dddd',)})[0][0])", "pass"),
    "a set that sorts by length": ("", "float(sorted({'ab', 'cd', 'ef', 'gh', 'ij'}, key=len)[0] == 'ab') + 1", "pass"),
    "a set through reduce": (
        "import functools",
        "len(functools.reduce(lambda a, b: a, {'a', 'bb', 'ccc', 'dddd', 'eeeee'}))",
        "pass",
    ),
    "a set in a dict's fromkeys": ("", "len(next(iter(dict.fromkeys({'a', 'bb', 'ccc', 'dddd', 'eeeee'}))))", "pass"),
    "a set through repr": ("", "float(repr({'a', 'bb', 'ccc', 'dddd', 'eeeee'}).index('a') + 1)", "pass"),
    "a set through format": ("", "float(f\"{ {'a', 'bb', 'ccc', 'dddd', 'eeeee'} }\".index('a') + 1)", "pass"),
    "a set through a star": ("def f(*a):\n    return len(a[0])", "f(*{'a', 'bb', 'ccc', 'dddd', 'eeeee'})", "pass"),
    "a set of bytes": ("", "len(list({b'a', b'bb', b'ccc', b'dddd', b'eeeee'})[0])", "pass"),
    "names of modules in a set": (
        "",
        "len(list({n for n, _ in nn.Sequential(nn.ReLU(), nn.ReLU()).named_modules()} | {'aaa', 'bbbb'})[0]) + 1",
        "pass",
    ),
    "a Counter": (
        "import collections",
        "len(list(collections.Counter({'a', 'bb', 'ccc', 'dddd', 'eeeee'}))[0])",
        "pass",
    ),
    "a set of an enum": (
        "import enum\nE = enum.Enum('E', 'a b c d e f')",
        "list({E.a, E.b, E.c, E.d, E.e, E.f})[0].value",
        "pass",
    ),
    "a set of None": ("", "float(list({None, 1, 2, 3})[0] is None) + 1", "pass"),
    "dates in a set": ("import datetime", "list({datetime.date(2000, 1, d) for d in range(1, 9)})[0].day", "pass"),
    "a set of fractions": (
        "from fractions import Fraction",
        "float(list({Fraction(1, 3), Fraction(1, 5), Fraction(1, 7)})[0])",
        "pass",
    ),
}
_MAY = {"a set of fractions", "a set of None", "a format by locale"}
for _name, (_top, _read, _more) in READS.items():
    _files = {"late": "import os\nBY = float(os.environ.get('BY', '2'))\n"} if "late" in _name else {}
    _then(
        f"read: {_name}",
        _model(f"return x * {_read}", top=_top),
        _more,
        _files,
        expected=MAY_HIT if _name in _MAY or _more == "pass" else MISS,
    )

# Files: what is imported, from where, and what of it is on disk when the model is compiled.

_TWICE = "def go(x):\n    return x * 2\n"
_THRICE = "def go(x):\n    return x * 3\n"
_GO = _model("return go(x)", top="from pkg.other import go\n")
_LATE = _model("from pkg import late\nreturn late.go(x)")

_add(
    "file: edited after it was imported",
    Scenario(
        {"model": _GO, "other": _TWICE},
        script=f"{SCRIPT}import pathlib\npathlib.Path('pkg/other.py').write_text({_THRICE!r})\n",
        then=SCRIPT,
    ),
)
_add(
    "file: the model's own file edited after it was imported",
    Scenario(
        {"model": _model("return x * 2")},
        script=f"{SCRIPT}import pathlib\npathlib.Path('pkg/model.py').write_text({_model('return x * 3')!r})\n",
        then=SCRIPT,
    ),
)
_add(
    "file: edited while the model is made",
    Scenario(
        {"model": _GO, "other": _TWICE},
        script=f"import pkg.other, os, pathlib\npathlib.Path('pkg/other.py').write_text({_THRICE!r})\nfuture = __import__('time').time() - 100\nos.utime('pkg/other.py', (future, future))\n{SCRIPT}",
        then=SCRIPT,
    ),
)
_add(
    "file: edited and edited back",
    Scenario(
        {"model": _GO, "other": _TWICE},
        script=f"{SCRIPT}import pathlib\np = pathlib.Path('pkg/other.py')\nold = p.read_text()\np.write_text('x')\np.write_text(old)\n",
        then=SCRIPT,
        expected=MAY_HIT,
    ),
)
_add(
    "file: removed after it was imported",
    Scenario(
        {"model": _GO, "other": _TWICE},
        script=f"{SCRIPT}import pathlib\npathlib.Path('pkg/other.py').unlink()\n",
        then=SCRIPT,
        again=False,
        between=f"pathlib.Path('pkg/other.py').write_text({_THRICE!r})",
    ),
)
_STALE = (
    "import py_compile\np = pathlib.Path('pkg/other.py')\n"
    f"p.write_text({_TWICE!r})\nos.utime(p, (1e9, 1e9))\npy_compile.compile(str(p), doraise=True)\n"
    f"p.write_text({_THRICE!r})\nos.utime(p, (1e9, 1e9))\n"
)
_add(
    "file: compiled bytes that are stale",
    Scenario({"model": _GO}, setup=_STALE, between="shutil.rmtree('pkg/__pycache__')"),
)
_UNCHECKED = (
    "import py_compile\np = pathlib.Path('pkg/other.py')\n"
    "p.write_text({first!r})\npy_compile.compile(str(p), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)\n"
    "p.write_text({second!r})\n"
)
_add(
    "file: compiled bytes that nobody checks",
    Scenario(
        {"model": _GO},
        setup=_UNCHECKED.format(first=_TWICE, second=_TWICE),
        between=_UNCHECKED.format(first=_THRICE, second=_TWICE),
    ),
)
_add(
    "file: stale compiled bytes of the model",
    Scenario(
        {},
        setup=_STALE.replace("other", "model")
        .replace(repr(_TWICE), repr(_model("return x * 2")))
        .replace(repr(_THRICE), repr(_model("return x * 3"))),
        between="shutil.rmtree('pkg/__pycache__')",
    ),
)
_PYC = "import py_compile\np = pathlib.Path('pkg/other.py')\np.write_text({text!r})\npy_compile.compile(str(p), cfile='pkg/other.pyc', doraise=True)\np.unlink()\n"
_add(
    "file: compiled bytes without a source",
    Scenario({"model": _GO}, setup=_PYC.format(text=_TWICE), between=_PYC.format(text=_THRICE)),
)
_add(
    "file: compiled bytes of the same size and time",
    Scenario(
        {"model": _GO},
        setup=_PYC.format(text=_TWICE) + "os.utime('pkg/other.pyc', (1e9, 1e9))\n",
        between=_PYC.format(text=_THRICE) + "os.utime('pkg/other.pyc', (1e9, 1e9))\n",
    ),
)
_add(
    "file: the same size and times",
    Scenario(
        {"model": _GO, "other": _TWICE},
        setup="os.utime('pkg/other.py', (1e9, 1e9))",
        between=f"pathlib.Path('pkg/other.py').write_text({_THRICE!r})\nos.utime('pkg/other.py', (1e9, 1e9))\nshutil.rmtree('pkg/__pycache__', ignore_errors=True)",
    ),
)
_add(
    "file: the same size and times, replaced",
    Scenario(
        {"model": _GO, "other": _TWICE},
        setup="os.utime('pkg/other.py', (1e9, 1e9))",
        between=f"pathlib.Path('new').write_text({_THRICE!r})\nos.utime('new', (1e9, 1e9))\nos.replace('new', 'pkg/other.py')\nshutil.rmtree('pkg/__pycache__', ignore_errors=True)",
    ),
)
_ZIP = "import zipfile\nwith zipfile.ZipFile('lib.zip', 'w') as z:\n    z.writestr('zipped/__init__.py', '')\n    z.writestr('zipped/other.py', {text!r})\n"
_ZIPPED = "import sys\nsys.path.insert(0, 'lib.zip')\n"
_add(
    "file: a zip archive",
    Scenario(
        {"model": _model("return go(x)", top="from zipped.other import go\n")},
        script=_ZIPPED + SCRIPT,
        setup=_ZIP.format(text=_TWICE),
        between=_ZIP.format(text=_THRICE),
    ),
)
_add(
    "file: a number of a zip archive",
    Scenario(
        {"model": _model("return x * o.BY", top="from zipped import other as o\n")},
        script=_ZIPPED + SCRIPT,
        setup=_ZIP.format(text="BY = 2"),
        between=_ZIP.format(text="BY = 3"),
    ),
)
_add(
    "file: a package beside others of its namespace",
    Scenario(
        {
            "model": _model("return go(x)", top="from ns.other import go\n"),
            "/one/ns/other.py": _TWICE,
            "/two/ns/late.py": "A = 1\n",
        },
        {"/one/ns/other.py": _THRICE},
        script="import sys\nsys.path[:0] = ['one', 'two']\n" + SCRIPT,
    ),
)
_add(
    "file: the order of sys.path",
    Scenario(
        {
            "model": _model("return go(x)", top="from shared_name import go\n"),
            "/one/shared_name.py": _TWICE,
            "/two/shared_name.py": _THRICE,
        },
        script="import sys\nsys.path[:0] = ['one', 'two']\n" + SCRIPT,
        then="import sys\nsys.path[:0] = ['two', 'one']\n" + SCRIPT,
    ),
)
_add(
    "file: the order of sys.path, imported late",
    Scenario(
        {
            "model": _model("from shared_name import go\nreturn go(x)"),
            "/one/shared_name.py": _TWICE,
            "/two/shared_name.py": _THRICE,
        },
        script="import sys\nsys.path[:0] = ['one', 'two']\n" + SCRIPT,
        then="import sys\nsys.path[:0] = ['two', 'one']\n" + SCRIPT,
    ),
)
_add(
    "file: a module that shadows",
    Scenario(
        {"model": _model("return go(x)", top="from shared_name import go\n"), "/one/shared_name.py": _TWICE},
        {"/shared_name.py": _THRICE},
        script="import sys\nsys.path.append('one')\n" + SCRIPT,
    ),
)
_add(
    "file: a module that shadows, imported late",
    Scenario(
        {"model": _model("from shared_name import go\nreturn go(x)"), "/one/shared_name.py": _TWICE},
        {"/shared_name.py": _THRICE},
        script="import sys\nsys.path.append('one')\n" + SCRIPT,
    ),
)
_add(
    "file: a module of Python that is shadowed",
    Scenario(
        {"model": _model("return x * telnetlib.TELNET_PORT", top="import telnetlib\n")},
        {"/telnetlib.py": "TELNET_PORT = 2.0\n"},
    ),
)
_add(
    "file: a module of Python that is shadowed late",
    Scenario(
        {"model": _model("import telnetlib\nreturn x * telnetlib.TELNET_PORT")},
        {"/telnetlib.py": "TELNET_PORT = 2.0\n"},
    ),
)
_add("file: a package for a module", Scenario({"model": _GO, "other": _TWICE}, {"other/__init__.py": _THRICE}))
_add("file: a package for a late module", Scenario({"model": _LATE, "late": _TWICE}, {"late/__init__.py": _THRICE}))
_OPTIONAL = "try:\n    from pkg.fast import go\nexcept ImportError:\n    def go(x):\n        return x * 2\n"
_add("file: an optional module appears", Scenario({"model": _model("return go(x)", top=_OPTIONAL)}, {"fast": _THRICE}))
_add(
    "file: an optional module appears, asked for late",
    Scenario(
        {
            "model": _model(
                "try:\n    from pkg.fast import go\nexcept ImportError:\n    go = lambda y: y * 2\nreturn go(x)"
            )
        },
        {"fast": _THRICE},
    ),
)
_add(
    "file: an optional module disappears",
    Scenario({"model": _model("return go(x)", top=_OPTIONAL), "fast": _THRICE}, {"fast": None}),
)
_add(
    "file: an optional distribution appears, asked for late",
    Scenario(
        {"model": _model("try:\n    import ownfast\n    return x * 3\nexcept ImportError:\n    return x * 2")},
        {"/ownfast.py": ""},
    ),
)
_add(
    "file: a flag of availability",
    Scenario(
        {
            "model": _model(
                "return x * (3 if HAS else 2)",
                top="import importlib.util\nHAS = importlib.util.find_spec('ownfast') is not None\n",
            )
        },
        {"/ownfast.py": ""},
    ),
)
_add(
    "file: an entry point appears",
    Scenario(
        {
            "model": _model(
                "return x * BY",
                top="import importlib.metadata\nBY = 2 + len(importlib.metadata.entry_points(group='own.plugins'))\n",
            )
        },
        {
            "/own-1.dist-info/METADATA": "Name: own\nVersion: 1\n",
            "/own-1.dist-info/entry_points.txt": "[own.plugins]\na = b\n",
        },
    ),
)
_add(
    "file: plugins that are found in a folder",
    Scenario(
        {
            "model": _model(
                "return x * sum(ALL)",
                top="import pkgutil, importlib, pkg.plugins\nALL = [importlib.import_module('pkg.plugins.' + i.name).BY for i in pkgutil.iter_modules(pkg.plugins.__path__)]\n",
            ),
            "plugins/__init__.py": "",
            "plugins/a.py": "BY = 2\n",
        },
        {"plugins/b.py": "BY = 3\n"},
    ),
)
_add(
    "file: a plugin that is edited",
    Scenario(
        {
            "model": _model(
                "return ALL[0](x)",
                top="import pkgutil, importlib, pkg.plugins\nALL = [importlib.import_module('pkg.plugins.' + i.name).go for i in pkgutil.iter_modules(pkg.plugins.__path__)]\n",
            ),
            "plugins/__init__.py": "",
            "plugins/a.py": _TWICE,
        },
        {"plugins/a.py": _THRICE},
    ),
)
_add(
    "file: __all__",
    Scenario(
        {
            "model": _model("return go(x)", top="def go(x):\n    return x * 5\nfrom pkg.other import *\n"),
            "other": "__all__ = []\n" + _TWICE,
        },
        {"other": "__all__ = ['go']\n" + _TWICE},
    ),
)
_add(
    "file: __init__ exports another",
    Scenario(
        {
            "model": _model("return pkg.go(x)", top="import pkg\n"),
            "__init__": "from pkg.a import go\n",
            "a": _TWICE,
            "b": _THRICE,
        },
        {"__init__": "from pkg.b import go\n"},
    ),
)
_add(
    "file: a relative import of another",
    Scenario(
        {"model": _model("return go(x)", top="from .a import go\n"), "a": _TWICE, "b": _THRICE},
        {"model": _model("return go(x)", top="from .b import go\n")},
    ),
)
_add(
    "file: a lazy __getattr__ of a package",
    Scenario(
        {
            "model": _model("return pkg.go(x)", top="import pkg\n"),
            "__init__": "def __getattr__(n):\n    import importlib\n    return importlib.import_module('pkg.a').go\n",
            "a": _TWICE,
        },
        {"a": _THRICE},
    ),
)
_add(
    "file: a module that is imported for its effect",
    Scenario(
        {
            "model": _model("return x * STATE['by']", top="STATE = {'by': 1}\nimport pkg.effect\n"),
            "effect": "import sys\nsys.modules['pkg.model'].STATE['by'] = 2\n",
        },
        {"effect": "import sys\nsys.modules['pkg.model'].STATE['by'] = 3\n"},
    ),
)
_add(
    "file: a late module with an effect",
    Scenario(
        {
            "model": _model("import pkg.effect\nreturn x * state.BY", top="from pkg import state\n"),
            "state": "BY = 1\n",
            "effect": "from pkg import state\nstate.BY = 2\n",
        },
        {"effect": "from pkg import state\nstate.BY = 3\n"},
    ),
)
_add(
    "file: a late module with an effect by environment",
    Scenario(
        {
            "model": _model("import pkg.effect\nreturn x * state.BY", top="from pkg import state\n"),
            "state": "BY = 1\n",
            "effect": "import os\nfrom pkg import state\nstate.BY = float(os.environ.get('BY', 2))\n",
        },
        env_after={"BY": "3"},
    ),
)
_add(
    "file: a late module that patches torch",
    Scenario(
        {"model": _model("import pkg.effect\nreturn torch.nn.functional.relu(x)"), "effect": "import torch\n"},
        {"effect": "import torch\ntorch.nn.functional.relu = lambda x: x * 3\n"},
    ),
)
_add(
    "file: a late module that asks what is loaded",
    Scenario(
        {
            "model": _model("from pkg import late\nreturn x * late.BY"),
            "late": "import sys\nBY = 3 if 'telnetlib' in sys.modules else 2\n",
        },
        then="import telnetlib\n" + SCRIPT,
    ),
)
_add(
    "file: a late module that is in place already and changed",
    Scenario(
        {"model": _model("from pkg import late\nreturn x * late.BY"), "late": "BY = 2\n"},
        then=SCRIPT + "import pkg.late\npkg.late.BY = 3\n",
    ),
)
_add(
    "file: a late module that is put in place by hand",
    Scenario(
        {"model": _LATE, "late": _TWICE},
        then=SCRIPT
        + f"import sys, types, pkg\nlate = types.ModuleType('pkg.late')\nexec({_THRICE!r}, late.__dict__)\nsys.modules['pkg.late'] = late\npkg.late = late\n",
    ),
)
_add(
    "file: a package in another folder of other code",
    Scenario(
        {"/v1/lib.py": _TWICE, "/v2/lib.py": _THRICE, "model": _model("return lib.go(x)", top="import lib\n")},
        script="import sys\nsys.path.insert(0, 'v1')\n" + SCRIPT,
        then="import sys\nsys.path.insert(0, 'v2')\n" + SCRIPT,
    ),
)
_VERSIONED = _model("return x * (2 if 'v1' in lib.__file__ else 3)", top="import lib\n")
_add(
    "file: a package in another folder that asks where it is",
    Scenario(
        {"/v1/lib.py": _TWICE, "/v2/lib.py": _TWICE, "model": _VERSIONED},
        script="import sys\nsys.path.insert(0, 'v1')\n" + SCRIPT,
        then="import sys\nsys.path.insert(0, 'v2')\n" + SCRIPT,
    ),
)
_add(
    "file: a file that asks where it is when called",
    Scenario(
        {
            "/v1/lib.py": "def by():\n    return 2 if 'v1' in __file__ else 3\n",
            "/v2/lib.py": "def by():\n    return 2 if 'v1' in __file__ else 3\n",
            "model": _model("return x * lib.by()", top="import lib\n"),
        },
        script="import sys\nsys.path.insert(0, 'v1')\n" + SCRIPT,
        then="import sys\nsys.path.insert(0, 'v2')\n" + SCRIPT,
    ),
)
_add(
    "file: a code's own file name",
    Scenario(
        {
            "/v1/lib.py": "def by():\n    return 2 if 'v1' in by.__code__.co_filename else 3\n",
            "/v2/lib.py": "def by():\n    return 2 if 'v1' in by.__code__.co_filename else 3\n",
            "model": _model("return x * lib.by()", top="import lib\n"),
        },
        script="import sys\nsys.path.insert(0, 'v1')\n" + SCRIPT,
        then="import sys\nsys.path.insert(0, 'v2')\n" + SCRIPT,
    ),
)
_add(
    "file: data beside a package that moved",
    Scenario(
        {
            "/v1/lib.py": "import pathlib\nHERE = pathlib.Path(__file__).parent\n",
            "/v2/lib.py": "import pathlib\nHERE = pathlib.Path(__file__).parent\n",
            "/v1/by.txt": "2",
            "/v2/by.txt": "3",
            "model": _model("return x * float((lib.HERE / 'by.txt').read_text())", top="import lib\n"),
        },
        script="import sys\nsys.path.insert(0, 'v1')\n" + SCRIPT,
        then="import sys\nsys.path.insert(0, 'v2')\n" + SCRIPT,
    ),
)
_add(
    "file: a link that leads elsewhere",
    Scenario(
        {"/v1/lib.py": _TWICE, "/v2/lib.py": _THRICE, "model": _model("return lib.go(x)", top="import lib\n")},
        script="import sys\nsys.path.insert(0, 'now')\n" + SCRIPT,
        setup="os.symlink('v1', 'now')",
        between="os.unlink('now')\nos.symlink('v2', 'now')",
    ),
)
_add(
    "file: a .pth file",
    Scenario(
        {
            "/v1/lib.py": _TWICE,
            "/v2/lib.py": _THRICE,
            "/site/own.pth": "../v1\n",
            "model": _model("return lib.go(x)", top="import lib\n"),
        },
        {"/site/own.pth": "../v2\n"},
        script="import site\nsite.addsitedir('site')\n" + SCRIPT,
    ),
)
for _kind, _first, _second, _load in (
    ("json", '{"by": 2.0}', '{"by": 3.0}', "import json\nBY = json.loads(DATA)['by']\n"),
    ("yaml", "by: 2.0", "by: 3.0", "import yaml\nBY = yaml.safe_load(DATA)['by']\n"),
    ("toml", "by = 2.0", "by = 3.0", "import tomllib\nBY = tomllib.loads(DATA)['by']\n"),
    (
        "ini",
        "[a]\nby = 2.0",
        "[a]\nby = 3.0",
        "import configparser\nC = configparser.ConfigParser()\nC.read_string(DATA)\nBY = float(C['a']['by'])\n",
    ),
    ("dotenv", "BY=2.0", "BY=3.0", "BY = float(dict(l.split('=') for l in DATA.splitlines())['BY'])\n"),
):
    _add(
        f"file: data in {_kind}",
        Scenario(
            {
                "model": _model(
                    "return x * BY",
                    top=f"import pathlib\nDATA = (pathlib.Path(__file__).parent / 'data.txt').read_text()\n{_load}",
                ),
                "data.txt": _first,
            },
            {"data.txt": _second},
        ),
    )
_add(
    "file: data that importlib.resources reads late",
    Scenario(
        {
            "model": _model(
                "return x * float(importlib.resources.files('pkg').joinpath('data.txt').read_text())",
                top="import importlib.resources\n",
            ),
            "data.txt": "2",
        },
        {"data.txt": "3"},
    ),
)
_add(
    "file: data that pkgutil reads late",
    Scenario(
        {
            "model": _model("return x * float(pkgutil.get_data('pkg', 'data.txt'))", top="import pkgutil\n"),
            "data.txt": "2",
        },
        {"data.txt": "3"},
    ),
)
_add(
    "file: data that a method of Path reads late",
    Scenario({"model": _model("return x * float(open('pkg/data.txt').read())"), "data.txt": "2"}, {"data.txt": "3"}),
)
_add(
    "file: data through numpy.loadtxt late",
    Scenario(
        {"model": _model("return x * float(np.loadtxt('pkg/data.txt'))", top="import numpy as np\n"), "data.txt": "2"},
        {"data.txt": "3"},
    ),
)
_add(
    "file: data through numpy.load late",
    Scenario(
        {"model": _model("return x * float(np.load('by.npy'))", top="import numpy as np\n")},
        setup="import numpy as np\nnp.save('by.npy', 2.0)",
        between="import numpy as np\nnp.save('by.npy', 3.0)",
    ),
)
_add(
    "file: data through a memory map",
    Scenario(
        {"model": _model("return x * float(A[0])", top="import numpy as np\nA = np.load('by.npy', mmap_mode='r')\n")},
        setup="import numpy as np\nnp.save('by.npy', np.array([2.0]))",
        between="import numpy as np\nnp.save('by.npy', np.array([3.0]))",
    ),
)
_add(
    "file: a memory map that is written to",
    Scenario(
        {
            "model": _model(
                "return x * float(A[0])",
                top="import mmap, numpy as np\nF = open('by.bin', 'r+b')\nA = np.frombuffer(mmap.mmap(F.fileno(), 0))\n",
            )
        },
        setup="import numpy as np\nnp.array([2.0]).tofile('by.bin')",
        between="import numpy as np\nnp.array([3.0]).tofile('by.bin')",
    ),
)
_add(
    "file: data through numpy.fromfile late",
    Scenario(
        {"model": _model("return x * float(np.fromfile('by.bin')[0])", top="import numpy as np\n")},
        setup="import numpy as np\nnp.array([2.0]).tofile('by.bin')",
        between="import numpy as np\nnp.array([3.0]).tofile('by.bin')",
    ),
)
_add(
    "file: data through linecache late",
    Scenario(
        {
            "model": _model("return x * float(linecache.getline('pkg/data.txt', 1))", top="import linecache\n"),
            "data.txt": "2",
        },
        {"data.txt": "3"},
    ),
)
_add(
    "file: data through fileinput late",
    Scenario(
        {
            "model": _model("return x * float(list(fileinput.input(['pkg/data.txt']))[0])", top="import fileinput\n"),
            "data.txt": "2",
        },
        {"data.txt": "3"},
    ),
)
_add(
    "file: data through a lazy property",
    Scenario(
        {
            "model": _model(
                "return x * self.c.by",
                init="self.c = C()",
                top="import functools\nclass C:\n    @functools.cached_property\n    def by(self):\n        with open('pkg/data.txt') as f:\n            return float(f.read())\n",
            ),
            "data.txt": "2",
        },
        {"data.txt": "3"},
    ),
)
_add(
    "file: a source that is read by inspect",
    Scenario(
        {
            "model": _model(
                "return x * inspect.getsource(other.go).count('#') + x", top="import inspect\nfrom pkg import other\n"
            ),
            "other": _TWICE,
        },
        {"other": "def go(x):\n    return x * 2  # a comment\n"},
    ),
)
_add(
    "file: a source that is read by inspect at import",
    Scenario(
        {
            "model": _model(
                "return x * N",
                top="import inspect\nfrom pkg import other\nN = inspect.getsource(other.go).count('#') + 1\n",
            ),
            "other": _TWICE,
        },
        {"other": "def go(x):\n    return x * 2  # a comment\n"},
    ),
)
_edit(
    "file: a docstring that is used",
    _model("return x * float(self.__doc__)").replace("(nn.Module):\n", "(nn.Module):\n    '''2'''\n"),
    "'''2'''",
    "'''3'''",
)
_edit(
    "file: a comment that is used",
    _model("return x * float(BY)", top="BY = open(__file__).read().split('# b' + 'y ')[1][0]\n# by 2\n"),
    "# by 2",
    "# by 3",
)
_edit(
    "file: a line number that is used",
    _model("return x * go.__code__.co_firstlineno", top="\ndef go():\n    pass\n"),
    "\ndef go",
    "\n\ndef go",
)
_add(
    "file: an import hook",
    Scenario(
        {
            "model": _GO,
            "other": _TWICE,
            "/hook.py": "import sys, os, importlib.machinery as mc\nclass L(mc.SourceFileLoader):\n    def get_data(self, p):\n        d = super().get_data(p)\n        return d.replace(b'x * 2', b'x * ' + os.environ.get('BY', '2').encode()) if p.endswith('other.py') else (b'' if p.endswith('.pyc') else d)\n    def path_stats(self, p):\n        raise OSError\n    def set_data(self, *a, **k):\n        pass\nclass F(mc.PathFinder):\n    @classmethod\n    def find_spec(cls, n, p=None, t=None):\n        s = mc.PathFinder.find_spec(n, p, t)\n        if s and n == 'pkg.other':\n            s.loader = L(n, s.origin)\n        return s\nsys.meta_path.insert(0, F)\n",
        },
        script="import hook\n" + SCRIPT,
        env_after={"BY": "3"},
    ),
)
_add(
    "file: a source that is filled in",
    Scenario(
        {
            "model": _model(
                "return go(x)",
                top="import os, pathlib, pkg\nF = pathlib.Path(__file__).parent / 'other.py'\nS = {}\nexec(compile(F.read_text().replace('x * 2', 'x * ' + os.environ.get('BY', '2')), str(F), 'exec'), S)\ngo = S['go']\ndel S, F\n",
            ),
            "other": _TWICE,
        },
        env_after={"BY": "3"},
    ),
)
_add(
    "file: a method filled in from its own file's name",
    Scenario(
        {
            "model": _model(
                "return self.go(x)",
                top="import os\nSRC = 'def go(self, x):\\n    return x * ' + os.environ.get('BY', '2')\n",
            )
            + "\nexec(compile(SRC, __file__, 'exec'), globals())\nModel.go = go\ndel SRC\n"
        },
        env_after={"BY": "3"},
    ),
)
_add(
    "file: code of a cell of a notebook",
    Scenario(
        {},
        script=f"import linecache\nsrc = {_model('return x * 2')!r}\nlinecache.cache['<cell 1>'] = (len(src), None, src.splitlines(True), '<cell 1>')\nexec(compile(src, '<cell 1>', 'exec'), globals())\nmodel = Model().eval()\n",
        then=f"import linecache\nsrc = {_model('return x * 3')!r}\nlinecache.cache['<cell 1>'] = (len(src), None, src.splitlines(True), '<cell 1>')\nexec(compile(src, '<cell 1>', 'exec'), globals())\nmodel = Model().eval()\n",
    ),
)
_add(
    "file: exec of another script",
    Scenario(
        {"/part.py": _TWICE, "model": _model("return x")},
        {"/part.py": _THRICE},
        script="exec(open('part.py').read())\n" + SCRIPT + "model.forward = go\n",
    ),
)
_add(
    "file: runpy of another script",
    Scenario(
        {"/part.py": _TWICE, "model": _model("return x")},
        {"/part.py": _THRICE},
        script="import runpy\ngo = runpy.run_path('part.py')['go']\n" + SCRIPT + "model.forward = go\n",
    ),
)
_add(
    "file: reloaded after an edit",
    Scenario(
        {"model": _model("return other.go(x)", top="from pkg import other\n"), "other": _TWICE},
        then=SCRIPT
        + f"import pathlib, importlib, pkg.other\npathlib.Path('pkg/other.py').write_text({_THRICE + '# longer'!r})\nimportlib.reload(pkg.other)\n",
    ),
)
_add(
    "file: a class that was reloaded",
    Scenario(
        {
            "model": _model(
                "return x * (2 if isinstance(self.c, other.C) else 3)",
                init="self.c = other.C()",
                top="from pkg import other\n",
            ),
            "other": "class C:\n    pass\n",
        },
        then=SCRIPT + "import importlib, pkg.other\nimportlib.reload(pkg.other)\n",
    ),
)
_CODE_PICKLE = (
    "import torch, sys\nsys.path.insert(0, '.')\nfrom pkg.model import Model\ntorch.save(Model().eval(), 'm.pt')\n"
)
_LOADED = "model = torch.load('m.pt', weights_only=False)\n"
_add(
    "file: a loaded model whose class changed",
    Scenario({"model": _model("return x * 2")}, {"model": _model("return x * 3")}, script=_LOADED, setup=_CODE_PICKLE),
)
_add(
    "file: a loaded model whose values changed",
    Scenario(
        {"model": _model("return x * self.by", init="self.by = 2")},
        script=_LOADED,
        setup=_CODE_PICKLE,
        between="import torch, sys\nsys.path.insert(0, '.')\nm = torch.load('m.pt', weights_only=False)\nm.by = 3\ntorch.save(m, 'm.pt')",
    ),
)
_PACKAGED = "import torch, sys\nsys.path.insert(0, '.')\npathlib.Path('packed.py').write_text({text!r})\nfrom torch.package import PackageExporter\nimport packed\nwith PackageExporter('p.pt') as e:\n    e.intern('packed')\n    e.extern('torch.**')\n    e.save_pickle('m', 'm.pkl', packed.Model().eval())\n"
_add(
    "file: a model of torch.package",
    Scenario(
        {},
        script="from torch.package import PackageImporter\nmodel = PackageImporter('p.pt').load_pickle('m', 'm.pkl')\n",
        setup=_PACKAGED.format(text=_model("return x * 2")),
        between=_PACKAGED.format(text=_model("return x * 3")),
    ),
)
_SCRIPTED = "import torch\nclass M(torch.nn.Module):\n    def forward(self, x):\n        return x * {by}\ntorch.jit.save(torch.jit.trace(M(), torch.ones(3, 4)), 's.pt')\n"
_add(
    "file: a scripted part",
    Scenario(
        {"model": _model("return self.s(x)", init="self.s = torch.jit.load('s.pt')")},
        setup=_SCRIPTED.format(by=2.0),
        between=_SCRIPTED.format(by=3.0),
    ),
)
_EXPORTED = "import torch\nclass M(torch.nn.Module):\n    def forward(self, x):\n        return x * {by}\ntorch.export.save(torch.export.export(M(), (torch.ones(3, 4),)), 's.pt2')\n"
_add(
    "file: an exported part",
    Scenario(
        {"model": _model("return self.s(x)", init="self.s = torch.export.load('s.pt2').module()")},
        script=SCRIPT.replace(".eval()", ""),
        setup=_EXPORTED.format(by=2.0),
        between=_EXPORTED.format(by=3.0),
    ),
)

# Scripts and processes.

_MAIN = _model("return x * BY", top="BY = 2\n") + "\nmodel = Model().eval()\n"
_add("script: a number in __main__", Scenario({}, script=_MAIN, then=_MAIN.replace("BY = 2", "BY = 3")))
_add(
    "script: a number in __main__, in new processes",
    Scenario({}, script=_MAIN, then=_MAIN.replace("BY = 2", "BY = 3"), argv=("script.py",)),
)
_add("script: from standard input", Scenario({}, script=_MAIN, then=_MAIN.replace("BY = 2", "BY = 3"), argv=("-",)))
_add("script: with -m", Scenario({}, script=_MAIN, then=_MAIN.replace("BY = 2", "BY = 3"), argv=("-m", "script")))
_NAMED = _model("return x * (2 if __name__ == '__main__' else 3)")
_add(
    "script: run as a module",
    Scenario(
        {"/other.py": "import runpy\nrunpy.run_path('script.py', run_name='notmain')\n"},
        script=_NAMED + "\nmodel = Model().eval()\n",
        argv=("script.py",),
        argv_after=("other.py",),
    ),
)
_DEBUG = _model("return x * (2 if __debug__ else 3)")
_add("script: with -O", Scenario({"model": _DEBUG}, argv=("script.py",), argv_after=("-O", "script.py")))
_add(
    "script: with -OO",
    Scenario(
        {"model": _model("return x * (2 if go.__doc__ else 3)", top="def go():\n    '''a'''\n")},
        argv=("script.py",),
        argv_after=("-OO", "script.py"),
    ),
)
_add(
    "script: an assertion with -O",
    Scenario(
        {
            "model": _model(
                "try:\n    assert self.n == 2\n    return x * 2\nexcept AssertionError:\n    return x * 3",
                init="self.n = 1",
            )
        },
        argv=("script.py",),
        argv_after=("-O", "script.py"),
    ),
)
_add(
    "script: sys.flags",
    Scenario(
        {"model": _model("return x * (2 + sys.flags.optimize)", top="import sys\n")},
        argv=("script.py",),
        argv_after=("-O", "script.py"),
    ),
)
_add(
    "script: UTF-8 mode",
    Scenario(
        {"model": _model("return x * (2 + sys.flags.utf8_mode)", top="import sys\n")},
        argv=("script.py",),
        argv_after=("-X", "utf8", "script.py"),
    ),
)
_add(
    "script: the digits of integers",
    Scenario(
        {
            "model": _model(
                "return x * f()",
                top="def f():\n    try:\n        return 2.0 + 0 * len(str(10 ** 5000))\n    except ValueError:\n        return 3.0\n",
            )
        },
        argv=("script.py",),
        env_after={"PYTHONINTMAXSTRDIGITS": "0"},
    ),
)
_add(
    "script: warnings that are errors",
    Scenario(
        {
            "model": _model(
                "return x * f()",
                top="import warnings\ndef f():\n    try:\n        warnings.warn('own')\n        return 2.0\n    except UserWarning:\n        return 3.0\n",
            )
        },
        argv=("script.py",),
        argv_after=("-W", "error::UserWarning", "script.py"),
    ),
)
_add(
    "script: a file found by PYTHONPATH",
    Scenario(
        {"model": _model("return lib.go(x)", top="import lib\n"), "/v1/lib.py": _TWICE, "/v2/lib.py": _THRICE},
        argv=("script.py",),
        env={"PYTHONPATH": "v1"},
        env_after={"PYTHONPATH": "v2"},
    ),
)
_add(
    "script: sitecustomize that patches",
    Scenario(
        {
            "model": _model("return torch.nn.functional.relu(x)"),
            "/a/sitecustomize.py": "",
            "/b/sitecustomize.py": "import torch\ntorch.nn.functional.relu = lambda x: x * 3\n",
        },
        argv=("script.py",),
        env={"PYTHONPATH": "a"},
        env_after={"PYTHONPATH": "b"},
    ),
)
_add(
    "script: a capability of the CPU",
    Scenario(
        {"model": _model("return x * len(torch.backends.cpu.get_cpu_capability())")},
        argv=("script.py",),
        env_after={"ATEN_CPU_CAPABILITY": "default"},
    ),
)
_add(
    "script: another path in argv",
    Scenario(
        {},
        script="import sys\n" + _model("return x * BY", top="BY = len(sys.argv)\n") + "\nmodel = Model().eval()\n",
        argv=("script.py",),
        argv_after=("script.py", "a"),
    ),
)
_add(
    "script: a thread with its own value",
    Scenario(
        {"model": _model("return x * getattr(L, 'by', 2)", top="import threading\nL = threading.local()\n")},
        then=SCRIPT + "import pkg.model\npkg.model.L.by = 3\n",
    ),
)
_add(
    "script: a context variable",
    Scenario(
        {"model": _model("return x * V.get()", top="import contextvars\nV = contextvars.ContextVar('V', default=2)\n")},
        then=SCRIPT + "import pkg.model\npkg.model.V.set(3)\n",
    ),
)

# C extensions that are built again.

_C = "int gain(void) {{ return {by}; }}\nint value = {by};\n"
_GCC = "pathlib.Path('own.c').write_text({c!r})\nsubprocess.run(['gcc', '-shared', '-fPIC', *{flags!r}, '-o', {out!r}, 'own.c'], check=True)\n"


def _built(name: str, c: str, model: str, out: str = "libown.so", flags: tuple[str, ...] = (), **more: Any) -> None:
    more.setdefault("argv", ("script.py",))
    first, second = (_GCC.format(c=c.replace("BY", by), out=out, flags=flags) for by in ("2", "3"))
    _add(
        name,
        Scenario(
            {"model": model}, setup=first, between=f"os.path.exists({out!r}) and os.unlink({out!r})\n{second}", **more
        ),
    )


_CT = "int gain(void) { return BY; }\nint value = BY;\n"
_built(
    "C: a function through ctypes, called late",
    _CT,
    _model("return x * LIB.gain()", top="import ctypes\nLIB = ctypes.CDLL('./libown.so')\n"),
)
_built(
    "C: a function through ctypes, called at import",
    _CT,
    _model("return x * BY", top="import ctypes\nBY = ctypes.CDLL('./libown.so').gain()\n"),
)
_built(
    "C: a variable through ctypes",
    _CT,
    _model("return x * V.value", top="import ctypes\nV = ctypes.c_int.in_dll(ctypes.CDLL('./libown.so'), 'value')\n"),
)
_built(
    "C: a library that is loaded late",
    _CT,
    _model("return x * ctypes.CDLL('./libown.so').gain()", top="import ctypes\n"),
)
_built(
    "C: a function that is handed to map",
    _CT,
    _model("return x * list(map(F, [0]))[0]", top="import ctypes\nF = ctypes.CDLL('./libown.so').gain\n"),
)
_built(
    "C: a function kept in the model",
    _CT,
    _model("return x * self.f()", init="self.f = F", top="import ctypes\nF = ctypes.CDLL('./libown.so').gain\n"),
)
_built(
    "C: a library through cffi",
    _CT,
    _model(
        "return x * LIB.gain()",
        top="import cffi\nFFI = cffi.FFI()\nFFI.cdef('int gain(void); extern int value;')\nLIB = FFI.dlopen('./libown.so')\n",
    ),
)
_built(
    "C: a variable through cffi",
    _CT,
    _model(
        "return x * LIB.value",
        top="import cffi\nFFI = cffi.FFI()\nFFI.cdef('int gain(void); extern int value;')\nLIB = FFI.dlopen('./libown.so')\n",
    ),
)
_INCLUDE = ("-I/root/.pyenv/versions/3.11.7/include/python3.11",)
_EXT = """
#include <Python.h>
static PyObject *gain(PyObject *s, PyObject *a) { return PyLong_FromLong(BY); }
static PyMethodDef methods[] = {{"gain", gain, METH_VARARGS, "d"}, {0}};
static PyObject *get_by(PyObject *s, void *c) { return PyLong_FromLong(BY); }
static PyGetSetDef gets[] = {{"by", get_by, 0, "d", 0}, {0}};
static PyObject *add(PyObject *a, PyObject *b) { return PyLong_FromLong(BY); }
static Py_ssize_t len(PyObject *a) { return BY; }
static PyObject *item(PyObject *a, Py_ssize_t i) { return PyLong_FromLong(BY); }
static PyNumberMethods number = {.nb_add = add};
static PySequenceMethods seq = {.sq_length = len, .sq_item = item};
static PyTypeObject T = {PyVarObject_HEAD_INIT(NULL, 0) .tp_name = "own.T", .tp_basicsize = sizeof(PyObject), .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, .tp_new = PyType_GenericNew, .tp_getset = gets, .tp_as_number = &number, .tp_as_sequence = &seq};
static struct PyModuleDef def = {PyModuleDef_HEAD_INIT, "own", 0, -1, methods};
PyMODINIT_FUNC PyInit_own(void) { PyType_Ready(&T); PyObject *m = PyModule_Create(&def); PyModule_AddIntConstant(m, "BY", BY2); Py_INCREF(&T); PyModule_AddObject(m, "T", (PyObject*)&T); Py_INCREF(&T); PyModule_AddObject(m, "O", PyObject_CallNoArgs((PyObject*)&T)); return m; }
"""
_EXT_FIXED = _EXT.replace("BY2", "7")
for _name, _top, _read in (
    ("a function, called late", "import own", "own.gain()"),
    ("a function by name", "from own import gain", "gain()"),
    ("a function through map", "from own import gain", "list(map(gain, [1]))[0]"),
    ("a function through a partial", "import own, functools\nP = functools.partial(own.gain)", "P()"),
    ("a function as a default", "import own\ndef f(g=own.gain):\n    return g()", "f()"),
    ("a function through sorted", "from own import gain", "(sorted([1], key=gain)[0] + gain(1))"),
    ("a getter of an object", "from own import O", "O.by"),
    ("a getter of an object of a module", "import own", "own.O.by"),
    ("a sum of an object", "from own import O", "(O + 1)"),
    ("a length of an object", "from own import O", "len(O)"),
    ("an item of an object", "from own import O", "O[0]"),
    ("a getter of a new object", "from own import T", "T().by"),
    ("a getter of a subclass", "from own import T\nclass C(T):\n    pass\nO = C()", "O.by"),
    ("a length of a subclass", "from own import T\nclass C(T):\n    pass\nO = C()", "len(O)"),
    ("a getter through attrgetter", "import operator\nfrom own import O\nG = operator.attrgetter('by')", "G(O)"),
    ("a number at import", "from own import O\nBY = O.by", "BY"),
):
    _built(f"C: {_name}", _EXT_FIXED, _model(f"return x * {_read}", top=f"{_top}\n"), "own.so", _INCLUDE)
_built(
    "C: a number of a module",
    _EXT.replace("BY2", "BY").replace('m, "BY"', 'm, "GAIN"'),
    _model("return x * own.GAIN", top="import own\n"),
    "own.so",
    _INCLUDE,
)
_built("C: an extension imported late", _EXT_FIXED, _model("import own\nreturn x * own.O.by"), "own.so", _INCLUDE)
_built(
    "C: an object kept in the model",
    _EXT_FIXED,
    _model("return x * self.o.by", init="import own\nself.o = own.T()"),
    "own.so",
    _INCLUDE,
)
_built(
    "C: an object of a subclass kept in the model",
    _EXT_FIXED,
    _model("return x * self.o.by", init="self.o = C()", top="import own\nclass C(own.T):\n    pass\n"),
    "own.so",
    _INCLUDE,
)
_built(
    "C: an extension that is replaced after it was imported",
    _EXT_FIXED,
    _model("return x * own.O.by", top="import own\n"),
    "own.so",
    _INCLUDE,
    script=f"import pathlib, subprocess, os\nos.rename('own.so', 'old.so') if os.path.exists('own.so') else None\n__import__('shutil').copy('old.so', 'own.so')\n{SCRIPT}os.unlink('own.so')\n"
    + _GCC.format(c=_EXT_FIXED.replace("BY", "3"), out="own.so", flags=_INCLUDE).replace(
        "subprocess.run", "subprocess.run"
    ),
    then=SCRIPT,
)

# Edits of source files that keep most of it.

_edit("edit: a constant", _model("return x * BY", top="BY = 2\n"), "BY = 2", "BY = 3")
_edit("edit: a default", _model("return f(x)", top="def f(x, by=2):\n    return x * by\n"), "by=2", "by=3")
_edit(
    "edit: a decorator",
    _model("return f(x)", top="def d(f):\n    return lambda x: f(x) * 2\n\ndef f(x):\n    return x\n"),
    "\ndef f",
    "\n@d\ndef f",
)
_edit(
    "edit: an annotation of a dataclass",
    _model(
        "return x * (2 + len(dataclasses.fields(C)))",
        top="import dataclasses, typing\n@dataclasses.dataclass\nclass C:\n    a: int = 1\n",
    ),
    "a: int",
    "a: typing.ClassVar[int]",
)
_edit(
    "edit: a future import",
    _model("return x * (2 if isinstance(f.__annotations__['a'], str) else 3)", top="def f(a: int):\n    pass\n"),
    "import torch\n",
    "from __future__ import annotations\nimport torch\n",
)
_edit(
    "edit: order of bases",
    _model("return x * self.by", top="class A:\n    by = 2\nclass B:\n    by = 3\n", bases="A, B, nn.Module"),
    "A, B",
    "B, A",
)
_edit(
    "edit: a mixin",
    _model("return x * self.by", top="class A:\n    by = 2\n", bases="A, nn.Module"),
    "by = 2",
    "by = 3",
)
_edit(
    "edit: a base in another file",
    _model("return self.go(x)", top="from pkg.base import Base\n", bases="Base"),
    "x * 2",
    "x * 3",
    file="base",
    files={"base": "from torch import nn\nclass Base(nn.Module):\n    def go(self, x):\n        return x * 2\n"},
)
_edit(
    "edit: a base of a base in another file",
    _model("return x * self.by", top="from pkg.base import Base\n", bases="Base"),
    "by = 2",
    "by = 3",
    file="root",
    files={
        "base": "from torch import nn\nfrom pkg.root import Root\nclass Base(Root, nn.Module):\n    pass\n",
        "root": "class Root:\n    by = 2\n",
    },
)
_edit(
    "edit: a metaclass in another file",
    _model("return x * C.by", top="from pkg.meta import T\nclass C(metaclass=T):\n    pass\n"),
    "return 2",
    "return 3",
    file="meta",
    files={"meta": "class T(type):\n    @property\n    def by(cls):\n        return 2\n"},
)
_edit(
    "edit: __init_subclass__ in another file",
    _model("return x * C.by", top="from pkg.meta import B\nclass C(B, n=1):\n    pass\n"),
    "n * 2",
    "n * 3",
    file="meta",
    files={"meta": "class B:\n    def __init_subclass__(cls, n):\n        cls.by = n * 2\n"},
)
_edit(
    "edit: a descriptor in another file",
    _model("return x * self.by", init="pass", top="from pkg.meta import D\n").replace(
        "    def forward", "    by = D()\n\n    def forward"
    ),
    "return 2",
    "return 3",
    file="meta",
    files={"meta": "class D:\n    def __get__(self, o, t):\n        return 2\n"},
)
_edit(
    "edit: a constant that only a constant uses",
    _model("return x * B.C", top="from pkg import b as B\n"),
    "A = 2",
    "A = 3",
    file="a",
    files={"a": "A = 2\n", "b": "from pkg.a import A\nC = A + 1\n"},
)
_edit(
    "edit: a factory's file",
    _model("return self.f(x)", init="self.f = make('go')", top="from pkg.factory import make\n"),
    "x * 2",
    "x * 3",
    file="impl",
    files={
        "factory": "import importlib\ndef make(n):\n    return getattr(importlib.import_module('pkg.impl'), n)\n",
        "impl": "def go(x):\n    return x * 2\n",
    },
)
_edit(
    "edit: a type that only isinstance sees",
    _model("return x * (2 if isinstance(self.a, T) else 3)", init="self.a = 1", top="T = (int, str)\n"),
    "T = (int, str)",
    "T = (str, float)",
)
_edit(
    "edit: a generic class",
    _model(
        "return x * C[int]().by",
        top="import typing\nV = typing.TypeVar('V')\nclass C(typing.Generic[V]):\n    by = 2\n",
    ),
    "by = 2",
    "by = 3",
)
_edit(
    "edit: a Protocol",
    _model(
        "return x * (2 if isinstance(self, P) else 3)",
        top="import typing\n@typing.runtime_checkable\nclass P(typing.Protocol):\n    def forward(self): ...\n",
    ),
    "def forward(self): ...",
    "def forward(self): ...\n    def nothing(self): ...",
)
_edit(
    "edit: a TypedDict",
    _model("return x * (1 + len(T.__required_keys__))", top="import typing\nclass T(typing.TypedDict):\n    a: int\n"),
    "a: int\n",
    "a: int\n    b: int\n",
)
_edit(
    "edit: a match",
    _model(
        "match self.m:\n    case 'a':\n        return x * 2\n    case _:\n        return x * 3", init="self.m = 'a'"
    ),
    "case 'a'",
    "case 'b'",
)
_edit(
    "edit: a custom function of autograd",
    _model(
        "return F.apply(x)",
        top="class F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x * 2\n    @staticmethod\n    def backward(ctx, g):\n        return g\n",
    ),
    "x * 2",
    "x * 3",
)
_edit(
    "edit: a custom operator",
    _model(
        "return torch.ops.attack.go(x)",
        top="@torch.library.custom_op('attack::go', mutates_args=())\ndef go(x: torch.Tensor) -> torch.Tensor:\n    return x * 2\n@go.register_fake\ndef _(x):\n    return torch.empty_like(x)\n",
    ),
    "x * 2",
    "x * 3",
)
_edit(
    "edit: an operator with a decomposition",
    _model(
        "return torch.ops.attack2.go(x)",
        top="L = torch.library.Library('attack2', 'DEF')\nL.define('go(Tensor x) -> Tensor')\nL.impl('go', lambda x: x * 2, 'CompositeImplicitAutograd')\n",
    ),
    "x * 2",
    "x * 3",
)
_edit("edit: vmap", _model("return torch.func.vmap(f)(x)", top="def f(x):\n    return x * 2\n"), "x * 2", "x * 3")
_edit(
    "edit: a class with __torch_function__",
    _model(
        "return torch.add(self.w(), x)",
        init="self.w = W",
        top="class W:\n    @classmethod\n    def __torch_function__(cls, f, t, a=(), k=None):\n        return a[1] * 2\n",
    ),
    "a[1] * 2",
    "a[1] * 3",
)
_edit(
    "edit: a name by concatenation",
    _model("return getattr(F, 're' + 'lu')(x)", top="import torch.nn.functional as F\n"),
    "'re' + 'lu'",
    "'g' + 'elu'",
)
_edit(
    "edit: another file of the package only imported",
    _model("return x * 2", top="import pkg.unused\n"),
    "A = 1",
    "A = 2",
    file="unused",
    files={"unused": "A = 1\n"},
    expected=MAY_HIT,
)
_edit(
    "edit: a namespace of a SimpleNamespace",
    _model("return x * C.a.b", top="from types import SimpleNamespace as N\nC = N(a=N(b=2))\n"),
    "b=2",
    "b=3",
)
_edit(
    "edit: a lookup by globals()",
    _model("return globals()['g' + 'o'](x)", top="def go(x):\n    return x * 2\n"),
    "x * 2",
    "x * 3",
)
_edit("edit: a lookup by eval", _model("return eval('go(x)')", top="def go(x):\n    return x * 2\n"), "x * 2", "x * 3")
_edit("edit: a lookup by locals", _model("a = 2\nreturn x * locals()['a']"), "a = 2", "a = 3")
_edit(
    "edit: a template",
    _model("return x * float(T.format(m=other))", top="from pkg import other\nT = '{m.A[0]}'\n"),
    "A = [2]",
    "A = [3]",
    file="other",
    files={"other": "A = [2]\n"},
)

# Configurations and attributes that the script sets.

for _name, _top, _new, _change, _read in (
    (
        "a dataclass",
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    by: float = 2.0\n",
        "C()",
        "c.by = 3.0",
        "c.by",
    ),
    (
        "a dataclass inside another",
        "import dataclasses\n@dataclasses.dataclass\nclass D:\n    by: float = 2.0\n@dataclasses.dataclass\nclass C:\n    d: D = dataclasses.field(default_factory=D)\n",
        "C()",
        "c.d.by = 3.0",
        "c.d.by",
    ),
    (
        "an InitVar",
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    a: dataclasses.InitVar[float] = 1.0\n    def __post_init__(self, a):\n        self.by = a * 2\n",
        "C()",
        "model.c = m.C(3.0)",
        "c.by",
    ),
    (
        "a ConfigDict",
        "class C(dict):\n    __getattr__ = dict.__getitem__\n    __setattr__ = dict.__setitem__\n",
        "C(by=2.0)",
        "c.by = 3.0",
        "c.by",
    ),
    (
        "a ConfigDict with attributes",
        "class C(dict):\n    def __init__(self, **k):\n        super().__init__(**k)\n        self.__dict__ = self\n",
        "C(by=2.0)",
        "c.by = 3.0",
        "c.by",
    ),
    (
        "__getattr__ of a store",
        "class C:\n    def __init__(self):\n        object.__setattr__(self, '_s', {'by': 2.0})\n    def __getattr__(self, n):\n        return self._s[n]\n    def __setattr__(self, n, v):\n        self._s[n] = v\n",
        "C()",
        "c.by = 3.0",
        "c.by",
    ),
    (
        "a private table of another module",
        "import weakref\nTABLE = weakref.WeakKeyDictionary()\nclass C:\n    by = property(lambda s: TABLE.get(s, 2.0))\n",
        "C()",
        "m.TABLE[c] = 3.0",
        "c.by",
    ),
    (
        "a table by identity",
        "TABLE = {}\nclass C:\n    by = property(lambda s: TABLE.get(id(s), 2.0))\n",
        "C()",
        "m.TABLE[id(c)] = 3.0",
        "c.by",
    ),
    (
        "pydantic's private attributes",
        "import pydantic\nclass C(pydantic.BaseModel):\n    _by: float = 2.0\n",
        "C()",
        "c._by = 3.0",
        "c._by",
    ),
    (
        "pydantic's extra attributes",
        "import pydantic\nclass C(pydantic.BaseModel, extra='allow'):\n    pass\n",
        "C(by=2.0)",
        "c.by = 3.0",
        "c.by",
    ),
    (
        "pydantic's fields that are set",
        "import pydantic\nclass C(pydantic.BaseModel):\n    by: float = 2.0\n",
        "C()",
        "model.c = m.C(by=2.0)",
        "(2 + len(c.model_fields_set))",
    ),
    (
        "an enum",
        "import enum\nclass E(enum.Enum):\n    A = 2\n    B = 3\nclass C:\n    e = E.A\n",
        "C()",
        "c.e = m.E.B",
        "c.e.value",
    ),
    (
        "a value of an enum's member",
        "import enum\nclass E(enum.Enum):\n    A = 2\nclass C:\n    e = E.A\n",
        "C()",
        "m.E.A._value_ = 3",
        "c.e.value",
    ),
    (
        "an enum that is text",
        "import enum\nclass E(str, enum.Enum):\n    A = 'a'\nclass C:\n    e = E.A\n",
        "C()",
        "c.e = 'a'",
        "(2 if c.e is E.A else 3)",
    ),
    ("True in place of 1", "class C:\n    by = None\n", "C()", "c.by = True", "(2 if c.by is None else 3)"),
    (
        "1.0 in place of 1",
        "class C:\n    def __init__(self):\n        self.by = 1\n",
        "C()",
        "c.by = 1.0",
        "(2 if isinstance(c.by, int) else 3)",
    ),
    (
        "1.0 in a tuple in place of 1",
        "class C:\n    def __init__(self):\n        self.by = (1, (2,))\n",
        "C()",
        "c.by = (1, (2.0,))",
        "(2 if isinstance(c.by[1][0], int) else 3)",
    ),
    (
        "NumPy's 2 in place of 2",
        "class C:\n    def __init__(self):\n        self.by = 2\n",
        "C()",
        "import numpy as np; c.by = np.int64(2)",
        "(2 if type(c.by) is int else 3)",
    ),
    (
        "a subclass in place of a list",
        "class L(list):\n    pass\nclass C:\n    def __init__(self):\n        self.by = [1]\n",
        "C()",
        "c.by = m.L([1])",
        "(2 if type(c.by) is list else 3)",
    ),
    (
        "a class by that name in place of another",
        "def make():\n    class K:\n        pass\n    return K\nA = make()\nB = make()\nclass C:\n    def __init__(self):\n        self.by = A()\n",
        "C()",
        "c.by = m.B()",
        "(2 if isinstance(c.by, A) else 3)",
    ),
    (
        "an attribute that is deleted",
        "class C:\n    def __init__(self):\n        self.by = 1\n",
        "C()",
        "del c.by",
        "(2 if hasattr(c, 'by') else 3)",
    ),
    (
        "order of attributes",
        "class C:\n    def __init__(self):\n        self.a = 2\n        self.b = 3\n",
        "C()",
        "a = c.a; del c.a; c.a = a",
        "list(vars(c).values())[0]",
    ),
    ("an attribute that hides one of the class", "class C:\n    by = 2\n", "C()", "c.by = 3", "c.by"),
    ("a method of an object", "class C:\n    def go(self):\n        return 2\n", "C()", "c.go = lambda: 3", "c.go()"),
    (
        "a method of another object",
        "class C:\n    by = 2\n    def go(self):\n        return self.by\n",
        "C()",
        "d = m.C(); d.by = 3; c.go = d.go",
        "c.go()",
    ),
    ("the class of an object", "class C:\n    by = 2\nclass D:\n    by = 3\n", "C()", "c.__class__ = m.D", "c.by"),
    ("an attribute of a class", "class C:\n    by = 2\n", "C()", "m.C.by = 3", "c.by"),
    ("a property of a class", "class C:\n    by = 2\n", "C()", "m.C.by = property(lambda s: 3)", "c.by"),
    (
        "order of a class's attributes",
        "class C:\n    a = 2\n    b = 3\n",
        "C()",
        "del m.C.a; m.C.a = 2",
        "[v for k, v in vars(C).items() if k in 'ab'][0]",
    ),
    (
        "order of a module's names",
        "A_ = 2\nB_ = 3\nclass C:\n    pass\n",
        "C()",
        "del m.A_; m.A_ = 2",
        "[v for k, v in vars(__import__('sys').modules['pkg.model']).items() if k in ('A_', 'B_')][0]",
    ),
    (
        "the operator of a class",
        "class C:\n    def __mul__(self, o):\n        return 2\n",
        "C()",
        "m.C.__mul__ = lambda s, o: 3",
        "(c * 1)",
    ),
    ("truth of an object", "class C:\n    pass\n", "C()", "m.C.__bool__ = lambda s: False", "(2 if c else 3)"),
    (
        "length of an object",
        "class C:\n    def __len__(self):\n        return 2\n",
        "C()",
        "m.C.__len__ = lambda s: 3",
        "len(c)",
    ),
    ("__eq__ of a class", "class C:\n    pass\n", "C()", "m.C.__eq__ = lambda s, o: True", "(2 if c == 1 else 3)"),
    (
        "__instancecheck__",
        "class T(type):\n    pass\nclass K(metaclass=T):\n    pass\nclass C:\n    pass\n",
        "C()",
        "m.T.__instancecheck__ = lambda s, o: True",
        "(2 if isinstance(c, K) else 3)",
    ),
    (
        "__missing__",
        "class C(dict):\n    def __missing__(self, k):\n        return 2\n",
        "C()",
        "m.C.__missing__ = lambda s, k: 3",
        "c['a']",
    ),
    (
        "__index__",
        "class C:\n    def __index__(self):\n        return 2\n",
        "C()",
        "m.C.__index__ = lambda s: 3",
        "[0, 1, 2, 3][c]",
    ),
    (
        "a converter of a class",
        "class C:\n    def __float__(self):\n        return 2.0\n",
        "C()",
        "m.C.__float__ = lambda s: 3.0",
        "float(c)",
    ),
    (
        "a format of a class",
        "class C:\n    def __format__(self, f):\n        return '2'\n",
        "C()",
        "m.C.__format__ = lambda s, f: '3'",
        "float(f'{c}')",
    ),
    (
        "a list in place of an equal list in two attributes",
        "class C:\n    def __init__(self):\n        self.a = self.b = [1]\n",
        "C()",
        "c.b = [1]",
        "(2 if c.a is c.b else 3)",
    ),
    (
        "equal big integers",
        "class C:\n    def __init__(self):\n        self.a = self.b = int('9' * 30)\n",
        "C()",
        "c.b = int('9' * 30)",
        "(2 if c.a is c.b else 3)",
    ),
    (
        "equal floats",
        "class C:\n    def __init__(self):\n        self.a = self.b = float('1.5')\n",
        "C()",
        "c.b = float('1.5')",
        "(2 if c.a is c.b else 3)",
    ),
    (
        "equal tuples",
        "class C:\n    def __init__(self):\n        self.a = self.b = tuple([1, 2])\n",
        "C()",
        "c.b = tuple([1, 2])",
        "(2 if c.a is c.b else 3)",
    ),
    (
        "equal bytes",
        "class C:\n    def __init__(self):\n        self.a = self.b = bytes([1, 2])\n",
        "C()",
        "c.b = bytes([1, 2])",
        "(2 if c.a is c.b else 3)",
    ),
    (
        "equal NumPy arrays",
        "import numpy as np\nclass C:\n    def __init__(self):\n        self.a = self.b = np.ones(2)\n",
        "C()",
        "c.b = c.a.copy()",
        "(2 if c.a is c.b else 3)",
    ),
    (
        "a view of a NumPy array",
        "import numpy as np\nclass C:\n    def __init__(self):\n        self.a = np.ones(2)\n        self.b = self.a[:]\n",
        "C()",
        "c.b = c.a.copy()",
        "(2 if np.shares_memory(c.a, c.b) else 3)",
    ),
    (
        "a list that is the default of a function",
        "def f(a=[1]):\n    return a\nclass C:\n    def __init__(self):\n        self.a = f()\n",
        "C()",
        "c.a = [1]",
        "(2 if c.a is f() else 3)",
    ),
    (
        "a list that a closure holds",
        "def make(a):\n    return lambda: a\nclass C:\n    def __init__(self):\n        self.a = [1]\n        self.f = make(self.a)\n",
        "C()",
        "c.a = [1]",
        "(2 if c.a is c.f() else 3)",
    ),
    (
        "a list that a class holds",
        "class C:\n    K = [1]\n    def __init__(self):\n        self.a = self.K\n",
        "C()",
        "c.a = [1]",
        "(2 if c.a is C.K else 3)",
    ),
    (
        "a function that is torch's",
        "class C:\n    def __init__(self):\n        self.a = torch.nn.functional.relu\n",
        "C()",
        "import types; f = c.a; c.a = types.FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__); c.a.__module__ = f.__module__; c.a.__qualname__ = f.__qualname__",
        "(2 if c.a is torch.nn.functional.relu else 3)",
    ),
    (
        "a function that is a global",
        "def g():\n    pass\nclass C:\n    def __init__(self):\n        self.a = g\n",
        "C()",
        "import types; c.a = types.FunctionType(c.a.__code__, c.a.__globals__)",
        "(2 if c.a is g else 3)",
    ),
    (
        "a module that is a copy",
        "from pkg import other\nclass C:\n    def __init__(self):\n        self.a = other\n",
        "C()",
        "import types, pkg.other; n = types.ModuleType('pkg.other'); n.__dict__.update(pkg.other.__dict__); c.a = n",
        "(2 if c.a is other else 3)",
    ),
    (
        "an empty frozen set",
        "E = frozenset()\nclass C:\n    def __init__(self):\n        self.a = E\n",
        "C()",
        "class F(frozenset): pass\nc.a = F()",
        "(2 if type(c.a) is frozenset else 3)",
    ),
    (
        "a tensor in two containers",
        "class C:\n    def __init__(self):\n        t = torch.ones(4)\n        self.a = [t]\n        self.b = {'t': t}\n",
        "C()",
        "c.b['t'] = c.a[0].clone()",
        "(2 if c.a[0] is c.b['t'] else 3)",
    ),
    (
        "a tensor that shares memory",
        "class C:\n    def __init__(self):\n        self.a = torch.ones(4)\n        self.b = self.a.view(4)\n",
        "C()",
        "c.b = c.a.clone()",
        "(2 if c.a.data_ptr() == c.b.data_ptr() else 3)",
    ),
    (
        "a gradient",
        "class C:\n    def __init__(self):\n        self.a = torch.ones(1, requires_grad=True)\n",
        "C()",
        "c.a.grad = torch.ones(1)",
        "(2 if c.a.grad is None else 3)",
    ),
    (
        "a version of a tensor",
        "class C:\n    def __init__(self):\n        self.a = torch.ones(1)\n",
        "C()",
        "c.a.add_(0)",
        "(2 + c.a._version)",
    ),
    (
        "whether a tensor needs a gradient",
        "class C:\n    def __init__(self):\n        self.a = torch.ones(1)\n",
        "C()",
        "c.a.requires_grad_()",
        "(2 if c.a.requires_grad else 3)",
    ),
    (
        "a hook of a tensor",
        "class C:\n    def __init__(self):\n        self.a = torch.ones(1, requires_grad=True)\n",
        "C()",
        "c.a.register_hook(lambda g: g)",
        "(2 if c.a._backward_hooks is None else 3)",
    ),
    (
        "a parameter in place of a tensor",
        "class C:\n    def __init__(self):\n        self.a = torch.ones(1)\n",
        "C()",
        "c.a = torch.nn.Parameter(torch.ones(1), requires_grad=False)",
        "(2 if type(c.a) is torch.Tensor else 3)",
    ),
    (
        "an attribute of a parameter outside",
        "class C:\n    def __init__(self):\n        self.a = torch.nn.Parameter(torch.ones(1))\n        self.a.by = 2\n",
        "C()",
        "c.a.by = 3",
        "c.a.by",
    ),
    (
        "a module outside the tree",
        "class C:\n    def __init__(self):\n        self.a = [torch.nn.Linear(4, 4).requires_grad_(False)]\n",
        "C()",
        "c.a[0].bias.data.add_(1.0)",
        "c.a[0](x)",
    ),
):
    _files = {"other": "A = 1\n"} if "copy" in _name else {}
    _then(
        f"config: {_name}",
        _model(f"c = self.c\nreturn x * {_read}", init=f"self.c = {_new}", top=_top),
        f"c = model.c\n{_change}",
        _files,
    )

# What happens to modules.

_LIN = _model("return self.b(torch.relu(self.a(x)))", init="self.a = nn.Linear(4, 4)\nself.b = nn.Linear(4, 4)")
_SEQ = _model(
    "return self.s(x)",
    init="self.s = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))\nself.d = nn.ModuleDict({'p': nn.ReLU(), 'q': nn.Tanh()})",
)
_DICT = _model(
    "for d in self.d.values():\n    x = d(x)\nreturn x",
    init="self.d = nn.ModuleDict({'p': nn.Linear(4, 4, bias=False), 'q': nn.Tanh()})",
)
_ATT = _model("return self.e(x[None])[0]", init="self.e = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)")
_DROP = _model("return self.d(x)", init="self.d = nn.Dropout(0.5)")
_BUF = _model("return x * self.b", init="self.register_buffer('b', torch.ones(4))")
_NORM = _model("return self.n(x)", init="self.n = nn.BatchNorm1d(4)")
_HOOKED = _model("return self.a(x)", init="self.a = nn.Linear(4, 4)")
for _name, _text, _more in (
    ("training", _DROP, "model.train()"),
    ("training of a part", _NORM, "model.n.train()"),
    ("training by hand", _DROP, "model.d.training = True"),
    (
        "dropout's share while training",
        _DROP.replace("0.5)", "0.5)\nself.train()").replace(")\nself", ")\n        self"),
        "model.train(); model.d.p = 0.9",
    ),
    ("eps of a norm", _NORM, "model.n.eps = 0.5"),
    ("running statistics that are dropped", _NORM, "model.n.running_mean = None; model.n.running_var = None"),
    ("a part that is replaced", _SEQ, "model.s[1] = torch.nn.Tanh()"),
    ("a part that is inserted", _SEQ, "model.s.insert(1, torch.nn.Tanh())"),
    ("a part that is removed", _SEQ, "del model.s[1]"),
    ("a part that is appended", _SEQ, "model.s.append(torch.nn.Tanh())"),
    ("order of a ModuleDict", _DICT, "p = model.d.pop('p'); model.d['p'] = p"),
    ("a part that is an identity", _SEQ, "model.s[0] = torch.nn.Identity()"),
    ("tied weights", _LIN, "model.b.weight = model.a.weight; model.b.bias = model.a.bias"),
    ("one module twice", _LIN, "model.b = model.a"),
    ("half of it", _LIN, "model.half(); args = (torch.ones(3, 4, dtype=torch.half),)"),
    ("double", _LIN, "model.double(); args = (torch.ones(3, 4, dtype=torch.double),)"),
    (
        "frozen",
        _LIN.replace("return self", "return (2 if self.a.weight.requires_grad else 3) * self"),
        "model.requires_grad_(False)",
    ),
    ("no bias", _LIN, "model.a.bias = None"),
    ("a forward hook", _HOOKED, "model.a.register_forward_hook(lambda m, a, o: o * 3)"),
    ("a forward pre-hook", _HOOKED, "model.a.register_forward_pre_hook(lambda m, a: (a[0] * 3,))"),
    (
        "a hook with keywords",
        _HOOKED,
        "model.a.register_forward_pre_hook(lambda m, a, k: ((a[0] * 3,), k), with_kwargs=True)",
    ),
    ("a hook of the model", _HOOKED, "model.register_forward_hook(lambda m, a, o: o * 3)"),
    (
        "a hook of all modules",
        _HOOKED,
        "torch.nn.modules.module.register_module_forward_pre_hook(lambda m, a: (a[0] * 5,) if type(m) is torch.nn.Linear else None)",
    ),
    (
        "a pre-hook of all modules",
        _HOOKED,
        "torch.nn.modules.module.register_module_forward_pre_hook(lambda m, a: (a[0] * 3,))",
    ),
    ("a forward of an instance", _HOOKED, "model.a.forward = lambda x: x * 3"),
    ("a forward of the model's instance", _HOOKED, "model.forward = lambda x: x * 3"),
    ("a forward of the class", _HOOKED, "m.Model.forward = lambda self, x: x * 3"),
    ("__call__ of the class", _HOOKED, "torch.nn.Linear.__call__ = lambda self, x: x * 3"),
    ("a patched linear", _HOOKED, "torch.nn.functional.linear = lambda x, w, b=None: x * 3"),
    ("a patched relu of torch", _LIN, "torch.relu = lambda x: x * 3"),
    ("a patched method of tensors", _model("return x.relu()"), "torch.Tensor.relu = lambda s: s * 3"),
    ("a patched operator of tensors", _model("return x + 1"), "torch.Tensor.__add__ = lambda s, o: s * 3"),
    ("a patched reversed operator", _model("return 2 / x.add(1)"), "torch.Tensor.__rtruediv__ = lambda s, o: s * 3"),
    (
        "a new method of tensors",
        _model("return x.twice()", top="torch.Tensor.twice = lambda s: s * 2\n"),
        "torch.Tensor.twice = lambda s: s * 3",
    ),
    (
        "a new property of tensors",
        _model("return x * x.own", top="torch.Tensor.own = property(lambda s: 2)\n"),
        "torch.Tensor.own = property(lambda s: 3)",
    ),
    (
        "a patched softmax deep in torch",
        _ATT,
        "torch._transformer_encoder_layer_fwd = None; torch.nn.functional.multi_head_attention_forward = lambda *a, **k: (a[0] * 3, None); torch.backends.mha.set_fastpath_enabled(False)",
    ),
    (
        "a patched attention",
        _ATT,
        "torch.backends.mha.set_fastpath_enabled(False); torch.nn.functional.scaled_dot_product_attention = lambda q, *a, **k: q * 3; torch.nn.modules.activation.F.scaled_dot_product_attention = torch.nn.functional.scaled_dot_product_attention; torch.nn.functional._in_projection_packed = lambda q, k, v, w, b: (q * 3, k, v); model.e.self_attn.forward = lambda q, k, v, **kw: (q * 3, None)",
    ),
    (
        "a constant of a module of torch",
        _model("return self.p(x)", init="self.p = nn.GELU()"),
        "torch.nn.modules.activation.F = __import__('types').SimpleNamespace(gelu=lambda x, approximate: x * 3)",
    ),
    (
        "a patched helper inside torch",
        _model("return nn.functional.interpolate(x[None, None], scale_factor=2)[0, 0]"),
        "torch.nn.functional.math = __import__('types').SimpleNamespace(floor=lambda v: 4, **{k: v for k, v in vars(__import__('math')).items() if k not in ('floor',) and k[0] != '_'}); torch.nn.functional._is_integer = lambda x: True; torch._C._nn.upsample_nearest2d = lambda *a: torch.zeros(1, 1, 6, 8)",
    ),
    (
        "a replaced default in torch",
        _model("return nn.functional.layer_norm(x, (4,))"),
        "torch.nn.functional.layer_norm.__defaults__ = (None, None, 0.5)",
    ),
    (
        "a replaced keyword default in torch",
        _model("return nn.functional.celu(x - 3)"),
        "torch.nn.functional.celu.__defaults__ = (5.0, False)",
    ),
    (
        "a patched init",
        _model("return x * self.w.shape[0]", init="self.w = nn.Linear(4, 4).weight"),
        "model.w = torch.nn.Parameter(torch.ones(2, 4))",
    ),
    ("weight_norm", _HOOKED, "torch.nn.utils.parametrizations.weight_norm(model.a)"),
    (
        "old weight_norm",
        _HOOKED,
        "import warnings; warnings.simplefilter('ignore'); torch.nn.utils.weight_norm(model.a)",
    ),
    ("spectral_norm", _HOOKED, "torch.nn.utils.parametrizations.spectral_norm(model.a)"),
    ("orthogonal", _HOOKED, "torch.nn.utils.parametrizations.orthogonal(model.a); model.eval()"),
    ("pruning", _HOOKED, "import torch.nn.utils.prune as p; p.l1_unstructured(model.a, 'weight', 0.5)"),
    (
        "a parametrization",
        _HOOKED,
        "import torch.nn.utils.parametrize as p\nclass P(torch.nn.Module):\n    def forward(self, w):\n        return w * 3\np.register_parametrization(model.a, 'weight', P())",
    ),
    (
        "quantized dynamically",
        _HOOKED,
        "model.a.weight = torch.nn.Parameter(model.a.weight.to(torch.bfloat16)); model.a.bias = torch.nn.Parameter(model.a.bias.to(torch.bfloat16)); args = (torch.ones(3, 4, dtype=torch.bfloat16),)",
    ),
    ("a traced part", _HOOKED, "model.a = torch.fx.symbolic_trace(torch.nn.Sequential(model.a, torch.nn.Tanh()))"),
    (
        "a wrapped part",
        _HOOKED,
        "class W(torch.nn.Module):\n    def __init__(self, i):\n        super().__init__()\n        self.i = i\n    def forward(self, x):\n        return self.i(x) * 3\nmodel.a = W(model.a)",
    ),
    (
        "LoRA",
        _HOOKED,
        "lora = torch.nn.Parameter(torch.ones(4, 4)); old = model.a.forward; model.a.lora = lora; model.a.forward = lambda x: old(x) + x @ lora",
    ),
    (
        "a buffer that is no longer saved",
        _BUF,
        "model.b = model.b; model._non_persistent_buffers_set.add('b'); model.b.fill_(3.0)",
    ),
    ("a buffer that is a tensor now", _BUF, "del model.b; model.b = torch.full((4,), 3.0)"),
    (
        "a buffer that is a parameter now",
        _BUF.replace("return x * self.b", "return x * self.b * (2 if isinstance(self.b, nn.Parameter) else 3)"),
        "del model.b; model.b = torch.nn.Parameter(torch.ones(4))",
    ),
    (
        "a buffer that is None",
        _BUF.replace("return x * self.b", "return x * 2 if self.b is None else x"),
        "model.b = None",
    ),
    ("a buffer of another shape", _BUF, "model.b = torch.ones(3, 1)"),
    ("a buffer of another dtype", _BUF, "model.b = model.b.double()"),
    ("strides of a buffer", _BUF.replace("* self.b", "* self.b.stride(0)"), "model.b = torch.ones(4, 2)[:, 0]"),
    (
        "a parameter of a parent that is hidden",
        _model("return x * self.w", init="object.__setattr__(self, 'w', torch.full((4,), 2.0))"),
        "object.__setattr__(model, 'w', torch.full((4,), 3.0))",
    ),
    (
        "a module that hides in __dict__",
        _model("return self.h(x)", init="object.__setattr__(self, 'h', nn.Dropout(0.5).eval())"),
        "model.h.train()",
    ),
    (
        "a parent that is kept in a list",
        _model("return x * self.a.up[0].by", init="self.by = 2\nself.a = nn.Identity()\nself.a.up = [self]"),
        "model.by = 3",
    ),
    (
        "another parent in a list",
        _model(
            "return x * (2 if self.a.up[0] is self else 3)",
            init="self.by = 2\nself.a = nn.Identity()\nself.a.up = [self]",
        ),
        "model.a.up = [m.Model()]",
    ),
    (
        "the class of the model",
        _model("return x * self.by") + "    by = 2\nclass Other(Model):\n    by = 3\n",
        "model.__class__ = m.Other",
    ),
    ("the name of the class", _model("return x * len(type(self).__name__)"), "m.Model.__name__ = 'Modell'"),
    (
        "names of parts",
        _model("return x * len(list(self._modules)[0])", init="self.aa = nn.ReLU()"),
        "model.aaa = model.aa; del model.aa",
    ),
    (
        "names that are hidden in Sequential",
        _model("return x * len(list(self.s._modules)[0])", init="self.s = nn.Sequential(nn.ReLU())"),
        "model.s._modules['00'] = model.s._modules.pop('0')",
    ),
    (
        "loaded weights of other content",
        _LIN.replace("return", "return (2 if self.flag else 3) *").replace(
            "        self.a =", "        self.flag = True\n        self.a ="
        ),
        "model.load_state_dict({k: v * 2 for k, v in model.state_dict().items()}); model.flag = False",
    ),
    (
        "a deterministic mode with a fill",
        _model("return torch.empty(3, 4).fill_(1) + x * (3 if torch.are_deterministic_algorithms_enabled() else 2)"),
        "torch.use_deterministic_algorithms(True)",
    ),
    ("autocast", _LIN, "auto = torch.autocast('cpu', dtype=torch.bfloat16); auto.__enter__()"),
    (
        "a default dtype for a constant",
        _model("return x + torch.tensor(1.5)"),
        "torch.set_default_dtype(torch.float64); args = (torch.arange(12.0, dtype=torch.float32).reshape(3, 4),)",
    ),
    (
        "a default dtype for a list",
        _model("return x.sum() * torch.zeros(2)"),
        "torch.set_default_dtype(torch.float64); args = (torch.arange(12.0, dtype=torch.float32).reshape(3, 4),)",
    ),
    (
        "a mode of functions",
        _model("return torch.relu(x)"),
        "from torch.overrides import TorchFunctionMode\nclass M(TorchFunctionMode):\n    def __torch_function__(self, f, t, a=(), k=None):\n        return torch.sin(*a) if f is torch.relu else f(*a, **(k or {}))\nM().__enter__()",
    ),
    ("a traced compile", _HOOKED, "model.a.compile = None; model.a._compiled_call_impl = lambda x: x * 3"),
    ("a name in __dict__ that hides a part", _HOOKED, "model.__dict__['a'] = torch.nn.Tanh()"),
):
    _then(f"module: {_name}", _text, _more)

# Arguments.

for _name, _forward, _first, _second in (
    ("a number", "return x[0] * x[1]", "((torch.ones(4), 2),)", "((torch.ones(4), 3),)"),
    ("a number's type", "return x[0] // x[1]", "((torch.ones(4) * 5, 2),)", "((torch.ones(4) * 5, 2.0),)"),
    ("True for 1", "return x[0] * (2 if x[1] is True else 3)", "((torch.ones(4), True),)", "((torch.ones(4), 1),)"),
    (
        "None for a tensor",
        "return x[0] if x[1] is None else x[0] * 2",
        "((torch.ones(4), None),)",
        "((torch.ones(4), torch.ones(4)),)",
    ),
    ("a shape", "return x * x.shape[0]", "(torch.ones(3, 4),)", "(torch.ones(5, 4),)"),
    ("strides", "return x * x.stride()[0]", "(torch.ones(4, 4),)", "(torch.ones(4, 4).t(),)"),
    ("a dtype", "return x * 2", "(torch.ones(4),)", "(torch.ones(4, dtype=torch.int64),)"),
    (
        "a gradient that is needed",
        "return x * (2 if x.requires_grad else 3)",
        "(torch.ones(4),)",
        "(torch.ones(4, requires_grad=True),)",
    ),
    (
        "order of a dictionary",
        "return list(x.values())[0]",
        "({'a': torch.ones(4), 'b': torch.zeros(4)},)",
        "({'b': torch.zeros(4), 'a': torch.ones(4)},)",
    ),
    (
        "a list for a tuple",
        "return x[0] * (2 if isinstance(x, list) else 3)",
        "([torch.ones(4)],)",
        "((torch.ones(4),),)",
    ),
    ("text", "return torch.ones(4) * len(x)", "('ab',)", "('abc',)"),
    (
        "a view of one that is larger",
        "return x * 1 + x.clone(memory_format=torch.contiguous_format).as_strided((4,), (1,), 0)",
        "(torch.ones(8)[:4],)",
        "(torch.arange(8.0)[4:],)",
    ),
    (
        "minus zero",
        "return x[0] * __import__('math').copysign(2.0, x[1])",
        "((torch.ones(4), 0.0),)",
        "((torch.ones(4), -0.0),)",
    ),
):
    _text = _model(_forward, init="self.w = nn.Parameter(torch.ones(4))")
    _head = SCRIPT + "t = torch.ones(4)\nt.by = 3\ns = torch.ones(4)\n"
    _add(
        f"argument: {_name}",
        Scenario({"model": _text}, script=f"{_head}args = {_first}\n", then=f"{_head}args = {_second}\n"),
    )
_KW = (
    _model("return x")
    .replace("forward(self, x)", "forward(self, x, by=2.0, **kw)")
    .replace("return x", "return x * by * (1 + len(list(kw)[0]) if kw else 1)")
)
_add("argument: a default", Scenario({"model": _KW}, then=SCRIPT + "Model.forward.__defaults__ = (3.0,)\n"))
_add("argument: a keyword", Scenario({"model": _KW}, then=SCRIPT + "kwargs = {'by': 3.0}\n"))
_add(
    "argument: order of keywords",
    Scenario(
        {"model": _KW},
        script=SCRIPT + "kwargs = {'a': 1.0, 'bb': 1.0}\n",
        then=SCRIPT + "kwargs = {'bb': 1.0, 'a': 1.0}\n",
    ),
)
_add(
    "argument: dynamic shapes",
    Scenario(
        {"model": _model("return x * (2 if type(x.shape[0]) is int else 3)")},
        then=SCRIPT + "dynamic_shapes = ({0: torch.export.Dim('n')},)\n",
    ),
)

# Harmless changes: a hit is right.

for _name, _files, _after, _more, _env in (
    ("nothing", {"model": _LIN}, {}, "", {}),
    ("other weights", {"model": _LIN}, {}, "[p.data.mul_(2) for p in model.parameters()]", {}),
    (
        "a loaded state",
        {"model": _LIN},
        {},
        "model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()})",
        {},
    ),
    ("a seed", {"model": _LIN}, {}, "torch.manual_seed(5)", {}),
    ("a copy", {"model": _LIN}, {}, "import copy; model = copy.deepcopy(model)", {}),
    ("pickled", {"model": _LIN}, {}, "import pickle; model = pickle.loads(pickle.dumps(model))", {}),
    ("values of the input", {"model": _LIN}, {}, "args = (torch.full((3, 4), 5.0),)", {}),
    ("an unread file", {"model": _LIN, "unread": "A = 1\n"}, {"unread": "A = 2\n"}, "", {}),
    ("an unread variable", {"model": _LIN}, {}, "", {"UNREAD_BY_ALL": "3"}),
    ("another module that is loaded", {"model": _LIN}, {}, "import colorsys, sqlite3", {}),
    ("a gradient of a weight", {"model": _LIN}, {}, "model.a.weight.grad = torch.ones(4, 4)", {}),
    ("a call before", {"model": _LIN}, {}, "model(torch.ones(3, 4))", {}),
    ("a folder", {"model": _LIN}, {}, "import os; os.makedirs('deep', exist_ok=True); os.chdir('deep')", {}),
    ("touched", {"model": _LIN}, {"model": _LIN}, "", {}),
    (
        "a removed cache of bytes",
        {"model": _LIN},
        {},
        "__import__('shutil').rmtree('pkg/__pycache__', ignore_errors=True)",
        {},
    ),
    ("training and back", {"model": _LIN}, {}, "model.train(); model.eval()", {}),
    ("a module of torch alone", {"model": _SEQ}, {}, "model.s = model.s", {}),
    ("a log level", {"model": _LIN}, {}, "import logging; logging.getLogger('other').setLevel(10)", {}),
    ("a transformer", {"model": _ATT}, {}, "", {}),
    ("batch norm's statistics", {"model": _NORM}, {}, "model.n.running_mean.fill_(3.0)", {}),
    (
        "a configuration read from a file",
        {
            "model": _model(
                "return x * C['by']",
                top="import json, pathlib\nC = json.loads((pathlib.Path(__file__).parent / 'c.json').read_text())\n",
            ),
            "c.json": '{"by": 2}',
        },
        {"c.json": '{ "by": 2 }'},
        "",
        {},
    ),
    (
        "a dataclass and an enum",
        {
            "model": _model(
                "return x * self.c.by * E.A.value",
                init="self.c = C()",
                top="import dataclasses, enum\nclass E(enum.Enum):\n    A = 1\n@dataclasses.dataclass\nclass C:\n    by: float = 2.0\n",
            )
        },
        {},
        "",
        {},
    ),
    (
        "einops-like text",
        {"model": _model("return torch.einsum(self.p, x, x)", init="self.p = 'ij,kj->ik'")},
        {},
        "",
        {},
    ),
    (
        "a set that is asked",
        {
            "model": _model(
                "return x * 2 if self.m in KNOWN else x", init="self.m = 'a'", top="KNOWN = {'a', 'b', 'c'}\n"
            )
        },
        {},
        "",
        {},
    ),
    (
        "threads",
        {"model": _LIN},
        {},
        "import threading; t = threading.Thread(target=lambda: 1); t.start(); t.join()",
        {},
    ),
    (
        "math and functools",
        {
            "model": _model(
                "return x * f(2) * math.sqrt(4)",
                top="import functools, math\n@functools.lru_cache\ndef f(a):\n    return a * 2\n",
            )
        },
        {},
        "",
        {},
    ),
):
    _add(
        f"harmless: {_name}",
        Scenario(_files, _after, then=f"{SCRIPT}import pkg.model as m\n{_more}\n", env_after=_env, expected=MAY_HIT),
    )

# More of the kinds that went unnoticed.

_MORE_HELD: dict[str, tuple[str, str]] = {
    "a qualified name": ("def H():\n    pass\nH.__qualname__ = 'A' if BY == 2 else 'BBB'", "len(H.__qualname__)"),
    "a function's module": ("def H():\n    pass\nH.__module__ = 'a' if BY == 2 else 'bbb'", "len(H.__module__)"),
    "a class's module": ("class H:\n    pass\nH.__module__ = 'a' if BY == 2 else 'bbb'", "len(H.__module__)"),
    "a class's qualified name": (
        "class H:\n    pass\nH.__qualname__ = 'a' if BY == 2 else 'bbb'",
        "len(H.__qualname__)",
    ),
    "a document of a module": ("__doc__ = str(BY)\nH = 1", "float(__doc__)"),
    "a document of a method": (
        "class C:\n    def go(self):\n        pass\nC.go.__doc__ = str(BY)\nH = C()",
        "float(H.go.__doc__)",
    ),
    "a document of a property": ("H = property(doc=str(BY))", "float(H.__doc__)"),
    "a document of a partial": (
        "import functools\nH = functools.partial(int)\nH.__doc__ = str(BY)",
        "float(H.__doc__)",
    ),
    "a document of a module class": ("class M(nn.Module):\n    pass\nM.__doc__ = str(BY)\nH = M()", "float(H.__doc__)"),
    "a document of an object": ("class C:\n    pass\nH = C()\nH.__doc__ = str(BY)", "float(H.__doc__)"),
    "a document of an enum": ("import enum\nH = enum.Enum('H', 'A')\nH.__doc__ = str(BY)", "float(H.__doc__)"),
    "type parameters": ("def H():\n    pass\nH.__type_params__ = (BY,)", "H.__type_params__[0]"),
    "a wrapped function": (
        "def H():\n    pass\ndef make(b):\n    return lambda: b\nH.__wrapped__ = make(BY)",
        "H.__wrapped__()",
    ),
    "the payload of a NaN": (
        "import struct\nH = struct.unpack('<d', struct.pack('<Q', 0x7ff8000000000000 + int(BY)))[0]",
        "float(__import__('struct').pack('<d', H)[0])",
    ),
    "a NaN in a complex number": (
        "H = complex(0.0, float('nan') if BY == 2 else -float('nan'))",
        "__import__('math').copysign(1.0, H.imag)",
    ),
    "a NaN in a tuple": ("H = (float('nan') if BY == 2 else -float('nan'),)", "__import__('math').copysign(1.0, H[0])"),
    "a NaN in an array": (
        "import numpy as np\nH = np.array([float('nan') if BY == 2 else -float('nan')])",
        "(2 if np.signbit(H[0]) else 3)",
    ),
    "a NaN in a tensor": ("H = torch.tensor([float('nan') if BY == 2 else -float('nan')])", "H.view(torch.int32)"),
    "a NumPy NaN": (
        "import numpy as np\nH = np.float64('nan') if BY == 2 else -np.float64('nan')",
        "(2 if np.signbit(H) else 3)",
    ),
    "a Decimal NaN": (
        "from decimal import Decimal\nH = Decimal('NaN12') if BY == 2 else Decimal('NaN123')",
        "len(str(H))",
    ),
    "a Decimal's exponent": (
        "from decimal import Decimal\nH = Decimal('2.0') if BY == 2 else Decimal('2.00')",
        "len(str(H))",
    ),
    "a Decimal's zero": ("from decimal import Decimal\nH = Decimal('0') if BY == 2 else Decimal('-0')", "len(str(H))"),
    "slots that are forgotten": ("class C:\n    __slots__ = ('by',)\nH = C()\nH.by = BY\nC.__slots__ = ()", "H.by"),
    "slots that are deleted": ("class C:\n    __slots__ = ('by',)\nH = C()\nH.by = BY\ndel C.__slots__", "H.by"),
    "slots that a generator named": ("class C:\n    __slots__ = (n for n in ['by'])\nH = C()\nH.by = BY", "H.by"),
    "slots that a text names": ("class C:\n    __slots__ = 'by'\nH = C()\nH.by = BY", "H.by"),
    "slots of a dataclass": (
        "import dataclasses\n@dataclasses.dataclass(slots=True)\nclass C:\n    by: float\nH = C(BY)",
        "H.by",
    ),
    "slots behind a property": (
        "class B:\n    __slots__ = ('by',)\nclass C(B):\n    __slots__ = ()\n    by = property(lambda s: B.by.__get__(s))\nH = C()\nB.by.__set__(H, BY)",
        "H.by",
    ),
    "slots of a subclass of a number": ("class I(float):\n    pass\nH = I(1)\nH.__dict__['by'] = BY", "H.by"),
    "a dictionary behind a descriptor": (
        "class C:\n    pass\nH = C()\nH.by = BY\nD = C.__dict__['__dict__']\nC.__dict__ if False else None\nclass E(C):\n    __dict__ = {}\nH.__class__ = E",
        "H.by",
    ),
    "an object with __getattribute__ that hides": (
        "class C:\n    def __getattribute__(self, n):\n        if n == '__dict__':\n            return {}\n        return object.__getattribute__(self, n)\nH = C()\nobject.__setattr__(H, 'by', BY)",
        "H.by",
    ),
    "a class whose metaclass hides": (
        "class T(type):\n    def __getattribute__(cls, n):\n        if n == '__dict__':\n            return {}\n        return type.__getattribute__(cls, n)\nclass H(metaclass=T):\n    pass\nH.by = BY",
        "H.by",
    ),
    "a class whose metaclass has a __dict__": (
        "class T(type):\n    __dict__ = property(lambda cls: {})\nclass H(metaclass=T):\n    pass\nH.by = BY",
        "H.by",
    ),
    "an mro of a metaclass": (
        "class A:\n    by = 2\nclass B:\n    by = 3\nFLAG = BY == 2\nclass T(type):\n    def mro(cls):\n        return [cls, A, object] if FLAG else [cls, B, object]\nclass H(A, B, metaclass=T):\n    pass\ndel FLAG",
        "H.by",
    ),
    "an enum's names": (
        "import enum\nclass E(enum.Enum):\n    A = 2\n    B = 3\nE._member_map_['A'] = E(int(BY))\nH = E",
        "H['A'].value",
    ),
    "an enum's values": (
        "import enum\nclass E(enum.Enum):\n    A = 2\n    B = 3\nE._value2member_map_[7] = E(int(BY))\nH = E",
        "H(7).value",
    ),
    "an object in NumPy's metadata": (
        "import numpy as np\nH = np.dtype('f8', metadata={'by': BY})",
        "H.metadata['by']",
    ),
    "a field of NumPy": ("import numpy as np\nH = np.dtype([('a', 'f4' if BY == 2 else 'f8')])", "H['a'].itemsize"),
    "titles of NumPy": (
        "import numpy as np\nH = np.dtype({'names': ['a'], 'formats': ['f8'], 'offsets': [int(BY) * 8]})",
        "H.itemsize",
    ),
    "a ufunc of a function": (
        "import numpy as np\ndef make(b):\n    return lambda a: a * b\nU = np.frompyfunc(make(BY), 1, 1)\nclass C:\n    pass\nH = C()\nH.u = U\ndel U",
        "float(H.u(1.0))",
    ),
    "a method of a ufunc": (
        "import numpy as np\ndef make(b):\n    return lambda a, c: a + c + b\nH = np.frompyfunc(make(BY), 2, 1).reduce",
        "float(H([1.0, 1.0]))",
    ),
    "a base of an array": (
        "import numpy as np\nB = np.array([2.0, BY])\nH = B[:1]\ndel B",
        "float(np.lib.stride_tricks.as_strided(H, (2,), (8,))[1])",
    ),
    "a masked array's fill": ("import numpy as np\nH = np.ma.array([1.0], fill_value=BY)", "float(H.fill_value)"),
    "a record": ("import numpy as np\nH = np.rec.array([(BY,)], dtype=[('by', 'f8')])[0]", "float(H.by)"),
    "a void scalar": ("import numpy as np\nH = np.void(bytes([int(BY)]))", "float(H.tobytes()[0])"),
    "a NumPy text": ("import numpy as np\nH = np.str_('a' * int(BY))", "len(H)"),
    "a NumPy date's unit": (
        "import numpy as np\nH = np.datetime64(0, 's') if BY == 2 else np.datetime64(0, 'ms')",
        "len(str(H.dtype))",
    ),
    "a NumPy iterator": ("import numpy as np\nH = np.array([2.0, 3.0]).flat\nif BY == 3:\n    next(H)", "H.index + 1"),
    "a polynomial's domain": (
        "import numpy as np\nH = np.polynomial.Polynomial([1.0], domain=[0, BY])",
        "float(H.domain[1])",
    ),
    "constraints of a TypeVar": (
        "import typing\nH = typing.TypeVar('H', int, str) if BY == 2 else typing.TypeVar('H', int, float)",
        "len(H.__constraints__[1].__name__)",
    ),
    "variance of a TypeVar": (
        "import typing\nH = typing.TypeVar('H', covariant=BY == 2)",
        "(2 if H.__covariant__ else 3)",
    ),
    "a name of a TypeVar": ("import typing\nH = typing.TypeVar('H' * int(BY))", "len(H.__name__)"),
    "a ForwardRef": ("import typing\nH = typing.ForwardRef('a' * int(BY))", "len(H.__forward_arg__)"),
    "a Callable type": (
        "import typing\nH = typing.Callable[[int], int] if BY == 2 else typing.Callable[[int, int], int]",
        "len(H.__args__)",
    ),
    "a Generic's arguments": (
        "import typing\nV = typing.TypeVar('V')\nclass G(typing.Generic[V]):\n    pass\nclass H(G[int] if BY == 2 else G[str]):\n    pass",
        "(2 if H.__orig_bases__[0].__args__[0] is int else 3)",
    ),
    "a deleted weak reference": (
        "class O:\n    pass\nKEEP = O()\nimport weakref\nH = weakref.ref(KEEP)\nif BY == 3:\n    del KEEP",
        "(2 if H() is not None else 3)",
    ),
    "a callback of a weak reference": (
        "class O:\n    pass\nKEEP = O()\nimport weakref\ndef make(b):\n    return lambda r: b\nH = weakref.ref(KEEP, make(BY))",
        "H.__callback__(1)",
    ),
    "a finalizer": (
        "class O:\n    pass\nKEEP = O()\nimport weakref\nH = weakref.finalize(KEEP, print, BY)\nH.atexit = False",
        "H.peek()[2][0]",
    ),
    "a traceback": (
        "try:\n    1 / 0 if BY == 2 else int('a')\nexcept Exception as e:\n    H = e",
        "len(type(H).__name__)",
    ),
    "a property's setter": ("def make(b):\n    return lambda s, v: b\nH = property(None, make(BY))", "H.fset(1, 1)"),
    "a class method's object": ("def make(b):\n    return lambda c: b\nH = classmethod(make(BY))", "H.__func__(1)"),
    "a cached property's function": (
        "import functools\ndef make(b):\n    return lambda s: b\nH = functools.cached_property(make(BY))",
        "H.func(1)",
    ),
    "a data descriptor's table": (
        "class D:\n    def __init__(self):\n        self.t = {}\n    def __get__(self, o, c):\n        return self.t['by']\nclass C:\n    by = D()\nC.__dict__['by'].t['by'] = BY\nH = C()",
        "H.by",
    ),
    "a function's dictionary": ("def H():\n    return H.by\nH.by = BY", "H()"),
    "a method's function's dictionary": (
        "class C:\n    def go(self):\n        return self.go.by\nC.go.by = BY\nH = C()",
        "H.go()",
    ),
    "a lambda of another line": ("L = [\n    lambda: 2.0,\n    lambda: 3.0,\n]\nH = L[int(BY) - 2]\ndel L", "H()"),
    "a function that a factory made": (
        "def a():\n    def f():\n        return 2.0\n    return f\ndef b():\n    def f():\n        return 3.0\n    return f\nH = (a if BY == 2 else b)()",
        "H()",
    ),
    "names of a code object": (
        "def f():\n    return A1\nA1, A2 = 2.0, 3.0\nif BY == 3:\n    f.__code__ = f.__code__.replace(co_names=('A2',))\nH = f",
        "H()",
    ),
    "bytes of a code object": (
        "def f(a, b):\n    return a\ndef g(a, b):\n    return b\nif BY == 3:\n    f.__code__ = f.__code__.replace(co_code=g.__code__.co_code)\nH = f",
        "H(2, 3)",
    ),
    "a nested code object": (
        "def f():\n    def g():\n        return 2.0\n    return g()\nif BY == 3:\n    c = f.__code__\n    f.__code__ = c.replace(co_consts=tuple(k.replace(co_consts=(None, 3.0)) if hasattr(k, 'co_consts') else k for k in c.co_consts))\n    del c\nH = f",
        "H()",
    ),
    "a code object of a method": (
        "class C:\n    def go(self):\n        return 2.0\nif BY == 3:\n    C.go.__code__ = C.go.__code__.replace(co_consts=(None, 3.0))\nH = C()",
        "H.go()",
    ),
    "a code object of a module's forward": (
        "class M(nn.Module):\n    def forward(self, x):\n        return x * 2.0\nif BY == 3:\n    M.forward.__code__ = M.forward.__code__.replace(co_consts=(None, 3.0))\nH = M()",
        "H(1)",
    ),
    "a new class of the same name": (
        "def make(b):\n    class H:\n        def go(self):\n            return 2.0\n    if b == 3:\n        H.go = lambda self: 3.0\n    return H\nH = make(BY)",
        "H().go()",
    ),
    "a registered sequence": (
        "import collections.abc\nclass C:\n    pass\nO = C()\nif BY == 3:\n    collections.abc.Sequence.register(C)\nH = collections.abc",
        "(3 if isinstance(O, H.Sequence) else 2)",
    ),
    "a registered mapping in a match": (
        "import collections.abc\nclass C:\n    def __len__(self):\n        return 0\n    def get(self, *a):\n        return 1\n    def keys(self):\n        return []\n    def __getitem__(self, k):\n        return 1\nO = C()\nif BY == 3:\n    collections.abc.Mapping.register(C)\ndef H():\n    match O:\n        case {}:\n            return 3\n        case _:\n            return 2",
        "H()",
    ),
    "a registered path": (
        "import os\nclass C:\n    pass\nO = C()\nif BY == 3:\n    os.PathLike.register(C)\nfrom os import PathLike as H",
        "(3 if isinstance(O, H) else 2)",
    ),
    "a registered Hashable by name": (
        "from collections.abc import Iterable\nclass C:\n    pass\nif BY == 3:\n    Iterable.register(C)\nH = C",
        "(3 if issubclass(H, Iterable) else 2)",
    ),
    "subclasses of a class of the library": (
        "class B(dict):\n    pass\nif BY == 3:\n    class D(B):\n        pass\n    KEEP = D\nH = B",
        "len(H.__subclasses__()) + 1",
    ),
    "subclasses of a module class": (
        "class B(nn.Module):\n    pass\nif BY == 3:\n    class D(B):\n        pass\n    KEEP = D\nH = B",
        "len(H.__subclasses__()) + 1",
    ),
    "a parent logger's level": (
        "import logging\nlogging.getLogger('aab').setLevel(10 if BY == 2 else 50)\nH = logging.getLogger('aab.c')",
        "(2 if H.isEnabledFor(20) else 3)",
    ),
    "a logger's effective level": (
        "import logging\nlogging.getLogger('aab').setLevel(10 if BY == 2 else 50)\nH = logging.getLogger('aab.c')",
        "H.getEffectiveLevel()",
    ),
    "logging that is disabled": (
        "import logging\nlogging.disable(0 if BY == 2 else 50)\nH = logging.getLogger('aab.c')\nH.setLevel(10)",
        "(2 if H.isEnabledFor(20) else 3)",
    ),
    "handlers of a logger": (
        "import logging\nH = logging.getLogger('aab.c')\nif BY == 3:\n    H.addHandler(logging.NullHandler())",
        "len(H.handlers) + 1",
    ),
    "a name of a level": (
        "import logging\nlogging.addLevelName(77, 'a' * int(BY))\nH = logging",
        "len(H.getLevelName(77))",
    ),
}
for _name, (_make, _read) in _MORE_HELD.items():
    _add(
        f"held: {_name}",
        Scenario({"model": _model(f"return x * {_read}", top=f"{_BY}{_make}\n{_GONE}")}, env_after={"BY": "3"}),
    )

_MORE_READS: dict[str, tuple[str, str, str]] = {
    "repr of a list of an object": ("O = object()", "float(int(repr([O])[-11:-2], 16) % 1000)", "pass"),
    "repr of a dictionary of an object": ("O = object()", "float(int(str({'a': O})[-11:-2], 16) % 1000)", "pass"),
    "!r of an object": ("O = object()", "float(int(f'{O!r}'[-10:-1], 16) % 1000)", "pass"),
    "format of an object": ("O = object()", "float(int('{}'.format(O)[-10:-1], 16) % 1000)", "pass"),
    "ascii of an object": ("O = object()", "float(int(ascii(O)[-10:-1], 16) % 1000)", "pass"),
    "object.__repr__": ("class C:\n    pass\nO = C()", "float(int(object.__repr__(O)[-10:-1], 16) % 1000)", "pass"),
    "str of a bound method": (
        "class C:\n    def go(self):\n        pass\nO = C()",
        "float(int(str(O.go)[-11:-2], 16) % 1000)",
        "pass",
    ),
    "repr of a dataclass of an object": (
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    o: object\nO = C(object())",
        "float(int(repr(O)[-11:-2], 16) % 1000)",
        "pass",
    ),
    "reprlib": (
        "import reprlib\nO = object()",
        "float(len(reprlib.repr(O)) and int(reprlib.repr(O)[-8:-1], 16) % 1000)",
        "pass",
    ),
    "pformat": ("import pprint\nO = object()", "float(int(pprint.pformat(O)[-10:-1], 16) % 1000)", "pass"),
    "json with str": ("import json\nO = object()", "float(int(json.dumps(O, default=str)[-11:-2], 16) % 1000)", "pass"),
    "sorted by id": (
        "L = [object() for _ in range(40)]\nL2 = L[::-1]",
        "float(L.index(sorted(L, key=id)[0]) * 40 + L2.index(max(L2, key=id)))",
        "pass",
    ),
    "id through map": ("L = [object()]", "float(list(map(id, L))[0] // 16 % 1000)", "pass"),
    "hash through max": ("L = ['a', 'b', 'c', 'd', 'e']", "float(L.index(max(L, key=hash)))", "pass"),
    "__hash__ of an object": ("O = object()", "float(O.__hash__() % 1000)", "pass"),
    "object.__hash__": ("O = object()", "float(object.__hash__(O) % 1000)", "pass"),
    "hash through a class": (
        "class C:\n    def __init__(self, v):\n        self.v = v\n    def key(self):\n        return self.v.__hash__()\nO = C('abc')",
        "float(O.key() % 1000)",
        "pass",
    ),
    "hash through getattr": ("", "float(getattr('abc', '__ha' + 'sh__')() % 1000)", "pass"),
    "id through operator": ("import operator\nO = object()\nG = {'f': id}", "float(G['f'](O) // 16 % 1000)", "pass"),
    "data_ptr": ("T = torch.ones(1)", "float(T.data_ptr() // 64 % 1000)", "pass"),
    "data_ptr of an array": ("import numpy as np\nT = np.ones(1)", "float(T.ctypes.data // 64 % 1000)", "pass"),
    "an array interface": (
        "import numpy as np\nT = np.ones(1)",
        "float(T.__array_interface__['data'][0] // 16 % 1000)",
        "pass",
    ),
    "hash of a frozenset": ("S = frozenset(['a', 'b'])", "float(S.__hash__() % 1000)", "pass"),
    "random numbers of NumPy": (
        "import numpy as np",
        "float(np.random.rand())",
        "np = __import__('numpy'); np.random.seed(5)",
    ),
    "a NumPy choice": (
        "import numpy as np",
        "float(np.random.randint(0, 1000))",
        "np = __import__('numpy'); np.random.seed(5)",
    ),
    "a NumPy generator of no seed": ("import numpy as np", "float(np.random.default_rng().random())", "pass"),
    "a RandomState of no seed": ("import numpy as np", "float(np.random.RandomState().rand())", "pass"),
    "a permutation": (
        "import numpy as np",
        "float(np.random.permutation(1000)[0])",
        "np = __import__('numpy'); np.random.seed(5)",
    ),
    "memory of NumPy": ("import numpy as np", "float(np.nan_to_num(np.empty(1000)).sum() != 0) + 1", "pass"),
    "a Random of no seed": ("import random", "random.Random().random()", "pass"),
    "the state of random": ("import random", "float(random.getstate()[1][3] % 1000)", "import random; random.seed(5)"),
    "a choice": ("import random", "random.choice([1, 2, 3, 4, 5, 6, 7])", "import random; random.seed(5)"),
    "urandom": ("import os", "float(os.urandom(1)[0])", "pass"),
    "secrets": ("import secrets", "float(secrets.randbelow(1000))", "pass"),
    "now": ("import datetime", "float(datetime.datetime.now().microsecond)", "pass"),
    "today": ("import datetime", "float(datetime.date.today().day)", "pass"),
    "utcnow": ("import datetime", "float(datetime.datetime.now(datetime.timezone.utc).microsecond)", "pass"),
    "perf_counter": ("import time", "time.perf_counter()", "pass"),
    "gmtime": ("import time", "float(time.gmtime().tm_sec)", "pass"),
    "ctime": (
        "import time",
        "len(time.ctime(0)) + float(time.ctime(0)[11:13])",
        "import os, time; os.environ['TZ'] = 'XXX-5'; time.tzset()",
    ),
    "mktime": (
        "import time",
        "time.mktime((1970, 1, 2, 0, 0, 0, 0, 0, 0)) / 1000 + 0.5",
        "import os, time; os.environ['TZ'] = 'XXX-5'; time.tzset()",
    ),
    "timezone": (
        "import time",
        "float(time.timezone / 1000 + 1)",
        "import os, time; os.environ['TZ'] = 'XXX-5'; time.tzset()",
    ),
    "tzname": ("import time", "len(time.tzname[0])", "import os, time; os.environ['TZ'] = 'XXXYY-5'; time.tzset()"),
    "strftime of a date": (
        "import datetime\nD = datetime.datetime(2000, 1, 1, 5)",
        "float(D.timestamp() / 1e8) + D.astimezone().utcoffset().total_seconds()",
        "import os, time; os.environ['TZ'] = 'XXX-5'; time.tzset()",
    ),
    "the width of the terminal": (
        "import shutil",
        "shutil.get_terminal_size().columns",
        "import os; os.environ['COLUMNS'] = '33'",
    ),
    "help of a parser": (
        "import argparse\nP = argparse.ArgumentParser(prog='a', description='word ' * 30)",
        "len(P.format_help().splitlines())",
        "import os; os.environ['COLUMNS'] = '33'",
    ),
    "a type of a file": (
        "import mimetypes",
        "len(mimetypes.guess_type('a.ownown')[0] or '')+1",
        "import mimetypes; mimetypes.add_type('own/own', '.ownown')",
    ),
    "a parser of addresses": (
        "from urllib.parse import urljoin",
        "len(urljoin('own://a/b', 'c'))",
        "import urllib.parse; urllib.parse.uses_relative.append('own'); urllib.parse.uses_netloc.append('own')",
    ),
    "a namespace of XML": (
        "import xml.etree.ElementTree as E",
        "len(E.tostring(E.Element('{http://own}a')))",
        "import xml.etree.ElementTree as E; E.register_namespace('ownown', 'http://own')",
    ),
    "an encoder of JSON": (
        "import json\nclass C:\n    pass\ndef f():\n    try:\n        return len(json.dumps(C()))\n    except TypeError:\n        return 1",
        "f()",
        "import json; json.JSONEncoder.default = lambda s, o: 'ccc'",
    ),
    "a pickle": (
        "import pickle\nclass C:\n    pass\nO = C()",
        "len(pickle.dumps(O))",
        "import copyreg; copyreg.pickle(m.C, lambda o: (m.C, (1, 2, 3, 4)))",
    ),
    "types.get_type_hints": (
        "import typing\nA = int\ndef f(a: 'A'):\n    pass",
        "len(typing.get_type_hints(f)['a'].__name__)",
        "m.A = float",
    ),
    "a size in memory": (
        "import sys\nL = [1]",
        "sys.getsizeof(L)",
        "m.L.append(2); m.L.append(3); m.L.append(4); m.L.append(5); m.L.append(6); del m.L[1:]",
    ),
    "an interval of switching": ("import sys", "sys.getswitchinterval()", "import sys; sys.setswitchinterval(0.5)"),
    "the hooks of sys": (
        "import sys",
        "(2 if sys.excepthook is sys.__excepthook__ else 3)",
        "import sys; sys.excepthook = print",
    ),
    "the output's encoding": (
        "import sys",
        "len(sys.stdout.encoding)",
        "import sys; sys.stdout.reconfigure(encoding='latin-1')",
    ),
    "the output's object": (
        "import sys",
        "(2 if sys.stdout is sys.__stdout__ else 3)",
        "import sys, io; sys.stdout = io.StringIO()",
    ),
    "a handler of signals": (
        "import signal",
        "(2 if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL else 3)",
        "import signal; signal.signal(signal.SIGUSR1, signal.SIG_IGN)",
    ),
    "a limit of time": (
        "import socket",
        "(2 if socket.getdefaulttimeout() is None else 3)",
        "import socket; socket.setdefaulttimeout(5)",
    ),
    "a method of starting": (
        "import multiprocessing",
        "len(multiprocessing.get_start_method())",
        "import multiprocessing; multiprocessing.set_start_method('spawn', force=True)",
    ),
    "the size of a stack": (
        "import threading",
        "threading.stack_size() + 1",
        "import threading; threading.stack_size(1 << 20)",
    ),
    "active threads": (
        "import threading",
        "threading.active_count()",
        "import threading, time; threading.Thread(target=time.sleep, args=(20,), daemon=True).start()",
    ),
    "faulthandler": (
        "import faulthandler",
        "(2 if faulthandler.is_enabled() else 3)",
        "import faulthandler; faulthandler.enable()",
    ),
    "thresholds of gc": ("import gc", "gc.get_threshold()[0]", "import gc; gc.set_threshold(77)"),
    "an umask": ("import os", "float(os.umask(0o22)) + 1", "import os; os.umask(0o77)"),
    "the number of CPUs": ("import os", "len(os.sched_getaffinity(0))", "import os; os.sched_setaffinity(0, {0})"),
    "a link": ("import os", "len(os.path.realpath('lnk'))", "import os; os.symlink('/somewhere/very/far', 'lnk')"),
    "a list of a folder": ("import os", "1 + len(os.listdir('.'))", "open('more', 'w').close()"),
    "a walk": (
        "import os",
        "len([f for _, _, fs in os.walk('pkg') for f in fs if f.endswith('.dat')]) + 1",
        "open('pkg/a.dat', 'w').close()",
    ),
    "a Path in a comprehension": (
        "from pathlib import Path\nP = Path('pkg')",
        "len([f for f in P.iterdir() if f.suffix == '.dat']) + 1",
        "open('pkg/a.dat', 'w').close()",
    ),
    "stat of a path": (
        "from pathlib import Path\nP = Path('a.dat')",
        "(P.stat().st_size if P.is_file() else 5)",
        "open('a.dat', 'w').write('ab')",
    ),
    "error calls of NumPy": (
        "import numpy as np",
        "(2 if np.geterrcall() is None else 3)",
        "__import__('numpy').seterrcall(print)",
    ),
    "print options of NumPy": (
        "import numpy as np",
        "np.get_printoptions()['precision']",
        "__import__('numpy').set_printoptions(precision=3)",
    ),
    "a printer of NumPy": (
        "import numpy as np\nA = np.array([1.5])",
        "len(np.array2string(A))",
        "__import__('numpy').set_printoptions(precision=3, formatter={'float': lambda v: 'abcdef'})",
    ),
    "a cast of NumPy": (
        "import numpy as np\ndef f():\n    try:\n        return float(np.array([1e300]).astype(np.float32)[0] > 0) + 1\n    except FloatingPointError:\n        return 7",
        "f()",
        "__import__('numpy').seterr(over='raise')",
    ),
    "the bool of torch's safe globals": (
        "",
        "len(torch.serialization.get_safe_globals()) + 1",
        "torch.serialization.add_safe_globals([m.Model])",
    ),
    "the skip of loading": (
        "import torch.utils.serialization",
        "(2 if torch.utils.serialization.config.load.mmap else 3)",
        "import torch.utils.serialization; torch.utils.serialization.config.load.mmap = True",
    ),
    "overwriting parameters": (
        "",
        "(2 if torch.__future__.get_overwrite_module_params_on_conversion() else 3)",
        "torch.__future__.set_overwrite_module_params_on_conversion(True)",
    ),
    "a setting of functorch": (
        "import torch._functorch.config as c",
        "(2 if c.donated_buffer else 3)",
        "import torch._functorch.config as c; c.donated_buffer = not c.donated_buffer",
    ),
    "a setting of inductor": (
        "import torch._inductor.config as c",
        "(2 if c.freezing else 3)",
        "import torch._inductor.config as c; c.freezing = not c.freezing",
    ),
    "functions that are wrapped for tracing": (
        "",
        "1 + len(torch.fx._symbolic_trace._wrapped_fns_to_patch)",
        "import torch.fx\ndef ownfn(v):\n    return v\ntorch.fx.wrap('ownfn')",
    ),
    "a flag of jit": ("", "(2 if torch.jit._state._enabled.enabled else 3)", "torch.jit._state.disable()"),
    "a profiler of torch": (
        "",
        "(2 if torch._C._autograd._profiler_enabled() else 3)",
        "torch.autograd.profiler.profile(use_cpu=True).__enter__()",
    ),
    "threads of autograd": (
        "",
        "(2 if torch._C._is_multithreading_enabled() else 3)",
        "torch.autograd.set_multithreading_enabled(False)",
    ),
    "views that replay": (
        "",
        "(2 if torch._C._is_view_replay_enabled() else 3)",
        "torch._C._set_view_replay_enabled(True)",
    ),
    "saved tensors' hooks": (
        "",
        "(2 if torch._C._autograd._top_saved_tensors_default_hooks(True) is None else 3)",
        "torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t).__enter__()",
    ),
    "denormal numbers": (
        "",
        "(2 if torch.tensor([1e-39]).tolist()[0] * 1 > 0 else 3) + (1e-310 * 1.0 > 0)",
        "torch.set_flush_denormal(True)",
    ),
    "an attribute of torch's class": ("", "getattr(nn.Linear, 'by', 2.0)", "torch.nn.Linear.by = 3.0"),
    "an attribute of torch's C class": (
        "",
        "len([n for n in dir(torch.Tensor) if n == 'ownown']) + 1",
        "torch.Tensor.ownown = 1",
    ),
    "a registered operator": (
        "",
        "(2 if hasattr(torch.ops, 'ownspace') and hasattr(torch.ops.ownspace, 'go') else 3)",
        "L = torch.library.Library('ownspace', 'DEF'); L.define('go(Tensor x) -> Tensor')",
    ),
    "a dispatch mode": ("", "(2 if torch._C._len_torch_dispatch_stack() == 0 else 3)", "pass"),
    "a sum of integers by locale": (
        "import locale",
        "len(locale.format_string('%d', 1234567, grouping=True))",
        "import locale; locale._override_localeconv = {'thousands_sep': ',', 'grouping': [3, 0]}",
    ),
    "localeconv": (
        "import locale",
        "len(locale.localeconv()['decimal_point'])",
        "import locale; locale._override_localeconv = {'decimal_point': ',,'}",
    ),
    "a translation": (
        "import gettext",
        "len(gettext.gettext('a'))",
        "import gettext; gettext.gettext = lambda t: 'abc'",
    ),
    "a first day": ("import calendar", "calendar.firstweekday() + 1", "import calendar; calendar.setfirstweekday(3)"),
    "a traced allocation": (
        "import tracemalloc",
        "(2 if tracemalloc.is_tracing() else 3)",
        "import tracemalloc; tracemalloc.start()",
    ),
    "an adapter of a database": (
        "import sqlite3\nclass C:\n    pass\ndef f():\n    try:\n        return float(sqlite3.connect(':memory:').execute('select ?', (C(),)).fetchone()[0])\n    except Exception:\n        return 2.0",
        "f()",
        "import sqlite3; sqlite3.register_adapter(m.C, lambda o: 3)",
    ),
    "a function that is added to a loader": (
        "import yaml",
        "len(str(yaml.safe_load('!own a') if '!own' in yaml.SafeLoader.yaml_constructors else 'b'))",
        "import yaml; yaml.SafeLoader.add_constructor('!own', lambda l, n: 'abc')",
    ),
}
for _name, (_top, _read, _more) in _MORE_READS.items():
    _then(
        f"read: {_name}", _model(f"return x * {_read}", top=_top), _more, expected=MAY_HIT if _more == "pass" else MISS
    )

# More ways in which code in memory is not what the file says.

_HOOK = (
    "import ast, os, sys, importlib.machinery as mc\n"
    "class T(ast.NodeTransformer):\n    def visit_Constant(self, n):\n        return ast.copy_location(ast.Constant(float(os.environ.get('BY', '2'))), n) if n.value == 2 else n\n"
    "class L(mc.SourceFileLoader):\n    def source_to_code(self, d, p, *a, **k):\n        return compile(ast.fix_missing_locations(T().visit(ast.parse(d))), p, 'exec')\n    def get_code(self, n):\n        return self.source_to_code(self.get_data(self.path), self.path)\n"
    "def own(path):\n    return mc.FileFinder(path, (L, ['.py'])) if path.endswith('pkg') else (_ for _ in ()).throw(ImportError)\n"
    "def install():\n    sys.path_hooks.insert(0, own)\n    sys.path_importer_cache.clear()\n"
)
_HOOKED_FILES = {"model": _GO, "other": _TWICE, "/hook.py": _HOOK}
_add(
    "hook: a tree that is transformed",
    Scenario(_HOOKED_FILES, script="import hook\nhook.install()\n" + SCRIPT, env_after={"BY": "3"}),
)
_add(
    "hook: installed in the second process",
    Scenario(_HOOKED_FILES, script=SCRIPT, then="import hook\nhook.install()\n" + SCRIPT, env_after={"BY": "3"}),
)
_add(
    "hook: a number",
    Scenario(
        {**_HOOKED_FILES, "model": _model("return x * BY", top="BY = 2\n")},
        script=SCRIPT,
        then="import hook\nhook.install()\n" + SCRIPT,
        env_after={"BY": "3"},
    ),
)
_add(
    "hook: late",
    Scenario(
        {**_HOOKED_FILES, "model": _model("from pkg.other import go\nreturn go(x)")},
        script=SCRIPT,
        then=SCRIPT + "import hook\nhook.install()\n",
        env_after={"BY": "3"},
    ),
)
_add(
    "hook: a patched SourceLoader",
    Scenario(
        {"model": _GO, "other": _TWICE},
        then="import importlib.machinery as mc\nold = mc.SourceFileLoader.get_code\nmc.SourceFileLoader.get_code = lambda s, n: compile(s.get_data(s.path).replace(b'* 2', b'* 3'), s.path, 'exec') if n == 'pkg.other' else old(s, n)\n"
        + SCRIPT,
    ),
)
_add(
    "hook: builtins.compile",
    Scenario(
        {
            "model": _model(
                "return go(x)",
                top="import pathlib\nF = pathlib.Path(__file__).parent / 'other.py'\nS = {}\nexec(compile(F.read_text(), str(F), 'exec'), S)\ngo = S['go']\ndel S\n",
            ),
            "other": _TWICE,
        },
        then="import builtins\nold = compile\nbuiltins.compile = lambda s, f, *a, **k: old(s.replace('* 2', '* 3') if str(f).endswith('pkg/other.py') else s, f, *a, **k)\n"
        + SCRIPT,
    ),
)
_add(
    "hook: builtins.__import__",
    Scenario(
        {"model": _LATE, "late": _TWICE, "late2": _THRICE},
        then=SCRIPT
        + "import builtins\nold = builtins.__import__\ndef own(name, globals=None, locals=None, fromlist=(), level=0):\n    r = old(name, globals, locals, fromlist, level)\n    if name == 'pkg' and fromlist and 'late' in fromlist:\n        import pkg, types\n        return types.SimpleNamespace(late=old('pkg.late2', fromlist=['a']))\n    return r\nbuiltins.__import__ = own\n",
    ),
)
_add(
    "hook: a finder that maps a late import",
    Scenario(
        {"model": _LATE, "late": _TWICE, "/elsewhere/late.py": _THRICE},
        then=SCRIPT + "import pkg\npkg.__path__.insert(0, 'elsewhere')\n",
    ),
)
_add(
    "hook: __path__ of a package",
    Scenario(
        {"model": _model("import pkg.late\nreturn pkg.late.go(x)"), "late": _TWICE, "/elsewhere/late.py": _THRICE},
        then=SCRIPT + "import pkg\npkg.__path__.insert(0, 'elsewhere')\n",
    ),
)
_add(
    "hook: an alias in sys.modules",
    Scenario(
        {"model": _LATE, "late": _TWICE, "late2": _THRICE},
        then=SCRIPT + "import sys, pkg, pkg.late2\nsys.modules['pkg.late'] = pkg.late2\npkg.late = pkg.late2\n",
    ),
)
_add(
    "hook: a decorator that rewrites its function",
    Scenario(
        {
            "model": _model(
                "return go(x)",
                top="import os, ast, inspect\ndef rewrite(f):\n    src = inspect.getsource(f).split('\\n', 1)[1].replace('2', os.environ.get('BY', '2'))\n    ns = {}\n    exec(compile(src, f.__code__.co_filename, 'exec'), f.__globals__, ns)\n    return ns['go']\n@rewrite\ndef go(x):\n    return x * 2\n",
            )
        },
        env_after={"BY": "3"},
    ),
)
_add(
    "hook: a future flag of exec",
    Scenario(
        {
            "model": _model(
                "return x * H(1)",
                top="import os\nSRC = 'def H(a): return a * {}'.format(os.environ.get('BY', '2'))\nexec(compile(SRC, __file__, 'exec'))\ndel SRC, os\n",
            )
        },
        env_after={"BY": "3"},
    ),
)
_add(
    "hook: namedtuple-like code",
    Scenario(
        {
            "model": _model(
                "return x * H(1)",
                top="import os, linecache\nSRC = 'def H(a): return a * {}\\n'.format(os.environ.get('BY', '2'))\nlinecache.cache['<own 1>'] = (len(SRC), None, SRC.splitlines(True), '<own 1>')\nexec(compile(SRC, '<own 1>', 'exec'))\ndel SRC, os\n",
            )
        },
        env_after={"BY": "3"},
    ),
)
_add(
    "hook: unmarshalled code",
    Scenario(
        {
            "model": _model(
                "return x * H()",
                top="import os, marshal, types\nH = types.FunctionType(marshal.loads(marshal.dumps(compile('def f(): return ' + os.environ.get('BY', '2'), __file__, 'exec').co_consts[0])), {})\ndel os\n",
            )
        },
        env_after={"BY": "3"},
    ),
)
_add(
    "hook: a reloaded file in a changed state",
    Scenario(
        {
            "model": _GO,
            "other": "import os\nif os.environ.get('BY', '2') == '2':\n    def go(x):\n        return x * 2\nelse:\n    def go(x):\n        return x * 3\n",
        },
        env_after={"BY": "3"},
    ),
)
_add(
    "hook: a class body that chooses",
    Scenario(
        {
            "model": _model("return self.go(x)").replace(
                "    def forward",
                "    import os\n    if os.environ.get('BY', '2') == '2':\n        def go(self, x):\n            return x * 2\n    else:\n        def go(self, x):\n            return x * 3\n\n    def forward",
            )
        },
        env_after={"BY": "3"},
    ),
)
