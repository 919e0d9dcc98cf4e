"""What a compilation makes: every stage's value, and machine code on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

from polyc.config import Options
from polyc.diagnostics import ArgumentError, Diagnostic, Remark, suggest_name
from polyc.driver.loading import load_kernel
from polyc.driver.lock import compiling
from polyc.ir.expr import Expr, reads
from polyc.ir.loops import LoopNest
from polyc.ir.loops_text import format_loops
from polyc.ir.program import Program
from polyc.ir.signature import Signature
from polyc.ir.text import format_program
from polyc.machine import Machine
from polyc.passes import Session

STAGES = ("program", "scop", "sched", "loops", "ll", "s")
"""Names of the stages, which are also file extensions."""


@dataclass(eq=False, repr=False)
class Lowered:
    """All stages of one specialisation.  `program` is as written, `scop.program` what was scheduled."""

    program: Program
    signature: Signature
    options: Options
    target: Machine
    ranges: Any
    scop: Any
    schedule: Any
    storage: dict[str, Any]
    nest: LoopNest
    remarks: tuple[Remark, ...]
    rows: Any = None
    plan: Any = None
    alias_is_safe: Callable[[str, str], bool] = field(default=lambda out, source: False)
    fixed_sizes: Mapping[str, int] = field(default_factory=dict)
    preparations: tuple[Program, ...] = ()
    """Programs that compute, each from bound inputs and the results of those before, the constants of the signature."""
    prepared: tuple[Any, ...] = ()
    """Statements that left the refined rows, and are in the last of `preparations`."""
    panels: Mapping[str, Any] = field(default_factory=dict)
    """By constant, the `Panel` of its layout where it has one."""
    choices: Mapping[str, Any] = field(default_factory=dict)
    """By statement of the scop, the `Choice` of how its contraction is computed."""
    is_reproducible: bool = True
    """False where a rung of the ladder failed for a reason that may be gone tomorrow."""
    session: Session = field(default_factory=Session)
    """What the passes that made it shared."""
    size_classes: Any = None
    """Where several versions are worth it, the `SizeClasses` of this one."""
    others: tuple[Lowered, ...] = ()
    """Versions for sizes of other magnitudes."""
    costs: tuple[Expr, ...] = ()
    """What this version and each of `others` costs at the sizes of a call, which takes the cheapest."""

    def __repr__(self) -> str:
        sizes = "".join(f" {n}={v}" for n, v in self.fixed_sizes.items())
        return f"<polyc stages of {self.program.name}{sizes}: {', '.join(STAGES)}>"

    def __reduce__(self) -> NoReturn:
        """Sets and schedules belong to a process."""
        help = "pickle the operator, or the text of a stage: op.lower(...).as_text('loops')"
        message = f"the stages of {self.program.name} cannot be pickled or copied"
        raise ArgumentError(Diagnostic("argument-pickle", message, None, help))

    @cached_property
    def llvm_ir(self) -> str:
        from polyc.codegen.emission.llvm import emit_llvm

        return emit_llvm(self.nest, self.target, [version.nest for version in self.others], self.costs)

    @cached_property
    def _object(self) -> bytes:
        from polyc.codegen.objects.jit import compile_object

        return compile_object(self.llvm_ir, self.target)

    def as_text(self, stage: str) -> str:
        """The text of one of `STAGES`."""
        from polyc import explain

        match stage:
            case "program":
                return format_program(self.program)
            case "scop":
                return explain.format_scop(self.scop)
            case "sched":
                return explain.format_schedule(self.schedule)
            case "loops":
                return format_loops(self.nest)
            case "ll":
                return self.llvm_ir
            case "s":
                from polyc.codegen.objects.jit import assembly

                return assembly(self.llvm_ir, self.target)
        help = suggest_name(stage, STAGES) or f"stages are: {', '.join(STAGES)}"
        raise ArgumentError(Diagnostic("argument-stage", f"there is no stage {stage!r}", None, help))

    @property
    def unread(self) -> tuple[str, ...]:
        """Inputs that the code never looks at: what it needs of them are constants."""
        read = {a.tensor for s in self.scop.statements for a in (*s.accesses, *s.init_accesses)}
        read |= {r.tensor for c in self.ranges.data_checks for r in reads(c.violated)}
        return tuple(a.name for a in self.signature.arrays if a.role == "input" and a.name not in read)

    def explain(self) -> str:
        """Domains, dependences, schedule and tiles with reasons, pseudo-C."""
        from polyc import explain

        with compiling():
            return explain.explain(self)

    def summary(self) -> str:
        """What the scheduler did, in one line."""
        from polyc import explain

        return explain.summarize(self)

    def object_code(self) -> bytes:
        """Object code for the target, with the C entry point of `ir.signature`."""
        with compiling():
            return self._object

    def c_header(self) -> str:
        """The C header that documents the entry point of `object_code`."""
        from polyc.codegen.objects.aot import c_header

        return c_header(self.signature, self.nest.parameters)

    def compile(self, constants: Sequence[Any] = (), bound: Mapping[str, Any] | None = None) -> Any:
        """A loaded `Kernel`; `constants` are the arrays for the signature's constants, in order, `bound` inputs by name."""
        return load_kernel(self, constants, bound)
