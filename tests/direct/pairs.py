"""Pairs of two processes: a package before and after a change, and how its model is made and called in each."""

from __future__ import annotations

from dataclasses import dataclass, field

MISS, HIT = "miss", "hit"

_TORCH = "import torch\nfrom torch import nn\n"


@dataclass(frozen=True)
class Pair:
    """A change of files or of a script, between two processes.

    Attributes:
        files: files of the package before, by name.
        after: those that are others after it.
        script: what makes ``model``, ``args`` and more, before.
        then: the same after it; empty if it is the same.
        expected: whether the second process may hit.
        environ: variables of the second process.
    """

    files: dict[str, str]
    after: dict[str, str] = field(default_factory=dict)
    script: str = "from pkg.model import Model\nmodel = Model().eval()\n"
    then: str = ""
    expected: str = MISS
    environ: dict[str, str] = field(default_factory=dict)


def _model(body: str, forward: str, *, top: str = "", init: str = "pass") -> str:
    lines = "\n        ".join(init.split("\n"))
    return (
        f"{_TORCH}{top}\n{body}\n"
        f"class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {lines}\n"
        f"    def forward(self, x):\n        {forward}\n"
    )


def _edited(text: str, before: str, after: str) -> str:
    assert before in text, before
    return text.replace(before, after)


def _one(text: str, before: str, after: str, **kwargs: object) -> Pair:
    """Return a pair whose model's file is edited in one place."""
    return Pair({"model": text}, {"model": _edited(text, before, after)}, **kwargs)  # type: ignore[arg-type]


_SCALED = "class Scaled(nn.Module):\n    gain = 2.0\n    def forward(self, x):\n        return x * self.gain\n"
_CONFIG_JSON = "import json, pathlib\nDATA = json.loads((pathlib.Path(__file__).parent / 'config.json').read_text())\n"
_SCRIPT = "from pkg.model import Model\nmodel = Model().eval()\n"

PAIRS: dict[str, Pair] = {}


def _add(name: str, pair: Pair) -> None:
    assert name not in PAIRS
    PAIRS[name] = pair


# 1. A class is a build's only if it is found there.

_NORMED = _model(
    "class Own(nn.Linear):\n    gain = 2.0\n    def forward(self, x):\n        return super().forward(x) * self.gain\n",
    "return self.lin(x)",
    top="from torch.nn.utils import parametrizations\n",
    init="self.lin = parametrizations.weight_norm(Own(4, 4))",
)
_add("an attribute of a class under weight_norm", _one(_NORMED, "gain = 2.0", "gain = 3.0"))
_add("code of a class under weight_norm", _one(_NORMED, "forward(x) * self", "forward(x) + self"))
_SPECTRAL = _NORMED.replace("parametrizations.weight_norm", "parametrizations.spectral_norm")
_add("an attribute of a class under spectral_norm", _one(_SPECTRAL, "gain = 2.0", "gain = 3.0"))
_PARAMETRIZED = _model(
    "class Own(nn.Linear):\n    gain = 2.0\n    def forward(self, x):\n        return super().forward(x) * self.gain\n"
    "class Twice(nn.Module):\n    by = 2.0\n    def forward(self, w):\n        return w * self.by\n",
    "return self.lin(x)",
    top="from torch.nn.utils import parametrize\n",
    init="self.lin = Own(4, 4)\nparametrize.register_parametrization(self.lin, 'weight', Twice())",
)
_add("a parametrized class", _one(_PARAMETRIZED, "gain = 2.0", "gain = 3.0"))
_add("a parametrization", _one(_PARAMETRIZED, "by = 2.0", "by = 3.0"))
_MADE = _model(
    "Config = dataclasses.make_dataclass('Config', [('by', float, dataclasses.field(default=2.0))])\n",
    "return x * self.config.by + Config.by",
    top="import dataclasses\n",
    init="self.config = Config(1.0)",
)
_add("a default of make_dataclass", _one(_MADE, "default=2.0", "default=3.0"))
_JSON = _model(
    "Config = dataclasses.make_dataclass('Config', [], namespace={'by': DATA['by']})\n",
    "return x * Config.by",
    top=f"import dataclasses\n{_CONFIG_JSON}",
)
_add(
    "a file behind make_dataclass", Pair({"model": _JSON, "config.json": '{"by": 2.0}'}, {"config.json": '{"by": 3.0}'})
)
_JSON_OBJECT = _JSON.replace("return x * Config.by", "return x * self.config.by").replace(
    "pass", "self.config = Config()"
)
_add(
    "a file behind an object of make_dataclass",
    Pair({"model": _JSON_OBJECT, "config.json": '{"by": 2.0}'}, {"config.json": '{"by": 3.0}'}),
)
_META = _model("Config = abc.ABCMeta('Config', (), {'by': 2.0})\n", "return x * Config.by", top="import abc\n")
_add("a class made by ABCMeta", _one(_META, "'by': 2.0", "'by': 3.0"))
_add("a class made by type", _one(_META.replace("abc.ABCMeta(", "type("), "'by': 2.0", "'by': 3.0"))
_LYING = _model(
    "class Act(nn.Module):\n    gain = 2.0\n    def forward(self, x):\n        return x * self.gain\n"
    "Act.__module__, Act.__qualname__ = 'torch.nn.modules.activation', 'ReLU'\n",
    "return self.act(x)",
    init="self.act = Act()",
)
_add("a class that calls itself torch's", _one(_LYING, "gain = 2.0", "gain = 3.0"))
_SIMPLE = _model(
    "def make(by):\n    class Inner(nn.Module):\n        gain = by\n        def forward(self, x):\n            return x * self.gain\n"
    "    return Inner()\n",
    "return self.inner(x)",
    top="import os\n",
    init="self.inner = make(float(os.environ.get('PAIR_BY', '2')))",
)
_add("a class inside a function", Pair({"model": _SIMPLE}, environ={"PAIR_BY": "3"}))

