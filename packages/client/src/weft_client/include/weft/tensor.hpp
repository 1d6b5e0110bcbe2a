/// Errors, element types and tensors.
#ifndef WEFT_TENSOR_HPP
#define WEFT_TENSOR_HPP

#include <complex>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../weft_client.h"

namespace weft {

/// An error of the client or the server.
class Error : public std::runtime_error {
 public:
  explicit Error(weft_code code, const std::string& message, std::string node = "",
                 std::string op = "", std::string device = "")
      : std::runtime_error(message), code_(code), node_(std::move(node)), op_(std::move(op)),
        device_(std::move(device)) {}

  weft_code code() const { return code_; }
  /// The name of the code: "NOT_FOUND".
  const char* code_name() const { return weft_code_name(code_); }
  /// The node, op and device that failed; "" if they are unknown.
  const std::string& node() const { return node_; }
  const std::string& op() const { return op_; }
  const std::string& device() const { return device_; }

 private:
  weft_code code_;
  std::string node_, op_, device_;
};

namespace detail {

/// A status of the C interface, which throws what it was filled with.
class Status {
 public:
  Status() : status_(weft_status_new()) {}
  ~Status() { weft_status_free(status_); }
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;

  operator weft_status*() { return status_; }
  [[noreturn]] void raise() const {
    throw Error(weft_status_code(status_), weft_status_message(status_), weft_status_node(status_),
                weft_status_op(status_), weft_status_device(status_));
  }
  void check(weft_code code) const {
    if (code != WEFT_OK) raise();
  }
  template <typename T>
  T* check(T* pointer) const {
    if (!pointer) raise();
    return pointer;
  }

 private:
  weft_status* status_;
};

}  // namespace detail

/// An element type.
using DataType = weft_dtype;

/// 16 bits with the exponent of a float: the upper half of its bits.
struct bfloat16 {
  std::uint16_t bits;
};

/// A floating-point number of IEEE's 16-bit format.
struct float16 {
  std::uint16_t bits;
};

/// The element type of a C++ type: `DataTypeOf<float>::value`.
template <typename T>
struct DataTypeOf;
template <DataType type>
struct DataTypeConstant {
  static constexpr DataType value = type;
};
template <> struct DataTypeOf<float> : DataTypeConstant<WEFT_FLOAT32> {};
template <> struct DataTypeOf<double> : DataTypeConstant<WEFT_FLOAT64> {};
template <> struct DataTypeOf<std::int8_t> : DataTypeConstant<WEFT_INT8> {};
template <> struct DataTypeOf<std::int16_t> : DataTypeConstant<WEFT_INT16> {};
template <> struct DataTypeOf<std::int32_t> : DataTypeConstant<WEFT_INT32> {};
template <> struct DataTypeOf<std::int64_t> : DataTypeConstant<WEFT_INT64> {};
template <> struct DataTypeOf<std::uint8_t> : DataTypeConstant<WEFT_UINT8> {};
template <> struct DataTypeOf<std::uint16_t> : DataTypeConstant<WEFT_UINT16> {};
template <> struct DataTypeOf<std::uint32_t> : DataTypeConstant<WEFT_UINT32> {};
template <> struct DataTypeOf<std::uint64_t> : DataTypeConstant<WEFT_UINT64> {};
template <> struct DataTypeOf<bool> : DataTypeConstant<WEFT_BOOL> {};
template <> struct DataTypeOf<bfloat16> : DataTypeConstant<WEFT_BFLOAT16> {};
template <> struct DataTypeOf<float16> : DataTypeConstant<WEFT_FLOAT16> {};
template <> struct DataTypeOf<std::complex<float>> : DataTypeConstant<WEFT_COMPLEX64> {};
template <> struct DataTypeOf<std::complex<double>> : DataTypeConstant<WEFT_COMPLEX128> {};

using Shape = std::vector<std::int64_t>;

/// A tensor, whose copies share their elements.
///
///     Tensor matrix({1.0f, 2.0f, 3.0f, 4.0f}, {2, 2});
///     matrix.data<float>()[0] = 5;
class Tensor {
 public:
  Tensor() = default;

  /// A tensor with uninitialized elements of a type with a size.
  Tensor(DataType dtype, const Shape& shape) {
    detail::Status status;
    own(status.check(weft_tensor_new(dtype, shape.data(), static_cast<int>(shape.size()), status)));
  }

  /// A scalar.
  template <typename T, DataType type = DataTypeOf<T>::value>
  explicit Tensor(T value) : Tensor(type, Shape{}) {
    *data<T>() = value;
  }
  explicit Tensor(const std::string& text) : Tensor(std::vector<std::string>{text}, Shape{}) {}
  explicit Tensor(const char* text) : Tensor(std::string(text)) {}

