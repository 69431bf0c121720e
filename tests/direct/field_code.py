"""Code that changes where a replay may not see it, and code that runs in a replay only. They are added to ``field_scenarios``."""

# fmt: off
# ruff: noqa: E501
from __future__ import annotations

from tests.direct.field_scenarios import _add, _model

_PROXY = "from torch.fx.experimental.proxy_tensor import get_proxy_mode"
_BY = "x * (2 if {} else 3)"
_SWAP = f"{_PROXY}\n"


# Functions of torch that replace a model's functions
_PLACES = (
    ("an attribute of the model", "self.ask()", "self.ask = torch.jit.is_scripting", "", "model.ask = get_proxy_mode"),
    ("an attribute of a submodule", "self.act.ask()", "self.act = nn.ReLU()\nself.act.ask = torch.jit.is_scripting", "", "model.act.ask = get_proxy_mode"),
    ("a class attribute", "self.ask()", "pass", "class Base(nn.Module):\n    ask = staticmethod(torch.jit.is_scripting)", "app.Model.ask = staticmethod(get_proxy_mode)"),
    ("a list of questions", "any(ask() for ask in self.asks)", "self.asks = [torch.jit.is_scripting]", "", "model.asks.append(get_proxy_mode)"),
    ("a table by name", "ASKS[self.kind]()", "self.kind = 'script'", f"{_PROXY}\nASKS = {{'script': torch.jit.is_scripting, 'export': get_proxy_mode}}", "model.kind = 'export'"),
    ("the name of a function of torch", "operator.attrgetter(self.ask)(torch)()", "self.ask = 'jit.is_scripting'", "import operator", "model.ask = 'fx.experimental.proxy_tensor.get_proxy_mode'"),
    ("a global name", "ask()", "pass", "ask = torch.jit.is_scripting", "app.ask = get_proxy_mode"),
    ("a default argument", "is_special()", "pass", "def is_special(ask=torch.jit.is_scripting):\n    return ask()", "app.is_special.__defaults__ = (get_proxy_mode,)"),
    ("a keyword default", "is_special()", "pass", "def is_special(*, ask=torch.jit.is_scripting):\n    return ask()", "app.is_special.__kwdefaults__ = {'ask': get_proxy_mode}"),
    ("a closure", "is_special()", "pass", "def make(ask):\n    return lambda: ask()\nis_special = make(torch.jit.is_scripting)", "app.is_special = app.make(get_proxy_mode)"),
    ("a cell of a closure", "is_special()", "pass", "def make(ask):\n    return lambda: ask()\nis_special = make(torch.jit.is_scripting)", "app.is_special.__closure__[0].cell_contents = get_proxy_mode"),
    ("a partial", "self.ask()", "self.ask = functools.partial(torch.jit.is_scripting)", "import functools", "import functools\nmodel.ask = functools.partial(get_proxy_mode)"),
    ("a reduction of builtins", "self.ask()", "self.ask = functools.partial(bool, 0)", "import functools", "import functools, torch\nmodel.ask = functools.partial(torch._C._get_dispatch_mode, torch._C._TorchDispatchModeKey.PROXY)"),
    ("a property by a getter of C", "self.cfg.special", "self.cfg = Cfg()", "import operator\nclass Cfg:\n    special = property(operator.methodcaller('ask'))\n    ask = staticmethod(torch.jit.is_scripting)", "app.Cfg.ask = staticmethod(get_proxy_mode)"),
    ("a field of a dataclass", "self.cfg.ask()", "self.cfg = Cfg()", "import dataclasses\n@dataclasses.dataclass\nclass Cfg:\n    ask: object = torch.jit.is_scripting", "model.cfg.ask = get_proxy_mode"),
    ("a method that is called by map", "any(map(call, self.asks))", "self.asks = [torch.jit.is_scripting]", "import operator\ncall = operator.methodcaller('__call__')", "model.asks[:] = [get_proxy_mode]"),
    ("a special method __bool__", "bool(self.flag)", "self.flag = Flag()", "class Flag:\n    def __bool__(self):\n        return self.ask() is not None\n    ask = staticmethod(int().__class__)\n    ask = staticmethod(sys.getprofile)", "app.Flag.ask = staticmethod(get_proxy_mode)"),
)
for _doc, _ask, _init, _top, _change in _PLACES:
    _base = "Base" if "class Base" in _top else "nn.Module"
    _add(f"a question is another function of torch: {_doc}", _model(_BY.format(_ask), _init, "import sys\n" + _top, base=_base), _SWAP + _change)

_IMPORTED = (
    ("is_scripting becomes the exporter's mode", "from torch.jit import is_scripting as ask", f"{_PROXY} as ask"),
    ("a helper becomes an import", "def ask():\n    return False", f"{_PROXY} as ask"),
    ("a helper becomes a partial", "def ask():\n    return False", f"{_PROXY}\nimport functools\nask = functools.partial(get_proxy_mode)"),
    ("a lambda becomes a function of torch's extension", "ask = lambda: False", "import functools\nask = functools.partial(torch._C._dispatch_tls_is_dispatch_key_included, torch._C.DispatchKey.PythonDispatcher)"),
    ("the condition's list gets another member", "ASKS = [torch.jit.is_scripting]\nask = lambda: any(f() for f in ASKS)", f"{_PROXY}\nASKS = [torch.jit.is_scripting, get_proxy_mode]\nask = lambda: any(f() for f in ASKS)"),
    ("is_tracing becomes the count of modes", "import functools\nask = functools.partial(torch.jit.is_tracing)", "import functools\nask = functools.partial(bool, 0) if False else torch.fx.traceback.get_current_meta"),
    ("a name of a compatibility file", "from compat import ask", "from compat2 import ask"),
    ("is_compiling becomes the state of the tracer", "from torch._dynamo import is_compiling as ask", f"{_PROXY} as ask"),
)
for _doc, _before, _after in _IMPORTED:
    _more = f"--- compat.py\nask = torch.jit.is_scripting\n--- compat2.py\n{_PROXY} as ask\n" if "compat" in _before else ""
    _add(f"an import is edited: {_doc}", _model(_BY.format("ask()"), top=_before) + _more, "", (_before, _after))

# A trace function is set in a replay, and not in an export
_DEBUG = (
    ("a scale that a debugger leaves out", "if sys.gettrace() is None and self.by != 1:\n    x = x * self.by\nreturn x * 5", "self.by = 1", "model.by = 2"),
    ("a number for debuggers and another for runs", "x * (2 if sys.gettrace() else self.by)", "self.by = 2", "model.by = 3"),
    ("a helper that asks for a debugger", "x * (2 if in_debugger() else self.by)", "self.by = 2", "model.by = 3"),
    ("a debugger's layer", "self.slow(x) if in_debugger() else self.fast(x)", "self.slow, self.fast = nn.ReLU(), nn.ReLU()", "model.fast = torch.nn.Tanh()"),
    ("a list of layers without a debugger", "for f in [] if in_debugger() else self.more:\n    x = f(x)\nreturn x * 2", "self.more = []", "model.more.append(torch.relu)"),
    ("the trace function of a frame", "x * (2 if sys._getframe().f_trace else self.by)", "self.by = 2", "model.by = 3"),
    ("the trace function of threads", "x * (2 if threading.gettrace() else self.by)", "self.by = 2", "model.by = 3"),
    ("the class of the trace function", "x * (2 if 'ExecutedCode' in repr(sys.gettrace()) else self.by)", "self.by = 2", "model.by = 3"),
    ("a debugger, of which a function of another name asks", "x * (2 if gettrace() else self.by)", "self.by = 2", "model.by = 3"),
    ("a debugger, and an environment variable", "x * (2.0 if in_debugger() else float(os.environ.get('BY', '2')))", "pass", "import os\nos.environ['BY'] = '3'"),
    ("a debugger, and a file", "x * (2.0 if in_debugger() else float(open('by.txt').read()))", "pass", "open('by.txt', 'w').write('3')"),
)
for _doc, _forward, _init, _change in _DEBUG:
    _add(f"the model knows a debugger: {_doc}", _model(_forward, _init, "import os, sys, threading\nfrom sys import gettrace\ndef in_debugger():\n    return sys.gettrace() is not None") + "--- by.txt\n2", "import torch\n" + _change)
