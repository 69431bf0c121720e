"""Edits between two runs, as an engineer who deploys models makes them. They are added to ``field_scenarios``."""

# fmt: off
from __future__ import annotations

from tests.direct.field_scenarios import _add
from tests.direct.field_scenarios import _model as m

# ---------------------------------------------------------------- edits of source files
_add("layers package: __init__ re-exports the v2 block instead of v1",
     m("self.block(x)", "self.block = Block()", "from layers import Block")
     + "--- layers/__init__.py\nfrom .v1 import Block\n"
     "--- layers/v1.py\nclass Block(nn.Module):\n    def forward(self, x):\n        return x * 2.0\n"
     "--- layers/v2.py\nclass Block(nn.Module):\n    def forward(self, x):\n        return x * 3.0\n",
     "", ("from .v1 import Block", "from .v2 import Block"))
_add("star import: __all__ of a constants file now exports an override of the builtin max",
     m("x * max(2.0, 3.0)", top="from consts import *")
     + "--- consts.py\n__all__ = ['OTHER']\nOTHER = 1\ndef max(a, b):\n    return a + b\n",
     "", ("['OTHER']", "['OTHER', 'max']"))
_add("a second star import starts to shadow a helper of the first",
     m("scale(x)", top="from one import *\nfrom two import *")
     + "--- one.py\ndef scale(x):\n    return x * 2.0\n--- two.py\ndef unscale(x):\n    return x / 2.0\n",
     "", ("def unscale(x):\n    return x / 2.0", "def scale(x):\n    return x / 2.0"))
_add("flash kernel package gets installed: try-import in forward",
     m("try:\n    from flash import fast_mul\nexcept ImportError:\n    return self.lin(x) * 2.0\nreturn fast_mul(self.lin(x))"),
     added="--- flash.py\ndef fast_mul(x):\n    return x + x\n")
_add("flash kernel package gets installed: try-import at import of a helper",
     m("ops.mul(self.lin(x))", top="import ops")
     + "--- ops.py\ntry:\n    from flash2 import fast_mul as mul\nexcept ImportError:\n    def mul(x):\n        return x * 2.0\n",
     added="--- flash2.py\ndef fast_mul(x):\n    return x + x\n")
_add("find_spec decides in forward whether an optional package is there",
     m("if importlib.util.find_spec('xfmrs') is not None:\n    return self.lin(x) + 1.0\nreturn self.lin(x)", top="import importlib.util"),
     added="--- xfmrs.py\nX = 1\n")
_add("find_spec in a cached is_available() helper, like in transformers",
     m("if is_xf_available():\n    return self.lin(x) + 1.0\nreturn self.lin(x)",
       top="import importlib.util, functools\n@functools.lru_cache\ndef is_xf_available():\n    return importlib.util.find_spec('xfmrs2') is not None\n"),
     added="--- xfmrs2.py\nX = 1\n")
_add("base class two levels up in another file changes its factor class attribute",
     m("super().forward(x)", top="from mid import Mid", base="Mid").replace("self.lin = nn.Linear(4, 4)", "pass")
     + "--- mid.py\nfrom root import Root\nclass Mid(Root):\n    pass\n"
     "--- root.py\nclass Root(nn.Module):\n    FACTOR = 2.0\n    def forward(self, x):\n        return x * self.FACTOR\n",
     "", ("FACTOR = 2.0", "FACTOR = 3.0"))
_add("the middle class overrides the class attribute that was inherited so far",
     m("x * self.FACTOR", top="from mid import Mid", base="Mid")
     + "--- mid.py\nclass Root(nn.Module):\n    FACTOR = 2.0\nclass Mid(Root):\n    SIZE = 1\n",
     "", ("SIZE = 1", "FACTOR = 5.0"))
_add("mixin order swapped",
     m("self.act(self.lin(x))", top="class A:\n    def act(self, x):\n        return x.relu()\nclass B:\n    def act(self, x):\n        return x.tanh()\n", base="A, B, nn.Module"),
     "", ("class Model(A, B, nn.Module)", "class Model(B, A, nn.Module)"))
_add("mixin gets the optional method that the model probes with hasattr",
     m("x = self.lin(x)\nif hasattr(self, 'post_norm'):\n    x = self.post_norm(x)\nreturn x", top="from mix import Mixin", base="Mixin, nn.Module")
     + "--- mix.py\nclass Mixin:\n    def unrelated(self):\n        return 1\n",
     "", ("def unrelated(self):\n        return 1", "def post_norm(self, x):\n        return x / 2.0"))
_add("config dataclass gets a new field that is read by getattr with default",
     m("x * getattr(self.cfg, 'scale', 1.5)", "self.cfg = Config()", "from conf import Config")
     + "--- conf.py\nimport dataclasses\n@dataclasses.dataclass\nclass Config:\n    hidden: int = 4\n",
     "", ("hidden: int = 4\n", "hidden: int = 4\n    scale: float = 2.5\n"))
_add("config dataclass: order of two fields swapped, asdict is iterated",
     m("for name, value in dataclasses.asdict(self.cfg).items():\n    x = x * value if name == 'mul' else x + value\nreturn x", "self.cfg = Config()", "import dataclasses\nfrom conf import Config")
     + "--- conf.py\nimport dataclasses\n@dataclasses.dataclass\nclass Config:\n    mul: float = 2.0\n    add: float = 3.0\n",
     "", ("mul: float = 2.0\n    add: float = 3.0", "add: float = 3.0\n    mul: float = 2.0"))
_add("dataclass field metadata is edited",
     m("x * dataclasses.fields(self.cfg)[0].metadata['scale']", "self.cfg = Config()", "import dataclasses\nfrom conf import Config")
     + "--- conf.py\nimport dataclasses\n@dataclasses.dataclass\nclass Config:\n    mul: float = dataclasses.field(default=1.0, metadata={'scale': 2.0})\n",
     "", ("'scale': 2.0", "'scale': 4.0"))
_add("dataclass default_factory lambda is edited",
     m("x * Config().muls[0]", top="from conf import Config")
     + "--- conf.py\nimport dataclasses\n@dataclasses.dataclass\nclass Config:\n    muls: list = dataclasses.field(default_factory=lambda: [2.0])\n",
     "", ("lambda: [2.0]", "lambda: [3.0]"))
_add("dataclass __post_init__ helper constant is edited, config made in forward",
     m("x * Config().mul", top="from conf import Config")
     + "--- conf.py\nimport dataclasses\nSCALE = 2.0\n@dataclasses.dataclass(frozen=True)\nclass Config:\n    mul: float = 1.0\n    def __post_init__(self):\n        object.__setattr__(self, 'mul', self.mul * SCALE)\n",
     "", ("SCALE = 2.0", "SCALE = 3.0"))
_add("enum value edited, looked up by name from a string attribute",
     m("x * Scale[self.kind].value", "self.kind = 'BIG'", "from enums import Scale")
     + "--- enums.py\nimport enum\nclass Scale(enum.Enum):\n    SMALL = 1.0\n    BIG = 2.0\n",
     "", ("BIG = 2.0", "BIG = 3.0"))
_add("enum gets one more member, len(Enum) is a width",
     m("F.pad(x, (0, len(Kind)))", top="from enums import Kind")
     + "--- enums.py\nimport enum\nclass Kind(enum.Enum):\n    A = enum.auto()\n    B = enum.auto()\n",
     "", ("B = enum.auto()", "B = enum.auto()\n    C = enum.auto()"))
_add("enum members reordered, auto() numbers change",
     m("F.pad(x, (0, self.kind.value))", "self.kind = Kind.B", "from enums import Kind")
     + "--- enums.py\nimport enum\nclass Kind(enum.Enum):\n    A = enum.auto()\n    B = enum.auto()\n",
     "", ("A = enum.auto()\n    B = enum.auto()", "B = enum.auto()\n    A = enum.auto()"))
_add("str enum with a method that maps to an activation",
     m("self.kind.apply(self.lin(x))", "self.kind = Act('relu')", "from enums import Act")
     + "--- enums.py\nimport enum\nclass Act(str, enum.Enum):\n    RELU = 'relu'\n    GELU = 'gelu'\n    def apply(self, x):\n        return {Act.RELU: F.relu, Act.GELU: F.gelu}[self](x)\n",
     "", ("Act.RELU: F.relu", "Act.RELU: F.silu"))
_add("int flag combination constant is edited",
     m("x = self.lin(x)\nif Opt.SCALE in DEFAULT:\n    x = x * 2.0\nif Opt.ACT in DEFAULT:\n    x = x.relu()\nreturn x", top="from enums import Opt, DEFAULT")
     + "--- enums.py\nimport enum\nclass Opt(enum.IntFlag):\n    SCALE = 1\n    ACT = 2\nDEFAULT = Opt.SCALE | Opt.ACT\n",
     "", ("Opt.SCALE | Opt.ACT", "Opt.SCALE"))
_add("activation registry: decorator name moved to another function",
     m("ACTS['smooth'](self.lin(x))", top="from reg import ACTS\nimport acts")
     + "--- reg.py\nACTS = {}\ndef register(name):\n    def wrap(f):\n        ACTS[name] = f\n        return f\n    return wrap\n"
     "--- acts.py\nfrom reg import register\n@register('smooth')\ndef a(x):\n    return F.gelu(x)\n@register('rough')\ndef b(x):\n    return F.relu(x)\n",
     "", ("@register('smooth')\ndef a", "@register('rough0')\ndef a"), ("@register('rough')\ndef b", "@register('smooth')\ndef b"))
_add("Base.__subclasses__() as a plugin table: a plugin module is imported that was not before",
     m("for cls in Op.__subclasses__():\n    x = cls().run(x)\nreturn x", top="from ops import Op\nimport plugins")
     + "--- ops.py\nclass Op:\n    pass\n--- plugins.py\nfrom ops import Op\nclass Mul(Op):\n    def run(self, x):\n        return x * 2.0\n"
     "--- extra.py\nfrom ops import Op\nclass Add(Op):\n    def run(self, x):\n        return x + 1.0\n",
     "import extra")
_add("__init_subclass__ registry gains an entry by a class added to a file; last one wins",
     m("list(Op.table.values())[-1]().run(x)", top="from ops import Op\nimport plugins")
     + "--- ops.py\nclass Op:\n    table = {}\n    def __init_subclass__(cls, **kw):\n        super().__init_subclass__(**kw)\n        Op.table[cls.__name__] = cls\n"
     "--- plugins.py\nfrom ops import Op\nclass Mul(Op):\n    def run(self, x):\n        return x * 2.0\n",
     "", ("return x * 2.0\n", "return x * 2.0\nclass Zoo(Op):\n    def run(self, x):\n        return x + 2.0\n"))
_add("decorator factory argument is edited",
     m("body(self.lin(x))", top="from deco import scaled\n@scaled(by=2.0)\ndef body(x):\n    return x + 1\n")
     + "--- deco.py\nimport functools\ndef scaled(by):\n    def wrap(f):\n        @functools.wraps(f)\n        def inner(*a, **k):\n            return f(*a, **k) * by\n        return inner\n    return wrap\n",
     "", ("@scaled(by=2.0)", "@scaled(by=3.0)"))
_add("a decorator is put on the forward of the model",
     m("self.lin(x)", top="def clamp(f):\n    def inner(self, x):\n        return f(self, x).clamp(0, 1)\n    return inner\n"),
     "", ("    def forward(self, x):", "    @clamp\n    def forward(self, x):"))
_add("autocast decorator with another dtype",
     m("self.lin(x)", top="import functools").replace("    def forward", "    @torch.autocast('cpu', dtype=torch.bfloat16)\n    def forward"),
     "", ("dtype=torch.bfloat16", "dtype=torch.float16"))
_add("property on a mixin is edited",
     m("x * self.scale", top="class Mixin:\n    @property\n    def scale(self):\n        return self.dim ** -0.5\n", init="self.dim = 16", base="Mixin, nn.Module"),
     "", ("self.dim ** -0.5", "self.dim ** 0.5"))
_add("closure factory for activations: the constant that the closure captures",
     m("self.act(self.lin(x))", "self.act = make_act(2.0)", "def make_act(beta):\n    def act(x):\n        return x * torch.sigmoid(beta * x)\n    return act\n"),
     "", ("make_act(2.0)", "make_act(1.702)"))
_add("closure over a mutable dict that is changed later",
     m("self.act(self.lin(x))", "self.state = {'beta': 2.0}\nself.act = make_act(self.state)", "def make_act(s):\n    return lambda x: x * s['beta']\n"),
     "model.state['beta'] = 3.0")
_add("lambda in a table of lambdas is edited",
     m("TABLE[self.kind](self.lin(x))", "self.kind = 1", "TABLE = [lambda x: x, lambda x: x * 2.0, lambda x: x / 2.0]"),
     "", ("lambda x: x * 2.0", "lambda x: x * 2.5"))
_add("late-bound lambda in a loop: default argument added",
     m("self.fs[0](self.lin(x))", "self.fs = [lambda x, i=i: x * (i + 2.0) for i in range(3)]"),
     "", ("lambda x, i=i:", "lambda x:"))
_add("default argument of a helper two calls deep",
     m("outer(self.lin(x))", top="from h import outer")
     + "--- h.py\ndef inner(x, by=2.0):\n    return x * by\ndef outer(x):\n    return inner(x)\n",
     "", ("by=2.0", "by=3.0"))
_add("default argument that is a module constant of another file",
     m("outer(self.lin(x))", top="from h import outer")
     + "--- h.py\nfrom k import EPS\ndef outer(x, *, eps=EPS):\n    return x + eps\n--- k.py\nEPS = 0.5\n",
     "", ("EPS = 0.5", "EPS = 0.25"))
_add("__init__ of a package: version constant changes, compared in forward",
     m("if pkg.__version__ >= '2.0':\n    return self.lin(x).relu()\nreturn self.lin(x)", top="import pkg")
     + "--- pkg/__init__.py\n__version__ = '1.9'\n",
     "", ("__version__ = '1.9'", "__version__ = '2.1'"))
_add("conditional import on an env variable at import time",
     m("act(self.lin(x))", top="import os\nif os.environ.get('FAST_ACT') == '1':\n    from acts import fast as act\nelse:\n    from acts import exact as act\n")
     + "--- acts.py\ndef fast(x):\n    return x * torch.sigmoid(1.702 * x)\ndef exact(x):\n    return F.gelu(x)\n",
     env={"FAST_ACT": "1"})
_add("lazy import in forward of a constant",
     m("from late import BY\nreturn self.lin(x) * BY") + "--- late.py\nBY = 2.0\n", "", ("BY = 2.0", "BY = 3.0"))
_add("lazy import of a submodule in a helper, attribute path of three",
     m("helper(self.lin(x))", top="from h import helper")
     + "--- h.py\ndef helper(x):\n    import pk.sub.consts\n    return x * pk.sub.consts.BY\n"
     "--- pk/__init__.py\nX = 1\n--- pk/sub/__init__.py\nY = 1\n--- pk/sub/consts.py\nBY = 2.0\n",
     "", ("BY = 2.0", "BY = 3.0"))
_add("relative lazy import in a method of a package's class",
     m("self.b(x)", "self.b = Block()", "from pk.block import Block")
     + "--- pk/__init__.py\n--- pk/block.py\nclass Block(nn.Module):\n    def forward(self, x):\n        from .settings import settings\n        return x * settings['by']\n"
     "--- pk/settings.py\nsettings = dict(by=2.0)\n",
     "", ("by=2.0", "by=3.0"))
_add("PEP 562 module __getattr__: lazy names come from a table",
     m("pk.BY * self.lin(x)", top="import pk")
     + "--- pk/__init__.py\n_table = {'BY': 2.0}\ndef __getattr__(name):\n    if name in _table:\n        return _table[name]\n    raise AttributeError(name)\n",
     "", ("'BY': 2.0", "'BY': 3.0"))
_add("PEP 562 module __getattr__: a real global of this name is added",
     m("pk.BY * self.lin(x)", top="import pk")
     + "--- pk/__init__.py\nOTHER = 3.0\ndef __getattr__(name):\n    if name == 'BY':\n        return 2.0\n    raise AttributeError(name)\n",
     "", ("OTHER = 3.0", "BY = 3.0"))
_add("metaclass gives defaults by __getattr__ on the class",
     m("x * Cfg.by", top="class Meta(type):\n    defaults = {'by': 2.0}\n    def __getattr__(cls, name):\n        try:\n            return cls.defaults[name]\n        except KeyError:\n            raise AttributeError(name)\nclass Cfg(metaclass=Meta):\n    pass\n"),
     "", ("'by': 2.0", "'by': 3.0"))
_add("metaclass __call__ makes a singleton, its state is changed",
     m("x * Settings().by", top="class Meta(type):\n    _i = {}\n    def __call__(cls, *a):\n        if cls not in Meta._i:\n            Meta._i[cls] = super().__call__(*a)\n        return Meta._i[cls]\nclass Settings(metaclass=Meta):\n    def __init__(self):\n        self.by = 2.0\nSettings()\n"),
     "app.Settings().by = 3.0")
_add("generic base: type argument decides",
     m("if get_args(type(self).__orig_bases__[0])[0] is int:\n    return self.lin(x).round()\nreturn self.lin(x)", top="from typing import Generic, TypeVar, get_args\nT = TypeVar('T')\nclass Base(nn.Module, Generic[T]):\n    pass\n", base="Base[float]"),
     "", ("class Model(Base[float])", "class Model(Base[int])"))
_add("TypedDict key added; the keys are counted",
     m("F.pad(x, (0, len(Opts.__annotations__)))", top="from typing import TypedDict\nclass Opts(TypedDict):\n    a: int\n    b: int\n"),
     "", ("    b: int\n", "    b: int\n    c: int\n"))
_add("abstract base class: virtual subclass registered in another file",
     m("y = self.act(self.lin(x))\nreturn y * 2.0 if isinstance(self.act, Smooth) else y", "self.act = nn.GELU()", "from abcs import Smooth")
     + "--- abcs.py\nimport abc\nclass Smooth(abc.ABC):\n    pass\nSmooth.register(nn.SiLU)\n",
     "", ("Smooth.register(nn.SiLU)", "Smooth.register(nn.GELU)"))
