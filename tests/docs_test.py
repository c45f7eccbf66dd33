#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command of README.md, docs/*.md and their like: its verb and flags exist, and it runs.

A block of commands (```sh) has a mark before it:
  <!-- run: quick -->     runs here, on toy models that this test makes under the names that the docs use
  <!-- run: long -->      runs only with --long: real models of RAPT_MODELS, where there are such, before
                          the toys
  <!-- run: no (why) -->  does not run; its verbs and flags are still checked
After quick or long come changes that scale the block, with bars between them:
  | --steps 2000 => --steps 5    one text for another, in every command of the block
  | skip scripts/get-models      commands that begin so are left out
A block may have two marks, one for each form; with quick alone the long form runs it the same way. A block
without a mark fails, so do commands that stand in an indented block. Commands of one file run in one folder,
one after the other, with "Hello" as standard input.

  tests/docs_test.py [--build DIR] [--long] [--keep] [FILE.md …]
"""
import argparse
import gzip
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^(`{3,})(\w*)\s*$")
MARK = re.compile(r"<!--\s*run:\s*(.*?)\s*-->", re.S)
PROGRAM = re.compile(r"^(build/|\./)?rapt(\s|$)")


class Mark:
    def __init__(self, text, where):
        parts = [p.strip() for p in re.split(r"\s\|\s", text)]
        self.kind, _, rest = parts[0].partition(" ")
        if (self.kind not in ("quick", "long", "no") or (self.kind != "no" and rest)
            or (self.kind == "no" and not rest.strip("() "))):
            raise Fault(f"{where}: the mark '{text}' is none of 'quick', 'long', 'no (why)'")
        self.changes, self.skips = [], []
        for p in parts[1:]:
            if p.startswith("skip "):
                self.skips.append(p[5:])
            elif "=>" in p:
                a, b = p.split("=>", 1)
                self.changes.append((a.strip(), b.strip()))
            else:
                raise Fault(f"{where}: '{p}' in a mark is neither 'A => B' nor 'skip COMMAND'")


class Fault(Exception):
    pass


class Block:
    def __init__(self, path, line, marks):
        self.path, self.line, self.marks, self.commands = path, line, marks, []  # commands: (line, text)

    def mark(self, long):
        kinds = {m.kind: m for m in self.marks}
        return kinds.get("no") or (kinds.get("long") or kinds.get("quick") if long else kinds.get("quick"))


def read_blocks(path, name, faults):
    """The blocks of commands of a file, and (line, text) of commands inside a sentence."""
    blocks, inline = [], []
    fence = block = None
    marks, comment, comment_line, command, command_line = [], None, 0, "", 0
    for n, line in enumerate(path.read_text().splitlines(), 1):
        at = f"{name}:{n}"
        if fence:
            if line.startswith(fence):
                fence = block = None
                marks = []
            elif block:
                command_line = command_line if command else n
                command += line
                if command.endswith("\\"):
                    command = command[:-1] + " "
                    continue
                if command.strip() and not command.lstrip().startswith("#"):
                    block.commands.append((command_line, command.strip()))
                command = ""
            elif PROGRAM.match(line.strip()):
                faults.append(
                    f"{at}: a command in a block that is not ```sh; such a block has a mark before it: <!-- "
                    "run: quick -->")
            continue
        if comment is not None or line.lstrip().startswith("<!--"):
            if comment is None:
                comment, comment_line = "", n
            comment += line + "\n"
            if "-->" in line:
                found = MARK.search(comment)
                comment = None
                if found:
                    try:
                        marks.append(Mark(" ".join(found[1].split()), f"{name}:{comment_line}"))
                    except Fault as f:
                        faults.append(str(f))
            continue
        start = FENCE.match(line.strip())
        if start:
            fence = start[1]
            if start[2] in ("sh", "bash", "console"):
                if not marks:
                    faults.append(
                        f"{at}: this block of commands has no mark; put <!-- run: quick -->, <!-- run: long "
                        "--> or "
                                  "<!-- run: no (why) --> before it (tests/docs_test.py says how)")
                block = Block(name, n, marks)
                blocks.append(block)
            continue
        if line.startswith("    ") and PROGRAM.match(line.strip()):
            faults.append(
                f"{at}: a command in an indented block; write it as ```sh with a mark before it: <!-- run: "
                "quick -->")
        if line.strip():
            marks = []
        inline += [(n, span) for span in re.findall(r"`([^`]+)`", line) if PROGRAM.match(span)]
    return blocks, inline


