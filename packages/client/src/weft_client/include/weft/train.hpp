/// Variables, optimizers and checkpoints.
#ifndef WEFT_TRAIN_HPP
#define WEFT_TRAIN_HPP

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "session.hpp"

namespace weft {

/// A variable, with the operation that gives it its initial value.
///
///     Variable weights(root.WithOpName("weights"), {784, 10}, WEFT_FLOAT32, 0.0f);
///     session.Run(InitializeVariables(root));
class Variable {
 public:
  /// `initial` has the shape of the variable, or one that broadcasts to it.
  Variable(const Scope& scope, const Shape& shape, DataType dtype, const Input& initial)
      : shape_(shape), dtype_(dtype) {
    NodeBuilder builder(scope.HasOpName() ? scope : scope.WithOpName("Variable"), "VariableV2");
    ref_ = Output(builder.Attr("shape", PartialShape(shape)).Attr("dtype", dtype).Finish(), 0);
    const Scope inner = scope.WithoutPrefix();
    const Output value(initial.Name(inner.WithOpName(name() + "/initial")));
    NodeBuilder full(inner.WithOpName(name() + "/initial/full"), "BroadcastTo");
    full.Add(value).Add(Input(shape));
    NodeBuilder assign(inner.WithOpName(name() + "/Assign").ColocateWith(ref_.operation()),
                       "Assign");
    initializer_ = assign.Add(ref_).Add(Output(full.Finish(), 0)).Finish();
    scope.state()->initializers.push_back(initializer_);
  }

  operator Output() const { return ref_; }
  operator Input() const { return Input(ref_); }
  const Output& ref() const { return ref_; }
  std::string name() const { return ref_.operation().name(); }
  const Operation& initializer() const { return initializer_; }
  const Shape& shape() const { return shape_; }
  DataType dtype() const { return dtype_; }

  /// A variable of the same shape and type on the same device, such as an optimizer keeps.
  Variable Slot(const Scope& scope, const std::string& slot, const Input& initial) const {
    const Scope place = scope.WithoutPrefix().ColocateWith(ref_.operation());
    return Variable(place.WithOpName(name() + "/" + slot), shape_, dtype_, initial);
  }

 private:
  Output ref_;
  Operation initializer_;
  Shape shape_;
  DataType dtype_;
};

/// An operation that runs after others.
inline Operation Group(const Scope& scope, const std::vector<Operation>& operations) {
  return NodeBuilder(scope.WithControlDependencies(operations), "NoOp").Finish();
}

/// An operation that gives all variables so far their initial values.
inline Operation InitializeVariables(const Scope& scope) {
  return Group(scope.WithNoControlDependencies().WithOpName("init"), scope.state()->initializers);
}

/// The base of optimizers, which add update ops to the graph.
///
/// Slots have the names that Python's optimizers give them, so that either can restore the other's
/// checkpoints. Gradients of gathers change the rows that they have, except by Adam.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Add gradients of the sum of a loss and updates of variables; returns the training step.
  /// Throws INVALID_ARGUMENT if the loss depends on none of the variables.
  Operation Minimize(const Session& session, const Scope& scope, const Output& loss,
                     const std::vector<Variable>& variables) {
    std::vector<Output> references;
    for (const Variable& variable : variables) references.push_back(variable);
    return Apply(scope, session.AddSparseGradients({loss}, references), variables);
  }

  /// Add updates of variables by their gradients; variables without a gradient are left alone.
  Operation Apply(const Scope& scope, const std::vector<Gradient>& gradients,
                  const std::vector<Variable>& variables) {
    if (gradients.size() != variables.size())
      throw Error(WEFT_INVALID_ARGUMENT,
                  "Apply needs a gradient for each variable, got " +
                      std::to_string(gradients.size()) + " gradients of " +
                      std::to_string(variables.size()) + " variables");
    check_gradients(gradients, variables);
    std::vector<Operation> updates;
    const Scope inner = scope.NewSubScope(name());
    begin(inner, variables);
    for (std::size_t i = 0; i < variables.size(); i++)
      if (gradients[i].values)
        updates.push_back(update(inner.ColocateWith(variables[i].ref().operation()), gradients[i],
                                 variables[i]));
    return finish(inner, updates);
  }

