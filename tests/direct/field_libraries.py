"""Changes to libraries: patches, replaced modules, classes and globals, left-open contexts. They are added to ``field_scenarios``."""

# fmt: off
from __future__ import annotations

from tests.direct.field_scenarios import _add, _model

_add("F.gelu is replaced by the tanh approximation",
     _model("F.gelu(self.lin(x))"), """
import torch.nn.functional as F
old = F.gelu
F.gelu = lambda x, approximate='none': old(x, approximate='tanh')
""")
_add("torch.Tensor.relu is replaced", _model("x.relu()"), "torch.Tensor.relu = lambda self: self.clamp(min=0.5)")
_add("torch.Tensor gets a method my_scale, changed between runs", _model("x.my_scale()", top="torch.Tensor.my_scale = lambda self: self * 2"),
     "torch.Tensor.my_scale = lambda self: self * 3")
_add("nn.Linear.forward is patched", _model("self.lin(x)"), """
from torch import nn
import torch.nn.functional as F
def forward(self, x):
    return F.linear(x, self.weight, self.bias) * 2
nn.Linear.forward = forward
""")
_add("nn.Linear.forward.__code__ is replaced", _model("self.lin(x)"), """
from torch import nn
def forward(self, input):
    return F.linear(input, self.weight, self.bias) * 2
nn.Linear.forward.__code__ = forward.__code__
""")
_add("F.layer_norm gets another default eps by __defaults__", _model("F.layer_norm(x, (4,))"), """
import torch.nn.functional as F
F.layer_norm.__defaults__ = (None, None, 0.5)
""")
_add("F.gelu in nn.GELU is patched through the module's globals", _model("self.act(x)", "self.act = nn.GELU()"), """
import torch.nn.modules.activation as a
class Fake:
    def __getattr__(self, name):
        import torch.nn.functional as F
        return getattr(F, name)
    @staticmethod
    def gelu(x, approximate='none'):
        return x * 0.5
a.F = Fake()
""")
_add("nn.Module.__call__ is patched to double outputs", _model("self.lin(x)"), """
from torch import nn
old = nn.Module.__call__
def call(self, *a, **k):
    r = old(self, *a, **k)
    return r * 2 if isinstance(self, nn.Linear) else r
nn.Module.__call__ = call
""")
_add("nn.Module._call_impl is patched", _model("self.lin(x)"), """
from torch import nn
old = nn.Module._call_impl
def call(self, *a, **k):
    r = old(self, *a, **k)
    return r * 2 if isinstance(self, nn.Linear) else r
nn.Module._call_impl = call
""")
_add("torch.Tensor.__mul__ is wrapped", _model("x * 2"), """
old = torch.Tensor.__mul__
torch.Tensor.__mul__ = lambda a, b: old(a, b) + 1
""")
_add("torch.Tensor.__rmul__ is wrapped", _model("2 * x"), """
old = torch.Tensor.__rmul__
torch.Tensor.__rmul__ = lambda a, b: old(a, b) + 1
""")
_add("a parametrization's forward function is patched", _model("self.lin(x)", "torch.nn.utils.parametrize.register_parametrization(self.lin, 'weight', Sym())", """
class Sym(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).T
"""), "app.Sym.forward = lambda self, w: w.tril()")
_add("torch.nn.utils.spectral_norm's compute_weight is patched", _model("self.lin(x)", "torch.nn.utils.spectral_norm(self.lin)"), """
import torch.nn.utils.spectral_norm as s
import sys
s = sys.modules['torch.nn.utils.spectral_norm']
old = s.SpectralNorm.compute_weight
s.SpectralNorm.compute_weight = lambda self, module, do_power_iteration: old(self, module, do_power_iteration) * 2
""")
_add("torch.fx wrap of a function whose body changes", _model("helper(x)", top="""
import torch.fx
@torch.fx.wrap
def helper(x):
    return x * 2
"""), "", ("return x * 2", "return x * 3"))
_add("an autograd.Function has another forward", _model("Fn.apply(x)", top="""
class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g
"""), "app.Fn.forward = staticmethod(lambda ctx, x: x * 3)")
_add("an autograd.Function has another base class forward", _model("Fn.apply(x)", top="""
class Base(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g
class Fn(Base): pass
"""), "app.Base.forward = staticmethod(lambda ctx, x: x * 3)")
_add("only the backward of an autograd.Function is changed in place", _model("Fn.apply(x)", top="""
class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g
"""), "app.Fn.forward.__code__ = (lambda ctx, x: x * 4).__code__")
_add("a TorchFunctionMode used in forward has another table", _model("""
with Mode():
    return torch.relu(x)
""", top="""
from torch.overrides import TorchFunctionMode
TABLE = {torch.relu: torch.sigmoid}
class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return TABLE.get(func, func)(*args, **(kwargs or {}))
"""), "app.TABLE[torch.relu] = torch.tanh")
_add("a TorchFunctionMode is left open globally", _model("torch.relu(x)"), """
from torch.overrides import TorchFunctionMode
class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.relu:
            return torch.sigmoid(*args)
        return func(*args, **(kwargs or {}))
m = Mode()
m.__enter__()
""")
_add("a TorchDispatchMode is left open globally", _model("torch.relu(x)"), """
from torch.utils._python_dispatch import TorchDispatchMode
class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.relu.default:
            return torch.sigmoid(*args)
        return func(*args, **(kwargs or {}))
m = Mode()
m.__enter__()
""", live=False)
_add("a global default device left open meta", _model("x + torch.ones(4)"), "torch.set_default_dtype(torch.float64)")
_add("torch.ones patched", _model("x + torch.ones(4)"), "old = torch.ones; torch.ones = lambda *a, **k: old(*a, **k) * 2")
_add("torch.nn.functional.relu gets replaced, used by nn.ReLU", _model("self.act(x)", "self.act = nn.ReLU()"), """
import torch.nn.functional as F
F.relu = lambda x, inplace=False: x * 5
""")
_add("a Sequential's forward is replaced on the class", _model("self.s(x)", "self.s = nn.Sequential(nn.ReLU(), nn.Tanh())"), """
def fwd(self, x):
    for m in reversed(list(self)):
        x = m(x)
    return x + 1
torch.nn.Sequential.forward = fwd
""")
_add("ModuleDict.items is replaced", _model("""
for n, m in self.s.items():
    x = m(x)
return x
""", "self.s = nn.ModuleDict({'a': nn.Sigmoid(), 'b': nn.Tanh()})"), """
old = torch.nn.ModuleDict.items
torch.nn.ModuleDict.items = lambda self: list(old(self))[1:]
""")
_add("nn.Module.children patched", _model("""
for m in self.children():
    x = m(x)
return x
""", "self.s = nn.Tanh()"), """
old = torch.nn.Module.children
torch.nn.Module.children = lambda self: list(old(self))[1:]
""")
_add("nn.Module.named_children code replaced", _model("""
for m in self.children():
    x = m(x)
return x
""", "self.s = nn.Tanh()"), """
def named_children(self):
    for n, m in list(self._modules.items())[1:]:
        yield n, m
torch.nn.Module.named_children.__code__ = named_children.__code__
""")
_add("torch.Tensor.__getitem__ wrapped", _model("x[1:]"), """
old = torch.Tensor.__getitem__
torch.Tensor.__getitem__ = lambda a, i: old(a, i) * 2
""")
_add("torch.Tensor.shape property replaced", _model("x * x.shape[1]"), """
old = torch.Tensor.shape
torch.Tensor.shape = property(lambda s: torch.Size((7, 7)))
""")
_add("torch.Tensor.size replaced", _model("x * x.size(1)"), """
old = torch.Tensor.size
torch.Tensor.size = lambda s, d=None: 7
""")
_add("torch.finfo replaced", _model("x * torch.finfo(x.dtype).bits"), """
class finfo:
    def __init__(self, d): self.bits = 5
torch.finfo = finfo
""")
_add("torch.overrides.has_torch_function_unary in F replaced", _model("F.softmax(x, -1)"), """
import torch.nn.functional as F
F.has_torch_function_unary = lambda x: True
F.handle_torch_function = lambda f, t, x, *a, **k: x * 3
""")
_add("math.sqrt replaced", _model("x * math.sqrt(4)", top="import math"), "import math; math.sqrt = lambda v: v")
_add("math.pi replaced", _model("x * math.pi", top="import math"), "import math; math.pi = 3.0")
_add("builtins.max replaced", _model("x * max(1, 2)"), "import builtins; builtins.max = lambda *a: 7")
_add("builtins gets a new name shadowing nothing", _model("x * SCALE", top="import builtins\nbuiltins.SCALE = 2"), "import builtins; builtins.SCALE = 3")
_add("builtins.len is wrapped by app.len", _model("x * len(self.items)", "self.items = [1,2]"), "app.len = lambda o: 9")
_add("torch.nn.functional.scaled_dot_product_attention wrapped", _model("F.scaled_dot_product_attention(x[None], x[None], x[None])"), """
import torch.nn.functional as F
old = F.scaled_dot_product_attention
def sdpa(q, k, v, **kw):
    return old(q, k, v, scale=1.0)
F.scaled_dot_product_attention = sdpa
""")
_add("MultiheadAttention's F function replaced", _model("self.mha(x[None], x[None], x[None])[0]", "self.mha = nn.MultiheadAttention(4, 2, batch_first=True).train()"), """
import torch.nn.functional as F
old = F.multi_head_attention_forward
def f(*a, **k):
    o, w = old(*a, **k)
    return o * 2, w
F.multi_head_attention_forward = f
""")
_add("torch.backends.mha fastpath disabled", _model("self.enc(x[None])", "self.enc = nn.TransformerEncoderLayer(4, 2, batch_first=True).eval()"), "torch.backends.mha.set_fastpath_enabled(False)", make="""
import app
model = app.Model().eval()
for p in model.parameters(): p.requires_grad_(False)
""")
_add("torch.set_printoptions is changed", _model("x * 2"), "torch.set_printoptions(precision=2)", harmless=True)
_add("printoptions influence a parse", _model("x * self.p()", more="def p(self):\n    from torch._tensor_str import PRINT_OPTS\n    return PRINT_OPTS.precision"), "torch.set_printoptions(precision=2)")
_add("np printoptions read", _model("x * np.get_printoptions()['precision']", top="import numpy as np"), "import numpy as np; np.set_printoptions(precision=3)")
_add("np error state read", _model("x * len(np.geterr()['divide'])", top="import numpy as np"), "import numpy as np; np.seterr(divide='raise')")
_add("decimal precision read", _model("x * float(decimal.Decimal(1) / 3)", top="import decimal"), "import decimal; decimal.getcontext().prec = 3")
_add("torch config flag dynamo read", _model("x * torch._dynamo.config.recompile_limit", top="import torch._dynamo"), "torch._dynamo.config.recompile_limit = 3")
_add("F.dropout patched", _model("F.dropout(x, 0.5, training=False)"), "import torch.nn.functional as F; F.dropout = lambda x, p, training: x * p")
_add("torch.jit.is_scripting patched", _model("x * (2 if torch.jit.is_scripting() else 3)"), "torch.jit.is_scripting = lambda: True")
_add("torch.onnx.is_in_onnx_export patched", _model("x * (2 if torch.onnx.is_in_onnx_export() else 3)"), "import torch.onnx; torch.onnx.is_in_onnx_export = lambda: True")
_add("torch.cuda.is_available patched", _model("x * (2 if torch.cuda.is_available() else 3)"), "torch.cuda.is_available = lambda: True")
_add("torch.get_num_threads used", _model("x * torch.get_num_threads()"), "torch.set_num_threads(7)")
_add("nn.Identity.forward edited by code replacement", _model("self.i(x)", "self.i = nn.Identity()"), "torch.nn.Identity.forward.__code__ = (lambda self, input: input * 2).__code__")
_add("nn.Embedding extra attributes: F.embedding patched", _model("self.e(x.abs().long().clamp(max=3))", "self.e = nn.Embedding(4, 2)"), """
import torch.nn.functional as F
old = F.embedding
F.embedding = lambda *a, **k: old(*a, **k) * 4
""")
_add("nn.LayerNorm.__init__ patched default eps", _model("self.n(x)", "self.n = nn.LayerNorm(4)"), """
model.n.eps = 0.1
""")
_add("nn.LayerNorm default eps patched by __defaults__ before model", _model("self.n(x)", "self.n = nn.LayerNorm(4)"), "", second="""
from torch import nn
nn.LayerNorm.__init__.__defaults__ = (0.5,) + nn.LayerNorm.__init__.__defaults__[1:]
""", first="pass")
_add("torch.nn.modules.linear F.linear replaced in module", _model("self.lin(x)"), """
import torch.nn.modules.linear as l
import types
f = types.ModuleType('F')
f.__dict__.update(l.F.__dict__)
f.linear = lambda x, w, b: x @ w
l.F = f
""")
_add("nn.Softmax __call__ in subclass through bases", _model("self.s(x)", "self.s = My()", "class A:\n    k = 2.0\nclass B:\n    k = 3.0\nclass My(A, nn.Module):\n    def forward(self, x):\n        return x * self.k"), "app.My.__bases__ = (app.B, torch.nn.Module)")
_add("nn.Conv1d padding mode function replaced", _model("self.c(x[None])", "self.c = nn.Conv1d(3, 3, 3, padding=1, padding_mode='circular')"), """
import torch.nn.functional as F
F.pad = lambda x, p, mode='constant', value=None: x
""")
_add("nn.BatchNorm1d _check_input_dim patched harmless-ish", _model("self.b(x)", "self.b = nn.BatchNorm1d(4)"), """
torch.nn.BatchNorm1d.forward = lambda self, x: x * self.weight
""")
_add("nn.GRU's forward patched", _model("self.g(x)[0]", "self.g = nn.GRU(4, 4)"), """
old = torch.nn.GRU.forward
def f(self, x, h=None):
    a, b = old(self, x, h)
    return a * 2, b
torch.nn.GRU.forward = f
""")
_add("torch.utils.checkpoint.checkpoint replaced by direct call", _model("torch.utils.checkpoint.checkpoint(self.lin, x, use_reentrant=False)", top="import torch.utils.checkpoint"), """
import torch.utils.checkpoint as c
c.checkpoint = lambda f, *a, use_reentrant=None: f(*a) * 2
""")
_add("torch.einsum is replaced (again)", _model("torch.einsum('ij,kj->ik', x, x)"), "torch.einsum = lambda eq, *a: a[0] @ a[1].T * 2")
_add("torch.backends.opt_einsum disabled", _model("torch.einsum('ij,jk,kl->il', x, x.T, x)"), "torch.backends.opt_einsum.enabled = False", harmless=True)
_add("torch.functional._VF replaced", _model("torch.einsum('ij,kj->ik', x, x)"), """
import torch.functional as f
class V:
    def __getattr__(self, n):
        return getattr(torch._C._VariableFunctions, n)
    @staticmethod
    def einsum(eq, ops, path=None): return ops[0] * 2
f._VF = V()
""")
_add("torch.norm is wrapped by functools.wraps decorator", _model("torch.norm(x)"), """
import functools
def deco(f):
    @functools.wraps(f)
    def g(*a, **k):
        return f(*a, **k) * 2
    return g
torch.norm = deco(torch.norm)
""")
_add("torch.split wrapped via Tensor.split", _model("x.split(2, 1)[0]"), """
import functools
old = torch.Tensor.split
@functools.wraps(old)
def split(self, *a, **k):
    return old(self, *a, **k)[::-1]
torch.Tensor.split = split
""")
_add("Tensor.split code patched", _model("x.split(2, 1)[0]"), """
def split(self, split_size, dim=0):
    return [self * 2]
torch.Tensor.split.__code__ = split.__code__
""")
_add("torch.ops.aten.relu replaced on the namespace", _model("torch.ops.aten.relu(x)"), """
torch.ops.aten.relu = torch.ops.aten.sigmoid
""")
_add("torch.ops.aten.relu.default replaced on the packet", _model("torch.ops.aten.relu.default(x)"), """
torch.ops.aten.relu.default = torch.ops.aten.sigmoid.default
""")

