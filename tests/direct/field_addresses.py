"""Texts with the address of an object, and methods compared by identity. They are added to ``field_scenarios``."""

# fmt: off
from __future__ import annotations

from tests.direct.field_scenarios import _add, _model

_O = "class O: pass\n"
_OTHER = "keep = [app.O() for _ in range(7)]; model.o = keep[3]"
_TAG = "def tag(o): return f'{o}'\ndef num(t): return sum(map(ord, t)) % 1000\n"
_SAME = "model.lin.weight.data.add_(1)"


def _text(doc: str, forward: str, init: str = "", top: str = "", change: str = _OTHER) -> None:
    _add(f"text of {doc}", _model(forward, init or "self.o = O()", _O + top + _TAG), change)


_text("an object, made in a helper", "x * num(tag(self.o))")
_text("an object by str, made in a helper", "x * (sum(show(self.o).encode()) % 1000)", "", "def show(o): return str(o)\n")
_text("an object, compared with a stored text", "x * (2 if tag(self.o) == self.t else 3)", "self.o = O(); self.t = tag(self.o)")
_text("an object as a key", "x * self.d.get(str(self.o), 3)", "self.o = O(); self.d = {str(self.o): 2}")
_text("an object as a key of a memo", "x * self.d.setdefault(tag(self.o), 3)", "self.o = O(); self.d = {tag(self.o): 2}")
_text("an object that is iterated over", "for c in tag(self.o):\n    if c == 'f': x = x * 2\nreturn x")
_text("a method's object", "x * num(self.p.t())", "self.o = self.p = P()", "class P:\n    def t(self): return 'P' + str(self)\n", "keep = [app.P() for _ in range(7)]; model.p = keep[3]")
_text("an object in a tuple", "x * num(tag(self.o[0]))", "self.o = (O(),)", "", "keep = [app.O() for _ in range(7)]; model.o = (keep[3],)")
_text("a function in a tuple", "x * num(tag(self.f[0]))", "self.f = (f,)", "def f(): pass\ndef g(): pass\n", "model.f = (app.g,)")
_text("an object that forward creates", "x * num(tag(O()))", "", "", "keep = [app.O() for _ in range(7)]")
_text("a lambda that forward creates", "x * num(tag(lambda: 1))", "", "", "keep = [lambda: 1 for _ in range(7)]")
_text("a generator", "x * num(tag(i for i in ()))", "", "", "keep = [(i for i in ()) for _ in range(7)]")
_text("a field's type", "x * num([f.type(self.o) for f in dataclasses.fields(self.c)][0])", "self.o = O(); self.c = C()", "import dataclasses\n@dataclasses.dataclass\nclass C:\n    a: str = 'a'\n")
_text("a partial of str", "x * num(self.p(self.o))", "self.o = O(); self.p = functools.partial(str)", "import functools\n")
_text("a table of types", "x * num([t(self.o) for t in KINDS][0])", "", "KINDS = (str,)\n")
_text("a global object", "x * num(tag(G))", "", "G = O()\n", "keep = [app.O() for _ in range(7)]; app.G = keep[3]")
_text("a bound method", "x * num(tag(self.p.f))", "self.p = P()", "class P:\n    def f(self): pass\n", "keep = [app.P() for _ in range(7)]; model.p = keep[3]")
_text("a bound method of a list", "x * num(tag(self.l.append))", "self.l = []", "", "keep = [[] for _ in range(7)]; model.l = keep[3]")
_text("an object whose repr shows another", "x * num(tag(self.p))", "self.p = P(O())", "class P:\n    def __init__(self, o): self.o = o\n    def __repr__(self): return f'P({self.o})'\n", "keep = [app.P(app.O()) for _ in range(7)]; model.p = keep[3]")
_text("a dataclass with a function", "x * num(tag(self.p))", "self.p = D(f)", "import dataclasses\ndef f(): pass\ndef g(): pass\n@dataclasses.dataclass\nclass D:\n    f: object\n", "model.p = app.D(app.g)")
_text("an object with slots", "x * num(tag(self.p))", "self.p = P()", "class P:\n    __slots__ = ('a',)\n", "keep = [app.P() for _ in range(7)]; model.p = keep[3]")
_text("a weak reference", "x * num(tag(self.r))", "self.o = O(); self.r = weakref.ref(self.o)", "import weakref\n", "model.o = app.O(); import weakref; model.r = weakref.ref(model.o)")
_text("a lock", "x * num(tag(self.r))", "self.r = threading.Lock()", "import threading\n", "import threading; keep = [threading.Lock() for _ in range(7)]; model.r = keep[3]")
_text("a NumPy function", "x * num(tag(np.sum))", "", "import numpy as np\n", "")
_text("a default argument", "x * h()", "", "def h(o=O()): return num(tag(o))\n", "app.h.__defaults__ = (app.O(),)")
_text("an attribute that is a text elsewhere", "x * self.d.get(f'{self.o.name}', 3)", "self.o = O(); self.o.name = O(); self.name = 'a'; self.d = {f'{self.o.name}': 2}", "", "model.o.name = app.O()")


