# SPDX-License-Identifier: Apache-2.0
"""Answers: the command line's, whole and as they come, side by side, in conversations."""
import asyncio
import gc
import json
import pickle

import pytest

import rapt

PROMPT = "ROMEO:"


def said(cli, *flags, prompt=PROMPT):
    return json.loads(cli("run", "default", prompt, "--raw", "--json", "-q", *flags))


def test_greedy_is_the_command_line_s(model, cli):
    row = said(cli, "--temp", 0, "-n", 40)["samples"][0]
    a = model.generate(PROMPT, max_tokens=40, temperature=0)
    assert (str(a), a.ids, a.finish) == (row["text"], row["ids"], row["finish"])
    assert a.tokens == model.tokenizer.texts(a.ids) and f"{a:>5}" == str(a) and len(a) == len(a.ids)


def test_drawn_is_the_command_line_s(model, cli):
    flags = ("--seed", 7, "-n", 40, "--top-k", 20, "--repeat-penalty", 1.2, "--logprobs", 3)
    row = said(cli, *flags)["samples"][0]
    a = model.generate(PROMPT, max_tokens=40, seed=7, top_k=20, repeat_penalty=1.2, logprobs=3)
    assert a.ids == row["ids"]
    for p, top, expected in zip(a.logprobs, a.top, row["logprobs"]):
        assert p == pytest.approx(expected["logprob"], abs=1e-6)
        assert [t[0] for t in top] == [t["id"] for t in expected["top"]]
    assert a.seed == 7 and a == model.generate(PROMPT, max_tokens=40, seed=7, top_k=20, repeat_penalty=1.2)
    drawn = model.generate(PROMPT, max_tokens=10)
    assert drawn == model.generate(PROMPT, max_tokens=10, seed=drawn.seed)


def test_answers_of_a_form(model, cli):
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99},
                                               "mood": {"enum": ["glad", "sad"]}},
              "required": ["age", "mood"], "additionalProperties": False}

    class Person:  # as pydantic's classes
        @staticmethod
        def model_json_schema():
            return schema
    for seed in range(3):
        row = said(cli, "--seed", seed, "--schema", json.dumps(schema))["samples"][0]
        answers = [model.generate(PROMPT, seed=seed, schema=s) for s in (schema, json.dumps(schema), Person)]
        assert [a.ids for a in answers] == [row["ids"]] * 3 and answers[0].finish == "stop"
        person = json.loads(str(answers[0]))
        assert 0 <= person["age"] <= 99 and person["mood"] in ("glad", "sad") and len(person) == 2
    text = str(model.generate(PROMPT, grammar='root ::= "a"{2,3} ("b" | "c")'))
    assert text in ("aab", "aac", "aaab", "aaac")
    assert "".join(model.stream(PROMPT, grammar='root ::= "yes"')) == "yes"
    for wrong in ({"schema": {"not": {}}}, {"schema": "{"}, {"schema": object()}, {"grammar": "root ::= x"},
                  {"schema": {}, "grammar": 'root ::= "a"'}):
        with pytest.raises(rapt.Error):
            model.generate(PROMPT, max_tokens=2, **wrong)


def test_samples_and_beams(model, cli):
    row = said(cli, "--seed", 3, "-n", 12, "--samples", 3)
    assert [a.ids for a in model.generate(PROMPT, max_tokens=12, seed=3, samples=3)] == \
        [s["ids"] for s in row["samples"]]
    row = said(cli, "--beams", 4, "-n", 12)
    a = model.generate(PROMPT, max_tokens=12, beams=4)
    assert a.ids == row["samples"][0]["ids"] and a.score == pytest.approx(row["samples"][0]["score"])


