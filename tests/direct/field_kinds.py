"""Kinds of wrong hits that earlier designs had: classes by name, identity, getters, sets, flags, edits. They are added to ``field_scenarios``."""

# fmt: off
from __future__ import annotations

from tests.direct.field_scenarios import _add, _model


def _f(name, text):
    return f"--- {name}\n{text.strip()}\n"


# ---------------------------------------------------------------- 1. classes trusted by __module__

_add("a function in the namespace of make_dataclass is edited",
     _model("x * self.cfg.scale()", "self.cfg = Config(4)", "from config import Config")
     + _f("config.py", """
import dataclasses
def _scale(self):
    return self.by / 2.0
Config = dataclasses.make_dataclass("Config", [("by", int)], namespace={"scale": _scale})
"""), "", ("/ 2.0", "/ 4.0"))

_add("class constants of a make_dataclass config come from JSON that is edited",
     _model("x * self.cfg.GAIN", "self.cfg = Config(4)", "from config import Config")
     + _f("config.py", """
import dataclasses, json, pathlib
RAW = json.loads(pathlib.Path(__file__).with_name("config.json").read_text())
Config = dataclasses.make_dataclass("Config", [("by", int)], namespace={k.upper(): v for k, v in RAW.items()})
del RAW
""") + _f("config.json", '{"gain": 2.0}'), "", ("2.0", "3.0"))

_add("the base of a make_dataclass class is edited",
     _model("x * self.cfg.scale()", "self.cfg = Config(4)", "from config import Config")
     + _f("bases.py", """
class Scaled:
    def scale(self):
        return self.by * 2.0
""") + _f("config.py", """
import dataclasses
from bases import Scaled
Config = dataclasses.make_dataclass("Config", [("by", int)], bases=(Scaled,), frozen=True)
"""), "", ("* 2.0", "* 3.0"))

_add("default of a make_dataclass config that forward creates",
     _model("x * make().by", "pass", "from config import make")
     + _f("config.py", """
import dataclasses
DEFAULTS = {"by": 2.0, "eps": 1e-5}
Config = dataclasses.make_dataclass("Config", [(k, type(v), dataclasses.field(default=v)) for k, v in DEFAULTS.items()])
def make():
    return Config(eps=0.0)
"""), "", ('"by": 2.0', '"by": 3.0'))

_add("ABCMeta called directly and its mixin edited",
     _model("self.block(x)", "self.block = Block()", "from blocks import Block")
     + _f("mixin.py", """
class ScaleMixin:
    def post(self, x):
        return x * 2.0
""") + _f("blocks.py", """
from abc import ABCMeta
from mixin import ScaleMixin
def _forward(self, x):
    return self.post(x)
Block = ABCMeta("Block", (ScaleMixin, nn.Module), {"forward": _forward})
"""), "", ("x * 2.0", "x * 3.0"))

_add("type() builds a subclass of nn.Linear that says torch",
     _model("self.proj(x)", "self.proj = Linear(4, 4)", "from layers import Linear")
     + _f("layers.py", """
def _forward(self, x):
    return nn.Linear.forward(self, x) * self.gain
Linear = type("Linear", (nn.Linear,), {"forward": _forward, "gain": 2.0, "__module__": "torch.nn.modules.linear",
                                      "__qualname__": "Linear"})
"""), "", ('"gain": 2.0', '"gain": 3.0'))

_add("functional Enum with module=torch.nn has another value",
     _model("x * Mode.FAST.value", "pass", "from modes import Mode")
     + _f("modes.py", """
import enum
Mode = enum.Enum("Mode", {"FAST": 2.0, "SLOW": 5.0}, module="torch.nn")
"""), "", ('"FAST": 2.0', '"FAST": 3.0'))

_add("functional Enum from a text file, its members reordered",
     _model("x * float(list(Stage).index(self.stage) + 2)", "self.stage = Stage['mid']", "from stages import Stage")
     + _f("stages.py", """
import enum, pathlib
Stage = enum.Enum("Stage", {n: n for n in pathlib.Path(__file__).with_name("stages.txt").read_text().split()})
""") + _f("stages.txt", "low mid high"), "", ("low mid high", "low high mid"))

_add("namedtuple defaults are edited",
     _model("x * Params(bias=0.0).by", "pass", "from params import Params")
     + _f("params.py", """
import collections
Params = collections.namedtuple("Params", "bias by", defaults=[2.0])
"""), "", ("[2.0]", "[3.0]"))

_add("namedtuple defaults are patched in memory",
     _model("x * Params(bias=0.0).by", "pass",
            "import collections\nParams = collections.namedtuple('Params', 'bias by', defaults=[2.0])"),
     "app.Params.__new__.__defaults__ = (3.0,)")

_add("a method of a typing.NamedTuple subclass is edited",
     _model("x * self.p.area", "self.p = Size(2, 3)", "from sizes import Size")
     + _f("sizes.py", """
import typing
class Size(typing.NamedTuple("Size", [("h", int), ("w", int)])):
    __slots__ = ()
    @property
    def area(self):
        return float(self.h * self.w)
"""), "", ("self.h * self.w", "self.h + self.w + 1"))

_add("user layer under parametrizations.weight_norm is edited",
     _model("self.proj(x)", "self.proj = weight_norm(Scaled(4, 4))",
            "from torch.nn.utils.parametrizations import weight_norm\nfrom layers import Scaled")
     + _f("layers.py", """
class Scaled(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2.0
"""), "", ("* 2.0", "* 3.0"))

_add("class attribute of a user layer under spectral_norm is edited",
     _model("self.proj(x)", "self.proj = spectral_norm(Scaled(4, 4))",
            "from torch.nn.utils.parametrizations import spectral_norm\nfrom layers import Scaled")
     + _f("layers.py", """
class Scaled(nn.Linear):
    gain = 2.0
    def forward(self, x):
        return F.linear(x, self.weight, self.bias) * type(self).gain
"""), "", ("gain = 2.0", "gain = 3.0"))

_add("base class of a user layer under the old weight_norm is patched",
     _model("self.proj(x)", "self.proj = nn.utils.weight_norm(Scaled(4, 4))", """
class Base(nn.Linear):
    def act(self, x):
        return torch.relu(x)
class Scaled(Base):
    def forward(self, x):
        return self.act(super().forward(x))"""),
     "app.Base.act = lambda self, x: torch.tanh(x)")

_add("a user parametrization is edited",
     _model("self.lin(x)", "parametrize.register_parametrization(self.lin, 'weight', Symmetric())",
            "from torch.nn.utils import parametrize\nfrom par import Symmetric")
     + _f("par.py", """
class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2)
"""), "", ("w.triu(1)", "w.triu(2)"))

_add("functools.wraps of a torch function poses as it",
     _model("self.act(x)", "self.act = act", "from acts import act")
     + _f("acts.py", """
import functools
@functools.wraps(F.relu)
def act(x):
    return torch.relu(x) * 2.0
"""), "", ("* 2.0", "* 3.0"))

_add("a function with faked module and qualname of torch",
     _model("gelu(x)", "pass", "from acts import gelu")
     + _f("acts.py", """
def gelu(x):
    return x * torch.sigmoid(1.702 * x)
gelu.__module__, gelu.__qualname__ = "torch.nn.functional", "gelu"
"""), "", ("1.702", "1.5"))

_add("types.new_class with a mixin that is edited",
     _model("self.block(x)", "self.block = make('relu')()", "from factory import make")
     + _f("mix.py", """
class Act:
    def act(self, x):
        return getattr(torch, self.kind)(x)
    def forward(self, x):
        return self.act(x) + 2.0
""") + _f("factory.py", """
import types, mix
def make(kind):
    return types.new_class("Block", (mix.Act, nn.Module), {}, lambda ns: ns.update(kind=kind, __module__="types"))
"""), "", ("+ 2.0", "+ 3.0"))

_add("a ModuleType object that has a torch module's name",
     _model("x * self.ns.gain", "self.ns = ns", "import types\nns = types.ModuleType('torch.nn.functional')\nns.gain = 2.0"),
     "app.ns.gain = 3.0")

_add("attr.make_class with another default",
     _model("x * Config(eps=1.0).by", "pass", "from config import Config")
     + _f("config.py", """
import attr
Config = attr.make_class("Config", {"by": attr.ib(default=2.0), "eps": attr.ib(default=0.0)})
"""), "", ("default=2.0", "default=3.0"))

_add("pydantic.create_model with another default",
     _model("x * self.cfg.by", "self.cfg = Config(eps=1.0)", "from config import Config")
     + _f("config.py", """
import pydantic
Config = pydantic.create_model("Config", by=(float, 2.0), eps=(float, 0.0))
"""), "", ("(float, 2.0)", "(float, 3.0)"))

_add("autograd.Function made by type()",
     _model("Scale.apply(x)", "pass", "from fn import Scale")
     + _f("fn.py", """
def _fw(ctx, x):
    return x * 2.0
def _bw(ctx, g):
    return g * 2.0
Scale = type("Scale", (torch.autograd.Function,), {"forward": staticmethod(_fw), "backward": staticmethod(_bw)})
"""), "", ("return x * 2.0", "return x * 3.0"))

_add("user class stored under torch's name inside torch.nn",
     _model("self.act(x)", "self.act = nn.Swishy()", "import layers")
     + _f("layers.py", """
class Swishy(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(2.0 * x)
Swishy.__module__ = "torch.nn"
nn.Swishy = Swishy
"""), "", ("2.0 * x", "3.0 * x"))

# ---------------------------------------------------------------- 2. dunder attributes

_add("metadata of a dataclass field",
     _model("for f in dataclasses.fields(self.cfg):\n    x = x * f.metadata['gain']\nreturn x", "self.cfg = Config()",
            "import dataclasses\nfrom config import Config")
     + _f("config.py", """
import dataclasses
@dataclasses.dataclass
class Config:
    by: float = dataclasses.field(default=1.0, metadata={"gain": 2.0})
"""), "", ('"gain": 2.0', '"gain": 3.0'))

_add("compare=False of an ordered dataclass",
     _model("x * max(self.cfgs).by", "self.cfgs = [Config(1, 3.0), Config(2, 2.0)]", "from config import Config")
     + _f("config.py", """
import dataclasses
@dataclasses.dataclass(order=True)
class Config:
    prio: int = dataclasses.field(compare=True)
    by: float = 0.0
"""), "", ("compare=True", "compare=False"))

_add("dataclass field with repr=False toggled selects active fields",
     _model("for f in dataclasses.fields(self.cfg):\n    x = x * getattr(self.cfg, f.name) if f.repr else x\nreturn x",
            "self.cfg = Config(2.0, 3.0)", "import dataclasses\nfrom config import Config")
     + _f("config.py", """
import dataclasses
@dataclasses.dataclass
class Config:
    a: float
    b: float = dataclasses.field(repr=False)
"""), "", ("(repr=False)", "(repr=True)"))

_add("default in dataclass Field object patched in memory",
     _model("x * next(f.default for f in dataclasses.fields(Config) if f.name == 'by')", "pass",
            "import dataclasses\n@dataclasses.dataclass\nclass Config:\n    by: float = 2.0"),
     "app.Config.__dataclass_fields__['by'].default = 3.0")

_add("c2 __dataclass_fields__ is reordered in memory",
     _model("vals = dataclasses.astuple(self.cfg)\nreturn x * vals[0] + vals[1]", "self.cfg = Config()",
            "import dataclasses\n@dataclasses.dataclass\nclass Config:\n    a: float = 2.0\n    b: float = 3.0"),
     "f = app.Config.__dataclass_fields__; f['a'] = f.pop('a')")

_add("c2 __match_args__ swapped",
     _model("match self.box:\n    case Box(h, w):\n        return x * h + w", "self.box = Box(2.0, 3.0)", """
class Box:
    __match_args__ = ("h", "w")
    def __init__(self, h, w):
        self.h, self.w = h, w"""),
     "app.Box.__match_args__ = ('w', 'h')")

_add("the parameter in __orig_bases__",
     _model("self.block(x)", "self.block = Block()", "from blocks import Block")
     + _f("blocks.py", """
import typing
T = typing.TypeVar("T")
class Base(nn.Module, typing.Generic[T]):
    def forward(self, x):
        (kind,) = typing.get_args(typing.get_args(type(self).__orig_bases__[0])[0])
        return x * kind
class Block(Base[typing.Literal[2]]):
    pass
"""), "", ("Literal[2]", "Literal[3]"))

_add("Annotated metadata read via __annotations__",
     _model("x * Config.__annotations__['by'].__metadata__[0]", "pass", "from config import Config")
     + _f("config.py", """
from typing import Annotated
class Config:
    by: Annotated[float, 2.0]
"""), "", ("float, 2.0", "float, 3.0"))

_add("c2 __abstractmethods__ emptied",
     _model("x * 2.0 if inspect.isabstract(self.base) else x * 3.0", "self.base = Base", """
import abc, inspect
class Base(abc.ABC):
    @abc.abstractmethod
    def f(self): ..."""),
     "app.Base.__abstractmethods__ = frozenset()")

_add("c2 __signature__ of a callable",
     _model("x * float(len(inspect.signature(self.fn).parameters))", "self.fn = fn", """
import inspect
def fn(*args):
    return args
fn.__signature__ = inspect.Signature([inspect.Parameter(n, inspect.Parameter.POSITIONAL_ONLY) for n in "ab"])"""),
     "app.fn.__signature__ = app.inspect.Signature([app.inspect.Parameter(n, app.inspect.Parameter.POSITIONAL_ONLY) for n in 'abc'])")

_add("order in __slots__",
     _model("for n in self.cfg.__slots__:\n    x = getattr(self.cfg, n)(x)\nreturn x", "self.cfg = Ops()", """
class Ops:
    __slots__ = ["a", "b"]
    def __init__(self):
        self.a, self.b = torch.relu, torch.tanh"""),
     "app.Ops.__slots__.reverse()")

_add("c2 __class_getitem__ edited",
     _model("x * Scale[2].by", "pass", "from scale import Scale")
     + _f("scale.py", """
class Scale:
    by = 1.0
    def __class_getitem__(cls, n):
        return type(cls.__name__, (cls,), {"by": n * 1.0})
"""), "", ("n * 1.0", "n * 1.5"))

_add("c2 __set_name__ of a descriptor edited",
     _model("x * self.gain", "self.gain_v, self._gain = 2.0, 3.0", "from desc import Alias", "gain = Alias()")
     + _f("desc.py", """
class Alias:
    def __set_name__(self, owner, name):
        self.target = name + "_v"
    def __get__(self, obj, owner=None):
        return self if obj is None else obj.__dict__[self.target]
"""), "", ('name + "_v"', '"_" + name'))

_add("keyword for __init_subclass__ in the class statement",
     _model("self.b(x)", "self.b = Block()", "from blocks import Block")
     + _f("blocks.py", """
class Base(nn.Module):
    def __init_subclass__(cls, gain=1.0, **kw):
        super().__init_subclass__(**kw)
        cls._gain = gain
    def forward(self, x):
        return x * self._gain
class Block(Base, gain=2.0):
    pass
"""), "", ("gain=2.0", "gain=3.0"))

_add("c2 __bool__ added to an adapter class",
     _model("return x * 2.0 if self.adapter else x * 3.0", "self.adapter = Adapter()", "class Adapter(nn.Module):\n    pass"),
     "app.Adapter.__bool__ = lambda self: False")

_add("c2 __len__ added to a config class",
     _model("return x * 2.0 if self.cfg else x * 3.0", "self.cfg = Cfg()", "class Cfg:\n    pass"),
     "app.Cfg.__len__ = lambda self: 0")

_add("c2 __eq__ of a key class edited",
     _model("x * (2.0 if self.a == self.b else 3.0)", "self.a, self.b = Key('Relu'), Key('relu')", "from keys import Key")
     + _f("keys.py", """
class Key:
    def __init__(self, name):
        self.name = name
    def __eq__(self, other):
        return self.name.lower() == other.name.lower()
    __hash__ = None
"""), "", ("self.name.lower() == other.name.lower()", "self.name == other.name"))

_add("c2 __missing__ of a dict subclass edited",
     _model("x * self.table['unknown']", "self.table = Table(a=1.0)", "from table import Table")
     + _f("table.py", "class Table(dict):\n    def __missing__(self, key):\n        return len(key) * 2.0\n"),
     "", ("* 2.0", "* 3.0"))

_add("c2 __format__ decides the key of a look-up",
     _model("x * self.table[f'{self.name:short}']", "self.name, self.table = Name(), {'sh': 2.0, 'lo': 3.0}",
            "class Name:\n    def __format__(self, spec):\n        return spec[:2]"),
     "app.Name.__format__ = lambda self, spec: 'lo'")

_add("c2 __getattr__ fallback of a config class edited",
     _model("x * self.cfg.gain", "self.cfg = Cfg(a=1)", "from cfg import Cfg")
     + _f("cfg.py", """
class Cfg:
    def __init__(self, **kw):
        self.__dict__.update(kw)
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return float(len(name))
"""), "", ("float(len(name))", "float(len(name)) + 1.0"))

_add("c2 __index__ of an axis object",
     _model("torch.narrow(x, 1, 0, operator.index(self.k))", "self.k = K()", "import operator\nclass K:\n    def __index__(self):\n        return 2"),
     "app.K.__index__ = lambda self: 3")

_add("c2 __floor__ called from math.floor",
     _model("x * float(math.floor(self.k))", "self.k = K()", "import math\nclass K:\n    def __floor__(self):\n        return 2"),
     "app.K.__floor__ = lambda self: 3")

_add("a class is registered at collections.abc.Mapping",
     _model("return x * 2.0 if isinstance(self.cfg, collections.abc.Mapping) else x * 3.0", "self.cfg = Cfg()",
            "import collections.abc\nclass Cfg:\n    pass"),
     "app.collections.abc.Mapping.register(app.Cfg)")

_add("a class is registered at numbers.Integral",
     _model("return x * 2.0 if isinstance(self.cfg, numbers.Integral) else x * 3.0", "self.cfg = Cfg()",
            "import numbers\nclass Cfg:\n    pass"),
     "app.numbers.Integral.register(app.Cfg)")

_add("c2 __array__ of an embedding holder",
     _model("x * torch.from_numpy(np.asarray(self.t))", "self.t = T()",
            "import numpy as np\nclass T:\n    def __array__(self, dtype=None, copy=None):\n        return np.full((4,), 2.0, dtype=np.float32)"),
     "app.T.__array__ = lambda self, dtype=None, copy=None: app.np.full((4,), 3.0, dtype=app.np.float32)")

_add("c2 __copy__ added to a config that forward copies",
     _model("x * copy.copy(self.cfg).by", "self.cfg = Cfg()", "import copy\nclass Cfg:\n    def __init__(self):\n        self.by = 2.0"),
     "app.Cfg.__copy__ = lambda self: type('D', (), {'by': 3.0})()")

_add("c2 __deepcopy__ edited in a base",
     _model("x * copy.deepcopy([self.cfg])[0].by", "self.cfg = Cfg()", "import copy\nfrom base import Cfg")
     + _f("base.py", """
class Base:
    def __deepcopy__(self, memo):
        new = type(self)()
        new.by = self.by * 2.0
        return new
class Cfg(Base):
    def __init__(self):
        self.by = 1.0
"""), "", ("* 2.0", "* 3.0"))

_add("c2 __length_hint__",
     _model("x * float(operator.length_hint(self.k, 7))", "self.k = K()", "import operator\nclass K:\n    def __length_hint__(self):\n        return 2"),
     "app.K.__length_hint__ = lambda self: 3")

_add("c2 __fspath__ used as a key",
     _model("x * self.t[os.fspath(self.k)]", "self.k, self.t = K(), {'a': 2.0, 'b': 3.0}", "import os\nclass K:\n    def __fspath__(self):\n        return 'a'"),
     "app.K.__fspath__ = lambda self: 'b'")

_add("c2 __instancecheck__ of a metaclass edited",
     _model("return x * 2.0 if isinstance(self.lin, Gated) else x * 3.0", "pass", "from gate import Gated")
     + _f("gate.py", """
class Meta(type):
    def __instancecheck__(cls, obj):
        return hasattr(obj, "in_features")
class Gated(metaclass=Meta):
    pass
"""), "", ('"in_features"', '"in_channels"'))

