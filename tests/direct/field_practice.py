"""Changes by engineers to their own projects: configurations, registries, adapters, hooks, caches. They are added to ``field_scenarios``."""

# fmt: off
from __future__ import annotations

from tests.direct.field_scenarios import _add, _model

_add("lr config in SimpleNamespace nested",
     _model("x * self.cfg.model.scale", "self.cfg = NS(model=NS(scale=2.0, depth=2))", "from types import SimpleNamespace as NS"),
     "model.cfg.model.scale = 3.0")
_add("attrs frozen config evolved",
     _model("x.clamp(max=self.cfg.cap)", "self.cfg = Cfg()", """
     import attrs
     @attrs.frozen
     class Cfg:
         cap: float = 0.5
         name: str = 'a'
     """), "import attrs; model.cfg = attrs.evolve(model.cfg, cap=0.25)")
_add("attrs slots define with converter editing",
     _model("x * self.cfg.k", "self.cfg = Cfg('2')", """
     import attr
     def conv(v): return float(v)
     @attr.s(slots=True)
     class Cfg:
         k = attr.ib(converter=conv)
     """), "", ("return float(v)", "return float(v) + 1"))
_add("attrs field metadata is read in forward",
     _model("x * meta(type(self.cfg))", "self.cfg = Cfg()", """
     import attr
     @attr.s
     class Cfg:
         k = attr.ib(default=1, metadata={'gain': 2.0})
     def meta(c): return c.__attrs_attrs__[0].metadata['gain']
     """), "", ("'gain': 2.0", "'gain': 4.0"))
_add("dataclass field metadata is read in forward",
     _model("x * [f.metadata['g'] for f in dataclasses.fields(self.cfg)][0]", "self.cfg = Cfg()", """
     import dataclasses
     @dataclasses.dataclass
     class Cfg:
         k: int = dataclasses.field(default=1, metadata={'g': 2.0})
     """), "", ("'g': 2.0", "'g': 4.0"))
_add("pydantic model config copy with update",
     _model("F.dropout(x, self.cfg.p, training=False) * self.cfg.g", "self.cfg = Cfg()", """
     import pydantic
     class Cfg(pydantic.BaseModel):
         p: float = 0.1
         g: float = 2.0
     """), "model.cfg = model.cfg.model_copy(update={'g': 5.0})")
_add("pydantic extra allow field set",
     _model("x * self.cfg.gain", "self.cfg = Cfg(gain=2.0)", """
     import pydantic
     class Cfg(pydantic.BaseModel):
         model_config = pydantic.ConfigDict(extra='allow')
     """), "model.cfg.gain = 3.0")
_add("pydantic private attribute set",
     _model("x * self.cfg._gain", "self.cfg = Cfg()", """
     import pydantic
     class Cfg(pydantic.BaseModel):
         a: int = 1
         _gain: float = pydantic.PrivateAttr(2.0)
     """), "model.cfg._gain = 3.0")
_add("pydantic computed field edited",
     _model("x * self.cfg.g", "self.cfg = Cfg()", """
     import pydantic
     class Cfg(pydantic.BaseModel):
         a: float = 1.
         @pydantic.computed_field
         @property
         def g(self) -> float:
             return self.a * 2
     """), "", ("self.a * 2", "self.a * 5"))
_add("pydantic validator clamps in validate_assignment model during construction",
     _model("x * self.cfg.a", "self.cfg = Cfg(a=9.)", """
     import pydantic
     class Cfg(pydantic.BaseModel):
         a: float = 1.
         @pydantic.field_validator('a')
         @classmethod
         def cl(cls, v):
             return min(v, 2.0)
     """), "", ("min(v, 2.0)", "min(v, 3.0)"))
_add("argparse namespace parsed at module load",
     _model("x * args.gain", "", """
     import argparse
     p = argparse.ArgumentParser()
     p.add_argument('--gain', type=float, default=2.0)
     args = p.parse_args([])
     """), "app.args.gain = 3.5")
_add("vars(args) flattened into dict attr",
     _model("x * self.hp['gain']", "self.hp = dict(vars(argparse.Namespace(gain=2.0, lr=1e-3)))", "import argparse"),
     "model.hp['gain'] = 4.0")
_add("unused hyperparameter lr same program",
     _model("x * args.gain", "", """
     import argparse
     args = argparse.Namespace(gain=2.0, lr=0.1)
     """), "app.args.lr = 0.1", harmless=True)
_add("OmegaConf-like attr dict with __getattr__",
     _model("x * self.cfg.model.gain", "self.cfg = AD(model=AD(gain=2.0))", """
     class AD(dict):
         def __getattr__(self, k):
             try: return self[k]
             except KeyError: raise AttributeError(k)
         def __setattr__(self, k, v): self[k] = v
     """), "model.cfg.model.gain = 3.0")
_add("OmegaConf-like interpolation '${a}'",
     _model("x * self.cfg['gain']", "self.cfg = Cfg({'base': 2.0, 'gain': '${base}'})", """
     class Cfg:
         def __init__(self, d): self._d = d
         def __getitem__(self, k):
             v = self._d[k]
             if isinstance(v, str) and v.startswith('${'):
                 return self[v[2:-1]]
             return v
     """), "model.cfg._d['base'] = 3.0")
_add("yaml config loaded at import from file",
     _model("x * CFG['gain']", "", "import yaml, pathlib\nCFG = yaml.safe_load((pathlib.Path(__file__).parent / 'c.yaml').read_text())")
     + "--- c.yaml\ngain: 2.0\n", "", ("gain: 2.0", "gain: 3.0"))
_add("toml parsed at init via tomllib",
     _model("x * self.c['m']['gain']", "self.c = tomllib.loads('[m]\\ngain = 2.0')", "import tomllib"),
     "", ("gain = 2.0", "gain = 2.5"))
_add("ChainMap override pushed in front",
     _model("x * self.cfg['gain']", "self.cfg = collections.ChainMap({}, {'gain': 2.0})", "import collections"),
     "model.cfg.maps[0]['gain'] = 9.0")
_add("MappingProxy over a module dict",
     _model("x * self.cfg['gain']", "self.cfg = types.MappingProxyType(BASE)", "import types\nBASE = {'gain': 2.0}"),
     "app.BASE['gain'] = 5.0")
_add("defaultdict default factory is another",
     _model("x * self.cfg['nope']", "self.cfg = collections.defaultdict(two)", "import collections\ndef two(): return 2.0\ndef three(): return 3.0"),
     "import collections; model.cfg = collections.defaultdict(app.three)")
_add("Counter as class weights changed",
     _model("x * self.c['cat']", "self.c = collections.Counter(cat=2, dog=1)", "import collections"),
     "model.c.update(['cat'])")
_add("deque maxlen history of scales",
     _model("x * self.h[-1]", "self.h = collections.deque([1.0, 2.0], maxlen=2)", "import collections"),
     "model.h.append(4.0)")
_add("deque maxlen itself read",
     _model("x * self.h.maxlen", "self.h = collections.deque([1.0, 2.0], maxlen=3)", "import collections"),
     "import collections; model.h = collections.deque([1.0, 2.0], maxlen=5)")
_add("OrderedDict move_to_end of stage order",
     _model("y = x\nfor k, f in self.st.items():\n    y = f(y)\nreturn y", "self.st = collections.OrderedDict(a=torch.relu, b=torch.sin)", "import collections"),
     "model.st.move_to_end('a')")
_add("plain dict of lambdas reordered",
     _model("y = x\nfor k in self.st:\n    y = OPS[k](y)\nreturn y", "self.st = {'a': 1, 'b': 1}", "OPS = {'a': lambda t: t + 1, 'b': lambda t: t * 2}"),
     "model.st = {'b': 1, 'a': 1}")
_add("enum member changes of model attr",
     _model("x.mean(-1) if self.pool is Pool.MEAN else x.amax(-1)", "self.pool = Pool.MEAN", "import enum\nclass Pool(enum.Enum):\n    MEAN = 1\n    MAX = 2"),
     "model.pool = app.Pool.MAX")
_add("enum value edited in source",
     _model("x * self.pool.value", "self.pool = Pool.MEAN", "import enum\nclass Pool(enum.Enum):\n    MEAN = 2\n    MAX = 3"),
     "", ("MEAN = 2", "MEAN = 5"))
