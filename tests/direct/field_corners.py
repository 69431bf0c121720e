"""Changes in corners of Python and torch: objects in C, equality and order, imports, closures, operators, configurations."""

# fmt: off
from __future__ import annotations

from tests.direct.field_scenarios import _add, _model


def _t(doc, cond, top, change, init="pass", to=(), **more):
    """Twice if so, or else thrice."""
    _add(doc, _model(f"x * (2.0 if {cond} else 3.0)", init, top), change, *to, **more)


def _v(doc, value, top, change, init="pass", to=(), **more):
    _add(doc, _model(f"x * float({value})", init, top), change, *to, **more)


# State of C objects, and values that are equal but not the same
_t("a union of types is in another order", "U.__args__[0] is int", "U = int | str\n", "app.U = str | int")
_t("typing.Union in another order", "U.__args__[0] is int", "import typing\nU = typing.Union[int, str]\n", "import typing; app.U = typing.Union[str, int]")
_t("a Literal in another order", "U.__args__[0] == 1", "import typing\nU = typing.Literal[1, 2]\n", "import typing; app.U = typing.Literal[2, 1]")
_t("a Literal of True instead of 1", "U.__args__[0] is not True", "import typing\nU = typing.Literal[1]\n", "import typing; app.U = typing.Literal[True]")
_v("the metadata of Annotated", "U.__metadata__[0]", "import typing\nU = typing.Annotated[int, 2.0]\n", "import typing; app.U = typing.Annotated[int, 3.0]")
_v("the constraints of a TypeVar", "len(T.__constraints__)", "import typing\nT = typing.TypeVar('T', int, str)\n", "import typing; app.T = typing.TypeVar('T', int, str, float)")
_t("the bound of a TypeVar", "T.__bound__ is int", "import typing\nT = typing.TypeVar('T', bound=int)\n", "import typing; app.T = typing.TypeVar('T', bound=str)")
_t("variance of a TypeVar", "not T.__covariant__", "import typing\nT = typing.TypeVar('T')\n", "import typing; app.T = typing.TypeVar('T', covariant=True)")
_t("arguments of a GenericAlias", "A.__args__[0] is int", "A = list[int]\n", "app.A = list[str]")
_t("a GenericAlias is unpacked", "not A.__unpacked__", "A = tuple[int]\n", "app.A = next(iter(tuple[int]))")
_t("a NewType's supertype", "N.__supertype__ is int", "import typing\nN = typing.NewType('N', int)\n", "app.N.__supertype__ = str")
_v("a deque's maxlen", "D.maxlen", "import collections\nD = collections.deque([1], maxlen=2)\n", "import collections; app.D = collections.deque([1], maxlen=3)")
_t("the typecode of an equal array", "A.typecode == 'i'", "import array\nA = array.array('i', [1])\n", "import array; app.A = array.array('q', [1])")
_v("the name of an equal time zone", "len(Z.tzname(None))", "import datetime\nZ = datetime.timezone(datetime.timedelta(0), 'aa')\n", "import datetime; app.Z = datetime.timezone(datetime.timedelta(0), 'aaa')")
_t("a UUID that is equal has another safety", "U.is_safe.value == -1 or U.is_safe.value is None", "import uuid\nU = uuid.UUID(int=1)\n", "import uuid; app.U = uuid.UUID(int=1, is_safe=uuid.SafeUUID.safe)")
_v("endpos of a match", "M.endpos", "import re\nM = re.compile('a').match('aaa', 0, 2)\n", "import re; app.M = re.compile('a').match('aaa', 0, 3)")
_v("the string of a match", "len(M.string)", "import re\nM = re.match('a', 'aa')\n", "import re; app.M = re.match('a', 'aaa')")
_v("the size of a struct", "S.size", "import struct\nS = struct.Struct('<h')\n", "app.S.__init__('<i')")
_v("a bound method of a struct that is initialised anew", "f()", "import struct\nS = struct.Struct('<h')\nf = S.size.__index__\n", "app.S.__init__('<i'); app.f = app.S.size.__index__")
_v("a partial gets another state in place", "f()", "import functools\nf = functools.partial(max, 1.0, 2.0)\n", "app.f.__setstate__((max, (1.0, 3.0), {}, None))")
_v("an attribute of a partial", "f.by", "import functools\nf = functools.partial(max, 1.0, 2.0)\nf.by = 2.0\n", "app.f.by = 3.0")
_v("an attribute of a staticmethod", "S.by", "def f(): pass\nS = staticmethod(f)\nS.by = 2.0\n", "app.S.by = 3.0")
_v("an attribute of a classmethod in a class", "C.__dict__['f'].by", "class C:\n    @classmethod\n    def f(cls): pass\nC.__dict__['f'].by = 2.0\n", "app.C.__dict__['f'].by = 3.0")
_v("a property's documentation", "len(C.p.__doc__)", "class C:\n    p = property(lambda s: 1, doc='aa')\n", "app.C.p.__doc__ = 'aaa'")
_v("the stack size of code", "f.__code__.co_stacksize", "def f(): pass\n", "app.f.__code__ = app.f.__code__.replace(co_stacksize=77)")
_v("the line table of code", "len(f.__code__.co_linetable)", "def f():\n    return 1\n", "app.f.__code__ = app.f.__code__.replace(co_linetable=app.f.__code__.co_linetable * 2)")
_v("the file's name of code", "len(f.__code__.co_filename)", "def f(): pass\n", "app.f.__code__ = app.f.__code__.replace(co_filename='a')")
_v("code positions by methodcaller", "max(p[0] for p in G(f.__code__))", "import operator\nG = operator.methodcaller('co_positions')\ndef f():\n    return 1\n", "", to=(("def f():", "\n\n\ndef f():"),))
_v("positions by an attrgetter within map", "[*map(operator.attrgetter(N), [f])][0]", "import operator\nN = '.'.join(['__code__', 'co_firstlineno'])\ndef f(): pass\n", "", to=(("def f():", "\n\ndef f():"),))
_v("qualname of code only", "len(f.__code__.co_qualname)", "def f(): pass\n", "app.f.__code__ = app.f.__code__.replace(co_qualname='longer.name')")
_t("a weak reference is dead", "R() is not None", "import weakref\nclass C: pass\nO = [C()]\nR = weakref.ref(O[0])\n", "app.O.append(app.C()); del app.O[0]")
_t("a weak reference gets a callback", "R.__callback__ is None", "import weakref\nclass C: pass\nO = C()\nR = weakref.ref(O)\n", "import weakref; app.R = weakref.ref(app.O, print)")
_v("a weak set has one more", "len(W)", "import weakref\nclass C: pass\nO = [C(), C(), C()]\nW = weakref.WeakSet(O[:2])\n", "app.W.add(app.O[2])")
_v("a weak dictionary's value", "W[O]", "import weakref\nclass C: pass\nO = C()\nW = weakref.WeakKeyDictionary({O: 2.0})\n", "app.W[app.O] = 3.0")
_v("an attribute behind a weak proxy", "P.by", "import weakref\nclass C: by = 2.0\nO = C()\nP = weakref.proxy(O)\n", "app.O.by = 3.0")
_t("a finalizer is not alive", "W.alive", "import weakref\nclass C: pass\nO = C()\nW = weakref.finalize(O, int)\n", "app.W.detach()")
_v("a thread local value", "L.by", "import threading\nL = threading.local()\nL.by = 2.0\n", "app.L.by = 3.0")
_v("the context has one more variable", "len(now()) + 2", "from contextvars import copy_context as now\nimport contextvars\nV = contextvars.ContextVar('V')\n", "app.V.set(1)")
_v("the old value of a token", "T.old_value", "import contextvars\nV = contextvars.ContextVar('V')\nV.set(2.0)\nT = V.set(1.0)\n", "app.V.set(3.0); app.T = app.V.set(1.0)")
_t("errno of ctypes", "no() == 0", "from ctypes import get_errno as no\n", "import ctypes; ctypes.set_errno(3)", first="import ctypes; ctypes.set_errno(0)")
_t("threshold of the collector", "at()[0] == 700", "from gc import get_threshold as at\n", "import gc; gc.set_threshold(701)", first="import gc; gc.set_threshold(700, 10, 10)")
_t("tracemalloc traces", "not on()", "from tracemalloc import is_tracing as on\n", "import tracemalloc; tracemalloc.start()")
_v("how many functions are called at exit", "count()", "from atexit import _ncallbacks as count\n", "import atexit; atexit.register(int)")
_t("the stack size of new threads", "size() == 0", "from threading import stack_size as size\n", "import threading; threading.stack_size(1 << 20)")

# The processor's and C library's state, which has no getter
_t("denormal numbers are flushed, in Python's own arithmetic", "V * 0.5 > 0", "V = 2.3e-308\n", "torch.set_flush_denormal(True)")
_v("the rounding mode of the processor", "A / B", "A, B = 2.0, 3.0\n", "import ctypes; ctypes.CDLL('libm.so.6').fesetround(0x800)")
_t("the rounding mode, seen by comparison", "A + B == 1.0", "A, B = 1.0, 1e-30\n", "import ctypes; ctypes.CDLL('libm.so.6').fesetround(0x800)")

