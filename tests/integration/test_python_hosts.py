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
    rows = db.rows("SELECT s.text FROM allocation a JOIN stack_text s USING (stack_id) WHERE a.api = 'malloc' AND size_bytes = ?", size)
    return [text.split(";") for (text,) in rows]


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
        t.equal(db.row("SELECT count(*), sum(alloc_ns < exit_ns) FROM allocation a JOIN process p ON p.id = a.process_id "
                       "WHERE size_bytes = 1048577 AND free_ns IS NULL"), (15, 15), f"{python}: blocks, and those from before the exit")
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


LOADED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
static void round_of(const char *path, const char *home, int i) {
	char text[300];
	Dl_info info;
	void *library;
	setenv("PYTHONHOME", home, 1);
	library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	((void (*)(int))dlsym(library, "Py_InitializeEx"))(0);
	snprintf(text, sizeof text, "def hold%d():\n for i in range(20): x = bytearray(%d)\nexec('def outer(): hold%d()\\nouter()')\n", i, 4200000 + i, i);
	((int (*)(const char *, void *))dlsym(library, "PyRun_SimpleStringFlags"))(text, NULL);
	dladdr(dlsym(library, "Py_InitializeEx"), &info);
	((int (*)(void))dlsym(library, "Py_FinalizeEx"))();
	char *base = info.dli_fbase;
	if (dlclose(library) || dlopen(path, RTLD_NOW | RTLD_NOLOAD)) exit(1);
	free(malloc(4300000 + i));
	if (mmap(base, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != base) exit(2); /* it comes to lie elsewhere */
}
int main(int count, char **words) {
	for (int i = 1; i + 1 < count; i += 2) round_of(words[i], words[i + 1], i);
	return 0;
}
"""


@test
def loaded_again_elsewhere(t):
    """A program loads an interpreter's library, closes it, and loads it again where it lies at another address, or that of another version."""
    program = t.program(write(t, "loaded.c", LOADED), "-ldl")
    libraries = [(python, [flags[0], home]) for python, flags, home in with_libraries(t)]
    libraries = [(python, words) for python, words in libraries if t.run([program, *words]).status == 0]
    if not libraries:
        t.skip("no interpreter here goes when it is closed: they have loaded extensions")
    every = [(python, words * 3) for python, words in libraries[-1:]] + [("each version", [word for _, words in libraries for word in words])]
    for python, words in every:
        db = t.imported(t.record([program, *words], env={"PYTHONNOUSERSITE": "1"}))
        for i in range(1, len(words), 2):
            blocks = functions(db, 4200001 + i)
            t.equal(len(blocks), 20, f"{python}, loaded {i // 2}: blocks")
            for stack in blocks:
                t.equal([f for f in stack if f.startswith(("main", "round_of", "<module>", "outer", "hold"))],
                        ["main", "round_of", "<module>", "<module>", "outer", f"hold{i}"], f"{python}, loaded {i // 2}: functions of {stack}")
                t.check("_PyEval_EvalFrameDefault" not in stack, f"{python}, loaded {i // 2}: the interpreter's own functions in {stack}")
            t.equal(functions(db, 4300000 + i), [["main", "round_of"]], f"{python}, loaded {i // 2}: in no interpreter")


main()
