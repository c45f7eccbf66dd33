# SPDX-License-Identifier: Apache-2.0
"""Makes the files in families/ beside this script: toy checkpoints of every family as Hugging Face saves
them, and what it computes.

  python make_families.py                 writes all files (a minute)
  python make_families.py llama qwen2     only these
  python make_families.py --folder DIR llama   also leaves the checkpoint folder itself in DIR/llama
  LLAMA_CPP=/path/to/llama.cpp adds what its converter writes (keys, names, shapes, a checksum of each tensor)
    under "gguf"

Needs torch, transformers, safetensors; neither the build nor the tests do. Stored: config.json, the names and
shapes of the saved tensors with the rule of their values (README.md: offset + scale * u, u drawn from the
tensor's name), token ids, some rows of the logits (classifiers: one row per sequence), 64 greedy tokens.
Refused: float32 and float64 more than 5e-5 of the largest logit (at least 1) apart, logits with a standard
deviation below 1, a greedy step whose best two logits are closer than 2e-3, a token whose k-th and (k+1)-th
routing scores are closer than 1e-3.

Options of a toy, beside lengths and gains (by the end of a tensor's name): types (token types are drawn),
encoder (no greedy tokens), pairs (encoder-decoder), plus_one (norm weights are stored minus one), in_out
(expert tensors [E, in, out]), avoid (token ids that mean padding), last (the token every text ends with),
drop (ends of names: saved tensors that released files do not have, because they are computed),
stored_config (what becomes of config.json in the file), released (see converted), source (who computed it),
rows (more rows to store, where a sequence has them), rule and make (another way, see families_vision.py).
"""
import contextlib
import importlib
import json
import math
import os
import pathlib
import shutil
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

from make_goldens import HERE, doubles, draws

T = transformers
T.logging.set_verbosity_error()
T.logging.disable_progress_bar()
VOCAB, STEPS = 61, 64
MATRICES = ("embeddings_project", "embedding_hidden_mapping_in", "embed_out")  # no tables, despite the names
MODULES = ("families_decoders", "families_encoders", "families_pairs", "families_experts", "families_latent",
           "families_delta", "families_gated", "families_vision")
TOYS = {}


def toy(name, cls, config, **more):
    assert name not in TOYS, f"two toys are called {name}"
    TOYS[name] = {"name": name, "cls": cls, "config": config, **more}