_add("enum alias inserted changes _missing_ result",
     _model("x * Mode(self.m).value", "self.m = 'slow'", """
     import enum
     class Mode(enum.Enum):
         FAST = 1
         SLOW = 2
         @classmethod
         def _missing_(cls, v):
             return cls[v.upper()]
     """), "", ("SLOW = 2", "SLOW = 3"))
_add("enum member gets an extra attribute",
     _model("x * self.m.gain", "self.m = M.A", "import enum\nclass M(enum.Enum):\n    A = 1\n    B = 2\nM.A.gain = 2.0"),
     "app.M.A.gain = 3.0")
_add("enum iteration order by definition",
     _model("y = x\nfor m in M:\n    y = y * m.value + 1\nreturn y", "", "import enum\nclass M(enum.Enum):\n    A = 1\n    B = 2"),
     "", ("    A = 1\n    B = 2", "    B = 2\n    A = 1"))
_add("registry decorator overridden by plugin file",
     "import registry, ops\nclass Model(nn.Module):\n    def forward(self, x):\n        return registry.REG['act'](x)\n"
     "--- registry.py\nREG = {}\ndef register(n):\n    def deco(f):\n        REG[n] = f\n        return f\n    return deco\n"
     "--- ops.py\nimport registry\n@registry.register('act')\ndef a(x):\n    return x + 1\n@registry.register('act2')\ndef b(x):\n    return x * 7\n",
     "", ("register('act2')", "register('act')"))
_add("registry key changed live",
     _model("REG[self.act](x)", "self.act = 'relu'", "REG = {'relu': F.relu, 'gelu': F.gelu}"),
     "app.REG['relu'] = F.silu" if False else "app.REG['relu'] = torch.nn.functional.silu")
_add("factory via getattr(nn, name) at forward",
     _model("getattr(F, self.act)(x)", "self.act = 'relu'"), "model.act = 'silu'")
_add("factory via getattr(torch.nn, name) module built in init",
     _model("self.act(x)", "self.act = getattr(nn, ACT)()", "ACT = 'ReLU'"), "", ("ACT = 'ReLU'", "ACT = 'GELU'"))
_add("__init_subclass__ registry picks last",
     _model("Base.reg[-1]()(x)", "", """
     class Base:
         reg = []
         def __init_subclass__(cls, **k):
             Base.reg.append(cls)
     class A(Base):
         def __call__(self, x): return x + 1
     class B(Base):
         def __call__(self, x): return x * 3
     """), "app.Base.reg.pop()")
_add("metaclass registry entry",
     _model("Meta.reg['A'].f(x)", "", """
     class Meta(type):
         reg = {}
         def __new__(m, n, b, d):
             c = super().__new__(m, n, b, d)
             m.reg[n] = c
             return c
     class A(metaclass=Meta):
         @staticmethod
         def f(x): return x + 1
     class B(metaclass=Meta):
         @staticmethod
         def f(x): return x * 2
     """), "app.Meta.reg['A'] = app.B")
_add("getattr self method name composed",
     _model("getattr(self, 'head_' + self.task)(x)", "self.task = 'cls'", "", "def head_cls(self, x): return x + 1\ndef head_seg(self, x): return x * 2"),
     "model.task = 'seg'")
_add("import_module in init with package",
     _model("self.op(x)", "self.op = importlib.import_module('plug.' + NAME).op", "import importlib\nNAME = 'a'")
     + "--- plug/__init__.py\n--- plug/a.py\ndef op(x): return x + 1\n--- plug/b.py\ndef op(x): return x * 2\n", "", ("NAME = 'a'", "NAME = 'b'"))
_add("package __init__ re-export changes",
     _model("act(x)", "", "from layers import act") + "--- layers/__init__.py\nfrom .a import act\n--- layers/a.py\ndef act(x): return x + 1\n--- layers/b.py\ndef act(x): return x * 2\n",
     "", ("from .a import act", "from .b import act"))
_add("relative import constant in sub package",
     _model("net.blocks.core.run(x)", "", "import net.blocks.core") +
     "--- net/__init__.py\nGAIN = 2.0\n--- net/blocks/__init__.py\n--- net/blocks/core.py\nfrom .. import GAIN\nfrom ... import net if False else None\n".replace("from ... import net if False else None\n", "") + "def run(x): return x * GAIN\n",
     "", ("GAIN = 2.0", "GAIN = 3.0"))
_add("lazy package __getattr__ (PEP 562)",
     _model("lazy.act(x)", "", "import lazy") +
     "--- lazy/__init__.py\n_T = {'act': 'a'}\ndef __getattr__(n):\n    import importlib\n    if n in _T:\n        m = importlib.import_module('lazy.' + _T[n])\n        globals()[n] = getattr(m, n)\n        return globals()[n]\n    raise AttributeError(n)\n--- lazy/a.py\ndef act(x): return x + 1\n--- lazy/b.py\ndef act(x): return x * 2\n",
     "", ("{'act': 'a'}", "{'act': 'b'}"), first="import lazy; lazy.act")
_add("decorator with closure arg edited",
     _model("body(x)", "", """
     import functools
     def scaled(k):
         def d(f):
             @functools.wraps(f)
             def w(x): return f(x) * k
             return w
         return d
     @scaled(2.0)
     def body(x): return x + 1
     """), "", ("@scaled(2.0)", "@scaled(3.0)"))
_add("decorator order swapped",
     _model("body(x)", "", """
     def add(f): return lambda x: f(x) + 1
     def mul(f): return lambda x: f(x) * 2
     @add
     @mul
     def body(x): return x
     """), "", ("@add\n@mul", "@mul\n@add"))
_add("partialmethod argument",
     _model("self.go(x)", "", "import functools", "def run(self, x, k): return x * k\ngo = functools.partialmethod(run, k=2.0)"),
     "", ("k=2.0", "k=3.0"))
_add("cached_property overwritten in instance dict",
     _model("x * self.cfg.g", "self.cfg = C(); self.cfg.g", "import functools\nclass C:\n    k = 2.0\n    @functools.cached_property\n    def g(self): return self.k * 2"),
     "model.cfg.__dict__['g'] = 9.0")
_add("lru_cache keeps a stale result of a changed global",
     _model("x * g()", "", "import functools\nK = 2.0\n@functools.lru_cache\ndef g(): return K"),
     "app.g.cache_clear(); app.K = 3.0")
_add("lru_cache stale: K changes but cached value used",
     _model("x * g(1)", "", "import functools\nK = 2.0\n@functools.lru_cache\ndef g(n): return K * n"),
     "app.K = 3.0; app.g.cache_clear(); app.g(1); app.K = 2.0")
_add("wrapt-like decorator object with __call__",
     _model("op(x)", "", """
     class Deco:
         def __init__(self, f, k): self.f, self.k = f, k
         def __call__(self, x): return self.f(x) * self.k
     def base(x): return x + 1
     op = Deco(base, 2.0)
     """), "app.op.k = 3.0")
_add("__wrapped__ swapped used via inspect.unwrap",
     _model("op.__wrapped__(x)", "", """
     import functools
     def base(x): return x + 1
     def other(x): return x * 5
     @functools.wraps(base)
     def op(x): return base(x) * 2
     """), "app.op.__wrapped__ = app.other")
_add("mixin base order swapped",
     "class A:\n    def pre(self, x): return x + 1\nclass B:\n    def pre(self, x): return x * 2\nclass Model(A, B, nn.Module):\n    def forward(self, x): return self.pre(x)\n",
     "", ("Model(A, B, nn.Module)", "Model(B, A, nn.Module)"))
_add("base class in another file edited",
     "from base import Base\nclass Model(Base):\n    def body(self, x): return x + 1\n--- base.py\nclass Base(nn.Module):\n    k = 2.0\n    def forward(self, x): return self.body(x) * self.k\n",
     "", ("k = 2.0", "k = 3.0"))
_add("class attribute overridden on subclass at runtime",
     "class Base(nn.Module):\n    k = 2.0\n    def forward(self, x): return x * self.k\nclass Model(Base):\n    pass\n",
     "app.Model.k = 3.0")
_add("instance __class__ reassigned",
     "class Other(nn.Module):\n    def forward(self, x): return x * 5\nclass Model(nn.Module):\n    def forward(self, x): return x + 1\n",
     "model.__class__ = app.Other")
