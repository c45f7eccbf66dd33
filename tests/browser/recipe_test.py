# SPDX-License-Identifier: Apache-2.0
# The page's recipes: recipe_test.py --rapt PROGRAM. Form and JSON are edited by keyboard and mouse; what is
# shown is what `rapt show` says; in both languages, at four widths.
import json
import re
import sys

from hostile import nothing_foreign, short
from walk import walk
from page_client import equal, expect, run, serving, test


def show(page, *words, own=None):
    return serving.rapt_text(page.args, "show", *words, input=None if own is None else json.dumps(own))


def text_of(page):
    return page.run("document.querySelector('#recipe-text').value")


def value_of(page):
    return json.loads(text_of(page))


def settled(page):
    """What is shown belongs to the text."""
    page.wait("document.querySelector('.recipe-result .row .hint').hidden && "
              "!!document.querySelector('.recipe-picture').complete")


def begin(page, width=1280, lang="en", preset=None):
    page.begin(width, "#view=play", lang)
    page.run("""(() => { window.pictures = new Map(); const make = URL.createObjectURL;
        URL.createObjectURL = (blob) => {
          const url = make(blob);
          pictures.set(url, blob);
          return url; }; })()""")
    page.press("#tab-recipe")
    page.wait("document.querySelectorAll('.facts dd').length > 0")
    if preset:
        choose(page, "#recipe-preset", preset)
        page.wait(f"document.querySelector('.recipe-result h2').textContent === {json.dumps(preset)}")
    settled(page)


def choose(page, selector, value):
    page.run(f"""(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus();
        e.value = {json.dumps(value)}; e.dispatchEvent(new Event('change', {{bubbles: true}})); }})()""")


def at(path):
    return f'[data-at="{path}"]'


def fill(page, path, text):
    """Typed into a field of the form, and left with Tab."""
    page.run(f"""(() => {{ const e = document.querySelector({json.dumps(at(path))});
        e.focus(); e.select(); }})()""")
    page.type(text)
    page.key("Tab")


def write(page, text):
    page.run("(() => { const e = document.querySelector('#recipe-text'); e.focus(); e.select(); })()")
    page.type(text)


def facts(page):
    names, values = page.texts(".facts dt"), page.texts(".facts dd")
    return dict(zip(names, values))


def as_drawn(drawing):
    below = dict(re.findall(r"^(\w[\w ]*?)  +(.*)$", drawing[drawing.index("\nparameters"):], re.M))
    count, short = below["parameters"].split("   ")
    return {"Parameters": f"{count} ({short})", "Weights": below["weights"],
            "Cache per token": below["KV per token"].split(";")[0],
            "FLOPs per token": below["FLOPs per token"].split(" at ")[0]}


@test
def a_preset_is_what_rapt_show_says(page, server):
    begin(page)
    equal(page.run("document.querySelector('#recipe-preset').value"), "gpt-char", "what is there at once")
    equal(page.run("[...document.querySelector('#recipe-preset').options].map((o) => o.value)"),
          [p["name"] for p in json.loads(show(page, "--json"))])
    for name in ("gpt-char", "gemma2", "llama3"):
        choose(page, "#recipe-preset", name)
        page.wait(f"document.querySelector('.recipe-result h2').textContent === {json.dumps(name)}")
        settled(page)
        drawing = show(page, name)
        equal(page.text(".recipe-result pre"), drawing, "the drawing as text")
        equal(facts(page), as_drawn(drawing), f"the figures of {name}")
        equal(show(page, "-", "--json", own=value_of(page)), show(page, name, "--json"), "its JSON")
        svg = page.run("pictures.get(document.querySelector('.recipe-picture').src).text()")
        wanted = show(page, name, "--svg", "-")
        wanted = wanted.replace("@media (prefers-color-scheme:dark)", "@media not all")
        equal(svg, wanted, "the picture")
        expect(page.run("document.querySelector('.recipe-picture').naturalWidth") > 100, "it is drawn")
        expect(name in page.run("document.querySelector('.recipe-picture').alt"), "it says what it is")
    shares = page.run("[...document.querySelectorAll('.recipe-result .numbers tr')].map((r) => "
                      "[r.cells[0].textContent, r.cells[1].textContent])")
    for name, n in shares:
        expect(re.search(rf"^  {name} +{n} ", show(page, "llama3"), re.M), name, n)


