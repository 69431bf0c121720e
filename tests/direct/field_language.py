"""Corners of Python and NumPy through which a forward can reach a value. They are added to ``field_scenarios``."""

# fmt: off
from __future__ import annotations

from tests.direct.field_scenarios import _add, _model

_add("data descriptor's stored value on another object changes",
     _model("x * self.gain", "Model.gain.store['g'] = 2.0", """
class Gain:
    def __init__(self): self.store = {}
    def __get__(self, o, t=None):
        return self if o is None else self.store['g']
    def __set__(self, o, v): self.store['g'] = v
""").replace("class Model(nn.Module):", "class Model(nn.Module):\n    gain = Gain()"),
     "type(model).gain.store['g'] = 3.0")
_add("__getattr__ of a config falls back to a parent config whose value changes",
     _model("x * self.cfg.gain", "self.cfg = Cfg(Cfg(None, gain=2.0))", """
class Cfg:
    def __init__(self, parent, **kw):
        self.__dict__.update(kw); self.__dict__['parent'] = parent
    def __getattr__(self, n):
        if n.startswith('__') or self.__dict__.get('parent') is None: raise AttributeError(n)
        return getattr(self.parent, n)
"""), "model.cfg.parent.gain = 3.0")
_add("a nearer config shadows the parent's value",
     _model("x * self.cfg.gain", "self.cfg = Cfg(Cfg(None, gain=2.0))", """
class Cfg:
    def __init__(self, parent, **kw):
        self.__dict__.update(kw); self.__dict__['parent'] = parent
    def __getattr__(self, n):
        if n.startswith('__') or self.__dict__.get('parent') is None: raise AttributeError(n)
        return getattr(self.parent, n)
"""), "model.cfg.gain = 3.0")
_add("__getattribute__ logs and scales by a class counter",
     _model("x * self.cfg.gain", "self.cfg = Cfg()", """
class Cfg:
    factor = 2.0
    def __init__(self): self.gain = 1.5
    def __getattribute__(self, n):
        v = object.__getattribute__(self, n)
        if n == 'gain': return v * Cfg.factor
        return v
"""), "app.Cfg.factor = 3.0")
_add("slots object changes",
     _model("x * self.cfg.gain", "self.cfg = Cfg(2.0)", """
class Cfg:
    __slots__ = ('gain', '__weakref__')
    def __init__(self, g): self.gain = g
"""), "model.cfg.gain = 3.0")
_add("slot in base deleted so __getattr__ default is taken",
     _model("x * self.cfg.gain", "self.cfg = Cfg(2.0)", """
class Base:
    __slots__ = ('gain',)
class Cfg(Base):
    __slots__ = ()
    def __init__(self, g): self.gain = g
    def __getattr__(self, n):
        if n == 'gain': return 7.0
        raise AttributeError(n)
"""), "del model.cfg.gain")
_add("cached_property already filled with an older value",
     _model("x * self.cfg.gain", "self.cfg = Cfg(2.0)", """
import functools
class Cfg:
    def __init__(self, g): self.g = g
    @functools.cached_property
    def gain(self): return self.g + 1
"""), "model.cfg.__dict__['gain'] = 9.0")
_add("property reads a private cache on the module's class",
     _model("x * self.scale", "", "", """
_scales = {'m': 2.0}
@property
def scale(self): return self._scales['m']
"""), "type(model)._scales['m'] = 3.0")
_add("metaclass attribute read via class",
     _model("x * Cfg.gain", "", """
class Meta(type):
    gain = 2.0
class Cfg(metaclass=Meta): pass
"""), "app.Meta.gain = 3.0")
_add("metaclass property with store",
     _model("x * Cfg.gain", "", """
STORE = [2.0]
class Meta(type):
    @property
    def gain(cls): return STORE[0]
class Cfg(metaclass=Meta): pass
"""), "app.STORE[0] = 3.0")
_add("metaclass __getitem__ registry",
     _model("x * Reg['a'].gain", "", """
class Meta(type):
    table = {}
    def __getitem__(cls, k): return cls.table[k]
class Reg(metaclass=Meta): pass
class A: gain = 2.0
class B: gain = 3.0
Meta.table['a'] = A
"""), "app.Meta.table['a'] = app.B")
_add("__class_getitem__ with table",
     _model("x * Gains['a']", "", """
class Gains:
    table = {'a': 2.0}
    def __class_getitem__(cls, k): return cls.table[k]
"""), "app.Gains.table['a'] = 3.0")
_add("__set_name__ recorded names; descriptor renamed",
     _model("x * self.cfg.a", "self.cfg = Cfg()", """
class D:
    def __set_name__(self, o, n): self.n = n
    def __get__(self, o, t=None): return o.vals[self.n]
class Cfg:
    a = D()
    b = D()
    def __init__(self): self.vals = {'a': 2.0, 'b': 3.0}
"""), "app.Cfg.__dict__['a'].n = 'b'")
_add("dict subclass __missing__ with default attribute",
     _model("x * self.d['gain']", "self.d = D(default=2.0)", """
class D(dict):
    def __init__(self, default): self.default = default
    def __missing__(self, k): return self.default
"""), "model.d.default = 3.0")
_add("__index__ object used to index a list",
     _model("x * self.g[self.i]", "self.g = [2.0, 3.0]; self.i = I(0)", """
class I:
    def __init__(self, v): self.v = v
    def __index__(self): return self.v
"""), "model.i.v = 1")
_add("__len__ and __getitem__ protocol iteration over own sequence",
     _model("for g in self.seq:\n    x = x * g\nreturn x", "self.seq = Seq([2.0, 1.5])", """
class Seq:
    def __init__(self, v): self.v = v
    def __len__(self): return len(self.v)
    def __getitem__(self, i): return self.v[i]
"""), "model.seq.v.append(4.0)")
_add("__contains__ with a tuple of enabled features",
     _model("x * 2 if 'fast' in self.f else x", "self.f = Feat(('slow',))", """
class Feat:
    def __init__(self, names): self.names = names
    def __contains__(self, n): return any(n == m for m in self.names)
"""), "model.f.names = ('slow', 'fast')")
_add("__format__ decides the key",
     _model("x * self.t[f'{self.n:k}']", "self.t = {'a-k': 2.0, 'b-k': 3.0}; self.n = N('a')", """
class N:
    def __init__(self, v): self.v = v
    def __format__(self, s): return self.v + '-' + s
"""), "model.n.v = 'b'")
_add("__bool__ of a switch",
     _model("x * 2 if self.on else x", "self.on = On(0)", """
class On:
    def __init__(self, v): self.v = v
    def __bool__(self): return self.v > 0
"""), "model.on.v = 1")
_add("reflected operator of an own scalar class",
     _model("x * (2 - self.o)", "self.o = O(1)", """
class O:
    def __init__(self, v): self.v = v
    def __rsub__(self, other): return other - self.v * 1.5
"""), "model.o.v = 0.5")
_add("subclass's reflected operator gains priority via class change",
     _model("x * (self.a + self.b)", "self.a = A(1.0); self.b = A(2.0)", """
class A:
    def __init__(self, v): self.v = v
    def __add__(self, o): return self.v + o.v
class B(A):
    def __radd__(self, o): return 10.0
"""), "model.b.__class__ = app.B")
_add("__eq__ override in match value pattern",
     _model("match self.mode:\n    case Names.A:\n        return x * 2\n    case _:\n        return x * 3", "self.mode = 'a'", """
class Names:
    A = 'a'
"""), "app.Names.A = 'b'")
_add("match class pattern __match_args__ order changed",
     _model("match self.p:\n    case P(a, b):\n        return x * a - b", "self.p = P(); self.p.a = 2.0; self.p.b = 1.0", """
class P:
    __match_args__ = ('a', 'b')
"""), "app.P.__match_args__ = ('b', 'a')")
_add("match mapping pattern with more keys",
     _model("match self.d:\n    case {'gain': g, 'bias': b}:\n        return x * g + b\n    case {'gain': g}:\n        return x * g", "self.d = {'gain': 2.0}"), "model.d['bias'] = 1.0")
_add("late-binding closure cell",
     _model("x * self.fs[0]()", "self.fs, self.setter = make()", """
def make():
    k = 2.0
    def f(): return k
    def s(v):
        nonlocal k
        k = v
    return [f], s
"""), "model.setter(3.0)")
_add("cell contents assigned via __closure__",
     _model("x * self.f()", "self.f = make(2.0)", """
def make(k):
    return lambda: k
"""), "model.f.__closure__[0].cell_contents = 3.0")
_add("default argument __defaults__ replaced",
     _model("scale(x)", "", """
def scale(x, k=2.0): return x * k
"""), "app.scale.__defaults__ = (3.0,)")
_add("__kwdefaults__ mutated in place",
     _model("scale(x)", "", """
def scale(x, *, k=2.0): return x * k
"""), "app.scale.__kwdefaults__['k'] = 3.0")
_add("mutable default list mutated",
     _model("scale(x)", "", """
def scale(x, k=[2.0]): return x * k[0]
"""), "app.scale.__defaults__[0][0] = 3.0")
_add("star kwargs order matters",
     _model("for k, v in self.kw.items():\n    x = x * v + 1\nreturn x", "self.kw = dict(a=2.0, b=3.0)"), "model.kw = dict(b=3.0, a=2.0)")
