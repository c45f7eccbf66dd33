#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients from PyPI, as they are, against a server with a test-made model: openai, anthropic and ollama here;
with --long earlier versions of them, openai-agents, instructor, litellm, langchain, llm and lm-eval, too.
Every snippet of tests/serve/snippets runs (docs/serving.md shows them) and its output is checked by value.
Code 77 where PyPI cannot be reached.

  tests/serve/clients_test.py [--rapt build/rapt] [--long] [--environments FOLDER]
"""
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from server import (TOOLS_TEMPLATE, Fault, Server, Skip, arguments, equal, expect, rapt_text, read_npy,
                    run_tests, test)

HERE = pathlib.Path(__file__).resolve().parent
# What is installed: names of environments and their packages. Raise the numbers after a look at what changed.
OPENAI = {"openai": ["openai==3.51.0"], "vendors": ["anthropic==2.10.0", "ollama==0.6.3"]}
MORE = {"openai-2": ["openai==2.29.0"], "openai-1": ["openai==1.69.0", "httpx<0.28"],
        "clients": ["litellm==1.106.2", "langchain-openai==1.7.3", "llm==0.32.1", "lm-eval[api]==0.4.13"],
        "tools": ["instructor==1.17.0", "langchain-openai==1.7.3"], "agents": ["openai-agents==0.24.0"],
        "vendors-early": ["anthropic==0.86.0", "ollama==0.6.3", "langchain-ollama==1.1.0", "llm==0.32.1",
                          "llm-ollama==0.16.2", "litellm==1.106.2"]}


class Clients:
    def __init__(self, args, server):
        self.args, self.server = args, server
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="rapt-clients-"))
        self.hello = server.ask("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 20,
            "temperature": 0}).json()["choices"][0]["message"]["content"]

    def environment(self, name):
        """The folder of an environment with its packages, made where it is not there."""
        packages = {**OPENAI, **MORE}[name]
        there = self.args.environments / f"venv-{name}"
        stamp = there / "rapt-packages"
        wanted = " ".join(packages)
        if stamp.exists() and stamp.read_text() == wanted:
            return there
        limit = 120 if name in OPENAI else 1200
        try:
            shutil.rmtree(there, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", there], check=True, capture_output=True,
                           timeout=120)
            subprocess.run([
                there / "bin" / "pip", "install", "-q", "--timeout", "8", "--retries", "1",
                "--disable-pip-version-check", *packages], check=True, capture_output=True, text=True,
                           timeout=limit, env={**os.environ, "PIP_DEFAULT_TIMEOUT": "8"})
        except subprocess.CalledProcessError as e:
            said = e.stderr if isinstance(e.stderr, str) else (e.stderr or b"").decode(errors="replace")
            raise Skip(f"{wanted} cannot be installed: {said.strip().splitlines()[-1:] or e}")
        except (subprocess.TimeoutExpired, OSError) as e:
            raise Skip(f"{wanted} cannot be installed: {e}")
        stamp.write_text(wanted)
        return there

    def run(self, venv, command, folder=None, timeout=180):
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and k != "PYTHONPATH"}
        env |= {
            "PATH": f"{venv / 'bin'}:{os.environ['PATH']}", "HOME": str(self.folder),
            "OPENAI_API_KEY": "none", "LLM_USER_PATH": str(self.folder / "llm"), "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(self.folder / "hf"),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True", "no_proxy": "*"}
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=timeout,
                              env=env, cwd=folder or self.folder)
        if done.returncode != 0:
            raise Fault(
                f"{command[-1]} ended with {done.returncode}:\n{done.stdout[-1500:]}\n{done.stderr[-2500:]}")
        return done.stdout

    def snippet(self, venv, name, timeout=180):
        """A snippet with this server's port in the place of the usual one; what it printed."""
        text = (HERE / "snippets" / name).read_text()
        expect("127.0.0.1:8642" in text, f"{name} names no server")
        file = self.folder / name
        file.write_text(text.replace("127.0.0.1:8642", f"127.0.0.1:{self.server.port}"))
        return self.run(venv,
                        ["bash", "-e", file] if name.endswith(".sh") else [venv / "bin" / "python", file],
                        timeout=timeout)


