/* An Arduino wrapper of weft_lite.h: one model in static memory, with its first input and output. */
#ifndef WEFT_LITE_ARDUINO_H
#define WEFT_LITE_ARDUINO_H

#include "weft_lite.h"
#include "weft_lite_model.h"

class WeftLite {
 public:
  /* Verify and open the model. Returns false after an error, which error() describes. */
  bool begin() { return weft_model_open(&interpreter_, &error_) == WL_OK; }

  /* Compute the outputs from the inputs. */
  bool invoke() { return wl_invoke(interpreter_, &error_) == WL_OK; }

  const char *error() const { return error_.text; }

  /* The elements of an input or output; the type is that of the model. */
  template <typename T>
  T *input(uint32_t i = 0) {
    return static_cast<T *>(wl_data(interpreter_, wl_input(interpreter_, i)));
  }
  template <typename T>
  const T *output(uint32_t i = 0) {
    return static_cast<const T *>(wl_data(interpreter_, wl_output(interpreter_, i)));
  }

  /* Bytes of an input or output. */
  size_t inputBytes(uint32_t i = 0) const { return bytes(wl_input(interpreter_, i)); }
  size_t outputBytes(uint32_t i = 0) const { return bytes(wl_output(interpreter_, i)); }

  wl_interpreter *interpreter() { return interpreter_; }

 private:
  size_t bytes(uint32_t tensor) const {
    wl_info info;
    return wl_tensor_info(interpreter_, tensor, &info) == WL_OK ? info.bytes : 0;
  }

  wl_interpreter *interpreter_ = nullptr;
  wl_error error_ = {};
};

#endif
