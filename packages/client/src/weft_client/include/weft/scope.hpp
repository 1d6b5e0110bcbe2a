/// Graphs under construction: scopes, outputs and the base of the generated ops.
#ifndef WEFT_SCOPE_HPP
#define WEFT_SCOPE_HPP

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tensor.hpp"

namespace weft {

/// A node of a graph.
class Operation {
 public:
  Operation() = default;
  /// A node by its name; without `graph_id`, of any graph.
  explicit Operation(std::string name, std::uint64_t graph_id = 0)
      : name_(std::move(name)), graph_id_(graph_id) {}
  const std::string& name() const { return name_; }
  std::uint64_t graph_id() const { return graph_id_; }

 private:
  std::string name_;
  std::uint64_t graph_id_ = 0;
};

/// A result of a node.
class Output {
 public:
  Output() = default;
  Output(const Operation& operation, int index)
      : name_(operation.name() + ":" + std::to_string(index)), graph_id_(operation.graph_id()) {}
  /// An output by its name: "node:0"; ":0" may be left out. Without `graph_id`, of any graph.
  explicit Output(const std::string& name, std::uint64_t graph_id = 0)
      : name_(name.empty() || name.find(':') != std::string::npos ? name : name + ":0"),
        graph_id_(graph_id) {}

  /// "node:0"; "" for no output, such as the gradient of an unconnected input.
  const std::string& name() const { return name_; }
  std::uint64_t graph_id() const { return graph_id_; }
  Operation operation() const {
    return Operation(name_.substr(0, name_.rfind(':')), graph_id_);
  }
  explicit operator bool() const { return !name_.empty(); }

 private:
  std::string name_;
  std::uint64_t graph_id_ = 0;
};

namespace detail {

/// The state that all scopes of one graph share.
struct GraphState {
  GraphState() : graph(weft_graph_new(), weft_graph_free), id(NextId()) {}
  static std::uint64_t NextId() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
  }

  /// Return the name of an operation or an output.
  ///
  /// Names are unique within a graph only, so a name of another graph would silently refer to a
  /// different node. Throws Error (INVALID_ARGUMENT) for such an item.
  template <typename Item>
  const std::string& NameOf(const Item& item) const {
    if (item.graph_id() != 0 && item.graph_id() != id)
      throw Error(WEFT_INVALID_ARGUMENT,
                  "'" + item.name() +
                      "' belongs to another graph or function body; pass it as an argument");
    return item.name();
  }

  std::unique_ptr<weft_graph, void (*)(weft_graph*)> graph;
  std::uint64_t id;
  std::vector<Operation> initializers;
};

}  // namespace detail

/// The properties of the nodes that are added through it: names, devices, control dependencies.
/// Copies refer to the same graph.
///
///     Scope root = Scope::NewRoot();
///     auto hidden = ops::Relu(root.WithOpName("hidden"), ops::MatMul(root, x, w));
class Scope {
 public:
  static Scope NewRoot() { return Scope(std::make_shared<detail::GraphState>()); }

  /// A scope whose nodes are below "name/"; a suffix makes it unique.
  Scope NewSubScope(const std::string& name) const {
    Scope scope = *this;
    scope.prefix_ = weft_graph_unique_name(graph(), (prefix_ + name).c_str());
    scope.prefix_ += "/";
    scope.op_name_.clear();
    return scope;
  }
  /// The name of the next node.
  Scope WithOpName(const std::string& name) const {
    Scope scope = *this;
    scope.op_name_ = name;
    return scope;
  }
  /// A device such as "/job:ps/task:0" or "/device:GPU:0"; "" for none.
  Scope WithDevice(const std::string& device) const {
    Scope scope = *this;
    scope.device_ = device;
    return scope;
  }
  /// Nodes that run before those of the scope, besides the scope's own.
  Scope WithControlDependencies(const std::vector<Operation>& operations) const {
    Scope scope = *this;
    scope.controls_.insert(scope.controls_.end(), operations.begin(), operations.end());
    return scope;
  }
  Scope WithNoControlDependencies() const {
    Scope scope = *this;
    scope.controls_.clear();
    return scope;
  }
  /// The device of another node.
  Scope ColocateWith(const Operation& operation) const {
    Scope scope = *this;
    scope.colocation_ = state_->NameOf(operation);
    return scope;
  }

  /// A scope whose names are those of the whole graph.
  Scope WithoutPrefix() const {
    Scope scope = *this;
    scope.prefix_.clear();
    scope.op_name_.clear();
    return scope;
  }
  bool HasOpName() const { return !op_name_.empty(); }

  /// The full name of a node, not yet unique.
  std::string NameFor(const std::string& op) const {
    return prefix_ + (op_name_.empty() ? op : op_name_);
  }
  weft_graph* graph() const { return state_->graph.get(); }
  const std::shared_ptr<detail::GraphState>& state() const { return state_; }
  const std::string& device() const { return device_; }
  const std::string& colocation() const { return colocation_; }
  const std::vector<Operation>& controls() const { return controls_; }

