"""``trtcache warm --emit k8s``: an Indexed Job for each image."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from trtcache.config.remotes import VARIABLE, RemoteUrl
from trtcache.digests import Digest
from trtcache.errors import SettingsError

if TYPE_CHECKING:
    from trtcache_cli.matrix import Cell, Matrix

_KEY: Final = "TRTCACHE_SIGNING_KEY"
_OF_THIS_HOST: Final = ("TRTCACHE_CONFIG", "TRTCACHE_QUIET", "TRTCACHE_LOG")
"""Variables that a pod does not get: the values of the settings file are in the others."""

_DIRECTORIES: Final = ("TRTCACHE_DIR", "TRTCACHE_PATH")
_POD: Final = {"volumes": list, "initContainers": list, "serviceAccountName": str, "securityContext": dict}
_CONTAINER: Final = {"env": list, "volumeMounts": list, "resources": dict}
_OWN: Final = {"image": str, "parallelism": int}
_FIELDS: Final = {**_OWN, **_POD, **_CONTAINER}
_ATTEMPTS: Final = 3


def read_fields(matrix: Matrix) -> dict[str, Any]:
    """Return ``[defaults.kubernetes]``: fields of the Job as Kubernetes names them.

    Raises:
        SettingsError: a field is unknown, or of another type.
    """
    given = dict(matrix.resources.get("kubernetes", {}))
    for name, value in given.items():
        where = f"defaults.kubernetes.{name}"
        if name not in _FIELDS:
            raise SettingsError(str(matrix.path), f"{where}: unknown; known: {', '.join(sorted(_FIELDS))}")
        expected = _FIELDS[name]
        tables = value if expected is list else []
        if type(value) is not expected or not all(isinstance(each, dict) and "name" in each for each in tables):
            words = {list: "tables with a name", str: "a text", int: "a number of 1 or more", dict: "a table"}
            raise SettingsError(str(matrix.path), f"{where}: expected {words[expected]}, got {value!r}")
    if given.get("parallelism", 1) < 1:
        why = f"defaults.kubernetes.parallelism: expected a number of 1 or more, got {given['parallelism']!r}"
        raise SettingsError(str(matrix.path), why)
    return given


def pod_environment(matrix: Matrix, given: Mapping[str, Any], environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return ``env`` of the container: the variables of trtcache that are set here, and those of the matrix.

    A signing key is a file, which is named and not in the manifest.

    Raises:
        SettingsError: what is built would be lost, or the key would not be there.
    """
    own = {str(each["name"]): each for each in given.get("env", [])}
    mounts = [str(each.get("mountPath", "")) for each in given.get("volumeMounts", [])]

    def is_mounted(path: str) -> bool:
        return any(mount and PurePosixPath(path).is_relative_to(mount) for mount in mounts)

    found = {name: text for name, text in environ.items() if name not in own and name not in _OF_THIS_HOST}
    for name in _DIRECTORIES:
        if name in found and not all(map(is_mounted, found[name].split(":"))):
            # A directory of this host: a pod has its own.
            del found[name]
    if _KEY in found and not is_mounted(found[_KEY]):
        why = f"{found[_KEY]} is in no volume of the pod: mount its Secret there (docs/remote.md), or set {_KEY} in env"
        raise SettingsError(f"{matrix.path}: defaults.kubernetes.volumeMounts", why)
    # Where a value comes from in the cluster is not known here.
    is_uploaded = VARIABLE in own or any(RemoteUrl.parse(url).writable for url in found.get(VARIABLE, "").split())
    if not is_uploaded and not mounts:
        why = "what the pods build would be lost: set TRTCACHE_REMOTE with ?mode=write, or volumes and volumeMounts"
        raise SettingsError("--emit k8s", why)
    return [*({"name": name, "value": text} for name, text in sorted(found.items())), *own.values()]


def job(
    command: Sequence[str],
    image: str,
    cells: Sequence[Cell],
    env: Sequence[Mapping[str, Any]],
    given: Mapping[str, Any],
    most: int | None,
) -> dict[str, Any]:
    """Return the Job of an image. Its name is a digest of it: other cells are another Job, which kubectl can apply."""
    container = {"name": "warm", "image": image, "command": list(command), "env": list(env)}
    container |= {name: given[name] for name in _CONTAINER if name in given and name != "env"}
    pod = {name: given[name] for name in _POD if name in given}
    spec = {
        "completions": len(cells),
        "parallelism": min(given.get("parallelism", most or 8), len(cells)),
        "completionMode": "Indexed",
        # A cell that fails does not end the others. That needs pods that are not restarted.
        "backoffLimitPerIndex": _ATTEMPTS,
        "template": {"spec": {"restartPolicy": "Never", **pod, "containers": [container]}},
    }
    content = json.dumps([spec, [cell.arguments for cell in cells]], sort_keys=True).encode()
    name = f"trtcache-warm-{Digest.of(content).hex[:12]}"
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
