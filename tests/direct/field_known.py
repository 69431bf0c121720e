"""What direct mode is known to get wrong, and harmless changes that it does not hit."""

from __future__ import annotations

# fmt: off
WRONG = (
    'around a compile: warnings are shown by an own function',
    'around a compile: a logger has a handler that changes the model',
    "around a compile: a message's argument is formatted only when its level is on",
    'a variable of the environment is another: its own data',
    'a configuration of transformers: a name, through a composed name',
    'two ways at once: all of the current context',
    'an attribute appears in torch.nn.modules.linear',
    'state of torch: torch.nn.Transformer.__doc__ == DOC',
    "state of torch: torch.nn.Linear.__constants__[0] == 'in_features'",
    "Python's library or NumPy is patched inside: len(textwrap.dedent('  a')), textwrap._leading_whitespace_re = re.compile('xyz')",
    "Python's library or NumPy is patched inside: statistics.median([1, 2, 3]), statistics.sorted = lambda v: [3, 3, 3]",
    "Python's library or NumPy is patched inside: len(os.path.splitext('a.bc')[1]), genericpath._splitext = lambda *a: ('', 'a')",
    "Python's library or NumPy is patched inside: heapq.nlargest(1, [1, 2])[0], heapq.max = lambda *a, **k: 3",
    'something is replaced, and a made name finds it: transformers.activations by casefold',
    'torch is patched inside: a helper behind torch.Tensor.split',
    'torch is patched inside: a helper behind Tensor.__rsub__',
    "torch is patched inside: reduction's numbers",
    'torch is patched inside: _VF of rnn',
    'an attribute appears on os.path',
    'an attribute appears on torch.nn.Linear.forward',
    'an attribute appears on numpy.mean',
    'more around a compile: warnings.formatwarning raises',
    'more around a compile: warnings go to logging',
    'more around a compile: print goes to another stdout',
    'more around a compile: a factory of log records',
    'more around a compile: a formatter that does something',
    'more around a compile: a root handler that does something',
    'more around a compile: logging.lastResort that does something',
    'more around a compile: a variable that is set, by values',
    "more around a compile: os.environ's data, by vars",
    "more around a compile: os.environ's data, by __dict__",
    'what classes say of themselves is edited: the order of annotations by a composed name',
    "what is left out of transformers' models: a name of a model, composed",
    "what is left out of transformers' models: a name of a configuration, in an attrgetter's composed path",
    "what is left out of transformers' models: a name of a configuration, by object's getter",
    "what is left out of transformers' models: a name of a configuration, by map",
    "what is left out of transformers' models: a name of a configuration, by all the names of its class",
    'a module is held by an attribute of a class of torch',
    'a function of Python is under another name: an attrgetter that is kept as a class',
    'a function of Python is under another name: a kept set',
)
"""Scenarios in which it hits and answers as the old program: found on 2026-11-23, not mended yet."""

MISSED = {
    "harmless: a parametrization is put on and removed": "the layer has an empty ModuleDict and another class afterwards",
    "harmless: torch.compile of the model": "dynamo patches __init__ of the model's classes",
}
"""Harmless changes that it misses, and why."""