@test
def the_form_writes_the_json(page, server):
    begin(page)
    fill(page, "width", "64")
    settled(page)
    equal(value_of(page)["width"], 64)
    page.wait("document.querySelector('.facts dd').textContent.startsWith('205,')")
    part = "decoder.kinds.L.parts[0].self"
    choose(page, at(part + "+"), "window")
    equal(page.run("document.activeElement.dataset.at"), part + ".window", "what was opened has the focus")
    fill(page, part + ".window", "16")
    choose(page, at(part + "+"), "pos")
    choose(page, at(part + ".pos"), "rope")
    choose(page, at(part + ".pos.rope+"), "theta")
    fill(page, part + ".pos.rope.theta", "500000")
    choose(page, at(part + "+"), "scale")
    choose(page, at(part + ".scale"), "number")
    fill(page, part + ".scale=", "0.125")
    choose(page, at(part + "+"), "gate")
    page.press(at(part + ".gate+"))
    choose(page, at(part + ".gate[0]+"), "grain")
    choose(page, at(part + ".gate[0].grain"), "head")
    choose(page, at(part + "+"), "qk_norm")
    choose(page, at(part + "+"), "bias")
    choose(page, at(part + ".bias"), "{}")
    choose(page, at(part + ".bias+"), "q")
    page.press(at(part + ".bias.q"))
    choose(page, at(part + ".norm_in.eps"), "1e-6")  # a text field: its change event
    choose(page, at("decoder.kinds.L.parts+"), "ffn")
    settled(page)
    own = value_of(page)
    self = own["decoder"]["kinds"]["L"]["parts"][0]["self"]
    equal({k: self[k] for k in ("window", "pos", "scale", "gate", "bias", "qk_norm")},
          {"window": 16, "pos": {"rope": {"theta": 500000}}, "scale": 0.125, "gate": [{"grain": "head"}],
           "bias": {"q": True}, "qk_norm": {}})
    equal(len(own["decoder"]["kinds"]["L"]["parts"]), 3)
    expect("1e-6" in text_of(page), "as people write it")
    drawing = show(page, "-", own=own)
    page.wait(f"document.querySelector('.recipe-result pre').textContent === {json.dumps(drawing)}")
    equal(facts(page), as_drawn(drawing))
    page.press('[aria-label="Take out window"]')
    settled(page)
    expect("window" not in value_of(page)["decoder"]["kinds"]["L"]["parts"][0]["self"], "taken out")
    expect(page.run("document.activeElement.matches('select.add')"), "the focus stays in the group")
    fill(page, "vocab", "")  # emptied: the default, which cannot be
    page.wait("!document.querySelector('.recipe .error').hidden")
    expect("vocab" in page.text(".recipe .error"), page.text(".recipe .error"))


@test
def the_json_writes_the_form(page, server):
    begin(page)
    own = {"preset": "llama3", "name": "mine", "width": 256, "decoder": {
        "layers": 2, "kinds": {"L": {"parts": {
            "self": {"heads": 8, "kv_heads": 2, "head_dim": 32, "v_dim": 32}}}}}}
    write(page, json.dumps(own, indent=1))
    page.wait("document.querySelector('.recipe-result h2').textContent === 'mine'")
    settled(page)
    equal(page.run(f"document.querySelector('{at('preset')}').value"), "llama3")
    equal(page.run(f"document.querySelector('{at('decoder.kinds.L.parts.self.heads')}').value"), "8")
    drawing = show(page, "-", own=own)
    equal(page.text(".recipe-result pre"), drawing)
    fill(page, "decoder.kinds.L.parts.self.heads", "4")
    settled(page)
    equal(value_of(page)["decoder"]["kinds"]["L"]["parts"]["self"]["heads"], 4)
    equal(value_of(page)["preset"], "llama3", "the rest stays")