_add("c2 __torch_function__ of an operand edited",
     _model("torch.add(x, self.op)", "self.op = Op()", "from op import Op")
     + _f("op.py", """
class Op:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return args[0] * 2.0
"""), "", ("* 2.0", "* 3.0"))

_add("c2 __kwdefaults__ mutated",
     _model("scale(x)", "pass", "def scale(x, *, by=2.0):\n    return x * by"), "app.scale.__kwdefaults__['by'] = 3.0")

_add("cell contents of a closure changed",
     _model("self.fn(x)", "self.fn = make(2.0)", "def make(by):\n    def f(x):\n        return x * by\n    return f"),
     "model.fn.__closure__[0].cell_contents = 3.0")

_add("c2 __code__ of a helper swapped",
     _model("scale(x)", "pass", "def scale(x):\n    return x * 2.0\ndef other(x):\n    return x * 3.0"), "app.scale.__code__ = app.other.__code__")

# ---------------------------------------------------------------- 3. identity

_add("sentinel mode deep-copied",
     _model("return x * 2.0 if self.mode is NEAREST else x * 3.0", "self.mode = NEAREST",
            "import copy\nclass Mode:\n    pass\nNEAREST = Mode()"),
     "model.mode = app.copy.deepcopy(app.NEAREST)")

_add("two submodules share one config, then a copy",
     _model("return x * 2.0 if self.a.cfg is self.b.cfg else x * 3.0",
            "self.a, self.b = nn.Identity(), nn.Identity()\nself.a.cfg = self.b.cfg = Cfg()", "import copy\nclass Cfg:\n    by = 1"),
     "model.b.cfg = app.copy.copy(model.a.cfg)")

_add("parameter untied with an equal one",
     _model("return x * float(len(list(self.parameters())))", "self.out = nn.Linear(4, 4)\nself.out.weight = self.lin.weight"),
     "model.out.weight = torch.nn.Parameter(model.lin.weight.detach().clone())")

_add("head weight is the embedding's",
     _model("return F.linear(x, self.head.weight) * (2.0 if self.head.weight is self.lin.weight else 3.0)",
            "self.head = nn.Linear(4, 4, bias=False)\nself.head.weight = self.lin.weight"),
     "model.head.weight = torch.nn.Parameter(model.lin.weight.detach().clone())")

_add("module registered twice becomes two",
     _model("return x * float(len(list(self.modules())))", "self.a = nn.ReLU()\nself.b = self.a"),
     "model.b = torch.nn.ReLU()")

_add("tensors as dictionary keys replaced by clones",
     _model("return x * self.scales.get(self.lin.weight, 3.0)", "self.scales = {self.lin.weight: 2.0}"),
     "model.scales = {torch.nn.Parameter(model.lin.weight.detach().clone()): 2.0}")

_add("a module as dictionary key",
     _model("return x * self.scales.get(self.act, 3.0)", "self.act = nn.ReLU()\nobject.__setattr__(self, 'scales', {self.act: 2.0})"),
     "model.scales = {torch.nn.ReLU(): 2.0}")

_add("key objects with identity hash",
     _model("return x * self.t.get(KEY, 3.0)", "self.t = {KEY: 2.0}", "class Key:\n    pass\nKEY = Key()"), "app.KEY = app.Key()")

_add("class object after importlib.reload",
     _model("return x * 2.0 if type(self.act) is layers.Act else x * 3.0", "self.act = layers.Act()", "import importlib, layers")
     + _f("layers.py", "class Act(nn.Module):\n    def forward(self, x):\n        return x\n"),
     "app.importlib.reload(app.layers)")

_add("isinstance against a reloaded class",
     _model("return x * 2.0 if isinstance(self.cfg, conf.Cfg) else x * 3.0", "self.cfg = conf.Cfg()", "import importlib, conf")
     + _f("conf.py", "class Cfg:\n    by = 1\n"),
     "app.importlib.reload(app.conf)")

_add("weak reference to another module",
     _model("return x * 2.0 if self.owner() is self.act else x * 3.0", "self.act, self.other = nn.ReLU(), nn.ReLU()\nself.owner = weakref.ref(self.act)", "import weakref"),
     "model.owner = app.weakref.ref(model.other)")

_add("WeakKeyDictionary keyed by a module",
     _model("return x * TABLE.get(self.act, 3.0)", "self.act, self.other = nn.ReLU(), nn.ReLU()\nTABLE[self.act] = 2.0",
            "import weakref\nTABLE = weakref.WeakKeyDictionary()"),
     "app.TABLE.clear(); app.TABLE[model.other] = 2.0")

_add("c3 __self__ of a bound method is a copy",
     _model("return x * 2.0 if self.fn.__self__ is self.act else x * 3.0", "self.act = Act()\nself.fn = self.act.run",
            "import copy\nclass Act:\n    def run(self): pass"),
     "model.fn = app.copy.copy(model.act).run")

_add("argument of a partial is the attribute",
     _model("return x * 2.0 if self.p.args[0] is self.cfg else x * 3.0", "self.cfg = {'a': 1}\nself.p = functools.partial(print, self.cfg)",
            "import functools"),
     "model.cfg = dict(model.cfg)")

_add("two closures share a cell",
     _model("return x * 2.0 if self.f.__closure__[0] is self.g.__closure__[0] else x * 3.0", "self.f, self.g = make(1)",
            "def make(n):\n    return (lambda: n), (lambda: n)"),
     "model.f, model.g = app.make(1)[0], app.make(1)[1]")

_add("shared mutable default of two blocks",
     _model("return x * 2.0 if self.a.hist is self.b.hist else x * 3.0", "self.a, self.b = Block(), Block()", """
class Block(nn.Module):
    def __init__(self, hist=[]):
        super().__init__()
        self.hist = hist"""),
     "model.b.hist = []")

_add("parent link to an equal parent",
     _model("return x * 2.0 if self.link.parent is self else x * 3.0", "self.link = Link()\nself.link.parent = self",
            "import copy\nclass Link:\n    parent = None"),
     "model.link.parent = app.copy.copy(model)")

_add("constants in a list share storage with a buffer changed in place",
     _model("self.a.mul_(2.0)\nreturn x * self.views[0]",
            "self.register_buffer('a', torch.ones(4))\nself.views = [self.a[:]]"),
     "model.views = [model.a.detach().clone()]")

_add("array in two places copied",
     _model("return x * 2.0 if self.a is self.d['a'] else x * 3.0", "self.a = np.ones(3)\nself.d = {'a': self.a}", "import numpy as np"),
     "model.d['a'] = model.a.copy()")

_add("global alias of a tuple of configs",
     _model("return x * 2.0 if any(c is self.cfg for c in KNOWN) else x * 3.0", "self.cfg = KNOWN[1]",
            "import copy\nclass Cfg:\n    pass\nKNOWN = (Cfg(), Cfg())"),
     "app.KNOWN = app.copy.deepcopy(app.KNOWN)")

_add("hook is the module's own forward method of another instance",
     _model("return self.act(x)", "self.act, self.gain = Act(2.0), Act(3.0)\nself.act.fn = self.act.run", """
class Act(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by
    def run(self, x):
        return x * self.by
    def forward(self, x):
        return self.fn(x)"""),
     "model.act.fn = model.gain.run")

# ---------------------------------------------------------------- 4. C functions by name

_add("math.floor through map replaced",
     _model("a, b = map(floor, self.s)\nreturn x * float(a) + float(b)", "self.s = [1.5, 2.5]", "import math\nfrom math import floor"), "app.floor = app.math.ceil")

_add("reduce with operator.mul edited to add",
     _model("x * float(reduce(op, self.s))", "self.s = [2, 3, 4]", "from functools import reduce\nfrom ops import op")
     + _f("ops.py", "from operator import mul as op\n"), "", ("import mul", "import add"))

_add("tree_map of an imported torch function",
     _model("a, b = tree_map(act, [x, x + 1])\nreturn a + b", "pass", "from torch.utils._pytree import tree_map\nfrom acts import act")
     + _f("acts.py", "from torch import neg as act\n"), "", ("import neg", "import sin"))

_add("partial of a C function of torch",
     _model("self.act(x)", "self.act = functools.partial(torch.clamp, min=0)", "import functools"),
     "model.act = app.functools.partial(torch.clamp, max=0)")

_add("sorted with itemgetter",
     _model("x * sorted(self.t, key=KEY)[0][2]", "self.t = [(1, 9, 2.0), (5, 3, 3.0)]", "from keys import KEY")
     + _f("keys.py", "import operator\nKEY = operator.itemgetter(0)\n"), "", ("itemgetter(0)", "itemgetter(1)"))

_add("methodcaller",
     _model("ACT(x)", "pass", "from acts import ACT")
     + _f("acts.py", "import operator\nACT = operator.methodcaller('clamp', min=0.0)\n"), "", ("min=0.0", "max=0.0"))

_add("itertools.accumulate with a function",
     _model("x * float(list(itertools.accumulate(self.s, op))[-1])", "self.s = [2, 3, 4]", "import itertools, operator\nop = operator.mul"),
     "app.op = app.operator.add")

_add("starmap",
     _model("x * float(sum(itertools.starmap(op, self.s)))", "self.s = [(2, 3), (3, 2)]", "import itertools, operator\nop = pow"),
     "app.op = app.operator.mul")

_add("np.frompyfunc result",
     _model("x * float(UF(2.5))", "pass", "import math, numpy as np\nUF = np.frompyfunc(math.floor, 1, 1)"),
     "app.UF = app.np.frompyfunc(app.math.ceil, 1, 1)")

_add("np.vectorize of a C function",
     _model("x * float(self.v(2.5))", "self.v = V", "import math, numpy as np\nfrom vec import V")
     + _f("vec.py", "import math, numpy as np\nV = np.vectorize(math.floor, otypes=[float])\n"), "", ("math.floor", "math.ceil"))

_add("filter with str.isdigit",
     _model("x * float(len(list(filter(pred, self.names))))", "self.names = ['1', 'a', 'b']", "pred = str.isdigit"),
     "app.pred = str.isalpha")

_add("tree_map_only with torch.sigmoid",
     _model("tree_map_only(torch.Tensor, ACTS['main'], {'a': x})['a']", "pass",
            "from torch.utils._pytree import tree_map_only\nfrom acts import ACTS")
     + _f("acts.py", "ACTS = {'main': torch.sigmoid}\n"), "", ("torch.sigmoid", "torch.tanh"))

_add("bound __getitem__ of a table",
     _model("a, b = map(GET, 'ab')\nreturn x * a + b", "pass", "TABLE = {'a': 2.0, 'b': 1.0}\nGET = TABLE.__getitem__"),
     "app.TABLE['a'] = 3.0")

_add("bound dict.get with mapped keys, the table is not global",
     _model("a, b = map(self.get, 'ab')\nreturn x * a + b", "self.get = make()", "def make():\n    return {'a': 2.0, 'b': 1.0}.get"),
     "model.get.__self__['a'] = 3.0")

_add("bound str.format as a name builder",
     _model("x * self.t[self.name(1)]", "self.name, self.t = 'a{}'.format, {'a1': 2.0, 'b1': 3.0}"), "model.name = 'b{}'.format")

_add("a method wrapper of a float",
     _model("x * self.scale(1.0)", "self.scale = (2.0).__mul__"), "model.scale = (3.0).__mul__")

_add("slot wrapper of float",
     _model("x * self.op(2.0, 3.0)", "self.op = float.__mul__"), "model.op = float.__add__")

_add("method descriptors of Tensor in a list",
     _model("for f in self.fs:\n    x = f(x)\nreturn x", "self.fs = [torch.Tensor.abs, torch.Tensor.exp]"), "model.fs[1] = torch.Tensor.sin")

_add("np.add.reduce through partial",
     _model("x * float(self.red([2.0, 3.0, 4.0]))", "self.red = functools.partial(np.add.reduce, axis=0)", "import functools, numpy as np"),
     "model.red = app.functools.partial(app.np.multiply.reduce, axis=0)")

_add("bound match of a compiled pattern",
     _model("x * float(len(list(filter(MATCH, self.names))))", "self.names = ['lin1', 'lin2', 'act']", "from pat import MATCH")
     + _f("pat.py", "import re\nMATCH = re.compile('lin').match\n"), "", ("'lin'", "'act'"))

_add("flags of a compiled pattern",
     _model("x * float(len(PAT.findall('lin Lin')))", "pass", "import re\nPAT = re.compile('lin', re.I)"), "app.PAT = app.re.compile('lin')")

_add("property over attrgetter",
     _model("x * self.cfg.gain", "self.cfg = Cfg()", "from cfg import Cfg")
     + _f("cfg.py", "import operator\nclass Cfg:\n    a, b = 2.0, 3.0\n    gain = property(operator.attrgetter('a'))\n"), "", ("attrgetter('a')", "attrgetter('b')"))

_add("heapq.nlargest with a C key",
     _model("x * float(heapq.nlargest(1, self.s, key=key)[0])", "self.s = [-4.0, 3.0]", "import heapq, operator\nkey = abs"),
     "app.key = app.operator.pos")

# ---------------------------------------------------------------- 5. attributes of partials, lru_cache, library objects

_add("attribute on a partial",
     _model("self.p(x) * self.p.gain", "self.p = functools.partial(torch.clamp, min=0)\nself.p.gain = 2.0", "import functools"), "model.p.gain = 3.0")

_add("attribute on a global partial used in a helper",
     _model("helper(x)", "pass", "import functools\nACT = functools.partial(F.leaky_relu, negative_slope=0.1)\nACT.gain = 2.0\ndef helper(x):\n    return ACT(x) * getattr(ACT, 'ga' + 'in')"),
     "app.ACT.gain = 3.0")

_add("keywords of a partial mutated",
     _model("self.p(x)", "self.p = functools.partial(torch.clamp, min=0.0, max=2.0)", "import functools"), "model.p.keywords['max'] = 3.0")

_add("attribute on an lru_cache function",
     _model("x * scale.gain", "pass", "import functools\n@functools.lru_cache\ndef scale():\n    return 1.0\nscale.gain = 2.0"), "app.scale.gain = 3.0")

_add("lru_cache over a hidden function that is edited",
     _model("x * scale()", "pass", "from hidden import scale")
     + _f("hidden.py", """
import functools
def _make():
    def _scale():
        return 2.0
    c = functools.lru_cache(maxsize=None)(_scale)
    del c.__wrapped__
    return c
scale = _make()
"""), "", ("return 2.0", "return 3.0"))

_add("content of an lru_cache that was filled before",
     _model("x * scale(1)", "scale(1)", "import functools\nFACTOR = 2.0\n@functools.lru_cache\ndef scale(n):\n    return FACTOR * n"),
     "app.FACTOR = 3.0; app.scale.cache_clear(); app.scale(1); app.FACTOR = 2.0")

_add("attribute on a torch function",
     _model("F.relu6(x) * F.relu6.gain", "pass", "F.relu6.gain = 2.0"), "torch.nn.functional.relu6.gain = 3.0")

_add("attribute on nn.Linear",
     _model("self.lin(x) * self.lin.gain", "pass", "nn.Linear.gain = 2.0"), "torch.nn.Linear.gain = 3.0")

_add("attribute on torch",
     _model("x * torch.my_gain", "pass", "torch.my_gain = 2.0"), "torch.my_gain = 3.0")

_add("attribute on an operator overload",
     _model("torch.ops.aten.relu.default(x) * torch.ops.aten.relu.default.gain", "pass", "torch.ops.aten.relu.default.gain = 2.0"), "torch.ops.aten.relu.default.gain = 3.0")

_add("attribute on math read by getattr",
     _model("x * getattr(math, self.k)", "self.k = 'silver'", "import math\nmath.silver = 2.0"), "app.math.silver = 3.0")

_add("entry in torch's backends module",
     _model("x * torch.backends.mkldnn.gain", "pass", "torch.backends.mkldnn.gain = 2.0"), "torch.backends.mkldnn.gain = 3.0")

_add("attribute on a logger",
     _model("x * LOG.gain", "pass", "import logging\nLOG = logging.getLogger('app')\nLOG.gain = 2.0"), "app.LOG.gain = 3.0")

_add("attribute on the function of a method",
     _model("x * self.forward.gain", "type(self).forward.gain = 2.0"), "app.Model.forward.gain = 3.0")

_add("singledispatch implementation registered",
     _model("scale(2, x)", "pass", "import functools\n@functools.singledispatch\ndef scale(n, x):\n    return x * 2.0"),
     "app.scale.register(int, lambda n, x: x * 3.0)")

_add("singledispatchmethod implementation edited",
     _model("self.s.run(2, x)", "self.s = S()", "from s import S")
     + _f("s.py", """
import functools
class S:
    @functools.singledispatchmethod
    def run(self, n, x):
        return x
    @run.register
    def _(self, n: int, x):
        return x * 2.0
"""), "", ("x * 2.0", "x * 3.0"))

_add("attribute on an enum member",
     _model("x * self.m.gain", "self.m = Mode.A", "import enum\nclass Mode(enum.Enum):\n    A = 1\nMode.A.gain = 2.0"), "app.Mode.A.gain = 3.0")

_add("staticmethod object with an attribute",
     _model("x * type(self).__dict__['f'].gain", "pass", "def _g(): pass", "f = staticmethod(_g)\nf.gain = 2.0"),
     "app.Model.__dict__['f'].gain = 3.0")

_add("constructor registered at yaml.SafeLoader",
     _model("x * self.load()", "pass", "import yaml\nyaml.SafeLoader.add_constructor('!g', lambda l, n: float(n.value) * 1.0)",
            "def load(self):\n    return yaml.SafeLoader.yaml_constructors['!g'](None, yaml.ScalarNode('!g', '2.0'))"),
     "app.yaml.SafeLoader.add_constructor('!g', lambda l, n: float(n.value) * 1.5)")

_add("attribute on a typing alias and on a library class",
     _model("x * nx.Graph.gain", "pass", "import networkx as nx\nnx.Graph.gain = 2.0"), "app.nx.Graph.gain = 3.0")

_add("forward of nn.Linear patched by a plugin that is edited",
     _model("self.lin(x)", "pass", "import plugin")
     + _f("plugin.py", """
_orig = nn.Linear.forward
def forward(self, x):
    return _orig(self, x) * 2.0
nn.Linear.forward = forward
"""), "", ("* 2.0", "* 3.0"))

# ---------------------------------------------------------------- 6. look-ups by text

_LIB = _f("lib.py", "GAIN = 2.0\nOTHER = 5.0\nclass Cfg:\n    gain = 2.0\n")
_ED = ("GAIN = 2.0", "GAIN = 3.0")

_add("pkgutil.resolve_name with a colon",
     _model("x * pkgutil.resolve_name(self.path)", "self.path = 'lib:Cfg.gain'", "import pkgutil, lib") + _LIB, "app.lib.Cfg.gain = 3.0")

_add("str.format walks attributes of a module",
     _model("x * self.t['{m.NAME}'.format(m=lib)]", "self.t = {'a': 2.0, 'b': 3.0}", "import lib") + _f("lib.py", "NAME = 'a'\n"), "", ("'a'", "'b'"))

_add("format string in a JSON file walks attributes",
     _model("x * self.t[self.fmt.format(m=lib)]", "self.t, self.fmt = {'a-1': 2.0, 'b-1': 3.0}, FMT",
            "import json, pathlib, lib\nFMT = json.loads(pathlib.Path(__file__).with_name('f.json').read_text())['fmt']")
     + _f("lib.py", "class Cfg:\n    name = 'a'\n") + _f("f.json", '{"fmt": "{m.Cfg.name}-1"}'), "app.lib.Cfg.name = 'b'")

_add("attrgetter with a dotted path made of parts",
     _model("x * operator.attrgetter('.'.join(self.parts))(lib)", "self.parts = ['Cfg', 'gain']", "import operator, lib") + _LIB, "app.lib.Cfg.gain = 3.0")

_add("getattr chain split on dots",
     _model("o = lib\nfor p in self.path.split('.'):\n    o = getattr(o, p)\nreturn x * o", "self.path = 'Cfg.gain'", "import lib") + _LIB, "app.lib.Cfg.gain = 3.0")