 private:
  explicit Scope(std::shared_ptr<detail::GraphState> state) : state_(std::move(state)) {}

  std::shared_ptr<detail::GraphState> state_;
  std::string prefix_, op_name_, device_, colocation_;
  std::vector<Operation> controls_;
};

namespace ops {

/// A constant of any size; see also `Const` with a tensor's arguments.
inline Output Const(const Scope& scope, const Tensor& value) {
  detail::Status status;
  const char* device = scope.device().empty() ? nullptr : scope.device().c_str();
  const char* name = weft_graph_constant(scope.graph(), scope.NameFor("Const").c_str(),
                                         value.get(), device, status);
  return Output(Operation(status.check(name), scope.state()->id), 0);
}

template <typename T>
Output Const(const Scope& scope, const T& value) {
  return Const(scope, Tensor(value));
}
template <typename T>
Output Const(const Scope& scope, std::initializer_list<T> values, const Shape& shape) {
  return Const(scope, Tensor(values, shape));
}
template <typename T>
Output Const(const Scope& scope, const std::vector<T>& values, const Shape& shape) {
  return Const(scope, Tensor(values, shape));
}

/// The base of ops with one output, which stand for it.
class SingleOutput {
 public:
  Operation operation;

  operator Output() const { return Output(operation, 0); }
  std::string name() const { return operation.name() + ":0"; }
};

/// The base of ops without outputs, or with several.
class OtherOutputs {
 public:
  Operation operation;

  operator Operation() const { return operation; }
};

}  // namespace ops

/// An argument of an op: an output, or a value that becomes a constant next to the op.
class Input {
 public:
  Input(const Output& output) : output_(output) {}
  Input(const ops::SingleOutput& op) : output_(op) {}
  Input(const Tensor& value) : value_(value) {}
  template <typename T, DataType type = DataTypeOf<T>::value>
  Input(T value) : value_(value) {}
  Input(const char* text) : value_(text) {}
  Input(const std::string& text) : value_(text) {}
  template <typename T, DataType type = DataTypeOf<T>::value>
  Input(std::initializer_list<T> values) : value_(std::vector<T>(values)) {}
  template <typename T, DataType type = DataTypeOf<T>::value>
  Input(const std::vector<T>& values) : value_(values) {}
  Input(const std::vector<std::string>& texts) : value_(texts) {}

  std::string Name(const Scope& scope) const {
    if (value_) return ops::Const(scope, value_).name();
    if (!output_)
      throw Error(WEFT_INVALID_ARGUMENT,
                  "an input of '" + scope.NameFor("a node") + "' is an empty output or tensor");
    return scope.state()->NameOf(output_);
  }

 private:
  Output output_;
  Tensor value_;
};

using InputList = std::vector<Input>;

/// A static shape: -1 is an unknown size; without a value, the rank is unknown.
class PartialShape {
 public:
  PartialShape() = default;
  PartialShape(std::initializer_list<std::int64_t> dims) : dims_(dims), has_rank_(true) {}
  PartialShape(Shape dims) : dims_(std::move(dims)), has_rank_(true) {}

  bool has_rank() const { return has_rank_; }
  int rank() const { return has_rank_ ? static_cast<int>(dims_.size()) : -1; }
  const Shape& dims() const { return dims_; }

 private:
  Shape dims_;
  bool has_rank_ = false;
};

/// The name of a function of the graph, as an attribute.
struct FunctionName {
  std::string name;
};

namespace detail {

using AttrValue =
    std::variant<std::int64_t, double, bool, std::string, DataType, PartialShape, Tensor,
                 FunctionName, std::vector<std::int64_t>, std::vector<double>, std::vector<bool>,
                 std::vector<std::string>, std::vector<DataType>, std::vector<PartialShape>,
                 std::vector<Tensor>, std::vector<FunctionName>>;

/// Sets an attribute of a node under construction.
struct AttrSetter {
  weft_node* node;
  const char* name;

