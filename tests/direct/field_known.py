"""What direct mode is known to get wrong, and harmless changes that it does not hit."""

from __future__ import annotations

WRONG = (
    # Code that has not changed asks for what only an export has: a mode, a caller, a count of references. Only what it
    # does then has changed, so that a replay does not show it.
    "a library asks for the current metadata, and factor a is another",
    "a value that only an export uses is another: the proxy mode",
    "a value that only an export uses is another: Python's dispatcher",
    "a value that only an export uses is another: the frames of a tracer",
    "a value that only an export uses is another: the annotations of nodes",
    "a value that only an export uses is another: the number of function modes",
    "a value that only an export uses is another: whether make_fx runs",
    "a value that only an export uses is another: the class of the fake mode",
    "a value that only an export uses is another: the fake mode's cache",
    "a value that only an export uses is another: the fake mode's converter",
    "a value that only an export uses is another: the hooks of all buffers",
    "a value that only an export uses is another: the file of Module.__call__",
    "a value that only an export uses is another: the free variables of Module.__call__",
    "code asks whether it is exported: an audit hook",
    "a registered class sets the factor in an export in flatten: an argument",
    "the model asks whether the operator dropout returns its argument, and a factor if the answer is no is another",
    "the model asks whether F.dropout's result shares memory, and a factor if the answer is no is another",
    "the model asks for the version of what dropout got, and a factor if the answer is yes is another",
    "the model asks for the references to the input, and a factor if the answer is yes is another",
    "the model asks for weak references to a weight, and a factor if the answer is yes is another",
    "the model asks for what refers to the input, and a factor if the answer is yes is another",
    "the model asks for Dynamo among the callers, and a factor if the answer is yes is another",
    "the model asks for the modules of the callers, and a factor if the answer is yes is another",
    "the model asks for the module of one caller, which has the name of the exporter, and a factor if the answer is yes is another",  # noqa: E501
    "the model asks for the number of forward's callers named forward, and a factor if the answer is yes is another",
    "the model asks for the static shapes of the fake mode, and a factor if the answer is no is another",
    "the model asks for the time that operators take, and a factor if the answer is yes is another",
    "a rule of fake tensors is registered for sin",
    "an import is edited: a lambda becomes a function of torch's extension",
)
"""Descriptions of scenarios in which it hits and answers as the old program."""

SAME_VALUES = frozenset(
    {
        "arithmetic: a maximum of two sizes",
        "layers on sizes: a maximum of two dynamic dims, whose order is another",
        "layers on sizes: a comparison as a factor, whose sides are exchanged",
        "layers on sizes: a conditional by its negation",
        "another expression: a maximum of a maximum",
        "another expression: a minimum's order of two sizes",
        "another expression of values: two items are multiplied in another order",
        "another expression of values: a maximum of two items in another order",
    }
)
"""Scenarios in which an integer is computed in another way: the program has another key, and the same values."""

