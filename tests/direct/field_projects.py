"""Whole projects, and what their engineers do between two runs: settings, data files, model surgery, deployment. They are added to ``field_scenarios``."""

# fmt: off
# ruff: noqa: E501
from __future__ import annotations

from tests.direct.field_scenarios import _add, _model

# 1. Settings: files, command lines, environments and objects.

_YAML = _model("(self.lin(x) * self.cfg['head']['scale']).clamp(*self.cfg['head']['range'])", "self.cfg = load()", "from settings import load") + """
--- settings.py
import pathlib, yaml
def load(name='conf/base.yaml'):
    cfg = yaml.safe_load(pathlib.Path(__file__).with_name('conf').joinpath(pathlib.Path(name).name).read_text())
    if 'inherits' in cfg:
        cfg = {**load(cfg.pop('inherits')), **cfg}
    return cfg
--- conf/base.yaml
# the defaults of all heads
name: base
head:
  scale: 2.0
  range: [-1.0, 5.0]
log: info
"""
_add("a scale in conf/base.yaml is edited", _YAML, "", ("scale: 2.0", "scale: 2.5"))
_add("the end of a range in a YAML list is edited", _YAML, "", ("[-1.0, 5.0]", "[-1.0, 4.0]"))
_add("a YAML value of a range becomes null", _YAML, "", ("[-1.0, 5.0]", "[-1.0, null]"))
_add("a comment of a YAML file and its log level are edited", _YAML, "", ("# the defaults of all heads", "# defaults"), ("log: info", "log: debug"), harmless=True)
_add("YAML writes a list as a block and a number with an exponent", _YAML, "", ("[-1.0, 5.0]", "\n  - -1.0\n  - 5.0"), ("scale: 2.0", "scale: 2.0e+0"), harmless=True)
_add("YAML anchors: the anchor's number is edited, which a merge key takes over",
     _model("self.lin(x) * C['student']['temperature']", "pass", "import yaml\nC = yaml.safe_load(open('c.yaml'))")
     + "--- c.yaml\ncommon: &c\n  temperature: 1.5\nstudent:\n  <<: *c\n  layers: 2\n", "", ("temperature: 1.5", "temperature: 0.5"))
_add("YAML 1.1: an activation that is called off becomes a boolean",
     _model("F.relu(self.lin(x)) if C['act'] else self.lin(x)", "pass", "import yaml\nC = yaml.safe_load(open('c.yaml'))") + "--- c.yaml\nact: 'off'\n", "", ("act: 'off'", "act: off"))
_add("YAML: 1e-3 is a text and 1.0e-3 is a number",
     _model("self.lin(x) + (C['eps'] if isinstance(C['eps'], float) else 0.5)", "pass", "import yaml\nC = yaml.safe_load(open('c.yaml'))") + "--- c.yaml\neps: 1e-3\n", "", ("eps: 1e-3", "eps: 1.0e-3"))
_TOML = _model("F.layer_norm(self.lin(x), (4,), eps=CFG['model']['eps']) * CFG['model'].get('gain', 1)", "pass", """
     import tomllib
     with open('project.toml', 'rb') as f:
         CFG = tomllib.load(f)
     """) + "--- project.toml\n[project]\nversion = '1.0'\n[model]\neps = 1e-5\n"
_add("an epsilon in a TOML file is edited", _TOML, "", ("eps = 1e-5", "eps = 1e-6"))
_add("a TOML table gets a key that the code has a default for", _TOML, "", ("eps = 1e-5", "eps = 1e-5\ngain = 2"))
_add("the version in a TOML file is another", _TOML, "", ("version = '1.0'", "version = '1.1'"), harmless=True)
_add("a TOML table gets the key with the default's value, but as a float", _TOML, "", ("eps = 1e-5", "eps = 1e-5\ngain = 1.0"))
_INI = _model("self.lin(x) if P.getboolean('net', 'plain') else F.gelu(self.lin(x), approximate=P['net']['approximate'])", "pass", """
     import configparser
     P = configparser.ConfigParser()
     P.read(['net.ini', 'local.ini'])
     """) + "--- net.ini\n[DEFAULT]\napproximate = none\n[net]\nplain = no\n"
_add("an INI file's boolean is edited", _INI, "", ("plain = no", "plain = yes"))
_add("an INI file's default section is edited", _INI, "", ("approximate = none", "approximate = tanh"))
_add("a local INI file overrides another", _INI, added="--- local.ini\n[net]\napproximate = tanh\n")
_add("a local INI file repeats what the other has", _INI, added="--- local.ini\n[net]\nplain = false\n", harmless=True)
_ARGS = _model("torch.where(x > args.threshold, self.lin(x), x) if args.gate else self.lin(x)", "pass", """
     import argparse, os, shlex
     parser = argparse.ArgumentParser(fromfile_prefix_chars='@')
     parser.convert_arg_line_to_args = str.split
     parser.add_argument('--threshold', type=float, default=3.0)
     parser.add_argument('--gate', action=argparse.BooleanOptionalAction, default=True)
     parser.add_argument('--run-name', default='a')
     args = parser.parse_args(shlex.split(os.environ.get('APP_ARGS', '')))
     """)
_add("a threshold on the command line is another", _ARGS, environ={"APP_ARGS": "--threshold 3"}, env={"APP_ARGS": "--threshold 4"})
_add("a command line says --no-gate", _ARGS, environ={"APP_ARGS": ""}, env={"APP_ARGS": "--no-gate"})
_add("a command line has another name of the run", _ARGS, environ={"APP_ARGS": "--run-name a"}, env={"APP_ARGS": "--run-name b --threshold=3.0"}, harmless=True)
_add("a file of arguments is edited", _ARGS + "--- more.args\n--threshold\n5\n", "", ("threshold\n5", "threshold\n6"), environ={"APP_ARGS": "@more.args"})
_add("argparse's defaults are set by a plugin before parsing", _ARGS.replace("args = parser", "import plugin\nplugin.setup(parser)\n     args = parser").replace("\n     args", "\nargs")
     + "--- plugin.py\ndef setup(p):\n    p.set_defaults(threshold=2.0)\n", "", ("threshold=2.0", "threshold=7.0"))
_PYD = _model("self.lin(x) * self.cfg.net.gain", "self.cfg = Settings()", """
     from pydantic import BaseModel, field_validator
     from pydantic_settings import BaseSettings, SettingsConfigDict
     class Net(BaseModel):
         gain: float = 2.0
         @field_validator('gain')
         @classmethod
         def cap(cls, v):
             return min(v, 8.0)
     class Settings(BaseSettings):
         model_config = SettingsConfigDict(env_prefix='APP_', env_nested_delimiter='__', env_file='.env')
         net: Net = Net()
         user: str = 'me'
     """)
_add("pydantic settings: a nested variable of the environment", _PYD, environ={"APP_NET__GAIN": "2"}, env={"APP_NET__GAIN": "3"})
_add("pydantic settings: the .env file is edited", _PYD + "--- .env\nAPP_NET__GAIN=4\n", "", ("GAIN=4", "GAIN=5"))
_add("pydantic settings: the environment wins over the .env file", _PYD + "--- .env\nAPP_NET__GAIN=4\n", env={"APP_NET__GAIN": "6"})
_add("pydantic settings: a validator's cap is edited", _PYD, "", ("min(v, 8.0)", "min(v, 1.0)"), environ={"APP_NET__GAIN": "3"})
_add("pydantic settings: a capped value grows above its cap", _PYD, environ={"APP_NET__GAIN": "9"}, env={"APP_NET__GAIN": "90"}, harmless=True)
_add("pydantic settings: another user", _PYD, environ={"APP_USER": "me"}, env={"APP_USER": "you"}, harmless=True)
_add("pydantic: model_copy with an update", _PYD, "model.cfg = model.cfg.model_copy(update={'net': app.Net(gain=1.25)})")
_add("pydantic: model_construct goes past the validator", _PYD, "model.cfg.net = app.Net.model_construct(gain=9.0)", environ={"APP_NET__GAIN": "9"})
_REG = """
from registry import build
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.act = build('act', kind='soft')
    def forward(self, x):
        return self.act(self.lin(x))
--- registry.py
import importlib, pkgutil
TABLE = {}
def register(name):
    def wrap(cls):
        TABLE[name] = cls
        return cls
    return wrap
def build(group, kind):
    package = importlib.import_module('blocks')
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda i: i.name):
        importlib.import_module('blocks.' + info.name)
    return TABLE[group, kind]()
--- blocks/__init__.py
--- blocks/base.py
from registry import register
@register(('act', 'soft'))
class Soft(nn.Module):
    slope = 0.1
    def forward(self, x):
        return F.leaky_relu(x, self.slope)
"""
_add("a registered block's class attribute is edited", _REG, "", ("slope = 0.1", "slope = 0.2"))
_add("a new file of the package registers the same name", _REG, added="--- blocks/custom.py\nfrom registry import register\n@register(('act', 'soft'))\nclass Mine(nn.Module):\n    def forward(self, x):\n        return F.softplus(x)\n")
_add("a new file of the package registers another name", _REG, added="--- blocks/custom.py\nfrom registry import register\n@register(('act', 'hard'))\nclass Mine(nn.Module):\n    def forward(self, x):\n        return F.softplus(x)\n", harmless=True)
_add("a file that sorts earlier registers the name, and the old one wins", _REG, added="--- blocks/abc.py\nfrom registry import register\n@register(('act', 'soft'))\nclass Mine(nn.Module):\n    def forward(self, x):\n        return F.softplus(x)\n", harmless=True)
_ENTRY = _model("POST(self.lin(x))", "pass", """
     import importlib.metadata as m, sys, os
     sys.path.insert(0, os.path.abspath('plugins'))
     POST = {e.name: e for e in m.entry_points(group='app.post')}['post'].load()
     """) + """
--- plugins/postlib.py
def soft(x):
    return x.softmax(-1)
def sig(x):
    return x.sigmoid()
--- plugins/postlib-1.0.dist-info/METADATA
Metadata-Version: 2.1
Name: postlib
Version: 1.0
--- plugins/postlib-1.0.dist-info/entry_points.txt
[app.post]
post = postlib:soft
"""
_add("an entry point leads to another function", _ENTRY, "", ("postlib:soft", "postlib:sig"))
_add("a plugin's function is edited", _ENTRY, "", ("x.softmax(-1)", "x.softmax(0)"))
_add("a plugin's version is another", _ENTRY, "", ("Version: 1.0", "Version: 1.1"), harmless=True)
_add("a plugin has another entry point", _ENTRY, "", ("post = postlib:soft", "post = postlib:soft\nother = postlib:sig"), harmless=True)
_JSON = _model("sum(w * op(self.lin(x)) for w, op in STEPS)", "pass", """
     import json, operator
     OPS = {'relu': F.relu, 'tanh': torch.tanh, 'sin': torch.sin}
     STEPS = [(s['w'], OPS[s['op']]) for s in json.load(open('steps.json'))['steps'] if s.get('enabled', True)]
     """) + '--- steps.json\n{"steps": [{"op": "relu", "w": 2}, {"op": "tanh", "w": 0.5}], "author": "a"}\n'
_add("a step of a JSON pipeline is disabled", _JSON, "", ('"w": 0.5}', '"w": 0.5, "enabled": false}'))
_add("a weight of a JSON pipeline is a float now", _JSON, "", ('"w": 2}', '"w": 2.5}'))
_add("the steps of a JSON pipeline are in another order", _JSON, "", ('{"op": "relu", "w": 2}, {"op": "tanh", "w": 0.5}', '{"op": "tanh", "w": 0.5}, {"op": "relu", "w": 2}'))
_add("an operation of a JSON pipeline is another", _JSON, "", ('"op": "tanh"', '"op": "sin"'))
_add("the author of a JSON pipeline is another", _JSON, "", ('"author": "a"', '"author": "b"'), harmless=True)
_add("a step of a JSON pipeline is added, but disabled", _JSON, "", ('0.5}]', '0.5}, {"op": "sin", "w": 4, "enabled": false}]'), harmless=True)
_add("a JSON number is NaN", _JSON, "", ('"w": 0.5', '"w": NaN'))
_add("a JSON number is an infinity", _JSON, "", ('"w": 0.5', '"w": Infinity'))
_add("a JSON number has one more digit than a float32", _model("(self.lin(x).double() * W).double()", "pass", "import json\nW = json.load(open('w.json'))") + "--- w.json\n0.30000000000000001\n", "", ("0.30000000000000001", "0.30000000000000004"))
_add("a JSON zero gets a sign", _model("torch.copysign(self.lin(x), torch.full_like(x, W))", "pass", "import json\nW = json.load(open('w.json'))") + "--- w.json\n0.0\n", "", ("0.0", "-0.0"))
_ENUM = _model("self.lin(x).abs().pow(float(POOL.value)).mean(-1) if POOL is not Pool.MAX else self.lin(x).amax(-1)", "pass", """
     import enum, os
     class Pool(enum.Enum):
         MEAN = 1
         SQUARE = 2
         MAX = 'max'
         AVERAGE = 1
     POOL = Pool[os.environ.get('POOL', 'MEAN')]
     """)
_add("an enum's member is chosen by the environment", _ENUM, env={"POOL": "SQUARE"})
_add("an enum's member is chosen by the environment: another branch", _ENUM, env={"POOL": "MAX"})
_add("an enum's alias is chosen by the environment", _ENUM, env={"POOL": "AVERAGE"}, harmless=True)
_add("an enum's value is edited", _ENUM, "", ("MEAN = 1", "MEAN = 3"))
_add("an enum with auto() gets a member in front",
     _model("self.lin(x) * Level.MID.value", "pass", "import enum\nclass Level(enum.IntEnum):\n    LOW = enum.auto()\n    MID = enum.auto()\n"), "", ("    LOW = ", "    NONE = enum.auto()\n    LOW = "))
_add("a Flag of features gets another bit",
     _model("y = self.lin(x)\nif Features.RELU in ON:\n    y = y.relu()\nif Features.NORM in ON:\n    y = F.normalize(y)\nreturn y", "pass", "import enum\nclass Features(enum.Flag):\n    RELU = 1\n    NORM = 2\nON = Features.RELU\n"),
     "app.ON |= app.Features.NORM")
_OMEGA = _model("self.lin(x) * self.cfg.model.scale + self.cfg.model.shift", "self.cfg = Conf.load('c.yaml')", """
     import yaml, re
     class Conf(dict):
         root = None
         def __getattr__(self, name):
             value = self[name]
             if isinstance(value, str) and (m := re.fullmatch(r'[$][{](.+)[}]', value)):
                 value = self.root
                 for part in m[1].split('.'):
                     value = getattr(value, part)
             return value
         @classmethod
         def load(cls, path):
             def wrap(v):
                 return cls({k: wrap(w) for k, w in v.items()}) if isinstance(v, dict) else v
             Conf.root = wrap(yaml.safe_load(open(path)))
             return Conf.root
     """) + "--- c.yaml\ndata:\n  std: 2.0\n  mean: 0.5\nmodel:\n  scale: ${data.std}\n  shift: ${data.mean}\n"
_add("an interpolated value of a configuration is edited at its source", _OMEGA, "", ("std: 2.0", "std: 3.0"))
_add("an interpolation leads to another key", _OMEGA, "", ("shift: ${data.mean}", "shift: ${data.std}"))
_add("an interpolation becomes its value", _OMEGA, "", ("shift: ${data.mean}", "shift: 0.5"), harmless=True)
_add("an override in dot notation is applied", _OMEGA, "model.cfg['data']['mean'] = 0.75")
_DC = _model("y = self.lin(x)\nfor w in self.cfg.widths:\n    y = y * w\nreturn y / self.cfg.total", "self.cfg = Cfg(**json.load(open('cfg.json')))", """
     import dataclasses, json
     @dataclasses.dataclass(frozen=True)
     class Cfg:
         widths: tuple = (1.0, 2.0)
         norm: float = 1.0
         total: float = dataclasses.field(init=False)
         def __post_init__(self):
             object.__setattr__(self, 'total', self.norm * len(self.widths))
     """) + '--- cfg.json\n{"norm": 4.0}\n'
_add("__post_init__ of a frozen dataclass is edited", _DC, "", ("self.norm * len(self.widths)", "self.norm + len(self.widths)"))
_add("a field of a frozen dataclass is in the JSON file now", _DC, "", ('"norm": 4.0', '"norm": 4.0, "widths": [2.0, 1.0]'))
_add("dataclasses.replace computes derived fields again", _DC, "import dataclasses\nmodel.cfg = dataclasses.replace(model.cfg, norm=8.0)")
_add("the JSON file has the dataclass's default", _DC, "", ('"norm": 4.0', '"norm": 4.0, "widths": [1.0, 2.0]'), harmless=True)
_add("a feature flag service's answer is cached in a file",
     _model("self.lin(x).relu() if FLAGS.get('relu') else self.lin(x)", "pass", "import json, pathlib\np = pathlib.Path('flags.json')\nFLAGS = json.loads(p.read_text()) if p.exists() else {}\n"), added='--- flags.json\n{"relu": true}\n')
_add("the profile of a deployment chooses a section",
     _model("self.lin(x) * C[os.environ['STAGE']]['gain']", "pass", "import os, json\nC = json.load(open('c.json'))") + '--- c.json\n{"dev": {"gain": 1.5}, "prod": {"gain": 2.5}}\n', environ={"STAGE": "dev"}, env={"STAGE": "prod"})
_add("the section of another profile is edited",
     _model("self.lin(x) * C[os.environ['STAGE']]['gain']", "pass", "import os, json\nC = json.load(open('c.json'))") + '--- c.json\n{"dev": {"gain": 1.5}, "prod": {"gain": 2.5}}\n', "", ('"prod": {"gain": 2.5}', '"prod": {"gain": 2.75}'), environ={"STAGE": "dev"}, harmless=True)
_add("two layers of ChainMap settings: the upper one gets the key",
     _model("self.lin(x) - CFG['bias']", "pass", "import collections\nUSER, SYSTEM = {}, {'bias': 1.0}\nCFG = collections.ChainMap(USER, SYSTEM)\n"), "app.USER['bias'] = 2.0")
_add("a MappingProxyType over a dict that is edited",
     _model("self.lin(x) - CFG['bias']", "pass", "import types\nOWN = {'bias': 1.0}\nCFG = types.MappingProxyType(OWN)\n"), "app.OWN['bias'] = 2.0")

# 2. Data that a model reads: vocabularies, tables, pickles, checkpoints.

_SAVE = "import numpy as np, torch, pickle\n"
_NPY = _model("self.lin(x) * self.table", "import numpy as np\nself.table = torch.from_numpy(np.load('table.npy'))")
_add("a table in a .npy file has another number", _NPY, first=_SAVE + "np.save('table.npy', np.array([1, 2, 3, 4], 'f4'))", second=_SAVE + "np.save('table.npy', np.array([1, 2, 3, 5], 'f4'))")
_add("a table in a .npy file is float64", _NPY, first=_SAVE + "np.save('table.npy', np.array([1, 2, 3, 4], 'f4'))", second=_SAVE + "np.save('table.npy', np.array([1, 2, 3, 4], 'f8'))")
_add("a table in a .npy file has a row's shape", _NPY, first=_SAVE + "np.save('table.npy', np.array([1, 2, 3, 4], 'f4'))", second=_SAVE + "np.save('table.npy', np.array([[1, 2, 3, 4]], 'f4'))")
_add("a table in a .npy file is integers", _NPY, first=_SAVE + "np.save('table.npy', np.array([1, 2, 3, 4], 'f4'))", second=_SAVE + "np.save('table.npy', np.array([1, 2, 3, 4], 'i4'))")
_add("a table in a .npy file is written again, with the same numbers", _NPY, first=_SAVE + "np.save('table.npy', np.array([1, 2, 3, 4], 'f4'))", second=_SAVE + "np.save('table.npy', np.arange(1, 5).astype('f4'))", harmless=True)
_BIG = _model("self.lin(x) + TABLE.t()[:4].sum(1)", "pass", "import numpy as np\nTABLE = torch.from_numpy(np.load('t.npy', mmap_mode='c'))")
_add("the last number of a big memory-mapped table", _BIG, first=_SAVE + "np.save('t.npy', np.zeros((5000, 4), 'f4'))", second=_SAVE + "t = np.zeros((5000, 4), 'f4')\nt[-1, -1] = 1\nnp.save('t.npy', t)")
_add("a memory-mapped table is written through another handle",
     _model("self.lin(x) + TABLE.sum(0)", "pass", "import numpy as np\nTABLE = torch.from_numpy(np.load('t.npy', mmap_mode='r+'))"), "import numpy as np\nn = np.load('t.npy', mmap_mode='r+')\nn[0] = 7\nn.flush()", first=_SAVE + "np.save('t.npy', np.zeros((50, 4), 'f4'))")
_add("a NumPy array that shares memory with a constant is changed",
     _model("self.lin(x) + self.table", "self.raw = np.zeros(4, 'f4')\nself.table = torch.from_numpy(self.raw)", "import numpy as np"), "model.raw[2] = 1")
_PT = _model("self.lin(x)[:, self.order] * self.gain", "d = torch.load('t.pt')\nself.order = d['order']\nself.gain = d.get('gain', 1.0)")
_add("an order in a .pt file is another", _PT, first=_SAVE + "torch.save({'order': torch.tensor([0, 1, 2, 3])}, 't.pt')", second=_SAVE + "torch.save({'order': torch.tensor([3, 1, 2, 0])}, 't.pt')")
_add("a .pt file has a gain now", _PT, first=_SAVE + "torch.save({'order': torch.tensor([0, 1, 2, 3])}, 't.pt')", second=_SAVE + "torch.save({'order': torch.tensor([0, 1, 2, 3]), 'gain': 2.0}, 't.pt')")
_add("a gain in a .pt file is a tensor now", _PT, first=_SAVE + "torch.save({'order': torch.tensor([0, 1, 2, 3]), 'gain': 2.0}, 't.pt')", second=_SAVE + "torch.save({'order': torch.tensor([0, 1, 2, 3]), 'gain': torch.tensor([2.0], dtype=torch.double)}, 't.pt')")
_add("a .pt file is in the old format, and has an epoch", _PT, first=_SAVE + "torch.save({'order': torch.tensor([0, 1, 3, 2])}, 't.pt')", second=_SAVE + "torch.save({'order': torch.tensor([0, 1, 3, 2]), 'epoch': 3}, 't.pt', _use_new_zipfile_serialization=False)", harmless=True)
_VOCAB = _model("y = self.emb(torch.tensor([VOCAB[t] for t in '<s> a b'.split()]))\nreturn self.lin(x) + y", "self.emb = nn.Embedding(8, 4)", """
     VOCAB = {line.rstrip(): i for i, line in enumerate(open('vocab.txt', encoding='utf8'))}
     """) + "--- vocab.txt\n<pad>\n<s>\na\nb\nc\n"
