"""Custom operators of installed distributions: their versions and files are in the key without being declared."""

from __future__ import annotations

import functools
import importlib
import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import pytest
import torch
import torch._inductor.lowering
from torch import nn
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.utils import cpp_extension

from tests.direct.stored import install_stored
from trtcache.backends.aot_inductor.backend import ambient
from trtcache.frontends.exported import ExportedSource
from trtcache.keys.key import process_state
from trtcache.lowering.operators import (
    identify_operators,
    operator_names,
    operators_are_unchanged,
    replaced_functions,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import RunPython

KERNELS = """
import torch
from torch import Tensor

@torch.library.custom_op("{name}::scale", mutates_args=())
def scale(x: Tensor, factor: float) -> Tensor:
    return x * factor + {offset}

@scale.register_fake
def _(x, factor):
    return torch.empty_like(x)

def replace(mode, op, types, args, kwargs):
    return args[0] * args[1]

library = torch.library.Library("{name}", "FRAGMENT")
library.define("shift(Tensor x) -> Tensor")
library.impl("shift", lambda x: x + {offset}, "CompositeImplicitAutograd")
library.define("double(Tensor x) -> Tensor")
library.impl("double", lambda x: x * 2, "CPU")
torch.library.register_fake("{name}::double", lambda x: torch.empty_like(x), lib=library)
torch.library.define("{name}::loose", "(Tensor x) -> Tensor", lib=library)
torch.library.impl("{name}::loose", "cpu")(lambda x: x * 3)
torch.library.register_fake("{name}::loose", lambda x: torch.empty_like(x), lib=library)
"""


def install(site: Path, name: str, *, version: str = "1.0", offset: int = 1, editable: bool = False) -> Path:
    """Install a distribution with custom operators, and return the file of its kernels."""
    shutil.rmtree(site / name, ignore_errors=True)
    for old in site.glob(f"{name}-*.dist-info"):
        shutil.rmtree(old)
    kernels, info = site / name / "kernels.py", site / f"{name}-{version}.dist-info"
    for folder in (kernels.parent, info):
        folder.mkdir(parents=True)
    (kernels.parent / "__init__.py").write_text("")
    kernels.write_text(KERNELS.format(name=name, offset=offset))
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "top_level.txt").write_text(f"{name}\n")
    (info / "RECORD").write_text(f"{name}/__init__.py,,\n{name}/kernels.py,sha256=abc,9\n{info.name}/RECORD,,\n")
    if editable:
        (info / "direct_url.json").write_text('{"url": "file:///src", "dir_info": {"editable": true}}')
    return kernels


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that installs a distribution into this process, and returns its operators."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def install_(name: str, **how: Any) -> Any:
        install(site, name, **how)
        importlib.import_module(f"{name}.kernels")
        return getattr(torch.ops, name)

    return install_


def test_an_operator_has_the_version_and_the_files_of_its_distribution(installed: Callable[..., Any]) -> None:
    """A kernel's own file counts; for one of a Library all files do; ``torch.library.impl`` hides the kernel."""
    ops = installed("trtcache_first")
    identities: Any = identify_operators([ops.scale.default, ops.double.default, ops.loose.default, ops.shift.default])
    assert operator_names(identities) == {"trtcache_first::scale", "trtcache_first::double"}
    for identity in identities.values():
        assert identity["distributions"] == {"trtcache_first": "1.0"}
    assert list(identities["trtcache_first::scale"]["files"]) == ["trtcache_first/kernels.py"]
    assert "trtcache_first: *.py" in identities["trtcache_first::double"]["files"]
    assert operators_are_unchanged(identities)
    assert identify_operators([ops.scale.default], {"trtcache_first"}) == {}
    assert identify_operators([ops.scale.default], {"trtcache_first::scale"}) == {}


def test_what_is_traced_into_an_engine_counts_with_all_files(installed: Callable[..., Any], tmp_path: Path) -> None:
    """A ``triton_op`` is replaced by what it calls, which other files of its distribution may define."""
    ops = installed("trtcache_traced")
    other = tmp_path / "site" / "trtcache_traced" / "__init__.py"
    opaque = identify_operators([ops.scale.default])
    other.write_text("# not called by an opaque kernel's engine\n")
    assert identify_operators([ops.scale.default]) == opaque
    kernels = importlib.import_module("trtcache_traced.kernels")
    kernels.scale.register_torch_dispatch(FunctionalTensorMode, kernels.replace)
    traced = identify_operators([ops.scale.default])
    assert traced != opaque
    other.write_text("# called by what replaces it\n")
    assert identify_operators([ops.scale.default]) not in ({}, opaque, traced)
    assert not operators_are_unchanged(traced)


