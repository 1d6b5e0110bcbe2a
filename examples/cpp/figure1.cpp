// Figure 1 of the white paper: builds relu(x W + b), and runs it on a server.
//
//   figure1 HOST PORT
//
// With the files that WEFT_CERTIFICATE, WEFT_KEY, WEFT_AUTHORITY and WEFT_TOKEN name it speaks TLS.

#include <cmath>
#include <csignal>
#include <cstdio>

#include "graph.h"
#include "session.h"

namespace {

constexpr int64_t kInputs = 784, kOutputs = 100;

using weft::Edge;
using weft::GraphWriter;
using weft::kFloat;
using weft::kInt32;
using weft::kReference;

Edge Variable(GraphWriter& graph, const std::string& name, const std::vector<int64_t>& shape,
              Edge initial) {
  const uint8_t type = kFloat + kReference;
  const Edge made = graph.Add("VariableV2", name, {},
                              {{"dtype", graph.OfType(kFloat)},
                               {"shape", graph.OfShape(shape)},
                               {"container", graph.OfText("")},
                               {"shared_name", graph.OfText("")}},
                              type, shape);
  graph.Add("Assign", name + "/Assign", {made, initial},
            {{"T", graph.OfType(kFloat)},
             {"use_locking", graph.OfBool(true)},
             {"validate_shape", graph.OfBool(true)}},
            type, shape);
  return made;
}

Edge Constant(GraphWriter& graph, const std::string& name, weft::Type type,
              const std::vector<int64_t>& shape, const void* data, size_t size) {
  return graph.Add(
      "Const", name, {},
      {{"dtype", graph.OfType(type)}, {"value", graph.OfTensor(type, shape, data, size)}}, type,
      shape);
}

// b = Variable(zeros([100])), W = Variable(random_uniform([784, 100], -1, 1)), relu(x W + b)
std::vector<uint8_t> Figure1() {
  GraphWriter graph;
  const auto real = graph.OfType(kFloat);
  const std::vector<float> zeros(kOutputs);
  const Edge b = Variable(graph, "b", {kOutputs},
                          Constant(graph, "b/zeros", kFloat, {kOutputs}, zeros.data(), 4 * kOutputs));
  const int32_t sizes[] = {kInputs, kOutputs};
  const Edge shape = Constant(graph, "W/shape", kInt32, {2}, sizes, sizeof sizes);
  const std::vector<int64_t> matrix = {kInputs, kOutputs};
  const Edge uniform = graph.Add("RandomUniform", "W/uniform", {shape},
                                 {{"dtype", real},
                                  {"T", graph.OfType(kInt32)},
                                  {"seed", graph.OfInt(1)},
                                  {"seed2", graph.OfInt(2)}},
                                 kFloat, matrix);
  const float two = 2, one = 1;
  const Edge width = Constant(graph, "W/two", kFloat, {}, &two, 4);
  const Edge low = Constant(graph, "W/one", kFloat, {}, &one, 4);
  const Edge wide = graph.Add("Mul", "W/mul", {uniform, width}, {{"T", real}}, kFloat, matrix);
  const Edge initial = graph.Add("Sub", "W/sub", {wide, low}, {{"T", real}}, kFloat, matrix);
  const Edge W = Variable(graph, "W", matrix, initial);
  const Edge x = graph.Add("Placeholder", "x", {},
                           {{"dtype", real}, {"shape", graph.OfShape({1, kInputs})}}, kFloat,
                           {1, kInputs});
  const Edge product = graph.Add("MatMul", "MatMul", {x, W},
                                 {{"T", real},
                                  {"transpose_a", graph.OfBool(false)},
                                  {"transpose_b", graph.OfBool(false)}},
                                 kFloat, {1, kOutputs});
  const Edge sum = graph.Add("Add", "Add", {product, b}, {{"T", real}}, kFloat, {1, kOutputs});
  graph.Add("Relu", "Relu", {sum}, {{"T", real}}, kFloat, {1, kOutputs});
  return graph.Segment();
}

std::vector<float> Floats(const weft::Value& value) {
  std::vector<float> found(value.bytes.size() / 4);
  std::memcpy(found.data(), value.bytes.data(), 4 * found.size());
  return found;
}

// Whether what the server computed is what the formula says.
bool IsRight(const std::vector<float>& x, const std::vector<weft::Value>& fetched) {
  const auto result = Floats(fetched[0]), W = Floats(fetched[1]), b = Floats(fetched[2]);
  if (result.size() != kOutputs || W.size() != kInputs * kOutputs || b.size() != kOutputs)
    return false;
  double spread = 0;
  for (int64_t j = 0; j < kOutputs; ++j) {
    double sum = b[j];
    for (int64_t i = 0; i < kInputs; ++i) sum += double(x[i]) * W[i * kOutputs + j];
    if (std::abs(std::max(sum, 0.0) - result[j]) > 1e-3) return false;
    spread += result[j];
  }
  return spread > 0;
}

int Run(const std::string& host, const std::string& port) {
  weft::Session session(host, port);
  session.Extend(Figure1());
  session.Run(session.Plan({}, {}, {"b/Assign", "W/Assign"}), {});
  const uint64_t step = session.Plan({"x:0"}, {"Relu:0", "W:0", "b:0"}, {});
  for (int number = 0; number < 10; ++number) {
    std::vector<float> x(kInputs);
    for (int64_t i = 0; i < kInputs; ++i) x[i] = std::sin(0.1f * (i + number));
    weft::Value fed{kFloat, {1, kInputs}, std::vector<uint8_t>(4 * kInputs)};
    std::memcpy(fed.bytes.data(), x.data(), fed.bytes.size());
    if (!IsRight(x, session.Run(step, {fed}))) {
      std::printf("step %d is wrong\n", number);
      return 1;
    }
  }
  std::printf("10 steps on %s are right\n", session.task().c_str());
  try {
    session.Plan({}, {"nothing:0"}, {});
  } catch (const std::exception& error) {
    std::printf("an unknown name is refused: %s\n", error.what());
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::fprintf(stderr, "figure1 HOST PORT\n");
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);  // an ended connection is an error of whoever writes
  try {
    return Run(arguments[1], arguments[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