P = """
import sys, os
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'vendor'))
"""
_add("a vendored library's constant is another", _model("x * tinylib.SCALE", top=P + "import tinylib") + "--- vendor/tinylib/__init__.py\nSCALE = 2.0\n", "", ("SCALE = 2.0", "SCALE = 3.0"))
_add("a vendored library monkeypatches torch on import", _model("F.relu(x)", top=P + "import tinylib") + "--- vendor/tinylib/__init__.py\nimport torch.nn.functional as G\nold = G.relu\ndef relu(x, inplace=False):\n    return old(x) * 2.0\nG.relu = relu\n", "", ("* 2.0", "* 3.0"))
_add("attrs class with converter changed", _model("x * self.c.k", "self.c = C(2)", """
import attrs
def conv(v): return v * 2.0
@attrs.define
class C:
    k: float = attrs.field(converter=conv)
"""), "", ("v * 2.0", "v * 3.0"))
_add("attrs frozen object changed by object.__setattr__", _model("x * self.c.k", "self.c = C(2.0)", """
import attrs
@attrs.frozen
class C:
    k: float
"""), "object.__setattr__(model.c, 'k', 3.0)")
_add("attrs evolve in forward with default changed", _model("x * attrs.evolve(self.c, j=1.0).k", "self.c = C(2.0)", """
import attrs
@attrs.define
class C:
    k: float
    j: float = 0.0
"""), "model.c.k = 3.0")
_add("pydantic model field changed", _model("x * self.c.k", "self.c = C(k=2.0)", """
import pydantic
class C(pydantic.BaseModel):
    k: float
"""), "model.c.k = 3.0")
_add("pydantic private attr changed", _model("x * self.c._k", "self.c = C()", """
import pydantic
class C(pydantic.BaseModel):
    _k: float = pydantic.PrivateAttr(2.0)
"""), "model.c._k = 3.0")
_add("pydantic extra field changed", _model("x * self.c.k", "self.c = C(k=2.0)", """
import pydantic
class C(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra='allow')
"""), "model.c.k = 3.0")
_add("pydantic computed_field function changed", _model("x * self.c.k2", "self.c = C(k=2.0)", """
import pydantic
class C(pydantic.BaseModel):
    k: float
    @pydantic.computed_field
    @property
    def k2(self) -> float:
        return self.k * 2.0
"""), "", ("self.k * 2.0", "self.k * 3.0"))
_add("pydantic settings from env read at construction", _model("x * self.c.k", "self.c = C()", """
import pydantic_settings
class C(pydantic_settings.BaseSettings):
    k: float = 2.0
"""), env={"K": "3.0"})
_add("networkx config backend", _model("x * len(nx.config.backend_priority.algos)", top="import networkx as nx"), "import networkx as nx; nx.config.backend_priority.algos = []", harmless=True)
_add("sortedcontainers dict used", _model("x * self.d['k']", "self.d = SortedDict(k=2.0)", "from sortedcontainers import SortedDict"), "model.d['k'] = 3.0")
_add("sortedlist order key replaced", _model("x * self.d[0]", "self.d = SortedKeyList([1.0, 2.0], key=key)", "from sortedcontainers import SortedKeyList\ndef key(v): return v"), "from sortedcontainers import SortedKeyList; model.d = SortedKeyList([1.0, 2.0], key=lambda v: -v)")
_add("SortedDict load factor altered, same items", _model("x * self.d['k']", "self.d = SortedDict(k=2.0)", "from sortedcontainers import SortedDict"), "from sortedcontainers import SortedDict; model.d = SortedDict(k=2.0)", harmless=True)
_add("yaml loader constructor registered", _model("x * self.cfg['k']", "self.cfg = yaml.safe_load('k: 2.0')", "import yaml"), "", second="""
import yaml
yaml.SafeLoader.add_constructor('tag:yaml.org,2002:float', lambda l, n: 3.0)
""", first="pass")
_add("yaml.safe_load in forward with other constructor", _model("x * yaml.safe_load('2.0')", top="import yaml"), "import yaml; yaml.SafeLoader.add_constructor('tag:yaml.org,2002:float', lambda l, n: 3.0)")
_add("yaml implicit resolver changed in forward", _model("x * yaml.safe_load('[2]')[0]", top="import yaml"), "import yaml; yaml.SafeLoader.add_constructor('tag:yaml.org,2002:int', lambda l, n: 3)")
_add("numpy function patched (again)", _model("x * float(np.sqrt(4.0))", top="import numpy as np"), "import numpy as np; np.sqrt = lambda v: v")
_add("numpy array constant changed", _model("x * float(C[0])", top="import numpy as np\nC = np.ones(3)"), "app.C[0] = 3")
_add("numpy linspace patched inner", _model("x * float(np.linspace(0, 1, 3)[1])", top="import numpy as np"), """
import sys
m = sys.modules['numpy._core.function_base']
m._nx_old = m._nx
class N:
    def __getattr__(self, n): return getattr(m._nx_old, n)
    def arange(self, *a, **k): return m._nx_old.arange(*a, **k) * 2
m._nx = N()
""")
_add("functools.partial args changed", _model("self.f(x)", "self.f = functools.partial(torch.clamp, min=0.0)", "import functools"), "import functools; model.f = functools.partial(torch.clamp, min=0.5)")
_add("functools.partial func.__kwdefaults__ changed", _model("self.f(x)", "self.f = functools.partial(helper)", "import functools\ndef helper(x, *, k=2.0):\n    return x * k"), "app.helper.__kwdefaults__['k'] = 3.0")
_add("a closure cell is changed", _model("self.f(x)", "self.f = make(2.0)", "def make(k):\n    def f(x):\n        return x * k\n    return f"), "model.f.__closure__[0].cell_contents = 3.0")
_add("a lru_cache hides another return", _model("x * cfg()", top="import functools\nK = 2.0\n@functools.lru_cache\ndef cfg():\n    return K"), "app.K = 3.0; app.cfg.cache_clear()")
_add("a cached_property changed", _model("x * self.k", more="@functools.cached_property\ndef k(self):\n    return K", top="import functools\nK = 2.0"), "app.K = 3.0; model.__dict__.pop('k', None)")
_add("importlib.reload of config module", _model("x * config.K", top="import config") + "--- config.py\nimport os\nK = float(os.environ.get('KK', '2.0'))\n", "import os, importlib; os.environ['KK'] = '3.0'; import config; importlib.reload(config)")
_add("sys.modules replaced by a config object", _model("x * config.K", top="import config") + "--- config.py\nimport sys\nclass C:\n    K = 2.0\nsys.modules[__name__] = C()\n", "import config; config.K = 3.0")
_add("module __class__ is replaced with property", _model("x * config.K", top="import config") + "--- config.py\nimport sys, types\n_k = 2.0\nclass M(types.ModuleType):\n    @property\n    def K(self):\n        return _k\nsys.modules[__name__].__class__ = M\n", "import config; config._k = 3.0")
_add("unittest.mock.patch.object left started", _model("x * helper()", top="def helper():\n    return 2.0"), "from unittest import mock; mock.patch.object(app, 'helper', lambda: 3.0).start()")
_add("unittest.mock.patch.dict left started", _model("x * CFG['k']", top="CFG = {'k': 2.0}"), "from unittest import mock; mock.patch.dict(app.CFG, k=3.0).start()")
_add("a descriptor's __get__ changed", _model("x * self.k", top="class D:\n    def __get__(self, o, t=None):\n        return 2.0", more="k = D()"), "app.D.__get__ = lambda s, o, t=None: 3.0")
_add("a metaclass attribute changed", _model("x * C.k", top="class M(type):\n    k = 2.0\nclass C(metaclass=M):\n    pass"), "app.M.k = 3.0")
_add("a metaclass __getattr__ changed", _model("x * C.k", top="class M(type):\n    def __getattr__(self, n):\n        if n == 'k':\n            return 2.0\n        raise AttributeError(n)\nclass C(metaclass=M):\n    pass"), "app.M.__getattr__ = lambda self, n: 3.0")
_add("object's __class__ replaced", _model("x * self.c.k()", "self.c = A()", "class A:\n    def k(self): return 2.0\nclass B:\n    def k(self): return 3.0"), "model.c.__class__ = app.B")
_add("model's __class__ replaced by a subclass", _model("x * 2"), """
class Model(app.Model):
    def forward(self, x): return x * 3
Model.__qualname__ = 'Model'; Model.__module__ = 'app'
model.__class__ = Model
""")
_add("__init_subclass__ registry order", _model("x * REG[0].k", top="REG = []\nclass Base:\n    def __init_subclass__(cls):\n        REG.insert(0, cls)\nclass A(Base):\n    k = 2.0"), "class B(app.Base):\n    k = 3.0")
_add("__class_getitem__ changed", _model("x * C[1]", top="class C:\n    def __class_getitem__(cls, k):\n        return 2.0"), "app.C.__class_getitem__ = classmethod(lambda c, k: 3.0)")
_add("__mro_entries__ used", _model("x * self.C.k", top="class A:\n    k = 2.0\nclass B:\n    k = 3.0\nclass E:\n    t = A\n    def __mro_entries__(self, b):\n        return (self.t,)\nentry = E()", init="class C(entry): pass\nself.C = C"), "", ("t = A", "t = B"))
_add("warnings filter error with fallback", _model("""
try:
    warnings.warn('old')
except UserWarning:
    return x * 3
return x * 2
""", top="import warnings"), "import warnings; warnings.simplefilter('error')")
_add("logging handler of own scaled state", _model("log.warning('a') or x * STATE[0]", top="import logging\nSTATE = [2]\nlog = logging.getLogger('my')"), """
import logging
class H(logging.Handler):
    def emit(self, r): app.STATE[0] = 5
app.log.addHandler(H())
""")
_add("logging Logger.warning patched", _model("log.warning('a') or x * STATE[0]", top="import logging\nSTATE = [2]\nlog = logging.getLogger('my')"), """
import logging
def w(self, *a): app.STATE[0] = 5
logging.Logger.warning = w
""")
_add("enum member value altered", _model("x * E.A.value", top="import enum\nclass E(enum.Enum):\n    A = 2.0"), "app.E.A._value_ = 3.0")
_add("contextvar default", _model("x * v.get()", top="import contextvars\nv = contextvars.ContextVar('v', default=2.0)"), "app.v.set(3.0)")
_add("weakref to config", _model("x * self.w().k", "self.w = weakref.ref(C)", "import weakref\nclass C:\n    k = 2.0"), "app.C.k = 3.0")
_add("types.MappingProxyType behind changed", _model("x * self.m['k']", "self.m = types.MappingProxyType(D)", "import types\nD = {'k': 2.0}"), "app.D['k'] = 3.0")
_add("ChainMap child", _model("x * self.m['k']", "self.m = collections.ChainMap({}, D)", "import collections\nD = {'k': 2.0}"), "model.m['k'] = 3.0")
_add("UserDict subclass", _model("x * self.m['k']", "self.m = collections.UserDict(k=2.0)", "import collections"), "model.m.data['k'] = 3.0")
_add("defaultdict factory (again)", _model("x * self.m['k']", "self.m = collections.defaultdict(fac)", "import collections\ndef fac(): return 2.0"), "app.fac.__code__ = (lambda: 3.0).__code__")
_add("operator.attrgetter path", _model("x * self.g(self.c)", "self.c = C()\nself.g = operator.attrgetter('a')", "import operator\nclass C:\n    a = 2.0\n    b = 3.0"), "import operator; model.g = operator.attrgetter('b')")
_add("transformers activation table edited", _model("self.a(x)", "from transformers.activations import ACT2FN\nself.a = ACT2FN['gelu_new']"), "from transformers.activations import NewGELUActivation as N; N.forward = lambda self, x: x * 2")
_add("transformers ACT2FN read in forward", _model("ACT2FN['gelu_new'](x)", top="from transformers.activations import ACT2FN"), "from transformers.activations import ACT2FN; ACT2FN['gelu_new'] = torch.nn.ReLU")
_add("torch.nn.init in forward on a temp", _model("x + torch.nn.init.constant_(torch.empty(4), 2.0)"), "torch.nn.init.constant_ = lambda t, v: t.fill_(v + 1)")
_add("torch.nn.init inner no_grad helper code", _model("x + torch.nn.init.constant_(torch.empty(4), 2.0)"), "torch.nn.init._no_grad_fill_ = lambda t, v: t.fill_(v + 1)")
_add("safetensors.torch.save patched", _model("x * len(st._SIZE)", top="import safetensors.torch as st"), "import safetensors.torch as st; st._SIZE[torch.bool] = 1; st._SIZE['more'] = 1")
_add("silly library docs change harmless", _model("x * tinylib.SCALE", top=P + "import tinylib") + "--- vendor/tinylib/__init__.py\nSCALE = 2.0\n# one comment\n", "", ("# one comment", "# two comment"), harmless=True)
_add("vendored library gets an unused function", _model("x * tinylib.SCALE", top=P + "import tinylib") + "--- vendor/tinylib/__init__.py\nSCALE = 2.0\n# one comment\n", "", ("# one comment", "def f():\n    return 3"), harmless=True)

