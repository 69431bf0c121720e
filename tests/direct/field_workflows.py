"""Whole workflows: small projects with configs, checkpoints, surgery and caches, and what is done to them. Added to ``field_scenarios``."""

# fmt: off
# ruff: noqa: E501
from __future__ import annotations

from tests.direct.field_scenarios import MAKE, _add, _model


def _edit(doc: str, before: str, after: str, init: str = "pass", top: str = "", **more: object) -> None:
    """Add a scenario: the statements of forward are edited."""
    _add(doc, _model(before, init, top), "", (_model(before, init, top), _model(after, init, top)), **more)


def _inputs(code: str) -> str:
    return f"{MAKE}{code}\n"


# 1. Files that a project reads: configurations, tables, checkpoints, flags.

_YAML = "import yaml\nfrom pathlib import Path\ndef load():\n    cfg = {}\n    for path in sorted(Path('conf').glob('*.yaml')):\n        cfg.update(yaml.safe_load(path.read_text()))\n    return cfg\nCFG = load()\n"
_add("workflow: a yaml of overrides appears next to the base one", _model("x * CFG['by']", top=_YAML) + "--- conf/a_base.yaml\nby: 2.0\nname: a\n", "", added="--- conf/b_local.yaml\nby: 3.0\n")
_add("workflow: a yaml of overrides appears that only renames the run", _model("x * CFG['by']", top=_YAML) + "--- conf/a_base.yaml\nby: 2.0\nname: a\n", "", added="--- conf/b_local.yaml\nname: b\n", harmless=True)
_add("workflow: an anchor in a yaml is merged into another block", _model("x * CFG['block']['by']", top=_YAML) + "--- conf/a.yaml\none: &one {by: 2.0}\ntwo: &two {by: 3.0}\nblock:\n  <<: *one\n", "", ("<<: *one", "<<: *two"))
_add("workflow: an interpolated entry of an ini file follows another section",
     _model("x * CFG.getfloat('model', 'by')", top="import configparser\nCFG = configparser.ConfigParser()\nCFG.read('run.ini')\n") + "--- run.ini\n[DEFAULT]\ngain = 2.0\n[model]\nby = %(gain)s\n", "", ("gain = 2.0", "gain = 3.0"))
_CKPT = "import torch, app\nsaved = {'cfg': {'eps': %s}, 'state': app.Model().state_dict()}\nfor v in saved['state'].values():\n    v.add_(%s)\ntorch.save(saved, 'last.pt')\n"
_CKPT_MAKE = "import app\nsaved = torch.load('last.pt')\nmodel = app.Model(**saved['cfg']).eval()\nmodel.load_state_dict(saved['state'])\n"
_CKPT_TEXT = "class Model(nn.Module):\n    def __init__(self, eps=1e-5):\n        super().__init__()\n        self.lin = nn.Linear(4, 4)\n        self.norm = nn.LayerNorm(4, eps=eps)\n    def forward(self, x):\n        return self.norm(self.lin(x))\n"
_add("workflow: a checkpoint has another eps in its configuration", _CKPT_TEXT, "", first=_CKPT % ("1e-5", 0.0), second=_CKPT % ("1e-3", 0.0), make=_CKPT_MAKE)
_add("workflow: a checkpoint was trained further", _CKPT_TEXT, "", first=_CKPT % ("1e-5", 0.0), second=_CKPT % ("1e-5", 0.5), make=_CKPT_MAKE, harmless=True)
_add("workflow: a pickled configuration object has another field's value", _model("x * CFG.by", top="import pickle\nfrom settings import Settings\nCFG = pickle.load(open('cfg.pkl', 'rb'))\n") + "--- settings.py\nclass Settings:\n    by = 2.0\n", "",
     first="import pickle, settings\npickle.dump(settings.Settings(), open('cfg.pkl', 'wb'))\n", second="import pickle, settings\ns = settings.Settings()\ns.by = 3.0\npickle.dump(s, open('cfg.pkl', 'wb'))\n")
_add("workflow: a flag file says that the fast path is used", _model("F.gelu(x, approximate='tanh') if Path('flags/fast').exists() else F.gelu(x)", top="from pathlib import Path\n") + "--- flags/readme.txt\nempty\n", "", added="--- flags/fast\n1\n")
_add("workflow: another flag file appears", _model("F.gelu(x, approximate='tanh') if Path('flags/fast').exists() else F.gelu(x)", top="from pathlib import Path\n") + "--- flags/readme.txt\nempty\n", "", added="--- flags/verbose\n1\n", harmless=True)
_add("workflow: a feature is switched on at a date in a file", _model("x * (3.0 if time.time() > DATE else 2.0)", top="import time\nDATE = float(open('date.txt').read())\n") + "--- date.txt\n9e12\n", "", ("9e12", "1.0"))
_add("workflow: class weights in a csv are others", _model("x * self.weights", "self.weights = torch.tensor([float(v) for row in csv.reader(open('weights.csv')) for v in row])", "import csv\n") + "--- weights.csv\n1.0,2.0\n3.0,4.0\n", "", ("3.0,4.0", "3.0,4.5"))
_add("workflow: a file of labels has one more, and forward slices by their number", _model("x[:, :len(self.labels)]", "self.labels = open('labels.txt').read().split()") + "--- labels.txt\ncat dog\n", "", ("cat dog", "cat dog cow"))
_add("workflow: a label is renamed", _model("x[:, :len(self.labels)]", "self.labels = open('labels.txt').read().split()") + "--- labels.txt\ncat dog\n", "", ("cat dog", "cat hog"), harmless=True)
_add("workflow: anchors are loaded lazily from a NumPy file", _model("x + self.anchors", top="import functools\nimport numpy as np\n", more="@functools.cached_property\ndef anchors(self):\n    return torch.from_numpy(np.load('anchors.npy'))\n"), "",
     first="import numpy as np\nnp.save('anchors.npy', np.arange(4, dtype='f4'))\n", second="import numpy as np\nnp.save('anchors.npy', np.arange(4, dtype='f4') + 1)\n")
_add("workflow: a table of safetensors is not persistent", _model("x * self.table", "self.register_buffer('table', load_file('t.safetensors')['t'], persistent=False)", "from safetensors.torch import load_file\n"), "",
     first="from safetensors.torch import save_file\nsave_file({'t': torch.ones(4)}, 't.safetensors')\n", second="from safetensors.torch import save_file\nsave_file({'t': torch.ones(4) * 2}, 't.safetensors')\n")
_add("workflow: a data file inside a package is edited", _model("x * BY", top="import importlib.resources\nBY = float(importlib.resources.files('pkg').joinpath('by.txt').read_text())\n") + "--- pkg/__init__.py\n--- pkg/by.txt\n2.0\n", "", ("by.txt\n2.0", "by.txt\n3.0"))
_add("workflow: the link to the current configuration points to another", _model("x * json.load(open('current/c.json'))['by']", top="import json\n") + "--- v1/c.json\n{\"by\": 2.0}\n--- v2/c.json\n{\"by\": 3.0}\n", "",
     first="import os\nos.path.lexists('current') and os.unlink('current')\nos.symlink('v1', 'current')\n", second="import os\nos.path.lexists('current') and os.unlink('current')\nos.symlink('v2', 'current')\n")
_add("workflow: the link to the current configuration points to an equal copy", _model("x * json.load(open('current/c.json'))['by']", top="import json\n") + "--- v1/c.json\n{\"by\": 2.0}\n--- v2/c.json\n{\"by\": 2.0}\n", "",
     first="import os\nos.path.lexists('current') and os.unlink('current')\nos.symlink('v1', 'current')\n", second="import os\nos.path.lexists('current') and os.unlink('current')\nos.symlink('v2', 'current')\n", harmless=True)
_add("workflow: a row of an sqlite table of hyperparameters is updated", _model("x * DB.execute('select v from p').fetchone()[0]", top="import sqlite3\nDB = sqlite3.connect(':memory:')\nDB.execute('create table p (v real)')\nDB.execute('insert into p values (2.0)')\n"), "app.DB.execute('update p set v = 3.0')")
_add("workflow: an option of the command line is another", _model("x * ARGS.by", top="import argparse\nP = argparse.ArgumentParser()\nP.add_argument('--by', type=float, default=2.0)\nP.add_argument('--name')\nARGS = P.parse_args()\n"), "", first="import sys\nsys.argv = ['a.py', '--name', 'a']\n", second="import sys\nsys.argv = ['a.py', '--by', '3']\n")
_add("workflow: the name of the run on the command line is another", _model("x * ARGS.by", top="import argparse\nP = argparse.ArgumentParser()\nP.add_argument('--by', type=float, default=2.0)\nP.add_argument('--name')\nARGS = P.parse_args()\n"), "", first="import sys\nsys.argv = ['a.py', '--name', 'a']\n", second="import sys\nsys.argv = ['a.py', '--name', 'b']\n", harmless=True)
_add("workflow: a variable of the environment turns on a fused path that is the same but for a contiguous", _model("y = self.lin(x).t()\nif os.environ.get('FUSED') == '1':\n    y = y.contiguous()\nreturn y.reshape(-1)", top="import os\n"), "", env={"FUSED": "1"})
_add("workflow: a directive in a comment of the model's own file is read", _model("x * BY", top="import re\n# scale: 2.0\nBY = float(re.search('# scale: (.*)', open(__file__).read())[1])\n"), "", ("# scale: 2.0", "# scale: 3.0"))
_add("workflow: a vendored package is upgraded, and its version decides", _model("x * (2.0 if importlib.metadata.version('fieldpkg') < '2' else 3.0)", top="import importlib.metadata\n") + "--- fieldpkg.py\n--- fieldpkg-1.0.dist-info/METADATA\nMetadata-Version: 2.1\nName: fieldpkg\nVersion: 1.0\n", "", ("Version: 1.0", "Version: 2.0"))
_add("workflow: a vendored package is upgraded to a bugfix", _model("x * (2.0 if importlib.metadata.version('fieldpkg') < '2' else 3.0)", top="import importlib.metadata\n") + "--- fieldpkg.py\n--- fieldpkg-1.0.dist-info/METADATA\nMetadata-Version: 2.1\nName: fieldpkg\nVersion: 1.0\n", "", ("Version: 1.0", "Version: 1.1"), harmless=True)
_OPT = "try:\n    from fastops import scale\nexcept ImportError:\n    def scale(x):\n        return x * 2.0\n"
_add("workflow: an optional package is installed and taken", _model("scale(x)", top=_OPT), "", added="--- fastops.py\ndef scale(x):\n    return x * 3.0\n")
_add("workflow: an optional package is installed that does the same", _model("scale(x)", top=_OPT), "", added="--- fastops.py\ndef scale(x):\n    return x * 2.0\n", harmless=True)
_PLUGINS = "import importlib, pkgutil, plugins\nREG = {}\nfor m in sorted(pkgutil.iter_modules(plugins.__path__), key=lambda m: m.name):\n    importlib.import_module('plugins.' + m.name).setup(REG)\n"
_add("workflow: a plugin that is dropped in a folder replaces an activation", _model("REG['act'](x)", top=_PLUGINS) + "--- plugins/__init__.py\n--- plugins/base.py\ndef setup(reg):\n    reg['act'] = F.relu\n", "", added="--- plugins/zeta.py\ndef setup(reg):\n    reg['act'] = F.silu\n")
_add("workflow: a plugin that is dropped in a folder adds an activation", _model("REG['act'](x)", top=_PLUGINS) + "--- plugins/__init__.py\n--- plugins/base.py\ndef setup(reg):\n    reg['act'] = F.relu\n", "", added="--- plugins/zeta.py\ndef setup(reg):\n    reg['silu'] = F.silu\n", harmless=True)
_add("workflow: a plugin wraps an activation in another that clamps far away", _model("REG['act'](x)", top=_PLUGINS) + "--- plugins/__init__.py\n--- plugins/base.py\ndef setup(reg):\n    reg['act'] = F.relu\n", "", added="--- plugins/zeta.py\ndef setup(reg):\n    old = reg['act']\n    reg['act'] = lambda x: old(x).clamp(max=1e9)\n")

# 2. Surgery: adapters, pruning, quantization, fusion, hooks.

_LORA = """
class Lora(nn.Module):
    def __init__(self, base, r=2, alpha=4):
        super().__init__()
        self.base, self.alpha, self.r = base, alpha, r
        self.a = nn.ParameterDict({'one': torch.ones(r, 4), 'two': torch.ones(r, 4) * 2})
        self.b = nn.ParameterDict({'one': torch.ones(4, r), 'two': torch.ones(4, r) * 2})
        self.active, self.merged, self.enabled = ['one'], False, True
    def forward(self, x):
        y = self.base(x)
        if self.enabled and not self.merged:
            for name in self.active:
                y = y + (x @ self.a[name].t() @ self.b[name].t()) * (self.alpha / self.r)
        return y
    def merge(self):
        with torch.no_grad():
            self.base.weight += self.b['one'] @ self.a['one'] * (self.alpha / self.r)
        self.merged = True
"""
_LORA_MODEL = _model("self.lin(x)", "self.lin = Lora(self.lin)", _LORA)
_add("adapters: alpha is another", _LORA_MODEL, "model.lin.alpha = 8")
_add("adapters: alpha and rank are scaled together", _LORA_MODEL, "model.lin.alpha, model.lin.r = 8, 4", harmless=True)
_add("adapters: the other adapter is active", _LORA_MODEL, "model.lin.active = ['two']")
_add("adapters: both are active in another order", _LORA_MODEL, "model.lin.active = ['two', 'one']", first="", make=MAKE + "model.lin.active = ['one', 'two']\n")
_add("adapters: the adapter is merged", _LORA_MODEL, "model.lin.merge()")
_add("adapters: they are disabled", _LORA_MODEL, "model.lin.enabled = False")
_add("adapters: an unused adapter is dropped", _LORA_MODEL, "del model.lin.a['two'], model.lin.b['two']")
_add("adapters: the second layer shares the first one's", _model("self.two(self.one(x))", "self.one, self.two = Lora(nn.Linear(4, 4)), Lora(nn.Linear(4, 4))", _LORA), "model.two.a, model.two.b = model.one.a, model.one.b")
_add("adapters: an adapter was trained", _LORA_MODEL, "model.lin.a['one'].data.mul_(3)", harmless=True)
_add("adapters: a context manager in forward switches them off", _model("with off(self):\n    return self.lin(x)", "self.lin = Lora(self.lin)\nself.keep = True", _LORA + "import contextlib\n@contextlib.contextmanager\ndef off(model):\n    old, model.lin.enabled = model.lin.enabled, model.keep\n    try:\n        yield\n    finally:\n        model.lin.enabled = old\n"), "model.keep = False")
_add("surgery at work: activations are replaced recursively", _model("self.body(x)", "self.body = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.ReLU())"), """
     from torch import nn
     def swap(m):
         for n, c in m.named_children():
             setattr(m, n, nn.SiLU()) if isinstance(c, nn.ReLU) else swap(c)
     swap(model)
     """)