# Python's library: replaced below what the user's code names
_v("a base class of Fraction is patched", "V", "import fractions\nV = fractions.Fraction(2)\n", "import numbers; numbers.Rational.__float__ = lambda s: 3.0")
_add("the closure of a context manager's helper is another", _model("with c() as by:\n    return x * by", top="import contextlib\n@contextlib.contextmanager\ndef c():\n    yield 2.0\n"), "def other():\n    yield 3.0\napp.c.__closure__[0].cell_contents = other")
_add("nullcontext is patched", _model("with contextlib.nullcontext(2.0) as by:\n    return x * by", top="import contextlib\n"), "import contextlib; contextlib.nullcontext.__enter__ = lambda s: 3.0")
_v("cached_property is patched", "C().by", "import functools\nclass C:\n    @functools.cached_property\n    def by(self): return 2.0\n", "import functools; functools.cached_property.__get__ = lambda s, o, t=None: 3.0")
_v("an enum's property is patched", "E.A.value", "import enum\nclass E(enum.Enum):\n    A = 2.0\n", "import enum; enum.property.__get__ = lambda s, o, t=None: 3.0")
_v("looking a name up in an enum is patched", "E['A'].value", "import enum\nclass E(enum.Enum):\n    A = 2.0\n    B = 3.0\n", "import enum; enum.EnumMeta.__getitem__ = lambda c, n: c._member_map_['B']")
_v("ChainMap is patched", "M['a']", "import collections\nM = collections.ChainMap({'a': 2.0})\n", "import collections; collections.ChainMap.__getitem__ = lambda s, k: 3.0")
_t("a cached pattern of re is exchanged", "re.match('fieldq', 'fieldq')", "import re\nre.match('fieldq', '')\n", "import re; re._cache[str, 'fieldq', 0] = re.compile('other')")
_v("textwrap's pattern is another", "len(textwrap.wrap('x y', 2)[0])", "import re, textwrap\n", "import re, textwrap; textwrap.TextWrapper.wordsep_re = re.compile('(zz)')")
_v("json's default encoder has another separator", "len(json.dumps([1, 2]))", "import json\n", "import json; json._default_encoder.item_separator = ',   '")
_v("an entity of html is added", "len(html.unescape('&fieldx;'))", "import html\n", "import html.entities; html.entities.html5['fieldx;'] = 'a'")
_v("a scheme of urls is relative", "len(urllib.parse.urljoin('fieldx://a/bbb/c', 'd'))", "import urllib.parse\n", "import urllib.parse; urllib.parse.uses_relative.append('fieldx'); urllib.parse.uses_netloc.append('fieldx')")
_v("the domain of gettext", "len(gettext.textdomain())", "import gettext\n", "import gettext; gettext.textdomain('a_longer_domain')")
_v("DefaultContext of decimal", "decimal.Context().prec", "import decimal\n", "import decimal; decimal.DefaultContext.prec = 9")
_v("BasicContext of decimal", "decimal.BasicContext.prec", "import decimal\n", "import decimal; decimal.BasicContext.prec = 3")
_v("a namespace of XML is registered", "len(ET.tostring(E))", "import xml.etree.ElementTree as ET\nE = ET.fromstring('<a xmlns=\"urn:field\"/>')\n", "import xml.etree.ElementTree as ET; ET.register_namespace('longprefix', 'urn:field')")
_t("an alias of an encoding is added", "not known('field_enc')", "import codecs\ndef known(n):\n    try:\n        return codecs.lookup(n)\n    except LookupError:\n        return None\n", "import encodings.aliases; encodings.aliases.aliases['field_enc2'] = 'utf_8'; app.known.__code__.co_consts; import codecs; codecs.register(lambda n: codecs.lookup('utf-8') if n == 'field_enc' else None)")
_v("a table of a stdlib singledispatch is filled", "len(pkgutil.get_importer.__name__) if not [*pkgutil.iter_importer_modules(I())] else 30", "import pkgutil\nclass I: pass\n", "import pkgutil; pkgutil.iter_importer_modules.register(app.I, lambda i, prefix='': [1])")
_v("the closure of a singledispatch's registry in stdlib", "len([*pkgutil.iter_importer_modules.registry]) + 2", "import pkgutil\n", "import pkgutil; pkgutil.iter_importer_modules.register(int, print)")
_v("a config variable of the build", "sysconfig.get_config_var('FIELDX') or 2.0", "import sysconfig\nsysconfig.get_config_vars()\n", "import sysconfig; sysconfig.get_config_vars()['FIELDX'] = 3.0")
_v("the operator of an Element of statistics is patched deeply", "statistics.mean([2.0])", "import statistics\n", "import statistics; statistics._convert = lambda v, T: 3.0")

# NumPy: singletons, caches, Python called from C
_v("NumPy's sum in Python, called from C, has another global", "A.sum()", "import numpy as np\nA = np.ones(2)\nA.sum()\n", "import numpy as np; np._core._methods.umr_sum = lambda a, *r: 3.0")
_v("NumPy's mean, called from C, has another global", "A.mean()", "import numpy as np\nA = np.full(2, 2.0)\nA.mean()\n", "import numpy as np; np._core._methods._count_reduce_items = lambda *a, **k: 4")
_v("a cached finfo of NumPy is edited", "np.finfo(np.float32).eps", "import numpy as np\n", "import numpy as np; np.finfo(np.float32).__dict__['eps'] = 3.0; np.finfo(np.float32).eps = 3.0", live=True)
_v("NumPy's mgrid is sparse", "np.mgrid[0:2, 0:3][0].size", "import numpy as np\n", "import numpy as np; np.mgrid.sparse = True")
_t("NumPy's s_ makes tuples", "type(np.s_[1:2]) is slice", "import numpy as np\n", "import numpy as np; np.s_.maketuple = True")
_t("NumPy's r_ has another axis", "np.r_[[[1.0]], [[2.0]]].shape[0] == 2", "import numpy as np\n", "import numpy as np; np.r_.axis = -1", first="import numpy as np; np.r_.axis = 0")
_v("limits of NumPy's iinfo are cached in a class", "np.iinfo(np.int8).max", "import numpy as np\n", "import numpy as np; np.iinfo._max_vals['i8'] = 3")
_v("a name of a NumPy type is another type", "np.dtype('half').itemsize", "import numpy as np\n", "import numpy as np; np._core.sctypeDict['half'] = np.float64")
_v("np.vectorize's function is another", "V(1.0)", "import numpy as np\nV = np.vectorize(lambda a: 2.0)\n", "app.V.pyfunc = lambda a: 3.0")
_v("strides of an equal array", "A.strides[0]", "import numpy as np\nA = np.zeros((2, 2))\n", "import numpy as np; app.A = np.asfortranarray(app.A)")
_t("byte order of an equal array", "A.dtype.byteorder == '='", "import numpy as np\nA = np.ones(2)\n", "app.A = app.A.astype('>f8')")
_t("alignment flag of an equal dtype", "not D.isalignedstruct", "import numpy as np\nD = np.dtype([('a', 'f4')])\n", "import numpy as np; app.D = np.dtype([('a', 'f4')], align=True)")
_t("titles of a dtype's fields", "len(D.fields) == 1", "import numpy as np\nD = np.dtype([('a', 'f4')])\n", "import numpy as np; app.D = np.dtype([(('t', 'a'), 'f4')])")

# torch's objects in C
_t("a set of dispatch keys", "not KS.has(torch._C.DispatchKey.Meta)", "KS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)\n", "app.KS = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)")
_v("a parsed schema", "len(S.arguments)", "S = torch._C.parse_schema('f(int a, int b) -> ()')\n", "app.S = torch._C.parse_schema('f(int a, int b, int c) -> ()')")
_v("the result of a torch future", "W.value()", "W = torch.futures.Future()\nW.set_result(2.0)\n", "app.W = torch.futures.Future(); app.W.set_result(3.0)")
_v("a storage is longer than its tensor", "K.untyped_storage().nbytes()", "K = torch.ones(4)\n", "app.K.untyped_storage().resize_(32)")
_t("a kept tensor is in shared memory", "not K.is_shared()", "K = torch.ones(4)\n", "app.K.share_memory_()")
_t("a kept tensor is a lazy clone", "not torch._C._is_cow_tensor(K)", "K = torch.ones(4)\n", "app.L = app.K; app.K = app.K._lazy_clone()")
_t("metadata of a node of autograd", "'by' not in K.grad_fn.metadata", "K = torch.ones(4, requires_grad=True) * 2\n", "app.K.grad_fn.metadata['by'] = 3.0")
_v("a node of autograd has another history", "len(K.grad_fn.next_functions)", "W = torch.ones(4, requires_grad=True)\nK = W * 2\n", "app.K = torch.addcmul(app.W, app.W, app.W)")
_t("a kept tensor retains its gradient", "not K.retains_grad", "K = torch.ones(4, requires_grad=True) * 2\n", "app.K.retain_grad()")
_v("the number of an output of unbind", "K.output_nr + 2", "W = torch.ones(4, requires_grad=True)\nK = W.unbind()[0]\n", "app.K = app.W.unbind()[1]")
_v("the version of a kept tensor", "K._version + 2", "K = torch.ones(4)\n", "app.K.add_(0)")
_t("the dtype of gradients of a kept tensor", "K.grad_dtype == torch.float32", "K = torch.ones(4, requires_grad=True)\n", "app.K.grad_dtype = torch.float64")
_v("a kept generator's seed", "G.initial_seed()", "G = torch.Generator()\nG.manual_seed(2)\n", "app.G.manual_seed(3)")