CL = """
import types
def clone(mod, **kw):
    m = types.ModuleType(mod.__name__)
    m.__dict__.update(mod.__dict__)
    m.__dict__.update(kw)
    return m
"""
_add("app.math is a clone of math with another pi", _model("x * math.pi", top="import math"), CL + "app.math = clone(app.math, pi=3.0)")
_add("app.F is a copy of torch.nn.functional with another relu", _model("F.relu(x)"), CL + "app.F = clone(app.F, relu=lambda x: x.sigmoid())")
_add("torch.nn.modules.activation.F is a copy with another gelu", _model("self.a(x)", "self.a = nn.GELU()"), CL + "import torch.nn.modules.activation as m\nm.F = clone(m.F, gelu=lambda x, approximate='none': x * 2)")
_add("app.np is a copy of numpy with another sqrt", _model("x * float(np.sqrt(4.0))", top="import numpy as np"), CL + "app.np = clone(app.np, sqrt=lambda v: v)")
_add("torch.nn.modules.linear.F is a ModuleType subclass with property", _model("self.lin(x)"), """
import types, torch.nn.modules.linear as l
class M(types.ModuleType):
    @property
    def linear(self):
        return lambda x, w, b: x @ w
m = M('torch.nn.functional')
m.__dict__.update({k: v for k, v in l.F.__dict__.items() if k != 'linear'})
l.F = m
""")
_add("a module attribute held by the model is a clone", _model("self.m.relu(x)", "self.m = F"), CL + "model.m = clone(model.m, relu=lambda x: x.sigmoid())")
_add("F.torch is a clone with another relu", _model("F.relu(x)"), CL + "import torch.nn.functional as G\nG.torch = clone(torch, relu=torch.sigmoid)")
CF = "import config"
_add("a scale is looked up by the class name of the layer", _model("x * getattr(config, type(self.lin).__name__)", top=CF) + "--- config.py\nLinear = 2.0\n", "import config; config.Linear = 3.0")
_add("a scale is looked up by str of the dtype", _model("x * getattr(config, str(x.dtype)[6:])", top=CF) + "--- config.py\nfloat32 = 2.0\n", "import config; config.float32 = 3.0")
_add("a scale is looked up by the device type", _model("x * getattr(config, x.device.type)", top=CF) + "--- config.py\ncpu = 2.0\n", "import config; config.cpu = 3.0")
_add("a scale is looked up by a function's name", _model("x * getattr(config, F.relu.__name__)", top=CF) + "--- config.py\nrelu = 2.0\n", "import config; config.relu = 3.0")
_add("a scale is looked up by _get_name", _model("x * getattr(config, self.lin._get_name())", top=CF) + "--- config.py\nLinear = 2.0\n", "import config; config.Linear = 3.0")
_add("a scale is looked up by os.name", _model("x * vars(config)[os.name]", top=CF + "\nimport os") + "--- config.py\nposix = 2.0\n", "import config; config.posix = 3.0")
_add("a scale is looked up by the tensor's type", _model("x * getattr(config, x.type()[6:])", top=CF) + "--- config.py\nFloatTensor = 2.0\n", "import config; config.FloatTensor = 3.0")
_add("a scale is looked up by torch.typename", _model("x * getattr(config, torch.typename(self.lin).rpartition('.')[2])", top=CF) + "--- config.py\nLinear = 2.0\n", "import config; config.Linear = 3.0")
_add("a scale by os.path.basename", _model("x * getattr(config, os.path.basename('/a/SC'))", top=CF + "\nimport os") + "--- config.py\nSC = 2.0\n", "import config; config.SC = 3.0")
_add("a scale by string.capwords", _model("x * getattr(config, string.capwords('sc'))", top=CF + "\nimport string") + "--- config.py\nSc = 2.0\n", "import config; config.Sc = 3.0")
_add("a scale by str.upper as a method reference", _model("x * getattr(config, next(map(str.upper, ['sc'])))", top=CF) + "--- config.py\nSC = 2.0\n", "import config; config.SC = 3.0")
_add("a scale by match on a module", _model("match config:\n    case object(SC=v):\n        return x * v", top=CF) + "--- config.py\nSC = 2.0\n", "import config; config.SC = 3.0")
_add("a scale by inspect.getattr_static", _model("x * inspect.getattr_static(config, type(self.lin).__name__)", top=CF + "\nimport inspect") + "--- config.py\nLinear = 2.0\n", "import config; config.Linear = 3.0")
_add("a class attribute order is used", _model("x * [v for v in vars(C).values() if isinstance(v, float)][0]", top="class C:\n    a = 2.0\n    b = 3.0"), "v = app.C.a; del app.C.a; app.C.a = v")
_add("a config object's dict order is used", _model("x * list(vars(self.c).values())[0]", "self.c = C()", top="class C:\n    def __init__(self):\n        self.a = 2.0\n        self.b = 3.0"), "v = model.c.a; del model.c.a; model.c.a = v")
_add("a module's order of globals is used", _model("x * [v for k, v in vars(config).items() if isinstance(v, float)][0]", top=CF) + "--- config.py\nA = 2.0\nB = 3.0\n", "import config; v = config.A; del config.A; config.A = v")
_add("deque maxlen read", _model("x * self.d.maxlen", "self.d = collections.deque([1], maxlen=2)", "import collections"), "import collections; model.d = collections.deque([1], maxlen=3)")
_add("numpy writeable flag read", _model("x * (2 if self.a.flags.writeable else 3)", "self.a = np.ones(3)", "import numpy as np"), "model.a.flags.writeable = False")
_add("copysign of a zero", _model("x * math.copysign(2, self.z)", "self.z = 0.0", "import math"), "model.z = -0.0")
_add("numpy scalar becomes other type", _model("x * self.k.itemsize", "self.k = np.float32(2)", "import numpy as np"), "import numpy as np; model.k = np.float64(2)")
_add("pytree registration of a user class added", _model("pytree.tree_map(f, self.c)[0] if False else x * len(pytree.tree_leaves(self.c))", "self.c = C()", "import torch.utils._pytree as pytree\nclass C:\n    a = [1, 2]"), """
import torch.utils._pytree as p
p.register_pytree_node(app.C, lambda c: ([1, 2, 3], None), lambda v, c: app.C())
""")
_add("pytree registration of a user class differs", _model("x * len(pytree.tree_leaves(self.c))", "self.c = C()", "import torch.utils._pytree as pytree\nN = 3\nclass C:\n    a = [1, 2]\npytree.register_pytree_node(C, lambda c: ([1] * N, None), lambda v, c: C())"), "app.N = 5")
_add("distributions constraint registry", _model("D.transform_to(D.constraints.positive)(x)", top="import torch.distributions as D"), "import torch.distributions as D; D.transform_to.register(D.constraints.positive, lambda c: D.transforms.SoftplusTransform())")
_add("distribution default validate args read", _model("x * (2 if D.Distribution._validate_args else 3)", top="import torch.distributions as D"), "import torch.distributions as D; D.Distribution.set_default_validate_args(False)")
_add("torch.__future__ flag read", _model("x * (2 if torch.__future__.get_overwrite_module_params_on_conversion() else 3)"), "torch.__future__.set_overwrite_module_params_on_conversion(True)")
_add("sparse invariants flag read", _model("x * (2 if torch.sparse.check_sparse_tensor_invariants.is_enabled() else 3)"), "torch.sparse.check_sparse_tensor_invariants.enable()")
_add("quantized engine read", _model("x * len(torch.backends.quantized.engine)"), "torch.backends.quantized.engine = [e for e in torch.backends.quantized.supported_engines if len(e) != len(torch.backends.quantized.engine)][0]")
_add("anomaly mode read", _model("x * (2 if torch.is_anomaly_enabled() else 3)"), "torch.autograd.set_detect_anomaly(True)")
_add("warn always read", _model("x * (2 if torch.is_warn_always_enabled() else 3)"), "torch.set_warn_always(True)")
_add("multithreading read", _model("x * (2 if torch._C._is_multithreading_enabled() else 3)"), "torch.autograd.set_multithreading_enabled(False)")
_add("view replay read", _model("x * (2 if torch._C._is_view_replay_enabled() else 3)"), "torch._C._set_view_replay_enabled(True)")
_add("fill_uninitialized_memory read", _model("x * (2 if torch.utils.deterministic.fill_uninitialized_memory else 3)", top="import torch.utils.deterministic"), "import torch.utils.deterministic; torch.utils.deterministic.fill_uninitialized_memory = False")
_add("jit profiling executor read", _model("x * (2 if torch._C._get_graph_executor_optimize() else 3)"), "torch._C._set_graph_executor_optimize(False)")
_add("flop registry", _model("x * len(fc.flop_registry)", top="import torch.utils.flop_counter as fc"), "import torch.utils.flop_counter as fc; fc.flop_registry['a'] = 1")
_add("decomposition table read", _model("x * len(torch._decomp.decomposition_table)", top="import torch._decomp"), "import torch._decomp; torch._decomp.decomposition_table['a'] = 1")

