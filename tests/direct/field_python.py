"""Changes of state that Python holds: values that compare equal, registries, slots, modules, code. Added to ``field_scenarios``."""

# fmt: off
from __future__ import annotations

from tests.direct.field_scenarios import _add, _model

# 1. Values that compare equal, and are not the same.

_add("a range equals the old one, but its stop is another", _model("x * R.stop", top="R = range(0, 3, 2)\n"), "app.R = range(0, 4, 2)")
_add("the sign of a nan is another", _model("x * math.copysign(2.0, N)", top="import math\nN = float('nan')\n"), "app.N = -app.N")
_add("the sign of a nan in a tuple that is a default is another",
     _model("x * f()", top="import math\ndef f(a=(float('nan'),)):\n    return math.copysign(2.0, a[0])\n"), "app.f.__defaults__ = ((-float('nan'),),)")
_add("the fold of a time of day is another", _model("x * (2.0 + T.fold)", top="import datetime\nT = datetime.time(1, 30)\n"), "app.T = app.T.replace(fold=1)")
_add("a Decimal has one more zero behind the point", _model("x * len(D.as_tuple().digits)", top="import decimal\nD = decimal.Decimal('2.0')\n"), "import decimal; app.D = decimal.Decimal('2.00')")
_add("a Counter has a key that counts zero", _model("x * len(C)", top="import collections\nC = collections.Counter(a=1, b=2)\n"), "app.C['c'] = 0")
_add("a Fraction becomes the int it equals", _model("x * (2.0 if isinstance(V, int) else 3.0)", top="import fractions\nV = fractions.Fraction(2)\n"), "app.V = 2")
_add("the metadata of a NumPy type is another", _model("x * D.metadata['by']", top="import numpy as np\nD = np.dtype('f4', metadata={'by': 2.0})\n"),
     "import numpy as np; app.D = np.dtype('f4', metadata={'by': 3.0})")
_add("a dictionary's key is True and was 1", _model("x * 2, torch.full((3,), next(k for k in T))", top="T = {1: 'a'}\n"), "app.T = {True: 'a'}")
_add("a frozen set's element is True and was 1", _model("x * 2, torch.full((3,), [*S][0])", top="S = frozenset([1])\n"), "app.S = frozenset([True])")
_add("a function's constant is True and was 1", _model("x * 2, torch.full((3,), f())", top="def f():\n    return 1\n"), "app.f.__code__ = (lambda: True).__code__")
_add("a constant in a tuple of the code is -0.0", _model("x * f()", top="import math\ndef f():\n    return math.copysign(2.0, (0.0, 1.0)[0])\n"),
     "", ("(0.0, 1.0)", "(-0.0, 1.0)"))
_add("the sign of an imaginary zero is another", _model("x * math.copysign(2.0, Z.imag)", top="import math\nZ = complex(1.0, 0.0)\n"), "app.Z = complex(1.0, -0.0)")
_add("a start of a slice is True and was 1", _model("x * 2, torch.full((3,), S.start)", top="S = slice(1, 3)\n"), "app.S = slice(True, 3)")
_add("a tuple becomes a torch.Size that equals it", _model("x * (2.0 if type(S) is tuple else 3.0)", top="S = (3, 4)\n"), "app.S = torch.Size([3, 4])")
_add("an OrderedDict becomes a dict that equals it", _model("x * (2.0 if hasattr(D, 'move_to_end') else 3.0)", top="import collections\nD = collections.OrderedDict(a=1)\n"), "app.D = dict(a=1)")
_add("a regular expression has another flag", _model("x * (2.0 if P.match('A') else 3.0)", top="import re\nP = re.compile('a')\n"), "import re; app.P = re.compile('a', re.I)")
_add("a set of ints was filled in another order", _model("x * (2.0 + [*S][0])", top="S = set()\nS.add(0)\nS.add(8)\n"), "app.S.clear(); app.S.add(8); app.S.add(0)")
_add("a frozen set of ints was filled in another order", _model("x * (2.0 + [v for v in S][0])", top="S = frozenset([0, 8])\n"), "app.S = frozenset([8, 0])")
_add("an equal set of ints grew and shrank, and has another order", _model("x * (2.0 + [*self.s][0])", "self.s = {1, 8}"),
     "model.s = set(range(1000))\nfor i in range(1000):\n    if i not in (1, 8): model.s.discard(i)\n")
_add("a set of floats and an int was made in another order", _model("x * tuple(S)[0]", top="S = set([8.0, 16.0])\n"), "app.S = set([16.0, 8.0])")
_add("a set of -1 and -2, whose hashes collide, was made in another order", _model("x * tuple(S)[0]", top="S = set([-1, -2])\n"), "app.S = set([-2, -1])")
_add("a list has the same elements and more room", _model("x * L.__sizeof__()", top="L = [1, 2, 3]\n"), "app.L.extend(range(50)); del app.L[3:]")
_add("a NumPy scalar becomes an int of another width", _model("x * V.itemsize", top="import numpy as np\nV = np.int32(2)\n"), "import numpy as np; app.V = np.int64(2)")

# 2. Code objects and their lines.

_add("equal code of two modules is not equal any more, after a comment in one",
     _model("x * (2.0 if a.f.__code__ == b.f.__code__ else 3.0)", top="import a\nimport b\n") + "--- a.py\nf = lambda: 1\n--- b.py\nf = lambda: 1\n", "", ("--- b.py\nf", "--- b.py\n# a comment\nf"))
