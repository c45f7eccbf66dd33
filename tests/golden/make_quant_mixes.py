#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes load/quant_mixes.json: the types that llama.cpp's functions choose for tensors of made-up models.

    python make_quant_mixes.py LLAMA_CPP > load/quant_mixes.json

LLAMA_CPP is a checkout (made from b21e4de). Its functions are cut out of src/llama-quant.cpp, compiled with
stand-ins for the rest of the library and run; no line of them is kept. For each model and mix: the types of
a tensor over the layers, one letter each (see "types"), a single letter where all are the same; tensors that
are not quantized are left out.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

TYPES = {0: ("f", "f32"), 1: ("h", "f16"), 2: ("a", "q4_0"), 3: ("b", "q4_1"), 6: ("c", "q5_0"),
         7: ("d", "q5_1"), 8: ("8", "q8_0"), 10: ("2", "q2_k"), 11: ("3", "q3_k"), 12: ("4", "q4_k"),
         13: ("5", "q5_k"), 14: ("6", "q6_k"), 20: ("n", "iq4_nl"), 23: ("x", "iq4_xs"), 39: ("m", "mxfp4")}
MIXES = {"q8_0": "Q8_0", "q6_k": "Q6_K", "q5_k_m": "Q5_K_M", "q5_k_s": "Q5_K_S", "q5_1": "Q5_1",
         "q5_0": "Q5_0", "q4_k_m": "Q4_K_M", "q4_k_s": "Q4_K_S", "q4_1": "Q4_1", "q4_0": "Q4_0",
         "iq4_nl": "IQ4_NL", "iq4_xs": "IQ4_XS", "mxfp4_moe": "MXFP4_MOE", "q3_k_l": "Q3_K_L",
         "q3_k_m": "Q3_K_M", "q3_k_s": "Q3_K_S", "q2_k": "Q2_K", "q2_k_s": "Q2_K_S"}


def dense(c, kv, f):
    """Tensors of a layer as GGUF has them: the fastest axis first."""
    return {"attn_q.weight": [c, c], "attn_k.weight": [c, kv], "attn_v.weight": [c, kv],
            "attn_output.weight": [c, c], "attn_norm.weight": [c], "ffn_norm.weight": [c],
            "attn_q.bias": [c], "ffn_gate.weight": [c, f], "ffn_up.weight": [c, f], "ffn_down.weight": [f, c]}


def experts(c, kv, f, n, shared=0):
    t = {k: v for k, v in dense(c, kv, f).items() if not k.startswith("ffn_") or k == "ffn_norm.weight"}
    t |= {"ffn_gate_inp.weight": [c, n], "ffn_gate_exps.weight": [c, f, n], "ffn_up_exps.weight": [c, f, n],
          "ffn_down_exps.weight": [f, c, n]}
    if shared:
        t |= {"ffn_gate_shexp.weight": [c, shared], "ffn_up_shexp.weight": [c, shared],
              "ffn_down_shexp.weight": [shared, c]}
    return t


def model(name, arch, layers, heads, kv_heads, layer, others, experts=0, at=("blk.",)):
    return dict(name=name, arch=arch, layers=layers, heads=heads, kv_heads=kv_heads, experts=experts,
                at=list(at), layer=layer, others=others)


def ends(c, v, tied=False):
    both = {"token_embd.weight": [c, v], "output_norm.weight": [c]}
    return both if tied else both | {"output.weight": [c, v]}


FALCON = {"attn_norm.weight": [4608], "attn_qkv.weight": [4608, 4864], "attn_output.weight": [4608, 4608],
          "ffn_up.weight": [4608, 18432], "ffn_down.weight": [18432, 4608]}
PHI = {"attn_qkv.weight": [3072, 9216], "attn_output.weight": [3072, 3072], "ffn_up.weight": [3072, 16384],
       "ffn_down.weight": [8192, 3072], "attn_norm.weight": [3072]}
BERT = {k: v for k, v in dense(384, 384, 1536).items() if "gate" not in k}
T5 = dense(512, 512, 1024) | {"attn_rel_b.weight": [8, 32], "cross_attn_v.weight": [512, 512],
                              "cross_attn_q.weight": [512, 512]}
LATENT = {k: v for k, v in experts(2048, 2048, 1408, 64, 2816).items() if not k.startswith("attn_")} | {
    "attn_norm.weight": [2048], "attn_q.weight": [2048, 3072], "attn_q_a.weight": [2048, 1536],
    "attn_q_a_norm.weight": [1536], "attn_q_b.weight": [1536, 3072], "attn_kv_a_mqa.weight": [2048, 576],
    "attn_kv_a_norm.weight": [512], "attn_k_b.weight": [128, 512, 16], "attn_v_b.weight": [512, 128, 16],
    "attn_output.weight": [2048, 2048]}