_add("http responses", _model("x * len(http.client.responses[404])", top="import http.client"), "import http.client; http.client.responses[404] = 'x'")
_add("numbers ABC register", _model("x * (2 if isinstance(self.c, numbers.Number) else 3)", "self.c = C()", "import numbers\nclass C: pass"), "import numbers; numbers.Number.register(app.C)")
_add("collections.abc register", _model("x * (2 if isinstance(self.c, collections.abc.Sequence) else 3)", "self.c = C()", "import collections.abc\nclass C: pass"), "import collections.abc; collections.abc.Sequence.register(app.C)")
_add("collections.abc __subclasshook__ via new method", _model("x * (2 if isinstance(self.c, collections.abc.Sized) else 3)", "self.c = C()", "import collections.abc\nclass C: pass"), "app.C.__len__ = lambda s: 1")
_add("fractions", _model("x * float(self.f)", "self.f = fractions.Fraction(1, 2)", "import fractions"), "import fractions; model.f = fractions.Fraction(1, 3)")
_add("fractions private code patch", _model("x * float(self.f + 1)", "self.f = fractions.Fraction(1, 2)", "import fractions"), "import fractions; fractions.Fraction.__add__ = lambda a, b: 7")
_add("statistics mean patched inner", _model("x * statistics.mean([1, 2])", top="import statistics"), "import statistics; statistics._sum = lambda d: (int, 9, 3)")
_add("textwrap patched regexp", _model("x * len(textwrap.wrap('a b', 1))", top="import textwrap"), "import textwrap; textwrap.TextWrapper._split = lambda s, t: ['q']")
_add("random.sample patched", _model("x * bisect.bisect([1, 2], 1)", top="import bisect"), "import bisect; bisect.bisect = lambda a, b: 9")
_add("heapq patched", _model("x * heapq.nsmallest(1, [3, 2])[0]", top="import heapq"), "import heapq; heapq.nsmallest = lambda n, l: [9]")
_add("string constants patched", _model("x * len(string.digits)", top="import string"), "import string; string.digits = '1'")
_add("type flags", _model("x * (C.__flags__ % 9973)", top="class C: pass"), "import abc; app.C = abc.ABCMeta('C', (), {'__module__': 'app'})")
_add("basicsize via slots", _model("x * C.__basicsize__", top="class C:\n    __slots__ = ('a',)"), "app.C = type('C', (), {'__slots__': ('a', 'b'), '__module__': 'app'})")
_add("inspect.signature of a function", _model("x * len(inspect.signature(f).parameters)", top="import inspect\ndef f(a): pass"), "app.f.__signature__ = app.inspect.signature(lambda a, b: 1)")
_add("function __wrapped__", _model("f.__wrapped__(x)", top="import functools\ndef g(x): return x * 2\n@functools.wraps(g)\ndef f(x): return g(x)"), "app.f.__wrapped__ = lambda x: x * 3")
_add("function attribute counter", _model("x * f.k", top="def f(): pass\nf.k = 2.0"), "app.f.k = 3.0")
_add("globals of a function swapped", _model("self.f(x)", "self.f = f", "import types\nK = 2.0\ndef f(x): return x * K"), "import types; model.f = types.FunctionType(app.f.__code__, {**vars(app), 'K': 3.0}, 'f')")
_add("__builtins__ of a function swapped", _model("self.f(x)", "self.f = f", "def f(x): return x * len([1, 2])"), """
import types, builtins
g = dict(vars(app)); g['__builtins__'] = {**vars(builtins), 'len': lambda l: 9}
model.f = types.FunctionType(app.f.__code__, g, 'f')
""")
_add("app.__builtins__ replaced before function creation", _model("f(x)", top="def f(x): return x * len([1, 2])"), """
import types, builtins
app.__builtins__ = {**vars(builtins), 'len': lambda l: 9}
app.f = types.FunctionType(app.f.__code__, vars(app), 'f')
""")
_add("a staticmethod with other function", _model("self.k(x)", more="@staticmethod\ndef k(x):\n    return x * 2"), "app.Model.k = staticmethod(lambda x: x * 3)")
_add("instance forward shadow", _model("x * 2"), "model.forward = lambda x: x * 3")
_add("instance method of layer shadow", _model("self.lin(x)"), "model.lin.forward = lambda x: x * 3")
_add("types.MethodType bound to another object", _model("self.k()* x", "self.a = A(2.0)\nself.k = self.a.get", "class A:\n    def __init__(self, k): self.k = k\n    def get(self): return self.k"), "model.k = app.A(3.0).get")
_add("a class's __getattribute__ added", _model("x * self.c.k", "self.c = C()", "class C:\n    k = 2.0"), "app.C.__getattribute__ = lambda s, n: 3.0")
_add("a class's __eq__ is changed", _model("x * (2 if self.c == 1 else 3)", "self.c = C()", "class C:\n    def __eq__(self, o): return True\n    __hash__ = None"), "app.C.__eq__ = lambda s, o: False")
_add("__instancecheck__ changed", _model("x * (2 if isinstance(x, C) else 3)", top="class M(type):\n    def __instancecheck__(c, o): return True\nclass C(metaclass=M): pass"), "app.M.__instancecheck__ = lambda c, o: False")
_add("six attribute", _model("x * (2 if six.PY3 else 3)", top="import six"), "import six; six.PY3 = False")
_add("dateutil relativedelta", _model("x * self.r.days", "self.r = relativedelta(days=2)", "from dateutil.relativedelta import relativedelta"), "model.r.days = 3")
_add("toml rich console width", _model("x * C.k", top="import click\nclass C:\n    k = len(click.style('a'))"), "app.C.k = 3")