_add("star args tuple into function with kwargs order",
     _model("f(x, **self.kw)", "self.kw = dict(a=2.0, b=3.0)", """
def f(x, **kw):
    for v in kw.values(): x = x * v + 1
    return x
"""), "model.kw = dict(b=3.0, a=2.0)")
_add("int to float scalar equal values", _model("x.int() * self.k", "self.k = 2"), "model.k = 2.0")
_add("True to 1", _model("(x > 0) * self.k", "self.k = True"), "model.k = 1")
_add("0.0 to -0.0", _model("torch.copysign(x, torch.full_like(x, self.k))", "self.k = 0.0"), "model.k = -0.0")
_add("-0.0 in a tuple constant in a default", _model("f(x)", "", "def f(x, k=(0.0, 1.0)): return torch.copysign(x, torch.full_like(x, k[0]))"), "app.f.__defaults__ = ((-0.0, 1.0),)")
_add("complex constant's imaginary zero sign", _model("torch.copysign(x, torch.full_like(x, self.c.imag))", "self.c = complex(1.0, 0.0)"), "model.c = complex(1.0, -0.0)")
_add("dict key 1 vs True vs 1.0", _model("x.int() * list(self.d)[0]", "self.d = {1: 'a'}"), "model.d = {1.0: 'a'}")
_add("big int", _model("x * (self.k % 7)", "self.k = 10**30"), "model.k = 10**30 + 1")
_add("bytes table", _model("x * self.b[0]", "self.b = b'\\x02\\x03'"), "model.b = b'\\x03\\x03'")
_add("struct unpacked header", _model("x * struct.unpack('<f', self.b)[0]", "self.b = struct.pack('<f', 2.0)", "import struct"), "import struct; model.b = struct.pack('<f', 3.0)")
_add("range", _model("for i in self.r:\n    x = x + i\nreturn x", "self.r = range(0, 4, 2)"), "model.r = range(0, 4, 1)")
_add("equal ranges differ in stop", _model("x * self.r.stop", "self.r = range(0, 3, 2)"), "model.r = range(0, 4, 2)")
_add("slice", _model("x[self.s]", "self.s = slice(0, 2)"), "model.s = slice(0, 1)")
_add("Fraction", _model("x * float(self.f)", "self.f = Fraction(1, 2)", "from fractions import Fraction"), "from fractions import Fraction; model.f = Fraction(1, 3)")
_add("Decimal exponent", _model("x * -self.f.as_tuple().exponent", "self.f = Decimal('1.0')", "from decimal import Decimal"), "from decimal import Decimal; model.f = Decimal('1.00')")
_add("Decimal context precision", _model("x * float(Decimal(1) / self.f)", "self.f = Decimal('3')", "from decimal import Decimal"), "import decimal; decimal.getcontext().prec = 3")
_add("date", _model("x * self.d.day", "self.d = datetime.date(2024, 1, 2)", "import datetime"), "import datetime; model.d = datetime.date(2024, 1, 3)")
_add("datetime fold (again)", _model("x * self.d.fold", "self.d = datetime.datetime(2024, 1, 2)", "import datetime"), "model.d = model.d.replace(fold=1)")
_add("timedelta", _model("x * self.d.total_seconds()", "self.d = datetime.timedelta(seconds=2)", "import datetime"), "import datetime; model.d = datetime.timedelta(seconds=3)")
_add("timezone-aware datetime with another zone equal instant", _model("x * self.d.hour", "self.d = datetime.datetime(2024, 1, 2, 3, tzinfo=datetime.timezone.utc)", "import datetime"), "import datetime; model.d = model.d.astimezone(datetime.timezone(datetime.timedelta(hours=2)))")
_add("zoneinfo", _model("x * (self.d.utcoffset().total_seconds() / 3600)", "self.d = datetime.datetime(2024, 1, 2, 3, tzinfo=zoneinfo.ZoneInfo('Europe/Berlin'))", "import datetime, zoneinfo"), "import zoneinfo; model.d = model.d.replace(tzinfo=zoneinfo.ZoneInfo('Europe/London'))")
_add("UUID", _model("x * (self.u.int % 7)", "self.u = uuid.UUID(int=2)", "import uuid"), "import uuid; model.u = uuid.UUID(int=3)")
_add("UUID is_safe", _model("x * self.u.is_safe.value", "self.u = uuid.UUID(int=2, is_safe=uuid.SafeUUID.safe)", "import uuid"), "import uuid; model.u = uuid.UUID(int=2, is_safe=uuid.SafeUUID.unsafe)")
_add("enum Flag member", _model("x * 2 if F2.FAST in self.f else x", "self.f = F2.SAFE", """
import enum
class F2(enum.Flag):
    SAFE = 1
    FAST = 2
"""), "model.f = app.F2.SAFE | app.F2.FAST")
_add("enum value edited", _model("x * self.f.value", "self.f = E.A", """
import enum
class E(enum.Enum):
    A = 2
    B = 3
"""), "", ("A = 2", "A = 4"))
_add("enum alias points elsewhere", _model("x * E.DEFAULT.value", "", """
import enum
class E(enum.Enum):
    A = 2
    B = 3
    DEFAULT = 2
"""), "", ("DEFAULT = 2", "DEFAULT = 3"))
_add("enum member gets attribute", _model("x * self.f.gain", "self.f = E.A", """
import enum
class E(enum.Enum):
    A = 2
    B = 3
E.A.gain = 1.5
"""), "app.E.A.gain = 2.5")
_add("generic alias args", _model("x * len(typing.get_args(self.t))", "self.t = dict[str, int]", "import typing"), "model.t = tuple[str, int, int]")
_add("typing.Literal values", _model("x * typing.get_args(MODE)[0]", "", "import typing\nMODE = typing.Literal[2, 3]"), "import typing; app.MODE = typing.Literal[3, 2]")
_add("Union type args", _model("x.to(torch.float64) if isinstance(self.v, U) else x", "self.v = 3", "U = str | float"), "app.U = str | int")
_add("NewType supertype", _model("x * (2 if NT.__supertype__ == int else 3)", "", "import typing\nNT = typing.NewType('NT', int)"), "import typing; app.NT = typing.NewType('NT', float)")
_add("ForwardRef", _model("x * len(self.t.__forward_arg__)", "self.t = typing.ForwardRef('ab')", "import typing"), "import typing; model.t = typing.ForwardRef('abc')")

