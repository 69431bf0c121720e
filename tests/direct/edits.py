"""Edits that users make between two runs, and the harmless things that happen between them."""

from __future__ import annotations

from tests.direct.scenarios import MAY_HIT, MISS, SCRIPT, Scenario, _model

SCENARIOS: dict[str, Scenario] = {}
_X = "x * 2.0"


def _edit(name: str, text: str, old: str, new: str, expected: str = MISS, **files: str) -> None:
    everything = {"model": text, **files}
    place = next(one for one, content in everything.items() if old in content)
    SCENARIOS[name] = Scenario(everything, {place: everything[place].replace(old, new)}, expected=expected)


def _scripts(name: str, text: str, before: str, after: str, expected: str = MISS, **files: str) -> None:
    SCENARIOS[name] = Scenario({"model": text, **files}, script=before, then=after, expected=expected)


_PLAIN = _model("return x * 2.0")
_LAYERS = _model("return self.b(self.a(x))", "self.a = nn.Linear(4, 4)\nself.b = nn.GELU()")

# Plain edits of a model.
_edit("activation", _LAYERS, "nn.GELU()", "nn.ReLU()")
_edit("approximation of an activation", _LAYERS, "nn.GELU()", "nn.GELU('tanh')")
_edit("layers exchanged in forward", _LAYERS, "self.b(self.a(x))", "self.a(self.b(x))")
_edit("a residual", _LAYERS, "return self.b(self.a(x))", "return x + self.b(self.a(x))")
_edit("eps of a norm", _model("return self.n(x)", "self.n = nn.LayerNorm(4, eps=1e-5)"), "1e-5", "1e-3")
_edit("no bias", _LAYERS, "nn.Linear(4, 4)", "nn.Linear(4, 4, bias=False)")
_edit("a dimension of softmax", _model("return x.softmax(-1)"), "-1", "0")
_edit("an einsum", _model("return torch.einsum('ij,ij->i', x, x)"), "->i", "->j")
_edit("a slice", _model("return x[:, 1:]"), "1:", "2:")
_edit("an index by a negative step", _model("return x[..., [0, 1]]"), "[0, 1]", "[1, 0]")
_edit("a keyword", _model("return torch.clamp(x, min=1.0)"), "min=", "max=")
_edit("an integer for a float", _model("return x + torch.full((4,), 2)"), "2)", "2.0)")
_edit("a division", _model("return x / 3"), "x / 3", "x // 3")
_edit("a sign", _model("return x * -0.0"), "-0.0", "0.0")
_edit("a dtype", _model("return x.to(torch.float64)"), "float64", "float16")
_edit(
    "an exception that is caught",
    _model("try:\n    y = x.no\nexcept AttributeError:\n    y = x * 2\nreturn y"),
    "x * 2",
    "x * 3",
)
_edit(
    "a match",
    _model("match x.dim():\n    case 2:\n        return x * 2\n    case _:\n        return x"),
    "case 2:",
    "case 3:",
)
_edit("a walrus", _model("return x * (n := 2) + n"), "n := 2", "n := 3")
_edit("a loop", _model("for i in range(2):\n    x = x + i\nreturn x"), "range(2)", "range(3)")
_edit("a comprehension", _model("return x * sum([i for i in range(5) if i % 2])"), "if i % 2", "if i % 3")
_edit("a generator", _model("return x * sum(i for i in (1, 2))"), "(1, 2)", "(1, 3)")
_edit("a lambda", _model("return (lambda a, k=2: a * k)(x)"), "k=2", "k=3")
_edit("a nested function", _model("def f(a):\n    return a * 2\nreturn f(x)"), "a * 2", "a * 3")
_edit("an assertion that now fails", _model("if x.shape[0] == 3:\n    x = x + 1\nreturn x * 2"), "== 3", "== 5")
_edit(
    "a default of forward",
    _PLAIN.replace("def forward(self, x)", "def forward(self, x, by=2.0)").replace("2.0\n", "by\n"),
    "by=2.0",
    "by=3.0",
)
_edit(
    "a mixin",
    _model("return self.go(x)", bases="Mix, nn.Module", top="class Mix:\n    def go(self, x):\n        return x * 2"),
    "x * 2",
    "x * 3",
)
_edit(
    "the order of bases",
    _model(
        "return self.go(x)",
        bases="A, B, nn.Module",
        top="class A:\n    def go(self, x):\n        return x * 2\nclass B:\n    def go(self, x):\n        return x * 3",
    ),
    "A, B,",
    "B, A,",
)
_edit(
    "super",
    _model(
        "return super().forward(x)",
        bases="P",
        top="class P(nn.Module):\n    def forward(self, x):\n        return x * 2",
    ),
    "x * 2",
    "x * 3",
)
_edit(
    "a property",
    _model("return x * self.by").replace(
        "class Model(nn.Module):", "class Model(nn.Module):\n    @property\n    def by(self):\n        return 2.0\n"
    ),
    "return 2.0",
    "return 3.0",
)
_edit(
    "a cached property",
    _model("return x * self.by", top="import functools").replace(
        "class Model(nn.Module):",
        "class Model(nn.Module):\n    @functools.cached_property\n    def by(self):\n        return 2.0\n",
    ),
    "return 2.0",
    "return 3.0",
)
_edit(
    "__getattr__",
    _model("return x * self.by").replace(
        "class Model(nn.Module):",
        "class Model(nn.Module):\n    def __getattr__(self, n):\n        return 2.0 if n == 'by' else super().__getattr__(n)\n",
    ),
    "2.0",
    "3.0",
)
_edit(
    "__call__",
    _model("return x").replace(
        "class Model(nn.Module):",
        "class Model(nn.Module):\n    def __call__(self, x):\n        return super().__call__(x) * 2\n",
    ),
    "* 2",
    "* 3",
)
_edit(
    "a decorator",
    _model(
        "return twice(x)",
        top="import functools\ndef deco(f):\n    @functools.wraps(f)\n    def g(x):\n        return f(x) * 2\n    return g\n@deco\ndef twice(x):\n    return x",
    ),
    "f(x) * 2",
    "f(x) * 3",
)
_edit(
    "a decorator with an argument",
    _model(
        "return go(x)",
        top="def by(n):\n    def d(f):\n        return lambda x: f(x) * n\n    return d\n@by(2)\ndef go(x):\n    return x",
    ),
    "@by(2)",
    "@by(3)",
)
_edit(
    "a registry",
    _model(
        "return R['a'](x)",
        top="R = {}\ndef reg(n):\n    def d(f):\n        R[n] = f\n        return f\n    return d\n@reg('a')\ndef f(x):\n    return x * 2\n@reg('b')\ndef g(x):\n    return x * 3",
    ),
    "@reg('b')",
    "@reg('a')",
)
_edit(
    "a plugin in another file",
    _model("return R['a'](x)", top="from pkg.reg import R\nimport pkg.plug"),
    "R['a'] = lambda x: x * 2",
    "R['a'] = lambda x: x * 3",
    reg="R = {}\n",
    plug="from pkg.reg import R\nR['a'] = lambda x: x * 2\n",
)
_edit(
    "single dispatch",
    _model(
        "return x * go(1)",
        top="import functools\n@functools.singledispatch\ndef go(a):\n    return 2\n@go.register\ndef _(a: int):\n    return 4",
    ),
    "return 4",
    "return 5",
)
_edit(
    "a hook",
    _model("return self.a(x)", "self.a = nn.Identity()\nself.a.register_forward_hook(lambda m, i, o: o * 2)"),
    "o * 2",
    "o * 3",
)
_edit(
    "a hook with arguments by name",
    _model(
        "return self.a(x)",
        "self.a = nn.Identity()\nself.a.register_forward_pre_hook(lambda m, a, k: ((a[0] * 2,), k), with_kwargs=True)",
    ),
    "a[0] * 2",
    "a[0] * 3",
)
_edit(
    "a parametrization",
    _model(
        "return self.a(x)",
        "self.a = nn.Linear(4, 4)\nnn.utils.parametrize.register_parametrization(self.a, 'weight', Sym())",
        top="class Sym(nn.Module):\n    def forward(self, w):\n        return w + w.T",
    ),
    "w + w.T",
    "w - w.T",
)
_edit(
    "an adapter",
    _model(
        "return self.a(x)",
        "self.a = nn.Linear(4, 4)\nself.a = Lora(self.a, 2.0)",
        top="class Lora(nn.Module):\n    def __init__(self, a, s):\n        super().__init__()\n        self.a, self.s = a, s\n        self.d = nn.Linear(4, 4)\n    def forward(self, x):\n        return self.a(x) + self.d(x) * self.s",
    ),
    "self.a, 2.0",
    "self.a, 4.0",
)
_edit("an activation by its name", _model("return getattr(torch, self.n)(x)", "self.n = 'tanh'"), "'tanh'", "'relu'")
_edit(
    "a table of NumPy",
    _model("return x * float(T[1])", top="import numpy as np\nT = np.linspace(0, 2, 3)"),
    "2, 3)",
    "3, 3)",
)
_edit("a table of torch", _model("return x * T", top="T = torch.arange(4.0)"), "arange(4.0)", "arange(4.0) + 1")
_edit(
    "an enum",
    _model("return x * int(K.A.value)", top="import enum\nclass K(enum.Enum):\n    A = 2\n    B = 5"),
    "A = 2",
    "A = 3",
)
_edit(
    "an automatic enum",
    _model("return x * K.B", top="import enum\nclass K(enum.IntEnum):\n    A = enum.auto()\n    B = enum.auto()"),
    "A = enum.auto()",
    "A = 5",
)
_edit(
    "a NamedTuple",
    _model(
        "return x * self.c.by", "self.c = C()", top="import typing\nclass C(typing.NamedTuple):\n    by: float = 2.0"
    ),
    "2.0",
    "3.0",
)
_edit(
    "a frozen dataclass",
    _model(
        "return x * self.c.by",
        "self.c = C()",
        top="import dataclasses\n@dataclasses.dataclass(frozen=True, slots=True)\nclass C:\n    by: float = 2.0",
    ),
    "2.0",
    "3.0",
)
_edit(
    "a pydantic config",
    _model(
        "return x * self.c.by", "self.c = C()", top="import pydantic\nclass C(pydantic.BaseModel):\n    by: float = 2.0"
    ),
    "2.0",
    "3.0",
)
_edit(
    "a validator of pydantic",
    _model(
        "return x * self.c.by",
        "self.c = C(by=1.0)",
        top="import pydantic\nclass C(pydantic.BaseModel):\n    by: float\n    @pydantic.field_validator('by')\n    @classmethod\n    def go(cls, v):\n        return v * 2",
    ),
    "v * 2",
    "v * 3",
)
_edit(
    "a JSON configuration",
    _model(
        "return x * C['by']",
        top="import json, pathlib\nC = json.loads((pathlib.Path(__file__).parent / 'c.json').read_text())",
    ),
    '"by": 2',
    '"by": 3',
    **{"c.json": '{"by": 2}'},
)
_edit("a star import", _model("return x * BY", top="from pkg.c import *"), "BY = 2", "BY = 3", c="BY = 2\n")
_edit(
    "a re-export",
    _model("return go(x)", top="from pkg.a import go"),
    "from pkg.b import two as go",
    "from pkg.b import three as go",
    a="from pkg.b import two as go\n",
    b="def two(x):\n    return x * 2\ndef three(x):\n    return x * 3\n",
)
_edit("a module's attribute", _model("return x * c.BY", top="from pkg import c"), "BY = 2", "BY = 3", c="BY = 2\n")
_edit("a lazy import", _model("from pkg.c import BY\nreturn x * BY"), "BY = 2", "BY = 3", c="BY = 2\n")
_edit(
    "__getattr__ of a module",
    _model("return x * c.BY", top="from pkg import c"),
    "return 2",
    "return 3",
    c="def __getattr__(n):\n    return 2\n",
)
_edit(
    "a name that is put together",
    _model("return x * getattr(c, 'B' + 'Y')", top="from pkg import c"),
    "BY = 2",
    "BY = 3",
    c="BY = 2\n",
)
_edit(
    "a context manager",
    _model(
        "with go() as n:\n    return x * n", top="import contextlib\n@contextlib.contextmanager\ndef go():\n    yield 2"
    ),
    "yield 2",
    "yield 3",
)
_edit(
    "an autograd function",
    _model(
        "return F.apply(x)",
        top="class F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x * 2\n    @staticmethod\n    def backward(ctx, g):\n        return g",
    ),
    "x * 2",
    "x * 3",
)
_edit(
    "operators of a class",
    _model("return x * (V() + 1)", top="class V:\n    def __add__(self, o):\n        return 2 * o"),
    "2 * o",
    "3 * o",
)
_edit(
    "__torch_function__",
    _model(
        "return torch.add(V(), x)",
        top="class V:\n    @classmethod\n    def __torch_function__(cls, f, t, a=(), k=None):\n        return a[1] * 2",
    ),
    "a[1] * 2",
    "a[1] * 3",
)
_edit(
    "a type that torch flattens",
    _model("return self.go((x, x))", top="import collections\nP = collections.namedtuple('P', 'a b')").replace(
        "self.go((x, x))", "torch.utils._pytree.tree_map(lambda a: a * 2, P(x, x)).b"
    ),
    "a * 2",
    "a * 3",
)

