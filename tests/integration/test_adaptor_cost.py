"""What the hooks for Python and PyTorch add in the program, in instructions: guards that do not depend on how busy the machine is.

Method: as test_instructions.py: N and 3 N times under cachegrind, so that start-up and end fall out of the difference. A Python stack is what a malloc in a C
function costs more with --python=auto than with --python=off, called from DEPTH Python functions that stand still. An operator is what it costs more
than with --torch=off, without what PyTorch itself does for it. tests/bench/torch_bench.py shows both in nanoseconds. ctypes lets go of the GIL for the
call, so that this is the dear way, where the interpreter is asked; interpreters differ: 321 instructions on 3.11.
"""
import os
import sys

from tidemark_test import counted, instructions_of, main, settled, test

TIMES = 20000
DEPTH = 10
STACK, OPERATOR = 330, 240

SCRIPT = """
import ctypes, sys
pairs = ctypes.CDLL(sys.argv[1]).pairs
pairs.restype, pairs.argtypes = ctypes.c_uint64, [ctypes.c_uint64]
def down(n):
    return down(n - 1) if n else pairs(int(sys.argv[2]))
down(%d)
""" % (DEPTH - 2)


def instructions(t, command, *options, **how):
    done = t.record(counted(*command), "--force", "--names=none", *options, output=t.path("cost.tmk"), **how)
    t.check("lost         nothing" in done.errors, f"the recording lost something:\n{done.errors}")
    return instructions_of(done)


def at_most(t, what, limit, measure, least):
    cost = settled(measure, lambda figure: least < figure <= limit)
    print(f"{cost:.1f} instructions for {what}, at most {limit}")
    t.check(least < cost <= limit, f"{what} costs {cost:.1f} instructions; at most {limit} are allowed, and fewer than {least} are none")


def ready(t):
    t.need("valgrind")
    if t.sanitized:
        t.skip("this build has checks compiled in")


@test
def python_stack(t):
    ready(t)
    library = t.program("malloc_loop.c", "-O2", "-shared", "-fPIC", name="malloc_loop.so")
    with open(t.path("deep.py"), "w", encoding="utf-8") as file:
        file.write(SCRIPT)

    def a_pair(option):
        few, many = (instructions(t, [sys.executable, "-I", "-S", t.path("deep.py"), library, str(n)], option) for n in (TIMES, 3 * TIMES))
        return (many - few) / (2 * TIMES)

    at_most(t, f"a Python stack of depth {DEPTH}", STACK, lambda: a_pair("--python=auto") - a_pair("--python=off"), 50)


@test
def operator_scope(t):
    ready(t)
    library, host = t.program("torch_operators.c", "-O2", "-shared", "-fPIC", name="torch_operators.so"), t.program("torch_host.c")

    def an_operator(option):
        few, many = (instructions(t, [host, library], option, env=dict(os.environ, COUNT=str(n))) for n in (TIMES, 3 * TIMES))
        return (many - few) / (2 * TIMES)

    at_most(t, "an operator's scope", OPERATOR, lambda: an_operator("--torch=auto") - an_operator("--torch=off"), 50)


main()
