// SPDX-License-Identifier: Apache-2.0
// The inside of the service. Its functions stand in service.cc (routes, admission, deadlines),
// service_work.cc (from a body to requests of an engine), service_events.cc (from events to replies),
// service_streams.cc (streams that outlive their reader), service_replay.cc (answers that are given again, or
// twice to be compared), service_continue.cc (answers that another server began).
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>

#include "rapt/apps/server/answer_compare.h"
#include "rapt/apps/server/answer_look.h"
#include "rapt/apps/server/metrics.h"
#include "rapt/apps/server/protocol.h"
#include "rapt/apps/server/protocol_vendors.h"
#include "rapt/apps/server/replay_store.h"
#include "rapt/apps/server/service.h"
#include "rapt/apps/server/text_look.h"
#include "rapt/apps/server/web_page.h"
#include "rapt/base/clock.h"

namespace rapt::server {

enum class Task {
  completion,
  embeddings,
  rerank,
  classify,
  look,
  tokenize,
  detokenize,
  apply_template,
  input_tokens,
  show,
  workshop
};

// How many texts are looked at, in all and of each client; shared with those that end last.
struct LookCounts {
  std::mutex lock;
  std::map<std::string, int> of;
  int all = 0;
};
// One of them, as long as it lives. Fails with 429 where there are too many.
class LookSlot {
 public:
  LookSlot(std::shared_ptr<LookCounts> counts, std::string client);
  ~LookSlot();
  LookSlot(const LookSlot&) = delete;
  LookSlot& operator=(const LookSlot&) = delete;

 private:
  std::shared_ptr<LookCounts> counts_;
  std::string client_;
};

// What a stream has said, for a reader who comes back: its last megabyte, event by event.
struct Job;
struct Ring {
  std::string id, client;
  std::size_t key = 0;
  std::deque<std::string> events;  // data: …\n\n
  Dim first = 0;  // number of the first of them
  std::size_t bytes = 0;
  bool ended = false;
  Clock::time_point since = Clock::now();  // its reader left, or it ended
  std::shared_ptr<Job> job;  // until it ends
  void add(std::string_view wire);  // comments are left out
};

// A request of a client, from its arrival to the end of its reply.
struct Job {
  http::Exchange exchange = 0;  // 0: its reader has left, and may come back
  Task task = Task::completion;
  Form form = Form::chat;
  std::string route;  // for metrics and log: "/v1/chat/completions"
  std::string request_id;  // x-request-id
  std::vector<http::Header> headers;  // of every reply to it
  std::string client;  // who is charged: its key, or its address
  std::size_t key = 0;
  Clock::time_point arrived = Clock::now();
  std::atomic<bool> gone = false;  // the client has left: workers need not go on
  bool broken = false;  // the engine took only a part of it; it is refused. Under State::lock until then

  // Set by the worker before the engine hears of it. Until then others may look at the model, the headers and
  // the number of parts (a client leaves, a deadline passes): these change under State::lock.
  ServedModel* model = nullptr;
  const NamedAdapter* adapter = nullptr;  // of the model; null: none
  const std::string& model_name() const { return adapter ? adapter->name : model->name; }
  CompletionRequest asked;
  EmbeddingsRequest embeddings;
  RerankRequest rerank;
  ReplyHead head;
  Taps taps;
  std::optional<AnswerLook> look;
  bool shows_look = false;  // asked for; else it is for the metrics
  std::optional<LiveLook> live;
  std::optional<LookSlot> look_slot;
  std::unique_ptr<TextLook> text_look;
  std::function<void()> edits_touched;  // fails where an edit changed nothing
  ReplayPtr again;  // the answer that this one repeats
  bool edited = false;  // … under other edits
  bool keeps = false;  // it is kept, to be given again
  std::string body;  // … as it was asked
  std::unique_ptr<AnswerCompare> compare;
  std::array<Request, 2> compared;  // what was asked of both
  struct Part {  // one request of the engine
    Engine::Id id = 0;
    std::vector<std::int32_t> prompt;
    std::string prompt_text;  // echo
    std::shared_ptr<Answer> answer;
    std::vector<double> last;  // of each sample: when its last token came
    bool begun = false, done = false, suspended = false;
    Dim reused = 0;  // tokens of the prompt that were found in the cache
    std::vector<std::size_t> written = {};  // of each sample, where the answer is gone on with: its tokens
    std::vector<float> vector;  // embeddings; probabilities of classes
  };
  std::vector<Part> parts;
  Dim counted = 0, counted_tokens = 0;  // what it takes of the queue; under State::lock