# 2. Dunder attributes.

_FIELDS = _model(
    "@dataclasses.dataclass\nclass Config:\n    a: float = dataclasses.field(default=1.0, metadata={'by': BY})\n    b: float = 2.0\n",
    "return x * dataclasses.fields(self.config)[0].metadata['by']",
    top="import dataclasses, os\nBY = float(os.environ.get('PAIR_BY', '2'))\n",
    init="self.config = Config()",
)
_add("metadata of a field", Pair({"model": _FIELDS}, environ={"PAIR_BY": "3"}))
_ORDER = _model(
    "NAMES = os.environ.get('PAIR_ORDER', 'a b').split()\n"
    "Config = dataclasses.make_dataclass('Config', [(n, float, dataclasses.field(default=v)) for n, v in sorted(zip('ab', (2.0, 3.0)), key=lambda p: NAMES.index(p[0]))])\n",
    "return x * getattr(self.config, dataclasses.fields(self.config)[0].name)",
    top="import dataclasses, os\n",
    init="self.config = Config()",
)
_add("the order of fields", Pair({"model": _ORDER}, environ={"PAIR_ORDER": "b a"}))
_SIGNATURE = _model(
    "def scale(x, by=1.0):\n    return x * by\n"
    "scale.__signature__ = inspect.Signature([inspect.Parameter('by', inspect.Parameter.KEYWORD_ONLY, default=float(os.environ.get('PAIR_BY', '2')))])\n",
    "return x * inspect.signature(scale).parameters['by'].default",
    top="import inspect, os\n",
)
_add("a signature that is set", Pair({"model": _SIGNATURE}, environ={"PAIR_BY": "3"}))
_ABSTRACT = _model(
    "class Base(abc.ABC):\n    pass\nBase.by = float(os.environ.get('PAIR_BY', '2'))\nclass Config(Base):\n    pass\n",
    "return x * self.config.by",
    top="import abc, os\n",
    init="self.config = Config()",
)
_add("an attribute of a base class", Pair({"model": _ABSTRACT}, environ={"PAIR_BY": "3"}))
_GETATTR = _model(
    "class Config:\n    def __getattr__(self, name):\n        return VALUES[name]\nVALUES = {'by': float(os.environ.get('PAIR_BY', '2'))}\n",
    "return x * self.config.by",
    top="import os\n",
    init="self.config = Config()",
)
_add("a dictionary behind __getattr__", Pair({"model": _GETATTR}, environ={"PAIR_BY": "3"}))
_TYPED = _model(
    "class Config(typing.NamedTuple):\n    a: float = 1.0\nConfig.__annotations__['a'] = {'2': float, '3': int}[os.environ.get('PAIR_BY', '2')]\n",
    "return x * (2.0 if typing.get_type_hints(Config)['a'] is float else 3.0)",
    top="import os, typing\n",
)
_add("annotations", Pair({"model": _TYPED}, environ={"PAIR_BY": "3"}))

