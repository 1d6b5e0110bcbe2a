// The white paper's Figure 1 in C++: a layer with a cost, its gradients, and ten steps.
//
//   figure1                          starts a server for itself
//   figure1 weft://localhost:40123   uses one that runs

#include <iostream>

#include "weft/ops.hpp"
#include "weft/train.hpp"

using namespace weft;

int main(int argc, char** argv) try {
  const Client client = argc > 1 ? Client::Connect(argv[1]) : Client::LaunchLocal();
  const Scope root = Scope::NewRoot();

  // b = tf.Variable(tf.zeros([100])); W = tf.Variable(tf.random_uniform([784, 100], -1, 1))
  const Variable b(root.WithOpName("b"), {100}, WEFT_FLOAT32, 0.0f);
  auto uniform = ops::RandomUniform(root, Input(Shape{784, 100}), WEFT_FLOAT32,
                                    ops::RandomUniform::Seed(1));
  auto symmetric = ops::Sub(root, ops::Mul(root, uniform, 2.0f), 1.0f);
  const Variable weights(root.WithOpName("W"), {784, 100}, WEFT_FLOAT32, symmetric);

  // x = tf.placeholder(name="x"); relu = tf.nn.relu(tf.matmul(x, W) + b); C = ...
  auto x = ops::RandomUniform(root.WithOpName("x"), Input(Shape{32, 784}), WEFT_FLOAT32,
                              ops::RandomUniform::Seed(2));
  auto relu = ops::Relu(root.WithOpName("relu"),
                        ops::AddV2(root, ops::MatMul(root, x, weights), b));
  auto cost = ops::Mean(root.WithOpName("C"), ops::Square(root, relu), {0, 1});

  const Session session(client, root);
  GradientDescent optimizer(0.5);
  const Operation step = optimizer.Minimize(session, root, cost, {weights, b});
  session.Run(InitializeVariables(root));
  const float before = session.Run(cost).scalar<float>();
  for (int i = 0; i < 10; i++) session.Run(step);
  const float after = session.Run(cost).scalar<float>();
  std::cout << "10 steps on " << session.devices()[0] << ": the cost fell from " << before << " to "
            << after << "\n";
  return after < before ? 0 : 1;
} catch (const Error& error) {
  std::cerr << error.code_name() << " [" << error.node() << "] " << error.what() << "\n";
  return 2;
}