class Program:
    """Its verbs and flags, as the program itself tells them to a shell."""

    def __init__(self, path):
        self.path = path
        self.verbs, self.other = {}, {"--help", "-h"}
        for line in self.ask("completions", "fish").splitlines():
            if m := re.match(r"complete -c rapt -n __fish_use_subcommand -a (\S+)", line):
                self.verbs[m[1]] = set()
            elif m := re.match(
                    r"complete -c rapt -n '__fish_seen_subcommand_from (\S+)' -l (\S+)(?: -s (\S))?", line):
                self.verbs[m[1]] |= {"--" + m[2]} | ({"-" + m[3]} if m[3] else set())
        for line in self.ask("help", "flags").splitlines():
            self.other |= set(re.findall(r"--?[a-z][a-z-]*",
                                         line.split("(also", 1)[1])) if "(also" in line else set()

    def ask(self, *words):
        return subprocess.run([self.path, *words], check=True, capture_output=True, text=True).stdout

    def fault_of(self, command):
        """What is wrong with the verb or a flag of a command, or None. Every rapt in it is looked at: pipes,
        lists, loops, $(…)."""
        inner = []
        while m := re.search(r"[$<]\(([^()]*)\)", command):
            inner.append(m[1])
            command = command[:m.start()] + "X" + command[m.end():]
        for part in [p for c in [command, *inner] for p in re.split(r"\|\|?|&&|;|\bdo\b|\bthen\b", c)]:
            try:
                words = shlex.split(part.replace("…", " "), comments=True)
            except ValueError:  # a quote that a split tore apart
                words = part.split()
            while words and (re.match(r"^\w+=", words[0]) or words[0] in ("exec", "time", "!")):
                words.pop(0)
            if not words or not PROGRAM.match(words[0]) or len(words) < 2:
                continue
            verb = words[1]
            if verb in ("--version", "--help", "-h", "-V", "VERB") or not re.match(r"^[a-z]+$", verb):
                continue
            if verb not in self.verbs:
                return f"there is no verb '{verb}'"
            for word in words[2:]:
                if word == "--":
                    break
                flag = word.split("=", 1)[0]
                if re.match(r"^--?[a-z]", flag) and flag not in self.verbs[verb] | self.other:
                    return f"rapt {verb} has no flag {flag}"
        return None


GERMAN = ("ein hund läuft durch den schnee|zwei kinder spielen im garten|eine frau liest ein buch|der mann "
          "trinkt wasser").split("|")
ENGLISH = ("a dog runs through the snow|two children play in the garden|a woman reads a book|the man drinks "
           "water").split("|")


def make_data(folder):
    """The files that the docs name, small; text is this project's own."""
    text = "\n\n".join(p.read_text() for p in sorted(SOURCE.glob("docs/*.md")) if p.name != "lab.md")[:60000]
    for name in ("shakespeare.txt", "tinyshakespeare.txt", "text.txt", "long.txt", "book.txt", "valid.txt",
                 "wiki.test.raw", "TEXT", "FILE"):
        (folder / name).write_text(text)
    (folder / "article.txt").write_text(text[:300])
    (folder / "lines.txt").write_text("\n".join(ENGLISH) + "\n")
    (folder / "masks.txt").write_text("\n".join(line.replace("the", "[MASK]") for line in ENGLISH
                                                if "the" in line) + "\n")
    (folder / "books").mkdir()
    (folder / "books" / "one.txt").write_text(text)
    for stem in ("train", "val", "test", "test_2016_flickr"):
        for ending, lines in (("de", GERMAN), ("en", ENGLISH)):
            lines = "\n".join(lines * (30 if stem == "train" else 3)) + "\n"
            (folder / f"{stem}.{ending}").write_text(lines)
            with gzip.open(folder / f"{stem}.{ending}.gz", "wt") as out:
                out.write(lines)


