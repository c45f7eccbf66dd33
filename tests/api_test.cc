// SPDX-License-Identifier: Apache-2.0
// The public face (rapt/rapt.h) gives what the inside gives, bit for bit, and its handles keep alive what
// they need.
#include "rapt/api/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "rapt/inspect/capture.h"
#include "rapt/inspect/heads.h"
#include "rapt/inspect/lens.h"
#include "rapt/recipe/recipe_set.h"
#include "rapt/text/prompt.h"
#include "rapt/use/train_options.h"
#include "rapt/use/translate.h"
#include "tests/build_kind.h"
#include "tests/memory_checkpoint.h"
#include "tests/tools.h"
#include "tests/toy_checkpoint.h"

namespace rapt::api {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;

const char* const kDefault = RAPT_SOURCE_DIR "/models/default/default.gguf";
const char* const kText = "KING HENRY: what news, my lord?";

// A checkpoint of the tests as a handle.
Model handle(Checkpoint&& c, const Device& device) {
  auto state = std::make_shared<ModelState>();
  state->device = Access::of(device);
  state->checkpoint = std::make_shared<Checkpoint>(std::move(c));
  return Access::handle(std::move(state));
}

class Api : public testing::Test {
 protected:
  const Device device{{.threads = 2}};
  const Model model = Model::open(kDefault, {.device = device});
  rapt::Device& inside() const { return Access::of(device)->device; }
  const Checkpoint& checkpoint() const { return *Access::of(model).checkpoint; }
  std::vector<Token> tokens() const { return model.tokenize(kText, {.frame = true}); }
};

TEST_F(Api, GenerationIsTheSessionsOwn) {
  const std::vector<std::int32_t> prompt = text_ids(*checkpoint().tokenizer, kText);
  EXPECT_EQ(model.prompt(kText), prompt);
  for (const double temperature : {0.0, 0.8}) {
    rapt::GenerateOptions o;
    o.max_tokens = 12;
    o.sampler.temperature = temperature;
    o.sampler.seed = 7;
    o.logprobs = true, o.top_logprobs = 2;
    o.samples = 2;
    const std::vector<Generated> want = rapt::Session(inside(), checkpoint(), {}).generate(prompt, o);
    const GenerateOptions options{
        .max_tokens = 12, .sampling = {.temperature = temperature, .seed = 7}, .logprobs = 2};
    Session session(model);
    std::string streamed;
    const Answer one =
        session.generate(kText, options, [&](const Piece& piece) { return streamed += piece.text, true; });
    EXPECT_EQ(one.text, want[0].text);
    EXPECT_EQ(one.tokens, want[0].ids);
    EXPECT_EQ(streamed, one.text);
    ASSERT_EQ(one.choices.size(), want[0].tokens.size());
    for (std::size_t i = 0; i < one.choices.size(); ++i) {
      EXPECT_EQ(one.choices[i].logprob, want[0].tokens[i].logprob);
      EXPECT_EQ(one.choices[i].top, want[0].tokens[i].top);
    }
    EXPECT_EQ(session.times().answer_tokens, 12);
    const std::vector<Answer> both = session.generate_many(2, prompt, options);
    ASSERT_EQ(both.size(), 2u);
    EXPECT_EQ(both[0].tokens, want[0].ids);
    EXPECT_EQ(both[1].tokens, want[1].ids);
  }
}

TEST_F(Api, AnswersStopWhereTheyShould) {
  Session session(model);
  const GenerateOptions greedy{.max_tokens = 20, .sampling = {.temperature = 0}};
  const Answer whole = session.generate(kText, greedy);
  EXPECT_EQ(whole.finish, Finish::length);
  int pieces = 0;
  const Answer part = session.generate(kText, greedy, [&](const Piece&) { return ++pieces < 3; });
  EXPECT_EQ(part.finish, Finish::cancelled);
  EXPECT_TRUE(whole.text.starts_with(part.text));
  const Answer cancelled =
      session.generate(kText, greedy, [&](const Piece&) { return session.cancel(), true; });
  EXPECT_EQ(cancelled.finish, Finish::cancelled);
  GenerateOptions until = greedy;
  until.stops = {whole.text.substr(4, 2)};
  const Answer stopped = session.generate(kText, until);
  EXPECT_EQ(stopped.finish, Finish::stop);
  EXPECT_EQ(stopped.text, whole.text.substr(0, whole.text.find(until.stops[0])));
  const Answer searched = session.generate(kText, {.max_tokens = 6, .beams = 3});
  rapt::GenerateOptions o;
  o.max_tokens = 6, o.beams = 3;
  const Generated want = rapt::Session(inside(), checkpoint(), {}).generate(model.prompt(kText), o).at(0);
  EXPECT_EQ(searched.tokens, want.ids);
  EXPECT_EQ(searched.score, want.score);
}

TEST_F(Api, ChatGoesThroughTheTemplate) {
  Checkpoint c = test::memory_checkpoint(test::small_decoder(), 3);
  c.tokenizer = std::make_shared<test::MarkTokenizer>(40);
  c.chat_template = "{{ bos_token }}{% for m in messages %}<31>{{ m.content }}<32>{% endfor %}";
  const Model toy = handle(std::move(c), device);
  // What the user writes is letters, what the template writes are tokens.
  const std::vector<Token> ids = toy.chat_prompt({{"user", "a<32>"}});
  EXPECT_EQ(ids, chat_ids(*Access::of(toy).checkpoint->tokenizer,
                          ChatTemplate(Access::of(toy).checkpoint->chat_template),
                          std::vector<ChatMessage>{{"user", "a<32>"}}));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 32), 1);
  Session session(toy);
  const GenerateOptions greedy{.max_tokens = 5, .sampling = {.temperature = 0}};
  EXPECT_EQ(session.chat({{"user", "a<32>"}}, greedy).tokens, Session(toy).generate(ids, greedy).tokens);
  EXPECT_THAT(test::error_of([&] { Session(model).chat({{"user", "hi"}}); }),
              HasSubstr("has no chat template"));
}