_add("code objects of two modules are keys of a dictionary, and one moves down a line",
     _model("x * len(dict.fromkeys(CODES))", top="import a\nimport b\nCODES = [a.f.__code__, b.f.__code__]\n") + "--- a.py\nf = lambda: 1\n--- b.py\nf = lambda: 1\n", "", ("--- b.py\nf", "--- b.py\n# a comment\nf"))
_add("the line of a recorded warning is read", _model("""
     with warnings.catch_warnings(record=True) as seen:
         warnings.simplefilter('always')
         warnings.warn('a')
     return x * seen[0].lineno
     """, top="import warnings\n"), "", ("import warnings", "# a comment\nimport warnings"))
_add("the line of a traceback is read", _model("""
     try:
         [][1]
     except IndexError as error:
         by = error.__traceback__.tb_lineno
     return x * by
     """, top="import math\n"), "", ("import math", "# a comment\nimport math"))
_add("the first line of code is read by attrgetter", _model("x * GET(f)", top="import operator\nGET = operator.attrgetter('__code__.co_firstlineno')\ndef f():\n    pass\n"),
     "", ("def f():", "# a comment\ndef f():"))
_add("line numbers are read with dis", _model("x * len([*dis.findlinestarts(f.__code__)])", top="import dis\ndef f(a):\n    return (a + 1)\n"), "", ("(a + 1)", "(a\n        + 1)"))
_add("how many recorded warnings there are depends on the filters", _model("""
     with warnings.catch_warnings(record=True) as seen:
         warnings.warn('old', DeprecationWarning)
     return x * (2.0 + len(seen))
     """, top="import warnings\n"), "import warnings; warnings.simplefilter('ignore')", first="import warnings; warnings.simplefilter('always')\n")
_add("a category's warnings are ignored by a filter of a module's name", _model("""
     with warnings.catch_warnings(record=True) as seen:
         warnings.warn('old')
     return x * (2.0 + len(seen))
     """, top="import warnings\n"), "import warnings; warnings.filterwarnings('ignore', module='app')", first="import warnings; warnings.simplefilter('always')\n")
_add("a signature that is set on a function is another", _model("x * len(inspect.signature(f).parameters)", top="import inspect\ndef f(a, b):\n    pass\n"),
     "import inspect; app.f.__signature__ = inspect.signature(lambda a, b, c: 0)")
_add("a __wrapped__ appears on a function", _model("x * inspect.unwrap(f)()", top="import inspect\ndef f():\n    return 2.0\n"), "app.f.__wrapped__ = lambda: 3.0")
_add("a local variable is renamed, and its name's length is read", _model("x * len(C(f)[0])", top="import operator\nC = operator.attrgetter('__code__.co_varnames')\ndef f(aa):\n    return aa\n"),
     "", ("aa", "aaa"))

# 3. State that C functions hide.

_add("a context's variable is set inside a kept Context", _model("x * CTX[VAR]", top="import contextvars\nVAR = contextvars.ContextVar('v')\nVAR.set(2.0)\nCTX = contextvars.copy_context()\n"),
     "app.CTX.run(app.VAR.set, 3.0)")
_add("a helper runs in a kept Context", _model("x * CTX.run(f)", top="import contextvars\nVAR = contextvars.ContextVar('v', default=2.0)\nCTX = contextvars.copy_context()\ndef f():\n    return VAR.get()\n"),
     "app.CTX.run(app.VAR.set, 3.0)")
_add("a live view of a dictionary shows another value", _model("x * [*V][0]", top="T = {'a': 2.0}\nV = T.values()\n"), "app.T['a'] = 3.0")
_add("a method of a float is kept, of another float", _model("x * f(1.0)", top="f = (2.0).__mul__\n"), "app.f = (3.0).__mul__")
_add("a bound total_seconds is of another timedelta", _model("x * f()", top="import datetime\nf = datetime.timedelta(seconds=2).total_seconds\n"),
     "import datetime; app.f = datetime.timedelta(seconds=3).total_seconds")
