"""Key aliases of files: their uses, their keys, and aliases that are missing, wrong or damaged."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import trtcache
from tests import models
from tests.comparing import differ, difference
from tests.models import Affine, Case
from trtcache.backends import registry
from trtcache.digests import CacheKey, Digest
from trtcache.errors import BuildForbiddenError
from trtcache.frontends.pt2 import Pt2Source
from trtcache.keys import alias_key
from trtcache.keys import alias_key as made_keys
from trtcache.keys import key as key_alias
from trtcache.lowering.model_state import quiet
from trtcache.lowering.passes import installed_passes
from trtcache.settings import Settings
from trtcache.store.catalog import counters
from trtcache.store.disk import DiskStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

X = torch.randn(3, 4)
CPU = torch.device("cpu")
CASES = sorted(set(models.cases()) - {"constants_out", "no_outputs"})
"""All kinds of models but those that torch.export does not save and load."""

pytree._register_namedtuple(models.Pair, serialized_type_name="tests.models.Pair")
torch.serialization.add_safe_globals([models.Pair])


def saved(path: Path, model: nn.Module, args: tuple[Any, ...] = (X,), kwargs: Any = None, **how: Any) -> Path:
    """Export a model into a file."""
    with quiet():
        torch.export.save(torch.export.export(model, args, kwargs, strict=False, **how), path)
    return path


def alias_digests(root: Path) -> list[str]:
    """Return the digests of the key aliases in a cache."""
    store = DiskStore.open(root)
    return [one.digest for one in store.scan() if store.header(one.digest).kind == alias_key.KIND]


@pytest.mark.parametrize("name", CASES)
def test_a_file_that_is_compiled_again_is_neither_exported_nor_lowered(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """For every kind of model the second compile uses the key alias, with equal results and refits."""
    case: Case = models.cases()[name]
    path = saved(tmp_path / "model.pt2", case.model, case.args, case.kwargs)
    first = compiled(path)
    monkeypatch.setenv("TRTCACHE_FORBID_BUILD", "1")
    monkeypatch.setattr(Pt2Source, "program", None)
    second = compiled(str(path))
    assert (first.report.route, second.report.route) == ("lowered", "alias")
    assert differ(first, second, case) is None


def test_a_file_with_a_dynamic_size_uses_an_alias(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path
) -> None:
    """Dynamic sizes stay dynamic, within their ranges and with all dtypes."""
    model = nn.Linear(4, 4)
    path = saved(tmp_path / "model.pt2", model, dynamic_shapes=({0: torch.export.Dim("batch", min=2, max=9)},))
    compiled(path)
    module = compiled(path)
    assert module.report.route == "alias"
    for batch in (2, 9):
        assert difference(model(X[:1].expand(batch, 4)), module(X[:1].expand(batch, 4))) is None
    with pytest.raises(trtcache.errors.InputError, match="size 2 to 9"):
        module(X[:1])


def test_the_report_has_the_route_to_the_key(compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path) -> None:
    """With an alias it has no seconds of export, lowering and key, and has the time saved; so has the printed table."""
    path = saved(tmp_path / "affine.pt2", Affine())
    first, second = compiled(path).report, compiled(path, name="other").report
    assert (first.name, second.name) == ("affine", "other")
    assert first.export_s > 0
    assert (second.export_s, second.decompose_s, second.lower_s, second.key_s) == (0, 0, 0, 0)
    assert second.alias_saved_s > 0
    assert "of export and lowering" in str(second)
    assert "alias" not in str(first)


def test_an_alias_is_not_counted_as_hit_or_miss(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path
) -> None:
    """After two compiles the counters have one miss, one put and one hit, all of the engine."""
    path = saved(tmp_path / "affine.pt2", Affine())
    for _ in range(2):
        compiled(path)
    store = DiskStore.open(tmp_path / "cache")
    (digest,) = alias_digests(store.root)
    header = store.check(digest)
    assert (header.name, [member.name for member in header.members]) == ("affine", ["alias.json"])
    assert header.build_s > 0
    counted = {(event, kind): tally.count for (_, event, _, kind), tally in counters(store).items()}
    assert counted == {("miss", "interpreter"): 1, ("put", "interpreter"): 1, ("hit", "interpreter"): 1}


def test_an_alias_of_an_evicted_entry_takes_the_slow_path_once(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is built again, or an error with builds forbidden; then the alias is used again."""
    path = saved(tmp_path / "affine.pt2", Affine())
    key = compiled(path).report.partitions[0].key
    store = DiskStore.open(tmp_path / "cache")
    (before,) = alias_digests(store.root)
    store.remove(key.digest)
    with monkeypatch.context() as patched:
        patched.setenv("TRTCACHE_FORBID_BUILD", "1")
        with pytest.raises(BuildForbiddenError):
            compiled(path)
    again = compiled(path).report
    assert (again.route, again.partitions[0].outcome) == ("lowered", "built")
    assert alias_digests(store.root) == [before]
    assert compiled(path).report.route == "alias"