_add("runtime protocol: the layer gets the probed method",
     m("y = self.lin(x)\nreturn self.post.scale(y) if isinstance(self.post, HasScale) else y", "self.post = Post()", "from typing import Protocol, runtime_checkable\n@runtime_checkable\nclass HasScale(Protocol):\n    def scale(self, x): ...\nclass Post(nn.Module):\n    def other(self, x):\n        return x * 2.0\n"),
     "", ("def other(self, x)", "def scale(self, x)"))
_add("singledispatch helper: another type is registered by a plugin",
     m("conv(self.cfg, self.lin(x))", "self.cfg = Cfg()", "import functools\nclass Cfg:\n    pass\n@functools.singledispatch\ndef conv(cfg, x):\n    return x\n@conv.register\ndef _(cfg: int, x):\n    return x * 2.0\n"),
     "app.conv.register(app.Cfg, lambda cfg, x: x * 3.0)")
_add("match statement over a dataclass: __match_args__ order is edited",
     m("match self.cfg:\n    case Pair(a, b):\n        return x * a + b", "self.cfg = Pair(2.0, 3.0)", "class Pair:\n    __match_args__ = ('p', 'q')\n    def __init__(self, p, q):\n        self.p, self.q = p, q\n"),
     "", ("('p', 'q')", "('q', 'p')"))
_add("custom autograd Function: the forward formula is edited",
     m("Swish.apply(self.lin(x))", top="class Swish(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x * torch.sigmoid(x)\n    @staticmethod\n    def backward(ctx, g):\n        return g\n"),
     "", ("x * torch.sigmoid(x)", "x * torch.tanh(x)"))
_add("custom autograd Function reads a class attribute that is set",
     m("STE.apply(self.lin(x))", top="class STE(torch.autograd.Function):\n    levels = 4.0\n    @staticmethod\n    def forward(ctx, x):\n        return (x * STE.levels).round() / STE.levels\n    @staticmethod\n    def backward(ctx, g):\n        return g\n"),
     "app.STE.levels = 8.0")
_add("torch.fx.wrap-ed helper function is edited",
     m("leaf(self.lin(x))", top="import torch.fx\ndef leaf(x):\n    return x * 2.0\ntorch.fx.wrap('leaf')\n"),
     "", ("return x * 2.0", "return x * 3.0"))
_add("symbolically traced submodule: its source is edited",
     m("self.b(self.lin(x))", "import torch.fx\nself.b = torch.fx.symbolic_trace(Block())", "class Block(nn.Module):\n    def forward(self, x):\n        return x * 2.0 + 1\n"),
     "", ("x * 2.0 + 1", "x * 3.0 + 1"))
_add("symbolically traced submodule: a node's constant is changed and recompiled",
     m("self.b(self.lin(x))", "import torch.fx\nself.b = torch.fx.symbolic_trace(Block())", "class Block(nn.Module):\n    def forward(self, x):\n        return x * 2.0 + 1\n"),
     "for n in model.b.graph.nodes:\n    if n.op == 'call_function':\n        n.args = (n.args[0], 7.0)\nmodel.b.recompile()")
_add("scripted function as helper is edited",
     m("h(self.lin(x))", top="from h import h") + "--- h.py\n@torch.jit.script\ndef h(x):\n    return x * 2.0\n",
     "", ("return x * 2.0", "return x * 3.0"))
_add("scripted function kept as an attribute is edited",
     m("self.h(self.lin(x))", "self.h = [torch.jit.script(h)]\nself.h = self.h[0]", "from h import h") + "--- h.py\ndef h(x):\n    return x * 2.0 + 1.0\n",
     "", ("x * 2.0 + 1.0", "x * 3.0 + 1.0"))
_add("helper's local algorithm: loop bound in a comprehension",
     m("sum(x * k for k in range(1, 4))"), "", ("range(1, 4)", "range(1, 5)"))
_add("keyword-only default True becomes 1.0",
     m("helper(self.lin(x))", top="def helper(x, *, by=1):\n    return x * by if not isinstance(by, float) else x / (by + 1.0)\n"),
     "", ("by=1)", "by=1.0)"))
_add("negative zero constant",
     m("x.clamp(min=ZERO) + ZERO", top="ZERO = 0.0"), "", ("ZERO = 0.0", "ZERO = -0.0"))
_add("tuple constant becomes list (isinstance tells)",
     m("x * SCALES[0] if isinstance(SCALES, tuple) else x * SCALES[1]", top="SCALES = (2.0, 3.0)"), "", ("(2.0, 3.0)", "[2.0, 3.0]"))
_add("named tuple default edited",
     m("x * Opt().by", top="from typing import NamedTuple\nclass Opt(NamedTuple):\n    dim: int = 4\n    by: float = 2.0\n"),
     "", ("by: float = 2.0", "by: float = 3.0"))
_add("collections.namedtuple: the names are swapped",
     m("x * self.o.mul + self.o.add", "self.o = Opt(2.0, 3.0)", "import collections\nOpt = collections.namedtuple('Opt', 'mul add')\n"),
     "", ("'mul add'", "'add mul'"))
_add("slots class: __init__ computes from a class constant",
     m("x * self.o.by", "self.o = Opt(2.0)", "class Opt:\n    __slots__ = ('by', 'extra')\n    GAIN = 1.0\n    def __init__(self, by):\n        self.by = by * self.GAIN\n"),
     "", ("GAIN = 1.0", "GAIN = 1.5"))
_add("slots and dict: parent with slots, child without",
     m("x * self.o.by", "self.o = Child()", "class Parent:\n    __slots__ = ('by',)\nclass Child(Parent):\n    def __init__(self):\n        self.by = 2.0\n        self.more = 1\n"),
     "model.o.by = 3.0")
_add("data descriptor with a default on the class (pydantic-like)",
     m("x * self.o.by", "self.o = Opt()", "class Field:\n    def __init__(self, default):\n        self.default = default\n    def __set_name__(self, owner, name):\n        self.name = '_' + name\n    def __get__(self, obj, owner):\n        return obj.__dict__.get(self.name, self.default)\n    def __set__(self, obj, value):\n        obj.__dict__[self.name] = value\nclass Opt:\n    by = Field(2.0)\n"),
     "model.o.by = 3.0")
_add("descriptor that keeps the values in a WeakKeyDictionary",
     m("x * self.o.by", "self.o = Opt()", "import weakref\nclass Field:\n    def __init__(self, default):\n        self.default = default\n        self.values = weakref.WeakKeyDictionary()\n    def __get__(self, obj, owner):\n        return self.values.get(obj, self.default)\n    def __set__(self, obj, value):\n        self.values[obj] = value\nclass Opt:\n    by = Field(2.0)\n"),
     "model.o.by = 3.0")
_add("attrs class: default edited",
     m("x * self.o.by", "self.o = Opt()", "import attr\n@attr.s(auto_attribs=True, slots=True)\nclass Opt:\n    by: float = 2.0\n"),
     "", ("by: float = 2.0", "by: float = 3.0"))
_add("attrs class: converter is edited, object made in forward",
     m("x * Opt(2.0).by", top="import attr\ndef conv(v):\n    return v * 2.0\n@attr.s\nclass Opt:\n    by = attr.ib(converter=conv)\n"),
     "", ("return v * 2.0", "return v * 4.0"))
_add("pydantic model: value set on the instance",
     m("x * self.o.by", "self.o = Opt()", "import pydantic\nclass Opt(pydantic.BaseModel):\n    by: float = 2.0\n"),
     "model.o.by = 3.0")
_add("pydantic model: validator edited, object made in forward",
     m("x * Opt(by=2.0).by", top="import pydantic\nclass Opt(pydantic.BaseModel):\n    by: float = 2.0\n    @pydantic.field_validator('by')\n    @classmethod\n    def check(cls, v):\n        return v * 2.0\n"),
     "", ("return v * 2.0", "return v * 4.0"))
_add("pydantic model: constraint le=... edited, ValidationError is caught in forward",
     m("try:\n    return x * Opt(by=5.0).by\nexcept pydantic.ValidationError:\n    return x", top="import pydantic\nclass Opt(pydantic.BaseModel):\n    by: float = pydantic.Field(2.0, le=4.0)\n"),
     "", ("le=4.0", "le=6.0"))
_add("pydantic model with private attribute and extra fields",
     m("x * self.o.model_extra['by']", "self.o = Opt(by=2.0)", "import pydantic\nclass Opt(pydantic.BaseModel):\n    model_config = pydantic.ConfigDict(extra='allow')\n    dim: int = 4\n"),
     "model.o.by = 3.0")
_add("custom int subclass with a unit attribute",
     m("x * float(self.k) * self.k.unit", "self.k = K(2)\nself.k.unit = 1.0", "class K(int):\n    pass\n"),
     "model.k.unit = 2.0")
_add("AttrDict (dict subclass with __getattr__), nested",
     m("x * self.cfg.model.by", "self.cfg = AttrDict(model=AttrDict(by=2.0))", "class AttrDict(dict):\n    def __getattr__(self, n):\n        try:\n            return self[n]\n        except KeyError:\n            raise AttributeError(n)\n    def __setattr__(self, n, v):\n        self[n] = v\n"),
     "model.cfg.model.by = 3.0")
_add("config object whose __missing__ gives a default that is edited",
     m("x * self.cfg['by']", "self.cfg = D(dim=4)", "class D(dict):\n    def __missing__(self, key):\n        return {'by': 2.0}[key]\n"),
     "", ("{'by': 2.0}", "{'by': 3.0}"))
_add("operator overload on a config object: __mul__ edited",
     m("self.s @ self.lin(x)", "self.s = S(2.0)", "class S:\n    def __init__(self, v):\n        self.v = v\n    def __matmul__(self, x):\n        return x * self.v\n"),
     "", ("return x * self.v", "return x / self.v"))
_add("__bool__ of a config section is edited",
     m("return self.lin(x).relu() if self.s else self.lin(x)", "self.s = S()", "class S:\n    enabled = True\n    def __bool__(self):\n        return self.enabled\n"),
     "", ("return self.enabled", "return not self.enabled"))

# ---------------------------------------------------------------- data files
_P = "import pathlib\nHERE = pathlib.Path(__file__).parent\n"
_add("YAML config read when the model is made",
     m("x * self.cfg['by']", "self.cfg = yaml.safe_load((HERE / 'c.yaml').read_text())", _P + "import yaml")
     + "--- c.yaml\nby: 2.0\ndim: 4\n", "", ("by: 2.0", "by: 3.0"))
_add("YAML anchors: merged section is edited",
     m("x * self.cfg['big']['by']", "self.cfg = yaml.safe_load((HERE / 'c.yaml').read_text())", _P + "import yaml")
     + "--- c.yaml\nbase: &b\n  by: 2.0\nbig:\n  <<: *b\n  dim: 4\n", "", ("by: 2.0", "by: 3.0"))
_add("JSON read in forward",
     m("with open(HERE / 'c.json') as f:\n    by = json.load(f)['by']\nreturn self.lin(x) * by", top=_P + "import json")
     + "--- c.json\n{\"by\": 2.0}\n", "", ("2.0", "3.0"))
_add("JSON order of layers, built to a Sequential",
     m("self.seq(x)", "self.seq = nn.Sequential(*[getattr(nn, n)() for n in json.loads((HERE / 'c.json').read_text())])", _P + "import json")
     + "--- c.json\n[\"ReLU\", \"Tanh\"]\n", "", ("[\"ReLU\", \"Tanh\"]", "[\"Tanh\", \"ReLU\"]"))
_add("TOML read at import into a module constant",
     m("x * CFG['model']['by']", top=_P + "import tomllib\nCFG = tomllib.loads((HERE / 'c.toml').read_text())")
     + "--- c.toml\n[model]\nby = 2.0\n", "", ("by = 2.0", "by = 3.0"))
_add("CSV lookup table becomes a numpy array",
     m("x * torch.from_numpy(self.t).float()", "self.t = np.loadtxt(HERE / 't.csv', delimiter=',')", _P + "import numpy as np")
     + "--- t.csv\n1,2,3,4\n", "", ("1,2,3,4", "1,2,3,5"))
_add("CSV class names, counted for the width",
     m("F.pad(x, (0, len(self.names)))", "self.names = [r['name'] for r in csv.DictReader(open(HERE / 't.csv'))]", _P + "import csv")
     + "--- t.csv\nname,id\na,1\nb,2\n", "", ("b,2\n", "b,2\nc,3\n"))
_add("INI file with configparser, parser kept on the model",
     m("x * self.c.getfloat('m', 'by')", "self.c = configparser.ConfigParser()\nself.c.read(HERE / 'c.ini')", _P + "import configparser")
     + "--- c.ini\n[m]\nby = 2.0\n", "", ("by = 2.0", "by = 3.0"))
_add("file read through an lru_cache'd loader in forward",
     m("x * load()['by']", top=_P + "import json, functools\n@functools.lru_cache(None)\ndef load():\n    return json.loads((HERE / 'c.json').read_text())\n")
     + "--- c.json\n{\"by\": 2.0}\n", "", ("2.0", "3.0"))
_add("file read through an lru_cache'd loader that was filled when the model was made",
     m("x * load()['by']", "load()", _P + "import json, functools\n@functools.lru_cache(None)\ndef load():\n    return json.loads((HERE / 'c.json').read_text())\n")
     + "--- c.json\n{\"by\": 2.0}\n", "", ("2.0", "3.0"))
_add("npz statistics are loaded in forward",
     m("x - torch.from_numpy(np.load(HERE / 'stats.npy'))", top=_P + "import numpy as np\nimport os\nif not (HERE / 'stats.npy').exists():\n    np.save(HERE / 'stats.npy', np.full(4, 2.0, dtype=np.float32))"),
     "import numpy as np\nnp.save(app.HERE / 'stats.npy', np.full(4, 3.0, dtype=np.float32))")
_add("npz statistics, loaded to a plain tensor attribute",
     m("x - self.mean", "self.mean = torch.tensor(json.loads((HERE / 's.json').read_text()))", _P + "import json")
     + "--- s.json\n[1.0, 2.0, 3.0, 4.0]\n", "", ("4.0]", "5.0]"))
_add("vocabulary file: its number of lines is the size of an embedding-like buffer",
     m("x @ self.table", "self.register_buffer('table', torch.ones(4, len((HERE / 'v.txt').read_text().split())))", _P)
     + "--- v.txt\nthe\na\n", "", ("the\na\n", "the\na\nan\n"))
_add("existence of a marker file is tested in forward",
     m("if os.path.exists(HERE / 'use_relu.txt'):\n    return self.lin(x).relu()\nreturn self.lin(x)", top=_P + "import os"),
     added="--- use_relu.txt\nyes\n")
_add("plugins are listed by glob in forward",
     m("F.pad(x, (0, len(list(HERE.glob('plug_*.txt')))))", top=_P), added="--- plug_a.txt\n1\n")
_add("importlib.resources text read in forward",
     m("x * float(importlib.resources.files('pk').joinpath('by.txt').read_text())", top="import importlib.resources\nimport pk")
     + "--- pk/__init__.py\nX = 1\n--- pk/by.txt\n2.0\n", "", ("2.0", "3.0"))

# ---------------------------------------------------------------- command line, environment
_ARG = "import argparse\ndef parse():\n    p = argparse.ArgumentParser()\n    p.add_argument('--by', type=float, default=2.0)\n    return p.parse_known_args()[0]\n"
_add("argparse namespace kept on the model, other command line",
     m("x * self.args.by", "self.args = parse()", _ARG), first="import sys\nsys.argv = ['x']", second="import sys\nsys.argv = ['x', '--by', '3.0']")
_add("argparse: the default in the file is edited",
     m("x * self.args.by", "self.args = parse()", "import argparse\nARGS = argparse.ArgumentParser()\nARGS.add_argument('--by', type=float, default=2.0)\ndef parse():\n    return ARGS.parse_known_args([])[0]\n"),
     "", ("default=2.0", "default=3.0"))
_add("argparse is called in forward",
     m("x * parse().by", top=_ARG), first="import sys\nsys.argv = ['x']", second="import sys\nsys.argv = ['x', '--by', '3.0']")
_add("env variable read in forward through a helper with default",
     m("x * flag('MYBY', 2.0)", top="import os\ndef flag(n, d):\n    v = os.getenv(n)\n    return d if v is None else len(v) * 1.5\n"), env={"MYBY": "33"})
_add("os.path.expandvars in forward",
     m("return self.lin(x).relu() if os.path.expandvars('$MYACT') == 'relu' else self.lin(x)", top="import os"), environ={}, env={"MYACT": "relu"})
_add("home directory by expanduser in forward",
     m("return self.lin(x).relu() if os.path.expanduser('~').endswith('trainer') else self.lin(x)", top="import os"), env={"HOME": "/home/trainer"})
_add("env variable is set by the script between two compiles",
     m("return self.lin(x).relu() if 'USE_RELU' in os.environ else self.lin(x)", top="import os"), "import os\nos.environ['USE_RELU'] = '1'")
_add("composed env variable name",
     m("return self.lin(x).relu() if os.environ.get(f'{self.prefix}_ACT', '') == 'relu' else self.lin(x)", "self.prefix = 'NET'", "import os"), env={"NET_ACT": "relu"})
_add("constructor argument from the environment in the script that makes the model",
     "class Model(nn.Module):\n    def __init__(self, by):\n        super().__init__()\n        self.lin = nn.Linear(4, 4)\n        self.by = by\n    def forward(self, x):\n        return self.lin(x) * self.by\n",
     make="import os, app\nmodel = app.Model(float(os.environ.get('BY', '2'))).eval()", env={"BY": "3"})
_add("debug flag of the package from env at import, read as attribute of a module object",
     m("return self.lin(x).clamp(-1, 1) if flags.DEBUG else self.lin(x)", top="import flags")
     + "--- flags.py\nimport os\nDEBUG = os.environ.get('NETDEBUG', '0') not in ('0', '')\n", env={"NETDEBUG": "1"})
_add("time zone of the machine",
     m("return self.lin(x).relu() if time.tzname[0] == 'XYZ' else self.lin(x)", top="import time"), env={"TZ": "XYZ-3"})
_add("working directory read in forward",
     m("return self.lin(x).relu() if os.path.basename(os.getcwd()) == 'tmp' else self.lin(x)", top="import os"), "import os\nos.chdir('/tmp')")
