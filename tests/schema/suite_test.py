#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Schemas by the judgement of others, through `rapt schema --lines`:
#
#   suite     the JSON Schema Test Suite (2020-12) that lies in the source package of jsonschema, its files
#             for the keywords of docs/schema.md: a schema compiles or is refused by the name of a keyword; a
#             valid instance is accepted once it is written in the order of the schema and in our white
#             space, an invalid one never
#   pydantic  100 models drawn by chance, their schemas and instances
#   samples   texts of our grammars by chance: jsonschema finds all of them valid
#
# Skipped (exit code 77) where PyPI cannot be reached. Packages: ~/.cache/rapt/schema.
import argparse
import collections
import datetime
import decimal
import enum
import fcntl
import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import tarfile
import typing
import uuid

PACKAGES = ["jsonschema[format-nongpl]==4.26.0", "pydantic==2.14.3"]
SOURCE = "jsonschema==4.26.0"
FILES = """additionalProperties allOf anchor anyOf boolean_schema const content default defs enum
exclusiveMaximum exclusiveMinimum format infinite-loop-detection items maxItems maxLength maxProperties
maximum minItems minLength minProperties minimum multipleOf oneOf pattern patternProperties prefixItems
properties ref required type""".split()
FORMATS = "date-time date time duration email hostname ipv4 ipv6 uuid uri".split()
MODELS = 100
PATTERNS = [r"^[a-z]{2,8}$", r"^\d{3}-\d{4}$", r"^(red|green|blue)$", r"^[A-Z][a-z]+( [A-Z][a-z]+)*$",
            r"^#[0-9a-fA-F]{6}$"]


class Skip(Exception):
    pass


def environment(folder):
    """An environment with the packages, and the suite beside it; made where they are not there."""
    venv, stamp = folder / "venv-suite", folder / "suite-packages"
    wanted = " ".join(PACKAGES)
    lock = open(folder / "suite-lock", "w")  # suite_test.py and answers_test.py may begin at once
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not (stamp.exists() and stamp.read_text() == wanted):
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True, capture_output=True,
                           timeout=120)
            pip = [venv / "bin" / "pip", "--disable-pip-version-check", "--timeout", "8", "--retries", "1"]
            subprocess.run([*pip, "install", "-q", *PACKAGES], check=True, capture_output=True, timeout=300)
            subprocess.run([*pip, "download", "-q", "--no-binary", "jsonschema", "--no-deps", "-d",
                            folder / "suite-source", SOURCE], check=True, capture_output=True, timeout=300)
        except (subprocess.SubprocessError, OSError) as e:
            said = (getattr(e, "stderr", None) or b"").decode(errors="replace").strip().splitlines()[-1:]
            raise Skip(f"{wanted} cannot be installed: {said or e}")
        stamp.write_text(wanted)
    return venv, next((folder / "suite-source").glob("jsonschema-*.tar.gz"))