# Code that torch calls outside of a module's call.
_BY = "from pkg.c import BY"
for _name, _method in (
    ("__call__", "def __call__(self, x):\n        return super().__call__(x) * BY"),
    ("__getattr__", "def __getattr__(self, n):\n        return BY if n == 'by' else super().__getattr__(n)"),
    (
        "__getattribute__",
        "def __getattribute__(self, n):\n        return BY if n == 'by' else super().__getattribute__(n)",
    ),
    (
        "named_buffers",
        "def named_buffers(self, *a, **k):\n        self.__dict__['by'] = BY\n        return super().named_buffers(*a, **k)",
    ),
    ("_call_impl", "def _call_impl(self, x):\n        return self.forward(x) * BY"),
):
    _text = _model("return x * getattr(self, 'by', 1.0)", top=_BY)
    _text = _text.replace("(nn.Module):\n", f"(nn.Module):\n    {_method}\n\n")
    _edit(f"a global of {_name}", _text, "BY = 2.0", "BY = 3.0", c="BY = 2.0\n")
_PAIR = f"{_BY}\nclass P:\n    def __init__(self, a):\n        self.a = a\n"
_PAIR += "torch.utils._pytree.register_pytree_node(P, lambda p: ([p.a], BY), lambda v, c: P(v[0] * c), serialized_type_name='P', flatten_with_keys_fn=lambda p: ([(torch.utils._pytree.GetAttrKey('a'), p.a)], BY))\n"
SCENARIOS["a global of a function that flattens"] = Scenario(
    {"model": _model("return x.a * 1.0", top=_PAIR), "c": "BY = 2.0\n"},
    {"c": "BY = 3.0\n"},
    script="from pkg.model import Model, P\nmodel = Model().eval()\nargs = (P(torch.ones(3, 4)),)\n",
)

