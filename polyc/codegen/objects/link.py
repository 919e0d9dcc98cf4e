"""Object files to one shared library or one object, by the system's C compiler."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from polyc.codegen.objects.aot import write_object
from polyc.diagnostics import Diagnostic, UnsupportedError

_COMPILERS = ("cc", "gcc", "clang")


def find_compiler() -> list[str]:
    """The command in ``CC``, else the first compiler that is installed; UnsupportedError where there is none."""
    given = shlex.split(os.environ.get("CC", ""))
    if given and shutil.which(given[0]):
        return given
    for name in _COMPILERS:
        if shutil.which(name):
            return [name]
    message = "a library is linked by the system's C compiler, and none was found"
    help = "install gcc or clang, or name one in the environment variable CC"
    raise UnsupportedError(Diagnostic("unsupported-linker", message, None, help))


def link_objects(objects: Sequence[bytes], path: Path) -> None:
    """Write a shared library, or for a name ``*.o`` one object, that holds `objects`; nothing is written where that fails.

    Raises UnsupportedError (``unsupported-linker``), OSError."""
    compiler = find_compiler()
    uses_openmp = any(b"GOMP_parallel" in o for o in objects)
    with tempfile.TemporaryDirectory(prefix="polyc-link-") as folder:
        files = []
        for k, content in enumerate(objects):
            files.append(Path(folder, f"{k}.o"))
            files[-1].write_bytes(content)
        made = Path(folder, "made")
        listed = Path(folder, "files")
        listed.write_text("\n".join(map(str, files)))
        if path.suffix == ".o":
            attempts = [["-r", "-nostdlib", f"@{listed}"]]
        else:
            shared = ["-shared", "-Wl,-z,noexecstack", f"@{listed}", "-lm"]
            libraries = (["-lgomp"], ["-l:libgomp.so.1"], ["-lomp"]) if uses_openmp else ([],)
            attempts = [[*shared, *found] for found in libraries]
        problem = ""
        for arguments in attempts:
            done = subprocess.run([*compiler, *arguments, "-o", str(made)], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                write_object(made.read_bytes(), path)
                if path.suffix != ".o":
                    path.chmod(path.stat().st_mode | 0o111 & ~_umask())
                return
            problem = problem or done.stderr.strip()
    last = problem.splitlines()[-1] if problem else "it gave no reason"
    help = "check the compiler that CC names, and that libgomp is installed"
    raise UnsupportedError(Diagnostic("unsupported-linker", f"{compiler[0]} cannot link the kernels: {last}", None, help))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