def test_an_editable_install_has_no_version(installed: Callable[..., Any]) -> None:
    """Its code changes without its version."""
    assert identify_operators([installed("trtcache_editable", editable=True).scale.default]) == {}


def test_a_file_that_no_distribution_lists_has_no_version(installed: Callable[..., Any], tmp_path: Path) -> None:
    """Also beside the files of a distribution, and with a kernel of its own for another device."""
    ops = installed("trtcache_listed")
    assert identify_operators([ops.scale.default]) != {}
    own = tmp_path / "site" / "trtcache_listed" / "own.py"
    own.write_text(
        "from trtcache_listed.kernels import scale\n\n@scale.register_kernel('cuda')\ndef _(x, factor):\n    return x\n"
    )
    importlib.import_module("trtcache_listed.own")
    assert identify_operators([ops.scale.default]) == {}


def test_a_kernel_that_replaces_one_of_a_distribution_has_no_version(installed: Callable[..., Any]) -> None:
    """A program's own library takes the operator over."""
    ops = installed("trtcache_replaced")
    library = torch.library.Library("trtcache_replaced", "IMPL")
    library.impl("double", lambda x: x * 5, "CPU", allow_override=True)
    assert identify_operators([ops.double.default]) == {}
    assert identify_operators([ops.scale.default]) != {}


def test_a_fake_kernel_of_two_distributions_has_both_versions(installed: Callable[..., Any], tmp_path: Path) -> None:
    """Whatever either registers counts."""
    ops = installed("trtcache_one")
    installed("trtcache_two", version="7")
    other = tmp_path / "site" / "trtcache_two" / "__init__.py"
    other.write_text("import torch\n\ndef fake(x, factor):\n    return torch.empty_like(x)\n")
    fake = importlib.reload(importlib.import_module("trtcache_two")).fake
    torch.library.register_fake("trtcache_one::scale", fake)
    identity: Any
    (identity,) = identify_operators([ops.scale.default]).values()
    assert identity["distributions"] == {"trtcache_one": "1.0", "trtcache_two": "7"}


def test_a_file_that_changed_after_its_import_has_no_version(installed: Callable[..., Any], tmp_path: Path) -> None:
    """Its digest is not that of the kernel in memory; a change elsewhere in the file is another digest."""
    ops = installed("trtcache_changed")
    kernels = tmp_path / "site" / "trtcache_changed" / "kernels.py"
    before = identify_operators([ops.scale.default])
    kernels.write_text(kernels.read_text() + "# a comment\n")
    assert identify_operators([ops.scale.default]) not in ({}, before)
    assert not operators_are_unchanged(before)
    kernels.write_text(kernels.read_text().replace("x * factor", "x / factor"))
    assert identify_operators([ops.scale.default]) == {}


def test_what_is_no_function_of_a_file_has_no_version(installed: Callable[..., Any]) -> None:
    """An object that is called, and code that was compiled from a string."""
    ops = installed("trtcache_object")

    class Kernel(nn.Module):
        def forward(self, x: torch.Tensor, factor: float) -> torch.Tensor:
            return x * factor

    definition = torch._library.custom_ops.OPDEFS["trtcache_object::scale"]
    for kernel in (Kernel(), eval("lambda x, factor: x")):  # noqa: S307  # a kernel without a file
        definition.register_kernel("cpu")(kernel)
        assert identify_operators([ops.scale.default]) == {}


def test_a_function_in_a_table_of_torch_is_part_of_keys_and_aliases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decompositions and Inductor's lowerings compute what an engine computes; a custom operator has its own part."""
    aten = torch.ops.aten
    decompositions, lowerings = torch._decomp.decomposition_table, torch._inductor.lowering.lowerings
    state, surroundings = process_state(), ambient()
    assert "replaced" not in state
    assert "replaced" not in surroundings

    def thousandfold(x: torch.Tensor) -> torch.Tensor:
        return x * 1000

    for table, name in ((decompositions, "post_autograd"), (lowerings, "lowerings")):
        with monkeypatch.context() as patch:
            patch.setitem(table, aten.hardswish.default, functools.partial(thousandfold))
            replaced = replaced_functions()
            assert list(replaced) == [f"{name} aten.hardswish.default"]
            assert process_state() == {"replaced": replaced, **state}
            assert ambient() == {**surroundings, "replaced": replaced}
            patch.setitem(table, aten.hardswish.default, functools.partial(thousandfold))
            assert replaced_functions() != replaced
    assert process_state() == state