_add("host name read in forward (patched in tests by mock)",
     m("return self.lin(x).relu() if socket.gethostname() == 'gpu-box' else self.lin(x)", top="import socket"), "import socket\nsocket.gethostname = lambda: 'gpu-box'")

# ---------------------------------------------------------------- the instance is changed
_add("activation module swapped by setattr", m("self.act(self.lin(x))", "self.act = nn.ReLU()"), "model.act = torch.nn.GELU()")
_add("GELU approximate flag set on the submodule", m("self.act(self.lin(x))", "self.act = nn.GELU()"), "model.act.approximate = 'tanh'")
_add("all ReLUs replaced recursively in a nested model",
     m("self.seq(x)", "self.seq = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 4)))"),
     "def swap(m):\n    for n, c in list(m.named_children()):\n        if isinstance(c, torch.nn.ReLU):\n            setattr(m, n, torch.nn.SiLU())\n        else:\n            swap(c)\nswap(model)")
_add("dropout layers replaced by Identity in train mode", m("self.d(self.lin(x))", "self.d = nn.Dropout(0.5)"), "model.train()\nmodel.d = torch.nn.Identity()", first="", make="import app\nmodel = app.Model().train()")
_add("layer popped from a ModuleList", m("for l in self.ls:\n    x = l(x)\nreturn x", "self.ls = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])"), "model.ls.pop(1)")
_add("Sequential truncated by slicing", m("self.s(x)", "self.s = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))"), "model.s = model.s[:2]")
_add("ModuleDict order changed by pop and re-insert", m("for l in self.d.values():\n    x = l(x)\nreturn x", "self.d = nn.ModuleDict({'a': nn.ReLU(), 'b': nn.Tanh()})"), "a = model.d.pop('a')\nmodel.d['a'] = a")
_add("ParameterList is extended", m("for p in self.ps:\n    x = x * p\nreturn x", "self.ps = nn.ParameterList([nn.Parameter(torch.ones(4))])"), "model.ps.append(torch.nn.Parameter(torch.ones(4)))")
_add("ParameterDict key renamed", m("for k, p in self.ps.items():\n    x = x * p if k.startswith('mul') else x + p\nreturn x", "self.ps = nn.ParameterDict({'mul_a': nn.Parameter(torch.ones(4))})"), "p = model.ps.pop('mul_a')\nmodel.ps['add_a'] = p")
_add("weights tied between two linears", m("self.b(self.lin(x))", "self.b = nn.Linear(4, 4)"), "model.b.weight = model.lin.weight")
_add("shared submodule untied by deepcopy", m("self.b(self.lin(x))", "self.b = self.lin"), "import copy\nmodel.b = copy.deepcopy(model.lin)")
_add("frozen weights decide a branch", m("y = self.lin(x)\nreturn y.detach() * 2.0 if not self.lin.weight.requires_grad else y"), "model.lin.weight.requires_grad_(False)")
_add("freeze by requires_grad_ on the module; sum of trainable sizes is used", m("x * float(sum(p.numel() for p in self.parameters() if p.requires_grad))"), "model.lin.bias.requires_grad_(False)")
_add("weight_norm added", m("self.lin(x)"), "torch.nn.utils.parametrizations.weight_norm(model.lin)")
_add("old-style weight_norm added (pre-forward hook)", m("self.lin(x)"), "torch.nn.utils.weight_norm(model.lin)")
_add("old-style spectral_norm: number of power iterations in train mode", m("self.lin(x)", "torch.nn.utils.spectral_norm(self.lin, n_power_iterations=1)"),
     "next(iter(model.lin._forward_pre_hooks.values())).n_power_iterations = 2", make="import app\nmodel = app.Model().train()")
_add("spectral_norm added to a layer", m("self.lin(x)"), "torch.nn.utils.parametrizations.spectral_norm(model.lin)")
_add("parametrization's scale attribute is set", m("self.lin(x)", "torch.nn.utils.parametrize.register_parametrization(self.lin, 'weight', Sc())", "import torch.nn.utils.parametrize\nclass Sc(nn.Module):\n    by = 2.0\n    def forward(self, w):\n        return w * self.by\n"), "model.lin.parametrizations.weight[0].by = 3.0")
_add("parametrization removed (baked in)", m("self.lin(x)", "torch.nn.utils.parametrizations.orthogonal(self.lin)"), "torch.nn.utils.parametrize.remove_parametrizations(model.lin, 'weight')")
_add("pruned by l1_unstructured", m("self.lin(x)"), "import torch.nn.utils.prune as p\np.l1_unstructured(model.lin, 'weight', 0.5)")
_add("pruning made permanent", m("self.lin(x)", "import torch.nn.utils.prune as p\np.l1_unstructured(self.lin, 'weight', 0.5)"), "import torch.nn.utils.prune as p\np.remove(model.lin, 'weight')")
_add("structured pruning: smaller layer put in", m("self.b(self.lin(x))", "self.b = nn.Linear(4, 2)"), "model.lin = torch.nn.Linear(4, 3)\nmodel.b = torch.nn.Linear(3, 2)")
_LORA = "class Lora(nn.Module):\n    def __init__(self, base, r=2, alpha=4):\n        super().__init__()\n        self.base = base\n        self.scaling = {'default': alpha / r, 'other': 8.0}\n        self.A = nn.ModuleDict({'default': nn.Linear(4, r, bias=False), 'other': nn.Linear(4, r, bias=False)})\n        self.B = nn.ModuleDict({'default': nn.Linear(r, 4, bias=False), 'other': nn.Linear(r, 4, bias=False)})\n        self.active = ['default']\n        self.merged = False\n    def forward(self, x):\n        y = self.base(x)\n        if not self.merged:\n            for a in self.active:\n                y = y + self.B[a](self.A[a](x)) * self.scaling[a]\n        return y\n"
_add("LoRA wrapper put around a layer", m("self.lin(x)", top=_LORA), "model.lin = app.Lora(model.lin)")
_add("LoRA scale changed in the dict", m("self.lora(x)", "self.lora = Lora(self.lin)", _LORA), "model.lora.scaling['default'] = 0.5")
_add("LoRA adapter switched", m("self.lora(x)", "self.lora = Lora(self.lin)", _LORA), "model.lora.active[:] = ['other']")
_add("LoRA merged flag", m("self.lora(x)", "self.lora = Lora(self.lin)", _LORA), "model.lora.merged = True")
_add("forward hook added by a function", m("self.lin(x)"), "model.lin.register_forward_hook(lambda m, i, o: o * 2.0)")
_add("forward pre-hook prepended: the order matters", m("self.lin(x)", "self.lin.register_forward_pre_hook(lambda m, i: (i[0] * 2.0,))"), "model.lin.register_forward_pre_hook(lambda m, i: (i[0] + 1.0,), prepend=True)")
_add("hook handle removed", m("self.lin(x)", "self.h = [self.lin.register_forward_hook(lambda m, i, o: o * 2.0)]"), "model.h[0].remove()")
_add("hook is a callable object with state", m("self.lin(x)", "self.steer = Steer()\nself.lin.register_forward_hook(self.steer)", "class Steer:\n    def __init__(self):\n        self.coeff = 2.0\n    def __call__(self, m, i, o):\n        return o * self.coeff\n"), "model.steer.coeff = 3.0")
_add("hook by functools.partial with keyword", m("self.lin(x)", "self.lin.register_forward_hook(functools.partial(hook, by=2.0))", "import functools\ndef hook(m, i, o, by):\n    return o * by\n"), "", ("hook, by=2.0", "hook, by=3.0"))
_add("hook with kwargs on the top model by a bound method of another object", m("self.lin(x)"), "class T:\n    k = 2.0\n    def hook(self, m, args, kwargs, out):\n        return out * self.k\nmodel.register_forward_hook(T().hook, with_kwargs=True)")
_add("global module forward hook", m("self.lin(x)"), "torch.nn.modules.module.register_module_forward_hook(lambda m, i, o: o * 2.0 if isinstance(m, torch.nn.Linear) else None)")
_add("forward replaced on the instance (types.MethodType)", m("self.lin(x)"), "import types\nmodel.forward = types.MethodType(lambda self, x: self.lin(x).relu(), model)")
_add("submodule's forward wrapped on the instance with the old one in a closure", m("self.lin(x)"), "old = model.lin.forward\nmodel.lin.forward = lambda x, old=old: old(x) * 2.0")
_add("method of the class monkey-patched by setattr", m("self.post(self.lin(x))", more="def post(self, x):\n    return x.relu()\n"), "app.Model.post = lambda self, x: x.tanh()")
_add("static method replaced on a helper class", m("Ops.scale(self.lin(x))", top="class Ops:\n    @staticmethod\n    def scale(x):\n        return x * 2.0\n"), "app.Ops.scale = staticmethod(lambda x: x * 3.0)")
_add("mock.patch.object of F.gelu, started and left on", m("F.gelu(self.lin(x))"), "from unittest import mock\nmock.patch.object(torch.nn.functional, 'gelu', lambda x: x * torch.sigmoid(1.702 * x)).start()")
_add("F.scaled_dot_product_attention replaced by a manual version", m("F.scaled_dot_product_attention(x[None], x[None], x[None])[0]"), "torch.nn.functional.scaled_dot_product_attention = lambda q, k, v, **kw: (q @ k.transpose(-1, -2)).softmax(-1) @ v")
_add("nn.ReLU.forward patched", m("self.a(self.lin(x))", "self.a = nn.ReLU()"), "torch.nn.ReLU.forward = lambda self, x: x.clamp(0, 6)")
_add("nn.Linear.forward patched by a wrapper that calls the old one", m("self.lin(x)"), "old = torch.nn.Linear.forward\ndef new(self, x):\n    return old(self, x) * 2.0\ntorch.nn.Linear.forward = new")
_add("new method put on torch.Tensor that a helper probes", m("y = self.lin(x)\nreturn y.my_act() if hasattr(y, 'my_act') else y"), "torch.Tensor.my_act = lambda self: self.relu()")
_add("instance class swapped (model.lin.__class__)", m("self.lin(x)"), "class L(torch.nn.Linear):\n    def forward(self, x):\n        return super().forward(x) * 2.0\nmodel.lin.__class__ = L")
_add("function's __defaults__ set", m("h(self.lin(x))", top="def h(x, by=2.0):\n    return x * by\n"), "app.h.__defaults__ = (3.0,)")
_add("function attribute as option", m("h(self.lin(x))", top="def h(x):\n    return x * h.by\nh.by = 2.0\n"), "app.h.by = 3.0")
_add("math.sqrt patched in a helper's namespace", m("x / sqrt(4.0)", top="from math import sqrt"), "app.sqrt = lambda v: v")
_add("functools.partialmethod with another keyword", m("self.post(self.lin(x))", more="def _p(self, x, by):\n    return x * by\npost = functools.partialmethod(_p, by=2.0)\n", top="import functools"), "", ("_p, by=2.0", "_p, by=3.0"))
_add("plain tensor attribute in a dict is changed in place", m("x * self.d['scale']", "self.d = {'scale': torch.full((4,), 2.0)}"), "model.d['scale'].fill_(3.0)")
_add("non-persistent buffer recomputed (rope table)", m("x * self.cos", "self.register_buffer('cos', torch.cos(torch.arange(4.0) / 10000.0), persistent=False)"), "model.cos = torch.cos(torch.arange(4.0) / 500.0)")
_add("buffer made persistent", m("x * self.c", "self.register_buffer('c', torch.ones(4), persistent=False)"), "model.register_buffer('c', model.c, persistent=True)")
_add("buffer turned to a parameter", m("x * self.c", "self.register_buffer('c', torch.ones(4))"), "c = model.c\ndel model.c\nmodel.c = torch.nn.Parameter(c)")
_add("batch norm: track_running_stats off", m("self.bn(x)", "self.bn = nn.BatchNorm1d(4)"), "model.bn.track_running_stats = False\nmodel.bn.running_mean = None\nmodel.bn.running_var = None")
_add("only the batch norms in train mode", m("self.bn(x)", "self.bn = nn.BatchNorm1d(4)"), "model.bn.train()")
_add("layer norm eps", m("self.ln(x)", "self.ln = nn.LayerNorm(4)"), "model.ln.eps = 1e-6")
_add("group norm groups", m("self.gn(x)", "self.gn = nn.GroupNorm(2, 4)"), "model.gn.num_groups = 4")
_add("conv fused with batch norm", m("self.bn(self.c(x[..., None]))[..., 0]", "self.c = nn.Conv1d(4, 4, 1)\nself.bn = nn.BatchNorm1d(4)"), "model.c = torch.nn.utils.fusion.fuse_conv_bn_eval(model.c, model.bn)\nmodel.bn = torch.nn.Identity()")
_add("conv padding attribute set", m("self.c(x[None])", "self.c = nn.Conv1d(3, 3, 3, padding=1)"), "model.c.padding = (0,)")
_add("bfloat16 weights with cast in forward", m("self.lin(x.to(self.lin.weight.dtype))"), "model.bfloat16()")
_add("channels_last weights, is_contiguous asked", m("w = self.c.weight\nreturn self.lin(x) if w.is_contiguous() else self.lin(x).relu()", "self.c = nn.Conv2d(4, 4, 3)"), "model.to(memory_format=torch.channels_last)")
_add("python attribute on a parameter", m("x * getattr(self.lin.weight, 'gain', 2.0)"), "model.lin.weight.gain = 3.0")
_add("TransformerEncoderLayer: norm_first switched", m("self.t(x[None])[0]", "self.t = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)"), "model.t.norm_first = True")
_add("TransformerEncoderLayer: activation function replaced, in train mode", m("self.t(x[None])[0]", "self.t = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)"), "model.t.activation = torch.nn.functional.gelu", make="import app\nmodel = app.Model().train()")
_add("fake-quant flag and number of bits on a quantizer object in a list", m("y = self.lin(x)\nfor q in self.qs:\n    y = q(y)\nreturn y", "self.qs = [Q(8)]", "class Q:\n    def __init__(self, bits):\n        self.bits = bits\n        self.on = True\n    def __call__(self, x):\n        s = 1.0 / (2 ** (self.bits - 1))\n        return torch.fake_quantize_per_tensor_affine(x, s, 0, -2 ** (self.bits - 1), 2 ** (self.bits - 1) - 1) if self.on else x\n"), "model.qs[0].bits = 4")
_add("attention processor object set (diffusers style)", m("self.attn(x)", "self.attn = Attn()", "class P1:\n    def __call__(self, attn, x):\n        return attn.q(x) * 2.0\nclass P2:\n    def __call__(self, attn, x):\n        return attn.q(x) * 3.0\nclass Attn(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.q = nn.Linear(4, 4)\n        self.processor = P1()\n    def forward(self, x):\n        return self.processor(self, x)\n"), "model.attn.processor = app.P2()")
_add("child reads from a parent through a list back-reference", m("self.c(self.lin(x))", "self.by = 2.0\nself.c = Child([self])", "class Child(nn.Module):\n    def __init__(self, p):\n        super().__init__()\n        self.p = p\n    def forward(self, x):\n        return x * self.p[0].by\n"), "model.by = 3.0")
_add("child reads from the parent through weakref", m("self.c(self.lin(x))", "self.by = 2.0\nself.c = Child(self)", "import weakref\nclass Child(nn.Module):\n    def __init__(self, p):\n        super().__init__()\n        self.p = weakref.ref(p)\n    def forward(self, x):\n        return x * self.p().by\n"), "model.by = 3.0")

# ---------------------------------------------------------------- torch's global state
_add("default dtype read by a factory in forward", m("self.lin(x) * torch.ones(4)"), "torch.set_default_dtype(torch.float64)")
_add("grad mode asked in forward", m("return self.lin(x) if torch.is_grad_enabled() else self.lin(x).relu()"), "torch.set_grad_enabled(False)")
_add("autocast left enabled globally", m("self.lin(x)"), "torch.set_autocast_enabled('cpu', True)")
_add("autocast dtype asked in forward", m("x.to(torch.get_autocast_dtype('cpu')) * 2.0"), "torch.set_autocast_dtype('cpu', torch.float16)")
_add("deterministic algorithms asked in forward", m("return self.lin(x).relu() if torch.are_deterministic_algorithms_enabled() else self.lin(x)"), "torch.use_deterministic_algorithms(True)")
_add("float32 matmul precision asked in forward", m("return self.lin(x).relu() if torch.get_float32_matmul_precision() != 'highest' else self.lin(x)"), "torch.set_float32_matmul_precision('high')")
_add("flash sdp flag asked in a helper", m("self.lin(x).relu() if torch.backends.cuda.flash_sdp_enabled() else self.lin(x)"), "torch.backends.cuda.enable_flash_sdp(False)")
_add("number of threads asked in forward", m("F.pad(x, (0, torch.get_num_threads()))"), "torch.set_num_threads(3)")
_add("mha fast path flag in TransformerEncoder", m("self.t(x[None])[0]", "self.t = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)"), "torch.backends.mha.set_fastpath_enabled(False)")
_add("print options asked through the text of a constant tensor", m("F.pad(x, (0, len(str(self.t))))", "self.t = torch.tensor([1.23456789])"), "torch.set_printoptions(precision=2)")
_add("parametrize.cached() is active during the compile", m("return self.lin(x).relu() if P._cache_enabled else self.lin(x)", top="import torch.nn.utils.parametrize as P"), "torch.nn.utils.parametrize._cache_enabled = 1")
_add("a torch function mode stays active", m("F.relu(self.lin(x))"), "from torch.overrides import TorchFunctionMode\nclass Mode(TorchFunctionMode):\n    def __torch_function__(self, f, types, args=(), kwargs=None):\n        if f is torch.nn.functional.relu:\n            return torch.tanh(args[0])\n        return f(*args, **(kwargs or {}))\nMode().__enter__()")
_add("cudnn benchmark flag asked in forward", m("return self.lin(x).relu() if torch.backends.cudnn.benchmark else self.lin(x)"), "torch.backends.cudnn.benchmark = True")
_add("warnings become errors; forward catches the warning", m("try:\n    warnings.warn('slow path', UserWarning)\nexcept UserWarning:\n    return self.lin(x).relu()\nreturn self.lin(x)", top="import warnings"), "import warnings\nwarnings.simplefilter('error')")
_add("logger level decides in forward", m("return self.lin(x).clamp(-1, 1) if log.isEnabledFor(logging.DEBUG) else self.lin(x)", top="import logging\nlog = logging.getLogger('net')"), "import logging\nlogging.getLogger('net').setLevel(logging.DEBUG)")
_add("logging.disable is asked by way of the root manager", m("return self.lin(x).clamp(-1, 1) if logging.root.manager.disable >= 20 else self.lin(x)", top="import logging"), "import logging\nlogging.disable(logging.INFO)")