  void operator()(std::int64_t value) const { weft_node_attr_int(node, name, value); }
  void operator()(double value) const { weft_node_attr_float(node, name, value); }
  void operator()(bool value) const { weft_node_attr_bool(node, name, value); }
  void operator()(DataType value) const { weft_node_attr_type(node, name, value); }
  void operator()(const std::string& value) const {
    weft_node_attr_string(node, name, value.data(), value.size());
  }
  void operator()(const PartialShape& value) const {
    weft_node_attr_shape(node, name, value.dims().data(), value.rank());
  }
  void operator()(const Tensor& value) const { weft_node_attr_tensor(node, name, value.get()); }
  void operator()(const FunctionName& value) const {
    weft_node_attr_function(node, name, value.name.c_str());
  }
  void operator()(const std::vector<std::int64_t>& values) const {
    weft_node_attr_ints(node, name, values.data(), values.size());
  }
  void operator()(const std::vector<double>& values) const {
    weft_node_attr_floats(node, name, values.data(), values.size());
  }
  void operator()(const std::vector<DataType>& values) const {
    weft_node_attr_types(node, name, values.data(), values.size());
  }
  void operator()(const std::vector<bool>& values) const {
    const std::vector<unsigned char> flags(values.begin(), values.end());
    weft_node_attr_bools(node, name, flags.data(), flags.size());
  }
  void operator()(const std::vector<std::string>& values) const {
    std::vector<const char*> items;
    std::vector<std::size_t> sizes;
    for (const std::string& value : values) {
      items.push_back(value.data());
      sizes.push_back(value.size());
    }
    weft_node_attr_strings(node, name, items.data(), sizes.data(), items.size());
  }
  void operator()(const std::vector<PartialShape>& values) const {
    std::vector<const std::int64_t*> dims;
    std::vector<int> ranks;
    for (const PartialShape& value : values) {
      dims.push_back(value.dims().data());
      ranks.push_back(value.rank());
    }
    weft_node_attr_shapes(node, name, dims.data(), ranks.data(), dims.size());
  }
  void operator()(const std::vector<Tensor>& values) const {
    std::vector<const weft_tensor*> items;
    for (const Tensor& value : values) items.push_back(value.get());
    weft_node_attr_tensors(node, name, items.data(), items.size());
  }
  void operator()(const std::vector<FunctionName>& values) const {
    std::vector<const char*> items;
    for (const FunctionName& value : values) items.push_back(value.name.c_str());
    weft_node_attr_functions(node, name, items.data(), items.size());
  }
};

}  // namespace detail

/// Attributes of a node, by name.
class Attributes {
 public:
  void Set(const char* name, detail::AttrValue value) {
    for (auto& entry : values_)
      if (entry.first == name) {
        entry.second = std::move(value);
        return;
      }
    values_.emplace_back(name, std::move(value));
  }
  /// A number, or the size of a list; `otherwise` if it is not set.
  std::int64_t Count(const char* name, std::int64_t otherwise) const {
    for (const auto& entry : values_) {
      if (entry.first != name) continue;
      if (const auto* number = std::get_if<std::int64_t>(&entry.second)) return *number;
      if (const auto* types = std::get_if<std::vector<DataType>>(&entry.second))
        return static_cast<std::int64_t>(types->size());
    }
    return otherwise;
  }
  const std::vector<std::pair<std::string, detail::AttrValue>>& values() const { return values_; }

 private:
  std::vector<std::pair<std::string, detail::AttrValue>> values_;
};

/// Adds one node to a graph. All calls throw Error (FAILED_PRECONDITION) after `Finish`.
class NodeBuilder {
 public:
  NodeBuilder(const Scope& scope, const char* op)
      : scope_(scope), name_(scope.NameFor(op)),
        node_(weft_node_new(scope.graph(), op, name_.c_str()), weft_node_cancel) {
    if (!node_) throw Error(WEFT_RESOURCE_EXHAUSTED, "the client has no more memory");
    for (const Operation& control : scope.controls())
      weft_node_control(node(), scope.state()->NameOf(control).c_str());
    if (!scope.device().empty()) weft_node_device(node(), scope.device().c_str());
    if (!scope.colocation().empty()) weft_node_colocate(node(), scope.colocation().c_str());
  }

  NodeBuilder& Add(const Input& input) {
    weft_node_input(node(), input.Name(constants()).c_str());
    return *this;
  }
  NodeBuilder& Add(const InputList& inputs) {
    std::vector<std::string> names;
    for (const Input& input : inputs) names.push_back(input.Name(constants()));
    std::vector<const char*> items;
    for (const std::string& name : names) items.push_back(name.c_str());
    weft_node_input_list(node(), items.data(), items.size());
    return *this;
  }
  NodeBuilder& Attr(const char* name, const detail::AttrValue& value) {
    std::visit(detail::AttrSetter{node(), name}, value);
    return *this;
  }
  NodeBuilder& Attrs(const Attributes& attributes) {
    for (const auto& entry : attributes.values()) Attr(entry.first.c_str(), entry.second);
    return *this;
  }
  Operation Finish() {
    node();
    detail::Status status;
    const char* name = status.check(weft_node_finish(node_.release(), status));
    return Operation(name, scope_.state()->id);
  }

 private:
  weft_node* node() const {
    if (!node_)
      throw Error(WEFT_FAILED_PRECONDITION, "the node '" + name_ + "' was finished already");
    return node_.get();
  }
  /// Constants are named after the node.
  Scope constants() const { return scope_.WithoutPrefix().WithOpName(name_ + "/Const"); }

  Scope scope_;
  std::string name_;
  std::unique_ptr<weft_node, void (*)(weft_node*)> node_;
};

namespace ops {

/// `count` outputs of a node from number `first` on; `first` grows by as many.
inline std::vector<Output> TakeOutputs(const Operation& operation, std::int64_t count, int& first) {
  std::vector<Output> outputs;
  for (std::int64_t i = 0; i < count; i++) outputs.emplace_back(operation, first++);
  return outputs;
}

}  // namespace ops
}  // namespace weft

#endif
