"""What users do between two compiles of a model, in one process or in two: a table of programs and of changes.

Each scenario is a script in a folder of its own: ``app.py``, other files after lines like ``--- lib/util.py``, and code that
makes ``model``. A change is code that runs after that (in the same process, and in a second one), an edit of files, other
variables of the environment, or other code before the import. ``field_runner`` runs them.
"""

# fmt: off
from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
MAKE = "import app\nmodel = app.Model().eval()\n"


@dataclass(frozen=True)
class Scenario:
    """A program, and what is done to it before it is compiled again.

    Attributes:
        doc: what a user does, in plain English.
        text: the files: ``app.py``, and others after lines with ``---`` and their names.
        change: code that runs after the model was made.
        to: replacements of text in the files, for the second process.
        added: files that are there in the second process.
        env: variables of the second process.
        environ: variables of both.
        first: code before the model is made.
        second: the same in the second process, if it is other code.
        make: code that makes the model.
        harmless: whether the program is the same, so that direct mode should hit.
        live: whether the change is tried in the same process too.
    """

    doc: str
    text: str
    change: str = ""
    to: tuple[tuple[str, str], ...] = ()
    added: str = ""
    env: dict[str, str] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)
    first: str = ""
    second: str = ""
    make: str = MAKE
    harmless: bool = False
    live: bool = True

    def write(self, folder: Path, *, after: bool) -> None:
        """Write the files, as they are before the change or after it."""
        if after and not (self.to or self.added):
            return
        folder.mkdir(parents=True, exist_ok=True)
        text = self.text
        for old, new in self.to if after else ():
            assert old in text, (self.doc, old)
            text = text.replace(old, new)
        for name, content in _files(text) + (_files(self.added) if after and self.added else []):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)


def _files(text: str) -> list[tuple[str, str]]:
    head, *others = f"\n{text}".split("\n--- ")
    found = [("app.py", f"{HEAD}{head}\n")] if head.strip() else []
    for one in others:
        name, _, content = one.partition("\n")
        found.append((name.strip(), f"{HEAD if name.endswith('.py') else ''}{content}\n"))
    return found


def _model(forward: str, init: str = "pass", top: str = "", more: str = "", base: str = "nn.Module") -> str:
    """Return a module with a model: its forward as an expression or as statements, and what is before it."""
    body = textwrap.dedent(forward).strip("\n")
    body = body if "return " in body else f"return {body}"
    return (
        f"{textwrap.dedent(top)}\n\nclass Model({base}):\n"
        f"    def __init__(self):\n        super().__init__()\n        self.lin = nn.Linear(4, 4)\n"
        f"{textwrap.indent(textwrap.dedent(init).strip(chr(10)), ' ' * 8)}\n\n"
        f"    def forward(self, x):\n{textwrap.indent(body, ' ' * 8)}\n"
        f"{textwrap.indent(textwrap.dedent(more), ' ' * 4)}\n"
    )


SCENARIOS: list[Scenario] = []


def _add(doc: str, text: str, change: str = "", *to: tuple[str, str], **more: object) -> None:
    text, change = textwrap.dedent(text), textwrap.dedent(change)
    SCENARIOS.append(Scenario(doc, text, change, to, **more))  # type: ignore[arg-type]


# 1. Where a value lives: the same number, reached on many ways, changes from 2 to 3.

_add("a hyperparameter in a dataclass is another",
     _model("x * self.cfg.by", "self.cfg = Config()", """
     import dataclasses
     @dataclasses.dataclass
     class Config:
         by: float = 2.0
     """), "model.cfg.by = 3.0")
_add("a dataclass's default is edited in config.py",
     _model("x * self.cfg.by", "self.cfg = Config()", "from config import Config")
     + "--- config.py\nimport dataclasses\n@dataclasses.dataclass\nclass Config:\n    by: float = 2.0\n",
     "", ("by: float = 2.0", "by: float = 3.0"))
_add("a value behind a weak reference in a context variable is another",
     _model("x * CURRENT.get()().by", "pass", """
     import contextvars, weakref
     class Settings:
         by = 2.0
     SETTINGS = Settings()
     SETTINGS.by = 2.0
     CURRENT = contextvars.ContextVar("current", default=weakref.ref(SETTINGS))
     """), "app.SETTINGS.by = 3.0")
_add("a context variable is set",
     _model("x * BY.get()", "pass", """
     import contextvars
     BY = contextvars.ContextVar("by", default=2.0)
     """), "app.BY.set(3.0)")
_add("a context variable that was set is set to another object of the same class",
     _model("x * NOW.get().by", "pass", """
     import contextvars
     class Scope:
         def __init__(self, by):
             self.by = by
     NOW = contextvars.ContextVar("now")
     NOW.set(Scope(2.0))
     """), "app.NOW.set(app.Scope(3.0))")
_add("an attribute of a threading.local is another",
     _model("x * STATE.by", "pass", "import threading\nSTATE = threading.local()\nSTATE.by = 2.0\n"),
     "app.STATE.by = 3.0")
_add("an attribute of a subclass of threading.local is another",
     _model("x * self.state.by", "self.state = State()", """
     import threading
     class State(threading.local):
         def __init__(self):
             self.by = 2.0
     """), "model.state.by = 3.0")
_add("an entry of a WeakKeyDictionary for a layer is another",
     _model("x * GAINS[self.lin]", "GAINS[self.lin] = 2.0", "import weakref\nGAINS = weakref.WeakKeyDictionary()\n"),
     "app.GAINS[model.lin] = 3.0")
_add("an object in a WeakValueDictionary is collected",
     _model("x * (2.0 if 'big' in POOL else 3.0)", "pass", """
     import weakref
     class Entry:
         pass
     KEPT = [Entry()]
     POOL = weakref.WeakValueDictionary(big=KEPT[0])
     """), "app.KEPT.clear()\nimport gc\ngc.collect()")
_add("a weak reference to a parent module is dead",
     _model("x * (2.0 if self.parent() is not None else 3.0)", "self.parent = weakref.ref(PARENTS[0])",
            "import weakref\nPARENTS = [nn.Linear(2, 2)]\n"), "app.PARENTS.clear()\nimport gc\ngc.collect()")
_add("a weak reference to a parent whose attribute is another",
     _model("x * self.parent().by", "self.parent = weakref.ref(PARENT)", """
     import weakref
     class Parent:
         pass
     PARENT = Parent()
     PARENT.by = 2.0
     """), "app.PARENT.by = 3.0")
_add("a weak proxy's object has another value",
     _model("x * self.owner.by", "self.owner = weakref.proxy(OWNER)", """
     import weakref
     class Owner:
         pass
     OWNER = Owner()
     OWNER.by = 2.0
     """), "app.OWNER.by = 3.0")
_add("a method behind a WeakMethod belongs to another object",
     _model("self.call()(x)", "self.call = weakref.WeakMethod(SCALER.scale)", """
     import weakref
     class Scaler:
         by = 2.0
         def scale(self, x):
             return x * self.by
     SCALER = Scaler()
     """), "app.SCALER.by = 3.0")
_add("a bound dict.get is kept, and the dictionary changes",
     _model("x * self.get('by')", "self.get = TABLE.get", "TABLE = {'by': 2.0}\n"), "app.TABLE['by'] = 3.0")
_add("a bound __getitem__ of a dictionary is kept, and the dictionary changes",
     _model("x * self.get('by')", "self.get = {'by': 2.0}.__getitem__"), "model.get.__self__['by'] = 3.0")
_add("a bound list.count in a partial is kept, and the list grows",
     _model("x * self.count()", "self.count = functools.partial(ITEMS.count, 1)", "import functools\nITEMS = [1, 1]\n"),
     "app.ITEMS.append(1)")
_add("an attribute of a SimpleNamespace inside a tuple is another",
     _model("x * self.all[0].by", "self.all = (types.SimpleNamespace(by=2.0),)", "import types\n"),
     "model.all[0].by = 3.0")
_add("a mapping proxy shows another value",
     _model("x * VIEW['by']", "pass", "import types\n_REAL = {'by': 2.0}\nVIEW = types.MappingProxyType(_REAL)\n"),
     "app._REAL['by'] = 3.0")
_add("the order of a ChainMap is another",
     _model("x * self.cfg['by']", "self.cfg = collections.ChainMap({'by': 2.0}, {'by': 3.0})", "import collections\n"),
     "model.cfg.maps.reverse()")
_add("an OrderedDict is reordered by move_to_end",
     _model("""
     for value in self.steps.values():
         x = x * 2 + value
     return x
     """, "self.steps = collections.OrderedDict(a=1.0, b=2.0, c=3.0)", "import collections\n"),
     "model.steps.move_to_end('a')")
_add("an OrderedDict of functions in another module is reordered by move_to_end",
     _model("""
     for one in plugins.ALL.values():
         x = one(x)
     return x
     """, "pass", "import plugins\n") + """
--- plugins.py
import collections
ALL = collections.OrderedDict()
ALL["twice"] = lambda x: x * 2
ALL["plus"] = lambda x: x + 1
""", "import plugins\nplugins.ALL.move_to_end('twice')")
_add("a deque is rotated",
     _model("x * self.steps[0]", "self.steps = collections.deque([2.0, 3.0], maxlen=2)", "import collections\n"),
     "model.steps.rotate(1)")
_add("the bound of a deque is another",
     _model("x * self.steps.maxlen", "self.steps = collections.deque([2.0], maxlen=2)", "import collections\n"),
     "import collections\nmodel.steps = collections.deque([2.0], maxlen=3)")
_add("the factory of a defaultdict is another",
     _model("""
     by = self.table['absent']
     del self.table['absent']
     return x * by
     """, "self.table = collections.defaultdict(two)", """
     import collections
     def two():
         return 2.0
     def three():
         return 3.0
     """), "model.table.default_factory = app.three")
_add("a UserDict has another entry",
     _model("x * self.cfg['by']", "self.cfg = collections.UserDict(by=2.0)", "import collections\n"),
     "model.cfg['by'] = 3.0")
_add("a dictionary's subclass has an attribute that counts",
     _model("x * self.cfg.scale()", "self.cfg = Cfg(a=1.0)\nself.cfg.by = 2.0", """
     class Cfg(dict):
         def scale(self):
             return self['a'] * self.by
     """), "model.cfg.by = 3.0")
_add("a dictionary's subclass with slots has another value",
     _model("x * self.cfg.by", "self.cfg = Cfg()\nself.cfg.by = 2.0", """
     class Cfg(dict):
         __slots__ = ('by',)
     """), "model.cfg.by = 3.0")
_add("a tuple's subclass has an attribute that counts",
     _model("x * self.size.by", "self.size = Size((1, 2))\nself.size.by = 2.0", "class Size(tuple):\n    pass\n"),
     "model.size.by = 3.0")
_add("a float's subclass has an attribute that counts",
     _model("x * self.rate.by", "self.rate = Rate(1.0)\nself.rate.by = 2.0", "class Rate(float):\n    pass\n"),
     "model.rate.by = 3.0")
_add("a text's subclass has an attribute that counts",
     _model("x * self.tag.by", "self.tag = Tag('a')\nself.tag.by = 2.0", "class Tag(str):\n    pass\n"),
     "model.tag.by = 3.0")
_add("an int's subclass has an attribute that counts",
     _model("x * N.by", "pass", "class Num(int):\n    pass\nN = Num(1)\nN.by = 2.0\n"), "app.N.by = 3.0")
_add("an attribute of a buffer, read with getattr and a default, appears",
     _model("x * getattr(self.scale, 'gain', 2.0)", "self.register_buffer('scale', torch.ones(4))"),
     "model.scale.gain = 3.0")
_add("an attribute of a function, read with getattr and a default, appears",
     _model("act(x) * getattr(act, 'gain', 2.0)", "pass", "def act(x):\n    return x + 1\n"), "app.act.gain = 3.0")
_add("an attribute of a function in a registry of a third module is another",
     _model("""
     act = registry.ACTS['own']
     return act(x) * act.gain
     """, "pass", "import registry, acts\n")
     + "--- registry.py\nACTS = {}\n"
     + "--- acts.py\nimport registry\ndef own(x):\n    return x + 1\nown.gain = 2.0\nregistry.ACTS['own'] = own\n",
     "import acts\nacts.own.gain = 3.0")
_add("a function behind a partial in a registry of a third module is another",
     _model("registry.ACTS['own'](x)", "pass", "import registry, acts\n")
     + "--- registry.py\nACTS = {}\n"
     + "--- acts.py\nimport registry, functools\ndef own(x, by):\n    return x * by\n"
     + "registry.ACTS['own'] = functools.partial(own, by=2.0)\n",
     "import registry, functools\nregistry.ACTS['own'] = functools.partial(lambda x, by: x + by, by=2.0)")
_add("the code of a function behind nested partials is another",
     _model("self.act(x)", "self.act = functools.partial(functools.partial(scale, by=2.0), plus=1.0)", """
     import functools
     def scale(x, by, plus):
         return x * by + plus
     """), "app.scale.__code__ = (lambda x, by, plus: x * by - plus).__code__")
_add("the keywords of a partial are changed in place",
     _model("self.act(x)", "self.act = functools.partial(torch.mul, other=2.0)", "import functools\n"),
     "model.act.keywords['other'] = 3.0")
_add("the order of keywords in a partial is another",
     _model("self.act(x)", "self.act = functools.partial(chain, a=2.0, b=3.0)", """
     import functools
     def chain(x, **steps):
         for by in steps.values():
             x = x * 2 + by
         return x
     """), "import functools\nmodel.act = functools.partial(app.chain, b=3.0, a=2.0)")
_add("a partialmethod has another argument",
     _model("self.double(x)", "pass", "import functools\n", """
     def scaled(self, x, by):
         return x * by
     double = functools.partialmethod(scaled, by=2.0)
     """), "import functools\napp.Model.double = functools.partialmethod(app.Model.scaled, by=3.0)")
_add("a default argument that is a list is appended to",
     _model("scale(x)", "pass", "def scale(x, by=[1.0]):\n    return x * len(by)\n"),
     "app.scale.__defaults__[0].append(1.0)")
_add("a keyword default is another",
     _model("scale(x)", "pass", "def scale(x, *, by=2.0):\n    return x * by\n"),
     "app.scale.__kwdefaults__['by'] = 3.0")
_add("a cell of a closure is set",
     _model("self.act(x)", "self.act = make(2.0)", """
     def make(by):
         def act(x):
             return x * by
         return act
     """), "model.act.__closure__[0].cell_contents = 3.0")
_add("a closure's dictionary inside a decorator of a decorator changes",
     _model("scale(x)", "pass", """
     import functools
     def tuned(options):
         def outer(fn):
             @functools.wraps(fn)
             def inner(*args):
                 return fn(*args) * options['by']
             return inner
         return outer
     OPTIONS = {'by': 2.0}
     @tuned(OPTIONS)
     @functools.wraps(len)
     def scale(x):
         return x + 1
     """), "app.OPTIONS['by'] = 3.0")
_add("a metadata of Annotated is another",
     _model("x * typing.get_args(Gain)[1]", "pass", "import typing\nGain = typing.Annotated[float, 2.0]\n"),
     "import typing\napp.Gain = typing.Annotated[float, 3.0]")
_add("a Literal has one more member",
     _model("x * len(typing.get_args(Kind))", "pass", "import typing\nKind = typing.Literal['a', 'b']\n"),
     "import typing\napp.Kind = typing.Literal['a', 'b', 'c']")
_add("a NewType's attribute is another",
     _model("x * Gain.by", "pass", "import typing\nGain = typing.NewType('Gain', float)\nGain.by = 2.0\n"),
     "app.Gain.by = 3.0")
_add("a generic alias of a class whose attribute is another",
     _model("x * self.kind.__origin__.by", "self.kind = Box[int]", """
     import typing
     T = typing.TypeVar('T')
     class Box(typing.Generic[T]):
         by = 2.0
     """), "app.Box.by = 3.0")
_add("a TypeVar's bound has another attribute",
     _model("x * T.__bound__.by", "pass", """
     import typing
     class Base:
         by = 2.0
     T = typing.TypeVar('T', bound=Base)
     """), "app.Base.by = 3.0")
_add("a function that exec made reads another value of its own namespace",
     _model("self.fn(x)", "self.fn = SPACE['fn']", """
     SPACE = {'by': 2.0}
     exec('def fn(x):\\n    return x * by', SPACE)
     """), "app.SPACE['by'] = 3.0")
_add("a function's namespace has its own builtins, and one is another",
     _model("x * self.fn([1, 2])", "self.fn = SPACE['fn']", """
     SPACE = {'__builtins__': {'len': lambda all: 2.0}}
     exec('def fn(all):\\n    return len(all)', SPACE)
     """), "app.SPACE['__builtins__']['len'] = lambda all: 3.0")
_add("a function made of another's code reads other globals",
     _model("self.fn(x)", "self.fn = types.FunctionType(scale.__code__, {'BY': 2.0})", """
     import types
     BY = 1.0
     def scale(x):
         return x * BY
     """), "import types\nmodel.fn = types.FunctionType(app.scale.__code__, {'BY': 3.0})")
_add("sympy's lambdify makes another function from another formula",
     _model("self.fn(x)", "a = sympy.Symbol('a')\nself.fn = sympy.lambdify(a, FORMULA * a, 'torch')",
            "import sympy\nFORMULA = 2.0\n"), "", ("FORMULA = 2.0", "FORMULA = 3.0"))
_add("a sympy expression that is a hyperparameter is another",
     _model("x * float(self.expr.subs('a', 2))", "self.expr = sympy.sympify('a + 1')", "import sympy\n"),
     "import sympy\nmodel.expr = sympy.sympify('a + 2')")

# 2. Names that come to be: what was absent is there.

_add("a global that shadows a builtin appears",
     _model("x * len(self.items)", "self.items = [1, 2]"), "app.len = lambda items: 3.0")
_add("a global of a helper that shadows a builtin appears",
     _model("helper.scale(x)", "pass", "import helper\n") + "--- helper.py\ndef scale(x):\n    return x * max(1, 2)\n",
     "import helper\nhelper.max = min")
_add("a builtin that was absent appears, as profilers do",
     _model("""
     try:
         by = gain
     except NameError:
         by = 2.0
     return x * by
     """), "import builtins\nbuiltins.gain = 3.0")
_add("a global that was absent appears",
     _model("""
     try:
         by = GAIN
     except NameError:
         by = 2.0
     return x * by
     """), "app.GAIN = 3.0")
_add("an attribute of a module, read with getattr and a default, appears",
     _model("x * getattr(config, 'GAIN', 2.0)", "pass", "import config\n") + "--- config.py\nUNUSED = 1\n",
     "import config\nconfig.GAIN = 3.0")
_add("a name is looked for in globals()",
     _model("x * (3.0 if 'GAIN' in globals() else 2.0)"), "app.GAIN = 3.0")
_add("a name is looked for in vars of a module",
     _model("x * vars(config).get('GAIN', 2.0)", "pass", "import config\n") + "--- config.py\nUNUSED = 1\n",
     "import config\nconfig.GAIN = 3.0")
_add("sys.frozen appears, as in a bundled program",
     _model("x * (3.0 if getattr(sys, 'frozen', False) else 2.0)", "pass", "import sys\n"),
     "import sys\nsys.frozen = True")
_add("an attribute of a class of torch, read with a default, appears",
     _model("x * getattr(type(self.lin), 'gain', 2.0)"), "torch.nn.Linear.gain = 3.0")
_add("an attribute of torch.Tensor, read with a default, appears",
     _model("x * getattr(x, 'gain', 2.0)"), "torch.Tensor.gain = 3.0")
_add("an attribute of torch.nn.Parameter, read with a default, appears",
     _model("x * getattr(self.lin.weight, 'gain', 2.0)"), "torch.nn.Parameter.gain = 3.0")
_add("an attribute of numpy, read with a default, appears",
     _model("x * getattr(np, 'gain', 2.0)", "pass", "import numpy as np\n"), "import numpy\nnumpy.gain = 3.0")
_add("an attribute of torch.nn.functional, read with a default, appears",
     _model("x * (3.0 if hasattr(F, 'flash') else 2.0)"), "torch.nn.functional.flash = 1")
_add("an attribute of a submodule of torch, read with a default, appears",
     _model("x * (3.0 if hasattr(torch.backends.cpu, 'flash') else 2.0)"), "torch.backends.cpu.flash = 1")
_add("an attribute of the current thread appears",
     _model("x * getattr(threading.main_thread(), 'gain', 2.0)", "pass", "import threading\n"),
     "import threading\nthreading.main_thread().gain = 3.0")
_add("a base class gets an attribute that the model's class lacks",
     _model("x * getattr(self.cfg, 'gain', 2.0)", "self.cfg = Cfg()",
            "class Base:\n    pass\nclass Middle(Base):\n    pass\nclass Cfg(Middle):\n    pass\n"), "app.Base.gain = 3.0")
_add("object-like base of a metaclass gets an attribute",
     _model("x * getattr(Cfg, 'gain', 2.0)", "pass", """
     class Meta(type):
         pass
     class Cfg(metaclass=Meta):
         pass
     """), "app.Meta.gain = 3.0")
_add("a class gets __getattr__",
     _model("x * getattr(self.cfg, 'gain', 2.0)", "self.cfg = Cfg()", "class Cfg:\n    pass\n"),
     "app.Cfg.__getattr__ = lambda self, name: 3.0")
_add("a class gets __bool__",
     _model("x * (2.0 if self.cfg else 3.0)", "self.cfg = Cfg()", "class Cfg:\n    pass\n"),
     "app.Cfg.__bool__ = lambda self: False")
_add("a class gets __eq__",
     _model("x * (2.0 if self.cfg != Cfg() else 3.0)", "self.cfg = Cfg()", "class Cfg:\n    pass\n"),
     "app.Cfg.__eq__ = lambda self, other: True")
_add("an optional plugin is installed",
     _model("""
     try:
         from fastops import gain
     except ImportError:
         gain = 2.0
     return x * gain
     """), "", added="--- fastops.py\ngain = 3.0\n")
_add("an optional plugin is installed, looked for by find_spec",
     _model("x * (3.0 if importlib.util.find_spec('fastops') else 2.0)", "pass", "import importlib.util\n"),
     "", added="--- fastops.py\ngain = 3.0\n")
_add("an optional plugin of the package is added beside it",
     """
--- app/__init__.py
from app.net import Model
--- app/net.py
"""
     + _model("""
     try:
         from app import fast
     except ImportError:
         return x * 2.0
     return x * fast.GAIN
     """), "", added="--- app/fast.py\nGAIN = 3.0\n")
_add("a module that forward imports has another value",
     _model("""
     import late
     return x * late.GAIN
     """) + "--- late.py\nGAIN = 2.0\n", "", ("GAIN = 2.0", "GAIN = 3.0"))
_add("a module that forward imports reads a variable when it is imported",
     _model("""
     from late import GAIN
     return x * GAIN
     """) + "--- late.py\nimport os\nGAIN = float(os.environ.get('FIELD_GAIN', '2'))\n", "", env={"FIELD_GAIN": "3"})
_add("a module that forward imports imports another whose value is another",
     _model("""
     import late
     return x * late.deeper.GAIN
     """) + "--- late.py\nimport deeper\n--- deeper.py\nGAIN = 2.0\n", "", ("GAIN = 2.0", "GAIN = 3.0"))
_add("a module's __getattr__ answers from a dictionary that changes",
     _model("x * lazy.GAIN", "pass", "import lazy\n")
     + "--- lazy.py\n_ALL = {'GAIN': 2.0}\ndef __getattr__(name):\n    return _ALL[name]\n",
     "import lazy\nlazy._ALL['GAIN'] = 3.0")
_add("a module's __getattr__ is edited",
     _model("x * lazy.GAIN", "pass", "import lazy\n") + "--- lazy.py\ndef __getattr__(name):\n    return 2.0\n",
     "", ("return 2.0", "return 3.0"))
_add("a module's class has a property that reads a global of a third module",
     _model("x * settings.gain", "pass", "import settings\n")
     + """
--- settings.py
import sys, types
import values
class Settings(types.ModuleType):
    @property
    def gain(self):
        return values.GAIN
sys.modules[__name__].__class__ = Settings
--- values.py
GAIN = 2.0
""", "import values\nvalues.GAIN = 3.0")
_add("an object stands in for a module in sys.modules",
     _model("x * settings.gain", "pass", "import settings\n")
     + """
--- settings.py
import sys
class Settings:
    def __init__(self):
        self.values = {'gain': 2.0}
    def __getattr__(self, name):
        return self.values[name]
sys.modules[__name__] = Settings()
""", "import settings\nsettings.values['gain'] = 3.0")

# 3. A weight that is somewhere else too, where torch.export makes a constant of it: then it is trained on.

_TRAIN = "\nwith torch.no_grad():\n    model.lin.weight.mul_(2)\n"
for _where, _init, _use, _top in (
    ("a bound method of a weight", "self.f = self.lin.weight.mul", "x @ self.f(2.0)", ""),
    ("a weak reference", "self.w = weakref.ref(self.lin.weight)", "x @ self.w()", "import weakref\n"),
    ("a weak dictionary", "POOL['w'] = self.lin.weight", "x @ POOL['w']",
     "import weakref\nPOOL = weakref.WeakValueDictionary()\n"),
    ("a context variable", "W.set(self.lin.weight)", "x @ W.get()", "import contextvars\nW = contextvars.ContextVar('w')\n"),
    ("a thread's own data", "W.w = self.lin.weight", "x @ W.w", "import threading\nW = threading.local()\n"),
    ("a default of a lambda", "self.f = lambda x, w=self.lin.weight: x @ w", "self.f(x)", ""),
    ("a partial", "self.f = functools.partial(torch.matmul, other=self.lin.weight)", "self.f(x)", "import functools\n"),
    ("a cached function", "TIED.append(self.lin.weight)\ntied()", "x @ tied()",
     "import functools\nTIED = []\n@functools.lru_cache\ndef tied():\n    return TIED[0]\n"),
    ("an attribute of the class", "type(self).shared = self.lin.weight", "x @ type(self).shared", ""),
    ("a module-level dictionary", "SHARED['w'] = self.lin.weight", "x @ SHARED['w']", "SHARED = {}\n"),
    ("a detached view", "self.w = self.lin.weight.detach()", "x @ self.w", ""),
    ("a view of a row", "self.w = self.lin.weight.data[0]", "x * self.w", ""),
    ("a module that is no child", "self.__dict__['other'] = nn.Linear(4, 4)\nself.other.weight = self.lin.weight",
     "x @ self.other.weight", ""),
    ("a module in a tuple", "self.others = (self.lin,)", "self.others[0](x)", ""),
    ("a property", "pass", "x @ self.w", "W = []\n"),
    ("a method's closure", "w = self.lin.weight\nself.f = lambda x: x @ w", "self.f(x)", ""),
    ("a hook's closure",
     "w = self.lin.weight\nself.lin.register_forward_hook(lambda m, a, out: out @ w)", "self.lin(x)", ""),
    ("a named tuple", "self.pair = Pair(self.lin.weight, 1)", "x @ self.pair.w",
     "import typing\nclass Pair(typing.NamedTuple):\n    w: object\n    n: int\n"),
    ("a deque", "self.all = collections.deque([self.lin.weight])", "x @ self.all[0]", "import collections\n"),
    ("a mapping proxy", "self.all = types.MappingProxyType({'w': self.lin.weight})", "x @ self.all['w']", "import types\n"),
    ("an object with slots", "self.slot = Slot()\nself.slot.w = self.lin.weight", "x @ self.slot.w",
     "class Slot:\n    __slots__ = ('w',)\n"),
    ("a class's property with a closure", "type(self).w = property(lambda self, w=self.lin.weight: w)", "x @ self.w", ""),
    ("a key of a dictionary", "self.names = {self.lin.weight: 1}", "x @ [*self.names][0]", ""),
    ("an attribute of a function", "scale.w = self.lin.weight", "scale(x)", "def scale(x):\n    return x @ scale.w\n"),
    ("a single-dispatch registry", "w = self.lin.weight\nact.register(torch.Tensor, lambda x: x @ w)", "act(x)",
     "import functools\n@functools.singledispatch\ndef act(x):\n    return x\n"),
    ("a frozen dataclass", "self.cfg = Cfg(self.lin.weight)", "x @ self.cfg.w",
     "import dataclasses\n@dataclasses.dataclass(frozen=True, eq=False)\nclass Cfg:\n    w: object\n"),
    ("the metadata of a dataclass's field", "type(self).fields = Cfg(self.lin.weight)", "x @ self.fields.get()",
     "class Cfg:\n    def __init__(self, w):\n        self.get = lambda: w\n"),
):
    _text = _model(_use, _init, _top, "@property\ndef w(self):\n    return W[-1]\n" if _where == "a property" else "")
    if _where == "a property":
        _text = _text.replace("        pass\n", "        W.append(self.lin.weight)\n", 1)
    _add(f"a weight that is also in {_where} is trained on", _text, _TRAIN)
_add("a weight is shared with other processes",
     _model("x * (3.0 if self.lin.weight.is_shared() else 2.0)"), "model.share_memory()")
_add("a weight is not contiguous any more",
     _model("x @ self.lin.weight if self.lin.weight.is_contiguous() else x * 3"),
     "model.lin.weight.data = model.lin.weight.data.t().contiguous().t()")
_add("a weight is frozen",
     _model("x * (2.0 if self.lin.weight.requires_grad else 3.0)"), "model.lin.weight.requires_grad_(False)")
_add("a weight's version counts, as in caches of derived weights",
     _model("x * (2.0 if self.lin.weight._version == 0 else 3.0)", "self.lin.weight = nn.Parameter(torch.zeros(4, 4))"),
     "with torch.no_grad():\n    model.lin.weight.add_(1)")
_add("tied weights are untied",
     _model("self.b(self.lin(x))", "self.b = nn.Linear(4, 4)\nself.b.weight = self.lin.weight"),
     "model.b.weight = torch.nn.Parameter(model.b.weight.detach().clone())")
_add("a buffer becomes one that is not persistent",
     _model("x * self.s", "self.register_buffer('s', torch.ones(4))"),
     "model.register_buffer('s', torch.full((4,), 3.0), persistent=False)")
_add("the values of a non-persistent buffer are others",
     _model("x * self.s", "self.register_buffer('s', torch.ones(4), persistent=False)"), "model.s.mul_(3)")
_add("a tensor made from a NumPy array changes with the array",
     _model("x * self.s", "self.a = np.ones(4, dtype='float32')\nself.s = torch.from_numpy(self.a)", "import numpy as np\n"),
     "model.a *= 3")
_add("a global tensor is filled in place",
     _model("x * TABLE", "pass", "TABLE = torch.ones(4)\n"), "app.TABLE.fill_(3)")
_add("a tensor in a closure of a mask function is another",
     _model("self.mask(x)", "self.mask = make(torch.ones(4))",
            "def make(mask):\n    def apply(x):\n        return x * mask\n    return apply\n"),
     "model.mask.__closure__[0].cell_contents.mul_(3)")
_add("a tensor that is a class's default argument is another",
     _model("scale(x)", "pass", "def scale(x, by=torch.ones(4)):\n    return x * by\n"), "app.scale.__defaults__[0].mul_(3)")
_add("rotary tables for another base are made",
     _model("x * self.cos[:x.shape[0]]", """
     inv = 1.0 / (app_base() ** (torch.arange(0, 4).float() / 4))
     self.register_buffer('cos', torch.outer(torch.arange(8).float(), inv).cos(), persistent=False)
     """, "BASE = 10000\ndef app_base():\n    return BASE\n"), "", ("BASE = 10000", "BASE = 500000"))
_add("a quantization scale, a plain tensor of no dimensions, is another",
     _model("x * self.scale.item()", "self.scale = torch.tensor(2.0)"), "model.scale = torch.tensor(3.0)")
_add("a scale of no dimensions is filled in place",
     _model("x * float(self.scale)", "self.scale = torch.tensor(2.0)"), "model.scale.fill_(3.0)")
_add("a layer is weight-normed, in the old way, and trained on",
     _model("self.lin(x)", "torch.nn.utils.weight_norm(self.lin)"), "model.lin.weight_g.data.mul_(2)\nmodel(args[0])")
_add("a layer is pruned",
     _model("self.lin(x)"), "import torch.nn.utils.prune as prune\nprune.l1_unstructured(model.lin, 'weight', amount=0.5)")
_add("a parametrization gets another constant",
     _model("self.lin(x)", "parametrize.register_parametrization(self.lin, 'weight', Times(2.0))", """
     from torch.nn.utils import parametrize
     class Times(nn.Module):
         def __init__(self, by):
             super().__init__()
             self.by = by
         def forward(self, w):
             return w * self.by
     """), "model.lin.parametrizations.weight[0].by = 3.0")
_add("parametrizations are removed",
     _model("self.lin(x)", "torch.nn.utils.parametrizations.weight_norm(self.lin)"),
     "torch.nn.utils.parametrize.remove_parametrizations(model.lin, 'weight')")

# 4. The structure of a model.

_add("two layers of a Sequential are exchanged",
     _model("self.seq(x)", "self.seq = nn.Sequential(nn.ReLU(), nn.Softmax(-1), nn.Sigmoid())"),
     "model.seq[0], model.seq[2] = model.seq[2], model.seq[0]")
_add("a layer is inserted",
     _model("self.seq(x)", "self.seq = nn.Sequential(nn.ReLU(), nn.Sigmoid())"), "model.seq.insert(1, torch.nn.Tanh())")
_add("a layer is dropped", _model("self.seq(x)", "self.seq = nn.Sequential(nn.ReLU(), nn.Sigmoid())"), "del model.seq[1]")
_add("a ModuleDict is filled in another order",
     _model("""
     for one in self.heads.values():
         x = one(x)
     return x
     """, "self.heads = nn.ModuleDict({'a': nn.Tanh(), 'b': nn.Sigmoid()})"),
     "model.heads = torch.nn.ModuleDict({'b': torch.nn.Sigmoid(), 'a': torch.nn.Tanh()})")
_add("children are registered in another order, and forward goes over children()",
     _model("""
     for one in self.children():
         x = one(x)
     return x
     """, "self.a = nn.Tanh()\nself.b = nn.Sigmoid()"), "a = model.a\ndel model.a\nmodel.a = a")
_add("a submodule is set to training", _model("self.drop(self.lin(x))", "self.drop = nn.Dropout(0.5)"), "model.drop.train()")
_add("batch norm is set to training", _model("self.norm(x)", "self.norm = nn.BatchNorm1d(4)"), "model.norm.train()")
_add("batch norm does not track statistics any more",
     _model("self.norm(x)", "self.norm = nn.BatchNorm1d(4)"), "model.norm.track_running_stats = False")
_add("the epsilon of a norm is another", _model("self.norm(x)", "self.norm = nn.LayerNorm(4)"), "model.norm.eps = 0.1")
_add("an activation is replaced in place by its class",
     _model("self.act(x)", "self.act = nn.Tanh()"), "model.act.__class__ = torch.nn.Sigmoid")
_add("the model's own __class__ is a subclass",
     _model("x * self.gain", "pass", more="gain = 2.0\n") + "\nclass Other(Model):\n    gain = 3.0\n",
     "model.__class__ = app.Other")
_add("forward of one instance is replaced",
     _model("self.lin(x)"), "import types\nmodel.lin.forward = types.MethodType(lambda self, x: x * 3, model.lin)")
_add("forward of an inner module is monkeypatched on its class",
     _model("self.block(x)", "self.block = Block()", "class Block(nn.Module):\n    def forward(self, x):\n        return x * 2\n"),
     "app.Block.forward = lambda self, x: x * 3")
_add("a method that forward calls is replaced on a grandparent",
     _model("self.block(x)", "self.block = Block()", """
     class Root(nn.Module):
         def act(self, x):
             return x * 2
     class Middle(Root):
         pass
     class Block(Middle):
         def forward(self, x):
             return super().act(x)
     """), "app.Root.act = lambda self, x: x * 3")
_add("the bases of a class are assigned",
     _model("x * self.cfg.gain", "self.cfg = Cfg()", """
     class A:
         gain = 2.0
     class B:
         gain = 3.0
     class Cfg(A):
         pass
     """), "app.Cfg.__bases__ = (app.B,)")
_add("a mixin is put before the others",
     """
--- mixins.py
class Plain:
    def act(self, x):
        return x * 2
class Loud(Plain):
    def act(self, x):
        return super().act(x) * 3
"""
     + "--- app.py\nfrom mixins import *\nclass Block(Plain, nn.Module):\n    def forward(self, x):\n        return self.act(x)\n"
     + _model("self.block(x)", "self.block = Block()"), "", ("class Block(Plain,", "class Block(Loud, Plain,"))
_add("a forward pre-hook is registered",
     _model("self.lin(x)"), "model.lin.register_forward_pre_hook(lambda m, a: (a[0] * 3,))")
_add("two hooks are registered in another order, by prepend",
     _model("self.lin(x)", "self.handles = None"),
     "model.lin.register_forward_hook(plus, prepend=True)", make=MAKE
     + "def times(m, a, out):\n    return out * 2\ndef plus(m, a, out):\n    return out + 1\n"
     + "model.lin.register_forward_hook(times)\n")
_add("the order of two hooks is turned around with move_to_end",
     _model("self.lin(x)"),
     "model.lin._forward_hooks.move_to_end(next(iter(model.lin._forward_hooks)))", make=MAKE
     + "def times(m, a, out):\n    return out * 2\ndef plus(m, a, out):\n    return out + 1\n"
     + "model.lin.register_forward_hook(times)\nmodel.lin.register_forward_hook(plus)\n")
_add("a hook's object has another value",
     _model("self.lin(x)", "self.lin.register_forward_hook(Tap(2.0))", """
     class Tap:
         def __init__(self, by):
             self.by = by
         def __call__(self, module, args, out):
             return out * self.by
     """), "[*model.lin._forward_hooks.values()][0].by = 3.0")
_add("a global forward hook is registered",
     _model("self.lin(x)"),
     "torch.nn.modules.module.register_module_forward_hook(lambda m, a, out: out * 3)")
_add("a forward hook is registered with keywords",
     _model("self.inner(x, by=2.0)", "self.inner = Inner()",
            "class Inner(nn.Module):\n    def forward(self, x, by=1.0):\n        return x * by\n"),
     "model.inner.register_forward_pre_hook(lambda m, a, k: (a, {'by': 3.0}), with_kwargs=True)")
_add("named_parameters leaves out what a global names",
     _model("x @ self.lin.weight", "pass", "HIDDEN = set()\nHIDE = ['none']\n", """
     def named_parameters(self, *args, **kwargs):
         for name, value in super().named_parameters(*args, **kwargs):
             if name not in HIDE:
                 yield name, value
     """), "app.HIDE.append('lin.weight')")
_add("state_dict is overridden and renames by a table",
     _model("self.lin(x)", "pass", "PREFIX = ['']\n", """
     def state_dict(self, *args, **kwargs):
         return {PREFIX[0] + name: value for name, value in super().state_dict(*args, **kwargs).items()}
     """), "app.PREFIX[0] = 'x.'")
_add("the model's __getattr__ gives what a wrapped object has",
     _model("x * self.gain", "self.__dict__['wrapped'] = Wrapped()", "class Wrapped:\n    gain = 2.0\n", """
     def __getattr__(self, name):
         try:
             return super().__getattr__(name)
         except AttributeError:
             return getattr(self.__dict__['wrapped'], name)
     """), "model.wrapped.gain = 3.0")
_add("a custom __call__ of the model's class is patched",
     _model("self.block(x)", "self.block = Block()", """
     class Block(nn.Module):
         def __call__(self, x):
             return super().__call__(x) * 2
         def forward(self, x):
             return x + 1
     """), "app.Block.__call__ = lambda self, x: x * 3")
_add("an empty ModuleList gets a layer",
     _model("""
     for one in self.extra:
         x = one(x)
     return x * 2
     """, "self.extra = nn.ModuleList()"), "model.extra.append(torch.nn.Sigmoid())")
_add("a child is None and then a layer",
     _model("x * 2 if self.down is None else self.down(x)", "self.down = None"), "model.down = torch.nn.Sigmoid()")
_add("a child is replaced by Identity", _model("self.act(x)", "self.act = nn.Sigmoid()"), "model.act = torch.nn.Identity()")
_add("the depth of a loop in an inner list of a list is another",
     _model("""
     for row in self.plan:
         for by in row:
             x = x * by
     return x
     """, "self.plan = [[2.0], [1.5, 1.5]]"), "model.plan[1].pop()")
_add("a traced submodule has another constant",
     _model("self.act(x)", "self.act = torch.jit.trace(lambda x: x * 2.0, torch.ones(3, 4))"),
     "model.act = torch.jit.trace(lambda x: x * 3.0, torch.ones(3, 4))")
_add("an FX graph is rewritten and compiled anew",
     _model("self.act(x)", "self.act = torch.fx.symbolic_trace(Act())",
            "import torch.fx\nclass Act(nn.Module):\n    def forward(self, x):\n        return torch.sin(x)\n"), """
     for node in model.act.graph.nodes:
         if node.target is torch.sin:
             node.target = torch.cos
     model.act.recompile()
     """)
_add("an exported inner program is another",
     _model("self.act(x)", "self.act = torch.export.export(Act(2.0), (torch.ones(3, 4),)).module()", """
     class Act(nn.Module):
         def __init__(self, by):
             super().__init__()
             self.by = by
         def forward(self, x):
             return x * self.by
     """), "model.act = torch.export.export(app.Act(3.0), (torch.ones(3, 4),)).module()", make="import app\nmodel = app.Model()\n")

# 5. Patches of libraries: torch, NumPy and Python's own.

for _doc, _forward, _change, _top in (
    ("F.gelu is replaced", "F.gelu(x)", "F = torch.nn.functional\nF.gelu = F.relu", ""),
    ("torch.einsum is replaced", "torch.einsum('ij,ij->ij', x, x)", "torch.einsum = lambda eq, a, b: a * b * 3", ""),
    ("torch.functional.norm is replaced", "torch.Tensor.norm(x)", "torch.functional.norm = lambda *a, **k: a[0].sum()", ""),
    ("Tensor.norm is replaced", "x.norm()", "torch.Tensor.norm = lambda self: self.sum()", ""),
    ("Tensor.__mul__ is replaced", "x * 2.0", "torch.Tensor.__mul__ = lambda self, other: self + other", ""),
    ("nn.Linear.forward is replaced", "self.lin(x)", "torch.nn.Linear.forward = lambda self, x: x * 3", ""),
    ("nn.Module.__call__ is replaced", "self.lin(x)",
     "call = torch.nn.Module.__call__\n"
     "torch.nn.Module.__call__ = lambda self, *a, **k: call(self, *a, **k) * (3 if type(self) is torch.nn.Linear else 1)", ""),
    ("a helper of torch.nn.modules.utils is replaced", "self.conv(x[None, None]).sum()",
     "import torch.nn.modules.conv as conv\nconv.F = type('F', (), {'conv2d': staticmethod(lambda *a: a[0] * 3)})", "CONV = 1\n"),
    ("a private function behind torch.stft is replaced", "torch.nn.functional.interpolate(x[None], scale_factor=2)",
     "torch._C._nn.upsample_nearest1d = lambda *a: a[0] * 3", ""),
    ("the check of a batch norm is replaced", "self.norm(x)",
     "torch.nn.BatchNorm1d._check_input_dim = lambda self, x: x.mul_(1) and None or x.add_(3)", ""),
    ("torch.distributions' log_prob is patched", "torch.distributions.Normal(0.0, 1.0, validate_args=False).log_prob(x)",
     "torch.distributions.Normal.log_prob = lambda self, x: x * 3", ""),
    ("math.log, as torch.distributions sees it, is patched",
     "torch.distributions.Normal(0.0, 1.0, validate_args=False).log_prob(x)",
     "import torch.distributions.normal as n, types\n"
     "n.math = types.SimpleNamespace(log=lambda v: 3.0, sqrt=lambda v: 1.0, pi=2.0)", ""),
    ("the rank of statistics.mean is patched", "x * statistics.mean([1, 3])", "import statistics\nstatistics.mean = max", "import statistics\n"),
    ("a private helper of statistics is patched", "x * statistics.mean([1, 3])",
     "import statistics\nstatistics._convert = lambda value, kind: 3.0", "import statistics\n"),
    ("colorsys's constant is patched", "x * colorsys.rgb_to_hls(0.2, 0.4, 0.6)[0]",
     "import colorsys\ncolorsys.rgb_to_hls = lambda *a: (3.0, 1, 1)", "import colorsys\n"),
    ("a constant inside colorsys is patched", "x * colorsys.hls_to_rgb(0.2, 0.4, 0.6)[0]",
     "import colorsys\ncolorsys.ONE_THIRD = 0.9", "import colorsys\n"),
    ("bisect is patched", "x * bisect.bisect([1, 2, 3], 2)", "import bisect\nbisect.bisect = lambda *a: 1", "import bisect\n"),
    ("np.sqrt is patched", "x * float(np.sqrt(4.0))", "import numpy as np\nnp.sqrt = lambda v: 3.0", "import numpy as np\n"),
    ("np.linalg.norm is patched", "x * float(np.linalg.norm([3.0, 4.0]))",
     "import numpy as np\nnp.linalg.norm = lambda v: 3.0", "import numpy as np\n"),
    ("a name inside np.linalg is patched", "x * float(np.linalg.norm([3.0, 4.0]))",
     "import numpy.linalg._linalg as l\nl.sqrt = lambda v: 3.0", "import numpy as np\n"),
    ("dataclasses.replace is patched", "x * dataclasses.replace(CFG, by=2.0).by",
     "import dataclasses\ndataclasses.replace = lambda cfg, by: app.Cfg(3.0)",
     "import dataclasses\n@dataclasses.dataclass\nclass Cfg:\n    by: float = 1.0\nCFG = Cfg()\n"),
    ("operator.mul is patched", "operator.mul(x, 2.0)", "import operator\noperator.mul = lambda a, b: a + b", "import operator\n"),
    ("functools.reduce is patched", "functools.reduce(torch.mul, [x, x])",
     "import functools\nfunctools.reduce = lambda fn, all: fn(*all) * 3", "import functools\n"),
    ("enum's property is patched", "x * Kind.A.value", "import enum\napp.Kind._value2member_map_[2.0]._value_ = 3.0",
     "import enum\nclass Kind(enum.Enum):\n    A = 2.0\n"),
    ("string's constant is patched", "x * len(string.digits)", "import string\nstring.digits = '012'", "import string\n"),
    ("a function of textwrap is patched inside", "x * len(textwrap.wrap('a b c d', 3))",
     "import textwrap\ntextwrap.TextWrapper.wrap = lambda self, text: [1]", "import textwrap\n"),
    ("fractions.Fraction is patched", "x * float(Fraction(1, 2))",
     "import fractions\nfractions.Fraction.__float__ = lambda self: 3.0\n"
     "fractions.Fraction.__truediv__ = lambda self, o: 3.0", "from fractions import Fraction\n"),
    ("numbers.Number gets a registered class", "x * (2.0 if isinstance(CFG, numbers.Number) else 3.0)",
     "import numbers\nnumbers.Number.register(app.Cfg)", "import numbers\nclass Cfg:\n    pass\nCFG = Cfg()\n"),
    ("collections.abc.Sequence gets a registered class", "x * (2.0 if isinstance(CFG, collections.abc.Sequence) else 3.0)",
     "import collections.abc\ncollections.abc.Sequence.register(app.Cfg)",
     "import collections.abc\nclass Cfg:\n    pass\nCFG = Cfg()\n"),
    ("an own abstract class gets a registered class", "x * (2.0 if isinstance(CFG, Base) else 3.0)",
     "app.Base.register(app.Cfg)", "import abc\nclass Base(abc.ABC):\n    pass\nclass Cfg:\n    pass\nCFG = Cfg()\n"),
    ("a single-dispatch function gets an implementation", "act(CFG, x)",
     "app.act.register(app.Cfg, lambda cfg, x: x * 3)",
     "import functools\nclass Cfg:\n    pass\nCFG = Cfg()\n@functools.singledispatch\ndef act(cfg, x):\n    return x * 2\n"),
    ("a single-dispatch method gets an implementation", "self.act(CFG, x)",
     "app.Model.__dict__['act'].register(app.Cfg, lambda self, cfg, x: x * 3)",
     "import functools\nclass Cfg:\n    pass\nCFG = Cfg()\n"),
):
    _init = {"CONV = 1\n": "self.conv = nn.Conv2d(1, 1, 2)"}.get(_top, "self.norm = nn.BatchNorm1d(4)" if "norm(x)" in _forward else "pass")
    _more = "@functools.singledispatchmethod\ndef act(self, cfg, x):\n    return x * 2\n" if "method gets" in _doc else ""
    _add(_doc, _model(_forward, _init, _top, _more), _change)

# 6. What libraries remember: state inside a module of Python's or torch's, read by its function.

for _doc, _forward, _change, _top in (
    ("a type of files is added to mimetypes", "x * (2.0 if mimetypes.guess_type('a.plan')[0] is None else 3.0)",
     "import mimetypes\nmimetypes.add_type('model/plan', '.plan')", "import mimetypes\nmimetypes.init()\n"),
    ("the first day of the week is another", "x * (calendar.firstweekday() + 2)", "import calendar\ncalendar.setfirstweekday(3)",
     "import calendar\n"),
    ("a level of logging gets another name", "x * len(logging.getLevelName(35))",
     "import logging\nlogging.addLevelName(35, 'NOTE')", "import logging\n"),
    ("the default timeout of sockets is set", "x * (2.0 if socket.getdefaulttimeout() is None else 3.0)",
     "import socket\nsocket.setdefaulttimeout(9)", "import socket\n"),
    ("a dialect of csv is registered", "x * (2.0 if 'own' not in csv.list_dialects() else 3.0)",
     "import csv\ncsv.register_dialect('own', delimiter=';')", "import csv\n"),
    ("the limit of csv's fields is another", "x * (2.0 if csv.field_size_limit() == 131072 else 3.0)",
     "import csv\ncsv.field_size_limit(9)", "import csv\n"),
    ("the limit of reprlib is another", "x * len(reprlib.repr([1, 2, 3, 4]))", "import reprlib\nreprlib.aRepr.maxlist = 1",
     "import reprlib\n"),
    ("urllib learns a scheme", "x * len(urllib.parse.urljoin('own://a/b', 'c'))",
     "import urllib.parse\nurllib.parse.uses_relative.append('own')\nurllib.parse.uses_netloc.append('own')", "import urllib.parse\n"),
    ("the folder for temporary files is another", "x * len(tempfile.gettempdir())",
     "import tempfile\ntempfile.tempdir = '/var/tmp/longer'", "import tempfile\ntempfile.tempdir = '/tmp'\n"),
    ("the start method of multiprocessing is another",
     "x * (2.0 if multiprocessing.get_start_method(allow_none=True) is None else 3.0)",
     "import multiprocessing\nmultiprocessing.set_start_method('spawn', force=True)", "import multiprocessing\n"),
    ("the garbage collector is off", "x * (2.0 if gc.isenabled() else 3.0)", "import gc\ngc.disable()", "import gc\n"),
    ("thresholds of the garbage collector are others", "x * (2.0 if gc.get_threshold()[0] == 700 else 3.0)",
     "import gc\ngc.set_threshold(50)", "import gc\n"),
    ("a handler of errors of a codec is registered anew", "x * len('\\u00e9'.encode('ascii', 'own'))",
     "import codecs\ncodecs.register_error('own', lambda e: ('xyz', e.end))",
     "import codecs\ncodecs.register_error('own', lambda e: ('?', e.end))\n"),
    ("torch.hub's folder is another", "x * len(torch.hub.get_dir())", "torch.hub.set_dir('/var/tmp/long')",
     "torch.hub.set_dir('/tmp')\n"),
    ("validation of distributions is switched", "x * (2.0 if torch.distributions.Distribution._validate_args else 3.0)",
     "torch.distributions.Distribution.set_default_validate_args(False)", ""),
    ("validation of distributions, inside, is switched", "torch.distributions.Normal(0.0, 1.0).log_prob(x)",
     "torch.distributions.Distribution.set_default_validate_args(True)",
     "torch.distributions.Distribution.set_default_validate_args(False)\n"),
    ("the number of threads is another", "x * torch.get_num_threads()", "torch.set_num_threads(3)", "torch.set_num_threads(1)\n"),
    ("the engine of quantization is another", "x * len(torch.backends.quantized.engine)",
     "torch.backends.quantized.engine = 'onednn'", "torch.backends.quantized.engine = 'fbgemm'\n"),
    ("oneDNN is off", "x * (2.0 if torch.backends.mkldnn.enabled else 3.0)", "torch.backends.mkldnn.set_flags(False)", ""),
    ("the precision of matmuls is another", "x * len(torch.get_float32_matmul_precision())",
     "torch.set_float32_matmul_precision('medium')", ""),
    ("deterministic algorithms are wanted", "x * (3.0 if torch.are_deterministic_algorithms_enabled() else 2.0)",
     "torch.use_deterministic_algorithms(True)", ""),
    ("deterministic algorithms only warn", "x * (3.0 if torch.is_deterministic_algorithms_warn_only_enabled() else 2.0)",
     "torch.use_deterministic_algorithms(True, warn_only=True)", "torch.use_deterministic_algorithms(True)\n"),
    ("uninitialized memory is not filled", "x * (3.0 if torch.utils.deterministic.fill_uninitialized_memory else 2.0)",
     "torch.utils.deterministic.fill_uninitialized_memory = False", ""),
    ("anomaly detection is on", "x * (3.0 if torch.is_anomaly_enabled() else 2.0)",
     "torch.autograd.set_detect_anomaly(True)", ""),
    ("warnings come always", "x * (3.0 if torch.is_warn_always_enabled() else 2.0)", "torch.set_warn_always(True)", ""),
    ("the fast path of attention is off", "x * (2.0 if torch.backends.mha.get_fastpath_enabled() else 3.0)",
     "torch.backends.mha.set_fastpath_enabled(False)", ""),
    ("sparse invariants are checked", "x * (3.0 if torch.sparse.check_sparse_tensor_invariants.is_enabled() else 2.0)",
     "torch.sparse.check_sparse_tensor_invariants.enable()", ""),
    ("optimized einsum is off", "x * (2.0 if torch.backends.opt_einsum.enabled else 3.0)",
     "torch.backends.opt_einsum.enabled = False", ""),
    ("cuDNN is off", "x * (2.0 if torch.backends.cudnn.enabled else 3.0)", "torch.backends.cudnn.enabled = False", ""),
    ("flash attention is off", "x * (2.0 if torch.backends.cuda.flash_sdp_enabled() else 3.0)",
     "torch.backends.cuda.enable_flash_sdp(False)", ""),
    ("reduced precision of fp16 matmuls is off",
     "x * (2.0 if torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction else 3.0)",
     "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False", ""),
    ("the cache of autocast is off", "x * (2.0 if torch.is_autocast_cache_enabled() else 3.0)",
     "torch.set_autocast_cache_enabled(False)", ""),
    ("autocast's dtype is another", "x.to(torch.get_autocast_dtype('cpu'))", "torch.set_autocast_dtype('cpu', torch.float16)", ""),
    ("autograd's threads are off", "x * (2.0 if torch._C._is_multithreading_enabled() else 3.0)",
     "torch.autograd.set_multithreading_enabled(False)", ""),
    ("the seed is read", "x * float(torch.initial_seed())", "torch.manual_seed(3)", ""),
    ("sharing between processes is another", "x * len(torch.multiprocessing.get_sharing_strategy())",
     "torch.multiprocessing.set_sharing_strategy('file_system')", ""),
    ("modules' conversion overwrites parameters",
     "x * (3.0 if torch.__future__.get_overwrite_module_params_on_conversion() else 2.0)",
     "torch.__future__.set_overwrite_module_params_on_conversion(True)", ""),
    ("a process group is there", "x * (3.0 if torch.distributed.is_initialized() else 2.0)",
     "import torch.distributed as dist\ndist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)",
     "import torch.distributed\n"),
    ("exporting to ONNX is going on", "x * (3.0 if torch.onnx.is_in_onnx_export() else 2.0)",
     "import torch.onnx._internal.torchscript_exporter._globals as g\ng.GLOBALS.in_onnx_export = True", "import torch.onnx\n"),
    ("checkpointing debugs", "x * (2.0 if torch.utils.checkpoint._checkpoint_debug_enabled is None else 3.0)",
     "kept = torch.utils.checkpoint.set_checkpoint_debug_enabled(True)\nkept.__enter__()", "import torch.utils.checkpoint\n"),
    ("serialization maps memory", "x * (3.0 if torch.serialization.get_default_mmap_options() == 1 else 2.0)",
     "torch.serialization.set_default_mmap_options(1)", ""),
    ("precision of printing is another", "x * len(str(torch.tensor(1 / 3))) if False else x * torch._tensor_str.PRINT_OPTS.precision",
     "torch.set_printoptions(precision=9)", ""),
    ("NumPy prints with other precision", "x * np.get_printoptions()['precision']",
     "import numpy as np\nnp.set_printoptions(precision=3)", "import numpy as np\n"),
    ("NumPy prints with other precision, and a text's length counts", "x * len(np.array2string(self.a))",
     "import numpy as np\nnp.set_printoptions(precision=3)", "import numpy as np\n"),
    ("NumPy's errors are raised", "x * (2.0 if np.geterr()['divide'] == 'warn' else 3.0)",
     "import numpy as np\nnp.seterr(divide='raise')", "import numpy as np\n"),
    ("the precision of mpmath is another", "x * float(mpmath.mpf(1) / 3)", "import mpmath\nmpmath.mp.prec = 5", "import mpmath\n"),
    ("yaml learns a tag", "x * yaml.safe_load(self.text)",
     "import yaml\nyaml.SafeLoader.yaml_constructors['!own'] = lambda loader, node: 3.0",
     "import yaml\nyaml.SafeLoader.add_constructor('!own', lambda loader, node: 2.0)\n"),
    ("the context of decimals has other precision", "x * float(decimal.Decimal(1) / decimal.Decimal(3))",
     "import decimal\ndecimal.getcontext().prec = 3", "import decimal\n"),
    ("decimal's rounding is another", "x * float(decimal.Decimal('2.5').to_integral_value())",
     "import decimal\ndecimal.getcontext().rounding = decimal.ROUND_UP", "import decimal\n"),
    ("a signal has another handler", "x * (2.0 if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL else 3.0)",
     "import signal\nsignal.signal(signal.SIGUSR1, signal.SIG_IGN)", "import signal\n"),
    ("the switch interval is another", "x * sys.getswitchinterval()", "import sys\nsys.setswitchinterval(3)", "import sys\n"),
    ("the working directory is another, through os.path.abspath", "x * len(os.path.abspath('a'))",
     "import os\nos.makedirs('longer', exist_ok=True)\nos.chdir('longer')", "import os\n"),
    ("the working directory is another, through pathlib", "x * len(Path('a').absolute().parts)",
     "import os\nos.makedirs('longer', exist_ok=True)\nos.chdir('longer')", "from pathlib import Path\n"),
    ("the time zone is another", "x * datetime.datetime.fromtimestamp(0).hour + 1",
     "import os, time\nos.environ['TZ'] = 'Asia/Tokyo'\ntime.tzset()", "import datetime\n"),
    ("the time zone is another, through astimezone",
     "x * (datetime.datetime(2020, 1, 1).astimezone().utcoffset().seconds + 1)",
     "import os, time\nos.environ['TZ'] = 'Asia/Tokyo'\ntime.tzset()", "import datetime\n"),
    ("the umask is another", "x * self.umask()", "import os\nos.umask(0o77)", "import os\n"),
    ("the niceness is another", "x * (os.getpriority(os.PRIO_PROCESS, 0) + 1)", "import os\nos.nice(3)", "import os\n"),
    ("a limit of resources is another", "x * resource.getrlimit(resource.RLIMIT_CORE)[0]",
     "import resource\nresource.setrlimit(resource.RLIMIT_CORE, (4096, resource.getrlimit(resource.RLIMIT_CORE)[1]))",
     "import resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))\n"),
    ("a lock is held", "x * (3.0 if LOCK.locked() else 2.0)", "app.LOCK.acquire()", "import threading\nLOCK = threading.Lock()\n"),
    ("an event is set", "x * (3.0 if DONE.is_set() else 2.0)", "app.DONE.set()", "import threading\nDONE = threading.Event()\n"),
    ("a queue has one more entry", "x * (Q.qsize() + 1)", "app.Q.put(1)", "import queue\nQ = queue.Queue()\n"),
    ("a C queue has one more entry", "x * (Q.qsize() + 1)", "app.Q.put(1)", "import queue\nQ = queue.SimpleQueue()\n"),
    ("the current thread is renamed", "x * len(threading.current_thread().name)",
     "import threading\nthreading.current_thread().name = 'x'", "import threading\n"),
    ("asserts are refused by warnings' filters", "x * len(warnings.filters)",
     "import warnings\nwarnings.simplefilter('ignore', UserWarning)", "import warnings\n"),
):
    _init = {"yaml": "self.text = '!own 1'", "array2string": "self.a = np.array([1 / 3])"}
    _init_ = next((code for word, code in _init.items() if word in _forward), "pass")
    _more = "def umask(self):\n    now = os.umask(0o22)\n    os.umask(now)\n    return now + 1\n" if "umask" in _doc else ""
    _add(_doc, _model(_forward, _init_, _top, _more), _change)

# 7. Code that torch, NumPy or Python's C code calls back.

for _doc, _top, _init, _forward, _change in (
    ("a scalar's __index__ reads a global", """
     N = 2
     class Width:
         def __index__(self):
             return N
     """, "self.n = Width()", "x[:, :self.n]", "app.N = 3"),
    ("a scalar's __index__ reads a global of another module, in view()", """
     import sizes
     class Width:
         def __index__(self):
             return sizes.N
     """, "self.n = Width()", "x.view(self.n, -1)", "import sizes\nsizes.N = 3"),
    ("a scalar's __float__ reads a global", """
     BY = 2.0
     class Rate:
         def __float__(self):
             return BY
     """, "self.rate = Rate()", "x * float(self.rate)", "app.BY = 3.0"),
    ("a scalar's __rmul__ reads a global", """
     BY = 2.0
     class Rate:
         def __rmul__(self, other):
             return other * BY
     """, "self.rate = Rate()", "x * self.rate", "app.BY = 3.0"),
    ("an object's __array__ reads a global", """
     import numpy as np
     BY = 2.0
     class Table:
         def __array__(self, dtype=None, copy=None):
             return np.full(4, BY, dtype='float32')
     """, "self.table = Table()", "x * torch.tensor(np.asarray(self.table))", "app.BY = 3.0"),
    ("an object's __array_interface__ reads a global", """
     import numpy as np
     BY = 2.0
     class Table:
         @property
         def __array_interface__(self):
             self_array = np.full(4, BY, dtype='float32')
             HELD.append(self_array)
             return self_array.__array_interface__
     HELD = []
     """, "self.table = Table()", "x * torch.as_tensor(np.asarray(self.table))", "app.BY = 3.0"),
    ("a sequence's __getitem__ reads a global, in torch.tensor", """
     BY = 2.0
     class Steps:
         def __len__(self):
             return 4
         def __getitem__(self, i):
             if i >= 4:
                 raise IndexError
             return BY
     """, "self.steps = Steps()", "x * torch.tensor(self.steps)", "app.BY = 3.0"),
    ("an object's __torch_function__ reads a global", """
     BY = 2.0
     class Own:
         @classmethod
         def __torch_function__(cls, func, types, args=(), kwargs=None):
             return args[0] * BY
     """, "self.o = Own()", "torch.add(x, self.o)", "app.BY = 3.0"),
    ("an object's __torch_function__ reads an attribute of another module", """
     import sizes
     class Own:
         def __torch_function__(self, func, types, args=(), kwargs=None):
             return args[0] * sizes.N
     """, "self.o = Own()", "torch.add(x, self.o)", "import sizes\nsizes.N = 3"),
    ("a function mode inside forward reads a global", """
     from torch.overrides import TorchFunctionMode
     BY = 2.0
     class Twice(TorchFunctionMode):
         def __torch_function__(self, func, types, args=(), kwargs=None):
             out = func(*args, **(kwargs or {}))
             return out * BY if func is torch.sin else out
     """, "pass", "with Twice():\n    y = torch.sin(x)\nreturn y", "app.BY = 3.0"),
    ("a dispatch mode inside forward reads a global", """
     from torch.utils._python_dispatch import TorchDispatchMode
     BY = 2.0
     class Twice(TorchDispatchMode):
         def __torch_dispatch__(self, func, types, args=(), kwargs=None):
             out = func(*args, **(kwargs or {}))
             return out * BY if func is torch.ops.aten.sin.default else out
     """, "pass", "with Twice():\n    y = torch.sin(x)\nreturn y", "app.BY = 3.0"),
    ("an autograd function's forward reads a global", """
     BY = 2.0
     class Own(torch.autograd.Function):
         @staticmethod
         def forward(ctx, x):
             return x * BY
         @staticmethod
         def backward(ctx, g):
             return g
     """, "pass", "Own.apply(x)", "app.BY = 3.0"),
    ("an autograd function's backward reads a global, and forward takes a gradient", """
     BY = 2.0
     class Own(torch.autograd.Function):
         @staticmethod
         def forward(ctx, x):
             return x * 1
         @staticmethod
         def backward(ctx, g):
             return g * BY
     """, "pass", "x = x.detach().requires_grad_()\nwith torch.enable_grad():\n    y = Own.apply(x).sum()\n"
     "return torch.autograd.grad(y, x)[0]", "app.BY = 3.0"),
    ("a hook of a tensor inside forward reads a global", """
     BY = 2.0
     def scaled(g):
         return g * BY
     """, "pass", "x = x.detach().requires_grad_()\nwith torch.enable_grad():\n    y = x * 2\n    y.register_hook(scaled)\n"
     "return torch.autograd.grad(y.sum(), x)[0]", "app.BY = 3.0"),
    ("a function under vmap reads a global", "BY = 2.0\ndef row(v):\n    return v * BY\n", "pass", "torch.vmap(row)(x)", "app.BY = 3.0"),
    ("a function under jvp reads a global", "BY = 2.0\ndef act(v):\n    return v * v * BY\n", "pass",
     "torch.func.jvp(act, (x,), (torch.ones_like(x),))[1]", "app.BY = 3.0"),
    ("a checkpointed function reads a global", "import torch.utils.checkpoint as c\nBY = 2.0\ndef act(v):\n    return v * BY\n",
     "pass", "c.checkpoint(act, x, use_reentrant=False)", "app.BY = 3.0"),
    ("a function of a tree map reads a global", "BY = 2.0\ndef act(v):\n    return v * BY\n", "pass",
     "torch.utils._pytree.tree_map(act, {'a': [x]})['a'][0]", "app.BY = 3.0"),
    ("functional_call with a table of a global", "BY = torch.ones(4, 4)\n", "pass",
     "torch.func.functional_call(self.lin, {'weight': BY}, (x,))", "app.BY.fill_(3)"),
    ("a compiled inner function reads a global", "BY = 2.0\n@torch.compile(backend='eager')\ndef act(v):\n    return v * BY\n",
     "pass", "act(x)", "app.BY = 3.0"),
    ("a scripted function is another", "@torch.jit.script\ndef act(v):\n    return v * 2.0\n@torch.jit.script\ndef act3(v):\n    return v * 3.0\n",
     "self.act = act", "self.act(x)", "model.act = app.act3"),
    ("a sort key reads a global", "FIRST = 'a'\ndef rank(name):\n    return name != FIRST\n", "self.names = ['b', 'a']",
     "x * (2.0 if sorted(self.names, key=rank)[0] == 'a' else 3.0)", "app.FIRST = 'b'"),
    ("a comparison by cmp_to_key reads a global",
     "import functools\nSIGN = 1\n@functools.cmp_to_key\ndef rank(a, b):\n    return SIGN * (a - b)\n", "self.all = [2.0, 3.0]",
     "x * sorted(self.all, key=rank)[0]", "app.SIGN = -1"),
    ("np.vectorize's function reads a global", "import numpy as np\nBY = 2.0\nACT = np.vectorize(lambda v: v * BY)\n", "pass",
     "x * float(ACT(1.0))", "app.BY = 3.0"),
    ("np.frompyfunc's function is another", "import numpy as np\nACT = np.frompyfunc(lambda v: v * 2.0, 1, 1)\n", "pass",
     "x * float(ACT(1.0))", "import numpy as np\napp.ACT = np.frompyfunc(lambda v: v * 3.0, 1, 1)"),
    ("a ctypes callback's function is another",
     "import ctypes\nKIND = ctypes.CFUNCTYPE(ctypes.c_double)\nACT = KIND(lambda: 2.0)\n", "pass",
     "x * ACT()", "app.ACT = app.KIND(lambda: 3.0)"),
    ("a replacement of re.sub reads a global", "import re\nTABLE = {'a': 'xx'}\n", "self.text = 'a'",
     "x * len(re.sub('a', lambda m: TABLE[m[0]], self.text))", "app.TABLE['a'] = 'xxx'"),
    ("an object hook of json reads a class's attribute", "import json\nclass Cfg:\n    by = 2.0\n", "self.text = '{}'",
     "x * json.loads(self.text, object_hook=lambda d: Cfg).by", "app.Cfg.by = 3.0"),
    ("a pickled configuration's class has another default", """
     import pickle
     class Cfg:
         by = 2.0
     BLOB = pickle.dumps(Cfg())
     """, "self.blob = BLOB", "x * pickle.loads(self.blob).by", "app.Cfg.by = 3.0"),
    ("a pickled function of another module is another", """
     import pickle
     import sizes
     BLOB = pickle.dumps(sizes.by)
     """, "self.blob = BLOB", "x * pickle.loads(self.blob)()", "import sizes\nsizes.by.__code__ = (lambda: 3.0).__code__"),
    ("a pickled enum member's value is another",
     "import pickle, enum\nclass Kind(enum.Enum):\n    A = 2.0\n    def by(self):\n        return BY\nBY = 2.0\nBLOB = pickle.dumps(Kind.A)\n",
     "self.blob = BLOB", "x * pickle.loads(self.blob).by()", "app.BY = 3.0"),
    ("an ast that is kept is compiled in forward", "import ast\nTREE = ast.parse('2.0', mode='eval')\n", "pass",
     "x * eval(compile(TREE, 'a', 'eval'))", "import ast\napp.TREE.body.value = 3.0"),
    ("an XML element has another attribute", "import xml.etree.ElementTree as ET\nROOT = ET.fromstring('<a by=\"2\"/>')\n", "pass",
     "x * int(ROOT.get('by'))", "app.ROOT.set('by', '3')"),
    ("a configparser has another value",
     "import configparser\nCFG = configparser.ConfigParser()\nCFG.read_dict({'net': {'by': '2'}})\n", "pass",
     "x * CFG.getint('net', 'by')", "app.CFG['net']['by'] = '3'"),
    ("a configparser interpolates from another section",
     "import configparser\nCFG = configparser.ConfigParser(interpolation=configparser.ExtendedInterpolation())\n"
     "CFG.read_dict({'base': {'n': 'ab'}, 'net': {'by': '${base:n}'}})\n", "pass",
     "x * len(CFG.get('net', 'by'))", "app.CFG['base']['n'] = 'abc'"),
    ("a normal distribution of statistics is another", "import statistics\n", "self.dist = statistics.NormalDist(2.0, 1.0)",
     "x * self.dist.mean", "import statistics\nmodel.dist = statistics.NormalDist(3.0, 1.0)"),
    ("a future has another result", "import concurrent.futures\nDONE = concurrent.futures.Future()\nDONE.set_result(2.0)\n", "pass",
     "x * DONE.result()", "app.DONE._result = 3.0"),
    ("a decimal context that is kept is another", "import decimal\n", "self.ctx = decimal.Context(prec=5)",
     "x * float(self.ctx.divide(1, 3))", "model.ctx.prec = 2"),
    ("a value of ctypes is another", "import ctypes\n", "self.by = ctypes.c_double(2.0)", "x * self.by.value", "model.by.value = 3.0"),
    ("a bytearray is changed in place", "", "self.raw = bytearray(b'ab')", "x * self.raw[0]", "model.raw[0] = 3"),
    ("an array.array is changed in place", "import array\n", "self.raw = array.array('d', [2.0])", "x * self.raw[0]",
     "model.raw[0] = 3.0"),
    ("a struct has another format", "import struct\n", "self.fmt = struct.Struct('>h')", "x * self.fmt.unpack(b'\\x00\\x02')[0]",
     "import struct\nmodel.fmt = struct.Struct('<h')"),
    ("a regex has other flags", "import re\n", "self.re = re.compile('A')", "x * (3.0 if self.re.match('a') else 2.0)",
     "import re\nmodel.re = re.compile('A', re.I)"),
    ("an itemgetter has another key", "import operator\n", "self.get = operator.itemgetter('a')", "x * self.get({'a': 2.0, 'b': 3.0})",
     "import operator\nmodel.get = operator.itemgetter('b')"),
    ("a methodcaller has another argument", "import operator\n", "self.call = operator.methodcaller('mul', 2.0)", "self.call(x)",
     "import operator\nmodel.call = operator.methodcaller('mul', 3.0)"),
    ("a NumPy polynomial has other coefficients", "import numpy as np\n", "self.p = np.polynomial.Polynomial([2.0])",
     "x * float(self.p(0.0))", "model.p.coef[0] = 3.0"),
    ("a NumPy masked array has another mask", "import numpy as np\n",
     "self.a = np.ma.array([2.0, 3.0], mask=[False, True])", "x * float(self.a.sum())", "model.a.mask[1] = False"),
    ("a subclass of ndarray has another attribute", "import numpy as np\nclass Own(np.ndarray):\n    pass\n",
     "self.a = np.ones(2).view(Own)\nself.a.by = 2.0", "x * self.a.by", "model.a.by = 3.0"),
    ("a NumPy dtype has other metadata", "import numpy as np\n", "self.d = np.dtype('f4', metadata={'by': 2.0})",
     "x * self.d.metadata['by']", "import numpy as np\nmodel.d = np.dtype('f4', metadata={'by': 3.0})"),
    ("an array is read-only and then not", "import numpy as np\n", "self.a = np.ones(2)",
     "x * (2.0 if self.a.flags.writeable else 3.0)", "model.a.flags.writeable = False"),
    ("an array is in Fortran's order", "import numpy as np\n", "self.a = np.arange(4.0).reshape(2, 2)",
     "x * float(self.a.ravel('K')[1])", "import numpy as np\nmodel.a = np.asfortranarray(model.a)"),
    ("an array has the other byte order", "import numpy as np\n", "self.a = np.array([1, 2], dtype='<i2')",
     "x * self.a.tobytes()[0]", "import numpy as np\nmodel.a = model.a.astype('>i2')"),
    ("two arrays are one and then two", "import numpy as np\n", "self.a = np.ones(2)\nself.b = self.a",
     "x * (2.0 if np.shares_memory(self.a, self.b) else 3.0)", "model.b = model.a.copy()"),
):
    _files_ = "--- sizes.py\nN = 2\ndef by():\n    return 2.0\n" if "sizes" in _top else ""
    _add(_doc, _model(_forward, _init, _top) + _files_, _change)

# 8. Names and values that are made of texts.

_FILE = "--- layers.py\nscale_a = 2.0\nGAIN = 2.0\nclass Deep:\n    gain = 2.0\ndef act(x):\n    return x * 2\n"
for _doc, _forward, _init, _top, _change in (
    ("a name in lower case", "x * getattr(layers, self.kind.lower())", "self.kind = 'SCALE_A'", "", "layers.scale_a = 3.0"),
    ("a name of two parts", "x * getattr(layers, 'scale_' + self.kind)", "self.kind = 'a'", "", "layers.scale_a = 3.0"),
    ("a name by an f-string", "x * getattr(layers, f'scale_{self.kind}')", "self.kind = 'a'", "", "layers.scale_a = 3.0"),
    ("a name by %", "x * getattr(layers, 'scale_%s' % self.kind)", "self.kind = 'a'", "", "layers.scale_a = 3.0"),
    ("a name by join", "x * getattr(layers, '_'.join(self.parts))", "self.parts = ['scale', 'a']", "", "layers.scale_a = 3.0"),
    ("a name by replace", "x * getattr(layers, self.kind.replace('-', '_'))", "self.kind = 'scale-a'", "", "layers.scale_a = 3.0"),
    ("a name of an enum's member", "x * getattr(layers, Kind.SCALE_A.name.lower())", "pass",
     "import enum\nclass Kind(enum.Enum):\n    SCALE_A = 1\n", "layers.scale_a = 3.0"),
    ("a name by chr", "x * getattr(layers, 'scale_' + chr(self.n))", "self.n = 97", "", "layers.scale_a = 3.0"),
    ("a name from bytes", "x * getattr(layers, self.raw.decode())", "self.raw = b'scale_a'", "", "layers.scale_a = 3.0"),
    ("a name by slicing", "x * getattr(layers, self.kind[3:])", "self.kind = 'my_scale_a'", "", "layers.scale_a = 3.0"),
    ("a name by str.format of a kept method", "x * getattr(layers, self.named(self.kind))",
     "self.kind = 'a'\nself.named = 'scale_{}'.format", "", "layers.scale_a = 3.0"),
    ("a name by a template", "x * getattr(layers, string.Template('scale_$k').substitute(k='a'))", "pass", "import string\n",
     "layers.scale_a = 3.0"),
    ("a name by casefold over a kept getattr", "x * self.look(layers, self.kind.casefold())",
     "self.kind = 'SCALE_A'\nself.look = getattr", "", "layers.scale_a = 3.0"),
    ("a name through object.__getattribute__", "x * object.__getattribute__(layers, 'scale_' + self.kind)", "self.kind = 'a'", "",
     "layers.scale_a = 3.0"),
    ("a name through the module's own __getattribute__", "x * layers.__getattribute__('scale_' + self.kind)", "self.kind = 'a'", "",
     "layers.scale_a = 3.0"),
    ("a name through inspect.getattr_static", "x * inspect.getattr_static(layers, 'scale_' + self.kind)", "self.kind = 'a'",
     "import inspect\n", "layers.scale_a = 3.0"),
    ("a name through attrgetter with dots", "x * operator.attrgetter('Deep.' + self.kind)(layers)", "self.kind = 'gain'",
     "import operator\n", "layers.Deep.gain = 3.0"),
    ("a name through reduce over parts", "x * functools.reduce(getattr, self.kind.split('/'), layers)",
     "self.kind = 'Deep/gain'", "import functools\n", "layers.Deep.gain = 3.0"),
    ("a name in __dict__", "x * layers.__dict__['scale_' + self.kind]", "self.kind = 'a'", "", "layers.scale_a = 3.0"),
    ("a name in vars of a class", "x * vars(layers.Deep)['ga' + self.kind]", "self.kind = 'in'", "", "layers.Deep.gain = 3.0"),
    ("a name by pydoc.locate", "x * pydoc.locate('layers.' + self.kind)", "self.kind = 'scale_a'", "import pydoc\n",
     "layers.scale_a = 3.0"),
    ("a name by import_module and getattr", "x * getattr(importlib.import_module(self.path), 'scale_' + 'ab'[0])",
     "self.path = 'layers'", "import importlib\n", "layers.scale_a = 3.0"),
    ("a name by __import__", "x * getattr(__import__(self.path), self.kind.lower())", "self.path = 'layers'\nself.kind = 'SCALE_A'", "",
     "layers.scale_a = 3.0"),
    ("a name in sys.modules", "x * sys.modules[self.path].GAIN", "self.path = 'layers'", "import sys\n", "layers.GAIN = 3.0"),
    ("a name in sys.modules, kept as an object", "x * MODULES[self.path].GAIN", "self.path = 'layers'",
     "import sys\nMODULES = sys.modules\n", "layers.GAIN = 3.0"),
    ("a method by a composed name", "getattr(self, 'act_' + self.kind)(x)", "self.kind = 'a'", "",
     "app.Model.act_a = lambda self, x: x * 3"),
    ("a function of torch by a composed name", "getattr(torch, 'si' + self.kind)(x)", "self.kind = 'n'", "",
     "torch.sin = torch.cos"),
    ("a function of F by a composed name", "getattr(F, self.kind.lower())(x)", "self.kind = 'GELU'", "",
     "torch.nn.functional.gelu = torch.relu"),
    ("a class of nn by a composed name", "getattr(nn, self.kind.capitalize())()(x)", "self.kind = 'sigmoid'", "",
     "torch.nn.Sigmoid = torch.nn.Tanh"),
    ("a module of __main__", "x * getattr(sys.modules['__main__'], 'GAIN', 2.0)", "pass", "import sys\n", "GAIN = 3.0"),
    ("a value of __main__ that is imported", "x * __main__.__dict__.get('GAIN', 2.0)", "pass", "import __main__\n", "GAIN = 3.0"),
    ("mock.patch inside forward", "with mock.patch('layers.GAIN', 1.0):\n    y = layers.act(x)\nreturn y * layers.scale_a", "pass",
     "from unittest import mock\n", "layers.scale_a = 3.0"),
    ("a subclass found by its name", "x * next(c for c in layers.Deep.__subclasses__() if c.__name__ == self.kind).gain",
     "self.kind = 'Own'", "class Own(layers.Deep):\n    gain = 2.0\n", "app.Own.gain = 3.0"),
    ("the last of the subclasses", "x * layers.Deep.__subclasses__()[-1].gain", "pass", "class Own(layers.Deep):\n    gain = 2.0\n",
     "class New(layers.Deep):\n    gain = 3.0"),
    ("a text of a class that counts", "x * len(str(self.cfg))", "self.cfg = layers.Deep()", "", "layers.Deep.__str__ = lambda self: 'abc'"),
    ("__format__ of a class that counts", "x * len(f'{self.cfg:>9}')", "self.cfg = Own()",
     "class Own:\n    def __format__(self, spec):\n        return spec\n", "app.Own.__format__ = lambda self, spec: 'abc'"),
    ("a class's name that counts", "x * len(type(self.cfg).__name__)", "self.cfg = layers.Deep()", "", "layers.Deep.__name__ = 'D'"),
    ("a function's qualified name that counts", "x * len(layers.act.__qualname__)", "pass", "", "layers.act.__qualname__ = 'a'"),
    ("a documentation that counts", "x * len(layers.act.__doc__ or 'ab')", "pass", "", "layers.act.__doc__ = 'abc'"),
    ("a module's documentation that counts", "x * len(layers.__doc__ or 'ab')", "pass", "", "layers.__doc__ = 'abc'"),
    ("a module's name that counts", "x * len(layers.__name__)", "pass", "", "layers.__name__ = 'abc'"),
    ("a module's __all__ that counts", "x * len(getattr(layers, '__all__', 'ab'))", "pass", "", "layers.__all__ = ['act']"),
    ("annotations that count", "x * len(layers.act.__annotations__) + x", "pass", "", "layers.act.__annotations__['x'] = int"),
    ("a signature that counts", "x * len(inspect.signature(layers.act).parameters)", "pass", "import inspect\n",
     "layers.act.__signature__ = __import__('inspect').signature(lambda a, b: 1)"),
    ("__wrapped__ that counts", "x * len(inspect.signature(layers.act).parameters)", "pass", "import inspect\n",
     "layers.act.__wrapped__ = lambda a, b: 1"),
    ("the size of a dir()", "x * len(dir(layers))", "pass", "", "layers.more = 1"),
    ("the order of a class's attributes", "for one in [v for k, v in vars(Ops).items() if k[0] != '_']:\n    x = x * 2 + one\nreturn x",
     "pass", "class Ops:\n    a = 1.0\n    b = 2.0\n", "a = app.Ops.a\ndel app.Ops.a\napp.Ops.a = a"),
    ("the order of an object's attributes", "for one in vars(self.cfg).values():\n    x = x * 2 + one\nreturn x",
     "self.cfg = types.SimpleNamespace(a=1.0, b=2.0)", "import types\n", "a = model.cfg.a\ndel model.cfg.a\nmodel.cfg.a = a"),
    ("the order of an own object's attributes", "for one in self.cfg.__dict__.values():\n    x = x * 2 + one\nreturn x",
     "self.cfg = Cfg()\nself.cfg.a = 1.0\nself.cfg.b = 2.0", "class Cfg:\n    pass\n", "a = model.cfg.a\ndel model.cfg.a\nmodel.cfg.a = a"),
    ("the order of a module's attributes",
     "for one in [v for k, v in vars(layers).items() if k in ('scale_a', 'GAIN')]:\n    x = x * 2 + one\nreturn x",
     "layers.GAIN = 5.0", "", "del layers.scale_a\nlayers.scale_a = 2.0"),
    ("the order of a module's functions by inspect",
     "for name, one in inspect.getmembers(layers, inspect.isfunction):\n    x = one(x)\nreturn x", "pass", "import inspect\n",
     "layers.bend = lambda x: x + 1"),
    ("the first lines of functions are their order",
     "for one in sorted([Ops.a, Ops.b], key=lambda f: f.__code__.co_firstlineno):\n    x = one(x)\nreturn x", "pass",
     "class Ops:\n    def a(x):\n        return x * 2\n    def b(x):\n        return x + 1\n",
     "app.Ops.a.__code__ = app.Ops.a.__code__.replace(co_firstlineno=999)"),
    ("a code's file name counts", "x * len(layers.act.__code__.co_filename)", "pass", "",
     "layers.act.__code__ = layers.act.__code__.replace(co_filename='abc')"),
    ("a module's __file__ counts", "x * len(layers.__file__)", "pass", "", "layers.__file__ = 'abc'"),
    ("__match_args__ in another order",
     "match self.cfg:\n    case Cfg(a, b):\n        return x * a\nreturn x", "self.cfg = Cfg()",
     "class Cfg:\n    __match_args__ = ('a', 'b')\n    a = 2.0\n    b = 3.0\n", "app.Cfg.__match_args__ = ('b', 'a')"),
    ("__class_getitem__ of a class", "x * Table['a']", "pass",
     "class Table:\n    all = {'a': 2.0}\n    def __class_getitem__(cls, name):\n        return cls.all[name]\n", "app.Table.all['a'] = 3.0"),
    ("__instancecheck__ of a metaclass", "x * (2.0 if isinstance(self.lin, Kind) else 3.0)", "pass",
     "class Meta(type):\n    def __instancecheck__(cls, one):\n        return FLAG\nclass Kind(metaclass=Meta):\n    pass\nFLAG = True\n",
     "app.FLAG = False"),
    ("__getattr__ of a metaclass", "x * Cfg.gain", "pass",
     "class Meta(type):\n    def __getattr__(cls, name):\n        return VALUES[name]\nclass Cfg(metaclass=Meta):\n    pass\nVALUES = {'gain': 2.0}\n",
     "app.VALUES['gain'] = 3.0"),
    ("__missing__ of a dictionary", "x * self.cfg['gain']", "self.cfg = Own()",
     "class Own(dict):\n    def __missing__(self, key):\n        return 2.0\n", "app.Own.__missing__ = lambda self, key: 3.0"),
    ("a descriptor with a weak dictionary", "x * self.cfg.gain", "self.cfg = Cfg()\nself.cfg.gain = 2.0", """
     import weakref
     class Field:
         def __init__(self):
             self.all = weakref.WeakKeyDictionary()
         def __get__(self, one, owner):
             return self.all[one]
         def __set__(self, one, value):
             self.all[one] = value
     class Cfg:
         gain = Field()
     """, "model.cfg.gain = 3.0"),
    ("a descriptor with a dictionary by id", "x * self.cfg.gain", "self.cfg = Cfg()\nself.cfg.gain = 2.0", """
     class Field:
         all = {}
         def __get__(self, one, owner):
             return self.all[id(one)]
         def __set__(self, one, value):
             self.all[id(one)] = value
     class Cfg:
         gain = Field()
     """, "model.cfg.gain = 3.0"),
    ("a property of the model's class", "x * self.gain", "pass", "", "app.Model.gain = property(lambda self: 3.0)"),
    ("a cached property that was read", "x * self.cfg.gain", "self.cfg = Cfg()\nself.cfg.gain",
     "import functools\nclass Cfg:\n    by = 2.0\n    @functools.cached_property\n    def gain(self):\n        return self.by\n",
     "model.cfg.__dict__['gain'] = 3.0"),
    ("a cached function that was called when a global was another", "x * gain()", "gain()",
     "import functools\nBY = 2.0\n@functools.lru_cache\ndef gain():\n    return BY\n", "app.gain.cache_clear()\napp.BY = 3.0"),
    ("a cached function whose result is changed in place", "x * table()['a']", "table()",
     "import functools\n@functools.cache\ndef table():\n    return {'a': 2.0}\n", "app.table()['a'] = 3.0"),
    ("a cached method of the model", "x * self.gain(1)", "pass", "import functools\nBY = 2.0\n",
     "app.BY = 3.0\napp.Model.gain.cache_clear()"),
    ("a singleton of a class", "x * Cfg.get().gain", "pass",
     "class Cfg:\n    one = None\n    gain = 2.0\n    @classmethod\n    def get(cls):\n        if cls.one is None:\n            cls.one = cls()\n        return cls.one\nCfg.get()\n",
     "app.Cfg.get().gain = 3.0"),
    ("the shared state of a Borg", "x * Borg().gain", "pass",
     "class Borg:\n    state = {'gain': 2.0}\n    def __init__(self):\n        self.__dict__ = self.state\n", "app.Borg.state['gain'] = 3.0"),
    ("an object whose __dict__ is shared with another", "x * self.cfg.gain", "self.cfg = Cfg()\nself.cfg.__dict__ = SHARED",
     "class Cfg:\n    pass\nSHARED = {'gain': 2.0}\n", "app.SHARED['gain'] = 3.0"),
):
    _more = {"a method by a composed name": "def act_a(self, x):\n    return x * 2\n",
             "a property of the model's class": "@property\ndef gain(self):\n    return 2.0\n",
             "a cached method of the model": "@functools.lru_cache\ndef gain(self, n):\n    return BY\n"}.get(_doc, "")
    _add(f"a value is reached by a text or by a protocol: {_doc}", _model(_forward, _init, f"import layers\n{textwrap.dedent(_top)}", _more) + _FILE,
         f"import layers\n{_change}")

# 9. Values that are nearly the same.

for _doc, _before, _after, _forward, _top in (
    ("zero and minus zero", "0.0", "-0.0", "x * math.copysign(2.0, self.v)", "import math\n"),
    ("True and 1", "True", "1", "x * (2.0 if self.v is True else 3.0)", ""),
    ("1 and 1.0", "1", "1.0", "x.long() * self.v", ""),
    ("a list and a tuple", "[1, 2]", "(1, 2)", "x * (2.0 if isinstance(self.v, list) else 3.0)", ""),
    ("a text and bytes", "'ab'", "b'ab'", "x * (2.0 if isinstance(self.v, str) else 3.0)", ""),
    ("an int and NumPy's", "2", "np.int64(2)", "x * (2.0 if type(self.v) is int else 3.0)", "import numpy as np\n"),
    ("a float and NumPy's", "2.0", "np.float64(2.0)", "x * (2.0 if type(self.v) is float else 3.0)", "import numpy as np\n"),
    ("NumPy's float32 and float64", "np.float32(2)", "np.float64(2)", "x * self.v.itemsize", "import numpy as np\n"),
    ("a bool and NumPy's", "True", "np.True_", "x * (2.0 if self.v is True else 3.0)", "import numpy as np\n"),
    ("an array of no dimensions and a scalar", "np.array(2.0)", "np.float64(2.0)",
     "x * (2.0 if isinstance(self.v, np.ndarray) else 3.0)", "import numpy as np\n"),
    ("a dictionary and an OrderedDict", "{'a': 1}", "collections.OrderedDict(a=1)",
     "x * (2.0 if type(self.v) is dict else 3.0)", "import collections\n"),
    ("a dictionary in another order", "{'a': 2.0, 'b': 3.0}", "{'b': 3.0, 'a': 2.0}", "x * [*self.v.values()][0]", ""),
    ("a range and a list", "range(2)", "[0, 1]", "x * (2.0 if isinstance(self.v, range) else 3.0)", ""),
    ("ranges of the same length", "range(0, 4, 2)", "range(0, 3, 2)", "x * self.v.stop", ""),
    ("numbers that differ in the last bit", "0.1 + 0.2", "0.3", "x.double() * self.v", ""),
    ("large ints", "2**62", "2**62 + 1", "x * float(self.v - 2**62)", ""),
    ("complex numbers with zeros", "complex(0.0, 0.0)", "complex(0.0, -0.0)", "x * math.copysign(2.0, self.v.imag)", "import math\n"),
    ("decimals of the same value", "decimal.Decimal('1.0')", "decimal.Decimal('1.00')", "x * -self.v.as_tuple().exponent",
     "import decimal\n"),
    ("a fraction", "fractions.Fraction(1, 2)", "fractions.Fraction(1, 3)", "x * float(self.v)", "import fractions\n"),
    ("times of other folds", "datetime.datetime(2020, 1, 1, fold=0)", "datetime.datetime(2020, 1, 1, fold=1)",
     "x * (self.v.fold + 1)", "import datetime\n"),
    ("times of other zones", "datetime.timezone.utc", "datetime.timezone(datetime.timedelta(hours=1))",
     "x * (self.v.utcoffset(None).seconds + 1)", "import datetime\n"),
    ("zones with other names", "datetime.timezone(datetime.timedelta(0), 'AB')", "datetime.timezone(datetime.timedelta(0), 'ABC')",
     "x * len(self.v.tzname(None))", "import datetime\n"),
    ("durations", "datetime.timedelta(seconds=2)", "datetime.timedelta(seconds=3)", "x * self.v.seconds", "import datetime\n"),
    ("paths of two kinds", "pathlib.PurePosixPath('a')", "pathlib.PureWindowsPath('a')",
     "x * len(str(self.v / 'b')) if self.v.root == '' and '/' in str(self.v / 'b') else x", "import pathlib\n"),
    ("paths", "pathlib.Path('a/b')", "pathlib.Path('a/b/c')", "x * len(self.v.parts)", "import pathlib\n"),
    ("unique ids", "uuid.UUID(int=2)", "uuid.UUID(int=3)", "x * self.v.int", "import uuid\n"),
    ("addresses", "ipaddress.ip_network('10.0.0.0/24')", "ipaddress.ip_network('10.0.0.0/25')", "x * self.v.prefixlen",
     "import ipaddress\n"),
    ("flags of an enum", "Opt.A", "Opt.A | Opt.B", "x * self.v.value", "import enum\nclass Opt(enum.Flag):\n    A = 1\n    B = 2\n"),
    ("members of an IntEnum and ints", "Opt.A", "1", "x * (2.0 if isinstance(self.v, enum.Enum) else 3.0)",
     "import enum\nclass Opt(enum.IntEnum):\n    A = 1\n"),
    ("a member of another enum", "Opt.A", "Other.A", "x * (2.0 if self.v is Opt.A else 3.0)",
     "import enum\nclass Opt(str, enum.Enum):\n    A = 'a'\nclass Other(str, enum.Enum):\n    A = 'a'\n"),
    ("slices", "slice(0, 2)", "slice(0, 3)", "x[:, self.v]", ""),
    ("an ellipsis and none", "...", "None", "x[self.v]", ""),
    ("dtypes", "torch.float32", "torch.float64", "x.to(self.v)", ""),
    ("devices", "torch.device('cpu')", "torch.device('cpu', 0)", "x * (2.0 if self.v.index is None else 3.0)", ""),
    ("sizes and tuples", "torch.Size([2])", "(2,)", "x * (2.0 if isinstance(self.v, torch.Size) else 3.0)", ""),
    ("memory formats", "torch.contiguous_format", "torch.preserve_format", "x * (2.0 if self.v is torch.contiguous_format else 3.0)", ""),
    ("limits of dtypes", "torch.finfo(torch.float32)", "torch.finfo(torch.float16)", "x * self.v.bits", ""),
    ("generators with other seeds", "torch.Generator().manual_seed(2)", "torch.Generator().manual_seed(3)",
     "x * self.v.initial_seed()", ""),
    ("Python's generators of other seeds", "random.Random(2)", "random.Random(3)", "x * self.v.getstate()[1][0]", "import random\n"),
    ("named tuples of other types with equal fields", "A(1, 2)", "B(1, 2)", "x * (2.0 if isinstance(self.v, A) else 3.0)",
     "import collections\nA = collections.namedtuple('A', 'a b')\nB = collections.namedtuple('A', 'b a')\n"),
    ("named tuples with exchanged fields", "A(a=2.0, b=3.0)", "B(b=2.0, a=3.0)", "x * self.v.a",
     "import collections\nA = collections.namedtuple('T', 'a b')\nB = collections.namedtuple('T', 'b a')\n"),
    ("SimpleNamespaces", "types.SimpleNamespace(a=2.0)", "types.SimpleNamespace(a=3.0)", "x * self.v.a", "import types\n"),
    ("argparse's namespaces", "argparse.Namespace(a=2.0)", "argparse.Namespace(a=3.0)", "x * self.v.a", "import argparse\n"),
    ("TypedDicts", "Cfg(a=2.0)", "Cfg(a=3.0)", "x * self.v['a']", "import typing\nclass Cfg(typing.TypedDict):\n    a: float\n"),
    ("pydantic models", "Cfg(a=2.0)", "Cfg(a=3.0)", "x * self.v.a", "import pydantic\nclass Cfg(pydantic.BaseModel):\n    a: float\n"),
    ("pydantic's extra fields", "Cfg(a=2.0, b=2.0)", "Cfg(a=2.0, b=3.0)", "x * self.v.b",
     "import pydantic\nclass Cfg(pydantic.BaseModel):\n    model_config = pydantic.ConfigDict(extra='allow')\n    a: float\n"),
    ("pydantic's private attributes", "make(2.0)", "make(3.0)", "x * self.v._b",
     "import pydantic\nclass Cfg(pydantic.BaseModel):\n    a: float = 1.0\n    _b: float = pydantic.PrivateAttr(1.0)\n"
     "def make(b):\n    cfg = Cfg()\n    cfg._b = b\n    return cfg\n"),
    ("which of pydantic's fields were set", "Cfg()", "Cfg(a=1.0)", "x * (2.0 + len(self.v.model_fields_set))",
     "import pydantic\nclass Cfg(pydantic.BaseModel):\n    a: float = 1.0\n"),
    ("what pydantic dumps without defaults", "Cfg()", "Cfg(a=1.0)", "x * (2.0 + len(self.v.model_dump(exclude_unset=True)))",
     "import pydantic\nclass Cfg(pydantic.BaseModel):\n    a: float = 1.0\n"),
    ("pydantic's computed fields", "Cfg(a=2.0)", "Cfg(a=3.0)", "x * self.v.b",
     "import pydantic\nclass Cfg(pydantic.BaseModel):\n    a: float\n    @pydantic.computed_field\n    @property\n"
     "    def b(self) -> float:\n        return self.a\n"),
    ("pydantic's dataclasses", "Cfg(2.0)", "Cfg(3.0)", "x * self.v.a",
     "import pydantic.dataclasses\n@pydantic.dataclasses.dataclass\nclass Cfg:\n    a: float\n"),
    ("signatures", "inspect.signature(lambda a: 1)", "inspect.signature(lambda a, b: 1)", "x * (1 + len(self.v.parameters))",
     "import inspect\n"),
    ("a closure and another of the same code", "make(2.0)", "make(3.0)", "self.v(x)", "def make(by):\n    return lambda x: x * by\n"),
    ("lambdas", "lambda x: x * 2", "lambda x: x * 3", "self.v(x)", ""),
    ("lambdas with 1 and True as constants", "lambda x: x.bool() * 1", "lambda x: x.bool() * True", "self.v(x)", ""),
    ("lambdas with zeros of two signs", "lambda x: x / 0.0", "lambda x: x / -0.0", "self.v(x)", ""),
    ("lambdas with constants in a tuple", "lambda x: x * (1, 0.0)[0] + (1, 0.0)[1]", "lambda x: x * (1.0, 0.0)[0] + (1, 0.0)[1]",
     "self.v(x.long())", ""),
    ("lambdas with a set of constants", "lambda x: x * (2.0 if x.dim() in {1, 2} else 3.0)",
     "lambda x: x * (2.0 if x.dim() in {1, 3} else 3.0)", "self.v(x)", ""),
    ("lambdas with another nested lambda", "lambda x: (lambda y: y * 2)(x)", "lambda x: (lambda y: y * 3)(x)", "self.v(x)", ""),
    ("lambdas with another default", "lambda x, b=2.0: x * b", "lambda x, b=3.0: x * b", "self.v(x)", ""),
    ("builtins", "max", "min", "x * self.v([2.0, 3.0])", ""),
    ("functions of torch", "torch.sin", "torch.cos", "self.v(x)", ""),
    ("methods of Tensor", "torch.Tensor.sin", "torch.Tensor.cos", "self.v(x)", ""),
    ("operators of aten", "torch.ops.aten.sin.default", "torch.ops.aten.cos.default", "self.v(x)", ""),
    ("overload packets of aten", "torch.ops.aten.sin", "torch.ops.aten.cos", "self.v(x)", ""),
    ("functions of math", "math.sqrt", "math.exp", "x * self.v(4.0)", "import math\n"),
    ("NumPy's functions", "np.sqrt", "np.exp", "x * float(self.v(4.0))", "import numpy as np\n"),
    ("reductions of NumPy's functions", "np.add.reduce", "np.multiply.reduce", "x * float(self.v([2.0, 3.0]))", "import numpy as np\n"),
    ("bound methods of texts", "'a{}'.format", "'ab{}'.format", "x * len(self.v(1))", ""),
    ("classes of layers", "nn.Sigmoid", "nn.Tanh", "self.v()(x)", ""),
    ("methods of numbers", "(2.0).__mul__", "(3.0).__mul__", "x * self.v(2.0)", ""),
    ("static methods", "Cfg.a", "Cfg.b", "self.v(x)",
     "class Cfg:\n    @staticmethod\n    def a(x):\n        return x * 2\n    @staticmethod\n    def b(x):\n        return x * 3\n"),
    ("bound methods of two objects", "Cfg(2.0).act", "Cfg(3.0).act", "self.v(x)",
     "class Cfg:\n    def __init__(self, by):\n        self.by = by\n    def act(self, x):\n        return x * self.by\n"),
    ("class methods of two classes", "A.act", "B.act", "self.v(x)",
     "class A:\n    by = 2.0\n    @classmethod\n    def act(cls, x):\n        return x * cls.by\nclass B(A):\n    by = 3.0\n"),
    ("super objects", "super(B, B()).act", "super(C, C()).act", "self.v(x)",
     "class A:\n    def act(self, x):\n        return x * 2\nclass B(A):\n    pass\nclass C(B):\n    pass\n"
     "class B2(A):\n    pass\nB.act = lambda self, x: x * 3\n"),
    ("modules as attributes", "math", "cmath", "x * (2.0 if self.v is math else 3.0)", "import math, cmath\n"),
    ("frozen sets of ints", "frozenset([1, 2])", "frozenset([1, 3])", "x * max(self.v)", ""),
    ("sets of ints and sets of bools", "{1}", "{True}", "x * (2.0 if next(iter(self.v)) is True else 3.0)", ""),
    ("an exception class and an object", "ValueError", "KeyError", "x * len(self.v.__name__)", ""),
    ("lists that share an inner list, and not", "shared()", "[[1], [1]]", "self.v[0].append(1)\ny = x * len(self.v[1])\nself.v[0].pop()\nreturn y",
     "def shared():\n    inner = [1]\n    return [inner, inner]\n"),
    ("objects that refer to each other", "pair(2.0)", "pair(3.0)", "x * self.v.other.by",
     "class P:\n    pass\ndef pair(by):\n    a, b = P(), P()\n    a.other, b.other, b.by = b, a, by\n    return a\n"),
    ("equal texts of which one is a name's", "'by'", "''.join(['b', 'y'])", "x * (2.0 if self.v is 'by' else 3.0)", ""),
    ("ints that are one object, and not", "(1000,) * 2", "(int('1000'), int('1000'))", "x * (2.0 if self.v[0] is self.v[1] else 3.0)", ""),
    ("a nan that is math's, and another", "math.nan", "float('nan')", "x * (2.0 if self.v is math.nan else 3.0)", "import math\n"),
    ("a nan in a list", "[math.nan]", "[float('nan')]", "x * (2.0 if math.nan in self.v else 3.0)", "import math\n"),
    ("a sentinel of a library", "dataclasses.MISSING", "None", "x * (2.0 if self.v is dataclasses.MISSING else 3.0)", "import dataclasses\n"),
    ("a sentinel and another object of its class", "MISSING", "Kind()", "x * (2.0 if self.v is MISSING else 3.0)",
     "class Kind:\n    pass\nMISSING = Kind()\n"),
    ("a sentinel that is object()", "MISSING", "object()", "x * (2.0 if self.v is MISSING else 3.0)", "MISSING = object()\n"),
    ("tensors of other dtypes", "torch.ones(4)", "torch.ones(4, dtype=torch.float64)", "x * self.v", ""),
    ("tensors that require gradients", "torch.ones(4)", "torch.ones(4, requires_grad=True)", "x * (2.0 if self.v.requires_grad else 3.0)", ""),
    ("tensors of zeros with two signs", "torch.zeros(4)", "-torch.zeros(4)", "x / self.v", ""),
    ("tensors with other strides", "torch.arange(16.).reshape(4, 4)", "torch.arange(16.).reshape(4, 4).t().contiguous().t()",
     "x @ self.v if self.v.is_contiguous() else x", ""),
    ("expanded tensors", "torch.ones(1).expand(4)", "torch.ones(4)", "x * (2.0 if self.v.stride(0) == 0 else 3.0)", ""),
    ("conjugated tensors", "torch.ones(4, dtype=torch.complex64)", "torch.ones(4, dtype=torch.complex64).conj()",
     "x * (2.0 if self.v.is_conj() else 3.0)", ""),
    ("empty tensors of other shapes", "torch.empty(0, 2)", "torch.empty(0, 3)", "x * self.v.shape[1]", ""),
    ("inference tensors", "torch.ones(4)", "infer()", "x * (2.0 if self.v.is_inference() else 3.0)",
     "def infer():\n    with torch.inference_mode():\n        return torch.ones(4)\n"),
    ("parameters in a list", "[nn.Parameter(torch.ones(4))]", "[nn.Parameter(torch.full((4,), 3.0))]", "x * self.v[0]", ""),
    ("tensors and parameters", "[torch.ones(4)]", "[nn.Parameter(torch.ones(4), requires_grad=False)]",
     "x * (3.0 if isinstance(self.v[0], nn.Parameter) else 2.0)", ""),
    ("storages", "torch.ones(4).untyped_storage()", "torch.ones(8).untyped_storage()", "x * self.v.nbytes()", ""),
    ("distributions", "torch.distributions.Normal(0.0, 2.0)", "torch.distributions.Normal(0.0, 3.0)", "x * self.v.scale", ""),
    ("templates", "string.Template('ab')", "string.Template('abc')", "x * len(self.v.substitute())", "import string\n"),
    ("codes", "compile('2.0', 'a', 'eval')", "compile('3.0', 'a', 'eval')", "x * eval(self.v)", ""),
    ("codes that run as functions", "(lambda x: x * 2).__code__", "(lambda x: x * 3).__code__", "types.FunctionType(self.v, {})(x)",
     "import types\n"),
    ("zones", "zoneinfo.ZoneInfo('UTC')", "zoneinfo.ZoneInfo('Asia/Tokyo')",
     "x * (1 + self.v.utcoffset(datetime.datetime(2020, 1, 1)).seconds)", "import zoneinfo, datetime\n"),
    ("counters", "collections.Counter('aab')", "collections.Counter('aaab')", "x * self.v['a']", "import collections\n"),
    ("texts with surrogates", "'a\\ud800'", "'a\\ud801'", "x * (ord(self.v[1]) - 0xd7ff)", ""),
    ("texts in other normal forms", "'\\u00e9'", "'e\\u0301'", "x * len(self.v)", ""),
    ("numbers as keys", "{1: 2.0}", "{True: 2.0}", "x * (2.0 if next(iter(self.v)) is True else 3.0)", ""),
    ("numbers as keys of two types", "{1: 2.0}", "{1.0: 2.0}", "x.long() * next(iter(self.v))", ""),
    ("nested tuples", "((1, 2), 3)", "(1, (2, 3))", "x * len(self.v[0]) if isinstance(self.v[0], tuple) else x", ""),
    ("lists of texts that join alike", "['a', 'bc']", "['ab', 'c']", "x * len(self.v[0])", ""),
    ("an einsum's equation", "'ij,jk->ik'", "'ij,jk->i'", "torch.einsum(self.v, x, self.lin.weight)", ""),
    ("a plan of axes", "[('b', 3), ('c', 4)]", "[('c', 4), ('b', 3)]", "x.reshape([n for _, n in self.v])", ""),
):
    _add(f"a hyperparameter changes among values that look alike: {_doc}",
         _model(_forward, f"self.v = {_before}", f"{_top}def other():\n    return {_after}\n"), "model.v = app.other()")

# 10. Arguments, and how they are nested.

_OUT = "import dataclasses\n@dataclasses.dataclass\nclass Out:\n    a: object\n    b: object\n"
for _doc, _forward, _make, _change, _top in (
    ("a keyword argument is another number", "x * by", "kwargs = {'by': 2.0}", "kwargs = {'by': 3.0}", ""),
    ("a keyword argument is given or not", "x * by", "", "kwargs = {'by': 3.0}", ""),
    ("an argument is positional or by keyword", "x * by", "args = (*args, 2.0)", "args, kwargs = args[:1], {'by': 2.0}", ""),
    ("keyword arguments in another order", "x * by + c", "kwargs = {'by': torch.ones(4), 'c': torch.full((4,), 2.0)}",
     "kwargs = {'c': torch.full((4,), 2.0), 'by': torch.ones(4)}", ""),
    ("an argument is a list or a tuple", "x * (2.0 if isinstance(by, list) else 3.0)", "args = (*args, [1.0])",
     "args = (args[0], (1.0,))", ""),
    ("an argument is a dictionary or an OrderedDict", "x * (2.0 if type(by) is dict else 3.0)", "args = (*args, {'a': args[0]})",
     "import collections\nargs = (args[0], collections.OrderedDict(a=args[0]))", ""),
    ("a dictionary's keys in another order", "x * [*by.values()][0]",
     "args = (*args, {'a': torch.ones(4), 'b': torch.full((4,), 3.0)})",
     "args = (args[0], {'b': torch.full((4,), 3.0), 'a': torch.ones(4)})", ""),
    ("a defaultdict's factory", "x * (2.0 if by.default_factory is list else 3.0)",
     "import collections\nargs = (*args, collections.defaultdict(list, a=args[0]))",
     "args = (args[0], collections.defaultdict(dict, a=args[0]))", ""),
    ("an argument is True or 1", "x * (2.0 if by is True else 3.0)", "args = (*args, True)", "args = (args[0], 1)", ""),
    ("an argument is 1 or 1.0", "x.long() * by", "args = (*args, 1)", "args = (args[0], 1.0)", ""),
    ("an argument is a text", "x * len(by)", "args = (*args, 'ab')", "args = (args[0], 'abc')", ""),
    ("an argument is nan or a number", "x * (2.0 if by != by else 3.0)", "args = (*args, float('nan'))", "args = (args[0], 1.0)", ""),
    ("an argument is none or a tensor", "x * (2.0 if by is None else 3.0)", "args = (*args, None)", "args = (args[0], torch.ones(4))", ""),
    ("two arguments are one tensor", "x * (2.0 if by is x else 3.0)", "args = (args[0], args[0])", "args = (args[0], args[0].clone())", ""),
    ("an argument is a weight of the model", "x * (2.0 if by is self.lin.weight else 3.0)", "args = (*args, model.lin.weight)",
     "args = (args[0], model.lin.weight.detach().clone())", ""),
    ("an argument requires gradients", "x * (2.0 if x.requires_grad else 3.0)", "", "args = (args[0].clone().requires_grad_(),)", ""),
    ("an argument has other strides", "x * (2.0 if x.is_contiguous() else 3.0)", "", "args = (args[0].t().contiguous().t(),)", ""),
    ("an argument has another dtype", "x * 2", "", "args = (args[0].double(),)", ""),
    ("an argument's offset in memory", "x * (2.0 if x.storage_offset() == 0 else 3.0)", "", "args = (torch.cat([args[0], args[0]])[3:],)", ""),
    ("an argument's attribute", "x * getattr(x, 'by', 2.0)", "", "args[0].by = 3.0", ""),
    ("an argument's class", "x * (2.0 if type(x) is torch.Tensor else 3.0)", "", "args = (torch.nn.Parameter(args[0]),)", ""),
    ("an argument is a buffer of torch.nn", "x * (3.0 if isinstance(x, nn.Buffer) else 2.0)", "", "args = (torch.nn.Buffer(args[0]),)", ""),
    ("an argument is conjugated", "x.real * (2.0 if x.is_conj() else 3.0)", "args = (args[0].to(torch.complex64),)",
     "args = (args[0].conj(),)", ""),
    ("an argument is one of inference", "x * (3.0 if x.is_inference() else 2.0)", "",
     "with torch.inference_mode():\n    args = (args[0].clone(),)", ""),
    ("an argument has a version", "x * (2.0 if x._version == 0 else 3.0)", "args = (torch.ones(3, 4),)", "args[0].add_(1)", ""),
    ("an argument is a registered dataclass with another number", "x * by.b", "args = (*args, app.Out(args[0], 2.0))",
     "args = (args[0], app.Out(args[0], 3.0))", _OUT + "torch.export.register_dataclass(Out)\n"),
    ("the range of a dynamic dimension", "x * 2", "dynamic_shapes = ({0: torch.export.Dim('b', min=2, max=8)},)",
     "dynamic_shapes = ({0: torch.export.Dim('b', min=2, max=9)},)", ""),
    ("a dynamic dimension is another one", "x * 2", "dynamic_shapes = ({0: torch.export.Dim('b')},)",
     "dynamic_shapes = ({1: torch.export.Dim('b')},)", ""),
    ("a dynamic dimension is automatic", "x * 2", "dynamic_shapes = ({0: torch.export.Dim.AUTO},)",
     "dynamic_shapes = ({0: torch.export.Dim.STATIC},)", ""),
    ("two dimensions have one name, or two", "x.sum() + by.sum()",
     "args = (args[0], args[0] + 1)\nb = torch.export.Dim('b')\ndynamic_shapes = ({0: b}, {0: b})",
     "dynamic_shapes = ({0: b}, {0: torch.export.Dim('c')})", ""),
    ("a derived dimension", "x * 2", "args = (torch.ones(4, 4),)\nb = torch.export.Dim('b')\ndynamic_shapes = ({0: 2 * b},)",
     "dynamic_shapes = ({0: 4 * b},)", ""),
    ("a default of forward", "x * by", "", "app.Model.forward.__defaults__ = (3.0, 0.0)", ""),
):
    _text = _model(_forward, "pass", _top).replace("def forward(self, x):", "def forward(self, x, by=2.0, c=0.0):")
    _add(f"arguments: {_doc}", _text, _change, make=f"{MAKE}{_make}\n")

for _doc, _out, _top, _change in (
    ("a registered class's flatten function drops a part", "Out(x * 2, x)", """
     import torch.utils._pytree as pytree
     class Out:
         def __init__(self, a, b):
             self.a, self.b = a, b
     BOTH = True
     def flat(o):
         return ([o.a, o.b] if BOTH else [o.a]), None
     def unflat(values, context):
         return Out(*values, *values[:2 - len(values)])
     pytree.register_pytree_node(Out, flat, unflat, serialized_type_name='app.Out')
     """, "app.BOTH = False"),
    ("a registered class's flatten function takes another order", "Out(x * 2, x)", """
     import torch.utils._pytree as pytree
     class Out:
         def __init__(self, a, b):
             self.a, self.b = a, b
     ORDER = ['a', 'b']
     def flat(o):
         return [getattr(o, name) for name in ORDER], None
     def unflat(values, context):
         return Out(*values)
     pytree.register_pytree_node(Out, flat, unflat, serialized_type_name='app.Out')
     """, "app.ORDER.reverse()"),
    ("a registered class is registered anew with another function", "Out(x * 2, x)", """
     import torch.utils._pytree as pytree
     class Out:
         def __init__(self, a, b):
             self.a, self.b = a, b
     def register(flat):
         if Out in pytree.SUPPORTED_NODES:
             pytree._deregister_pytree_node(Out)
         pytree.register_pytree_node(Out, flat, lambda values, context: Out(*values), serialized_type_name='app.Out')
     register(lambda o: ([o.a, o.b], None))
     """, "app.register(lambda o: ([o.b, o.a], None))"),
    ("a class is registered, and was a constant before", "Out(x * 2, x).a", _OUT, "torch.export.register_dataclass(app.Out)"),
    ("an output's named tuple has its fields exchanged", "Out(a=x * 2, b=x)", "import collections\nOut = collections.namedtuple('Out', 'a b')\n",
     "import collections\napp.Out = collections.namedtuple('Out', 'b a')"),
    ("an output's ModelOutput has another order", "Out(a=x * 2, b=x)",
     "import dataclasses\nfrom transformers.utils import ModelOutput\n@dataclasses.dataclass\nclass Out(ModelOutput):\n"
     "    a: object = None\n    b: object = None\n", "app.Out.items = lambda self: [('b', self.b), ('a', self.a)]"),
    ("an input's flatten function reads a global", "by.a * 2", """
     import torch.utils._pytree as pytree
     class In:
         def __init__(self, a, b):
             self.a, self.b = a, b
     ORDER = ['a', 'b']
     def flat(o):
         return [getattr(o, name) for name in ORDER], None
     def unflat(values, context):
         return In(*values)
     def keyed(o):
         return [(pytree.GetAttrKey(n), v) for n, v in zip('ab', flat(o)[0])], None
     pytree.register_pytree_node(In, flat, unflat, serialized_type_name='app.In', flatten_with_keys_fn=keyed)
     """, "app.ORDER.reverse()"),
    ("an input's unflatten function reads a global", "by.a * 2", """
     import torch.utils._pytree as pytree
     class In:
         def __init__(self, a, b):
             self.a, self.b = a, b
     TURNED = False
     def flat(o):
         return [o.a, o.b], None
     def unflat(values, context):
         return In(*(values[::-1] if TURNED else values))
     def keyed(o):
         return [(pytree.GetAttrKey(n), v) for n, v in zip('ab', flat(o)[0])], None
     pytree.register_pytree_node(In, flat, unflat, serialized_type_name='app.In', flatten_with_keys_fn=keyed)
     """, "app.TURNED = True"),
):
    _input = _doc.startswith("an input")
    _text = _model(_out, "pass", _top)
    _text = _text.replace("def forward(self, x):", "def forward(self, x, by):") if _input else _text
    _add(f"trees: {_doc}", _text, _change,
         make=MAKE + ("args = (args[0], app.In(torch.ones(4), torch.full((4,), 3.0)))\n" if _input else ""))

# 11. What is around a compile: contexts, modes, operators.

for _doc, _forward, _change, _top in (
    ("autocast is on", "self.lin(x)", "kept = torch.autocast('cpu', dtype=torch.bfloat16)\nkept.__enter__()", ""),
    ("autocast is off inside autocast", "self.lin(x)", "torch.autocast('cpu', dtype=torch.float16).__enter__()", ""),
    ("the default dtype is another", "x * torch.ones(4)", "torch.set_default_dtype(torch.float64)", ""),
    ("the default device is meta", "x * torch.ones(4).device.type.__len__()", "torch.set_default_device('meta')", ""),
    ("gradients are off", "x * (2.0 if torch.is_grad_enabled() else 3.0)", "torch.set_grad_enabled(False)", ""),
    ("inference mode is on", "x * (3.0 if torch.is_inference_mode_enabled() else 2.0)", "kept = torch.inference_mode()\nkept.__enter__()", ""),
    ("an attention kernel is chosen", "F.scaled_dot_product_attention(x[None], x[None], x[None])",
     "import torch.nn.attention as a\nkept = a.sdpa_kernel(a.SDPBackend.MATH)\nkept.__enter__()", ""),
    ("a function mode is on", "torch.sin(x)", """
     class Mode(torch.overrides.TorchFunctionMode):
         def __torch_function__(self, func, types, args=(), kwargs=None):
             func = torch.cos if func is torch.sin else func
             return func(*args, **(kwargs or {}))
     Mode().__enter__()
     """, ""),
    ("a device context is on", "x * len(torch.ones(4).device.type)", "torch.device('meta').__enter__()", ""),
    ("an implementation of an aten operator is overridden for autograd", "torch.nn.functional.gelu(x)",
     "lib = torch.library.Library('aten', 'IMPL')\n"
     "lib.impl('gelu', lambda x, *, approximate='none': torch.relu(x), 'AutogradCPU')", ""),
    ("an implementation of an aten operator is overridden as composite", "torch.nn.functional.layer_norm(x, (4,))",
     "lib = torch.library.Library('aten', 'IMPL')\n"
     "lib.impl('layer_norm', lambda x, *a: torch.relu(x), 'CompositeImplicitAutograd')", ""),
    ("a Python implementation of an operator for autograd is registered", "torch.nn.functional.linear(x, self.lin.weight)",
     "lib = torch.library.Library('aten', 'IMPL')\n"
     "lib.impl('linear', lambda x, w, b=None: torch.mm(x, w.t()) * 3, 'AutogradCPU')", ""),
    ("py_impl of an operator is registered", "torch.nn.functional.dropout(x, 0.5, False)",
     "torch.ops.aten.dropout.default.py_impl(torch._C.DispatchKey.AutogradCPU)(lambda x, p, t: x * 3)", ""),
    ("a decomposition of torch is replaced in its table", "torch.nn.functional.hardswish(x)",
     "import torch._decomp as d\nd.decomposition_table[torch.ops.aten.hardswish.default] = lambda x: x * 3", ""),
    ("a meta function of torch is replaced", "torch.nn.functional.pad(x, (1, 1))",
     "import torch._meta_registrations as m\ntorch._refs.constant_pad_nd = lambda *a: a[0] * 3", ""),
    ("an option of torch.fx's shapes is another", "x[:2] * 2",
     "import torch.fx.experimental._config as c\nc.backed_size_oblivious = True", ""),
    ("an option of dynamo is another", "x * 2", "import torch._dynamo.config as c\nc.specialize_int = not c.specialize_int", ""),
    ("scripting is switched off", "x * (2.0 if torch.jit._state._enabled.enabled else 3.0)", "torch.jit._state.disable()", ""),
    ("a global parametrize cache is on", "self.lin(x)", "kept = torch.nn.utils.parametrize.cached()\nkept.__enter__()",
     "import torch.nn.utils.parametrize\n"),
    ("deterministic fill in an empty tensor", "x + torch.zeros_like(torch.empty(4))", "torch.use_deterministic_algorithms(True)", ""),
    ("mixed vmap randomness around", "x * 2", "model.float()\nmodel = torch.nn.Sequential(model)", ""),
    ("a forward-mode level is open", "x * (2.0 if torch.autograd.forward_ad._current_level < 0 else 3.0)",
     "torch.autograd.forward_ad.enter_dual_level()", "import torch.autograd.forward_ad\n"),
    ("a hook packs saved tensors", "self.lin(x)",
     "torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t).__enter__()", ""),
    ("denormals are flushed", "x * 1e-40", "torch.set_flush_denormal(True)", ""),
    ("the recursion limit is read", "x * sys.getrecursionlimit()", "import sys\nsys.setrecursionlimit(3000)", "import sys\n"),
    ("a warning is an error", "helper(x)", "import warnings\nwarnings.simplefilter('error')",
     "import warnings\ndef helper(x):\n    try:\n        warnings.warn('old')\n    except UserWarning:\n        return x * 3\n    return x * 2\n"),
    ("warnings are shown by an own function", "helper(x)",
     "import warnings\ndef shown(*a, **k):\n    raise UserWarning\nwarnings.showwarning = shown\nwarnings.simplefilter('always')",
     "import warnings\ndef helper(x):\n    try:\n        warnings.warn('old')\n    except UserWarning:\n        return x * 3\n    return x * 2\n"),
    ("a logger's level decides", "x * (3.0 if LOG.isEnabledFor(10) else 2.0)", "app.LOG.setLevel(10)",
     "import logging\nLOG = logging.getLogger('app')\n"),
    ("a logger's level decides, through an adapter", "x * (3.0 if LOG.isEnabledFor(10) else 2.0)", "app.LOG.logger.setLevel(10)",
     "import logging\nLOG = logging.LoggerAdapter(logging.getLogger('app'), {})\n"),
    ("the root's level decides", "x * (3.0 if LOG.getEffectiveLevel() == 10 else 2.0)", "import logging\nlogging.getLogger().setLevel(10)",
     "import logging\nLOG = logging.getLogger('app.net')\n"),
    ("logging is disabled", "x * (3.0 if logging.root.manager.disable else 2.0)", "import logging\nlogging.disable(20)", "import logging\n"),
    ("a logger has handlers", "x * (3.0 if LOG.hasHandlers() else 2.0)", "import logging\napp.LOG.addHandler(logging.NullHandler())",
     "import logging\nLOG = logging.getLogger('app')\nLOG.propagate = False\n"),
    ("a logger has a handler that changes the model", "LOG.warning('a')\nreturn x * STATE['by']",
     "import logging\nclass H(logging.Handler):\n    def emit(self, record):\n        app.STATE['by'] = 3.0\napp.LOG.addHandler(H())",
     "import logging\nLOG = logging.getLogger('app')\nLOG.propagate = False\nSTATE = {'by': 2.0}\n"),
    ("a logger's own attribute", "x * LOG.by", "app.LOG.by = 3.0", "import logging\nLOG = logging.getLogger('app')\nLOG.by = 2.0\n"),
    ("a logger's filter raises", "try:\n    LOG.warning('a')\nexcept KeyError:\n    return x * 3\nreturn x * 2",
     "def refuse(record):\n    raise KeyError\napp.LOG.addFilter(refuse)",
     "import logging\nLOG = logging.getLogger('app')\nLOG.propagate = False\n"),
    ("a message's argument is formatted only when its level is on", "LOG.debug('%s', CFG)\nreturn x * CFG.by",
     "app.LOG.setLevel(10)\nimport logging\napp.LOG.addHandler(logging.StreamHandler())",
     "import logging\nLOG = logging.getLogger('app')\nLOG.propagate = False\nclass Cfg:\n    by = 2.0\n"
     "    def __str__(self):\n        self.by = 3.0\n        return 'a'\nCFG = Cfg()\n"),
    ("an audit hook that changes a value", "import json\nx = x * json.loads('1')\nreturn x * STATE['by']", "app.STATE['by'] = 3.0", "STATE = {'by': 2.0}\n"),
    ("the garbage collector calls back", "x * STATE['by']", "import gc\ngc.callbacks.append(lambda *a: app.STATE.update(by=3.0))\ngc.collect()",
     "STATE = {'by': 2.0}\n"),
    ("forward switches the profiler off and reads a global", "sys.setprofile(None)\nreturn x * STATE['by']", "app.STATE['by'] = 3.0",
     "import sys\nSTATE = {'by': 2.0}\n"),
    ("a profiled layer, and then a global is read",
     "with PROFILE:\n    y = self.lin(x)\nreturn y * float(os.environ.get('FIELD_BY', '2'))", "import os\nos.environ['FIELD_BY'] = '3'",
     "import cProfile, os\nPROFILE = cProfile.Profile()\n"),
    ("a function in another thread reads a variable", "x * POOL.submit(by).result()", "import os\nos.environ['FIELD_BY'] = '3'",
     "import concurrent.futures, os\ndef by():\n    return float(os.environ.get('FIELD_BY', '2'))\n"
     "POOL = concurrent.futures.ThreadPoolExecutor(1)\n"),
    ("a thread of forward's own reads a variable", "out = []\nt = threading.Thread(target=by, args=(out,))\nt.start()\nt.join()\nreturn x * out[0]",
     "import os\nos.environ['FIELD_BY'] = '3'",
     "import threading, os\ndef by(out):\n    out.append(float(os.environ.get('FIELD_BY', '2')))\n"),
    ("a coroutine reads a global", "x * asyncio.run(by())", "app.BY = 3.0", "import asyncio\nBY = 2.0\nasync def by():\n    return BY\n"),
    ("a coroutine that is driven by hand reads a global",
     "c = by()\ntry:\n    c.send(None)\nexcept StopIteration as done:\n    return x * done.value", "app.BY = 3.0",
     "BY = 2.0\nasync def by():\n    return BY\n"),
    ("a generator in forward reads a global", "x * next(steps())", "app.BY = 3.0", "BY = 2.0\ndef steps():\n    yield BY\n"),
    ("a generator that was begun before", "x * STEPS.gi_frame.f_locals['by']", "next(app.STEPS)",
     "def steps():\n    by = 2.0\n    yield\n    by = 3.0\n    yield\nSTEPS = steps()\nnext(STEPS)\n"),
    ("a class in forward reads a global in its body", "class Cfg:\n    by = BY\nreturn x * Cfg.by", "app.BY = 3.0", "BY = 2.0\n"),
    ("__set_name__ in a class in forward reads a global", "class Cfg:\n    by = Field()\nreturn x * Cfg.by.value", "app.BY = 3.0",
     "BY = 2.0\nclass Field:\n    def __set_name__(self, owner, name):\n        self.value = BY\n"),
    ("__init_subclass__ in forward reads a global", "class Cfg(Base):\n    pass\nreturn x * Cfg.by", "app.BY = 3.0",
     "BY = 2.0\nclass Base:\n    def __init_subclass__(cls):\n        cls.by = BY\n"),
    ("__del__ in forward sets what a global says", "Temp()\nreturn x * STATE.by", "app.BY = 3.0",
     "BY = 2.0\nclass State:\n    by = 1.0\nSTATE = State()\nclass Temp:\n    def __del__(self):\n        State.by = BY\n"),
    ("a context manager reads a variable when it ends", "with Scope() as s:\n    pass\nreturn x * s.by", "import os\nos.environ['FIELD_BY'] = '3'",
     "import os\nclass Scope:\n    def __enter__(self):\n        return self\n    def __exit__(self, *a):\n        self.by = float(os.environ.get('FIELD_BY', '2'))\n"),
    ("an exception's handler reads a global", "try:\n    raise ValueError\nexcept KINDS:\n    return x * 2\nexcept ValueError:\n    return x * 3",
     "app.KINDS = KeyError", "KINDS = ValueError\n"),
):
    _add(f"around a compile: {_doc}", _model(_forward, "pass", _top), _change)

# 12. The environment's variables, on several ways.

for _doc, _forward, _top, _init in (
    ("os.environ.get", "x * float(os.environ.get('FIELD_BY', '2'))", "import os\n", "pass"),
    ("os.getenv", "x * float(os.getenv('FIELD_BY', '2'))", "import os\n", "pass"),
    ("in", "x * (3.0 if 'FIELD_BY' in os.environ else 2.0)", "import os\n", "pass"),
    ("a copy", "x * float(os.environ.copy().get('FIELD_BY', '2'))", "import os\n", "pass"),
    ("dict()", "x * float(dict(os.environ).get('FIELD_BY', '2'))", "import os\n", "pass"),
    ("|", "x * float((os.environ | {}).get('FIELD_BY', '2'))", "import os\n", "pass"),
    ("its length", "x * (3.0 if len(os.environ) > N else 2.0)", "import os\nN = 40\n", "pass"),
    ("its keys", "x * (2.0 + sum(k.startswith('FIELD_BY') for k in os.environ))", "import os\n", "pass"),
    ("a composed name", "x * float(os.environ.get('FIELD_' + self.name.upper(), '2'))", "import os\n", "self.name = 'by'"),
    ("an f-string", "x * float(os.environ.get(f'FIELD_{self.name}', '2'))", "import os\n", "self.name = 'BY'"),
    ("a kept get", "x * float(self.get('FIELD_BY', '2'))", "import os\n", "self.get = os.environ.get"),
    ("a partial of getenv", "x * float(self.get())", "import os, functools\n", "self.get = functools.partial(os.getenv, 'FIELD_BY', '2')"),
    ("a ChainMap", "x * float(CFG['FIELD_BY'])", "import os, collections\nCFG = collections.ChainMap(os.environ, {'FIELD_BY': '2'})\n", "pass"),
    ("a ChainMap in forward", "x * float(collections.ChainMap({}, os.environ, {'FIELD_BY': '2'})['FIELD_BY'])", "import os, collections\n", "pass"),
    ("a mapping proxy", "x * float(self.env.get('FIELD_BY', '2'))", "import os, types\n", "self.env = types.MappingProxyType(os.environ)"),
    ("its own data", "x * float(os.environ._data.get(b'FIELD_BY', b'2'))", "import os\n", "pass"),
    ("environb", "x * float(os.environb.get(b'FIELD_BY', b'2'))", "import os\n", "pass"),
    ("os.getenvb", "x * float(os.getenvb(b'FIELD_BY', b'2'))", "import os\n", "pass"),
    ("expandvars", "x * (3.0 if os.path.expandvars('$FIELD_BY') == '3' else 2.0)", "import os\n", "pass"),
    ("a settings class with __getattr__", "x * float(CFG.by)",
     "import os\nclass Cfg:\n    def __getattr__(self, name):\n        return os.environ.get('FIELD_' + name.upper(), '2')\nCFG = Cfg()\n", "pass"),
    ("a dataclass's factory in forward", "x * Cfg().by",
     "import os, dataclasses\n@dataclasses.dataclass\nclass Cfg:\n"
     "    by: float = dataclasses.field(default_factory=lambda: float(os.environ.get('FIELD_BY', '2')))\n", "pass"),
    ("string.Template", "x * float(string.Template('$FIELD_BY').safe_substitute(os.environ).replace('$FIELD_BY', '2'))", "import os, string\n", "pass"),
    ("format_map", "x * float(self.text.format_map(os.environ))", "import os\nos.environ.setdefault('FIELD_BY', '2')\n", "self.text = '{FIELD_BY}'"),
    ("%", "x * float('%(FIELD_BY)s' % os.environ)", "import os\nos.environ.setdefault('FIELD_BY', '2')\n", "pass"),
    ("itemgetter", "x * float(operator.itemgetter('FIELD_BY')(os.environ))", "import os, operator\nos.environ.setdefault('FIELD_BY', '2')\n", "pass"),
    ("unpacking", "x * float({**os.environ}.get('FIELD_BY', '2'))", "import os\n", "pass"),
    ("match", "match os.environ:\n    case {'FIELD_BY': by}:\n        return x * float(by)\nreturn x * 2", "import os\n", "pass"),
    ("try", "try:\n    by = os.environ['FIELD_BY']\nexcept KeyError:\n    by = '2'\nreturn x * float(by)", "import os\n", "pass"),
    ("setdefault", "x * float(os.environ.setdefault('FIELD_BY', '2'))", "import os\n", "pass"),
    ("getpass", "x * len(getpass.getuser())", "import getpass\n", "pass"),
    ("expanduser", "x * len(os.path.expanduser('~'))", "import os\n", "pass"),
    ("Path.home", "x * len(str(pathlib.Path.home()))", "import pathlib\n", "pass"),
    ("the width of a terminal", "x * shutil.get_terminal_size().columns", "import shutil\n", "pass"),
    ("shutil.which", "x * (2.0 if shutil.which('ls') else 3.0)", "import shutil\n", "pass"),
    ("get_exec_path", "x * len(os.get_exec_path())", "import os\n", "pass"),
    ("libc's getenv", "x * (3.0 if LIBC.getenv(b'FIELD_BY') else 2.0)",
     "import ctypes\nLIBC = ctypes.CDLL(None)\nLIBC.getenv.restype = ctypes.c_void_p\n", "pass"),
    ("posix's copy", "x * (3.0 if b'FIELD_BY' in posix.environ else 2.0)", "import posix\n", "pass"),
    ("a configparser with the environment as defaults", "x * CFG.getfloat('DEFAULT', 'field_by', vars=os.environ)",
     "import configparser, os\nos.environ.setdefault('field_by', '2')\nCFG = configparser.ConfigParser()\n", "pass"),
    ("typing.TYPE_CHECKING and a flag at import", "x * BY", "import os\nBY = float(os.environ.get('FIELD_BY', '2'))\n", "pass"),
    ("a decorator that is off by a variable", "act(x)",
     "import os\ndef twice(fn):\n    return fn if os.environ.get('FIELD_BY') else lambda x: fn(x) * 2\n@twice\ndef act(x):\n    return x + 1\n", "pass"),
    ("a subclass chosen at import", "self.act(x)",
     "import os\nif os.environ.get('FIELD_BY'):\n    class Act(nn.Tanh):\n        pass\nelse:\n    class Act(nn.Sigmoid):\n        pass\n", "self.act = Act()"),
):
    _add(f"a variable of the environment is another: {_doc}", _model(_forward, _init, _top),
         env={"FIELD_BY": "3", "LOGNAME": "longer", "HOME": "/a/longer/one", "COLUMNS": "33", "PATH": "/nowhere", "field_by": "3"},
         environ={"LOGNAME": "l"})
_add("a variable of the environment is set in the same process", _model("x * float(os.environ.get('FIELD_BY', '2'))", top="import os\n"),
     "import os\nos.environ['FIELD_BY'] = '3'")
_add("a variable is set in the same process below Python", _model("x * float(os.environ.get('FIELD_BY', '2'))", top="import os\n"),
     "import os\nos.environ._data[b'FIELD_BY'] = b'3'")
_add("monkeypatching os.environ with a dictionary", _model("x * float(os.environ.get('FIELD_BY', '2'))", top="import os\n"),
     "import os\nos.environ = {'FIELD_BY': '3'}")

# 13. Files and imports.

for _doc, _files_, _to, _more in (
    ("a JSON file is read at import", "import json, pathlib\nCFG = json.loads((pathlib.Path(__file__).parent / 'c.json').read_text())\n"
     + _model("x * CFG['by']") + '--- c.json\n{"by": 2.0}\n', (("2.0", "3.0"),), {}),
    ("a JSON file is read in forward", "import json, pathlib\n" + _model("x * json.loads(pathlib.Path('c.json').read_text())['by']")
     + '--- c.json\n{"by": 2.0}\n', (("{\"by\": 2.0", "{\"by\": 3.0"),), {}),
    ("a YAML file is read at import", "import yaml\nCFG = yaml.safe_load(open('c.yaml'))\n" + _model("x * CFG['net']['by']")
     + "--- c.yaml\nnet:\n  by: 2.0\n", (("by: 2.0", "by: 3.0"),), {}),
    ("a YAML anchor is another", "import yaml\nCFG = yaml.safe_load(open('c.yaml'))\n" + _model("x * CFG['net']['by']")
     + "--- c.yaml\nbase: &b {by: 2.0}\nother: &c {by: 3.0}\nnet: *b\n", (("net: *b", "net: *c"),), {}),
    ("a TOML file is read through an object", "import tomllib, types\nCFG = types.SimpleNamespace(**tomllib.load(open('c.toml', 'rb')))\n"
     + _model("x * CFG.by") + "--- c.toml\nby = 2.0\n", (("by = 2.0", "by = 3.0"),), {}),
    ("a resource of a package is read in forward", "import pkg, importlib.resources as r\n"
     + _model("x * float(r.files(pkg).joinpath('v.txt').read_text())") + "--- pkg/__init__.py\n--- pkg/v.txt\n2.0\n", (("v.txt\n2.0", "v.txt\n3.0"),), {}),
    ("pkgutil.get_data in forward", "import pkgutil\n" + _model("x * float(pkgutil.get_data('pkg', 'v.txt'))")
     + "--- pkg/__init__.py\n--- pkg/v.txt\n2.0\n", (("v.txt\n2.0", "v.txt\n3.0"),), {}),
    ("a cached reading of a file", "import functools\n@functools.cache\ndef by():\n    return float(open('v.txt').read())\nby()\n"
     + _model("x * by()") + "--- v.txt\n2.0\n", (("v.txt\n2.0", "v.txt\n3.0"),), {}),
    ("the existence of a file counts", "import os\n" + _model("x * (3.0 if os.path.exists('flag') else 2.0)"), (), {"added": "--- flag\n1\n"}),
    ("the existence of a file counts, by pathlib", "import pathlib\n" + _model("x * (3.0 if pathlib.Path('flag').exists() else 2.0)"), (),
     {"added": "--- flag\n1\n"}),
    ("the number of files counts", "import glob\n" + _model("x * (1 + len(glob.glob('*.flag')))"), (), {"added": "--- a.flag\n1\n"}),
    ("the source of a function counts", "import inspect\ndef act(x):\n    return x  # a\n" + _model("act(x) * len(inspect.getsource(act))"),
     (("# a\n", "# abc\n"),), {}),
    ("a line that linecache has counts", "import linecache\n" + _model("x * len(linecache.getline('v.txt', 1))") + "--- v.txt\nab\n",
     (("v.txt\nab", "v.txt\nabc"),), {}),
    ("a metadata of a distribution counts", "import importlib.metadata as m\n" + _model("x * float(m.version('own'))")
     + "--- own-2.dist-info/METADATA\nName: own\nVersion: 2\n", (("Version: 2", "Version: 3"),), {}),
    ("an entry point of a plugin counts", "import importlib.metadata as m\n" + _model("x * (2 + len(m.entry_points(group='field.ops')))"), (),
     {"added": "--- own-2.dist-info/METADATA\nName: own\nVersion: 2\n--- own-2.dist-info/entry_points.txt\n[field.ops]\na = app:Model\n"}),
    ("a shelf of a script", "import shelve\nwith shelve.open('s') as s:\n    BY = s.setdefault('by', 2.0)\n    s['by'] = 3.0\n" + _model("x * BY"), (), {}),
    ("one of several files: layers", "from layers import Block\n" + _model("self.b(x)", "self.b = Block()")
     + "--- layers.py\nfrom ops import act\nclass Block(nn.Module):\n    def forward(self, x):\n        return act(x)\n"
     + "--- ops.py\nfrom consts import BY\ndef act(x):\n    return x * BY\n--- consts.py\nBY = 2.0\n", (("BY = 2.0", "BY = 3.0"),), {}),
    ("an operator in a helper of a helper", "from layers import Block\n" + _model("self.b(x)", "self.b = Block()")
     + "--- layers.py\nfrom ops import act\nclass Block(nn.Module):\n    def forward(self, x):\n        return act(x)\n"
     + "--- ops.py\ndef inner(x):\n    return x * 2\ndef act(x):\n    return inner(x)\n", (("x * 2", "x + 2"),), {}),
    ("a package's __init__ exports another function", "import ops\n" + _model("ops.act(x)")
     + "--- ops/__init__.py\nfrom ops.a import act\n--- ops/a.py\ndef act(x):\n    return x * 2\n--- ops/b.py\ndef act(x):\n    return x * 3\n",
     (("from ops.a import act", "from ops.b import act"),), {}),
    ("a star import of another order", "from a import *\nfrom b import *\n" + _model("act(x)")
     + "--- a.py\ndef act(x):\n    return x * 2\n--- b.py\ndef act(x):\n    return x * 3\n",
     (("from a import *\nfrom b import *", "from b import *\nfrom a import *"),), {}),
    ("__all__ leaves something out", "def act(x):\n    return x * 3\nfrom a import *\n" + _model("act(x)")
     + "--- a.py\n__all__ = ['act']\ndef act(x):\n    return x * 2\n", (("__all__ = ['act']", "__all__ = []"),), {}),
    ("a decorator is added", "def twice(fn):\n    return lambda x: fn(x) * 2\n# here\ndef act(x):\n    return x + 1\n" + _model("act(x)"),
     (("# here", "@twice"),), {}),
    ("a decorator in another file is edited", "from deco import twice\n@twice\ndef act(x):\n    return x + 1\n" + _model("act(x)")
     + "--- deco.py\nimport functools\ndef twice(fn):\n    @functools.wraps(fn)\n    def inner(x):\n        return fn(x) * 2\n    return inner\n",
     (("fn(x) * 2", "fn(x) * 3"),), {}),
    ("a class decorator that sets a value is edited", "from deco import sized\n@sized\nclass Cfg:\n    pass\n" + _model("x * self.c.by", "self.c = Cfg()")
     + "--- deco.py\ndef sized(cls):\n    cls.by = 2.0\n    return cls\n", (("cls.by = 2.0", "cls.by = 3.0"),), {}),
    ("a metaclass that sets a value is edited", "from meta import Meta\nclass Cfg(metaclass=Meta):\n    pass\n" + _model("x * self.c.by", "self.c = Cfg()")
     + "--- meta.py\nclass Meta(type):\n    def __new__(cls, name, bases, space):\n        space['by'] = 2.0\n        return super().__new__(cls, name, bases, space)\n",
     (("= 2.0", "= 3.0"),), {}),
    ("code is made at import from a table", "TABLE = {'act': 'x * 2'}\nfor n, e in TABLE.items():\n    exec(f'def {n}(x):\\n    return {e}')\n" + _model("act(x)"),
     (("'x * 2'", "'x * 3'"),), {}),
    ("code is made at import by eval", "act = eval('lambda x: x * 2')\n" + _model("act(x)"), (("x: x * 2", "x: x * 3"),), {}),
    ("a named expression at import", "act = (lambda by: lambda x: x * by)(2.0)\n" + _model("act(x)"), (("(2.0)", "(3.0)"),), {}),
    ("a loop's late closure", "ACTS = []\nfor by in (1.0, 2.0):\n    ACTS.append(lambda x: x * by)\n" + _model("ACTS[0](x)"),
     (("(1.0, 2.0)", "(1.0, 3.0)"),), {}),
    ("a list's comprehension of functions", "ACTS = [lambda x, b=b: x * b for b in (2.0, 1.0)]\n" + _model("ACTS[0](x)"), (("(2.0, 1.0)", "(3.0, 1.0)"),), {}),
    ("a plugin that registers itself", "import reg, plug\n" + _model("reg.ALL['a'](x)")
     + "--- reg.py\nALL = {}\ndef register(name):\n    def deco(fn):\n        ALL[name] = fn\n        return fn\n    return deco\n"
     + "--- plug.py\nfrom reg import register\n@register('a')\ndef act(x):\n    return x * 2\n", (("x * 2", "x * 3"),), {}),
    ("a plugin that replaces another's function when imported", "import ops, plug\n" + _model("ops.act(x)")
     + "--- ops.py\ndef act(x):\n    return x * 2\n--- plug.py\nimport ops\nold = ops.act\nops.act = lambda x: old(x) * 1\n",
     (("old(x) * 1", "old(x) * 3"),), {}),
    ("plugins are found in a folder", "import importlib, pathlib\nACTS = [importlib.import_module(f'plug.{p.stem}').act\n"
     "        for p in sorted(pathlib.Path('plug').glob('*.py'))]\n"
     + _model("for one in ACTS:\n    x = one(x)\nreturn x") + "--- plug/a.py\ndef act(x):\n    return x * 2\n", (),
     {"added": "--- plug/b.py\ndef act(x):\n    return x * 3\n"}),
    ("subclasses register themselves", "import base, more\n" + _model("base.Base.all[-1].act(x)")
     + "--- base.py\nclass Base:\n    all = []\n    def __init_subclass__(cls):\n        Base.all.append(cls)\n"
     + "--- more.py\nfrom base import Base\nclass One(Base):\n    @staticmethod\n    def act(x):\n        return x * 2\n", (("x * 2", "x * 3"),), {}),
    ("a method moves to another base", "class A:\n    def act(self, x):\n        return x * 2\nclass B:\n    def act(self, x):\n        return x * 3\n"
     "class C(A, B):\n    pass\n" + _model("self.c.act(x)", "self.c = C()"), (("class C(A, B)", "class C(B, A)"),), {}),
    ("a slot's default is edited", "class Cfg:\n    __slots__ = ('by',)\n    def __init__(self, by=2.0):\n        self.by = by\n" + _model("x * self.c.by", "self.c = Cfg()"),
     (("by=2.0", "by=3.0"),), {}),
    ("an enum's values are edited", "import enum\nclass K(enum.Enum):\n    A = 2.0\n    B = 5.0\n" + _model("x * K.A.value"), (("A = 2.0", "A = 3.0"),), {}),
    ("an enum's automatic values are in another order", "import enum\nclass K(enum.Enum):\n    A = enum.auto()\n    B = enum.auto()\n"
     + _model("x * self.k.value", "self.k = K.A"), (("A = enum.auto()\n    B = enum.auto()", "B = enum.auto()\n    A = enum.auto()"),), {}),
    ("a NamedTuple's fields are in another order", "import typing\nclass C(typing.NamedTuple):\n    a: float = 2.0\n    b: float = 3.0\n"
     + _model("x * self.c[0]", "self.c = C(a=2.0, b=3.0)"), (("a: float = 2.0\n    b: float = 3.0", "b: float = 3.0\n    a: float = 2.0"),), {}),
    ("a dataclass is frozen and gets a hash", "import dataclasses\n@dataclasses.dataclass\nclass C:\n    by: float = 2.0\n"
     + _model("x * (3.0 if C.__hash__ else 2.0)"), (("@dataclasses.dataclass\n", "@dataclasses.dataclass(frozen=True)\n"),), {}),
    ("a dataclass's order is compared", "import dataclasses\n@dataclasses.dataclass(eq=True)\nclass C:\n    by: float = 2.0\n"
     + _model("x * (2.0 if C() == C() else 3.0)"), (("eq=True", "eq=False"),), {}),
    ("a field is not compared", "import dataclasses\n@dataclasses.dataclass\nclass C:\n    by: float = dataclasses.field(default=2.0, compare=True)\n"
     + _model("x * (2.0 if C(1.0) == C(2.0) else 3.0)"), (("compare=True", "compare=False"),), {}),
    ("a __post_init__ is edited", "import dataclasses\n@dataclasses.dataclass\nclass C:\n    by: float = 2.0\n    def __post_init__(self):\n        self.by *= 1\n"
     + _model("x * self.c.by", "self.c = C()"), (("*= 1", "*= 2"),), {}),
    ("an order of operations", _model("x = x + 1\nx = x * 2\nreturn x"), (("x = x + 1\n        x = x * 2", "x = x * 2\n        x = x + 1"),), {}),
    ("a negative index", _model("x[:, -1] * 2"), (("[:, -1]", "[:, -2]"),), {}),
    ("an operator's direction", _model("torch.sub(x, self.lin(x))"), (("torch.sub(x, self.lin(x))", "torch.sub(self.lin(x), x)"),), {}),
    ("a comparison is turned", _model("torch.where(x > 2, x, 0.0)"), (("x > 2", "x < 2"),), {}),
    ("a keyword's name", _model("x.sum(dim=0)"), (("dim=0", "dim=1"),), {}),
    ("keepdim", _model("x.sum(dim=0, keepdim=True)"), (("keepdim=True", "keepdim=False"),), {}),
    ("is and is not", _model("x * (2.0 if self.lin is None else 3.0)"), (("is None", "is not None"),), {}),
    ("in and not in", _model("x * (2.0 if 1 in self.v else 3.0)", "self.v = [1]"), (("1 in", "1 not in"),), {}),
    ("a global statement", "BY = 2.0\ndef act(x):\n    BY = 2.0\n    return x * BY\n" + _model("act(x) * BY"), (("    BY = 2.0\n    return", "    BY = 3.0\n    return"),), {}),
    ("a nonlocal", "def make():\n    by = 2.0\n    def act(x):\n        return x * by\n    by = 2.0\n    return act\nact = make()\n" + _model("act(x)"),
     (("    by = 2.0\n    return act", "    by = 3.0\n    return act"),), {}),
    ("an exception table", _model("try:\n    y = self.none(x)\nexcept AttributeError:\n    y = x * 2\nreturn y"), (("AttributeError", "ValueError"),), {}),
    ("a finally", _model("try:\n    y = x\nfinally:\n    y = x * 2\nreturn y"), (("y = x * 2", "y = x * 3"),), {}),
    ("an assertion", _model("assert x.dim() == 2\nreturn x * 2"), (("x.dim() == 2", "x.dim() == 3"),), {}),
    ("a star in a call", "def act(x, *by):\n    return x * sum(by)\n" + _model("act(x, *self.v)", "self.v = [1.0, 2.0]"), (("*self.v", "*self.v[:1]"),), {}),
    ("a private name", _model("self.__act(x)", more="def __act(self, x):\n    return x * 2\n"), (("x * 2", "x * 3"),), {}),
    ("the constant of an unrelated branch is used", _model("x * (2.0 if self.training else 4.0)"), (("self.training", "not self.training"),), {}),
):
    _add(f"files are edited between two runs: {_doc}", _files_, "", *_to, **_more)

_CODE = "def act(x):\n    return x * {}\n"
_IMPORTS = "import ops\n" + _model("ops.act(x)")
for _doc, _text, _first_, _second_, _more in (
    ("another folder is first on sys.path", _IMPORTS + f"--- a/ops.py\n{_CODE.format(2)}--- b/ops.py\n{_CODE.format(3)}",
     "import sys\nsys.path[:0] = ['a', 'b']\n", "import sys\nsys.path[:0] = ['b', 'a']\n", {}),
    ("a module is imported from another zip file", _IMPORTS + f"--- a/ops.py\n{_CODE.format(2)}--- b/ops.py\n{_CODE.format(3)}",
     *(f"import sys, zipfile\nwith zipfile.ZipFile('{n}.zip', 'w') as z:\n    z.write('{n}/ops.py', 'ops.py')\nsys.path.insert(0, '{n}.zip')\n" for n in "ab"), {}),
    ("a module is there only as bytecode, and another", _IMPORTS + f"--- a/src.py\n{_CODE.format(2)}--- b/src.py\n{_CODE.format(3)}",
     *(f"import sys, py_compile\npy_compile.compile('{n}/src.py', 'only/ops.pyc')\nsys.path.insert(0, 'only')\n" for n in "ab"), {}),
    ("a namespace package's other portion is first", "import ns.ops\n" + _model("ns.ops.act(x)") + f"--- a/ns/ops.py\n{_CODE.format(2)}--- b/ns/ops.py\n{_CODE.format(3)}",
     "import sys\nsys.path[:0] = ['a', 'b']\n", "import sys\nsys.path[:0] = ['b', 'a']\n", {}),
    ("a stub of a module was put into sys.modules before", _IMPORTS + f"--- ops.py\n{_CODE.format(2)}",
     "", "import sys, types\nsys.modules['ops'] = types.ModuleType('ops')\nsys.modules['ops'].act = lambda x: x * 3\n", {}),
    ("an import hook rewrites constants", _IMPORTS + f"--- ops.py\n{_CODE.format(2)}", "", """
import importlib.machinery as im
old = im.SourceFileLoader.get_data
im.SourceFileLoader.get_data = lambda self, path: old(self, path).replace(b'x * 2', b'x * 3')
""", {}),
    ("an import of a patched library before the model's", "import ops\n" + _model("self.act(x)", "self.act = ops.Act()")
     + "--- ops.py\nclass Act(nn.Module):\n    by = 2.0\n    def forward(self, x):\n        return x * self.by\n",
     "", "import ops\nops.Act.by = 3.0\n", {}),
    ("a script's arguments are others", "", "", "", {"make": "import argparse, sys\np = argparse.ArgumentParser()\np.add_argument('--by', type=float, default=2.0)\n"
     "opts = p.parse_args(sys.argv[1:])\nimport app\nmodel = app.Model(opts)\n", "text": _model("x * self.opts.by").replace("def __init__(self):", "def __init__(self, opts):")
     .replace("        pass\n", "        self.opts = opts\n"), "second": "import sys\nsys.argv = ['a', '--by', '3']\n"}),
    ("a module of an installed library has another class's attribute", "import acme\n" + _model("acme.Scale().act(x)")
     + "--- venv/lib/python3.11/site-packages/acme.py\nimport itertools\nclass Scale:\n    numbers = itertools.count(2)\n    by = 2.0\n"
     "    def act(self, x):\n        return x * getattr(type(self), 'b' + 'y')\n",
     "import sys\nsys.path.insert(0, 'venv/lib/python3.11/site-packages')\n",
     "import sys\nsys.path.insert(0, 'venv/lib/python3.11/site-packages')\nimport acme\nacme.Scale.by = 3.0\n", {}),
    ("a counter of an installed library's class is elsewhere", "import acme\n" + _model("acme.Scale().act(x)")
     + "--- venv/lib/python3.11/site-packages/acme.py\nimport itertools\nclass Scale:\n    numbers = itertools.count(2)\n"
     "    def act(self, x):\n        return x * len(repr(getattr(type(self), 'num' + 'bers')))\n",
     "import sys\nsys.path.insert(0, 'venv/lib/python3.11/site-packages')\n",
     "import sys, itertools\nsys.path.insert(0, 'venv/lib/python3.11/site-packages')\nimport acme\nacme.Scale.numbers = itertools.count(222)\n", {}),
    ("an installed library is another version", "import acme\n" + _model("acme.act(x)")
     + f"--- va/site-packages/acme.py\n{_CODE.format(2)}--- vb/site-packages/acme.py\n{_CODE.format(3)}",
     "import sys\nsys.path.insert(0, 'va/site-packages')\n", "import sys\nsys.path.insert(0, 'vb/site-packages')\n", {}),
    ("a module with torch's name for its package", "import torch_ops\n" + _model("torch_ops.act(x)") + f"--- a/torch_ops.py\n{_CODE.format(2)}--- b/torch_ops.py\n{_CODE.format(3)}",
     "import sys\nsys.path.insert(0, 'a')\n", "import sys\nsys.path.insert(0, 'b')\n", {}),
    ("a shadow of a standard library's module", "import colorsys\n" + _model("x * colorsys.rgb_to_hls(0.2, 0.4, 0.6)[0]") + "--- b/colorsys.py\ndef rgb_to_hls(*a):\n    return (3.0,)\n",
     "", "import sys\nsys.modules.pop('colorsys', None)\nsys.path.insert(0, 'b')\n", {}),
    ("a C library is built anew", "import ctypes, os\nLIB = ctypes.CDLL(os.path.abspath('libby.so'))\nLIB.by.restype = ctypes.c_double\n" + _model("x * LIB.by()"),
     *("import subprocess\nopen('by.c', 'w').write('double by(void) { return %s; }')\n"
       "subprocess.run(['gcc', '-shared', '-fPIC', '-o', 'libby.so', 'by.c'], check=True)\n" % n for n in (2, 3)), {}),
    ("a C extension's module is built anew", "import byext\n" + _model("x * byext.by()"),
     *("import subprocess, sysconfig, sys\nopen('byext.c', 'w').write('''#include <Python.h>\n"
       "static PyObject *by(PyObject *s, PyObject *a) { return PyFloat_FromDouble(%s); }\n"
       "static PyMethodDef m[] = {{\"by\", by, METH_NOARGS, 0}, {0}};\n"
       "static struct PyModuleDef d = {PyModuleDef_HEAD_INIT, \"byext\", 0, -1, m};\n"
       "PyMODINIT_FUNC PyInit_byext(void) { return PyModule_Create(&d); }''')\n"
       "subprocess.run(['gcc', '-shared', '-fPIC', '-I' + sysconfig.get_paths()['include'], '-o', 'byext.so', 'byext.c'], check=True)\n" % n for n in (2, 3)), {}),
    ("a C extension's constant is built anew", "import byext\n" + _model("x * byext.BY"),
     *("import subprocess, sysconfig, sys\nopen('byext.c', 'w').write('''#include <Python.h>\n"
       "static struct PyModuleDef d = {PyModuleDef_HEAD_INIT, \"byext\", 0, -1, 0};\n"
       "PyMODINIT_FUNC PyInit_byext(void) { PyObject *m = PyModule_Create(&d); PyModule_AddIntConstant(m, \"BY\", %s); return m; }''')\n"
       "subprocess.run(['gcc', '-shared', '-fPIC', '-I' + sysconfig.get_paths()['include'], '-o', 'byext.so', 'byext.c'], check=True)\n" % n for n in (2, 3)), {}),
):
    _text = _more.pop("text", _text)
    _second_ = _more.pop("second", _second_)
    _add(f"another import: {_doc}", _text, first=_first_, second=_second_, **_more)
for _doc, _old, _new in (("a function", "x * 2", "x * 3"), ("a class's attribute", "by = 2.0", "by = 3.0"), ("a default", "n=1", "n=4")):
    _add(f"a module is edited and reloaded: {_doc}", _IMPORTS.replace("ops.act(x)", "ops.act(x) * ops.Cfg.by") + "--- ops.py\ndef act(x, n=1):\n    return x * 2 + n\nclass Cfg:\n    by = 2.0\n",
         f"import importlib, ops, pathlib\np = pathlib.Path('ops.py')\np.write_text(p.read_text().replace('{_old}', '{_new}'))\nimportlib.reload(ops)")
_add("a module is reloaded, and the model keeps the old class", _model("self.b(x)", "self.b = ops.Block()", "import ops\n")
     + "--- ops.py\nBY = 2.0\nclass Block(nn.Module):\n    def forward(self, x):\n        return x * BY\n",
     "import importlib, ops, pathlib\np = pathlib.Path('ops.py')\np.write_text(p.read_text().replace('BY = 2.0', 'BY = 3.0'))\nimportlib.reload(ops)")

# 14. Notebooks.

_CELL = "class Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.lin = torch.nn.Linear(4, 4)\n    def forward(self, x):\n        return act(x)\n"
for _doc, _make, _change in (
    ("a cell with a function is run again", f"def act(x):\n    return x * 2\n{_CELL}model = Model()\n", "def act(x):\n    return x * 3"),
    ("a cell with a number is run again", f"BY = 2.0\ndef act(x):\n    return x * BY\n{_CELL}model = Model()\n", "BY = 3.0"),
    ("a cell with the class is run again", f"def act(x):\n    return x * 2\n{_CELL}model = Model()\n", _CELL.replace("act(x)", "x * 3") + "model = Model()"),
    ("a cell with a base class is run again, and the model keeps the old one",
     f"def act(x):\n    return x * Base.by\nclass Base:\n    by = 2.0\n{_CELL}model = Model()\n", "class Base:\n    by = 3.0"),
    ("a global is deleted", f"len2 = 2.0\ndef act(x):\n    try:\n        return x * len2\n    except NameError:\n        return x * 3\n{_CELL}model = Model()\n", "del len2"),
    ("a builtin is overwritten by a variable", f"def act(x):\n    return x * (2.0 if callable(sum) else 3.0)\n{_CELL}model = Model()\n", "sum = 1"),
    ("an exec'd cell in a dictionary of its own", f"cell = {{}}\nexec('BY = 2.0\\ndef act(x): return x * BY', cell)\nact = cell['act']\n{_CELL}model = Model()\n", "exec('BY = 3.0', cell)"),
    ("a class gets a method in a later cell", f"class Cfg:\n    pass\ndef act(x):\n    return x * (3.0 if hasattr(Cfg, 'by') else 2.0)\n{_CELL}model = Model()\n", "def by(self):\n    pass\nCfg.by = by"),
    ("a list that was filled twice", f"steps = []\nsteps.append(2.0)\ndef act(x):\n    for s in steps:\n        x = x * s\n    return x\n{_CELL}model = Model()\n", "steps.append(2.0)"),
):
    _add(f"a notebook: {_doc}", "UNUSED = 1\n", _change, make=_make)

# 15. Configurations of transformers: what is left out of them is compared by something else.

_BERT = "from transformers import BertConfig, PretrainedConfig\nBASE = BertConfig(hidden_size=4)\n"
for _doc, _forward, _change in (
    ("a hyperparameter", "x * self.config.hidden_size", "model.config.hidden_size = 8"),
    ("a hyperparameter that is no field", "x * getattr(self.config, 'by', 2.0)", "model.config.by = 3.0"),
    ("a name, compared through ==", "x * (2.0 if self.config == BASE else 3.0)", "model.config._name_or_path = 'else'"),
    ("a name, compared through !=", "x * (3.0 if self.config != BASE else 2.0)", "model.config._name_or_path = 'else'"),
    ("a name, compared in a list", "x * (2.0 if self.config in [BASE] else 3.0)", "model.config._name_or_path = 'else'"),
    ("a name, in a dictionary's comparison", "x * (2.0 if {'c': self.config} == {'c': BASE} else 3.0)", "model.config._name_or_path = 'else'"),
    ("a name, through to_json_string", "x * len(self.config.to_json_string(use_diff=False))", "model.config._name_or_path = 'else'"),
    ("a name, through to_dict", "x * len(str(self.config.to_dict()))", "model.config._name_or_path = 'else'"),
    ("a name, through to_diff_dict", "x * len(str(self.config.to_diff_dict()))", "model.config._name_or_path = 'else'"),
    ("a name, through its text", "x * len(str(self.config))", "model.config._name_or_path = 'else'"),
    ("a name, through its property", "x * (2.0 + len(self.config.name_or_path))", "model.config._name_or_path = 'else'"),
    ("a name, through vars", "x * (2.0 + len(vars(self.config)['_name_or_path']))", "model.config._name_or_path = 'else'"),
    ("a name, through a composed name", "x * (2.0 + len(getattr(self.config, '_name_or' + self.tail)))", "model.config._name_or_path = 'else'"),
    ("a name, through a copy", "import copy\nreturn x * (2.0 if copy.copy(self.config) == BASE else 3.0)", "model.config._name_or_path = 'else'"),
    ("a name, through values of its dictionary", "x * (2.0 + ('else' in self.config.__dict__.values()))", "model.config._name_or_path = 'else'"),
    ("a name, through inspect", "import inspect\nreturn x * (2.0 + sum(v == 'else' for n, v in inspect.getmembers(self.config)))",
     "model.config._name_or_path = 'else'"),
    ("a commit, compared through ==", "x * (2.0 if self.config == BASE else 3.0)", "model.config._commit_hash = 'else'"),
    ("a version, compared through ==", "x * (2.0 if self.config == BASE else 3.0)", "model.config.transformers_version = '1'"),
    ("a name, through operator.eq", "import operator\nreturn x * (2.0 if operator.eq(self.config, BASE) else 3.0)", "model.config._name_or_path = 'else'"),
    ("a name, through pickle", "import pickle\nreturn x * len(pickle.dumps(self.config))", "model.config._name_or_path = 'else'"),
    ("a name, through json", "import json\nreturn x * len(json.dumps(self.config, default=lambda c: c.to_dict()))", "model.config._name_or_path = 'else'"),
    ("labels", "x * self.config.num_labels", "model.config.num_labels = 5"),
    ("an attention", "x * len(str(self.config._attn_implementation))", "model.config._attn_implementation = 'eager'"),
    ("a class's attribute", "x * len(self.config.model_type)", "type(model.config).model_type = 'b'"),
    ("a default of a dictionary, in place", "x * len(self.config.id2label)", "model.config.id2label[7] = 'a'"),
):
    _add(f"a configuration of transformers: {_doc}",
         _model(_forward, "self.config = BertConfig(hidden_size=4)\nself.tail = '_path'", _BERT), _change)
for _doc, _change in (
    ("an activation is replaced in ACT2FN", "import transformers.activations as a\na.ACT2FN['gelu'] = torch.nn.ReLU"),
    ("the activation of a layer", "model.net.encoder.layer[0].intermediate.intermediate_act_fn = torch.nn.ReLU()"),
    ("an attention function is replaced in its registry",
     "import transformers.models.bert.modeling_bert as m\n"
     "m.ALL_ATTENTION_FUNCTIONS['sdpa'] = lambda module, q, k, v, *a, **kw: (v.transpose(1, 2) * 3, None)"),
    ("the attention's name", "model.net.config._attn_implementation = 'eager'"),
    ("the epsilon of a norm", "model.net.encoder.layer[0].output.LayerNorm.eps = 0.5"),
    ("a forward of a class", "import transformers.models.bert.modeling_bert as m\nm.BertSelfOutput.forward = lambda self, h, i: h + i"),
    ("a global of its module", "import transformers.models.bert.modeling_bert as m\nold = m.apply_chunking_to_forward\n"
     "m.apply_chunking_to_forward = lambda *a: old(*a) * 3"),
    ("chunking", "model.net.encoder.layer[0].chunk_size_feed_forward = 1"),
    ("a mask function", "import transformers.models.bert.modeling_bert as m\nold = m.create_bidirectional_mask\n"
     "m.create_bidirectional_mask = lambda *a, **k: torch.zeros(1, 1, 3, 3)"),
):
    _add(f"a model of transformers: {_doc}", _model("self.net(x.long()).last_hidden_state",
         "torch.manual_seed(0)\nself.net = BertModel(BertConfig(hidden_size=4, num_hidden_layers=1, num_attention_heads=2, "
         "intermediate_size=4, vocab_size=20, max_position_embeddings=8)).eval()", "from transformers import BertConfig, BertModel\n"), _change)

# 16. Two indirections at once.

for _doc, _top, _init, _forward, _change, _more in (
    ("a partial of a bound method of an object in a weak value dictionary", """
     import functools, weakref
     class Op:
         by = 2.0
         def act(self, x):
             return x * self.by
     OP = Op()
     POOL = weakref.WeakValueDictionary(op=OP)
     """, "self.f = functools.partial(POOL['op'].act)", "self.f(x)", "app.OP.by = 3.0", ""),
    ("a cached function that reads a context variable", """
     import functools, contextvars
     BY = contextvars.ContextVar('by', default=2.0)
     @functools.lru_cache
     def by(n):
         return BY.get()
     """, "pass", "x * by(1)", "app.by.cache_clear()\napp.BY.set(3.0)", ""),
    ("a cached function behind a partial in a registry of a third module", """
     import reg, functools
     BY = 2.0
     @functools.lru_cache
     def by():
         return BY
     reg.ALL['by'] = functools.partial(by)
     """, "pass", "x * reg.ALL['by']()", "app.BY = 3.0\napp.by.cache_clear()", "--- reg.py\nALL = {}\n"),
    ("a property that reads a variable by a name from a class's attribute", """
     import os
     class Cfg:
         key = 'FIELD_A'
         @property
         def by(self):
             return float(os.environ.get(self.key, '2'))
     """, "self.cfg = Cfg()", "x * self.cfg.by", "import os\nos.environ['FIELD_B'] = '3'\napp.Cfg.key = 'FIELD_B'", ""),
    ("a closure over a module whose attribute is a partial", """
     import reg
     def make(module):
         return lambda x: module.ACT(x)
     """, "self.f = make(reg)", "self.f(x)", "import functools, reg\nreg.ACT = functools.partial(torch.mul, other=3.0)",
     "--- reg.py\nimport functools\nACT = functools.partial(torch.mul, other=2.0)\n"),
    ("a lazily imported module's __getattr__ with a cached value", "import lazy\n", "pass", "x * lazy.BY", "import lazy\nlazy._values.cache_clear()\nlazy.SRC['BY'] = 3.0",
     "--- lazy.py\nimport functools\nSRC = {'BY': 2.0}\n@functools.lru_cache\ndef _values(name):\n    return SRC[name]\ndef __getattr__(name):\n    return _values(name)\n"),
    ("an enum whose members hold functions that read a dictionary", """
     import enum, functools
     TABLE = {'by': 2.0}
     class Act(enum.Enum):
         A = functools.partial(lambda x: x * TABLE['by'])
     """, "self.act = Act.A", "self.act.value(x)", "app.TABLE['by'] = 3.0", ""),
    ("a descriptor on a metaclass that reads a weak reference", """
     import weakref
     class Src:
         by = 2.0
     SRC = Src()
     class Get:
         ref = weakref.ref(SRC)
         def __get__(self, one, owner):
             return self.ref().by
     class Meta(type):
         by = Get()
     class Cfg(metaclass=Meta):
         pass
     """, "pass", "x * Cfg.by", "app.SRC.by = 3.0", ""),
    ("a hook that is a bound method of an object in a module's dictionary", """
     TAPS = {}
     class Tap:
         by = 2.0
         def hook(self, m, a, out):
             return out * self.by
     """, "TAPS['a'] = Tap()\nself.lin.register_forward_hook(TAPS['a'].hook)", "self.lin(x)", "app.TAPS['a'].by = 3.0", ""),
    ("a hook that is a partial of a cached function", """
     import functools
     BY = 2.0
     @functools.cache
     def by():
         return BY
     def hook(scale, m, a, out):
         return out * scale()
     """, "self.lin.register_forward_hook(functools.partial(hook, by))", "self.lin(x)", "app.BY = 3.0\napp.by.cache_clear()", ""),
    ("a parametrization whose forward looks a function up by a name", """
     from torch.nn.utils import parametrize
     import reg
     class P(nn.Module):
         def __init__(self):
             super().__init__()
             self.name = 'a'
         def forward(self, w):
             return reg.ALL[self.name](w)
     """, "parametrize.register_parametrization(self.lin, 'weight', P())", "self.lin(x)", "import reg\nreg.ALL['a'] = lambda w: w * 3",
     "--- reg.py\nALL = {'a': lambda w: w * 2}\n"),
    ("a parametrization reads a variable", """
     from torch.nn.utils import parametrize
     import os
     class P(nn.Module):
         def forward(self, w):
             return w * float(os.environ.get('FIELD_BY', '2'))
     """, "parametrize.register_parametrization(self.lin, 'weight', P())", "self.lin(x)", "import os\nos.environ['FIELD_BY'] = '3'", ""),
    ("a frozen dataclass in a tuple in a default of a method of a mixin", """
     import dataclasses
     @dataclasses.dataclass(frozen=True)
     class C:
         by: float = 2.0
     class Mix:
         def act(self, x, all=(C(),)):
             return x * all[0].by
     class Op(Mix):
         pass
     """, "self.op = Op()", "self.op.act(x)", "object.__setattr__(app.Mix.act.__defaults__[0][0], 'by', 3.0)", ""),
    ("a single-dispatch function registered in another module for a class made there", """
     import functools
     @functools.singledispatch
     def act(cfg, x):
         return x
     import impl
     """, "self.cfg = impl.Cfg()", "act(self.cfg, x)", "import impl\nimpl.Cfg.by = 3.0",
     "--- impl.py\nfrom __main__ import __name__ as n\nimport sys\napp = sys.modules['app']\nclass Cfg:\n    by = 2.0\n@app.act.register(Cfg)\ndef _(cfg, x):\n    return x * cfg.by\n"),
    ("a subclass's cached property on a class with slots and a dictionary", """
     import functools
     SRC = {'by': 2.0}
     class A:
         __slots__ = ('n', '__dict__')
     class B(A):
         @functools.cached_property
         def by(self):
             return SRC['by']
     """, "self.b = B()", "x * self.b.by", "app.SRC['by'] = 3.0\nmodel.b.__dict__.clear()", ""),
    ("a module-level __getattr__ of a package that imports a submodule", "import pkg\n", "pass", "x * pkg.late.BY", "import pkg.late\npkg.late.BY = 3.0",
     "--- pkg/__init__.py\ndef __getattr__(name):\n    import importlib\n    return importlib.import_module('pkg.' + name)\n--- pkg/late.py\nBY = 2.0\n"),
    ("a threading.local in a closure of a decorator", """
     import threading, functools
     STATE = threading.local()
     STATE.by = 2.0
     def scaled(fn):
         state = STATE
         @functools.wraps(fn)
         def inner(x):
             return fn(x) * getattr(state, 'by', 1.0)
         return inner
     @scaled
     def act(x):
         return x + 1
     """, "pass", "act(x)", "app.STATE.by = 3.0", ""),
    ("a context variable in a partial", """
     import contextvars, functools
     BY = contextvars.ContextVar('by', default=2.0)
     """, "self.get = functools.partial(BY.get, 1.0)", "x * self.get()", "app.BY.set(3.0)", ""),
    ("a bound get of a context variable", """
     import contextvars
     BY = contextvars.ContextVar('by', default=2.0)
     """, "self.get = BY.get", "x * self.get()", "app.BY.set(3.0)", ""),
    ("a context that is kept", """
     import contextvars
     BY = contextvars.ContextVar('by', default=2.0)
     CTX = contextvars.copy_context()
     """, "pass", "x * CTX.run(BY.get)", "app.CTX.run(app.BY.set, 3.0)", ""),
    ("all of the current context", """
     import contextvars
     BY = contextvars.ContextVar('by', default=2.0)
     """, "pass", "x * (2.0 + len([v for v in contextvars.copy_context() if v.name == 'by']))", "app.BY.set(3.0)", ""),
    ("a class's attribute read by super() in a closure of a comprehension", """
     class A:
         by = 2.0
     class B(A):
         def all(self):
             return [super(B, self).by for _ in range(1)][0]
     """, "self.b = B()", "x * self.b.all()", "app.A.by = 3.0", ""),
    ("a generic function's namespace is another module's", """
     import types, reg
     def act(x):
         return x * BY
     """, "self.f = types.FunctionType(act.__code__, vars(reg))", "self.f(x)", "import reg\nreg.BY = 3.0", "--- reg.py\nBY = 2.0\n"),
    ("a function's builtins are another module's", """
     import builtins
     """, "pass", "x * max([2.0, 1.0])", "import builtins\nbuiltins.max = min", ""),
    ("a dictionary's subclass whose get looks into a parent by a weak reference", """
     import weakref
     class Scope(dict):
         parent = None
         def look(self, key):
             return self[key] if key in self else self.parent().look(key)
     ROOT = Scope(by=2.0)
     """, "self.scope = Scope()\nself.scope.parent = weakref.ref(ROOT)", "x * self.scope.look('by')", "app.ROOT['by'] = 3.0", ""),
    ("an attribute of a class that is given by vars() of another", """
     class Base:
         by = 2.0
     Made = type('Made', (), {k: property(lambda self, k=k: getattr(Base, k)) for k in vars(Base) if k[0] != '_'})
     """, "self.m = Made()", "x * self.m.by", "app.Base.by = 3.0", ""),
    ("a composed name of a class's attribute behind a property", """
     class Base:
         low_by = 2.0
     class Cfg:
         level = 'LOW'
         @property
         def by(self):
             return getattr(Base, self.level.lower() + '_by')
     """, "self.c = Cfg()", "x * self.c.by", "app.Base.low_by = 3.0", ""),
    ("a composed name in a package's submodules", "import pkg.fast_ops, pkg.slow_ops\n", "self.kind = 'FAST'", "x * getattr(pkg, self.kind.lower() + '_ops').BY",
     "import pkg.fast_ops\npkg.fast_ops.BY = 3.0", "--- pkg/__init__.py\n--- pkg/fast_ops.py\nBY = 2.0\n--- pkg/slow_ops.py\nBY = 5.0\n"),
    ("a composed name in an object that is kept by a module", "import reg\n", "self.kind = 'FAST'", "x * getattr(reg.CFG, self.kind.lower())",
     "import reg\ntype(reg.CFG).fast = 3.0", "--- reg.py\nclass Cfg:\n    fast = 2.0\nCFG = Cfg()\n"),
    ("a composed name and an alias of a module", "import pkg.ops as o\nALL = [o]\n", "self.kind = 'BY'", "x * getattr(ALL[0], self.kind + '_2')",
     "import pkg.ops\npkg.ops.BY_2 = 3.0", "--- pkg/__init__.py\n--- pkg/ops.py\nBY_2 = 2.0\n"),
    ("a class from a composed path of pydoc, whose attribute is another", "import pydoc, reg\n", "self.path = ('reg', 'Cfg')", "x * pydoc.locate('.'.join(self.path)).by",
     "import reg\nreg.Cfg.by = 3.0", "--- reg.py\nclass Cfg:\n    by = 2.0\n"),
    ("Hydra-like: a _target_ is imported in forward", "import importlib\n", "self.cfg = {'_target_': 'reg.act', 'by': 2.0}", """
     path, _, name = self.cfg['_target_'].rpartition('.')
     return getattr(importlib.import_module(path), name)(x, by=self.cfg['by'])
     """, "import reg\nreg.act.__defaults__ = (3.0,)\nreg.EXTRA = 1.0", "--- reg.py\nEXTRA = 0.0\ndef act(x, by):\n    return x * by + EXTRA\n"),
    ("Hydra-like: a _target_ is resolved when the model is made", "import importlib, functools\ndef make(cfg):\n"
     "    path, _, name = cfg['_target_'].rpartition('.')\n    return functools.partial(getattr(importlib.import_module(path), name), by=cfg['by'])\n",
     "self.act = make({'_target_': 'reg.act', 'by': 2.0})", "self.act(x)", "import reg\nreg.EXTRA = 1.0", "--- reg.py\nEXTRA = 0.0\ndef act(x, by):\n    return x * by + EXTRA\n"),
    ("an object in a global of __main__ that a callback reads", "CALLS = []\n", "pass", "for one in CALLS:\n    x = one(x)\nreturn x", "BY = 3.0", "MAIN"),
    ("a lambda in a class's dictionary of a third module that reads a class's attribute", "import reg\n", "pass", "reg.Ops.table['a'](x)",
     "import reg\nreg.Cfg.by = 3.0", "--- reg.py\nclass Cfg:\n    by = 2.0\nclass Ops:\n    table = {'a': lambda x: x * Cfg.by}\n"),
    ("a functools.wraps'd method whose __wrapped__ is called", """
     import functools
     def logged(fn):
         @functools.wraps(fn)
         def inner(*a):
             return inner.__wrapped__(*a)
         return inner
     @logged
     def act(x):
         return x * 2
     """, "pass", "act(x)", "app.act.__wrapped__ = lambda x: x * 3", ""),
    ("a decorator class that counts and has a table", """
     class Timed:
         table = {}
         def __init__(self, fn):
             self.fn = fn
             self.table[fn.__name__] = 2.0
         def __call__(self, x):
             return self.fn(x) * self.table[self.fn.__name__]
     @Timed
     def act(x):
         return x + 1
     """, "pass", "act(x)", "app.Timed.table['act'] = 3.0", ""),
    ("a NumPy array behind a cached property of an object in a tuple", """
     import functools, numpy as np
     class T:
         @functools.cached_property
         def table(self):
             return np.full(4, 2.0, dtype='float32')
     """, "self.all = (T(),)\nself.all[0].table", "x * torch.tensor(self.all[0].table)", "model.all[0].table[:] = 3.0", ""),
    ("a tensor in a NumPy array's subclass", """
     import numpy as np
     class Own(np.ndarray):
         pass
     """, "self.a = np.ones(2).view(Own)\nself.a.t = torch.ones(4)", "x * self.a.t", "model.a.t.mul_(3)", ""),
    ("a tensor in an attribute of a tensor", "", "self.t = torch.ones(4)\nself.t.by = torch.ones(4)", "x * self.t.by", "model.t.by.mul_(3)", ""),
    ("a tensor in an exception that is kept", "ERR = ValueError(torch.ones(4))\n", "pass", "x * ERR.args[0]", "app.ERR.args[0].mul_(3)", ""),
    ("a tensor in a partial in an enum's member", "import enum, functools\nclass A(enum.Enum):\n    M = functools.partial(torch.mul, other=torch.ones(4))\n",
     "pass", "A.M.value(x)", "app.A.M.value.keywords['other'].mul_(3)", ""),
    ("a weight of a module in an enum's member", "import enum\nclass A(enum.Enum):\n    M = nn.Linear(4, 4)\n", "pass", "A.M.value(x)",
     "app.A.M.value.weight.data.mul_(3)", ""),
    ("a weight of a global module that is no child", "NET = nn.Linear(4, 4)\n", "pass", "NET(x)", "NET = app.NET\nNET.weight.data.mul_(3)", ""),
    ("a weight of a module in a closure", "def make(net):\n    return lambda x: net(x)\n", "self.f = make(nn.Linear(4, 4))", "self.f(x)",
     "model.f.__closure__[0].cell_contents.weight.data.mul_(3)", ""),
    ("a weight of a child's list", "", "self.lin.others = [nn.Linear(4, 4)]", "self.lin.others[0](x)", "model.lin.others[0].weight.data.mul_(3)", ""),
    ("a weight of a module that a hook holds", "class H:\n    def __init__(self):\n        self.net = nn.Linear(4, 4)\n    def __call__(self, m, a, out):\n        return self.net(out)\n",
     "self.h = [H()]\nself.lin.register_forward_hook(self.h[0])", "self.lin(x)", "model.h[0].net.weight.data.mul_(3)", ""),
    ("a weight of a teacher behind a weak reference", "import weakref\nNET = [nn.Linear(4, 4)]\n", "self.t = weakref.ref(NET[0])", "self.t()(x)",
     "app.NET[0].weight.data.mul_(3)", ""),
    ("a weight of a root module behind a child's back reference", "", "self.lin.__dict__['root'] = [self]\nself.b = nn.Parameter(torch.ones(4))", "x * self.lin.root[0].b",
     "model.b.data.mul_(3)", ""),
    ("a weight of the model behind a weak reference of a child", "import weakref\nclass C(nn.Module):\n    def forward(self, x):\n        return x * self.root().b\n",
     "self.c = C()\nself.c.root = weakref.ref(self)\nself.b = nn.Parameter(torch.ones(4))", "self.c(x)", "model.b.data.mul_(3)", ""),
    ("a weight of the model that a bound method of it holds", "", "self.b = nn.Parameter(torch.ones(4))\nself.f = self.act", "self.f(x)", "model.b.data.mul_(3)",
     "ACT"),
    ("a weight through a global registry of models", "ALL = {}\n", "self.b = nn.Parameter(torch.ones(4))\nALL['m'] = self", "x * ALL['m'].b", "model.b.data.mul_(3)", ""),
    ("a weight that a class's attribute has after deepcopy", "import copy\n", "self.b = nn.Parameter(torch.ones(4))\nself.kept = [self.b]", "x * self.kept[0]",
     "import copy\nmodel = copy.deepcopy(model)\nmodel.kept[0].data.mul_(3)", ""),
):
    _plain = _more if _more not in ("MAIN", "ACT") else ""
    _methods = "def act(self, x):\n    return x * self.b\n" if _more == "ACT" else ""
    _make = MAKE + "BY = 2.0\ndef call(x):\n    return x * BY\napp.CALLS.append(call)\n" if _more == "MAIN" else MAKE
    _add(f"two ways at once: {_doc}", _model(_forward, _init, _top, _methods) + _plain, _change, make=_make)

_add("three values of a global go round, and each is found again",
     _model("x * BY * len(self.n)", "self.n = [1]", "BY = 2.0\n"), """
     import trtcache, pathlib
     for by in (3.0, 4.0, 2.0, 3.0, 4.0):
         app.BY = by
         made = trtcache.compile(model, args, backend="stored", name="Model", direct="on", cache=pathlib.Path("cache"))
         assert torch.equal(made(*args), model(*args)), by
     app.BY = 5.0
     """)
_add("many values of a global push the oldest out",
     _model("x * BY", "pass", "BY = 2.0\n"), """
     import trtcache, pathlib
     for by in (*range(3, 14), 2.0, 5, 13):
         app.BY = by
         made = trtcache.compile(model, args, backend="stored", name="Model", direct="on", cache=pathlib.Path("cache"))
         assert torch.equal(made(*args), model(*args)), by
     app.BY = 50.0
     """)

# 17. Harmless changes.

_PLAIN = _model("act(self.lin(x)) * self.cfg.by", "self.cfg = Cfg()", """
import logging, dataclasses
LOG = logging.getLogger('app')
@dataclasses.dataclass
class Cfg:
    by: float = 2.0
def act(x):
    # a comment
    return F.relu(x)
def unused(x):
    return x * 2
UNUSED = 1
""")
for _doc, _change, _to, _more in (
    ("a comment is edited", "", (("# a comment", "# another"),), {}),
    ("an empty line is added before a function", "", (("def act(x)", "\n\ndef act(x)"),), {}),
    ("a blank is added inside an expression", "", (("x * 2\n", "x  *  2\n"),), {}),
    ("an unused function is edited", "", (("x * 2", "x * 3"),), {}),
    ("an unused global is edited", "", (("UNUSED = 1", "UNUSED = 2"),), {}),
    ("an unused import is added", "", (("import logging", "import json, logging"),), {}),
    ("a class that is not used is added", "", (("UNUSED = 1", "class Other:\n    by = 1\n"),), {}),
    ("a file beside is added", "", (), {"added": "--- other.py\nBY = 3.0\n"}),
    ("nothing at all", "", (), {}),
    ("the model is trained on", "with torch.no_grad():\n    model.lin.weight.mul_(2)", (), {}),
    ("other weights are loaded", "model.load_state_dict(app.Model().state_dict())", (), {}),
    ("weights are assigned from a state", "model.load_state_dict(app.Model().state_dict(), assign=True)\nmodel.lin.weight.requires_grad_()", (), {}),
    ("the model is made anew", "model = app.Model().eval()", (), {}),
    ("the model is copied deeply", "import copy\nmodel = copy.deepcopy(model)", (), {}),
    ("the model goes through pickle", "import pickle\nmodel = pickle.loads(pickle.dumps(model))", (), {}),
    ("the model goes through torch.save", "import io\nf = io.BytesIO()\ntorch.save(model, f)\nf.seek(0)\nmodel = torch.load(f, weights_only=False)", (), {}),
    ("train() and eval() again", "model.train()\nmodel.eval()", (), {}),
    ("the model was called", "model(*args)", (), {}),
    ("the model was called, with gradients", "model(*args).sum().backward()\nmodel.zero_grad()", (), {}),
    ("gradients are there", "model(*args).sum().backward()", (), {}),
    ("an equal configuration", "model.cfg = app.Cfg(2.0)", (), {}),
    ("an input with other values", "args = (args[0] + 5,)", (), {}),
    ("another seed", "torch.manual_seed(9)", (), {}),
    ("Python's and NumPy's seeds", "import random, numpy\nrandom.seed(3)\nnumpy.random.seed(3)", (), {}),
    ("a logger's level", "import logging\nlogging.basicConfig(level=10)\napp.LOG.setLevel(10)", (), {}),
    ("a variable that nobody reads", "", (), {"env": {"FIELD_UNREAD": "1"}}),
    ("other packages were imported", "import xml.dom.minidom, networkx, yaml", (), {}),
    ("the working directory is another", "import os\nos.makedirs('else', exist_ok=True)\nos.chdir('else')", (), {"live": True}),
    ("the garbage collector ran", "import gc\ngc.collect()", (), {}),
    ("a filter of warnings is added", "import warnings\nwarnings.filterwarnings('ignore', message='abc')", (), {}),
    ("float() and to() of the same", "model.float().to('cpu')", (), {}),
    ("an optimizer is made", "opt = torch.optim.Adam(model.parameters())", (), {}),
    ("an optimizer makes steps", "opt = torch.optim.SGD(model.parameters(), lr=0.1)\nmodel(*args).sum().backward()\nopt.step()\nopt.zero_grad()", (), {}),
    ("another model of the class is compiled before", "other = app.Model().eval()\nother.cfg.by = 7.0\nimport trtcache\n"
     "trtcache.compile(other, args, backend='stored', name='Model', direct='on', cache='else')", (), {}),
    ("an unused class is defined in __main__", "class Foo:\n    pass", (), {}),
    ("a hook is registered and removed", "model.lin.register_forward_hook(lambda *a: None).remove()", (), {}),
    ("a parametrization is put on and removed", "import torch.nn.utils.parametrize as p\np.register_parametrization(model.lin, 'weight', torch.nn.Identity())\n"
     "p.remove_parametrizations(model.lin, 'weight')", (), {}),
    ("autocast was on and is off", "with torch.autocast('cpu'):\n    model(*args)", (), {}),
    ("no_grad was on and is off", "with torch.no_grad():\n    model(*args)", (), {}),
    ("the default dtype was set and set back", "torch.set_default_dtype(torch.float64)\ntorch.set_default_dtype(torch.float32)", (), {}),
    ("a thread ran", "import threading\nt = threading.Thread(target=print)\nt.start()\nt.join()", (), {}),
    ("another torch.export of the model", "torch.export.export(model, args)", (), {}),
    ("torch.compile of the model", "torch.compile(model, backend='eager')(*args)", (), {}),
    ("parameters are shared and the model is moved to no other device", "model.requires_grad_(True)", (), {}),
    ("time goes by", "import time\ntime.sleep(0.01)", (), {}),
    ("a library patches what no export meets", "import json\njson.own = 1", (), {}),
    ("a local variable is renamed", "", (("def unused(x):\n    return x * 2", "def unused(y):\n    return y * 2"),), {}),
    ("more files are open", "kept = [open('app.py') for _ in range(3)]", (), {}),
):
    _add(f"harmless: {_doc}", _PLAIN, _change, *_to, harmless=True, **_more)

# 18. Variations of what was found: state of torch, of Python's library, of modules, and names that are made.

for _where in ("torch.nn", "torch.nn.init", "torch.nn.utils", "torch.linalg", "torch.fft", "torch.special", "torch.backends", "torch.backends.mha",
               "torch.distributed", "torch.utils", "torch.utils.data", "torch.optim", "torch.cuda", "torch.compiler", "torch.version",
               "torch.nn.modules.linear", "torch.nn.parallel", "torch.amp", "torch.jit", "torch.random", "torch.overrides", "torch.export"):
    _add(f"an attribute appears in {_where}", _model(f"x * getattr({_where}, 'own_gain', 2.0)", "pass", "import torch.distributed, torch.utils.data\n"),
         f"{_where}.own_gain = 3.0")
for _where, _name in (("torch.linalg", "norm"), ("torch.fft", "fft"), ("torch.special", "expit"), ("torch.nn.init", "calculate_gain"),
                      ("torch.nn.utils", "parameters_to_vector"), ("nn", "Sigmoid"), ("torch.utils.checkpoint", "checkpoint")):
    for _how, _look in (("its name", f"{_where}.{_name}"), ("a kept text", f"getattr({_where}, self.kind)"),
                        ("a name that is made by upper and lower case", f"getattr({_where}, self.kind.swapcase().swapcase())"),
                        ("a name that is made by a slice", f"getattr({_where}, self.long[1:])"),
                        ("a name that is made by addition", f"getattr({_where}, self.kind[:1] + self.kind[1:])")):
        _add(f"{_where}.{_name} is replaced, and found by {_how}",
             _model(f"x * (2.0 if {_look} is KEPT else 3.0)", f"self.kind = '{_name}'\nself.long = '_{_name}'",
                    f"import torch.utils.checkpoint\nKEPT = {_where}.{_name}\n"), f"{_where.replace('nn', 'torch.nn', 1) if _where == 'nn' else _where}.{_name} = print")
for _expr, _set in (
    ("torch.backends.mkldnn.deterministic", "torch.backends.mkldnn.deterministic = True"),
    ("torch.backends.nnpack.is_available() and torch._C._get_nnpack_enabled()", "torch.backends.nnpack.set_flags(False)"),
    ("torch.backends.fp32_precision == 'none'", "torch.backends.fp32_precision = 'tf32'"),
    ("torch.backends.mkldnn.matmul.fp32_precision == 'none'", "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'"),
    ("torch.backends.mkldnn.conv.fp32_precision == 'none'", "torch.backends.mkldnn.conv.fp32_precision = 'bf16'"),
    ("torch.backends.cudnn.rnn.fp32_precision == 'tf32'", "torch.backends.cudnn.rnn.fp32_precision = 'ieee'"),
    ("torch.backends.cudnn.conv.fp32_precision == 'tf32'", "torch.backends.cudnn.conv.fp32_precision = 'ieee'"),
    ("torch.backends.cuda.matmul.fp32_precision == 'none'", "torch.backends.cuda.matmul.fp32_precision = 'tf32'"),
    ("torch.backends.cudnn.benchmark", "torch.backends.cudnn.benchmark = True"),
    ("torch.backends.cudnn.deterministic", "torch.backends.cudnn.deterministic = True"),
    ("torch.backends.cudnn.allow_tf32", "torch.backends.cudnn.allow_tf32 = False"),
    ("torch.backends.cuda.matmul.allow_tf32", "torch.backends.cuda.matmul.allow_tf32 = True"),
    ("torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction", "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False"),
    ("torch.backends.cuda.matmul.allow_fp16_accumulation", "torch.backends.cuda.matmul.allow_fp16_accumulation = True"),
    ("torch.backends.cuda.math_sdp_enabled()", "torch.backends.cuda.enable_math_sdp(False)"),
    ("torch.backends.cuda.mem_efficient_sdp_enabled()", "torch.backends.cuda.enable_mem_efficient_sdp(False)"),
    ("torch.backends.cuda.cudnn_sdp_enabled()", "torch.backends.cuda.enable_cudnn_sdp(False)"),
    ("torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()", "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)"),
    ("torch._C._get_overrideable_sdp_enabled()", "torch._C._set_sdp_use_overrideable(False)"),
    ("torch._C._get_sdp_priority_order()[0] == 1", "torch._C._set_sdp_priority_order([2, 1, 0, 3, 4])"),
    ("torch._C._get_graph_executor_optimize()", "torch._C._set_graph_executor_optimize(False)"),
    ("torch._C._jit_get_inline_everything_mode()", "torch._C._jit_set_inline_everything_mode(True)"),
    ("torch._C._jit_texpr_fuser_enabled()", "torch._C._jit_set_texpr_fuser_enabled(not torch._C._jit_texpr_fuser_enabled())"),
    ("torch._C._get_privateuse1_backend_name() == 'privateuseone'", "torch.utils.rename_privateuse1_backend('foo')"),
    ("torch._C._is_view_replay_enabled()", "torch.autograd.grad_mode._force_original_view_tracking(True)"),
    ("torch._C._is_fwd_grad_enabled()", "torch._C._set_fwd_grad_enabled(False)"),
    ("torch.is_anomaly_check_nan_enabled()", "torch.autograd.set_detect_anomaly(True, check_nan=False)"),
    ("torch.is_autocast_enabled('cuda')", "torch.set_autocast_enabled('cuda', True)"),
    ("torch.get_autocast_dtype('cuda') is torch.float16", "torch.set_autocast_dtype('cuda', torch.bfloat16)"),
    ("torch.get_autocast_dtype('xpu') is torch.float16", "torch.set_autocast_dtype('xpu', torch.bfloat16)"),
    ("torch.backends.cudnn.benchmark_limit == 10", "torch.backends.cudnn.benchmark_limit = 3"),
    ("getattr(torch.backends.cudnn, 'depthwise_kernel', 'auto') == 'auto'", "torch.backends.cudnn.depthwise_kernel = 'cudnn'"),
    ("torch.backends.miopen.immediate", "torch.backends.miopen.immediate = True"),
    ("torch._C._functorch._is_vmap_fallback_enabled()", "torch._C._functorch._set_vmap_fallback_enabled(False)"),
    ("torch._C._get_autograd_fallback_mode() == 'warn'", "torch._C._set_autograd_fallback_mode('nothing')"),
    ("torch._C._jit_get_te_generate_block_code()", "torch._C._jit_set_te_generate_block_code(True)"),
    ("torch._C._get_backcompat_keepdim_warn()", "torch._C._set_backcompat_keepdim_warn(True)"),
    ("torch.get_deterministic_debug_mode() == 0", "torch.set_deterministic_debug_mode('warn')"),
    ("torch.get_default_device().type == 'cpu'", "torch.set_default_device('meta')"),
    ("torch.backends.opt_einsum.strategy is None", "torch.backends.opt_einsum.strategy = 'greedy'"),
    ("torch.utils.data.get_worker_info() is None", "import torch.utils.data._utils.worker as w\nw._worker_info = w.WorkerInfo(id=1, num_workers=2, seed=3, dataset=None)"),
    ("torch.cuda.is_initialized()", "torch.cuda._initialized = True"),
    ("torch.distributed.is_available()", "torch.distributed.is_available = lambda: False"),
    ("torch.cuda.is_available()", "torch.cuda.is_available = lambda: True"),
    ("torch.cuda.device_count() > 0", "torch.cuda.device_count = lambda: 3"),
    ("torch.compiler.is_compiling()", "torch.compiler._is_compiling_flag = not torch.compiler._is_compiling_flag"),
    ("torch.compiler.is_exporting()", "torch.compiler._is_exporting_flag = not torch.compiler._is_exporting_flag"),
    ("torch.jit.is_scripting()", "torch.jit.is_scripting = lambda: True"),
    ("torch.jit.is_tracing()", "torch.jit.is_tracing = lambda: True"),
    ("torch.fx._symbolic_trace.is_fx_tracing()", "import torch.fx._symbolic_trace as s\ns._is_fx_tracing_flag = True"),
    ("torch.__version__ >= '2'", "torch.__version__ = '1.0'"),
    ("torch.version.cuda is None", "torch.version.cuda = '12.0'"),
    ("torch.version.__version__ >= '2'", "torch.version.__version__ = '1.0'"),
    ("torch.quasirandom.SobolEngine.MAXDIM > 5", "torch.quasirandom.SobolEngine.MAXDIM = 3"),
    ("torch.utils.checkpoint._checkpoint_debug_enabled is None", "import torch.utils.checkpoint as c\nc._checkpoint_debug_enabled = True"),
    ("torch.utils.checkpoint.DefaultDeviceType.get_device_type() == 'cuda'", "import torch.utils.checkpoint as c\nc.DefaultDeviceType.set_device_type('xpu')"),
    ("torch.nn.utils.parametrize._cache_enabled == 0", "import torch.nn.utils.parametrize as p\np._cache_enabled = 1"),
    ("torch.distributions.Distribution._validate_args", "torch.distributions.Distribution._validate_args = False"),
    ("torch.distributions.Normal.has_rsample", "torch.distributions.Normal.has_rsample = False"),
    ("torch.nn.Transformer.__doc__ == DOC", "torch.nn.Transformer.__doc__ = 'a'"),
    ("torch.nn.Module.dump_patches", "torch.nn.Module.dump_patches = True"),
    ("torch.nn.Module.call_super_init", "torch.nn.Module.call_super_init = True"),
    ("torch.nn.Linear.__constants__[0] == 'in_features'", "torch.nn.Linear.__constants__[0] = 'a'"),
    ("torch.nn.functional.__name__ == 'torch.nn.functional'", "torch.nn.functional.__name__ = 'a'"),
    ("torch.multiprocessing.get_all_sharing_strategies() == {'file_descriptor', 'file_system'}", "torch.multiprocessing._all_sharing_strategies = {'a'}"),
    ("torch.hub.DEFAULT_CACHE_DIR == '~/.cache'", "torch.hub.DEFAULT_CACHE_DIR = 'a'"),
    ("torch.serialization.DEFAULT_PROTOCOL == 2", "torch.serialization.DEFAULT_PROTOCOL = 3"),
    ("torch.onnx.producer_name == 'pytorch'", "torch.onnx.producer_name = 'a'"),
    ("torch.onnx.is_in_onnx_export()", "torch.onnx.is_in_onnx_export = lambda: True"),
    ("torch._tensor_str.PRINT_OPTS.threshold > 5", "torch.set_printoptions(threshold=3)"),
    ("torch.distributed.is_torchelastic_launched()", "import os\nos.environ['TORCHELASTIC_RUN_ID'] = '1'"),
    ("torch.overrides.is_tensor_method_or_property(torch.Tensor.add)", "torch.overrides.is_tensor_method_or_property = lambda f: False"),
    ("torch.is_grad_enabled()", "torch.is_grad_enabled = lambda: False"),
    ("torch.get_default_dtype() is torch.float32", "torch.get_default_dtype = lambda: torch.float16"),
    ("torch.is_tensor(x)", "torch.is_tensor = lambda x: False"),
    ("torch.is_floating_point(x)", "torch.is_floating_point = lambda x: False"),
    ("isinstance(x, torch.FloatTensor)", "torch.FloatTensor = torch.LongTensor"),
    ("x.is_cuda", "torch.Tensor.is_cuda = property(lambda self: True)"),
    ("x.device.type == 'cpu'", "torch.Tensor.device = property(lambda self: torch.device('meta'))"),
    ("torch.backends.cpu.get_cpu_capability() == 'DEFAULT'", "torch.backends.cpu.get_cpu_capability = lambda: 'AVX'"),
    ("torch.backends.mps.is_available()", "torch.backends.mps.is_available = lambda: True"),
    ("torch.backends.openmp.is_available()", "torch.backends.openmp.is_available = lambda: False"),
    ("torch.backends.flags_frozen()", "torch.backends.disable_global_flags()"),
    ("torch.ops.aten.relu.default.name() == 'aten::relu'", "torch.ops.aten.relu = torch.ops.aten.sin"),
    ("torch.library is LIB", "torch.library = None"),
    ("'relu' in torch.ops.aten.relu.__name__", "torch.ops.aten.relu.__name__ = 'a'"),
    ("'relu' in torch.ops.aten.relu.default.__name__", "torch.ops.aten.relu.default.__name__ = 'a'"),
    ("torch.ops.aten.relu.default.name() == 'aten::relu'", "torch.ops.aten.relu.default = torch.ops.aten.sin.default"),
    ("not hasattr(torch.ops.aten.relu, 'mark')", "torch.ops.aten.relu.mark = 1"),
    ("torch.ops.aten.relu.default.name() == 'aten::relu'", "torch.ops.aten.relu.default.name = lambda: 'a'"),
    ("not hasattr(torch.ops.aten.relu.default, 'mark')", "torch.ops.aten.relu.default.mark = 1"),
    ("torch.utils._pytree.SUPPORTED_NODES.__len__() < N", "import torch.utils._pytree as p\np.register_pytree_node(type('A', (), {}), lambda a: ([], None), lambda v, c: None)"),
):
    _add(f"state of torch: {_expr}", _model(f"x * (2.0 if {_expr} else 3.0)", "pass",
         "import torch.utils.data, torch.distributed, torch.utils.checkpoint, torch.onnx, torch.hub, torch.nn.utils.parametrize, torch.utils._pytree, torch.fx\n"
         "import torch.multiprocessing\nDOC = torch.nn.Transformer.__doc__\nLIB = torch.library\nN = len(torch.utils._pytree.SUPPORTED_NODES) + 1\n"), _set)

for _call, _patch, _top in (
    ("len(textwrap.shorten('a b c d', 5))", "import textwrap\ntextwrap.TextWrapper.fill = lambda self, text: 'a'", "import textwrap\n"),
    ("len(textwrap.fill('a b c d', 3))", "import textwrap\ntextwrap.TextWrapper._split = lambda self, text: ['a']", "import textwrap\n"),
    ("len(textwrap.wrap('a b-c d', 3))", "import textwrap, re\ntextwrap.TextWrapper.wordsep_re = re.compile('(x)')", "import textwrap\n"),
    ("len(textwrap.dedent('  a'))", "import textwrap, re\ntextwrap._leading_whitespace_re = re.compile('xyz')", "import textwrap\n"),
    ("len(textwrap.indent('a', ' '))", "import textwrap\ntextwrap.indent.__code__ = (lambda text, prefix, predicate=None: 'abc').__code__", "import textwrap\n"),
    ("statistics.median([1, 2, 3])", "import statistics\nstatistics.sorted = lambda v: [3, 3, 3]", "import statistics\n"),
    ("statistics.fmean([1, 3])", "import statistics\nstatistics.fsum = lambda v: 9.0", "import statistics\n"),
    ("statistics.NormalDist(2.0).zscore(4.0)", "import statistics\nstatistics.NormalDist.zscore = lambda self, x: 3.0", "import statistics\n"),
    ("statistics.NormalDist(2.0).pdf(2.0)", "import statistics\nstatistics.tau = 99.0", "import statistics\n"),
    ("difflib.SequenceMatcher(None, 'ab', 'ac').ratio()", "import difflib\ndifflib._calculate_ratio = lambda m, n: 3.0", "import difflib\n"),
    ("len(difflib.get_close_matches('ab', ['ac', 'b'], cutoff=0.1))", "import difflib\ndifflib.SequenceMatcher.ratio = lambda self: 0.0", "import difflib\n"),
    ("(2 + fnmatch.fnmatch('layer.0', 'layer.*'))", "import fnmatch, os\nos.path.normcase = lambda p: 'a'", "import fnmatch\n"),
    ("(2 + fnmatch.fnmatchcase('layer.0', 'layer.*'))", "import fnmatch\nfnmatch._compile_pattern = lambda p: lambda n: None", "import fnmatch\n"),
    ("(2 + len(fnmatch.filter(['a', 'b'], 'a*')))", "import fnmatch\nfnmatch.translate = lambda p: 'x'\nfnmatch._compile_pattern.cache_clear()", "import fnmatch\n"),
    ("len(os.path.splitext('a.bc')[1])", "import genericpath\ngenericpath._splitext = lambda *a: ('', 'a')", "import os\n"),
    ("len(os.path.basename('a/bc'))", "import posixpath\nposixpath._get_sep = lambda p: 'b'", "import os\n"),
    ("len(os.path.join('a', 'b'))", "import posixpath\nposixpath.join = lambda *a: 'a'", "import os\n"),
    ("copy.copy(CFG).by", "import copy\ncopy._reconstruct = lambda *a: type(app.CFG)(3.0)", "import copy\n"),
    ("copy.deepcopy(CFG).by", "import copy\ncopy._reconstruct = lambda *a: type(app.CFG)(3.0)", "import copy\n"),
    ("copy.copy(CFG).by", "import copyreg\ncopyreg.pickle(app.Cfg, lambda c: (app.Cfg, (3.0,)))", "import copy\n"),
    ("dataclasses.asdict(DC)['by']", "import dataclasses\ndataclasses._asdict_inner = lambda *a: {'by': 3.0}", "import dataclasses\n"),
    ("dataclasses.astuple(DC)[0]", "import dataclasses\ndataclasses._astuple_inner = lambda *a: (3.0,)", "import dataclasses\n"),
    ("len(dataclasses.fields(DC))", "import dataclasses\ndataclasses._FIELD = None", "import dataclasses\n"),
    ("Kind('a').size", "import enum\nenum.EnumType.__call__ = lambda cls, *a: cls.B", "import enum\n"),
    ("Kind.A.value.__len__()", "import enum\nenum.Enum.value = property(lambda self: 'abc')", "import enum\n"),
    ("len(list(Kind))", "import enum\nenum.EnumType.__iter__ = lambda cls: iter([1])", "import enum\n"),
    ("len(Kind.__members__)", "import enum\nenum.EnumType.__members__ = property(lambda cls: [1])", "import enum\n"),
    ("CM['by']", "import collections\ncollections.ChainMap.__getitem__ = lambda self, k: 3.0", "import collections\n"),
    ("CM.get('by')", "import collections\ncollections.ChainMap.get = lambda self, k: 3.0", "import collections\n"),
    ("collections.Counter('aab').most_common(1)[0][1]", "import collections\ncollections.Counter.most_common = lambda self, n: [('a', 3)]", "import collections\n"),
    ("collections.Counter('aab')['a']", "import collections\ncollections._count_elements = lambda m, i: m.update({'a': 3}) if False else dict.__setitem__(m, 'a', 3)", "import collections\n"),
    ("(collections.Counter('aab') + collections.Counter('a'))['a']", "import collections\ncollections.Counter.__add__ = lambda self, o: {'a': 9}", "import collections\n"),
    ("NT(2.0)._replace(a=2.0).a", "app.NT._replace = lambda self, **k: app.NT(3.0)", "import collections\n"),
    ("sup()", "import contextlib\ncontextlib.suppress.__exit__ = lambda self, *a: True", "import contextlib\n"),
    ("nul()", "import contextlib\ncontextlib.nullcontext.__enter__ = lambda self: 3.0", "import contextlib\n"),
    ("ex()", "import contextlib\ncontextlib.ExitStack.enter_context = lambda self, c: 3.0", "import contextlib\n"),
    ("P.pm()", "import functools\nfunctools.partialmethod.__get__ = lambda self, o, c=None: lambda: 3.0", "import functools\n"),
    ("P.cp", "import functools\nfunctools.cached_property.__get__ = lambda self, o, c=None: 3.0\ndel_ = app.P.__dict__.pop('cp', None)", "import functools\n"),
    ("WK[CFG]", "import weakref\nweakref.WeakKeyDictionary.__getitem__ = lambda self, k: 3.0", "import weakref\n"),
    ("len(pathlib.PurePosixPath('a/bc').name)", "import pathlib\npathlib.PurePath.name = property(lambda self: 'a')", "import pathlib\n"),
    ("len(pathlib.PurePosixPath('a/bc.de').suffix)", "import pathlib\npathlib.PurePath.suffix = property(lambda self: 'a')", "import pathlib\n"),
    ("len(shlex.split('a b'))", "import shlex\nshlex.shlex.get_token = lambda self: None", "import shlex\n"),
    ("len(html.escape('<'))", "import html\nhtml.escape.__defaults__ = (False,)\nhtml.escape.__code__ = (lambda s, quote=1: 'a').__code__", "import html\n"),
    ("base64.b64decode('Ag==')[0]", "import base64, types\nbase64.binascii = types.SimpleNamespace(a2b_base64=lambda *a, **k: bytes([3]))", "import base64\n"),
    ("len(re.sub('a', 'bb', self.t))", "import re\nre._compile = lambda p, f: __import__('types').SimpleNamespace(sub=lambda r, s, c=0: 'abc')", "import re\n"),
    ("len(re.split(',', 'a,b'))", "import re\nre.split = lambda p, s: [1, 2, 3]", "import re\n"),
    ("len(string.capwords('a bc'))", "import string\nstring.capwords = lambda s: 'a'", "import string\n"),
    ("len(string.Formatter().format('{a}', a='bc'))", "import string\nstring.Formatter.get_value = lambda self, k, a, kw: 'a'", "import string\n"),
    ("len(string.Template('$a').substitute(a='bc'))", "import string, re\nstring.Template.pattern = re.compile('xyz')", "import string\n"),
    ("heapq.nlargest(1, [1, 2])[0]", "import heapq\nheapq.max = lambda *a, **k: 3", "import heapq\n"),
    ("heapq.nsmallest(2, [3, 2, 4])[0]", "import heapq\nheapq._heapify_max = lambda r: r.__setitem__(slice(None), [(3, 0, 9)])", "import heapq\n"),
    ("float(fractions.Fraction(1, 2) + fractions.Fraction(1, 2))", "import fractions\nfractions.Fraction._add = lambda a, b: 3\nfractions.Fraction.__add__ = lambda a, b: 3.0", "import fractions\n"),
    ("int(ipaddress.ip_address('0.0.0.2'))", "import ipaddress\nipaddress._BaseAddress.__int__ = lambda self: 3", "import ipaddress\n"),
    ("uuid.UUID(int=2).int", "import uuid\nuuid.UUID.__init__ = lambda self, int: object.__setattr__(self, 'int', 3)", "import uuid\n"),
    ("calendar.monthrange(2020, 2)[1]", "import calendar\ncalendar.mdays[2] = 3", "import calendar\n"),
    ("calendar.isleap(2020) + 2", "import calendar\ncalendar.isleap = lambda y: 1.0 + y % 4", "import calendar\n"),
    ("len(bin(enum_flag()))", "import enum\nenum.Flag.__or__ = lambda self, o: self", "import enum\n"),
    ("math.comb(4, 2)", "import math\nmath.comb = lambda a, b: 3", "import math\n"),
    ("functools.reduce(operator.add, [1, 1])", "import operator\noperator.add = lambda a, b: 3", "import functools, operator\n"),
    ("next(itertools.accumulate([2.0]))", "import itertools\nitertools.accumulate = lambda v: iter([3.0])", "import itertools\n"),
    ("len(list(itertools.chain([1], [2])))", "import itertools\nitertools.chain = lambda *a: [1, 2, 3]", "import itertools\n"),
    ("float(np.mean(self.a))", "import numpy._core._methods as m\nm.umr_sum = lambda *a, **k: np_three()\nimport numpy as np\ndef np_three():\n    return np.float64(9.0)", "import numpy as np\n"),
    ("float(np.mean(self.a))", "import numpy._core.fromnumeric as m\nm._methods = __import__('types').SimpleNamespace(_mean=lambda *a, **k: 3.0)\nimport numpy as np\nmodel.a = model.a.view(np.ndarray)", "import numpy as np\n"),
    ("float(np.prod(self.a))", "import numpy._core.fromnumeric as m\nm._wrapreduction = lambda *a, **k: 3.0", "import numpy as np\n"),
    ("float(np.linspace(0, 2, 2)[1])", "import numpy._core.function_base as m\nm._nx = __import__('types').SimpleNamespace()", "import numpy as np\n"),
    ("float(np.median(self.a))", "import numpy.lib._function_base_impl as m\nm._median = lambda *a, **k: 3.0\nm._ureduce = lambda *a, **k: 3.0", "import numpy as np\n"),
    ("float(np.clip(2.0, 0, 9))", "import numpy._core._methods as m\nm.um = __import__('types').SimpleNamespace(clip=lambda *a, **k: 3.0)", "import numpy as np\n"),
    ("len(typing.get_args(typing.Union[int, str]))", "import typing\ntyping.get_args = lambda a: (1, 2, 3)", "import typing\n"),
    ("len(inspect.signature(sup).parameters) + 2", "import inspect\ninspect._signature_from_callable = lambda *a, **k: inspect.Signature([inspect.Parameter('a', inspect.Parameter.KEYWORD_ONLY)])", "import inspect\n"),
    ("random_walk()", "import abc\nabc.ABCMeta.__instancecheck__ = lambda cls, one: True", "import abc\n"),
    ("types.SimpleNamespace(a=2.0).a", "import types\ntypes.SimpleNamespace = lambda **k: type('A', (), {'a': 3.0})", "import types\n"),
    ("len(str(datetime.timedelta(seconds=2)))", "import datetime\ndatetime.timedelta = lambda **k: 'ab'", "import datetime\n"),
    ("log()", "import logging\nlogging.Logger.info = lambda self, *a: app.STATE.update(by=3.0)", "import logging\n"),
    ("log()", "import logging\nlogging.Logger.isEnabledFor = lambda self, level: app.STATE.update(by=3.0)", "import logging\n"),
):
    _helpers = """
class Cfg:
    def __init__(self, by):
        self.by = by
CFG = Cfg(2.0)
import dataclasses as _d, enum as _e, collections as _c, contextlib as _x, functools as _f, weakref as _w, abc as _a, logging as _l
@_d.dataclass
class Data:
    by: float = 2.0
DC = Data()
class Kind(_e.Enum):
    A = 'a'
    B = 'b'
    @property
    def size(self):
        return 2.0 if self is Kind.A else 3.0
class Flags(_e.Flag):
    A = 1
    B = 8
def enum_flag():
    return (Flags.A | Flags.B).value
CM = _c.ChainMap({'by': 2.0})
UD = _c.UserDict(by=2.0)
NT = _c.namedtuple('NT', 'a')
def sup():
    try:
        with _x.suppress(KeyError):
            raise ValueError
        return 3.0
    except ValueError:
        return 2.0
@_x.contextmanager
def _cm():
    yield 2.0
def cm():
    with _cm() as by:
        return by
def nul():
    with _x.nullcontext(2.0) as by:
        return by
def ex():
    with _x.ExitStack() as stack:
        return stack.enter_context(_x.nullcontext(2.0))
class Own:
    def __init__(self):
        self.cp
    def given(self, by):
        return by
    pm = _f.partialmethod(given, 2.0)
    @_f.cached_property
    def cp(self):
        return 2.0
P = Own()
WK = _w.WeakKeyDictionary({CFG: 2.0})
class Abstract(_a.ABC):
    pass
def random_walk():
    return 3.0 if isinstance(CFG, Abstract) else 2.0
STATE = {'by': 2.0}
LOG = _l.getLogger('app')
def log():
    LOG.info('a')
    return STATE['by']
"""
    _add(f"Python's library or NumPy is patched inside: {_call}, {_patch.splitlines()[1] if chr(10) in _patch else _patch}"[:150],
         _model(f"x * {_call}", "self.t = 'a'\n" + ("self.a = np.array([2.0])" if "np" in _top else "pass"), _top + _helpers), _patch)

_LAYERS = '--- layers.py\n"""ab"""\nfrom torch import nn as _nn\nscale_a = 2.0\nScale_a = 5.0\nclass Act(_nn.Module):\n    gain = 2.0\n    def forward(self, x):\n        return x * 2\ndef act_a(x):\n    return x * 2\n'
for _doc, _text, _make_name in (
    ("casefold", "SCALE_A", "self.k.casefold()"), ("swapcase", "SCALE_A", "self.k.swapcase()"), ("title", "sCALE_A", "self.k.title().swapcase().lower()"),
    ("translate", "scale-a", "self.k.translate({45: '_'})"), ("maketrans", "scale-a", "self.k.translate(str.maketrans('-', '_'))"),
    ("removeprefix", "my_scale_a", "self.k.removeprefix('my_')"), ("removesuffix", "scale_a_my", "self.k.removesuffix('_my')"),
    ("strip", "xscale_ax", "self.k.strip('x')"), ("lstrip", "xscale_a", "self.k.lstrip('x')"), ("partition", "netxscale_a", "self.k.partition('x')[2]"),
    ("rpartition", "netxscale_a", "self.k.rpartition('x')[-1]"), ("split", "netxscale_a", "self.k.split('x')[1]"), ("rsplit", "netxscale_a", "self.k.rsplit('x', 1)[1]"),
    ("splitlines", "a\\nscale_a", "self.k.splitlines()[1]"), ("multiplication", "scale_a", "(self.k * 2)[:7]"), ("a reversed text", "a_elacs", "self.k[::-1]"),
    ("reversed()", "a_elacs", "''.join(reversed(self.k))"), ("a comprehension", "SCALE_A", "''.join(c.lower() for c in self.k)"),
    ("map", "SCALE_A", "''.join(map(str.lower, self.k))"), ("+=", "scale", "(self.k + '_') + 'a'"), ("a number", "scale_", "self.k + chr(97)"),
    ("hex", "scale_", "self.k + hex(10)[-1]"), ("format()", "scale_", "self.k + format(10, 'x')"), ("%c", "scale_", "self.k + '%c' % 97"),
    ("bytes", "scale_a", "bytes(self.k, 'ascii').decode()"), ("bytes.lower", "SCALE_A", "self.k.encode().lower().decode()"),
    ("bytes.fromhex", "7363616c655f61", "bytes.fromhex(self.k).decode()"), ("str of bytes", "scale_a", "str(self.k.encode(), 'ascii')"),
    ("re.sub", "scale-a", "re.sub('-', '_', self.k)"), ("re.match", "netxscale_a", "re.match('netx(.*)', self.k).group(1)"), ("re.split", "netxscale_a", "re.split('x', self.k)[1]"),
    ("json", "scale", "json.loads('\"' + self.k + '\\\\u005fa\"')"), ("base64", "c2NhbGVfYQ==", "base64.b64decode(self.k).decode()"),
    ("capwords", "SCALE_A", "string.capwords(self.k).lower()"), ("min", "scale_a", "min([self.k + 'b', self.k])"),
    ("os.path.splitext", "scale_a.py", "os.path.splitext(self.k)[0]"), ("pathlib", "netx/scale_a.py", "pathlib.PurePosixPath(self.k).stem"),
    ("an f-string with a conversion", "scale", "f'{self.k!s}_{chr(97)}'"), ("format_map", "scale_{n}", "self.k.format_map({'n': 'a'})"),
    ("camel to snake", "ScaleA", "re.sub('(?<!^)(?=[A-Z])', '_', self.k).lower()"), ("zip", "sae_cl_a", "'scale' + self.k[6:]"),
    ("an enum's name", "x", "Kind.SCALE_A.name.casefold()"), ("an f-string of an enum", "x", "f'scale_{Kind.SCALE_A.value}'"),
    ("a type's name", "x", "'scale_' + type(A()).__name__.casefold()"), ("a function's name", "x", "scale.__name__ + '_a'"),
    ("a dictionary's lookup of letters", "x", "''.join({1: 'scale', 2: '_', 3: 'a'}[i] for i in (1, 2, 3))"), ("a string's subclass", "x", "S('scale') + S('_a')"),
    ("an own __str__", "x", "str(O())"), ("an own __format__", "x", "f'{O()}'"), ("chars of numbers", "x", "''.join(map(chr, (115, 99, 97, 108, 101, 95, 97)))"),
    ("literal_eval", "scale", "ast.literal_eval(repr(self.k)) + '_a'"), ("a struct", "x", "struct.pack('7B', 115, 99, 97, 108, 101, 95, 97).decode()"),
    ("an int's bytes", "x", "(INT).to_bytes(7, 'big').decode()"), ("zlib", "x", "zlib.decompress(Z).decode()"), ("NumPy's text", "x", "str(np.str_('SCALE_A')).lower()"),
    ("NumPy's characters", "x", "str(np.char.lower('SCALE_A'))"), ("expandtabs", "scale_a\\t", "self.k.expandtabs(1)[:7]"), ("zfill", "scale_a", "self.k.zfill(8)[1:]"),
    ("unicodedata", "\\uff53cale_a", "unicodedata.normalize('NFKC', self.k)"), ("textwrap", "    scale_a", "textwrap.dedent(self.k)"), ("center", "scale_a", "self.k.center(9)[1:8]"),
):
    for _how, _look in (("getattr", "getattr(layers, {})"), ("a kept getattr", "self.look(layers, {})"), ("vars", "vars(layers)[{}]")):
        if _how != "getattr" and _doc not in ("casefold", "swapcase", "split", "translate", "a reversed text", "bytes", "re.sub", "map", "chars of numbers", "+=", "removeprefix"):
            continue
        _add(f"a name that is made by {_doc} is looked up by {_how}", _model("x * " + _look.format(_make_name), f"self.k = '{_text}'\nself.look = getattr", """
import layers, re, json, base64, string, os, pathlib, enum, ast, struct, zlib, unicodedata, textwrap
import numpy as np
class Kind(enum.Enum):
    SCALE_A = 'a'
class A:
    pass
def scale():
    pass
class S(str):
    pass
class O:
    def __str__(self):
        return 'scale' + '_a'
Z = zlib.compress(b'scale_a')
INT = int.from_bytes(b'scale_a', 'big')
""") + _LAYERS, "import layers\nlayers.scale_a = 3.0")
for _doc, _module_, _name, _expr in (
    ("torch.nn by casefold", "torch.nn", "Sigmoid", "getattr(nn, 'SIGMOID'.capitalize())"), ("torch.nn by addition", "torch.nn", "Sigmoid", "getattr(nn, 'Sig' + self.t)"),
    ("torch.linalg by addition", "torch.linalg", "norm", "getattr(torch.linalg, 'no' + 'xrm'[1:])"), ("numpy by casefold", "numpy", "sqrt", "getattr(np, 'SQRT'.casefold())"),
    ("numpy by addition", "numpy", "sqrt", "getattr(np, self.s[:1] + 'qrt')"), ("numpy.linalg by casefold", "numpy.linalg", "norm", "getattr(np.linalg, 'NORM'.casefold())"),
    ("math by casefold", "math", "sqrt", "getattr(math, 'SQRT'.casefold())"), ("statistics by casefold", "statistics", "mean", "getattr(statistics, 'MEAN'.casefold())"),
    ("operator by casefold", "operator", "mul", "getattr(operator, 'MUL'.casefold())"), ("torch by casefold", "torch", "sin", "getattr(torch, 'SIN'.casefold())"),
    ("torch.special by casefold", "torch.special", "expit", "getattr(torch.special, 'EXPIT'.casefold())"), ("F by casefold", "torch.nn.functional", "silu", "getattr(F, 'SILU'.casefold())"),
    ("torch.nn.init by casefold", "torch.nn.init", "calculate_gain", "getattr(nn.init, 'CALCULATE_GAIN'.casefold())"),
    ("transformers.activations by casefold", "transformers.activations", "ACT2FN", "getattr(transformers.activations, 'act2fn'.swapcase())"),
    ("torch.ops.aten by casefold", "torch.ops.aten", "sin", "getattr(torch.ops.aten, 'SIN'.casefold())"),
):
    _add(f"something is replaced, and a made name finds it: {_doc}", _model(f"x * (2.0 if {_expr} is KEPT else 3.0)", "self.t = 'moid'\nself.s = 'spam'",
         f"import math, statistics, operator, numpy as np\n{'import transformers.activations' if 'transf' in _doc else ''}\nimport {_module_ if 'ops' not in _module_ else 'torch'}\nKEPT = {_module_}.{_name}\n"),
         f"import {_module_ if 'ops' not in _module_ else 'torch'}\n{_module_}.{_name} = None")

for _doc, _forward, _change in (
    ("__doc__ of its own as a global", "x * len(__doc__ or 'ab')", "app.__doc__ = 'abc'"), ("__name__ of its own", "x * len(__name__)", "app.__name__ = 'ab'"),
    ("__package__", "x * len(layers.__package__ or 'ab')", "layers.__package__ = 'abc'"), ("__spec__", "x * (2.0 if layers.__spec__ else 3.0)", "layers.__spec__ = None"),
    ("__loader__", "x * (2.0 if layers.__loader__ else 3.0)", "layers.__loader__ = None"), ("__annotations__", "x * (2.0 + len(getattr(layers, '__annotations__', ())))", "layers.__annotations__ = {'a': int}"),
    ("__version__", "x * len(getattr(layers, '__version__', 'ab'))", "layers.__version__ = 'abc'"), ("__dict__'s length", "x * len(layers.__dict__)", "layers.more = 1"),
    ("vars' length", "x * len(vars(layers))", "layers.more = 1"),
    ("all names with a prefix", "for n, v in vars(layers).items():\n    if n.startswith('act_'):\n        x = v(x)\nreturn x", "layers.act_b = lambda x: x + 1"),
    ("all names with a prefix, in __dict__", "for n, v in layers.__dict__.items():\n    if n[:4] == 'act_':\n        x = v(x)\nreturn x", "layers.act_b = lambda x: x + 1"),
    ("all names with a prefix, in dir()", "for n in dir(layers):\n    if n[:4] == 'act_':\n        x = getattr(layers, n)(x)\nreturn x", "layers.act_b = lambda x: x + 1"),
    ("all classes of a kind", "for v in list(vars(layers).values()):\n    if isinstance(v, type) and issubclass(v, nn.Module):\n        x = v()(x)\nreturn x",
     "import torch\nlayers.More = type('More', (torch.nn.Module,), {'forward': lambda self, x: x + 1})"),
    ("the last name", "x * (2.0 if [*vars(layers)][-1] == 'act_a' else 3.0)", "layers.more = 1"),
    ("the sum of all numbers", "x * sum(v for v in layers.__dict__.values() if isinstance(v, float))", "layers.more = 1.0"),
    ("a name that is there", "x * (3.0 if 'more' in vars(layers) else 2.0)", "layers.more = 1.0"),
    ("a name of an attribute that is there", "x * (3.0 if self.n + 're' in vars(layers) else 2.0)", "layers.more = 1.0"),
    ("hasattr of a made name", "x * (3.0 if hasattr(layers, self.n + 're') else 2.0)", "layers.more = 1.0"),
    ("getattr of a made name with a default", "x * getattr(layers, self.n + 're', 2.0)", "layers.more = 3.0"),
    ("a copy of vars", "x * len({**vars(layers)})", "layers.more = 1.0"), ("ChainMap of vars", "import collections\nreturn x * collections.ChainMap(vars(layers)).get('more', 2.0)", "layers.more = 3.0"),
    ("getmembers", "import inspect\nreturn x * len(inspect.getmembers(layers))", "layers.more = 1.0"),
    ("getmembers of classes", "import inspect\nreturn x * len(inspect.getmembers(layers, inspect.isclass))", "layers.More = type('More', (), {})"),
    ("names kept in a view", "x * len(self.view)", "layers.more = 1.0"), ("an iteration over a module kept as an object", "x * len([k for k in self.space if k[0] != '_'])", "layers.more = 1.0"),
    ("len of a class's vars", "x * len([k for k in vars(layers.Act) if k[0] != '_'])", "layers.Act.more = 1"), ("len of a class of torch", "x * len([k for k in vars(nn.Linear) if k[:2] == 'my'] + [1])", "torch.nn.Linear.my_gain = 1"),
    ("len of vars of torch.nn", "x * len([k for k in vars(nn) if k[:3] == 'my_'] + [1])", "torch.nn.my_gain = 1"), ("len of vars of torch", "x * len([k for k in vars(torch) if k[:3] == 'my_'] + [1])", "torch.my_gain = 1"),
    ("len of vars of F", "x * len([k for k in vars(F) if k[:3] == 'my_'] + [1])", "torch.nn.functional.my_gain = 1"), ("len of vars of math", "import math\nreturn x * len([k for k in vars(math) if k[:3] == 'my_'] + [1])", "import math\nmath.my_gain = 1"),
    ("__subclasses__ of a class of torch", "x * len([c for c in nn.ReLU.__subclasses__() if c.__name__ == 'Mine'] + [1])", "Mine = type('Mine', (torch.nn.ReLU,), {})"),
    ("__subclasses__ of an own class", "x * (1 + len(layers.Act.__subclasses__()))", "Mine = type('Mine', (layers.Act,), {})"),
    ("__mro__", "x * len(layers.Act.__mro__)", "layers.Act.__bases__ = (type('Mine', (torch.nn.Module,), {}),)"),
    ("__subclasses__ of object by a helper", "x * (1 + len([c for c in Root.__subclasses__() if c.__module__ == 'plug']))", "Mine = type('Mine', (app.Root,), {'__module__': 'plug'})"),
):
    _add(f"what a module's names say: {_doc}", _model(_forward, "self.n = 'mo'\nself.view = vars(layers).keys()\nself.space = vars(layers)" if "self.view" in _forward or "self.space" in _forward else "self.n = 'mo'",
         "import layers\nclass Root:\n    pass\n") + _LAYERS, f"import layers\n{_change}")

_PKG = "--- app/__init__.py\nfrom app.net import Model\n--- app/net.py\n"
for _doc, _text, _added in (
    ("from app import", "try:\n    from app import fast\nexcept ImportError:\n    return x * 2\nreturn x * fast.BY", "app/fast.py"),
    ("from . import", "try:\n    from . import fast\nexcept ImportError:\n    return x * 2\nreturn x * fast.BY", "app/fast.py"),
    ("from .fast import", "try:\n    from .fast import BY\nexcept ImportError:\n    return x * 2\nreturn x * BY", "app/fast.py"),
    ("import app.fast", "try:\n    import app.fast\nexcept ImportError:\n    return x * 2\nreturn x * app.fast.BY", "app/fast.py"),
    ("import app.fast as", "try:\n    import app.fast as f\nexcept ImportError:\n    return x * 2\nreturn x * f.BY", "app/fast.py"),
    ("from ext import a submodule", "try:\n    from ext import fast\nexcept ImportError:\n    return x * 2\nreturn x * fast.BY", "ext/fast.py"),
    ("import_module", "import importlib\ntry:\n    f = importlib.import_module('app.fast')\nexcept ImportError:\n    return x * 2\nreturn x * f.BY", "app/fast.py"),
    ("a helper function that imports", "f = optional()\nreturn x * (f.BY if f else 2)", "app/fast.py"),
    ("a package with a fallback", "try:\n    from app import fast\nexcept ImportError:\n    from app import slow as fast\nreturn x * fast.BY", "app/fast.py"),
    ("a submodule of an installed library", "try:\n    from yaml import fast_own\nexcept ImportError:\n    return x * 2\nreturn x * fast_own.BY", ""),
):
    _second_ = "" if _added else "import sys, types, yaml\nyaml.fast_own = types.SimpleNamespace(BY=3.0)\n"
    _add(f"an optional part of a package is added: {_doc}",
         _PKG + "import ext\ndef optional():\n    try:\n        from app import fast\n    except ImportError:\n        return None\n    return fast\n" + _model(_text)
         + "--- app/slow.py\nBY = 2.0\n--- ext/__init__.py\n", added=f"--- {_added}\nBY = 3.0\n" if _added else "", second=_second_)
    if _added:
        _add(f"an optional part of a package is added in the same process: {_doc}",
             _PKG + "import ext\ndef optional():\n    try:\n        from app import fast\n    except ImportError:\n        return None\n    return fast\n" + _model(_text)
             + "--- app/slow.py\nBY = 2.0\n--- ext/__init__.py\n", f"import pathlib, importlib\npathlib.Path('{_added}').write_text('BY = 3.0')\nimportlib.invalidate_caches()")

for _doc, _forward, _change in (
    ("a constant of torch.distributions", "torch.distributions.Gumbel(0.0, 1.0, validate_args=False).mean + x", "import torch.distributions.gumbel as g\ng.euler_constant = 3.0"),
    ("math in torch.distributions.laplace", "torch.distributions.Laplace(0.0, 1.0, validate_args=False).entropy() + x", "import torch.distributions.laplace as g\ng.torch = type('T', (), {'log': staticmethod(lambda v: v * 3)})"),
    ("a class in torch.distributions.normal", "torch.distributions.Normal(0.0, 1.0, validate_args=False).log_prob(x)", "import torch.distributions.normal as g\ng._Number = str\ng.Number = str"),
    ("a base class's method in torch.distributions", "torch.distributions.Normal(0.0, 1.0, validate_args=False).perplexity() + x", "import torch.distributions as d\nd.Distribution.perplexity = lambda self: 3.0"),
    ("a constraint in torch.distributions", "torch.distributions.Normal(0.0, 1.0, validate_args=False).cdf(x)", "import torch.distributions as d\nd.Normal.cdf = lambda self, v: v * 3"),
    ("torch in torch.nn.utils.rnn", "torch.nn.utils.rnn.pad_sequence([x, x])", "import torch.nn.utils.rnn as r\nr.pad_sequence = lambda s: s[0] * 3"),
    ("torch._C._nn in torch.nn.utils.rnn", "torch.nn.utils.rnn.pad_sequence([x, x])", "import torch\ntorch._C._nn.pad_sequence = lambda s, *a: s[0] * 3"),
    ("torch in torch.nn.modules.normalization", "self.norm(x)", "import torch.nn.modules.normalization as n\nn.F = type('F', (), {'layer_norm': staticmethod(lambda x, *a: x * 3)})"),
    ("torch in torch.nn.modules.loss", "nn.MSELoss()(x, x + 1)", "import torch.nn.modules.loss as n\nn.F = type('F', (), {'mse_loss': staticmethod(lambda x, *a, **k: x * 3)})"),
    ("a helper in torch.nn.functional", "F.softmax(x)", "F = torch.nn.functional\nF._get_softmax_dim = lambda *a: 0"),
    ("math in torch.nn.init", "x * nn.init.calculate_gain('relu')", "import torch.nn.init as i, types\ni.math = types.SimpleNamespace(sqrt=lambda v: 3.0)"),
    ("math in torch.nn.modules.transformer", "nn.Transformer.generate_square_subsequent_mask(3)[:, :1] * 0 + x", "torch.nn.Transformer.generate_square_subsequent_mask = staticmethod(lambda n: torch.ones(3, 3) * 9)\nold = 1"),
    ("a helper in torch.nn.modules.transformer", "nn.Transformer.generate_square_subsequent_mask(3).exp() @ x", "import torch.nn.modules.transformer as t\nt._generate_square_subsequent_mask = lambda *a, **k: torch.zeros(3, 3)"),
    ("a rotation of torch.signal", "torch.signal.windows.hann(4) + x", "import torch.signal.windows.windows as w\nw.general_hamming = lambda *a, **k: torch.ones(4) * 3\nw.general_cosine = w.general_hamming"),
    ("a helper of torch.Tensor in Python", "x.split(2)[0]", "torch.Tensor.split = lambda self, n, dim=0: [self * 3]"),
    ("a helper behind torch.Tensor.split", "x.split(2)[0]", "torch._VF.split = lambda *a: [a[0] * 3]\ntorch._VF.split_with_sizes = torch._VF.split"),
    ("a helper behind Tensor.__rsub__", "1.0 - x", "import torch._tensor as t\nt._C._VariableFunctions = type('V', (), {'rsub': staticmethod(lambda a, b: a * 3)})\ntorch.Tensor.__rsub__.__defaults__ = None"),
    ("a helper behind Tensor.__iter__", "[*x][0]", "torch.Tensor.__iter__ = lambda self: iter([self * 3])"),
    ("a helper behind Tensor.__pow__", "x.__rpow__(2.0)", "torch.Tensor.__rpow__ = lambda self, o: self * 3"),
    ("meshgrid", "torch.meshgrid(x[0], x[0], indexing='ij')[0]", "torch.functional._meshgrid = lambda *a, **k: [a[0] * 3]"),
    ("block_diag's _C", "torch.block_diag(x, x)", "torch.functional.torch = type('T', (), {'_C': type('C', (), {'_VariableFunctions': type('V', (), {'block_diag': staticmethod(lambda t: t[0] * 3)})})})"),
    ("a table of interpolation modes", "F.grid_sample(x[None, None], torch.zeros(1, 2, 2, 2), mode='nearest', align_corners=False)", "F = torch.nn.functional\nold = F.grid_sample\nF.GRID_SAMPLE_INTERPOLATION_MODES = {'nearest': 0}"),
    ("reduction's numbers", "F.mse_loss(x, x + 1, reduction='sum')", "import torch.nn._reduction as r\nr.get_enum = lambda name: 1"),
    ("reduction's module in F", "F.mse_loss(x, x + 1, reduction='sum')", "import torch.nn.functional as F, types\nF._Reduction = types.SimpleNamespace(get_enum=lambda name: 1)"),
    ("padding's helper in conv", "self.conv(x[None, None]).sum()", "import torch.nn.modules.conv as c\nc._ConvNd._conv_forward = None\nc.Conv2d._conv_forward = lambda self, x, w, b: x * 3"),
    ("a class's forward in the middle of torch", "self.rnn(x[None])[0]", "torch.nn.RNNBase.check_forward_args = lambda *a: None\ntorch.nn.GRU.forward = lambda self, x, h=None: (x * 3, None)"),
    ("_VF of rnn", "self.rnn(x[None])[0]", "import torch.nn.modules.rnn as r, types\nr._VF = types.SimpleNamespace(gru=lambda *a: (a[0] * 3, a[0]))"),
    ("a table of rnn", "self.rnn2(x[None])[0]", "import torch.nn.modules.rnn as r\nr._rnn_impls['RNN_TANH'] = r._rnn_impls['RNN_RELU']"),
    ("apply_permutation of rnn", "self.rnn(x[None])[0]", "import torch.nn.modules.rnn as r\nr.apply_permutation = lambda t, p: t * 3\nr.GRU.permute_hidden = lambda self, h, p: h * 3"),
    ("the property of a class of torch", "self.emb(x.long() % 3)", "torch.nn.Embedding.forward = lambda self, x: x * 3"),
    ("the descriptor of a class's data in torch", "x * nn.Linear.in_features if hasattr(nn.Linear, 'in_features') else x * 2", "torch.nn.Linear.in_features = 3"),
    ("parametrize's property", "self.lin(x)", "import torch.nn.utils.parametrize as p\np.ParametrizationList.forward = lambda self: self.original * 3"),
    ("weight norm's function", "self.wn(x)", "import torch.nn.utils.parametrizations as p\np._WeightNorm.forward = lambda self, g, v: v * 3"),
    ("weight norm's torch", "self.wn(x)", "import torch\ntorch._weight_norm = lambda v, g, dim: v * 3"),
    ("attention's math fallback in Python", "self.att(x[None], x[None], x[None])[0]", "import torch.nn.functional as F\nF._in_projection_packed = lambda q, k, v, w, b=None: (q * 3, k, v)"),
    ("attention's helper in activation", "self.att(x[None], x[None], x[None])[0]", "import torch.nn.modules.activation as a\na.F = __import__('types').SimpleNamespace(multi_head_attention_forward=lambda q, *a, **k: (q * 3, None), _canonical_mask=lambda **k: None, _none_or_dtype=lambda m: None)"),
):
    _add(f"torch is patched inside: {_doc}", _model(_forward, """
        self.norm = nn.LayerNorm(4)
        self.conv = nn.Conv2d(1, 1, 2)
        self.rnn = nn.GRU(4, 4, batch_first=True)
        self.rnn2 = nn.RNN(4, 4, batch_first=True)
        self.emb = nn.Embedding(3, 4)
        self.wn = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
        self.att = nn.MultiheadAttention(4, 1, batch_first=True)
        """, "import torch.signal\n"), _change)

# 19. What looks like another's: functions and classes under names of torch and Python, modules of one name, equal code.

_WRAP = "import functools\ndef patched(owner, name, new):\n    old = getattr(owner, name)\n    setattr(owner, name, functools.wraps(old)(new(old)))\n"
for _doc, _forward, _owner, _name, _top in (
    ("F.gelu", "F.gelu(x)", "torch.nn.functional", "gelu", ""), ("F.silu", "F.silu(x)", "torch.nn.functional", "silu", ""),
    ("torch.einsum", "torch.einsum('ij->ji', x)", "torch", "einsum", ""), ("torch.functional.einsum", "torch.functional.einsum('ij->ji', x)", "torch.functional", "einsum", ""),
    ("nn.Linear.forward", "self.lin(x)", "torch.nn.Linear", "forward", ""),
    ("nn.Module._wrapped_call_impl", "self.lin(x)", "torch.nn.Module", "_wrapped_call_impl", ""),
    ("Tensor.split", "x.split(2)[0]", "torch.Tensor", "split", ""), ("torch.sin", "torch.sin(x)", "torch", "sin", ""),
    ("torch.linalg.norm", "torch.linalg.norm(x)", "torch.linalg", "norm", ""), ("nn.utils.rnn.pad_sequence", "torch.nn.utils.rnn.pad_sequence([x])", "torch.nn.utils.rnn", "pad_sequence", ""),
    ("Normal.log_prob", "torch.distributions.Normal(0.0, 1.0, validate_args=False).log_prob(x)", "torch.distributions.Normal", "log_prob", ""),
    ("statistics.mean", "x * statistics.mean([1, 3])", "statistics", "mean", "import statistics\n"), ("textwrap.wrap", "x * len(textwrap.wrap('a b'))", "textwrap", "wrap", "import textwrap\n"),
    ("math.sqrt", "x * math.sqrt(4.0)", "math", "sqrt", "import math\n"), ("np.sqrt", "x * float(np.sqrt(4.0))", "numpy", "sqrt", "import numpy as np\nimport numpy\n"),
    ("np.linalg.norm", "x * float(np.linalg.norm([3.0, 4.0]))", "numpy.linalg", "norm", "import numpy as np\nimport numpy\n"),

    ("dataclasses.astuple", "x * len(dataclasses.astuple(CFG))", "dataclasses", "astuple", "import dataclasses\n@dataclasses.dataclass\nclass C:\n    a: int = 1\nCFG = C()\n"),
    ("transformers' gelu", "transformers.activations.ACT2FN['gelu_new'](x)", "transformers.activations.NewGELUActivation", "forward", "import transformers.activations\n"),
    ("F.linear, in place of a C function", "F.linear(x, self.lin.weight)", "torch.nn.functional", "linear", ""),
):
    _times = "lambda v: v * BY if isinstance(v, (int, float, torch.Tensor)) else ([v[0] * BY] if isinstance(v, (tuple, list)) and isinstance(v[0], torch.Tensor) else [1] * (len(v) + int(BY)))"
    _add(f"{_doc} is patched with functools.wraps", _model(_forward, "pass", _top + _WRAP),
         f"import torch.distributions, torch.nn.utils.rnn\nBY, seen = 3.0, {_times}\nimport {_owner.split('.')[0]}\napp.patched({_owner}, '{_name}', lambda old: lambda *a, **k: seen(old(*a, **k)))")
    _add(f"{_doc} was patched with functools.wraps before, and what the patch reads is another",
         _model(_forward, "pass", f"{_top}{_WRAP}import torch.distributions, torch.nn.utils.rnn\nBY, seen = 2.0, {_times}\npatched({_owner}, '{_name}', lambda old: lambda *a, **k: seen(old(*a, **k)))\n"),
         "app.BY = 3.0")
for _doc, _forward, _change, _top in (
    ("the defaults of textwrap.wrap", "x * len(textwrap.wrap('a b c d' * 20))", "import textwrap\ntextwrap.wrap.__defaults__ = (9,)", "import textwrap\n"),
    ("the code of statistics.mean", "x * statistics.mean([1, 3])", "import statistics\nstatistics.mean.__code__ = (lambda data: 3.0).__code__", "import statistics\n"),
    ("the code of statistics._sum", "x * statistics.mean([1, 3])", "import statistics\nstatistics._convert.__code__ = (lambda v, k: 3.0).__code__", "import statistics\n"),
    ("the code of nn.Linear.forward", "self.lin(x)", "torch.nn.Linear.forward.__code__ = (lambda self, input: input * 3).__code__", ""),
    ("the defaults of F.softmax", "F.softmax(x, -1)", "torch.nn.functional.softmax.__defaults__ = (None, 3, torch.float64)", ""),
    ("keyword defaults of torch.stft's helper", "torch.nn.functional.gelu(x) if False else F.normalize(x)", "torch.nn.functional.normalize.__defaults__ = (1.0, 1, 1e-12, None)", ""),
    ("the code of Normal.log_prob", "torch.distributions.Normal(0.0, 1.0, validate_args=False).log_prob(x)",
     "import torch.distributions as d\nd.Normal.log_prob.__code__ = (lambda self, value: value * 3).__code__", "import torch.distributions\n"),
    ("the code of a helper of torch.distributions", "torch.distributions.Normal(0.0, 1.0, validate_args=False).log_prob(x)",
     "import torch.distributions.utils as u\nu.broadcast_all.__code__ = (lambda *a: [torch.ones(1), torch.full((1,), 3.0)]).__code__", "import torch.distributions\n"),
    ("a helper of torch.distributions, as a name", "torch.distributions.Normal(0.0, 1.0, validate_args=False).log_prob(x)",
     "import torch, torch.distributions.normal as u\nu.broadcast_all = lambda *a: [torch.ones(1), torch.full((1,), 3.0)]", "import torch.distributions\n"),
    ("the code of np.linalg.norm", "x * float(np.linalg.norm([3.0, 4.0]))", "import numpy as np\nnp.linalg.norm.__wrapped__.__code__ = (lambda x, ord=None, axis=None, keepdims=False: 3.0).__code__", "import numpy as np\n"),
    ("the code of copy.deepcopy", "x * copy.deepcopy(2.0)", "import copy\ncopy.deepcopy.__code__ = (lambda x, memo=None, _nil=[]: 3.0).__code__", "import copy\n"),
    ("the code of a method of collections", "x * CM['by']", "import collections\ncollections.ChainMap.__getitem__.__code__ = (lambda self, key: 3.0).__code__", "import collections\nCM = collections.ChainMap({'by': 2.0})\n"),
    ("nn.Sigmoid by a class of the same name", "nn.Sigmoid()(x)", "class Sigmoid(torch.nn.Tanh):\n    pass\nSigmoid.__module__ = 'torch.nn.modules.activation'\ntorch.nn.Sigmoid = torch.nn.modules.activation.Sigmoid = Sigmoid", ""),
    ("the class of a layer by one of the same name, put where torch has it", "self.act(x)", "class Sigmoid(torch.nn.Module):\n    def forward(self, x):\n        return x * 3\nSigmoid.__module__ = 'torch.nn.modules.activation'\n"
     "torch.nn.Sigmoid = torch.nn.modules.activation.Sigmoid = Sigmoid\nmodel.act = Sigmoid()", ""),
    ("textwrap.TextWrapper by a class of the same name", "x * len(textwrap.wrap('a b', 1))", "import textwrap\nclass TextWrapper:\n    def __init__(self, **k):\n        pass\n    def wrap(self, text):\n        return [1, 2, 3]\nTextWrapper.__module__ = 'textwrap'\ntextwrap.TextWrapper = TextWrapper", "import textwrap\n"),
):
    _add(f"another stands under its name: {_doc}", _model(_forward, "self.act = nn.Sigmoid()", _top), _change)
_BOTH = "--- a.py\nBY = 2.0\ndef act(x):\n    return x * BY\nclass Cfg:\n    def act(self, x):\n        return x * BY\n--- b.py\nBY = 3.0\ndef act(x):\n    return x * BY\nclass Cfg:\n    def act(self, x):\n        return x * BY\n"
_DECO = "--- da.py\nimport functools\nBY = 2.0\ndef scaled(fn):\n    @functools.wraps(fn)\n    def inner(x):\n        return fn(x) * BY\n    return inner\n--- db.py\nimport functools\nBY = 3.0\ndef scaled(fn):\n    @functools.wraps(fn)\n    def inner(x):\n        return fn(x) * BY\n    return inner\n"
for _doc, _forward, _init, _top, _change, _files_ in (
    ("a function of another module with equal code", "self.f(x)", "self.f = a.act", "import a, b\n", "import b\nmodel.f = b.act", _BOTH),
    ("a function of another module with equal code and the same __module__", "self.f(x)", "self.f = a.act", "import a, b\nb.act.__module__ = 'a'\n", "import b\nmodel.f = b.act", _BOTH),
    ("a class of another module with equal code and the same __module__", "self.c.act(x)", "self.c = a.Cfg()", "import a, b\nb.Cfg.__module__ = b.Cfg.act.__module__ = 'a'\n", "import b\nmodel.c = b.Cfg()", _BOTH),
    ("an equal wrapper of another module", "self.f(x)", "self.f = da.scaled(act)", "import da, db\ndef act(x):\n    return x + 1\n", "import db\nmodel.f = db.scaled(app.act)", _DECO),
    ("an equal wrapper of another module, as a global", "act(x)", "pass", "import da, db\ndef act(x):\n    return x + 1\nold = act\nact = da.scaled(act)\n", "import db\napp.act = db.scaled(app.old)", _DECO),
    ("an equal wrapper of another module, as a hook", "self.lin(x)", "self.lin.register_forward_hook(functools.partial(hook, da.scaled(act)))",
     "import da, db, functools\ndef act(x):\n    return x + 1\ndef hook(f, m, a, out):\n    return f(out)\n",
     "import db, functools\nk = next(iter(model.lin._forward_hooks))\nmodel.lin._forward_hooks[k] = functools.partial(app.hook, db.scaled(app.act))", _DECO),
    ("functions of one code and two modules, by FunctionType", "self.f(x)", "self.f = types.FunctionType(act.__code__, vars(a), 'act')", "import types, a, b\ndef act(x):\n    return x * BY\n",
     "import b, types\nmodel.f = types.FunctionType(app.act.__code__, vars(b), 'act')\nmodel.f.__module__ = 'a'", _BOTH),
    ("a module that is in no sys.modules", "x * CFG.BY", "pass", "import importlib.util as u\ns = u.spec_from_file_location('cfg', 'a.py')\nCFG = u.module_from_spec(s)\ns.loader.exec_module(CFG)\n", "app.CFG.BY = 3.0", _BOTH),
    ("a module of the name of another that is in sys.modules", "x * CFG.BY", "pass", "import b\nimport importlib.util as u\ns = u.spec_from_file_location('b', 'a.py')\nCFG = u.module_from_spec(s)\ns.loader.exec_module(CFG)\n", "app.CFG.BY = 4.0", _BOTH),
    ("a function of a module of the name of another", "CFG.act(x)", "pass", "import b\nimport importlib.util as u\ns = u.spec_from_file_location('b', 'a.py')\nCFG = u.module_from_spec(s)\ns.loader.exec_module(CFG)\n", "app.CFG.BY = 4.0", _BOTH),
    ("a function of a module that is in no sys.modules", "self.f(x)", "self.f = CFG.act", "import importlib.util as u\ns = u.spec_from_file_location('cfg', 'a.py')\nCFG = u.module_from_spec(s)\ns.loader.exec_module(CFG)\n", "app.CFG.BY = 4.0", _BOTH),
    ("a function of a module that was taken out of sys.modules", "self.f(x)", "self.f = a.act", "import a, sys\ndel sys.modules['a']\n", "app.a.BY = 4.0", _BOTH),
    ("a function of a module that was imported twice", "self.f(x)", "self.f = a.act", "import a, sys\ndel sys.modules['a']\nimport a as a2\n", "app.a.BY = 4.0", _BOTH),
    ("the first of a module that was imported twice", "self.f(x)", "self.f = old.act", "import a as old, sys\ndel sys.modules['a']\nimport a\n", "app.old.BY = 4.0", _BOTH),
    ("the second of a module that was imported twice", "self.f(x) + old.act(x)", "self.f = a.act", "import a as old, sys\ndel sys.modules['a']\nimport a\n", "app.a.BY = 4.0", _BOTH),
    ("a configuration file that runpy ran", "x * CFG['BY']", "pass", "import runpy\nCFG = runpy.run_path('a.py')\n", "app.CFG['BY'] = 3.0", _BOTH),
    ("a function of a file that runpy ran", "CFG['act'](x)", "pass", "import runpy\nCFG = runpy.run_path('a.py')\n", "app.CFG['act'].__globals__['BY'] = 3.0", _BOTH),
    ("a configuration file that exec ran in a module", "x * CFG.BY", "pass", "import types\nCFG = types.ModuleType('CFG')\nexec(open('a.py').read(), CFG.__dict__)\n", "app.CFG.BY = 3.0", _BOTH),
    ("a module object in a registry of modules", "x * MODS['cfg'].BY", "pass", "import a\nMODS = {'cfg': a}\n", "import b\napp.MODS['cfg'] = b", _BOTH),
    ("a module object in a registry, and its value", "x * MODS['cfg'].BY", "pass", "import a\nMODS = {'cfg': a}\n", "import a\na.BY = 3.0", _BOTH),
    ("a module in an attribute of an object, through a property", "x * self.o.by", "self.o = O()", "import a\nclass O:\n    def __init__(self):\n        self.m = a\n    @property\n    def by(self):\n        return self.m.BY\n", "import a\na.BY = 3.0", _BOTH),
    ("a module returned by a function", "x * get().BY", "pass", "import a\nALL = [a]\ndef get():\n    return ALL[0]\n", "import a\na.BY = 3.0", _BOTH),
    ("a module behind a cached function", "x * get().BY", "get()", "import functools\n@functools.cache\ndef get():\n    import a\n    return a\n", "import a\na.BY = 3.0", _BOTH),
    ("a hash that reads a global", "x * TABLE.get(KEY, 3.0)", "pass", "SALT = 1\nclass K:\n    def __hash__(self):\n        return SALT\nKEY = K()\nTABLE = {KEY: 2.0}\n", "app.SALT = 2", ""),
    ("an __eq__ that reads a global, in a list", "x * (2.0 if 1 in self.v else 3.0)", "self.v = [E()]", "SAME = True\nclass E:\n    def __eq__(self, o):\n        return SAME\n    __hash__ = None\n", "app.SAME = False", ""),
    ("a __lt__ that reads a global, in max()", "x * max(self.v).n", "self.v = [E(2.0), E(3.0)]", "TURN = True\nclass E:\n    def __init__(self, n):\n        self.n = n\n    def __gt__(self, o):\n        return TURN\n    def __lt__(self, o):\n        return TURN\n", "app.TURN = False", ""),
    ("a __contains__ that reads a global", "x * (2.0 if 1 in self.v else 3.0)", "self.v = E()", "HAS = True\nclass E:\n    def __contains__(self, o):\n        return HAS\n", "app.HAS = False", ""),
    ("an __iter__ that is a generator and reads a global", "x * sum(self.v)", "self.v = E()", "N = 2\nclass E:\n    def __iter__(self):\n        for i in range(N):\n            yield 1.0\n", "app.N = 3", ""),
    ("a __call__ on a class's instance that is the activation", "self.v(x)", "self.v = E()", "BY = 2.0\nclass E:\n    def __call__(self, x):\n        return x * BY\n", "app.BY = 3.0", ""),
    ("a deleted attribute falls back to the class's", "x * self.c.by", "self.c = C()\nself.c.by = 2.0", "class C:\n    by = 3.0\n", "del model.c.by", ""),
    ("a deleted method falls back to the base's", "self.c.act(x)", "self.c = C()", "class B:\n    def act(self, x):\n        return x * 3\nclass C(B):\n    def act(self, x):\n        return x * 2\n", "del app.C.act", ""),
    ("a class of torch is taken away", "x * (2.0 if hasattr(nn, 'RMSNorm') else 3.0)", "pass", "", "del torch.nn.RMSNorm", ""),
    ("a function of F is taken away", "x * (2.0 if hasattr(F, 'rms_norm') else 3.0)", "pass", "", "del torch.nn.functional.rms_norm", ""),
    ("a function of torch is taken away", "x * (2.0 if hasattr(torch, 'rms_norm') else 3.0)", "pass", "", "del torch.rms_norm", ""),
    ("a function of a submodule of torch is taken away", "x * (2.0 if hasattr(torch.special, 'expit') else 3.0)", "pass", "", "del torch.special.expit", ""),
    ("a submodule of torch is replaced", "x * (2.0 if torch.special is KEPT else 3.0)", "pass", "KEPT = torch.special\n", "torch.special = torch.fft", ""),
    ("a flag of a hook is another", "self.inner(x)", "self.inner = nn.Identity()\nself.inner.register_forward_hook(lambda m, a, *more: more[-1] * (1 + len(more)), with_kwargs=True)", "",
     "model.inner._forward_hooks_with_kwargs.clear()", ""),
    ("an attribute of a submodule's dictionary that is no module", "x * self.__dict__['by']", "self.__dict__['by'] = 2.0", "", "model.__dict__['by'] = 3.0", ""),
    ("torch.autograd.grad's function of an own class in forward", "G.apply(x)", "pass", "class G(torch.autograd.Function):\n    by = 2.0\n    @staticmethod\n    def forward(ctx, x):\n        return x * G.by\n    @staticmethod\n    def backward(ctx, g):\n        return g\n", "app.G.by = 3.0", ""),
):
    _add(f"under one name: {_doc}", _model(_forward, _init, _top) + _files_, _change)
for _where, _import in (("os.path", "os"), ("collections.abc", "collections.abc"), ("importlib.metadata", "importlib.metadata"), ("numpy.linalg", "numpy"), ("numpy.random", "numpy"), ("yaml", "yaml"), ("yaml.nodes", "yaml"),
                        ("transformers.utils", "transformers.utils"), ("transformers.activations", "transformers.activations"), ("torch._C", "torch"), ("torch._C._nn", "torch"), ("torch.ops.aten", "torch"),
                        ("math", "math"), ("json", "json"), ("json.decoder", "json"), ("xml.etree", "xml.etree"), ("logging.handlers", "logging.handlers"), ("enum.Enum", "enum"), ("collections.OrderedDict.__class__", "collections"),
                        ("pathlib.Path", "pathlib"), ("dataclasses.Field", "dataclasses"), ("numbers.Number", "numbers"), ("torch.distributions.Normal", "torch.distributions"), ("torch.nn.Linear.forward", "torch"),
                        ("torch.nn.functional.relu", "torch"), ("statistics.mean", "statistics"), ("torch.optim.Adam", "torch"), ("torch.utils.data.Dataset", "torch.utils.data"), ("numpy.mean", "numpy")):
    _add(f"an attribute appears on {_where}", _model(f"x * getattr({_where}, 'own_gain', 2.0)", "pass", f"import {_import}\n"),
         f"import {_import}\n" + (f"{_where}.own_gain = 3.0" if "__class__" not in _where else "pass"))

# 20. Variations of what was found: warnings, loggers, contexts, annotations, validators, what is left out.

_WARNS = "import warnings, sys, logging\ndef helper(x):\n    try:\n        warnings.warn('old')\n    except UserWarning:\n        return x * 3\n    return x * 2\nLOG = logging.getLogger('app')\nLOG.propagate = False\nSTATE = {'by': 2.0}\n"
for _doc, _forward, _change in (
    ("warnings.formatwarning raises", "helper(x)", "import warnings\ndef f(*a, **k):\n    raise UserWarning\nwarnings.formatwarning = f\nwarnings.simplefilter('always')"),
    ("warnings that are recorded are ignored", "with warnings.catch_warnings(record=True) as w:\n    warnings.warn('a')\nreturn x * (2.0 + len(w))", "import warnings\nwarnings.simplefilter('ignore')"),
    ("a warning of one module is an error", "helper(x)", "import warnings\nwarnings.filterwarnings('error', message='old')"),
    ("warnings go to logging", "helper(x)", "import logging\nlogging.captureWarnings(True)\nclass H(logging.Handler):\n    def emit(self, r):\n        raise UserWarning\nlogging.getLogger('py.warnings').addHandler(H())\nimport warnings\nwarnings.simplefilter('always')"),
    ("print goes to another stdout", "print('a')\nreturn x * STATE['by']", "import sys\nclass Out:\n    def write(self, t):\n        app.STATE['by'] = 3.0\n    def flush(self):\n        pass\nsys.stdout = Out()"),
    ("print is replaced", "print('a')\nreturn x * STATE['by']", "import builtins\nbuiltins.print = lambda *a: app.STATE.update(by=3.0)"),
    ("a factory of log records", "LOG.warning('a')\nreturn x * STATE['by']", "import logging\nold = logging.getLogRecordFactory()\ndef made(*a, **k):\n    app.STATE['by'] = 3.0\n    return old(*a, **k)\nlogging.setLogRecordFactory(made)"),
    ("a class of loggers", "logging.getLogger('app.new').note() if hasattr(logging.getLogger('app.new'), 'note') else None\nreturn x * (3.0 if hasattr(logging.getLogger('app.other'), 'note') else 2.0)",
     "import logging\nclass L(logging.Logger):\n    def note(self):\n        pass\nlogging.setLoggerClass(L)"),
    ("a formatter that does something", "LOG.warning('a')\nreturn x * STATE['by']", "import logging\nclass Fm(logging.Formatter):\n    def format(self, r):\n        app.STATE['by'] = 3.0\n        return ''\nh = logging.StreamHandler()\nh.setFormatter(Fm())\napp.LOG.addHandler(h)"),
    ("a root handler that does something", "logging.warning('a')\nreturn x * STATE['by']", "import logging\nclass H(logging.Handler):\n    def emit(self, r):\n        app.STATE['by'] = 3.0\nlogging.getLogger().addHandler(H())"),
    ("logging.lastResort that does something", "LOG.warning('a')\nreturn x * STATE['by']", "import logging\nclass H(logging.Handler):\n    def emit(self, r):\n        app.STATE['by'] = 3.0\nlogging.lastResort = H()"),
    ("a variable that is set, by in", "import contextvars\nreturn x * (3.0 if BY in contextvars.copy_context() else 2.0)", "app.BY.set(3.0)"),
    ("a variable that is set, by get", "import contextvars\nreturn x * contextvars.copy_context().get(BY, 2.0)", "app.BY.set(3.0)"),
    ("a variable that is set, by run", "import contextvars\nreturn x * contextvars.copy_context().run(BY.get)", "app.BY.set(3.0)"),
    ("a variable that is set, by dict", "import contextvars\nreturn x * dict(contextvars.copy_context()).get(BY, 2.0)", "app.BY.set(3.0)"),
    ("a variable that is set, by values", "import contextvars\nreturn x * (2.0 + (3.5 in contextvars.copy_context().values()))", "app.BY.set(3.5)"),
    ("os.environ's data, by vars", "import os\nreturn x * float(vars(os.environ)['_data'].get(b'FIELD_BY', b'2'))", "import os\nos.environ['FIELD_BY'] = '3'"),
    ("os.environ's data, by __dict__", "import os\nreturn x * float(os.environ.__dict__['_data'].get(b'FIELD_BY', b'2'))", "import os\nos.environ['FIELD_BY'] = '3'"),
    ("os.environ's data, kept", "x * float(DATA.get(b'FIELD_BY', b'2'))", "import os\nos.environ['FIELD_BY'] = '3'"),
    ("os.environ's decoding of values", "import os\nreturn x * float(os.environ.get('FIELD_SET', '2'))", "import os\nos.environ.decodevalue = lambda v: '3'"),
):
    _add(f"more around a compile: {_doc}", _model(_forward, "pass", _WARNS + "import contextvars, os\nBY = contextvars.ContextVar('by', default=2.0)\nDATA = os.environ._data\n"), _change, environ={"FIELD_SET": "2"})
for _doc, _forward, _to in (
    ("__annotations__ of a function", "x * (2.0 if act.__annotations__['n'] is int else 3.0)", ("n: int", "n: float")),
    ("__annotations__ by a composed name", "x * (2.0 if getattr(act, '__anno' + self.k)['n'] is int else 3.0)", ("n: int", "n: float")),
    ("a signature's annotation", "x * (2.0 if inspect.signature(act).parameters['n'].annotation is int else 3.0)", ("n: int", "n: float")),
    ("getfullargspec", "x * (2.0 if inspect.getfullargspec(act).annotations['n'] is int else 3.0)", ("n: int", "n: float")),
    ("inspect.get_annotations", "x * (2.0 if inspect.get_annotations(act)['n'] is int else 3.0)", ("n: int", "n: float")),
    ("typing.get_type_hints", "x * (2.0 if typing.get_type_hints(act)['n'] is int else 3.0)", ("n: int", "n: float")),
    ("a dataclass's field's type", "x * (2.0 if dataclasses.fields(DC)[0].type is int else 3.0)", ("by: int", "by: float")),
    ("a dataclass's field's type, by __dataclass_fields__", "x * (2.0 if DC.__dataclass_fields__['by'].type is int else 3.0)", ("by: int", "by: float")),
    ("a class's annotations by vars", "x * (2.0 if vars(DC)['__annotations__']['by'] is int else 3.0)", ("by: int", "by: float")),
    ("a class's annotations by a kept attrgetter", "x * (2.0 if self.get(DC)['by'] is int else 3.0)", ("by: int", "by: float")),
    ("the order of a class's annotations", "x * (2.0 if [*PLAIN.__annotations__][0] == 'a' else 3.0)", ("a: int\n    b: int", "b: int\n    a: int")),
    ("the order of annotations by a composed name", "x * (2.0 if [*getattr(PLAIN, '__anno' + self.k)][0] == 'a' else 3.0)", ("a: int\n    b: int", "b: int\n    a: int")),
    ("pydantic's annotation", "x * (2.0 if PD.model_fields['by'].annotation is int else 3.0)", ("by: int = 1  # pd", "by: float = 1  # pd")),
    ("pydantic converts", "x.long() * PD(by=2).by", ("by: int = 1  # pd", "by: float = 1  # pd")),
    ("a validator of pydantic", "x * PV(by=1.0).by", ("v * 2", "v * 3")),
    ("a validator of pydantic reads a global", "x * PG(by=1.0).by", ("BY = 2.0", "BY = 3.0")),
    ("a serializer of pydantic", "x * PS(by=1.0).model_dump()['by']", ("v + 1", "v + 2")),
    ("a limit of pydantic", "try:\n    return x * PL(by=5.0).by\nexcept ValueError:\n    return x", ("le=9", "le=3")),
    ("a default factory of pydantic", "x * PF().by", ("lambda: 2.0", "lambda: 3.0")),
    ("a type adapter of pydantic", "x * TA.validate_python(1.0)", ("lambda t: t * 2", "lambda t: t * 3")),
    ("pydantic's order of validators", "x * PO(by=1.0).by", ("'after_a', 'after_b'", "'after_b', 'after_a'")),
    ("pydantic's configuration", "x * (2.0 if PC(by=1.0, more=2).model_extra else 3.0)", ("extra='allow'", "extra='ignore'")),
    ("pydantic's alias", "x * PA.model_validate({'gain': 2.0, 'other': 3.0}).by", ("alias='gain'", "alias='other'")),
    ("pydantic's schema", "x * len(str(PD.model_json_schema()))", ("by: int = 1  # pd", "by: float = 1  # pd")),
    ("a TypedDict's required keys", "x * (2.0 + len(TD.__required_keys__))", ("total=True", "total=False")),
    ("a NamedTuple's defaults", "x * NT._field_defaults['by']", ("by: float = 2.0  # nt", "by: float = 3.0  # nt")),
    ("a NamedTuple's annotations", "x * (2.0 if NT.__annotations__['by'] is float else 3.0)", ("by: float = 2.0  # nt", "by: int = 2.0  # nt")),
    ("single dispatch by annotations", "sd(1, x)", ("def _(n: int, x)", "def _(n: str, x)")),
    ("a return annotation that a decorator reads at each call", "typed(x)", ("-> 'two'", "-> 'three'")),
    ("an abstract method", "x * (2.0 if AB.__abstractmethods__ else 3.0)", ("@abc.abstractmethod", "# plain")),
    ("an abstract method, through inspect", "x * (2.0 if inspect.isabstract(AB) else 3.0)", ("@abc.abstractmethod", "# plain")),
    ("a protocol's members", "x * (2.0 if isinstance(DC(), PR) else 3.0)", ("def by_(self)", "def hash_(self)")),
    ("the tuple of __slots__", "x * len(SL.__slots__)", ("('a', 'b')", "('a', 'b', 'c')")),
):
    _add(f"what classes say of themselves is edited: {_doc}", _model(_forward, "self.k = 'tations__'\nself.get = operator.attrgetter('__annotations__')", """
import abc, dataclasses, functools, inspect, operator, typing, pydantic
BY = 2.0
def act(x, n: int = 1):
    return x
@dataclasses.dataclass
class DC:
    by: int = 1
    def by_(self):
        pass
class PLAIN:
    a: int
    b: int
class PD(pydantic.BaseModel):
    by: int = 1  # pd
class PV(pydantic.BaseModel):
    by: float
    @pydantic.field_validator('by')
    @classmethod
    def double(cls, v):
        return v * 2
class PG(pydantic.BaseModel):
    by: float
    @pydantic.field_validator('by')
    @classmethod
    def scaled(cls, v):
        return v * BY
class PS(pydantic.BaseModel):
    by: float
    @pydantic.field_serializer('by')
    def plus(self, v):
        return v + 1
class PL(pydantic.BaseModel):
    by: float = pydantic.Field(le=9)
class PF(pydantic.BaseModel):
    by: float = pydantic.Field(default_factory=lambda: 2.0)
TA = pydantic.TypeAdapter(typing.Annotated[float, pydantic.AfterValidator(lambda t: t * 2)])
def after_a(v):
    return v + 1
def after_b(v):
    return v * 2
ORDER = ('after_a', 'after_b')
class PO(pydantic.BaseModel):
    by: typing.Annotated[float, pydantic.AfterValidator(globals()[ORDER[0]]), pydantic.AfterValidator(globals()[ORDER[1]])]
class PC(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra='allow')
    by: float
class PA(pydantic.BaseModel):
    by: float = pydantic.Field(alias='gain')
class TD(typing.TypedDict, total=True):
    by: float
class NT(typing.NamedTuple):
    by: float = 2.0  # nt
@functools.singledispatch
def sd(n, x):
    return x * 2
@sd.register
def _(n: int, x):
    return x * 3
def reading(fn):
    @functools.wraps(fn)
    def inner(x):
        return fn(x) * (2.0 if inner.__wrapped__.__annotations__['return'] == 'two' else 3.0)
    return inner
@reading
def typed(x) -> 'two':
    return x
class AB(abc.ABC):
    @abc.abstractmethod
    def by(self):
        pass
@typing.runtime_checkable
class PR(typing.Protocol):
    def by_(self):
        ...
class SL:
    __slots__ = ('a', 'b')
"""), "", _to)
for _doc, _expr, _change in (
    ("a name of a model", "len(self.net.name_or_path)", "model.net.name_or_path = 'abc'"), ("a name of a model, composed", "len(getattr(self.net, 'name_or' + self.k))", "model.net.name_or_path = 'abc'"),

    ("a version of a configuration, composed", "len(getattr(self.net.config, 'transformers' + '_version') or '')", "model.net.config.transformers_version = 'abc'"),
    ("a name of a configuration, in an attrgetter's composed path", "len(operator.attrgetter('config._name_or' + self.k)(self.net))", "model.net.config._name_or_path = 'abc'"),
    ("a name of a configuration, by object's getter", "len(object.__getattribute__(self.net.config, '_name_or' + self.k))", "model.net.config._name_or_path = 'abc'"),
    ("a name of a configuration, by map", "len([*map(self.net.config.__getattribute__, ['_name_or' + self.k])][0])", "model.net.config._name_or_path = 'abc'"),
    ("a name of a configuration, by all the names of its class", "len([getattr(self.net.config, n, None) for n in self.names][0])", "model.net.config._name_or_path = 'abc'"),
    ("the names of a configuration in a set", "len({v for v in vars(self.net.config).values() if isinstance(v, str)})", "model.net.config._name_or_path = 'abc'"),
    ("a configuration's copy", "len(__import__('copy').deepcopy(self.net.config).name_or_path)", "model.net.config._name_or_path = 'abc'"),
    ("dtype of a model", "len(str(self.net.dtype))", "model.net = model.net.double()"), ("a model's device", "len(str(self.net.config.dtype))", "model.net.config.dtype = torch.float16"),
    ("a generation's configuration", "len(str(getattr(self.net, 'generation_config', 1)))", "model.net.generation_config = 'abcdefghij'"),
    ("a generation's configuration, composed", "len(str(getattr(self.net, 'generation' + '_config', 1)))", "model.net.generation_config = 'abcdefghij'"),
):
    _add(f"what is left out of transformers' models: {_doc}", _model(f"x * (2.0 + {_expr})",
         "self.net = BertModel(BertConfig(hidden_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=4, vocab_size=20))\nself.k = '_path'\nself.w = 'warnings_issued'\nself.names = ['_name_or' + '_path'[i] + '_path'[i + 1:] for i in (0,)]",
         "import operator\nfrom transformers import BertConfig, BertModel\n"), _change)

# 21. A module that something holds, and a value of it.

for _doc, _init, _forward, _top in (
    ("a cached function", "get()", "x * get().BY", "import functools\n@functools.cache\ndef get():\n    import conf\n    return conf\n"),
    ("a cached function, in a tuple", "get()", "x * get()[0].BY", "import functools\n@functools.cache\ndef get():\n    import conf\n    return conf, 1\n"),
    ("a cached function, by a name", "get('conf')", "x * get('conf').BY", "import functools, importlib\n@functools.lru_cache\ndef get(name):\n    return importlib.import_module(name)\n"),
    ("a cached function, and a function of it is called", "get()", "get().act(x)", "import functools\n@functools.cache\ndef get():\n    import conf\n    return conf\n"),
    ("a cached function, and a class of it is read", "get()", "x * get().Cfg.by", "import functools\n@functools.cache\ndef get():\n    import conf\n    return conf\n"),
    ("a cached function's object", "get()", "x * get().m.BY", "import functools, types\n@functools.cache\ndef get():\n    import conf\n    return types.SimpleNamespace(m=conf)\n"),
    ("a cached property", "self.o = O()\nself.o.m", "x * self.o.m.BY", "import functools\nclass O:\n    @functools.cached_property\n    def m(self):\n        import conf\n        return conf\n"),
    ("a context variable", "M.set(conf)", "x * M.get().BY", "import contextvars, conf\nM = contextvars.ContextVar('m')\n"),
    ("a context variable's default", "pass", "x * M.get().BY", "import contextvars, conf\nM = contextvars.ContextVar('m', default=conf)\n"),
    ("a weak reference", "self.m = weakref.ref(conf)", "x * self.m().BY", "import weakref, conf\n"),
    ("a closure", "self.f = make(conf)", "self.f(x)", "import conf\ndef make(m):\n    return lambda x: x * m.BY\n"),
    ("a default argument", "self.f = lambda x, m=conf: x * m.BY", "self.f(x)", "import conf\n"),
    ("a partial", "self.f = functools.partial(act, conf)", "self.f(x)", "import conf, functools\ndef act(m, x):\n    return x * m.BY\n"),
    ("a partial of getattr", "self.f = functools.partial(getattr, conf, 'BY')", "x * self.f()", "import conf, functools\n"),
    ("a bound method of it", "self.f = conf.__getattribute__", "x * self.f('BY')", "import conf\n"),
    ("its dictionary", "self.d = vars(conf)", "x * self.d['BY']", "import conf\n"),
    ("its dictionary's get", "self.f = vars(conf).get", "x * self.f('BY')", "import conf\n"),
    ("a mapping proxy", "self.d = types.MappingProxyType(vars(conf))", "x * self.d['BY']", "import conf, types\n"),
    ("a ChainMap of its dictionary", "self.d = collections.ChainMap({}, vars(conf))", "x * self.d['BY']", "import conf, collections\n"),
    ("an object whose __dict__ it is", "self.o = O()\nself.o.__dict__ = vars(conf)", "x * self.o.BY", "import conf\nclass O:\n    pass\n"),
    ("a deque", "self.q = collections.deque([conf])", "x * self.q[0].BY", "import conf, collections\n"),
    ("an enum's member", "pass", "x * E.M.value.BY", "import conf, enum\nclass E(enum.Enum):\n    M = conf\n"),
    ("a class's attribute", "pass", "x * C.m.BY", "import conf\nclass C:\n    m = conf\n"),
    ("a slot", "self.s = S()\nself.s.m = conf", "x * self.s.m.BY", "import conf\nclass S:\n    __slots__ = ('m',)\n"),
    ("an attribute of a function", "act.m = conf", "act(x)", "import conf\ndef act(x):\n    return x * act.m.BY\n"),
    ("an attribute of a tensor", "self.t = torch.ones(1)\nself.t.m = conf", "x * self.t.m.BY", "import conf\n"),
    ("an object's __getattr__ that goes to it", "self.o = O()", "x * self.o.BY", "import conf\nclass O:\n    def __getattr__(self, name):\n        return getattr(conf, name)\n"),
    ("an object's __getattr__ that goes to a cached import", "self.o = O()\nself.o.BY", "x * self.o.BY", "import functools, importlib\n@functools.cache\ndef load():\n    return importlib.import_module('conf')\nclass O:\n    def __getattr__(self, name):\n        return getattr(load(), name)\n"),
    ("a lazy proxy that imports once", "self.o = Lazy('conf')\nself.o.BY", "x * self.o.BY", "import importlib\nclass Lazy:\n    def __init__(self, name):\n        self.__dict__['name'], self.__dict__['m'] = name, None\n    def __getattr__(self, name):\n        if self.m is None:\n            self.__dict__['m'] = importlib.import_module(self.name)\n        return getattr(self.m, name)\n"),
    ("a registry of modules by name", "pass", "x * ALL[self.kind].BY", "import conf\nALL = {'conf': conf}\n"),
    ("an attribute of a package", "pass", "x * pkg.inner.BY", "import conf, pkg\npkg.inner = conf\n"),
    ("an attribute of torch", "torch.my_conf = conf", "x * torch.my_conf.BY", "import conf\n"),
    ("an attribute of a class of torch", "nn.Linear.my_conf = conf", "x * self.lin.my_conf.BY", "import conf\n"),
    ("sys.modules", "pass", "x * sys.modules['conf'].BY", "import conf, sys\n"),
    ("importlib.util's lazy loader", "pass", "x * lazy.BY", "import importlib.util as u, sys\ns = u.find_spec('conf')\ns.loader = u.LazyLoader(s.loader)\nlazy = u.module_from_spec(s)\nsys.modules['conf'] = lazy\ns.loader.exec_module(lazy)\nlazy.BY\n"),
    ("a parameter that is passed down three functions", "pass", "one(conf, x)", "import conf\ndef one(m, x):\n    return two(m, x)\ndef two(m, x):\n    return three([m], x)\ndef three(all, x):\n    return x * all[0].BY\n"),
    ("a local variable", "pass", "m = conf\nreturn x * m.BY", "import conf\n"),
    ("a name that is made", "pass", "m = conf\nreturn x * getattr(m, 'B' + self.y)", "import conf\n"),
    ("an import in forward, and a name that is made", "pass", "import conf as m\nreturn x * getattr(m, 'B' + self.y)", ""),
    ("a cached function, and a name that is made", "get()", "x * getattr(get(), 'B' + self.y)", "import functools\n@functools.cache\ndef get():\n    import conf\n    return conf\n"),
    ("a context variable, and a name that is made", "M.set(conf)", "x * getattr(M.get(), 'B' + self.y)", "import contextvars, conf\nM = contextvars.ContextVar('m')\n"),
    ("a walrus in a comprehension", "pass", "x * [v for m in (conf,) if (v := m.BY)][0]", "import conf\n"),
    ("match on an attribute", "match 2.0:\n    case conf.BY:\n        return x * 2\nreturn x * 3", "", "import conf\n"),
    ("an except clause", "pass", "try:\n    raise conf.Err\nexcept conf.KIND:\n    return x * 2\nexcept Exception:\n    return x * 3", "import conf\n"),
):
    _forward_, _init_ = (_init, "pass") if "match" in _doc else (_forward, _init)
    _add(f"a module is held by {_doc}", _model(_forward_, f"self.kind = 'conf'\nself.y = 'Y'\n{_init_}", _top)
         + "--- conf.py\nBY = 2.0\nclass Err(ValueError):\n    pass\nKIND = ValueError\nclass Cfg:\n    by = 2.0\ndef act(x):\n    return x * BY\n--- pkg/__init__.py\n",
         "import sys\nconf = sys.modules.get('conf') or __import__('conf')\nconf.BY = 3.0\nconf.Cfg.by = 3.0\nconf.KIND = KeyError")

# 22. getattr under another name, with a name that is made.

for _doc, _init, _forward, _top in (
    ("an attribute of the model", "self.look = getattr", "x * self.look(layers, self.k[1:])", ""),
    ("a global alias", "pass", "x * LOOK(layers, self.k[1:])", "LOOK = getattr\n"),
    ("a local alias", "pass", "look = getattr\nreturn x * look(layers, self.k[1:])", ""),
    ("a default argument", "pass", "x * find(layers, self.k[1:])", "def find(m, n, look=getattr):\n    return look(m, n)\n"),
    ("a closure", "self.find = make(getattr)", "x * self.find(layers, self.k[1:])", "def make(look):\n    return lambda m, n: look(m, n)\n"),
    ("a dictionary", "self.ops = {'get': getattr}", "x * self.ops['get'](layers, self.k[1:])", ""),
    ("a partial", "self.find = functools.partial(getattr, layers)", "x * self.find(self.k[1:])", "import functools\n"),
    ("map", "pass", "x * [*map(getattr, [layers], [self.k[1:]])][0]", ""),
    ("a partial under map", "pass", "x * sum(map(functools.partial(getattr, layers), [self.k[1:]]))", "import functools\n"),
    ("reduce", "pass", "x * functools.reduce(getattr, [self.k[1:]], layers)", "import functools\n"),
    ("starmap", "pass", "x * [*itertools.starmap(getattr, [(layers, self.k[1:])])][0]", "import itertools\n"),
    ("an attrgetter that is kept as a class", "self.ag = operator.attrgetter", "x * self.ag(self.k[1:])(layers)", "import operator\n"),
    ("an attrgetter that is made before", "self.ag = operator.attrgetter('xscale_a'[1:])", "x * self.ag(layers)", "import operator\n"),
    ("builtins.getattr", "pass", "x * builtins.getattr(layers, self.k[1:])", "import builtins\n"),
    ("__builtins__", "pass", "x * __builtins__['getattr'](layers, self.k[1:])", ""),
    ("an import under another name", "pass", "x * ga(layers, self.k[1:])", "from builtins import getattr as ga\n"),
    ("hasattr that is kept", "self.has = hasattr", "x * (2.0 if self.has(layers, self.k[1:5] + 'e_c') else 3.0)", ""),
    ("vars that is kept", "self.v = vars", "x * self.v(layers)[self.k[1:]]", ""),
    ("a kept getattr of torch.nn", "self.look = getattr", "x * (2.0 if self.look(nn, 'S' + 'igmoid') is SIG else 3.0)", "SIG = nn.Sigmoid\n"),
    ("a kept getattr of math", "self.look = getattr", "x * self.look(math, 't' + 'au')", "import math\n"),
    ("a kept import_module", "self.load = importlib.import_module", "x * self.load('xlayers'[1:]).scale_a", "import importlib\n"),
    ("a kept __import__", "self.load = __import__", "x * self.load('xlayers'[1:]).scale_a", ""),
    ("a kept eval", "self.ev = eval", "x * self.ev('layers.scale_a')", ""),
    ("a kept open", "self.op = open", "x * float(self.op('v.txt').read())", ""),
    ("a kept os.getenv", "self.ge = os.getenv", "x * float(self.ge('FIELD_BY', '2'))", "import os\n"),
    ("a kept time", "self.t = os.getcwd", "x * len(self.t())", "import os\n"),
    ("a kept globals", "self.g = globals", "x * self.g()['GA' + 'IN']", "GAIN = 2.0\n"),
    ("a kept id", "self.i = id", "x * (2.0 if self.i(self.k) == self.i(K) else 3.0)", "K = 'xscale_a'\n"),
    ("a kept hash", "self.h = hash", "x * (self.h(self.k) % 97)", ""),
    ("a kept repr", "self.r = repr", "x * len(self.r(layers))", ""),
    ("a kept dir", "self.d = dir", "x * len(self.d(layers))", ""),
    ("a kept set", "self.s = set", "x * (ord([*self.s('abcdef')][0]) - 96)", ""),
):
    _changes = {
        "SIG": "torch.nn.Sigmoid = print", "math": "import math\nmath.tau = 3.0", "'GA'": "app.GAIN = 3.0", "v.txt": "open('v.txt', 'w').write('3.0')",
        "FIELD_BY": "import os\nos.environ['FIELD_BY'] = '3'", "self.i(": "model.k = ''.join([*model.k])", "self.t(": "import os\nos.makedirs('else', exist_ok=True)\nos.chdir('else')",
        "self.r(": "layers.__name__ = 'layers_'", "self.d(": "layers.more = 1", "self.has(": "layers.scale_c = 1", "self.h(": "", "self.s(": "",
    }
    _change = next((code for word, code in _changes.items() if word in _forward), "layers.scale_a = 3.0")
    _add(f"a function of Python is under another name: {_doc}", _model(_forward, f"self.k = 'xscale_a'\n{_init}", f"import layers\n{_top}") + _LAYERS + "--- v.txt\n2.0\n",
         f"import layers\n{_change}" if _change else "")

# 23. Variations of what was found: helpers of torch, NumPy and Python's library that their own code looks up.

_PATCHES = """
import contextlib, copy, enum, functools, json, math, operator, string, statistics, textwrap, types, numpy
import numpy as np
class Kind(enum.IntEnum):
    A = 2
class Closing:
    def close(self):
        pass
"""
for _doc, _forward, _change in (
    ("a class attribute of TextWrapper", "x * len(textwrap.wrap('a b c', 2))", "import textwrap, re\ntextwrap.TextWrapper.wordsep_simple_re = textwrap.TextWrapper.wordsep_re = re.compile('()')"),
    ("a method of TextWrapper", "x * len(textwrap.wrap('a b c', 2))", "import textwrap\ntextwrap.TextWrapper._split = lambda self, text: ['a']"),
    ("len in statistics", "x * statistics.fmean([1.0, 3.0])", "import statistics\nstatistics.fsum = lambda v: 9.0"),
    ("defaults of json.dumps", "x * len(json.dumps([1, 2]))", "import json\njson.dumps.__kwdefaults__['indent'] = 4"),
    ("functools.reduce in operator's place", "x * functools.reduce(operator.add, [1.0, 1.0])", "import functools\nfunctools.reduce = lambda f, v: 3.0"),
    ("has_torch_function of functional", "F.relu(x - 4)", "import torch.nn.functional as f\nf.has_torch_function_unary = lambda a: True\nf.handle_torch_function = lambda *a, **k: a[2] * 3"),
    ("torch of functional", "F.relu(x - 4)", "import torch.nn.functional as f, types, torch\nf.torch = types.SimpleNamespace(relu=lambda t: t * 3, relu_=None)"),
    ("a builtin that functional is given", "F.interpolate(x[None, None], scale_factor=(2, 2))", "import torch.nn.functional as f\nf.len = lambda v: 2\nf.isinstance = lambda v, k: False"),
    ("a number of functional", "F.gumbel_softmax(x * 0, hard=True) if False else F.normalize(x)", "import torch.nn.functional as f\nf.normalize.__defaults__ = (1.0, 1, 1e-12, None)"),
    ("einsum's library", "torch.einsum('ij->ji', x)", "import torch.functional as f, types\nf._VF = types.SimpleNamespace(einsum=lambda *a, **k: a[1][0] * 3)"),
    ("einsum's library, an attribute", "torch.einsum('ij->ji', x)", "import torch\ntorch._VF.einsum = lambda *a, **k: a[1][0] * 3"),
    ("a reduction's number by name", "F.l1_loss(x, x + 1, reduction='sum')", "import torch.nn.functional as f\nf._Reduction = type('R', (), {'get_enum': staticmethod(lambda n: 1)})"),
    ("a helper of conv", "self.conv(x[None])", "import torch.nn.modules.conv as c\nc.F = type('F', (), {'conv2d': staticmethod(lambda t, *a: t * 3)})"),
    ("a method of a base of a layer", "self.conv(x[None])", "import torch.nn.modules.conv as c\nc._ConvNd._conv_forward = c.Conv2d._conv_forward = lambda self, t, w, b: t * 3"),
    ("a helper of numpy.mean", "x * float(np.mean(np.array([1.0, 3.0])))", "import numpy._core._methods as m, numpy._core.fromnumeric as f\nf._methods = type('M', (), {'_mean': staticmethod(lambda *a, **k: 3.0)})"),
    ("a helper inside of numpy.mean", "x * float(np.mean(np.array([1.0, 3.0])))", "import numpy._core._methods as m\nm._mean = lambda *a, **k: 3.0"),
    ("a builtin that numpy's fromnumeric is given", "x * float(np.clip(np.array(5.0), 0, 2))", "import numpy._core.fromnumeric as f\nf._wrapfunc = lambda *a, **k: 3.0"),
    ("contextlib's closing", "with contextlib.closing(Closing()) as c:\n    return x * (2.0 if c is not None else 3.0)", "import contextlib\ncontextlib.closing.__enter__ = lambda self: None"),
    ("copy's table", "x * copy.deepcopy([2.0])[0]", "import copy\ncopy._deepcopy_dispatch[list] = lambda v, m, d=None: [3.0]"),
    ("a helper of copy", "x * copy.copy(Kind.A)", "import copy\ncopy.type = lambda v: int\ncopy._copy_immutable = lambda v: 3"),
    ("string's capwords", "x * len(string.capwords('a b'))", "import string\nstring.str = str\nstring.capwords.__globals__['capwords'] = lambda s: 'abc' * 3"),
    ("string.Template's delimiter", "x * len(string.Template('$a').substitute(a='bc'))", "import string\nstring.Template.pattern = __import__('re').compile(r'(?P<escaped>x)|(?P<named>y)|(?P<braced>z)|(?P<invalid>\\\\$)')\nstring.Template.substitute = lambda self, **k: 'abc'"),
):
    _add(f"a helper of a library is replaced: {_doc}", _model(_forward, "self.conv = nn.Conv2d(1, 1, 2)", _PATCHES), _change)
for _doc, _forward, _change in (
    ("a function of torch.nn.functional", "x * getattr(F.relu, 'own_gain', 2.0)", "import torch\ntorch.nn.functional.relu.own_gain = 3.0"),
    ("a private name of a function of torch.nn.functional", "x * getattr(F.relu, '_own_gain', 2.0)", "import torch\ntorch.nn.functional.relu._own_gain = 3.0"),
    ("a method of torch.Tensor", "x * getattr(torch.Tensor.split, 'own_gain', 2.0)", "import torch\ntorch.Tensor.split.own_gain = 3.0"),
    ("a method of torch.nn.Module", "x * getattr(nn.Module.train, 'own_gain', 2.0)", "import torch\ntorch.nn.Module.train.own_gain = 3.0"),
    ("posixpath", "x * getattr(posixpath, 'own_gain', 2.0)", "import posixpath\nposixpath.own_gain = 3.0"),
    ("os.path.join", "x * getattr(os.path.join, 'own_gain', 2.0)", "import os\nos.path.join.own_gain = 3.0"),
    ("numpy.linalg", "x * getattr(numpy.linalg, 'own_gain', 2.0)", "import numpy\nnumpy.linalg.own_gain = 3.0"),
    ("numpy.linalg.norm", "x * getattr(numpy.linalg.norm, 'own_gain', 2.0)", "import numpy\nnumpy.linalg.norm.own_gain = 3.0"),
    ("torch.nn.modules.conv", "x * getattr(torch.nn.modules.conv, 'own_gain', 2.0)", "import torch\ntorch.nn.modules.conv.own_gain = 3.0"),
    ("torch.backends", "x * getattr(torch.backends, 'own_gain', 2.0)", "import torch\ntorch.backends.own_gain = 3.0"),
    ("json.decoder", "x * getattr(json.decoder, 'own_gain', 2.0)", "import json\njson.decoder.own_gain = 3.0"),
    ("a class of json.decoder", "x * getattr(json.decoder.JSONDecoder, 'own_gain', 2.0)", "import json\njson.decoder.JSONDecoder.own_gain = 3.0"),
    ("functools.wraps", "x * getattr(functools.wraps, 'own_gain', 2.0)", "import functools\nfunctools.wraps.own_gain = 3.0"),
    ("a layer's class, with a composed name", "x * getattr(nn.Linear, 'own' + self.k, 2.0)", "import torch\ntorch.nn.Linear.own_gain = 3.0"),
    ("a module of torch, with a composed name", "x * getattr(torch.nn.modules.linear, 'own' + self.k, 2.0)", "import torch\ntorch.nn.modules.linear.own_gain = 3.0"),
    ("a list of torch", "x * len(nn.Linear.__constants__)", "import torch\ntorch.nn.Linear.__constants__.append('a')"),
    ("documentation of a layer", "x * len(self.lin.__doc__[:3])", "import torch\ntorch.nn.Linear.__doc__ = 'a'"),
    ("documentation of a function", "x * len(F.relu.__doc__[:3])", "import torch\ntorch.nn.functional.relu.__doc__ = 'a'"),
):
    _add(f"an attribute is set on {_doc}", _model(_forward, "self.k = '_gain'", "import functools, json, os, posixpath, numpy"), _change)

# 24. Variations of what was found: what handles printed texts, warnings and records of loggers.

_SPEAKS = """
import contextlib, io, logging, sys, warnings
LOG = logging.getLogger('app.sub')
STATE = {'by': 2.0}
class Cfg:
    by = 2.0
    def __str__(self):
        STATE['by'] = 3.0
        return 'a'
CFG = Cfg()
def warned():
    try:
        warnings.warn('old')
    except UserWarning:
        return 3.0
    return 2.0
class Odd:
    def __del__(self):
        raise ValueError
"""
_OUT = "import sys\nclass Out:\n    def write(self, t):\n        app.STATE['by'] = 3.0\n    def flush(self):\n        pass\n"
_HANDLER = "import logging\nclass H(logging.Handler):\n    def emit(self, r):\n        app.STATE['by'] = 3.0\n"
for _doc, _forward, _change in (
    ("stderr is another, and it warns", "warned()\nreturn x * STATE['by']", _OUT + "sys.stderr = Out()\nimport warnings\nwarnings.simplefilter('always')"),
    ("stdout is redirected", "print('a')\nreturn x * STATE['by']", _OUT + "import contextlib\nkept = contextlib.redirect_stdout(Out())\nkept.__enter__()"),
    ("stdout writes to a raw file of one's own", "print('a', flush=True)\nreturn x * STATE['by']", "import io, sys\nclass Raw(io.RawIOBase):\n    def writable(self):\n        return True\n    def write(self, b):\n        app.STATE['by'] = 3.0\n        return len(b)\nsys.stdout = io.TextIOWrapper(io.BufferedWriter(Raw()))"),
    ("stdout is a writer of codecs", "print('a')\nreturn x * STATE['by']", _OUT + "import codecs\nsys.stdout = codecs.getwriter('utf8')(Out())"),
    ("a print that is kept under another name", "SAY('a')\nreturn x * STATE['by']", _OUT + "sys.stdout = Out()"),
    ("a print by map", "[*map(SAY, 'ab')]\nreturn x * STATE['by']", _OUT + "sys.stdout = Out()"),
    ("a filter that is a function", "LOG.warning('a')\nreturn x * STATE['by']", "app.LOG.addFilter(lambda r: app.STATE.update(by=3.0) or True)"),
    ("a filter of a handler", "LOG.warning('a')\nreturn x * STATE['by']", "import logging\nh = logging.StreamHandler()\nh.addFilter(lambda r: app.STATE.update(by=3.0) or True)\nlogging.getLogger('app').addHandler(h)"),
    ("a handler of the parent", "LOG.warning('a')\nreturn x * STATE['by']", _HANDLER + "logging.getLogger('app').addHandler(H())"),
    ("a handler of the parent, and a level", "LOG.debug('a')\nreturn x * STATE['by']", _HANDLER + "logging.getLogger('app').addHandler(H())\nlogging.getLogger('app').setLevel(1)"),
    ("a formatter's converter", "LOG.warning('a')\nreturn x * STATE['by']", "import logging, time\nh = logging.StreamHandler()\nf = logging.Formatter('%(asctime)s')\nf.converter = lambda t: app.STATE.update(by=3.0) or time.gmtime(t)\nh.setFormatter(f)\napp.LOG.addHandler(h)"),
    ("a handler's stream", "LOG.warning('a')\nreturn x * STATE['by']", _OUT + "import logging\nlogging.basicConfig(stream=Out())"),
    ("a handler with another emit", "LOG.warning('a')\nreturn x * STATE['by']", "import logging\nh = logging.StreamHandler()\nh.emit = lambda r: app.STATE.update(by=3.0)\napp.LOG.addHandler(h)"),
    ("StreamHandler has another emit", "LOG.warning('a')\nreturn x * STATE['by']", "import logging\nlogging.StreamHandler.emit = lambda s, r: app.STATE.update(by=3.0)\nlogging.basicConfig()"),
    ("a MemoryHandler with a target", "LOG.warning('a')\nreturn x * STATE['by']", _HANDLER + "import logging.handlers\napp.LOG.addHandler(logging.handlers.MemoryHandler(1, target=H()))"),
    ("an adapter's logger has a handler", "logging.LoggerAdapter(LOG, {}).warning('a')\nreturn x * STATE['by']", _HANDLER + "app.LOG.addHandler(H())"),
    ("a level, and an object in a list", "LOG.debug('%s', [CFG])\nreturn x * STATE['by']", "import logging\nlogging.basicConfig(level=1)\napp.Cfg.__repr__ = app.Cfg.__str__"),
    ("a level, and an object as the message", "LOG.debug(CFG)\nreturn x * STATE['by']", "import logging\nlogging.basicConfig(level=1)"),
    ("a level, and an object by the root's function", "logging.info('%s', CFG)\nreturn x * STATE['by']", "import logging\nlogging.basicConfig(level=1)"),
    ("logging is disabled, with an object", "LOG.warning('%s', CFG)\nreturn x * STATE['by']", "import logging\nlogging.disable(50)"),
    ("a level by a composed name", "x * (2.0 + getattr(LOG, 'lev' + 'el'))", "app.LOG.setLevel(10)"),
    ("a level of the parent by a composed name", "x * (2.0 + getattr(getattr(LOG, 'par' + 'ent'), 'lev' + 'el'))", "app.logging.getLogger().setLevel(10)"),
    ("a level by a name in a table", "x * (2.0 + sum(getattr(LOG, name) for name in ('level',)))", "app.LOG.setLevel(10)"),
    ("disabled by its name", "x * (2.0 + getattr(LOG, 'disabled'))", "app.LOG.disabled = True"),
    ("a level in a format", "x * (2.0 + float('{0.level}'.format(LOG)))", "app.LOG.setLevel(10)"),
    ("a filter in front of an error", "x * warned()", "import warnings\nwarnings.simplefilter('ignore')"),
    ("warnings are recorded", "with warnings.catch_warnings(record=True) as w:\n    warnings.warn('a')\nreturn x * (2.0 + len(w))", "import warnings\nwarnings.simplefilter('ignore')"),
    ("a warning of torch is shown by an own function", "F.softmax(x)", "import warnings\ndef shown(*a, **k):\n    raise UserWarning\nwarnings.showwarning = shown\nwarnings.simplefilter('always')"),
    ("an exception of __del__ is handled", "o = Odd()\ndel o\nreturn x * STATE['by']", "import sys\nsys.unraisablehook = lambda a: app.STATE.update(by=3.0)"),
):
    _add(f"what handles texts is another: {_doc}", _model(_forward, "pass", _SPEAKS + ("SAY = print\n" if "SAY" in _forward else "")), _change,
         first="import warnings\nwarnings.simplefilter('error')" if "in front of" in _doc else "")
for _doc, _forward, _change in (
    ("a handler of Python's library is added", "LOG.warning('a')\nreturn x * 2", "import logging\nlogging.basicConfig(level=10)"),
    ("a handler to a file is added", "LOG.warning('a')\nreturn x * 2", "import logging\nlogging.getLogger('app').addHandler(logging.FileHandler('log.txt'))"),
    ("a level is set, and it prints", "LOG.debug('a %s', x.shape)\nprint('a')\nreturn x * 2", "app.LOG.setLevel(1)"),
    ("nothing, with an operator of torch.ops", "torch.ops.aten.relu(x) * torch.ops.aten.sin.default(x)", "torch.ops.aten.cos, torch.ops.aten.tan.default, torch.ops.prims.sin"),
    ("a level, beside a text of another meaning", "LOG.debug('a')\nreturn x * len({'filters': 2, 'name': 3})", "app.LOG.setLevel(1)"),
    ("stdout is a StringIO", "print('a')\nreturn x * 2", "import io, sys\nsys.stdout = io.StringIO()"),
    ("nothing, with a composed name", "x * getattr(STATE, 'b' + 'y', 2.0) * getattr(F, 're' + 'lu')(x)", "pass"),
    ("nothing, with a composed name, libraries and a logger", "LOG.debug('a')\nimport math, os\nimport numpy as np\nreturn x * getattr(math, 'p' + 'i') * getattr(STATE, 'b', 2.0)", "pass"),
    ("a name is looked up in a configuration, and the folder is another", "x * getattr(CONFIG, 'hidden_size', 2)", "app.CONFIG._name_or_path = 'abc'"),
):
    _add(f"harmless: {_doc}", _model(_forward, "pass", _SPEAKS + ("from transformers import BertConfig\nCONFIG = BertConfig()\n" if "CONFIG" in _forward else "")), _change, harmless=True)

# 25. Variations of what was found: the environment below os.environ, names that are composed, sets, annotations.

_BELOW = """
import functools, operator, os, string, collections, typing
import layers
from transformers import BertConfig
class Plain:
    a: int
    b: str
def noted(n: int):
    return n
LOOK = operator.attrgetter
"""
for _doc, _forward, _change in (
    ("os.environb", "x * float(os.environb.get(b'FIELD_BY', b'2'))", "env"),
    ("a copy", "x * float(os.environ.copy().get('FIELD_BY', 2))", "env"),
    ("a dict", "x * float(dict(os.environ).get('FIELD_BY', 2))", "env"),
    ("a union", "x * float((os.environ | {}).get('FIELD_BY', 2))", "env"),
    ("in", "x * (3.0 if 'FIELD_BY' in os.environ else 2.0)", "env"),
    ("in its data", "x * (3.0 if b'FIELD_BY' in os.environ._data else 2.0)", "env"),
    ("its data, by a composed name", "x * float(getattr(os.environ, '_da' + 'ta').get(b'FIELD_BY', b'2'))", "env"),
    ("its data, all of it", "x * float([*os.environ._data.items()][-1][1][:1] if False else {**os.environ._data}.get(b'FIELD_BY', b'2'))", "env"),
    ("its length", "x * (2.0 + len(os.environ._data))", "env"),
    ("an attrgetter", "x * float(operator.attrgetter('_data')(os.environ).get(b'FIELD_BY', b'2'))", "env"),
    ("map", "x * [*map(float, map(functools.partial(os.environ.get, 'FIELD_BY'), ['2']))][0]", "env"),
    ("os.getenvb", "x * float(os.getenvb(b'FIELD_BY', b'2'))", "env"),
    ("os.path.expandvars", "x * len(os.path.expandvars('$FIELD_BY'))", "env"),
    ("posix.environ", "import posix\nreturn x * float(posix.environ.get(b'FIELD_BY', b'2'))", "env"),
    ("setdefault", "x * float(os.environ.setdefault('FIELD_BY', '2'))", "env"),
    ("its items", "x * float([v for k, v in os.environ.items() if k == 'FIELD_BY'][0] if 'FIELD_' + 'BY' in os.environ else 2)", "env"),
    ("a name of a configuration, by vars", "x * (2.0 + len(vars(self.config)['_name_or' + self.k]))", "model.config._name_or_path = 'abc'"),
    ("a name of a configuration, by methodcaller", "x * (2.0 + len(operator.methodcaller('__getattribute__', '_name_or' + self.k)(self.config)))", "model.config._name_or_path = 'abc'"),
    ("a name of a configuration, by a kept attrgetter", "x * (2.0 + len(LOOK('_name_or' + self.k)(self.config)))", "model.config._name_or_path = 'abc'"),
    ("a name of a configuration, by a format", "x * (2.0 + len(('{0._name_or%s}' % self.k).format(self.config)))", "model.config._name_or_path = 'abc'"),
    ("a name of a configuration, by a Formatter", "x * (2.0 + len(string.Formatter().vformat('{0._name_or%s}' % self.k, [self.config], {})))", "model.config._name_or_path = 'abc'"),
    ("a name of a configuration, by reduce", "x * (2.0 + len(functools.reduce(getattr, ['_name_or' + self.k], self.config)))", "model.config._name_or_path = 'abc'"),
    ("a module's name, by a Formatter", "x * float(string.Formatter().vformat('{0.scale%s}' % '_a', [layers], {}))", "app.layers.scale_a = 3.0"),
    ("a module's name, by a kept methodcaller", "x * self.mc('__getattribute__', 'scale' + '_a')(layers)", "app.layers.scale_a = 3.0"),
    ("a set by operator", "x * (ord([*operator.or_(dict.fromkeys('abcd').keys(), dict.fromkeys('efgh').keys())][0]) - 96)", ""),
    ("a set by a method of keys", "x * (ord([*dict.fromkeys('abcd').keys().__or__('efgh')][0]) - 96)", ""),
    ("a set by a default factory", "d = self.dd['a']\nd.update('abcdef')\nreturn x * (ord([*d][0]) - 96)", ""),
    ("a set by a kept frozenset", "x * (ord([*self.fs('abcdef')][0]) - 96)", ""),
    ("a set by a type in a table", "x * (ord([*self.table['set']('abcdef')][0]) - 96)", ""),
):
    _add(f"below: {_doc}", _model(_forward, "self.k = '_path'\n" + ("self.config = BertConfig(hidden_size=4)\n" if "config" in _forward else "") + next((code for word, code in {"self.mc": "self.mc = operator.methodcaller", "self.dd": "self.dd = collections.defaultdict(set)", "self.fs": "self.fs = frozenset", "self.table": "self.table = {'set': set}"}.items() if word in _forward), "pass"), _BELOW) + "--- layers.py\nscale_a = 2.0\n",
         "import os\nos.environ['FIELD_BY'] = '3'" if _change == "env" else _change)
for _doc, _forward, _to in (
    ("the order of annotations, by vars", "x * (2.0 if [*vars(Plain)['__anno' + 'tations__']][0] == 'a' else 3.0)", ("a: int\n    b: str", "b: str\n    a: int")),
    ("an annotation of a function, by a composed name", "x * (2.0 if getattr(noted, '__anno' + 'tations__')['n'] is int else 3.0)", ("n: int", "n: str")),
    ("an annotation of a class, by a kept attrgetter", "x * (2.0 if LOOK('__anno' + 'tations__')(Plain)['a'] is int else 3.0)", ("a: int", "a: float")),
):
    _add(f"below: {_doc}", _model(_forward, "pass", _BELOW) + "--- layers.py\nscale_a = 2.0\n", "", _to)

# 26. What a careful attacker tries after reading the rules.

_TRIED = """
import abc, collections, contextlib, copy, dataclasses, enum, functools, logging, math, numbers, operator, types, typing, warnings
from transformers import BertConfig, BertModel
import transformers.activations as activations
BASE = BertConfig(hidden_size=4)
LOG = logging.getLogger('app')
STATE = {'by': 2.0}
class Own:
    by = 2.0
    def __str__(self):
        return 'a'
OWN = Own()
class Number:
    pass
NUMBER = Number()
@functools.singledispatch
def kind(v):
    return 2.0
@contextlib.contextmanager
def scope():
    yield 2.0
class Kind(enum.Enum):
    A = 1
    B = 2
@dataclasses.dataclass
class Data:
    by: float = 2.0
DATA = Data()
class Base:
    def by(self):
        return 2.0
class Left(Base):
    pass
LEFT = Left()
def helper(x, by=[2.0]):
    return x * by[0]
"""
for _doc, _forward, _change in (
    ("two configurations are compared, and a folder is another", "x * (2.0 if self.config == BASE else 3.0)", "model.config._name_or_path = 'abc'"),
    ("two configurations in lists are compared", "x * (2.0 if [self.config] == [BASE] else 3.0)", "model.config._name_or_path = 'abc'"),
    ("a configuration is in a list", "x * (2.0 if self.config in [BASE] else 3.0)", "model.config._name_or_path = 'abc'"),
    ("an attribute of one's own on a logger", "x * self.log.gain", "model.log.gain = 3.0"),
    ("an attribute of one's own on a logger, by getattr", "x * getattr(self.log, 'gain', 2.0)", "model.log.gain = 3.0"),
    ("a method of a logger is replaced", "self.log.info('a')\nreturn x * STATE['by']", "model.log.info = lambda *a: app.STATE.update(by=3.0)"),
    ("Logger.info is replaced", "self.log.info('a')\nreturn x * STATE['by']", "import logging\nlogging.Logger.info = lambda *a: app.STATE.update(by=3.0)"),
    ("Logger.isEnabledFor is replaced", "LOG.info('a')\nreturn x * STATE['by']", "import logging\nlogging.Logger.isEnabledFor = lambda s, level: app.STATE.update(by=3.0)"),
    ("a level has a name of one's own", "LOG.warning('a')\nreturn x * STATE['by']", "import logging\nclass N(str):\n    def __format__(self, s):\n        app.STATE['by'] = 3.0\n        return 'a'\n    __str__ = lambda self: app.STATE.update(by=3.0) or 'a'\nlogging._levelToName[30] = N('W')\nlogging.basicConfig(format='{levelname}', style='{')"),
    ("stdout is closed", "print('a')\nreturn x * 2", "import sys, io\nsys.stdout = io.StringIO()\nsys.stdout.close()"),
    ("stdout has another encoding", "print('\\u2192')\nreturn x * 2", "import sys, io\nsys.stdout = io.TextIOWrapper(io.BytesIO(), encoding='ascii')"),
    ("a decomposition of torch is replaced", "F.silu(x)", "import torch\nfrom torch._decomp import decomposition_table as t\nt[torch.ops.aten.silu.default] = lambda v: v * 3"),
    ("a code object of torch is replaced", "F.relu(x - 4)", "import torch\ndef relu(input, inplace=False):\n    return input * 3\ntorch.nn.functional.relu.__code__ = relu.__code__"),
    ("a code object of a layer is replaced", "self.lin(x)", "import torch\ndef forward(self, input):\n    return input * 3\ntorch.nn.Linear.forward.__code__ = forward.__code__"),
    ("a method that Linear has not", "self.lin(x)", "import torch\ntorch.nn.Linear.__call__ = lambda self, v: v * 3"),
    ("Module.__getattr__ is replaced", "self.lin(x)", "import torch\nold = torch.nn.Module.__getattr__\ntorch.nn.Module.__getattr__ = lambda self, n: old(self, n) * 3 if n == 'weight' else old(self, n)"),
    ("Tensor.__torch_function__ is replaced", "x * 2", "import torch\ntorch.Tensor.__torch_function__ = classmethod(lambda c, f, t, a=(), k=None: (_ for _ in ()).throw(ValueError()))"),
    ("ABCMeta.__instancecheck__ is replaced", "x * (3.0 if isinstance(NUMBER, numbers.Number) else 2.0)", "import abc\nabc.ABCMeta.__instancecheck__ = lambda c, v: True"),
    ("a class is registered as a number", "x * (3.0 if isinstance(NUMBER, numbers.Number) else 2.0)", "import numbers\nnumbers.Number.register(app.Number)"),
    ("a type is registered with singledispatch", "x * kind(NUMBER)", "app.kind.register(app.Number)(lambda v: 3.0)"),
    ("enum's attribute is replaced", "x * (2.0 if Kind.A.name == 'A' else 3.0)", "import enum, types\nenum.Enum.name = types.DynamicClassAttribute(lambda self: 'B')"),
    ("enum's comparison is added", "x * (3.0 if Kind.A == Kind.B else 2.0)", "import enum\nenum.Enum.__eq__ = lambda a, b: True\nenum.Enum.__hash__ = lambda a: 1"),
    ("dataclasses' replace is replaced", "x * dataclasses.replace(DATA).by", "import dataclasses\ndataclasses.replace = lambda d: type('D', (), {'by': 3.0})"),
    ("a helper of dataclasses is replaced", "x * dataclasses.asdict(DATA)['by']", "import dataclasses\ndataclasses._asdict_inner = lambda *a: {'by': 3.0}"),
    ("a base of a class is another", "x * LEFT.by()", "class Other:\n    def by(self):\n        return 3.0\napp.Left.__bases__ = (Other,)" if False else "app.Base.by = lambda self: 3.0"),
    ("an object has another class", "x * OWN.by", "class Other:\n    by = 3.0\napp.OWN.__class__ = Other"),
    ("a mutable default is another", "helper(x)", "app.helper.__defaults__[0][0] = 3.0"),
    ("a closure of a library's function is another", "x * (2.0 + len(functools.wraps(helper)(kind).__name__) - 6)", "app.helper.__name__ = 'helper_'"),
    ("an activation of transformers' table", "x * activations.ACT2FN['relu'](torch.ones(1))", "import transformers.activations as a\na.ACT2FN['relu'] = (nn.Tanh, {}) if 'nn' in globals() else (__import__('torch').nn.Tanh, {})"),
    ("an activation of transformers' table, by a composed name", "x * getattr(activations, 'ACT2' + 'FN')['relu'](torch.ones(1))", "import transformers.activations as a, torch\na.ACT2FN['relu'] = (torch.nn.Tanh, {})"),
    ("an attention function of transformers", "self.net(torch.ones(1, 3, dtype=torch.long))[0]", "import torch\nfrom transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as A\nA['sdpa'] = lambda m, q, k, v, *a, **w: (v.transpose(1, 2), None)"),
    ("an attention implementation", "self.net(torch.ones(1, 3, dtype=torch.long))[0]", "model.net.config._attn_implementation = 'eager'"),
    ("a private name on a module of torch, composed", "x * getattr(F, '_own' + self.k, 2.0)", "import torch\ntorch.nn.functional._own_gain = 3.0"),
    ("a private name on math, composed", "x * getattr(math, '_own' + self.k, 2.0)", "import math\nmath._own_gain = 3.0"),
    ("a module that forward imports", "import math as m\nreturn x * getattr(m, 'own_gain', 2.0)", "import math\nmath.own_gain = 3.0"),
    ("a module that forward imports from", "from string import ascii_letters as a\nreturn x * len(a)", "import string\nstring.ascii_letters = 'a'"),
    ("a set from a type of a set", "x * (ord([*type(self.one)('abcdef')][0]) - 96)", ""),
    ("a set from a union with strings", "x * (ord([*self.one.union('abcdef')][1]) - 96)", ""),
    ("a set from two sets", "x * (2.0 if [*(self.a | self.b)][0] == 'left' else 3.0)", ""),
    ("a set from a comprehension's class", "x * (ord([*{1}.__class__('abcdef')][0]) - 96)", ""),
    ("a set from collections.abc", "x * (ord([*typing.get_origin(typing.Set[str])('abcdef')][0]) - 96)", ""),
    ("mock patches a helper", "helper(x)", "import unittest.mock as m\nkept = m.patch('app.helper', lambda x: x * 3)\nkept.start()"),
    ("a module is reloaded after an attribute was set", "helper(x)", "import importlib\nimportlib.reload(app)\napp.helper.__defaults__[0][0] = 3.0\nmodel = app.Model().eval()"),
    ("typing.cast is replaced", "x * typing.cast(float, 2.0)", "import typing\ntyping.cast = lambda t, v: 3.0"),
    ("a helper of functional's embedding", "F.embedding(torch.tensor([0]), self.lin.weight)", "import torch.nn.functional as f\nf._no_grad_embedding_renorm_ = None\nf.embedding.__globals__['torch'] = __import__('types').SimpleNamespace(embedding=lambda *a: a[0] * 3)"),
):
    _add(f"an attacker tries: {_doc}", _model(_forward, "self.k = '_gain'\n" + ("self.config = BertConfig(hidden_size=4)\n" if "config" in _forward else "") + "self.log = LOG\nLOG.gain = 2.0\nself.one = {1}\nself.a = {'left'}\nself.b = {'right'}\n"
         + ("self.net = BertModel(BertConfig(hidden_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=4, vocab_size=20))" if "self.net" in _forward else "pass"), _TRIED), _change)
for _doc, _forward, _top in (
    ("the root's function", "logging.warning('a')\nreturn x * STATE['by']", ""),
    ("an adapter", "ADAPTER.warning('a')\nreturn x * STATE['by']", "ADAPTER = logging.LoggerAdapter(LOG, {})\n"),
    ("a logger that is made by its class", "SINGLE.warning('a')\nreturn x * STATE['by']", "SINGLE = logging.Logger('app')\n"),
):
    _add(f"an attacker tries: a handler, and {_doc}", _model(_forward, "pass", _TRIED + _top), _HANDLER + "logging.getLogger().addHandler(H())\nif hasattr(app, 'SINGLE'):\n    app.SINGLE.addHandler(H())")


from tests.direct import (  # noqa: E402  # they add theirs
    field_addresses,  # noqa: F401
    field_corners,  # noqa: F401
    field_edits,  # noqa: F401
    field_formats,  # noqa: F401
    field_kinds,  # noqa: F401
    field_language,  # noqa: F401
    field_libraries,  # noqa: F401
    field_practice,  # noqa: F401
    field_python,  # noqa: F401
    field_replay,  # noqa: F401
    field_services,  # noqa: F401
    field_torch,  # noqa: F401
)

# isort: split
from tests.direct import field_projects  # noqa: E402, F401  # behind the others, whose numbers stay

# isort: split
from tests.direct import field_sizes  # noqa: E402, F401  # behind them

# isort: split
from tests.direct import field_tensors  # noqa: E402, F401

# isort: split
from tests.direct import field_programs  # noqa: E402, F401

# isort: split
from tests.direct import field_surroundings  # noqa: E402, F401

# isort: split
from tests.direct import field_workflows  # noqa: E402, F401

# isort: split
from tests.direct import field_code  # noqa: E402, F401
