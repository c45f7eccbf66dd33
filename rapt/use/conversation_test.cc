// SPDX-License-Identifier: Apache-2.0
// Prompts of conversations read off their letters, turns that are left out counted by hand, replies against
// generate().
#include "rapt/use/conversation.h"

#include <gtest/gtest.h>

#include "tests/memory_checkpoint.h"

namespace rapt::test {
namespace {

using Ids = std::vector<std::int32_t>;

// A turn is <31>, the user's letters, <32>, the answer's; the system message stands behind <33>.
constexpr const char* kTemplate =
    "{% for m in messages %}{% if m.role == 'system' %}<33>{% elif m.role == 'user' %}<31>{% else %}<32>{% "
    "endif %}{{ m.content }}"
    "{% endfor %}<32>";

Checkpoint marked(bool with_template = true) {
  Checkpoint c = memory_checkpoint(small_decoder(), 3);
  c.tokenizer = std::make_shared<MarkTokenizer>(40);
  if (with_template) c.chat_template = kTemplate;
  return c;
}
Conversation begun(const Checkpoint& c) { return {c, open_chat_template(c)}; }
Generated said(const std::string& text, Ids ids = {}) {
  Generated g;
  g.text = text, g.ids = std::move(ids);
  return g;
}
GenerateOptions greedily(Dim tokens) {
  GenerateOptions o;
  o.sampler.temperature = 0;
  o.max_tokens = tokens;
  o.ignore_eos = true;
  return o;
}

TEST(Conversation, LeavesWholeTurnsOutFromTheBeginning) {
  // Turns of 100, 10, 50, 20 tokens, and 30 for the system message and the new one.
  const std::vector<Dim> sizes = {100, 10, 50, 20};
  auto tokens = [&](std::size_t first) {
    Dim sum = 30;
    for (std::size_t i = first; i < sizes.size(); ++i) sum += sizes[i];
    return sum;
  };
  EXPECT_EQ(first_turn(4, 210, 105, tokens), 0u);  // all fit
  EXPECT_EQ(first_turn(4, 209, 120, tokens), 1u);
  EXPECT_EQ(first_turn(4, 209, 105, tokens), 2u);  // down to half, so that the next turns find room
  EXPECT_EQ(first_turn(4, 200, 60, tokens), 3u);
  EXPECT_EQ(first_turn(4, 60, 40, tokens), 4u);
  EXPECT_EQ(first_turn(4, 20, 10, tokens), 4u);  // the message alone is too long: its error comes later
  EXPECT_EQ(first_turn(0, 20, 10, tokens), 0u);
}

TEST(Conversation, TemplatesAreOpenedOrRefusedWithTheirPlace) {
  Checkpoint c = marked(false);
  EXPECT_FALSE(open_chat_template(c));
  EXPECT_FALSE(begun(c).has_template());
  c.chat_template = kTemplate;
  EXPECT_TRUE(begun(c).has_template());
  c.chat_template = "{% for %}";
  try {
    open_chat_template(c);
    ADD_FAILURE() << "a broken template was taken";
  } catch (const Error& e) {
    EXPECT_TRUE(std::string(e.what()).starts_with("toy: chat template")) << e.what();
  }
}

TEST(Conversation, PromptsHoldSystemAndTurns) {
  const Checkpoint c = marked();
  Conversation talk = begun(c);
  EXPECT_EQ(talk.prompt("a", 0).ids, (Ids{0, 31, 2, 32}));
  talk.system = "zz";
  const Conversation::Prompt first = talk.prompt("a", 0);
  EXPECT_EQ(first.ids, (Ids{0, 33, 27, 27, 31, 2, 32}));
  talk.add("a", first, said("bc"));
  EXPECT_EQ(talk.prompt("d", 0).ids, (Ids{0, 33, 27, 27, 31, 2, 32, 3, 4, 31, 5, 32}));
  // Begun.
  EXPECT_EQ(talk.prompt("d", 0, -1, Ids{6, 7}).ids, (Ids{0, 33, 27, 27, 31, 2, 32, 3, 4, 31, 5, 32, 6, 7}));
  talk.system = "";
  EXPECT_EQ(talk.prompt("d", 0).ids, (Ids{0, 31, 2, 32, 3, 4, 31, 5, 32}));
  EXPECT_EQ(talk.prompt("d", 0).left_out, 0u);
  EXPECT_TRUE(talk.undo());
  EXPECT_EQ(talk.prompt("d", 0).ids, (Ids{0, 31, 5, 32}));
  EXPECT_FALSE(talk.undo());
}

TEST(Conversation, AFullContextIsSaidOnceAndEmptiedToHalf) {
  const Checkpoint c = marked();
  Conversation talk = begun(c);
  // Turns of 10 tokens; the new message takes 1 + 3.
  for (int i = 0; i < 4; ++i) talk.add("aaaa", {}, said("bbbb"));
  // 44 tokens, and 15 of 60 wait for the answer: 45 fit
  EXPECT_EQ(talk.prompt("c", 60).left_out, 0u);
  EXPECT_EQ(talk.prompt("c", 58).left_out, 0u);            // 58 - 14 = 44
  const Conversation::Prompt less = talk.prompt("c", 57);  // at most 28: two turns and the message
  EXPECT_EQ(less.left_out, 2u);
  EXPECT_EQ(less.ids.size(), 24u);
  EXPECT_EQ(talk.prompt("c", 57).left_out, 0u);  // for the first time only
  EXPECT_EQ(talk.prompt("c", 57).ids, less.ids);
  EXPECT_EQ(talk.prompt("c", 40, 15).left_out, 0u);  // an answer of 15 and its end: 24 are left
  EXPECT_EQ(talk.prompt("c", 40, 16).left_out, 1u);
  talk.clear();
  EXPECT_EQ(talk.prompt("c", 40).ids, (Ids{0, 31, 4, 32}));
}

TEST(Conversation, WithoutATemplateOneTextGoesOn) {
  const Checkpoint c = marked(false);
  Conversation talk = begun(c);
  const Conversation::Prompt first = talk.prompt("ab<31>", 0);
  EXPECT_EQ(first.ids, (Ids{0, 2, 3, 39, 39, 39, 39}));
  talk.special = true;
  EXPECT_EQ(talk.prompt("ab<31>", 0).ids, (Ids{0, 2, 3, 31}));
  talk.add("ab<31>", first, said("cd", {4, 5}));
  const Conversation::Prompt second = talk.prompt("e", 0);
  EXPECT_EQ(second.ids, (Ids{0, 2, 3, 39, 39, 39, 39, 4, 5, 6}));
  talk.add("e", second, said("f", {7}));
  // 12 tokens, 9 fit: BOS and the last 6 - 1 old ones stay
  const Conversation::Prompt full = talk.prompt("g", 12);
  EXPECT_EQ(full.left_out, 6u);
  EXPECT_EQ(full.ids, (Ids{0, 4, 5, 6, 7, 8}));
  EXPECT_TRUE(talk.undo());
  EXPECT_EQ(talk.prompt("e", 0).ids, second.ids);
  EXPECT_THROW(talk.load(parse_json(R"([{"role": "user", "content": "a"}])")), Error);
}

TEST(Conversation, MessagesGoOutAndComeBack) {
  const Checkpoint c = marked();
  Conversation talk = begun(c), other = begun(c);
  talk.system = "s";
  talk.add("a", {}, said("b"));
  talk.add("c", {}, said("d"));
  const Json messages = talk.json();
  EXPECT_EQ(messages, parse_json(R"([{"role": "system", "content": "s"}, {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}])"));
  other.load(messages);
  ASSERT_EQ(other.turns().size(), 2u);
  EXPECT_EQ(other.turns()[1].user + other.turns()[1].answer, "cd");
  // Its own system message: none.
  EXPECT_EQ(other.prompt("e", 0).ids, (Ids{0, 31, 2, 32, 3, 31, 4, 32, 5, 31, 6, 32}));
  for (const char* bad : {"{}", "[1]", R"([{"role": "user"}])", R"([{"role": "assistant", "content": "a"}])",
                          R"([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])"})
    EXPECT_THROW(other.load(parse_json(bad)), Error) << bad;
  EXPECT_EQ(other.turns().size(), 2u);  // a list that is refused changes nothing
}

TEST(Conversation, ARepliesIdsAreThoseOfGenerate) {
  const Checkpoint c = marked();
  Device device({.threads = 1});
  Conversation talk = begun(c);
  Session session(device, c, {}), plain(device, c, {});
  const Generated one = talk.reply(session, "ab", greedily(5), session.context());
  EXPECT_EQ(one.ids, plain.generate(Ids{0, 31, 2, 3, 32}, greedily(5)).at(0).ids);
  ASSERT_EQ(talk.turns().size(), 1u);
  EXPECT_EQ(talk.turns()[0].answer, one.text);
  std::string heard;
  const Conversation::Prompt next = talk.prompt("c", session.context());
  const ReplyHooks hooks{
      .on_token = [&](int, std::int32_t, std::string_view text) { return heard += text, true; }};
  const Generated two = talk.reply(session, "c", greedily(5), session.context(), hooks);
  EXPECT_EQ(two.ids, plain.generate(next.ids, greedily(5)).at(0).ids);
  EXPECT_EQ(heard, two.text);
}

// The context fills in the middle of an answer: it goes on, word for word, from a prompt without the
// oldest turns.
TEST(Conversation, AnAnswerOutlivesItsContext) {
  const Checkpoint c = marked();
  Device device({.threads = 1});
  constexpr Dim kContext = 48;
  Conversation talk = begun(c), twin = begun(c);
  for (Conversation* t : {&talk, &twin})
    for (int i = 0; i < 3; ++i) t->add("aaaa", {}, said("bbbb"));
  Session session(device, c, {.context = kContext}), plain(device, c, {.context = kContext});
  std::vector<std::size_t> left_out;
  const ReplyHooks hooks{.on_left_out = [&](std::size_t n) { left_out.push_back(n); }};
  const Generated whole = talk.reply(session, "c", greedily(-1), kContext, hooks);
  EXPECT_EQ(left_out, (std::vector<std::size_t>{3}));
  EXPECT_EQ(whole.finish, Finish::length);

  const Conversation::Prompt first = twin.prompt("c", kContext);
  ASSERT_EQ(first.ids.size(), 34u);
  Ids expected = plain.generate(first.ids, greedily(-1)).at(0).ids;
  ASSERT_EQ(expected.size(), 14u);  // then it is full
  const Conversation::Prompt rest = twin.prompt("c", kContext, -1, expected);
  EXPECT_EQ(rest.ids.size(), 4 + expected.size());
  const Ids more = plain.generate(rest.ids, greedily(-1)).at(0).ids;
  expected.insert(expected.end(), more.begin(), more.end());
  EXPECT_EQ(whole.ids, expected);
}

}  // namespace
}  // namespace rapt::test
