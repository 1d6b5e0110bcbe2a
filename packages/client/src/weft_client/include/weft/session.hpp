/// Clients, sessions and gradients.
#ifndef WEFT_SESSION_HPP
#define WEFT_SESSION_HPP

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scope.hpp"

namespace weft {

/// A deadline of a call; by default that of the client.
class Timeout {
 public:
  Timeout() = default;
  Timeout(std::chrono::milliseconds time) : milliseconds_(time.count() > 0 ? time.count() : 1) {}
  static Timeout None() {
    Timeout timeout;
    timeout.milliseconds_ = WEFT_NO_TIMEOUT;
    return timeout;
  }
  std::int64_t milliseconds() const { return milliseconds_; }

 private:
  std::int64_t milliseconds_ = 0;
};

/// Options of `Client::Connect`; see weft_client_options.
struct ClientOptions {
  std::string certificate, key, authority, token;
  Timeout timeout;
};

/// Options of `Client::LaunchLocal`; see weft_launch_options.
struct LaunchOptions {
  std::vector<std::string> command, arguments;
  Timeout timeout;
};

/// A connection to a server. Copies share it; it is closed with the last copy and session.
class Client {
 public:
  /// Connect to "weft://host:port".
  static Client Connect(const std::string& target, const ClientOptions& options = {}) {
    weft_client_options values = {};
    values.target = target.c_str();
    values.certificate = options.certificate.c_str();
    values.key = options.key.c_str();
    values.authority = options.authority.c_str();
    values.token = options.token.c_str();
    values.timeout_ms = options.timeout.milliseconds();
    detail::Status status;
    return Client(status.check(weft_client_connect(&values, status)));
  }

  /// Start a server for this program and connect to it.
  static Client LaunchLocal(const LaunchOptions& options = {}) {
    std::vector<const char*> command = pointers(options.command);
    std::vector<const char*> arguments = pointers(options.arguments);
    weft_launch_options values = {};
    values.command = options.command.empty() ? nullptr : command.data();
    values.arguments = arguments.data();
    values.timeout_ms = options.timeout.milliseconds();
    detail::Status status;
    return Client(status.check(weft_client_launch_local(&values, status)));
  }

  std::string target() const { return weft_client_target(client_.get()); }

  /// Drop the state of all tasks: of the named containers, or of all.
  void Reset(const std::vector<std::string>& containers = {}, Timeout timeout = {}) const {
    std::vector<const char*> names = pointers(containers);
    detail::Status status;
    status.check(weft_client_reset(client_.get(), names.data(), containers.size(),
                                   timeout.milliseconds(), status));
  }

  weft_client* get() const { return client_.get(); }

 private:
  explicit Client(weft_client* client) : client_(client, weft_client_close) {}

  static std::vector<const char*> pointers(const std::vector<std::string>& texts) {
    std::vector<const char*> result;
    for (const std::string& text : texts) result.push_back(text.c_str());
    result.push_back(nullptr);
    return result;
  }

  std::shared_ptr<weft_client> client_;
};

using Feeds = std::vector<std::pair<Output, Tensor>>;

/// A gradient: dense, or the rows `indices` of it if there are some.
struct Gradient {
  Output values, indices;
};

/// A session: the graph of a scope on the devices of a server's cluster.
class Session {
 public:
  /// `config` is a serialized ConfigProto.
  Session(const Client& client, const Scope& scope, const std::string& config = "",
          Timeout timeout = {})
      : client_(client), state_(scope.state()) {
    detail::Status status;
    session_.reset(status.check(weft_session_new(client.get(), scope.graph(), config.data(),
                                                 config.size(), timeout.milliseconds(), status)));
  }

  Session(Session&&) = default;
  /// The old session is closed before its client.
  Session& operator=(Session&& other) noexcept {
    session_ = std::move(other.session_);
    state_ = std::move(other.state_);
    client_ = std::move(other.client_);
    return *this;
  }