_add("two words of a vocabulary change their places", _VOCAB, "", ("a\nb\nc", "b\na\nc"))
_add("a word is inserted into a vocabulary", _VOCAB, "", ("<s>\na", "<s>\n<mask>\na"))
_add("a word is appended to a vocabulary", _VOCAB, "", ("b\nc", "b\nc\nd"), harmless=True)
_add("a vocabulary is read with a case that folds", _VOCAB, "", ("line.rstrip(): i", "line.rstrip().lower(): i"), ("a\nb\nc", "a\nb\nB"))
_CSV = _model("y = x\nfor r in ROWS:\n    y = y + float(r['w']) * x.roll(int(r['shift']), 1)\nreturn self.lin(y)", "pass", "import csv\nROWS = [*csv.DictReader(open('taps.csv'))]") + "--- taps.csv\nshift,w,note\n1,0.5,a\n2,0.25,b\n"
_add("a shift in a CSV file is another", _CSV, "", ("1,0.5", "3,0.5"))
_add("a row is added to a CSV file", _CSV, "", ("2,0.25,b", "2,0.25,b\n3,0.1,c"))
_add("the columns of a CSV file change their names", _CSV, "", ("shift,w,note", "shift,note,w"), ("0.5,a", "0.5,4"), ("0.25,b", "0.25,5"))
_add("the notes of a CSV file are edited", _CSV, "", ("0.5,a", "0.5,first"), harmless=True)
_add("a CSV file has its columns in another order", _CSV, "", ("shift,w,note\n1,0.5,a\n2,0.25,b", "note,w,shift\na,0.5,1\nb,0.25,2"), harmless=True)
_add("a CSV file writes a number with more zeros", _CSV, "", ("1,0.5,a", "01,0.500,a"), harmless=True)
_PKL = _model("self.lin((x - S.mean) / S.std)", "pass", "import pickle\nfrom scaler import Scaler\nS = pickle.load(open('s.pkl', 'rb'))") + """
--- scaler.py
class Scaler:
    def __init__(self, mean, std):
        self.mean, self.raw = mean, std
    @property
    def std(self):
        return self.raw + 1e-8
"""
_MAKE_PKL = _SAVE + "from scaler import Scaler\npickle.dump(Scaler({}, {}), open('s.pkl', 'wb'))\n"
_add("a pickled scaler's mean is another", _PKL, first=_MAKE_PKL.format(1.0, 2.0), second=_MAKE_PKL.format(1.5, 2.0))
_add("a property of a pickled object's class is edited", _PKL, "", ("1e-8", "1e-3"), first=_MAKE_PKL.format(1.0, 2.0))
_add("a pickled scaler is written with another protocol", _PKL, first=_MAKE_PKL.format(1.0, 2.0), second=_MAKE_PKL.format(1.0, 2.0).replace("'wb')", "'wb'), 2"), harmless=True)
_add("a pickled scaler's class gets __setstate__", _PKL, "", ("    @property", "    def __setstate__(self, d):\n        self.__dict__.update(d, mean=0.0)\n    @property"), first=_MAKE_PKL.format(1.0, 2.0))
_CLASSES = _model("y = self.lin(x)\nreturn {n: y[:, i] for i, n in enumerate(CLASSES)}", "pass", "CLASSES = open('classes.txt').read().split()") + "--- classes.txt\ncat dog bird fish\n"
_add("a class of a detector has another name", _CLASSES, "", ("dog", "hound"))
_add("the classes of a detector are in another order", _CLASSES, "", ("cat dog", "dog cat"))
_add("a class of a detector is removed", _CLASSES, "", (" fish", ""))
_add("the classes of a detector are on lines of their own", _CLASSES, "", ("cat dog bird fish", "cat\ndog\nbird\nfish"), harmless=True)
_TOK = _model("ids = torch.tensor(encode('hello world', TABLE))\nreturn self.lin(x) + self.emb(ids).mean(0)", "self.emb = nn.Embedding(300, 4)", "from tok import encode\nTABLE = [tuple(l.split()) for l in open('merges.txt') if l.strip()]") + """
--- tok.py
def encode(text, merges):
    parts = [*text]
    for i, (a, b) in enumerate(merges):
        j = 0
        while j < len(parts) - 1:
            if (parts[j], parts[j + 1]) == (a, b):
                parts[j:j + 2] = [a + b]
            j += 1
    return [sum(map(ord, p)) % 300 for p in parts]
--- merges.txt
l l
h e
"""
_add("a BPE merge is appended", _TOK, "", ("h e", "h e\nhe ll"))
_add("the BPE's hash is edited", _TOK, "", ("sum(map(ord, p)) % 300", "(sum(map(ord, p)) + 1) % 300"))
_add("two BPE merges that do not touch each other change places", _TOK, "", ("l l\nh e", "h e\nl l"), harmless=True)
_add("a checkpoint is loaded whose keys are renamed by a table of prefixes",
     _model("self.b(self.a(x))", "self.a = nn.Linear(4, 4)\nself.b = nn.Linear(4, 4)\nself.gain = 1", "RENAME = {'old.': 'a.'}\ndef load(m, sd):\n    m.load_state_dict({next((n + k[len(o):] for o, n in RENAME.items() if k.startswith(o)), k): v for k, v in sd.items()}, strict=False)"),
     "sd = {'old.weight': torch.eye(4), 'b.weight': torch.ones(4, 4)}\napp.load(model, sd)", harmless=True)
_add("a checkpoint's extra state is loaded, which forward uses",
     _model("self.lin(x) * self.temperature", "self.temperature = 1.5", "", "def get_extra_state(self):\n    return {'t': self.temperature}\ndef set_extra_state(self, s):\n    self.temperature = s['t']\n"),
     "sd = model.state_dict()\nsd['_extra_state'] = {'t': 2.5}\nmodel.load_state_dict(sd)")
_add("a checkpoint is loaded with assign=True in another dtype",
     _model("F.linear(x, self.lin.weight.float()) + 1"), "model.load_state_dict({k: v.bfloat16() for k, v in model.state_dict().items()}, assign=True)")
_add("a checkpoint is loaded with assign=True in the same dtype",
     _model("F.linear(x, self.lin.weight.float()) + 1"), "model.load_state_dict({k: v * 2 for k, v in model.state_dict().items()}, assign=True)\nmodel.requires_grad_(True)", harmless=True)
_add("a load hook sets a flag when old keys are found",
     _model("self.lin(x).relu() if self.legacy else self.lin(x)", "self.legacy = False\nself._register_load_state_dict_pre_hook(self._pre)", "", "def _pre(self, sd, prefix, *a):\n    if sd.pop(prefix + 'version', None) is not None:\n        self.legacy = True\n"),
     "model.load_state_dict({**model.state_dict(), 'version': torch.tensor(1)})")
_add("EMA weights replace the weights",
     _model("self.lin(x).relu()"), "ema = torch.optim.swa_utils.AveragedModel(model)\nmodel.lin.weight.data.mul_(3)\nema.update_parameters(model)\nmodel.load_state_dict(ema.module.state_dict())", harmless=True)
_add("the averaged model itself is served",
     _model("self.lin(x).relu()"), "model = torch.optim.swa_utils.AveragedModel(model).eval()")
_add("a buffer of an averaged model's count is used",
     _model("self.net(x) * (2.0 if self.net.use_buffers else 1.0)", "self.net = torch.optim.swa_utils.AveragedModel(nn.Linear(4, 4))"), "model.net.use_buffers = True")
_add("safetensors' metadata has another scale",
     _model("self.lin(x) * float(META['scale'])", "pass", "from safetensors import safe_open\nwith safe_open('m.safetensors', 'pt') as f:\n    META = f.metadata()"),
     first="from safetensors.torch import save_file\nsave_file({'a': torch.ones(1)}, 'm.safetensors', metadata={'scale': '2'})", second="from safetensors.torch import save_file\nsave_file({'a': torch.ones(1)}, 'm.safetensors', metadata={'scale': '3'})")
_add("safetensors' weights are others and the metadata is the same",
     _model("self.lin(x) * float(META['scale'])", "pass", "from safetensors import safe_open\nwith safe_open('m.safetensors', 'pt') as f:\n    META = f.metadata()"), "model.lin.weight.data.fill_(0.5)",
     first="from safetensors.torch import save_file\nsave_file({'a': torch.ones(1)}, 'm.safetensors', metadata={'scale': '2'})", second="from safetensors.torch import save_file\nsave_file({'a': torch.zeros(1)}, 'm.safetensors', metadata={'scale': '2'})", harmless=True)
_add("an sqlite table has another price", _model("self.lin(x) * PRICE", "pass", "import sqlite3\nPRICE = sqlite3.connect('p.db').execute('select max(v) from p').fetchone()[0]"),
     first="import sqlite3\nc = sqlite3.connect('p.db')\nc.execute('drop table if exists p')\nc.execute('create table p (v real)')\nc.execute('insert into p values (2.0)')\nc.commit()", second="import sqlite3\nc = sqlite3.connect('p.db')\nc.execute('insert into p values (3.0)')\nc.commit()")
_add("a gzipped JSON of thresholds", _model("(self.lin(x) > T).float()", "pass", "import gzip, json\nT = torch.tensor(json.loads(gzip.open('t.gz').read()))"),
     first="import gzip\nopen('t.gz', 'wb').write(gzip.compress(b'[0.1, 0.2, 0.3, 0.4]'))", second="import gzip\nopen('t.gz', 'wb').write(gzip.compress(b'[0.1, 0.2, 0.3, 0.5]'))")
_add("a zip of the project: the module in the zip is another", _model("self.lin(x) * packed.GAIN", "pass", "import sys\nsys.path.insert(0, 'lib.zip')\nimport packed"),
     first="import zipfile\nwith zipfile.ZipFile('lib.zip', 'w') as z:\n    z.writestr('packed.py', 'GAIN = 2.0')", second="import zipfile\nwith zipfile.ZipFile('lib.zip', 'w') as z:\n    z.writestr('packed.py', 'GAIN = 3.0')")
_add("struct-packed weights in a binary file become a Python list", _model("self.lin(x) + torch.tensor(W)", "pass", "import struct\nW = struct.unpack('<4f', open('w.bin', 'rb').read())"),
     first="import struct\nopen('w.bin', 'wb').write(struct.pack('<4f', 1, 2, 3, 4))", second="import struct\nopen('w.bin', 'wb').write(struct.pack('>4f', 1, 2, 3, 4))")
_add("package data is read by importlib.resources", _model("self.lin(x) * float(importlib.resources.files('pkg').joinpath('gain.txt').read_text())", "pass", "import importlib.resources") + "--- pkg/__init__.py\n--- pkg/gain.txt\n2.0\n", "", ("gain.txt\n2.0", "gain.txt\n2.25"))
_add("linecache keeps a file that is edited", _model("self.lin(x) * float(linecache.getline('g.txt', 1))", "pass", "import linecache") + "--- g.txt\n2.0\n", "", ("g.txt\n2.0", "g.txt\n4.0"))
_add("a symlink leads to the next release of a table", _model("self.lin(x) * float(open('current').read())") + "--- v1.txt\n2.0\n--- v2.txt\n3.0\n",
     first="import os\nos.path.lexists('current') or os.symlink('v1.txt', 'current')", second="import os\nos.remove('current')\nos.symlink('v2.txt', 'current')")
_add("the newest of the files by glob is read", _model("self.lin(x) * float(open(sorted(glob.glob('gain-*.txt'))[-1]).read())", "pass", "import glob") + "--- gain-1.txt\n2.0\n", added="--- gain-2.txt\n3.0\n")
_add("another file that glob does not find", _model("self.lin(x) * float(open(sorted(glob.glob('gain-*.txt'))[-1]).read())", "pass", "import glob") + "--- gain-1.txt\n2.0\n", added="--- gain2.txt\n3.0\n", harmless=True)

# 3. Surgery on models.

_NET = """
class Block(nn.Module):
    def __init__(self, act=None):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.act = act or nn.ReLU()
    def forward(self, x):
        return self.act(self.lin(x))
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(Block(), Block(nn.Tanh()), Block(nn.Sigmoid()))
        self.norm = nn.LayerNorm(4)
        self.skip = True
    def forward(self, x):
        y = self.norm(self.body(x))
        return x + y if self.skip else y
"""
for _doc, _change in (
    ("an activation is replaced in the middle of a Sequential", "model.body[1].act = torch.nn.GELU()"),
    ("two blocks of a Sequential change places, activations and all", "model.body[0], model.body[2] = model.body[2], model.body[0]"),
    ("only the activations of two blocks change places", "model.body[0].act, model.body[2].act = model.body[2].act, model.body[0].act"),
    ("a Sequential is made of the reversed modules", "model.body = torch.nn.Sequential(*reversed(model.body))"),
    ("the last block is dropped", "del model.body[-1]"),
    ("a block is repeated: the same object twice", "model.body.append(model.body[0])"),
    ("a block becomes Identity", "model.body[1] = torch.nn.Identity()"),
    ("a Dropout is inserted and left in training mode", "model.body.insert(1, torch.nn.Dropout(0.5))"),
    ("a norm's epsilon is replaced on all LayerNorms", "for m in model.modules():\n    if isinstance(m, torch.nn.LayerNorm):\n        m.eps = 1e-3"),
    ("a norm becomes an RMSNorm", "model.norm = torch.nn.RMSNorm(4)"),
    ("a norm loses its weights by elementwise_affine", "model.norm = torch.nn.LayerNorm(4, elementwise_affine=False)"),
    ("a norm's bias is removed", "model.norm = torch.nn.LayerNorm(4, bias=False)"),
    ("the bias of a block's Linear is removed", "model.body[0].lin.bias = None"),
    ("a residual is switched off", "model.skip = False"),
    ("a block's forward is bound to another function", "import types\nmodel.body[1].forward = types.MethodType(lambda self, x: self.lin(self.act(x)), model.body[1])"),
    ("a block's act is a function in place of a module", "del model.body[0].act\nmodel.body[0].act = torch.nn.functional.silu"),
    ("a weight of a block is tied to another block's", "model.body[1].lin.weight = model.body[0].lin.weight"),
    ("a weight of a block is a transposed view of another block's", "model.body[1].lin.weight = torch.nn.Parameter(model.body[0].lin.weight.data.t())"),
    ("a layer is wrapped in a module that scales", "class Scaled(torch.nn.Module):\n    def __init__(self, m):\n        super().__init__()\n        self.m = m\n    def forward(self, x):\n        return self.m(x) * 2\nmodel.body[0].lin = Scaled(model.body[0].lin)"),
    ("a layer's class is replaced", "class Norm(torch.nn.Linear):\n    def forward(self, x):\n        return torch.nn.functional.linear(x, torch.nn.functional.normalize(self.weight), self.bias)\nmodel.body[0].lin.__class__ = Norm"),
    ("a forward hook doubles a block's result", "model.body[0].register_forward_hook(lambda m, a, y: y * 2)"),
    ("a forward pre-hook clamps a block's input", "model.body[0].register_forward_pre_hook(lambda m, a: (a[0].clamp(max=1),))"),
    ("a forward hook of the whole model returns a dict", "model.register_forward_hook(lambda m, a, y: {'out': y})"),
    ("a global forward hook", "torch.nn.modules.module.register_module_forward_hook(lambda m, a, y: y + 1 if isinstance(m, torch.nn.Linear) else None)"),
    ("a global forward pre-hook", "torch.nn.modules.module.register_module_forward_pre_hook(lambda m, a: (a[0] * 2,) if isinstance(m, torch.nn.Tanh) else None)"),
    ("weight_norm on a block", "torch.nn.utils.parametrizations.weight_norm(model.body[0].lin)"),
    ("the old weight_norm on a block, along another dimension", "torch.nn.utils.weight_norm(model.body[0].lin, dim=1)"),
    ("spectral_norm on a block", "torch.nn.utils.parametrizations.spectral_norm(model.body[0].lin)"),
    ("orthogonal on a block", "torch.nn.utils.parametrizations.orthogonal(model.body[0].lin)"),
    ("pruning by magnitude, which is a mask", "import torch.nn.utils.prune as p\np.l1_unstructured(model.body[0].lin, 'weight', 0.5)"),
    ("half a model in bfloat16, with casts around it", "b = model.body[1]\nb.bfloat16()\nb.register_forward_pre_hook(lambda m, a: (a[0].bfloat16(),))\nb.register_forward_hook(lambda m, a, y: y.float())"),
    ("a block runs under autocast", "b = model.body[1]\nold = b.forward\ndef forward(x):\n    with torch.autocast('cpu', torch.bfloat16):\n        return old(x)\nb.forward = forward"),
    ("the whole model is wrapped in double", "model = model.double()\nargs = (args[0].double(),)"),
    ("a quantization that is faked on a weight", "import torch.nn.utils.parametrize as z\nclass Fake(torch.nn.Module):\n    def forward(self, w):\n        return torch.fake_quantize_per_tensor_affine(w, 0.1, 0, -128, 127)\nz.register_parametrization(model.body[0].lin, 'weight', Fake())"),
    ("a parametrization's number", "import torch.nn.utils.parametrize as z\nclass S(torch.nn.Module):\n    def forward(self, w):\n        return w * 2\nz.register_parametrization(model.body[0].lin, 'weight', S(), unsafe=True)"),
    ("a layer is dispatched by FX: tanh becomes relu", "m = torch.fx.symbolic_trace(model)\nfor n in m.graph.nodes:\n    if n.op == 'call_module' and isinstance(m.get_submodule(n.target), torch.nn.Tanh):\n        n.op, n.target = 'call_function', torch.relu\nm.recompile()\nmodel = m.eval()"),
    ("__call__ of a class is overridden", "app.Block.__call__ = lambda self, x: torch.nn.Module.__call__(self, x) * 2"),
    ("Block.forward is monkeypatched", "app.Block.forward = lambda self, x: self.lin(self.act(x))"),
    ("nn.ReLU.forward is monkeypatched", "torch.nn.ReLU.forward = lambda self, x: torch.nn.functional.relu6(x)"),
    ("functional's layer_norm is monkeypatched", "old = torch.nn.functional.layer_norm\ntorch.nn.functional.layer_norm = lambda x, s, w=None, b=None, eps=1e-5: old(x, s, w, b, 1e-2)"),
    ("Tensor.__add__ is monkeypatched", "old = torch.Tensor.__add__\ntorch.Tensor.__add__ = lambda a, b: old(a, b) * 2"),
    ("Sequential.forward is monkeypatched to go backwards", "def forward(self, x):\n    for m in reversed(self):\n        x = m(x)\n    return x\ntorch.nn.Sequential.forward = forward"),
):
    _add(f"surgery: {_doc}", _NET, _change)
for _doc, _change in (
    ("blocks are replaced by equal copies", "import copy\nmodel.body = copy.deepcopy(model.body)"),
    ("all weights are frozen and thawed", "model.requires_grad_(False).requires_grad_(True)"),
    ("a dropout of rate 0 is inserted behind the last block", "model.body[2].act = torch.nn.Sequential(model.body[2].act, torch.nn.Dropout(0.0)).eval()"),
    ("weights are retrained", "with torch.no_grad():\n    for p in model.parameters():\n        p.add_(0.1)"),
    ("a hook that only logs", "seen = []\nmodel.body[0].register_forward_hook(lambda m, a, y: seen.append(y.shape))"),
    ("a pre-hook is put on and removed", "h = model.body[0].register_forward_pre_hook(lambda m, a: (a[0] * 2,))\nh.remove()"),
    ("an unused attribute and a name are set", "model.body[0].name = 'first'\nmodel.version = 3"),
    ("a block is served as another class that inherits", "class Same(app.Block):\n    pass\nmodel.body[0].__class__ = Same"),
    ("an Adam step is made", "o = torch.optim.Adam(model.parameters(), 0.1)\nmodel(args[0]).sum().backward()\no.step()\no.zero_grad()"),
    ("an activation is replaced by a new one of its class", "model.body[1].act = torch.nn.Tanh()"),
    ("weight_norm is put on and removed", "torch.nn.utils.weight_norm(model.body[0].lin)\ntorch.nn.utils.remove_weight_norm(model.body[0].lin)"),
    ("the training flag is toggled on the body", "model.body.train()\nmodel.body.eval()"),
    ("state_dict goes through a file", "torch.save(model.state_dict(), 'sd.pt')\nmodel.load_state_dict(torch.load('sd.pt'))"),
    ("the model goes through a pickle", "import pickle\nmodel = pickle.loads(pickle.dumps(model))"),
):
    _add(f"surgery without effect: {_doc}", _NET, _change, harmless=True)

# 4. Code: inheritance, decorators, functions, generated code, caches.

_MIX = """
from mixins import Scale, Shift
class Model(Scale, Shift, nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
    def forward(self, x):
        return self.post(self.lin(x))
--- mixins.py
class Post:
    def post(self, y):
        return y
class Scale(Post):
    by = 2.0
    def post(self, y):
        return super().post(y * self.by)
class Shift(Post):
    by = 1.0
    def post(self, y):
        return super().post(y + 1)
"""
_add("mixins change their order", _MIX, "", ("(Scale, Shift, nn.Module)", "(Shift, Scale, nn.Module)"))
_add("a mixin's call of super is removed", _MIX, "", ("super().post(y * self.by)", "y * self.by"))
_add("a mixin's attribute is shadowed by the model's", _MIX, "", ("    def __init__(self):\n        super().__init__()\n        self.lin", "    by = 4.0\n    def __init__(self):\n        super().__init__()\n        self.lin"))
_add("a mixin is added that does nothing", _MIX, "", ("class Scale(Post):", "class Log(Post):\n    pass\nclass Scale(Log):"), harmless=True)
_add("a mixin's attribute that is shadowed is edited", _MIX, "", ("by = 1.0", "by = 7.0"), harmless=True)
_add("__bases__ are assigned at run time", _MIX, "app.Model.__bases__ = (app.Shift, app.Scale, torch.nn.Module)")
_add("a class's __init_subclass__ sets a default",
     _model("self.lin(x) * self.gain", "pass", "class Base(nn.Module):\n    def __init_subclass__(cls, gain=2.0, **k):\n        super().__init_subclass__(**k)\n        cls.gain = gain\n", base="Base"), "", ("class Model(Base):", "class Model(Base, gain=3.0):"))
_add("a metaclass collects the fields of a model in their order",
     _model("y = self.lin(x)\nfor name in self.steps:\n    y = getattr(self, name)(y)\nreturn y", "pass", "class Meta(type):\n    def __new__(m, n, b, d):\n        d['steps'] = [k for k in d if k.startswith('step_')]\n        return super().__new__(m, n, b, d)\n",
            "def step_a(self, y):\n    return y * 2\ndef step_b(self, y):\n    return y + 1\n", base="nn.Module, metaclass=Meta"), "", ("def step_a(self, y):\n        return y * 2\n    def step_b(self, y):\n        return y + 1", "def step_b(self, y):\n        return y + 1\n    def step_a(self, y):\n        return y * 2"))