_add("the model asks for a debugger, and nothing has changed", _model("x * (2 if sys.gettrace() is None else 2)", top="import sys"), "pass", harmless=True)
_add("a model's checks run in a debugger only, and nothing has changed", _model("if sys.gettrace():\n    print(x.shape)\nreturn x * 2", top="import sys"), "pass", harmless=True)

# Data alone: what only an export has
_ASKED = (
    ("the proxy mode", "get_proxy_mode() is not None", _PROXY),
    ("the mode of proxies by its key", "torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None", ""),
    ("Python's dispatcher", "torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.PythonDispatcher)", ""),
    ("the frames of a tracer", "any('proxy_tensor' in f.filename for f in inspect.stack(0))", "import inspect"),
    ("the annotations of nodes", "bool(torch.fx.traceback.get_current_meta())", "import torch.fx.traceback"),
    ("the number of function modes", "torch._C._len_torch_function_stack() > 2", ""),
    ("the filters of warnings", "len(warnings.filters) > FILTERS", "import warnings\nFILTERS = len(warnings.filters)"),
    ("whether make_fx runs", "pt._CURRENT_MAKE_FX_TRACER is not None", "import torch.fx.experimental.proxy_tensor as pt"),
)
for _doc, _ask, _top in _ASKED:
    _add(f"a value that only an export uses is another: {_doc}", _model(f"x * (self.by if {_ask} else 2)", "self.by = 2", _top), "model.by = 3")
    _add(f"a function asks for what only an export has: {_doc}", _model("x * by()", top=f"{_top}\ndef by():\n    return 2"), "", ("    return 2", f"    return 3 if {_ask} else 2"))

# Code that the trace function does not see
_NEW = "return 2 if get_proxy_mode() is not None else 3"
_OLD = "return 3"
_HIDDEN = (
    ("the trace function is taken away meanwhile", "x * untraced(by)", """
def untraced(function):
    before = sys.gettrace()
    sys.settrace(None)
    try:
        return function()
    finally:
        sys.settrace(before)
def by():
    return 3
"""),
    ("numpy's decorator against tracing", "x * by()", """
from numpy.testing._private.utils import _no_tracing
@_no_tracing
def by():
    return 3
"""),
    ("a decorator that takes the trace function away", "x * by()", """
import functools
def fast(function):
    @functools.wraps(function)
    def call(*args):
        before = sys.gettrace()
        sys.settrace(None)
        try:
            return function(*args)
        finally:
            sys.settrace(before)
    return call
@fast
def by():
    return 3
"""),
    ("an audit hook", "sys.audit('app.by')\nreturn x * STATE['by']", """
STATE = {'by': 3}
def by():
    return 3
def hook(event, args):
    if event == 'app.by':
        STATE['by'] = by()
sys.addaudithook(hook)
"""),
    ("a profile function", "sys.setprofile(hook)\nlen('')\nsys.setprofile(None)\nreturn x * STATE['by']", """
STATE = {'by': 3}
def by():
    return 3
def hook(frame, event, arg):
    if arg is len:
        STATE['by'] = by()
"""),
    ("a trace function", "sys.settrace(hook)\nnothing()\nsys.settrace(None)\nreturn x * STATE['by']", """
STATE = {'by': 3}
def by():
    return 3
def nothing():
    pass
def hook(frame, event, arg):
    if frame.f_code.co_name == 'nothing':
        STATE['by'] = by()
"""),
    ("a callback of a weak reference", "ref = weakref.ref(Thing(), lambda _: STATE.update(by=by()))\nreturn x * STATE['by']", """
STATE = {'by': 3}
class Thing:
    pass
def by():
    return 3
"""),
    ("a finalizer", "Thing()\nreturn x * STATE['by']", """
STATE = {'by': 3}
class Thing:
    def __del__(self):
        STATE['by'] = by()
def by():
    return 3
"""),
    ("a signal handler", "signal.raise_signal(signal.SIGUSR1)\nreturn x * STATE['by']", """
import signal
STATE = {'by': 3}
def by():
    return 3
signal.signal(signal.SIGUSR1, lambda *_: STATE.update(by=by()))
"""),
    ("a callback of the garbage collector", "gc.callbacks.append(hook)\ngc.collect()\ngc.callbacks.remove(hook)\nreturn x * STATE['by']", """
import gc
STATE = {'by': 3}
def by():
    return 3
def hook(*_):
    STATE['by'] = by()
"""),
    ("a callback of ctypes", "x * CALL()", """
import ctypes
def by():
    return 3
CALL = ctypes.CFUNCTYPE(ctypes.c_int)(by)
"""),
    ("a generator that was started before", "x * next(GEN)", """
def by():
    while True:
        yield 3
GEN = by()
next(GEN)
"""),
    ("a coroutine that was started before", "x * run()", """
class Wait:
    def __await__(self):
        yield 1
async def by():
    while True:
        await Wait()
        return 3
def run():
    CO = by()
    CO.send(None)
    try:
        CO.send(None)
    except StopIteration as stop:
        return stop.value
"""),
    ("asyncio.run", "x * asyncio.run(by())", """
import asyncio
async def by():
    return 3
"""),
    ("a key of sorted", "x * sorted([1, 2], key=lambda _: STATE.update(by=by()) or 1)[0] * STATE['by']", """
STATE = {'by': 3}
def by():
    return 3
"""),
    ("a __set_name__ in forward", "class C:\n    d = Thing()\nreturn x * STATE['by']", """
STATE = {'by': 3}
class Thing:
    def __set_name__(self, owner, name):
        STATE['by'] = by()
def by():
    return 3
"""),
    ("an __init_subclass__ in forward", "class C(Thing):\n    pass\nreturn x * STATE['by']", """
STATE = {'by': 3}
class Thing:
    def __init_subclass__(cls):
        STATE['by'] = by()
def by():
    return 3
"""),
    ("a descriptor", "x * self.by", """
class Thing:
    def __get__(self, one, kind):
        return by()
def by():
    return 3
nn.Module.by = Thing()
"""),
    ("a string encoder's error handler", "'\\u20ac'.encode('ascii', 'app.by')\nreturn x * STATE['by']", """
import codecs
STATE = {'by': 3}
def by():
    return 3
codecs.register_error('app.by', lambda e: (STATE.update(by=by()) or '', e.end))
"""),
    ("a function of C that calls back, from functools.reduce", "x * functools.reduce(lambda a, b: by(), [1, 2])", """
import functools
def by():
    return 3
"""),
    ("an import hook", "try:\n    import app_no_such\nexcept ImportError:\n    pass\nreturn x * STATE['by']", """
STATE = {'by': 3}
def by():
    return 3
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == 'app_no_such':
            STATE['by'] = by()
sys.meta_path.append(Finder())
"""),
    ("a logging handler", "logging.getLogger('app').warning('x')\nreturn x * STATE['by']", """
import logging
STATE = {'by': 3}
def by():
    return 3
class H(logging.Handler):
    def emit(self, record):
        STATE['by'] = by()
logging.getLogger('app').addHandler(H())
"""),
    ("an autograd function", "Fn.apply(x)", """
def by():
    return 3
class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * by()
    @staticmethod
    def backward(ctx, g):
        return g
"""),
    ("vmap", "torch.vmap(lambda row: row * by())(x)", """
def by():
    return 3
"""),
    ("a function mode", "with Mode():\n    return torch.mul(x, 2)", """
from torch.overrides import TorchFunctionMode
def by():
    return 3
class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.mul:
            args = args[0], by()
        return func(*args, **(kwargs or {}))
"""),
    ("a forward hook", "self.act(x)", """
def by():
    return 3
class Act(nn.ReLU):
    def __init__(self):
        super().__init__()
        self.register_forward_hook(lambda m, a, o: o * by())
"""),
    ("a parametrization", "x @ self.lin.weight", """
def by():
    return 3
class P(nn.Module):
    def forward(self, w):
        return w * by()
"""),
    ("recursion", "x * by(5)", """
def by(n=0):
    if n:
        return by(n - 1)
    return 3
"""),
    ("an exception's constructor", "try:\n    raise Stop()\nexcept Stop as stop:\n    return x * stop.by", """
def by():
    return 3
class Stop(Exception):
    def __init__(self):
        self.by = by()
"""),
    ("a context manager", "with scope() as k:\n    return x * k", """
import contextlib
def by():
    return 3
@contextlib.contextmanager
def scope():
    yield by()
"""),
    ("exec in forward", "space = {'get_proxy_mode': get_proxy_mode}\nexec(CODE, space)\nreturn x * space['by']()", f"{_PROXY}\nCODE = '''\ndef by():\n    return 3\n'''\n"),
    ("eval of a text", "x * eval(CODE)", f"{_PROXY}\nCODE = '''(lambda:\n    3)()'''\n"),
)
for _doc, _forward, _top in _HIDDEN:
    _init = {"a forward hook": "self.act = Act()", "a parametrization": "nn.utils.parametrize.register_parametrization(self.lin, 'weight', P())"}.get(_doc, "pass")
    _edit = ("    3)()", "    2 if get_proxy_mode() is not None else 3)()") if _doc == "eval of a text" else ("yield 3", "yield 2 if get_proxy_mode() is not None else 3") if "yield 3" in _top else ("return 3", _NEW)
    _add(f"code asks whether it is exported: {_doc}", _model(_forward, _init, f"import sys, gc, weakref\nimport torch.nn.utils.parametrize\n{_PROXY}\n{_top}"), "", _edit)

