import CWeftLite
import Foundation

/// An error of the runtime. The message says what is wrong and where.
public struct LiteError: Error, CustomStringConvertible {
    /// The canonical code, such as 3 for an invalid argument and 15 for a damaged file.
    public let status: Int
    public let description: String
}

/// An input or output of an interpreter.
public struct Tensor {
    /// The name in the model's signature.
    public let name: String
    let number: UInt32
}

/// Runs a `.weftlite` model. An interpreter may be used by one thread at a time.
public final class Interpreter {
    public private(set) var inputs: [Tensor] = []
    public private(set) var outputs: [Tensor] = []

    private let file: UnsafeMutableRawPointer
    private var memory: UnsafeMutableRawPointer?
    private var handle: OpaquePointer?
    private let pool: OpaquePointer?

    /// Open a model.
    ///
    /// - Parameters:
    ///   - model: the bytes of a file, which are copied.
    ///   - threads: the number of threads that share the work, the caller's among them.
    public init(model: Data, threads: Int = 1) throws {
        let alignment = Int(WL_ALIGNMENT.rawValue)
        file = UnsafeMutableRawPointer.allocate(byteCount: max(model.count, 1), alignment: alignment)
        model.copyBytes(to: file.assumingMemoryBound(to: UInt8.self), count: model.count)
        pool = threads > 1 ? wl_pool_create(UInt32(threads)) : nil

        var config = wl_config()
        config.tasks = UInt32(threads)
        if let pool = pool {
            config.parallel = wl_pool_run
            config.context = UnsafeMutableRawPointer(pool)
        }
        var bytes = 0
        try Interpreter.check { wl_query(file, model.count, &config, &bytes, $0) }
        memory = UnsafeMutableRawPointer.allocate(byteCount: bytes, alignment: alignment)
        try Interpreter.check { wl_open(file, model.count, memory, bytes, &config, &handle, $0) }
        inputs = (0..<wl_input_count(handle)).map { tensor(wl_input(handle, $0), outputs: 0) }
        outputs = (0..<wl_output_count(handle)).map { tensor(wl_output(handle, $0), outputs: 1) }
    }

    deinit {
        wl_pool_destroy(pool)
        memory?.deallocate()
        file.deallocate()
    }

    /// An input by its name in the signature.
    public func input(_ name: String) -> Tensor? {
        return inputs.first { $0.name == name }
    }

    /// An output by its name in the signature.
    public func output(_ name: String) -> Tensor? {
        return outputs.first { $0.name == name }
    }

    /// The current sizes of a tensor, outermost first.
    public func shape(_ tensor: Tensor) -> [Int] {
        var info = self.info(tensor.number)
        let rank = Int(info.rank)
        return withUnsafeBytes(of: &info.dims) { $0.bindMemory(to: Int32.self).prefix(rank).map(Int.init) }
    }

    /// Give an input another shape, within its bound.
    public func resize(_ tensor: Tensor, to shape: [Int]) throws {
        let dims = shape.map(Int32.init)
        try Interpreter.check { wl_resize(handle, tensor.number, UInt32(dims.count), dims, $0) }
        try Interpreter.check { wl_plan(handle, $0) }
    }

    /// The bytes of a tensor, without a copy. They are valid until the interpreter is released or resized.
    public func bytes(_ tensor: Tensor) -> UnsafeMutableRawBufferPointer {
        return UnsafeMutableRawBufferPointer(
            start: wl_data(handle, tensor.number), count: info(tensor.number).bytes)
    }

    /// Copy values into a tensor; they must have its element type and number of bytes.
    public func set<Element>(_ tensor: Tensor, _ values: [Element]) {
        let to = bytes(tensor)
        values.withUnsafeBytes { from in
            precondition(from.count == to.count, "\(tensor.name) has \(to.count) bytes, got \(from.count)")
            to.copyMemory(from: from)
        }
    }

    /// A copy of the values of a tensor.
    public func get<Element>(_ tensor: Tensor, as type: Element.Type) -> [Element] {
        return Array(bytes(tensor).bindMemory(to: type))
    }

    /// Compute the outputs from the inputs.
    public func invoke() throws {
        try Interpreter.check { wl_invoke(handle, $0) }
    }

    private func info(_ number: UInt32) -> wl_info {
        var info = wl_info()
        wl_tensor_info(handle, number, &info)
        return info
    }

    private func tensor(_ number: UInt32, outputs: Int32) -> Tensor {
        if wl_signature_count(handle) == 1 {
            for i in 0..<wl_binding_count(handle, 0, outputs) {
                var bound: UInt32 = 0
                if let name = wl_binding(handle, 0, outputs, i, &bound), bound == number {
                    return Tensor(name: String(cString: name), number: number)
                }
            }
        }
        return Tensor(name: String(cString: info(number).name), number: number)
    }

    private static func check(_ call: (UnsafeMutablePointer<wl_error>) -> wl_status) throws {
        var error = wl_error()
        if call(&error) == WL_OK { return }
        let text = withUnsafeBytes(of: &error.text) { bytes in
            String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
        }
        throw LiteError(status: Int(error.status.rawValue), description: text)
    }
}
