"""The memo of a file: what goes by it, what its key has, and what happens when it leads nowhere or astray."""

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
from trtcache.frontends.pt2 import ProgramFile
from trtcache.keys import alias as memo
from trtcache.lowering.capture import quiet
from trtcache.lowering.entry_points import installed_passes
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


@pytest.fixture
def compiled(interpreter: str, tmp_path: Path) -> Callable[..., trtcache.CompiledModule]:
    """``trtcache.compile`` with the interpreter and a cache of this test's own."""

    def compile_(*args: Any, **kwargs: Any) -> trtcache.CompiledModule:
        return trtcache.compile(*args, **{"backend": interpreter, "cache": tmp_path / "cache", **kwargs})

    return compile_


def saved(path: Path, model: nn.Module, args: tuple[Any, ...] = (X,), kwargs: Any = None, **how: Any) -> Path:
    """Export a model into a file."""
    with quiet():
        torch.export.save(torch.export.export(model, args, kwargs, strict=False, **how), path)
    return path


def memos(root: Path) -> list[str]:
    """Return the keys of the memos in a cache."""
    store = DiskStore.open(root)
    return [one.digest for one in store.scan() if store.header(one.digest).kind == memo.KIND]


@pytest.mark.parametrize("name", CASES)
def test_a_file_that_is_compiled_again_is_neither_exported_nor_lowered(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Of every kind of model the second compile goes by a memo, and answers and is refitted as the first does."""
    case: Case = models.cases()[name]
    path = saved(tmp_path / "model.pt2", case.model, case.args, case.kwargs)
    first = compiled(path)
    monkeypatch.setenv("TRTCACHE_FORBID_BUILD", "1")
    monkeypatch.setattr(ProgramFile, "program", None)
    second = compiled(str(path))
    assert (first.report.route, second.report.route) == ("lowered", "memo")
    assert differ(first, second, case) is None


def test_a_file_with_a_dynamic_size_goes_by_a_memo(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path
) -> None:
    """Sizes that may vary do so after a memo, within their ranges and in dtypes of a file that torch saved."""
    model = nn.Linear(4, 4)
    path = saved(tmp_path / "model.pt2", model, dynamic_shapes=({0: torch.export.Dim("batch", min=2, max=9)},))
    compiled(path)
    module = compiled(path)
    assert module.report.route == "memo"
    for batch in (2, 9):
        assert difference(model(X[:1].expand(batch, 4)), module(X[:1].expand(batch, 4))) is None
    with pytest.raises(trtcache.errors.InputError, match="size 2 to 9"):
        module(X[:1])


def test_the_report_says_how_the_key_was_come_by(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path
) -> None:
    """A memo has no seconds of export, lowering and key, and says what it saved of them; the printed table as well."""
    path = saved(tmp_path / "affine.pt2", Affine())
    first, second = compiled(path).report, compiled(path, name="other").report
    assert (first.name, second.name) == ("affine", "other")
    assert first.export_s > 0
    assert (second.export_s, second.decompose_s, second.lower_s, second.key_s) == (0, 0, 0, 0)
    assert second.spared_s > 0
    assert "of export and lowering" in str(second)
    assert "memo" not in str(first)


def test_a_memo_is_an_entry_that_is_neither_hit_nor_miss(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path
) -> None:
    """Of two compiles the counters have one miss, one put and one hit, and all are the engine's."""
    path = saved(tmp_path / "affine.pt2", Affine())
    for _ in range(2):
        compiled(path)
    store = DiskStore.open(tmp_path / "cache")
    (digest,) = memos(store.root)
    header = store.check(digest)
    assert (header.name, [member.name for member in header.members]) == ("affine", ["memo.json"])
    assert header.build_s > 0
    counted = {(event, kind): tally.count for (_, event, _, kind), tally in counters(store).items()}
    assert counted == {("miss", "interpreter"): 1, ("put", "interpreter"): 1, ("hit", "interpreter"): 1}


def test_a_memo_whose_entry_is_gone_leads_the_long_way_and_then_leads_again(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is built once more, or with builds forbidden asked for in vain; the memo is as good as before."""
    path = saved(tmp_path / "affine.pt2", Affine())
    key = compiled(path).report.partitions[0].key
    store = DiskStore.open(tmp_path / "cache")
    (before,) = memos(store.root)
    store.remove(key.digest)
    with monkeypatch.context() as patched:
        patched.setenv("TRTCACHE_FORBID_BUILD", "1")
        with pytest.raises(BuildForbiddenError):
            compiled(path)
    again = compiled(path).report
    assert (again.route, again.partitions[0].outcome) == ("lowered", "built")
    assert memos(store.root) == [before]
    assert compiled(path).report.route == "memo"


def astray(root: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Put another memo under the key of the only one there is, sound as an entry."""
    store = DiskStore.open(root)
    (digest,) = memos(store.root)
    key = store.header(digest).key
    entry = store.get(key)
    document = json.loads(bytes(entry.read("memo.json")))  # type: ignore[union-attr]  # it is there
    change(document)
    store.put(key, {"memo.json": json.dumps(document).encode()}, kind=memo.KIND)


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
def test_a_memo_that_leads_astray_is_not_followed(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    """Whatever a memo says that lowering did not give, the answer is the model's, and the next memo leads again."""
    path = saved(tmp_path / "affine.pt2", Affine())
    compiled(path)
    astray(tmp_path / "cache", change)
    module = compiled(path)
    assert difference(Affine()(X), module(X)) is None
    assert (module.report.route, module.report.partitions[0].outcome) == ("lowered", "hit")
    assert compiled(path).report.route == "memo"
    events = DiskStore.open(tmp_path / "cache").events.read()
    assert [event.reason for event in events if event.event == "reject"] == ["memo"]


def test_a_memo_of_another_program_is_refused_and_counted(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path
) -> None:
    """One that leads to a program of another form is not run: its arguments, weights or members do not fit."""
    paths = [saved(tmp_path / "one.pt2", Affine()), saved(tmp_path / "other.pt2", nn.Linear(4, 4))]
    compiled(paths[1])
    store = DiskStore.open(tmp_path / "cache")
    other = store.get(store.header(memos(store.root)[0]).key)
    store.remove(memos(store.root)[0])
    compiled(paths[0])
    (mine,) = memos(store.root)
    store.put(store.header(mine).key, {"memo.json": bytes(other.read("memo.json"))}, kind=memo.KIND)  # type: ignore[union-attr]  # it is there
    module = compiled(paths[0])
    assert difference(Affine()(X), module(X)) is None
    assert compiled(paths[0]).report.route == "memo"


def test_a_damaged_memo_is_made_anew(compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path) -> None:
    """A flipped byte puts the memo into quarantine; the entry behind it is hit the long way."""
    path = saved(tmp_path / "affine.pt2", Affine())
    compiled(path)
    store = DiskStore.open(tmp_path / "cache")
    (digest,) = memos(store.root)
    content = bytearray(store.path(digest).read_bytes())
    content[-5] ^= 1
    store.path(digest).write_bytes(content)
    module = compiled(path)
    assert (module.report.route, module.report.partitions[0].outcome) == ("lowered", "hit")
    assert compiled(path).report.route == "memo"
    assert len(list((store.root / "quarantine").iterdir())) == 1


def test_an_engine_behind_a_memo_that_does_not_load_is_built_again(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, interpreter: str
) -> None:
    """It is put aside as on the long way, and the answer is right."""
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
def test_members_that_cannot_be_followed_lead_the_long_way(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, interpreter: str, member: str, content: bytes
) -> None:
    """An entry of an older version, or one whose members do not fit each other, is used by its lowered program."""
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


def test_variables_say_how_memos_are_used(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Disabled there is none; read-only one is used and none made; RECACHE goes the long way and makes it anew."""
    path, root = saved(tmp_path / "affine.pt2", Affine()), tmp_path / "cache"
    monkeypatch.setenv("TRTCACHE_DIR", str(root))
    routes = []
    for variable in ("TRTCACHE_DISABLE", "TRTCACHE_READONLY", "NONE", "TRTCACHE_READONLY", "TRTCACHE_RECACHE"):
        with monkeypatch.context() as patched:
            patched.setenv(variable, "1")
            routes.append((compiled(path, cache=None).report.route, len(memos(root)) if root.exists() else 0))
    assert routes == [("lowered", 0), ("lowered", 0), ("lowered", 1), ("memo", 1), ("lowered", 1)]


def test_a_store_that_takes_no_memo_costs_nothing_else(
    compiled: Callable[..., trtcache.CompiledModule],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A failure to store a memo is a warning and a count."""
    put = DiskStore.put

    def failing(self: DiskStore, key: CacheKey, *args: Any, **kwargs: Any) -> Any:
        if key.kind == memo.KIND:
            raise OSError(28, "No space left on device")
        return put(self, key, *args, **kwargs)

    monkeypatch.setattr(DiskStore, "put", failing)
    module = compiled(saved(tmp_path / "affine.pt2", Affine()))
    assert difference(Affine()(X), module(X)) is None
    assert "not stored" in caplog.text
    events = DiskStore.open(tmp_path / "cache").events.read()
    assert [(event.kind, event.reason) for event in events if event.event == "put_failed"] == [
        (memo.KIND, "No space left on device")
    ]


def _key(**changes: Any) -> str:
    backend = registry.find(changes.pop("backend", "aot_inductor"), "cpu")
    target = backend.target(changes.pop("target", None), CPU)
    file, whole = changes.pop("file", Digest.of(b"file")), changes.pop("whole", Digest.of(b"whole"))
    settings = Settings.of(changes.pop("settings", None))
    given = {
        "settings": settings.document(),
        "target": target.document(),
        "toolchain": backend.toolchain("cpu"),
        "ambient": backend.ambient(),
    }
    weights = whole if backend.capabilities.bakes_weights else None
    key = memo.alias_key(
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


@pytest.mark.parametrize("change", [_default_dtype, _precision, _attention, _autocast])
def test_what_the_process_says_to_torch_is_in_a_memos_key(change: Callable[[], Callable[[], None]]) -> None:
    """Each flag that decompositions or the engine depend on gives another memo, and its return the first one."""
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
def test_what_a_caller_asks_for_is_in_a_memos_key(interpreter: str, changes: dict[str, Any]) -> None:
    """Another file, target, setting or backend is another memo."""
    assert _key(**changes) != _key()


def test_weights_are_in_a_memos_key_where_an_engine_may_have_them() -> None:
    """A plan of TensorRT-RTX has its weights; a package has none, and one memo leads any weights to it."""
    plan = {"backend": "tensorrt_rtx", "target": "sm_89"}
    other = {"whole": Digest.of(b"other weights")}
    assert _key(**plan, **other) != _key(**plan)
    assert _key(**other) == _key()


def test_torch_and_our_own_code_are_in_a_memos_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another torch, and a change to what lowers or makes keys, is another memo."""
    found = {_key()}
    with monkeypatch.context() as patched:
        patched.setattr(torch.version, "git_version", "another")
        found.add(_key())
    monkeypatch.setattr(memo, "code_digest", lambda: Digest.of(b"another"))
    found.add(_key())
    assert len(found) == 3


def test_the_code_that_decides_keys_is_found_and_read() -> None:
    """Its digest is over the files of this package, of all but packages that exist and decide no key."""
    root = Path(trtcache.__file__).parent
    assert all((root / name).is_dir() for name in memo._OTHER)
    names = {Path(path).relative_to(root).parts[0] for path in memo._code_files(str(root), memo._OTHER)}
    assert {"lowering", "keys", "partition", "backends", "weights", "frontends", "compiler", "digests.py"} <= names
    assert not names & memo._OTHER
    memo.code_digest.cache_clear()
    first = memo.code_digest()
    memo.code_digest.cache_clear()
    assert memo.code_digest() == first


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


def test_passes_of_others_are_in_a_memos_key(request: pytest.FixtureRequest) -> None:
    """An installed pass gives another memo, and another version of it yet another."""
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


def test_a_program_with_operators_of_others_has_a_memo_only_with_their_versions(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path, library: Any
) -> None:
    """What such an operator computes is not in the file, also where torch takes it apart and no key shows it."""
    path = saved(tmp_path / "scaled.pt2", Scaled(torch.ops.memolib.composite))
    assert [compiled(path).report.route for _ in range(2)] == ["lowered", "lowered"]
    settings = {"operator_versions": {"memolib::composite": "1"}}
    assert [compiled(path, settings=settings).report.route for _ in range(2)] == ["lowered", "memo"]


def test_a_program_without_a_key_has_no_memo(
    compiled: Callable[..., trtcache.CompiledModule],
    tmp_path: Path,
    library: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is built each time, and the log says why there is no memo."""
    path = saved(tmp_path / "scaled.pt2", Scaled(torch.ops.memolib.opaque))
    with caplog.at_level("INFO"):
        routes = [compiled(path).report.route for _ in range(2)]
    assert routes == ["lowered", "lowered"]
    assert "gets no key alias: it has no key" in caplog.text
    assert memos(tmp_path / "cache") == []


def test_a_memo_with_a_type_that_this_process_does_not_know_is_no_memo() -> None:
    """Reading says so instead of guessing how arguments are nested."""
    with pytest.raises(ValueError, match="not registered"):
        memo.KeyAlias.read(
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


def test_strides_of_a_single_element_are_no_matter(
    compiled: Callable[..., trtcache.CompiledModule], tmp_path: Path
) -> None:
    """A constant comes out of the store with the strides that the engine was built for."""
    model = Turned()
    assert model.column.is_contiguous()
    assert model.column.stride() == (1, 3)
    path = saved(tmp_path / "model.pt2", model)
    compiled(path)
    module = compiled(path)
    assert module.report.route == "memo"
    assert difference(model(X), module(X), tolerance=0.0) is None