_add("class __bases__ reassigned",
     "class A(nn.Module):\n    k = 2.\nclass B(nn.Module):\n    k = 3.\nclass Model(A):\n    def forward(self, x): return x * self.k\n",
     "app.Model.__bases__ = (app.B,)")
_add("super() chain cooperative mixin inserted",
     "class Log:\n    def forward(self, x): return super().forward(x) + 1\nclass Base(nn.Module):\n    def forward(self, x): return x * 2\nclass Model(Base):\n    pass\n",
     "", ("class Model(Base)", "class Model(Log, Base)"))
_add("descriptor class on module edited",
     "class Gain:\n    def __get__(self, o, t): return 2.0\nclass Model(nn.Module):\n    g = Gain()\n    def forward(self, x): return x * self.g\n",
     "", ("return 2.0", "return 3.0"))
_add("descriptor with __set_name__ and private storage",
     "class Field:\n    def __set_name__(self, o, n): self.n = '_' + n\n    def __get__(self, o, t): return o.__dict__[self.n] if o is not None else self\n    def __set__(self, o, v): o.__dict__[self.n] = v\nclass Model(nn.Module):\n    g = Field()\n    def __init__(self):\n        super().__init__()\n        self.g = 2.0\n    def forward(self, x): return x * self.g\n",
     "model.g = 3.0")
_add("slots config class value",
     _model("x * self.c.g", "self.c = C()", "class C:\n    __slots__ = ('g',)\n    def __init__(self): self.g = 2.0"),
     "model.c.g = 3.0")
_add("__getattr__ fallback to inner module gains an attribute",
     _model("x * self.w.gain", "self.w = W(Inner())", """
     class Inner:
         gain = 2.0
     class W:
         def __init__(self, i): self.i = i
         def __getattr__(self, n): return getattr(self.i, n)
     """), "model.w.gain = 5.0")
_add("os.environ flag in forward", _model("x * 2 if os.environ.get('USE_FAST') else x * 3", "", "import os"), "import os; os.environ['USE_FAST'] = '1'")
_add("os.getenv with default in helper", _model("util.run(x)", "", "import util") + "--- util.py\nimport os\ndef run(x): return x * float(os.getenv('GAIN', '2'))\n", "", env={"GAIN": "3"})
_add("'K' in os.environ", _model("x * 2 if 'DBG' in os.environ else x * 3", "", "import os"), "import os; os.environ['DBG'] = ''")
_add("environment read at import", _model("x * G", "", "import os\nG = float(os.environ.get('GG', 2))"), "", env={"GG": "4"})
_add("os.path.expandvars in forward (again)", _model("x * float(os.path.expandvars('${ZED}0'))", "", "import os", ), "import os; os.environ['ZED'] = '3'", environ={"ZED": "2"})
_add("distutils-like strtobool on env", _model("x * 2 if flag('AMP') else x * 3", "", "import os\ndef flag(n): return os.environ.get(n, '0').lower() in ('1', 'true')"), "import os; os.environ['AMP'] = 'TRUE'")
_add("env var unrelated", _model("x * 2 if os.environ.get('USE_FAST') else x * 3", "", "import os"), "import os; os.environ['OTHER'] = '1'", harmless=True)
_add("env snapshot dict copied at import", _model("x * float(ENV.get('HH', 2))", "", "import os\nENV = {k: v for k, v in os.environ.items() if k == 'HH'}"), "", env={"HH": "4"})
_add("pydantic-settings-like BaseSettings from env", _model("x * S.gain", "", "import os\nclass St:\n    def __init__(self): self.gain = float(os.environ.get('APP_GAIN', 2))\nS = St()"), "", env={"APP_GAIN": "4"})