_add("getattr with a reversed and lowered name",
     _model("x * getattr(lib, self.k[::-1].upper())", "self.k = 'niag'", "import lib") + _LIB, "", _ED)

_add("importlib.import_module in forward with a name from a list",
     _model("x * importlib.import_module(self.names[0]).GAIN", "self.names = ['lib']", "import importlib, lib") + _LIB, "", _ED)

_add("inspect.getattr_static",
     _model("x * inspect.getattr_static(lib.Cfg, self.k)", "self.k = 'ga' + chr(105) + 'n'", "import inspect, lib") + _LIB, "app.lib.Cfg.gain = 3.0")

_add("globals() with a name",
     _model("x * globals()[self.k.upper()]", "self.k = 'gain'", "GAIN = 2.0"), "app.GAIN = 3.0")

_add("vars(module) with a name",
     _model("x * vars(lib)[self.k]", "self.k = 'GAIN'", "import lib") + _LIB, "app.lib.GAIN = 3.0")

_add("module __dict__ get with a default, name added later",
     _model("x * lib.__dict__.get(self.k + '_OVERRIDE', 2.0)", "self.k = 'GAIN'", "import lib") + _LIB, "app.lib.GAIN_OVERRIDE = 3.0")

_add("sys.modules with a name",
     _model("x * sys.modules['lib'].GAIN", "pass", "import sys, lib") + _LIB, "app.lib.GAIN = 3.0")

_add("string.Template over vars of a class",
     _model("x * self.t[string.Template(self.tpl).substitute(vars(lib.Cfg))]", "self.t, self.tpl = {'k2': 2.0, 'k3': 3.0}, 'k$n'", "import string, lib")
     + _f("lib.py", "class Cfg:\n    n = 2\n"), "app.lib.Cfg.n = 3")

_add("string.Formatter().get_field",
     _model("x * string.Formatter().get_field(self.path, (), {'lib': lib})[0]", "self.path = 'lib.Cfg.gain'", "import string, lib") + _LIB, "app.lib.Cfg.gain = 3.0")

_add("logging.config resolves a dotted name",
     _model("x * self.conf.resolve(self.path)", "self.conf, self.path = logging.config.BaseConfigurator({}), 'lib.Cfg.gain'", "import logging.config, lib") + _LIB, "app.lib.Cfg.gain = 3.0")

_add("pydoc.locate",
     _model("x * pydoc.locate(self.path)", "self.path = 'lib.GAIN'", "import pydoc, lib") + _LIB, "app.lib.GAIN = 3.0")

_add("ast.literal_eval of a constant in another module",
     _model("x * ast.literal_eval(lib.TEXT)['gain']", "pass", "import ast, lib") + _f("lib.py", "TEXT = \"{'gain': 2.0}\"\n"), "", ("2.0", "3.0"))

_add("format_map over vars(module)",
     _model("x * self.t[self.fmt.format_map(vars(lib))]", "self.t, self.fmt = {'2': 2.0, '3': 3.0}, '{N}'", "import lib") + _f("lib.py", "N = 2\n"), "app.lib.N = 3")

_add("percent formatting over a class namespace",
     _model("x * self.t[self.fmt % vars(lib.Cfg)]", "self.t, self.fmt = {'k2': 2.0, 'k3': 3.0}, 'k%(n)d'", "import lib")
     + _f("lib.py", "class Cfg:\n    n = 2\n"), "app.lib.Cfg.n = 3")

_add("pickle.loads of a global by name",
     _model("x * pickle.loads(self.blob)", "self.blob = b'clib\\nGAIN\\n.'", "import pickle, lib") + _LIB, "app.lib.GAIN = 3.0")

_add("unpickled instance of a class with an edited __setstate__",
     _model("x * pickle.loads(BLOB).by", "pass", "import pickle, lib\nBLOB = pickle.dumps(lib.Cfg())")
     + _f("lib.py", "class Cfg:\n    def __init__(self):\n        self.n = 1.0\n    def __setstate__(self, s):\n        self.by = s['n'] * 2.0\n"), "", ("* 2.0", "* 3.0"))

_add("configparser interpolation",
     _model("x * CP.getfloat('m', 'gain')", "pass", "from conf import CP")
     + _f("conf.py", "import configparser, pathlib\nCP = configparser.ConfigParser()\nCP.read_string(pathlib.Path(__file__).with_name('c.ini').read_text())\n")
     + _f("c.ini", "[m]\nbase = 2\ngain = %(base)s.0\n"), "", ("base = 2", "base = 3"))

_add("getattr(F, name) with a name from YAML that is edited",
     _model("getattr(F, CFG['act'])(x)", "pass", "import yaml, pathlib\nCFG = yaml.safe_load(pathlib.Path(__file__).with_name('c.yaml').read_text())")
     + _f("c.yaml", "act: silu"), "", ("silu", "gelu"))

_add("yaml.safe_load in forward of an embedded text",
     _model("x * yaml.safe_load(lib.TEXT)['gain']", "pass", "import yaml, lib") + _f("lib.py", "TEXT = 'gain: 2.0'\n"), "", ("2.0", "3.0"))

_add("typing.get_type_hints with a string annotation",
     _model("x * typing.get_type_hints(f)['by'].gain", "pass", "import typing, lib\nfrom lib import Cfg\ndef f(by: 'Cfg'): pass") + _LIB, "app.lib.Cfg.gain = 3.0")

# ---------------------------------------------------------------- 7. sets

_add("set of ints with a collision in another order",
     _model("for k in self.s:\n    x = x * 2.0 if k else torch.relu(x + 1)\nreturn x", "self.s = set()\nfor k in (0, 8): self.s.add(k)"),
     "model.s = set(); model.s.add(8); model.s.add(0)")

_add("set of ints with a bigger table",
     _model("for k in self.s:\n    x = x * 2.0 if k == 32 else torch.relu(x + 1)\nreturn x", "self.s = {32, 1}"),
     "model.s = set(range(100)); model.s.intersection_update({1}); model.s.add(32)")

_add("frozenset of ints built in another order",
     _model("for k in self.s:\n    x = x * 2.0 if k else torch.relu(x + 1)\nreturn x", "self.s = frozenset([0, 8])"), "model.s = frozenset([8, 0])")

_add("set in a default dict of sets of ints",
     _model("for k in self.d['a']:\n    x = x * 2.0 if k else torch.relu(x + 1)\nreturn x",
            "self.d = collections.defaultdict(set)\nself.d['a'].add(0)\nself.d['a'].add(16)", "import collections"),
     "model.d['a'].clear(); model.d['a'].add(16); model.d['a'].add(0)")

_add("min of a set of ints with a key that ties",
     _model("x * float(min(self.s, key=lambda v: 0) + 2)", "self.s = set([0, 8])"), "model.s = set([8, 0])")

_add("sorted of a set with ties",
     _model("x * float(sorted(self.s, key=lambda v: v % 8)[0] + 2)", "self.s = set([0, 8])"), "model.s = set([8, 0])")

_add("set.pop of a fresh copy",
     _model("x * float(set(self.s).copy().pop() + 2)", "self.s = set([0, 8])"), "model.s = set([8, 0])")

_add("next(iter()) of a set of floats",
     _model("x * next(iter(self.s))", "self.s = {2.0, 10.0}"), "model.s = {10.0, 2.0}")

_add("set of strings", _model("for n in self.s:\n    x = getattr(torch, n)(x)\nreturn x", "self.s = {'relu', 'tanh', 'sigmoid', 'exp', 'sin', 'cos'}"),
     "pass", env={"PYTHONHASHSEED": "11"}, environ={"PYTHONHASHSEED": "3"})

_add("frozenset constant in code",
     _model("return x * (2.0 if sorted(n for n in {'relu', 'tanh', 'sin'} if n in self.k)[0] == 'relu' else 3.0)", "self.k = 'relu tanh'"),
     "model.k = 'tanh sin'")

_add("dict.keys() minus another builds a set of strings",
     _model("for n in self.a.keys() - self.b.keys():\n    x = getattr(torch, n)(x)\nreturn x",
            "self.a, self.b = dict.fromkeys(['relu', 'tanh', 'sigmoid', 'exp', 'sin', 'cos']), {'exp': 1}"),
     "pass", env={"PYTHONHASHSEED": "11"})

_add("keys of a dict intersected in C code",
     _model("for n in list(map(operator.and_, [self.a.keys()], [self.b.keys()]))[0]:\n    x = getattr(torch, n)(x)\nreturn x",
            "self.a, self.b = dict.fromkeys(['relu', 'tanh', 'sigmoid', 'exp', 'sin', 'cos']), dict.fromkeys(['relu', 'tanh', 'sigmoid', 'exp', 'sin', 'cos'])",
            "import operator"),
     "pass", env={"PYTHONHASHSEED": "11"})

_add("items view minus items",
     _model("for n, v in OP(self.a.items(), self.b.items()):\n    x = getattr(torch, n)(x)\nreturn x",
            "self.a, self.b = dict.fromkeys(['relu', 'tanh', 'sigmoid', 'exp', 'sin', 'cos']), {'exp': 1}", "import operator\nOP = operator.sub"),
     "pass", env={"PYTHONHASHSEED": "11"})

_add("networkx neighbours of a graph with string nodes and a set in it",
     _model("for n in nx.descendants(self.g, 'x'):\n    x = getattr(torch, n)(x)\nreturn x",
            "self.g = nx.DiGraph()\nfor n in ('relu', 'tanh', 'sigmoid', 'exp', 'sin', 'cos'): self.g.add_edge('x', n)", "import networkx as nx"),
     "pass", env={"PYTHONHASHSEED": "11"})

_add("order from a set of strings kept in a tuple when the model is made",
     _model("for n in self.order:\n    x = getattr(torch, n)(x)\nreturn x", "self.order = tuple({'relu', 'tanh', 'sigmoid', 'exp', 'sin', 'cos'})"),
     "pass", env={"PYTHONHASHSEED": "11"}, environ={"PYTHONHASHSEED": "3"})

_add("set of enum members",
     _model("for m in self.s:\n    x = getattr(torch, m.value)(x)\nreturn x", "self.s = set(Act)",
            "import enum\nclass Act(enum.Enum):\n    A = 'relu'\n    B = 'tanh'\n    C = 'sin'\n    D = 'exp'\n    E = 'cos'"),
     "pass", env={"PYTHONHASHSEED": "11"}, environ={"PYTHONHASHSEED": "3"})

_add("collections.Counter most_common with ties after a set",
     _model("x * float(collections.Counter(self.s).most_common(1)[0][0] + 2)", "self.s = set([0, 8])", "import collections"), "model.s = set([8, 0])")

_add("union of int sets through operator",
     _model("x * float(list(op(self.a, self.b))[0] + 2)", "self.a, self.b = {0}, {8}", "import operator\nop = operator.or_"), "model.a, model.b = {8}, {0}")

_add("itertools.groupby over a set of ints",
     _model("x * float(next(itertools.groupby(self.s))[0] + 2)", "self.s = set([0, 8])", "import itertools"), "model.s = set([8, 0])")

_add("OrderedDict moved to the end",
     _model("for n in self.d:\n    x = getattr(torch, n)(x)\nreturn x", "self.d = collections.OrderedDict.fromkeys(['relu', 'sin'])", "import collections"),
     "model.d.move_to_end('relu')")

_add("subclass of OrderedDict moved to the end in a global",
     _model("for n, f in REG.items():\n    x = f(x)\nreturn x", "pass", "from reg import REG")
     + _f("reg.py", "import collections\nclass Registry(collections.OrderedDict):\n    pass\nREG = Registry(a=torch.relu, b=torch.sin)\n"),
     "app.REG.move_to_end('a')")

_add("dict.keys of a ChainMap",
     _model("for n in self.c:\n    x = getattr(torch, n)(x)\nreturn x", "self.c = collections.ChainMap({'relu': 1}, {'sin': 2})", "import collections"),
     "model.c.maps.reverse()")

# ---------------------------------------------------------------- 8. flags

def _flag(name, read, change, top="", **kw):
    _add("c8 " + name, _model(f"x * (2.0 if {read} else 3.0)", "pass", top), change, **kw)


_add("autocast on the cpu is entered around the compile", _model("self.lin(x)"), "torch.set_autocast_enabled('cpu', True)")
_add("autocast dtype of the cpu inside a model's own autocast",
     _model("with torch.autocast('cpu'):\n    y = self.lin(x)\nreturn y.float()"), "torch.set_autocast_dtype('cpu', torch.float16)")
_flag("autocast of xpu read", "torch.is_autocast_enabled('xpu')", "torch.set_autocast_enabled('xpu', True)")
_add("autocast dtype of privateuseone read", _model("x.to(torch.get_autocast_dtype(self.d)).float()", "self.d = 'privateuseone'"),
     "torch.set_autocast_dtype('privateuseone', torch.float16 if torch.get_autocast_dtype('privateuseone') != torch.float16 else torch.bfloat16)")
_flag("autocast cache", "torch.is_autocast_cache_enabled()", "torch.set_autocast_cache_enabled(False)")
_add("default dtype", _model("x + torch.ones(4).sum()"), "torch.set_default_dtype(torch.float64)")
_flag("mkldnn enabled", "torch.backends.mkldnn.enabled", "torch.backends.mkldnn.set_flags(False)")
_flag("deterministic algorithms warn only", "torch.is_deterministic_algorithms_warn_only_enabled()", "torch.use_deterministic_algorithms(True, warn_only=True)")
_flag("fill uninitialized memory", "torch.utils.deterministic.fill_uninitialized_memory", "torch.utils.deterministic.fill_uninitialized_memory = False")
_flag("math sdp", "torch.backends.cuda.math_sdp_enabled()", "torch.backends.cuda.enable_math_sdp(False)")
_flag("mha fast path", "torch.backends.mha.get_fastpath_enabled()", "torch.backends.mha.set_fastpath_enabled(False)")
_add("mha fast path in an encoder layer", _model("self.enc(x.unsqueeze(0))", "self.enc = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)"),
     "torch.backends.mha.set_fastpath_enabled(False)")
_flag("gradient mode", "torch.is_grad_enabled()", "torch.set_grad_enabled(False)")
_flag("anomaly detection check_nan", "torch.is_anomaly_check_nan_enabled()", "torch.autograd.set_detect_anomaly(True, check_nan=False)")
_flag("matmul precision", "torch.get_float32_matmul_precision() == 'highest'", "torch.set_float32_matmul_precision('medium')")
_flag("fp32 precision of mkldnn matmul", "torch.backends.mkldnn.matmul.fp32_precision in ('none', 'ieee')", "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'")
_flag("number of threads", "torch.get_num_threads() < 3", "torch.set_num_threads(3)")
_flag("opt_einsum strategy", "torch.backends.opt_einsum.strategy == 'auto'", "torch.backends.opt_einsum.strategy = 'greedy'")
_add("opt_einsum disabled changes the path of an einsum",
     _model("torch.einsum('ab,cb,cd->ad', x, x, x)"), "torch.backends.opt_einsum.enabled = False")
_flag("sparse invariants", "torch.sparse.check_sparse_tensor_invariants.is_enabled()", "torch.sparse.check_sparse_tensor_invariants.enable()")
_flag("quantized engine", "torch.backends.quantized.engine == ENGINE", "torch.backends.quantized.engine = next(e for e in torch.backends.quantized.supported_engines if e != app.ENGINE)",
      "ENGINE = torch.backends.quantized.engine")
_flag("warn always", "torch.is_warn_always_enabled()", "torch.set_warn_always(True)")
_add("print options decide a key", _model("x * (2.0 if len(str(np.float64(1) / 3 * np.ones(1))) > self.n else 3.0)", "self.n = 8", "import numpy as np"), "app.np.set_printoptions(precision=2)")
_add("numpy errstate raises", _model("try:\n    k = float(np.log(self.z))\nexcept FloatingPointError:\n    return x * 3.0\nreturn x * 2.0", "self.z = np.float64(0)", "import numpy as np"), "app.np.seterr(divide='raise')")
_add("decimal context precision", _model("x * float(decimal.Decimal(self.a) / 3)", "self.a = 10", "import decimal"), "app.decimal.getcontext().prec = 3")
_add("decimal rounding", _model("x * float(decimal.Decimal('2.5').to_integral_value())", "pass", "import decimal"), "app.decimal.getcontext().rounding = app.decimal.ROUND_HALF_UP")
_add("warnings filter turns a warning into an error", _model("try:\n    warnings.warn('odd size', UserWarning)\nexcept UserWarning:\n    return x * 3.0\nreturn x * 2.0", "pass", "import warnings"), "app.warnings.simplefilter('error', UserWarning)")
_add("recursion limit", _model("def f(n):\n    return n if n == 0 else f(n - 1)\ntry:\n    f(2000)\nexcept RecursionError:\n    return x * 2.0\nreturn x * 3.0", "pass", "import sys"), "app.sys.setrecursionlimit(9000)")
_add("context variable", _model("x * GAIN.get()", "pass", "import contextvars\nGAIN = contextvars.ContextVar('gain', default=2.0)"), "app.GAIN.set(3.0)")
_add("context variable of a library used in forward", _model("x * lib.gain()", "pass", "import lib")
     + _f("lib.py", "import contextvars\n_G = contextvars.ContextVar('gain')\n_G.set(2.0)\ndef gain():\n    return _G.get()\n"), "app.lib._G.set(3.0)")
_add("attribute of threading.local", _model("x * LOCAL.gain", "pass", "import threading\nLOCAL = threading.local()\nLOCAL.gain = 2.0"), "app.LOCAL.gain = 3.0")
_flag("gc enabled", "gc.isenabled()", "app.gc.disable()", "import gc")
_flag("csv field size limit", "csv.field_size_limit() == 131072", "app.csv.field_size_limit(10)", "import csv")
_flag("default socket timeout", "socket.getdefaulttimeout() is None", "app.socket.setdefaulttimeout(1.0)", "import socket")
_flag("swap module params future", "torch.__future__.get_swap_module_params_on_conversion()", "torch.__future__.set_swap_module_params_on_conversion(True)")
_flag("a csv dialect is registered", "'pipes' in csv.list_dialects()", "app.csv.register_dialect('pipes', delimiter='|')", "import csv")
_flag("a codec error handler is replaced", "'a\\xe9'.encode('ascii', 'app-x') == b'aE'", "app.codecs.register_error('app-x', lambda e: ('Z', e.end))",
      "import codecs\ncodecs.register_error('app-x', lambda e: ('E', e.end))")

# ---------------------------------------------------------------- plain edits of files

def _edit(name, forward, init, top, files, old, new, more=""):
    _add("e " + name, _model(forward, init, top, more) + "".join(_f(n, t) for n, t in files.items()), "", (old, new))


_edit("constant inside a decorator factory", "step(x)", "pass", "from deco import scaled\n@scaled(2)\ndef step(x):\n    return x + 1",
      {"deco.py": """
import functools
def scaled(n):
    def deco(f):
        @functools.wraps(f)
        def run(*a, **k):
            return f(*a, **k) * (n + 0.5)
        return run
    return deco
"""}, "n + 0.5", "n + 1.5")
_edit("function behind a decorator that hides it", "step(x)", "pass", "from steps import step",
      {"deco.py": "def bare(f):\n    return lambda *a: f(*a)\n", "steps.py": "from deco import bare\n@bare\ndef step(x):\n    return x * 2.0\n"}, "x * 2.0", "x * 3.0")
_edit("class decorator replaces forward", "self.b(x)", "self.b = Block()", "from blocks import Block",
      {"wrap.py": """
def residual(cls):
    inner = cls.forward
    def forward(self, x):
        return x + 2.0 * inner(self, x)
    cls.forward = forward
    return cls
""", "blocks.py": "from wrap import residual\n@residual\nclass Block(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"}, "2.0 * inner", "3.0 * inner")
_edit("registry filled by import side effect", "REG['swish'](x)", "pass", "from acts import REG",
      {"acts/__init__.py": "REG = {}\nfrom . import impl\n", "acts/impl.py": "from . import REG\nREG['swish'] = lambda x: x * torch.sigmoid(2.0 * x)\n"}, "2.0 * x", "3.0 * x")