@test
def errors_name_line_and_field(page, server):
    begin(page)
    write(page, '{"preset": "gpt-char",\n  "decoder": {\n    "layers": 0}}')
    page.wait("!document.querySelector('.recipe .error').hidden")
    expect(page.text(".recipe .error").startswith(
        "Line 3, column 15: decoder.layers: must be at least 1, is 0"), page.text(".recipe .error"))
    equal(page.run(f"document.querySelector('{at('decoder.layers')}').getAttribute('aria-invalid')"), "true")
    expect("must be at least 1" in page.text(".reason"), "beside the field, too")
    expect(page.run("document.querySelector('.recipe-result').matches('.old')"), "the drawing is another's")
    page.press(".recipe .error button")
    equal(page.run("(() => { const e = document.querySelector('#recipe-text'); "
                   "return e === document.activeElement && e.value.slice(e.selectionStart, e.selectionEnd);"
                   " })()"), "0")
    write(page, '{"preset": "gpt-char",')
    page.wait("document.querySelector('.recipe .error').textContent.startsWith('Line 1, column 23')")
    equal(page.run("[document.querySelector('.recipe-form').inert, "
                   "document.querySelector('.recipe-side .hint:not([hidden])').textContent]"),
          [True, "The form follows again when the text is whole JSON."])
    write(page, '{"preset": "gpt-char", "wdth": 3}')
    page.wait("document.querySelector('.recipe .error').textContent.includes(\"did you mean 'width'\")")
    expect("wdth: 3" in page.text(".recipe-form"), "what the form does not know is there, too")
    page.press('[aria-label="Take out wdth"]')
    page.wait("document.querySelector('.recipe .error').hidden")
    settled(page)
    equal(facts(page), as_drawn(show(page, "gpt-char")))
    write(page, "[1, 2]")
    page.wait("document.querySelector('.recipe .error').textContent.includes('a recipe is an object')")
    page.run("window.ownFetch = window.fetch; window.fetch = () => Promise.reject(new TypeError('away'))")
    write(page, '{"preset": "gpt2"}')
    page.wait("document.querySelector('.recipe .error').textContent.includes('Is `rapt serve` still')")
    page.run("window.fetch = window.ownFetch")
    write(page, '{"preset": "gpt2"} ')
    page.wait("document.querySelector('.recipe .error').hidden")


@test
def hostile_recipes_are_words(page, server):
    begin(page)
    for text in ('{"name": "<img src=x onerror=alert(1)>", "preset": "gpt-char"}',
                 '{"__proto__": {"width": 1}}',
                 '{"preset": "gpt-char", "decoder": {"kinds": {"L": null}}}', "[" * 3000, "null", '"x"', "3",
                 '{"preset": "gpt-char", "decoder": {"kinds": {"L": {"parts": [3, {}, {"x": 1}, null]}}}}',
                 '{"preset": "gpt-char", "embed": [[[]]], "head": "x", "decoder": {"kinds": 7}}',
                 '{"preset": "gpt-char", "decoder": {"kinds": {"L": {"parts": {"self": {"pos": {"rope": 3}, '
                 '"gate": {"a": 1}, "scale": [], "extra": {"kv_slots": {}}, "norm_in": 5}}}}}}',
                 '{"constructor": 1, "toString": {"a": []}, "preset": ["gpt2"]}'):
        write(page, text)
        page.wait(f"document.querySelector('#recipe-text').value === {json.dumps(text)}")
        page.wait("document.querySelector('.recipe-result .row .hint').hidden")
        equal(page.run("document.querySelectorAll('#view-recipe script, .recipe-form img').length"), 0)
    texts = short()
    for i in range(0, len(texts), 60):  # names, notes, fields that there are not, and the errors about them
        name, note, *fields = texts[i:i + 60]
        for recipe in ({"preset": "gpt-char", "name": name, "note": note},
                       {"preset": "gpt-char", "name": name, **{f: f for f in fields}}):
            write(page, json.dumps(recipe))
            page.wait("document.querySelector('.recipe-result .row .hint').hidden")
            nothing_foreign(page, f"texts {i} and on")
    choose(page, "#recipe-preset", "gpt-char")
    page.wait("document.querySelector('.recipe .error').hidden && "
              "document.querySelector('.recipe-result h2').textContent === 'gpt-char'")


