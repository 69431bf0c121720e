"""Digests, keys and the canonical encoding: equal for equal values everywhere, different for different ones."""

from __future__ import annotations

import enum
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from trtcache.digests import CacheKey, Digest, canonical, digest, encode, file_bytes, hash_bytes
from trtcache.errors import CanonicalizationError

NAMES = st.text(max_size=8).filter(lambda name: not name.startswith("$"))
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
DOCUMENTS: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)
LEAVES = SCALARS | st.floats() | st.binary(max_size=8)
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES | st.frozensets(st.integers() | st.text(max_size=4), max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def decode(raw: bytes) -> Any:
    """Decode the result of ``encode``, which proves that the encoding is injective."""
    value, rest = _decode(raw)
    assert rest == b""
    return value


def _decode(raw: bytes) -> tuple[Any, bytes]:
    tag, raw = raw[:1], raw[1:]
    if tag in b"ntf":
        return {b"n": None, b"t": True, b"f": False}[tag], raw
    number, _, raw = raw.partition(b":")
    count = int(number)
    if tag == b"i":
        return int(raw[:count]), raw[count:]
    if tag == b"s":
        return raw[:count].decode(), raw[count:]
    items = []
    for _ in range(count if tag == b"l" else 2 * count):
        item, raw = _decode(raw)
        items.append(item)
    return (items if tag == b"l" else dict(zip(items[::2], items[1::2], strict=True))), raw


def typed(value: Any) -> Any:
    """Return a form of a document in which True is not 1."""
    if isinstance(value, dict):
        return {name: typed(one) for name, one in value.items()}
    if isinstance(value, list):
        return [typed(one) for one in value]
    return type(value).__name__, value


@given(DOCUMENTS)
def test_the_encoding_can_be_undone(document: Any) -> None:
    """Decoding returns the document, so different documents have different bytes."""
    assert typed(decode(encode(document))) == typed(document)


@given(st.dictionaries(NAMES, DOCUMENTS, min_size=2, max_size=5), st.randoms())
def test_the_order_of_names_does_not_matter(document: dict[str, Any], random: Any) -> None:
    """Mappings are sets of named values."""
    names = list(document)
    random.shuffle(names)
    assert encode({name: document[name] for name in names}) == encode(document)


@given(VALUES)
def test_canonical_values_are_documents(value: Any) -> None:
    """Every value that has a stable form becomes one that the encoding can undo."""
    document = canonical(value)
    assert typed(decode(encode(document))) == typed(document)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ("1", 1),
        (b"a", "a"),
        (None, "None"),
        ([], {}),
        ([[1], 2], [[1, 2]]),
        ({"a": None}, {}),
        (frozenset({1, 2}), [1, 2]),
        ("\u00e9", "e\u0301"),
        (Digest.of(b"a"), Digest.of(b"b")),
        (b"61", "61"),
    ],
)
def test_values_that_differ_have_other_keys(one: object, other: object) -> None:
    """Type, grouping and sign of a value are part of it."""
    assert CacheKey.of("k", {"v": one}) != CacheKey.of("k", {"v": other})
    assert encode(canonical(one)) != encode(canonical(other))


def test_lists_and_tuples_are_alike() -> None:
    """So are bytes and their views, and sets in any order."""
    assert canonical((1, [2])) == canonical([1, (2,)])
    assert canonical(bytearray(b"a")) == canonical(memoryview(b"a")) == canonical(b"a")
    assert canonical({"b", "a"}) == canonical(frozenset(["a", "b"]))


@pytest.mark.parametrize("view", [memoryview(bytes(8)).cast("f"), memoryview(bytes(8)).cast("B", (2, 4))])
def test_a_view_of_other_elements_is_refused(view: memoryview) -> None:
    """Its bytes are those of views of other dtypes and shapes, for which something else is built."""
    with pytest.raises(CanonicalizationError, match=r"parts\['w'\]: a memoryview of elements '[fB]' in [12] dimension"):
        CacheKey.of("test", {"w": view})


class Mode(enum.IntEnum):
    FAST = 1


def test_enums_are_their_names() -> None:
    """An enum is its class and name, whatever number it has."""
    assert canonical(Mode.FAST) == {"$enum": "Mode.FAST"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), r"value: object has no stable value to hash; use text"),
        ({"a": [1, Path("x")]}, r"value\['a'\]\[1\]: PosixPath .* use trtcache.digest\(path\)"),
        ({1: 2}, "the name 1 is not text"),
        ({"$float": 1}, r"the name '\$float' starts with"),
        ("\ud800", "not valid Unicode"),
        (len, "builtin_function_or_method"),
    ],
)
def test_what_has_no_stable_form_is_named(value: object, message: str) -> None:
    """The message names the part that cannot be hashed and a remedy."""
    with pytest.raises(CanonicalizationError, match=message):
        canonical(value)


def test_keys_name_their_part() -> None:
    """The error for an invalid part names it."""
    with pytest.raises(CanonicalizationError, match=r"parts\['weights'\]"):
        CacheKey.of("k", {"weights": object()})


def test_keys_are_what_they_were() -> None:
    """A key of today is the key of tomorrow; a change here is a change of the key format."""
    key = CacheKey.of("k", {"a": 1, "b": [1.5, None, "x"]})
    assert str(key) == key.digest == KNOWN
    assert key.kind == "k"
    assert pickle.loads(pickle.dumps(key)) == key  # noqa: S301  # our own bytes