_edit("registry where the last registration wins", "self.b(x)", "self.b = REG['act']()", "import acts\nfrom reg import REG",
      {"reg.py": "REG = {}\ndef register(name):\n    def deco(cls):\n        REG[name] = cls\n        return cls\n    return deco\n",
       "acts.py": """
from reg import register
@register("act")
class A(nn.Module):
    def forward(self, x):
        return x * 2.0
@register("other")
class B(nn.Module):
    def forward(self, x):
        return x * 3.0
"""}, '"other"', '"act"')
_edit("star import with __all__", "act(x)", "pass", "from ops import *",
      {"ops/__init__.py": "from .a import *\nfrom .b import *\n", "ops/a.py": "__all__ = ['act']\ndef act(x):\n    return x * 2.0\n",
       "ops/b.py": "__all__ = ['other']\ndef act(x):\n    return x * 3.0\ndef other(x):\n    return x\n"}, "['other']", "['act', 'other']")
_edit("order of star imports", "act(x)", "pass", "from ops import *",
      {"ops/__init__.py": "from .a import *\nfrom .b import *\n", "ops/a.py": "def act(x):\n    return x * 2.0\n", "ops/b.py": "def act(x):\n    return x * 3.0\n"},
      "from .a import *\nfrom .b import *", "from .b import *\nfrom .a import *")
_edit("re-export in a package changes the implementation", "ops.act(x)", "pass", "import ops",
      {"ops/__init__.py": "from .v1 import act\n", "ops/v1.py": "def act(x):\n    return x * 2.0\n", "ops/v2.py": "def act(x):\n    return x * 3.0\n"}, "from .v1", "from .v2")
_edit("module-level __getattr__", "x * lib.GAIN", "pass", "import lib", {"lib.py": "def __getattr__(name):\n    if name == 'GAIN':\n        return 2.0\n    raise AttributeError(name)\n"}, "return 2.0", "return 3.0")
_edit("module-level __getattr__ that imports a submodule", "ops.act(x)", "pass", "import ops",
      {"ops/__init__.py": "import importlib\ndef __getattr__(name):\n    if name != 'act':\n        raise AttributeError(name)\n    return importlib.import_module('.impl', __name__).act\n",
       "ops/impl.py": "def act(x):\n    return x * 2.0\n"}, "x * 2.0", "x * 3.0")
_edit("name that module __getattr__ served becomes a real one", "x * lib.GAIN", "pass", "import lib",
      {"lib.py": "EXTRA = 1\ndef __getattr__(name):\n    if name == 'GAIN':\n        return 2.0\n    raise AttributeError(name)\n"}, "EXTRA = 1", "GAIN = 3.0")
_edit("class factory with a closure", "self.b(x)", "self.b = make(2)()", "from fac import make",
      {"fac.py": "def make(n):\n    class Block(nn.Module):\n        def forward(self, x):\n            return x * (n + 0.5)\n    return Block\n"}, "n + 0.5", "n + 1.5")
_edit("factory chooses among classes by a table", "self.b(x)", "self.b = build('a')", "from fac import build",
      {"fac.py": "import kinds\nTABLE = {'a': 'Relu'}\ndef build(k):\n    return getattr(kinds, TABLE[k])()\n",
       "kinds.py": "class Relu(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\nclass Tanh(nn.Module):\n    def forward(self, x):\n        return torch.tanh(x)\n"}, "'Relu'", "'Tanh'")
_edit("mixin order in the bases", "self.b(x)", "self.b = Block()", "from blocks import Block",
      {"blocks.py": "class A:\n    def act(self, x):\n        return x * 2.0\nclass B:\n    def act(self, x):\n        return x * 3.0\nclass Block(A, B, nn.Module):\n    def forward(self, x):\n        return self.act(x)\n"}, "Block(A, B,", "Block(B, A,")
_edit("mixin calls super() into a sibling", "self.b(x)", "self.b = Block()", "from blocks import Block",
      {"sib.py": "class Sib:\n    def act(self, x):\n        return x * 2.0\n",
       "blocks.py": "from sib import Sib\nclass Mix:\n    def act(self, x):\n        return super().act(x) + 1\nclass Block(Mix, Sib, nn.Module):\n    def forward(self, x):\n        return self.act(x)\n"}, "x * 2.0", "x * 3.0")
_edit("metaclass adds a method", "self.b(x)", "self.b = Block()", "from blocks import Block",
      {"meta.py": "class Meta(type):\n    def __new__(m, n, b, ns):\n        ns.setdefault('act', lambda self, x: x * 2.0)\n        return super().__new__(m, n, b, ns)\n",
       "blocks.py": "from meta import Meta\nclass Block(nn.Module, metaclass=Meta):\n    def forward(self, x):\n        return self.act(x)\n"}, "x * 2.0", "x * 3.0")
_edit("metaclass property read through the class", "x * type(self.b).gain", "self.b = Block()", "from blocks import Block",
      {"blocks.py": "class Meta(type):\n    @property\n    def gain(cls):\n        return 2.0\nclass Block(nn.Module, metaclass=Meta):\n    pass\n"}, "return 2.0", "return 3.0")
_edit("metaclass __getattr__", "x * Cfg.gain", "pass", "from cfg import Cfg",
      {"cfg.py": "class Meta(type):\n    def __getattr__(cls, name):\n        return cls._v[name]\nclass Cfg(metaclass=Meta):\n    _v = {'gain': 2.0}\n"}, "2.0", "3.0")
_edit("metaclass __call__ changes an argument", "Cfg(1.0).scale(x)", "pass", "from cfg import Cfg",
      {"cfg.py": "class Meta(type):\n    def __call__(cls, by):\n        return super().__call__(by * 2.0)\nclass Cfg(metaclass=Meta):\n    def __init__(self, by):\n        self.by = by\n    def scale(self, x):\n        return x * self.by\n"}, "by * 2.0", "by * 3.0")
_edit("metaclass __prepare__ gives a default", "x * Cfg.gain", "pass", "from cfg import Cfg",
      {"cfg.py": "class Meta(type):\n    @classmethod\n    def __prepare__(m, name, bases):\n        return {'gain': 2.0}\nclass Cfg(metaclass=Meta):\n    pass\n"}, "2.0", "3.0")
_edit("non-data descriptor", "x * self.gain", "pass", "from desc import Gain",
      {"desc.py": "class Gain:\n    def __get__(self, obj, owner=None):\n        return 2.0\n"}, "return 2.0", "return 3.0", "gain = Gain()")
_edit("descriptor with slots and a C-level member", "x * self.cfg.gain", "self.cfg = Cfg()", "from desc import Cfg",
      {"desc.py": "class Cfg:\n    __slots__ = ('_g',)\n    def __init__(self):\n        object.__setattr__(self, '_g', 1.0)\n    @property\n    def gain(self):\n        return self._g + 1.0\n"}, "self._g + 1.0", "self._g + 2.0")
_edit("functools.cached_property computed in forward", "x * self.gain", "pass", "import functools\nfrom calc import compute",
      {"calc.py": "def compute(m):\n    return m.lin.in_features * 0.5\n"}, "* 0.5", "* 0.75", "@functools.cached_property\ndef gain(self):\n    return compute(self)")
_edit("partialmethod", "self.b.half(x)", "self.b = Block()", "from blocks import Block",
      {"blocks.py": "import functools\nclass Block:\n    def scale(self, x, by):\n        return x * by\n    half = functools.partialmethod(scale, by=0.5)\n"}, "by=0.5", "by=0.25")
_edit("default argument computed at import", "scale(x)", "pass", "from ops import scale", {"ops.py": "BASE = 1.0\ndef scale(x, by=BASE + 1.0):\n    return x * by\n"}, "BASE + 1.0", "BASE + 2.0")
_edit("late binding of loop lambdas fixed", "for f in FS:\n    x = f(x)\nreturn x", "pass", "from ops import FS", {"ops.py": "FS = [lambda x: x * k for k in (2.0, 3.0)]\n"}, "lambda x: x", "lambda x, k=k: x")
_edit("conditional import with a fallback", "act(x)", "pass", "from ops import act",
      {"ops.py": "try:\n    from fast import act\nexcept ImportError:\n    from slow import act\n", "slow.py": "def act(x):\n    return x * 2.0\n", "fast_.py": "def act(x):\n    return x * 3.0\n"}, "from fast import", "from fast_ import")
_edit("context manager of the user's own", "with scaled() as k:\n    return x * k", "pass", "from ctx import scaled",
      {"ctx.py": "import contextlib\n@contextlib.contextmanager\ndef scaled():\n    yield 2.0\n"}, "yield 2.0", "yield 3.0")
_edit("generator helper", "for k in steps():\n    x = x * k\nreturn x", "pass", "from gen import steps", {"gen.py": "def steps():\n    yield 2.0\n    yield from (1.0, 5.0)\n"}, "5.0", "6.0")
_edit("forward pre-hook from another file", "self.lin(x)", "self.lin.register_forward_pre_hook(hook)", "from hooks import hook", {"hooks.py": "def hook(m, args):\n    return (args[0] * 2.0,)\n"}, "* 2.0", "* 3.0")
_edit("module import patches a class of a library file", "self.b(x)", "self.b = Block()", "import patches\nfrom blocks import Block",
      {"blocks.py": "class Block(nn.Module):\n    def forward(self, x):\n        return self.act(x)\n    def act(self, x):\n        return x\n",
       "patches.py": "import blocks\ndef act(self, x):\n    return x * 2.0\nblocks.Block.act = act\n"}, "x * 2.0", "x * 3.0")
_edit("shadowing of a builtin in a helper module", "x * float(lib.total([2, 3]))", "pass", "import lib", {"lib.py": "PLACE = 1\ndef total(v):\n    return sum(v)\n"}, "PLACE = 1", "sum = max")
_edit("new subclass hook found by __subclasses__", "for c in Act.__subclasses__():\n    x = c.run(x)\nreturn x", "pass", "from acts import Act",
      {"acts.py": "class Act:\n    pass\nclass A(Act):\n    run = staticmethod(torch.relu)\nclass B:\n    run = staticmethod(torch.tanh)\n"}, "class B:", "class B(Act):")
_edit("operator overload of a helper class", "(self.s @ x)", "self.s = Scale()", "from scale import Scale", {"scale.py": "class Scale:\n    def __matmul__(self, x):\n        return x * 2.0\n"}, "x * 2.0", "x * 3.0")
_edit("reflected operator", "(x * self.s)", "self.s = Scale()", "from scale import Scale",
      {"scale.py": "class Scale:\n    __torch_function__ = classmethod(lambda c, f, t, a=(), k=None: a[0] + 2.0)\n    def __rmul__(self, x):\n        return x * 2.0\n"}, "a[0] + 2.0", "a[0] + 3.0")
_edit("ModuleList subclass with its own iteration", "for m in self.ms:\n    x = m(x)\nreturn x", "self.ms = Layers([nn.ReLU(), nn.Tanh()])", "from layers import Layers",
      {"layers.py": "class Layers(nn.ModuleList):\n    def __iter__(self):\n        yield self[0]\n"}, "yield self[0]", "yield self[1]")
_edit("tensor constant built from a file's list", "x * T", "pass", "from consts import T", {"consts.py": "T = torch.tensor([1.0, 2.0, 3.0, 4.0])\n"}, "3.0, 4.0", "3.0, 5.0")
_edit("docstring parsed for a factor", "x * float(len(scale.__doc__.split()))", "pass", "from ops import scale", {"ops.py": "def scale():\n    'two words'\n"}, "two words", "now three words")
_edit("exception class decides a branch", "try:\n    check(2)\nexcept Small:\n    return x * 2.0\nexcept ValueError:\n    return x * 3.0", "pass", "from errs import check, Small",
      {"errs.py": "class Small(ValueError):\n    pass\ndef check(n):\n    raise Small(n)\n"}, "raise Small", "raise ValueError")
_edit("nested package with relative imports two levels up", "act(x)", "pass", "from pkg.sub.deep import act",
      {"pkg/__init__.py": "", "pkg/consts.py": "GAIN = 2.0\n", "pkg/sub/__init__.py": "", "pkg/sub/deep.py": "from .. import consts as c\ndef act(x):\n    return x * c.GAIN\n"}, "GAIN = 2.0", "GAIN = 3.0")
_edit("attrs class with a converter", "x * Cfg('2').by", "pass", "from cfg import Cfg", {"cfg.py": "import attr\n@attr.define\nclass Cfg:\n    by: float = attr.field(converter=lambda v: float(v) * 1.0)\n"}, "* 1.0", "* 1.5")
_edit("pydantic validator on a model that forward creates", "x * Cfg(by=2.0).by", "pass", "from cfg import Cfg",
      {"cfg.py": "import pydantic\nclass Cfg(pydantic.BaseModel):\n    by: float\n    @pydantic.field_validator('by')\n    @classmethod\n    def check(cls, v):\n        return v * 1.0\n"}, "v * 1.0", "v * 1.5")
_edit("sympy expression in another file", "x * float(EXPR.subs(n, 2))", "pass", "from ex import EXPR, n", {"ex.py": "import sympy\nn = sympy.Symbol('n')\nEXPR = n + 1\n"}, "n + 1", "n + 2")

# ================================================================ second batch
_N = "['relu', 'tanh', 'sigmoid', 'exp', 'sin', 'cos']"
_APPLY = "\n    x = getattr(torch, n)(x)\nreturn x"
_SEED = {"env": {"PYTHONHASHSEED": "11"}}

# ---- 1
_add("a user's file says __name__ = torch.nn.functional",
     _model("act(x)", "pass", "from lib import act")
     + _f("lib.py", "__name__ = 'torch.nn.functional'\ndef act(x):\n    return x * 2.0\n"), "", ("x * 2.0", "x * 3.0"))
_add("a user's class in a file that says __name__ = torch.nn.modules.activation",
     _model("self.a(x)", "self.a = GELU()", "from lib import GELU")
     + _f("lib.py", "__name__ = 'torch.nn.modules.activation'\nclass GELU(nn.Module):\n    def forward(self, x):\n        return x * 2.0\n"), "", ("x * 2.0", "x * 3.0"))
_add("a user's package whose name begins with torch",
     _model("act(x)", "pass", "from torch_ext.ops import act")
     + _f("torch_ext/__init__.py", "") + _f("torch_ext/ops.py", "GAIN = 2.0\ndef act(x):\n    return x * GAIN\n"), "", ("GAIN = 2.0", "GAIN = 3.0"))
_add("a dataclass made in a file called numpy_utils with a field of its base",
     _model("x * Cfg().by", "pass", "from numpy_utils import Cfg")
     + _f("numpy_utils.py", "import dataclasses\nBase = dataclasses.make_dataclass('Base', [('by', float, 2.0)], namespace={'__module__': 'numpy'})\nclass Cfg(Base):\n    pass\n"), "", ("2.0)], namespace", "3.0)], namespace"))
_add("torch.compile wraps a user function that is edited",
     _model("act(x)", "pass", "from lib import act")
     + _f("lib.py", "def _act(x):\n    return x * 2.0\nact = torch.compiler.disable(_act)\n"), "", ("x * 2.0", "x * 3.0"))
_add("torch.no_grad() decorates a user function that is edited",
     _model("act(x)", "pass", "from lib import act")
     + _f("lib.py", "@torch.no_grad()\ndef act(x):\n    return x * 2.0\n"), "", ("x * 2.0", "x * 3.0"))
_add("torch.utils.checkpoint of a user function that is edited",
     _model("checkpoint(act, x, use_reentrant=False)", "pass", "from torch.utils.checkpoint import checkpoint\nfrom lib import act")
     + _f("lib.py", "def act(x):\n    return x * 2.0\n"), "", ("x * 2.0", "x * 3.0"))
_add("torch.amp.custom_fwd wraps a function",
     _model("S.apply(x)", "pass", "from lib import S")
     + _f("lib.py", """
class S(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type='cpu')
    def forward(ctx, x):
        return x * 2.0
    @staticmethod
    def backward(ctx, g):
        return g
"""), "", ("x * 2.0", "x * 3.0"))
_add("assume_constant_result wraps a function",
     _model("x * gain()", "pass", "from lib import gain")
     + _f("lib.py", "@torch.compiler.assume_constant_result\ndef gain():\n    return 2.0\n"), "", ("2.0", "3.0"))
_add("a GraphModule of a function that is edited",
     _model("self.g(x)", "self.g = torch.fx.symbolic_trace(act)", "import torch.fx\nfrom lib import act")
     + _f("lib.py", "def act(x):\n    return torch.relu(x) * 2.0\n"), "", ("* 2.0", "* 3.0"))
_add("a GraphModule whose graph is rewritten and recompiled",
     _model("self.g(x)", "self.g = torch.fx.symbolic_trace(act)", "import torch.fx\ndef act(x):\n    return torch.relu(x)"),
     "for n in model.g.graph.nodes:\n    if n.op == 'call_function':\n        n.target = torch.tanh\nmodel.g.recompile()")
_add("a function with wrap_torch_function",
     _model("act(x)", "pass", "from lib import act")
     + _f("lib.py", "from torch.overrides import wrap_torch_function\n@wrap_torch_function(lambda x: (x,))\ndef act(x):\n    return x * 2.0\n"), "", ("x * 2.0", "x * 3.0"))
_add("functional enum.Flag, boundary and members from a dict",
     _model("x * float((Mode.A | Mode.B).value)", "pass", "from lib import Mode")
     + _f("lib.py", "import enum\nMode = enum.IntFlag('Mode', {'A': 1, 'B': 2})\n"), "", ("'B': 2", "'B': 4"))
_add("TypedDict functional class read by its total keys",
     _model("x * float(len(Cfg.__required_keys__))", "pass", "from lib import Cfg")
     + _f("lib.py", "import typing\nCfg = typing.TypedDict('Cfg', {'a': int, 'b': int})\n"), "", ("'b': int", "'b': int, 'c': int"))
_add("attrs class generated with a hash and a cached closure",
     _model("x * self.c.by", "self.c = Cfg(1)", "from lib import Cfg")
     + _f("lib.py", "import attrs\nGAIN = 2.0\n@attrs.define\nclass Cfg:\n    n: int\n    by: float = attrs.field(init=False)\n    def __attrs_post_init__(self):\n        self.by = self.n * GAIN\n    @property\n    def unused(self):\n        return 0\n"), "", ("GAIN = 2.0", "GAIN = 3.0"))
_add("an Enum made from a base with a custom __new__",
     _model("x * Mode.A.gain", "pass", "from lib import Mode")
     + _f("lib.py", """
import enum
class Base(enum.Enum):
    def __new__(cls, v):
        o = object.__new__(cls)
        o._value_ = v
        o.gain = v * 2.0
        return o
Mode = Base("Mode", [("A", 1)])
"""), "", ("v * 2.0", "v * 3.0"))

# ---- 2
_add("default eq of a config class",
     _model("x * 2.0 if self.a.cfg == self.b.cfg else x * 3.0", "self.a, self.b = nn.Identity(), nn.Identity()\nself.a.cfg = self.b.cfg = Cfg()", "import copy\nclass Cfg:\n    by = 1"),
     "model.b.cfg = app.copy.copy(model.a.cfg)")
_add("c2b __eq__ generated by dataclass(eq=...)",
     _model("x * (2.0 if Cfg(1) == Cfg(1) else 3.0)", "pass", "from lib import Cfg")
     + _f("lib.py", "import dataclasses\n@dataclasses.dataclass(eq=True)\nclass Cfg:\n    n: int\n"), "", ("eq=True", "eq=False"))
_add("c2b __radd__ used by sum()",
     _model("x * sum([self.k, self.k])", "self.k = K()", "from lib import K")
     + _f("lib.py", "class K:\n    def __radd__(self, o):\n        return o + 1.0\n"), "", ("o + 1.0", "o + 1.5"))
_add("c2b __lt__ used by sorted and min",
     _model("x * min(self.ks).by", "self.ks = [K(2.0), K(3.0)]", "from lib import K")
     + _f("lib.py", "class K:\n    def __init__(self, by):\n        self.by = by\n    def __lt__(self, o):\n        return self.by < o.by\n"), "", ("self.by < o.by", "self.by > o.by"))
