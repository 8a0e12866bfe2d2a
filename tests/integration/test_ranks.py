"""Ranks: read from the launcher's variables, recorded, usable in --output, and asked for across traces.

Method: fixtures/programs/ranked.c allocates 10000 (r + 1) bytes on rank r. Four ranks are recorded one trace each, with the launcher outside and
inside the recorder, and by pretended Slurm variables where there is no mpirun.
"""
import glob
import os
import re
import shutil
import time

from tidemark_test import main, test

WANTED = [(r, r + 1, 10000 * (r + 1)) for r in range(4)]
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4"]
MPI_ENV = {"OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_rmaps_base_oversubscribe": "1", "PMIX_MCA_gds": "hash"}
PER_RANK = """select p.rank, sum(l.live_count), sum(l.live_bytes) from live_at_exit l join process p on p.id = l.process_id
              where l.function = 'compute' group by 1 order by 1"""


def ask_per_rank(t, db):
    t.equal(db.rows(PER_RANK), WANTED, "what compute() holds at exit, by rank")
    for rank in (0, 3):
        done = t.ask("leaks", db.path, f"--process=rank:{rank}", "--format=csv")
        rows = [line for line in done.text.splitlines() if "compute" in line]
        t.check(len(rows) == 1 and str(10000 * (rank + 1)) in rows[0], f"leaks of rank {rank}: {done.text}")


def need_mpirun(t):
    t.need("mpirun")
    if t.run([*MPIRUN, "true"], env=MPI_ENV, timeout=60).status != 0:
        t.skip("mpirun does not run here")


@test
def mpirun_outside(t):
    """mpirun -n 4 tidemark record X: four traces, one database."""
    need_mpirun(t)
    done = t.run([*MPIRUN, t.tidemark, "record", "--quiet", "-o", t.path("r%r.tmk"), "--", t.program("ranked.c")], env=MPI_ENV, status=0, timeout=120)
    t.equal(sorted(done.text.splitlines()), [f"rank {r} done" for r in range(4)], "output")
    traces = sorted(glob.glob(t.path("r*.tmk")))
    t.equal([os.path.basename(path) for path in traces], [f"r{r}.tmk" for r in range(4)], "traces")
    db = t.imported(*traces)
    t.equal(db.value("select count(*) from trace"), 4, "traces in the database")
    t.equal(db.rows("select rank, local_rank, world_size from process order by rank"), [(r, r, 4) for r in range(4)], "ranks")
    ask_per_rank(t, db)


@test
def mpirun_inside(t):
    """tidemark record mpirun -n 4 X: one trace of the whole tree."""
    need_mpirun(t)
    recording = t.record([*MPIRUN, t.program("ranked.c")], "--quiet", env=MPI_ENV, timeout=120)
    t.equal(sorted(recording.text.splitlines()), [f"rank {r} done" for r in range(4)], "output")
    db = t.imported(recording)
    t.equal(db.rows("select rank, world_size from process where exe like '%ranked%' order by 1"), [(r, 4) for r in range(4)], "ranks")
    t.equal(db.value("select count(*) from process where exe like '%mpirun%' or exe like '%orterun%'") >= 1, True, "mpirun is there too")
    ask_per_rank(t, db)


def wait_until_there(path):
    while not os.path.exists(path):
        time.sleep(0.01)


@test
def plain_preload_under_mpirun(t):
    """LD_PRELOAD alone, as a batch script sets it: every rank starts its own collector."""
    need_mpirun(t)
    env = dict(MPI_ENV, TIDEMARK_OPTIONS=f"--quiet -o {t.path('p%r.%p.tmk')}")
    done = t.run([*MPIRUN, "-x", f"LD_PRELOAD={t.library}", t.program("ranked.c")], env=env, status=0, timeout=120)
    t.equal(sorted(done.text.splitlines()), [f"rank {r} done" for r in range(4)], "output")
    traces = sorted(glob.glob(t.path("p*.tmk")))
    t.equal([os.path.basename(path)[:2] for path in traces], [f"p{r}" for r in range(4)], "traces")
    ask_per_rank(t, t.imported(*map(t.whole, traces)))