_add("a descriptor validates and clips a value",
     _model("self.lin(x) * self.gain", "self.gain = 5.0", "from fields import Clipped", "gain = Clipped(0, 4)\n") + "--- fields.py\nclass Clipped:\n    def __init__(self, low, high):\n        self.low, self.high = low, high\n    def __set_name__(self, owner, name):\n        self.name = '_' + name\n    def __get__(self, o, c=None):\n        return min(max(o.__dict__[self.name], self.low), self.high)\n    def __set__(self, o, v):\n        o.__dict__[self.name] = v\n",
     "", ("Clipped(0, 4)", "Clipped(0, 3)"))
_add("a cached_property keeps what it computed before the change",
     _model("self.lin(x) * self.total", "self.parts = [1.0, 2.0]\nself.total", "import functools", "@functools.cached_property\ndef total(self):\n    return sum(self.parts)\n"), "model.parts.append(3.0)", harmless=True)
_add("a cached_property is deleted after the change",
     _model("self.lin(x) * self.total", "self.parts = [1.0, 2.0]\nself.total", "import functools", "@functools.cached_property\ndef total(self):\n    return sum(self.parts)\n"), "model.parts.append(3.0)\ndel model.total")
_add("a property becomes a cached_property that forward fills",
     _model("self.parts.append(1.0)\nreturn self.lin(x) * self.total * self.total", "self.parts = [1.0]", "import functools", "@property\ndef total(self):\n    self.parts.append(0.5)\n    return sum(self.parts)\n"), "", ("@property", "@functools.cached_property"))
_add("__slots__ of a helper, with a default of the class",
     _model("self.lin(x) * self.h.by", "self.h = Half()", "class Base:\n    __slots__ = ()\n    by = 2.0\nclass Half(Base):\n    __slots__ = ('name',)\n"), "app.Base.by = 0.5")
_add("a decorator is taken off a helper",
     _model("post(self.lin(x))", "pass", "import functools\ndef twice(f):\n    @functools.wraps(f)\n    def g(*a, **k):\n        return f(f(*a, **k))\n    return g\n@twice\ndef post(y):\n    return y.sin()\n"), "", ("@twice\n", ""))
_add("two decorators change places",
     _model("post(self.lin(x))", "pass", "def double(f):\n    return lambda y: f(y) * 2\ndef inc(f):\n    return lambda y: f(y) + 1\n@double\n@inc\ndef post(y):\n    return y.sin()\n"), "", ("@double\n@inc", "@inc\n@double"))
_add("a decorator with arguments: only its name of a timer changes",
     _model("post(self.lin(x))", "pass", "import time\ndef timed(name):\n    def wrap(f):\n        def g(*a):\n            t = time.perf_counter()\n            y = f(*a)\n            STATS[name] = time.perf_counter() - t\n            return y\n        return g\n    return wrap\nSTATS = {}\n@timed('post')\ndef post(y):\n    return y.sin()\n"), "", ("timed('post')", "timed('tail')"), harmless=True)
_add("wrapt decorates a helper by its setting",
     _model("post(self.lin(x))", "pass", "import wrapt\nON = False\n@wrapt.decorator\ndef relu(f, o, a, k):\n    y = f(*a, **k)\n    return y.relu() if ON else y\n@relu\ndef post(y):\n    return y.sin()\n"), "app.ON = True")
_add("functools.partial's keyword is another",
     _model("self.act(self.lin(x))", "self.act = functools.partial(F.elu, alpha=1.0)", "import functools"), "import functools\nmodel.act = functools.partial(model.act, alpha=0.5)")
_add("a partialmethod's argument is edited",
     _model("self.sharp(self.lin(x))", "pass", "import functools", "def _soft(self, y, t):\n    return (y / t).softmax(-1)\nsharp = functools.partialmethod(_soft, t=0.5)\n"), "", ("t=0.5", "t=0.25"))
_add("lambdas in a loop bind late: the loop's last value",
     _model("y = self.lin(x)\nfor f in FS:\n    y = f(y)\nreturn y", "pass", "FS = []\nfor k in (1, 2, 3):\n    FS.append(lambda y: y + k)\n"), "", ("lambda y: y + k", "lambda y, k=k: y + k"))
_add("a closure's cell is written by nonlocal",
     _model("GET(self.lin(x))", "pass", "def make():\n    by = 2.0\n    def get(y):\n        return y * by\n    def put(v):\n        nonlocal by\n        by = v\n    return get, put\nGET, PUT = make()\n"), "app.PUT(5.0)")
_add("a generator function yields another step",
     _model("y = self.lin(x)\nfor f in steps():\n    y = f(y)\nreturn y", "pass", "def steps():\n    yield torch.sin\n    yield from more()\ndef more():\n    yield torch.tanh\n"), "", ("    yield torch.tanh", "    yield torch.tanh\n    yield torch.abs"))
_add("exec generates a forward from a template",
     _model("POST(self.lin(x))", "pass", "SRC = '''def post(y):\n    for i in range({n}):\n        y = y.sin() * {k!r}\n    return y\n'''\nspace = {}\nexec(SRC.format(n=2, k=0.5), space)\nPOST = space['post']\n"), "", ("n=2", "n=3"))
_add("eval of an expression from a file", _model("eval(EXPR, {'y': self.lin(x), 'torch': torch})", "pass", "EXPR = open('e.txt').read().strip()") + "--- e.txt\ny.relu() + 0.5\n", "", ("+ 0.5", "+ 0.25"))
_add("eval of an expression from a file with other spaces", _model("eval(EXPR, {'y': self.lin(x), 'torch': torch})", "pass", "EXPR = open('e.txt').read().strip()") + "--- e.txt\ny.relu() + 0.5\n", "", ("y.relu() + 0.5", "(y.relu()+.5)"), harmless=True)
_add("a template of jinja2 generates code", _model("POST(self.lin(x))", "pass", "import jinja2\nspace = {'torch': torch}\nexec(jinja2.Template(open('p.j2').read()).render(ops=['sin', 'tanh']), space)\nPOST = space['post']")
     + "--- p.j2\ndef post(y):\n{% for o in ops %}\n    y = torch.{{ o }}(y)\n{% endfor %}\n    return y\n", "", ("torch.{{ o }}(y)", "torch.{{ o }}(y * 2)"))
_add("a module is made from a string by types.ModuleType",
     _model("dyn.post(self.lin(x))", "pass", "import types, sys\ndyn = types.ModuleType('dyn')\nexec('GAIN = 2.0\\ndef post(y):\\n    return y * GAIN', dyn.__dict__)\nsys.modules['dyn'] = dyn\n"), "import dyn\ndyn.GAIN = 4.0")
_add("a module's __getattr__ computes a constant",
     _model("self.lin(x) * consts.GAIN", "pass", "import consts") + "--- consts.py\n_T = {'GAIN': 2.0}\ndef __getattr__(name):\n    try:\n        return _T[name]\n    except KeyError:\n        raise AttributeError(name) from None\n", "import consts\nconsts.GAIN = 3.0")
_add("a module is reloaded after its file was written",
     _model("lib.post(self.lin(x))", "pass", "import lib") + "--- lib.py\ndef post(y):\n    return y * 2\n", "import importlib, lib, os\nopen('lib.py', 'w').write('def post(y):\\n    return y * 3 + 1\\n')\nimportlib.invalidate_caches()\nos.utime('lib.py', (1, 1))\nimportlib.reload(lib)")
_add("a module's file is written but it is not reloaded",
     _model("lib.post(self.lin(x))", "pass", "import lib") + "--- lib.py\ndef post(y):\n    return y * 2\n", "open('lib.py', 'w').write('def post(y):\\n    return y * 3 + 1\\n')", harmless=True, live=False)
_add("an import order decides who patches last",
     _model("self.act(self.lin(x))", "self.act = hooks.ACT", "import hooks\nimport patch_a\nimport patch_b\n") + "--- hooks.py\nACT = torch.relu\n--- patch_a.py\nimport hooks\nhooks.ACT = torch.tanh\n--- patch_b.py\nimport hooks\nhooks.ACT = torch.sigmoid\n",
     "", ("import patch_a\nimport patch_b", "import patch_b\nimport patch_a"))
_add("imports are sorted by a linter, without an effect",
     _model("b.post(a.post(self.lin(x)))", "pass", "import b\nimport a\n") + "--- a.py\ndef post(y):\n    return y * 2\n--- b.py\ndef post(y):\n    return y + 2\n", "", ("import b\nimport a", "import a\nimport b"), harmless=True)
_add("a package has a module of its own name in front of the installed one",
     _model("compat.post(self.lin(x))", "pass", "import sys, os\nsys.path.insert(0, os.path.abspath('vendor'))\nimport compat\n") + "--- vendor/compat.py\ndef post(y):\n    return y * 2\n", added="--- vendor/compat/__init__.py\ndef post(y):\n    return y * 5\n")
_VENDOR = _model("y = self.lin(x)\nreturn layers.swish(y) if layers.VERSION >= (1, 2) else F.silu(y)", "pass", "from vendored import layers") + "--- vendored/__init__.py\n--- vendored/layers.py\n__version__ = '1.1'\nVERSION = tuple(map(int, __version__.split('.')))\ndef swish(y, beta=1.702):\n    return y * torch.sigmoid(beta * y)\n"
_add("a vendored library's version goes to one with its own activation", _VENDOR, "", ("'1.1'", "'1.2'"))
_add("a vendored library's version goes to 1.10, which is greater than 1.2", _VENDOR, "", ("'1.1'", "'1.10'"))
_add("a vendored library's version goes to 1.0", _VENDOR, "", ("'1.1'", "'1.0'"), harmless=True)
_add("a default argument of a vendored library that is not yet used", _VENDOR, "", ("beta=1.702", "beta=1.0"), harmless=True)
_add("keyword defaults are patched",
     _model("post(self.lin(x))", "pass", "def post(y, *, k=2.0):\n    return y * k\n"), "app.post.__kwdefaults__['k'] = 0.25")
_add("**kwargs of the model's configuration have another order, which matters",
     _model("y = self.lin(x)\nfor name, v in self.kw.items():\n    y = getattr(y, name)(v)\nreturn y", "self.kw = dict(mul=2.0, add=1.0)"), "model.kw = dict(add=1.0, mul=2.0)")
_add("lru_cache keeps a table by its size; the table's function is edited",
     _model("self.lin(x) + table(x.shape[1])", "pass", "import functools\n@functools.lru_cache(None)\ndef table(n):\n    return torch.arange(n) * 0.5\n"), "", ("* 0.5", "* 0.75"))
_add("lru_cache was filled with a larger table before",
     _model("self.lin(x) + table()[:4]", "pass", "import functools\nN = 4\n@functools.lru_cache(None)\ndef table():\n    return torch.linspace(0, 1, N)\n"), "app.table.cache_clear()\napp.N = 8\napp.table()")
_add("lru_cache was filled before the model is compiled, with the same table",
     _model("self.lin(x) + table()[:4]", "pass", "import functools\nN = 4\n@functools.lru_cache(None)\ndef table():\n    return torch.tensor([1.0, 2.0, 3.0, 4.0])\n"), first="import app\napp.table()", change="app.table.cache_clear()\napp.table()", harmless=True)
_add("a global counter is used for layer numbers",
     _model("self.lin(x) * self.blocks[-1].scale", "self.blocks = [Block(), Block()]", "COUNT = 0\nclass Block:\n    def __init__(self):\n        global COUNT\n        COUNT += 1\n        self.scale = 1 / COUNT\n"), "model = app.Model().eval()", first="")
_add("a layer's number comes from itertools.count",
     _model("self.lin(x) * self.no", "self.no = next(NO)", "import itertools\nNO = itertools.count(1)\n"), "model = app.Model().eval()")
_add("a context variable of a request's precision",
     _model("y = self.lin(x)\nreturn y.half().float() if LOW.get() else y", "pass", "import contextvars\nLOW = contextvars.ContextVar('low', default=False)\n"), "app.LOW.set(True)")
_add("a context variable's change in a copied context does not count",
     _model("y = self.lin(x)\nreturn y.half().float() if LOW.get() else y", "pass", "import contextvars\nLOW = contextvars.ContextVar('low', default=False)\n"), "import contextvars\ncontextvars.copy_context().run(app.LOW.set, True)", harmless=True)
_add("a helper is in a thread pool: its function is another",
     _model("next(POOL.map(post, [self.lin(x)]))", "pass", "from concurrent.futures import ThreadPoolExecutor\nPOOL = ThreadPoolExecutor(1)\nK = 2.0\ndef post(y):\n    return K\n").replace("return next(POOL", "return self.lin(x) * next(POOL"), "app.K = 3.0")
_add("an async helper gives a scale",
     _model("self.lin(x) * asyncio.run(fetch())", "pass", "import asyncio\nK = 2.0\nasync def fetch():\n    await asyncio.sleep(0)\n    return K\n"), "app.K = 3.0")
_add("a warning filter turns a fallback on",
     _model("try:\n    warnings.warn('slow')\n    k = 2.0\nexcept UserWarning:\n    k = 3.0\nreturn self.lin(x) * k", "pass", "import warnings\n"), "import warnings\nwarnings.simplefilter('error', UserWarning)")
_add("assertions: a check that raises chooses the fallback",
     _model("try:\n    check(x.shape[0])\n    return self.lin(x)\nexcept ValueError:\n    return self.lin(x[:2])", "pass", "MAX = 8\ndef check(n):\n    if n > MAX:\n        raise ValueError(n)\n"), "app.MAX = 2")
_add("the locale's decimal point is used to parse a number",
     _model("self.lin(x) * float(TEXT.replace(POINT, '.').replace(',', ''))", "pass", "TEXT = '1,5'\nPOINT = '.'\n"), "app.POINT = ','")
_add("match statement: a pattern of a config's class",
     _model("match self.cfg:\n    case Linear(k=k):\n        return self.lin(x) * k\n    case {'k': k, **rest}:\n        return self.lin(x) + k + len(rest)\n    case _:\n        return self.lin(x)", "self.cfg = Linear(2.0)", "import dataclasses\n@dataclasses.dataclass\nclass Linear:\n    k: float\n"), "model.cfg = {'k': 2.0, 'j': 1}")
_add("singledispatchmethod gets an implementation for a subclass",
     _model("self.post(self.cfg, self.lin(x))", "self.cfg = B()", "import functools\nclass A: ...\nclass B(A): ...\n", "@functools.singledispatchmethod\ndef post(self, c, y):\n    return y\n@post.register\ndef _(self, c: A, y):\n    return y * 2\n"), "app.Model.post.register(app.B)(lambda self, c, y: y * 4)")
_add("operator overloading of a config's unit",
     _model("self.lin(x) * (Db(6) + Db(3)).gain", "pass", "class Db:\n    def __init__(self, v):\n        self.v = v\n    def __add__(self, o):\n        return Db(self.v + o.v)\n    @property\n    def gain(self):\n        return 10 ** (self.v / 20)\n"), "", ("self.v / 20", "self.v / 10"))
_add("a weakref.finalize and an __del__ count objects",
     _model("self.lin(x) * Node.alive", "self.nodes = [Node(), Node()]", "class Node:\n    alive = 0\n    def __init__(self):\n        Node.alive += 1\n    def __del__(self):\n        Node.alive -= 1\n"), "model.nodes.pop()")
_add("heapq orders steps by their priority",
     _model("y = self.lin(x)\nfor _, name in sorted(self.q):\n    y = getattr(torch, name)(y)\nreturn y", "self.q = [(2, 'tanh'), (1, 'sin')]"), "model.q[0] = (0, 'tanh')")
_add("a bytes table decides on signs",
     _model("y = self.lin(x)\nreturn torch.stack([-c if s else c for c, s in zip(y.unbind(-1), self.signs)], -1)", "self.signs = bytearray(b'\\0\\1\\0\\1')"), "model.signs[0] = 1")
_add("fractions and decimals become a float",
     _model("self.lin(x) * float(self.k) + float(D)", "self.k = fractions.Fraction(1, 3)", "import fractions, decimals\nD = decimals.D\n") + "--- decimals.py\nimport decimal\ndecimal.getcontext().prec = 6\nD = decimal.Decimal(1) / 3\n", "", ("prec = 6", "prec = 5"))
_add("a regex maps layer names to gains",
     _model("for pattern, k in GAINS:\n    if re.fullmatch(pattern, 'lin'):\n        return self.lin(x) * k\nreturn self.lin(x)", "pass", "import re\nGAINS = [(r'out.*', 4.0), (r'l.n', 2.0)]\n"), "app.GAINS.insert(0, (r'li.', 3.0))")

# 5. Architectures: attention, positions, masks, vision, audio, graphs, recommendation, diffusion.

_ATT = """
import math
class Attention(nn.Module):
    def __init__(self, dim=4, heads=2, impl='sdpa', causal=False, scale=None):
        super().__init__()
        self.heads, self.impl, self.causal, self.scale = heads, impl, causal, scale
        self.qkv = nn.Linear(dim, 3 * dim)
        self.window = None
        self.cap = None
    def forward(self, x):
        n, d = x.shape
        q, k, v = self.qkv(x).view(n, 3, self.heads, d // self.heads).permute(1, 2, 0, 3).unbind(0)
        bias = None
        if self.window is not None:
            i = torch.arange(n)
            bias = ((i[:, None] - i).abs() > self.window).float() * -1e4
        if self.impl == 'sdpa':
            y = F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=bias, is_causal=self.causal and bias is None, scale=self.scale)[0]
        else:
            s = q @ k.mT * (self.scale or 1 / math.sqrt(d // self.heads))
            s = s if self.cap is None else self.cap * torch.tanh(s / self.cap)
            y = (s if bias is None else s + bias).softmax(-1) @ v
        return y.transpose(0, 1).reshape(n, d)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.att = Attention()
    def forward(self, x):
        return x + self.att(x)
"""
for _doc, _change in (
    ("is causal", "model.att.causal = True"),
    ("is eager", "model.att.impl = 'eager'"),
    ("has another number of heads with the same weights", "model.att.heads = 4"),
    ("has one head", "model.att.heads = 1"),
    ("has a scale of its own", "model.att.scale = 0.125"),
    ("has a scale of its own, which is integer 1", "model.att.scale = 1"),
    ("has a window", "model.att.window = 1"),
    ("is eager with a soft cap", "model.att.impl, model.att.cap = 'eager', 30.0"),
    ("runs with the math kernel only", "old = app.F.scaled_dot_product_attention\ndef sdpa(*a, **k):\n    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):\n        return old(*a, **k)\napp.F.scaled_dot_product_attention = sdpa"),
):
    _add(f"attention: it {_doc}", _ATT, _change)
_add("attention: the soft cap of an eager one is set while it is not eager", _ATT, "model.att.cap = 30.0", harmless=True)
_add("attention: a scale of its own, which is the default's value", _ATT, "model.att.impl = 'eager'\nmodel.att.scale = 1 / 2 ** 0.5", make="import app\nmodel = app.Model().eval()\nmodel.att.impl = 'eager'", harmless=True)
_add("attention: a window that is an integer becomes a float of the same value", _ATT, "model.att.window = 1.0", make="import app\nmodel = app.Model().eval()\nmodel.att.window = 1")
_add("attention: the fill of masked places is edited", _ATT, "", ("-1e4", "float('-inf')"), make="import app\nmodel = app.Model().eval()\nmodel.att.window = 1")
_MHA = _model("self.att(x, x, x, need_weights=self.weights, average_attn_weights=self.average)", "self.att = nn.MultiheadAttention(4, 2)\nself.weights, self.average = True, True")
for _doc, _change in (("without weights", "model.weights = False"), ("without an average of heads", "model.average = False"), ("with batch_first", "model.att.batch_first = True\nargs = (args[0][None],)"),
                      ("with add_zero_attn", "model.att.add_zero_attn = True"), ("with another number of heads", "model.att.num_heads, model.att.head_dim = 1, 4"), ("in training mode with dropout", "model.att.dropout = 0.5\nmodel.att.train()"),
                      ("with bias_k", "model.att.bias_k = torch.nn.Parameter(torch.ones(1, 1, 4))\nmodel.att.bias_v = torch.nn.Parameter(torch.ones(1, 1, 4))"), ("with its output's bias removed", "model.att.out_proj.bias = None")):
    _add(f"MultiheadAttention: {_doc}", _MHA, _change)
_add("MultiheadAttention: with dropout in eval mode", _MHA, "model.att.dropout = 0.5", harmless=True)
_ENC = _model("self.enc(x[None], mask=MASK)", "self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True), 2)", "MASK = None")
for _doc, _change in (("with norm_first", "for layer in model.enc.layers:\n    layer.norm_first = True"), ("with GELU", "for layer in model.enc.layers:\n    layer.activation = torch.nn.functional.gelu\n    layer.activation_relu_or_gelu = 2"), ("with one layer", "model.enc.num_layers = 1\ndel model.enc.layers[1]"),
                      ("with a mask", "app.MASK = torch.nn.Transformer.generate_square_subsequent_mask(3)"), ("with a final norm", "model.enc.norm = torch.nn.LayerNorm(4)"), ("with dropout", "model.enc.layers[0].dropout1.train()"),
                      ("with another epsilon", "model.enc.layers[1].norm1.eps = 1e-2"), ("with the same layer twice", "model.enc.layers[1] = model.enc.layers[0]")):
    _add(f"TransformerEncoder: {_doc}", _ENC, _change)
_add("TransformerEncoder: in training mode with rates of 0", _ENC, "for m in model.modules():\n    if isinstance(m, torch.nn.Dropout):\n        m.p = 0.0", harmless=True)
_POS = """
from positions import make
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer('table', make(3, 4), persistent=False)
    def forward(self, x):
        return self.lin(x) + self.table
--- positions.py
import math
BASE = 10000.0
def make(n, d, kind='sin'):
    if kind == 'alibi':
        i = torch.arange(n)
        return -(i[:, None] - torch.arange(d)).abs() * 2.0 ** -torch.arange(1, d + 1)
    f = torch.exp(torch.arange(0, d, 2) * (-math.log(BASE) / d))
    a = torch.arange(n)[:, None] * f
    return torch.cat([a.sin(), a.cos()], -1)
"""
_add("positions: the base of sinusoidal ones is edited", _POS, "", ("10000.0", "10001.0"))
_add("positions: sin and cos change places", _POS, "", ("[a.sin(), a.cos()]", "[a.cos(), a.sin()]"))
_add("positions: ALiBi in place of sinusoidal ones", _POS, "", ("kind='sin'", "kind='alibi'"))
_add("positions: computed in double and rounded, which gives other last bits", _POS, "", ("return torch.cat([a.sin(), a.cos()], -1)", "a = a.double() * (1 + 1e-7)\n    return torch.cat([a.sin(), a.cos()], -1).float()"))
_add("positions: the buffer's value is changed afterwards by one bit", _POS, "model.table.view(torch.int32)[2, 3] ^= 1")
_add("positions: a buffer that is not persistent becomes persistent", _POS, "", (", persistent=False", ""), live=False)
_add("positions: a persistent buffer has other values", _POS.replace(", persistent=False", ""), "", ("10000.0", "100.0"), harmless=True)
_add("positions: the function that is not used is edited", _POS, "", ("2.0 ** -torch", "4.0 ** -torch"), harmless=True)
_add("positions: the buffer is deleted and set as an attribute, with another value", _POS, "t = model.table\ndel model.table\nmodel.table = t + 1")
_ROPE = _model("rotate(self.lin(x), self.cfg)", "self.cfg = dict(theta=100.0, interleaved=False, scaling=None)", """
     def rotate(x, cfg):
         n, d = x.shape
         f = cfg['theta'] ** -(torch.arange(0, d, 2) / d)
         p = torch.arange(n)
         if (s := cfg['scaling']) is not None:
             p = p / s['factor'] if s['type'] == 'linear' else p.clamp(max=s['factor'])
         a = p[:, None] * f
         if cfg['interleaved']:
             u, v = x[:, ::2], x[:, 1::2]
             return torch.stack([u * a.cos() - v * a.sin(), u * a.sin() + v * a.cos()], -1).flatten(1)
         u, v = x.chunk(2, -1)
         return torch.cat([u * a.cos() - v * a.sin(), u * a.sin() + v * a.cos()], -1)
     """)