class Rapt:
    """`rapt schema --lines`: one question, one answer."""

    def __init__(self, program):
        self.process = subprocess.Popen([program, "schema", "--lines"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def ask(self, **question):
        self.process.stdin.write(json.dumps(question, ensure_ascii=False).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"rapt ended at {json.dumps(question)[:2000]}")
        return json.loads(line)


def number(x):
    if isinstance(x, float) and x == int(x):
        return str(int(x))
    return format(decimal.Decimal(repr(x)), "f") if isinstance(x, float) else str(x)


def written(value, order, most=300):
    """The instance in our white space; its members in several orders, that of the schema first."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return [json.dumps(value, ensure_ascii=False)]
    if isinstance(value, (int, float)):
        return [number(value)]
    if isinstance(value, list):
        parts = [written(v, order, most) for v in value]
        return ["[" + ",".join(p) + "]" for p in itertools.islice(itertools.product(*parts), most)]
    keys = sorted(value, key=lambda k: order.get(k, len(order)))
    out = []
    for perm in itertools.islice(itertools.permutations(keys), most):
        parts = [[json.dumps(k, ensure_ascii=False) + ":" + v for v in written(value[k], order, most)]
                 for k in perm]
        out += ["{" + ",".join(p) + "}" for p in itertools.islice(itertools.product(*parts), most)]
        if len(out) >= most:
            break
    return out[:most]


def order_of(schema):
    order = {}

    def walk(x):
        if isinstance(x, dict):
            for k, v in x.items():
                order.setdefault(k, len(order))
                walk(v)
        elif isinstance(x, list):
            for v in x:
                order.setdefault(v, len(order)) if isinstance(v, str) else walk(v)
    walk(schema)
    return order


class Tally:
    def __init__(self):
        self.compiled = self.refused = self.valid = self.invalid = self.samples = 0
        self.exempt = collections.Counter()
        self.keywords = collections.Counter()
        self.faults = []


def exempt(file, group, test):
    """Instances whose verdict is another one here, and why."""
    words = (group["description"] + " / " + test["description"]).lower()
    if file == "format.json" and test["valid"] and isinstance(test["data"], str):
        return "format is more than an annotation here"
    if "leap second" in words and test["valid"]:
        return "no leap seconds"
    return None


def suite(rapt, source, tally):
    with tarfile.open(source) as tar:
        files = {m.name.split("draft2020-12/")[1]: json.load(tar.extractfile(m)) for m in tar
                 if "draft2020-12/" in m.name and m.name.endswith(".json")}
    for name in [f + ".json" for f in FILES] + [f"optional/format/{f}.json" for f in FORMATS]:
        for group in files[name]:
            schema = group["schema"]
            order = order_of(schema)
            texts = [written(t["data"], order) for t in group["tests"]]
            reply = rapt.ask(schema=schema, texts=[t for some in texts for t in some])
            # Said at once: nothing could be answered.
            if "no text at all is allowed" in reply.get("error", ""):
                reply = {"accepted": [False] * sum(map(len, texts)), "empty": True}
            if "error" in reply:
                tally.refused += 1
                tally.keywords[reply.get("keyword") or "?"] += 1
                print(f"  refused: {name}: {group['description']}: {reply['error']}")
                if not reply.get("keyword"):
                    tally.faults.append(f"{name}: {group['description']}: refused without a keyword")
                continue
            tally.compiled += 1
            verdicts = iter(reply["accepted"])
            for test, some in zip(group["tests"], texts):
                accepted = any([next(verdicts) for _ in some])
                if why := exempt(name, group, test):
                    tally.exempt[why] += 1
                    continue
                if test["valid"]:
                    tally.valid += 1
                else:
                    tally.invalid += 1
                if accepted != test["valid"]:
                    said = "refused though valid" if test["valid"] else "accepted though invalid"
                    tally.faults.append(f"{name}: {group['description']}: {test['description']}: {said}: "
                                        f"{json.dumps(test['data'])[:200]}")
            if "empty" not in reply:
                check_samples(rapt, schema, f"{name}: {group['description']}", 5, tally)


def check_samples(rapt, schema, where, count, tally):
    """Texts of our grammar, judged by jsonschema; with decimals, since binary fractions are no multiples."""
    import jsonschema
    reply = rapt.ask(schema=schema, samples=count, seed=sum(where.encode()))
    if "error" in reply:
        tally.faults.append(f"{where}: {reply['error']}")
        return
    exact = json.loads(json.dumps(schema), parse_float=decimal.Decimal)
    kind = jsonschema.Draft202012Validator
    validator = kind(exact, format_checker=kind.FORMAT_CHECKER)
    for text in reply["samples"]:
        tally.samples += 1
        try:
            value = json.loads(text, parse_float=decimal.Decimal)
            error = next(validator.iter_errors(value), None)
        except decimal.DecimalException:  # numbers of a thousand digits, divided
            tally.exempt["numbers that the judge cannot divide"] += 1
            continue
        except ValueError as e:
            tally.faults.append(f"{where}: a sample is no JSON ({e}): {text[:200]}")
            continue
        if error:
            tally.faults.append(f"{where}: a sample is not valid ({error.message[:150]}): {text[:300]}")


# ---------------------------------------------------------------------------------------------- pydantic
class Models:
    """Models drawn by chance: fields of many kinds, nested, recursive, in unions."""

    def __init__(self, seed):
        import pydantic
        self.p, self.draw, self.count = pydantic, random.Random(seed), 0

    def name(self):
        self.count += 1
        return f"Model{self.count}"

    def kind(self, depth):
        d, p = self.draw, self.p
        A = typing.Annotated
        simple = [  # each is made only where it is drawn
            lambda: str, lambda: int, lambda: float, lambda: bool,
            lambda: A[str, p.Field(min_length=d.randint(0, 3), max_length=d.randint(4, 40))],
            lambda: A[str, p.Field(pattern=d.choice(PATTERNS))],
            lambda: A[int, p.Field(ge=d.randint(-50, 0), le=d.randint(1, 5000))],
            lambda: A[int, p.Field(gt=d.randint(-9, 9))],
            lambda: A[int, p.Field(multiple_of=d.choice([2, 5, 10]))],
            lambda: A[float, p.Field(ge=d.choice([0.0, -1.5]), lt=d.choice([1.0, 99.25]))],
            lambda: typing.Literal["a", "b", "c d"], lambda: typing.Literal[1, 2, 3],
            lambda: typing.Optional[int], lambda: typing.Optional[str],
            lambda: datetime.date, lambda: datetime.datetime, lambda: uuid.UUID,
            lambda: enum.Enum(self.name(), {"one": "one", "two": "zwei", "three": "Ⅲ"}),
        ]
        if depth <= 0:
            return d.choice(simple)()
        return d.choice([
            *d.sample(simple, 5), lambda: list[self.kind(depth - 1)],
            lambda: A[list[self.kind(depth - 1)], p.Field(min_length=1, max_length=3)],
            lambda: dict[str, self.kind(depth - 1)], lambda: typing.Optional[self.kind(depth - 1)],
            lambda: dict[typing.Literal["x", "y"], int],
            lambda: typing.Union[int, list[self.kind(depth - 1)]], lambda: tuple[int, self.kind(depth - 1)],
            lambda: self.model(depth - 1), lambda: self.model(depth - 1), lambda: list[self.model(depth - 1)],
            lambda: typing.Union[self.tagged("cat"), self.tagged("dog")]])()

    def tagged(self, tag):
        return self.p.create_model(self.name(), kind=(typing.Literal[tag], ...), age=(int, ...))

    def model(self, depth):
        d = self.draw
        fields = {}
        for i in range(d.randint(1, 6)):
            kind = self.kind(depth)
            required = d.random() < 0.7
            fields[f"{d.choice(['name', 'size', 'value', 'state', 'items', 'größe'])}_{i}"] = (
                (kind, ...) if required else (typing.Optional[kind], None))
        config = self.p.ConfigDict(extra="forbid") if d.random() < 0.7 else None
        return self.p.create_model(self.name(), __config__=config, **fields)

    def recursive(self):
        name = self.name()
        scope = {"p": self.p, "typing": typing}
        exec(f"class {name}(p.BaseModel):\n    value: int\n    children: list['{name}']\n"
             f"    parent: typing.Optional['{name}'] = None\n", scope)
        scope[name].model_rebuild(_types_namespace=scope)
        return scope[name]


def strict(schema):
    """As openai-python sends it: every member required, no others."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" and "properties" in schema:
            schema["required"] = list(schema["properties"])
            schema["additionalProperties"] = False
        for v in schema.values():
            strict(v)
    elif isinstance(schema, list):
        for v in schema:
            strict(v)
    return schema


def pydantic_models(rapt, tally, seed):
    models = Models(seed)
    for i in range(MODELS):
        model = models.recursive() if i % 20 == 19 else models.model(1 + i % 3)
        schema = model.model_json_schema()
        if i % 2:
            schema = strict(schema)
        reply = rapt.ask(schema=schema, samples=5, seed=i)
        where = f"pydantic model {i}"
        if "error" in reply:
            tally.faults.append(f"{where}: {reply['error']}: {json.dumps(schema)[:1500]}")
            continue
        check_samples(rapt, schema, where, 5, tally)
        for text in reply["samples"]:
            try:
                value = model.model_validate_json(text)
            except models.p.ValidationError as e:
                # what a schema does not say: dates of far years, numbers too large
                if "finite" not in str(e) and "out of range" not in str(e) and "year" not in str(e) and \
                        "date" not in str(e):
                    tally.faults.append(f"{where}: pydantic refuses a sample ({str(e)[:300]}): {text[:300]}")
                continue
            again = value.model_dump_json(exclude_unset=True)
            if not rapt.ask(schema=schema, texts=[again])["accepted"][0]:
                # pydantic writes some values in another form than it reads them
                if json.loads(again) == json.loads(text):
                    tally.faults.append(f"{where}: what pydantic writes is refused: {again[:300]}")


def main():
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("--rapt", default="build/rapt")
    parse.add_argument("--cache", type=pathlib.Path, default=pathlib.Path(
        os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "rapt" / "schema")
    parse.add_argument("--seed", type=int, default=1)
    parse.add_argument("--inside", help=argparse.SUPPRESS)
    args = parse.parse_args()
    if not args.inside:
        try:
            args.cache.mkdir(parents=True, exist_ok=True)
            venv, source = environment(args.cache)
        except (Skip, OSError) as e:
            print(f"skipped: {e}")
            sys.exit(77)
        sys.exit(subprocess.run([venv / "bin" / "python", "-B", __file__, "--rapt", args.rapt, "--seed",
                                 str(args.seed), "--inside", source]).returncode)
    rapt, tally = Rapt(args.rapt), Tally()
    decimal.getcontext().prec = 1000  # numbers of several hundred digits are in it
    suite(rapt, args.inside, tally)
    total = tally.compiled + tally.refused
    print(f"suite: {tally.compiled} of {total} schemas compile ({100 * tally.compiled / total:.1f} %), "
          f"refused: {dict(tally.keywords)}; {tally.valid} valid instances, {tally.invalid} invalid; "
          f"{tally.samples} samples; left out: {dict(tally.exempt)}")
    if tally.compiled < 0.95 * total:
        tally.faults.append("fewer than 95 % of the suite's schemas compile")
    before = tally.samples
    pydantic_models(rapt, tally, args.seed)
    print(f"pydantic: {MODELS} models, {tally.samples - before} samples")
    for fault in tally.faults[:60]:
        print("FAULT", fault)
    print(f"{len(tally.faults)} faults")
    sys.exit(1 if tally.faults else 0)


if __name__ == "__main__":
    main()