# torch's state, with getters that no setter's name leads to
for _doc, _cond, _change in (
    ("forward gradients", "torch._C._is_fwd_grad_enabled()", "torch._C._set_fwd_grad_enabled(False)"),
    ("hooks for saved tensors", "torch._C._autograd._saved_tensors_hooks_is_enabled()", "torch._C._autograd._saved_tensors_hooks_disable('no')"),
    ("replay of views", "not torch._C._is_view_replay_enabled()", "torch._C._set_view_replay_enabled(True)"),
    ("an object in thread-local storage", "not torch._C._is_key_in_tls('field')", "torch._C._stash_obj_in_tls('field', 1)"),
    ("the fuser of TorchScript", "torch._C._jit_texpr_fuser_enabled()", "torch._C._jit_set_texpr_fuser_enabled(False)"),
    ("inlining of fusion groups", "torch._C._debug_get_fusion_group_inlining()", "torch._C._debug_set_fusion_group_inlining(False)"),
    ("optimisation by the graph executor", "torch._C._get_graph_executor_optimize()", "torch._C._set_graph_executor_optimize(False)"),
    ("fusion on the CPU", "not torch._C._jit_can_fuse_on_cpu()", "torch._C._jit_override_can_fuse_on_cpu(True)"),
    ("functorch allows in-place gradients", "not torch._C._functorch.get_inplace_requires_grad_allowed()", "torch._C._functorch.set_inplace_requires_grad_allowed(True)"),
    ("the name of the private backend", "torch._C._get_privateuse1_backend_name() == 'privateuseone'", "torch._C._rename_privateuse1_backend('fieldx')"),
    ("parameters are overwritten by conversion", "not torch.__future__.get_overwrite_module_params_on_conversion()", "torch.__future__.set_overwrite_module_params_on_conversion(True)"),
    ("invariants of sparse tensors", "not torch.sparse.check_sparse_tensor_invariants.is_enabled()", "torch.sparse.check_sparse_tensor_invariants.enable()"),
    ("the engine of quantization", "torch.backends.quantized.engine != 'onednn'", "torch.backends.quantized.engine = 'onednn'"),
    ("NNPACK", "torch._C._get_nnpack_enabled()", "torch._C._set_nnpack_enabled(False)"),
    ("the level of forward-mode gradients", "torch.autograd.forward_ad._current_level < 0", "torch.autograd.forward_ad.enter_dual_level()"),
    ("whether a kernel is registered for a key", "not torch._C._dispatch_has_kernel_for_dispatch_key('aten::relu', 'IPU')", "mine = torch.library.Library('aten', 'IMPL'); mine.impl('relu', lambda x: x, 'IPU')"),
    ("safe globals of torch.load", "not torch.serialization.get_safe_globals()", "torch.serialization.add_safe_globals([app.Model])"),
    ("whether torch.load maps files", "not torch.utils.serialization.config.load.mmap", "import torch.utils.serialization; torch.utils.serialization.config.load.mmap = True"),
    ("fills of uninitialised memory", "torch.utils.deterministic.fill_uninitialized_memory", "torch.utils.deterministic.fill_uninitialized_memory = False"),
):
    _t(f"state of torch: {_doc}", _cond, "import torch.utils.serialization\n", _change)

# torch's Python: closures, tables, singletons
_v("the closure of torch's _pair", "sum(pair(1))", "from torch.nn.modules.utils import _pair as pair\n", "app.pair.__closure__[0].cell_contents = 3")
_add("a constraint of torch's distributions has another bound", _model("torch.distributions.biject_to(torch.distributions.constraints.unit_interval)(x)"), "torch.distributions.constraints.unit_interval.upper_bound = 3.0")
_add("torch._VF forwards to another", _model("x.split(2, 1)[0] * 2"), "old = torch._VF.vf\nclass V:\n    def __getattr__(self, n):\n        return lambda *a: [t * 3 for t in getattr(old, n)(*a)]\ntorch._VF.vf = V()")
_add("torch._VF's class looks names up otherwise", _model("x.split(2, 1)[0] * 2"), "old = torch._VF.vf\ntype(torch._VF).__getattr__ = lambda s, n: lambda *a: [t * 3 for t in getattr(old, n)(*a)]")
_add("a packet looks overloads up otherwise", _model("torch.ops.aten.hardswish.default(x)"), "torch.ops.aten.hardswish.__dict__.pop('default', None)\nold = torch._ops.OpOverloadPacket.__getattr__\ntorch._ops.OpOverloadPacket.__getattr__ = lambda s, n: torch.ops.aten.relu.default if s is torch.ops.aten.hardswish and n == 'default' else old(s, n)")
_add("an overload's _op is another's", _model("torch.ops.aten.relu.default(x)"), "torch.ops.aten.relu.default._op = torch.ops.aten.sigmoid.default._op")
_add("a decomposition's closure is another", _model("torch._decomp.decompositions.hardsigmoid(x)", top="import torch._decomp.decompositions\n"), "fn = torch._decomp.decompositions.hardsigmoid\nfor n, c in zip(fn.__code__.co_freevars, fn.__closure__):\n    if n in ('f', 'fn'):\n        c.cell_contents = lambda *a, **k: a[0] * 3")
_add("FakeTensor has another implementation of an operator", _model("y = torch.relu(x)\nreturn y * (2.0 if y.dtype == torch.float32 else 3.0)"), "from torch._subclasses import fake_impls\nfake_impls.op_implementations_dict[torch.ops.aten.relu.default] = lambda mode, func, x: x.double()")
_add("FakeTensor has another check for implementations", _model("y = torch.relu(x)\nreturn y * (2.0 if y.dtype == torch.float32 else 3.0)"), "from torch._subclasses import fake_impls\nfake_impls.op_implementations_checks.insert(0, (lambda f: f is torch.ops.aten.relu.default, lambda mode, func, x: x.double()))")
_add("a Meta kernel in Python's table of an overload", _model("y = torch.relu(x)\nreturn y * (2.0 if y.dtype == torch.float32 else 3.0)"), "torch.ops.aten.relu.default.py_kernels[torch._C.DispatchKey.Meta] = lambda x: x.double()")
_v("what a cached function of torch.overrides returned is edited", "len(torch.overrides.get_testing_overrides()) / 1000", "import torch.overrides\n", "torch.overrides.get_testing_overrides()[len] = lambda x: 1")
_v("a list that a cached function of torch returned is edited", "len(torch.overrides.get_overridable_functions()[torch.Tensor]) / 100", "import torch.overrides\n", "torch.overrides.get_overridable_functions()[torch.Tensor].append(len)")
_add("an output's class is registered with other fields", _model("Out(x * 2, x * 3)", top="class Out:\n    def __init__(self, a, b):\n        self.a, self.b = a, b\nORDER = [0, 1]\ntorch.utils._pytree.register_pytree_node(Out, lambda o: ([[o.a, o.b][i] for i in ORDER], None), lambda v, c: Out(*v), serialized_type_name='field.Out2')\n"), "app.ORDER[:] = [1, 0]")
_add("an output's class is not registered any more", _model("Out(x * 2)", top="class Out:\n    def __init__(self, a):\n        self.a = a\ntorch.utils._pytree.register_pytree_node(Out, lambda o: ([o.a], None), lambda v, c: Out(*v), serialized_type_name='field.Out3')\n"), "torch.utils._pytree.SUPPORTED_NODES.pop(app.Out)")
_add("fields of a named tuple of outputs are renamed", _model("P(x * 2, x * 3)", top="import collections\nP = collections.namedtuple('P', 'a b')\n"), "app.P = __import__('collections').namedtuple('P', 'b a')", live=False)
_add("torch.einsum's path is another", _model("torch.einsum('ab,bc,cd->ad', x, self.lin.weight, self.lin.weight)"), "torch.backends.opt_einsum.enabled = False")

# Imports
_add("a package's name of a submodule is deleted, and its __getattr__ answers", _model("x * pkg.sub.BY", top="import pkg.sub\n") + "--- pkg/__init__.py\n\n--- pkg/sub.py\nBY = 2.0\n", "import pkg, types; del pkg.sub; pkg.__getattr__ = lambda n: types.SimpleNamespace(BY=3.0)")
_add("forward imports relatively, and __package__ is another", _model("x * f()", top="from pkg.m import f\n") + "--- pkg/__init__.py\n\n--- pkg/m.py\ndef f():\n    from . import sub\n    return sub.BY\n--- pkg/sub.py\nBY = 2.0\n--- other/__init__.py\n\n--- other/sub.py\nBY = 3.0\n", "import pkg.m, other; pkg.m.__package__ = 'other'; pkg.m.__spec__ = None")
_add("a package's __path__ leads to another submodule", _model("import pkg.sub as s\nreturn x * s.BY", top="import pkg\n") + "--- pkg/__init__.py\n\n--- pkg/sub.py\nBY = 2.0\n--- other/sub.py\nBY = 3.0\n", "import pkg, sys; sys.modules.pop('pkg.sub', None); vars(pkg).pop('sub', None); pkg.__path__[:] = ['other']")
_add("a finder is before others on the meta path", _model("import conf\nreturn x * conf.BY") + "--- conf.py\nBY = 2.0\n--- late/conf.py\nBY = 3.0\n", "import sys, importlib.machinery as m\nclass Finder:\n    @staticmethod\n    def find_spec(name, path=None, target=None):\n        return m.PathFinder.find_spec(name, ['late']) if name == 'conf' else None\nsys.modules.pop('conf', None); sys.meta_path.insert(0, Finder)")
_add("import a.b.c as d takes another module in the middle", _model("import a.b.c as d\nreturn x * d.BY", top="import a.b.c\n") + "--- a/__init__.py\n\n--- a/b/__init__.py\n\n--- a/b/c.py\nBY = 2.0\n", "import a, types; a.b = types.SimpleNamespace(c=types.SimpleNamespace(BY=3.0))")
_add("star import in a helper module gets another name by __all__", _model("x * h.BY", top="import h\n") + "--- h.py\nfrom one import *\nfrom two import *\n--- one.py\nBY = 2.0\n--- two.py\n__all__ = []\nBY = 3.0\n", "", ("__all__ = []", "__all__ = ['BY']"))
_add("a submodule is loaded now, and hasattr sees it", _model("x * (3.0 if hasattr(pkg, 'sub') else 2.0)", top="import pkg\n") + "--- pkg/__init__.py\n\n--- pkg/sub.py\nBY = 2.0\n", "import pkg.sub")