_add("c2b __contains__ of a rule set",
     _model("x * (2.0 if 'relu' in self.r else 3.0)", "self.r = R()", "from lib import R")
     + _f("lib.py", "class R:\n    def __contains__(self, n):\n        return n.startswith('re')\n"), "", ("'re'", "'ta'"))
_add("c2b __getitem__ protocol iterated by zip",
     _model("for a, f in zip('ab', self.r):\n    x = f(x)\nreturn x", "self.r = R()", "from lib import R")
     + _f("lib.py", "class R:\n    def __getitem__(self, i):\n        return (torch.relu, torch.sin)[i]\n"), "", ("torch.sin", "torch.tanh"))
_add("c2b __iter__ unpacked with a star",
     _model("a, b = [*self.r]\nreturn x * a + b", "self.r = R()", "from lib import R")
     + _f("lib.py", "class R:\n    def __iter__(self):\n        return iter((2.0, 1.0))\n"), "", ("(2.0, 1.0)", "(3.0, 1.0)"))
_add("keys() and __getitem__ used for ** unpacking",
     _model("F.leaky_relu(x - 3, **self.r)", "self.r = R()", "from lib import R")
     + _f("lib.py", "class R:\n    def keys(self):\n        return ['negative_slope']\n    def __getitem__(self, k):\n        return 0.2\n"), "", ("0.2", "0.3"))
_add("c2b __enter__ of a config guard",
     _model("with self.r as k:\n    return x * k", "self.r = R()", "from lib import R")
     + _f("lib.py", "class R:\n    def __enter__(self):\n        return 2.0\n    def __exit__(self, *a):\n        return False\n"), "", ("2.0", "3.0"))
_add("c2b __exit__ swallows an error",
     _model("k = 2.0\ntry:\n    with self.r:\n        raise ValueError\nexcept ValueError:\n    k = 3.0\nreturn x * k", "self.r = R()", "from lib import R")
     + _f("lib.py", "class R:\n    def __enter__(self):\n        return self\n    def __exit__(self, *a):\n        return True\n"), "", ("return True", "return False"))
_add("c2b __round__ of a value class", _model("x * round(self.k, 1)", "self.k = K()", "class K:\n    def __round__(self, n=None):\n        return 2.0"), "app.K.__round__ = lambda self, n=None: 3.0")
_add("c2b __hash__ of a key changes which entry is found",
     _model("x * self.t.get(Key('a'), 3.0)", "self.t = {Key('a'): 2.0}", "class Key:\n    def __init__(self, n):\n        self.n = n\n    def __hash__(self):\n        return len(self.n)\n    def __eq__(self, o):\n        return self.n == o.n"),
     "app.Key.__hash__ = lambda self: 77")
_add("c2b __dir__ lists the active options",
     _model("for n in dir(self.k):\n    x = getattr(torch, n)(x)\nreturn x", "self.k = K()", "class K:\n    def __dir__(self):\n        return ['relu']"), "app.K.__dir__ = lambda self: ['sin']")
_add("c2b __all__ of a module iterated in forward",
     _model("for n in lib.__all__:\n    x = getattr(lib, n)(x)\nreturn x", "pass", "import lib")
     + _f("lib.py", "__all__ = ['a']\ndef a(x):\n    return x * 2.0\ndef b(x):\n    return x + 1.0\n"), "", ("['a']", "['a', 'b']"))
_add("c2b __version__ of a module", _model("x * (2.0 if lib.__version__ < '2' else 3.0)", "pass", "import lib") + _f("lib.py", "__version__ = '1.0'\n"), "", ("'1.0'", "'2.0'"))
_add("c2b __wrapped__ followed by inspect.unwrap",
     _model("inspect.unwrap(self.f)(x)", "self.f = g", "import inspect, functools\ndef f(x):\n    return x * 2.0\n@functools.wraps(f)\ndef g(x):\n    return x\ndef h(x):\n    return x * 3.0"),
     "app.g.__wrapped__ = app.h")
_add("c2b __getattribute__ of a config class",
     _model("x * self.k.by", "self.k = K()", "from lib import K")
     + _f("lib.py", "class K:\n    by = 1.0\n    def __getattribute__(self, n):\n        v = object.__getattribute__(self, n)\n        return v * 2.0 if n == 'by' else v\n"), "", ("v * 2.0", "v * 3.0"))

# ---- 3
_add("NaN in a list found by identity", _model("x * (2.0 if self.pad in [UNSET] else 3.0)", "self.pad = UNSET", "import math\nUNSET = math.nan"), "model.pad = float('nan')")
_add("lists with NaN compared", _model("x * (2.0 if self.clip == DEFAULTS else 3.0)", "self.clip = list(DEFAULTS)", "import math\nDEFAULTS = [0.0, math.nan]"), "model.clip = [0.0, float('nan')]")
_add("NaN as a dictionary key", _model("x * self.t.get(UNSET, 3.0)", "self.t = {UNSET: 2.0}", "import math\nUNSET = math.nan"), "model.t = {float('nan'): 2.0}")
_add("index of a NaN in a tuple", _model("x * float(self.vals.index(self.pad) + 2)", "self.pad, other = float('nan'), float('nan')\nself.vals = (self.pad, other)\nself.pads = [self.pad, other]"), "model.pad = model.pads[1]")
_add("count of NaNs that are the global", _model("x * float(self.vals.count(math.nan) + 2)", "self.vals = [math.nan, 1.0]", "import math"), "model.vals[0] = float('nan')")
_add("NaN in a dataclass compared with its default", _model("x * (2.0 if self.c == Cfg() else 3.0)", "self.c = Cfg()", "import dataclasses, math\n@dataclasses.dataclass\nclass Cfg:\n    lo: float = math.nan"), "model.c.lo = float('nan')")
_add("NaN numpy scalar found by identity", _model("x * (2.0 if self.pad in (np.nan,) else 3.0)", "self.pad = np.nan", "import numpy as np"), "model.pad = app.np.float64('nan')")
_add("Decimal NaN found by identity", _model("x * (2.0 if self.pad in (UNSET,) else 3.0)", "self.pad = UNSET", "import decimal\nUNSET = decimal.Decimal('NaN')"), "model.pad = app.decimal.Decimal('NaN')")
_add("complex NaN in a list", _model("x * (2.0 if self.pad in [UNSET] else 3.0)", "self.pad = UNSET", "UNSET = complex('nan')"), "model.pad = complex('nan')")
_add("NaN removed from a list copy", _model("v = list(self.v)\ntry:\n    v.remove(UNSET)\nexcept ValueError:\n    return x * 3.0\nreturn x * 2.0", "self.v = [1.0, UNSET]", "UNSET = float('nan')"), "model.v = [1.0, float('nan')]")
_add("operator.is_ of strings through map", _model("x * (2.0 if all(map(operator.is_, [self.mode], [MODE])) else 3.0)", "self.mode = MODE", "import operator\nMODE = 'near est'"), "model.mode = ''.join(['near', ' est'])")
_add("operator.is_ of a global by another name", _model("x * (2.0 if same(self.mode, MODE) else 3.0)", "self.mode = MODE", "from operator import is_ as same\nMODE = 'near est'"), "model.mode = ''.join(['near', ' est'])")
_add("operator.is_ in a partial", _model("x * (2.0 if self.p(MODE) else 3.0)", "self.p = functools.partial(operator.is_, MODE)", "import operator, functools\nMODE = 2.5"), "model.p = app.functools.partial(app.operator.is_, float('2.5'))")
_add("index in a list of plain objects", _model("x * float(KNOWN.index(self.c) + 2)", "self.c = KNOWN[0]", "class C:\n    pass\nKNOWN = [C(), C()]"), "model.c = app.KNOWN[1]")
_add("arrays in a list found by identity", _model("try:\n    k = float(self.v.index(self.a) + 2)\nexcept ValueError:\n    k = 5.0\nreturn x * k", "self.a = np.ones(3)\nself.v = [self.a, 1]", "import numpy as np"), "model.a = model.a.copy()")
_add("deepcopy keeps sharing: one object or two", _model("a, b = copy.deepcopy((self.a, self.b))\na.n += 1\nreturn x * b.n", "self.a = self.b = C()", "import copy\nclass C:\n    def __init__(self):\n        self.n = 1.0"), "model.b = app.C()")
_add("shared list in two configs, forward copies with deepcopy and appends", _model("c = copy.deepcopy(self.c)\nc['a'].append(1)\nreturn x * float(len(c['b']) + 2)", "l = []\nself.c = {'a': l, 'b': l}", "import copy"), "model.c['b'] = []")
_add("rows made by multiplication of a list", _model("m = copy.deepcopy(self.m)\nm[0][0] = 5.0\nreturn x * m[1][0]", "self.m = [[1.0]] * 2", "import copy"), "model.m = [[1.0] for _ in range(2)]")
_add("tensor in a list is the buffer", _model("x * (2.0 if any(map(operator.is_, self.l, [self.b])) else 3.0)", "self.register_buffer('b', torch.ones(4))\nself.l = [self.b]", "import operator"), "model.l = [model.b.clone()]")
_add("parameter in two ParameterLists untied", _model("x * float(len(list(self.parameters())))", "p = nn.Parameter(torch.ones(4))\nself.a, self.c = nn.ParameterList([p]), nn.ParameterList([p])"), "model.c[0] = torch.nn.Parameter(torch.ones(4))")

# ---- 4
_add("getattr in a partial mapped over names", _model("a, b = map(functools.partial(getattr, lib), self.names)\nreturn x * a + b", "self.names = ['GAIN', 'OTHER']", "import functools, lib") + _LIB, "app.lib.GAIN = 3.0")
_add("getattr of a global alias with composed names", _model("x * get(lib, self.k.upper())", "self.k = 'gain'", "import lib\nget = getattr") + _LIB, "app.lib.GAIN = 3.0")
_add("c4b __getattribute__ of a module", _model("x * lib.__getattribute__(self.k.upper())", "self.k = 'gain'", "import lib") + _LIB, "app.lib.GAIN = 3.0")
_add("ModuleType.__getattribute__ through map", _model("x * list(map(type(lib).__getattribute__, [lib], [self.k.upper()]))[0]", "self.k = 'gain'", "import lib") + _LIB, "app.lib.GAIN = 3.0")
_add("type.__getattribute__ of a class", _model("x * type.__getattribute__(lib.Cfg, self.k.lower())", "self.k = 'GAIN'", "import lib") + _LIB, "app.lib.Cfg.gain = 3.0")
_add("vars through map", _model("x * list(map(vars, [lib]))[0][self.k.upper()]", "self.k = 'gain'", "import lib") + _LIB, "app.lib.GAIN = 3.0")
_add("operator.getitem reduced along a path", _model("x * functools.reduce(operator.getitem, self.path, CFG)", "self.path = ['a', 'b']", "import functools, operator\nCFG = {'a': {'b': 2.0}}"), "app.CFG['a']['b'] = 3.0")
_add("getattr reduced along a dotted path", _model("x * functools.reduce(getattr, self.path.split('.'), lib)", "self.path = 'Cfg.gain'", "import functools, lib") + _LIB, "app.lib.Cfg.gain = 3.0")
_add("operator.call in a map", _model("a, b = map(operator.call, FS, [x, x])\nreturn a + b", "pass", "import operator\nFS = [torch.relu, torch.sin]"), "app.FS[1] = torch.tanh")
_add("reduce over a chain of C functions", _model("functools.reduce(lambda v, f: f(v), CHAIN, x)", "pass", "import functools\nCHAIN = (torch.relu, torch.sin)"), "app.CHAIN = (torch.relu, torch.tanh)")
_add("sorted with str.lower as key", _model("x * {'b': 2.0, 'A': 3.0}[sorted(self.n, key=KEY)[0]]", "self.n = ['b', 'A']", "from lib import KEY") + _f("lib.py", "KEY = str.swapcase\n"), "", ("swapcase", "lower"))
_add("math function imported under another name in a helper called by map", _model("x * float(sum(map(h, [2.5, 3.5])))", "pass", "from lib import h") + _f("lib.py", "from math import floor as rnd\ndef h(v):\n    return rnd(v)\n"), "", ("floor as", "ceil as"))
_add("np function stored in a class attribute", _model("x * float(self.red([2.0, 3.0]))", "pass", "import numpy as np", "red = np.add.reduce"), "app.Model.red = app.np.multiply.reduce; app.Model.red.__self__")
_add("bound method of a bytes constant", _model("x * float(self.f(b'a') + 2)", "self.f = b'xa'.find"), "model.f = b'a'.find")
_add("bound list.index", _model("x * float(self.f('a') + 2)", "self.f = ['a', 'b'].index"), "model.f.__self__.insert(0, 'z')")
_add("bound method of a deque", _model("x * float(self.f('a') + 2)", "self.f = collections.deque(['a', 'b']).index", "import collections"), "model.f.__self__.appendleft('z')")
_add("bound method of an OrderedDict's values order", _model("x * list(self.f())[0]", "self.f = collections.OrderedDict(a=2.0, b=3.0).values", "import collections"), "model.f.__self__.move_to_end('a')")
_add("bound tensor method in an attribute", _model("self.f(x)", "self.f = torch.full((4,), 2.0).mul"), "model.f.__self__.fill_(3.0)")
_add("bound method of a Decimal context", _model("x * float(self.f(decimal.Decimal(10), 3))", "self.f = decimal.Context(prec=3).divide", "import decimal"), "model.f = app.decimal.Context(prec=5).divide")
_add("struct.Struct unpack", _model("x * float(self.s.unpack(b'\\x02\\x00')[0])", "self.s = struct.Struct('<h')", "import struct"), "model.s = app.struct.Struct('>h')")
_add("cmp_to_key with a C function", _model("x * sorted(self.v, key=functools.cmp_to_key(OP))[0]", "self.v = [2.0, 3.0]", "import functools, operator\nOP = operator.sub"), "app.OP = lambda a, b: b - a")

# ---- 5
_add("attribute on a global tensor", _model("x * T.gain", "pass", "T = torch.ones(2)\nT.gain = 2.0"), "app.T.gain = 3.0")
_add("attribute on nn.Parameter by its name", _model("x * nn.Parameter.gain", "pass", "nn.Parameter.gain = 2.0"), "torch.nn.Parameter.gain = 3.0")
_add("attribute on torch.Tensor read from the input", _model("x * x.gain", "pass", "torch.Tensor.gain = 2.0"), "torch.Tensor.gain = 3.0")
_add("method added to torch.Tensor is edited", _model("x.scale2()", "pass", "import lib") + _f("lib.py", "def scale2(self):\n    return self * 2.0\ntorch.Tensor.scale2 = scale2\n"), "", ("self * 2.0", "self * 3.0"))
_add("property added to torch.Tensor is edited", _model("x * x.gain2", "pass", "import lib") + _f("lib.py", "torch.Tensor.gain2 = property(lambda self: 2.0)\n"), "", ("2.0", "3.0"))
_add("attribute on torch.nn.Module, found in a child", _model("x * self.lin.gain", "pass", "nn.Module.gain = 2.0"), "torch.nn.Module.gain = 3.0")
_add("nn.Sequential.forward replaced", _model("self.s(x)", "self.s = nn.Sequential(nn.ReLU(), nn.Tanh())", "import lib") + _f("lib.py", "def fw(self, x):\n    for m in self:\n        x = m(x) * 2.0\n    return x\nnn.Sequential.forward = fw\n"), "", ("* 2.0", "* 3.0"))
_add("ModuleList.__iter__ replaced in memory", _model("for m in self.s:\n    x = m(x)\nreturn x", "self.s = nn.ModuleList([nn.ReLU(), nn.Tanh()])"), "torch.nn.ModuleList.__iter__ = lambda self: iter([self[0]])")
_add("pytree registration of a user class", _model("a, b = pytree.tree_leaves(self.box)\nreturn x * a + b", "self.box = Box(2.0, 3.0)", """
import torch.utils._pytree as pytree
class Box:
    def __init__(self, a, b):
        self.a, self.b = a, b
PICK = ['a', 'b']
pytree.register_pytree_node(Box, lambda b: ([getattr(b, n) for n in PICK], None), lambda c, _: Box(*c))"""), "app.PICK.reverse()")
_add("a mapping of torch extended: F by setattr of a callable object", _model("F.my_act(x)", "pass", "class Act:\n    by = 2.0\n    def __call__(self, x):\n        return x * self.by\nF.my_act = Act()"), "torch.nn.functional.my_act.by = 3.0")
_add("attribute on np module read via getattr with a made name", _model("x * getattr(np, 'app_' + self.k)", "self.k = 'gain'", "import numpy as np\nnp.app_gain = 2.0"), "app.np.app_gain = 3.0")
_add("attribute on collections, a stdlib package", _model("x * collections.app_gain", "pass", "import collections\ncollections.app_gain = 2.0"), "app.collections.app_gain = 3.0")
_add("attribute on a stdlib class", _model("x * fractions.Fraction.app_gain", "pass", "import fractions\nfractions.Fraction.app_gain = 2.0"), "app.fractions.Fraction.app_gain = 3.0")
_add("attribute on a stdlib function", _model("x * textwrap.dedent.app_gain", "pass", "import textwrap\ntextwrap.dedent.app_gain = 2.0"), "app.textwrap.dedent.app_gain = 3.0")
_add("attribute on builtins by name", _model("x * app_gain", "pass", "import builtins\nbuiltins.app_gain = 2.0"), "app.builtins.app_gain = 3.0")
_add("cached parametrization from before the compile",
     _model("self.lin(x)", "parametrize.register_parametrization(self.lin, 'weight', Dbl())", "from torch.nn.utils import parametrize\nclass Dbl(nn.Module):\n    def forward(self, w):\n        return w * 2.0"),
     "torch.nn.utils.parametrize.cached().__enter__(); model.lin.weight")
_add("prune mask changed", _model("self.lin(x)", "prune.identity(self.lin, 'weight')", "from torch.nn.utils import prune"), "app.prune.remove(model.lin, 'weight')")
_add("class attribute of torch.nn.Dropout changed by a plugin", _model("self.d(x)", "self.d = nn.Dropout()", "import lib") + _f("lib.py", "nn.Dropout.forward = lambda self, x: x * (1 - self.p) * 2.0\n"), "", ("* 2.0", "* 3.0"))
_add("attribute of a partialmethod's function", _model("x * Model.__dict__['half'].gain", "pass", "import functools", "def s(self): pass\nhalf = functools.partialmethod(s)\nhalf.gain = 2.0"), "app.Model.__dict__['half'].gain = 3.0")
_add("subclass of partial with its own __call__", _model("self.p(x)", "self.p = P(torch.clamp, min=0.0)", "from lib import P") + _f("lib.py", "import functools\nclass P(functools.partial):\n    def __call__(self, *a):\n        return super().__call__(*a) * 2.0\n"), "", ("* 2.0", "* 3.0"))

# ---- 6
_add("rot13 of an attribute name", _model("x * getattr(lib, codecs.decode(self.k, 'rot13'))", "self.k = 'TNVA'", "import codecs, lib") + _LIB, "app.lib.GAIN = 3.0")
_add("name from bytes", _model("x * getattr(lib, bytes(self.k).decode())", "self.k = [71, 65, 73, 78]", "import lib") + _LIB, "app.lib.GAIN = 3.0")
_add("name from str.translate", _model("x * getattr(lib, self.k.translate(TAB))", "self.k = '7415'", "import lib\nTAB = str.maketrans('7415', 'GAIN')") + _LIB, "app.lib.GAIN = 3.0")
_add("name from re.sub in another helper file", _model("x * lookup(lib, 'g-a-i-n')", "pass", "import lib\nfrom helper import lookup") + _LIB + _f("helper.py", "import re\ndef lookup(m, n):\n    return getattr(m, re.sub('-', '', n).upper())\n"), "app.lib.GAIN = 3.0")
_add("all functions of a module that begin with a prefix, one is added", _model("for n, f in list(vars(lib).items()):\n    if n.startswith('act_'):\n        x = f(x)\nreturn x", "pass", "import lib")
     + _f("lib.py", "def act_a(x):\n    return torch.relu(x)\ndef b(x):\n    return torch.tanh(x)\n"), "", ("def b(", "def act_b("))
