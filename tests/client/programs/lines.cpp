// Programs in C++ that the tests run: connect, lines, graphs, misuse, launch.
#include <chrono>
#include <functional>
#include <iomanip>
#include <iostream>

#include "weft/functions.hpp"
#include "weft/ops/arithmetic.hpp"
#include "weft/ops/array.hpp"
#include "weft/ops/control.hpp"
#include "weft/ops/matmul.hpp"
#include "weft/ops/shapes.hpp"
#include "weft/session.hpp"
#include "weft/train.hpp"

using namespace weft;

namespace {

void print(const Error& error, std::chrono::steady_clock::time_point start) {
  const auto passed = std::chrono::steady_clock::now() - start;
  std::cout << error.code_name() << "|" << error.node() << "|"
            << std::chrono::duration_cast<std::chrono::milliseconds>(passed).count() << "|"
            << error.what() << std::endl;
}

/// Connects, and prints the error or a device.
int try_to_connect(const std::string& target, int milliseconds) {
  const auto start = std::chrono::steady_clock::now();
  try {
    ClientOptions options;
    options.timeout = std::chrono::milliseconds(milliseconds);
    const Session session(Client::Connect(target, options), Scope::NewRoot());
    std::cout << session.devices()[0] << std::endl;
  } catch (const Error& error) {
    print(error, start);
  }
  return 0;
}

/// A graph with a sum, which grows, and the size of what is fed.
class Program {
 public:
  explicit Program(const std::string& target)
      : client_(Client::Connect(target)), session_(client_, root_) {}

  /// Runs a step as a line says; returns its first value.
  double run(const std::string& line, Timeout limit) {
    const auto begins = [&](const char* word) { return line.rfind(word, 0) == 0; };
    if (begins("second")) return run(Session(client_, root_, "", limit), false, limit);
    if (begins("large")) return run(session_, true, limit);
    if (begins("gradients")) gradient_ = session_.AddGradients({sum_}, {first_}, {}, limit)[0];
    if (begins("grow")) sum_ = ops::AddV2(root_.WithOpName("grown"), sum_, 1.0f);
    if (begins("unknown op")) NodeBuilder(root_.WithOpName("bad"), "Nonsense").Add(sum_).Finish();
    if (begins("unknown input")) ops::Neg(root_.WithOpName("bad"), Output("nowhere"));
    if (begins("wrong type")) ops::MatMul(root_.WithOpName("product"), {1.0f}, {1});
    if (begins("oversized")) Tensor(WEFT_FLOAT32, {1ll << 40, 1ll << 30});
    return run(session_, false, limit);
  }

 private:
  double run(const Session& session, bool is_large, Timeout limit) const {
    if (is_large)
      return session.Run({{fed_, large_}}, {size_}, {}, limit)[0].scalar<std::int32_t>();
    std::vector<Output> fetches = {sum_};
    if (gradient_) fetches.push_back(gradient_);
    return session.Run({}, fetches, {}, limit)[0].scalar<float>();
  }