# ---------------------------------------------------------------- caches, counters, context
_add("lru_cache on a method-like helper keeps an old value after the global changed", m("x * table(4)", top="import functools\nBASE = 2.0\n@functools.lru_cache\ndef table(n):\n    return BASE * n\n"), "app.BASE = 3.0\napp.table.cache_clear()")
_add("cached_property holds a value made from an older setting", m("x * self.cfg.scale", "self.cfg = Cfg()", "import functools\nclass Cfg:\n    by = 2.0\n    @functools.cached_property\n    def scale(self):\n        return self.by * 2\n"), "model.cfg.scale\nmodel.cfg.scale = 9.0")
_add("global dict cache keyed by shape tuple is prefilled", m("key = tuple(x.shape)\nif key not in CACHE:\n    return x * 2.0\nreturn x * CACHE[key]", top="CACHE = {}"), "app.CACHE[(3, 4)] = 3.0")
_add("step counter on the model selects a warm-up branch", m("return self.lin(x) * 0.5 if self.step < 10 else self.lin(x)", "self.step = 0"), "model.step += 20")
_add("counter is increased in forward", m("self.calls += 1\nreturn self.lin(x) * float(self.calls)", "self.calls = 0"), "model(torch.rand(3, 4))")
_add("python random in forward after another seed", m("x * random.choice([2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])", top="import random", init="random.seed(1)"), "import random\nrandom.seed(7)")
_add("numpy's global generator in forward", m("x * float(np.random.rand())", top="import numpy as np", init="np.random.seed(1)"), "import numpy as np\nnp.random.seed(7)")
_add("own random.Random on the model", m("x * self.rng.random()", "self.rng = random.Random(0)", "import random"), "model.rng.seed(5)")
_add("date check in forward (feature starts on a day), patched clock", m("return self.lin(x).relu() if time.time() > 4e9 else self.lin(x)", top="import time"), "import time\ntime.time = lambda: 5e9")
_add("context variable set to another value", m("x * BY.get()", top="import contextvars\nBY = contextvars.ContextVar('BY', default=2.0)"), "app.BY.set(3.0)")
_add("threading.local attribute set by a context manager style setter", m("x * getattr(STATE, 'by', 2.0)", top="import threading\nSTATE = threading.local()"), "app.STATE.by = 3.0")
_add("nonlocal closure counter/setter pair", m("x * get()", top="def make():\n    by = 2.0\n    def get():\n        return by\n    def put(v):\n        nonlocal by\n        by = v\n    return get, put\nget, put = make()\n"), "app.put(3.0)")
_add("class-level context stack (with no_scale(): ...)", m("return self.lin(x) * 2.0 if not Ctx.stack or Ctx.stack[-1] else self.lin(x)", top="class Ctx:\n    stack = []\n"), "app.Ctx.stack.append(False)")
_add("gin-like binding registry consumed by a decorator", m("h(self.lin(x))", top="from gin import configurable\n@configurable\ndef h(x, by=2.0):\n    return x * by\n") + "--- gin.py\nimport functools\nBIND = {}\ndef bind(k, v):\n    BIND[k] = v\ndef configurable(f):\n    @functools.wraps(f)\n    def inner(*a, **k):\n        for name, v in BIND.items():\n            fn, arg = name.split('.')\n            if fn == f.__name__:\n                k.setdefault(arg, v)\n        return f(*a, **k)\n    return inner\n", "import gin\ngin.bind('h.by', 3.0)")
_add("timm-like global flag with setter in a config module", m("return self.lin(x).relu() if use_fused() else self.lin(x)", top="from cfgmod import use_fused") + "--- cfgmod.py\n_USE = 1\ndef set_fused(v):\n    global _USE\n    _USE = v\ndef use_fused(experimental=False):\n    return _USE > 1 if experimental else _USE > 0\n", "import cfgmod\ncfgmod.set_fused(0)")
_add("hydra-like _target_ instantiate in forward by importlib", m("instantiate(self.cfg)(self.lin(x))", "self.cfg = {'_target_': 'parts.Act', 'by': 2.0}", "import importlib\ndef instantiate(cfg):\n    cfg = dict(cfg)\n    mod, name = cfg.pop('_target_').rsplit('.', 1)\n    return getattr(importlib.import_module(mod), name)(**cfg)\n") + "--- parts.py\nclass Act:\n    def __init__(self, by):\n        self.by = by\n    def __call__(self, x):\n        return x * self.by\n", "", ("return x * self.by", "return x / self.by"))
_add("HF-like ACT2FN with class instantier", m("ACT2FN[self.kind](self.lin(x))", "self.kind = 'lrelu'", "from acts import ACT2FN") + "--- acts.py\nfrom collections import OrderedDict\nclass Inst(OrderedDict):\n    def __getitem__(self, key):\n        c = super().__getitem__(key)\n        cls, kw = c if isinstance(c, tuple) else (c, {})\n        return cls(**kw)\nACT2FN = Inst({'relu': nn.ReLU, 'lrelu': (nn.LeakyReLU, {'negative_slope': 0.1})})\n", "", ("'negative_slope': 0.1", "'negative_slope': 0.2"))

# ---------------------------------------------------------------- values of many kinds
_add("getattr with composed name: another method is chosen", m("getattr(self, f'act_{self.kind}')(self.lin(x))", "self.kind = 'a'", more="def act_a(self, x):\n    return x.relu()\ndef act_b(self, x):\n    return x.tanh()\n"), "model.kind = 'b'")
_add("getattr with composed name on a module: the function is edited", m("getattr(acts, 'act_' + self.kind)(self.lin(x))", "self.kind = 'a'", "import acts") + "--- acts.py\ndef act_a(x):\n    return x * 2.0\ndef act_b(x):\n    return x\n", "", ("return x * 2.0", "return x * 3.0"))
_add("globals() with composed name", m("globals()['SCALE_' + self.kind] * self.lin(x)", "self.kind = 'BIG'", "SCALE_BIG = 2.0\nSCALE_SMALL = 1.0"), "", ("SCALE_BIG = 2.0", "SCALE_BIG = 3.0"))
_add("string format spec looks up a key", m("x * TABLE['{:02d}'.format(self.level)]", "self.level = 1", "TABLE = {'01': 2.0, '02': 3.0}"), "", ("'01': 2.0", "'01': 4.0"))
_add("einops-like pattern string on a layer in a Sequential", m("self.s(x)", "self.s = nn.Sequential(Re('a b -> b a'))", "class Re(nn.Module):\n    def __init__(self, p):\n        super().__init__()\n        self.p = p\n    def forward(self, x):\n        l, r = [s.split() for s in self.p.split('->')]\n        return x.permute([l.index(n) for n in r])\n"), "model.s[0].p = 'a b -> a b'")
_add("numpy scalar hyperparameter: float64 to float32", m("x * np.float64(self.k).item() if self.k.dtype == np.float64 else x / 2.0", "self.k = np.float64(2.0)", "import numpy as np"), "import numpy as np\nmodel.k = np.float32(2.0)")
_add("numpy array attribute changed in place", m("x * torch.from_numpy(self.k.copy())", "self.k = np.ones(4, dtype=np.float32)", "import numpy as np"), "model.k[2] = 5.0")
_add("numpy array in Fortran order (flags asked)", m("return self.lin(x).relu() if self.k.flags['F_CONTIGUOUS'] else self.lin(x)", "self.k = np.ones((2, 3))", "import numpy as np"), "import numpy as np\nmodel.k = np.asfortranarray(model.k)")
_add("Decimal constant and context precision", m("x * float(decimal.Decimal(1) / decimal.Decimal(3))", top="import decimal"), "import decimal\ndecimal.getcontext().prec = 3")
_add("Fraction constant", m("x * float(RATIO)", top="from fractions import Fraction\nRATIO = Fraction(1, 3)"), "", ("Fraction(1, 3)", "Fraction(2, 3)"))
_add("date constant compared", m("return self.lin(x).relu() if CUT > datetime.date(2024, 1, 1) else self.lin(x)", top="import datetime\nCUT = datetime.date(2023, 5, 1)"), "", ("(2023, 5, 1)", "(2025, 5, 1)"))
_add("pathlib attribute: suffix decides", m("return self.lin(x).relu() if self.p.suffix == '.onnx' else self.lin(x)", "self.p = pathlib.Path('net.pt')", "import pathlib"), "import pathlib\nmodel.p = pathlib.Path('net.onnx')")
_add("regex constant decides by layer name", m("for n, c in self.named_children():\n    if SKIP.search(n):\n        continue\n    x = c(x)\nreturn x", "self.act = nn.ReLU()", "import re\nSKIP = re.compile('act')"), "", ("re.compile('act')", "re.compile('ACT')"))
_add("regex flags only", m("for n, c in self.named_children():\n    if SKIP.search(n):\n        continue\n    x = c(x)\nreturn x", "self.act = nn.ReLU()", "import re\nSKIP = re.compile('ACT')"), "", ("re.compile('ACT')", "re.compile('ACT', re.I)"))
_add("sentinel default is passed explicitly (is comparison)", m("return self.lin(x) * 2.0 if self.by is MISSING else self.lin(x) * 3.0", "self.by = MISSING", "MISSING = object()"), "model.by = object()")
_add("slice and Ellipsis attribute", m("x[self.sl]", "self.sl = (..., slice(0, 2))"), "model.sl = (..., slice(0, 3))")
_add("set of indices of ints", m("x[:, [i for i in range(4) if i not in self.skip]]", "self.skip = {1, 2}"), "model.skip.add(3)")
_add("deque of scales rotated", m("for s in self.q:\n    x = x * s + s\nreturn x", "self.q = collections.deque([2.0, 3.0])", "import collections"), "model.q.rotate(1)")
_add("ChainMap of configs: a child map put in front", m("x * self.c['by']", "self.c = collections.ChainMap({'by': 2.0})", "import collections"), "model.c = model.c.new_child({'by': 3.0})")
_add("defaultdict factory", m("x * self.d['missing']", "self.d = collections.defaultdict(two)", "import collections\ndef two():\n    return 2.0\ndef three():\n    return 3.0\n"), "model.d.default_factory = app.three\nmodel.d.pop('missing', None)")
_add("mapping proxy and SimpleNamespace", m("x * self.ns.opts['by']", "self.raw = {'by': 2.0}\nself.ns = types.SimpleNamespace(opts=types.MappingProxyType(self.raw))", "import types"), "model.raw['by'] = 3.0")
_add("docstring of the layer is parsed for an option", m("return self.lin(x).relu() if 'relu' in (self.__doc__ or '') else self.lin(x)").replace("class Model(nn.Module):", "class Model(nn.Module):\n    '''Net with act.'''"), "", ("Net with act.", "Net with relu."))
_add("default in the signature asked by inspect", m("x * inspect.signature(h).parameters['by'].default", top="import inspect\ndef h(x, by=2.0):\n    return x\n"), "", ("by=2.0", "by=3.0"))
_add("source text asked by inspect.getsource", m("F.pad(x, (0, inspect.getsource(h).count('#')))", top="import inspect\ndef h(x):\n    # one\n    return x\n"), "", ("# one\n", "# one\n    # two\n"))
_add("class name prefix decides", m("return self.b(x) * 2.0 if type(self.b).__name__.startswith('Fast') else self.b(x)", "self.b = Block()", "class Block(nn.Module):\n    def forward(self, x):\n        return x + 1\nclass FastBlock(Block):\n    pass\n"), "model.b = app.FastBlock()")

# ---------------------------------------------------------------- harmless
H = {"harmless": True}
_BASE = m("self.act(self.lin(x)) * SCALE", "self.act = nn.ReLU()", "SCALE = 2.0\n# a comment here\n")
_add("retrained: weights get other values", _BASE, "torch.manual_seed(5)\nfor p in model.parameters():\n    p.data.normal_()", **H)
_add("other seed before the model is made", _BASE.replace("SCALE", "SCALE "), first="torch.manual_seed(1)", second="torch.manual_seed(2)", **H)
_add("state dict loaded with assign", m("self.lin(x).relu() * 2.25"), "model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()}, assign=True)", **H)
_add("state dict saved and loaded", m("self.lin(x).relu() * 2.35"), "import io\nb = io.BytesIO()\ntorch.save(model.state_dict(), b)\nb.seek(0)\nmodel.load_state_dict(torch.load(b))", **H)
_add("an optimizer step was done", m("self.lin(x).relu() * 2.125"), "o = torch.optim.SGD(model.parameters(), 0.1)\nmodel(torch.rand(3, 4)).sum().backward()\no.step()\no.zero_grad()", **H)
_add("gradients are left in the weights", m("self.lin(x).relu() * 2.126"), "model(torch.rand(3, 4)).sum().backward()", **H)
_add("Adam optimizer with state exists", m("self.lin(x).relu() * 2.127"), "opt = torch.optim.Adam(model.parameters())\nmodel(torch.rand(3, 4)).sum().backward()\nopt.step()", **H)
_add("the model ran once before", m("self.bn(self.lin(x)).relu()", "self.bn = nn.BatchNorm1d(4)"), "model(torch.rand(3, 4))", **H)
_add("train, run, then eval again (running statistics changed)", m("self.bn(self.lin(x)).tanh()", "self.bn = nn.BatchNorm1d(4)"), "model.train()\nmodel(torch.rand(3, 4))\nmodel.eval()", **H)
_add("comment edited", _BASE.replace("ReLU", "SiLU"), "", ("# a comment here", "# another, longer\n# comment here"), **H)
_add("blank lines and a trailing comment added inside forward", m("y = self.lin(x)\nreturn y.relu() * 2.5"), "", ("y = self.lin(x)\n", "y = self.lin(x)  # project\n\n\n"), **H)
_add("formatter broke a long line", m("return torch.clamp(self.lin(x), min=0.5, max=2.5)"), "", ("torch.clamp(self.lin(x), min=0.5, max=2.5)", "torch.clamp(\n            self.lin(x),\n            min=0.5,\n            max=2.5,\n        )"), **H)
_add("unrelated function added to a helper file", m("h(self.lin(x))", top="from h import h") + "--- h.py\ndef h(x):\n    return x * 2.0\n# end\n", "", ("# end", "def other():\n    return 5\n"), **H)
_add("functions of a file reordered", m("h(self.lin(x))", top="from h import h") + "--- h.py\ndef g(x):\n    return x + 1\ndef h(x):\n    return g(x) * 2.0\n", "", ("def g(x):\n    return x + 1\ndef h(x):\n    return g(x) * 2.0\n", "def h(x):\n    return g(x) * 2.0\ndef g(x):\n    return x + 1\n"), **H)
_add("unrelated constant edited in the same file", m("self.lin(x) * 2.75", top="BATCH_SIZE = 8\nEPOCHS = 3"), "", ("BATCH_SIZE = 8", "BATCH_SIZE = 16"), **H)
_add("unrelated file added", m("self.lin(x) * 2.85"), added="--- notes.txt\nhello\n--- train.py\nX = 1\n", **H)
_add("unrelated edit of the training script in the package", m("self.lin(x) * 2.86", top="import train") + "--- train.py\ndef step(m, x):\n    return m(x).sum() * 1.0\n", "", ("sum() * 1.0", "sum() * 2.0"), **H)
_add("other env variables (hash seed, user)", m("TABLE['b'] * self.lin(x)", top="TABLE = {'a': 1.0, 'b': 2.0}"), env={"PYTHONHASHSEED": "77", "USER": "bob", "OMP_NUM_THREADS": "1"}, **H)
_add("logger level, logger not used", m("self.lin(x) * 2.95"), "import logging\nlogging.getLogger().setLevel(logging.DEBUG)", **H)
_add("logger level, a logger exists in the file but is not called in forward", m("self.lin(x) * 2.96", "log.info('made')", "import logging\nlog = logging.getLogger(__name__)"), "import logging\nlogging.basicConfig(level=logging.WARNING)\napp.log.setLevel(logging.ERROR)", **H)
_add("working directory changed", m("self.lin(x) * 2.97"), "import os\nos.chdir('/')", **H)
_add("sys.argv and sys.path have more entries", m("self.lin(x) * 2.98"), "import sys\nsys.argv.append('--verbose')\nsys.path.append('/tmp/nowhere')", **H)
_add("an unrelated library is imported", m("self.lin(x) * 2.99"), "import yaml, csv, sqlite3", **H)
_add("deepcopy of the model is made, the copy thrown away", m("self.lin(x) * 3.01"), "import copy\ncopy.deepcopy(model)", **H)
_add("threads are set, nobody reads them", m("self.lin(x) * 3.02"), "torch.set_num_threads(1)", **H)
_add("a forward hook was added and removed", m("self.lin(x) * 3.03"), "h = model.lin.register_forward_hook(lambda m, i, o: o)\nh.remove()", **H)
_add("a backward hook on a weight for gradient clipping", m("self.lin(x) * 3.04"), "h = model.lin.weight.register_hook(lambda g: g.clamp(-1, 1))\nh.remove()", **H)
_add("other YAML keys are edited, only one is read at construction", m("self.lin(x) * self.by", "self.by = yaml.safe_load((HERE / 'c.yaml').read_text())['by']", _P + "import yaml") + "--- c.yaml\nby: 2.0\nlr: 0.1\n", "", ("lr: 0.1", "lr: 0.01"), **H)
_add("random state advanced", m("self.lin(x) * 3.05"), "import random, numpy as np\nrandom.random()\nnp.random.rand()\ntorch.rand(3)", **H)
_add("warnings silenced", m("self.lin(x) * 3.06"), "import warnings\nwarnings.filterwarnings('ignore')", **H)
_add("local variable of an unrelated method edited", m("self.lin(x) * 3.07", more="def train_step(self, x):\n    loss = self(x).sum() * 1.0\n    return loss\n"), "", ("sum() * 1.0", "sum() * 5.0"), **H)