TEST_F(Api, TokensThereAndBack) {
  const std::vector<Token> ids = model.tokenize(kText);
  EXPECT_EQ(ids, checkpoint().tokenizer->encode(kText));
  EXPECT_EQ(model.detokenize(ids), kText);
  EXPECT_EQ(model.token_text(ids[0]), checkpoint().tokenizer->bytes_of(ids[0]));
  EXPECT_EQ(tokens(), checkpoint().tokenizer->frame(checkpoint().tokenizer->encode(kText)));
}

TEST_F(Api, LogitsAreTheForwards) {
  const std::vector<Token> ids = tokens();
  rapt::Run run(inside());
  const rapt::Tensor want = forward(
      run, *checkpoint().model, Batch{.tokens = ids, .sequences = {{.count = static_cast<Dim>(ids.size())}}});
  const Tensor got = model.logits(ids);
  EXPECT_THAT(got.shape, ElementsAreArray({want[0], want[1]}));
  EXPECT_THAT(got.values, ElementsAreArray(want.as<float>()));
  EXPECT_EQ(got.row(1)[2], want.as<float>()[want[1] + 2]);

  std::string text;
  for (int i = 0; i < 12; ++i) text += kText;
  const rapt::Perplexity p =
      rapt::perplexity(inside(), checkpoint(), text_ids(*checkpoint().tokenizer, text), 16, 3);
  const Perplexity q = model.perplexity(text, {.window = 16, .windows = 3});
  EXPECT_EQ(q.value, p.perplexity);
  EXPECT_EQ(q.tokens, p.tokens);
  EXPECT_NE(model.perplexity(text, {.window = 16, .windows = 3, .edits = {"L0H0:zero"}}).value, q.value);

  const std::vector<std::string> texts = {"a small cat", "a kitten"};
  const Tensor e = model.embed(texts, {.pooling = Pooling::mean});
  const auto rows = embed_texts(inside(), checkpoint(), texts, Pool::mean);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_THAT(e.row(static_cast<std::int64_t>(i)), ElementsAreArray(rows[i]));
}