  // On the server's thread.
  bool begun = false;  // a part of it is being read
  bool streams = false;  // the head of a stream was sent
  std::unique_ptr<AnswerWriter> writer;  // writer_of()
  std::vector<Event> held;  // tokens that wait for log-probabilities of the prompt (echo)
  Clock::time_point wrote = Clock::now();
  std::string deadline;  // why it was ended: "queue", "first_token", "deadline", "draining"
  bool first_token = false;
  Dim written = 0;
  std::size_t unsent = 0;  // bytes, after the last write
  std::shared_ptr<Ring> ring;  // of a stream that may be resumed
  int open_parts = 0;
  double seconds = 600;  // after which it ends
};
using JobPtr = std::shared_ptr<Job>;

struct Service::State {
  std::vector<std::unique_ptr<ServedModel>> models;
  ServiceOptions options;
  Access access;
  http::Server* server = nullptr;
  Metrics metrics;
  const Clock::time_point started = Clock::now();
  std::string openapi;
  std::optional<WebPage> page;
  std::optional<Workshop> workshop;
  ReplayStore replays;
  std::optional<ReplayLog> replay_log;

  std::unordered_map<http::Exchange, JobPtr> jobs;  // server's thread
  std::set<JobPtr> detached;  // … that go on without a reader
  std::unordered_map<std::string, std::shared_ptr<Ring>> rings;  // … by id
  std::vector<Engine::Status> status;  // … of each model, after its last step
  struct Monitor {
    std::string client;
    std::size_t unsent = 0;
  };
  std::map<http::Exchange, Monitor> monitors;
  struct Moment {  // of a model, when the monitor's figures were last taken
    Engine::Status status;
    double seconds = 0;  // of all steps
  };
  struct RunReader {  // of a run's events (workshop.h)
    std::string id;
    std::size_t key = 0;
    Dim next = 0;
    Clock::time_point wrote = Clock::now();
  };
  std::map<http::Exchange, RunReader> run_readers;
  std::vector<Moment> earlier, latest;  // half a second apart
  Clock::time_point taken_earlier = Clock::now(), taken = Clock::now();
  const std::shared_ptr<LookCounts> looks = std::make_shared<LookCounts>();
  std::atomic<int> draining = 0;
  std::atomic<bool> reload = false;
  Clock::time_point drain_began{};

  // Work of the workers.
  std::mutex work_lock;
  std::condition_variable work_there;
  // To read requests; and what looks at texts have to do after their passes, which may take seconds and must
  // not keep a request from being read: that has a thread of its own.
  using Work = std::deque<std::function<void()>>;
  Work work, looking;
  bool quit = false;
  std::vector<std::thread> threads;

  // What workers and the engines' thread share.
  std::mutex lock;
  std::condition_variable engine_wakes;
  bool engine_signal = false;
  std::map<std::pair<std::size_t, Engine::Id>, std::pair<JobPtr, std::size_t>> live;  // part of a job
  Dim waiting = 0, waiting_tokens = 0;

  State(std::vector<std::unique_ptr<ServedModel>> m, ServiceOptions o);