# ---- abstract base classes, virtual subclasses
_ABC = "import abc\nclass Smooth(abc.ABC):\n    pass\n"
_F = "y = self.act(self.lin(x))\nreturn y * 2.0 if isinstance(self.act, Smooth) else y"
_add("abc: torch class registered at run time", m(_F, "self.act = nn.GELU()", _ABC), "app.Smooth.register(torch.nn.GELU)")
_add("abc: own class registered at run time", m(_F, "self.act = Act()", _ABC + "class Act(nn.Module):\n    def forward(self, x):\n        return x + 1.0\n"), "app.Smooth.register(app.Act)")
_add("abc: own class registered by an added decorator line", m(_F, "self.act = Act()", _ABC + "# here\nclass Act(nn.Module):\n    def forward(self, x):\n        return x + 1.0\n"), "", ("# here", "@Smooth.register"))
_add("abc: own class registered by a line in another file", m(_F, "self.act = Act()", "from abcs import Smooth\nfrom acts import Act\nimport reg") + "--- abcs.py\n" + _ABC + "--- acts.py\nclass Act(nn.Module):\n    def forward(self, x):\n        return x + 1.0\n--- reg.py\nfrom abcs import Smooth\nfrom acts import Act\n# reg\n", "", ("# reg", "Smooth.register(Act)"))
_add("collections.abc.Mapping.register of an own config class", m("return self.lin(x) * 2.0 if isinstance(self.cfg, Mapping) else self.lin(x)", "self.cfg = Cfg()", "from collections.abc import Mapping\nclass Cfg:\n    by = 2.0\n"), "import collections.abc\ncollections.abc.Mapping.register(app.Cfg)")
_add("numbers.Number.register of an own scalar class", m("return self.lin(x) * 2.0 if isinstance(self.k, numbers.Number) else self.lin(x)", "self.k = Scalar()", "import numbers\nclass Scalar:\n    by = 2.0\n"), "import numbers\nnumbers.Number.register(app.Scalar)")
_add("numbers.Real.register(np.float16)-like: torch.Tensor registered as a number", m("return self.lin(x) * 2.0 if isinstance(self.lin.weight, numbers.Number) else self.lin(x)", top="import numbers"), "import numbers\nnumbers.Number.register(torch.Tensor)")
_add("abc: issubclass with torch class in a tuple constant", m("y = self.act(self.lin(x))\nreturn y * 2.0 if issubclass(type(self.act), KINDS) else y", "self.act = nn.GELU()", _ABC + "KINDS = (Smooth, nn.ReLU)\n"), "app.Smooth.register(torch.nn.GELU)")
_add("abc: float registered as Scalar", m("return self.lin(x) * self.by if isinstance(self.by, Smooth) else self.lin(x)", "self.by = 2.0", _ABC), "app.Smooth.register(float)")
_add("abc: tuple registered as Scalar, edit of a file", m("return self.lin(x) * 2.0 if isinstance(self.by, Smooth) else self.lin(x)", "self.by = (2.0,)", "from abcs import Smooth") + "--- abcs.py\n" + _ABC + "Smooth.register(list)\n", "", ("Smooth.register(list)", "Smooth.register(tuple)"))
_add("abc: register through a second abc", m(_F, "self.act = nn.GELU()", _ABC + "class Soft(abc.ABC):\n    pass\nSmooth.register(Soft)\n"), "app.Soft.register(torch.nn.GELU)")
_add("abc: registered with the real subclass of the abc", m(_F, "self.act = nn.GELU()", _ABC + "class Soft(Smooth):\n    pass\n"), "app.Soft.register(torch.nn.GELU)")
_add("abc: nn.Module and abc metaclass, torch class registered", m("y = self.act(self.lin(x))\nreturn y * 2.0 if isinstance(self.act, Block) else y", "self.act = nn.GELU()", "import abc\nclass Block(nn.Module, abc.ABC):\n    pass\n"), "app.Block.register(torch.nn.GELU)")
_add("abc: __subclasshook__ edited", m(_F, "self.act = nn.GELU()", "import abc\nclass Smooth(abc.ABC):\n    @classmethod\n    def __subclasshook__(cls, c):\n        return hasattr(c, 'smooth')\n"), "", ("hasattr(c, 'smooth')", "hasattr(c, 'forward')"))
_add("abc: match statement with class pattern", m("y = self.lin(x)\nmatch self.act:\n    case Smooth():\n        return y * 2.0\n    case _:\n        return y", "self.act = nn.GELU()", _ABC), "app.Smooth.register(torch.nn.GELU)")
_add("abc: runtime protocol, class registered", m("y = self.act(self.lin(x))\nreturn y * 2.0 if isinstance(self.act, P) else y", "self.act = nn.GELU()", "from typing import Protocol, runtime_checkable\n@runtime_checkable\nclass P(Protocol):\n    def nothing_like_it(self): ...\n"), "app.P.register(torch.nn.GELU)")
_add("abc: numpy class registered", m("return self.lin(x) * 2.0 if isinstance(self.k, Smooth) else self.lin(x)", "self.k = np.ones(2)", _ABC + "import numpy as np\n"), "app.Smooth.register(app.np.ndarray)")
_add("abc: the class of a config registered through an alias in a package", m("return self.lin(x) * 2.0 if isinstance(self.k, pk.Base) else self.lin(x)", "import pk.conf\nself.k = pk.conf.C()", "import pk") + "--- pk/__init__.py\nfrom ._a import Base\n--- pk/_a.py\nimport abc\nclass Base(metaclass=abc.ABCMeta):\n    pass\n--- pk/conf.py\nclass C:\n    x = 1\n", "import pk\nfrom pk.conf import C\npk.Base.register(C)")
_add("metaclass __instancecheck__ edited", m("y = self.lin(x)\nreturn y * 2.0 if isinstance(self.lin, Any) else y", top="class M(type):\n    def __instancecheck__(cls, o):\n        return False\nclass Any(metaclass=M):\n    pass\n"), "", ("return False", "return True"))

# ---- torch's and Python's namespaces
_add("class attribute set on nn.Linear, read by getattr default", m("self.lin(x) * getattr(self.lin, 'gain', 2.0)"), "torch.nn.Linear.gain = 3.0")
_add("class attribute set on nn.Module, read by getattr default", m("self.lin(x) * getattr(self.lin, 'gain', 2.0)"), "torch.nn.Module.gain = 3.0")
_add("nn.Module class attribute read on self with composed name", m("self.lin(x) * getattr(self, 'ga' + self.k, 2.0)", "self.k = 'in'"), "torch.nn.Module.gain = 3.0")
_add("np.float compat alias put back", m("return self.lin(x) * 2.0 if hasattr(np, 'float') else self.lin(x)", top="import numpy as np"), "import numpy as np\nnp.float = float")
_add("collections.Mapping compat alias", m("return self.lin(x) * 2.0 if hasattr(collections, 'Mapping') else self.lin(x)", top="import collections"), "import collections, collections.abc\ncollections.Mapping = collections.abc.Mapping")
_add("builtins.profile of a line profiler", m("try:\n    profile\nexcept NameError:\n    return self.lin(x)\nreturn self.lin(x) * 2.0"), "import builtins\nbuiltins.profile = lambda f: f")
_add("flag put on torch", m("return self.lin(x) * 2.0 if getattr(torch, '_my_flag', False) else self.lin(x)"), "torch._my_flag = True")
_add("flag put on torch with composed name", m("return self.lin(x) * 2.0 if getattr(torch, '_'.join(['', 'my', self.n]), False) else self.lin(x)", "self.n = 'flag'"), "torch._my_flag = True")
_add("nn.ReLU = nn.GELU in the namespace, layer made in forward by name", m("getattr(nn, self.kind)()(self.lin(x))", "self.kind = 'ReLU'"), "torch.nn.ReLU = torch.nn.GELU")
_add("F.__dict__ lookup of a patched function", m("vars(F)[self.kind](self.lin(x))", "self.kind = 'silu'"), "torch.nn.functional.silu = torch.tanh")
_add("F.normalize's default eps changed", m("F.normalize(self.lin(x))"), "d = torch.nn.functional.normalize.__defaults__\ntorch.nn.functional.normalize.__defaults__ = (3.0,) + d[1:]")
_add("F.normalize's code replaced", m("F.normalize(self.lin(x))"), "def normalize(input, p=2.0, dim=1, eps=1e-12, out=None):\n    return input * 7.0\ntorch.nn.functional.normalize.__code__ = normalize.__code__")
_add("nn.LayerNorm.__init__ default eps changed, layer made in forward", m("nn.Softmax(*self.a)(self.lin(x))", "self.a = ()"), "torch.nn.Softmax.__init__.__defaults__ = (0,)")
_add("Tensor.relu patched", m("self.lin(x).relu()"), "torch.Tensor.relu = lambda self: self.clamp(0, 6)")
_add("Tensor.__mul__ patched", m("self.lin(x) * 2.0"), "old = torch.Tensor.__mul__\ntorch.Tensor.__mul__ = lambda a, b: old(a, b) + 1")
_add("getattr on a tensor by composed name, patched", m("getattr(self.lin(x), 'si' + self.k)()", "self.k = 'gmoid'"), "torch.Tensor.sigmoid = lambda self: self.tanh()")
_add("nn.Module._call_impl patched", m("self.lin(x)"), "old = torch.nn.Module._call_impl\ndef new(self, *a, **k):\n    y = old(self, *a, **k)\n    return y * 2.0 if isinstance(self, torch.nn.Linear) else y\ntorch.nn.Module._call_impl = new")
_add("nn.Sequential.forward patched", m("self.s(x)", "self.s = nn.Sequential(nn.ReLU(), nn.Tanh())"), "torch.nn.Sequential.forward = lambda self, x: self[1](x)")
_add("nn.Sequential.__iter__ patched (reversed)", m("self.s(x)", "self.s = nn.Sequential(nn.Sigmoid(), nn.Tanh())"), "torch.nn.Sequential.__iter__ = lambda self: iter(list(self._modules.values())[::-1])")
_add("math.pi patched", m("x * math.pi", top="import math"), "import math\nmath.pi = 3.0")
_add("math.floor patched in a helper", m("x * h(2.5)", top="import math\ndef h(v):\n    return math.floor(v)\n"), "import math\nmath.floor = math.ceil")
_add("torch.__version__ faked by a test", m("return self.lin(x).relu() if version.parse(torch.__version__) < version.parse('2.0') else self.lin(x)", top="from packaging import version"), "torch.__version__ = '1.13.0'")
_add("torch.cuda.is_available faked", m("return self.lin(x).relu() if torch.cuda.is_available() else self.lin(x)"), "torch.cuda.is_available = lambda: True")
_add("torch.version.cuda faked", m("return self.lin(x).relu() if torch.version.cuda else self.lin(x)"), "torch.version.cuda = '12.4'")
_add("initial seed asked", m("F.pad(x, (0, torch.initial_seed() % 3))", init="torch.manual_seed(3)"), "torch.manual_seed(4)")
_add("anomaly mode asked", m("return self.lin(x).relu() if torch.is_anomaly_enabled() else self.lin(x)"), "torch.autograd.set_detect_anomaly(True)")
_add("default device asked", m("return self.lin(x).relu() if torch.get_default_device().index == 0 else self.lin(x)"), "torch.set_default_device('cpu:0')")
_add("debug mode of determinism asked", m("F.pad(x, (0, torch.get_deterministic_debug_mode()))"), "torch.set_deterministic_debug_mode(1)")
_add("warn-always asked", m("return self.lin(x).relu() if torch.is_warn_always_enabled() else self.lin(x)"), "torch.set_warn_always(True)")
_add("fill uninitialized memory asked", m("return self.lin(x).relu() if torch.utils.deterministic.fill_uninitialized_memory else self.lin(x)"), "torch.utils.deterministic.fill_uninitialized_memory = False")
_add("dynamo config asked", m("return self.lin(x).relu() if torch._dynamo.config.suppress_errors else self.lin(x)", top="import torch._dynamo"), "torch._dynamo.config.suppress_errors = True")
_add("mkldnn flag asked", m("return self.lin(x).relu() if torch.backends.mkldnn.enabled else self.lin(x)"), "torch.backends.mkldnn.enabled = False")
_add("opt_einsum strategy asked", m("return self.lin(x).relu() if torch.backends.opt_einsum.strategy else self.lin(x)"), "torch.backends.opt_einsum.strategy = 'greedy'")
_add("sdpa_kernel context active, asked by math_sdp_enabled", m("return self.lin(x).relu() if torch.backends.cuda.math_sdp_enabled() else self.lin(x)"), "from torch.nn.attention import sdpa_kernel, SDPBackend\nc = sdpa_kernel(SDPBackend.FLASH_ATTENTION)\nc.__enter__()")
_add("np.errstate asked", m("return self.lin(x).relu() if np.geterr()['over'] == 'raise' else self.lin(x)", top="import numpy as np"), "import numpy as np\nnp.seterr(over='raise')")
_add("np print options asked", m("F.pad(x, (0, len(np.array2string(self.k))))", "self.k = np.array([1.23456789])", "import numpy as np"), "import numpy as np\nnp.set_printoptions(precision=3)")
_add("optimized Python: asserts are gone", m("try:\n    assert self.by < 1.0\nexcept AssertionError:\n    return self.lin(x) * 2.0\nreturn self.lin(x)", "self.by = 2.0"), env={"PYTHONOPTIMIZE": "1"})
_add("thread name asked", m("return self.lin(x).relu() if threading.current_thread().name == 'worker' else self.lin(x)", top="import threading"), "import threading\nthreading.current_thread().name = 'worker'")
_add("recursion limit asked", m("return self.lin(x).relu() if sys.getrecursionlimit() > 5000 else self.lin(x)", top="import sys"), "import sys\nsys.setrecursionlimit(9000)")

# ---- constants that are tensors, in many places
def tens(doc, fwd, init, top, change, more=""):
    _add("tensor constant changed in place: " + doc, m(fwd, init, top, more), change)


tens("module global", "x * T", "pass", "T = torch.full((4,), 2.0)", "app.T.fill_(3.0)")
tens("class attribute of the model", "x * self.T", "Model.T = torch.full((4,), 2.0)", "", "app.Model.T.fill_(3.0)")
tens("class attribute of a helper", "x * Cfg.T", "pass", "class Cfg:\n    T = torch.full((4,), 2.0)\n", "app.Cfg.T.fill_(3.0)")
tens("default argument", "h(x)", "pass", "def h(x, t=torch.full((4,), 2.0)):\n    return x * t\n", "app.h.__defaults__[0].fill_(3.0)")
tens("closure", "self.f(x)", "self.f = mk(torch.full((4,), 2.0))", "def mk(t):\n    return lambda x: x * t\n", "model.f.__closure__[0].cell_contents.fill_(3.0)")
tens("named tuple", "x * self.n.t", "self.n = N(torch.full((4,), 2.0))", "import collections\nN = collections.namedtuple('N', 't')", "model.n.t.fill_(3.0)")
tens("dataclass in a list", "x * self.n[0].t", "self.n = [N(torch.full((4,), 2.0))]", "import dataclasses\n@dataclasses.dataclass\nclass N:\n    t: torch.Tensor\n", "model.n[0].t.fill_(3.0)")
tens("functools.partial keyword", "self.f(x)", "self.f = functools.partial(torch.mul, other=torch.full((4,), 2.0))", "import functools", "model.f.keywords['other'].fill_(3.0)")
tens("slots object", "x * self.n.t", "self.n = N()", "class N:\n    __slots__ = ('t',)\n    def __init__(self):\n        self.t = torch.full((4,), 2.0)\n", "model.n.t.fill_(3.0)")
tens("enum member value", "x * E.A.value", "pass", "import enum\nclass E(enum.Enum):\n    A = torch.full((4,), 2.0)\n", "app.E.A.value.fill_(3.0)")
tens("lru_cache result", "x * t(4)", "t(4)", "import functools\n@functools.lru_cache\ndef t(n):\n    return torch.full((n,), 2.0)\n", "app.t(4).fill_(3.0)")
tens("context variable", "x * V.get()", "pass", "import contextvars\nV = contextvars.ContextVar('V', default=torch.full((4,), 2.0))", "app.V.get().fill_(3.0)")
tens("function attribute", "h(x)", "pass", "def h(x):\n    return x * h.t\nh.t = torch.full((4,), 2.0)\n", "app.h.t.fill_(3.0)")
tens("numpy memory shared with from_numpy", "x * self.t", "self.a = np.full(4, 2.0, dtype=np.float32)\nself.t = torch.from_numpy(self.a)", "import numpy as np", "model.a[:] = 3.0")
tens("unregistered layer in a list", "self.ls[0](x)", "self.ls = [nn.Linear(4, 4)]", "", "model.ls[0].weight.data.fill_(0.5)")
tens("unregistered layer in a dict of a helper object", "self.h.run(x)", "self.h = H()", "class H:\n    def __init__(self):\n        self.d = {'l': nn.Linear(4, 4)}\n    def run(self, x):\n        return self.d['l'](x)\n", "model.h.d['l'].bias.data.fill_(0.5)")
tens("global layer", "HEAD(x)", "pass", "HEAD = nn.Linear(4, 4)", "app.HEAD.weight.data.fill_(0.5)")
tens("mutable default dict cache", "h(x)", "pass", "def h(x, c={'t': torch.full((4,), 2.0)}):\n    return x * c['t']\n", "app.h.__defaults__[0]['t'].fill_(3.0)")
tens("deque", "x * self.q[0]", "self.q = collections.deque([torch.full((4,), 2.0)])", "import collections", "model.q[0].fill_(3.0)")
tens("WeakValueDictionary", "x * W['t']", "pass", "import weakref\nT = torch.full((4,), 2.0)\nW = weakref.WeakValueDictionary({'t': T})", "app.T.fill_(3.0)")
tens("hook object", "self.lin(x)", "self.t = [torch.full((4,), 2.0)]\nself.lin.register_forward_hook(lambda m, i, o, t=self.t: o * t[0])", "", "model.t[0].fill_(3.0)")
tens("view of a bigger tensor, base changed", "x * self.v['t']", "self.b = {'b': torch.full((8,), 2.0)}\nself.v = {'t': self.b['b'][2:6]}", "", "model.b['b'].fill_(3.0)")
tens("python float read by item", "x * T.item()", "pass", "T = torch.tensor(2.0)", "app.T.fill_(3.0)")
tens("tolist of a plain tensor for sizes", "F.pad(x, T.tolist())", "pass", "T = torch.tensor([0, 2])", "app.T[1] = 3")