JOINED = {k: v for k, v in dense(2560, 2560, 6400).items() if k not in ("attn_k.weight", "attn_v.weight")} | {
    "attn_kv_a_mqa.weight": [2560, 288], "attn_kv_b.weight": [256, 5120]}
MODELS = [
    model("7b", "llama", 32, 32, 32, dense(4096, 4096, 11008), ends(4096, 32000)),
    model("70b", "llama", 80, 64, 8, dense(8192, 1024, 28672), ends(8192, 128256)),
    model("coder", "qwen2", 28, 12, 2, dense(1536, 256, 8960), ends(1536, 151936, True)),
    model("few layers", "qwen3", 7, 16, 8, dense(1024, 512, 3072), ends(1024, 1000)),
    model("rows of 576", "llama", 30, 9, 3, dense(576, 192, 1536), ends(576, 49152, True)),
    model("rows of 640", "gemma3", 18, 4, 1, dense(640, 256, 2048), ends(640, 262144, True)),
    model("falcon", "falcon", 32, 71, 1, FALCON, ends(4608, 65024)),
    model("phi3", "phi3", 32, 32, 32, PHI, ends(3072, 32064)),
    model("8 experts", "llama", 32, 32, 8, experts(4096, 1024, 14336, 8), ends(4096, 32000), 8),
    model("128 experts", "qwen3moe", 48, 32, 4, experts(2048, 512, 768, 128), ends(2048, 151936), 128),
    model("shared experts", "deepseek", 27, 16, 16, experts(2048, 2048, 1408, 64, 2816),
          ends(2048, 102400), 64),
    model("latent", "deepseek2", 27, 16, 1, LATENT, ends(2048, 102400), 64),
    model("latent, one matrix", "minicpm3", 62, 40, 40, JOINED, ends(2560, 73448, True)),
    model("gpt-oss", "gpt-oss", 24, 64, 8, experts(2880, 512, 2880, 32), ends(2880, 201088), 32),
    model("bert", "bert", 12, 12, 12, BERT,
          {"token_embd.weight": [384, 30522], "position_embd.weight": [384, 512],
           "token_types.weight": [384, 2], "token_embd_norm.weight": [384]}),
    model("t5", "t5", 12, 8, 8, T5, {"token_embd.weight": [512, 32128], "output.weight": [512, 32128]},
          at=("enc.blk.", "dec.blk.")),
]

BEFORE = """
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>
#include "ggml.h"
#define LLAMA_LOG_WARN(...)
static std::string format(const char* f, ...) { return f; }
enum llm_arch { LLM_ARCH_LLAMA, LLM_ARCH_FALCON, LLM_ARCH_BAILINGMOE3, LLM_ARCH_OTHER };
enum llm_type { LLM_TYPE_UNKNOWN, LLM_TYPE_70B };
enum { LLM_TENSOR_POS_EMBD, LLM_TENSOR_TOKEN_TYPES };
struct LLM_TN {
  LLM_TN(llm_arch) {}
  std::string operator()(int t, const char*) {
    return t == LLM_TENSOR_POS_EMBD ? "position_embd.weight" : "token_types.weight";
  }
};
struct Numbers {
  unsigned n_expert = 0, n_layer_all = 0, heads = 0, kv = 0;
  unsigned n_gqa() const { return kv ? heads / kv : 0; }
};
struct llama_model { llm_arch arch; llm_type type; Numbers hparams; };
struct Override { const char* pattern; ggml_type type; };
struct llama_model_quantize_params {
  llama_ftype ftype;
  ggml_type output_tensor_type = GGML_TYPE_COUNT, token_embedding_type = GGML_TYPE_COUNT;
  bool quantize_output_tensor = true, only_copy = false, pure = false;
  Override* tt_overrides = nullptr;
};
static int64_t block(ggml_type t) {
  switch (t) {
    case GGML_TYPE_F32: case GGML_TYPE_F16: case GGML_TYPE_BF16: return 1;
    case GGML_TYPE_Q4_0: case GGML_TYPE_Q4_1: case GGML_TYPE_Q5_0: case GGML_TYPE_Q5_1: case GGML_TYPE_Q8_0:
    case GGML_TYPE_IQ4_NL: case GGML_TYPE_MXFP4: return 32;
    default: return 256;
  }
}
static int dims(const ggml_tensor* t) {
  for (int i = 3; i > 0; --i) if (t->ne[i] > 1) return i + 1;
  return 1;
}
#define ggml_blck_size block
#define ggml_type_name(t) ""
#define ggml_is_quantized(t) (block(t) > 1)
#define ggml_n_dims dims
#define ggml_get_name(t) ((t)->name)
"""
AFTER = """
int main() {
  llama_model m{};
  std::vector<ggml_tensor> tensors;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream s(line);
    std::string word;
    s >> word;
    if (word == "model") {
      std::string arch;
      s >> arch >> m.hparams.n_layer_all >> m.hparams.heads >> m.hparams.kv >> m.hparams.n_expert;
      m.arch = arch == "falcon" ? LLM_ARCH_FALCON : LLM_ARCH_OTHER;
      m.type = arch == "llama" && m.hparams.n_layer_all == 80 ? LLM_TYPE_70B : LLM_TYPE_UNKNOWN;
      tensors.clear();
    } else if (word == "tensor") {
      ggml_tensor t{};
      std::string name;
      s >> name;
      std::strcpy(t.name, name.c_str());
      for (auto& n : t.ne) if (!(s >> n)) n = 1;
      tensors.push_back(t);
    } else {
      int type;
      s >> type;
      llama_model_quantize_params params{llama_ftype(type)};
      quantize_state_impl state(m, &params);
      std::vector<ggml_tensor*> all;
      std::vector<ggml_type> types(tensors.size());
      for (auto& t : tensors) all.push_back(&t);
      try {
        llama_quant_compute_types(&state, params.ftype, all.data(), types.data(), all.size());
      } catch (const std::exception&) {  // a type without another to take its place
        types.assign(all.size(), GGML_TYPE_COUNT);
      }
      for (const auto t : types) std::printf("%d ", int(t));
      std::puts("");
    }
  }
}
"""