TEST_F(Api, EncodersAndEncoderDecoders) {
  rapt::Device& on = inside();
  Checkpoint marian = test::open_toy("marian", on);
  const std::vector<Token> source = {5, 6, 7, 0};
  rapt::GenerateOptions o;
  o.max_tokens = 6, o.beams = 2;
  const Generated want = rapt::Session(on, marian, {}).translate(source, o).at(0);
  const Model m = handle(std::move(marian), device);
  EXPECT_TRUE(m.info().translates);
  EXPECT_EQ(Session(m).generate(source, {.max_tokens = 6, .beams = 2}).tokens, want.ids);
  EXPECT_EQ(m.logits(std::vector<Token>{m.info().decoder_start}, source).rows(), 1);
  EXPECT_THAT(test::error_of([&] { m.logits(source); }), HasSubstr("translates"));
  EXPECT_THAT(test::error_of([&] { m.tokenize("x"); }), HasSubstr("no tokenizer"));
}

// The words of the public face for attention, tensors, edits and the lens are those of rapt/inspect.
TEST_F(Api, LookingInsideIsInspects) {
  const std::vector<Token> ids = tokens();
  const Dim T = static_cast<Dim>(ids.size());
  const rapt::Model& net = *checkpoint().model;
  const LookOptions edited{.edits = {"L0H1:zero"}};
  for (const LookOptions& options : {LookOptions{}, edited}) {
    Taps taps, others;  // a record leaves its own observers on its taps
    install_edits(taps, net, parse_edits(options.edits));
    install_edits(others, net, parse_edits(options.edits));
    const AttentionRecord record(inside(), net, ids, {}, {.taps = &taps});
    const AttentionPlace place{.layer = 1};
    const Tensor map = attention(model, {.layer = 1, .head = 1}, ids, options);
    EXPECT_THAT(map.shape, ElementsAreArray({T, T}));
    for (Dim row = 0; row < T; ++row)
      record.rows(place, 1, {&row, 1}, [&](Dim r, int, std::span<const float> w) {
        EXPECT_THAT(map.row(r), ElementsAreArray(w));
      });
    const auto metrics = head_metrics(record);
    const auto facts = heads(model, ids, options);
    ASSERT_EQ(facts.size(), metrics.size());
    for (std::size_t i = 0; i < facts.size(); ++i) {
      EXPECT_EQ(facts[i].label, metrics[i].label);
      EXPECT_EQ(facts[i].place.head, metrics[i].head);
      EXPECT_EQ(facts[i].entropy, metrics[i].entropy);
    }
    const std::vector<std::string> names = {"resid_post.*", "attn_weights.1", "logits"};
    const rapt::Capture want =
        rapt::capture(inside(), net, ask_points(net, names), ids, {}, {.taps = &others});
    const std::vector<Tensor> got = capture(model, names, ids, options);
    ASSERT_EQ(got.size(), want.tensors.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].name, want.tensors[i].name);
      EXPECT_EQ(got[i].shape, want.tensors[i].shape);
      EXPECT_EQ(got[i].values, want.tensors[i].values);
    }
    EXPECT_EQ(got.back().values == model.logits(ids).values, options.edits.empty());
  }
  const LookOptions as_json{.edits = {R"({"point": "z.0", "head": 1, "op": "zero"})"}};
  EXPECT_EQ(capture(model, {"logits"}, ids, as_json)[0].values,
            capture(model, {"logits"}, ids, edited)[0].values);
  const rapt::Lens want = rapt::lens(inside(), net, ids, {}, {.top = 2});
  const Lens got = lens(model, ids, 2);
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_EQ(got.probabilities, want.probabilities);
  EXPECT_EQ(got.best(1, 2), want.ids[want.cell(1, 2) * 2]);
  EXPECT_EQ(points(model).size(), list_points(net).size());
  EXPECT_THAT(test::error_of([&] { attention(model, {.layer = 1, .head = 1000}, ids); }),
              HasSubstr("layer 1 has no head 1000"));
  EXPECT_THAT(test::error_of([&] { attention(model, {.layer = 1000}, ids); }),
              HasSubstr("none of the attentions asked for is there"));
  EXPECT_THAT(test::error_of([&] { attention(model, {.cross = true}, ids); }),
              HasSubstr("none of the attentions asked for is there"));
  EXPECT_THAT(test::error_of([&] { capture(model, {"nothing.3"}, ids); }), HasSubstr("nothing"));
}

