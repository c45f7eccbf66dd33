// SPDX-License-Identifier: Apache-2.0
// SentencePiece's .model (a protobuf message) and llama2.c's tokenizer.bin to tokenizers.
//   message  = (tag:varint value)*            tag = field << 3 | wire;  wire 0 varint, 1 eight bytes, 2
//                                             length:varint bytes, 5 four bytes
//   model    = 1 piece* · 2 trainer · 3 normalizer · 4, 5 not read
//   piece    = 1 text · 2 score:f32 · 3 type (1 normal, 2 unknown, 3 control, 4 user defined, 5 unused,
//              6 byte)
//   trainer  = 3 model type (1 unigram, 2 bpe) · 24 spaces as suffixes · 35 byte fallback · 40-43 unk, bos,
//              eos, pad id · …
//   normalizer = 2 charsmap · 3 dummy prefix · 4 remove extra spaces · 5 escape spaces · …
//   tokenizer.bin = longest:i32 (score:f32 length:i32 bytes)*          one entry per token
#include <algorithm>
#include <array>
#include <unordered_set>

#include "rapt/io/reader.h"
#include "rapt/text/tokenizer/from_files.h"
#include "rapt/text/tokenizer/model.h"

namespace rapt {
namespace {

using Role = Tokenizer::Role;
using Kind = Tokenizer::Kind;

std::uint64_t varint(Reader& in, const char* what) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = in.get<std::uint8_t>(what);
    if (shift == 63 && byte > 1) in.refuse(what, " is a number of more than 64 bits");
    value |= std::uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  in.refuse(what, " is a number of more than ten bytes");
}

struct Field {
  std::uint64_t number = 0;
  std::uint32_t wire = 0;
  std::uint64_t value = 0;              // wire 0, 1, 5
  std::span<const std::byte> bytes;     // wire 2
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
};

Field next_field(Reader& in, const char* what) {
  Field f;
  const std::uint64_t tag = varint(in, what);
  f.number = tag >> 3;
  f.wire = static_cast<std::uint32_t>(tag & 7);
  if (f.number == 0) in.refuse("a field of ", what, " has number 0; is this a SentencePiece model?");
  switch (f.wire) {
    case 0: f.value = varint(in, what); break;
    case 1: f.value = in.get<std::uint64_t>(what); break;
    case 2: f.bytes = in.take(varint(in, what), what); break;
    case 5: f.value = in.get<std::uint32_t>(what); break;
    default: in.refuse("a field of ", what, " has wire type ", f.wire, "; is this a SentencePiece model?");
  }
  return f;
}

void want_wire(const Reader& in, const Field& f, std::uint32_t wire, const char* what) {
  if (f.wire != wire) in.refuse(what, " has wire type ", f.wire, ", not ", wire);
}

float as_float(std::uint64_t bits) {
  const auto low = static_cast<std::uint32_t>(bits);
  float out;
  static_assert(sizeof out == sizeof low);
  __builtin_memcpy(&out, &low, sizeof out);
  return out;
}

}  // namespace

SentencePieceModel read_sentencepiece(std::span<const std::byte> bytes, std::string_view where) {
  SentencePieceModel model;
  Reader in(bytes, std::string(where));
  std::unordered_set<std::string> seen;
  while (in.left() > 0) {
    const Field f = next_field(in, "the model");
    if (f.number == 1) {
      want_wire(in, f, 2, "a piece");
      Reader p(f.bytes, concat(where, ": piece ", model.pieces.size()));
      SentencePieceModel::Piece piece;
      while (p.left() > 0) {
        const Field g = next_field(p, "the piece");
        if (g.number == 1) {
          want_wire(p, g, 2, "the text");
          piece.text = g.text();
        } else if (g.number == 2) {
          want_wire(p, g, 5, "the score");
          piece.score = as_float(g.value);
        } else if (g.number == 3) {
          want_wire(p, g, 0, "the type");
          if (g.value < 1 || g.value > 6) p.refuse("type ", g.value, " is not known; known are 1 to 6");
          piece.type = static_cast<int>(g.value);
        }
      }
      if (piece.text.empty()) fail(where, ": piece ", model.pieces.size(), " is empty");
      if (!valid_utf8(piece.text)) fail(where, ": piece ", model.pieces.size(), " is not valid UTF-8");
      if (!seen.insert(piece.text).second) fail(where, ": piece '", piece.text, "' stands there twice");
      model.pieces.push_back(std::move(piece));
    } else if (f.number == 2) {
      want_wire(in, f, 2, "the trainer's part");
      Reader t(f.bytes, concat(where, ": trainer"));
      while (t.left() > 0) {
        const Field g = next_field(t, "the trainer's part");
        if (g.wire != 0) continue;
        const auto id = static_cast<std::int32_t>(static_cast<std::uint32_t>(g.value));
        if (g.number == 3) model.type = g.value;
        else if (g.number == 24) model.suffix = g.value != 0;
        else if (g.number == 35) model.byte_fallback = g.value != 0;
        else if (g.number == 40) model.unk = id;
        else if (g.number == 41) model.bos = id;
        else if (g.number == 42) model.eos = id;
        else if (g.number == 43) model.pad = id;
      }
    } else if (f.number == 3) {
      want_wire(in, f, 2, "the normalizer's part");
      Reader n(f.bytes, concat(where, ": normalizer"));
      while (n.left() > 0) {
        const Field g = next_field(n, "the normalizer's part");
        if (g.number == 2 && g.wire == 2) model.charsmap = g.text();
        else if (g.number == 3 && g.wire == 0) model.dummy_prefix = g.value != 0;
        else if (g.number == 4 && g.wire == 0) model.remove_extra = g.value != 0;
        else if (g.number == 5 && g.wire == 0) model.escape = g.value != 0;
      }
    }
  }
  if (model.pieces.empty()) fail(where, ": no pieces; is this a SentencePiece model?");
  if (model.type != 1 && model.type != 2)
    fail(where, ": SentencePiece model type ", model.type, " is not supported; Unigram (1) and BPE (2) are");
  return model;
}

