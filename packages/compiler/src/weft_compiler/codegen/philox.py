"""The routine `philox`: random words of Philox4x64-10, equal to those of `numpy.random.Philox`."""

from __future__ import annotations

from typing import Final

from weft_compiler.codegen.writer import Writer

NAME: Final = "weft.philox"
_ROUNDS: Final = 10
_FACTORS: Final = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_STEPS: Final = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)


def text() -> str:
    """Return the function that computes blocks in [low, high).

    Each module that calls it defines it.
    """
    w = Writer()
    state = [_load(w, index) for index in range(6)]
    w.go("blocks")
    w.begin("blocks")
    w.do("%block = phi i64 [ %low, %entry ], [ %next, %blocks ]")
    w.do("%next = add i64 %block, 1")
    words = [w.put(f"add i64 {state[0]}, %next"), *state[1:4]]
    keys = state[4:]
    for turn in range(_ROUNDS):
        if turn:
            keys = [w.put(f"add i64 {key}, {step}") for key, step in zip(keys, _STEPS, strict=True)]
        (high, low), (other_high, other_low) = _product(w, words[0], 0), _product(w, words[2], 1)
        words = [
            _select(w, other_high, words[1], keys[0]),
            other_low,
            _select(w, high, words[3], keys[1]),
            low,
        ]
    first = w.put("shl i64 %block, 2")
    for index, word in enumerate(words):
        address = w.put(f"add i64 {first}, {index}")
        pointer = w.put(f"getelementptr i64, ptr %words, i64 {address}")
        w.do(f"store i64 {word}, ptr {pointer}, align 4")
    w.branch(w.put("icmp eq i64 %next, %high"), "done", "blocks")
    w.begin("done")
    w.do("ret void")
    head = (
        f"define internal void @{NAME}(ptr %words, ptr %state, i64 %low, i64 %high) #0 {{\nentry:\n"
    )
    return head + "\n".join([*w.lines, "}", ""])


def _load(w: Writer, index: int) -> str:
    pointer = w.put(f"getelementptr i64, ptr %state, i64 {index}")
    return w.put(f"load i64, ptr {pointer}, align 8")


def _product(w: Writer, word: str, kind: int) -> tuple[str, str]:
    """Return the upper and the lower half of a word times a factor."""
    wide = w.put(f"zext i64 {word} to i128")
    product = w.put(f"mul i128 {wide}, {_FACTORS[kind]}")
    high = w.put(f"lshr i128 {product}, 64")
    return w.put(f"trunc i128 {high} to i64"), w.put(f"trunc i128 {product} to i64")


def _select(w: Writer, *words: str) -> str:
    first = w.put(f"xor i64 {words[0]}, {words[1]}")
    return w.put(f"xor i64 {first}, {words[2]}")