for _doc, _change in (("another theta", "model.cfg['theta'] = 1000.0"), ("interleaved", "model.cfg['interleaved'] = True"), ("linear scaling", "model.cfg['scaling'] = {'type': 'linear', 'factor': 2}"), ("another kind of scaling", "model.cfg['scaling'] = {'type': 'clip', 'factor': 1}")):
    _add(f"rotary: {_doc}", _ROPE, _change)
_add("rotary: an unknown entry of its settings", _ROPE, "model.cfg['note'] = 'x'", harmless=True)
_DET = """
import itertools, yaml
C = yaml.safe_load(open('det.yaml'))
def anchors(sizes, ratios, stride):
    return torch.tensor([[stride * (i + .5), s * r ** .5, s / r ** .5, k] for i in range(3) for k, (s, r) in enumerate(itertools.product(sizes, ratios))][:4])
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.anchors = anchors(C['sizes'], C['ratios'], C['stride'])
    def forward(self, x):
        y = self.lin(x).sigmoid()
        boxes = (y[:, None] * self.anchors).flatten(0, 1)
        score, index = boxes[:, 0].topk(C['keep'])
        keep = score > C['score']
        return {'boxes': boxes[index], 'keep': keep, 'label': index % len(C['classes'])}
--- det.yaml
sizes: [8, 16]
ratios: [0.5, 2]
stride: 4
keep: 5
score: 0.3
classes: [a, b, c]
"""
for _doc, *_to in (("a size of an anchor", ("[8, 16]", "[8, 24]")), ("the ratios' order", ("[0.5, 2]", "[2, 0.5]")), ("the stride", ("stride: 4", "stride: 8")), ("the number of kept boxes", ("keep: 5", "keep: 4")),
                   ("the score's threshold", ("score: 0.3", "score: 0.35")), ("the number of classes", ("[a, b, c]", "[a, b]")), ("a name of a result", ("'label':", "'labels':"))):
    _add(f"detector: {_doc} is edited", _DET, "", *_to)
_add("detector: the names of classes that are only counted", _DET, "", ("[a, b, c]", "[x, y, z]"), harmless=True)
_add("detector: integer sizes become floats of the same value", _DET, "", ("[8, 16]", "[8.0, 16.0]"), harmless=True)
_CONV = _model("img = x.reshape(1, 1, 3, 4)\nreturn self.head(self.body(F.interpolate(img, scale_factor=2, mode=self.mode, antialias=self.aa)))",
               "self.body = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))\nself.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))\nself.mode, self.aa = 'bilinear', False")
for _doc, _change in (
    ("interpolation is bicubic", "model.mode = 'bicubic'"), ("interpolation has antialias", "model.aa = True"), ("padding's mode is reflect", "model.body[0].padding_mode = 'reflect'"),
    ("a stride is 2", "model.body[0].stride = (2, 2)"), ("a dilation is 2", "model.body[0].dilation = (2, 2)"), ("padding is same", "model.body[0] = torch.nn.Conv2d(1, 4, 2, padding='same', bias=False)"),
    ("max pooling rounds up", "model.body[3] = torch.nn.MaxPool2d(3, 2, ceil_mode=True)"), ("pooling is an average", "model.body[3] = torch.nn.AvgPool2d(2)"), ("pooling averages without the padding", "model.body[3] = torch.nn.AvgPool2d(3, 1, 1, count_include_pad=False)"),
    ("batch norm's eps", "model.body[1].eps = 1e-3"), ("batch norm in training mode", "model.body[1].train()"), ("batch norm without running statistics", "model.body[1].track_running_stats = False\nmodel.body[1].running_mean = model.body[1].running_var = None"),
    ("conv and batch norm are fused", "torch.manual_seed(3)\nmodel.body[0] = torch.nn.utils.fusion.fuse_conv_bn_eval(model.body[0], model.body[1])\nmodel.body[1] = torch.nn.Identity()"),
    ("batch norm is frozen by its weights' constants", "b = model.body[1]\ndef frozen(x):\n    return x * 0.5 + 0.1\nb.forward = frozen"), ("batch norm becomes a group norm", "model.body[1] = torch.nn.GroupNorm(2, 4)"),
    ("ReLU is leaky", "model.body[2] = torch.nn.LeakyReLU(0.01)"), ("flatten starts later", "model.head[1] = torch.nn.Flatten(0)\nmodel.head[2] = torch.nn.Linear(4, 4)"),
    ("the weights are channels_last", "model.to(memory_format=torch.channels_last)"),
):
    _add(f"vision: {_doc}", _CONV, _change)
_add("vision: batch norm's statistics are others", _CONV, "model.body[1].running_mean.fill_(0.3)\nmodel.body[1].num_batches_tracked.fill_(9)", harmless=True)
_add("vision: in-place ReLU behind a batch norm", _CONV, "model.body[2].inplace = True")
_AUD = """
from front import Front
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = Front()
    def forward(self, x):
        return self.front(x.flatten())
--- front.py
N_FFT, HOP, FLOOR = 4, 2, 1e-6
class Front(nn.Module):
    def __init__(self, window='hann'):
        super().__init__()
        self.window = getattr(torch, window + '_window')(N_FFT)
        self.power = 2.0
        self.center = True
    def forward(self, x):
        s = torch.stft(x, N_FFT, HOP, window=self.window, center=self.center, return_complex=True)
        return s.abs().pow(self.power).clamp_min(FLOOR).log10()
"""
for _doc, *_to in (("the hop", ("FLOOR = 4, 2,", "FLOOR = 4, 1,")), ("the floor", ("1e-6", "1e-5")), ("the window", ("window='hann'", "window='hamming'")), ("the power", ("power = 2.0", "power = 1.0")), ("centering", ("center = True", "center = False")), ("the logarithm", (".log10()", ".log2()")), ("the padding", ("center=self.center", "center=self.center, pad_mode='constant'"))):
    _add(f"audio: {_doc} is edited", _AUD, "", *_to)
_add("audio: the window is not periodic", _AUD, "model.front.window = torch.hann_window(4, periodic=False)")
_add("audio: the window is made on another way, with the same values", _AUD, "model.front.window = torch.signal.windows.hann(4, sym=False, dtype=torch.float32)", harmless=True)
_RNN = _model("y, h = self.rnn(x[None], None)\nreturn y", "self.rnn = nn.GRU(4, 4, num_layers=2, batch_first=True)")
_add("recurrent: batch_first is switched", _RNN, "model.rnn.batch_first = False")
_add("recurrent: it is bidirectional", _RNN, "model.rnn = torch.nn.GRU(4, 4, batch_first=True, bidirectional=True).eval()")
_add("recurrent: an LSTM in place of a GRU", _RNN, "model.rnn = torch.nn.LSTM(4, 4, batch_first=True).eval()")
_add("recurrent: the last state is returned", _RNN, "", ("return y", "return h"))
_add("recurrent: relu in place of tanh", _RNN.replace("nn.GRU(4, 4, num", "nn.RNN(4, 4, num"), "model.rnn.mode = 'RNN_RELU'")
_add("recurrent: dropout between layers, in eval mode", _RNN, "model.rnn.dropout = 0.5", harmless=True)
_add("recurrent: the weights of its layers change places", _RNN, "r = model.rnn\nr.weight_ih_l0.data, r.weight_ih_l1.data = r.weight_ih_l1.data.clone(), r.weight_ih_l0.data.clone()", harmless=True)
_add("recurrent: the order of its flat weights is another", _RNN, "model.rnn._flat_weights_names[0], model.rnn._flat_weights_names[4] = model.rnn._flat_weights_names[4], model.rnn._flat_weights_names[0]\nmodel.rnn._init_flat_weights()")
_GNN = _model("m = x[self.src] * self.w[:, None]\nreturn self.lin(torch.zeros_like(x).index_add(0, self.dst, m))", "e = torch.tensor(json.load(open('edges.json')))\nself.src, self.dst = e.t()\nself.w = 1 / torch.bincount(self.dst, minlength=3)[self.dst]", "import json") + "--- edges.json\n[[0, 1], [1, 2], [2, 0]]\n"
_add("graph: an edge leads to another node", _GNN, "", ("[2, 0]", "[2, 1]"))
_add("graph: an edge is added", _GNN, "", ("[2, 0]", "[2, 0], [0, 2]"))
_add("graph: two edges change places", _GNN, "", ("[0, 1], [1, 2]", "[1, 2], [0, 1]"))
_add("graph: the edges' file has other spaces", _GNN, "", ("[0, 1], [1, 2]", "[0,1],\n[1,2]"), harmless=True)
_add("graph: messages are reduced by max", _GNN.replace("torch.zeros_like(x).index_add(0, self.dst, m)", "torch.zeros_like(x).index_reduce(0, self.dst, m, self.how)").replace("        e = torch", "        self.how = 'mean'\n        e = torch"), "model.how = 'amax'")
_REC = _model("ids = (x.long() * self.prime + self.seed) % self.buckets\nreturn self.lin(F.embedding_bag(ids, self.emb.weight, mode=self.mode))", "self.emb = nn.Embedding(10, 4)\nself.prime, self.seed, self.buckets, self.mode = 31, 7, 10, 'mean'")
for _doc, _change in (("the hash's prime", "model.prime = 37"), ("the hash's seed", "model.seed = 8"), ("the number of buckets, with the same table", "model.buckets = 9"), ("the bag's mode", "model.mode = 'sum'"), ("a prime that is beyond 32 bits", "model.prime = 2 ** 33 + 31")):
    _add(f"recommender: {_doc}", _REC, _change)
_add("recommender: padding_idx of a table, which only training uses", _model("self.lin(self.emb(x.long().clamp(max=3)))[..., 0]", "self.emb = nn.Embedding(10, 4)"), "model.emb.padding_idx = 0")
_add("recommender: max_norm of a table", _model("self.lin(self.emb(x.long().clamp(max=3)))[..., 0]", "self.emb = nn.Embedding(10, 4)"), "model.emb.max_norm = 0.5")
_DIFF = """
class Scheduler:
    def __init__(self, steps=10, start=1e-4, end=0.02, kind='linear'):
        self.kind = kind
        b = torch.linspace(start, end, steps) if kind == 'linear' else torch.linspace(start ** .5, end ** .5, steps) ** 2
        self.bars = (1 - b).cumprod(0)
        self.timesteps = list(range(steps))[::-3]
    def step(self, eps, t, x):
        a = self.bars[t]
        return (x - (1 - a).sqrt() * eps) / a.sqrt()
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.sch = Scheduler()
        self.guidance = 1.5
    def forward(self, x):
        for t in self.sch.timesteps:
            eps = self.lin(x)
            eps = eps + self.guidance * (eps - self.lin(torch.zeros_like(x))) if self.guidance > 1 else eps
            x = self.sch.step(eps, t, x)
        return x
"""
for _doc, _change in (("another schedule", "model.sch = app.Scheduler(kind='scaled')"), ("another end of the betas", "model.sch = app.Scheduler(end=0.021)"), ("other time steps", "model.sch.timesteps = model.sch.timesteps[1:]"), ("guidance", "model.guidance = 2.0"), ("no guidance", "model.guidance = 1.0"), ("tables in double", "model.sch.bars = model.sch.bars.double()"), ("a table's entry that is used", "model.sch.bars[9] = 0.5")):
    _add(f"diffusion: {_doc}", _DIFF, _change)
_add("diffusion: the scheduler's name is another", _DIFF, "model.sch.kind = 'linear2'", harmless=True)
_add("diffusion: guidance of 1 and of 0 are both none", _DIFF, "model.guidance = 0.0", make="import app\nmodel = app.Model().eval()\nmodel.guidance = 1.0", harmless=True)
_MOE = _model("y = torch.stack([e(x) for e in self.experts])\ng = self.gate(x)\nif self.topk:\n    v, i = g.topk(self.topk, -1)\n    g = torch.zeros_like(g).scatter(-1, i, v.softmax(-1) if self.renorm else v)\nelse:\n    g = g.softmax(-1)\nreturn torch.einsum(self.eq, y, g)",
              "self.experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])\nself.gate = nn.Linear(4, 3)\nself.topk, self.renorm, self.eq = 2, True, 'end,ne->nd'")
for _doc, _change in (("one expert is chosen", "model.topk = 1"), ("all experts are used", "model.topk = 0"), ("no normalization", "model.renorm = False"), ("two experts change places", "model.experts[0], model.experts[1] = model.experts[1], model.experts[0]\nmodel.experts[0].weight = torch.nn.Parameter(torch.ones(4, 4))\nmodel.experts[1].forward = lambda x: -x"), ("an einsum's output is transposed", "model.eq = 'end,ne->dn'"), ("an einsum keeps a dimension", "model.eq = 'end,ne->ned'"), ("experts share one object", "model.experts[1] = model.experts[0]")):
    _add(f"experts: {_doc}", _MOE, _change)
_add("experts: an einsum has other letters", _MOE, "model.eq = 'kij,ik->ij'", harmless=True)
_add("experts: two whole experts change places, weights and all", _MOE, "model.experts[0], model.experts[1] = model.experts[1], model.experts[0]", harmless=True)
_add("early exit: the number of blocks is in the config", _model("for i, b in enumerate(self.blocks):\n    if i >= self.exit:\n        break\n    x = b(x).relu()\nreturn x", "self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(4)])\nself.exit = 3"), "model.exit = 2")
_add("early exit: beyond the last block", _model("for i, b in enumerate(self.blocks):\n    if i >= self.exit:\n        break\n    x = b(x).relu()\nreturn x", "self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(4)])\nself.exit = 4"), "model.exit = 12", harmless=True)
_ENS = _model("ys = torch.stack([m(x) * w for m, w in zip(self.nets, self.weights)])\nreturn getattr(ys, self.how)(0)", "self.nets = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])\nself.weights = [1.0, 1.0, 1.0]\nself.how = 'mean'")
_add("ensemble: a weight of a member", _ENS, "model.weights[1] = 0.5")
_add("ensemble: zip stops at the shorter list", _ENS, "model.weights.pop()")
_add("ensemble: the median of members", _ENS, "model.how = 'nanmedian'")
_add("ensemble: variance of members", _ENS, "model.how = 'var'")
_add("ensemble: members are retrained with another seed", _ENS, "torch.manual_seed(5)\nfor m in model.nets:\n    m.reset_parameters()", harmless=True)
_LORA = """
class LoRA(nn.Module):
    def __init__(self, base, r=2, alpha=4):
        super().__init__()
        self.base, self.r, self.alpha = base, r, alpha
        self.a = nn.Parameter(torch.ones(r, 4))
        self.b = nn.Parameter(torch.ones(4, r))
        self.merged = False
        self.enabled = True
    def forward(self, x):
        y = self.base(x)
        if self.enabled and not self.merged:
            y = y + (x @ self.a.t() @ self.b.t()) * (self.alpha / self.r)
        return y
    def merge(self):
        self.base.weight.data += self.b @ self.a * (self.alpha / self.r)
        self.merged = True
    def unmerge(self):
        self.base.weight.data -= self.b @ self.a * (self.alpha / self.r)
        self.merged = False
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = LoRA(nn.Linear(4, 4))
    def forward(self, x):
        return self.lin(x)
"""
_add("LoRA: adapters are merged", _LORA, "model.lin.merge()")
_add("LoRA: adapters are merged and unmerged", _LORA, "model.lin.merge()\nmodel.lin.unmerge()", harmless=True)
_add("LoRA: alpha is another", _LORA, "model.lin.alpha = 8")
_add("LoRA: rank and alpha are doubled, but not the weights", _LORA, "model.lin.alpha, model.lin.r = 8, 4", harmless=True)
_add("LoRA: another rank", _LORA, "model.lin.a = torch.nn.Parameter(torch.ones(3, 4))\nmodel.lin.b = torch.nn.Parameter(torch.ones(4, 3))")
_add("LoRA: adapters are disabled", _LORA, "model.lin.enabled = False")
_add("LoRA: a second adapter is loaded into the first's weights", _LORA, "model.lin.a.data.mul_(3)\nmodel.lin.b.data.mul_(0.1)", harmless=True)

# 6. Torch's own settings, generators, dtypes, buffers and numerics.

_LIN = _model("self.lin(x).relu()")
for _doc, _change in (
    ("the default dtype is double when forward makes tables", "torch.set_default_dtype(torch.double)"),
    ("the default device is set to cpu, in so many words", "torch.set_default_device('cpu')"),
):
    _add(f"torch's state: {_doc}", _model("self.lin(x) + torch.ones(4).to(x.dtype).cumsum(0) * torch.linspace(0, 1, 4).to(x.dtype)"), _change, harmless="cpu" in _change, live=False)
_RNG = _model("""
torch.manual_seed(SEED)
r = torch.rand(4)
return self.lin(x) + r
""", "pass", "SEED = 1")
_add("a seed that forward sets is another", _RNG, "app.SEED = 2")
_add("a table of random projections is made with another seed", _model("self.lin(x) @ self.proj", "g = torch.Generator().manual_seed(SEED)\nself.proj = torch.randn(4, 4, generator=g)", "from conf import SEED") + "--- conf.py\nSEED = 1\n", "", ("SEED = 1", "SEED = 2"))
_add("a table of random projections is made with torch's seed", _model("self.lin(x) @ self.proj", "self.proj = torch.randn(4, 4)"), first="torch.manual_seed(1)", second="torch.manual_seed(2)")
_add("a table of random projections is made by NumPy's new generator", _model("self.lin(x) @ self.proj", "self.proj = torch.tensor(np.random.default_rng(SEED).normal(size=(4, 4)), dtype=torch.float32)", "import numpy as np\nSEED = 3"), "", ("SEED = 3", "SEED = 4"))
_add("a table of random projections: the weights are retrained after another seed", _model("self.lin(x) @ self.proj", "g = torch.Generator().manual_seed(1)\nself.proj = torch.randn(4, 4, generator=g)"), first="torch.manual_seed(1)", second="torch.manual_seed(2)", harmless=True)
_add("random.shuffle with a seed permutes the channels", _model("self.lin(x)[:, self.perm]", "r = random.Random(SEED)\nself.perm = [0, 1, 2, 3]\nr.shuffle(self.perm)", "import random\nSEED = 1"), "", ("SEED = 1", "SEED = 5"))
_add("hash() of a class's name decides a bucket, and the process has another seed of hashes", _model("self.lin(x) * float(zlib.crc32(b'user') % K)", "pass", "import zlib\nK = 7"), "", ("K = 7", "K = 5"))
_add("dropout in forward is functional and forgot training=", _model("F.dropout(self.lin(x), self.p, self.training)", "self.p = 0.5"), "model.train()")
_add("dropout in forward: another rate in eval mode", _model("F.dropout(self.lin(x), self.p, self.training)", "self.p = 0.5"), "model.p = 0.1", harmless=True)
_add("dropout in training mode: another rate", _model("F.dropout(self.lin(x), self.p, self.training)", "self.p = 0.5"), "model.p = 0.1", make="import app\nmodel = app.Model().train()")
_add("a submodule's eval is overridden to stay in training mode", _model("self.drop(self.lin(x))", "self.drop = Mc(0.5)", "class Mc(nn.Dropout):\n    pass\n"), "app.Mc.train = lambda self, mode=True: torch.nn.Module.train(self, True)\nmodel.eval()")
_add("autocast's dtype in forward", _model("with torch.autocast('cpu', self.dtype):\n    y = self.lin(x)\nreturn y.float()", "self.dtype = torch.bfloat16"), "model.dtype = torch.float16")
_add("autocast in forward is disabled", _model("with torch.autocast('cpu', torch.bfloat16, enabled=self.on):\n    y = self.lin(x)\nreturn y.float()", "self.on = True"), "model.on = False")
_add("autocast in forward has no cache, which changes no operation's result", _model("with torch.autocast('cpu', torch.bfloat16, cache_enabled=self.on):\n    y = self.lin(x) + self.lin(x * 2)\nreturn y.float()", "self.on = True"), "model.on = False")
_add("an island of float32 in autocast", _model("with torch.autocast('cpu', torch.bfloat16):\n    y = self.lin(x)\n    with torch.autocast('cpu', enabled=not self.island):\n        y = self.lin(y.float())\nreturn y.float()", "self.island = False"), "model.island = True")
_add("the model is called in inference_mode by a wrapper", _model("with CTX():\n    return self.lin(x)", "pass", "import contextlib\nCTX = contextlib.nullcontext"), "app.CTX = torch.no_grad")
_add("detach() is put into forward", _model("(self.lin(x).detach() if self.stop else self.lin(x)).relu()", "self.stop = False"), "model.stop = True", live=False)
_add("torch.utils.checkpoint wraps a block", _model("checkpoint(self.lin, x, use_reentrant=False) if self.ck else self.lin(x)", "self.ck = False", "from torch.utils.checkpoint import checkpoint"), "model.ck = True", harmless=True)
_add("matmul precision is high", _LIN, "torch.set_float32_matmul_precision('high')", harmless=True)
_add("TF32 in cuDNN is forbidden", _LIN, "torch.backends.cudnn.allow_tf32 = not torch.backends.cudnn.allow_tf32", harmless=True)
_add("mkldnn is switched off", _CONV, "torch.backends.mkldnn.enabled = False", harmless=True)
_add("the number of threads", _LIN, "torch.set_num_threads(2)", harmless=True)
_add("print options", _LIN, "torch.set_printoptions(precision=2)", harmless=True)
_add("anomaly detection is switched on", _LIN, "torch.autograd.set_detect_anomaly(True)", harmless=True)
_add("deterministic algorithms", _LIN, "torch.use_deterministic_algorithms(True)")
_add("deterministic algorithms fill empty tensors", _model("self.lin(x) + torch.empty_like(x).fill_(1)"), "torch.use_deterministic_algorithms(True)\ntorch.utils.deterministic.fill_uninitialized_memory = False")
for _doc, _before, _after in (
    ("a scalar is an integer in place of a float", "2.0", "2"), ("a scalar is a boolean in place of an integer", "1", "True"), ("a scalar is a 0-dim tensor", "2.0", "torch.tensor(2.0)"),
    ("a scalar has another last bit", "0.1", "0.1 + 2 ** -56"), ("a scalar is complex", "2.0", "2 + 0j"), ("a scalar is negative zero", "0.0", "-0.0"), ("a scalar is infinite", "1e308", "1e309"),
    ("a tensor of one element is a 0-dim tensor of double", "torch.tensor([2.0], dtype=torch.double)", "torch.tensor(2.0, dtype=torch.double)"), ("a constant tensor is expanded", "torch.full((4,), 2.0)", "torch.tensor(2.0).expand(4)"),
    ("a constant tensor is a transposed view", "torch.arange(12.).view(3, 4)", "torch.arange(12.).view(4, 3).t()"), ("a constant tensor is half", "torch.ones(4)", "torch.ones(4).half()"), ("a constant tensor is int8", "torch.ones(4)", "torch.ones(4).char()"),
    ("a constant tensor is boolean", "torch.ones(4)", "torch.ones(4).bool()"), ("a constant tensor is complex", "torch.ones(4)", "torch.ones(4) + 0j"), ("a constant tensor is a conjugated view", "torch.full((4,), 1 + 2j)", "torch.full((4,), 1 + 2j).conj()"),
    ("a constant tensor is a negated view", "torch.full((4,), 1 + 2j).imag", "torch.full((4,), 1 + 2j).conj().imag"), ("a constant tensor has a NaN", "torch.ones(4)", "torch.ones(4) * torch.tensor([1, 1, 1, float('nan')])"),
    ("a constant tensor has a negative zero", "torch.zeros(4)", "-torch.zeros(4)"), ("a constant has a gap in its memory", "torch.arange(8.)[::2]", "torch.arange(8.)[1::2]"),
    ("a constant is a Parameter that was not registered", "(torch.ones(4),)[0]", "[torch.nn.Parameter(torch.ones(4) * 2)][0].data"),
):
    _add(f"numerics: {_doc}", _model("torch.copysign(self.lin(x) * self.k, torch.ones(()) if not isinstance(self.k, float) else torch.full((), self.k)) if KIND else self.lin(x) * self.k", f"self.k = {_before}", f"KIND = {'zero' in _doc and 'scalar' in _doc}"), f"model.k = {_after}")