  /// The state of the optimizer: the variables that it has added, to save and restore.
  const std::vector<Variable>& variables() const { return state_; }

 protected:
  virtual const char* name() const = 0;
  virtual Operation update(const Scope& scope, const Gradient& gradient,
                           const Variable& variable) = 0;
  virtual void begin(const Scope&, const std::vector<Variable>&) {}
  virtual Operation finish(const Scope& scope, const std::vector<Operation>& updates) {
    return Group(scope.WithOpName("step"), updates);
  }

  /// A scalar of the type of a variable.
  static Input number(const Scope& scope, double value, const Variable& variable) {
    NodeBuilder builder(scope, "Cast");
    builder.Add(Input(value)).Attr("DstT", variable.dtype());
    return Output(builder.Finish(), 0);
  }
  /// The slot number `index` of a variable: a variable of the same shape, which `value` fills.
  const Variable& slot(const Scope& scope, const Variable& variable, int index, double value) {
    return keep({variable.ref().graph_id(), variable.name(), index}, [&] {
      return variable.Slot(scope, name(), number(scope, value, variable));
    });
  }
  /// A variable of the optimizer itself, without a name scope; it is added once for each graph.
  const Variable& scalar(const Scope& scope, const std::string& title, double value,
                         const Variable& like) {
    return keep({like.ref().graph_id(), title, -1}, [&] {
      const Scope place = scope.WithoutPrefix().ColocateWith(like.ref().operation());
      return Variable(place.WithOpName(title), Shape{}, like.dtype(), number(scope, value, like));
    });
  }
  /// The node of an update rule: "ApplyX", or "SparseApplyX" for the gradient of a gather.
  static NodeBuilder rule(const Scope& scope, const std::string& title, const Gradient& gradient) {
    return NodeBuilder(scope, ((gradient.indices ? "SparseApply" : "Apply") + title).c_str());
  }
  static void add_gradient(NodeBuilder& builder, const Gradient& gradient) {
    builder.Add(gradient.values);
    if (gradient.indices) builder.Add(gradient.indices);
  }
  /// A gradient in which no index occurs twice: the rows of equal indices are added.
  static Gradient unique_rows(const Scope& scope, const Gradient& gradient) {
    if (!gradient.indices) return gradient;
    NodeBuilder unique(scope, "Unique"), size(scope, "Size"), sum(scope, "UnsortedSegmentSum");
    const Operation rows = unique.Add(gradient.indices).Finish();
    const Output count(size.Add(Output(rows, 0)).Finish(), 0);
    sum.Add(gradient.values).Add(Output(rows, 1)).Add(count);
    return {Output(sum.Finish(), 0), Output(rows, 0)};
  }

 private:
  static void check_gradients(const std::vector<Gradient>& gradients,
                              const std::vector<Variable>& variables) {
    if (variables.empty()) throw Error(WEFT_INVALID_ARGUMENT, "No variables provided.");
    std::string names;
    for (std::size_t i = 0; i < variables.size(); i++) {
      if (gradients[i].values) return;
      names += (i ? ", " : "") + variables[i].name();
    }
    throw Error(WEFT_INVALID_ARGUMENT, "No gradients provided for any variable: " + names +
                                           "; pass variables that the loss depends on");
  }

  using Key = std::tuple<std::uint64_t, std::string, int>;

  template <typename Create>
  const Variable& keep(const Key& key, Create create) {
    const auto known = indices_.find(key);
    if (known != indices_.end()) return state_[known->second];
    state_.push_back(create());
    indices_[key] = state_.size() - 1;
    return state_.back();
  }

  std::vector<Variable> state_;
  std::map<Key, std::size_t> indices_;
};

/// variable -= rate * gradient
class GradientDescent : public Optimizer {
 public:
  explicit GradientDescent(double rate) : rate_(rate) {}

 protected:
  const char* name() const override { return "GradientDescent"; }
  Operation update(const Scope& scope, const Gradient& gradient,
                   const Variable& variable) override {
    const Input rate = number(scope, rate_, variable);
    if (!gradient.indices) {
      NodeBuilder builder(scope, "ApplyGradientDescent");
      return builder.Add(variable).Add(rate).Add(gradient.values).Finish();
    }
    NodeBuilder scaled(scope, "Mul"), builder(scope, "ScatterSub");
    const Output change(scaled.Add(gradient.values).Add(rate).Finish(), 0);
    return builder.Add(variable).Add(gradient.indices).Add(change).Finish();
  }