CL = """
import types, sys
def clone(mod, **kw):
    m = types.ModuleType(mod.__name__)
    m.__dict__.update(mod.__dict__)
    m.__dict__.update(kw)
    return m
"""
_add("torch._VF.vf is replaced by a proxy with another gru", _model("self.g(x)[0]", "self.g = nn.GRU(4, 4)"), """
class V:
    def __getattr__(self, n): return getattr(torch._C._VariableFunctions, n)
    @staticmethod
    def gru(*a):
        r = torch._C._VariableFunctions.gru(*a)
        return r[0] * 2, r[1]
torch._VF.vf = V()
""")
_add("torch.nn.functional is registered as a copy and the original in use patched", _model("self.lin(x)"), CL + """
import torch.nn.functional as G
c = clone(G)
sys.modules['torch.nn.functional'] = c
torch.nn.functional = c
G.linear = lambda x, w, b: x @ w
""")
_add("torch.nn.functional on the package is a copy", _model("nn.functional.relu(x)"), CL + """
torch.nn.functional = clone(torch.nn.functional, relu=lambda x: x.sigmoid())
""")
_add("transformers.activations.torch is a copy", _model("self.a(x)", "from transformers.activations import ACT2FN\nself.a = ACT2FN['gelu_new']"), CL + """
import transformers.activations as t
t.torch = clone(torch, tanh=lambda x: x.sigmoid(), pow=lambda x, y: x)
""")
_add("transformers.activations.math is a copy", _model("self.a(x)", "from transformers.activations import ACT2FN\nself.a = ACT2FN['gelu_new']"), CL + """
import transformers.activations as t
t.math = clone(t.math, pi=1.0, sqrt=lambda v: 7.0)
""")
_add("fractions.math is a copy with other gcd", _model("x * (self.f + self.f).denominator", "self.f = fractions.Fraction(1, 6)", "import fractions"), CL + "import fractions; fractions.math = clone(fractions.math, gcd=lambda a, b: 1)")
_add("statistics.math is a copy with other sqrt", _model("x * statistics.NormalDist(0, 1).pdf(1.0)", top="import statistics"), "import statistics\nstatistics.exp = lambda v: 1.0")
_add("numpy's function_base._nx is a copy", _model("x * float(np.linspace(0, 1, 3)[1])", top="import numpy as np"), CL + """
m = sys.modules['numpy._core.function_base']
o = m._nx
m._nx = clone(o, arange=lambda *a, **k: o.arange(*a, **k) * 2)
""")
_add("a vendored library's torch is a copy", _model("tinylib.f(x)", top="import os, sys\nsys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/vendor')\nimport tinylib") + "--- vendor/tinylib/__init__.py\ndef f(x):\n    return torch.relu(x)\n", CL + "app.tinylib.torch = clone(torch, relu=torch.sigmoid)")
SW = """
import types, builtins
keep = app.__builtins__
app.__builtins__ = {**vars(builtins), 'len': lambda l: 9}
app.f = types.FunctionType(app.f.__code__, vars(app), 'f')
app.__builtins__ = keep
"""
_add("a function is recreated with other builtins, the module's restored", _model("f(x)", top="def f(x): return x * len([1, 2])"), SW)
_add("torch's F.relu6 is recreated with other builtins", _model("F.softmax(x, -1)"), """
import types, builtins
import torch.nn.functional as G
keep = G.__builtins__
G.__builtins__ = {**vars(builtins), 'len': lambda l: 9}
G.glu = G.glu
k = G.softmax
G.__builtins__ = keep
""", harmless=True)
_add("the model's forward is recreated with other builtins", _model("x * max(1, 2)"), """
import types, builtins
keep = app.__builtins__
app.__builtins__ = {**vars(builtins), 'max': lambda *a: 9}
app.Model.forward = types.FunctionType(app.Model.forward.__code__, vars(app), 'forward')
app.__builtins__ = keep
""")
_add("two functions share a cell or not", _model("""
self.inc(3.0)
y = x * self.get()
self.inc(2.0)
return y
""", "self.inc, self.get = make()", "def make():\n    k = 2.0\n    def inc(v):\n        nonlocal k\n        k = v\n    def get():\n        return k\n    return inc, get"), "model.get = app.make()[1]")
_add("a function's globals are a copy", _model("""
global K
K = 3.0
y = f(x)
K = 2.0
return y
""", top="K = 2.0\ndef f(x): return x * K"), "import types; app.f = types.FunctionType(app.f.__code__, dict(vars(app)), 'f')")
_add("nn.Linear's bases get a mixin", _model("self.lin(x) * self.lin.extra", top="class A:\n    extra = 2.0\nclass B:\n    extra = 3.0\nnn.Linear.__bases__ = (A, nn.Module)"), "torch.nn.Linear.__bases__ = (app.B, torch.nn.Module)")
_add("nn.ReLU6's parent Hardtanh is patched", _model("self.r(x)", "self.r = nn.ReLU6()"), "torch.nn.Hardtanh.forward = lambda self, x: x * 2")
_add("Normal's bases changed", _model("x * D.Normal(0., 1., validate_args=False).has_rsample", top="import torch.distributions as D"), "import torch.distributions as D; D.Normal.has_rsample = 3")
_add("nn.Linear gets class attribute bias None", _model("self.lin(x)"), "torch.nn.Linear.bias = None")
_add("a class attribute shadows a submodule", _model("self.lin(x)"), "app.Model.lin = torch.nn.ReLU()")
_add("an instance dict shadows a submodule", _model("self.lin(x)"), "model.__dict__['lin'] = torch.nn.ReLU()")
_add("an instance dict shadows a parameter", _model("self.lin(x)"), "model.lin.__dict__['weight'] = torch.ones(4, 4)")
_add("a layer's _compiled_call_impl is set", _model("self.lin(x)"), "model.lin._compiled_call_impl = lambda x: x * 2")
_add("Module._compiled_call_impl is set on the class", _model("self.lin(x)"), "torch.nn.Linear._compiled_call_impl = staticmethod(lambda x: x * 2)")
_add("Module.__setattr__ patched", _model("self.k = 3.0\ny = x * self.k\nself.k = 2.0\nreturn y", "self.k = 2.0"), """
old = torch.nn.Module.__setattr__
torch.nn.Module.__setattr__ = lambda s, n, v: old(s, n, 2.0 if n == 'k' else v)
""")
_add("_ParameterMeta.__instancecheck__ patched", _model("x * (2 if isinstance(self.w, nn.Parameter) else 3)", "self.w = torch.ones(4)"), "type(torch.nn.Parameter).__instancecheck__ = lambda c, o: True")
_add("nn.Module.get_submodule patched", _model("self.get_submodule('lin')(x)"), "torch.nn.Module.get_submodule = lambda s, n: torch.relu")
_add("nn.Module.parameters patched", _model("x * len(list(self.parameters()))"), "torch.nn.Module.parameters = lambda s: [1]")
_add("F.max_pool2d's dispatch closure is edited", _model("F.max_pool2d(x[None], 2)"), """
import torch.nn.functional as G
for n, c in zip(G.max_pool2d.__code__.co_freevars, G.max_pool2d.__closure__):
    if n == 'if_false': c.cell_contents = lambda x, k: x * 2
""")
_add("F._canonical_mask patched in MHA", _model("self.m(x[:, None], x[:, None], x[:, None], attn_mask=self.k)[0]", "self.m = nn.MultiheadAttention(4, 2)\nself.register_buffer('k', torch.ones(3, 3).triu(1).bool())"), """
import torch.nn.functional as G
G._canonical_mask = lambda mask, **k: None
""")
_add("F._in_projection_packed patched in MHA", _model("self.m(x[:, None], x[:, None], x[:, None])[0]", "self.m = nn.MultiheadAttention(4, 2)\nself.m.train()"), """
import torch.nn.functional as G
old = G._in_projection_packed
G._in_projection_packed = lambda *a: [t * 2 for t in old(*a)]
""", make="import app\nmodel = app.Model()")
_add("nn.Conv2d._conv_forward patched", _model("self.c(x[None])", "self.c = nn.Conv2d(1, 1, 1)"), "torch.nn.Conv2d._conv_forward = lambda s, i, w, b: i * w.sum()")
_add("torch.fft.fft replaced", _model("torch.fft.fft(x).real"), "torch.fft.fft = lambda x: torch.fft.ifft(x)")
_add("torch.special.expit replaced", _model("torch.special.expit(x)"), "torch.special.expit = torch.special.erf")
_add("torch._C._linalg.linalg_norm is replaced under torch.linalg", _model("torch.linalg.vector_norm(x)"), "torch.linalg.vector_norm = lambda x: x.sum()")
_add("torch.func.functional_call patched", _model("torch.func.functional_call(self.lin, {'bias': torch.ones(4)}, (x,))"), "torch.func.functional_call = lambda m, p, a: m(*a)")
_add("functional_call's _reparametrize patched", _model("torch.func.functional_call(self.lin, {'bias': torch.ones(4)}, (x,))"), """
import contextlib, torch.nn.utils.stateless as s
s._reparametrize_module = lambda *a, **k: contextlib.nullcontext()
""")
_add("tree_map patched", _model("pt.tree_map(lambda t: t * 2, [x])[0]", top="import torch.utils._pytree as pt"), "import torch.utils._pytree as p; p.tree_map = lambda f, t, *a, **k: t")
_add("tree_flatten patched inside tree_map", _model("pt.tree_map(lambda t: t * 2, [x])[0]", top="import torch.utils._pytree as pt"), "import torch.utils._pytree as p; p.TreeSpec.unflatten = lambda s, l: [torch.ones(3)]")
_add("parameters_to_vector patched", _model("x * nn.utils.parameters_to_vector(self.lin.parameters()).sum()"), "torch.nn.utils.parameters_to_vector = lambda p: torch.ones(3)")
_add("inner function of parameters_to_vector patched", _model("x * nn.utils.parameters_to_vector(self.lin.parameters()).sum()"), "import torch.nn.utils.convert_parameters as c; c._check_param_device = lambda p, d: p.mul_(0) and None", harmless=False)
_add("prune mask applied (again)", _model("self.lin(x)", "import torch.nn.utils.prune as p\np.l1_unstructured(self.lin, 'weight', 0.5)"), "import torch.nn.utils.prune as p; p.BasePruningMethod.apply_mask = lambda s, m: torch.ones(4, 4)")
_add("autocast object's dtype edited", _model("with self.ac:\n    return self.lin(x)", "self.ac = torch.autocast('cpu', torch.bfloat16)"), "model.ac.fast_dtype = torch.float16")
_add("autocast enabled globally", _model("self.lin(x)"), "c = torch.autocast('cpu', torch.bfloat16); c.__enter__()")
_add("script_if_tracing helper edited", _model("helper(x)", top="@torch.jit.script_if_tracing\ndef helper(x):\n    return x * 2"), "", ("x * 2", "x * 3"))
_add("torch.jit.ignore helper edited", _model("helper(x)", top="@torch.jit.ignore\ndef helper(x):\n    return x * 2"), "", ("x * 2", "x * 3"))
_add("no_grad decorated helper edited", _model("helper(x)", top="@torch.no_grad()\ndef helper(x):\n    return x * 2"), "", ("x * 2", "x * 3"))
_add("dynamo.disable decorated helper edited", _model("helper(x)", top="@torch.compiler.disable\ndef helper(x):\n    return x * 2"), "", ("x * 2", "x * 3"))