# Code in memory that is not the file's.
_REWRITE = "import types\ndef rewrite(f):\n    c = tuple(3.0 if one == 2.0 and BY else one for one in f.__code__.co_consts)\n    f.__code__ = f.__code__.replace(co_consts=c)\n    return f\nimport os\nBY = os.environ.get('BY')\n"
SCENARIOS["a decorator that rewrites code"] = Scenario(
    {"model": _model("return go(x)", top=f"{_REWRITE}@rewrite\ndef go(x):\n    return x * 2.0\ndel BY")},
    env_after={"BY": "1"},
)
SCENARIOS["a method that rewrites code"] = Scenario(
    {"model": _model("return x * 2.0", top=_REWRITE) + "rewrite(Model.forward)\n"}, env_after={"BY": "1"}
)
_HOOK = "import importlib.machinery, os, sys\nclass L(importlib.machinery.SourceFileLoader):\n    def source_to_code(self, data, path, *, _optimization=-1):\n        return super().source_to_code(data.replace(b'2.0', BY), path)\n    def get_code(self, name):\n        return self.source_to_code(self.get_data(self.path), self.path)\nBY = os.environ.get('BY', '2.0').encode()\nclass F:\n    def find_spec(self, name, path=None, target=None):\n        s = importlib.machinery.PathFinder.find_spec(name, path)\n        if name == 'pkg.model':\n            s.loader = L(name, s.origin)\n        return s\nsys.meta_path.insert(0, F())\n"
SCENARIOS["an import hook"] = Scenario({"model": _PLAIN}, script=_HOOK + SCRIPT, env_after={"BY": "3.0"})
SCENARIOS["a function of exec"] = Scenario(
    {
        "model": _model(
            "return go(x)", top="import os\nexec(f\"def go(x):\\n    return x * {os.environ.get('BY', '2')}\")\n"
        )
    },
    env_after={"BY": "3"},
)
_scripts("a method that the script replaces", _PLAIN, SCRIPT, f"{SCRIPT}Model.forward = lambda self, x: x * 3\n")
_scripts(
    "a function of torch that the script replaces",
    _model("return torch.relu(x - 5)"),
    SCRIPT,
    f"{SCRIPT}torch.relu = torch.tanh\n",
)
_scripts(
    "a layer of torch that the script changes",
    _model("return self.a(x - 5)", "self.a = nn.LeakyReLU()"),
    SCRIPT,
    f"{SCRIPT}torch.nn.functional.leaky_relu = lambda a, *k: a * 3\n",
)
_scripts(
    "train mode",
    _model("return self.a(x)", "self.a = nn.BatchNorm1d(4)"),
    SCRIPT,
    SCRIPT.replace(".eval()", ".train()"),
)
_scripts("half of the modules", _LAYERS, SCRIPT, f"{SCRIPT}model.b = torch.nn.Identity()\n")
_scripts(
    "weights that are tied",
    _model("return self.b(self.a(x))", "self.a = nn.Linear(4, 4, bias=False)\nself.b = nn.Linear(4, 4, bias=False)"),
    SCRIPT,
    f"{SCRIPT}model.b.weight = model.a.weight\n",
)
_scripts(
    "an option of a config of transformers",
    _PLAIN,
    "import transformers as t\nc = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=9, max_position_embeddings=8)\nmodel = t.BertModel(t.BertConfig(**c), add_pooling_layer=False).eval()\nargs = (torch.tensor([[1, 2, 3]]),)\n",
    "import transformers as t\nc = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=9, max_position_embeddings=8)\nmodel = t.BertModel(t.BertConfig(**c, hidden_act='relu'), add_pooling_layer=False).eval()\nargs = (torch.tensor([[1, 2, 3]]),)\n",
)
_scripts(
    "a class in the script",
    _PLAIN,
    "class M(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\nmodel = M()\n",
    "class M(torch.nn.Module):\n    def forward(self, x):\n        return x * 3\nmodel = M()\n",
)
_scripts(
    "a global of the script",
    _PLAIN,
    "BY = 2\nclass M(torch.nn.Module):\n    def forward(self, x):\n        return x * BY\nmodel = M()\n",
    "BY = 3\nclass M(torch.nn.Module):\n    def forward(self, x):\n        return x * BY\nmodel = M()\n",
)