_add("Sequential layers reordered", _model("self.s(x)", "self.s = nn.Sequential(nn.ReLU(), nn.Sigmoid(), nn.Tanh())"), "model.s[0], model.s[2] = model.s[2], model.s[0]")
_add("ModuleList swap of two equal-shaped linears (weights only)", _model("self.s[1](self.s[0](x))", "self.s = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])"), "model.s[0], model.s[1] = model.s[1], model.s[0]", harmless=True)
_add("weights tied between layers", _model("self.b(self.lin(x))", "self.b = nn.Linear(4, 4)"), "model.b.weight = model.lin.weight")
_add("bias removed", _model("self.lin(x)"), "model.lin.bias = None")
_add("replaced by same-shape retrained Linear", _model("self.lin(x)"), "model.lin = torch.nn.Linear(4, 4).eval()", harmless=True)
_add("layer replaced by Identity", _model("self.lin(x)"), "model.lin = torch.nn.Identity()")
_add("eps of LayerNorm in place", _model("self.n(x)", "self.n = nn.LayerNorm(4)"), "model.n.eps = 0.5")
_add("normalized_shape tuple vs list has no effect", _model("self.n(x)", "self.n = nn.LayerNorm(4)"), "model.n.eps = 1e-5", harmless=True)
_add("BatchNorm track_running_stats off", _model("self.n(x)", "self.n = nn.BatchNorm1d(4)\nself.n.running_mean.fill_(3.)"), "model.n.track_running_stats = False; model.n.running_mean = None; model.n.running_var = None")
_add("one submodule set to train", _model("self.n(x)", "self.n = nn.BatchNorm1d(4)\nself.n.running_mean.fill_(3.)"), "model.n.train()")
_add("requires_grad frozen backbone", _model("self.lin(x) * (2 if self.lin.weight.requires_grad else 3)"), "model.lin.requires_grad_(False)")
_add("model half precision", _model("self.lin(x.to(self.lin.weight.dtype))"), "model.double()")
_add("weight channels_last", _model("self.c(x[None, None]).reshape(-1) * (2 if self.c.weight.is_contiguous() else 3)", "self.c = nn.Conv2d(2, 2, 2)").replace("x[None, None]", "torch.stack([x, x])[None]"), "model.to(memory_format=torch.channels_last)")
_add("weight transposed view stride", _model("x @ self.w * self.w.stride(0)", "self.w = nn.Parameter(torch.rand(4, 4))"), "model.w = torch.nn.Parameter(model.w.detach().t())")
_add("weight is view into a larger storage", _model("x @ self.w + self.w.storage_offset()", "self.w = nn.Parameter(torch.rand(4, 4))"), "model.w = torch.nn.Parameter(torch.rand(5, 4)[1:])")
_add("forward replaced on the instance", _model("x * 2"), "import types; model.forward = types.MethodType(lambda self, x: x * 3, model)")
_add("forward replaced on submodule instance", _model("self.lin(x)"), "model.lin.forward = lambda x: x * 3")
_add("forward replaced on class", _model("x * 2"), "app.Model.forward = lambda self, x: x * 3")
_add("class __call__ overridden on class", _model("self.b(x)", "self.b = B()", "class B(nn.Module):\n    def forward(self, x): return x * 2"), "app.B.__call__ = lambda self, x: x * 3")
_add("insert extra attribute unused", _model("self.lin(x)"), "model.lin.weight.data.mul_(2)", harmless=True)
_add("parameter registration order changes signature", "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = nn.Parameter(torch.ones(4))\n        self.b = nn.Parameter(torch.ones(4) * 2)\n    def forward(self, x):\n        y = x\n        for p in self.parameters():\n            y = torch.sin(y) * p\n            break\n        return y\n", "p = model.a; del model.a; model.a = p")
_add("named_children loop skips by isinstance type", _model("y = x\nfor n, m in self.named_children():\n    if isinstance(m, SKIP):\n        continue\n    y = m(y)\nreturn y", "self.r = nn.ReLU()", "SKIP = (nn.Linear,)"), "app.SKIP = (torch.nn.ReLU,)")
_add("apply-hooks: forward_pre_hook added", _model("self.lin(x)"), "model.lin.register_forward_pre_hook(lambda m, a: (a[0] * 2,))")
_add("forward hook with_kwargs", _model("self.lin(x)"), "model.lin.register_forward_hook(lambda m, a, k, o: o * 2, with_kwargs=True)")
_add("forward hook order prepend", _model("self.lin(x)", "self.lin.register_forward_hook(lambda m, a, o: o + 1)"), "model.lin.register_forward_hook(lambda m, a, o: o * 2, prepend=True)")
_add("hook closure state", _model("self.lin(x)", "k = [2.0]\nself.k = k\nself.lin.register_forward_hook(lambda m, a, o: o * k[0])"), "model.k[0] = 3.0")
_add("state dict hook added is harmless?", _model("self.lin(x) * len(self.state_dict())"), "model._register_state_dict_hook(lambda m, sd, p, md: sd.update(extra=torch.ones(1)))")
_add("get_extra_state adds an entry", _model("self.lin(x) * len(self.state_dict())"), "app.Model.get_extra_state = lambda self: 1")
_add("global module forward hook (again)", _model("self.lin(x)"), "app.h = torch.nn.modules.module.register_module_forward_hook(lambda m, a, o: o * 2)")
_add("buffer persistent flag read", _model("x * self.b if 'b' in self.state_dict() else x + self.b", "self.register_buffer('b', torch.ones(4) * 2)"), "model._non_persistent_buffers_set.add('b')")
_add("non persistent buffer values", _model("x * self.b", "self.register_buffer('b', torch.ones(4) * 2, persistent=False)"), "model.b.fill_(3.0)")
_add("tensor attribute (constant) values", _model("x * self.t", "self.t = torch.ones(4)"), "model.t.fill_(3.0)")
_add("buffer turned to parameter", _model("x * self.b + len(list(self.parameters()))", "self.register_buffer('b', torch.ones(4))"), "b = model.b; del model.b; model.b = torch.nn.Parameter(b)")
_add("buffer item() control flow value", _model("x * self.s", "self.register_buffer('st', torch.tensor(2)); self.s = self.st.item()"), "model.st.fill_(3); model.s = model.st.item()")
_add("parametrization scale attribute", _model("self.lin(x)", "torch.nn.utils.parametrize.register_parametrization(self.lin, 'weight', P())", "import torch.nn.utils.parametrize\nclass P(nn.Module):\n    k = 2.0\n    def forward(self, w): return w * self.k"), "model.lin.parametrizations.weight[0].k = 3.0")
_add("parametrization removed", _model("self.lin(x)", "torch.nn.utils.parametrize.register_parametrization(self.lin, 'weight', P())", "import torch.nn.utils.parametrize\nclass P(nn.Module):\n    k = 2.0\n    def forward(self, w): return w * self.k"), "torch.nn.utils.parametrize.remove_parametrizations(model.lin, 'weight', leave_parametrized=False)")
_add("weight_norm dim", _model("self.lin(x)", "torch.nn.utils.weight_norm(self.lin, dim=0)"), "model.lin._forward_pre_hooks[next(iter(model.lin._forward_pre_hooks))].dim = 1; model.lin.weight_g.data = torch.full((1, 4), 2.)")
_add("spectral norm n iterations in training", _model("self.lin(x)", "torch.nn.utils.parametrizations.spectral_norm(self.lin)"), "model.lin.parametrizations.weight[0].n_power_iterations = 3", make="import app; model = app.Model().train()")
_add("prune mask applied", _model("self.lin(x)"), "import torch.nn.utils.prune as p; p.l1_unstructured(model.lin, 'weight', 0.5)")
_add("LoRA merged flag (again)", _model("self.l(x)", "self.l = L()", """
class L(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(4, 4); self.a = nn.Linear(4, 2); self.b = nn.Linear(2, 4); self.merged = False
        self.r = 2; self.alpha = 4
    def forward(self, x):
        y = self.base(x)
        return y if self.merged else y + self.b(self.a(x)) * (self.alpha / self.r)
"""), "model.l.merged = True")
_add("LoRA alpha changed", _model("self.l(x)", "self.l = L()", """
class L(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(4, 4); self.a = nn.Linear(4, 2); self.b = nn.Linear(2, 4)
        self.scaling = {'default': 2.0, 'other': 3.0}; self.active = ['default']
    def forward(self, x):
        y = self.base(x)
        for n in self.active:
            y = y + self.b(self.a(x)) * self.scaling[n]
        return y
"""), "model.l.active.append('other')")
_add("LoRA injection by wrapper's __getattr__", _model("self.l(x) * self.l.in_features", "self.l = W(nn.Linear(4, 4))", """
class W(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.inner = m
    def __getattr__(self, n):
        try: return super().__getattr__(n)
        except AttributeError: return getattr(self.inner, n)
    def forward(self, x): return self.inner(x)
"""), "model.l.inner.in_features = 5")
_add("hand quantization scale", _model("(self.q.float() - self.zp) * self.sc + x", "self.register_buffer('q', torch.arange(4, dtype=torch.int8)); self.sc = 0.1; self.zp = 3"), "model.zp = 4")
for _n, _read, _set in [
  ("grad mode", "torch.is_grad_enabled()", "torch.set_grad_enabled(False)"),
  ("default dtype", "torch.get_default_dtype() == torch.float32", "torch.set_default_dtype(torch.float64)"),
  ("num threads", "torch.get_num_threads() == 1", "torch.set_num_threads(1 if torch.get_num_threads() != 1 else 2)"),
  ("deterministic", "torch.are_deterministic_algorithms_enabled()", "torch.use_deterministic_algorithms(True)"),
  ("deterministic warn only", "torch.is_deterministic_algorithms_warn_only_enabled()", "torch.use_deterministic_algorithms(False, warn_only=True)"),
  ("cudnn benchmark", "torch.backends.cudnn.benchmark", "torch.backends.cudnn.benchmark = True"),
  ("cudnn enabled", "torch.backends.cudnn.enabled", "torch.backends.cudnn.enabled = False"),
  ("matmul tf32", "torch.backends.cuda.matmul.allow_tf32", "torch.backends.cuda.matmul.allow_tf32 = True"),
  ("float32 matmul precision", "torch.get_float32_matmul_precision() == 'highest'", "torch.set_float32_matmul_precision('medium')"),
  ("mkldnn flags", "torch.backends.mkldnn.enabled", "torch.backends.mkldnn.enabled = False"),
  ("flash sdp", "torch.backends.cuda.flash_sdp_enabled()", "torch.backends.cuda.enable_flash_sdp(False)"),
  ("mha fastpath", "torch.backends.mha.get_fastpath_enabled()", "torch.backends.mha.set_fastpath_enabled(False)"),
  ("opt_einsum enabled", "torch.backends.opt_einsum.enabled", "torch.backends.opt_einsum.enabled = not torch.backends.opt_einsum.enabled"),
  ("quantized engine", "torch.backends.quantized.engine == 'fbgemm'", "torch.backends.quantized.engine = [e for e in torch.backends.quantized.supported_engines if e != torch.backends.quantized.engine][-1]"),
  ("autocast cpu", "torch.is_autocast_enabled('cpu')", "torch.set_autocast_enabled('cpu', True)"),
  ("autocast cache", "torch.is_autocast_cache_enabled()", "torch.set_autocast_cache_enabled(False)"),
  ("autocast dtype", "torch.get_autocast_dtype('cpu') == torch.bfloat16", "torch.set_autocast_dtype('cpu', torch.float16)"),
  ("anomaly", "torch.is_anomaly_enabled()", "torch.autograd.set_detect_anomaly(True)"),
  ("anomaly nan check", "torch.is_anomaly_check_nan_enabled()", "torch.autograd.set_detect_anomaly(torch.is_anomaly_enabled(), False)"),
  ("warn always", "torch.is_warn_always_enabled()", "torch.set_warn_always(True)"),
  ("multithreading autograd", "torch._C._is_multithreading_enabled()", "torch.autograd.set_multithreading_enabled(False)"),
  ("default device", "torch.get_default_device().type == 'cpu'", "torch.set_default_device('meta')"),
  ("sparse invariants", "torch.sparse.check_sparse_tensor_invariants.is_enabled()", "torch.sparse.check_sparse_tensor_invariants.enable()"),
  ("preferred linalg", "str(torch.backends.cuda.preferred_linalg_library()).endswith('Default')", "if torch.version.cuda: torch.backends.cuda.preferred_linalg_library('magma')"),
  ("fill uninitialized", "torch.utils.deterministic.fill_uninitialized_memory", "torch.utils.deterministic.fill_uninitialized_memory = False"),
  ("fp32 precision backends", "torch.backends.fp32_precision == 'none'", "torch.backends.fp32_precision = 'tf32'"),
  ("mkldnn matmul fp32 precision", "torch.backends.mkldnn.matmul.fp32_precision == 'none'", "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'"),
  ("interop threads", "torch.get_num_interop_threads() == 1", "torch.set_num_interop_threads(1 if torch.get_num_interop_threads() != 1 else 3)"),
  ("future overwrite flag", "torch.__future__.get_overwrite_module_params_on_conversion()", "torch.__future__.set_overwrite_module_params_on_conversion(True)"),
  ("sharing strategy", "torch.multiprocessing.get_sharing_strategy() == 'file_system'", "torch.multiprocessing.set_sharing_strategy('file_system')"),
  ("initial seed", "torch.initial_seed() == 3", "torch.manual_seed(3)"),
  ("hub dir", "torch.hub.get_dir() == '/tmp/x'", "torch.hub.set_dir('/tmp/x')"),
  ("load endianness", "torch.serialization.get_default_load_endianness() is None", "torch.serialization.set_default_load_endianness(torch.serialization.LoadEndianness.LITTLE)"),
  ("crc32 options", "torch.serialization.get_crc32_options()", "torch.serialization.set_crc32_options(False)"),
  ("safe globals", "len(torch.serialization.get_safe_globals()) == 0", "torch.serialization.add_safe_globals([app.Model])"),
  ("swap params on conversion", "torch.__future__.get_swap_module_params_on_conversion()", "torch.__future__.set_swap_module_params_on_conversion(True)"),
  ("checkpoint debug", "torch.utils.checkpoint._checkpoint_debug_enabled is None", "torch.utils.checkpoint._checkpoint_debug_enabled = True"),
  ("checkpoint early stop", "torch.utils.checkpoint._enable_checkpoint_early_stop", "torch.utils.checkpoint._enable_checkpoint_early_stop = False"),
  ("dynamo config", "torch._dynamo.config.cache_size_limit == 8", "torch._dynamo.config.cache_size_limit = 9 if torch._dynamo.config.cache_size_limit == 8 else 8"),
  ("inductor config", "torch._inductor.config.max_autotune", "torch._inductor.config.max_autotune = True"),
  ("print options", "torch._tensor_str.PRINT_OPTS.precision == 4", "torch.set_printoptions(precision=9)"),
  ("flex fp16 reduction", "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction", "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False"),
  ("saved tensors hooks", "torch._C._autograd._saved_tensors_hooks_is_enabled()", "torch._C._autograd._saved_tensors_hooks_disable('no')"),
  ("nnpack", "torch.backends.nnpack.is_available() and torch._C._get_nnpack_enabled()", "torch.backends.nnpack.set_flags(False)"),
  ("view replay", "torch.autograd.is_view_replay_enabled()", "torch._C._set_view_replay_enabled(True)"),
  ("fwd grad", "torch.autograd.forward_ad._is_fwd_grad_enabled()", "torch._C._set_fwd_grad_enabled(False)"),
  ("flush denormal", "float(torch.tensor(1e-310, dtype=torch.float64)) * 1 > 0", "torch.set_flush_denormal(True)"),
  ("cublas workspace env", "__import__('os').environ.get('CUBLAS_WORKSPACE_CONFIG') is None", "import os; os.environ['CUBLAS_WORKSPACE_CONFIG'] = ':4096:8'"),
  ("rank env via dist", "torch.distributed.is_torchelastic_launched()", "import os; os.environ['TORCHELASTIC_RUN_ID'] = 'x'"),
]:
    _add("torch state is read: " + _n, _model("x * 2 if " + _read + " else x * 3", "", "import torch.utils.checkpoint, torch.utils.deterministic, torch._dynamo, torch._inductor.config, torch.__future__, torch.multiprocessing, torch.distributed"), _set)