def _harmless(doc: str, forward: str, init: str, top: str = "") -> None:
    _add(f"harmless: {doc}", _model(forward, init, top), _SAME, harmless=True)


_BLOCKS = "self.blocks = nn.ModuleDict({f'b{i}': nn.Linear(4, 4) for i in range(2)})"
_LOOP = "for i in range({}):\n    x = {}(self.blocks[f'b{{i}}'](x))\nreturn x"
_harmless("a number in an f-string, with an activation function", _LOOP.format(2, "self.act"), "self.act = F.relu; " + _BLOCKS)
_harmless("a number in an f-string, with an object for its settings", _LOOP.format("self.c.n", ""), "self.c = C(); " + _BLOCKS, "class C:\n    def __init__(self): self.n = 2")
_harmless("a number with a format, with an activation function", "for i, k in enumerate(self.ks):\n    x = self.act(getattr(self, f'b{i:d}')(x)) * k\nreturn x", "self.act = F.relu; self.ks = [1, 2]; self.b0, self.b1 = nn.Linear(4, 4), nn.Linear(4, 4)")
_harmless("a prefix in an f-string, with an activation function", "self.act(self.blocks[f'{self.prefix}0'](x))", "self.act = F.relu; self.prefix = 'b'; " + _BLOCKS)
_harmless("a class's name in an f-string, with an activation function", "self.act(x) * self.d[f'a{type(self).__name__}']", "self.act = F.relu; self.d = {'aModel': 2}")
_harmless("the message of an error, with an object for its settings", "if x.shape[0] != self.c.k:\n    raise ValueError(f'{self.c} {x.shape}')\nreturn x", "self.c = C()", "class C:\n    def __init__(self): self.k = 3")
_harmless("the message of an assertion, with an object for its settings", "assert x.shape[0] == self.c.k, f'{self.c} {x.shape}'\nreturn x", "self.c = C()", "class C:\n    def __init__(self): self.k = 3")
_harmless("a buffer has the name of a method of tuples", "f(x, self.index)", "self.register_buffer('index', torch.ones(4))", "def f(a, b): return a + b")
_harmless("attributes have names of methods of strings", "x * self.count if self.title else x", "self.count = 2; self.title = 'a'")
_harmless("attributes have names of methods of decimals", "x.clamp(self.min, self.max)", "self.min, self.max = 0.0, 1.0")
_harmless("a tensor's method has its arguments from a tuple", "torch.cat(x.split(*self.a), 1)", "self.a = ([2, 2], 1)")
_harmless("a property has the name of a method of strings", "x * (2 if self.c.format == 'a' else 3)", "self.c = C()", "class C:\n    @property\n    def format(self): return 'a'")
_add("methods of two equal tuples compared", _model("x * 2 if self.a.index == self.b.index else x", "self.a = (1, 2); self.b = self.a"), "model.b = tuple([1, 2])")
_add("methods of a string as keys", _model("x * {self.a.upper: 2}.get(self.b.upper, 3)", "self.a = 'some text'; self.b = self.a"), "model.b = ''.join(['some ', 'text'])")
_add("a method of a string passed on", _model("x * same(self.a.upper, self.b.upper)", "self.a = 'some text'; self.b = self.a", "def same(f, g): return 2 if f == g else 3"), "model.b = ''.join(['some ', 'text'])")
_harmless("functions of modules with names of methods of numbers are passed on", "functools.reduce(operator.add, [x, x], torch.max(x)) + functools.reduce(torch.add, [x, x])", "pass", "import functools, operator")
_harmless("a method of a class with the name of a method of strings is passed on", "f(x, self.c.index) + f(x, C.count)", "self.c = C()", "class C:\n    def index(self): return 2\n    def count(self=None): return 3\ndef f(x, g): return x * g()")
_add("a method of a global string compared", _model("x * 2 if K.upper == self.b.upper else x", "self.b = K", "K = 'some text'"), "model.b = ''.join(['some ', 'text'])")

