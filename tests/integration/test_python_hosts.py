"""Programs that embed the interpreter, by linking with its library or by loading it: whose frames are whose, when they exit, and what follows when an
interpreter ends and another one begins.

Method: C programs that allocate blocks of sizes of their own in known functions. On the CPythons of this machine that have a library.
"""
import os

from pythons import with_libraries
from tidemark_test import main, test


def write(t, name, text):
    with open(t.path(name), "w", encoding="utf-8") as file:
        file.write(text)
    return t.path(name)


def functions(db, size):
    """The stacks of malloc's blocks of that size, each from the outermost function inward."""
    return [text.split(";") for (text,) in db.rows("SELECT s.text FROM allocation a JOIN stack_text s USING (stack_id) WHERE a.api = 'malloc' AND size_bytes = ?", size)]


BETWEEN = r"""
#include <stddef.h>
void *PyImport_AddModule(const char *), *PyModule_GetDict(void *), *PyCFunction_NewEx(void *, void *, void *), *PyObject_CallFunctionObjArgs(void *, ...);
int PyDict_SetItemString(void *, const char *, void *), PyRun_SimpleString(const char *);
void Py_Initialize(void), Py_Finalize(void);
static void *between(void *self, void *function) { return PyObject_CallFunctionObjArgs(function, NULL); }
static struct { const char *name; void *function; int flags; const char *text; } method = { "between", between, 8, "" }; /* METH_O */
static void configure(void) {
	PyDict_SetItemString(PyModule_GetDict(PyImport_AddModule("__main__")), "between", PyCFunction_NewEx(&method, NULL, NULL));
	PyRun_SimpleString("import ctypes\ndef inner(): ctypes.CDLL(None).malloc(770000)\ndef outer(): between(inner)\nouter()\n");
}
int main(void) { Py_Initialize(); configure(); Py_Finalize(); return 0; }
"""


@test
def hosts_keep_their_frames(t):
    """Whatever they are called. Only the interpreter as a program of its own is left out of stacks."""
    python, library, home = list(with_libraries(t))[-1]
    source = write(t, "between.c", BETWEEN)
    whole = ["main", "configure", "<module>", "outer", "between", "inner"]
    of_python = ["<module>", "outer", "inner"]
    for name, wanted in (("host", whole), ("python_host", whole), ("python3host", whole), ("pythonista", whole), ("python3.9", of_python), ("python3.7dm", of_python)):
        db = t.imported(t.record([t.program(source, *library, name=name)], env={"PYTHONHOME": home}))
        got = functions(db, 770000)
        t.equal([[f for f in stack if f in whole] for stack in got], [wanted], f"{python}: functions of {name}, of {got}")


main()