NormalStep normal_step(const SentencePieceModel& model) {
  return {.kind = NormalStep::Kind::sentencepiece,
          .from = model.charsmap,
          .dummy_prefix = model.dummy_prefix,
          .remove_extra = model.remove_extra,
          .escape = model.escape,
          .suffix = model.suffix};
}

Role role_of(int type) {
  static constexpr std::array<Role, 7> kRoles = {Role::normal, Role::normal, Role::unknown, Role::control,
                                                 Role::user,   Role::unused, Role::byte};
  return kRoles[static_cast<std::size_t>(type)];
}

TokenizerSpec sentencepiece_spec(const SentencePieceModel& model, std::string_view where) {
  TokenizerSpec spec;
  spec.where = std::string(where);
  spec.name = "sentencepiece";
  spec.kind = model.type == 1 ? Kind::unigram : Kind::spm;
  spec.byte_fallback = model.byte_fallback;
  spec.fuse_unknown = true;
  spec.normal = {normal_step(model)};
  spec.strip_prefix = model.dummy_prefix;
  for (const auto& p : model.pieces) {
    const auto id = static_cast<std::int32_t>(spec.tokens.size());
    spec.tokens.push_back(p.text);
    spec.scores.push_back(p.score);
    spec.roles.push_back(role_of(p.type));
    if (spec.roles.back() == Role::unknown && spec.unk < 0) spec.unk = id;
    if (spec.roles.back() == Role::control) spec.added.push_back({.id = id, .text = p.text, .special = true});
    if (p.type == 6 && byte_of_token(p.text) < 0)
      fail(where, ": byte piece ", id, " is '", p.text, "', not <0x00> to <0xFF>");
  }
  if (spec.unk < 0) fail(where, ": no piece is the unknown one");
  const auto size = static_cast<std::int32_t>(spec.tokens.size());
  const auto given = [&](std::int32_t id) { return id >= 0 && id < size ? id : -1; };
  spec.bos = given(model.bos);
  spec.eos = given(model.eos);
  spec.pad = given(model.pad);
  return spec;
}

std::shared_ptr<const Tokenizer> tokenizer_from_sentencepiece(std::span<const std::byte> bytes,
                                                              std::string_view where) {
  TokenizerSpec spec = sentencepiece_spec(read_sentencepiece(bytes, where), where);
  if (spec.kind == Kind::spm && spec.bos >= 0) spec.before = {spec.bos};    // Llama, Gemma
  if (spec.kind == Kind::unigram && spec.eos >= 0) spec.after = {spec.eos}; // T5
  return make_tokenizer(std::move(spec));
}

std::shared_ptr<const Tokenizer> tokenizer_from_llama2c(std::span<const std::byte> bytes, Dim size,
                                                        std::string_view where) {
  if (size < 4 || size > Dim{1} << 24)
    fail(where, ": a vocabulary of ", size, " tokens; 4 to 16,777,216 are possible");
  Reader in(bytes, std::string(where));
  const auto longest = in.get<std::int32_t>("the length of the longest token");
  in.expect_items(static_cast<std::uint64_t>(size), 8, "tokens");
  TokenizerSpec spec;
  spec.where = std::string(where);
  spec.name = "llama2.c";
  spec.kind = Kind::spm;
  spec.byte_fallback = true;
  for (Dim i = 0; i < size; ++i) {
    const auto score = in.get<float>("the score of a token");
    const auto length = in.get<std::int32_t>("the length of a token");
    if (length < 0 || length > longest)
      in.refuse("token ", i, " is ", length, " bytes long; the longest is said to have ", longest);
    const auto text = in.take(static_cast<std::uint64_t>(length), "a token");
    std::string token(reinterpret_cast<const char*>(text.data()), text.size());
    // Pieces were written as text: spaces plain, <s> and </s> with line ends around. Back to how
    // SentencePiece spells them.
    Role role = Role::normal;
    if (i == 0) token = "<unk>", role = Role::unknown;
    else if (i == 1) token = "<s>", role = Role::control;
    else if (i == 2) token = "</s>", role = Role::control;
    else if (byte_of_token(token) >= 0) role = Role::byte;
    std::string spelt;
    for (const char c : token) {
      if (c == ' ') spelt += kMetaSpace;
      else spelt += c;
    }
    spec.tokens.push_back(std::move(spelt));
    spec.scores.push_back(score);
    spec.roles.push_back(role);
  }
  if (in.left() > 0)
    in.refuse(in.left(), " bytes are left after ", size,
              " tokens: the vocabulary is larger than the model says");
  std::unordered_set<std::string_view> seen;
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    if (!spec.tokens[i].empty() && !seen.insert(spec.tokens[i]).second)
      fail(where, ": token ", i, " ('", spec.tokens[i], "') stands there twice");
  }
  spec.unk = 0;
  spec.bos = 1;
  spec.eos = 2;
  spec.before = {1};
  spec.added = {{.id = 1, .text = "<s>", .special = true}, {.id = 2, .text = "</s>", .special = true}};
  spec.normal = {{.kind = NormalStep::Kind::sentencepiece, .dummy_prefix = true, .remove_extra = false}};
  spec.strip_prefix = true;
  return make_tokenizer(std::move(spec));
}

}  // namespace rapt
