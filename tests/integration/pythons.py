"""The CPythons of this machine, for tests that run on each of them, and the PyTorches.

    for python in each(t): ...        every interpreter from 3.8 on; prints "skipped: ..." for the versions that are not here
    library_of(t, python)            the library that a program can be linked with
    for python, flags, home in with_libraries(t): ...    every one that has such a library, and how to link with it
    for python, version in torches(t): ...    an interpreter for each PyTorch, the oldest first; skips the test if there is none

They are found where a user has them: python3.N on PATH, the versions of pyenv, /usr/bin, and what TIDEMARK_TEST_PYTHONS lists (separated by colons).
For PyTorch every python3* of PATH is looked at, too, and what TIDEMARK_TORCH_PYTHON lists.
"""
import functools
import glob
import os
import re
import shutil
import subprocess

VERSIONS = [f"3.{minor}" for minor in range(8, 16)]
ASK = "import sys, sysconfig; print(sys.executable); print('%d.%d' % sys.version_info[:2]); print(int(bool(sysconfig.get_config_var('Py_GIL_DISABLED')))); " \
      "print(sys.implementation.name)"


class Python:
    def __init__(self, path, version, free_threaded):
        self.path, self.version, self.free_threaded = path, version, free_threaded
        self.minor = int(version.split(".")[1])

    def __str__(self):
        return f"{self.path} ({self.version}{', free-threaded' if self.free_threaded else ''})"


FIND_TORCH = "import importlib.util as u; print(u.find_spec('torch').origin); " \
             "exec(open(u.find_spec('torch').submodule_search_locations[0] + '/version.py').read()); print(__version__)"


def candidates():
    yield from filter(None, os.environ.get("TIDEMARK_TEST_PYTHONS", "").split(":"))
    yield from glob.glob("/usr/bin/python3.[0-9]*")
    for version in VERSIONS:
        for suffix in ("", "t"):
            yield shutil.which(f"python{version}{suffix}")
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True).stdout.strip()
        yield from sorted(glob.glob(os.path.join(root, "versions/*/bin/python3")))
    yield shutil.which("python3")


@functools.lru_cache(maxsize=None)
def all_pythons():
    found = {}
    for path in candidates():
        if not path or path.endswith("-config") or not os.access(path, os.X_OK):
            continue
        try:
            done = subprocess.run([path, "-c", ASK], capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            continue
        lines = done.stdout.split("\n")
        if done.returncode or lines[3] != "cpython" or lines[1] not in VERSIONS:
            continue
        found.setdefault(os.path.realpath(lines[0]), Python(lines[0], lines[1], lines[2] == "1"))
    return sorted(found.values(), key=lambda p: (p.minor, p.path))


def each(t):
    pythons = all_pythons()
    for version in VERSIONS:
        if not any(p.version == version for p in pythons):
            print(f"skipped: CPython {version} is not on this machine")
    if not any(p.free_threaded for p in pythons):
        print("skipped: no free-threaded CPython is on this machine")
    if not pythons:
        t.skip("no CPython from 3.8 on is on this machine")
    return pythons


ASK_LIBRARY = "import sysconfig as s; print(s.get_config_var('LIBDIR') + '/' + (s.get_config_var('MULTIARCH') or '') + '/' + s.get_config_var('LDLIBRARY')); " \
              "print(s.get_config_var('LIBDIR') + '/' + s.get_config_var('LDLIBRARY')); import sys; print(sys.base_prefix)"


def library_of(t, python):
    """The interpreter as a library, None if there is none, and its PYTHONHOME."""
    *libraries, home = t.run([python.path, "-c", ASK_LIBRARY], status=0).text.split("\n")[:3]
    return next((path for path in libraries if path.endswith(".so") and os.path.exists(path)), None), home


def with_libraries(t):
    """Each CPython that a program can be linked with: it, how, and the PYTHONHOME of the program; skips the test if there is none."""
    found = 0
    for python in each(t):
        library, home = library_of(t, python)
        if library:
            found += 1
            yield python, (library, "-Wl,-rpath," + os.path.dirname(library)), home
    if not found:
        t.skip("no CPython here has a library to link with")


@functools.lru_cache(maxsize=None)
def all_torches():
    """(interpreter, version of its PyTorch as numbers), one for each PyTorch, the oldest first."""
    paths = [p for name in ("TIDEMARK_TORCH_PYTHON", "TIDEMARK_TEST_TORCH") for p in os.environ.get(name, "").split(":")]
    for folder in dict.fromkeys(os.environ["PATH"].split(os.pathsep) + ["/usr/local/bin", "/usr/bin"]):
        paths += sorted(glob.glob(os.path.join(folder, "python3*")))
    found = {}
    for path in dict.fromkeys([*paths, *(python.path for python in all_pythons())]):
        if not re.search(r"/python3?(\.\d+)?$", path):
            continue
        done = subprocess.run([path, "-c", FIND_TORCH], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True, check=False)
        if done.returncode == 0:
            origin, version = done.stdout.splitlines()[-2:]
            found.setdefault(origin, (path, tuple(int(n) for n in version.split("+")[0].split(".")[:2])))
    return sorted(found.values(), key=lambda f: f[1])


def torches(t):
    if not all_torches():
        t.skip("no interpreter here can import torch")
    return all_torches()