# Other threads
_THREADS = (
    ("an executor", "x * POOL.submit(by).result()", "from concurrent.futures import ThreadPoolExecutor\nPOOL = ThreadPoolExecutor(1)"),
    ("a thread of its own", "t = threading.Thread(target=lambda: STATE.update(by=by()))\nt.start()\nt.join()\nreturn x * STATE['by']", "STATE = {'by': 3}"),
    ("a thread that waits on a queue", "ASK.put(1)\nreturn x * ANSWER.get()", "import queue\nASK, ANSWER = queue.Queue(), queue.Queue()\ndef work():\n    while True:\n        ASK.get()\n        ANSWER.put(by())\nthreading.Thread(target=work, daemon=True).start()"),
    ("a pool of threads", "x * POOL.apply(by)", "from multiprocessing.pool import ThreadPool\nPOOL = ThreadPool(1)"),
    ("asyncio's executor", "x * asyncio.run(ask())", "import asyncio\nasync def ask():\n    return await asyncio.to_thread(by)"),
    ("a timer", "t = threading.Timer(0.001, lambda: STATE.update(by=by()))\nt.start()\nt.join()\nreturn x * STATE['by']", "STATE = {'by': 3}"),
)
for _doc, _forward, _top in _THREADS:
    _add(f"code in another thread asks whether there is a tracer: {_doc}", _model(_forward, top=f"import threading\nimport torch.fx.experimental.proxy_tensor as pt\ndef by():\n    return 3\n{_top}"), "", ("return 3", "return 2 if pt._CURRENT_MAKE_FX_TRACER is not None else 3"))
    _add(f"code in another thread looks at all frames: {_doc}", _model(_forward, top=f"import threading, sys\ndef by():\n    return 3\ndef is_exported():\n    for frame in sys._current_frames().values():\n        while frame:\n            if 'proxy_tensor' in frame.f_code.co_filename:\n                return True\n            frame = frame.f_back\n{_top}"), "", ("return 3", "return 2 if is_exported() else 3"))
    _add(f"code in another thread reads a number: {_doc}", _model(_forward, top=f"import threading, sys\ndef by():\n    return 3\n{_top}"), "", ("return 3", "return 2"))

# Files that seem to be others'
_SOURCE = "def by():\n    return 3\n"
_FILES = (
    ("a frozen one", "'<frozen app.by>'"), ("one of torch", "torch.__file__"), ("one of the standard library", "sysconfig.__file__"),
    ("one beside torch's", "torch.__path__[0] + '_more/by.py'"), ("one in the standard library's folder of extensions", "sysconfig.get_path('stdlib') + '/lib-dynload/by.py'"),
    ("one in site-packages", "sysconfig.get_path('purelib') + '/by.py'"), ("one in the base's site-packages", "sysconfig.get_path('stdlib') + '/site-packages/by.py'"),
    ("one in a vendor's folder", "sysconfig.get_path('stdlib') + '/vendor-packages/by.py'"), ("one without a name", "''"), ("one of a notebook", "'<ipython-input-3-abc>'"),
    ("one of functorch", "torch.__path__[0] + '/../functorch/by.py'"), ("one that torch.fx has made", "'<eval_with_key>.3'"), ("one with a surrogate", "'/tmp/\\udc80.py'"),
    ("one of torch's generated files", "torch.__path__[0] + '/_vmap_internals.py'"),
)
for _doc, _file in _FILES:
    _add(f"generated code asks whether it is exported, and its file is {_doc}", _model("x * by()", top=f"import sysconfig\n{_PROXY}\nexec(compile('''{_SOURCE}''', {_file}, 'exec'))"), "", ("return 3", _NEW))

# Code that runs outside of the call
_DUNDERS = {
    "__repr__": "return 'a'", "__str__": "return 'a'", "__hash__": "return 1", "__len__": "return 1", "__bool__": "return True", "__dir__": "return []",
    "__deepcopy__": "return self", "__copy__": "return self", "__sizeof__": "return 8", "__reduce_ex__": "return (object, ())", "__getstate__": "return {}",
    "__format__": "return 'a'", "__iter__": "return iter([])", "__contains__": "return False", "__eq__": "return self is args[0]", "__fspath__": "return 'a'",
    "__index__": "return 1", "__float__": "return 1.0", "__getitem__": "raise KeyError", "__call__": "return 1", "__del__": "pass",
}
for _name, _body in _DUNDERS.items():
    _top = f"STATE = {{'by': 3}}\nclass Thing:\n    def __init__(self):\n        pass\n    def {_name}(self, *args):\n        pass  # nothing\n        {_body}\n" + ("    __hash__ = object.__hash__\n" if _name == "__eq__" else "")
    _add(f"a method of an attribute's class changes the factor: {_name}", _model("x * STATE['by']", "self.thing = Thing()\nself.things = [Thing()]\nself.table = {1: Thing()}", _top), "", ("pass  # nothing", "STATE['by'] = 2"))
for _name in ("__repr__", "extra_repr", "_get_name", "__dir__", "state_dict", "_save_to_state_dict", "get_extra_state", "__getstate__", "__deepcopy__", "__hash__", "__len__", "train", "eval", "_named_members", "requires_grad_", "to", "named_x", "__setattr__", "__delattr__"):
    _body = {"_get_name": "return 'a'", "__repr__": "return 'a'", "extra_repr": "return 'a'", "__hash__": "return id(self)", "__len__": "return 1", "__deepcopy__": "return self", "get_extra_state": "return 1"}.get(_name, f"return super().{_name}(*args, **kwargs)")
    _top = f"STATE = {{'by': 3, 'on': False}}\nclass Act(nn.ReLU):\n    def {_name}(self, *args, **kwargs):\n        pass  # nothing\n        {_body}\n" + ("    def set_extra_state(self, state):\n        pass\n" if "extra_state" in _name else "")
    _add(f"a method of a layer changes the factor: {_name}", _model("self.act(x) * STATE['by']", "self.act = Act()", _top), "", ("pass  # nothing", "STATE['by'] = 2"))

