// Programs in C++ that the tests run: train, conformance, connect, lose, graphs, functions.
#include <chrono>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>

#include "weft/functions.hpp"
#include "weft/ops.hpp"
#include "weft/train.hpp"

using namespace weft;

namespace {

/// Reads the little-endian files that the tests write.
class Reader {
 public:
  explicit Reader(const std::string& path) : file_(path, std::ios::binary) {
    file_.exceptions(std::ios::failbit | std::ios::badbit);
  }
  template <typename T>
  T number() {
    T value;
    file_.read(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }
  std::string text() {
    std::string result(number<std::uint32_t>(), 0);
    file_.read(result.data(), static_cast<std::streamsize>(result.size()));
    return result;
  }
  Tensor tensor() {
    const auto dtype = static_cast<DataType>(number<std::uint32_t>());
    Shape shape(number<std::uint32_t>());
    for (auto& size : shape) size = number<std::int64_t>();
    if (dtype != WEFT_STRING) {
      Tensor result(dtype, shape);
      file_.read(static_cast<char*>(result.raw()), static_cast<std::streamsize>(result.size_bytes()));
      return result;
    }
    std::vector<std::string> texts(number<std::uint32_t>());
    for (auto& each : texts) each = text();
    return Tensor(texts, shape);
  }

 private:
  std::ifstream file_;
};

class Writer {
 public:
  explicit Writer(const std::string& path) : file_(path, std::ios::binary) {}
  template <typename T>
  void number(T value) {
    file_.write(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(const std::string& value) {
    number(static_cast<std::uint32_t>(value.size()));
    file_.write(value.data(), static_cast<std::streamsize>(value.size()));
  }
  void tensor(const Tensor& value) {
    number(static_cast<std::uint32_t>(value.dtype()));
    number(static_cast<std::uint32_t>(value.shape().size()));
    for (auto size : value.shape()) number(size);
    if (value.dtype() != WEFT_STRING) {
      file_.write(static_cast<const char*>(value.raw()),
                  static_cast<std::streamsize>(value.size_bytes()));
      return;
    }
    number(static_cast<std::uint32_t>(value.num_elements()));
    for (std::int64_t i = 0; i < value.num_elements(); i++) text(value.string(i));
  }

 private:
  std::ofstream file_;
};

// ------------------------------------------------------------------------------ training

struct Network {
  Output images, labels, keep, loss, accuracy;
  std::vector<Variable> variables;
};

Output initial(const Scope& scope, const Shape& shape, double deviation, int seed) {
  auto numbers = ops::TruncatedNormal(scope, Input(shape), WEFT_FLOAT32,
                                      ops::TruncatedNormal::Seed(seed).Seed2(7));
  return ops::Mul(scope, numbers, static_cast<float>(deviation));
}

Output dropout(const Scope& scope, const Output& values, const Output& keep) {
  auto numbers = ops::RandomUniform(scope, ops::Shape(scope, values), WEFT_FLOAT32,
                                    ops::RandomUniform::Seed(5).Seed2(7));
  auto mask = ops::Floor(scope, ops::Add(scope, numbers, keep));
  return ops::Mul(scope, ops::Div(scope, values, keep), mask);
}

/// Two convolutions, a hidden layer and logits; variables on one task, arithmetic on another.
Network digits(const Scope& root, const std::string& state, const std::string& work) {
  const Scope on = root.WithDevice(work), held = root.WithDevice(state);
  Network net;
  net.images = ops::Placeholder(on.WithOpName("images"), WEFT_FLOAT32,
                                ops::Placeholder::Shape({-1, 8, 8, 1}));
  net.labels = ops::Placeholder(on.WithOpName("labels"), WEFT_INT32,
                                ops::Placeholder::Shape(PartialShape({-1})));
  net.keep = ops::PlaceholderWithDefault(on.WithOpName("keep"), 1.0f, {});
  auto variable = [&](const char* name, const Shape& shape, double deviation, int seed) {
    net.variables.emplace_back(held.WithOpName(name), shape, WEFT_FLOAT32,
                               initial(held, shape, deviation, seed));
    return net.variables.back().ref();
  };
  auto convolve = [&](const Output& values, const Output& filters) -> Output {
    return ops::Relu(on, ops::Conv2D(on, values, filters, {1, 1, 1, 1}, "SAME"));
  };
  auto first = convolve(net.images, variable("filters", {3, 3, 1, 32}, 0.3, 1));
  auto second = convolve(first, variable("more_filters", {3, 3, 32, 64}, 0.08, 2));
  auto pooled = ops::MaxPool(on, second, {1, 2, 2, 1}, {1, 2, 2, 1}, "VALID");
  auto flat = dropout(on, ops::Reshape(on, pooled, {-1, 1024}), net.keep);
  auto product = ops::MatMul(on, flat, variable("hidden_weights", {1024, 96}, 0.04, 3));
  auto hidden = ops::Relu(on, ops::BiasAdd(on, product, variable("hidden_bias", {96}, 0, 4)));
  auto logits = ops::MatMul(on, dropout(on, hidden, net.keep), variable("weights", {96, 10}, 0.1, 5));
  ops::SparseSoftmaxCrossEntropyWithLogits losses(on, logits, net.labels);
  auto guess = ops::ArgMax(on, logits, 1, ops::ArgMax::OutputType(WEFT_INT32));
  auto right = ops::Cast(on, ops::Equal(on, guess, net.labels), WEFT_FLOAT32);
  net.loss = ops::Mean(on.WithOpName("loss"), losses.loss, {0});
  net.accuracy = ops::Mean(on.WithOpName("accuracy"), right, {0});
  return net;
}

int train(const std::string& target, const std::string& data, const std::string& folder) {
  Reader reader(data);
  const Tensor images = reader.tensor(), labels = reader.tensor();
  const Tensor held_images = reader.tensor(), held_labels = reader.tensor();
  const Scope root = Scope::NewRoot();
  const Network net = digits(root, "/job:ps", "/job:worker");
  const Session session(Client::Connect(target), root);
  Adam adam(0.003);
  const Operation step = adam.Minimize(session, root, net.loss, net.variables);
  const Saver saver(root, net.variables);
  session.Run(InitializeVariables(root));
  Writer(folder + "/filters").tensor(session.Run(net.variables[0]));
  const Feeds held = {{net.images, held_images}, {net.labels, held_labels}};
  constexpr std::int64_t batch = 128, pixels = 64, epochs = 16;
  for (std::int64_t i = 0; i < epochs * labels.num_elements() / batch; i++) {
    const std::int64_t first = i * batch % (labels.num_elements() - batch);
    session.Run(step, {{net.images, Tensor::Borrow(images.data<float>() + first * pixels,
                                                   {batch, 8, 8, 1})},
                       {net.labels, Tensor::Borrow(labels.data<std::int32_t>() + first, {batch})},
                       {net.keep, Tensor(0.6f)}});
  }
  const float trained = session.Run(net.accuracy, held).scalar<float>();
  saver.Save(session, folder + "/model");
  session.Run(InitializeVariables(root));
  const float forgotten = session.Run(net.accuracy, held).scalar<float>();
  saver.Restore(session, folder + "/model");
  const float restored = session.Run(net.accuracy, held).scalar<float>();
  std::cout << trained << " " << forgotten << " " << restored << "\n";
  return 0;
}

// --------------------------------------------------------------------------- conformance

detail::AttrValue read_attr(Reader& in, const std::string& kind) {
  auto list = [&](auto read) {
    std::vector<decltype(read())> values(in.number<std::uint32_t>());
    for (std::size_t i = 0; i < values.size(); i++) values[i] = read();
    return values;
  };
  auto number = [&] { return in.number<std::int64_t>(); };
  auto real = [&] { return in.number<double>(); };
  auto flag = [&] { return in.number<std::int64_t>() != 0; };
  auto type = [&] { return static_cast<DataType>(in.number<std::int64_t>()); };
  auto text = [&] { return in.text(); };
  auto shape = [&] {
    const auto rank = in.number<std::int64_t>();
    Shape dims(static_cast<std::size_t>(rank < 0 ? 0 : rank));
    for (auto& size : dims) size = in.number<std::int64_t>();
    return rank < 0 ? PartialShape() : PartialShape(dims);
  };
  if (kind == "int") return number();
  if (kind == "float") return real();
  if (kind == "bool") return flag();
  if (kind == "type") return type();
  if (kind == "string") return text();
  if (kind == "shape") return shape();
  if (kind == "tensor") return in.tensor();
  if (kind == "list(int)") return list(number);
  if (kind == "list(float)") return list(real);
  if (kind == "list(bool)") return list(flag);
  if (kind == "list(type)") return list(type);
  if (kind == "list(string)") return list(text);
  if (kind == "list(shape)") return list(shape);
  throw std::runtime_error("an attribute of kind " + kind);
}

int conformance(const std::string& target, const std::string& rows, const std::string& results) {
  Reader in(rows);
  const Scope root = Scope::NewRoot();
  std::vector<Output> fetches;
  const auto count = in.number<std::uint32_t>();
  for (std::uint32_t row = 0; row < count; row++) {
    const std::string op = in.text();
    NodeBuilder builder(root, op.c_str());
    const auto num_inputs = in.number<std::uint32_t>();
    for (std::uint32_t i = 0; i < num_inputs; i++) {
      const bool is_list = in.number<std::uint32_t>() != 0;
      InputList inputs(in.number<std::uint32_t>(), Input(Output()));
      for (auto& input : inputs) input = Input(in.tensor());
      if (is_list)
        builder.Add(inputs);
      else
        builder.Add(inputs[0]);
    }
    const auto num_attrs = in.number<std::uint32_t>();
    for (std::uint32_t i = 0; i < num_attrs; i++) {
      const std::string name = in.text(), kind = in.text();
      builder.Attr(name.c_str(), read_attr(in, kind));
    }
    const Operation node = builder.Finish();
    const auto num_outputs = in.number<std::uint32_t>();
    for (std::uint32_t i = 0; i < num_outputs; i++) fetches.emplace_back(node, static_cast<int>(i));
  }
  const Session session(Client::Connect(target), root);
  Writer out(results);
  for (const Tensor& value : session.Run(fetches)) out.tensor(value);
  std::cout << count << "\n";
  return 0;
}

// -------------------------------------------------------------------------------- errors

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

/// Runs a step for each line of input, and prints its value or error.
int run_by_line(const std::string& target, int milliseconds) {
  const Scope root = Scope::NewRoot();
  const auto sum = ops::Add(root.WithOpName("sum"), 1.0f, 2.0f);
  const Session session(Client::Connect(target), root);
  for (std::string line; std::getline(std::cin, line);) {
    const auto start = std::chrono::steady_clock::now();
    try {
      if (line == "unknown op") NodeBuilder(root.WithOpName("bad"), "Nonsense").Finish();
      if (line == "wrong type") ops::MatMul(root.WithOpName("product"), {1.0f}, {1});
      if (line == "oversized") {
        Tensor(WEFT_FLOAT32, {1ll << 40, 1ll << 30});
      }
      const std::chrono::milliseconds limit(line == "patient" ? 60000 : milliseconds);
      const auto fetched = session.Run({}, std::vector<Output>{sum}, {}, limit);
      std::cout << fetched[0].scalar<float>() << std::endl;
    } catch (const Error& error) {
      print(error, start);
    }
  }
  return 0;
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
  const std::vector<std::function<void()>> uses = {
      [&] { ops::Neg(root, foreign); },
      [&] { ops::NoOp(root.WithControlDependencies({foreign.operation()})); },
      [&] { root.ColocateWith(foreign.operation()); },
      [&] { session.Run(foreign); },
      [&] { session.Run({{foreign, Tensor(2.0f)}}, {mine}); },
      [&] { session.AddGradients({mine}, {foreign}); },
      [&] { DefineFunction(root, "Captures", {{"y", WEFT_FLOAT32, {}}}, capture); },
  };
  for (const auto& use : uses) {
    try {
      use();
      std::cout << "accepted\n";
    } catch (const Error& error) {
      std::cout << error.code_name() << ": " << error.what() << "\n";
    }
  }
  session = Session(Client::Connect(target), other);
  std::cout << session.Run(foreign).scalar<float>() << "\n";
  return 0;
}

// ----------------------------------------------------------------------------- functions

/// Loads a function that Python saved, calls it twice, trains through it, and saves one of its own.
int functions(const std::string& target, const std::string& theirs, const std::string& own) {
  const Scope root = Scope::NewRoot();
  ImportFile(root, theirs);
  Variable rate(root.WithOpName("rate"), {}, WEFT_FLOAT32, 3.0f);
  auto once = CallFunction(root, {"Decay"}, {2.0f, rate.ref()})[0];
  auto twice = CallFunction(root, {"Decay"}, {once, rate.ref()})[0];
  const Session session(Client::Connect(target), root);
  GradientDescent optimizer(0.1);
  auto loss = ops::Square(root, twice);
  const Operation step = optimizer.Minimize(session, root, loss, {rate});
  session.Run(InitializeVariables(root));
  std::cout << session.Run(twice).scalar<float>() << " ";
  for (int i = 0; i < 50; i++) session.Run(step);
  std::cout << (session.Run(loss).scalar<float>() < 1e-3) << " ";
  const auto body = [](const Scope& scope, const std::vector<Output>& arguments) {
    auto length = ops::Sqrt(scope, ops::Sum(scope, ops::Square(scope, arguments[0]), {0}));
    return std::vector<Output>{length, ops::Div(scope, arguments[0], length)};
  };
  DefineFunction(root, "Normalize", {{"v", WEFT_FLOAT64, {-1}}}, body, {"length", "unit"});
  SaveFunctions(session, {"Normalize"}, own);
  const auto condition = [](const Scope& scope, const std::vector<Output>& arguments) {
    return std::vector<Output>{ops::Less(scope, arguments[0], 100)};
  };
  const auto doubled = [](const Scope& scope, const std::vector<Output>& arguments) {
    return std::vector<Output>{ops::Mul(scope, arguments[0], 2)};
  };
  const auto below = DefineFunction(root, "Below", {{"i", WEFT_INT32, {}}}, condition);
  const auto twofold = DefineFunction(root, "Twofold", {{"i", WEFT_INT32, {}}}, doubled);
  const auto last = While(root, {3}, below, twofold)[0];
  const auto chosen = If(root, ops::Greater(root, last, 50), {last}, twofold, twofold)[0];
  std::cout << session.Run(chosen).scalar<std::int32_t>() << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.at(0) == "train") return train(words.at(1), words.at(2), words.at(3));
    if (words.at(0) == "conformance") return conformance(words.at(1), words.at(2), words.at(3));
    if (words.at(0) == "connect") return try_to_connect(words.at(1), std::stoi(words.at(2)));
    if (words.at(0) == "lines") return run_by_line(words.at(1), std::stoi(words.at(2)));
    if (words.at(0) == "graphs") return mix_graphs(words.at(1));
    if (words.at(0) == "functions") return functions(words.at(1), words.at(2), words.at(3));
    std::cerr << "unknown program\n";
  } catch (const Error& error) {
    std::cerr << error.code_name() << " [" << error.node() << "] " << error.what() << "\n";
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
  }
  return 1;
}