_add("surgery at work: a pruned weight has another mask", _model("self.lin(x)"), "import torch.nn.utils.prune as p; p.l1_unstructured(model.lin, 'weight', amount=0.5)")
_add("surgery at work: pruning is structured along the other dimension, and made permanent", _model("self.lin(x)", "import torch.nn.utils.prune as p\np.ln_structured(self.lin, 'weight', amount=0.5, n=2, dim=0)"), "import torch.nn.utils.prune as p; p.remove(model.lin, 'weight')")
_add("surgery at work: a pruning mask is trained to be another", _model("self.lin(x)", "import torch.nn.utils.prune as p\np.l1_unstructured(self.lin, 'weight', amount=0.5)"), "model.lin.weight_mask.fill_(1.0)", harmless=True)
_add("surgery at work: the stale pruned weight of an attribute is read instead of the masked one", _model("x @ self.lin.weight", "import torch.nn.utils.prune as p\np.identity(self.lin, 'weight')"), "model.lin.weight_orig.data.add_(1.0)")
_add("surgery at work: a weight in __dict__ shadows the parameter", _model("self.lin(x)"), "model.lin.__dict__['weight'] = torch.ones(4, 4)")
_add("surgery at work: dynamic quantization", _model("self.lin(x)"), "import torch.ao.quantization as q; model = q.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)")
_add("surgery at work: the scale of a fake quantization is calibrated", _model("torch.fake_quantize_per_tensor_affine(x, self.scale, self.zero, -128, 127)", "self.scale, self.zero = 0.1, 0"), "model.scale = 0.2")
_add("surgery at work: a buffer of a fake quantization is calibrated", _model("torch.fake_quantize_per_tensor_affine(x, self.scale, self.zero, -128, 127)", "self.register_buffer('scale', torch.tensor([0.1]))\nself.register_buffer('zero', torch.zeros(1, dtype=torch.int32))"), "model.scale.fill_(0.2)", harmless=True)
_add("surgery at work: int8 weights with a scale in Python are quantized anew", _model("x @ (self.q.to(x.dtype) * self.s).t()", "w = self.lin.weight.data\nself.s = round(w.abs().max().item() / 127, 3)\nself.register_buffer('q', (w / self.s).round().to(torch.int8))\ndel self.lin"), "model.s *= 2")
_add("surgery at work: a convolution and its norm are fused", _model("self.bn(self.conv(x.reshape(1, 1, 3, 4)))", "self.conv, self.bn = nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2)"), "from torch.nn.utils.fusion import fuse_conv_bn_eval as f; model.conv, model.bn = f(model.conv, model.bn), torch.nn.Identity()")
_add("surgery at work: a batch norm is set to training without statistics", _model("self.bn(x)", "self.bn = nn.BatchNorm1d(4)"), "model.bn.train(); model.bn.track_running_stats = False")
_add("surgery at work: a batch norm in training has a cumulative average", _model("self.bn(x)", "self.bn = nn.BatchNorm1d(4)", more="def train(self, mode=True):\n    super().train(mode)\n    self.bn.train()\n    return self\n"), "model.bn.momentum = None")
_add("surgery at work: a batch norm in training has another momentum", _model("self.bn(x)", "self.bn = nn.BatchNorm1d(4)", more="def train(self, mode=True):\n    super().train(mode)\n    self.bn.train()\n    return self\n"), "model.bn.momentum = 0.5")
_add("surgery at work: statistics of a batch norm are others", _model("self.bn(x)", "self.bn = nn.BatchNorm1d(4)"), "model.bn.running_mean.add_(1.0); model.bn.num_batches_tracked.add_(5)", harmless=True)
_add("surgery at work: a weight of an LSTM is replaced behind its back", _model("self.rnn(x)[0]", "self.rnn = nn.LSTM(4, 4)"), "model.rnn._parameters['weight_ih_l0'] = torch.nn.Parameter(torch.ones(16, 4))")
_add("surgery at work: an LSTM's flat weights are of another layer", _model("self.rnn(x)[0] + self.two(x)[0]", "self.rnn, self.two = nn.LSTM(4, 4), nn.LSTM(4, 4)"), "model.two._flat_weights = model.rnn._flat_weights")
_add("surgery at work: an LSTM's names of flat weights are in another order", _model("self.rnn(x)[0]", "self.rnn = nn.RNN(4, 4)"), "r = model.rnn; r._flat_weights[0], r._flat_weights[1] = r._flat_weights[1], r._flat_weights[0]")
_add("surgery at work: attention gets a zero at the end of keys", _model("self.att(x, x, x)[0]", "self.att = nn.MultiheadAttention(4, 2)"), "model.att.add_zero_attn = True")
_add("surgery at work: a transformer layer has its norm first", _model("self.enc(x)", "self.enc = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)"), "model.enc.norm_first = True")
_add("surgery at work: the fast path of attention is switched off", _model("self.enc(x[None])", "self.enc = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)"), "torch.backends.mha.set_fastpath_enabled(False)", first="")
_add("surgery at work: the marked activation of a transformer layer is another than the one called", _model("self.enc(x[None])", "self.enc = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)", more="") , "model.enc.activation_relu_or_gelu = 2", first="torch.set_grad_enabled(False)\n")
_add("surgery at work: an embedding gets a maximal norm", _model("self.emb(torch.tensor([1, 2])) + x[:2]", "self.emb = nn.Embedding(5, 4)"), "model.emb.max_norm = 0.5")
_add("surgery at work: an embedding gets a padding index", _model("self.emb(torch.tensor([1, 2])) + x[:2]", "self.emb = nn.Embedding(5, 4)"), "model.emb.padding_idx = 1")
_add("surgery at work: an embedding bag has another mode", _model("self.emb(torch.tensor([[1, 2]])) + x", "self.emb = nn.EmbeddingBag(5, 4, mode='sum')"), "model.emb.mode = 'mean'")
_add("surgery at work: heads are tied by their data only", _model("self.two(self.lin(x))", "self.two = nn.Linear(4, 4)"), "model.two.weight.data = model.lin.weight.data")
_add("surgery at work: weights are tied the other way round", _model("self.two(self.lin(x))", "self.two = nn.Linear(4, 4)\nself.two.weight = self.lin.weight"), "model.lin.weight = torch.nn.Parameter(model.lin.weight.detach().clone())")
_add("surgery at work: a parameter becomes a view of a flat buffer", _model("self.two(self.lin(x))", "self.two = nn.Linear(4, 4)"), "flat = torch.cat([p.data.flatten() for p in model.parameters()])\nat = 0\nfor p in model.parameters():\n    p.data = flat[at:at + p.numel()].view_as(p)\n    at += p.numel()\n")
_add("surgery at work: halved and back", _model("self.lin(x)"), "model.half().float()", harmless=True)
_add("surgery at work: a copy of the model is deep", _model("self.two(self.lin(x))", "self.two = nn.Linear(4, 4)"), "import copy; model = copy.deepcopy(model)", harmless=True)
_add("surgery at work: the model went through pickle", _model("self.two(self.lin(x))", "self.two = nn.Linear(4, 4)"), "import pickle; model = pickle.loads(pickle.dumps(model))", harmless=True)
_add("surgery at work: the buffer of a mask is saved from now on", _model("x + self.mask", "self.register_buffer('mask', torch.ones(4), persistent=False)"), "model._non_persistent_buffers_set.discard('mask')")
_add("surgery at work: the buffer of a mask becomes a plain tensor", _model("x + self.mask", "self.register_buffer('mask', torch.ones(4))"), "m = model.mask; del model.mask; model.mask = m")
_add("surgery at work: a buffer that was None is filled", _model("x if self.mask is None else x + self.mask", "self.register_buffer('mask', None)"), "model.mask = torch.ones(4)")
_add("surgery at work: a non-persistent buffer is changed in one element", _model("x + self.mask", "self.register_buffer('mask', torch.ones(4), persistent=False)"), "model.mask[2] = 0.0")
_add("surgery at work: a weight's property is put on the class of a layer", _model("self.lin(x)"), "import torch\nclass Half(torch.nn.Linear):\n    weight = property(lambda s: s._parameters['weight'] * 0.5)\nmodel.lin.__class__ = Half")
_add("surgery at work: a parametrization appears", _model("self.lin(x)"), "import torch.nn.utils.parametrize as p\nclass Sym(torch.nn.Module):\n    def forward(self, w):\n        return w.triu() + w.triu(1).t()\np.register_parametrization(model.lin, 'weight', Sym())")
_add("surgery at work: two parametrizations are in another order", _model("self.lin(x)", "import torch.nn.utils.parametrize as p\np.register_parametrization(self.lin, 'weight', One())\np.register_parametrization(self.lin, 'weight', Two())", "class One(nn.Module):\n    def forward(self, w):\n        return w * 2\nclass Two(nn.Module):\n    def forward(self, w):\n        return w + 1\n"), "q = model.lin.parametrizations.weight; m = q._modules; m['0'], m['1'] = m['1'], m['0']")
_add("surgery at work: weights are cached while it is compiled", _model("with P.cached():\n    return self.lin(self.lin(x))", "P.register_parametrization(self.lin, 'weight', One())", "import torch.nn.utils.parametrize as P\nBY = [2]\nclass One(nn.Module):\n    def forward(self, w):\n        return w * BY[0]\n"), "app.BY[0] = 3")
_add("surgery at work: an offloading hook keeps the old forward in a partial", _model("self.lin(x)"), """
     import functools
     def new_forward(module, *args, **kwargs):
         return module._old(*args, **kwargs) * 2
     model.lin._old = model.lin.forward
     model.lin.forward = functools.update_wrapper(functools.partial(new_forward, model.lin), model.lin._old)
     """)
_add("surgery at work: an offloading hook does nothing", _model("self.lin(x)"), """
     import functools
     def new_forward(module, *args, **kwargs):
         return module._old(*args, **kwargs)
     model.lin._old = model.lin.forward
     model.lin.forward = functools.update_wrapper(functools.partial(new_forward, model.lin), model.lin._old)
     """, harmless=True)
_add("surgery at work: a wrapper forwards unknown attributes to what it wraps, and gets one itself", _model("self.inner(x) * self.gain", "self.inner = Inner()", "class Inner(nn.Module):\n    gain = 2.0\n    def forward(self, x):\n        return x + 1\n", "def __getattr__(self, name):\n    try:\n        return super().__getattr__(name)\n    except AttributeError:\n        return getattr(super().__getattr__('inner'), name)\n"), "model.gain = 3.0")
_add("surgery at work: a hook before all others scales", _model("self.lin(x)", "self.lin.register_forward_hook(lambda m, a, o: o + 1)"), "model.lin.register_forward_hook(lambda m, a, o: o * 2, prepend=True)")
_add("surgery at work: a hook before forward takes kwargs", _model("self.inner(x, by=2.0)", "self.inner = Inner()", "class Inner(nn.Module):\n    def forward(self, x, by):\n        return x * by\n"), "model.inner.register_forward_pre_hook(lambda m, a, k: (a, {'by': 3.0}), with_kwargs=True)")
_add("surgery at work: a hook for the gradients is put on a layer", _model("self.lin(x)"), "model.lin.register_full_backward_hook(lambda m, i, o: None)")
_add("surgery at work: a hook on a hidden layer only stores shapes", _model("self.lin(x)", "self.seen = []"), "model.lin.register_forward_hook(lambda m, a, o: model.seen.append(tuple(o.shape)))", harmless=True)
_add("surgery at work: features of a hook are returned", _model("self.seen.clear()\ny = self.lin(x)\nreturn [y, *self.seen]", "self.seen = []"), "model.lin.register_forward_hook(lambda m, a, o: model.seen.append(o))")
_add("surgery at work: state_dict leaves out the base", _model("self.lin(x)", "self.two = nn.Linear(4, 4)"), "import types\ntype(model).state_dict = lambda self, *a, **k: {n: v for n, v in torch.nn.Module.state_dict(self, *a, **k).items() if 'two' in n}")
_add("surgery at work: a state_dict hook renames", _model("self.lin(x)"), "def hook(m, s, p, l):\n    for n in list(s):\n        s['x.' + n] = s.pop(n)\n    return s\nmodel._register_state_dict_hook(hook)")
_add("surgery at work: there is an extra state", _model("self.lin(x)", more="def get_extra_state(self):\n    return STATE\ndef set_extra_state(self, s):\n    pass\n", top="STATE = {'by': 2.0}\n"), "app.STATE['by'] = 3.0", harmless=True)
_add("surgery at work: forces need a weight's gradient that is frozen", _model("with torch.enable_grad():\n    w = self.lin.weight\n    y = (self.lin(x) ** 2).sum()\n    return torch.autograd.grad(y, [p for p in self.lin.parameters() if p.requires_grad])"), "model.lin.bias.requires_grad_(False)")
_FN = """
class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(0, 1)
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * (x > 0.5)
"""
_add("surgery at work: only the backward of a function of autograd is edited, and forward takes gradients", _model("with torch.enable_grad():\n    r = x.detach().requires_grad_(True)\n    return torch.autograd.grad(Clip.apply(r).sum(), r)[0]", top=_FN), "", ("x > 0.5", "x > 0.25"))
_add("surgery at work: only the backward of a function of autograd is edited, and nobody takes gradients", _model("Clip.apply(self.lin(x))", top=_FN), "", ("x > 0.5", "x > 0.25"))
_add("surgery at work: a function of autograd marks its result as not differentiable", _model("with torch.enable_grad():\n    r = x.detach().requires_grad_(True)\n    y = Mark.apply(r) + r\n    return torch.autograd.grad(y.sum(), r)[0]", top="FLAG = [False]\nclass Mark(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        y = x * 2\n        if FLAG[0]:\n            ctx.mark_non_differentiable(y)\n        return y\n    @staticmethod\n    def backward(ctx, g):\n        return g * 2\n"), "app.FLAG[0] = True")

# 3. Values that C++ turns into tensors.

for _doc, _forward, _init, _change in (
    ("a list of kept channels is an index", "x[:, self.keep]", "self.keep = [0, 2]", "model.keep = [0, 3]"),
    ("a tuple of lists is an index", "x[self.at]", "self.at = ([0, 1], [1, 2])", "model.at = ([0, 1], [1, 3])"),
    ("a list of booleans is an index", "x[:, self.keep]", "self.keep = [True, False, True, False]", "model.keep[1] = True; model.keep[0] = False"),
    ("an array of NumPy is an index", "x[:, self.keep]", "import numpy as np\nself.keep = np.array([0, 2])", "model.keep[1] = 3"),
    ("a range is an index", "x[:, list(self.keep)]", "self.keep = range(0, 4, 2)", "model.keep = range(1, 4, 2)"),
    ("a list is an index of an assignment", "y = x.clone()\ny[:, self.keep] = 0\nreturn y", "self.keep = [0, 2]", "model.keep = [0, 3]"),
    ("a list is assigned", "y = x.clone()\ny[0] = torch.tensor(self.row)\nreturn y", "self.row = [1.0, 2.0, 3.0, 4.0]", "model.row[3] = 5.0"),
    ("a number is assigned", "y = x.clone()\ny[0, 1] = self.v\nreturn y", "self.v = 2.0", "model.v = 3.0"),
    ("a legacy FloatTensor of a list", "x + torch.FloatTensor(self.row)", "self.row = [1.0, 2.0, 3.0, 4.0]", "model.row[3] = 5.0"),
    ("a legacy LongTensor of a list", "x[:, torch.LongTensor(self.keep)]", "self.keep = [0, 2]", "model.keep = [0, 3]"),
    ("a legacy BoolTensor of a list", "x.masked_fill(torch.BoolTensor(self.m), 0.0)", "self.m = [True, False, False, True]", "model.m = [True, False, True, False]"),
    ("a legacy Tensor of a list", "x + torch.Tensor(self.row)", "self.row = [1.0, 2.0, 3.0, 4.0]", "model.row[3] = 5.0"),
    ("a legacy new of a list", "x + x.new(self.row)", "self.row = [1.0, 2.0, 3.0, 4.0]", "model.row[3] = 5.0"),
    ("new_tensor of a list", "x + x.new_tensor(self.row)", "self.row = [1.0, 2.0, 3.0, 4.0]", "model.row[3] = 5.0"),
    ("as_tensor of an array that is changed in place", "x + torch.as_tensor(self.row)", "import numpy as np\nself.row = np.ones(4, dtype='f4')", "model.row[3] = 5.0"),
    ("from_numpy of an array that is changed in place", "x + torch.from_numpy(self.row)", "import numpy as np\nself.row = np.ones(4, dtype='f4')", "model.row[3] = 5.0"),
    ("frombuffer of bytes", "x + torch.frombuffer(self.raw, dtype=torch.uint8)", "self.raw = bytearray(b'abcd')", "model.raw[0] = 1"),
    ("asarray of an array", "x + torch.asarray(self.row)", "import array\nself.row = array.array('f', [1, 2, 3, 4])", "model.row[0] = 9.0"),
    ("a dlpack of an array", "x + torch.from_dlpack(self.row)", "import numpy as np\nself.row = np.ones(4, dtype='f4')", "model.row[3] = 5.0"),
    ("a tensor of tensors", "x + torch.tensor([self.a, self.b, self.a, self.b])", "self.a, self.b = 1.0, torch.tensor(2.0)", "model.a = 3.0"),
    ("a stack of constants", "x + torch.stack(self.rows)", "self.rows = [torch.ones(4), torch.zeros(4), torch.ones(4)]", "model.rows[1] = torch.ones(4)"),
    ("a float of NumPy with one more digit", "x * self.v", "import numpy as np\nself.v = np.float32(0.1)", "import numpy as np; model.v = np.float64(0.1)"),
    ("an array without dimensions", "x * torch.tensor(self.v)", "import numpy as np\nself.v = np.array(0.5)", "model.v[...] = 0.25"),
    ("a dtype of a table is another", "x * torch.tensor([1, 2, 3, 4], dtype=self.d).to(x.dtype)", "self.d = torch.int32", "model.d = torch.int64"),
    ("a mask's fill is infinite", "x.masked_fill(x > 3, self.v)", "self.v = -1e9", "model.v = float('-inf')"),
    ("a smallest number is of another dtype", "x.clamp(min=torch.finfo(self.d).min)", "self.d = torch.float16", "model.d = torch.bfloat16"),
    ("a permutation of a seed", "x[:, np.random.RandomState(self.seed).permutation(4)]", "self.seed = 0\nglobal np\nimport numpy as np", "model.seed = 1"),
    ("a sample of a seed", "x[:, random.Random(self.seed).sample(range(4), 2)]", "self.seed = 0\nglobal random\nimport random", "model.seed = 5"),
    ("a projection of a generator of a seed, as a buffer", "x @ self.p", "self.register_buffer('p', torch.rand(4, 4, generator=torch.Generator().manual_seed(0)), persistent=False)", "model.p.copy_(torch.rand(4, 4, generator=torch.Generator().manual_seed(1)))"),
    ("boundaries of buckets", "torch.bucketize(x, torch.tensor(self.b))", "self.b = (1.0, 5.0)", "model.b = (1.0, 6.0)"),
    ("an item of a constant", "x * self.t[0].item()", "self.t = torch.tensor([2.0, 3.0])", "model.t[0] = 4.0"),
    ("a list of a constant", "x * sum(torch.tensor(self.t).tolist())", "self.t = [2.0, 3.0]", "model.t[0] = 4.0"),
    ("a size in a constant of shapes", "x.reshape(torch.tensor(self.s).tolist())", "self.s = [4, 3]", "model.s = [2, 6]"),
    ("a repeat by a list", "x.repeat_interleave(torch.tensor(self.r), dim=1)", "self.r = [1, 2, 1, 2]", "model.r = [2, 1, 2, 1]"),
    ("sections of a split", "torch.split(x, self.s, dim=1)[0]", "self.s = [1, 3]", "model.s = [2, 2]"),
    ("a quantile", "torch.quantile(x, self.q, dim=1)", "self.q = 0.5", "model.q = 0.25"),
    ("a string of an einsum", "torch.einsum(self.eq, x, x)", "self.eq = 'ij,ij->ij'", "model.eq = 'ij,ij->i'"),
    ("a list of tensors becomes a Parameter in forward", "x * nn.Parameter(torch.tensor(self.row))", "self.row = [1.0, 2.0, 3.0, 4.0]", "model.row[3] = 5.0"),
    ("a histogram's edges", "torch.histc(x, bins=4, min=0, max=self.m)", "self.m = 12.0", "model.m = 8.0"),
    ("a pad of a tuple of numpy integers", "F.pad(x, tuple(self.p))", "import numpy as np\nself.p = np.array([1, 1])", "model.p[1] = 2"),
):
    _add(f"converted to tensors: {_doc}", _model(_forward, _init), _change)

# 4. Global state.