TEST_F(Api, EditsHoldWhileASessionAnswers) {
  Taps taps;
  install_edits(taps, *checkpoint().model, parse_edits(std::vector<std::string>{"resid_post.0:scale=0.2"}),
                Passes::many);
  rapt::GenerateOptions o;
  o.max_tokens = 8, o.sampler.temperature = 0;
  const Generated want =
      rapt::Session(inside(), checkpoint(), {.taps = &taps}).generate(model.prompt(kText), o).at(0);
  Session session(model, {.edits = {"resid_post.0:scale=0.2"}});
  EXPECT_EQ(session.generate(kText, {.max_tokens = 8, .sampling = {.temperature = 0}}).tokens, want.ids);
}

TEST_F(Api, ASessionMayStream) {
  rapt::GenerateOptions o;
  o.max_tokens = 20, o.sampler.temperature = 0, o.ignore_eos = true;
  const std::vector<std::int32_t> prompt = model.prompt(kText);
  const Generated want = rapt::Session(inside(), checkpoint(), {.stream = {2, 5}}).generate(prompt, o).at(0);
  const GenerateOptions greedy{.max_tokens = 20, .sampling = {.temperature = 0}, .ignore_eos = true};
  EXPECT_EQ(Session(model, {.streaming = Streaming{2, 5}}).generate(kText, greedy).tokens, want.ids);
  EXPECT_THAT(test::error_of([&] { Session(model, {.context = 4, .streaming = Streaming{4, 0}}); }),
              HasSubstr("leave no window"));
}

// ------------------------------------------------------------------------------------- who keeps what alive

TEST_F(Api, ASessionOutlivesTheHandleItCameFrom) {
  const GenerateOptions greedy{.max_tokens = 8, .sampling = {.temperature = 0}};
  const std::string want = Session(model).generate(kText, greedy).text;
  std::weak_ptr<const ModelState> state;
  {
    auto opened = std::make_unique<Model>(Model::open(kDefault, {.device = Device({.threads = 1})}));
    state = Access::share(*opened);
    Session session(*opened);
    const Session copy = session;  // the same session
    opened.reset();
    EXPECT_EQ(session.generate(kText, greedy).text, want);
    EXPECT_EQ(copy.times().answer_tokens, 8);
    EXPECT_EQ(session.model().info().path, kDefault);
  }
  EXPECT_TRUE(state.expired());
}