_add("a bound match is of another pattern", _model("x * (2.0 if f('a') else 3.0)", top="import re\nf = re.compile('a').match\n"), "import re; app.f = re.compile('b').match")
_add("a bound item of a NumPy array", _model("x * f()", top="import numpy as np\nA = np.array([2.0])\nf = A.item\n"), "app.A[0] = 3.0")
_add("a methodcaller has another argument", _model("x * f(2.0)", top="import operator\nf = operator.methodcaller('__add__', 0.0)\n"), "import operator; app.f = operator.methodcaller('__add__', 1.0)")
_add("an itemgetter has another index", _model("x * f((2.0, 3.0))", top="import operator\nf = operator.itemgetter(0)\n"), "import operator; app.f = operator.itemgetter(1)")
_add("a value of ctypes is another", _model("x * V.value", top="import ctypes\nV = ctypes.c_double(2.0)\n"), "app.V.value = 3.0")
_add("a value of ctypes behind a bound method", _model("x * f('value')", top="import ctypes\nV = ctypes.c_double(2.0)\nf = V.__getattribute__\n"), "app.V.value = 3.0")
_add("an array.array has another element", _model("x * A[0]", top="import array\nA = array.array('d', [2.0])\n"), "app.A[0] = 3.0")
_add("a cycle has advanced, and forward takes a copy", _model("x * next(copy.copy(C))", top="import copy, itertools\nC = itertools.cycle([2.0, 3.0])\n"), "next(app.C)")
_add("an iterator is one shorter", _model("x * operator.length_hint(I)", top="import operator\nI = iter([1, 2, 3])\n"), "next(app.I)")
_add("a method of an iterator is kept, and it advances", _model("x * f()", top="I = iter([1, 2, 3])\nf = I.__length_hint__\n"), "next(app.I)")
_add("the position of a StringIO", _model("x * (2.0 + B.tell())", top="import io\nB = io.StringIO('abc')\n"), "app.B.seek(1)")
_add("the state of a Random is another, and forward takes a copy", _model("x * copy.copy(R).random()", top="import copy, random\nR = random.Random(0)\n"), "app.R.random()")
_add("a semaphore was acquired", _model("x * S._value", top="import threading\nS = threading.Semaphore(2)\n"), "app.S.acquire()")
_add("a lock is held", _model("x * (2.0 + L.locked())", top="import threading\nL = threading.Lock()\n"), "app.L.acquire()")
_add("a simple queue has one more", _model("x * (2.0 + Q.qsize())", top="import queue\nQ = queue.SimpleQueue()\n"), "app.Q.put(1)")
_add("a future has another result", _model("x * Fu.result()", top="import concurrent.futures\nFu = concurrent.futures.Future()\nFu.set_result(2.0)\n"), "app.Fu._result = 3.0")
_add("how many weak references an object has", _model("x * (2.0 + weakref.getweakrefcount(CFG))", top="import weakref\nclass Cfg: pass\nCFG = Cfg()\n"), "import weakref; kept = weakref.ref(app.CFG)")
_add("garbage collection is off", _model("x * (2.0 + on())", top="from gc import isenabled as on\n"), "import gc; gc.disable()")
_add("the handler of a signal is another", _model("x * (2.0 if got(10) is None or not callable(got(10)) else 3.0)", top="from signal import getsignal as got\n"), "import signal; signal.signal(10, lambda *a: None)")
_add("the default timeout of sockets", _model("x * (limit() or 2.0)", top="from socket import getdefaulttimeout as limit\n"), "import socket; socket.setdefaulttimeout(3.0)")
_add("the largest field of csv", _model("x * limit()", top="from csv import field_size_limit as limit\n"), "import csv; csv.field_size_limit(7)")
_add("a dialect of csv is registered anew", _model("x * len([*csv.reader(['a,b;c;d'], 'field')][0])", top="import csv\ncsv.register_dialect('field', delimiter=',')\n"), "import csv; csv.register_dialect('field', delimiter=';')")
_add("a handler of encoding errors is registered anew", _model("x * len('\\u00e9'.encode('ascii', 'field'))", top="import codecs\ncodecs.register_error('field', lambda e: ('aa', e.end))\n"),
     "import codecs; codecs.register_error('field', lambda e: ('aaa', e.end))")
_add("a built-in handler of encoding errors is replaced", _model("x * len('\\u00e9'.encode('ascii', 'replace'))", top="import math\n"),
     "import codecs; codecs.register_error('replace', codecs.lookup_error('xmlcharrefreplace'))")
_add("a codec of one's own is another", _model("x * len('a'.encode('fieldcodec'))", top="import codecs\nimport enc\ncodecs.register(enc.search)\n")
     + "--- enc.py\nimport codecs\ndef search(name):\n    if name == 'fieldcodec':\n        return codecs.CodecInfo(lambda s, e='strict': (b'x' * 2, len(s)), None, name=name)\n", "", ("b'x' * 2", "b'x' * 3"))
_add("the time zone", _model("x * (2.0 + at(0).hour)", top="import datetime\nat = datetime.datetime.fromtimestamp\n"),
     "import os, time; os.environ['TZ'] = 'UTC-5'; time.tzset()", first="import os, time; os.environ['TZ'] = 'UTC'; time.tzset()\n")

# 4. Registries and settings of Python's library and of what torch installs.

_add("the first day of the week", _model("x * (2.0 + calendar.monthcalendar(2024, 1)[0].count(0))", top="import calendar\n"), "import calendar; calendar.setfirstweekday(6)")
_add("a level of logging has a name", _model("x * (3.0 if logging.getLevelName(25) == 'NOTICE' else 2.0)", top="import logging\n"), "import logging; logging.addLevelName(25, 'NOTICE')")
_add("a type of file is registered", _model("x * (3.0 if mimetypes.guess_type('a.fieldby')[0] else 2.0)", top="import mimetypes\nmimetypes.init()\n"), "import mimetypes; mimetypes.add_type('a/b', '.fieldby')")
_add("configparser's words for booleans", _model("x * (2.0 if P.getboolean('s', 'o') else 3.0)", top="import configparser\nP = configparser.ConfigParser()\nP.read_string('[s]\\no = yes')\n"),
     "import configparser; configparser.RawConfigParser.BOOLEAN_STATES['yes'] = False")