# 3. Identity.

_MODE = _model(
    "class Mode:\n    pass\nNEAREST, LINEAR = Mode(), Mode()\n",
    "return x * 2 if self.mode is NEAREST else x * 3",
    init="self.mode = NEAREST",
)
_add(
    "a sentinel",
    Pair({"model": _MODE}, script=_SCRIPT, then=f"{_SCRIPT}import pkg.model\nmodel.mode = pkg.model.LINEAR\n"),
)
_add("an equal sentinel", Pair({"model": _MODE}, then=f"{_SCRIPT}import pkg.model\nmodel.mode = pkg.model.Mode()\n"))
_add("a copied sentinel", Pair({"model": _MODE}, then=f"{_SCRIPT}import copy\nmodel = copy.deepcopy(model)\n"))
_add(
    "a pickled sentinel",
    Pair({"model": _MODE}, then=f"{_SCRIPT}import pickle\nmodel = pickle.loads(pickle.dumps(model))\n"),
)
_OBJECT = _MODE.replace(
    "class Mode:\n    pass\nNEAREST, LINEAR = Mode(), Mode()", "NEAREST, LINEAR = object(), object()"
)
_add("an object()", Pair({"model": _OBJECT}, then=f"{_SCRIPT}import pkg.model\nmodel.mode = pkg.model.LINEAR\n"))
_LIST = _MODE.replace("class Mode:\n    pass\nNEAREST, LINEAR = Mode(), Mode()", "NEAREST, LINEAR = [1], [1]")
_add(
    "one of two equal lists", Pair({"model": _LIST}, then=f"{_SCRIPT}import pkg.model\nmodel.mode = pkg.model.LINEAR\n")
)
_TEXT = _MODE.replace("class Mode:\n    pass\nNEAREST, LINEAR = Mode(), Mode()", "NEAREST = 'nearest mode'")
_add("an equal text", Pair({"model": _TEXT}, then=f"{_SCRIPT}model.mode = ' '.join(['nearest', 'mode'])\n"))
_SAME = _model("", "return x * 2 if self.a is self.b else x * 3", init="self.a = [1]\nself.b = self.a")
_add("two attributes that are one list", Pair({"model": _SAME}, then=f"{_SCRIPT}model.b = [1]\n"))
_OBJECTS = _SAME.replace("self.a = [1]", "self.a = Own()").replace("class Model", "class Own:\n    pass\n\nclass Model")
_add(
    "two attributes that are one object",
    Pair({"model": _OBJECTS}, then=f"{_SCRIPT}import pkg.model\nmodel.b = pkg.model.Own()\n"),
)
_TENSORS = _SAME.replace("self.a = [1]", "self.a = torch.ones(4)")
_add("two attributes that are one tensor", Pair({"model": _TENSORS}, then=f"{_SCRIPT}model.b = model.a.clone()\n"))
_KEYS = _model(
    "class Key:\n    pass\nFIRST = Key()\nTABLE = {FIRST: 2.0}\n",
    "return x * TABLE.get(self.key, 3.0)",
    init="self.key = FIRST",
)
_add(
    "a key that is an object", Pair({"model": _KEYS}, then=f"{_SCRIPT}import pkg.model\nmodel.key = pkg.model.Key()\n")
)
_ARGUMENT = _model("", "return x * 2 if x is self.kept[0] else x * 3", init="self.kept = [torch.ones(3, 4)]")
_add(
    "an input that is an attribute",
    Pair(
        {"model": _ARGUMENT},
        script=f"{_SCRIPT}args = (model.kept[0],)\n",
        then=f"{_SCRIPT}args = (torch.ones(3, 4),)\n",
    ),
)
_NAN = _model("NAN = float('nan')\n", "return x * (2 if self.value in [NAN] else 3)", init="self.value = NAN")
_add("a number that is none", Pair({"model": _NAN}, then=f"{_SCRIPT}model.value = float('nan')\n"))
_GLOBAL = _model("A = [1.0]\nB = A\n", "return x * (2 if A is B else 3)")
_add("two globals that are one", Pair({"model": _GLOBAL}, then=f"{_SCRIPT}import pkg.model\npkg.model.B = [1.0]\n"))
_CLOSED = _model(
    "def made(a, b):\n    def does(x):\n        return x * (2 if a is b else 3)\n    return does\nL = [1]\n",
    "return self.does(x)",
    init="self.does = made(L, L)",
)
_add(
    "two cells that are one",
    Pair({"model": _CLOSED}, then=f"{_SCRIPT}import pkg.model\nmodel.does = pkg.model.made([1], [1])\n"),
)