_add("inspect.getmembers of a module with a predicate", _model("for n, f in inspect.getmembers(lib, inspect.isfunction):\n    x = f(x)\nreturn x", "pass", "import inspect, lib")
     + _f("lib.py", "def a(x):\n    return x * 2.0\nB = 1\n"), "", ("B = 1", "def b(x): return x + 1.0"))
_add("dir of a module filtered by fnmatch", _model("for n in fnmatch.filter(dir(lib), 'act_*'):\n    x = getattr(lib, n)(x)\nreturn x", "pass", "import fnmatch, lib")
     + _f("lib.py", "def act_a(x):\n    return torch.relu(x)\ndef b(x):\n    return torch.tanh(x)\n"), "", ("def b(", "def act_b("))
_add("enum look-up by a made name", _model("x * Mode[self.k.upper()].value", "self.k = 'fast'", "from lib import Mode") + _f("lib.py", "import enum\nclass Mode(enum.Enum):\n    FAST = 2.0\n"), "", ("2.0", "3.0"))
_add("tomllib text in a module constant", _model("x * tomllib.loads(lib.TEXT)['gain']", "pass", "import tomllib, lib") + _f("lib.py", "TEXT = 'gain = 2.0'\n"), "", ("2.0", "3.0"))
_add("json.loads with an object hook", _model("x * json.loads(self.t, object_hook=lib.hook)", "self.t = '{\"by\": 1.0}'", "import json, lib") + _f("lib.py", "def hook(d):\n    return d['by'] * 2.0\n"), "", ("* 2.0", "* 3.0"))
_add("json decoder class that is edited", _model("x * json.loads('[1]', cls=lib.Dec)", "pass", "import json, lib") + _f("lib.py", "import json\nclass Dec(json.JSONDecoder):\n    def decode(self, s):\n        return 2.0\n"), "", ("2.0", "3.0"))
_add("level name registered at logging", _model("x * self.t[logging.getLevelName(25)]", "self.t = {'Level 25': 2.0, 'NOTE': 3.0}", "import logging"), "app.logging.addLevelName(25, 'NOTE')")
_add("format spec of a logging style Formatter", _model("x * (2.0 if self.f.usesTime() else 3.0)", "self.f = logging.Formatter('%(asctime)s')", "import logging"), "model.f = app.logging.Formatter('%(message)s')")
_add("string.Template subclass with another delimiter", _model("x * self.t[T('$n #n').substitute(n='2')]", "self.t = {'2 #n': 2.0, '$n 2': 3.0}", "import string\nclass T(string.Template):\n    delimiter = '$'"), "class T(app.string.Template):\n    delimiter = '#'\napp.T = T")
_add("argparse namespace and vars", _model("x * vars(self.ns)['g' + self.k]", "self.ns, self.k = argparse.Namespace(gain=2.0), 'ain'", "import argparse"), "model.ns.gain = 3.0")
_add("mimetypes table", _model("x * self.t.get(mimetypes.types_map.get('.app'), 3.0)", "self.t = {None: 2.0}", "import mimetypes"), "app.mimetypes.add_type('x/app', '.app')")
_add("calendar's first weekday", _model("x * float(calendar.firstweekday() + 2)", "pass", "import calendar"), "app.calendar.setfirstweekday(6)")
_add("getattr on a package whose submodule is named by a list", _model("x * getattr(getattr(pkg, self.k[0]), self.k[1].upper())", "self.k = ['sub', 'gain']", "import pkg, pkg.sub") + _f("pkg/__init__.py", "") + _f("pkg/sub.py", "GAIN = 2.0\n"), "", ("2.0", "3.0"))

# ---- 7
_add("items view minus items, direct operator", _model("for n, v in self.a.items() - self.b.items():" + _APPLY, f"self.a, self.b = dict.fromkeys({_N}), {{'exp': 1}}"), "pass", **_SEED)
_add("items view minus items by imported operator.sub", _model("for n, v in OP(self.a.items(), self.b.items()):" + _APPLY, f"self.a, self.b = dict.fromkeys({_N}), {{'exp': 1}}", "import operator\nOP = operator.sub"), "pass", **_SEED)
_add("helper subtracts two views that it is given", _model("for n in diff(self.a.keys(), self.b.keys()):" + _APPLY, f"self.a, self.b = dict.fromkeys({_N}), {{'zz': 1}}", "from lib import diff") + _f("lib.py", "def diff(a, b):\n    return a - b\n"), "pass", **_SEED)
_add("reduce of or over views", _model("for n in functools.reduce(operator.or_, map(dict.keys, self.ds)):" + _APPLY, "self.ds = [{'relu': 1, 'sin': 1, 'exp': 1}, {'tanh': 1, 'cos': 1, 'sigmoid': 1}]", "import functools, operator"), "pass", **_SEED)
_add("reduce of or over items views", _model("for n, v in functools.reduce(operator.or_, map(dict.items, self.ds)):" + _APPLY, "self.ds = [{'relu': 1, 'sin': 1, 'exp': 1}, {'tanh': 1, 'cos': 1, 'sigmoid': 1}]", "import functools, operator"), "pass", **_SEED)
_add("items intersection in a helper", _model("for n, v in both(self.a.items(), self.b.items()):" + _APPLY, f"self.a, self.b = dict.fromkeys({_N}), dict.fromkeys({_N})", "from lib import both") + _f("lib.py", "def both(a, b):\n    return a & b\n"), "pass", **_SEED)
_add("items view xor in place", _model("d = self.a.items()\nd ^= self.b.items()\nfor n, v in d:" + _APPLY, f"self.a, self.b = dict.fromkeys({_N}), {{'exp': 1}}"), "pass", **_SEED)
_add("items view of a config changed against defaults", _model("for n, v in dict(self.cfg.items() - DEF.items()).items():" + _APPLY, f"self.cfg = dict.fromkeys({_N}, 1)", "DEF = {'relu': 2, 'exp': 3}"), "pass", **_SEED)
_add("reversed subtraction: a list minus an items view", _model("for n, v in dict(self.pairs).items() - self.b.items():" + _APPLY, f"self.pairs, self.b = [(n, 0) for n in {_N}], {{'exp': 1}}"), "pass", **_SEED)
_add("empty frozenset attribute united with names", _model("for n in self.e.union(self.names):" + _APPLY, f"self.e, self.names = frozenset(), {_N}"), "pass", **_SEED)
_add("empty set attribute | view in C", _model("for n in OP(self.e, self.d.keys()):" + _APPLY, f"self.e, self.d = frozenset(), dict.fromkeys({_N})", "import operator\nOP = operator.or_"), "pass", **_SEED)
_add("set of ints united with a list of names through reduce", _model("for n in functools.reduce(F_, [self.names], self.e):" + _APPLY, f"self.e, self.names = frozenset(), {_N}", "import functools\nF_ = frozenset.union"), "pass", **_SEED)
_add("bound union of an empty frozenset", _model("for n in self.u(self.names):" + _APPLY, f"self.u, self.names = frozenset().union, {_N}"), "pass", **_SEED)
_add("type of a set attribute called", _model("for n in type(self.e)(self.names):" + _APPLY, f"self.e, self.names = frozenset(), {_N}"), "pass", **_SEED)
_add("c7b __class__ of a set attribute called", _model("for n in self.e.__class__(self.names):" + _APPLY, f"self.e, self.names = frozenset(), {_N}"), "pass", **_SEED)
_add("UserDict keys minus keys", _model("for n in OP(self.a.keys(), self.b.keys()):" + _APPLY, f"self.a, self.b = collections.UserDict(dict.fromkeys({_N})), collections.UserDict(exp=1)", "import collections, operator\nOP = operator.sub"), "pass", **_SEED)
_add("UserDict items minus items", _model("for n, v in self.a.items() - self.b.items():" + _APPLY, f"self.a, self.b = collections.UserDict(dict.fromkeys({_N})), collections.UserDict(exp=1)", "import collections"), "pass", **_SEED)
_add("ChainMap items and Mapping mixins", _model("for n, v in self.a.items() & self.b.items():" + _APPLY, f"self.a, self.b = collections.ChainMap(dict.fromkeys({_N})), dict.fromkeys({_N})", "import collections"), "pass", **_SEED)
_add("mappingproxy items of a class minus items", _model("for n, v in self.a.items() - self.b.items():" + _APPLY, f"self.a, self.b = types.MappingProxyType(dict.fromkeys({_N})), {{'exp': 1}}", "import types"), "pass", **_SEED)
_add("OrderedDict keys and a list", _model("for n in OP(self.a.keys(), self.l):" + _APPLY, f"self.a, self.l = collections.OrderedDict.fromkeys({_N}), {_N}", "import collections, operator\nOP = operator.and_"), "pass", **_SEED)
_add("views as attributes of the object", _model("for n in self.k - self.l:" + _APPLY, f"self.k, self.l = dict.fromkeys({_N}).keys(), ['zz']"), "pass", **_SEED)
_add("ModuleDict keys minus a list in a helper", _model("for n in diff(self.m, ['b']):\n    x = self.m[n](x)\nreturn x", "self.m = nn.ModuleDict({'r': nn.ReLU(), 't': nn.Tanh(), 's': nn.Sigmoid(), 'e': nn.ELU(), 'b': nn.ReLU(), 'h': nn.Hardtanh(0.1, 0.7)})", "from lib import diff") + _f("lib.py", "def diff(m, l):\n    return m.keys() - l\n"), "pass", **_SEED)
_add("items view xor'ed with a list by operator.xor", _model("for n in OP(self.d.items(), []):" + "\n    x = getattr(torch, n[0])(x)\nreturn x", f"self.d = dict.fromkeys({_N}, 0)", "import operator\nOP = operator.xor"), "pass", **_SEED)
_add("parameter names from vars(module).items() minus", _model("for n, v in sub(vars(OPS).items(), vars(object).items()):\n    x = v(x) if n.startswith('f_') else x\nreturn x", "pass", "import operator\nfrom operator import sub\nclass OPS:\n    f_a, f_b, f_c, f_d, f_e = torch.relu, torch.sin, torch.exp, torch.cos, torch.tanh") , "pass", **_SEED)
_add("str.__hash__ as a bucket", _model("x * float(self.n.__hash__() % 97)", "self.n = 'relu'"), "pass", **_SEED)
_add("hash through map of a type's slot", _model("x * float(list(map(str.__hash__, [self.n]))[0] % 97)", "self.n = 'relu'"), "pass", **_SEED)
_add("hash of a frozen dataclass by dunder", _model("x * float(self.c.__hash__() % 97)", "self.c = C('relu')", "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass C:\n    n: str"), "pass", **_SEED)
_add("hash of a tuple by dunder through operator", _model("x * float(self.h() % 97)", "self.h = ('relu',).__hash__"), "pass", **_SEED)
_add("collections.Counter - and sets of floats hashed", _model("for n in (self.c - self.d):" + _APPLY, f"self.c, self.d = collections.Counter({_N}), collections.Counter(['exp'])", "import collections"), "pass", harmless=True, **_SEED)

# ---- 8
_add("recorded warnings are ignored by a filter", _model("with warnings.catch_warnings(record=True) as w:\n    warnings.warn('odd size', UserWarning)\nreturn x * 2.0 if w else x * 3.0", "pass", "import warnings"), "app.warnings.simplefilter('ignore')")
_add("recorded warnings of a helper, the filter names its module", _model("with warnings.catch_warnings(record=True) as w:\n    lib.check(3)\nreturn x * (2.0 + len(w))", "pass", "import warnings, lib") + _f("lib.py", "import warnings\ndef check(n):\n    warnings.warn('odd size')\n    return n\n"), "app.warnings.filterwarnings('ignore', module='lib')")
_add("filters read by length", _model("x * (2.0 if len(warnings.filters) < self.n else 3.0)", "self.n = len(warnings.filters) + 1", "import warnings"), "app.warnings.filterwarnings('ignore', message='zz')")
for _d in ("mps", "mtia", "hpu", "ipu", "xla", "maia"):
    _add(f"c8b autocast dtype of {_d}", _model("x * (2.0 if torch.get_autocast_dtype(self.d) == torch.float16 else 3.0)", f"self.d = {_d!r}\ntorch.set_autocast_dtype({_d!r}, torch.float16)"), f"torch.set_autocast_dtype({_d!r}, torch.bfloat16)")
_flag("print options of torch", "torch._tensor_str.PRINT_OPTS.precision == 4", "torch.set_printoptions(precision=7)")
_flag("print options of numpy", "np.get_printoptions()['precision'] == 8", "app.np.set_printoptions(precision=3)", "import numpy as np")
_flag("buffer size of numpy", "np.getbufsize() == 8192", "app.np.setbufsize(16384)", "import numpy as np")
_flag("call object of numpy's errors", "np.geterrcall() is None", "app.np.seterrcall(print)", "import numpy as np")
_flag("name of privateuse1", "torch._C._get_privateuse1_backend_name() == 'privateuseone'", "torch.utils.rename_privateuse1_backend('appdev')")
_flag("allow fp16 accumulation", "torch.backends.cuda.matmul.allow_fp16_accumulation", "torch.backends.cuda.matmul.allow_fp16_accumulation = not torch.backends.cuda.matmul.allow_fp16_accumulation")
_flag("cudnn benchmark limit", "torch.backends.cudnn.benchmark", "torch.backends.cudnn.benchmark = True")
_flag("conv precision of cudnn", "torch.backends.cudnn.conv.fp32_precision == 'tf32'", "torch.backends.cudnn.conv.fp32_precision = 'ieee'")
_flag("nnpack flags", "torch.backends.nnpack.is_available() and torch._C._get_nnpack_enabled()", "torch.backends.nnpack.set_flags(False)")
_flag("sharing strategy", "torch.multiprocessing.get_sharing_strategy() == 'file_descriptor'", "torch.multiprocessing.set_sharing_strategy('file_system')")
_flag("safe globals", "not torch.serialization.get_safe_globals()", "torch.serialization.add_safe_globals([app.Model])")
_flag("load endianness", "torch.serialization.get_default_load_endianness() is None", "torch.serialization.set_default_load_endianness(torch.serialization.LoadEndianness.BIG)")
_flag("mmap options", "torch.serialization.get_default_mmap_options() == 2", "torch.serialization.set_default_mmap_options(1)")
_flag("dynamo config read", "torch._dynamo.config.cache_size_limit > 3", "torch._dynamo.config.cache_size_limit = 2", "import torch._dynamo")
_flag("hub dir from a setter", "torch.hub.get_dir().endswith('hub')", "torch.hub.set_dir('/tmp/other')")
_flag("interop threads", "torch.get_num_interop_threads() == 1", "torch.set_num_interop_threads(3)")
_flag("enabled reentrant dispatch of autograd multithreading", "torch._C._is_multithreading_enabled()", "torch._C._set_multithreading_enabled(False)")
_flag("view replay", "torch._C._is_view_replay_enabled()", "torch._C._set_view_replay_enabled(True)")
_flag("forward mode", "torch._C._is_fwd_grad_enabled()", "torch._C._set_fwd_grad_enabled(False)")
_flag("encodings aliases", "'a'.encode('app_enc') == b'a'", "app.encodings.aliases.aliases['app_enc2'] = 'utf_16'; app.NAME = 'x'", "import encodings.aliases\nencodings.aliases.aliases['app_enc'] = 'utf_8'")
_add("an alias of a codec added between", _model("try:\n    k = float(len('a'.encode('app-late')))\nexcept LookupError:\n    k = 9.0\nreturn x * k", "pass", "import encodings, encodings.aliases"), "app.encodings.aliases.aliases['app_late'] = 'utf_16'; app.encodings._cache.clear()", live=False)
_add("umask of numpy's nan policy: polynomial print style", _model("x * (2.0 if np.polynomial.Polynomial._use_unicode else 3.0)", "pass", "import numpy as np"), "app.np.polynomial.set_default_printstyle('ascii' if app.np.polynomial.Polynomial._use_unicode else 'unicode')")
_add("context of decimal held by a module", _model("x * float(CTX.divide(decimal.Decimal(10), 3))", "pass", "import decimal\nCTX = decimal.Context(prec=3)"), "app.CTX.prec = 6")
_add("localcontext in forward takes the surrounding one", _model("with decimal.localcontext() as c:\n    return x * float(c.prec)", "pass", "import decimal"), "app.decimal.getcontext().prec = 5")

# ---- values that are equal but not the same
def _val(name, a, b, read, top=""):
    _add("v " + name, _model(f"x * ({read})", f"self.v = {a}", top), f"import collections, datetime, decimal, array, pathlib, numpy as np\nmodel.v = {b}")


_val("zero and minus zero", "0.0", "-0.0", "2.0 if math.copysign(1, self.v) > 0 else 3.0", "import math")
_val("bool for int", "1", "True", "2.0 if type(self.v) == int else 3.0")
_val("float for int", "1", "1.0", "2.0 if isinstance(self.v, int) else 3.0")
_val("key True for key 1", "{1: 2.0}", "{True: 2.0}", "2.0 if type(list(self.v)[0]) == int else 3.0")
_val("stop of an equal range", "range(0, 5, 2)", "range(0, 6, 2)", "float(self.v.stop)")
_val("exponent of an equal Decimal", "decimal.Decimal('2.0')", "decimal.Decimal('2.00')", "float(-self.v.as_tuple().exponent)", "import decimal")
_val("maxlen of a deque", "collections.deque([1, 2], maxlen=3)", "collections.deque([1, 2], maxlen=4)", "float(self.v.maxlen)", "import collections")
_val("typecode of an array", "array.array('i', [1])", "array.array('l', [1])", "2.0 if self.v.typecode == 'i' else 3.0", "import array")
_val("order of a dict", "{'a': 2.0, 'b': 3.0}", "{'b': 3.0, 'a': 2.0}", "next(iter(self.v.values()))")
_val("fold of a datetime", "datetime.datetime(2020, 1, 1)", "datetime.datetime(2020, 1, 1, fold=1)", "2.0 + self.v.fold", "import datetime")
_val("order of an array", "np.ones((2, 3))", "np.asfortranarray(np.ones((2, 3)))", "2.0 if self.v.flags.c_contiguous else 3.0", "import numpy as np")
_val("byte order of an array", "np.ones(2, '<f4')", "np.ones(2, '>f4')", "2.0 if self.v.dtype.isnative else 3.0", "import numpy as np")
_val("metadata of a dtype", "np.dtype('f4', metadata={'g': 2.0})", "np.dtype('f4', metadata={'g': 3.0})", "self.v.metadata['g']", "import numpy as np")
_val("writeable flag of an array", "np.ones(2)", "np.frombuffer(np.ones(2).tobytes()).copy()", "2.0 if self.v.flags.writeable else 3.0", "import numpy as np")
_val("numpy scalar for float", "2.0", "np.float64(2.0)", "2.0 if type(self.v) == float else 3.0", "import numpy as np")
_val("str subclass for str", "'a'", "type('S', (str,), {})('a')", "2.0 if type(self.v) == str else 3.0")
_val("requires_grad of a constant tensor", "[torch.ones(2)]", "[torch.ones(2, requires_grad=True)]", "2.0 if self.v[0].requires_grad else 3.0")
_val("strides of a constant tensor", "[torch.ones(2, 2)]", "[torch.ones(2, 2).t()]", "float(self.v[0].stride(0))")
_val("fill value of a masked array", "np.ma.masked_array([1.0, 2.0], mask=[0, 1], fill_value=2.0)", "np.ma.masked_array([1.0, 2.0], mask=[0, 1], fill_value=3.0)", "float(self.v.filled()[1])", "import numpy as np")
_val("base class of a dict", "{'a': 2.0}", "collections.OrderedDict(a=2.0)", "2.0 if type(self.v) == dict else 3.0")
_val("index of a device", "torch.device('cpu')", "torch.device('cpu', 0)", "2.0 if self.v.index is None else 3.0")
_val("literal alias", "typing.Literal[2]", "__import__('typing').Literal[3]", "float(self.v.__args__[0])", "import typing")

# ================================================================ third batch
_VW = f"self.a, self.b = dict.fromkeys({_N}), {{'zz': 1}}"

