"""Makes a manifest of an export that was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils import _pytree as pytree

from trtcache.direct.attributes import UnstableError
from trtcache.direct.differences import in_words
from trtcache.direct.files import file_of
from trtcache.direct.following import Following
from trtcache.direct.manifest import Manifest
from trtcache.keys.program_digest import devices, exported_digest

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from trtcache.compiler.request import Exported
    from trtcache.direct.before import Before
    from trtcache.direct.recording import Recording
    from trtcache.direct.tree import Tree

_PLAIN_REGIONS = frozenset({"wrap_with_set_grad_enabled", "wrap_with_autocast"})


class Writing:
    """Makes the manifest of one export."""

    def __init__(self, tree: Tree, seen: Recording, before: Before) -> None:
        """Keep what was known before and what was seen."""
        self._tree, self._seen, self._before = tree, seen, before

    def manifest(self, exported: Exported, why: str) -> Manifest:
        """Return the manifest; ``why`` is why there was none before.

        Raises:
            UnstableError: something that the export depends on has no stable value, or cannot be found again.
            ValueError: there can be none; the message says why.
        """
        if self._seen.why_not:
            raise ValueError(self._seen.why_not)
        program = exported.program
        refuse_regions(program)
        self._check_weights(program)
        followed = Following(self._seen, self._tree, self._before).followed()
        on = devices(program)
        if len(on) > 1 or (on and on != {self._tree.device}):
            raise ValueError("it runs on other devices than its weights are on")
        return Manifest(
            program=exported_digest(program),
            device=str(self._tree.device),
            in_spec=_written(program.call_spec.in_spec),
            out_spec=_written(program.call_spec.out_spec),
            files={name: file_of(name) for name in sorted(followed.files)},
            classes=followed.classes,
            modules=followed.modules,
            environment=dict(sorted(self._seen.asked.items())),
            imports=tuple(self._seen.imported),
            took_s=exported.export_s,
            why=why,
            details=followed.details,
        )

    def _check_weights(self, program: ExportedProgram) -> None:
        """Make sure that the program's weights are the model's, under their own names, and that none was exchanged.

        Raises:
            UnstableError: they are not.
        """
        state = self._tree.state
        for name, tensor in program.state_dict.items():
            if state.get(name) is not tensor:
                raise UnstableError("the program has another tensor for it").below(name)
        now = self._tree.another()
        if (changed := self._tree.changed(now)) is not None:
            words = in_words({"model": self._tree.parts["model"]}, {"model": changed})
            raise UnstableError(f"the export changes its attributes: {words}").below("the model")


def refuse_regions(program: ExportedProgram) -> None:
    """Refuse operators that take functions: code of theirs need not have run where it is seen.

    Raises:
        ValueError: the program has one.
    """
    for module in program.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            if isinstance(node.target, torch._ops.HigherOrderOperator) and node.target._name not in _PLAIN_REGIONS:
                raise ValueError(f"it has the operator {node.target._name}, which takes functions")


def _written(spec: pytree.TreeSpec) -> str:
    try:
        return str(pytree.treespec_dumps(spec))
    except (TypeError, NotImplementedError, ValueError) as error:
        raise ValueError(f"a type among arguments or results has no name for torch: {error}") from error