def test_every_option_is_known(model):
    options = dict(max_tokens=4, temperature=0.7, top_k=10, top_p=0.9, min_p=0.01, typical=0.9,
                   repeat_penalty=1.1, repeat_last_n=10, frequency_penalty=0.1, presence_penalty=0.1, seed=1,
                   stop=["zzz"], logit_bias={5: 1.5}, ignore_eos=True, logprobs=True, chunk=64)
    assert len(model.generate(PROMPT, **options).ids) == 4
    a = model.generate(PROMPT, mirostat=2, mirostat_tau=4, mirostat_eta=0.2, max_tokens=4, seed=1)
    assert len(a) == 4
    for wrong in (dict(top_p=2), dict(temperature=-1), dict(max_tokens=1.5), dict(stop=""), dict(samples=0),
                  dict(top_k="many"), dict(seed="x")):
        with pytest.raises(rapt.UsageError):
            model.generate(PROMPT, **wrong)


def test_a_bias_forbids_and_a_text_stops(model):
    a = model.generate(PROMPT, max_tokens=20, temperature=0)
    b = model.generate(PROMPT, max_tokens=20, temperature=0, logit_bias={a.ids[0]: float("-inf")})
    assert b.ids[0] != a.ids[0]
    word = str(a)[5:8]
    c = model.generate(PROMPT, max_tokens=20, temperature=0, stop=word)
    assert str(a).startswith(str(c)) and word not in str(c) and c.finish == "stop"


def test_prompts_as_ids_and_messages(model):
    np = pytest.importorskip("numpy")
    ids = model.generate(PROMPT, max_tokens=6, temperature=0).prompt
    for form in (ids, tuple(ids), np.array(ids)):
        assert model.generate(form, max_tokens=6, temperature=0) == model.generate(PROMPT, max_tokens=6,
                                                                                   temperature=0)
    with pytest.raises(rapt.UsageError, match="chat template"):
        model.generate([{"role": "user", "content": "a"}])
    with pytest.raises(rapt.Error, match="context"):
        model.generate([5] * 10000)


def test_a_stream_is_the_answer(model):
    a = model.generate(PROMPT, max_tokens=30, seed=5, logprobs=2)
    s = model.stream(PROMPT, max_tokens=30, seed=5, logprobs=2)
    assert iter(s) is s
    with pytest.raises(rapt.UsageError, match="over"):
        s.answer
    pieces = list(s)
    assert "".join(pieces) == str(a) and [p.id for p in pieces if p.id is not None] == a.ids
    assert [p.logprob for p in pieces if p.id is not None] == [float(p) for p in a.logprobs]
    assert s.answer == a and s.closed and list(s) == []
    p = pickle.loads(pickle.dumps(pieces[0]))
    assert (p, p.id) == (pieces[0], pieces[0].id)


def test_a_stream_can_be_left(model):
    whole = model.generate(PROMPT, max_tokens=30, temperature=0)
    with model.stream(PROMPT, max_tokens=30, temperature=0) as s:
        first = [next(s) for _ in range(5)]
    assert s.closed and s.answer.finish == "cancelled" and s.answer.ids == whole.ids[:5]
    assert "".join(first) == s.text
    s = model.stream(PROMPT, max_tokens=100, temperature=0, ignore_eos=True)
    for piece in s:
        break
    del s, piece
    gc.collect()
    assert model.generate(PROMPT, max_tokens=30, temperature=0) == whole


def test_a_callback_hears_and_stops(model):
    whole = model.generate(PROMPT, max_tokens=20, temperature=0)
    heard = []
    a = model.generate(PROMPT, max_tokens=20, temperature=0, on_token=heard.append)
    assert a == whole and "".join(heard) == str(a)

    def three(piece):
        heard.append(piece)
        return len(heard) < 3

    heard.clear()
    a = model.generate(PROMPT, max_tokens=20, temperature=0, on_token=three)
    assert a.ids == whole.ids[:len(a.ids)] and a.finish == "cancelled" and 3 <= len(a.ids) <= 4

    class Own(Exception):
        pass

    def fails(piece):
        raise Own("mine")

    with pytest.raises(Own, match="mine"):
        model.generate(PROMPT, max_tokens=20, on_token=fails)
    assert model.generate(PROMPT, max_tokens=20, temperature=0) == whole