# ---- weights' properties
def w(doc, expr, change, **kw):
    _add("property of a weight: " + doc, m("return self.lin(x) * 2.0 if " + expr + " else self.lin(x)"), change, **kw)


w("shared memory", "self.lin.weight.is_shared()", "model.share_memory()")
w("inference tensor", "self.lin.weight.is_inference()", "with torch.inference_mode():\n    t = torch.rand(4, 4)\nmodel.lin.weight = torch.nn.Parameter(t, requires_grad=False)")
w("version counter", "self.lin.weight._version > 2", "with torch.no_grad():\n    for i in range(9):\n        model.lin.weight.add_(0.1)")
w("storage offset", "self.lin.weight.storage_offset() > 0", "b = torch.rand(5, 4)\nmodel.lin.weight = torch.nn.Parameter(b[1:])")
w("storage size", "self.lin.weight.untyped_storage().nbytes() > 64", "b = torch.rand(5, 4)\nmodel.lin.weight = torch.nn.Parameter(b[:4])")
w("retains grad", "self.lin.weight.grad is not None", "model(torch.rand(3, 4)).sum().backward()")
w("backward hooks on it", "self.lin.weight._backward_hooks", "model.lin.weight.register_hook(lambda g: g)")
w("stride", "self.lin.weight.stride(0) == 1", "model.lin.weight = torch.nn.Parameter(torch.rand(4, 4).t())")
w("class Parameter subclass", "type(self.lin.weight).__name__ == 'P'", "class P(torch.nn.Parameter):\n    pass\nmodel.lin.weight = P(torch.rand(4, 4))")
w("dtype", "self.lin.bias.dtype is torch.float64", "model.lin.bias = torch.nn.Parameter(torch.rand(4, dtype=torch.float64))")
w("pinned / names / layout", "self.lin.weight.layout is torch.sparse_coo", "model.lin.weight = torch.nn.Parameter(torch.rand(4, 4).to_sparse())")
w("python attribute put by an optimizer", "hasattr(self.lin.weight, '_no_weight_decay')", "model.lin.weight._no_weight_decay = True")
w("python attribute on .data's owner with composed name", "getattr(self.lin.weight, '_' + 'skip', False)", "model.lin.weight._skip = True")
w("negative or conjugate bit", "self.lin.weight.is_neg()", "model.lin.weight = torch.nn.Parameter(torch._neg_view(torch.rand(4, 4)))")

# ---- reflection on the model
_add("dir(self) scan for op_ methods", m("for n in dir(self):\n    if n.startswith('op_'):\n        x = getattr(self, n)(x)\nreturn x", more="def op_a(self, x):\n    return x * 2.0\n"), "app.Model.op_b = lambda self, x: x + 1.0")
_add("vars(type(self)) scan", m("for n, f in vars(type(self)).items():\n    if n.startswith('op_'):\n        x = f(self, x)\nreturn x", more="def op_a(self, x):\n    return x * 2.0\n"), "app.Model.op_b = lambda self, x: x + 1.0")
_add("inspect.signature filters keyword arguments", m("kw = {k: v for k, v in self.kw.items() if k in inspect.signature(h).parameters}\nreturn h(x, **kw)", "self.kw = {'by': 2.0, 'add': 1.0}", "import inspect\nfrom h import h") + "--- h.py\ndef h(x, by=1.0, **unused):\n    return x * by + sum(unused.values())\n", "", ("by=1.0, **unused", "by=1.0, add=0.0, **unused"))
_add("len of the hooks is asked", m("F.pad(self.lin(x), (0, len(self.lin._forward_hooks)))"), "model.lin.register_forward_hook(lambda m, i, o: None)")
_add("len of backward hooks is asked", m("F.pad(self.lin(x), (0, len(self.lin._backward_hooks)))"), "model.lin.register_full_backward_hook(lambda m, i, o: None)")
_add("state dict hooks are asked", m("F.pad(self.lin(x), (0, len(self._state_dict_hooks)))"), "model._register_state_dict_hook(lambda *a: None)")
_add("state_dict keys are walked", m("F.pad(x, (0, len(self.state_dict())))"), "model.register_buffer('b', torch.ones(1))")
_add("extra_repr text used", m("return self.lin(x) * 2.0 if 'in_features=4' in self.lin.extra_repr() else self.lin(x)"), "model.lin.in_features = 5")
_add("text of the model used", m("return self.lin(x) * 2.0 if 'ReLU' in str(self) else self.lin(x)"), "model.extra = torch.nn.ReLU()")
_add("get_submodule by a path attribute", m("self.get_submodule(self.path)(x)", "self.path = 'a.0'\nself.a = nn.Sequential(nn.ReLU(), nn.Tanh())"), "model.path = 'a.1'")
_add("number of modules", m("F.pad(x, (0, len(list(self.modules()))))"), "model.extra = torch.nn.ReLU()")
_add("identity of two submodules", m("return self.lin(x) * 2.0 if self.lin is self.b else self.lin(x)", "self.b = nn.Linear(4, 4)"), "model.b = model.lin")
_add("layer names given by a loop over named_modules", m("return self.lin(x) * 2.0 if self.lin.layer_name.startswith('enc') else self.lin(x)", "self.lin.layer_name = 'dec.0'"), "for n, c in model.named_modules():\n    c.layer_name = 'enc.' + n")
_add("None registered instead of a norm", m("x = self.lin(x)\nif self.norm is not None:\n    x = self.norm(x)\nreturn x", "self.norm = nn.LayerNorm(4)"), "model.norm = None")
_add("wrapper delegates unknown names to the wrapped module", m("self.w.by * self.w(x)", "self.w = Wrap(Inner())", "class Inner(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.by = 2.0\n    def forward(self, x):\n        return x + 1\nclass Wrap(nn.Module):\n    def __init__(self, m):\n        super().__init__()\n        self.module = m\n    def __getattr__(self, n):\n        try:\n            return super().__getattr__(n)\n        except AttributeError:\n            return getattr(self.module, n)\n    def forward(self, x):\n        return self.module(x)\n"), "model.w.module.by = 3.0")
_add("try/except AttributeError: the attribute appears on a config", m("try:\n    by = self.cfg.by\nexcept AttributeError:\n    by = 2.0\nreturn x * by", "self.cfg = C()", "class C:\n    pass\n"), "app.C.by = 3.0")
_add("__getattr__ config default versus real attribute", m("x * self.cfg.by", "self.cfg = C()", "class C:\n    def __getattr__(self, n):\n        return 2.0\n"), "model.cfg.by = 3.0")
_add("__getattribute__ added to a config class", m("x * self.cfg.by", "self.cfg = C()", "class C:\n    by = 2.0\n"), "app.C.__getattribute__ = lambda self, n: 3.0 if n == 'by' else object.__getattribute__(self, n)")

# ---- serialised objects and indirect calls
_add("config kept as pickled bytes: class attribute edited", m("x * pickle.loads(self.blob).by", "self.blob = pickle.dumps(C())", "import pickle\nfrom conf import C") + "--- conf.py\nclass C:\n    by = 2.0\n", "", ("by = 2.0", "by = 3.0"))
_add("config kept as pickled bytes of a class that app does not import", m("x * pickle.loads(self.blob).by", "import conf\nself.blob = pickle.dumps(conf.C())", "import pickle") + "--- conf.py\nclass C:\n    by = 2.0\n", "", ("by = 2.0", "by = 3.0"))
_add("pickled bytes: __setstate__ edited", m("x * pickle.loads(self.blob).by", "self.blob = pickle.dumps(C())", "import pickle\nfrom conf import C") + "--- conf.py\nclass C:\n    def __init__(self):\n        self.by = 2.0\n    def __setstate__(self, s):\n        self.by = s['by'] * 1.0\n", "", ("* 1.0", "* 2.0"))
_add("pickled partial of an own function (path only in the bytes)", m("pickle.loads(self.blob)(x)", "import conf, functools\nself.blob = pickle.dumps(functools.partial(conf.h, by=2.0))", "import pickle") + "--- conf.py\ndef h(x, by):\n    return x * by\n", "", ("return x * by", "return x / by"))
_add("deepcopy in forward with __deepcopy__ edited", m("x * copy.deepcopy(self.c).by", "self.c = C()", "import copy\nclass C:\n    by = 2.0\n    def __deepcopy__(self, memo):\n        c = C()\n        c.by = self.by * 1.0\n        return c\n"), "", ("self.by * 1.0", "self.by * 2.0"))
_add("copyreg reducer registered for a config that is copied in forward", m("x * copy.copy(self.c).by", "self.c = C()", "import copy\nclass C:\n    by = 2.0\nclass D:\n    by = 3.0\n"), "import copyreg\ncopyreg.pickle(app.C, lambda c: (app.D, ()))")
_add("yaml constructor registered", m("x * yaml.load(self.t, yaml.SafeLoader)['by']", "self.t = 'by: !s 2.0'", "import yaml\nyaml.SafeLoader.add_constructor('!s', lambda l, n: 2.0)"), "import yaml\nyaml.SafeLoader.add_constructor('!s', lambda l, n: 3.0)")
_add("json object_hook edited", m("x * json.loads(self.t, object_hook=hook)", "self.t = '{\"by\": 2.0}'", "import json\ndef hook(d):\n    return d['by'] * 1.0\n"), "", ("* 1.0", "* 2.0"))
_add("json text attribute", m("x * json.loads(self.t)['by']", "self.t = '{\"by\": 2.0}'", "import json"), "model.t = '{\"by\": 3.0}'")
_add("json.loads replaced by a fake", m("x * json.loads(self.t)['by']", "self.t = '{\"by\": 2.0}'", "import json"), "import json\nold = json.loads\njson.loads = lambda t, **k: {'by': 3.0} if t == '{\"by\": 2.0}' else old(t, **k)")
_add("attrgetter path attribute to a config", m("x * operator.attrgetter(self.p)(self)", "self.p = 'c.by'\nself.c = C()", "import operator\nclass C:\n    by = 2.0\n    of = 3.0\n"), "model.p = 'c.of'")
_add("attrgetter path: the value is edited on the class", m("x * operator.attrgetter(self.p)(self)", "self.p = 'c.by'\nself.c = C()", "import operator\nclass C:\n    by = 2.0\n"), "", ("by = 2.0", "by = 3.0"))
_add("attrgetter on a module of the project", m("x * operator.attrgetter(self.p)(consts)", "self.p = 'sub.by'", "import operator\nimport consts") + "--- consts.py\nimport sub\n--- sub.py\nby = 2.0\n", "", ("by = 2.0", "by = 3.0"))
_add("methodcaller by name", m("operator.methodcaller(self.n)(self.lin(x))", "self.n = 'relu'", "import operator"), "model.n = 'tanh'")
_add("bound method of a helper object as attribute", m("self.f(x)", "self.f = H(2.0).run", "class H:\n    def __init__(self, by):\n        self.by = by\n    def run(self, x):\n        return x * self.by\n"), "model.f.__self__.by = 3.0")
_add("module object in a table", m("B['a'].run(x)", top="import ops\nB = {'a': ops}") + "--- ops.py\nBY = 2.0\ndef run(x):\n    return x * BY\n", "", ("BY = 2.0", "BY = 3.0"))
_add("import alias moved to a module with the same code, other globals", m("run(x)", top="from ops1 import run") + "--- ops1.py\nBY = 2.0\ndef run(x):\n    return x * BY\n--- ops2.py\nBY = 3.0\ndef run(x):\n    return x * BY\n", "", ("from ops1 import run", "from ops2 import run"))
_add("lazy import finds another file: sys.path changed", m("from lazyc import BY\nreturn self.lin(x) * BY", top="import sys, pathlib") + "--- lazyc.py\nBY = 2.0\n--- alt/lazyc.py\nBY = 3.0\n", "import sys, os\nsys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(app.__file__)), 'alt'))")
_add("lazy import: a fake module is put in sys.modules", m("from lazyd import BY\nreturn self.lin(x) * BY") + "--- lazyd.py\nBY = 2.0\n", "import sys, types\nf = types.ModuleType('lazyd')\nf.BY = 3.0\nsys.modules['lazyd'] = f")
_add("lazy import of a submodule name with __init__ attribute of the same name", m("from pk import part\nreturn x * part.BY") + "--- pk/__init__.py\nOTHER = 1\n--- pk/part.py\nBY = 2.0\n", "", ("OTHER = 1", "class part:\n    BY = 3.0"))
_add("module global replaced by a SimpleNamespace mock", m("x * consts.BY", top="import consts") + "--- consts.py\nBY = 2.0\n", "import types\napp.consts = types.SimpleNamespace(BY=3.0)")
_add("mock.patch.dict on a table", m("x * T['by']", top="T = {'by': 2.0}"), "from unittest import mock\nmock.patch.dict(app.T, {'by': 3.0}).start()")
_add("PropertyMock on a config class", m("x * self.c.by", "self.c = C()", "class C:\n    @property\n    def by(self):\n        return 2.0\n"), "from unittest import mock\nmock.patch.object(app.C, 'by', new_callable=mock.PropertyMock, return_value=3.0).start()")
_add("hot reload of an edited helper module", m("consts.run(x)", top="import consts") + "--- consts.py\ndef run(x):\n    return x * 2.0\n", "import importlib, pathlib, consts\np = pathlib.Path(consts.__file__)\np.write_text(p.read_text().replace('2.0', '3.0625'))\nimportlib.reload(consts)")
_add("exception class carries the factor", m("try:\n    check(x)\nexcept Stop as e:\n    return x * e.by\nreturn x", top="class Stop(Exception):\n    by = 2.0\ndef check(x):\n    raise Stop()\n"), "", ("by = 2.0", "by = 3.0"))
_add("exception args carry the factor", m("try:\n    check(x)\nexcept ValueError as e:\n    return x * e.args[0]\nreturn x", top="def check(x):\n    raise ValueError(2.0)\n"), "", ("ValueError(2.0)", "ValueError(3.0)"))
_add("exception hierarchy edited", m("try:\n    check(x)\nexcept ValueError:\n    return x * 2.0\nexcept Exception:\n    return x\nreturn x", top="class Stop(KeyError):\n    pass\ndef check(x):\n    raise Stop()\n"), "", ("class Stop(KeyError)", "class Stop(ValueError)"))
_add("tuple of caught exceptions edited", m("try:\n    return x * {}['a']\nexcept ERRS:\n    return x * 2.0\nexcept Exception:\n    return x", top="ERRS = (ValueError,)"), "", ("(ValueError,)", "(ValueError, KeyError)"))
_add("generator helper edited", m("for k in ks():\n    x = x * k\nreturn x", top="def ks():\n    yield 2.0\n    yield 3.0\n"), "", ("yield 3.0", "yield 4.0"))
_add("context manager helper sets and resets a global", m("with scaled():\n    return x * S[-1]", top="import contextlib\nS = [1.0]\n@contextlib.contextmanager\ndef scaled():\n    S.append(2.0)\n    try:\n        yield\n    finally:\n        S.pop()\n"), "", ("S.append(2.0)", "S.append(3.0)"))
_add("sort key lambda edited", m("for f in sorted(FS, key=lambda f: f[0]):\n    x = f[2](x)\nreturn x", top="FS = [(1, 2, torch.sigmoid), (2, 1, torch.tanh)]"), "", ("key=lambda f: f[0]", "key=lambda f: f[1]"))
_add("dataclass equality: eq=False", m("return x * 2.0 if self.c == C() else x", "self.c = C()", "import dataclasses\n@dataclasses.dataclass(eq=True)\nclass C:\n    by: float = 1.0\n"), "", ("eq=True", "eq=False"))
_add("dataclass field compare=False", m("return x * 2.0 if self.c == C(2.0) else x", "self.c = C()", "import dataclasses\n@dataclasses.dataclass\nclass C:\n    by: float = dataclasses.field(default=1.0, compare=True)\n"), "", ("compare=True", "compare=False"))
_add("class keyword argument to __init_subclass__", m("x * self.by", top="class Base(nn.Module):\n    def __init_subclass__(cls, by=1.0, **k):\n        super().__init_subclass__(**k)\n        cls.by = by\n", base="Base, by=2.0"), "", ("by=2.0", "by=3.0"))
_add("class made by type()", m("self.a(x)", "self.a = A()", "BY = 2.0\nA = type('A', (nn.Module,), {'forward': lambda self, x: x * BY})"), "", ("BY = 2.0", "BY = 3.0"))
_add("function made by exec from a template at import", m("h(x)", top="ns = {}\nexec('def h(x):\\n    return x * 2.0', ns)\nh = ns['h']"), "", ("x * 2.0", "x * 3.0"))
_add("Literal arguments counted", m("F.pad(x, (0, len(get_args(Kind))))", top="from typing import Literal, get_args\nKind = Literal['a', 'b']"), "", ("['a', 'b']", "['a', 'b', 'c']"))
_add("Annotated metadata used", m("x * K.__metadata__[0]", top="from typing import Annotated\nK = Annotated[float, 2.0]"), "", ("[float, 2.0]", "[float, 3.0]"))
_add("enum member attribute set at run time", m("x * E.A.scale", top="import enum\nclass E(enum.Enum):\n    A = 1\nE.A.scale = 2.0"), "app.E.A.scale = 3.0")
_add("enum _missing_ edited", m("x * E('unknown').value", top="import enum\nclass E(enum.Enum):\n    A = 2.0\n    B = 3.0\n    @classmethod\n    def _missing_(cls, v):\n        return cls.A\n"), "", ("return cls.A", "return cls.B"))
_add("hash of a constant name by hashlib", m("F.pad(x, (0, hashlib.md5(self.n.encode()).digest()[0] % 5))", "self.n = 'a'", "import hashlib"), "model.n = 'b'")
_add("random.Random made in forward from a seed attribute", m("x * random.Random(self.seed).random()", "self.seed = 1", "import random"), "model.seed = 2")
_add("output dict order", m("y = self.lin(x)\nreturn {'a': y, 'b': y * 2.0}"), "", ("{'a': y, 'b': y * 2.0}", "{'b': y * 2.0, 'a': y}"))
_add("output named tuple field renamed", m("Out(self.lin(x), x)", top="import collections\nOut = collections.namedtuple('Out', 'logits hidden')"), "", ("'logits hidden'", "'logits state'"))
_add("output dataclass registered as pytree: flatten function edited", m("Out(self.lin(x), x)", top="import torch.utils._pytree as pt\nclass Out:\n    def __init__(self, a, b):\n        self.a, self.b = a, b\npt.register_pytree_node(Out, lambda o: ([o.a, o.b], None), lambda v, c: Out(*v), serialized_type_name='app.Out')"), "", ("[o.a, o.b]", "[o.b, o.a]"))
_add("functional_call with other parameters", m("torch.func.functional_call(self.lin, {'weight': self.p * K}, (x,))", "self.p = nn.Parameter(torch.ones(4, 4))", "K = 2.0"), "", ("K = 2.0", "K = 3.0"))
_add("checkpointed block edited", m("C.checkpoint(block, x, use_reentrant=False)", top="import torch.utils.checkpoint as C\ndef block(x):\n    return x * 2.0\n"), "", ("x * 2.0", "x * 3.0"))
_add("logging handler counts records; forward reads the count of an own handler", m("return x * float(H.n + 1)", top="import logging\nclass Hd(logging.Handler):\n    n = 0\n    def emit(self, r):\n        self.n += 1\nH = Hd()\nlogging.getLogger('nn').addHandler(H)"), "import logging\nlogging.getLogger('nn').error('x')")
_add("list of methods' names in a class attribute, inherited list mutated", m("for n in self.steps:\n    x = getattr(self, n)(x)\nreturn x", top="class B(nn.Module):\n    steps = ['a']\n    def a(self, x):\n        return x * 2.0\n    def b(self, x):\n        return x + 1.0\n", base="B"), "app.B.steps.append('b')")
_add("UserDict config", m("x * self.c['by']", "self.c = collections.UserDict(by=2.0)", "import collections"), "model.c['by'] = 3.0")
_add("array.array of scales", m("x * self.a[0]", "self.a = array.array('d', [2.0])", "import array"), "model.a[0] = 3.0")
_add("bytearray option", m("x * float(self.b[0])", "self.b = bytearray([2])"), "model.b[0] = 3")
_add("registry by a weak value dictionary", m("R['act'](x)", "R['act'] = self.lin", "import weakref\nR = weakref.WeakValueDictionary()"), "model.b = torch.nn.ReLU()\napp.R['act'] = model.b")
_add("WeakSet of layers to skip", m("return x if self.lin in SKIP else self.lin(x)", top="import weakref\nSKIP = weakref.WeakSet()"), "app.SKIP.add(model.lin)")
_add("cached_property on the model itself, filled before", m("x * self.scale", "self.by = 2.0", "import functools", more="@functools.cached_property\ndef scale(self):\n    return self.by * 2\n"), "model.scale\nmodel.by = 9.0\nmodel.__dict__['scale'] = 7.0")
_add("lru_cache on a method of a config, stale value kept", m("x * self.c.scale()", "self.c = C()\nself.c.scale()", "import functools\nclass C:\n    by = 2.0\n    @functools.lru_cache\n    def scale(self):\n        return self.by\n"), "app.C.by = 3.0\nmodel.c.scale.cache_clear()")
_add("lru_cache filled with a value while another setting was active", m("x * scale(4)", top="import functools\nBY = 2.0\n@functools.lru_cache\ndef scale(n):\n    return BY * n\n"), "app.BY = 5.0\napp.scale(4)\napp.BY = 2.0")
_add("partial's keywords mutated", m("self.f(x)", "self.f = functools.partial(h, by=2.0)", "import functools\ndef h(x, by):\n    return x * by\n"), "model.f.keywords['by'] = 3.0")
_add("property replaced on the class", m("x * self.c.by", "self.c = C()", "class C:\n    @property\n    def by(self):\n        return 2.0\n"), "app.C.by = property(lambda self: 3.0)")
_add("Kernel table keyed by dtype", m("x.to(D[self.prec])", "self.prec = 'half'", "D = {'half': torch.float16, 'full': torch.float32}"), "app.D['half'] = torch.bfloat16")
_add("compiled helper (torch.compile) edited", m("h(x)", top="def _h(x):\n    return x * 2.0\nh = torch.compile(_h, backend='eager')"), "", ("x * 2.0", "x * 3.0"))
_add("dynamo-disabled helper edited", m("h(x)", top="import torch._dynamo\n@torch._dynamo.disable\ndef h(x):\n    return x * 2.0\n"), "", ("x * 2.0", "x * 3.0"))
_add("autocast switched by an attribute in a with statement", m("with torch.autocast('cpu', enabled=self.amp):\n    return self.lin(x)", "self.amp = False"), "model.amp = True")
_add("no_grad decorator put on a helper", m("h(self.lin(x))", top="# deco\ndef h(x):\n    return x * 2.0 if torch.is_grad_enabled() else x\n"), "", ("# deco", "@torch.no_grad()"))
_add("HF config with attribute_map subclass", m("x * self.c.hidden_size", "self.c = C(n_embd=2)", "from transformers import PretrainedConfig\nclass C(PretrainedConfig):\n    model_type = 'c'\n    attribute_map = {'hidden_size': 'n_embd', 'other': 'n_head'}\n    def __init__(self, n_embd=2, n_head=5, **k):\n        super().__init__(**k)\n        self.n_embd = n_embd\n        self.n_head = n_head\n"), "", ("'hidden_size': 'n_embd'", "'hidden_size': 'n_head'"))
_add("HF activation table entry replaced", m("ACT2FN[self.a](self.lin(x))", "self.a = 'gelu_new'", "from transformers.activations import ACT2FN"), "from transformers.activations import ACT2FN\nimport torch.nn as tn\nACT2FN['gelu_new'] = tn.ReLU")