KNOWN = hash_bytes(
    b"d3:s6:formati1:1s4:kinds1:ks5:partsd2:s1:ai1:1s1:bl3:d1:s6:$floats20:0x1.8000000000000p+0ns1:x"
).hex()


def test_keys_do_not_depend_on_the_hash_seed() -> None:
    """Processes with other seeds make the same keys of sets and mappings."""
    code = (
        "from trtcache import CacheKey\n"
        "print(CacheKey.of('k', {'s': {'a', 'b', 'c', 'd'}, 'm': {x: x for x in {'q', 'w', 'e'}}}))"
    )
    digests = set()
    for seed in ("0", "1", "4242"):
        environ = os.environ | {"PYTHONHASHSEED": seed}
        digests.add(subprocess.run([sys.executable, "-c", code], env=environ, check=True, capture_output=True).stdout)
    assert len(digests) == 1


@pytest.mark.parametrize("size", [0, 1, 5000, (9 << 20) + 3])
def test_digests_are_of_the_content(tmp_path: Path, size: int) -> None:
    """Bytes and a file of the same bytes have one digest, and it is plain BLAKE3."""
    content = os.urandom(size)
    (tmp_path / "f").write_bytes(content)
    assert Digest.of(content) == Digest.of_file(tmp_path / "f") == digest(tmp_path / "f")
    assert Digest.of(content) == Digest(blake3(content).hexdigest(), size)
    assert str(Digest.of(content)) == f"b3:{blake3(content).hexdigest()}"


def test_a_directory_has_a_digest_of_its_files(tmp_path: Path) -> None:
    """Names and contents count, the directory's own name and times do not."""
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "f").write_bytes(b"x")
    first = digest(tmp_path / "one")
    os.utime(tmp_path / "two" / "sub" / "f", (1, 1))
    assert digest(tmp_path / "two") == first
    (tmp_path / "two" / "sub" / "f").rename(tmp_path / "two" / "f")
    assert digest(tmp_path / "two") != first
    os.mkfifo(tmp_path / "one" / "pipe")
    with pytest.raises(CanonicalizationError, match="not a file or directory"):
        digest(tmp_path / "one")


def test_a_forked_child_can_hash() -> None:
    """Large data is hashed in a child of a process that has hashed large data; a shared thread pool would hang."""
    content = bytes(16 << 20)
    expected = hash_bytes(content)
    child = os.fork()
    if child == 0:
        os._exit(0 if hash_bytes(content) == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class Bits(enum.IntFlag):
    """Flags, of which one has a name."""

    A = 1


class Text(str, enum.Enum):  # noqa: UP042  # a StrEnum is another case
    """An enum of texts."""

    A = "x"


class Loud(str):
    """A text that is shown as another."""

    __slots__ = ()

    def __str__(self) -> str:
        return "same"


class Odd(int):
    """A number that is converted to another."""

    def __int__(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Bits(8), Bits(16)),
        (Bits(9), Bits(17)),
        (Text.A, "Text.A"),
        (Text.A, "x"),
        (Loud("1"), Loud("2")),
        (Odd(1), Odd(2)),
    ],
)
def test_values_of_derived_classes_are_told_apart(one: object, other: object) -> None:
    """An encoding has the value itself, whatever a class makes of it."""
    assert encode(canonical(one)) != encode(canonical(other))


class Alone(str):
    """A text that equals no other."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


@pytest.mark.parametrize("value", [{Alone("1"): 1, Alone("1"): 2}, 1 << 20_000], ids=["names", "large"])
def test_what_cannot_be_encoded_is_an_error(value: object) -> None:
    """Names that become one, and integers that Python does not write."""
    with pytest.raises(CanonicalizationError):
        encode(canonical(value))


def test_a_list_in_itself_is_an_error() -> None:
    """It has no end."""
    value: list[object] = []
    value.append(value)
    with pytest.raises(CanonicalizationError, match="contains itself"):
        canonical(value)


def test_keys_are_hashed_by_their_digest() -> None:
    """They can be in sets and be the keys of dictionaries."""
    assert {CacheKey.of("test", {"n": 1}), CacheKey.of("test", {"n": 1})} == {CacheKey.of("test", {"n": 1})}


def test_a_directory_that_cannot_be_listed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not passed over; nor is a name that is not text."""
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "file").write_text("content")
    assert digest(tmp_path).size_bytes == 7
    original = os.scandir

    def scandir(path: str) -> Any:
        if str(path).endswith("below"):
            raise PermissionError(13, "Permission denied", path)
        return original(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        with pytest.raises(PermissionError):
            digest(tmp_path)
    (tmp_path / os.fsdecode(b"\xff")).write_text("content")
    with pytest.raises(CanonicalizationError, match="Unicode"):
        digest(tmp_path)


def test_a_file_is_read_as_a_whole(tmp_path: Path) -> None:
    """Also if its size is a multiple of what is read at once."""
    for size in (0, 1, 1 << 16, (1 << 16) + 1, 1 << 20):
        (tmp_path / "file").write_bytes(os.urandom(size))
        assert file_bytes(str(tmp_path / "file")) == (tmp_path / "file").read_bytes()