 private:
  double rate_;
};

/// Gradient descent with a momentum, or with Nesterov's. Sutskever et al. 2013.
class Momentum : public Optimizer {
 public:
  Momentum(double rate, double momentum, bool use_nesterov = false)
      : rate_(rate), momentum_(momentum), use_nesterov_(use_nesterov) {}

 protected:
  const char* name() const override { return "Momentum"; }
  Operation update(const Scope& scope, const Gradient& gradient,
                   const Variable& variable) override {
    const Gradient rows = unique_rows(scope, gradient);
    NodeBuilder builder = rule(scope, "Momentum", rows);
    builder.Add(variable).Add(slot(scope, variable, 0, 0)).Add(number(scope, rate_, variable));
    add_gradient(builder, rows);
    builder.Add(number(scope, momentum_, variable)).Attr("use_nesterov", use_nesterov_);
    return builder.Finish();
  }

 private:
  double rate_, momentum_;
  bool use_nesterov_;
};

/// Duchi, Hazan & Singer 2011.
class Adagrad : public Optimizer {
 public:
  explicit Adagrad(double rate, double initial_accumulator = 0.1)
      : rate_(rate), initial_(initial_accumulator) {}

 protected:
  const char* name() const override { return "Adagrad"; }
  Operation update(const Scope& scope, const Gradient& gradient,
                   const Variable& variable) override {
    const Gradient rows = unique_rows(scope, gradient);
    NodeBuilder builder = rule(scope, "Adagrad", rows);
    builder.Add(variable).Add(slot(scope, variable, 0, initial_));
    builder.Add(number(scope, rate_, variable));
    add_gradient(builder, rows);
    return builder.Finish();
  }

 private:
  double rate_, initial_;
};

/// Tieleman & Hinton 2012.
class RMSProp : public Optimizer {
 public:
  explicit RMSProp(double rate, double decay = 0.9, double momentum = 0, double epsilon = 1e-10)
      : rate_(rate), decay_(decay), momentum_(momentum), epsilon_(epsilon) {}

 protected:
  const char* name() const override { return "RMSProp"; }
  Operation update(const Scope& scope, const Gradient& gradient,
                   const Variable& variable) override {
    const Gradient rows = unique_rows(scope, gradient);
    NodeBuilder builder = rule(scope, "RMSProp", rows);
    builder.Add(variable).Add(slot(scope, variable, 0, 1)).Add(slot(scope, variable, 1, 0));
    for (double value : {rate_, decay_, momentum_, epsilon_})
      builder.Add(number(scope, value, variable));
    add_gradient(builder, rows);
    return builder.Finish();
  }

 private:
  double rate_, decay_, momentum_, epsilon_;
};

/// Kingma & Ba 2015. All rows of a variable change, including rows that a sparse gradient lacks.
class Adam : public Optimizer {
 public:
  explicit Adam(double rate = 0.001, double beta1 = 0.9, double beta2 = 0.999,
                double epsilon = 1e-8)
      : rate_(rate), betas_{beta1, beta2}, epsilon_(epsilon) {}

 protected:
  const char* name() const override { return "Adam"; }
  void begin(const Scope& scope, const std::vector<Variable>& variables) override {
    powers_.clear();
    if (variables.empty()) return;
    powers_.push_back(scalar(scope, "beta1_power", betas_[0], variables[0]));
    powers_.push_back(scalar(scope, "beta2_power", betas_[1], variables[0]));
  }
  Operation update(const Scope& scope, const Gradient& gradient,
                   const Variable& variable) override {
    NodeBuilder builder(scope, "ApplyAdam");
    builder.Add(variable).Add(slot(scope, variable, 0, 0)).Add(slot(scope, variable, 1, 0));
    for (const Variable& power : powers_) builder.Add(in_type_of(scope, power, variable));
    for (double value : {rate_, betas_[0], betas_[1], epsilon_})
      builder.Add(number(scope, value, variable));
    return builder.Add(dense(scope, gradient, variable)).Finish();
  }
  Operation finish(const Scope& scope, const std::vector<Operation>& updates) override {
    std::vector<Operation> last = updates;
    const Scope after = scope.WithControlDependencies(updates);
    for (std::size_t i = 0; i < powers_.size(); i++) {
      NodeBuilder product(after, "Mul"), assign(after, "Assign");
      product.Add(powers_[i]).Add(number(scope, betas_[i], powers_[i]));
      last.push_back(assign.Add(powers_[i]).Add(Output(product.Finish(), 0)).Finish());
    }
    return Group(scope.WithOpName("step"), last);
  }