  // service.cc
  void route(http::Exchange exchange, http::Request request);
  bool answer_now(http::Exchange exchange, const http::Request& request, std::string_view path);
  void accept(http::Exchange exchange, http::Request request, Task task, Form form, std::string route);
  void reply(http::Exchange exchange, const http::Request& request, http::Reply reply);
  void reply(const JobPtr& job, int status, std::string body, std::string_view finish = "");
  void fail(const JobPtr& job, const ApiError& error);
  void forget(const JobPtr& job);
  void cancel(const JobPtr& job);
  void sweep();
  void watch_monitor(http::Exchange exchange, const http::Request& request);
  void tell_monitors();
  std::string monitor(const std::string& client) const;
  std::string props(const ServedModel& model) const;
  std::string slots();
  std::string limits();
  std::string metrics_text();
  std::size_t index_of(const ServedModel& model) const;
  void log(const Job& job, int status, std::string_view finish);

  // service_streams.cc
  bool attached(const Job& job) const;
  void begin_stream(const JobPtr& job);
  bool open_ring(const JobPtr& job);
  void close_ring(Job& job);
  void detach(const JobPtr& job);
  void go_on(Job& job);
  void stream(http::Exchange exchange, const http::Request& request);
  void sweep_streams();
  std::string streams_text() const;
  void run_events(http::Exchange exchange, const http::Request& request);
  void tell_run_readers();

  // service_replay.cc
  void read_replay_log();
  void prepare_replay(const JobPtr& job, const http::Request& request);
  ReplayPtr find_replay(std::string_view path, std::size_t key) const;
  void keep(const Job& job);
  std::string replay_text(const Job& job, int choice = -1) const;
  bool replay_equal(const Job& job) const;
  void add_compared(const JobPtr& job, std::vector<Request>& requests, const std::vector<Edit>& edits);
  void read_compared(const JobPtr& job);
  std::string replays_text() const;

  // service_continue.cc
  void prepare_continued(Job& job, const std::vector<std::vector<std::int32_t>>& prompts);
  static void set_known(const Job& job, std::size_t part, Request& request);
  std::optional<ApiError> differs(Job& job, std::size_t part, const Event& event) const;

  // service_work.cc
  void push(std::function<void()> f) { push(work, std::move(f)); }
  void push(Work& queue, std::function<void()> f);
  void run_worker(Work& queue);
  // `adapter`: the one that was asked for by its name, or MODEL:NAME.
  ServedModel& find_model(std::string_view name, const NamedAdapter** adapter = nullptr);
  std::string names() const;  // of models and adapters
  void prepare(const JobPtr& job, const http::Request& request);
  void prepare_completion(const JobPtr& job, const Json& body);  // job->again: once more
  void make_parts(Job& job, std::size_t count);
  void prepare_vectors(const JobPtr& job, const Json& body);
  void prepare_look(const JobPtr& job, const Json& body);
  std::string answer_text(const JobPtr& job, const Json& body);
  void admit(const JobPtr& job, Dim answers, Dim tokens);
  void release(Job& job, Dim answers, Dim tokens);
  void add(const JobPtr& job, std::vector<Request> requests);

  // service_events.cc
  struct Delivery {
    JobPtr job;
    std::size_t part;
    Event event;
    std::string live = {};  // what was seen while this token was written (LiveLook)
  };
  struct Batch {
    std::size_t model;
    std::vector<Delivery> events;
    Engine::Status status;
    double seconds;  // of the step
    Dim rows;
  };
  void run_engines();
  void drop_all(std::size_t model, const std::exception_ptr& thrown);
  void deliver(Batch& batch);
  void take_token(Job& job, std::size_t part, const Event& event, std::string& out);
  void take_done(const JobPtr& job, std::size_t part, const Event& event, std::string& out);
  void finish_completion(const JobPtr& job, std::string& out);
  void finish_vectors(const JobPtr& job);
  void finish_look(const JobPtr& job);
  std::vector<ReplyChoice> choices(const Job& job) const;
  RaptInfo info(const Job& job) const;
  Usage usage(const Job& job) const;
};

AnswerWriter& writer_of(Job& job);  // on the server's thread, once the request is read
std::vector<http::Header> stream_headers(Job& job);
std::string random_id();  // 24 letters and digits that nobody can guess

}  // namespace rapt::server