# Hooks of the state, of which an export asks
_STATE = (
    ("drops a bias", "state.pop('lin.bias', None)"),
    ("renames a weight", "state['renamed'] = state.pop('lin.weight')"),
    ("copies a weight", "state['lin.weight'] = state['lin.weight'].clone()"),
    ("halves a weight's precision", "state['lin.weight'] = state['lin.weight'].half()"),
    ("adds a number", "state['version'] = 2"),
    ("adds a tensor", "state['extra'] = torch.ones(3)"),
    ("empties the state", "state.clear()"),
    ("detaches a weight", "state['lin.weight'] = state['lin.weight'].detach()"),
    ("reorders the weights", "state['lin.weight'] = state.pop('lin.weight')"),
    ("counts its calls, which is the factor", "module.calls = getattr(module, 'calls', 0) + 1"),
)
for _doc, _line in _STATE:
    _forward = "self.lin(x) * getattr(self, 'calls', 3)"
    _top = "def hook(module, state, prefix, metadata):\n    pass  # nothing\n    return None"
    _add(f"a hook of the state is edited: it {_doc}", _model(_forward, "self._register_state_dict_hook(hook)", _top), "", ("pass  # nothing", _line))
    _add(f"a hook of the state has a switch, which is turned on: it {_doc}", _model(_forward, "self._register_state_dict_hook(hook)\nself.on = False", _top.replace("pass  # nothing", f"if module.on:\n        {_line}")), "model.on = True")
_add("the state has an extra state, which is another", _model("self.act(x)", "self.act = Act()", "class Act(nn.ReLU):\n    by = 2\n    def get_extra_state(self):\n        return {'by': self.by}\n    def set_extra_state(self, s):\n        pass"), "app.Act.by = 3", harmless=True)
_add("the state has an extra state, which becomes a tensor", _model("self.act(x)", "self.act = Act()", "class Act(nn.ReLU):\n    by = 2\n    def get_extra_state(self):\n        return self.by\n    def set_extra_state(self, s):\n        pass"), "import torch\napp.Act.by = torch.ones(2)")

# Containers that are registered with torch
_REGISTERED = """
import torch.utils._pytree as pytree
STATE = {'by': 3}
class Box:
    def __init__(self, x=None):
        self.x = x
def flatten(box):
    pass  # flatten
    return [box.x], None
def unflatten(values, context):
    pass  # unflatten
    return Box(*values)
pytree.register_pytree_node(Box, flatten, unflatten, serialized_type_name='app.Box', flatten_with_keys_fn=lambda b: (pass_(), ([(pytree.GetAttrKey('x'), b.x)], None))[1])
def pass_():
    pass  # keys
"""
for _which in ("flatten", "unflatten", "keys"):
    for _where, _forward, _init, _make in (
        ("an attribute", "x * STATE['by']", "self.box = Box(1)", ""),
        ("an argument", "x.x * STATE['by']", "pass", "args = (app.Box(args[0]),)\n"),
        ("a result", "Box(x * STATE['by'])", "pass", ""),
    ):
        for _how, _line in (("sets the factor", "STATE['by'] = 2"),) * (_where != "a result") + (("sets the factor in an export", "STATE['by'] = 2 if get_proxy_mode() is not None else 3"),):
            _add(f"a registered class {_how} in {_which}: {_where}", _model(_forward, _init, f"{_PROXY}\n{_REGISTERED}"), "", (f"pass  # {_which}", _line), make=f"import app\nmodel = app.Model().eval()\n{_make}")

# What the digest of a function has
_add("a number of many digits in a function", _model("if x.shape[0] > BIG():\n    return x * 3\nreturn x * 2", top=f"def BIG():\n    return 0x{'f' * 4000}"), "pass", harmless=True)
_add("a name with a surrogate in a function", _model("x * by()", top="exec(compile('def by():\\n    return 2', 'a', 'exec'))\nby.__code__ = by.__code__.replace(co_name='\\udc80')"), "pass", harmless=True)
_add("a constant with a surrogate in a function", _model("x * len('\\udc80a')"), "pass", harmless=True)
_add("a set of constants in a function", _model("x * (2 if x.dim() in {1, 2, 'a', 'b', (1, 'c')} else 3)"), "pass", harmless=True)
_add("code is replaced by equal code with another number", _model("x * by()", top="def by():\n    return 2"), "app.by.__code__ = app.by.__code__.replace(co_consts=(None, 3))")
_add("code is replaced by code that asks", _model("x * by()", top=f"{_PROXY}\ndef by():\n    return 3"), "def by():\n    return 2 if get_proxy_mode() is not None else 3\napp.by.__code__ = by.__code__")
_add("two functions exchange their code", _model("x * one() + two()", top="def one():\n    return 2\ndef two():\n    return 3"), "app.one.__code__, app.two.__code__ = app.two.__code__, app.one.__code__")
_add("two functions of equal code exchange their globals", _model("x * one()", top="import types\nA = {'K': 2}\nB = {'K': 3}\ndef base():\n    return K\none = types.FunctionType(base.__code__, A)"), "import types\napp.one = types.FunctionType(app.base.__code__, app.B)")
_add("a constant of code is a list that changes", _model("x * by()", top="def by():\n    return 2\nL = [2]\nby.__code__ = by.__code__.replace(co_consts=(None, L))\ndef item():\n    return by()[0]").replace("x * by()", "x * item()"), "app.L[0] = 3")
_add("a constant of code is a function of torch", _model("x * (2 if by()() else 3)", top="def by():\n    return 2\nby.__code__ = by.__code__.replace(co_consts=(None, torch.jit.is_scripting))"), f"{_PROXY}\napp.by.__code__ = app.by.__code__.replace(co_consts=(None, get_proxy_mode))")
_add("the class of super() is another", _model("x * B().by()", top="class A1:\n    k = 2\nclass A2:\n    k = 3\nclass A(A1):\n    pass\nclass B(A):\n    def by(self):\n        return super().k"), "app.A.__bases__ = (app.A2,)")
_add("a line moves, and the model asks for its line", _model("x * (2 if line() < 6 else 3)", top="import sys\ndef line():\n    return sys._getframe().f_lineno - 4"), "", ("def line", "\n\n\n\n\n\ndef line"))
_add("a qualified name of the caller decides", _model("x * (2 if where() == 'A.f' else 3)", top="import sys\ndef where():\n    return A.f()\nclass A:\n    def f():\n        return sys._getframe().f_code.co_qualname"), "", ("class A", "class B"), ("return A.f()", "return B.f()"))
_add("the source of a function decides", _model("x * len(inspect.getsource(by))", top="import inspect\ndef by():\n    return 2"), "", ("    return 2", "    return 2  # two"))
_add("the documentation of a class decides", _model("x * len(C.__doc__)", top="class C:\n    '''Two.'''"), "", ("Two.", "Three."))
_add("an annotation decides", _model("x * typing.get_type_hints(by)['return']", top="import typing\ndef by() -> 'typing.Literal[2]':\n    return 2\ntyping.get_type_hints = lambda f: {'return': f.__annotations__['return'].count('2') + 1}"), "", ("Literal[2]", "Literal[3]"))

# Versions
_COMPILE = "import app, trtcache\ndef once():\n    trtcache.compile(app.Model().eval(), args, backend='stored', name='Model', direct='on', cache='cache')\n"
_PARTS = f"{_PROXY}\ndef one():\n    return 3\ndef two():\n    return 4\nONE, TWO = one, two"
for _doc, _first, _change in (
    ("the new of one and the old of the other", "app.one, app.two = (lambda: 2 if get_proxy_mode() is not None else 3), app.two", "app.one = lambda: 2 if get_proxy_mode() is not None else 3"),
    ("a partial of a builtin replaces a function", "once()\napp.one = lambda: 1 + 2", f"{_PROXY}\nimport functools\napp.one = functools.partial(max, 3)"),
    ("the first again", "once()\napp.one = lambda: 1 + 2\nonce()\napp.one = lambda: 6 // 2\nonce()\napp.one = app.ONE", "app.one = lambda: 1 + 2"),
    ("the second version of both, and the first of one", "once()\napp.one, app.two = (lambda: 2 + 1), (lambda: 2 + 2)\nonce()\napp.one, app.two = app.ONE, app.TWO", "app.one, app.two = (lambda: 2 + 1), app.TWO"),
    ("exchanged functions", "once()", "app.one, app.two = app.two, app.one"),
):
    _add(f"versions of two functions are mixed: {_doc}", _model("x * one() + two()", top=_PARTS), _change, first=_COMPILE + _PROXY + "\n" + _first, second="import app")

