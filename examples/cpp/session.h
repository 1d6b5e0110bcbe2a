// A client of a weft server: control calls over gRPC, and values on a framed socket.

#pragma once

#include <arpa/inet.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "credentials.h"
#include "distrib_generated.h"

namespace weft {

constexpr uint64_t kVersion = 2;      // of the protocol
constexpr uint64_t kMetaVersion = 1;  // of the structs that begin the meta of a call

// An element type, a shape, and the bytes.
struct Value {
  uint8_t type;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
};

template <typename Table>
typename Table::NativeTableType Unpack(const uint8_t* data, size_t size) {
  flatbuffers::Verifier verifier(data, size);
  if (!verifier.VerifyBuffer<Table>(nullptr)) throw std::runtime_error("a damaged message");
  typename Table::NativeTableType found;
  flatbuffers::GetRoot<Table>(data)->UnPackTo(&found);
  return found;
}

template <typename Message>
std::vector<uint8_t> Pack(const Message& message) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(Message::TableType::Pack(builder, &message));
  return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

// Control calls: a flatbuffer goes, and a Reply with a flatbuffer or an error comes.
class Control {
 public:
  Control(const std::string& address, const Credentials& credentials, const std::string& token)
      : stub_(grpc::CreateChannel(address, credentials.ForControl())), token_(token) {}

  template <typename Answer, typename Request>
  Answer Call(const std::string& method, const Request& request) {
    const auto packed = Pack(request);
    grpc::Slice slice(packed.data(), packed.size());
    grpc::ByteBuffer sent(&slice, 1), got;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    context.set_wait_for_ready(true);
    context.AddMetadata("weft-version", std::to_string(kVersion));
    context.AddMetadata("weft-role", "client");
    if (!token_.empty()) context.AddMetadata("authorization", "Bearer " + token_);
    grpc::CompletionQueue queue;
    grpc::Status status;
    auto call = stub_.PrepareUnaryCall(&context, "/weft.Task/" + method, sent, &queue);
    call->StartCall();
    call->Finish(&got, &status, this);
    void* tag;
    bool ok;
    queue.Next(&tag, &ok);
    if (!status.ok()) throw std::runtime_error(method + ": " + status.error_message());
    grpc::Slice answer;
    if (!got.DumpToSingleSlice(&answer).ok()) throw std::runtime_error(method + ": no answer");
    const auto reply = Unpack<distrib::Reply>(answer.begin(), answer.size());
    if (!reply.error.empty()) throw std::runtime_error(method + ": " + reply.error);
    return Unpack<typename Answer::TableType>(reply.body.data(), reply.body.size());
  }

 private:
  grpc::GenericStub stub_;
  std::string token_;
};

// Calls with values, one at a time. All numbers are little-endian, as this machine's must be.
class Wire {
 public:
  enum Method : uint16_t {
    kHello = 0,
    kExtend = 6,
    kRunStep = 7,
    kCreateSession = 21,
    kPlan = 22,
    kCloseSession = 23
  };

  Wire(const std::string& host, uint64_t port, const Credentials& credentials) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
      throw std::runtime_error("no such host: " + host);
    for (auto* each = found; each && socket_ < 0; each = each->ai_next) {
      socket_ = socket(each->ai_family, SOCK_STREAM, 0);
      if (socket_ >= 0 && connect(socket_, each->ai_addr, each->ai_addrlen) != 0) {
        close(socket_);
        socket_ = -1;
      }
    }
    freeaddrinfo(found);
    if (socket_ < 0) throw std::runtime_error("nobody answers at " + host);
    const int one = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (credentials.secure()) tls_ = std::make_unique<Tls>(credentials, host, socket_);
  }

  ~Wire() { close(socket_); }

  // Says who calls, as a client and without an offer of another transport.
  void Hello(uint64_t incarnation, const std::string& token) {
    std::vector<uint8_t> meta;
    Append(meta, Greeting{kVersion, incarnation, 1, 0, static_cast<uint16_t>(token.size()), 0});
    meta.insert(meta.end(), token.begin(), token.end());
    Call(kHello, meta, {});
  }