_add("weakref target replaced", _model("x * self.r().v", "self.keep = [Box(2.0), Box(3.0)]; self.r = weakref.ref(self.keep[0])", """
import weakref
class Box:
    def __init__(self, v): self.v = v
"""), "import weakref; model.r = weakref.ref(model.keep[1])")
_add("contextvar", _model("x * CV.get()", "", "import contextvars\nCV = contextvars.ContextVar('cv', default=2.0)"), "app.CV.set(3.0)")
_add("contextvar default edited", _model("x * CV.get()", "", "import contextvars\nCV = contextvars.ContextVar('cv', default=2.0)"), "", ("default=2.0", "default=3.0"))
_add("deque maxlen (again)", _model("x * self.d.maxlen", "self.d = collections.deque([1], maxlen=2)", "import collections"), "import collections; model.d = collections.deque([1], maxlen=3)")
_add("deque rotates", _model("x * self.d[0]", "self.d = collections.deque([2.0, 3.0])", "import collections"), "model.d.rotate(1)")
_add("heap", _model("x * heapq.nsmallest(1, self.h)[0]", "self.h = [2.0, 5.0]", "import heapq"), "import heapq; heapq.heappush(model.h, 1.5)")
_add("ChainMap new child", _model("x * self.c['a']", "self.c = collections.ChainMap({}, {'a': 2.0})", "import collections"), "model.c['a'] = 3.0")
_add("Counter missing", _model("x * self.c['q'] + x", "self.c = collections.Counter('aab')", "import collections"), "model.c.update('q')")
_add("Counter most_common tie order", _model("x * (2 if self.c.most_common(1)[0][0] == 'a' else 3)", "self.c = collections.Counter('ab')", "import collections"), "import collections; model.c = collections.Counter('ba')")
_add("UserDict", _model("x * self.c['a']", "self.c = collections.UserDict(a=2.0)", "import collections"), "model.c.data['a'] = 3.0")
_add("MappingProxy of a dict", _model("x * self.c['a']", "self.base = {'a': 2.0}; self.c = types.MappingProxyType(self.base)", "import types"), "model.base['a'] = 3.0")
_add("SimpleNamespace", _model("x * self.c.a", "self.c = types.SimpleNamespace(a=2.0)", "import types"), "model.c.a = 3.0")
_add("OrderedDict move_to_end", _model("for k in self.c:\n    x = x * self.c[k] + 1\nreturn x", "self.c = collections.OrderedDict(a=2.0, b=3.0)", "import collections"), "model.c.move_to_end('a')")
_add("OrderedDict's inner dict and links disagree", _model("for k, v in self.c.items():\n    x = x * v + 1\nreturn x", "self.c = collections.OrderedDict(a=2.0, b=3.0)", "import collections"), "dict.__setitem__(model.c, 'b', 5.0)")
_add("itemgetter", _model("x * self.g([2.0, 3.0])", "self.g = operator.itemgetter(0)", "import operator"), "import operator; model.g = operator.itemgetter(1)")
_add("attrgetter nested", _model("x * self.g(self.c)", "self.c = types.SimpleNamespace(a=types.SimpleNamespace(b=2.0)); self.g = operator.attrgetter('a.b')", "import operator, types"), "model.c.a.b = 3.0")
_add("partial keywords", _model("self.g(x)", "self.g = functools.partial(f, k=2.0)", "import functools\ndef f(x, k): return x * k"), "model.g.keywords['k'] = 3.0")
_add("partial attribute __dict__", _model("self.g(x) * self.g.extra", "self.g = functools.partial(f, k=2.0); self.g.extra = 2.0", "import functools\ndef f(x, k): return x * k"), "model.g.extra = 3.0")
_add("partialmethod", _model("self.half(x)", "", "import functools", "def m(self, x, k): return x * k\nhalf = functools.partialmethod(m, k=2.0)"), "type(model).__dict__['half'].keywords['k'] = 3.0")
_add("functools.cache filled with stale", _model("x * gain('a')", "gain('a')", "import functools\nT = {'a': 2.0}\n@functools.cache\ndef gain(n): return T[n]"), "app.T['a'] = 3.0; app.gain.cache_clear()")
_add("total_ordering", _model("x * 2 if self.a >= self.b else x", "self.a = V(1); self.b = V(2)", """
import functools
@functools.total_ordering
class V:
    def __init__(self, v): self.v = v
    def __eq__(self, o): return self.v == o.v
    def __lt__(self, o): return self.v < o.v
"""), "model.a.v = 3")
_add("abc registration", _model("x * 2 if isinstance(self.o, Fast) else x", "self.o = T()", "import abc\nclass Fast(abc.ABC): pass\nclass T: pass"), "app.Fast.register(app.T)")
_add("abc __subclasshook__", _model("x * 2 if isinstance(self.o, Fast) else x", "self.o = T()", "import abc\nclass Fast(abc.ABC):\n    @classmethod\n    def __subclasshook__(cls, c): return hasattr(c, 'fast') or NotImplemented\nclass T: pass"), "app.T.fast = 1")
_add("runtime protocol", _model("x * 2 if isinstance(self.o, P) else x", "self.o = T()", "import typing\n@typing.runtime_checkable\nclass P(typing.Protocol):\n    fast: int\nclass T: pass"), "model.o.fast = 1")
_add("collections.abc registration", _model("x * 2 if isinstance(self.o, collections.abc.Sequence) else x", "self.o = T()", "import collections.abc\nclass T: pass"), "import collections.abc; collections.abc.Sequence.register(app.T)")
_add("numbers registration", _model("x * 2 if isinstance(self.o, numbers.Number) else x", "self.o = T()", "import numbers\nclass T: pass"), "import numbers; numbers.Number.register(app.T)")
_add("exception attribute", _model("try:\n    check()\nexcept MyErr as e:\n    return x * e.gain\nreturn x", "", "class MyErr(Exception):\n    gain = 2.0\ndef check(): raise MyErr()"), "app.MyErr.gain = 3.0")
_add("exception base changes the handler", _model("try:\n    check()\nexcept Low:\n    return x * 2\nexcept Exception:\n    return x * 3", "", "class Low(Exception): pass\nclass High(Exception): pass\nERR = Low\ndef check(): raise ERR()"), "app.ERR = app.High")
_add("exception group split", _model("try:\n    raise ExceptionGroup('g', [E() for E in ERRS])\nexcept* ValueError as eg:\n    x = x * len(eg.exceptions)\nexcept* TypeError as eg:\n    x = x + len(eg.exceptions)\nreturn x", "", "ERRS = [ValueError, TypeError]"), "app.ERRS.append(ValueError)")
_add("__notes__ read", _model("try:\n    check()\nexcept ValueError as e:\n    return x * len(e.__notes__)", "", "NOTES = ['a', 'b']\ndef check():\n    e = ValueError()\n    for n in NOTES: e.add_note(n)\n    raise e"), "app.NOTES.append('c')")
_add("warnings as error", _model("import warnings\ntry:\n    warnings.warn('x', DeprecationWarning)\nexcept DeprecationWarning:\n    return x * 3\nreturn x * 2", ""), "import warnings; warnings.simplefilter('error', DeprecationWarning)")
_add("inspect.signature default", _model("x * inspect.signature(f).parameters['k'].default", "", "import inspect\ndef f(k=2.0): pass"), "app.f.__defaults__ = (3.0,)")
_add("inspect.signature via __signature__", _model("x * inspect.signature(f).parameters['k'].default", "", "import inspect\ndef f(k=2.0): pass"), "import inspect; app.f.__signature__ = inspect.Signature([inspect.Parameter('k', inspect.Parameter.KEYWORD_ONLY, default=3.0)])")
_add("FunctionType with other globals", _model("x * self.f()", "self.f = types.FunctionType(g.__code__, {'K': 2.0})", "import types\nK = 1.0\ndef g(): return K"), "model.f.__globals__['K'] = 3.0")
_add("CodeType.replace consts", _model("x * g()", "", "def g(): return 2.0"), "app.g.__code__ = app.g.__code__.replace(co_consts=tuple(3.0 if c == 2.0 else c for c in app.g.__code__.co_consts))")
_add("importlib.resources data file", _model("x * self.k", "import importlib.resources as r; self.k = float(r.files('pkg').joinpath('k.txt').read_text())") + "--- pkg/__init__.py\n--- pkg/k.txt\n2.0\n", "model.k = 3.0")
_add("json config read in init", _model("x * self.c['a']['k']", "import json, pathlib; self.c = json.loads(pathlib.Path(__file__).with_name('c.json').read_text())") + "--- c.json\n{\"a\": {\"k\": 2.0}}\n", "", ('"k": 2.0', '"k": 3.0'))
_add("marshal loads", _model("x * marshal.loads(self.b)", "self.b = marshal.dumps(2.0)", "import marshal"), "import marshal; model.b = marshal.dumps(3.0)")
_add("sqlite in memory at init", _model("x * self.k", "import sqlite3; c = sqlite3.connect(':memory:'); self.k = c.execute('select 2.0').fetchone()[0]"), "model.k = 3.0")
_add("textwrap width", _model("x * len(self.w.wrap('aa bb cc dd'))", "self.w = textwrap.TextWrapper(width=5)", "import textwrap"), "model.w.width = 3")
_add("compiled regex flags (again)", _model("x * len(self.r.findall('aA'))", "self.r = re.compile('a')", "import re"), "import re; model.r = re.compile('a', re.I)")
_add("unicode normalization differs", _model("x * (2 if unicodedata.normalize('NFC', self.s) == self.s else 3)", "self.s = '\\u00e9'", "import unicodedata"), "model.s = 'e\\u0301'")
_add("surrogate string", _model("x * len(self.s.encode('utf-8', 'surrogatepass'))", "self.s = '\\ud800'"), "model.s = '\\ud800\\udc00'")
_add("statistics mean", _model("x * statistics.mean(self.v)", "self.v = [1.0, 3.0]", "import statistics"), "model.v.append(8.0)")
_add("bisect key", _model("x * bisect.bisect(self.v, 2)", "self.v = [1, 2, 3]", "import bisect"), "model.v[1] = 5")
_add("random seeded Random in init", _model("x * self.k", "import random; self.k = random.Random(self.seed).random()", "", "seed = 1"), "", ("seed = 1", "seed = 2"))
_add("numpy scalar dtype equal value", _model("x.to(torch.from_numpy(np.zeros(1, self.k.dtype)).dtype)", "self.k = np.float32(1)", "import numpy as np"), "import numpy as np; model.k = np.float64(1)")
_add("numpy array strides same values", _model("x * self.a.strides[0]", "self.a = np.ones((2, 3))", "import numpy as np"), "import numpy as np; model.a = np.asfortranarray(model.a)")
_add("numpy array written", _model("x * float(self.a[0])", "self.a = np.array([2.0])", "import numpy as np"), "model.a[0] = 3.0")
_add("numpy flags writeable", _model("x * (2 if self.a.flags.writeable else 3)", "self.a = np.array([2.0])", "import numpy as np"), "model.a.flags.writeable = False")
_add("numpy byte order (again)", _model("x * (2 if self.d.isnative else 3)", "self.d = np.dtype('<f4')", "import numpy as np"), "import numpy as np; model.d = np.dtype('>f4')")
_add("tensor constant value", _model("x * self.t", "self.t = torch.tensor(2.0)"), "model.t.fill_(3.0)")
_add("tensor constant strides read", _model("x * self.t.stride(0)", "self.t = torch.ones(2, 3)"), "model.t = torch.ones(3, 2).t()")
_add("tensor requires_grad read", _model("x * 2 if self.t.requires_grad else x", "self.t = torch.ones(2, 3)"), "model.t.requires_grad_()")
_add("tensor storage_offset", _model("x * (1 + self.t.storage_offset())", "self.t = torch.ones(4)[:2]"), "model.t = torch.ones(4)[2:]")
_add("torch.Size", _model("x * self.s.numel()", "self.s = torch.Size([2])"), "model.s = torch.Size([3])")
_add("torch.Size becomes tuple", _model("x * 2 if isinstance(self.s, torch.Size) else x", "self.s = torch.Size([2])"), "model.s = (2,)")
_add("dtype table", _model("x.to(TABLE['a'])", "", "TABLE = {'a': torch.float64}"), "app.TABLE['a'] = torch.float16")
_add("device index", _model("x * 2 if self.d.index is None else x", "self.d = torch.device('cpu')"), "model.d = torch.device('cpu', 0)")
_add("ParameterDict order", _model("for p in self.pd.values():\n    x = x * p + 1\nreturn x", "self.pd = nn.ParameterDict({'a': torch.ones(1) * 2, 'b': torch.ones(1)})"), "p = model.pd.pop('a'); model.pd['a'] = p")
_add("buffer persistent flag", _model("x * self.b", "self.register_buffer('b', torch.ones(1) * 2)"), "b = model.b; del model.b; model.register_buffer('b', b * 2, persistent=False)")
_add("non-persistent buffer value", _model("x * (2 if self.b[0].item() > 1 else 3)", "self.register_buffer('b', torch.ones(1) * 2, persistent=False)").replace("self.b[0].item() > 1", "self.b.shape[0] > 1") , "model.b = torch.ones(3)")
_add("forward pre-hook with kwargs", _model("x * 2", ""), "model.register_forward_pre_hook(lambda m, a, k: ((a[0] + 1,), k), with_kwargs=True)")
_add("forward hook with kwargs closure value", _model("self.lin(x)", "k = [2.0]; self.k = k; self.lin.register_forward_hook(lambda m, a, kw, o: o * k[0], with_kwargs=True)"), "model.k[0] = 3.0")
_add("parametrize", _model("self.lin(x)", "P.register_parametrization(self.lin, 'weight', Sc(2.0))", "import torch.nn.utils.parametrize as P\nclass Sc(nn.Module):\n    def __init__(self, k):\n        super().__init__(); self.k = k\n    def forward(self, w): return w * self.k"), "model.lin.parametrizations.weight[0].k = 3.0")
_add("module __dict__ shadows parameter", _model("x * self.w", "self.w = nn.Parameter(torch.ones(4))"), "model.__dict__['w'] = 3.0")
_add("weights retrained", _model("self.lin(x)"), "model.lin.weight.data.mul_(2)", harmless=True)
_add("unused global changes", _model("x * 2", "", "UNUSED = 1"), "app.UNUSED = 2", harmless=True)
_add("comment in app.py", _model("x * 2", "", "# hello"), "", ("# hello", "# hallo"), harmless=True)
_add("unread attribute of other module changes", _model("x * cfg.A", "", "import cfg") + "--- cfg.py\nA = 2.0\nB = 3.0\n", "", ("B = 3.0", "B = 4.0"), harmless=True)
_add("input values differ", _model("x * 2"), "args = (args[0] + 1,)", harmless=True)
_add("numpy seed", _model("x * 2", "", "import numpy as np"), "import numpy as np; np.random.seed(5)", harmless=True)
_add("persistent buffer value", _model("x * self.b", "self.register_buffer('b', torch.ones(1))"), "model.b.fill_(3.0)", harmless=True)