# 5. Attributes of objects that hold functions, and of what is torch's.

_PARTIAL = _model(
    "def scale(x):\n    return x * PART.by\nPART = functools.partial(scale)\nPART.by = 2.0\n",
    "return PART(x)",
    top="import functools\n",
)
_add(
    "an attribute of a partial", Pair({"model": _PARTIAL}, then=f"{_SCRIPT}import pkg.model\npkg.model.PART.by = 3.0\n")
)
_HELD = _model(
    "",
    "return x * self.part.by",
    top="import functools\n",
    init="self.part = functools.partial(torch.add)\nself.part.by = 2.0",
)
_add("an attribute of the model's partial", Pair({"model": _HELD}, then=f"{_SCRIPT}model.part.by = 3.0\n"))
_LRU = _model(
    "@functools.lru_cache\ndef scale():\n    return 1.0\nscale.by = 2.0\n",
    "return x * scale.by",
    top="import functools\n",
)
_add(
    "an attribute of a function with a cache",
    Pair({"model": _LRU}, then=f"{_SCRIPT}import pkg.model\npkg.model.scale.by = 3.0\n"),
)
_FUNCTION = _LRU.replace("@functools.lru_cache\n", "")
_add(
    "an attribute of a function",
    Pair({"model": _FUNCTION}, then=f"{_SCRIPT}import pkg.model\npkg.model.scale.by = 3.0\n"),
)
_OF_TORCH = _model("", "return x * nn.functional.relu.by", top="nn.functional.relu.by = 2.0\n")
_add(
    "an attribute of a function of torch",
    Pair({"model": _OF_TORCH}, then=f"{_SCRIPT}torch.nn.functional.relu.by = 3.0\n"),
)
_ON_TORCH = _model("", "return x * torch.by", top="torch.by = 2.0\n")
_add("an attribute of torch", Pair({"model": _ON_TORCH}, then=f"{_SCRIPT}torch.by = 3.0\n"))
_ON_MODULE = _model("", "return x * self.by", top="nn.Module.by = 2.0\n")
_add("an attribute of torch's modules", Pair({"model": _ON_MODULE}, then=f"{_SCRIPT}torch.nn.Module.by = 3.0\n"))
_RELU = _model("", "return self.act(x)", init="self.act = nn.LeakyReLU()")
_add(
    "a default of a function of torch",
    Pair({"model": _RELU}, then=f"{_SCRIPT}torch.nn.functional.leaky_relu.__defaults__ = (0.5, False)\n"),
)
_SOFT = _model("", "return nn.functional.softplus(x)")
_PATCHED = (
    "import torch.nn.modules.linear as linear\nclass F:\n    linear = staticmethod(lambda x, w, b: x @ w.t() * 2 + b)\n"
)
_LINEAR = _model("", "return self.lin(x)", init="self.lin = nn.Linear(4, 4)")
_add("a global of a module of torch", Pair({"model": _LINEAR}, then=f"{_SCRIPT}{_PATCHED}linear.F = F\n"))
_MATH = _model("", "return x * math.pi", top="import math\n")
_add("a number of Python's library", Pair({"model": _MATH}, then=f"{_SCRIPT}import math\nmath.pi = 4.0\n"))
_VIA = _model("", "return x * self.kept.pi", top="import math\n", init="self.kept = math")
_add("a number of a module that is kept", Pair({"model": _VIA}, then=f"{_SCRIPT}import math\nmath.pi = 4.0\n"))
_add(
    "a function of torch that is wrapped",
    Pair(
        {"model": _RELU},
        then=f"{_SCRIPT}before = torch.nn.functional.leaky_relu\ntorch.nn.functional.leaky_relu = lambda *a, **k: before(*a, **k) * 2\n",
    ),
)
_add(
    "code of a function of torch",
    Pair(
        {"model": _RELU},
        then=f"{_SCRIPT}F = torch.nn.functional\nF.leaky_relu.__code__ = (lambda input, negative_slope=0.01, inplace=False: input * 2).__code__\n",
    ),
)

# 6. Look-ups by text.