@test
def preload_that_cannot_record(t):
    """The program runs on without a word; with TIDEMARK_VERBOSE its recorder says why. Words that are no options are named as what they are."""
    program, taken = t.program("hello.c"), t.path("taken.tmk")
    with open(taken, "wb"):
        pass
    env = {"LD_PRELOAD": t.library, "TIDEMARK_OPTIONS": f"-o {taken}"}
    done = t.run([program], env=env, status=0)
    t.equal((done.out, done.err), (b"hello\n", b""), "what it writes")
    done = t.run([program], env={**env, "TIDEMARK_VERBOSE": "1"}, status=0)
    t.equal(done.errors.splitlines()[0], f"tidemark-record: cannot create '{taken}': File exists (--force overwrites it)", "why")
    t.equal(os.path.getsize(taken), 0, "size of the file that was there")
    for options, why in (("-o 'two words.tmk'", "TIDEMARK_OPTIONS holds options only, with blanks between them: 'words.tmk''"), ("--bogus", "unknown option '--bogus'"),
                         ("--interval=x", "bad value 'x' for --interval"), ("--force=1", "option takes no value: '--force=1'"), ("--ring", "option needs a value: '--ring'"),
                         ("--help", ""), ("--version", "")):
        done = t.run([program], env={**env, "TIDEMARK_OPTIONS": options}, status=0)
        t.equal((done.out, done.err), (b"hello\n", b""), f"what it writes with {options}")
        done = t.run([program], env={**env, "TIDEMARK_OPTIONS": options, "TIDEMARK_VERBOSE": "1"}, status=0)
        t.check(why in done.errors, done.errors)
    shutil.copy(program, t.path("mpirun"))
    for command, names, why in ((t.path("mpirun"), {}, "launchers, shells and tidemark itself are passed by"),
                                (program, {"TIDEMARK_SESSION": "/proc/4194305/fd/3"}, "the recording that TIDEMARK_SESSION names is gone, or cannot be used here")):
        t.equal(t.run([command], env={**env, **names}, status=0).errors, "", "what it writes")
        done = t.run([command], env={**env, **names, "TIDEMARK_VERBOSE": "1"}, status=0)
        t.equal(done.errors, f"tidemark: this process is not recorded: {why}\n", "why")


@test
def preload_passes_by(t):
    """Shells, by their names, and our own tools, from which a job script with the library in its environment asks: no trace comes but that of the program."""
    taken = t.path("taken")
    env = {"LD_PRELOAD": t.library, "TIDEMARK_OPTIONS": f"--quiet -o {taken}/%p.tmk"}
    t.run([t.program("hello.c")], env=env, status=0)
    traces = os.listdir(taken)
    t.equal(len(traces), 1, "traces of the program")
    for shell in ("sh", "bash", "dash", "zsh", "ksh", "ksh93", "mksh", "csh", "bsd-csh", "tcsh", "fish"):
        shutil.copy(t.program("hello.c"), t.path(shell))
        t.run([t.path(shell)], env=env, status=0)
    t.equal(os.listdir(taken), traces, "traces of shells")
    if t.sanitized:
        t.skip("a program with a sanitizer bears no library that is preloaded: our own tools are not tried")
    for options in (["info", os.path.join(taken, traces[0])], ["record", "-o", t.path("own.tmk"), "--quiet", "--", t.program("hello.c")]):
        t.run([t.tidemark, *options], env=env, status=0)
    t.run([t.recorder, "--version"], env=env, status=0)
    t.equal(os.listdir(taken), traces, "traces")


@test
def preload_holds_no_stream(t):
    """Who reads what the program writes is done when it ends, although a child of it, which has closed all, lives on and is recorded."""
    source, end = t.path("leaves.c"), t.path("end")
    with open(source, "w", encoding="ascii") as file:
        file.write('#include <stdlib.h>\n#include <unistd.h>\nint main(int argc, char **argv) {\n\tif (fork()) return write(2, "left\\n", 5) != 5;\n'
                   '\tfor (int i = 0; i < 64; i++) close(i);\n\twhile (access(argv[1], F_OK)) usleep(10000);\n\tfree(malloc(4711));\n\treturn 0;\n}\n')
    env = {"LD_PRELOAD": t.library, "TIDEMARK_OPTIONS": f"-o {t.path('leaves.tmk')}"}
    done = t.run([t.program(source), end], env=env, status=0, timeout=60)
    t.equal(done.errors, "left\n", "what it writes")
    with open(end, "wb"):
        pass
    t.equal(t.imported(t.whole(t.path("leaves.tmk"))).row("select count(*), (select count(*) from process) from allocation where size_bytes = 4711"), (1, 2), "what the child did")