_add("json's default decoder is replaced", _model("x * json.loads('[2.0]')[0]", top="import json\n"), "import json; json._default_decoder = json.JSONDecoder(parse_float=lambda s: 3.0)")
_add("a class is registered as a number", _model("x * (3.0 if isinstance(C, numbers.Real) else 2.0)", top="import numbers\nclass Cfg: pass\nC = Cfg()\n"), "import numbers; numbers.Real.register(app.Cfg)")
_add("a class is registered as a Sequence, and a match statement takes it",
     _model("match P:\n    case [a, b]:\n        by = a\n    case _:\n        by = 3.0\nreturn x * by", top="class Pair:\n    def __len__(self):\n        return 2\n    def __getitem__(self, i):\n        return (2.5, 4.0)[i]\nP = Pair()\n"),
     "import collections.abc; collections.abc.Sequence.register(app.Pair)")
_add("a class is registered as a Mapping, and a match statement takes it",
     _model("match P:\n    case {'a': a}:\n        by = a\n    case _:\n        by = 3.0\nreturn x * by", top="class Map:\n    def get(self, k, d=None):\n        return 2.5\n    def keys(self):\n        return ['a']\n    def __len__(self):\n        return 1\n    def __getitem__(self, i):\n        return 2.5\nP = Map()\n"),
     "import collections.abc; collections.abc.Mapping.register(app.Map)")
_add("an object gets what a runtime protocol asks for", _model("x * (3.0 if isinstance(C, Has) else 2.0)", top="import typing\n@typing.runtime_checkable\nclass Has(typing.Protocol):\n    scale: float\nclass Cfg: pass\nC = Cfg()\n"), "app.C.scale = 1.0")
_add("a class gets a length, and singledispatch finds Sized", _model("x * f(C)", top="import collections.abc, functools\n@functools.singledispatch\ndef f(a):\n    return 2.0\n@f.register(collections.abc.Sized)\ndef _(a):\n    return 3.0\nclass Cfg: pass\nC = Cfg()\n"),
     "app.f._clear_cache(); app.Cfg.__len__ = lambda s: 1")
_add("singledispatch gets a more exact class", _model("x * f(True)", top="import functools\n@functools.singledispatch\ndef f(a):\n    return 1.0\n@f.register(int)\ndef _(a):\n    return 2.0\n"), "app.f.register(bool, lambda a: 3.0)")
_add("a virtual subclass of one's own ABC in singledispatch", _model("x * f(C)", top="import abc, functools\nclass Base(abc.ABC): pass\nclass Cfg: pass\nC = Cfg()\n@functools.singledispatch\ndef f(a):\n    return 2.0\n@f.register(Base)\ndef _(a):\n    return 3.0\n"), "app.Base.register(app.Cfg)")
_add("an lru_cache was warmed with True, which equals 1", _model("x * 2, torch.full((3,), f(1))", top="import functools\n@functools.lru_cache\ndef f(v):\n    return v\n"), "app.f.cache_clear(); app.f(True)")
_add("a cache behind a partial was warmed under another setting", _model("x * g()", top="import functools\nBY = [2.0]\n@functools.cache\ndef f(v):\n    return BY[0]\ng = functools.partial(f, 1)\n"),
     "app.f.cache_clear(); app.BY[0] = 3.0; app.g(); app.BY[0] = 2.0")
_add("a cached_property is set below", _model("x * C.by", top="import functools\nclass Cfg:\n    @functools.cached_property\n    def by(self):\n        return 2.0\nC = Cfg()\nC.by\n"), "app.C.__dict__['by'] = 3.0")
_add("sympy does not evaluate", _model("x * (2.0 if (S + S).is_Mul else 3.0)", top="import sympy\nS = sympy.Symbol('s')\n"), "import sympy; sympy.core.parameters.global_parameters.evaluate = False")
_add("mpmath's precision is another", _model("x * float(mpmath.sqrt(2))", top="import mpmath\n"), "import mpmath; mpmath.mp.dps = 3")
_add("a symbol of sympy has another assumption", _model("x * (2.0 if sympy.sqrt(S ** 2) == S else 3.0)", top="import sympy\nS = sympy.Symbol('s', positive=True)\n"), "import sympy; app.S = sympy.Symbol('s')")
_add("an edge of a networkx graph is removed and added again", _model("x * [*G.neighbors(0)][0]", top="import networkx as nx\nG = nx.Graph([(0, 1), (0, 2)])\n"), "app.G.remove_edge(0, 1); app.G.add_edge(0, 1)")
_add("a global of a jinja2 environment is another", _model("x * len(T.render())", top="import jinja2\nE = jinja2.Environment()\nE.globals['by'] = 'aa'\nT = E.from_string('{{ by }}')\n"), "app.T.globals['by'] = 'aaa'; app.E.globals['by'] = 'aaa'")
_add("a filter of jinja2 is replaced", _model("x * len(T.render())", top="import jinja2\nT = jinja2.Environment().from_string('{{ n | upper }}')\nT.globals['n'] = 'aa'\n"), "app.T.environment.filters['upper'] = lambda s: 'aaa'")
_add("a file in fsspec's memory is another", _model("x * len(fsspec.filesystem('memory').cat('/field'))", top="import fsspec\nfsspec.filesystem('memory').pipe('/field', b'aa')\n"), "import fsspec; fsspec.filesystem('memory').pipe('/field', b'aaa')")
_add("the mask of a masked array is another", _model("x * float(A.sum())", top="import numpy as np\nA = np.ma.array([1.0, 2.0, 4.0], mask=[0, 0, 1])\n"), "app.A.mask[0] = True")
_add("a coefficient of a poly1d is another", _model("x * float(P(1.0))", top="import numpy as np\nP = np.poly1d([1.0, 1.0])\n"), "app.P[0] = 2.0")
_add("the number of torch's threads", _model("x * torch.get_num_threads()", top="import math\n"), "torch.set_num_threads(torch.get_num_threads() + 1)")
_add("the seed is read as a number", _model("x * (torch.initial_seed() % 7 + 1)", top="import math\n"), "torch.manual_seed(5)")
_add("the strategy for sharing memory", _model("x * len(torch.multiprocessing.get_sharing_strategy())", top="import torch.multiprocessing\n"), "torch.multiprocessing.set_sharing_strategy('file_system')")
_add("the folder of torch.hub", _model("x * len(torch.hub.get_dir())", top="import torch.hub\n"), "torch.hub.set_dir('/a')", first="import torch.hub; torch.hub.set_dir('/aaa')\n")
_add("whether distributions validate", _model("x * (2.0 if torch.distributions.Normal(0.0, 1.0)._validate_args else 3.0)", top="import torch.distributions\n"), "torch.distributions.Distribution.set_default_validate_args(False)")
_add("the worker of a data loader", _model("w = torch.utils.data.get_worker_info()\nreturn x * (2.0 if w is None else w.id)", top="import torch.utils.data\n"),
     "import types, torch.utils.data; torch.utils.data._utils.worker._worker_info = types.SimpleNamespace(id=3)")