_NAMED = {"other": "X = 2.0\n"}
_RESOLVE = _model("", "return x * pkgutil.resolve_name('pkg.other:X')", top="import pkgutil\nimport pkg.other\n")
_add("resolve_name", Pair({"model": _RESOLVE, **_NAMED}, then=f"{_SCRIPT}import pkg.other\npkg.other.X = 3.0\n"))
_FORMAT = _model("", "return x * float('{m.X}'.format(m=other))", top="from pkg import other\n")
_add("format of a module", Pair({"model": _FORMAT, **_NAMED}, then=f"{_SCRIPT}import pkg.other\npkg.other.X = 3.0\n"))
_FORMAT_HELD = _FORMAT.replace("'{m.X}'", "self.text").replace("pass", "self.text = '{m.X}'")
_add(
    "format by a kept text",
    Pair({"model": _FORMAT_HELD, **_NAMED}, then=f"{_SCRIPT}import pkg.other\npkg.other.X = 3.0\n"),
)
_COMPUTED = _model("", "return x * getattr(other, 'xyz'[0].upper())", top="from pkg import other\n")
_add(
    "a name that is computed",
    Pair({"model": _COMPUTED, **_NAMED}, then=f"{_SCRIPT}import pkg.other\npkg.other.X = 3.0\n"),
)
_GETTER = _model("", "return x * operator.attrgetter('X')(other)", top="import operator\nfrom pkg import other\n")
_add("attrgetter", Pair({"model": _GETTER, **_NAMED}, then=f"{_SCRIPT}import pkg.other\npkg.other.X = 3.0\n"))
_VARS = _model("", "return x * vars(other)['X']", top="from pkg import other\n")
_add("vars of a module", Pair({"model": _VARS, **_NAMED}, then=f"{_SCRIPT}import pkg.other\npkg.other.X = 3.0\n"))
_add("vars of a module whose file changed", Pair({"model": _VARS, **_NAMED}, {"other": "X = 3.0\n"}))
_MODULES = _model("", "return x * sys.modules['pkg.other'].X", top="import sys\nimport pkg.other\n")
_add("sys.modules", Pair({"model": _MODULES, **_NAMED}, then=f"{_SCRIPT}import pkg.other\npkg.other.X = 3.0\n"))

# 7. Sets.

_DEFAULT = _model(
    "TABLE = collections.defaultdict(set)\nfor name in ('a', 'bb', 'ccc', 'dddd'):\n    TABLE['k'].add(name)\n",
    "return x * [len(one) for one in TABLE['k']][0]",
    top="import collections\n",
)
_add("a set in a defaultdict", Pair({"model": _DEFAULT}, environ={"PYTHONHASHSEED": "7"}))
_OWN_SET = _model("", "return x * [len(one) for one in self.names][0]", init="self.names = {'a', 'bb', 'ccc', 'dddd'}")
_add("a set of the model", Pair({"model": _OWN_SET}, environ={"PYTHONHASHSEED": "7"}))
_MADE_SET = _model(
    "", "return x * [len(one) for one in set(self.names)][0]", init="self.names = ['a', 'bb', 'ccc', 'dddd']"
)
_add("a set that is made", Pair({"model": _MADE_SET}, environ={"PYTHONHASHSEED": "7"}))
_LITERAL = _model("", "return x * [len(one) for one in {'a', 'bb', 'ccc', 'dddd'}][0]")
_add("a set in the code", Pair({"model": _LITERAL}, environ={"PYTHONHASHSEED": "7"}))
_COMPREHENDED = _model(
    "",
    "return x * list({len(one) * n: 1 for n, one in enumerate({o for o in self.names})})[0]",
    init="self.names = ['a', 'bb', 'ccc', 'dddd']",
)
_add("a set comprehension", Pair({"model": _COMPREHENDED}, environ={"PYTHONHASHSEED": "7"}))
_KEYED = _model("A = dict.fromkeys('abcdef', 1)\n", "return x * (1 + 'abcdef'.index(list(A.keys() & A.keys())[0]))")
_add("an operation on keys", Pair({"model": _KEYED}, environ={"PYTHONHASHSEED": "7"}))
_FROZEN = _model("NAMES = frozenset(('a', 'bb', 'ccc'))\n", "return x * len(next(iter(NAMES)))")
_add("a frozen set", Pair({"model": _FROZEN}, environ={"PYTHONHASHSEED": "7"}))