_add("dataclasses.replace patched", _model("x * dataclasses.replace(self.c, a=2.0).a", "self.c = C(1.0)", "import dataclasses\n@dataclasses.dataclass\nclass C:\n    a: float"), "import dataclasses; dataclasses.replace = lambda c, **k: c")
_add("contextmanager enter patched", _model("with cm() as k:\n    return x * k", top="import contextlib\n@contextlib.contextmanager\ndef cm():\n    yield 2.0"), "import contextlib; contextlib._GeneratorContextManager.__enter__ = lambda s: 3.0\ncontextlib._GeneratorContextManager.__exit__ = lambda s, *a: None")
_add("ExitStack.enter_context patched", _model("with contextlib.ExitStack() as s:\n    return x * s.enter_context(contextlib.nullcontext(2.0))", top="import contextlib"), "import contextlib; contextlib.ExitStack.enter_context = lambda s, c: 3.0")
_add("nullcontext enter patched", _model("with contextlib.nullcontext(2.0) as k:\n    return x * k", top="import contextlib"), "import contextlib; contextlib.nullcontext.__enter__ = lambda s: 3.0")
_add("partialmethod get patched", _model("x * self.c.k()", "self.c = C()", "import functools\nclass C:\n    def j(self, v): return v\n    k = functools.partialmethod(j, 2.0)"), "import functools; functools.partialmethod.__get__ = lambda s, o, t=None: lambda: 3.0")
_add("partialmethod args edited", _model("x * self.c.k()", "self.c = C()", "import functools\nclass C:\n    def j(self, v): return v\n    k = functools.partialmethod(j, 2.0)"), "app.C.__dict__['k'].args = (3.0,)")
_add("ChainMap getitem patched", _model("x * self.m['k']", "self.m = collections.ChainMap({'k': 2.0})", "import collections"), "import collections; collections.ChainMap.__getitem__ = lambda s, k: 3.0")
_add("Counter missing patched", _model("x * (2 + self.m['k'])", "self.m = collections.Counter()", "import collections"), "import collections; collections.Counter.__missing__ = lambda s, k: 3")
_add("PurePath.suffix patched", _model("x * len(pathlib.PurePath('a.bc').suffix)", top="import pathlib"), "import pathlib; pathlib.PurePath.suffix = property(lambda s: 'x')")
_add("NormalDist pdf patched", _model("x * statistics.NormalDist(0, 1).pdf(1.0)", top="import statistics"), "import statistics; statistics.NormalDist.pdf = lambda s, v: 3.0")
_add("NormalDist tau patched", _model("x * statistics.NormalDist(0, 1).pdf(1.0)", top="import statistics"), "import statistics; statistics.tau = 3.0")
_add("EnumType call patched", _model("x * E(2.0).value", top="import enum\nclass E(enum.Enum):\n    A = 2.0\n    B = 3.0"), "import enum; enum.EnumType.__call__ = lambda c, v: c.B")
_add("Enum lookup table edited", _model("x * E['A'].value", top="import enum\nclass E(enum.Enum):\n    A = 2.0\n    B = 3.0"), "app.E._member_map_['A'] = app.E.B")
_add("Enum value lookup table edited", _model("x * E(2.0).value", top="import enum\nclass E(enum.Enum):\n    A = 2.0\n    B = 3.0"), "app.E._value2member_map_[2.0] = app.E.B")
_add("ABCMeta instancecheck patched", _model("x * (2 if isinstance(self.m, A) else 3)", "self.m = 1", "import abc\nclass A(abc.ABC): pass"), "import abc; abc.ABCMeta.__instancecheck__ = lambda c, o: True")
_add("ABC register of int", _model("x * (2 if isinstance(1, A) else 3)", top="import abc\nclass A(abc.ABC): pass"), "app.A.register(int)")
_add("ABC register indirectly via a subclass in another module", _model("x * (2 if isinstance(1, A) else 3)", top="import abc\nclass A(abc.ABC): pass\nclass B(A): pass\nclass C(B): pass"), "app.C.register(int)")
_add("ABC subclass added with __subclasshook__", _model("x * (2 if isinstance(1, A) else 3)", top="import abc\nclass A(abc.ABC): pass"), "class B(app.A):\n    @classmethod\n    def __subclasshook__(c, t): return True\nimport builtins; builtins._b = B")
_add("runtime protocol method added", _model("x * (2 if isinstance(self.m, P) else 3)", "self.m = M()", "from typing import Protocol, runtime_checkable\n@runtime_checkable\nclass P(Protocol):\n    def go(self): ...\nclass M: pass"), "app.M.go = lambda s: 1")
_add("protocol attrs edited", _model("x * (2 if isinstance(self.m, P) else 3)", "self.m = M()", "from typing import Protocol, runtime_checkable\n@runtime_checkable\nclass P(Protocol):\n    def go(self): ...\nclass M:\n    def go2(self): pass"), "app.P.go2 = app.P.go; del app.P.go; app.P.__annotations__ = {}")
_add("wrapt patched function", _model("helper(x)", top="def helper(x): return x * 2"), "import wrapt; wrapt.wrap_function_wrapper(app, 'helper', lambda w, i, a, k: w(*a) * 2)")
_add("wrapt wraps nn.Linear.forward", _model("self.lin(x)"), "import wrapt; wrapt.wrap_function_wrapper(torch.nn.Linear, 'forward', lambda w, i, a, k: w(*a) * 2)")
_add("wrapt wraps F.relu", _model("F.relu(x)"), "import wrapt, torch.nn.functional as G; wrapt.wrap_function_wrapper(G, 'relu', lambda w, i, a, k: w(*a) * 2 + 1)")
_add("attrs validators disabled", _model("x * C(2.0).k", top="import attrs\ndef v(i, a, val):\n    object.__setattr__(i, 'k', 5.0)\n@attrs.define(on_setattr=[])\nclass C:\n    k: float = attrs.field(validator=v)"), "import attrs; attrs.validators.set_disabled(True)")
_add("attrs fields read", _model("x * len(attrs.fields(C))", top="import attrs\n@attrs.define\nclass C:\n    k: float = 1"), "app.C.__attrs_attrs__ = app.C.__attrs_attrs__ * 2")
_add("dataclass fields default_factory", _model("x * C().k", top="import dataclasses\n@dataclasses.dataclass\nclass C:\n    k: float = dataclasses.field(default_factory=lambda: K)\nK = 2.0"), "app.K = 3.0")
_add("dataclass asdict", _model("x * sum(dataclasses.asdict(self.c).values())", "self.c = C()", "import dataclasses\n@dataclasses.dataclass\nclass C:\n    k: float = 2.0"), "app.C.__dataclass_fields__.clear()")
_add("dataclass __match_args__", _model("match self.c:\n    case C(v):\n        return x * v", "self.c = C()", "import dataclasses\n@dataclasses.dataclass\nclass C:\n    k: float = 2.0\n    j: float = 3.0"), "app.C.__match_args__ = ('j', 'k')")
_add("addded __slots__ descriptor swapped", _model("x * self.c.a", "self.c = C()", "class C:\n    __slots__ = ('a', 'b')\n    def __init__(self): self.a, self.b = 2.0, 3.0"), "a = app.C.a; app.C.a = app.C.b; app.C.b = a")
_add("property fget swapped between two", _model("x * self.c.a", "self.c = C()", "class C:\n    a = property(lambda s: 2.0)\n    b = property(lambda s: 3.0)"), "app.C.a, app.C.b = app.C.b, app.C.a")
_add("torch's slot descriptors swapped on a user class", _model("x * self.f(x)", "self.f = torch.Tensor.dim"), "model.f = torch.Tensor.numel")
_add("two method descriptors of int", _model("x * self.f(6)", "self.f = int.bit_length"), "model.f = int.bit_count")
_add("builtin methods bound to other objects", _model("x * self.f('k')", "self.f = {'k': 2.0}.get"), "model.f = {'k': 3.0}.get")
_add("method-wrapper bound to another object", _model("x * self.f(0)", "self.f = (2.0, 1).__getitem__"), "model.f = (3.0, 1).__getitem__")
_add("torch op overload as attribute", _model("self.f(x)", "self.f = torch.ops.aten.relu.default"), "model.f = torch.ops.aten.sigmoid.default")
_add("torch op overload packet's other overload", _model("self.f(x, 0)", "self.f = torch.ops.aten.sum.dim_IntList", more="pass") .replace("self.f(x, 0)", "self.f(x, [0])"), "model.f = lambda x, d: torch.ops.aten.mean.dim(x, d)")
_add("numpy ufunc attribute", _model("x * float(self.f(4.0))", "self.f = np.sqrt", "import numpy as np"), "import numpy as np; model.f = np.square")
_add("np.vectorize function", _model("x * float(self.f(4.0))", "self.f = np.vectorize(lambda v: v * 2)", "import numpy as np"), "import numpy as np; model.f = np.vectorize(lambda v: v * 3)")
_add("poly1d coefficients", _model("x * float(self.p(2.0))", "self.p = np.poly1d([1, 2])", "import numpy as np"), "import numpy as np; model.p = np.poly1d([1, 3])")
_add("__torch_function__ object method changed", _model("torch.add(x, self.o)", "self.o = O()", "class O:\n    @classmethod\n    def __torch_function__(cls, f, t, a=(), k=None): return a[0] * 2"), "app.O.__torch_function__ = classmethod(lambda c, f, t, a=(), k=None: a[0] * 3)")
_add("__torch_function__ switched off with DisableTorchFunction", _model("torch.add(x, self.o)", "self.o = O()", "class O(float):\n    @classmethod\n    def __torch_function__(cls, f, t, a=(), k=None): return a[0] * 2"), "c = torch._C.DisableTorchFunction(); c.__enter__(); import builtins; builtins._c = c")
_add("__rmul__ priority by adding __torch_function__", _model("x * self.o", "self.o = O(2)", "class O(float):\n    def __rmul__(self, x): return x + 7"), "app.O.__torch_function__ = classmethod(lambda c, f, t, a=(), k=None: a[0] + 3)")
_add("__array__ changed", _model("x * torch.as_tensor(np.asarray(self.o))", "self.o = O()", "import numpy as np\nclass O:\n    def __array__(self, dtype=None, copy=None): return np.full(4, 2.0, dtype='f4')"), "import numpy as np; app.O.__array__ = lambda s, dtype=None, copy=None: np.full(4, 3.0, dtype='f4')")

