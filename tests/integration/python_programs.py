"""Random Python programs that call through everything that makes a frame, and probe their own stack (fixtures/programs/probe.py) on the way."""
import random

HEAD = '''# -*- coding: utf-8 -*-
import asyncio, contextlib, ctypes, functools, sys, threading
from probe import probe

def decorated(f):
    @functools.wraps(f)
    def wrapper(*args, **kwargs):
        return f(*args, **kwargs)
    return wrapper

CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
'''

# Each kind makes a function f{i} that calls `{call}` in its own way.
KINDS = {
    "plain": "def f{i}():\n    x = 1\n    return {call}\n",
    "lines": "def f{i}():\n    return (1 +\n            2 *\n            {call} +\n            3)\n",
    "listcomp": "def f{i}():\n    return [\n        {call}\n        for _ in range(1)]\n",
    "dictcomp": "def f{i}():\n    return {{k: {call}\n        for k in range(1)}}\n",
    "lambda": "f{i} = lambda: (\n    {call})\n",
    "genexpr": "def f{i}():\n    return sum({call}\n        for _ in range(1))\n",
    "generator": "def g{i}():\n    yield 0\n    yield {call}\ndef f{i}():\n    it = g{i}()\n    next(it)\n    return next(it)\n",
    "yield_from": "def h{i}():\n    yield {call}\ndef g{i}():\n    yield from h{i}()\ndef f{i}():\n    for x in g{i}():\n        pass\n    return 1\n",
    "method": "class C{i}:\n    def go(self):\n        return {call}\n    @staticmethod\n    def s():\n        return C{i}().go()\n"
              "    @classmethod\n    def c(cls):\n        return cls.s()\n    @property\n    def p(self):\n        return self.c()\ndef f{i}():\n    return C{i}().p\n",
    "init": "class C{i}:\n    def __init__(self):\n        self.x = {call}\ndef f{i}():\n    C{i}()\n    return 1\n",
    "class_body": "def f{i}():\n    class Local:\n        x = {call}\n    return 1\n",
    "getattr": "class C{i}:\n    def __getattr__(self, name):\n        return {call}\ndef f{i}():\n    return C{i}().missing\n",
    "add": "class C{i}:\n    def __add__(self, other):\n        return {call}\ndef f{i}():\n    return C{i}() + 1\n",
    "decorator": "@decorated\ndef f{i}():\n    return {call}\n",
    "closure": "def f{i}():\n    y = 2\n    def inner():\n        def innermost():\n            return {call} + y\n        return innermost()\n    return inner()\n",
    "sorted": "def f{i}():\n    def key(x):\n        return {call}\n    sorted([1], key=key)\n    return 1\n",
    "map": "def f{i}():\n    return list(map(lambda _: {call}, [1]))[0]\n",
    "partial": "def f{i}():\n    return functools.reduce(lambda a, b: {call}, [1, 2])\n",
    "qsort": "def f{i}():\n    def compare(a, b):\n        if not done:\n            done.append({call})\n        return 0\n    done = []\n"
             "    values = (ctypes.c_int * 2)(1, 2)\n    ctypes.CDLL(None).qsort(values, 2, 4, CALLBACK(compare))\n    return 1\n",
    "with": "@contextlib.contextmanager\ndef m{i}():\n    try:\n        yield\n    finally:\n        {call}\ndef f{i}():\n    with m{i}():\n        pass\n    return 1\n",
    "except": "def f{i}():\n    try:\n        raise ValueError\n    except ValueError:\n        return {call}\n",
    "finally": "def f{i}():\n    for _ in range(1):\n        try:\n            continue\n        finally:\n            {call}\n    return 1\n",
    "exec": "def f{i}():\n    space = {{'f{j}': f{j}, 'probe': probe}}\n    exec(compile('\\n\\n{call}', '<odd \"{i}\" né\\u4e16.py>', 'exec'), space)\n    return 1\n",
    "eval": "def f{i}():\n    return eval('{call}')\n",
    "unicode": "def f\u00e9_\u4e16_{i}():\n    return {call}\nf{i} = f\u00e9_\u4e16_{i}\n",
    "recursion": "def r{i}(n):\n    if n:\n        return r{i}(n - 1)\n    return {call}\ndef f{i}():\n    return r{i}(7)\n",
    "thread": "def f{i}():\n    done = []\n    def run():\n        done.append({call})\n    thread = threading.Thread(target=run)\n    thread.start()\n"
              "    thread.join()\n    return 1\n",
    "coroutine": "async def k{i}():\n    return {call}\nasync def c{i}():\n    return await k{i}()\ndef f{i}():\n    try:\n        c{i}().send(None)\n"
                 "    except StopIteration:\n        return 1\n",
    "async_generator": "async def a{i}():\n    yield {call}\nasync def c{i}():\n    async for x in a{i}():\n        pass\ndef f{i}():\n    try:\n"
                       "        c{i}().send(None)\n    except StopIteration:\n        return 1\n",
    "lru": "@functools.lru_cache(maxsize=None)\ndef f{i}(*_):\n    return {call}\n",
    "del": "class D{i}:\n    def __del__(self):\n        {call}\ndef f{i}():\n    x = D{i}()\n    del x\n    return 1\n",
    "import_hook": "def f{i}():\n    return __import__('builtins').sum([0],\n        {call})\n",
    "long": "def f{i}():\n" + "    x = [1, 2, 3, 4]; y = dict(a=x)\n" * 130 + "    return {call}\n",
    "far": "def f{i}():\n" + "\n" * 400 + "    return {call}\n",
    "walrus": "def f{i}():\n    if (y :=\n            {call}):\n        return y\n",
    "star": "def f{i}():\n    def v(*a, **k):\n        return {call}\n    return v(*[1, 2], **{{'z': 3}})\n",
}


def program(seed, functions=40, kinds=None):
    """A program of `functions` functions, each calling one or two with a higher number; the last one probes."""
    r = random.Random(seed)
    names = sorted(kinds or KINDS)
    order = names[:]
    r.shuffle(order)
    while len(order) < functions:
        order.append(r.choice(names))
    out = [HEAD]
    for i in reversed(range(functions)):
        j = i + 1 + r.randrange(3)
        call = "probe()" if j >= functions else f"bool(f{j}())"
        if r.random() < 0.15 and call != "probe()":
            call = f"({call} + probe())" if "exec" != order[i] else call
        out.append(KINDS[order[i]].format(i=i, j=min(j, functions - 1), call=call))
    out.append("for start in range(0, %d, 3):\n    globals()['f%%d' %% start]()\nf0()\n" % functions)
    return "\n".join(out)