@test
def preload_that_is_not_waited_for(t):
    """The recorder comes when its program waits no more: there is nothing to record, and no trace is left."""
    trace, late = t.path("late.tmk"), t.path("late")
    with open(late, "w", encoding="ascii") as file:
        file.write(f"#!/bin/sh\ntouch begun\nwhile [ ! -e go ]; do sleep 0.01; done\n'{t.recorder}' \"$@\"\necho $? > status\nmv status ended\n")
    os.chmod(late, 0o700)
    program = t.start([t.program("hello.c")], env={"LD_PRELOAD": t.library, "TIDEMARK_RECORD": late, "TIDEMARK_OPTIONS": f"-o {trace}"})
    wait_until_there(t.path("begun"))
    program.kill()
    program.wait()
    with open(t.path("go"), "wb"):
        pass
    wait_until_there(t.path("ended"))
    with open(t.path("ended"), encoding="ascii") as file:
        t.equal((file.read(), os.path.exists(trace)), ("125\n", False), "the recorder's exit status, and whether there is a trace")


@test
def slurm_variables(t):
    traces = []
    for r in range(4):
        env = {"SLURM_PROCID": str(r), "SLURM_LOCALID": str(r % 2), "SLURM_NTASKS": "4", "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "2"}
        t.run([t.tidemark, "record", "--quiet", "-o", t.path("job%j.%s/rank%r.tmk"), "--", t.program("ranked.c")], env=env, status=0)
        traces.append(t.path(f"job4711.2/rank{r}.tmk"))
    db = t.imported(os.path.dirname(traces[0]))
    t.equal(db.rows("select rank, local_rank, world_size from process order by rank"), [(r, r % 2, 4) for r in range(4)], "ranks")
    t.equal([job.split(".")[0] for (job,) in db.rows("select job from trace")], ["4711"] * 4, "jobs")
    t.equal(db.rows("select distinct host from trace"), [(os.uname().nodename,)], "host")
    ask_per_rank(t, db)


@test
def variables_of_the_program(t):
    """What a launcher tells the program alone, and not the recorder above it: the program passes all of them on."""
    for rank, local_rank, size in (
        ("PMIX_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "SLURM_LOCALID", "PMI_SIZE"),
        ("SLURM_PROCID", "LOCAL_RANK", "SLURM_NTASKS"),
        ("RANK", "PALS_LOCAL_RANKID", "WORLD_SIZE"),
        ("PALS_RANKID", "LOCAL_RANK", "WORLD_SIZE"),
    ):
        step = ["SLURM_STEP_ID=0"] if "SLURM" in rank + local_rank + size else []
        db = t.imported(t.record(["env", f"{rank}=5", f"{local_rank}=1", f"{size}=7", *step, t.program("hello.c")]))
        found = db.rows("select rank, local_rank, world_size from process where exe like '%hello%'")
        t.equal(found, [(5, 1, 7)], f"{rank}, {local_rank}, {size}")


@test
def a_batch_script_is_no_rank(t):
    """Slurm tells it that it is the first of as many as the job asked for: neither it nor the launcher that it starts is one, and other numbers count."""
    batch = {"SLURM_JOB_ID": "55", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "3"}
    program = t.program("ranked.c")
    ranks = "".join(f"OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE=3 PMIX_NAMESPACE=space {program};" for rank in range(3))
    db = t.imported(t.record(["bash", "-c", ranks + f"RANK=0 WORLD_SIZE=1 {program}; true"], env=batch))
    wanted = [(None, None, None), (0, 3, "space"), (1, 3, "space"), (2, 3, "space"), (0, 1, None)]
    found = db.rows("select rank, world_size, world from process where parent_id is null or exe like '%ranked%' order by id")
    t.equal([row[:2] for row in found], [row[:2] for row in wanted], "ranks")
    t.equal([row[2] for row in found[:4]], [row[2] for row in wanted[:4]], "worlds")
    t.equal(re.search(r"ranks missing +(\d+)", t.ask("info", db.path).text)[1], "0", "ranks that are said to be missing")
    # In whatever order they stand.
    for env in ({**batch, "SLURM_STEP_ID": "4"}, {"SLURM_STEP_ID": "4", **batch}):
        variables = [f"{name}={value}" for name, value in env.items()]
        db = t.imported(t.record(["env", *variables, t.program("hello.c")]))
        t.equal(db.rows("select rank, local_rank, world_size from process where exe like '%hello%'"), [(0, 0, 3)], "of a step")


WORLDS = """select p.world, p.rank, sum(l.live_bytes) from live_at_exit l join process p on p.id = l.process_id where l.function = 'compute'
            group by p.world, p.rank, l.process_id order by min(p.start_ns), 2"""


def check_worlds(t, db, worlds):
    """Two ranks each, which share their numbers: each has its own peak, and is not added to the other of its number."""
    rows = db.rows("select world, rank, live_bytes from rank_peak where world is not null order by world, rank")
    t.equal([(rank, size >= 10000 * (rank + 1)) for _, rank, size in rows], [(0, True), (1, True)] * worlds, f"peaks of ranks: {rows}")
    t.equal(len({world for world, _, _ in rows}), worlds, f"worlds: {rows}")
    t.equal([(rank, size) for _, rank, size in db.rows(WORLDS)].count((1, 20000)), worlds, "what compute() holds at exit on rank 1")
    table = t.ask("processes", db.path).text
    t.check(all(world in table for world, _, _ in rows), f"the worlds are shown: {table}")
    said = t.ask("leaks", db.path, "--process=rank:1").errors
    t.check(f"warning: {worlds} worlds have a rank 1" in said, said)


@test
def worlds_by_name(t):
    """Ranks of two jobs, a trace each, and of two in one trace, told apart by the name that the launcher gives; children are of their parent's."""
    variables = {"OMPI_COMM_WORLD_SIZE": "2"}
    for name, value in (("PMIX_NAMESPACE", "prterun-node-%s@1"), ("PMI_JOBID", "%s"), ("PALS_APID", "%s"), ("TORCHELASTIC_RUN_ID", "%s"), ("SLURM_STEP_ID", "%s")):
        traces = []
        for world in ("17", "29"):
            for rank in ("0", "1"):
                env = {**variables, "OMPI_COMM_WORLD_RANK": rank, name: value % world, "SLURM_JOB_ID": "4711"}
                traces.append(t.path(f"{name}.{world}.{rank}"))
                t.run([t.tidemark, "record", "--quiet", "-o", traces[-1], "--", "env", "A=1", t.program("ranked.c")], env=env, status=0)
        db = t.imported(*traces)
        wanted = [("4711." if name == "SLURM_STEP_ID" else "") + value % world for world in ("17", "29")]
        t.equal(db.rows("select distinct world from process order by 1"), [(world,) for world in wanted], f"worlds by {name}")
        check_worlds(t, db, 2)
        t.equal(db.rows("select * from note where kind = 'world'"), [], "notes")
    unnamed = t.path("unnamed.tmk")
    t.run([t.tidemark, "record", "--quiet", "-o", unnamed, "--", t.program("ranked.c")], env={**variables, "OMPI_COMM_WORLD_RANK": "0", "TORCHELASTIC_RUN_ID": "none"}, status=0)
    t.equal(t.imported(unnamed).rows("select world, rank from process where parent_id is null"), [(None, 0)], "a run that torchrun has no name for")
    script = "".join(f"OMPI_COMM_WORLD_RANK={rank} PMIX_NAMESPACE=space{world} {t.program('ranked.c')};" for world in (1, 2) for rank in (0, 1))
    db = t.imported(t.record(["bash", "-c", script]))
    t.equal(db.rows("select distinct world, rank from process where rank is not null order by 1, 2"), [(f"space{world}", rank) for world in (1, 2) for rank in (0, 1)], "in one trace")
    check_worlds(t, db, 2)


@test
def torchrun_under_another_launcher(t):
    """srun and mpirun start a torchrun on each node and number those: a worker's rank, and what it counts in, are what torchrun says, in whatever order it stands."""
    outer = {"SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "PMI_RANK": "1", "PMI_SIZE": "2",
             "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
    for space, run, world in (({}, "none", "4711.0/torchrun"), ({}, "run7", "run7"), ({"PMIX_NAMESPACE": "slurm.4711.0"}, "none", "slurm.4711.0/torchrun")):
        traces = []
        for rank in (2, 3):
            inner = {"RANK": str(rank), "LOCAL_RANK": str(rank - 2), "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": run}
            env = {**outer, **space, **inner} if rank == 2 else dict(reversed({**outer, **space, **inner}.items()))
            t.run([t.tidemark, "record", "--quiet", "-o", t.path(f"{world.replace('/', '_')}.%r"), "--", t.program("ranked.c")], env=env, status=0)
            traces.append(t.path(f"{world.replace('/', '_')}.{rank}"))
        db = t.imported(*traces)
        t.equal(db.rows("select world, rank, local_rank, world_size from process order by rank"), [(world, rank, rank - 2, 4) for rank in (2, 3)], "of traces of workers")
        workers = "".join(f"RANK={rank} LOCAL_RANK={rank} WORLD_SIZE=4 TORCHELASTIC_RUN_ID={run} {t.program('ranked.c')};" for rank in (0, 1))
        db = t.imported(t.record(["bash", "-c", workers + "true"], "--quiet", env={**outer, **space}))
        t.equal(db.rows("select world, rank, world_size from process where exe like '%ranked%' order by rank"), [(world, rank, 4) for rank in (0, 1)], "of a node's")
        torchrun = (space.get("PMIX_NAMESPACE", "4711.0"), 1, 2)
        t.equal(db.rows("select world, rank, world_size from process where parent_id is null"), [torchrun], "torchrun's own")
        t.equal(db.rows("select world, rank from rank_peak order by 1, 2"), sorted([torchrun[:2], (world, 0), (world, 1)]), "peaks")


@test
def worlds_of_launchers(t):
    """mpirun twice, one after the other, in one trace: by the name that OpenMPI gives; by the process above the ranks where MPICH gives none."""
    need_mpirun(t)
    for launcher in (MPIRUN[:-1], ["mpiexec.hydra", "-n"]):
        if not shutil.which(launcher[0]):
            t.skip(f"{launcher[0]} is not here")
        command = " ".join([*launcher, "2", "sh", "-c", f"'OMPI_COMM_WORLD_RANK=${{PMI_RANK:-$OMPI_COMM_WORLD_RANK}} {t.program('ranked.c')}'"])
        db = t.imported(t.record(["bash", "-c", f"{command}; {command}"], "--quiet", env=MPI_ENV, timeout=120))
        t.equal([rank for rank, in db.rows("select rank from process where exe like '%ranked%' order by rank")], [0, 0, 1, 1], "ranks")
        check_worlds(t, db, 2)


@test
def rank_that_is_given_anew(t):
    """An exec with another rank in the environment: the image has that one, also where the variable is the same."""
    env = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "9"}
    db = t.imported(t.record(["env", "OMPI_COMM_WORLD_RANK=3", "env", "-u", "OMPI_COMM_WORLD_RANK", "PMI_RANK=4", "SLURM_PROCID=1", t.program("hello.c")], env=env))
    t.equal(db.rows("select rank, world_size from process order by id"), [(1, 9), (3, 9), (4, 9)], "ranks")


@test
def import_appends_and_refuses(t):
    one, two = t.record([t.program("hello.c")]), t.record([t.program("hello.c")])
    db = t.path("grow.db")
    t.ask("import", one.trace, "-o", db)
    refused = t.ask("import", two.trace, "-o", db, status=1)
    t.equal(len(refused.errors.splitlines()), 1, f"one line: {refused.errors}")
    t.ask("import", two.trace, "-o", db, "--append")
    import tidemark_test
    t.equal(tidemark_test.Database(db).value("select count(*) from trace"), 2, "traces")
    t.ask("import", two.trace, "-o", db, "--force")
    t.equal(tidemark_test.Database(db).value("select count(*) from trace"), 1, "traces after --force")
    shutil.copy(two.trace, t.path("named-otherwise.bin"))
    t.ask("import", t.path("named-otherwise.bin"), "-o", t.path("other.db"))


main()
