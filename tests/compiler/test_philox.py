"""The routine `philox` returns the same words as NumPy's Philox."""

from __future__ import annotations

import numpy as np
import pytest

from weft_compiler.interpreter import interpret
from weft_compiler.ir.parser import parse
from weft_compiler.ir.program import Program
from weft_compiler.ir.verifier import verify
from weft_compiler.native.program import load
from weft_tensor import errors


def words(dtype: str, count: int, blocks: int, states: int = 6) -> Program:
    return parse(f"""
program words(state: uint64[2, {states}]) -> (words: {dtype}[{count}]):
  call philox(words[0], state[1, 0], blocks={blocks})
""")


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
@pytest.mark.parametrize("blocks", [1, 5, 1000])
def test_words_are_those_of_numpy(dtype: str, blocks: int) -> None:
    program = words(dtype, 32 * blocks // np.dtype(dtype).itemsize, blocks)
    verify(program)
    assert str(parse(str(program))) == str(program)
    state = np.random.default_rng(blocks).integers(0, 2**64, (2, 6), np.uint64)
    state[1, 0] = 2**40
    bits = np.random.Philox(key=state[1, 4:], counter=state[1, :4])
    want = bits.random_raw(4 * blocks).view(dtype)

    np.testing.assert_array_equal(interpret(program, state)[0], want)
    np.testing.assert_array_equal(load(program)(state)[0], want)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (words("uint32", 8, 2), "words needs 16 elements"),
        (words("uint64", 4, 0), "at least 1 block"),
        (words("uint64", 4, 1, states=5), "at least 1 block and 6 numbers"),
        (words("int64", 4, 1), "uint32 or uint64"),
    ],
)
def test_wrong_calls_are_refused(program: Program, said: str) -> None:
    with pytest.raises(errors.InternalError, match=said):
        verify(program)
