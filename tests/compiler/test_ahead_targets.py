"""Every target and CPU that docs/ahead.md names compiles every model, or is refused by name."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import product

import pytest
from weft_testing.ahead_models import MODELS
from weft_testing.workspace import ROOT

from weft_compiler.ahead.targets import machine_options
from weft_compiler.codegen.int8_kernels import DotMethod, dot_of
from weft_compiler.codegen.targets import Target, target_of
from weft_tensor import errors

PAGE = (ROOT / "docs" / "ahead.md").read_text("utf-8")
ROWS = re.findall(r"^\| `([a-z][\w-]*)` \|.*\| (.*) \|$", PAGE, re.MULTILINE)
MACHINES = [
    (target, cpu, "")
    for target, cpus in ROWS
    if target != "native"
    for cpu in ["", *re.findall(r"`([^`]+)`", cpus)]
] + [
    ("x86_64-linux", "x86-64-v4", "+avx512vnni"),
    ("x86_64-linux", "x86-64-v4", "-avx2"),
    ("aarch64-linux", "", "+dotprod"),
    ("arm-linux", "", "-neon"),
    ("riscv64-linux", "", "+v"),
    ("wasm32-wasi", "", "-simd128"),
    ("x86_64-none", "", ""),
    ("aarch64-android", "", ""),
    ("arm-android", "", ""),
]
REFUSED = dict.fromkeys(
    product(("many_ops", "roots"), ("cortex-m4", "cortex-m33")), "square roots of float64"
)


def compile_apart(combinations: list[tuple[str, tuple[str, str, str]]]) -> None:
    """Compile in another process, which LLVM may end."""
    words = ["/".join((model, *machine)) for model, machine in combinations]
    command = [sys.executable, "-m", "weft_testing.ahead_models", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT / "tests" / "support"
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    assert [word for word, _ in lines] == words
    for (model, (_, cpu, _)), (word, said) in zip(combinations, lines, strict=True):
        reason = REFUSED.get((model, cpu))
        assert reason in said if reason else said.isdigit(), (word, said)


def test_machines_without_vectors_compile_products_of_bytes() -> None:
    compile_apart(
        [
            ("product_of_bytes", ("arm-none", "cortex-m4", "")),
            ("roots", ("arm-none", "cortex-m4", "")),
            ("product_of_bytes", ("wasm32-wasi", "", "-simd128")),
            ("product_of_bytes", ("x86_64-linux", "x86-64-v4", "-avx2")),
        ]
    )


@pytest.mark.long
@pytest.mark.parametrize("machine", MACHINES, ids="/".join)
def test_every_machine_of_the_page_compiles_every_model(machine: tuple[str, str, str]) -> None:
    compile_apart(list(product(MODELS, [machine])))


@pytest.mark.parametrize(
    ("target", "cpu", "features", "dot"),
    [
        ("x86_64-linux", "sapphirerapids", "", DotMethod.UNSIGNED),
        ("x86_64-linux", "alderlake", "", DotMethod.UNSIGNED),
        ("x86_64-linux", "sapphirerapids", "-avx512f,-avxvnni", DotMethod.PAIRS),
        ("aarch64-linux", "cortex-a76", "", DotMethod.SIGNED),
        ("aarch64-linux", "cortex-a76", "-dotprod", DotMethod.LONG),
        ("arm-linux", "cortex-a53", "", DotMethod.LONG),
        ("arm-linux", "", "-neon", DotMethod.PLAIN),
        ("arm-none", "cortex-m55", "", DotMethod.PLAIN),
    ],
)
def test_products_of_bytes_use_what_the_cpu_has(
    target: str, cpu: str, features: str, dot: DotMethod
) -> None:
    assert dot_of(target_of(machine_options(target, cpu, features))) is dot


def test_cortex_m_has_thumb_instructions_and_float32_alone() -> None:
    options = machine_options("arm-none", "cortex-m4")
    assert options.triple == "thumbv7-unknown-none-eabi"
    assert not target_of(options).has("fma")
    assert target_of(machine_options("arm-none")).has("fma")
    assert machine_options("arm-none").triple == "armv7-unknown-none-eabi"


@pytest.mark.parametrize("triple", ["arm64-apple-darwin", "aarch64-unknown-linux-gnu"])
def test_apple_names_aarch64_otherwise(triple: str) -> None:
    assert dot_of(Target(triple, "apple-m1", "+neon,+dotprod")) is DotMethod.SIGNED


@pytest.mark.parametrize(
    ("target", "cpu", "features", "said"),
    [
        ("arm-none", "cortex-m0", "", "floating-point unit"),
        ("aarch64-linux", "", "-neon", "NEON"),
        ("x86_64-linux", "", "-sse2", "SSE2"),
        ("riscv64-linux", "", "-d", "extension D"),
        ("x86_64-linux", "cortex-m4", "", "no processor 'cortex-m4'"),
        ("x86_64-linux", "i686", "", "no processor 'i686'"),
        ("arm-none", "cortex-m4", '+neon" "x', "no processor|features"),
    ],
)
def test_cpus_without_the_minimum_are_refused(
    target: str, cpu: str, features: str, said: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=said):
        machine_options(target, cpu, features)