@test
def curl(c):
    if not shutil.which("curl"):
        raise Skip("there is no curl")
    reply = json.loads(c.snippet(pathlib.Path("/usr"), "curl.sh"))
    equal(reply["choices"][0]["message"]["content"], c.hello)


@test
def openai_by_value(c):
    venv = c.environment("openai")
    print(" ", c.run(venv, [venv / "bin/python", HERE / "openai_client.py",
                            f"http://127.0.0.1:{c.server.port}/v1"]).strip())


@test
def openai_tools(c):
    """Against a template without words for functions, and one with them."""
    venv = c.environment("openai")
    template = c.folder / "template"
    template.write_text(TOOLS_TEMPLATE)
    with Server(c.args, "--cache-type", "f32", "--chat-template", template) as tools:
        for server in (c.server, tools):
            print(" ", c.run(venv, [venv / "bin/python", HERE / "openai_tools_client.py",
                                    f"http://127.0.0.1:{server.port}/v1"]).strip())


@test
def tools_of_other_clients(c):
    long_only(c)
    venv = c.environment("tools")
    print(" ", c.run(venv, [venv / "bin/python", HERE / "tools_clients.py",
                            f"http://127.0.0.1:{c.server.port}/v1"]).strip())


@test
def agents_of_openai(c):
    long_only(c)
    venv = c.environment("agents")
    template = c.folder / "template"
    template.write_text(TOOLS_TEMPLATE)
    with Server(c.args, "--cache-type", "f32", "--chat-template", template) as tools:
        print(" ", c.run(venv, [venv / "bin/python", HERE / "agents_client.py",
                                f"http://127.0.0.1:{tools.port}/v1"]).strip())


@test
def openai_snippets(c):
    venv = c.environment("openai")
    equal(c.snippet(venv, "openai_sync.py"), c.hello + "\n")
    equal(c.snippet(venv, "openai_stream.py"), c.hello + "\n20 tokens\n")
    expect(c.snippet(venv, "openai_async.py").startswith(c.hello + "\n"), "async")
    lines = c.snippet(venv, "openai_logprobs.py").splitlines()
    expect(lines[0].endswith(" None") and float(lines[1].split()[-1]) < 0, lines)
    equal(c.snippet(venv, "openai_embeddings.py"), "2 vectors of 64\n")


@test
def vendors_by_value(c):
    venv = c.environment("vendors")
    for package in ("anthropic", "ollama"):
        print(" ", c.run(venv, [venv / "bin/python", HERE / "vendor_clients.py",
                                f"http://127.0.0.1:{c.server.port}", package]).strip())


@test
def vendors_snippets(c):
    venv = c.environment("vendors")
    equal(c.snippet(venv, "with_anthropic.py"), c.hello + "\n" + c.hello + "\n")
    equal(c.snippet(venv, "with_ollama.py"), c.hello + "\n" + c.hello + "\n")
    equal(c.snippet(c.environment("openai"), "openai_responses.py"), c.hello + "\n")


def long_only(c):
    if not c.args.long:
        raise Skip("left to scripts/test --long clients")


@test
def earlier_versions_of_openai(c):
    long_only(c)
    for name in ("openai-2", "openai-1"):
        venv = c.environment(name)
        print(" ", c.run(venv, [venv / "bin/python", HERE / "openai_client.py",
                                f"http://127.0.0.1:{c.server.port}/v1"]).strip())


@test
def earlier_versions_of_vendors(c):
    long_only(c)
    venv = c.environment("vendors-early")
    print(" ", c.run(venv, [venv / "bin/python", HERE / "vendor_clients.py",
                            f"http://127.0.0.1:{c.server.port}", "anthropic"]).strip())
    lines = c.snippet(venv, "with_langchain_ollama.py").split("\x1e\n")
    equal(lines[:3], [c.hello] * 3)
    equal(c.snippet(venv, "with_llm_ollama.sh").strip("\n"), c.hello.strip("\n"))


