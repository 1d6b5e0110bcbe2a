// Programs in C++ that the tests run: train, conformance, optimize, functions.
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>

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

// ---------------------------------------------------------------------------- optimizers

/// A product and a gather with an index that repeats; the loss has gradients of both kinds.
struct Model {
  Scope root = Scope::NewRoot();
  Variable weights{root.WithOpName("w"), {2, 3}, WEFT_FLOAT32, fill({2, 3})};
  Variable table{root.WithOpName("table"), {4, 3}, WEFT_FLOAT32, fill({4, 3})};
  Output loss = build();

  /// 1, 2, 3, ... over 10.
  static Tensor fill(const Shape& shape) {
    Tensor tensor(WEFT_FLOAT32, shape);
    for (std::int64_t i = 0; i < tensor.num_elements(); i++)
      tensor.data<float>()[i] = static_cast<float>(i + 1) / 10;
    return tensor;
  }
  Output build() const {
    auto rows = ops::GatherV2(root, table.ref(), {1, 3, 1}, 0);
    auto product = ops::MatMul(root, rows, weights.ref(), ops::MatMul::TransposeB(true));
    return ops::Sum(root, ops::Square(root, ops::Sub(root, product, 1.0f)), {0, 1});
  }
};

std::unique_ptr<Optimizer> optimizer_named(const std::string& name) {
  if (name == "GradientDescent") return std::make_unique<GradientDescent>(0.01);
  if (name == "Momentum") return std::make_unique<Momentum>(0.01, 0.9);
  if (name == "Nesterov") return std::make_unique<Momentum>(0.01, 0.9, true);
  if (name == "Adagrad") return std::make_unique<Adagrad>(0.01);
  if (name == "RMSProp") return std::make_unique<RMSProp>(0.01, 0.9, 0.5);
  if (name == "Adam") return std::make_unique<Adam>(0.01);
  throw std::runtime_error("no optimizer is named " + name);
}

/// Trains with an optimizer, saves, and continues in another session from what was saved.
int optimize(const std::string& target, const std::string& name, const std::string& folder) {
  const Model model;
  const std::vector<Variable> variables = {model.weights, model.table};
  const std::vector<Output> outputs = {model.weights, model.table};
  const Client client = Client::Connect(target);
  const Session session(client, model.root);
  const auto optimizer = optimizer_named(name);
  const Saver saver(model.root, variables, {optimizer.get()});  // before the slots are added
  const Operation step = optimizer->Minimize(session, model.root, model.loss, variables);
  const Operation initialize = InitializeVariables(model.root);
  session.Run(initialize);
  for (int i = 0; i < 3; i++) session.Run(step);
  saver.Save(session, folder + "/" + name);
  session.Run(step);
  const auto expected = session.Run(outputs);
  client.Reset();
  const Session second(client, model.root);  // it repeats the gradients
  saver.Restore(second, folder + "/" + name);
  second.Run(step);
  Writer out(folder + "/" + name + ".values");
  const auto values = second.Run(outputs);
  for (std::size_t i = 0; i < values.size(); i++) {
    out.tensor(values[i]);
    if (values[i].values<float>() != expected[i].values<float>())
      throw std::runtime_error("other values after restoring");
  }
  return 0;
}

// ----------------------------------------------------------------------------- functions

/// Loads a function that Python saved, calls it twice, trains through it, and saves one of its own.
int functions(const std::string& target, const std::string& theirs, const std::string& own) {
  const Scope root = Scope::NewRoot();
  ImportFile(root, theirs);
  Variable rate(root.WithOpName("rate"), {}, WEFT_FLOAT32, 3.0f);
  auto once = CallFunction(root, {"decay"}, {2.0f, rate.ref()})[0];
  auto twice = CallFunction(root, {"decay"}, {once, rate.ref()})[0];
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
    if (words.at(0) == "optimize") return optimize(words.at(1), words.at(2), words.at(3));
    if (words.at(0) == "functions") return functions(words.at(1), words.at(2), words.at(3));
    std::cerr << "unknown program\n";
  } catch (const Error& error) {
    std::cerr << error.code_name() << " [" << error.node() << "] " << error.what() << "\n";
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
  }
  return 1;
}
