"""Text form of programs, errors of the verifier, and results of the interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weft import errors
from weft_compiler.interpreter import interpret
from weft_compiler.ir.parser import parse
from weft_compiler.ir.verifier import verify
from weft_compiler.native.program import load

SOFTMAX = """\
program softmax(x: float32[4, 10]) -> (y: float32[4, 10]):
  parallel i in 4:
    var m = -inf
    for j in 10:
      m maximum= x[i, j]
    var s = 0.0
    vector j in 10:
      s add= exp(x[i, j] - m)
    vector j in 10:
      y[i, j] = exp(x[i, j] - m) / s
"""
EVERYTHING = """\
program all(x: float32[4, 10], k: int32[], p: bfloat16[3]) -> (y: float32[4, 10], n: int64[]):
  let i = cast(k[], int64)
  check bit_and(i >= 0, i < 4), "a \\"row\\" \\\\ was required"
  alloc t: float32[10]
  for j in 10:
    t[j] = (1.0 - (2.0 - 3.5e-07)) * (x[i, j] / (2.0 / x[i, j]))
    if (j < 3) == true:
      t[j] mul= cast(p[minimum(j, 2)], float32)
    else:
      t[j] = where(t[j] != nan, -inf, neg(t[j]))
  for r in 4:
    call matmul(x[r, 0], t[0], y[r, 0], m=1, n=10, k=1, a_row=1, a_column=1, b_row=10, \
b_column=1, c_row=10, accumulate=0)
  var c = 0
  while c < 10:
    c = c - -3
    n[] = c
"""


@pytest.mark.parametrize("text", [SOFTMAX, EVERYTHING])
def test_programs_read_as_they_are_written(text: str) -> None:
    program = parse(text)
    assert str(program) == text
    verify(program)


def test_softmax_is_interpreted_in_any_order() -> None:
    x = np.random.default_rng(1).normal(size=(4, 10)).astype(np.float32)
    e = np.exp(x - x.max(1, keepdims=True))
    for turns in (range, lambda count: range(count - 1, -1, -1)):
        (y,) = interpret(parse(SOFTMAX), x, iteration_order=turns)
        np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-6)


def test_all_statements_are_interpreted() -> None:
    x = np.arange(40, dtype=np.float32).reshape(4, 10)
    p = np.array([1, 2, 3], parse(EVERYTHING).inputs[2].dtype.numpy)
    y, n = interpret(parse(EVERYTHING), x, np.int32(2), p)
    t = np.array([-200.0 * 1, -220.5 * 2, -242 * 3]) * 1  # (1 - 2) * x * x / 2, by p
    np.testing.assert_allclose(y[1, :3], t * x[1, 0], rtol=1e-6)
    assert (y[1, 3:] == -np.inf).all() and n == 12
    with pytest.raises(errors.InvalidArgumentError, match=r'a "row" \\ was required'):
        interpret(parse(EVERYTHING), x, np.int32(4), p)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("y[i] = x[i + 1]", "can be from 1 to 4"),
        ("y[i] = x[i, 0]", "has 1 dimensions, not 2"),
        ("x[i] = 1.0", "must be an output"),
        ("y[0] = x[i]", "may store to the same element of 'y'"),
        ("y[floor_div(i, 2)] = x[i]", "may store to the same element of 'y'"),
        ("y[i] = y[3 - i]", "another iteration"),
        ("y[i] = cast(x[i], float64)", "float32, not float64"),
        ("y[i] bit_and= x[i]", "not an associative"),
        ("a = x[i]", "must not assign to 'a'"),
        ("let a = 2", "is already declared"),
        ("for i in 3:", "is already declared"),
        ("y[cast(k[], int64)] = 0.0", "dimension has 4"),
    ],
)
def test_wrong_programs_are_refused(line: str, said: str) -> None:
    program = parse(f"""
program wrong(x: float32[4], k: int32[]) -> (y: float32[4]):
  var a = 0.0
  parallel i in 4:
    {line}
""")
    with pytest.raises(errors.InternalError, match=said):
        verify(program)


def test_what_a_check_says_is_known_afterwards() -> None:
    text = """
program gather(x: float32[4], k: int32[]) -> (y: float32[]):
  let i = cast(k[], int64)
  {}
  y[] = x[i]
"""
    verify(parse(text.format('check bit_and(0 <= i, 3 >= i), "a row"')))
    verify(parse(text.replace("[i]", "[clamp(i, 0, 3)]").format("")))
    for wrong in ("", 'check i < 4, "a row"', 'check bit_and(0 <= i, i <= 4), "a row"'):
        with pytest.raises(errors.InternalError, match="dimension has 4"):
            verify(parse(text.format(wrong)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("program p() -> ():\n   let a = 1", "indentation of 2"),
        ("program p() -> ():\n  let a = §", "not valid in a program"),
        ("program p() -> ():\n  let a = b", "there is no variable or buffer named 'b'"),
        ("program p() -> ():\n  let a = f(1)", "no primitive 'f'"),
        ("program p() -> ():\n  let a = 1 2", "end of the line"),
        ("program p() -> (y: int8[4]):\n  call pack_bytes(y[0], n=1)", "requires pack_bytes\\(b, "),
        ("program p(", "a name was required, got 'the end'"),
        ("\n", "line 1: expected program, got no text"),
    ],
)
def test_what_is_no_program_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=said):
        parse(text)


UPDATE = """\
program step(g: float32[3]) -> (y: float32[3], update v: float32[3]):
  vector i in 3:
    y[i] = v[i] * 2.0
    v[i] = v[i] - g[i]
"""


def test_updated_outputs_have_values_before() -> None:
    program = parse(UPDATE)
    verify(program)
    assert program.updated == {"v"} and str(program) == UPDATE
    one, v = np.ones(3, np.float32), np.arange(3, dtype=np.float32)
    y, new = interpret(program, one, v)
    assert y.tolist() == [0, 2, 4] and new.tolist() == [-1, 0, 1] and v.tolist() == [0, 1, 2]
    out = [np.empty(3, np.float32), v]
    load(program)(one, out=out)
    assert out[0].tolist() == [0, 2, 4] and v.tolist() == [-1, 0, 1]
    with pytest.raises(errors.InvalidArgumentError, match=r"updates \['v'\]: pass arrays"):
        load(program)(one)
    with pytest.raises(errors.InternalError, match=r"\['w'\] are updated but are not outputs"):
        verify(replace(program, updated=frozenset({"w"})))
    named = parse(UPDATE.replace("update v:", "update:").replace("v[", "update["))
    assert not named.updated and parse(str(named)).outputs[1].name == "update"