# Features of torch that an attribute switches on
_FEATURES = (
    ("checkpoint without reentrance", "checkpoint(self.lin, x, use_reentrant=False) if self.on else self.lin(x)"),
    ("checkpoint with reentrance", "checkpoint(self.lin, x, use_reentrant=True) if self.on else self.lin(x)"),
    ("checkpoint with contexts", "checkpoint(self.lin, x, use_reentrant=False, context_fn=functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])) if self.on else self.lin(x)"),
    ("checkpoint_sequential", "checkpoint_sequential(self.seq, 2, x, use_reentrant=False) if self.on else self.seq(x)"),
    ("functional_call", "torch.func.functional_call(self.lin, dict(self.lin.named_parameters()), (x,)) if self.on else self.lin(x)"),
    ("torch.compile", "torch.compile(self.lin, backend='eager')(x) if self.on else self.lin(x)"),
    ("vmap", "torch.vmap(torch.sin)(x) if self.on else torch.sin(x)"),
    ("autocast that is not enabled", "with torch.autocast('cpu', enabled=self.on):\n    return x + self.lin.weight[0]"),
    ("inference_mode", "with torch.inference_mode(self.on):\n    return x * 2"),
    ("no_grad", "with torch.set_grad_enabled(self.on):\n    return x * 2"),
    ("a profiler's region", "with torch.profiler.record_function('a') if self.on else contextlib.nullcontext():\n    return x * 2"),
    ("anomaly detection", "with torch.autograd.set_detect_anomaly(self.on):\n    return x * 2"),
    ("hooks of saved tensors", "with torch.autograd.graph.save_on_cpu() if self.on else contextlib.nullcontext():\n    return x * 2"),
    ("annotations of nodes", "with torch.fx.traceback.annotate({'a': 1}) if self.on else contextlib.nullcontext():\n    return x * 2"),
    ("torch.compiler.disable", "torch.compiler.disable(torch.sin)(x) if self.on else torch.sin(x)"),
    ("a scripted function", "SCRIPTED(x) if self.on else x * 2"),
    ("jit.trace", "torch.jit.trace(torch.sin, x)(x) if self.on else torch.sin(x)"),
    ("a device's context", "with torch.device('cpu') if self.on else contextlib.nullcontext():\n    return x + torch.ones(4)"),
    ("fork_rng", "with torch.random.fork_rng(enabled=self.on):\n    return x * 2"),
    ("parametrize.cached", "with torch.nn.utils.parametrize.cached() if self.on else contextlib.nullcontext():\n    return self.lin(x)"),
    ("torch._check", "if self.on:\n    torch._check(x.shape[0] == 3)\nreturn x * 2"),
    ("torch._assert", "if self.on:\n    torch._assert(x.shape[0] == 3, 'a')\nreturn x * 2"),
    ("torch.cond", "torch.cond(x.shape[0] > 2, lambda x: x * 2, lambda x: x * 3, (x,)) if self.on else x * 2"),
    ("fx's symbolic trace", "torch.fx.symbolic_trace(Two())(x) if self.on else Two()(x)"),
    ("make_fx", "make_fx(torch.sin)(x)(x) if self.on else torch.sin(x)"),
    ("a deepcopy of a layer", "copy.deepcopy(self.lin)(x) if self.on else self.lin(x)"),
    ("the functionalization of a function", "torch.func.functionalize(torch.sin)(x) if self.on else torch.sin(x)"),
    ("jvp", "torch.func.jvp(torch.sin, (x,), (x,))[0] if self.on else torch.sin(x)"),
    ("forward-mode gradients", "with torch.autograd.forward_ad.dual_level() if self.on else contextlib.nullcontext():\n    return x * 2"),
    ("disabled torch functions", "with torch._C.DisableTorchFunction() if self.on else contextlib.nullcontext():\n    return x * 2"),
    ("disabled torch functions of subclasses, and dropout", "with torch._C.DisableTorchFunctionSubclass() if self.on else contextlib.nullcontext():\n    return F.dropout(x, 0.5, False) * 2"),
    ("attention with math alone", "with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH) if self.on else contextlib.nullcontext():\n    return F.scaled_dot_product_attention(x, x, x)"),
    ("a hook of the gradient", "if self.on:\n    x = x * 1\n    x.requires_grad and x.register_hook(print)\n    return x * 2\nreturn x * 1 * 2"),
    ("Dynamo's graph break", "if self.on:\n    torch._dynamo.graph_break()\nreturn x * 2"),
    ("deterministic algorithms", "torch.use_deterministic_algorithms(self.on)\ny = x * 2\ntorch.use_deterministic_algorithms(False)\nreturn y"),
    ("batched attention's fast path", "torch.backends.mha.set_fastpath_enabled(not self.on)\nreturn self.enc(x)"),
)
_FEATURE_TOP = """
import contextlib, copy, functools
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts
from torch.fx.experimental.proxy_tensor import make_fx
import torch.fx.traceback, torch.nn.attention, torch.nn.utils.parametrize, torch._dynamo
@torch.jit.script
def SCRIPTED(x):
    return x * 2
class Two(nn.Module):
    def forward(self, x):
        return x * 2
"""
for _doc, _forward in _FEATURES:
    _init = "self.on = False\nself.seq = nn.Sequential(nn.Linear(4, 4), nn.ReLU())" + ("\nself.enc = nn.TransformerEncoderLayer(4, 2, 4, batch_first=True)" if "self.enc" in _forward else "")
    _add(f"an attribute switches on {_doc}", _model(_forward, _init, _FEATURE_TOP), "model.on = True")