_add("order of an int set built otherwise", _model("for i in self.s:\n    x = x * 2 + i\nreturn x", "self.s = set(); self.s.add(0); self.s.add(8)"), "s = set(); s.add(8); s.add(0); model.s = s")
_add("order of an int frozenset built otherwise", _model("for i in self.s:\n    x = x * 2 + i\nreturn x", "self.s = frozenset([0, 8])"), "model.s = frozenset([8, 0])")
_add("int set literal order in code", _model("for i in {0, 8}:\n    x = x * 2 + i\nreturn x"), "", ("{0, 8}", "{8, 0}"))
_add("set literal sum harmless membership", _model("x * 2 if self.k in {1, 2} else x", "self.k = 1"), "model.k = 3")
_add("abc negative cache filled before registration attribute appears", _model("x * 2 if isinstance(self.o, Fast) else x", "self.o = T()", "import abc\nclass Fast(abc.ABC):\n    @classmethod\n    def __subclasshook__(cls, c): return hasattr(c, 'fast') or NotImplemented\nclass T:\n    fast = 1"), "app.Fast._abc_caches_clear(); del app.T.fast; isinstance(model.o, app.Fast); app.T.fast = 1")
_add("abc negative cache filled in the second process", _model("x * 2 if isinstance(self.o, Fast) else x", "self.o = T()", "import abc\nclass Fast(abc.ABC):\n    @classmethod\n    def __subclasshook__(cls, c): return hasattr(c, 'fast') or NotImplemented\nclass T:\n    fast = 1"), "del app.T.fast; isinstance(model.o, app.Fast); app.T.fast = 1", live=False)
_add("runtime protocol cache for a class-only check", _model("x * 2 if issubclass(type(self.o), P) else x", "self.o = T()", "import typing\n@typing.runtime_checkable\nclass P(typing.Protocol):\n    def fast(self): ...\nclass T:\n    def fast(self): return 1"), "f = app.T.fast; del app.T.fast; issubclass(app.T, app.P); app.T.fast = f", live=False)
_add("order of class attributes", _model("for k, v in vars(Cfg).items():\n    if k.startswith('g'):\n        x = x * v + 1\nreturn x", "", "class Cfg:\n    ga = 2.0\n    gb = 3.0"), "", ("ga = 2.0\n    gb = 3.0", "gb = 3.0\n    ga = 2.0"))
_add("order of module attributes", _model("for k, v in vars(consts).items():\n    if k.startswith('G'):\n        x = x * v + 1\nreturn x", "", "import consts") + "--- consts.py\nGA = 2.0\nGB = 3.0\n", "", ("GA = 2.0\nGB = 3.0", "GB = 3.0\nGA = 2.0"))
_add("order of instance attributes", _model("for v in vars(self.c).values():\n    x = x * v + 1\nreturn x", "self.c = C()", "class C:\n    def __init__(self):\n        self.a = 2.0\n        self.b = 3.0"), "a = model.c.a; del model.c.a; model.c.a = a")
_add("order of function attributes", _model("for v in vars(f).values():\n    x = x * v + 1\nreturn x", "", "def f(): pass\nf.a = 2.0\nf.b = 3.0"), "a = app.f.a; del app.f.a; app.f.a = a")
_add("enum member order", _model("for m in E:\n    x = x * m.value + 1\nreturn x", "", "import enum\nclass E(enum.Enum):\n    A = 2.0\n    B = 3.0"), "", ("A = 2.0\n    B = 3.0", "B = 3.0\n    A = 2.0"))
_add("enum _member_names_ order", _model("for m in E:\n    x = x * m.value + 1\nreturn x", "", "import enum\nclass E(enum.Enum):\n    A = 2.0\n    B = 3.0"), "app.E._member_names_.reverse()")
_add("sign of a nan attribute", _model("x * math.copysign(1.0, self.n)", "self.n = float('nan')", "import math"), "model.n = -float('nan')")
_add("nan payload via struct", _model("x * struct.pack('<d', self.n)[0]", "self.n = float('nan')", "import struct"), "import struct; model.n = struct.unpack('<d', b'\\x05\\0\\0\\0\\0\\0\\xf8\\x7f')[0]")
_add("nan identity in list", _model("x * 2 if self.n in self.l else x", "self.n = float('nan'); self.l = [self.n]"), "model.l = [float('nan')]")
_add("nan as dict key", _model("x * self.d.get(self.n, 5.0)", "self.n = float('nan'); self.d = {self.n: 2.0}"), "model.d = {float('nan'): 2.0}")
_add("nan in complex", _model("x * math.copysign(1.0, self.c.imag)", "self.c = complex(1.0, float('nan'))", "import math"), "model.c = complex(1.0, -float('nan'))")
_add("Decimal nan payload", _model("x * len(self.d.as_tuple().digits)", "self.d = Decimal('NaN1')", "from decimal import Decimal"), "from decimal import Decimal; model.d = Decimal('NaN12')")
_add("numpy scalar nan sign", _model("x * float(np.copysign(1.0, self.n))", "self.n = np.float64('nan')", "import numpy as np"), "import numpy as np; model.n = -np.float64('nan')")
_add("try moved without other instructions", _model("f(x)", "", "def f(x):\n    y = g()\n    try: z = h()\n    except ValueError: y = z = 5.0\n    return x * y * z\ndef h(): return 2.0\ndef g(): raise ValueError") .replace("f(x)\n", "k(x)\n", 1).replace("def h()", "def k(x):\n    try:\n        return f(x)\n    except ValueError:\n        return x * 3\ndef h()"), "", ("y = g()\n    try: z = h()", "try: y = g(); z = h()"))
_add("exception table removed from code", _model("k(x)", "", "def f(x):\n    try: y = g()\n    except ValueError: y = 2.0\n    return x * y\ndef k(x):\n    try:\n        return f(x)\n    except ValueError:\n        return x * 3\ndef g(): raise ValueError"), "app.f.__code__ = app.f.__code__.replace(co_exceptiontable=b'')")
_add("app gets its own len", _model("x * len(self.l)", "self.l = [1, 2]"), "app.len = sum")
_add("a name appears in builtins", _model("try:\n    return x * GAIN\nexcept NameError:\n    return x"), "import builtins; builtins.GAIN = 3.0")
_add("timezone name", _model("x * len(self.d.tzname())", "self.d = datetime.datetime(2024, 1, 2, 3, tzinfo=datetime.timezone(datetime.timedelta(hours=1), 'A'))", "import datetime"), "import datetime; model.d = model.d.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=1), 'ABC'))")
_add("event set", _model("x * 2 if self.e.is_set() else x", "self.e = threading.Event()", "import threading"), "model.e.set()")
_add("bound method of a weight", _model("self.f(x)", "self.f = self.lin.weight[0].detach().mul"), "model.lin.weight.data.mul_(3)")
_add("bound method of the parameter itself", _model("self.f(x)", "self.w = nn.Parameter(torch.ones(4)); self.f = self.w.mul"), "model.w.data.mul_(3)")
_add("a view of a weight kept in a tuple", _model("x * self.v[0]", "self.v = (self.lin.weight.detach()[0],)"), "model.lin.weight.data.mul_(3)")
_add("numpy view of a weight", _model("x * float(self.v[0, 0])", "self.v = self.lin.weight.detach().numpy()"), "model.lin.weight.data.mul_(3)")
_add("a partial with a weight", _model("self.p(x)", "self.p = functools.partial(torch.mul, self.lin.weight[0].detach())", "import functools"), "model.lin.weight.data.mul_(3)")
_add("a partial holding a parameter", _model("self.p(x)", "self.w = nn.Parameter(torch.ones(4)); self.p = functools.partial(torch.mul, self.w)", "import functools"), "model.w.data.mul_(3)")
_add("weakref to a parameter", _model("x * self.r()", "self.w = nn.Parameter(torch.ones(4)); self.r = weakref.ref(self.w)", "import weakref"), "model.w.data.mul_(3)")
_add("LSTM retrained", _model("self.l(x)[0]", "self.l = nn.LSTM(4, 4)"), "model.l.weight_ih_l0.data.mul_(3)", harmless=True)
_add("constants share storage", _model("x * 2 if self.a.is_set_to(self.b) else x", "self.a = torch.ones(4); self.b = self.a[:]"), "model.b = torch.ones(4)")
_add("dtype of an unused parameter read", _model("x.to(self.lin.bias.dtype)"), "model.lin.bias.data = model.lin.bias.data.double()")

_CONSTS = "--- consts.py\nGAIN = 2\nOTHER = 3\n"
_E = ("GAIN = 2\n", "GAIN = 4\n")
_add("format with composed template", _model("x * TABLE['{0.%s}'.lower().replace('%s', 'gain'.upper()).format(consts)]", "", "import consts\nTABLE = {'2': 2.0, '4': 3.0}") + _CONSTS, "", _E)
_add("format template from data bytes", _model("x * TABLE[self.b.decode().format(consts)]", "self.b = bytes([123, 48, 46, 71, 65, 73, 78, 125])", "import consts\nTABLE = {'2': 2.0, '4': 3.0}") + _CONSTS, "", _E)
_add("string.Formatter get_field", _model("x * string.Formatter().get_field('0.' + self.n.upper(), (consts,), {})[0]", "self.n = 'gain'", "import consts, string") + _CONSTS, "", _E)
_add("percent with vars of module", _model("x * TABLE['%(GAIN)s' % vars(consts)]", "", "import consts\nTABLE = {'2': 2.0, '4': 3.0}") + _CONSTS, "", _E)
_add("getattr with upper name", _model("x * getattr(consts, self.n.upper())", "self.n = 'gain'", "import consts") + _CONSTS, "", _E)
_add("module __dict__ get with joined name", _model("x * consts.__dict__[''.join(self.n)]", "self.n = ['GA', 'IN']", "import consts") + _CONSTS, "", _E)
_add("module object's __getattribute__", _model("x * consts.__getattribute__(self.n.upper())", "self.n = 'gain'", "import consts") + _CONSTS, "", _E)
_add("module reached through an object's attribute", _model("x * self.holder.mod.GAIN", "import types, consts; self.holder = types.SimpleNamespace(mod=consts)") + _CONSTS, "", _E)
_add("match class pattern on a module", _model("match consts:\n    case object(GAIN=g):\n        return x * g", "", "import consts") + _CONSTS, "", _E)
_add("from import inside forward", _model("from consts import GAIN\nreturn x * GAIN") + _CONSTS, "", _E)
_add("star import in app", _model("x * GAIN", "", "from consts import *") + _CONSTS + "__all__ = ['OTHER', 'GAIN']\n", "", _E)
_add("pkg __all__ read", _model("x * len(consts.__all__)", "", "import consts") + _CONSTS + "__all__ = ['GAIN']\n", "", ("__all__ = ['GAIN']", "__all__ = ['GAIN', 'OTHER']"))
_add("d: module doc read", _model("x * len(consts.__doc__)", "", "import consts") + "--- consts.py\n", "", added="" or None) if False else None
_add("submodule appears as attribute", _model("x * (2 if hasattr(pkg, 'sub') else 3)", "", "import pkg") + "--- pkg/__init__.py\nA = 1\n--- pkg/sub.py\nB = 2\n", "import pkg.sub")
_add("module __class__ with a property", _model("x * consts.gain", "", "import consts") + "--- consts.py\nimport sys, types\nclass M(types.ModuleType):\n    @property\n    def gain(self): return self._g\nsys.modules[__name__].__class__ = M\n_g = 2.0\n", "import consts; consts._g = 3.0")
_add("float subclass with attribute", _model("x * self.p.extra", "self.p = P(1); self.p.extra = 2.0", "class P(float): pass"), "model.p.extra = 3.0")
_add("str subclass with slots-like class attr", _model("x * self.p.extra", "self.p = P('a'); self.p.extra = 2.0", "class P(str): pass"), "model.p.extra = 3.0")
_add("OrderedDict with instance attribute", _model("x * self.p.extra", "self.p = collections.OrderedDict(a=1); self.p.extra = 2.0", "import collections"), "model.p.extra = 3.0")
_add("property subclass attribute", _model("x * type(self).__dict__['pp'].extra", "", "class P(property): pass", "pp = P(lambda s: 1)\npp.extra = 2.0"), "type(model).__dict__['pp'].extra = 3.0")
_add("staticmethod object's __dict__", _model("x * type(self).__dict__['sm'].extra", "", "", "@staticmethod\ndef sm(): pass\nsm.extra = 2.0"), "type(model).__dict__['sm'].extra = 3.0")
_add("lru_cache wrapper's attribute", _model("x * f.extra", "", "import functools\n@functools.lru_cache\ndef f(): pass\nf.extra = 2.0"), "app.f.extra = 3.0")
_add("frozenset subclass attribute", _model("x * self.a.extra", "self.a = A([1]); self.a.extra = 2.0", "class A(frozenset): pass"), "model.a.extra = 3.0")
_add("torch.Size vs subclass? tensor attribute on constant", _model("x * self.t.extra", "self.t = torch.ones(2); self.t.extra = 2.0"), "model.t.extra = 3.0")
_add("poly1d coefficients (again)", _model("x * float(self.p(2.0))", "self.p = np.poly1d([1.0, 2.0])", "import numpy as np"), "import numpy as np; model.p = np.poly1d([1.0, 3.0])")
_add("np.vectorize", _model("x * float(self.u(2.0))", "self.u = np.vectorize(f)", "import numpy as np\nK = 2.0\ndef f(v): return v * K"), "app.K = 3.0")
_add("dict.get kept", _model("x * self.get('a')", "self.d = {'a': 2.0}; self.get = self.d.get"), "model.d['a'] = 3.0")
_add("dict.get of a hidden dict", _model("x * self.get('a')", "self.get = {'a': 2.0}.get"), "model.get = {'a': 3.0}.get")
_add("list.__getitem__ kept in table", _model("x * self.m['g'](0)", "self.l = [2.0]; self.m = {'g': self.l.__getitem__}"), "model.l[0] = 3.0")
_add("cell object kept", _model("x * self.c.cell_contents", "self.c = types.CellType(2.0)", "import types"), "model.c.cell_contents = 3.0")
_add("property object called", _model("x * P.fget(self)", "self.v = 2.0", "P = property(lambda s: s.v)"), "app.P = property(lambda s: s.v + 1)")
_add("torch.finfo object", _model("x * self.f.bits", "self.f = torch.finfo(torch.float32)"), "model.f = torch.finfo(torch.float16)")
_add("memory format", _model("x * (2 if self.f == torch.contiguous_format else 3)", "self.f = torch.contiguous_format"), "model.f = torch.channels_last")
_add("np.dtype aligned", _model("x * (2 if self.d.isalignedstruct else 3)", "self.d = np.dtype('f4')", "import numpy as np"), "import numpy as np; model.d = np.dtype({'names': ['a'], 'formats': ['f4']}, align=True)")
_add("np unicode array", _model("x * len(self.a[0])", "self.a = np.array(['ab', 'c'])", "import numpy as np"), "model.a[0] = 'c'")
_add("path expanduser HOME", _model("x * len(os.path.expanduser('~'))", "", "import os"), env={"HOME": "/some/where/else"})
_add("num threads", _model("x * torch.get_num_threads()"), "torch.set_num_threads(2)")
_add("mha fastpath", _model("x * (2 if torch.backends.mha.get_fastpath_enabled() else 3)"), "torch.backends.mha.set_fastpath_enabled(False)")
_add("anomaly mode", _model("x * (2 if torch.is_anomaly_enabled() else 3)"), "torch.autograd.set_detect_anomaly(True)")
_add("pytree node's flatten replaced", _model("return P(x * 2, x * 3)", "", "import torch.utils._pytree as pt\nclass P:\n    def __init__(self, a, b): self.a, self.b = a, b\npt.register_pytree_node(P, lambda p: ([p.a, p.b], None), lambda v, c: P(*v), serialized_type_name='app.P')"), "", ("[p.a, p.b]", "[p.b, p.a]"))
_add("functions's doc via unused comment harmless", _model("x * 2", "", "def f():\n    return 1  # one\n"), "", ("# one", "# two"), harmless=True)