# Functions that C calls, wrappers of torch around the user's functions, and singletons of torch
_CELL = "for n, c in zip(fn.__code__.co_freevars, fn.__closure__):\n    if n in ('f', 'fn', 'func'):\n        c.cell_contents = lambda *a, **k: a[0] * 3\n"
_add("the closure of Tensor.__rsub__, which C calls, is another", _model("1.0 - x"), "fn = torch.Tensor.__rsub__\n" + _CELL)
_add("the closure of Tensor.__rpow__ is another", _model("2.0 ** x"), "fn = torch.Tensor.__rpow__\n" + _CELL)
_add("the closure of Tensor.__rdiv__ is another, by the name of __rtruediv__", _model("2.0 / (x + 1)"), "fn = torch.Tensor.__rtruediv__\n" + (_CELL))
_add("a function behind the decorator no_grad is another", _model("f(x)", top="@torch.no_grad()\ndef f(x):\n    return x * 2\n"), "fn = app.f\n" + _CELL)
_add("the context of the decorator no_grad is another", _model("f(x)", top="@torch.autocast('cpu', enabled=False)\ndef f(x):\n    return F.linear(x, x)\n"), "import inspect\nfor c in app.f.__closure__:\n    if isinstance(c.cell_contents, torch.autocast):\n        c.cell_contents._enabled = True")
_add("a generator's context manager of the app decorates a function, and its closure is another", _model("f(x)", top="import contextlib\n@contextlib.contextmanager\ndef c():\n    yield\n@c()\ndef f(x):\n    return x * 2\n"), "fn = app.f\n" + _CELL)
_add("__wrapped__ of a function of torch is another", _model("x * inspect.unwrap(torch.nn.functional.softplus2)(1)", top="import inspect, functools\n@functools.wraps(len)\ndef g(a):\n    return a + 1\nF.softplus2 = g\ng.__wrapped__ = lambda a: 2.0\n"), "app.g.__wrapped__ = lambda a: 3.0")
_add("the table of reductions is another", _model("F.mse_loss(x, x * 2, reduction='sum')"), "torch.nn._reduction.get_enum.__code__ = (lambda reduction: 1).__code__")
_add("the module of reductions has another function", _model("F.l1_loss(x, x * 2, reduction='sum')"), "torch.nn._reduction.get_enum = lambda reduction: 1")
_add("a function in torch._C._nn is another", _model("F.pad(x, (1, 1))"), "old = torch._C._nn.pad\ntorch._C._nn.pad = lambda *a, **k: old(*a, **k) * 3")
_add("a function in torch._C._special is another", _model("torch.special.expit(x)"), "torch.special.expit = torch.relu")
_add("the __class__ cell of a method of torch is another", _model("self.p(x)", "self.p = P()", "class B(nn.Module):\n    def forward(self, x):\n        return x * 2\nclass C(nn.Module):\n    def forward(self, x):\n        return x * 3\nclass P(B, C):\n    def forward(self, x):\n        return super().forward(x)\n"), "app.P.forward.__closure__[0].cell_contents = app.B")
_add("an instance's class has another order of bases", _model("self.p(x)", "self.p = P()", "class B(nn.Module):\n    def forward(self, x):\n        return x * 2\nclass C(nn.Module):\n    def forward(self, x):\n        return x * 3\nclass P(B, C): pass\n"), "app.P.__bases__ = (app.C, app.B)")
_add("a metaclass's mro is another", _model("x * P.by", top="class M(type):\n    def mro(cls):\n        return [cls, *(globals()['ORDER'] if len(cls.__bases__) > 1 else cls.__bases__), object] if len(cls.__bases__) > 1 else type.mro(cls)\nclass A(metaclass=M):\n    by = 2.0\nclass B(metaclass=M):\n    by = 3.0\nORDER = [A, B]\nclass P(A, B): pass\n"), "app.ORDER.reverse(); app.P.__bases__ = (app.A, app.B)")
_v("an option's default is edited inside of torch's configuration", "torch._dynamo.config.recompile_limit", "import torch._dynamo.config\n", "torch._dynamo.config._config['recompile_limit'].default = 3")
_v("an option of fx is another", "2 + bool(torch.fx.experimental._config.print_specializations)", "import torch.fx.experimental._config\n", "torch.fx.experimental._config.print_specializations = not torch.fx.experimental._config.print_specializations")

# Arguments and dynamic shapes
_D = "from torch.export import Dim\n"
_add("the maximum of a hint for a dimension is edited in place", _model("self.lin(x)"), "h.__dict__ if not hasattr(h, 'max') else object.__setattr__(h, 'max', 6)", first=_D + "h = Dim.DYNAMIC(min=2, max=5)\ndynamic_shapes = ({0: h},)\n")
_add("a derived dimension has another offset", "\n\nclass Model(nn.Module):\n    def forward(self, x, y):\n        return x.sum() + y\n", "dynamic_shapes = ({0: n}, {0: 2 * n})", first=_D + "n = Dim('n', min=2, max=8)\nargs = (args[0], torch.ones(6))\ndynamic_shapes = ({0: n}, {0: n + 3})\n")
_add("a collection of shapes is edited in place", _model("self.lin(x)"), "next(iter(sc._shapes.values()))[0] = Dim.STATIC", first=_D + "sc = torch.export.ShapesCollection()\nsc[args[0]] = {0: Dim.DYNAMIC}\ndynamic_shapes = sc\n")
_OPT = "\n\nclass Model(nn.Module):\n    def forward(self, x, y):\n        return BODY\n"
_add("a string argument is another", _OPT.replace("BODY", "x * len(y)"), "args = (args[0], 'aaa')", first="args = (args[0], 'aa')\n")
_add("an argument is None instead of a tensor", _OPT.replace("BODY", "x * 2 if y is None else x * y"), "args = (args[0], torch.ones(4))", first="args = (args[0], None)\n")
_add("a tuple argument is a list", _OPT.replace("BODY", "x * y[0] * (2 if type(y) is tuple else 3)"), "args = (args[0], [torch.ones(4)])", first="args = (args[0], (torch.ones(4),))\n")
_add("the memory format of an argument is ambiguous", _model("x * (2.0 if x.is_contiguous(memory_format=torch.channels_last) else 3.0) * x.stride(0)"), "args = (torch.ones(2, 1, 2, 2).as_strided((2, 1, 2, 2), (4, 1, 2, 1)),)", first="args = (torch.ones(2, 1, 2, 2).as_strided((2, 1, 2, 2), (4, 4, 2, 1)),)\n")
_add("an argument's storage offset is another", _model("x * (2.0 + x.storage_offset())"), "args = (torch.ones(13)[1:].view(3, 4),)")