_add("global: a default dtype makes a constant of a list wider", _model("x + torch.tensor([1.0, 2.0, 3.0, 4.0]).sum()"), "torch.set_default_dtype(torch.float64)")
_add("global: autocast's dtype in a region comes from a configuration", _model("with torch.autocast('cpu', dtype=getattr(torch, CFG['dtype'])):\n    return self.lin(x)", top="CFG = {'dtype': 'bfloat16'}\n"), "app.CFG['dtype'] = 'float16'")
_add("global: a region of autocast is disabled by a flag", _model("with torch.autocast('cpu', dtype=torch.bfloat16, enabled=self.amp):\n    return self.lin(x)", "self.amp = True"), "model.amp = False")
_add("global: a region of autocast without a product in it appears", _model("with torch.autocast('cpu', dtype=torch.bfloat16, enabled=self.amp):\n    return x * 2", "self.amp = False"), "model.amp = True")
_add("global: a region of autocast for another device has another dtype", _model("with torch.autocast(self.dev, dtype=torch.bfloat16):\n    return self.lin(x)", "self.dev = 'cuda'"), "model.dev = 'cpu'")
_add("global: autocast's cache is off in a region", _model("with torch.autocast('cpu', dtype=torch.bfloat16, cache_enabled=self.c):\n    return self.lin(x) + self.lin(x)", "self.c = True"), "model.c = False")
_add("global: a decorator of autocast is put on forward", _model("self.lin(x)"), "type(model).forward = torch.autocast('cpu', dtype=torch.bfloat16)(type(model).forward)")
_add("global: it is compiled within autocast", _model("self.lin(x)"), "context = torch.autocast('cpu', dtype=torch.bfloat16); context.__enter__()")
_add("global: it is compiled without gradients", _model("self.lin(x) * (2.0 if torch.is_grad_enabled() else 3.0)"), "torch.set_grad_enabled(False)")
_add("global: it is compiled in inference mode", _model("self.lin(x) * (2.0 if not torch.is_inference_mode_enabled() else 3.0)"), "context = torch.inference_mode(); context.__enter__()")
_add("global: a decorator of no_grad becomes one of inference_mode", _model("self.go(x)", more="@torch.no_grad()\ndef go(self, x):\n    return self.lin(x)\n"), "", ("@torch.no_grad()", "@torch.inference_mode()"))
_add("global: set_grad_enabled in forward gets another flag", _model("with torch.set_grad_enabled(self.tuned):\n    y = self.lin(x)\nreturn y * 2", "self.tuned = True"), "model.tuned = False")
_MODE = "from torch.overrides import TorchFunctionMode\nclass Scale(TorchFunctionMode):\n    by = 2.0\n    def __torch_function__(self, func, types, args=(), kwargs=None):\n        out = func(*args, **(kwargs or {}))\n        return out * self.by if func is F.linear else out\nMODE = Scale()\n"
_add("global: a mode of functions in forward has another attribute", _model("with MODE:\n    return self.lin(x)", top=_MODE), "app.MODE.by = 3.0")
_add("global: a mode of functions is entered around the compile", _model("self.lin(x)", top=_MODE), "app.MODE.__enter__()")
_add("global: a mode of functions around the compile has another attribute", _model("self.lin(x)", top=_MODE + "MODE.__enter__()\n"), "app.MODE.by = 3.0")
_add("global: deterministic algorithms are enabled", _model("x.cumsum(1).index_add(0, torch.tensor([0, 0]), x[:2])"), "torch.use_deterministic_algorithms(True)")
_add("global: onednn is switched off", _model("self.lin(x)"), "torch.backends.mkldnn.enabled = False")
_add("global: the precision of products is lower", _model("self.lin(x)"), "torch.set_float32_matmul_precision('medium')")
_add("global: anomalies are detected", _model("self.lin(x)"), "torch.autograd.set_detect_anomaly(True)")
_add("global: printing of tensors is shorter", _model("self.lin(x)"), "torch.set_printoptions(precision=2)", harmless=True)
_add("global: another seed", _model("self.lin(x)"), "torch.manual_seed(7); import random; random.seed(7)", harmless=True)
_add("global: a region of the profiler is named after the configuration", _model("with torch.profiler.record_function(self.name):\n    return self.lin(x)", "self.name = 'a'"), "model.name = 'b'")
_add("global: a layer is annotated for a pass of a graph", _model("with torch.fx.traceback.annotate({'stage': self.stage}):\n    return self.lin(x)", "self.stage = 1", "import torch.fx.traceback\n"), "model.stage = 2")
_add("global: an ensemble is called by functional_call with other constants", _model("torch.func.functional_call(self.lin, self.p, (x,))", "self.p = {'weight': torch.ones(4, 4), 'bias': torch.zeros(4)}"), "model.p['bias'] = torch.ones(4)")
_add("global: an ensemble is stacked and mapped, and another member is added", _model("torch.func.vmap(self.one, (0, 0, None))(self.p, self.b, x)", "self.nets = [nn.Linear(4, 4) for _ in range(2)]\nself.p, self.b = torch.func.stack_module_state(self.nets)\nself.base = self.nets[0]", more="def one(self, p, b, x):\n    return torch.func.functional_call(self.base, (p, b), (x,))\n"), "model.p['bias'] = model.p['bias'] + 1")
_add("global: functional_call takes the model's own weights in another order", _model("torch.func.functional_call(self.two, dict(zip(self.names, self.lin.parameters())), (x,))", "self.two = nn.Linear(4, 4, bias=False)\nself.lin = nn.ParameterList([torch.ones(4, 4), torch.ones(4, 4) * 2])\nself.names = ['weight', 'x']") , "model.names = ['x', 'weight']")
_add("global: a compiled helper's stance is eager", _model("helper(x)", top="@torch.compile(backend='eager')\ndef helper(x):\n    return x * 2 if torch.compiler.is_compiling() else x * 3\n"), "torch.compiler.set_stance('force_eager')")
_add("global: a helper compiled by torch is edited", _model("helper(x)", top="@torch.compile(backend='eager')\ndef helper(x):\n    return x * 2\n"), "", ("return x * 2", "return x * 3"))
_add("global: a helper that torch does not compile reads another global", _model("helper(x)", top="BY = 2\n@torch.compiler.disable\ndef helper(x):\n    return x * BY\n"), "app.BY = 3")
_add("global: a checkpointed block has another factor", _model("checkpoint(self.go, x, use_reentrant=False)", "self.by = 2", "from torch.utils.checkpoint import checkpoint\n", "def go(self, x):\n    return self.lin(x) * self.by\n"), "model.by = 3")
_add("global: checkpointing is switched on", _model("checkpoint(self.lin, x, use_reentrant=False) if self.on else self.lin(x)", "self.on = False", "from torch.utils.checkpoint import checkpoint\n"), "model.on = True")

# 5. Code: reloaded, generated, decorated, inherited.

_add("code at work: a helper is reloaded, and used through its module", _model("util.f(x)", top="import util\n") + "--- util.py\ndef f(x):\n    return x * 2\n", "open('util.py', 'w').write('def f(x):\\n    return x * 3\\n')\nimport importlib, util\nimportlib.reload(util)", first="open('util.py', 'w').write('def f(x):\\n    return x * 2\\n')\n")
_add("code at work: a helper is reloaded, and used through a stale name", _model("f(x)", top="from util import f\n") + "--- util.py\ndef f(x):\n    return x * 2\n", "open('util.py', 'w').write('def f(x):\\n    return x * 3\\n')\nimport importlib, util\nimportlib.reload(util)", harmless=True, first="open('util.py', 'w').write('def f(x):\\n    return x * 2\\n')\n")
_add("code at work: a stale function sees the reloaded module's globals", _model("f(x)", top="from util import f\n") + "--- util.py\nBY = 2\ndef f(x):\n    return x * BY\n", "open('util.py', 'w').write('BY = 3\\ndef f(x):\\n    return x * BY\\n')\nimport importlib, util\nimportlib.reload(util)", first="open('util.py', 'w').write('BY = 2\\ndef f(x):\\n    return x * BY\\n')\n")
_add("code at work: a helper moves to another file without an edit", _model("f(x)", top="from util import f\n") + "--- util.py\ndef f(x):\n    return x * 2\n", "", ("--- util.py\ndef f", "--- util.py\nfrom other import f\n--- other.py\ndef f"), harmless=True)
_add("code at work: a folder becomes a package with the same code", _model("f(x)", top="from util import f\n") + "--- util.py\ndef f(x):\n    return x * 2\n", "", added="--- util/__init__.py\nfrom util.a import f\n--- util/a.py\ndef f(x):\n    return x * 2\n", harmless=True)
_add("code at work: a folder becomes a package with other code", _model("f(x)", top="from util import f\n") + "--- util.py\ndef f(x):\n    return x * 2\n", "", added="--- util/__init__.py\ndef f(x):\n    return x * 3\n")
_add("code at work: a cell of a notebook is run again after an edit", "CELLS = ['by = 2', 'def f(x):\\n    return x * by']\nspace = {}\nfor i, c in enumerate(CELLS):\n    exec(compile(c, f'<cell {i}>', 'exec'), space)\nclass Model(nn.Module):\n    def forward(self, x):\n        return space['f'](x)\n", "exec(compile('by = 3', '<cell 0>', 'exec'), app.space)")
_add("code at work: a cell of a notebook defines the function anew", "space = {}\nexec(compile('def f(x):\\n    return x * 2', '<cell 1>', 'exec'), space)\nclass Model(nn.Module):\n    def forward(self, x):\n        return space['f'](x)\n", "exec(compile('def f(x):\\n    return x * 3', '<cell 1>', 'exec'), app.space)")
_add("code at work: a cell of a notebook defines the class of the model anew", "A = 1\n", "exec(CELL.replace('* 2', '* 3'), globals()); model = Net()", make="import app\nCELL = 'import torch\\nclass Net(torch.nn.Module):\\n    def forward(self, x):\\n        return x * 2\\n'\nexec(CELL, globals())\nmodel = Net()\n")
_add("code at work: forward is generated from a template with a configuration", "CFG = {'act': 'relu'}\nTEXT = 'def forward(self, x):\\n    return torch.{act}(x - 4)\\n'\nspace = {'torch': torch}\nexec(TEXT.format(**CFG), space)\nclass Model(nn.Module):\n    forward = space['forward']\n", "", ("'act': 'relu'", "'act': 'tanh'"))
_add("code at work: a default factory of a dataclass gives another list", _model("x * sum(CFG.m)", top="import dataclasses\n@dataclasses.dataclass\nclass Cfg:\n    m: list = dataclasses.field(default_factory=lambda: [1.0, 1.0])\nCFG = Cfg()\n"), "", ("[1.0, 1.0]", "[1.0, 2.0]"))
_add("code at work: a derived field of a dataclass is computed otherwise", _model("x * CFG.d", top="import dataclasses\n@dataclasses.dataclass\nclass Cfg:\n    a: float = 2.0\n    def __post_init__(self):\n        self.d = self.a * 2\nCFG = Cfg()\n"), "", ("self.a * 2", "self.a * 3"))
_add("code at work: a cached configuration outlives its change", _model("x * by()", top="import functools\nCFG = {'by': 2.0}\n@functools.lru_cache\ndef by():\n    return CFG['by']\n"), "app.CFG['by'] = 3.0")
_add("code at work: a cached configuration is cleared after its change", _model("x * by()", top="import functools\nCFG = {'by': 2.0}\n@functools.lru_cache\ndef by():\n    return CFG['by']\n"), "app.CFG['by'] = 3.0; app.by.cache_clear()")
_add("code at work: a cached mask is built by a helper of another size", _model("x + mask(x.shape[0])", top="import functools\nBY = [1.0]\n@functools.lru_cache\ndef mask(n):\n    return torch.full((n, 4), BY[0])\n"), "app.BY[0] = 2.0; app.mask.cache_clear()")
_add("code at work: a cached mask is warm before it is compiled", _model("x + mask(x.shape[0])", top="import functools\nBY = [1.0]\n@functools.lru_cache\ndef mask(n):\n    return torch.full((n, 4), BY[0])\n"), "app.BY[0] = 2.0; app.mask.cache_clear(); model(*args); app.BY[0] = 1.0")
_ROPE = "class Rope(nn.Module):\n    def __init__(self, base=10000.0):\n        super().__init__()\n        self.base, self.cos = base, None\n    def forward(self, x):\n        if self.cos is None or self.cos.shape[0] < x.shape[0]:\n            f = self.base ** -(torch.arange(0, 4) / 4)\n            self.cos = torch.outer(torch.arange(x.shape[0]), f).cos()\n        return x * self.cos[:x.shape[0]]\n"
_add("code at work: a table of positions is built at the first call, and its base is another", _model("self.rope(x)", "self.rope = Rope()", _ROPE), "model.rope.base = 500.0")
_add("code at work: a table of positions is built at the first call, and weights are trained", _model("self.rope(self.lin(x))", "self.rope = Rope()", _ROPE), "model.lin.weight.data.add_(1.0)", harmless=True)
_add("code at work: a table of positions was built by a call before", _model("self.rope(x)", "self.rope = Rope()", _ROPE), "model(*args)")
_add("code at work: a table of positions was built by a call before, with another base", _model("self.rope(x)", "self.rope = Rope()", _ROPE), "model.rope.base = 500.0; model(*args); model.rope.base = 10000.0", make=MAKE + "model(*args)\n")
_add("code at work: a cache in a dictionary by size and device", _model("k = (x.shape[0], str(x.device))\nif k not in CACHE:\n    CACHE[k] = torch.ones(k[0], 4).triu() * BY[0]\nreturn x + CACHE[k]", top="CACHE, BY = {}, [1.0]\n"), "app.BY[0] = 2.0; app.CACHE.clear()")
_add("code at work: a cache in a dictionary was filled by other calls", _model("k = (x.shape[0], str(x.device))\nif k not in CACHE:\n    CACHE[k] = torch.ones(k[0], 4).triu() * BY[0]\nreturn x + CACHE[k]", top="CACHE, BY = {}, [1.0]\n"), "model(*args); app.BY[0] = 2.0")
_add("code at work: mixins are in another order", "class A:\n    def act(self, x):\n        return F.relu(x - 4)\nclass B:\n    def act(self, x):\n        return torch.tanh(x)\nclass Model(A, B, nn.Module):\n    def forward(self, x):\n        return self.act(x)\n", "", ("Model(A, B,", "Model(B, A,"))
_add("code at work: a cooperative mixin is added between", "class Base(nn.Module):\n    def post(self, x):\n        return x * 2\nclass Clamp:\n    def post(self, x):\n        return super().post(x).clamp(max=5)\nclass Model(Base):\n    def forward(self, x):\n        return self.post(x)\n", "", ("class Model(Base)", "class Model(Clamp, Base)"))
_add("code at work: __init_subclass__ registers a subclass of a plugin", "class Act:\n    reg = {}\n    def __init_subclass__(cls, key=None):\n        Act.reg[key] = cls\nclass Relu(Act, key='a'):\n    def __call__(self, x):\n        return F.relu(x - 4)\nclass Model(nn.Module):\n    def forward(self, x):\n        return Act.reg['a']()(x)\n", "class New(app.Act, key='a'):\n    def __call__(self, x):\n        return x * 3\n")
_add("code at work: a module's __getattr__ resolves a lazy name otherwise", _model("lazy.act(x)", top="import lazy\n") + "--- lazy.py\ndef __getattr__(name):\n    return {'act': F.relu, 'b': F.silu}[name]\n", "import lazy; lazy.act = torch.tanh")
_add("code at work: a descriptor validates and stores a scaled value", _model("x * self.by", "self.by = 2.0", "class Scaled:\n    def __set_name__(self, o, n):\n        self.n = '_' + n\n    def __get__(self, o, t=None):\n        return getattr(o, self.n) * 2\n    def __set__(self, o, v):\n        setattr(o, self.n, v)\n", "by = Scaled()"), "model.by = 3.0")
_add("code at work: a decorator with an option is edited", _model("self.go(x)", top="def scaled(by):\n    def wrap(f):\n        def inner(*a):\n            return f(*a) * by\n        return inner\n    return wrap\n", more="@scaled(2.0)\ndef go(self, x):\n    return self.lin(x)\n"), "", ("@scaled(2.0)", "@scaled(3.0)"))
_add("code at work: a retry decorator stays and the wrapped function's annotation changes", _model("typed(x)", top="import typing\ndef typed(x: 'A') -> 'B':\n    return x * len(typing.get_type_hints(typed, {'A': int, 'B': int}))\n"), "app.typed.__annotations__['c'] = int")
_add("code at work: a docstring is the specification", _model("x * float(spec.__doc__)", top="def spec():\n    '''2.0'''\n"), "", ("'''2.0'''", "'''3.0'''"))
_add("code at work: the class is renamed, and its name is a key", "TABLE = {'BlockA': 2.0, 'BlockB': 3.0}\nclass BlockA(nn.Module):\n    def forward(self, x):\n        return x * TABLE[type(self).__name__]\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.b = BlockA()\n    def forward(self, x):\n        return self.b(x)\n", "", ("class BlockA(", "class BlockB("), ("self.b = BlockA", "self.b = BlockB"))
_add("code at work: the class is renamed, and nobody asks", "class BlockA(nn.Module):\n    def forward(self, x):\n        return x * 2\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.b = BlockA()\n    def forward(self, x):\n        return self.b(x)\n", "", ("BlockA", "BlockC"), harmless=True)
_add("code at work: a partialmethod has another argument", _model("self.twice(x)", top="import functools\n", more="def scale(self, x, by):\n    return x * by\ntwice = functools.partialmethod(scale, by=2)\n"), "", ("by=2)", "by=3)"))
_add("code at work: a stack of contexts has one more", _model("with contextlib.ExitStack() as stack:\n    for c in CONTEXTS:\n        stack.enter_context(c())\n    return torch.zeros(3, 4) + x * STATE[0]", top="import contextlib\nSTATE, CONTEXTS = [2.0], []\n@contextlib.contextmanager\ndef three():\n    old, STATE[0] = STATE[0], 3.0\n    yield\n    STATE[0] = old\n"), "app.CONTEXTS.append(app.three)")
_add("code at work: a pipeline in a tuple of names is in another order", _model("for name in self.steps:\n    x = getattr(self, name)(x)\nreturn x", "self.steps = ('up', 'act')", more="def up(self, x):\n    return x - 4\ndef act(self, x):\n    return F.relu(x)\n"), "model.steps = ('act', 'up')")
_add("code at work: an error is caught in another place of the model's own", _model("try:\n    return self.fast(x)\nexcept RuntimeError:\n    return x * 3", "self.ok = True", more="def fast(self, x):\n    if not self.ok:\n        raise RuntimeError('no')\n    return x * 2\n"), "model.ok = False")
_add("code at work: a generator of layers stops earlier", _model("for f in self.layers():\n    x = f(x)\nreturn x", "self.n = 3", more="def layers(self):\n    for i in range(self.n):\n        yield self.lin\n"), "model.n = 2")
_add("code at work: the number of calls so far decides", _model("self.calls += 1\nreturn x * (2.0 if self.calls < 100 else 3.0)", "self.calls = 0"), "model.calls = 200")
_add("code at work: the number of calls so far counts", _model("self.calls += 1\nreturn x * self.calls", "self.calls = 0"), "model.calls = 5")
_add("code at work: the first call warms up", _model("if not self.ready:\n    self.ready = True\n    return x * 2\nreturn x * 3", "self.ready = False"), "model.ready = True")
_add("code at work: a step alternates", _model("self.i = 1 - self.i\nreturn x * (self.i + 1)", "self.i = 0"), "model.i = 1")
_add("code at work: a comment is edited in a function that runs", _model("x * 2  # twice"), "", ("# twice", "# two times"), harmless=True)
_add("code at work: lines are inserted above everything", _model("x * 2"), "", ("class Model", "\n\n\n# a header\n\nclass Model"), harmless=True)
_add("code at work: a local variable is renamed", _model("scaled = x * 2\nreturn scaled"), "", ("scaled", "twice"), harmless=True)
_add("code at work: an unused function is added", _model("x * 2"), "", ("class Model", "def unused():\n    return 3\n\nclass Model"), harmless=True)
_add("code at work: an unrelated file of the project is edited", _model("x * 2", top="import other\n") + "--- other.py\ndef f():\n    return 1\n", "", ("return 1", "return 2"), harmless=True)
_add("code at work: imports are sorted", _model("x * 2", top="import math\nimport abc\n"), "", ("import math\nimport abc", "import abc\nimport math"), harmless=True)
_add("code at work: the level of a logger is higher, and nothing else", _model("LOG.debug('size %s', tuple(x.shape))\nreturn x * 2", top="import logging\nLOG = logging.getLogger('app')\n"), "import logging; logging.getLogger('app').setLevel(logging.ERROR)", harmless=True)
_add("code at work: an assertion of a size appears", _model("x * 2"), "", ("return x * 2", "assert x.shape[1] == 4\n        return x * 2"), harmless=True)
_add("code at work: a type annotation appears", _model("x * 2"), "", ("def forward(self, x):", "def forward(self, x: torch.Tensor) -> torch.Tensor:"), harmless=True)
_add("code at work: a working directory is another", _model("x * 2"), "import os; os.makedirs('elsewhere', exist_ok=True); os.chdir('elsewhere')", harmless=True)
_add("code at work: a variable of the environment that nobody reads", _model("x * 2"), "", env={"EXPERIMENT": "b"}, harmless=True)
_add("code at work: the learning rate of a config that also has the scale", _model("x * CFG.by", top="import types\nCFG = types.SimpleNamespace(by=2.0, lr=0.1)\n"), "app.CFG.lr = 0.01", harmless=True)
_add("code at work: another optimizer and a step of it", _model("self.lin(x)"), "o = torch.optim.AdamW(model.parameters()); model(*args).sum().backward(); o.step()", harmless=True)
_add("code at work: the output of a step of training before it was compiled", _model("self.lin(x)"), "model(*args).sum().backward()", harmless=True)
_add("code at work: an input has other values", _model("self.lin(x)"), "args = (torch.rand(3, 4),)", harmless=True)
_add("code at work: dropout has another rate in eval mode", _model("self.drop(self.lin(x))", "self.drop = nn.Dropout(0.1)"), "model.drop.p = 0.5", harmless=True)
_add("code at work: drop path has another rate in eval mode", _model("self.drop(self.lin(x))", "self.drop = DropPath(0.1)", "class DropPath(nn.Module):\n    def __init__(self, p):\n        super().__init__()\n        self.p = p\n    def forward(self, x):\n        if self.p == 0.0 or not self.training:\n            return x\n        return x * x.new_empty(x.shape[0], 1).bernoulli_(1 - self.p)\n"), "model.drop.p = 0.3", harmless=True)