_add("frozenset constant in code with True", _model("for i in {1, 2}:\n    x = (x > 0) * i\nreturn x").replace("for i in {1, 2}", "for i in {1}"), "", ("{1}", "{True}"))
_add("set of ints as list by helper module", _model("x * first(self.k)", "self.k = 3", "from util import first") + "--- util.py\ndef first(k):\n    return [i for i in {7, 15} if i > k][0]\n", "", ("{7, 15}", "{15, 7}"))
_add("sorted set after removal", _model("for i in sorted(self.s):\n    x = x * 2 + i\nreturn x", "self.s = {7, 15}"), "model.s.add(3); model.s.remove(3)", harmless=True)
_add("own abc Set mixin over strings", _model("for n in self.a & self.b:\n    x = x * 2 + len(n)\nreturn x", "self.a = S(['a', 'bc', 'def', 'ghij']); self.b = S(['a', 'bc', 'def'])", "import collections.abc\nclass S(collections.abc.Set):\n    def __init__(self, v): self.v = list(v)\n    def __contains__(self, k): return k in self.v\n    def __iter__(self): return iter(self.v)\n    def __len__(self): return len(self.v)\n    @classmethod\n    def _from_iterable(cls, it): return frozenset(it) if False else cls(it)"), "model.b.v.reverse(); model.a.v.reverse()")
_H = "import abc\nFLAG = [True]\nclass Fast(abc.ABC):\n    @classmethod\n    def __subclasshook__(cls, c): return True if FLAG[0] and c is T else NotImplemented\nclass T: pass"
_add("abc virtual subclass collected", _model("x * 2 if issubclass(T, Fast) else x", "", "import abc\nclass Fast(abc.ABC): pass\nclass T: pass\nclass U(T): pass\nFast.register(U)"), "app.Fast.register(app.T)")
_add("abc cache warm harmlessly", _model("x * 2 if isinstance(self.o, Fast) else x", "self.o = T()", "import abc\nclass Fast(abc.ABC): pass\nclass T(Fast): pass"), "isinstance(model.o, app.Fast); isinstance(3, app.Fast)", harmless=True)
_add("abc answers of a hook, asked before in the second process", _model("x * 2 if isinstance(self.o, Fast) else x", "self.o = T()", _H), "app.FLAG[0] = False; isinstance(model.o, app.Fast); app.FLAG[0] = True", live=False)
_add("abc answers of a registered class's hook, asked before in the second process", _model("x * 2 if isinstance(self.o, Wide) else x", "self.o = T()", _H + "\nclass Wide(abc.ABC): pass\nWide.register(Fast)"), "app.FLAG[0] = False; isinstance(model.o, app.Wide); app.FLAG[0] = True", live=False)
_add("abc answers of a metaclass, asked before in the second process", _model("x * 2 if isinstance(self.o, Wide) else x", "self.o = T()", "import abc\nFLAG = [True]\nclass M(type):\n    def __subclasscheck__(cls, c): return FLAG[0] and c.__name__ == 'T'\nclass Odd(metaclass=M): pass\nclass Wide(abc.ABC): pass\nWide.register(Odd)\nclass T: pass"), "app.FLAG[0] = False; isinstance(model.o, app.Wide); app.FLAG[0] = True", live=False)
_add("harmless: collections.abc was asked about a class", _model("x * 2 if isinstance(self.o, collections.abc.Sized) else x", "self.o = T()", "import collections.abc\nclass T: pass"), "isinstance(model.o, __import__('collections.abc').abc.Sized)", harmless=True)
_add("flush denormal and Python floats", _model("x * 2 if self.k * 0.5 > 0 else x", "self.k = 4e-320"), "torch.set_flush_denormal(True)")
_add("raw class dict behind the type cache", _model("x * Cfg.k", "", "class Cfg:\n    k = 2.0"), "import gc; gc.get_referents(app.Cfg.__dict__)[0]['k'] = 3.0; app.Cfg.zz = 1; del app.Cfg.zz")
_add("slot without a dict entry by raw class dict", _model("x * 2 if self.o else x * 3", "self.o = O()", "class O:\n    def __bool__(self): return False"), "import gc; d = gc.get_referents(app.O.__dict__)[0]; b = d.pop('__bool__'); app.O.__bool__ = b; del app.O.__bool__; d['__bool__'] = b; app.O.zz = 1; del app.O.zz")
_add("strftime of a kept date with locale", _model("x * len(self.d.strftime('%Z%H') )", "self.d = datetime.datetime(2024, 1, 2, 3)", "import datetime"), "import datetime; model.d = model.d.replace(tzinfo=datetime.timezone.utc)")