def sentence_encoder(masked, folder):
    """A BERT without its head of masked words."""
    shutil.copytree(masked, folder)
    (folder / "recipe.json").unlink()
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


def make_models(rapt, folder, made, data):
    """Toys under the names of the docs, each trained for a step or two by the program itself."""
    small = ("--set width=32 --set layers=2 --set heads=2 --set ffn=48 --length 64 --steps 2 --batch 4 "
             "--eval-batches 1 -q --json").split()
    bpe = ["--vocab", "bpe", "--vocab-size", "300"]
    pairs = ["--data", "train.de,train.en", "--held-out", "val.de,val.en"]

    def train(recipe, name, *more):
        subprocess.run([rapt, "train", recipe, "--out", made / name, *small, *more], cwd=data, check=True,
                       stdout=subprocess.DEVNULL)
        return made / name / "model"

    llama = train("llama3", "shakespeare", "--data", "text.txt", "--set", "kv_heads=1", "--set",
                  "context=256", *bpe)
    gemma = train("gemma3", "gemma", "--data", "text.txt", "--set", "kv_heads=1", "--set", "head_dim=16",
                  "--set", "layers=6", *bpe)
    for model, names in ((llama, ("SmolLM2-135M-Instruct.Q4_1.gguf", "model.gguf")),
                         (gemma, ("gemma-3-270m-q4_k_m.gguf",))):
        for name in names:
            subprocess.run([rapt, "convert", model, folder / name, "-q"], check=True)
    bert = train("bert", "bert", "--data", "text.txt", "--vocab", "bytes", "--set", "context=64")
    shutil.copytree(bert, folder / "bert-base-uncased")
    sentence_encoder(bert, folder / "all-MiniLM-L6-v2")
    train("bert", "language", "--data", "german=train.de,english=train.en", "--vocab", "bytes", "--set",
          "context=64")
    both = train("transformer-2017", "de-en", *pairs, "--vocab", "bytes")
    for name in ("opus-mt-de-en", "opus-mt-en-de", "t5-small"):
        shutil.copytree(both, folder / name)


