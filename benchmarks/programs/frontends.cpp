// Measures steps on a server from C++: frontends TARGET SECONDS prints seconds by row, as JSON.
#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>

#include "weft/ops.hpp"
#include "weft/session.hpp"

using namespace weft;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The median time of a call, of as many as there is time for.
double median(double budget, const std::function<void()>& call) {
  std::vector<double> times;
  call();
  for (const double end = now() + budget; now() < end;) {
    const double start = now();
    call();
    times.push_back(now() - start);
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 1;
  const double budget = std::stod(argv[2]);
  const Client client = Client::Connect(argv[1]);
  const Scope root = Scope::NewRoot();
  const Output x = ops::Placeholder(root, WEFT_FLOAT32), y = ops::Neg(root, x);
  const Session session(client, root);
  const Tensor one(1.0f), large(WEFT_FLOAT32, {4 << 20});
  const double step = median(budget, [&] { session.Run(y, {{x, one}}); });
  const double bulk = median(budget, [&] { session.Run(y, {{x, large}}); });
  double start = now();
  const Scope chain = Scope::NewRoot();
  Output last = ops::Const(chain, 1.0f);
  for (int i = 0; i < 6000; i++) last = ops::Neg(chain, last);
  const double built = now() - start;
  start = now();
  const Session other(client, chain);
  other.Extend();
  std::cout << "{\"step\": " << step << ", \"16 MB\": " << bulk << ", \"build\": " << built
            << ", \"send\": " << now() - start << "}\n";
  return 0;
}
