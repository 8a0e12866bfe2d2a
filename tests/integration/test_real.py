"""Real programs, recorded with unchanged output and exit status.

Method: each runs bare and recorded; standard output, standard error and status must be the same, nothing may be lost, no block may be freed before it
was allocated, and together the traces must take at most four bytes an event. A program that is not installed is skipped.
"""
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import tmkread
from tidemark_test import ROOT, free_port, main, test

sizes = {}  # name -> (trace bytes, events), for the last test


def events_of(db):
    """Allocations and frees; a realloc is both."""
    return db.value("select (select count(*) from allocation) + (select count(*) from allocation where free_ns is not null)")


def sound(t, recording, name=None, complete=1):
    """Imports, checks what holds for every recording, and notes the size."""
    db = t.imported(recording)
    t.equal(db.value("select min(complete) from trace"), complete, "complete")
    t.equal(db.rows("select kind, count, bytes, reason from loss"), [], "losses")
    t.equal(db.value("select count(*) from allocation where free_ns < alloc_ns"), 0, "blocks freed before they were allocated")
    overlaps = db.value("""select count(*) from (select alloc_ns, lag(coalesce(free_ns, 9223372036854775807)) over
        (partition by a.process_id, heap_id, address order by alloc_ns, a.id) as freed
        from allocation a join heap h on h.id = a.heap_id where h.name = 'malloc' and size_bytes > 0) where alloc_ns < freed""")
    t.equal(overlaps, 0, "addresses live twice at a time")
    if name:
        sizes[name] = (os.path.getsize(recording.trace), events_of(db))
        print(f"{name}: {sizes[name][1]} events, {sizes[name][0] / max(sizes[name][1], 1):.2f} bytes an event")
    return db


@test
def sqlite3(t):
    t.need("sqlite3")
    rows = 300000 if t.long else 40000
    script = f"""create table t(a integer primary key, b text, c real);
        with recursive n(i) as (select 1 union all select i + 1 from n where i < {rows}) insert into t select i, 'row ' || i, i * 0.5 from n;
        create index i on t(b); select count(*), sum(c), max(b) from t; select b, count(*) from t group by substr(b, 1, 6) order by 2 desc, 1 limit 5;"""
    recording = t.same_as_bare(["sqlite3", ":memory:", script])
    db = sound(t, recording, "sqlite3")
    t.check(events_of(db) > rows, "sqlite3 makes an allocation a row")
    t.equal(db.row("select end_kind, end_code from process"), ("exit", 0), "end")


@test
def python3(t):
    t.need("python3")
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else "python3"
    loops = 200 if t.long else 25
    script = f"""import json
d = [{{"id": i, "name": "x" * (i % 50), "list": list(range(i % 20))}} for i in range(300)]
n = 0
for _ in range({loops}): n += len(json.dumps(json.loads(json.dumps(d))))
print(n)"""
    sound(t, t.same_as_bare([python, "-c", script]), "python3")
    db = sound(t, t.same_as_bare([python, "-c", script], env={"PYTHONMALLOC": "malloc"}), "python3 malloc")
    # The interpreter frees on its way out what is live when it begins to leave.
    at_exit = db.value("select sum(live_count) from live_at_exit where heap = 'malloc'")
    at_end = db.value("select coalesce(sum(live_count), 0) from live_at_end where heap = 'malloc'")
    t.check(at_end < at_exit, f"live at the end ({at_end}) is less than at exit ({at_exit})")


@test
def git_log(t):
    t.need("git")
    repository = t.path("repository")
    env = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b", "GIT_CONFIG_GLOBAL": "/dev/null"}
    t.run(["git", "init", "-q", repository], status=0, env=env)
    for i in range(30):
        with open(os.path.join(repository, f"file{i % 7}"), "a", encoding="ascii") as file:
            file.write(f"line {i}\n" * (i + 1))
        t.run(["git", "add", "."], cwd=repository, status=0, env=env)
        t.run(["git", "commit", "-q", "-m", f"change {i}"], cwd=repository, status=0, env=env)
    sound(t, t.same_as_bare(["git", "--no-pager", "log", "--stat", "-p"], cwd=repository, env=env), "git log")


