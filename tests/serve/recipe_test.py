#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recipes under `rapt serve --lab`: what /v1/recipe, show and diff say is what `rapt show` says; recipes that
cannot be are refused in words, with the field.

  tests/serve/recipe_test.py [--rapt build/rapt] [--only PATTERN]
"""
import json
import pathlib
import re
import sys
import tempfile

from server import SOURCE, Server, arguments, equal, expect, rapt_text, run_tests, test

NAMES = ["gpt-char", "llama3", "gemma2", "t5", "bahdanau", "qwen3-moe", "deepseek-v2-lite", "vit", "lfm2",
         "qwen3-gate-g1", "mistral"]


def rapt_json(args, *words):
    return json.loads(rapt_text(args, *words))


class Lab(Server):
    def __init__(self, args):
        super().__init__(args, "--lab")
        self.args = args

    def get(self, lang="en"):
        return self.ask(f"/v1/recipe?lang={lang}").json()

    def show(self, **body):
        reply = self.ask("/v1/recipe/show", body)
        expect(reply.status == 200, reply)
        return reply.json()

    def diff(self, a, b):
        reply = self.ask("/v1/recipe/diff", {"a": a, "b": b})
        expect(reply.status == 200, reply)
        return reply.json()


def numbers(text):
    """What stands below a drawing: by name."""
    return dict(re.findall(r"^(\w[\w ]*?)  +(.*)$", text[text.index("\nparameters"):], re.M))


# ------------------------------------------------------------------------------------------ as rapt show says
@test
def presets_are_those_of_the_command_line(lab):
    equal(lab.get()["presets"], rapt_json(lab.args, "show", "--json"))


@test
def a_preset_is_shown_as_rapt_show_does(lab):
    for name in NAMES:
        got = lab.show(preset=name)
        equal(got["recipe"], rapt_json(lab.args, "show", name, "--json"), f"{name}, resolved")
        equal(got["whole"], rapt_json(lab.args, "show", name, "--json", "--all"), f"{name}, whole")
        equal(got["drawing"], rapt_text(lab.args, "show", name), f"the drawing of {name}")
        for lang in ("en", "zh"):
            equal(lab.show(preset=name, lang=lang)["svg"],
                  rapt_text(lab.args, "show", name, "--svg", "-", "--lang", lang), f"{name}, SVG, {lang}")
        below, f = numbers(got["drawing"]), got["facts"]
        equal(below["parameters"].split("   "), [f"{f['parameters']:,}", f["short"]], name)
        equal(below["weights"], "{} f32, {} bf16".format(*f["weights"]["short"]), name)
        if "KV per token" in below:
            equal(below["KV per token"].split(";")[0], "{} f32, {} bf16".format(*f["kv"]["short"]), name)
        equal(below["FLOPs per token"].split(" at ")[0],
              "{} in matrices + {} in attention".format(*f["flops"]["short"]), name)
        equal(sum(g["count"] for g in f["groups"]), f["parameters"], f"shares of {name}")


@test
def what_was_written_means_the_same(lab):
    for name in NAMES:
        first = lab.show(preset=name)
        again = lab.show(text=first["written"])
        object_ = lab.show(recipe=json.loads(first["written"]))
        for key in ("recipe", "whole", "facts", "drawing", "svg", "written"):
            equal(again[key], first[key], f"{name}: {key} of the text")
            equal(object_[key], first[key], f"{name}: {key} of the object")


@test
def changes_are_those_of_a_file(lab):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "own.json")
        own = {"preset": "llama3", "name": "own", "width": 256, "decoder": {"layers": 3, "kinds": {"L": {
            "parts": {"self": {"heads": 8, "kv_heads": 2, "head_dim": 32, "v_dim": 32, "extra": "zero_logit",
                               "gate": [{"at": "sdpa"}], "window": 128}}}}}}
        path.write_text(json.dumps(own))
        got = lab.show(recipe=own)
        equal(got["recipe"], rapt_json(lab.args, "show", path, "--json"))
        equal(got["drawing"], rapt_text(lab.args, "show", path))
        differences = rapt_json(lab.args, "show", "--diff", "llama3", path, "--json")
        there = lab.diff({"preset": "llama3"}, {"recipe": own})
        equal(there["differences"], differences)
        equal((there["a"], there["b"]), (lab.show(preset="llama3")["facts"], got["facts"]))
    small = lab.show(preset="gpt-char", settings=["width=32", "layers=2", "heads=2"])["recipe"]
    equal((small["width"], small["decoder"]["layers"]), (32, 2))


@test
def differences_are_those_of_the_command_line(lab):
    for a, b in zip(NAMES, NAMES[1:]):
        equal(lab.diff({"preset": a}, {"preset": b})["differences"],
              rapt_json(lab.args, "show", "--diff", a, b, "--json"), f"{a}, {b}")
    equal(lab.diff({"preset": "t5"}, {"preset": "t5"})["differences"], [])


# ------------------------------------------------------------------------------------------------ the schema
def fields_of(schema):
    """(struct, field) of every field, also of those inside choices."""
    def inside(struct, list_):
        for f in list_:
            yield struct, f
            for option in f.get("options", []):
                yield from inside(struct, option.get("fields", []))
    for struct, s in schema["structs"].items():
        yield from inside(struct, s.get("fields", []))
        for option in s.get("options", []):
            yield from inside(struct, option.get("fields", []))


@test
def the_schema_is_that_of_the_documents(lab):
    schema = lab.get()["schema"]
    docs = rapt_text(lab.args, "show", "--schema")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", docs, re.M | re.S))
    sections.pop("Presets")
    equal(sorted(schema["structs"]), sorted(sections), "structs")
    named = 0
    for struct, f in fields_of(schema):
        text = sections[struct]
        expect(re.search(rf"`(\w+\.)*{re.escape(f['name'])}`", text), struct, f["name"], "is not there")
        expect(f["meaning"].replace("|", "\\|") in text, struct, f["name"], f["meaning"])
        expect("kind" in f, f)
        if f.get("required"):
            expect("required" in text, struct, f["name"])
        named += 1
    expect(named > 200, named, "fields")
    equal(schema["parts"]["self"], "Attention")
    for part in schema["parts"].values():
        expect("fields" in schema["structs"][part], part)


@test
def every_default_of_the_schema_holds(lab):
    """A recipe with a field at its default is the recipe without it."""
    schema, plain = lab.get()["schema"], lab.show(preset="gpt-char")
    checked = 0
    for struct, place in {"Recipe": [], "Embed": ["embed"], "Head": ["head"], "Init": ["init"],
                          "Stack": ["decoder"]}.items():
        for f in schema["structs"][struct]["fields"]:
            if "default" not in f or f.get("required") or f["name"] in ("name", "note", "vocab", "context"):
                continue
            value = f["default"]
            own = {"preset": "gpt-char"}
            at = own
            for step in place:
                at = at.setdefault(step, {})
            there = plain["recipe"]
            for step in place:
                there = there.get(step, {})
            if f["name"] in there or (f["kind"] == "choice" and value == "number"):
                continue
            at[f["name"]] = value
            equal(lab.show(recipe=own)["facts"]["parameters"], plain["facts"]["parameters"], f["name"])
            equal(lab.diff({"preset": "gpt-char"}, {"recipe": own})["differences"], [], f["name"])
            checked += 1
    expect(checked >= 20, checked, "defaults")


def lines_of(schema):
    """What every field and every option with something inside means, by struct and name."""
    def inside(struct, list_):
        for x in list_:
            if x.get("form") != "word":
                yield f"{struct}.{x['name']}", x["meaning"]
            yield from inside(struct, x.get("fields", []) + x.get("options", []))
    for struct, s in schema["structs"].items():
        yield from inside(struct, s.get("fields", []) + s.get("options", []))


@test
def every_field_has_chinese_help(lab):
    words = json.loads((SOURCE / "rapt/recipe/help/zh.json").read_text())
    english, chinese = list(lines_of(lab.get()["schema"])), list(lines_of(lab.get("zh")["schema"]))
    equal([k for k, _ in chinese], [k for k, _ in english], "fields")
    for (name, there), (_, text) in zip(english, chinese):
        expect(text != there and re.search("[\u4e00-\u9fff]", text), name, "is not in Chinese:", text)
        equal(text, words.get(name.replace("Moe.", "Ffn."), words.get(name)), name)
    equal(sorted(set(words) - {k for k, _ in english}), [], "of fields that there are not")


# ------------------------------------------------------------------------------------------------- refusals
@test
def what_cannot_be_is_refused_with_field_and_reason(lab):
    deep = {"preset": "gpt-char"}
    for _ in range(40):
        deep = {"embed": deep}
    text = '{"preset": "gpt2",\n "decoder": {\n  "layers": 0}}'
    cases = [
        ({"text": text}, "decoder.layers", "recipe:3:13: decoder.layers: must be at least 1, is 0"),
        ({"text": '{"a'}, None, "recipe:1:"), ({"text": "[]"}, None, "a recipe is an object"),
        ({"text": "\ufeff{}"}, None, "recipe"), ({"text": "{}"}, "width", "at least 1"),
        ({"text": "[" * 5000}, None, "nested deeper than 64"),
        ({"recipe": deep}, "embed.embed", "unknown key"),
        ({"recipe": {"preset": "gpt2", "wdth": 3}}, "wdth", "did you mean 'width'"),
        ({"recipe": {"preset": "gpt2", "decoder": {"kinds": {"L": {"parts": {"self": {"heads": 5}}}}}}},
         "decoder.kinds.L.parts[0].self", "5"),
        ({"recipe": {"preset": "gpt2", "width": "wide"}}, "width", "wants a whole number"),
        ({"recipe": {"preset": "gpt2", "width": 1e300}}, "width", "whole number"),
        ({"recipe": {"preset": "gpt2", "width": 480_000_000}}, "width", "would have more than"),
        ({"recipe": {"preset": "gpt2", "embed": 3}}, "embed", "wants an object"),
        ({"recipe": {"preset": "gpt2", "decoder": {"layers": 10000}}}, None, "up to 1024"),
        ({"preset": "gpt-char", "settings": ["layers=10000"]}, None, "up to 1024"),
        ({"recipe": {"preset": "gpt-char", "decoder": {"kinds": {
            f"k{i}": {"parts": [{"ffn": {}}]} for i in range(100)}}}}, None, "kinds"),
        ({"preset": "gpt3"}, None, "no preset is called 'gpt3'"),
        ({"preset": "../../etc/passwd"}, None, "no preset"), ({"preset": "/etc/passwd"}, None, "no preset"),
        ({"recipe": {"preset": "/etc/passwd"}}, "preset", "no preset"),
        ({"preset": "gpt2", "text": "{}"}, "preset", "one of"), ({}, "preset", "one of"),
        ({"preset": 3}, "preset", "string"), ({"recipe": "gpt2"}, "recipe", "object"),
        ({"recipe": []}, "recipe", "object"), ({"text": {"preset": "gpt2"}}, "text", "string"),
        ({"preset": "gpt2", "lang": "fr"}, "lang", "zh"),
        ({"preset": "gpt2", "langs": "en"}, "langs", "lang"),
        ({"preset": "gpt2", "settings": ["heads=7"]}, None, "heads"),
        ({"preset": "gpt2", "settings": ["width"]}, None, "KEY=VALUE"),
        ({"preset": "gpt2", "settings": [f"a{i}=1" for i in range(65)]}, "settings", "64"),
        ({"text": " " * 70_000 + "{}"}, "text", "65536"),
        ({"recipe": {"preset": "gpt2", "note": "n" * 70_000}}, "recipe", "65536"),
    ]
    for body, param, why in cases:
        reply = lab.ask("/v1/recipe/show", body)
        equal(reply.status, 400, f"{str(body)[:200]}: {str(reply)[:300]}")
        error = reply.error()
        expect(why in error["message"], str(body)[:200], "is refused with:", error["message"])
        if param:
            expect(str(error["param"]).startswith(param), str(body)[:200], "names", error["param"])
        expect(len(error["message"]) < 3000, "a message of", len(error["message"]), "bytes")
    for a, b, param in [({"preset": "gpt2"}, {"text": text}, "b.decoder.layers"),
                        ({"preset": "x"}, {"preset": "gpt2"}, "a"),
                        ({"preset": "gpt2"}, None, "b"), ({"preset": "gpt2"}, [], "b")]:
        reply = lab.ask("/v1/recipe/diff", {"a": a, "b": b})
        equal(reply.status, 400, f"{a}, {b}")
        expect(reply.error()["param"].startswith(param), reply.error())
    equal(lab.show(preset="gpt-char")["name"], "gpt-char", "and it goes on")


@test
def names_do_no_harm(lab):
    name = '</title><script>alert(1)</script>" \': decoder.layers: x \u202e'
    got = lab.show(recipe={"preset": "gpt-char", "name": name, "note": name})
    expect("<script>" not in got["svg"], "markup of a name in the picture")
    equal(got["name"], name)
    reply = lab.ask("/v1/recipe/show", {"recipe": {"preset": "gpt-char", "name": 'a": b: c', "vocab": 0}})
    expect(reply.status == 400 and "vocab" in reply.error()["message"], reply)


@test
def without_the_flag_there_is_nothing(lab):
    with Server(lab.args) as plain:
        for path, body in (("/v1/recipe", None), ("/v1/recipe/show", {"preset": "gpt2"}),
                           ("/v1/recipe/diff", {"a": {"preset": "gpt2"}, "b": {"preset": "gpt2"}})):
            equal(plain.ask(path, body).status, 404, path)
    equal(lab.ask("/v1/recipe", {}).status, 405)
    equal(lab.ask("/v1/recipe/show").status, 405)
    with tempfile.TemporaryDirectory() as folder:
        keys = pathlib.Path(folder, "keys")
        keys.write_text("canary-key\n")
        keys.chmod(0o600)
        with Server(lab.args, "--lab", "--key-file", keys) as keyed:
            equal(keyed.ask("/v1/recipe").status, 401)
            equal(keyed.ask("/v1/recipe/show", {"preset": "gpt2"}).status, 401)


def main():
    args = arguments(__doc__)
    with Lab(args) as lab:
        sys.exit(run_tests(args, lab))


if __name__ == "__main__":
    main()