# Texts of two objects, made in other ways than by an f-string: the order of their addresses decides.
_PAIR = "import app\nmodel = app.Model().eval()\nmodel.a, model.b = sorted([app.Tag(), app.Tag()], key=id)"
_SWAP = "model.b, model.a = sorted([app.Tag(), app.Tag()], key=id)"


def _compared(doc: str, text: str, top: str = "") -> None:
    forward = f"return x * (2.0 if {text.format('self.a')} < {text.format('self.b')} else 3.0)"
    _add(f"texts compared: {doc}", _model(forward, "pass", "class Tag:\n    pass\n" + top), _SWAP, make=_PAIR)


_compared("operator.mod", "operator.mod('%s', {})", "import operator")
_compared("a bound method of a format", "'%s'.__mod__({})")
_compared("bytes", "b'%a'.__mod__(({},))")
_compared("an alias of str", "text({})", "text = str")
_compared("str by a composed name", "getattr({}, '__' + 'str__')()")
_compared("a class derived from str", "S({})", "class S(str): pass")
_compared("UserString", "US({}).data", "from collections import UserString as US")
_compared("NumPy's str_", "np.str_({})", "import numpy as np")
_compared("print to a StringIO", "text({})", "import io\ndef text(t):\n    s = io.StringIO()\n    print(t, file=s)\n    return s.getvalue()")
_compared("print to redirected output", "text({})", "import contextlib, io\ndef text(t):\n    s = io.StringIO()\n    with contextlib.redirect_stdout(s): print(t)\n    return s.getvalue()")
_compared("the error of an enum", "text({})", "import enum\nclass E(enum.Enum):\n    A = 1\ndef text(t):\n    try:\n        E(t)\n    except ValueError as e:\n        return e.args[0]")
_compared("object.__repr__", "object.__repr__({})")
_compared("a method in C", "str({}.__init__)")
_compared("a context manager of torch that forward creates", "digest({})", "def digest(t): return len(f'{t}') + sum(map(ord, f'{torch.no_grad()}'))")
_add("texts compared: order in a WeakSet", _model("return x * (2.0 if list(W([self.a, self.b]))[0] == self.a else 3.0)", "pass", "class Tag:\n    pass\nfrom weakref import WeakSet as W"), _SWAP, make=_PAIR)
_harmless("an attribute of an object for its settings in an f-string", "x * self.d[f'{self.c.name}_{x.shape[-1]}']", "self.c = C(); self.d = {'a_4': 2}", "class C:\n    def __init__(self): self.name = 'a'")
_harmless("a table of functions by type", "BY[type(self.act)](x)", "self.act = nn.ReLU()", "BY = {nn.ReLU: F.relu, nn.GELU: F.gelu}")
_harmless("a dataclass with a name and an activation function", "self.c.act(x) * self.d[f'a{self.c.name}']", "self.c = C(); self.d = {'ab': 2}", "import dataclasses\n@dataclasses.dataclass\nclass C:\n    name: str = 'b'\n    act: object = F.gelu")
_harmless("an enum of texts in a key", "x * self.d[self.k.value]", "self.k = K.A; self.d = {'a': 2}", "import enum\nclass K(str, enum.Enum):\n    A = 'a'")
_DIGEST = "def digest(s):\n    n = 0\n    for c in s:\n        n = (n * 31 + ord(c)) % 9973\n    return 1.0 + n\n"
_add("text of an iterator", _model("x * digest(f'{iter([1])}')", "pass", _DIGEST), "")
_add("text of a lock that forward creates", _model("x * digest(f'{threading.Lock()}')", "pass", "import threading\n" + _DIGEST), "")
_add("text of a function in an error", _model("x * digest(tell(torch.relu))", "pass", "import enum\nclass K(enum.Enum):\n    A = 'a'\ndef tell(f):\n    try: return K(f)\n    except ValueError as e: return e.args[0]\n" + _DIGEST), "")
_add("methods of tuples under a global name", _model("x * (2.0 if getattr(self.a, N) == getattr(self.b, N) else 3.0)", "self.a = tuple([1, 2]); self.b = self.a", "N = 'index'"), "model.b = tuple([1, 2])")
_add("methods of strings by attrgetter", _model("x * (2.0 if GET(self.a) == GET(self.b) else 3.0)", "self.a = 'ab'.upper(); self.b = self.a", "import operator\nGET = operator.attrgetter('strip')"), "model.b = 'ab'.upper()")
_add("methods of sizes", _model("x * (2.0 if self.a.numel == self.b.numel else 3.0)", "self.a = torch.Size([2, 3]); self.b = self.a"), "model.b = torch.Size([2, 3])")
_add("hash of a path by a global function", _model("x * digest(str(H(PurePath('/a'))))", "pass", "from pathlib import PurePath\nH = PurePath.__hash__\n" + _DIGEST), "")
_LAYERS = "self.act = F.relu; self.l = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)]); self.b0, self.b1, self.b2, self.b3 = [*self.l, nn.Linear(4, 4)]; self.d = nn.ModuleDict({'0': self.b0, '1': self.b1})"
_harmless("numbers one higher in an f-string", "for i in range(2):\n    x = self.act(getattr(self, f'b{i + 1}')(x))\nreturn x", _LAYERS)
_harmless("numbers by str", "for i in range(len(self.l) - 1):\n    x = self.act(self.d[str(i)](x))\nreturn x", _LAYERS)
_harmless("numbers by a format with %d", "for i in range(2):\n    x = self.act(getattr(self, 'b%d' % (i + 1))(x))\nreturn x", _LAYERS)
_harmless("numbers by a format", "for i, l in enumerate(self.l):\n    x = l(self.act(getattr(self, 'b{}'.format(i))(x)))\nreturn x", _LAYERS)
_harmless("numbers up to a global one", "for i in range(N):\n    x = self.act(getattr(self, f'b{i}')(x))\nreturn x", _LAYERS, "N = 2")
_harmless("numbers in a comprehension", "self.act(sum([getattr(self, f'b{i}')(x) for i in range(3)]))", _LAYERS)
_harmless("numbers in a generator", "self.act(torch.cat(tuple(getattr(self, f'b{i}')(x) for i, _ in enumerate(self.l))))", _LAYERS)
_harmless("isinstance with str, and with a tuple of types", "x * (2 if isinstance(self.k, str) else 3 if isinstance(self.k, (str, float)) else 4)", "self.k = 1; self.act = F.relu")
_harmless("a function of torch by a name of a method", "f = getattr(torch, self.k)\nreturn f(x)", "self.k = 'exp'")
_harmless("settings are called args", "x * self.args.k", "self.args = C()", "class C:\n    def __init__(self): self.k = 3")
_harmless("a remainder beside a text with a percent sign", "x * (2 if '50%' else 3) * (x.shape[0] % self.k)", "self.k = 2")
_harmless("an attribute by str", "x * self.d[str(self.k)] * self.d['%s' % self.k] * self.d['{}'.format(self.k)]", "self.k = 2; self.d = {'2': 3}; self.act = F.relu")
_add("text of a mapped iterator", _model("x * digest(f'{map(abs, [1])}')", "pass", _DIGEST), "")
_add("text of an iterator by str", _model("x * digest(str(zip([1])))", "pass", _DIGEST), "")
_add("text of an iterator by a method", _model("x * digest('{}'.format([1].__iter__()))", "pass", _DIGEST), "")
_add("text of an iterator by %", _model("x * digest('%s' % enumerate([1]))", "pass", _DIGEST), "")
_add("text of an iterator by a global format", _model("x * digest(FMT % enumerate([1]))", "pass", "FMT = '%s'\n" + _DIGEST), "")
_add("text of a local or an attribute", _model("y = iter([1])\nreturn x * digest(f'{self.k if self.no else y}') * digest(f'{y or self.k}')", "self.k = 2; self.no = False", _DIGEST), "")
_add("text of a partial", _model("x * digest(str(functools.partial(abs).func))", "pass", "import functools\n" + _DIGEST), "")
_add("text of a compiled pattern's method", _model("x * digest(f'{re.compile(chr(97)).match}')", "pass", "import re\n" + _DIGEST), "")
_add("text with !r and a width", _model("x * digest(f'{iter([1])!r:>90}')", "pass", _DIGEST), "")
_add("text of several values, one an iterator", _model("x * digest('%d %s' % (1, iter([1]))) * digest('{} {}'.format(1, iter([1])))", "pass", _DIGEST), "")
_add("text of an iterator by a kept alias", _model("s = str\nreturn x * digest(s(iter([1])))", "pass", _DIGEST), "")
_add("text of an iterator by unpacked arguments", _model("a = [iter([1])]\nreturn x * digest('{}'.format(*a)) * digest(str(*a))", "pass", _DIGEST), "")
_add("text of an iterator in a comprehension that is called twice", _model("x * sum([digest(f'{i}') for i in self.k])", "self.k = [iter([1])] if 0 else range(2)", _DIGEST), "")
_add("methods of tuples under a name in an object", _model("x * (2.0 if look(self.a, self.n) == look(self.b, self.n) else 3.0)", "self.a = tuple([1, 2]); self.b = self.a; self.n = 'count'", "def look(a, n):\n    f = getattr(a, n)\n    return f"), "model.b = tuple([1, 2])")
_SHOW = "def show(fmt, o): return fmt % o\n" + _DIGEST
_add("text of an iterator by a format that is passed on", _model("x * digest(show('%s', iter([1])))", "pass", _SHOW), "")
_add("text of an iterator by a format in an attribute", _model("x * digest(self.fmt % iter([1]))", "self.fmt = '%s'", _SHOW), "")
_add("text of an iterator by a format in an attribute, one of two ways", _model("y = iter([1])\nreturn x * digest(self.fmt % (y if self.lin else 2))", "self.fmt = '%r'", _SHOW), "")
_add("text of an iterator in an attribute that is a text elsewhere", _model("c = C()\nc.name = iter([1])\nreturn x * digest(f'{c.name}')", "pass", "class C:\n    name = 'a'\n" + _DIGEST), "")
_add("text of an iterator in the traceback of an error", _model("x * digest(tell(iter([1])))", "pass", "import traceback, enum\nclass K(enum.Enum):\n    A = 'a'\ndef tell(f):\n    try: return K(f)\n    except ValueError: return traceback.format_exc()\n" + _DIGEST), "")
_harmless("a remainder of unknown numbers beside a logger", "LOG.debug('size %s', x.shape)\nh, p = x.shape[0], self.p\nreturn x * (h % p) + F.pad(x, (0, (p - h % p) % p))[:, :4]", "self.p = 2", "import logging\nLOG = logging.getLogger('app')")