# Edits of files.

_TWO = {
    "model": _model("", "return other.scale(x)", top="from pkg import other\n"),
    "other": "def scale(x):\n    return x * 2\n",
}
_add("a function of another file", Pair(_TWO, {"other": "def scale(x):\n    return x * 3\n"}))
_add("a comment in an unrelated file", Pair({**_TWO, "apart": "# one\n"}, {"apart": "# two\n"}, expected=HIT))
_DEFAULTED = _model(
    "def scale(x, by=BY):\n    return x * by\n",
    "return scale(x)",
    top="import os\nBY = float(os.environ.get('PAIR_BY', '2'))\n",
)
_add("a default from the environment", Pair({"model": _DEFAULTED}, environ={"PAIR_BY": "3"}))
_add("an unread variable", Pair(_TWO, environ={"PAIR_UNREAD": "3"}, expected=HIT))
_LEVELS = f"{_SCRIPT}import logging\nlogging.getLogger('pkg').setLevel(10)\n"
_add("a level of a logger", Pair(_TWO, then=_LEVELS, expected=HIT))
_add("other packages first", Pair(_TWO, then=f"import numpy, json, http.client, sympy\n{_SCRIPT}", expected=HIT))
_add("a seed", Pair(_TWO, then=f"{_SCRIPT}torch.manual_seed(9)\n", expected=HIT))
_add(
    "pickled",
    Pair({"model": _LINEAR}, then=f"{_SCRIPT}import pickle\nmodel = pickle.loads(pickle.dumps(model))\n", expected=HIT),
)
_TUPLED = _model(
    "class Config(typing.NamedTuple):\n    by: float = 2.0\n",
    "return x * self.config.by",
    top="import typing\n",
    init="self.config = Config()",
)
_add("a named tuple", Pair({"model": _TUPLED}, expected=HIT))
_add(
    "a value of a named tuple",
    Pair({"model": _TUPLED}, then=f"{_SCRIPT}import pkg.model\nmodel.config = pkg.model.Config(3.0)\n"),
)
_SLOTTED = _model(
    "@dataclasses.dataclass(frozen=True, slots=True)\nclass Config:\n    by: float = 2.0\n",
    "return x * self.config.by",
    top="import dataclasses\n",
    init="self.config = Config()",
)
_add("a frozen dataclass with slots", Pair({"model": _SLOTTED}, expected=HIT))
_add(
    "a value of a frozen dataclass",
    Pair({"model": _SLOTTED}, then=f"{_SCRIPT}import pkg.model\nmodel.config = pkg.model.Config(3.0)\n"),
)
_PYDANTIC = _model(
    "class Config(pydantic.BaseModel):\n    by: float = 2.0\n",
    "return x * self.config.by",
    top="import pydantic\n",
    init="self.config = Config()",
)
_add("a pydantic configuration", Pair({"model": _PYDANTIC}, expected=HIT))
_add("a value of pydantic", Pair({"model": _PYDANTIC}, then=f"{_SCRIPT}model.config.by = 3.0\n"))
_DTYPE = _model(
    "",
    "return x * torch.tensor(self.kind.type(2).item())",
    top="import numpy as np\n",
    init="self.kind = np.dtype('float32')",
)
_add("a dtype of NumPy", Pair({"model": _DTYPE}, expected=HIT))
_add(
    "another dtype of NumPy",
    Pair({"model": _DTYPE}, then=f"{_SCRIPT}import numpy as np\nmodel.kind = np.dtype('float64')\n"),
)
_AUTOCAST = _model("", "return x @ x.t() if not torch.is_autocast_enabled('mps') else x @ x.t() * 2")
_add(
    "autocast of another device", Pair({"model": _AUTOCAST}, then=f"{_SCRIPT}torch.set_autocast_enabled('mps', True)\n")
)
_MAIN = _LINEAR + "model = Model().eval()\n"
_add("a class of __main__", Pair({}, script=_MAIN, expected=HIT))
_add("an edited class of __main__", Pair({}, script=_MAIN, then=_MAIN.replace("self.lin(x)", "self.lin(x) * 2")))
_SWITCH = _model("", "return self.lin(x) if self.big > 1e9 else x", init="self.lin = nn.Linear(4, 4)\nself.big = 1e10")
_add("a threshold", Pair({"model": _SWITCH}, then=f"{_SCRIPT}model.big = 1.0\n"))