def llama(name, cls=T.LlamaForCausalLM, lengths=(24, 7, 1), options=None, **config):
    """A decoder whose config has Llama's keys; a key with None is left out."""
    base = dict(vocab_size=VOCAB, hidden_size=36, intermediate_size=52, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2,
                head_dim=12, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    merged = {**base, **config}
    toy(name, cls, {k: v for k, v in merged.items() if v is not None}, lengths=lengths, **(options or {}))


def rope(theta, kind="default", **more):
    return {"rope_type": kind, "rope_theta": theta, **more}


def define():
    """The first families, here; the others, each group in a module of its own with
    define(toy, llama, rope, vocab)."""
    define_first()
    for module in MODULES:
        if (HERE / f"{module}.py").exists():
            importlib.import_module(module).define(toy, llama, rope, VOCAB)


def define_first():
    toy("gpt2", T.GPT2LMHeadModel, dict(vocab_size=VOCAB, n_positions=128, n_embd=36, n_layer=3, n_head=4,
                                        n_inner=52, bos_token_id=0, eos_token_id=2))
    bert = dict(vocab_size=VOCAB, hidden_size=36, intermediate_size=52, num_hidden_layers=2,
                num_attention_heads=4, max_position_embeddings=40,
                type_vocab_size=2, pad_token_id=0)
    toy("bert", T.BertForMaskedLM, bert, types=True)
    toy("minilm", T.BertModel, bert, types=True)

    llama("llama1", num_key_value_heads=4, rms_norm_eps=1e-6, rope_parameters=rope(1e4))
    llama("llama-bias", num_key_value_heads=1, rms_norm_eps=1e-5, attention_bias=True, mlp_bias=True,
          rope_parameters=rope(5e5))
    llama("llama3.1", rms_norm_eps=1e-5, num_hidden_layers=3,
          rope_parameters=rope(5e5, "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                               original_max_position_embeddings=64))
    llama("llama-linear", rope_parameters=rope(1e4, "linear", factor=4.0))
    llama("llama-dynamic", lengths=(100, 7), max_position_embeddings=90,
          rope_parameters=rope(1e4, "dynamic", factor=2.5))
    llama("llama-yarn", rope_parameters=rope(1e4, "yarn", factor=4.0, original_max_position_embeddings=32))
    llama("smollm2", rms_norm_eps=1e-5, tie_word_embeddings=True, head_dim=None, num_key_value_heads=2,
          hidden_size=32, rope_parameters=rope(1e5))
    qwen = dict(hidden_size=35, intermediate_size=50, head_dim=10)
    llama("mistral", T.MistralForCausalLM, **qwen, sliding_window=8, rms_norm_eps=1e-5,
          rope_parameters=rope(1e4))
    qwen2 = dict(hidden_size=40, intermediate_size=50, head_dim=None, rms_norm_eps=1e-6,
                 rope_parameters=rope(1e6))
    llama("qwen2", T.Qwen2ForCausalLM, **qwen2, tie_word_embeddings=True)
    llama("qwen2-window", T.Qwen2ForCausalLM, **qwen2, num_hidden_layers=3, use_sliding_window=True,
          sliding_window=8, max_window_layers=1)
    llama("qwen3", T.Qwen3ForCausalLM, **qwen, rms_norm_eps=1e-6, tie_word_embeddings=True,
          rope_parameters=rope(1e6))
    gemma = dict(sliding_window=8, query_pre_attn_scalar=20, hidden_activation="gelu_pytorch_tanh",
                 rms_norm_eps=1e-6, tie_word_embeddings=True)
    llama("gemma2", T.Gemma2ForCausalLM, **gemma, num_hidden_layers=3, attn_logit_softcapping=3.0,
          final_logit_softcapping=12.0,
          rope_parameters=rope(1e4), options={"plus_one": True, "gains": {"embed_tokens.weight": 0.35}})
    for name, full in (("gemma3", rope(1e6)), ("gemma3-4b", rope(1e6, "linear", factor=8.0))):
        llama(name, T.Gemma3ForCausalLM, **gemma, num_hidden_layers=7,
              num_key_value_heads=1 if name == "gemma3" else 2,
              rope_parameters={"full_attention": full, "sliding_attention": rope(1e4)},
              options={"plus_one": True, "gains": {"embed_tokens.weight": 0.4}})
    llama("olmo2", T.Olmo2ForCausalLM, **qwen, rms_norm_eps=1e-6, rope_parameters=rope(5e5))
    phi = dict(hidden_size=40, intermediate_size=50, head_dim=None, rms_norm_eps=1e-5)
    llama("phi3", T.Phi3ForCausalLM, **phi, sliding_window=9, rope_parameters=rope(1e4))
    short, long = [1.0, 1.05, 1.1, 1.3, 1.5], [1.2, 1.9, 2.7, 4.0, 6.5]
    llama("phi3-longrope", T.Phi3ForCausalLM, **phi, lengths=(100, 7), max_position_embeddings=200,
          original_max_position_embeddings=90,
          rope_parameters=rope(1e4, "longrope", short_factor=short, long_factor=long,
                               original_max_position_embeddings=90))

    t5 = dict(vocab_size=VOCAB, d_model=35, d_kv=7, d_ff=50, num_layers=3, num_decoder_layers=2, num_heads=4,
              relative_attention_num_buckets=8,
              relative_attention_max_distance=20, dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0,
              eos_token_id=1)
    toy("t5", T.T5ForConditionalGeneration, dict(t5, feed_forward_proj="relu"), pairs=True,
        gains={"shared.weight": 2.0, "Attention.q.weight": 0.4, "Attention.o.weight": 3.0,
               "DenseReluDense.wo.weight": 3.0})
    toy("t5-v1.1", T.T5ForConditionalGeneration, dict(t5, feed_forward_proj="gated-gelu",
                                                      tie_word_embeddings=False), pairs=True, untie=True,
        gains={"Attention.q.weight": 0.4})
    toy("marian", T.MarianMTModel,
        dict(vocab_size=VOCAB, decoder_vocab_size=VOCAB, d_model=36, encoder_layers=2, decoder_layers=3,
             encoder_attention_heads=4, decoder_attention_heads=6,
             encoder_ffn_dim=52, decoder_ffn_dim=44, activation_function="swish", scale_embedding=True,
             pad_token_id=60, eos_token_id=1,
             forced_eos_token_id=1, decoder_start_token_id=60, max_position_embeddings=128, dropout=0.0),
        pairs=True,
        gains={"shared.weight": 1.0, "fc2.weight": 4.0, "fc1.weight": 3.0, "out_proj.weight": 0.3,
               "bias": 0.3})


def rule(t, name, shape):
    """(scale, offset): the tensor is offset + scale * u."""
    return t.get("rule", plain_rule)(t, name, shape)


def plain_rule(t, name, shape):
    last = name.split(".")[-1]
    is_norm = "norm" in name.lower() or ".ln_" in name or "emb_ln" in name
    if is_norm and last == "weight":
        plain = name.endswith("linear_attn.norm.weight")  # the one norm of Qwen3-Next that is not 1 + w
        scale, offset = 0.5, 0.0 if t.get("plus_one") and not plain else 1.0
    elif last == "A_log":  # heads that forget within a few tokens and heads that remember over chunks
        scale, offset = 1.75, -2.25
    elif last == "dt_bias":
        scale, offset = 1.0, 0.0
    elif last.endswith("bias"):
        scale, offset = 0.5, 0.0
    elif last == "sinks" or (any(x in name for x in ("embed", "shared.weight", "wte", "wpe",
                                                     "relative_attention_bias"))
                             and not any(x in name for x in MATRICES)):
        scale, offset = 1.0, 0.0
    else:
        in_out = any(x in name for x in ("c_attn", "c_proj", "c_fc")) or (t.get("in_out")
                                                                         and len(shape) == 3)
        fan = shape[-2 if in_out else -1]
        scale, offset = float(np.float32(1.5 * 1.7320508 / math.sqrt(fan))), 0.0
    for end, gain in t.get("gains", {}).items():
        if name.endswith(end):
            scale *= gain
    return scale, offset


def values(name, shape, scale, offset):
    u = draws(name, int(np.prod(shape))).reshape(shape)
    return np.asarray(offset + scale * u, dtype=np.float32)


def make_folder(t, folder):
    """The checkpoint as the library saves it, its values replaced; returns [name, shape, scale, offset] of
    every tensor."""
    torch.manual_seed(0)
    cls = t["cls"]
    config = cls.config_class(attn_implementation=t.get("attention", "eager"), **t["config"])
    if t.get("untie"):
        config.tie_word_embeddings = False
    model = cls(config)
    model.save_pretrained(folder)
    tensors = []
    with safe_open(folder / "model.safetensors", "pt") as f:
        for name in sorted(f.keys()):
            if t.get("untie") and name.endswith("embed_tokens.weight"):  # released files have one table
                continue
            if name.endswith(t.get("drop", ())):
                continue
            shape = list(f.get_slice(name).get_shape())
            tensors.append([name, shape, *rule(t, name, shape)])
    if t.get("untie") and not any(x[0] == "lm_head.weight" for x in tensors):
        tensors.append(["lm_head.weight", [VOCAB, t["config"]["d_model"]],
                        *rule(t, "lm_head.weight", [VOCAB, t["config"]["d_model"]])])
    save_file({n: torch.from_numpy(values(n, s, a, b)) for n, s, a, b in tensors},
              folder / "model.safetensors", metadata={"format": "pt"})
    return tensors


def load(t, folder):
    model, report = t["cls"].from_pretrained(folder, dtype=torch.float32,
                                             attn_implementation=t.get("attention", "eager"),
                                             output_loading_info=True)
    missing = [x for x in report["missing_keys"] if not x.endswith(t.get("drop", ()))]
    assert not missing and not report["unexpected_keys"], report
    if t.get("untie"):
        head = values("lm_head.weight", [VOCAB, t["config"]["d_model"]],
                      *rule(t, "lm_head.weight", [VOCAB, t["config"]["d_model"]]))
        assert float((model.lm_head.weight -
                      torch.from_numpy(head)).abs().max().detach()) == 0, "the head came out tied"
    if getattr(model.config, "_experts_implementation", None):
        model.config._experts_implementation = "eager"  # the grouped product wants multiples of 16 bytes
    return model.eval()


def load_double(t, folder, tensors, state=None):
    """Inside doubles(): the library's reader of files knows only the real float32, so the values are put in
    by hand: those of `state`, which is load()'s, or else the drawn ones under the names of the file."""
    config = t["cls"].config_class.from_pretrained(folder, attn_implementation=t.get("attention", "eager"))
    if any("expert" in x[0] or "block_sparse_moe" in x[0] for x in tensors):
        config._experts_implementation = "eager"  # the grouped product has no float64
    model = t["cls"](config)
    if t.get("untie"):
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
    if state is None:
        report = model.load_state_dict({n: torch.from_numpy(values(n, s, a, b)).double()
                                        for n, s, a, b in tensors}, strict=False)
        assert not report.unexpected_keys, report
    else:
        computed = {n for n in state if "embed_positions" in n} - {x[0] for x in tensors}  # sinusoids
        report = model.load_state_dict({n: x.double() for n, x in state.items() if n not in computed},
                                       strict=False)
        assert not report.unexpected_keys and set(report.missing_keys) == computed, report
    assert all(p.dtype == torch.float64 for p in model.parameters())
    return model.eval()


def result(model, tokens, types, source):
    more = {"token_type_ids": torch.tensor([types])} if types else {}
    with torch.no_grad():
        if source:
            return model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([tokens]),
                         use_cache=False).logits[0]
        out = model(input_ids=torch.tensor([tokens]), **more)
        y = (out.logits if hasattr(out, "logits") else out.last_hidden_state)[0]
        return y[None] if y.dim() == 1 else y  # a classifier: one row


def ids(name, length, below=VOCAB, avoid=()):
    found = [int(x) for x in np.floor((draws(name, length) + 1) / 2 * below)]
    return [next(y % below for y in range(x, x + below) if y % below not in avoid) for x in found]


@contextlib.contextmanager
def watched_topk():
    """Inside, the list holds for every choice of k the least distance between the last one taken and the
    first one left."""
    saved, gaps = (torch.topk, torch.Tensor.topk), []

    def topk(x, k, dim=-1, *rest, **more):
        if k < x.shape[dim]:
            best = saved[0](x, k + 1, dim=dim).values.movedim(dim, -1)
            gap = best[..., k - 1] - best[..., k]
            gaps.append(float(gap[~gap.isnan()].min()) if not gap.isnan().all() else math.inf)
        return saved[0](x, k, dim, *rest, **more)

    torch.topk = torch.Tensor.topk = topk
    try:
        yield gaps
    finally:
        torch.topk, torch.Tensor.topk = saved


def greedy(model, start, source):
    """64 tokens, each step computed anew in float64; None where some step is too close to call."""
    tokens = list(start)
    for _ in range(STEPS):
        with watched_topk() as gaps:
            row = result(model, tokens, None, source)[-1]
        best = torch.topk(row, 2).values
        if float(best[0] - best[1]) < 2e-3 or min(gaps, default=1) < 1e-3:
            return None
        tokens.append(int(row.argmax()))
    return tokens[len(start):]


def checksum(array):
    """Depends on every element and its place."""
    flat = np.asarray(array, dtype=np.float64).reshape(-1)
    weight = ((np.arange(1, flat.size + 1, dtype=np.uint64) *
               np.uint64(2654435761)) % np.uint64(2**32)).astype(np.float64) / 2**32
    return float((flat * weight).sum())


def converted(folder, released):
    """What llama.cpp's converter makes of the folder, without a vocabulary. `released`: what config.json of
    released files says and the library does not write, and the converter needs."""
    root = os.environ.get("LLAMA_CPP")
    if not root:
        return None
    for p in (root, root + "/gguf-py"):
        if p not in sys.path:
            sys.path.insert(0, p)
    import gguf
    import conversion
    from conversion import base
    hparams = base.ModelBase.load_hparams(folder, False) | released
    arch = hparams["architectures"][0]
    if arch == "MarianMTModel":
        return None
    try:
        cls = conversion.get_model_class(arch)
    except NotImplementedError:
        return None
    cls.set_vocab = lambda self: None
    cls.no_mtp = True  # no layers that predict further tokens
    config = folder / "config.json"
    saved = config.read_text()
    config.write_text(json.dumps(json.loads(saved) | released))
    if arch == "GPT2LMHeadModel":  # released files have it
        config.write_text(json.dumps(json.loads(saved) | {"n_ctx": json.loads(saved)["n_positions"]}))
    vocabulary = folder / "tokenizer.json"  # Gemma 3's converter counts its tokens
    words = {str(i): i for i in range(VOCAB)}
    vocabulary.write_text(json.dumps({"model": {"type": "WordPiece", "vocab": words}, "added_tokens": []}))
    out = folder / "toy.gguf"
    try:
        with torch.inference_mode():
            cls(folder, gguf.LlamaFileType.ALL_F32, out, use_temp_file=False, eager=True,
                **({"hparams": hparams} if released else {})).write()
    except Exception as why:
        print(f"  no GGUF of {arch}: {type(why).__name__} {str(why)[:90]}")
        return None
    finally:
        config.write_text(saved)
        vocabulary.unlink()
    reader = gguf.GGUFReader(out)
    keys = {}
    for key, field in reader.fields.items():
        if key.startswith(("GGUF.", "general.", "tokenizer.")) and key != "general.architecture":
            continue
        keys[key] = field.contents()
    tensors = [[x.name, [int(d) for d in reversed(x.shape)],
                float(f"{checksum(gguf.quants.dequantize(x.data, x.tensor_type)):.9g}")]
               for x in reader.tensors]
    return {"keys": keys, "tensors": tensors}


def make(t, keep):
    name = t["name"]
    with tempfile.TemporaryDirectory() as temp:
        folder = pathlib.Path(keep or temp) / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        tensors = make_folder(t, folder)
        lengths = t.get("lengths", (24, 7, 1))
        below, avoid = t["config"].get("decoder_vocab_size") or VOCAB, t.get("avoid", ())
        types = [[x % 2 for x in ids(f"{name} types {i}", n)]
                 for i, n in enumerate(lengths)] if t.get("types") else None
        sources = ([ids(f"{name} source {i}", n, avoid=avoid) for i, n in enumerate((11, 22, 5))]
                   if t.get("pairs") else None)
        state = load(t, folder).state_dict()
        for n, shape, scale, offset in tensors:  # nothing tied is saved twice
            if n in state:
                assert np.array_equal(state[n].numpy(), values(n, shape, scale, offset)), f"{name}: {n}"

        def all_results(model):
            return [result(model(), s, types[i] if types else None, sources[i] if sources else None)
                    for i, s in enumerate(sequences)]

        for attempt in range(100):
            again = f" {attempt}" if attempt else ""
            sequences = [ids(f"{name} tokens {i}{again}", n, below, avoid) for i, n in enumerate(lengths)]
            if "last" in t:
                sequences = [s[:-1] + [t["last"]] for s in sequences]
            with doubles(), watched_topk() as gaps:
                expected = all_results(lambda: load_double(t, folder, tensors, state))
            if min(gaps, default=1) >= 1e-3:
                break
        assert min(gaps, default=1) >= 1e-3, f"{name}: two routing scores are {min(gaps)} apart"
        assert expected[0].dtype == torch.float64
        single = all_results(lambda: load(t, folder))
        f32 = max(float((a.double() - b).abs().max()) for a, b in zip(single, expected))
        spread, largest = float(torch.cat(expected).std()), float(torch.cat(expected).abs().max())
        said = f"{name}: std {spread:.3g}, largest {largest:.3g}, float32 {f32:.2g} off"
        assert f32 <= 5e-5 * max(1, largest), said
        assert spread >= 1, said
        rows = [sorted({0, 1, n // 3, n // 2, n - 2, n - 1, *t.get("rows", ())} & set(range(len(y))))
                for n, y in zip(lengths, expected)]
        if "stored_config" in t:
            config = t["stored_config"](json.loads((folder / "config.json").read_text()))
            (folder / "stored.json").write_text(json.dumps(config))
        config = json.loads((folder / ("stored.json" if "stored_config" in t else "config.json")).read_text())
        for noise in ("transformers_version", "dtype"):
            config.pop(noise, None)
        source = t.get("source") or f"transformers {T.__version__} {t['cls'].__name__}"
        file = {"name": name, "source": source, "config": config, "sequences": sequences}
        if types:
            file["types"] = types
        if sources:
            file["source_sequences"] = sources
        file["rows"] = rows
        if not t.get("types") and not t.get("encoder"):
            for attempt in range(150):
                start = ([t["config"]["decoder_start_token_id"]] if t.get("pairs")
                         else ids(f"{name} prompt {attempt}", 8, avoid=avoid))
                source = ids(f"{name} prompt source {attempt}", 13, avoid=avoid) if t.get("pairs") else None
                with doubles():
                    tokens = greedy(load_double(t, folder, tensors, state), start, source)
                if tokens and set(tokens) & set(avoid):
                    tokens = None
                if tokens and len(set(tokens)) >= 6:
                    break
            assert tokens and len(set(tokens)) >= 4, f"{name}: no prompt with clear steps"
            file["greedy"] = {"start": start, "tokens": tokens, **({"source": source} if source else {})}
        if "stored_config" in t:
            (folder / "stored.json").rename(folder / "config.json")
        if gguf := t.get("gguf", True) and converted(folder, t.get("released", {})):
            file["gguf"] = {"keys": gguf["keys"]}
        lines = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in file.items()]
        text = "{\n" + ",\n".join(lines)
        text += ',\n "tensors": [\n' + ",\n".join("  " + json.dumps(x) for x in tensors) + "]"
        if gguf:
            text += (',\n "gguf_tensors": [\n' + ",\n".join("  " + json.dumps(x) for x in gguf["tensors"])
                     + "]")
        stored = ["  [" + ",\n   ".join(",".join(f"{v:.7g}" for v in row) for row in y[r].tolist()) + "]"
                  for y, r in zip(expected, rows)]
        text += ',\n "logits": [\n' + ",\n".join(stored) + "]\n}\n"
        json.loads(text)
        (HERE / "families" / f"{name}.json").write_text(text)
        distinct = len(set(file["greedy"]["tokens"])) if "greedy" in file else 0
        print(
            f"{name:21} {len(text):6} bytes  {t['cls'].__name__:35} std {spread:5.2f}  "
            f"largest {largest:5.1f}  f32 {f32:7.1e}  greedy {distinct} distinct  "
            f"{f'route gap {min(gaps):.4f}  ' if gaps else ''}gguf {'yes' if gguf else 'no'}", flush=True)


def main():
    torch.set_num_threads(1)
    define()
    args = sys.argv[1:]
    keep = None
    if args[:1] == ["--folder"]:
        keep, args = args[1], args[2:]
    failed = []
    for name in args or TOYS:
        try:
            TOYS[name].get("make", make)(TOYS[name], keep)
        except AssertionError as why:
            failed.append(str(why))
            print(f"refused {why}", flush=True)
    sys.exit(f"{len(failed)} refused" if failed else 0)


if __name__ == "__main__":
    main()