_PT = """
import torch.utils._pytree as pt
class Out:
    def __init__(self, a, b): self.a, self.b = a, b
ORDER = ['a', 'b']
def fl(o): return [getattr(o, n) for n in ORDER], None
def un(v, c): return Out(*v)
pt.register_pytree_node(Out, fl, un, serialized_type_name='app.Out', flatten_with_keys_fn=lambda o: ([(pt.GetAttrKey(n), getattr(o, n)) for n in ORDER], None))
"""
_add("pytree flatten of output reads a global list", _model("Out(x + 1, x * 2)", "", _PT), "app.ORDER.reverse()")
_add("pytree flatten function edited in source", _model("Out(x + 1, x * 2)", "", _PT), "", ("ORDER = ['a', 'b']", "ORDER = ['b', 'a']"))
_add("dataclass output registered, field order edited", "import dataclasses\n@dataclasses.dataclass\nclass Out:\n    a: torch.Tensor\n    b: torch.Tensor\ntorch.export.register_dataclass(Out, serialized_type_name='app.Out')\nclass Model(nn.Module):\n    def forward(self, x): return Out(a=x + 1, b=x * 2)\n",
     "", ("    a: torch.Tensor\n    b: torch.Tensor", "    b: torch.Tensor\n    a: torch.Tensor"))