_add("operator.mul is replaced by add", _model("operator.mul(x, 3.0)", top="import operator\n"), "import operator; operator.mul = operator.add")
_add("functools.reduce is replaced", _model("x * functools.reduce(max, [2.0, 3.0])", top="import functools\n"), "import functools; functools.reduce = lambda f, v: v[0]")
_add("a method of Fraction is patched", _model("x * float(V)", top="import fractions\nV = fractions.Fraction(2)\n"), "import fractions; fractions.Fraction.__float__ = lambda s: 3.0")
_add("a frozen clock shows another time", _model("x * time.time()", top="import time\nNOW = {'t': 2.0}\ntime.time = lambda: NOW['t']\n"), "app.NOW['t'] = 3.0")
_add("a frozen clock, patched over the function that forward imported", _model("from time import monotonic\nreturn x * monotonic()", top="import time\ntime.monotonic = lambda: 2.0\n"), "import time; time.monotonic = lambda: 3.0")
_add("a mock returns another value", _model("x * M()", top="from unittest import mock\nM = mock.Mock(return_value=2.0)\n"), "app.M.return_value = 3.0")

# 5. Classes.

_add("two slots of a class are exchanged", _model("x * C.a", top="class Cfg:\n    __slots__ = ('a', 'b')\nC = Cfg()\nC.a, C.b = 2.0, 3.0\n"), "app.Cfg.a, app.Cfg.b = app.Cfg.b, app.Cfg.a")
_add("a property that hid an attribute is deleted", _model("x * C.by", top="class Cfg:\n    by = property(lambda s: 2.0)\nC = Cfg()\nC.__dict__['by'] = 3.0\n"), "del app.Cfg.by")
_add("the class of a module gets a property that hides its value", _model("x * conf.BY", top="import conf\n") + "--- conf.py\nBY = 2.0\n",
     "import conf, types\nclass M(types.ModuleType):\n    BY = property(lambda s: 3.0)\nconf.__class__ = M\n")
_add("the class of a module gets __getattribute__, and the name is a string", _model("x * getattr(conf, 'BY')", top="import conf\n") + "--- conf.py\nBY = 2.0\n",
     "import conf, types\nclass M(types.ModuleType):\n    def __getattribute__(self, n):\n        return 3.0 if n == 'BY' else super().__getattribute__(n)\nconf.__class__ = M\n")