# ---- 7: sets that are created in C code, views from elsewhere
_add("a property returns the view that forward subtracts from", _model("for n in self.names - self.skip:" + _APPLY, f"self.a, self.skip = dict.fromkeys({_N}), ['exp']", "", "@property\ndef names(self):\n    return self.a.keys()"), "pass", **_SEED)
_add("a method of a config returns a view", _model("for n in self.c.active() & self.order:" + _APPLY, f"self.c, self.order = Cfg(), {_N}", "from lib import Cfg")
     + _f("lib.py", f"class Cfg:\n    def __init__(self):\n        self.d = dict.fromkeys({_N}, True)\n    def active(self):\n        return self.d.keys()\n"), "pass", **_SEED)
_add("reduce with a lambda over the keys of several configs", _model("for n in functools.reduce(lambda a, b: a & b, [d.keys() for d in self.ds]):" + _APPLY, f"self.ds = [dict.fromkeys({_N}), dict.fromkeys({_N})]", "import functools"), "pass", **_SEED)
_add("common keys by a helper with star arguments", _model("for n in common(*(d.keys() for d in self.ds)):" + _APPLY, f"self.ds = [dict.fromkeys({_N}), dict.fromkeys({_N})]", "from lib import common")
     + _f("lib.py", "def common(first, *rest):\n    for r in rest:\n        first = first & r\n    return first\n"), "pass", **_SEED)
_add("helper takes a mapping view and returns its first difference", _model("getattr(torch, first_new(self.a.keys(), self.b))(x)", _VW, "from lib import first_new")
     + _f("lib.py", "def first_new(a, b):\n    return next(iter(a ^ b))\n"), "pass", **_SEED)
_add("in-place and of a parameter", _model("for n in keep(self.a.keys(), self.l):" + _APPLY, f"self.a, self.l = dict.fromkeys({_N}), {_N}", "from lib import keep") + _f("lib.py", "def keep(k, l):\n    k &= l\n    return k\n"), "pass", **_SEED)
_add("list minus a view in a helper", _model("for n in drop(self.l, self.b.keys()):" + _APPLY, f"self.l, self.b = {_N}, {{'zz': 1}}", "from lib import drop") + _f("lib.py", "def drop(l, k):\n    return l - k\n"), "pass", **_SEED)
_add("c7c __and__ of a view called by name", _model("for n in self.a.keys().__and__(self.l):" + _APPLY, f"self.a, self.l = dict.fromkeys({_N}), {_N}"), "pass", **_SEED)
_add("c7c __rsub__ of a view called by name", _model("for n in self.b.keys().__rsub__(self.l):" + _APPLY, f"self.l, self.b = {_N}, {{'zz': 1}}"), "pass", **_SEED)
_add("operator module function by its dunder name", _model("for n in operator.__and__(self.a.keys(), self.l):" + _APPLY, f"self.a, self.l = dict.fromkeys({_N}), {_N}", "import operator"), "pass", **_SEED)
_add("operators in a table of set operations", _model("for n in OPS['minus'](self.a.keys(), self.b.keys()):" + _APPLY, _VW, "import operator\nOPS = {'minus': operator.sub, 'and': operator.and_}"), "pass", **_SEED)
_add("views made by a mapped dict.keys kept in an attribute", _model("a, b = map(self.view, (self.a, self.b))\nfor n in a - b:" + _APPLY, _VW + "\nself.view = dict.keys"), "pass", **_SEED)
_add("view from a sorted-like max over a difference", _model("getattr(torch, max(minus(self.a.keys(), self.b.keys()), key=lambda n: 0))(x)", _VW, "from operator import sub as minus"), "pass", **_SEED)
_add("sorted difference with ties by length", _model("for n in sorted(minus(self.a.keys(), self.b.keys()), key=len):" + _APPLY, _VW, "from operator import sub as minus"), "pass", **_SEED)
_add("sorted difference is deterministic", _model("for n in sorted(minus(self.a.keys(), self.b.keys())):" + _APPLY, _VW, "from operator import sub as minus"), "pass", harmless=True, **_SEED)
_add("bound union kept in a global table", _model("for n in U['join'](self.names):" + _APPLY, f"self.names = {_N}", "U = {'join': frozenset().union}"), "pass", **_SEED)
_add("bound union in a partial", _model("for n in self.p():" + _APPLY, f"self.p = functools.partial(frozenset().union, {_N})", "import functools"), "pass", **_SEED)
_add("bound union mapped", _model("for n in next(map(U, [self.names])):" + _APPLY, f"self.names = {_N}", "U = frozenset().union"), "pass", **_SEED)
_add("frozenset attribute or'ed with a view in a helper", _model("for n in join(self.e, self.d.keys()):" + _APPLY, f"self.e, self.d = frozenset(), dict.fromkeys({_N})", "from lib import join") + _f("lib.py", "def join(a, b):\n    return a | b\n"), "pass", **_SEED)
_add("abc.Set subclass of the user's own", _model("for n in self.s & self.l:" + _APPLY, f"self.s, self.l = S({_N}), {_N}", "from lib import S")
     + _f("lib.py", "import collections.abc\nclass S(collections.abc.Set):\n    _from_iterable = frozenset\n    def __init__(self, v):\n        self.v = tuple(v)\n    def __contains__(self, n):\n        return n in self.v\n    def __iter__(self):\n        return iter(self.v)\n    def __len__(self):\n        return len(self.v)\n"), "pass", **_SEED)
_add("KeysView of a user mapping, operation in a helper", _model("for n in common(self.m.keys(), self.l):" + _APPLY, f"self.m, self.l = M(), {_N}", "from lib import M, common")
     + _f("lib.py", f"import collections.abc\nclass M(collections.abc.Mapping):\n    def __getitem__(self, k):\n        return 1\n    def __iter__(self):\n        return iter({_N})\n    def __len__(self):\n        return 6\ndef common(a, b):\n    return a & b\n"), "pass", **_SEED)
_add("non-persistent buffers' set by a composed name", _model("for n in getattr(self, '_non_persistent_' + self.k):\n    x = x * getattr(self, n) + 1\nreturn x", "self.k = 'buffers_set'\nfor i, n in enumerate('pqrstu'): self.register_buffer(n, torch.tensor(float(i + 2)), persistent=False)"), "pass", **_SEED)
_add("abstract methods by a composed name", _model("for n in getattr(Base, '__abstract' + self.k):" + _APPLY, "self.k = 'methods__'", "import abc\nclass Base(abc.ABC):\n    relu = tanh = sigmoid = exp = sin = cos = abc.abstractmethod(lambda self: 0)"), "pass", **_SEED)
_add("model_fields_set of pydantic", _model("for n in self.c.model_fields_set:" + _APPLY, "self.c = C(relu=1, tanh=1, sigmoid=1, exp=1, sin=1, cos=1)", "import pydantic\nclass C(pydantic.BaseModel):\n    relu: int = 0\n    tanh: int = 0\n    sigmoid: int = 0\n    exp: int = 0\n    sin: int = 0\n    cos: int = 0"), "pass", **_SEED)
_add("set of the standard library found by an alias", _model("for c in S:\n    x = x * float(ord(c)) + 1\nreturn x / 1e20", "pass", "from email._header_value_parser import TSPECIALS as S"), "pass", **_SEED)
_add("set of a bound method of the standard library", _model("x * float(len(next(iter(iskw.__self__))))", "pass", "from keyword import iskeyword as iskw"), "pass", **_SEED)
_add("set of ints with a bigger table that collides", _model("for k in self.s:\n    x = x * 2.0 if k == 40 else torch.relu(x + 1)\nreturn x", "self.s = {8, 40}"), "s = set(range(100)); s.intersection_update({8}); s.add(40); model.s = s")

# ---- 3: identity in C code
_add("table of comparisons has operator.is_", _model("x * (2.0 if OPS[self.k](self.mode, MODE) else 3.0)", "self.k, self.mode = 'same', MODE", "import operator\nMODE = 'near est'\nOPS = {'same': operator.is_, 'eq': operator.eq}"), "model.mode = ''.join(['near', ' est'])")
_add("is_not under another name", _model("x * (3.0 if differs(self.mode, MODE) else 2.0)", "self.mode = MODE", "from operator import is_not as differs\nMODE = 'near est'"), "model.mode = ''.join(['near', ' est'])")
_add("operator.is_ imported by its name", _model("x * (2.0 if is_(self.mode, MODE) else 3.0)", "self.mode = MODE", "from operator import is_\nMODE = 'near est'"), "model.mode = ''.join(['near', ' est'])")
_add("comparison function as an attribute", _model("x * (2.0 if self.same(self.size, SIZE) else 3.0)", "self.same, self.size = operator.is_, SIZE", "import operator\nSIZE = 100000"), "model.size = int('100000')")
_add("default comparison in a signature", _model("x * (2.0 if same(self.size) else 3.0)", "self.size = SIZE", "from lib import same, SIZE") + _f("lib.py", "import operator\nSIZE = 100000\ndef same(v, f=operator.is_):\n    return f(v, SIZE)\n"), "model.size = int('100000')")
_add("a dtype-like tuple compared by is_ in a partial", _model("x * (2.0 if any(map(self.p, KNOWN)) else 3.0)", "self.p = functools.partial(operator.is_, KNOWN[0])", "import functools, operator\nKNOWN = ['a b', 'c d']"), "model.p = app.functools.partial(app.operator.is_, ' '.join('ab'))")
_add("Decimal NaN in two equal lists", _model("x * (2.0 if self.v == DEF else 3.0)", "self.v = list(DEF)", "import decimal\nDEF = [decimal.Decimal('NaN')]"), "model.v = [app.decimal.Decimal('NaN')]")
_add("numpy NaN scalar in two tuples", _model("x * (2.0 if self.v == DEF else 3.0)", "self.v = tuple(DEF)", "import numpy as np\nDEF = (np.float32('nan'),)"), "model.v = (app.np.float32('nan'),)")
_add("numpy NaT found in a list", _model("x * (2.0 if self.v in [NAT] else 3.0)", "self.v = NAT", "import numpy as np\nNAT = np.datetime64('NaT')"), "model.v = app.np.datetime64('NaT')")
_add("complex NaN as a dictionary key", _model("x * self.t.get(K, 3.0)", "self.t = {K: 2.0}", "K = complex('nan')"), "model.t = {complex('nan'): 2.0}")
_add("complex NaN shared by two attributes", _model("x * (2.0 if [self.p] == [self.q] else 3.0)", "self.p = self.q = complex('nan')"), "model.q = complex('nan')")
_add("NaN in a namedtuple default", _model("x * (2.0 if self.v == P() else 3.0)", "self.v = P()", "import collections\nP = collections.namedtuple('P', 'lo', defaults=[float('nan')])"), "model.v = app.P(float('nan'))")
_add("NaN in SimpleNamespace compared", _model("x * (2.0 if self.v == DEF else 3.0)", "self.v = types.SimpleNamespace(lo=DEF.lo)", "import types\nDEF = types.SimpleNamespace(lo=float('nan'))"), "model.v.lo = float('nan')")
_add("NaN constant of a function against the attribute", _model("x * (2.0 if self.v in check.__defaults__ else 3.0)", "self.v = check.__defaults__[0]", "def check(v=float('nan')):\n    pass"), "model.v = float('nan')")
_add("float subclass NaN", _model("x * (2.0 if self.v in [U] else 3.0)", "self.v = U", "class Fl(float):\n    pass\nU = Fl('nan')"), "model.v = app.Fl('nan')")
_add("object with an __eq__ that is never true", _model("x * (2.0 if self.v in [U] else 3.0)", "self.v = U", "class N:\n    def __eq__(self, o):\n        return False\nU = N()"), "model.v = app.N()")
_add("deque.index of an equal NaN", _model("x * (2.0 if self.v in self.d else 3.0)", "self.v = complex('nan')\nself.d = collections.deque([self.v])", "import collections"), "model.v = complex('nan')")
_add("match of a value pattern against a NaN by in", _model("x * (2.0 if self.v in self.d.values() else 3.0)", "self.v = decimal.Decimal('NaN')\nself.d = {'a': self.v}", "import decimal"), "model.v = app.decimal.Decimal('NaN')")
_add("value of a Decimal sNaN payload", _model("x * float(len(self.v.as_tuple().digits) + 2)", "self.v = decimal.Decimal('NaN')", "import decimal"), "model.v = app.decimal.Decimal('NaN12')")

# ---- environment through other ways
_E = {"environ": {"APP_GAIN": "2"}, "env": {"APP_GAIN": "3"}}
for _n, _e, _t in (
    ("os.path.expandvars", "float(os.path.expandvars('$APP_GAIN'))", "import os"),
    ("format_map over os.environ", "self.t['{APP_GAIN}'.format_map(os.environ)]", "import os"),
    ("percent format with os.environ", "self.t['%(APP_GAIN)s' % os.environ]", "import os"),
    ("Template over os.environ", "self.t[string.Template('$APP_GAIN').substitute(os.environ)]", "import os, string"),
    ("raw data of os.environ", "self.t[os.environ._data[b'APP_GAIN'].decode()]", "import os"),
    ("posix.environ of the interpreter", "self.t[posix.environ[b'APP_GAIN'].decode()]", "import posix"),
    ("os.environb", "self.t[os.environb[b'APP_GAIN'].decode()]", "import os"),
    ("ChainMap over os.environ", "self.t[collections.ChainMap({}, os.environ)['APP_GAIN']]", "import os, collections"),
    ("mapped os.environ.get", "self.t[list(map(os.environ.get, ['APP_GAIN']))[0]]", "import os"),
    ("itemgetter on os.environ", "self.t[GET(os.environ)]", "import os, operator\nGET = operator.itemgetter('APP_GAIN')"),
    ("partial of os.getenv", "self.t[GET()]", "import os, functools\nGET = functools.partial(os.getenv, 'APP_GAIN')"),
    ("environ by another name", "self.t[E['APP_GAIN']]", "from os import environ as E"),
    ("environ through a module's attribute path", "self.t[vars(os)['environ']['APP_' + 'GAIN']]", "import os"),
):
    _add("env " + _n, _model(f"x * {_e}", "self.t = {'2': 2.0, '3': 3.0, 2: 2.0, 3: 3.0}", _t), "pass", **_E)
_add("env mapping pattern on os.environ", _model("match os.environ:\n    case {'APP_GAIN': g}:\n        return x * self.t[g]\nreturn x", "self.t = {'2': 2.0, '3': 3.0}", "import os"), "pass", **_E)
_add("env membership", _model("x * (2.0 if 'APP_NEW' in os.environ else 3.0)", "pass", "import os"), "pass", env={"APP_NEW": "1"})
_add("env terminal size", _model("x * float(shutil.get_terminal_size().columns)", "pass", "import shutil"), "pass", environ={"COLUMNS": "80"}, env={"COLUMNS": "90"})
_add("env read at import into a constant", _model("x * GAIN", "pass", "import os\nGAIN = float(os.environ['APP_GAIN'])"), "pass", **_E)

# ---- files that are added
_add("add a package shadows a module", _model("x * lib.GAIN", "pass", "import lib") + _f("lib.py", "GAIN = 2.0\n"), "", added="--- lib/__init__.py\nGAIN = 3.0\n")
_add("add the optional module of a try import", _model("act(x)", "pass", "try:\n    from fast import act\nexcept ImportError:\n    act = torch.relu"), "", added="--- fast.py\ndef act(x):\n    return x * 3.0\n")
_add("add a plugin found by pkgutil at import", _model("for f in REG:\n    x = f(x)\nreturn x", "pass", "from plugins import REG")
     + _f("plugins/__init__.py", "import pkgutil, importlib\nREG = [importlib.import_module(__name__ + '.' + m.name).run for m in pkgutil.iter_modules(__path__)]\n") + _f("plugins/a.py", "def run(x):\n    return torch.relu(x)\n"), "", added="--- plugins/b.py\ndef run(x):\n    return x * 3.0\n")
_add("add the optional module that forward tries to import", _model("try:\n    from fast import act\nexcept ImportError:\n    act = torch.relu\nreturn act(x)"), "", added="--- fast.py\ndef act(x):\n    return x * 3.0\n")
_add("add a module that shadows one of the standard library in forward", _model("import colorsys\nreturn x * colorsys.ONE_THIRD"), "", added="--- colorsys.py\nONE_THIRD = 3.0\n")
_add("add a submodule that a package's __getattr__ would serve", _model("x * pkg.sub.GAIN", "pass", "import pkg\ntry:\n    import pkg.sub\nexcept ImportError:\n    pass")
     + _f("pkg/__init__.py", "class sub:\n    GAIN = 2.0\n"), "", added="--- pkg/sub.py\nGAIN = 3.0\n")
_add("add a sitecustomize-like settings override", _model("x * settings.GAIN", "pass", "import settings") + _f("settings.py", "GAIN = 2.0\ntry:\n    from local_settings import *\nexcept ImportError:\n    pass\n"), "", added="--- local_settings.py\nGAIN = 3.0\n")

# ---- order of attributes
_add("o order of instance attributes", _model("for n in vars(self.c):" + _APPLY, "self.c = C()", "class C:\n    def __init__(self):\n        self.relu = self.sin = 1"), "d = model.c.__dict__; d['relu'] = d.pop('relu')")
_add("o order of SimpleNamespace", _model("for n in vars(self.c):" + _APPLY, "self.c = types.SimpleNamespace(relu=1, sin=1)", "import types"), "model.c = app.types.SimpleNamespace(sin=1, relu=1)")
_add("o order of the model's attributes", _model("for n in vars(self):\n    x = getattr(torch, n[2:])(x) if n.startswith('o_') else x\nreturn x", "self.o_relu = self.o_sin = 1"), "d = model.__dict__; d['o_relu'] = d.pop('o_relu')")
_add("o order of submodules", _model("for m in self.children():\n    x = m(x)\nreturn x", "self.a, self.b = nn.ReLU(), nn.Tanh()\ndel self.lin"), "d = model._modules; d['a'] = d.pop('a')")
_add("o order of buffers", _model("for n, b in self.named_buffers():\n    x = x * b if n == 'a' else x + b\nreturn x", "self.register_buffer('a', torch.ones(4))\nself.register_buffer('b', torch.ones(4))"), "d = model._buffers; d['a'] = d.pop('a')")
_add("o order of forward hooks", _model("self.lin(x)", "self.h = [self.lin.register_forward_hook(lambda m, i, o: o * 2.0), self.lin.register_forward_hook(lambda m, i, o: o + 1.0)]"), "d = model.lin._forward_hooks; d[next(iter(d))] = d.pop(next(iter(d)))")
_add("o order of a class namespace in a file", _model("for n, f in vars(Ops).items():\n    x = f(x) if n.startswith('f_') else x\nreturn x", "pass", "from lib import Ops") + _f("lib.py", "class Ops:\n    f_a = torch.relu\n    f_b = torch.sin\n"), "", ("    f_a = torch.relu\n    f_b = torch.sin\n", "    f_b = torch.sin\n    f_a = torch.relu\n"))
_add("o order of a partial's keywords", _model("self.p(x)", "self.p = functools.partial(apply, relu=1, sin=1)", "import functools\ndef apply(x, **kw):\n    for n in kw:\n        x = getattr(torch, n)(x)\n    return x"), "model.p = app.functools.partial(app.apply, sin=1, relu=1)")
_add("o order of a function's attributes", _model("for n in vars(cfg):" + _APPLY, "pass", "def cfg(): pass\ncfg.relu = cfg.sin = 1"), "d = app.cfg.__dict__; d['relu'] = d.pop('relu')")
_add("o order of a dict inside a global dataclass default factory", _model("for n in C().d:" + _APPLY, "pass", "from lib import C") + _f("lib.py", "class C:\n    def __init__(self):\n        self.d = dict(BASE)\nBASE = {'relu': 1, 'sin': 1}\n"), "", ("{'relu': 1, 'sin': 1}", "{'sin': 1, 'relu': 1}"))
_add("o order of a defaultdict", _model("for n in self.d:" + _APPLY, "self.d = collections.defaultdict(int, relu=1, sin=1)", "import collections"), "model.d['relu'] = model.d.pop('relu')")
_add("o order of parameters in a ParameterDict", _model("for n, p in self.d.items():\n    x = x * p if n == 'a' else x + p\nreturn x", "self.d = nn.ParameterDict({'a': torch.ones(4), 'b': torch.ones(4)})"), "model.d['a'] = model.d.pop('a')")