class Stage:
    """A folder with everything that the commands of one file need."""

    def __init__(self, root, rapt, long):
        self.rapt, self.long, self.root = rapt, long, root
        self.data, self.models, self.home = root / "data", root / "models", root / "home"
        for p in (self.data, self.models, self.home):
            p.mkdir()
        make_data(self.data)
        make_models(rapt, self.models, root / "made", self.data)
        self.places = str(self.models)
        if long and os.environ.get("RAPT_MODELS"):
            self.places = os.environ["RAPT_MODELS"] + ":" + self.places
            for folder in os.environ["RAPT_MODELS"].split(":"):
                for p in pathlib.Path(folder).iterdir():
                    there = self.models / p.name
                    if there.is_dir() and not there.is_symlink():
                        shutil.rmtree(there)
                    elif there.exists():
                        there.unlink()
                    if not p.name.startswith("."):
                        there.symlink_to(p)
        (self.home / "models").symlink_to(self.models)

    def folder(self, name, text):
        there = self.root / re.sub(r"\W", "_", name)
        shutil.copytree(self.data, there, symlinks=True)
        (there / "build").symlink_to(self.rapt.parent)
        (there / "scripts").symlink_to(SOURCE / "scripts")
        # What docs write where any model may stand.
        toy = self.models / "SmolLM2-135M-Instruct.Q4_1.gguf"
        for placeholder in ("MODEL", "IN", "model.gguf", "model-f16.gguf", "IN.gguf"):
            (there / placeholder).symlink_to(toy)
        subprocess.run([self.rapt, "quantize", toy, there / "model-q4_0.gguf", "--type", "q4_0", "-q"],
                       check=True)
        shutil.copytree(self.root / "made" / "shakespeare" / "model", there / "FOLDER")
        # Trainings that the docs speak of, but for those that they make.
        for run in ("shakespeare", "bert", "language", "de-en"):
            if f"--out out/{run}" not in text:
                shutil.copytree(self.root / "made" / run, there / "out" / run)
        return there

    def run(self, block, mark, folder):
        """Failures of a block's commands, as text."""
        script, where = ["set -e -o pipefail"], []
        (folder / ".hello").write_text("Hello\n")
        for line, text in block.commands:
            command = text
            for a, b in mark.changes:
                command = command.replace(a, b)
            if any(command.startswith(s) or text.startswith(s) for s in mark.skips):
                continue
            script.append(f"echo {len(where)} > .at\n{{ {command}\n}} < .hello")
            where.append((line, command))
        if not where:
            raise Fault(f"{block.path}:{block.line}: the mark leaves no command of this block")
        env = dict(os.environ, PATH=f"{self.rapt.parent}:{os.environ['PATH']}", HOME=str(self.home),
                   RAPT_MODELS=self.places)
        env.setdefault("RAPT_THREADS", "2")
        try:
            done = subprocess.run(["bash", "-c", "\n".join(script)], cwd=folder, env=env, capture_output=True,
                                  text=True, errors="replace",
                                  timeout=1200 if self.long else 120)
            if done.returncode == 0:
                return len(where)
            reason = f"ended with {done.returncode}"
            said = done.stderr.strip().splitlines()[-6:]
        except subprocess.TimeoutExpired:
            reason, said = "did not end in time", []
        line, command = where[int((folder / ".at").read_text())]
        raise Fault("\n    ".join([f"{block.path}:{line}: {command}", reason] + said))


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--build", type=pathlib.Path, default=SOURCE / "build")
    parse.add_argument("--long", action="store_true", default=bool(os.environ.get("RAPT_LONG")))
    parse.add_argument("--keep", action="store_true", help="the folder of the test stays")
    parse.add_argument("files", nargs="*", type=pathlib.Path)
    args = parse.parse_args()
    rapt = (args.build / "rapt").resolve()
    if not rapt.exists():
        print(f"{rapt} is not built: skipped")
        return 77
    files = args.files or [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md",
                           SOURCE / "models/default/README.md", SOURCE / "bench/README.md",
                           *sorted(SOURCE.glob("docs/**/*.md"))]
    program, faults, blocks, checked, ran = Program(rapt), [], {}, 0, 0
    for path in files:
        name = str(path.resolve().relative_to(SOURCE)) if path.resolve().is_relative_to(SOURCE) else str(path)
        blocks[name], inline = read_blocks(path, name, faults)
        for line, text in inline + [c for b in blocks[name] for c in b.commands]:
            checked += 1
            if fault := program.fault_of(text):
                faults.append(f"{name}:{line}: {text}\n    {fault}")
        for line, text in inline:  # inside a sentence: what only prints runs too
            words = shlex.split(text)[1:]
            if words and words[0] in ("show", "help", "list") and not any(w.isupper() for w in words):
                ran += 1
                if (code := subprocess.run([rapt, *words], stdin=subprocess.DEVNULL,
                                           capture_output=True).returncode) != 0:
                    faults.append(f"{name}:{line}: {text}\n    ended with {code}")
    for verb in program.verbs:
        for line in program.ask("help", verb).partition("Examples:\n")[2].splitlines():
            checked += 1
            if fault := program.fault_of(line.strip()):
                faults.append(f"rapt help {verb}: {line.strip()}\n    {fault}")
    root = pathlib.Path(tempfile.mkdtemp(prefix="rapt-docs-"))
    try:
        stage = None
        for name, all_blocks in blocks.items():
            wanted = [(b, m) for b in all_blocks if (m := b.mark(args.long)) and m.kind != "no"
                      and b.commands]
            if not wanted:
                continue
            stage = stage or Stage(root, rapt, args.long)
            folder = stage.folder(name, "".join(c for b in all_blocks for _, c in b.commands))
            for block, mark in wanted:
                start = time.monotonic()
                try:
                    ran += stage.run(block, mark, folder)
                except Fault as f:
                    faults.append(str(f))
                print(f"{name}:{block.line}: {time.monotonic() - start:.1f} s", flush=True)
    finally:
        if args.keep:
            print(f"kept: {root}")
        else:
            shutil.rmtree(root, ignore_errors=True)
    for fault in faults:
        print(f"FAILED {fault}")
    print(f"{checked} commands checked, {ran} run, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