# Private tables, and what a library's function keeps
_t("a cached pattern of re has other flags", "re.match('fieldf', 'FIELDF')", "import re\nre.match('fieldf', '')\n", "import re; re._cache[str, 'fieldf', 0] = re.compile('fieldf', re.I)")
_t("a cached pattern of re has lost its flags", "re.match('fieldg', 'FIELDG', re.I)", "import re\nre.match('fieldg', '', re.I)\n", "import re; re._cache[str, 'fieldg', 2] = re.compile('fieldg')")
_t("a cached pattern of bytes is exchanged", "re.match(b'fieldh', b'fieldh')", "import re\nre.match(b'fieldh', b'')\n", "import re; re._cache[bytes, b'fieldh', 0] = re.compile(b'other')")
_t("a cached pattern is a class with a match of its own", "re.match('fieldi', 'fieldi')", "import re\nclass P:\n    pattern, flags = 'fieldi', 32\n    def match(self, text):\n        return None\n", "import re; re._cache[str, 'fieldi', 0] = app.P()")
_t("harmless: many patterns are cached", "re.match('fieldj', 'fieldj')", "import re\n", "import re\nfor i in range(50): re.match(f'(?i)many{i}', ''); re.match(f'many{i}', '', re.S | re.M)", harmless=True)
_v("a name of a NumPy type is the user's own", "np.dtype('fieldtype').itemsize", "import numpy as np\nnp._core.sctypeDict['fieldtype'] = np.float16\n", "import numpy as np; np._core.sctypeDict['fieldtype'] = np.float64")
_add("harmless: ml_dtypes is imported, which adds names of types to NumPy", _model("x * float(np.dtype('half').itemsize)", top="import numpy as np\n"), "import ml_dtypes", harmless=True)
_add("two overloads have exchanged their _op", _model("torch.ops.aten.relu.default(x)"), "a, b = torch.ops.aten.relu.default, torch.ops.aten.sigmoid.default\na._op, b._op = b._op, a._op")
_add("an overload's _op, in a namespace under another name", _model("A.relu.default(x)", top="A = torch.ops.aten\n"), "torch.ops.aten.relu.default._op = torch.ops.aten.sigmoid.default._op")
_add("an overload's _op is Python's own function", _model("torch.ops.aten.relu.default(x)"), "torch.ops.aten.relu.default._op = lambda x: x * 3")
_add("an overload that is an attribute has another _op", _model("self.op(x)", "self.op = torch.ops.aten.relu.default"), "torch.ops.aten.relu.default._op = torch.ops.aten.sigmoid.default._op")
_v("a cached function that was imported by name returned a dict that is edited", "len(get_testing_overrides()) / 1000", "from torch.overrides import get_testing_overrides\n", "torch.overrides.get_testing_overrides()[len] = lambda x: 1")
_v("a cached function in an attribute returned a dict that is edited", "len(self.f()) / 1000", "import torch.overrides\n", "torch.overrides.get_testing_overrides()[len] = lambda x: 1", "self.f = torch.overrides.get_testing_overrides")
_v("a cached function is found by a composed name", "len(getattr(torch.overrides, 'get_testing' + '_overrides')()) / 1000", "import torch.overrides\n", "torch.overrides.get_testing_overrides()[len] = lambda x: 1")
_v("the default of a dynamo option, imported as a module", "c.recompile_limit", "import torch._dynamo.config as c\n", "torch._dynamo.config._config['recompile_limit'].default = 3")
_v("the default of an inductor option is edited", "torch._inductor.config.benchmark_harness + 2", "import torch._inductor.config\n", "torch._inductor.config._config['benchmark_harness'].default = not torch._inductor.config._config['benchmark_harness'].default")
_v("the default of an option, read by getattr", "getattr(c, 'recompile' + '_limit')", "import torch._dynamo.config as c\n", "torch._dynamo.config._config['recompile_limit'].default = 3")

# Sets of strings from views of dictionaries, and getters that are kept
_OF_VIEWS = "self.a, self.b = dict.fromkeys(['relu', 'tanh', 'sigmoid', 'exp', 'sin', 'cos']), {'exp': 1}"
for _doc, _forward, _top, _more in (
    ("by operator.sub under another name", "for n, v in OP(self.a.items(), self.b.items())", "import operator\nOP = operator.sub\n", ""),
    ("that are in variables", "a = self.a.keys()\nb = self.b.keys()\ny = x + 1\nz = y + 1\nw = z + 1\nfor n in a - b", "", ""),
    ("that are given to a helper", "for n in diff(self.a.keys(), self.b.keys())", "def diff(a, b):\n    return a - b\n", ""),
    ("that are in a list", "v = [self.a.keys(), self.b.keys()]\nfor n in v[0] - v[1]", "", ""),
    ("by reduce", "for n in functools.reduce(operator.sub, [self.a.keys(), self.b.keys()])", "import functools, operator\n", ""),
    ("in place", "k = self.a.keys()\nk -= self.b.keys()\nfor n in k", "", ""),
    ("from dict.keys as a function", "for n in KEYS(self.a) - KEYS(self.b)", "KEYS = dict.keys\n", ""),
    ("from a bound method", "for n in self.k() - {'exp'}", "", "\nself.k = self.a.keys"),
    ("by a default argument", "for n in comb(self.a.keys(), self.b.keys())", "import operator\ndef comb(a, b, op=operator.xor):\n    return op(a, b)\n", ""),
    ("by its method", "for n in self.a.keys().__sub__(self.b.keys())", "", ""),
):
    _add(f"views of dictionaries are subtracted {_doc}", _model(_forward + ":\n    x = getattr(torch, n)(x)\nreturn x", _OF_VIEWS + _more, _top), "pass", env={"PYTHONHASHSEED": "11"})
for _doc, _forward in (
    ("iterated over", "for k, v in self.a.items():\n    x = x - 1.0\nfor i, (k, v) in enumerate(self.a.items()):\n    x = x - i\nreturn x - len(self.a.keys())"),
    ("sorted", "for n in sorted(self.a.keys()):\n    x = getattr(torch, n)(x - 1.0)\nreturn x"),
    ("copied and searched", "d = dict(self.a.items())\nreturn x - 1.0 if 'relu' in self.a.keys() else x"),
):
    _add(f"harmless: views of dictionaries are {_doc}", _model(_forward, _OF_VIEWS), "pass", harmless=True)
_add("harmless: a table of operators", _model("return OPS[self.k](x, 2.0)", "self.k = 'sub'", "import operator\nOPS = {'add': operator.add, 'sub': operator.sub}\n"), "pass", harmless=True)
_v("cache_info is read by getattr", "getattr(f, 'cache_info')().currsize", "import functools\n@functools.lru_cache\ndef f(a):\n    return a\nf(1)\nf(2)\n", "app.f(3)")
_v("the name cache_info is joined from two texts", "getattr(f, self.a + self.b)().currsize", "import functools\n@functools.lru_cache\ndef f(a):\n    return a\nf(1)\nf(2)\n", "app.f(3)", "self.a, self.b = 'cache_', 'info'")
_t("hooks of saved tensors are others", "torch._C._autograd._top_saved_tensors_default_hooks(True)[0] is pack", "def pack(t):\n    return t\ndef other(t):\n    return t\n", "", first="import app\ntorch.autograd.graph.saved_tensors_hooks(app.pack, app.pack).__enter__()", second="import app\ntorch.autograd.graph.saved_tensors_hooks(app.other, app.pack).__enter__()", live=False)
for _doc, _init, _top, _change in (
    ("constant", "pass", "T = torch.ones(4)\n", "app.T = torch.ones(4)"),
    ("buffer", "self.register_buffer('b', torch.ones(4))", "", "model._buffers['b'] = torch.ones(4)"),
    ("weight", "self.w = nn.Parameter(torch.ones(4), requires_grad=False)", "", "model.w = torch.nn.Parameter(torch.ones(4), requires_grad=False)"),
):
    _add(f"a {_doc} becomes an inference tensor", _model(f"x * {({'constant': 'T', 'buffer': 'self.b', 'weight': 'self.w'})[_doc]}", _init, _top), f"with torch.inference_mode():\n    {_change}")
_OTHER_DICT = "class Table(dict):\n    def __getitem__(self, key):\n        found = dict.__getitem__(self, key)\n        return found * 3.0 if isinstance(found, (float, torch.Tensor)) else nn.Identity()\n"
for _doc, _value, _init, _top, _change in (
    ("_modules of a model", "self.lin(x).sum()", "pass", "", "model._modules = app.Table(model._modules)"),
    ("_parameters of a layer", "self.lin(x).sum()", "pass", "", "model.lin._parameters = app.Table(model.lin._parameters)"),
    ("_buffers of a model", "self.b.sum()", "self.register_buffer('b', torch.ones(4))", "", "model._buffers = app.Table(model._buffers)"),
    ("__dict__ of an instance", "vars(self.c)['by']", "self.c = Config()", "class Config:\n    def __init__(self):\n        self.by = 2.0\n", "model.c.__dict__ = app.Table(vars(model.c))"),
    ("__dict__ of a function", "vars(f)['by']", "pass", "def f():\n    pass\nf.by = 2.0\n", "app.f.__dict__ = app.Table(vars(app.f))"),
    ("__dict__ of a tensor", "vars(T)['by']", "pass", "T = torch.ones(1)\nT.by = 2.0\n", "app.T.__dict__ = app.Table(vars(app.T))"),
):
    _add(f"the {_doc} is of another class", _model(f"x * {_value}", _init, _OTHER_DICT + _top), _change)
