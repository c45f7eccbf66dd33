# SPDX-License-Identifier: Apache-2.0
# What the tests of `rapt serve` share: toy models made by the program itself, a server started on a free port
# and ended again, a client on plain sockets that hides nothing, and a runner of tests. Standard library only.
import argparse
import array
import contextlib
import fcntl
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
SKIPPED = 77


# ----------------------------------------------------------------------------------------------- the models
TEMPLATE = ("{{ bos_token }}{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
            "{{ message['content'] }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
# The same with words for functions, in the form of many released models.
TOOLS_TEMPLATE = (
    "{{ bos_token }}{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}"
    "<|im_end|>\n{% endif %}{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message.content %}{{ message.content }}{% endif %}"
    "{% for call in message.tool_calls %}{% if message.content or not loop.first %}{{ '\n' }}{% endif %}"
    "<tool_call>\n{\"name\": \"{{ call.function.name }}\", "
    "\"arguments\": {{ call.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
GERMAN = ("ein hund läuft durch den schnee|zwei kinder spielen im garten|eine frau liest ein buch|der mann "
          "trinkt wasser").split("|")
ENGLISH = ("a dog runs through the snow|two children play in the garden|a woman reads a book|the man drinks "
           "water").split("|")
MODELS_VERSION = "3"  # another number: they are made anew


class Models:
    """chat: a decoder with a chat template, two special tokens and a context of 8,192. embed, classify,
    de-en: an encoder, a classifier, an encoder-decoder."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.chat, self.embed = self.folder / "chat", self.folder / "embed"
        self.classify, self.translate = self.folder / "classify", self.folder / "de-en"

    def make(self, rapt):
        self.folder.mkdir(parents=True, exist_ok=True)
        stamp = self.folder / "made"
        with open(self.folder / "lock", "w") as lock:  # tests run side by side; one of them makes the models
            fcntl.flock(lock, fcntl.LOCK_EX)
            if stamp.exists() and stamp.read_text() == MODELS_VERSION:
                return self
            for there in (self.chat, self.embed, self.classify, self.translate):
                shutil.rmtree(there, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=self.folder) as work:
                self.train(str(rapt), pathlib.Path(work))
            stamp.write_text(MODELS_VERSION)
        return self

    def train(self, rapt, work):
        text = "\n\n".join(p.read_text() for p in sorted(SOURCE.glob("docs/*.md")))[:60000]
        (work / "text.txt").write_text(text + "\n" + "Größe, naïve café, 你好世界, 🙂🙃 …\n" * 40)
        for ending, lines in (("de", GERMAN), ("en", ENGLISH)):
            (work / f"train.{ending}").write_text("\n".join(lines * 30) + "\n")

        def train(recipe, *flags):
            out = work / f"out-{len(list(work.iterdir()))}"
            subprocess.run([rapt, "train", recipe, "--out", out, "--eval-batches", "1", "-q", "--json",
                            *" ".join(flags).split()], cwd=work, check=True, stdout=subprocess.DEVNULL)
            return out / "model"

        small = "--set width=32 --set layers=2 --set heads=2 --set ffn=48 --length 64 --batch 4 --steps 20"
        chat = train("llama3", "--data text.txt --set width=64 --set layers=2 --set heads=4 --set kv_heads=1",
                     "--set ffn=96 --set context=8192 --length 64 --steps 250 --rate 0.01 --batch 4",
                     "--vocab bpe --vocab-size 512 --seed 3")
        give_template(chat)
        bert = train("bert", small, "--data text.txt --vocab bytes --set context=64")
        shutil.move(chat, self.chat)
        without_head(bert, self.embed)
        shutil.move(train("bert", small,
                          "--data german=train.de,english=train.en --vocab bytes --set context=64"),
                    self.classify)
        shutil.move(train("transformer-2017", small, "--steps 150 --rate 0.003",
                          "--data train.de,train.en --vocab bytes"),
                    self.translate)


def give_template(folder):
    """The last two pieces of the vocabulary become <|im_start|> and <|im_end|>, and there is a template."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocab, merges = tokenizer["model"]["vocab"], tokenizer["model"]["merges"]
    for name, id in (("<|im_start|>", len(vocab) - 2), ("<|im_end|>", len(vocab) - 1)):
        old = next(text for text, number in vocab.items() if number == id)
        del vocab[old]
        vocab[name] = id
        merges[:] = [m for m in merges if old not in ("".join(m.split(" ") if isinstance(m, str) else m),
                                                      *(m.split(" ") if isinstance(m, str) else m))]
        tokenizer["added_tokens"].append({"id": id, "content": name, "single_word": False, "lstrip": False,
                                          "rstrip": False, "normalized": False, "special": True})
    path.write_text(json.dumps(tokenizer))
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config.update(eos_token="<|im_end|>", chat_template=TEMPLATE)
    path.write_text(json.dumps(config))
    for name in ("config.json", "generation_config.json"):
        path = folder / name
        config = json.loads(path.read_text())
        config["eos_token_id"] = [len(vocab) - 1, 0]
        path.write_text(json.dumps(config))


def without_head(masked, folder):
    """A BERT without its head of masked words: an encoder of sentences."""
    shutil.copytree(masked, folder)
    (folder / "recipe.json").unlink(missing_ok=True)
    file = folder / "model.safetensors"
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    kept, weights = {}, b""
    for name, t in json.loads(data[8:8 + size]).items():
        if name == "__metadata__" or name.startswith("cls."):
            continue
        begin, end = t["data_offsets"]
        t["data_offsets"] = [len(weights), len(weights) + end - begin]
        kept[name] = t
        weights += data[8 + size + begin:8 + size + end]
    header = json.dumps(kept).encode()
    header += b" " * (-len(header) % 8)
    file.write_bytes(len(header).to_bytes(8, "little") + header + weights)


# ----------------------------------------------------------------------------------------------- the program
def arguments(about, more=None):
    parse = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--rapt", type=pathlib.Path, default=SOURCE / "build" / "rapt")
    parse.add_argument("--models", type=pathlib.Path, help="where the toys are, or are made")
    parse.add_argument("--long", action="store_true", default=bool(os.environ.get("RAPT_LONG")))
    parse.add_argument("--only", default="", help="a pattern: tests whose names hold it")
    if more:
        more(parse)
    args = parse.parse_args()
    args.rapt = args.rapt.resolve()
    if not args.rapt.exists() or subprocess.run([args.rapt, "help", "serve"],
                                                capture_output=True).returncode != 0:
        print(f"{args.rapt} is not built, or has no `serve`: skipped")
        sys.exit(SKIPPED)
    args.models = Models(args.models or args.rapt.parent / "serve-models").make(args.rapt)
    return args


def rapt_text(args, *words, input=None):
    done = subprocess.run([args.rapt, *map(str, words)], input=input, capture_output=True, text=True,
                          timeout=120)
    if done.returncode != 0:
        raise Fault(f"rapt {' '.join(map(str, words))} ended with {done.returncode}: {done.stderr[-400:]}")
    return done.stdout


def rapt_json(args, *words, input=None):
    return json.loads(rapt_text(args, *words, "--json", "-q", input=input))


def rapt_lines(args, *words, input=None):
    return [json.loads(line) for line in rapt_text(args, *words, "--json", "-q", input=input).splitlines()]


def read_npy(path):
    """Rows of an array [rows, columns] of f32."""
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack("<H", data[8:10])[0] if data[6] == 1 else struct.unpack("<I", data[8:12])[0]
    begin = (10 if data[6] == 1 else 12) + size
    head = data[10 if data[6] == 1 else 12:begin].decode()
    assert "'<f4'" in head and "True" not in head, head
    shape = [int(n) for n in re.search(r"\(([^)]*)\)", head)[1].split(",") if n.strip()]
    values = array.array("f", data[begin:])
    columns = shape[-1]
    return [values[i:i + columns] for i in range(0, len(values), columns)]


class Server:
    """`rapt serve`, on a free port unless flags say otherwise; ended by stop() or the end of a with."""

    def __init__(self, args, *flags, models=None, quiet=True, env=None, wrap=(), files=None, stderr=None,
                 wait=60):
        self.log = tempfile.TemporaryFile()
        words = [*wrap, args.rapt, "serve", *(models if models is not None else [f"chat={args.models.chat}"]),
                 *flags]
        if not any(str(f).split("=")[0] in ("--port", "--unix", "--config") for f in flags):
            words += ["--port", "0"]
        if quiet:
            words.append("--quiet")
        before = None
        if files:
            import resource
            before = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("RAPT_SERVE", "RAPT_API"))}
        self.process = subprocess.Popen(list(map(str, words)), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=stderr or self.log,
                                        env={**clean, **(env or {})}, preexec_fn=before)
        self.words, self.port, self.path, self.line = words, None, None, ""
        self.pid = self.process.pid
        timer = threading.Timer(wait, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                line = line.decode()
                if m := re.match(r"listening (at|on) (\S+)", line):
                    self.line = line
                    if m[1] == "on":
                        self.path = m[2]
                    else:
                        self.port = int(m[2].rsplit(":", 1)[1])
                    break
        finally:
            timer.cancel()
        if wrap:  # signals are for the server, not for who watches it
            children = pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
            self.pid = int(children[0]) if children else self.pid
        if not self.line:
            self.process.wait()
            raise Fault(f"the server did not start (code {self.process.returncode}): {self.errors()[-800:]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def errors(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def alive(self):
        return self.process.poll() is None

    def signal(self, number):
        os.kill(self.pid, number)

    def stop(self, patience=15):
        """The exit code after SIGTERM; killed where it does not end."""
        if self.alive():
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                return "killed"
        if not self.process.stdout.closed:
            self.process.stdout.close()
        return self.process.returncode

    def memory(self):
        """Resident bytes."""
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    # --- asking
    def connect(self, source=None, timeout=30):
        if self.path:
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(timeout)
            s.connect(self.path)
            return s
        s = socket.create_connection(("127.0.0.1", self.port), timeout,
                                     source_address=(source, 0) if source else None)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def host(self):
        return f"127.0.0.1:{self.port}" if self.port else "localhost"

    def ask(self, path, body=None, method=None, headers=None, source=None, timeout=60):
        """One request on a connection of its own, read to its end."""
        with contextlib.closing(self.connect(source, timeout)) as s:
            s.sendall(message(self.host(), path, body, method, headers))
            return read_reply(s, (method or ("GET" if body is None else "POST")) == "HEAD")

    def raw(self, data, timeout=5, half=False):
        """Everything that comes back to these bytes until the other side closes, or until it is quiet."""
        out = b""
        with contextlib.closing(self.connect(timeout=timeout)) as s:
            try:
                s.sendall(data)
                if half:
                    s.shutdown(socket.SHUT_WR)
                while piece := s.recv(65536):
                    out += piece
            except (TimeoutError, ConnectionError):
                pass
        return out

    def metrics(self, key=None):
        text = self.ask("/metrics", headers={"Authorization": f"Bearer {key}"} if key else None).text()
        return {m[1]: float(m[2]) for m in re.finditer(r"^([^#\s]\S*(?:\{[^}]*\})?) (\S+)$", text, re.M)}

    def metric(self, name, **labels):
        """The sum of a metric over what its labels leave open."""
        total = 0
        for key, value in self.metrics().items():
            if key.split("{")[0] == name and all(f'{k}="{v}"' in key for k, v in labels.items()):
                total += value
        return total


def message(host, path, body=None, method=None, headers=None):
    """The bytes of a request. body: bytes, text, or a value that becomes JSON."""
    if body is not None and not isinstance(body, (bytes, str)):
        body = json.dumps(body)
    if isinstance(body, str):
        body = body.encode("utf-8", "surrogatepass")
    lines = {"Host": host}
    if body is not None:
        lines |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    lines |= headers or {}
    head = f"{method or ('GET' if body is None else 'POST')} {path} HTTP/1.1\r\n"
    head += "".join(f"{k}: {v}\r\n" for k, v in lines.items() if v is not None)
    return head.encode("latin-1") + b"\r\n" + (body or b"")


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body  # headers: names in lower case

    def text(self):
        return self.body.decode()

    def json(self):
        return json.loads(self.body)

    def events(self):
        return events_of(self.body)

    def chunks(self):
        """The JSON of a stream's events, without [DONE]; raises where it is not at the end."""
        events = self.events()
        if not events or events[-1] != "[DONE]":
            raise Fault(f"a stream does not end with [DONE]: {self.body[-300:]!r}")
        return [json.loads(e) for e in events[:-1]]

    def error(self):
        return self.json()["error"]

    def __repr__(self):
        return f"{self.status} {self.body[:400]!r}"


def read_reply(s, head_only=False):
    """One reply from a socket: status, headers, body by its length, its chunks, or the connection's end."""
    r = http.client.HTTPResponse(s, method="HEAD" if head_only else None)
    r.begin()
    headers = {}
    for k, v in r.getheaders():
        headers[k.lower()] = v
    return Reply(r.status, headers, r.read())


def events_of(body):
    """The data of each event; only comments, data and empty lines may stand in a stream."""
    if not body.endswith(b"\n\n"):
        raise Fault(f"a stream does not end with an empty line: {body[-80:]!r}")
    out = []
    for block in body[:-2].decode().split("\n\n"):
        if block == ":":
            continue
        if not block.startswith("data: ") or "\n" in block or "\r" in block:
            raise Fault(f"an event that is no line of data: {block[:200]!r}")
        out.append(block[6:])
    return out


# ------------------------------------------------------------------------------------------------ the runner
class Fault(Exception):
    pass


class Skip(Exception):
    pass


def expect(condition, *what):
    if not condition:
        raise Fault(" ".join(str(w) for w in what))


def equal(got, wanted, what=""):
    if got != wanted:
        raise Fault(f"{what}\n    got    {str(got)[:600]}\n    wanted {str(wanted)[:600]}")


def near(got, wanted, within, what=""):
    if not len(got) == len(wanted):
        raise Fault(f"{what}: {len(got)} values, {len(wanted)} wanted")
    for i, (a, b) in enumerate(zip(got, wanted)):
        if not abs(a - b) <= within:
            raise Fault(f"{what}: value {i} is {a}, {b} wanted")


TESTS = []


def test(f):
    TESTS.append(f)
    return f


def good(reply):
    if reply.status != 200:
        raise Fault(f"status {reply.status}: {reply.body[:500]!r}")
    return reply


def refused(reply, status, code=None, param=None):
    equal(reply.status, status, reply.body[:300])
    e = reply.error()
    if code:
        equal(e["code"], code, e["message"])
    if param:
        equal(e["param"], param, e["message"])
    return e


def run_tests(args, *given):
    """Every test that was marked, with what it asks for; the exit code."""
    passed, failed, skipped = 0, [], 0
    for f in TESTS:
        if args.only and not re.search(args.only, f.__name__):
            continue
        began = time.monotonic()
        try:
            f(*given)
            passed += 1
            word, why = "[  OK  ]", ""
        except Skip as s:
            skipped += 1
            word, why = "[ SKIP ]", f": skipped, {s}"
        except Fault as fault:
            failed.append(f.__name__)
            word, why = "[FAILED]", f": {fault}"
        except Exception:
            failed.append(f.__name__)
            word, why = "[FAILED]", ": " + traceback.format_exc(limit=-4)
        print(f"{word} {f.__name__} ({time.monotonic() - began:.1f} s){why}", flush=True)
    print(f"{passed} passed, {len(failed)} failed, {skipped} skipped" +
          "".join(f"\n  failed: {name}" for name in failed))
    return 1 if failed else 0