_add("__match_args__ is edited", _model("match C:\n    case Cfg(v):\n        by = v\nreturn x * by", top="class Cfg:\n    __match_args__ = ('a',)\n    a = 2.0\n    b = 3.0\nC = Cfg()\n"), "app.Cfg.__match_args__ = ('b',)")
_add("an object says that it has another class", _model("x * (2.0 if isinstance(P, A) else 3.0)", top="class A: pass\nclass B: pass\nT = [A]\nclass Proxy:\n    __class__ = property(lambda s: T[0])\nP = Proxy()\n"), "app.T[0] = app.B")
_add("a class becomes abstract, and cannot be made", _model("try:\n    by = Cfg().by\nexcept TypeError:\n    by = 3.0\nreturn x * by", top="import abc\nclass Cfg(abc.ABC):\n    by = 2.0\n"), "app.Cfg.__abstractmethods__ = frozenset(['f'])")
_add("a subclass appears in another module", _model("x * max(c.by for c in Base.__subclasses__())", top="class Base: pass\nclass A(Base):\n    by = 2.0\n"), "class B(app.Base):\n    by = 3.0\n")
_add("a subclass of a subclass is collected", _model("x * (2.0 + len(A.__subclasses__()))", top="class A: pass\nclass B(A): pass\nclass C(A): pass\n"), "import gc; del app.C; gc.collect()")
_add("a subclass of Python's own class appears", _model("x * (2.0 + len([c for c in collections.UserList.__subclasses__() if c.__module__ != 'builtins']))", top="import collections\n"), "import collections\nclass L(collections.UserList): pass\n")
_add("__mro_entries__ gives another base", _model("x * C.by", top="class A:\n    by = 2.0\nclass B:\n    by = 3.0\nclass E:\n    def __mro_entries__(self, bases):\n        return (A,)\nclass C(E()): pass\n"), "", ("return (A,)", "return (B,)"))
_add("a property of a metaclass of a metaclass reads a table", _model("x * Cfg.by", top="T = {'by': 2.0}\nclass MM(type): pass\nclass M(type, metaclass=MM):\n    @property\n    def by(cls):\n        return T['by']\nclass Cfg(metaclass=M): pass\n"), "app.T['by'] = 3.0")
_add("keys of a dictionary are not equal any more", _model("x * T.get(Key('a'), 3.0)", top="class Key:\n    def __init__(self, n):\n        self.n = n\n    def __hash__(self):\n        return 1\n    def __eq__(self, o):\n        return self.n == o.n\nT = {Key('a'): 2.0}\n"), "app.Key.__eq__ = lambda s, o: s is o")
_add("a stored key's attribute is another, so a lookup fails", _model("x * T.get(Key('a'), 3.0)", top="class Key:\n    def __init__(self, n):\n        self.n = n\n    def __hash__(self):\n        return 1\n    def __eq__(self, o):\n        return self.n == o.n\nT = {Key('a'): 2.0}\n"), "next(iter(app.T)).n = 'b'")
_add("an enum member's value is edited", _model("x * E.A.value", top="import enum\nclass E(enum.Enum):\n    A = 2.0\n    B = 4.0\n"), "app.E.A._value_ = 3.0")
_add("an enum's map of values is edited", _model("x * (2.0 if E(1) is E.A else 3.0)", top="import enum\nclass E(enum.Enum):\n    A = 1\n    B = 2\n"), "app.E._value2member_map_[1] = app.E.B")
_add("an enum's _missing_ gives another member", _model("x * E(9).value", top="import enum\nD = ['A']\nclass E(enum.Enum):\n    A = 2.0\n    B = 3.0\n    @classmethod\n    def _missing_(cls, v):\n        return cls[D[0]]\n"), "app.D[0] = 'B'")
_add("the fields of a named tuple are in another order", _model("x * P(2.0, 3.0)._asdict()['a']", top="import collections\nP = collections.namedtuple('P', 'a b')\n"), "app.P._fields = ('b', 'a')")
_add("fields of a dataclass are in another order", _model("x * dataclasses.astuple(C)[0]", top="import dataclasses\n@dataclasses.dataclass\nclass Cfg:\n    a: float = 2.0\n    b: float = 3.0\nC = Cfg()\n"), "f = app.Cfg.__dataclass_fields__; f['a'] = f.pop('a')")
_add("the metadata of a dataclass's field", _model("x * dataclasses.fields(Cfg)[0].metadata['by']", top="import dataclasses\nM = {'by': 2.0}\n@dataclasses.dataclass\nclass Cfg:\n    a: float = dataclasses.field(default=0.0, metadata=M)\n"), "app.M['by'] = 3.0")
_add("attributes of a config are in another order", _model("x * [*vars(self.c).values()][0]", "self.c = Cfg()", "class Cfg:\n    def __init__(self):\n        self.a = 2.0\n        self.b = 3.0\n"), "model.c.a = model.c.__dict__.pop('a')")
_add("attributes of a class are in another order", _model("x * [v for v in Cfg.__dict__.values() if type(v) is float][0]", top="class Cfg:\n    a = 2.0\n    b = 3.0\n"), "v = app.Cfg.a; del app.Cfg.a; app.Cfg.a = v")
_add("globals of another module are in another order", _model("x * [v for v in conf.__dict__.values() if type(v) is float][0]", top="import conf\n") + "--- conf.py\nA = 2.0\nB = 3.0\n", "import conf; v = conf.A; del conf.A; conf.A = v")
_add("attributes of a function are in another order", _model("x * [*f.__dict__.values()][0]", top="def f(): pass\nf.a, f.b = 2.0, 3.0\n"), "v = app.f.a; del app.f.a; app.f.a = v")
_add("getstate changes what a deep copy has", _model("x * copy.deepcopy(C).by", top="import copy\nclass Cfg:\n    def __init__(self):\n        self.by = 2.0\nC = Cfg()\n"), "app.Cfg.__getstate__ = lambda s: {'by': 3.0}")
_add("a __dir__ is added", _model("x * len([n for n in dir(C) if n[0] != '_'])", top="class Cfg:\n    a = b = 1\nC = Cfg()\n"), "app.Cfg.__dir__ = lambda s: ['a', 'b', 'c']")

# 6. Code that Python's and torch's C functions call.

