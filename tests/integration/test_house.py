"""What a newcomer meets: the README tells the truth, the manual lists every option, an installed tree works where it is moved to."""
import glob
import hashlib
import os
import re
import shutil
import sqlite3

from tidemark_test import ROOT, main, test


def text_of(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def options_of(help_text):
    return set(re.findall(r"^\s+(?:-\w, )?(--[a-z][a-z-]*)", help_text, re.M))


@test
def readme_transcript(t):
    """The commands in the README give what it shows: line by line where the planted functions or the recording's counts are named."""
    if t.sanitized:
        t.skip("the transcript is made without sanitizers")
    page = t.path("README.md")
    shutil.copy(os.path.join(ROOT, "README.md"), page)
    t.run([os.path.join(ROOT, ".ci/transcript"), page], status=0)
    pick = lambda text: [re.sub(r"\s+", " ", line) for line in text.split("<!-- transcript -->")[1].split("<!-- end")[0].splitlines()
                         if re.search(r"\$ |parse|remember|build_index|events  |lost  ", line)]
    with open(page, encoding="utf-8") as file:
        made = pick(file.read())
    t.check(len(made) > 15, f"too little was picked: {made}")
    # How many bytes libc holds and how the trace compresses differ from machine to machine, what the program did does not.
    t.equal(made, pick(text_of("README.md")), "the transcript (.ci/transcript README.md renews it)")


@test
def readme_links(t):
    for link in re.findall(r"\]\(([^)#]+)\)", text_of("README.md")):
        t.check(os.path.exists(os.path.join(ROOT, link)), f"README.md links to {link}, which does not exist")
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.M))
    for target in re.findall(r"`make ([a-z -]+)`", text_of("README.md")) + re.findall(r"^ {4}make ([a-z ]+?)\s{2,}", text_of("README.md"), re.M):
        t.check(set(target.split()) <= targets, f"README.md says make {target}")
    t.check("make deps check" in text_of("README.md") and "make deps check" in text_of(".ci/run"), ".ci/run calls what the README says")


@test
def manual_lists_every_option(t):
    manual = text_of("recorder/tidemark-record.1").replace("\\", "")
    for option in options_of(t.run([t.recorder, "--help"], status=0).text):
        t.check(option in manual, f"tidemark-record.1 lacks {option}")
    manual = text_of("analyzer/tidemark.1").replace("\\", "")
    verbs = re.findall(r"^  ([a-z]+)  ", t.run([t.tidemark, "--help"], status=0).text, re.M)
    t.check(len(verbs) >= 12, f"verbs: {verbs}")
    for verb in verbs:
        t.check(f"\n.B {verb}\n" in manual, f"tidemark.1 lacks {verb}")
        t.check(f"tidemark {verb}" in text_of("README.md"), f"README.md lacks {verb}")
    for option in options_of(t.run([t.tidemark, "leaks", "--help"], status=0).text) - {"--stack"}:
        t.check(option in manual, f"tidemark.1 lacks {option}")


@test
def manual_is_well_formed(t):
    t.need("man")
    for page in ("analyzer/tidemark.1", "recorder/tidemark-record.1"):
        done = t.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", os.path.join(ROOT, page)])
        t.equal(done.errors, "", f"warnings about {page}")