for _doc, _before, _after in (
    ("a constant is cloned", "torch.ones(4)", "torch.ones(4).clone()"), ("a constant is the same slice of a larger tensor", "torch.arange(4.)", "torch.arange(9.)[:4]"), ("a float comes from a text", "0.25", "float('0.25')"), ("a float is an integral fraction", "2.0", "4 / 2"),
    ("a scalar is a NumPy float64", "2.0", "__import__('numpy').float64(2.0)"), ("a constant requires gradients", "torch.ones(4)", "torch.ones(4, requires_grad=True)"),
    ("an int is of a subclass", "2", "__import__('enum').IntEnum('E', {'A': 2}).A"),
):
    _add(f"numerics without effect: {_doc}", _model("self.lin(x) * self.k", f"self.k = {_before}"), f"model.k = {_after}", harmless=True)
_BUF = _model("self.lin(x) * self.scale + self.count", "self.register_buffer('scale', torch.ones(4))\nself.register_buffer('count', torch.zeros((), dtype=torch.long), persistent=False)")
for _doc, _change in (("a buffer's dtype", "model.scale = model.scale.double()"), ("a buffer's shape", "model.scale = model.scale[None]"), ("a buffer's value that is not persistent", "model.count += 1"), ("a buffer becomes a Parameter", "s = model.scale\ndel model.scale\nmodel.scale = torch.nn.Parameter(s)"), ("a buffer becomes a plain attribute", "s = model.scale\ndel model.scale\nmodel.__dict__['scale'] = s * 2"), ("a buffer is the weight's row", "model.scale = model.lin.weight.data[0]"), ("a buffer becomes a Python float", "del model.scale\nmodel.scale = 2.0")):
    _add(f"buffers: {_doc}", _BUF, _change)
_add("buffers: a persistent buffer's value", _BUF, "model.scale.mul_(3)", harmless=True)
_INP = _model("self.steps.add_(self.by)\nself.hist[:, 0].copy_(x[0, :1].squeeze())\nreturn self.lin(x) * self.steps", "self.register_buffer('steps', torch.zeros(()))\nself.register_buffer('hist', torch.zeros(2, 2))\nself.by = 1")
_add("in-place updates of buffers in forward: the step is another", _INP, "model.by = 2")
_add("in-place updates of buffers in forward: another column", _INP, "", ("self.hist[:, 0]", "self.hist[:, 1]"))
_add("in-place updates of buffers in forward: the state has run for a while", _INP, "model.steps.fill_(7)", harmless=True)
_add("in-place updates of buffers in forward: one is removed", _INP, "", ("self.hist[:, 0].copy_(x[0, :1].squeeze())\n", "\n"))
_CACHE = _model("self.k[:, self.pos:self.pos + 1] = self.lin(x)[:, :1, None].mT[..., 0, :1]\nreturn self.k.clone()" if False else "self.k[self.pos:self.pos + 3] = self.lin(x)\nreturn self.k[:self.pos + 3] * 1.0", "self.register_buffer('k', torch.zeros(8, 4))\nself.pos = 0")
_add("KV cache: the position is another", _CACHE, "model.pos = 3")
_add("KV cache: its content is another", _CACHE, "model.k.fill_(1.0)", harmless=True)
_add("KV cache: its length is another", _CACHE, "model.k = torch.zeros(16, 4)")
for _doc, _forward, *_to in (
    ("a sort is stable", "torch.sort((self.lin(x) > 0).float(), stable=False)", ("stable=False", "stable=True")), ("topk is not sorted", "torch.topk(self.lin(x), 2, sorted=True)", ("sorted=True", "sorted=False")),
    ("a quantile's interpolation", "torch.quantile(self.lin(x), 0.3, -1, interpolation='linear')", ("'linear'", "'lower'")), ("a quantile's fraction", "torch.quantile(self.lin(x), torch.tensor([0.3, 0.5]), -1)", ("0.3, 0.5", "0.3, 0.6")),
    ("an FFT's norm", "torch.fft.rfft(self.lin(x), norm='backward').abs()", ("'backward'", "'ortho'")), ("an FFT's length", "torch.fft.rfft(self.lin(x), 4).abs()", ("4).abs", "6).abs")), ("the angle of a complex result", "torch.view_as_complex(self.lin(x).view(3, 2, 2)).angle()", (".angle()", ".abs()")),
    ("conj of a complex result", "torch.view_as_real(torch.view_as_complex(self.lin(x).view(3, 2, 2)).conj().resolve_conj())", (".conj().resolve_conj()", ".resolve_conj()")), ("a gelu's approximation", "F.gelu(self.lin(x))", ("self.lin(x))", "self.lin(x), approximate='tanh')")),
    ("a rounding mode of a division", "torch.div(self.lin(x), 0.3, rounding_mode='floor')", ("'floor'", "'trunc'")), ("decimals of a rounding", "torch.round(self.lin(x), decimals=1)", ("=1", "=2")), ("a variance's correction", "torch.var(self.lin(x), -1, correction=1)", ("correction=1", "correction=0")),
    ("a norm's order", "torch.linalg.vector_norm(self.lin(x), 2, -1)", (", 2, -1", ", 1, -1")), ("a label smoothing", "F.cross_entropy(self.lin(x), torch.tensor([0, 1, 2]), label_smoothing=0.1)", ("=0.1", "=0.2")), ("an ignored label", "F.cross_entropy(self.lin(x), torch.tensor([0, 1, 2]), ignore_index=1)", ("index=1", "index=2")),
    ("a loss's reduction", "F.smooth_l1_loss(self.lin(x), x, reduction='mean')", ("'mean'", "'sum'")), ("a loss's beta", "F.smooth_l1_loss(self.lin(x), x, beta=1.0)", ("beta=1.0", "beta=0.5")), ("the labels of a loss", "F.nll_loss(self.lin(x).log_softmax(-1), torch.tensor([0, 1, 2]))", ("[0, 1, 2]", "[0, 1, 3]")),
    ("a grid sample's alignment", "F.grid_sample(x[None, None], torch.zeros(1, 2, 2, 2) + 0.3, align_corners=False)", ("=False", "=True")), ("the side of a search", "torch.searchsorted(torch.tensor([0.0, 4.0, 8.0]), x, right=False)", ("=False", "=True")), ("the boundaries of buckets", "torch.bucketize(x, torch.tensor([0.0, 4.0, 8.0]))", ("4.0", "5.0")),
    ("a cumulative maximum's result", "torch.cummax(self.lin(x), 0).values", (".values", ".indices")), ("a pad's mode", "F.pad(x[None], (1, 1), mode='reflect')", ("'reflect'", "'replicate'")), ("a pad's value", "F.pad(x, (1, 1), value=0.5)", ("0.5", "0.25")), ("a pad's side", "F.pad(x, (1, 0))", ("(1, 0)", "(0, 1)")),
    ("a triangle's diagonal", "torch.triu(self.lin(x), 0)", ("x), 0)", "x), 1)")), ("a masked fill's value", "self.lin(x).masked_fill(x > 5, -1e9)", ("-1e9", "float('-inf')")), ("a comparison's sign", "torch.where(self.lin(x) > 0, x, -x)", (") > 0", ") >= 0")), ("an argmax keeps its dimension", "self.lin(x).argmax(-1)", ("(-1)", "(-1, keepdim=True)")),
    ("a sum's dtype", "self.lin(x).sum(-1)", ("(-1)", "(-1, dtype=torch.double)")), ("a one-hot's number of classes", "F.one_hot(torch.tensor([0, 2]), 3) * x[:2, :1].long()", ("]), 3)", "]), 4)")), ("a repeat and an interleaved repeat", "self.lin(x).repeat(2, 1)", ("repeat(2, 1)", "repeat_interleave(2, 0)")), ("reshape and transpose", "self.lin(x).t()", (".t()", ".reshape(4, 3)")),
    ("a clamp's order of limits", "self.lin(x).clamp(-0.5, 0.5)", ("-0.5, 0.5", "-0.5, 0.25")), ("a softmax's dtype", "self.lin(x).softmax(-1)", ("(-1)", "(-1, dtype=torch.float64).float()")), ("an addmm's beta", "torch.addmm(x, torch.ones(3, 3), x, beta=1)", ("beta=1", "beta=2")), ("cdist's mode of computing", "torch.cdist(x, self.lin(x), compute_mode='use_mm_for_euclid_dist')", ("'use_mm", "'donot_use_mm")),
    ("the indexing of a mesh", "x[:, :3] * torch.meshgrid(torch.arange(3), torch.arange(3), indexing='ij')[0]", ("'ij'", "'xy'")), ("a roll's shift", "self.lin(x).roll(1, -1)", ("roll(1", "roll(-1")), ("a flip's dimension", "self.lin(x).flip(0)", ("flip(0)", "flip(1)")), ("an unfold's step", "self.lin(x).unfold(1, 2, 1)", ("2, 1)", "2, 2)")),
    ("an index's dtype of bool and of integers", "self.lin(x)[torch.tensor([1, 0, 1])]", ("[1, 0, 1])", "[1, 0, 1]).bool()")), ("a scatter's reduction", "torch.zeros(3, 4).scatter_reduce(0, x.long() % 3, self.lin(x), 'sum')", ("'sum'", "'amax'")), ("scatter_reduce's self", "torch.zeros(3, 4).scatter_reduce(0, x.long() % 3, self.lin(x), 'mean', include_self=True)", ("=True", "=False")),
):
    _add(f"an operator's argument: {_doc}", _model(_forward), "", *_to)

# 7. Inputs, results and sizes; FX, TorchScript, custom operators, transformers.

_D = "from torch.export import Dim\n"
_TWO = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
    def forward(self, x, mask=None, *, scale=1.0, **extra):
        y = self.lin(x) * scale
        y = y if mask is None else y * mask
        for name, v in extra.items():
            y = getattr(torch, name)(y, v)
        return y
"""
_X = "args = (torch.arange(12.0).reshape(3, 4),)\n"
for _doc, _change in (
    ("an optional mask is given", "args = (args[0], torch.ones(3, 1))"), ("an optional mask is a bool tensor", "args = (args[0], torch.ones(3, 1, dtype=torch.bool))"), ("a mask is a number", "args = (args[0], 2)"), ("a keyword is given that differs from the default", "kwargs = {'scale': 2.0}"),
    ("a keyword is given as an integer", "kwargs = {'scale': 3}"), ("an extra keyword", "kwargs = {'add': torch.ones(4)}"), ("a positional argument becomes an extra keyword's name", "kwargs = {'mul': 2.0, 'add': 1.0}"),
    ("the input is double", "model.double()\nargs = (args[0].double(),)"), ("the input is a transposed view", "args = (torch.arange(12.0).reshape(4, 3).t(),)"), ("the input has more rows", "args = (torch.arange(20.0).reshape(5, 4),)"), ("the input has a batch", "args = (args[0][None],)"), ("the input is a Parameter", "args = (torch.nn.Parameter(args[0]),)"),
    ("the default of a keyword is edited at run time", "app.Model.forward.__kwdefaults__['scale'] = 4.0"),
):
    _add(f"inputs: {_doc}", _TWO, _change)
_add("inputs: two extra keywords change their order", _TWO, "kwargs = {'add': 1.0, 'mul': 2.0}", first="kwargs = {'mul': 2.0, 'add': 1.0}")
_add("inputs: the values are others", _TWO, "args = (args[0] * 3 + 1,)", harmless=True)
_add("inputs: the mask is None in so many words", _TWO, "kwargs = {'mask': torch.ones(3, 1)}", first="kwargs = {'mask': None}")
_NEST = _model("y = x['a'] + x['b'][0] * 2\nif 'c' in x:\n    y = y - x['c']\nreturn self.lin(y)")
_add("inputs: a dict has another entry", _NEST, "args = ({**args[0], 'c': torch.ones(4)},)", first="args = ({'a': torch.ones(3, 4), 'b': [torch.ones(3, 4)]},)")
_add("inputs: a dict's entries have another order", _NEST, "args = (dict(reversed(args[0].items())),)", first="args = ({'a': torch.ones(3, 4), 'b': [torch.ones(4)]},)")
_add("inputs: a list in a dict is a tuple", _NEST, "args = ({'a': args[0]['a'], 'b': tuple(args[0]['b'])},)", first="args = ({'a': torch.ones(3, 4), 'b': [torch.ones(3, 4)]},)")
_add("inputs: a list in a dict has another element", _NEST, "args[0]['b'].append(torch.ones(1))", first="args = ({'a': torch.ones(3, 4), 'b': [torch.ones(3, 4)]},)")
_NT = _model("return self.lin(x.a) * (2 if x.flag else 3)", "pass", "import collections\nPair = collections.namedtuple('Pair', 'a flag')")
_add("inputs: a flag in a namedtuple", _NT, "args = (app.Pair(args[0].a, False),)", make="import app\nmodel = app.Model().eval()\nargs = (app.Pair(torch.ones(3, 4), True),)")
_add("inputs: a flag in a namedtuple is None", _NT, "args = (app.Pair(args[0].a, None),)", make="import app\nmodel = app.Model().eval()\nargs = (app.Pair(torch.ones(3, 4), True),)")
_DCI = _model("return self.lin(x.a) * x.k", "pass", "import dataclasses\n@dataclasses.dataclass\nclass Batch:\n    a: torch.Tensor\n    k: float = 2.0\ntorch.export.register_dataclass(Batch, serialized_type_name='app.Batch')")
_add("inputs: a number in a registered dataclass", _DCI, "args[0].k = 3.0", make="import app\nmodel = app.Model().eval()\nargs = (app.Batch(torch.ones(3, 4)),)")
_add("inputs: the tensor of a registered dataclass", _DCI, "args[0].a = torch.zeros(3, 4)", make="import app\nmodel = app.Model().eval()\nargs = (app.Batch(torch.ones(3, 4)),)", harmless=True)
_add("inputs: one tensor is given twice", _model("return self.lin(x) + y").replace("def forward(self, x)", "def forward(self, x, y)"), "args = (args[0], args[0])", first="args = (torch.ones(3, 4), torch.ones(3, 4))", harmless=True)
_add("inputs: the parameters of forward change places", _model("return self.lin(x) - y").replace("def forward(self, x)", "def forward(self, x, y)"), "", ("def forward(self, x, y)", "def forward(self, y, x)"), first="args = (torch.ones(3, 4), torch.ones(3, 4) * 2)")
_add("inputs: forward's parameter has another name", _model("return self.lin(x)"), "", ("forward(self, x):\n        return self.lin(x)", "forward(self, input):\n        return self.lin(input)"))
_add("inputs: the model branches on a tensor's shape", _model("return self.lin(x) if x.shape[0] < N else self.lin(x[:N])", "pass", "N = 8"), "app.N = 2")
_add("inputs: the model branches on contiguity, dtype and gradients", _model("k = 2.0 if x.is_contiguous() and x.dtype is torch.float32 and not x.requires_grad else A\nreturn self.lin(x) * k", "pass", "A = 3.0"), "args = (torch.arange(12.0).reshape(4, 3).t(),)")
for _doc, _forward, *_to in (
    ("a tuple becomes a list", "(self.lin(x), x.sum())", ("(self.lin(x), x.sum())", "[self.lin(x), x.sum()]")), ("a result's place", "(self.lin(x), x.sum())", ("(self.lin(x), x.sum())", "(x.sum(), self.lin(x))")), ("a single result is in a tuple", "return self.lin(x)", ("return self.lin(x)", "return (self.lin(x),)")),
    ("a number is returned with the tensor", "(self.lin(x), 1)", (", 1)", ", 2)")), ("a text is returned with the tensor", "(self.lin(x), 'v1')", ("'v1'", "'v2'")), ("None is returned with the tensor", "(self.lin(x), None)", (", None)", ", 0)")), ("an integer result becomes a float", "(self.lin(x), 1)", (", 1)", ", 1.0)")), ("an integer result becomes a boolean", "(self.lin(x), 1)", (", 1)", ", True)")),
    ("the input itself is returned", "(self.lin(x), x)", ("(self.lin(x), x)", "(self.lin(x), x + 0)")), ("the same result is returned twice", "y = self.lin(x)\nreturn y, y", ("y, y", "y, y + 0")), ("a bias is returned, or the weight", "(self.lin(x), self.lin.bias)", ("self.lin.bias)", "self.lin.weight)")), ("a constant is returned", "(self.lin(x), torch.tensor([1, 2]))", ("[1, 2]", "[1, 3]")),
    ("a dict's key", "{'a': self.lin(x), 'b': x.sum()}", ("'b'", "'c'")), ("a dict's order", "{'a': self.lin(x), 'b': x.sum()}", ("{'a': self.lin(x), 'b': x.sum()}", "{'b': x.sum(), 'a': self.lin(x)}")), ("a nested list's depth", "[[self.lin(x)], x]", ("[[self.lin(x)], x]", "[[self.lin(x), x]]")), ("a namedtuple's class", "A(self.lin(x), 1)", ("return A(", "return B(")),
    ("a shape is returned", "(self.lin(x), x.shape[0])", ("x.shape[0])", "x.shape[1])")), ("a dtype-dependent number is returned", "(self.lin(x), torch.finfo(x.dtype).eps)", (".eps", ".tiny")), ("a defaultdict in place of a dict", "dict(a=self.lin(x))", ("return dict(a", "return collections.OrderedDict(a")), ("an empty list beside", "(self.lin(x), [])", (", [])", ", ())")),
):
    _add(f"results: {_doc}", _model(_forward, "pass", "import collections\nA = collections.namedtuple('A', 'y k')\nB = collections.namedtuple('B', 'y k')"), "", *_to)
_add("results: the dict is built in another way", _model("{'a': self.lin(x), 'b': x.sum()}"), "", ("{'a': self.lin(x), 'b': x.sum()}", "dict(a=self.lin(x), b=x.sum())"), harmless=True)
for _doc, _forward, _change, _more in (
    ("the rows' mean is scaled by their number", "self.lin(x) * x.shape[0] * K", "app.K = 3", {}), ("a table is cut to the rows", "self.lin(x) + self.table[:x.shape[0]]", "model.table[1] += 1", {}), ("a mask is built from the rows", "self.lin(x) * (torch.arange(x.shape[0]) < K)[:, None]", "app.K = 1", {}),
    ("the rows are padded to a constant", "F.pad(self.lin(x), (0, 0, 0, K))", "app.K = 3", {}), ("a branch on the rows has another limit", "self.lin(x) if x.shape[0] < 50 * K else x", "app.K = 1", {}), ("rows become columns", "self.lin(x).reshape(-1) if K == 2 else self.lin(x).t().reshape(-1)", "app.K = 3", {}), ("a size is returned", "(self.lin(x), x.shape[0] * K)", "app.K = 3", {}),
    ("the sizes are static now", "self.lin(x) * x.shape[0]", "dynamic_shapes = None", {}), ("a Dim has another maximum", "self.lin(x) * x.shape[0]", "dynamic_shapes = ({0: Dim('n', max=16)},)", {}), ("both dimensions are dynamic", "(x * 2).sum(-1)", "dynamic_shapes = ({0: Dim('n', max=64), 1: Dim('m', max=9)},)", {}),
    ("weights are others", "self.lin(x) * x.shape[0]", "model.lin.weight.data.fill_(2)", {"harmless": True}), ("the example has other rows", "self.lin(x) * x.shape[0]", "args = (torch.ones(6, 4),)", {}), ("the table has more rows", "self.lin(x) + self.table[:x.shape[0]]", "model.table = torch.zeros(101, 4)", {}),
    ("an expression of sizes is written differently", "self.lin(x) * (x.shape[0] + x.shape[0] if K == 2 else x.shape[0] * 2)", "app.K = 3", {"harmless": True}), ("a ceiling in place of a floor", "self.lin(x).sum() * x.new_ones((x.shape[0] + K) // 2)", "app.K = 1", {}), ("torch.cat with itself repeats", "torch.cat([x] * K)", "app.K = 3", {}),
):
    _add(f"dynamic sizes: {_doc}", _model(_forward, "self.table = torch.zeros(100, 4)", "K = 2"), _change, first=_D + "dynamic_shapes = ({0: Dim('n', max=64)},)", **_more)
_add("dynamic sizes: nonzero's rows are scaled", _model("y = self.lin(x)\nreturn y[torch.nonzero(x[:, 0] > K).squeeze(1)]", "pass", "K = 2"), "app.K = 5")
_add("dynamic sizes: item() is a scale of a slice", _model("n = x.sum().long().item()\ntorch._check(n >= K)\nreturn torch.zeros(3) + n * K", "pass", "K = 0"), "app.K = 1")
_FX = """
import operator
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer('c', torch.tensor(2.0))
    def forward(self, x):
        return torch.relu(self.lin(x) * self.c) + 1.0