_add("pytree of a dict subclass is replaced in the registry", _model("D(a=x + 1, b=x * 2)", "", """
import torch.utils._pytree as pt
class D(dict): pass
pt.register_pytree_node(D, lambda d: (list(d.values()), list(d)), lambda v, c: D(zip(c, v)), serialized_type_name='app.D')
"""), "import torch.utils._pytree as pt; pt.SUPPORTED_NODES[app.D] = pt.SUPPORTED_NODES[app.D]._replace(flatten_fn=lambda d: (list(d.values())[::-1], list(d)[::-1])) if hasattr(pt.SUPPORTED_NODES[app.D], '_replace') else __import__('dataclasses').replace(pt.SUPPORTED_NODES[app.D], flatten_fn=lambda d: (list(d.values())[::-1], list(d)[::-1]))")
_add("output dict key order", _model("{k: x * v for k, v in self.h.items()}", "self.h = {'a': 1., 'b': 2.}"), "model.h = {'b': 2., 'a': 1.}")
_add("kwargs given in another order", "class Model(nn.Module):\n    def forward(self, x, **k):\n        y = x\n        for v in k.values(): y = torch.sin(y) * v\n        return y\n", "kwargs = dict(reversed(list(kwargs.items())))", make="import app\nmodel = app.Model().eval(); args = (torch.rand(3, 4),); kwargs = dict(a=torch.ones(3, 4), b=torch.full((3, 4), 2.))")
_add("int argument specialised", "class Model(nn.Module):\n    def forward(self, x, n): return x * n\n", "args = (args[0], 3)", make="import app\nmodel = app.Model().eval(); args = (torch.rand(3, 4), 2)")
_add("bool instead of int argument", "class Model(nn.Module):\n    def forward(self, x, n): return x * 2 if n is True else x * 3\n", "args = (args[0], True)", make="import app\nmodel = app.Model().eval(); args = (torch.rand(3, 4), 1)")
_add("input strides read", "class Model(nn.Module):\n    def forward(self, x): return x * x.stride(0)\n", "args = (torch.rand(4, 3).t(),)", make="import app\nmodel = app.Model().eval(); args = (torch.rand(3, 4),)")
_add("input requires grad read", "class Model(nn.Module):\n    def forward(self, x): return x * (2 if x.requires_grad else 3)\n", "args = (args[0].clone().requires_grad_(),)", make="import app\nmodel = app.Model().eval(); args = (torch.rand(3, 4),)")
_add("Python attribute on input tensor", "class Model(nn.Module):\n    def forward(self, x): return x * getattr(x, 'gain', 2.0)\n", "args[0].gain = 3.0", make="import app\nmodel = app.Model().eval(); args = (torch.rand(3, 4),)")
_add("Python attribute on parameter", _model("self.lin(x) * getattr(self.lin.weight, 'gain', 2.0)"), "model.lin.weight.gain = 3.0")
_add("argument is an OrderedDict", "class Model(nn.Module):\n    def forward(self, d):\n        y = 0\n        for v in d.values(): y = (y + 1) * v\n        return y\n", "args[0].move_to_end('a')", make="import app, collections\nmodel = app.Model().eval(); args = (collections.OrderedDict(a=torch.ones(3), b=torch.full((3,), 2.)),)")
_add("parameter through weakref", _model("x * self.r()", "self.p = nn.Parameter(torch.ones(4)); self.r = weakref.ref(self.p)", "import weakref"), "model.p.data.fill_(2.)")
_add("parameter in functools.partial", _model("self.f(x)", "self.p = nn.Parameter(torch.ones(4)); self.f = functools.partial(torch.mul, self.p)", "import functools"), "model.p.data.fill_(2.)")
_add("bound method of parameter", _model("self.f(x)", "self.p = nn.Parameter(torch.ones(4)); self.f = self.p.mul"), "model.p.data.fill_(2.)")
_add("detached alias as plain attribute", _model("x * self.d", "self.p = nn.Parameter(torch.ones(4)); self.d = self.p.detach()"), "model.p.data.fill_(2.)")
_add("persistent buffer also in a list", _model("x * self.l[0]", "self.register_buffer('b', torch.ones(4)); self.l = [self.b]"), "model.b.fill_(2.)")
_add("buffer in a dataclass", _model("x * self.l.t", "self.register_buffer('b', torch.ones(4)); self.l = C(self.b)", "import dataclasses\n@dataclasses.dataclass\nclass C:\n    t: object"), "model.b.fill_(2.)")
_add("rope table in lru_cache", _model("x * rope(4)", "", "import functools\nBASE = 2.0\n@functools.lru_cache\ndef rope(n): return torch.arange(n) * BASE"), "app.BASE = 5.0; app.rope.cache_clear(); app.rope(4); app.BASE = 2.0")
_add("module as lru_cache key self", _model("x * self.tab(4)", "self.base = 2.0; self.tab(4)", "import functools", "@functools.lru_cache\ndef tab(self, n): return self.base * n"), "app.Model.tab.cache_clear(); model.base = 3.0; model.tab(4); model.base = 2.0")
_add("shared parameter dict param group", _model("x * self.pd['a']", "self.pd = nn.ParameterDict(dict(a=torch.ones(4), b=torch.ones(4) * 2))"), "model.pd['a'], model.pd['b'] = model.pd['b'], model.pd['a']", harmless=True)
_add("ParameterList holds a non tensor", _model("x * self.pl[1]", "self.pl = nn.ParameterList([torch.ones(4), 2.0])"), "model.pl[1] = 3.0")
_add("parameter subclass replaced", _model("x * (2 if type(self.w) is nn.Parameter else 3)", "self.w = nn.Parameter(torch.ones(4))", "class MyP(nn.Parameter): pass"), "model.w = app.MyP(torch.ones(4))")
_add("FunctionType with custom globals", _model("f(x)", "", "import types\ndef g(x): return x * K\nNS = {'K': 2.0}\nf = types.FunctionType(g.__code__, NS)"), "app.NS['K'] = 3.0")
_add("a new module global hides a builtin", _model("x * max(2.0, 1.0)"), "app.max = min")
_add("a helper's new global hides a builtin", _model("u.f(x)", "", "import u") + "--- u.py\ndef f(x): return x * max(2.0, 1.0)\n", "import u; u.max = min")
_add("builtins.max patched", _model("x * max(2.0, 1.0)"), "import builtins; old = max; builtins.max = lambda *a: 5.0")
_add("closure cell rewritten", _model("f(x)", "", "def mk():\n    k = 2.0\n    def f(x): return x * k\n    return f\nf = mk()"), "app.f.__closure__[0].cell_contents = 3.0")
_add("kwdefaults patched", _model("f(x)", "", "def f(x, *, k=2.0): return x * k"), "app.f.__kwdefaults__['k'] = 3.0")
_add("__code__ swapped", _model("f(x)", "", "def f(x): return x * 2\ndef g(x): return x * 3"), "app.f.__code__ = app.g.__code__")
_add("const 0.0 to -0.0", _model("torch.full_like(x, f()).reciprocal()", "", "def f(): return 0.0"), "", ("return 0.0", "return -0.0"))
_add("attr 0.0 to -0.0", _model("torch.full_like(x, self.z).reciprocal()", "self.z = 0.0"), "model.z = -0.0")
_add("attr 1 to True", _model("x * 2 if self.z is True else x * 3", "self.z = 1"), "model.z = True")
_add("attr 2 to 2.0 (dtype promotion)", _model("torch.arange(4) * self.z", "self.z = 2"), "model.z = 2.0")
_add("set of ints with another insertion order", _model("y = x\nfor i in self.s: y = torch.sin(y) * (i + 1)\nreturn y", "self.s = {0, 8}"), "model.s = {8, 0}")
_add("frozenset of ints with another insertion order", _model("y = x\nfor i in self.s: y = torch.sin(y) * (i + 1)\nreturn y", "self.s = frozenset([0, 8])"), "model.s = frozenset([8, 0])")
_add("ContextVar value", _model("x * CV.get()", "", "import contextvars\nCV = contextvars.ContextVar('cv', default=2.0)"), "app.CV.set(3.0)")
_add("hasattr on module", _model("u.fast(x) if hasattr(u, 'fast') else x * 2", "", "import u") + "--- u.py\n", "import u; u.fast = lambda x: x * 7")
_add("composed getattr on module with default", _model("getattr(u, 'op_' + self.k, torch.sin)(x)", "self.k = 'a'", "import u") + "--- u.py\n", "import u; u.op_a = lambda x: x * 7")
_add("__all__ read", _model("x * len(u.__all__)", "", "import u") + "--- u.py\n__all__ = ['a']\na = b = 1\n", "", ("['a']", "['a', 'b']"))
_add("match class pattern on config", _model("match self.c:\n    case C(kind='a'): return x * 2\n    case _: return x * 3", "self.c = C()", "class C:\n    def __init__(self): self.kind = 'a'"), "model.c.kind = 'b'")
_add("match_args changed", _model("match self.c:\n    case C(1): return x * 2\n    case _: return x * 3", "self.c = C()", "class C:\n    __match_args__ = ('p',)\n    p = 1\n    q = 2"), "app.C.__match_args__ = ('q',)")

_T = "import functools\nBASE = 2.0\n@functools.lru_cache\ndef rope(n): return torch.arange(n) * BASE\n"
_add("rope A: filled in both, values differ", _model("x * rope(4)", "", _T + "rope(4)"), "app.BASE = 5.0; app.rope.cache_clear(); app.rope(4); app.BASE = 2.0")
_add("rope B: filled in the first, empty in second", _model("x * rope(4)", "", _T + "rope(4)\nBASE = 7.0"), "app.rope.cache_clear()")
_add("rope C: empty, then filled with float", _model("x * rope(4)", "", _T.replace("torch.arange(n)", "n")), "app.BASE = 5.0; app.rope(4); app.BASE = 2.0", live=False)
_add("rope D: empty, then filled with tensor, pair only", _model("x * rope(4)", "", _T), "app.BASE = 5.0; app.rope(4); app.BASE = 2.0", live=False)
_add("rope G: tuple of tensors cached", _model("x * rope(4)[1]", "", _T.replace("return torch.arange(n) * BASE", "return (1, torch.arange(n) * BASE)")), "app.BASE = 5.0; app.rope.cache_clear(); app.rope(4); app.BASE = 2.0")
_add("rope H: hand-written dict cache", _model("if 4 not in C: C[4] = torch.arange(4) * BASE\nreturn x * C[4]", "", "C = {}\nBASE = 2.0"), "app.C.clear(); app.C[4] = torch.arange(4) * 5.0")
_add("rope J: cache warmed by an eager call with another config", _model("x * rope(4)", "", _T), "app.BASE = 5.0; app.rope.cache_clear(); model(torch.rand(3, 4)); app.BASE = 2.0")
_add("rope L: cached user object", _model("x * rope(4).k", "", "import functools\nBASE = 2.0\nclass M:\n    def __init__(s, k): s.k = k\n@functools.lru_cache\ndef rope(n): return M(BASE)\n"), "app.BASE = 5.0; app.rope.cache_clear(); app.rope(4); app.BASE = 2.0")
_add("rope M: plain BASE is changed (cache cleared) in pair", _model("x * rope(4)", "", _T), "", ("BASE = 2.0", "BASE = 3.0"))

_TF = """
import os
os.environ.setdefault('HF_HUB_OFFLINE', '1')
from transformers import BertConfig, BertModel
"""
_BC = "BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=10, max_position_embeddings=16, attn_implementation='eager'%s)"
def _bert(fwd, more="", top="", init=""):
    return ("from transformers import BertConfig, BertModel\nimport transformers\n" + top + "\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.m = BertModel(" + _BC % more + ").eval()\n" + "".join("        %s\n" % line for line in init.splitlines()) +
      "    def forward(self, x):\n        h = self.m(inputs_embeds=torch.cat([x, x], -1)[None]).last_hidden_state\n        " + fwd.replace("\n", "\n        ") + "\n")