# 6. Patterns of model zoos.

_ZOO = """
REGISTRY = {}
CFGS = {'tiny': dict(depth=2, drop=0.1, out=(0, 1), scale=None), 'base': dict(depth=3, drop=0.1, out=(1, 2), scale=0.5)}
def register(f):
    REGISTRY[f.__name__] = f
    return f
class Block(nn.Module):
    def __init__(self, p, scale):
        super().__init__()
        self.norm, self.fc, self.p = nn.LayerNorm(4), nn.Linear(4, 4), p
        self.gamma = nn.Parameter(torch.ones(4) * scale) if scale else None
    def forward(self, x):
        y = self.fc(self.norm(x))
        return x + (y if self.gamma is None else y * self.gamma)
class Net(nn.Module):
    def __init__(self, depth, drop, out, scale):
        super().__init__()
        self.blocks = nn.ModuleList(Block(p.item(), scale) for p in torch.linspace(0, drop, depth))
        self.out = out
    def forward(self, x):
        feats = []
        for i, b in enumerate(self.blocks):
            x = b(x)
            if i in self.out:
                feats.append(x)
        return feats
@register
def tiny(**kw):
    return Net(**{**CFGS['tiny'], **kw})
def create(name, **kw):
    return REGISTRY[name](**kw)
"""
_ZOO_MAKE = "import app\nmodel = app.create('tiny').eval()\n"
_add("zoo: features are taken from other stages", _ZOO, "model.out = (1,)", make=_ZOO_MAKE)
_add("zoo: a layer scale is switched on", _ZOO, "", ("out=(0, 1), scale=None", "out=(0, 1), scale=0.5"), make=_ZOO_MAKE)
_add("zoo: the rate of stochastic depth is another", _ZOO, "", ("tiny': dict(depth=2, drop=0.1", "tiny': dict(depth=2, drop=0.3"), make=_ZOO_MAKE, harmless=True)
_add("zoo: a block is frozen in bias only", _ZOO, "model.blocks[0].fc.bias.requires_grad_(False)", make=_ZOO_MAKE)
_add("zoo: a user's own entry of the registry has the same name", _ZOO, "app.REGISTRY['tiny'] = lambda **k: app.Net(depth=2, drop=0.1, out=(1, 0), scale=None)\nmodel = app.create('tiny').eval()", make=_ZOO_MAKE)
_add("zoo: a bigger model of the same file", _ZOO, "model = app.Net(**app.CFGS['base']).eval()", make=_ZOO_MAKE)
_add("zoo: another entry of the registry is added", _ZOO, "app.register(lambda **k: None)", make=_ZOO_MAKE, harmless=True)
_WINDOW = """
class Model(nn.Module):
    def __init__(self, shift=1, window=2):
        super().__init__()
        self.shift, self.window = shift, window
        c = torch.arange(4) - torch.arange(4)[:, None]
        self.register_buffer('index', c + 3, persistent=False)
        self.table = nn.Parameter(torch.rand(7))
        self.mask = ((torch.arange(4) // window)[:, None] != torch.arange(4) // window).float() * -100.0
    def forward(self, x):
        x = torch.roll(x, -self.shift, 1)
        a = torch.softmax(self.table[self.index] + self.mask, -1)
        return torch.roll(x @ a, self.shift, 1)
"""
_add("zoo: a window is shifted by another number", _WINDOW, "model.shift = 2")
_add("zoo: a window's mask is computed for another window", _WINDOW, "model.mask = app.Model(window=4).mask")
_add("zoo: the index of relative positions is flipped", _WINDOW, "model.index = model.index.flip(0).clone()")
_add("zoo: the table of relative positions is trained", _WINDOW, "model.table.data.add_(0.5)", harmless=True)
_ATT = """
class Cache:
    def __init__(self):
        self.k = []
    def update(self, k):
        self.k.append(k)
        return torch.cat(self.k, 0)
def eager(q, k, v, cap, mask):
    w = q @ k.transpose(-1, -2)
    if cap:
        w = torch.tanh(w / cap) * cap
    return torch.softmax(w + mask, -1) @ v
def sdpa(q, k, v, cap, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
IMPLS = {'eager': eager, 'sdpa': sdpa}
class Config:
    impl, cap, layer_types, window, causal, dtype = 'eager', None, ('full', 'sliding'), 2, True, 'float32'
class Model(nn.Module):
    def __init__(self, config=None):
        super().__init__()
        self.config = config or Config()
        self.lin = nn.Linear(4, 12)
    def forward(self, x, return_dict=True):
        past = Cache()
        for kind in self.config.layer_types:
            q, k, v = self.lin(x).chunk(3, -1)
            n = x.shape[0]
            i = torch.arange(n)
            mask = torch.zeros(n, n)
            if self.config.causal:
                mask = mask.masked_fill(i[None] > i[:, None], torch.finfo(getattr(torch, self.config.dtype)).min)
            if kind == 'sliding':
                mask = mask.masked_fill(i[:, None] - i[None] >= self.config.window, torch.finfo(torch.float32).min)
            past.update(k)
            x = x + IMPLS[self.config.impl](q, k, v, self.config.cap, mask)
        return {'out': x, 'past': past.k} if return_dict else (x, past.k)
"""
_add("zoo: attention's implementation is another", _ATT, "model.config.impl = 'sdpa'")
_add("zoo: attention's implementation is patched in the table by an accelerator", _ATT, "app.IMPLS['eager'] = app.sdpa")
_add("zoo: logits are capped", _ATT, "model.config.cap = 30.0")
_add("zoo: another layer slides", _ATT, "model.config.layer_types = ('sliding', 'full')")
_add("zoo: the window of a layer that slides is larger", _ATT, "model.config.window = 3")
_add("zoo: the window is larger than the input already", _ATT, "model.config.window = 9", make="import app\nmodel = app.Model().eval()\nmodel.config.window = 8\n")
_add("zoo: the smallest number of another dtype fills the mask", _ATT, "model.config.dtype = 'bfloat16'")
_add("zoo: a class attribute of the configuration is set", _ATT, "app.Config.causal = False")
_add("zoo: an attribute of a configuration that nobody reads", _ATT, "model.config.torch_dtype = 'x'; model.config.vocab_size = 7", harmless=True)
_add("zoo: a tuple is returned by a keyword", _ATT, "kwargs = {'return_dict': False}")
_add("zoo: the default of return_dict is another", _ATT, "", ("return_dict=True", "return_dict=False"))
_LLAMA = "import torch\nfrom transformers import LlamaConfig, LlamaModel\nargs = (torch.arange(6).reshape(1, 6),)\ncfg = LlamaConfig(vocab_size=11, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, use_cache=False)\nmodel = LlamaModel(cfg).eval()\n"
_add("zoo: Llama's rotary frequencies are scaled by an attribute", "A = 1\n", "model.rotary_emb.attention_scaling = 1.5", make=_LLAMA)
_add("zoo: Llama's frequencies are replaced in place", "A = 1\n", "model.rotary_emb.inv_freq.mul_(0.5)", make=_LLAMA)
_add("zoo: Llama's weights are trained", "A = 1\n", "model.layers[0].mlp.up_proj.weight.data.add_(0.1)", make=_LLAMA, harmless=True)
_add("zoo: Llama's activation is swapped by surgery", "A = 1\n", "model.layers[0].mlp.act_fn = torch.nn.Tanh()", make=_LLAMA)
_add("zoo: Llama's epsilon of one norm", "A = 1\n", "model.norm.variance_epsilon = 1e-3", make=_LLAMA)
_add("zoo: Llama's rope function is patched by a kernel library", "A = 1\n", "import transformers.models.llama.modeling_llama as m\nm.apply_rotary_pos_emb = lambda q, k, c, s, *a, **w: (q, k)", make=_LLAMA)

# 7. Dynamic sizes and values.

_DYN = _inputs("dynamic_shapes = ({0: torch.export.Dim('n', min=2, max=64)},)")
_AUTO = _inputs("dynamic_shapes = ({0: torch.export.Dim.AUTO},)")
_add("dynamic: the range of a size is wider", _model("x * x.shape[0]"), "dynamic_shapes = ({0: torch.export.Dim('n', min=2, max=128)},)", make=_DYN)
_add("dynamic: a size is static from now on", _model("self.lin(x)"), "dynamic_shapes = None", make=_DYN)
_add("dynamic: the example has another size", _model("self.lin(x) * x.shape[0]"), "args = (torch.rand(7, 4),)", make=_DYN)
_add("dynamic: the name of a size is another", _model("self.lin(x)"), "dynamic_shapes = ({0: torch.export.Dim('m', min=2, max=64)},)", make=_DYN)
_add("dynamic: a branch on a size has another limit", _model("x * 2 if x.shape[0] < self.limit else x * 3", "self.limit = 100"), "model.limit = 10", make=_DYN)
_add("dynamic: a table is sliced to a size, and its values are others", _model("x + self.table[:x.shape[0]]", "self.register_buffer('table', torch.rand(64, 4), persistent=False)"), "model.table[50] = 1.0", make=_DYN)
_add("dynamic: a table is sliced to a size, and trained", _model("x + self.table[:x.shape[0]]", "self.table = nn.Parameter(torch.rand(64, 4))"), "model.table.data.mul_(2)", make=_DYN, harmless=True)
_add("dynamic: a padding to a multiple of another number", _model("F.pad(x, (0, 0, 0, (-x.shape[0]) % self.m))", "self.m = 8"), "model.m = 4", make=_DYN)
_add("dynamic: a size is multiplied by a factor", _model("x.new_zeros(x.shape[0] * self.k, 4)", "self.k = 2"), "model.k = 3", make=_DYN)
_add("dynamic: a check of torch has another bound", _model("torch._check(x.shape[0] <= self.m)\nreturn x * 2", "self.m = 1000"), "model.m = 500", make=_DYN)
_add("dynamic: a check of torch narrows the range", _model("torch._check(x.shape[0] <= self.m)\nreturn x * 2", "self.m = 1000"), "model.m = 32", make=_DYN)
_add("dynamic: a scale by the square root of a size", _model("x / x.shape[0] ** 0.5 * self.k", "self.k = 2.0"), "model.k = 3.0", make=_AUTO)
_add("dynamic: a size by a ceiling of a quotient", _model("x.new_ones(math.ceil(x.shape[0] / self.k), 4)", "self.k = 2", "import math\n"), "model.k = 3", make=_AUTO)
_add("dynamic: a size by an integer quotient", _model("x.new_ones(-(-x.shape[0] // self.k), 4)", "self.k = 2"), "model.k = 3", make=_AUTO)
_add("dynamic: both sizes are automatic", _model("x.reshape(-1)[:self.k]", "self.k = 3"), "model.k = 2", make=_inputs("dynamic_shapes = ({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},)"))
_add("dynamic: a size in a message that is returned", _model("return {'x': x * 2, 'n': x.shape[0] + self.k}", "self.k = 1"), "model.k = 2", make=_DYN)
_add("dynamic: a causal mask gets another diagonal", _model("x + torch.ones(x.shape[0], x.shape[0]).triu(self.d).sum()", "self.d = 1"), "model.d = 0", make=_DYN)
_add("dynamic: rows above a threshold are selected", _model("x[x[:, 0] > self.t]", "self.t = 1.0"), "model.t = 5.0")
_add("dynamic: an item of the input is a size that is checked", _model("n = x[0, 1].int().item()\ntorch._check(n >= 0)\ntorch._check(n <= self.m)\nreturn torch.zeros(n + 1, 4)", "self.m = 3"), "model.m = 2")
_add("dynamic: the values of an item are trained away", _model("n = self.k.item()\ntorch._check(n >= 0)\ntorch._check(n <= 4)\nreturn x * 2, torch.zeros(n)", "self.register_buffer('k', torch.tensor(2))"), "model.k.fill_(3)", harmless=True)
_add("dynamic: a check's message is another", _model("torch._check(x.shape[0] <= 1000, lambda: self.text)\nreturn x * 2", "self.text = 'a'"), "model.text = 'b'", make=_DYN, harmless=True)
_add("dynamic: a sum of the sizes of two inputs", _model("torch.cat([x, y])[:self.k]", "self.k = 2").replace("def forward(self, x)", "def forward(self, x, y)"), "model.k = 4", make=_inputs("args = (torch.rand(3, 4), torch.rand(5, 4))\ndynamic_shapes = ({0: torch.export.Dim('n', min=2, max=8)}, {0: torch.export.Dim('m', min=2, max=8)})"))

# 8. Arguments and results.

_TWO = _model("x * 2 + y").replace("def forward(self, x)", "def forward(self, x, y)")
_INPLACE = _model("x = x + 0\ny.add_(1)\nreturn x * 2 + y").replace("def forward(self, x)", "def forward(self, x, y)")
_add("arguments at work: one tensor is passed twice", _TWO, "args = (args[0], args[0])", make=_inputs("args = (torch.rand(3, 4), torch.rand(3, 4))"))
_add("arguments at work: one tensor is passed twice, and the second is changed", _INPLACE, "args = (args[0], args[0])", make=_inputs("args = (torch.rand(3, 4), torch.rand(3, 4))"))
_add("arguments at work: the second is a view of the first", _TWO, "args = (args[0], args[0][:])", make=_inputs("args = (torch.rand(3, 4), torch.rand(3, 4))"))
_add("arguments at work: the second is passed by keyword", _TWO, "args, kwargs = args[:1], {'y': args[1]}", make=_inputs("args = (torch.rand(3, 4), torch.rand(3, 4))"))
_add("arguments at work: keywords come in another order", _TWO, "kwargs = dict(reversed(kwargs.items()))", make=_inputs("args, kwargs = (), {'x': torch.rand(3, 4), 'y': torch.rand(3, 4)}"))
_add("arguments at work: keys of a batch come in another order", _model("batch['a'] * 2 - batch['b']").replace("def forward(self, x)", "def forward(self, batch)"), "args = (dict(reversed(args[0].items())),)", make=_inputs("args = ({'a': torch.rand(3, 4), 'b': torch.rand(3, 4)},)"))
_add("arguments at work: a batch has another entry that is not used", _model("batch['a'] * 2").replace("def forward(self, x)", "def forward(self, batch)"), "args[0]['b'] = torch.rand(2)", make=_inputs("args = ({'a': torch.rand(3, 4)},)"))
_add("arguments at work: a parameter of forward is renamed", _model("x * 2"), "", ("def forward(self, x):\n        return x * 2", "def forward(self, data):\n        return data * 2"))
_add("arguments at work: an option of forward gets another default", _model("x * by").replace("def forward(self, x)", "def forward(self, x, by=2.0)"), "type(model).forward.__defaults__ = (3.0,)")
_add("arguments at work: an option of forward is added behind", _model("x * 2"), "", ("def forward(self, x):", "def forward(self, x, mask=None):"))
_add("arguments at work: an option is passed with its default", _model("x * by").replace("def forward(self, x)", "def forward(self, x, by=2.0)"), "kwargs = {'by': 2.0}")
_add("arguments at work: an int becomes a bool", _model("x * 2, torch.full((2,), by)").replace("def forward(self, x)", "def forward(self, x, by)"), "args = (args[0], True)", make=_inputs("args = (args[0], 1)"))
_add("arguments at work: an input is expanded", _model("x * 2"), "args = (torch.rand(1, 4).expand(3, 4),)")
_add("arguments at work: an input requires gradients", _model("x * 2"), "args = (args[0].requires_grad_(),)")
_add("arguments at work: an input is transposed", _model("x.reshape(-1)"), "args = (torch.rand(4, 3).t(),)")
_add("arguments at work: an input is a parameter of the model", _model("self.lin(x) * 2"), "args = (model.lin.weight,)", make=_inputs("args = (torch.rand(4, 4, requires_grad=True),)"))
_add("arguments at work: an input is a buffer that forward changes", _model("self.b.add_(1)\nreturn x * 2", "self.register_buffer('b', torch.ones(4))"), "args = (model.b,)", make=_inputs("args = (torch.ones(4),)"))
for _doc, _before, _after, _top in (
    ("a key is renamed", "{'logits': x * 2}", "{'scores': x * 2}", ""),
    ("keys are in another order", "{'a': x * 2, 'b': x + 1}", "{'b': x + 1, 'a': x * 2}", ""),
    ("values are exchanged", "{'a': x * 2, 'b': x + 1}", "{'a': x + 1, 'b': x * 2}", ""),
    ("a list becomes a tuple", "[x * 2]", "(x * 2,)", ""),
    ("a named tuple has another field", "Out(x * 2)", "Out(x * 2)", "import collections\nOut = collections.namedtuple('Out', 'FIELD')\n"),
    ("a version is returned along", "{'x': x * 2, 'version': '1.0'}", "{'x': x * 2, 'version': '1.1'}", ""),
    ("a threshold is returned along", "x * 2, 0.5", "x * 2, 0.25", ""),
    ("a None is returned along", "x * 2, None", "x * 2, False", ""),
    ("the same tensor is returned twice", "y = x * 2\nreturn y, y", "y = x * 2\nreturn y, y.clone()", ""),
    ("a view is returned along", "y = x * 2\nreturn y, y[0]", "y = x * 2\nreturn y, y[0].clone()", ""),
    ("the input is returned along", "x * 2, x", "x * 2, x.clone()", ""),
    ("the input is returned as a view", "x.view(4, 3)", "x.reshape(4, 3).view(4, 3)", ""),
    ("a weight is returned along", "x * 2, self.lin.weight", "x * 2, self.lin.weight.detach()", ""),
    ("a weight is returned, and a copy of it", "x * 2, self.lin.weight", "x * 2, self.lin.weight.clone()", ""),
    ("a weight is returned transposed", "x * 2, self.lin.weight", "x * 2, self.lin.weight.t()", ""),
    ("a result is made contiguous", "(x * 2).t()", "(x * 2).t().contiguous()", ""),
    ("a result is detached", "self.lin(x)", "self.lin(x).detach()", ""),
    ("a result has another dtype at the end", "self.lin(x)", "self.lin(x).half()", ""),
    ("one of two results is dropped", "x * 2, x + 1", "x * 2, 1", ""),
    ("a default dictionary is returned", "collections.OrderedDict(a=x * 2)", "dict(a=x * 2)", "import collections\n"),
):
    _edit(f"results at work: {_doc}", _before, _after, top=_top) if "FIELD" not in _top else _add(f"results at work: {_doc}", _model(_before, top=_top.replace("FIELD", "one")), "", ("'one'", "'two'"))