_MK = "import app; model = app.Model().eval(); "
_add("posix environ", _model("import posix\nreturn x * len(posix.environ.get(b'GAINX', b'ab'))"), env={"GAINX": "abc"})
_add("environb", _model("x * len(os.environb.get(b'GAINX', b'ab'))", "", "import os"), env={"GAINX": "abc"})
_add("environ _data", _model("x * len(os.environ._data.get(b'GAINX', b'ab'))", "", "import os"), env={"GAINX": "abc"})
_add("expandvars", _model("x * len(os.path.expandvars('$GAINX'))", "", "import os"), env={"GAINX": "abc"})
_add("environ get kept in a table", _model("x * len(self.t['e']('GAINX', 'ab'))", "self.t = {'e': os.environ.get}", "import os"), env={"GAINX": "abc"})
_add("environ in a ChainMap", _model("x * len(self.c['GAINX'])", "self.c = collections.ChainMap(os.environ, {'GAINX': 'ab'})", "import os, collections"), env={"GAINX": "abc"})
_add("kwargs order", _model("for v in kw.values():\n    x = x * 2 + v\nreturn x").replace("def forward(self, x)", "def forward(self, x, **kw)"), make=_MK + "kwargs = dict(a=torch.ones(4), b=torch.zeros(4))", change="kwargs = dict(b=kwargs['b'], a=kwargs['a'])")
_add("int argument becomes bool", _model("(x > 0) * k").replace("def forward(self, x)", "def forward(self, x, k)"), make=_MK + "args = (torch.arange(12.).reshape(3, 4), 1)", change="args = (args[0], True)")
_add("float argument's zero sign", _model("torch.copysign(x, torch.full_like(x, k))").replace("def forward(self, x)", "def forward(self, x, k)"), make=_MK + "args = (torch.arange(12.).reshape(3, 4), 0.0)", change="args = (args[0], -0.0)")
_add("list argument becomes tuple", _model("(x * 2 if isinstance(k, list) else x) + k[0]").replace("def forward(self, x)", "def forward(self, x, k)"), make=_MK + "args = (torch.arange(12.).reshape(3, 4), [torch.ones(4)])", change="args = (args[0], (args[1][0],))")
_add("dict argument in another order", _model("for v in k.values():\n    x = x * 2 + v\nreturn x").replace("def forward(self, x)", "def forward(self, x, k)"), make=_MK + "args = (torch.arange(12.).reshape(3, 4), {'a': torch.ones(4), 'b': torch.zeros(4)})", change="args = (args[0], {'b': args[1]['b'], 'a': args[1]['a']})")
_add("OrderedDict argument", _model("for v in k.values():\n    x = x * 2 + v\nreturn x").replace("def forward(self, x)", "def forward(self, x, k)"), make=_MK + "import collections; args = (torch.arange(12.).reshape(3, 4), collections.OrderedDict(a=torch.ones(4), b=torch.zeros(4)))", change="args[1].move_to_end('a')")
_add("input is a transposed view", _model("x * 2 if x.is_contiguous() else x * 3"), make=_MK + "args = (torch.arange(12.).reshape(3, 4),)", change="args = (torch.arange(12.).reshape(4, 3).t(),)")
_add("input with storage offset", _model("x * (2 + x.storage_offset())"), make=_MK + "args = (torch.arange(12.).reshape(3, 4),)", change="args = (torch.arange(16.).reshape(4, 4)[1:],)")
_add("input with requires_grad", _model("x * 2 if x.requires_grad else x * 3"), make=_MK + "args = (torch.arange(12.).reshape(3, 4),)", change="args = (args[0].clone().requires_grad_(),)")
_add("input is a Parameter", _model("x * 2 if isinstance(x, nn.Parameter) else x * 3"), make=_MK + "args = (torch.arange(12.).reshape(3, 4),)", change="args = (nn.Parameter(args[0], requires_grad=False),)".replace("nn.", "torch.nn."))
_add("input with conj bit", _model("torch.view_as_real(x.resolve_conj()) * (2 if x.is_conj() else 3)"), make=_MK + "args = (torch.ones(3, 4, dtype=torch.complex64),)", change="args = (args[0].conj(),)")
_add("input with a Python attribute", _model("x * getattr(x, 'gain', 2.0)"), make=_MK + "args = (torch.arange(12.).reshape(3, 4),)", change="args[0].gain = 3.0")
_add("dataclass metadata", _model("x * dataclasses.fields(C)[0].metadata['g']", "", "import dataclasses\nclass _: pass\n@dataclasses.dataclass\nclass C:\n    a: int = dataclasses.field(default=1, metadata={'g': 2.0})"), "", ("'g': 2.0", "'g': 3.0"))
_add("Annotated metadata (again)", _model("x * typing.get_args(T)[1]", "", "import typing\nT = typing.Annotated[int, 2.0]"), "", ("int, 2.0", "int, 3.0"))
_add("Literal 1 vs True", _model("(x > 0) * typing.get_args(T)[0]", "", "import typing\nT = typing.Literal[1]"), "", ("Literal[1]", "Literal[True]"))
_add("TypeVar variance", _model("x * 2 if T.__covariant__ else x", "", "import typing\nT = typing.TypeVar('T')"), "", ("TypeVar('T')", "TypeVar('T', covariant=True)"))
_add("cached_property under another name", _model("x * self.c.gain", "self.c = C(); self.c.other = 5.0", "import functools\nclass C:\n    @functools.cached_property\n    def gain(self): return 2.0"), "app.C.__dict__['gain'].attrname = 'other'")
_add("class cell of super", _model("x * self.c.k()", "self.c = C()", "class A:\n    def k(self): return 2.0\nclass B(A):\n    def k(self): return 3.0\nclass C(B):\n    def k(self): return super().k()"), "app.C.k.__closure__[0].cell_contents = app.B")
_add("mro by metaclass", _model("x * self.c.k()", "self.c = C()", "ORDER = [0]\nclass M(type):\n    def mro(cls):\n        m = type.mro(cls)\n        if cls.__name__ == 'C' and ORDER[0]: m = [m[0], m[2], m[1], *m[3:]]\n        return m\nclass A:\n    def k(self): return 2.0\nclass B:\n    def k(self): return 3.0\nclass C(A, B, metaclass=M): pass"), "app.ORDER[0] = 1; app.C.__bases__ = (app.A, app.B); app.ORDER[0] = 0")
_add("class attribute deleted, base shows", _model("x * self.c.k", "self.c = B()", "class A: k = 2.0\nclass B(A): k = 3.0"), "del app.B.k")
_add("__init_subclass__ registry", _model("for c in R:\n    x = x * c.k + 1\nreturn x", "", "R = []\nclass A:\n    def __init_subclass__(cls): R.append(cls)\nclass B(A): k = 2.0"), "class N(app.A): k = 3.0")
_add("empty cell filled", _model("x * g()", "", "def mk(fill):\n    def f():\n        try: return v\n        except NameError: return 5.0\n    if fill: v = 2.0\n    return f\ng = mk(False)"), "app.g = app.mk(True)")
_add("kwonly became positional", _model("x * call(f)", "", "def f(a=2.0, *, b=3.0): return a * b\ndef call(f):\n    try: return f(1.0, 2.0)\n    except TypeError: return 7.0"), "", ("a=2.0, *, b=3.0", "a=2.0, b=3.0"))
_add("co_name alone through __name__", _model("x * len(h.__name__)", "", "def h(): pass\ndef mk(c): return type(h)(c, globals())\nh = mk(h.__code__)"), "app.h = app.mk(app.h.__code__.replace(co_name='longer_name'))")
_add("dist initialised", _model("x * 2 if torch.distributed.is_available() and torch.distributed.is_initialized() else x"), "torch.distributed.is_initialized = lambda: True")
_add("a tuple subclass in isinstance", _model("x * 2 if isinstance(self.v, K) else x", "self.v = 1", "K = (str, float)"), "app.K = (str, (bytes, int))")
_add("contextmanager patched", _model("with ctx():\n    x = x * V[0]\nreturn x", "", "import contextlib\nV = [2.0]\n@contextlib.contextmanager\ndef ctx():\n    V[0] += 1\n    yield\n    V[0] -= 1"), "app.V[0] = 4.0")
_add("generator function reads global after yield", _model("for g in gen():\n    x = x * g\nreturn x", "", "K = 2.0\ndef gen():\n    yield 1.0\n    yield K"), "app.K = 3.0")
_add("__torch_function__ on an object", _model("torch.mul(x, self.o)", "self.o = O()", "class O:\n    k = 2.0\n    @classmethod\n    def __torch_function__(cls, f, types, args=(), kwargs=None): return args[0] * cls.k"), "app.O.k = 3.0")
_add("__array__ protocol", _model("x * torch.as_tensor(np.asarray(self.o))", "self.o = O()", "import numpy as np\nclass O:\n    k = 2.0\n    def __array__(self, dtype=None, copy=None): return np.array(self.k, 'f4')"), "app.O.k = 3.0")
_add("__float__ protocol", _model("x * float(self.o)", "self.o = O()", "class O:\n    k = 2.0\n    def __float__(self): return self.k"), "app.O.k = 3.0")
_add("__length_hint__ and list()", _model("x * len(list(self.o))", "self.o = O()", "class O:\n    k = 2\n    def __iter__(self): return iter(range(self.k))\n    def __length_hint__(self): return 1"), "app.O.k = 3")
_add("__fspath__", _model("x * len(os.fspath(self.o))", "self.o = O()", "import os\nclass O:\n    k = 'a'\n    def __fspath__(self): return self.k"), "app.O.k = 'abc'")
_add("__round__ trunc ceil", _model("x * math.ceil(self.o)", "self.o = O()", "import math\nclass O:\n    k = 2\n    def __ceil__(self): return self.k"), "app.O.k = 3")
_add("__instancecheck__", _model("x * 2 if isinstance(3, C) else x", "", "class M(type):\n    ok = False\n    def __instancecheck__(cls, o): return cls.ok\nclass C(metaclass=M): pass"), "app.M.ok = True")
_add("__copy__ via copy.copy", _model("x * copy.copy(self.o).k", "self.o = O()", "import copy\nclass O:\n    k = 2.0\n    def __copy__(self):\n        n = O(); n.k = self.k + K; return n\nK = 1.0"), "app.K = 3.0")

def _t(doc, read, change, top=""):
    _add(doc, _model(f"x * 2 if {read} else x * 3", "", top), change)
_t("sparse invariants checked", "torch.sparse.check_sparse_tensor_invariants.is_enabled()", "torch.sparse.check_sparse_tensor_invariants.enable()")
_t("quantized engine", "torch.backends.quantized.engine == self.e", "e = [q for q in torch.backends.quantized.supported_engines if q != torch.backends.quantized.engine][0]; torch.backends.quantized.engine = e") if False else None
_add("quantized engine's name", _model("x * len(torch.backends.quantized.engine)"), "e = [q for q in torch.backends.quantized.supported_engines if len(q) != len(torch.backends.quantized.engine)][0]; torch.backends.quantized.engine = e")
_t("nnpack enabled", "torch._C._get_nnpack_enabled()", "torch.backends.nnpack.set_flags(False)")
_t("mkldnn enabled", "torch.backends.mkldnn.enabled", "torch.backends.mkldnn.enabled = False")
_t("fp16 reduced precision", "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction", "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False")
_t("cudnn deterministic", "torch.backends.cudnn.deterministic", "torch.backends.cudnn.deterministic = True")
_t("autograd multithreading", "torch._C._is_multithreading_enabled()", "torch._C._set_multithreading_enabled(False)")
_t("view replay", "torch._C._is_view_replay_enabled()", "torch._C._set_view_replay_enabled(True)")
_t("jit nnc", "torch._C._jit_texpr_fuser_enabled()", "torch._C._jit_set_texpr_fuser_enabled(not torch._C._jit_texpr_fuser_enabled())")
_t("warn always", "torch.is_warn_always_enabled()", "torch.set_warn_always(True)")
_t("autocast cpu dtype", "torch.get_autocast_dtype('cpu') == torch.bfloat16", "torch.set_autocast_dtype('cpu', torch.float16)")
_t("autocast cache", "torch.is_autocast_cache_enabled()", "torch.set_autocast_cache_enabled(False)")
_t("overwrite params on conversion", "torch.__future__.get_overwrite_module_params_on_conversion()", "torch.__future__.set_overwrite_module_params_on_conversion(True)")
_t("flush denormal then torch scalar", "1e-320 * K > 0", "torch.set_flush_denormal(True)", "K = 1.5")
_t("grad mode inside", "torch.is_grad_enabled()", "torch.set_grad_enabled(False)")
_t("deterministic fill", "torch.utils.deterministic.fill_uninitialized_memory", "torch.utils.deterministic.fill_uninitialized_memory = False", "import torch.utils.deterministic")
_t("default device", "torch.get_default_device().type == 'cpu'", "torch.set_default_device('meta')")
_t("fpu rounding mode", "K + 1e-17 > 1.0", "import ctypes; ctypes.CDLL('libm.so.6').fesetround(0x800)", "K = 1.0")
_t("numpy bufsize", "np.getbufsize() == 8192", "import numpy as np; np.setbufsize(16384)", "import numpy as np")
_t("numpy errstate", "np.geterr()['over'] == 'warn'", "import numpy as np; np.seterr(over='ignore')", "import numpy as np")
_t("decimal Rounded through a localcontext copy", "peek()", "import decimal; decimal.Decimal('1.25').quantize(decimal.Decimal('0.1'))", "import decimal\ndef peek():\n    with decimal.localcontext() as c:\n        return c.flags[decimal.Rounded]")
_t("decimal flag of an operation done by the model", "peek()", "import decimal; decimal.Decimal(1) / 7", "import decimal\ndef peek():\n    before = any(decimal.getcontext().flags.values())\n    return before")
_t("decimal default context for threads", "decimal.DefaultContext.prec == 28", "import decimal; decimal.DefaultContext.prec = 9", "import decimal")
_t("decimal clamp and capitals", "len(str(decimal.Decimal('1E+30'))) and str(decimal.Decimal('1E+30')).isupper()", "import decimal; decimal.getcontext().capitals = 0", "import decimal")
_add("objects with own hash as dict keys", _model("x * self.d[self.k]", "self.k = K('a'); self.d = {self.k: 2.0}", "class K:\n    def __init__(self, n): self.n = n\n    def __eq__(self, o): return self.n == o.n\n    def __hash__(self): return len(self.n)"), "model.d[model.k] = 3.0")
_add("abstract methods emptied", _model("try:\n    C()\nexcept TypeError:\n    return x * 2\nreturn x * 3", "", "import abc\nclass C(abc.ABC):\n    @abc.abstractmethod\n    def m(self): ..."), "app.C.__abstractmethods__ = frozenset()")
_add("sequence flag left behind", _model("match self.o:\n    case [a, b]:\n        return x * a\n    case _:\n        return x * 5", "self.o = T()", "import collections.abc\nclass My(collections.abc.Sequence): pass\nclass T:\n    def __len__(self): return 2\n    def __getitem__(self, i): return [2.0, 3.0][i]"), "app.My.register(app.T); app.My._abc_registry_clear(); app.My._abc_caches_clear()")
_add("sequence flag by bases moved", _model("match self.o:\n    case [a, b]:\n        return x * a\n    case _:\n        return x * 5", "self.o = T()", "import collections.abc\nclass Plain: pass\nclass S(Plain): pass\ndef mk(base):\n    class T(base):\n        def __len__(self): return 2\n        def __getitem__(self, i): return [2.0, 3.0][i]\n    T.__bases__ = (S,)\n    return T\nT = mk(S)\nclass Q(Plain): pass\ncollections.abc.Sequence.register(Q)"), "app.T = app.mk(app.Q); model.o = app.T()")
_add("mapping flag", _model("match self.o:\n    case {'a': a}:\n        return x * a\n    case _:\n        return x * 5", "self.o = T()", "import collections.abc\nclass T:\n    def get(self, k, d=None): return 2.0\n    def __getitem__(self, k): return 2.0\n    def keys(self): return ['a']\n    def __len__(self): return 1"), "import collections.abc; collections.abc.Mapping.register(app.T)")
_add("autograd function's scale", _model("Fn.apply(x)", "", "class Fn(torch.autograd.Function):\n    k = 2.0\n    @staticmethod\n    def forward(ctx, x): return x * Fn.k\n    @staticmethod\n    def backward(ctx, g): return g"), "app.Fn.k = 3.0")
_DS = "import app; model = app.Model().eval(); args = (torch.arange(12.).reshape(3, 4),); dynamic_shapes = app.DS"

