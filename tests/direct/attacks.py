"""More pairs of two processes: things that users do between two runs, and ways in which they could go unnoticed."""

from __future__ import annotations

from tests.direct.pairs import HIT, Pair, _edited, _model, _one

PAIRS: dict[str, Pair] = {}
_SCRIPT = "from pkg.model import Model\nmodel = Model().eval()\n"


def _add(name: str, pair: Pair) -> None:
    assert name not in PAIRS
    PAIRS[name] = pair


def _env(text: str, **files: str) -> Pair:
    """Return a pair of which a number is read from the environment when modules are imported."""
    return Pair({"model": text, **files}, environ={"BY": "3"})


_BY = "import os\nBY = float(os.environ.get('BY', '2'))\n"


def _set(text: str, more: str, **files: str) -> Pair:
    """Return a pair of which the second script does more."""
    return Pair({"model": text, **files}, then=f"{_SCRIPT}import pkg.model as m\n{more}\n")


_add("a number in a list of a dict", _env(_model("T = {'a': [{'b': BY}]}\n", "return x * T['a'][0]['b']", top=_BY)))
_add(
    "a number in a closure of a closure",
    _env(
        _model(
            "def a(by):\n    def b():\n        def c(x):\n            return x * by\n        return c\n    return b()\nC = a(BY)\n",
            "return C(x)",
            top=_BY,
        )
    ),
)
_add(
    "a number in a default of a lambda",
    _env(_model("", "return self.f(x)", top=_BY, init="self.f = lambda x, by=BY: x * by")),
)
_add(
    "a number in a bound method",
    _env(
        _model(
            "class A:\n    def __init__(self):\n        self.by = BY\n    def go(self, x):\n        return x * self.by\nGO = A().go\n",
            "return GO(x)",
            top=_BY,
        )
    ),
)
_add(
    "a number in a class that is a value",
    _env(_model("class A:\n    by = BY\n", "return x * self.k.by", top=_BY, init="self.k = A")),
)
_add(
    "a number in a metaclass",
    _env(_model("class M(type):\n    by = BY\nclass A(metaclass=M):\n    pass\n", "return x * A.by", top=_BY)),
)
_add(
    "a number in a property's closure",
    _env(
        _model(
            "def p(by):\n    return property(lambda self: by)\nclass A:\n    by = p(BY)\n", "return x * A().by", top=_BY
        )
    ),
)
_add(
    "a number in a descriptor",
    _env(
        _model(
            "class D:\n    def __init__(self, v):\n        self.v = v\n    def __get__(self, o, t):\n        return self.v\nclass A:\n    by = D(BY)\n",
            "return x * A.by",
            top=_BY,
        )
    ),
)
_add(
    "a number in a partialmethod",
    _env(
        _model(
            "class A:\n    def go(self, x, by):\n        return x * by\n    g = functools.partialmethod(go, by=BY)\n",
            "return A().g(x)",
            top=_BY + "import functools\n",
        )
    ),
)
_add(
    "a number in singledispatch",
    _env(
        _model(
            "@functools.singledispatch\ndef go(x):\n    return x\ndef r(by):\n    go.register(torch.Tensor, lambda x: x * by)\nr(BY)\n",
            "return go(x)",
            top=_BY + "import functools\n",
        )
    ),
)
_add(
    "a number in a ChainMap",
    _env(_model("C = collections.ChainMap({}, {'by': BY})\n", "return x * C['by']", top=_BY + "import collections\n")),
)
_add(
    "a number in a UserDict",
    _env(_model("C = collections.UserDict(by=BY)\n", "return x * C['by']", top=_BY + "import collections\n")),
)
_add(
    "a number in a namespace",
    _env(_model("C = types.SimpleNamespace(by=BY)\n", "return x * C.by", top=_BY + "import types\n")),
)
_add(
    "a number in a mapping proxy",
    _env(_model("C = types.MappingProxyType({'by': BY})\n", "return x * C['by']", top=_BY + "import types\n")),
)
_add(
    "a number in a context variable",
    _env(
        _model("C = contextvars.ContextVar('c', default=BY)\n", "return x * C.get()", top=_BY + "import contextvars\n")
    ),
)
_add(
    "a number in a set context variable",
    _env(
        _model("C = contextvars.ContextVar('c')\nC.set(BY)\n", "return x * C.get()", top=_BY + "import contextvars\n")
    ),
)
_add(
    "a number in a weak dictionary",
    _env(
        _model(
            "class K:\n    pass\nKEY = K()\nW = weakref.WeakKeyDictionary()\nW[KEY] = BY\n",
            "return x * W[KEY]",
            top=_BY + "import weakref\n",
        )
    ),
)
_add(
    "a number in slots",
    _env(_model("class A:\n    __slots__ = ('by',)\nO = A()\nO.by = BY\n", "return x * O.by", top=_BY)),
)
_add(
    "a number in a subclass of int",
    _env(_model("class I(int):\n    pass\nO = I(2)\nO.by = BY\n", "return x * O.by", top=_BY)),
)
_add(
    "a number in a subclass of str",
    _env(_model("class S(str):\n    pass\nO = S('a')\nO.by = BY\n", "return x * O.by", top=_BY)),
)
_add(
    "a number in a subclass of dict",
    _env(_model("class D(dict):\n    pass\nO = D()\nO.by = BY\n", "return x * O.by", top=_BY)),
)
_add("a number in an exception", _env(_model("O = ValueError(BY)\n", "return x * O.args[0]", top=_BY)))
_add(
    "a number in a fraction",
    _env(_model("O = fractions.Fraction(int(BY), 3)\n", "return x * float(O)", top=_BY + "import fractions\n")),
)
_add(
    "a number in an array",
    _env(_model("O = np.array([BY])\n", "return x * float(O[0])", top=_BY + "import numpy as np\n")),
)
_add(
    "a number in an array of Python",
    _env(_model("O = array.array('d', [BY])\n", "return x * O[0]", top=_BY + "import array\n")),
)
_add("a number in a slice", _env(_model("O = slice(0, int(BY))\n", "return x[O] * 2", top=_BY)))
_add("a number in a range", _env(_model("O = range(int(BY))\n", "return x * len(O)", top=_BY)))
_add(
    "a number in an enum",
    _env(_model("class E(enum.Enum):\n    A = BY\n", "return x * E.A.value", top=_BY + "import enum\n")),
)
_add(
    "a flag of an enum",
    _env(
        _model(
            "class E(enum.Flag):\n    A = 1\n    B = 2\nO = E.A if BY == 2 else E.A | E.B\n",
            "return x * O.value",
            top=_BY + "import enum\n",
        )
    ),
)
_add(
    "a number in a lock's neighbour",
    _env(
        _model(
            "class A:\n    def __init__(self):\n        self.lock = threading.Lock()\n        self.by = BY\nO = A()\n",
            "return x * O.by",
            top=_BY + "import threading\n",
        )
    ),
)
_add(
    "a number in a pattern",
    _env(_model("O = re.compile('a' * int(BY))\n", "return x * len(O.pattern)", top=_BY + "import re\n")),
)
_add(
    "a number in a path",
    _env(_model("O = pathlib.PurePath('a' * int(BY))\n", "return x * len(str(O))", top=_BY + "import pathlib\n")),
)
_add("a number in bytes", _env(_model("O = bytes(int(BY))\n", "return x * len(O)", top=_BY)))
_add(
    "a number in a deque",
    _env(
        _model(
            "O = collections.deque([1, 2, 3], maxlen=int(BY))\n",
            "return x * O[-1] * len(O)",
            top=_BY + "import collections\n",
        )
    ),
)
_add(
    "a number in a date",
    _env(_model("O = datetime.timedelta(days=BY)\n", "return x * O.days", top=_BY + "import datetime\n")),
)
_add(
    "a number in globals made by exec",
    _env(_model("S = {'BY': BY}\nexec('def go(x):\\n    return x * BY', S)\nGO = S['go']\n", "return GO(x)", top=_BY)),
)
_add(
    "code made by exec",
    _env(_model("S = {}\nexec(f'def go(x):\\n    return x * {BY}', S)\nGO = S['go']\n", "return GO(x)", top=_BY)),
)
_add(
    "code made by exec in its own module",
    _env(_model("exec(f'def go(x):\\n    return x * {BY}')\n", "return go(x)", top=_BY)),
)
_add(
    "a method made by exec",
    _env(
        _model(
            "S = {}\nexec(f'def forward(self, x):\\n    return x * {BY}', S)\nclass A(nn.Module):\n    forward = S['forward']\n",
            "return self.a(x)",
            top=_BY,
            init="self.a = A()",
        )
    ),
)
_add(
    "a method set on the class",
    _set(
        _model(
            "class A(nn.Module):\n    def forward(self, x):\n        return x * 2\n",
            "return self.a(x)",
            init="self.a = A()",
        ),
        "m.A.forward = lambda self, x: x * 3",
    ),
)
_add(
    "__call__ of a class",
    _set(
        _model(
            "class A(nn.Module):\n    def forward(self, x):\n        return x * 2\n",
            "return self.a(x)",
            init="self.a = A()",
        ),
        "m.A.__call__ = lambda self, x: x * 3",
    ),
)
_add(
    "__code__ of a method",
    _set(
        _model(
            "class A(nn.Module):\n    def forward(self, x):\n        return x * 2\n",
            "return self.a(x)",
            init="self.a = A()",
        ),
        "m.A.forward.__code__ = (lambda self, x: x * 3).__code__",
    ),
)
_add(
    "__code__ of a function",
    _set(
        _model("def go(x):\n    return x * 2\ndef no(x):\n    return x * 3\n", "return go(x)"),
        "m.go.__code__ = m.no.__code__",
    ),
)
_add(
    "the class of an object",
    _set(
        _model("class A:\n    by = 2\nclass B:\n    by = 3\n", "return x * self.o.by", init="self.o = A()"),
        "model.o.__class__ = m.B",
    ),
)
_add(
    "the class of a module",
    _set(
        _model(
            "class A(nn.Module):\n    def forward(self, x):\n        return x * 2\nclass B(A):\n    def forward(self, x):\n        return x * 3\n",
            "return self.a(x)",
            init="self.a = A()",
        ),
        "model.a.__class__ = m.B",
    ),
)
_add(
    "bases of a class",
    _set(
        _model("class A:\n    by = 2\nclass B:\n    by = 3\nclass C(A):\n    pass\n", "return x * C.by"),
        "m.C.__bases__ = (m.B,)",
    ),
)
_add(
    "a swapped method of the class",
    _set(
        _model(
            "class A(nn.Module):\n    def forward(self, x):\n        return x * 2\n    def other(self, x):\n        return x * 3\n",
            "return self.a(x)",
            init="self.a = A()",
        ),
        "m.A.forward = m.A.other",
    ),
)
_add(
    "a builtin in builtins",
    _set(_model("", "return x * pow(2.0, 2)"), "import builtins\nbuiltins.pow = lambda *a: 3.0"),
)
_add("a global that hides a builtin", _set(_model("", "return x * len([1, 2])"), "m.len = lambda a: 3"))
_add(
    "a function of the library",
    _set(_model("", "return x * math.sqrt(4.0)", top="import math\n"), "math = m.math\nmath.sqrt = lambda a: 3.0"),
)
_add(
    "a function of the library by name",
    _set(
        _model("", "return x * reduce(lambda a, b: a + b, [1, 2])", top="from functools import reduce\n"),
        "m.reduce = lambda f, a: 5",
    ),
)
_add(
    "a Python function of the library",
    _set(
        _model("", "return x * statistics.mean([1, 3])", top="import statistics\n"),
        "import statistics\nstatistics.mean = lambda a: 5",
    ),
)
_add(
    "a global of a module of the library",
    _set(
        _model("", "return x * float(textwrap.dedent('2'))", top="import textwrap\n"),
        "import textwrap\ntextwrap.dedent.__code__ = (lambda text: '3').__code__",
    ),
)
_add(
    "a method of torch's layer",
    _set(
        _model("", "return self.d(x)", init="self.d = nn.LeakyReLU()"),
        "nn = torch.nn\nnn.LeakyReLU.forward = lambda self, x: x * 5",
    ),
)
_add(
    "a default of torch's layer's method",
    _set(
        _model("", "return self.d(x)", init="self.d = nn.LeakyReLU()"),
        "torch.nn.LeakyReLU.forward.__code__ = (lambda self, input: input * 5).__code__",
    ),
)
_add(
    "a method of a base of torch's layer",
    _set(
        _model("", "return self.d(x)", init="self.d = nn.BatchNorm1d(4)"),
        "torch.nn.modules.batchnorm._BatchNorm.forward = lambda self, x: x * 5",
    ),
)
_add(
    "a class attribute of torch's layer",
    _set(
        _model(
            "class A(nn.ReLU):\n    def forward(self, x):\n        return x * self.by\n",
            "return self.d(x)",
            top="nn.ReLU.by = 2.0\n",
            init="self.d = A()",
        ),
        "torch.nn.ReLU.by = 3.0",
    ),
)
_add(
    "__torch_function__ of a mode",
    _set(
        _model("", "return x * 2"),
        "from torch.overrides import TorchFunctionMode\nclass M(TorchFunctionMode):\n    def __torch_function__(self, f, t, a=(), k=None):\n        return f(*a, **(k or {}))\nM().__enter__()",
    ),
)
_add(
    "a hook of an instance",
    _set(
        _model("", "return self.d(x)", init="self.d = nn.Linear(4, 4)"),
        "model.d.register_forward_hook(lambda *a: a[2] * 2)",
    ),
)
_add(
    "a hook's closure",
    Pair(
        {
            "model": _model(
                "def hook(by):\n    return lambda m, a, o: o * by\n",
                "return self.d(x)",
                init="self.d = nn.Linear(4, 4)",
            )
        },
        script=f"{_SCRIPT}import pkg.model as m\nmodel.d.register_forward_hook(m.hook(2))\n",
        then=f"{_SCRIPT}import pkg.model as m\nmodel.d.register_forward_hook(m.hook(3))\n",
    ),
)
_add(
    "forward of an instance",
    _set(_model("", "return self.d(x)", init="self.d = nn.Linear(4, 4)"), "model.d.forward = lambda x: x * 2"),
)
_add(
    "a buffer of other values",
    Pair(
        {"model": _model("", "return x * self.b", init="self.register_buffer('b', torch.tensor(2), persistent=False)")},
        then=f"{_SCRIPT}model.b.fill_(3)\n",
    ),
)
_add(
    "a saved buffer of other values read as a number",
    Pair(
        {"model": _model("", "return x[:, : self.n]", init="self.register_buffer('b', torch.tensor(2))\nself.n = 2")},
        then=f"{_SCRIPT}model.n = 3\n",
    ),
)
_add(
    "a lazily imported file",
    Pair(
        {
            "model": _model("", "from pkg import late\n        return late.go(x)"),
            "late": "def go(x):\n    return x * 2\n",
        },
        {"late": "def go(x):\n    return x * 3\n"},
    ),
)
_add(
    "a lazily imported number",
    Pair(
        {"model": _model("", "import pkg.late as late\n        return x * late.BY"), "late": _BY}, environ={"BY": "3"}
    ),
)
_add(
    "a name of a lazily imported file",
    Pair({"model": _model("", "from pkg.late import BY\n        return x * BY"), "late": _BY}, environ={"BY": "3"}),
)
_add(
    "a file behind a star",
    Pair(
        {
            "model": _model("", "return go(x)", top="from pkg.other import *\n"),
            "other": "def go(x):\n    return x * 2\n",
        },
        {"other": "def go(x):\n    return x * 3\n"},
    ),
)
_add(
    "a file two imports away",
    Pair(
        {
            "model": _model("", "return go(x)", top="from pkg.a import go\n"),
            "a": "from pkg.b import go\n",
            "b": "def go(x):\n    return x * 2\n",
        },
        {"b": "def go(x):\n    return x * 3\n"},
    ),
)
_add(
    "a decorator's file",
    Pair(
        {
            "model": _model("@deco\ndef go(x):\n    return x\n", "return go(x)", top="from pkg.d import deco\n"),
            "d": "import functools\ndef deco(f):\n    @functools.wraps(f)\n    def g(x):\n        return f(x) * 2\n    return g\n",
        },
        {
            "d": "import functools\ndef deco(f):\n    @functools.wraps(f)\n    def g(x):\n        return f(x) * 3\n    return g\n"
        },
    ),
)
_add(
    "a registry filled elsewhere",
    Pair(
        {
            "model": _model("", "return TABLE['go'](x)", top="from pkg.reg import TABLE\nimport pkg.fill\n"),
            "reg": "TABLE = {}\n",
            "fill": "from pkg.reg import TABLE\ndef go(x):\n    return x * 2\nTABLE['go'] = go\n",
        },
        {"fill": "from pkg.reg import TABLE\ndef go(x):\n    return x * 3\nTABLE['go'] = go\n"},
    ),
)
_add(
    "a plugin that patches",
    Pair(
        {"model": _model("def go(x):\n    return x * 2\n", "return go(x)"), "patch": "import pkg.model as m\n"},
        {"patch": "import pkg.model as m\nm.go = lambda x: x * 3\n"},
        script=f"import pkg.patch\n{_SCRIPT}",
    ),
)
_add(
    "the package's __init__",
    Pair(
        {"model": _model("", "return x * pkg.BY", top="import pkg\n"), "__init__": "BY = 2.0\n"},
        {"__init__": "BY = 3.0\n"},
    ),
)
_add(
    "a cached function's answer",
    _set(
        _model(
            "STATE = [2.0]\n@functools.lru_cache\ndef by():\n    return STATE[0]\nby()\n",
            "return x * by()",
            top="import functools\n",
        ),
        "m.STATE[0] = 3.0\nm.by.cache_clear()\nm.by()\nm.STATE[0] = 2.0",
    ),
)
_add(
    "a cached function that was not called",
    Pair(
        {
            "model": _model(
                "STATE = [2.0]\n@functools.lru_cache\ndef by():\n    return STATE[0]\n",
                "return x * by()",
                top="import functools\n",
            )
        },
        then=f"{_SCRIPT}import pkg.model as m\nm.STATE[0] = 3.0\nm.by()\nm.STATE[0] = 2.0\n",
    ),
)
_add(
    "a cached property",
    _set(
        _model(
            "class C:\n    raw = 2.0\n    @functools.cached_property\n    def by(self):\n        return self.raw\n",
            "return x * self.c.by",
            top="import functools\n",
            init="self.c = C()\nself.c.by",
        ),
        "model.c.__dict__['by'] = 3.0",
    ),
)
_add(
    "an unordered class registry",
    Pair(
        {
            "model": _model(
                "class A:\n    by = 2\nclass B:\n    by = 3\nS = {A, B}\n", "return x * [k.by for k in S][0]"
            )
        },
        environ={"PYTHONHASHSEED": "7"},
    ),
)
_add(
    "a set in an argument of a helper",
    Pair(
        {
            "model": _model(
                "def first(s):\n    return [len(a) for a in s][0]\n",
                "return x * first(frozenset(['a', 'bb', 'ccc', 'dddd', 'eeeee']))",
            )
        },
        environ={"PYTHONHASHSEED": "7"},
    ),
)
_add(
    "a union of sets",
    Pair(
        {
            "model": _model(
                "",
                "s = set(self.n)\n        return x * [len(a) for a in s | {'zzzzzz'}][0]",
                init="self.n = ['a', 'bb', 'ccc']",
            )
        },
        environ={"PYTHONHASHSEED": "7"},
    ),
)
_add(
    "a set that is popped",
    Pair(
        {"model": _model("", "s = set(self.n)\n        return x * len(s.pop())", init="self.n = ['a', 'bb', 'ccc']")},
        environ={"PYTHONHASHSEED": "7"},
    ),
)
_add(
    "a set that is unpacked",
    Pair(
        {"model": _model("", "a, *_ = set(self.n)\n        return x * len(a)", init="self.n = ['a', 'bb', 'ccc']")},
        environ={"PYTHONHASHSEED": "7"},
    ),
)
_add(
    "a set that is only asked",
    Pair(
        {
            "model": _model(
                "", "s = set(self.n)\n        return x * 2 if 'a' in s else x", init="self.n = ['a', 'bb', 'ccc']"
            )
        },
        environ={"PYTHONHASHSEED": "7"},
        expected=HIT,
    ),
)
_add(
    "a sorted set",
    Pair(
        {"model": _model("", "return x * len(sorted(set(self.n))[0])", init="self.n = ['a', 'bb', 'ccc']")},
        environ={"PYTHONHASHSEED": "7"},
        expected=HIT,
    ),
)
_add(
    "a level that is asked for",
    _set(
        _model(
            "LOG = logging.getLogger('pkg')\n", "return x * 2 if LOG.isEnabledFor(10) else x", top="import logging\n"
        ),
        "import logging\nlogging.getLogger('pkg').setLevel(10)",
    ),
)
_add(
    "an argument of sys",
    _set(_model("", "return x * len(sys.argv)", top="import sys\n"), "import sys\nsys.argv.append('a')"),
)
_add(
    "a recursion limit",
    _set(
        _model("", "return x * sys.getrecursionlimit()", top="import sys\n"), "import sys\nsys.setrecursionlimit(3000)"
    ),
)
_add(
    "a default dtype",
    _set(_model("", "return x.to(torch.get_default_dtype())"), "torch.set_default_dtype(torch.float64)"),
)
_add(
    "an integer that is a float",
    Pair({"model": _model("", "return x // self.by", init="self.by = 2")}, then=f"{_SCRIPT}model.by = 2.0\n"),
)
_add(
    "a negative zero",
    Pair(
        {"model": _model("", "return x * math.copysign(1.0, self.by)", top="import math\n", init="self.by = 0.0")},
        then=f"{_SCRIPT}model.by = -0.0\n",
    ),
)
_add(
    "True for one",
    Pair(
        {"model": _model("", "return x * (2 if self.by is True else 3)", init="self.by = True")},
        then=f"{_SCRIPT}model.by = 1\n",
    ),
)
_add(
    "the order of a dictionary",
    Pair(
        {"model": _model("", "return x * list(self.d.values())[0]", init="self.d = {'a': 2, 'b': 3}")},
        then=f"{_SCRIPT}model.d = {{'b': 3, 'a': 2}}\n",
    ),
)
_add(
    "a tuple for a list",
    Pair(
        {"model": _model("", "return x * (2 if isinstance(self.d, list) else 3)", init="self.d = [1]")},
        then=f"{_SCRIPT}model.d = (1,)\n",
    ),
)
_add(
    "strides of a constant",
    Pair(
        {"model": _model("", "return x * self.c.stride()[0]", init="self.c = torch.ones(4, 4)[:, :2]")},
        then=f"{_SCRIPT}model.c = model.c.contiguous()\n",
    ),
)
_add(
    "an attribute of a tensor",
    Pair(
        {"model": _model("", "return x * self.c.by", init="self.c = torch.ones(4)\nself.c.by = 2.0")},
        then=f"{_SCRIPT}model.c.by = 3.0\n",
    ),
)
_add(
    "weights of other values",
    Pair(
        {"model": _model("", "return x * self.w", init="self.w = nn.Parameter(torch.ones(4))")},
        then=f"{_SCRIPT}model.w.data.mul_(3)\n",
        expected=HIT,
    ),
)
_add(
    "__getattr__ of a module of Python",
    Pair(
        {
            "model": _model("", "return x * other.ANY", top="from pkg import other\n"),
            "other": f"{_BY}def __getattr__(name):\n    return BY\n",
        },
        environ={"BY": "3"},
    ),
)
_add(
    "a class decorated in another file",
    Pair(
        {
            "model": _model(
                "@deco\nclass A(nn.Module):\n    def forward(self, x):\n        return x * self.by\n",
                "return self.a(x)",
                top="from pkg.d import deco\n",
                init="self.a = A()",
            ),
            "d": "def deco(c):\n    c.by = 2.0\n    return c\n",
        },
        {"d": "def deco(c):\n    c.by = 3.0\n    return c\n"},
    ),
)
_add(
    "__init_subclass__ of a base",
    Pair(
        {
            "model": _model(
                "class B:\n    def __init_subclass__(cls):\n        cls.by = BY\nclass A(B):\n    pass\n",
                "return x * A.by",
                top="from pkg.d import BY\n",
            ),
            "d": "BY = 2.0\n",
        },
        {"d": "BY = 3.0\n"},
    ),
)
_add(
    "an operator overloaded",
    Pair(
        {
            "model": _model(
                "class N:\n    def __init__(self, v):\n        self.v = v\n    def __mul__(self, o):\n        return o * (self.v + EXTRA)\nEXTRA = BY\n",
                "return self.n * x",
                top=_BY,
                init="self.n = N(1.0)",
            )
        },
        environ={"BY": "3"},
    ),
)
_add(
    "a context manager's global",
    Pair(
        {
            "model": _model(
                "@contextlib.contextmanager\ndef c():\n    yield BY\n",
                "with c() as by:\n            return x * by",
                top=_BY + "import contextlib\n",
            )
        },
        environ={"BY": "3"},
    ),
)
_add(
    "a generator's global",
    Pair({"model": _model("def g():\n    yield BY\n", "return x * next(g())", top=_BY)}, environ={"BY": "3"}),
)
_add(
    "map over a builtin of a table",
    Pair(
        {
            "model": _model(
                "T = {'f': {2.0: abs, 3.0: float.__neg__}[BY]}\n", "return x * sum(map(T['f'], [1.0, -3.0]))", top=_BY
            )
        },
        environ={"BY": "3"},
    ),
)
_add(
    "operator functions in a table",
    Pair(
        {
            "model": _model(
                "F = {2.0: operator.add, 3.0: operator.mul}[BY]\n",
                "return functools.reduce(F, [x, x, x])",
                top=_BY + "import operator, functools\n",
            )
        },
        environ={"BY": "3"},
    ),
)
_add(
    "itemgetter",
    Pair(
        {
            "model": _model(
                "G = operator.itemgetter(int(BY) - 2)\n", "return x * G([4, 5])", top=_BY + "import operator\n"
            )
        },
        environ={"BY": "3"},
    ),
)
_add(
    "methodcaller",
    Pair(
        {"model": _model("G = operator.methodcaller('mul', BY)\n", "return G(x)", top=_BY + "import operator\n")},
        environ={"BY": "3"},
    ),
)
_add(
    "a buffer of a parent's method",
    _one(
        _model(
            "class P(nn.Module):\n    def helper(self, x):\n        return x * 2\nclass C(P):\n    def forward(self, x):\n        return self.helper(x)\n",
            "return self.c(x)",
            init="self.c = C()",
        ),
        "x * 2",
        "x * 3",
    ),
)
_add(
    "a nested function's constant",
    _one(_model("def o():\n    def i(x):\n        return x * 2\n    return i\n", "return o()(x)"), "x * 2", "x * 3"),
)
_add(
    "a file in the folder of a package's data",
    Pair(
        {
            "model": _model(
                "T = torch.load(pathlib.Path(__file__).parent / 't.pt')\n",
                "return x * float(T)",
                top="import pathlib\nif not (pathlib.Path(__file__).parent / 't.pt').exists():\n    torch.save(torch.tensor(2.0), pathlib.Path(__file__).parent / 't.pt')\n",
            )
        },
        then=f"import pathlib, pkg\ntorch.save(torch.tensor(3.0), pathlib.Path(pkg.__file__).parent / 't.pt')\n{_SCRIPT}",
    ),
)
_add(
    "a file that forward reads",
    Pair(
        {
            "model": _model(
                "", "return x * float((pathlib.Path(__file__).parent / 't.txt').read_text())", top="import pathlib\n"
            ),
            "t.txt": "2",
        },
        {"t.txt": "3"},
    ),
)
_add(
    "an environment that forward reads",
    Pair({"model": _model("", "return x * float(os.environ.get('BY', 2))", top="import os\n")}, environ={"BY": "3"}),
)
_add("a time that forward reads", Pair({"model": _model("", "return x * time.time()", top="import time\n")}))
_ = _edited
_add(
    "a set by a name that is computed",
    Pair(
        {
            "model": _model(
                "",
                "return x * [len(a) for a in getattr(other, 'name' + 's'.upper())][0]",
                top="from pkg import other\n",
            ),
            "other": "nameS = {'a', 'bb', 'ccc', 'dddd', 'eeeee'}\n",
        },
        environ={"PYTHONHASHSEED": "7"},
    ),
)
_add(
    "a set in a dictionary by a name that is computed",
    Pair(
        {
            "model": _model(
                "",
                "return x * [len(a) for a in getattr(other, 'name' + 's'.upper())['k']][0]",
                top="from pkg import other\n",
            ),
            "other": "nameS = {'k': {'a', 'bb', 'ccc', 'dddd', 'eeeee'}}\n",
        },
        environ={"PYTHONHASHSEED": "7"},
    ),
)
