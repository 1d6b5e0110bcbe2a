/// Functions of a graph: defining, calling, reading and writing them; conditionals and loops.
#ifndef WEFT_FUNCTIONS_HPP
#define WEFT_FUNCTIONS_HPP

#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "session.hpp"

namespace weft {

/// An argument of a function: its name, element type and static shape.
struct Argument {
  std::string name;
  DataType dtype;
  PartialShape shape;
};

/// Builds the body of a function: from its scope and arguments to its results.
using FunctionBody =
    std::function<std::vector<Output>(const Scope& scope, const std::vector<Output>& arguments)>;

/// Define a function of the graph. Its body may call functions that were defined before.
///
///     FunctionName square = DefineFunction(root, "Square2", {{"x", WEFT_FLOAT32, {}}},
///         [](const Scope& body, const std::vector<Output>& args) {
///           return std::vector<Output>{ops::Mul(body, args[0], args[0])};
///         });
inline FunctionName DefineFunction(const Scope& scope, const std::string& name,
                                   const std::vector<Argument>& arguments,
                                   const FunctionBody& build,
                                   const std::vector<std::string>& results = {}) {
  const Scope body = Scope::NewRoot();
  std::vector<Output> placeholders;
  for (const Argument& argument : arguments) {
    NodeBuilder builder(body.WithOpName(argument.name), "Placeholder");
    builder.Attr("dtype", argument.dtype).Attr("shape", argument.shape);
    placeholders.emplace_back(builder.Finish(), 0);
  }
  const std::vector<Output> outputs = build(body, placeholders);
  if (!results.empty() && results.size() != outputs.size())
    throw Error(WEFT_INVALID_ARGUMENT, "the function " + name + " has " +
                                           std::to_string(outputs.size()) + " results and " +
                                           std::to_string(results.size()) + " names");
  std::vector<std::string> names;
  for (const Output& placeholder : placeholders) names.push_back(placeholder.operation().name());
  std::vector<const char*> inputs, fetched, titles;
  for (const std::string& input : names) inputs.push_back(input.c_str());
  for (const Output& output : outputs) fetched.push_back(body.state()->NameOf(output).c_str());
  for (const std::string& result : results) titles.push_back(result.c_str());
  detail::Status status;
  status.check(weft_graph_function(scope.graph(), name.c_str(), body.graph(), inputs.data(),
                                   inputs.size(), fetched.data(), fetched.size(),
                                   results.empty() ? nullptr : titles.data(), status));
  return {name};
}

/// Call a function with `num_results` results.
inline std::vector<Output> CallFunction(const Scope& scope, const FunctionName& function,
                                        const InputList& arguments, std::size_t num_results = 1) {
  NodeBuilder builder(scope, function.name.c_str());
  for (const Input& argument : arguments) builder.Add(argument);
  int first = 0;
  return ops::TakeOutputs(builder.Finish(), static_cast<std::int64_t>(num_results), first);
}

/// The results of `then_branch` if `condition` is true, else those of `else_branch`.
inline std::vector<Output> If(const Scope& scope, const Input& condition,
                              const InputList& arguments, const FunctionName& then_branch,
                              const FunctionName& else_branch, std::size_t num_results = 1) {
  NodeBuilder builder(scope, "If");
  builder.Add(condition).Add(arguments);
  builder.Attr("then_branch", then_branch).Attr("else_branch", else_branch);
  int first = 0;
  return ops::TakeOutputs(builder.Finish(), static_cast<std::int64_t>(num_results), first);
}

/// The values after `body` was applied for as long as `condition` returns true of them.
inline std::vector<Output> While(const Scope& scope, const InputList& values,
                                 const FunctionName& condition, const FunctionName& body) {
  NodeBuilder builder(scope, "While");
  builder.Add(values).Attr("cond", condition).Attr("body", body);
  int first = 0;
  return ops::TakeOutputs(builder.Finish(), static_cast<std::int64_t>(values.size()), first);
}

/// Add the nodes and functions of a serialized GraphDef.
inline void ImportGraphDef(const Scope& scope, const std::string& graph_def) {
  detail::Status status;
  status.check(weft_graph_import(scope.graph(), graph_def.data(), graph_def.size(), status));
}

/// Add the nodes and functions of a file with a GraphDef, such as Python writes.
inline void ImportFile(const Scope& scope, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(WEFT_NOT_FOUND, "the file " + path + " cannot be read");
  ImportGraphDef(scope, std::string(std::istreambuf_iterator<char>(file), {}));
}

/// Write functions, and those that they call, to a file that `ImportFile` and Python read.
inline void SaveFunctions(const Session& session, const std::vector<std::string>& functions,
                          const std::string& path) {
  const std::string definitions = session.FunctionDefs(functions);
  std::ofstream file(path, std::ios::binary);
  file.write(definitions.data(), static_cast<std::streamsize>(definitions.size()));
  file.close();
  if (!file) throw Error(WEFT_DATA_LOSS, "the file " + path + " cannot be written");
}

}  // namespace weft

#endif