_add("unpacked generic alias", _model("x * 2 if T.__unpacked__ else x", "", "T = tuple[int, ...]"), "app.T = next(iter(app.T))")
_add("slot descriptors swapped", _model("x * self.c.a", "self.c = C()", "class C:\n    __slots__ = ('a', 'b')\n    def __init__(self): self.a = 2.0; self.b = 3.0"), "a, b = app.C.__dict__['a'], app.C.__dict__['b']; app.C.a = b; app.C.b = a")
_add("slot descriptor of a base overrides", _model("x * self.c.a", "self.c = C()", "class B:\n    __slots__ = ('a',)\nclass C(B):\n    __slots__ = ('a',)\nB_a = B.__dict__['a']\n_i = C.__init__\ndef init(self):\n    self.a = 2.0\n    B_a.__set__(self, 3.0)\nC.__init__ = init"), "app.C.a = app.B_a")
_add("slot copied under another name", _model("x * self.c.z", "self.c = C()", "class C:\n    __slots__ = ('a', 'b')\n    def __init__(self): self.a = 2.0; self.b = 3.0\nC.z = C.a"), "app.C.z = app.C.b")
_add("base slot hidden by a derived slot changes", _model("x * B_a.__get__(self.c)", "self.c = C()", "class B:\n    __slots__ = ('a',)\nclass C(B):\n    __slots__ = ('a',)\nB_a = B.__dict__['a']\ndef init(self):\n    self.a = 2.0\n    B_a.__set__(self, 3.0)\nC.__init__ = init"), "app.B_a.__set__(model.c, 4.0)")
_add("name-mangled slot", _model("x * self.c.get()", "self.c = C()", "class C:\n    __slots__ = ('__a',)\n    def __init__(self): self.__a = 2.0\n    def get(self): return self.__a"), "model.c._C__a = 3.0")
_add("numpy dtype l and q", _model("x * self.d.num", "self.d = np.dtype('l')", "import numpy as np"), "import numpy as np; model.d = np.dtype('q')")
_add("numpy array of l and q", _model("x * self.a.dtype.num", "self.a = np.ones(2, 'l')", "import numpy as np"), "import numpy as np; model.a = np.ones(2, 'q')")
_add("numpy scalar l and q", _model("x * self.a.dtype.num", "self.a = np.dtype('l').type(1)", "import numpy as np"), "import numpy as np; model.a = np.longlong(1)")
_add("numpy array char", _model("x * (2 if self.a.dtype.char == 'l' else 3)", "self.a = np.arange(3)", "import numpy as np"), "import numpy as np; model.a = np.arange(3, dtype=np.longlong)")
_add("numpy strides of a dimension of one", _model("x * self.a.strides[0]", "self.a = np.ones((1, 3))", "import numpy as np"), "import numpy as np; a = np.ones((3, 1)); b = np.empty((1, 3), order='F'); b[...] = 1; model.a = b")
_add("tensor constant stride of a dimension of one", _model("x * self.t.stride(0)", "self.t = torch.ones(1, 3)"), "model.t = torch.ones(3, 1).t()")
_add("parameter stride of a dimension of one", _model("x * self.w.stride(0)", "self.w = nn.Parameter(torch.ones(1, 4))"), "model.w = torch.nn.Parameter(torch.ones(4, 1).t())")
_add("input stride of a dimension of one", _model("x * x.stride(0)"), make="import app, torch; model = app.Model().eval(); args = (torch.ones(1, 4),)", change="args = (torch.ones(4, 1).t(),)")
_add("np.float64 instead of float", _model("x * (2 if isinstance(self.k, np.floating) else 3)", "self.k = 2.0", "import numpy as np"), "import numpy as np; model.k = np.float64(2.0)")
_add("class-level tensor", _model("x * self.table", "").replace("class Model(nn.Module):", "class Model(nn.Module):\n    table = torch.ones(4)"), "type(model).table.mul_(3)")
_add("global parameter", _model("x * W", "", "W = nn.Parameter(torch.ones(4))"), "app.W.data.mul_(3)")
_add("parameter in default argument", _model("f(x)", "", "def f(x, w=nn.Parameter(torch.ones(4))): return x * w"), "app.f.__defaults__[0].data.mul_(3)")
_add("registered parameter also shadowed in __dict__", _model("x * self.w2[0]", "self.__dict__['w2'] = self.lin.weight"), "model.lin.weight.data.mul_(3)")
_add("parameter as a dict key", _model("for w in self.d:\n    x = x * w[0]\nreturn x", "self.d = {self.lin.weight: 1}"), "model.lin.weight.data.mul_(3)")
_add("parameter in a slice", _model("x * self.s.start[0]", "self.s = slice(self.lin.weight)", "").replace("self.s.start", "self.s.stop"), "model.lin.weight.data.mul_(3)")
_add("parameter in a contextvar", _model("x * CV.get()[0]", "CV.set(self.lin.weight)", "import contextvars\nCV = contextvars.ContextVar('a')"), "model.lin.weight.data.mul_(3)")
_add("parameter in a method object", _model("self.m(x)", "self.m = types.MethodType(f, self.lin.weight)", "import types\ndef f(w, x): return x * w[0]"), "model.lin.weight.data.mul_(3)")
_add("parameter in a cell of a hook", _model("self.lin(x)", "w = self.lin.bias; self.lin.register_forward_hook(lambda m, a, o: o * w)"), "model.lin.bias.data.mul_(3)")
_add("persistent buffer also in a list (again)", _model("x * self.l[0]", "self.register_buffer('b', torch.ones(4)); self.l = [self.b]"), "model.b.mul_(3)")
_add("parameter as the object of a property", _model("x * self.o.w", "self.w = nn.Parameter(torch.ones(4)); self.o = O(self)", "class O:\n    def __init__(self, m): self.m = m\n    @property\n    def w(self): return self.m.w"), "model.w.data.mul_(3)", harmless=True)
_add("registered submodule in a plain list", _model("self.l[0](x)", "self.l = [self.lin]"), "model.lin.weight.data.mul_(3)", harmless=True)
_add("a generator function's default", _model("x * sum(g())", "", "def g(k=(1.0, 2.0)):\n    yield from k"), "app.g.__defaults__ = ((1.0, 3.0),)")
_add("an async function driven by send", _model("try:\n    g().send(None)\nexcept StopIteration as e:\n    return x * e.value", "", "K = 2.0\nasync def g(): return K"), "app.K = 3.0")
_add("h: set order through int subclass bool mix", _model("for i in self.s:\n    x = x * 2 + i\nreturn x", "self.s = {1, 0}"), "model.s = {True, 0}") if False else None
_add("list of a code set in a comprehension", _model("x * [i + 1 for i in {0, 8}][0]"), "", ("{0, 8}", "{8, 0}"))
_add("generic user class alias", _model("x * typing.get_args(type(self.o).__orig_bases__[0])[0].k", "self.o = O()", "import typing\nT = typing.TypeVar('T')\nclass A: k = 2.0\nclass G(typing.Generic[T]): pass\nclass O(G[A]): pass"), "app.A.k = 3.0")

_O = "class O: pass"
_add("str as a converter in a table", _model("x * (sum(self.t['s'](self.o).encode()) % 1000)", "self.o = O(); self.t = {'s': str}", _O), "keep = [app.O() for _ in range(7)]; model.o = keep[3]")
_add("the type of a string called", _model("x * (sum(type(self.s)(self.o).encode()) % 1000)", "self.o = O(); self.s = 'a'", _O), "keep = [app.O() for _ in range(7)]; model.o = keep[3]")
_add("bound methods of strings compared", _model("x * 2 if self.a.upper == self.b.upper else x", "self.a = 'some text'; self.b = self.a"), "model.b = ''.join(['some ', 'text'])")
_add("methods of two equal floats kept", _model("x * 2 if self.a.hex == self.b.hex else x", "self.a = 2.5; self.b = self.a"), "model.b = float('2.5')")
_add("a set with nans found to differ", _model("for i in self.s:\n    x = x * 2 + (9 if i != i else i)\nreturn x", "self.s = {float('nan'), 1.0, 2.0, 3.0}"), "o = [i == i for i in model.s]\nkeep = []\nfor _ in range(9999):\n    keep.append(float('nan')); s = {keep[-1], 1.0, 2.0, 3.0}\n    if [i == i for i in s] != o: break\nmodel.s = s")
_add("np.shares_memory", _model("x * 2 if np.shares_memory(self.a, self.b) else x", "self.a = np.ones(2); self.b = self.a", "import numpy as np"), "model.b = model.b.copy()")