_add("bert ALL_ATTENTION_FUNCTIONS registers custom", _bert("return h", "").replace("'eager'", "'sdpa'"), "import transformers.modeling_utils as mu\ndef att(m, q, k, v, mask, **kw):\n    return v.transpose(1, 2).contiguous() * 3, None\napp.att = att\nmu.ALL_ATTENTION_FUNCTIONS.register('sdpa', att) if hasattr(mu.ALL_ATTENTION_FUNCTIONS, 'register') else mu.ALL_ATTENTION_FUNCTIONS.__setitem__('sdpa', att)")
_add("bert layer dropped", _bert("return h"), "model.m.encoder.layer = model.m.encoder.layer[:0]")
_add("bert layer_norm eps", _bert("return h"), "model.m.encoder.layer[0].output.LayerNorm.eps = 0.3")
_add("subclass config compared completely", "from transformers import BertConfig, BertModel\nclass MyC(BertConfig): pass\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.m = BertModel(MyC(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=10, max_position_embeddings=16, attn_implementation='eager')).eval()\n    def forward(self, x):\n        return x * (2 if self.m.config.hidden_act == 'gelu' else 3)\n", "model.m.config.hidden_act = 'relu'")
_add("config unrelated origin metadata", _bert("return h"), "model.m.config._name_or_path = 'abc'", harmless=True)
_add("config output_hidden_states", _bert("return self.m(inputs_embeds=torch.cat([x, x], -1)[None], return_dict=True)[-1]"), "model.m.config.output_hidden_states = True")
_add("config use_return_dict false", _bert("return self.m(inputs_embeds=torch.cat([x, x], -1)[None])[0] if isinstance(self.m(inputs_embeds=torch.cat([x, x], -1)[None]), tuple) else h * 2"), "model.m.config.return_dict = False")
_add("bert is_decoder flag", _bert("return h"), "model.m.config.is_decoder = True; model.m.is_decoder = True\nfor l in model.m.encoder.layer:\n    l.is_decoder = True; l.attention.self.is_decoder = True; l.attention.self.is_causal = True")
_LL = """
from transformers import LlamaConfig, LlamaModel
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = LlamaModel(LlamaConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, intermediate_size=8, vocab_size=10, max_position_embeddings=16, use_cache=False, attn_implementation='eager')).eval()
    def forward(self, x):
        return self.m(inputs_embeds=torch.cat([x, x], -1)[None]).last_hidden_state
"""
_add("llama rope attention scaling", _LL, "model.m.rotary_emb.attention_scaling = 2.0")
_add("llama rope inv_freq non persistent values", _LL, "model.m.rotary_emb.inv_freq.mul_(3.)")
_add("llama rope type", _LL, "model.m.rotary_emb.rope_type = 'dynamic'; model.m.rotary_emb.inv_freq.mul_(2.)")
_add("llama rms eps", _LL, "model.m.norm.variance_epsilon = 0.5")
_add("llama num key value groups", _LL, "model.m.layers[0].self_attn.scaling = 2.0")
_add("torch.compiler.disable'd function", _model("f(x)", "", "K = 2.0\n@torch.compiler.disable\ndef f(x): return x * K"), "app.K = 3.0")
_add("autograd Function reads class attr", _model("Fn.apply(x)", "", "class Fn(torch.autograd.Function):\n    k = 2.0\n    @staticmethod\n    def forward(ctx, x): return x * Fn.k\n    @staticmethod\n    def backward(ctx, g): return g"), "app.Fn.k = 3.0")
_add("checkpoint use_reentrant", _model("cp.checkpoint(self.blk, x, use_reentrant=False)", "self.k = 2.0", "import torch.utils.checkpoint as cp", "def blk(self, x): return x * self.k"), "model.k = 3.0")
_add("functional_call with other dict", _model("torch.func.functional_call(self.lin, {'bias': self.b}, (x,))", "self.b = nn.Parameter(torch.ones(4) * 3)"), "model.b = torch.nn.Parameter(torch.ones(1))")
_add("autocast enabled by config", _model("with torch.autocast('cpu', dtype=torch.bfloat16, enabled=self.amp):\n    return self.lin(x).float()", "self.amp = False"), "model.amp = True")
_add("einsum equation string", _model("torch.einsum(self.eq, x, x)", "self.eq = 'bi,bj->b'"), "model.eq = 'bi,bi->b'")
_add("rearrange-like pattern parser with lru_cache", _model("re_(x, self.p)", "self.p = 'a b -> b a'", "import functools\n@functools.lru_cache\ndef parse(p):\n    l, r = p.split('->')\n    return tuple(l.split().index(t) for t in r.split())\ndef re_(x, p): return x.permute(parse(p))"), "model.p = 'a b -> a b'")
_add("nn.Linear.forward patched globally", _model("self.lin(x)"), "torch.nn.Linear.forward = lambda s, x: x * 3")
_add("nn.Module.__call__ patched", _model("self.lin(x)"), "o = torch.nn.Module.__call__\ntorch.nn.Module.__call__ = lambda s, *a, **k: o(s, *a, **k) if not isinstance(s, torch.nn.Linear) else a[0] * 3")
_add("Tensor method added", _model("x.gain() if hasattr(x, 'gain') else x * 2"), "torch.Tensor.gain = lambda s: s * 3")
_add("torch.fft patched", _model("torch.fft.fft(x).real"), "torch.fft.fft = lambda x: torch.complex(x, x)")
_add("numpy function patched", _model("x * float(np.sqrt(4.0))", "", "import numpy as np"), "import numpy; numpy.sqrt = lambda v: 3.0")
_add("numpy array attr values", _model("x * torch.from_numpy(self.a)", "self.a = np.ones(4, dtype=np.float32)", "import numpy as np"), "model.a[:] = 3")
_add("numpy Generator drawn in forward", _model("x * self.a[0].item()", "self.a = np.random.default_rng(0).random(2)", "import numpy as np"), "", ("default_rng(0)", "default_rng(1)"))
_add("numpy writeable flag (again)", _model("x * (2 if self.a.flags.writeable else 3)", "self.a = np.ones(4)", "import numpy as np"), "model.a.flags.writeable = False")
_add("re pattern flags", _model("x * 2 if self.p.match('ABC') else x * 3", "self.p = re.compile('abc')", "import re"), "import re; model.p = re.compile('abc', re.I)")
_add("regex skip list for quantization", _model("y = x\nfor n, m in self.named_modules():\n    if n and not re.search(self.skip, n): y = m(y)\nreturn y", "self.skip = 'head'; self.body = nn.ReLU()", "import re"), "model.skip = 'body'")
_add("inspect.signature filters kwargs", _model("f(x, **{k: v for k, v in self.kw.items() if k in inspect.signature(f).parameters})", "self.kw = dict(k=3.0)", "import inspect\ndef f(x, k=2.0): return x * k"), "app.f = lambda x, j=2.0: x * j")
_add("reduce getattr over dotted path", _model("functools.reduce(getattr, self.path.split('.'), self)(x)", "self.path = 'a.b'; self.a = nn.Module(); self.a.b = nn.Tanh(); self.a.c = nn.ReLU()", "import functools"), "model.path = 'a.c'")
_add("get_submodule target string", _model("self.get_submodule(self.path)(x)", "self.path = 'a.b'; self.a = nn.Module(); self.a.b = nn.Tanh(); self.a.c = nn.ReLU()"), "model.path = 'a.c'")