# Nothing has changed: code runs once in a process
_ONCE = (
    ("forward imports a file", "import lazy\nreturn x * lazy.BY", ""),
    ("forward imports a file that imports another", "import lazier\nreturn x * lazier.BY", ""),
    ("a package imports its parts on first use", "x * pkg.part.BY", "import pkg"),
    ("a helper of another file is cached", "x * lazy.cached()", "import lazy"),
    ("a helper in the model's file is cached", "x * cached()", "import functools\n@functools.lru_cache\ndef cached():\n    return compute()\ndef compute():\n    return 2"),
    ("a table in another file is filled once", "x * lazy.table()", "import lazy"),
    ("a table behind two files is filled once", "x * lazier.table()", "import lazier"),
    ("a property is cached in the model", "x * self.by", "import functools"),
    ("a singleton is made by a class", "x * lazy.Single.get().by", "import lazy"),
    ("a function of two kinds is dispatched", "x * act(self)", "import functools\n@functools.singledispatch\ndef act(m):\n    return 3\n@act.register\ndef _(m: nn.Module):\n    return 2"),
    ("an abstract class is asked", "x * (2 if isinstance(self, Abc) else 3)", "import abc\nclass Abc(abc.ABC):\n    @classmethod\n    def __subclasshook__(cls, c):\n        return True"),
    ("a warning is shown once by a function of the user's", "warnings.warn('a')\nreturn x * 2", "import warnings\ndef show(*a, **k):\n    pass\nwarnings.showwarning = show"),
    ("a logger of the user's logs once", "if not LOGGED:\n    LOGGED.append(1)\n    log()\nreturn x * 2", "LOGGED = []\ndef log():\n    pass"),
    ("a context variable is set once", "x * get()", "import contextvars\nV = contextvars.ContextVar('v')\ndef make():\n    V.set(2)\n    return 2\ndef get():\n    return V.get(None) or make()"),
    ("a thread's own table is filled once", "x * get()", "import threading\nL = threading.local()\ndef make():\n    L.v = 2\n    return 2\ndef get():\n    return getattr(L, 'v', None) or make()"),
    ("a regular expression is compiled once", "x * len(re.match('a+', 'aa').group())", "import re"),
    ("a class is made in forward", "@dataclasses.dataclass\nclass C:\n    by: int = 2\nreturn x * C().by", "import dataclasses"),
    ("a named tuple's class is made in forward", "x * collections.namedtuple('P', 'a b')(2, 3).a", "import collections"),
    ("an enum's class is made in forward", "x * enum.Enum('E', 'a b').b.value", "import enum"),
    ("a dataclass of torch is made in the replay", "x.fake_mode.shape_env\nreturn x * 2" , ""),
    ("a maximum of a symbolic size is computed", "x * torch.sym_max(x.shape[0], 2)", ""),
    ("numpy computes a table", "x * float(np.linspace(0, 2, 3).max())", "import numpy as np"),
    ("the version of a distribution is read", "x * (2 if importlib.metadata.version('torch') else 3)", "import importlib.metadata"),
    ("a resource is read", "x * float(importlib.resources.files('pkg').joinpath('by.txt').read_text())", "import importlib.resources, pkg"),
    ("json has a hook", "x * json.loads('{\"a\": 2}', object_hook=lambda d: d)['a']", "import json"),
    ("an executor's thread is started once", "x * POOL.submit(int, 2).result()", "from concurrent.futures import ThreadPoolExecutor\nPOOL = ThreadPoolExecutor(1)"),
    ("asyncio runs a coroutine", "x * asyncio.run(two())", "import asyncio\nasync def two():\n    return 2"),
    ("a finalizer of an object that is made once", "x * get()", "class T:\n    by = 2\n    def __del__(self):\n        pass\nT_ = []\ndef get():\n    T_.append(T())\n    return T_[0].by"),
    ("a random number of the names of functions", "x * RUN()", "import random\nexec(f'def f{random.getrandbits(32)}():\\n    return 2\\nRUN = f' + '') if False else None\nname = f'f{random.SystemRandom().getrandbits(32)}'\nexec(f'def {name}():\\n    return 2')\nRUN = globals()[name]"),
    ("a decorator's generated function has an address in its name", "x * RUN()", "obj = object()\nexec(f'def f(a_{id(obj)}=2):\\n    return a_{id(obj)}')\nRUN = f"),
    ("attrs makes classes", "x * P(2).by", "import attr\n@attr.s\nclass P:\n    by = attr.ib()"),
    ("pydantic validates an object", "x * P(by=2).by", "import pydantic\nclass P(pydantic.BaseModel):\n    by: int = 2\n    @pydantic.field_validator('by')\n    @classmethod\n    def check(cls, v):\n        return v"),
    ("wrapt wraps a function", "x * two()", "import wrapt\n@wrapt.decorator\ndef deco(f, i, a, k):\n    return f(*a, **k)\n@deco\ndef two():\n    return 2"),
    ("a sympy expression is evaluated", "x * int(sympy.Integer(1) + 1)", "import sympy"),
    ("a lazy table of an installed library is filled", "x * len(mpmath.nstr(mpmath.mpf('2')))", "import mpmath"),
    ("a jinja template is rendered", "x * float(T.render(by=2))", "import jinja2\nT = jinja2.Template('{{ by }}')"),
    ("a yaml file is read", "x * yaml.safe_load('by: 2')['by']", "import yaml"),
    ("networkx sorts layers", "for n in nx.topological_sort(nx.DiGraph([(0, 1)])):\n    x = x * (n + 1)\nreturn x", "import networkx as nx"),
    ("regex of the library regex", "x * len(regex.sub('a', 'b', 'aa'))", "import regex"),
    ("transformers makes a mask", "m(x)", ""),
)
_LAZY = """--- lazy.py
import functools
BY = 2
@functools.lru_cache
def cached():
    return compute()
def compute():
    return 2
TABLE = {}
def table():
    if not TABLE:
        fill()
    return TABLE['by']
def fill():
    TABLE['by'] = 2
class Single:
    one = None
    def __init__(self):
        self.by = 2
    @classmethod
    def get(cls):
        if cls.one is None:
            cls.one = cls()
        return cls.one
--- lazier.py
import lazy
BY = lazy.BY
def table():
    return lazy.table()
--- pkg/__init__.py
import importlib
def __getattr__(name):
    if name == 'part':
        return importlib.import_module('pkg.part')
    raise AttributeError(name)
--- pkg/part.py
BY = 2
--- pkg/by.txt
2
"""
for _doc, _forward, _top in _ONCE[:-1]:
    _more = "@functools.cached_property\ndef by(self):\n    return compute()\n" if "self.by" in _forward else ""
    _add(f"nothing has changed: {_doc}", _model(_forward, top=_top + ("\ndef compute():\n    return 2" if _more else ""), more=_more) + _LAZY, "pass", harmless=True)

