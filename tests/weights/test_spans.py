"""Spans of memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trtcache.weights.arrays import Spans

SPANS = st.tuples(st.integers(0, 30), st.integers(0, 6)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(SPANS, max_size=8), SPANS.filter(lambda span: span[0] < span[1]))
def test_a_span_meets_those_with_which_it_has_an_address_in_common(
    spans: list[tuple[int, int]], other: tuple[int, int]
) -> None:
    """Spans may overlap, touch or be empty."""
    addresses = {address for span in spans for address in range(*span)}
    assert Spans(spans).meet(*other) is not addresses.isdisjoint(range(*other))