# ---- abc: containers of Python and torch
_add("abc: Sequence.register(nn.ModuleList)", m("return self.ls[0](x) * 2.0 if isinstance(self.ls, Sequence) else self.ls[0](x)", "self.ls = nn.ModuleList([nn.ReLU()])", "from collections.abc import Sequence"), "import collections.abc\ncollections.abc.Sequence.register(torch.nn.ModuleList)")
_add("abc: Mapping.register(nn.ModuleDict) in a file that is edited", m("return self.ls['a'](x) * 2.0 if isinstance(self.ls, Mapping) else self.ls['a'](x)", "self.ls = nn.ModuleDict({'a': nn.ReLU()})", "from compat import Mapping") + "--- compat.py\nfrom collections.abc import Mapping\n# compat\n", "", ("# compat", "Mapping.register(nn.ModuleDict)"))
_add("abc: own container abc, ModuleList registered, deep helper", m("run(self.ls, x)", "self.ls = nn.ModuleList([nn.ReLU(), nn.Tanh()])", "from walk import run") + "--- walk.py\nimport abc\nclass Chain(abc.ABC):\n    pass\nChain.register(list)\ndef run(m, x):\n    if isinstance(m, Chain):\n        for c in m:\n            x = run(c, x)\n        return x\n    return x * 2.0\n", "", ("Chain.register(list)", "Chain.register(nn.ModuleList)"))
_add("abc: registered class dropped from a table loop", m("y = self.act(self.lin(x))\nreturn y * 2.0 if isinstance(self.act, Smooth) else y", "self.act = nn.GELU()", "import abc\nclass Smooth(abc.ABC):\n    pass\nfor c in (nn.SiLU, nn.GELU):\n    Smooth.register(c)\n"), "", ("(nn.SiLU, nn.GELU)", "(nn.SiLU,)"))
_add("abc: pydantic class registered", m("return self.lin(x) * 2.0 if isinstance(self.c, Base) else self.lin(x)", "self.c = PC()", "import abc, pydantic\nclass PC(pydantic.BaseModel):\n    a: int = 1\nclass Base(abc.ABC):\n    pass\n"), "app.Base.register(app.pydantic.BaseModel)")
_add("abc: transformers config class registered", m("return self.lin(x) * 2.0 if isinstance(self.c, Base) else self.lin(x)", "self.c = BertConfig()", "import abc\nfrom transformers import BertConfig\nclass Base(abc.ABC):\n    pass\n"), "app.Base.register(app.BertConfig)")
_add("abc: Fraction/Decimal: decimal.Decimal registered as Real", m("return self.lin(x) * 2.0 if isinstance(self.k, numbers.Real) else self.lin(x)", "self.k = decimal.Decimal(2)", "import numbers, decimal"), "import numbers, decimal\nnumbers.Real.register(decimal.Decimal)")
_add("abc: os.PathLike.register(str)", m("return self.lin(x) * 2.0 if isinstance(self.k, os.PathLike) else self.lin(x)", "self.k = 'a'", "import os"), "import os\nos.PathLike.register(str)")
_add("abc: singledispatch over an abc, torch class registered with it", m("conv(self.act, self.lin(x))", "self.act = nn.GELU()\nconv(self.act, torch.rand(1, 4))", "import abc, functools\nclass Smooth(abc.ABC):\n    pass\n@functools.singledispatch\ndef conv(a, x):\n    return x\n@conv.register\ndef _(a: Smooth, x):\n    return x * 2.0\n"), "app.Smooth.register(torch.nn.GELU)\napp.conv(model.act, torch.rand(1, 4))")
_add("singledispatch with a warm cache, another type registered and warmed again", m("conv(self.act, self.lin(x))", "self.act = nn.GELU()\nconv(self.act, torch.rand(1, 4))", "import functools\n@functools.singledispatch\ndef conv(a, x):\n    return x\n"), "app.conv.register(torch.nn.GELU, lambda a, x: x * 3.0)\napp.conv(model.act, torch.rand(1, 4))")

# ---- implicit protocols
_add("nn.Linear gets __len__: truth of a layer", m("return self.lin(x) * 2.0 if self.lin else self.lin(x)"), "torch.nn.Linear.__len__ = lambda self: 0")
_add("nn.Module gets __bool__", m("return self.lin(x) * 2.0 if self.act else self.lin(x)", "self.act = nn.ReLU()"), "torch.nn.Module.__bool__ = lambda self: False")
_add("nn.Linear gets __contains__", m("return self.lin(x) * 2.0 if 'bias' in self.ls else self.lin(x)", "self.ls = nn.ModuleList([nn.ReLU()])"), "torch.nn.ModuleList.__contains__ = lambda self, k: True")
_add("nn.ReLU equality patched", m("return self.lin(x) * 2.0 if self.a == self.b else self.lin(x)", "self.a = nn.ReLU()\nself.b = nn.ReLU()"), "torch.nn.ReLU.__eq__ = lambda a, b: type(a) is type(b)")
_add("isinstance with Sized after nn.Linear got __len__", m("return self.lin(x) * 2.0 if isinstance(self.lin, Sized) else self.lin(x)", top="from collections.abc import Sized"), "torch.nn.Linear.__len__ = lambda self: 4")
_add("own config gets __len__ from a mixin file: truth of a section", m("return self.lin(x) * 2.0 if self.c else self.lin(x)", "self.c = C()", "from mix import C") + "--- mix.py\nclass Base:\n    n = 0\nclass C(Base):\n    pass\n", "", ("n = 0", "n = 0\n    def __len__(self):\n        return self.n"))
_add("builtins.isinstance patched", m("return self.lin(x) * 2.0 if isinstance(self.lin, nn.ReLU) else self.lin(x)"), "import builtins\nold = builtins.isinstance\nbuiltins.isinstance = lambda o, c: True if c is torch.nn.ReLU and type(o) is torch.nn.Linear else old(o, c)")
_add("np.seterr raise: implicit in a division", m("try:\n    k = float(np.float64(1.0) / np.float64(0.0))\nexcept FloatingPointError:\n    return x * 2.0\nreturn x", top="import numpy as np"), "import numpy as np\nnp.seterr(divide='raise')")
_add("decimal rounding mode", m("x * float(decimal.Decimal('2.5').quantize(decimal.Decimal('1')))", top="import decimal"), "import decimal\ndecimal.getcontext().rounding = decimal.ROUND_UP")
_add("weakref target is gone", m("return x * 2.0 if self.r() is None else x", "KEEP.append(Obj())\nself.r = weakref.ref(KEEP[0])", "import weakref\nKEEP = []\nclass Obj:\n    pass\n"), "app.KEEP.clear()")
_add("nan sentinel: the same object or another", m("return x * 2.0 if self.by in SKIP else x", "self.by = NAN", "NAN = float('nan')\nSKIP = [NAN]"), "model.by = float('nan')")

# ---- order
_add("set of ints in another insertion order (iterated)", m("for i in self.s:\n    x = x * (i + 1.0) + i\nreturn x", "self.s = {0, 8}"), "s = set()\ns.add(8)\ns.add(0)\nmodel.s = s")
_add("set of ints that grew and shrank (iterated)", m("for i in self.s:\n    x = x * (i + 1.0) + i\nreturn x", "self.s = {1, 8}"), "s = set(range(1, 40))\nfor i in range(1, 40):\n    if i not in (1, 8):\n        s.discard(i)\nmodel.s = s")
_add("frozenset constant of a file in another order", m("for i in S:\n    x = x * (i + 1.0) + i\nreturn x", top="S = frozenset([0, 8])"), "", ("[0, 8]", "[8, 0]"))
_add("set of tuples in another order", m("for i, j in self.s:\n    x = x * (i + 1.0) + j\nreturn x", "self.s = {(0, 1), (1, 0)}"), "s = set()\nfor k in range(60):\n    s.add((k, k))\ns.clear()\ns.add((1, 0))\ns.add((0, 1))\nmodel.s = s")
_add("OrderedDict.move_to_end (iterated)", m("for k, v in self.od.items():\n    x = x * v if k == 'mul' else x + v\nreturn x", "self.od = collections.OrderedDict(mul=2.0, add=3.0)", "import collections"), "model.od.move_to_end('mul')")
_add("OrderedDict subclass, move_to_end on the class attribute", m("for k, v in C.od.items():\n    x = x * v if k == 'mul' else x + v\nreturn x", top="import collections\nclass OD(collections.OrderedDict):\n    pass\nclass C:\n    od = OD(mul=2.0, add=3.0)"), "app.C.od.move_to_end('mul')")
_add("Counter most_common after an update", m("x * len(self.c.most_common(1)[0][0])", "self.c = collections.Counter(['a', 'bb', 'a'])", "import collections"), "model.c.update(['bb', 'bb'])")
_add("kwargs dict order reaches **kwargs", m("h(x, **self.kw)", "self.kw = dict(mul=2.0, add=3.0)", "def h(x, **kw):\n    for k, v in kw.items():\n        x = x * v if k == 'mul' else x + v\n    return x\n"), "model.kw = dict(add=3.0, mul=2.0)")
_add("module __dict__ order: vars(self.c) walked", m("for k, v in vars(self.c).items():\n    x = x * v if k == 'mul' else x + v\nreturn x", "self.c = C()", "class C:\n    def __init__(self):\n        self.mul = 2.0\n        self.add = 3.0\n"), "del model.c.mul\nmodel.c.mul = 2.0")
_add("class body order: vars(C) walked", m("for k, v in vars(C).items():\n    if k in ('mul', 'add'):\n        x = x * v if k == 'mul' else x + v\nreturn x", top="class C:\n    mul = 2.0\n    add = 3.0\n"), "", ("    mul = 2.0\n    add = 3.0", "    add = 3.0\n    mul = 2.0"))
_add("order of global names: vars(module) walked", m("for k, v in vars(consts).items():\n    if k in ('mul', 'add'):\n        x = x * v if k == 'mul' else x + v\nreturn x", top="import consts") + "--- consts.py\nmul = 2.0\nadd = 3.0\n", "", ("mul = 2.0\nadd = 3.0", "add = 3.0\nmul = 2.0"))
_add("order of buffers: named_buffers walked", m("for n, b in self.named_buffers():\n    x = x * b if n == 'mul' else x + b\nreturn x", "self.register_buffer('mul', torch.ones(4))\nself.register_buffer('add', torch.ones(4))"), "b = model._buffers.pop('mul')\nmodel._buffers['mul'] = b")
_add("order of hooks walked: hooks swapped", m("self.lin(x)", "self.lin.register_forward_hook(lambda m, i, o: o * 2.0)\nself.lin.register_forward_hook(lambda m, i, o: o + 1.0)"), "h = model.lin._forward_hooks\nk = list(h)[0]\nh.move_to_end(k)")
_add("enum alias order: names for one value swapped, name asked", m("return x * 2.0 if E(1).name == 'A' else x", top="import enum\nclass E(enum.Enum):\n    A = 1\n    B = 1\n"), "", ("A = 1\n    B = 1", "B = 1\n    A = 1"))
_add("order of dataclass fields through fields()", m("for f in dataclasses.fields(self.c):\n    v = getattr(self.c, f.name)\n    x = x * v if f.name == 'mul' else x + v\nreturn x", "self.c = C()", "import dataclasses\n@dataclasses.dataclass\nclass C:\n    mul: float = 2.0\n    add: float = 3.0\n"), "", ("    mul: float = 2.0\n    add: float = 3.0", "    add: float = 3.0\n    mul: float = 2.0"))
_add("order of bases of a helper, attribute found in the other", m("x * C.by", top="class A:\n    by = 2.0\nclass B:\n    by = 3.0\nclass C(A, B):\n    pass\n"), "", ("class C(A, B)", "class C(B, A)"))

# ---- instances of subclasses of builtins with attributes
def sub(doc, make, top, fwd="x * self.k.by", change="model.k.by = 3.0"):
    _add("attribute on an instance of: " + doc, m(fwd, "self.k = " + make + "\nself.k.by = 2.0", top), change)