 private:
  static Output dense(const Scope& scope, const Gradient& gradient, const Variable& variable) {
    if (!gradient.indices) return gradient.values;
    NodeBuilder sum(scope, "UnsortedSegmentSum");
    sum.Add(gradient.values).Add(gradient.indices);
    return Output(sum.Add(static_cast<std::int32_t>(variable.shape()[0])).Finish(), 0);
  }
  static Output in_type_of(const Scope& scope, const Variable& power, const Variable& variable) {
    if (power.dtype() == variable.dtype()) return power;
    NodeBuilder cast(scope, "Cast");
    return Output(cast.Add(power).Attr("DstT", variable.dtype()).Finish(), 0);
  }

  double rate_, betas_[2], epsilon_;
  std::vector<Variable> powers_;
};

/// Saves variables to checkpoints, which Python's `Saver` reads and writes too. The paths are those
/// of the server, below its file roots. The state of optimizers is saved if they are named:
///
///     Saver saver(root, {weights, bias}, {&adam});
///
/// The optimizers must outlive the saver: it saves the variables that they have when it is used, also
/// those that a later `Minimize` adds. One thread at a time may use a saver.
class Saver {
 public:
  Saver(const Scope& scope, std::vector<Variable> variables,
        std::vector<const Optimizer*> optimizers = {})
      : scope_(scope.NewSubScope("save")),
        variables_(std::move(variables)),
        optimizers_(std::move(optimizers)),
        path_(placeholder(scope_)) {}

  void Save(const Session& session, const std::string& path) const {
    session.Run(current().save, {{path_, Tensor(path)}});
  }
  void Restore(const Session& session, const std::string& path) const {
    session.Run(current().restore, {{path_, Tensor(path)}});
  }

 private:
  /// The operations for a number of variables.
  struct Operations {
    std::size_t num_variables;
    Operation save, restore;
  };

  static Output placeholder(const Scope& scope) {
    NodeBuilder builder(scope.WithOpName("path"), "Placeholder");
    return Output(builder.Attr("dtype", WEFT_STRING).Attr("shape", PartialShape{}).Finish(), 0);
  }

  /// The operations for all variables; others are added if the optimizers have new variables.
  const Operations& current() const {
    std::vector<Variable> variables = variables_;
    for (const Optimizer* optimizer : optimizers_)
      variables.insert(variables.end(), optimizer->variables().begin(),
                       optimizer->variables().end());
    if (operations_.empty() || operations_.back().num_variables != variables.size())
      operations_.push_back(add(variables));
    return operations_.back();
  }

  Operations add(const std::vector<Variable>& variables) const {
    std::vector<std::string> names, slices(variables.size());
    std::vector<DataType> dtypes;
    InputList values;
    for (const Variable& variable : variables) {
      names.push_back(variable.name());
      dtypes.push_back(variable.dtype());
      values.push_back(variable);
    }
    NodeBuilder save(scope_, "SaveV2"), restore(scope_, "RestoreV2");
    save.Add(path_).Add(Input(names)).Add(Input(slices)).Add(values);
    restore.Add(path_).Add(Input(names)).Add(Input(slices)).Attr("dtypes", dtypes);
    const Operation saved = save.Finish(), restored = restore.Finish();
    std::vector<Operation> assigned;
    for (std::size_t i = 0; i < variables.size(); i++) {
      NodeBuilder assign(scope_.ColocateWith(variables[i].ref().operation()), "Assign");
      assign.Add(variables[i]).Add(Output(restored, static_cast<int>(i)));
      assigned.push_back(assign.Finish());
    }
    return {variables.size(), saved, Group(scope_.WithOpName("restore_all"), assigned)};
  }

  Scope scope_;
  std::vector<Variable> variables_;
  std::vector<const Optimizer*> optimizers_;
  Output path_;
  mutable std::vector<Operations> operations_;
};

}  // namespace weft

#endif