def test_a_callback_may_use_the_model(model):
    inner = []
    model.generate(PROMPT, max_tokens=3, temperature=0,
                   on_token=lambda p: inner.append(model.generate("a", max_tokens=2, temperature=0).ids))
    alone = model.generate("a", max_tokens=2, temperature=0).ids
    assert inner == [alone] * len(inner) and inner


def test_astream(model):
    whole = model.generate(PROMPT, max_tokens=20, seed=2)

    async def many():
        async def one():
            return "".join([piece async for piece in model.astream(PROMPT, max_tokens=20, seed=2)])

        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        other = asyncio.create_task(tick())
        texts = await asyncio.gather(*(one() for _ in range(4)))
        other.cancel()
        assert ticks > 0
        return texts

    assert asyncio.run(many()) == [str(whole)] * 4

    async def left():
        async for piece in model.astream(PROMPT, max_tokens=400, ignore_eos=True, temperature=0):
            return piece

    endless = rapt.load("default", context=10**6, streaming=(4, 100))

    async def cancelled():
        async def forever():
            async for _ in endless.astream(PROMPT, ignore_eos=True, max_tokens=10**6):
                pass
        task = asyncio.create_task(forever())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert asyncio.run(left()).id == model.generate(PROMPT, max_tokens=1, temperature=0).ids[0]
    asyncio.run(cancelled())
    assert model.generate(PROMPT, max_tokens=20, seed=2) == whole


def test_a_batch_has_the_bits_of_each_alone(model):
    prompts = ["ROMEO:", "The king", "My lord, I", "O", "To be, or not to be"] * 5
    alone = [model.generate(p, max_tokens=10, seed=4) for p in prompts]
    together = model.batch(prompts, max_tokens=10, seed=4)
    assert together == alone and [a.hash for a in together] == [a.hash for a in alone]
    assert model.batch([]) == []
    with pytest.raises(rapt.UsageError, match="list"):
        model.batch("one")
    with pytest.raises(rapt.UsageError):
        model.batch(["a", [10**6]])
    assert model.batch(prompts, max_tokens=10, seed=4) == alone


def test_openai(model):
    a = model.generate(PROMPT, max_tokens=5, temperature=0, logprobs=2)
    d = a.openai()
    assert d["object"] == "text_completion" and d["choices"][0]["text"] == str(a)
    assert d["usage"] == {"prompt_tokens": len(a.prompt), "completion_tokens": 5,
                          "total_tokens": len(a.prompt) + 5}
    assert len(d["choices"][0]["logprobs"]["top_logprobs"]) == 5 and json.dumps(d)


def test_answers_print_and_are_values(model):
    a = model.generate("<b>", max_tokens=5, temperature=0, logprobs=True)
    assert "<span" in a._repr_html_() and "rapt.Answer" in repr(a)
    assert len(a.columns()["ids"]) == len(a.columns()["logprobs"]) == 5
    assert json.loads(a.json())["ids"] == a.ids
    assert pickle.loads(pickle.dumps(a)) == a and len({a, a}) == 1
    assert a.times.answer_tokens == 5 and a.times.tokens_per_second > 0
    with pytest.raises(AttributeError):
        a.text = "b"


def test_what_was_read_is_not_read_again_and_no_bit_changes(model):
    prompt = "To be, or not to be, that is the question. " * 6
    fresh = rapt.load("default").generate(prompt, max_tokens=8, seed=1)
    again = model.generate(prompt, max_tokens=8, seed=1)
    third = model.generate(prompt, max_tokens=8, seed=1)
    assert fresh == again == third and third.times.reused_tokens > 0