TEST_F(Api, ThreadsWithASessionEach) {
  const std::vector<std::string> prompts = {"ROMEO:", "KING HENRY:", "What news", "To be"};
  const auto answer = [&](std::size_t i) {
    return Session(model).generate(prompts[i], {.max_tokens = 16, .sampling = {.seed = i}}).text;
  };
  std::vector<std::string> want, got(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) want.push_back(answer(i));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < prompts.size(); ++i) threads.emplace_back([&, i] { got[i] = answer(i); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(got, want);
}

TEST_F(Api, DevicesAreSharedUnlessOneIsAskedFor) {
  EXPECT_EQ(Access::of(Device()), Access::of(Device()));
  EXPECT_NE(Access::of(Device({.threads = 1})), Access::of(Device()));
  EXPECT_EQ(Device({.threads = 1}).threads(), 1);
  EXPECT_EQ(Device({.isa = "scalar"}).isa(), "scalar");
  EXPECT_THROW(Device({.isa = "nothing"}), Error);
  EXPECT_EQ(model.device().threads(), device.threads());
  EXPECT_THAT(version(), HasSubstr("."));
}

TEST_F(Api, ErrorsSayWhatKindTheyAre) {
  const auto kind = [](const auto& f) {
    try {
      f();
    } catch (const Error& e) {
      return e.is_usage() ? 2 : 1;
    }
    return 0;
  };
  test::TempFolder folder;
  EXPECT_EQ(kind([&] { Model::open(folder / "nothing.gguf"); }), 1);
  EXPECT_NE(kind([&] { Model::make("no-such-preset"); }), 0);
  EXPECT_NE(kind([&] { Model::make("gpt2", {.settings = {"wdth=3"}}); }), 0);
  EXPECT_EQ(kind([&] { Session(model, {.cache = "q3"}); }), 2);
  EXPECT_EQ(kind([&] { Session(model).generate(kText, {.stops = {""}}); }), 2);
  EXPECT_EQ(kind([&] { Training("gpt-char", {.data = "x"}); }), 2);
  EXPECT_EQ(kind([&] { model.weight("nothing"); }), 2);
}

// ---------------------------------------------------------------------------------------- files and weights

TEST_F(Api, MadeModelsAreTheInsidesAndComeBackFromTheirFolder) {
  const std::vector<std::string> settings = {"width=32", "layers=2", "heads=2",   "kv_heads=1",
                                             "ffn=48",   "vocab=50", "context=64"};
  const Model made = Model::make("llama3", {.device = device, .settings = settings, .seed = 5});
  rapt::Model want(resolve(with_settings(preset("llama3"), settings)), inside().real);
  init(want, 5);
  ASSERT_EQ(made.weights().size(), want.weights.size());
  for (const Weight& w : want.weights) {
    const Tensor t = made.weight(w.name);
    EXPECT_THAT(t.shape, ElementsAreArray({w.rows, w.cols}));
    for (Dim r = 0; r < w.rows; ++r)
      for (Dim c = 0; c < w.cols; ++c)
        ASSERT_EQ(t.row(r)[static_cast<std::size_t>(c)], static_cast<float>(w.get(r, c)));
  }
  EXPECT_EQ(made.info().parameters, want.parameters());
  EXPECT_EQ(made.info().recipe, recipe_json(want.recipe, true));
  const Model again = Model::make(made.info().recipe, {.device = device, .seed = 5});  // a recipe as JSON
  const std::vector<Token> ids = {1, 2, 3};
  EXPECT_EQ(again.logits(ids).values, made.logits(ids).values);

  test::TempFolder folder;
  made.save(folder / "m");
  const Model opened = Model::open(folder / "m", {.device = device});
  EXPECT_EQ(opened.info().family, "llama");
  EXPECT_EQ(opened.logits(ids).values, made.logits(ids).values);
  EXPECT_THAT(test::error_of([&] { made.save(folder / "m"); }), HasSubstr("exists"));
  opened.save(folder / "m.q8_0.gguf", {.type = "q8_0"});
  const Model small = Model::open(folder / "m.q8_0.gguf", {.device = device});
  EXPECT_EQ(small.info().format, "gguf");
  EXPECT_NE(small.logits(ids).values, made.logits(ids).values);
  EXPECT_EQ(
      Model::open(folder / "m.q8_0.gguf", {.device = device, .exact = true}).weight("embed.tokens").values,
      small.weight("embed.tokens").values);
}

// ------------------------------------------------------------------------------------------------ training

class ApiTrain : public testing::Test {
 protected:
  test::TempFolder folder;
  const Device device{{.threads = 2}};
  const std::vector<std::string> recipe = {"width=16", "heads=2", "layers=2", "dropout=0.1", "context=16"};
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 300; ++i) text += i % 3 ? "the cat sat on a mat. " : "a dog ran far.\n";
    test::put_file(folder / "text.txt", text);
  }
  TrainOptions options(const std::string& out) const {
    return {.data = folder / "text.txt",
            .folder = folder / out,
            .steps = 10,
            .seed = 3,
            .vocabulary = Vocabulary::characters,
            .batch = 4,
            .length = 16,
            .recipe = recipe,
            .settings = {"optimizer.rate=1e-2", "eval_batches=2"},
            .device = device};
  }
};