_add("results at work: a text comes from the environment", _model("{'x': x * 2, 'host': os.environ.get('WHERE', 'a')}", top="import os\n"), "", env={"WHERE": "b"})
_add("results at work: an output class orders its keys by a global", _model("Out(x * 2, x + 1)", top="from dataclasses import dataclass\nfrom transformers.utils import ModelOutput\n@dataclass\nclass Out(ModelOutput):\n    a: torch.Tensor = None\n    b: torch.Tensor = None\n"), "", ("    a: torch.Tensor = None\n    b: torch.Tensor = None\n", "    b: torch.Tensor = None\n    a: torch.Tensor = None\n"))

# 9. State that forward changes.

_add("changes at work: a counter is a buffer, and counts by another step", _model("self.n.add_(self.by)\nreturn x * self.n", "self.register_buffer('n', torch.zeros(()))\nself.by = 1"), "model.by = 2")
_add("changes at work: a counter is assigned", _model("self.n = self.n + self.by\nreturn x * self.n", "self.register_buffer('n', torch.zeros(()))\nself.by = 1"), "model.by = 2")
_add("changes at work: a counter has counted", _model("self.n.add_(1)\nreturn x * self.n", "self.register_buffer('n', torch.zeros(()))"), "model(*args)", harmless=True)
_add("changes at work: a counter is not persistent, and has counted", _model("self.n.add_(1)\nreturn x * self.n", "self.register_buffer('n', torch.zeros(()), persistent=False)"), "model(*args)")
_add("changes at work: a counter is not changed any more", _model("if self.on:\n    self.n.add_(1)\nreturn x * 2", "self.register_buffer('n', torch.zeros(()))\nself.on = True"), "model.on = False")
_add("changes at work: a cache of keys is written at another place", _model("self.k[self.at] = x[0]\nreturn self.k * 2", "self.register_buffer('k', torch.zeros(8, 4))\nself.at = 0"), "model.at = 1")
_add("changes at work: the input is changed in place by a flag", _model("y = x * 2\nif self.on:\n    x.mul_(1)\nreturn y", "self.on = False"), "model.on = True")
_add("changes at work: the input is changed after its use in another order", _model("for f in self.order:\n    f(x)\nreturn x * 2", "self.order = [lambda t: t.add_(1), lambda t: t.mul_(2)]"), "model.order.reverse()")
_add("changes at work: a log of losses is a plain list of floats", _model("self.log.append(tuple(x.shape))\nreturn x * 2", "self.log = []"), "model.log.extend([1, 2])", harmless=True)
_add("changes at work: the length of a log decides", _model("self.log.append(tuple(x.shape))\nreturn x * len(self.log)", "self.log = []"), "model.log.extend([1, 2])")
_add("changes at work: a deque of the last inputs is full", _model("self.last.append(x.shape[0])\nreturn x * len(self.last)", "import collections\nself.last = collections.deque(maxlen=4)"), "model.last.extend([1, 2, 3])")
_add("changes at work: a power iteration in training changes a buffer", _model("self.lin(x)", "self.lin = nn.utils.spectral_norm(self.lin)"), "model.train()")

# 10. Custom operators, TorchScript, graphs.

_OP = "@torch.library.custom_op('fieldwork::scale', mutates_args=())\ndef scale(x: torch.Tensor) -> torch.Tensor:\n    return x * 2\n@scale.register_fake\ndef _(x):\n    return torch.empty_like(x)\n"
_add("operators at work: the body of a custom operator is edited", _model("scale(x)", top=_OP), "", ("return x * 2", "return x * 3"))
_add("operators at work: a custom operator is replaced by a kernel", _model("scale(x)", top=_OP), "app.scale.register_kernel('cpu')(lambda x: x * 3)")
_COMP = "LIB = torch.library.Library('fieldcomp', 'DEF')\nLIB.define('twice(Tensor x) -> Tensor')\ndef twice(x):\n    return x * BY[0]\nBY = [2]\nLIB.impl('twice', twice, 'CompositeImplicitAutograd')\n"
_add("operators at work: a composite operator in Python reads another global", _model("torch.ops.fieldcomp.twice(x)", top=_COMP), "app.BY[0] = 3")
_add("operators at work: a composite operator in Python is edited", _model("torch.ops.fieldcomp.twice(x)", top=_COMP), "", ("x * BY[0]", "x + BY[0]"))
_add("operators at work: a composite operator's unused global is another", _model("torch.ops.fieldcomp.twice(x)", top=_COMP + "OTHER = 1\n"), "app.OTHER = 2", harmless=True)
_add("operators at work: a function of TorchScript is edited", _model("act(x)", top="@torch.jit.script\ndef act(x):\n    return torch.relu(x - 4)\n"), "", ("torch.relu(x - 4)", "torch.relu(x - 3)"))
_add("operators at work: a function of TorchScript that is called with a flag", _model("act(x, self.on)", "self.on = True", "@torch.jit.script\ndef act(x, on: bool):\n    if on:\n        return torch.relu(x - 4)\n    return torch.tanh(x)\n"), "model.on = False")
_add("operators at work: a function that is traced is traced for another", _model("ACT(x)", top="ACT = torch.jit.trace(lambda x: x * 2, torch.rand(3, 4))\n"), "app.ACT = torch.jit.trace(lambda x: x * 3, torch.rand(3, 4))")
_add("operators at work: a function of TorchScript and retrained weights", _model("act(self.lin(x))", top="@torch.jit.script\ndef act(x):\n    return torch.relu(x - 4)\n"), "model.lin.weight.data.add_(1.0)", harmless=True)
_FX = MAKE + "import torch.fx\nmodel = torch.fx.symbolic_trace(model)\n"
_add("graphs at work: an argument of a node is edited and recompiled", _model("self.lin(x) * 2"), "for n in model.graph.nodes:\n    if n.target.__class__.__name__ == 'builtin_function_or_method':\n        n.args = (n.args[0], 3)\nmodel.recompile()", make=_FX)
_add("graphs at work: an argument of a node is edited and not recompiled", _model("self.lin(x) * 2"), "for n in model.graph.nodes:\n    if n.target.__class__.__name__ == 'builtin_function_or_method':\n        n.args = (n.args[0], 3)\n", make=_FX)
_add("graphs at work: a graph is interpreted, and a node is edited", _model("torch.fx.Interpreter(self.gm).run(x)", "self.gm = torch.fx.symbolic_trace(Inner())", "import torch.fx\nclass Inner(nn.Module):\n    def forward(self, x):\n        return x * 2\n"), "n = [*model.gm.graph.nodes][1]; n.args = (n.args[0], 3)")
_add("graphs at work: an interpreter of one's own scales", _model("RUN(self.gm).run(x)", "self.gm = torch.fx.symbolic_trace(Inner())", "import torch.fx\nclass Inner(nn.Module):\n    def forward(self, x):\n        return torch.relu(x) * 2\nclass RUN(torch.fx.Interpreter):\n    by = 1\n    def call_function(self, target, args, kwargs):\n        return super().call_function(target, args, kwargs) * self.by\n"), "app.RUN.by = 2")
_add("graphs at work: a pattern is replaced", _model("torch.relu(self.lin(x))"), "torch.fx.replace_pattern(model, lambda v: torch.relu(v), lambda v: torch.tanh(v))", make=_FX)
_add("graphs at work: a constant of a graph is another", _model("x + torch.tensor([1.0, 2.0, 3.0, 4.0])"), "[b for n, b in model.named_buffers()] or setattr(model, '_tensor_constant0', torch.ones(4))\nfor n, b in model.named_buffers():\n    b.fill_(1.0)", make=_FX)
_add("graphs at work: a graph is linted, cleaned and printed", _model("self.lin(x) * 2"), "model.graph.lint(); model.graph.eliminate_dead_code(); model.recompile(); str(model.code)", make=_FX, harmless=True)
_EXPORTED = MAKE + "outer = torch.nn.Module()\nclass Outer(torch.nn.Module):\n    def __init__(self, inner):\n        super().__init__()\n        self.inner, self.by = inner, 2.0\n    def forward(self, x):\n        return self.inner(x) * self.by\nmodel = Outer(torch.export.export(model, args).module())\n"
_add("graphs at work: an exported part is scaled", _model("self.lin(x)"), "model.by = 3.0", make=_EXPORTED)
_add("graphs at work: an exported part is trained", _model("self.lin(x)"), "model.inner.lin.weight.data.add_(1.0)", make=_EXPORTED, harmless=True)
_add("graphs at work: an exported part has another scalar", _model("self.lin(x) * 2"), "", ("self.lin(x) * 2", "self.lin(x) * 3"), make=_EXPORTED)
_add("graphs at work: an exported part has another constant", _model("self.lin(x) + torch.tensor([1.0, 2.0, 3.0, 4.0])"), "", ("3.0, 4.0", "3.0, 5.0"), make=_EXPORTED)

# 11. Steps that are counted: the limit comes within an export's calls of forward.

for _at in (96, 97, 98, 99):
    _add(f"steps: a warm-up ends after as many calls, and {_at} are done", _model("self.calls += 1\nreturn x * (2.0 if self.calls < 100 else 3.0)", "self.calls = 0"), f"model.calls = {_at}")
    _add(f"steps: a log is full, and {_at} are in it", _model("self.log.append(1)\nreturn x * (2.0 if len(self.log) < 100 else 3.0)", "self.log = []"), f"model.log = [1] * {_at}")
    _add(f"steps: a deque is full, and {_at} are in it", _model("self.log.append(1)\nreturn x * (2.0 if len(self.log) < 100 else 3.0)", "import collections\nself.log = collections.deque()"), f"model.log.extend([1] * {_at})")
    _add(f"steps: a meter of one's own, and {_at} are done", _model("self.m.add()\nreturn x * (2.0 if self.m.n < 100 else 3.0)", "self.m = Meter()", "class Meter:\n    __slots__ = ('n',)\n    def __init__(self):\n        self.n = 0\n    def add(self):\n        self.n += 1\n"), f"model.m.n = {_at}")

# 12. What only a first call does: imports, warnings, caches. Later processes should hit.

_TRAINED = "model.lin.weight.data.add_(1.0)"
for _doc, _forward, _top, _files in (
    ("a module is imported in forward", "from util import f\nreturn f(self.lin(x))", "", "--- util.py\nK = len([1, 2])\ndef f(x):\n    return x * K\n"),
    ("a package is imported in forward by importlib", "return importlib.import_module('util').f(self.lin(x))", "import importlib\n", "--- util/__init__.py\nfrom util.a import f\n--- util/a.py\nK = len([1, 2])\ndef f(x):\n    return x * K\n"),
    ("a module's __getattr__ imports lazily", "return util.act(self.lin(x))", "import util\n", "--- util/__init__.py\nimport importlib\ndef __getattr__(name):\n    m = importlib.import_module('util.acts')\n    globals()[name] = v = getattr(m, name)\n    return v\n--- util/acts.py\nclass A:\n    k = 2\ndef act(x):\n    return x * A.k\n"),
    ("a warning is given once by a cached function", "warn_once('slow')\nreturn self.lin(x)", "import functools, warnings\n@functools.lru_cache(None)\ndef warn_once(text):\n    emit(text)\ndef emit(text):\n    warnings.warn(text)\n", ""),
    ("a warning is given once by a logger of transformers", "LOG.warning_once('slow')\nreturn self.lin(x)", "from transformers.utils import logging\nLOG = logging.get_logger(__name__)\n", ""),
    ("a warning is given once by a global set", "if 'a' not in SEEN:\n    SEEN.add('a')\n    emit('a')\nreturn self.lin(x)", "SEEN = set()\ndef emit(text):\n    print(text)\n", ""),
    ("a warning is given once by a set in a library", "lib.once('a')\nreturn self.lin(x)", "import lib\n", "--- lib.py\nSEEN = set()\ndef once(text):\n    if text not in SEEN:\n        SEEN.add(text)\n        emit(text)\ndef emit(text):\n    print(text)\n"),
    ("a configuration is read at the first call, with lru_cache", "self.lin(x) * cfg()['by']", "import functools, json\n@functools.lru_cache\ndef cfg():\n    return json.load(open('c.json'), object_hook=hook)\ndef hook(d):\n    return d\n", "--- c.json\n{\"by\": 2}\n"),
    ("a configuration is read at the first call, into a class attribute", "self.lin(x) * Cfg.get()", "class Cfg:\n    value = None\n    @classmethod\n    def get(cls):\n        if cls.value is None:\n            cls.value = load()\n        return cls.value\ndef load():\n    return 2\n", ""),
    ("a singleton is made at the first call", "self.lin(x) * Single().by", "class Single:\n    one = None\n    def __new__(cls):\n        if cls.one is None:\n            cls.one = super().__new__(cls)\n            cls.one.setup()\n        return cls.one\n    def setup(self):\n        self.by = 2\n", ""),
    ("a cached property of the model", "self.lin(x) * self.by", "import functools\n", ""),
    ("a cached property of a configuration in a frozen dataclass", "self.lin(x) * CFG.by", "import dataclasses, functools\n@dataclasses.dataclass(frozen=True)\nclass Cfg:\n    a: int = 1\n    @functools.cached_property\n    def by(self):\n        return self.a + 1\nCFG = Cfg()\n", ""),
    ("a regular expression is compiled at the first call", "self.lin(x) * int(re.search(r'by=(\\d+)', 'a by=2 c')[1])", "import re\n", ""),
    ("a template is compiled by jinja2 at the first call", "self.lin(x) * int(jinja2.Template('{{ a + 1 }}').render(a=1))", "import jinja2\n", ""),
    ("a YAML file is parsed in forward", "self.lin(x) * yaml.safe_load('by: 2')['by']", "import yaml\n", ""),
    ("an expression of sympy is computed in forward", "self.lin(x) * int(sympy.Integer(2) ** 2)", "import sympy\n", ""),
    ("a mask is cached by size with lru_cache", "self.lin(x) + mask(x.shape[0])", "import functools\n@functools.lru_cache\ndef mask(n):\n    return build(n)\ndef build(n):\n    return torch.ones(n, 4).triu()\n", ""),
    ("a mask is cached in a class's dictionary", "self.lin(x) + Masks.get(x.shape[0])", "class Masks:\n    all = {}\n    @classmethod\n    def get(cls, n):\n        if n not in cls.all:\n            cls.all[n] = build(n)\n        return cls.all[n]\ndef build(n):\n    return torch.ones(n, 4).triu()\n", ""),
    ("a function registers itself for singledispatch at the first call", "self.lin(x) * kind(2)", "import functools\n@functools.singledispatch\ndef kind(v):\n    return 3\n@kind.register\ndef _(v: int):\n    return v\n", ""),
    ("a dataclass is made in forward with a default factory", "self.lin(x) * Box().items[0]", "import dataclasses\n@dataclasses.dataclass\nclass Box:\n    items: list = dataclasses.field(default_factory=lambda: [2])\n", ""),
    ("a named tuple is made in forward", "self.lin(x) * Pair(2, 3).a", "import collections\nPair = collections.namedtuple('Pair', 'a b')\n", ""),
    ("a class is made in forward", "class Local:\n    by = 2\nreturn self.lin(x) * Local.by", "", ""),
    ("an enum is made in forward", "import enum\nclass Kind(enum.IntEnum):\n    A = 2\nreturn self.lin(x) * Kind.A", "", ""),
    ("code is generated and run in forward", "space = {}\nexec('def f(v):\\n    return v * 2', space)\nreturn space['f'](self.lin(x))", "", ""),
    ("an expression is evaluated in forward", "self.lin(x) * eval('1 + len(\\'a\\')')", "", ""),
    ("pydantic validates a model in forward", "self.lin(x) * Cfg(by='2').by", "import pydantic\nclass Cfg(pydantic.BaseModel):\n    by: int\n", ""),
    ("attrs' class is made in forward", "self.lin(x) * Cfg().by", "import attrs\n@attrs.define\nclass Cfg:\n    by: int = attrs.field(default=2, converter=int, validator=attrs.validators.gt(0))\n", ""),
    ("numpy computes a table in forward", "self.lin(x) + torch.from_numpy(np.linspace(0, 1, 4).astype('f4'))", "import numpy as np\n", ""),
    ("a weak dictionary keeps what was computed for a layer", "if self.lin not in SEEN:\n    SEEN[self.lin] = make()\nreturn self.lin(x) * SEEN[self.lin]", "import weakref\nSEEN = weakref.WeakKeyDictionary()\ndef make():\n    return 2\n", ""),
    ("an attribute is set on a function at the first call", "self.lin(x) * once()", "def once():\n    if not hasattr(once, 'value'):\n        once.value = make()\n    return once.value\ndef make():\n    return 2\n", ""),
    ("a default dictionary makes its value at the first call", "self.lin(x) * TABLE['a']", "import collections\ndef make():\n    return 2\nTABLE = collections.defaultdict(make)\n", ""),
    ("a closure keeps its value from the first call", "self.lin(x) * get()", "def keep(f):\n    value = None\n    def get():\n        nonlocal value\n        if value is None:\n            value = f()\n        return value\n    return get\n@keep\ndef get():\n    return 2\n", ""),
    ("a profiler's region", "with torch.profiler.record_function('a'):\n    return self.lin(x)", "", ""),
    ("a profiler's region as a decorator of NVTX-like code", "with region('a'):\n    return self.lin(x)", "import contextlib, time\n@contextlib.contextmanager\ndef region(name):\n    began = time.perf_counter()\n    yield\n    print(name, time.perf_counter() - began)\n", ""),
    ("autocast in forward", "with torch.autocast('cpu', dtype=torch.bfloat16):\n    return self.lin(x)", "", ""),
    ("checkpointing in forward", "torch.utils.checkpoint.checkpoint(self.lin, x, use_reentrant=False)", "import torch.utils.checkpoint\n", ""),
    ("vmap in forward", "torch.func.vmap(lambda row: self.lin(row) * 2)(x)", "", ""),
    ("a compiled helper in forward", "helper(self.lin(x))", "@torch.compile(backend='eager')\ndef helper(x):\n    return x * 2\n", ""),
    ("types are checked by beartype-like code", "typed(self.lin(x), 2)", "import inspect, functools\ndef check(f):\n    sig = inspect.signature(f)\n    @functools.wraps(f)\n    def inner(*a, **k):\n        bound = sig.bind(*a, **k)\n        for n, v in bound.arguments.items():\n            t = sig.parameters[n].annotation\n            if t is not inspect.Parameter.empty and not isinstance(v, t):\n                raise TypeError(n)\n        return f(*a, **k)\n    return inner\n@check\ndef typed(x: torch.Tensor, by: int):\n    return x * by\n", ""),
    ("an error of one's own is caught", "try:\n    by = TABLE['x']\nexcept KeyError:\n    by = 2\nreturn self.lin(x) * by", "TABLE = {}\n", ""),
    ("a pool of threads runs two heads", "with concurrent.futures.ThreadPoolExecutor(2) as pool:\n    a, b = pool.map(lambda k: k * 2, [1, 2])\nreturn self.lin(x) * a + b", "import concurrent.futures\n", ""),
    ("a coroutine is run in forward", "self.lin(x) * asyncio.run(value())", "import asyncio\nasync def value():\n    return 2\n", ""),
    ("a subprocess is asked in forward", "self.lin(x) * int(subprocess.run(['echo', '2'], capture_output=True).stdout)", "import subprocess\n", ""),
):
    _add(f"first call, then trained: {_doc}", _model(_forward, top=_top, more="@functools.cached_property\ndef by(self):\n    return make()\n" if "self.by" in _forward else "").replace("import functools\n\n\nclass Model", "import functools\ndef make():\n    return 2\n\nclass Model") + _files, _TRAINED, harmless=True)