def compiled(source, folder):
    text = (source / "src/llama-quant.cpp").read_text()
    header = (source / "include/llama.h").read_text()
    numbers = re.findall(r"^\s+(LLAMA_FTYPE_\w+)\s*=\s*(\d+)", header, re.M)

    def cut(begin, end):
        at = text.index("\n" + begin)
        return text[at:text.index("\n" + end, at)]

    parts = [cut("enum class tensor_category", "static void zeros"),
             cut("static bool tensor_name_match_token_embd", "//\n// dequantization"),
             cut("static bool tensor_allows_quantization", "//\n// quantization implementation"),
             cut("ggml_type llama_ftype_get_default_type", "//\n// main quantization driver"),
             text[text.index("\nvoid llama_quant_compute_types"):]]
    enum = "enum llama_ftype : int {" + ",".join(f"{n} = {i}" for n, i in numbers) + "};\n"
    (folder / "a.cc").write_text(enum + BEFORE + "\n".join(parts) + AFTER)
    subprocess.run(["c++", "-w", "-std=c++20", "-I", source / "ggml/include", "a.cc", "-o", "a"], cwd=folder,
                   check=True)
    return folder / "a", {n: int(i) for n, i in numbers}


def layer_of(name):
    found = re.match(r"blk\.(\d+)\.", name)
    return int(found[1]) if found else -1


def types_of(program, numbers, m):
    tensors = dict(m["others"])
    for at in m["at"]:
        tensors |= {f"{at}{i}.{n}": s for i in range(m["layers"]) for n, s in m["layer"].items()}
    names = sorted(tensors, key=lambda n: (layer_of(n), n))
    lines = [f"model {m['arch']} {m['layers']} {m['heads']} {m['kv_heads']} {m['experts']}"]
    lines += [f"tensor {n} {' '.join(map(str, tensors[n]))}" for n in names]
    lines += [f"types {numbers['LLAMA_FTYPE_MOSTLY_' + theirs]}" for theirs in MIXES.values()]
    out = subprocess.run([program], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    all_types = {}
    for mix, line in zip(MIXES, out.stdout.splitlines(), strict=True):
        got = dict(zip(names, map(int, line.split()), strict=True))
        if not all(t in TYPES for t in got.values()):
            continue  # llama.cpp gives up; we store f16
        rows = {n: TYPES[got[n]][0] for n in m["others"]}
        for at in m["at"]:
            for n in m["layer"]:
                letters = "".join(TYPES[got[f"{at}{i}.{n}"]][0] for i in range(m["layers"]))
                rows[(at if len(m["at"]) > 1 else "") + n] = letters[0] if len(set(letters)) == 1 else letters
        all_types[mix] = {n: letters for n, letters in rows.items() if letters != "f"}
    return all_types


def main():
    with tempfile.TemporaryDirectory() as folder:
        program, numbers = compiled(pathlib.Path(sys.argv[1]), pathlib.Path(folder))
        out = {"types": {letter: name for letter, name in TYPES.values()},
               "models": [m | {"mixes": types_of(program, numbers, m)} for m in MODELS]}
    print('{"types": ' + json.dumps(out["types"]) + ',\n "models": [')
    for i, m in enumerate(out["models"]):
        lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in m.items() if key != "mixes"]
        mixes = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in m["mixes"].items()]
        lines.append(' "mixes": {\n' + ",\n".join(mixes) + "}")
        print("{" + ",\n".join(lines)[1:] + "}" + ("," if i + 1 < len(out["models"]) else "]}"))


main()