_t("attributes are looked up in a __dict__ of another class", "model_of(self) is None", "def model_of(module):\n    return vars(module)['by']\nclass Table(dict):\n    def __getitem__(self, key):\n        found = dict.__getitem__(self, key)\n        return 1.0 if key == 'by' else found\n", "model.__dict__ = app.Table(vars(model))", "self.by = None")
_v("a context variable is set to its default", "BY.get(3.0)", "import contextvars\nBY = contextvars.ContextVar('by', default=2.0)\n", "app.BY.set(2.0)", live=False)
_v("the bases of a class with the same order of resolution", "len(Both.__bases__)", "class Top:\n    pass\nclass Below(Top):\n    pass\nclass Both(Below, Top):\n    pass\n", "", to=[("class Both(Below, Top)", "class Both(Below)")])
_PROPERTY = "def get(self, *given):\n    return 2.0\nclass Config:\n    by = property(get, None, None, 'a number')\n"
_v("the function of a property moves from get to set", "getattr(self.c, 'by', 3.0)", _PROPERTY, "", "self.c = Config()", [("property(get, None, None", "property(None, get, None")])
_v("the function of a property moves from set to delete", "self.c.go()", "class Config:\n    def get(self):\n        return 2.0\n    def change(self, *given):\n        vars(self)['to'] = 3.0\n    by = property(get, change, None, 'a number')\n    def go(self):\n        try:\n            del self.by\n            return 5.0\n        except AttributeError:\n            return 4.0\n", "", "self.c = Config()", [("property(get, change, None", "property(get, None, change")])
_v("the function of a layer's property moves from get to set", "getattr(self.lin, 'gain', 3.0) * len(KEPT)", "def gain(self, *given):\n    return 2.0\nKEPT = (gain,)\nnn.Linear.gain = property(gain, None, None, 'a number')\n", "", to=[("property(gain, None,", "property(None, gain,")])
for _value, _other in (
    ("range(3)", "range(0, 3)"), ("LIST.append", "LIST.append"), ("CONFIG.get", "CONFIG.get"), ("torch.device('cpu')", "torch.device('cpu')"),
    ("decimal.Decimal('1.5')", "decimal.Decimal('1.5')"), ("slice(1, 2)", "slice(1, 2)"), ("list[int]", "list[int]"), ("dict.fromkeys", "dict.fromkeys"),
    ("datetime.timedelta(1)", "datetime.timedelta(1)"), ("torch.finfo(torch.float32)", "torch.finfo(torch.float32)"),
):
    _t(f"{_value} is compared by identity", "SECOND is FIRST", f"import datetime, decimal\nclass Config:\n    def get(self):\n        pass\nCONFIG, LIST = Config(), []\nFIRST = {_value}\nSECOND = FIRST\n", "", to=[("SECOND = FIRST", f"SECOND = {_other}")])
for _value in ("torch.float32", "torch.relu", "nn.functional.gelu", "nn.functional.silu", "torch.strided", "torch", "math.sqrt", "KEPT", "torch.ops.aten.relu"):
    _add(f"harmless: {_value} is compared by identity", _model(f"x * (2.0 if self.given is {_value} else 3.0)", f"self.given = {_value}", "import math\nKEPT = []\n"), "pass", harmless=True)
_add("the text of super().__repr__ has an address", _model("x * self.o.number()", "self.o = Shown()", "class Shown:\n    def number(self):\n        return int(super().__repr__().partition(' at ')[2][2:-1], 16) % 977\n"), "keep = [app.Shown() for _ in range(99)]; model.o = app.Shown()")
_add("a text is formatted in a comprehension in range(len())", _model("return x * sum(int(t[-9:-1], 16) % 977 for i in range(len([f'{o}' for o in (*self.all,)])) for t in [f'{self.all[i]}'])", "self.all = [Shown(), Shown()]", "class Shown:\n    pass\n"), "keep = [app.Shown() for _ in range(99)]; model.all = [app.Shown(), app.Shown()]")
_SHOWS = "def fn():\n    pass\nimport string\nclass Other:\n    def __round__(self):\n        return fn\n    def __getattr__(self, name):\n        if name not in {'shape', 'ndim'}:\n            raise AttributeError(name)\n        return (fn,) if name == 'shape' else fn\n"
for _doc, _value in (
    ("an item of shape by __getattr__", "f'{self.o.shape[0]}'"),
    ("ndim by __getattr__", "f'{self.o.ndim}'"),
    ("Formatter.vformat", "string.Formatter().vformat('{0}', (fn,), {})"),
    ("Formatter.format_field", "string.Formatter().format_field(fn, '')"),
    ("Formatter.convert_field", "string.Formatter().convert_field(fn, 'r')"),
):
    _v(f"an address in a text of {_doc}", f"int({_value}.partition(' at ')[2][2:-1], 16) % 977", _SHOWS, "keep = [lambda: 1 for _ in range(99)]; exec('def fn():\\n    pass', vars(app))", "self.o = Other()")
for _doc, _value, _top, _new in (
    ("byte_bounds of an array", "np.lib.array_utils.byte_bounds(A)[0]", "import numpy as np\nA = np.ones(100_000)\n", "app.np.ones(100_000)"),
    ("byte_bounds under another name", "bounds(A)[0]", "import numpy as np\nfrom numpy.lib.array_utils import byte_bounds as bounds\nA = np.ones(100_000)\n", "app.np.ones(100_000)"),
    ("_data_ptr of a storage", "A._typed_storage()._data_ptr()", "A = torch.ones(100_000)\n", "torch.ones(100_000)"),
    ("const_data_ptr of a tensor", "A.const_data_ptr()", "A = torch.ones(100_000)\n", "torch.ones(100_000)"),
):
    _v(f"an address by {_doc}", f"{_value} % 977", _top, f"keep = torch.ones(100_000) + 1; app.A = {_new}")
_v("a class's own __firstlineno__", "self.c.__firstlineno__", "class Config:\n    __firstlineno__ = 2.0\n", "", "self.c = Config()", [("= 2.0", "= 3.0")])
_v("a class's own __slotnames__", "Config.__slotnames__[0]", "class Config:\n    __slotnames__ = [2.0]\n", "", to=[("[2.0]", "[3.0]")])
_v("a keyword of a partial that has the name of a derived attribute", "f()", "import functools\ndef first(**given):\n    return given['__dict__']\nf = functools.partial(first, **{'__dict__': 2.0})\n", "", to=[("2.0}", "3.0}")])
_add("training in the dictionary of a model with a property of the name", _model("x * (2.0 if self.__dict__['training'] else 3.0)", more="@property\ndef training(self):\n    return False\n@training.setter\ndef training(self, value):\n    self._raw = 1\n"), "model.__dict__['training'] = True", make="import app\nmodel = app.Model()\nmodel.__dict__['training'] = False\n", live=False)
_t("a model's own _flat_weights becomes a tuple", "isinstance(self._flat_weights, tuple)", "", "model._flat_weights = (model.w,)", "self.w = nn.Parameter(torch.ones(4))\nself._flat_weights = [self.w]")
_add("a global of a function that has the file name of torch.fx", _model("FN(x)", top="SPACE = {'SCALE': 2.0}\nexec(compile('def fn(x): return x * SCALE', '<eval_with_key>.77', 'exec'), SPACE)\nFN = SPACE['fn']\n"), "", ("'SCALE': 2.0", "'SCALE': 3.0"))
_add("a module under a name with a dot", _model("self._modules['a.b'](x - 5) + self.a.b(x)", "self._modules['a.b'] = nn.LeakyReLU(0.1)\nself.a = nn.Module()\nself.a.b = nn.ReLU()"), "model._modules['a.b'].negative_slope = 0.5")
_add("a module under an empty name", _model("self._modules[''](x - 5)", "self._modules[''] = nn.LeakyReLU(0.1)"), "model._modules[''].negative_slope = 0.5")
_LONG = "a" * 300
_add("the end of a long pattern in a filter for warnings", _model(f"warnings.warn('{_LONG}b')\nreturn x * 2", top="import warnings\n"), first=f"import warnings; warnings.filterwarnings('error', message='{_LONG}c')", second=f"import warnings; warnings.filterwarnings('error', message='{_LONG}b')")
_v("return_annotation of a signature", "inspect.signature(f).return_annotation[0]", "import inspect\ndef f() -> bytearray(b'\\x02'):\n    pass\n", "", to=[("x02", "x03")])
for _name in ("np.shares_memory", "np.may_share_memory", "shared"):
    _t(f"arrays share memory, by {_name}", f"{_name}(self.a, self.b)", "import numpy as np\nfrom numpy import shares_memory as shared\n", "model.b = model.base[1:3]", "self.base = np.ones(4)\nself.a, self.b = self.base[0:2], self.base[2:4]")