@test
def fields_are_found(page, server):
    begin(page)
    page.run("document.querySelector('#recipe-search').focus()")
    page.type("window")
    found = page.texts(".found code")
    equal(found[0], "decoder.kinds.L.parts[0].self.window")
    page.press(".found button")
    equal(page.run("document.activeElement.dataset.at"), found[0])
    equal(value_of(page)["decoder"]["kinds"]["L"]["parts"][0]["self"]["window"], 0)
    page.run("document.querySelector('#recipe-search').select()")
    page.run("document.querySelector('#recipe-search').focus()")
    page.type("qqq")
    equal(page.texts(".recipe-side .hint:not([hidden])"),
          ["No field of this recipe has that in its name or meaning."])


@test
def two_recipes_are_compared(page, server):
    begin(page, preset="llama3")
    choose(page, "#recipe-other", "llama2")
    page.wait("document.querySelectorAll('.differ tbody tr').length > 0")
    rows = page.run("[...document.querySelectorAll('.differ tbody tr')].map((r) => "
                    "[r.querySelector('code').textContent, r.cells[1].textContent, r.cells[2].textContent, "
                    "r.querySelector('small')?.textContent ?? ''])")
    wanted = json.loads(show(page, "--diff", "llama2", "llama3", "--json"))
    equal([r[:3] for r in rows[:len(wanted)]], [[d["path"], d["a"], d["b"]] for d in wanted])
    equal(page.text(".differ p"), f"{len(wanted)} fields differ from llama2.")
    meanings = {r[0]: r[3] for r in rows}
    equal(meanings["vocab"][:9], "token ids")
    equal(meanings["decoder.kinds.L.parts[0].self.kv_heads"][:24], "key and value heads; 0: ")
    equal(meanings["decoder.kinds.L.parts[0].self.pos.rope.theta"], "base of the frequencies")
    equal(rows[len(wanted)][:3], ["Parameters", "6,738,415,616", "8,030,261,248"])
    choose(page, "#recipe-other", "=")
    page.wait("document.querySelector('.differ p').textContent.startsWith('No difference')")
    fill(page, "context", "4096")
    page.wait("document.querySelectorAll('.differ tbody tr').length > 0 && "
              "document.querySelector('.differ tbody code').textContent === 'context'")
    equal(page.texts(".differ tbody tr:first-child td"), ["8192", "4096"])
    choose(page, "#recipe-other", "")
    equal(page.run("document.querySelector('.differ').hidden"), True)


@test
def it_goes_to_the_command_line_and_to_training(page, server):
    begin(page)
    expect(page.text(".recipe-body > .twin pre").startswith("rapt show gpt-char\nrapt train gpt-char --data"),
           page.text(".recipe-body > .twin pre"))
    fill(page, "width", "64")
    settled(page)
    page.wait("document.querySelector('.recipe-body > .twin pre').textContent.startsWith('cat >')")
    command = page.text(".recipe-body > .twin pre")
    name, there = re.match(r"cat > (\S+) <<'END'\n(.*)\nEND\nrapt show (?:\S+)\n", command, re.S).groups()
    equal((name, json.loads(there)), ("gpt-char.json", value_of(page)))
    own = value_of(page)
    own["name"] = "--x; rm -rf ~ $(y)"
    write(page, json.dumps(own))
    page.wait("document.querySelector('.recipe-body > .twin pre').textContent.startsWith('cat > x.json')")
    text = text_of(page)
    page.press(".do-train")
    page.wait("import('/page/state.js').then(({state}) => state.view === 'train')")
    equal(page.run("import('/page/state.js').then(({state}) => state.recipe)"), text)
    page.press("#tab-recipe")
    equal(text_of(page), text, "nothing is lost on the way")