def Model():
    return torch.fx.symbolic_trace(Net())
"""
_add("FX: a function of a node is replaced", _FX, "for n in model.graph.nodes:\n    if n.target is torch.relu:\n        n.target = torch.tanh\nmodel.recompile()")
_add("FX: a node's argument is another", _FX, "for n in model.graph.nodes:\n    if n.args[1:] == (1.0,):\n        n.args = (n.args[0], 3.0)\nmodel.recompile()")
_add("FX: the graph is changed but not compiled again", _FX, "for n in model.graph.nodes:\n    if n.target is torch.relu:\n        n.target = torch.tanh")
_add("FX: a node is erased", _FX, "for n in list(model.graph.nodes):\n    if n.target is torch.relu:\n        n.replace_all_uses_with(n.args[0])\n        model.graph.erase_node(n)\nmodel.recompile()")
_add("FX: names of nodes are others", _FX, "for n in model.graph.nodes:\n    if n.op == 'call_function':\n        n.name = n.name + '_x'\nmodel.recompile()", harmless=True)
_add("FX: replace_pattern", _FX, "def a(x):\n    return torch.relu(x)\ndef b(x):\n    return torch.sigmoid(x) * x\ntorch.fx.replace_pattern(model, a, b)")
_JIT = _model("soft(self.lin(x)) + self.net(x)", "self.net = torch.jit.trace(nn.Linear(4, 4), torch.ones(3, 4))", "from post import soft") + "--- post.py\n@torch.jit.script\ndef soft(y):\n    if y.dim() > 1:\n        y = y * 2.0\n    return y.relu()\n"
_add("TorchScript in a module: a scripted function's number is edited", _JIT, "", ("y * 2.0", "y * 3.0"))
_add("TorchScript in a module: a scripted function's condition is edited", _JIT, "", ("y.dim() > 1", "y.dim() > 2"))
_add("TorchScript in a module: a traced layer is retrained", _JIT, "with torch.no_grad():\n    for p in model.net.parameters():\n        p.mul_(2)", harmless=True)
_add("TorchScript in a module: a traced layer's activation is another", _JIT, "", ("torch.jit.trace(nn.Linear(4, 4)", "torch.jit.trace(nn.Sequential(nn.Linear(4, 4), nn.Tanh())"))
_add("TorchScript in a module: a traced function has another constant", _model("self.f(self.lin(x))", "k = K\nself.f = torch.jit.trace(lambda y: y * k, torch.ones(3, 4))", "K = 2.0"), "", ("K = 2.0", "K = 3.0"))
_add("TorchScript in a module: a scripted function is loaded from a file", _model("self.f(self.lin(x))", "self.f = torch.jit.load('f.pt')"), first="m = torch.jit.trace(torch.nn.ReLU(), torch.ones(3, 4))\ntorch.jit.save(m, 'f.pt')", second="m = torch.jit.trace(torch.nn.Tanh(), torch.ones(3, 4))\ntorch.jit.save(m, 'f.pt')")
_OP = _model("torch.ops.shop.post(self.lin(x), self.k)", "self.k = 2.0", """
     @torch.library.custom_op('shop::post', mutates_args=())
     def post(y: torch.Tensor, k: float) -> torch.Tensor:
         return y * k
     @post.register_fake
     def _(y, k):
         return torch.empty_like(y)
     """)
_add("custom operator: its code is edited", _OP, "", ("return y * k", "return y * k + 1"))
_add("custom operator: its argument", _OP, "model.k = 3.0")
_CIA = _model("torch.ops.shop2.post(self.lin(x))", "pass", "LIB = torch.library.Library('shop2', 'DEF')\nLIB.define('post(Tensor y) -> Tensor')\nK = 2.0\ndef post(y):\n    return y * K\nLIB.impl('post', post, 'CompositeImplicitAutograd')\n")
_add("custom operator: a composite one is edited", _CIA, "", ("return y * K", "return y.sin()"))
_add("custom operator: a composite one reads a global", _CIA, "app.K = 3.0")
_add("custom operator: a kernel of aten for the CPU is registered", _LIN, "LIB = torch.library.Library('aten', 'IMPL')\nLIB.impl('relu', lambda y: y * 3, 'CPU')")
_add("custom operator: an autograd kernel of aten is registered", _LIN, "LIB = torch.library.Library('aten', 'IMPL')\nLIB.impl('relu', lambda y: torch.tanh(y), 'AutogradCPU')")
_AF = _model("Post.apply(self.lin(x), self.k)", "self.k = 2.0", """
     class Post(torch.autograd.Function):
         @staticmethod
         def forward(ctx, y, k):
             ctx.k = k
             return y.clamp(min=0) * k
         @staticmethod
         def backward(ctx, g):
             return g * ctx.k, None
     """)
_add("autograd.Function: its number", _AF, "model.k = 3.0")
_add("autograd.Function: its forward is edited", _AF, "", ("min=0", "min=1"))
_add("autograd.Function: its backward is edited, which serving does not call", _AF, "", ("return g * ctx.k, None", "return g * 0, None"), harmless=True)
_add("autograd.Function: forward is patched with a static method", _AF, "app.Post.forward = staticmethod(lambda ctx, y, k: y - k)")
_HF = """
import json
from transformers import {0}, {1}
def Model():
    torch.manual_seed(1)
    return {0}({1}(**json.load(open('config.json'))))
--- config.json
{2}
"""
_IDS = "import app\nmodel = app.Model().eval()\nargs, kwargs = (), {'input_ids': torch.tensor([[1, 2, 3]])}\n"
_BERT = _HF.format("BertModel", "BertConfig", '{"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 20, "max_position_embeddings": 16, "hidden_act": "gelu", "layer_norm_eps": 1e-12}')
for _doc, *_to in (("hidden_act", ('"gelu"', '"relu"')), ("layer_norm_eps", ("1e-12", "1e-5")), ("num_attention_heads", ('heads": 2', 'heads": 4')), ("num_hidden_layers", ('layers": 1', 'layers": 2')), ("is_decoder", ('"vocab_size"', '"is_decoder": true, "vocab_size"')), ("return_dict", ('"vocab_size"', '"return_dict": false, "vocab_size"')), ("output_hidden_states", ('"vocab_size"', '"output_hidden_states": true, "vocab_size"'))):
    _add(f"transformers, BERT: {_doc}", _BERT, "", *_to, make=_IDS)
_add("transformers, BERT: dropout in the config", _BERT, "", ('"vocab_size"', '"hidden_dropout_prob": 0.3, "vocab_size"'), make=_IDS, harmless=True)
_add("transformers, BERT: labels in the config", _BERT, "", ('"vocab_size"', '"id2label": {"0": "no", "1": "yes"}, "vocab_size"'), make=_IDS, harmless=True)
_add("transformers, BERT: an attention mask is given", _BERT, "kwargs['attention_mask'] = torch.tensor([[1, 1, 0]])", make=_IDS)
_add("transformers, BERT: the eager attention is set", _BERT, "model.set_attn_implementation('eager')", make=_IDS)
_add("transformers, BERT: the position ids' buffer", _BERT, "model.embeddings.position_ids = model.embeddings.position_ids.flip(1)", make=_IDS)
_add("transformers, BERT: the pooler's activation", _BERT, "model.pooler.activation = torch.nn.ReLU()", make=_IDS)
_LLAMA = _HF.format("LlamaForCausalLM", "LlamaConfig", '{"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 8, "vocab_size": 20, "max_position_embeddings": 16, "use_cache": false, "rms_norm_eps": 1e-6}')
for _doc, *_to in (("rms_norm_eps", ("1e-6", "1e-3")), ("rope_theta", ('"use_cache"', '"rope_theta": 100.0, "use_cache"')), ("tie_word_embeddings", ('"use_cache"', '"tie_word_embeddings": true, "use_cache"')), ("hidden_act", ('"use_cache"', '"hidden_act": "gelu", "use_cache"')), ("use_cache", ('"use_cache": false', '"use_cache": true')), ("grouped keys", ('value_heads": 2', 'value_heads": 1'))):
    _add(f"transformers, Llama: {_doc}", _LLAMA, "", *_to, make=_IDS)
_add("transformers, Llama: the rotary frequencies are scaled", _LLAMA, "model.model.rotary_emb.inv_freq.mul_(0.5)", make=_IDS)
_add("transformers, Llama: the rotary attention's scaling", _LLAMA, "model.model.rotary_emb.attention_scaling = 0.7", make=_IDS)
_add("transformers, Llama: logits_to_keep", _LLAMA, "kwargs['logits_to_keep'] = 1", make=_IDS)
_add("transformers, Llama: generation settings", _LLAMA, "model.generation_config.temperature = 0.3\nmodel.generation_config.do_sample = True", make=_IDS, harmless=True)
_add("transformers, Llama: another seed of the weights", _LLAMA, "", ("manual_seed(1)", "manual_seed(2)"), make=_IDS, harmless=True)
_add("transformers, Llama: the head's weight is scaled by a hook", _LLAMA, "model.lm_head.register_forward_hook(lambda m, a, y: y / 0.7)", make=_IDS)

# 8. How models are served: warm-up calls, lazy tables, questions to torch, wrappers, constants that Python reads.

_WARM = "\nmodel(*args)"
_LAZY = _model("y = self.lin(x)\nif self.table is None or self.table.shape[0] < x.shape[0]:\n    self.table = torch.arange(x.shape[0]).float()[:, None] * self.by\nreturn y + self.table[:x.shape[0]]", "self.table = None\nself.by = 0.5")
_add("warm-up: a lazy table was filled by a call, and the rule is changed afterwards", _LAZY, "model(*args)\nmodel.by = 0.75\nmodel.table = None")
_add("warm-up: a lazy table was filled by a call before the rule is changed, and is kept", _LAZY, "with torch.no_grad():\n    model(*args)\nmodel.by = 0.75")
_add("warm-up: a lazy table was filled by a longer call with another rule", _LAZY, "model.by = 0.25\nwith torch.no_grad():\n    model(torch.ones(9, 4))\nmodel.by = 0.5")
_DICTC = _model("key = (x.shape[0], x.dtype)\nif key not in TABLES:\n    TABLES[key] = torch.linspace(0, END, x.shape[0])[:, None]\nreturn self.lin(x) + TABLES[key]", "pass", "TABLES = {}\nEND = 1.0")
_add("warm-up: a table in a module's dict was filled with another end", _DICTC, "app.END = 2.0\nwith torch.no_grad():\n    model(*args)\napp.END = 1.0")
_add("warm-up: a module's dict of tables is emptied, and the end is another", _DICTC, "app.TABLES.clear()\napp.END = 2.0")
_add("warm-up: a dict has a table for other rows", _DICTC, "app.TABLES[99, torch.float32] = torch.ones(99, 1)", harmless=True)
_CALLS = _model("self.calls += 1\nreturn self.lin(x) * (2.0 if self.calls <= self.warm else 3.0)", "self.calls = 0\nself.warm = 2")
_add("warm-up: a counter of calls is beyond its limit", _CALLS, "for _ in range(3):\n    model(*args)")
_add("warm-up: a counter of calls is still below its limit", _CALLS, "model(*args)", make="import app\nmodel = app.Model().eval()\nmodel.warm = 99", harmless=True)
_add("warm-up: the last result is blended into the next", _model("y = self.lin(x)\nif self.last is not None:\n    y = y * 0.5 + self.last * 0.5\nself.last = y.detach()\nreturn y", "self.last = None"), "with torch.no_grad():\n    model(*args)")
_add("warm-up: the last result is blended into the next, and was reset", _model("y = self.lin(x)\nif self.last is not None:\n    y = y * 0.5 + self.last * 0.5\nself.last = y.detach()\nreturn y", "self.last = None"), "with torch.no_grad():\n    model(*args)\nmodel.last = None", harmless=True)
_add("warm-up: features are kept in a list by a hook, and a later layer reads them", _model("FEATS.clear()\ny = self.b(self.lin(x))\nreturn y + FEATS[0] * K", "self.b = nn.Linear(4, 4)\nself.lin.register_forward_hook(lambda m, a, y: FEATS.append(y))", "FEATS = []\nK = 1.0"), "app.K = 2.0")
for _doc, _question, _taken in (
    ("torch.compiler.is_exporting", "torch.compiler.is_exporting()", True), ("torch.compiler.is_compiling", "torch.compiler.is_compiling()", True), ("torch.jit.is_tracing", "torch.jit.is_tracing()", False), ("torch.onnx.is_in_onnx_export", "torch.onnx.is_in_onnx_export()", False), ("is_grad_enabled", "torch.is_grad_enabled()", True), ("the input's class", "type(x) is torch.Tensor", False),
    ("torch.cuda.is_available", "torch.cuda.is_available()", False), ("isinstance of Parameter", "isinstance(self.lin.weight, nn.Parameter)", True), ("whether the input requires gradients", "x.requires_grad", False), ("whether a hook is registered", "bool(self.lin._forward_hooks)", False), ("training", "self.lin.training", False), ("the weight's attribute", "hasattr(self.lin.weight, 'quant')", False),
):
    for _name in "AB":
        _add(f"a fast path asks {_doc}: {'yes' if _name == 'A' else 'no'} has another number", _model(f"return self.lin(x) * (A if {_question} else B)", "pass", "A = 2.0\nB = 4.0"), f"app.{_name} *= 1.5", harmless=(_name == "A") is not _taken)
_add("a fast path asks the number of threads", _model("torch.cat([self.lin(c) * (i + 1) for i, c in enumerate(x.chunk(torch.get_num_threads()))])"), "torch.set_num_threads(2)", first="torch.set_num_threads(1)")
_add("a fast path asks torch's version by a text", _model("self.lin(x) * (2 if tuple(map(int, torch.__version__.split('.')[:2])) >= MIN else 3)", "pass", "MIN = (2, 0)"), "app.MIN = (99, 0)")
_add("a fast path asks the CPU's capability", _model("self.lin(x) * (2 if torch.backends.cpu.get_cpu_capability() in FAST else 3)", "pass", "FAST = ('AVX2', 'AVX512', 'DEFAULT', 'NO AVX')"), "app.FAST = ()")
_add("a fast path asks the host's name", _model("self.lin(x) * (2 if socket.gethostname() else 3)", "pass", "import socket"), "import socket\nsocket.gethostname = lambda: ''")
_add("a fast path asks for a library that is installed later", _model("self.lin(x) * (3 if importlib.util.find_spec('flash_own') else 2)", "pass", "import importlib.util"), added="--- flash_own.py\nK = 1\n")
_add("a fallback: an import that failed works now", _model("self.lin(x) * K", "pass", "try:\n    from flash_own import K\nexcept ImportError:\n    K = 2.0\n"), added="--- flash_own.py\nK = 1.5\n")
_add("a fallback: an import that failed works now, with the fallback's number", _model("self.lin(x) * K", "pass", "try:\n    from flash_own import K\nexcept ImportError:\n    K = 2.0\n"), added="--- flash_own.py\nK = 2.0\n", harmless=True)
_add("the folder is copied to another place", _model("self.lin(x) * float((HERE / 'g.txt').read_text())", "pass", "import pathlib\nHERE = pathlib.Path(__file__).resolve().parent") + "--- g.txt\n2.0\n", first="", second="import shutil, sys, os\nshutil.copytree('.', '../moved-' + str(os.getpid()), ignore=shutil.ignore_patterns('cache*'))\nos.chdir('../moved-' + str(os.getpid()))\nsys.path[0:0] = [os.getcwd()]", harmless=True)
_add("the working folder is another, and a relative file is found there", _model("self.lin(x) * float(open('g.txt').read())") + "--- g.txt\n2.0\n--- sub/g.txt\n3.0\n", "import os\nos.chdir('sub')")
_add("the home folder's settings are others", _model("self.lin(x) * float(K)", "pass", "import pathlib\np = pathlib.Path('~/own.txt').expanduser()\nK = p.read_text() if p.exists() else 2") + "--- home/own.txt\n3.0\n", env={"HOME": "home"})
_add("the user's name and the terminal's width are others", _model("self.lin(x) * 2"), env={"USER": "someone", "COLUMNS": "33", "LANG": "de_DE.UTF-8", "TZ": "Asia/Tokyo"}, harmless=True)
_add("the level of logging and a handler are others", _model("LOG.debug('in %s', x.shape)\nreturn self.lin(x)", "pass", "import logging\nLOG = logging.getLogger('app')"), "import logging\nlogging.basicConfig(level=0)\napp.LOG.addHandler(logging.FileHandler('app.log'))", harmless=True)
_add("types are annotated and a docstring is written", _model("post(self.lin(x))", "pass", "def post(y, k=2.0):\n    return y * k\n"), "", ("def post(y, k=2.0):\n", "def post(y: torch.Tensor, k: float = 2.0) -> torch.Tensor:\n    '''Scale it.'''\n"), harmless=True)
_add("a function is split in two", _model("post(self.lin(x))", "pass", "def post(y):\n    return (y * 2).relu()\n"), "", ("return (y * 2).relu()", "return _second(y * 2)\ndef _second(y):\n    return torch.relu(y)"), harmless=True)
_add("a loop is unrolled", _model("y = self.lin(x)\nfor k in (1, 2):\n    y = y + k\nreturn y"), "", ("for k in (1, 2):\n            y = y + k\n        return y", "return y + 1 + 2"), harmless=True)
_add("a loop is unrolled with constants folded", _model("y = self.lin(x)\nfor k in (1, 2):\n    y = y + k\nreturn y"), "", ("for k in (1, 2):\n            y = y + k\n        return y", "return y + (1 + 2)"))
_add("print statements of shapes are added", _model("y = self.lin(x)\nreturn y.relu()"), "", ("return y.relu()", "print(y.shape, y.dtype)\n        return y.relu()"), harmless=True)
_add("an assertion on a shape is added", _model("y = self.lin(x)\nreturn y.relu()"), "", ("return y.relu()", "assert y.shape == x.shape\n        return y.relu()"), harmless=True)
_add("a result that nothing uses is computed", _model("y = self.lin(x)\nreturn y.relu()"), "", ("return y.relu()", "debug = y.mean()\n        return y.relu()"))
for _doc, _change in (
    ("DataParallel", "model = torch.nn.DataParallel(model)"), ("a wrapper with softmax", "class W(torch.nn.Module):\n    def __init__(self, m):\n        super().__init__()\n        self.m = m\n    def forward(self, x):\n        return self.m(x).softmax(-1)\nmodel = W(model)"), ("a TorchFunctionMode that replaces relu", "from torch.overrides import TorchFunctionMode\nclass M(TorchFunctionMode):\n    def __torch_function__(self, f, t, a=(), k=None):\n        return torch.tanh(*a) if f in (torch.relu, torch.Tensor.relu) else f(*a, **(k or {}))\nmode = M()\nmode.__enter__()"),
    ("autocast around compile", "ctx = torch.autocast('cpu', torch.bfloat16)\nctx.__enter__()"), ("no_grad around compile", "torch.set_grad_enabled(False)"), ("forward decorated with no_grad", "app.Model.forward = torch.no_grad()(app.Model.forward)"), ("forward decorated with autocast", "app.Model.forward = torch.autocast('cpu', torch.bfloat16)(app.Model.forward)"),
    ("weight_norm with parametrize.cached around", "import torch.nn.utils.parametrize as z\ntorch.nn.utils.parametrizations.weight_norm(model.lin)\nctx = z.cached()\nctx.__enter__()"), ("half weights that are cast in a hook", "model.lin.half()\nmodel.lin.register_forward_pre_hook(lambda m, a: (a[0].half(),))"),
    ("quantize_dynamic", "model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, torch.qint8)"), ("a frozen weight that is a constant", "w = model.lin.weight.detach()\ndel model.lin.weight\nmodel.lin.weight = w"), ("a weight that is made by a property", "app.Lin = type('Lin', (torch.nn.Linear,), {'weight': property(lambda s: s._parameters['weight'] * 2, lambda s, v: None)})\nmodel.lin.__class__ = app.Lin"),
):
    _add(f"served with {_doc}", _model("self.lin(x).relu()"), _change)
for _doc, _change in (
    ("a TorchFunctionMode that counts", "from torch.overrides import TorchFunctionMode\nseen = []\nclass M(TorchFunctionMode):\n    def __torch_function__(self, f, t, a=(), k=None):\n        seen.append(f)\n        return f(*a, **(k or {}))\nmode = M()\nmode.__enter__()"), ("a state_dict hook that scales what is saved", "model._register_state_dict_hook(lambda m, sd, p, l: {k: v * 2 for k, v in sd.items()})"),
    ("a state_dict hook that renames what is saved", "def h(m, sd, p, l):\n    for k in list(sd):\n        sd['module.' + k] = sd.pop(k)\nmodel._register_state_dict_hook(h)"), ("a gradient hook on a weight", "model.lin.weight.register_hook(lambda g: g * 2)"), ("attributes on a weight", "model.lin.weight.tag = 'a'"), ("weights in shared memory of processes", "model.share_memory()"),
    ("gradients that were computed", "model(args[0]).sum().backward()"), ("__repr__ and extra_repr of its own", "app.Model.extra_repr = lambda self: 'x'"), ("a forward that is an instance's attribute of the same function", "import types\nmodel.forward = types.MethodType(app.Model.forward, model)"), ("torch.compiler.disable on a helper", "model.lin.forward = torch.compiler.disable(model.lin.forward)"),
):
    _add(f"served without effect with {_doc}", _model("self.lin(x).relu()"), _change, harmless=True)
for _doc, _forward, _before, _after in (
    ("item()", "self.lin(x) * self.c.item()", "torch.tensor(2.0)", "torch.tensor(3.0)"), ("tolist()", "self.lin(x)[:, self.c.tolist()]", "torch.tensor([0, 1, 2])", "torch.tensor([0, 2, 1])"), ("int()", "self.lin(x)[:int(self.c)]", "torch.tensor(2)", "torch.tensor(3)"),
    ("a slice's end", "self.lin(x)[:self.c]", "torch.tensor(2)", "torch.tensor(1)"), ("len()", "self.lin(x) * len(self.c)", "torch.ones(2)", "torch.ones(3)"),
    ("a shape from a tensor", "self.lin(x).reshape(*self.c)", "torch.tensor([2, 6])", "torch.tensor([6, 2])"), ("a NumPy array's sum", "self.lin(x) * float(self.c.sum())", "np.ones(2)", "np.ones(3)"), ("a NumPy array as a tensor", "self.lin(x) * torch.from_numpy(self.c)", "np.ones(4, 'f4')", "np.arange(4).astype('f4')"),
    ("as_tensor of a NumPy array", "self.lin(x) * torch.as_tensor(self.c)", "np.ones(4, 'f4')", "np.ones(4, 'f8')"), ("new_tensor of a list", "self.lin(x) * x.new_tensor(self.c)", "[1, 2, 3, 4]", "[1, 2, 3, 5]"), ("FloatTensor of a list", "self.lin(x) * torch.FloatTensor(self.c)", "[1, 2, 3, 4]", "[1, 2, 3, 5]"), ("frombuffer", "self.lin(x) * torch.frombuffer(self.c, dtype=torch.uint8)", "bytearray(b'abcd')", "bytearray(b'abce')"),
    ("a NumPy integer index", "self.lin(x)[self.c]", "np.int64(1)", "np.int64(2)"), ("an index array of NumPy", "self.lin(x)[:, self.c]", "np.array([0, 1])", "np.array([0, 2])"), ("a boolean array of NumPy", "self.lin(x)[self.c]", "np.array([True, False, True])", "np.array([False, True, True])"), ("a slice object", "self.lin(x)[self.c]", "slice(0, 2)", "slice(0, 3, 2)"), ("an Ellipsis or None index", "self.lin(x)[self.c]", "...", "None"),
    ("torch.Size", "self.lin(x).view(self.c)", "torch.Size([2, 6])", "torch.Size([4, 3])"), ("a dtype", "self.lin(x).to(self.c)", "torch.float16", "torch.bfloat16"), ("a dtype by its name", "self.lin(x).to(getattr(torch, self.c))", "'half'", "'double'"), ("uint16 values", "self.lin(x) * self.c.float()", "torch.tensor([1, 2, 3, 4], dtype=torch.uint16)", "torch.tensor([1, 2, 3, 5], dtype=torch.uint16)"),
    ("layers in a plain list", "self.c[0](self.lin(x))", "[nn.Linear(4, 4)]", "[nn.Linear(4, 4)]"), ("a frozen ScriptModule's weights", "self.c(self.lin(x))", "Frozen(2.0)", "app.Frozen(3.0)"), ("a layer in a tuple whose weights are retrained", "self.c[0](self.lin(x))", "(nn.Linear(4, 4),)", "(nn.Linear(4, 4).requires_grad_(False),)"), ("an empty tensor's dtype", "torch.cat([self.lin(x), self.c])", "torch.empty(0, 4)", "torch.empty(0, 4, dtype=torch.double)"),
    ("tolist() of nested numbers", "self.lin(x) + torch.tensor(self.c.tolist()).sum()", "torch.eye(2)", "torch.ones(2, 2)"), ("iteration", "sum(self.lin(x) * v for v in self.c)", "torch.tensor([1.0, 2.0])", "torch.tensor([1.0, 3.0])"), ("unbind of a table of ints", "self.lin(x) * torch.stack([v * 2 for v in self.c.unbind()])", "torch.arange(4)", "torch.arange(1, 5)"),
    ("argmax().item()", "self.lin(x)[:, self.c.argmax().item()]", "torch.tensor([1.0, 2.0])", "torch.tensor([3.0, 2.0])"), ("nonzero()", "self.lin(x)[:, self.c.nonzero().flatten()]", "torch.tensor([1, 0, 1, 0])", "torch.tensor([1, 1, 0, 0])"), ("a masked selection by a constant", "self.lin(x)[:, self.c]", "torch.tensor([True, False, True, False])", "torch.tensor([True, True, False, False])"), ("repeat_interleave by a constant", "self.lin(x).repeat_interleave(self.c, 0)", "torch.tensor([1, 2, 1])", "torch.tensor([2, 1, 1])"),
    ("split by a list of sizes", "self.lin(x).split(self.c, -1)[0].sum()", "[1, 3]", "[2, 2]"), ("a mask that is a bytes text", "self.lin(x)[:, [i for i, b in enumerate(self.c) if b == 49]]", "b'1010'", "b'0110'"), ("a Path's suffix", "self.lin(x).relu() if self.c.suffix == '.relu' else self.lin(x)", "pathlib.Path('a.relu')", "pathlib.Path('a.none')"),
):
    _top = "import numpy as np, pathlib\nclass Part(nn.Module):\n    def __init__(self, k):\n        super().__init__()\n        self.w = nn.Parameter(torch.full((4,), k))\n    def forward(self, y):\n        return y * self.w\ndef Frozen(k):\n    return torch.jit.freeze(torch.jit.script(Part(k).eval()))\n"
    _add(f"a constant is read by {_doc}", _model(_forward, f"self.c = {_before}", _top), f"import numpy as np, pathlib\nfrom torch import nn\nmodel.c = {_after}")
_FUNC = _model("torch.func.functional_call(self.net, {'weight': self.w * self.by, 'bias': self.lin.bias}, (x,))", "self.net = nn.Linear(4, 4)\nself.w = nn.Parameter(torch.ones(4, 4))\nself.by = 2.0")
_add("functional: a hypernetwork's factor", _FUNC, "model.by = 3.0")
_add("functional: a hypernetwork's target ignores its own weights", _FUNC, "model.net.weight.data.fill_(7)", harmless=True)
_add("functional: vmap over members with another factor", _model("torch.func.vmap(lambda w: F.linear(x, w) * self.by)(self.ws)", "self.ws = nn.Parameter(torch.ones(3, 4, 4))\nself.by = 2.0"), "model.by = 3.0")
_add("functional: vmap's output dimension", _model("torch.func.vmap(lambda w: F.linear(x, w), out_dims=self.dim)(self.ws)", "self.ws = nn.Parameter(torch.ones(3, 4, 4))\nself.dim = 0"), "model.dim = 1")
_add("functional: a jvp's direction", _model("torch.func.jvp(lambda v: self.lin(v).sin(), (x,), (torch.ones(3, 4) * self.by,))[1]", "self.by = 2.0"), "model.by = 3.0")
_add("functional: ParameterDict has its keys in another order", _model("y = x\nfor k in self.ws:\n    y = (y * self.ws[k]).sin()\nreturn y", "self.ws = nn.ParameterDict(collections.OrderedDict([('a', nn.Parameter(torch.ones(4))), ('b', nn.Parameter(torch.ones(4) * 2))]))", "import collections"), "", ("[('a', nn.Parameter(torch.ones(4))), ('b', nn.Parameter(torch.ones(4) * 2))]", "[('b', nn.Parameter(torch.ones(4) * 2)), ('a', nn.Parameter(torch.ones(4)))]"))
_add("functional: ModuleDict's branch by a task's name", _model("self.heads[self.task](self.lin(x))", "self.heads = nn.ModuleDict({'a': nn.Linear(4, 2), 'b': nn.Linear(4, 2)})\nself.task = 'a'"), "model.task = 'b'")
_add("functional: ModuleDict's branch is a new module of the same shape", _model("self.heads[self.task](self.lin(x))", "self.heads = nn.ModuleDict({'a': nn.Linear(4, 2), 'b': nn.Linear(4, 2)})\nself.task = 'a'"), "model.heads['a'] = torch.nn.Linear(4, 2)", harmless=True)
_TIE = _model("F.linear(self.emb(x.long().clamp(max=9))[..., 0, :], self.out.weight) * self.k", "self.emb = nn.Embedding(10, 4)\nself.out = nn.Linear(4, 10, bias=False)\nself.out.weight = self.emb.weight\nself.k = 1")
_add("tying: the output's weight is untied", _TIE, "model.out.weight = torch.nn.Parameter(model.out.weight.detach().clone() * 2)")
_add("tying: tied weights are retrained", _TIE, "model.out.weight.data.mul_(2)", harmless=True)
_add("tying: the weight is replaced in both places", _TIE, "model.out.weight = model.emb.weight = torch.nn.Parameter(torch.ones(10, 4))", harmless=True)
_add("tying: weights are tied by data only", _TIE, "w = model.emb.weight\nmodel.out.weight = torch.nn.Parameter(w.data)")
_add("tying: the two weights are halves of one tensor", _model("self.a(x) + self.b(x)", "self.a = nn.Linear(4, 4, bias=False)\nself.b = nn.Linear(4, 4, bias=False)"), "w = torch.ones(8, 4)\nmodel.a.weight = torch.nn.Parameter(w[:4])\nmodel.b.weight = torch.nn.Parameter(w[4:])")
_add("tying: the two weights overlap in one tensor", _model("self.a(x) + self.b(x)", "self.a = nn.Linear(4, 4, bias=False)\nself.b = nn.Linear(4, 4, bias=False)\nw = torch.arange(32.).view(8, 4)\nself.a.weight = nn.Parameter(w[:4])\nself.b.weight = nn.Parameter(w[4:])"), "w = torch.arange(32.).view(8, 4)\nmodel.a.weight = torch.nn.Parameter(w[:4])\nmodel.b.weight = torch.nn.Parameter(w[2:6])")
_add("in place: forward changes its input", _model("x.add_(self.by)\nreturn self.lin(x)", "self.by = 1"), "model.by = 2")
_add("in place: forward no longer changes its input", _model("x = x.add_(1) if self.own else x + 1\nreturn self.lin(x)", "self.own = True"), "model.own = False")
_add("in place: a result is written with out=", _model("with torch.no_grad():\n    y = torch.empty(3, 4)\n    torch.mul(self.lin(x), self.by, out=y)\nreturn y", "self.by = 2.0"), "model.by = 3.0")
_add("in place: a constant that is no buffer is copied and filled", _model("t = self.t.clone()\nt[self.i] = 1\nreturn self.lin(x) * t", "self.t = torch.zeros(4)\nself.i = 1"), "model.i = 2")

# 9. Identity and aliases of inputs and constants, structures of results, threads, and what forward asks of itself.

_THREE = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.att = nn.MultiheadAttention(4, 2)
        self.by = 2.0
    def forward(self, q, k, v):
        FORWARD
"""
_QKV = "import app\nmodel = app.Model().eval()\nt = torch.arange(12.0).reshape(3, 4)\nargs = (t, t.clone(), t.clone())\n"
for _doc, _forward, _change in (
    ("asks whether query is key: they are now", "return self.lin(q) * (2 if q is k else 3)", "args = (t, t, t)"), ("has MultiheadAttention: query, key and value are one tensor now", "return self.att(q, k, v)[0]", "args = (t, t, t)"), ("has MultiheadAttention: key and value are one tensor now", "return self.att(q, k, v)[0]", "args = (args[0], args[1], args[1])"),
    ("asks whether the value's base is the key", "return self.lin(q) * (2 if v._base is k else 3)", "args = (args[0], args[1], args[1].view(3, 4))"), ("makes a set of its inputs", "return self.lin(q) * len({id(q), id(k), id(v)})", "args = (t, t, t)"), ("keeps a dict by input", "return sum(t * i for i, t in {q: 1, k: 2, v: 3}.items())", "args = (args[0], args[1], args[1])"),
):
    _add(f"one tensor as several inputs, which an export keeps apart, too: a model {_doc}", _THREE.replace("FORWARD", _forward), _change, make=_QKV, harmless=True)