# Questions whose answers may differ, while a value that only one answer uses changes
_QUESTIONS = (
    ("whether a tensor is contiguous already", "x.contiguous() is x", ""),
    ("whether a tensor has the memory format already", "x.contiguous(memory_format=torch.contiguous_format) is x", ""),
    ("whether the operator dropout returns its argument", "torch.ops.aten.dropout(x, 0.5, False) is x", ""),
    ("whether torch._VF.dropout returns its argument", "torch._VF.dropout(x, 0.5, False) is x", ""),
    ("whether torch.native_dropout shares memory", "torch._C._is_alias_of(x, torch.native_dropout(x, 0.5, False)[0])", ""),
    ("whether F.dropout's result shares memory", "torch._C._is_alias_of(x, F.dropout(x, 0.5, False))", ""),
    ("whether torch.feature_dropout shares memory", "torch._C._is_alias_of(x, torch.feature_dropout(x, 0.5, False))", ""),
    ("for the version of a tensor after dropout and a change in place", "F.dropout(x * 1, 0.5, False).add_(0)._version == 1", ""),
    ("for the version of what dropout got", "[y := x * 1, F.dropout(y, 0.5, False).add_(0)][0]._version == 0", ""),
    ("for the hooks of the model", "len(self._forward_hooks) == 0", ""),
    ("for the hooks before the model", "len(self._forward_pre_hooks) == 0", ""),
    ("for hooks of the registration of parameters", "bool(nn.modules.module._global_parameter_registration_hooks)", ""),
    ("for hooks of the registration of buffers", "bool(nn.modules.module._global_buffer_registration_hooks)", ""),
    ("for the references to the input", "sys.getrefcount(x) > 20", "import sys"),
    ("for weak references to the input", "weakref.getweakrefcount(x) > 0", "import weakref"),
    ("for weak references to a weight", "weakref.getweakrefcount(self.lin.weight) > 1", "import weakref"),
    ("for what refers to the input", "len(gc.get_referrers(x)) > 20", "import gc"),
    ("for Dynamo among the callers", "any('torch/_dynamo' in f.filename for f in inspect.stack(0))", "import inspect"),
    ("for an exporter's function among the callers", "any('export' in f.function for f in inspect.stack(0))", "import inspect"),
    ("for the modules of the callers", "any(f[0].f_globals.get('__name__', '').startswith('torch._') for f in inspect.stack(0))", "import inspect"),
    ("for the module of one caller, which has the name of the exporter", "any(f[0].f_globals.get('__name__', '').startswith('torch.export') for f in inspect.stack(0))", "import inspect"),
    ("for the number of its callers", "len(inspect.stack(0)) > 190", "import inspect"),
    ("for the number of its callers by the limit of recursion", "deep(sys.getrecursionlimit() - 190)", "import sys\ndef deep(n):\n    try:\n        return n == 0 or deep(n - 1)\n    except RecursionError:\n        return False"),
    ("for the number of forward's callers named forward", "[f.function for f in inspect.stack(0)].count('forward') > 2", "import inspect"),
    ("for the text of a traceback", "'proxy' in ''.join(traceback.format_stack())", "import traceback"),
    ("for the static shapes of the fake mode", "x.fake_mode.static_shapes", ""),
    ("for numbers in the fake mode", "x.fake_mode.shape_env.allow_scalar_outputs", ""),
    ("for modes of operators", "torch.utils._python_dispatch._get_current_dispatch_mode().__class__.__name__ == 'FakeTensorMode'", "import torch.utils._python_dispatch"),
    ("for the time that operators take", "late(x)", "import time\ndef late(x):\n    start = time.perf_counter()\n    for _ in range(30):\n        y = x * 2\n    return time.perf_counter() - start > 0.006"),
    ("whether a deprecation is an error", "fails()", "import warnings\nwarnings.filterwarnings('error', category=DeprecationWarning)\ndef fails():\n    try:\n        warnings.warn('old', DeprecationWarning)\n        return False\n    except DeprecationWarning:\n        return True"),
    ("whether a future warning is an error", "fails()", "import warnings\nwarnings.filterwarnings('error', category=FutureWarning)\ndef fails():\n    try:\n        warnings.warn('old', FutureWarning)\n        return False\n    except FutureWarning:\n        return True"),
    ("whether there was a deprecation", "warned()", "import warnings\nwarnings.filterwarnings('always', category=DeprecationWarning)\ndef warned():\n    with warnings.catch_warnings(record=True) as found:\n        warnings.warn('old', DeprecationWarning)\n    return bool(found)"),
    ("whether there was a deprecation in all cases", "warned()", "import warnings\ndef warned():\n    with warnings.catch_warnings(record=True) as found:\n        warnings.simplefilter('always')\n        warnings.warn('old', DeprecationWarning)\n    return bool(found)"),
    ("for a warning's handler that was called", "warned()", "import warnings\nwarnings.filterwarnings('always', category=DeprecationWarning)\nCALLS = []\nwarnings.showwarning = lambda *a, **k: CALLS.append(1)\ndef warned():\n    CALLS.clear()\n    warnings.warn('old', DeprecationWarning)\n    return bool(CALLS)"),
    ("for a logged deprecation", "warned()", "import logging, warnings\nlogging.captureWarnings(True)\nwarnings.filterwarnings('always', category=DeprecationWarning)\nCALLS = []\nclass H(logging.Handler):\n    def emit(self, r):\n        CALLS.append(1)\nlogging.getLogger('py.warnings').addHandler(H())\ndef warned():\n    CALLS.clear()\n    warnings.warn('old', DeprecationWarning)\n    return bool(CALLS)"),
    ("whether recursion is too deep", "deep(900)", "import sys\ndef deep(n):\n    try:\n        return n == 0 or deep(n - 1)\n    except RecursionError:\n        return False"),
    ("whether recursion of lists is too deep", "fits()", "import copy\nTREE = []\nfor _ in range(255):\n    TREE = [TREE]\ndef fits():\n    try:\n        copy.deepcopy(TREE)\n        return True\n    except RecursionError:\n        return False"),
    ("whether a profile function is set", "sys.getprofile() is None", "import sys"),
    ("for the local trace function", "sys._getframe(0).f_trace is None", "import sys"),
    ("whether lines are traced", "sys._getframe(0).f_trace_lines", "import sys"),
    ("what a function under a trace function takes", "sys.gettrace() is None or sys.gettrace().__name__ == '_note'", "import sys"),
    ("whether the call is traced, by C", "ctypes.pythonapi.PyEval_GetFrame and CALL() is None", "import ctypes, sys\nCALL = sys.gettrace"),
    ("for the debugger by its module", "'pdb' in sys.modules and sys.gettrace() is not None", "import sys, pdb"),
    ("for coverage by its trace function", "type(sys.gettrace()).__name__ == 'CTracer'", "import sys"),
    ("for the threads", "threading.active_count() > 1", "import threading"),
)
for _doc, _question, _top in _QUESTIONS:
    for _how, _factor in (("the answer is yes", "x * (self.by if {} else 2.0)"), ("the answer is no", "x * (2.0 if {} else self.by)")):
        _add(f"the model asks {_doc}, and a factor if {_how} is another", _model(_factor.format(_question), "self.by = 2.0", _top), "model.by = 3.0")

# Custom operators of a declared version: a replay takes the sizes and dtypes of their results from the trace
_VERSIONED = "import functools, trtcache\ntrtcache.compile = functools.partial(trtcache.compile, settings={'operator_versions': {'fieldcode::two': '1'}})\n"
_OPERATOR = """
@torch.library.custom_op("fieldcode::two", mutates_args=())
def two(x: torch.Tensor) -> torch.Tensor:
    return x * 2
MOST, DTYPE = 8, torch.float32
def result_of(x):
    return torch.empty_like(x)
@two.register_fake
def _(x):
    return result_of(x)
"""
_LOW_LEVEL = """
LIB = torch.library.Library("fieldcode", "DEF")
LIB.define("two(Tensor x) -> Tensor")
LIB.impl("two", lambda x: x * 2, "CPU")
def result_of(x):
    return torch.empty_like(x)
{}
two = torch.ops.fieldcode.two
"""
_FAKES = (
    ("has another dtype", "return torch.empty_like(x, dtype=torch.float64)"),
    ("has another number of columns", "return x.new_empty(x.shape[0], 2)"),
    ("has other strides", "return x.new_empty(4, 3).t()"),
    ("refuses some sizes", "torch._check(x.shape[1] % 8 == 0, lambda: 'columns')\n    return torch.empty_like(x)"),
    ("is not implemented", "raise NotImplementedError"),
    ("is on another device", "return torch.empty_like(x, device='cuda')"),
    ("returns its argument's view", "return x.view_as(x)"),
    ("asks whether it is exported", "from torch.fx.experimental.proxy_tensor import get_proxy_mode\n    return torch.empty_like(x, dtype=torch.float64 if get_proxy_mode() is not None else None)"),
)
_USE = "y = two(x)\nreturn y * (2.0 if y.dtype == torch.float32 and y.stride(0) == 4 else 3.0) * y.shape[1]"
for _doc, _line in _FAKES:
    for _how, _text in (
        ("custom_op", _OPERATOR),
        ("a library's register_fake", _LOW_LEVEL.format("torch.library.register_fake('fieldcode::two', lambda x: result_of(x))")),
        ("a library's kernel for Meta", _LOW_LEVEL.format("LIB.impl('two', lambda x: result_of(x), 'Meta')")),
    ):
        _add(f"a custom operator's result without values {_doc}: {_how}", _model(_USE, top=_text), "", ("    return torch.empty_like(x)\n", f"    {_line}\n"), first=_VERSIONED)
for _doc, _line, _change in (
    ("a limit", "torch._check(x.shape[1] <= MOST, lambda: 'columns')\n    return torch.empty_like(x)", "app.MOST = 2"),
    ("a dtype", "return torch.empty_like(x, dtype=DTYPE)", "import torch\napp.DTYPE = torch.float64"),
    ("a helper", "return helper(x)\ndef helper(x):\n    return torch.empty_like(x)", "import torch\napp.helper = lambda x: torch.empty_like(x, dtype=torch.float64)"),
):
    _text = _OPERATOR.replace("return torch.empty_like(x)", _line, 1)
    _add(f"a custom operator's result without values depends on what is another: {_doc}", _model(_USE, top=_text), _change, first=_VERSIONED)
