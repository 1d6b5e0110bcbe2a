"""Parser of programs in the format of `weft_compiler.ir.printer`.

program := "program" NAME "(" buffers ")" "->" "(" outputs ")" ":" body
outputs := buffers, each of which may begin with "update"
body := statements, each on a line, two spaces deeper than the line above them
statement := ("for" | "parallel" | "vector") NAME "in" expression ":" body
  | "while" expression ":" body | "if" expression ":" body ["else" ":" body]
  | ("let" | "var") NAME "=" expression | "alloc" buffer | "check" expression "," STRING
  | "call" NAME "(" views ["," NAME "=" INTEGER]* ["," "at" expression]* ")"
  | NAME ["[" indices "]"] [PRIMITIVE] "=" expression

Lines that begin with "#" are comments.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

from weft_compiler.ir.expressions import (
    INDEX,
    INFIX,
    Constant,
    Expr,
    Load,
    Variable,
    apply,
    number,
)
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Buffer,
    Call,
    Check,
    For,
    If,
    Let,
    Order,
    Program,
    Statement,
    Store,
    Var,
    While,
)
from weft_compiler.ir.registry import routine
from weft_graph.ir.scalar import PRIMITIVES
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

T = TypeVar("T")

_TOKEN: Final = re.compile(
    r"""(?P<space>\ +)
    |(?P<number>-?(?:inf|nan|\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w.]))
    |(?P<name>[A-Za-z_]\w*)
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<sign>->|<=|>=|==|!=|[-+*/<>=()\[\],:])""",
    re.VERBOSE,
)
_SIGNS: Final = {sign: (primitive, binding) for primitive, (sign, binding) in INFIX.items()}
_LOOPS: Final = {order.value: order for order in Order}


def parse(text: str) -> Program:
    """Parse the text of a program.

    Raises: InvalidArgumentError: the text is invalid; the message names the line.
    """
    return _Reader(text).program()


class _Reader:
    def __init__(self, text: str) -> None:
        self._lines = [
            (number, line)
            for number, line in enumerate(text.splitlines(), 1)
            if line.strip() and not line.startswith("#")
        ]
        self._next = 0
        self._tokens: list[tuple[str, str]] = []
        self._names: dict[str, DType] = {}
        self._buffers: dict[str, Buffer] = {}

    def program(self) -> Program:
        if not self._lines:
            raise errors.InvalidArgumentError("line 1: expected program, got no text")
        if self._begin() != 0:
            raise self._error("the first line must not be indented")
        self._expect("program")
        name = self._name()
        inputs = self._parse_bracketed(self._declaration)
        self._expect("->")
        outputs = self._parse_bracketed(self._output)
        updated = frozenset(buffer.name for buffer, is_updated in outputs if is_updated)
        self._expect(":")
        self._end()
        body = self._body(2)
        if self._next < len(self._lines):
            self._begin()
            raise self._error("the indentation matches no line above")
        buffers = tuple([buffer for buffer, _ in outputs])
        return Program(name, tuple(inputs), buffers, body, updated=updated)

    # ---------------------------------------------------------------------------- lines

    def _begin(self) -> int:
        """Move to the next line and return its indentation."""
        line = self._lines[self._next][1]
        self._next += 1
        self._tokens = []
        position, stripped = 0, line.strip()
        while position < len(stripped):
            match = _TOKEN.match(stripped, position)
            if match is None:
                raise self._error(f"{stripped[position:]!r} is not valid in a program")
            # "a -1" is a difference: a sign belongs to a number only where an operand is expected
            kind, word = str(match.lastgroup), match.group()
            if kind == "number" and word[0] == "-" and self._is_operand_end():
                kind, word = "sign", "-"
            position += len(word)
            if kind != "space":
                self._tokens.append((kind, word))
        self._tokens.reverse()  # words are popped from the end
        return len(line) - len(line.lstrip(" "))

    def _is_operand_end(self) -> bool:
        if not self._tokens:
            return False
        kind, word = self._tokens[-1]
        return kind in ("name", "number") or word in ")]"

    def _body(self, indent: int) -> Body:
        statements: list[Statement] = []
        while self._next < len(self._lines):
            line = self._lines[self._next][1]
            if len(line) - len(line.lstrip(" ")) < indent:
                break
            if self._begin() != indent:
                raise self._error(f"an indentation of {indent} was required")
            statements.append(self._statement(indent))
        return tuple(statements)

    def _inner(self, indent: int) -> Body:
        self._expect(":")
        self._end()
        return self._body(indent + 2)

    # ----------------------------------------------------------------------- statements

    def _statement(self, indent: int) -> Statement:
        word = self._name()
        match word:
            case "for" | "parallel" | "vector":
                variable = self._name()
                start = None
                if self._peek() == "from":
                    self._expect("from")
                    start = self._expression()
                self._expect("in" if start is None else "to")
                extent = self._expression()
                self._names[variable] = INDEX
                return For(variable, extent, self._inner(indent), _LOOPS[word], start)
            case "while":
                return While(self._expression(), self._inner(indent))
            case "if":
                return self._if(indent)
        return self._parse_end(self._simple(word))

    def _if(self, indent: int) -> If:
        condition = self._expression()
        then = self._inner(indent)
        if self._next < len(self._lines) and self._lines[self._next][1] == " " * indent + "else:":
            self._begin()
            self._expect("else")
            return If(condition, then, self._inner(indent))
        return If(condition, then)

    def _simple(self, word: str) -> Statement:
        match word:
            case "let" | "var":
                name = self._name()
                self._expect("=")
                value = self._expression()
                self._names[name] = value.dtype
                return Let(name, value) if word == "let" else Var(name, value)
            case "alloc":
                return Allocate(self._declaration())
            case "check":
                condition = self._expression()
                self._expect(",")
                return Check(condition, self._string())
            case "call":
                return self._call()
        if word in self._buffers:
            indices = tuple(self._parse_bracketed(self._expression, "[]"))
            return Store(word, indices, combine=self._combine(), value=self._expression())
        if word not in self._names:
            raise self._error(
                f"{word!r} does not begin a statement, and is not the name of a variable or buffer"
            )
        return Assign(word, combine=self._combine(), value=self._expression())

    def _combine(self) -> str | None:
        combine = None if self._peek() == "=" else self._name()
        self._expect("=")
        return combine

    def _call(self) -> Call:
        name = self._name()
        views: list[Load] = []
        parameters: list[tuple[str, int]] = []
        numbers: list[Expr] = []
        sizes: list[tuple[str, Expr]] = []

        def operand() -> None:
            word = self._name()
            if word == "at" and self._peek() not in ("=", "["):
                numbers.append(self._expression())
            elif self._peek() == "=":
                self._expect("=")
                parameters.append((word, int(self._take("number"))))
                if self._peek() == ":":
                    self._expect(":")
                    sizes.append((word, self._expression()))
            else:
                views.append(self._load(word))

        self._parse_bracketed(operand)
        called = routine(name)
        try:
            return called.bind(views, parameters, numbers, tuple(sizes))
        except errors.InvalidArgumentError as wrong:
            raise self._error(wrong.message) from wrong

    def _output(self) -> tuple[Buffer, bool]:
        """Parse an output; return the buffer, and True if it is updated."""
        word = self._name()
        updated = word == "update" and self._peek() != ":"
        return self._declaration(self._name() if updated else word), updated

    def _declaration(self, known_name: str = "") -> Buffer:
        name = known_name or self._name()
        self._expect(":")
        dtype = self._dtype()
        shape = tuple(
            [int(size) for size in self._parse_bracketed(lambda: self._take("number"), "[]")]
        )
        self._buffers[name] = Buffer(name, dtype, shape)
        return self._buffers[name]

    # ---------------------------------------------------------------------- expressions

    def _expression(self, binding: int = 0) -> Expr:
        left_operand = self._operand()
        while (result := _SIGNS.get(self._peek())) and result[1] > binding:
            primitive, own_precedence = result
            self._tokens.pop()
            left_operand = apply(primitive, left_operand, self._expression(own_precedence))
        return left_operand

    def _operand(self) -> Expr:
        if self._peek() == "(":
            self._tokens.pop()
            inner = self._expression()
            self._expect(")")
            return inner
        if self._tokens and self._tokens[-1][0] == "number":
            return self._number()
        name = self._name()
        if name in ("true", "false"):
            return Constant(dtypes.bool_, name == "true")
        if name in self._buffers:
            return self._load(name)
        if name == "cast":
            self._expect("(")
            x = self._expression()
            self._expect(",")
            dtype = self._dtype()
            self._expect(")")
            return apply("cast", x, dtype=dtype)
        if self._peek() == "(":
            if name not in PRIMITIVES:
                raise self._error(f"there is no primitive {name!r}")
            return apply(name, *self._parse_bracketed(self._expression))
        if name not in self._names:
            raise self._error(f"there is no variable or buffer named {name!r}")
        return Variable(self._names[name], name)

    def _load(self, name: str) -> Load:
        if name not in self._buffers:
            raise self._error(f"there is no buffer named {name!r}")
        indices = self._parse_bracketed(self._expression, "[]")
        return Load(self._buffers[name].dtype, name, tuple(indices))

    def _number(self) -> Constant:
        text = self._take("number")
        if self._peek() == ":" and self._tokens[-2:-1] and self._tokens[-2][0] == "name":
            self._tokens.pop()
            dtype = self._dtype()
        else:
            dtype = INDEX if re.fullmatch(r"-?\d+", text) else dtypes.float32
        return number(float(text) if dtype.is_floating else int(text), dtype)

    # ---------------------------------------------------------------------------- words

    def _peek(self) -> str:
        return self._tokens[-1][1] if self._tokens else ""

    def _take(self, kind: str) -> str:
        if not self._tokens or self._tokens[-1][0] != kind:
            raise self._error(f"a {kind} was required, got {self._peek() or 'the end'!r}")
        return self._tokens.pop()[1]

    def _name(self) -> str:
        return self._take("name")

    def _string(self) -> str:
        text = self._take("string")[1:-1]
        return re.sub(r"\\(.)", lambda result: "\n" if result[1] == "n" else result[1], text)

    def _dtype(self) -> DType:
        return dtypes.as_dtype(self._name())

    def _expect(self, word: str) -> None:
        if self._peek() != word:
            raise self._error(f"{word!r} was required, got {self._peek() or 'the end'!r}")
        self._tokens.pop()

    def _end(self) -> None:
        if self._tokens:
            raise self._error(f"the end of the line was required, got {self._peek()!r}")

    def _parse_end(self, statement: Statement) -> Statement:
        self._end()
        return statement

    def _parse_bracketed(self, item: Callable[[], T], brackets: str = "()") -> list[T]:
        closing = brackets[1]
        self._expect(brackets[0])
        items: list[T] = []
        while self._peek() != closing:
            if items:
                self._expect(",")
            items.append(item())
        self._expect(closing)
        return items

    def _error(self, label: str) -> errors.InvalidArgumentError:
        index, line = self._lines[self._next - 1]
        return errors.InvalidArgumentError(
            f"line {index} of the program, {line.strip()!r}: {label}"
        )