# C extensions, built with gcc.
_C = '#include <Python.h>\nstatic PyObject *f(PyObject *s, PyObject *a) { return PyFloat_FromDouble(2.0); }\nstatic PyMethodDef m[] = {{"f", f, METH_VARARGS, ""}, {0}};\nstatic struct PyModuleDef d = {PyModuleDef_HEAD_INIT, "cx", "", -1, m};\nPyMODINIT_FUNC PyInit_cx(void) { PyObject *o = PyModule_Create(&d); PyModule_AddObject(o, "BY", PyFloat_FromDouble(2.0)); return o; }\n'
_BUILD = "import sysconfig\nsubprocess.run(['gcc', '-shared', '-fPIC', '-I' + sysconfig.get_paths()['include'], 'cx.c', '-o', 'cx.so'], check=True)\n"
for _name, _top, _read in (
    ("a C function", "import cx", "cx.f()"),
    ("a C function by its name", "from cx import f", "f()"),
    ("a C function in a partial", "import functools, cx\nP = functools.partial(cx.f)", "P()"),
    ("a C function in a list", "import cx\nL = [cx.f]", "L[0]()"),
    ("a C function through map", "from cx import f", "sum(map(f, [1]))"),
    ("a number of a C module", "import cx", "cx.BY"),
):
    _new = _C.replace("2.0", "3.0")
    SCENARIOS[_name] = Scenario(
        {"model": _model(f"return x * {_read}", top=_top), "/cx.c": _C}, {"/cx.c": _new}, setup=_BUILD, between=_BUILD
    )