sub("str subclass", "K('a')", "class K(str):\n    pass\n")
sub("float subclass", "K(1.0)", "class K(float):\n    pass\n")
sub("tuple subclass", "K((1, 2))", "class K(tuple):\n    pass\n")
sub("named tuple subclass", "K(1)", "import collections\nclass K(collections.namedtuple('B', 'a')):\n    pass\n")
sub("list subclass", "K([1])", "class K(list):\n    pass\n")
sub("dict subclass", "K(a=1)", "class K(dict):\n    pass\n")
sub("OrderedDict itself", "collections.OrderedDict(a=1)", "import collections\n")
sub("deque subclass", "K([1])", "import collections\nclass K(collections.deque):\n    pass\n")
sub("defaultdict subclass", "K(int)", "import collections\nclass K(collections.defaultdict):\n    pass\n")
sub("Counter", "collections.Counter('ab')", "import collections\n")
sub("bytes subclass", "K(b'a')", "class K(bytes):\n    pass\n")
sub("frozenset subclass", "K([1])", "class K(frozenset):\n    pass\n")
sub("set subclass", "K([1])", "class K(set):\n    pass\n")
sub("complex subclass", "K(1j)", "class K(complex):\n    pass\n")
sub("date subclass", "K(2020, 1, 1)", "import datetime\nclass K(datetime.date):\n    pass\n")
sub("Decimal subclass", "K(1)", "import decimal\nclass K(decimal.Decimal):\n    pass\n")
sub("Fraction subclass", "K(1, 2)", "import fractions\nclass K(fractions.Fraction):\n    pass\n")
sub("Path subclass", "K('a')", "import pathlib\nclass K(type(pathlib.Path())):\n    pass\n")
sub("partial", "functools.partial(F.relu)", "import functools\n")
sub("ndarray subclass", "np.ones(2).view(K)", "import numpy as np\nclass K(np.ndarray):\n    pass\n")
sub("SimpleNamespace subclass", "K()", "import types\nclass K(types.SimpleNamespace):\n    pass\n")
sub("plain tensor", "torch.ones(2)", "")
sub("staticmethod object's function", "K.f", "class K:\n    @staticmethod\n    def f():\n        return 1\n")
sub("lru_cache wrapper", "h", "import functools\n@functools.lru_cache\ndef h():\n    return 1\n")
sub("module object of the project", "ops", "import types\nops = types.ModuleType('ops')\n")
sub("contextmanager-decorated function", "h", "import contextlib\n@contextlib.contextmanager\ndef h():\n    yield\n")
sub("nn.Module class object (own)", "Blk", "class Blk(nn.Module):\n    pass\n")
sub("torch layer not registered but in a tuple", "nn.ReLU()", "")
sub("generic alias-like config class", "K", "from typing import Generic, TypeVar\nT = TypeVar('T')\nclass K(Generic[T]):\n    pass\n")
sub("mock object", "mock.Mock()", "from unittest import mock\n")
sub("logger object", "logging.getLogger('q')", "import logging\n")
sub("ctypes-free struct: types.SimpleNamespace", "types.SimpleNamespace()", "import types\n")
sub("UserList", "collections.UserList([1])", "import collections\n")
sub("weakly referenced holder", "H()", "class H:\n    __slots__ = ('by', '__weakref__')\n")
sub("ParameterList", "nn.ParameterList([nn.Parameter(torch.ones(1))])", "")
sub("torch.Generator-free enum member", "E.A", "import enum\nclass E(enum.Enum):\n    A = 1\n")

_add("equal ranges with different stop", m("F.pad(x, (0, self.r.stop))", "self.r = range(0, 4, 2)"), "model.r = range(0, 3, 2)")
_add("deque maxlen", m("F.pad(x, (0, self.q.maxlen))", "self.q = collections.deque([1], maxlen=2)", "import collections"), "import collections\nmodel.q = collections.deque([1], maxlen=3)")
_add("key 1 becomes True", m("x * 2.0 if type(next(iter(self.d))) is bool else x", "self.d = {1: 'a'}"), "model.d = {True: 'a'}")
_add("Decimal exponent: 1.0 to 1.00", m("F.pad(x, (0, -self.d.as_tuple().exponent))", "self.d = decimal.Decimal('1.0')", "import decimal"), "import decimal\nmodel.d = decimal.Decimal('1.00')")
_add("numpy byte order", m("return x * 2.0 if self.k.dtype.byteorder == '>' else x", "self.k = np.ones(2, dtype='<f4')", "import numpy as np"), "model.k = model.k.astype('>f4')")
_add("numpy writeable flag", m("return x * 2.0 if self.k.flags.writeable else x", "self.k = np.ones(2)", "import numpy as np"), "model.k.setflags(write=False)")
_add("masked array fill value", m("x * float(self.k.filled()[0])", "self.k = np.ma.array([1.0, 2.0], mask=[1, 0], fill_value=2.0)", "import numpy as np"), "model.k.fill_value = 3.0")
_add("poly1d coefficient", m("x * float(self.k(2.0))", "self.k = np.poly1d([1.0, 2.0])", "import numpy as np"), "import numpy as np\nmodel.k = np.poly1d([1.0, 3.0])")
_add("itemgetter key", m("x * self.g(self.d)", "self.g = operator.itemgetter('a')\nself.d = {'a': 2.0, 'b': 3.0}", "import operator"), "import operator\nmodel.g = operator.itemgetter('b')")
_add("requires_grad of a constant tensor", m("return x * 2.0 if T.requires_grad else x", top="T = torch.ones(2)"), "app.T.requires_grad_(True)")
_add("stride of a constant tensor", m("return x * 2.0 if T.stride(0) == 1 else x", top="T = torch.ones(2, 2)"), "app.T = torch.ones(2, 2).t()")
_add("dict keyed by layer class", m("x * W[type(self.act)]", "self.act = nn.GELU()", "W = {nn.GELU: 2.0}"), "app.W[torch.nn.GELU] = 3.0")
_add("dict keyed by layer object", m("x * W[self.act]", "self.act = nn.GELU()\nW[self.act] = 2.0", "W = {}"), "app.W[model.act] = 3.0")
_add("dict keyed by function", m("x * W[F.gelu]", top="W = {F.gelu: 2.0}"), "app.W[torch.nn.functional.gelu] = 3.0")
_add("dict keyed by dtype", m("x * W[x.dtype]", top="W = {torch.float32: 2.0}"), "app.W[torch.float32] = 3.0")
_add("dict keyed by id of a layer", m("x * W.get(id(self.act), 1.0)", "self.act = nn.GELU()", "W = {}"), "app.W[id(model.act)] = 3.0")

# ---- modules of one's own class
_LAZY = "import sys, types\n_by = 2.0\nclass Lazy(types.ModuleType):\n    @property\n    def BY(self):\n        return self._by\nsys.modules[__name__].__class__ = Lazy\n"
_add("module with a class of its own and a property", m("x * consts.BY", top="import consts") + "--- consts.py\n" + _LAZY, "import consts\nconsts._by = 3.0")
_add("module with a class of its own: the property is edited", m("x * consts.BY", top="import consts") + "--- consts.py\n" + _LAZY, "", ("return self._by", "return self._by * 2"))
_add("one file under two names (src path hack): the copy that counts is changed", m("x * consts.BY", top="import sys, pathlib\nsys.path.insert(0, str(pathlib.Path(__file__).parent / 'src'))\nimport consts\nimport src.consts") + "--- src/__init__.py\n--- src/consts.py\nBY = 2.0\n", "app.consts.BY = 3.0")
_add("class in the table replaced, instance made in forward", m("Blk()(x)", top="class Blk:\n    def __call__(self, x):\n        return x * 2.0\n"), "class New:\n    def __call__(self, x):\n        return x * 3.0\napp.Blk = New")
_add("attrs: fields metadata", m("x * attr.fields(C).by.metadata['k']", top="import attr\n@attr.s\nclass C:\n    by = attr.ib(default=1.0, metadata={'k': 2.0})\n"), "", ("{'k': 2.0}", "{'k': 3.0}"))
_add("attrs: evolve with a validator that is edited", m("try:\n    return x * attr.evolve(self.c, by=5.0).by\nexcept ValueError:\n    return x", "self.c = C(1.0)", "import attr\nLIMIT = 4.0\ndef check(i, a, v):\n    if v > LIMIT:\n        raise ValueError(v)\n@attr.s\nclass C:\n    by = attr.ib(validator=check)\n"), "", ("LIMIT = 4.0", "LIMIT = 6.0"))
_add("pydantic: nested models and PrivateAttr", m("x * self.c.inner._k", "self.c = C()", "import pydantic\nclass I(pydantic.BaseModel):\n    _k: float = pydantic.PrivateAttr(2.0)\nclass C(pydantic.BaseModel):\n    inner: I = pydantic.Field(default_factory=I)\n"), "model.c.inner._k = 3.0")
_add("pydantic: default edited in the file", m("x * self.c.by", "self.c = C()", "import pydantic\nclass C(pydantic.BaseModel):\n    by: float = 2.0\n"), "", ("by: float = 2.0", "by: float = 3.0"))
_add("pydantic: computed_field edited", m("x * self.c.k", "self.c = C()", "import pydantic\nclass C(pydantic.BaseModel):\n    by: float = 2.0\n    @pydantic.computed_field\n    @property\n    def k(self) -> float:\n        return self.by * 1.0\n"), "", ("self.by * 1.0", "self.by * 2.0"))
_add("pydantic: model_fields_set asked", m("return x * 2.0 if 'by' in self.c.model_fields_set else x", "self.c = C()", "import pydantic\nclass C(pydantic.BaseModel):\n    by: float = 2.0\n"), "model.c = app.C(by=2.0)")
_add("pydantic: model_fields of the class walked", m("F.pad(x, (0, len(type(self.c).model_fields)))", "self.c = C()", "import pydantic\nclass C(pydantic.BaseModel):\n    by: float = 2.0\n"), "", ("by: float = 2.0", "by: float = 2.0\n    more: int = 1"))

# ---- a transformers model
_BERT = "import transformers\nfrom transformers import BertConfig, BertModel\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        c = BertConfig(vocab_size=10, hidden_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, max_position_embeddings=8)\n        self.b = BertModel(c)\n    def forward(self, x):\n        return self.b(inputs_embeds=x[None]).last_hidden_state\n"
_add("bert: eager attention", _BERT, "model.b.config._attn_implementation = 'eager'")
_add("bert: set_attn_implementation", _BERT, "model.b.set_attn_implementation('eager')")
_add("bert: activation function object replaced", _BERT, "model.b.encoder.layer[0].intermediate.intermediate_act_fn = torch.nn.ReLU()")
_add("bert: hidden act in the file", _BERT, "", ("intermediate_size=8", "intermediate_size=8, hidden_act='relu'"))
_add("bert: attention function table gets another sdpa", _BERT, "from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as A\nold = A['sdpa']\nA['sdpa'] = lambda m, q, k, v, mask, **kw: old(m, q * 2.0, k, v, mask, **kw)")
_add("bert: method of an installed class patched", _BERT, "from transformers.models.bert import modeling_bert as mb\nold = mb.BertIntermediate.forward\nmb.BertIntermediate.forward = lambda self, h: old(self, h) * 2.0")
_add("bert: chunk size of the feed forward", _BERT, "for l in model.b.encoder.layer:\n    l.chunk_size_feed_forward = 1")
_add("bert: pooler removed", _BERT, "model.b.pooler = None")
_add("bert: is_decoder", _BERT, "model.b.config.is_decoder = True")
_add("bert: global function in modeling_bert patched", _BERT, "from transformers.models.bert import modeling_bert as mb\nold = mb.create_bidirectional_mask\nmb.create_bidirectional_mask = lambda *a, **k: torch.zeros(1, 1, 3, 3)")
_add("bert: abc.register of a model class in a walker", _BERT.replace("return self.b(inputs_embeds=x[None]).last_hidden_state", "y = self.b(inputs_embeds=x[None]).last_hidden_state\n        return y * 2.0 if isinstance(self.b, Enc) else y").replace("import transformers\n", "import transformers, abc\nclass Enc(abc.ABC):\n    pass\n"), "app.Enc.register(app.BertModel)")
_add("bert: retrained", _BERT, "for p in model.parameters():\n    p.data.add_(0.01)", **H)
_add("bert: name of the checkpoint", _BERT, "model.b.config._name_or_path = './ckpt-500'", **H)
_add("bert: generation length, labels unchanged", _BERT, "model.b.config._commit_hash = 'abc'", **H)
_add("bert: verbosity of transformers", _BERT, "import transformers\ntransformers.logging.set_verbosity_error()", **H)
_add("bert: was run before", _BERT, "model(torch.rand(3, 4))", **H)
_add("bert: train() and eval()", _BERT, "model.train()\nmodel.eval()", **H)
_add("bert: gradients off and on again", _BERT, "model.requires_grad_(False)\nmodel.requires_grad_(True)", **H)
_RT = "import os, app, copy, pickle, io\nmodel = app.Model().eval()\nif os.environ.get('RT'):\n    model = %s\n"
_add("pickle round trip of the whole model", m("self.act(self.lin(x)) * self.by", "self.act = nn.ReLU()\nself.by = 2.0"), make=_RT % "pickle.loads(pickle.dumps(model))", env={"RT": "1"}, **H)
_add("deepcopy of the whole model", m("self.act(self.lin(x)) * self.by", "self.act = nn.ReLU()\nself.by = 2.25"), make=_RT % "copy.deepcopy(model)", env={"RT": "1"}, **H)
_add("bert: deepcopy", _BERT, make=_RT % "copy.deepcopy(model)", env={"RT": "1"}, **H)
_add("to float32 and cpu again", m("self.act(self.lin(x)) * self.by", "self.act = nn.ReLU()\nself.by = 2.5"), make=_RT % "model.double().float().cpu()", env={"RT": "1"}, **H)
_add("abc: registered class was checked before (cache of the abc is warm)", m("y = self.act(self.lin(x))\nreturn y * 2.0 if isinstance(self.act, Smooth) else y", "self.act = nn.GELU()", "import abc\nclass Smooth(abc.ABC):\n    pass\nSmooth.register(nn.GELU)\n"), "isinstance(model.act, app.Smooth)\nisinstance(1, app.Smooth)", **H)

_add("OrderedDict global with an attribute", m("x * OD.by", top="import collections\nOD = collections.OrderedDict(a=1)\nOD.by = 2.0"), "app.OD.by = 3.0")
_add("OrderedDict global with an attribute, edited in the file", m("x * OD.by", top="import collections\nOD = collections.OrderedDict(a=1)\nOD.by = 2.0"), "", ("OD.by = 2.0", "OD.by = 3.0"))
_add("OrderedDict class attribute with an attribute", m("x * C.od.by", top="import collections\nclass C:\n    od = collections.OrderedDict(a=1)\n    od.by = 2.0"), "app.C.od.by = 3.0")
_add("OrderedDict: state_dict with _metadata kept on the model", m("return x * 2.0 if self.sd._metadata['lin']['version'] == 1 else x", "self.sd = self.lin.state_dict()\nself.sd._metadata = {'lin': {'version': 1}}\nself.sd.clear()"), "model.sd._metadata = {'lin': {'version': 2}}")
_add("OrderedDict: attribute with getattr default appears", m("x * getattr(self.k, 'by', 2.0)", "self.k = collections.OrderedDict(a=1)", "import collections"), "model.k.by = 3.0")
_add("OrderedDict: vars() of it", m("x * vars(self.k)['by']", "self.k = collections.OrderedDict(a=1)\nself.k.by = 2.0", "import collections"), "model.k.by = 3.0")
_add("OrderedDict in a closure", m("self.f(x)", "self.f = mk()", "import collections\ndef mk():\n    o = collections.OrderedDict()\n    o.by = 2.0\n    return lambda x: x * o.by\n"), "model.f.__closure__[0].cell_contents.by = 3.0")
_add("hooks dict of a layer carries an attribute", m("x * getattr(self.lin._forward_hooks, 'by', 2.0)"), "model.lin._forward_hooks.by = 3.0")
sub("OrderedDict subclass", "K(a=1)", "import collections\nclass K(collections.OrderedDict):\n    pass\n")
sub("ChainMap", "collections.ChainMap({})", "import collections\n")
sub("UserString", "collections.UserString('a')", "import collections\n")
sub("argparse.Namespace", "argparse.Namespace()", "import argparse\n")
sub("string.Template", "string.Template('a')", "import string\n")
sub("Fraction", "K(1, 2)", "import fractions\nclass K(fractions.Fraction):\n    __slots__ = ('by',)\n")
sub("numpy vectorize", "np.vectorize(len)", "import numpy as np\n")
sub("poly1d", "K([1.0])", "import numpy as np\nclass K(np.poly1d):\n    pass\n")
sub("ParameterDict", "nn.ParameterDict({'a': nn.Parameter(torch.ones(1))})", "")
sub("ModuleList", "nn.ModuleList([nn.ReLU()])", "")
sub("attrs instance", "K()", "import attr\n@attr.s\nclass K:\n    pass\n")
sub("pydantic with extra allowed", "K()", "import pydantic\nclass K(pydantic.BaseModel):\n    model_config = {'extra': 'allow'}\n")
sub("frozen dataclass (object.__setattr__)", "K()", "import dataclasses\n@dataclasses.dataclass\nclass K:\n    pass\n", change="object.__setattr__(model.k, 'by', 3.0)")
sub("cached_property object of a class", "vars(C)['q']", "import functools\nclass C:\n    @functools.cached_property\n    def q(self):\n        return 1\n")
sub("staticmethod object itself", "vars(C)['q']", "class C:\n    @staticmethod\n    def q():\n        return 1\n")
sub("classmethod object itself", "vars(C)['q']", "class C:\n    @classmethod\n    def q(cls):\n        return 1\n")
sub("partialmethod object", "functools.partialmethod(len)", "import functools\n")
sub("property subclass", "K(len)", "class K(property):\n    pass\n")
sub("torch.finfo-free dtype holder: torch.Size subclass", "K((1,))", "class K(tuple):\n    pass\n")
sub("nn.Sigmoid in a dataclass", "H(nn.Sigmoid()).m", "import dataclasses\n@dataclasses.dataclass\nclass H:\n    m: object\n")
sub("range subclass-like UserList of a config", "K([1, 2])", "import collections\nclass K(collections.UserList):\n    pass\n")
sub("transformers config", "PretrainedConfig()", "from transformers import PretrainedConfig\n")
sub("int enum member", "E.A", "import enum\nclass E(enum.IntEnum):\n    A = 1\n")
sub("flag member", "E.A", "import enum\nclass E(enum.Flag):\n    A = 1\n")
sub("autograd Function class", "E", "class E(torch.autograd.Function):\n    pass\n")
sub("torch.jit-free functools.wraps wrapper", "w(len)", "import functools\ndef w(f):\n    @functools.wraps(f)\n    def g(*a):\n        return f(*a)\n    return g\n")