def test_a_decomposition_of_a_distribution_is_the_same_in_each_process(
    installed: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The distribution's version and the digests of its files stand for it."""
    installed("replacing_ops")
    function = sys.modules["replacing_ops.kernels"].replace
    monkeypatch.setitem(torch._decomp.decomposition_table, torch.ops.aten.hardswish.default, function)
    (described,) = replaced_functions().values()
    assert described == {"distributions": {"replacing_ops": "1.0"}, "files": ANY}


def test_a_program_has_no_alias_if_an_operator_of_torch_has_a_kernel_from_elsewhere() -> None:
    """A kernel in Python can change what is lowered, and leaves no trace in what is exported."""
    source = ExportedSource(torch.export.export(nn.Hardswish(), (torch.ones(2),)), "Hardswish")
    assert source.fingerprint()
    library = torch.library.Library("aten", "IMPL")
    library.impl("hardswish", lambda x: x * 1000, "Meta", allow_override=True)
    with pytest.raises(ValueError, match=r"aten\.hardswish\.default has a kernel in Python that is not torch's own"):
        source.fingerprint()
    library._destroy()
    assert source.fingerprint()


def test_operators_of_a_test_have_no_version() -> None:
    """Not even if the test's own module has imported them, nor if they are gone."""

    @torch.library.custom_op("trtcache_gone::scale", mutates_args=())
    def scale(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    assert identify_operators([torch.ops.trtcache_gone.scale.default, torch.ops.aten.add.Tensor, len]) == {}
    assert not operators_are_unchanged({"trtcache_nowhere::scale.out": None})


SOURCE = """
#include <torch/library.h>
static at::Tensor tripled(const at::Tensor& x) { return x; }
TORCH_LIBRARY(trtcache_native, m) {
  m.def("tripled(Tensor x) -> Tensor");
  m.impl("tripled", c10::DispatchKey::CPU, TORCH_FN(tripled));
}
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or shutil.which("g++") is None, reason="needs g++")
def test_an_operator_in_cpp_has_the_digest_of_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is the one that was built from the file that torch names, if the distribution lists it."""
    site = tmp_path / "site"
    install(site, "trtcache_native")
    (tmp_path / "ops.cpp").write_text(SOURCE)
    library = site / "trtcache_native" / "_C.so"
    paths = [f"-I{path}" for path in cpp_extension.include_paths()]
    flags = [
        "-std=c++20",
        "-O0",
        "-shared",
        "-fPIC",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
    ]
    links = [f"-L{path}" for path in cpp_extension.library_paths()] + ["-lc10", "-ltorch_cpu"]
    subprocess.run(["g++", *flags, *paths, tmp_path / "ops.cpp", *links, "-o", library], check=True, timeout=300)
    monkeypatch.syspath_prepend(str(site))
    torch.ops.load_library(str(library))
    operator = torch.ops.trtcache_native.tripled.default
    assert identify_operators([operator]) == {}  # the distribution does not list it
    record = site / "trtcache_native-1.0.dist-info" / "RECORD"
    record.write_text(record.read_text() + "trtcache_native/_C.so,sha256=abc,9\n")
    from trtcache.lowering import operators

    operators._records.cache_clear()
    operators._owners.cache_clear()
    identity: Any
    (identity,) = identify_operators([operator]).values()
    assert identity["distributions"] == {"trtcache_native": "1.0"}
    assert list(identity["files"]) == ["trtcache_native/_C.so"]


COMPILE = """
import json, os, torch, trtcache
from trtcache_sold import kernels

class Scaled(torch.nn.Module):
    def __init__(self, operator, *more):
        super().__init__()
        self.operator, self.more, self.weight = operator, more, torch.nn.Parameter(torch.ones(2, 4))

    def forward(self, x):
        return self.operator(x @ self.weight.t(), *self.more) * 2

def compile_(source, args=None, settings=None):
    module = trtcache.compile(source, args, backend="stored", cache={cache!r}, settings=settings)
    torch.testing.assert_close(module(x), model(x))
    report = module.report
    (part,) = report.partitions
    print(json.dumps([report.route, part.outcome, part.key.digest, report.why]))

path, x = {path!r}, torch.ones(2, 4)
model = Scaled(torch.ops.trtcache_sold.scale, 2.0).eval()
if not os.path.exists(path):
    torch.export.save(torch.export.export(model, (x,)), path)
compile_(model, (x,))
compile_(path)
compile_(model, (x,), {{"operator_versions": {{"trtcache_sold": "1"}}}})
model = Scaled(torch.ops.trtcache_sold.shift).eval()
compile_(model, (x,))
"""


def test_an_upgrade_is_a_miss_in_the_next_process(run_python: RunPython, tmp_path: Path) -> None:
    """A module and a file hit through their aliases until a version or a kernel's file changes; a declared one decides.

    What torch takes apart when it decomposes (``shift``) leaves no trace in the lowered program: its key is the same as
    long as it computes the same, and without an alias it is lowered every time.
    """
    site = install_stored(tmp_path / "site")
    code = COMPILE.format(path=str(tmp_path / "program.pt2"), cache=str(tmp_path / "cache"))
    keys: set[str] = set()

    def compile_(seed: int) -> list[Any]:
        done = run_python(code, PYTHONHASHSEED=str(seed), PYTHONPATH=f"{site}:.")
        assert done.returncode == 0, done.stderr[-2000:]
        module, file, declared, taken_apart = map(json.loads, done.stdout.splitlines()[-4:])
        assert file[2] == module[2] != declared[2]
        keys.add(module[2])
        return [*(one[:2] for one in (module, file, declared, taken_apart)), module[3]]

    kernels = install(site, "trtcache_sold")
    assert compile_(1)[:4] == [["lowered", "built"], ["lowered", "hit"], ["lowered", "built"], ["lowered", "built"]]
    assert compile_(2)[:4] == [["alias", "hit"], ["alias", "hit"], ["alias", "hit"], ["lowered", "hit"]]
    install(site, "trtcache_sold", version="1.1")
    *upgraded, why = compile_(1)
    assert upgraded == [["lowered", "built"], ["lowered", "hit"], ["alias", "hit"], ["lowered", "hit"]]
    assert "operators['trtcache_sold::scale'].distributions.trtcache_sold: 1.0 -> 1.1" in why
    # Python takes bytecode for that of a file of the same size and the same second.
    kernels.write_text(kernels.read_text().replace("+ 1", "+ 25"))
    *edited, why = compile_(2)
    assert edited == [["lowered", "built"], ["lowered", "hit"], ["alias", "hit"], ["lowered", "built"]]
    assert "operators['trtcache_sold::scale'].files['trtcache_sold/kernels.py']" in why
    assert len(keys) == 3


def test_a_mixture_of_experts_is_one_engine(run_python: RunPython, tmp_path: Path) -> None:
    """Transformers' operator has the version of transformers: one engine, and a hit under another hash seed."""
    site = install_stored(tmp_path / "site")
    code = f"""
    import json, torch, transformers, trtcache
    torch.manual_seed(0)
    sizes = dict(hidden_size=32, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2, vocab_size=97)
    config = transformers.MixtralConfig(**sizes, num_hidden_layers=2, num_local_experts=4, use_cache=False)
    model = transformers.MixtralForCausalLM(config).eval()
    ids = torch.arange(9)[None]
    module = trtcache.compile(model, (ids,), backend="stored", cache={str(tmp_path / "cache")!r})
    torch.testing.assert_close(module(ids).logits, model(ids).logits, atol=1e-4, rtol=1e-4)
    print(json.dumps([len(module.report.left), [one.outcome for one in module.report.partitions], module.report.route]))
    """
    runs = []
    for seed, forbid in (("1", "0"), ("2", "1")):
        done = run_python(code, PYTHONHASHSEED=seed, TRTCACHE_FORBID_BUILD=forbid, PYTHONPATH=f"{site}:.")
        assert done.returncode == 0, done.stderr[-2000:]
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    assert runs == [[0, ["built"], "lowered"], [0, ["hit"], "alias"]]