_add("a custom operator's result without values has another dtype, and sizes are dynamic", _model("y = two(x)\nreturn y * (2.0 if y.dtype == torch.float32 else 3.0)", top=_OPERATOR), "", ("    return torch.empty_like(x)\n", f"    {_FAKES[0][1]}\n"),
     first=_VERSIONED, make="import app, torch\nmodel = app.Model().eval()\ndynamic_shapes = ({0: torch.export.Dim('n', max=64)},)\n")
_add("a custom operator of a declared version is called, and nothing has changed", _model(_USE, top=_OPERATOR), "pass", first=_VERSIONED, harmless=True)

# Warnings of deprecations are off in an export, and not in a replay
_WARNED = """
import warnings
{}
def old(x):
    warnings.warn("use new", {}, stacklevel=2)
    return x
"""
for _kind in ("DeprecationWarning", "FutureWarning", "UserWarning"):
    for _doc, _filter, _forward in (
        ("is an error that is caught", f"warnings.filterwarnings('error', category={_kind})", f"try:\n    return old(x) * self.by\nexcept {_kind}:\n    return x * 2.0"),
        ("is recorded", f"warnings.filterwarnings('always', category={_kind})", "with warnings.catch_warnings(record=True) as found:\n    x = old(x)\nreturn x * (2.0 if found else self.by)"),
    ):
        _add(f"a {_kind} {_doc}, and a factor without it is another", _model(_forward, "self.by = 2.0", _WARNED.format(_filter, _kind)), "model.by = 3.0")
    _add(f"a {_kind} is an error, and nothing has changed", _model("old(x) * 2.0", top=_WARNED.format("", _kind)), "pass", harmless=True,
         first=f"import warnings\nwarnings.filterwarnings('error', category={_kind})\n" if _kind != "UserWarning" else "")
    _add(f"a {_kind} is printed, and nothing has changed", _model("old(x) * 2.0", top=_WARNED.format(f"warnings.filterwarnings('always', category={_kind})", _kind)), "pass", harmless=True)

# Operators of torch that a user replaces, where there are no values
for _name in ("sin", "erf", "cumsum", "mul.Tensor"):
    _call = {"cumsum": "torch.cumsum(x, 0)", "mul.Tensor": "x * x"}.get(_name, f"torch.{_name}(x)")
    for _doc, _body in (("another dtype", "torch.empty_like(x, dtype=torch.float64)"), ("an error", "1 / 0"), ("the same", "torch.empty_like(x)")):
        _add(f"a kernel of aten.{_name} for Meta is registered, and gives {_doc}", _model(f"y = {_call}\nreturn y.mul(2.0 if y.dtype == torch.float32 else 3.0)"),
             f"import torch\nLIB = torch.library.Library('aten', 'IMPL')\nLIB.impl('{_name}', lambda x, *a, **k: {_body}, 'Meta')")
_add("a rule of fake tensors is registered for sin", _model("y = torch.sin(x)\nreturn y.mul(2.0 if y.dtype == torch.float32 else 3.0)"),
     "import torch\nfrom torch._subclasses.fake_impls import register_op_impl\nregister_op_impl(torch.ops.aten.sin.default)(lambda mode, func, x: torch.empty_like(x, dtype=torch.float64))")
_add("a rule of the meta device is registered for sin", _model("y = torch.sin(x)\nreturn y.mul(2.0 if y.dtype == torch.float32 else 3.0)"),
     "import torch\nimport torch._decomp\ntorch._decomp.meta_table[torch.ops.aten.sin.default] = lambda x: torch.empty_like(x, dtype=torch.float64)")

# Code that is there and did not run before, with the same operations
for _doc, _forward, _init, _top, _change in (
    ("a flag of a log", "if self.verbose:\n    log(x.shape)\nreturn x * 2", "self.verbose = False", "def log(*_):\n    pass", "model.verbose = True"),
    ("a table is full, and is emptied", "if len(TABLE) > 2:\n    empty()\nreturn x * 2", "pass", "TABLE = {}\ndef empty():\n    TABLE.clear()", "app.TABLE.update(a=1, b=2, c=3)"),
    ("another function that does the same", "x * self.by()", "self.by = two", "def two():\n    return 2\ndef zwei():\n    return 1 + 1", "model.by = app.zwei"),
    ("a file is missing", "x * read()", "pass", "import os\ndef default():\n    return 2\ndef read():\n    return int(open('by.txt').read()) if os.path.exists('by.txt') else default()\n", "import os\nif os.path.exists('by.txt'):\n    os.remove('by.txt')"),
    ("a helper is asked no more", "[x * 2, log()][0] if self.verbose else x * 2", "self.verbose = True", "def log(*_):\n    pass", "model.verbose = False"),
    ("a helper's result is cached now", "x * cached()", "pass", "import functools\n@functools.lru_cache\ndef cached():\n    return two()\ndef two():\n    return 2", "app.cached()"),
    ("a helper's cache is emptied", "x * cached()", "app_cached = cached()", "import functools\n@functools.lru_cache\ndef cached():\n    return two()\ndef two():\n    return 2", "app.cached.cache_clear()"),
    ("a hook of torch's own is put on", "self.act(x)", "self.act = nn.ReLU()", "", "import torch\nmodel.act.register_forward_hook(torch.jit.is_scripting.__class__ and (lambda *a: None))"),
    ("a builtin is in place of a helper", "x * sum_of([1, 1])", "pass", "def sum_of(values):\n    return sum(values)", "app.sum_of = sum"),
):
    _add(f"the operations are the same: {_doc}", _model(_forward, _init, _top) + ("--- by.txt\n2" if "by.txt" in _top else ""), _change, harmless=True)

# Recursion that is too deep for a replay, and not for an export
for _depth in (740, 780, 820, 860, 900):
    _add(f"a recursion of {_depth} levels has another way out, and the factor without it is another", _model("try:\n    deep(self.depth)\n    return x * self.by\nexcept RecursionError:\n    return x * 2.0", "self.depth, self.by = 10, 2.0", "def deep(n):\n    return n and deep(n - 1)"),
         f"model.depth, model.by = {_depth}, 3.0")
    _add(f"a layer of {_depth} levels has another way out, and the factor without it is another", _model("try:\n    return self.deep(x) * self.by\nexcept RecursionError:\n    return x * 2.0", "self.deep, self.by = Deep(), 2.0", "class Deep(nn.Module):\n    depth = 10\n    def forward(self, x, n=None):\n        n = self.depth if n is None else n\n        return self.forward(x, n - 1) if n else x"),
         f"model.deep.depth, model.by = {_depth}, 3.0")

# Functions that show what another one does hide it from others
_SNOOP = """
import sys
class Snoop:
    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.trace)
    def __exit__(self, *_):
        sys.settrace(self.before)
    def trace(self, frame, event, value):
        return None
def by():
    with Snoop():
        return compute()
def compute():
    return 3
"""
_add("a helper is watched by a tool for debugging, and now asks whether it is exported", _model("x * by()", top=f"{_PROXY}\n{_SNOOP}"), "", ("return 3", _NEW))
_add("a helper is watched by a tool for debugging, and another that it calls returns another number", _model("x * by()", top=_SNOOP), "", ("return 3", "return 2"))
_add("a helper is watched by a tool for debugging, and nothing has changed", _model("x * by()", top=_SNOOP), "pass", harmless=True)
_add("a helper is run by trace.Trace, and now asks whether it is exported", _model("x * trace.Trace(count=1, trace=0).runfunc(by)", top=f"{_PROXY}\nimport trace\ndef by():\n    return 3"), "", ("return 3", _NEW))
_add("a helper is run by bdb, and now asks whether it is exported", _model("x * bdb.Bdb().runcall(by)", top=f"{_PROXY}\nimport bdb\nbdb.Bdb.user_line = lambda *a: None\ndef by():\n    return 3"), "", ("return 3", _NEW))
_add("a helper is run by cProfile, and now asks whether it is exported", _model("x * cProfile.Profile().runcall(by)", top=f"{_PROXY}\nimport cProfile\ndef by():\n    return 3"), "", ("return 3", _NEW))