MISSED = {
    "a worker thread checks the input before the main thread goes on": "direct mode is off: work for another thread",
    "a table is computed in a worker thread, with no input of the model": "as above",
    "nothing has changed: an executor's thread is started once": "as above",
    "first call, then trained: a pool of threads runs two heads": "as above",
    "operators at work: a composite operator's unused global is another": "its operator has no version",
    "tables of the first call: an object at the top of the file": (
        "direct mode is off: a tensor without values that an export has left there"
    ),
    "tables of the first call: a default dictionary": "as above",
    "nothing has changed: a dataclass of torch is made in the replay": "it reads the fake mode",
    "a traced layer is called, and another is scripted and unused": "TorchScript numbers its methods in the process",
    "gradient checkpointing is enabled for a BERT in eval mode": "a hook runs that did not run before",
    "a layer is checkpointed": "some versions of torch make an empty tensor for it",
    "torch.utils.checkpoint wraps a block": "as above",
    "a checkpoint of activations wraps a layer": "as above",
    "einsum finds its path otherwise": "the operations of an einsum have another order",
    **dict.fromkeys(
        (
            "nothing has changed: a random number of the names of functions",
            "the operations are the same: a flag of a log",
            "the operations are the same: another function that does the same",
            "the operations are the same: a helper's cache is emptied",
            "a Python function in the model is wrapped in torch.compile",
            "a helper in forward is compiled by torch",
        ),
        "a function runs that did not run before",
    ),
    "FX: names of nodes are others": "the generated code has them",
    "harmless: a parametrization is put on and removed": "the weight comes after the bias then",
    "surgery without effect: weight_norm is put on and removed": "as above",
    "surgery without effect: a dropout of rate 0 is inserted behind the last block": "it calls an operator: alias",
    "harmless: torch.compile of the model": "weights are marked for Dynamo, which is another key",
    "torch.backends.opt_einsum disabled": "the operations of an einsum have another order",
    "sizes: a guard that is written otherwise": "guards are compared as texts",
    **dict.fromkeys(
        (
            "branch: torch._check of what is known",
            "branch: an error for long inputs that the range excludes",
            "settings: the limit of a branch is an attribute and stays below the minimum",
            "settings: a limit comes from the environment and is far above the range",
            "values: a known relation of values decides",
        ),
        "as above, also those that the range of a size implies",
    ),
    **dict.fromkeys(
        ("floats of sizes: a third with 16 digits", "floats of sizes: a float offset of zero"),
        "direct mode is off: floats from symbolic sizes",
    ),
    **dict.fromkeys(
        (
            "a branch on the dynamic batch moves where no batch comes",
            "a dynamic size is compared with itself in a useless branch",
        ),
        "as above",
    ),
    **dict.fromkeys(
        ("named_children is overridden", "parameters() yields only what is trained"),
        "direct mode is off: a method of torch.nn.Module is replaced",
    ),
    "the result is reshaped with minus one instead of the size": "it is an argument of the operator",
    **dict.fromkeys(
        ("dynamic shapes are given by name", "dynamic shapes are given as lists"),
        "dynamic_shapes are compared as they are",
    ),
    **dict.fromkeys(
        (
            "a global hook of parameters' registration is there",
            "a global hook logs the classes of all modules",
            "a factor moves from forward to a global hook",
        ),
        "direct mode is off: a hook of all modules",
    ),
    **dict.fromkeys(
        (
            "asks whether a result is a view: nothing has changed",
            "asks whether a result of a split is a view: nothing has changed",
            "asks whether a result's base is the input: nothing has changed",
            "asks whether a view's base is a result: nothing has changed",
            "asks the size of a slice's storage: nothing has changed",
            "asks the size of an expanded tensor's storage: nothing has changed",
            "asks a result's grad_fn: nothing has changed",
            "asks a view's grad_fn: nothing has changed",
            "asks the depth of the graph of gradients: nothing has changed",
            "asks the storage's size after a clone: nothing has changed",
            "one tensor as several inputs, which an export keeps apart, too:"
            " a model asks whether the value's base is the key",
            "a library asks about whether a result has a grad_fn: no has another number",
            "an argument's memory is larger than it",
            "an argument is a view of another tensor",
            "the argument is a slice of a bigger tensor, and the model asks whether it is a view",
            "the argument has more memory behind it, and the model asks for the size of its storage",
            "a slice of the input is asked whether it is a view",
            "a slice of the input is asked whether its base is the input",
            "a model reads the size of the storage of a slice",
        ),
        "direct mode is off: forward asks for the gradient function, the base or the memory of a tensor",
    ),
    **dict.fromkeys(
        (
            "Module.__call__ is patched by a tracer of calls",
            "Module.__call__ is patched to scale what unknown modules give",
            "a factor moves from forward to a patch of Module._call_impl",
            "nn.Module.__call__ is patched by a profiler that keeps the result",
        ),
        "direct mode is off: a method of torch.nn.Module was replaced",
    ),
    **dict.fromkeys(
        (
            "a constant has the name of an exported constant, in a submodule",
            "an attribute that is no tensor has the name of an exported constant",
            "an unused constant has the name of an exported one",
        ),
        "direct mode is off: names of torch.export's constants",
    ),
    **dict.fromkeys(
        ("a table is kept in a global of another file", "a table is kept in a context variable"),
        "direct mode is off: a tensor without values that an export has left there",
    ),
    **dict.fromkeys(
        ("the counter of operations runs in forward", "the counted operations of a layer scale the result"),
        "direct mode is off: forward enters a dispatch mode",
    ),
    **dict.fromkeys(
        (
            "attention selects the flash kernel explicitly, which was the default",
            "attention under a context that selects math is compiled twice",
        ),
        "direct mode is off: forward chooses the kernel of attention",
    ),
    **dict.fromkeys(
        (
            "a layer without weights gets a name with spaces and quotes",
            "a layer with a constant gets a name with spaces and quotes",
        ),
        "direct mode is off: the name of a module",
    ),
    "a constant of the model has a name with a dot": "direct mode is off: the name of an attribute",
    "an unused packed weight is in a list": "direct mode is off: an object of TorchScript",
    "a registered argument counts its constructions": "direct mode is off: an argument with numbers",
    "a method get_submodule tells a layer from its frozen copy": "direct mode is off: a method get_submodule",
    "a traced model gets a hook of the last result that returns nothing else": "the export is refused",
    "layers are equal if their settings are equal": "as above",
    "a state is written into the dict of buffers instead of by assignment": "as above",
    "a buffer is assigned behind torch's back": "as above",
    "flushing of denormals is on": "it is a part of torch's state",
    "the factor depends on the exporter's flags": "direct mode is off: an option of Dynamo",
    "the model is moved to its own device in forward": "its weights cannot be replaced meanwhile",
    "a model tries to use NumPy and falls back when it cannot": "direct mode is off: an error of torch's is caught",
    "two equal tables that are used in two places become one": "the program has one constant less",
    "an unused contiguous call is added": "it is an operation until its result is known to be unused",
    "deprecations of torch are errors, and a submodule keeps its last input": "off: a warning of an export",
    "a conjugate spectrum is multiplied": "direct mode is off: a result is conjugated lazily",
    "a model with random augmentation is compiled twice": "the program has no key alias: it draws random numbers",
    "harmless: another momentum in eval mode": "it is an argument of the operator",
    **{
        f"decomposition replaced {name}": "torch's tables count as a whole: Inductor may use what the export does not"
        for name in ("hardtanh.default", "rsub.Scalar", "softplus.default")
    },
}
"""Their descriptions, and why."""