_T = "import functools\nBASE = 2.0\n"
_add("cached_property of a config object yields a tensor", _model("x * self.c.t", "self.c = C()", _T + "class C:\n    base = 2.0\n    @functools.cached_property\n    def t(self): return torch.arange(4) * self.base"), "app.C.base = 5.0; model.c.__dict__.pop('t', None); model.c.t; app.C.base = 2.0")
_add("lru_cache returns a list that is mutated", _model("x * f(1)[0]", "", _T + "@functools.lru_cache\ndef f(n): return [2.0]"), "app.f(1)[0] = 3.0")
_add("lru_cache dtype of cached tensor", _model("(x * f(1)).float()", "", _T + "DT = torch.float32\n@functools.lru_cache\ndef f(n): return torch.full((4,), 1.0 / 3, dtype=DT)"), "app.f.cache_clear(); app.DT = torch.float64; app.f(1); app.DT = torch.float32")
_add("lru_cache shape of cached tensor", _model("x * f(1).sum()", "", _T + "N = 2\n@functools.lru_cache\ndef f(n): return torch.ones(N)"), "app.f.cache_clear(); app.N = 3; app.f(1); app.N = 2")
_add("lru_cache two keys, one is filled before", _model("x * f(1) * f(2)", "", _T + "@functools.lru_cache\ndef f(n): return torch.arange(4) * BASE"), "app.f.cache_clear(); app.BASE = 5.0; app.f(2); app.BASE = 2.0")
_add("lru_cache numpy array", _model("x * torch.from_numpy(f(4))", "", _T + "import numpy as np\n@functools.lru_cache\ndef f(n): return np.arange(n) * BASE"), "app.f.cache_clear(); app.BASE = 5.0; app.f(4); app.BASE = 2.0")
_add("lru_cache key order of eviction", _model("x * f(1)", "", _T + "@functools.lru_cache(maxsize=1)\ndef f(n): return n * BASE"), "app.f.cache_clear(); app.BASE = 5.0; app.f(1); app.BASE = 2.0")
_add("ChainMap over os.environ", _model("x * float(C['GAINX'])", "", "import os, collections\nC = collections.ChainMap({}, os.environ)"), "import os; os.environ['GAINX'] = '3'", environ={"GAINX": "2"})
_add("bound os.environ.get in attribute", _model("x * float(self.get('GAINX'))", "self.get = os.environ.get", "import os"), "import os; os.environ['GAINX'] = '3'", environ={"GAINX": "2"})
_add("partial of os.getenv", _model("x * float(self.get())", "self.get = functools.partial(os.getenv, 'GAINX', '2')", "import os, functools"), "import os; os.environ['GAINX'] = '3'")
_add("expanduser", _model("x * len(os.path.expanduser('~'))", "", "import os"), "import os; os.environ['HOME'] = '/abcdefghijklmnop'")
_add("os.environb", _model("x * float(os.environb.get(b'GAINX', b'2'))", "", "import os"), "import os; os.environ['GAINX'] = '3'")
_add("pathlib expandvars of a cfg path name", _model("x * len(os.path.expandvars(self.p))", "self.p = '$DATA_ROOT/a'", "import os"), "import os; os.environ['DATA_ROOT'] = 'abc'")
_U = "--- u.py\ndef _d(x): return x + 1\n"
for _n, _e, _i, _a in [
  ("device type", "x.device.type", "", "cpu"), ("class name of layer", "type(self.lin).__name__", "", "Linear"), ("_get_name", "self.lin._get_name()", "", "Linear"),
  ("dtype string", "str(x.dtype).split('.')[-1]", "", "float32"), ("bytes decoded", "b'op_a'.decode()", "", "op_a"), ("bytes attribute decoded", "self.b.decode()", "self.b = b'op_a'", "op_a"),
  ("numpy string array", "str(self.n[0])", "import numpy as np; self.n = np.array(['op_a'])", "op_a"), ("reversed", "'a_po'[::-1]", "", "op_a"), ("chr", "chr(97)", "", "a"),
  ("path stem", "self.p.stem", "import pathlib; self.p = pathlib.Path('x/op_a.py')", "op_a"), ("precision name", "torch.get_float32_matmul_precision()", "", "highest"),
  ("quantized engine", "torch.backends.quantized.engine", "", "x86"), ("function name", "F.relu.__name__", "", "relu"), ("swapcase", "'OP_A'.swapcase()", "", "op_a"),
  ("translate", "'op-a'.replace('-', '_')", "", "op_a"), ("child name", "[n for n, _ in self.named_children()][0]", "", "lin"), ("child name dotted", "[n for n, _ in self.named_parameters()][1]", "", "lin.bias"),
  ("parameter name of signature", "'_'.join(['op', 'a'])", "", "op_a"), ("ascii letters", "string.ascii_lowercase[0]", "import string; globals()['string'] = string", "a"),
  ("enum name", "self.e.name", "import enum; self.e = enum.Enum('E', 'op_a op_b').op_a", "op_a"), ("layout", "str(x.layout)[6:]", "", "strided"),
  ("json escaped", "json.loads(self.j)", "self.j = '\"op\\\\u005fa\"'", "op_a"), ("removeprefix", "self.k.removeprefix('my')", "self.k = 'myop_a'", "op_a"), ("op overload name", "torch.ops.aten.relu.default._schema.name.split('::')[1]", "", "relu"),
  ("typename", "torch.typename(x).split('.')[-1]", "", "FakeTensor"), ("memory format", "str(torch.channels_last)[6:]", "", "channels_last"), ("finfo", "torch.finfo(x.dtype).dtype", "", "float32"),
  ("re group", "re.match('x(.*)', 'xop_a').group(1)", "", "op_a"), ("str.partition of attr", "self.k.partition('x')[2]", "self.k = 'zzxop_a'", "op_a"), ("f-string of int", "f'op{x.dim()}'", "", "op2"), ("env value", "os.environ['ACTN']", "", "op_a"),
]:
    _add("attribute of a module is named by " + _n, _model("getattr(u, " + _e + ", u._d)(x)", _i, "import u, json, re, os, string") + _U, "import u; setattr(u, %r, lambda x: x * 7)" % _a, environ={"ACTN": "op_a"})

_T = "import functools\nBASE = 2.0\n"
_add("lru_cache real tensor mutated in place", _model("x * f(4)", "", _T + "@functools.lru_cache\ndef f(n): return torch.arange(n) * BASE\nf(4)"), "app.f(4).mul_(3)")
_add("lru_cache one real entry mutated, another filled by export", _model("x * f(4) * f(1)", "", _T + "@functools.lru_cache\ndef f(n): return torch.arange(n) * BASE + 1\nf(4)"), "app.f(4).mul_(3)", live=False)
_add("lru_cache returns a dict of tensors and a float", _model("x * f(4)['t'] * f(4)['k']", "", _T + "@functools.lru_cache\ndef f(n): return {'t': torch.ones(n), 'k': BASE}"), "app.f.cache_clear(); app.BASE = 5.0; app.f(4); app.BASE = 2.0", live=False)
_add("lru_cache gets a Parameter instead of a tensor", _model("x * (2 if isinstance(f(4), nn.Parameter) else 3)", "", _T + "W = False\n@functools.lru_cache\ndef f(n): return nn.Parameter(torch.ones(n)) if W else torch.ones(n)"), "app.f.cache_clear(); app.W = True; app.f(4); app.W = False", live=False)
_add("lru_cache result requires grad", _model("x * (2 if f(4).requires_grad else 3)", "", _T + "W = False\n@functools.lru_cache\ndef f(n): return torch.ones(n, requires_grad=W)"), "app.f.cache_clear(); app.W = True; app.f(4); app.W = False", live=False)
_add("module attribute memo on a plain helper object", _model("x * self.h.get()", "self.h = H()", "class H:\n    base = 2.0\n    def __init__(self): self.c = {}\n    def get(self):\n        if 4 not in self.c: self.c[4] = torch.arange(4) * self.base\n        return self.c[4]"), "model.h.c[4] = torch.arange(4) * 5.0", live=False)
for _op, _e in [("rsub.Scalar", "1 - x"), ("hardtanh.default", "F.hardtanh(x)"), ("softplus.default", "F.softplus(x)")]:
    _add("decomposition replaced " + _op, _model(_e), "import torch._decomp; torch._decomp.decomposition_table[torch.ops.aten.%s] = lambda x, *a: x * 3" % _op, harmless=True, live=False)

_add("try-import optional fast kernel appears b", _model("op(x)", "", "try:\n    from fastop import op\nexcept ImportError:\n    def op(x): return x + 1"), "", added="--- fastop.py\ndef op(x): return x + 2\n", live=False)
_add("lru_cache prefilled entry only, export adds another with a tensor, minimal", _model("x * f(1) * f(2)", "", "import functools\nK = 2.0\n@functools.lru_cache\ndef f(n): return torch.full((4,), K) if n == 2 else K\nf(1)"), "app.f.cache_clear(); app.K = 3.0; app.f(1); app.K = 2.0", live=False)
