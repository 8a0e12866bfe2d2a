"""Ranks: read from the launcher's variables, recorded, usable in --output, and asked for across traces.

Method: fixtures/programs/ranked.c allocates 10000 (r + 1) bytes on rank r. Four ranks are recorded one trace each, with the launcher outside and
inside the recorder, and by pretended Slurm variables where there is no mpirun.
"""
import glob
import os
import shutil

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


@test
def plain_preload_under_mpirun(t):
    """LD_PRELOAD alone, as a batch script sets it: every rank starts its own collector."""
    need_mpirun(t)
    env = dict(MPI_ENV, TIDEMARK_OPTIONS=f"--quiet -o {t.path('p%r.%p.tmk')}")
    done = t.run([*MPIRUN, "-x", f"LD_PRELOAD={t.library}", t.program("ranked.c")], env=env, status=0, timeout=120)
    t.equal(sorted(done.text.splitlines()), [f"rank {r} done" for r in range(4)], "output")
    traces = sorted(glob.glob(t.path("p*.tmk")))
    t.equal([os.path.basename(path)[:2] for path in traces], [f"p{r}" for r in range(4)], "traces")
    ask_per_rank(t, t.imported(*traces))


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
    done = t.run([program], env={**env, "TIDEMARK_OPTIONS": "-o 'two words.tmk'"}, status=0)
    t.check("TIDEMARK_OPTIONS holds options only, with blanks between them: 'words.tmk''" in done.errors, done.errors)


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
        db = t.imported(t.record(["env", f"{rank}=5", f"{local_rank}=1", f"{size}=7", t.program("hello.c")]))
        found = db.rows("select rank, local_rank, world_size from process where exe like '%hello%'")
        t.equal(found, [(5, 1, 7)], f"{rank}, {local_rank}, {size}")


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