CXX = """#include <map>
#include <string>
#include <vector>
#include <iostream>
template <int N> struct Tower { static std::map<int, std::string> build() { auto m = Tower<N - 1>::build(); m[N] = std::to_string(N); return m; } };
template <> struct Tower<0> { static std::map<int, std::string> build() { return {}; } };
int main() { std::vector<std::string> v; for (auto &p : Tower<60>::build()) v.push_back(p.second); std::cout << v.size(); }
"""


def compile_cxx(t, compiler):
    """The compiler's children (cc1plus, as) are recorded too; what comes out is the same file."""
    t.need(compiler)
    with open(t.path("a.cc"), "w", encoding="ascii") as file:
        file.write(CXX)
    t.run([compiler, "-c", "-O1", "a.cc", "-o", "bare.o"], status=0)
    recording = t.record([compiler, "-c", "-O1", "a.cc", "-o", "recorded.o"], "--quiet")
    t.equal(recording.out + recording.err, b"", "output")
    with open(t.path("bare.o"), "rb") as bare, open(t.path("recorded.o"), "rb") as recorded:
        t.check(bare.read() == recorded.read(), "the object files differ")
    return sound(t, recording, compiler)


@test
def gxx(t):
    db = compile_cxx(t, "g++")
    names = [os.path.basename(exe) for (exe,) in db.rows("select exe from process order by id")]
    t.check(any("cc1plus" in name for name in names), f"cc1plus is among the processes: {names}")


@test
def clangxx(t):
    compile_cxx(t, "clang++")


OPENMP = """#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
	long sum = 0;
	#pragma omp parallel for schedule(dynamic) reduction(+:sum) num_threads(3)
	for (int i = 0; i < 3000; i++) { long *p = malloc(sizeof *p * (1 + i % 100)); *p = i; sum += *p; free(p); }
	printf("%ld\\n", sum);
}
"""


def openmp(t, compiler):
    """The runtime of clang looks for a tool by ITT, and believes what it finds."""
    t.need(compiler)
    with open(t.path("parallel.c"), "w", encoding="ascii") as file:
        file.write(OPENMP)
    if t.run([compiler, "-g", "-fopenmp", "parallel.c", "-o", "parallel"]).status:
        t.skip(f"{compiler} has no OpenMP here")
    db = sound(t, t.same_as_bare([t.path("parallel")]))
    t.equal(db.row("select sum(allocations), sum(allocated_bytes), sum(live_bytes) from site where heap = 'malloc' and file like '%parallel.c'"),
            (3000, 30 * 8 * 5050, 0), "blocks of the loop")


@test
def openmp_of_gcc(t):
    openmp(t, "gcc")


@test
def openmp_of_clang(t):
    openmp(t, "clang")