  // A call whose request and reply are flatbuffers.
  template <typename Answer, typename Request>
  Answer Ask(Method method, const Request& request) {
    Call(method, Pack(request), {});
    return Unpack<typename Answer::TableType>(reply_.data(), reply_.size());
  }

  std::vector<Value> Call(Method method, const std::vector<uint8_t>& meta,
                          const std::vector<Value>& values) {
    ++call_;
    SendHead(method, meta, values);
    for (const Value& value : values)
      for (size_t at = 0; value.bytes.size() > kInline && at < value.bytes.size(); at += kChunk)
        SendFrame(kData, value.bytes.data() + at, std::min(kChunk, value.bytes.size() - at));
    return Receive();
  }

 private:
  static constexpr size_t kInline = 1 << 14, kChunk = 1 << 20;
  enum Kind : uint8_t { kHead = 1, kData = 2 };
  enum Flag : uint8_t { kInHead = 2 };

  struct Frame {
    uint8_t kind, reply;
    uint16_t zero;
    uint32_t size;
    uint64_t call;
  };
  struct Greeting {
    uint64_t version, incarnation;
    uint8_t role, zero;
    uint16_t token;
    uint32_t offer;
  };
  struct Head {
    uint16_t code, values;
    uint32_t meta;
  };
  struct Description {
    uint8_t type, rank, flags, zeros[5];
    uint64_t bytes;
  };

  void SendHead(Method method, const std::vector<uint8_t>& meta, const std::vector<Value>& values) {
    std::vector<uint8_t> head;
    Append(head, Head{method, static_cast<uint16_t>(values.size()),
                      static_cast<uint32_t>(meta.size())});
    head.insert(head.end(), meta.begin(), meta.end());
    for (const Value& value : values) {
      const uint8_t flags = value.bytes.size() <= kInline ? kInHead : 0;
      Append(head, Description{value.type, static_cast<uint8_t>(value.shape.size()), flags, {},
                               value.bytes.size()});
      for (int64_t size : value.shape) Append(head, size);
    }
    for (const Value& value : values)
      if (value.bytes.size() <= kInline)
        head.insert(head.end(), value.bytes.begin(), value.bytes.end());
    SendFrame(kHead, head.data(), head.size());
  }

  void SendFrame(Kind kind, const uint8_t* data, size_t size) {
    const Frame frame{kind, 0, 0, static_cast<uint32_t>(size), call_};
    Send(&frame, sizeof frame);
    Send(data, size);
  }

  std::vector<Value> Receive() {
    std::vector<uint8_t> head = ReceiveFrame(kHead);
    size_t at = sizeof(Head);
    const auto told = Take<Head>(head, 0);
    reply_.assign(head.begin() + at, head.begin() + std::min(at + told.meta, head.size()));
    if (told.code != 0) throw std::runtime_error(std::string(reply_.begin(), reply_.end()));
    at += told.meta;
    std::vector<Value> values(told.values);
    std::vector<uint64_t> sizes;
    std::vector<uint8_t> flags;
    for (Value& value : values) {
      const auto each = Take<Description>(head, at);
      at += sizeof each;
      value.type = each.type;
      for (int i = 0; i < each.rank; ++i, at += 8) value.shape.push_back(Take<int64_t>(head, at));
      sizes.push_back(each.bytes);
      flags.push_back(each.flags);
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (!(flags[i] & kInHead)) continue;
      if (sizes[i] > head.size() - at) throw std::runtime_error("a value is cut");
      values[i].bytes.assign(head.begin() + at, head.begin() + at + sizes[i]);
      at += sizes[i];
    }
    for (size_t i = 0; i < values.size(); ++i)
      while (values[i].bytes.size() < sizes[i]) {
        const auto chunk = ReceiveFrame(kData);
        values[i].bytes.insert(values[i].bytes.end(), chunk.begin(), chunk.end());
      }
    return values;
  }

  std::vector<uint8_t> ReceiveFrame(Kind kind) {
    Frame frame;
    ReceiveInto(&frame, sizeof frame);
    if (frame.kind != kind || !frame.reply || frame.call != call_ || frame.size > (1u << 24))
      throw std::runtime_error("an unexpected frame");
    std::vector<uint8_t> data(frame.size);
    ReceiveInto(data.data(), data.size());
    return data;
  }