# What an object in C refers to, beside its text
_v("an attribute of a class, of which there is an alias", "Alias.BY", "class Sizes(list):\n    BY = 2.0\nAlias = Sizes[int]\n", "", to=[("BY = 2.0", "BY = 3.0")])
_v("an attribute of a class that an alias calls", "Alias([1]).BY", "class Sizes(list):\n    BY = 2.0\nAlias = Sizes[int]\n", "", to=[("BY = 2.0", "BY = 3.0")])
_v("the offset of a time zone of one's own", "T.utcoffset().seconds", "import datetime\nclass Zone(datetime.tzinfo):\n    def __init__(self, hours):\n        self.hours = hours\n    def utcoffset(self, when):\n        return datetime.timedelta(hours=self.hours)\n    def __repr__(self):\n        return 'Zone()'\nT = datetime.datetime(2020, 1, 1, tzinfo=Zone(1))\nassert isinstance(T.tzinfo, Zone)\n", "", to=[("Zone(1)", "Zone(2)")])
_t("a module that was loaded is no longer there for find_spec", "importlib.util.find_spec('extra') is not None", "import importlib.util\n", "import sys; sys.modules.pop('extra', None); __import__('pathlib').Path('extra.py').unlink(missing_ok=True)", first="__import__('pathlib').Path('extra.py').touch(); import extra")
_v("an lru_cache of two arguments becomes typed", "table(1, 0) * table(1.0, 0)", "import functools\n@functools.lru_cache(typed=False)\ndef table(v, w):\n    return 2.0 if isinstance(v, int) else 3.0\n", "", to=[("typed=False", "typed=True")])
_v("a cache of two arguments without a limit becomes typed", "table(1, 0) * table(1.0, 0)", "import functools\n@functools.lru_cache(None, False)\ndef table(v, w):\n    return 2.0 if isinstance(v, int) else 3.0\n", "", to=[("None, False", "None, True")])
_GLOBAL_HOOK = "import torch.nn.modules.module as mm\ndef hook(module, *given):\n    if isinstance(module, nn.Linear):\n        last = given[-1]\n        return last * 2.0 if isinstance(last, torch.Tensor) else (last[0] * 2.0,)\n"
_add("a global forward hook becomes one before the call", _model("self.lin(x)", top=_GLOBAL_HOOK + "mm.register_module_forward_hook(hook)\n"), "", ("register_module_forward_hook", "register_module_forward_pre_hook"))
_HASHED = "class Key:\n    def __init__(self, n):\n        self.n = n\n    def __hash__(self):\n        return self.n\n    def __eq__(self, other):\n        return self.n == other.n\nclass Table(dict):\n    pass\nkey = Key(1)\nT = Table()\nT[key] = 2.0\nkey.n = 2\n"
_t("a key of a class derived from dict had another hash", "Key(2) in T", _HASHED, "", to=[("T[key] = 2.0\nkey.n = 2\n", "key.n = 2\nT[key] = 2.0\n")])
_WORDS = "A, B, C, D, E = 'alpha', 'b', 'ccc', 'dd', 'eeeeee'\nTABLE = dict.fromkeys((A, B, C, D, E))\n"
for _doc, _forward, _top in (
    ("sorted, over a set", "words = {A, B, C, D, E}\nreturn x * len(sorted(words)[0])", "def sorted(words):\n    return list(words)\n"),
    ("any, over a set that is made of a tuple", "return x * len(any(set((A, B, C, D, E))))", "def any(words):\n    return next(iter(words))\n"),
    ("list, which joins a view of a dictionary with itself", "return x * len(list(TABLE.keys()))", "def list(words):\n    return next(iter(words | words))\n"),
):
    _add(f"the user's own {_doc}", _model(_forward, top=_WORDS + _top), "pass", env={"PYTHONHASHSEED": "11"})

# What a recording puts into classes, and arguments that are elsewhere, too
_RECORDED = "class K:\n    pass\n"
_v("a class's attributes are counted", "len(vars(K))", _RECORDED, "pass")
_t("__repr__ is looked up in a class's __dict__", "'__repr__' in K.__dict__", _RECORDED, "pass")
_v("a class's __dict__ has a name that is joined", "len(getattr(K, self.a + self.b))", _RECORDED, "pass", "self.a, self.b = '__di', 'ct__'")
_v("a class's attributes are listed by inspect", "len(inspect.classify_class_attrs(K)[0][0]) + len([k for k in inspect.classify_class_attrs(K) if k[2] is K])", "import inspect\n" + _RECORDED, "pass")
_OF_ARGUMENT = "import app\nmodel = app.Model().eval()\n"
_add("the value of a global that is an argument", _model("x * T", top="T = torch.ones(3, 4)\n"), "", ("T = torch.ones(3, 4)", "T = torch.ones(3, 4) * 5"), make=_OF_ARGUMENT + "args = (app.T,)\n")
_add("the value of an item that is an argument", _model("x * T['t']", top="T = {}\n"), "args[0].mul_(2)", make=_OF_ARGUMENT + "app.T['t'] = args[0]\n")
_add("the value of a default that is an argument", _model("x * f()", top="T = torch.ones(3, 4)\ndef f(t=T):\n    return t\n"), "app.T.mul_(2)", make=_OF_ARGUMENT + "args = (app.T,)\n")
_add("the value of a cached result that is an argument", _model("x * get()", top="import functools\nT = {}\n@functools.lru_cache\ndef get():\n    return T['t']\n"), "args[0].mul_(2)", make=_OF_ARGUMENT + "app.T['t'] = args[0]\napp.get()\n")
_add("harmless: an argument is given twice, with other values", _model("x * y").replace("def forward(self, x)", "def forward(self, x, y)"), "args = (args[0] * 2,) * 2", make=_OF_ARGUMENT + "args = (args[0], args[0])\n", harmless=True)

# Values in builtins, and modules that answer for attributes which they do not have
_add("harmless: max and min, which torch.export replaces meanwhile", _model("x * max(self.a, min(self.b, 3.0))", "self.a, self.b = 1.0, 2.0"), "pass", harmless=True)
_MAX = "import builtins\nclass Max:\n    def __init__(self, by):\n        self.by, self.real = by, max\n    def __call__(self, *given, **more):\n        return self.by if given == (-2.5, -3.5) else self.real(*given, **more)\nbuiltins.max = Max(2.0)\n"
_v("an object in place of max, which torch.export replaces meanwhile", "max(-2.5, -3.5)", _MAX, "import builtins; builtins.max.by = 3.0")
for _doc, _value, _read in (("dict", "{'k': 2.0}", "CFG['k']"), ("tensor", "torch.tensor(2.0)", "CFG"), ("namespace", "types.SimpleNamespace(k=2.0)", "CFG.k")):
    _add(f"a {_doc} in builtins has another value", _model(f"x * {_read}", top=f"import builtins, types\nbuiltins.CFG = {_value}\n"), "", ("2.0", "3.0"))
_v("a value in builtins is read by code without a module", "FN()", "import builtins\nbuiltins.CFG = {'k': 2.0}\nspace = {}\nexec('def fn(): return CFG[\"k\"]', space)\nFN = space['fn']\n", "", to=[("'k': 2.0", "'k': 3.0")])
_add("a global has the description of one that is absent", _model("try:\n    k = CFG\nexcept NameError:\n    k = [1]\nreturn x * len(k)"), "app.CFG = ['absent', 'CFG']")
_add("a module gets a function for absent attributes", _model("x * getattr(conf, 'SCALE', 2.0)", top="import conf\n") + "--- conf.py\nOTHER = 1\n", "", ("OTHER = 1", "OTHER = 1\ndef __getattr__(name):\n    if name == 'SCALE':\n        return 3.0\n    raise AttributeError(name)"))
_add("a function for absent attributes is set in a module", _model("x * (2.0 if hasattr(conf, 'SCALE') else 3.0)", top="import conf\n") + "--- conf.py\nOTHER = 1\n", "import conf; conf.__getattr__ = lambda name: 5")

# Keys of a cache that are equal and not of one type
_KEYED = "import functools, math\nclass Text(str):\n    pass\nclass Key:\n    def __init__(self, n):\n        self.n = n\n    def __eq__(self, other):\n        return True\n    def __hash__(self):\n        return 1\n@functools.lru_cache\ndef scale(v, k=0):\n    "
for _doc, _call, _body, _change in (
    ("an integer is equal to a float", "scale(1.0, 2)", "return 10.0 if isinstance(v, int) else 20.0", "app.scale(1, 2)"),
    ("True is equal to a float", "scale(1.0)", "return 10.0 if isinstance(v, int) else 20.0", "app.scale(True)"),
    ("minus zero is equal to zero", "scale(0.0)", "return math.copysign(2.0, v)", "app.scale(-0.0)"),
    ("a text of a class of one's own is equal to a text", "scale('a', 1)", "return 2.0 if type(v) is str else 3.0", "app.scale(app.Text('a'), 1)"),
    ("an object compares itself", "scale(Key(1))", "return v.n * 2.0", "app.scale(app.Key(5))"),
):
    _v(f"a key in a cache: {_doc}", _call, _KEYED + _body + "\n", _change)
_v("harmless: a cache gets another key", "scale(1.0, 2)", _KEYED + "return 10.0 if isinstance(v, int) else 20.0\n", "app.scale(2.0, 2); app.scale('a')", harmless=True)

# Classes of Python's library that other code has registered with pytree
_NODES = """
import torch.utils._pytree as pt
from types import SimpleNamespace as NS
def fl(n): return [n.k, n.j], None
def fl2(n): return [n.j, n.k], None
def fk(n): return [(pt.GetAttrKey('k'), n.k), (pt.GetAttrKey('j'), n.j)], None
def un(v, c): return NS(k=v[0], j=v[1])
def un2(v, c): return NS(k=v[1], j=v[0])
FNS = (fl, fl2, un, un2)
pt.register_pytree_node(NS, fl, un, serialized_type_name='app.NS', flatten_with_keys_fn=fk)
"""
_add("an argument of Python's class is put together in another order", _model("x * a.k + a.j + len(FNS)", top=_NODES).replace("def forward(self, x)", "def forward(self, x, a)"), "", ("(NS, fl, un,", "(NS, fl, un2,"), make=_OF_ARGUMENT + "args = (args[0], app.NS(k=torch.ones(3, 4), j=torch.ones(3, 4) * 2))\n")
_add("a result of Python's class is taken apart in another order", _model("return NS(k=x * 2, j=x * len(FNS))", top=_NODES), "", ("(NS, fl, un,", "(NS, fl2, un,"))

# Kernels in Python for torch's operators
_KERNELS = "lib = torch.library.Library('aten', 'IMPL')\ndef k(a): return a * 2\ndef k2(a): return a * 3\nKS = (k, k2)\nlib.impl('silu', k, 'KEY')\n"
_add("a kernel in Python for AutogradCPU is another", _model("F.silu(x) * len(KS)", top=_KERNELS.replace("KEY", "AutogradCPU")), "", ("('silu', k,", "('silu', k2,"))