TEST_F(ApiTrain, TrainsToTheTrainersBitsWhereverItIsStopped) {
  DataOptions d;
  d.path = folder / "text.txt";
  d.vocab.kind = VocabKind::characters;
  d.batch = 4, d.length = 16, d.seed = 3;
  const std::unique_ptr<TrainData> data = open_data(d);
  Recipe r = with_settings(preset("gpt-char"), recipe);
  r.vocab = data->vocab;
  rapt::Device& on = Access::of(device)->device;
  rapt::Model want(resolve(r), on.real);
  init(want, 3);
  rapt::TrainOptions o = parse_train_options(
      parse_json(R"({"steps": 10, "seed": 3, "optimizer.rate": 1e-2, "eval_batches": 2})", "x"), "x");
  Trainer trainer(on, want, *data, o);
  std::vector<double> losses;
  for (int i = 0; i < 10; ++i) losses.push_back(trainer.step().loss);

  std::optional<Model> model;
  std::vector<double> seen;
  {
    Training training("gpt-char", options("a"));
    std::int64_t stop_at = 4;
    const TrainEvents events{
        .step = [&](const TrainStep& s) { return seen.push_back(s.loss), s.step != stop_at; }};
    EXPECT_FALSE(training.run(events));
    EXPECT_EQ(training.steps(), 4);
    stop_at = 7;
    EXPECT_FALSE(training.run(events));  // the same object goes on …
    // … which holds its folder
    EXPECT_THAT(test::error_of([&] { Training("gpt-char", options("a")); }),
                HasSubstr("somebody else saves here"));
  }
  {
    Training training("gpt-char", options("a"));  // … and so does another one
    int judged = 0;
    EXPECT_TRUE(training.run({.step = [&](const TrainStep& s) { return seen.push_back(s.loss), true; },
                              .judged = [&](std::int64_t, const HeldOut& h) { judged += h.counted > 0; }}));
    EXPECT_EQ(judged, 1);
    EXPECT_EQ(training.judge().loss, trainer.judge().loss);
    model = training.model();
  }
  EXPECT_EQ(seen, losses);
  const Model opened = Model::open(folder / "a", {.device = device});  // its model/
  for (const Weight& w : want.weights)
    for (Dim row = 0; row < w.rows; ++row)
      for (Dim c = 0; c < w.cols; ++c)
        ASSERT_EQ(model->weight(w.name).row(row)[static_cast<std::size_t>(c)],
                  static_cast<float>(w.get(row, c)));
  const std::vector<Token> ids = model->tokenize("the cat");
  EXPECT_EQ(opened.logits(ids).values, model->logits(ids).values);
  EXPECT_EQ(Session(*model).generate("the", {.max_tokens = 5}).text,
            Session(opened).generate("the", {.max_tokens = 5}).text);
  model->save(folder / "copy");
  EXPECT_EQ(Model::open(folder / "copy", {.device = device}).tokenize("the cat"), ids);
}

TEST_F(ApiTrain, GoesOnFromAModelAndBeginsAnew) {
  TrainOptions o = options("a");
  o.steps = 2;
  Training("gpt-char", o).run();
  TrainOptions more = options("b");
  more.steps = 2;
  more.recipe = {};
  Training further(folder / "a", more);
  const std::string first = further.model().weights().front();
  EXPECT_EQ(further.model().weight(first).values,
            Model::open(folder / "a", {.device = device}).weight(first).values);
  EXPECT_TRUE(further.run());
  o.anew = true;
  Training again("gpt-char", o);
  EXPECT_EQ(again.steps(), 0);
  o.anew = false;
  o.recipe = {"width=32"};
  EXPECT_THAT(test::error_of([&] { Training(folder / "b", o); }), HasSubstr("is a model with weights"));
}

}  // namespace
}  // namespace rapt::api