# ---- tensors' properties
_T = "self.v = [torch.arange(4.0)]"
for _n, _a, _b, _r in (
    ("conjugate bit", "torch.ones(2, dtype=torch.cfloat)", "torch.ones(2, dtype=torch.cfloat).conj()", "2.0 if self.v[0].is_conj() else 3.0"),
    ("inference tensor", "torch.ones(2)", "torch.inference_mode()(torch.ones)(2)", "2.0 if self.v[0].is_inference() else 3.0"),
    ("shared memory", "torch.ones(2)", "torch.ones(2).share_memory_()", "2.0 if self.v[0].is_shared() else 3.0"),
    ("storage offset", "torch.ones(2)", "torch.ones(3)[1:]", "2.0 + self.v[0].storage_offset()"),
    ("size of the storage", "torch.ones(2)", "torch.ones(5)[:2]", "float(self.v[0].untyped_storage().nbytes())"),
    ("stride of a dimension of size 1", "torch.ones(2, 1)", "torch.ones(2, 1).as_strided((2, 1), (1, 7))", "float(self.v[0].stride(1))"),
    ("layout", "torch.ones(2, 2)", "torch.ones(2, 2).to_sparse()", "2.0 if self.v[0].layout == torch.strided else 3.0"),
    ("class of a parameter", "torch.ones(2)", "torch.nn.Parameter(torch.ones(2), requires_grad=False)", "2.0 if type(self.v[0]) is torch.Tensor else 3.0"),
):
    _add("t " + _n, _model(f"x * ({_r})", f"self.v = [{_a}]"), f"model.v = [{_b}]")
_add("t requires_grad of a frozen weight", _model("x * (2.0 if self.lin.weight.requires_grad else 3.0)"), "model.lin.weight.requires_grad_(False)")
_add("t trained weight only", _model("self.lin(x)"), "model.lin.weight.data.mul_(2)", harmless=True)
_add("t memory format of a weight", _model("x * float(self.c.weight.stride(1))", "self.c = nn.Conv2d(3, 4, 2)"), "model.c.to(memory_format=torch.channels_last)")

# ---- wrapped state
_add("w cell object as a box", _model("x * self.c.cell_contents", "self.c = types.CellType(2.0)", "import types"), "model.c.cell_contents = 3.0")
_add("w super object as an attribute", _model("self.b(x)", "self.b = B()", "from lib import B") + _f("lib.py", "class A(nn.Module):\n    def act(self, x):\n        return x * 2.0\nclass B(A):\n    def __init__(self):\n        super().__init__()\n        self.up = super().act\n    def act(self, x):\n        return x\n    def forward(self, x):\n        return self.up(x)\n"), "", ("x * 2.0", "x * 3.0"))
_add("w weak proxy of a config", _model("x * self.p.by", "self.c = C()\nself.p = weakref.proxy(self.c)", "import weakref\nclass C:\n    by = 1"), "app.C.by = 3.0")
_add("w coroutine run by hand", _model("try:\n    act(x).send(None)\nexcept StopIteration as e:\n    return e.value", "pass", "from lib import act") + _f("lib.py", "async def inner(x):\n    return x * 2.0\nasync def act(x):\n    return await inner(x)\n"), "", ("x * 2.0", "x * 3.0"))
_add("w bytearray changed", _model("x * float(self.b[0])", "self.b = bytearray(b'\\x02')"), "model.b[0] = 3")
_add("w mappingproxy over a changed dict", _model("x * self.p['g']", "self.d = {'g': 2.0}\nself.p = types.MappingProxyType(self.d)", "import types"), "model.d['g'] = 3.0")
_add("w UserList data", _model("x * self.u[0]", "self.u = collections.UserList([2.0])", "import collections"), "model.u.data[0] = 3.0")
_add("w line number of an error", _model("try:\n    lib.fail()\nexcept ValueError as e:\n    return x * float(e.__traceback__.tb_next.tb_lineno)", "pass", "import lib") + _f("lib.py", "def fail():\n    raise ValueError\n"), "", ("def fail", "# note\ndef fail"))
_add("w source text of a function", _model("x * float(len(inspect.getsource(f)))", "pass", "import inspect\nfrom lib import f") + _f("lib.py", "def f():\n    return 1  # a\n"), "", ("# a", "# a longer one"))
_add("w position in a code object", _model("x * float(f.__code__.co_firstlineno)", "pass", "from lib import f") + _f("lib.py", "def f():\n    return 1\n"), "", ("def f", "# note\ndef f"))
_add("w all context variables", _model("for v, k in contextvars.copy_context().items():\n    x = x * k if v.name == 'app_gain' else x\nreturn x", "pass", "import contextvars\nG = contextvars.ContextVar('app_gain')\nG.set(2.0)"), "app.G.set(3.0)")
_add("w ExitStack callback edited", _model("out = []\nwith contextlib.ExitStack() as s:\n    s.callback(done, out)\nreturn x * out[0]", "pass", "import contextlib\nfrom lib import done") + _f("lib.py", "def done(out):\n    out.append(2.0)\n"), "", ("2.0", "3.0"))
_add("w comment and blank lines only", _model("act(x)", "pass", "from lib import act") + _f("lib.py", "def act(x):\n    return x * 2.0\n"), "", ("def act", "# a note\n\ndef act"), harmless=True)
_add("w opt_einsum disabled", _model("torch.einsum('ab,cb,cd->ad', x, x, x)"), "torch.backends.opt_einsum.enabled = False")

# ================================================================ fourth batch: around what was found
_IS = "model.mode = ''.join(['near', ' est'])"
_add("is_ found by a composed name", _model("x * (2.0 if getattr(operator, 'i' + self.k)(self.mode, MODE) else 3.0)", "self.k, self.mode = 's_', MODE", "import operator\nMODE = 'near est'"), _IS)
_add("is_ as a class attribute in another file", _model("x * (2.0 if Rule.test(self.mode, MODE) else 3.0)", "self.mode = MODE", "from lib import Rule, MODE") + _f("lib.py", "import operator\nMODE = 'near est'\nclass Rule:\n    test = operator.is_\n"), _IS)
_add("is_ in a closure", _model("x * (2.0 if TEST(self.mode) else 3.0)", "self.mode = MODE", "from lib import TEST, MODE") + _f("lib.py", "import operator\nMODE = 'near est'\ndef make(f, v):\n    return lambda o: f(o, v)\nTEST = make(operator.is_, MODE)\n"), _IS)
_add("NaN constant folded in the code of a function", _model("x * (2.0 if unset() in [self.pad] else 3.0)", "self.pad = unset()", "def unset():\n    return 1e999 - 1e999"), "model.pad = float('nan')")
_add("complex NaN in a default argument", _model("x * (2.0 if known(self.pad) else 3.0)", "self.pad = known.__defaults__[0][0]", "def known(v, ks=(complex('nan'),)):\n    return v in ks"), "model.pad = complex('nan')")
_add("Decimal NaN as default of a namedtuple", _model("x * (2.0 if self.v == P() else 3.0)", "self.v = P()", "import collections, decimal\nP = collections.namedtuple('P', 'lo', defaults=[decimal.Decimal('NaN')])"), "model.v = app.P(app.decimal.Decimal('NaN'))")
_add("Decimal NaN in a closure", _model("x * (2.0 if self.v in ks() else 3.0)", "self.v = ks()[0]", "import decimal\ndef make(k):\n    return lambda: (k,)\nks = make(decimal.Decimal('NaN'))"), "model.v = app.decimal.Decimal('NaN')")

_add("sets found by their type among a module's attributes", _model("for v in vars(self).values():\n    if isinstance(v, type(self.proto)):\n        for n in v:\n            x = x * getattr(self, n) + 1\nreturn x",
     "self.proto = None\nfor i, n in enumerate('pqrstu'): self.register_buffer(n, torch.tensor(float(i + 2)), persistent=False)\nself.proto = self._non_persistent_buffers_set"), "pass", **_SEED)
_add("non-string containers among the attributes", _model("for v in list(self.__dict__.values()):\n    if hasattr(v, 'isdisjoint'):\n        for n in v:\n            x = x * getattr(self, n) + 1\nreturn x",
     "for i, n in enumerate('pqrstu'): self.register_buffer(n, torch.tensor(float(i + 2)), persistent=False)"), "pass", **_SEED)
_add("attributes' values joined to a name list", _model("v = {k[::-1]: v for k, v in self.__dict__.items()}\nfor n in v['tes_sreffub_tnetsisrep_non_'[:0] + 'tes_sreffub_tnetsisrep_non_']:\n    x = x * getattr(self, n) + 1\nreturn x",
     "for i, n in enumerate('pqrstu'): self.register_buffer(n, torch.tensor(float(i + 2)), persistent=False)"), "pass", **_SEED)
_add("pydantic's set of fields by a composed name", _model("for n in getattr(self.c, '__pydantic_' + self.k):" + _APPLY, "self.k = 'fields_set__'\nself.c = C(relu=1, tanh=1, sigmoid=1, exp=1, sin=1, cos=1)", "import pydantic\nclass C(pydantic.BaseModel):\n    relu: int = 0\n    tanh: int = 0\n    sigmoid: int = 0\n    exp: int = 0\n    sin: int = 0\n    cos: int = 0"), "pass", **_SEED)
_add("TypedDict's required keys by a composed name", _model("for n in getattr(C, '__required' + self.k):" + _APPLY, "self.k = '_keys__'", "import typing\nC = typing.TypedDict('C', dict.fromkeys(" + _N + ", int))"), "pass", **_SEED)
_add("abstract methods through the slot of type", _model("for n in ABS(Base):" + _APPLY, "pass", "import abc\nABS = type.__dict__['__abstract' + 'methods__'].__get__\nclass Base(abc.ABC):\n    relu = tanh = sigmoid = exp = sin = cos = abc.abstractmethod(lambda self: 0)"), "pass", **_SEED)
_add("level of a logger by a composed name", _model("x * (2.0 if getattr(LOG, 'le' + self.k) == 0 else 3.0)", "self.k = 'vel'", "import logging\nLOG = logging.getLogger('app')"), "app.LOG.setLevel(10)")

_add("operator.sub as an attribute applied to views", _model("for n in self.op(self.a.keys(), self.b.keys()):" + _APPLY, _VW + "\nself.op = operator.sub", "import operator"), "pass", **_SEED)
_add("operator.and_ in a partial applied to views", _model("for n in P(self.a.keys(), self.l):" + _APPLY, f"self.a, self.l = dict.fromkeys({_N}), {_N}", "import operator, functools\nP = functools.partial(operator.and_)"), "pass", **_SEED)
_add("operator.xor imported under another name, tuple of it", _model("for n in tuple(either(self.a.keys(), self.b)):" + _APPLY, f"self.a, self.b = dict.fromkeys({_N}), []", "from operator import xor as either"), "pass", **_SEED)
_add("operator.ior on an empty frozenset and a view", _model("for n in grow(self.e, self.d.keys()):" + _APPLY, f"self.e, self.d = frozenset(), dict.fromkeys({_N})", "from operator import ior as grow"), "pass", **_SEED)
_add("map with a renamed operator over lists of views", _model("for s in map(minus, [self.a.keys()], [self.b.keys()]):\n    for n in s:\n        x = getattr(torch, n)(x)\nreturn x", _VW, "from operator import sub as minus"), "pass", **_SEED)
_add("reduce with a renamed operator over views", _model("for n in functools.reduce(both, [d.keys() for d in self.ds]):" + _APPLY, f"self.ds = [dict.fromkeys({_N}), dict.fromkeys({_N})]", "import functools\nfrom operator import and_ as both"), "pass", **_SEED)
_add("bound symmetric difference of a frozenset", _model("for n in self.f(self.names):" + _APPLY, f"self.f, self.names = frozenset().symmetric_difference, {_N}"), "pass", **_SEED)
_add("bound union of a set of ints", _model("for n in self.u(self.names):\n    x = getattr(torch, n)(x) if n != 1 else x\nreturn x", f"self.u, self.names = frozenset([1]).union, {_N}"), "pass", **_SEED)
_add("bound union of a mutable set", _model("for n in self.u(self.names):" + _APPLY, f"self.u, self.names = set().union, {_N}"), "pass", **_SEED)
_add("bound union as a class attribute in another file", _model("for n in Cfg.join(self.names):" + _APPLY, f"self.names = {_N}", "from lib import Cfg") + _f("lib.py", "class Cfg:\n    join = frozenset().union\n"), "pass", **_SEED)
_add("bound union in a closure of a helper", _model("for n in J(self.names):" + _APPLY, f"self.names = {_N}", "from lib import J") + _f("lib.py", "def make(u):\n    return lambda v: u(v)\nJ = make(frozenset().union)\n"), "pass", **_SEED)
_add("hash under another name", _model("x * float(bucket(self.n) % 97)", "self.n = 'relu'", "from builtins import hash as bucket"), "pass", **_SEED)

_add("is_shared of a tensor as a kept method", _model("x * (2.0 if self.f(self.v[0]) else 3.0)", "self.f, self.v = torch.Tensor.is_shared, [torch.ones(2)]"), "model.v = [torch.ones(2).share_memory_()]")
_add("is_inference of torch under another name", _model("x * (2.0 if inf(self.v[0]) else 3.0)", "self.v = [torch.ones(2)]", "from torch import is_inference as inf"), "model.v = [torch.inference_mode()(torch.ones)(2)]")
_add("is_leaf by a composed name", _model("x * (2.0 if getattr(self.v[0], 'is_' + self.k) else 3.0)", "self.k, self.v = 'leaf', [torch.ones(2, requires_grad=True)]"), "model.v = [torch.ones(2, requires_grad=True) * 1.0]")
_add("is_shared by a composed name", _model("x * (2.0 if getattr(self.v[0], 'is_' + self.k)() else 3.0)", "self.k, self.v = 'shared', [torch.ones(2)]"), "model.v = [torch.ones(2).share_memory_()]")
_add("grad of a constant by a composed name", _model("x * (2.0 if getattr(self.v[0], 'gr' + self.k) is None else 3.0)", "self.k, self.v = 'ad', [torch.ones(2, requires_grad=True)]"), "model.v[0].grad = torch.ones(2)")
_add("retains_grad of a constant", _model("x * (2.0 if not self.v[0].retains_grad else 3.0)", "self.v = [torch.ones(2, requires_grad=True) * 1.0]"), "model.v[0].retain_grad()")
_add("bytes of the storage through a kept method", _model("x * float(self.f(self.v[0]).nbytes())", "self.f, self.v = torch.Tensor.untyped_storage, [torch.ones(2)]"), "model.v = [torch.ones(5)[:2]]")
_add("number of dimensions' names through torch's function under another name", _model("x * (2.0 if cx(self.v[0]) else 3.0)", "self.v = [torch.ones(2, dtype=torch.cfloat)]", "from torch import is_conj as cx"), "model.v = [torch.ones(2, dtype=torch.cfloat).conj()]")
_add("sign of zero in a constant tensor", _model("x * torch.copysign(torch.ones(1), self.v[0])", "self.v = [torch.tensor([0.0])]"), "model.v = [torch.tensor([-0.0])]")

# ================================================================ fifth batch: C functions and attrgetters under other names
_LEAF = ("self.v = [torch.ones(2, requires_grad=True)]", "model.v = [torch.ones(2, requires_grad=True) * 1.0]")
_add("NaN constant in code with the same bits", _model("x * (2.0 if unset() in [self.pad] else 3.0)", "self.pad = unset()", "def unset():\n    return 1e999 - 1e999"), "import struct\nmodel.pad = struct.unpack('d', struct.pack('d', model.pad))[0]")
_add("complex NaN constant in code", _model("x * (2.0 if unset() in [self.pad] else 3.0)", "self.pad = unset()", "def unset():\n    return (1e999 - 1e999) * 1j"), "import struct\nf = lambda v: struct.unpack('d', struct.pack('d', v))[0]\nmodel.pad = complex(f(model.pad.real), f(model.pad.imag))")
_add("attrgetter of is_leaf as a global", _model("x * (2.0 if LEAF(self.v[0]) else 3.0)", _LEAF[0], "import operator\nLEAF = operator.attrgetter('is_leaf')"), _LEAF[1])
_add("attrgetter of grad in an attribute", _model("x * (2.0 if self.g(self.v[0]) is None else 3.0)", "self.g, self.v = operator.attrgetter('grad'), [torch.ones(2, requires_grad=True)]", "import operator"), "model.v[0].grad = torch.ones(2)")
_add("partial of getattr with is_leaf", _model("x * (2.0 if self.p(self.k) else 3.0)", _LEAF[0] + "\nself.k = 'is_leaf'\nself.p = functools.partial(getattr, self.v[0])", "import functools"), _LEAF[1] + "\nmodel.p = app.functools.partial(getattr, model.v[0])")
_add("getset descriptor of is_leaf kept in a table", _model("x * (2.0 if TAB['leaf'].__get__(self.v[0]) else 3.0)", _LEAF[0], "TAB = {'leaf': torch.Tensor.is_leaf}"), _LEAF[1])
_add("property alias on a user's class over is_leaf", _model("x * (2.0 if Look(self.v[0]).leaf else 3.0)", _LEAF[0], "import operator\nclass Look:\n    leaf = property(operator.attrgetter('t.is_leaf'))\n    def __init__(self, t):\n        self.t = t"), _LEAF[1])
_add("is_pinned or is_shared mapped from a list of methods", _model("x * (2.0 if any(f(self.v[0]) for f in self.fs) else 3.0)", "self.fs, self.v = [torch.Tensor.is_shared], [torch.ones(2)]"), "model.v = [torch.ones(2).share_memory_()]")
_add("is_set_to as a kept method", _model("x * (2.0 if self.f(self.v[0], self.v[1]) else 3.0)", "t = torch.ones(2)\nself.f, self.v = torch.Tensor.is_set_to, [t, t.view(2)]"), "model.v = [torch.ones(2), torch.ones(2)]")
_add("data_ptr as a kept method, two tensors", _model("x * (2.0 if self.f(self.v[0]) == self.f(self.v[1]) else 3.0)", "t = torch.ones(2)\nself.f, self.v = torch.Tensor.data_ptr, [t, t.view(2)]"), "model.v = [torch.ones(2), torch.ones(2)]")
_add("is_inference as a kept method", _model("x * (2.0 if self.f(self.v[0]) else 3.0)", "self.f, self.v = torch.Tensor.is_inference, [torch.ones(2)]"), "model.v = [torch.inference_mode()(torch.ones)(2)]")
_add("is_inference in a partial", _model("x * (2.0 if self.p() else 3.0)", "self.p = functools.partial(torch.is_inference, torch.ones(2))", "import functools"), "model.p = app.functools.partial(torch.is_inference, torch.inference_mode()(torch.ones)(2))")
_add("is_inference in a table of checks", _model("x * (2.0 if CHECKS['inf'](self.v[0]) else 3.0)", "self.v = [torch.ones(2)]", "CHECKS = {'inf': torch.is_inference, 'cx': torch.is_complex}"), "model.v = [torch.inference_mode()(torch.ones)(2)]")
_add("dict view difference counted by Counter", _model("for n in collections.Counter(minus(self.a.keys(), self.b.keys())):" + _APPLY, _VW, "import collections\nfrom operator import sub as minus"), "pass", **_SEED)
_add("dict view difference through dict.fromkeys", _model("for n in dict.fromkeys(minus(self.a.keys(), self.b.keys())):" + _APPLY, _VW, "from operator import sub as minus"), "pass", **_SEED)
_add("dict view difference through enumerate", _model("for i, n in enumerate(minus(self.a.keys(), self.b.keys())):" + _APPLY, _VW, "from operator import sub as minus"), "pass", **_SEED)
_add("dict view difference joined to a text and split", _model("for n in ' '.join(minus(self.a.keys(), self.b.keys())).split():" + _APPLY, _VW, "from operator import sub as minus"), "pass", **_SEED)
_add("dict view difference unpacked by a star", _model("a, *r = minus(self.a.keys(), self.b.keys())\nreturn getattr(torch, r[0])(x)", _VW, "from operator import sub as minus"), "pass", **_SEED)