_SHARED = "subprocess.run(['gcc', '-shared', '-fPIC', 'cl.c', '-o', 'cl.so'], check=True)\n"
SCENARIOS["a C library through ctypes"] = Scenario(
    {
        "model": _model(
            "return x * L.f()",
            top="import ctypes, pathlib\nL = ctypes.CDLL(str(pathlib.Path(__file__).parent.parent / 'cl.so'))",
        ),
        "/cl.c": "int f(void) { return 2; }\n",
    },
    {"/cl.c": "int f(void) { return 3; }\n"},
    setup=_SHARED,
    between=_SHARED,
)

# Sizes that vary.
_DYNAMIC = f"{SCRIPT}args = (torch.ones(3, 4),)\nD = torch.export.Dim\ndynamic_shapes = "
_AUTO = "{'x': {0: D.AUTO}}\n"
_scripts("sizes that vary", _PLAIN, f"{_DYNAMIC}{_AUTO}", f"{_DYNAMIC}{{'x': {{1: D.AUTO}}}}\n")
_scripts(
    "the range of a size",
    _PLAIN,
    f"{_DYNAMIC}{{'x': {{0: D('b', min=2, max=8)}}}}\n",
    f"{_DYNAMIC}{{'x': {{0: D('b', min=2, max=9)}}}}\n",
)
_scripts("no sizes that vary", _PLAIN, f"{_DYNAMIC}{_AUTO}", f"{_DYNAMIC}None\n")
_TWO = (
    f"{SCRIPT}args = (torch.ones(4, 4),)\nD = torch.export.Dim\na, b = D('a', min=2), D('b', min=2)\ndynamic_shapes = "
)
_scripts("one size for two", _PLAIN, f"{_TWO}{{'x': {{0: a, 1: a}}}}\n", f"{_TWO}{{'x': {{0: a, 1: b}}}}\n")
for _name, _dim in (
    ("AUTO", "D.AUTO"),
    ("DYNAMIC", "D.DYNAMIC"),
    ("a named size", "D('b', min=2)"),
    ("2 * a size", "2 * D('h', min=1)"),
    ("STATIC", "D.STATIC"),
):
    _size = "(4, 4)" if "2 *" in _dim else "(3, 4)"
    _text = f"{_DYNAMIC}{{'x': {{0: {_dim}}}}}\nargs = (torch.ones{_size},)\n"
    _scripts(f"nothing, with {_name}", _PLAIN, _text, _text, MAY_HIT)

