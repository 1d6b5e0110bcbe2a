// Builds graphs and writes them as segments of graph.fbs.

#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "graph_generated.h"

namespace weft {

// Of DataType in TensorFlow's types.proto; a reference is 100 more.
enum Type : uint8_t { kFloat = 1, kInt32 = 3, kUint8 = 4 };
constexpr uint8_t kReference = 100;

struct Edge {
  uint32_t node;
  uint32_t port = 0;
};

// The value of an attribute: what kind it is, and its argument, as graph.fbs says.
struct Attribute {
  uint8_t kind;
  int64_t argument;
};

class GraphWriter {
 public:
  Attribute OfType(Type type) { return {0, type}; }
  Attribute OfInt(int64_t value) { return {1, value}; }
  Attribute OfBool(bool value) { return {3, value}; }
  Attribute OfText(const std::string& text) { return {4, String(text)}; }
  Attribute OfShape(const std::vector<int64_t>& shape) { return {6, Shape(shape)}; }

  // A tensor of at most 64 kB, which lies within the segment.
  Attribute OfTensor(Type type, const std::vector<int64_t>& shape, const void* data, size_t size) {
    graph_.data_external.push_back(0);
    graph_.data_offset.push_back(graph_.inline_bytes.size());
    graph_.data_length.push_back(size);
    graph_.data_crc.push_back(0);
    const auto* bytes = static_cast<const uint8_t*>(data);
    graph_.inline_bytes.insert(graph_.inline_bytes.end(), bytes, bytes + size);
    graph_.inline_bytes.resize((graph_.inline_bytes.size() + 7) / 8 * 8);
    graph_.tensor_type.push_back(type);
    graph_.tensor_shape.push_back(Shape(shape));
    graph_.tensor_data.push_back(graph_.data_offset.size() - 1);
    return {7, static_cast<int64_t>(graph_.tensor_type.size() - 1)};
  }

  // Adds a node with one output.
  Edge Add(const std::string& op, const std::string& name, const std::vector<Edge>& inputs,
           const std::map<std::string, Attribute>& attributes, uint8_t type,
           const std::vector<int64_t>& shape) {
    for (const auto& [key, value] : attributes) {
      graph_.attr_key.push_back(String(key));
      graph_.attr_value.push_back(graph_.value_kind.size());
      graph_.value_kind.push_back(value.kind);
      graph_.value_arg.push_back(value.argument);
    }
    graph_.attr_offsets.push_back(graph_.attr_key.size());
    graph_.node_attrs.push_back(graph_.node_op.size());
    graph_.node_op.push_back(String(op));
    graph_.node_name.push_back(String(name));
    graph_.node_device.push_back(String(""));
    graph_.node_forward.push_back(-1);
    graph_.node_source.push_back(-1);
    for (const Edge& input : inputs) {
      graph_.input_node.push_back(input.node);
      graph_.input_port.push_back(input.port);
    }
    graph_.input_offsets.push_back(graph_.input_node.size());
    graph_.control_offsets.push_back(0);
    graph_.output_type.push_back(type);
    graph_.output_shape.push_back(Shape(shape));
    graph_.output_offsets.push_back(graph_.output_type.size());
    return {static_cast<uint32_t>(graph_.node_op.size() - 1)};
  }

  // The whole graph as one segment: a header, the columns, and no blobs.
  std::vector<uint8_t> Segment() {
    graph_.version = 2;
    graph_.min_reader = 1;
    flatbuffers::FlatBufferBuilder builder;
    graph::FinishGraphBuffer(builder, graph::Graph::Pack(builder, &graph_));
    const uint64_t size = builder.GetSize();
    std::vector<uint8_t> segment(64 + (size + 63) / 64 * 64);
    std::memcpy(segment.data() + 64, builder.GetBufferPointer(), size);
    std::memcpy(segment.data(), "weftgrph", 8);
    Put<uint32_t>(segment, 8, 1);
    Put<uint32_t>(segment, 12, 64);
    Put<uint64_t>(segment, 16, size);
    Put<uint32_t>(segment, 32, Crc(segment.data() + 64, size));
    Put<uint32_t>(segment, 60, Crc(segment.data(), 60));
    return segment;
  }

  GraphWriter() {
    for (auto* offsets : {&graph_.string_offsets, &graph_.shape_offsets, &graph_.list_offsets,
                          &graph_.attr_offsets, &graph_.input_offsets, &graph_.control_offsets,
                          &graph_.output_offsets, &graph_.loop_member_offsets,
                          &graph_.loop_variable_offsets, &graph_.loop_invariant_offsets})
      offsets->push_back(0);
  }

 private:
  uint32_t String(const std::string& text) {
    auto [found, is_new] = strings_.emplace(text, strings_.size());
    if (is_new) {
      graph_.string_bytes.insert(graph_.string_bytes.end(), text.begin(), text.end());
      graph_.string_offsets.push_back(graph_.string_bytes.size());
    }
    return found->second;
  }

  int32_t Shape(const std::vector<int64_t>& shape) {
    auto [found, is_new] = shapes_.emplace(shape, shapes_.size());
    if (is_new) {
      graph_.shape_sizes.insert(graph_.shape_sizes.end(), shape.begin(), shape.end());
      graph_.shape_offsets.push_back(graph_.shape_sizes.size());
    }
    return found->second;
  }

  template <typename T>
  static void Put(std::vector<uint8_t>& bytes, size_t at, T value) {
    std::memcpy(bytes.data() + at, &value, sizeof value);
  }

  static uint32_t Crc(const uint8_t* data, size_t size) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < size; ++i) {
      crc ^= data[i];
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
  }

  graph::GraphT graph_;
  std::map<std::string, uint32_t> strings_;
  std::map<std::vector<int64_t>, int32_t> shapes_;
};

}  // namespace weft