  template <typename T>
  static void Append(std::vector<uint8_t>& bytes, const T& value) {
    const auto* start = reinterpret_cast<const uint8_t*>(&value);
    bytes.insert(bytes.end(), start, start + sizeof value);
  }

  template <typename T>
  static T Take(const std::vector<uint8_t>& bytes, size_t at) {
    T value;
    if (at > bytes.size() || sizeof value > bytes.size() - at)
      throw std::runtime_error("a head is cut");
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  }

  void Send(const void* data, size_t size) {
    const auto* at = static_cast<const char*>(data);
    while (size) {
      const ssize_t count =
          tls_ ? tls_->Write(at, size) : send(socket_, at, size, MSG_NOSIGNAL);
      if (count <= 0) throw std::runtime_error("the connection ended");
      at += count;
      size -= count;
    }
  }

  void ReceiveInto(void* data, size_t size) {
    auto* at = static_cast<char*>(data);
    while (size) {
      const ssize_t count = tls_ ? tls_->Read(at, size) : recv(socket_, at, size, 0);
      if (count <= 0) throw std::runtime_error("the connection ended");
      at += count;
      size -= count;
    }
  }

  int socket_ = -1;
  std::unique_ptr<Tls> tls_;
  uint64_t call_ = 0;
  std::vector<uint8_t> reply_;  // the meta of the last reply
};

// A session on a server's master.
class Session {
 public:
  Session(const std::string& host, const std::string& port, const Credentials& credentials = {})
      : token_(credentials.token(credentials.Host(host), port)),
        control_(credentials.Host(host) + ":" + port, credentials, token_),
        status_(Status()),
        wire_(credentials.Host(host), status_.wire_port, credentials) {
    wire_.Hello(status_.incarnation, token_);
    distrib::OpenSessionT create;
    create.version = kVersion;
    session_ = wire_.Ask<distrib::SessionT>(Wire::kCreateSession, create).session;
  }

  ~Session() {
    try {
      wire_.Call(Wire::kCloseSession, Named(), {});
    } catch (const std::exception&) {  // the server is gone, and the session with it
    }
  }

  const std::string& task() const { return status_.task; }

  // Adds the nodes of a segment to the graph.
  void Extend(const std::vector<uint8_t>& segment) {
    wire_.Call(Wire::kExtend, Named(), {{4, {static_cast<int64_t>(segment.size())}, segment}});
  }

  // Plans a step; returns its number.
  uint64_t Plan(const std::vector<std::string>& feeds, const std::vector<std::string>& fetches,
                const std::vector<std::string>& targets) {
    distrib::SignatureT signature;
    signature.session = session_;
    signature.feeds = feeds;
    signature.fetches = fetches;
    signature.targets = targets;
    return wire_.Ask<distrib::PlannedT>(Wire::kPlan, signature).signature;
  }

  // Runs a planned step, which may take a minute; returns what it fetches.
  std::vector<Value> Run(uint64_t signature, const std::vector<Value>& fed) {
    auto meta = Bytes({kMetaVersion, session_, signature, 60000});
    meta.push_back(0);  // no trace
    return wire_.Call(Wire::kRunStep, meta, fed);
  }

 private:
  distrib::StatusT Status() {
    distrib::EmptyT empty;
    empty.version = kVersion;
    auto status = control_.Call<distrib::StatusT>("Status", empty);
    if (status.version != kVersion) throw std::runtime_error("another version of the protocol");
    return status;
  }

  static std::vector<uint8_t> Bytes(const std::vector<uint64_t>& numbers) {
    std::vector<uint8_t> bytes(8 * numbers.size());
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    return bytes;
  }

  std::vector<uint8_t> Named() const {
    distrib::SessionRequestT request;
    request.session = session_;
    return Pack(request);
  }

  std::string token_;
  Control control_;
  distrib::StatusT status_;
  Wire wire_;
  uint64_t session_ = 0;
};

}  // namespace weft