# Harmless changes.
_edit("a comment", _PLAIN, "return x", "# scale\n        return x", MAY_HIT)
_edit("blank lines", _PLAIN, "class Model", "\n\n\nclass Model", MAY_HIT)
_edit("a function that is not used", _PLAIN, "class Model", "def unused():\n    pass\n\n\nclass Model", MAY_HIT)
_edit("an unrelated file", _PLAIN, "A = 1", "A = 2", MAY_HIT, other="A = 1\n")
_scripts("other weights", _LAYERS, SCRIPT, f"torch.manual_seed(5)\n{SCRIPT}", MAY_HIT)
_scripts("other imports first", _LAYERS, SCRIPT, f"import transformers, json, decimal, sqlite3\n{SCRIPT}", MAY_HIT)
_scripts("a call before", _LAYERS, SCRIPT, f"{SCRIPT}model(torch.ones(3, 4))\n", MAY_HIT)
_scripts(
    "a compile before",
    _LAYERS,
    SCRIPT,
    f"{SCRIPT}import trtcache\ntrtcache.compile(model, (torch.ones(5, 4),), backend='stored', direct='off')\n",
    MAY_HIT,
)
_scripts("an export before", _LAYERS, SCRIPT, f"{SCRIPT}torch.export.export(model, (torch.ones(5, 4),))\n", MAY_HIT)
_scripts("torch.compile before", _LAYERS, SCRIPT, f"{SCRIPT}import torch._dynamo\n", MAY_HIT)
_scripts(
    "a level of logging",
    _model("L.debug('%s', x)\nreturn x * 2", top="import logging\nL = logging.getLogger(__name__)"),
    SCRIPT,
    f"{SCRIPT}import logging\nlogging.getLogger('pkg.model').setLevel(10)\n",
    MAY_HIT,
)
_scripts(
    "another place of a checkpoint",
    _PLAIN,
    *(
        f"import transformers as t\nc = t.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=9, max_position_embeddings=8)\nmodel = t.BertModel(c, add_pooling_layer=False).eval()\nmodel.save_pretrained('{one}')\nmodel = t.BertModel.from_pretrained('{one}', add_pooling_layer=False).eval()\nargs = (torch.tensor([[1, 2, 3]]),)\n"
        for one in ("a", "b")
    ),
    MAY_HIT,
)
SCENARIOS["other variables"] = Scenario({"model": _LAYERS}, env_after={"FOO": "1", "PATHS": "2"}, expected=MAY_HIT)
SCENARIOS["files that are touched"] = Scenario(
    {"model": _LAYERS}, between="(folder / 'pkg/model.py').touch()\n", expected=MAY_HIT
)
SCENARIOS["another folder"] = Scenario({"model": _LAYERS}, then=f"import os\nos.chdir('/')\n{SCRIPT}", expected=MAY_HIT)