@test
def completion(t):
    t.need("bash")
    script = f"""source '{ROOT}/analyzer/tidemark.bash'
try() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _tidemark; echo "${{COMPREPLY[@]}}"; }}
try tidemark lea; try tidemark-record --sta; try tidemark leaks --lim; try tidemark record --stacks = f
try tidemark leaks run.db --format = j; try tidemark snapshot run.db --by = fu; try tidemark top --by = s; try tidemark export sp
try tidemark-record names --d; try tidemark-record --port; try tidemark export {t.dir}/ru
try tidemark record --stacks f; try tidemark leaks run.db --format =; try tidemark leaks run.db --suppressions = {t.dir}/ru; try tidemark leaks --all {t.dir}/ru
try tidemark record -o {t.dir}/ru; try tidemark-record -o bas; try tidemark snapshot run.db --by = a; try tidemark export folded --value = te"""
    with open(t.path("run.db"), "wb"):
        pass
    for columns in ("", "40"):
        lines = t.run(["bash", "-c", script], status=0, env={"COLUMNS": columns}).text.splitlines()
        t.equal(lines, ["leaks", "--stacks", "--limit", "fp", "json", "function", "site scope", "speedscope", "--debug-dir --debuginfod", "", t.path("run.db"),
                        "fp", "table json csv", t.path("run.db"), t.path("run.db"), t.path("run.db"), "", "age", "temporary"],
                f"completions, COLUMNS={columns}")


@test
def installed_and_moved(t):
    t.need("make")
    if t.sanitized:
        t.skip("an installation with sanitizers is nobody's")
    tree = t.path("a tree")
    t.run(["make", "-C", ROOT, f"BUILD={t.build}", "install", "PREFIX=/opt/tidemark", f"DESTDIR={tree}"], status=0)
    moved = t.path("elsewhere")
    os.rename(os.path.join(tree, "opt/tidemark"), moved)
    tidemark = os.path.join(moved, "bin/tidemark")
    t.run([tidemark, "record", "--quiet", "-o", t.path("i.tmk"), "--", t.program("leak.c")], status=0)
    leaks = t.run([tidemark, "leaks", t.path("i.tmk"), "--format=csv"], status=0)
    t.check("remember" in leaks.text and "51200" in leaks.text, f"leaks: {leaks.text}")
    os.makedirs(os.path.join(tree, "opt"), exist_ok=True)
    os.rename(moved, os.path.join(tree, "opt/tidemark"))
    t.run(["make", "-C", ROOT, f"BUILD={t.build}", "uninstall", "PREFIX=/opt/tidemark", f"DESTDIR={tree}"], status=0)
    left = [path for path in glob.glob(tree + "/**", recursive=True) if os.path.isfile(path)]
    t.equal(left, [], "files left by uninstall")


@test
def a_build_is_the_same_by_any_name(t):
    """A changed header makes the same work, whether BUILD is given relative or absolute."""
    t.need("make")
    would = ["make", "-C", ROOT, "-n", "-W", "schema/kinds.h", "all"]
    relative, absolute = (t.run([*would, f"BUILD={path}"], status=0).text for path in (os.path.relpath(t.build, ROOT), os.path.abspath(t.build)))
    t.check(" -c " in relative, f"schema/kinds.h makes nothing anew: {relative}")
    t.equal(absolute, relative, "the work")


@test
def make_bench_builds_what_it_runs(t):
    """In a tree where nothing is built yet, each of our programs that a file of tests/bench names is linked before the harness starts."""
    t.need("make")
    does = t.run(["make", "-C", ROOT, "-n", "BUILD=none", "bench"], status=0).text.split("python3 tests/bench/run.py")[0]
    sources = [open(path, encoding="utf-8").read() for path in glob.glob(os.path.join(ROOT, "tests/bench/*.py"))]
    runs = {program for source in sources for program in re.findall(r"\{build\}/(tests/\w+/\w+)", source)}
    t.check("tests/integration/big_trace" in runs and "tests/bench/pairs" in runs, f"what is run: {runs}")
    t.equal([program for program in sorted(runs) if f" -o none/{program} " not in does], [], "what is run and not built")