@pytest.mark.parametrize("cache", ["f32", "f16", "bf16", "q8_0", "q4_0"])
def test_caches_are_the_command_line_s(cli, cache):
    row = said(cli, "--temp", 0, "-n", 24, "--cache-type", cache)["samples"][0]
    assert rapt.load("default", cache=cache).generate(PROMPT, max_tokens=24, temperature=0).ids == row["ids"]


# --------------------------------------------------------------------------------------------- conversations
def chatty(tmp_path, context=None):
    """The embedded model with a chat template, as a folder."""
    m = rapt.load("default")
    m.save(tmp_path / "chat")
    config = tmp_path / "chat" / "tokenizer_config.json"
    j = json.loads(config.read_text()) if config.exists() else {}
    j["chat_template"] = ("{% for m in messages %}{{ m.role|upper }}:\n{{ m.content }}\n{% endfor %}"
                          "{% if add_generation_prompt %}ASSISTANT:\n{% endif %}")
    config.write_text(json.dumps(j))
    return rapt.load(tmp_path / "chat", context=context)


def test_a_chat_keeps_its_cache_and_says_what_a_fresh_prompt_says(tmp_path):
    m = chatty(tmp_path)
    chat = m.chat(system="Be brief.", temperature=0, max_tokens=10)
    messages = [{"role": "system", "content": "Be brief."}]
    for text in ("Good morrow!", "And then?", "Speak."):
        a = chat(text)
        messages.append({"role": "user", "content": text})
        fresh = rapt.load(tmp_path / "chat").generate(messages, temperature=0, max_tokens=10)
        assert a == fresh
        messages.append({"role": "assistant", "content": str(a)})
        assert chat.messages == messages
    assert a.times.reused_tokens > 10
    assert a.openai()["object"] == "chat.completion"
    assert chat.undo() and chat.messages == messages[:-2]
    chat.clear()
    assert chat.messages == messages[:1]
    chat.messages = messages
    assert chat.messages == messages and "SYSTEM" not in str(chat.messages)
    assert "rapt.Chat" in repr(chat) and "Be brief" in chat._repr_html_()


def test_a_chat_streams(tmp_path):
    m = chatty(tmp_path)
    expected = m.chat()("Hello", temperature=0, max_tokens=12)
    chat = m.chat(temperature=0, max_tokens=12)
    s = chat.stream("Hello")
    assert "".join(s) == str(expected) and s.answer == expected
    assert chat.messages[-1]["content"] == str(expected)
    s = chat.stream("More")
    said = [next(s), next(s)]
    with pytest.raises(rapt.UsageError, match="answers already"):
        chat("at once")
    s.close()
    assert chat.messages[-1]["content"] == "".join(said)
    s = chat.stream("More")
    del s
    gc.collect()
    assert chat("And?").finish in ("stop", "length")
    with pytest.raises(rapt.UnknownName, match="temperature"):
        m.chat(temprature=0)
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(chat)


def test_a_long_chat_leaves_out_its_oldest_turns(tmp_path):
    m = chatty(tmp_path, context=160)
    chat = m.chat(temperature=0, max_tokens=20)
    for i in range(12):
        assert len(chat(f"Turn {i}, and some more words to fill the room.").ids) <= 20
    assert len(chat.messages) == 24
    # an answer that fills the context goes on without the oldest turns
    a = chat("On and on", max_tokens=100, ignore_eos=True)
    assert len(a.ids) == 100 and a.finish == "length" and len(a.prompt) + 100 > 160


def test_a_chat_without_a_template_is_one_text(model):
    chat = model.chat(temperature=0, max_tokens=6)
    a = chat("To be")
    b = chat(" or not")
    fresh = model.generate("To be" + str(a) + " or not", temperature=0, max_tokens=6)
    assert b.times.reused_tokens > 0 and len(b.ids) == 6 and fresh.ids
    with pytest.raises(rapt.UsageError, match="template"):
        model.chat(system="Be brief.")