@test
def by_keyboard_alone(page, server):
    begin(page)
    page.run("document.querySelector('#recipe-preset').focus()")
    seen = []
    for _ in range(90):
        page.key("Tab")
        here = page.run("""(() => { const e = document.activeElement, s = getComputedStyle(e);
            return !e || e === document.body ? null : [e.dataset.at || e.id || e.className || e.tagName,
              s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2]; })()""")
        if not here:
            break
        seen.append(here)
    reached = {s[0] for s in seen}
    for want in ("recipe-other", "recipe-search", "recipe-text", "width", "main do-train", "SUMMARY",
                 "decoder.kinds.L.parts[0].self.heads", "decoder.kinds.L.parts[0].self+", "head.tied"):
        expect(want in reached, f"Tab reaches {want}:", sorted(reached))
    equal([s for s in seen if not s[1]], [], "where the focus cannot be seen")
    page.run(f"document.querySelector('{at('head.tied')}').focus()")
    page.key("Space")
    settled(page)
    equal(value_of(page)["head"], {"tied": False})
    equal(page.run("document.activeElement.dataset.at"), "head.tied", "the focus stays")
    page.wait("document.querySelector('.facts dd').textContent.startsWith('812,416')")


@test
def languages_widths_and_themes(page, server):
    for lang in ("en", "zh"):
        begin(page, 1280, lang)
        choose(page, "#recipe-other", "llama3")
        page.wait("document.querySelectorAll('.differ tbody tr').length > 0")
        for width, theme in ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark"), (320, "light")):
            page.size(width, 800)
            page.theme(theme)
            page.wait("document.querySelector('.recipe-picture').complete")
            expect(page.run("(({scrollWidth, clientWidth}) => scrollWidth <= clientWidth)("
                            "document.querySelector('#view-recipe'))"), f"{width} {lang}: too wide")
            expect(not re.search(r"recipe_|\{n|undefined|NaN|\[object", page.text("#view-recipe")), "words")
            page.picture_in(f"recipe-{lang}-{width}-{theme}")
        page.theme("light")
    page.size(1280, 800)
    page.wait("document.querySelector('.recipe-form').textContent.includes('残差流的通道数')")
    page.run("document.querySelector('#recipe-search').focus()")
    page.type("开头若干键")
    equal(page.texts(".found code"), ["decoder.kinds.L.parts[0].self.keep"])
    page.press("#lang")
    page.wait("document.querySelector('.recipe-form').textContent.includes('channels of the residual')")
    equal(facts(page), as_drawn(show(page, "gpt-char")))


@test
def the_panel_by_keyboard_and_mouse(page, server):
    def there(width, lang):
        begin(page, width, lang)
        choose(page, "#recipe-other", "llama3")
        page.wait("document.querySelectorAll('.differ tbody tr').length > 0")

    walk(page, "recipe", there, leave=".take, .download")


@test
def nothing_was_complained_about(page, server):
    refused = [c for c in page.complaints() if "400" in c and "Failed to load resource" in c]
    equal([c for c in page.complaints() if c not in refused], [], "the console")
    equal(page.run("reports"), [], "reports of the policy")
    asked = [e["request"]["url"] for e in page.seen("Network.requestWillBeSent")]
    hosts = {url.split("/")[2] for url in asked if url.startswith(("http", "ws"))}
    equal(hosts, {page.address.split("/")[2]}, "hosts that were asked")


if __name__ == "__main__":
    sys.exit(run("The page's recipes, in a browser.", ["--lab"]))