@test
def redis(t):
    """A server under load, stopped by a signal."""
    t.need("redis-benchmark", "redis-cli")
    # redis-server and redis-check-rdb are one program, told apart by its name; only the latter is in Debian's redis-tools.
    server = shutil.which("redis-server") or shutil.which("redis-check-rdb")
    if not server:
        t.skip("redis-server is not installed")
    os.symlink(os.path.realpath(server), t.path("redis-server"))
    port = str(free_port())
    trace = t.path("redis.tmk")
    child = t.start([t.recorder, "-o", trace, "--quiet", "--", t.path("redis-server"), "--port", port, "--save", "", "--bind", "127.0.0.1", "--daemonize", "no"],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(1200):
        if b"PONG" in t.run(["redis-cli", "-p", port, "ping"]).out:
            break
        time.sleep(0.05)
    requests = "100000" if t.long else "10000"
    load = t.run(["redis-benchmark", "-p", port, "-n", requests, "-q", "-t", "set,get,lpush,hset"], status=0)
    t.check(b"SET" in load.out, f"the load: {load.text}")
    t.equal(t.run(["redis-cli", "-p", port, "get", "key:__rand_int__"]).out.strip(), b"VXK", "the server's answer")
    child.send_signal(signal.SIGTERM)
    t.equal(child.wait(60), 0, "redis-server ends with 0 on SIGTERM")
    db = t.imported(trace)
    t.equal(db.rows("select kind, count from loss"), [], "losses")
    # Debian's redis-server links jemalloc dynamically: its malloc is a hook's next, or comes before all hooks; either is said.
    t.check(events_of(db) > 1000 or db.rows("select 1 from note"), "neither events nor a note")


@test
def nginx(t):
    t.need("nginx", "python3")
    port = free_port()
    os.mkdir(t.path("www"))
    with open(t.path("www/index.html"), "w", encoding="ascii") as file:
        file.write("tidemark" * 100)
    with open(t.path("nginx.conf"), "w", encoding="ascii") as file:
        file.write(f"""daemon off; master_process off; pid {t.path('pid')}; error_log {t.path('error.log')};
            events {{ }} http {{ access_log off; client_body_temp_path {t.path('b')}; proxy_temp_path {t.path('p')}; fastcgi_temp_path {t.path('f')};
            uwsgi_temp_path {t.path('u')}; scgi_temp_path {t.path('s')}; server {{ listen 127.0.0.1:{port}; root {t.path('www')}; }} }}""")
    trace = t.path("nginx.tmk")
    child = t.start([t.recorder, "-o", trace, "--quiet", "--", "nginx", "-c", t.path("nginx.conf"), "-p", t.dir], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    import http.client
    good = 0
    for attempt in range(400):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/index.html")
            good += connection.getresponse().read() == b"tidemark" * 100
        except OSError:
            t.check(child.poll() is None, f"nginx ended early, status {child.returncode}")
            time.sleep(0.05)
        if good == 200:
            break
    t.equal(good, 200, "good answers")
    child.send_signal(signal.SIGQUIT)
    t.equal(child.wait(60), 0, "nginx ends with 0 on SIGQUIT")
    db = t.imported(trace)
    t.check(events_of(db) > 200, "events")
    t.equal(db.rows("select kind, count from loss"), [], "losses")


@test
def two_hundred_forks(t):
    t.need("python3")
    script = """import os
for i in range(200):
    pid = os.fork()
    if pid == 0:
        b = bytearray(100000 + i)
        os._exit(i % 3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == i % 3
print('forked')"""
    recording = t.same_as_bare(["/usr/bin/python3" if os.path.exists("/usr/bin/python3") else "python3", "-c", script])
    db = sound(t, recording)
    t.equal(db.value("select count(*) from process"), 201, "processes")
    t.equal(db.rows("select end_kind, end_code, count(*) from process where parent_id is not null group by 1, 2 order by 2"),
            [("exit", 0, 67), ("exit", 1, 67), ("exit", 2, 66)], "how the children ended")
    t.equal(db.value("select count(distinct a.size_bytes) from allocation a join process p on p.id = a.process_id "
                     "where p.parent_id is not null and a.size_bytes between 100000 and 100201"), 200, "what the children allocated")


@test
def shell_pipeline(t):
    db = sound(t, t.same_as_bare(["sh", "-c", "ls -l /usr/bin | sort -k5 -n | tail -3 | wc -l; (exit 3)"]))
    names = sorted(os.path.basename(exe) for (exe,) in db.rows("select exe from process"))
    for name in ("ls", "sort", "tail", "wc"):
        t.check(name in names, f"{name} is not among {names}")


@test
def not_following(t):
    recording = t.record(["sh", "-c", "ls / >/dev/null; true"], "--follow=off")
    db = t.imported(recording)
    recorded = db.rows("select p.exe from process p where exists (select 1 from allocation where process_id = p.id)")
    t.check(not any(exe.endswith("/ls") for (exe,) in recorded), f"children are not recorded: {recorded}")


def unrecordable(t, child, *kinds):
    """A child that cannot be recorded: nothing is added to its output, a note says so, and it has its row."""
    recording = t.same_as_bare(["sh", "-c", f"{child} 4; echo status $?"])
    t.check(b"hello\nstatus 4\n" == recording.out, f"output: {recording.out}")
    db = t.imported(recording)
    notes = db.rows("select kind, text from note")
    t.check(any(os.path.basename(child) in text for _, text in notes), f"a note names the child: {notes}")
    t.check(any(os.path.basename(child) == os.path.basename(exe or "") for (exe,) in db.rows("select exe from process")), "the child has its row")


@test
def child_of_32_bits(t):
    probe = subprocess.run(["gcc", "-m32", "-x", "c", "-", "-o", t.path("probe")], input=b"#include <stdlib.h>\nint main(void) { return 0; }",
                           stderr=subprocess.DEVNULL, check=False) if shutil.which("gcc") else None
    if not probe or probe.returncode or t.run([t.path("probe")]).status:
        t.skip("32-bit programs cannot be built or run here (gcc-12-multilib)")
    unrecordable(t, t.program("hello.c", "-m32", name="hello32"))


@test
def static_child(t):
    unrecordable(t, t.program("hello.c", "-static", name="hello_static"))


@test
def what_could_not_be_recorded_is_not_nothing(t):
    """A program alone, and one beside another: neither the report nor an empty list says that all was seen."""
    program = t.program("hello.c", "-static", name="hello_static")
    for name, command, empty in (("alone", [program], True), ("beside", ["sh", "-c", f"{program}; {t.program('leak.c')}"], False)):
        db = t.imported(t.record(command))
        t.ask("report", db.path, "-o", t.path(f"{name}.html"))
        with open(t.path(f"{name}.html"), encoding="utf-8") as file:
            page = file.read()
        t.equal((re.search('id="tile-complete"><dt>Recording</dt><dd><b>(.*?)<', page)[1], "1 process could not be recorded" in re.sub("<[^>]*>", "", page)),
                ("incomplete", True), f"the report ({name})")
        for command in (["peak"], ["leaks", "--all"], ["timeline"], ["snapshot", "--at=peak"]):
            said = t.ask(command[0], db.path, *command[1:]).errors
            t.equal(said.count("1 process could not be recorded: tidemark info says why"), int(empty), f"{command} ({name}): {said}")


@test
def musl_child(t):
    t.need("musl-gcc")
    unrecordable(t, t.program("hello.c", cc="musl-gcc", name="hello_musl"))


@test
def static_command(t):
    """The command itself cannot be recorded: it runs all the same, with a note."""
    program = t.program("hello.c", "-static", name="hello_static")
    recording = t.record([program, "6"], status=6)
    t.equal(recording.out, b"hello\n", "output")
    t.check(t.imported(recording).rows("select kind, text from note"), "a note")


@test
def pytorch(t):
    """Training on the CPU, where a python has torch."""
    for python in [os.environ.get("TIDEMARK_TEST_PYTHON"), "python3", "/usr/bin/python3", *sorted(glob.glob("/opt/*/bin/python3"))]:
        if python and shutil.which(python) and t.run([python, "-c", "import torch"]).status == 0:
            break
    else:
        t.skip("no python here has torch")
    script = """import torch
torch.manual_seed(0); torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    x = torch.randn(32, 64)
    loss = torch.nn.functional.cross_entropy(model(x), torch.randint(0, 10, (32,)))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
print(f'{loss.item():.6f}')"""
    recording = t.same_as_bare([python, "-c", script])
    sound(t, recording, "pytorch")


@test
def four_bytes_an_event(t):
    """Over all the real programs recorded above, the whole files, names included."""
    if len(sizes) < 3:
        t.skip("too few real programs were recorded in this run")
    total_bytes, total_events = (sum(column) for column in zip(*sizes.values()))
    for name, (size, events) in sizes.items():
        print(f"{name}: {events} events, {size} bytes, {size / events:.2f} bytes an event")
    t.check(total_bytes <= 4 * total_events, f"{total_bytes / total_events:.2f} bytes an event")


main()