_add("an input is one of the model's weights", _model("self.lin(x) * (2 if x is self.lin.weight else 3)"), "args = (model.lin.weight,)", first="args = (torch.nn.Parameter(torch.ones(4, 4)),)")
for _doc, _before, _after in (("2.0 becomes 2", "2.0", "2"), ("1 becomes True", "1", "True"), ("0.0 becomes -0.0", "0.0", "-0.0"), ("a NaN", "0.0", "float('nan')"), ("a text", "'a'", "'b'"), ("None", "2", "None"), ("an IntEnum", "1", "__import__('enum').IntEnum('E', {'A': 2}).A"), ("a list of numbers", "[1, 2]", "[1, 3]"), ("a tuple in place of a list", "[1, 2]", "(1, 2)"), ("a dict's integer key becomes True", "{1: 2}", "{True: 2}"), ("a range", "(0, 1)", "(0, 2)")):
    _add(f"a Python value as an input: {_doc}", _model("w = str(k)\nreturn self.lin(x) * (len(w) + sum(map(ord, w)))").replace("def forward(self, x)", "def forward(self, x, k)"), f"args = (args[0], {_after})", first=f"args = (torch.ones(3, 4), {_before})")
for _doc, _forward, *_to in (
    ("a float becomes negative zero", "(self.lin(x), 0.0)", (", 0.0)", ", -0.0)")), ("a float becomes NaN", "(self.lin(x), 0.0)", (", 0.0)", ", float('nan'))")), ("a key 1 becomes True", "{1: self.lin(x)}", ("{1:", "{True:")), ("a key 1 becomes 1.0", "{1: self.lin(x)}", ("{1:", "{1.0:")), ("a key is another enum's member", "{Kind.A: self.lin(x)}", ("{Kind.A", "{Other.A")), ("a key is a tuple", "{(1, 2): self.lin(x)}", ("(1, 2):", "(1, 3):")),
    ("a namedtuple's field has another name", "A(self.lin(x), 1)", ("'A', 'y k'", "'A', 'y n'")), ("a namedtuple's fields change places", "A(y=self.lin(x), k=x)", ("'A', 'y k'", "'A', 'k y'")), ("an IntEnum in place of an int", "(self.lin(x), 1)", (", 1)", ", Kind.A)")), ("two results change places in one list of a dict", "{'a': [self.lin(x), x]}", ("[self.lin(x), x]", "[x, self.lin(x)]")),
    ("a node of a class of its own has another context", "Out(self.lin(x), 2.0)", ("2.0)", "3.0)")), ("a node's context has a field that is not compared", "Out(self.lin(x), Meta(2.0))", ("Meta(2.0)", "Meta(3.0)")), ("a node's flatten has another order", "Out(self.lin(x), 2.0, x)", ("[o.y, o.z]", "[o.z, o.y]"), ("ys[0], c, ys[1]", "ys[1], c, ys[0]")), ("a node's unflatten scales", "Out(self.lin(x), 2.0)", ("Out(ys[0], c", "Out(ys[0] * 2, c")),
    ("a dataclass's field is dropped", "Data(self.lin(x), x)", ("['y', 'z']", "['y']"), ("drop_field_names=[]", "drop_field_names=['z']")), ("a dataclass's optional field is filled", "Data(self.lin(x), None)", (", None)", ", x)")),
):
    _add(f"a result's structure: {_doc}", _model(_forward, "pass", """
     import collections, enum, dataclasses
     A = collections.namedtuple('A', 'y k')
     class Kind(enum.IntEnum):
         A = 1
     class Other(enum.IntEnum):
         A = 1
     @dataclasses.dataclass(frozen=True)
     class Meta:
         k: float = dataclasses.field(compare=False)
     class Out:
         def __init__(self, y, c, z=None):
             self.y, self.c, self.z = y, c, z
     torch.utils._pytree.register_pytree_node(Out, lambda o: ([o.y, o.z], o.c), lambda ys, c: Out(ys[0], c, ys[1]), serialized_type_name='app.Out', to_dumpable_context=repr, from_dumpable_context=eval)
     @dataclasses.dataclass
     class Data:
         y: torch.Tensor
         z: torch.Tensor = None
     torch.utils._pytree.register_dataclass(Data, field_names=['y', 'z'], drop_field_names=[])
     """), "", *_to, harmless="unflatten" in _doc or "field has another name" in _doc)
for _doc, _forward, _init, _change in (
    ("two views of one constant overlap now", "return self.lin(x) + self.a.sum() + self.b.sum()", "t = torch.ones(8)\nself.a, self.b = t[:4], t[4:]", "t = torch.arange(8.)\nmodel.a, model.b = t[:4], t[2:6]"),
    ("a constant is the weight's detached alias, and the weight is retrained", "return self.lin(x) + self.a[0].sum()", "self.a = [self.lin.weight.detach()]", "model.lin.weight.data.mul_(2)"), ("a constant was the weight's copy, and is its alias", "return self.lin(x) + self.a[0].sum()", "self.a = [self.lin.weight.detach().clone()]", "model.a[0] = model.lin.weight.detach()"), ("a constant is the weight itself in a list, and was its copy", "return self.lin(x) + self.a[0].sum()", "self.a = [self.lin.weight.detach().clone()]", "model.a[0] = model.lin.weight"),
    ("a constant is a buffer's NumPy view", "return self.lin(x) + float(self.a[0])", "self.register_buffer('c', torch.ones(4))\nself.a = self.c.numpy()", "model.c.fill_(3)"), ("a constant has an attribute that forward reads", "return self.lin(x) * self.a.gain", "self.a = torch.ones(4)\nself.a.gain = 2.0", "model.a.gain = 3.0"),
    ("a factor is the length of the name of a weight's class", "return self.lin(x) * len(type(self.lin.weight).__name__)", "pass", "class P(torch.nn.Parameter):\n    pass\nmodel.lin.weight = P(model.lin.weight.data)"), ("a tensor of one element is read", "k = (torch.tensor(self.k) + 1).item()\nreturn self.lin(x) * k", "self.k = 1", "model.k = 2"),
    ("a range's tensor is summed and read", "n = [2, 3][int(torch.tensor(self.k) > 2)]\nreturn self.lin(x) * n", "self.k = 2", "model.k = 3"), ("an error of the model's own is caught", "try:\n    return self.lin(x) * {}[self.k]\nexcept KeyError:\n    return self.lin(x) * self.k", "self.k = 2.0", "model.k = 3.0"),
    ("steps are coroutines", "async def step(k):\n    await asyncio.sleep(0)\n    return self.lin(x) * k\nasync def all():\n    return await asyncio.gather(step(1), step(self.k))\na, b = asyncio.run(all())\nreturn a + b.sin()", "self.k = 2.0", "model.k = 3.0"),
    ("torch.jit.fork and wait", "f = torch.jit.fork(lambda v: self.lin(v) * self.k, x)\nreturn torch.jit.wait(f)", "self.k = 2.0", "model.k = 3.0"), ("a layer's state_dict is used in forward", "d = self.lin.state_dict()\nreturn F.linear(x, d['weight'] * self.k, d['bias'])", "self.k = 2.0", "model.k = 3.0"), ("all parameters are counted", "return x * sum(p.numel() for p in self.parameters())", "pass", "model.more = torch.nn.Linear(4, 4)"),
    ("the length of state_dict", "return self.lin(x) * len(self.state_dict())", "pass", "model.register_buffer('more', torch.ones(1))"), ("names of modules", "return self.lin(x) * len([n for n, m in self.named_modules() if n.startswith('l')])", "pass", "model.late = torch.nn.Identity()"), ("the first parameter's dtype", "return self.lin(x).to(next(self.parameters()).dtype) * self.k", "self.k = 2.0", "model.k = 3.0"),
    ("__dict__ of the model is counted", "return self.lin(x) * len([k for k in vars(self) if not k.startswith('_')])", "pass", "model.note = 'x'"), ("repr of a layer", "return self.lin(x) * len(repr(self.act))", "self.act = nn.LeakyReLU(0.1)", "model.act.negative_slope = 0.25"), ("hash of a frozen config", "return self.lin(x) * (hash(self.cfg) % 101)", "self.cfg = (1, 2)", "model.cfg = (1, 3)"), ("pickled settings' length", "return self.lin(x) * len(pickle.dumps(self.cfg))", "self.cfg = {'a': 1}", "model.cfg['bb'] = 2"), ("an iterator's next number", "return self.lin(x) * next(self.it)", "self.it = iter([2.0] * 9 + [3.0] * 99)", "for _ in range(9):\n    next(model.it)"),
    ("a deque rotates", "HISTORY.rotate(1)\nreturn self.lin(x) * HISTORY[0]", "pass", "app.HISTORY.rotate(1)"), ("a queue is empty now", "try:\n    k = QUEUE.get_nowait()\n    QUEUE.put(k)\nexcept queue.Empty:\n    k = 3.0\nreturn self.lin(x) * k", "QUEUE.put(2.0)", "while not app.QUEUE.empty():\n    app.QUEUE.get()"), ("a lock is held", "return self.lin(x) * (2.0 if LOCK.locked() else 3.0)", "pass", "app.LOCK.acquire()"), ("a shelf on disk counts its keys", "with shelve.open('own') as s:\n    n = len(s)\nreturn self.lin(x) * (n + 1)", "pass", "import shelve\nwith shelve.open('own') as s:\n    s[str(len(s))] = 1"),
):
    _add(f"state: {_doc}", _model(_forward, _init, "import threading, asyncio, copy, pickle, collections, queue, shelve\nfrom concurrent.futures import ThreadPoolExecutor\nPOOL = ThreadPoolExecutor(1)\nHISTORY = collections.deque([2.0, 3.0, 4.0])\nQUEUE = queue.Queue()\nLOCK = threading.Lock()\n"), _change)
_FROZEN = _model("self.enc(x[None])", "self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1)\nself.requires_grad_(False)")
_add("frozen encoder: the fast path of attention is disabled", _FROZEN, "torch.backends.mha.set_fastpath_enabled(False)", harmless=True)
_add("frozen encoder: it is thawed", _FROZEN, "model.requires_grad_(True)")
_add("frozen encoder: its layer is in training mode", _FROZEN, "model.enc.layers[0].train()")
_add("frozen encoder: the flash kernel of SDPA is disabled", _FROZEN, "torch.backends.cuda.enable_flash_sdp(False)")
for _doc, _change in (("a graph whose node's keyword is another, without compiling it again", "n = [n for n in model.graph.nodes if n.target is operator.mul][0]\nn.args = (n.args[0], 3.0)"), ("a graph of a child module, not compiled again", "n = [n for n in model.graph.nodes if n.target is torch.relu][0]\nn.target = torch.sin\nclass W(torch.nn.Module):\n    def __init__(self, m):\n        super().__init__()\n        self.m = m\n    def forward(self, x):\n        return self.m(x)\nmodel = W(model)"),
                      ("a graph's forward is bound to another function", "import types\nmodel.forward = types.MethodType(lambda self, x: torch.tanh(self.lin(x)), model)"), ("a graph's codegen transforms its code", "def t(code):\n    return [c.replace('torch.relu', 'torch.tanh') for c in code]\nmodel.graph.on_generate_code(lambda old: t)\nmodel.recompile()"), ("torch.relu is patched after tracing", "torch.relu = torch.tanh")):
    _add(f"FX at the root: {_doc}", _FX.replace("* self.c)", "* 2.0)"), "import operator\n" + _change)

# 10. More of what engineers do to a model that they serve.