@test
def a_clone_whose_path_has_spaces(t):
    """It is built as any other, and `make clean` removes nothing of what lies beside it; where make would take BUILD for several names, it says so."""
    t.need("make")
    clone = t.path("a b  c/tidemark")
    os.makedirs(clone)
    shutil.copy(os.path.join(ROOT, "Makefile"), clone)
    for part in ("schema", "recorder", "analyzer", "report"):
        os.symlink(os.path.join(ROOT, part), os.path.join(clone, part))
    here, there = (t.run(["make", "-C", place, "-n", "BUILD=none", "all"], status=0).text.splitlines() for place in (ROOT, clone))
    t.check(any(" -c " in line for line in here), f"nothing would be built: {here[:5]}")
    t.equal(there[1:-1], here[1:-1], "what would be done")  # without make's lines about directories
    for build in ("", "build", "./build/", f"{clone}/build"):
        cleaned = t.run(["make", "-C", clone, "-n", "--no-print-directory", "clean"], env={"BUILD": build or None}, status=0)
        t.equal(cleaned.text, "rm -rf build\n", f"make clean BUILD={build}")
    refused = t.run(["make", "-C", clone, "-n", "clean", f"BUILD={t.path('a b')}"], status=2)
    t.check("cannot build in '" in refused.errors and "rm -" not in refused.text, f"{refused.text}{refused.errors}")


@test
def nothing_missing_says_nothing(t):
    """deps with everything there: no word, no network (there is no apt-get to call)."""
    t.need("dpkg-query")
    bin_directory = t.path("bin")
    os.mkdir(bin_directory)
    for tool in ("dpkg-query", "grep", "id", "sh"):
        os.symlink(shutil.which(tool), os.path.join(bin_directory, tool))
    done = t.run(["sh", os.path.join(ROOT, ".ci/install-packages"), "dpkg grep", "sed"], env={"PATH": bin_directory}, status=0)
    t.equal(done.out + done.err, b"", "output")
    done = t.run(["sh", os.path.join(ROOT, ".ci/install-packages"), "no-such-package-x", ""], env={"PATH": bin_directory})
    t.check(done.status == 1 and "no-such-package-x" in done.errors, f"what cannot be had is named: {done.errors}")


# The names of the columns of tables and views, as a number, of that version of the schema.
COLUMNS_OF = (12, "9fcd56810fb15d91")


@test
def a_schema_version_stands_for_its_columns(t):
    """A database that another tidemark made is refused by its version: whoever changes a column raises TM_SCHEMA_VERSION, and this pair."""
    version = int(re.search(r"#define TM_SCHEMA_VERSION (\d+)", text_of("analyzer/store.h"))[1])
    db = sqlite3.connect(":memory:")
    db.executescript(text_of("schema/tables.sql") + text_of("schema/views.sql"))
    names = db.execute("SELECT type, name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY name").fetchall()
    columns = [(kind, name, [row[1] for row in db.execute(f"PRAGMA table_info('{name}')")]) for kind, name in names]
    t.check(len(columns) > 60 and all(of for _, _, of in columns), f"too little was found: {names}")
    t.equal((version, hashlib.sha256(repr(columns).encode()).hexdigest()[:16]), COLUMNS_OF, "version and columns")


@test
def sources_keep_to_the_style(t):
    for pattern in ("schema/*.[ch]", "recorder/*.h", "recorder/*/*.[ch]", "analyzer/*.[ch]", "tests/*/*.[ch]"):
        for path in glob.glob(os.path.join(ROOT, pattern)):
            text = text_of(path)
            t.check(text.startswith("/*"), f"{path} does not begin with a comment")
            t.check(text.count("\n") < 900, f"{path} has {text.count(chr(10))} lines")
            long = [i + 1 for i, line in enumerate(text.splitlines()) if len(line.expandtabs(8)) > 160]
            t.equal(long, [], f"{path}: lines that are too long")
            t.check(not re.search(r"\b(TODO|FIXME|XXX)\b", text), f"{path} has a placeholder")


@test
def a_pattern_that_matches_no_test_fails(t):
    """Else who mistypes it, in CI as well, is told that nothing failed."""
    page = t.run(["python3", os.path.join(ROOT, "tests/run.py"), f"--build={t.path('empty')}", "--only=no_such_test"], status=1).text
    t.check("no test's name matches 'no_such_test'" in page, page)


main()