_add("hasattr of a subpackage imported by forward's import", _model("import pkg.sub\nreturn x * pkg.sub.K") + "--- pkg/__init__.py\nA = 1\n--- pkg/sub.py\nfrom . import base\nK = base.K\n--- pkg/base.py\nK = 2.0\n", "", ("K = 2.0", "K = 3.0"))
_add("import in forward sees app's state", _model("import plug\nreturn x * plug.K", "", "STATE = 2.0") + "--- plug.py\nimport app\nK = app.STATE\n", "app.STATE = 3.0", live=False)
_add("a module is removed from sys.modules before", _model("import plug\nreturn x * plug.K", "", "import os, plug\nSTATE = 2.0") + "--- plug.py\nimport os\nK = float(os.environ.get('QQ', '2'))\n", "import sys, os; os.environ['QQ'] = '3'; del sys.modules['plug']")
_add("parallel info text", _model("x * (sum(torch.__config__.parallel_info().encode()) % 1000)"), "torch.set_num_threads(3)")
_add("C-level kernel registered for aten via library", _model("torch.mul(x, 2)"), "keepl = torch.library.Library('aten', 'IMPL'); keepl.impl('mul.Tensor', lambda a, b: a + b, 'CompositeImplicitAutograd') if False else keepl.impl('mul.Tensor', lambda a, b: torch.add(a, b), 'AutogradCPU')")
_add("np.loadtxt of lines harmless", _model("x * float(np.loadtxt(self.l).sum())", "self.l = ['1 2', '3 4']", "import numpy as np"), "model.l[0] = '1 5'")
_add("np.fromstring", _model("x * float(np.fromstring(self.s, sep=' ').sum())", "self.s = '1 2'", "import numpy as np"), "model.s = '1 3'")

_add("numpy L and Q through a table by char", _model("x * self.t[self.a.dtype.char]", "self.t = {'L': 2, 'Q': 3}; self.a = np.ones(2, 'L')", "import numpy as np"), "import numpy as np; model.a = np.ones(2, 'Q')")
_add("numpy type object longlong", _model("x * (2 if self.a.dtype.type is np.int64 else 3)", "self.a = np.ones(2, np.int64)", "import numpy as np"), "import numpy as np; model.a = np.ones(2, np.longlong)")

_O = "class O: pass\n"
_CH = "keep = [app.O() for _ in range(7)]; model.o = keep[3]"
def _s(doc, e, top="", init=""):
    _add(doc, _model(f"x * (sum({e}) % 1000)", "self.o = O(); " + init, _O + top), _CH)
_s("bytes percent a of an object", "b'%a' % self.o")
_s("operator.mod of a text", "operator.mod('a%s', self.o).encode()", "import operator")
_s("Template.substitute of an object", "string.Template('$o').substitute(o=self.o).encode()", "import string")
_s("urlencode of an object", "urllib.parse.urlencode({'o': self.o}).encode()", "import urllib.parse")
_s("UserString of an object", "collections.UserString(self.o).encode()", "import collections")
_s("string.Formatter of an object", "string.Formatter().format('{}', self.o).encode()", "import string")
_s("join of map str", "','.join(map(str, [self.o])).encode()")
_s("log message of an object", "logging.makeLogRecord({'msg': self.o}).getMessage().encode()", "import logging")
_s("percent s of an object", "('a%s' % self.o).encode()")
_s("format of an object", "'{}'.format(self.o).encode()")
_s("str of an object", "str(self.o).encode()")
_s("KeyError's text", "str(KeyError(self.o)).encode()")
_s("numpy char mod", "np.char.mod('%s', np.array([1, 2], object) * 0 + 1)[0].encode() + np.array2string(np.array([self.o.__class__.__name__])).encode() + str(np.str_(self.o)).encode()", "import numpy as np")
_s("numpy str_ subclass kept", "self.t['n'](self.o).encode()", "import numpy as np", "self.t = {'n': np.str_}")
_s("PurePath of a formatted text", "pathlib.PurePosixPath('{}'.format(self.o)).name.encode()", "import pathlib")
_s("pprint of an object", "pprint.pformat(self.o).encode()", "import pprint")
_s("text of a bound method", "'{}'.format(self.o.__init__).encode()")
_s("shlex join of texts", "shlex.join(['%s' % (self.o,)]).encode()", "import shlex")
_add("a hook's handle id", _model("h = self.lin.register_forward_pre_hook(hook)\nk = h.id\nh.remove()\nreturn x * (k % 97 + 1)", "", "def hook(m, a): return None"), "model.lin.register_forward_pre_hook(app.hook).remove()")
_add("code compares bound methods of two lists", _model("x * 2 if self.a.append == self.b.append else x", "self.a = [1]; self.b = self.a"), "model.b = [1]")
_add("weakref equality of equal objects harmless", _model("x * 2 if self.r == self.q else x", "self.o = O(); self.r = weakref.ref(self.o); self.q = weakref.ref(self.o)", "import weakref\nclass O: pass"), "model.p = app.O(); import weakref; model.q = weakref.ref(model.p)")
_add("a method of a text in a list", _model("x * 2 if self.a.upper in [self.b.upper] else x", "self.a = 'some text'; self.b = self.a"), "model.b = ''.join(['some ', 'text'])")
_add("identity by match of a sentinel tuple", _model("match self.m:\n    case Names.A:\n        return x * 2\nreturn x", "self.m = Names.A", "class V:\n    def __init__(self, s): self.s = s\n    def __eq__(self, o): return self.s.join == o.s.join\nclass Names: A = V('some text')"), "model.m = app.V(''.join(['some ', 'text']))")
_add("a list is longer by capacity only", _model("x * len(self.l)", "self.l = [1, 2, 3]"), "model.l.append(4); model.l.pop()", harmless=True)
_add("frozenset made equal but in another order in an enum", _model("for i in E.A.value:\n    x = x * 2 + i\nreturn x", "", "import enum\nclass E(enum.Enum):\n    A = frozenset((0, 8))"), "", ("(0, 8)", "(8, 0)"))
_add("frozenset default argument", _model("f(x)", "", "def f(x, s=frozenset((0, 8))):\n    for i in s: x = x * 2 + i\n    return x"), "app.f.__defaults__ = (frozenset((8, 0)),)")

_T = "import collections.abc\nclass S: pass\nclass Q: pass\ndef mk():\n    class T(Q):\n        def __len__(self): return 2\n        def __getitem__(self, i): return [2.0, 3.0][i]\n    T.__bases__ = (S,)\n    return T\n"
_add("sequence flag inherited before the base class was replaced", _model("match self.o:\n    case [a, b]:\n        return x * a\n    case _:\n        return x * 5", "self.o = T()", _T.replace("class Q: pass", "class Q: x = 1\nclass S: y = 1\nclass S(object): y = 1") + "class P: pass\nT = mk()\ncollections.abc.Sequence.register(Q)"), "", ("T = mk()\ncollections.abc.Sequence.register(Q)", "collections.abc.Sequence.register(Q)\nT = mk()"))
def _b(doc, old, new, read, init="", top=""):
    _add("True for 1 in " + doc, _model(f"(x > 0) * ({read})", init, top), "", (old, new))
_b("a slice", "slice(1, None)", "slice(True, None)", "self.s.start", "self.s = slice(1, None)")
_b("a range", "range(0, 1)", "range(0, True)", "self.s.stop", "self.s = range(0, 1)")
_b("an enum", "A = 1", "A = True", "E.A.value", "", "import enum\nclass E(enum.Enum):\n    A = 1")
_b("a Counter", "Counter(a=1)", "Counter(a=True)", "self.c['a']", "self.c = collections.Counter(a=1)", "import collections")
_b("a partial", "partial(f, 1)", "partial(f, True)", "self.p()", "self.p = functools.partial(f, 1)", "import functools\ndef f(v): return v")
_b("a context variable", "default=1", "default=True", "CV.get()", "", "import contextvars\nCV = contextvars.ContextVar('a', default=1)")
_b("a generic alias", "tuple[1]", "tuple[True]", "T.__args__[0]", "", "T = tuple[1]")
_b("an Annotated", "Annotated[int, 1]", "Annotated[int, True]", "T.__metadata__[0]", "", "import typing\nT = typing.Annotated[int, 1]")
_b("a cached function", "f(3, 1)", "f(3, True)", "f(3, K)", "f(3, 1)", "import functools\nK = 1\n@functools.cache\ndef f(a, b): return b")
_b("a deque", "deque([1])", "deque([True])", "self.d[0]", "self.d = collections.deque([1])", "import collections")
_b("a mapping proxy", "{'a': 1}", "{'a': True}", "self.m['a']", "self.m = types.MappingProxyType({'a': 1})", "import types")
_b("a timedelta-like namedtuple", "P(1)", "P(True)", "self.p.a", "self.p = P(1)", "import collections\nP = collections.namedtuple('P', 'a')")
_b("an exponent of a Fraction's subclass", "F(1)", "F(True)", "self.f._numerator", "self.f = F(1)", "import fractions\nclass F(fractions.Fraction):\n    def __new__(cls, v):\n        s = super().__new__(cls, 1, 1)\n        s._numerator = v\n        return s")
_add("a Fraction holds a bool by hand", _model("(x > 0) * self.f.numerator", "self.f = fractions.Fraction(1); self.f._numerator = 1", "import fractions"), "model.f._numerator = True")
_add("numpy time unit of 60 s and a minute", _model("x * np.datetime_data(self.d)[1]", "self.d = np.dtype('m8[60s]')", "import numpy as np"), "", ("m8[60s]", "m8[m]"))
_add("numpy time scalar of 60 s and a minute", _model("x * np.datetime_data(self.d.dtype)[1]", "self.d = np.timedelta64(2, '60s')", "import numpy as np"), "", ("np.timedelta64(2, '60s')", "np.timedelta64(2, 'm')"))
_add("a bound method that is a hook of state_dict refreshes a scalar", _model("x * self.k", "self.register_buffer('b', torch.ones(2)); self.k = 2.0; self.register_state_dict_pre_hook(Keeper().refresh)", "class Keeper:\n    def refresh(self, m, prefix, keep_vars): m.k = float(m.b.sum())"), "model.b.fill_(3.0)")
