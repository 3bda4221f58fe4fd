"""The program without the second that Python needs to import it: a process forked from this one, which has imported
it before. It has its own streams, environment, signals and exit code. Only its command line and its environment in
/proc are those of the tests: what looks at these executes the program."""

from __future__ import annotations

import functools
import gc
import importlib
import os
import pkgutil
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # as the program's entry point has it, before numpy is imported

import tippingpoint
from tippingpoint.__main__ import main


@functools.cache
def import_program() -> None:
    """Import all that a process which is forked from this one may need."""
    for module in pkgutil.walk_packages(tippingpoint.__path__, "tippingpoint."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)


class Forked(subprocess.Popen[str]):
    """`tippingpoint ARGUMENT...` with pipes for its output, or what else is named for it."""

    started: ClassVar[list[Forked]] = []
    """All of them."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str] = os.environ,
        output: int = subprocess.PIPE,
    ) -> None:
        super().__init__(
            ["tippingpoint", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            text=True,
            env=environment,
        )
        self.started.append(self)

    def _execute_child(self, args: list[str], *rest: Any) -> None:
        """Fork where Popen would have a program executed. Its arguments are those of subprocess.Popen."""
        env: Mapping[str, str] = rest[5]
        pipes: tuple[int, ...] = rest[9:15]
        stdin, _, _, stdout, _, stderr = pipes
        import_program()
        self.pid = os.fork()
        if self.pid == 0:
            _live(lambda: _be(args, env, (stdin, stdout, stderr)))
        self._child_created = True
        self._close_pipe_fds(*pipes)


def _be(args: list[str], env: Mapping[str, str], streams: tuple[int, int, int]) -> None:
    """Become the program: nothing of the tests' process is used, or collected, from here on."""
    gc.freeze()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    for name in (signal.SIGALRM, signal.SIGCHLD, signal.SIGTERM):
        signal.signal(name, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(env)
    sys.excepthook, sys.unraisablehook = sys.__excepthook__, sys.__unraisablehook__
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    sys.argv = args
    warnings.resetwarnings()
    warnings.simplefilter("ignore")
    main()


def _live(life: Callable[[], None]) -> NoReturn:
    """End this process as Python ends one."""
    code = 0
    try:
        life()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