_add("torch.tensor goes over a sequence of one's own", _model("x * torch.tensor(S)", top="import conf\nclass Seq:\n    def __len__(self):\n        return 4\n    def __getitem__(self, i):\n        if i > 3:\n            raise IndexError\n        return getattr(conf, 'B' + 'Y')\nS = Seq()\n") + "--- conf.py\nBY = 2.0\n", "import conf; conf.BY = 3.0")
_add("NumPy asks an object for a float, which reads by a composed name", _model("x * float(np.float64(S))", top="import numpy as np\nimport conf\nclass Num:\n    def __float__(self):\n        return getattr(conf, 'B' + 'Y')\nS = Num()\n") + "--- conf.py\nBY = 2.0\n", "import conf; conf.BY = 3.0")
_add("NumPy asks an object for an array", _model("x * float(np.asarray(S).sum())", top="import numpy as np\nT = {'by': 2.0}\nclass Arr:\n    def __array__(self, dtype=None, copy=None):\n        return np.full(4, T['by'])\nS = Arr()\n"), "app.T['by'] = 3.0")
_add("flattening a node of pytree reads a global by a composed name", _model("x * torch.utils._pytree.tree_leaves(N)[0]", top="import torch.utils._pytree\nimport conf\nclass Node: pass\nN = Node()\ntorch.utils._pytree.register_pytree_node(Node, lambda n: ([getattr(conf, 'B' + 'Y')], None), lambda v, c: Node())\n") + "--- conf.py\nBY = 2.0\n", "import conf; conf.BY = 3.0")
_add("a function of autograd reads a global in its forward", _model("Fn.apply(x)", top="import conf\nclass Fn(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x * conf.BY\n    @staticmethod\n    def backward(ctx, g):\n        return g\n") + "--- conf.py\nBY = 2.0\n", "import conf; conf.BY = 3.0")
_add("a helper runs in a pool of threads, and reads by a composed name", _model("""
     with concurrent.futures.ThreadPoolExecutor(1) as pool:
         by = pool.submit(f).result()
     return x * by
     """, top="import concurrent.futures\nimport conf\ndef f():\n    return getattr(conf, 'B' + 'Y')\n") + "--- conf.py\nBY = 2.0\n", "import conf; conf.BY = 3.0")
_add("a coroutine is driven by send", _model("try:\n    f().send(None)\nexcept StopIteration as stop:\n    by = stop.value\nreturn x * by", top="import conf\nasync def f():\n    return conf.BY\n") + "--- conf.py\nBY = 2.0\n", "import conf; conf.BY = 3.0")
_add("a format string names an attribute of a module", _model("x * len('{0.NAME}'.format(conf))", top="import conf\n") + "--- conf.py\nNAME = 'aa'\n", "import conf; conf.NAME = 'aaa'")
_add("a format string is put together, and names an attribute of a module", _model("x * len(('{0.' + 'name}'.upper()).format(conf))", top="import conf\n") + "--- conf.py\nNAME = 'aa'\n", "import conf; conf.NAME = 'aaa'")
_add("a format string in a file of json names an attribute", _model("x * len(TEXT.format(conf))", top="import base64\nimport conf\nTEXT = base64.b64decode(b'ezAuTkFNRX0=').decode()\n") + "--- conf.py\nNAME = 'aa'\n", "import conf; conf.NAME = 'aaa'")
_add("an object's __format__ is another", _model("x * {'a': 2.0, 'b': 3.0}[f'{C:z}']", top="class Cfg:\n    def __format__(self, s):\n        return 'a'\nC = Cfg()\n"), "app.Cfg.__format__ = lambda s, f: 'b'")
_add("what print writes to a buffer", _model("b = io.StringIO()\nprint(C, file=b, end='')\nreturn x * len(b.getvalue())", top="import io\nclass Cfg:\n    def __str__(self):\n        return 'aa'\nC = Cfg()\n"), "app.Cfg.__str__ = lambda s: 'aaa'")
_add("the tuple of an except clause is another", _model("try:\n    {}['a']\nexcept E:\n    by = 2.0\nexcept Exception:\n    by = 3.0\nreturn x * by", top="E = (KeyError,)\n"), "app.E = (IndexError,)")
_add("an attrgetter goes through another module", _model("x * G(ops)", top="import operator\nimport ops\nG = operator.attrgetter('conf.BY')\n") + "--- ops.py\nimport conf\n--- conf.py\nBY = 2.0\n", "import conf; conf.BY = 3.0")
_add("an attrgetter's path is decoded from bytes", _model("x * G(ops)", top="import operator\nimport ops\nG = operator.attrgetter(b'conf.BY'.decode())\n") + "--- ops.py\nimport conf\n--- conf.py\nBY = 2.0\n", "import conf; conf.BY = 3.0")
_add("a comparison behind cmp_to_key is turned around", _model("x * sorted([2.0, 3.0], key=K)[0]", top="import functools\ndef cmp(a, b):\n    return a - b\nK = functools.cmp_to_key(cmp)\n"), "app.cmp.__code__ = (lambda a, b: b - a).__code__")
_add("__fspath__ and __index__ are answered from a table", _model("x * range(2, 9)[I]", top="T = [0]\nclass Idx:\n    def __index__(self):\n        return T[0]\nI = Idx()\n"), "app.T[0] = 1")

# 7. Imports and modules.

_add("forward imports a module that stands for another in sys.modules", _model("import conf\nreturn x * conf.BY", top="import conf as _first\n") + "--- conf.py\nBY = 2.0\n", "import sys, types; sys.modules['conf'] = types.SimpleNamespace(BY=3.0)")
_add("an attribute of a package hides its submodule", _model("import pkg.sub as s\nreturn x * s.BY", top="import pkg.sub\n") + "--- pkg/__init__.py\n\n--- pkg/sub.py\nBY = 2.0\n", "import pkg, types; pkg.sub = types.SimpleNamespace(BY=3.0)")
_add("a submodule is deleted from its package, and sys.modules has another", _model("from pkg import sub\nreturn x * sub.BY", top="import pkg.sub\n") + "--- pkg/__init__.py\n\n--- pkg/sub.py\nBY = 2.0\n",
     "import pkg, sys, types; del pkg.sub; sys.modules['pkg.sub'] = types.SimpleNamespace(BY=3.0)")