  /// A copy of elements in row-major order; a vector if no shape is given.
  template <typename T, DataType type = DataTypeOf<T>::value>
  explicit Tensor(const std::vector<T>& values)
      : Tensor(values, Shape{static_cast<std::int64_t>(values.size())}) {}
  template <typename T, DataType type = DataTypeOf<T>::value>
  Tensor(const std::vector<T>& values, const Shape& shape) : Tensor(type, shape) {
    fill(values.begin(), values.size(), static_cast<T*>(nullptr));
  }
  template <typename T, DataType type = DataTypeOf<T>::value>
  Tensor(std::initializer_list<T> values, const Shape& shape) : Tensor(type, shape) {
    fill(values.begin(), values.size(), static_cast<T*>(nullptr));
  }
  explicit Tensor(const std::vector<std::string>& texts)
      : Tensor(texts, Shape{static_cast<std::int64_t>(texts.size())}) {}
  Tensor(const std::vector<std::string>& texts, const Shape& shape) {
    check_count(texts.size(), element_count(shape));
    std::vector<const char*> items;
    std::vector<std::size_t> sizes;
    for (const std::string& text : texts) {
      items.push_back(text.data());
      sizes.push_back(text.size());
    }
    detail::Status status;
    own(status.check(weft_tensor_strings(items.data(), sizes.data(), shape.data(),
                                         static_cast<int>(shape.size()), status)));
  }

  /// A tensor over memory of the caller, which must outlive it and its copies.
  template <typename T, DataType type = DataTypeOf<T>::value>
  static Tensor Borrow(T* data, const Shape& shape) {
    std::size_t count = 1;
    for (std::int64_t size : shape) count *= static_cast<std::size_t>(size);
    detail::Status status;
    Tensor tensor;
    tensor.own(status.check(weft_tensor_borrow(type, shape.data(), static_cast<int>(shape.size()),
                                               data, count * sizeof(T), nullptr, nullptr, status)));
    return tensor;
  }

  /// A tensor of the C interface; takes over one reference.
  static Tensor Adopt(weft_tensor* tensor) {
    Tensor result;
    result.own(tensor);
    return result;
  }
  weft_tensor* get() const { return tensor_.get(); }
  explicit operator bool() const { return tensor_ != nullptr; }

  /// All below throw Error (FAILED_PRECONDITION) for an empty tensor, which has no element type.
  DataType dtype() const { return weft_tensor_dtype(checked()); }
  Shape shape() const {
    Shape shape(static_cast<std::size_t>(weft_tensor_rank(checked())));
    for (std::size_t i = 0; i < shape.size(); i++)
      shape[i] = weft_tensor_dim(get(), static_cast<int>(i));
    return shape;
  }
  std::int64_t num_elements() const { return weft_tensor_num_elements(checked()); }
  std::size_t size_bytes() const { return weft_tensor_size_bytes(checked()); }
  void* raw() const { return weft_tensor_data(checked()); }

  /// The elements, whose type must be the tensor's.
  template <typename T>
  T* data() const {
    if (dtype() != DataTypeOf<T>::value)
      throw Error(WEFT_INVALID_ARGUMENT, std::string("the tensor has elements of type ") +
                                             weft_dtype_name(dtype()) + ", not " +
                                             weft_dtype_name(DataTypeOf<T>::value));
    return static_cast<T*>(raw());
  }
  /// The only element.
  template <typename T>
  T scalar() const {
    if (num_elements() != 1)
      throw Error(WEFT_INVALID_ARGUMENT, "a scalar is a tensor of one element, this one has " +
                                             std::to_string(num_elements()));
    return *data<T>();
  }
  template <typename T>
  std::vector<T> values() const {
    const T* elements = data<T>();
    return std::vector<T>(elements, elements + num_elements());
  }
  std::string string(std::int64_t index = 0) const {
    std::size_t size = 0;
    const char* text = weft_tensor_string(checked(), index, &size);
    if (!text)
      throw Error(WEFT_INVALID_ARGUMENT,
                  "the tensor has " + std::to_string(num_elements()) + " elements of type " +
                      weft_dtype_name(dtype()) + ", and no string " + std::to_string(index));
    return std::string(text, size);
  }

 private:
  weft_tensor* checked() const {
    if (!tensor_) throw Error(WEFT_FAILED_PRECONDITION, "the tensor is empty");
    return tensor_.get();
  }

  void own(weft_tensor* tensor) { tensor_ = std::shared_ptr<weft_tensor>(tensor, weft_tensor_free); }

  template <typename Iterator, typename T>
  void fill(Iterator values, std::size_t count, T*) {
    check_count(count, num_elements());
    T* elements = data<T>();
    for (std::size_t i = 0; i < count; i++) elements[i] = *values++;
  }

  /// The number of elements of a shape, without overflow.
  static std::int64_t element_count(const Shape& shape) {
    for (std::int64_t size : shape)
      if (size < 0)
        throw Error(WEFT_INVALID_ARGUMENT,
                    "the sizes of a tensor must not be negative, got " + std::to_string(size));
    std::int64_t count = 1;
    for (std::int64_t size : shape)
      if (size == 0) return 0;
    for (std::int64_t size : shape) {
      if (count > std::numeric_limits<std::int64_t>::max() / size)
        throw Error(WEFT_RESOURCE_EXHAUSTED, "a tensor of this shape has more than 2^63 elements");
      count *= size;
    }
    return count;
  }

  static void check_count(std::size_t count, std::int64_t expected) {
    if (static_cast<std::int64_t>(count) != expected)
      throw Error(WEFT_INVALID_ARGUMENT, "the shape of a tensor has " + std::to_string(expected) +
                                             " elements, got " + std::to_string(count));
  }

  std::shared_ptr<weft_tensor> tensor_;
};

}  // namespace weft

#endif