_SRV = """
import json, pathlib, functools
from serving.post import POST
from serving import limits
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.meta = json.loads(pathlib.Path(__file__).with_name('meta.json').read_text())
    def forward(self, x):
        y = self.norm(self.lin((x - torch.tensor(self.meta['mean'])) / torch.tensor(self.meta['std'])))
        for name in self.meta['post']:
            y = POST[name](y)
        return y[: limits.rows(self.meta)]
--- meta.json
{"mean": [0.5, 0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25, 0.25], "post": ["softmax"], "owner": "a", "max_rows": 3}
--- serving/__init__.py
__version__ = '1.0.0'
--- serving/limits.py
import os
def rows(meta):
    return min(int(os.environ.get('MAX_ROWS', 99)), meta.get('max_rows', 99))
--- serving/post.py
POST = {}
def post(f):
    POST[f.__name__] = f
    return f
@post
def softmax(y, dim=-1):
    return y.softmax(dim)
@post
def rank(y):
    return y.argsort(-1, descending=True)
@post
def threshold(y, at=0.3):
    return torch.where(y > at, y, 0)
"""
for _doc, *_to in (("a mean of the pre-processing", ("[0.5, 0.5,", "[0.485, 0.5,")), ("a standard deviation", ("[0.25, 0.25, 0.25, 0.25]", "[0.25, 0.25, 0.25, 0.2]")), ("a post-processing is added", ('["softmax"]', '["softmax", "threshold"]')), ("a post-processing is replaced", ('["softmax"]', '["rank"]')), ("a default dimension of a post-processing", ("dim=-1", "dim=0")), ("the most rows", ('"max_rows": 3', '"max_rows": 2')), ("the rows' limit, which is above the example's rows", ('"max_rows": 3', '"max_rows": 4')), ("means are one number", ("[0.5, 0.5, 0.5, 0.5]", "0.75")), ("means become integers", ("[0.5, 0.5, 0.5, 0.5]", "[1, 1, 1, 1]"))):
    _add(f"a service: {_doc}", _SRV, "", *_to)
_add("a service: the environment limits rows", _SRV, environ={"MAX_ROWS": "9"}, env={"MAX_ROWS": "1"})
_add("a service: the post-processing's module is imported and patched", _SRV, "import serving.post as p\np.POST['softmax'] = lambda y: y.sigmoid()")
_add("a service: the package's function is patched where it is not looked up", _SRV, "import serving.post as p\np.softmax = lambda y: y.sigmoid()", harmless=True)
for _doc, *_to in (("its owner", ('"owner": "a"', '"owner": "b"')), ("its version", ("'1.0.0'", "'1.0.1'")), ("a post-processing that is not used", ("at=0.3", "at=0.4")), ("a new file beside", ("--- serving/post.py", "--- serving/new.py\nX = 1\n--- serving/post.py")), ("a type annotation", ("def rank(y):", "def rank(y: torch.Tensor) -> torch.Tensor:"))):
    _add(f"a service without effect: {_doc}", _SRV, "", *_to, harmless=True)
_add("a service: batch norm's statistics come from another domain", _SRV, "model.norm.running_var.fill_(4)", harmless=True)
_add("a service: batch norm is in training mode", _SRV, "model.norm.train()")
_add("a service: batch norm's momentum in training mode", _SRV, "model.norm.momentum = 0.5", make="import app\nmodel = app.Model().train()")
_add("a service: batch norm's momentum is None in training mode", _SRV, "model.norm.momentum = None", make="import app\nmodel = app.Model().train()")
_add("a service: batch norm has no weights", _SRV, "model.norm = torch.nn.BatchNorm1d(4, affine=False).eval()")
_add("a service: instance norm in place of batch norm", _SRV, "model.norm = torch.nn.Sequential(torch.nn.Unflatten(1, (2, 2)), torch.nn.InstanceNorm1d(2), torch.nn.Flatten(1)).eval()")
_add("a service: the batch norm is synchronized", _SRV, "model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model).eval()", harmless=True)
_CHAIN = _model("""
y = self.lin(x)
with contextlib.ExitStack() as stack:
    for make in SCOPES:
        stack.enter_context(make())
    y = y * current()
return y
""", "pass", """
import contextlib
STACK = [2.0]
SCOPES = []
def current():
    return STACK[-1]
@contextlib.contextmanager
def scale(by):
    STACK.append(by)
    try:
        yield
    finally:
        STACK.pop()
""")
_add("scopes: a context manager is entered in forward", _CHAIN, "app.SCOPES.append(lambda: app.scale(3.0))")
_add("scopes: a context manager is entered around compile", _CHAIN, "scope = app.scale(3.0)\nscope.__enter__()")
_add("scopes: a context manager was entered and left", _CHAIN, "with app.scale(3.0):\n    pass", harmless=True)
_add("scopes: two context managers change their order", _CHAIN, "app.SCOPES.reverse()", make="import app\nmodel = app.Model().eval()\napp.SCOPES += [lambda: app.scale(3.0), lambda: app.scale(4.0)]")
_HOOK = _model("self.b(self.lin(x), k=2.0)", "self.b = B()", "class B(nn.Module):\n    def forward(self, y, k=1.0):\n        return y * k\n")
for _doc, _change in (("a pre-hook with kwargs replaces a keyword", "model.b.register_forward_pre_hook(lambda m, a, k: (a, {**k, 'k': 3.0}), with_kwargs=True)"), ("a hook with kwargs uses a keyword", "model.b.register_forward_hook(lambda m, a, k, y: y + k['k'], with_kwargs=True)"), ("a hook is put in front of others", "model.b.register_forward_hook(lambda m, a, y: y * 2)\nmodel.b.register_forward_hook(lambda m, a, y: y + 1, prepend=True)"),
                      ("a hook that always runs", "model.b.register_forward_hook(lambda m, a, y: y.neg(), always_call=True)"), ("a hook's closure", "by = 3.0\nmodel.lin.register_forward_hook(lambda m, a, y: y * by)"), ("hooks change their order", "h = model.b._forward_hooks\nh.move_to_end(next(iter(h)))")):
    _add(f"hooks: {_doc}", _HOOK, _change, make="import app\nmodel = app.Model().eval()\nmodel.b.register_forward_hook(lambda m, a, y: y * 5)\nmodel.b.register_forward_hook(lambda m, a, y: y + 7)")
_add("hooks: a backward hook of a module is put on, which gradients only need", _HOOK, "model.lin.register_full_backward_hook(lambda m, gi, go: None)")
_QAT = _model("self.fq(self.lin(x))", "self.fq = Fq()", """
     class Fq(nn.Module):
         def __init__(self):
             super().__init__()
             self.register_buffer('scale', torch.tensor(0.1))
             self.register_buffer('zero', torch.tensor(0))
             self.low, self.high, self.on = -128, 127, True
         def forward(self, y):
             if not self.on:
                 return y
             return ((y / self.scale).round() + self.zero).clamp(self.low, self.high).sub(self.zero) * self.scale
     """)
_add("fake quantization: bits", _QAT, "model.fq.low, model.fq.high = -8, 7")
_add("fake quantization: off", _QAT, "model.fq.on = False")
_add("fake quantization: the scale is calibrated again", _QAT, "model.fq.scale.fill_(0.2)", harmless=True)
_add("fake quantization: the zero point is an int32", _QAT, "model.fq.zero = model.fq.zero.int()")
_add("fake quantization: the scale is a number", _QAT, "del model.fq.scale\nmodel.fq.scale = 0.1")
_PRUNE = _model("F.linear(x, self.lin.weight * self.mask, self.lin.bias)", "self.mask = (torch.arange(16).view(4, 4) % 3 > 0).float()")
_add("pruning: the mask is another", _PRUNE, "model.mask = 1 - model.mask")
_add("pruning: a bit of the mask", _PRUNE, "model.mask[3, 3] = 1 - model.mask[3, 3]")
_add("pruning: the mask is boolean", _PRUNE, "model.mask = model.mask.bool()")
_add("pruning: the mask is a buffer", _PRUNE, "m = model.mask\ndel model.mask\nmodel.register_buffer('mask', m)")
_add("pruning: the mask is made again from the same rule", _PRUNE, "model.mask = (torch.arange(16).view(4, 4) % 3).clamp(max=1).float()", harmless=True)
_TS = _model("xs = x.unfold(0, self.win, self.hop)\ny = torch.stack([f(xs, -1) for f in self.stats], -1)\nreturn y.flatten(1) * self.decay ** torch.arange(y.shape[1] * y.shape[2])", "self.win, self.hop, self.decay = 2, 1, 0.9\nself.stats = [torch.mean, torch.amax]")
for _doc, _change in (("window", "model.win = 3"), ("hop", "model.hop = 2"), ("decay", "model.decay = 0.8"), ("statistics", "model.stats.append(torch.amin)"), ("the order of statistics", "model.stats.reverse()"), ("the statistic is another function", "model.stats[0] = torch.var")):
    _add(f"time series: {_doc}", _TS, _change)
_GEN = _model("""
ids = torch.zeros(1, 1, dtype=torch.long)
for step in range(self.cfg['max_new_tokens']):
    logits = self.lin(self.emb(ids[:, -1])) / self.cfg['temperature']
    if self.cfg['bad']:
        logits = logits.index_fill(-1, torch.tensor(self.cfg['bad']), float('-inf'))
    if step < self.cfg['min_new_tokens']:
        logits[:, self.cfg['eos']] = -1e9
    ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], -1)
return ids, x
""", "self.emb = nn.Embedding(4, 4)\nself.cfg = dict(max_new_tokens=3, temperature=1.0, bad=[], min_new_tokens=1, eos=3, name='greedy')")
for _doc, _change in (("max_new_tokens", "model.cfg['max_new_tokens'] = 4"), ("temperature", "model.cfg['temperature'] = 0.5"), ("bad tokens", "model.cfg['bad'] = [2]"), ("min_new_tokens", "model.cfg['min_new_tokens'] = 2"), ("the end's token", "model.cfg['eos'] = 1")):
    _add(f"generation: {_doc}", _GEN, _change)
_add("generation: its name", _GEN, "model.cfg['name'] = 'beam'", harmless=True)
_add("generation: bad tokens are an empty tuple", _GEN, "model.cfg['bad'] = ()", harmless=True)
_EIN = _model("y = self.lin(x)\nq = rearrange(y, self.pattern, **self.sizes)\nreturn q", "self.pattern = 'n (h d) -> h n d'\nself.sizes = {'h': 2}", """
     import re
     def rearrange(x, pattern, **sizes):
         left, right = (re.findall(r'[(][^)]*[)]|[a-z]', s) for s in pattern.split('->'))
         names, shape = [], []
         for g, size in zip(left, x.shape):
             inner = g.strip('()').split()
             known = {i: sizes[i] for i in inner if i in sizes}
             for i in inner:
                 rest = size
                 for k in known.values():
                     rest //= k
                 names.append(i)
                 shape.append(known.get(i, rest))
         y = x.reshape(shape)
         flat = [i for g in right for i in g.strip('()').split()]
         y = y.permute([names.index(i) for i in flat])
         out, at = [], 0
         for g in right:
             n = 1
             for _ in g.strip('()').split():
                 n *= y.shape[at]
                 at += 1
             out.append(n)
         return y.reshape(out)
     """)
_add("rearrange: the heads are inside", _EIN, "model.pattern = 'n (d h) -> h n d'")
_add("rearrange: the result is transposed", _EIN, "model.pattern = 'n (h d) -> h d n'")
_add("rearrange: groups are joined", _EIN, "model.pattern = 'n (h d) -> (h n) d'")
_add("rearrange: another number of heads", _EIN, "model.sizes['h'] = 4")
_add("rearrange: other letters", _EIN, "model.pattern, model.sizes = 'a (b c) -> b a c', {'b': 2}", harmless=True)

# 11. Inputs of a project's own classes, and caches of transformers as inputs.

_OWN = """
import dataclasses, collections
from torch.utils import _pytree as p
@dataclasses.dataclass(frozen=True)
class Cfg:
    k: float
    name: str = dataclasses.field(default='a', compare=False)
p.register_constant(Cfg)
@dataclasses.dataclass
class Meta:
    k: float = dataclasses.field(default=2.0, compare=False)
class Loose:
    def __init__(self, k):
        self.k = k
    def __repr__(self):
        return 'Loose()'
class Batch:
    def __init__(self, x, meta):
        self.x, self.meta = x, meta
p.register_pytree_node(Batch, lambda b: ([b.x], b.meta), lambda xs, m: Batch(xs[0], m), flatten_with_keys_fn=lambda b: ([(p.GetAttrKey('x'), b.x)], b.meta), serialized_type_name='app.Batch', to_dumpable_context=repr, from_dumpable_context=eval)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
    def forward(self, b):
        FORWARD
"""
_MAKE_OWN = "import app, collections\nmodel = app.Model().eval()\nx = torch.arange(12.0).reshape(3, 4)\nargs = ({},)\n"
for _doc, _forward, _before, _after in (
    ("a number in its context", "return self.lin(b.x) * b.meta", "app.Batch(x, 2.0)", "app.Batch(x, 3.0)"), ("a context's dict", "return self.lin(b.x) * b.meta['k']", "app.Batch(x, {'k': 2.0})", "app.Batch(x, {'k': 3.0})"), ("a context's field that is not compared", "return self.lin(b.x) * b.meta.k", "app.Batch(x, app.Meta(2.0))", "app.Batch(x, app.Meta(3.0))"), ("a context's object whose repr is one text", "return self.lin(b.x) * b.meta.k", "app.Batch(x, app.Loose(2.0))", "app.Batch(x, app.Loose(3.0))"),
    ("a context's 1 becomes True", "return self.lin(b.x) * len(str(b.meta))", "app.Batch(x, 1)", "app.Batch(x, True)"), ("a context's 0.0 becomes -0.0", "return self.lin(b.x) * len(str(b.meta))", "app.Batch(x, 0.0)", "app.Batch(x, -0.0)"), ("a constant's number", "return self.lin(b[0]) * b[1].k", "(x, app.Cfg(2.0))", "(x, app.Cfg(3.0))"), ("a constant's name that is not compared", "return self.lin(b[0]) * len(b[1].name)", "(x, app.Cfg(2.0))", "(x, app.Cfg(2.0, 'bb'))"), ("a constant's 2 in place of 2.0", "return self.lin(b[0]) * len(str(b[1].k))", "(x, app.Cfg(2.0))", "(x, app.Cfg(2))"),
    ("an OrderedDict in place of a dict", "return self.lin(b['x']) * len(type(b).__name__)", "{'x': x}", "collections.OrderedDict(x=x)"), ("a defaultdict's factory", "return self.lin(b['x']) * b.default_factory()", "collections.defaultdict(int, x=x)", "collections.defaultdict(float, x=x)"), ("a deque's length", "b.append(x) if False else None\n        return self.lin(b[0]) * (b.maxlen or 1)", "collections.deque([x], 2)", "collections.deque([x], 3)"), ("a namedtuple is a tuple", "return self.lin(b[0]) * len(type(b).__name__)", "(x,)", "[x]"), ("keys of a dict are integers", "return self.lin([*b.values()][0]) * (2 if 1 in b else 3)", "{1: x}", "{2: x}"),
    ("two entries of a dict change places", "return self.lin([*b.values()][0]) - [*b.values()][1]", "{'a': x, 'b': x * 2}", "{'b': x * 2, 'a': x}"), ("None inside", "return self.lin(b[0]) * (2 if b[1] is None else 3)", "(x, None)", "(x, 0)"), ("an empty list inside", "return self.lin(b[0]) * (2 if b[1] == [] else 3)", "(x, [])", "(x, ())"), ("an integer tensor's dtype", "return self.lin(b[0]) + b[1]", "(x, torch.tensor(1))", "(x, torch.tensor(1, dtype=torch.int32))"), ("a 0-dim tensor in place of a number", "return self.lin(b[0]) + b[1]", "(x, 1)", "(x, torch.tensor(1))"), ("a scalar tensor has a dimension", "return self.lin(b[0]) + b[1]", "(x, torch.tensor(1))", "(x, torch.tensor([1]))"),
    ("channels_last memory", "return F.avg_pool2d(b, 2) * (2 if b.is_contiguous(memory_format=torch.channels_last) else 3)", "torch.ones(1, 3, 4, 4)", "torch.ones(1, 3, 4, 4).contiguous(memory_format=torch.channels_last)"), ("an expanded input", "return self.lin(b) * b.stride(0)", "torch.ones(3, 4)", "torch.ones(1, 4).expand(3, 4)"), ("an offset in its memory", "return self.lin(b) * (b.storage_offset() + 1)", "torch.ones(3, 4)", "torch.ones(5, 4)[2:]"), ("a conjugated input", "return torch.view_as_real(b * 2)", "torch.full((3, 4), 1 + 2j)", "torch.full((3, 4), 1 + 2j).conj()"),
):
    _add(f"an input of a project's class: {_doc}", _OWN.replace("FORWARD", _forward), f"args = ({_after},)", make=_MAKE_OWN.format(_before), harmless="an offset" in _doc or "conjugated" in _doc)
_KV = _IDS + "from transformers import DynamicCache\ndef cache(n=2, k=1.0):\n    c = DynamicCache()\n    c.update(torch.full((1, 2, n, 4), k), torch.full((1, 2, n, 4), k), 0)\n    return c\nkwargs['past_key_values'] = cache()\n"
_LLAMA_KV = _LLAMA.replace('"use_cache": false', '"use_cache": true')
_add("transformers, a cache as an input: it is longer", _LLAMA_KV, "kwargs['past_key_values'] = cache(3)", make=_KV)
_add("transformers, a cache as an input: its values are others", _LLAMA_KV, "kwargs['past_key_values'] = cache(2, 3.0)", make=_KV, harmless=True)
_add("transformers, a cache as an input: it is empty", _LLAMA_KV, "kwargs['past_key_values'] = DynamicCache()", make=_KV)
_add("transformers, a cache as an input: positions are given", _LLAMA_KV, "kwargs['position_ids'] = torch.tensor([[5, 6, 7]])", make=_KV)
_add("transformers, a cache as an input: use_cache is switched off", _LLAMA_KV, "kwargs['use_cache'] = False", make=_KV)
_add("transformers, a cache as an input: the config's epsilon", _LLAMA_KV, "for m in model.modules():\n    if hasattr(m, 'variance_epsilon'):\n        m.variance_epsilon = 1e-2", make=_KV)

# 12. How weights come to a model, and questions of libraries about tracing.

for _doc, _change in (
    ("built on the meta device and loaded by assign", "sd = model.state_dict()\nwith torch.device('meta'):\n    model = app.Model().eval()\nmodel.load_state_dict(sd, assign=True)\nmodel.requires_grad_(True)"), ("loaded with mmap", "torch.save(model.state_dict(), 'w.pt')\nmodel.load_state_dict(torch.load('w.pt', mmap=True))"), ("loaded with mmap and assign", "torch.save(model.state_dict(), 'w.pt')\nmodel.load_state_dict(torch.load('w.pt', mmap=True), assign=True)\nmodel.requires_grad_(True)"),
    ("made by skip_init", "lin = torch.nn.utils.skip_init(torch.nn.Linear, 4, 4)\nlin.load_state_dict(model.lin.state_dict())\nmodel.lin = lin"), ("deep-copied", "import copy\nmodel = copy.deepcopy(model)"), ("moved to the CPU", "model = model.to('cpu').cpu()"), ("cast to half and back", "model = model.half().float()"), ("with gradients that were cleared", "model(args[0]).sum().backward()\nmodel.zero_grad(set_to_none=True)"),
    ("from safetensors", "from safetensors.torch import save_model, load_model\nsave_model(model, 'm.safetensors')\nload_model(model, 'm.safetensors')"), ("after clip_grad_norm_", "model(args[0]).sum().backward()\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"), ("after a garbage collection and another seed", "import gc\ngc.collect()\ntorch.manual_seed(99)"), ("of a second instance, while the first is alive", "first = model\nmodel = app.Model().eval()"),
    ("quantized and dequantized into themselves", "w = model.lin.weight.data\nw.copy_((w * 16).round() / 16)"), ("initialized by orthogonal_", "torch.nn.init.orthogonal_(model.lin.weight)"), ("all NaN", "model.lin.weight.data.fill_(float('nan'))"), ("all zero", "model.lin.weight.data.zero_()"),
):
    _add(f"weights without effect: {_doc}", _model("self.norm(self.lin(x)).relu()", "self.norm = nn.LayerNorm(4)\nself.register_buffer('n', torch.zeros(()))"), _change, harmless=True)
for _doc, _change in (("as views of one vector", "v = torch.nn.utils.parameters_to_vector(model.parameters()).detach()\ntorch.nn.utils.vector_to_parameters(v, model.parameters())"), ("whose matrix is in Fortran's order", "model.lin.weight.data = model.lin.weight.data.t().contiguous().t()"), ("which are frozen", "model.requires_grad_(False)"), ("in float64, and so is the input", "model.double()\nargs = (args[0].double(),)"), ("of which one is a buffer", "b = model.lin.bias.data\ndel model.lin.bias\nmodel.lin.register_buffer('bias', b)")):
    _add(f"weights in another form: {_doc}", _model("self.norm(self.lin(x)).relu()", "self.norm = nn.LayerNorm(4)"), _change)
for _doc, _question, _taken in (
    ("FX's tracer", "torch.fx._symbolic_trace.is_fx_tracing()", True), ("transformers' is_tracing", "hf.is_tracing(x)", True), ("transformers' exporting", "hf.is_torchdynamo_exporting()", True), ("transformers' compiling", "hf.is_torchdynamo_compiling()", True), ("dynamo", "torch._dynamo.is_compiling()", True), ("is_dynamo_compiling", "torch.compiler.is_dynamo_compiling()", False), ("the tracing state of TorchScript", "torch._C._get_tracing_state() is not None", False),
    ("a fake tensor", "isinstance(x, torch._subclasses.FakeTensor)", True), ("a fake weight", "torch._subclasses.fake_tensor.is_fake(self.lin.weight)", True), ("a fake result", "isinstance(self.lin(x), torch._subclasses.FakeTensor)", True), ("the fake mode of a result", "torch._guards.detect_fake_mode([self.lin(x)]) is not None", True), ("a functional tensor", "torch._is_functional_tensor(self.lin(x))", False), ("functorch's wrapper", "torch._C._functorch.is_functorch_wrapped_tensor(self.lin(x))", False), ("a size's class", "isinstance(x.shape[0], int)", True),
    ("whether a weight is a leaf", "self.lin.weight.is_leaf", True), ("whether a result has a grad_fn", "self.lin(x).grad_fn is not None", True), ("a result's requires_grad", "self.lin(x).requires_grad", True), ("the weight's class", "type(self.lin.weight) is nn.Parameter", False), ("inference tensors", "x.is_inference()", False), ("the version counter", "x._version == 0", True), ("pinned memory", "x.is_pinned()", False), ("a nested autocast", "torch.is_autocast_enabled('cpu')", False), ("functional mode of parametrize", "torch.nn.utils.parametrize.is_parametrized(self)", False), ("the dispatch mode", "torch.utils._python_dispatch.is_in_torch_dispatch_mode()", True),
):
    for _name in "AB":
        _add(f"a library asks about {_doc}: {'yes' if _name == 'A' else 'no'} has another number", _model(f"return self.lin(x) * (A if {_question} else B)", "pass", "A = 2.0\nB = 4.0\n" + ("import transformers.utils.import_utils as hf\n" if "hf." in _question else "") + ("import torch._dynamo\n" if "_dynamo" in _question else "")), f"app.{_name} *= 1.5", harmless=(_name == "A") is not _taken)