# 13. Weights, inputs and layers as objects: what an export puts in their place.

for _doc, _forward, _init, _change in (
    ("a quantization state is kept on a parameter", "self.lin(x) * getattr(self.lin.weight, 'scale', 2.0)", "self.lin.weight.scale = 2.0", "model.lin.weight.scale = 3.0"),
    ("a quantization state is kept on a parameter from now on", "self.lin(x) * getattr(self.lin.weight, 'scale', 2.0)", "pass", "model.lin.weight.scale = 3.0"),
    ("a quantization state is kept on a buffer", "x * self.b * getattr(self.b, 'scale', 2.0)", "self.register_buffer('b', torch.ones(4))\nself.b.scale = 2.0", "model.b.scale = 3.0"),
    ("a quantization state is kept on a constant", "x * self.c * getattr(self.c, 'scale', 2.0)", "self.c = torch.ones(4)\nself.c.scale = 2.0", "model.c.scale = 3.0"),
    ("an image's size is kept on the input", "x * getattr(x, 'size_hint', 2.0)", "pass", "args[0].size_hint = 3.0"),
    ("a weight is known by its identity", "self.lin(x) * (3.0 if any(self.lin.weight is w for w in self.known) else 2.0)", "self.known = []", "model.known.append(model.lin.weight)"),
    ("a weight is a key of a dictionary", "self.lin(x) * self.known.get(self.lin.weight, 2.0)", "self.known = {}", "model.known[model.lin.weight] = 3.0"),
    ("a weight's identity is a key of a dictionary", "self.lin(x) * self.known.get(id(self.lin.weight), 2.0)", "self.known = {}", "model.known[id(model.lin.weight)] = 3.0"),
    ("a layer's identity is a key of a dictionary", "self.lin(x) * self.known.get(id(self.lin), 2.0)", "self.known = {}", "model.known[id(model.lin)] = 3.0"),
    ("a layer is a key of a dictionary", "self.lin(x) * self.known.get(self.lin, 2.0)", "self.known = {}", "model.known[model.lin] = 3.0"),
    ("whether two weights are tied is asked by identity", "self.two(self.lin(x)) * (3.0 if self.two.weight is self.lin.weight else 2.0)", "self.two = nn.Linear(4, 4)", "model.two.weight = model.lin.weight"),
    ("whether two layers are one is asked by identity", "self.two(self.lin(x)) * (3.0 if self.two is self.lin else 2.0)", "self.two = nn.Linear(4, 4)", "model.two = model.lin"),
    ("a weight is asked whether it is a Parameter", "x @ self.w * (3.0 if isinstance(self.w, nn.Parameter) else 2.0)", "self.w = nn.Parameter(torch.ones(4, 4))", "del model.w; model.w = torch.ones(4, 4)"),
    ("whether a weight has a gradient decides", "self.lin(x) * (2.0 if self.lin.weight.grad is None else 3.0)", "pass", "model.lin.weight.grad = torch.ones(4, 4)"),
    ("a weight is asked whether it requires gradients", "self.lin(x) * (2.0 if self.lin.weight.requires_grad else 3.0)", "pass", "model.lin.weight.requires_grad_(False)"),
    ("a weight is asked whether it is a leaf", "self.lin(x) * (2.0 if self.w.is_leaf else 3.0)", "self.w = self.lin.weight", "model.__dict__['w'] = model.lin.weight * 1"),
    ("the number of parameters is counted", "x * sum(1 for _ in self.parameters())", "self.extra = nn.ParameterList()", "model.extra.append(torch.ones(1))"),
    ("the number of trained parameters is counted", "x * sum(p.requires_grad for p in self.parameters())", "pass", "model.lin.bias.requires_grad_(False)"),
    ("names of the state are counted", "x * len(self.state_dict())", "self.register_buffer('b', torch.ones(1), persistent=False)", "model._non_persistent_buffers_set.clear()"),
    ("the first parameter's dtype is taken", "x.to(next(self.parameters()).dtype)", "pass", "model.double()"),
    ("a device property", "x + torch.ones(4, device=self.lin.weight.device)", "pass", "model.lin.weight.data.mul_(2)"),
    ("modules are found by name in forward", "dict(self.named_modules())[self.name](x)", "self.two, self.name = nn.Linear(4, 4), 'lin'", "model.name = 'two'"),
    ("modules are filtered by type in forward", "y = x\nfor m in self.modules():\n    if type(m).__name__ in self.kinds:\n        y = m(y)\nreturn y * 2", "self.two, self.kinds = nn.Tanh(), ('Linear',)", "model.kinds = ('Linear', 'Tanh')"),
    ("a submodule is fetched by get_submodule", "self.get_submodule(self.name)(x)", "self.two, self.name = nn.Linear(4, 4), 'lin'", "model.name = 'two'"),
    ("a frozen copy of the weights is kept in a list", "F.linear(x, self.kept[0])", "self.kept = [self.lin.weight.detach().clone()]", "model.kept[0].add_(1.0)"),
    ("a weight is kept in a list too", "F.linear(x, self.kept[0])", "self.kept = [self.lin.weight]", "model.kept[0] = model.lin.weight.detach().clone()"),
    ("a weight's view is kept in a list", "F.linear(x, self.kept[0])", "self.kept = [self.lin.weight.detach().t()]", "model.lin.weight.data.add_(1.0)"),
    ("a weight of another model is used", "F.linear(x, self.other[0].weight)", "self.other = [nn.Linear(4, 4)]", "model.other[0].weight.data.add_(1.0)"),
    ("another model in a list is run", "self.other[0](x)", "self.other = [nn.Linear(4, 4)]", "model.other[0].weight.data.add_(1.0)"),
    ("a teacher in __dict__ is run", "self.teacher(x) + self.lin(x)", "self.__dict__['teacher'] = nn.Linear(4, 4)", "model.teacher.bias.data.add_(1.0)"),
    ("whether an export runs has another factor", "x * (self.a if torch.compiler.is_exporting() else 2.0)", "self.a = 2.0", "model.a = 3.0"),
    ("whether torch compiles has another factor", "x * (self.a if torch.compiler.is_compiling() else 2.0)", "self.a = 2.0", "model.a = 3.0"),
    ("whether Dynamo compiles has another factor", "x * (self.a if torch.compiler.is_dynamo_compiling() else 2.0)", "self.a = 2.0", "model.a = 3.0"),
    ("whether TorchScript traces has another factor", "x * (self.a if torch.jit.is_tracing() else 2.0)", "self.a = 2.0", "model.a = 3.0"),
    ("whether ONNX is exported has another factor", "x * (self.a if torch.onnx.is_in_onnx_export() else 2.0)", "self.a = 2.0", "model.a = 3.0"),
    ("whether FX traces has another factor", "x * (self.a if torch.fx._symbolic_trace.is_fx_tracing() else 2.0)", "self.a = 2.0", "model.a = 3.0"),
    ("whether the input is a plain tensor has another factor", "x * (self.a if type(x) is torch.Tensor else 2.0)", "self.a = 2.0", "model.a = 3.0"),
    ("whether the input is fake has another factor", "x * (self.a if 'Fake' in type(x).__name__ else 2.0)", "self.a = 2.0", "model.a = 3.0"),
    ("whether the input is functional has another factor", "x * (self.a if 'Functional' in type(x).__name__ else 2.0)", "self.a = 2.0", "model.a = 3.0"),
    ("whether the weight is functional has another factor", "x * (self.a if 'Functional' in type(self.lin.weight).__name__ else 2.0)", "self.a = 2.0", "model.a = 3.0"),
    ("whether a result is functional has another factor", "y = x + 1\nreturn y * (self.a if 'Functional' in type(y).__name__ else 2.0)", "self.a = 2.0", "model.a = 3.0"),
    ("whether a constant is fake has another factor", "x * self.c * (self.a if 'Fake' in type(self.c).__name__ else 2.0)", "self.a, self.c = 2.0, torch.ones(4)", "model.a = 3.0"),
    ("whether a constant is functional has another factor", "x * self.c * (self.a if 'Functional' in type(self.c).__name__ else 2.0)", "self.a, self.c = 2.0, torch.ones(4)", "model.a = 3.0"),
    ("whether a new tensor is fake has another factor", "y = torch.zeros(4)\nreturn x * (self.a if 'Fake' in type(y).__name__ else 2.0) + y", "self.a = 2.0", "model.a = 3.0"),
    ("whether gradients are recorded has another factor", "x * (self.a if torch.is_grad_enabled() else 2.0)", "self.a = 2.0", "model.a = 3.0"),
    ("whether a result has a history has another factor", "y = self.lin(x)\nreturn y * (self.a if y.requires_grad else 2.0)", "self.a = 2.0", "model.a = 3.0"),
    ("the name of the caller has another factor", "x * (self.a if sys._getframe(1).f_code.co_name == '_call_impl' else 2.0)", "self.a = 2.0\nglobal sys\nimport sys", "model.a = 3.0"),
    ("the depth of the stack has another factor", "x * (self.a if len(inspect.stack(0)) > self.limit else 2.0)", "self.a, self.limit = 2.0, 45\nglobal inspect\nimport inspect", "model.a = 3.0"),
    ("a module of an exporter was imported, and has another factor", "x * (self.a if 'torch._dynamo' in sys.modules else 2.0)", "self.a = 2.0\nglobal sys\nimport sys", "model.a = 3.0"),
    ("the name of the thread has another factor", "x * (self.a if threading.current_thread() is threading.main_thread() else 2.0)", "self.a = 2.0\nglobal threading\nimport threading", "model.a = 3.0"),
    ("whether a trace function is set has another factor", "x * (self.a if sys.gettrace() or sys.getprofile() else 2.0)", "self.a = 2.0\nglobal sys\nimport sys", "model.a = 3.0"),
    ("whether code is monitored has another factor", "x * (self.a if any(sys.monitoring.get_tool(i) for i in range(6)) else 2.0) if hasattr(sys, 'monitoring') else x * self.a", "self.a = 2.0\nglobal sys\nimport sys", "model.a = 3.0"),
    ("whether a debugger's breakpoint hook is there has another factor", "x * (self.a if sys.breakpointhook is sys.__breakpointhook__ else 2.0)", "self.a = 2.0\nglobal sys\nimport sys", "model.a = 3.0"),
    ("whether printing goes to the first output has another factor", "x * (self.a if sys.stdout is sys.__stdout__ else 2.0)", "self.a = 2.0\nglobal sys\nimport sys", "model.a = 3.0"),
    ("whether forward was replaced on the instance has another factor", "x * (self.a if 'forward' in self.__dict__ else 2.0)", "self.a = 2.0", "model.a = 3.0"),
    ("whether a layer's class is the original has another factor", "x * (self.a if type(self.lin) is nn.Linear else 2.0)", "self.a = 2.0", "model.a = 3.0"),
    ("whether a shared layer's class is the original has another factor", "self.two(self.lin(x)) * (self.a if type(self.two) is nn.Linear else 2.0)", "self.two, self.a = self.lin, 2.0", "model.a = 3.0"),
    ("whether shared layers are one has another factor", "self.two(self.lin(x)) * (self.a if self.two is self.lin else 2.0)", "self.two, self.a = self.lin, 2.0", "model.a = 3.0"),
    ("whether a weight is in the module's dictionary has another factor", "self.lin(x) * (self.a if isinstance(self.lin._parameters['weight'], nn.Parameter) else 2.0)", "self.a = 2.0", "model.a = 3.0"),
    ("whether torch's linear is the original has another factor", "self.lin(x) * (self.a if F.linear is ORIGINAL else 2.0)", "self.a = 2.0\nglobal ORIGINAL\nORIGINAL = F.linear", "model.a = 3.0"),
    ("whether max is the original has another factor", "x * (self.a if max is builtins.max else 2.0)", "self.a = 2.0\nglobal builtins\nimport builtins", "model.a = 3.0"),
    ("how many modes of functions there are has another factor", "x * (self.a if torch._C._len_torch_function_stack() else 2.0)", "self.a = 2.0", "model.a = 3.0"),
    ("whether the garbage collection was frozen has another factor", "x * (self.a if gc.isenabled() else 2.0)", "self.a = 2.0\nglobal gc\nimport gc", "model.a = 3.0"),
    ("whether warnings are recorded has another factor", "x * (self.a if 'record' in repr(warnings.showwarning) or warnings.showwarning is not ORIGINAL else 2.0)", "self.a = 2.0\nglobal warnings, ORIGINAL\nimport warnings\nORIGINAL = warnings.showwarning", "model.a = 3.0"),
    ("whether an input is contiguous in an export has another factor", "x * (self.a if x.is_contiguous() else 2.0)", "self.a = 2.0", "model.a = 3.0"),
    ("whether inference tensors are made has another factor", "x * (self.a if (x + 1).is_inference() else 2.0)", "self.a = 2.0", "model.a = 3.0"),
):
    _add(f"as objects: {_doc}", _model(_forward, _init), _change)

# 14. Shared layers, as in ALBERT.

_SHARED = "class Layer(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc, self.idx, self.gain = nn.Linear(4, 4), 0, 2.0\n    def forward(self, x):\n        return self.fc(x) * (self.idx + self.gain)\n"
_SHARED_INIT = "layer = Layer()\nself.layers = nn.ModuleList([layer] * 3)\nself.by = 1"
for _doc, _forward, _change in (
    ("each call sets the index", "for i, l in enumerate(self.layers):\n    l.idx = i * self.by\n    x = l(x)\nreturn x", "model.by = 2"),
    ("the gain of the shared layer is another", "for l in self.layers:\n    x = l(x)\nreturn x", "model.layers[2].gain = 3.0"),
    ("one of the places gets a layer of its own", "for l in self.layers:\n    x = l(x)\nreturn x", "import copy; model.layers[1] = copy.deepcopy(model.layers[0])"),
    ("a hook is put on the shared layer", "for l in self.layers:\n    x = l(x)\nreturn x", "model.layers[0].register_forward_hook(lambda m, a, o: o + 1)"),
    ("forward of the shared layer is replaced on the instance", "for l in self.layers:\n    x = l(x)\nreturn x", "model.layers[0].forward = lambda x: x * 3"),
    ("forward of the shared layer is called without hooks", "for l in self.layers:\n    x = l.forward(x) if self.by == 1 else l(x)\nreturn x", "model.layers[0].register_forward_hook(lambda m, a, o: o + 1)"),
    ("a missing attribute of the shared layer has a default", "for l in self.layers:\n    x = l(x) * getattr(l, 'extra', 2.0)\nreturn x", "model.layers[0].extra = 3.0"),
    ("the shared layer counts its calls", "for l in self.layers:\n    l.idx += self.by\n    x = l(x)\nreturn x", "model.by = 2"),
    ("shared layers are counted as a set", "x * len(set(self.layers)) * self.by", "model.layers[1] = app.Layer()"),
    ("shared layers are sliced", "for l in self.layers[:self.by]:\n    x = l(x)\nreturn x", "model.by = 2"),
    ("the shared layer's class has another method", "for l in self.layers:\n    x = l(x)\nreturn x", "app.Layer.forward = lambda self, x: self.fc(x) * 3"),
    ("the shared layer's weight is read directly", "for l in self.layers:\n    x = F.linear(x, l.fc.weight) * self.by\nreturn x", "model.by = 2"),
    ("the shared layer's part is replaced", "for l in self.layers:\n    x = l(x)\nreturn x", "model.layers[2].fc = nn.Tanh() if 'nn' in globals() else torch.nn.Tanh()"),
):
    _add(f"shared layers: {_doc}", _model(_forward, _SHARED_INIT, _SHARED), _change)
_add("shared layers: they are trained", _model("for l in self.layers:\n    x = l(x)\nreturn x", _SHARED_INIT, _SHARED), "model.layers[0].fc.weight.data.add_(1)", harmless=True)
_add("shared layers: the list is made in another way", _model("for l in self.layers:\n    x = l(x)\nreturn x", _SHARED_INIT, _SHARED), "model.layers = torch.nn.ModuleList([*model.layers])", harmless=True)

# 15. Roots of other kinds.

for _doc, _make, _change in (
    ("averaged weights wrap it", "model = torch.optim.swa_utils.AveragedModel(model).eval()", "model.module.lin.register_forward_hook(lambda m, a, o: o * 2)"),
    ("data parallel wraps it", "model = torch.nn.DataParallel(model).eval()", "model.module.by = 3.0"),
    ("a sequence around it has one more layer", "model = torch.nn.Sequential(model).eval()", "model.append(torch.nn.Tanh())"),
    ("a wrapper for quantization", "model = torch.ao.quantization.QuantWrapper(model).eval()", "model.module.by = 3.0"),
    ("forward is taken from another object", "other = app.Model().eval()\nmodel.forward = other.forward", "other.by = 3.0"),
    ("forward is a lambda on the instance", "import types\nmodel.forward = types.MethodType(lambda self, x: self.lin(x) * self.by, model)", "model.by = 3.0"),
    ("forward is a partial on the instance", "import functools\nmodel.forward = functools.partial(app.Model.forward, model)", "model.by = 3.0"),
    ("the class is made by type", "model.__class__ = type('Sub', (app.Model,), {'forward': lambda self, x: app.Model.forward(self, x) + self.by})", "model.by = 3.0"),
):
    _add(f"roots: {_doc}", _model("self.lin(x) * self.by", "self.by = 2.0"), _change, make=MAKE + "import torch.ao.quantization, torch.optim.swa_utils\n" + _make + "\n")
# 16. Libraries that ask where they run: both answers have a factor, and one of the factors changes.