def astray(root: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Replace the only key alias by another, as an intact entry."""
    store = DiskStore.open(root)
    (digest,) = alias_digests(store.root)
    key = store.header(digest).key
    entry = store.get(key)
    document = json.loads(bytes(entry.read("alias.json")))  # type: ignore[union-attr]  # it is there
    change(document)
    store.put(key, {"alias.json": json.dumps(document).encode()}, kind=alias_key.KIND)


def _set(*path: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        for name in path[:-1]:
            document = document[name]
        document[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.clear(),
        _set("device", value="cuda:0"),
        _set("device", value="toaster"),
        _set("names", value=[]),
        _set("names", value=[["nobody"], ["a"], ["b"]]),
        _set("in_spec", value="[1, {}]"),
        _set("out_spec", value="[9, null]"),
        _set("key", "parts", "settings", value={}),
        _set("key", "parts", "ambient", value={"dtype": "float64"}),
        _set("key", "parts", "target", value={}),
        _set("key", "parts", "toolchain", value={"torch": "1.0"}),
        _set("key", "parts", "structure", "output", value=["builtins.list", None, None]),
        _set("key", "kind", value="aot_inductor"),
        _set("key", "parts", "graph", value={"$digest": "b3:00", "$size": 1}),
        _set("key", "parts", value=None),
        _set("known", value=7),
        _set("sources", value={"a": None}),
    ],
)
def test_a_wrong_alias_is_not_used(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    """Whatever differs from the lowered program, results are the model's, and the next alias is used again."""
    path = saved(tmp_path / "affine.pt2", Affine())
    compiled(path)
    astray(tmp_path / "cache", change)
    module = compiled(path)
    assert difference(Affine()(X), module(X)) is None
    assert (module.report.route, module.report.partitions[0].outcome) == ("lowered", "hit")
    assert compiled(path).report.route == "alias"
    events = DiskStore.open(tmp_path / "cache").events.read()
    assert [event.reason for event in events if event.event == "reject"] == ["alias"]


def test_an_alias_of_another_program_is_rejected_and_counted(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path
) -> None:
    """An alias of a program with other arguments, weights or members is not used."""
    paths = [saved(tmp_path / "one.pt2", Affine()), saved(tmp_path / "other.pt2", nn.Linear(4, 4))]
    compiled(paths[1])
    store = DiskStore.open(tmp_path / "cache")
    other = store.get(store.header(alias_digests(store.root)[0]).key)
    store.remove(alias_digests(store.root)[0])
    compiled(paths[0])
    (mine,) = alias_digests(store.root)
    store.put(store.header(mine).key, {"alias.json": bytes(other.read("alias.json"))}, kind=alias_key.KIND)  # type: ignore[union-attr]  # it is there
    module = compiled(paths[0])
    assert difference(Affine()(X), module(X)) is None
    assert compiled(paths[0]).report.route == "alias"


def test_a_damaged_alias_is_stored_again(compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path) -> None:
    """An alias with a flipped byte is quarantined; its entry hits on the slow path."""
    path = saved(tmp_path / "affine.pt2", Affine())
    compiled(path)
    store = DiskStore.open(tmp_path / "cache")
    (digest,) = alias_digests(store.root)
    content = bytearray(store.path(digest).read_bytes())
    content[-5] ^= 1
    store.path(digest).write_bytes(content)
    module = compiled(path)
    assert (module.report.route, module.report.partitions[0].outcome) == ("lowered", "hit")
    assert compiled(path).report.route == "alias"
    assert len(list((store.root / "quarantine").iterdir())) == 1


def test_an_unloadable_engine_found_through_an_alias_is_built_again(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, interpreter: str
) -> None:
    """It is quarantined as on the slow path, and results are right."""
    path = saved(tmp_path / "affine.pt2", Affine())
    key = compiled(path).report.partitions[0].key
    store = DiskStore.open(tmp_path / "cache")
    entry = store.get(key)
    contents = {name: bytes(entry.read(name)) for name in entry.members}  # type: ignore[union-attr]  # it is there
    store.put(key, {**contents, "engine": b"graph 999999"}, kind=interpreter)
    module = compiled(path)
    assert (module.report.partitions[0].outcome, module.report.partitions[0].reason) == ("built", "load")
    assert difference(Affine()(X), module(X)) is None


@pytest.mark.parametrize(
    ("member", "content"),
    [("interface.json", b'{"format":1}'), ("weight_map.json", b"{}"), ("constants.safetensors", b"")],
)
def test_unusable_members_take_the_slow_path(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, interpreter: str, member: str, content: bytes
) -> None:
    """An entry of an older version, or one with inconsistent members, is used with the lowered program."""
    model = models.cases()["constants"].model
    x = models.cases()["constants"].args[0]
    path = saved(tmp_path / "model.pt2", model, (x,))
    first = compiled(path)
    store = DiskStore.open(tmp_path / "cache")
    entry = store.get(first.report.partitions[0].key)
    contents = {name: bytes(entry.read(name)) for name in entry.members}  # type: ignore[union-attr]  # it is there
    store.put(first.report.partitions[0].key, {**contents, member: content}, kind=interpreter)
    second = compiled(path)
    assert (second.report.route, second.report.partitions[0].outcome) == ("lowered", "hit")
    assert difference(first(x), second(x), tolerance=0.0) is None


def test_environment_variables_apply_to_aliases(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Disabled: none; read-only: used and not stored; RECACHE: the slow path, which stores them again."""
    path, root = saved(tmp_path / "affine.pt2", Affine()), tmp_path / "cache"
    monkeypatch.setenv("TRTCACHE_DIR", str(root))
    routes = []
    for variable in ("TRTCACHE_DISABLE", "TRTCACHE_READONLY", "NONE", "TRTCACHE_READONLY", "TRTCACHE_RECACHE"):
        with monkeypatch.context() as patched:
            patched.setenv(variable, "1")
            routes.append((compiled(path, cache=None).report.route, len(alias_digests(root)) if root.exists() else 0))
    assert routes == [("lowered", 0), ("lowered", 0), ("lowered", 1), ("alias", 1), ("lowered", 1)]


def test_a_failure_to_store_an_alias_is_a_warning(
    compiled: Callable[..., trtcache.CompiledModule],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is counted too, and has no other effect."""
    put = DiskStore.put

    def failing(self: DiskStore, key: CacheKey, *args: Any, **kwargs: Any) -> Any:
        if key.kind == alias_key.KIND:
            raise OSError(28, "No space left on device")
        return put(self, key, *args, **kwargs)

    monkeypatch.setattr(DiskStore, "put", failing)
    module = compiled(saved(tmp_path / "affine.pt2", Affine()))
    assert difference(Affine()(X), module(X)) is None
    assert "not stored" in caplog.text
    events = DiskStore.open(tmp_path / "cache").events.read()
    assert [(event.kind, event.reason) for event in events if event.event == "put_failed"] == [
        (alias_key.KIND, "No space left on device")
    ]


def _key(**changes: Any) -> str:
    backend = registry.find(changes.pop("backend", "aot_inductor"), "cpu")
    target = backend.target(changes.pop("target", None), CPU)
    file, whole = changes.pop("file", Digest.of(b"file")), changes.pop("whole", Digest.of(b"whole"))
    settings = Settings.of(changes.pop("settings", None))
    given = {
        "settings": settings.document(),
        "target": target.document(),
        "toolchain": backend.versions("cpu"),
        "ambient": backend.ambient(),
    }
    weights = whole if backend.capabilities.can_freeze else None
    key = key_alias.alias_key(
        {"file": file, "weights": weights},
        given,
        backend=backend,
        device_type="cpu",
        torch_executed_modules=settings.torch_executed_modules,
    )
    return key.digest


def _default_dtype() -> Any:
    torch.set_default_dtype(torch.float64)
    return lambda: torch.set_default_dtype(torch.float32)


def _precision() -> Any:
    torch.set_float32_matmul_precision("high")
    return lambda: torch.set_float32_matmul_precision("highest")


def _attention() -> Any:
    torch.backends.cuda.enable_flash_sdp(False)
    return lambda: torch.backends.cuda.enable_flash_sdp(True)


def _autocast() -> Any:
    context = torch.autocast("cpu", torch.bfloat16)
    context.__enter__()
    return lambda: context.__exit__(None, None, None)


def test_a_number_is_no_nan_with_its_sign_set(interpreter: str, tmp_path: Path) -> None:
    """The digests, like Python's texts, have one form for all NaNs, and engines have one NaN."""

    class Copies(torch.nn.Module):
        def forward(self, x: torch.Tensor, sign: float) -> torch.Tensor:
            return torch.copysign(x, torch.full(x.shape, sign))

    nan = float("nan")
    options: dict[str, Any] = {"backend": interpreter, "cache": tmp_path}
    module = trtcache.compile(Copies(), (X, nan), **options)
    assert torch.equal(module(X, nan), X.abs())
    with pytest.raises(trtcache.errors.InputError):
        module(X, -nan)
    with pytest.raises(trtcache.errors.ExportError, match="does not keep the sign of the NaN"):
        trtcache.compile(Copies(), (X, -nan), **options)


def _denormals() -> Any:
    torch.set_flush_denormal(True)
    return lambda: torch.set_flush_denormal(False)


@pytest.mark.parametrize("change", [_default_dtype, _precision, _attention, _autocast, _denormals])
def test_the_state_of_torch_is_in_the_key_of_an_alias(change: Callable[[], Callable[[], None]]) -> None:
    """Each flag that decompositions or the engine depend on gives another alias, and resetting it the first one."""
    before = _key()
    back = change()
    try:
        assert _key() != before
    finally:
        back()
    assert _key() == before


@pytest.mark.parametrize(
    "changes",
    [
        {"file": Digest.of(b"another")},
        {"target": "x86-64"},
        {"settings": {"inductor": {"max_autotune": True}}},
        {"settings": {"operator_versions": {"mylib": "2"}}},
        {"settings": {"torch_executed_modules": ["encoder"]}},
        {"backend": "interpreter"},
    ],
)
def test_options_are_in_the_key_of_an_alias(interpreter: str, changes: dict[str, Any]) -> None:
    """Another file, target, setting or backend has another alias."""
    assert _key(**changes) != _key()


def test_weights_are_in_the_key_of_an_alias_if_engines_embed_them() -> None:
    """TensorRT-RTX plans may contain weights; packages contain none, and share one alias for all weights."""
    plan = {"backend": "tensorrt_rtx", "target": "sm_89"}
    other = {"whole": Digest.of(b"other weights")}
    assert _key(**plan, **other) != _key(**plan)
    assert _key(**other) == _key()


def test_torch_and_this_package_are_in_the_key_of_an_alias(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another torch, or a change to code that lowers or makes keys, gives another alias."""
    found = {_key()}
    with monkeypatch.context() as patched:
        patched.setattr(torch.version, "git_version", "another")
        found.add(_key())
    monkeypatch.setattr(made_keys, "code_digest", lambda: Digest.of(b"another"))
    found.add(_key())
    assert len(found) == 3


def test_the_code_digest_covers_all_code_that_keys_depend_on() -> None:
    """It is over all files of this package but those of listed packages, which exist."""
    root = Path(trtcache.__file__).parent
    assert all((root / name).is_dir() for name in alias_key._OTHER)
    names = {Path(path).relative_to(root).parts[0] for path in alias_key._code_files(str(root), alias_key._OTHER)}
    assert {"lowering", "keys", "partition", "backends", "weights", "frontends", "compiler", "digests.py"} <= names
    assert not names & alias_key._OTHER
    alias_key.code_digest.cache_clear()
    first = alias_key.code_digest()
    alias_key.code_digest.cache_clear()
    assert alias_key.code_digest() == first


@pytest.fixture
def other_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Install a pass as another distribution would, and return its module."""
    (tmp_path / "memo_other.py").write_text(
        "from dataclasses import dataclass\n"
        "from trtcache.lowering.passes import Pass, PassResult\n\n"
        "@dataclass(frozen=True)\n"
        "class Nothing(Pass):\n"
        "    name = 'nothing'\n"
        "    version = 1\n\n"
        "    def __call__(self, graph_module):\n"
        "        return PassResult(graph_module, False)\n"
    )
    info = tmp_path / "memo_other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: memo_other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[trtcache.passes]\nnothing = memo_other:Nothing\n")
    monkeypatch.syspath_prepend(tmp_path)
    installed_passes.cache_clear()
    yield importlib.import_module("memo_other")
    monkeypatch.undo()
    installed_passes.cache_clear()


def test_passes_of_other_distributions_are_in_the_key_of_an_alias(request: pytest.FixtureRequest) -> None:
    """An installed pass gives another alias, and another version of it yet another."""
    found = {_key()}
    module = request.getfixturevalue("other_pass")
    found.add(_key())
    module.Nothing.version = 2
    found.add(_key())
    assert len(found) == 3


class Scaled(nn.Module):
    """A model with an operator that is not torch's."""

    def __init__(self, operator: Any) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the operator's result."""
        return self.operator(x, 2.0)


@pytest.fixture(scope="module")
def library() -> Any:
    """A library with an operator that has code of its own, and one that torch takes apart when it decomposes."""
    made = torch.library.Library("memolib", "DEF")
    made.define("opaque(Tensor x, float by) -> Tensor")
    made.define("composite(Tensor x, float by) -> Tensor")
    made.impl("opaque", lambda x, by: x * by, "CompositeExplicitAutograd")
    made.impl("composite", lambda x, by: x * by + 1, "CompositeImplicitAutograd")
    torch.library.register_fake("memolib::opaque", lambda x, by: torch.empty_like(x), lib=made)
    return made


def test_custom_operators_need_versions_for_an_alias(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, library: Any
) -> None:
    """Their code is not in the file, even if torch decomposes them so that the lowered graph does not show them."""
    path = saved(tmp_path / "scaled.pt2", Scaled(torch.ops.memolib.composite))
    assert [compiled(path).report.route for _ in range(2)] == ["lowered", "lowered"]
    settings = {"operator_versions": {"memolib::composite": "1"}}
    assert [compiled(path, settings=settings).report.route for _ in range(2)] == ["lowered", "alias"]


def test_a_program_without_a_key_has_no_alias(
    compiled: Callable[..., trtcache.CompiledModule],
    tmp_path: Path,
    library: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is built each time, and the log has the reason."""
    path = saved(tmp_path / "scaled.pt2", Scaled(torch.ops.memolib.opaque))
    with caplog.at_level("INFO"):
        routes = [compiled(path).report.route for _ in range(2)]
    assert routes == ["lowered", "lowered"]
    assert "gets no key alias: it has no key" in caplog.text
    assert alias_digests(tmp_path / "cache") == []


class Mapped(nn.Module):
    """Maps a function over dimensions of its input."""

    def __init__(self, by: int, outer: int, inner: int) -> None:
        super().__init__()
        self.by, self.outer, self.inner = by, outer, inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the products, summed over the dimension that is left."""
        result: torch.Tensor = torch.vmap(torch.vmap(self._sum, self.inner), self.outer)(x)
        return result

    def _sum(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.by).sum()


def test_a_vmap_has_an_alias(compiled: Callable[..., trtcache.CompiledModule]) -> None:
    """Its tensors have levels, and their dimensions are parts of the digest."""
    x = torch.randn(3, 4, 5)
    variants = [Mapped(2, 0, 0), Mapped(3, 0, 0), Mapped(2, 1, 0), Mapped(2, 0, 1), Mapped(2, 2, 0)]
    for route in ("lowered", "alias"):
        for model in variants:
            module = compiled(model, (x,))
            assert module.report.route == route
            torch.testing.assert_close(module(x), model(x))


def test_an_alias_with_an_unregistered_type_is_an_error() -> None:
    """Reading it raises instead of guessing how arguments are nested."""
    with pytest.raises(ValueError, match="not registered"):
        key_alias.KeyAlias.read(
            json.dumps(
                {
                    "key": {"format": 1, "kind": "any", "parts": {}},
                    "device": "cpu",
                    "names": [],
                    "known": [],
                    "sources": {},
                    "in_spec": '[1, {"type": "nobody.Knows", "context": "null", "children_spec": []}]',
                    "out_spec": '[1, {"type": null, "context": null, "children_spec": []}]',
                }
            ).encode()
        )


class Turned(nn.Module):
    """A constant that torch calls contiguous with a stride of its own in a dimension of size 1."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("column", torch.randn(4, 3).t()[:, :1], persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply by it."""
        return x * self.column


def test_strides_of_a_single_element_are_preserved(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path
) -> None:
    """A constant is loaded from the store with the strides that the engine was built for."""
    model = Turned()
    assert model.column.is_contiguous()
    assert model.column.stride() == (1, 3)
    path = saved(tmp_path / "model.pt2", model)
    compiled(path)
    module = compiled(path)
    assert module.report.route == "alias"
    assert difference(model(X), module(X), tolerance=0.0) is None