  std::vector<std::string> devices() const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < weft_session_num_devices(session_.get()); i++)
      names.emplace_back(weft_session_device(session_.get(), i));
    return names;
  }

  /// Send the new nodes of the graph; the other calls do so too.
  void Extend(Timeout timeout = {}) const {
    detail::Status status;
    status.check(weft_session_extend(session_.get(), timeout.milliseconds(), status));
  }

  /// Run a step: feed, fetch, and run operations without fetching.
  std::vector<Tensor> Run(const Feeds& feeds, const std::vector<Output>& fetches,
                          const std::vector<Operation>& targets = {}, Timeout timeout = {}) const {
    std::vector<const char*> feed_names, fetch_names, target_names;
    std::vector<weft_tensor*> fed, fetched(fetches.size() + 1);
    for (const auto& feed : feeds) {
      feed_names.push_back(state_->NameOf(feed.first).c_str());
      fed.push_back(feed.second.get());
    }
    for (const Output& fetch : fetches) fetch_names.push_back(state_->NameOf(fetch).c_str());
    for (const Operation& target : targets)
      target_names.push_back(state_->NameOf(target).c_str());
    detail::Status status;
    status.check(weft_session_run(session_.get(), feed_names.data(), fed.data(), fed.size(),
                                  fetch_names.data(), fetched.data(), fetches.size(),
                                  target_names.data(), targets.size(), timeout.milliseconds(),
                                  status));
    std::vector<Tensor> results;
    for (std::size_t i = 0; i < fetches.size(); i++) results.push_back(Tensor::Adopt(fetched[i]));
    return results;
  }
  std::vector<Tensor> Run(const std::vector<Output>& fetches) const { return Run({}, fetches); }
  Tensor Run(const Output& fetch, const Feeds& feeds = {}) const {
    return Run(feeds, std::vector<Output>{fetch})[0];
  }
  void Run(const Operation& target, const Feeds& feeds = {}) const { Run(feeds, {}, {target}); }

  /// The element type and static shape of an output.
  std::pair<DataType, PartialShape> ShapeOf(const Output& output, Timeout timeout = {}) const {
    DataType dtype;
    int rank = 0;
    std::int64_t dims[WEFT_MAX_RANK];
    detail::Status status;
    status.check(weft_session_shape(session_.get(), state_->NameOf(output).c_str(), &dtype, &rank, dims,
                                    timeout.milliseconds(), status));
    return {dtype, rank < 0 ? PartialShape() : PartialShape(Shape(dims, dims + rank))};
  }

  /// Add gradients of the sum of `ys` with respect to each x: an empty output if no y depends on
  /// it. `grad_ys` are the gradients to start from, ones by default.
  std::vector<Output> AddGradients(const std::vector<Output>& ys, const std::vector<Output>& xs,
                                   const std::vector<Output>& grad_ys = {},
                                   Timeout timeout = {}) const {
    std::vector<Output> outputs;
    for (const Gradient& gradient : differentiate(ys, xs, grad_ys, false, timeout))
      outputs.push_back(gradient.values);
    return outputs;
  }
  /// As `AddGradients`, with the gradients of gathers as rows and indices.
  std::vector<Gradient> AddSparseGradients(const std::vector<Output>& ys,
                                           const std::vector<Output>& xs,
                                           const std::vector<Output>& grad_ys = {},
                                           Timeout timeout = {}) const {
    return differentiate(ys, xs, grad_ys, true, timeout);
  }

  /// The names of the functions of the graph.
  std::vector<std::string> Functions(Timeout timeout = {}) const {
    detail::Status status;
    return take(status.check(weft_session_functions(session_.get(), timeout.milliseconds(), status)));
  }
  /// Functions, and those that they call, as a serialized GraphDef.
  std::string FunctionDefs(const std::vector<std::string>& functions, Timeout timeout = {}) const {
    std::vector<const char*> names;
    for (const std::string& name : functions) names.push_back(name.c_str());
    detail::Status status;
    Tensor bytes = Tensor::Adopt(status.check(weft_session_function_defs(
        session_.get(), names.data(), names.size(), timeout.milliseconds(), status)));
    return std::string(static_cast<const char*>(bytes.raw()), bytes.size_bytes());
  }

  weft_session* get() const { return session_.get(); }

 private:
  struct Close {
    void operator()(weft_session* session) const { weft_session_close(session); }
  };

  static std::vector<std::string> take(weft_names* names) {
    std::vector<std::string> result;
    for (std::size_t i = 0; i < weft_names_count(names); i++)
      result.emplace_back(weft_names_get(names, i));
    weft_names_free(names);
    return result;
  }

  std::vector<Gradient> differentiate(const std::vector<Output>& ys, const std::vector<Output>& xs,
                                      const std::vector<Output>& grad_ys, bool sparse,
                                      Timeout timeout) const {
    if (!grad_ys.empty() && grad_ys.size() != ys.size())
      throw Error(WEFT_INVALID_ARGUMENT, "there must be one of grad_ys for each y");
    std::vector<const char*> y_names, x_names, grad_names;
    for (const Output& y : ys) y_names.push_back(state_->NameOf(y).c_str());
    for (const Output& x : xs) x_names.push_back(state_->NameOf(x).c_str());
    for (const Output& grad : grad_ys) grad_names.push_back(state_->NameOf(grad).c_str());
    weft_names* indices = nullptr;
    detail::Status status;
    weft_names* values = status.check(weft_session_gradients(
        session_.get(), y_names.data(), ys.size(), x_names.data(), xs.size(),
        grad_ys.empty() ? nullptr : grad_names.data(), sparse ? &indices : nullptr,
        timeout.milliseconds(), status));
    std::vector<std::string> names = take(values), rows = take(indices);
    std::vector<Gradient> gradients;
    for (std::size_t i = 0; i < names.size(); i++)
      gradients.push_back({Output(names[i], state_->id),
                           rows.empty() ? Output() : Output(rows[i], state_->id)});
    return gradients;
  }

  Client client_;
  std::shared_ptr<detail::GraphState> state_;
  std::unique_ptr<weft_session, Close> session_;
};

}  // namespace weft

#endif