@test
def litellm(c):
    long_only(c)
    equal(
        c.snippet(c.environment("clients"), "with_litellm.py").splitlines()[-1:],
        (c.hello + "\n").splitlines()[-1:])


@test
def langchain(c):
    long_only(c)
    equal(c.snippet(c.environment("clients"), "with_langchain.py"), (c.hello + "\n") * 2)


@test
def llm(c):
    long_only(c)
    equal(c.snippet(c.environment("clients"), "with_llm.sh").strip("\n"), c.hello.strip("\n"))


@test
def lm_eval(c):
    """A task of its own, no tokenizer and no data from elsewhere: each sum is that of log-softmax over the
    logits of `rapt logits`."""
    long_only(c)
    venv = c.environment("clients")
    folder = c.folder / "tasks"
    folder.mkdir(exist_ok=True)
    questions = [("The model", [" of attention", " | yes", " zzz"]), ("Größe: ", ["你好", "café", "x"]),
                 ("| `a` |", [" yes |", " no |", "\n"]), ("Attention is", [" all", " the", " 12"])] * 3
    with open(folder / "toy.jsonl", "w") as out:
        for i, (question, choices) in enumerate(questions):
            out.write(json.dumps({"question": question + " a" * i, "choices": choices, "gold": i % 3}) + "\n")
    (folder / "toy.yaml").write_text(
        "task: toy\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: " +
        str(folder / "toy.jsonl") +
        "\ntest_split: test\noutput_type: multiple_choice\ndoc_to_text: question\ndoc_to_choice: choices\n"
        "doc_to_target: gold\ntarget_delimiter: \"\"\nmetric_list:\n  - metric: acc\n    aggregation: mean\n"
        "    higher_is_better: true\nmetadata:\n  version: 1\n")
    c.snippet(venv, "with_lm_eval.sh", timeout=900)
    files = sorted((c.folder / "results").rglob("samples_toy*.jsonl"))
    expect(files, "no samples were written")
    samples = [json.loads(line) for line in files[-1].read_text().splitlines()]
    equal(len(samples), len(questions))
    worst, compared = 0.0, 0
    for sample in samples:
        for name, asked in sample["arguments"].items():
            context, rest = asked["arg_0"], asked["arg_1"]
            told = sample["resps"][int(name.rsplit("_", 1)[1])][0]
            ids = [int(x) for x in rapt_text(c.args, "tokenize", c.args.models.chat, context + rest).split()]
            begin = len(rapt_text(c.args, "tokenize", c.args.models.chat, context).split())
            rows = logits(c, ids)
            total, greedy = 0.0, True
            for row, id in list(zip(rows, ids[1:]))[begin - 1:]:
                top = max(row)
                total += row[id] - top - math.log(math.fsum(math.exp(x - top) for x in row))
                greedy = greedy and row[id] == top
            worst, compared = max(worst, abs(total - float(told[0]))), compared + 1
            equal(str(told[1]), str(greedy), f"greedy of {context!r} {rest!r}")
    print(f"  {compared} sums, largest difference {worst:.2g}")
    expect(compared == 3 * len(questions) and worst <= 1e-5, f"a sum differs by {worst}")


def logits(c, ids):
    with tempfile.TemporaryDirectory() as there:
        rapt_text(c.args, "logits", c.args.models.chat, "--ids", " ".join(map(str, ids)), "--out",
                  f"{there}/l.npy", "-q")
        return read_npy(f"{there}/l.npy")


def main():
    def more(parse):
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
        parse.add_argument("--environments", type=pathlib.Path, default=cache / "rapt" / "clients")
    args = arguments(__doc__, more)
    with Server(args, "--cache-type", "f32") as server:
        clients = Clients(args, server)
        try:
            clients.environment("openai")
        except Skip as s:
            print(f"skipped: {s}")
            return 77
        try:
            code = run_tests(args, clients)
        finally:
            shutil.rmtree(clients.folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