  Scope root_ = Scope::NewRoot();
  Client client_;
  Session session_;
  Output first_ = ops::AddV2(root_.WithOpName("sum"), 1.0f, 2.0f), sum_ = first_, gradient_;
  Output fed_ = ops::Placeholder(root_.WithOpName("fed"), WEFT_FLOAT32);
  Output size_ = ops::Size(root_.WithOpName("size"), fed_);
  Tensor large_{std::vector<float>(8 << 20)};
};

/// Runs a step for each line of input, and prints its value or error.
int run_by_line(const std::string& target, int milliseconds) {
  Program program(target);
  for (std::string line; std::getline(std::cin, line);) {
    const auto start = std::chrono::steady_clock::now();
    const bool is_patient = line.find("patient") != std::string::npos;
    try {
      const std::chrono::milliseconds limit(is_patient ? 60000 : milliseconds);
      std::cout << std::setprecision(10) << program.run(line, limit) << std::endl;
    } catch (const Error& error) {
      print(error, start);
    }
  }
  return 0;
}

/// Prints the error of each call; these are misuses.
void refuse(const std::vector<std::function<void()>>& uses) {
  for (const auto& use : uses) {
    try {
      use();
      std::cout << "accepted\n";
    } catch (const Error& error) {
      std::cout << error.code_name() << ": " << error.what() << "\n";
    }
  }
}

/// Uses items of another graph, which are refused, and assigns a session to another one.
int mix_graphs(const std::string& target) {
  const Scope root = Scope::NewRoot(), other = Scope::NewRoot();
  const auto mine = ops::Const(root.WithOpName("x"), 1.0f);
  const auto foreign = ops::Const(other.WithOpName("x"), 50.0f);
  Session session(Client::Connect(target), root);
  const auto capture = [&](const Scope& scope, const std::vector<Output>& arguments) {
    return std::vector<Output>{ops::Mul(scope, arguments[0], foreign)};
  };
  refuse({
      [&] { ops::Neg(root, foreign); },
      [&] { ops::NoOp(root.WithControlDependencies({foreign.operation()})); },
      [&] { root.ColocateWith(foreign.operation()); },
      [&] { session.Run(foreign); },
      [&] { session.Run({{foreign, Tensor(2.0f)}}, {mine}); },
      [&] { session.AddGradients({mine}, {foreign}); },
      [&] { DefineFunction(root, "Captures", {{"y", WEFT_FLOAT32, {}}}, capture); },
  });
  session = Session(Client::Connect(target), other);
  std::cout << session.Run(foreign).scalar<float>() << "\n";
  return 0;
}

/// Misuses the interface, which is refused and changes nothing.
int misuse(const std::string& target, const std::string& theirs) {
  const Scope root = Scope::NewRoot();
  const Output x = ops::Placeholder(root.WithOpName("x"), WEFT_FLOAT32);
  const Output y = ops::Neg(root.WithOpName("y"), x);
  const Session session(Client::Connect(target), root);
  const Tensor one(1.0f);
  const Variable unused(root.WithOpName("unused"), {2}, WEFT_FLOAT32, 0.0f);
  GradientDescent optimizer(0.1);
  NodeBuilder builder(root.WithOpName("finished"), "NoOp");
  builder.Finish();
  const auto same = [](const Scope&, const std::vector<Output>& arguments) { return arguments; };
  for (const char* name : {"Same", "same"})  // names of functions have case
    DefineFunction(root, name, {{"a", WEFT_FLOAT32, {}}}, same);
  refuse({
      [] { Tensor().dtype(); },
      [] { Tensor().shape(); },
      [] { Tensor().string(); },
      [] { Tensor(std::vector<std::string>{"a"}, {1ll << 40, 1ll << 40}); },
      [&] { builder.Finish(); },
      [&] { builder.Attr("a", true); },
      [&] { ops::Neg(root, Output()); },
      [&] { ops::Neg(root, Tensor()); },
      [&] { session.Run({{x, Tensor()}}, {y}); },
      [&] { session.Run({{x, one}, {Output("x"), one}}, {y}); },
      [&] { session.Run(Output("nothing")); },
      [&] { session.Run({}, {}, {Operation("nothing")}); },
      [&] { session.AddGradients({y}, {Output("nothing")}); },
      [] { Client::Connect("weft://localhost:99999"); },
      [] { Client::Connect("weft://localhost:0"); },
      [&] { DefineFunction(root, "Same", {{"a", WEFT_FLOAT32, {}}}, same); },
      [&] { ImportGraphDef(root, "nonsense"); },
      [&] { ImportFile(root, theirs); },  // it has a node "y"
      [&] { optimizer.Minimize(session, root, y, {unused}); },
      [&] { optimizer.Minimize(session, root, y, {}); },
  });
  const Output upper = ops::Neg(root.WithOpName("Y"), y);
  const Output slope = session.AddGradients({upper}, {x})[0];
  const std::string taken = slope.operation().name();
  const Output other = ops::Neg(root.WithOpName(taken), upper);
  const auto values = session.Run({{x, one}}, {upper, slope, other});
  std::cout << upper.name() << " " << (other.name() == taken + "_1:0");
  for (const Tensor& value : values) std::cout << " " << value.scalar<float>();
  const Scope clean = Scope::NewRoot();
  ImportFile(clean, theirs);
  std::cout << " " << ops::Neg(clean.WithOpName("y"), Output("y")).name() << "\n";
  return 0;
}

/// Starts a server, and waits until the program is ended.
int launch() {
  const Client client = Client::LaunchLocal();
  std::cout << "launched" << std::endl;
  std::cin.get();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.at(0) == "connect") return try_to_connect(words.at(1), std::stoi(words.at(2)));
    if (words.at(0) == "lines") return run_by_line(words.at(1), std::stoi(words.at(2)));
    if (words.at(0) == "graphs") return mix_graphs(words.at(1));
    if (words.at(0) == "misuse") return misuse(words.at(1), words.at(2));
    if (words.at(0) == "launch") return launch();
    std::cerr << "unknown program\n";
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
  }
  return 1;
}
