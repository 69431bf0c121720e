"""Terms of symbolic sizes: whether their text has all that a program computes."""

from __future__ import annotations

from typing import Any

import sympy

from trtcache.frontends.direct.errors import NotComparableError

_ONE_ROUNDING = frozenset({"IntTrueDiv", "ToFloat"})  # functions of torch.utils._sympy.functions


def require_exact(term: Any) -> None:
    """Check that a term is a symbol, computed with integers, or rounded once at the end.

    SymPy folds constants and orders operands, which changes no integer. With floats it can be another number: the text
    of ``n * 0.1 * 0.3`` is that of ``n * (0.1 * 0.3)``, and has 15 digits of each constant.

    Raises:
        NotComparableError: it is not.
    """
    if getattr(term, "is_Symbol", False):
        return
    parts = term.args if getattr(term, "func", type(term)).__name__ in _ONE_ROUNDING else (term,)
    for part in parts:
        for one in sympy.preorder_traversal(sympy.sympify(part)):
            if isinstance(one, sympy.Expr) and not one.is_integer:
                raise NotComparableError(f"forward computes with floats from symbolic sizes ({term})")
