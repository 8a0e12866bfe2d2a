"""The real programs that are recorded: what users run, at sizes of one to three seconds.

programs(work, build, torch) yields those that this machine has. A program is a command, changes of the environment, and for a server a client that
drives it and ends it.
"""
import os
import shutil
import socket
import subprocess
import sys
import time

JSON = """import json
d = [{"id": i, "name": "x" * (i % 50), "list": list(range(i % 20))} for i in range(300)]
for _ in range(800): json.loads(json.dumps(d))"""

SQL = """create table t(a, b);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 1000000) insert into t select i, hex(randomblob(20)) from n;
create index i on t(b); select count(*), sum(length(b)) from t where a % 7 = 3;"""

CXX = """#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>
int main(int n, char **v) {
	std::map<std::string, std::regex> m;
	std::unordered_map<std::string, std::vector<std::function<int(int)>>> f;
	for (int i = 0; i < n; i++) m.emplace(v[i], std::regex(v[i])), f[v[i]].push_back([i](int k) { return i + k; });
	std::vector<std::string> keys;
	for (auto &p : m) keys.push_back(p.first);
	std::sort(keys.begin(), keys.end(), [](auto &a, auto &b) { return a.size() < b.size(); });
	for (auto &k : keys) std::cout << k << f[k].size() << std::regex_replace(k, m[k], "x") << '\\n';
}
"""

TRAIN = """import torch
torch.manual_seed(1)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.Adam(model.parameters())
x, y = torch.randn(128, 256), torch.randint(0, 10, (128,))
for _ in range(200):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
print(round(float(loss), 3))"""


class Program:
    def __init__(self, name, command, env=None, is_python=False, client=None, missing=None):
        self.name, self.command, self.env, self.is_python, self.client = name, command, dict(os.environ, **(env or {})), is_python, client
        self.missing = missing


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def compiler(driver, *names):
    """The compiler behind the driver, by itself: some recorders do not follow children."""
    for name in names:
        found = subprocess.run([driver, f"-print-prog-name={name}"], capture_output=True, text=True, check=False).stdout.strip()
        if os.path.isabs(found):
            return found
    return driver


def history(work):
    """A git repository of 20,000 commits, made by fast-import."""
    repository = f"{work}/history"
    if os.path.isdir(repository):
        return repository
    subprocess.run(["git", "init", "-q", "-b", "main", repository], check=True)
    # Piece by piece: what this process holds counts as the peak of every child that it starts.
    reader = subprocess.Popen(["git", "-C", repository, "fast-import", "--quiet"], stdin=subprocess.PIPE, text=True)
    for i in range(20000):
        text = "".join(f"line {k} of {i % 37} {(i * k) % 101}\n" for k in range(60))
        reader.stdin.write(f"commit refs/heads/main\ncommitter A B <a@example.org> {1600000000 + i} +0000\ndata 8\ncommit {i % 10}\n"
                      f"M 100644 inline file{i % 40}.txt\ndata {len(text)}\n{text}\n")
    reader.stdin.close()
    if reader.wait() != 0:
        raise RuntimeError("git fast-import failed")
    return repository


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def redis_client(port, *options):
    def client():
        for _ in range(500):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        # It asks for ever where the server has gone: then the run failed, and is reported so.
        try:
            subprocess.run(["redis-benchmark", "-h", "127.0.0.1", "-p", str(port), "-q", "-t", "set,get,lpush,hset", *options],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, timeout=180)
        except subprocess.TimeoutExpired:
            pass
        subprocess.run(["redis-cli", "-h", "127.0.0.1", "-p", str(port), "shutdown", "nosave"], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)
    return client


def lacking(*commands):
    absent = [command for command in commands if not shutil.which(command)]
    return f"{' and '.join(absent)} not installed" if absent else None


def programs(work, build, torch):
    """torch: a Python that imports torch, or None. Those that cannot run here say in `missing` why."""
    source = write(f"{work}/a.cc", CXX)
    yield Program("compute (hardly allocates)", [f"{build}/tests/bench/compute"])
    yield Program("sqlite3, 1M rows", ["sqlite3", ":memory:", SQL], missing=lacking("sqlite3"))
    yield Program("clang++ -O2", ["clang++", "-O2", "-std=c++17", "-c", source, "-o", "/dev/null"], missing=lacking("clang++"))
    absent = lacking("g++")
    yield Program("cc1plus -O2", [] if absent else [compiler("g++", "cc1plus"), "-quiet", "-D_GNU_SOURCE", "-O2", "-std=c++17", "-imultiarch", "x86_64-linux-gnu", source,
                                                    "-o", "/dev/null"], missing=absent)
    yield Program("python3 json, malloc", [sys.executable, write(f"{work}/json_loop.py", JSON)], {"PYTHONMALLOC": "malloc"}, is_python=True)
    yield Program("PyTorch CPU training", [torch or "python3", write(f"{work}/train.py", TRAIN)], is_python=True,
                  missing=None if torch else "no Python here imports torch")
    absent = lacking("git")
    yield Program("git log --stat", [] if absent else ["git", "-C", history(work), "--no-pager", "log", "--stat", "-p"], missing=absent)
    # With redis-benchmark's own settings, where a request is mostly system calls; and 16 requests at a time, where it is mostly allocations.
    for name, options in (("redis", ("-n", "60000")), ("redis, pipelined", ("-n", "400000", "-P", "16"))):
        port = free_port()
        yield Program(f"{name}, server CPU", ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
                      client=redis_client(port, *options), missing=lacking("redis-server", "redis-benchmark", "redis-cli"))