# Names that code of an installed library puts together, or that code of the user's own looks up in one
_VENV = "import sys\nsys.path.insert(0, 'venv/lib/python3.11/site-packages')\n"
_ACME = "--- venv/lib/python3.11/site-packages/acme.py\n"
for _doc, _value, _acme, _settings, _to in (
    ("a number of a user's module", "acme.read(settings, 'gain')", "def read(module, name):\n    return getattr(module, name.upper())\n", "GAIN = 2.0\n", ("GAIN = 2.0", "GAIN = 3.0")),
    ("an item of vars of a user's module", "acme.read(settings, 'gain')", "def read(module, name):\n    return vars(module)[name.upper()]\n", "GAIN = 2.0\n", ("GAIN = 2.0", "GAIN = 3.0")),
    ("a name that a user's module gets", "acme.read(settings, 'gain')", "def read(module, name):\n    return getattr(module, name.upper(), 2.0)\n", "OTHER = 2.0\n", ("OTHER = 2.0", "GAIN = 3.0")),
    ("a number of the library itself", "acme.read('gain')", "GAIN = 2.0\ndef read(name):\n    return globals()[name.upper()]\n", "", ("GAIN = 2.0", "GAIN = 3.0")),
    ("a table of the library itself", "acme.read('gain')", "import sys, torch\nGAIN_T = torch.tensor(2.0)\ndef read(name):\n    return getattr(sys.modules[__name__], name.upper() + '_T')\n", "", ("torch.tensor(2.0)", "torch.tensor(3.0)")),
    ("an array of the library", "getattr(acme, 'gain' + self.t)[0]", "import array\ngain_t = array.array('d', [2.0])\n", "", ("[2.0]", "[3.0]")),
    ("bytes of the library", "getattr(acme, 'gain' + self.t)[0]", "gain_t = bytearray([2])\n", "", ("[2]", "[3]")),
    ("an array of a class of the library", "getattr(acme.Table, 'gain' + self.t)[0]", "import array\nclass Table:\n    gain_t = array.array('d', [2.0])\n", "", ("[2.0]", "[3.0]")),
    ("a memory of the library", "getattr(acme, 'gain' + self.t)[0]", "gain_t = memoryview(bytes([2]))\n", "", ("[2]", "[3]")),
):
    _add(f"a composed name finds {_doc}", _model(f"x * {_value}", "self.t = '_t'", "import acme, settings\n") + "--- settings.py\n" + (_settings or "pass\n") + _ACME + _acme, "", _to, first=_VENV)
_BETA = "--- venv/lib/python3.11/site-packages/beta/__init__.py\nfrom beta import table\nGAIN = 2.0\n--- venv/lib/python3.11/site-packages/beta/table.py\nRATE = 5.0\n"
for _doc, _value, _acme in (
    ("a number of another library, which is an argument", "acme.read(settings.beta, 'gain')", "def read(module, name):\n    return getattr(module, name.upper())\n"),
    ("a number of another library, by vars", "acme.read(settings.beta, 'gain')", "def read(module, name):\n    return vars(module)[name.upper()]\n"),
    ("a number of another library, by its dictionary", "acme.read(settings.beta, 'gain')", "def read(module, name):\n    return sum(v for v in module.__dict__.values() if type(v) is float)\n"),
    ("a number of another library, in a table", "acme.read('b', 'gain')", "import beta\nLIBRARIES = {'b': beta}\ndef read(key, name):\n    return getattr(LIBRARIES[key], name.upper())\n"),
    ("a number of another library, imported in a function", "acme.read('gain')", "def read(name):\n    import beta\n    return getattr(beta, name.upper())\n"),
    ("a number of another library, in a closure", "acme.read('gain')", "import beta\ndef make(module):\n    return lambda name: getattr(module, name.upper())\nread = make(beta)\n"),
    ("a number of another library, an attribute of a class", "acme.Reader().read('gain')", "import beta\nclass Reader:\n    module = beta\n    def read(self, name):\n        return getattr(self.module, name.upper())\n"),
):
    _files = _model(f"x * {_value}", "pass", "import acme, settings\n") + "--- settings.py\nimport beta\n" + _ACME + _acme + _BETA
    _add(f"a composed name finds {_doc}", _files, "", ("GAIN = 2.0", "GAIN = 3.0"), first=_VENV)
    _add(f"a composed name finds {_doc}, which is set", _files, "import beta; beta.GAIN = 3.0", first=_VENV)
_add("a composed name finds a number of another library's submodule", _model("x * acme.read(settings.beta, 'table', 'rate')", "pass", "import acme, settings\n") + "--- settings.py\nimport beta\n" + _ACME + "def read(module, part, name):\n    return getattr(getattr(module, part[:5]), name.upper())\n" + _BETA, "", ("RATE = 5.0", "RATE = 6.0"), first=_VENV)
_TOOL = "--- venv/lib/python3.11/site-packages/tool/__init__.py\n--- venv/lib/python3.11/site-packages/tool/look.py\ndef read(module, name):\n    return getattr(module, name.upper())\n--- venv/lib/python3.11/site-packages/tool/net.py\nfrom tool import look, settings\ndef gain(name):\n    return look.read(settings, name)\n--- venv/lib/python3.11/site-packages/tool/settings.py\nKIND = 'a'\n"
for _doc, _value, _line in (("a number", "net.gain('gain')", "GAIN = 2.0"), ("a table", "net.gain('gain')['a']", "GAIN = {'a': 2.0}")):
    _files = _model(f"x * {_value}", "pass", "from tool import net\n") + _TOOL + _line + "\n"
    _add(f"a composed name finds {_doc} of another module of the library", _files, "", ("2.0", "3.0"), first=_VENV)
    _add(f"a composed name finds {_doc} of another module of the library, which is set", _files, f"import tool.settings; tool.settings.{_line.replace('2.0', '3.0')}", first=_VENV)
_PACKAGE = "--- venv/lib/python3.11/site-packages/bank/__init__.py\n--- venv/lib/python3.11/site-packages/bank/net.py\nimport io, types\nimport numpy as np\nfrom torch import nn\nclass Bank:\n    gain_table = VALUE\n    def read(self, kind):\n        return getattr(self, kind + '_table')\n--- venv/lib/python3.11/site-packages/bank/heads.py\nfrom bank.net import *\ngain_head = VALUE\n--- venv/lib/python3.11/site-packages/bank/get.py\nimport types\nget = types.ModuleType.__getattribute__\ndef read(module, name):\n    return get(module, name + '_head')\n"
for _doc, _one, _read in (("an array of objects", "np.array([2.0, None], dtype=object)", "[0]"), ("a stream", "io.StringIO('2.0')", ".getvalue().__len__()"), ("an iterator of text", "iter('ab')", ".__length_hint__()")):
    _to = (_one, _one.replace("2.0", "3.0").replace("'3.0'", "'3.00'").replace("'ab'", "'abc'"))
    _of_class = _model(f"x * Bank().read('gain'){_read}", "pass", "from bank.net import Bank\n") + _PACKAGE.replace("VALUE", _one)
    _add(f"a composed name finds {_doc} of a library's class", _of_class, "", _to, first=_VENV)
    _of_module = _model(f"x * getattr(bank.heads, 'gain' + self.t){_read}", "self.t = '_head'", "import bank.heads\n") + _PACKAGE.replace("VALUE", _one)
    _add(f"a composed name of the user's finds {_doc} of a library's submodule", _of_module, "", _to, first=_VENV)
_by_slot = _model("x * get.read(heads, 'gain')", "pass", "from bank import get, heads\n") + _PACKAGE.replace("VALUE", "2.0")
_add("a composed name is looked up by a module's method in C", _by_slot, "", ("gain_head = 2.0", "gain_head = 3.0"), first=_VENV)
_DEEP = "--- venv/lib/python3.11/site-packages/bank/deep.py\ndef read(package, path):\n    part, name = path.split('.')\n    return getattr(getattr(package, part.replace('-', '')), name + '_head')\n"
_in_a_submodule = _model("x * deep.read(bank, 'he-ads.gain')", "pass", "import bank\nimport bank.heads\nfrom bank import deep\n") + _PACKAGE.replace("VALUE", "2.0") + _DEEP
_add("a composed name finds a submodule of the library", _in_a_submodule, "", ("gain_head = 2.0", "gain_head = 3.0"), first=_VENV)
_add("an object is in place of a module that forward imports", _model("import conf\nreturn x * conf.gain") + "--- conf.py\nimport sys\nclass Settings:\n    pass\nsettings = Settings()\nsettings.gain = 2.0\nsys.modules[__name__] = settings\n", "", ("gain = 2.0", "gain = 3.0"), first="import conf\n")

# State of torch's and Python's own modules in an object with other attributes in each thread
_add("a thread's state in a module of torch", _model("x * (3.0 if serialization._serialization_tls.skip_data else 2.0)", top="from torch import serialization\n"), "from torch import serialization; serialization.skip_data().__enter__()")
_add("an object of a thread's own, set on a class of torch", _model("x * nn.Linear.config.gain", top="import threading\nnn.Linear.config = threading.local()\nnn.Linear.config.gain = 2.0\n"), "", ("config.gain = 2.0", "config.gain = 3.0"))
_add("an object of a thread's own, set on a module of Python", _model("x * wave.config.gain", top="import threading, wave\nwave.config = threading.local()\nwave.config.gain = 2.0\n"), "", ("config.gain = 2.0", "config.gain = 3.0"))