_add("mro changed through the metaclass, bases the same", _model("x * self.c.k", "self.c = C()", """
ORDER = []
class M(type):
    def mro(cls):
        m = super().mro()
        return [m[0]] + list(reversed(m[1:-1])) + [object] if 'rev' in ORDER else m
class A:
    k = 2.0
class B:
    k = 3.0
class C(A, B, metaclass=M): pass
"""), "app.ORDER.append('rev'); app.C.__bases__ = (app.B, app.A); app.ORDER.clear(); app.ORDER.append('rev')\napp.C.__bases__ = (app.A, app.B); app.ORDER.clear()")
_add("a dict was filled when its key had another hash", _model("x * self.d.get(self.k, 3.0)", "self.k = K()\nself.d = {self.k: 2.0}", "class K:\n    h = 1\n    def __hash__(self): return self.h\n    def __eq__(self, o): return False"), "model.k.h = 5; model.d = {model.k: 2.0}; del model.k.h")
_add("a dict was filled when its key had another hash, eq by value", _model("x * self.d.get(K(), 3.0)", "self.d = {K(): 2.0}", "class K:\n    h = 1\n    def __hash__(self): return self.h\n    def __eq__(self, o): return True"), "app.K.h = 5; k = app.K(); model.d = {k: 2.0}; app.K.h = 1")
_add("the order of a set of ints", _model("x * list(self.s)[0] + 1", "self.s = set()\nself.s.add(0)\nself.s.add(8)"), "s = set(); s.add(8); s.add(0); model.s = s")
_add("the order of a frozenset of ints", _model("for i in self.s:\n    x = x * 2 + i\nreturn x", "self.s = frozenset([0, 8])"), "model.s = frozenset([8, 0])")
_add("str subclass attribute", _model("x * self.s.k", "self.s = S('a')\nself.s.k = 2.0", "class S(str): pass"), "model.s.k = 3.0")
_add("float subclass attribute", _model("x * self.s.k", "self.s = S(1)\nself.s.k = 2.0", "class S(float): pass"), "model.s.k = 3.0")
_add("range stop of equal ranges", _model("x * self.r.stop", "self.r = range(0, 3, 2)"), "model.r = range(0, 4, 2)")
_add("Decimal digits of equal decimals", _model("x * len(self.d.as_tuple().digits)", "self.d = decimal.Decimal('1.0')", "import decimal"), "import decimal; model.d = decimal.Decimal('1.00')")
_add("datetime fold", _model("x * (2 + self.d.fold)", "self.d = datetime.datetime(2020, 1, 1)", "import datetime"), "model.d = model.d.replace(fold=1)")
_add("tuple with a negative zero", _model("x * math.copysign(2, self.z[0])", "self.z = (0.0,)", "import math"), "model.z = (-0.0,)")
_add("complex with a negative zero", _model("x * math.copysign(2, self.z.imag)", "self.z = 0j", "import math"), "model.z = complex(0.0, -0.0)")
_add("numpy scalar negative zero", _model("x * math.copysign(2, self.z)", "self.z = np.float64(0)", "import math\nimport numpy as np"), "import numpy as np; model.z = np.float64(-0.0)")
_add("default argument negative zero", _model("x * f()", top="import math\ndef f(z=0.0): return math.copysign(2, z)"), "app.f.__defaults__ = (-0.0,)")
_add("code constant negative zero", _model("x * f()", top="import math\ndef f(): return math.copysign(2, 0.0)"), "c = app.f.__code__; app.f.__code__ = c.replace(co_consts=tuple(-0.0 if v == 0.0 and isinstance(v, float) else v for v in c.co_consts))")
_add("code constant 2 to 2.0 inside a tuple", _model("x.long() * f()[0]", top="def f(): return (2, 3)"), "", ("(2, 3)", "(2.0, 3)"))
_add("dict key negative zero", _model("x * math.copysign(2, list(self.z)[0])", "self.z = {0.0: 1}", "import math"), "model.z = {-0.0: 1}")
_add("partial attribute", _model("x * self.p.k", "self.p = functools.partial(f)\nself.p.k = 2.0", "import functools\ndef f(): pass"), "model.p.k = 3.0")
_add("partial keyword order", _model("x * self.p()", "self.p = functools.partial(f, a=2.0, b=3.0)", "import functools\ndef f(**k): return list(k.values())[0]"), "import functools; model.p = functools.partial(app.f, b=3.0, a=2.0)")
_add("lru wrapper attribute", _model("x * f.k", top="import functools\n@functools.lru_cache\ndef f(): pass\nf.k = 2.0"), "app.f.k = 3.0")
_add("staticmethod object attribute", _model("x * vars(C)['s'].k", top="class C:\n    @staticmethod\n    def s(): pass\nvars(C)['s'].k = 2.0"), "vars(app.C)['s'].k = 3.0")
_add("Literal True or 1", _model("x * (2 if type(self.g.__args__[0]).__name__ == 'int' else 3)", "self.g = Literal[1]", "from typing import Literal"), "from typing import Literal; model.g = Literal[True]")
_add("Annotated metadata", _model("x * self.g.__metadata__[0]", "self.g = Annotated[int, 2.0]", "from typing import Annotated"), "from typing import Annotated; model.g = Annotated[int, 3.0]")
_add("TypeVar constraints", _model("x * len(T.__constraints__)", top="from typing import TypeVar\nT = TypeVar('T', int, str)"), "from typing import TypeVar; app.T = TypeVar('T', int, str, float)")
_add("NewType attribute", _model("x * T.k", top="from typing import NewType\nT = NewType('T', int)\nT.k = 2.0"), "app.T.k = 3.0")
_add("compiled regex flags", _model("x * (2 if self.r.match('A') else 3)", "self.r = re.compile('a')", "import re"), "import re; model.r = re.compile('a', re.I)")
_add("super's __class__ cell", _model("x * self.b.get()", "self.b = B()", "class A0:\n    k = 3.0\nclass A(A0):\n    k = 2.0\nclass B(A):\n    def get(self): return super().k"), "app.B.get.__closure__[0].cell_contents = app.A")
_add("np.linspace's implementation's code", _model("x * float(np.linspace(0, 1, 3)[1])", top="import numpy as np"), "import numpy as np; f = np.linspace._implementation; f.__defaults__ = f.__defaults__[:1] + (False,) + f.__defaults__[2:]")
_add("np.mean implementation's code replaced", _model("x * float(np.mean([1, 2]))", top="import numpy as np"), "import numpy as np\ndef mean(a, axis=None, dtype=None, out=None, keepdims=None, *, where=None): return 7.0\nf = np.mean._implementation; f.__code__ = mean.__code__")
_add("Fraction.__add__'s closure", _model("x * float(self.f + self.f)", "self.f = fractions.Fraction(1, 6)", "import fractions"), """
import fractions
f = fractions.Fraction.__add__
for n, c in zip(f.__code__.co_freevars, f.__closure__):
    if n == 'monomorphic_operator': c.cell_contents = lambda a, b: 7
""")
_add("Tensor.__rsub__'s closure", _model("2 - x"), """
f = torch.Tensor.__rsub__
for n, c in zip(f.__code__.co_freevars, f.__closure__):
    if n == 'f': c.cell_contents = lambda a, b: a * 5
""")
_add("PackedSequence in torch.nn.modules.rnn replaced by a class of the same name", _model("self.g(x)[0]", "self.g = nn.GRU(4, 4)"), """
import torch.nn.modules.rnn as r
class M(type):
    def __instancecheck__(c, o): return True
r.PackedSequence = M('PackedSequence', (tuple,), {'__module__': 'torch.nn.utils.rnn', '__qualname__': 'PackedSequence', '__iter__': None})
class T(torch.Tensor): pass
old = torch.nn.GRU.forward
""", harmless=False)
_add("functools.reduce replaced", _model("x * functools.reduce(lambda a, b: a + b, [1, 2])", top="import functools"), "import functools; functools.reduce = lambda f, l: 9")
_add("statistics' sqrt of fmean: fsum replaced", _model("x * statistics.fmean([1, 2])", top="import statistics"), "import statistics; statistics.fsum = lambda d: 9.0")
_add("forward imports config, sys.modules has a clone", _model("import config\nreturn x * config.K") + "--- config.py\nK = 2.0\n", "import types, sys, config; m = types.ModuleType('config'); m.K = 3.0; sys.modules['config'] = m")
_add("forward imports math, sys.modules has a clone", _model("import math\nreturn x * math.pi"), "import types, sys, math; m = types.ModuleType('math'); m.__dict__.update(math.__dict__); m.pi = 3.0; sys.modules['math'] = m")
_add("forward imports from fractions, sys.modules has a clone", _model("from fractions import Fraction as Q\nreturn x * float(Q(1, 2))"), "import types, sys, fractions; m = types.ModuleType('fractions'); m.__dict__.update(fractions.__dict__); m.Fraction = lambda a, b: 7.0; sys.modules['fractions'] = m")
_add("forward imports functional, package has a clone", _model("import torch.nn.functional as G\nreturn G.relu(x)"), "import types, sys; import torch.nn.functional as G; m = types.ModuleType('torch.nn.functional'); m.__dict__.update(G.__dict__); m.relu = lambda x: x.sigmoid(); torch.nn.functional = m")
_add("builtins.__import__ replaced", _model("import math\nreturn x * math.pi"), """
import builtins, types
old = builtins.__import__
def imp(name, *a, **k):
    m = old(name, *a, **k)
    if name == 'math':
        return types.SimpleNamespace(pi=3.0)
    return m
builtins.__import__ = imp
""")
_add("the module's __builtins__ has another __import__", _model("import math\nreturn x * math.pi"), """
import builtins, types
old = builtins.__import__
def imp(name, *a, **k):
    return types.SimpleNamespace(pi=3.0) if name == 'math' else old(name, *a, **k)
keep = app.__builtins__
app.__builtins__ = {**vars(builtins), '__import__': imp}
app.Model.forward = types.FunctionType(app.Model.forward.__code__, vars(app), 'forward')
app.__builtins__ = keep
""")
_add("a sandboxing import hook gives the helper restricted builtins", _model("helper.f(x)", top="import helper") + "--- helper.py\ndef f(x):\n    return x * round(2.4)\n", "", second="""
import sys, builtins, importlib.machinery, os
class L(importlib.machinery.SourceFileLoader):
    def exec_module(self, module):
        d = dict(vars(builtins)); d['round'] = lambda v: 3
        module.__builtins__ = d
        super().exec_module(module)
class Fd:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == 'helper':
            s = importlib.machinery.PathFinder.find_spec(name, path)
            return importlib.util.spec_from_file_location(name, s.origin, loader=L(name, s.origin))
import importlib.util
sys.meta_path.insert(0, Fd)
""", first="pass")
_add("a torch layer's forward recreated with other builtins", _model("self.s(x)", "self.s = nn.Softmax(0)"), """
import types, builtins, torch.nn.functional as G
keep = G.__builtins__
G.__builtins__ = {**vars(builtins), 'isinstance': lambda *a: True}
o = G.softmax
n = types.FunctionType(o.__code__, vars(G), o.__name__, o.__defaults__, o.__closure__)
G.__builtins__ = keep
""", harmless=True)

SD = "from requests.structures import CaseInsensitiveDict as SD\n"
_add("an installed class's __contains__ is a set's bound method", _model("x * (2 if 'k' in self.d else 3)", "self.d = SD()", SD + "SD.__contains__ = {'k'}.__contains__"), "app.SD.__contains__ = {'j'}.__contains__")
_add("a user's ExpTransform of the same name is put into log_normal", _model("D.LogNormal(0., 1., validate_args=False).log_prob(x + 1)", top="import torch.distributions as D"), """
import torch.distributions.log_normal as l
class ExpTransform(l.ExpTransform):
    def _inverse(self, y): return y * 2
ExpTransform.__module__ = 'torch.distributions.transforms'; ExpTransform.__qualname__ = 'ExpTransform'
l.ExpTransform = ExpTransform
""")
_add("a function of the same name is put into normal", _model("D.Normal(0., 1., validate_args=False).log_prob(x)", top="import torch.distributions as D"), """
import torch.distributions.normal as l
def broadcast_all(a, b): return torch.ones(3, 1), torch.ones(3, 1) * 2
broadcast_all.__module__ = 'torch.distributions.utils'; broadcast_all.__qualname__ = 'broadcast_all'
l.broadcast_all = broadcast_all
""")
_add("fractions.Decimal is a class of the same name with an instance check", _model("try:\n    return x * float(fractions.Fraction(self.q))\nexcept TypeError:\n    return x * 3", "self.q = Q()", "import fractions\nclass Q:\n    def as_integer_ratio(self): return (4, 2)"), """
import fractions
class M(type):
    def __instancecheck__(c, o): return True
fractions.Decimal = M('Decimal', (), {'__module__': 'decimal', '__qualname__': 'Decimal'})
""")
_add("torch.nn.modules.rnn.PackedSequence with an instance check: try", _model("try:\n    return self.g(x)[0]\nexcept (ValueError, TypeError):\n    return x * 2", "self.g = nn.GRU(4, 4)"), """
import torch.nn.modules.rnn as r
class M(type):
    def __instancecheck__(c, o): return True
r.PackedSequence = M('PackedSequence', (), {'__module__': 'torch.nn.utils.rnn', '__qualname__': 'PackedSequence'})
""")
_add("a settrace function changes a global in forward", _model("x * K", top="K = 2.0"), """
import sys
def tr(frame, event, arg):
    if frame.f_code.co_name == 'forward' and frame.f_code.co_filename.endswith('app.py'):
        app.K = 3.0
    return None
sys.settrace(tr)
""")
_add("a settrace function restores after return", _model("x * K", top="K = 2.0"), """
import sys
def tr(frame, event, arg):
    if frame.f_code.co_name == 'forward' and frame.f_code.co_filename.endswith('app.py'):
        app.K = 2.0 if event == 'return' else 3.0
        return tr
    return None
sys.settrace(tr)
""")
_add("buffer registration hook alters a buffer made in forward", _model("m = nn.Module()\nm.register_buffer('a', x * 2)\nreturn m.a"), "import torch.nn.modules.module as m; m.register_module_buffer_registration_hook(lambda mod, n, b: b * 3)")
_add("an OrderedDict filled with another hash", _model("x * self.d.get(K(), 3.0)", "self.d = collections.OrderedDict()\nself.d[K()] = 2.0", "import collections\nclass K:\n    h = 1\n    def __hash__(self): return self.h\n    def __eq__(self, o): return True"), "import collections; app.K.h = 5; d = collections.OrderedDict(); d[app.K()] = 2.0; model.d = d; app.K.h = 1")
_add("a dict has two equal keys", _model("x * len(self.d)", "self.d = {C(1): 1, C(1): 1}", "import dataclasses\n@dataclasses.dataclass(unsafe_hash=True)\nclass C:\n    a: int = 1"), "c = app.C(2); d = {app.C(1): 1, c: 1}; c.a = 1; model.d = d")
_add("os.environ replaced by a dict clone", _model("x * float(os.environ.get('KK', '2'))", top="import os"), "import os; os.environ = {'KK': '3'}")
_add("os.environ's decode patched", _model("x * float(os.environ.get('KK', '2'))", top="import os"), "import os; os.environ.decodevalue = lambda v: '3'", environ={"KK": "2"})
_add("os.environ data edited below", _model("x * float(os.environ.get('KK', '2'))", top="import os"), "import os; os.environ._data[b'KK'] = b'3'", environ={"KK": "2"})
_add("a library function is another function of torch with the same name", _model("self.f(x)", "self.f = torch.special.log1p"), "model.f = torch.special.expm1")
_add("a default device mode of the user's own", _model("x + torch.zeros(4)"), """
from torch.overrides import TorchFunctionMode
class Dv(TorchFunctionMode):
    def __torch_function__(self, f, t, a=(), k=None):
        r = f(*a, **(k or {}))
        return r + 1 if f is torch.zeros else r
Dv().__enter__()
""")
_add("nn.Module's __dir__ patched and used", _model("x * len([n for n in self.__dir__() if n == 'lin'])"), "torch.nn.Module.__dir__ = lambda s: ['lin', 'lin']")
_add("a constraint object of Normal patched by class", _model("x * (2 if D.constraints.positive.check(torch.tensor(1.)) is not None else 3)", top="import torch.distributions as D"), "import torch.distributions.constraints as c; type(c.positive).check = lambda s, v: None")
_add("a module clone with sys.modules for statistics", _model("x * statistics.fmean([1, 2])", top="import statistics"), "import types, sys, statistics as s; m = types.ModuleType('statistics'); m.__dict__.update(s.__dict__); sys.modules['statistics'] = m; s.fmean = lambda d: 9.0")
_add("copied statistics is registered and inner fsum of the one in use patched", _model("x * statistics.fmean([1, 2])", top="import statistics"), "import types, sys, statistics as s; m = types.ModuleType('statistics'); m.__dict__.update(s.__dict__); sys.modules['statistics'] = m; s.fsum = lambda d: 9.0")