for _doc, _import, _asks in (
    ("whether a profile function is set", "sys", "sys.getprofile() is not None"),
    ("whether a trace function is set", "sys", "sys.gettrace() is not None"),
    ("whether new threads get a profile function", "threading", "threading.getprofile() is not None"),
    ("whether new threads get a trace function", "threading", "threading.gettrace() is not None"),
    ("whether its frame has a trace function", "sys", "sys._getframe().f_trace is not None"),
    ("whether cProfile can be enabled", "cProfile", "cProfile.Profile().enable() is None"),
    ("for a tracing context", "torch._guards", "torch._guards.TracingContext.try_get() is not None"),
    ("for a fake mode of the input", "torch._guards", "torch._guards.detect_fake_mode([x]) is not None"),
    ("for a fake mode without an input", "torch._guards", "torch._guards.detect_fake_mode() is not None"),
    ("for a compile context", "torch._guards", "torch._guards.CompileContext.try_get() is not None"),
    ("whether functorch's transforms are active", "torch", "torch._C._functorch.peek_interpreter_stack() is not None"),
    ("for the metadata of nodes", "torch.fx.traceback", "torch.fx.traceback.has_preserved_node_meta()"),
    ("for the current metadata", "torch.fx.traceback", "bool(torch.fx.traceback.get_current_meta())"),
    ("for a tracing state", "torch", "torch._C._get_tracing_state() is not None"),
    ("whether saved tensors have hooks", "torch", "torch._C._autograd._saved_tensors_hooks_is_enabled()"),
    ("whether functions of torch are overridable", "torch", "torch._C._is_torch_function_enabled()"),
    ("whether all functions of torch are overridable", "torch", "torch._C._is_torch_function_mode_enabled()"),
    ("whether the input is a view", "torch", "x._is_view()"),
    ("for the input's version", "torch", "x._version > 0"),
    ("for the input's storage", "torch", "x.untyped_storage().nbytes() == 48"),
    ("whether the input is shared", "torch", "x.is_shared()"),
    ("whether the input has a fake mode", "torch", "hasattr(x, 'fake_mode')"),
    ("whether the weight has a fake mode", "torch", "hasattr(self.lin.weight, 'fake_mode')"),
    ("whether the weight's class is Parameter exactly", "torch", "type(self.lin.weight) is nn.Parameter"),
    ("whether a weight's data has a class of its own", "torch", "type(self.lin.weight.data) is torch.Tensor"),
    ("whether a weight that is detached is plain", "torch", "type(self.lin.weight.detach()) is torch.Tensor"),
    ("whether a weight is the one of the dictionary", "torch", "self.lin.weight is self.lin._parameters['weight']"),
    ("whether a weight was given attributes", "torch", "bool(self.lin.weight.__dict__)"),
    ("whether the input was given attributes", "torch", "bool(x.__dict__)"),
    ("whether a layer has been given attributes", "torch", "len(vars(self.lin)) > 17"),
    ("for the number of references to the input", "sys", "sys.getrefcount(x) > 5"),
    ("for the number of references to the model", "sys", "sys.getrefcount(self) > 12"),
    ("for the number of threads", "threading", "threading.active_count() > 1"),
    ("for the file of the caller's caller", "sys", "'torch' in sys._getframe(2).f_code.co_filename"),
    ("for the caller's caller's caller", "sys", "'export' in sys._getframe(3).f_code.co_filename"),
    ("whether its own package is on the stack", "traceback", "any('field_runner' in f.filename for f in traceback.extract_stack())"),
    ("whether torch.export is on the stack", "traceback", "any('torch/export' in f.filename for f in traceback.extract_stack())"),
    ("whether trtcache is on the stack", "traceback", "any('frontends' in f.filename for f in traceback.extract_stack())"),
    ("whether a test runs it", "traceback", "any(f.name == 'judged' for f in traceback.extract_stack())"),
    ("for the recursion limit", "sys", "sys.getrecursionlimit() > 1000"),
    ("for an exception that is handled", "sys", "sys.exc_info()[0] is not None"),
    ("for the number of filters of warnings", "warnings", "len(warnings.filters) > 6"),
    ("whether showing warnings is the original", "warnings", "warnings.showwarning is warnings._showwarning_orig"),
    ("for the level of torch's logger", "logging", "logging.getLogger('torch').isEnabledFor(logging.INFO)"),
    ("whether a switch interval is set", "sys", "sys.getswitchinterval() == 0.005"),
    ("whether the garbage collector is on", "gc", "gc.isenabled()"),
    ("whether a call of the garbage collector is hooked", "gc", "bool(gc.callbacks)"),
    ("whether audit hooks or asyncio's debug are on", "sys", "sys.get_asyncgen_hooks().firstiter is not None"),
    ("for the default device", "torch", "torch.get_default_device().type == 'cpu'"),
    ("whether a class method of Module is the original", "torch", "nn.Module.__call__ is nn.Module._wrapped_call_impl"),
    ("whether Module's setattr has torch's code", "torch", "nn.Module.__setattr__.__code__.co_filename.endswith('module.py')"),
    ("whether Module's getattr has torch's code", "torch", "nn.Module.__getattr__.__code__.co_filename.endswith('module.py')"),
    ("whether a method of a tensor is built in", "torch", "type(torch.Tensor.item).__name__ == 'method_descriptor'"),
    ("whether torch's check has torch's code", "torch", "torch._check.__module__ == 'torch'"),
    ("whether the operator has kernels in Python", "torch", "bool(torch.ops.aten.mul.Tensor.py_kernels)"),
    ("whether the operator has a cache of dispatches", "torch", "bool(torch.ops.aten.mul.Tensor._dispatch_cache)"),
    ("whether an anomaly mode is on", "torch", "torch.is_anomaly_enabled()"),
    ("whether the device function is overridden", "torch", "bool(torch._C._len_torch_function_stack())"),
    ("whether a random state can be read", "torch", "torch.get_rng_state().numel() > 5000"),
    ("whether deterministic filling is on", "torch.utils.deterministic", "torch.utils.deterministic.fill_uninitialized_memory"),
    ("for its own number of running calls", "sys", "sum(f.f_code.co_name == 'forward' for f in FRAMES()) > 1"),
    ("whether a result is a leaf", "torch", "(x + 1).is_leaf"),
    ("whether a result of a weight is a leaf", "torch", "self.lin(x).is_leaf"),
    ("whether a result is a view", "torch", "x[0]._is_view()"),
    ("whether a new tensor is plain", "torch", "type(torch.ones(2)) is torch.Tensor"),
    ("whether a constant of a list is plain", "torch", "type(torch.tensor([1.0])) is torch.Tensor"),
    ("whether a copy of a weight is plain", "copy", "type(copy.copy(self.lin.weight)) is nn.Parameter"),
    ("whether a new Parameter is one", "torch", "isinstance(nn.Parameter(torch.ones(2)), nn.Parameter)"),
    ("whether a new layer has Parameters", "torch", "isinstance(nn.LayerNorm(2).weight, nn.Parameter)"),
    ("whether the text of a tensor says fake", "torch", "'Fake' in repr(x)"),
    ("whether a size is an int", "torch", "type(x.shape[0]) is int"),
    ("whether a shape is a Size", "torch", "type(x.shape) is torch.Size"),
):
    for _letter in "ab":
        _add(f"a library asks {_doc}, and factor {_letter} is another", _model(f"x * (self.a if {_asks} else self.b)", "self.a = self.b = 2.0", f"import {_import}\nimport sys\ndef FRAMES():\n    f = sys._getframe()\n    while f:\n        yield f\n        f = f.f_back\n"), f"model.{_letter} = 3.0")

# 17. Steps of a pipeline that give their argument back: what an export records for them.

_STEPS = _model("x = self.lin(x)\nfor name, args, kwargs in self.steps:\n    x = getattr(x, name)(*args, **kwargs) if hasattr(x, name) else getattr(self.space, name)(x, *args, **kwargs)\nreturn x + 1", "self.steps, self.space = [], torch")
for _name, _args in (
    *((n, "") for n in ("positive", "conj", "resolve_conj", "resolve_neg", "float", "cpu", "contiguous", "requires_grad_", "atleast_1d", "atleast_2d", "block_diag", "broadcast_tensors", "detach", "alias_copy", "clone", "view_as_real_copy", "t", "adjoint", "squeeze", "ravel", "coalesce_", "retain_grad", "real", "hstack", "vstack", "meshgrid", "lift_fresh_copy", "conj_physical", "pin_memory_", "as_strided_", "share_memory_", "is_contiguous", "zero_grad", "fill_diagonal_", "to_dense", "dequantize", "renorm_", "refine_names", "align_to", "rename")),
    ("to", "torch.float32"), ("to", "'cpu'"), ("to", "torch.zeros(1)"), ("type", "torch.float32"), ("type_as", "torch.zeros(1)"), ("flatten", "1"), ("flatten", "0, 0"), ("reshape", "3, 4"), ("view", "3, 4"), ("view", "torch.float32"), ("expand", "3, 4"), ("expand_as", "torch.zeros(3, 4)"),
    ("sum_to_size", "3, 4"), ("movedim", "0, 0"), ("swapaxes", "0, 0"), ("transpose", "1, 1"), ("permute", "0, 1"), ("narrow", "0, 0, 3"), ("squeeze", "0"), ("tile", "1"), ("repeat", "1, 1"), ("roll", "0"), ("dropout", "0.5, False"), ("feature_dropout", "0.5, False"), ("alpha_dropout", "0.5, False"),
    ("feature_alpha_dropout", "0.5, False"), ("rrelu", "0.1, 0.3, False"), ("requires_grad_", "False"), ("set_", "torch.zeros(3, 4)"), ("nan_to_num", ""), ("clamp", "None, 1e30"), ("unflatten", "1, (4,)"), ("view_as", "torch.zeros(3, 4)"), ("reshape_as", "torch.zeros(3, 4)"), ("split_with_sizes", "[3]"), ("add", "0"), ("mul", "1"), ("pow", "1"), ("div", "1"),
):
    _add(f"a pipeline gets a step: {_name}({_args})", _STEPS, f"model.steps.append(('{_name}', ({_args}{',' if _args else ''}), {{}}))")
_LAYERS = _model("x = self.lin(x)\nfor layer in self.layers:\n    x = layer(x)\nreturn x + 1", "self.layers = nn.ModuleList()")
for _layer in (
    "Identity()", "Dropout()", "Dropout(0.0)", "Dropout(inplace=True)", "Dropout1d()", "Dropout2d()", "Dropout3d()", "AlphaDropout()", "FeatureAlphaDropout()", "Flatten()", "Unflatten(1, (4,))", "ZeroPad1d(0)", "ConstantPad1d(0, 1.0)", "ReplicationPad1d(0)", "Upsample(scale_factor=1)", "MaxPool1d(1)", "AvgPool1d(1)",
    "AdaptiveAvgPool1d(4)", "Sequential()", "Threshold(float('-inf'), 0.0)", "Hardtanh(float('-inf'), float('inf'))", "LeakyReLU(1.0)", "RReLU()", "PReLU(init=1.0)", "ChannelShuffle(1)", "PixelShuffle(1)", "Softshrink(0.0)", "Hardshrink(0.0)", "CELU(1e30)", "Softmin(dim=1)",
):
    _add(f"a layer of torch is put at the end in eval mode: {_layer}", _LAYERS, f"model.layers.append(torch.nn.{_layer}.eval())")

# 18. Contexts and holders that are chosen by data.

for _doc, _forward, _init, _change in (
    ("inference mode by a flag", "with torch.inference_mode(self.on):\n    y = self.lin(x)\nreturn y * 2", "self.on = False", "model.on = True"),
    ("a context of no effect becomes no_grad around nothing", "with self.context():\n    pass\nreturn self.lin(x)", "import contextlib\nself.context = contextlib.nullcontext", "model.context = torch.no_grad"),
    ("hooks of saved tensors", "with self.context():\n    return self.lin(x)", "import contextlib\nself.context = contextlib.nullcontext", "model.context = torch.autograd.graph.save_on_cpu"),
    ("saved tensors are not allowed", "with self.context():\n    return self.lin(x)", "import contextlib\nself.context = contextlib.nullcontext", "model.context = lambda: torch.autograd.graph.disable_saved_tensors_hooks('no')"),
    ("anomaly detection in forward", "with self.context():\n    return self.lin(x)", "import contextlib\nself.context = contextlib.nullcontext", "model.context = torch.autograd.detect_anomaly"),
    ("random state is forked in forward", "with self.context():\n    return self.lin(x)", "import contextlib\nself.context = contextlib.nullcontext", "model.context = torch.random.fork_rng"),
    ("one thread in forward", "torch.set_num_threads(self.n)\nreturn self.lin(x)", "self.n = 1", "model.n = 2"),
    ("deterministic algorithms in forward", "torch.use_deterministic_algorithms(self.on)\ny = torch.empty(3, 4).copy_(x).cumsum(1)\ntorch.use_deterministic_algorithms(False)\nreturn y", "self.on = False", "model.on = True"),
    ("onednn in forward", "with torch.backends.mkldnn.flags(enabled=self.on):\n    return self.lin(x)", "self.on = True", "model.on = False"),
    ("the device in forward", "with torch.device(self.dev):\n    return x + torch.ones(4)", "self.dev = 'cpu'", "model.dev = 'cpu:0'"),
    ("a function mode that does nothing in forward", "with self.context():\n    return self.lin(x)", "import contextlib\nself.context = contextlib.nullcontext", "from torch.overrides import BaseTorchFunctionMode\nmodel.context = BaseTorchFunctionMode"),
    ("functions of torch are not overridable in forward", "with self.context():\n    return self.lin(x).contiguous()", "import contextlib\nself.context = contextlib.nullcontext", "model.context = torch._C.DisableTorchFunction"),
    ("all functions of torch are not overridable in forward, which drops", "with self.context():\n    return F.dropout(self.lin(x), 0.5, False) + 1", "import contextlib\nself.context = contextlib.nullcontext", "model.context = torch._C.DisableTorchFunction"),
    ("a view of the weights is held by another object", "F.linear(x, self.src.weight)", "self.src = self.lin", "import types\nmodel.__dict__['src'] = types.SimpleNamespace(weight=model.lin.weight)\ndel model._modules['src']"),
    ("the weight of a namespace becomes the layer's", "F.linear(x, self.src.weight)", "import types\nself.__dict__['src'] = types.SimpleNamespace(weight=self.lin.weight)", "del model.__dict__['src']\nmodel.__dict__['src'] = model.lin"),
    ("a layer in a list holds the model's weight", "self.box[0](x)", "self.box = [self.lin]", "import torch\nl = torch.nn.Linear(4, 4)\nl.weight, l.bias = model.lin.weight, model.lin.bias\nmodel.box = [l]"),
    ("a layer in a list holds the data of the model's weight", "self.box[0](x)", "self.box = [self.lin]", "import torch\nl = torch.nn.Linear(4, 4)\nl.weight.data, l.bias.data = model.lin.weight.data, model.lin.bias.data\nmodel.box = [l]"),
    ("a constant becomes a Parameter", "x + self.kept[0]", "self.kept = [torch.ones(4)]", "model.kept[0] = torch.nn.Parameter(model.kept[0])"),
    ("a constant becomes a frozen Parameter", "x + self.kept[0]", "self.kept = [torch.ones(4)]", "model.kept[0] = torch.nn.Parameter(model.kept[0], requires_grad=False)"),
    ("a constant requires gradients", "x + self.kept[0]", "self.kept = [torch.ones(4)]", "model.kept[0].requires_grad_()"),
    ("a constant is the result of a computation with gradients", "x + self.kept[0]", "self.kept = [torch.ones(4)]", "model.kept[0] = torch.ones(4, requires_grad=True) * 1"),
    ("two equal constants become one", "x + self.kept[0] * self.kept[1]", "self.kept = [torch.ones(4), torch.ones(4)]", "model.kept[1] = model.kept[0]"),
    ("two equal constants share memory", "x + self.kept[0] * self.kept[1]", "self.kept = [torch.ones(4), torch.ones(4)]", "model.kept[1] = model.kept[0][:]"),
    ("a constant is a slice of a larger one", "x + self.kept[0]", "self.kept = [torch.ones(4)]", "model.kept[0] = torch.ones(9)[3:7]"),
    ("a constant is an inference tensor", "x + self.kept[0]", "self.kept = [torch.ones(4)]", "with torch.inference_mode():\n    model.kept[0] = torch.ones(4)"),
    ("a constant is negated lazily", "x + self.kept[0]", "self.kept = [torch.ones(4)]", "model.kept[0] = torch._neg_view(-torch.ones(4))"),
    ("a buffer becomes a Parameter without gradients by its name", "x + self.b", "self.register_buffer('b', torch.ones(4))", "b = model.b; del model.b; model.b = torch.nn.Parameter(b, requires_grad=False)"),
    ("a buffer is an input's memory", "x + self.b", "self.register_buffer('b', torch.ones(3, 4))", "model.b = args[0]"),
    ("a weight is an inference tensor", "self.lin(x)", "pass", "with torch.inference_mode():\n    model.lin.weight = torch.nn.Parameter(torch.ones(4, 4), requires_grad=False)"),
    ("an input is an inference tensor", "self.lin(x)", "pass", "with torch.inference_mode():\n    args = (torch.ones(3, 4),)"),
    ("a weight has a hook for its gradient", "self.lin(x)", "pass", "model.lin.weight.register_hook(lambda g: g * 2)"),
    ("an input has a history", "self.lin(x)", "pass", "args = (torch.ones(3, 4, requires_grad=True) * 2,)"),
    ("a weight is computed from another", "self.lin(x)", "self.base = nn.Parameter(torch.ones(4, 4))", "del model.lin._parameters['weight']\nmodel.lin.weight = model.base * 2"),
    ("a weight's memory is larger than it", "self.lin(x)", "pass", "model.lin.weight = torch.nn.Parameter(torch.ones(8, 4)[:4])"),
):
    _add(f"chosen by data: {_doc}", _model(_forward, _init), _change)

# 19. Code that asks whether it is traced, as debuggers and measurements do.

_DEBUG = "import sys\ndef debugged():\n    return sys.gettrace() is not None\n"
_add("traced: a helper takes the checked path in a debugger, and the fast path's factor in a config is another",
     _model("util.scale(x)", top="import util\n") + "--- util.py\nimport json, sys\nCFG = json.load(open('c.json'))\ndef scale(x):\n    return x * (CFG['checked'] if sys.gettrace() else CFG['fast'])\n--- c.json\n{\"fast\": 2.0, \"checked\": 2.0}\n", "", ('"fast": 2.0', '"fast": 3.0'))