_add("builtins.__import__ gives another module", _model("import conf\nreturn x * conf.BY", top="import conf as _first\n") + "--- conf.py\nBY = 2.0\n",
     "import builtins, types\nold = builtins.__import__\nbuiltins.__import__ = lambda n, *a, **k: types.SimpleNamespace(BY=3.0) if n == 'conf' else old(n, *a, **k)\n")
_add("__all__ of a module has one more name", _model("x * BY", top="from base import *\nfrom over import *\n") + "--- base.py\nBY = 2.0\n--- over.py\n__all__ = ['OTHER']\nOTHER = 1\nBY = 3.0\n", "", ("['OTHER']", "['OTHER', 'BY']"))
_add("a folder before it in sys.path has a module of this name", _model("import conf\nreturn x * conf.BY", top="import math\n") + "--- conf.py\nBY = 2.0\n",
     second="import sys; sys.path.insert(0, 'early')\n", added="--- early/conf.py\nBY = 3.0\n")
_add("a namespace package gets a portion with a plugin", _model("x * (2.0 + len([*pkgutil.iter_modules(plug.__path__)]))", top="import pkgutil\nimport plug\n") + "--- plug/a.py\nBY = 2.0\n", added="--- plug/b.py\nBY = 3.0\n")
_add("the version of a distribution is read", _model("x * len(importlib.metadata.version('fielddist'))", top="import importlib.metadata\n") + "--- fielddist-2.0.dist-info/METADATA\nMetadata-Version: 2.1\nName: fielddist\nVersion: 2.0\n", "", ("Version: 2.0\n", "Version: 2.0.1\n"))
_add("a resource of a package is read", _model("x * len(importlib.resources.files('res').joinpath('by.txt').read_text())", top="import importlib.resources\nimport res\n") + "--- res/__init__.py\n\n--- res/by.txt\naa\n", "", ("\naa\n", "\naaa\n"))
_add("pkgutil reads a package's data", _model("x * len(pkgutil.get_data('res', 'by.txt'))", top="import pkgutil\nimport res\n") + "--- res/__init__.py\n\n--- res/by.txt\naa\n", "", ("\naa\n", "\naaa\n"))
_add("runpy runs a file of settings", _model("x * runpy.run_path('settings.py')['BY']", top="import runpy\n") + "--- settings.py\nBY = 2.0\n", "", ("BY = 2.0", "BY = 3.0"))
_add("configparser reads a file", _model("p = configparser.ConfigParser()\np.read('by.ini')\nreturn x * len(p['s'])", top="import configparser\n") + "--- by.ini\n[s]\na = 1\n", "", ("a = 1", "a = 1\nb = 1"))
_add("linecache reads a line", _model("x * len(linecache.getline('by.txt', 1))", top="import linecache\n") + "--- by.txt\naa\n", "", ("\naa\n", "\naaa\n"))
_add("a file exists now", _model("x * (3.0 if pathlib.Path('flag').exists() else 2.0)", top="import pathlib\n"), "open('flag', 'w').close()")
_add("a file exists now, and the test for it is imported from genericpath", _model("x * (3.0 if there('flag') else 2.0)", top="from genericpath import isfile as there\n"), "open('flag', 'w').close()")
_add("the working folder", _model("x * path('.').count('/')", top="from os.path import abspath as path\n"), "import os; os.makedirs('a/b', exist_ok=True); os.chdir('a/b')")
_add("argparse reads the command line", _model("x * len(P.parse_args().by)", top="import argparse\nP = argparse.ArgumentParser()\nP.add_argument('--by', default='aa')\n"), "import sys; sys.argv = ['script.py', '--by', 'aaa']")
_add("sys is reached through another module", _model("x * (1.0 + len(warnings.sys.argv))", top="import warnings\n"), "import sys; sys.argv.append('a')")
_add("the home folder is put in by expanduser", _model("x * len(os.path.expanduser('~'))", top="import os\n"), env={"HOME": "/aaa"}, environ={"HOME": "/a"})
_add("a variable is put in by expandvars", _model("x * len(os.path.expandvars('$FIELDV'))", top="import os\n"), "import os; os.environ['FIELDV'] = 'aaa'", environ={"FIELDV": "a"})
_add("the width of the terminal", _model("x * shutil.get_terminal_size().columns", top="import shutil\n"), env={"COLUMNS": "30"}, environ={"COLUMNS": "20"})
_add("a module made at run time has another value", _model("x * M.f()", top="import types\nM = types.ModuleType('made')\nexec('BY = 2.0\\ndef f():\\n    return BY', M.__dict__)\n"), "app.M.BY = 3.0")
_add("a module is made anew by reload, and a function of the old one sees it", _model("x * f()", top="import conf\nf = conf.f\n") + "--- conf.py\nimport os\nBY = float(os.environ.get('FIELDB', '2'))\ndef f():\n    return BY\n",
     "import importlib, os, conf; os.environ['FIELDB'] = '3'; importlib.reload(conf)")
_add("a module is loaded lazily by a loader of Python's", _model("x * lazy.BY", top="import importlib.util, sys\nspec = importlib.util.find_spec('conf')\nspec.loader = importlib.util.LazyLoader(spec.loader)\nlazy = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(lazy)\n") + "--- conf.py\nBY = 2.0\n", "", ("BY = 2.0", "BY = 3.0"))