_add("fractions.Decimal is a plain class of the same name", _model("try:\n    return x * float(fractions.Fraction(self.q))\nexcept TypeError:\n    return x * 3", "self.q = decimal.Decimal(2)", "import fractions, decimal"), """
import fractions
fractions.Decimal = type('Decimal', (), {'__module__': 'decimal', '__qualname__': 'Decimal'})
""")
_add("fractions.Decimal is a subclass of Decimal of the same name", _model("try:\n    return x * float(fractions.Fraction(self.q))\nexcept TypeError:\n    return x * 3", "self.q = decimal.Decimal(2)", "import fractions, decimal"), """
import fractions, decimal
fractions.Decimal = type('Decimal', (decimal.Decimal,), {'__module__': 'decimal', '__qualname__': 'Decimal'})
""")
_add("F.relu is recreated with other globals, used by nn.ReLU", _model("self.r(x)", "self.r = nn.ReLU()"), """
import types, torch.nn.functional as G
o = G.relu
G.relu = types.FunctionType(o.__code__, {**vars(G), 'torch': types.SimpleNamespace(relu=torch.sigmoid, relu_=torch.relu_)}, 'relu', o.__defaults__)
""")
_add("F.relu is recreated with other globals, used directly", _model("F.relu(x)"), """
import types, torch.nn.functional as G
o = G.relu
G.relu = types.FunctionType(o.__code__, {**vars(G), 'torch': types.SimpleNamespace(relu=torch.sigmoid, relu_=torch.relu_)}, 'relu', o.__defaults__)
""")
_add("nn.Linear.forward is recreated with other globals", _model("self.lin(x)"), """
import types, torch.nn.modules.linear as l
o = torch.nn.Linear.forward
n = types.FunctionType(o.__code__, {**vars(l), 'F': types.SimpleNamespace(linear=lambda x, w, b: x @ w)}, 'forward', o.__defaults__)
n.__qualname__ = o.__qualname__; n.__annotations__ = o.__annotations__; n.__doc__ = o.__doc__
torch.nn.Linear.forward = n
""")
_add("nn.Module._call_impl is recreated with other global hooks", _model("self.lin(x)"), """
import types, torch.nn.modules.module as l
o = torch.nn.Module._call_impl
n = types.FunctionType(o.__code__, {**vars(l), '_global_forward_hooks': {0: lambda m, i, r: r * 2}, '_global_forward_hooks_always_called': {}}, '_call_impl', o.__defaults__)
n.__qualname__ = o.__qualname__
torch.nn.Module._call_impl = n
""")
_add("statistics.fmean is recreated with other globals", _model("x * statistics.fmean([1, 2])", top="import statistics"), """
import types, statistics
o = statistics.fmean
statistics.fmean = types.FunctionType(o.__code__, {**vars(statistics), 'fsum': lambda d: 9.0}, 'fmean', o.__defaults__)
statistics.fmean.__annotations__ = o.__annotations__
""")
_add("Fraction's _mul in the closure is recreated with other globals", _model("x * float(self.f + self.f)", "self.f = fractions.Fraction(1, 6)", "import fractions"), """
import fractions, types
f = fractions.Fraction.__add__
for n, c in zip(f.__code__.co_freevars, f.__closure__):
    if n == 'monomorphic_operator':
        o = c.cell_contents
        c.cell_contents = types.FunctionType(o.__code__, {**vars(fractions), 'Fraction': lambda *a, **k: 7.0}, o.__name__, o.__defaults__)
        c.cell_contents.__qualname__ = o.__qualname__
""")
_add("Tensor.split is recreated with other globals", _model("x.split(2, 1)[0]"), """
import types, torch._tensor as t
o = torch.Tensor.split
class V:
    def __getattr__(self, n): return lambda s, *a: [s * 2]
n = types.FunctionType(o.__code__, {**vars(t), 'torch': types.SimpleNamespace(_VF=V(), SymInt=torch.SymInt)}, 'split', o.__defaults__)
n.__qualname__ = o.__qualname__; n.__doc__ = o.__doc__
torch.Tensor.split = n
""")
_add("setprofile function changes a global", _model("x * K", top="K = 2.0"), """
import sys
def tr(frame, event, arg):
    if frame.f_code.co_name == 'forward' and frame.f_code.co_filename.endswith('app.py'):
        app.K = 3.0 if event == 'call' else 2.0
sys.setprofile(tr)
""")
_add("audit hook at array construction", _model("array.array('i', [1])\nreturn x * S[0]", top="import array\nS = [2.0]"), """
import sys
def h(e, a):
    if e == 'array.__new__': app.S[0] = 3.0
sys.addaudithook(h)
""")
_add("audit hook at setting a function's code attribute", _model("C.__name__ = 'C'\nreturn x * S[0]", top="class C: pass\nS = [2.0]"), """
import sys
def h(e, a):
    if e == 'object.__setattr__' and a[1] == '__name__': app.S[0] = 3.0
sys.addaudithook(h)
""")
_AUDITED = _model("array.array('i', [1])\nreturn x * S[0]", top="import array\nS = [2.0]")
_AUDITS = "import sys\ndef h(e, a):\n    if e == 'array.__new__': app.S[0] = 3.0\nsys.addaudithook(h)\n"
_LIBRARY_AUDITS = """
import os, sys
space = {}
exec(compile('def hook(e, a): pass', os.path.dirname(torch.__file__) + '/../filelock/_api.py', 'exec'), space)
sys.addaudithook(space['hook'])
"""
_add("harmless: a library's audit hook", _model("x * 2"), _LIBRARY_AUDITS, harmless=True)
_add("audit hook after a library's", _AUDITED, _LIBRARY_AUDITS + _AUDITS)
_add("audit hook before a library's", _AUDITED, _AUDITS + _LIBRARY_AUDITS)
_add("audit hook that is an object", _AUDITED, "import sys\nclass H:\n    def __call__(self, e, a):\n        if e == 'array.__new__': app.S[0] = 3.0\nsys.addaudithook(H())")
_add("audit hook that raises for events of trtcache", _AUDITED, _AUDITS.replace("    if e", "    if e.startswith('trtcache'): raise RuntimeError\n    if e"))
_add("audit hook that forbids others", _AUDITED, _AUDITS.replace("    if e", "    if e == 'sys.addaudithook': raise RuntimeError\n    if e"))
_add("np.finfo's cached object is edited", _model("x * float(np.finfo(np.float32).bits)", top="import numpy as np"), "import numpy as np; np.finfo(np.float32).bits = 7")
_add("array interface alignment", _model("x * (2 if self.a.flags.aligned else 3)", "self.a = np.ones(3)", "import numpy as np"), "import numpy as np; model.a = np.frombuffer(b'x' * 25, dtype='u1')[1:].view('f8')")
_add("cached_property attrname edited", _model("x * self.c.k", "self.c = C()\nself.c.j = 3.0", "import functools\nclass C:\n    @functools.cached_property\n    def k(self): return 2.0"), "app.C.__dict__['k'].attrname = 'j'")
_add("decimal traps", _model("try:\n    return x * float(decimal.Decimal(1) / decimal.Decimal(0))\nexcept ZeroDivisionError:\n    return x * 2", top="import decimal"), "import decimal; decimal.getcontext().traps[decimal.DivisionByZero] = False")
_add("np.seterrcall function", _model("np.float64(1) / np.float64(0)\nreturn x * S[0]", top="import numpy as np\nS = [2.0]\nnp.seterr(divide='call'); np.seterrcall(lambda *a: None)"), "import numpy as np; np.seterrcall(lambda *a: app.S.__setitem__(0, 3.0))")
_add("a user's class claims to be torch.nn.modules.activation.ReLU inside activation module's user", _model("self.t(x)", "self.t = nn.TransformerEncoderLayer(4, 2, batch_first=True, activation=F.relu)\nself.t.train()\nself.t.dropout.p = self.t.dropout1.p = self.t.dropout2.p = 0.0"), """
def relu(x, inplace=False): return torch.sigmoid(x)
relu.__module__ = 'torch.nn.functional'
model.t.activation = relu
""")

_add("container.OrderedDict is a reversing subclass of the same name", _model("self.s[0:2](x)", "self.s = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Sigmoid())"), """
import torch.nn.modules.container as c, collections
class OrderedDict(collections.OrderedDict):
    def items(self): return list(super().items())[:1]
OrderedDict.__module__ = 'collections'; OrderedDict.__qualname__ = 'OrderedDict'
c.OrderedDict = OrderedDict
""")
_add("a weakref callback fires when forward replaces an object", _model("self.c = C()\nreturn x * S[0]", "self.c = C()", "class C: pass\nS = [2.0]"), "import weakref, builtins; builtins._w = weakref.ref(model.c, lambda r: app.S.__setitem__(0, 3.0))")
_add("a function's globals become a dict subclass", _model("self.f(x)", "self.f = f", "K = 2.0\ndef f(x): return x * K"), "import types\nclass G(dict):\n    def __getitem__(s, k): return 3.0 if k == 'K' else dict.__getitem__(s, k)\nmodel.f = types.FunctionType(app.f.__code__, G(vars(app)), 'f')")
_add("config's __class__ gets a __getattribute__", _model("x * config.K", top="import config") + "--- config.py\nK = 2.0\n", "import config, types\nclass M(types.ModuleType):\n    def __getattribute__(s, n): return 3.0 if n == 'K' else super().__getattribute__(n)\nconfig.__class__ = M")
_add("torch.nn.functional's __class__ gets a __getattribute__", _model("F.relu(x)"), "import types, torch.nn.functional as G\nclass M(types.ModuleType):\n    def __getattribute__(s, n): return torch.sigmoid if n == 'relu' else super().__getattribute__(n)\nG.__class__ = M")
_add("math stays, torch's __class__ gets a __getattribute__", _model("F.relu(x)"), "import types\nclass M(type(torch)):\n    def __getattribute__(s, n): return torch.sigmoid if n == 'relu' else super().__getattribute__(n)\ntorch.__class__ = M")
_add("a user dict subclass in globals with __missing__", _model("x * D['k']", top="class DD(dict):\n    def __missing__(self, k): return 2.0\nD = DD()"), "app.DD.__missing__ = lambda s, k: 3.0")
_add("fractions' __class__ is replaced with an edited attribute", _model("x * float(fractions.Fraction(1, 2) + 1)", top="import fractions"), "import types, fractions\nclass M(types.ModuleType):\n    def __getattribute__(s, n): return (lambda *a: 7.0) if n == 'Fraction' else super().__getattribute__(n)\nfractions.__class__ = M")
_add("math's __class__ is replaced with an edited attribute", _model("x * math.pi", top="import math"), "import types, math\nclass M(types.ModuleType):\n    def __getattribute__(s, n): return 3.0 if n == 'pi' else super().__getattribute__(n)\nmath.__class__ = M")
_add("audit hook that is a partial", _AUDITED, _AUDITS.replace("sys.addaudithook(h)", "import functools; sys.addaudithook(functools.partial(h))"), live=False)
_add("audit hook that is a singledispatch function", _AUDITED, _AUDITS.replace("sys.addaudithook(h)", "import functools; sys.addaudithook(functools.singledispatch(h))"), live=False)
_add("audit hook in C beside a library's", _AUDITED, _LIBRARY_AUDITS + "import ctypes\nC = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.py_object, ctypes.c_void_p)\nkeep = C(lambda e, a, d: app.S.__setitem__(0, 3.0) or 0 if e == b'array.__new__' else 0)\nctypes.pythonapi.PySys_AddAuditHook(keep, None)\nimport builtins; builtins._kept = keep", live=False)