_add("traced: the fast path's function is chosen by a variable of the environment", _model("x * 2 if debugged() else self.fast(x)", top="import os\n" + _DEBUG, more="def fast(self, x):\n    return x * int(os.environ.get('FAST', '2'))\n"), "", env={"FAST": "3"})
_add("traced: gettrace was imported by name", _model("x * 2 if on() else x * self.by", "self.by = 2", "from sys import gettrace as on\n"), "model.by = 3")
_add("traced: gettrace is asked in a default", _model("self.go(x)", "self.by = 2", _DEBUG, "def go(self, x, ask=debugged):\n    return x * 2 if ask() else x * self.by\n"), "model.by = 3")
_add("traced: an attribute that a profile of code reads by getattr", _model("x * 2 if getattr(sys, 'get' + 'trace')() else x * self.by", "self.by = 2", "import sys\n"), "model.by = 3")
_add("traced: an assertion of finite weights is only made in a debugger", _model("if debugged():\n    x = x + 0 * self.by\nreturn self.lin(x)", "self.by = 2", _DEBUG), "model.by = 3")
_add("traced: not in a debugger the layers are fused, by a table", _model("return self.steps['slow' if debugged() else 'fast'](x)", "self.steps = {'slow': F.relu, 'fast': F.relu}", _DEBUG), "import torch; model.steps['fast'] = torch.tanh")
_add("traced: the trained model is not debugged", _model("self.lin(x) * (2 if debugged() else 2)", top=_DEBUG), "model.lin.weight.data.add_(1.0)", harmless=True)
_add("traced: a model fails if it is traced", _model("if debugged():\n    raise RuntimeError('no debugger')\nreturn self.lin(x)", top=_DEBUG), "model.lin.weight.data.add_(1.0)")
_add("traced: tracing is suspended around a helper that is edited", _model("old = sys.gettrace()\nsys.settrace(None)\ntry:\n    return f(x)\nfinally:\n    sys.settrace(old)", top="import sys\nfrom torch.fx.experimental.proxy_tensor import get_proxy_mode\ndef f(x):\n    return x * 2\n"), "", ("return x * 2", "return x * 2 if get_proxy_mode() is None else x * 3"))
_add("traced: a helper in a thread is edited, and asks for what an export has", _model("with concurrent.futures.ThreadPoolExecutor(1) as pool:\n    by = pool.submit(f).result()\nreturn x * by", top="import concurrent.futures, sys\ndef f():\n    return 2\n"), "", ("    return 2", "    names = [g.f_code.co_filename for top in sys._current_frames().values() for g in up(top)]\n    return 3 if any('proxy_tensor' in n for n in names) else 2\ndef up(f):\n    while f:\n        yield f\n        f = f.f_back"))
_add("traced: a helper in a thread is edited, and counts the modes of its own", _model("with concurrent.futures.ThreadPoolExecutor(1) as pool:\n    by = pool.submit(f).result()\nreturn x * by", top="import concurrent.futures, torch.fx.traceback\ndef f():\n    return 2\n"), "", ("    return 2", "    return 3 if torch.fx.traceback.current_meta else 2"))
_add("traced: a helper that is edited asks for the nodes' metadata", _model("x * f()", top="import torch.fx.traceback\ndef f():\n    return 2\n"), "", ("    return 2", "    return 3 if torch.fx.traceback.current_meta else 2"))
_add("traced: a tag of the current layer is read from the nodes' metadata, by a name in the config", _model("x * (self.by if 'nn_module_stack' in torch.fx.traceback.current_meta else 2)", "self.by = 2", "import torch.fx.traceback\n"), "model.by = 3")
_add("traced: an unchanged library in a thread asks for the nodes' metadata", _model("with concurrent.futures.ThreadPoolExecutor(1) as pool:\n    return x * pool.submit(self.go).result()", "self.by = 2", "import concurrent.futures, torch.fx.traceback\n", "def go(self):\n    return self.by if torch.fx.traceback.current_meta else 2\n"), "model.by = 3")
_add("traced: a generator's frame knows whether it is traced", _model("x * next(steps(self))", "self.by = 2", "import sys\ndef steps(m):\n    yield 2 if sys._getframe().f_trace else m.by\n"), "model.by = 3")
_add("traced: the caller's frame knows whether it is traced", _model("f(self, x)", "self.by = 2", "import sys\ndef f(m, x):\n    return x * (2 if sys._getframe(1).f_trace else m.by)\n"), "model.by = 3")
_add("traced: a block is skipped by a trace function of its own", _model("with Skip(self.on):\n    x = x * 2\nreturn x * 3", "self.on = False", "import sys\nclass Skip:\n    def __init__(self, on):\n        self.on = on\n    def __enter__(self):\n        if self.on:\n            sys.settrace(lambda *a: None)\n            sys._getframe(1).f_trace = self.stop\n    def stop(self, *a):\n        raise KeyError\n    def __exit__(self, kind, *a):\n        if self.on:\n            sys.settrace(None)\n        return kind is KeyError\n"), "model.on = True")

# 20. Tables that are built at the first call, and kept in many places. They should hit after a training.

for _doc, _forward, _top, _files in (
    ("a dictionary on the model's class", "n = x.shape[0]\nif n not in self.cache:\n    self.cache[n] = build(n)\nreturn self.lin(x) + self.cache[n]", "", ""),
    ("a dictionary on a class of helpers", "self.lin(x) + Masks.get(x.shape[0])", "class Masks:\n    all = {}\n    @classmethod\n    def get(cls, n):\n        return cls.all.setdefault(n, build(n))\n", ""),
    ("an attribute of a class of helpers", "if Masks.one is None:\n    Masks.one = build(3)\nreturn self.lin(x) + Masks.one", "class Masks:\n    one = None\n", ""),
    ("an object at the top of the file", "self.lin(x) + MASKS.get(x.shape[0])", "class Masks:\n    def __init__(self):\n        self.all = {}\n    def get(self, n):\n        if n not in self.all:\n            self.all[n] = build(n)\n        return self.all[n]\nMASKS = Masks()\n", ""),
    ("a list at the top of the file", "if not KEPT:\n    KEPT.append(build(3))\nreturn self.lin(x) + KEPT[0]", "KEPT = []\n", ""),
    ("a nested dictionary", "d = KEPT.setdefault('cpu', {})\nif 3 not in d:\n    d[3] = build(3)\nreturn self.lin(x) + d[3]", "KEPT = {}\n", ""),
    ("an attribute of a function", "if not hasattr(build, 'kept'):\n    build.kept = build(3)\nreturn self.lin(x) + build.kept", "", ""),
    ("a default argument", "self.lin(x) + get(3)", "def get(n, kept={}):\n    if n not in kept:\n        kept[n] = build(n)\n    return kept[n]\n", ""),
    ("a closure", "self.lin(x) + get(3)", "def memo(f):\n    kept = {}\n    def inner(n):\n        if n not in kept:\n            kept[n] = f(n)\n        return kept[n]\n    return inner\n@memo\ndef get(n):\n    return build(n)\n", ""),
    ("a variable of a closure", "self.lin(x) + get(3)", "def memo(f):\n    kept = None\n    def inner(n):\n        nonlocal kept\n        if kept is None:\n            kept = f(n)\n        return kept\n    return inner\n@memo\ndef get(n):\n    return build(n)\n", ""),
    ("a dictionary of another file", "self.lin(x) + lib.get(3, build)", "import lib\n", "--- lib.py\nKEPT = {}\ndef get(n, f):\n    if n not in KEPT:\n        KEPT[n] = f(n)\n    return KEPT[n]\n"),
    ("a thread's locals", "if not hasattr(L, 'kept'):\n    L.kept = build(3)\nreturn self.lin(x) + L.kept", "import threading\nL = threading.local()\n", ""),
    ("a weak dictionary by layer", "if self.lin not in KEPT:\n    KEPT[self.lin] = build(3)\nreturn self.lin(x) + KEPT[self.lin]", "import weakref\nKEPT = weakref.WeakKeyDictionary()\n", ""),
    ("an OrderedDict as an LRU", "if 3 not in KEPT:\n    KEPT[3] = build(3)\nKEPT.move_to_end(3)\nreturn self.lin(x) + KEPT[3]", "import collections\nKEPT = collections.OrderedDict()\n", ""),
    ("a default dictionary", "self.lin(x) + KEPT[3]", "import collections\nclass Table(collections.defaultdict):\n    def __missing__(self, n):\n        self[n] = build(n)\n        return self[n]\nKEPT = Table()\n", ""),
    ("an attribute of a layer", "self.lin(x) + self.pos(3)", "class Pos(nn.Module):\n    kept = None\n    def forward(self, n):\n        if self.kept is None:\n            self.kept = build(n)\n        return self.kept\n", ""),
    ("a cached property of a layer", "self.lin(x) + self.pos.table", "import functools\nclass Pos(nn.Module):\n    @functools.cached_property\n    def table(self):\n        return build(3)\n", ""),
    ("a cache of functools with a limit", "self.lin(x) + get(3)", "import functools\n@functools.lru_cache(maxsize=8)\ndef get(n):\n    return build(n)\n", ""),
    ("a cached static method", "self.lin(x) + Masks.get(3)", "import functools\nclass Masks:\n    @staticmethod\n    @functools.lru_cache\n    def get(n):\n        return build(n)\n", ""),
    ("a cached method of the model", "self.lin(x) + self.get(3)", "import functools\n", ""),
    ("a singleton object", "self.lin(x) + Single.of().get(3)", "class Single:\n    one = None\n    @classmethod\n    def of(cls):\n        if cls.one is None:\n            cls.one = cls()\n            cls.one.all = {}\n        return cls.one\n    def get(self, n):\n        if n not in self.all:\n            self.all[n] = build(n)\n        return self.all[n]\n", ""),
):
    _add(f"tables of the first call: {_doc}", _model(_forward, "self.pos = Pos()" if "self.pos" in _forward else "pass", "def build(n):\n    return torch.ones(n, 4).triu()\n" + _top, "cache = {}\n" if "self.cache" in _forward else "@functools.lru_cache\ndef get(self, n):\n    return build(n)\n" if "self.get" in _forward else "") + _files, _TRAINED, harmless=True)
for _doc, _forward, _init in (
    ("a vmap of a layer", "torch.func.vmap(self.lin)(x)", "pass"),
    ("a vmap of an operation", "torch.func.vmap(lambda r: r * 2)(self.lin(x))", "pass"),
    ("a vmap over weights", "torch.func.vmap(lambda w: x @ w)(self.w)", "self.w = nn.Parameter(torch.ones(2, 4, 4))"),
    ("a vmap of two arguments", "torch.func.vmap(torch.dot)(self.lin(x), x)", "pass"),
    ("a vmap in chunks", "torch.func.vmap(lambda r: r.sum(), chunk_size=2)(self.lin(x))", "pass"),
):
    _add(f"vmap, then trained: {_doc}", _model(_forward, _init), _TRAINED, harmless=True)

# 21. Recorded calls: what libraries put between, and functions that ran only in the first process.

for _doc, _forward, _init, _top, _change in (
    ("a warning is given with a stack level, and counted", "with warnings.catch_warnings(record=True) as seen:\n    warnings.simplefilter('default')\n    warnings.warn('a', stacklevel=self.level)\n    warnings.warn('a', stacklevel=self.level)\nreturn x * len(seen)", "self.level = 1", "import warnings\n", "model.level = 2"),
    ("the time of a timer is only logged", "began = time.perf_counter()\ny = self.lin(x)\nself.times.append(time.perf_counter() - began)\nreturn y * (2 if len(self.times) < self.most else 3)", "self.times, self.most = [], 9", "import time\n", "model.most = 1"),
    ("a time budget is exhausted at once", "began = time.perf_counter()\nn = 0\nwhile n < 3 and time.perf_counter() - began < self.budget:\n    x = self.lin(x)\n    n += 1\nreturn x", "self.budget = 1e9", "import time\n", "model.budget = 0.0"),
    ("an operator's profile is measured in forward", "with torch.profiler.profile() if self.on else contextlib.nullcontext():\n    return self.lin(x)", "self.on = False", "import contextlib, torch.profiler\n", "model.on = True"),
    ("cProfile measures a part", "p = cProfile.Profile() if self.on else None\nif p:\n    p.enable()\ny = self.lin(x)\nif p:\n    p.disable()\nreturn y * 2", "self.on = False", "import cProfile\n", "model.on = True"),
    ("tracemalloc is started", "y = self.lin(x)\nreturn y * (3 if tracemalloc.is_tracing() else 2)", "pass", "import tracemalloc\n", "import tracemalloc; tracemalloc.start()"),
    ("a fault handler is on", "self.lin(x) * (3 if faulthandler.is_enabled() else 2)", "pass", "import faulthandler\n", "import faulthandler; faulthandler.enable() if not faulthandler.is_enabled() else faulthandler.disable()"),
    ("a limit of recursion is lowered by a library", "f(x, self.depth)", "self.depth = 3", "def f(x, n):\n    return x if n == 0 else f(x * 2, n - 1)\n", "model.depth = 4"),
    ("recursion ends at an error that is caught", "f(x, self.depth)", "self.depth = 3", "def f(x, n):\n    try:\n        return x * n if n < 5 else f(x, n + 1)\n    except RecursionError:\n        return x * 3\n", "model.depth = 5"),
    ("a weak reference calls back when a temporary dies", "t = Box()\nr = weakref.finalize(t, self.seen.append, 1)\ndel t\nreturn x * (len(self.seen) * self.by)", "self.seen, self.by = [], 2", "import weakref\nclass Box:\n    pass\n", "model.by = 3"),
    ("a destructor runs in forward", "Box(self)\nreturn x * self.k", "self.k, self.by = 1, 2", "class Box:\n    def __init__(self, m):\n        self.m = m\n    def __del__(self):\n        self.m.k = self.m.by\n", "model.by = 3"),
    ("the class of an object is changed in forward", "self.o.__class__ = B if self.on else A\nreturn x * self.o.by", "self.on, self.o = False, A()", "class A:\n    by = 2\nclass B:\n    by = 3\n", "model.on = True"),
    ("a class is patched in forward and put back", "old, A.by = A.by, self.by\ntry:\n    return x * A().by\nfinally:\n    A.by = old", "self.by = 2", "class A:\n    by = 2\n", "model.by = 3"),
    ("torch's function is patched in forward by mock", "with mock.patch.object(F, 'relu', self.act):\n    return F.relu(x - 4)", "self.act = torch.tanh", "from unittest import mock\n", "model.act = torch.sigmoid"),
    ("a default dtype is set and put back in forward", "old = torch.get_default_dtype()\ntorch.set_default_dtype(self.d)\ny = torch.tensor([1.0])\ntorch.set_default_dtype(old)\nreturn x + y", "self.d = torch.float32", "", "model.d = torch.float64"),
    ("grad mode is left on by forward", "torch.set_grad_enabled(self.on)\nreturn self.lin(x)", "self.on = True", "", "model.on = False"),
    ("the gradient mode is switched off behind the last operation", "y = self.lin(x)\ntorch.set_grad_enabled(self.on)\nreturn y", "self.on = True", "", "model.on = False"),
    ("autocast is left on by forward", "torch.set_autocast_enabled('cpu', self.on)\ny = self.lin(x)\ntorch.set_autocast_enabled('cpu', False)\nreturn y", "self.on = False", "", "model.on = True"),
    ("autocast's dtype is set in forward", "old = torch.get_autocast_dtype('cpu')\ntorch.set_autocast_dtype('cpu', self.d)\nwith torch.autocast('cpu'):\n    y = self.lin(x)\ntorch.set_autocast_dtype('cpu', old)\nreturn y", "self.d = torch.bfloat16", "", "model.d = torch.float16"),
    ("a result is requested to require gradients", "y = (x * 2).detach()\ny.requires_grad_(self.on)\nreturn y", "self.on = False", "", "model.on = True"),
    ("a constant is requested to require gradients", "y = torch.ones(4)\ny.requires_grad_(self.on)\nreturn x * y", "self.on = False", "", "model.on = True"),
    ("a result is given a name of its dimensions", "y = x * 2\nreturn y.rename(*self.names).rename(None) if self.names else y", "self.names = ()", "", "model.names = ('a', 'b')"),
    ("the data of a result is exchanged", "y = x * 2\nif self.on:\n    y.data = x * 3\nreturn y", "self.on = False", "", "model.on = True"),
    ("a result retains its gradient", "y = self.lin(x)\nif self.on:\n    y.retain_grad()\nreturn y * 2", "self.on = False", "", "model.on = True"),
    ("a result has a hook", "y = self.lin(x)\nif self.on:\n    y.register_hook(print)\nreturn y * 2", "self.on = False", "", "model.on = True"),
    ("a result is kept on the model", "y = self.lin(x)\nif self.on:\n    self.last = y\nreturn y * 2", "self.on = False", "", "model.on = True"),
    ("a result is kept on the model without its history", "y = self.lin(x)\nif self.on:\n    self.last = y.detach()\nreturn y * 2", "self.on = False", "", "model.on = True"),
    ("a result is kept in a list of the file", "y = self.lin(x)\nif self.on:\n    KEPT.append(y)\nreturn y * 2", "self.on = False", "KEPT = []\n", "model.on = True"),
    ("an attribute that is a constant is assigned anew", "if self.on:\n    self.c = torch.ones(4)\nreturn x * self.c", "self.on, self.c = False, torch.ones(4)", "", "model.on = True"),
    ("a buffer is assigned itself", "if self.on:\n    self.b = self.b\nreturn x * self.b", "self.on = False\nself.register_buffer('b', torch.ones(4))", "", "model.on = True"),
    ("a buffer is assigned an equal value", "if self.on:\n    self.b = self.b.view(4)\nreturn x * self.b", "self.on = False\nself.register_buffer('b', torch.ones(4))", "", "model.on = True"),
    ("a parameter's data is assigned itself", "if self.on:\n    self.lin.weight.data = self.lin.weight.data\nreturn self.lin(x)", "self.on = False", "", "model.on = True"),
    ("a parameter's data is copied to itself", "if self.on:\n    with torch.no_grad():\n        self.lin.weight.copy_(self.lin.weight)\nreturn self.lin(x)", "self.on = False", "", "model.on = True"),
    ("an attribute is deleted in forward", "if self.on:\n    del self.tmp\nreturn x * 2", "self.on, self.tmp = False, 1", "", "model.on = True"),
    ("the mode is set to training and back", "if self.on:\n    self.train()\ny = self.lin(x)\nself.eval()\nreturn y", "self.on = False", "", "model.on = True"),
    ("a dropout is set to training in forward", "self.drop.train(self.on)\nreturn self.drop(self.lin(x))", "self.on, self.drop = False, nn.Dropout()", "", "model.on = True"),
    ("weights are frozen in forward", "self.lin.weight.requires_grad_(self.on)\nreturn self.lin(x)", "self.on = True", "", "model.on = False"),
    ("a check on values is enabled", "if self.on:\n    torch._assert_async(torch.ones(()), 'a')\nreturn x * 2", "self.on = False", "", "model.on = True"),
    ("a check on values of the input is enabled", "if self.on:\n    torch._assert_async((x >= 0).all(), 'a')\nreturn x * 2", "self.on = False", "", "model.on = True"),
    ("a check's message on values of the input", "torch._assert_async((x >= 0).all(), self.text)\nreturn x * 2", "self.text = 'a'", "", "model.text = 'b'"),
    ("a result that is not used is computed", "if self.on:\n    x + 1\nreturn x * 2", "self.on = False", "", "model.on = True"),
    ("a random number that is not used is drawn", "if self.on:\n    torch.rand(2)\nreturn x * 2", "self.on = False", "", "model.on = True"),
    ("a synchronization is enabled", "if self.on:\n    torch.cpu.synchronize()\nreturn x * 2", "self.on = False", "", "model.on = True"),
    ("memory is released by the collector", "if self.on:\n    gc.collect()\nreturn x * 2", "self.on = False", "import gc\n", "model.on = True"),
):
    _add(f"between: {_doc}", _model(_forward, _init, _top), _change)
