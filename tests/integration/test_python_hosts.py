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
    for name, wanted in (("host", whole), ("python_host", whole), ("python3host", whole), ("python3.7dm", of_python)):
        db = t.imported(t.record([t.program(source, *library, name=name)], env={"PYTHONHOME": home}))
        got = functions(db, 770000)
        t.equal([[f for f in stack if f in whole] for stack in got], [wanted], f"{python}: functions of {name}, of {got}")


ROUNDS = r"""
#include <pthread.h>
#include <stdlib.h>
void Py_Initialize(void), Py_Finalize(void);
int PyRun_SimpleString(const char *);
static void leak(unsigned count) { while (count--) malloc(1048577); }
static void *leak_in_thread(void *unused) { leak(2); return unused; }
int main(void) {
	for (int i = 0; i < 3; i++) {
		pthread_t thread;
		Py_Initialize();
		PyRun_SimpleString("x = bytearray(5100000)");
		Py_Finalize();
		leak(3);
		pthread_create(&thread, NULL, leak_in_thread, NULL);
		pthread_join(thread, NULL);
	}
	return 0;
}
"""


@test
def hosts_go_on_when_python_ends(t):
    """What they leak after an interpreter has ended, between two of them and in threads is live at their exit, which is main's return."""
    source = write(t, "rounds.c", ROUNDS)
    for i, (python, library, home) in enumerate(with_libraries(t)):
        db = t.imported(t.record([t.program(source, *library, name=f"rounds{i}")], "--names=none", "--python=off" if i % 2 else "--python=auto",
                                 env={"PYTHONHOME": home}))
        t.equal(db.row("SELECT count(*), sum(alloc_ns < exit_ns) FROM allocation a JOIN process p ON p.id = a.process_id WHERE size_bytes = 1048577 AND free_ns IS NULL"),
                (15, 15), f"{python}: blocks, and those from before the exit")
        t.ask("check", db.path, "--max-leak=14MiB", status=3)


MAIN = r"""
#include <stdlib.h>
int Py_BytesMain(int, char **);
int main(int count, char **words) {
	int status = Py_BytesMain(count, words);
	malloc(770001);
	return status;
}
"""
AT_THE_END = """import ctypes
class Late:
    def __init__(self): self.me, self.malloc = self, ctypes.CDLL(None).malloc
    def __del__(self): self.malloc(770002)
keep = Late()
ctypes.CDLL(None).malloc(770003)
"""


@test
def interpreters_exit_when_they_finalize(t):
    """As python itself, and as a program of another name that is nothing but its main function."""
    source, script = write(t, "main.c", MAIN), write(t, "end.py", AT_THE_END)
    for i, (python, library, home) in enumerate(with_libraries(t)):
        other = t.program(source, *library, name=f"pysomething{i}")
        for program, after in ((python.path, [770002]), (other, [770001, 770002])):
            db = t.imported(t.record([program, script], "--names=none", env={"PYTHONHOME": home}))
            rows = db.rows("SELECT size_bytes, alloc_ns >= exit_ns FROM allocation a JOIN process p ON p.id = a.process_id WHERE a.api = 'malloc' "
                           "AND size_bytes BETWEEN 770001 AND 770003 ORDER BY 1")
            t.equal(rows, [(size, 1) for size in after] + [(770003, 0)], f"{program}: blocks, and whether the process had begun to exit")


main()
