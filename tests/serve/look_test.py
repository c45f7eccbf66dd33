#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the page asks `rapt serve`: its files, texts that are looked at (values are those of `rapt inspect`),
looking while an answer is written, streams that are resumed, the monitor.

  tests/serve/look_test.py [--rapt build/rapt] [--only PATTERN]
"""
import base64
import contextlib
import gzip
import json
import math
import pathlib
import struct
import sys
import tempfile
import threading
import time

from server import (Server, arguments, equal, expect, good, message, near, rapt_json, rapt_text,
                    read_npy, run_tests, test)

TEXT = "The model of attention is the model that looks at the model, and Größe 你好 is a text."
KEY, OTHER = "canary-key-of-the-first", "canary-key-of-another"


class Servers:
    """f32 caches, as the command line has them; a model with gates; one with keys."""

    def __init__(self, args):
        self.args = args
        self.folder = tempfile.TemporaryDirectory()
        keys = pathlib.Path(self.folder.name, "keys")
        keys.write_text(f"{KEY}\n{OTHER}\n")
        keys.chmod(0o600)
        self.one = Server(args, "--cache-type", "f32",
                          models=[f"chat={args.models.chat}", "gated=default-gated",
                                  f"embed={args.models.embed}"])
        self.keyed = Server(args, "--key-file", keys)
        self.ids = good(self.one.ask("/tokenize", {"model": "chat", "prompt": TEXT})).json()["tokens"]

    def look(self, want, ids=None, **more):
        return good(self.one.ask("/v1/look", {"model": "chat", "ids": ids or self.ids, "want": want,
                                              **more})).json()

    def inspect(self, view, *flags, ids=None, model=None):
        return rapt_json(self.args, "inspect", view, model or self.args.models.chat, "--ids",
                         " ".join(map(str, ids or self.ids)), *flags)["data"]

    def close(self):
        bad = [s for s in (self.one, self.keyed) if s.stop() != 0]
        self.folder.cleanup()
        return bad


def refused(reply, status, code=None, param=None):
    equal(reply.status, status, reply.body[:300])
    e = reply.error()
    if code:
        equal(e["code"], code, e["message"])
    if param:
        equal(e["param"], param, e["message"])
    return e["message"]


def flat(x):
    return [z for y in x for z in flat(y)] if isinstance(x, list) else [math.nan if x is None else x]


def values(a):
    """The numbers of an array of a reply."""
    size = math.prod(a["shape"])
    if a["encoding"] == "json":
        got = flat(a["data"])
    else:
        data = base64.b64decode(a["data"], validate=True)
        got = list(struct.unpack(f"<{size}{ {'u8': 'B', 'f16': 'e', 'f32': 'f'}[a['encoding']]}", data))
        if a["encoding"] == "u8":
            got = [x * a["scale"] / 255 for x in got]
    equal(len(got), size, "values of an array")
    return got


def cut(list_, *sizes):
    """A flat list as lists of lists."""
    for n in reversed(sizes[1:]):
        list_ = [list_[i:i + n] for i in range(0, len(list_), n)]
    return list_


# ---------------------------------------------------------------------------------------------- static files
@test
def files_of_the_page(s):
    page = good(s.keyed.ask("/"))  # public
    expect(page.headers["content-type"].startswith("text/html"), page.headers)
    policy = page.headers["content-security-policy"]
    for part in ("default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'",
                 "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"):
        expect(part in policy, part, policy)
    expect("unsafe" not in policy and "http" not in policy, policy)
    for name, value in (("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer"),
                        ("cross-origin-opener-policy", "same-origin"), ("cache-control", "no-cache")):
        equal(page.headers[name], value, name)
    equal(good(s.one.ask("/page/index.html")).body, page.body)
    for path in ("/page/shared/words.json", "/page/shared/heat.js", "/page/style.css"):
        plain = good(s.keyed.ask(path))
        packed = good(s.keyed.ask(path, headers={"Accept-Encoding": "br;q=1, gzip;q=0.5"}))
        equal(packed.headers["content-encoding"], "gzip")
        equal(gzip.decompress(packed.body), plain.body, path)
        expect(packed.headers["etag"] != plain.headers["etag"], "one tag for two representations")
        never = s.keyed.ask(path, headers={"Accept-Encoding": "gzip;q=0, *"})
        expect("content-encoding" not in never.headers, never.headers)
        same = s.keyed.ask(path, headers={"If-None-Match": f'"x", {plain.headers["etag"]}'})
        equal((same.status, same.body), (304, b""))
        head = s.keyed.ask(path, method="HEAD")
        equal((head.status, head.headers["content-length"]), (200, str(len(plain.body))))
    words = s.one.ask("/page/shared/words.json").json()
    equal(sorted(words), ["en", "zh"])
    names = [sorted(words[l]["page"]["words"]) for l in ("en", "zh")]
    equal(names[0], names[1], "words of both languages")
    for path in ("/page/", "/page/nope.js", "/page/../index.html", "/page/shared/index.html",
                 "/page/%2e%2e/CMakeLists.txt", "/page/shared/words.json/", "/v1/page/index.html"):
        refused(s.one.ask(path), 404)
    refused(s.one.ask("/page/index.html", {}, method="POST"), 405)
    refused(s.one.ask("/page/index.html", headers={"Host": "evil.example"}), 403)


# ----------------------------------------------------------------------------------------------------- looks
@test
def tokens_are_log_softmax_of_rapt_logits(s):
    with tempfile.TemporaryDirectory() as there:
        rapt_text(s.args, "logits", s.args.models.chat, "--ids", " ".join(map(str, s.ids)), "--out",
                  f"{there}/l.npy", "-q")
        rows = read_npy(f"{there}/l.npy")
    look = s.look(["tokens"], top=3)
    t = look["tokens"]
    equal(look["shape"], {"tokens": len(s.ids), "layers": 2, "heads": 4, "width": 64, "vocabulary": 512})
    equal(t["ids"], s.ids)
    whole = b"".join(x.encode() if b is None else bytes(b) for x, b in zip(t["text"], t["bytes"]))
    expect(whole.decode().strip() == TEXT, whole)
    expect(any(t["bytes"]), "no token is a part of a character; the text is too easy")
    equal([t[k][0] for k in ("logprob", "rank", "entropy", "top")], [None, None, None, []])
    for i, row in enumerate(rows):
        top = max(row)
        total = math.log(math.fsum(math.exp(x - top) for x in row)) + top
        p = [x - total for x in row]
        order = sorted(range(len(row)), key=lambda k: (-row[k], k))
        last = i + 1 == len(rows)
        tops, entropy = (t["next"]["top"], t["next"]["entropy"]) if last else (t["top"][i + 1],
                                                                              t["entropy"][i + 1])
        near([entropy], [-math.fsum(math.exp(x) * x for x in p)], 1e-4, "entropy")
        equal([x["id"] for x in tops], order[:3], i)
        near([x["logprob"] for x in tops], [p[k] for k in order[:3]], 1e-5, "top")
        if not last:
            near([t["logprob"][i + 1]], [p[s.ids[i + 1]]], 1e-5, "logprob")
            equal(t["rank"][i + 1], order.index(s.ids[i + 1]) + 1)


@test
def heads_are_those_of_inspect(s):
    ours, wanted = s.look(["heads"])["heads"], s.inspect("heads")["heads"]
    for m in wanted:
        for key in ("first", "entropy", "self", "previous", "induction", "distance", "variance", "strongest",
                    "max_logit", "sink"):
            near([ours["values"][key][m["layer"]][m["head"]]], [m[key]], 1e-9, key)
        equal(ours["values"]["gate"][m["layer"]][m["head"]], None)
        equal(ours["labels"][m["layer"]][m["head"]], m["label"])
    sinks = [[m["sink"] for m in wanted if m["layer"] == l] for l in range(2)]
    near(ours["sinks"]["mean"], [sum(x) / 4 for x in sinks], 1e-9)
    equal(ours["sinks"]["heads"], [sum(x > 0.3 for x in of) for of in sinks])
    equal(sorted(ours["metrics"]), sorted(ours["values"]))


@test
def maps_and_rows_are_those_of_inspect(s):
    n = len(s.ids)
    maps = {}
    for l in range(2):
        for h in range(4):
            wanted = s.inspect("attention", "--layer", l, "--head", h, "--pixels", "512")["weights"] \
                if (l, h) in ((0, 1), (1, 3)) else None
            got = s.look(["map", "row", "token"], layer=l, head=h, token=-3)
            equal(got["map"]["weights"]["shape"], [n, n])
            maps[l, h] = cut(values(got["map"]["weights"]), n, n)
            if wanted:
                near(flat(maps[l, h]), flat(wanted), 1e-7, (l, h))
            row = cut(values(got["row"]["weights"]), 1, 4, n)
            near(row[0][h], maps[l, h][n - 3], 0, "a row is that of the map")
            # The kernel's statistics of the same row.
            stats = dict(zip(got["token"]["columns"], cut(values(got["token"]["stats"]), 2, 4, 8)[l][h]))
            w = maps[l, h][n - 3]
            near([stats[k] for k in ("first", "self", "previous")], [w[0], w[n - 3], w[n - 4]], 1e-6)
            near([stats["distance"]], [math.fsum(x * (n - 3 - k) for k, x in enumerate(w[:n - 2]))], 1e-4)
            near([stats["entropy"]], [-math.fsum(x * math.log(x) for x in w if x > 0)], 1e-4)
    every = s.look(["row"], token=-3)["row"]
    equal(every["layers"], [0, 1])
    rows = [maps[l, h][n - 3] for l in range(2) for h in range(4)]
    near(values(every["weights"]), flat(rows), 0, "every head")
    part = s.look(["map"], layer=1, head=3, rows=[5, 25], keys=[2, 18], pixels=8)["map"]
    wanted = s.inspect("attention", "--layer", "1", "--head", "3", "--rows", "5:25", "--keys", "2:18",
                       "--pixels", "8")["weights"]
    equal((part["rows"], part["keys"], part["weights"]["shape"]), ([5, 25], [2, 18], [8, 8]))
    near(values(part["weights"]), flat(wanted), 1e-7, "a part, pooled")
    for encoding, within in (("u8", 0.002), ("f16", 1e-3), ("f32", 1e-7)):
        got = s.look(["map"], layer=1, head=3, encoding=encoding)["map"]["weights"]
        near(values(got), flat(maps[1, 3]), within, encoding)


@test
def norms_massive_and_lens_are_those_of_inspect(s):
    n = len(s.ids)
    got = s.look(["norms", "massive", "lens", "token"], token=7, top=2)
    wanted = s.inspect("norms")["stacks"][0]
    for key in ("residual", "attn_out", "ffn_out"):
        near(values(got["norms"][key]), flat(wanted[key]), 1e-5, key)
        near(got["token"]["norms"][key], [row[7] for row in wanted[key]], 1e-5, "of a token")
    equal(got["norms"]["rows"], ["embed", "0", "1"])
    wanted = s.inspect("massive")["stacks"][0]
    near(got["massive"]["median"], wanted["median"], 1e-9, "median")
    near(values(got["massive"]["largest"]), flat(wanted["largest"]), 1e-5, "largest")
    equal(got["massive"]["channels"], wanted["channels"])
    near(flat(got["massive"]["trace"]), flat(wanted["trace"]), 1e-5, "trace")
    wanted = s.inspect("lens", "--top", "2")
    lens = got["lens"]
    equal((lens["token"], lens["truth"]), (7, s.ids[8]))
    equal(lens["ids"], [row[7] for row in wanted["top_ids"]])
    for ours, theirs in (("probability", "top_probabilities"), ("entropy", "entropy"), ("kl", "kl"),
                         ("truth_probability", "truth_probability"), ("rank", "rank")):
        near(flat(lens[ours]), flat([row[7] for row in wanted[theirs]]), 1e-6, ours)
    end = s.look(["lens"])["lens"]
    equal((end["token"], end["truth"], end["rank"]), (n - 1, None, None))


@test
def gates_of_a_gated_model(s):
    asked = {"model": "gated", "prompt": "Once upon a time there was"}
    ids = good(s.one.ask("/tokenize", asked)).json()["tokens"]
    got = s.look(["heads", "token"], ids=ids, model="gated")
    for m in s.inspect("heads", ids=ids, model="default-gated")["heads"]:
        for key in ("gate", "gate_closed", "first", "entropy"):
            near([got["heads"]["values"][key][m["layer"]][m["head"]]], [m[key]], 1e-6, key)
    means = [math.fsum(values(s.look(["token"], ids=ids, model="gated", token=t)["token"]["gate"]))
             for t in range(len(ids))]
    whole = math.fsum(flat(got["heads"]["values"]["gate"]))
    near([math.fsum(means) / len(ids)], [whole], 1e-3, "mean of all")


@test
def a_long_text_comes_in_pieces_beside_answers(s):
    ids = (s.ids * 30)[:1100]
    alone = s.look(["tokens", "heads", "norms", "massive", "lens", "row"], ids=ids, layer=1, token=1000)
    stop, failed = threading.Event(), []

    def write():
        while not stop.is_set():
            r = s.one.ask("/v1/completions", {"model": "chat", "prompt": "The", "max_tokens": 40})
            if r.status != 200:
                failed.append(r)
    writers = [threading.Thread(target=write) for _ in range(2)]
    for w in writers:
        w.start()
    try:
        beside = s.look(["tokens", "heads", "norms", "massive", "lens", "row"], ids=ids, layer=1, token=1000)
    finally:
        stop.set()
        for w in writers:
            w.join()
    equal(failed, [])
    for key in alone:
        if key != "timings":
            expect(alone[key] == beside[key], key, "differs beside others")
    wanted = s.inspect("heads", "--sample", "512", ids=ids)["heads"]
    for m in wanted:
        near([beside["heads"]["values"][k][m["layer"]][m["head"]] for k in ("first", "entropy", "induction")],
             [m[k] for k in ("first", "entropy", "induction")], 1e-7, "in pieces")
    wanted = s.inspect("norms", ids=ids)["stacks"][0]["residual"]
    near(values(beside["norms"]["residual"]), flat(wanted), 1e-4, "in pieces")


@test
def edits_change_what_is_seen(s):
    got = s.look(["row"], edits=["z.0@1:zero"], layer=1)["row"]["weights"]
    expect(values(got) != values(s.look(["row"], layer=1)["row"]["weights"]), "nothing has changed")
    wanted = s.inspect("attention", "--layer", "1", "--head", "2", "--pixels", "512", "--edit", "z.0@1:zero")
    near(cut(values(got), 1, 4, len(s.ids))[0][2], wanted["weights"][-1], 1e-7, "edited")
    refused(s.one.ask("/v1/look", {"model": "chat", "ids": s.ids, "want": ["row"], "edits": ["nope.3:zero"]}),
            400)


@test
def a_conversation_and_its_answer(s):
    asked = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}]}
    answer = good(s.one.ask("/v1/chat/completions", {**asked, "temperature": 0, "max_tokens": 12,
                                                     "logprobs": True, "return_token_ids": True})).json()
    ids = answer["prompt_token_ids"] + answer["choices"][0]["token_ids"]
    told = [e["logprob"] for e in answer["choices"][0]["logprobs"]["content"]]
    near(s.look(["tokens"], ids=ids)["tokens"]["logprob"][-len(told):], told, 1e-6, "as it was told")
    t = good(s.one.ask("/v1/look", {**asked, "answer": "a text", "want": ["tokens"]})).json()["tokens"]
    equal(t["ids"][:len(answer["prompt_token_ids"])], answer["prompt_token_ids"])
    equal("".join(t["text"]).endswith("a text"), True)


@test
def looks_that_are_refused(s):
    def no(param, more, status=400):
        body = {"model": "chat", "ids": s.ids, "want": ["tokens"], **more}
        body = {k: v for k, v in body.items() if v is not ...}
        why = refused(s.one.ask("/v1/look", body), status)
        expect(len(why) > 10, why)
        if param:
            expect(param in why, param, why)
    n = len(s.ids)
    no("ids", {"ids": ...})
    no("ids", {"text": "a"})
    no("ids", {"ids": []})
    no("ids", {"ids": [512]})
    no("ids", {"ids": [-1]})
    no("ids", {"ids": [1] * 4097})
    no("4096", {"ids": ..., "text": "a b c " * 20000})
    no("2048", {"ids": [65] * 2049, "want": ["heads"]})
    no("values", {"ids": [65] * 4000, "want": ["row", "norms", "map"], "layer": 0, "head": 0, "pixels": 512})
    no("want", {"want": []})
    no("want", {"want": ...})
    no("want[0]", {"want": ["everything"]})
    no("want[0]", {"want": [3]})
    no("layer and head", {"want": ["map"]})
    no("layer", {"want": ["map"], "layer": 2, "head": 0})
    no("head", {"want": ["map"], "layer": 1, "head": 4})
    no("layer", {"want": ["row"], "layer": 2 ** 40})
    no("token", {"want": ["lens"], "token": n})
    no("token", {"want": ["lens"], "token": -n - 1})
    no("rows", {"want": ["map"], "layer": 0, "head": 0, "rows": [0, n + 1]})
    no("rows", {"want": ["map"], "layer": 0, "head": 0, "rows": [3, 3]})
    no("rows", {"want": ["map"], "layer": 0, "head": 0, "rows": [-1, 3]})
    no("keys", {"want": ["map"], "layer": 0, "head": 0, "keys": [0, 1, 2]})
    no("pixels", {"want": ["map"], "layer": 0, "head": 0, "pixels": 513})
    no("encoding", {"encoding": "u7"})
    no("nope", {"nope": 1})
    no("answer", {"answer": "a"})
    no("edits", {"edits": [{"point": "z.0", "op": "add", "value": "/etc/passwd"}]})
    no("decoder", {"model": "embed", "ids": [1, 2]})
    no(None, {"model": "nope"}, 404)
    equal(s.one.ask("/v1/look", b"[1", method="POST").status, 400)
    equal(s.one.ask("/v1/look").status, 405)


@test
def looks_at_a_time(s):
    ids = (s.ids * 90)[:2000]
    replies = []
    threads = [threading.Thread(target=lambda: replies.append(
        s.one.ask("/v1/look", {"model": "chat", "ids": ids, "want": ["heads"]}).status)) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    expect(set(replies) <= {200, 429} and replies.count(200) >= 2, replies)
    # Who leaves frees the place.
    for _ in range(4):
        with contextlib.closing(s.one.connect()) as c:
            c.sendall(message(s.one.host(), "/v1/look", {"model": "chat", "ids": ids, "want": ["heads"]}))
            time.sleep(0.03)
    for _ in range(100):
        r = s.one.ask("/v1/look", {"model": "chat", "ids": s.ids, "want": ["tokens"]})
        if r.status == 200:
            break
        time.sleep(0.05)
    equal(r.status, 200, "the places of those who left")


# ------------------------------------------------------------------------------------------------------ live
def chat(**more):
    return {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0,
            "max_tokens": 24, "stream": True, "return_token_ids": True, **more}


def text_of(chunks):
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])


@test
def rows_while_an_answer_is_written(s):
    plain = good(s.one.ask("/v1/chat/completions", chat())).chunks()
    live = good(s.one.ask("/v1/chat/completions", chat(rapt={"look": ["live"]}))).chunks()
    frames = [c for c in live if "live" in c.get("rapt", {})]
    rest = [c for c in live if "live" not in c.get("rapt", {})]
    equal(text_of(rest), text_of(plain), "the answer")
    equal(rest[-1]["rapt"]["hash"], plain[-1]["rapt"]["hash"], "its bits")
    ids = [i for c in rest if c["choices"] for i in c["choices"][0].get("token_ids", [])]
    prompt = next(c["prompt_token_ids"] for c in rest if "prompt_token_ids" in c)
    equal(len(frames), len(ids), "one frame a token")
    for c in frames:
        equal((c["choices"], c["object"], c["id"]), ([], "chat.completion.chunk", rest[0]["id"]))
    rows = [c["rapt"]["live"]["row"] for c in frames]
    equal(rows, [len(prompt) - 1 + i for i in range(len(ids))], "the row that wrote each token")
    for c in (frames[0], frames[len(frames) // 2], frames[-1]):
        f = c["rapt"]["live"]
        equal(f["shape"], [2, 4, 8])
        wanted = s.look(["token"], ids=prompt + ids, token=f["row"], encoding="f16")["token"]["stats"]
        equal(f["stats"], wanted["data"], "what the text shows when it is read once more")
    both = good(s.one.ask("/v1/chat/completions", chat(rapt={"look": ["live", "layers"]}))).chunks()
    equal(len(both[-1]["rapt"]["look"]["layers"]), 2)
    for more in ({"n": 2}, {"stream": False}):
        refused(s.one.ask("/v1/chat/completions", chat(rapt={"look": ["live"]}, **more)), 400,
                param="rapt.look")


# ---------------------------------------------------------------------------------------------------- resume
def start(server, body, key=None):
    """A stream whose head and first events were read: its socket, its id, what came."""
    c = server.connect()
    c.sendall(message(server.host(), "/v1/chat/completions", body,
                      headers={"Authorization": f"Bearer {key}"} if key else None))
    got = b""
    while got.count(b"data:") < 3:
        piece = c.recv(4096)
        expect(piece, got)
        got += piece
    head = got.split(b"\r\n\r\n")[0].decode().lower().split("\r\n")
    id = next((line.split(": ", 1)[1] for line in got.decode(errors="replace").split("\r\n")
               if line.lower().startswith("rapt-stream: ")), None)
    return c, id, head


@test
def a_stream_goes_on_without_its_reader(s):
    long = chat(max_tokens=400, logit_bias={"511": -100, "0": -100}, rapt={"resume": True})
    whole = good(s.one.ask("/v1/chat/completions", long))
    expect(len(whole.headers["rapt-stream"]) >= 22, whole.headers)
    events = whole.events()
    again = good(s.one.ask(f"/v1/stream/{whole.headers['rapt-stream']}"))
    equal(again.events(), events, "from the beginning, after its end")
    equal(good(s.one.ask(f"/v1/stream/{whole.headers['rapt-stream']}?from=5")).events(), events[5:])
    text = lambda ev: text_of([json.loads(e) for e in ev[:-1]])
    c, id, _ = start(s.one, long)
    c.close()
    time.sleep(0.05)
    back = good(s.one.ask(f"/v1/stream/{id}?from=0")).events()
    equal(text(back), text(events), "the same answer")
    equal(back[-1], "[DONE]")
    # Live frames are not kept, and not counted.
    c, id, _ = start(s.one, {**long, "rapt": {"resume": True, "look": ["live"]}})
    c.close()
    back = good(s.one.ask(f"/v1/stream/{id}")).events()
    equal(text(back), text(events), "with live frames")
    refused(s.one.ask(f"/v1/stream/{id}?from=100000"), 400, param="from")
    for bad in ("-1", "x", "1.5", "99999999999999999999", ""):
        refused(s.one.ask(f"/v1/stream/{id}?from={bad}"), 400, param="from")
    refused(s.one.ask("/v1/stream/" + "a" * 24), 404, "stream_not_found")
    refused(s.one.ask("/v1/chat/completions", chat(stream=False, rapt={"resume": True})), 400)
    equal(s.one.ask(f"/v1/stream/{id}", method="HEAD").status, 200)


@test
def a_new_reader_takes_over_and_delete_ends(s):
    endless = chat(max_tokens=7000, logit_bias={"511": -100, "0": -100}, rapt={"resume": True})
    c, id, _ = start(s.one, endless)
    with contextlib.closing(c), contextlib.closing(s.one.connect()) as d:
        d.sendall(message(s.one.host(), f"/v1/stream/{id}"))
        expect(b" 200 " in d.recv(4096), "the second reader")
        rest = b""
        with contextlib.suppress(TimeoutError):
            while piece := c.recv(65536):
                rest += piece
                if rest.endswith(b"0\r\n\r\n"):
                    break
        expect(rest.endswith(b"0\r\n\r\n") and b"[DONE]" not in rest, "the first reader's end", rest[-80:])
        equal(s.one.ask(f"/v1/stream/{id}", method="DELETE").status, 204)
        rest = b""
        while not rest.endswith(b"0\r\n\r\n"):
            piece = d.recv(65536)
            expect(piece, rest[-80:])
            rest += piece
        expect(b"[DONE]" in rest and b"cancelled" in rest, rest[-300:])
    for _ in range(100):
        running = s.one.ask("/v1/monitor?once=1").json()["models"][0]["requests"]
        if not running:
            break
        time.sleep(0.02)
    equal(running, [], "what runs after DELETE")


@test
def streams_belong_to_a_key(s):
    c, id, _ = start(s.keyed, chat(rapt={"resume": True}), key=KEY)
    c.close()
    refused(s.keyed.ask(f"/v1/stream/{id}"), 401)
    for method in ("GET", "DELETE"):
        other = {"Authorization": f"Bearer {OTHER}"}
        refused(s.keyed.ask(f"/v1/stream/{id}", method=method, headers=other), 404, "stream_not_found")
    good(s.keyed.ask(f"/v1/stream/{id}", headers={"Authorization": f"Bearer {KEY}"}))
    for path in ("/v1/monitor", "/v1/look"):
        refused(s.keyed.ask(path, {} if path.endswith("look") else None), 401)


@test
def rings_are_bounded(s):
    ids = set()
    for _ in range(20):
        r = good(s.one.ask("/v1/chat/completions", chat(max_tokens=2, rapt={"resume": True})))
        ids.add(r.headers["rapt-stream"])
    equal(len(ids), 20)
    kept = s.one.ask("/v1/monitor?once=1").json()["streams"]
    expect(kept["kept"] <= 8 and kept["detached"] == 0, kept)
    big = good(s.one.ask("/v1/chat/completions", chat(
        max_tokens=6000, logit_bias={"511": -100, "0": -100}, logprobs=True, top_logprobs=5,
        rapt={"resume": True})))
    expect(len(big.body) > 2 << 20, len(big.body))
    kept = s.one.ask("/v1/monitor?once=1").json()["streams"]
    expect(kept["bytes"] < 2 << 20, "more than a megabyte is kept", kept)
    why = refused(s.one.ask(f"/v1/stream/{big.headers['rapt-stream']}"), 410, "stream_trimmed")
    first = int(why.rsplit(" ", 1)[1])
    rest = good(s.one.ask(f"/v1/stream/{big.headers['rapt-stream']}?from={first}"))
    equal(rest.events(), big.events()[first:])


# --------------------------------------------------------------------------------------------------- monitor
@test
def the_monitor_tells_twice_a_second(s):
    body, over = chat(max_tokens=7000, logit_bias={"511": -100, "0": -100}), threading.Event()

    def write():
        while not over.is_set():
            good(s.one.ask("/v1/chat/completions", body))
    with contextlib.closing(s.one.connect()) as m:
        m.sendall(message(s.one.host(), "/v1/monitor"))
        got, began = b"", time.monotonic()
        asked = threading.Thread(target=write)
        asked.start()
        while got.count(b"data:") < 5:
            piece = m.recv(65536)
            expect(piece, got[-200:])
            got += piece
        took = time.monotonic() - began
        over.set()
        asked.join()
    expect(1 < took < 4, took, "seconds for four events")
    events = [json.loads(line[6:]) for line in got.split(b"\n") if line.startswith(b"data: ")
              and line.endswith(b"}")]
    busy = [e for e in events if e["models"][0]["requests"]]
    expect(busy, "nothing runs in", len(events), "events")
    one = busy[-1]["models"][0]
    equal((one["id"], one["requests"][0]["yours"], one["requests"][0]["phase"]), ("chat", True, "writing"))
    last = [e["models"][0]["last"] for e in events]
    expect(any(x and x["tokens_per_second"] > 0 for x in last), last)
    for e in events:
        for model in e["models"]:
            equal(model["pages"]["private"] + model["pages"]["shared"], model["pages"]["used"])
            if model["last"] and model["last"]["step_ms"]:
                t = model["last"]["step_ms"]
                near([t["compute"] + t["choose"] + t["other"]], [t["all"]], 0.2, "a step's time is split")
    expect("Hi" not in got.decode() and "canary" not in got.decode(), "texts in the monitor")
    expect(s.one.ask("/v1/monitor?once=1").json()["refused"], "refusals by reason")
    with contextlib.ExitStack() as stack:
        replies = []
        for _ in range(17):
            c = stack.enter_context(contextlib.closing(s.one.connect()))
            c.sendall(message(s.one.host(), "/v1/monitor"))
            replies.append(c.recv(12))
        equal(sum(b"200" in r for r in replies), 4, replies)
        expect(b"429" in replies[-1], replies)


def main():
    args = arguments(__doc__)
    servers = Servers(args)
    try:
        code = run_tests(args, servers)
    finally:
        bad = servers.close()
    if bad:
        print("a server did not end as it should:", *[b.errors()[-600:] for b in bad], sep="\n")
    return 1 if bad else code


sys.exit(main())
